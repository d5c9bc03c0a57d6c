//! Damaged ONNX models: bytes, fields and graphs of real ones.
//!
//! Each must be refused with a diagnostic or become an object, in ten seconds, with memory for four copies of the file
//! and [`ROOM`].

use crate::mutate::Rng;
use prost::bytes::Bytes;
use prost::Message;
use relax_backend::target::Target;
use relax_backend::x86::{self, Wide};
use relax_backend::{clif, descriptor};
use relax_frontend::onnx::proto::{
    AttributeProto, DimValue, GraphProto, ModelProto, NodeProto, TensorProto, TypeValue,
};
use relax_frontend::onnx::{import, Options};
use relax_ir::span::FileId;
use relax_ir::{analysis, Diagnostics};
use std::path::{Path, PathBuf};

/// Memory beyond four times the file: the compiler's own.
const ROOM: u64 = 512 << 20;
/// Larger models cost too much time per try.
const MAX_FILE: u64 = 200_000;

/// Where a model came to an end.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Clone, Copy)]
pub enum Stage {
    Import,
    Analysis,
    Lower,
    Code,
    Whole,
}

/// All models below a folder, sorted.
pub fn seeds(folder: &Path) -> Result<Vec<Vec<u8>>, String> {
    let mut paths: Vec<PathBuf> = vec![];
    let mut open = vec![folder.to_path_buf()];
    while let Some(f) = open.pop() {
        for e in std::fs::read_dir(&f).map_err(|e| format!("{}: {e}", f.display()))? {
            let p = e.map_err(|e| e.to_string())?.path();
            match p.is_dir() {
                true => open.push(p),
                false if p.extension().is_some_and(|e| e == "onnx") => paths.push(p),
                false => {}
            }
        }
    }
    paths.sort();
    let small = |p: &PathBuf| p.metadata().is_ok_and(|m| m.len() <= MAX_FILE);
    paths.iter().filter(|p| small(p)).map(|p| std::fs::read(p).map_err(|e| format!("{}: {e}", p.display()))).collect()
}

/// `model` with a few injuries; `other` lends pieces.
pub fn mutate(model: &[u8], other: &[u8], rng: &mut Rng) -> Vec<u8> {
    let parsed = ModelProto::decode(model).ok();
    let Some(mut m) = parsed.filter(|_| rng.below(3) > 0) else {
        let mut b = model.to_vec();
        for _ in 0..1 + rng.below(4) {
            bytes(&mut b, other, rng);
        }
        return b;
    };
    let lender = ModelProto::decode(other).ok().and_then(|m| m.graph);
    for _ in 0..1 + rng.below(3) {
        match rng.below(12) {
            0 => {
                if let Some(o) = pick_mut(&mut m.opset_import, rng) {
                    o.version = Some(number(rng));
                }
            }
            1 => m.ir_version = Some(number(rng)),
            _ => {
                if let Some(g) = &mut m.graph {
                    graph(g, lender.as_ref(), rng);
                }
            }
        }
    }
    m.encode_to_vec()
}

fn bytes(b: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    let at = rng.below(b.len() + 1);
    match rng.below(5) {
        0 => b.truncate(at),
        1 => {
            let noise: Vec<u8> = (0..rng.below(12)).map(|_| rng.below(256) as u8).collect();
            b.splice(at..at, noise);
        }
        2 => {
            let end = (at + rng.below(12)).min(b.len());
            b.drain(at..end);
        }
        3 => {
            let from = rng.below(other.len() + 1);
            let to = (from + rng.below(64)).min(other.len());
            b.splice(at..at, other[from..to].iter().copied());
        }
        _ => {
            if let Some(x) = b.get_mut(at) {
                *x ^= 1 << rng.below(8);
            }
        }
    }
}

/// A number that is likely to be wrong.
fn number(rng: &mut Rng) -> i64 {
    const ODD: [i64; 16] =
        [0, 1, -1, 2, 3, -2, 7, 8, 64, 255, 1 << 20, 1 << 31, -(1 << 31), 1 << 40, i64::MAX, i64::MIN];
    match rng.below(3) {
        0 => rng.below(40) as i64 - 4,
        _ => rng.pick(&ODD).copied().unwrap_or(0),
    }
}

