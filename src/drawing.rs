//! The workspace over time as a drawing: steps to the right, addresses upwards.

use relax_ir::program::{BufferUse, MemoryUse, Program};
use std::fmt::Write;

/// Sizes in pixels.
const LEFT: usize = 90;
const TOP: usize = 40;
const STEP: usize = 26;
const HEIGHT: usize = 320;
const NAMES: usize = 150;
/// Between the drawings of two entries.
const GAP: usize = 30;

/// What one drawing shows: the memory of an entry, or the part of it in one region, and its bytes.
struct Drawn<'a> {
    memory: &'a MemoryUse,
    region: Option<&'a str>,
    total: u64,
}

impl Drawn<'_> {
    fn buffers(&self) -> impl Iterator<Item = &BufferUse> {
        self.memory.buffers.iter().filter(|b| b.region.as_deref() == self.region)
    }
}

/// An SVG file with a drawing for each entry whose workspace has a bound: one for each region where there are several.
pub fn svg(program: &Program) -> String {
    let mut drawn: Vec<Drawn> = vec![];
    for memory in &program.memory {
        let Some(e) = program.entries.iter().find(|e| e.name == memory.entry) else { continue };
        match e.workspace_max {
            Some(total) if e.regions.is_empty() => drawn.push(Drawn { memory, region: None, total }),
            _ => {}
        }
        drawn.extend(e.regions.iter().map(|(name, total)| Drawn { memory, region: Some(name), total: *total }));
    }
    drawn.retain(|d| d.total > 0 && d.buffers().all(|b| b.max_offset.is_some() && b.max_bytes.is_some()));
    let each = TOP + HEIGHT + NAMES + GAP;
    let steps = drawn.iter().map(|d| d.memory.steps.len()).max().unwrap_or(0);
    let (width, height) = ((LEFT + steps * STEP + 40).max(420), (each * drawn.len()).max(60));
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    if drawn.is_empty() {
        out +=
            "<text x=\"10\" y=\"30\">No entry has a workspace with a bound: give dims an upper one (--dim).</text>\n";
    }
    for (i, d) in drawn.iter().enumerate() {
        one(&mut out, d, i * each);
    }
    out + "</svg>\n"
}

fn one(out: &mut String, d: &Drawn, top: usize) {
    let (m, total) = (d.memory, d.total);
    let place = d.region.map_or(String::new(), |r| format!(" in {}", escaped(r)));
    let base = top + TOP;
    let y = |bytes: u64| base as f64 + HEIGHT as f64 * (1.0 - bytes as f64 / total as f64);
    let _ = writeln!(
        out,
        "<text x=\"10\" y=\"{}\" font-size=\"14\">memory of {}{place}: {total} bytes</text>",
        top + 22,
        escaped(&m.entry)
    );
    for quarter in 0..=4 {
        let bytes = total * quarter / 4;
        let (at, end) = (y(bytes), LEFT + m.steps.len() * STEP);
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{bytes}</text>\
             <line x1=\"{LEFT}\" x2=\"{end}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>",
            LEFT - 6,
            at + 4.0
        );
    }
    for (i, b) in d.buffers().enumerate() {
        let (Some(offset), Some(bytes)) = (b.max_offset, b.max_bytes) else { continue };
        let name = m.steps.get(b.first.saturating_sub(1)).map_or("", String::as_str);
        // Neighbours in the list differ: the golden angle.
        let hue = (i * 137) % 360;
        let _ = writeln!(
            out,
            "<rect x=\"{}\" y=\"{:.1}\" width=\"{}\" height=\"{:.1}\" fill=\"hsl({hue},55%,70%)\" stroke=\"#555\">\
             <title>{bytes} bytes at {offset}, steps {} to {}, made by {}</title></rect>",
            LEFT + b.first.saturating_sub(1) * STEP,
            y(offset + bytes),
            (b.last + 1 - b.first) * STEP,
            HEIGHT as f64 * bytes as f64 / total as f64,
            b.first,
            b.last,
            escaped(name)
        );
    }
    for (i, name) in m.steps.iter().enumerate() {
        let (x, below) = (LEFT + i * STEP + STEP / 2, base + HEIGHT + 10);
        let short: String = name.chars().take(28).collect();
        let _ =
            writeln!(out, "<text transform=\"translate({x},{below}) rotate(60)\">{} {}</text>", i + 1, escaped(&short));
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
