//! Innermost loops over float32 elements that lie at even distances: the same operations in the same order as one by one,
//! but each over a piece of the loop.

use super::env::{Access, Env, FloatFn, Halt, Index, StmtFn};
use super::expr::Compiler;
use super::scalar::{float_binary, float_unary, Precision, P32};
use super::tensor::{read_float, write_float};
use relax_ir::prim::{BinOp, PrimExpr, PrimKind, Var};
use relax_ir::tir::{Buffer, IterKind, Stmt, StmtKind};
use relax_ir::DType;

/// Elements of a piece.
const PIECE: usize = 256;
/// Shorter loops run one by one.
pub const FEW: i64 = 8;

/// A loop whose body is a block that stores one element.
pub struct Line {
    /// Of the block's axes; that of the loop has the slot `axis`.
    bindings: Vec<(usize, Index)>,
    axis: usize,
    /// The other axes of sums, with their first values.
    reduce: Vec<(usize, Index)>,
    init: Option<StmtFn>,
    store: Access,
    /// What all elements are combined into, in one element of the store; otherwise each has its own.
    combine: Option<BinOp>,
    value: Value,
}

enum Value {
    /// The same for all elements.
    Same(FloatFn),
    Load(Access),
    Binary(BinOp, Box<Value>, Box<Value>),
    Unary(fn(f64) -> f64, Box<Value>),
}

/// What is known before the first element.
enum Known {
    Same(f64),
    Place(Place),
    Binary(BinOp, Box<Known>, Box<Known>),
    Unary(fn(f64) -> f64, Box<Known>),
}

/// Elements of a store: the first, and how far apart they are.
#[derive(Clone, Copy)]
struct Place {
    store: usize,
    first: i64,
    step: i64,
}

/// Whether `e` grows evenly with `v`.
fn even(e: &PrimExpr, v: &Var) -> bool {
    match e.kind() {
        _ if !e.uses(v) => true,
        PrimKind::Var(_) => true,
        PrimKind::Binary(BinOp::Add | BinOp::Sub, a, b) => even(a, v) && even(b, v),
        PrimKind::Binary(BinOp::Mul, a, b) => even(a, v) && even(b, v) && !(a.uses(v) && b.uses(v)),
        _ => false,
    }
}

impl Compiler {
    /// The loop over `var`, from 0, where its body is such a block.
    pub fn line(&mut self, var: &Var, body: &Stmt) -> Option<Line> {
        let StmtKind::Block(b) = body.kind() else { return None };
        let StmtKind::Store { buffer, indices, value } = b.body.kind() else { return None };
        let bare = b.predicate.is_none() && b.alloc_buffers.is_empty() && b.match_buffers.is_empty();
        if !bare || self.aliased || buffer.dtype() != DType::F32 || value.dtype() != DType::F32 {
            return None;
        }
        let mut along = b.axes.iter().filter(|a| a.binding.uses(var));
        let (own, None) = (along.next()?, along.next()) else { return None };
        // The loop's variable has no other name in the block.
        let named = own.binding.as_var() == Some(var) && own.min.is_int(0);
        let hidden = !value.uses(var) && !indices.iter().any(|i| i.uses(var));
        if !named || !hidden {
            return None;
        }
        let v = &own.var;
        let summed = own.kind == IterKind::Reduce;
        let (combine, value) = match value.kind() {
            PrimKind::Binary(op @ (BinOp::Add | BinOp::Max | BinOp::Min), acc, e) if summed => {
                let same = matches!(acc.kind(), PrimKind::BufferLoad(x, i) if x == buffer && **i == **indices);
                (same.then_some(Some(*op))?, e)
            }
            _ if summed => return None,
            _ => (None, value),
        };
        let moves = indices.iter().any(|i| i.uses(v));
        if moves == summed || !indices.iter().all(|i| even(i, v)) {
            return None;
        }
        let (mut bindings, mut reduce) = (vec![], vec![]);
        let mut axis = 0;
        for a in &b.axes {
            let binding = self.index(&a.binding).ok()?;
            let slot = self.define_int(&a.var).ok()?;
            bindings.push((slot, binding));
            if a.var == *v {
                axis = slot;
            } else if a.kind == IterKind::Reduce {
                reduce.push((slot, self.index(&a.min).ok()?));
            }
        }
        let value = self.value_of_line(value, v, buffer, (!summed).then_some(indices))?;
        let init = b.init.as_ref().map(|s| self.stmt(s)).transpose().ok()?;
        let store = self.access(buffer, indices, body.span()).ok()?;
        Some(Line { bindings, axis, reduce, init, store, combine, value })
    }

    /// `own`: where an element of the stored buffer may be read, which is the one that is stored.
    fn value_of_line(&mut self, e: &PrimExpr, v: &Var, stored: &Buffer, own: Option<&Vec<PrimExpr>>) -> Option<Value> {
        if e.dtype() != DType::F32 {
            return None;
        }
        let mut reads = false;
        e.walk(&mut |e| reads |= matches!(e.kind(), PrimKind::BufferLoad(b, _) if b == stored));
        if !e.uses(v) && !reads {
            return Some(Value::Same(self.float(e).ok()?));
        }
        let mut of = |e: &PrimExpr| Some(Box::new(self.value_of_line(e, v, stored, own)?));
        match e.kind() {
            PrimKind::Binary(op, a, b) if !op.is_compare() => match op {
                BinOp::Add | BinOp::Sub | BinOp::Mul | BinOp::Div | BinOp::Min | BinOp::Max => {
                    Some(Value::Binary(*op, of(a)?, of(b)?))
                }
                _ => None,
            },
            PrimKind::Call(f, args) => match &args[..] {
                [a] => Some(Value::Unary(float_unary(*f)?, of(a)?)),
                _ => None,
            },
            PrimKind::BufferLoad(b, i) => {
                let fits = b != stored || own.is_some_and(|own| **own == **i);
                (fits && i.iter().all(|i| even(i, v))).then_some(())?;
                Some(Value::Load(self.access(b, i, e.span()).ok()?))
            }
            _ => None,
        }
    }
}

