//! `--tune`: measures on this machine which kernels are the fastest, and keeps the answer in a file.
//!
//! The model is lowered once for each way that its heavy kernels can be computed ([`relax_lower::choice`]); all kernels
//! of all these forms become the entries of one library, which is loaded and called: pass after pass over the kernels in
//! the order of the model, each pass with other ways, so that caches hold what they would hold in the model. The least
//! time of a way counts.

mod cases;
mod file;

use crate::cli::CodegenArgs;
use crate::driver::{exports, scratch, Res, Session};
use crate::loader::{Library, Prepared, Shared};
use crate::output;
use cases::{Case, Heavy};
use file::Refused;
use relax_backend::target::{Levels, Target};
use relax_backend::x86;
use relax_ir::analysis::Typed;
use relax_ir::flat::FlatFunc;
use relax_ir::{DType, Diagnostic, IRModule, Span};
use relax_lower::choice::{self, Algorithm, Config, Tuned};
use relax_lower::Options;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Kernels with less of the model's predicted time are left to the cost model.
const SHARE: f64 = 0.004;
/// Kernels that are measured, at most.
const MOST: usize = 64;
/// Passes for each way, at least (where the budget allows) and at most.
const PASSES: (usize, usize) = (5, 40);
/// Short calls are timed together: so many seconds of them.
const BURST: f64 = 30e-6;
/// What a way has to save to be preferred to the model's.
const WORTH: f64 = 0.97;
/// Ways that take so many times as long as the best are given up.
const HOPELESS: f64 = 1.4;
/// The same in the second half.
const BEHIND: f64 = 1.07;
/// The value of dims that stay open.
const OPEN: i64 = 16;

/// Beside an output.
pub fn default_file(out: &Path) -> PathBuf {
    out.with_extension("tune.json")
}

/// By kernel: the best way of each algorithm and its microseconds.
type Ways = BTreeMap<String, Vec<(Config, f64)>>;

/// What `--tune` found, for a reader.
struct Found {
    kernels: usize,
    ways: usize,
    better: usize,
    /// Of the time of all measured kernels, by the model's choice and the best.
    before: f64,
    after: f64,
}

impl Session {
    /// Reads or measures what `--tune` and `--tune-file` ask for; `out` is the artifact.
    pub(crate) fn tuning(&mut self, model: &Path, out: Option<&Path>, o: &CodegenArgs) -> Res<()> {
        if self.tuned.is_some() {
            return Ok(());
        }
        if o.opt_level < 2 {
            let d = Diagnostic::error("option", Span::NONE, "--tune needs -O2: below, every kernel has one form");
            return if o.tune { self.ok(Err(d)) } else { Ok(()) };
        }
        let beside = out.map(default_file);
        let Some(path) = o.tune_file.clone().or(beside) else {
            if o.tune {
                let d = Diagnostic::error("option", Span::NONE, "--tune needs --tune-file here: there is no output");
                return self.ok(Err(d));
            }
            return Ok(());
        };
        let exists = path.exists();
        if !o.tune && !exists && o.tune_file.is_none() {
            return Ok(());
        }
        let target = self.target(o)?;
        let wide = match usable(&target) {
            Ok(wide) => wide,
            // A file that lies there by chance is for other libraries.
            Err(_) if !o.tune && o.tune_file.is_none() => return Ok(()),
            Err(d) => return self.ok(Err(d)),
        };
        let old = match exists.then(|| file::read(&path, wide.vector_bytes())) {
            None if o.tune => None,
            None => return self.ok(file::read(&path, wide.vector_bytes()).map(|_| ()).map_err(Refused::diagnostic)),
            Some(Ok(t)) => Some(t),
            Some(Err(Refused::Foreign(d))) if o.tune || o.tune_file.is_none() => {
                let what = if o.tune { "it is replaced" } else { "it is not used" };
                self.diags.push(Diagnostic::warning("tune-file", Span::NONE, format!("{}; {what}", d.message)));
                None
            }
            Some(Err(r)) => return self.ok(Err(r.diagnostic())),
        };
        if !o.tune {
            self.tuned = old.map(Arc::new);
            return Ok(());
        }
        let writable = output::writable(&path);
        self.ok(writable)?;
        let mut all = old.unwrap_or_default();
        all.vector_bytes = wide.vector_bytes();
        let (new, found) = self.measure(model, o, &target, wide)?;
        all.sites.extend(new);
        self.ok(output::write(&path, file::text(&all).as_bytes()))?;
        eprintln!(
            "tune: {} of {} kernels are faster than as the cost model has them ({} ways tried): together {:.1} % of their \
             time; {}",
            found.better,
            found.kernels,
            found.ways,
            100.0 * (1.0 - found.after / found.before.max(1e-9)),
            path.display()
        );
        self.tuned = Some(Arc::new(all));
        Ok(())
    }

