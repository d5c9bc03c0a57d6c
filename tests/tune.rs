//! `--tune` and `--tune-file`: the file round trip, what it changes, and files that are not used.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// Exit code and standard error of the command in `dir`.
fn command(dir: &Path, args: &[&str]) -> (i32, String) {
    let mut c = Command::new(env!("CARGO_BIN_EXE_relax-aot"));
    let o = c.current_dir(dir).args(args).stdin(Stdio::null()).output().expect("the command starts");
    (o.status.code().unwrap_or(-1), String::from_utf8_lossy(&o.stderr).into_owned())
}

/// A folder with a model of two products and its weights.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/models");
    for name in ["mlp.rlx", "mlp.safetensors"] {
        std::fs::copy(models.join(name), dir.path().join(name)).expect("the model is copied");
    }
    dir
}

/// What every compilation here begins with.
const MODEL: [&str; 5] = ["mlp.rlx", "--params", "mlp.safetensors", "--target-cpu", "native"];

fn compile(dir: &Path, out: &str, more: &[&str]) -> (i32, String) {
    command(dir, &[&MODEL[..], &["-o", out], more].concat())
}

/// Whether kernels of this machine come in several ways.
fn measurable() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).expect("the file is there")).expect("JSON")
}

#[test]
fn a_file_round_trip() {
    let dir = folder();
    let d = dir.path();
    let (code, err) = compile(d, "libmlp.so", &["--tune", "--tune-budget", "0.2"]);
    if !measurable() {
        assert_eq!(code, 3, "{err}");
        assert!(err.contains("tune-target"), "{err}");
        return;
    }
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("libmlp.tune.json"), "{err}");
    let file = d.join("libmlp.tune.json");
    let mut tuned = read(&file);
    assert_eq!(tuned["format"], "relax-aot-tune");
    assert_eq!(tuned["version"], 1);
    let kernels = tuned["kernels"].as_array().expect("kernels").clone();
    assert!(!kernels.is_empty() && kernels[0]["kernel"].as_str().is_some_and(|k| k.starts_with("product float32")));

    // The same file, the same bytes: by default, and by name.
    let first = std::fs::read(d.join("libmlp.so")).expect("a library");
    std::fs::create_dir(d.join("again")).expect("a folder");
    for (out, more) in [("libmlp.so", &[][..]), ("again/libmlp.so", &["--tune-file", "libmlp.tune.json"][..])] {
        let (code, err) = compile(d, out, more);
        assert_eq!((code, err.as_str()), (0, ""));
        assert!(std::fs::read(d.join(out)).expect("a library") == first, "{out} differs");
    }

    // Another way is another kernel, with the same results.
    let run = |more: &[&str], out: &str| {
        let all = [&["run"], &MODEL[..], &["--inputs", "in.npz", "--outputs", out], more].concat();
        assert_eq!(command(d, &all), (0, String::new()));
    };
    for k in tuned["kernels"].as_array_mut().expect("kernels") {
        let way = &mut k["ways"][0];
        way["columns"] = Value::from(if way["columns"] == 1 { 2 } else { 1 });
        way["rows"] = Value::from(3);
    }
    std::fs::write(d.join("other.json"), tuned.to_string()).expect("written");
    let (code, err) = compile(d, "libother.so", &["--prefix", "mlp", "--tune-file", "other.json"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(std::fs::read(d.join("libother.so")).expect("a library").len() > 1000);
    let asm = |file: &str| {
        let out = format!("{file}.s");
        assert_eq!(compile(d, &out, &["--prefix", "mlp", "--tune-file", file]), (0, String::new()));
        std::fs::read_to_string(d.join(out)).expect("text")
    };
    assert!(asm("libmlp.tune.json") != asm("other.json"), "the file changes nothing");
    let values: Vec<u8> = (0..5 * 16).flat_map(|i| ((i * 37 % 23) as f32 * 0.1 - 1.0).to_le_bytes()).collect();
    let x = relax_ir::Constant::new(relax_ir::DType::F32, vec![5, 16], values);
    let inputs = relax_frontend::weights::npz_bytes(&[("x".to_string(), x)]).expect("an archive");
    std::fs::write(d.join("in.npz"), inputs).expect("written");
    run(&["--tune-file", "libmlp.tune.json"], "a.npz");
    run(&["--tune-file", "other.json", "--expect", "a.npz"], "b.npz");
}

#[test]
fn files_that_are_not_used() {
    if !measurable() {
        return;
    }
    let dir = folder();
    let d = dir.path();
    let (code, err) = compile(d, "libmlp.so", &["--tune", "--tune-budget", "0.1", "--tune-file", "good.json"]);
    assert_eq!(code, 0, "{err}");
    let good = read(&d.join("good.json"));
    let with = |change: &dyn Fn(&mut Value)| {
        let mut v = good.clone();
        change(&mut v);
        v.to_string()
    };
    let bad: [(&str, String); 12] = [
        ("is no JSON", String::new()),
        ("is no JSON", "{".into()),
        ("is no tune file", "[1, 2]".into()),
        ("the version is 99, here it is 1", with(&|v| v["version"] = 99.into())),
        ("the compiler is 0.0.9", with(&|v| v["compiler"] = "0.0.9".into())),
        ("the cpu is a toaster", with(&|v| v["cpu"] = "a toaster".into())),
        ("the vector_bytes is 16", with(&|v| v["vector_bytes"] = 16.into())),
        ("\"kernels\" is no list", with(&|v| v["kernels"] = 7.into())),
        ("at least one way", with(&|v| v["kernels"][0]["ways"] = Value::Array(vec![]))),
        ("no algorithm is called magic", with(&|v| v["kernels"][0]["ways"][0]["algorithm"] = "magic".into())),
        ("beyond what a kernel can have", with(&|v| v["kernels"][0]["ways"][0]["rows"] = 1_000_000.into())),
        ("is no time", with(&|v| v["kernels"][0]["ways"][0]["microseconds"] = (-1).into())),
    ];
    for (message, text) in bad {
        std::fs::write(d.join("bad.json"), &text).expect("written");
        let (code, err) = compile(d, "libbad.so", &["--tune-file", "bad.json"]);
        assert_eq!(code, 1, "{message}: {err}");
        assert!(err.contains("tune-file") && err.contains(message), "{message}: {err}");
        assert!(!d.join("libbad.so").exists());
    }
    let (code, err) = compile(d, "libbad.so", &["--tune-file", "missing.json"]);
    assert!(code == 1 && err.contains("cannot be read"), "{err}");
    // A file beside the output that is for another processor is passed over, and says so.
    std::fs::write(d.join("libfar.tune.json"), with(&|v| v["cpu"] = "a toaster".into())).expect("written");
    let (code, err) = compile(d, "libfar.so", &[]);
    assert!(code == 0 && err.contains("it is not used"), "{err}");
    // Kernels for other machines are not measured.
    let far = ["mlp.rlx", "--params", "mlp.safetensors", "-o", "far.o", "--target", "aarch64-unknown-none", "--tune"];
    let (code, err) = command(d, &far);
    assert!(code == 3 && err.contains("do not run on this machine"), "{err}");
}
