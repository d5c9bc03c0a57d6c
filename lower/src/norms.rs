//! Norms that are written out become operators: rule `layer_norm`, `(x - mean(x)) / sqrt(mean((x - mean(x)) ^ 2) + eps) *
//! gamma + beta`, as ONNX's operator is read and as models without it have it, also with an operator for the variance, rule `rms_norm`, the same without the
//! mean, and rule `softmax`, `exp(x - max(x)) / sum(exp(x - max(x)))` and its logarithm. The operators are one kernel each, which goes over the rows three times and stores nothing between.

use relax_ir::analysis::Typed;
use relax_ir::attrs::{AttrValue, Attrs};
use relax_ir::op::lookup;
use relax_ir::relax::{
    map_bindings, Binding, BindingValue, Call, Callee, Expr, ExprKind, Function, RVar, StructInfoMap, TensorInfo,
};
use relax_ir::{Constant, DType, Func, PrimExpr};
use std::collections::{HashMap, HashSet};

/// Elements of a scale or an offset that is made because the model has none.
const MOST_MADE: i64 = 1 << 16;

/// Rewrites every Relax function, before operators become kernels.
pub fn norms(typed: &mut Typed) {
    let sinfo = &typed.sinfo;
    for f in &mut typed.module.funcs {
        let Func::Relax(f) = f else { continue };
        let found = Pass::new(f, sinfo).all(f);
        if !found.is_empty() {
            f.body = map_bindings(&f.body, &mut |b, _| {
                let call = found.get(&b.var)?;
                Some(vec![Binding { value: BindingValue::Expr(call.clone()), ..b.clone() }])
            });
        }
    }
}

struct Pass<'a> {
    values: HashMap<RVar, Expr>,
    uses: HashMap<RVar, usize>,
    sinfo: &'a StructInfoMap,
}

/// What is normalised, and how.
struct Norm {
    x: Expr,
    centred: bool,
    axes: Vec<i64>,
    epsilon: f64,
    /// What is computed on the way, of the model's own.
    inner: HashSet<RVar>,
}

