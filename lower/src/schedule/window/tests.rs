//! Kernels of windows against the blocks that they come from, for every width of vectors.

use super::tile::most_rows;
use super::*;
use crate::choice::{Algorithm, Config, Site};
use crate::interp::{self, Arg, Tensor};
use crate::schedule::{machine, SchedOptions};
use relax_ir::flat::FlatStmt;
use relax_ir::Constant;

fn data(shape: &[i64]) -> Tensor {
    let n: i64 = shape.iter().product();
    let bytes = (0..n).flat_map(|i| ((((i * 7919) % 31) - 15) as f32 * 0.125).to_le_bytes()).collect();
    Tensor::from_constant(&Constant::new(DType::F32, shape.to_vec(), bytes))
}

/// Numbers of a dtype for an argument, all of which the floats of 16 bits hold.
fn argument(b: &Buffer) -> Tensor {
    let dims: Vec<i64> = b.shape.iter().filter_map(|d| d.as_int()).collect();
    let wide = data(&dims);
    match b.dtype() {
        DType::F16 => {
            let bytes = wide.to_f64().into_iter().flat_map(|v| half::f16::from_f64(v).to_le_bytes()).collect();
            Tensor::from_constant(&Constant::new(DType::F16, dims, bytes))
        }
        DType::BF16 => {
            let bytes = wide.to_f64().into_iter().flat_map(|v| half::bf16::from_f64(v).to_le_bytes()).collect();
            Tensor::from_constant(&Constant::new(DType::BF16, dims, bytes))
        }
        _ => wide,
    }
}

/// Weights of a kernel, as it takes them.
fn packed(w: &Window) -> Tensor {
    let weights: Vec<f32> = (0..w.made * w.depth()).map(|i| ((i * 37) % 23) as f32 * 0.1 - 1.0).collect();
    let bytes: Vec<u8> = w.pack(&weights).into_iter().flat_map(f32::to_le_bytes).collect();
    Tensor::from_constant(&Constant::new(DType::F32, vec![bytes.len() as i64 / 4], bytes))
}

fn check(mut w: Window) {
    for bytes in [16, 32, 64] {
        w.choose_panel(bytes / 4);
        same(&w, bytes);
    }
}

/// Vectors of so many bytes give what the block says.
fn same(w: &Window, bytes: i64) {
    same_with(w, &SchedOptions::vectors(bytes as u32));
}

/// The same; what is asked for ahead.
fn same_with(w: &Window, o: &SchedOptions) -> Vec<i64> {
    let bytes = o.vector_bytes;
    let f = w.prim(&w.sizes());
    let mut args: Vec<Arg> = f.buffers().map(|b| Arg::Tensor(argument(b))).collect();
    if let Kind::Winograd(_) = w.kind {
        // Not any numbers are transformed weights.
        args[1] = Arg::Tensor(packed(w));
    }
    let (mut wanted, mut got) = (args.clone(), args);
    interp::run(&f, &mut wanted).expect("interpreted");
    let asked = machine::run_windows(&f, &mut got, o).expect("scheduled");
    let (Some(Arg::Tensor(a)), Some(Arg::Tensor(b))) = (wanted.pop(), got.pop()) else { panic!("tensors") };
    let float = |b: &[u8]| f32::from_le_bytes(b.try_into().expect("four bytes"));
    let largest = a.data.chunks(4).map(|b| float(b).abs()).fold(0.0, f32::max);
    assert_eq!(a.data.len(), b.data.len());
    for (i, (x, y)) in a.data.chunks(4).zip(b.data.chunks(4)).enumerate() {
        assert!(
            (float(x) - float(y)).abs() <= 1e-4 + largest * 2e-5,
            "{w:?} at {bytes} bytes: element {i}: {} and {}",
            float(x),
            float(y)
        );
    }
    asked
}

fn conv(size: [i64; 2], taken: i64, made: i64, kernel: [i64; 2], stride: [i64; 2], pad: [i64; 2]) -> Window {
    let out = [0, 1].map(|i| (size[i] + 2 * pad[i] - kernel[i]) / stride[i] + 1);
    let kind = Kind::Conv;
    Window {
        kind,
        batch: 1,
        size,
        taken,
        pitch: 0,
        out,
        made,
        kernel,
        stride,
        dilation: [1, 1],
        groups: 1,
        before: pad,
        last: true,
        panel: 16,
        open: false,
        half: None,
        margin: [0, 0],
        plan: Plan::default(),
    }
}

