//! Products, softmax of their rows and what that weighs go by bands of rows: results, a workspace without the scores, the bits
//! of several threads.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

#[expect(dead_code, reason = "there are no weights here")]
mod command;

use command::{path, relax_aot, tensor};
use relax_aot::loader::Library;
use relax_ir::Constant;
use std::path::Path;

/// Attention as exporters write it out, with a mask, over rows and keys of three heads; dims without a number are open.
fn written_out(m: Option<i64>, n: Option<i64>) -> String {
    let name = |d: Option<i64>, name: &str| d.map_or(name.to_string(), |d| d.to_string());
    let quoted = |d: Option<i64>, name: &str| d.map_or(format!("\"{name}\""), |d| d.to_string());
    let declared =
        |d: Option<i64>, name: &str| if d.is_none() { format!("        {name} = T.int64()\n") } else { String::new() };
    let (rows, keys, row, key) = (quoted(m, "m"), quoted(n, "n"), name(m, "m"), name(n, "n"));
    format!(
        r#"@I.ir_module
class Module:
    @R.function
    def main(q: R.Tensor((1, {rows}, 144), "float32"), k: R.Tensor((1, {keys}, 144), "float32"), v: R.Tensor((1, {keys}, 144), "float32"), mask: R.Tensor((1, 1, 1, {keys}), "float32")):
{}{}        with R.dataflow():
            qh = R.permute_dims(R.reshape(q, R.shape([1, {row}, 3, 48])), axes=[0, 2, 1, 3])
            kh = R.permute_dims(R.reshape(k, R.shape([1, {key}, 3, 48])), axes=[0, 2, 3, 1])
            vh = R.permute_dims(R.reshape(v, R.shape([1, {key}, 3, 48])), axes=[0, 2, 1, 3])
            s = R.add(R.multiply(R.matmul(qh, kh), R.const(0.14433756, "float32")), mask)
            o = R.matmul(R.nn.softmax(s, axis=-1), vh)
            y = R.reshape(R.permute_dims(o, axes=[0, 2, 1, 3]), R.shape([1, {row}, 144]))
            R.output(y)
        return y
"#,
        declared(m, "m"),
        declared(n, "n")
    )
}

/// The operators, whose scores are the same; two batches and keys for each two heads.
const OPERATORS: &str = r#"@I.ir_module
class Module:
    @R.function
    def main(q: R.Tensor((2, 260, 4, 32), "float32"), k: R.Tensor((2, 290, 2, 32), "float32"), v: R.Tensor((2, 290, 2, 24), "float32"), b: R.Tensor((2, 4, 260, 290), "float32")):
        with R.dataflow():
            x = R.nn.attention(q, k, v)
            y = R.nn.attention(q, k, v, causal_mask="BottomRight", window_size=100)
            z = R.nn.attention_bias(q, k, v, b, scale=0.5, causal_mask="TopLeft")
            o = (x, y, z)
            R.output(o)
        return o
"#;

/// Processors whose kernels this machine runs.
fn processors() -> Vec<&'static str> {
    let wide = std::arch::is_x86_feature_detected!("avx512vl") && std::arch::is_x86_feature_detected!("avx512dq");
    let fused = std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma");
    let all = [("x86-64-v3", fused), ("x86-64-v4", wide), ("auto", true)];
    all.into_iter().filter(|(_, runs)| *runs).map(|(cpu, _)| cpu).collect()
}

/// A library of this model.
fn compile(dir: &Path, text: &str, options: &[&str]) -> (Library, String) {
    let [file, so] = ["m.rlx".to_string(), format!("lib{}.so", options.join(""))].map(|f| dir.join(f));
    std::fs::write(&file, text).expect("the model is written");
    relax_aot(&[&[path(&file), "--prefix", "m", "-o", path(&so)], options].concat());
    (Library::open(&so, "m").expect("the library"), relax_aot(&["inspect", path(&so)]))
}

fn run(library: &Library, inputs: &[Constant]) -> Vec<Constant> {
    // Of the first model one, whose heads lie side by side; of the second three.
    let results = if inputs[0].shape.len() == 3 { 1 } else { 3 };
    library.run("main", inputs, results).unwrap_or_else(|e| panic!("{}: {}", e.code, e.message))
}

