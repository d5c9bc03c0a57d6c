//! Expressions of one lane: scalars, and vectors inside a loop over their lanes.

use super::func::{declare, fits32, Bound, Fx, Level, Text};
use super::types::{is_half, unsigned, value_type, wide_name};
use relax_ir::prim::{BinOp, Intrin, PrimExpr, PrimKind};
use relax_ir::{DType, Diagnostic, TypeCode};

impl Fx<'_> {
    /// The value of an expression, or of the lane at hand of a vector. What must be computed before is written out as
    /// statements.
    pub fn value(&mut self, e: &PrimExpr) -> Result<Text, Diagnostic> {
        let d = e.dtype();
        if d.lanes > 1 && !self.lane {
            return Err(self.fault("a vector where a number is needed"));
        }
        if d.bits < 8 {
            let message = format!("no C code for values of type {d}");
            return Err(Diagnostic::unsupported("dtype", self.f.span, message));
        }
        if let PrimKind::Var(v) = e.kind() {
            return match self.bindings.get(&v.id()) {
                Some(Bound::Value(t)) => Ok(t.clone()),
                Some(Bound::Array(name)) => Ok(Text::atom(format!("{name}[l]"))),
                None => Err(self.fault(format!("variable `{}` has no value here", v.name()))),
            };
        }
        if (d.is_int() || d.is_bool()) && d.lanes == 1 {
            let r = self.ranges.of(e);
            if r.0 == r.1 {
                return Ok(int_literal(d, r.0));
            }
        }
        let key = e.kind() as *const PrimKind as usize;
        if let Some(t) = self.memo.iter().rev().find_map(|m| m.get(&key)) {
            return Ok(t.clone());
        }
        let mut t = self.node(e)?;
        if self.repeated.contains(&key) && t.level != Level::Atom || self.repeats_a_load(e, key) {
            let name = self.names.add("v");
            let as32 = t.narrow && self.narrows();
            let d = if as32 { DType::I32 } else { d.element() };
            let constant = if d.is_handle() { "" } else { "const " };
            self.define(&name, format!("{constant}{} = {};", declare(d, &name), t.s));
            t = Text { s: name, level: Level::Atom, narrow: as32 };
        }
        if self.repeated.contains(&key) {
            if let Some(m) = self.memo.last_mut() {
                m.insert(key, t.clone());
            }
        }
        Ok(t)
    }

    fn repeats_a_load(&self, e: &PrimExpr, key: usize) -> bool {
        matches!(e.kind(), PrimKind::Load { .. }) && self.repeated.contains(&key)
    }

    fn node(&mut self, e: &PrimExpr) -> Result<Text, Diagnostic> {
        let d = e.dtype().element();
        Ok(match e.kind() {
            PrimKind::Int(v) if d.is_float() => float_literal(d, *v as f64, self),
            PrimKind::Int(v) if d == DType::U64 => int_literal(d, i128::from(*v as u64)),
            PrimKind::Int(v) => int_literal(d, i128::from(*v)),
            PrimKind::Float(v) => float_literal(d, v.0, self),
            PrimKind::Str(t) => Text::new(format!("(void *){}", crate::header::literal(t)), Level::Unary),
            PrimKind::Cast(a) => self.cast(a, d)?,
            PrimKind::Reinterpret(a) => self.reinterpret(a, d)?,
            PrimKind::Binary(op, a, b) => self.binary(*op, a, b, e)?,
            PrimKind::Not(a) => {
                let v = self.value(a)?;
                Text::new(format!("!{}", v.at(Level::Unary)), Level::Unary)
            }
            PrimKind::Neg(a) => self.neg(a, e)?,
            PrimKind::Select(c, t, f) => {
                let (c, t, f) = (self.value(c)?, self.value(t)?, self.value(f)?);
                choice(&c, &t, &f)
            }
            PrimKind::IfThenElse(c, t, f) => self.if_then_else(c, t, f, d)?,
            PrimKind::Load { ptr, offset } if e.dtype().lanes > 1 => self.load_lane(ptr, offset, d)?,
            PrimKind::Load { ptr, offset } => self.element(ptr, offset, d)?,
            PrimKind::Call(f, args) => self.intrinsic(*f, args, d)?,
            PrimKind::Ramp(base, stride) => {
                let (b, s) = (self.value(base)?, self.value(stride)?);
                let step = if s.s == "1" { "l".to_string() } else { format!("l * {}", s.at(Level::Unary)) };
                Text::new(format!("({})({} + {step})", value_type(d), b.at(Level::Add)), Level::Unary)
            }
            PrimKind::Broadcast(a) => self.value(a)?,
            PrimKind::PtrAdd(p, k) => self.pointer(p, k)?,
            PrimKind::Let(..) => {
                let mut e = e;
                while let PrimKind::Let(var, value, body) = e.kind() {
                    if self.bindings.contains_key(&var.id()) {
                        // Bound before, perhaps to something else.
                        self.memo.iter_mut().for_each(|m| m.clear());
                    }
                    self.bind(var, value)?;
                    e = body;
                }
                self.value(e)?
            }
            PrimKind::Var(_) => return self.value(e),
            PrimKind::BufferLoad(..) => return Err(self.fault("a buffer access is left in flat form")),
        })
    }

    /// A pointer some bytes further.
    fn pointer(&mut self, p: &PrimExpr, k: &PrimExpr) -> Result<Text, Diagnostic> {
        let base = self.value(p)?;
        let element = p.as_var().and_then(|v| self.pointers.pointee(v).element);
        if let Some(d) = element {
            let size = super::pointers::element_bytes(d, self.shared.pointer_bytes);
            if let Some(k) = self.definitions.divide(k, size, &self.locals) {
                self.keep(&k);
                let k = self.value(&k)?;
                if k.s == "0" {
                    return Ok(base);
                }
                return Ok(Text::new(format!("{} + {}", base.at(Level::Add), k.at(Level::Mul)), Level::Add));
            }
        }
        let k = self.value(k)?;
        if k.s == "0" {
            return Ok(base);
        }
        Ok(Text::new(format!("(void *)((char *){} + {})", base.at(Level::Unary), k.at(Level::Mul)), Level::Unary))
    }

    fn neg(&mut self, a: &PrimExpr, e: &PrimExpr) -> Result<Text, Diagnostic> {
        let d = e.dtype().element();
        if is_half(d) {
            let v = self.float(a)?;
            return Ok(self.half_bits(Text::new(format!("-{}", v.at(Level::Atom)), Level::Unary), DType::F32, d));
        }
        let v = self.value(a)?;
        if d.is_float() {
            return Ok(Text::new(format!("-{}", v.at(Level::Atom)), Level::Unary));
        }
        let u = value_type(unsigned(d));
        Ok(Text::new(format!("({})(0u - ({u}){})", value_type(d), v.at(Level::Unary)), Level::Unary))
    }

    /// Only the chosen side is evaluated.
    fn if_then_else(&mut self, c: &PrimExpr, t: &PrimExpr, f: &PrimExpr, d: DType) -> Result<Text, Diagnostic> {
        let c = self.value(c)?;
        let name = self.names.add("chosen");
        let mut sides = vec![];
        for e in [t, f] {
            let (v, text) = self.branch(|s| {
                let v = s.value(e)?;
                s.line(format!("{name} = {};", v.s));
                Ok(v)
            })?;
            let alone = text == format!("{name} = {};\n", v.s);
            sides.push((v, text, alone));
        }
        if let [(yes, _, true), (no, _, true)] = sides.as_slice() {
            return Ok(choice(&c, yes, no));
        }
        let text: Vec<String> = sides.iter().map(|s| super::func::indent(&s.1)).collect();
        self.line(format!("{};", declare(d, &name)));
        self.line(format!("if ({}) {{\n{}}}", c.s, text.join("} else {\n")));
        Ok(Text::atom(name))
    }

    // ---- arithmetic -----------------------------------------------------------------------------------------------

    fn binary(&mut self, op: BinOp, a: &PrimExpr, b: &PrimExpr, e: &PrimExpr) -> Result<Text, Diagnostic> {
        let d = a.dtype().element();
        if matches!(op, BinOp::And | BinOp::Or) {
            return self.logic(op, a, b);
        }
        if is_half(d) {
            let (x, y) = (self.float(a)?, self.float(b)?);
            let r = self.float_op(op, &x, &y, DType::F32);
            return Ok(if op.is_predicate() { r } else { self.half_bits(r, DType::F32, d) });
        }
        if d.is_bool() {
            let (x, y) = (self.value(a)?, self.value(b)?);
            let c = match op {
                BinOp::BitAnd | BinOp::Min | BinOp::Mul => "&",
                BinOp::BitOr | BinOp::Max | BinOp::Add => "|",
                BinOp::Eq => "==",
                BinOp::Lt => "<",
                BinOp::Le => "<=",
                BinOp::Gt => ">",
                BinOp::Ge => ">=",
                _ => "!=",
            };
            return Ok(infix(&x, c, &y, Level::Loose));
        }
        if d.is_float() {
            let (x, y) = (self.value(a)?, self.value(b)?);
            return Ok(self.float_op(op, &x, &y, d));
        }
        if op.is_compare() {
            if let Some(t) = self.null_test(op, a, b)? {
                return Ok(t);
            }
            let (x, y) = (self.value(a)?, self.value(b)?);
            return Ok(infix(&x, compare(op), &y, Level::Loose));
        }
        self.int_op(op, a, b, e)
    }

    fn logic(&mut self, op: BinOp, a: &PrimExpr, b: &PrimExpr) -> Result<Text, Diagnostic> {
        let x = self.value(a)?;
        let name = self.names.add("both");
        let (y, more) = self.branch(|s| {
            let v = s.value(b)?;
            s.line(format!("{name} = {};", v.s));
            Ok(v)
        })?;
        if more == format!("{name} = {};\n", y.s) {
            return Ok(infix(&x, if op == BinOp::And { "&&" } else { "||" }, &y, Level::Loose));
        }
        self.line(format!("uint8_t {name} = {};", x.s));
        let not = if op == BinOp::And { "" } else { "!" };
        self.line(format!("if ({not}{name}) {{\n{}}}", super::func::indent(&more)));
        Ok(Text::atom(name))
    }

    /// Tests of a pointer against null are written as such.
    fn null_test(&mut self, op: BinOp, a: &PrimExpr, b: &PrimExpr) -> Result<Option<Text>, Diagnostic> {
        let pointer = match a.kind() {
            PrimKind::Cast(p) if p.dtype().is_handle() && b.is_int(0) => p,
            _ if a.dtype().is_handle() && b.is_int(0) => a,
            _ => return Ok(None),
        };
        let sign = match op {
            BinOp::Eq => "==",
            BinOp::Ne => "!=",
            _ => return Ok(None),
        };
        let p = self.value(pointer)?;
        Ok(Some(Text::new(format!("{} {sign} NULL", p.at(Level::Add)), Level::Loose)))
    }

    fn float_op(&mut self, op: BinOp, x: &Text, y: &Text, d: DType) -> Text {
        let w = wide_name(d);
        let call = |s: &mut Self, name: &str, args: &[&Text]| s.call_helper(&format!("{name}_{w}"), args);
        match op {
            BinOp::Add => infix(x, "+", y, Level::Add),
            BinOp::Sub => infix(x, "-", y, Level::Add),
            BinOp::Mul => infix(x, "*", y, Level::Mul),
            BinOp::Div => infix(x, "/", y, Level::Mul),
            BinOp::Min => call(self, "min", &[x, y]),
            BinOp::Max => call(self, "max", &[x, y]),
            BinOp::FloorDiv | BinOp::TruncDiv => {
                let q = infix(x, "/", y, Level::Mul);
                call(self, if op == BinOp::FloorDiv { "floor" } else { "trunc" }, &[&q])
            }
            BinOp::FloorMod | BinOp::TruncMod => {
                let whole = if op == BinOp::FloorMod { BinOp::FloorDiv } else { BinOp::TruncDiv };
                let q = self.float_op(whole, x, y, d);
                let p = infix(&q, "*", y, Level::Mul);
                infix(x, "-", &p, Level::Add)
            }
            _ => infix(x, compare(op), y, Level::Loose),
        }
    }

    fn int_op(&mut self, op: BinOp, a: &PrimExpr, b: &PrimExpr, e: &PrimExpr) -> Result<Text, Diagnostic> {
        let d = a.dtype().element();
        let (x, y) = (self.value(a)?, self.value(b)?);
        let (ra, rb) = (self.ranges.of(a), self.ranges.of(b));
        let r = self.ranges.of(e);
        let wide = wide_name(d);
        let small = fits32(ra) && fits32(rb);
        // On 64-bit integers that fit 32 bits.
        let narrow = x.narrow && y.narrow && fits32(r);
        let w = if d == DType::I64 && narrow { "i32" } else { wide };
        let mut t = match op {
            BinOp::Add | BinOp::Sub | BinOp::Mul => return Ok(self.sum(op, (a, x), (b, y), e)),
            BinOp::BitAnd => infix(&x, "&", &y, Level::Loose),
            BinOp::BitOr => infix(&x, "|", &y, Level::Loose),
            BinOp::BitXor => infix(&x, "^", &y, Level::Loose),
            BinOp::Min => self.call_helper(&format!("min_{w}"), &[&x, &y]),
            BinOp::Max => self.call_helper(&format!("max_{w}"), &[&x, &y]),
            BinOp::Div | BinOp::TruncDiv | BinOp::FloorDiv | BinOp::TruncMod | BinOp::FloorMod => {
                let modulo = matches!(op, BinOp::TruncMod | BinOp::FloorMod);
                let plain = rb.0 > 0 && (ra.0 >= 0 || !matches!(op, BinOp::FloorDiv | BinOp::FloorMod));
                if plain {
                    infix(&x, if modulo { "%" } else { "/" }, &y, Level::Mul)
                } else {
                    let floor = matches!(op, BinOp::FloorDiv | BinOp::FloorMod) && d.is_signed();
                    let name = format!("{}{}", if floor { "floor" } else { "" }, if modulo { "mod" } else { "div" });
                    self.call_helper(&format!("{name}_{w}"), &[&x, &y])
                }
            }
            BinOp::Shl | BinOp::Shr => return Ok(self.shift(op, &x, &y, d, rb)),
            _ => return Err(self.fault(format!("{op:?} of integers"))),
        };
        t.narrow = narrow && small;
        // Sums of promoted numbers may leave the type.
        if d.bits < 32 && !matches!(op, BinOp::Min | BinOp::Max | BinOp::TruncMod | BinOp::FloorMod) {
            t = Text::new(format!("({}){}", value_type(d), t.at(Level::Atom)), Level::Unary);
        }
        Ok(t)
    }

    /// Sums, differences and products: plain where nothing can overflow, else around the corner.
    fn sum(&mut self, op: BinOp, (a, x): (&PrimExpr, Text), (b, y): (&PrimExpr, Text), e: &PrimExpr) -> Text {
        let d = a.dtype().element();
        let (c, level) = match op {
            BinOp::Add => ("+", Level::Add),
            BinOp::Sub => ("-", Level::Add),
            _ => ("*", Level::Mul),
        };
        let limits = super::ranges::of_type(d);
        let exact = self.ranges.exact(op, a, b).unwrap_or(limits);
        let fits = limits.0 <= exact.0 && exact.1 <= limits.1;
        if d.is_handle() || d == DType::I64 {
            if fits || !self.ranges.is_data(e) {
                // Neutral operands come from constants that were found on the way.
                match (op, x.s.as_str(), y.s.as_str()) {
                    (BinOp::Add, "0", _) | (BinOp::Mul, "1", _) => return y,
                    (BinOp::Add | BinOp::Sub, _, "0") | (BinOp::Mul, _, "1") => return x,
                    _ => {}
                }
                let narrow = x.narrow && y.narrow && fits32(exact);
                let x = if x.narrow && y.narrow && !narrow { widen(&x) } else { x };
                return Text { narrow, ..infix(&x, c, &y, level) };
            }
            return self.call_helper(&format!("{}_i64", op_name(op)), &[&x, &y]);
        }
        if d.is_signed() && d.bits == 32 {
            if fits {
                return infix(&x, c, &y, level);
            }
            return self.call_helper(&format!("{}_i32", op_name(op)), &[&x, &y]);
        }
        if d.bits >= 32 {
            return infix(&x, c, &y, level);
        }
        // int8 to uint16: `int` holds every sum and product but that of two large uint16.
        let t = if op == BinOp::Mul && d.bits == 16 && !d.is_signed() {
            Text::new(format!("(uint32_t){} * {}", x.at(Level::Unary), y.at(Level::Unary)), Level::Mul)
        } else {
            infix(&x, c, &y, level)
        };
        if fits {
            return t;
        }
        Text::new(format!("({}){}", value_type(d), t.at(Level::Atom)), Level::Unary)
    }

    fn shift(&mut self, op: BinOp, x: &Text, y: &Text, d: DType, amount: (i128, i128)) -> Text {
        let bits = i128::from(d.bits);
        let n = if amount.0 >= 0 && amount.1 < bits {
            y.at(Level::Add)
        } else {
            format!("({} & {})", y.at(Level::Add), bits - 1)
        };
        let t = value_type(d);
        let u = value_type(unsigned(if d.bits < 32 { DType::U32 } else { d }));
        if op == BinOp::Shl {
            return Text::new(format!("({t})(({u}){} << {n})", x.at(Level::Unary)), Level::Unary);
        }
        if d.is_signed() {
            let y = Text::atom(format!("(uint32_t){n}"));
            let shifted = self.call_helper(&format!("sar_{}", wide_name(d)), &[x, &y]);
            return if d.bits < 32 { Text::new(format!("({t}){}", shifted.s), Level::Unary) } else { shifted };
        }
        Text::new(format!("({t})({} >> {n})", x.at(Level::Add)), Level::Unary)
    }

    pub fn call_helper(&mut self, name: &str, args: &[&Text]) -> Text {
        let known = super::support::known(name);
        self.use_helper(known);
        let args: Vec<&str> = args.iter().map(|a| a.s.as_str()).collect();
        Text::atom(format!("{known}({})", args.join(", ")))
    }

    // ---- conversions ----------------------------------------------------------------------------------------------

    /// The value as `float` or `double`; of 16-bit floats as `float`.
    pub fn float(&mut self, e: &PrimExpr) -> Result<Text, Diagnostic> {
        let d = e.dtype().element();
        let v = self.value(e)?;
        Ok(if is_half(d) { self.widen_half(&v, d) } else { v })
    }

    fn widen_half(&mut self, v: &Text, d: DType) -> Text {
        self.call_helper(if d.code == TypeCode::BFloat { "bf16_to_f32" } else { "f16_to_f32" }, &[v])
    }

    /// From float or double to the bits of a 16-bit float.
    fn half_bits(&mut self, v: Text, from: DType, to: DType) -> Text {
        let v = if from == DType::F64 { self.call_helper("f64_to_odd_f32", &[&v]) } else { v };
        self.call_helper(if to.code == TypeCode::BFloat { "f32_to_bf16" } else { "f32_to_f16" }, &[&v])
    }

    fn cast(&mut self, a: &PrimExpr, to: DType) -> Result<Text, Diagnostic> {
        let from = a.dtype().element();
        if from == to {
            return self.value(a);
        }
        if is_half(from) {
            let v = self.float(a)?;
            return Ok(self.cast_text(&v, DType::F32, to, None));
        }
        let range = if from.is_int() || from.is_bool() { Some(self.ranges.of(a)) } else { None };
        let v = self.value(a)?;
        Ok(self.cast_text(&v, from, to, range))
    }

    fn cast_text(&mut self, v: &Text, from: DType, to: DType, range: Option<(i128, i128)>) -> Text {
        if from == to {
            return v.clone();
        }
        let plain = |v: &Text| Text::new(format!("({}){}", value_type(to), v.at(Level::Unary)), Level::Unary);
        if is_half(to) {
            let (v, from) = match from {
                d if d.is_float() => (v.clone(), d),
                // Wide integers go through double, as they may not fit float exactly.
                d if d.bits >= 32 => (Text::new(format!("(double){}", v.at(Level::Unary)), Level::Unary), DType::F64),
                _ => (Text::new(format!("(float){}", v.at(Level::Unary)), Level::Unary), DType::F32),
            };
            return self.half_bits(v, from, to);
        }
        if to.is_bool() {
            let zero = if from == DType::F32 {
                "0.0f"
            } else if from.is_float() {
                "0.0"
            } else {
                "0"
            };
            return Text::new(format!("{} != {zero}", v.at(Level::Add)), Level::Loose);
        }
        if from.is_handle() && !to.is_handle() {
            return Text::new(format!("({})(intptr_t){}", value_type(to), v.at(Level::Unary)), Level::Unary);
        }
        if to.is_handle() {
            if v.s == "0" {
                return Text::atom("NULL");
            }
            return Text::new(format!("(void *)(intptr_t){}", v.at(Level::Unary)), Level::Unary);
        }
        if from.is_float() && !to.is_float() {
            let source = if from.bits == 64 { "f64" } else { "f32" };
            if to.bits >= 32 {
                return self.call_helper(&format!("{source}_to_{}", wide_name(to)), &[v]);
            }
            let wide = self.call_helper(&format!("{source}_to_i32"), &[v]);
            let lo = Text::atom(to.int_min().to_string());
            let hi = Text::atom(to.int_max().to_string());
            let low = self.call_helper("max_i32", &[&wide, &lo]);
            let t = self.call_helper("min_i32", &[&low, &hi]);
            return Text::new(format!("({}){}", value_type(to), t.s), Level::Unary);
        }
        if let (true, Some(r)) = (to == DType::I64 && self.narrows(), range) {
            // Stays in 32 bits as long as it fits.
            if fits32(r) && (from.is_signed() || from.bits < 32) {
                return Text { narrow: true, ..v.clone() };
            }
            if fits32(r) {
                return Text { narrow: true, ..Text::new(format!("(int32_t){}", v.at(Level::Unary)), Level::Unary) };
            }
        }
        plain(v)
    }

    fn reinterpret(&mut self, a: &PrimExpr, to: DType) -> Result<Text, Diagnostic> {
        let from = a.dtype().element();
        if from.bits != to.bits || from.is_handle() != to.is_handle() {
            return Err(self.fault(format!("reinterpretation of {from} as {to}")));
        }
        let v = self.value(a)?;
        let (x, y) = (from.is_float() && !is_half(from), to.is_float() && !is_half(to));
        Ok(match (x, y) {
            (false, true) => {
                let bits = Text::atom(format!("({}){}", value_type(unsigned(to)), v.at(Level::Unary)));
                self.call_helper(&format!("{}_of_bits", wide_name(to)), &[if from.is_uint() { &v } else { &bits }])
            }
            (true, false) => {
                let bits = self.call_helper(&format!("{}_bits", wide_name(from)), &[&v]);
                if to.is_uint() {
                    bits
                } else {
                    Text::new(format!("({}){}", value_type(to), bits.s), Level::Unary)
                }
            }
            _ if value_type(from) == value_type(to) => v,
            _ => Text::new(format!("({}){}", value_type(to), v.at(Level::Unary)), Level::Unary),
        })
    }

    // ---- intrinsics -----------------------------------------------------------------------------------------------

    fn intrinsic(&mut self, f: Intrin, args: &[PrimExpr], d: DType) -> Result<Text, Diagnostic> {
        let Some(first) = args.first() else {
            return Err(self.fault(format!("T.{} without arguments", f.name())));
        };
        let from = first.dtype().element();
        match f {
            Intrin::ReduceAdd | Intrin::ReduceMul | Intrin::ReduceMax | Intrin::ReduceMin => {
                return self.reduce(f, first)
            }
            Intrin::ExtractLane => return self.extract(first, args.get(1).and_then(PrimExpr::as_int)),
            Intrin::Likely => return self.value(first),
            _ => {}
        }
        let mut v = vec![];
        for a in args {
            v.push(if from.is_float() { self.float(a)? } else { self.value(a)? });
        }
        let n = if f == Intrin::Fma { 3 } else { 1 + usize::from(f == Intrin::CopySign) };
        if v.len() < n {
            return Err(self.fault(format!("T.{} needs {n} arguments", f.name())));
        }
        let float = from.is_float();
        let w = wide_name(from);
        let one = |s: &mut Self, name: &str| s.call_helper(&format!("{name}_{w}"), &[&v[0]]);
        let r = match f {
            Intrin::Sqrt if float => one(self, "sqrt"),
            Intrin::Floor if float => one(self, "floor"),
            Intrin::Ceil if float => one(self, "ceil"),
            Intrin::Trunc if float => one(self, "trunc"),
            Intrin::Round | Intrin::NearbyInt if float => one(self, "nearest"),
            Intrin::Floor | Intrin::Ceil | Intrin::Trunc | Intrin::Round | Intrin::NearbyInt => v.swap_remove(0),
            Intrin::Abs | Intrin::Fabs if float || from.is_signed() => {
                let r = one(self, "abs");
                if from.is_signed() && from.bits < 32 {
                    Text::new(format!("({}){}", value_type(from), r.s), Level::Unary)
                } else {
                    r
                }
            }
            Intrin::Abs | Intrin::Fabs => v.swap_remove(0),
            Intrin::IsNan if float => {
                // A number is equal to itself.
                let x = self.named_once(&v[0], if from.bits == 64 { DType::F64 } else { DType::F32 });
                return Ok(infix(&x, "!=", &x, Level::Loose));
            }
            Intrin::IsNan => return Ok(Text::atom("0")),
            Intrin::CopySign if float => self.call_helper(&format!("copysign_{w}"), &[&v[0], &v[1]]),
            Intrin::Fma if float => self.call_helper(&format!("fma_{w}"), &[&v[0], &v[1], &v[2]]),
            Intrin::Fma => {
                let (a, b, c) = (first.clone(), args[1].clone(), args[2].clone());
                let e = a * b + c;
                self.keep(&e);
                return self.value(&e);
            }
            Intrin::BitNot if from.is_bool() => Text::new(format!("!{}", v[0].at(Level::Unary)), Level::Unary),
            Intrin::BitNot => Text::new(format!("({})~{}", value_type(from), v[0].at(Level::Unary)), Level::Unary),
            Intrin::PopCount | Intrin::Clz => {
                let x = Text::atom(format!("({}){}", value_type(unsigned(from)), v[0].at(Level::Unary)));
                let r = if f == Intrin::PopCount {
                    self.call_helper("popcount_u64", &[&x])
                } else {
                    let width = Text::atom(from.bits.to_string());
                    self.call_helper("clz_u64", &[&x, &width])
                };
                return Ok(Text::new(format!("({}){}", value_type(d), r.s), Level::Unary));
            }
            _ => return Err(self.fault(format!("T.{} of {from} was not expanded", f.name()))),
        };
        Ok(if is_half(from) && is_half(d) { self.half_bits(r, DType::F32, d) } else { r })
    }

    /// A text that may stand twice.
    fn named_once(&mut self, t: &Text, d: DType) -> Text {
        if t.level == Level::Atom && t.s.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return t.clone();
        }
        let name = self.names.add("v");
        self.define(&name, format!("const {} = {};", declare(d, &name), t.s));
        Text::atom(name)
    }
}

