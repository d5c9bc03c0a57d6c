//! Rewritings of the lowering passes: that they happen, and that the results are those of the model as written (`-O0`).
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

#[expect(dead_code, reason = "no weights are given")]
mod command;

use command::{path, relax_aot, tensor};
use relax_aot::loader::Library;
use relax_ir::Constant;
use std::path::Path;

/// Attention over heads between two products, with GELU behind and a power.
const ATTENTION: &str = r#"
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, "n", 64), dtype="float32"), q: R.Tensor((64, 64), dtype="float32"),
             k: R.Tensor((64, 64), dtype="float32"), v: R.Tensor((64, 64), dtype="float32"),
             w: R.Tensor((64, 80), dtype="float32")):
        n = T.int64()
        with R.dataflow():
            a = R.permute_dims(R.reshape(R.matmul(x, q), R.shape([2, n, 4, 16])), axes=[0, 2, 1, 3])
            b = R.permute_dims(R.reshape(R.matmul(x, k), R.shape([2, n, 4, 16])), axes=[0, 2, 3, 1])
            c = R.permute_dims(R.reshape(R.matmul(x, v), R.shape([2, n, 4, 16])), axes=[0, 2, 1, 3])
            s = R.nn.softmax(R.multiply(R.matmul(a, b), R.const(0.25, "float32")), axis=3)
            o = R.reshape(R.permute_dims(R.matmul(s, c), axes=[0, 2, 1, 3]), R.shape([2, n, 64]))
            p = R.matmul(o, w)
            e = R.erf(R.divide(p, R.const(1.4142135, "float32")))
            g = R.multiply(p, R.multiply(R.const(0.5, "float32"), R.add(e, R.const(1.0, "float32"))))
            r = R.power(R.divide(g, R.const(8.0, "float32")), R.const(2.0, "float32"))
            out = (g, r)
            R.output(out)
        return out
"#;
const RESULTS: usize = 2;

fn run(dir: &Path, model: &Path, options: &[&str], inputs: &[Constant], results: usize) -> Vec<Vec<f64>> {
    let so = dir.join(format!("lib{}.so", options.join("")));
    relax_aot(&[&[path(model), "--prefix", "m", "-o", path(&so)], options].concat());
    let library = Library::open(&so, "m").expect("the library");
    let results = library.run("main", inputs, results).unwrap_or_else(|e| panic!("{}: {}", e.code, e.message));
    results.iter().map(|c| (0..c.elements()).map(|i| c.get_f64(i)).collect()).collect()
}

/// Results for every level of the processor are those without rewriting.
fn agree(dir: &Path, model: &Path, inputs: &[Constant], what: &str) {
    agree_on(dir, model, inputs, RESULTS, what);
}

fn agree_on(dir: &Path, model: &Path, inputs: &[Constant], results: usize, what: &str) {
    let wanted = run(dir, model, &["-O0"], inputs, results);
    for cpu in ["baseline", "x86-64-v3", "x86-64-v4", "native"] {
        // What this machine lacks it cannot run.
        if cpu == "x86-64-v4" && !std::arch::is_x86_feature_detected!("avx512vl") {
            continue;
        }
        let got = run(dir, model, &["--target-cpu", cpu], inputs, results);
        for (a, b) in wanted.iter().flatten().zip(got.iter().flatten()) {
            assert!((a - b).abs() <= 1e-5 * (1.0 + a.abs()), "{cpu}, {what}: {b}, not {a}");
        }
    }
}

#[test]
fn attention_as_written_and_rewritten() {
    let dir = tempfile::tempdir().expect("a folder");
    let model = dir.path().join("model.rlx");
    std::fs::write(&model, ATTENTION).expect("the model is written");
    let tir = relax_aot(&["print", path(&model), "--stage", "tir"]);
    // Nothing is moved by a kernel of its own; GELU is behind its product; scalars are in the text.
    let kernels: Vec<&str> =
        tir.lines().filter(|l| l.trim_start().starts_with("def ") && !l.contains(" main(")).collect();
    assert!(!kernels.iter().any(|k| k.trim_start().starts_with("def permute_dims")), "{kernels:#?}");
    assert!(kernels.iter().any(|k| k.contains("def fused_matmul_divide_erf")), "{kernels:#?}");
    assert!(!tir.contains("R.const") && !tir.contains("T.pow(") && !tir.contains("/ T.float32(8"), "{tir}");
    for n in [1, 2, 7, 33, 64, 83] {
        let mut inputs = vec![tensor(&[2, n, 64], 1)];
        inputs.extend([[64, 64], [64, 64], [64, 64], [64, 80]].iter().zip(2..).map(|(s, i)| tensor(s, i)));
        agree(dir.path(), &model, &inputs, &format!("{n} rows"));
    }
}

