//! Constructors. `raw*` builds the node as written (what parsers use); the operators `+ - * ...` and
//! the named helpers fold literals and identities (what passes use).

use super::*;

impl PrimExpr {
    pub fn var(v: &Var) -> PrimExpr {
        PrimExpr::raw(PrimKind::Var(v.clone()), v.dtype())
    }
    /// An integer or bool literal, wrapped to the width of `dtype`; a float `dtype` makes a float literal.
    pub fn int(dtype: DType, v: i64) -> PrimExpr {
        if dtype.is_float() {
            return PrimExpr::float(dtype, v as f64);
        }
        if dtype.lanes > 1 {
            return PrimExpr::int(dtype.element(), v).broadcast(dtype.lanes);
        }
        PrimExpr::raw(PrimKind::Int(wrap_int(dtype, v)), dtype)
    }
    /// A float literal, rounded to `dtype` once.
    pub fn float(dtype: DType, v: f64) -> PrimExpr {
        if dtype.lanes > 1 {
            return PrimExpr::float(dtype.element(), v).broadcast(dtype.lanes);
        }
        PrimExpr::raw(PrimKind::Float(FloatBits(round_float(dtype, v))), dtype)
    }
    pub fn f32(v: f32) -> PrimExpr {
        PrimExpr::float(DType::F32, v as f64)
    }
    pub fn i32(v: i32) -> PrimExpr {
        PrimExpr::int(DType::I32, v as i64)
    }
    pub fn i64(v: i64) -> PrimExpr {
        PrimExpr::int(DType::I64, v)
    }
    pub fn bool(v: bool) -> PrimExpr {
        PrimExpr::raw(PrimKind::Int(v as i64), DType::BOOL)
    }
    pub fn zero(dtype: DType) -> PrimExpr {
        PrimExpr::int(dtype, 0)
    }
    pub fn one(dtype: DType) -> PrimExpr {
        PrimExpr::int(dtype, 1)
    }
    /// The lowest finite value of the type (what TVM starts a max reduction with).
    pub fn min_value(dtype: DType) -> PrimExpr {
        match (dtype.code, dtype.bits) {
            (crate::TypeCode::Float, 16) => PrimExpr::float(dtype, -65504.0),
            (crate::TypeCode::Float, 32) => PrimExpr::float(dtype, f32::MIN as f64),
            (crate::TypeCode::Float, _) => PrimExpr::float(dtype, f64::MIN),
            (crate::TypeCode::BFloat, _) => PrimExpr::float(dtype, half::bf16::MIN.to_f64()),
            (crate::TypeCode::Small(s), _) => PrimExpr::float(dtype, s.min()),
            _ => PrimExpr::int(dtype, dtype.int_min()),
        }
    }
    /// The largest finite value of the type.
    pub fn max_value(dtype: DType) -> PrimExpr {
        match (dtype.code, dtype.bits) {
            (crate::TypeCode::Float, 16) => PrimExpr::float(dtype, 65504.0),
            (crate::TypeCode::Float, 32) => PrimExpr::float(dtype, f32::MAX as f64),
            (crate::TypeCode::Float, _) => PrimExpr::float(dtype, f64::MAX),
            (crate::TypeCode::BFloat, _) => PrimExpr::float(dtype, half::bf16::MAX.to_f64()),
            (crate::TypeCode::Small(s), _) => PrimExpr::float(dtype, s.max()),
            _ => PrimExpr::int(dtype, dtype.int_max()),
        }
    }

