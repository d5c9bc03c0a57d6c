//! The default library on x86-64 with glibc holds its kernels for several processors and picks when it is loaded.
#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]

use std::path::Path;
use std::process::Command;

const MODEL: &str = "tests/corpus/torch_mobilenet_block.rlx";
const WEIGHTS: &str = "tests/corpus/torch_mobilenet_block.params.safetensors";
const CASE: &str = "tests/corpus/torch_mobilenet_block.0";

fn relax_aot(args: &[&str]) {
    let mut c = Command::new(env!("CARGO_BIN_EXE_relax-aot"));
    let out = c.current_dir(env!("CARGO_MANIFEST_DIR")).args(args).output().expect("the command starts");
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
}

fn text(program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).output().expect("the tool starts");
    assert!(out.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

fn path(p: &Path) -> &str {
    p.to_str().expect("paths of tests are text")
}

/// The levels that this machine has.
fn levels() -> Vec<&'static str> {
    let mut out = vec!["auto", "auto=x86-64-v2"];
    if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
        out.push("auto=x86-64-v3");
    }
    if std::is_x86_feature_detected!("avx512bw") && std::is_x86_feature_detected!("avx512vl") {
        out.push("auto=x86-64-v4");
        if std::is_x86_feature_detected!("avx512vnni") {
            out.push("auto=x86-64-v4,+avx512vnni");
            if tiles() {
                out.push("auto=x86-64-v4,+avx512vnni,+amx-int8");
            } else {
                println!("this machine has no tiles: their level is not run");
            }
        }
    }
    out
}

/// Whether the processor multiplies tiles of bytes and Linux lets us.
fn tiles() -> bool {
    let flags = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    flags.contains(" amx_tile ") && flags.contains(" amx_int8")
}

#[test]
fn every_level_computes_what_was_recorded() {
    let (input, output) = (format!("{CASE}.in.npz"), format!("{CASE}.out.npz"));
    for level in levels() {
        let args = ["run", MODEL, "--params", WEIGHTS, "--inputs", &input, "--expect", &output, "--rtol", "1e-3"];
        relax_aot(&[&args[..], &["--target-cpu", level]].concat());
    }
}

/// Bytes are multiplied by another instruction at each level; the sums are the same.
#[test]
fn quantised_networks_agree_at_every_level() {
    let dir = tempfile::tempdir().expect("a folder");
    let (model, input) = ("examples/models/kws_int8.onnx", "examples/models/kws_int8.in.npz");
    let first = dir.path().join("first.npz");
    relax_aot(&["run", model, "--inputs", input, "--outputs", path(&first), "--target-cpu", "auto=x86-64-v2"]);
    for level in levels() {
        let args = ["run", model, "--inputs", input, "--expect", path(&first), "--rtol", "1e-5"];
        relax_aot(&[&args[..], &["--target-cpu", level]].concat());
    }
}

/// Tiles are asked for, and AVX-512 VNNI is there for when they are refused.
#[test]
fn a_library_for_tiles_does_not_rely_on_them() {
    let dir = tempfile::tempdir().expect("a folder");
    let (model, input) = ("examples/models/kws_int8.onnx", "examples/models/kws_int8.in.npz");
    let (tiles, fours) = ("x86-64-v4,+avx512vnni,+amx-int8", "x86-64-v4,+avx512vnni");
    for (cpu, forms) in [(tiles, true), (fours, false)] {
        let out = dir.path().join("libm.so");
        relax_aot(&[model, "--prefix", "m", "-o", path(&out), "--target-cpu", cpu]);
        let asked = text("readelf", &["-rW", path(&out)]).contains("IRELATIV");
        let symbols = text("nm", &[path(&out)]);
        let of_tiles: Vec<&str> = symbols.lines().filter_map(|l| l.strip_suffix("_v4_amx")).collect();
        assert_eq!((asked, !of_tiles.is_empty()), (forms, forms), "{cpu}: {symbols}");
        for line in of_tiles {
            let name = line.split(' ').next_back().expect("a name");
            assert!(
                symbols.lines().any(|l| l.split(' ').next_back() == Some(name)),
                "{name} has no form without: {symbols}"
            );
        }
    }
    if levels().contains(&"auto=x86-64-v4,+avx512vnni") {
        let first = dir.path().join("first.npz");
        relax_aot(&["run", model, "--inputs", input, "--outputs", path(&first), "--target-cpu", fours]);
        let args = ["run", model, "--inputs", input, "--expect", path(&first), "--rtol", "0", "--atol", "0"];
        relax_aot(&[&args[..], &["--target-cpu", tiles]].concat());
    }
}

#[test]
fn one_resolver_and_nothing_writable() {
    let dir = tempfile::tempdir().expect("a folder");
    let so = |name: &str, more: &[&str]| {
        let out = dir.path().join(name);
        relax_aot(&[&[MODEL, "--params", WEIGHTS, "--prefix", "m", "-o", path(&out)], more].concat());
        out
    };
    let library = so("libm.so", &[]);
    for (what, file) in [("ours", &library), ("the system's", &so("libsystem.so", &["--linker", "system"]))] {
        let count = text("readelf", &["-rW", path(file)]).matches("IRELATIV").count();
        assert_eq!(count, 1, "{what}: one resolver is asked");
        let sections = text("readelf", &["-SW", path(file)]);
        assert!(!sections.contains(" .data ") && !sections.contains(" .bss "), "{what}: {sections}");
    }
    let symbols = text("nm", &[path(&library)]);
    for suffix in ["_v3", "_v4"] {
        assert!(symbols.lines().any(|l| l.contains("m_k_") && l.ends_with(suffix)), "{symbols}");
    }
    let bytes = |p: &Path| std::fs::read(p).expect("the library");
    let first = bytes(&library);
    assert!(first == bytes(&so("libm.so", &[])), "the same bytes again");
    let plain = so("libplain.so", &["--target-cpu", "baseline"]);
    assert!(!text("readelf", &["-rW", path(&plain)]).contains("IRELATIV"));
    assert!(first.len() < 16 * bytes(&plain).len() / 10 + 300_000);
}

#[test]
fn objects_link_into_programs() {
    let dir = tempfile::tempdir().expect("a folder");
    let (object, main, program) = (dir.path().join("mlp.o"), dir.path().join("main.c"), dir.path().join("main"));
    let weights = "examples/models/mlp.safetensors";
    relax_aot(&["examples/models/mlp.rlx", "--params", weights, "-o", path(&object)]);
    assert_eq!(text("nm", &["-u", path(&object)]), "");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/c/main.c");
    std::fs::copy(source, &main).expect("the example");
    let mut said = vec![];
    for how in ["-static", "-static-pie", "-no-pie", "-pie"] {
        text("cc", &[how, "-O1", path(&main), path(&object), "-o", path(&program)]);
        said.push(text(path(&program), &[]));
    }
    assert!(said[0].contains("0.0361 0.0843"), "{}", said[0]);
    assert!(said.iter().all(|s| *s == said[0]), "{said:?}");
}
