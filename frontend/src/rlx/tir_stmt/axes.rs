//! Axes of blocks (`T.axis.spatial(..)` and its kin, `T.axis.remap(..)`), and the regions that they state.

use super::*;
use relax_ir::prim::BinOp;

impl<'a> Cx<'a> {
    /// `T.axis.spatial(extent, value)`, `T.axis.remap("SR", [i, j])`
    pub(super) fn axes(
        &mut self,
        target: &Expr<'a>,
        axis: &str,
        call: &CallExpr<'a>,
        span: Span,
    ) -> Option<Vec<BlockAxis>> {
        let names: Vec<&Expr<'a>> = match target.elements() {
            Some(items) => items.iter().collect(),
            None => vec![target],
        };
        if axis == "remap" {
            if let Some([_]) = target.elements() {
                let d = Diagnostic::error("tir", target.span, "one axis is no tuple");
                return self.report(d.help("write it without a comma"));
            }
            return self.remap(&names, call, span);
        }
        let kind = match axis {
            "spatial" | "S" => IterKind::Spatial,
            "reduce" | "R" => IterKind::Reduce,
            "scan" => IterKind::Scan,
            "opaque" => IterKind::Opaque,
            _ => return self.unsupported("tir", span, format!("axes of kind `{axis}` are not supported")),
        };
        let (Some(dom), Some(binding), [name]) = (call.arg(0, "dom"), call.arg(1, "binding"), names.as_slice()) else {
            return self.error("argument", span, format!("an axis is written `v = T.axis.{axis}(extent, value)`"));
        };
        let Some(var_name) = name.as_name() else { return self.expected(name, "a name") };
        let (min, extent) = self.range(dom)?;
        self.counts(&extent, dom.span)?;
        // Beside a number of Python both ends of a range are int32.
        let beside = dom.elements().is_some_and(|ends| ends.iter().any(|e| matches!(e.kind, ExprKind::Int(_))));
        if extent.dtype().bits < 32 && !beside {
            let message = format!("an axis counts in int32 or int64, its extent is {}", extent.dtype());
            let d = Diagnostic::error("type", dom.span, message);
            return self.report(d.help("write the extent as a plain number, or as T.int64(..)"));
        }
        // At least 32 bits, the widest of range and value: TVM 0.25 prints `(1, T.int64(0))` for an int64 axis.
        let value = self.num(binding)?;
        let width = |p: &PrimExpr| if p.dtype().is_int() { p.dtype().bits } else { 0 };
        let bits = match &value {
            Num::Expr(p) => width(p).max(width(&extent)),
            _ => width(&extent),
        };
        let dtype = if bits > 32 { DType::I64 } else { DType::I32 };
        if let Some(stated) = call.arg(2, "dtype").filter(|d| !matches!(d.kind, ExprKind::None)) {
            let t = self.dtype(stated)?;
            if t != dtype {
                return self.error("type", stated.span, format!("the extent of this axis is {dtype}, not {t}"));
            }
        }
        let binding = match value {
            Num::Expr(p) if p.as_int().is_some() => p.cast(dtype),
            n => self.settle_as(n, dtype),
        };
        let binding = binding.with_span(span);
        let var = Var::with_span(var_name, dtype, name.span);
        self.names.bind(var_name, Value::Prim(var.clone()));
        self.moves(&var, &extent);
        Some(vec![BlockAxis { var, kind, min: min.cast(dtype), extent: extent.cast(dtype), binding }])
    }

    /// The range of a loop with a step.
    fn counted(&self, e: &Expr<'a>) -> Option<(PrimExpr, PrimExpr)> {
        match self.names.get(e.as_name()?) {
            Some(Value::Counted { min, extent, .. }) => Some((min.clone(), extent.clone())),
            _ => None,
        }
    }

    fn remap(&mut self, names: &[&Expr<'a>], call: &CallExpr<'a>, span: Span) -> Option<Vec<BlockAxis>> {
        let usage = "write `vi, vj = T.axis.remap(\"SR\", [i, j])`";
        let (Some(kinds), Some(list), 2) =
            (call.arg(0, "kinds"), call.arg(1, "bindings"), call.args.len() + call.keywords.len())
        else {
            return self.error("argument", span, usage);
        };
        let values: Vec<(PrimExpr, Option<(PrimExpr, PrimExpr)>)> = match (list.elements(), self.variables(list)) {
            (Some(items), _) => {
                // A conversion is no loop variable, one to the same type neither.
                if let Some(cast) = items.iter().find(|v| v.called().as_deref() == Some("T.Cast")) {
                    let d = Diagnostic::error("tir", cast.span, "T.axis.remap takes loop variables");
                    return self.report(d.help("for anything else write T.axis.spatial(extent, value)"));
                }
                let values: Vec<Option<_>> =
                    items.iter().map(|v| Some((same(self.prim(v)?), self.counted(v)))).collect();
                values.into_iter().collect::<Option<_>>()?
            }
            (None, Some(vars)) => vars.iter().map(|v| (v.expr().with_span(list.span), None)).collect(),
            (None, None) => return self.error("argument", span, usage),
        };
        let kinds = self.string(kinds)?;
        if kinds.chars().count() != values.len() || names.len() != values.len() {
            return self.error("argument", span, "T.axis.remap needs as many letters, names and loop variables");
        }
        let mut axes = vec![];
        for ((letter, name), (binding, counted)) in kinds.chars().zip(names).zip(values) {
            let kind = match letter {
                'S' => IterKind::Spatial,
                'R' => IterKind::Reduce,
                _ => return self.error("argument", span, format!("`{letter}` is no kind of axis: S or R")),
            };
            let Some(var_name) = name.as_name() else { return self.expected(name, "a name") };
            let range = counted.or_else(|| self.names.loops.get(&binding.as_var()?.id()).cloned());
            let Some((min, extent)) = range else {
                let d = Diagnostic::error("tir", binding.span(), "T.axis.remap takes loop variables");
                return self.report(d.help("for anything else write T.axis.spatial(extent, value)"));
            };
            self.counts(&extent, binding.span())?;
            let dtype = if binding.dtype().bits < 32 { DType::I32 } else { binding.dtype() };
            let (min, extent, binding) = (min.cast(dtype), extent.cast(dtype), binding.cast(dtype));
            let var = Var::with_span(var_name, dtype, name.span);
            self.names.bind(var_name, Value::Prim(var.clone()));
            self.moves(&var, &extent);
            axes.push(BlockAxis { var, kind, min, extent, binding });
        }
        Some(axes)
    }

    /// Whether an axis may have that extent.
    fn counts(&mut self, extent: &PrimExpr, span: Span) -> Option<()> {
        let t = self.stated_type(extent);
        if t.is_signed() {
            return Some(());
        }
        self.error("type", span, format!("the extent of an axis is a signed integer, not {t}"))
    }

    /// Does this take other values than 0: a loop's variable with more than one round, or an axis?
    pub(super) fn runs(&self, e: &PrimExpr) -> bool {
        let mut found = false;
        e.walk(&mut |e| {
            let Some(v) = e.as_var() else { return };
            let range = self.names.loops.get(&v.id());
            found |= range.is_some_and(|(_, extent)| extent.as_int().is_some_and(|n| n > 1));
            found |= self.names.moving.contains(&v.id());
        });
        found
    }

    fn moves(&mut self, axis: &Var, extent: &PrimExpr) {
        if extent.as_int().is_some_and(|n| n > 1) {
            self.names.moving.insert(axis.id());
        }
    }

    /// What a block states to read or write: dims that are left out are whole.
    pub(super) fn accessed(&mut self, e: &Expr<'a>) -> Option<BufferRegion> {
        let named = e.as_name().is_some_and(|n| matches!(self.names.get(n), Some(Value::Region(_))));
        match e.kind {
            ExprKind::Subscript(..) => self.region(e),
            _ if named => self.region(e),
            _ => self.expected(e, "a region such as `x[i, 0:4]`"),
        }
    }

    /// `x[i, lo:hi]`, or a whole buffer.
    pub(super) fn region(&mut self, e: &Expr<'a>) -> Option<BufferRegion> {
        if let Some(Value::Region(r)) = e.as_name().and_then(|n| self.names.get(n)) {
            return Some(r.clone());
        }
        let ExprKind::Subscript(base, index) = &e.kind else {
            let buffer = self.buffer(e)?;
            let region = buffer.shape.iter().map(|d| (PrimExpr::int(d.dtype(), 0), d.clone())).collect();
            return Some(BufferRegion { buffer, region });
        };
        let buffer = self.buffer(base)?;
        let items = match &index.kind {
            ExprKind::Tuple(items) => items.iter().collect(),
            _ => vec![index.as_ref()],
        };
        if items.len() > buffer.ndim() {
            let message = format!("`{}` has {} dims, {} given", buffer.name, buffer.ndim(), items.len());
            return self.error("tir", index.span, message);
        }
        let mut region = vec![];
        for (k, i) in items.into_iter().enumerate() {
            region.push(match &i.kind {
                ExprKind::Slice(lo, hi, None) => {
                    let full = buffer.shape[k].clone();
                    let lo = match lo {
                        Some(lo) => self.prim(lo)?,
                        None => PrimExpr::int(full.dtype(), 0),
                    };
                    let hi = match hi {
                        Some(hi) => self.prim(hi)?,
                        None => full,
                    };
                    let extent = span_of(&lo, &hi);
                    (lo, extent)
                }
                _ => {
                    let p = self.prim(i)?;
                    let t = p.dtype();
                    (p, PrimExpr::int(t, 1))
                }
            });
        }
        let rest = buffer.shape[region.len()..].iter().map(|d| (PrimExpr::int(d.dtype(), 0), d.clone()));
        region.extend(rest);
        Some(BufferRegion { buffer, region })
    }
}

/// Without what changes nothing, which TVM folds as it reads: `i + 0`, `i * 1`, `i // 1`.
fn same(e: PrimExpr) -> PrimExpr {
    let PrimKind::Binary(op, a, b) = e.kind() else { return e };
    let kept = match op {
        BinOp::Add if b.is_int(0) => a,
        BinOp::Add if a.is_int(0) => b,
        BinOp::Sub if b.is_int(0) => a,
        BinOp::Mul if b.is_int(1) => a,
        BinOp::Mul if a.is_int(1) => b,
        BinOp::FloorDiv | BinOp::TruncDiv if b.is_int(1) => a,
        _ => return e,
    };
    same(kept.clone()).with_span(e.span())
}
