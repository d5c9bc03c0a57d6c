//! Convolutions ask for the weights of a classifier that follows: it reads each of them once.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod command;

use command::{path, relax_aot, weights};

/// `{n}`: pictures.
const ONE: &str = r#"@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(({n}, 640, 7, 7), "float32"), a: R.Tensor((640, 640, 1, 1), "float32"), w: R.Tensor((640, 1000), "float32")):
        with R.dataflow():
            y = R.nn.relu(R.nn.conv2d(x, a))
            z = R.matmul(R.reshape(R.mean(y, axis=[2, 3]), R.shape([{n}, 640])), w)
            R.output(z)
        return z
"#;

/// Both convolutions are one kernel, behind whose weights are others each time.
const TWO: &str = r#"@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(({n}, 640, 7, 7), "float32"), a: R.Tensor((640, 640, 1, 1), "float32"), b: R.Tensor((640, 640, 1, 1), "float32"), w: R.Tensor((640, 1000), "float32")):
        with R.dataflow():
            y = R.nn.relu(R.nn.conv2d(R.nn.relu(R.nn.conv2d(x, a)), b))
            z = R.matmul(R.reshape(R.mean(y, axis=[2, 3]), R.shape([{n}, 640])), w)
            R.output(z)
        return z
"#;

#[test]
fn classifiers_are_asked_for_ahead() {
    let list: &[(&str, &[i64])] = &[("a", &[640, 640, 1, 1]), ("w", &[640, 1000]), ("b", &[640, 640, 1, 1])];
    for (model, n, parts, asks) in [(ONE, 1, 2, true), (ONE, 16, 2, false), (TWO, 1, 3, false)] {
        for cpu in ["x86-64-v3", "x86-64-v4"] {
            let dir = tempfile::tempdir().expect("a folder");
            let [text, file, out] = ["m.rlx", "w.safetensors", "m.tir"].map(|f| dir.path().join(f));
            std::fs::write(&text, model.replace("{n}", &n.to_string())).expect("the model is written");
            weights(&file, &list[..parts], 3);
            let (text, file, flat) = (path(&text), path(&file), path(&out));
            // Pictures in one piece: one by one each of them would read the weights again.
            let whole = ["--specialize", "never"];
            relax_aot(
                &[&[text, "--params", file, "--emit", "flat", "--target-cpu", cpu, "-o", flat][..], &whole].concat(),
            );
            let all = std::fs::read_to_string(&out).expect("the text");
            // The classifier's weights lie behind these, of 640 x 640 x 4 bytes.
            let asked = all.lines().any(|l| l.contains("1638400") && !l.starts_with("data "));
            assert_eq!(asked, asks, "{n} pictures, {parts} weights, {cpu}");
            assert!(all.contains("prefetch("));
        }
    }
}
