//! What all bands of a head multiply with, its keys and values: copied once, in the order in which register tiles read them.

use super::super::contract::{factors, model_columns, sides};
use super::super::panels::Panels;
use super::super::stage::{replace, Axis, Out, Stage};
use super::super::SchedOptions;
use relax_ir::prim::PrimKind;
use relax_ir::tir::Buffer;
use relax_ir::{DType, PrimExpr, Var};
use std::collections::HashMap;

/// Fewer steps and columns than this are read where they are.
const LEAST: i64 = 8;

/// The right side of a product.
struct Right {
    load: PrimExpr,
    k: Var,
    j: Var,
    panels: Panels,
}

/// Of a stage that is a product of known depth and columns, whose right side is no buffer of `made` and the same for all of
/// `rows` rows: it, in panels.
fn right(s: &Stage, row: &Var, rows: i64, made: &[Buffer], o: &SchedOptions) -> Option<Right> {
    let ([acc], [out], [k]) = (s.accs.as_slice(), s.outs.as_slice(), s.reduce.as_slice()) else { return None };
    let (x, y) = factors(&acc.update, &acc.var)?;
    let axis = |i: &PrimExpr| s.spatial.iter().find(|a| Some(&a.var) == i.as_var() && a.len() != Some(1));
    let j = out.indices.iter().rev().find_map(axis)?;
    let (left, load) = sides(x, y, &j.var)?;
    let PrimKind::BufferLoad(b, _) = load.kind() else { return None };
    let plain = b.dtype() == DType::F32 && acc.var.dtype() == DType::F32 && !made.contains(b);
    let (depth, columns) = (k.len()?, j.len()?);
    let lanes = o.vector_bytes as i64 / 4;
    if lanes < 4
        || !plain
        || load.uses(row)
        || !left.uses(row)
        || !load.uses(&k.var)
        || depth < LEAST
        || columns < lanes.max(LEAST)
    {
        return None;
    }
    let width = lanes * model_columns(o, Some(rows), Some(columns), lanes);
    let panels = Panels { depth, columns, width, edge: false };
    Some(Right { load, k: k.var.clone(), j: j.var.clone(), panels })
}

/// Has a product read its right side, the same for all bands of `rows` rows, from a copy: that buffer, and the stages that fill it.
pub fn copied(s: &mut Stage, row: &Var, rows: i64, made: &[Buffer], o: &SchedOptions) -> Option<(Buffer, Vec<Stage>)> {
    let r = right(s, row, rows, made, o)?;
    let PrimKind::BufferLoad(from, _) = r.load.kind() else { return None };
    let p = r.panels;
    let shape = vec![PrimExpr::i64(p.elements())];
    let to = Buffer::from_parts(&from.name, shape, DType::F32, vec![], None, &p.scope(), from.span);
    let stage = |axes: Vec<Axis>, at: PrimExpr, value: PrimExpr| Stage {
        spatial: axes,
        reduce: vec![],
        accs: vec![],
        outs: vec![Out { buffer: to.clone(), indices: vec![at], value }],
        span: s.span,
        window: None,
        given: None,
    };
    let axis = |name: &str, n: i64| Axis { var: Var::new(name, DType::I64), extent: PrimExpr::i64(n) };
    let read =
        |k: &Axis, j: PrimExpr| r.load.substitute(&HashMap::from([(r.k.clone(), k.var.expr()), (r.j.clone(), j)]));
    let (whole, last) = (p.whole(), p.last());
    let mut stages = vec![];
    if whole > 0 {
        let [panel, k, lane] = [("panel", whole / p.width), ("k", p.depth), ("lane", p.width)].map(|(n, c)| axis(n, c));
        let at = (panel.var.expr() * p.depth + k.var.expr()) * p.width + lane.var.expr();
        let value = read(&k, panel.var.expr() * p.width + lane.var.expr());
        stages.push(stage(vec![panel, k, lane], at, value));
    }
    let valid = p.columns - whole;
    for (from, count, there) in [(0, valid, true), (valid, last - valid, false)] {
        if count > 0 {
            let [k, lane] = [("k", p.depth), ("lane", count)].map(|(n, c)| axis(n, c));
            let at = k.var.expr() * last + lane.var.expr() + (whole * p.depth + from);
            let value = if there { read(&k, lane.var.expr() + whole) } else { PrimExpr::zero(DType::F32) };
            stages.push(stage(vec![k, lane], at, value));
        }
    }
    // Where in the copy does not matter to who reads panels, but that it depends on the same axes.
    let load = PrimExpr::load(&to, vec![r.k.expr() * p.columns + r.j.expr()]);
    let own = r.load.clone();
    s.map_exprs(&mut |e| replace(e, &own, &load));
    Some((to, stages))
}