/// Lines are asked for before they are read: those of every panel but the first while the panel before it is in use, or,
/// where each tile reads all weights, as many behind these. Few are left out: those that are the turn of tiles at
/// borders, which leave out taps, and some of a narrower last panel.
#[test]
fn weights_are_asked_for_ahead() {
    for (w, most) in [
        (conv([3, 5], 128, 256, [1, 1], [1, 1], [0, 0]), 1),
        (conv([4, 4], 32, 128, [3, 3], [1, 1], [1, 1]), 17),
        (conv([7, 9], 24, 160, [3, 3], [2, 2], [0, 0]), 1),
    ] {
        for (lanes, outer) in [(8, Outer::Weights), (16, Outer::Weights), (8, Outer::Data), (16, Outer::Data)] {
            let mut w = w.clone();
            w.choose_panel(lanes);
            w.plan.outer = outer;
            let o = SchedOptions { ahead: true, ..SchedOptions::vectors(lanes as u32 * 4) };
            let asked: std::collections::HashSet<i64> = same_with(&w, &o).into_iter().map(|p| p / 64).collect();
            let (first, panel, all) = (machine::pointer(1) / 64, w.panel * w.depth() / 16, w.made * w.depth() / 16);
            let wanted = match outer {
                Outer::Data => all..2 * all,
                _ => panel..w.made / w.panel * panel,
            };
            let count = wanted.end - wanted.start;
            let missing = wanted.filter(|line| !asked.contains(&(first + line))).count() as i64;
            assert!(missing * 100 <= count * most, "{w:?}: {missing} lines of {count} are not asked for");
            assert!(same_with(&w, &SchedOptions { ahead: false, ..o }).is_empty());
        }
    }
}

/// What lies behind all weights is asked for by the way, as far as it is said to be read next.
#[test]
fn what_lies_behind_is_asked_for() {
    for (lanes, bytes) in [(8, 100_000), (16, 100_000), (16, 300_000)] {
        let mut w = conv([7, 7], 128, 256, [1, 1], [1, 1], [0, 0]);
        w.choose_panel(lanes);
        w.plan.outer = Outer::Weights;
        let o = SchedOptions { ahead: true, behind: bytes, ..SchedOptions::vectors(lanes as u32 * 4) };
        let asked: std::collections::HashSet<i64> = same_with(&w, &o).into_iter().map(|p| p / 64).collect();
        let begin = machine::pointer(1) / 64 + w.made * w.depth() / 16;
        let missing = (begin..begin + bytes / 64).filter(|line| !asked.contains(line)).count() as i64;
        assert!(missing * 100 <= bytes / 64, "{lanes} lanes: {missing} lines of {} are not asked for", bytes / 64);
    }
}

#[test]
fn one_by_one() {
    check(conv([3, 5], 7, 24, [1, 1], [1, 1], [0, 0]));
    check(Window { batch: 2, ..conv([4, 4], 8, 100, [1, 1], [2, 2], [0, 0]) });
}

#[test]
fn borders() {
    check(conv([5, 9], 3, 16, [3, 3], [1, 1], [1, 1]));
    check(conv([6, 17], 4, 40, [3, 3], [2, 2], [1, 1]));
    check(conv([4, 4], 2, 8, [5, 5], [1, 1], [2, 2]));
    check(conv([2, 3], 2, 20, [3, 5], [1, 1], [1, 2]));
}

/// Weights of 16 bits are read as they are.
#[test]
fn weights_of_16_bits() {
    let half = |w: Window| [DType::F16, DType::BF16].map(|d| check(Window { half: Some(d), ..w.clone() }));
    half(conv([3, 5], 7, 24, [1, 1], [1, 1], [0, 0]));
    half(conv([9, 17], 16, 100, [3, 3], [1, 1], [1, 1]));
    half(conv([9, 30], 40, 192, [1, 1], [1, 1], [0, 0]));
    half(Window { last: false, ..conv([16, 18], 3, 32, [7, 7], [2, 2], [3, 3]) });
    half(Window { kind: Kind::Depthwise, ..conv([9, 21], 44, 44, [3, 3], [2, 2], [1, 1]) });
    half(Window { groups: 4, ..conv([6, 7], 32, 32, [3, 3], [1, 1], [1, 1]) });
}

#[test]
fn channels_first() {
    check(Window { last: false, ..conv([16, 18], 3, 32, [7, 7], [2, 2], [3, 3]) });
    check(Window { last: false, batch: 2, ..conv([6, 6], 1, 12, [3, 3], [1, 1], [1, 1]) });
}

