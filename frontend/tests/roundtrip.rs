//! What is printed parses back to the same module, for every text of the corpus; printing that again gives the same
//! text. With `PRINT_DIR` set, the printed texts are left in that folder (tests/python/tvm_parses.py reads them).

use relax_frontend::rlx;
use relax_ir::printer::print_module;
use relax_ir::structural::compare;
use relax_ir::FileId;
use std::path::PathBuf;

fn texts() -> Vec<PathBuf> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&dir)
        .unwrap_or_else(|e| panic!("{}: {e}", dir.display()))
        .map(|f| f.expect("a directory entry").path())
        .filter(|p| p.extension().is_some_and(|e| e == "rlx"))
        .collect();
    files.sort();
    files
}

fn line(text: &str, at: u32) -> usize {
    text[..(at as usize).min(text.len())].matches('\n').count() + 1
}

#[test]
fn printed_texts_parse_to_the_same_module() {
    let folder = std::env::var_os("PRINT_DIR").map(PathBuf::from);
    if let Some(f) = &folder {
        std::fs::create_dir_all(f).expect("the folder for printed texts");
    }
    let mut failures = vec![];
    let (mut done, mut unread) = (0, 0);
    for path in texts() {
        let name = path.file_name().expect("a name").to_string_lossy().to_string();
        let text = std::fs::read_to_string(&path).expect("a text file");
        let (module, diags) = rlx::parse(FileId(0), &text);
        // What the parser refuses is the business of its own test.
        let Some(module) = module.filter(|_| !diags.has_errors()) else {
            unread += 1;
            let why = diags.list.iter().find(|d| d.is_error()).map(|d| d.message.clone()).unwrap_or_default();
            println!("{name} is not read: {why}");
            continue;
        };
        let printed = print_module(&module);
        if let Some(f) = &folder {
            std::fs::write(f.join(&name), &printed).expect("a printed text");
        }
        let (again, diags) = rlx::parse(FileId(0), &printed);
        if let Some(d) = diags.list.first() {
            let at = line(&printed, d.span().lo);
            let shown = printed.lines().nth(at - 1).unwrap_or_default();
            failures.push(format!("{name}:{at}: {}\n    {shown}", d.message));
            continue;
        }
        let again = again.expect("a module");
        if let Err(d) = compare(&module, &again) {
            failures.push(format!("{name}: {d}"));
        } else if print_module(&again) != printed {
            failures.push(format!("{name}: printed twice, the texts differ"));
        }
        done += 1;
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    println!("{done} texts printed and read back, {unread} not read");
    assert!(done > 750, "{done} texts only");
}