    /// The node as written: operands must agree in type.
    pub fn raw_binary(op: BinOp, a: PrimExpr, b: PrimExpr) -> PrimExpr {
        let dtype = if op.is_predicate() { DType::BOOL.with_lanes(a.dtype().lanes) } else { a.dtype() };
        PrimExpr::raw(PrimKind::Binary(op, a, b), dtype)
    }
    /// Folds literals and the identities of +, -, *, //, %, and, or on integers and bools.
    pub fn binary(op: BinOp, a: PrimExpr, b: PrimExpr) -> PrimExpr {
        fold_binary(op, &a, &b).unwrap_or_else(|| PrimExpr::raw_binary(op, a, b))
    }
    pub fn floor_div(self, o: impl Into<PrimExpr>) -> PrimExpr {
        PrimExpr::binary(BinOp::FloorDiv, self, o.into())
    }
    pub fn floor_mod(self, o: impl Into<PrimExpr>) -> PrimExpr {
        PrimExpr::binary(BinOp::FloorMod, self, o.into())
    }
    pub fn trunc_div(self, o: impl Into<PrimExpr>) -> PrimExpr {
        PrimExpr::binary(BinOp::TruncDiv, self, o.into())
    }
    pub fn trunc_mod(self, o: impl Into<PrimExpr>) -> PrimExpr {
        PrimExpr::binary(BinOp::TruncMod, self, o.into())
    }
    pub fn min(self, o: impl Into<PrimExpr>) -> PrimExpr {
        PrimExpr::binary(BinOp::Min, self, o.into())
    }
    pub fn max(self, o: impl Into<PrimExpr>) -> PrimExpr {
        PrimExpr::binary(BinOp::Max, self, o.into())
    }
    pub fn eq(self, o: impl Into<PrimExpr>) -> PrimExpr {
        PrimExpr::binary(BinOp::Eq, self, o.into())
    }
    pub fn ne(self, o: impl Into<PrimExpr>) -> PrimExpr {
        PrimExpr::binary(BinOp::Ne, self, o.into())
    }
    pub fn lt(self, o: impl Into<PrimExpr>) -> PrimExpr {
        PrimExpr::binary(BinOp::Lt, self, o.into())
    }
    pub fn le(self, o: impl Into<PrimExpr>) -> PrimExpr {
        PrimExpr::binary(BinOp::Le, self, o.into())
    }
    pub fn gt(self, o: impl Into<PrimExpr>) -> PrimExpr {
        PrimExpr::binary(BinOp::Gt, self, o.into())
    }
    pub fn ge(self, o: impl Into<PrimExpr>) -> PrimExpr {
        PrimExpr::binary(BinOp::Ge, self, o.into())
    }
    pub fn and(self, o: impl Into<PrimExpr>) -> PrimExpr {
        PrimExpr::binary(BinOp::And, self, o.into())
    }
    pub fn or(self, o: impl Into<PrimExpr>) -> PrimExpr {
        PrimExpr::binary(BinOp::Or, self, o.into())
    }
    #[allow(clippy::should_implement_trait)]
    pub fn not(self) -> PrimExpr {
        match self.as_int() {
            Some(v) => PrimExpr::bool(v == 0),
            None => {
                let d = self.dtype();
                PrimExpr::raw(PrimKind::Not(self), d)
            }
        }
    }
    #[allow(clippy::should_implement_trait)]
    pub fn neg(self) -> PrimExpr {
        let d = self.dtype();
        match self.kind() {
            PrimKind::Int(v) => PrimExpr::int(d, v.wrapping_neg()),
            PrimKind::Float(v) => PrimExpr::float(d, -v.0),
            _ => PrimExpr::raw(PrimKind::Neg(self), d),
        }
    }
    /// No node when the type is already `dtype`; literals are converted.
    pub fn cast(self, dtype: DType) -> PrimExpr {
        if self.dtype() == dtype {
            return self;
        }
        match self.kind() {
            PrimKind::Int(v) if dtype.is_float() => {
                let v = if self.dtype() == DType::U64 { *v as u64 as f64 } else { *v as f64 };
                PrimExpr::float(dtype, v)
            }
            PrimKind::Int(v) if dtype.is_bool() => PrimExpr::bool(*v != 0),
            PrimKind::Int(v) if dtype.is_int() => PrimExpr::int(dtype, *v),
            PrimKind::Float(v) if dtype.is_float() => PrimExpr::float(dtype, v.0),
            // What fits a byte need not become one on the way: registers have room for few.
            PrimKind::Cast(v) if dtype.element() == DType::I32 && v.is_clipped_to(self.dtype().element()) => {
                v.clone().cast(dtype)
            }
            _ => PrimExpr::raw(PrimKind::Cast(self), dtype),
        }
    }

