use super::*;
use relax_ir::prim::{BinOp, Intrin, Var};
use relax_ir::tir::{KernelBuilder, Reducer, Stmt};
use relax_ir::DType;

fn f32s(shape: &[i64], v: &[f32]) -> Arg {
    Arg::Tensor(Tensor::from_f32(shape, v))
}
fn out(dtype: DType, shape: &[i64]) -> Arg {
    Arg::Tensor(Tensor::zeros(dtype, shape))
}
fn got(a: &Arg) -> Vec<f64> {
    a.tensor().map(Tensor::to_f64).unwrap_or_default()
}

fn matmul() -> PrimFunc {
    let (m, n, p) = (Var::dim("m"), Var::dim("n"), Var::dim("p"));
    let mut k = KernelBuilder::new("matmul");
    let a = k.input("a", &[m.expr(), p.expr()], DType::F32);
    let b = k.input("b", &[p.expr(), n.expr()], DType::F32);
    let c = k.sum("c", &[m.expr(), n.expr()], DType::F32, &[p.expr()], |i, r| {
        a.at([i[0].clone(), r[0].clone()]) * b.at([r[0].clone(), i[1].clone()])
    });
    k.finish(&[c])
}

#[test]
fn matmul_binds_its_dims() {
    let mut args =
        [f32s(&[2, 3], &[1., 2., 3., 4., 5., 6.]), f32s(&[3, 2], &[1., 0., 0., 1., 1., 1.]), out(DType::F32, &[2, 2])];
    run(&matmul(), &mut args).unwrap();
    assert_eq!(got(&args[2]), [4., 5., 10., 11.]);
}

#[test]
fn an_empty_reduction_gives_its_init() {
    let mut args = [f32s(&[2, 0], &[]), f32s(&[0, 2], &[]), f32s(&[2, 2], &[9., 9., 9., 9.])];
    run(&matmul(), &mut args).unwrap();
    assert_eq!(got(&args[2]), [0., 0., 0., 0.]);

    let n = Var::dim("n");
    let mut k = KernelBuilder::new("max_all");
    let x = k.input("x", &[n.expr(), n.expr()], DType::I8);
    let r = Reducer { init: PrimExpr::min_value(DType::I8), combine: &|a, b| a.max(b) };
    let y = k.reduce("y", &[], DType::I8, &[n.expr(), n.expr()], r, |_, r| x.at(r));
    let f = k.finish(&[y]);
    let mut args = [out(DType::I8, &[0, 0]), out(DType::I8, &[])];
    run(&f, &mut args).unwrap();
    assert_eq!(got(&args[1]), [-128.]);
}

#[test]
fn a_dim_that_disagrees_is_refused() {
    let mut args = [f32s(&[1, 3], &[1., 2., 3.]), f32s(&[2, 1], &[1., 0.]), out(DType::F32, &[1, 1])];
    let d = run(&matmul(), &mut args).unwrap_err();
    assert!(d.message.contains("dim 0 of `b` must be 3, got 2"), "{}", d.message);
}

#[test]
fn stores_and_loads_are_checked() {
    let n = Var::dim("n");
    let mut k = KernelBuilder::new("shift");
    let x = k.input("x", &[n.expr()], DType::F32);
    let y = k.compute("y", &[n.expr()], DType::F32, |i| x.at([i[0].clone() + 1]));
    let f = k.finish(&[y]);
    let mut args = [f32s(&[2], &[1., 2.]), out(DType::F32, &[2])];
    let d = run(&f, &mut args).unwrap_err();
    assert!(d.message.contains("load of buffer `x`: index 2 is out of bounds"), "{}", d.message);
    assert_eq!(got(&args[0]), [1., 2.], "arguments come back even after a fault");
}

#[test]
fn every_type_wraps_or_rounds() {
    for (d, x, want) in [
        (DType::I8, 100.0, -56.0),
        (DType::U8, 200.0, 144.0),
        (DType::I16, 30000.0, -5536.0),
        (DType::I32, 2e9, -294967296.0),
        (DType::F16, 2049.0, 4096.0),
        (DType::BF16, 1.0, 2.0),
        (DType::F32, 0.1, 0.2f32 as f64),
        (DType::F64, 0.1, 0.2),
    ] {
        let mut k = KernelBuilder::new("twice");
        let a = k.input("a", &[], d);
        let y = k.compute("y", &[], d, |i| a.at(i) + a.at(i));
        let f = k.finish(&[y]);
        let mut args = [Arg::Tensor(Tensor::from_f64(d, &[], &[x])), out(d, &[])];
        run(&f, &mut args).unwrap();
        assert_eq!(got(&args[1]), [want], "{d}");
    }
}

