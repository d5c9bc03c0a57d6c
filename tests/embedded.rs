//! Objects for machines without an operating system stand alone: for every static or bounded case of the corpus and
//! every bare-metal target, no undefined symbols and no writable section.

use libtest_mimic::{Arguments, Failed, Trial};
use object::{Object, ObjectSection, ObjectSymbol, SectionFlags};
use relax_aot::cli::{Cli, CodegenArgs};
use relax_aot::driver::Session;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

#[path = "embedded/guard.rs"]
mod guard;

/// Objects that were proved to stand alone.
static ALONE: AtomicUsize = AtomicUsize::new(0);
/// Calls between unmapped pages, and those of them that had a workspace.
static CALLS: AtomicUsize = AtomicUsize::new(0);
static WORKSPACES: AtomicUsize = AtomicUsize::new(0);

/// Families whose language constructs are the business of other tests.
const ELSEWHERE: [&str; 6] = ["control", "closure", "datadep", "packed", "effects", "functions"];

const TARGETS: [(&str, &str); 8] = [
    ("aarch64-unknown-none", "baseline"),
    ("riscv64gc-unknown-none-elf", "baseline"),
    ("riscv64gc-unknown-none-elf", "+v"),
    ("x86_64-unknown-none", "baseline"),
    ("aarch64-unknown-linux-gnu", "baseline"),
    ("riscv64gc-unknown-linux-gnu", "baseline"),
    ("x86_64-unknown-linux-gnu", "baseline"),
    ("s390x-unknown-linux-gnu", "baseline"),
];

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

fn main() {
    if let Some(model) = std::env::var_os(guard::CASE) {
        std::process::exit(guard::process(Path::new(&model)));
    }
    let args = Arguments::from_args();
    let manifest = std::fs::read_to_string(corpus().join("MANIFEST.json")).expect("the corpus has a manifest");
    let manifest: Value = serde_json::from_str(&manifest).expect("the manifest is JSON");
    let mut trials = vec![];
    for case in manifest["cases"].as_array().into_iter().flatten() {
        let Some(file) = case["texts"][0]["file"].as_str() else { continue };
        if ELSEWHERE.iter().any(|f| case["family"] == *f) {
            continue;
        }
        let path = corpus().join(file);
        trials.push(Trial::test(format!("guard::{file}"), move || {
            let count = guard::apart(&path)?;
            CALLS.fetch_add(count.calls, Ordering::Relaxed);
            WORKSPACES.fetch_add(count.workspaces, Ordering::Relaxed);
            Ok(())
        }));
        for (target, cpu) in TARGETS {
            let path = corpus().join(file);
            let name = format!("{target}{}::{file}", cpu.trim_start_matches("baseline"));
            trials.push(Trial::test(name, move || stands_alone(&path, target, cpu).map_err(Failed::from)));
        }
    }
    let mut test = |name: &str, f: fn() -> Result<(), String>| {
        trials.push(Trial::test(format!("options::{name}"), move || f().map_err(Failed::from)));
    };
    test("messages none", no_text);
    test("sections", sections);
    test("error hook", hook);
    test("integers", integers);
    test("regions", regions);
    let everything = args.filter.is_none() && args.skip.is_empty() && !args.list;
    let conclusion = libtest_mimic::run(&args, trials);
    let alone = ALONE.load(Ordering::Relaxed);
    println!("{alone} objects of static or bounded models stand alone");
    let (calls, workspaces) = (CALLS.load(Ordering::Relaxed), WORKSPACES.load(Ordering::Relaxed));
    println!("{calls} calls between unmapped pages, {workspaces} of them with a workspace of the exact size");
    // The test must not pass because nothing was in scope.
    if everything && !conclusion.has_failed() && (alone < 84 * TARGETS.len() || calls < 700 || workspaces < 300) {
        println!("these are fewer than there were");
        std::process::exit(1);
    }
    conclusion.exit();
}