    /// Is a float32 clipped to what a byte of this type can be?
    fn is_clipped_to(&self, byte: DType) -> bool {
        let (low, high) = match byte {
            DType::U8 => (0.0, 255.0),
            DType::I8 => (-128.0, 127.0),
            _ => return false,
        };
        let bound = |e: &PrimExpr| match e.kind() {
            PrimKind::Broadcast(s) => s.as_float(),
            _ => e.as_float(),
        };
        let one = |op: BinOp, e: &PrimExpr, within: &dyn Fn(f64) -> bool| match e.kind() {
            PrimKind::Binary(o, a, b) if *o == op && bound(b).is_some_and(within) => Some(a.clone()),
            PrimKind::Binary(o, a, b) if *o == op && bound(a).is_some_and(within) => Some(b.clone()),
            _ => None,
        };
        let inside = |v: f64| low <= v && v <= high;
        let between = |outer: BinOp, inner: BinOp| {
            one(outer, self, &inside).is_some_and(|rest| one(inner, &rest, &inside).is_some())
        };
        self.dtype().element() == DType::F32 && (between(BinOp::Max, BinOp::Min) || between(BinOp::Min, BinOp::Max))
    }

    pub fn reinterpret(self, dtype: DType) -> PrimExpr {
        if self.dtype() == dtype {
            return self;
        }
        PrimExpr::raw(PrimKind::Reinterpret(self), dtype)
    }
    pub fn select(self, t: impl Into<PrimExpr>, f: impl Into<PrimExpr>) -> PrimExpr {
        let (t, f) = (t.into(), f.into());
        match self.as_int() {
            Some(0) => f,
            Some(_) => t,
            None => {
                let d = t.dtype();
                PrimExpr::raw(PrimKind::Select(self, t, f), d)
            }
        }
    }
    pub fn if_then_else(self, t: impl Into<PrimExpr>, f: impl Into<PrimExpr>) -> PrimExpr {
        let (t, f) = (t.into(), f.into());
        match self.as_int() {
            Some(0) => f,
            Some(_) => t,
            None => {
                let d = t.dtype();
                PrimExpr::raw(PrimKind::IfThenElse(self, t, f), d)
            }
        }
    }
    /// A call of an intrinsic whose result has the type of its first argument (bool for the predicates, uint8 for
    /// [`Intrin::Bytes`] and [`Intrin::WovenBytes`]).
    pub fn call(f: Intrin, args: impl Into<Arc<[PrimExpr]>>) -> PrimExpr {
        let args = args.into();
        let first = args.first().map_or(DType::F32, |a| a.dtype());
        let dtype = match f {
            Intrin::IsNan | Intrin::IsInf | Intrin::IsFinite => DType::BOOL.with_lanes(first.lanes),
            Intrin::ReduceAdd | Intrin::ReduceMul | Intrin::ReduceMax | Intrin::ReduceMin | Intrin::ExtractLane => {
                first.element()
            }
            Intrin::Stretch => {
                let times = args.get(1).and_then(PrimExpr::as_int).unwrap_or(1);
                first.with_lanes((first.lanes as i64 * times) as u16)
            }
            Intrin::Turns => first.with_lanes(2 * first.lanes),
            Intrin::Bytes | Intrin::WovenBytes => DType::U8.with_lanes(args.iter().map(|a| a.dtype().lanes).sum()),
            _ => first,
        };
        PrimExpr::raw(PrimKind::Call(f, args), dtype)
    }
    pub fn call1(self, f: Intrin) -> PrimExpr {
        PrimExpr::call(f, [self])
    }
    pub fn load(buffer: &Buffer, indices: impl Into<Arc<[PrimExpr]>>) -> PrimExpr {
        PrimExpr::raw(PrimKind::BufferLoad(buffer.clone(), indices.into()), buffer.dtype())
    }
    /// Flat form: `dtype.lanes` consecutive elements from element `offset` of `ptr`.
    pub fn load_ptr(ptr: PrimExpr, offset: PrimExpr, dtype: DType) -> PrimExpr {
        PrimExpr::raw(PrimKind::Load { ptr, offset }, dtype)
    }
    /// Flat form: [`Intrin::TileRows`].
    pub fn tile_rows(ptr: PrimExpr, stride: PrimExpr, dtype: DType) -> PrimExpr {
        PrimExpr::raw(PrimKind::Call(Intrin::TileRows, [ptr, stride].into()), dtype)
    }
    pub fn let_in(var: Var, value: PrimExpr, body: PrimExpr) -> PrimExpr {
        let d = body.dtype();
        PrimExpr::raw(PrimKind::Let(var, value, body), d)
    }
    pub fn ramp(self, stride: PrimExpr, lanes: u16) -> PrimExpr {
        let d = self.dtype().with_lanes(lanes);
        PrimExpr::raw(PrimKind::Ramp(self, stride), d)
    }
    pub fn broadcast(self, lanes: u16) -> PrimExpr {
        if lanes == 1 {
            return self;
        }
        let d = self.dtype().with_lanes(lanes);
        PrimExpr::raw(PrimKind::Broadcast(self), d)
    }
    /// Flat form: pointer plus bytes.
    pub fn ptr_add(self, bytes: impl Into<PrimExpr>) -> PrimExpr {
        let bytes = bytes.into();
        if bytes.is_int(0) {
            return self;
        }
        PrimExpr::raw(PrimKind::PtrAdd(self, bytes), DType::HANDLE)
    }
    /// The product of dims; 1 for none.
    pub fn product<'a>(dims: impl IntoIterator<Item = &'a PrimExpr>) -> PrimExpr {
        dims.into_iter().fold(PrimExpr::i64(1), |a, d| a * d.clone())
    }
}

