//! Convolutions over images of open sizes beside the same ones whose sizes are bound, in the kernels of several processors.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod command;

use command::{path, relax_aot, tensor, weights};
use relax_aot::loader::Library;

const MODEL: &str = r#"@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 8, "h", "w"), "float32"), a: R.Tensor((20, 8, 3, 3), "float32"), b: R.Tensor((36, 20, 3, 3), "float32"), c: R.Tensor((17, 36, 1, 1), "float32")):
        h = T.int64()
        w = T.int64()
        y = R.nn.relu(R.nn.conv2d(x, a, padding=[1, 1, 1, 1]))
        z = R.nn.conv2d(y, b, strides=[2, 2], padding=[1, 1, 1, 1])
        return R.nn.conv2d(z, c)
"#;

/// Windows over channels-last pictures: transformed convolutions, depthwise ones, maxima, groups, dilation, a concatenation,
/// means, what many read, and a comparison.
const WINDOWS: &str = r#"@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 3, "h", "w"), "float32"), a: R.Tensor((32, 3, 3, 3), "float32"), b: R.Tensor((32, 32, 3, 3), "float32"), c: R.Tensor((32, 1, 3, 3), "float32"), d: R.Tensor((32, 16, 3, 3), "float32"), f: R.Tensor((20, 96, 1, 1), "float32")):
        with R.dataflow():
            s = R.nn.relu(R.nn.conv2d(x, a, padding=[1, 1, 1, 1]))
            t = R.add(R.nn.conv2d(s, b, padding=[1, 1, 1, 1]), s)
            u = R.nn.silu(R.nn.conv2d(t, c, padding=[1, 1, 1, 1], groups=32))
            v = R.nn.conv2d(t, d, padding=[2, 2, 2, 2], dilation=[2, 2], groups=2)
            m = R.nn.max_pool2d(t, pool_size=[3, 3], padding=[1, 1, 1, 1])
            k = R.where(R.greater(v, u), v, m)
            z = R.concat((R.nn.conv2d(k, c, strides=[2, 2], padding=[1, 1, 1, 1], groups=32), R.nn.conv2d(u, d, strides=[2, 2], padding=[1, 1, 1, 1], groups=2), R.nn.max_pool2d(m, pool_size=[3, 3], strides=[2, 2], padding=[1, 1, 1, 1], ceil_mode=False)), axis=1)
            p = R.nn.max_pool2d(z, pool_size=[2, 2], strides=[2, 2], ceil_mode=True)
            y = R.nn.conv2d(p, f)
            r = (y, R.mean(y, axis=[2, 3]), R.nn.avg_pool2d(s, pool_size=[3, 3], padding=[1, 1, 1, 1]))
            R.output(r)
        return r
"#;

/// What a network with several scales does: pictures of twice the size, pieces of the channels, both joined.
const SCALES: &str = r#"@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 3, "h", "w"), "float32"), a: R.Tensor((32, 3, 3, 3), "float32"), b: R.Tensor((32, 32, 3, 3), "float32"), d: R.Tensor((16, 48, 1, 1), "float32")):
        h = T.int64()
        w = T.int64()
        with R.dataflow():
            s = R.nn.relu(R.nn.conv2d(x, a, padding=[1, 1, 1, 1]))
            t = R.nn.conv2d(s, b, strides=[2, 2], padding=[1, 1, 1, 1])
            u = R.image.resize2d(t, R.shape([h, w]), method="nearest_neighbor", coordinate_transformation_mode="asymmetric", rounding_method="floor")
            v = R.image.resize2d(R.nn.conv2d(u, b, padding=[1, 1, 1, 1]), R.shape([h, w]), method="linear", coordinate_transformation_mode="half_pixel")
            p = R.split(v, 2, axis=1)
            z = R.concat((p[1], R.strided_slice(s, axes=[1], begin=[0], end=[32])), axis=1)
            y = R.nn.conv2d(z, d)
            R.output(y)
        return y
"#;

#[test]
fn of_scales() {
    let params: &[(&str, &[i64])] = &[("a", &[32, 3, 3, 3]), ("b", &[32, 32, 3, 3]), ("d", &[16, 48, 1, 1])];
    compare(SCALES, params, 3, 1, &[(1, 1), (2, 3), (5, 4), (8, 8), (14, 23), (7, 66), (40, 1)]);
}

