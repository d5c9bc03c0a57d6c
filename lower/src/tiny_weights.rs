//! Weights that are next to nothing are zero, unless floats are strict.
//!
//! Channels that died in training leave weights far below all others, down to subnormal numbers. Intel's processors hand a
//! multiply-add that reads or makes a subnormal number to microcode, at more than a hundred cycles for each vector.
//!
//! * Rule `tiny weights`: of a constant that only products read (convolutions, matrix products, recurrences), elements below
//!   2^-100 are zero where they are below 2^-63 of its largest element, too. A result changes by less than 2^-63 of the largest
//!   weight for each element of the data, beside 2^-24 by which each product of the largest one is rounded.

use crate::host::VIEWS;
use crate::layout::{CONVOLUTIONS, TRANSPOSED};
use relax_ir::analysis::Typed;
use relax_ir::constant::ConstantData;
use relax_ir::relax::{map_bindings, Binding, BindingValue, Call, Expr, ExprKind, RVar};
use relax_ir::{Constant, DType, Func};
use std::collections::HashMap;
use std::sync::Arc;

/// Recurrent layers, whose operands behind the first are weights.
const RECURRENCES: &[&str] = &["onnx.lstm", "onnx.gru", "onnx.rnn"];

/// The exponent of 2^-100, as float32 has it.
const SMALL: u32 = 27;
/// Between the exponents of the largest element and of one that is nothing beside it.
const APART: u32 = 64;

/// Rewrites every Relax function.
pub fn tiny_weights(typed: &mut Typed) {
    let mut reads = Reads::default();
    for f in typed.module.relax_funcs() {
        map_bindings(&f.body, &mut |b, _| {
            reads.binding(b);
            None
        });
    }
    for f in typed.module.relax_funcs() {
        f.body.walk(&mut |e| reads.count(e));
    }
    let new = reads.without_tiny();
    if new.is_empty() {
        return;
    }
    let mut funcs = std::mem::take(&mut typed.module.funcs);
    for f in &mut funcs {
        let Func::Relax(f) = f else { continue };
        f.body = map_bindings(&f.body, &mut |b, _| replaced(b, &new));
    }
    typed.module.funcs = funcs;
}

/// Constants of float32 by the address of their data.
#[derive(Default)]
struct Reads {
    constants: HashMap<usize, Constant>,
    /// Of variables that are bound to one, or to a view of it or its transposition: its address.
    names: HashMap<RVar, usize>,
    /// Reads by products and by what is named above, less all reads.
    balance: HashMap<usize, i64>,
}

impl Reads {
    fn address(&self, e: &Expr) -> Option<usize> {
        match e.kind() {
            ExprKind::Constant(c) => Some(c.data.address()).filter(|a| self.constants.contains_key(a)),
            ExprKind::Var(v) => self.names.get(v).copied(),
            _ => None,
        }
    }

    fn constant(&mut self, e: &Expr) {
        if let ExprKind::Constant(c) = e.kind() {
            if c.dtype == DType::F32 && c.data.coded().is_none() {
                self.constants.entry(c.data.address()).or_insert_with(|| c.clone());
            }
        }
    }

    fn binding(&mut self, b: &Binding) {
        self.constant(b.expr());
        if let Some(at) = self.address(b.expr()).filter(|_| b.expr().as_var().is_none()) {
            *self.balance.entry(at).or_default() += 1;
            self.names.insert(b.var.clone(), at);
        }
        let Some(c) = b.expr().as_call() else { return };
        c.args.iter().for_each(|a| self.constant(a));
        let Some(op) = c.op().map(|o| o.name) else { return };
        if VIEWS.contains(&op) || op == "permute_dims" {
            if let Some(at) = c.args.first().and_then(|a| self.address(a)) {
                *self.balance.entry(at).or_default() += 1;
                self.names.insert(b.var.clone(), at);
            }
        }
        for w in weights(op, c) {
            if let Some(at) = self.address(w) {
                *self.balance.entry(at).or_default() += 1;
            }
        }
    }

    fn count(&mut self, e: &Expr) {
        if let Some(at) = self.address(e) {
            *self.balance.entry(at).or_default() -= 1;
        }
    }

    /// What takes the place of the data of those that nothing else reads.
    fn without_tiny(&self) -> HashMap<usize, Arc<dyn ConstantData>> {
        let read = self.balance.iter().filter(|(_, n)| **n == 0);
        read.filter_map(|(at, _)| Some((*at, without_tiny(self.constants.get(at)?)?))).collect()
    }
}

/// The operands of a product that may be weights.
fn weights<'a>(op: &str, c: &'a Call) -> &'a [Expr] {
    let all = c.args.as_slice();
    match op {
        "matmul" => all,
        _ if CONVOLUTIONS.contains(&op) || TRANSPOSED.contains(&op) => all.get(1..2).unwrap_or(&[]),
        _ if RECURRENCES.contains(&op) => all.get(1..).unwrap_or(&[]),
        _ => &[],
    }
}

/// The same data with zeros for elements that are next to nothing; `None` where there are none.
fn without_tiny(c: &Constant) -> Option<Arc<dyn ConstantData>> {
    let (mut largest, mut tiny) = (0, false);
    let bits = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) & 0x7fff_ffff;
    let looked = c.data.pieces(&mut |bytes| {
        for b in bytes.chunks_exact(4).map(bits) {
            largest = largest.max(b);
            // Zero is none.
            tiny |= b.wrapping_sub(1) < (SMALL << 23) - 1;
        }
        Ok(())
    });
    let exponent = largest >> 23;
    let limit = exponent.saturating_sub(APART).min(SMALL) << 23;
    if looked.is_err() || !tiny || exponent == 0xff || limit == 0 {
        return None;
    }
    let mut bytes = c.bytes().to_vec();
    for b in bytes.chunks_exact_mut(4).filter(|b| bits(b) < limit) {
        b.fill(0);
    }
    Some(Arc::new(bytes))
}

/// The binding over other data.
fn replaced(b: &Binding, new: &HashMap<usize, Arc<dyn ConstantData>>) -> Option<Vec<Binding>> {
    let other = |e: &Expr| {
        let ExprKind::Constant(c) = e.kind() else { return None };
        let data = new.get(&c.data.address())?.clone();
        Some(Expr::new(ExprKind::Constant(Constant { data, ..c.clone() }), e.span()))
    };
    let value = match b.expr().as_call() {
        None => other(b.expr())?,
        Some(c) => {
            let args: Vec<Option<Expr>> = c.args.iter().map(other).collect();
            if args.iter().all(Option::is_none) {
                return None;
            }
            let args = args.into_iter().zip(&c.args).map(|(new, old)| new.unwrap_or_else(|| old.clone())).collect();
            Expr::new(ExprKind::Call(Call { args, ..c.clone() }), b.expr().span())
        }
    };
    matches!(b.value, BindingValue::Expr(_)).then(|| vec![Binding { value: BindingValue::Expr(value), ..b.clone() }])
}
