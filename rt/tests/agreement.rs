//! What compiler and runtime both write down is the same list on both sides: the words of closures' signatures, the tags
//! of values, the error codes. Names and numbers are read from the sources, so that an entry of one side alone is seen too.

use std::collections::BTreeMap;

const RT_SIGNATURE: &str = include_str!("../src/signature.rs");
const RT_VALUE: &str = include_str!("../src/value.rs");
const RT_FAIL: &str = include_str!("../src/fail.rs");
const LOWER_SIGNATURE: &str = include_str!("../../lower/src/host/dynamic/signature.rs");
const LOWER_VALUES: &str = include_str!("../../lower/src/host/dynamic/mod.rs");
const IR_PROGRAM: &str = include_str!("../../ir/src/program.rs");

/// `NAME: T = NUMBER;` behind `const`.
fn constant(line: &str) -> Option<(&str, i64)> {
    let text = line.trim().trim_start_matches("pub ").strip_prefix("const ")?;
    let (name, rest) = text.split_once(':')?;
    let number = rest.split_once('=')?.1.trim().trim_end_matches(';');
    let number = match number.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16).ok()?,
        None => number.parse().ok()?,
    };
    Some((name, number))
}

/// The constants of the module `name`, which ends at the first line that closes it.
fn constants<'a>(source: &'a str, name: &str) -> BTreeMap<&'a str, i64> {
    let opens = |l: &&str| l.trim_end().ends_with(&format!("mod {name} {{"));
    let lines = source.lines().skip_while(|l| !opens(l)).skip(1).take_while(|l| *l != "}");
    let out: BTreeMap<&str, i64> = lines.filter_map(constant).collect();
    assert!(out.len() > 2, "the constants of mod {name} are found");
    out
}

#[test]
fn words_of_signatures() {
    for list in ["kind", "dim"] {
        assert_eq!(constants(RT_SIGNATURE, list), constants(LOWER_SIGNATURE, list), "{list}");
    }
    // Both sides have `dim::OWN` and the number of own variables.
    let own = |s: &'static str| s.lines().find(|l| l.contains("const OWN: usize")).and_then(constant);
    assert!(own(RT_SIGNATURE).is_some());
    assert_eq!(own(RT_SIGNATURE), own(LOWER_SIGNATURE));
}

#[test]
fn tags_of_values() {
    let (all, used) = (constants(RT_VALUE, "tag"), constants(LOWER_VALUES, "tag"));
    for (name, tag) in &used {
        assert_eq!(all.get(name), Some(tag), "{name}");
    }
    // What packed functions return and nothing in compiled code looks at.
    let others: Vec<&&str> = all.keys().filter(|n| !used.contains_key(**n)).collect();
    assert_eq!(others, [&"OBJECT"]);
    let distinct: std::collections::BTreeSet<i64> = all.values().copied().collect();
    assert_eq!(distinct.len(), all.len(), "no tag twice");
}

#[test]
fn error_codes() {
    assert_eq!(constants(RT_FAIL, "code"), constants(IR_PROGRAM, "code"));
}
