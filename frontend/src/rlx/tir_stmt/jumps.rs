//! `break` and `continue` in the loops of PrimFuncs: cells that say whether what follows still runs.
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
    pub(super) fn going_on(&self) -> Option<PrimExpr> {
        match (&self.left, &self.passed) {
            (None, None) => None,
            (Some(c), None) | (None, Some(c)) => Some(unset(c)),
            (Some(a), Some(b)) => Some(PrimExpr::raw_binary(relax_ir::prim::BinOp::And, unset(a), unset(b))),
        }
    }

    /// The body of a `for`.
    pub(super) fn body(&self, body: TStmt) -> TStmt {
        let body = self.round(body);
        match &self.left {
            Some(left) => TStmt::if_then(unset(left), body),
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
        match &self.left {
            Some(c) => PrimExpr::raw(PrimKind::IfThenElse(unset(c), cond, PrimExpr::bool(false)), DType::BOOL),
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
