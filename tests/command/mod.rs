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

/// Whether weights of this name are float16.
pub fn is_half(name: &str) -> bool {
    name.starts_with("half")
}

/// Writes weights of these names and shapes as safetensors, the first by `seed`.
pub fn weights(file: &Path, list: &[(&str, &[i64])], seed: i64) {
    let (mut head, mut all) = (vec![], vec![]);
    for (i, (name, shape)) in list.iter().enumerate() {
        let begin = all.len();
        let values = tensor(shape, i as i64 + seed);
        let dtype = match is_half(name) {
            true => {
                let half = |i: usize| half::f16::from_f64(values.get_f64(i)).to_le_bytes();
                all.extend((0..values.elements()).flat_map(half));
                "F16"
            }
            false => {
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
