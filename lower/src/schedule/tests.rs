//! Scheduled kernels against the reference interpreter.

mod quotients;
mod shuffles;

use super::{machine, schedule, SchedOptions};
use crate::interp::{run, Arg, Tensor};
use crate::{kernel_dims, kernel_workspace};
use relax_ir::flat::FlatStmt;
use relax_ir::prim::{Intrin, PrimKind};
use relax_ir::tir::{Buffer, KernelBuilder, PrimFunc, PrimParam, Reducer, Stmt};
use relax_ir::{DType, PrimExpr, Var};
use std::collections::HashMap;

/// A cheap deterministic generator.
pub struct Random(u64);
impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }
    pub fn tensor(&mut self, d: DType, shape: &[i64]) -> Tensor {
        let n = shape.iter().product::<i64>().max(0) as usize;
        if d.is_float() {
            let v: Vec<f64> = (0..n).map(|_| (self.next() % 2001) as f64 / 500.0 - 2.0).collect();
            Tensor::from_f64(d, shape, &v)
        } else {
            let v: Vec<i64> = (0..n).map(|_| (self.next() % 4) as i64).collect();
            Tensor::from_i64(d, shape, &v)
        }
    }
}

fn eval(e: &PrimExpr, env: &HashMap<Var, PrimExpr>) -> Result<i64, String> {
    let r = e.substitute(env);
    let r = relax_ir::prim::PrimExpr::binary(relax_ir::prim::BinOp::Add, r, PrimExpr::zero(e.dtype()));
    r.as_int().ok_or_else(|| format!("{r:?} is not constant"))
}

/// Runs `f` both ways on random inputs with the given dims and compares every parameter afterwards.
pub fn compare(f: &PrimFunc, dims: &dyn Fn(&Var) -> i64, seed: u64) -> Result<(), String> {
    let mut random = Random(seed);
    let vars = kernel_dims(f);
    let env: HashMap<Var, PrimExpr> = vars.iter().map(|v| (v.clone(), PrimExpr::int(v.dtype(), dims(v)))).collect();
    let mut args = vec![];
    for p in &f.params {
        args.push(match p {
            PrimParam::Buffer { buffer, .. } => {
                let shape = buffer.shape.iter().map(|d| eval(d, &env)).collect::<Result<Vec<_>, _>>()?;
                Arg::Tensor(random.tensor(buffer.dtype(), &shape))
            }
            PrimParam::Scalar(v) if v.dtype().is_float() => Arg::Float(dims(v) as f64),
            PrimParam::Scalar(v) => Arg::Scalar(dims(v)),
            PrimParam::Handle { .. } => return Err("a handle".into()),
        });
    }
    let args_before = args.clone();
    let mut scheduled = args.clone();
    run(f, &mut args).map_err(|d| format!("reference: {}", d.message))?;
    let mut plain = args_before.clone();
    machine::run(f, &mut scheduled, &SchedOptions::default())?;
    machine::run(f, &mut plain, &SchedOptions::vectors(0))?;
    let flat = schedule(f, &SchedOptions::default()).map_err(|d| d.message)?;
    for got in [scheduled, plain] {
        for ((p, a), b) in f.params.iter().zip(&args).zip(&got) {
            let (PrimParam::Buffer { buffer, .. }, Arg::Tensor(want), Arg::Tensor(got)) = (p, a, b) else { continue };
            if want.dtype.is_float() {
                let tol = if want.dtype.bits == 16 { 2e-2 } else { 2e-5 };
                for (i, (w, g)) in want.to_f64().iter().zip(got.to_f64()).enumerate() {
                    let close = w == &g || (w.is_nan() && g.is_nan()) || (w - g).abs() <= tol * (1.0 + w.abs());
                    if !close {
                        return Err(format!("`{}`[{i}]: wanted {w}, got {g}\n{:#?}", buffer.name, flat.body));
                    }
                }
            } else if want.data != got.data {
                return Err(format!(
                    "`{}`: wanted {:?}, got {:?}\n{:#?}",
                    buffer.name,
                    want.to_i64(),
                    got.to_i64(),
                    flat.body
                ));
            }
        }
    }
    Ok(())
}

fn check(f: &PrimFunc, sizes: &[&[(&Var, i64)]]) {
    for s in sizes {
        let dims = |v: &Var| s.iter().find(|(w, _)| *w == v).map_or(3, |(_, n)| *n);
        if let Err(e) = compare(f, &dims, 7) {
            panic!("{} at {s:?}: {e}", f.name);
        }
    }
}

fn n() -> Var {
    Var::dim("n")
}

#[test]
fn elementwise_with_symbolic_dims() {
    let n = n();
    let mut k = KernelBuilder::new("silu");
    let shape = [n.expr(), PrimExpr::i64(5)];
    let x = k.input("x", &shape, DType::F32);
    let s = k.compute("s", &shape, DType::F32, |i| x.at(i).call1(Intrin::Sigmoid));
    let y = k.compute("y", &shape, DType::F32, |i| x.at(i) * s.at(i));
    let f = k.finish(&[y]);
    check(&f, &[&[(&n, 0)], &[(&n, 1)], &[(&n, 7)], &[(&n, 40)]]);
}

