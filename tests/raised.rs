//! Rule `raise`: PrimFuncs that TVM's LegalizeOps makes of operators are these operators again. tests/raised/generate.py writes the modules.

#[expect(dead_code, reason = "there are no weights")]
mod command;

use command::{path, relax_aot, tensor};
use relax_aot::loader::Library;
use std::path::{Path, PathBuf};

const WITHIN: f64 = 1e-5;

/// Norms whose variance TVM writes as the mean of squares less the square of the mean, and parts of a tensor, which are one slice each: a few
/// kernels as for those who write it so, where the operator is one kernel.
const LONGER: [&str; 4] = ["group_norm", "instance_norm", "split", "variance"];

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

/// They compute what the PrimFuncs compute, which -O0 leaves as they are.
#[test]
fn legalized_operators_compute_the_same() {
    let dir = tempfile::tempdir().expect("a folder");
    for (name, _, legal) in cases() {
        let text = std::fs::read_to_string(&legal).expect("the model");
        let shapes = text.lines().next().and_then(|l| l.strip_prefix("# ")).expect("shapes");
        let dims = |s: &str| s.split('x').map(|d| d.parse::<i64>().expect("a dim")).collect::<Vec<i64>>();
        let inputs: Vec<_> = shapes.split(' ').enumerate().map(|(i, s)| tensor(&dims(s), i as i64 + 1)).collect();
        let run = |options: &[&str]| {
            let so = dir.path().join(format!("{name}{}.so", options.join("")));
            relax_aot(&[&[path(&legal), "-o", path(&so), "--prefix", "m"], options].concat());
            let library = Library::open(&so, "m").expect("the library");
            let results = library.run("main", &inputs, 1).unwrap_or_else(|e| panic!("{name}: {}", e.message));
            let values: Vec<f64> = (0..results[0].elements()).map(|i| results[0].get_f64(i)).collect();
            (results[0].shape.clone(), values)
        };
        let (shape, wanted) = run(&["-O0"]);
        for options in [&["--target-cpu", "baseline"][..], &["--target-cpu", "native"], &["--fp", "strict"]] {
            let (own, got) = run(options);
            assert_eq!(own, shape, "{name}, {options:?}");
            for (i, (a, b)) in wanted.iter().zip(&got).enumerate() {
                assert!(
                    (a - b).abs() <= WITHIN * (1.0 + a.abs()) || a.is_nan() && b.is_nan(),
                    "{name}, {options:?}: {b} at {i}, not {a}"
                );
            }
        }
    }
}
