//! Scheduled kernels against the reference interpreter over many shapes and dtypes: empty, single, below, at and past
//! the vector widths, with static and with symbolic dims. What operators mean is tested in `ops.rs`.

mod eval;

use eval::{call, Dims, Value};
use relax_ir::op::{self, Default as OpDefault, ParamKind};
use relax_ir::{AttrValue, Attrs, DType};
use relax_lower::interp::Tensor;

/// A deterministic stream of numbers (splitmix64).
struct Stream(u64);

impl Stream {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    fn below(&mut self, n: u64) -> i64 {
        (self.next() % n) as i64
    }
    /// Values that every dtype holds and that leave sums and products of a few exact.
    fn tensor(&mut self, d: DType, shape: &[i64], low: i64, high: i64) -> Value {
        let n = shape.iter().product::<i64>();
        let v: Vec<i64> = (0..n).map(|_| low + self.below((high - low) as u64)).collect();
        let floats: Vec<f64> = v.iter().map(|v| *v as f64 / 2.0).collect();
        Value::Tensor(if d.is_float() {
            Tensor::from_f64(d, shape, &floats)
        } else if d.is_bool() {
            Tensor::from_i64(d, shape, &v.iter().map(|v| v & 1).collect::<Vec<_>>())
        } else {
            Tensor::from_i64(d, shape, &v)
        })
    }
}

const DTYPES: &[DType] = &[
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::F64,
    DType::I8,
    DType::U8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::BOOL,
];

const SIZES: &[i64] = &[0, 1, 3, 8, 17, 34];

fn attrs(op: &op::OpDecl, given: &[(&str, AttrValue)]) -> Attrs {
    let mut out = Attrs::default();
    for p in op.params.iter().filter(|p| p.kind == ParamKind::Attr) {
        let default = match p.default {
            OpDefault::Int(v) => AttrValue::Int(v),
            OpDefault::Float(v) => AttrValue::Float(v),
            OpDefault::Bool(v) => AttrValue::Bool(v),
            OpDefault::Str(v) => AttrValue::Str(v.to_string()),
            _ => AttrValue::None,
        };
        out.set(p.name, given.iter().find(|(n, _)| *n == p.name).map_or(default, |(_, v)| v.clone()));
    }
    out
}

fn ints(v: &[i64]) -> AttrValue {
    AttrValue::List(v.iter().map(|v| AttrValue::Int(*v)).collect())
}

struct Sweep {
    failed: Vec<String>,
    runs: usize,
}

impl Sweep {
    fn run(&mut self, name: &str, args: &[Value], given: &[(&str, AttrValue)]) {
        let Some(op) = op::lookup(name) else { return self.failed.push(format!("no operator {name}")) };
        for mode in [Dims::Static, Dims::Symbolic] {
            self.runs += 1;
            if let Err(e) = call(op, args, &attrs(op, given), mode) {
                let shapes: Vec<String> =
                    args.iter().flat_map(Value::leaves).map(|t| format!("{}{:?}", t.dtype, t.shape)).collect();
                self.failed.push(format!("{name} {mode:?} {} {given:?}: {e}", shapes.join(" ")));
            }
        }
    }

    fn finish(self) {
        let n = self.failed.len();
        let first: Vec<String> = self.failed.into_iter().take(40).collect();
        assert!(n == 0, "{n} of {} runs fail\n{}", self.runs, first.join("\n"));
    }
}

#[test]
fn elementwise() {
    let (mut s, mut r) = (Sweep { failed: vec![], runs: 0 }, Stream(1));
    for &d in DTYPES {
        for &n in SIZES {
            for (a, b) in [(vec![n], vec![n]), (vec![3, n], vec![n]), (vec![3, 1], vec![1, n]), (vec![], vec![2, n])] {
                let (x, y) = (r.tensor(d, &a, -8, 8), r.tensor(d, &b, 1, 9));
                for op in ["add", "multiply", "maximum", "less", "equal"] {
                    s.run(op, &[x.clone(), y.clone()], &[]);
                }
                if !d.is_bool() {
                    for op in ["subtract", "divide", "floor_divide", "floor_mod", "mod"] {
                        s.run(op, &[x.clone(), y.clone()], &[]);
                    }
                }
            }
            let x = r.tensor(d, &[2, n], -8, 8);
            for op in ["negative", "abs", "sign", "square", "round", "nn.relu", "flatten"] {
                if !d.is_bool() || matches!(op, "round" | "flatten") {
                    s.run(op, &[x.clone()], &[]);
                }
            }
            for &to in DTYPES {
                // Negative floats to unsigned integers have no meaning.
                let low = if to.is_uint() { 0 } else { -8 };
                let x = r.tensor(d, &[n], low, 8);
                s.run("astype", &[x], &[("dtype", AttrValue::DType(to))]);
            }
            let c = r.tensor(DType::BOOL, &[2, n], 0, 2);
            let (x, y) = (r.tensor(d, &[n], 0, 8), r.tensor(d, &[2, 1], 0, 8));
            s.run("where", &[c, x, y], &[]);
        }
    }
    s.finish();
}

