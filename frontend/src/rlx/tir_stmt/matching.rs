//! `T.match_buffer`: the tensor behind a handle, another name for a parameter, a region of a buffer.
//!
//! Source: TVM src/s_tir/transform/lower_match_buffer.cc, src/tirx/ir/stmt.cc (`MatchBufferRegion`).

use super::*;
use relax_ir::op::Answer;
use relax_ir::prim::BinOp;
use relax_ir::sym::Facts;

/// Where the statement mentions the buffer `name`, but for its shape and the like, and for the place `at`.
fn mention(s: &Stmt, name: &str, at: Span) -> Option<Span> {
    fn within(e: &Expr, name: &str, at: Span) -> Option<Span> {
        match &e.kind {
            ExprKind::Name(n) => (*n == name && e.span != at).then_some(e.span),
            ExprKind::Attribute(base, field) if base.as_name().is_some() && field.name != "data" => None,
            _ => e.children().into_iter().find_map(|c| within(c, name, at)),
        }
    }
    let any = |all: &[&Expr]| all.iter().find_map(|e| within(e, name, at));
    let list = |all: &[Stmt]| all.iter().find_map(|s| mention(s, name, at));
    match &s.kind {
        StmtKind::Expr(e) => any(&[e]),
        StmtKind::Assign { target, value, .. } => any(&[target]).or_else(|| any(&[value.as_ref()?])),
        StmtKind::Augment { target, value } => any(&[target, value]),
        StmtKind::For { iter, body, .. } => any(&[iter]).or_else(|| list(body)),
        StmtKind::While { cond, body } => any(&[cond]).or_else(|| list(body)),
        StmtKind::If { cond, then, otherwise } => any(&[cond]).or_else(|| list(then)).or_else(|| list(otherwise)),
        StmtKind::With { items, body } => items.iter().find_map(|(e, _)| any(&[e])).or_else(|| list(body)),
        StmtKind::Return(Some(e)) | StmtKind::Assert(e, _) => any(&[e]),
        _ => None,
    }
}