#[test]
fn depthwise() {
    for stride in [1, 2] {
        for (kernel, pad) in [(3, 1), (5, 2)] {
            let w = conv([9, 21], 44, 44, [kernel, kernel], [stride, stride], [pad, pad]);
            check(Window { kind: Kind::Depthwise, ..w });
        }
    }
}

/// Rows that are computed together: several bands, of which the last is shorter, and one.
#[test]
fn bands() {
    for kind in [Kind::Depthwise, Kind::Max, Kind::Sum] {
        for (rows, stride) in [(10, 1), (11, 2)] {
            check(Window { kind, ..conv([rows, 64], 32, 32, [3, 3], [stride, stride], [1, 1]) });
            check(Window { kind, ..conv([rows, 12], 164, 164, [3, 3], [stride, stride], [1, 1]) });
        }
        let two = Window { kind, batch: 2, ..conv([9, 64], 20, 20, [5, 3], [1, 1], [2, 1]) };
        check(dilated(two, [2, 1]));
    }
}

/// The lines of a large result are asked for by the tile above, all but those of the first row.
#[test]
fn results_are_asked_for_ahead() {
    for (lanes, stride) in [(8, 1), (16, 2)] {
        let w =
            Window { kind: Kind::Depthwise, ..conv([130 * stride, 64 * stride], 32, 32, [1, 1], [stride; 2], [0, 0]) };
        let o = SchedOptions { ahead: true, ..SchedOptions::vectors(lanes * 4) };
        let asked: std::collections::HashSet<i64> = same_with(&w, &o).into_iter().map(|p| p / 64).collect();
        let (first, row) = (machine::pointer(2) / 64, 64 * 2);
        assert!((row..130 * row).all(|line| asked.contains(&(first + line))));
        assert!(same_with(&w, &SchedOptions { ahead: false, ..o }).is_empty());
    }
}

#[test]
fn maxima() {
    for (kernel, stride, pad) in [(3, 2, 1), (2, 2, 0), (3, 1, 1)] {
        let w = conv([9, 21], 44, 44, [kernel, kernel], [stride, stride], [pad, pad]);
        check(Window { kind: Kind::Max, ..w });
    }
    // The last windows reach beyond the end.
    check(Window { kind: Kind::Max, out: [4, 5], ..conv([8, 10], 64, 64, [3, 3], [2, 2], [0, 0]) });
}

#[test]
fn sums() {
    for (kernel, stride, pad) in [(3, 2, 1), (2, 2, 0), (3, 1, 1)] {
        let w = conv([9, 21], 44, 44, [kernel, kernel], [stride, stride], [pad, pad]);
        check(Window { kind: Kind::Sum, ..w });
    }
}

/// With the result as large as the taps leave it.
fn dilated(w: Window, dilation: [i64; 2]) -> Window {
    let reach = |i: usize| (w.kernel[i] - 1) * dilation[i] + 1;
    let out = [0, 1].map(|i| (w.size[i] + 2 * w.before[i] - reach(i)) / w.stride[i] + 1);
    Window { dilation, out, ..w }
}

#[test]
fn taps_apart() {
    check(dilated(conv([9, 13], 5, 40, [3, 3], [1, 1], [2, 2]), [2, 2]));
    check(dilated(conv([14, 11], 4, 16, [3, 3], [2, 1], [3, 1]), [3, 2]));
    check(dilated(Window { last: false, ..conv([12, 14], 3, 32, [3, 3], [1, 1], [2, 2]) }, [2, 2]));
    for kind in [Kind::Depthwise, Kind::Max, Kind::Sum] {
        check(dilated(Window { kind, ..conv([9, 13], 36, 36, [3, 3], [1, 1], [2, 2]) }, [2, 2]));
        check(dilated(Window { kind, ..conv([14, 15], 20, 20, [3, 3], [2, 2], [0, 3]) }, [1, 3]));
    }
}

#[test]
fn groups() {
    // Several groups in a panel, one, and several panels in a group; groups that make more or fewer than they take.
    for (groups, taken, made) in [
        (8, 4, 4),
        (4, 8, 8),
        (3, 16, 16),
        (2, 5, 32),
        (2, 32, 64),
        (4, 3, 16),
        (8, 2, 2),
        (8, 1, 2),
        (4, 24, 24),
        (3, 12, 12),
        (4, 5, 20),
        (2, 3, 72),
        (3, 40, 4),
    ] {
        for (kernel, stride) in [(3, 1), (1, 1), (3, 2)] {
            let w = conv([6, 7], groups * taken, groups * made, [kernel, kernel], [stride, stride], [kernel / 2; 2]);
            check_groups(Window { groups, ..w });
        }
    }
}