    /// The best ways of the heavy kernels of a model.
    fn measure(&mut self, model: &Path, o: &CodegenArgs, target: &Target, wide: x86::Wide) -> Res<(Ways, Found)> {
        let typed = self.analyse(model, o)?;
        let lanes = wide.vector_bytes() as i64 / 4;
        let options = |tuned: Option<Tuned>| Options {
            prefix: "tune".into(),
            opt_level: o.opt_level,
            wide_bytes: wide.vector_bytes(),
            dot4: wide.dot4 && target.levels == Levels::One,
            twice: wide.twice && target.levels == Levels::One,
            short_tiles: wide.short_tiles && target.levels == Levels::One,
            size_budget: o.size_budget,
            strict: o.fp == crate::cli::Fp::Strict,
            tuned: tuned.map(Arc::new),
            ..Default::default()
        };
        let plain = self.all_ok(relax_lower::kernels(typed.clone(), &options(None), true))?;
        let heavy = heaviest(&plain, lanes);
        let rounds = rounds(&heavy, lanes, o.fp == crate::cli::Fp::Strict || o.size_budget <= 1.0);
        let mut module = IRModule::default();
        let mut all: Vec<Case> = vec![];
        for (i, ways) in rounds.iter().enumerate() {
            eprintln!("tune: {} kernels, form {} of {}", heavy.len(), i + 1, rounds.len());
            let sites = ways.iter().map(|(key, c)| (key.clone(), vec![(*c, 0.0)])).collect();
            let forced = options(Some(Tuned { vector_bytes: wide.vector_bytes(), sites }));
            let round = self.all_ok(relax_lower::kernels(typed.clone(), &forced, true))?;
            all.extend(cases::add(&mut module, &round, ways, OPEN));
        }
        drop(typed);
        let defaults: BTreeMap<String, Config> = heavy.iter().map(|(k, h)| (k.clone(), h.site.config(lanes))).collect();
        let times = match all.is_empty() {
            true => vec![],
            false => {
                eprintln!("tune: compiling {} kernels", all.len());
                let dir = scratch();
                let dir = self.ok(dir)?;
                let path = dir.path().join("libtune.so");
                self.library(module, &options(None), wide, &path)?;
                let library = Library::open(&path, "tune");
                let library = self.ok(library)?;
                let order: Vec<&String> = heavy.keys().collect();
                let times = race(&library, &all, &order, o.tune_budget);
                self.ok(times)?
            }
        };
        Ok(judge(&all, &times, &heavy, &defaults))
    }

    /// Compiles a module of kernels to a shared object.
    fn library(&mut self, module: IRModule, options: &Options, wide: x86::Wide, path: &Path) -> Res<()> {
        let (typed, d) = relax_ir::analysis::analyze(&module);
        self.note(d)?;
        let Some(typed) = typed else {
            return self.ok(Err(Diagnostic::internal(Span::NONE, "kernels without a module")));
        };
        let assemble = |f: &FlatFunc, _: u32| x86::assemble(f, wide);
        let lowered = relax_lower::finish(&typed, options, Some(&assemble));
        let (mut program, _) = self.all_ok(lowered)?;
        program.module.versions.prefix = "tune".into();
        relax_backend::descriptor::add(&mut program, true, options.pointer_bytes);
        let native = Target::parse("host", "native");
        let native = self.ok(native)?;
        let object = relax_backend::clif::compile(&program.module, &native);
        let object = self.ok(object)?;
        let runtime = relax_backend::elf::runtime_object(&native.triple.to_string());
        let linked = relax_backend::elf::link_shared(&object, runtime, "libtune.so", &exports(&program, true));
        let bytes = self.ok(linked)?;
        self.ok(output::write(path, &bytes))
    }
}

