//! The typed entries of the corpus, called as firmware calls them: a workspace of exactly the computed size, arguments
//! and results between unmapped pages, random legal dims. One byte of workspace less is refused. An entry whose every
//! draw was refused fails the test: nothing would have been shown.
//!
//! A read or write out of bounds kills the process, so each model runs in a process of its own: this test once more,
//! with [`CASE`] in its environment.

use relax_aot::driver::Session;
use relax_aot::loader::{Argument, Library, Memory};
use relax_ir::program::{code, Entry, EntryKind};
use relax_ir::{Constant, DType, PrimExpr, Var};
use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

pub const CASE: &str = "RELAX_AOT_GUARD";
/// Draws of dims for each entry that it takes, and draws at most until there are so many.
const DRAWS: usize = 12;
const TRIES: u64 = 96;

/// The calls that a model took, and those that had a workspace.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    pub calls: usize,
    pub workspaces: usize,
}

/// Runs `model` in a process of its own.
pub fn apart(model: &Path) -> Result<Count, String> {
    let this = std::env::current_exe().map_err(|e| e.to_string())?;
    let done = Command::new(this).env(CASE, model).output().map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&done.stdout);
    if !done.status.success() {
        return Err(format!("{}: {said}{}", done.status, String::from_utf8_lossy(&done.stderr)));
    }
    let mut numbers = said.lines().last().unwrap_or("").split(' ').filter_map(|n| n.parse().ok());
    let mut next = || numbers.next().unwrap_or(0);
    Ok(Count { calls: next(), workspaces: next() })
}

/// The process of one model. Returns the status to exit with.
pub fn process(model: &Path) -> i32 {
    match run(model) {
        Ok(count) => {
            println!("{} {}", count.calls, count.workspaces);
            0
        }
        Err(e) => {
            println!("{e}");
            1
        }
    }
}

fn run(model: &Path) -> Result<Count, String> {
    let mut session = Session::default();
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let so = dir.path().join("libmodel.so");
    let mut options = super::options("", "baseline");
    options.target = None;
    // Weights that the case brings are baked in: an entry with all of them takes too many words.
    options.params = Some(model.with_extension("params.safetensors")).filter(|p| p.exists());
    // That it compiles at all is the concern of the corpus' own test.
    let Ok(program) = session.build(model, &so, None, &options) else { return Ok(Count::default()) };
    let library = Library::open(&so, "model").map_err(|d| d.message)?;
    let mut count = Count::default();
    for e in program.entries.iter().filter(|e| e.workspace.is_some() && e.dynamic.is_none()) {
        let draws = if e.dims.is_empty() { 1 } else { DRAWS };
        let (mut taken, mut why) = (0, String::new());
        for seed in 1..=TRIES {
            // What is happening when the process is killed.
            eprintln!("{}, draw {seed}", e.name);
            match call(&library, e, seed, &mut count).map_err(|m| format!("{}, draw {seed}: {m}", e.name))? {
                Draw::Taken => taken += 1,
                Draw::Refused(reason) => why = reason,
            }
            if taken == draws {
                break;
            }
        }
        if taken == 0 {
            return Err(format!("{}: all draws were refused, the last because {why}", e.name));
        }
    }
    Ok(count)
}

/// What became of a draw of dims.
enum Draw {
    Taken,
    /// Not legal, for this reason.
    Refused(String),
}

/// A small generator (xorshift64*): the draws are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % n.max(1)
    }
}

