//! Throws damaged texts at the compiler for a while. Every text must be read or refused: no panic, no overflow of the
//! stack, no hang; what is read prints to a text of the same module. The text at hand lies in `--current FILE`, so that
//! it is there even when the process dies. `--differential` runs programs that are right instead.

mod differential;
mod mutate;
mod onnx;

use clap::Parser;
use mutate::{mutate, Rng};
use relax_backend::x86::{self, Wide};
use relax_ir::analysis;
use relax_ir::span::FileId;
use relax_ir::structural;
use std::collections::BTreeMap;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Texts begun so far, for the watch.
static BEGUN: AtomicU64 = AtomicU64::new(0);

/// Longest time for one text.
const LIMIT: Duration = Duration::from_secs(10);

#[derive(Parser)]
#[command(about = "Throws damaged models at the compiler: nothing may panic")]
struct Args {
    /// How long to go on.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The same seed throws the same texts.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Texts to begin with.
    #[arg(long, default_value = "tests/corpus")]
    corpus: PathBuf,
    /// Where the text at hand is kept.
    #[arg(long, default_value = "target/fuzz-current.rlx")]
    current: PathBuf,
    /// Instead: random well-formed programs through the interpreter and through compiled code.
    #[arg(long)]
    differential: bool,
    /// Differential: stop after so many programs.
    #[arg(long, default_value_t = 10_000)]
    programs: u64,
    /// Differential: this program alone.
    #[arg(long)]
    only: Option<u64>,
    /// Damages the ONNX models below this folder instead of texts; each goes all the way to an object.
    #[arg(long)]
    onnx: Option<PathBuf>,
    /// How many models.
    #[arg(long, default_value_t = 1000)]
    count: u64,
    /// One text or model, to see what it does.
    file: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    // As the compiler itself does it.
    let worker = std::thread::Builder::new().stack_size(256 << 20).spawn(move || run(&args));
    match worker.map(|w| w.join()) {
        Ok(Ok(Ok(()))) => ExitCode::SUCCESS,
        Ok(Ok(Err(message))) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
        _ => ExitCode::FAILURE,
    }
}

fn run(args: &Args) -> Result<(), String> {
    if let Some(file) = &args.file {
        let bytes = std::fs::read(file).map_err(|e| format!("{}: {e}", file.display()))?;
        match file.extension().is_some_and(|e| e == "onnx") {
            true => println!("{:?}", onnx::try_model(&bytes)),
            false => println!("{:?}", try_text(&String::from_utf8_lossy(&bytes), true)),
        }
        return Ok(());
    }
    if args.differential {
        return differential::run(args.seed, args.seconds, args.programs, &args.current, args.only);
    }
    if let Some(folder) = &args.onnx {
        return run_onnx(args, folder);
    }
    let seeds = seeds(&args.corpus)?;
    watch(args.seed, args.current.clone());
    let mut rng = Rng::new(args.seed);
    let mut count = Count::default();
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(args.seconds) {
        let (Some(a), Some(b)) = (rng.pick(&seeds).cloned(), rng.pick(&seeds).cloned()) else {
            return Err(format!("{}: no texts", args.corpus.display()));
        };
        let text = mutate(&a, &b, &mut rng);
        std::fs::write(&args.current, &text).map_err(|e| format!("{}: {e}", args.current.display()))?;
        BEGUN.fetch_add(1, Ordering::Relaxed);
        let lower = rng.below(4) == 0;
        let result = catch_unwind(AssertUnwindSafe(|| try_text(&text, lower)));
        let here = format!("text {} with seed {}: {}", count.texts, args.seed, args.current.display());
        match result {
            Ok(stage) => count.note(stage),
            Err(_) => return Err(format!("a panic; {here}")),
        }
    }
    let _ = std::fs::remove_file(&args.current);
    println!(
        "{} texts in {} s: {} refused by the parser, {} by analysis, {} by lowering; {} compiled or analysed; seed {}",
        count.texts,
        begin.elapsed().as_secs(),
        count.parse,
        count.analysis,
        count.lower,
        count.whole,
        args.seed
    );
    Ok(())
}

/// `args.count` damaged models; those that fail are kept beside `args.current`.
fn run_onnx(args: &Args, folder: &Path) -> Result<(), String> {
    let seeds = onnx::seeds(folder)?;
    let current = args.current.with_extension("onnx");
    watch(args.seed, current.clone());
    let mut rng = Rng::new(args.seed);
    let (mut stages, mut failed) = (BTreeMap::new(), vec![]);
    let begin = Instant::now();
    let (mut slowest, mut largest) = (Duration::ZERO, 0);
    for i in 0..args.count {
        let (Some(a), Some(b)) = (rng.pick(&seeds), rng.pick(&seeds)) else {
            return Err(format!("{}: no models", folder.display()));
        };
        let model = onnx::mutate(a, b, &mut rng);
        largest = largest.max(model.len());
        std::fs::write(&current, &model).map_err(|e| format!("{}: {e}", current.display()))?;
        BEGUN.fetch_add(1, Ordering::Relaxed);
        let start = Instant::now();
        match catch_unwind(AssertUnwindSafe(|| onnx::try_model(&model))) {
            Ok(stage) => *stages.entry(stage).or_insert(0u64) += 1,
            Err(_) => {
                let kept = current.with_extension(format!("{i}.onnx"));
                let _ = std::fs::copy(&current, &kept);
                failed.push(kept);
            }
        }
        slowest = slowest.max(start.elapsed());
    }
    let _ = std::fs::remove_file(&current);
    println!(
        "{} models in {} s, the slowest in {:.1} s, the largest of {largest} bytes; ended in {stages:?}; seed {}",
        args.count,
        begin.elapsed().as_secs(),
        slowest.as_secs_f64(),
        args.seed
    );
    match failed.len() {
        0 => Ok(()),
        n => Err(format!("{n} models fail: {failed:?}")),
    }
}

