//! `RegexFullMatch`: the pattern, known at compile time, becomes the table of a deterministic automaton over bytes.

use super::{one, op, OnnxOp};
use crate::onnx::kind::Kind;
use crate::onnx::node::NodeCx;
use crate::onnx::value::{Tensor, Value};
use crate::onnx::Res;
use regex_automata::dfa::{dense, Automaton, StartKind};
use regex_automata::util::primitives::StateID;
use regex_automata::{Anchored, Input, MatchKind};
use relax_ir::{AttrValue, Constant, DType};
use std::collections::HashMap;

pub const OPS: &[OnnxOp] = &[op("RegexFullMatch", &[(20, full_match)])];

/// Bytes that the automaton may take.
const MAX_BYTES: usize = 16 << 20;

fn full_match(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    if x.kind != Kind::Text {
        return Err(cx.error("input 0 must be strings"));
    }
    let pattern = cx.str_opt("pattern");
    let pattern = cx.required("pattern", pattern)?;
    let a = automaton(&pattern).map_err(|e| cx.error(format!("pattern `{pattern}`: {e}")))?;
    let classes = Tensor::constant(Constant::new(DType::U8, vec![256], a.classes));
    let bytes = a.table.iter().flat_map(|v| v.to_le_bytes()).collect();
    let width = a.table.len() / a.accepts.len().max(1);
    let table = Constant::new(DType::I32, vec![a.accepts.len() as i64, width as i64], bytes);
    let accepts = Constant::new(DType::BOOL, vec![a.accepts.len() as i64], a.accepts);
    let (table, accepts) = (Tensor::constant(table), Tensor::constant(accepts));
    let args = [(&x).into(), (&classes).into(), (&table).into(), (&accepts).into()];
    one(cx.call("onnx.text_automaton", &args, &[("start", AttrValue::Int(0))])?)
}

/// States are numbered from 0, the start.
struct Table {
    /// The column of each byte.
    classes: Vec<u8>,
    /// The next state, by state and class.
    table: Vec<i32>,
    /// Does the text match when it ends in the state?
    accepts: Vec<u8>,
}

fn automaton(pattern: &str) -> Result<Table, String> {
    let config = dense::Config::new()
        .start_kind(StartKind::Anchored)
        .match_kind(MatchKind::All)
        .dfa_size_limit(Some(MAX_BYTES))
        .determinize_size_limit(Some(4 * MAX_BYTES));
    let whole = format!(r"\A(?:{})\z", as_re2(pattern));
    let dfa = dense::Builder::new().configure(config).build(&whole).map_err(|e| e.to_string())?;
    let start = dfa.start_state_forward(&Input::new("").anchored(Anchored::Yes)).map_err(|e| e.to_string())?;
    let mut number: HashMap<StateID, i32> = HashMap::from([(start, 0)]);
    let mut states = vec![start];
    let mut rows: Vec<Vec<i32>> = vec![];
    let mut accepts = vec![];
    while let Some(&s) = states.get(rows.len()) {
        let mut row = Vec::with_capacity(256);
        for byte in 0..=255u8 {
            let next = dfa.next_state(s, byte);
            let fresh = states.len() as i32;
            let n = *number.entry(next).or_insert(fresh);
            if n == fresh {
                states.push(next);
            }
            row.push(n);
        }
        rows.push(row);
        accepts.push(dfa.is_match_state(dfa.next_eoi_state(s)) as u8);
    }
    // Bytes that no state tells apart share a column.
    let mut columns: HashMap<Vec<i32>, u8> = HashMap::new();
    let mut kept = vec![];
    let mut classes = vec![];
    for byte in 0..256 {
        let column: Vec<i32> = rows.iter().map(|r| r[byte]).collect();
        let next = kept.len() as u8;
        let class = *columns.entry(column).or_insert(next);
        if class == next {
            kept.push(byte);
        }
        classes.push(class);
    }
    let table = rows.iter().flat_map(|r| kept.iter().map(|b| r[*b])).collect();
    Ok(Table { classes, table, accepts })
}

/// The pattern in the dialect of the library: in RE2's, `\w`, `\d`, `\s` and `\b` are ASCII, other text is Unicode.
fn as_re2(pattern: &str) -> String {
    let mut out = String::new();
    let mut chars = pattern.chars().peekable();
    let mut within = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                let e = chars.next().unwrap_or('\\');
                let class = match e {
                    'w' => "[:word:]",
                    'W' => "[:^word:]",
                    'd' => "[:digit:]",
                    'D' => "[:^digit:]",
                    // RE2 has no vertical tab here.
                    's' => r"\t\n\f\r ",
                    'S' => r"^\t\n\f\r ",
                    'b' | 'B' if !within => {
                        out += &format!(r"(?-u:\{e})");
                        continue;
                    }
                    'Q' => {
                        let mut quoted = String::new();
                        while let Some(c) = chars.next() {
                            if c == '\\' && chars.peek() == Some(&'E') {
                                chars.next();
                                break;
                            }
                            quoted.push(c);
                        }
                        for c in quoted.chars() {
                            if c.is_ascii_punctuation() {
                                out.push('\\');
                            }
                            out.push(c);
                        }
                        continue;
                    }
                    _ => {
                        out.push('\\');
                        out.push(e);
                        continue;
                    }
                };
                match (within, e) {
                    (true, 'S') => out += r"[^\t\n\f\r ]",
                    (true, _) => out += class,
                    (false, _) => out += &format!("[{class}]"),
                }
            }
            '[' if within && chars.peek() == Some(&':') => {
                // A named class ends with ":]".
                out.push('[');
                while let Some(c) = chars.next() {
                    out.push(c);
                    if c == ':' && chars.peek() == Some(&']') && !out.ends_with("[:") {
                        out.extend(chars.next());
                        break;
                    }
                }
            }
            // In RE2 these are plain within a class.
            '[' | '&' | '~' if within => {
                out.push('\\');
                out.push(c);
            }
            '[' => {
                within = true;
                out.push('[');
                if chars.peek() == Some(&'^') {
                    out.extend(chars.next());
                }
                if chars.peek() == Some(&']') {
                    chars.next();
                    out += r"\]";
                }
            }
            ']' if within => {
                within = false;
                out.push(']');
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::automaton;

    fn matches(pattern: &str, text: &str) -> bool {
        let a = automaton(pattern).unwrap();
        let width = a.table.len() / a.accepts.len();
        let step = |s: i32, b: u8| a.table[s as usize * width + a.classes[b as usize] as usize];
        a.accepts[text.bytes().fold(0, step) as usize] != 0
    }

    #[test]
    fn the_whole_text_must_match() {
        assert!(matches("a|ab", "ab"));
        assert!(!matches("a", "ab"));
        assert!(matches("", ""));
        assert!(matches("(^|x)b$", "b"));
    }

    #[test]
    fn classes_are_ascii_and_dots_are_characters() {
        assert!(matches(r"\w+[\d\-]", "ab_9-"));
        assert!(!matches(r"\w", "é"));
        assert!(matches(r"\W", "é"));
        assert!(matches(".", "é"));
        assert!(matches(r"[^\s]\bb?", "a"));
        assert!(matches(r"\Qa.b\E", "a.b"));
        assert!(!matches(r"\Qa.b\E", "axb"));
        assert!(matches("[[:alpha:]&&]+", "a&b"));
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        assert!(automaton("(a").is_err());
        assert!(automaton(&"((a{1,99}){1,99}){1,99}".repeat(3)).is_err());
    }
}
