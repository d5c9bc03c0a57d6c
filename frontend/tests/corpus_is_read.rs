//! Every text of the corpus is read without an error.

mod common;

use common::{line, texts};
use relax_frontend::rlx;
use relax_ir::FileId;
use std::path::PathBuf;

#[test]
fn every_text_is_read() {
    let mut failures = vec![];
    let mut read = 0;
    for path in texts() {
        let text = std::fs::read_to_string(&path).expect("a text file");
        let name = path.file_name().expect("a name").to_string_lossy().to_string();
        let (module, diags) = rlx::parse(FileId(0), &text);
        read += 1;
        let Some(module) = module.filter(|_| diags.list.is_empty()) else {
            for d in diags.list.iter().take(3) {
                let at = line(&text, d.span().lo);
                let help = d.help.clone().unwrap_or_default();
                failures.push(format!("{name}:{at}: {} ({help})", d.message));
            }
            continue;
        };
        let functions = text.lines().filter(|l| l.starts_with("    def ")).count();
        if module.funcs.len() != functions {
            failures.push(format!("{name}: {} of {functions} functions", module.funcs.len()));
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    assert!(read > 800, "{read} texts read");
    println!("{read} texts read");
}

/// Where the versions of TVM legalised to different code, or pass other values: no matter of the text.
const VERSIONS_DIFFER: [&str; 8] = [
    // The order of scalar parameters is that of a hash table.
    "conv2d_symbolic.legalized",
    "nn_llama_kvcache.legalized",
    // Other index arithmetic.
    "pool2d.legalized",
    "strided_slice.legalized",
    "tile_repeat_pad.legalized",
    // shape_to_tensor became a PrimFunc.
    "shape_param.legalized",
    // Flags that are integers in 0.25 and bools today.
    "unique_match.legalized",
    "unique_match",
];

/// The texts of a case and stage in different dialects are one module.
#[test]
fn dialects_agree() {
    let mut failures = vec![];
    let mut compared = 0;
    for path in texts() {
        let name = path.file_name().expect("a name").to_string_lossy().to_string();
        let Some((stem, dialect)) = name.strip_suffix(".rlx").and_then(|n| n.rsplit_once('.')) else { continue };
        if !["v23", "v25", "v26", "py312"].contains(&dialect) || VERSIONS_DIFFER.contains(&stem) {
            continue;
        }
        let today = path.with_file_name(format!("{stem}.rlx"));
        let read = |p: &PathBuf| rlx::parse(FileId(0), &std::fs::read_to_string(p).expect("a text file")).0;
        let (Some(a), Some(b)) = (read(&today), read(&path)) else { continue };
        compared += 1;
        if let Err(d) = relax_ir::structural::compare(&a, &b) {
            failures.push(format!("{name}: {d}"));
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    assert!(compared > 300, "{compared} texts compared");
}
