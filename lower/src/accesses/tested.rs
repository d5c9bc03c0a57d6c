//! Kernels that test their accesses: a further result says which access was outside first. Nothing outside of a buffer
//! is read or written.

use super::{loads_of, Found};
use relax_ir::prim::{BinOp, PrimKind};
use relax_ir::tir::{Block, Buffer, PrimFunc, PrimParam, Stmt, StmtKind};
use relax_ir::{DType, PrimExpr};
use std::collections::HashMap;

/// The elements of the further result: the number of the access (from 1; 0 for none), its index, the extent.
pub const STATUS: i64 = 3;

/// `f` with tests of the accesses that are not proved ([`loads_of`]), and these.
pub fn tested(f: &PrimFunc) -> (PrimFunc, Vec<Found>) {
    let found = loads_of(f);
    let status = Buffer::new("status", vec![PrimExpr::i64(STATUS)], DType::I64);
    let t = Tests { found: &found, status: &status };
    let mut list: Vec<Stmt> = (0..STATUS).map(|i| t.set(i, PrimExpr::i64(0))).collect();
    list.push(t.stmt(&f.body));
    let mut f = PrimFunc { name: format!("{}_tested", f.name), body: Stmt::seq(list), private: true, ..f.clone() };
    f.attrs.0.retain(|(n, _)| n != "global_symbol");
    f.params.push(PrimParam::Buffer { buffer: status, handle: None });
    (f, found)
}

struct Tests<'a> {
    found: &'a [Found],
    status: &'a Buffer,
}

/// A test of an access: where it is made, and that it is inside.
struct Test {
    guards: Vec<PrimExpr>,
    number: usize,
    index: PrimExpr,
    extent: PrimExpr,
}

fn inside(index: &PrimExpr, extent: &PrimExpr) -> PrimExpr {
    index.clone().ge(PrimExpr::i64(0)).and(index.clone().lt(extent.clone()))
}