/// Pictures of whole multiples of the size, between convolutions and at the end.
const REPEATED: &str = r#"@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 3, "h", "w"), "float32"), a: R.Tensor((32, 3, 3, 3), "float32"), b: R.Tensor((32, 32, 3, 3), "float32")):
        with R.dataflow():
            s = R.nn.relu(R.nn.conv2d(x, a, padding=[1, 1, 1, 1]))
            t = R.repeat(R.repeat(s, repeats=2, axis=3), repeats=2, axis=2)
            u = R.nn.conv2d(t, b, padding=[1, 1, 1, 1])
            y = R.repeat(R.repeat(R.concat((u, t), axis=1), repeats=3, axis=-1), repeats=4, axis=-2)
            R.output(y)
        return y
"#;

#[test]
fn of_repeated_elements() {
    let params: &[(&str, &[i64])] = &[("a", &[32, 3, 3, 3]), ("b", &[32, 32, 3, 3])];
    compare(REPEATED, params, 3, 1, &[(1, 1), (2, 3), (5, 4), (8, 8), (14, 23), (7, 66)]);
}

/// Channels that are no multiple of 4, and one row of one channel under windows of many columns.
const UNEVEN: &str = r#"@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 8, "h", "w"), "float32"), a: R.Tensor((21, 8, 3, 3), "float32"), b: R.Tensor((1, 21, 1, 1), "float32"), c: R.Tensor((3, 21, 3, 3), "float32"), d: R.Tensor((6, 21, 1, 1), "float32"), f: R.Tensor((20, 1, 1, 33), "float32")):
        with R.dataflow():
            s = R.nn.relu(R.nn.conv2d(x, a, padding=[1, 1, 1, 1]))
            t = R.nn.conv2d(s, b)
            u = R.add(R.nn.conv2d(s, c, padding=[1, 1, 1, 1]), t)
            v = R.nn.conv2d(R.mean(t, axis=[2], keepdims=True), f, strides=[1, 11], padding=[0, 40, 0, 33])
            r = (t, u, R.nn.conv2d(s, d), v)
            R.output(r)
        return r
"#;

#[test]
fn of_uneven_channels() {
    let params: &[(&str, &[i64])] = &[
        ("a", &[21, 8, 3, 3]),
        ("b", &[1, 21, 1, 1]),
        ("c", &[3, 21, 3, 3]),
        ("d", &[6, 21, 1, 1]),
        ("f", &[20, 1, 1, 33]),
    ];
    compare(UNEVEN, params, 8, 4, &[(1, 1), (2, 3), (5, 4), (8, 8), (14, 23), (3, 300)]);
}

/// What two blocks make of the same pictures.
const BLOCKS: &str = r#"@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 3, "h", "w"), "float32"), a: R.Tensor((32, 3, 3, 3), "float32")):
        with R.dataflow():
            s = R.nn.relu(R.nn.conv2d(x, a, padding=[1, 1, 1, 1]))
            R.output(s)
        with R.dataflow():
            t = R.add(R.nn.conv2d(x, a, padding=[1, 1, 1, 1]), s)
            R.output(t)
        return t
"#;

#[test]
fn of_two_blocks() {
    compare(BLOCKS, &[("a", &[32, 3, 3, 3])], 3, 1, &[(5, 7), (16, 33)]);
}

/// Transformed convolutions, windows of every kind, and how their results are read.
#[test]
fn of_windows() {
    let params: &[(&str, &[i64])] = &[
        ("a", &[32, 3, 3, 3]),
        ("b", &[32, 32, 3, 3]),
        ("c", &[32, 1, 3, 3]),
        ("d", &[32, 16, 3, 3]),
        ("f", &[20, 96, 1, 1]),
    ];
    let sizes = [
        (1, 1),
        (2, 2),
        (1, 3),
        (3, 1),
        (4, 5),
        (6, 7),
        (8, 8),
        (9, 14),
        (5, 17),
        (23, 18),
        (13, 31),
        (7, 66),
        (40, 1),
        (1, 300),
    ];
    compare(WINDOWS, params, 3, 3, &sizes);
}

/// Windows that reach far beyond the data, by columns and in steps.
const REACHING: &str = r#"@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 3, "h", "w"), "float32"), a: R.Tensor((32, 3, 1, 1), "float32"), c: R.Tensor((32, 1, 5, 5), "float32")):
        with R.dataflow():
            s = R.nn.conv2d(x, a)
            t = R.nn.conv2d(s, c, padding=[6, 6, 6, 6], dilation=[3, 3], groups=32)
            u = R.nn.conv2d(s, c, padding=[0, 4, 2, 1], strides=[1, 3], groups=32)
            m = R.nn.max_pool2d(t, pool_size=[3, 5], strides=[2, 2], padding=[1, 2, 1, 2])
            r = (t, u, m)
            R.output(r)
        return r