fn workspace(about: &str) -> usize {
    let of = |l: &str| l.trim().strip_prefix("workspace: ")?.strip_suffix(" bytes")?.parse().ok();
    about.lines().find_map(of).expect("a workspace")
}

fn close(wanted: &[Constant], got: &[Constant], what: &str) {
    assert_eq!(wanted.len(), got.len());
    for (a, b) in wanted.iter().zip(got) {
        for i in 0..a.elements() {
            let (a, b) = (a.get_f64(i), b.get_f64(i));
            assert!((a - b).abs() <= 1e-5 * (1.0 + a.abs()), "{what}: {b}, not {a}");
        }
    }
}

fn same(a: &[Constant], b: &[Constant]) -> bool {
    a.iter().zip(b).all(|(a, b)| a.bytes() == b.bytes())
}

/// What it is called with.
fn arguments(m: i64, n: i64) -> Vec<Constant> {
    vec![tensor(&[1, m, 144], 1), tensor(&[1, n, 144], 2), tensor(&[1, n, 144], 3), tensor(&[1, 1, 1, n], 4)]
}

/// Bands with rows left over and without, and one band.
#[test]
fn bands_of_known_sizes() {
    for (m, n) in [(700, 530), (240, 1000), (120, 400)] {
        let dir = tempfile::tempdir().expect("a folder");
        let (text, inputs) = (written_out(Some(m), Some(n)), arguments(m, n));
        let wanted = run(&compile(dir.path(), &text, &["-O0"]).0, &inputs);
        let scores = (3 * m * n * 4) as usize;
        for cpu in processors() {
            let (library, about) = compile(dir.path(), &text, &["--target-cpu", cpu]);
            let got = run(&library, &inputs);
            close(&wanted, &got, &format!("{m} by {n}, {cpu}"));
            assert!(workspace(&about) < scores, "{cpu}: {} bytes beside {scores} of scores", workspace(&about));
            let (library, about) = compile(dir.path(), &text, &["--target-cpu", cpu, "--threads", "2"]);
            assert!(same(&got, &run(&library, &inputs)), "{m} by {n}, {cpu}: two threads");
            assert!(workspace(&about) < 2 * scores, "{cpu}: a workspace of bands for each thread");
        }
    }
}

/// One library for all numbers of rows and keys: fewer rows than a band has, bands, and rows behind them; and bands of a
/// known length.
#[test]
fn bands_of_open_sizes() {
    let dir = tempfile::tempdir().expect("a folder");
    for keys in [None, Some(300)] {
        let text = written_out(None, keys);
        let reference = compile(dir.path(), &text, &["-O0"]).0;
        for cpu in processors() {
            let library = compile(dir.path(), &text, &["--target-cpu", cpu]).0;
            let shared = compile(dir.path(), &text, &["--target-cpu", cpu, "--threads", "2"]).0;
            for m in [1, 17, 96, 301, 480] {
                let inputs = arguments(m, keys.unwrap_or(m + 3));
                let got = run(&library, &inputs);
                close(&run(&reference, &inputs), &got, &format!("{m} rows, {cpu}"));
                assert!(same(&got, &run(&shared, &inputs)), "{m} rows, {cpu}: two threads");
            }
        }
    }
}

/// `R.nn.attention` with masks of each kind.
#[test]
fn operators() {
    let dir = tempfile::tempdir().expect("a folder");
    let inputs = [
        tensor(&[2, 260, 4, 32], 1),
        tensor(&[2, 290, 2, 32], 2),
        tensor(&[2, 290, 2, 24], 3),
        tensor(&[2, 4, 260, 290], 4),
    ];
    let wanted = run(&compile(dir.path(), OPERATORS, &["-O0"]).0, &inputs);
    for cpu in processors() {
        let (library, about) = compile(dir.path(), OPERATORS, &["--target-cpu", cpu]);
        let got = run(&library, &inputs);
        close(&wanted, &got, cpu);
        let scores = 2 * 4 * 260 * 290 * 4;
        assert!(workspace(&about) < scores, "{cpu}: {} bytes beside {scores} of scores", workspace(&about));
        let shared = compile(dir.path(), OPERATORS, &["--target-cpu", cpu, "--threads", "2"]).0;
        assert!(same(&got, &run(&shared, &inputs)), "{cpu}: two threads");
    }
}