impl Tests<'_> {
    fn set(&self, at: i64, value: PrimExpr) -> Stmt {
        Stmt::store(self.status, vec![PrimExpr::i64(at)], value)
    }

    /// The axes of an access that are not proved: number, index, extent.
    fn open(&self, buffer: &Buffer, indices: &[PrimExpr]) -> Vec<(usize, PrimExpr, PrimExpr)> {
        let here = self.found.iter().enumerate().filter(|(_, f)| f.buffer == *buffer && f.indices == indices);
        here.map(|(i, f)| {
            let extent = buffer.shape[f.axis].clone().cast(DType::I64);
            (i + 1, self.value(&indices[f.axis]).cast(DType::I64), extent)
        })
        .collect()
    }

    /// Expressions whose loads outside give 0.
    fn value(&self, e: &PrimExpr) -> PrimExpr {
        let PrimKind::BufferLoad(buffer, indices) = e.kind() else { return e.map_children(&mut |c| self.value(c)) };
        let load = PrimExpr::load(buffer, indices.iter().map(|i| self.value(i)).collect::<Vec<_>>());
        let open = self.open(buffer, indices);
        match open.into_iter().map(|(_, i, n)| inside(&i, &n)).reduce(PrimExpr::and) {
            Some(c) => c.if_then_else(load, PrimExpr::zero(e.dtype())),
            None => load,
        }
    }

    fn tests(&self, e: &PrimExpr, guards: &mut Vec<PrimExpr>, out: &mut Vec<Test>) {
        let mut under = |c: PrimExpr, e: &PrimExpr, out: &mut Vec<Test>| {
            guards.push(self.value(&c));
            self.tests(e, guards, out);
            guards.pop();
        };
        match e.kind() {
            PrimKind::IfThenElse(c, t, f) => {
                under(c.clone(), t, out);
                under(c.clone().not(), f, out);
                self.tests(c, guards, out);
            }
            PrimKind::Binary(BinOp::And, a, b) => {
                under(a.clone(), b, out);
                self.tests(a, guards, out);
            }
            PrimKind::Binary(BinOp::Or, a, b) => {
                under(a.clone().not(), b, out);
                self.tests(a, guards, out);
            }
            PrimKind::Let(v, value, body) => {
                self.tests(value, guards, out);
                let mut inner = vec![];
                self.tests(body, &mut vec![], &mut inner);
                let map = HashMap::from([(v.clone(), self.value(value))]);
                out.extend(inner.into_iter().map(|t| Test {
                    guards: guards.iter().cloned().chain(t.guards.iter().map(|g| g.substitute(&map))).collect(),
                    index: t.index.substitute(&map),
                    extent: t.extent.substitute(&map),
                    ..t
                }));
            }
            PrimKind::BufferLoad(buffer, indices) => {
                indices.iter().for_each(|i| self.tests(i, guards, out));
                for (number, index, extent) in self.open(buffer, indices) {
                    out.push(Test { guards: guards.clone(), number, index, extent });
                }
            }
            _ => e.children().into_iter().for_each(|c| self.tests(c, guards, out)),
        }
    }

    /// `s` behind the tests of these expressions.
    fn behind<'e>(&self, exprs: impl IntoIterator<Item = &'e PrimExpr>, more: Vec<Test>, s: Stmt) -> Stmt {
        let mut tests = vec![];
        for e in exprs {
            self.tests(e, &mut vec![], &mut tests);
        }
        tests.extend(more);
        let mut list = vec![];
        for t in tests {
            let first = PrimExpr::load(self.status, vec![PrimExpr::i64(0)]).eq(PrimExpr::i64(0));
            let outside = inside(&t.index, &t.extent).not();
            let condition = t.guards.into_iter().chain([outside, first]).reduce(PrimExpr::and);
            let told = [PrimExpr::i64(t.number as i64), t.index, t.extent];
            let told = (0..).zip(told).map(|(at, v)| self.set(at, v)).collect();
            list.extend(condition.map(|c| Stmt::if_then(c, Stmt::seq(told))));
        }
        list.push(s);
        Stmt::seq(list)
    }

    fn stmt(&self, s: &Stmt) -> Stmt {
        let at = |kind| Stmt::at(kind, s.span());
        match s.kind() {
            StmtKind::Seq(list) => Stmt::seq(list.iter().map(|s| self.stmt(s)).collect()),
            StmtKind::For { var, min, extent, kind, annotations, body } => {
                let new = StmtKind::For {
                    var: var.clone(),
                    min: self.value(min),
                    extent: self.value(extent),
                    kind: kind.clone(),
                    annotations: annotations.clone(),
                    body: self.stmt(body),
                };
                self.behind([min, extent], vec![], at(new))
            }
            StmtKind::While { cond, body } => {
                let body = Stmt::seq(vec![self.stmt(body), self.behind([cond], vec![], Stmt::nop())]);
                self.behind([cond], vec![], at(StmtKind::While { cond: self.value(cond), body }))
            }
            StmtKind::If { cond, then, otherwise } => {
                let (then, otherwise) = (self.stmt(then), otherwise.as_ref().map(|s| self.stmt(s)));
                self.behind([cond], vec![], at(StmtKind::If { cond: self.value(cond), then, otherwise }))
            }
            StmtKind::Block(b) => {
                let mut new: Block = (**b).clone();
                for a in &mut new.axes {
                    a.binding = self.value(&a.binding);
                }
                new.predicate = b.predicate.as_ref().map(|p| self.value(p));
                (new.reads, new.writes) = (None, None);
                new.init = b.init.as_ref().map(|s| self.stmt(s));
                new.body = self.stmt(&b.body);
                let exprs = b.axes.iter().map(|a| &a.binding).chain(&b.predicate);
                self.behind(exprs, vec![], at(StmtKind::Block(Box::new(new))))
            }
            StmtKind::Store { buffer, indices, value } => {
                let new = StmtKind::Store {
                    buffer: buffer.clone(),
                    indices: indices.iter().map(|i| self.value(i)).collect(),
                    value: self.value(value),
                };
                let open = self.open(buffer, indices);
                let condition = open.iter().map(|(_, i, n)| inside(i, n)).reduce(PrimExpr::and);
                let test = |(number, index, extent)| Test { guards: vec![], number, index, extent };
                let store = match condition {
                    Some(c) => Stmt::if_then(c, at(new)),
                    None => at(new),
                };
                self.behind(indices.iter().chain([value]), open.into_iter().map(test).collect(), store)
            }
            StmtKind::Let { var, value, body } => {
                let new = StmtKind::Let { var: var.clone(), value: self.value(value), body: self.stmt(body) };
                self.behind([value], vec![], at(new))
            }
            StmtKind::Assert { cond, message } => {
                let new = StmtKind::Assert { cond: self.value(cond), message: message.clone() };
                self.behind([cond], vec![], at(new))
            }
            StmtKind::CallPacked { .. } => s.clone(),
            StmtKind::Evaluate(e) => self.behind([e], vec![], at(StmtKind::Evaluate(self.value(e)))),
            StmtKind::Attr { node, key, value, body } => at(StmtKind::Attr {
                node: node.clone(),
                key: key.clone(),
                value: self.value(value),
                body: self.stmt(body),
            }),
            StmtKind::Alloc { buffer, body } => at(StmtKind::Alloc { buffer: buffer.clone(), body: self.stmt(body) }),
        }
    }
}
