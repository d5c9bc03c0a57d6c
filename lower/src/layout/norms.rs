//! Channels last for norms over rows and columns of pictures, by channels or groups of them: means of channels, from which
//! those of groups follow, and a factor and an offset for each channel, as operators that kernels around them take in. Norms of
//! groups are also known as exporters write them: instances of a reshape that has one channel for each group.

use super::open::reshape_to;
use super::{call, ints, Out, Pass};
use relax_ir::analysis::Typed;
use relax_ir::attrs::Attrs;
use relax_ir::relax::{Binding, Call, Expr, ExprKind, Function, RVar};
use relax_ir::{AttrValue, Constant, DType, PrimExpr};
use std::collections::HashMap;

/// What has a mean and a variance for each picture.
pub(super) const NORMS: &[&str] = &["nn.instance_norm", "nn.group_norm"];

/// `(x - mean) / sqrt(variance + epsilon) * scale + offset` by groups of channels, or by channels.
pub(super) struct Norm {
    x: Expr,
    groups: Option<i64>,
    epsilon: f64,
    scale: Option<Expr>,
    offset: Option<Expr>,
}

/// The norms of groups that are written out, by the reshape behind them: `known` are constants.
pub(super) fn written(typed: &Typed, known: &HashMap<RVar, Constant>) -> HashMap<RVar, Norm> {
    let mut out = HashMap::new();
    for f in typed.module.relax_funcs() {
        let written = Written::of(f, typed, known);
        for b in f.bindings() {
            if let Some(norm) = written.norm(&b.var) {
                out.insert(b.var.clone(), norm);
            }
        }
    }
    out
}

struct Written<'a> {
    calls: HashMap<&'a RVar, &'a Call>,
    typed: &'a Typed,
    known: &'a HashMap<RVar, Constant>,
}

impl<'a> Written<'a> {
    fn of(f: &'a Function, typed: &'a Typed, known: &'a HashMap<RVar, Constant>) -> Written<'a> {
        let calls = f.bindings().filter_map(|b| Some((&b.var, b.expr().as_call()?))).collect();
        Written { calls, typed, known }
    }

    fn call(&self, e: &Expr, op: &str) -> Option<&'a Call> {
        self.calls.get(e.as_var()?).copied().filter(|c| c.is_op(op))
    }

    fn constant(&self, e: &'a Expr) -> Option<&Constant> {
        match e.kind() {
            ExprKind::Constant(c) => Some(c),
            _ => self.known.get(e.as_var()?),
        }
    }

    fn dims(&self, e: &Expr) -> Option<Vec<PrimExpr>> {
        let info = self.typed.info_of(e)?;
        let t = info.as_tensor().filter(|t| t.dtype == Some(DType::F32))?;
        Some(t.known_dims()?.to_vec())
    }

    /// What `op` reduces over the last of three dims.
    fn over(&self, op: &str, e: &Expr) -> Option<&'a Expr> {
        let c = self.call(e, op).filter(|c| c.attrs.bool("keepdims") == Some(true))?;
        let axes = c.attrs.ints("axis").or_else(|| Some(vec![c.attrs.int("axis")?]))?;
        (axes == [2] || axes == [-1]).then(|| c.args.first()).flatten()
    }

    fn norm(&self, var: &RVar) -> Option<Norm> {
        let last = self.calls.get(var).filter(|c| c.is_op("reshape"))?;
        let mut at = last.args.first()?;
        let (mut scale, mut offset) = (None, None);
        for (op, k) in [("add", &mut offset), ("multiply", &mut scale)] {
            if let Some(c) = self.call(at, op) {
                let [l, r] = c.args.as_slice() else { return None };
                *k = Some(self.constant(r)?);
                at = l;
            }
        }
        let [centred, root] = self.call(at, "divide")?.args.as_slice() else { return None };
        let [of, mean] = self.call(centred, "subtract")?.args.as_slice() else { return None };
        let sum = self.call(self.call(root, "sqrt")?.args.first()?, "add")?;
        let [variance, epsilon] = sum.args.as_slice() else { return None };
        let epsilon = self.constant(epsilon).filter(|e| e.elements() == 1)?.get_f64(0);
        let varies = match self.over("variance", variance) {
            Some(x) => x == of,
            None => {
                let square = self.over("mean", variance)?;
                let squared = match (self.call(square, "square"), self.call(square, "multiply")) {
                    (Some(c), _) => c.args.first(),
                    (_, Some(c)) => c.args.first().filter(|x| Some(*x) == c.args.get(1)),
                    _ => None,
                };
                squared == Some(centred)
            }
        };
        if !varies || self.over("mean", mean)? != of {
            return None;
        }
        let x = self.call(of, "reshape")?.args.first()?;
        let (dims, apart) = (self.dims(x)?, self.dims(of)?);
        let groups = apart.get(1)?.as_int().filter(|g| *g > 0)?;
        let channels = dims.get(1)?.as_int()?;
        let same = (3..=4).contains(&dims.len()) && self.dims(&var.expr())? == dims && apart.len() == 3;
        if !same || apart[0] != dims[0] || channels % groups != 0 {
            return None;
        }
        // One for each group, as one for each of its channels.
        let spread = |k: Option<&Constant>| -> Option<Option<Expr>> {
            let Some(k) = k else { return Some(None) };
            let by_group = k.shape.len() >= 2 && k.shape.iter().rev().nth(1) == Some(&groups);
            if k.dtype != DType::F32 || k.elements() != 1 && !(by_group && k.elements() as i64 == groups) {
                return None;
            }
            let value =
                |c: i64| k.get_f64(if k.elements() == 1 { 0 } else { (c / (channels / groups)) as usize }) as f32;
            let bytes = (0..channels).flat_map(|c| value(c).to_le_bytes()).collect();
            Some(Some(Expr::new(ExprKind::Constant(Constant::new(DType::F32, vec![channels], bytes)), x.span())))
        };
        let (scale, offset) = (spread(scale)?, spread(offset)?);
        Some(Norm { x: x.clone(), groups: Some(groups), epsilon, scale, offset })
    }
}

