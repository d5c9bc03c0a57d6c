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

/// Rows shorter than a vector, than three, and longer ones; one row, one column.
#[test]
fn of_every_width() {
    let dir = tempfile::tempdir().expect("a folder");
    let (model, params) = (dir.path().join("model.rlx"), dir.path().join("w.safetensors"));
    std::fs::write(&model, MODEL).expect("the model is written");
    weights(&params, &[("a", &[20, 8, 3, 3]), ("b", &[36, 20, 3, 3]), ("c", &[17, 36, 1, 1])], 3);
    let wide = std::arch::is_x86_feature_detected!("avx512vl") && std::arch::is_x86_feature_detected!("avx512dq");
    let fused = std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma");
    let levels = [("baseline", true), ("x86-64-v3", fused), ("x86-64-v4", wide), ("native", true)];
    for (cpu, _) in levels.into_iter().filter(|l| l.1) {
        let library = |so: &str, bound: &[&str]| {
            let so = dir.path().join(so);
            let args = [path(&model), "--params", path(&params), "--prefix", "m", "-o", path(&so), "--target-cpu", cpu];
            relax_aot(&[&args[..], bound].concat());
            Library::open(&so, "m").expect("the library")
        };
        let open = library(&format!("{cpu}.so"), &[]);
        for (h, w) in
            [(1, 1), (2, 3), (5, 7), (9, 14), (7, 17), (16, 32), (3, 47), (11, 48), (6, 69), (4, 96), (5, 131), (40, 1)]
        {
            let bound = library(&format!("{cpu}{h}x{w}.so"), &["--dim", &format!("h={h}"), "--dim", &format!("w={w}")]);
            let x = tensor(&[1, 8, h, w], 1);
            let run =
                |l: &Library| l.run("main", &[x.clone()], 1).unwrap_or_else(|e| panic!("{}", e.message)).remove(0);
            let (got, wanted) = (run(&open), run(&bound));
            assert_eq!(got.shape, wanted.shape);
            for i in 0..got.elements() {
                let (a, b) = (got.get_f64(i), wanted.get_f64(i));
                assert!((a - b).abs() < 1e-4 * (1.0 + b.abs()), "{cpu}, {h}x{w}: {a} at {i}, not {b}");
            }
        }
    }
}
