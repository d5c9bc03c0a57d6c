//! One run, one report: compile time and library size over the corpus, call overhead, and kernels against the loops
//! that gcc makes and against onnxruntime, one thread.
//!
//! `cargo bench --bench table` prints it all; with `-- conv softmax` only the kernels whose group or name contains a
//! word; with `-- --store` it also writes docs/performance.md. gcc and onnxruntime (python3) are left out where missing.
//! Competitors take turns in short bursts, so a ratio is the median of neighbours in time and a rate the best burst.

mod cases;
mod corpus;
mod measure;
mod peers;

use std::fmt::Write;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let store = args.iter().any(|a| a == "--store");
    let words: Vec<&String> = args.iter().filter(|a| !a.starts_with("--")).collect();
    let mut report = String::new();
    let mut say = |text: &str| {
        println!("{text}");
        let _ = writeln!(report, "{text}");
    };
    say(&peers::machine());
    if words.is_empty() {
        corpus::report(&mut say);
        measure::overhead(&mut say);
    }
    let wanted =
        |c: &cases::Case| words.is_empty() || words.iter().any(|w| c.group.contains(*w) || c.name.contains(*w));
    measure::kernels(cases::all().into_iter().filter(wanted), &mut say);
    if store {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/performance.md");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let intro = text.split_once(MARK).map_or("# Performance\n\n", |(before, _)| before);
        std::fs::write(path, format!("{intro}{MARK}\n{report}")).expect("docs/performance.md can be written");
    }
}

/// What stands before this line in docs/performance.md is written by hand.
const MARK: &str = "<!-- The last run of `cargo bench --bench table -- --store` follows. -->";