/// One draw of dims: arguments of that shape, both ends of the pages, then a byte too little. Of three draws, one gives all
/// dims nearly the same value, so that checks of equality pass, and one small values, so that one dim may be the sum of
/// two others.
fn call(library: &Library, e: &Entry, seed: u64, count: &mut Count) -> Result<Draw, String> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut dims: HashMap<Var, PrimExpr> = HashMap::new();
    let mut values = vec![];
    for d in &e.dims {
        let lower = d.lower.unwrap_or(1).max(1);
        let upper = d.upper.unwrap_or(i64::MAX).min(lower + 40);
        let k = d.divisor.unwrap_or(1).max(1);
        let steps = (upper / k - (lower + k - 1) / k).max(0) as u64;
        let step = match seed % 3 {
            0 => random.below(steps.min(3) + 1),
            1 => random.below(steps + 1),
            _ => (seed / 3).min(steps),
        };
        let n = ((lower + k - 1) / k + step as i64) * k;
        dims.insert(d.var.clone(), PrimExpr::i64(n));
        values.push(n);
    }
    let value = |d: &PrimExpr| d.substitute(&dims).as_int();
    // A tensor of unknown rank has the dims that the entry names after it; any others.
    let named = |param: &str| -> Vec<i64> {
        let axis = |k: usize| e.dims.iter().position(|d| d.var.name() == format!("{param}_d{k}"));
        (0..).map_while(|k| Some(values[axis(k)?])).collect()
    };
    let mut args = vec![];
    for p in &e.params {
        args.push(match &p.kind {
            EntryKind::Tensor { dtype: Some(t), dims: list } => {
                let shape: Option<Vec<i64>> = match list {
                    Some(list) => list.iter().map(|d| value(d.as_ref()?)).collect(),
                    None => Some(named(&p.name.replace('.', "_"))),
                };
                match shape {
                    Some(s) if s.iter().all(|d| *d >= 0) => {
                        Argument::Tensor(tensor(*t, s, seed > TRIES / 2, &mut random))
                    }
                    s => return Ok(Draw::Refused(format!("{} would have the shape {s:?} with {values:?}", p.name))),
                }
            }
            EntryKind::Shape { values: Some(list), .. } => match list.iter().map(value).collect() {
                Some(v) => Argument::Shape(v),
                None => return Ok(Draw::Refused(format!("{} has other values", p.name))),
            },
            EntryKind::Scalar { dtype } if dtype.is_int() => {
                let name = e.dims.iter().position(|d| d.var.name() == p.name);
                Argument::Integer(name.map_or(1, |i| values[i]))
            }
            kind => return Ok(Draw::Refused(format!("{} is {kind:?}", p.name))),
        });
    }
    let symbol = format!("model_{}", e.name);
    let Some(bytes) = library.workspace_size(&symbol, &values) else {
        return Ok(Draw::Refused("there is no function that gives the size".into()));
    };
    let wanted = e.workspace.as_ref().and_then(value);
    if wanted.is_some_and(|w| w != bytes as i64) || e.workspace_max.is_some_and(|m| bytes as u64 > m) {
        let max = e.workspace_max;
        return Err(format!("dims {values:?}: workspace {bytes}, by the closed form {wanted:?}, at most {max:?}"));
    }
    let mut results = vec![];
    for memory in [Memory::GuardedEnd, Memory::GuardedStart] {
        match library.call_exact(memory, &symbol, &args, e.results.len(), bytes, 0) {
            None => return Ok(Draw::Refused("it takes too many arguments".into())),
            // Dims that this model does not take: what was drawn is not legal.
            Some(Err(r)) if matches!(r.code as i64, code::DIM | code::CHECK | code::ASSERT) => {
                return Ok(Draw::Refused(format!("dims {values:?}: {}", r.message)))
            }
            Some(Err(r)) => return Err(format!("dims {values:?}: {r:?}")),
            Some(Ok(r)) => results.push(r),
        }
    }
    if results[0].iter().map(Constant::bytes).ne(results[1].iter().map(Constant::bytes)) {
        return Err(format!("dims {values:?}: the results depend on where the memory lies"));
    }
    count.calls += 1;
    if bytes == 0 {
        return Ok(Draw::Taken);
    }
    count.workspaces += 1;
    match library.call_exact(Memory::GuardedEnd, &symbol, &args, e.results.len(), bytes, 1) {
        Some(Err(r)) if r.code as i64 == code::WORKSPACE && r.wanted == bytes as i64 && r.got == bytes as i64 - 1 => {
            Ok(Draw::Taken)
        }
        other => Err(format!("dims {values:?}: {} of {bytes} bytes of workspace: {other:?}", bytes - 1)),
    }
}

/// Numbers from 0 to 1. Where the type is not a wide float, zeros: indices that are always legal; or (`counts`, when
/// the model has refused these) int64 from 1 to 12: dims and counts.
fn tensor(dtype: DType, shape: Vec<i64>, counts: bool, random: &mut Random) -> Constant {
    let n = shape.iter().product::<i64>() as usize;
    let mut bytes = vec![];
    for _ in 0..n {
        let x = random.below(1000) as f64 / 1000.0;
        match dtype {
            DType::F32 => bytes.extend((x as f32).to_le_bytes()),
            DType::F64 => bytes.extend(x.to_le_bytes()),
            DType::I64 if counts => bytes.extend((1 + random.below(12) as i64).to_le_bytes()),
            t => bytes.resize(bytes.len() + t.bytes(), 0),
        }
    }
    Constant::new(dtype, shape, bytes)
}
