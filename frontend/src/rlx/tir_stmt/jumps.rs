//! `break` and `continue` in the loops of PrimFuncs, `return` in their middle: cells that say whether what follows still runs.
//!
//! Source: TVM `tirx.break_loop` and `tirx.continue_loop`: they concern the innermost loop, which must be a serial one.

use super::*;

/// The cells of the loop under way, where one of its statements needs them.
#[derive(Clone, Default)]
pub struct Jumps {
    /// 1 when the loop has been left.
    left: Option<Buffer>,
    /// 1 when the rest of this round is passed over.
    passed: Option<Buffer>,
    /// 1 when the function has returned from within the loop.
    returned: Option<Buffer>,
}

fn cell(name: &str) -> Buffer {
    Buffer::new(name, vec![], DType::I32)
}

fn set(cell: &Buffer, value: i64) -> TStmt {
    TStmt::store(cell, vec![], PrimExpr::int(DType::I32, value))
}

fn unset(cell: &Buffer) -> PrimExpr {
    PrimExpr::raw_binary(relax_ir::prim::BinOp::Eq, cell.at(vec![]), PrimExpr::int(DType::I32, 0))
}

impl<'a> Cx<'a> {
    pub(super) fn jump(&mut self, out: bool, span: Span, f: &mut PrimCx) -> Option<Vec<Item>> {
        let word = if out { "break" } else { "continue" };
        let Some(jumps) = f.jumps.last_mut() else {
            return self.error("syntax", span, format!("`{word}` stands outside of a loop"));
        };
        let cell = match out {
            true => jumps.left.get_or_insert_with(|| cell("left")),
            false => jumps.passed.get_or_insert_with(|| cell("passed")),
        };
        Some(vec![Item::Stmt(TStmt::at(set(cell, 1).kind().clone(), span))])
    }

    /// `return value` that does not end the function: nothing that follows runs. The host does not look at the value of a kernel.
    pub(super) fn early_return(&mut self, value: &Expr<'a>, span: Span, f: &mut PrimCx) -> Option<Vec<Item>> {
        if let Some((kind, _)) =
            f.loops.iter().find(|(kind, one)| !one && *kind != ForKind::Serial && *kind != ForKind::Unrolled)
        {
            let d = Diagnostic::error("tir", span, "the loop around this has no order that a return could end");
            return self.report(match kind {
                ForKind::Vectorized => d.help("write `range` instead of T.vectorized"),
                _ => d.help("`return` belongs into `range`, `T.serial`, `T.unroll`, `T.grid` or `while`"),
            });
        }
        let value = self.prim(value)?;
        let cell = f.returned.get_or_insert_with(|| cell("returned")).clone();
        f.early.push(f.jumps.is_empty().then(|| {
            let both = |a: PrimExpr, b: &PrimExpr| PrimExpr::binary(relax_ir::prim::BinOp::And, a, b.clone());
            (f.path.iter().fold(PrimExpr::bool(true), both), value)
        }));
        f.jumps.iter_mut().for_each(|j| j.returned = Some(cell.clone()));
        Some(vec![Item::Stmt(TStmt::at(set(&cell, 1).kind().clone(), span))])
    }

    /// What must hold for the statements after `s` to run; `None` where they always do.
    pub(super) fn goes_on(&self, s: &Stmt<'a>, f: &PrimCx) -> Option<PrimExpr> {
        let returns = has_return(s);
        match f.jumps.last() {
            Some(jumps) if returns || has_jump(s) => jumps.going_on(),
            None if returns => f.returned.as_ref().map(unset),
            _ => None,
        }
    }

    /// The loop `target` around a body with these jumps.
    pub(super) fn with_jumps(&mut self, jumps: &Jumps, kind: &ForKind, span: Span) -> Option<()> {
        let plain = matches!(kind, ForKind::Serial) || jumps.left.is_none() && jumps.passed.is_none();
        if plain {
            return Some(());
        }
        let d = Diagnostic::error("tir", first_line(self.text, span), "this loop has no order that a jump could end");
        self.report(d.help("`break` and `continue` belong into `range`, `T.serial`, `T.grid` or `while`"))
    }
}

impl Jumps {
    /// What holds where the statements after a jump still run.
    fn going_on(&self) -> Option<PrimExpr> {
        none_of([&self.left, &self.passed, &self.returned])
    }

    /// The body of a `for`.
    pub(super) fn body(&self, body: TStmt) -> TStmt {
        let body = self.round(body);
        match none_of([&self.left, &self.returned]) {
            Some(stays) => TStmt::if_then(stays, body),
            None => body,
        }
    }

    /// The body of a `while`, or of a `for` that has not been left.
    pub(super) fn round(&self, body: TStmt) -> TStmt {
        match &self.passed {
            Some(c) => alloc(c, TStmt::seq(vec![set(c, 0), body])),
            None => body,
        }
    }

    /// The condition of a `while`: it is not asked again when the loop has been left.
    pub(super) fn condition(&self, cond: PrimExpr) -> PrimExpr {
        match none_of([&self.left, &self.returned]) {
            Some(stays) => PrimExpr::raw(PrimKind::IfThenElse(stays, cond, PrimExpr::bool(false)), DType::BOOL),
            None => cond,
        }
    }

    /// The loop with the cell that ends it.
    pub(super) fn around(&self, stmt: TStmt) -> TStmt {
        match &self.left {
            Some(c) => alloc(c, TStmt::seq(vec![set(c, 0), stmt])),
            None => stmt,
        }
    }
}

/// None of these is set; `None` where there is none.
fn none_of<const N: usize>(cells: [&Option<Buffer>; N]) -> Option<PrimExpr> {
    let both = |a: PrimExpr, b: PrimExpr| PrimExpr::raw_binary(relax_ir::prim::BinOp::And, a, b);
    cells.into_iter().flatten().map(unset).reduce(both)
}

/// The body of a function that `return`s in its middle.
pub fn with_returns(cell: &Buffer, body: TStmt) -> TStmt {
    alloc(cell, TStmt::seq(vec![set(cell, 0), body]))
}

/// `return value`, or the same in a word of the script builder: `T.Return(value)`.
pub fn returned_by<'s, 'a>(s: &'s Stmt<'a>) -> Option<&'s Expr<'a>> {
    match &s.kind {
        StmtKind::Return(value) => value.as_ref(),
        StmtKind::Expr(e) if e.called().as_deref() == Some("T.Return") => e.as_call().and_then(|c| c.arg(0, "value")),
        _ => None,
    }
}

/// Does this statement return, or contain one that does?
fn has_return(s: &Stmt) -> bool {
    match &s.kind {
        StmtKind::If { then, otherwise, .. } => then.iter().chain(otherwise).any(has_return),
        StmtKind::With { body, .. } | StmtKind::For { body, .. } | StmtKind::While { body, .. } => {
            body.iter().any(has_return)
        }
        _ => returned_by(s).is_some(),
    }
}

fn alloc(cell: &Buffer, body: TStmt) -> TStmt {
    TStmt::new(TKind::Alloc { buffer: cell.clone(), body })
}

/// Does this statement contain a jump of the loop around it?
pub(super) fn has_jump(s: &Stmt) -> bool {
    match &s.kind {
        StmtKind::Break | StmtKind::Continue => true,
        StmtKind::Expr(e) => builder::jump_call(e).is_some(),
        StmtKind::If { then, otherwise, .. } => then.iter().chain(otherwise).any(has_jump),
        StmtKind::With { body, .. } => body.iter().any(has_jump),
        _ => false,
    }
}