impl<'a> Cx<'a> {
    pub(super) fn match_buffer(
        &mut self,
        name: &'a str,
        call: &CallExpr<'a>,
        span: Span,
        f: &mut PrimCx,
        block: &mut Option<BlockParts>,
        place: Place,
    ) -> Option<Vec<Item>> {
        let Some(source) = call.arg(0, "param") else {
            return self.error("argument", span, "T.match_buffer takes a handle or a region, then a shape");
        };
        if let Some(Value::Handle(i, _)) = source.as_name().and_then(|n| self.names.get(n)) {
            let i = *i;
            // Strides and offset may be new variables.
            let births = std::mem::replace(&mut self.names.births, super::super::context::Births::Signature);
            let buffer = self.buffer_type(name, call, 1, "global", span);
            self.note_offset(call, 1);
            self.names.births = births;
            let buffer = buffer?;
            self.parameter_offset(call, 1, &buffer)?;
            self.parameter_strides(call, 1, &buffer)?;
            self.names.bind(name, Value::Buffer(buffer.clone()));
            let handle = source.as_name().map(str::to_string);
            match f.params.get_mut(i) {
                Some(slot @ None) => *slot = Some(PrimParam::Buffer { buffer, handle }),
                _ => return self.error("tir", source.span, "this handle is matched twice"),
            }
            return Some(vec![]);
        }
        if source.as_name().is_some_and(|n| matches!(self.names.get(n), Some(Value::Buffer(_)))) {
            let outside = block.is_none() && place == Place::Body;
            f.renamed.extend(source.as_name().map(|n| (n.to_string(), source.span)));
            return self.match_whole(name, source, call, outside, span, f);
        }
        let source = self.region(source)?;
        let births = std::mem::replace(&mut self.names.births, super::super::context::Births::Signature);
        let buffer = self.buffer_type(name, call, 1, "global", span);
        self.names.births = births;
        let buffer = buffer?;
        let anywhere = ["elem_offset", "offset_factor"].iter().any(|a| buffer_argument(call, 1, a).is_some());
        let elsewhere = |p: &PrimExpr| p.as_int().is_some_and(|v| v != 0) || self.runs(p);
        if !anywhere && source.region.iter().any(|(min, _)| elsewhere(min)) {
            let d = Diagnostic::error("tir", span, "the region does not begin where its buffer does");
            return self.report(d.help("state offset_factor=1"));
        }
        let (from, to) = (source.buffer.dtype(), buffer.dtype());
        if from != to {
            return self.error("type", span, format!("the region is of {from}, the buffer of {to}"));
        }
        if source.region.len() < buffer.ndim() {
            let message = format!("the region has {} dims, the buffer {}", source.region.len(), buffer.ndim());
            return self.error("tir", span, message);
        }
        self.region_fits(&source, &buffer, span)?;
        let strides = self.region_strides(&source, &buffer, span)?;
        let begin = self.begin_of(&source);
        if let Some(factor) = buffer_argument(call, 1, "offset_factor") {
            let (at, factor) = (factor.span, self.int(factor)?);
            self.whole_steps(&begin, factor, block, at)?;
        }
        self.names.regions.insert(buffer.id(), begin.clone());
        let offset = buffer_argument(call, 1, "elem_offset").and_then(|o| o.as_name());
        let offset = offset.and_then(|n| self.names.dims.get(n)).cloned();
        let b = self.parts(block, place, "T.match_buffer of a region", span)?;
        b.values.extend(offset.map(|v| (v.clone(), begin.cast(v.dtype()))));
        b.values.extend(strides);
        b.match_buffers.push(MatchBufferRegion { buffer: buffer.clone(), source });
        self.names.bind(name, Value::Buffer(buffer));
        Some(vec![])
    }

    /// A buffer of fewer dims takes one element of the others; its own dims are those of the region.
    fn region_fits(&mut self, source: &BufferRegion, buffer: &Buffer, span: Span) -> Option<()> {
        let mut facts = Facts::new();
        let mut same = |a: &PrimExpr, b: &PrimExpr| facts.equal(&widened(a), &widened(b)) == Answer::Yes;
        let skip = source.region.len() - buffer.ndim();
        for (k, (_, extent)) in source.region.iter().enumerate() {
            let Some(dim) = k.checked_sub(skip).map(|k| &buffer.shape[k]) else {
                if !same(extent, &PrimExpr::i64(1)) {
                    let message = format!("dim {k} of the region has more than one element, the buffer lacks the dim");
                    return self.error("tir", span, message);
                }
                continue;
            };
            if dim.as_var().is_none() && !same(extent, dim) {
                return self.error("tir", span, format!("dim {k} of the region is not that of the buffer"));
            }
        }
        Some(())
    }

    /// The variables among the strides of a region's buffer, which are those of the buffer around; numbers must be these.
    fn region_strides(&mut self, source: &BufferRegion, buffer: &Buffer, span: Span) -> Option<HashMap<Var, PrimExpr>> {
        let around = &source.buffer;
        let mut values: HashMap<Var, PrimExpr> = HashMap::new();
        let mut facts = Facts::new();
        let mut dense = PrimExpr::i64(1);
        for (d, dim) in around.shape.iter().enumerate().rev() {
            let actual = around.strides.get(d).map_or_else(|| dense.clone(), |s| s.clone().cast(DType::I64));
            dense = PrimExpr::binary(BinOp::Mul, dense, dim.clone().cast(DType::I64));
            let own =
                (d + buffer.ndim()).checked_sub(around.ndim()).and_then(|k| buffer.strides.get(k).map(|s| (k, s)));
            let Some((k, stated)) = own else { continue };
            match stated.as_var().filter(|v| !values.contains_key(v)) {
                Some(v) => drop(values.insert(v.clone(), actual.cast(v.dtype()))),
                None => {
                    let stated = widened(&stated.substitute(&values));
                    if facts.equal(&stated, &widened(&actual)) != Answer::Yes {
                        let message = format!("stride {k} of the buffer is not that of the region");
                        let d = Diagnostic::error("tir", span, message);
                        return self.report(d.help("drop the strides, or let variables stand for them"));
                    }
                }
            }
        }
        Some(values)
    }

