//! Rule `raise`: PrimFuncs that TVM's LegalizeOps makes of operators are these operators again. tests/raised/generate.py writes the modules.

#[expect(dead_code, reason = "there are no weights")]
mod command;

use command::{path, relax_aot, tensor};
use relax_aot::loader::Library;
use std::path::{Path, PathBuf};

const WITHIN: f64 = 1e-5;

/// The mean of squares less the square of the mean, two kernels; parts of a tensor, one slice each; weights of a dense transposed
/// convolution, which are turned round (once, where they are known). As for those who write them so, where the operator is one kernel.
const LONGER: [&str; 3] = ["conv_transpose_dense", "split", "variance"];

fn cases() -> Vec<(String, PathBuf, PathBuf)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/raised");
    let mut all = vec![];
    for entry in std::fs::read_dir(&folder).expect("the folder") {
        let legal = entry.expect("an entry").path();
        let Some(name) = path(&legal).strip_suffix(".legal.rlx").map(PathBuf::from) else { continue };
        let operators = name.with_extension("rlx");
        all.push((path(&name).rsplit('/').next().unwrap_or_default().to_string(), operators, legal));
    }
    all.sort();
    assert!(all.len() > 50, "{}", all.len());
    all
}

fn kernels(model: &Path) -> usize {
    let tir = relax_aot(&["print", path(model), "--stage", "tir", "--target-cpu", "native"]);
    // What TVM makes in front of convolutions and pooling.
    assert!(!["pad_temp", "data_pad", "kernel_transform"].iter().any(|b| tir.contains(b)), "{model:?}");
    tir.lines().filter(|l| l.trim_start().starts_with("def ") && !l.trim_start().starts_with("def main(")).count()
}

/// They have as many kernels as the operators, so that nothing of the graph is lost with a PrimFunc.
#[test]
fn legalized_operators_have_the_kernels_of_operators() {
    for (name, operators, legal) in cases() {
        let (own, wanted) = (kernels(&legal), kernels(&operators));
        if LONGER.contains(&name.as_str()) {
            assert!(own > wanted, "{name}: {own} kernels, {wanted} of the operator: not longer any more");
        } else {
            assert!(own <= wanted, "{name}: {own} kernels, {wanted} of the operator");
        }
    }
}

/// What -O0 leaves as it is, and what it is raised to.
const FORMS: [&[&str]; 3] = [&["--target-cpu", "baseline"], &["--target-cpu", "native"], &["--fp", "strict"]];

/// Results of a model whose first line has the shapes of its arguments; `None` where it is none.
fn results(dir: &Path, text: &str, options: &[&str]) -> Option<(Vec<i64>, Vec<f64>)> {
    let (model, so) = (dir.join("m.rlx"), dir.join(format!("m{}.so", options.join(""))));
    std::fs::write(&model, text).expect("the model is written");
    let shapes = text.lines().next().and_then(|l| l.strip_prefix("# ")).expect("shapes");
    let dims = |s: &str| s.split('x').map(|d| d.parse::<i64>().expect("a dim")).collect::<Vec<i64>>();
    let inputs: Vec<_> = shapes.split(' ').enumerate().map(|(i, s)| tensor(&dims(s), i as i64 + 1)).collect();
    let args = [&[path(&model), "-o", path(&so), "--prefix", "m"], options].concat();
    let done =
        std::process::Command::new(env!("CARGO_BIN_EXE_relax-aot")).args(args).output().expect("the command starts");
    assert!(matches!(done.status.code(), Some(0 | 1)), "{text}");
    if !done.status.success() {
        return None;
    }
    let library = Library::open(&so, "m").expect("the library");
    let results = library.run("main", &inputs, 1).unwrap_or_else(|e| panic!("{}: {text}", e.message));
    let values = (0..results[0].elements()).map(|i| results[0].get_f64(i)).collect();
    std::fs::remove_file(&so).expect("the library is removed");
    Some((results[0].shape.clone(), values))
}

/// Whether it is a model; its forms must compute what -O0 does.
fn agree(dir: &Path, name: &str, text: &str, forms: &[&[&str]]) -> bool {
    let Some((shape, wanted)) = results(dir, text, &["-O0"]) else { return false };
    for options in forms {
        let (own, got) = results(dir, text, options).expect("what compiles at -O0 does at -O2");
        assert_eq!(own, shape, "{name}, {options:?}");
        for (i, (a, b)) in wanted.iter().zip(&got).enumerate() {
            let same = (a - b).abs() <= WITHIN * (1.0 + a.abs()) || a.is_nan() && b.is_nan() || a == b;
            assert!(same, "{name}, {options:?}: {b} at {i}, not {a}\n{text}");
        }
    }
    true
}

/// They compute what the PrimFuncs compute, which -O0 leaves as they are.
#[test]
fn legalized_operators_compute_the_same() {
    let dir = tempfile::tempdir().expect("a folder");
    for (name, _, legal) in cases() {
        let text = std::fs::read_to_string(&legal).expect("the model");
        assert!(agree(dir.path(), &name, &text, &FORMS), "{name}");
    }
}

/// Blocks that are nearly those of an operator compute what they say: other beginnings, bounds, factors, strides and operations, each in
/// one place. None of them reads outside of its buffers.
#[test]
fn other_blocks_compute_what_they_say() {
    let dir = tempfile::tempdir().expect("a folder");
    let changes = [
        ("= T.float32(0.0)", "= T.float32(1.0)"),
        (", T.float32(0.0))", ", T.float32(0.25))"),
        ("T.float32(-340282346638528859811704183484516925440.0)", "T.float32(0.0)"),
        ("T.max(", "T.min("),
        ("T.min(", "T.max("),
        (", T.int64(13)), ", ", T.int64(12)), "),
        (", T.int64(11)), ", ", T.int64(10)), "),
        ("T.int64(1) <= v_", "T.int64(2) <= v_"),
        ("< T.int64(15)", "< T.int64(14)"),
        ("] * ", "] + "),
        ("] + ", "] - "),
        ("] / ", "] * "),
        ("T.exp(", "T.tanh("),
        ("T.rsqrt(", "T.sqrt("),
        (" / T.float32(", " * T.float32("),
        ("T.float32(16.0)", "T.float32(17.0)"),
        (" * T.int64(2) + v", " * T.int64(1) + v"),
        ("// T.int64(2)", "// T.int64(3)"),
        ("% T.int64(2) ==", "% T.int64(3) =="),
    ];
    let mut tried = 0;
    for (name, _, legal) in cases() {
        let text = std::fs::read_to_string(&legal).expect("the model");
        let blocks = text.find("T.sblock(").expect("a block");
        for (from, to) in changes {
            for (at, _) in
                text.match_indices(from).filter(|(at, _)| *at > blocks && !line(&text, *at).contains("T.reads"))
            {
                // What keeps an index inside of its buffer.
                if ["T.max(", "T.min("].contains(&from) && line(&text, at).contains("T.max(T.min(T.") {
                    continue;
                }
                let other = [&text[..at], to, &text[at + from.len()..]].concat();
                let name = format!("{name}: {to}");
                tried += agree(dir.path(), &name, &other, &[&["--target-cpu", "native"]]) as usize;
            }
        }
    }
    assert!(tried > 100, "{tried}");
}

fn line(text: &str, at: usize) -> &str {
    let begin = text[..at].rfind('\n').map_or(0, |n| n + 1);
    text[begin..].lines().next().unwrap_or_default()
}