fn options(target: &str, cpu: &str) -> CodegenArgs {
    use clap::Parser;
    let mut o = Cli::parse_from(["relax-aot", "model.rlx", "-o", "model.o"]).compile.options;
    o.target = Some(target.to_string());
    o.target_cpu = cpu.to_string();
    o
}

fn example(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/models").join(file)
}

/// An object of the example, with options.
fn object_of(model: &str, more: &[&str]) -> Result<(Vec<u8>, String), String> {
    use clap::Parser;
    let words = ["relax-aot", "model.rlx", "-o", "model.o", "--target", "aarch64-unknown-none"];
    let o = Cli::try_parse_from(words.iter().chain(more)).map_err(|e| e.to_string())?.compile.options;
    let mut session = Session::default();
    let failed = |s: &Session| format!("{:?}", s.diags.list.iter().map(|d| &d.message).collect::<Vec<_>>());
    let compiled = session.compile(&example(model), "model", &o, false).map_err(|_| failed(&session))?;
    let c = session.c_source(&example(model), "model", "model.h", &o, false).map_err(|_| failed(&session))?;
    Ok((compiled.object, c.1))
}

/// With `--messages none` there is no text in read-only data, and no literal in C.
fn no_text() -> Result<(), String> {
    let text = |bytes: &[u8]| bytes.split(|b| !matches!(b, 32..=126)).any(|word| word.len() >= 8);
    let found = |more: &[&str]| -> Result<(bool, bool), String> {
        let (bytes, c) = object_of("mlp.rlx", more)?;
        let object = object::File::parse(&*bytes).map_err(|e| e.to_string())?;
        let data = object.sections().filter(|s| s.kind() == object::SectionKind::ReadOnlyData);
        let literals = c.lines().filter(|l| l.contains("char model__s")).count();
        Ok((data.filter_map(|s| s.data().ok()).any(text), literals > 0))
    };
    match (found(&[])?, found(&["--messages", "none"])?) {
        ((true, true), (false, false)) => Ok(()),
        other => Err(format!("texts in object and C, with and without messages: {other:?}")),
    }
}

