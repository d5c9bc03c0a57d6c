//! Scalar expressions: dims of types and the right-hand sides of TIR. Nodes are built as written, without folding;
//! operands of different types are promoted as TVM does it.

mod literals;

use super::context::{Births, Cx, Value};
use super::pyparse::parse_expression;
use super::syntax::*;
use super::tir_stmt::all_lanes;
use literals::{float_arithmetic, literal_arithmetic, power};
use relax_ir::prim::{BinOp, Intrin, PrimExpr, PrimKind};
use relax_ir::tir::Buffer;
use relax_ir::{DType, Diagnostic, Span, TypeCode, Var};

/// A value, or a Python literal whose type the other operand decides.
#[derive(Clone, Debug)]
pub enum Num {
    Expr(PrimExpr),
    Int(i128),
    /// As float64 and as float32, each rounded once from the decimal.
    Float(f64, f32),
}

impl Num {
    fn negated(self) -> Num {
        match self {
            Num::Int(v) => Num::Int(v.wrapping_neg()),
            Num::Float(d, s) => Num::Float(-d, -s),
            e => e,
        }
    }
}

/// A float literal of a known type.
pub fn float_literal(dtype: DType, d: f64, s: f32) -> PrimExpr {
    match (dtype.code, dtype.bits) {
        (TypeCode::Float, 32) => PrimExpr::float(dtype, s as f64),
        _ => PrimExpr::float(dtype, d),
    }
}

/// An integer literal wraps to 64 bits: unsigned ones above the signed range keep their bits.
pub fn int_literal(dtype: DType, v: i128) -> PrimExpr {
    if dtype.is_float() {
        return PrimExpr::float(dtype, v as f64);
    }
    PrimExpr::int(dtype, v as i64)
}

pub fn fits(dtype: DType, v: i128) -> bool {
    match dtype.code {
        TypeCode::Int => (dtype.int_min() as i128..=dtype.int_max() as i128).contains(&v),
        TypeCode::UInt => (0..=dtype.int_max() as u64 as i128).contains(&v),
        TypeCode::Bool => (0..=1).contains(&v),
        _ => true,
    }
}

/// The digits of an integer token.
pub fn parse_int(text: &str) -> Option<i128> {
    let digits: String = text.chars().filter(|c| *c != '_').collect();
    let lower = digits.to_ascii_lowercase();
    for (prefix, radix) in [("0x", 16), ("0b", 2), ("0o", 8)] {
        if let Some(d) = lower.strip_prefix(prefix) {
            return i128::from_str_radix(d, radix).ok();
        }
    }
    digits.parse().ok()
}

pub fn parse_float(text: &str) -> Option<(f64, f32)> {
    let digits: String = text.chars().filter(|c| *c != '_').collect();
    Some((digits.parse().ok()?, digits.parse().ok()?))
}

impl<'a> Cx<'a> {
    /// A scalar expression; literals that nothing decides are int64 in Relax, int32 in TIR, float32 if fractional.
    pub fn prim(&mut self, e: &Expr<'a>) -> Option<PrimExpr> {
        let n = self.num(e)?;
        Some(self.settle(n).with_span(e.span))
    }

    /// As [`Cx::prim`], converted to `dtype`; literals take it directly.
    pub fn prim_as(&mut self, e: &Expr<'a>, dtype: DType) -> Option<PrimExpr> {
        let n = self.num(e)?;
        Some(self.settle_as(n, dtype).with_span(e.span))
    }

    pub fn settle(&self, n: Num) -> PrimExpr {
        match n {
            Num::Expr(p) => p,
            Num::Int(v) => {
                let dtype = if fits(self.names.int, v) { self.names.int } else { DType::I64 };
                int_literal(dtype, v)
            }
            Num::Float(d, s) => float_literal(DType::F32, d, s),
        }
    }

    pub fn settle_as(&self, n: Num, dtype: DType) -> PrimExpr {
        if dtype.lanes == 1 {
            match n {
                Num::Int(v) => return int_literal(dtype, v),
                Num::Float(d, s) if dtype.is_float() => return float_literal(dtype, d, s),
                _ => {}
            }
        }
        let p = self.settle(n);
        if p.dtype() == dtype {
            return p;
        }
        if p.dtype().lanes == 1 && dtype.lanes > 1 {
            return self.convert(p, dtype.element()).broadcast(dtype.lanes);
        }
        self.convert(p, dtype)
    }