/// What is infinite in one group is nothing to its neighbours.
#[test]
fn groups_are_apart() {
    for each in [2, 4, 8] {
        for kernel in [1, 3] {
            let groups = 16 / each;
            let mut w = Window { groups, ..conv([5, 5], 16, 16, [kernel, kernel], [1, 1], [kernel / 2; 2]) };
            w.choose_panel(16);
            let weights: Vec<f32> = (0..16 * each * kernel * kernel).map(|i| (i % 7) as f32 - 2.5).collect();
            let tensor = |shape: &[i64], v: Vec<f32>| {
                let bytes: Vec<u8> = v.into_iter().flat_map(f32::to_le_bytes).collect();
                Arg::Tensor(Tensor::from_constant(&Constant::new(DType::F32, shape.to_vec(), bytes)))
            };
            let group = |i: i64| i % 16 / each;
            let x = (0..400).map(|i| if group(i) == 1 { f32::INFINITY } else { i as f32 * 0.25 }).collect();
            let packed = w.pack(&weights);
            let out = Arg::Tensor(Tensor::zeros(DType::F32, &[1, 5, 5, 16]));
            let args = vec![tensor(&[1, 5, 5, 16], x), tensor(&[packed.len() as i64], packed), out];
            for bytes in [16, 32, 64] {
                let mut got = args.clone();
                machine::run_windows(&w.prim(&w.sizes()), &mut got, &SchedOptions::vectors(bytes)).expect("scheduled");
                let Some(Arg::Tensor(t)) = got.pop() else { panic!("a tensor") };
                let finite = |(i, y): (usize, &f64)| y.is_finite() == (group(i as i64) != 1);
                assert!(t.to_f64().iter().enumerate().all(finite), "groups of {each} at {bytes} bytes");
            }
        }
    }
}

/// The kernel in groups against one without, whose weights are zeros elsewhere.
fn check_groups(w: Window) {
    let [taken, made] = [w.taken, w.made].map(|n| n / w.groups);
    let [kh, kw] = w.kernel;
    let weights: Vec<f32> = (0..w.made * taken * kh * kw).map(|i| ((i * 37) % 23) as f32 * 0.1 - 1.0).collect();
    let mut full = vec![0.0; (w.made * w.taken * kh * kw) as usize];
    for o in 0..w.made {
        for i in 0..taken {
            for t in 0..kh * kw {
                let to = (o * w.taken + o / made * taken + i) * kh * kw + t;
                full[to as usize] = weights[((o * taken + i) * kh * kw + t) as usize];
            }
        }
    }
    let tensor = |v: Vec<f32>| {
        let bytes: Vec<u8> = v.into_iter().flat_map(f32::to_le_bytes).collect();
        Arg::Tensor(Tensor::from_constant(&Constant::new(DType::F32, vec![bytes.len() as i64 / 4], bytes)))
    };
    let x = [w.batch, w.size[0], w.size[1], w.taken];
    let out = Arg::Tensor(Tensor::zeros(DType::F32, &[w.batch, w.out[0], w.out[1], w.made]));
    let mut dense = Window { groups: 1, ..w.clone() };
    dense.choose_panel(16);
    let mut wanted = vec![Arg::Tensor(data(&x)), tensor(dense.pack(&full)), out.clone()];
    interp::run(&dense.prim(&dense.sizes()), &mut wanted).expect("interpreted");
    for lanes in [4, 8, 16] {
        let mut w = w.clone();
        if w.panels(lanes).is_empty() {
            continue;
        }
        w.choose_panel(lanes);
        assert_eq!(Site::of(&w.prim(&w.sizes())), [Site::Window(w.clone())]);
        let args = vec![Arg::Tensor(data(&x)), tensor(w.pack(&weights)), out.clone()];
        // Panels are those of the widest form.
        for bytes in [16, 32, 64] {
            let (mut meant, mut got) = (args.clone(), args.clone());
            interp::run(&w.prim(&w.sizes()), &mut meant).expect("interpreted");
            machine::run_windows(&w.prim(&w.sizes()), &mut got, &SchedOptions::vectors(bytes)).expect("scheduled");
            let [a, b, c] = [&wanted, &meant, &got].map(|args| {
                let Some(Arg::Tensor(t)) = args.last() else { panic!("a tensor") };
                t.to_f64()
            });
            let same = |x: &[f64], y: &[f64]| x.iter().zip(y).all(|(x, y)| (x - y).abs() < 1e-3);
            assert!(same(&a, &b), "what {w:?} means");
            assert!(same(&a, &c), "{w:?} at {bytes} bytes");
        }
    }
}