#[test]
fn scalars_intrinsics_and_control_flow() {
    // Collatz steps of a scalar parameter, and rsqrt of its value.
    let m = Var::dim("m");
    let mut k = KernelBuilder::new("collatz");
    k.scalar(&m);
    let state = k.buffer("state", &[PrimExpr::i64(2)], DType::I64);
    let y = k.buffer("y", &[], DType::I64);
    let z = k.buffer("z", &[], DType::F32);
    let at = |i: i64| state.at([PrimExpr::i64(i)]);
    let put = |i: i64, v: PrimExpr| Stmt::store(&state, vec![PrimExpr::i64(i)], v);
    k.push(put(0, m.expr()));
    let odd = at(0).floor_mod(2).eq(1);
    let step = odd.if_then_else(at(0) * 3 + 1, at(0).floor_div(2));
    k.push(Stmt::while_loop(at(0).gt(1), Stmt::seq(vec![put(0, step), put(1, at(1) + 1)])));
    k.push(Stmt::store(&y, vec![], at(1)));
    k.push(Stmt::store(&z, vec![], PrimExpr::call(Intrin::Rsqrt, [m.expr().cast(DType::F32)])));
    let f = k.finish(&[y, z]);
    let mut args = [Arg::Scalar(27), out(DType::I64, &[]), out(DType::F32, &[])];
    run(&f, &mut args).unwrap();
    assert_eq!(got(&args[1]), [111.]);
    assert_eq!(got(&args[2]), [(1.0 / 27f64.sqrt()) as f32 as f64]);
}

#[test]
fn integer_division_by_zero_is_a_fault() {
    let mut k = KernelBuilder::new("div");
    let a = k.input("a", &[], DType::I32);
    let y = k.compute("y", &[], DType::I32, |i| PrimExpr::raw_binary(BinOp::FloorDiv, PrimExpr::i32(1), a.at(i)));
    let f = k.finish(&[y]);
    let mut args = [out(DType::I32, &[]), out(DType::I32, &[])];
    assert_eq!(run(&f, &mut args).unwrap_err().code, "division-by-zero");
}

#[test]
fn a_budget_ends_a_run() {
    let n = PrimExpr::i64(100);
    let mut k = KernelBuilder::new("copy");
    let x = k.input("x", std::slice::from_ref(&n), DType::F32);
    let y = k.compute("y", &[n], DType::F32, |i| x.at(i));
    let f = k.finish(&[y]);
    let mut args = [out(DType::F32, &[100]), out(DType::F32, &[100])];
    let mut budget = Budget { steps: 150, bytes: 1 << 20 };
    run_within(&f, &mut args, &mut budget).unwrap();
    assert_eq!(budget.steps, 50);
    assert_eq!(run_within(&f, &mut args, &mut budget).unwrap_err().code, "too-long");
}

/// Innermost loops run in pieces: of more than one, over columns, into sums that are summed again, with the bits of float32
/// arithmetic in order.
#[test]
fn loops_in_pieces_have_the_bits_of_their_rounds() {
    let dims = [3i64, 700];
    let (rows, columns) = (PrimExpr::i64(dims[0]), PrimExpr::i64(dims[1]));
    let x: Vec<f32> = (0..2100).map(|i| ((i * 37) % 101) as f32 / 7.0 - 6.5).collect();
    let input = || f32s(&dims, &x);
    let mut k = KernelBuilder::new("spread");
    let data = k.input("x", &[rows.clone(), columns.clone()], DType::F32);
    let at = |i: &PrimExpr, j: &PrimExpr| data.at([i.clone(), j.clone()]);
    let mean = k.sum("mean", &[rows.clone()], DType::F32, &[columns.clone()], |i, r| at(&i[0], &r[0]));
    let y = k.compute("y", &[columns, rows], DType::F32, |i| {
        let off = at(&i[1], &i[0]) - mean.at([i[1].clone()]) / PrimExpr::f32(700.0);
        (off.clone() * off + PrimExpr::f32(0.1))
            .call1(Intrin::Sqrt)
            .max(at(&i[1], &(PrimExpr::i64(699) - i[0].clone())))
    });
    let f = k.finish(&[y]);
    let mut args = [input(), out(DType::F32, &[700, 3])];
    run(&f, &mut args).unwrap();
    let mean = |i: usize| x[i * 700..][..700].iter().fold(0f32, |a, b| a + b) / 700.0;
    let wanted = (0..2100).map(|at| {
        let (j, i) = (at / 3, at % 3);
        let off = x[i * 700 + j] - mean(i);
        (off * off + 0.1).sqrt().max(x[i * 700 + 699 - j]) as f64
    });
    assert_eq!(got(&args[1]), wanted.collect::<Vec<f64>>());
}

/// What is wrong in one round of a long loop is said as if they ran one by one.
#[test]
fn long_loops_name_the_round_that_fails() {
    let n = PrimExpr::i64(400);
    let mut k = KernelBuilder::new("beyond");
    let x = k.input("x", &[n.clone()], DType::F32);
    let y = k.compute("y", &[n], DType::F32, |i| x.at([i[0].clone() * 2]));
    let f = k.finish(&[y]);
    let d = run(&f, &mut [f32s(&[400], &[0.0; 400]), out(DType::F32, &[400])]).unwrap_err();
    assert!(d.message.contains("index 400 is out of bounds"), "{}", d.message);
}
