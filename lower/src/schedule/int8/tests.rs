//! Kernels beside their meaning.

use super::*;
use crate::interp::{run, Arg, Tensor};
use crate::schedule::{machine, SchedOptions};

fn tensor(d: DType, shape: &[i64], f: impl Fn(i64) -> i64) -> Tensor {
    let v: Vec<i64> = (0..shape.iter().product::<i64>()).map(f).collect();
    Tensor::from_i64(d, shape, &v)
}

/// Convolutions with borders, of one point, depthwise and sums, and those over tiles: 35 pixels as 12, 12 and 11; rows of 8,
/// two or four at a time; rows of 19 in two tiles; two steps at once.
fn convolutions() -> (Vec<Conv>, Vec<Conv>) {
    let base = Conv {
        in_h: 9,
        in_w: 10,
        in_c: 8,
        k_h: 3,
        k_w: 3,
        rows: 7,
        columns: 8,
        channels: 28,
        out_h: 9,
        out_w: 11,
        top: 1,
        left: 2,
        zero: 100,
        bounded: true,
        vector_bytes: 64,
        ..Conv::default()
    };
    let one = Conv { k_h: 1, k_w: 1, in_h: 5, in_w: 7, rows: 5, columns: 7, out_h: 5, out_w: 7, ..base };
    let one = Conv { top: 0, left: 0, channels: 148, batch: 2, in_c: 12, bounded: false, ..one };
    let packed = Conv { channels: 48, columns: 7, zero: 0, ..base };
    let strided = Conv { stride_h: 2, stride_w: 2, off_h: 1, rows: 3, columns: 4, out_h: 4, out_w: 7, ..base };
    let depthwise = Conv { depthwise: true, in_c: 28, ..base };
    let woven = Conv { depthwise: true, in_c: 124, channels: 124, stride_w: 2, columns: 4, ..base };
    let narrow = Conv { depthwise: true, in_c: 28, k_h: 2, k_w: 4, rows: 7, columns: 6, ..base };
    let large = Conv { k_h: 4, k_w: 5, depthwise: true, in_c: 28, rows: 3, columns: 3, stride_w: 2, ..base };
    let many = Conv { k_h: 2, k_w: 9, in_w: 20, ..woven };
    let tall = Conv { k_h: 5, rows: 5, ..depthwise };
    let plus = Some(Plus { of_a: 0.71, of_b: 0.43, rest: -20.3, zero: 94 });
    let (added, added_small) = (Conv { plus, ..base }, Conv { plus, ..one });
    let flat = Conv { in_c: 64, ..one };
    let under = Conv { in_c: 64, channels: 80, ..base };
    let beside = Conv { in_c: 32, k_w: 2, in_w: 38, stride_w: 2, columns: 19, out_w: 21, channels: 64, ..base };
    let deep = Conv { in_c: 448, in_h: 4, rows: 3, out_h: 4, columns: 8, channels: 32, k_h: 2, ..beside };
    let tiled = [flat, under, beside, deep].map(|v| [v, Conv { plus, ..v }]).concat();
    assert!(tiled.iter().all(Conv::has_tiles));
    let plain = [base, one, packed, strided, depthwise, woven, narrow, large, many, tall, added, added_small];
    assert!(!plain.iter().any(Conv::has_tiles));
    (plain.to_vec(), tiled)
}

/// Arguments for a convolution of these sizes.
fn arguments(v: &Conv) -> Vec<Arg> {
    let x = tensor(DType::U8, &[v.batch, v.in_h, v.in_w, v.in_c], |i| (i * 37 + 5) % 256);
    let packed = v.pack(|y, x, i, j| ((y * 31 + x * 17 + i * 7 + j * 3) % 256 - 128) as i8);
    let w = relax_ir::Constant::new(v.weight_dtype(), vec![v.weights()], packed);
    let floats = |scale: f64| {
        let all: Vec<f64> = (0..v.channels).map(|i| (i % 7 + 1) as f64 * scale).collect();
        Arg::Tensor(Tensor::from_f64(DType::F32, &[v.channels], &all))
    };
    let y = [v.batch, v.out_h, v.out_w, v.channels];
    let mut args = vec![
        Arg::Tensor(x),
        Arg::Tensor(Tensor::from_constant(&w)),
        Arg::Tensor(tensor(DType::I32, &[v.channels], |i| i * 100 - 700)),
        floats(0.001),
        // No scaled sum lies on a half, where one rounding may differ from two.
        floats(0.3133),
        Arg::Tensor(Tensor::zeros(DType::U8, &y)),
    ];
    if v.plus.is_some() {
        args.insert(5, Arg::Tensor(tensor(DType::U8, &y, |i| (i * 11 + 3) % 256)));
    }
    args
}