#[test]
fn matmul_of_every_size() {
    let (m, n, p) = (Var::dim("m"), Var::dim("n"), Var::dim("p"));
    let mut k = KernelBuilder::new("matmul");
    let a = k.input("a", &[m.expr(), p.expr()], DType::F32);
    let b = k.input("b", &[p.expr(), n.expr()], DType::F32);
    let bias = k.input("bias", &[n.expr()], DType::F32);
    let c = k.sum("c", &[m.expr(), n.expr()], DType::F32, &[p.expr()], |i, r| {
        a.at([i[0].clone(), r[0].clone()]) * b.at([r[0].clone(), i[1].clone()])
    });
    let d = k.compute("d", &[m.expr(), n.expr()], DType::F32, |i| {
        (c.at(i) + bias.at([i[1].clone()])).max(PrimExpr::f32(0.0))
    });
    let f = k.finish(&[d]);
    check(&f, &[&[(&m, 1), (&n, 1), (&p, 0)], &[(&m, 7), (&n, 29), (&p, 9)], &[(&m, 13), (&n, 24), (&p, 5)]]);
}

#[test]
fn row_softmax_and_padding() {
    let n = n();
    let cols = PrimExpr::i64(19);
    let mut k = KernelBuilder::new("softmax");
    let x = k.input("x", &[n.expr(), cols.clone()], DType::F32);
    let init = PrimExpr::min_value(DType::F32);
    let r = Reducer { init, combine: &|a, b| a.max(b) };
    let at = |b: &relax_ir::tir::Buffer, i: &[PrimExpr], r: &[PrimExpr]| b.at([i[0].clone(), r[0].clone()]);
    let m = k.reduce("m", &[n.expr()], DType::F32, &[cols.clone()], r, |i, r| at(&x, i, r));
    let e =
        k.compute("e", &[n.expr(), cols.clone()], DType::F32, |i| (x.at(i) - m.at([i[0].clone()])).call1(Intrin::Exp));
    let s = k.sum("s", &[n.expr()], DType::F32, &[cols.clone()], |i, r| at(&e, i, r));
    let y = k.compute("y", &[n.expr(), cols.clone()], DType::F32, |i| e.at(i) / s.at([i[0].clone()]));
    let z = k.compute("z", &[n.expr(), cols.clone() + 6i64], DType::F32, |i| {
        let j = i[1].clone();
        let inside = PrimExpr::i64(2).le(j.clone()).and(j.clone().lt(cols.clone() + 2i64));
        inside.if_then_else(y.at([i[0].clone(), j - 2i64]), PrimExpr::f32(-1.0))
    });
    let f = k.finish(&[z]);
    check(&f, &[&[(&n, 0)], &[(&n, 1)], &[(&n, 5)]]);
}

/// Softmax over the last of `dims`; `turned`: what is divided is of the row that counts from the end.
fn long_softmax(dims: &[PrimExpr], turned: bool) -> PrimFunc {
    let mut k = KernelBuilder::new("softmax");
    let x = k.input("x", dims, DType::F32);
    let (row, rows) = dims.split_last().expect("a row");
    let extent = [row.clone()];
    let with = |i: &[PrimExpr], r: &[PrimExpr]| [i, r].concat();
    let r = Reducer { init: PrimExpr::min_value(DType::F32), combine: &|a, b| a.max(b) };
    let m = k.reduce("m", rows, DType::F32, &extent, r, |i, r| x.at(with(i, r)));
    let e = k.compute("e", dims, DType::F32, |i| (x.at(i) - m.at(&i[..rows.len()])).call1(Intrin::Exp));
    let s = k.sum("s", rows, DType::F32, &extent, |i, r| e.at(with(i, r)));
    let y = k.compute("y", dims, DType::F32, |i| {
        let mut at = i.to_vec();
        if turned {
            at[0] = dims[0].clone() - 1i64 - i[0].clone();
        }
        e.at(at) / s.at(&i[..rows.len()])
    });
    k.finish(&[y])
}

#[test]
fn stages_over_long_rows_hand_each_other_one_row() {
    let n = n();
    let of = |d: &[i64]| [vec![n.expr()], d.iter().map(|d| PrimExpr::i64(*d)).collect()].concat();
    for (dims, bytes) in [(of(&[100]), 0), (of(&[3, 300]), 1216)] {
        let f = long_softmax(&dims, false);
        assert_eq!(
            kernel_workspace(&f),
            PrimExpr::i64(bytes),
            "the exponentials of a row, on the stack where they are few"
        );
        check(&f, &[&[(&n, 0)], &[(&n, 1)], &[(&n, 5)]]);
    }
    // A row whose length is open, and rows that are read in another order.
    let dims = [PrimExpr::i64(7), n.expr()];
    let f = long_softmax(&dims, false);
    assert!(!kernel_workspace(&f).substitute(&HashMap::from([(n.clone(), PrimExpr::i64(64))])).is_int(7 * 256));
    check(&f, &[&[(&n, 0)], &[(&n, 1)], &[(&n, 130)]]);
    let f = long_softmax(&of(&[100]), true);
    check(&f, &[&[(&n, 0)], &[(&n, 1)], &[(&n, 5)]]);
}

#[test]
fn half_precision_and_small_integers() {
    let n = n();
    for (d, name) in
        [(DType::F16, "f16"), (DType::BF16, "bf16"), (DType::I8, "i8"), (DType::U8, "u8"), (DType::F64, "f64")]
    {
        let mut k = KernelBuilder::new(name);
        let x = k.input("x", &[n.expr()], d);
        let y = k.compute("y", &[n.expr()], d, |i| x.at(i) * x.at(i) - PrimExpr::int(d, 5));
        let w = k.compute("w", &[n.expr()], DType::I32, |i| y.at(i).cast(DType::I32) + PrimExpr::i32(1));
        let b = k.compute("b", &[n.expr()], DType::BOOL, |i| y.at(i).gt(PrimExpr::zero(d)));
        let f = k.finish(&[y, w, b]);
        check(&f, &[&[(&n, 1)], &[(&n, 37)]]);
    }
}

