//! Objects for machines without an operating system stand alone: for every static or bounded case of the corpus and
//! every bare-metal target, no undefined symbols and no writable section.

use libtest_mimic::{Arguments, Failed, Trial};
use object::{Object, ObjectSection, ObjectSymbol, SectionFlags};
use relax_aot::cli::{Cli, CodegenArgs};
use relax_aot::driver::Session;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Objects that were proved to stand alone.
static ALONE: AtomicUsize = AtomicUsize::new(0);

/// Families whose language constructs are the business of other tests.
const ELSEWHERE: [&str; 6] = ["control", "closure", "datadep", "packed", "effects", "functions"];

const TARGETS: [(&str, &str); 4] = [
    ("aarch64-unknown-none", "baseline"),
    ("riscv64gc-unknown-none-elf", "baseline"),
    ("riscv64gc-unknown-none-elf", "+v"),
    ("x86_64-unknown-none", "baseline"),
];

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

fn main() {
    let args = Arguments::from_args();
    let manifest = std::fs::read_to_string(corpus().join("MANIFEST.json")).expect("the corpus has a manifest");
    let manifest: Value = serde_json::from_str(&manifest).expect("the manifest is JSON");
    let mut trials = vec![];
    for case in manifest["cases"].as_array().into_iter().flatten() {
        let Some(file) = case["texts"][0]["file"].as_str() else { continue };
        if ELSEWHERE.iter().any(|f| case["family"] == *f) {
            continue;
        }
        for (target, cpu) in TARGETS {
            let path = corpus().join(file);
            let name = format!("{target}{}::{file}", cpu.trim_start_matches("baseline"));
            trials.push(Trial::test(name, move || stands_alone(&path, target, cpu).map_err(Failed::from)));
        }
    }
    let everything = args.filter.is_none() && args.skip.is_empty() && !args.list;
    let conclusion = libtest_mimic::run(&args, trials);
    let alone = ALONE.load(Ordering::Relaxed);
    println!("{alone} objects of static or bounded models stand alone");
    // The test must not pass because nothing was in scope.
    if everything && !conclusion.has_failed() && alone < 80 * TARGETS.len() {
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
