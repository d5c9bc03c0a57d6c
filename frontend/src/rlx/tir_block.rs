//! What a block may read: its axes, not the loops around it.

use super::context::Cx;
use relax_ir::prim::PrimExpr;
use relax_ir::tir::{Block, StmtKind};
use relax_ir::Diagnostic;
use std::collections::HashSet;

impl Cx<'_> {
    /// The loops around a block with axes are known inside by its axes alone (TVM's `VerifyWellFormed`); their values
    /// and `T.where` are read outside. A block without axes reads what it likes.
    pub fn outer_loops(&mut self, block: &Block) -> Option<()> {
        if block.axes.is_empty() {
            return Some(());
        }
        self.own_axes(block)?;
        let mut inside: HashSet<u32> = HashSet::new();
        let mut outside: Option<PrimExpr> = None;
        let mut look = |e: &PrimExpr, inside: &HashSet<u32>| {
            e.walk(&mut |e| {
                let id = e.as_var().map(|v| v.id());
                if id.is_some_and(|id| self.names.loops.contains_key(&id) && !inside.contains(&id)) {
                    outside.get_or_insert_with(|| e.clone());
                }
            })
        };
        for statement in block.init.iter().chain([&block.body]) {
            statement.walk(&mut |s| {
                if let StmtKind::For { var, .. } = s.kind() {
                    inside.insert(var.id());
                }
                s.exprs().into_iter().for_each(|e| look(e, &inside));
            });
        }
        let regions =
            block.reads.iter().chain(&block.writes).flatten().chain(block.match_buffers.iter().map(|m| &m.source));
        for (min, extent) in regions.flat_map(|r| &r.region) {
            look(min, &inside);
            look(extent, &inside);
        }
        let Some(e) = outside else { return Some(()) };
        let name = e.as_var().map_or("?", |v| v.name()).to_string();
        let d = Diagnostic::error(
            "tir",
            e.span(),
            format!("block \"{}\" reads the loop variable `{name}` around it", block.name),
        );
        self.report(d.help(format!("a block with axes reads these: v = T.axis.spatial(extent, {name})")))
    }

    /// The values of axes and `T.where` stand outside of their block: they cannot read its axes.
    fn own_axes(&mut self, block: &Block) -> Option<()> {
        let own: HashSet<u32> = block.axes.iter().map(|a| a.var.id()).collect();
        let mut read: Option<PrimExpr> = None;
        let stated = block.axes.iter().flat_map(|a| [&a.min, &a.extent, &a.binding]).chain(&block.predicate);
        for e in stated {
            e.walk(&mut |e| {
                if e.as_var().is_some_and(|v| own.contains(&v.id())) {
                    read.get_or_insert_with(|| e.clone());
                }
            });
        }
        let Some(e) = read else { return Some(()) };
        let name = e.as_var().map_or("?", |v| v.name()).to_string();
        let what = format!("block \"{}\" reads its axis `{name}` where its axes are stated", block.name);
        let d = Diagnostic::error("tir", e.span(), what);
        self.report(d.help("the values of axes and T.where read the loops around the block"))
    }
}