fn at(b: &relax_ir::tir::Buffer, i: &[&PrimExpr]) -> PrimExpr {
    b.at(i.iter().map(|e| (*e).clone()).collect::<Vec<_>>())
}

#[test]
fn dot_products_along_the_reduction() {
    let (m, n, p) = (Var::dim("m"), Var::dim("n"), Var::dim("p"));
    let mut k = KernelBuilder::new("linear");
    let a = k.input("a", &[m.expr(), p.expr()], DType::F32);
    let b = k.input("b", &[n.expr(), p.expr()], DType::F32);
    let c = k.sum("c", &[m.expr(), n.expr()], DType::F32, &[p.expr()], |i, r| {
        at(&a, &[&i[0], &r[0]]) * at(&b, &[&i[1], &r[0]])
    });
    let f = k.finish(&[c]);
    check(&f, &[&[(&m, 1), (&n, 1), (&p, 0)], &[(&m, 7), (&n, 8), (&p, 37)], &[(&m, 1), (&n, 13), (&p, 16)]]);
}

#[test]
fn convolution_with_padding_and_strides() {
    for stride in [1i64, 2] {
        let c = PrimExpr::i64;
        let n = n();
        let mut k = KernelBuilder::new(format!("conv_stride_{stride}"));
        let x = k.input("x", &[n.expr(), c(3), c(11), c(13)], DType::F32);
        let w = k.input("w", &[c(5), c(3), c(3), c(3)], DType::F32);
        let b = k.input("b", &[c(1), c(5), c(1), c(1)], DType::F32);
        let pad = k.compute("pad", &[n.expr(), c(3), c(13), c(15)], DType::F32, |i| {
            let (h, v) = (&i[2], &i[3]);
            let inside = c(1).le(h.clone()).and(h.clone().lt(12i64)).and(c(1).le(v.clone())).and(v.clone().lt(14i64));
            let from = at(&x, &[&i[0], &i[1], &(h.clone() - 1i64), &(v.clone() - 1i64)]);
            inside.if_then_else(from, PrimExpr::f32(0.0))
        });
        let (oh, ow) = ((11 - 1) / stride + 1, (13 - 1) / stride + 1);
        let shape = [n.expr(), c(5), c(oh), c(ow)];
        let y = k.sum("y", &shape, DType::F32, &[c(3), c(3), c(3)], |i, r| {
            let (h, v) = (i[2].clone() * stride + r[1].clone(), i[3].clone() * stride + r[2].clone());
            at(&pad, &[&i[0], &r[0], &h, &v]) * at(&w, &[&i[1], &r[0], &r[1], &r[2]])
        });
        let z = k.compute("z", &shape, DType::F32, |i| {
            (y.at(i) + at(&b, &[&c(0), &i[1], &c(0), &c(0)])).max(PrimExpr::f32(0.0))
        });
        let f = k.finish(&[z]);
        check(&f, &[&[(&n, 0)], &[(&n, 1)], &[(&n, 2)]]);
        let mut k = KernelBuilder::new(format!("pool_stride_{stride}"));
        let x = k.input("x", &[n.expr(), c(2), c(13), c(15)], DType::F32);
        let init = PrimExpr::min_value(DType::F32);
        let r = Reducer { init, combine: &|a, b| a.max(b) };
        let y = k.reduce("y", &[n.expr(), c(2), c(oh), c(ow)], DType::F32, &[c(3), c(3)], r, |i, r| {
            at(&x, &[&i[0], &i[1], &(i[2].clone() * stride + r[0].clone()), &(i[3].clone() * stride + r[1].clone())])
        });
        let f = k.finish(&[y]);
        check(&f, &[&[(&n, 2)]]);
    }
}

/// Windows that write to what their padded copy was made of: the copy stays.
#[test]
fn windows_in_place_keep_what_was_padded() {
    let c = PrimExpr::i64;
    let shape = [c(1), c(2), c(19), c(40)];
    let mut k = KernelBuilder::new("in_place");
    let x = k.input("x", &shape, DType::F32);
    let low = PrimExpr::min_value(DType::F32);
    let pad = k.compute("pad", &[c(1), c(2), c(21), c(42)], DType::F32, |i| {
        let (h, v) = (&i[2], &i[3]);
        let inside = c(1).le(h.clone()).and(h.clone().lt(20i64)).and(c(1).le(v.clone())).and(v.clone().lt(41i64));
        let from = at(&x, &[&i[0], &i[1], &(h.clone() - 1i64), &(v.clone() - 1i64)]);
        inside.if_then_else(from, low.clone())
    });
    let r = Reducer { init: low.clone(), combine: &|a, b| a.max(b) };
    let y = k.reduce("y", &shape, DType::F32, &[c(3), c(3)], r, |i, r| {
        at(&pad, &[&i[0], &i[1], &(i[2].clone() + r[0].clone()), &(i[3].clone() + r[1].clone())])
    });
    let mut f = k.finish(&[y.clone()]);
    f.body = f.body.replace_loads(&|b, i| (*b == x).then(|| y.at(i)));
    let mut random = Random(7);
    let before = [(); 2].map(|()| Arg::Tensor(random.tensor(DType::F32, &[1, 2, 19, 40])));
    let mut wanted = before.to_vec();
    run(&f, &mut wanted).unwrap();
    for bytes in [16, 32, 64] {
        let mut got = before.to_vec();
        machine::run(&f, &mut got, &SchedOptions::vectors(bytes)).unwrap();
        let [Arg::Tensor(wanted), Arg::Tensor(got)] = [&wanted[1], &got[1]] else { panic!("tensors") };
        assert_eq!(wanted.to_f64(), got.to_f64(), "{bytes} bytes");
    }
}