/// Norms as models write them: `%` is the norm of `x`.
const NORM: &str = r#"
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 5, 70), dtype="float32"), g: R.Tensor((70,), dtype="float32"),
             b: R.Tensor((70,), dtype="float32")):
        n = T.int64()
        with R.dataflow():
            eps = R.const(0.00001, "float32")
            m = R.mean(x, axis=[-1], keepdims=True)
            c = R.subtract(x, m)
            %
            R.output(out)
        return out
"#;

/// Rules `layer_norm` and `rms_norm`: how often a norm is written, and which kernel it is.
#[test]
fn norms_as_written_and_rewritten() {
    let dir = tempfile::tempdir().expect("a folder");
    let model = dir.path().join("model.rlx");
    let root = |square: &str| format!("r = R.sqrt(R.add(R.mean({square}, axis=[2], keepdims=True), eps))");
    let cases = [
        (format!("{}; out = R.add(R.multiply(R.divide(c, r), g), b)", root("R.square(c)")), "nn_layer_norm"),
        (format!("{}; out = R.add(b, R.multiply(g, R.divide(c, r)))", root("R.multiply(c, c)")), "nn_layer_norm"),
        (
            format!("{}; out = R.divide(R.subtract(x, m), r)", root("R.power(c, R.const(2.0, 'float32'))")),
            "nn_layer_norm",
        ),
        (
            "v = R.mean(R.square(c), axis=[2], keepdims=True); out = R.multiply(c, R.rsqrt(R.add(eps, v)))".to_string(),
            "nn_layer_norm",
        ),
        (format!("{}; out = R.multiply(R.divide(x, r), g)", root("R.square(x)")), "nn_rms_norm"),
        (
            "v = R.variance(x, axis=[2], keepdims=True); out = R.multiply(R.divide(c, R.sqrt(R.add(v, eps))), g)"
                .to_string(),
            "nn_layer_norm",
        ),
        ("v = R.variance(c, axis=[2], keepdims=True); out = R.divide(c, R.sqrt(R.add(v, eps)))".to_string(), ""),
        // The mean is a result too, the squares are of something else, or the axes are not the last ones.
        (format!("{}; y = R.divide(c, r); out = (y, m)", root("R.square(c)")), ""),
        (format!("{}; out = R.divide(c, r)", root("R.square(x)")), ""),
        ("v = R.mean(R.square(c), axis=[1], keepdims=True); out = R.divide(c, R.sqrt(R.add(v, eps)))".to_string(), ""),
    ];
    for (text, kernel) in cases {
        std::fs::write(&model, NORM.replace('%', &text)).expect("the model is written");
        let tir = relax_aot(&["print", path(&model), "--stage", "tir"]);
        let made = ["nn_layer_norm", "nn_rms_norm"]
            .into_iter()
            .find(|k| tir.contains(&format!("def {k}")))
            .unwrap_or_default();
        assert_eq!(made, kernel, "{text}\n{tir}");
        for n in [1, 13] {
            let inputs = [tensor(&[n, 5, 70], 1), tensor(&[70], 2), tensor(&[70], 3)];
            agree_on(dir.path(), &model, &inputs, 1 + text.contains("(y, m)") as usize, &format!("{text}, {n} rows"));
        }
    }
}

/// Convolutions whose weights are arguments, in groups of 1 (depthwise), 2, 4, 8 and 32 channels.
const CONVOLUTIONS: &str = r#"
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 16, 10, 9), dtype="float32"), a: R.Tensor((32, 16, 3, 3), dtype="float32"),
             b: R.Tensor((32, 2, 3, 3), dtype="float32"), c: R.Tensor((32, 4, 3, 3), dtype="float32"),
             d: R.Tensor((32, 8, 1, 1), dtype="float32"), e: R.Tensor((32, 1, 3, 3), dtype="float32"),
             f: R.Tensor((36, 32, 1, 1), dtype="float32")):
        with R.dataflow():
            p = R.nn.relu(R.nn.conv2d(x, a, padding=[1, 1, 1, 1]))
            q = R.nn.conv2d(p, b, padding=[1, 1, 1, 1], groups=16)
            r = R.nn.relu(R.nn.conv2d(q, c, padding=[2, 2, 2, 2], dilation=[2, 2], groups=8))
            s = R.nn.conv2d(r, d, groups=4)
            t = R.nn.conv2d(s, e, padding=[1, 1, 1, 1], groups=32)
            u = R.nn.conv2d(t, f)
            out = (q, u)
            R.output(out)
        return out