#[test]
fn transformed() {
    for made in [2, 4] {
        let kind = Kind::Winograd(made);
        check(Window { kind, ..conv([8, 8], 16, 32, [3, 3], [1, 1], [1, 1]) });
        check(Window { kind, batch: 2, ..conv([7, 13], 16, 48, [3, 3], [1, 1], [1, 1]) });
        check(Window { kind, ..conv([5, 6], 32, 16, [3, 3], [1, 1], [0, 0]) });
    }
}

/// Of images whose number is open, rows shorter than a tile: its last columns are none of theirs, and of no other row.
#[test]
fn transformed_rows_of_less_than_a_tile() {
    for (made, width) in [(2, 1), (4, 3), (4, 2), (4, 5)] {
        let kind = Kind::Winograd(made);
        check(Window { kind, open: true, batch: 2, ..conv([6, width], 16, 32, [3, 3], [1, 1], [1, 1]) });
    }
}

#[test]
fn packing_is_undone() {
    let direct = conv([8, 8], 16, 16, [3, 3], [1, 1], [1, 1]);
    let result = |w: &Window| {
        let f = w.prim(&w.sizes());
        let out = Tensor::zeros(DType::F32, &[1, 8, 8, 16]);
        let mut args = vec![Arg::Tensor(data(&[1, 8, 8, 16])), Arg::Tensor(packed(w)), Arg::Tensor(out)];
        interp::run(&f, &mut args).expect("interpreted");
        let Some(Arg::Tensor(t)) = args.pop() else { panic!("a tensor") };
        t.data
    };
    let wanted = result(&direct);
    for made in [2, 4] {
        let got = result(&Window { kind: Kind::Winograd(made), ..direct.clone() });
        let float = |b: &[u8]| f32::from_le_bytes(b.try_into().expect("four bytes"));
        for (x, y) in wanted.chunks(4).zip(got.chunks(4)) {
            assert!((float(x) - float(y)).abs() < 1e-3, "{} {}", float(x), float(y));
        }
    }
}

/// Every way to compute a window computes the same.
fn check_ways(w: &Window) {
    let dims = |b: &Buffer| b.shape.iter().filter_map(|d| d.as_int()).collect::<Vec<_>>();
    for lanes in [8, 16] {
        let ways = Site::Window(w.clone()).candidates(lanes, false);
        assert!(!ways.is_empty() && ways.len() <= 12, "{} ways", ways.len());
        for way in ways {
            let mut w = w.clone();
            w.configure(&way, lanes);
            assert_eq!(w.config(lanes), way, "{w:?}");
            assert_eq!(Site::of(&w.prim(&w.sizes())), [Site::Window(w.clone())]);
            let f = w.prim(&w.sizes());
            let mut args: Vec<Arg> = f.buffers().map(|b| Arg::Tensor(data(&dims(b)))).collect();
            if w.kind != Kind::Max {
                args[1] = Arg::Tensor(packed(&w));
            }
            let (mut wanted, mut got) = (args.clone(), args);
            interp::run(&f, &mut wanted).expect("interpreted");
            machine::run_windows(&f, &mut got, &SchedOptions::vectors(lanes as u32 * 4)).expect("scheduled");
            let (Some(Arg::Tensor(a)), Some(Arg::Tensor(b))) = (wanted.pop(), got.pop()) else { panic!("tensors") };
            let (a, b) = (a.to_f64(), b.to_f64());
            let largest = a.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
            let close = |(x, y): (&f64, &f64)| (x - y).abs() <= 1e-4 + largest * 2e-5;
            assert!(a.iter().zip(&b).all(close), "{way} of {w:?} for {lanes} lanes");
        }
    }
}

#[test]
fn every_way_is_right() {
    check_ways(&conv([6, 7], 16, 48, [3, 3], [1, 1], [1, 1]));
    check_ways(&conv([3, 5], 5, 40, [1, 1], [1, 1], [0, 0]));
    check_ways(&Window { last: false, ..conv([8, 9], 3, 32, [3, 3], [2, 2], [1, 1]) });
    check_ways(&dilated(conv([9, 9], 8, 48, [3, 3], [1, 1], [2, 2]), [2, 2]));
    for kind in [Kind::Depthwise, Kind::Max] {
        check_ways(&Window { kind, ..conv([5, 13], 36, 36, [3, 3], [1, 1], [1, 1]) });
        check_ways(&Window { kind, ..conv([5, 11], 44, 44, [3, 3], [2, 2], [1, 1]) });
    }
}

