//! The command as tests call it, and tensors for its models.

use relax_ir::{Constant, DType};
use std::path::Path;
use std::process::Command;

/// What the command prints; its failure fails the test.
pub fn relax_aot(args: &[&str]) -> String {
    let out = Command::new(env!("CARGO_BIN_EXE_relax-aot")).args(args).output().expect("the command starts");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

pub fn path(p: &Path) -> &str {
    p.to_str().expect("paths of tests are text")
}

/// Numbers between -0.5 and 0.5, others for each seed.
pub fn tensor(shape: &[i64], seed: i64) -> Constant {
    let n = shape.iter().product::<i64>();
    let value = |i: i64| ((i * 37 + 11 * seed) % 1009) as f32 / 1009.0 - 0.5;
    Constant::new(DType::F32, shape.to_vec(), (0..n).flat_map(|i| value(i).to_le_bytes()).collect())
}

/// What weights of this name are.
pub fn dtype(name: &str) -> DType {
    match name {
        _ if name.starts_with("half") => DType::F16,
        _ if name.starts_with("brain") => DType::BF16,
        _ => DType::F32,
    }
}

/// Writes weights of these names and shapes as safetensors, the first by `seed`.
pub fn weights(file: &Path, list: &[(&str, &[i64])], seed: i64) {
    let (mut head, mut all) = (vec![], vec![]);
    for (i, (name, shape)) in list.iter().enumerate() {
        let begin = all.len();
        let values = tensor(shape, i as i64 + seed);
        let of =
            |f: fn(f64) -> [u8; 2]| -> Vec<u8> { (0..values.elements()).flat_map(|i| f(values.get_f64(i))).collect() };
        let dtype = match dtype(name) {
            DType::F16 => {
                all.extend(of(|v| half::f16::from_f64(v).to_le_bytes()));
                "F16"
            }
            DType::BF16 => {
                all.extend(of(|v| half::bf16::from_f64(v).to_le_bytes()));
                "BF16"
            }
            _ => {
                all.extend(values.bytes().iter().copied());
                "F32"
            }
        };
        head.push(format!(
            r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{begin},{}]}}"#,
            all.len()
        ));
    }
    let head = format!("{{{}}}", head.join(","));
    let bytes = [(head.len() as u64).to_le_bytes().as_slice(), head.as_bytes(), &all].concat();
    std::fs::write(file, bytes).expect("the weights are written");
}