impl Line {
    /// Runs `n` rounds of the loop whose variable has this slot; `false`, with nothing done, where it must run one by one:
    /// something would go wrong, or an element is read that another round stores.
    pub fn run(&self, env: &mut Env, slot: usize, n: i64) -> Result<bool, Halt> {
        env.ints[slot] = 0;
        for (slot, value) in &self.bindings {
            let v = value.get(env);
            env.ints[*slot] = v;
        }
        let to = self.place(env, &self.store, n);
        let known = self.known(env, &self.value, n);
        env.ints[self.axis] = 0;
        let (Some(to), Some(known), None) = (to, known, &env.fault) else {
            env.fault = None;
            return Ok(false);
        };
        if known.overlaps(&to) {
            return Ok(false);
        }
        if let Some(init) = &self.init {
            let mut first = true;
            for (slot, min) in &self.reduce {
                first &= env.ints[*slot] == min.get(env);
            }
            for i in 0..if self.combine.is_some() { 1 } else { n } {
                if first {
                    env.ints[self.axis] = i;
                    init(env)?;
                }
            }
        }
        let mut piece = [0f64; PIECE];
        let mut from = 0;
        while from < n as usize {
            let out = &mut piece[..PIECE.min(n as usize - from)];
            known.values(env, from, out);
            let at = |i: usize| (to.first + (from + i) as i64 * to.step) as usize;
            match self.combine {
                Some(op) => {
                    let mut acc = read_float(DType::F32, &env.stores[to.store], to.first as usize);
                    for v in out.iter() {
                        acc = binary(op, acc, *v);
                    }
                    write_float(DType::F32, &mut env.stores[to.store], to.first as usize, acc);
                }
                None => {
                    let store = &mut env.stores[to.store];
                    out.iter().enumerate().for_each(|(i, v)| write_float(DType::F32, store, at(i), *v));
                }
            }
            from += out.len();
        }
        Ok(true)
    }

    /// Where an access is in the first and, by it, in all rounds.
    fn place(&self, env: &mut Env, access: &Access, n: i64) -> Option<Place> {
        env.ints[self.axis] = 0;
        let (store, first) = access.locate(env, "load")?;
        env.ints[self.axis] = n - 1;
        let (_, last) = access.locate(env, "load")?;
        let step = if n > 1 { (last as i64 - first as i64) / (n - 1) } else { 0 };
        Some(Place { store, first: first as i64, step })
    }

    fn known(&self, env: &mut Env, value: &Value, n: i64) -> Option<Known> {
        Some(match value {
            Value::Same(f) => Known::Same(f(env)),
            Value::Load(a) => Known::Place(self.place(env, a, n)?),
            Value::Binary(op, a, b) => {
                Known::Binary(*op, Box::new(self.known(env, a, n)?), Box::new(self.known(env, b, n)?))
            }
            Value::Unary(f, a) => Known::Unary(*f, Box::new(self.known(env, a, n)?)),
        })
    }
}

impl Known {
    /// Whether it reads of the store other elements than those that are stored, each in its round.
    fn overlaps(&self, to: &Place) -> bool {
        match self {
            Known::Same(_) => false,
            Known::Place(p) => p.store == to.store && (p.first, p.step) != (to.first, to.step),
            Known::Binary(_, a, b) => a.overlaps(to) || b.overlaps(to),
            Known::Unary(_, a) => a.overlaps(to),
        }
    }

    /// Those of the rounds from `from` on.
    fn values(&self, env: &Env, from: usize, out: &mut [f64]) {
        match self {
            Known::Same(v) => out.fill(*v),
            Known::Place(p) => {
                let bytes = &env.stores[p.store];
                for (i, v) in out.iter_mut().enumerate() {
                    let at = (p.first + (from + i) as i64 * p.step) as usize * 4;
                    let b = &bytes[at..at + 4];
                    *v = f32::from_le_bytes([b[0], b[1], b[2], b[3]]) as f64;
                }
            }
            Known::Binary(op, a, b) => {
                let mut right = [0f64; PIECE];
                let right = &mut right[..out.len()];
                a.values(env, from, out);
                b.values(env, from, right);
                let each = out.iter_mut().zip(right);
                match op {
                    BinOp::Add => each.for_each(|(x, y)| *x = P32::round(*x + *y)),
                    BinOp::Sub => each.for_each(|(x, y)| *x = P32::round(*x - *y)),
                    BinOp::Mul => each.for_each(|(x, y)| *x = P32::round(*x * *y)),
                    _ => each.for_each(|(x, y)| *x = float_binary::<P32>(*op, *x, *y)),
                }
            }
            Known::Unary(f, a) => {
                a.values(env, from, out);
                out.iter_mut().for_each(|x| *x = P32::round(f(*x)));
            }
        }
    }
}

fn binary(op: BinOp, x: f64, y: f64) -> f64 {
    match op {
        BinOp::Add => P32::round(x + y),
        _ => float_binary::<P32>(op, x, y),
    }
}