"#;

#[test]
fn of_windows_that_reach_beyond() {
    let sizes = [(3, 1), (4, 2), (5, 3), (9, 5), (6, 8), (13, 12), (7, 13), (8, 21), (5, 40), (30, 67)];
    compare(REACHING, &[("a", &[32, 3, 1, 1]), ("c", &[32, 1, 5, 5])], 3, 3, &sizes);
}

/// Windows of one row that lie behind the data altogether: padding at its end alone, elements of a transposed convolution
/// that no tap reaches.
const BEHIND: &str = r#"@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 3, "h", "w"), "float32"), a: R.Tensor((32, 3, 1, 1), "float32"), b: R.Tensor((16, 32, 1, 1), "float32"), c: R.Tensor((16, 8, 1, 1), "float32"), d: R.Tensor((32, 20, 2, 2), "float32"), f: R.Tensor((32, 16, 3, 3), "float32")):
        with R.dataflow():
            s = R.nn.conv2d(x, a)
            t = R.nn.conv2d(s, b, padding=[0, 0, 2, 1])
            u = R.nn.conv2d(s, c, strides=[3, 3], padding=[0, 0, 3, 0], groups=4)
            v = R.nn.conv2d_transpose(s, d, strides=[2, 2], output_padding=[1, 1])
            y = R.nn.conv2d_transpose(s, f, strides=[3, 3], output_padding=[2, 2])
            r = (t, u, v, y)
            R.output(r)
        return r
"#;

#[test]
fn of_windows_behind_the_last_row() {
    let params: &[(&str, &[i64])] = &[
        ("a", &[32, 3, 1, 1]),
        ("b", &[16, 32, 1, 1]),
        ("c", &[16, 8, 1, 1]),
        ("d", &[32, 20, 2, 2]),
        ("f", &[32, 16, 3, 3]),
    ];
    compare(BEHIND, params, 3, 4, &[(1, 1), (2, 3), (5, 4), (3, 9), (7, 17)]);
}

/// Windows whose taps lie far apart, further than the data is wide: in several tiles of a row, whole and in parts.
const DILATED: &str = r#"@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 3, "h", "w"), "float32"), a: R.Tensor((32, 3, 1, 1), "float32"), b: R.Tensor((68, 32, 3, 3), "float32")):
        with R.dataflow():
            s = R.nn.conv2d(x, a)
            t = R.nn.conv2d(s, b, padding=[9, 9, 9, 9], dilation=[9, 9])
            u = R.nn.conv2d(s, b, padding=[4, 3, 4, 6], strides=[2, 2], dilation=[4, 4])
            v = R.nn.conv2d(s, b, padding=[2, 0, 2, 4], dilation=[2, 2])
            r = (t, u, v)
            R.output(r)
        return r
"#;

#[test]
fn of_windows_far_apart() {
    let sizes = [(2, 1), (3, 2), (9, 7), (11, 8), (4, 9), (8, 14), (6, 16), (7, 23), (10, 30)];
    compare(DILATED, &[("a", &[32, 3, 1, 1]), ("b", &[68, 32, 3, 3])], 3, 3, &sizes);
}

/// Transposed convolutions: of no work in vain, in phases, side by side and cut, over one axis.
const TRANSPOSED: &str = r#"@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 3, "h", "w"), "float32"), a: R.Tensor((32, 3, 3, 3), "float32"), b: R.Tensor((32, 20, 2, 2), "float32"), c: R.Tensor((32, 16, 4, 4), "float32"), d: R.Tensor((32, 8, 3, 3), "float32"), f: R.Tensor((32, 16, 5), "float32")):
        with R.dataflow():
            s = R.nn.relu(R.nn.conv2d(x, a, padding=[1, 1, 1, 1]))
            t = R.nn.relu(R.nn.conv2d_transpose(s, b, strides=[2, 2]))
            u = R.nn.conv2d_transpose(s, c, strides=[2, 2], padding=[1, 1, 1, 1])
            v = R.nn.conv2d_transpose(s, d, strides=[2, 3])
            y = R.nn.conv2d_transpose(s, d, strides=[2, 1], padding=[1, 1, 1, 1], output_padding=[1, 0])
            z = R.nn.conv1d_transpose(R.mean(s, axis=[2]), f, strides=[3], padding=[1, 1])
            r = (t, u, v, y, z)
            R.output(r)
        return r