#[test]
fn reductions() {
    let (mut s, mut r) = (Sweep { failed: vec![], runs: 0 }, Stream(2));
    for &d in DTYPES {
        for &n in SIZES {
            for shape in [[3, n], [n, 3]] {
                for one in [None, Some(0), Some(1)] {
                    let axis = one.map_or(AttrValue::None, |a| ints(&[a]));
                    let x = r.tensor(d, &shape, 1, 4);
                    for op in ["sum", "max", "min"] {
                        s.run(op, &[x.clone()], &[("axis", axis.clone())]);
                    }
                    // These take one axis, and of no elements there is no largest.
                    for op in ["argmax", "argmin"].iter().filter(|_| n > 0) {
                        s.run(op, &[x.clone()], &[("axis", one.map_or(AttrValue::None, AttrValue::Int))]);
                    }
                    if d.is_float() && n > 0 {
                        for op in ["mean", "variance", "std"] {
                            s.run(op, &[x.clone()], &[("axis", axis.clone()), ("keepdims", AttrValue::Bool(true))]);
                        }
                    }
                }
                for axis in [0, 1] {
                    let x = r.tensor(d, &shape, 0, 5);
                    s.run("cumsum", &[x], &[("axis", AttrValue::Int(axis)), ("dtype", AttrValue::DType(DType::F64))]);
                }
            }
        }
    }
    s.finish();
}

#[test]
fn movement() {
    let (mut s, mut r) = (Sweep { failed: vec![], runs: 0 }, Stream(3));
    for &d in &[DType::F32, DType::F16, DType::F64, DType::I8, DType::I64, DType::BOOL] {
        for &n in SIZES {
            for axis in [0, 1] {
                let a = AttrValue::Int(axis);
                let mut list = vec![];
                for k in [1, n, 5] {
                    let mut shape = [4, 4];
                    shape[axis as usize] = k;
                    list.push(r.tensor(d, &shape, 0, 50));
                }
                s.run("concat", &[Value::Tuple(list)], &[("axis", a.clone())]);
                let x = r.tensor(d, &[n, 7], 0, 50);
                s.run("stack", &[Value::Tuple(vec![x.clone(), x.clone()])], &[("axis", a.clone())]);
                s.run("repeat", &[x.clone()], &[("repeats", AttrValue::Int(3)), ("axis", a.clone())]);
                s.run("flip", &[x.clone()], &[("axis", a.clone())]);
                s.run("sort", &[x.clone()], &[("axis", a.clone())]);
                s.run("argsort", &[x.clone()], &[("axis", a.clone()), ("descending", AttrValue::Bool(true))]);
                s.run("split", &[x.clone()], &[("indices_or_sections", ints(&[2, 5])), ("axis", AttrValue::Int(1))]);
                s.run("split", &[x.clone()], &[("indices_or_sections", AttrValue::Int(3)), ("axis", a.clone())]);
                let i = r.tensor(DType::I64, &[2, 3], 0, 7);
                s.run("take", &[x.clone(), i], &[("axis", AttrValue::Int(1))]);
                let at = r.tensor(DType::I64, &[n, 7], 0, 7);
                s.run("gather_elements", &[x.clone(), at], &[("axis", AttrValue::Int(1))]);
            }
            let x = r.tensor(d, &[3, n, 5], 0, 50);
            for axes in [[0, 2, 1], [2, 1, 0], [1, 0, 2]] {
                s.run("permute_dims", &[x.clone()], &[("axes", ints(&axes))]);
            }
            s.run("reshape", &[x.clone(), Value::Shape(vec![5, n, 3])], &[]);
            s.run("reshape", &[x.clone(), Value::Shape(vec![3 * n, 5])], &[]);
            s.run("tile", &[x.clone()], &[("repeats", ints(&[2, 1, 3]))]);
            s.run("broadcast_to", &[r.tensor(d, &[n, 1], 0, 50), Value::Shape(vec![2, n, 9])], &[]);
            if n > 2 {
                for mode in ["constant", "reflect", "replicate", "circular"] {
                    let mode = [("pad_width", ints(&[0, 0, 1, 2, 2, 1])), ("pad_mode", AttrValue::Str(mode.into()))];
                    s.run("nn.pad", &[x.clone()], &mode);
                }
            }
            s.run("tril", &[x.clone()], &[]);
        }
    }
    s.finish();
}