/// Wraps `v` to the width and signedness of an integer type; bool is `!= 0`.
pub fn wrap_int(dtype: DType, v: i64) -> i64 {
    if dtype.is_bool() {
        return (v != 0) as i64;
    }
    let b = dtype.bits as u32;
    if b == 0 || b >= 64 {
        return v;
    }
    let s = 64 - b;
    if dtype.is_signed() {
        (v << s) >> s
    } else {
        ((v as u64) << s >> s) as i64
    }
}

/// Rounds to the precision of a float type.
pub fn round_float(dtype: DType, v: f64) -> f64 {
    match (dtype.code, dtype.bits) {
        (crate::TypeCode::Float, 32) => v as f32 as f64,
        (crate::TypeCode::Float, 16) => half::f16::from_f64(v).to_f64(),
        (crate::TypeCode::BFloat, _) => half::bf16::from_f64(v).to_f64(),
        (crate::TypeCode::Small(s), _) => s.round(v),
        _ => v,
    }
}

/// Floor division of i64; `None` for a zero divisor.
pub fn floor_div(a: i64, b: i64) -> Option<i64> {
    let q = a.checked_div(b)?;
    Some(if a % b != 0 && ((a < 0) != (b < 0)) { q - 1 } else { q })
}

/// Floor modulus of i64; `None` for a zero divisor.
pub fn floor_mod(a: i64, b: i64) -> Option<i64> {
    let r = a.checked_rem(b)?;
    Some(if r != 0 && ((r < 0) != (b < 0)) { r + b } else { r })
}

