//! Attention by bands of rows against the reference interpreter, with vectors of each size.

use super::super::tests::Random;
use super::super::{is_attention, machine, plan, schedule, workspace, Item, SchedOptions, PARTS};
use crate::interp::{run, Arg, Tensor};
use relax_ir::prim::Intrin;
use relax_ir::tir::{KernelBuilder, PrimFunc, Reducer};
use relax_ir::{AttrValue, DType, PrimExpr, Var};

/// Batches, heads, rows, keys, elements of a head.
type Sizes = [i64; 5];

/// Scores with a factor and a mask, softmax, what that weighs, heads behind rows: as fusion joins three kernels.
fn attention(sizes: &[PrimExpr; 5]) -> PrimFunc {
    let [b, h, m, n, d] = sizes.clone();
    let f32 = DType::F32;
    let mut f = KernelBuilder::new("attention");
    let q = f.input("q", &[b.clone(), m.clone(), h.clone(), d.clone()], f32);
    let k = f.input("k", &[b.clone(), n.clone(), h.clone(), d.clone()], f32);
    let v = f.input("v", &[b.clone(), n.clone(), h.clone(), d.clone()], f32);
    let mask = f.input("mask", &[b.clone(), n.clone()], f32);
    let rows = [b.clone(), h.clone(), m.clone()];
    let cells = [b.clone(), h.clone(), m.clone(), n.clone()];
    let s = f.sum("s", &cells, f32, std::slice::from_ref(&d), |i, r| {
        let at = |row: &PrimExpr| [i[0].clone(), row.clone(), i[1].clone(), r[0].clone()];
        q.at(at(&i[2])) * k.at(at(&i[3]))
    });
    let scores =
        f.compute("scores", &cells, f32, |i| s.at(i) * PrimExpr::f32(0.25) + mask.at([i[0].clone(), i[3].clone()]));
    let lowest = PrimExpr::min_value(f32);
    let keys = std::slice::from_ref(&n);
    let reducer = Reducer { init: lowest, combine: &|a, b| a.max(b) };
    let max = f.reduce("max", &rows, f32, keys, reducer, |i, r| scores.at([i, r].concat()));
    let exp = f.compute("exp", &cells, f32, |i| (scores.at(i) - max.at(&i[..3])).call1(Intrin::Exp));
    let sum = f.sum("sum", &rows, f32, keys, |i, r| exp.at([i, r].concat()));
    let part = f.compute("part", &rows, f32, |i| PrimExpr::one(f32) / sum.at(i));
    let norm = f.compute("norm", &cells, f32, |i| exp.at(i) * part.at(&i[..3]));
    let out = [b, h.clone(), m.clone(), d.clone()];
    let mixed = f.sum("mixed", &out, f32, keys, |i, r| {
        let weight = norm.at([i[0].clone(), i[1].clone(), i[2].clone(), r[0].clone()]);
        weight * v.at([i[0].clone(), r[0].clone(), i[1].clone(), i[3].clone()])
    });
    let turned = [out[0].clone(), m, h, d];
    let y = f.compute("y", &turned, f32, |i| mixed.at([i[0].clone(), i[2].clone(), i[1].clone(), i[3].clone()]));
    let mut f = f.finish(&[y]);
    f.attrs.set(PARTS, AttrValue::List([2, 5, 2].map(AttrValue::Int).to_vec()));
    f
}

fn known(sizes: Sizes) -> PrimFunc {
    attention(&sizes.map(PrimExpr::i64))
}

/// Runs it both ways.
fn holds(f: &PrimFunc, sizes: Sizes, seed: u64) {
    let [b, h, m, n, d] = sizes;
    let mut random = Random::new(seed);
    let shapes = [vec![b, m, h, d], vec![b, n, h, d], vec![b, n, h, d], vec![b, n], vec![b, m, h, d]];
    let args: Vec<Arg> = shapes.iter().map(|s| Arg::Tensor(random.tensor(DType::F32, s))).collect();
    let mut wanted = args.clone();
    run(f, &mut wanted).expect("the reference");
    for bytes in [0, 16, 32, 64] {
        let mut got = args.clone();
        machine::run(f, &mut got, &SchedOptions::vectors(bytes)).expect("the kernel");
        let (Some(Arg::Tensor(x)), Some(Arg::Tensor(y))) = (wanted.last(), got.last()) else { panic!("no result") };
        let differs = |(x, y): (f64, f64)| (x - y).abs() > 2e-5 * (1.0 + x.abs());
        let wrong = x.to_f64().into_iter().zip(y.to_f64()).filter(|p| differs(*p)).count();
        assert_eq!(wrong, 0, "{sizes:?} with vectors of {bytes} bytes");
    }
}

/// Rows that bands divide and that they do not, one head and several, keys that fill panels and that do not, one band alone.
#[test]
fn bands_give_what_whole_tensors_give() {
    let all = [
        [1, 2, 96, 96, 16],
        [1, 1, 100, 130, 24],
        [2, 3, 61, 77, 16],
        [1, 1, 49, 200, 8],
        [2, 1, 40, 64, 20],
        [1, 2, 72, 101, 33],
    ];
    for (i, sizes) in all.into_iter().enumerate() {
        let f = known(sizes);
        assert!(is_attention(&f), "{sizes:?}");
        holds(&f, sizes, i as u64 + 1);
    }
}

