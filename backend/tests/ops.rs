//! Every operator as machine code of this host: the calls of `lower/tests/data` against the reference interpreter.

#[path = "../../lower/tests/eval/mod.rs"]
mod eval;

use eval::{compare, json, prepare, Dims, Ready, Value};
use libloading::Library;
use relax_backend::{clif, Cpu, Target};
use relax_ir::flat::{FlatModule, Linkage};
use relax_ir::op;
use relax_lower::interp::{self, Tensor};
use relax_lower::schedule::{schedule, SchedOptions};
use relax_lower::{kernel_dims, kernel_workspace, math};
use std::process::Command;

struct Job {
    label: String,
    ready: Ready,
    symbol: String,
}

/// The kernels of all calls, each under a name of its own.
fn jobs() -> (FlatModule, Vec<Job>, Vec<String>) {
    let (mut module, mut jobs, mut failed) = (FlatModule::default(), vec![], vec![]);
    let cases = json::cases(&format!("{}/../lower/tests/data", env!("CARGO_MANIFEST_DIR")));
    for (line, case) in cases.iter().enumerate() {
        let name = case["op"].as_str().unwrap_or_default();
        let Some(op) = op::lookup(name) else { continue };
        let args: Vec<Value> = case["args"].as_array().map(|a| a.iter().map(json::value).collect()).unwrap_or_default();
        for mode in [Dims::Static, Dims::Symbolic] {
            if mode == Dims::Symbolic && case["static"].as_bool().unwrap_or(false) {
                continue;
            }
            let label = format!("{name} line {} {mode:?}", line + 1);
            let flat = prepare(op, &args, &json::attrs(op, &case["attrs"]), mode).and_then(|ready| {
                let flat = schedule(&ready.kernel, &SchedOptions::default()).map_err(|d| d.message)?;
                Ok((ready, flat))
            });
            let (ready, mut flat) = match flat {
                Ok(v) => v,
                Err(e) => {
                    failed.push(format!("{label}: {e}"));
                    continue;
                }
            };
            let symbol = format!("k{}", jobs.len());
            flat.name.clone_from(&symbol);
            flat.linkage = Linkage::Export;
            math::expand(&mut flat, 16);
            module.funcs.push(flat);
            jobs.push(Job { label, ready, symbol });
        }
    }
    (module, jobs, failed)
}

fn load(module: &FlatModule, target: &Target) -> (Library, tempfile::TempDir) {
    let object = clif::compile(module, target).expect("compiles");
    let dir = tempfile::tempdir().expect("dir");
    let (o, so) = (dir.path().join("t.o"), dir.path().join("t.so"));
    std::fs::write(&o, object).expect("write");
    let done = Command::new("cc").args(["-shared", "-nostdlib", "-o"]).arg(&so).arg(&o).output().expect("cc");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    // SAFETY: the library has no constructors.
    (unsafe { Library::new(&so).expect("load") }, dir)
}

const WORDS: usize = 16;

const GUARD: u8 = 0xa5;

/// A tensor's bytes at an address that is aligned to its element and no more, the least that callers promise.
struct Buffer {
    bytes: Vec<u8>,
    first: usize,
    len: usize,
}

impl Buffer {
    fn of(t: &Tensor) -> Buffer {
        let (element, len) = (usize::from(t.dtype.bits).div_ceil(8), t.data.len());
        let mut bytes = vec![GUARD; len + 192];
        let first = bytes.as_ptr().align_offset(64) + 64 + element;
        bytes[first..first + len].copy_from_slice(&t.data);
        Buffer { bytes, first, len }
    }

    fn data(&mut self) -> &mut [u8] {
        &mut self.bytes[self.first..self.first + self.len]
    }
}

fn run(library: &Library, job: &mut Job) -> Result<(), String> {
    let kernel = &job.ready.kernel;
    let mut want = job.ready.params.clone();
    interp::run(kernel, &mut want).map_err(|d| d.message)?;
    let mut tensors: Vec<Tensor> = job.ready.params.iter().filter_map(|a| a.tensor().cloned()).collect();
    let mut buffers: Vec<Buffer> = tensors.iter().map(Buffer::of).collect();
    let mut words: Vec<i64> = buffers.iter_mut().map(|b| b.data().as_mut_ptr() as i64).collect();
    for v in kernel_dims(kernel) {
        words.push(job.ready.number(&v.expr())?);
    }
    let bytes = kernel_workspace(kernel);
    let mut scratch: Vec<u8> = vec![];
    if !bytes.is_int(0) {
        scratch.resize(job.ready.number(&bytes)? as usize + 128, 0);
        words.push((scratch.as_mut_ptr() as i64 + 63) & !63);
    }
    if words.len() > WORDS {
        return Err(format!("{} parameters", words.len()));
    }
    words.resize(WORDS, 0);
    type Kernel = unsafe extern "C" fn(i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64);
    let w = &words;
    // SAFETY: kernels take pointers and int64 alone and ignore what comes after their own parameters; buffers have the
    // shapes that the dims say.
    unsafe {
        let f = library.get::<Kernel>(job.symbol.as_bytes()).map_err(|e| e.to_string())?;
        f(w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12], w[13], w[14], w[15]);
    }
    drop(scratch);
    for (t, b) in tensors.iter_mut().zip(&mut buffers) {
        t.data.copy_from_slice(b.data());
        if b.bytes.iter().filter(|x| **x == GUARD).count() < b.bytes.len() - t.data.len() {
            return Err("bytes beside a tensor are written".into());
        }
    }
    for (got, want) in tensors.iter().zip(want.iter().filter_map(|a| a.tensor())) {
        compare(got, want, 1e-4, 1e-4)?;
    }
    Ok(())
}

#[test]
fn operators_as_machine_code() {
    for cpu in [Cpu::Baseline, Cpu::Native] {
        let (module, mut jobs, mut failed) = jobs();
        let (library, _dir) = load(&module, &Target::new(target_lexicon::Triple::host(), cpu.clone()));
        for job in &mut jobs {
            if let Err(e) = run(&library, job) {
                failed.push(format!("{}: {e}", job.label));
            }
        }
        assert!(failed.is_empty(), "{cpu:?}: {} of {} fail\n{}", failed.len(), jobs.len(), failed.join("\n"));
    }
}