/// The vectors of a library whose kernels run here; what says why not otherwise.
fn usable(target: &Target) -> Result<x86::Wide, Diagnostic> {
    let refuse = |what: String| {
        let d = Diagnostic::unsupported("tune-target", Span::NONE, what);
        Err(d.help("kernels are measured on the machine that they are for: say --target-cpu native"))
    };
    let wide = match target.levels {
        Levels::One => x86::Wide::of(target),
        _ => Some(x86::Wide::V4),
    };
    let host = Target::parse("host", "native")?;
    if target.triple.architecture != host.triple.architecture || !target.hosted() {
        return refuse(format!("--tune: kernels for {} do not run on this machine", target.triple));
    }
    let Some(wide) = wide else {
        return refuse("--tune: there is one form of every kernel for this processor".into());
    };
    let ours = x86::Wide::of(&host).map_or(0, |w| w.vector_bytes());
    if wide.vector_bytes() > ours {
        return refuse(format!(
            "--tune: kernels with vectors of {} bytes do not run on this machine",
            wide.vector_bytes()
        ));
    }
    Ok(wide)
}

/// The kernels that take most of the time, by the model.
fn heaviest(typed: &Typed, lanes: i64) -> BTreeMap<String, Heavy> {
    let mut all = cases::heavy(typed, lanes, OPEN);
    let total: f64 = all.values().map(|h| h.work).sum();
    let mut works: Vec<f64> = all.values().map(|h| h.work).collect();
    works.sort_by(|a, b| b.total_cmp(a));
    let least = works.get(MOST).copied().unwrap_or(0.0).max(total * SHARE);
    all.retain(|_, h| h.work >= least && h.site.candidates(lanes, false).len() > 1);
    all
}

/// The ways to try, one for each kernel in a round: first the model's.
fn rounds(heavy: &BTreeMap<String, Heavy>, lanes: i64, direct: bool) -> Vec<BTreeMap<String, Config>> {
    let mut out: Vec<BTreeMap<String, Config>> = vec![];
    for (key, h) in heavy {
        let model = h.site.config(lanes);
        let mut ways = h.site.candidates(lanes, direct);
        ways.retain(|c| *c != model);
        ways.insert(0, model);
        ways.truncate(choice::MOST);
        for (i, c) in ways.into_iter().enumerate() {
            if out.len() == i {
                out.push(BTreeMap::new());
            }
            out[i].insert(key.clone(), c);
        }
    }
    out
}

/// A way on the track.
struct Runner<'a> {
    case: usize,
    call: Prepared<'a>,
    shared: Rc<Shared>,
    best: f64,
    runs: usize,
}

