//! Divisions of dims inside kernels: the same quotients and remainders, of either sign, in the kernels of several processors.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod command;

use command::{path, relax_aot, tensor, weights};
use relax_aot::loader::Library;

/// Reads `x` from places that are quotients and remainders of `a - 40` by `b - 3`.
const MODEL: &str = r#"
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def moved(x: T.handle, a: T.int64, b: T.int64, out: T.handle):
        n = T.int64()
        data = T.match_buffer(x, (n,), "float32")
        y = T.match_buffer(out, (4, 64), "float32")
        for i in T.grid(64):
            with T.sblock("quotient"):
                vi = T.axis.remap("S", [i])
                y[0, vi] = data[vi + 100 + T.truncdiv(a - 40, b - 3)] * T.float32(2)
        for i in T.grid(64):
            with T.sblock("remainder"):
                vi = T.axis.remap("S", [i])
                y[1, vi] = data[vi + 100 + T.truncmod(a - 40, b - 3)] * T.float32(2)
        for i in T.grid(64):
            with T.sblock("floor"):
                vi = T.axis.remap("S", [i])
                y[2, vi] = data[vi + 100 + (a - 40) // (b - 3)] * T.float32(2)
        for i in T.grid(64):
            with T.sblock("modulo"):
                vi = T.axis.remap("S", [i])
                y[3, vi] = data[vi + 100 + (a - 40) % (b - 3)] * T.float32(2)

    @R.function
    def main(x: R.Tensor((264,), dtype="float32"), p: R.Tensor(("a",), dtype="float32"), q: R.Tensor(("b",), dtype="float32")):
        a, b = T.int64(), T.int64()
        cls = Module
        y = R.call_tir(cls.moved, (x, a, b), out_ty=R.Tensor((4, 64), dtype="float32"))
        return y
"#;

#[test]
fn quotients_of_dims_are_the_same_on_every_processor() {
    let dir = tempfile::tempdir().expect("a folder");
    let text = dir.path().join("model.rlx");
    std::fs::write(&text, MODEL).expect("the model is written");
    let data = dir.path().join("x.safetensors");
    weights(&data, &[("x", &[264])], 3);
    let x = tensor(&[264], 3);
    let fused = std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma");
    for (cpu, has) in [("baseline", true), ("x86-64-v3", fused), ("native", true)] {
        if !has {
            continue;
        }
        let so = dir.path().join(format!("{cpu}.so"));
        let args = ["--params", path(&data), "--prefix", "m", "-o", path(&so), "--target-cpu", cpu];
        relax_aot(&[&[path(&text)][..], &args].concat());
        let library = Library::open(&so, "m").expect("the library");
        for a in [0i64, 1, 33, 39, 40, 41, 47, 97] {
            for b in [0i64, 1, 2, 3, 4, 5, 10, 80] {
                let args = [a, b].map(|n| tensor(&[n], 1));
                let got = library.run("main", &args, 1).unwrap_or_else(|e| panic!("{}", e.message));
                let (over, by) = (a - 40, b - 3);
                // By 0 both are 0.
                let (quotient, remainder) = (over.checked_div(by).unwrap_or(0), over.checked_rem(by).unwrap_or(0));
                let down = (remainder != 0 && (remainder < 0) != (by < 0)) as i64;
                let wanted = [quotient, remainder, quotient - down, remainder + down * by];
                for (row, at) in wanted.into_iter().enumerate() {
                    for i in [0, 63] {
                        let value = got[0].get_f64(row * 64 + i);
                        let read = x.get_f64((i as i64 + 100 + at) as usize);
                        assert_eq!(value, 2.0 * read, "{cpu}, {over} by {by}, row {row}, {i}");
                    }
                }
            }
        }
    }
}