fn op_name(op: BinOp) -> &'static str {
    match op {
        BinOp::Add => "add",
        BinOp::Sub => "sub",
        _ => "mul",
    }
}

fn compare(op: BinOp) -> &'static str {
    match op {
        BinOp::Eq => "==",
        BinOp::Ne => "!=",
        BinOp::Lt => "<",
        BinOp::Le => "<=",
        BinOp::Gt => ">",
        _ => ">=",
    }
}

/// `x op y`; operations of one level group to the left.
fn infix(x: &Text, op: &str, y: &Text, level: Level) -> Text {
    let (left, right) = match level {
        Level::Add => (Level::Add, Level::Mul),
        Level::Mul => (Level::Mul, Level::Unary),
        _ if matches!(op, "<" | "<=" | ">" | ">=" | "==" | "!=") => (Level::Add, Level::Add),
        _ => (Level::Unary, Level::Unary),
    };
    Text::new(format!("{} {op} {}", x.at(left), y.at(right)), level)
}

fn choice(c: &Text, t: &Text, f: &Text) -> Text {
    let text = format!("{} ? {} : {}", c.at(Level::Add), t.at(Level::Add), f.at(Level::Add));
    Text { narrow: t.narrow && f.narrow, ..Text::new(text, Level::Loose) }
}

