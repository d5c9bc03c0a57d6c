//! Taking turns, and the table.

use crate::cases::{self, Case};
use crate::peers::{Gcc, Ort, Ours, Peer};

/// Nanoseconds a burst should take, and how many rounds of turns.
const BURST: f64 = 2e6;
const ROUNDS: usize = 11;

/// Nanoseconds a call, by round; `None` for a peer that failed.
fn turns(peers: &mut [Option<&mut dyn Peer>]) -> Vec<Vec<f64>> {
    let mut calls = vec![];
    for p in peers.iter_mut() {
        let mut n = 1;
        let time = p.as_mut().and_then(|p| p.run(1).and_then(|_| p.run(1)).ok());
        if let Some(t) = time {
            n = ((BURST / t.max(1.0)) as u64).clamp(1, 1_000_000);
        }
        calls.push(n);
    }
    let mut times = vec![vec![]; peers.len()];
    for _ in 0..ROUNDS {
        for ((p, &n), t) in peers.iter_mut().zip(&calls).zip(&mut times) {
            let Some(p) = p else { continue };
            // The caches are somebody else's: one call to take them back.
            if n > 1 {
                let _ = p.run(1);
            }
            if let Ok(time) = p.run(n) {
                t.push(time / n as f64);
            }
        }
    }
    times
}

fn median(mut v: Vec<f64>) -> f64 {
    v.sort_by(f64::total_cmp);
    v.get(v.len() / 2).copied().unwrap_or(f64::NAN)
}

fn best(v: &[f64]) -> f64 {
    v.iter().copied().fold(f64::INFINITY, f64::min)
}

/// How much longer the second takes than the first, in the median of neighbours.
fn ratio(ours: &[f64], other: &[f64]) -> f64 {
    median(ours.iter().zip(other).map(|(a, b)| b / a).collect())
}

fn cell(x: f64) -> String {
    match x {
        x if !x.is_finite() => "-".into(),
        x if x < 0.995 => format!("**{x:.2}**"),
        x if x < 100.0 => format!("{x:.2}"),
        x => format!("{x:.0}"),
    }
}

/// The largest difference, in units of the largest value.
fn distance(a: &[f32], b: &[f32]) -> f32 {
    let most = b.iter().fold(1e-30f32, |m, x| m.max(x.abs()));
    let far = a.iter().zip(b).fold(0f32, |m, (x, y)| m.max((x - y).abs()));
    if a.len() == b.len() {
        far / most
    } else {
        f32::INFINITY
    }
}

pub fn kernels(cases: impl Iterator<Item = Case>, say: &mut dyn FnMut(&str)) {
    say("### Kernels\n");
    say("Rates are ours, by `--target-cpu`. The other columns say how many times longer the other takes, each against");
    say("ours for the same processor (onnxruntime: against native); bold where we lose.\n");
    say("| kernel | | x86-64-v2 | x86-64-v3 | native | gcc -O3 v2 | gcc -O3 v3 | onnxruntime |");
    say("|---|---|---|---|---|---|---|---|");
    let mut ort = Ort::start();
    let mut all: Vec<[f64; 3]> = vec![];
    for case in cases {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let mut ours = vec![];
        for cpu in ["x86-64-v2", "x86-64-v3", "native"] {
            match Ours::new(&case, cpu, dir.path()) {
                Ok(o) => ours.push(o),
                Err(e) => eprintln!("{} {}: {e}", case.group, case.name),
            }
        }
        let [v2, v3, native] = &mut ours[..] else { continue };
        let mut g2 = Gcc::new(&case, "x86-64-v2", dir.path()).map_err(|e| eprintln!("{}: {e}", case.name)).ok();
        let mut g3 = Gcc::new(&case, "x86-64-v3", dir.path()).ok();
        let loaded = match &mut ort {
            Some(o) => o.load(&case, dir.path()).map_err(|e| eprintln!("onnxruntime, {}: {e}", case.name)).is_ok(),
            None => false,
        };
        let mut peers: Vec<Option<&mut dyn Peer>> = vec![
            Some(v2),
            Some(v3),
            Some(native),
            g2.as_mut().map(|g| g as &mut dyn Peer),
            g3.as_mut().map(|g| g as &mut dyn Peer),
            ort.as_mut().filter(|_| loaded).map(|o| o as &mut dyn Peer),
        ];
        let t = turns(&mut peers);
        let results: Vec<Vec<f32>> = peers.iter().flatten().map(|p| p.result()).collect();
        for r in &results[1..] {
            let d = distance(&results[0], r);
            if d.is_nan() || d > 1e-4 {
                eprintln!("{} {}: results differ by {d}", case.group, case.name);
            }
        }
        let rate = |t: &[f64]| format!("{:.1}", case.work / best(t));
        let ratios = [ratio(&t[0], &t[3]), ratio(&t[1], &t[4]), ratio(&t[2], &t[5])];
        all.push(ratios);
        say(&format!(
            "| {} {} | {} | {} | {} | {} | {} | {} | {} |",
            case.group,
            case.name,
            case.unit,
            rate(&t[0]),
            rate(&t[1]),
            rate(&t[2]),
            cell(ratios[0]),
            cell(ratios[1]),
            cell(ratios[2])
        ));
    }
    let mean = |i: usize| {
        let logs: Vec<f64> = all.iter().map(|r| r[i].ln()).filter(|x| x.is_finite()).collect();
        cell((logs.iter().sum::<f64>() / logs.len() as f64).exp())
    };
    say(&format!("| geometric mean | | | | | {} | {} | {} |\n", mean(0), mean(1), mean(2)));
}

/// The cost of a call that has next to nothing to do.
pub fn overhead(say: &mut dyn FnMut(&str)) {
    say("### Call overhead\n");
    let case = Case { work: 4.0, inputs: vec![vec![4]; 2], output: vec![4], ..cases::small_add() };
    let dir = tempfile::tempdir().expect("a temporary folder");
    match Ours::new(&case, "baseline", dir.path()) {
        Ok(mut o) => {
            let t = turns(&mut [Some(&mut o)]);
            say(&format!(
                "A model of one addition of 4 floats through its typed entry: {:.0} ns a call (median {:.0}).\n",
                best(&t[0]),
                median(t[0].clone())
            ));
        }
        Err(e) => eprintln!("{e}"),
    }
}
