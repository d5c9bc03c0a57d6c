//! The typed entries of the corpus, called as firmware calls them: a workspace of exactly the computed size, arguments
//! and results between unmapped pages, random legal dims. One byte of workspace less is refused.
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
/// Draws of dims for each entry.
const DRAWS: u64 = 12;

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
    // That it compiles at all is the concern of the corpus' own test.
    let Ok(program) = session.build(model, &so, None, &options) else { return Ok(Count::default()) };
    let library = Library::open(&so, "model").map_err(|d| d.message)?;
    let mut count = Count::default();
    for e in program.entries.iter().filter(|e| e.workspace.is_some() && e.dynamic.is_none()) {
        let draws = if e.dims.is_empty() { 1 } else { DRAWS };
        for seed in 1..=draws {
            // What is happening when the process is killed.
            eprintln!("{}, draw {seed}", e.name);
            call(&library, e, seed, &mut count).map_err(|m| format!("{}, draw {seed}: {m}", e.name))?;
        }
    }
    Ok(count)
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

/// One draw of dims: arguments of that shape, both ends of the pages, then a byte too little.
fn call(library: &Library, e: &Entry, seed: u64, count: &mut Count) -> Result<(), String> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut dims: HashMap<Var, PrimExpr> = HashMap::new();
    let mut values = vec![];
    for d in &e.dims {
        let lower = d.lower.unwrap_or(1).max(1);
        let upper = d.upper.unwrap_or(i64::MAX).min(lower + 40);
        let k = d.divisor.unwrap_or(1).max(1);
        let steps = (upper / k - (lower + k - 1) / k).max(0) as u64;
        let n = ((lower + k - 1) / k + random.below(steps + 1) as i64) * k;
        dims.insert(d.var.clone(), PrimExpr::i64(n));
        values.push(n);
    }
    let value = |d: &PrimExpr| d.substitute(&dims).as_int();
    let mut args = vec![];
    for p in &e.params {
        args.push(match &p.kind {
            EntryKind::Tensor { dtype: Some(t), dims: Some(list) } => {
                let shape: Option<Vec<i64>> = list.iter().map(|d| value(d.as_ref()?)).collect();
                match shape {
                    Some(s) if s.iter().all(|d| *d >= 0) => Argument::Tensor(tensor(*t, s, &mut random)),
                    // No legal dims, or such that only the model knows.
                    _ => return Ok(()),
                }
            }
            EntryKind::Shape { values: Some(list), .. } => match list.iter().map(value).collect() {
                Some(v) => Argument::Shape(v),
                None => return Ok(()),
            },
            EntryKind::Scalar { dtype } if dtype.is_int() => {
                let name = e.dims.iter().position(|d| d.var.name() == p.name);
                Argument::Integer(name.map_or(1, |i| values[i]))
            }
            _ => return Ok(()),
        });
    }
    let symbol = format!("model_{}", e.name);
    let Some(bytes) = library.workspace_size(&symbol, &values) else { return Ok(()) };
    let wanted = e.workspace.as_ref().and_then(value);
    if wanted.is_some_and(|w| w != bytes as i64) || e.workspace_max.is_some_and(|m| bytes as u64 > m) {
        let max = e.workspace_max;
        return Err(format!("dims {values:?}: workspace {bytes}, by the closed form {wanted:?}, at most {max:?}"));
    }
    let mut results = vec![];
    for memory in [Memory::GuardedEnd, Memory::GuardedStart] {
        match library.call_exact(memory, &symbol, &args, e.results.len(), bytes, 0) {
            None => return Ok(()),
            // Dims that this model does not take: what was drawn is not legal.
            Some(Err(r)) if matches!(r.code as i64, code::DIM | code::CHECK | code::ASSERT) => return Ok(()),
            Some(Err(r)) => return Err(format!("dims {values:?}: {r:?}")),
            Some(Ok(r)) => results.push(r),
        }
    }
    if results[0].iter().map(Constant::bytes).ne(results[1].iter().map(Constant::bytes)) {
        return Err(format!("dims {values:?}: the results depend on where the memory lies"));
    }
    count.calls += 1;
    if bytes == 0 {
        return Ok(());
    }
    count.workspaces += 1;
    match library.call_exact(Memory::GuardedEnd, &symbol, &args, e.results.len(), bytes, 1) {
        Some(Err(r)) if r.code as i64 == code::WORKSPACE && r.wanted == bytes as i64 && r.got == bytes as i64 - 1 => {
            Ok(())
        }
        other => Err(format!("dims {values:?}: {} of {bytes} bytes of workspace: {other:?}", bytes - 1)),
    }
}

/// Numbers from 0 to 1; zeros where the type is not a wide float: indices that are always legal.
fn tensor(dtype: DType, shape: Vec<i64>, random: &mut Random) -> Constant {
    let n = shape.iter().product::<i64>() as usize;
    let mut bytes = vec![];
    for _ in 0..n {
        let x = random.below(1000) as f64 / 1000.0;
        match dtype {
            DType::F32 => bytes.extend((x as f32).to_le_bytes()),
            DType::F64 => bytes.extend(x.to_le_bytes()),
            t => bytes.resize(bytes.len() + t.bytes(), 0),
        }
    }
    Constant::new(dtype, shape, bytes)
}