#[test]
fn what_was_chosen_travels_with_the_block() {
    let mut w = conv([8, 8], 16, 64, [3, 3], [1, 1], [1, 1]);
    w.plan.epilogue = 3;
    let key = Site::Window(w.clone()).key();
    assert_eq!(key, "conv float32 1 8x8x16 to 8x8x64 kernel 3x3 stride 1x1 pad 1x1 with residual and calls");
    let way = Config { algorithm: Algorithm::Winograd(2), columns: 2, rows: 3, outer: Outer::Weights };
    w.configure(&way, 16);
    let site = Site::of(&w.prim(&w.sizes())).remove(0);
    assert_eq!((site.config(16), site.key()), (way, key));
}

/// Winograd's products of many channels read their weights for several rows at a time, not as often as tiles of two rows would.
#[test]
fn deep_products_have_tiles_of_several_rows() {
    for (lanes, least) in [(16, 5), (8, 3)] {
        let mut w = conv([24, 24], 2048, 512, [3, 3], [1, 1], [1, 1]);
        w.kind = Kind::Winograd(2);
        w.choose_panel(lanes);
        let rows = super::tile::deep_rows(&super::alike::product(&w, 48), lanes);
        assert!(rows >= least, "{rows} rows of {lanes} lanes");
    }
    let mut w = conv([5, 4], 1024, 32, [3, 3], [1, 1], [1, 1]);
    w.kind = Kind::Winograd(2);
    w.choose_panel(16);
    same(&w, 64);
}

/// Tiles for processors that multiply two vectors a cycle: widths and heights of their own, and the same sums.
#[test]
fn tiles_for_two_multiplications_a_cycle() {
    let mut other = 0;
    for (size, taken, made) in [([14, 14], 256, 256), ([7, 7], 512, 128), ([28, 28], 128, 96)] {
        let w = conv(size, taken, made, [3, 3], [1, 1], [1, 1]);
        let (mut once, mut twice) = (w.clone(), w);
        once.choose_panel(16);
        twice.configure_twice(16);
        assert!(twice.plan.rows > 0 && twice.plan.rows <= most_rows(16, twice.panel / 16), "{twice:?}");
        let (a, b) = (once.config(16), twice.config(16));
        let mut shared = once.clone();
        shared.configure_shared(16);
        assert!(shared.panel <= once.panel, "{shared:?}");
        other += ((a.columns, a.rows) != (b.columns, b.rows)) as i32;
    }
    assert!(other > 0, "the model for two is the model for one");
    // Of panels that the first-level cache holds two vectors side by side are read once a step, the last of four for every row.
    let small = conv([25, 5], 64, 64, [1, 1], [1, 1], [0, 0]);
    let (mut once, mut twice) = (small.clone(), small);
    once.choose_panel(16);
    twice.configure_twice(16);
    assert_eq!((once.panel, twice.panel), (64, 32));
    same(&twice, 64);
    let mut sums = conv([9, 9], 64, 64, [3, 3], [1, 1], [1, 1]);
    sums.configure_twice(16);
    assert!(sums.plan.rows > 0, "{sums:?}");
    same(&sums, 64);
}

/// What the second-level cache does not hold beside what comes next is read from beyond it for every row: panels stay within.
#[test]
fn panels_stay_in_the_second_level_cache() {
    let mut w = conv([7, 7], 512, 512, [3, 3], [1, 1], [1, 1]);
    w.configure_twice(16);
    assert!(w.panel * 512 * 9 * 4 <= 768 << 10, "{w:?}");
}

/// Two multiplications a cycle halve what Winograd's algorithm saves, but neither its transformations nor the time that
/// transformed weights take from memory: 4x4 where weights are few, 2x2 where they are more, none where points are few.
#[test]
fn winograd_saves_less_where_two_vectors_are_multiplied_in_a_cycle() {
    let best = |size: i64, channels: i64, pace: Pace| {
        let w = conv([size, size], channels, channels, [3, 3], [1, 1], [1, 1]);
        let gains = [2, 4].map(|made| (w.winograd_gain(made, 16, pace), made));
        gains.into_iter().filter(|g| g.0 > 0.0).max_by(|a, b| a.0.total_cmp(&b.0)).map(|g| g.1)
    };
    let all = |pace| [(28, 128), (14, 256), (7, 512)].map(|(size, channels)| best(size, channels, pace));
    assert_eq!(all(Pace::ONCE), [Some(4); 3]);
    assert_eq!(all(Pace::TWICE), [Some(4), Some(2), None]);
}