fn pick_mut<'a, T>(of: &'a mut [T], rng: &mut Rng) -> Option<&'a mut T> {
    let i = rng.below(of.len());
    of.get_mut(i)
}

fn graph(g: &mut GraphProto, lender: Option<&GraphProto>, rng: &mut Rng) {
    match rng.below(12) {
        0 => {
            if !g.node.is_empty() {
                let (i, j) = (rng.below(g.node.len()), rng.below(g.node.len()));
                g.node.swap(i, j);
            }
        }
        1 => {
            if let Some(n) = rng.pick(&g.node).cloned() {
                let at = rng.below(g.node.len() + 1);
                g.node.insert(at, n);
            }
        }
        2 => {
            if !g.node.is_empty() {
                let at = rng.below(g.node.len());
                g.node.remove(at);
            }
        }
        3 => {
            // A node of another model, wired to names of this one.
            let names: Vec<String> = names(g);
            if let (Some(mut n), Some(last)) = (lender.and_then(|l| rng.pick(&l.node)).cloned(), g.node.last()) {
                for i in &mut n.input {
                    *i = rng.pick(&names).cloned().unwrap_or_default();
                }
                n.output.clone_from(&last.output);
                let at = rng.below(g.node.len());
                g.node[at] = n;
            }
        }
        4 => {
            if let Some(t) = pick_mut(&mut g.initializer, rng) {
                tensor(t, rng);
            }
        }
        5 | 6 => {
            let inputs = g.input.len();
            let at = rng.below(inputs + g.output.len());
            let v = if at < inputs { g.input.get_mut(at) } else { g.output.get_mut(at - inputs) };
            let t = v.and_then(|v| v.r#type.as_mut()).and_then(|t| t.value.as_mut());
            if let Some(TypeValue::Tensor(t)) = t {
                if rng.below(3) == 0 {
                    t.elem_type = Some(rng.below(28) as i32);
                } else if let Some(s) = &mut t.shape {
                    let value = match rng.below(4) {
                        0 => None,
                        1 => Some(DimValue::Param("n".into())),
                        _ => Some(DimValue::Value(number(rng))),
                    };
                    match rng.below(4) {
                        0 => s.dim.push(Default::default()),
                        1 => drop(s.dim.pop()),
                        _ => {
                            if let Some(d) = pick_mut(&mut s.dim, rng) {
                                d.value = value;
                            }
                        }
                    }
                }
            }
        }
        _ => {
            let names = names(g);
            let other = lender.and_then(|l| rng.pick(&l.node)).and_then(|n| n.op_type.clone());
            if let Some(n) = pick_mut(&mut g.node, rng) {
                node(n, &names, other, rng);
            }
        }
    }
}

fn names(g: &GraphProto) -> Vec<String> {
    let inputs = g.input.iter().filter_map(|i| i.name.clone());
    let weights = g.initializer.iter().filter_map(|i| i.name.clone());
    inputs.chain(weights).chain(g.node.iter().flat_map(|n| n.output.clone())).collect()
}

fn node(n: &mut NodeProto, names: &[String], other: Option<String>, rng: &mut Rng) {
    match rng.below(8) {
        0 => n.op_type = other,
        1 => {
            if let Some(i) = pick_mut(&mut n.input, rng) {
                *i = if rng.below(3) == 0 { String::new() } else { rng.pick(names).cloned().unwrap_or_default() };
            }
        }
        2 => drop(n.input.pop()),
        3 => n.input.push(rng.pick(names).cloned().unwrap_or_default()),
        4 => n.output.push("more".into()),
        5 => {
            if !n.attribute.is_empty() {
                let at = rng.below(n.attribute.len());
                n.attribute.remove(at);
            }
        }
        _ => {
            if let Some(a) = pick_mut(&mut n.attribute, rng) {
                attribute(a, rng);
            }
        }
    }
}

fn attribute(a: &mut AttributeProto, rng: &mut Rng) {
    if let Some(g) = &mut a.g {
        return graph(g, None, rng);
    }
    if let Some(t) = &mut a.t {
        return tensor(t, rng);
    }
    if !a.ints.is_empty() {
        match rng.below(4) {
            0 => drop(a.ints.pop()),
            1 => a.ints.push(number(rng)),
            _ => {
                let v = number(rng);
                if let Some(i) = pick_mut(&mut a.ints, rng) {
                    *i = v;
                }
            }
        }
    } else if !a.floats.is_empty() {
        a.floats.push(f32::NAN);
    } else if a.f.is_some() {
        a.f = rng.pick(&[0.0, -1.0, f32::NAN, f32::INFINITY, 1e38]).copied();
    } else if a.s.is_some() {
        a.s = rng.pick(&[&b""[..], b"\xff\xfe", b"max", b"i,j->", b"SAME_UPPER"]).map(|s| Bytes::from_static(s));
    } else if !a.strings.is_empty() {
        a.strings.pop();
    } else {
        a.i = Some(number(rng));
    }
}

fn tensor(t: &mut TensorProto, rng: &mut Rng) {
    match rng.below(5) {
        0 => t.data_type = Some(rng.below(30) as i32),
        1 => t.dims.push(number(rng)),
        2 => drop(t.dims.pop()),
        3 => {
            let raw = t.raw_data.take().map(|r| r.slice(..rng.below(r.len() + 1)));
            t.raw_data = raw;
        }
        _ => {
            let v = number(rng);
            if let Some(d) = pick_mut(&mut t.dims, rng) {
                *d = v;
            }
            if let Some(d) = pick_mut(&mut t.int64_data, rng) {
                *d = v;
            }
        }
    }
}

/// The largest memory of the process since [`forget_peak`], and what it holds now, in bytes. Linux tells.
fn memory() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let field = |name: &str| -> Option<u64> {
        let line = text.lines().find(|l| l.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|k| k << 10)
    };
    Some((field("VmHWM:")?, field("VmRSS:")?))
}