"#;

#[test]
fn convolutions_of_arguments() {
    let dir = tempfile::tempdir().expect("a folder");
    let model = dir.path().join("model.rlx");
    std::fs::write(&model, CONVOLUTIONS).expect("the model is written");
    let shapes =
        [[1, 16, 10, 9], [32, 16, 3, 3], [32, 2, 3, 3], [32, 4, 3, 3], [32, 8, 1, 1], [32, 1, 3, 3], [36, 32, 1, 1]];
    let inputs: Vec<Constant> = shapes.iter().zip(1..).map(|(s, i)| tensor(s, i)).collect();
    agree(dir.path(), &model, &inputs, "convolutions");
}

/// Samples of a picture at places that data tells, behind a convolution and of an argument, and of few places and channels.
const SAMPLES: &str = r#"
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 16, 20, 18), dtype="float32"), g: R.Tensor((1, 2, 15, 11), dtype="float32"),
             r: R.Tensor(("n", 5), dtype="float32"), few: R.Tensor((1, 3, 20, 18), dtype="float32"),
             one: R.Tensor((1, 5), dtype="float32")):
        n = T.int64()
        with R.dataflow():
            a = R.image.grid_sample(x, g)
            b = R.vision.roi_align(x, r, pooled_size=(4, 4), spatial_scale=1.0, sample_ratio=2)
            c = R.image.grid_sample(few, g)
            d = R.vision.roi_align(x, one, pooled_size=(1, 1), spatial_scale=1.0, sample_ratio=1)
            out = (a, b, c, d)
            R.output(out)
        return out
"#;

/// Where many channels are read at each place they lie side by side: pictures are turned before and samples behind, by kernels
/// of their own.
#[test]
fn samples_have_channels_last() {
    let dir = tempfile::tempdir().expect("a folder");
    let model = dir.path().join("model.rlx");
    std::fs::write(&model, SAMPLES).expect("the model is written");
    let tir = relax_aot(&["print", path(&model), "--stage", "tir", "--target-cpu", "native"]);
    let kernels: Vec<&str> =
        tir.lines().filter(|l| l.trim_start().starts_with("def ") && !l.contains(" main(")).collect();
    let of = |name: &str, data: [i64; 4]| {
        let dims = data.map(|d| format!("T.int64({d})")).join(", ");
        kernels.iter().filter(|k| k.contains(name) && k.contains(&format!("data: T.Buffer(({dims})"))).count()
    };
    let (last, second) = ([1, 20, 18, 16], [1, 16, 20, 18]);
    assert_eq!([of("grid_sample", last), of("roi_align", last)], [1, 1], "{kernels:#?}");
    assert_eq!([of("grid_sample", [1, 3, 20, 18]), of("roi_align", second)], [1, 1], "{kernels:#?}");
    let mut inputs: Vec<Constant> =
        [vec![1, 16, 20, 18], vec![1, 2, 15, 11], vec![7, 5], vec![1, 3, 20, 18], vec![1, 5]]
            .iter()
            .zip(1..)
            .map(|(s, i)| tensor(s, i))
            .collect();
    for at in [2, 4] {
        // The only picture, and regions of some extent.
        let c = &inputs[at];
        let value = |i: usize| match i % 5 {
            0 => 0.0,
            1 | 2 => 4.0 * c.get_f64(i),
            _ => 9.0 + 4.0 * c.get_f64(i),
        };
        let bytes = (0..c.elements()).flat_map(|i| (value(i) as f32).to_le_bytes()).collect();
        inputs[at] = Constant::new(c.dtype, c.shape.clone(), bytes);
    }
    agree_on(dir.path(), &model, &inputs, 4, "samples");
}

/// Reductions of one tensor, with others between them.
const REDUCTIONS: &str = r#"
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 70, 66), dtype="float32")):
        n = T.int64()
        with R.dataflow():
            a = %1
            b = R.add(a, R.const(1.0, "float32"))
            c = %2
            d = R.multiply(b, R.sum(c))
            e = %3
            out = (b, c, d, e)
            R.output(out)
        return out
"#;

