//! Buffers over the memory of another one (`T.decl_buffer(.., data=A.data)`): their accesses become accesses of that buffer,
//! also where the elements are wider or narrower.

use super::matching::widened;
use super::pointers::{reads, Pointer};
use super::*;
use relax_ir::prim::BinOp;
use relax_ir::TypeCode;

/// A buffer over memory of another one, from a place on.
pub struct View {
    pub buffer: Buffer,
    pub of: Pointer,
}

impl<'a> Cx<'a> {
    /// `x = T.decl_scalar(dtype, data, scope, elem_offset)`: one element of the memory.
    pub(super) fn scalar_view(&mut self, name: &'a str, call: &CallExpr<'a>, span: Span) -> Option<()> {
        let (Some(dtype), Some(data)) = (call.arg(0, "dtype"), call.arg(1, "data")) else {
            return self.error("argument", span, "T.decl_scalar takes a dtype, the memory of a buffer and a scope");
        };
        let dtype = self.dtype(dtype)?;
        let offset = match (call.arg(3, "elem_offset"), call.arg(4, "byte_offset")) {
            (Some(e), _) if !matches!(e.kind, ExprKind::None) => Some(self.prim(e)?),
            (_, Some(e)) if !matches!(e.kind, ExprKind::None) => {
                let (bytes, size) = (self.int(e)?, i64::from(dtype.bits / 8));
                if size == 0 || bytes % size != 0 {
                    return self.error("tir", e.span, format!("this is no place of an element of {dtype}"));
                }
                Some(PrimExpr::int(DType::I32, bytes / size))
            }
            _ => None,
        };
        let buffer = Buffer::from_parts(name, vec![], dtype, vec![], offset.filter(|o| !o.is_int(0)), "global", span);
        self.view_as(name, buffer, data, span)
    }

    /// `C = A.view(m, n)`: the same elements in another shape; -1 is what is left of them.
    pub(super) fn reshaped(&mut self, name: &'a str, of: &Expr<'a>, call: &CallExpr<'a>, span: Span) -> Option<()> {
        let buffer = self.buffer(of)?;
        let dims = match call.args.as_slice() {
            [one] if one.elements().is_some() => one.elements().unwrap_or(&[]),
            many => many,
        };
        if dims.is_empty() || !call.keywords.is_empty() || dims.iter().any(|d| matches!(d.kind, ExprKind::Str(_))) {
            return self.unsupported("tir", span, "a view takes a shape alone");
        }
        let one = |d: &Expr| matches!(&d.kind, ExprKind::Int(digits) if digits == "1");
        let open = |d: &Expr| matches!(&d.kind, ExprKind::Unary(UnaryOp::Neg, n) if one(n));
        let product = |dims: &[PrimExpr]| dims.iter().try_fold(1i64, |n, d| n.checked_mul(d.as_int()?));
        let stated = dims.iter().filter(|d| !open(d)).map(|d| self.dim(d)).collect::<Option<Vec<_>>>()?;
        let mut shape = stated.clone();
        if let Some(at) = dims.iter().position(open) {
            let left = product(&buffer.shape).zip(product(&stated)).and_then(|(n, d)| n.checked_div(d));
            let Some(left) = left.filter(|_| shape.len() + 1 == dims.len()) else {
                return self.unsupported("tir", span, "this dim of a view cannot be computed");
            };
            shape.insert(at, PrimExpr::int(DType::I32, left));
        }
        // Source: TVM's view keeps the strides of the buffer.
        if self.names.strides.get(&buffer.id()).is_some_and(|s| s.len() != shape.len()) {
            let message = format!("`{}` has {} strides, the view {} dims", buffer.name, buffer.ndim(), shape.len());
            return self.error("tir", span, message);
        }
        let view = Buffer::from_parts(name, shape, buffer.dtype(), vec![], None, "global", span);
        let of = self.memory(&buffer);
        self.over(name, view, of, span)
    }

    pub(super) fn view(&mut self, name: &'a str, call: &CallExpr<'a>, data: &Expr<'a>, span: Span) -> Option<()> {
        let buffer = self.buffer_type(name, call, 0, "global", span)?;
        self.view_as(name, buffer, data, span)
    }

    fn view_as(&mut self, name: &'a str, buffer: Buffer, data: &Expr<'a>, span: Span) -> Option<()> {
        let Some(of) = self.pointer(data) else {
            return self.expected(data, "the memory of a buffer, `A.data`,");
        };
        let of = of?;
        if reads(&of.at) {
            let d = Diagnostic::unsupported("tir", data.span, "memory says where this pointer points to");
            return self.report(d.help("give it a name before: `p: T.let = ..`"));
        }
        self.over(name, buffer, of, span)
    }