"#;

#[test]
fn of_transposed_windows() {
    let params: &[(&str, &[i64])] = &[
        ("a", &[32, 3, 3, 3]),
        ("b", &[32, 20, 2, 2]),
        ("c", &[32, 16, 4, 4]),
        ("d", &[32, 8, 3, 3]),
        ("f", &[32, 16, 5]),
    ];
    compare(TRANSPOSED, params, 3, 5, &[(1, 1), (2, 3), (5, 4), (3, 9), (6, 17), (4, 33)]);
}

/// Depthwise transposed convolutions, and weights that are computed.
const TRANSPOSED_APART: &str = r#"@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 3, "h", "w"), "float32"), a: R.Tensor((32, 3, 3, 3), "float32"), b: R.Tensor((32, 1, 4, 4), "float32"), c: R.Tensor((32, 1, 2, 2), "float32"), d: R.Tensor((32, 16, 4, 4), "float32"), f: R.Tensor((32, 1, 9, 9), "float32")):
        with R.dataflow():
            s = R.nn.relu(R.nn.conv2d(x, a, padding=[1, 1, 1, 1]))
            t = R.nn.relu(R.nn.conv2d_transpose(s, b, strides=[2, 2], padding=[1, 1, 1, 1], groups=32))
            u = R.nn.conv2d_transpose(s, c, strides=[2, 2], groups=32)
            v = R.nn.conv2d_transpose(s, R.multiply(d, R.max(x)), strides=[2, 2], padding=[1, 1, 1, 1])
            z = R.nn.conv2d_transpose(s, f, padding=[4, 4, 4, 4], groups=32)
            r = (t, u, v, z)
            R.output(r)
        return r
"#;

#[test]
fn of_transposed_windows_of_one_channel() {
    let params: &[(&str, &[i64])] = &[
        ("a", &[32, 3, 3, 3]),
        ("b", &[32, 1, 4, 4]),
        ("c", &[32, 1, 2, 2]),
        ("d", &[32, 16, 4, 4]),
        ("f", &[32, 1, 9, 9]),
    ];
    compare(TRANSPOSED_APART, params, 3, 4, &[(1, 1), (2, 3), (5, 4), (3, 9), (6, 17), (4, 33)]);
}

/// Small pictures of many channels, a row of which is one tile.
const DEEP: &str = r#"@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 3, "h", "w"), "float32"), a: R.Tensor((32, 3, 3, 3), "float32"), b: R.Tensor((256, 32, 3, 3), "float32"), c: R.Tensor((64, 256, 1, 3), "float32"), d: R.Tensor((64, 256, 3, 3), "float32")):
        with R.dataflow():
            s = R.nn.max_pool2d(R.nn.conv2d(x, a, padding=[1, 1, 1, 1], strides=[4, 4]), pool_size=[4, 4], strides=[4, 4], ceil_mode=True)
            t = R.nn.conv2d(s, b, padding=[1, 1, 1, 1], strides=[2, 2])
            r = (R.nn.conv2d(t, c, padding=[0, 1, 0, 1]), R.nn.conv2d(t, c, padding=[0, 2, 0, 0]), R.nn.conv2d(t, d, padding=[1, 1, 1, 1], strides=[2, 2]))
            R.output(r)
        return r
"#;

#[test]
fn of_few_columns() {
    let params: &[(&str, &[i64])] =
        &[("a", &[32, 3, 3, 3]), ("b", &[256, 32, 3, 3]), ("c", &[64, 256, 1, 3]), ("d", &[64, 256, 3, 3])];
    let sizes: Vec<(i64, i64)> = (1..12).map(|n| (40, 32 * n - 13)).collect();
    compare(DEEP, params, 3, 3, &sizes);
}

/// Pictures that are halved again and again.
const HALVES: &str = r#"@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 8, "h", "w"), "float32"), a: R.Tensor((32, 8, 1, 1), "float32"), b: R.Tensor((32, 32, 3, 3), "float32")):
        with R.dataflow():
            s = R.nn.conv2d(x, a)
            t = R.nn.conv2d(R.nn.max_pool2d(s, pool_size=[3, 3], strides=[2, 2], padding=[1, 1, 1, 1]), b, padding=[1, 1, 1, 1])
            u = R.nn.conv2d(R.nn.max_pool2d(t, pool_size=[3, 3], strides=[2, 2], padding=[1, 1, 1, 1]), b, padding=[1, 1, 1, 1])
            v = R.nn.conv2d(R.nn.max_pool2d(u, pool_size=[2, 2], strides=[2, 2]), b, padding=[1, 1, 1, 1])
            R.output(v)
        return v