/// Rule `siblings`: reductions of one operand over the same axes, of elements side by side, are one kernel where they read far
/// more than they leave.
#[test]
fn reductions_of_one_operand_are_one_kernel() {
    let dir = tempfile::tempdir().expect("a folder");
    let model = dir.path().join("model.rlx");
    for (axes, others, joined) in [
        ("axis=[1, 2], keepdims=False", "axis=[1, 2], keepdims=False", "def min_max_mean("),
        ("axis=[2], keepdims=True", "axis=[2], keepdims=True", "def min_max_mean("),
        ("axis=[0, 2], keepdims=False", "axis=[0, 2], keepdims=False", "def min_max_mean("),
        ("keepdims=False", "axis=[1], keepdims=False", "def min_mean("),
        ("axis=[2], keepdims=False", "axis=[1], keepdims=False", "def min_mean("),
    ] {
        let [first, second, third] =
            [("min", axes), ("max", others), ("mean", axes)].map(|(op, axes)| format!("R.{op}(x, {axes})"));
        let text = REDUCTIONS.replace("%1", &first).replace("%2", &second).replace("%3", &third);
        std::fs::write(&model, text).expect("the model is written");
        let tir = relax_aot(&["print", path(&model), "--stage", "tir"]);
        assert!(tir.contains(joined), "{axes}, {others}: {tir}");
        for n in [1, 2, 9] {
            agree_on(dir.path(), &model, &[tensor(&[n, 70, 66], n)], 4, &format!("{axes}, {others}, {n}"));
        }
    }
    // Of few elements each, and of columns, they stay apart.
    for (axes, width) in [("axis=[1, 2], keepdims=False", "5"), ("axis=[1], keepdims=False", "66")] {
        let [first, second, third] = ["min", "max", "mean"].map(|op| format!("R.{op}(x, {axes})"));
        let text = REDUCTIONS.replace("%1", &first).replace("%2", &second).replace("%3", &third);
        let text = text.replace("70, 66", &format!("{}, {width}", if width == "5" { "7" } else { "70" }));
        std::fs::write(&model, text).expect("the model is written");
        let tir = relax_aot(&["print", path(&model), "--stage", "tir"]);
        assert!(!tir.contains("def min_m"), "{axes}: {tir}");
    }
}

/// Snake behind a convolution (neural audio codecs): sines, which wide vectors have no instructions for, are a kernel of their
/// own, and the convolution keeps the wide ones.
#[test]
fn sines_stay_out_of_convolutions() {
    const SNAKE: &str = r#"
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 8, 1, 40), dtype="float32"), w: R.Tensor((16, 8, 1, 3), dtype="float32"),
             a: R.Tensor((16, 1, 1), dtype="float32"), p: R.Tensor((16, 12), dtype="float32")):
        with R.dataflow():
            c = R.add(R.nn.conv2d(x, w, padding=[0, 1, 0, 1]), a)
            s = R.sin(R.multiply(c, a))
            y = R.add(c, R.multiply(s, s))
            z = R.cos(R.matmul(R.permute_dims(y, axes=[0, 2, 3, 1]), p))
            r = R.sum(R.tan(c), axis=[1])
            out = (y, z, r)
            R.output(out)
        return out
"#;
    let dir = tempfile::tempdir().expect("a folder");
    let model = dir.path().join("model.rlx");
    std::fs::write(&model, SNAKE).expect("the model is written");
    let tir = relax_aot(&["print", path(&model), "--stage", "tir"]);
    let kernels: Vec<&str> = tir.lines().filter_map(|l| l.trim().strip_prefix("def ")?.split('(').next()).collect();
    let angles = |k: &&str| ["sin", "cos", "tan"].iter().any(|f| k.split('_').any(|p| p.starts_with(f)));
    let products = |k: &&str| k.contains("conv2d") || k.contains("matmul");
    let (of_angles, both): (Vec<&str>, Vec<&str>) = (
        kernels.iter().copied().filter(angles).collect(),
        kernels.iter().copied().filter(|k| angles(k) && products(k)).collect(),
    );
    assert!(of_angles.len() >= 2 && both.is_empty(), "{kernels:?}");
    for n in [1, 3] {
        let inputs =
            [tensor(&[n, 8, 1, 40], 1), tensor(&[16, 8, 1, 3], 2), tensor(&[16, 1, 1], 3), tensor(&[16, 12], 4)];
        agree_on(dir.path(), &model, &inputs, 3, &n.to_string());
    }
}
