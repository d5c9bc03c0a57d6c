//! Throws damaged texts at the compiler for a while. Every text must be read or refused: no panic, no overflow of the
//! stack, no hang. The text at hand lies in `--current FILE`, so that it is there even when the process dies.

mod mutate;

use clap::Parser;
use mutate::{mutate, Rng};
use relax_ir::analysis;
use relax_ir::span::FileId;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

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
    /// One text, to see what it does.
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
        println!("{:?}", try_text(&String::from_utf8_lossy(&bytes), true));
        return Ok(());
    }
    let seeds = seeds(&args.corpus)?;
    let mut rng = Rng::new(args.seed);
    let mut count = Count::default();
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(args.seconds) {
        let (Some(a), Some(b)) = (rng.pick(&seeds).cloned(), rng.pick(&seeds).cloned()) else {
            return Err(format!("{}: no texts", args.corpus.display()));
        };
        let text = mutate(&a, &b, &mut rng);
        std::fs::write(&args.current, &text).map_err(|e| format!("{}: {e}", args.current.display()))?;
        let start = Instant::now();
        let lower = rng.below(4) == 0;
        let result = catch_unwind(AssertUnwindSafe(|| try_text(&text, lower)));
        let here = format!("text {} with seed {}: {}", count.texts, args.seed, args.current.display());
        match result {
            Ok(stage) => count.note(stage),
            Err(_) => return Err(format!("a panic; {here}")),
        }
        if start.elapsed() > LIMIT {
            return Err(format!("more than {} s; {here}", LIMIT.as_secs()));
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
    relax_ir::printer::print_module(&module);
    if !lower {
        return Stage::Whole;
    }
    let options = relax_lower::Options {
        prefix: "m".to_string(),
        pointer_bytes: 8,
        opt_level: 2,
        unchecked: false,
        external_weights: false,
        vector_bytes: 16,
        wide_bytes: 0,
    };
    match relax_lower::lower(typed, &options, None) {
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