#[test]
fn reductions_of_every_kind() {
    let (m, n) = (Var::dim("m"), Var::dim("n"));
    for d in [DType::F32, DType::F64, DType::F16, DType::I32, DType::I8, DType::I64, DType::U8] {
        let mut k = KernelBuilder::new(format!("reduce_{d}"));
        let x = k.input("x", &[m.expr(), n.expr()], d);
        let rows = k.sum("rows", &[m.expr()], d, &[n.expr()], |i, r| at(&x, &[&i[0], &r[0]]));
        let cols = k.sum("cols", &[n.expr()], d, &[m.expr()], |i, r| at(&x, &[&r[0], &i[0]]));
        let all = k.sum("all", &[], d, &[m.expr(), n.expr()], |_, r| at(&x, &[&r[0], &r[1]]));
        let low = Reducer { init: PrimExpr::max_value(d), combine: &|a, b| a.min(b) };
        let least = k.reduce("least", &[m.expr()], d, &[n.expr()], low, |i, r| at(&x, &[&i[0], &r[0]]));
        let wide = k.sum("wide", &[m.expr()], DType::I32, &[n.expr()], |i, r| {
            at(&x, &[&i[0], &r[0]]).cast(DType::I32) * PrimExpr::i32(3)
        });
        let f = k.finish(&[rows, cols, all, least, wide]);
        check(&f, &[&[(&m, 0), (&n, 3)], &[(&m, 1), (&n, 1)], &[(&m, 3), (&n, 41)], &[(&m, 40), (&n, 9)]]);
    }
}

#[test]
fn gathers_concatenation_and_transposition() {
    let (m, n) = (Var::dim("m"), Var::dim("n"));
    let mut k = KernelBuilder::new("movement");
    let x = k.input("x", &[m.expr(), n.expr()], DType::F32);
    let y = k.input("y", &[m.expr(), PrimExpr::i64(5)], DType::F32);
    let idx = k.input("idx", &[PrimExpr::i64(6)], DType::I64);
    let cat = k.compute("cat", &[m.expr(), n.expr() + 5i64], DType::F32, |i| {
        let left = i[1].clone().lt(n.expr());
        left.if_then_else(x.at(i), at(&y, &[&i[0], &(i[1].clone() - n.expr())]))
    });
    let t = k.compute("t", &[n.expr() + 5i64, m.expr()], DType::F32, |i| at(&cat, &[&i[1], &i[0]]).call1(Intrin::Tanh));
    let g =
        k.compute("g", &[PrimExpr::i64(6), PrimExpr::i64(5)], DType::F32, |i| at(&y, &[&at(&idx, &[&i[0]]), &i[1]]));
    let flat = k.compute("flat", &[m.expr() * 5i64], DType::F32, |i| {
        at(&y, &[&i[0].clone().floor_div(5i64), &i[0].clone().floor_mod(5i64)]) * PrimExpr::f32(2.0)
    });
    let rev = k.compute("rev", &[m.expr(), PrimExpr::i64(5)], DType::F32, |i| {
        at(&y, &[&i[0], &(PrimExpr::i64(4) - i[1].clone())]).call1(Intrin::Exp)
    });
    let f = k.finish(&[cat, t, g, flat, rev]);
    check(&f, &[&[(&m, 4), (&n, 1)], &[(&m, 9), (&n, 30)]]);
}

/// Every PrimFunc of the corpus, with two sizes of the symbolic dims.
#[test]
fn every_kernel_of_the_corpus() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/corpus");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
    files.retain(|p| {
        let name = p.file_name().unwrap().to_string_lossy();
        name.ends_with(".rlx")
            && name.matches('.').count() == if name.contains("lized.") || name.contains("fused.") { 2 } else { 1 }
    });
    files.sort();
    let (mut failed, mut skipped, mut passed) = (vec![], vec![], 0);
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let (module, _) = relax_frontend::rlx::parse(relax_ir::FileId(0), &text);
        let Some(module) = module else { continue };
        for f in &module.funcs {
            let relax_ir::Func::Prim(f) = f else { continue };
            for (size, seed) in [(3, 1), (6, 2)] {
                match compare(f, &|_| size, seed) {
                    Ok(()) => passed += 1,
                    Err(e) if e.starts_with("reference:") => skipped.push(format!("{}: {e}", f.name)),
                    Err(e) => {
                        let head: String = e.chars().take(if failed.len() < 3 { 6000 } else { 200 }).collect();
                        failed.push(format!("{} {} ({size}): {head}", path.display(), f.name))
                    }
                }
            }
        }
    }
    assert!(
        failed.is_empty(),
        "{passed} passed, {} skipped, {} failed:\n{}",
        skipped.len(),
        failed.len(),
        failed.join("\n")
    );
    assert!(passed > 500, "only {passed} passed, skipped: {skipped:#?}");
}

