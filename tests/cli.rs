//! The command `relax-aot` as its users meet it: messages, exit codes, files.
//!
//! `tests/messages/NAME.rlx` holds a mistake and `NAME.txt` what `relax-aot check` says about it (a first line
//! `# args: ..` adds arguments). `UPDATE_EXPECT=1 cargo test --test cli` writes the `.txt` files anew.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const MODEL: &str = "examples/models/mlp.rlx";
const WEIGHTS: &str = "examples/models/mlp.safetensors";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn command(dir: &Path, args: &[&str]) -> Output {
    let mut c = Command::new(env!("CARGO_BIN_EXE_relax-aot"));
    c.current_dir(dir).args(args).stdin(Stdio::null()).env_remove("NO_COLOR");
    c.output().expect("the command starts")
}

/// Runs in the repository's root.
fn run(args: &[&str]) -> (i32, String, String) {
    of(&command(root(), args))
}

/// Exit code (-1: killed by a signal), standard output, standard error.
fn of(o: &Output) -> (i32, String, String) {
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    (o.status.code().unwrap_or(-1), text(&o.stdout), text(&o.stderr))
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn path(p: &Path) -> &str {
    p.to_str().expect("paths of tests are text")
}

/// The files in a folder, hidden ones too.
fn files(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("the folder is there");
    let mut names: Vec<String> = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Compiles `text` and requires a diagnostic with a place in the text, exit code 1 or 3, and no file. Returns the
/// messages; `None` when the text is fine.
fn refused(name: &str, text: &[u8]) -> Option<String> {
    let dir = scratch();
    let model = dir.path().join("model.rlx");
    std::fs::write(&model, text).expect("the model is written");
    let (code, _, err) = of(&command(dir.path(), &["model.rlx", "-o", "libmodel.so"]));
    if code == 0 {
        return None;
    }
    assert!(code == 1 || code == 3, "{name}: exit code {code}\n{err}");
    assert!(err.contains("error["), "{name}: no diagnostic\n{err}");
    assert_eq!(files(dir.path()), ["model.rlx"], "{name}: nothing is written");
    Some(err)
}

/// A line `--> model.rlx:LINE:COLUMN` and a caret below.
fn shows_place(err: &str) -> bool {
    err.contains("--> model.rlx:") && err.contains('^')
}

/// Pseudo-random numbers, the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }
}

fn model_text() -> String {
    std::fs::read_to_string(root().join(MODEL)).expect("the example model is there")
}

#[test]
fn messages_are_as_recorded() {
    let dir = root().join("tests/messages");
    let update = std::env::var_os("UPDATE_EXPECT").is_some();
    let mut wrong = vec![];
    for name in files(&dir).iter().filter(|n| n.ends_with(".rlx")) {
        let text = std::fs::read_to_string(dir.join(name)).expect("a text");
        let more = text.lines().next().and_then(|l| l.strip_prefix("# args: ")).unwrap_or("");
        let mut args = vec!["check", name.as_str()];
        args.extend(more.split_whitespace());
        let (code, out, err) = of(&command(&dir, &args));
        let got = format!("exit code {code}\n{out}{err}");
        let file = dir.join(name).with_extension("txt");
        if update {
            std::fs::write(&file, &got).expect("the expectation is written");
        } else if std::fs::read_to_string(&file).unwrap_or_default() != got {
            wrong.push(format!("--- {name}\n{got}"));
        }
    }
    assert!(wrong.is_empty(), "UPDATE_EXPECT=1 records what is new:\n{}", wrong.join("\n"));
}

#[test]
fn truncated_texts_are_refused() {
    let text = model_text();
    let whole = text.trim_end().len();
    let mut ends: Vec<usize> = (0..whole).step_by(211).collect();
    ends.extend([1, 2, whole - 1]);
    for end in ends {
        // A text may be whole where only its last line is cut: `return gv` to `return g` is not.
        let err = refused(&format!("the first {end} bytes"), &text.as_bytes()[..end]).expect("a cut text is refused");
        assert!(shows_place(&err) || err.contains("the text holds no module"), "{end}:\n{err}");
    }
}

#[test]
fn changed_bytes_never_break_the_compiler() {
    let text = model_text();
    let mut random = Random(7);
    for round in 0..40 {
        let mut bytes = text.clone().into_bytes();
        for _ in 0..1 + round % 4 {
            let at = random.next() as usize % bytes.len();
            bytes[at] = match random.next() % 3 {
                0 => random.next() as u8,
                1 => b"()[]{}=,:\"' \n\t#@"[random.next() as usize % 16],
                _ => 32 + (random.next() % 95) as u8,
            };
        }
        refused(&format!("round {round}"), &bytes);
    }
}

#[test]
fn random_bytes_are_refused() {
    let mut random = Random(1);
    for length in [1, 10, 1000, 100_000] {
        let bytes: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        refused(&format!("{length} random bytes"), &bytes).expect("noise is no model");
        let ascii: Vec<u8> = (0..length).map(|_| 32 + (random.next() % 95) as u8).collect();
        refused(&format!("{length} random characters"), &ascii).expect("noise is no model");
    }
    refused("zeros", &[0; 4096]).expect("zeros are no model");
}

#[test]
fn deep_nesting_is_refused() {
    for (open, close) in [("(", ")"), ("[", "]"), ("R.add(x, ", ")"), ("-", ""), ("R.Tuple([", "])")] {
        let deep = format!("{}x{}", open.repeat(10_000), close.repeat(10_000));
        let text = model_text().replace("= R.nn.relu(lv2)", &format!("= {deep}"));
        let err = refused(&format!("10,000 {open}"), text.as_bytes()).expect("too deep");
        assert!(shows_place(&err), "{open}:\n{err}");
    }
    for open in ["(", "[", "{", "if x:\n"] {
        refused(&format!("10,000 {open} alone"), open.repeat(10_000).as_bytes()).expect("no model");
    }
    let indented: String = (0..2000).map(|i| format!("{}if x:\n", " ".repeat(i))).collect();
    refused("2,000 nested blocks", indented.as_bytes()).expect("no model");
}

#[test]
fn enormous_signatures_and_sums_are_refused() {
    let tensor = "R.Tensor((4,), dtype=\"float32\")";
    let module = |params: &str, lines: &str| {
        format!("@I.ir_module\nclass Module:\n    @R.function\n    def main({params}):\n        {lines}\n")
    };
    let params: Vec<String> = (0..10_000).map(|i| format!("p{i}: {tensor}")).collect();
    let one = format!("x: {tensor}");
    let texts = [
        ("10,000 parameters", module(&params.join(", "), "return p0")),
        ("10,000 results", module(&one, &format!("return ({})", "x, ".repeat(10_000)))),
        ("5,000 terms", module(&one, &format!("return {}", vec!["x"; 5_000].join(" + ")))),
        ("10,000 dims", module(&format!("x: R.Tensor(({}), \"float32\")", "1, ".repeat(10_000)), "return x")),
    ];
    for (name, text) in texts {
        let err = refused(name, text.as_bytes()).expect(name);
        assert!(shows_place(&err), "{name}:\n{err}");
    }
}

#[test]
fn files_that_cannot_be_read() {
    let dir = scratch();
    let folder = dir.path().join("folder.rlx");
    std::fs::create_dir(&folder).expect("a folder");
    let out = dir.path().join("libx.so");
    for model in ["nothing.rlx", path(&folder), path(dir.path())] {
        let (code, _, err) = run(&[model, "-o", path(&out)]);
        assert!((code == 1 || code == 3) && err.contains("error["), "{model}: {code}\n{err}");
        assert!(err.contains(model), "{model} is named:\n{err}");
    }
    for weights in ["nothing.safetensors", "nothing.npz", "README.md", MODEL, path(&folder)] {
        let (code, _, err) = run(&[MODEL, "--params", weights, "-o", path(&out)]);
        assert!(code == 1 && err.contains("error[") && err.contains(weights), "{weights}: {code}\n{err}");
    }
    for (name, bytes) in [("cut.safetensors", &b"\x10\0\0\0\0\0\0\0{\"a\""[..]), ("cut.npz", b"PK\x03\x04zip")] {
        let file = dir.path().join(name);
        std::fs::write(&file, bytes).expect("a file");
        let (code, _, err) = run(&[MODEL, "--params", path(&file), "-o", path(&out)]);
        assert!(code == 1 && err.contains("error["), "{name}: {code}\n{err}");
    }
    assert!(!out.exists());
}

/// Weights have their own names or those that TVM's printer makes of them, where only one has that.
#[test]
fn weights_by_the_names_that_are_printed() {
    let dir = scratch();
    let model = dir.path().join("named.rlx");
    let tensor = "R.Tensor((2,), dtype=\"float32\")";
    let text = format!(
        "@I.ir_module\nclass Module:\n    @R.function\n    def main(x: {tensor}, layer_0_w: {tensor}):\n        \
         R.func_attr({{\"num_input\": 1}})\n        gv = R.add(x, layer_0_w)\n        return gv\n"
    );
    std::fs::write(&model, text).expect("a model");
    for (names, code, says) in [
        (&["layer_0_w"][..], 0, ""),
        (&["layer.0.w"], 0, ""),
        (&["layer_0_w", "layer.0.w"], 0, "the weight layer.0.w is the name of no parameter"),
        (&["layer.0.w", "layer.0_w"], 1, "the weight layer_0_w is not in the file"),
    ] {
        let entry = |(i, n): (usize, &&str)| {
            format!("\"{n}\":{{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[{},{}]}}", 8 * i, 8 * i + 8)
        };
        let head = format!("{{{}}}", names.iter().enumerate().map(entry).collect::<Vec<_>>().join(","));
        let file = dir.path().join("named.safetensors");
        let bytes = [&(head.len() as u64).to_le_bytes(), head.as_bytes(), &vec![0; 8 * names.len()]].concat();
        std::fs::write(&file, bytes).expect("weights");
        let out = dir.path().join("libnamed.so");
        let (got, _, err) = run(&[path(&model), "--params", path(&file), "-o", path(&out)]);
        assert!(got == code && err.contains(says), "{names:?}: {got}\n{err}");
    }
}

#[test]
fn outputs_that_cannot_be_written() {
    let dir = scratch();
    let folder = dir.path().join("libfolder.so");
    std::fs::create_dir(&folder).expect("a folder");
    for out in ["/nonexistent/libx.so", path(&folder), "/proc/libx.so"] {
        let (code, _, err) = run(&[MODEL, "--params", WEIGHTS, "-o", out]);
        assert!(code == 1 && err.contains("cannot-write") && err.contains(out), "{out}: {code}\n{err}");
        assert_eq!(err.contains("make the folder /nonexistent first"), out.starts_with("/nonexistent"), "{err}");
    }
    // A header that cannot be written takes the library with it.
    std::fs::create_dir(dir.path().join("y.h")).expect("a folder");
    let (code, _, err) = run(&[MODEL, "--params", WEIGHTS, "-o", path(&dir.path().join("liby.so"))]);
    assert!(code == 1 && err.contains("cannot-write"), "{code}\n{err}");
    assert_eq!(files(dir.path()), ["libfolder.so", "y.h"]);
    // An output never replaces an input.
    let model = dir.path().join("model.rlx");
    std::fs::write(&model, model_text()).expect("a model");
    let (code, _, err) = run(&[path(&model), "-o", path(&model)]);
    assert!(code == 1 && err.contains("output-is-input"), "{code}\n{err}");
    assert_eq!(std::fs::read_to_string(&model).expect("it is there"), model_text());
}

#[test]
fn inputs_that_are_no_models() {
    let dir = scratch();
    let out = dir.path().join("libx.so");
    for (code, input, message, help) in [
        (1, "nothing.rlx", "cannot read nothing.rlx: No such file", ""),
        (1, "nothing.onnx", "cannot read nothing.onnx: No such file", ""),
        (3, "tests", "tests: this is a folder", "name the model in it"),
        (3, WEIGHTS, "these are weights", "with --params"),
        (3, "Cargo.toml", "Cargo.toml: the kind of file is not known", "mod.script()"),
    ] {
        let (got, _, err) = run(&[input, "-o", path(&out)]);
        assert!(got == code && err.contains(message) && err.contains(help), "{input}: {got}\n{err}");
    }
    let (code, _, err) = run(&["run", MODEL, "--params", WEIGHTS]);
    assert!(code == 1 && err.contains("the model takes 1 argument (x), there are 0 arrays"), "{code}\n{err}");
    assert!(!out.exists());
}

#[test]
fn exit_codes() {
    let dir = scratch();
    let out = dir.path().join("libx.so");
    let o = path(&out);
    let c = dir.path().join("x.c");
    let c = path(&c);
    let cases: &[(i32, &[&str])] = &[
        (0, &["--help"]),
        (0, &["--version"]),
        (0, &["check", MODEL]),
        (0, &["check", MODEL, "--params", WEIGHTS, "--dim", "s77=1..8", "--max-ram", "64K"]),
        (1, &["check", MODEL, "--params", WEIGHTS, "--max-ram", "1K"]),
        (1, &[MODEL, "--params", WEIGHTS, "-o", o, "--max-flash", "1K"]),
        (1, &[MODEL, "--params", WEIGHTS, "-o", c, "--target", "thumbv7em-none-eabihf", "--max-flash", "1K"]),
        (1, &[MODEL, "-o", o, "--max-ram", "much"]),
        (1, &[MODEL, "-o", o, "--dim", "batch=1..8"]),
        (1, &[MODEL, "-o", o, "--dim", "s77=8..1"]),
        (1, &[MODEL, "-o", o, "--prefix", "3 d"]),
        (1, &[MODEL, "-o", o, "--target", "nowhere"]),
        (1, &[MODEL, "-o", o, "--target-cpu", "abacus"]),
        (1, &[MODEL, "-o", "model.xyz"]),
        (1, &["run", MODEL, "--params", WEIGHTS]),
        (1, &["run", MODEL, "--params", WEIGHTS, "--entry", "nothing"]),
        (2, &[]),
        (2, &[MODEL]),
        (2, &["check"]),
        (2, &["frobnicate", MODEL]),
        (2, &[MODEL, "-o", o, "--frobnicate"]),
        (2, &[MODEL, "-o", o, "-O9"]),
        (1, &[MODEL, "-o", o, "--threads", "65"]),
        (3, &[MODEL, "--emit", "obj", "-o", o, "--threads", "4"]),
        (3, &[MODEL, "-o", o, "--target", "avr-unknown-none"]),
        // Options that would change nothing, and bounds that no call meets.
        (1, &["check", MODEL, "--structure", "x=3"]),
        (3, &[MODEL, "-o", o, "--messages", "none"]),
        (1, &["check", MODEL, "--dim", "s77=9..12", "--dim", "s77<=8"]),
        (1, &["check", MODEL, "--dim", "s77=100..200"]),
    ];
    for (want, args) in cases {
        let (code, _, err) = run(args);
        assert_eq!(code, *want, "{args:?}:\n{err}");
        assert_eq!(code == 0, err.is_empty(), "{args:?}: messages exactly when it fails\n{err}");
    }
    assert!(files(dir.path()).is_empty());
}

#[test]
fn every_subcommand_has_help_with_examples() {
    for sub in [None, Some("check"), Some("run"), Some("print"), Some("inspect")] {
        let args: Vec<&str> = sub.into_iter().chain(["--help"]).collect();
        let (code, out, _) = run(&args);
        assert_eq!(code, 0);
        assert!(out.contains("Examples:\n  relax-aot "), "{sub:?}:\n{out}");
    }
}

#[test]
fn check_speaks_json() {
    let (code, out, err) = run(&["check", MODEL, "--format", "json"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let v: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((v["ok"].as_bool(), v["diagnostics"].as_array().map(Vec::len)), (Some(true), Some(0)));

    let (code, out, err) = run(&["check", "tests/messages/unknown-operator.rlx", "--format", "json"]);
    assert_eq!((code, err.as_str()), (3, ""));
    let v: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(v["ok"].as_bool(), Some(false));
    let list = v["diagnostics"].as_array().expect("a list");
    assert_eq!(list.len(), 2, "{out}");
    for d in list {
        assert_eq!(d["severity"].as_str(), Some("error"));
        assert_eq!(d["fault"].as_str(), Some("unsupported"));
        assert!(d["message"].as_str().is_some_and(|m| m.contains("there is no operator")), "{out}");
        let label = &d["labels"][0];
        assert_eq!(label["file"].as_str(), Some("tests/messages/unknown-operator.rlx"));
        assert!(label["line"].as_u64().is_some_and(|l| l > 1) && label["column"].as_u64().is_some(), "{out}");
    }
    let (code, out, _) = run(&["check", "nothing.rlx", "--format", "json"]);
    let v: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, v["ok"].as_bool()), (1, Some(false)));
}

#[test]
fn every_stage_is_printed() {
    for stage in ["relax", "normal", "typed", "lowered", "tir", "flat", "clif", "asm"] {
        let (code, out, err) = run(&["print", MODEL, "--params", WEIGHTS, "--stage", stage]);
        assert!(code == 0 && out.len() > 500, "{stage}: {code}\n{err}");
        let dir = scratch();
        // What is printed as Relax is a model again.
        if ["relax", "normal", "typed", "lowered", "tir"].contains(&stage) {
            let again = dir.path().join("again.rlx");
            std::fs::write(&again, &out).expect("a text");
            let (code, _, err) = run(&["check", path(&again)]);
            assert_eq!(code, 0, "{stage}:\n{err}");
        }
    }
}

#[test]
fn artifacts_of_text_are_the_stages_of_their_names() {
    let dir = scratch();
    let out = dir.path().join("text");
    for stage in ["typed", "flat", "clif", "asm"] {
        let (code, printed, err) = run(&["print", MODEL, "--stage", stage, "--prefix", "p"]);
        assert_eq!(code, 0, "{stage}:\n{err}");
        let (code, _, err) = run(&[MODEL, "--emit", stage, "--prefix", "p", "-o", path(&out)]);
        assert_eq!(code, 0, "{stage}:\n{err}");
        assert!(std::fs::read_to_string(&out).expect("a text") == printed, "{stage}");
    }
}

#[test]
fn results_have_the_names_of_the_model() {
    let dir = scratch();
    let out = dir.path().join("out.npz");
    let model = "tests/contrib/cases/layer_norm.onnx";
    let arrays = relax_frontend::weights::open_npz(&root().join(model).with_extension("npz")).expect("arrays");
    let arrays: Vec<_> = arrays.into_iter().filter(|(n, _)| !n.starts_with("result.")).collect();
    let inputs = dir.path().join("in.npz");
    std::fs::write(&inputs, relax_frontend::weights::npz_bytes(&arrays).expect("arrays")).expect("a file");
    let (code, text, err) = run(&["run", model, "--inputs", path(&inputs), "--outputs", path(&out)]);
    assert_eq!(code, 0, "{err}");
    assert!(text.starts_with("y0: "), "{text}");
    let written = relax_frontend::weights::open_npz(&out).expect("arrays");
    assert_eq!(written.first().map(|(n, _)| n.as_str()), Some("y0"));
}

#[test]
fn same_bytes_from_every_process_and_place() {
    let (a, b) = (scratch(), scratch());
    for (file, more) in [
        ("libmlp.so", &[][..]),
        ("mlp.o", &[]),
        ("libmlp.a", &[]),
        ("mlp.o", &["--target", "riscv64gc-unknown-none-elf"]),
        ("mlp.o", &["-O0"]),
        ("mlp.c", &[]),
    ] {
        let mut outputs = vec![];
        for dir in [&a, &b] {
            let out = dir.path().join(file);
            let mut args = vec![MODEL, "--params", WEIGHTS, "-o", path(&out)];
            args.extend(more);
            let (code, _, err) = run(&args);
            assert_eq!(code, 0, "{file}:\n{err}");
            let header = std::fs::read(out.with_file_name("mlp.h")).expect("the header");
            outputs.push((std::fs::read(&out).expect("the output"), header));
        }
        assert!(outputs[0] == outputs[1], "{file} {more:?} differs between two compilations");
    }
    // Twice in one process.
    let session = || {
        use clap::Parser;
        let args = ["relax-aot", MODEL, "--params", WEIGHTS, "-o", "libmlp.so"];
        let mut o = relax_aot::cli::Cli::parse_from(args).compile.options;
        o.params = Some(root().join(WEIGHTS));
        let dir = scratch();
        let out: PathBuf = dir.path().join("libmlp.so");
        let mut s = relax_aot::driver::Session::default();
        assert!(s.build(&root().join(MODEL), &out, None, &o).is_ok(), "{:?}", s.diags);
        std::fs::read(&out).expect("the library")
    };
    let first = session();
    assert!(first == session(), "two compilations in one process differ");
    assert!(first == std::fs::read(a.path().join("libmlp.so")).expect("the library"), "another process differs");
}

/// One drawing for each memory, with the buffers that lie there.
#[test]
fn regions_are_drawn() {
    let dir = scratch();
    let svg = dir.path().join("memory.svg");
    let model = "examples/models/kws_int8.onnx";
    let target = ["--target", "aarch64-unknown-none", "--region", "fast=9K,slow=16K"];
    let args: Vec<&str> = ["inspect", model, "--svg", path(&svg)].into_iter().chain(target).collect();
    let (code, _, err) = run(&args);
    assert_eq!(code, 0, "{err}");
    let drawing = std::fs::read_to_string(&svg).expect("the drawing");
    let parts: Vec<&str> = drawing.split("memory of main in ").collect();
    assert!(parts.len() == 3 && parts[1].starts_with("fast: ") && parts[2].starts_with("slow: "), "{drawing}");
    assert!(parts[1..].iter().all(|p| p.contains("<title>")), "{drawing}");
}

#[test]
fn a_library_says_what_it_contains() {
    let dir = scratch();
    // Another prefix than the file's name: inspect finds it.
    let so = dir.path().join("libmlp.so");
    let args = [MODEL, "--params", WEIGHTS, "-o", path(&so), "--prefix", "net", "--dim", "s77=2..32", "--dim", "s77%2"];
    let (code, _, err) = run(&args);
    assert_eq!(code, 0, "{err}");
    assert_eq!(files(dir.path()), ["libmlp.so", "net.h"]);
    let (code, out, err) = run(&["inspect", path(&so)]);
    assert_eq!(code, 0, "{err}");
    for part in ["prefix net", "entry main: net_main", "at least 2, at most 32, a multiple of 2", "weights: 7976 bytes"]
    {
        assert!(out.contains(part), "{part} in:\n{out}");
    }
    let (_, out, _) = run(&["inspect", path(&so), "--format", "json"]);
    let v: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(v["entries"][0]["dims"][0]["divisor"].as_i64(), Some(2));
    assert!(v["entries"][0]["workspace_max"].as_i64().is_some_and(|n| n > 0), "{out}");

    let object = dir.path().join("net.o");
    let (code, _, err) = run(&[MODEL, "--params", WEIGHTS, "-o", path(&object), "--target", "aarch64-unknown-none"]);
    assert_eq!(code, 0, "{err}");
    let (code, out, err) = run(&["inspect", path(&object)]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("undefined: none") && out.contains("writable: 0 bytes"), "{out}");

    let (code, out, err) = run(&["inspect", MODEL]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("nn.softmax 1") && out.contains("kernels: "), "{out}");

    let (code, _, err) = run(&["inspect", path(&dir.path().join("net.h"))]);
    assert!(code == 3 && err.contains("error["), "{code}\n{err}");
    std::fs::write(&so, b"no library").expect("a file");
    let (code, _, err) = run(&["inspect", path(&so)]);
    assert!(code == 1 && err.contains("error["), "{code}\n{err}");
}

#[test]
fn runs_compare_and_write_results() {
    let dir = scratch();
    let case = |k: u32, what: &str| format!("tests/corpus/binary_same_sym.{k}.{what}.npz");
    let model = "tests/corpus/binary_same_sym.rlx";
    let out = dir.path().join("out.npz");
    let (code, text, err) =
        run(&["run", model, "--inputs", &case(0, "in"), "--expect", &case(0, "out"), "--outputs", path(&out)]);
    assert_eq!(code, 0, "{err}");
    assert!(text.contains("agree with the reference"), "{text}");
    // What it wrote is a reference too.
    let (code, _, err) = run(&["run", model, "--inputs", &case(0, "in"), "--expect", path(&out), "--repeat", "3"]);
    assert_eq!(code, 0, "{err}");
    // The results of another run differ.
    let (code, _, err) = run(&["run", model, "--inputs", &case(0, "in"), "--expect", &case(1, "out")]);
    assert!(code == 1 && err.contains("error[mismatch]"), "{code}\n{err}");
    // A run that the model must refuse.
    let (code, _, err) = run(&["run", model, "--inputs", &case(2, "in")]);
    assert!(code == 1 && err.contains("error[run]") && err.contains("wanted"), "{code}\n{err}");
}

#[test]
fn checks_can_be_left_out() {
    let dir = scratch();
    let case = |what: &str| format!("tests/corpus/binary_same_sym.0.{what}.npz");
    let model = "tests/corpus/binary_same_sym.rlx";
    let (code, _, err) = run(&["run", model, "--inputs", &case("in"), "--expect", &case("out"), "--no-checks"]);
    assert_eq!(code, 0, "{err}");
    let size = |more: &[&str]| {
        let out = dir.path().join("libx.so");
        let args = [&[MODEL, "--params", WEIGHTS, "-o", path(&out)], more].concat();
        let (code, _, err) = run(&args);
        assert_eq!(code, 0, "{err}");
        std::fs::metadata(&out).expect("the library").len()
    };
    assert!(size(&["--no-checks"]) < size(&[]), "code without checks is smaller");
    let (_, out, _) = run(&["check", MODEL, "--no-checks"]);
    assert!(out.contains("checks at run time: 0"), "{out}");
}

#[test]
fn weights_in_a_file_of_their_own() {
    use relax_aot::loader::Library;
    let dir = scratch();
    let so = dir.path().join("libnet.so");
    let (model, weights) =
        ("tests/corpus/torch_mobilenet_block.rlx", "tests/corpus/torch_mobilenet_block.params.safetensors");
    let args = [model, "--params", weights, "-o", path(&so), "--weights", "external"];
    let (code, _, err) = run(&args);
    assert_eq!(code, 0, "{err}");
    assert_eq!(files(dir.path()), ["libnet.so", "net.h", "net.weights"]);
    let header = std::fs::read_to_string(dir.path().join("net.h")).expect("the header");
    let bytes = std::fs::read(dir.path().join("net.weights")).expect("the weights");
    assert!(header.contains(&format!("#define NET_WEIGHTS_BYTES {}u", bytes.len())), "{header}");
    // `run` brings them, with the recorded results.
    let case = |what: &str| format!("tests/corpus/torch_mobilenet_block.0.{what}.npz");
    let (input, output) = (case("in"), case("out"));
    let args = ["run", model, "--params", weights, "--inputs", &input, "--expect", &output, "--rtol", "1e-3"];
    let (code, _, err) = run(&[&args[..], &["--weights", "external"]].concat());
    assert_eq!(code, 0, "{err}");
    // None, too few, another model's.
    let inputs: Vec<_> = relax_frontend::weights::open_npz(&root().join(input)).expect("the inputs");
    let inputs: Vec<_> = inputs.into_iter().map(|(_, c)| c).collect();
    let mut library = Library::open(&so, "net").expect("the library");
    let code =
        |l: &Library| l.run("main", &inputs, 1).map_or_else(|e| (e.code as i64, e.message), |_| (0, String::new()));
    let (null, dim, check) = {
        use relax_ir::program::code::*;
        (NULL, DIM, CHECK)
    };
    assert_eq!(code(&library).0, null);
    library.set_weights(&bytes[..bytes.len() - 1]);
    assert_eq!(code(&library).0, dim);
    let mut other = bytes.clone();
    other[8] ^= 1;
    library.set_weights(&other);
    assert_eq!(code(&library).0, check);
    library.set_weights(&bytes);
    assert_eq!(code(&library), (0, String::new()));
    // As C, the same file.
    let c = dir.path().join("c");
    std::fs::create_dir(&c).expect("a folder");
    let (status, _, err) = run(&[model, "--params", weights, "-o", path(&c.join("net.c")), "--weights", "external"]);
    assert_eq!(status, 0, "{err}");
    assert_eq!(files(&c), ["net.c", "net.h", "net.weights"]);
    // Nothing large enough: a warning, and no file.
    let so = dir.path().join("libsmall.so");
    let (code, _, err) = run(&["tests/corpus/binary_same_sym.rlx", "-o", path(&so), "--weights", "external"]);
    assert!(code == 0 && err.contains("warning[option]"), "{code}\n{err}");
    assert!(!dir.path().join("small.weights").exists());
}
