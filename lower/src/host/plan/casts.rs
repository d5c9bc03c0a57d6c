//! MatchCast over planned values: binds the shape variables that are new, checks the rest.

use super::*;
use relax_ir::analysis::relate;

impl Planner<'_> {
    /// Checks the value against `info` and returns it with what is known then.
    pub(super) fn match_cast(
        &mut self,
        v: HostValue,
        info: &StructInfo,
        scope: &mut Scope,
        what: &str,
        span: Span,
    ) -> Res<HostValue> {
        let refined = self.refined(v.clone(), info);
        if matches!((&v, &refined), (HostValue::Unranked(_), HostValue::Tensor(_))) {
            self.match_info(&v, info, scope, what, span)?;
        }
        self.match_info(&refined, info, scope, what, span)?;
        Ok(refined.settled(info))
    }

    /// Captured dims of functions against `want`; a cast in a branch that never holds is left to values of the runtime.
    pub(super) fn cast_of_function(
        &mut self,
        value: &Expr,
        want: &StructInfo,
        scope: &Scope,
        what: &str,
        span: Span,
    ) -> Res<()> {
        let Some(got) = self.typed.info_of(value) else { return Ok(()) };
        let fixed = |v: &Var| scope.dims.contains_key(v);
        let r = relate::captured(&got, want, "the function", &mut Facts::new(), &fixed);
        let never = r.refused.or_else(|| relate::relate(&got, want, "the value", &mut Facts::new()).refused);
        if let Some(why) = never {
            let why = format!("{what}: {why}");
            return Err(match self.steps.len() {
                1 => Diagnostic::error("match-cast", span, why).help("this cast can never succeed"),
                _ => Diagnostic::unsupported("match-cast", span, why),
            });
        }
        for (condition, why) in r.conditions {
            self.require(condition.substitute(&scope.dims), code::CHECK, format!("{what}: {why}"), span)?;
        }
        Ok(())
    }

    /// MatchCast: binds the shape variables of `info` that are new, checks the rest.
    pub fn match_info(
        &mut self,
        v: &HostValue,
        info: &StructInfo,
        scope: &mut Scope,
        what: &str,
        span: Span,
    ) -> Res<()> {
        let mut later = vec![];
        self.match_new(v, info, scope, what, span, &mut later)?;
        self.match_later(later, scope, span)
    }

    /// As [`Planner::match_cast`], with the dims that must agree left to [`Planner::match_later`].
    pub(super) fn match_parameter(
        &mut self,
        v: HostValue,
        info: &StructInfo,
        scope: &mut Scope,
        what: &str,
        span: Span,
        later: &mut Later,
    ) -> Res<HostValue> {
        let refined = self.refined(v.clone(), info);
        if matches!((&v, &refined), (HostValue::Unranked(_), HostValue::Tensor(_))) {
            self.match_new(&v, info, scope, what, span, later)?;
        }
        self.match_new(&refined, info, scope, what, span, later)?;
        Ok(refined)
    }

    /// Dims that must agree, once all variables are bound.
    pub(super) fn match_later(&mut self, later: Later, scope: &Scope, span: Span) -> Res<()> {
        for (actual, wanted, what) in later {
            let what = match self.infos.solved(&wanted) {
                Some(dim) => format!("{what}: {dim} has no solution"),
                None => what,
            };
            let wanted = self.dim(&wanted, scope);
            self.require(PrimExpr::raw_binary(BinOp::Eq, actual, wanted), code::CHECK, what, span)?;
        }
        Ok(())
    }

    pub(super) fn match_new(
        &mut self,
        v: &HostValue,
        info: &StructInfo,
        scope: &mut Scope,
        what: &str,
        span: Span,
        later: &mut Later,
    ) -> Res<()> {
        // What no call needs to reach fails where it runs, among values of the runtime.
        let branch = self.steps.len() > 1;
        let mismatch = |expected: &str| {
            let message = format!("{what}: the value is not {expected}");
            Err(match branch {
                true => Diagnostic::unsupported("match-cast", span, message),
                false => Diagnostic::error("match-cast", span, message),
            }
            .help("this cast can never succeed"))
        };
        match (info, v) {
            (StructInfo::Object, _) => Ok(()),
            (StructInfo::Tensor(t), HostValue::Tensor(x)) => {
                if t.dtype.is_some_and(|d| d != x.dtype) {
                    return mismatch(&format!("of dtype {}: it is {}", t.dtype.unwrap_or(x.dtype), x.dtype));
                }
                if t.ndim.is_some_and(|n| n != x.dims.len()) {
                    return mismatch(&format!("of rank {}: it is {}", t.ndim.unwrap_or(0), x.dims.len()));
                }
                if let Some(relax_ir::relax::TensorShape::Var(s)) = &t.shape {
                    if let Some(HostValue::Shape(values)) = scope.vars.get(s).cloned() {
                        for (i, (a, w)) in x.dims.iter().zip(values).enumerate() {
                            later.push((a.clone(), w, format!("{what}, dimension {i}")));
                        }
                    }
                }
                let dims = x.dims.clone();
                match_dims(&dims, t.known_dims(), &mut scope.dims, what, later);
                Ok(())
            }
            (StructInfo::Tensor(t), HostValue::Unranked(x)) => self.match_unranked(t, x, what, span),
            (StructInfo::Shape { values, ndim }, HostValue::Shape(x)) => {
                if ndim.is_some_and(|n| n != x.len()) {
                    return mismatch(&format!("a shape of {} values: it has {}", ndim.unwrap_or(0), x.len()));
                }
                match_dims(x, values.as_deref(), &mut scope.dims, what, later);
                Ok(())
            }
            (StructInfo::Prim { value, .. }, HostValue::Prim(x)) => {
                if let Some(w) = value {
                    match_dims(std::slice::from_ref(x), Some(std::slice::from_ref(w)), &mut scope.dims, what, later);
                }
                Ok(())
            }
            (StructInfo::Tuple(fields), HostValue::Tuple(xs)) if fields.len() == xs.len() => {
                for (i, (f, x)) in fields.iter().zip(xs).enumerate() {
                    self.match_new(x, f, scope, &format!("{what}, field {i}"), span, later)?;
                }
                Ok(())
            }
            (StructInfo::Func(_), HostValue::Func(..) | HostValue::Global(_)) => Ok(()),
            (StructInfo::Str, HostValue::Str(_)) | (StructInfo::DType, HostValue::DType) => Ok(()),
            (i, _) => mismatch(&relax_ir::printer::print_struct_info(i)),
        }
    }

    /// Rank and dtype of a parameter that was not known before.
    fn match_unranked(&mut self, t: &TensorInfo, x: &UnrankedValue, what: &str, span: Span) -> Res<()> {
        if t.dtype.or(x.dtype).is_none() && t.known_dims().is_some() {
            return Err(Diagnostic::unsupported("object", span, format!("{what}: dims of a tensor of any dtype")));
        }
        if let Some(n) = t.ndim {
            let wanted = PrimExpr::i64(n as i64);
            let condition = PrimExpr::raw_binary(BinOp::Eq, x.ndim.clone(), wanted);
            self.require(condition, code::RANK, format!("{what}, number of dims"), span)?;
        }
        match (t.dtype, x.dtype) {
            (Some(d), None) => {
                let wanted = PrimExpr::i64(super::super::check_tensor::dtype_word(d) as i64);
                let condition = PrimExpr::raw_binary(BinOp::Eq, x.dtype_word.clone(), wanted);
                self.require(condition, code::DTYPE, format!("{what}, dtype"), span)
            }
            (Some(d), Some(e)) if d != e => {
                let message = format!("{what}: the value is of dtype {e}, never {d}");
                Err(match self.steps.len() {
                    1 => Diagnostic::error("match-cast", span, message),
                    _ => Diagnostic::unsupported("match-cast", span, message),
                })
            }
            _ => Ok(()),
        }
    }

    /// The value after a MatchCast to `info`: an unranked tensor gets its rank and dims.
    pub(super) fn refined(&mut self, v: HostValue, info: &StructInfo) -> HostValue {
        match (v, info) {
            (HostValue::Unranked(x), StructInfo::Tensor(t)) => {
                let (Some(rank), Some(dtype)) = (t.ndim, t.dtype.or(x.dtype)) else {
                    return HostValue::Unranked(UnrankedValue { dtype: t.dtype.or(x.dtype), ..x });
                };
                let mut dims = vec![];
                for axis in 0..rank {
                    let known = self.late.iter().find(|l| l.leaf == x.leaf && l.rank == rank && l.axis == axis);
                    let var = match known {
                        Some(l) => l.var.clone(),
                        None => {
                            let rank_of = x.ndim.as_var().map(|v| v.name().to_string()).unwrap_or_default();
                            let name = rank_of.strip_suffix("_ndim").unwrap_or("d").replace('.', "_");
                            let var = Var::dim(format!("{name}_d{axis}"));
                            self.late.push(LateDim { leaf: x.leaf, rank, axis, var: var.clone() });
                            var
                        }
                    };
                    dims.push(var.expr());
                }
                HostValue::Tensor(TensorValue { buf: x.buf, dims, dtype })
            }
            (HostValue::Tuple(xs), StructInfo::Tuple(fs)) if xs.len() == fs.len() => {
                HostValue::Tuple(xs.into_iter().zip(fs).map(|(x, f)| self.refined(x, f)).collect())
            }
            (v, _) => v,
        }
    }
}
