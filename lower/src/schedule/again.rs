//! What several stages of a kernel write.

use super::poly::Poly;
use super::ranges::Ranges;
use super::stage::{Axis, Stage};
use super::{plan, Item, SchedOptions};
use relax_ir::tir::{Buffer, PrimFunc};
use relax_ir::PrimExpr;

/// The elements that a stage writes: of each dim the first and the last, where they are known.
struct Region<'a> {
    buffer: &'a Buffer,
    dims: Vec<Option<(Poly, Poly)>>,
}

/// The parameters of a kernel, by their place among its buffers, of which two stages may write the same elements: a copy
/// with borders is filled before it is written.
pub fn written_again(f: &PrimFunc) -> Vec<usize> {
    let plan = plan(f, &SchedOptions::default());
    let mut all: Vec<Region> = vec![];
    for item in &plan.items {
        match item {
            Item::Stage(s) => regions(&mut all, s, &[]),
            Item::Rows(r) => r.stages.iter().for_each(|s| regions(&mut all, s, &r.axes)),
            Item::Pool(p) => regions(&mut all, &p.stage, &[]),
            Item::Cascade(c) => c.stages.iter().for_each(|s| regions(&mut all, s, &[])),
            // No two of its stages write the same tensor.
            Item::Attention(_) | Item::Stmt(_) => {}
        }
    }
    let again = |b: &Buffer| {
        let own: Vec<&Region> = all.iter().filter(|r| r.buffer == b).collect();
        own.iter().enumerate().any(|(i, a)| own[i + 1..].iter().any(|b| !apart(a, b)))
    };
    f.buffers().enumerate().filter(|(_, b)| again(b)).map(|(i, _)| i).collect()
}

fn regions<'a>(all: &mut Vec<Region<'a>>, s: &'a Stage, rows: &[Axis]) {
    let axes: Vec<&Axis> = rows.iter().chain(&s.spatial).collect();
    for o in &s.outs {
        all.push(Region { buffer: &o.buffer, dims: o.indices.iter().map(|i| bounds(i, &axes)).collect() });
    }
}

/// The least and the largest value of an index that grows with these axes.
fn bounds(index: &PrimExpr, axes: &[&Axis]) -> Option<(Poly, Poly)> {
    let none = Ranges::default();
    let mut first = Poly::of(index, &none);
    let mut last = first.clone();
    for a in axes {
        let (step, rest) = first.split(&a.var)?;
        let step = step.as_const().filter(|n| *n >= 0)?;
        let (_, end) = last.split(&a.var)?;
        let most = Poly::of(&(a.extent.clone() - 1), &none);
        (first, last) = (rest, end.add(&most.scale(step)));
    }
    Some((first, last))
}

/// Whether two regions of a buffer have no element in common.
fn apart(a: &Region, b: &Region) -> bool {
    let behind = |last: &Poly, first: &Poly| first.sub(last).as_const().is_some_and(|n| n > 0);
    a.dims.iter().zip(&b.dims).any(|pair| match pair {
        (Some((a, a_last)), Some((b, b_last))) => behind(a_last, b) || behind(b_last, a),
        _ => false,
    })
}
