//! Loops of PrimFuncs: ranges, grids, thread bindings.

use super::matching::widened;
use super::*;
use relax_ir::prim::BinOp;
use relax_ir::sym::Facts;

/// A loop without its body: variable, minimum, extent, kind, annotations.
type Header = (Var, PrimExpr, PrimExpr, ForKind, Vec<(String, AttrValue)>);

impl<'a> Cx<'a> {
    /// `extent` or `(lo, hi)` as `(min, extent)` of one type.
    pub(super) fn range(&mut self, e: &Expr<'a>) -> Option<(PrimExpr, PrimExpr)> {
        if let Some(items) = e.elements() {
            let [lo, hi] = items else {
                return self.error("argument", e.span, "a range is an extent or `(begin, end)`");
            };
            return self.bounds(lo, hi, false, e.span);
        }
        let extent = self.prim(e)?;
        if !extent.dtype().is_int() {
            return self.expected(e, "an integer");
        }
        Some((PrimExpr::int(extent.dtype(), 0), extent))
    }

    /// A bound of `range` and its kin, which are integers: TVM drops the fraction of a number, and `range` that of a number
    /// with a type.
    fn whole(&mut self, e: &Expr<'a>, typed: bool) -> Option<Num> {
        Some(match self.num(e)? {
            Num::Float(v, _) if v.is_finite() => Num::Int(v as i128),
            Num::Expr(n) => match n.as_float().filter(|v| typed && v.is_finite()) {
                Some(v) => Num::Int(v as i128),
                None => Num::Expr(n),
            },
            n => n,
        })
    }

    /// `range(extent)`
    fn up_to(&mut self, e: &Expr<'a>, typed: bool) -> Option<(PrimExpr, PrimExpr)> {
        let extent = self.whole(e, typed)?;
        let extent = self.settle(extent).with_span(e.span);
        if !extent.dtype().is_int() {
            return self.expected(e, "an integer");
        }
        Some((PrimExpr::int(extent.dtype(), 0), extent))
    }

