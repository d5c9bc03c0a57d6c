//! Quotients that become bytes.

use super::*;

/// `x` by a scale for each row or for all, as bytes.
fn quantised(rows: i64, columns: PrimExpr, per_row: bool, to: DType) -> PrimFunc {
    let mut k = KernelBuilder::new("quantise");
    let dims = [PrimExpr::i64(rows), columns];
    let x = k.input("x", &dims, DType::F32);
    let scale = k.input("scale", &[PrimExpr::i64(if per_row { rows } else { 1 })], DType::F32);
    let zero = k.input("zero", &[PrimExpr::i64(1)], to);
    let (low, high) = (PrimExpr::f32(to.int_min() as f32), PrimExpr::f32(to.int_max() as f32));
    let y = k.compute("y", &dims, to, |i| {
        let s = scale.at([if per_row { i[0].clone() } else { PrimExpr::i64(0) }]);
        let v = (x.at(i) / s).call1(Intrin::Round) + zero.at([PrimExpr::i64(0)]).cast(DType::F32);
        v.min(high.clone()).max(low.clone()).cast(to)
    });
    k.finish(&[y])
}

/// Rule: quotients by one divisor, rounded to bytes, are products with its reciprocal where vectors are wide and rows
/// long; the bytes are the same, also of what is beyond them and of divisors that only a division takes.
#[test]
fn rounded_quotients_have_one_reciprocal() {
    for (per_row, columns, open) in [(false, 200, false), (true, 200, true), (true, 99, false), (true, 64, false)] {
        for to in [DType::U8, DType::I8] {
            let n = Var::dim("n");
            let width = if open { n.expr() } else { PrimExpr::i64(columns) };
            let f = quantised(3, width, per_row, to);
            for scale in [0.37, 1e-3, 1.0, -0.5, 1e-40, 2e38, 0.0] {
                let mut x: Vec<f64> = (0..3 * columns).map(|i| (i as f64 - 300.0) * 0.5 * scale).collect();
                x[1..5].copy_from_slice(&[f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 3e38]);
                let scales = vec![scale; if per_row { 3 } else { 1 }];
                let args = [
                    Tensor::from_f64(DType::F32, &[3, columns], &x),
                    Tensor::from_f64(DType::F32, &[scales.len() as i64], &scales),
                    Tensor::from_i64(to, &[1], &[5]),
                    Tensor::zeros(to, &[3, columns]),
                ];
                let args = args.map(Arg::Tensor);
                let mut wanted = args.to_vec();
                run(&f, &mut wanted).unwrap();
                for bytes in [16, 32, 64] {
                    let o = SchedOptions::vectors(bytes);
                    let mut got = args.to_vec();
                    machine::run(&f, &mut got, &o).unwrap();
                    let (Arg::Tensor(a), Arg::Tensor(b)) = (&wanted[3], &got[3]) else { panic!() };
                    assert_eq!(a.data, b.data, "{columns} columns by {scale}, {bytes} bytes");
                    let fused = format!("{:?}", schedule(&f, &o).unwrap().body).contains("Fma");
                    assert_eq!(fused, bytes > 16 && columns > 64, "{columns} columns, {bytes} bytes");
                }
            }
        }
    }
}
