//! Pointers into buffers: `A.data`, `T.address_of(A[i])`, `A.access_ptr("r", offset=i)`, `T.tvm_access_ptr(..)` and names for
//! them. They are known while the text is read: a place in the memory of a buffer that is no view.
//!
//! Source: TVM python/tvm/tirx/buffer.py, src/tirx/ir/buffer.cc (`BufferAccessPtr`).

use super::matching::widened;
use super::views::{flat, wide};
use super::*;
use relax_ir::prim::BinOp;
use relax_ir::sym::Facts;

/// A place in the memory of a buffer.
#[derive(Clone, Debug)]
pub struct Pointer {
    /// No view.
    pub base: Buffer,
    /// Elements of `base` before the place, int64.
    pub at: PrimExpr,
    /// What it points to; `None` where that is not said.
    pub to: Option<DType>,
}

impl Pointer {
    pub fn begin(&self) -> bool {
        self.at.is_int(0)
    }
}

/// Does this read memory, which may be another value later?
pub fn reads(e: &PrimExpr) -> bool {
    let mut found = false;
    e.walk(&mut |e| found |= matches!(e.kind(), PrimKind::BufferLoad(..)));
    found
}

impl<'a> Cx<'a> {
    /// The pointer that an expression is; `None` where it is none.
    pub fn pointer(&mut self, e: &Expr<'a>) -> Option<Option<Pointer>> {
        if let Some(Value::Data(p)) = e.as_name().and_then(|n| self.names.get(n)) {
            return Some(Some(p.clone()));
        }
        if let ExprKind::Attribute(base, field) = &e.kind {
            return match (self.names.get(base.as_name()?), field.name) {
                (Some(Value::Buffer(b)), "data") => Some(Some(self.memory(b))),
                _ => None,
            };
        }
        let call = e.as_call()?;
        match call.func.dotted()?.as_str() {
            "T.address_of" => return Some(self.address(call, e.span)),
            "T.tvm_access_ptr" => return Some(self.stated_pointer(call, e.span)),
            "T.handle_add_byte_offset" => return Some(self.bytes_behind(call, e.span)),
            _ => {}
        }
        let ExprKind::Attribute(base, method) = &call.func.kind else { return None };
        let Some(Value::Buffer(buffer)) = self.names.get(base.as_name()?) else { return None };
        let buffer = buffer.clone();
        match method.name {
            "access_ptr" => Some(self.access_ptr(&buffer, call, e.span)),
            "ptr_to" => Some(match call.arg(0, "indices").filter(|i| i.elements().is_some()) {
                Some(indices) => self.place(&buffer, indices),
                None => self.error("argument", e.span, "ptr_to takes a list of indices"),
            }),
            _ => None,
        }
    }

    /// The memory of a buffer, which a view shares with another.
    pub fn memory(&self, b: &Buffer) -> Pointer {
        match self.names.views.iter().find(|v| v.buffer == *b) {
            Some(v) => Pointer { to: Some(b.dtype()), ..v.of.clone() },
            None => Pointer { base: b.clone(), at: wide(0), to: Some(b.dtype()) },
        }
    }

    /// `T.address_of(A[i])`, `T.address_of(A)`
    fn address(&mut self, call: &CallExpr<'a>, span: Span) -> Option<Pointer> {
        let Some(of) = call.arg(0, "obj") else {
            return self.error("argument", span, "T.address_of takes an element of a buffer");
        };
        match &of.kind {
            ExprKind::Subscript(base, index) => {
                let buffer = self.buffer(base)?;
                self.place(&buffer, index)
            }
            ExprKind::Name(_) => {
                let buffer = self.buffer(of)?;
                let offset = buffer.elem_offset.clone().map_or(wide(0), |o| o.cast(DType::I64));
                self.beyond(&buffer, offset, span)
            }
            _ => self.expected(of, "an element of a buffer"),
        }
    }

    fn place(&mut self, buffer: &Buffer, index: &Expr<'a>) -> Option<Pointer> {
        let indices = self.indices(buffer, index)?;
        if indices.iter().any(|i| i.dtype().lanes > 1) {
            return self.error("type", index.span, "a vector has no address: one element is needed here");
        }
        self.beyond(buffer, flat(buffer, &indices), index.span)
    }