/// The least time of a call of each case, in microseconds; `None` for one that did not run.
fn race(library: &Library, all: &[Case], order: &[&String], budget: f64) -> Result<Vec<Option<f64>>, Diagnostic> {
    let mut tracks: Vec<Vec<Runner>> = vec![];
    for key in order {
        let of: Vec<(usize, &Case)> = all.iter().enumerate().filter(|(_, c)| c.key == **key).collect();
        let tensors = |c: &Case| c.args.iter().chain(&c.results).cloned().collect::<Vec<_>>();
        let count = of.iter().map(|(_, c)| tensors(c).len()).max().unwrap_or(0);
        let mut contents: Vec<Vec<u8>> = vec![vec![]; count];
        for (_, c) in &of {
            for (block, (dtype, shape)) in contents.iter_mut().zip(tensors(c)) {
                let elements = shape.iter().product::<i64>() as usize;
                if elements * dtype.bytes() > block.len() {
                    *block = values(dtype, elements);
                }
            }
        }
        let shared = Rc::new(Shared::new(&contents));
        let mut track = vec![];
        for (case, c) in of {
            let Some(mut call) = library.prepare(&format!("tune_{}", c.entry), &tensors(c), &shared) else { continue };
            let failed = |e: crate::loader::CallError| {
                Diagnostic::internal(
                    Span::NONE,
                    format!("a kernel of --tune failed with code {}: {}", e.code, e.message),
                )
            };
            let first = call.time(1).map_err(failed)?.as_secs_f64();
            track.push(Runner { case, call, shared: shared.clone(), best: first, runs: 0 });
        }
        tracks.push(track);
    }
    let start = Instant::now();
    let mut shown = Instant::now();
    let most = tracks.iter().map(|t| t.len()).max().unwrap_or(0);
    for pass in 0..PASSES.1 * most {
        if start.elapsed().as_secs_f64() > budget {
            break;
        }
        let late = pass > PASSES.1 * most / 2 || start.elapsed().as_secs_f64() > budget / 2.0;
        let hopeless = if late { BEHIND } else { HOPELESS };
        for track in tracks.iter_mut().filter(|t| !t.is_empty()) {
            let at = pass % track.len();
            let best = track.iter().filter(|r| r.runs > 0).map(|r| r.best).fold(f64::MAX, f64::min);
            let r = &mut track[at];
            if r.runs >= PASSES.0 && r.best > best * hopeless {
                continue;
            }
            let calls = (BURST / r.best.max(1e-9)).clamp(1.0, 100.0) as u32;
            if calls == 1 {
                for &i in &all[r.case].made {
                    let (dtype, shape) = &all[r.case].args[i];
                    r.shared.touch(i, shape.iter().product::<i64>() as usize * dtype.bytes());
                }
            }
            if let Ok(t) = r.call.time(calls) {
                let t = t.as_secs_f64() / calls as f64;
                r.best = if r.runs == 0 { t } else { r.best.min(t) };
                r.runs += 1;
            }
        }
        if shown.elapsed() > Duration::from_secs(5) {
            shown = Instant::now();
            let part = (pass as f64 / (PASSES.1 * most) as f64).max(start.elapsed().as_secs_f64() / budget);
            eprintln!("tune: measuring, {:.0} %", 100.0 * part);
        }
    }
    let mut out = vec![None; all.len()];
    for r in tracks.iter().flatten().filter(|r| r.runs > 0) {
        out[r.case] = Some(r.best * 1e6);
    }
    Ok(out)
}

/// Numbers in (-1, 1), and zeros in other dtypes: these may be indices.
fn values(dtype: DType, elements: usize) -> Vec<u8> {
    if dtype != DType::F32 {
        return vec![0; elements * dtype.bytes()];
    }
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1664525).wrapping_add(1013904223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..elements).flat_map(|_| next().to_le_bytes()).collect()
}

/// The best way of each algorithm, by kernel; the model's unless another is worth it.
fn judge(
    all: &[Case],
    times: &[Option<f64>],
    heavy: &BTreeMap<String, Heavy>,
    defaults: &BTreeMap<String, Config>,
) -> (Ways, Found) {
    let mut out = BTreeMap::new();
    let mut found = Found { kernels: 0, ways: 0, better: 0, before: 0.0, after: 0.0 };
    for (key, h) in heavy {
        let model = defaults[key];
        let of: Vec<(Config, f64)> =
            all.iter().zip(times).filter(|(c, _)| c.key == *key).filter_map(|(c, t)| Some((c.config, (*t)?))).collect();
        let Some((_, before)) = of.iter().find(|(c, _)| *c == model).copied() else { continue };
        let mut best: BTreeMap<Algorithm, (Config, f64)> = BTreeMap::new();
        for (c, t) in &of {
            let weighed = |(c, t): &(Config, f64)| if *c == model { *t * WORTH } else { *t };
            if best.get(&c.algorithm).is_none_or(|old| weighed(&(*c, *t)) < weighed(old)) {
                best.insert(c.algorithm, (*c, *t));
            }
        }
        let mut ways: Vec<(Config, f64)> = best.into_values().collect();
        ways.sort_by(|a, b| a.1.total_cmp(&b.1));
        let (first, after) = ways[0];
        found.kernels += 1;
        found.ways += of.len();
        found.better += (first != model) as usize;
        found.before += before * h.calls as f64;
        found.after += after.min(before) * h.calls as f64;
        tracing::info!(kernel = %key, model = %model, microseconds = before, best = %first, after, "tuned");
        out.insert(key.clone(), ways);
    }
    (out, found)
}