    fn over(&mut self, name: &'a str, buffer: Buffer, of: Pointer, span: Span) -> Option<()> {
        self.lies_over(&buffer, of, span)?;
        self.names.bind(name, Value::Buffer(buffer));
        Some(())
    }

    /// Notes that `buffer` is a part of other memory, `of`.
    pub fn lies_over(&mut self, buffer: &Buffer, of: Pointer, span: Span) -> Option<()> {
        let base = &of.base;
        let (from, to) = (base.dtype(), buffer.dtype());
        let whole = |t: DType| t.lanes == 1 && t.bits.is_multiple_of(8) && (t.is_int() || t.is_float());
        if from != to && !(whole(from) && whole(to)) {
            return self.unsupported("tir", span, format!("a view of {from} as {to} is not supported"));
        }
        // The strides of an argument are checked to be those of a dense tensor.
        if base.elem_offset.is_some() || self.names.regions.contains_key(&base.id()) {
            let message = format!("`{}` begins somewhere in its memory: it has no views", base.name);
            return self.unsupported("tir", span, message);
        }
        self.names.views.push(View { buffer: buffer.clone(), of });
        Some(())
    }
}

/// The statement without its views.
pub fn without_views(body: &TStmt, views: &[View]) -> TStmt {
    let view = |b: &Buffer| views.iter().find(|v| v.buffer == *b);
    let with = |b: &Buffer, indices: &[PrimExpr]| Some(load(view(b)?, indices));
    body.replace_loads(&with).rewrite(&mut |e| e.clone(), &mut |s| match s.kind() {
        TKind::Store { buffer, indices, value } => match view(buffer) {
            Some(view) => TStmt::at(store(view, indices, value).kind().clone(), s.span()),
            None => s,
        },
        TKind::Block(b) => {
            let open = Block { reads: None, writes: None, ..(**b).clone() };
            TStmt::at(TKind::Block(Box::new(open)), s.span())
        }
        _ => s,
    })
}

pub(super) fn wide(v: i64) -> PrimExpr {
    PrimExpr::int(DType::I64, v)
}

fn op(op: BinOp, a: PrimExpr, b: PrimExpr) -> PrimExpr {
    PrimExpr::binary(op, a, b)
}

/// The number of the element from the beginning of the memory, in elements of the view.
pub(super) fn flat(view: &Buffer, indices: &[PrimExpr]) -> PrimExpr {
    let mut at = view.elem_offset.clone().map_or(wide(0), |o| o.cast(DType::I64));
    let mut stride = wide(1);
    for (d, i) in indices.iter().enumerate().rev() {
        let step = view.strides.get(d).map_or_else(|| stride.clone(), |s| s.clone().cast(DType::I64));
        at = op(BinOp::Add, at, op(BinOp::Mul, widened(i), step));
        stride = op(BinOp::Mul, stride, view.shape[d].clone().cast(DType::I64));
    }
    at
}

/// The indices of element number `at` of a dense buffer.
fn unravel(base: &Buffer, mut at: PrimExpr) -> Vec<PrimExpr> {
    let mut out = vec![];
    for (d, dim) in base.shape.iter().enumerate().rev() {
        if d == 0 {
            out.push(at.clone());
            break;
        }
        let dim = dim.clone().cast(DType::I64);
        out.push(op(BinOp::FloorMod, at.clone(), dim.clone()));
        at = op(BinOp::FloorDiv, at, dim);
    }
    out.reverse();
    out
}

fn bits(dtype: DType) -> DType {
    DType { code: TypeCode::UInt, ..dtype }
}

/// The same bits as another type of the same width.
fn as_type(e: PrimExpr, dtype: DType) -> PrimExpr {
    if e.dtype() == dtype {
        return e;
    }
    PrimExpr::raw(PrimKind::Reinterpret(e), dtype)
}

fn convert(e: PrimExpr, dtype: DType) -> PrimExpr {
    if e.dtype() == dtype {
        return e;
    }
    PrimExpr::raw(PrimKind::Cast(e), dtype)
}