/// The same kernel for numbers of rows and keys that calls bring: fewer than a band, bands and what is left, none left.
#[test]
fn bands_of_open_sizes() {
    let (m, n) = (Var::new("m", DType::I64), Var::new("n", DType::I64));
    let c = PrimExpr::i64;
    for sizes in [[c(1), c(2), m.expr(), n.expr(), c(16)], [c(1), c(1), m.expr(), c(80), c(16)]] {
        let f = attention(&sizes);
        assert!(is_attention(&f));
        for (seed, rows) in [1, 30, 96, 200].into_iter().enumerate() {
            let number = |e: &PrimExpr, open: i64| e.as_int().unwrap_or(open);
            let all = [
                number(&sizes[0], 0),
                number(&sizes[1], 0),
                number(&sizes[2], rows),
                number(&sizes[3], rows + 5),
                number(&sizes[4], 0),
            ];
            holds(&f, all, seed as u64 + 1);
        }
    }
}

/// What lies between the products is rows of a band, in one place; what all bands read is copied once for each head.
#[test]
fn scores_are_never_whole() {
    let sizes = [1, 4, 300, 256, 16];
    let f = known(sizes);
    let scalar = workspace(&f, &SchedOptions::vectors(0)).as_int();
    assert!(scalar.is_some_and(|n| n <= workspace(&f, &SchedOptions::default()).as_int().unwrap_or(0)));
    for bytes in [16, 32, 64] {
        let o = SchedOptions::vectors(bytes);
        let rows = super::BAND / (256 * 4);
        // Scores, keys and values of a head, a row of exponentials, and what products keep.
        let most = rows.max(super::FEWEST) * 256 * 4 + 2 * 256 * 16 * 4 + 256 * 4 + (64 << 10);
        let taken = workspace(&f, &o).as_int().expect("a number");
        assert!(taken <= most, "{taken} bytes, {most} at most");
        assert!(schedule(&f, &o).is_ok());
    }
}

/// Few scores stay in a cache as a whole, rows of few bands are left alone, and one row has no bands.
#[test]
fn what_is_not_worth_it() {
    for sizes in [[1, 1, 24, 8, 16], [1, 8, 16, 512, 16], [1, 8, 1, 4096, 16]] {
        let f = known(sizes);
        assert!(!is_attention(&f), "{sizes:?}");
        assert!(!plan(&f, &SchedOptions::default()).items.iter().any(|i| matches!(i, Item::Attention(_))));
    }
}

/// Another kernel reads the scores, too: they stay as they are.
#[test]
fn scores_that_somebody_else_reads() {
    let c = PrimExpr::i64;
    let mut f = KernelBuilder::new("both");
    let a = f.input("a", &[c(64), c(32)], DType::F32);
    let b = f.input("b", &[c(32), c(80)], DType::F32);
    let s = f.sum("s", &[c(64), c(80)], DType::F32, &[c(32)], |i, r| {
        a.at([i[0].clone(), r[0].clone()]) * b.at([r[0].clone(), i[1].clone()])
    });
    let exp = f.compute("exp", &[c(64), c(80)], DType::F32, |i| s.at(i).call1(Intrin::Exp));
    let sum = f.sum("sum", &[c(64)], DType::F32, &[c(80)], |i, r| exp.at([i[0].clone(), r[0].clone()]));
    let y = f.compute("y", &[c(64), c(80)], DType::F32, |i| exp.at(i) / sum.at([i[0].clone()]));
    // Columns of all rows.
    let z = f.sum("z", &[c(80)], DType::F32, &[c(64)], |i, r| s.at([r[0].clone(), i[0].clone()]));
    let f = f.finish(&[y, z]);
    let tensor = |shape: &[i64], seed: u64| Arg::Tensor(Random::new(seed).tensor(DType::F32, shape));
    let args = [tensor(&[64, 32], 1), tensor(&[32, 80], 2), tensor(&[64, 80], 3), tensor(&[80], 4)].to_vec();
    let mut wanted = args.clone();
    run(&f, &mut wanted).expect("the reference");
    for bytes in [16, 32, 64] {
        let mut got = args.clone();
        machine::run(&f, &mut got, &SchedOptions::vectors(bytes)).expect("the kernel");
        for (x, y) in wanted.iter().zip(&got).skip(2) {
            let (Arg::Tensor(x), Arg::Tensor(y)): (&Arg, &Arg) = (x, y) else { panic!("no tensor") };
            let close = |(x, y): (&f64, &f64)| (x - y).abs() <= 1e-4 * (1.0 + x.abs());
            let (x, y): (Tensor, Tensor) = (x.clone(), y.clone());
            assert!(x.to_f64().iter().zip(&y.to_f64()).all(close));
        }
    }
}