/// Bytes of a register, whether four pairs of bytes are multiplied at a time, and tiles of them.
const FORMS: [(u32, bool, bool); 5] =
    [(64, true, true), (64, true, false), (64, false, false), (32, false, false), (16, false, false)];

/// The kernels of `f` in every form beside what it means for these arguments.
fn compare(f: &PrimFunc, before: &[Arg], what: &dyn std::fmt::Debug) -> Vec<Arg> {
    let mut args = before.to_vec();
    run(f, &mut args).unwrap();
    for (vector_bytes, dot4, tiles) in FORMS {
        let mut scheduled = before.to_vec();
        let options = SchedOptions { dot4, tiles, ..SchedOptions::vectors(vector_bytes) };
        machine::run(f, &mut scheduled, &options).unwrap();
        let (Some(Arg::Tensor(a)), Some(Arg::Tensor(b))) = (args.last(), scheduled.last()) else { panic!() };
        let differ = a.data.iter().zip(&b.data).position(|(a, b)| a != b);
        assert_eq!(differ, None, "{vector_bytes} {dot4} {tiles} {what:?}");
    }
    args
}

/// A convolution whose sizes are open, and the one of so many rows and columns.
fn opened(v: &Conv, rows: i64, columns: i64) -> (PrimFunc, Conv) {
    let named = |name: &str| Var::new(name, DType::I64).expr();
    let likely = Conv { open: true, ..*v };
    let x = ["n", "in_h", "in_w"].map(named);
    // Where the result has as many columns as the data, they are known to be equal.
    let wide = if v.in_w == v.out_w { x[2].clone() } else { named("out_w") };
    let y = [x[0].clone(), named("out_h"), wide];
    let f = likely.prim_func_over("conv", &likely.sizes_of(&x, &y));
    let actual = Conv {
        rows,
        columns,
        in_h: v.in_h + (rows - v.rows) * v.stride_h,
        in_w: v.in_w + (columns - v.columns) * v.stride_w,
        out_h: v.out_h + rows - v.rows,
        out_w: v.out_w + columns - v.columns,
        ..*v
    };
    (f, actual)
}

/// Rows and columns that are open: none, fewer than a tile, whole ones, and what is left in one or two.
#[test]
fn open_kernels_agree_with_their_meaning() {
    convolutions().0.iter().for_each(open_kernels);
}

/// The same over tiles of bytes.
#[test]
fn open_kernels_of_tiles_agree_with_their_meaning() {
    convolutions().1.iter().for_each(open_kernels);
}

fn open_kernels(v: &Conv) {
    for (rows, columns) in [(0, 3), (1, 1), (2, 2), (1, 5), (3, 7), (2, 9), (5, 12), (1, 17), (2, 19), (1, 31)] {
        let (f, actual) = opened(v, rows, columns);
        assert_eq!(Conv::of(&f), Some(Conv { open: true, ..*v }));
        assert!(crate::kernel_workspace(&f).is_int(0));
        compare(&f, &arguments(&actual), &actual);
    }
}

#[test]
fn kernels_agree_with_their_meaning() {
    let (plain, tiled) = convolutions();
    for v in plain.into_iter().chain(tiled) {
        let f = v.prim_func("conv");
        // Sums are in registers: the meaning's tensor of sums would be four times the result.
        assert!(crate::kernel_workspace(&f).is_int(0));
        let before = arguments(&v);
        let args = compare(&f, &before, &v);
        if v.has_tiles() {
            continue;
        }
        // Every tile computes the same.
        for dot4 in [true, false] {
            let asked = Conv { tile: Tile { dot4, ..v.tile }, ..v };
            for (config, _) in asked.candidates() {
                let (mut f, mut told, mut scheduled) = (f.clone(), asked, before.clone());
                told.configure(&config);
                assert_eq!(told.config(), config, "{told:?}");
                f.attrs.set(ATTR, told.attr());
                machine::run(&f, &mut scheduled, &SchedOptions { dot4, ..SchedOptions::vectors(64) }).unwrap();
                let (Some(Arg::Tensor(a)), Some(Arg::Tensor(b))) = (args.last(), scheduled.last()) else { panic!() };
                assert_eq!(a.data, b.data, "{dot4} {told:?}");
            }
        }
    }
}