#[test]
fn packed_contractions() {
    let c = PrimExpr::i64;
    // Sizes that leave columns and rows over; joined and separate columns; a transposed right side; batches.
    for (h, stride, ci, co) in [(7i64, 1i64, 8i64, 10i64), (9, 2, 6, 7), (32, 1, 3, 6)] {
        let oh = (h - 1) / stride + 1;
        let mut k = KernelBuilder::new("conv");
        let n = n();
        let x = k.input("x", &[n.expr(), c(ci), c(h + 2), c(h + 2)], DType::F32);
        let w = k.input("w", &[c(co), c(ci), c(3), c(3)], DType::F32);
        let s = k.input("s", &[n.expr(), c(co), c(oh), c(oh)], DType::F32);
        let shape = [n.expr(), c(co), c(oh), c(oh)];
        let y = k.sum("y", &shape, DType::F32, &[c(ci), c(3), c(3)], |i, r| {
            let (a, b) = (i[2].clone() * stride + r[1].clone(), i[3].clone() * stride + r[2].clone());
            at(&x, &[&i[0], &r[0], &a, &b]) * at(&w, &[&i[1], &r[0], &r[1], &r[2]])
        });
        let z = k.compute("z", &shape, DType::F32, |i| y.at(i) + s.at(i));
        let f = k.finish(&[z]);
        assert!(!kernel_workspace(&f).is_int(0));
        check(&f, &[&[(&n, 0)], &[(&n, 2)]]);
    }
    for d in [DType::F32, DType::F64, DType::I32] {
        let (m, n, p) = (Var::dim("m"), Var::dim("n"), Var::dim("p"));
        let mut k = KernelBuilder::new("batched");
        let a = k.input("a", &[c(2), m.expr(), p.expr()], DType::I8);
        let b = k.input("b", &[c(2), n.expr(), p.expr()], d);
        let y = k.sum("c", &[c(2), m.expr(), n.expr()], d, &[p.expr()], |i, r| {
            at(&a, &[&i[0], &i[1], &r[0]]).cast(d) * at(&b, &[&i[0], &i[2], &r[0]])
        });
        let f = k.finish(&[y]);
        check(&f, &[&[(&m, 1), (&n, 1), (&p, 0)], &[(&m, 7), (&n, 29), (&p, 9)], &[(&m, 13), (&n, 24), (&p, 5)]]);
    }
}

#[test]
fn panels_of_slivers() {
    // Rows of more than 256 KiB, columns that fill one panel and a part of the next.
    let c = PrimExpr::i64;
    let mut k = KernelBuilder::new("panels");
    let (m, n, p) = (17i64, 12 * 3 + 5, 4100i64);
    let a = k.input("a", &[c(m), c(p)], DType::F32);
    let b = k.input("b", &[c(p), c(n)], DType::F32);
    let y = k.sum("c", &[c(m), c(n)], DType::F32, &[c(p)], |i, r| {
        at(&a, &[&i[0], &r[0]]) * PrimExpr::f32(0.01) * at(&b, &[&r[0], &i[1]])
    });
    let f = k.finish(&[y]);
    check(&f, &[&[]]);
}

#[test]
fn columns_that_do_not_fill_vectors() {
    let c = PrimExpr::i64;
    for (m, p, n) in [(14i64, 37i64, 69i64), (8, 64, 100), (20, 33, 197), (7, 170, 30), (3, 400, 44), (7, 3100, 69)] {
        for turned in [false, true] {
            for heavy in [false, true] {
                let mut k = KernelBuilder::new("product");
                let a = k.input("a", &[c(m), c(p)], DType::F32);
                let b = k.input("b", &if turned { [c(n), c(p)] } else { [c(p), c(n)] }, DType::F32);
                let s = k.input("s", &[c(m), c(n)], DType::F32);
                let y = k.sum("y", &[c(m), c(n)], DType::F32, &[c(p)], |i, r| {
                    let b = if turned { at(&b, &[&i[1], &r[0]]) } else { at(&b, &[&r[0], &i[1]]) };
                    at(&a, &[&i[0], &r[0]]) * PrimExpr::f32(0.01) * b
                });
                let z = k.compute("z", &[c(m), c(n)], DType::F32, |i| {
                    let sum = y.at(i) + s.at(i);
                    if heavy {
                        sum.call1(Intrin::Tanh)
                    } else {
                        sum
                    }
                });
                check(&k.finish(&[z]), &[&[]]);
            }
        }
    }
}