/// Ends the process when one text takes longer than [`LIMIT`] of processor time, so that other work on the machine does
/// not count, or ten times that by the clock.
fn watch(seed: u64, current: PathBuf) {
    std::thread::spawn(move || {
        let (mut at, mut since, mut used) = (0, Instant::now(), processor());
        loop {
            std::thread::sleep(Duration::from_millis(500));
            let now = BEGUN.load(Ordering::Relaxed);
            if now != at {
                (at, since, used) = (now, Instant::now(), processor());
            } else if at > 0 && (processor().saturating_sub(used) >= LIMIT || since.elapsed() >= 10 * LIMIT) {
                let file = current.display();
                eprintln!("error: more than {} s; text {} with seed {seed}: {file}", LIMIT.as_secs(), at - 1);
                std::process::exit(1);
            }
        }
    });
}

/// What the process used of the processors; Linux tells, else nothing.
fn processor() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The 14th and 15th fields, in hundredths of a second; the second one may hold blanks.
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    Duration::from_millis(10 * fields.skip(11).take(2).filter_map(|f| f.parse::<u64>().ok()).sum::<u64>())
}

/// Where a text came to an end.
#[derive(Debug, PartialEq)]
enum Stage {
    Parse,
    Analysis,
    Lower,
    Whole,
}

#[derive(Default)]
struct Count {
    texts: u64,
    parse: u64,
    analysis: u64,
    lower: u64,
    whole: u64,
}

impl Count {
    fn note(&mut self, s: Stage) {
        self.texts += 1;
        *match s {
            Stage::Parse => &mut self.parse,
            Stage::Analysis => &mut self.analysis,
            Stage::Lower => &mut self.lower,
            Stage::Whole => &mut self.whole,
        } += 1;
    }
}

/// Text to flat program, as far as it goes, and to text again.
fn try_text(text: &str, lower: bool) -> Stage {
    let (module, diags) = relax_frontend::rlx::parse(FileId(0), text);
    let Some(module) = module.filter(|_| !diags.has_errors()) else {
        assert!(diags.has_errors(), "refused without an error");
        return Stage::Parse;
    };
    let (typed, diags) = analysis::analyze(&module);
    let Some(typed) = typed.filter(|_| !diags.has_errors()) else {
        assert!(diags.has_errors(), "refused without an error");
        return Stage::Analysis;
    };
    let printed = relax_ir::printer::print_module(&module);
    let (again, diags) = relax_frontend::rlx::parse(FileId(0), &printed);
    // A long chain of infix operators is read, and printed as calls within calls, which may be too many.
    if diags.has_errors() && diags.list.iter().all(|d| d.code == "nesting") {
        return Stage::Whole;
    }
    let first = diags.list.iter().find(|_| diags.has_errors());
    assert!(first.is_none(), "what is printed is refused: {}\n{printed}", first.map_or("", |d| d.message.as_str()));
    let same = again.map(|again| structural::compare(&module, &again).map_err(|d| d.to_string()));
    assert_eq!(same, Some(Ok(())), "what is printed is another module:\n{printed}");
    if !lower {
        return Stage::Whole;
    }
    // Every other text with wide vectors, decided by the text itself, so that it can be tried again.
    let wide = text.len().is_multiple_of(2).then_some(Wide { dot4: true, ..Wide::V4 });
    let options = relax_lower::Options {
        wide_bytes: wide.map_or(0, |w| w.vector_bytes()),
        dot4: wide.is_some_and(|w| w.dot4),
        ..Default::default()
    };
    let assemble = |f: &relax_ir::flat::FlatFunc, _: u32| wide.and_then(|w| x86::assemble(f, w));
    match relax_lower::lower(typed, &options, Some(&assemble)) {
        Ok(_) => Stage::Whole,
        Err(_) => Stage::Lower,
    }
}

/// The texts of the corpus, big ones left out: they cost too much time per try.
fn seeds(corpus: &Path) -> Result<Vec<String>, String> {
    let list = std::fs::read_dir(corpus).map_err(|e| format!("{}: {e}", corpus.display()))?;
    let mut paths: Vec<PathBuf> = list.filter_map(|e| Some(e.ok()?.path())).collect();
    paths.sort();
    let mut out = vec![];
    for p in paths.iter().filter(|p| p.extension().is_some_and(|e| e == "rlx")) {
        let text = std::fs::read_to_string(p).map_err(|e| format!("{}: {e}", p.display()))?;
        if text.len() < 40_000 {
            out.push(text);
        }
    }
    Ok(out)
}
