//! Convolutions that hand each other large tensors become kernels that go down bands of rows: the results, whole tensors
//! aside, and for several threads the bits, are the same.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod command;

use command::{path, relax_aot, tensor, weights};
use relax_aot::loader::Library;
use relax_ir::Constant;

/// The first layers of a network of inverted residual blocks: one ends in what two read, the second has other windows.
const MODEL: &str = r#"@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 3, 181, 199), "float32"), a: R.Tensor((32, 3, 3, 3), "float32"), b: R.Tensor((32, 1, 3, 3), "float32"), c: R.Tensor((16, 32, 1, 1), "float32"), d: R.Tensor((96, 16, 1, 1), "float32"), e: R.Tensor((96, 1, 3, 3), "float32"), f: R.Tensor((16, 96, 1, 1), "float32"), g: R.Tensor((96, 16, 1, 1), "float32"), h: R.Tensor((96, 1, 5, 5), "float32"), p: R.Tensor((24, 96, 1, 1), "float32")):
        with R.dataflow():
            s = R.clip(R.nn.conv2d(x, a, strides=[2, 2], padding=[1, 1, 1, 1]), 0, 6)
            t = R.clip(R.nn.conv2d(s, b, padding=[1, 1, 1, 1], groups=32), 0, 6)
            u = R.nn.conv2d(t, c)
            v = R.clip(R.nn.conv2d(u, d), 0, 6)
            w = R.clip(R.nn.conv2d(v, e, padding=[1, 1, 1, 1], groups=96), 0, 6)
            y = R.add(R.nn.conv2d(w, f), u)
            z = R.nn.silu(R.nn.conv2d(y, g))
            q = R.nn.silu(R.nn.conv2d(z, h, strides=[2, 2], padding=[2, 1, 2, 1], groups=96))
            o = (R.nn.conv2d(q, p), R.mean(y, axis=[2, 3]))
            R.output(o)
        return o
"#;

const WEIGHTS: &[(&str, &[i64])] = &[
    ("a", &[32, 3, 3, 3]),
    ("b", &[32, 1, 3, 3]),
    ("c", &[16, 32, 1, 1]),
    ("d", &[96, 16, 1, 1]),
    ("e", &[96, 1, 3, 3]),
    ("f", &[16, 96, 1, 1]),
    ("g", &[96, 16, 1, 1]),
    ("h", &[96, 1, 5, 5]),
    ("p", &[24, 96, 1, 1]),
];

/// Bytes of the largest tensor between two convolutions.
const LARGEST: usize = 91 * 100 * 96 * 4;

#[test]
fn results_and_workspace() {
    let dir = tempfile::tempdir().expect("a folder");
    let [text, file] = ["m.rlx", "w.safetensors"].map(|f| dir.path().join(f));
    std::fs::write(&text, MODEL).expect("the model is written");
    weights(&file, WEIGHTS, 5);
    let inputs = [tensor(&[1, 3, 181, 199], 3)];
    let run = |options: &[&str]| -> (Vec<Constant>, usize) {
        let so = dir.path().join(format!("lib{}.so", options.join("")));
        let (text, file) = (path(&text), path(&file));
        relax_aot(&[&[text, "--params", file, "--prefix", "m", "-o", path(&so)], options].concat());
        let about = relax_aot(&["inspect", path(&so)]);
        let bytes =
            about.lines().find_map(|l| l.trim().strip_prefix("workspace: ")?.strip_suffix(" bytes")?.parse().ok());
        let library = Library::open(&so, "m").expect("the library");
        let results = library.run("main", &inputs, 2).unwrap_or_else(|e| panic!("{}: {}", e.code, e.message));
        (results, bytes.expect("a workspace"))
    };
    let (wanted, _) = run(&["-O0"]);
    let wide = std::arch::is_x86_feature_detected!("avx512vl") && std::arch::is_x86_feature_detected!("avx512dq");
    let fused = std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma");
    for (cpu, runs) in [("x86-64-v3", fused), ("x86-64-v4", wide), ("auto", true)] {
        // What this machine lacks it cannot run.
        if !runs {
            continue;
        }
        let (got, bytes) = run(&["--target-cpu", cpu]);
        for (a, b) in wanted.iter().zip(&got) {
            for i in 0..a.elements() {
                let (a, b) = (a.get_f64(i), b.get_f64(i));
                assert!((a - b).abs() <= 2e-5 * (1.0 + a.abs()), "{cpu}: {b}, not {a}");
            }
        }
        assert!(bytes < LARGEST, "{cpu}: {bytes} bytes of workspace");
        let (apart, bytes) = run(&["--target-cpu", cpu, "--threads", "2"]);
        assert!(bytes > LARGEST, "{cpu}: tensors that threads share are whole");
        assert!(got.iter().zip(&apart).all(|(a, b)| a.bytes() == b.bytes()), "{cpu}");
    }
}