/// Right sides that tiles copy in passing, and those that they turn: in blocks of several sizes, with rows and columns left
/// over. Each sum is made in the order of the reduction, as where nothing is copied: the same bits.
#[test]
fn right_sides_are_copied_in_passing() {
    let c = PrimExpr::i64;
    for (m, p, n, turned, bytes) in [
        (69i64, 525i64, 128i64, false, 64),
        (35, 130 * 4, 1024, false, 64),
        (70, 514, 130, false, 32),
        (40, 272, 64, true, 64),
        (65, 1296, 80, true, 64),
        (45, 1568, 151, true, 64),
        // Slivers of 38 and 54 columns, the last ones of vectors of eight lanes, and groups of four that reach back.
        (102, 272, 102, true, 64),
        (38, 496, 166, true, 64),
        (134, 512, 54, true, 64),
        (69, 525, 292, false, 64),
    ] {
        let mut k = KernelBuilder::new("product");
        let a = k.input("a", &[c(m), c(p)], DType::F32);
        let b = k.input("b", &if turned { [c(n), c(p)] } else { [c(p), c(n)] }, DType::F32);
        let y = k.sum("y", &[c(m), c(n)], DType::F32, &[c(p)], |i, r| {
            let b = if turned { at(&b, &[&i[1], &r[0]]) } else { at(&b, &[&r[0], &i[1]]) };
            at(&a, &[&i[0], &r[0]]) * b
        });
        let values =
            |count: i64, by: i64| (0..count).map(|i| (i * by % 1009 - 504) as f32 / 64.0).collect::<Vec<f32>>();
        let (left, right) = (values(m * p, 7919), values(p * n, 6007));
        let tensor = |shape: &[i64], v: &[f32]| {
            Arg::Tensor(Tensor::from_f64(DType::F32, shape, &v.iter().map(|x| *x as f64).collect::<Vec<_>>()))
        };
        let out = Arg::Tensor(Tensor::zeros(DType::F32, &[m, n]));
        let of_b = if turned { [n, p] } else { [p, n] };
        let mut args = [tensor(&[m, p], &left), tensor(&of_b, &right), out];
        let asked = machine::run(&k.finish(&[y]), &mut args, &SchedOptions::vectors(bytes)).unwrap();
        assert!(!asked.is_empty(), "{m}x{p}x{n} by {bytes}: nothing is asked for");
        let Arg::Tensor(got) = &args[2] else { panic!() };
        let got = got.to_f64();
        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))).filter(|(i, j)| (i + j) % 5 == 0 || i + 3 > m) {
            let step = |sum: f32, k: i64| {
                let right = if turned { right[(j * p + k) as usize] } else { right[(k * n + j) as usize] };
                left[(i * p + k) as usize].mul_add(right, sum)
            };
            let wanted = (0..p).fold(0.0, step);
            let got = got[(i * n + j) as usize] as f32;
            assert!(got == wanted, "{m}x{p}x{n} by {bytes}, turned {turned}: {got}, not {wanted}, at {i}, {j}");
        }
    }
}

#[test]
fn far_right_sides_are_asked_for_ahead() {
    /// Innermost loops that ask.
    fn asked(body: &[FlatStmt]) -> usize {
        let one = |s: &FlatStmt| match s {
            FlatStmt::For { body, .. } | FlatStmt::While { body, .. } => asked(body),
            FlatStmt::If { then, otherwise, .. } => asked(then) + asked(otherwise),
            _ => 0,
        };
        let own = body.iter().any(|s| matches!(s, FlatStmt::Prefetch { .. }));
        own as usize + body.iter().map(one).sum::<usize>()
    }
    let c = PrimExpr::i64;
    // 8 MiB, read where it is by few rows, copied in passing, and by a tile for more rows than ask; 2 MiB; and no processor that is
    // told. The reductions go by three blocks, by a short one and equal ones, and by two.
    for (m, p, n, bytes, loops) in [
        (8i64, 2048i64, 1024i64, 64, 3),
        (126, 2048, 1024, 64, 5),
        (1200, 2048, 1024, 64, 4),
        (400, 512, 1024, 64, 0),
        (16, 2048, 1024, 16, 0),
    ] {
        let mut k = KernelBuilder::new("far");
        let a = k.input("a", &[c(m), c(p)], DType::F32);
        let b = k.input("b", &[c(p), c(n)], DType::F32);
        let y =
            k.sum("y", &[c(m), c(n)], DType::F32, &[c(p)], |i, r| at(&a, &[&i[0], &r[0]]) * at(&b, &[&r[0], &i[1]]));
        let flat = schedule(&k.finish(&[y]), &SchedOptions::vectors(bytes)).expect("the kernel is scheduled");
        assert_eq!(asked(&flat.body), loops, "{m}x{p}x{n}, {bytes}");
    }
}

/// The loops of a kernel, one inside of another counted each.
fn loops(f: &PrimFunc, vector_bytes: u32) -> usize {
    use relax_ir::flat::FlatStmt;
    fn count(body: &[FlatStmt]) -> usize {
        let one = |s: &FlatStmt| match s {
            FlatStmt::For { body, .. } | FlatStmt::While { body, .. } => 1 + count(body),
            FlatStmt::If { then, otherwise, .. } => count(then) + count(otherwise),
            _ => 0,
        };
        body.iter().map(one).sum()
    }
    count(&schedule(f, &SchedOptions::vectors(vector_bytes)).expect("the kernel is scheduled").body)
}

/// Statements around a reduction, which depends on what they have computed.
#[test]
fn reductions_inside_of_statements_run_by_vectors() {
    let n = n();
    let row = Var::dim("row");
    let mut k = KernelBuilder::new("rows");
    let x = k.input("x", &[n.expr(), PrimExpr::i64(40)], DType::F32);
    let y = k.buffer("y", &[n.expr()], DType::F32);
    let mut inner = KernelBuilder::new("largest");
    let most = Reducer { init: PrimExpr::zero(DType::F32), combine: &|a, b| a.max(b) };
    let largest = inner.reduce("largest", &[], DType::F32, &[PrimExpr::i64(40)], most, |_, j| {
        at(&x, &[&row.expr(), &j[0]]) - at(&x, &[&row.expr(), &PrimExpr::i64(0)])
    });
    let found = largest.at([]);
    inner.push(Stmt::if_else(
        found.clone().gt(PrimExpr::f32(1.0)),
        Stmt::store(&y, vec![row.expr()], found),
        Stmt::store(&y, vec![row.expr()], PrimExpr::f32(-1.0)),
    ));
    k.push(Stmt::for_serial(&row, n.expr(), inner.into_block()));
    let f = k.finish(&[y]);
    check(&f, &[&[(&n, 0)], &[(&n, 1)], &[(&n, 7)]]);
    for bytes in [16, 64] {
        let flat = schedule(&f, &SchedOptions::vectors(bytes)).expect("a kernel");
        assert!(format!("{:?}", flat.body).contains("ReduceMax"), "{bytes}: {:#?}", flat.body);
    }
}

