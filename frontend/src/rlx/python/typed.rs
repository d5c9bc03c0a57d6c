//! What `x.ty` tells Python of a variable of Relax: `x.ty.shape`, `x.ty.dtype`, `x.ty.ndim`, `s.ty.values`, `t.ty.fields[0]`.
//!
//! Source: TVM `relax.TensorType`, `relax.ShapeType`, `relax.TupleType`.

use super::{integer, Python, Reported, Rewritten};
use crate::rlx::context::Cx;
use crate::rlx::syntax::*;
use relax_ir::prim::{BinOp, PrimKind};
use relax_ir::printer::print_prim;
use relax_ir::relax::StructInfo;
use relax_ir::{DType, Diagnostic, PrimExpr, Span};

/// Does this compute with dims of a type, which are numbers of TVM?
pub(super) fn of_dims(e: &Expr) -> bool {
    match &e.kind {
        ExprKind::Attribute(_, field) => matches!(field.name, "shape" | "values"),
        ExprKind::Call(_) => false,
        _ => e.children().into_iter().any(of_dims),
    }
}

/// `R.shape(dims)`
pub(super) fn shape_of(dims: Expr) -> Expr {
    called("R", "shape", dims)
}

/// `T.int64(n)`
pub(super) fn dim_of(n: Expr) -> Expr {
    called("T", "int64", n)
}

/// `letter.name(argument)`
fn called<'a>(letter: &'static str, name: &'static str, argument: Expr<'a>) -> Expr<'a> {
    let (span, depth) = (argument.span, argument.depth.max(2) + 1);
    let script = Expr { kind: ExprKind::Name(letter), span, depth: 1 };
    let func = Expr { kind: ExprKind::Attribute(Box::new(script), Ident { name, span }), span, depth: 2 };
    Expr { kind: ExprKind::Call(Box::new(CallExpr { func, args: vec![argument], keywords: vec![] })), span, depth }
}

impl<'a> Cx<'a> {
    /// As [`Cx::written_out`], for what several names take apart: `n, m = x.ty.shape`.
    pub fn apart_written_out(&mut self, e: &Expr<'a>) -> Rewritten<'a> {
        Ok(self.written_out(e)?.map(|mut new| {
            if let (true, ExprKind::List(items)) = (of_dims(e), &mut new.kind) {
                items.iter_mut().filter(|i| integer(i).is_some()).for_each(|i| *i = dim_of(i.clone()));
            }
            new
        }))
    }
}

impl<'a> Python<'_, 'a> {
    /// `base.field` where `base` is a type: dims as a list, a data type as a text, a rank as a number.
    pub(super) fn of_type(&mut self, base: &Expr<'a>, field: &str, span: Span) -> Rewritten<'a> {
        let Some(info) = self.type_behind(base) else { return Ok(None) };
        let text = |d: DType| ExprKind::Str(d.to_string());
        let kind = match (&info, field) {
            (StructInfo::Tensor(t), "shape") => match t.known_dims() {
                Some(dims) => ExprKind::List(self.dims(dims, span)?),
                None => return Ok(None),
            },
            (StructInfo::Shape { values: Some(values), .. }, "values") => ExprKind::List(self.dims(values, span)?),
            (StructInfo::Tensor(t), "dtype") if t.dtype.is_some() => t.dtype.map_or(ExprKind::Error, text),
            (StructInfo::Prim { dtype, .. }, "dtype") => text(*dtype),
            (StructInfo::Tensor(t), "ndim") => return self.rank(t.ndim, span).map(Some),
            (StructInfo::Shape { ndim, .. }, "ndim") => return self.rank(*ndim, span).map(Some),
            _ => return Ok(None),
        };
        self.node(kind, span).map(Some)
    }

    /// `x.ty.shape[1:]` is nothing that TVM has.
    pub(super) fn no_part_of_shape(&mut self, base: &Expr<'a>, index: &Expr<'a>) -> Result<(), Reported> {
        let ExprKind::Attribute(of, _) = &base.kind else { return Ok(()) };
        if !matches!(index.kind, ExprKind::Slice(..)) || self.type_behind(of).is_none() {
            return Ok(());
        }
        let d = Diagnostic::error("argument", index.span, "the dims of a shape are taken one by one");
        self.refuse(d.help("write them in a list: [x.ty.shape[0], x.ty.shape[1]]"))
    }

    fn type_behind(&mut self, e: &Expr<'a>) -> Option<StructInfo> {
        match &e.kind {
            ExprKind::Attribute(x, field) if matches!(field.name, "ty" | "struct_info") => self.cx.part(x),
            ExprKind::Subscript(base, index) => {
                let ExprKind::Attribute(tuple, field) = &base.kind else { return None };
                match (field.name, self.type_behind(tuple)?, integer(index)) {
                    ("fields", StructInfo::Tuple(f), Some(i)) => f.get(usize::try_from(i).ok()?).cloned(),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// -1 where it is not known.
    fn rank(&mut self, ndim: Option<usize>, span: Span) -> Result<Expr<'a>, Reported> {
        self.int(ndim.map_or(-1, |n| n as i128), span)
    }

    fn dims(&mut self, dims: &[PrimExpr], span: Span) -> Result<Vec<Expr<'a>>, Reported> {
        dims.iter().map(|d| self.dim(d, span)).collect()
    }

    fn dim(&mut self, d: &PrimExpr, span: Span) -> Result<Expr<'a>, Reported> {
        if let Some(n) = d.as_int() {
            return self.int(n as i128, span);
        }
        if let Some(v) = d.as_var() {
            if let Some(name) = self.cx.names.name_of(v) {
                return self.node(ExprKind::Name(name), span);
            }
        }
        let op = |op: &BinOp| match op {
            BinOp::Add => Some(BinaryOp::Add),
            BinOp::Sub => Some(BinaryOp::Sub),
            BinOp::Mul => Some(BinaryOp::Mul),
            BinOp::FloorDiv => Some(BinaryOp::FloorDiv),
            BinOp::FloorMod => Some(BinaryOp::Mod),
            _ => None,
        };
        if let PrimKind::Binary(o, a, b) = d.kind() {
            if let Some(op) = op(o) {
                let (a, b) = (self.dim(a, span)?, self.dim(b, span)?);
                return self.node(ExprKind::Binary(op, Box::new(a), Box::new(b)), span);
            }
        }
        let d =
            Diagnostic::unsupported("type", span, format!("the dim `{}` of this type has no name here", print_prim(d)));
        self.refuse(d.help("give the variable a type by R.match_cast"))
    }
}
