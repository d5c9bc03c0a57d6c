//! Names for parts of buffers (`r = A[0:4]`) and for whole ones, and what Python knows of buffers as texts.

use super::pointers::reads;
use super::views::flat;
use super::*;
use relax_ir::prim::BinOp;

impl<'a> Cx<'a> {
    /// `B = T.Buffer(shape, dtype)` among statements: attributes of blocks name it, no access does.
    pub(super) fn described(&mut self, name: &'a str, call: &CallExpr<'a>, span: Span) -> Option<Vec<Item>> {
        if let Some(data) = buffer_argument(call, 0, "data") {
            match self.pointer(data) {
                Some(of) => of?,
                None => return self.expected(data, "the memory of a buffer, `A.data`,"),
            };
        }
        if let Some(offset) = buffer_argument(call, 0, "elem_offset").filter(|o| o.as_name().is_some()) {
            self.prim(offset)?;
        }
        let buffer = self.buffer_type(name, call, 0, "global", span)?;
        self.names.bind(name, Value::Described(buffer));
        Some(vec![])
    }

    /// The part of a buffer that `A[0:4]`, or a name for it, is; `None` for other expressions.
    pub fn part_of(&mut self, e: &Expr<'a>) -> Option<Option<BufferRegion>> {
        if let Some(Value::Region(r)) = e.as_name().and_then(|n| self.names.get(n)) {
            return Some(Some(r.clone()));
        }
        let ExprKind::Subscript(base, index) = &e.kind else { return None };
        let Some(Value::Buffer(buffer)) = self.names.get(base.as_name()?) else { return None };
        let items = index.elements().unwrap_or(std::slice::from_ref(&**index));
        let starred = items.iter().any(|i| matches!(i.kind, ExprKind::Starred(_)));
        let slice = items.iter().any(|i| matches!(i.kind, ExprKind::Slice(..)));
        if !starred && (slice || items.len() < buffer.ndim() - usize::from(self.vector_lanes(buffer).is_some())) {
            return Some(self.region(e));
        }
        None
    }

    /// The number of the region's first element in the memory of its buffer, int32 where the dims are known.
    pub(super) fn begin_of(&self, region: &BufferRegion) -> PrimExpr {
        let buffer = &region.buffer;
        let mins: Vec<PrimExpr> = region.region.iter().map(|(min, _)| min.clone()).collect();
        let mut begin = flat(buffer, &mins);
        if let Some(outer) = self.names.regions.get(&buffer.id()) {
            begin = PrimExpr::binary(BinOp::Add, outer.clone().cast(DType::I64), begin);
        }
        match buffer.shape.iter().all(|d| d.as_int().is_some()) {
            true => begin.cast(DType::I32),
            false => begin,
        }
    }

    /// `A[0:4][i]`, `r[i]`: an element of the part; `None` where `base` is none.
    pub fn element_of_part(&mut self, base: &Expr<'a>, index: &Expr<'a>, span: Span) -> Option<Option<PrimExpr>> {
        let part = self.part_of(base)?;
        Some(part.and_then(|part| self.within(&part, index, span)))
    }

    fn within(&mut self, part: &BufferRegion, index: &Expr<'a>, span: Span) -> Option<PrimExpr> {
        let items = index.elements().unwrap_or(std::slice::from_ref(index));
        if items.len() < part.region.len() || items.iter().any(|i| matches!(i.kind, ExprKind::Slice(..))) {
            let d = Diagnostic::error("tir", index.span, "a part of a part of a buffer is no element");
            return self.report(d.help(format!("an element has {} indices", part.region.len())));
        }
        let indices = self.indices(&part.buffer, index)?;
        let lanes = indices.iter().map(|i| i.dtype().lanes).max().unwrap_or(1);
        let mut places = vec![];
        for (i, (min, _)) in indices.into_iter().zip(&part.region) {
            let (i, min) = self.matched(Num::Expr(i), Num::Expr(min.clone()), span)?;
            places.push(PrimExpr::binary(BinOp::Add, min, i));
        }
        let dtype = if lanes > 1 { part.buffer.dtype().with_lanes(lanes) } else { part.buffer.dtype() };
        Some(PrimExpr::raw_at(PrimKind::BufferLoad(part.buffer.clone(), places.into()), dtype, span))
    }

    /// `r = A[0:4]`, `B = A`: a name for what Python holds; `None` where the value is neither.
    pub(super) fn named_part(&mut self, name: &'a str, value: &Expr<'a>, f: &PrimCx) -> Option<Option<Vec<Item>>> {
        let found = match value.as_name().and_then(|n| self.names.get(n)) {
            // A buffer of one element stands for that.
            Some(Value::Buffer(b)) if b.ndim() == 0 || b.ndim() == 1 && b.shape[0].is_int(1) => return None,
            Some(Value::Buffer(b)) if self.vector_cell(b) => return None,
            Some(Value::Buffer(b)) => Value::Buffer(b.clone()),
            _ => match self.part_of(value)? {
                Some(part) => Value::Region(part),
                None => return Some(None),
            },
        };
        if let Value::Region(part) = &found {
            if part.region.iter().any(|(min, extent)| reads(min) || reads(extent)) {
                let message = "memory says where this part of a buffer lies";
                return Some(self.unsupported("tir", value.span, message));
            }
        }
        if f.mutable {
            let d = Diagnostic::unsupported("tir", value.span, format!("`{name}` is given another part of a buffer"));
            return Some(self.report(d.help("take another name")));
        }
        self.names.bind(name, found);
        Some(Some(vec![]))
    }

    /// A text that Python has: written down, `A.name` or `A.scope()`.
    pub fn text_of(&self, e: &Expr<'a>) -> Option<String> {
        if let Some(s) = e.as_str() {
            return Some(s.to_string());
        }
        let (field, called) = match &e.kind {
            ExprKind::Attribute(..) => (e, false),
            ExprKind::Call(c) if c.args.is_empty() && c.keywords.is_empty() => (&c.func, true),
            _ => return None,
        };
        let ExprKind::Attribute(base, field) = &field.kind else { return None };
        let Some(Value::Buffer(b)) = self.names.get(base.as_name()?) else { return None };
        match (field.name, called) {
            ("name", false) => Some(b.name.clone()),
            ("dtype", false) => Some(b.dtype().to_string()),
            ("scope", true) => Some(b.scope.clone()),
            _ => None,
        }
    }

    /// What Python decides while it reads: literals and comparisons of texts.
    pub fn decided(&self, e: &Expr<'a>) -> Option<bool> {
        match &e.kind {
            ExprKind::Bool(b) => Some(*b),
            ExprKind::Unary(UnaryOp::Not, a) => self.decided(a).map(|b| !b),
            ExprKind::Binary(BinaryOp::And, a, b) => Some(self.decided(a)? && self.decided(b)?),
            ExprKind::Binary(BinaryOp::Or, a, b) => Some(self.decided(a)? || self.decided(b)?),
            ExprKind::Binary(_, a, b) if [a, b].iter().all(|e| matches!(e.kind, ExprKind::List(_))) => {
                crate::rlx::python::truth(e)
            }
            ExprKind::Binary(_, a, b)
                if [a, b].iter().all(|e| matches!(e.kind, ExprKind::Int(_) | ExprKind::Unary(..))) =>
            {
                crate::rlx::python::truth(e)
            }
            ExprKind::Binary(BinaryOp::Eq, a, b) => Some(self.text_of(a)? == self.text_of(b)?),
            ExprKind::Binary(BinaryOp::Ne, a, b) => Some(self.text_of(a)? != self.text_of(b)?),
            _ => None,
        }
    }
}
