//! Quantised convolutions whose sums of two products go beyond int16, in the kernels of several processors: the exact sums,
//! rounded.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

#[expect(dead_code, reason = "weights here are bytes")]
mod command;

use command::{path, relax_aot};
use relax_aot::loader::Library;
use relax_ir::{Constant, DType};

const SIDE: i64 = 13;
const CHANNELS: i64 = 64;
/// What a step of the result stands for.
const STEP: i64 = 30_000;

/// The same data under a window of three by three, one of one point, and one at steps of two.
const MODEL: &str = r#"@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 64, 13, 13), "float32"), w0: R.Tensor((64, 64, 3, 3), "int8"), w1: R.Tensor((64, 64, 1, 1), "int8")):
        with R.dataflow():
            q0 = R.quantize(x, R.const(1.0, "float32"), R.const(0, "uint8"), axis=-1, out_dtype="uint8")
            d0 = R.dequantize(q0, R.const(1.0, "float32"), R.const(0, "uint8"), axis=-1, out_dtype="float32")
            f0 = R.dequantize(w0, R.const(1.0, "float32"), R.const(0, "int8"), axis=0, out_dtype="float32")
            f1 = R.dequantize(w1, R.const(1.0, "float32"), R.const(0, "int8"), axis=0, out_dtype="float32")
            c0 = R.nn.conv2d(d0, f0, padding=[1, 1, 1, 1])
            p0 = R.quantize(c0, R.const(30000.0, "float32"), R.const(128, "uint8"), axis=-1, out_dtype="uint8")
            r0 = R.dequantize(p0, R.const(30000.0, "float32"), R.const(128, "uint8"), axis=-1, out_dtype="float32")
            c1 = R.nn.conv2d(d0, f1)
            p1 = R.quantize(c1, R.const(30000.0, "float32"), R.const(128, "uint8"), axis=-1, out_dtype="uint8")
            r1 = R.dequantize(p1, R.const(30000.0, "float32"), R.const(128, "uint8"), axis=-1, out_dtype="float32")
            c2 = R.nn.conv2d(d0, f0, strides=[2, 2], padding=[1, 1, 1, 1])
            p2 = R.quantize(c2, R.const(30000.0, "float32"), R.const(128, "uint8"), axis=-1, out_dtype="uint8")
            r2 = R.dequantize(p2, R.const(30000.0, "float32"), R.const(128, "uint8"), axis=-1, out_dtype="float32")
            r = (r0, r1, r2)
            R.output(r)
        return r
"#;

/// The largest weights in runs, the same sign in pairs and fours of inputs.
fn weight(taps: i64, j: i64, i: i64, tap: i64) -> i64 {
    let at = i / (1 + j % 7) + tap * (j % 3) + taps;
    [-128, 127, -128, 127, 127][(at % 5) as usize]
}

fn data(i: i64, y: i64, x: i64) -> i64 {
    if (i / 8 + y + x * y) % 4 == 1 {
        0
    } else {
        255
    }
}

/// The result of a window of so many taps a side, at such steps.
fn wanted(side: i64, steps: i64) -> Vec<f32> {
    let (pad, count) = (side / 2, (SIDE - 1) / steps + 1);
    let mut out = vec![];
    for (j, y, x) in (0..CHANNELS).flat_map(|j| (0..count).flat_map(move |y| (0..count).map(move |x| (j, y, x)))) {
        let mut sum = 0;
        for tap in 0..side * side {
            let (y, x) = (y * steps + tap / side - pad, x * steps + tap % side - pad);
            if (0..SIDE).contains(&y) && (0..SIDE).contains(&x) {
                sum += (0..CHANNELS).map(|i| data(i, y, x) * weight(side * side, j, i, tap)).sum::<i64>();
            }
        }
        assert_ne!((2 * sum).rem_euclid(2 * STEP), STEP, "a half may be rounded either way");
        let byte = ((sum as f64 / STEP as f64).round() + 128.0).clamp(0.0, 255.0);
        out.push((byte - 128.0) as f32 * STEP as f32);
    }
    out
}

#[test]
fn sums_beyond_int16() {
    let dir = tempfile::tempdir().expect("a folder");
    let [file, values, so] = ["model.rlx", "w.safetensors", "m.so"].map(|name| dir.path().join(name));
    std::fs::write(&file, MODEL).expect("the model is written");
    let bytes = |taps: i64| -> Vec<u8> {
        let all = (0..CHANNELS).flat_map(|j| (0..CHANNELS * taps).map(move |at| (j, at / taps, at % taps)));
        all.map(|(j, i, tap)| weight(taps, j, i, tap) as i8 as u8).collect()
    };
    let all = [bytes(9), bytes(1)].concat();
    let first = CHANNELS * CHANNELS * 9;
    let head = format!(
        r#"{{"w0":{{"dtype":"I8","shape":[64,64,3,3],"data_offsets":[0,{first}]}},"w1":{{"dtype":"I8","shape":[64,64,1,1],"data_offsets":[{first},{}]}}}}"#,
        all.len()
    );
    let content = [&(head.len() as u64).to_le_bytes()[..], head.as_bytes(), &all].concat();
    std::fs::write(&values, content).expect("the weights are written");
    let places = (0..CHANNELS * SIDE * SIDE).map(|at| (at / (SIDE * SIDE), at / SIDE % SIDE, at % SIDE));
    let x = places.flat_map(|(i, y, x)| (data(i, y, x) as f32).to_le_bytes()).collect();
    let x = Constant::new(DType::F32, vec![1, CHANNELS, SIDE, SIDE], x);
    let wide = std::arch::is_x86_feature_detected!("avx512vl") && std::arch::is_x86_feature_detected!("avx512dq");
    let fused = std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma");
    let levels = [("x86-64-v3", fused), ("auto=x86-64-v3", fused), ("x86-64-v4", wide), ("native", true)];
    for (cpu, threads) in levels.iter().filter(|l| l.1).flat_map(|l| [(l.0, "1"), (l.0, "2")]) {
        let args = [path(&file), "--params", path(&values), "--prefix", "m", "-o", path(&so)];
        relax_aot(&[&args[..], &["--target-cpu", cpu, "--threads", threads]].concat());
        let library = Library::open(&so, "m").expect("the library");
        let made = library.run("main", &[x.clone()], 3).unwrap_or_else(|e| panic!("{cpu}: {}", e.message));
        for (made, (side, steps)) in made.iter().zip([(3, 1), (1, 1), (3, 2)]) {
            let floats: Vec<f32> =
                made.bytes().chunks(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
            assert!(floats == wanted(side, steps), "{cpu}, {threads} threads, {side}x{side} at steps of {steps}");
        }
    }
}