/// Where few rows are read ahead, tiles are no longer than with two multiplications alone, and the sums are the same.
#[test]
fn tiles_of_few_rows() {
    let w = conv([7, 7], 160, 960, [1, 1], [1, 1], [0, 0]);
    let (mut twice, mut short) = (w.clone(), w);
    twice.configure_twice(16);
    short.configure_short(16);
    assert!(short.plan.rows <= 8 && twice.plan.rows > 8, "{short:?}, {twice:?}");
    // A library for both kinds has tiles of which neither is far from its best.
    let mut both = conv([7, 7], 160, 960, [1, 1], [1, 1], [0, 0]);
    both.configure_shared(16);
    assert!((short.plan.rows..twice.plan.rows).contains(&both.plan.rows), "{both:?}");
    let mut sums = conv([9, 9], 64, 64, [3, 3], [1, 1], [1, 1]);
    sums.configure_short(16);
    assert!(sums.plan.rows > 0, "{sums:?}");
    same(&sums, 64);
}

/// Panels made for vectors of 512 bits go by blocks where those of 256 bits read them: rows of taps or channels taken; sums of
/// all passes over a panel wait, or of one at a time; with a stride, a last panel that is narrower, and an epilogue.
#[test]
fn panels_of_wider_vectors_go_by_blocks() {
    let o = SchedOptions { shared: true, ahead: true, ..SchedOptions::vectors(32) };
    let stack_of = |f: &PrimFunc, o: &SchedOptions| {
        let f = super::super::schedule(f, o).expect("scheduled");
        f.body.iter().any(|s| matches!(s, FlatStmt::Stack { var, .. } if var.name() == "waiting"))
    };
    let waits = |w: &Window, o: &SchedOptions| stack_of(&w.prim(&w.sizes()), o);
    let (same_size, one) = ([1, 1], [1, 1]);
    for (mut w, panel) in [
        (conv([5, 5], 128, 64, [3, 3], same_size, [1, 1]), 64),
        (conv([7, 5], 128, 80, [3, 3], [2, 2], [1, 1]), 64),
        (conv([3, 3], 1024, 32, one, same_size, [0, 0]), 32),
        (conv([3, 2], 1024, 48, one, same_size, [0, 0]), 48),
        (conv([10, 9], 1024, 64, one, same_size, [0, 0]), 64),
    ] {
        w.panel = panel;
        assert!(waits(&w, &o), "{w:?}");
        assert!(!waits(&w, &SchedOptions { shared: false, ..o.clone() }), "{w:?}");
        same_with(&w, &o);
        // Room for the sums of any number of pictures is not on the stack.
        let any = Window { open: true, ..w.clone() };
        let any = any.prim(&Sizes { batch: Var::new("n", DType::I64).expr(), ..w.sizes() });
        assert!(!stack_of(&any, &o), "{w:?}");
    }
    // The channels of a row of taps lie apart.
    for mut w in [conv([2, 1], 256, 64, [1, 3], same_size, [0, 1]), conv([1, 40], 512, 64, [1, 5], same_size, [0, 2])] {
        w.panel = 64;
        assert!(!waits(&w, &o), "{w:?}");
        same_with(&w, &o);
    }
    // What the second-level cache holds is read where it is.
    let mut small = conv([12, 12], 64, 64, [3, 3], same_size, [1, 1]);
    small.panel = 64;
    assert!(!waits(&small, &o));
    same_with(&small, &o);
}

/// A kernel of windows one behind the other, and how many: [`Window::prim`] of each over what the one before made.
fn cascade(windows: &[Window]) -> PrimFunc {
    let (mut params, mut allocs, mut body) = (vec![], vec![], vec![]);
    let mut made: Option<Buffer> = None;
    let mut name = "cascade".to_string();
    for (i, w) in windows.iter().enumerate() {
        let f = w.prim(&w.sizes());
        let own: Vec<Buffer> = f.buffers().cloned().collect();
        let [x, .., y] = own.as_slice() else { panic!("operands") };
        let mut map = std::collections::HashMap::new();
        for b in &own {
            let new = Buffer::new(format!("{}{i}", b.name), b.shape.clone(), b.dtype());
            match &made {
                Some(before) if b == x => map.insert(b.id(), before.clone()),
                _ => map.insert(b.id(), new),
            };
        }
        let of = |b: &Buffer| map[&b.id()].clone();
        let last = i + 1 == windows.len();
        let given = own.iter().filter(|b| (made.is_none() || *b != x) && (last || *b != y));
        params.extend(given.map(|b| relax_ir::tir::PrimParam::Buffer { buffer: of(b), handle: None }));
        if !last {
            allocs.push(of(y));
        }
        made = Some(of(y));
        body.push(crate::fuse::rebuild(&f.body, &Default::default(), &map).expect("a body"));
        name.push_str(&f.name);
    }
    let mut f = windows[0].prim(&windows[0].sizes());
    f.name = name;
    f.params = params;
    f.alloc_buffers = allocs;
    f.body = relax_ir::tir::Stmt::seq(body);
    f
}

