//! Batch norms of inference are a factor and an offset for each channel: rule `batch_norm`, `(x - mean) / sqrt(var + eps) *
//! gamma + beta` is `x * a + b` with `a = gamma / sqrt(var + eps)` and `b = beta - mean * a`, as the operators that this is
//! written with. These go into kernels around them, in any layout, and constants among them into weights ([`crate::scales`]).

use relax_ir::analysis::{infer_expr, Typed};
use relax_ir::attrs::Attrs;
use relax_ir::op::lookup;
use relax_ir::relax::{map_bindings, Binding, BindingValue, Call, Callee, Expr, ExprKind, RVar};
use relax_ir::sym::Facts;
use relax_ir::{Constant, DType, Func, PrimExpr};
use std::collections::HashMap;

/// Rewrites every Relax function. Batch norms of which more than the first result is read stay.
pub fn batch_norms(typed: &mut Typed) {
    let mut funcs = std::mem::take(&mut typed.module.funcs);
    let mut changed = false;
    for f in &mut funcs {
        let Func::Relax(f) = f else { continue };
        let mut found: HashMap<RVar, Call> = HashMap::new();
        for b in f.bindings() {
            if let Some(c) = b.expr().as_op_call("nn.batch_norm").filter(|c| infers(c)) {
                found.insert(b.var.clone(), c.clone());
            }
        }
        if found.is_empty() {
            continue;
        }
        // Reads of a tuple other than of its first field.
        let mut fields: HashMap<RVar, i64> = HashMap::new();
        f.body.walk(&mut |e| match e.kind() {
            ExprKind::Var(v) if found.contains_key(v) => *fields.entry(v.clone()).or_default() += 1,
            ExprKind::TupleGetItem(t, 0) => {
                if let Some(v) = t.as_var().filter(|v| found.contains_key(v)) {
                    *fields.entry(v.clone()).or_default() -= 1;
                }
            }
            _ => {}
        });
        found.retain(|v, _| fields.get(v) == Some(&0));
        f.body = map_bindings(&f.body, &mut |b, _| {
            let ExprKind::TupleGetItem(t, 0) = b.expr().kind() else { return None };
            let call = found.get(t.as_var()?)?;
            let list = Written { typed, list: vec![], b }.out(call)?;
            changed = true;
            Some(list)
        });
    }
    typed.module.funcs = funcs;
    if changed {
        crate::dead::remove_dead(typed);
    }
}

/// Whether the moments are the operator's own.
fn infers(c: &Call) -> bool {
    c.attrs.bool("training") == Some(false)
}

struct Written<'a> {
    typed: &'a mut Typed,
    list: Vec<Binding>,
    /// The first field.
    b: &'a Binding,
}

impl Written<'_> {
    fn out(mut self, c: &Call) -> Option<Vec<Binding>> {
        let [x, gamma, beta, mean, var] = c.args.as_slice() else { return None };
        let info = self.typed.info_of(x)?.as_tensor()?.clone();
        let rank = info.known_dims()?.len();
        let axis = c.attrs.int("axis").unwrap_or(1);
        let axis = usize::try_from(if axis < 0 { axis + rank as i64 } else { axis }).ok().filter(|a| *a < rank)?;
        let channels = info.known_dims()?[axis].clone();
        // Halves are computed in float32, which the kernel of the operator does.
        let all = [x, gamma, beta, mean, var];
        let plain = all
            .iter()
            .all(|e| self.typed.info_of(e).is_some_and(|i| i.as_tensor().is_some_and(|t| t.dtype == Some(DType::F32))));
        if !plain {
            return None;
        }
        let number = |v: f64| Expr::new(ExprKind::Constant(Constant::scalar_f64(DType::F32, v)), self.b.span);
        let epsilon = number(c.attrs.float("epsilon").unwrap_or(1e-5));
        let one = number(1.0);
        let root = self.op("add", [var.clone(), epsilon])?;
        let root = self.op("sqrt", [root])?;
        let scaled = c.attrs.bool("scale") != Some(false);
        let a = self.op("divide", [if scaled { gamma.clone() } else { one }, root])?;
        let shift = self.op("multiply", [mean.clone(), a.clone()])?;
        let b = match c.attrs.bool("center") != Some(false) {
            true => self.op("subtract", [beta.clone(), shift])?,
            false => self.op("negative", [shift])?,
        };
        let mut dims = vec![channels];
        dims.extend(vec![PrimExpr::i64(1); rank - axis - 1]);
        let shape = Expr::new(ExprKind::Shape(dims), self.b.span);
        let a = self.op("reshape", [a, shape.clone()])?;
        let b = self.op("reshape", [b, shape])?;
        let y = self.op("multiply", [x.clone(), a])?;
        let value = BindingValue::Expr(self.call("add", [y, b])?);
        self.list.push(Binding { value, ..self.b.clone() });
        Some(self.list)
    }

    fn call<const N: usize>(&self, op: &str, args: [Expr; N]) -> Option<Expr> {
        let call =
            Call { callee: Callee::Op(lookup(op)?), args: args.to_vec(), attrs: Attrs::default(), sinfo_args: vec![] };
        Some(Expr::new(ExprKind::Call(call), self.b.span))
    }

    fn op<const N: usize>(&mut self, op: &str, args: [Expr; N]) -> Option<Expr> {
        let value = self.call(op, args)?;
        let info = infer_expr(&mut Facts::new(), &value, &self.typed.sinfo, &self.typed.module).ok()?;
        let var = RVar::new(self.b.var.name(), self.b.var.is_dataflow(), self.b.span);
        self.typed.sinfo.insert(var.clone(), info);
        let value = BindingValue::Expr(value);
        self.list.push(Binding { var: var.clone(), annotation: None, value, span: self.b.span });
        Some(var.expr())
    }
}