    /// The place `elements` of the buffer behind the beginning of its memory.
    fn beyond(&mut self, buffer: &Buffer, elements: PrimExpr, span: Span) -> Option<Pointer> {
        let Pointer { base, at, .. } = self.memory(buffer);
        let bits = |t: DType| i64::from(t.bits) * i64::from(t.lanes);
        let (own, whole) = (bits(buffer.dtype()), bits(base.dtype()));
        let elements = match elements.as_int() {
            _ if own == whole => elements,
            Some(n) if own > 0 && whole > 0 && (n * own) % whole == 0 => wide(n * own / whole),
            _ if whole > 0 && own % whole == 0 => PrimExpr::binary(BinOp::Mul, elements, wide(own / whole)),
            _ => {
                let what = format!("this is no place of an element of `{}`, of {}", base.name, base.dtype());
                return self.unsupported("tir", span, what);
            }
        };
        Some(Pointer { base, at: PrimExpr::binary(BinOp::Add, at, elements), to: Some(buffer.dtype()) })
    }

    /// `A.access_ptr("rw", ptr_type, content_lanes, offset, extent)`
    fn access_ptr(&mut self, buffer: &Buffer, call: &CallExpr<'a>, span: Span) -> Option<Pointer> {
        let known = ["access_mask", "ptr_type", "content_lanes", "offset", "extent"];
        if let Some((k, _)) = call.keywords.iter().find(|(k, _)| !known.contains(&k.name)) {
            return self.error("argument", k.span, format!("access_ptr has no argument `{}`", k.name));
        }
        let Some(mask) = call.arg(0, "access_mask") else {
            return self.error("argument", span, "access_ptr says what is done there: \"r\", \"w\" or \"rw\"");
        };
        match self.text_of(mask) {
            Some(s) if s.chars().all(|c| matches!(c, 'r' | 'w')) => {}
            Some(s) => {
                let d = Diagnostic::error("argument", mask.span, format!("`{s}` is no kind of access"));
                return self.report(d.help("\"r\", \"w\" or \"rw\""));
            }
            None => {
                self.int(mask)?;
            }
        }
        let given = |n: usize| call.arg(n, known[n]).filter(|e| !matches!(e.kind, ExprKind::None));
        let to = match given(1) {
            Some(t) if self.text_of(t).as_deref() == Some("handle") => None,
            Some(t) => Some(self.dtype(t)?),
            None => None,
        };
        if let Some(lanes) = given(2) {
            if self.int(lanes)? != 1 {
                return self.unsupported("tir", lanes.span, "a pointer to vectors is not supported");
            }
        }
        let mut at = buffer.elem_offset.clone().map_or(wide(0), |o| o.cast(DType::I64));
        if let Some(offset) = given(3) {
            at = PrimExpr::binary(BinOp::Add, at, self.whole_number(offset)?.cast(DType::I64));
        }
        if let Some(extent) = given(4) {
            self.whole_number(extent)?;
        }
        Some(Pointer { to, ..self.beyond(buffer, at, span)? })
    }

    /// `T.tvm_access_ptr(T.type_annotation("float32"), A.data, offset, extent, rw_mask)`
    fn stated_pointer(&mut self, call: &CallExpr<'a>, span: Span) -> Option<Pointer> {
        let named = ["ptype", "data", "offset", "extent", "rw_mask"].iter().enumerate();
        let args: Vec<&Expr<'a>> = named.filter_map(|(i, n)| call.arg(i, n)).collect();
        let [of, data, offset, extent, mask] = args.as_slice() else {
            return self.error(
                "argument",
                span,
                "T.tvm_access_ptr takes a type, the memory of a buffer, an offset, an extent and a mask",
            );
        };
        let stated = match (of.called().as_deref(), of.as_call().and_then(|c| c.arg(0, "dtype"))) {
            (Some("T.type_annotation"), Some(t)) => self.dtype(t)?,
            _ => return self.expected(of, "T.type_annotation(..)"),
        };
        let Some(from) = self.pointer(data) else {
            return self.expected(data, "the memory of a buffer, `A.data`,");
        };
        let from = from?;
        let (offset, _, _) = (self.whole_number(offset)?, self.whole_number(extent)?, self.int(mask)?);
        if stated != from.base.dtype() {
            let message = format!("`{}` is of {}, the pointer to {stated}", from.base.name, from.base.dtype());
            return self.error("type", of.span, message);
        }
        let at = PrimExpr::binary(BinOp::Add, from.at, offset.cast(DType::I64));
        Some(Pointer { base: from.base, at, to: Some(stated) })
    }