#[test]
fn known_divisors_leave_no_remainders() {
    let told = |f: &PrimFunc, divisors: &[i64]| {
        let mut f = f.clone();
        let list = divisors.iter().map(|k| relax_ir::AttrValue::Int(*k)).collect();
        f.attrs.set(super::DIVISORS, relax_ir::AttrValue::List(list));
        f
    };
    let c = PrimExpr::i64;
    let n = Var::dim("n");
    let mut k = KernelBuilder::new("double");
    let x = k.input("x", &[n.expr()], DType::F32);
    let y = k.compute("y", &[n.expr()], DType::F32, |i| at(&x, &[&i[0]]) + at(&x, &[&i[0]]));
    let f = k.finish(&[y]);
    // Four vectors at a time, one vector, single elements; with a divisor of four vectors the first alone.
    for (bytes, several) in [(16, 16), (32, 32), (64, 64)] {
        assert!(loops(&f, bytes) >= 3, "{bytes}");
        assert_eq!(loops(&told(&f, &[several]), bytes), 1, "{bytes}");
        assert_eq!(loops(&told(&f, &[several * 3]), bytes), 1, "{bytes}");
    }
    let g = told(&f, &[16]);
    check(&g, &[&[(&n, 0)], &[(&n, 16)], &[(&n, 64)]]);

    let mut k = KernelBuilder::new("product");
    let a = k.input("a", &[n.expr(), c(40)], DType::F32);
    let b = k.input("b", &[c(40), c(48)], DType::F32);
    let y =
        k.sum("y", &[n.expr(), c(48)], DType::F32, &[c(40)], |i, r| at(&a, &[&i[0], &r[0]]) * at(&b, &[&r[0], &i[1]]));
    let f = k.finish(&[y]);
    for bytes in [16, 32, 64] {
        assert!(loops(&told(&f, &[24]), bytes) < loops(&f, bytes), "{bytes}");
    }
    check(&told(&f, &[24]), &[&[(&n, 0)], &[(&n, 24)], &[(&n, 48)]]);
    check(&told(&f, &[16]), &[&[(&n, 16)], &[(&n, 32)]]);

    // A multiple that no one states: rows of 64 elements one after the other.
    let mut k = KernelBuilder::new("rows");
    let x = k.input("x", &[n.expr(), c(64)], DType::F32);
    let y = k.compute("y", &[n.expr(), c(64)], DType::F32, |i| at(&x, &[&i[0], &i[1]]) * PrimExpr::f32(0.5));
    assert_eq!(loops(&k.finish(&[y]), 64), 1);
}

/// Sums of exponentials along rows: two registers at a time, then shorter vectors, then single elements.
#[test]
fn dear_sums_go_by_two_registers() {
    let sum = |row: PrimExpr| {
        let rows = [PrimExpr::i64(3)];
        let mut k = KernelBuilder::new("sum");
        let x = k.input("x", &[rows[0].clone(), row.clone()], DType::F32);
        let y = k.sum("y", &rows, DType::F32, &[row], |i, r| at(&x, &[&i[0], &r[0]]).call1(Intrin::Exp));
        k.finish(&[y])
    };
    for bytes in [32, 64] {
        let o = SchedOptions::vectors(bytes);
        let pairs = |f: &PrimFunc| {
            let flat = schedule(f, &o).expect("a kernel");
            format!("{:?}", flat.body).contains(&format!("float32x{}", bytes / 2))
        };
        assert!(pairs(&sum(n().expr())));
        assert!(!pairs(&sum(PrimExpr::i64(bytes as i64 / 4 + 1))));
        for n in [0, 1, 5, 15, 31, 32, 47, 63, 64, 100, 129] {
            for row in [PrimExpr::i64(n), Var::dim("n").expr()] {
                let f = sum(row);
                let input = Random(n as u64).tensor(DType::F32, &[3, n]);
                let args = vec![Arg::Tensor(input), Arg::Tensor(Tensor::zeros(DType::F32, &[3]))];
                let (mut wanted, mut got) = (args.clone(), args);
                run(&f, &mut wanted).unwrap();
                machine::run(&f, &mut got, &o).unwrap();
                let (Arg::Tensor(x), Arg::Tensor(y)) = (&wanted[1], &got[1]) else { panic!() };
                for (x, y) in x.to_f64().iter().zip(y.to_f64()) {
                    assert!((x - y).abs() <= 1e-5 * (1.0 + x.abs()), "{n} by {bytes}: {x} {y}");
                }
            }
        }
    }
}

/// A sum that wraps is negative, though its terms are not: what saturates by its sign stays.
#[test]
fn sums_that_wrap_are_no_limits() {
    let n = n();
    for d in [DType::I8, DType::I32] {
        let mut k = KernelBuilder::new("saturated");
        let x = k.input("x", &[n.expr()], d);
        let largest = PrimExpr::int(d, if d == DType::I8 { i8::MAX as i64 } else { i32::MAX as i64 });
        let y = k.compute("y", &[n.expr()], d, |i| {
            let sum = x.at(i).max(PrimExpr::int(d, 1)) + largest.clone();
            sum.clone().lt(PrimExpr::int(d, 0)).select(largest.clone(), sum)
        });
        let f = k.finish(&[y]);
        let flat = schedule(&f, &SchedOptions::vectors(16)).expect("a kernel");
        assert!(format!("{:?}", flat.body).contains("Select"), "{:#?}", flat.body);
    }
}