fn widen(t: &Text) -> Text {
    Text::new(format!("(int64_t){}", t.at(Level::Unary)), Level::Unary)
}

/// An integer literal of the type.
pub fn int_literal(d: DType, v: i128) -> Text {
    if d.is_handle() {
        return if v == 0 { Text::atom("NULL") } else { Text::new(format!("(void *)(intptr_t){v}"), Level::Unary) };
    }
    let s = match (d.code, d.bits) {
        (TypeCode::UInt, 64) => format!("{v}ULL"),
        (TypeCode::UInt, 32) => format!("{v}u"),
        _ if v == i128::from(i64::MIN) => "(-9223372036854775807LL - 1)".to_string(),
        _ if v == i128::from(i32::MIN) => "(-2147483647 - 1)".to_string(),
        _ if fits32((v, v)) => v.to_string(),
        _ => format!("{v}LL"),
    };
    Text { s, level: if v < 0 { Level::Unary } else { Level::Atom }, narrow: fits32((v, v)) }
}

fn float_literal(d: DType, v: f64, fx: &mut Fx) -> Text {
    if is_half(d) {
        let bits = if d.code == TypeCode::BFloat {
            half::bf16::from_f64(v).to_bits()
        } else {
            half::f16::from_f64(v).to_bits()
        };
        return Text::atom(format!("{bits:#x}"));
    }
    if d == DType::F64 {
        if !v.is_finite() {
            let bits = Text::atom(format!("{:#x}ULL", v.to_bits()));
            return fx.call_helper("f64_of_bits", &[&bits]);
        }
        return Text::new(format!("{v:?}"), if v.is_sign_negative() { Level::Unary } else { Level::Atom });
    }
    let f = v as f32;
    if !f.is_finite() {
        let bits = Text::atom(format!("{:#x}u", f.to_bits()));
        return fx.call_helper("f32_of_bits", &[&bits]);
    }
    Text::new(format!("{f:?}f"), if f.is_sign_negative() { Level::Unary } else { Level::Atom })
}