"#;

/// What is in use at once is nearly all that a workspace for pictures of open sizes takes. (Larger ones of known sizes go by
/// bands of rows.)
#[test]
fn the_workspace_is_that_of_known_sizes() {
    let dir = tempfile::tempdir().expect("a folder");
    let (file, values) = (dir.path().join("model.rlx"), dir.path().join("w.safetensors"));
    std::fs::write(&file, HALVES).expect("the model is written");
    weights(&values, &[("a", &[32, 8, 1, 1]), ("b", &[32, 32, 3, 3])], 3);
    let size = |options: &[&str], dims: &[i64]| {
        let so = dir.path().join(format!("{}.so", options.len()));
        relax_aot(&[&[path(&file), "--params", path(&values), "--prefix", "m", "-o", path(&so)], options].concat());
        let library = Library::open(&so, "m").expect("the library");
        library.workspace_size("m_main", dims).expect("a number") as f64
    };
    let (open, bound) = (size(&[], &[80, 80]), size(&["--dim", "h=80", "--dim", "w=80"], &[]));
    assert!(open <= 1.1 * bound, "{open} bytes, {bound} with sizes that are known");
}

/// Rows shorter than a vector, than three, and longer ones; one row, one column.
#[test]
fn of_every_width() {
    let params: &[(&str, &[i64])] = &[("a", &[20, 8, 3, 3]), ("b", &[36, 20, 3, 3]), ("c", &[17, 36, 1, 1])];
    let sizes =
        [(1, 1), (2, 3), (5, 7), (9, 14), (7, 17), (16, 32), (3, 47), (11, 48), (6, 69), (4, 96), (5, 131), (40, 1)];
    compare(MODEL, params, 8, 1, &sizes);
}

/// The library of open sizes beside those of each size, with one thread and with two.
fn compare(model: &str, params: &[(&str, &[i64])], channels: i64, results: usize, sizes: &[(i64, i64)]) {
    let dir = tempfile::tempdir().expect("a folder");
    let (file, values) = (dir.path().join("model.rlx"), dir.path().join("w.safetensors"));
    std::fs::write(&file, model).expect("the model is written");
    weights(&values, params, 3);
    let wide = std::arch::is_x86_feature_detected!("avx512vl") && std::arch::is_x86_feature_detected!("avx512dq");
    let fused = std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma");
    let levels = [("baseline", true), ("x86-64-v3", fused), ("x86-64-v4", wide), ("native", true), ("auto", true)];
    for (cpu, _) in levels.into_iter().filter(|l| l.1) {
        let library = |so: &str, more: &[&str]| {
            let so = dir.path().join(so);
            let args = [path(&file), "--params", path(&values), "--prefix", "m", "-o", path(&so), "--target-cpu", cpu];
            relax_aot(&[&args[..], more].concat());
            Library::open(&so, "m").expect("the library")
        };
        let (open, shared) = (library(&format!("{cpu}.so"), &[]), library(&format!("{cpu}2.so"), &["--threads", "2"]));
        for &(h, w) in sizes {
            let bound = library(&format!("{cpu}{h}x{w}.so"), &["--dim", &format!("h={h}"), "--dim", &format!("w={w}")]);
            let x = tensor(&[1, channels, h, w], 1);
            let run = |l: &Library| {
                l.run("main", &[x.clone()], results).unwrap_or_else(|e| panic!("{cpu}, {h}x{w}: {}", e.message))
            };
            let wanted = run(&bound);
            for (got, wanted) in [&open, &shared].iter().flat_map(|l| run(l).into_iter().zip(&wanted)) {
                assert_eq!(got.shape, wanted.shape);
                // Sums whose terms cancel are as exact as large ones.
                let largest = (0..got.elements()).map(|i| wanted.get_f64(i).abs()).fold(0.0, f64::max);
                for i in 0..got.elements() {
                    let (a, b) = (got.get_f64(i), wanted.get_f64(i));
                    let within = 1e-4 * (1.0 + b.abs()) + 2e-6 * largest;
                    assert!((a - b).abs() < within, "{cpu}, {h}x{w}: {a} at {i}, not {b}");
                }
            }
        }
    }
}
