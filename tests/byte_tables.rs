//! Functions of one quantised tensor, read from tables of 256 bytes, in the kernels of several processors and dealt out to
//! threads: what operators in floats give, rounded (ONNX QuantizeLinear 10).
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

#[expect(dead_code, reason = "nothing is asked of the command but a library")]
mod command;

use command::{path, relax_aot};
use relax_aot::loader::Library;
use relax_ir::{Constant, DType};

/// Rows and columns that fill no round of a kernel.
const SHAPE: [i64; 2] = [501, 523];
const STEP: f64 = 1.0 / 256.0;

const MODEL: &str = r#"@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((501, 523), "float32")):
        with R.dataflow():
            q0 = R.quantize(x, R.const(0.0625, "float32"), R.const(-16, "int8"), axis=-1, out_dtype="int8")
            d0 = R.dequantize(q0, R.const(0.0625, "float32"), R.const(-16, "int8"), axis=-1, out_dtype="float32")
            q1 = R.quantize(R.sigmoid(d0), R.const(0.00390625, "float32"), R.const(0, "uint8"), axis=-1, out_dtype="uint8")
            r = R.dequantize(q1, R.const(0.00390625, "float32"), R.const(0, "uint8"), axis=-1, out_dtype="float32")
            R.output(r)
        return r
"#;

#[test]
fn results_are_rounded() {
    let dir = tempfile::tempdir().expect("a folder");
    let [file, so, flat] = ["model.rlx", "m.so", "m.flat"].map(|name| dir.path().join(name));
    std::fs::write(&file, MODEL).expect("the model is written");
    let steps: Vec<i64> = (0..SHAPE[0] * SHAPE[1]).map(|i| i * 7919 % 256 - 112).collect();
    let x = steps.iter().flat_map(|n| (*n as f32 / 16.0).to_le_bytes()).collect();
    let x = Constant::new(DType::F32, SHAPE.to_vec(), x);
    let wide = std::arch::is_x86_feature_detected!("avx512vl") && std::arch::is_x86_feature_detected!("avx512dq");
    let fused = std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma");
    let levels = [("x86-64-v3", fused), ("auto", true), ("x86-64-v4", wide), ("native", true)];
    for (cpu, threads) in levels.iter().filter(|l| l.1).flat_map(|l| [(l.0, "1"), (l.0, "3")]) {
        let args = [path(&file), "--prefix", "m", "--target-cpu", cpu, "--threads", threads];
        relax_aot(&[&args[..], &["-o", path(&so)]].concat());
        relax_aot(&[&args[..], &["-o", path(&flat), "--emit", "flat"]].concat());
        let text = std::fs::read_to_string(&flat).expect("the kernels");
        assert!(cpu == "auto" || text.contains("qtable") && !text.contains("sigmoid"), "{cpu}: no table");
        let library = Library::open(&so, "m").expect("the library");
        let made = library.run("main", &[x.clone()], 1).unwrap_or_else(|e| panic!("{cpu}: {}", e.message));
        let floats = made[0].bytes().chunks(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]) as f64);
        for (n, y) in steps.iter().zip(floats) {
            let exact = (1.0 / (1.0 + (-(*n as f64) / 16.0).exp())).min(255.0 * STEP);
            let off = (y - exact).abs() / STEP;
            assert!(
                off < 0.5 + 1e-4 && y / STEP % 1.0 == 0.0,
                "{cpu}, {threads} threads: {y} of {n}, {off} steps away"
            );
        }
    }
}

/// A PrimFunc that writes in place changes what is read by that name, and no other tensor of the same bytes.
#[test]
fn what_is_written_in_place_is_nobody_elses() {
    const TEXT: &str = r#"@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def bump(a: T.Buffer((T.int64(4), T.int64(6)), "float32")):
        for i, j in T.grid(T.int64(4), T.int64(6)):
            with T.sblock("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                a[vi, vj] = a[vi, vj] + T.float32(2)

    @R.function
    def main(x: R.Tensor((4, 6), "float32")):
        cls = Module
        q0 = R.quantize(x, R.const(0.0625, "float32"), R.const(3, "int8"), axis=-1, out_dtype="int8")
        d0 = R.dequantize(q0, R.const(0.0625, "float32"), R.const(3, "int8"), axis=-1, out_dtype="float32")
        q2 = R.quantize(d0, R.const(0.0625, "float32"), R.const(3, "int8"), axis=-1, out_dtype="int8")
        d2 = R.dequantize(q2, R.const(0.0625, "float32"), R.const(3, "int8"), axis=-1, out_dtype="float32")
        w = R.call_tir_inplace(cls.bump, (d2,), out_ty=R.Tensor((4, 6), dtype="float32"), inplace_indices=[0])
        q3 = R.quantize(R.sigmoid(d2), R.const(0.00390625, "float32"), R.const(0, "uint8"), axis=-1, out_dtype="uint8")
        d3 = R.dequantize(q3, R.const(0.00390625, "float32"), R.const(0, "uint8"), axis=-1, out_dtype="float32")
        return (d0, w, d3)
"#;
    let dir = tempfile::tempdir().expect("a folder");
    let [file, so] = ["model.rlx", "m.so"].map(|name| dir.path().join(name));
    std::fs::write(&file, TEXT).expect("the model is written");
    relax_aot(&[path(&file), "--prefix", "m", "--target-cpu", "native", "-o", path(&so)]);
    let given: Vec<f32> = (-12..12).map(|n| n as f32 / 16.0).collect();
    let x = Constant::new(DType::F32, vec![4, 6], given.iter().flat_map(|v| v.to_le_bytes()).collect());
    let made =
        Library::open(&so, "m").expect("the library").run("main", &[x], 3).unwrap_or_else(|e| panic!("{}", e.message));
    let floats = |i: usize| -> Vec<f32> {
        made[i].bytes().chunks(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    };
    let bumped: Vec<f32> = given.iter().map(|v| v + 2.0).collect();
    assert_eq!((floats(0), floats(1)), (given, bumped.clone()));
    for (y, v) in floats(2).into_iter().zip(bumped) {
        assert!((y - 1.0 / (1.0 + (-v).exp())).abs() <= 0.501 * STEP as f32, "{y} of {v}");
    }
}