    /// The extents of a grid; `*x.shape` gives one for each dim.
    fn ranges(&mut self, extents: &[Expr<'a>]) -> Option<Vec<(PrimExpr, PrimExpr)>> {
        let mut out = vec![];
        for e in extents {
            match &e.kind {
                ExprKind::Starred(value) => {
                    let dims = self.spread(value, e.span)?;
                    out.extend(dims.into_iter().map(|d| (PrimExpr::int(d.dtype(), 0), d)));
                }
                _ => out.push(self.range(e)?),
            }
        }
        Some(out)
    }

    fn bounds(&mut self, lo: &Expr<'a>, hi: &Expr<'a>, typed: bool, span: Span) -> Option<(PrimExpr, PrimExpr)> {
        let (lo, hi) = (self.whole(lo, typed), self.whole(hi, typed));
        let (lo, hi) = self.matched(lo?, hi?, span)?;
        if !lo.dtype().is_int() {
            return self.error("type", span, "the bounds must be integers");
        }
        let extent = span_of(&lo, &hi);
        Some((lo, extent))
    }

    /// `T.Range(begin, end).min` and `.extent`; `None` for others.
    pub fn range_field(&mut self, of: &Expr<'a>, field: &str) -> Option<Option<PrimExpr>> {
        let call = of.as_call().filter(|_| of.called().as_deref() == Some("T.Range"))?;
        let range = match call.args.as_slice() {
            [extent] => self.up_to(extent, false),
            [lo, hi] => self.bounds(lo, hi, false, of.span),
            _ => self.error("argument", of.span, "T.Range takes a begin and an end"),
        };
        match field {
            "min" => Some(range.map(|(min, _)| min)),
            "extent" => Some(range.map(|(_, extent)| extent)),
            _ => None,
        }
    }

    pub(super) fn loop_var(&mut self, name: &'a str, span: Span, min: &PrimExpr, extent: &PrimExpr) -> Var {
        let var = Var::with_span(name, extent.dtype(), span);
        self.names.bind(name, Value::Prim(var.clone()));
        self.names.loops.insert(var.id(), (min.clone(), extent.clone()));
        var
    }

    pub(super) fn for_loop(
        &mut self,
        target: &Expr<'a>,
        iter: &Expr<'a>,
        body: &[Stmt<'a>],
        span: Span,
        f: &mut PrimCx,
    ) -> Option<TStmt> {
        let names: Vec<&Expr<'a>> = match target.elements() {
            Some([one]) if !matches!(one.kind, ExprKind::Starred(_)) => {
                let d = Diagnostic::error("tir", target.span, "a loop variable is an integer, it does not unpack");
                return self.report(d.help("write it without a comma"));
            }
            Some(items) => items.iter().collect(),
            None => vec![target],
        };
        let all: Vec<&str> = names.iter().filter_map(|n| n.as_name()).collect();
        if let Some(k) = (1..all.len()).find(|k| all[..*k].contains(&all[*k])) {
            return self.error("tir", target.span, format!("two loop variables are called `{}`", all[k]));
        }
        self.names.push();
        let header = self.loop_header(&names, iter);
        if header.is_none() {
            for n in names.iter().filter_map(|n| n.as_name()) {
                self.names.bind(n, Value::Poison);
            }
        }
        f.jumps.push(Jumps::default());
        let outside = f.loops.len();
        if let Some(header) = &header {
            f.loops.extend(header.iter().map(|(_, _, extent, kind, _)| (kind.clone(), extent.is_int(1))));
        }
        let nests = self.nested_loops(&f.loops, outside, iter.span);
        // The loop's variables and its body are names of one scope.
        let body = TStmt::seq(self.tir_list(body, f, &mut None, Place::Nested));
        f.loops.truncate(outside);
        let jumps = f.jumps.pop().unwrap_or_default();
        self.names.pop();
        nests?;
        let mut stmt = jumps.body(body);
        for (i, (var, min, extent, kind, annotations)) in header?.into_iter().rev().enumerate() {
            if i == 0 {
                self.with_jumps(&jumps, &kind, span)?;
            }
            stmt = TStmt::at(TKind::For { var, min, extent, kind, annotations, body: stmt }, span);
            if i == 0 {
                stmt = jumps.around(stmt);
            }
        }
        Some(stmt)
    }

    /// Loops whose rounds run side by side do not nest; those of one round are none.
    ///
    /// Source: TVM src/target/llvm/codegen_cpu.cc, src/tirx/transform/vectorize_loop.cc.
    fn nested_loops(&mut self, loops: &[(ForKind, bool)], inner: usize, span: Span) -> Option<()> {
        for (k, (kind, single)) in loops.iter().enumerate().skip(inner) {
            let twice = matches!(kind, ForKind::Parallel | ForKind::Vectorized)
                && loops[..k].iter().any(|(outer, one)| outer == kind && !one);
            if twice && !single {
                let what = if *kind == ForKind::Parallel { "parallel" } else { "vectorised" };
                let d = Diagnostic::error("tir", span, format!("this {what} loop stands in another one"));
                return self.report(d.help("make one of them serial, or both one loop"));
            }
        }
        Some(())
    }

    pub(super) fn loop_header(&mut self, names: &[&Expr<'a>], iter: &Expr<'a>) -> Option<Vec<Header>> {
        let (Some(what), Some(call)) = (iter.called(), iter.as_call()) else {
            return self.expected(iter, "a range such as T.grid(..) or range(..)");
        };
        let kind = match what.as_str() {
            "T.grid" => {
                let ranges = self.ranges(&call.args)?;
                // The name that takes several: `x` alone, or `*x`.
                let star = names.iter().position(|n| matches!(n.kind, ExprKind::Starred(_)));
                let several = if names.len() == 1 { Some(0) } else { star };
                let fits = match several {
                    Some(_) => ranges.len() + 1 >= names.len(),
                    None => ranges.len() == names.len(),
                };
                if !fits {
                    let message = format!("{} loop variables for {} extents", names.len(), ranges.len());
                    return self.error("tir", iter.span, message);
                }
                let many = several.map_or(0..0, |s| s..s + ranges.len() + 1 - names.len());
                if ranges.len() > MAX_GRID {
                    return self.error("nesting", iter.span, format!("a grid has at most {MAX_GRID} loops"));
                }
                let mut out = vec![];
                for (i, (min, extent)) in ranges.into_iter().enumerate() {
                    let n = names[match several {
                        Some(s) if many.contains(&i) => s,
                        Some(_) if i >= many.end => i + 1 - many.len(),
                        _ => i,
                    }];
                    let n = if let ExprKind::Starred(n) = &n.kind { n } else { n };
                    let Some(name) = n.as_name() else { return self.expected(n, "a name") };
                    let var = self.loop_var(name, n.span, &min, &extent);
                    out.push((var, min, extent, ForKind::Serial, vec![]));
                }
                if let Some(n) = several.map(|s| names[s]) {
                    let n = if let ExprKind::Starred(n) = &n.kind { n } else { n };
                    if let Some(name) = n.as_name() {
                        self.bind_several(name, out[many].iter().map(|(v, ..)| v.clone()).collect());
                    }
                }
                return Some(out);
            }
            "range" | "T.serial" => ForKind::Serial,
            "T.parallel" => ForKind::Parallel,
            "T.vectorized" => ForKind::Vectorized,
            "T.unroll" => ForKind::Unrolled,
            "T.thread_binding" => {
                let Some(t) = call.keyword("thread").or(call.args.last().filter(|a| a.as_str().is_some())) else {
                    return self.error("argument", iter.span, "T.thread_binding needs thread=\"..\"");
                };
                let thread = self.string(t)?;
                self.virtual_thread(&thread, t.span)?;
                ForKind::ThreadBinding(thread)
            }
            _ => {
                let d =
                    Diagnostic::unsupported("tir", call.func.span, format!("loops over `{what}` are not supported"));
                return self.report(d.help("write T.grid, range, T.serial, T.parallel, T.vectorized or T.unroll"));
            }
        };
        let known: &[&str] = match kind {
            ForKind::ThreadBinding(_) => &["start", "stop", "extent", "thread", "annotations"],
            _ => &["start", "stop", "extent", "annotations", "step", "unroll", "dtype"],
        };
        if let Some((k, _)) = call.keywords.iter().find(|(k, _)| !known.contains(&k.name)) {
            return self.error("argument", k.span, format!("{what} has no argument `{}`", k.name));
        }
        let [name] = names else {
            return self.error("tir", iter.span, format!("{what} has one loop variable"));
        };
        let Some(var_name) = name.as_name() else { return self.expected(name, "a name") };
        let args: Vec<&Expr<'a>> = call.args.iter().filter(|a| a.as_str().is_none()).collect();
        let typed = what == "range";
        let (min, extent) = match (args.as_slice(), call.keyword("start"), call.keyword("stop")) {
            ([extent], None, None) => self.up_to(extent, typed)?,
            ([lo, hi] | [lo, hi, _], None, None) => self.bounds(lo, hi, typed, iter.span)?,
            ([lo], None, Some(hi)) => self.bounds(lo, hi, typed, iter.span)?,
            ([], Some(lo), Some(hi)) => self.bounds(lo, hi, typed, iter.span)?,
            ([], None, None) => match call.keyword("extent") {
                Some(e) => self.up_to(e, typed)?,
                None => return self.error("argument", iter.span, "the loop has no extent"),
            },
            _ => {
                return self.error(
                    "argument",
                    iter.span,
                    format!("{what} takes an extent, or a begin and an end, and a step"),
                )
            }
        };
        let mut open = false;
        extent.walk(&mut |e| open |= matches!(e.kind(), PrimKind::Var(_) | PrimKind::BufferLoad(..)));
        if open && kind == ForKind::Vectorized {
            return self.error("tir", iter.span, "the extent of a vectorised loop is a number");
        }
        if open && kind == ForKind::Unrolled && self.is_open(&extent) {
            let d = Diagnostic::error("tir", iter.span, "the extent of an unrolled loop is a number");
            return self.report(d.help("write T.serial: it is unrolled where that helps"));
        }
        let annotations = match call.keyword("annotations").filter(|a| !matches!(a.kind, ExprKind::None)) {
            Some(a) => self.dict(a)?,
            None => vec![],
        };
        let step = match args.get(2).copied().or(call.keyword("step")).filter(|s| !matches!(s.kind, ExprKind::None)) {
            Some(s) => Some((self.step(s, extent.dtype())?, s.span)),
            None => None,
        };
        if let Some((step, _)) = step.filter(|(s, _)| !s.is_int(1)) {
            return Some(vec![self.stepped(var_name, name.span, min, extent, step, kind, annotations)]);
        }
        let var = self.loop_var(var_name, name.span, &min, &extent);
        Some(vec![(var, min, extent, kind, annotations)])
    }

    /// Is this no number whatever loops count? Of sums and products alone: what else may be one is not looked into.
    ///
    /// Source: TVM's loop unroller, "Cannot unroll non-constant loop".
    fn is_open(&self, extent: &PrimExpr) -> bool {
        let extent = extent.substitute(&self.names.lets);
        let mut plain = true;
        extent.walk(&mut |e| {
            plain &= match e.kind() {
                PrimKind::Binary(op, ..) => !matches!(op, BinOp::Min | BinOp::Max),
                PrimKind::Var(_) | PrimKind::Int(_) | PrimKind::Cast(_) | PrimKind::BufferLoad(..) => true,
                _ => false,
            }
        });
        let (lo, hi) = Facts::new().interval(&widened(&extent));
        plain && (lo.is_none() || lo != hi)
    }

    fn step(&mut self, e: &Expr<'a>, dtype: DType) -> Option<PrimExpr> {
        let step = self.prim_as(e, dtype)?;
        if step.as_int().is_some_and(|v| v <= 0) {
            return self.error("argument", e.span, "the step of a loop must be positive");
        }
        Some(step)
    }

    /// A loop with a step counts its rounds; its variable is computed from them.
    #[allow(clippy::too_many_arguments)]
    fn stepped(
        &mut self,
        name: &'a str,
        span: Span,
        min: PrimExpr,
        extent: PrimExpr,
        step: PrimExpr,
        kind: ForKind,
        annotations: Vec<(String, AttrValue)>,
    ) -> Header {
        let t = extent.dtype();
        let less = PrimExpr::binary(BinOp::Sub, step.clone(), PrimExpr::int(t, 1));
        let rounds =
            PrimExpr::binary(BinOp::FloorDiv, PrimExpr::binary(BinOp::Add, extent.clone(), less), step.clone());
        let var = Var::with_span(name, t, span);
        let value = PrimExpr::binary(BinOp::Add, min.clone(), PrimExpr::binary(BinOp::Mul, var.expr(), step));
        self.names.loops.insert(var.id(), (min.clone(), extent.clone()));
        self.names.bind(name, Value::Counted { value, min, extent });
        (var, PrimExpr::int(t, 0), rounds, kind, annotations)
    }

    /// `T.launch_thread("blockIdx.x", 4)`
    pub(super) fn thread(&mut self, call: &CallExpr<'a>, span: Span) -> Option<(String, PrimExpr)> {
        let [thread, extent] = call.args.as_slice() else {
            return self.error("argument", span, "T.launch_thread takes a name and an extent");
        };
        let (name, extent) = (self.string(thread)?, self.prim(extent)?);
        self.virtual_thread(&name, thread.span)?;
        Some((name, extent))
    }

    /// Threads of a GPU are none of a processor's; virtual ones are loops.
    ///
    /// Source: TVM src/target/llvm/codegen_cpu.cc: no code for `thread_extent`.
    fn virtual_thread(&mut self, thread: &str, span: Span) -> Option<()> {
        if thread.starts_with("vthread") {
            return Some(());
        }
        let d = Diagnostic::error("tir", span, format!("a processor has no `{thread}`"));
        self.report(d.help("write a serial or a parallel loop"))
    }
}
