//! Quantised networks over images of open sizes beside the same ones whose sizes are bound, in the kernels of several
//! processors: the same bits.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

#[expect(dead_code, reason = "weights here are bytes")]
mod command;

use command::{path, relax_aot, tensor};
use relax_aot::loader::Library;
use std::path::Path;

/// Convolutions with borders, of one point, depthwise ones and those with a sum behind them, a sum that has nothing before
/// it, maxima, a mean and a product.
const MODEL: &str = r#"@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((BATCH, 3, "h", "w"), "float32"), w0: R.Tensor((36, 3, 3, 3), "int8"), w1: R.Tensor((36, 1, 3, 3), "int8"), w2: R.Tensor((68, 36, 1, 1), "int8"), w3: R.Tensor((68, 68, 3, 3), "int8"), w4: R.Tensor((10, 68), "int8")):
        with R.dataflow():
            q0 = R.quantize(x, R.const(0.02, "float32"), R.const(3, "int8"), axis=-1, out_dtype="int8")
            d0 = R.dequantize(q0, R.const(0.02, "float32"), R.const(3, "int8"), axis=-1, out_dtype="float32")
            f0 = R.dequantize(w0, R.const(0.01, "float32"), R.const(0, "int8"), axis=0, out_dtype="float32")
            c0 = R.nn.conv2d(d0, f0, padding=[1, 1, 1, 1])
            q1 = R.quantize(c0, R.const(0.05, "float32"), R.const(-128, "int8"), axis=-1, out_dtype="int8")
            d1 = R.dequantize(q1, R.const(0.05, "float32"), R.const(-128, "int8"), axis=-1, out_dtype="float32")
            f1 = R.dequantize(w1, R.const(0.01, "float32"), R.const(0, "int8"), axis=0, out_dtype="float32")
            c1 = R.nn.conv2d(d1, f1, strides=[2, 2], padding=[1, 1, 1, 1], groups=36)
            q2 = R.quantize(c1, R.const(0.06, "float32"), R.const(4, "int8"), axis=-1, out_dtype="int8")
            d2 = R.dequantize(q2, R.const(0.06, "float32"), R.const(4, "int8"), axis=-1, out_dtype="float32")
            e1 = R.nn.conv2d(d2, f1, padding=[1, 1, 1, 1], groups=36)
            q3 = R.quantize(e1, R.const(0.07, "float32"), R.const(2, "int8"), axis=-1, out_dtype="int8")
            d3 = R.dequantize(q3, R.const(0.07, "float32"), R.const(2, "int8"), axis=-1, out_dtype="float32")
            a3 = R.add(d3, d2)
            q4 = R.quantize(a3, R.const(0.09, "float32"), R.const(0, "uint8"), axis=-1, out_dtype="uint8")
            d4 = R.dequantize(q4, R.const(0.09, "float32"), R.const(0, "uint8"), axis=-1, out_dtype="float32")
            f2 = R.dequantize(w2, R.const(0.006, "float32"), R.const(0, "int8"), axis=0, out_dtype="float32")
            c4 = R.nn.conv2d(d4, f2)
            q5 = R.quantize(c4, R.const(0.07, "float32"), R.const(121, "uint8"), axis=-1, out_dtype="uint8")
            d5 = R.dequantize(q5, R.const(0.07, "float32"), R.const(121, "uint8"), axis=-1, out_dtype="float32")
            f3 = R.dequantize(w3, R.const(0.004, "float32"), R.const(0, "int8"), axis=0, out_dtype="float32")
            c5 = R.nn.conv2d(d5, f3, padding=[1, 1, 1, 1])
            q6 = R.quantize(c5, R.const(0.08, "float32"), R.const(100, "uint8"), axis=-1, out_dtype="uint8")
            d6 = R.dequantize(q6, R.const(0.08, "float32"), R.const(100, "uint8"), axis=-1, out_dtype="float32")
            a6 = R.add(d6, d5)
            q7 = R.quantize(a6, R.const(0.09, "float32"), R.const(0, "uint8"), axis=-1, out_dtype="uint8")
            d7 = R.dequantize(q7, R.const(0.09, "float32"), R.const(0, "uint8"), axis=-1, out_dtype="float32")
            m7 = R.nn.max_pool2d(d7, pool_size=[3, 3], strides=[2, 2], padding=[1, 1, 1, 1])
            q8 = R.quantize(m7, R.const(0.09, "float32"), R.const(0, "uint8"), axis=-1, out_dtype="uint8")
            d8 = R.dequantize(q8, R.const(0.09, "float32"), R.const(0, "uint8"), axis=-1, out_dtype="float32")
            c8 = R.nn.conv2d(d8, f3, strides=[2, 1], padding=[1, 1, 1, 1])
            q9 = R.quantize(c8, R.const(0.1, "float32"), R.const(-9, "int8"), axis=-1, out_dtype="int8")
            d9 = R.dequantize(q9, R.const(0.1, "float32"), R.const(-9, "int8"), axis=-1, out_dtype="float32")
            m9 = R.mean(d9, axis=[2, 3], keepdims=False)
            q10 = R.quantize(m9, R.const(0.0317, "float32"), R.const(-100, "int8"), axis=-1, out_dtype="int8")
            d10 = R.dequantize(q10, R.const(0.0317, "float32"), R.const(-100, "int8"), axis=-1, out_dtype="float32")
            f4 = R.dequantize(w4, R.const(0.01, "float32"), R.const(0, "int8"), axis=0, out_dtype="float32")
            p10 = R.matmul(d10, R.permute_dims(f4, axes=[1, 0]))
            q11 = R.quantize(p10, R.const(0.04, "float32"), R.const(-7, "int8"), axis=-1, out_dtype="int8")
            d11 = R.dequantize(q11, R.const(0.04, "float32"), R.const(-7, "int8"), axis=-1, out_dtype="float32")
            r = (d4, d9, d11)
            R.output(r)
        return r