fn fold_binary(op: BinOp, a: &PrimExpr, b: &PrimExpr) -> Option<PrimExpr> {
    use BinOp::*;
    let d = a.dtype();
    if d.lanes != 1 {
        return None;
    }
    if let (Some(x), Some(y)) = (a.as_int(), b.as_int()) {
        let (ux, uy) = (x as u64, y as u64);
        let unsigned = d.is_uint();
        let int = |v: i64| Some(PrimExpr::int(d, v));
        let less = if unsigned { ux < uy } else { x < y };
        // What leaves 64 bits stays as written: as a dim it is refused.
        let wraps = d != DType::I64;
        return match op {
            Add => int(x.checked_add(y).or_else(|| wraps.then(|| x.wrapping_add(y)))?),
            Sub => int(x.checked_sub(y).or_else(|| wraps.then(|| x.wrapping_sub(y)))?),
            Mul => int(x.checked_mul(y).or_else(|| wraps.then(|| x.wrapping_mul(y)))?),
            Div | TruncDiv if unsigned => int(ux.checked_div(uy)? as i64),
            TruncMod | FloorMod if unsigned => int(ux.checked_rem(uy)? as i64),
            FloorDiv if unsigned => int(ux.checked_div(uy)? as i64),
            Div | TruncDiv => int(x.checked_div(y)?),
            TruncMod => int(x.checked_rem(y)?),
            FloorDiv => int(floor_div(x, y)?),
            FloorMod => int(floor_mod(x, y)?),
            Min => int(if less { x } else { y }),
            Max => int(if less { y } else { x }),
            Eq => Some(PrimExpr::bool(x == y)),
            Ne => Some(PrimExpr::bool(x != y)),
            Lt => Some(PrimExpr::bool(less)),
            Le => Some(PrimExpr::bool(less || x == y)),
            Gt => Some(PrimExpr::bool(!less && x != y)),
            Ge => Some(PrimExpr::bool(!less)),
            And => Some(PrimExpr::bool(x != 0 && y != 0)),
            Or => Some(PrimExpr::bool(x != 0 || y != 0)),
            BitAnd => int(x & y),
            BitOr => int(x | y),
            BitXor => int(x ^ y),
            Shl if (0..d.bits as i64).contains(&y) => int(x << y),
            Shr if (0..d.bits as i64).contains(&y) => int(if unsigned { (ux >> y) as i64 } else { x >> y }),
            _ => None,
        };
    }
    match op {
        And if a.is_int(1) => return Some(b.clone()),
        And if b.is_int(1) => return Some(a.clone()),
        And if a.is_int(0) || b.is_int(0) => return Some(PrimExpr::bool(false)),
        Or if a.is_int(0) => return Some(b.clone()),
        Or if b.is_int(0) => return Some(a.clone()),
        Or if a.is_int(1) || b.is_int(1) => return Some(PrimExpr::bool(true)),
        _ => {}
    }
    if !d.is_int() {
        return None;
    }
    match op {
        Add if a.is_int(0) => Some(b.clone()),
        Add | Sub if b.is_int(0) => Some(a.clone()),
        Sub if a == b => Some(PrimExpr::int(d, 0)),
        // Keep sums of the form (x + c1) + c2 flat: what shape code and index code make most.
        Add | Sub if b.as_int().is_some() => match a.kind() {
            PrimKind::Binary(inner @ (Add | Sub), x, c) if c.as_int().is_some() => {
                let c1 = if *inner == Add { c.as_int()? } else { c.as_int()?.wrapping_neg() };
                let c2 = if op == Add { b.as_int()? } else { b.as_int()?.wrapping_neg() };
                let c = wrap_int(d, c1.wrapping_add(c2));
                Some(if c < 0 && d.is_signed() && c != i64::MIN {
                    PrimExpr::binary(Sub, x.clone(), PrimExpr::int(d, -c))
                } else {
                    PrimExpr::binary(Add, x.clone(), PrimExpr::int(d, c))
                })
            }
            _ => None,
        },
        Mul if a.is_int(0) || b.is_int(0) => Some(PrimExpr::int(d, 0)),
        Mul if a.is_int(1) => Some(b.clone()),
        Mul if b.is_int(1) => Some(a.clone()),
        FloorDiv | TruncDiv | Div if b.is_int(1) => Some(a.clone()),
        FloorMod | TruncMod if b.is_int(1) => Some(PrimExpr::int(d, 0)),
        Min | Max if a == b => Some(a.clone()),
        Eq | Le | Ge if a == b => Some(PrimExpr::bool(true)),
        Ne | Lt | Gt if a == b => Some(PrimExpr::bool(false)),
        _ => None,
    }
}

macro_rules! operator {
    ($trait:ident, $method:ident, $op:ident) => {
        impl<T: Into<PrimExpr>> std::ops::$trait<T> for PrimExpr {
            type Output = PrimExpr;
            fn $method(self, o: T) -> PrimExpr {
                PrimExpr::binary(BinOp::$op, self, o.into())
            }
        }
    };
}
operator!(Add, add, Add);
operator!(Sub, sub, Sub);
operator!(Mul, mul, Mul);
operator!(Div, div, Div);

#[cfg(test)]
mod tests {
    use super::*;

    /// A byte on the way to int32 goes where the float is clipped to the byte's range, and nowhere else.
    #[test]
    fn clipped_floats_become_integers_without_a_byte() {
        let clipped = |low: f32, high: f32| {
            let x = Var::new("x", DType::F32).expr();
            x.min(PrimExpr::f32(high)).max(PrimExpr::f32(low))
        };
        for (low, high, byte, goes) in [
            (0.0, 255.0, DType::U8, true),
            (3.0, 200.0, DType::U8, true),
            (-1.0, 255.0, DType::U8, false),
            (0.0, 256.0, DType::U8, false),
            (-128.0, 127.0, DType::I8, true),
            (-129.0, 127.0, DType::I8, false),
            (0.0, 255.0, DType::I8, false),
            (0.0, 255.0, DType::U16, false),
        ] {
            let v = clipped(low, high);
            let made = v.clone().cast(byte).cast(DType::I32);
            assert_eq!(made == v.cast(DType::I32), goes, "{low} {high} {byte}");
        }
        let open = Var::new("x", DType::F32).expr().max(PrimExpr::f32(0.0));
        assert_ne!(open.clone().cast(DType::U8).cast(DType::I32), open.cast(DType::I32));
    }
}
