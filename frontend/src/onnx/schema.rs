//! What operators take: how many inputs and outputs, and which attributes, in each version. The table is `operators.txt`.

use super::node::counted;
use super::proto::NodeProto;
use super::Res;
use crate::suggest::nearest;
use relax_ir::{Diagnostic, Span};
use std::collections::HashMap;
use std::sync::OnceLock;

/// What an operator takes from a version on. `None`: any number.
struct Takes {
    since: i64,
    inputs: Option<usize>,
    outputs: Option<usize>,
    attributes: Vec<&'static str>,
}

type Table = HashMap<&'static str, HashMap<&'static str, Vec<Takes>>>;

/// By domain and name, versions ascending.
fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut table = Table::new();
        for line in include_str!("operators.txt").lines() {
            let mut words = line.split(' ');
            let mut word = || words.next().unwrap_or_default();
            let (domain, name, since) = (word(), word(), word().parse().unwrap_or(1));
            let (inputs, outputs) = (word().parse().ok(), word().parse().ok());
            let takes = Takes { since, inputs, outputs, attributes: words.collect() };
            let domain = if domain == "-" { "" } else { domain };
            table.entry(domain).or_default().entry(name).or_default().push(takes);
        }
        table
    })
}

/// The newest version of the standard's operators that the table has.
pub fn newest() -> i64 {
    let versions = table().get("").into_iter().flatten().flat_map(|(_, v)| v).map(|t| t.since);
    versions.max().unwrap_or(1)
}

/// The names of a domain's operators; none for a domain that we do not know.
pub fn names(domain: &str) -> impl Iterator<Item = &'static str> {
    let mut names: Vec<_> = table().get(domain).into_iter().flat_map(|t| t.keys().copied()).collect();
    names.sort_unstable();
    names.into_iter()
}

/// Refuses inputs and outputs beyond those that the operator has; gives a warning for each attribute that it has not.
pub fn check(n: &NodeProto, domain: &str, op: &str, version: i64) -> Res<Vec<(String, Diagnostic)>> {
    let Some(versions) = table().get(domain).and_then(|d| d.get(op)) else { return Ok(vec![]) };
    let Some(takes) = versions.iter().rev().find(|t| t.since <= version).or(versions.first()) else {
        return Ok(vec![]);
    };
    at_most("input", given(&n.input), takes.inputs, "the operator")?;
    at_most("output", given(&n.output), takes.outputs, "the operator")?;
    let mut warnings = vec![];
    for name in n.attribute.iter().filter_map(|a| a.name.as_deref()) {
        if takes.attributes.contains(&name) {
            continue;
        }
        let mut d = Diagnostic::warning(
            "onnx-attribute",
            Span::NONE,
            format!("the operator has no attribute `{name}`: it is passed over"),
        );
        if let Some(near) = nearest(name, takes.attributes.iter().copied()) {
            d = d.help(format!("did you mean `{near}`?"));
        }
        d = d.note(match &takes.attributes[..] {
            [] => "it has none".to_string(),
            all => format!("its attributes are {}", all.join(", ")),
        });
        warnings.push((name.to_string(), d));
    }
    Ok(warnings)
}

/// Refuses more inputs or outputs than `who` has.
pub fn at_most(what: &str, given: usize, most: Option<usize>, who: &str) -> Res<()> {
    match most {
        Some(most) if given > most => {
            let most = counted(most, what);
            Err(Diagnostic::error("onnx", Span::NONE, format!("{who} has {most}, the node states {given}")))
        }
        _ => Ok(()),
    }
}

/// How many names are given: those left out behind the last one are none.
pub fn given(names: &[String]) -> usize {
    names.iter().rposition(|n| !n.is_empty()).map_or(0, |i| i + 1)
}
