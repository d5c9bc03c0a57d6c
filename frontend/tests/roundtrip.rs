//! What is printed parses back to the same module, for every text of the corpus; printing that again gives the same
//! text. The same for the normal form that analysis makes of it, with the types it finds.
//!
//! With `PRINT_DIR` set, the printed texts are left in that folder (`NAME`, and `normal/NAME` for the typed normal
//! form), where tests/python/tvm_parses.py reads them:
//!
//! ```sh
//! PRINT_DIR=/tmp/printed cargo test -p relax-frontend --test roundtrip
//! python3 tests/python/tvm_parses.py /tmp/printed
//! ```

mod common;

use common::{line, texts};
use relax_frontend::rlx;
use relax_ir::analysis::analyze;
use relax_ir::printer::{print_module, print_typed};
use relax_ir::structural::compare;
use relax_ir::{FileId, IRModule};
use std::path::{Path, PathBuf};

/// Prints, parses, compares; the printed text.
fn round(name: &str, module: &IRModule, printed: &str, failures: &mut Vec<String>) {
    let (again, diags) = rlx::parse(FileId(0), printed);
    if let Some(d) = diags.list.first() {
        let at = line(printed, d.span().lo);
        let shown = printed.lines().nth(at - 1).unwrap_or_default();
        failures.push(format!("{name}:{at}: {}\n    {shown}", d.message));
        return;
    }
    let again = again.expect("a module");
    if let Err(d) = compare(module, &again) {
        failures.push(format!("{name}: {d}"));
    } else if print_module(&again) != printed {
        failures.push(format!("{name}: printed twice, the texts differ"));
    }
}

fn keep(folder: Option<&Path>, name: &str, text: &str) {
    if let Some(f) = folder {
        std::fs::create_dir_all(f).expect("the folder for printed texts");
        std::fs::write(f.join(name), text).expect("a printed text");
    }
}

#[test]
fn printed_texts_parse_to_the_same_module() {
    let folder = std::env::var_os("PRINT_DIR").map(PathBuf::from);
    let mut failures = vec![];
    let (mut done, mut normal) = (0, 0);
    for path in texts() {
        let name = path.file_name().expect("a name").to_string_lossy().to_string();
        let text = std::fs::read_to_string(&path).expect("a text file");
        let (module, diags) = rlx::parse(FileId(0), &text);
        let Some(module) = module.filter(|_| !diags.has_errors()) else {
            let why = diags.list.iter().find(|d| d.is_error()).map(|d| d.message.clone()).unwrap_or_default();
            failures.push(format!("{name} is not read: {why}"));
            continue;
        };
        let printed = print_module(&module);
        // It calls TVM's argsort from a PrimFunc. We read that as the loops of a sort, which have no text of TVM's.
        let folder = folder.as_ref().filter(|_| name != "median_bucketize.legalized.rlx");
        keep(folder.map(PathBuf::as_path), &name, &printed);
        round(&name, &module, &printed, &mut failures);
        done += 1;

        // What analysis cannot take is the business of its own test.
        let (Some(typed), _) = analyze(&module) else { continue };
        let printed = print_typed(&typed.module, &typed.sinfo);
        keep(folder.map(|f| f.join("normal")).as_deref(), &name, &printed);
        let (again, diags) = rlx::parse(FileId(0), &printed);
        match (again, diags.list.first()) {
            (Some(m), None) => round(&format!("normal form of {name}"), &m, &print_module(&m), &mut failures),
            (_, d) => {
                let at = d.map_or(0, |d| line(&printed, d.span().lo));
                let shown = printed.lines().nth(at.saturating_sub(1)).unwrap_or_default();
                let why = d.map(|d| d.message.clone()).unwrap_or_default();
                failures.push(format!("normal form of {name}:{at}: {why}\n    {shown}"));
            }
        }
        let plain = print_module(&typed.module);
        round(&format!("plain normal form of {name}"), &typed.module, &plain, &mut failures);
        normal += 1;
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    println!("{done} texts printed and read back, {normal} of them in normal form too");
    assert!(done > 800, "{done} texts only");
}
