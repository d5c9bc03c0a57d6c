//! Memory that is born inside of a block. TVM finds what a block accesses where the block does not state it, memory of its own
//! included, which nothing outside of it declares: such a block is not well-formed. Only `T.sblock_alloc_buffer` is left out, and the
//! block that is all of a function, which accesses everything.
//!
//! Source: TVM's script completion (`ScriptComplete`, `GetSBlockReadWriteRegion`) and `SBlockFrame`.

use super::*;

/// Memory of a block under way, and where it is born.
pub struct Cell {
    at: Span,
    memory: Memory,
}

enum Memory {
    Buffer(Buffer),
    /// A scalar that has one value: memory for TVM, a value here.
    Scalar(Var),
}

impl Memory {
    /// Whether these statements read it, and whether they write it.
    fn accessed(&self, stmts: &[&TStmt]) -> (bool, bool) {
        let (mut read, mut written) = (false, false);
        for s in stmts {
            s.walk(&mut |s| {
                match (s.kind(), self) {
                    (TKind::Store { buffer, .. }, Memory::Buffer(b)) => written |= buffer == b,
                    (TKind::Let { var, .. }, Memory::Scalar(v)) => written |= var == v,
                    (TKind::CallPacked { args, .. }, Memory::Buffer(b)) => {
                        let passed = args.iter().any(|a| a.tensor() == Some(b));
                        (read, written) = (read || passed, written || passed);
                    }
                    _ => {}
                }
                for e in s.exprs() {
                    e.walk(&mut |e| {
                        read |= match (e.kind(), self) {
                            (PrimKind::BufferLoad(buffer, _), Memory::Buffer(b)) => buffer == b,
                            (_, Memory::Scalar(v)) => e.as_var() == Some(v),
                            _ => false,
                        }
                    });
                }
            });
        }
        (read, written)
    }
}

impl<'a> Cx<'a> {
    /// `name` stands for memory that the statement at `at` makes.
    pub(super) fn born(&self, name: &str, at: Span, f: &mut PrimCx) {
        match self.names.get(name) {
            Some(Value::Buffer(b)) => f.cells.push(Cell { at, memory: Memory::Buffer(b.clone()) }),
            Some(Value::Prim(v)) => f.cells.push(Cell { at, memory: Memory::Scalar(v.clone()) }),
            _ => {}
        }
    }

    /// A region that a block states is no part of memory that is born in it.
    pub(super) fn not_own(&mut self, region: &BufferRegion, span: Span, f: &PrimCx) -> Option<()> {
        let own = |c: &Cell| matches!(&c.memory, Memory::Buffer(b) if *b == region.buffer);
        if !f.cells[f.block_cells.min(f.cells.len())..].iter().any(own) {
            return Some(());
        }
        let message = format!("`{}` is memory of this block: nothing outside of it has it", region.buffer.name);
        let d = Diagnostic::error("tir", span, message);
        self.report(d.help("leave it out, or make it T.sblock_alloc_buffer"))
    }

    /// A block states what it reads of its own memory, and what it writes of it.
    pub(super) fn states_own(
        &mut self,
        name: &str,
        at: Span,
        parts: &BlockParts,
        cells: &[Cell],
        list: &[TStmt],
    ) -> Option<()> {
        let stmts: Vec<&TStmt> = list.iter().chain(&parts.init).collect();
        let found = cells.iter().find(|c| {
            let (read, written) = c.memory.accessed(&stmts);
            read && parts.reads.is_none() || written && parts.writes.is_none()
        });
        let Some(cell) = found else { return Some(()) };
        let message = format!("block \"{name}\" has memory of its own and does not state what it accesses");
        let d = Diagnostic::error("tir", cell.at, message).label(at, "this block");
        self.report(
            d.help("state T.reads(..) and T.writes(..), make it a let (`x: T.let = ..`), or T.sblock_alloc_buffer"),
        )
    }

    /// What describes a block stands before the statements that enclose the rest of it.
    pub(super) fn describes_first(&mut self, s: &Stmt<'a>, block: &mut Option<BlockParts>, place: Place) -> Option<()> {
        let Some(parts) = block.as_mut().filter(|_| place == Place::Body) else { return Some(()) };
        let (called, dotted) = match &s.kind {
            StmtKind::Expr(e) | StmtKind::Assign { value: Some(e), .. } => (e.called(), e.span),
            StmtKind::With { items, .. } => match items.as_slice() {
                [(e, _), ..] => (e.called().filter(|n| n == "T.init"), e.span),
                [] => return Some(()),
            },
            StmtKind::Assert(..) => {
                parts.enclosed = true;
                return Some(());
            }
            _ => return Some(()),
        };
        let Some(name) = called else { return Some(()) };
        let describes = matches!(name.as_str(), "T.reads" | "T.writes" | "T.where" | "T.match_buffer" | "T.init")
            || name.starts_with("T.axis.");
        if describes && parts.enclosed {
            let d =
                Diagnostic::error("tir", dotted, format!("`{name}` stands behind what encloses the rest of its block"));
            return self.report(d.help("write it before T.decl_buffer, T.attr and assert"));
        }
        let view =
            |n: &str| n.strip_suffix(".view").is_some_and(|b| matches!(self.names.get(b), Some(Value::Buffer(_))));
        parts.enclosed |= matches!(name.as_str(), "T.decl_buffer" | "T.attr" | "T.Assert") || view(&name);
        Some(())
    }
}

/// The one block without axes that is all of this function, if it has one: where it stands.
pub fn root_block(body: &[Stmt]) -> Option<Span> {
    let mut found = None;
    for s in body {
        match &s.kind {
            StmtKind::With { items, .. } => match items.as_slice() {
                [(e, _)] if found.is_none() && matches!(e.called().as_deref(), Some("T.sblock" | "T.block")) => {
                    found = Some(s.span);
                }
                _ => return None,
            },
            StmtKind::Pass => {}
            StmtKind::Expr(e) if e.called().as_deref() == Some("T.func_attr") || e.as_str().is_some() => {}
            StmtKind::Assign { value: Some(v), .. } => {
                let dims = |v: &Expr| super::super::relax_func::declared_var(v).is_some();
                let plain = matches!(v.called().as_deref(), Some("T.match_buffer" | "T.Buffer" | "T.buffer_decl"));
                if !plain && !dims(v) && !v.elements().is_some_and(|v| v.iter().all(dims)) {
                    return None;
                }
            }
            _ => return None,
        }
    }
    found
}
