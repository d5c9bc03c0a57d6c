//! Loops of PrimFuncs: ranges, grids, thread bindings.

use super::*;

impl<'a> Cx<'a> {
    /// `extent` or `(lo, hi)` as `(min, extent)` of one type.
    pub(super) fn range(&mut self, e: &Expr<'a>) -> Option<(PrimExpr, PrimExpr)> {
        if let Some(items) = e.elements() {
            let [lo, hi] = items else {
                return self.error("argument", e.span, "a range is an extent or `(begin, end)`");
            };
            return self.bounds(lo, hi, e.span);
        }
        let extent = self.prim(e)?;
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

    pub(super) fn bounds(&mut self, lo: &Expr<'a>, hi: &Expr<'a>, span: Span) -> Option<(PrimExpr, PrimExpr)> {
        let (lo, hi) = (self.num(lo), self.num(hi));
        let (lo, hi) = self.matched(lo?, hi?, span)?;
        if !lo.dtype().is_int() {
            return self.error("type", span, "the bounds must be integers");
        }
        let extent = span_of(&lo, &hi);
        Some((lo, extent))
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
            Some(items) => items.iter().collect(),
            None => vec![target],
        };
        self.names.push();
        let header = self.loop_header(&names, iter);
        if header.is_none() {
            for n in names.iter().filter_map(|n| n.as_name()) {
                self.names.bind(n, Value::Poison);
            }
        }
        let body = self.nested(body, f);
        self.names.pop();
        let mut stmt = body;
        for (var, min, extent, kind, annotations) in header?.into_iter().rev() {
            stmt = TStmt::at(TKind::For { var, min, extent, kind, annotations, body: stmt }, span);
        }
        Some(stmt)
    }

    #[allow(clippy::type_complexity)]
    pub(super) fn loop_header(
        &mut self,
        names: &[&Expr<'a>],
        iter: &Expr<'a>,
    ) -> Option<Vec<(Var, PrimExpr, PrimExpr, ForKind, Vec<(String, AttrValue)>)>> {
        let (Some(what), Some(call)) = (iter.called(), iter.as_call()) else {
            return self.expected(iter, "a range such as T.grid(..) or range(..)");
        };
        let kind = match what.as_str() {
            "T.grid" => {
                let ranges = self.ranges(&call.args)?;
                let one = names.len() == 1;
                if ranges.len() != names.len() && !one {
                    let message = format!("{} loop variables for {} extents", names.len(), ranges.len());
                    return self.error("tir", iter.span, message);
                }
                if ranges.len() > MAX_GRID {
                    return self.error("nesting", iter.span, format!("a grid has at most {MAX_GRID} loops"));
                }
                let mut out = vec![];
                for (i, (min, extent)) in ranges.into_iter().enumerate() {
                    let n = names[if one { 0 } else { i }];
                    let Some(name) = n.as_name() else { return self.expected(n, "a name") };
                    let var = self.loop_var(name, n.span, &min, &extent);
                    out.push((var, min, extent, ForKind::Serial, vec![]));
                }
                if let Some(name) = names.first().and_then(|n| n.as_name()).filter(|_| one) {
                    self.bind_several(name, out.iter().map(|(v, ..)| v.clone()).collect());
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
                ForKind::ThreadBinding(self.string(t)?)
            }
            _ => {
                let d =
                    Diagnostic::unsupported("tir", call.func.span, format!("loops over `{what}` are not supported"));
                return self.report(d.help("write T.grid, range, T.serial, T.parallel, T.vectorized or T.unroll"));
            }
        };
        let [name] = names else {
            return self.error("tir", iter.span, format!("{what} has one loop variable"));
        };
        let Some(var_name) = name.as_name() else { return self.expected(name, "a name") };
        let args: Vec<&Expr<'a>> = call.args.iter().filter(|a| a.as_str().is_none()).collect();
        let (min, extent) = match (args.as_slice(), call.keyword("start"), call.keyword("stop")) {
            ([extent], None, None) => self.range(extent)?,
            ([lo, hi], None, None) => self.bounds(lo, hi, iter.span)?,
            ([], Some(lo), Some(hi)) => self.bounds(lo, hi, iter.span)?,
            ([], None, None) => match call.keyword("extent") {
                Some(e) => self.range(e)?,
                None => return self.error("argument", iter.span, "the loop has no extent"),
            },
            _ => return self.unsupported("tir", iter.span, "loops with a step are not supported"),
        };
        let annotations = match call.keyword("annotations").filter(|a| !matches!(a.kind, ExprKind::None)) {
            Some(a) => self.dict(a)?,
            None => vec![],
        };
        let var = self.loop_var(var_name, name.span, &min, &extent);
        Some(vec![(var, min, extent, kind, annotations)])
    }

    /// `T.launch_thread("blockIdx.x", 4)`
    pub(super) fn thread(&mut self, call: &CallExpr<'a>, span: Span) -> Option<(String, PrimExpr)> {
        let [thread, extent] = call.args.as_slice() else {
            return self.error("argument", span, "T.launch_thread takes a name and an extent");
        };
        let (thread, extent) = (self.string(thread), self.prim(extent));
        Some((thread?, extent?))
    }
}