fn forget_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Model to object, as far as it goes.
pub fn try_model(model: &[u8]) -> Stage {
    forget_peak();
    let before = memory().map(|m| m.1);
    let stage = compile(model);
    if let (Some(before), Some((peak, _))) = (before, memory()) {
        let used = peak.saturating_sub(before);
        assert!(used <= ROOM + 4 * model.len() as u64, "{} MB for a file of {} bytes", used >> 20, model.len());
    }
    stage
}

fn compile(model: &[u8]) -> Stage {
    let refused = |d: &Diagnostics| {
        assert!(d.has_errors(), "refused without an error");
        // A message begins with whose fault it is: ours is a finding.
        let internal = d.list.iter().find(|d| d.fault == relax_ir::Fault::Internal);
        assert!(internal.is_none(), "{}", internal.map_or("", |d| d.message.as_str()));
    };
    let file = Path::new("/nowhere/model.onnx");
    let (module, diags) = import(FileId(0), file, Bytes::copy_from_slice(model), &Options::default());
    let Some(module) = module.filter(|_| !diags.has_errors()) else {
        refused(&diags);
        return Stage::Import;
    };
    let (typed, diags) = analysis::analyze(&module);
    let Some(typed) = typed.filter(|_| !diags.has_errors()) else {
        refused(&diags);
        return Stage::Analysis;
    };
    let wide = model.len().is_multiple_of(2).then_some(Wide { dot4: true, ..Wide::V4 });
    let options = relax_lower::Options {
        wide_bytes: wide.map_or(0, |w| w.vector_bytes()),
        dot4: wide.is_some_and(|w| w.dot4),
        ..Default::default()
    };
    let assemble = |f: &relax_ir::flat::FlatFunc, _: u32| wide.and_then(|w| x86::assemble(f, w));
    let mut program = match relax_lower::lower(typed, &options, Some(&assemble)) {
        Ok((program, _)) => program,
        Err(diags) => {
            refused(&diags);
            return Stage::Lower;
        }
    };
    descriptor::add(&mut program, true, 8);
    match clif::compile(&program.module, &Target::host()) {
        Ok(_) => Stage::Whole,
        Err(d) => {
            refused(&d.into());
            Stage::Code
        }
    }
}