/// Number of the element of `base`, and by how many bits the element of the view is shifted in it.
fn part(view: &Buffer, base: &Buffer, at: PrimExpr) -> (PrimExpr, PrimExpr) {
    let ratio = wide((base.dtype().bits / view.dtype().bits) as i64);
    let shift = op(BinOp::Mul, op(BinOp::FloorMod, at.clone(), ratio.clone()), wide(view.dtype().bits as i64));
    (op(BinOp::FloorDiv, at, ratio), convert(shift, bits(base.dtype())))
}

/// Does it have the elements of its base in the same places?
fn as_base(view: &Buffer, of: &Pointer) -> bool {
    let base = &of.base;
    let alike = view.dtype() == base.dtype() && view.shape == base.shape;
    alike && of.begin() && view.strides.is_empty() && view.elem_offset.is_none()
}

/// The number of the element in the memory of the base: in elements of the view, in those of the base where these are
/// narrower.
fn number(view: &Buffer, of: &Pointer, indices: &[PrimExpr]) -> PrimExpr {
    let (to, from) = (view.dtype().bits, of.base.dtype().bits);
    let own = flat(view, indices);
    if to > from {
        return op(BinOp::Add, op(BinOp::Mul, own, wide((to / from) as i64)), of.at.clone());
    }
    op(BinOp::Add, own, op(BinOp::Mul, of.at.clone(), wide((from / to) as i64)))
}

fn load(view: &View, indices: &[PrimExpr]) -> PrimExpr {
    let View { buffer: view, of } = view;
    let base = &of.base;
    let (to, from) = (view.dtype(), base.dtype());
    if as_base(view, of) {
        return base.at(indices.to_vec());
    }
    let at = number(view, of, indices);
    if to.bits == from.bits {
        return as_type(base.at(unravel(base, at)), to);
    }
    if to.bits < from.bits {
        let (at, shift) = part(view, base, at);
        let word = as_type(base.at(unravel(base, at)), bits(from));
        return as_type(convert(PrimExpr::raw_binary(BinOp::Shr, word, shift), bits(to)), to);
    }
    let ratio = (to.bits / from.bits) as i64;
    let first = at;
    let pieces = (0..ratio).map(|k| {
        let piece = as_type(base.at(unravel(base, op(BinOp::Add, first.clone(), wide(k)))), bits(from));
        let shift = PrimExpr::int(bits(to), k * from.bits as i64);
        PrimExpr::raw_binary(BinOp::Shl, convert(piece, bits(to)), shift)
    });
    let whole = pieces.reduce(|a, b| PrimExpr::raw_binary(BinOp::BitOr, a, b));
    as_type(whole.unwrap_or_else(|| PrimExpr::int(bits(to), 0)), to)
}

fn store(view: &View, indices: &[PrimExpr], value: &PrimExpr) -> TStmt {
    let View { buffer: view, of } = view;
    let base = &of.base;
    let (to, from) = (view.dtype(), base.dtype());
    if as_base(view, of) {
        return TStmt::store(base, indices.to_vec(), value.clone());
    }
    let at = number(view, of, indices);
    if to.bits == from.bits {
        return TStmt::store(base, unravel(base, at), as_type(value.clone(), from));
    }
    if to.bits < from.bits {
        let (at, shift) = part(view, base, at);
        let place = unravel(base, at);
        let word = as_type(base.at(place.clone()), bits(from));
        let ones = PrimExpr::int(bits(from), (1i64 << to.bits) - 1);
        let hole = PrimExpr::raw_binary(BinOp::Shl, ones, shift.clone());
        let rest = PrimExpr::call(relax_ir::prim::Intrin::BitNot, [hole]);
        let kept = PrimExpr::raw_binary(BinOp::BitAnd, word, rest);
        let piece = convert(as_type(value.clone(), bits(to)), bits(from));
        let piece = PrimExpr::raw_binary(BinOp::Shl, piece, shift);
        return TStmt::store(base, place, as_type(PrimExpr::raw_binary(BinOp::BitOr, kept, piece), from));
    }
    // The value is read before any part of it is written.
    let var = Var::new("value", bits(to));
    let ratio = (to.bits / from.bits) as i64;
    let first = at;
    let parts = (0..ratio).map(|k| {
        let shift = PrimExpr::int(bits(to), k * from.bits as i64);
        let piece = convert(PrimExpr::raw_binary(BinOp::Shr, var.expr(), shift), bits(from));
        TStmt::store(base, unravel(base, op(BinOp::Add, first.clone(), wide(k))), as_type(piece, from))
    });
    TStmt::let_in(&var, as_type(value.clone(), bits(to)), TStmt::seq(parts.collect()))
}
