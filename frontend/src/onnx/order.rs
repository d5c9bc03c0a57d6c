//! Nodes in an order in which each comes behind those whose outputs it reads.
//!
//! ONNX asks for such an order (IR specification, "Graphs"), but tools that insert nodes write others, and runtimes read them.

use super::proto::{GraphProto, NodeProto};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// The nodes as they are, where they are in order; otherwise those that a node reads before it, all others where they were. Nodes
/// in a cycle stay out of order.
pub fn sorted(nodes: &[NodeProto]) -> Cow<'_, [NodeProto]> {
    let mut makers: HashMap<&str, usize> = HashMap::new();
    for (i, n) in nodes.iter().enumerate() {
        for o in n.output.iter().filter(|o| !o.is_empty()) {
            makers.entry(o).or_insert(i);
        }
    }
    let reads: Vec<Vec<usize>> = (nodes.iter())
        .map(|n| {
            let mut names = vec![];
            read_by(n, &mut names);
            names.iter().filter_map(|name| makers.get(name).copied()).collect()
        })
        .collect();
    if reads.iter().enumerate().all(|(i, of)| of.iter().all(|d| *d < i)) {
        return Cow::Borrowed(nodes);
    }
    let mut seen = vec![false; nodes.len()];
    let mut out = Vec::with_capacity(nodes.len());
    for first in 0..nodes.len() {
        // Nodes under way, and how many of those that they read were looked at.
        let mut open = vec![(first, 0)];
        while let Some((i, at)) = open.pop() {
            if at == 0 && std::mem::replace(&mut seen[i], true) {
                continue;
            }
            match reads[i].get(at) {
                Some(&d) => {
                    open.push((i, at + 1));
                    if !seen[d] {
                        open.push((d, 0));
                    }
                }
                None => out.push(nodes[i].clone()),
            }
        }
    }
    Cow::Owned(out)
}

/// The names that a node reads, those that its graphs read from outside among them.
fn read_by<'a>(n: &'a NodeProto, names: &mut Vec<&'a str>) {
    names.extend(n.input.iter().filter(|i| !i.is_empty()).map(|i| i.as_str()));
    for g in n.attribute.iter().flat_map(|a| a.g.iter().chain(&a.graphs)) {
        read_from_outside(g, names);
    }
}

fn read_from_outside<'a>(g: &'a GraphProto, names: &mut Vec<&'a str>) {
    let mut inside = vec![];
    for n in &g.node {
        read_by(n, &mut inside);
    }
    inside.extend(g.output.iter().filter_map(|o| o.name.as_deref()));
    let made = g.node.iter().flat_map(|n| &n.output).map(|o| o.as_str());
    let inputs = g.input.iter().filter_map(|i| i.name.as_deref());
    let constants = g.initializer.iter().filter_map(|t| t.name.as_deref());
    let own: HashSet<&str> = made.chain(inputs).chain(constants).collect();
    names.extend(inside.into_iter().filter(|n| !own.contains(n)));
}
