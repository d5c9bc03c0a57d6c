//! The checks that are left to run time, as a golden figure: `tests/residual/checks.txt` lists them for each text of the
//! corpus, each program of `tests/lang`, each model of `examples/models` and each module of `tests/rules`. Checks of
//! arguments against the signature are not in it: they guard the border. What appears in it anew is either a check that
//! nothing implies, or a fault of the prover. `UPDATE_EXPECT=1 cargo test --test residual` records it.

use relax_aot::cli::{Cli, CodegenArgs};
use relax_aot::driver::Session;
use relax_ir::program::code;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

const HEADER: &str = "from tvm.script import ir as I, relax as R, tirx as T\n@I.ir_module\nclass Module:\n";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn options() -> CodegenArgs {
    use clap::Parser;
    Cli::parse_from(["relax-aot", "model.rlx", "-o", "libmodel.so"]).compile.options
}

/// The checks of a compiled model, one a line; `None` when it is refused.
fn checks(model: &Path) -> Option<Vec<String>> {
    let mut session = Session::default();
    let (program, _) = session.lower(model, "model", &options(), true).ok()?;
    let inside = program.checks.iter().filter(|c| matches!(c.code, code::CHECK | code::ASSERT | code::TYPE));
    Some(inside.map(|c| format!("{}: {}", c.condition, c.message)).collect())
}

fn files(folder: &str, ends: &[&str]) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = std::fs::read_dir(root().join(folder))
        .expect("the folder is there")
        .flatten()
        .map(|e| e.path())
        .filter(|p| ends.iter().any(|e| p.to_string_lossy().ends_with(e)))
        .collect();
    all.sort();
    all
}

/// The texts of the corpus as the newest dialect prints them: older ones read to the same modules.
fn corpus() -> Vec<(String, PathBuf)> {
    let folder = root().join("tests/corpus");
    let manifest = std::fs::read_to_string(folder.join("MANIFEST.json")).expect("the corpus has a manifest");
    let manifest: serde_json::Value = serde_json::from_str(&manifest).expect("the manifest is JSON");
    let texts =
        manifest["cases"].as_array().into_iter().flatten().flat_map(|c| c["texts"].as_array().into_iter().flatten());
    let texts = texts.filter(|t| t["stage"] != "lowered" && t["dialect"] == "v27");
    let named = texts.filter_map(|t| t["file"].as_str()).map(|f| (format!("corpus/{f}"), folder.join(f)));
    named.collect()
}

/// The modules of the rules, each written to a file of its own.
fn rules(to: &Path) -> Vec<(String, PathBuf)> {
    let mut out = vec![];
    for path in files("tests/rules", &[".md"]) {
        let text = std::fs::read_to_string(&path).expect("a document of rules");
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut heading = "";
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            heading = line.strip_prefix("## ").unwrap_or(heading);
            if line != "```rlx" {
                continue;
            }
            let body: String = lines.by_ref().take_while(|l| *l != "```").map(|l| format!("    {l}\n")).collect();
            let file = to.join(format!("{}.rlx", out.len()));
            std::fs::write(&file, HEADER.to_string() + &body).expect("the folder is writable");
            out.push((format!("rules/{stem}: {heading}"), file));
        }
    }
    out
}

/// shape_inference.md, "checks that always pass are removed": models as they are written leave nothing to check beyond their
/// signatures. Transposed and dilated convolutions, pyramids, grouped queries, experts with capacities, chunks, frames,
/// windows, masks, packed and ragged sequences, rotary halves, scans by chunks, paddings that are cut off again.
#[test]
fn models_leave_no_check_inside() {
    let models = files("tests/residual", &[".rlx"]);
    assert!(models.len() >= 20, "{}", models.len());
    for m in models {
        let name = m.display();
        assert_eq!(checks(&m).as_deref(), Some(&[][..]), "{name}");
    }
}

#[test]
fn no_check_is_left_that_the_prover_should_remove() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let mut models = corpus();
    for (folder, ends) in [("tests/lang", &[".rlx"][..]), ("examples/models", &[".rlx", ".onnx"])] {
        for f in files(folder, ends) {
            let name = f.file_name().unwrap_or_default().to_string_lossy().into_owned();
            models.push((format!("{}/{name}", folder.rsplit('/').next().unwrap_or(folder)), f));
        }
    }
    models.extend(rules(dir.path()));
    // By name and, for several modules under one heading, place.
    let found: Mutex<BTreeMap<usize, Option<Vec<String>>>> = Mutex::new(BTreeMap::new());
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = || loop {
        let i = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let Some((_, file)) = models.get(i) else { return };
        let checks = checks(file);
        found.lock().expect("no thread has failed").insert(i, checks);
    };
    std::thread::scope(|s| {
        for _ in 0..std::thread::available_parallelism().map_or(1, |n| n.get().min(8)) {
            // Deep recursion wants a large stack, as the compiler itself has it.
            std::thread::Builder::new().stack_size(64 << 20).spawn_scoped(s, work).expect("a thread");
        }
    });
    let found = found.into_inner().expect("no thread has failed");
    let (mut listed, mut none, mut refused) = (String::new(), 0, 0);
    for (i, checks) in found {
        match checks {
            None => refused += 1,
            Some(list) if list.is_empty() => none += 1,
            Some(list) => {
                let _ = writeln!(listed, "{}", models[i].0);
                listed.extend(list.iter().map(|c| format!("    {c}\n")));
            }
        }
    }
    let got = format!("{none} modules without checks inside, {refused} refused\n\n{listed}");
    let golden = root().join("tests/residual/checks.txt");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::create_dir_all(golden.parent().unwrap_or(root())).expect("the folder is writable");
        std::fs::write(&golden, &got).expect("the golden file is writable");
        return;
    }
    let want = std::fs::read_to_string(&golden).unwrap_or_default();
    let lines = |a: &str, b: &str| -> String {
        a.lines().filter(|l| !b.lines().any(|m| m == *l)).map(|l| format!("{l}\n")).collect()
    };
    assert!(
        got == want,
        "checks that are new:\n{}\nchecks that are gone:\n{}\nUPDATE_EXPECT=1 records them",
        lines(&got, &want),
        lines(&want, &got)
    );
}