    /// An explicit conversion node, none when the types agree.
    pub fn convert(&self, p: PrimExpr, dtype: DType) -> PrimExpr {
        if p.dtype() == dtype {
            return p;
        }
        PrimExpr::raw(PrimKind::Cast(p), dtype)
    }

    /// A list or tuple of dims.
    pub fn dims(&mut self, e: &Expr<'a>) -> Option<Vec<PrimExpr>> {
        let Some(items) = e.elements() else { return self.expected(e, "a list of dims") };
        let dims: Vec<Option<PrimExpr>> = items.iter().map(|d| self.dim(d)).collect();
        dims.into_iter().collect()
    }

    /// One dim: an expression, in quotes where the dialect writes it so.
    pub fn dim(&mut self, e: &Expr<'a>) -> Option<PrimExpr> {
        if let ExprKind::Bool(b) = e.kind {
            // Python's truth is an integer.
            return Some(PrimExpr::i64(b.into()).with_span(e.span));
        }
        if !matches!(e.kind, ExprKind::Str(_)) {
            let n = self.num(e)?;
            self.type_vars_defined(e);
            if matches!(n, Num::Int(v) if !fits(DType::I64, v)) {
                return self.error("type", e.span, "this dim does not fit 64 bits");
            }
            let p = self.settle(n).with_span(e.span);
            let named = matches!(e.kind, ExprKind::Name(_));
            return self.whole_dim(p, named, e.span);
        }
        if self.names.births != Births::Signature {
            let d = Diagnostic::error("type", e.span, "a dim in quotes belongs to a signature");
            return self.report(d.help("write it without quotes; a new one is declared before: `m = T.int64()`"));
        }
        let quoted = self.quoted(e)?;
        let p = self.quoted_names(&quoted)?;
        self.whole_dim(p, true, e.span)
    }

    /// A dim is an integer; in Relax, where it is no number, an int64.
    fn whole_dim(&mut self, p: PrimExpr, named: bool, span: Span) -> Option<PrimExpr> {
        let t = p.dtype();
        if !t.is_int() {
            return self.error("type", span, format!("a dim must be an integer, this is {t}"));
        }
        if t != DType::I64 && !self.names.of_kernel() && (named || !p.vars().is_empty()) {
            let d = Diagnostic::error("type", span, format!("a dim must be an int64, this is {t}"));
            return self.report(d.help("convert it: `T.Cast(\"int64\", ..)`"));
        }
        Some(p)
    }

    /// Inside quotes every unknown name is a new shape variable.
    fn quoted_names(&mut self, e: &Expr<'a>) -> Option<PrimExpr> {
        fn names<'a>(e: &Expr<'a>, out: &mut Vec<(&'a str, Span)>) {
            match &e.kind {
                ExprKind::Name(n) => out.push((n, e.span)),
                ExprKind::Attribute(..) => {}
                ExprKind::Call(c) => c.args.iter().for_each(|a| names(a, out)),
                _ => e.children().into_iter().for_each(|c| names(c, out)),
            }
        }
        let mut found = vec![];
        names(e, &mut found);
        for (n, span) in found {
            self.birth(n, span);
        }
        self.prim(e)
    }

    /// Makes `name` a shape variable where nothing else is called so.
    fn birth(&mut self, name: &'a str, span: Span) {
        if self.names.prim(name).is_none() && self.names.get(name).is_none() {
            let var = Var::with_span(name, DType::I64, span);
            // In quotes, a dim of a kernel is an int32 where nothing else is said of it.
            if self.names.of_kernel() && !self.type_vars.contains(&name) {
                self.names.stated.insert(var.clone(), DType::I32);
            }
            self.names.declare(name, var);
        }
    }