/// Code and weights are where `--section` says.
fn sections() -> Result<(), String> {
    let options = ["--section", "weights=.qspi", "--section", "code=.itcm", "--messages", "none"];
    let (bytes, c) = object_of("kws_int8.onnx", &options)?;
    let object = object::File::parse(&*bytes).map_err(|e| e.to_string())?;
    for s in object.sections() {
        let name = s.name().unwrap_or("?");
        let expected = match s.kind() {
            object::SectionKind::Text => ".itcm",
            object::SectionKind::ReadOnlyData => ".qspi",
            _ => continue,
        };
        if s.size() > 0 && name != expected {
            return Err(format!("{} bytes are in {name}, not in {expected}", s.size()));
        }
    }
    for text in
        [r#"#define CODE __attribute__((section(".itcm")))"#, r#"#define WEIGHTS __attribute__((section(".qspi")))"#]
    {
        if !c.contains(text) {
            return Err(format!("the C file lacks: {text}"));
        }
    }
    Ok(())
}

/// The hook of the firmware is the only symbol that is missing.
fn hook() -> Result<(), String> {
    let (bytes, _) = object_of("mlp.rlx", &["--on-error", "model_failed"])?;
    let object = object::File::parse(&*bytes).map_err(|e| e.to_string())?;
    let undefined: Vec<&str> =
        object.symbols().filter(|s| s.is_undefined()).filter_map(|s| s.name().ok()).filter(|n| !n.is_empty()).collect();
    if undefined == ["model_failed"] {
        Ok(())
    } else {
        Err(format!("undefined symbols: {undefined:?}"))
    }
}

/// Buffers with many accesses a byte are in the fast memory; what has no room anywhere is an error.
fn regions() -> Result<(), String> {
    use clap::Parser;
    let compile = |regions: &str| {
        let words =
            ["relax-aot", "model.rlx", "-o", "model.o", "--target", "aarch64-unknown-none", "--region", regions];
        let o = Cli::try_parse_from(words).map_err(|e| e.to_string())?.compile.options;
        let mut session = Session::default();
        let compiled = session
            .compile(&example("kws_int8.onnx"), "model", &o, false)
            .map_err(|_| session.diags.list.iter().map(|d| d.message.clone()).collect::<Vec<_>>().join("; "))?;
        check(&compiled.object, true)?;
        Ok::<_, String>(compiled.program)
    };
    let program = compile("fast=9K,slow=16K")?;
    let used = &program.entries.first().ok_or("no entry")?.regions;
    let fits = |i: usize, name: &str, most: u64| used.get(i).is_some_and(|r| r.0 == name && r.1 > 0 && r.1 <= most);
    if !fits(0, "fast", 9 << 10) || !fits(1, "slow", 16 << 10) {
        return Err(format!("regions in use: {used:?}"));
    }
    // The averages of 64 channels are read more often a byte than the images that they are made of.
    let buffers = &program.memory.first().ok_or("no memory")?.buffers;
    if !buffers.iter().any(|b| b.region.as_deref() == Some("fast") && b.max_bytes == Some(64)) {
        return Err("the small buffers are not in the fast memory".into());
    }
    match compile("fast=1K,slow=2K") {
        Err(e) if e.contains("no region has room for") => Ok(()),
        other => Err(format!("{:?}", other.map(|p| p.entries.len()))),
    }
}

/// A quantised network keeps its weights and activations in 8 bits.
fn integers() -> Result<(), String> {
    let mut session = Session::default();
    let o = options("aarch64-unknown-none", "baseline");
    let Ok((program, c)) = session.c_source(&example("kws_int8.onnx"), "model", "model.h", &o, false) else {
        return Err("does not compile".into());
    };
    let workspace = program.entries.first().and_then(|e| e.workspace_max);
    // Two activations of 25 x 5 x 64, and 22,604 weights with biases and multipliers.
    if workspace != Some(16_000) || program.weight_bytes > 30_000 {
        return Err(format!("{workspace:?} bytes of workspace, {} of weights", program.weight_bytes));
    }
    // The first convolution, the classifier, and the depthwise and pointwise kernels that four blocks share.
    match c.matches("  integer_conv2d(").count() + c.matches("  integer_depthwise(").count() {
        4 => Ok(()),
        n => Err(format!("{n} calls of the library")),
    }
}

/// Compiles and looks at the object. That it compiles at all is the concern of the corpus' own test.
fn stands_alone(model: &Path, target: &str, cpu: &str) -> Result<(), String> {
    let mut session = Session::default();
    let Ok(compiled) = session.compile(model, "model", &options(target, cpu), false) else { return Ok(()) };
    let bounded = compiled.program.entries.iter().all(|e| e.workspace_max.is_some());
    check(&compiled.object, bounded)?;
    ALONE.fetch_add(bounded as usize, Ordering::Relaxed);
    Ok(())
}

fn check(bytes: &[u8], bounded: bool) -> Result<(), String> {
    let object = object::File::parse(bytes).map_err(|e| e.to_string())?;
    let undefined: Vec<&str> =
        object.symbols().filter(|s| s.is_undefined()).filter_map(|s| s.name().ok()).filter(|n| !n.is_empty()).collect();
    let foreign: Vec<&&str> = undefined.iter().filter(|n| bounded || !n.starts_with("relax_rt_")).collect();
    if !foreign.is_empty() {
        return Err(format!("undefined symbols: {foreign:?}"));
    }
    for s in object.sections() {
        if let SectionFlags::Elf { sh_flags } = s.flags() {
            let writable = sh_flags & u64::from(object::elf::SHF_WRITE) != 0;
            if writable && s.size() > 0 {
                return Err(format!("section {} is writable", s.name().unwrap_or("?")));
            }
        }
    }
    Ok(())
}
