//! The rules of the language as documents: `tests/rules/*.md`, one file per section of the specification, one heading
//! (`## 4.2 what it says`) per rule, under it modules with what is expected of them and the rendered diagnostics.
//!
//! A block of `rlx` holds the functions of a module. Comments at the end of a line say what happens there:
//!
//! * `# error[code]: part of the message`, `# warning[code]: ..`: every diagnostic is named, there are no others;
//! * `# is R.Tensor(..)`: the struct info of the variable bound in this line;
//! * `# check n == m`: the conditions that are left to run time in this line: all are named.
//!
//! A line `# module: error[code]: ..` names a diagnostic that has no place. `# named` asks for
//! struct info after every unknown dim got a name. The block of `text` that follows is what a user sees;
//! `RELAX_AOT_UPDATE=1 cargo test --test rules` writes these blocks anew.
//!
//! One test per block, named `file::rule`. `docs/spec-coverage.md` names them; it has a test here too.

use libtest_mimic::{Arguments, Failed, Trial};
use relax_aot::render;
use relax_aot::source::Sources;
use relax_frontend::rlx::parse;
use relax_ir::analysis::{analyze, materialise, show, Typed};
use relax_ir::diag::Severity;
use relax_ir::{Diagnostics, FileId};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const HEADER: &str = "from tvm.script import ir as I, relax as R, tirx as T\n@I.ir_module\nclass Module:\n";

struct Case {
    name: String,
    module: String,
    golden: Option<String>,
}

/// A document in pieces: text as it stands, and cases whose golden blocks may be rewritten.
enum Piece {
    Text(String),
    Case(Case),
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rules")
}

fn read(path: &Path) -> Vec<Piece> {
    let text = std::fs::read_to_string(path).expect("a document of rules is readable");
    let file = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut pieces = vec![];
    let (mut heading, mut nth) = (String::new(), 0);
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(h) = line.strip_prefix("## ") {
            heading = h.trim().to_string();
            nth = 0;
        }
        if line != "```rlx" {
            pieces.push(Piece::Text(format!("{line}\n")));
            continue;
        }
        nth += 1;
        let module: String = lines.by_ref().take_while(|l| *l != "```").map(|l| format!("{l}\n")).collect();
        let golden = lines.next_if(|l| *l == "```text").map(|_| {
            let body = lines.by_ref().take_while(|l| *l != "```");
            body.map(|l| format!("{l}\n")).collect()
        });
        let name = if nth == 1 { format!("{file}::{heading}") } else { format!("{file}::{heading} ({nth})") };
        pieces.push(Piece::Case(Case { name, module, golden }));
    }
    pieces
}

/// The functions of a case as a whole module.
fn whole(functions: &str) -> String {
    let indented = functions.lines().map(|l| if l.is_empty() { "\n".to_string() } else { format!("    {l}\n") });
    HEADER.to_string() + &indented.collect::<String>()
}

fn expectation(comment: &str) -> bool {
    ["error[", "warning[", "is ", "check ", "module: "].iter().any(|p| comment.starts_with(p))
}

/// The text without its expectations: what the golden blocks show.
fn bare(functions: &str) -> String {
    let mut out = String::new();
    for line in functions.lines() {
        let kept = match line.split_once("# ") {
            Some((code, comment)) if expectation(comment) || comment == "named" || comment == "warned" => {
                code.trim_end()
            }
            _ => line,
        };
        out.push_str(kept);
        out.push('\n');
    }
    out
}

fn check_all(functions: &str) -> Result<String, String> {
    let text = whole(&bare(functions));
    let mut sources = Sources::default();
    let id = sources.add(Path::new("module.rlx"), text.clone());
    let (typed, diags) = analyse(id, &text, functions);
    let rendered = render::text(&diags, &sources, false);
    let rendered: String = rendered.lines().map(|l| format!("{}\n", l.trim_end())).collect();
    compare(functions, &text, typed.as_ref(), &diags)
        .map(|()| rendered.trim_end().to_string() + "\n")
        .map_err(|e| format!("{e}\n{rendered}"))
}

fn analyse(id: FileId, text: &str, functions: &str) -> (Option<Typed>, Diagnostics) {
    let (module, mut diags) = parse(id, text);
    let Some(module) = module.filter(|_| !diags.has_errors()) else { return (None, diags) };
    let (mut typed, more) = analyze(&module);
    diags.extend(more);
    if functions.lines().any(|l| l == "# named") {
        if let Some(Err(more)) = typed.as_mut().map(materialise) {
            diags.extend(more);
        }
    }
    if functions.lines().any(|l| l == "# warned") {
        diags.list.extend(typed.iter().flat_map(relax_ir::analysis::warnings::of));
    }
    (typed, diags)
}

