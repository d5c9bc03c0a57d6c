//! Weight files of the corpus, and what we write ourselves.

use relax_frontend::weights::{npz_bytes, open, open_npz, open_safetensors, write_npz};
use relax_ir::{Constant, DType};
use std::path::PathBuf;

fn corpus(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus").join(name)
}

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("relax-frontend-{}-{name}", std::process::id()))
}

#[test]
fn every_weight_file_of_the_corpus_opens() {
    let mut n = 0;
    for f in std::fs::read_dir(corpus("")).expect("the corpus") {
        let path = f.expect("an entry").path();
        if matches!(path.extension().and_then(|e| e.to_str()), Some("safetensors" | "npz")) {
            let weights = open(&path).unwrap_or_else(|d| panic!("{}", d.message));
            for (name, c) in weights {
                assert_eq!(c.bytes().len(), c.elements() * c.dtype.bytes(), "{name}");
            }
            n += 1;
        }
    }
    assert!(n > 200, "{n} files");
}

#[test]
fn safetensors_are_borrowed_and_named() {
    let weights = open_safetensors(&corpus("nn_mlp.params.safetensors")).expect("weights");
    let find = |n: &str| weights.iter().find(|(name, _)| name == n).map(|(_, c)| c);
    let w = find("a_weight").or(find("a.weight")).expect("a weight");
    assert_eq!((w.dtype, w.shape.as_slice()), (DType::F32, [16, 8].as_slice()));
    assert!(format!("{:?}", w.data).starts_with("mapped"));
}

#[test]
fn npz_comes_back() {
    let tensors = vec![
        ("o.0".to_string(), Constant::new(DType::BF16, vec![2], vec![0x80, 0x3f, 0, 0x40])),
        ("o.1".to_string(), Constant::scalar_i64(DType::I64, -7)),
        ("empty".to_string(), Constant::new(DType::F64, vec![0, 3], vec![])),
        ("b".to_string(), Constant::new(DType::BOOL, vec![1, 2], vec![1, 0])),
        ("h".to_string(), Constant::scalar_f64(DType::F16, 1.5)),
    ];
    let path = scratch("back.npz");
    write_npz(&path, &tensors).expect("written");
    let read = open_npz(&path).expect("read");
    assert_eq!(read, tensors);
    assert_eq!(npz_bytes(&tensors), npz_bytes(&read));
    std::fs::remove_file(&path).expect("removed");
}

#[test]
fn damaged_files_are_refused() {
    for name in ["nn_mlp.params.safetensors", "nn_mlp.0.in.npz"] {
        let bytes = std::fs::read(corpus(name)).expect("a file");
        let path = scratch(name);
        for n in (0..bytes.len()).step_by(bytes.len() / 60 + 1) {
            std::fs::write(&path, &bytes[..n]).expect("written");
            assert!(open(&path).is_err(), "{name} cut to {n} bytes");
        }
        // Any one damaged byte: refused or read, never a panic.
        for i in (0..bytes.len()).step_by(bytes.len() / 300 + 1) {
            let mut b = bytes.clone();
            b[i] ^= 0xff;
            std::fs::write(&path, &b).expect("written");
            let _ = open(&path);
        }
        std::fs::remove_file(&path).expect("removed");
    }
    assert!(open(&scratch("missing.npz")).is_err());
    assert!(open(&scratch("weights.bin")).is_err());
}

#[test]
fn a_damaged_element_of_an_archive_is_refused() {
    let mut bytes = npz_bytes(&[("w".to_string(), Constant::scalar_f64(DType::F64, 0.5))]).expect("bytes");
    let value = 0.5f64.to_le_bytes();
    let at = bytes.windows(8).position(|w| w == value).expect("the element");
    bytes[at + 6] ^= 1;
    let path = scratch("element.npz");
    std::fs::write(&path, &bytes).expect("written");
    let refused = open(&path).expect_err("damaged");
    assert!(refused.message.contains("its checksum is wrong"), "{}", refused.message);
    std::fs::remove_file(&path).expect("removed");
}