    /// `T.handle_add_byte_offset(A.data, 8)`
    fn bytes_behind(&mut self, call: &CallExpr<'a>, span: Span) -> Option<Pointer> {
        let (Some(data), Some(bytes)) = (call.arg(0, "handle"), call.arg(1, "offset")) else {
            return self.error("argument", span, "T.handle_add_byte_offset takes a pointer and a number of bytes");
        };
        let Some(from) = self.pointer(data) else {
            return self.expected(data, "the memory of a buffer, `A.data`,");
        };
        let (from, bytes) = (from?, widened(&self.whole_number(bytes)?));
        let element = i64::from(from.base.dtype().bits / 8);
        if element == 0 || Facts::new().divisor(&bytes) % element != 0 {
            let what = format!("this is no place of an element of `{}`, of {}", from.base.name, from.base.dtype());
            return self.unsupported("tir", span, what);
        }
        let elements = PrimExpr::binary(BinOp::FloorDiv, bytes, wide(element));
        Some(Pointer { at: PrimExpr::binary(BinOp::Add, from.at, elements), to: None, ..from })
    }

    fn whole_number(&mut self, e: &Expr<'a>) -> Option<PrimExpr> {
        let p = self.prim(e)?;
        match p.dtype().is_int() && p.dtype().lanes == 1 {
            true => Some(p),
            false => self.error("type", e.span, format!("an integer is needed here, this is {}", p.dtype())),
        }
    }

    /// `p: T.let = pointer`: where memory says the place, it is looked at once.
    pub(super) fn named_pointer(
        &mut self,
        name: &'a str,
        p: Pointer,
        annotated: bool,
        span: Span,
        f: &mut PrimCx,
    ) -> Option<Vec<Item>> {
        let again = matches!(self.names.get(name), Some(Value::Data(_))) || f.mutable;
        if again && !annotated {
            let d = Diagnostic::unsupported("tir", span, format!("`{name}` is given another pointer"));
            return self.report(d.help("take another name"));
        }
        if !reads(&p.at) {
            self.names.bind(name, Value::Data(p));
            return Some(vec![]);
        }
        self.scope(f, span)?;
        let var = Var::with_span(name, DType::I64, span);
        self.names.bind(name, Value::Data(Pointer { at: var.expr(), ..p.clone() }));
        Some(vec![Item::Let(var, p.at, span)])
    }

    /// `A.offset_of([i, j])[0]`: the number of the element in the memory.
    pub fn offset_of(&mut self, of: &Expr<'a>, call: &CallExpr<'a>, index: &Expr<'a>, span: Span) -> Option<PrimExpr> {
        let buffer = self.buffer(of)?;
        let Some(list) = call.arg(0, "indices").filter(|i| i.elements().is_some()) else {
            return self.error("argument", span, "offset_of takes a list of indices");
        };
        let indices = self.indices(&buffer, list)?;
        if !matches!(self.int(index)?, 0 | -1) {
            return self.error("tir", index.span, "the memory of a buffer has one dim: its index is 0");
        }
        if indices.iter().any(|i| i.dtype().lanes > 1) {
            return self.error("type", list.span, "a vector has no number: one element is needed here");
        }
        let wider = indices.iter().any(|i| i.dtype().bits > 32) || buffer.shape.iter().any(|d| d.as_int().is_none());
        let at = flat(&buffer, &indices);
        Some(if wider { at } else { at.cast(DType::I32) })
    }
}
