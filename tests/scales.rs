//! Batch norms and constant factors behind convolutions: what they become, and that the results are those of the model as
//! written (`-O0`).
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod command;

use command::{path, relax_aot, tensor, weights};
use relax_aot::loader::Library;
use relax_ir::Constant;
use std::path::{Path, PathBuf};

const WEIGHTS: &[(&str, &[i64])] = &[
    ("w", &[24, 12, 3, 3]),
    ("d", &[24, 1, 3, 3]),
    ("t", &[24, 10, 2, 2]),
    ("s", &[24]),
    ("g", &[24, 1, 1]),
    ("b", &[1, 24, 1, 1]),
    ("m", &[24]),
    ("v", &[24]),
];

/// The model whose function computes `out` from `x` and `y`, with the weights above.
struct Model {
    _dir: tempfile::TempDir,
    text: PathBuf,
    params: PathBuf,
}

impl Model {
    fn new(body: &str) -> Model {
        let dir = tempfile::tempdir().expect("a folder");
        let (text, params) = (dir.path().join("model.rlx"), dir.path().join("w.safetensors"));
        let list =
            WEIGHTS.iter().map(|(n, s)| format!(", {n}: R.Tensor({}, \"float32\")", dims(s))).collect::<String>();
        let body: String = body.lines().map(|l| format!("            {}\n", l.trim())).collect();
        let model = format!(
            "@I.ir_module\nclass Module:\n    @R.function\n    def main(x: R.Tensor((1, 12, 14, 11), \"float32\"), y: \
             R.Tensor((\"n\", 24), \"float32\"){list}):\n        R.func_attr({{\"num_input\": 2}})\n        n = T.int64()\n        \
             with R.dataflow():\n            u = R.add(R.multiply(v, v), R.const(0.25, \"float32\"))\n{body}            \
             R.output(out)\n        return out\n"
        );
        std::fs::write(&text, model).expect("the model is written");
        weights(&params, WEIGHTS, 3);
        Model { _dir: dir, text, params }
    }

    fn tir(&self, options: &[&str]) -> String {
        let all = [&["print", path(&self.text), "--stage", "tir", "--params", path(&self.params)], options].concat();
        relax_aot(&all)
    }

    /// The kernels of the model for this machine.
    fn kernels(&self, options: &[&str]) -> Vec<String> {
        let tir = self.tir(&[&["--target-cpu", "native"], options].concat());
        let name = |l: &str| Some(l.trim_start().strip_prefix("def ")?.split('(').next()?.to_string());
        tir.lines().filter_map(name).filter(|n| n != "main").collect()
    }

    fn run(&self, options: &[&str], inputs: &[Constant]) -> Vec<f64> {
        let so = self.text.with_file_name(format!("lib{}.so", options.join("")));
        let all = [path(&self.text), "--params", path(&self.params), "--prefix", "m", "-o", path(&so)];
        relax_aot(&[&all[..], options].concat());
        let library = Library::open(Path::new(&so), "m").expect("the library");
        let results = library.run("main", inputs, 1).unwrap_or_else(|e| panic!("{}: {}", e.code, e.message));
        (0..results[0].elements()).map(|i| results[0].get_f64(i)).collect()
    }

    /// Every form has the results of the model as written.
    fn agrees(&self) {
        let inputs = [tensor(&[1, 12, 14, 11], 1), tensor(&[5, 24], 2)];
        let wanted = self.run(&["-O0"], &inputs);
        assert!(wanted.iter().any(|v| *v != 0.0) && wanted.iter().all(|v| v.is_finite()));
        for options in
            [&["--target-cpu", "baseline"][..], &["--target-cpu", "native"], &["--fp", "strict"], &["--threads", "2"]]
        {
            let got = self.run(options, &inputs);
            assert_eq!(wanted.len(), got.len());
            for (a, b) in wanted.iter().zip(&got) {
                assert!((a - b).abs() <= 1e-5 * (1.0 + a.abs()), "{options:?}: {b}, not {a}");
            }
        }
    }
}