    /// The region begins at a multiple of `factor`, as far as its place is counted by loops alone.
    fn whole_steps(&mut self, begin: &PrimExpr, factor: i64, block: &Option<BlockParts>, span: Span) -> Option<()> {
        let axes = block.iter().flat_map(|b| &b.axes).map(|a| (a.var.clone(), a.binding.clone().cast(a.var.dtype())));
        let begin = widened(&begin.substitute(&axes.collect()));
        let counted = begin.vars().iter().all(|v| self.names.loops.contains_key(&v.id()));
        let divisor = Facts::new().divisor(&begin);
        if factor > 1 && counted && !begin.is_int(0) && divisor % factor != 0 {
            let message = format!("the region does not begin at a multiple of {factor} elements");
            return self.report(Diagnostic::error("tir", span, message).help("state offset_factor=1"));
        }
        Some(())
    }

    /// `V = T.match_buffer(A, shape)` of a parameter that is a buffer: another name for it.
    pub(super) fn match_whole(
        &mut self,
        name: &'a str,
        source: &Expr<'a>,
        call: &CallExpr<'a>,
        outside: bool,
        span: Span,
        f: &PrimCx,
    ) -> Option<Vec<Item>> {
        let buffer = self.buffer(source)?;
        let parameter = f.params.iter().flatten().filter_map(PrimParam::buffer).any(|b| *b == buffer);
        if !outside || !parameter {
            let d =
                Diagnostic::error("tir", span, "T.match_buffer of a whole buffer is for parameters, outside of blocks");
            return self.report(d.help(format!("a region of it has indices: {}[..]", buffer.name)));
        }
        let stated = self.buffer_type(name, call, 1, "global", span)?;
        let same = |(a, b): (&PrimExpr, &PrimExpr)| a == b || a.as_int().is_some() && a.as_int() == b.as_int();
        let shape = stated.ndim() == buffer.ndim() && stated.shape.iter().zip(&buffer.shape).all(same);
        if !shape || stated.dtype() != buffer.dtype() || stated.strides != buffer.strides {
            let d = Diagnostic::error("tir", span, format!("`{}` has another shape or dtype", buffer.name));
            return self.report(d.help("a view of it: T.decl_buffer(shape, dtype, data=A.data)"));
        }
        self.names.bind(name, Value::Buffer(buffer));
        Some(vec![])
    }

    /// A buffer that `T.match_buffer` gives another name, at `at`, is not called by its own one any more, nor before.
    pub fn has_one_name(&mut self, name: &str, body: &[Stmt<'a>], at: Span) -> Option<()> {
        let Some(again) = body.iter().find_map(|s| mention(s, name, at)) else { return Some(()) };
        let d = Diagnostic::error("tir", again, format!("`{name}` has another name in this PrimFunc"));
        self.report(d.label(at, "by this T.match_buffer").help("write the new name everywhere, or drop it"))
    }
}

/// The same in int64: what the prover knows of sums and products in other types is less.
pub(super) fn widened(e: &PrimExpr) -> PrimExpr {
    match e.kind() {
        PrimKind::Binary(op @ (BinOp::Add | BinOp::Sub | BinOp::Mul), a, b) => {
            PrimExpr::binary(*op, widened(a), widened(b))
        }
        PrimKind::Cast(inner) if inner.dtype().is_int() => widened(inner),
        _ => e.clone().cast(DType::I64),
    }
}