impl<'a> Pass<'a> {
    fn new(f: &Function, sinfo: &'a StructInfoMap) -> Pass<'a> {
        let mut uses: HashMap<RVar, usize> = HashMap::new();
        f.body.walk(&mut |e| {
            if let ExprKind::Var(v) = e.kind() {
                *uses.entry(v.clone()).or_default() += 1;
            }
        });
        Pass { values: f.bindings().map(|b| (b.var.clone(), b.expr().clone())).collect(), uses, sinfo }
    }

    /// The calls that bindings become: of scaled and shifted norms the last one, of a norm alone its own.
    fn all(&self, f: &Function) -> HashMap<RVar, Expr> {
        let mut found: HashMap<RVar, Expr> = HashMap::new();
        let mut gone: HashSet<RVar> = HashSet::new();
        let bindings: Vec<&Binding> = f.bindings().collect();
        for b in bindings.into_iter().rev() {
            if gone.contains(&b.var) {
                continue;
            }
            if let Some((call, inner)) = self.shifted(b).or_else(|| self.softmax(b)) {
                gone.extend(inner);
                found.insert(b.var.clone(), call);
            }
        }
        found
    }

    fn value<'b>(&'b self, e: &'b Expr) -> &'b Expr {
        e.as_var().and_then(|v| self.values.get(v)).unwrap_or(e)
    }

    /// The arguments of a call of `op`, and the name of its result among `inner`.
    fn call<'b>(&'b self, e: &'b Expr, op: &str, inner: &mut HashSet<RVar>) -> Option<&'b Call> {
        let call = self.value(e).as_call().filter(|c| c.is_op(op))?;
        inner.extend(e.as_var().cloned());
        Some(call)
    }

    fn number(&self, e: &Expr) -> Option<f64> {
        match self.value(e).kind() {
            ExprKind::Constant(c) if c.elements() == 1 && c.dtype.is_float() => Some(c.get_f64(0)),
            _ => None,
        }
    }

    fn tensor(&self, e: &Expr) -> Option<TensorInfo> {
        match e.kind() {
            ExprKind::Constant(c) => {
                let dims = c.shape.iter().map(|&n| PrimExpr::i64(n)).collect();
                relax_ir::relax::StructInfo::tensor(dims, c.dtype).as_tensor().cloned()
            }
            _ => self.sinfo.get(e.as_var()?)?.as_tensor().cloned(),
        }
    }

    /// `norm * gamma + beta`, `norm * gamma` or `norm`.
    fn shifted(&self, b: &Binding) -> Option<(Expr, HashSet<RVar>)> {
        let result = self.sinfo.get(&b.var)?.as_tensor()?;
        let (dims, dtype) =
            (result.known_dims()?.to_vec(), result.dtype.filter(|d| *d == DType::F32 || *d == DType::F64)?);
        let own = Expr::new(ExprKind::Var(b.var.clone()), b.span);
        let either = |c: &Call| [(c.args[0].clone(), c.args[1].clone()), (c.args[1].clone(), c.args[0].clone())];
        let scaled = |e: &Expr, inner: &HashSet<RVar>| -> Option<(Norm, Option<Expr>)> {
            let mut through = inner.clone();
            let factor = self.call(e, "multiply", &mut through).and_then(|c| {
                either(c).into_iter().find_map(|(y, gamma)| Some((self.norm(&y, through.clone())?, Some(gamma))))
            });
            factor.or_else(|| Some((self.norm(e, inner.clone())?, None)))
        };
        let mut through = HashSet::new();
        let sum = self.call(&own, "add", &mut through).and_then(|c| {
            either(c).into_iter().find_map(|(y, beta)| {
                let (norm, gamma) = scaled(&y, &through)?;
                Some((norm, gamma, Some(beta)))
            })
        });
        let (norm, gamma, beta) = sum.or_else(|| scaled(&own, &HashSet::new()).map(|(n, g)| (n, g, None)))?;
        let mut inner = norm.inner;
        inner.remove(&b.var);
        if !self.closed(&inner, &b.var) || self.tensor(&norm.x)?.known_dims()? != dims.as_slice() {
            return None;
        }
        let row = &dims[dims.len() - norm.axes.len()..];
        let weight = |e: Option<Expr>, otherwise: f64| match e {
            Some(e) => {
                let t = self.tensor(&e)?;
                (t.dtype == Some(dtype) && t.known_dims()? == row).then_some(e)
            }
            None => {
                let shape: Option<Vec<i64>> = row.iter().map(PrimExpr::as_int).collect();
                let shape = shape?;
                let count = shape.iter().try_fold(1i64, |n, d| n.checked_mul(*d)).filter(|n| *n <= MOST_MADE)?;
                let one = match dtype {
                    DType::F64 => otherwise.to_le_bytes().to_vec(),
                    _ => (otherwise as f32).to_le_bytes().to_vec(),
                };
                let made = Constant::new(dtype, shape, one.repeat(count as usize));
                Some(Expr::new(ExprKind::Constant(made), b.span))
            }
        };
        let mut args = vec![norm.x.clone(), weight(gamma, 1.0)?];
        let mut attrs = Attrs::default();
        attrs.set("axes", AttrValue::List(norm.axes.iter().map(|a| AttrValue::Int(*a)).collect()));
        attrs.set("epsilon", AttrValue::Float(norm.epsilon));
        let op = match (norm.centred, &beta) {
            (true, _) => {
                args.push(weight(beta, 0.0)?);
                attrs.set("center", AttrValue::Bool(true));
                attrs.set("scale", AttrValue::Bool(true));
                "nn.layer_norm"
            }
            (false, None) => "nn.rms_norm",
            (false, Some(_)) => return None,
        };
        let call = Call { callee: Callee::Op(lookup(op)?), args, attrs, sinfo_args: vec![] };
        Some((Expr::new(ExprKind::Call(call), b.expr().span()), inner))
    }

    /// `exp(x - max(x)) / sum(exp(x - max(x)))` over one axis, or `x - max(x) - log(sum(exp(x - max(x))))`.
    fn softmax(&self, b: &Binding) -> Option<(Expr, HashSet<RVar>)> {
        let own = Expr::new(ExprKind::Var(b.var.clone()), b.span);
        let mut inner = HashSet::new();
        let (op, shifted, total) = match self.call(&own, "divide", &mut inner) {
            Some(c) => {
                let shifted = self.call(&c.args[0], "exp", &mut inner)?.args[0].clone();
                ("nn.softmax", shifted, c.args[1].clone())
            }
            None => {
                let c = self.call(&own, "subtract", &mut inner)?;
                ("nn.log_softmax", c.args[0].clone(), self.call(&c.args[1], "log", &mut inner)?.args[0].clone())
            }
        };
        let one = |op: &str, e: &Expr, inner: &mut HashSet<RVar>| -> Option<(Expr, i64)> {
            let c = self.call(e, op, inner)?;
            let rank = self.tensor(&c.args[0])?.known_dims()?.len() as i64;
            let [axis] = c.attrs.ints("axis")?[..] else { return None };
            (c.attrs.bool("keepdims") == Some(true)).then(|| (c.args[0].clone(), axis.rem_euclid(rank)))
        };
        let (terms, axis) = one("sum", &total, &mut inner)?;
        let exponents = self.call(&terms, "exp", &mut inner)?.args[0].clone();
        let same = self.value(&exponents) == self.value(&shifted);
        inner.extend(exponents.as_var().cloned());
        let less = self.call(&shifted, "subtract", &mut inner)?;
        let (x, over) = one("max", &less.args[1], &mut inner)?;
        inner.remove(&b.var);
        if !same || x != less.args[0] || over != axis || !self.closed(&inner, &b.var) {
            return None;
        }
        let mut attrs = Attrs::default();
        attrs.set("axis", AttrValue::Int(axis));
        let call = Call { callee: Callee::Op(lookup(op)?), args: vec![x], attrs, sinfo_args: vec![] };
        Some((Expr::new(ExprKind::Call(call), b.expr().span()), inner))
    }

    /// Whether only what is computed for `last` uses these.
    fn closed(&self, inner: &HashSet<RVar>, last: &RVar) -> bool {
        let mut own: HashMap<RVar, usize> = HashMap::new();
        for v in inner.iter().chain([last]) {
            let Some(e) = self.values.get(v) else { return false };
            e.walk(&mut |e| {
                if let ExprKind::Var(v) = e.kind() {
                    *own.entry(v.clone()).or_default() += 1;
                }
            });
        }
        inner.iter().all(|v| self.uses.get(v) == own.get(v))
    }

    /// `v / sqrt(mean(v ^ 2) + eps)` with `v` a tensor, or a tensor less its mean over the same axes.
    fn norm(&self, e: &Expr, mut inner: HashSet<RVar>) -> Option<Norm> {
        let (v, root) = match self.call(e, "divide", &mut inner) {
            Some(c) => (c.args[0].clone(), self.call(&c.args[1], "sqrt", &mut inner)?.args[0].clone()),
            None => {
                let c = self.call(e, "multiply", &mut inner)?;
                let side = |i: usize| self.value(&c.args[i]).as_call().is_some_and(|c| c.is_op("rsqrt"));
                let at = (0..2).find(|&i| side(i))?;
                (c.args[1 - at].clone(), self.call(&c.args[at], "rsqrt", &mut inner)?.args[0].clone())
            }
        };
        let sum = self.call(&root, "add", &mut inner)?;
        let at = (0..2).find(|&i| self.number(&sum.args[i]).is_some())?;
        let epsilon = self.number(&sum.args[at])?;
        let variance = &sum.args[1 - at];
        if let Some((x, axes)) = self.over("variance", variance, &mut inner) {
            let same = self.centred(&v, &axes, &mut inner)? == x;
            return same.then_some(Norm { x, centred: true, axes, epsilon, inner });
        }
        let (squares, axes) = self.over("mean", variance, &mut inner)?;
        let base = self.square(&squares, &mut inner)?;
        let (x, centred) = match (self.centred(&v, &axes, &mut inner), self.centred(&base, &axes, &mut inner)) {
            (Some(x), Some(y)) if x == y => (x, true),
            (None, None) if v == base => (v, false),
            _ => return None,
        };
        Some(Norm { x, centred, axes, epsilon, inner })
    }

    /// `x` of `x - mean(x)`.
    fn centred(&self, e: &Expr, axes: &[i64], inner: &mut HashSet<RVar>) -> Option<Expr> {
        let mut own = inner.clone();
        let c = self.call(e, "subtract", &mut own)?;
        let (x, over) = self.over("mean", &c.args[1], &mut own)?;
        if x != c.args[0] || over != axes {
            return None;
        }
        *inner = own;
        Some(x)
    }

    fn square(&self, e: &Expr, inner: &mut HashSet<RVar>) -> Option<Expr> {
        if let Some(c) = self.call(e, "square", inner) {
            return Some(c.args[0].clone());
        }
        if let Some(c) = self.call(e, "multiply", inner) {
            return (c.args[0] == c.args[1]).then(|| c.args[0].clone());
        }
        let c = self.call(e, "power", inner)?;
        (self.number(&c.args[1]) == Some(2.0)).then(|| c.args[0].clone())
    }

    /// What `op` reduces over its last axes, which stay as ones, and these axes.
    fn over(&self, op: &str, e: &Expr, inner: &mut HashSet<RVar>) -> Option<(Expr, Vec<i64>)> {
        let c = self.call(e, op, inner)?;
        let rank = self.tensor(&c.args[0])?.known_dims()?.len() as i64;
        let mut axes = c.attrs.ints("axis")?;
        axes.iter_mut().filter(|a| **a < 0).for_each(|a| *a += rank);
        axes.sort();
        let last = !axes.is_empty() && axes.iter().rev().zip((0..rank).rev()).all(|(a, b)| *a == b);
        (last && c.attrs.bool("keepdims") == Some(true)).then(|| (c.args[0].clone(), axes))
    }
}