fn dims(shape: &[i64]) -> String {
    format!("({},)", shape.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")).replace("(24, )", "(24,)")
}

fn batch_norm(x: &str, more: &str) -> String {
    format!("R.nn.batch_norm({x}, s, R.reshape(b, R.shape([24])), m, u, axis=1, training=False{more})[0]")
}

/// Rules `batch_norm` and `scaled weights`: the norm behind a convolution is in its weights and one constant, so that nothing
/// moves between channels first and last.
#[test]
fn batch_norms_are_in_weights() {
    for (more, kernel) in [
        ("", "conv2d_add_nn_relu"),
        (", center=False", "conv2d_add_nn_relu"),
        (", scale=False, epsilon=0.01", "conv2d_add_nn_relu"),
    ] {
        let norm = batch_norm("c", more);
        let model = Model::new(&format!(
            "c = R.nn.conv2d(x, w, padding=(1, 1))
             e = R.nn.relu({norm})
             f = R.nn.conv2d(e, d, padding=(1, 1), groups=24)
             out = R.nn.relu({})",
            batch_norm("f", more)
        ));
        let kernels = model.kernels(&[]);
        let fused: Vec<&String> = kernels.iter().filter(|k| k.ends_with(kernel)).collect();
        assert_eq!(fused.len(), 2, "{kernels:?}");
        assert!(kernels.iter().all(|k| k.contains("conv2d") || k.starts_with("permute_dims")), "{kernels:?}");
        assert!(kernels.len() <= 4, "{kernels:?}");
        model.agrees();
    }
}

/// Rule `batch_norm`: of what is no convolution it is a product and a sum; of a batch's own moments, and where the moments are read,
/// it stays.
#[test]
fn batch_norms_elsewhere() {
    let model = Model::new(&format!("out = R.nn.relu({})", batch_norm("y", "")));
    assert_eq!(model.kernels(&[]), ["fused_multiply_add_nn_relu"]);
    model.agrees();
    let own = Model::new("out = R.nn.batch_norm(y, s, m, m, u, axis=1, training=True)[0]");
    assert!(own.kernels(&[]).iter().any(|k| k.contains("batch_norm")));
    own.agrees();
    let read = Model::new("t = R.nn.batch_norm(y, s, m, m, u, axis=1, training=False)\nout = R.add(t[0], t[1])");
    assert!(read.kernels(&[]).iter().any(|k| k.contains("batch_norm")));
    read.agrees();
}

/// Rule `scaled weights`: factors and offsets by channel and numbers, on either side, and quotients; transposed convolutions, too.
#[test]
fn factors_are_in_weights() {
    let chain = "h = R.multiply(g, R.add(c, b))
                 i = R.divide(R.subtract(h, R.const(0.5, \"float32\")), R.const(3.0, \"float32\"))
                 j = R.subtract(R.reshape(m, R.shape([24, 1, 1])), i)";
    let model = Model::new(&format!("c = R.nn.conv2d(x, w, padding=(1, 1))\n{chain}\nout = R.tanh(j)"));
    let kernels = model.kernels(&[]);
    assert!(kernels.iter().any(|k| k.ends_with("conv2d_add_tanh")), "{kernels:?}");
    // The sums that the model has, in its order.
    let strict = model.kernels(&["--fp", "strict"]);
    assert!(strict.iter().any(|k| k.contains("conv2d_add_multiply")), "{strict:?}");
    model.agrees();
    let turned = Model::new(
        "c = R.nn.relu(R.nn.conv2d(x, w, padding=(1, 1)))
         e = R.nn.conv2d_transpose(c, t, strides=(2, 2))
         out = R.add(R.multiply(e, R.const(0.3, \"float32\")), R.const(0.1, \"float32\"))",
    );
    assert!(!turned.kernels(&[]).iter().any(|k| k.contains("multiply")), "{:?}", turned.kernels(&[]));
    turned.agrees();
}

/// Weights that two convolutions read, and sums that are read twice, stay as they are.
#[test]
fn shared_weights_stay() {
    let twice = Model::new(
        "c = R.multiply(R.nn.conv2d(x, w, padding=(1, 1)), g)
         e = R.multiply(R.nn.conv2d(R.negative(x), w, padding=(1, 1)), b)
         out = R.add(R.tanh(c), e)",
    );
    assert!(twice.kernels(&[]).iter().any(|k| k.contains("conv2d_multiply")), "{:?}", twice.kernels(&[]));
    twice.agrees();
    let read = Model::new("c = R.nn.conv2d(x, w, padding=(1, 1))\ne = R.multiply(c, g)\nout = R.add(R.tanh(c), e)");
    read.agrees();
}

/// Rule `scaled clip`: hard swish in the ways in which it is written has no division.
#[test]
fn hard_swish_has_no_division() {
    let (three, six) = ("R.const(3.0, \"float32\")", "R.const(6.0, \"float32\")");
    let zero = "R.const(0.0, \"float32\")";
    for out in [
        format!("R.divide(R.multiply(c, R.minimum(R.maximum(R.add(c, {three}), {zero}), {six})), {six})"),
        format!("R.multiply(c, R.divide(R.clip(R.add({three}, c), 0, 6), {six}))"),
        format!("R.multiply(R.const(0.16666667, \"float32\"), R.multiply(R.maximum({zero}, R.minimum({six}, R.add(c, {three}))), c))"),
    ] {
        let model = Model::new(&format!("c = R.nn.conv2d(x, w, padding=(1, 1))\nout = {out}"));
        let tir = model.tir(&["--target-cpu", "native"]);
        assert!(!tir.contains("/ T.float32(6"), "{tir}");
        let kernels = model.kernels(&[]);
        assert!(kernels.iter().any(|k| k.ends_with("multiply_add_maximum_minimum_multiply")), "{kernels:?}");
        model.agrees();
    }
}