    /// The expression inside a string.
    pub fn quoted(&mut self, e: &Expr<'a>) -> Option<Expr<'a>> {
        let ExprKind::Str(s) = &e.kind else { return self.expected(e, "a string") };
        let (lo, hi) = (e.span.lo as usize + 1, (e.span.hi as usize).saturating_sub(1));
        if self.text.get(lo..hi) != Some(s.as_str()) {
            return self.error("syntax", e.span, "an expression in quotes must be one plain string");
        }
        if s.trim().is_empty() {
            return self.error("syntax", e.span, "an expression is needed inside these quotes");
        }
        parse_expression(self.file, self.text, lo, hi, &mut self.diags)
    }

    pub fn num(&mut self, e: &Expr<'a>) -> Option<Num> {
        match &e.kind {
            ExprKind::Name(name) => self.scalar_name(name, e.span).map(Num::Expr),
            ExprKind::Int(t) => match parse_int(t) {
                Some(v) if v <= u64::MAX as i128 => Some(Num::Int(v)),
                _ => self.error("syntax", e.span, "this integer is too large"),
            },
            ExprKind::Float(t) => match parse_float(t) {
                Some((d, s)) => Some(Num::Float(d, s)),
                None => self.error("syntax", e.span, "this number cannot be read"),
            },
            ExprKind::Bool(b) => Some(Num::Expr(PrimExpr::bool(*b))),
            ExprKind::Unary(op, a) => self.unary(*op, a, e.span),
            ExprKind::Binary(BinaryOp::Eq | BinaryOp::Ne, ..) if self.decided(e).is_some() => {
                self.decided(e).map(|holds| Num::Expr(PrimExpr::bool(holds)))
            }
            ExprKind::Binary(op, a, b) => {
                let (x, y) = (self.num(a), self.num(b));
                self.binary_num(*op, x?, y?, e.span)
            }
            ExprKind::Subscript(base, index) => self.element(base, index, e.span).map(Num::Expr),
            ExprKind::Attribute(base, name) => self.buffer_field(base, name.name, e.span).map(Num::Expr),
            ExprKind::Call(call) => self.scalar_call(call, e.span),
            ExprKind::Ternary { cond, then, otherwise } => {
                let (cond, a, b) = (self.condition(cond), self.num(then), self.num(otherwise));
                let (cond, (a, b)) = (cond?, self.matched(a?, b?, e.span)?);
                let dtype = a.dtype();
                Some(Num::Expr(PrimExpr::raw_at(PrimKind::IfThenElse(cond, a, b), dtype, e.span)))
            }
            _ => self.expected(e, "a scalar expression"),
        }
    }

    /// The scalar that the binding of this name writes down.
    fn written(&self, name: &str) -> Option<PrimExpr> {
        match self.names.get(name) {
            Some(Value::Relax(v)) => self.names.known.get(v).cloned(),
            _ => None,
        }
    }

    fn scalar_name(&mut self, name: &'a str, span: Span) -> Option<PrimExpr> {
        // `n = T.int64()`, then `n = R.prim_value(4)`: the last binding of the name counts.
        if let Some(e) = self.written(name) {
            return Some(e.with_span(span));
        }
        if let Some(v) = self.names.prim(name) {
            return Some(v.expr().with_span(span));
        }
        match self.names.get(name) {
            Some(Value::Poison) => return None,
            Some(Value::Counted { value, .. }) => return Some(value.with_span(span)),
            Some(Value::Relax(v)) => {
                // A scalar parameter or binding is a shape variable where a scalar is wanted.
                let v = v.clone();
                if let Some((dtype, known)) = self.names.scalars.get_mut(&v) {
                    let var = known.get_or_insert_with(|| Var::with_span(name, *dtype, span));
                    return Some(var.expr().with_span(span));
                }
                let message = format!("`{name}` is a Relax value, a scalar is needed here");
                let d = Diagnostic::error("type", span, message);
                if self.names.is_taken(name) {
                    let help =
                        format!("a binding before this line took the name of the dim `{name}`: take another for it");
                    return self.report(d.help(help));
                }
                return self.report(d.help(format!(
                    "where it is a scalar, `k = T.int64()` and `_ = R.match_cast({name}, R.Prim(value=k))` name it"
                )));
            }
            Some(Value::Buffer(b)) => {
                // A buffer of rank 0 stands for its element.
                if b.ndim() == 0 {
                    return Some(b.clone().at(vec![]).with_span(span));
                }
                if let Some(lanes) = self.vector_lanes(b).filter(|_| b.ndim() == 1) {
                    let indices = vec![all_lanes(lanes)];
                    let dtype = b.dtype().with_lanes(lanes);
                    return Some(PrimExpr::raw_at(PrimKind::BufferLoad(b.clone(), indices.into()), dtype, span));
                }
                return self.error("type", span, format!("`{name}` is a buffer, an element of it is needed here"));
            }
            Some(Value::Described(_)) => {
                let message = format!("`{name}` is a buffer without memory, a scalar is needed here");
                return self.error("type", span, message);
            }
            Some(Value::Several(vars)) => {
                let message = format!("`{name}` stands for {} variables, a scalar is needed here", vars.len());
                return self.error("type", span, message);
            }
            Some(Value::Handle(..)) => {
                return self.error("type", span, format!("`{name}` is a handle, a scalar is needed here"));
            }
            _ => {}
        }
        if self.names.births == Births::Signature && self.names.of_kernel() && self.type_vars.contains(&name) {
            self.birth(name, span);
            self.names.note_declared(name);
            return self.names.prim(name).map(|v| v.expr().with_span(span));
        }
        self.unknown_name(name, span)
    }

    fn unary(&mut self, op: UnaryOp, a: &Expr<'a>, span: Span) -> Option<Num> {
        let n = self.num(a)?;
        match (op, n) {
            (UnaryOp::Plus, n @ (Num::Int(_) | Num::Float(..))) => Some(n),
            (UnaryOp::Neg, n @ (Num::Int(_) | Num::Float(..))) => Some(n.negated()),
            (UnaryOp::Neg, Num::Expr(p)) if p.dtype().is_signed() || p.dtype().is_float() => {
                let d = p.dtype();
                Some(Num::Expr(PrimExpr::raw_at(PrimKind::Neg(p), d, span)))
            }
            (UnaryOp::Invert, Num::Int(v)) => Some(Num::Int(!v)),
            (UnaryOp::Invert, Num::Expr(p)) if p.dtype().is_int() => {
                Some(Num::Expr(PrimExpr::call(Intrin::BitNot, [p]).with_span(span)))
            }
            (UnaryOp::Not | UnaryOp::Invert, Num::Expr(p)) if p.dtype().is_bool() => {
                let d = p.dtype();
                Some(Num::Expr(PrimExpr::raw_at(PrimKind::Not(p), d, span)))
            }
            (_, n) => {
                let t = self.settle(n).dtype();
                let shown = match op {
                    UnaryOp::Not => "not",
                    UnaryOp::Invert => "~",
                    UnaryOp::Plus => "+",
                    _ => "-",
                };
                self.error("type", span, format!("`{shown}` does not apply to {t}"))
            }
        }
    }

    pub fn binary_num(&mut self, op: BinaryOp, a: Num, b: Num, span: Span) -> Option<Num> {
        let op = match op {
            BinaryOp::Add => BinOp::Add,
            BinaryOp::Sub => BinOp::Sub,
            BinaryOp::Mul => BinOp::Mul,
            BinaryOp::Div => return self.true_divide(a, b, span),
            BinaryOp::FloorDiv => BinOp::FloorDiv,
            BinaryOp::Mod => BinOp::FloorMod,
            BinaryOp::BitAnd => BinOp::BitAnd,
            BinaryOp::BitOr => BinOp::BitOr,
            BinaryOp::BitXor => BinOp::BitXor,
            BinaryOp::Shl => BinOp::Shl,
            BinaryOp::Shr => BinOp::Shr,
            BinaryOp::Eq => BinOp::Eq,
            BinaryOp::Ne => BinOp::Ne,
            BinaryOp::Lt => BinOp::Lt,
            BinaryOp::Le => BinOp::Le,
            BinaryOp::Gt => BinOp::Gt,
            BinaryOp::Ge => BinOp::Ge,
            BinaryOp::And => BinOp::And,
            BinaryOp::Or => BinOp::Or,
            BinaryOp::Pow => {
                if let Some(v) = power(&a, &b) {
                    return Some(v);
                }
                if let (Num::Int(x), Num::Int(y @ 0..)) = (&a, &b) {
                    let d = Diagnostic::error("argument", span, format!("{x} ** {y} does not fit into 127 bits"));
                    return self.report(d.help(format!("write it as a float: {x}.0 ** {y}")));
                }
                let d = Diagnostic::error("type", span, "`**` does not apply to scalars");
                return self.report(d.help("write T.pow(a, b), of floats"));
            }
            BinaryOp::MatMul => return self.error("type", span, "`@` does not apply to scalars"),
            BinaryOp::In | BinaryOp::NotIn | BinaryOp::Is | BinaryOp::IsNot => {
                let what = format!("what `{}` says here is not known while the text is read", op.symbol());
                return self.error("syntax", span, what);
            }
        };
        if let (Num::Int(x), Num::Int(y)) = (&a, &b) {
            if let Some(v) = literal_arithmetic(op, *x, *y) {
                return Some(v);
            }
        }
        if let Some(v) = float_arithmetic(op, &a, &b) {
            return Some(v);
        }
        self.bool_operands(op, &a, &b, span)?;
        if matches!(op, BinOp::Eq | BinOp::Ne) {
            self.one_type(&a, &b, span)?;
        }
        self.binary_op(op, a, b, span).map(Num::Expr)
    }

    fn true_divide(&mut self, a: Num, b: Num, span: Span) -> Option<Num> {
        if let (Num::Int(x), Num::Int(y)) = (&a, &b) {
            if *y != 0 {
                let v = *x as f64 / *y as f64;
                return Some(Num::Float(v, v as f32));
            }
        }
        if let Some(v) = float_arithmetic(BinOp::Div, &a, &b) {
            return Some(v);
        }
        // TVM asks of signed integers alone how they are divided: others are divided towards 0.
        let signed = |n: &Num| match n {
            Num::Expr(p) => p.dtype().is_signed(),
            Num::Int(_) => true,
            Num::Float(..) => false,
        };
        let clear = self.in_kernel() && !(signed(&a) && signed(&b));
        let (a, b) = self.matched(a, b, span)?;
        self.divisor(&b, span)?;
        if clear && a.dtype().is_int() {
            return Some(Num::Expr(PrimExpr::raw_binary(BinOp::TruncDiv, a, b).with_span(span)));
        }
        if !a.dtype().is_float() {
            let d = relax_ir::Diagnostic::error("type", span, "`/` on integers is ambiguous");
            return self.report(d.help("write `//` (floor), T.truncdiv(a, b) or T.Div(a, b)"));
        }
        Some(Num::Expr(PrimExpr::raw_binary(BinOp::Div, a, b).with_span(span)))
    }

    /// The node `a op b` after promotion.
    pub fn binary_op(&mut self, op: BinOp, a: Num, b: Num, span: Span) -> Option<PrimExpr> {
        // A literal amount is of the type that is shifted.
        let b = match (op, &a, &b) {
            (BinOp::Shl | BinOp::Shr, Num::Expr(x), Num::Int(v))
                if x.dtype().is_int() && fits(x.dtype().element(), *v) =>
            {
                Num::Expr(self.settle_as(b, x.dtype()))
            }
            _ => b,
        };
        let (a, b) = self.matched(a, b, span)?;
        let t = a.dtype();
        if op == BinOp::TruncMod && t.is_float() {
            return Some(PrimExpr::call(Intrin::Fmod, [a, b]).with_span(span));
        }
        match op {
            BinOp::Div | BinOp::FloorDiv | BinOp::FloorMod | BinOp::TruncDiv | BinOp::TruncMod => {
                self.divisor(&b, span)?
            }
            // Source: TVM src/tirx/op/op.cc: a literal amount lies within the type.
            BinOp::Shl | BinOp::Shr => match b.as_int() {
                Some(v) if !(0..t.bits as i64).contains(&v) => {
                    let message = format!("{t} is shifted by {v}: from 0 to {} is possible", t.bits.saturating_sub(1));
                    return self.error("type", span, message);
                }
                _ => {}
            },
            _ => {}
        }
        let fine = match op {
            BinOp::And | BinOp::Or => t.is_bool(),
            BinOp::FloorDiv | BinOp::FloorMod | BinOp::TruncDiv | BinOp::TruncMod => t.is_int(),
            BinOp::Shl | BinOp::Shr => t.is_int(),
            BinOp::BitAnd | BinOp::BitOr | BinOp::BitXor => t.is_int() || t.is_bool(),
            _ => !t.is_handle(),
        };
        if !fine {
            let what = match op {
                BinOp::And | BinOp::Or => "bool operands are needed",
                _ => "integer operands are needed",
            };
            return self.error("type", span, format!("{what} here, these are {t}"));
        }
        Some(PrimExpr::raw_binary(op, a, b).with_span(span))
    }

    /// `==`, `!=` and the nodes that TVM has a name for (`T.EQ`, `T.Add`) promote nothing; a literal takes the other's type.
    pub fn one_type(&mut self, a: &Num, b: &Num, span: Span) -> Option<()> {
        let (s, t) = match (a, b) {
            (Num::Expr(x), Num::Expr(y)) => (x.dtype().element(), y.dtype().element()),
            (Num::Expr(x), Num::Float(..)) | (Num::Float(..), Num::Expr(x)) if x.dtype().is_int() => {
                (x.dtype().element(), DType::F32)
            }
            _ => return Some(()),
        };
        // Of what is computed with dims it is not known here what the text makes of it.
        let named =
            |n: &Num| matches!(n, Num::Expr(p) if p.as_var().is_some_and(|v| self.names.stated.contains_key(v)));
        let (s, t) = match (a, b) {
            (Num::Expr(x), Num::Expr(y)) if named(a) && named(b) => (self.stated_type(x), self.stated_type(y)),
            _ => (s, t),
        };
        let dims = self.names.widened && s.is_signed() && t.is_signed() && !(named(a) && named(b));
        if s == t || dims {
            return Some(());
        }
        let d = Diagnostic::error("type", span, format!("the operands are {s} and {t}, one type is needed here"));
        self.report(d.help(format!("cast one of them: T.Cast(\"{t}\", ..)")))
    }

    /// A literal divisor is not zero.
    fn divisor(&mut self, b: &PrimExpr, span: Span) -> Option<()> {
        if b.is_int(0) || b.as_float() == Some(0.0) {
            return self.error("type", span, "this divides by zero");
        }
        Some(())
    }

    /// Both operands in one type: literals take the other side's, in kernels those of integers below 32 bits are int32; int meets float as float; of two widths the wider;
    /// signed and unsigned of one width meet as unsigned.
    pub fn matched(&mut self, a: Num, b: Num, span: Span) -> Option<(PrimExpr, PrimExpr)> {
        if let (Num::Expr(x), Num::Int(v)) | (Num::Int(v), Num::Expr(x)) = (&a, &b) {
            let t = x.dtype().element();
            if *v < 0 && t.is_uint() && t.bits >= 32 && self.names.int == DType::I32 {
                return self.error("type", span, format!("{v} is no value of {t}"));
            }
        }
        let narrow = |cx: &Self, t: DType| t.is_int() && !t.is_bool() && t.bits < 32 && cx.names.int == DType::I32;
        let literal = |cx: &Self, n: Num, t: DType| match &n {
            Num::Int(_) if narrow(cx, t) => cx.settle(n),
            Num::Int(v) if !fits(t.element(), *v) => cx.settle(n),
            Num::Int(_) if t.is_bool() || t.is_handle() => cx.settle(n),
            Num::Float(..) if !t.is_float() => cx.settle(n),
            _ => cx.settle_as(n, t),
        };
        let (a, b) = match (a, b) {
            (Num::Expr(x), Num::Expr(y)) => (x, y),
            (Num::Expr(x), l) => {
                let y = literal(self, l, x.dtype());
                (x, y)
            }
            (l, Num::Expr(y)) => {
                let x = literal(self, l, y.dtype());
                (x, y)
            }
            (l @ Num::Float(..), r) => {
                let x = self.settle(l);
                let y = self.settle_as(r, x.dtype());
                (x, y)
            }
            (l, r @ Num::Float(..)) => {
                let y = self.settle(r);
                (self.settle_as(l, y.dtype()), y)
            }
            (l, r) => {
                let (x, y) = (self.settle(l), self.settle(r));
                let t = if x.dtype().bits >= y.dtype().bits { x.dtype() } else { y.dtype() };
                (int_literal(t, x.as_int().unwrap_or(0) as i128), int_literal(t, y.as_int().unwrap_or(0) as i128))
            }
        };
        let (s, t) = (a.dtype(), b.dtype());
        if s == t {
            return Some((a, b));
        }
        if s.is_handle() || t.is_handle() {
            return self.error("type", span, format!("{s} and {t} do not combine"));
        }
        // Lanes first: a scalar meets a vector as a broadcast.
        if s.lanes != t.lanes {
            if s.lanes == 1 {
                let a = a.broadcast(t.lanes);
                return self.matched(Num::Expr(a), Num::Expr(b), span);
            }
            if t.lanes == 1 {
                let b = b.broadcast(s.lanes);
                return self.matched(Num::Expr(a), Num::Expr(b), span);
            }
            return self.error("type", span, format!("{s} and {t} differ in their lanes"));
        }
        let to_right = if s.is_float() != t.is_float() {
            t.is_float()
        } else if s.is_bool() || t.is_bool() {
            s.is_bool()
        } else if s.bits != t.bits {
            s.bits < t.bits
        } else {
            // Same width: unsigned, or float16 when it meets bfloat16.
            t.is_uint() || t.code == TypeCode::Float
        };
        Some(if to_right {
            (self.convert(a, t), b)
        } else {
            let b = self.convert(b, s);
            (a, b)
        })
    }

    /// `buffer[index]`, `buffer.shape[0]`, `buffer.strides[0]`.
    pub fn element(&mut self, base: &Expr<'a>, index: &Expr<'a>, span: Span) -> Option<PrimExpr> {
        if let ExprKind::Attribute(owner, field) = &base.kind {
            if matches!(field.name, "shape" | "strides") {
                let buffer = match owner.as_name().and_then(|n| self.names.get(n)) {
                    Some(Value::Described(b)) => b.clone(),
                    _ => self.buffer(owner)?,
                };
                let list = if field.name == "shape" { buffer.shape.clone() } else { self.strides_of(&buffer) };
                let i = self.int(index)?;
                let from_end = if i < 0 { i + list.len() as i64 } else { i };
                return match usize::try_from(from_end).ok().and_then(|i| list.get(i)) {
                    Some(p) => Some(p.clone()),
                    None => self.error("tir", span, format!("the buffer has no {}[{i}]", field.name)),
                };
            }
        }
        if let Some(vars) = self.variables(base).map(<[_]>::to_vec) {
            let i = self.int(index)?;
            return match usize::try_from(i).ok().and_then(|i| vars.get(i)) {
                Some(v) => Some(v.expr().with_span(span)),
                None => self.error("tir", span, format!("this name stands for {} variables", vars.len())),
            };
        }
        if let Some(element) = self.element_of_part(base, index, span) {
            return element;
        }
        if let Some((call, ExprKind::Attribute(of, field))) = base.as_call().map(|c| (c, &c.func.kind)) {
            if field.name == "offset_of" {
                return self.offset_of(of, call, index, span);
            }
        }
        let buffer = self.buffer(base)?;
        let parts = index.elements().unwrap_or(std::slice::from_ref(index));
        if let Some(slice) = parts.iter().find(|i| matches!(i.kind, ExprKind::Slice(..))) {
            let d = Diagnostic::error("tir", slice.span, "a slice is a region, no vector of elements");
            return self.report(d.help("a vector is read by an index that is one: A[T.Ramp(begin, 1, lanes)]"));
        }
        let indices = self.indices(&buffer, index)?;
        let lanes = indices.iter().map(|i| i.dtype().lanes).max().unwrap_or(1);
        let dtype = if lanes > 1 { buffer.dtype().with_lanes(lanes) } else { buffer.dtype() };
        Some(PrimExpr::raw_at(PrimKind::BufferLoad(buffer, indices.into()), dtype, span))
    }

    fn buffer_field(&mut self, base: &Expr<'a>, field: &str, span: Span) -> Option<PrimExpr> {
        if let Some(bound) = self.range_field(base, field) {
            return bound;
        }
        if base.as_name().is_some_and(|n| matches!(self.names.get(n), Some(Value::Buffer(_)))) {
            let buffer = self.buffer(base)?;
            return match field {
                "elem_offset" if self.names.regions.contains_key(&buffer.id()) => {
                    self.names.regions.get(&buffer.id()).cloned()
                }
                "elem_offset" => Some(buffer.elem_offset.clone().unwrap_or_else(|| PrimExpr::i64(0))),
                _ => {
                    let d = relax_ir::Diagnostic::unsupported(
                        "tir",
                        span,
                        format!("`.{field}` of a buffer is not supported"),
                    );
                    self.report(d.help("access the buffer by its elements"))
                }
            };
        }
        self.error("type", span, format!("`.{field}` is no scalar expression"))
    }

    /// A name that stands for a buffer.
    pub fn buffer(&mut self, e: &Expr<'a>) -> Option<Buffer> {
        let Some(name) = e.as_name() else { return self.expected(e, "a buffer") };
        match self.names.get(name) {
            Some(Value::Buffer(b)) => Some(b.clone()),
            Some(Value::Poison) => None,
            Some(Value::Described(_)) => {
                let d =
                    relax_ir::Diagnostic::error("tir", e.span, format!("`{name}` has no memory: attributes name it"));
                self.report(d.help(format!("memory of its own is `{name} = T.alloc_buffer(shape, dtype)`")))
            }
            Some(Value::Handle(..)) => {
                let d = relax_ir::Diagnostic::error("tir", e.span, format!("`{name}` is a handle, not a buffer"));
                self.report(d.help(format!("make it one: `T.match_buffer({name}, shape, dtype)`")))
            }
            Some(_) => self.error("type", e.span, format!("`{name}` is not a buffer")),
            None => {
                if self.names.dims.contains_key(name) {
                    return self.error("type", e.span, format!("`{name}` is not a buffer"));
                }
                self.unknown_name(name, e.span)
            }
        }
    }

    /// The indices of an element access; `lo:hi:step` is a vector.
    pub fn indices(&mut self, buffer: &Buffer, index: &Expr<'a>) -> Option<Vec<PrimExpr>> {
        let items = match &index.kind {
            ExprKind::Tuple(items) | ExprKind::List(items) => items.iter().collect(),
            _ => vec![index],
        };
        let mut all = vec![];
        for item in items {
            match &item.kind {
                ExprKind::Starred(value) => all.extend(self.spread(value, item.span)?.into_iter().map(Some)),
                _ => all.push(self.index(item)),
            }
        }
        let mut dims = buffer.ndim();
        if let Some(lanes) = self.vector_lanes(buffer) {
            dims -= 1;
            if all.len() == dims {
                let found: Vec<PrimExpr> = all.into_iter().collect::<Option<_>>()?;
                return self.whole_vectors(found, lanes, index.span);
            }
        }
        if all.len() != dims {
            let message = format!("`{}` has {dims} dims, {} given", buffer.name, count(all.len()));
            return self.error("tir", index.span, message);
        }
        all.into_iter().collect()
    }

    fn index(&mut self, e: &Expr<'a>) -> Option<PrimExpr> {
        let ExprKind::Slice(lo, hi, step) = &e.kind else {
            let p = self.prim(e)?;
            if !p.dtype().is_int() && !p.dtype().is_bool() {
                let t = p.dtype();
                return self.error("type", e.span, format!("an index must be an integer, this is {t}"));
            }
            return Some(p);
        };
        let (Some(lo), Some(hi)) = (lo, hi) else {
            return self.error("tir", e.span, "both ends of a vector access must be written");
        };
        let (lo, hi) = (self.num(lo), self.num(hi));
        let (lo, hi) = self.matched(lo?, hi?, e.span)?;
        let t = lo.dtype();
        let step = match step {
            Some(s) => self.prim_as(s, t)?,
            None => PrimExpr::int(t, 1),
        };
        let length = span_of(&lo, &hi).as_int();
        let lanes = length.zip(step.as_int()).and_then(|(n, s)| n.checked_div(s)).and_then(|n| u16::try_from(n).ok());
        match lanes {
            Some(n) if n >= 1 => Some(lo.ramp(step, n)),
            _ => self.error("tir", e.span, "the length of a vector access must be a constant"),
        }
    }
}

fn count(n: usize) -> String {
    match n {
        1 => "1 index is".into(),
        n => format!("{n} indices are"),
    }
}

/// `hi - lo`, taking `lo + n` apart.
pub fn span_of(lo: &PrimExpr, hi: &PrimExpr) -> PrimExpr {
    if let PrimKind::Binary(BinOp::Add, a, b) = hi.kind() {
        if a == lo {
            return b.clone();
        }
    }
    if lo.is_int(0) {
        return hi.clone();
    }
    PrimExpr::binary(BinOp::Sub, hi.clone(), lo.clone())
}
