//! Weights that are next to nothing beside others are zero, unless floats are strict (rule `tiny weights`).
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod command;

use command::{path, relax_aot, tensor, weights};
use relax_aot::loader::Library;
use relax_ir::Constant;
use std::path::PathBuf;

/// A model with a weight of which every second row is small.
struct Model {
    _dir: tempfile::TempDir,
    text: PathBuf,
    params: PathBuf,
}

const ROWS: usize = 12;

impl Model {
    /// A function of `x`, `[ROWS, 3, 2, 2]`, and a weight `w` of that shape whose odd rows are about `small` and whose others are about
    /// `large`.
    fn new(body: &str, large: f32, small: f32) -> Model {
        let dir = tempfile::tempdir().expect("a folder");
        let (text, params) = (dir.path().join("model.rlx"), dir.path().join("w.safetensors"));
        let body: String = body.lines().map(|l| format!("            {}\n", l.trim())).collect();
        let tensor_of = "R.Tensor((12, 3, 2, 2), dtype=\"float32\")";
        let model = format!(
            "@I.ir_module\nclass Module:\n    @R.function\n    def main(x: {tensor_of}, w: {tensor_of}):\n        \
             R.func_attr({{\"num_input\": 1}})\n        with R.dataflow():\n{body}            R.output(out)\n        return out\n"
        );
        std::fs::write(&text, model).expect("the model is written");
        weights(&params, &[("w", &[12, 3, 2, 2])], 1);
        let mut bytes = std::fs::read(&params).expect("the weights");
        let data = bytes.len() - 4 * ROWS * 12;
        for (i, b) in bytes[data..].chunks_exact_mut(4).enumerate() {
            let factor = if i / 12 % 2 == 1 { small } else { large };
            let v = f32::from_le_bytes([b[0], b[1], b[2], b[3]]) * factor;
            b.copy_from_slice(&v.to_le_bytes());
        }
        std::fs::write(&params, bytes).expect("the weights are written");
        Model { _dir: dir, text, params }
    }

    /// The results for data of about this size.
    fn run(&self, options: &[&str], size: f64) -> Vec<f64> {
        let so = self.text.with_file_name("libm.so");
        let all = [path(&self.text), "--params", path(&self.params), "--prefix", "m", "-o", path(&so)];
        relax_aot(&[&all[..], options].concat());
        let library = Library::open(&so, "m").expect("the library");
        let x = tensor(&[ROWS as i64, 3, 2, 2], 2);
        let values = (0..x.elements()).flat_map(|i| ((x.get_f64(i) * size) as f32).to_le_bytes()).collect();
        let x = Constant::new(x.dtype, x.shape.clone(), values);
        let out = library.run("main", &[x], 1).unwrap_or_else(|e| panic!("{}: {}", e.code, e.message));
        (0..out[0].elements()).map(|i| out[0].get_f64(i)).collect()
    }

    /// Asserts that the default library has zeros where the strict one has what is made of small weights alone (`zeros` such elements),
    /// and otherwise the same.
    fn holds(&self, what: &str, zeros: usize) {
        for options in [["--target-cpu", "native"], ["--target-cpu", "baseline"]] {
            let (strict, got) = (self.run(&["--fp", "strict"], 1e25), self.run(&options, 1e25));
            let most = strict.iter().fold(0f64, |m, v| m.max(v.abs()));
            assert!(most > 0.0 && strict.iter().all(|v| *v != 0.0), "{what}: {strict:?}");
            assert_eq!(got.iter().filter(|v| **v == 0.0).count(), zeros, "{what} {options:?}: {got:?}");
            for (a, b) in strict.iter().zip(&got).filter(|(_, b)| **b != 0.0) {
                assert!((a - b).abs() <= 1e-5 * most, "{what} {options:?}: {b}, not {a}");
            }
        }
    }
}

const CONV: &str = "out = R.nn.conv2d(x, w)";

/// Rule `tiny weights`: those of convolutions, of products on either side, and of views and transpositions, subnormal or not.
#[test]
fn tiny_weights_are_zero() {
    let turned = "k = R.permute_dims(R.reshape(w, R.shape([12, 12])), axes=[1, 0])\n";
    let rows = "y = R.reshape(x, R.shape([12, 12]))\n";
    for small in [1e-39, 1e-32] {
        Model::new(CONV, 1.0, small).holds("conv2d", 12 * 6);
        Model::new(&format!("{turned}{rows}out = R.matmul(y, k)"), 1.0, small).holds("matmul", 12 * 6);
        let left = format!("{rows}v = R.reshape(w, R.shape([12, 12]))\nout = R.matmul(v, y)");
        Model::new(&left, 1.0, small).holds("matmul from the left", 12 * 6);
        Model::new("out = R.nn.conv2d_transpose(R.reshape(x, R.shape([1, 12, 4, 3])), w)", 1.0, small)
            .holds("conv2d_transpose", 0);
    }
}

/// Weights of 2^-100 and more, weights that are small beside small ones alone, and what anything but a product reads stay.
#[test]
fn others_stay() {
    Model::new(CONV, 1.0, 1e-29).holds("not small enough", 0);
    Model::new(CONV, 1e-20, 1e-35).holds("beside small ones", 0);
    Model::new(CONV, 1e-32, 1e-32).holds("all alike", 0);
    let table = "i = R.const([1, 3], \"int64\")\nout = R.multiply(R.take(w, i, axis=0), R.const(2.0, \"float32\"))";
    Model::new(table, 1.0, 1e-35).holds("a table", 0);
    Model::new("out = R.multiply(x, w)", 1.0, 1e-35).holds("elementwise", 0);
    let both = "c = R.nn.conv2d(x, w)\nout = R.add(R.sum(c, axis=[1], keepdims=True), R.multiply(R.multiply(x, w), R.const(1e5, \"float32\")))";
    Model::new(both, 1.0, 1e-35).holds("read by both", 0);
}
