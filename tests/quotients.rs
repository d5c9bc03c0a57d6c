//! Quantised tensors whose scale the call brings: the quotient rounded once and then to a whole number, in the kernels of
//! several processors, which multiply by a reciprocal.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

#[expect(dead_code, reason = "no weights")]
mod command;

use command::{path, relax_aot};
use relax_aot::loader::Library;
use relax_ir::{Constant, DType};

/// One scale for all, and one for each row.
const MODEL: &str = r#"@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((3, "n"), "float32"), s: R.Tensor((), "float32"), t: R.Tensor((3,), "float32"), z: R.Tensor((), "int8")):
        with R.dataflow():
            a = R.quantize(x, s, z, axis=-1, out_dtype="int8")
            b = R.quantize(x, t, R.const([3, 200, 0], "uint8"), axis=0, out_dtype="uint8")
            r = (a, b)
            R.output(r)
        return r
"#;

fn floats(shape: &[i64], v: &[f32]) -> Constant {
    Constant::new(DType::F32, shape.to_vec(), v.iter().flat_map(|x| x.to_le_bytes()).collect())
}

/// The larger and the smaller of a number that is none and another is the other, as in the kernels.
fn byte(x: f32, s: f32, zero: f32, low: f32, high: f32) -> u8 {
    ((x / s).round_ties_even() + zero).min(high).max(low) as i32 as u8
}

/// Dividends whose quotients lie at halves of whole numbers and right beside them, and what is beyond all bytes.
fn dividends(s: f32) -> Vec<f32> {
    let mut all = vec![0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, f32::MIN, 1e-42, -1e-45];
    for k in -300..300 {
        let at = (s as f64 * (k as f64 + 0.5)) as f32;
        all.extend([at.next_down().next_down(), at.next_down(), at, at.next_up(), at.next_up().next_up()]);
    }
    all.retain(|x| x.is_nan() || !(*x / s).is_nan());
    all
}

#[test]
fn quotients_are_rounded_as_divisions_are() {
    let dir = tempfile::tempdir().expect("a folder");
    let [file, so] = ["model.rlx", "m.so"].map(|name| dir.path().join(name));
    std::fs::write(&file, MODEL).expect("the model is written");
    let mut scales = vec![1.0, 0.1, 3.0, 1.0 / 3.0, -0.7, 2f32.powi(60), 2f32.powi(61), 2f32.powi(-60), 2f32.powi(-61)];
    scales.extend([1e-44, 3e38, f32::from_bits(0x3fff_ffff), f32::from_bits(0x3f80_0001), f32::from_bits(0x0080_0000)]);
    let mut bits = 12345u32;
    for _ in 0..40 {
        bits = bits.wrapping_mul(1664525).wrapping_add(1013904223);
        scales.push(f32::from_bits(0x3c00_0000 + (bits >> 6)));
    }
    let wide = std::arch::is_x86_feature_detected!("avx512vl") && std::arch::is_x86_feature_detected!("avx512dq");
    let fused = std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma");
    let levels = [("baseline", true), ("x86-64-v3", fused), ("x86-64-v4", wide), ("native", true)];
    for (cpu, threads) in levels.iter().filter(|l| l.1).flat_map(|l| [(l.0, "1"), (l.0, "2")]) {
        let args = [path(&file), "--prefix", "m", "-o", path(&so), "--target-cpu", cpu, "--threads", threads];
        relax_aot(&args);
        let library = Library::open(&so, "m").expect("the library");
        for (i, &s) in scales.iter().enumerate() {
            let row = dividends(s);
            let (n, z) = (row.len(), [-128, -3, 0, 77, 127][i % 5]);
            let x: Vec<f32> = (0..3).flat_map(|_| row.iter().copied()).collect();
            let rows = [s, s, s];
            let args = [
                floats(&[3, n as i64], &x),
                floats(&[], &[s]),
                floats(&[3], &rows),
                Constant::new(DType::I8, vec![], vec![z as i8 as u8]),
            ];
            let got = library.run("main", &args, 2).unwrap_or_else(|e| panic!("{cpu}: {}", e.message));
            for (at, &x) in x.iter().enumerate() {
                let of_row = [3.0, 200.0, 0.0][at / n];
                let wanted = [byte(x, s, z as f32, -128.0, 127.0), byte(x, s, of_row, 0.0, 255.0)];
                let got = [got[0].bytes()[at], got[1].bytes()[at]];
                assert_eq!(got, wanted, "{cpu}, {threads} threads: {x:e} by {s:e}, zero points {z} and {of_row}");
            }
        }
    }
}
