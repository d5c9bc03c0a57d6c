//! ONNX models with integers at the ends of their range: each attribute, each integer of a small tensor and each dim of
//! an input in turn. A model may be refused, with a message; nothing panics or overflows. `RELAX_AOT_ONNX_SUITE` adds a
//! folder of models.

use prost::bytes::Bytes;
use prost::Message;
use relax_frontend::onnx::proto::*;
use relax_frontend::onnx::{import, Options};
use relax_ir::{analysis, FileId};
use std::collections::BTreeMap;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};

const ENDS: &[i64] = &[i64::MIN, -(1 << 31), -1, 0, 7, 1 << 31, 1 << 40, 1 << 62, i64::MAX];

/// Places of one model that are tried, and models of one operator.
const PLACES: usize = 64;
const MODELS: usize = 3;

type Visit<'a> = &'a mut dyn FnMut(&mut i64);

fn in_tensor(t: &mut TensorProto, f: Visit) {
    if t.data_type != Some(data_type::INT64) || t.dims.iter().product::<i64>() > 16 {
        return;
    }
    t.int64_data.iter_mut().for_each(&mut *f);
    if let Some(raw) = &t.raw_data {
        let mut out = vec![];
        for chunk in raw.chunks_exact(8) {
            let mut v = chunk.try_into().map(i64::from_le_bytes).unwrap_or_default();
            f(&mut v);
            out.extend(v.to_le_bytes());
        }
        t.raw_data = Some(Bytes::from(out));
    }
}

fn in_graph(g: &mut GraphProto, f: Visit) {
    for n in &mut g.node {
        for a in &mut n.attribute {
            if let Some(v) = &mut a.i {
                f(v);
            }
            a.ints.iter_mut().take(8).for_each(&mut *f);
            if let Some(t) = &mut a.t {
                in_tensor(t, f);
            }
            if let Some(g) = &mut a.g {
                in_graph(g, f);
            }
        }
    }
    g.initializer.iter_mut().for_each(|t| in_tensor(t, f));
    for i in &mut g.input {
        let Some(TypeValue::Tensor(t)) = i.r#type.as_mut().and_then(|t| t.value.as_mut()) else { continue };
        for d in t.shape.iter_mut().flat_map(|s| &mut s.dim) {
            if let Some(DimValue::Value(v)) = &mut d.value {
                f(v);
            }
        }
    }
}

fn models(folder: &Path, out: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for p in entries.filter_map(|e| e.ok().map(|e| e.path())) {
        if p.is_dir() {
            models(&p, out);
        } else if p.extension().is_some_and(|e| e == "onnx") {
            out.push(p);
        }
    }
}

#[test]
fn nothing_overflows() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let mut paths = vec![];
    for folder in ["tests/contrib/cases", "examples/models", "tests/pictures"] {
        models(&Path::new(root).join(folder), &mut paths);
    }
    if let Ok(folder) = std::env::var("RELAX_AOT_ONNX_SUITE") {
        models(Path::new(&folder), &mut paths);
    }
    paths.sort();
    let (mut seen, mut failed, mut count) = (BTreeMap::<String, usize>::new(), vec![], 0);
    for path in paths {
        let Some(model) = std::fs::read(&path).ok().filter(|b| b.len() < 100_000) else { continue };
        let Ok(mut model) = ModelProto::decode(Bytes::from(model)) else { continue };
        let Some(graph) = &mut model.graph else { continue };
        let ops: Vec<&str> = graph.node.iter().filter_map(|n| n.op_type.as_deref()).collect();
        let times = seen.entry(ops.join(" ")).or_default();
        *times += 1;
        if *times > MODELS {
            continue;
        }
        let mut places = 0;
        in_graph(graph, &mut |_| places += 1);
        for place in 0..places.min(PLACES) {
            for end in ENDS {
                let (mut damaged, mut at) = (model.clone(), 0);
                if let Some(g) = &mut damaged.graph {
                    in_graph(g, &mut |v| {
                        if at == place {
                            *v = *end;
                        }
                        at += 1;
                    });
                }
                count += 1;
                let bytes = Bytes::from(damaged.encode_to_vec());
                let done = catch_unwind(AssertUnwindSafe(|| {
                    let (module, _) = import(FileId(0), &path, bytes, &Options::default());
                    module.map(|m| analysis::analyze(&m).0.is_some())
                }));
                if done.is_err() {
                    failed.push(format!("{}: integer {place} = {end}", path.display()));
                }
            }
        }
    }
    assert!(failed.is_empty(), "{} of {count}\n{}", failed.len(), failed.join("\n"));
    assert!(count > 5_000, "{count}");
}