/// Data that is 255 or 0 and weights that are -128 or 127, in runs of one sign and by turns: sums of pairs go beyond int16,
/// and transformed data and weights have the largest values that there are. Even and odd edges, steps of two and channels
/// that are left over.
#[test]
fn sums_of_extremes_are_exact() {
    let window = window_of_sums();
    let odd = Conv { in_c: 48, rows: 7, columns: 9, out_h: 7, out_w: 9, channels: 64, vector_bytes: 64, ..window };
    let strided = Conv { stride_h: 2, stride_w: 2, rows: 4, columns: 5, out_h: 4, out_w: 5, ..window };
    let point = Conv { k_h: 1, k_w: 1, rows: 10, columns: 12, out_h: 10, out_w: 12, ..window };
    let apart = Conv { stride_h: 2, stride_w: 2, rows: 5, columns: 6, out_h: 5, out_w: 6, vector_bytes: 64, ..point };
    assert!([window, odd].iter().all(|v| v.in_squares(NARROW).is_some()));
    for v in [window, odd, strided, point, apart] {
        [(1, 1), (1, 2), (3, 1), (64, 5)].into_iter().for_each(|runs| extremes(&v, runs));
    }
}

/// The same in blocks: two of one row of squares, and two of eight rows of points.
#[test]
fn sums_of_extremes_are_exact_in_blocks() {
    let window = Conv { in_c: 512, channels: 32, ..window_of_sums() };
    let squares = Conv { in_h: 6, in_w: 30, rows: 4, columns: 28, out_h: 4, out_w: 28, ..window };
    let points = Conv { k_h: 1, k_w: 1, in_h: 16, in_w: 32, rows: 16, columns: 32, out_h: 16, out_w: 32, ..window };
    assert!(squares.in_squares(NARROW).is_some());
    [squares, points].iter().for_each(|v| extremes(v, (1, 1)));
}

const NARROW: Form = Form { vector_bytes: 32, dot4: false, tiles: false };

fn window_of_sums() -> Conv {
    Conv {
        in_h: 10,
        in_w: 12,
        in_c: 64,
        k_h: 3,
        k_w: 3,
        rows: 8,
        columns: 10,
        channels: 72,
        out_h: 8,
        out_w: 10,
        vector_bytes: 32,
        sums: true,
        ..Conv::default()
    }
}

/// So many of data, and of weights, have one sign before the next ones have the other.
fn extremes(v: &Conv, (data, weights): (i64, i64)) {
    assert!(v.in_words(NARROW).is_some() && v.workspace(32) > 0 && v.workspace(64) == 0);
    let sign = |at: i64| if at / weights % 2 == 0 { 127 } else { -128 };
    let packed = v.pack(|y, x, i, j| sign(y + x + i + j) as i8);
    let w = relax_ir::Constant::new(v.weight_dtype(), vec![v.weights()], packed);
    let byte = |i: i64| if i / data % 3 != 1 { 255u32 } else { 0 };
    let word = |i: i64| (byte(i) * 0x0101_0101) as i32 as i64;
    let before = [
        Arg::Tensor(tensor(DType::I32, &[v.batch, v.in_h, v.in_w, v.in_c / 4], word)),
        Arg::Tensor(Tensor::from_constant(&w)),
        Arg::Tensor(tensor(DType::I32, &[v.channels], |i| i * 1000)),
        Arg::Tensor(Tensor::zeros(DType::I32, &[v.batch, v.out_h, v.out_w, v.channels])),
    ];
    compare(&v.prim_func("conv"), &before, v);
}

/// Rows that are known and that are not: fewer than a tile of bytes, between one and two, and more.
#[test]
fn products_agree_with_their_meaning() {
    for (k, n) in [(12, 4), (64, 16), (128, 92), (64, 128)] {
        let p = Product { k, n, vector_bytes: 64 };
        let w = relax_ir::Constant::new(DType::I8, vec![k * n], p.pack(|i, j| ((i * 31 + j * 7) % 256 - 128) as i8));
        for m in [1, 5, 15, 16, 17, 31, 32, 33, 47, 49, 70] {
            for open in [false, true] {
                let rows = if open { Var::new("m", DType::I64).expr() } else { c(m) };
                let f = p.prim_func("product", &[rows]);
                let mut wanted = vec![
                    Arg::Tensor(tensor(DType::U8, &[m, k], |i| (i * 37 + 5) % 256)),
                    Arg::Tensor(Tensor::from_constant(&w)),
                    Arg::Tensor(Tensor::zeros(DType::I32, &[m, n])),
                ];
                let before = wanted.clone();
                run(&f, &mut wanted).unwrap();
                assert_eq!(p.has_tiles(&f), k % 64 == 0 && n >= 16 && (open || m >= 16));
                for (vector_bytes, dot4, tiles) in
                    [(64, true, true), (64, true, false), (64, false, false), (32, false, false), (16, false, false)]
                {
                    let mut got = before.clone();
                    let options = SchedOptions { dot4, tiles, ..SchedOptions::vectors(vector_bytes) };
                    machine::run(&f, &mut got, &options).unwrap();
                    let (Some(Arg::Tensor(a)), Some(Arg::Tensor(b))) = (wanted.last(), got.last()) else { panic!() };
                    assert_eq!(a.data, b.data, "{m}x{k}x{n} open {open}, {vector_bytes} {dot4} {tiles}");
                }
            }
        }
    }
}

