//! Compile time and library size over the corpus.

use crate::peers::options;
use object::{Object, ObjectSection, SectionKind};
use relax_aot::driver::Session;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The small network whose code must stay small.
const SMALL: &str = "onnx_cnn.rlx";

struct Model {
    name: String,
    text_bytes: u64,
    time: Duration,
    /// Instructions, and the whole library without weights (runtime and tables included).
    code: u64,
    rest: u64,
}

pub fn report(say: &mut dyn FnMut(&str)) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&folder)
        .into_iter()
        .flatten()
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|p| p.to_string_lossy().ends_with(".rlx") && !p.to_string_lossy().ends_with(".lowered.rlx"))
        .collect();
    paths.sort();
    let mut models: Vec<Model> = paths.iter().filter_map(|p| model(p)).collect();
    if models.is_empty() {
        return;
    }
    say("### Compile time and size\n");
    let refused = paths.len() - models.len();
    models.sort_by_key(|m| m.time);
    let ms = |m: &Model| m.time.as_secs_f64() * 1e3;
    let slowest = &models[models.len() - 1];
    let sum: f64 = models.iter().map(ms).sum();
    say(&format!("{} texts of the corpus, text to shared object ({refused} refused as unsupported):\n", models.len()));
    say(&format!(
        "- compile time: median {:.1} ms, slowest {:.0} ms ({})",
        ms(&models[models.len() / 2]),
        ms(slowest),
        slowest.name
    ));
    if let Some(m) = models.iter().max_by_key(|m| m.text_bytes) {
        say(&format!("- the largest text, {} ({} KB): {:.0} ms", m.name, m.text_bytes >> 10, ms(m)));
    }
    say(&format!("- all of them: {:.1} s", sum / 1e3));
    let kb = |n: u64| format!("{:.1} KB", n as f64 / 1024.0);
    if let Some(m) = models.iter().find(|m| m.name == SMALL) {
        say(&format!("- a small CNN ({SMALL}): code {}, library without weights {}", kb(m.code), kb(m.rest)));
    }
    models.sort_by_key(|m| m.code);
    let largest = &models[models.len() - 1];
    say(&format!(
        "- code: median {}, largest {} ({})\n",
        kb(models[models.len() / 2].code),
        kb(largest.code),
        largest.name
    ));
}

fn model(path: &Path) -> Option<Model> {
    let dir = tempfile::tempdir().ok()?;
    let so = dir.path().join("libmodel.so");
    let mut time = Duration::MAX;
    let mut weights = 0;
    for _ in 0..2 {
        let start = Instant::now();
        weights = Session::default().build(path, &so, None, &options("baseline")).ok()?.weight_bytes;
        time = time.min(start.elapsed());
    }
    let bytes = std::fs::read(&so).ok()?;
    let file = object::File::parse(&*bytes).ok()?;
    let code = file.sections().filter(|s| s.kind() == SectionKind::Text).map(|s| s.size()).sum();
    Some(Model {
        name: path.file_name()?.to_string_lossy().into_owned(),
        text_bytes: path.metadata().ok()?.len(),
        time,
        code,
        rest: bytes.len() as u64 - weights,
    })
}