"#;

/// Weights of int8 as a file of safetensors.
fn int8_weights(file: &Path) {
    let list: [(&str, &[i64]); 5] = [
        ("w0", &[36, 3, 3, 3]),
        ("w1", &[36, 1, 3, 3]),
        ("w2", &[68, 36, 1, 1]),
        ("w3", &[68, 68, 3, 3]),
        ("w4", &[10, 68]),
    ];
    let (mut head, mut data): (Vec<String>, Vec<u8>) = Default::default();
    for (name, shape) in list {
        let begin = data.len();
        data.extend((0..shape.iter().product::<i64>()).map(|i| ((i * 7919 + 13) % 251 - 125) as i8 as u8));
        head.push(format!(r#""{name}":{{"dtype":"I8","shape":{shape:?},"data_offsets":[{begin},{}]}}"#, data.len()));
    }
    let head = format!("{{{}}}", head.join(","));
    let all = [&(head.len() as u64).to_le_bytes()[..], head.as_bytes(), &data].concat();
    std::fs::write(file, all).expect("the weights are written");
}

/// Libraries of open sizes, compiled with each of `options`, beside those of each size.
fn compare(batch: &str, options: &[&[&str]], sizes: &[(i64, i64, i64)]) {
    let dir = tempfile::tempdir().expect("a folder");
    let (file, values) = (dir.path().join("model.rlx"), dir.path().join("w.safetensors"));
    std::fs::write(&file, MODEL.replace("BATCH", batch)).expect("the model is written");
    int8_weights(&values);
    let wide = std::arch::is_x86_feature_detected!("avx512vl") && std::arch::is_x86_feature_detected!("avx512dq");
    let fused = std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma");
    // With narrower vectors networks compute in floats, which may round differently.
    let levels = [("x86-64-v3", fused), ("x86-64-v4", wide), ("native", fused), ("auto", fused)];
    for (cpu, _) in levels.into_iter().filter(|l| l.1) {
        let library = |so: &str, more: &[&str]| {
            let so = dir.path().join(so);
            let args = [path(&file), "--params", path(&values), "--prefix", "m", "-o", path(&so), "--target-cpu", cpu];
            relax_aot(&[&args[..], more].concat());
            Library::open(&so, "m").expect("the library")
        };
        let open: Vec<Library> =
            options.iter().enumerate().map(|(i, more)| library(&format!("{cpu}_{i}.so"), more)).collect();
        for &(n, h, w) in sizes {
            let dims = [format!("h={h}"), format!("w={w}"), format!("n={n}")];
            let mut bound = vec!["--dim", &dims[0], "--dim", &dims[1]];
            if batch != "1" {
                bound.extend(["--dim", &dims[2]]);
            }
            let bound = library(&format!("{cpu}_{n}x{h}x{w}.so"), &bound);
            let x = tensor(&[n, 3, h, w], 1);
            let what = format!("{cpu}, {n}x{h}x{w}");
            let run = |l: &Library| l.run("main", &[x.clone()], 3).unwrap_or_else(|e| panic!("{what}: {}", e.message));
            let wanted = run(&bound);
            for (more, l) in options.iter().zip(&open) {
                for (i, (got, wanted)) in run(l).iter().zip(&wanted).enumerate() {
                    assert_eq!(got.shape, wanted.shape);
                    assert!(got.bytes() == wanted.bytes(), "{what} {more:?}, result {i}");
                }
            }
        }
    }
}

/// Rows shorter than a tile, whole tiles, and what is left of one.
#[test]
fn rows_and_columns() {
    let sizes = [(1, 1), (2, 3), (3, 17), (9, 16), (31, 46), (16, 64), (40, 1), (2, 131)].map(|(h, w)| (1, h, w));
    compare("1", &[&[], &["--threads", "2"]], &sizes);
}

/// How many images there are, too: one by one, and all in each kernel.
#[test]
fn and_the_batch() {
    let ways: [&[&str]; 3] = [&[], &["--specialize", "never"], &["--specialize", "never", "--threads", "2"]];
    compare("\"n\"", &ways, &[(1, 5, 9), (2, 14, 23), (5, 8, 16)]);
}

/// Windows that may not fit are checked in every call, before bytes are made: no float is left for the check's sake.
#[test]
fn windows_that_may_not_fit() {
    const TEXT: &str = r#"@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 3, "h", "w"), "float32"), w0: R.Tensor((36, 3, 3, 3), "int8"), w3: R.Tensor((68, 68, 3, 3), "int8"), w1: R.Tensor((36, 1, 3, 3), "int8"), w2: R.Tensor((68, 36, 1, 1), "int8"), w4: R.Tensor((10, 68), "int8")):
        with R.dataflow():
            q0 = R.quantize(x, R.const(0.02, "float32"), R.const(3, "int8"), axis=-1, out_dtype="int8")
            d0 = R.dequantize(q0, R.const(0.02, "float32"), R.const(3, "int8"), axis=-1, out_dtype="float32")
            f0 = R.dequantize(w0, R.const(0.01, "float32"), R.const(0, "int8"), axis=0, out_dtype="float32")
            c0 = R.nn.conv2d(d0, f0)
            q1 = R.quantize(c0, R.const(0.05, "float32"), R.const(-128, "int8"), axis=-1, out_dtype="int8")
            d1 = R.dequantize(q1, R.const(0.05, "float32"), R.const(-128, "int8"), axis=-1, out_dtype="float32")
            f1 = R.dequantize(w1, R.const(0.01, "float32"), R.const(0, "int8"), axis=0, out_dtype="float32")
            c1 = R.nn.conv2d(d1, f1, strides=[3, 2], groups=36)
            q2 = R.quantize(c1, R.const(0.06, "float32"), R.const(4, "int8"), axis=-1, out_dtype="int8")
            d2 = R.dequantize(q2, R.const(0.06, "float32"), R.const(4, "int8"), axis=-1, out_dtype="float32")
            R.output(d2)
        return d2
"#;
    let dir = tempfile::tempdir().expect("a folder");
    let [file, values, so] = ["model.rlx", "w.safetensors", "m.so"].map(|name| dir.path().join(name));
    std::fs::write(&file, TEXT).expect("the model is written");
    int8_weights(&values);
    let args = [path(&file), "--params", path(&values), "--prefix", "m"];
    relax_aot(&[&args[..], &["-o", path(&so)]].concat());
    let open = Library::open(&so, "m").expect("the library");
    for ((h, w), shape) in
        [((5, 5), Some([1, 36, 1, 1])), ((1, 5), None), ((5, 1), None), ((9, 12), Some([1, 36, 2, 4]))]
    {
        let made = open.run("main", &[tensor(&[1, 3, h, w], 1)], 1).map(|r| r[0].shape.clone()).ok();
        assert_eq!(made, shape.map(|s| s.to_vec()), "{h}x{w}");
    }
    let flat = relax_aot(&[&["print", "--stage", "flat"][..], &args, &["--target-cpu", "x86-64-v3"]].concat());
    let calls: Vec<&str> = flat.lines().filter(|l| l.contains("call m_k_")).collect();
    let called = |name: &str| calls.iter().filter(|l| l.contains(&format!("m_k_{name}"))).count();
    assert_eq!((called("quantize"), called("qconv2d"), called("dequantize"), calls.len()), (1, 2, 1, 4), "{calls:?}");
}

/// Kernels of bytes, not of floats.
#[test]
fn in_integers() {
    let dir = tempfile::tempdir().expect("a folder");
    let (file, values) = (dir.path().join("model.rlx"), dir.path().join("w.safetensors"));
    int8_weights(&values);
    for batch in ["1", "\"n\""] {
        std::fs::write(&file, MODEL.replace("BATCH", batch)).expect("the model is written");
        let args = ["print", "--stage", "flat", path(&file), "--params", path(&values), "--target-cpu", "x86-64-v3"];
        let flat = relax_aot(&args);
        let called =
            |name: &str| flat.lines().filter(|l| l.contains(&format!("_k_{name}")) && l.contains("call")).count();
        assert_eq!((called("qconv2d"), called("qmatmul"), called("conv2d")), (6, 1, 0), "batch {batch}");
    }
}

/// ONNX ConvInteger 10 over open sizes: the sums of the same network of known sizes, and an error where no window fits.
#[test]
fn sums_of_windows() {
    const TEXT: &str = r#"@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 3, "h", "w"), "float32"), w0: R.Tensor((36, 3, 3, 3), "int8"), w3: R.Tensor((68, 68, 3, 3), "int8"), w1: R.Tensor((36, 1, 3, 3), "int8"), w2: R.Tensor((68, 36, 1, 1), "int8"), w4: R.Tensor((10, 68), "int8")):
        with R.dataflow():
            a0 = R.astype(R.multiply(R.add(x, R.const(0.5, "float32")), R.const(255.0, "float32")), "uint8")
            c0 = R.nn.conv2d(R.subtract(R.astype(a0, "int32"), R.astype(R.const(77, "uint8"), "int32")), R.astype(w0, "int32"), strides=[1, 2], padding=[0, 1, 0, 0])
            a1 = R.astype(R.minimum(R.maximum(c0, R.const(0, "int32")), R.const(255, "int32")), "uint8")
            c1 = R.nn.conv2d(R.astype(a1, "int32"), R.astype(w2, "int32"))
            r = (c0, c1)
            R.output(r)
        return r
"#;
    let dir = tempfile::tempdir().expect("a folder");
    let [file, values, so] = ["model.rlx", "w.safetensors", "m.so"].map(|name| dir.path().join(name));
    int8_weights(&values);
    let library = |cpu: &str, threads: &str, n: &str, h: &str, w: &str| {
        std::fs::write(&file, TEXT.replace(r#"("n", 3, "h", "w")"#, &format!("({n}, 3, {h}, {w})")))
            .expect("the model is written");
        let args = [path(&file), "--params", path(&values), "--prefix", "m", "--target-cpu", cpu, "--threads", threads];
        relax_aot(&[&args[..], &["-o", path(&so)]].concat());
        let flat = relax_aot(&[&["print", "--stage", "flat"][..], &args].concat());
        let sums = flat.lines().filter(|l| l.starts_with("func m_k_conv2d_integer") && !l.contains("_tasks")).count();
        assert!(cpu == "auto" || sums == 2, "{sums} kernels of bytes for {cpu}");
        Library::open(&so, "m").expect("the library")
    };
    let fused = std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma");
    for (cpu, threads) in [("auto", "1"), ("native", "1"), ("native", "3"), ("x86-64-v3", "1")] {
        if cpu == "x86-64-v3" && !fused {
            continue;
        }
        let open = library(cpu, threads, "\"n\"", "\"h\"", "\"w\"");
        for (n, h, w) in [(1, 3, 2), (1, 17, 20), (2, 8, 33), (1, 64, 90)] {
            let x = [tensor(&[n, 3, h, w], h)];
            let made = open.run("main", &x, 2).unwrap_or_else(|e| panic!("{cpu}: {}", e.message));
            let [a, b, c] = [n, h, w].map(|v| v.to_string());
            let wanted = library(cpu, "1", &a, &b, &c).run("main", &x, 2).expect("sizes that are known");
            for (made, wanted) in made.iter().zip(&wanted) {
                assert_eq!((&made.shape, made.bytes()), (&wanted.shape, wanted.bytes()), "{cpu}: {n}x{h}x{w}");
            }
        }
        let made = |h| open.run("main", &[tensor(&[1, 3, h, 9], 1)], 2).map(|r| r[0].shape.clone()).ok();
        assert_eq!([made(2), made(1)], [Some(vec![1, 36, 0, 4]), None], "{cpu}: no window, and less than none");
    }
}

/// Products over rows of several sequences, and sums of two such, are those over all rows in one matrix, in integers.
#[test]
fn rows_of_sequences() {
    const TEXT: &str = r#"@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((ROWS, 68), "float32"), w0: R.Tensor((36, 3, 3, 3), "int8"), w1: R.Tensor((36, 1, 3, 3), "int8"), w2: R.Tensor((68, 36, 1, 1), "int8"), w3: R.Tensor((68, 68, 3, 3), "int8"), w4: R.Tensor((10, 68), "int8")):
        with R.dataflow():
            q0 = R.quantize(x, R.const(0.02, "float32"), R.const(3, "int8"), axis=-1, out_dtype="int8")
            d0 = R.dequantize(q0, R.const(0.02, "float32"), R.const(3, "int8"), axis=-1, out_dtype="float32")
            f4 = R.dequantize(w4, R.const(0.01, "float32"), R.const(0, "int8"), axis=0, out_dtype="float32")
            p1 = R.matmul(d0, R.permute_dims(f4, axes=[1, 0]))
            q1 = R.quantize(p1, R.const(0.04, "float32"), R.const(-7, "int8"), axis=-1, out_dtype="int8")
            d1 = R.dequantize(q1, R.const(0.04, "float32"), R.const(-7, "int8"), axis=-1, out_dtype="float32")
            p2 = R.matmul(d1, f4)
            q2 = R.quantize(p2, R.const(0.03, "float32"), R.const(128, "uint8"), axis=-1, out_dtype="uint8")
            d2 = R.dequantize(q2, R.const(0.03, "float32"), R.const(128, "uint8"), axis=-1, out_dtype="float32")
            a3 = R.add(d2, d0)
            q3 = R.quantize(a3, R.const(0.05, "float32"), R.const(128, "uint8"), axis=-1, out_dtype="uint8")
            d3 = R.dequantize(q3, R.const(0.05, "float32"), R.const(128, "uint8"), axis=-1, out_dtype="float32")
            r = (d1, d3)
            R.output(r)
        return r
"#;
    let dir = tempfile::tempdir().expect("a folder");
    let values = dir.path().join("w.safetensors");
    int8_weights(&values);
    let fused = std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma");
    if !fused {
        return;
    }
    let library = |name: &str, rows: &str| {
        let [file, so] = [format!("{name}.rlx"), format!("{name}.so")].map(|f| dir.path().join(f));
        std::fs::write(&file, TEXT.replace("ROWS", rows)).expect("the model is written");
        let args = [path(&file), "--params", path(&values), "--prefix", "m", "--target-cpu", "x86-64-v3"];
        relax_aot(&[&args[..], &["-o", path(&so)]].concat());
        let flat = relax_aot(&[&["print", "--stage", "flat"][..], &args].concat());
        let products = flat.lines().filter(|l| l.contains("_k_qmatmul") && l.contains("call")).count();
        assert_eq!(products, 2, "{name}");
        Library::open(&so, "m").expect("the library")
    };
    let matrix = library("matrix", "\"m\"");
    for (name, rows, sizes) in [
        ("bound", "2, 5", &[[2, 5]][..]),
        ("open", "\"n\", \"t\"", &[[1, 1], [1, 7], [3, 19], [4, 64], [0, 5]]),
        ("sequence", "1, \"t\"", &[[1, 33]]),
    ] {
        let batches = library(name, rows);
        for &[n, t] in sizes {
            let run = |l: &Library, shape: &[i64]| l.run("main", &[tensor(shape, 1)], 2).expect("a run");
            let (got, wanted) = (run(&batches, &[n, t, 68]), run(&matrix, &[n * t, 68]));
            for (g, w) in got.iter().zip(&wanted) {
                assert_eq!(g.shape[..2], [n, t], "{name}");
                assert!(g.bytes() == w.bytes(), "{name}, {n}x{t}");
            }
        }
    }
}