/// A place between 0 and the last one is not counted from the end, which any other may be.
#[test]
fn limited_places_are_taken_as_they_are() {
    let n = n();
    for limited in [true, false] {
        let mut k = KernelBuilder::new("gather");
        let x = k.input("x", &[PrimExpr::i64(7)], DType::F32);
        let at = k.input("at", &[n.expr()], DType::I64);
        let y = k.compute("y", &[n.expr()], DType::F32, |i| {
            let place = at.at(i);
            let place = if limited { place.max(PrimExpr::i64(0)).min(PrimExpr::i64(6)) } else { place };
            x.at([place.clone().lt(0).select(place.clone() + 7, place)])
        });
        let f = k.finish(&[y]);
        check(&f, &[&[(&n, 0)], &[(&n, 1)], &[(&n, 20)]]);
        let flat = schedule(&f, &SchedOptions::vectors(64)).expect("a kernel");
        assert_eq!(format!("{:?}", flat.body).contains("Select"), !limited, "{:#?}", flat.body);
    }
}

/// Who looks for what loops hand each other knows memory by its name (`threads/split.rs`).
#[test]
fn buffers_that_share_memory_share_its_name() {
    for len in [PrimExpr::i64(128), n().expr()] {
        let mut k = KernelBuilder::new("turns");
        let (dims, all) = ([len.clone(), len.clone()], [len]);
        let x = k.input("x", &dims, DType::F32);
        let mut product = |l: &Buffer, r: &Buffer| {
            let term = |i: &[PrimExpr], k: &[PrimExpr]| {
                l.at([i[0].clone(), k[0].clone()]) * r.at([k[0].clone(), i[1].clone()])
            };
            k.sum("product", &dims, DType::F32, &all, term)
        };
        let a = product(&x, &x);
        let b = product(&a, &a);
        let c = product(&b, &x);
        let y = product(&b, &c);
        let flat = schedule(&k.finish(&[y]), &SchedOptions::default()).expect("a kernel");
        let workspace = flat.params.last().expect("the workspace").expr();
        let pieces = |s: &&FlatStmt| match s {
            FlatStmt::Let { value, .. } => match value.kind() {
                PrimKind::PtrAdd(of, _) => *of == workspace,
                _ => *value == workspace,
            },
            _ => false,
        };
        // Two of those four, and packed columns.
        assert_eq!(flat.body.iter().filter(pieces).count(), 3, "{flat:?}");
    }
}

/// Products go lane by lane, with lanes of 1 first; strictly those of floats go from left to right, and then overflow where
/// these do, while integers wrap in any order.
#[test]
fn products_go_by_lanes_unless_strictly() {
    let n = n();
    for d in [DType::F32, DType::I32] {
        let mut k = KernelBuilder::new("product");
        let x = k.input("x", &[PrimExpr::i64(3), n.expr()], d);
        let times = Reducer { init: PrimExpr::int(DType::I32, 3).cast(d), combine: &|a, b| a * b };
        let y = k.reduce("y", &[PrimExpr::i64(3)], d, &[n.expr()], times, |i, r| at(&x, &[&i[0], &r[0]]));
        let f = k.finish(&[y]);
        check(&f, &[&[(&n, 0)], &[(&n, 1)], &[(&n, 7)], &[(&n, 70)]]);
        for (bytes, strict) in [(16, false), (64, false), (16, true), (64, true)] {
            let o = SchedOptions { strict, ..SchedOptions::vectors(bytes) };
            let lanes = format!("{:?}", schedule(&f, &o).expect("a kernel").body).contains("ReduceMul");
            assert_eq!(lanes, !(strict && d.is_float()), "{d} by {bytes}, strict: {strict}");
        }
    }
}

/// The second of two parts begins behind the first one, a picture behind its border: what is taken from the place is no pointer
/// of its own (`machine` refuses those before their arrays).
#[test]
fn pointers_stay_in_their_arrays() {
    let (n, m, border) = (n(), Var::dim("m"), Var::dim("border"));
    let mut k = KernelBuilder::new("behind");
    let x = k.input("x", &[n.expr(), m.expr()], DType::F32);
    let z = k.input("z", &[n.expr(), m.expr()], DType::F32);
    let around = k.input("around", &[border.expr()], DType::F32);
    let joined = k.compute("joined", &[n.expr() * 2, m.expr()], DType::F32, |i| {
        let behind = at(&z, &[&(i[0].clone() - n.expr()), &i[1]]);
        i[0].clone().lt(n.expr()).if_then_else(at(&x, &[&i[0], &i[1]]), behind)
    });
    let padded = k.compute("padded", &[n.expr() + border.expr(), m.expr()], DType::F32, |i| {
        let inside = at(&x, &[&(i[0].clone() - border.expr()), &i[1]]);
        i[0].clone().lt(border.expr()).if_then_else(at(&around, &[&i[0]]), inside)
    });
    let f = k.finish(&[joined, padded]);
    for sizes in [[0, 3, 2], [1, 1, 1], [5, 7, 3], [9, 40, 4]] {
        let dims: Vec<(&Var, i64)> = [&n, &m, &border].into_iter().zip(sizes).collect();
        check(&f, &[&dims]);
    }
}