impl Pass {
    /// [`NORMS`] of float32 over all rows and columns: `x * a + b`, where `a = gamma / sqrt(var + eps)`, `b = beta - mean * a`.
    pub(super) fn norm(&mut self, b: &Binding, c: &Call, dims: &[PrimExpr], out: &mut Out) -> Option<RVar> {
        let x = self.last_of(c.args.first()?)?;
        let rank = dims.len();
        let axes = c.attrs.ints("axes")?;
        let mut axes: Vec<usize> = axes.iter().map(|a| a.rem_euclid(rank as i64) as usize).collect();
        axes.sort_unstable();
        let channel = c.attrs.int("channel_axis")?.rem_euclid(rank as i64);
        // Of one picture torch's importer has them over the batch, too.
        if axes.first() == Some(&0) && dims[0].is_int(1) {
            axes.remove(0);
        }
        if rank > 4 || channel != 1 || axes != (2..rank).collect::<Vec<_>>() {
            return None;
        }
        let norm = Norm {
            x: c.args.first()?.clone(),
            groups: c.attrs.int("num_groups"),
            epsilon: c.attrs.float("epsilon").unwrap_or(1e-5),
            // Both align with the last axis as they are.
            scale: Some(c.args.get(1)?.clone()),
            offset: Some(c.args.get(2)?.clone()),
        };
        self.normalised(b, x, &norm, dims, out)
    }

    /// The NHWC form of a norm of groups that is written out, behind its last reshape.
    pub(super) fn written_norm(&self, b: &Binding, dims: &[PrimExpr], out: &mut Out) -> Option<RVar> {
        let norm = self.norms.get(&b.var)?;
        self.normalised(b, self.last_of(&norm.x)?, norm, dims, out)
    }

    fn normalised(&self, b: &Binding, x: RVar, norm: &Norm, dims: &[PrimExpr], out: &mut Out) -> Option<RVar> {
        let (n, channels) = (dims[0].clone(), dims[1].as_int()?);
        let groups = norm.groups.filter(|g| *g != channels);
        let mean = self.mean_of(&x.expr(), (&n, channels, groups), out)?;
        let apart = bound(out, "subtract", vec![x.expr(), mean.clone()])?;
        let square = bound(out, "multiply", vec![apart.clone(), apart])?;
        let variance = self.mean_of(&square, (&n, channels, groups), out)?;
        let epsilon = Expr::new(ExprKind::Constant(Constant::scalar_f64(DType::F32, norm.epsilon)), out.span);
        let variance = bound(out, "add", vec![variance, epsilon])?;
        let mut a = bound(out, "rsqrt", vec![variance])?;
        if let Some(scale) = &norm.scale {
            a = bound(out, "multiply", vec![a, scale.clone()])?;
        }
        let mut offset = bound(out, "multiply", vec![mean, a.clone()])?;
        offset = match &norm.offset {
            Some(o) => bound(out, "subtract", vec![o.clone(), offset])?,
            None => bound(out, "negative", vec![offset])?,
        };
        let scaled = bound(out, "multiply", vec![x.expr(), a])?;
        out.bind(b.var.name(), call("add", vec![scaled, offset], Attrs::default(), out.span)?)
    }

    /// The means over rows and columns, of groups for each of their channels: one row and column.
    fn mean_of(&self, x: &Expr, (n, channels, groups): (&PrimExpr, i64, Option<i64>), out: &mut Out) -> Option<Expr> {
        let by_channel = mean(out, x.clone(), &[1, 2])?;
        let Some(groups) = groups else { return Some(by_channel) };
        let size = channels.checked_div(groups)?;
        let dims = |d: [i64; 2]| [vec![n.clone()], d.map(PrimExpr::i64).to_vec()].concat();
        let apart = reshape_to(by_channel, dims([groups, size]), out)?;
        let apart = out.bind("groups", apart)?.expr();
        let means = mean(out, apart, &[2])?;
        let all = Expr::new(ExprKind::Shape(dims([groups, size])), out.span);
        let each = bound(out, "broadcast_to", vec![means, all])?;
        let one = PrimExpr::i64(1);
        let point = reshape_to(each, vec![n.clone(), one.clone(), one, PrimExpr::i64(channels)], out)?;
        Some(out.bind("mean", point)?.expr())
    }
}

fn bound(out: &mut Out, op: &str, args: Vec<Expr>) -> Option<Expr> {
    let value = call(op, args, Attrs::default(), out.span)?;
    Some(out.bind("norm", value)?.expr())
}

fn mean(out: &mut Out, x: Expr, axes: &[i64]) -> Option<Expr> {
    let mut attrs = Attrs::default();
    attrs.set("axis", ints(axes));
    attrs.set("keepdims", AttrValue::Bool(true));
    let value = call("mean", vec![x], attrs, out.span)?;
    Some(out.bind("mean", value)?.expr())
}