fn compare(functions: &str, text: &str, typed: Option<&Typed>, diags: &Diagnostics) -> Result<(), String> {
    let line_of = |at: u32| text[..(at as usize).min(text.len())].matches('\n').count() + 1;
    let first = HEADER.matches('\n').count() + 1;
    let mut got: Vec<(usize, String)> = vec![];
    for d in &diags.list {
        let line = if d.span().is_none() { 0 } else { line_of(d.span().lo) };
        let kind = if d.severity == Severity::Error { "error" } else { "warning" };
        let labels: String = d.labels.iter().map(|l| format!(" | {}", l.text)).collect();
        got.push((line, format!("{kind}[{}]: {}{labels}", d.code, d.message)));
    }
    for c in typed.iter().flat_map(|t| &t.checks) {
        got.push((line_of(c.span.lo), format!("check {}", show::dim(&c.condition))));
    }
    let mut missing = vec![];
    for (i, line) in functions.lines().enumerate() {
        for want in line.split("# ").skip(1).filter(|c| expectation(c)) {
            let want = want.trim();
            let (at, want) = match want.strip_prefix("module: ") {
                Some(w) => (0, w),
                None => (i + first, want),
            };
            if let Some(info) = want.strip_prefix("is ") {
                let found: Vec<String> = typed
                    .iter()
                    .flat_map(|t| &t.sinfo)
                    .filter(|(v, _)| !v.span().is_none() && line_of(v.span().lo) == at && bound(line, v.name()))
                    .map(|(_, s)| show::info(s))
                    .collect();
                if !found.iter().any(|f| f == info) {
                    missing.push(format!("line {at}: is {info}: found {found:?}"));
                }
                continue;
            }
            let fits = |(l, m): &(usize, String)| {
                let same = match want.split_once("]: ") {
                    Some((code, part)) => m.split_once("]: ").is_some_and(|(c, t)| c == code && t.contains(part)),
                    None => m == want || m.starts_with(&format!("{want}:")),
                };
                *l == at && same
            };
            match got.iter().position(fits) {
                Some(at) => {
                    got.remove(at);
                }
                None => missing.push(format!("line {at}: {want}")),
            }
        }
    }
    if missing.is_empty() && got.is_empty() {
        return Ok(());
    }
    Err(format!("missing: {missing:#?}\nunexpected: {got:#?}"))
}

/// Is this the variable that the line binds?
fn bound(line: &str, name: &str) -> bool {
    line.trim_start().strip_prefix(name).is_some_and(|rest| rest.trim_start().starts_with(['=', ':']))
}

fn run(case: &Case) -> Result<(), Failed> {
    let rendered = check_all(&case.module)?;
    let rendered = if rendered.trim().is_empty() { None } else { Some(rendered) };
    if rendered != case.golden {
        return Err(Failed::from(format!(
            "the rendered diagnostics are\n{}\nthe document says\n{}",
            rendered.unwrap_or_default(),
            case.golden.as_deref().unwrap_or_default()
        )));
    }
    Ok(())
}

fn update(path: &Path, pieces: &[Piece]) {
    let mut out = String::new();
    for p in pieces {
        match p {
            Piece::Text(t) => out.push_str(t),
            Piece::Case(c) => {
                out.push_str(&format!("```rlx\n{}```\n", c.module));
                match check_all(&c.module) {
                    Ok(rendered) if !rendered.trim().is_empty() => out.push_str(&format!("```text\n{rendered}```\n")),
                    Ok(_) => {}
                    Err(_) => out.push_str(&c.golden.as_ref().map_or(String::new(), |g| format!("```text\n{g}```\n"))),
                }
            }
        }
    }
    std::fs::write(path, out).expect("a document of rules is writable");
}

/// Names of the tests that are functions in source files of the workspace.
fn functions_named(name: &str) -> bool {
    let (file, function) = name.rsplit_once("::").unwrap_or(("", name));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    std::fs::read_to_string(path).is_ok_and(|t| t.contains(&format!("fn {function}(")))
}

/// Every row of the table names a test (or a decision), and what it names exists.
fn coverage(rules: &BTreeSet<String>) -> Result<(), Failed> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = std::fs::read_to_string(root.join("docs/spec-coverage.md"))?;
    let decisions = std::fs::read_to_string(root.join("docs/decisions.md"))?;
    let manifest = std::fs::read_to_string(root.join("tests/corpus/MANIFEST.json"))?;
    let mut faults = vec![];
    for (i, line) in table.lines().enumerate().filter(|(_, l)| l.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        if ["rule", "sentence", "requirement", "question"].contains(&cells[0]) || cells[0].starts_with("---") {
            continue;
        }
        let named: Vec<&str> = cells.last().into_iter().flat_map(|c| c.split('`')).skip(1).step_by(2).collect();
        if cells.len() < 3 || cells.iter().any(|c| c.is_empty()) || named.is_empty() {
            faults.push(format!("line {}: an empty cell, or no test: {line}", i + 1));
        }
        for n in named {
            let known = match n.split_once("::") {
                Some(("corpus", case)) => manifest.contains(&format!("\"{case}\"")),
                Some(("lang", text)) => root.join(format!("tests/lang/{text}.rlx")).is_file(),
                Some(("decision", title)) => decisions.contains(&format!("## {title}\n")),
                _ if n.contains(".rs::") => functions_named(n),
                _ => rules.contains(n),
            };
            if !known {
                faults.push(format!("line {}: there is no `{n}`", i + 1));
            }
        }
    }
    for r in rules {
        if !r.ends_with(')') && !table.contains(&format!("`{r}`")) {
            faults.push(format!("`{r}` stands in no row"));
        }
    }
    if faults.is_empty() {
        Ok(())
    } else {
        Err(Failed::from(faults.join("\n")))
    }
}

fn main() {
    let args = Arguments::from_args();
    let mut documents: Vec<PathBuf> = std::fs::read_dir(folder())
        .expect("tests/rules is there")
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == "md"))
        .collect();
    documents.sort();
    let updating = std::env::var_os("RELAX_AOT_UPDATE").is_some();
    let mut trials = vec![];
    let mut names = BTreeSet::new();
    for path in &documents {
        let mut pieces = read(path);
        if updating {
            update(path, &pieces);
            pieces = read(path);
        }
        for piece in pieces {
            let Piece::Case(case) = piece else { continue };
            assert!(names.insert(case.name.clone()), "two rules are named {}", case.name);
            trials.push(Trial::test(case.name.clone(), move || run(&case)));
        }
    }
    trials.push(Trial::test("coverage", move || coverage(&names)));
    libtest_mimic::run(&args, trials).exit();
}