fn channelwise(size: [i64; 2], channels: i64, kernel: [i64; 2], stride: [i64; 2], pad: [i64; 2]) -> Window {
    Window { kind: Kind::Depthwise, ..conv(size, channels, channels, kernel, stride, pad) }
}

/// Windows that go down bands of rows together give what they give one after the other, wherever the bands end.
#[test]
fn cascades_give_what_their_windows_give() {
    let next = |w: &Window, made: i64, kernel: i64, stride: i64, pad: i64| {
        conv(w.out, w.made, made, [kernel; 2], [stride; 2], [pad; 2])
    };
    let wide =
        |w: &Window, kernel: i64, stride: i64, pad: i64| channelwise(w.out, w.made, [kernel; 2], [stride; 2], [pad; 2]);
    let expand = |size: [i64; 2]| conv(size, 8, 24, [1, 1], [1, 1], [0, 0]);
    let image = Window { last: false, ..conv([19, 12], 3, 16, [3, 3], [2, 2], [1, 1]) };
    let mut cascades = vec![];
    for (kernel, stride, pad) in
        [(3, 1, 1), (3, 2, 1), (5, 1, 2), (5, 2, 2), (3, 1, 0), (3, 2, 0), (3, 3, 1), (4, 1, 1)]
    {
        for rows in [11, 12] {
            let first = expand([rows, 9]);
            let second = wide(&first, kernel, stride, pad);
            let third = next(&second, 12, 1, 1, 0);
            cascades.push(vec![first.clone(), second.clone()]);
            cascades.push(vec![first, second, third]);
        }
    }
    let second = wide(&image, 3, 1, 1);
    let third = next(&second, 8, 1, 1, 0);
    let fourth = next(&third, 20, 3, 1, 1);
    let fifth = wide(&fourth, 3, 2, 1);
    cascades.push(vec![image, second, third, fourth, fifth]);
    // Data that lies before padding that the windows behind it add, and taps that lie apart.
    let first = expand([10, 7]);
    let mut apart = wide(&first, 3, 1, 2);
    (apart.dilation, apart.out) = ([2, 2], [10, 7]);
    cascades.push(vec![first.clone(), apart]);
    let mut low = wide(&first, 3, 1, 1);
    (low.before, low.out) = ([0, 0], [10, 7]);
    cascades.push(vec![first.clone(), low]);
    let most = Window { kind: Kind::Max, ..wide(&first, 3, 2, 1) };
    cascades.push(vec![first, most]);
    for mut windows in cascades {
        for bytes in [16, 32, 64] {
            windows.iter_mut().filter(|w| w.kind == Kind::Conv).for_each(|w| w.choose_panel(bytes / 4));
            let f = cascade(&windows);
            let args: Vec<Arg> = f.buffers().map(|b| Arg::Tensor(argument(b))).collect();
            let mut wanted = args.clone();
            interp::run(&f, &mut wanted).expect("interpreted");
            let mut bands = std::collections::HashSet::new();
            for band in [6_000, 12_000, 20_000, 1 << 20] {
                let o = SchedOptions { band, ..SchedOptions::vectors(bytes as u32) };
                let flat = format!("{:?}", crate::schedule::schedule(&f, &o).expect("scheduled").body);
                bands.insert(flat.len());
                let mut got = args.clone();
                machine::run_windows(&f, &mut got, &o).expect("run");
                let (Some(Arg::Tensor(a)), Some(Arg::Tensor(b))) = (wanted.last(), got.last()) else {
                    panic!("tensors")
                };
                for (i, (x, y)) in a.to_f64().into_iter().zip(b.to_f64()).enumerate() {
                    assert!((x - y).abs() <= 1e-4 * x.abs().max(1.0), "{windows:?} {bytes} {band}: {i}: {x} and {y}");
                }
            }
            assert!(bands.len() > 1, "bands are cut where there is little room");
        }
    }
}