/// Convolutions whose sums stay as they are, in registers and over tiles: several rows, one row of all pixels, borders.
#[test]
fn sums_of_convolutions_agree_with_their_meaning() {
    let base = Conv {
        batch: 2,
        in_h: 6,
        in_w: 11,
        in_c: 64,
        k_h: 3,
        k_w: 3,
        stride_w: 2,
        rows: 4,
        columns: 5,
        channels: 44,
        out_h: 4,
        out_w: 5,
        vector_bytes: 64,
        sums: true,
        ..Conv::default()
    };
    let point = Conv { k_h: 1, k_w: 1, stride_w: 1, rows: 6, columns: 11, out_h: 6, out_w: 11, channels: 128, ..base };
    let small = Conv { in_c: 4, ..base };
    for v in [base, point, small] {
        assert_eq!(v.has_tiles(), v.in_c == 64);
        let f = v.prim_func("conv");
        assert_eq!(Conv::of(&f), Some(v));
        let packed = v.pack(|y, x, i, j| ((y * 31 + x * 17 + i * 7 + j * 3) % 256 - 128) as i8);
        let w = relax_ir::Constant::new(v.weight_dtype(), vec![v.weights()], packed);
        let mut wanted = vec![
            Arg::Tensor(tensor(DType::I32, &[v.batch, v.in_h, v.in_w, v.in_c / 4], |i| (i * 2654435761) as i32 as i64)),
            Arg::Tensor(Tensor::from_constant(&w)),
            Arg::Tensor(tensor(DType::I32, &[v.channels], |i| i * 100 - 700)),
            Arg::Tensor(Tensor::zeros(DType::I32, &[v.batch, v.out_h, v.out_w, v.channels])),
        ];
        let before = wanted.clone();
        run(&f, &mut wanted).unwrap();
        for (vector_bytes, dot4, tiles) in [(64, true, true), (64, true, false), (64, false, false), (32, false, false)]
        {
            let mut got = before.clone();
            let options = SchedOptions { dot4, tiles, ..SchedOptions::vectors(vector_bytes) };
            machine::run(&f, &mut got, &options).unwrap();
            let (Some(Arg::Tensor(a)), Some(Arg::Tensor(b))) = (wanted.last(), got.last()) else { panic!() };
            assert_eq!(a.data, b.data, "{vector_bytes} {dot4} {tiles} {v:?}");
        }
    }
}

/// Weights that the second-level cache does not keep are asked for before they become int16: nine lines of ten but those of
/// the first channels, in products of pixels, windows and squares. Those that it keeps are not.
#[test]
fn weights_of_words_are_asked_for_ahead() {
    let one = Conv { in_c: 512, channels: 288, vector_bytes: 32, zero: 100, bounded: true, ..Conv::default() };
    let point = Conv { in_h: 5, in_w: 5, rows: 5, columns: 5, out_h: 5, out_w: 5, ..one };
    let window = Conv { in_c: 128, channels: 160, k_h: 3, k_w: 3, in_h: 9, in_w: 9, ..one };
    let window = Conv { rows: 4, columns: 4, out_h: 4, out_w: 4, stride_h: 2, stride_w: 2, ..window };
    let squares =
        Conv { stride_h: 1, stride_w: 1, in_h: 10, in_w: 10, rows: 8, columns: 8, out_h: 8, out_w: 8, ..window };
    let small = Conv { channels: 64, ..point };
    let narrow = Form { vector_bytes: 32, dot4: false, tiles: false };
    assert!(squares.in_squares(narrow).is_some() && window.in_squares(narrow).is_none());
    for (v, ahead) in [(point, true), (window, true), (squares, true), (small, false)] {
        assert!(v.in_words(narrow).is_some());
        let mut args = arguments(&v);
        let asked = machine::run(&v.prim_func("conv"), &mut args, &SchedOptions::vectors(32)).unwrap();
        let weights = machine::pointer(1)..machine::pointer(1) + v.weights();
        let lines: std::collections::HashSet<i64> =
            asked.into_iter().filter(|at| weights.contains(at)).map(|at| (at - weights.start) / 64).collect();
        let next = (v.channels - words::TOGETHER) * v.depth() / 64;
        assert_eq!(lines.len() as i64 * 10 >= next * 9, ahead, "{} of {next}: {v:?}", lines.len());
        assert!(ahead || lines.is_empty());
    }
}
