//! Vectors of the assembler: arithmetic lane by lane, comparisons, intrinsics.

use super::*;

impl Builder {
    /// Only the chosen side is evaluated.
    pub(super) fn either(&mut self, c: &PrimExpr, t: &PrimExpr, f: &PrimExpr) -> Option<Val> {
        let d = t.dtype();
        let (no, exit) = (self.label(), self.label());
        let widths = if is_general(d) { vec![] } else { self.widths(units(d))? };
        let own: Vec<Reg> = match widths.len() {
            0 => vec![self.reg(Class::General)],
            n => (0..n).map(|_| self.lanes_reg()).collect(),
        };
        self.branch(c, false, no)?;
        for (side, last) in [(t, false), (f, true)] {
            self.memo.push(FnvHashMap::default());
            let v = self.value(side)?;
            self.memo.pop();
            match v {
                Val::General(s) => self.push(Inst::Set { d: own[0], s }),
                Val::Lanes { .. } => {
                    for (k, &w) in widths.iter().enumerate() {
                        let s = piece(&v, k)?;
                        self.push(Inst::Move { w, d: own[k], s });
                    }
                }
                _ => return None,
            }
            if !last {
                self.push(Inst::Jump(exit));
                self.push(Inst::Label(no));
            }
        }
        self.push(Inst::Label(exit));
        Some(if widths.is_empty() {
            Val::General(Opnd::Reg(own[0]))
        } else {
            Val::Lanes { regs: own, uniform: d.lanes == 1 }
        })
    }

    pub(super) fn op2(&self, op: BinOp, d: DType) -> Option<Op2> {
        let float = d.is_float();
        if is_double(d) {
            return Some(match op {
                BinOp::Add => Op2::AddD,
                BinOp::Sub => Op2::SubD,
                BinOp::Mul => Op2::MulD,
                BinOp::Div => Op2::DivD,
                BinOp::Min => Op2::MinD,
                BinOp::Max => Op2::MaxD,
                _ => return None,
            });
        }
        let signed = d.element() == DType::I32;
        Some(match op {
            BinOp::Add if float => Op2::AddF,
            BinOp::Sub if float => Op2::SubF,
            BinOp::Mul if float => Op2::MulF,
            BinOp::Div if float => Op2::DivF,
            BinOp::Min if float => Op2::MinF,
            BinOp::Max if float => Op2::MaxF,
            _ if float => return None,
            BinOp::And | BinOp::BitAnd => Op2::And,
            BinOp::Or | BinOp::BitOr => Op2::Or,
            BinOp::BitXor => Op2::Xor,
            _ if d.is_bool() => return None,
            BinOp::Add => Op2::AddI,
            BinOp::Sub => Op2::SubI,
            BinOp::Mul => Op2::MulI,
            BinOp::Min if signed => Op2::MinI,
            BinOp::Max if signed => Op2::MaxI,
            BinOp::Shl => Op2::Shl,
            BinOp::Shr if signed => Op2::Sar,
            BinOp::Shr => Op2::Shr,
            _ => return None,
        })
    }

    /// Applies `f` to each piece.
    pub(super) fn each(
        &mut self,
        lanes: u16,
        args: &[&Val],
        mut f: impl FnMut(&mut Self, u16, Reg, &[Reg]),
    ) -> Option<Val> {
        let uniform = args.iter().all(|a| matches!(a, Val::Lanes { uniform: true, .. }));
        let widths = self.widths(if uniform { 1 } else { lanes })?;
        let mut regs = vec![];
        for (k, w) in widths.into_iter().enumerate() {
            let pieces = args.iter().map(|a| piece(a, k)).collect::<Option<Vec<Reg>>>()?;
            let d = self.lanes_reg();
            f(self, w, d, &pieces);
            regs.push(d);
        }
        Some(Val::Lanes { regs, uniform })
    }

    pub(super) fn two(&mut self, op: Op2, lanes: u16, a: &Val, b: &Val) -> Option<Val> {
        self.each(lanes, &[a, b], |s, w, d, r| s.push(Inst::Two { op, w, d, a: r[0], b: r[1] }))
    }

    pub(super) fn one(&mut self, op: Op1, lanes: u16, a: &Val) -> Option<Val> {
        self.each(lanes, &[a], |s, w, d, r| s.push(Inst::One { op, w, d, a: r[0] }))
    }

    pub(super) fn literal(&mut self, bits: u32) -> Val {
        Val::Lanes { regs: vec![self.constant(Constant::Single(bits))], uniform: true }
    }

    pub(super) fn lanes(&mut self, e: &PrimExpr) -> Option<Val> {
        let d = e.dtype();
        let n = units(d);
        Some(match e.kind() {
            PrimKind::Int(v) if is_double(d) => self.double((*v as f64).to_bits()),
            PrimKind::Float(v) if is_double(d) => self.double(v.0.to_bits()),
            PrimKind::Int(v) if d.is_float() => self.literal((*v as f32).to_bits()),
            PrimKind::Int(v) if d.is_bool() => self.literal(if *v != 0 { u32::MAX } else { 0 }),
            PrimKind::Int(v) => self.literal(*v as u32),
            PrimKind::Float(v) => self.literal((v.0 as f32).to_bits()),
            PrimKind::Broadcast(a) => match self.value(a)? {
                v @ Val::Lanes { uniform: true, .. } => v,
                _ => return None,
            },
            PrimKind::Reinterpret(a) if is_double(d) && is_longs(a.dtype()) => self.value(a)?,
            PrimKind::Reinterpret(_) if is_double(d) => return None,
            PrimKind::Reinterpret(a) if is_lanes(a.dtype()) && !a.dtype().is_bool() && !d.is_bool() => self.value(a)?,
            PrimKind::Cast(a) => {
                let (from, to) = (a.dtype().element(), d.element());
                if is_general(from) && n == 1 && (to == DType::F32 || to == DType::I32) {
                    let Val::General(o) = self.value(a)? else { return None };
                    let a = self.in_register(o);
                    let r = self.lanes_reg();
                    self.push(Inst::FromGeneral { d: r, a, float: to == DType::F32 });
                    return Some(Val::Lanes { regs: vec![r], uniform: true });
                }
                if is_general(from) && n == 1 && to == DType::F64 {
                    let Val::General(o) = self.value(a)? else { return None };
                    let (a, r) = (self.in_register(o), self.lanes_reg());
                    self.push(Inst::DoubleFromGeneral { d: r, a });
                    return Some(Val::Lanes { regs: vec![r], uniform: true });
                }
                if let (Some((first, step, behind)), DType::I64, DType::I32) = (ramp(a), from, to) {
                    return self.count(first, step, behind, n);
                }
                if is_double(d) || is_double(a.dtype()) || is_longs(a.dtype()) {
                    return self.resized(a, d);
                }
                if is_half(from) {
                    return if to == DType::F32 { self.value(a) } else { None };
                }
                if is_bytes(from) {
                    let v = self.value(a)?;
                    return match to {
                        DType::I32 => Some(v),
                        DType::F32 => self.one(Op1::ToFloat, n, &v),
                        _ => None,
                    };
                }
                if !is_lanes(from) {
                    return None;
                }
                if let (PrimKind::Call(Intrin::Round | Intrin::NearbyInt, x), true) = (a.kind(), to == DType::I32) {
                    let x = self.value(x.first()?)?;
                    return self.one(Op1::RoundToInt, n, &x);
                }
                let v = self.value(a)?;
                match (from.code, to.code) {
                    _ if from == to => v,
                    _ if from.is_bool() => {
                        let one = if to.is_float() { 1f32.to_bits() } else { 1 };
                        let one = self.literal(one);
                        self.two(Op2::And, n, &v, &one)?
                    }
                    _ if to.is_bool() => return None,
                    (TypeCode::Int, TypeCode::Float) => self.one(Op1::ToFloat, n, &v)?,
                    (TypeCode::Float, TypeCode::Int) => self.one(Op1::ToInt, n, &v)?,
                    (TypeCode::Int | TypeCode::UInt, TypeCode::Int | TypeCode::UInt) => v,
                    _ => return None,
                }
            }
            PrimKind::Binary(op, a, b) if op.is_compare() => {
                let t = a.dtype().element();
                let what = match cc(*op)? {
                    c if t == DType::F32 => Compare::Float(c),
                    c if t == DType::I32 => Compare::Int(c),
                    _ => return None,
                };
                let (a, b) = (self.value(a)?, self.value(b)?);
                self.compare(what, n, &a, &b)?
            }
            PrimKind::Binary(op, a, b) => {
                if a.dtype().element() != b.dtype().element() {
                    return None;
                }
                let Some(op) = self.op2(*op, d) else {
                    return if d.element() == DType::I32 { self.divided(*op, a, b) } else { None };
                };
                let (a, b) = (self.value(a)?, self.value(b)?);
                self.two(op, n, &a, &b)?
            }
            PrimKind::Not(a) => {
                let v = self.value(a)?;
                self.flip(n, &v)?
            }
            PrimKind::Neg(a) if is_double(d) => {
                let (v, sign) = (self.value(a)?, self.double(1 << 63));
                self.two(Op2::Xor, n, &v, &sign)?
            }
            PrimKind::Neg(a) if d.is_float() => {
                let (v, sign) = (self.value(a)?, self.literal(1 << 31));
                self.two(Op2::Xor, n, &v, &sign)?
            }
            PrimKind::Neg(a) if !d.is_bool() => {
                let (v, zero) = (self.value(a)?, self.literal(0));
                self.two(Op2::SubI, n, &zero, &v)?
            }
            PrimKind::Select(c, t, f) | PrimKind::IfThenElse(c, t, f) => {
                // One answer for all lanes.
                let c = match c.kind() {
                    PrimKind::Broadcast(one) if one.dtype().lanes == 1 && is_integer_test(one) => one,
                    _ => c,
                };
                let test = match c.as_var().and_then(|v| self.bound.get(&v.id())) {
                    Some(Val::Condition(_)) => true,
                    Some(_) => false,
                    None => c.dtype().lanes == 1 && is_integer_test(c),
                };
                if test {
                    return self.either(c, t, f);
                }
                if matches!(e.kind(), PrimKind::IfThenElse(..)) && (has_load(t) || has_load(f)) {
                    return None;
                }
                let c = if is_double(d) { self.double_test(c)? } else { self.value(c)? };
                let (t, f) = (self.chosen(t)?, self.chosen(f)?);
                self.each(n, &[&c, &t, &f], |s, w, d, r| s.push(Inst::Choose { w, d, c: r[0], t: r[1], f: r[2] }))?
            }
            PrimKind::Load { ptr, offset } if d.is_bool() => self.load_bools(ptr, offset, d)?,
            PrimKind::Load { ptr, offset } if offset.dtype().lanes > 1 => self.load_by_steps(ptr, offset, d)?,
            PrimKind::Load { ptr, offset } => {
                let mut m = self.address(ptr, offset, d.element().bytes() as u32)?;
                if n == 1 {
                    let r = self.lanes_reg();
                    self.push(if is_double(d) { Inst::SpreadDouble { d: r, m } } else { Inst::Spread { d: r, m } });
                    return Some(Val::Lanes { regs: vec![r], uniform: true });
                }
                let mut regs = vec![];
                for w in self.widths(n)? {
                    let r = self.lanes_reg();
                    self.push(Inst::Load { w, d: r, m });
                    m.disp += w as i32 * 4;
                    regs.push(r);
                }
                Val::Lanes { regs, uniform: false }
            }
            PrimKind::Call(f, args) => self.call(*f, args, d)?,
            _ => return None,
        })
    }

    /// A side of a choice: a truth value that is written out is a mask there.
    pub(super) fn chosen(&mut self, e: &PrimExpr) -> Option<Val> {
        let literal = match e.kind() {
            PrimKind::Broadcast(a) => a.as_int(),
            _ => e.as_int(),
        };
        match literal.filter(|_| e.dtype().is_bool()) {
            Some(v) => Some(self.literal(if v != 0 { u32::MAX } else { 0 })),
            None => self.value(e),
        }
    }

    pub(super) fn flip(&mut self, n: u16, v: &Val) -> Option<Val> {
        let ones = self.literal(u32::MAX);
        self.two(Op2::Xor, n, v, &ones)
    }

    pub(super) fn compare(&mut self, what: Compare, n: u16, a: &Val, b: &Val) -> Option<Val> {
        // AVX2 has two comparisons of integers.
        let (what, swap, not) = match what {
            Compare::Int(c) if !self.evex => match c {
                Cc::Eq | Cc::Gt => (what, false, false),
                Cc::Lt => (Compare::Int(Cc::Gt), true, false),
                Cc::Ne => (Compare::Int(Cc::Eq), false, true),
                Cc::Le => (Compare::Int(Cc::Gt), false, true),
                Cc::Ge => (Compare::Int(Cc::Gt), true, true),
            },
            _ => (what, false, false),
        };
        let (a, b) = if swap { (b, a) } else { (a, b) };
        let v = self.each(n, &[a, b], |s, w, d, r| s.push(Inst::Compare { what, w, d, a: r[0], b: r[1] }))?;
        if not {
            self.flip(n, &v)
        } else {
            Some(v)
        }
    }

    pub(super) fn call(&mut self, f: Intrin, args: &[PrimExpr], d: DType) -> Option<Val> {
        let first = args.first()?;
        let (n, from) = (d.lanes, first.dtype());
        if !is_lanes(from) {
            return None;
        }
        if is_double(from) {
            return self.call_doubles(f, args, d);
        }
        let mut v = vec![];
        // What else these have are literals of the instruction.
        let literal = |i: usize| args.get(i).and_then(|a| a.as_int());
        let operands = match f {
            Intrin::Interleave | Intrin::Parts | Intrin::Turns => 2,
            Intrin::ByteWords | Intrin::Repeat | Intrin::Stretch => 1,
            _ => args.len(),
        };
        for a in args.iter().take(operands) {
            v.push(self.value(a)?);
        }
        let a = v[0].clone();
        let float = from.is_float();
        Some(match f {
            Intrin::Likely => a,
            Intrin::Sqrt if float => self.one(Op1::Sqrt, n, &a)?,
            Intrin::Floor if float => self.one(Op1::Round(1), n, &a)?,
            Intrin::Ceil if float => self.one(Op1::Round(2), n, &a)?,
            Intrin::Trunc if float => self.one(Op1::Round(3), n, &a)?,
            Intrin::Round | Intrin::NearbyInt if float => self.one(Op1::Round(0), n, &a)?,
            Intrin::Abs | Intrin::Fabs if float => {
                let mask = self.literal(0x7fff_ffff);
                self.two(Op2::And, n, &a, &mask)?
            }
            Intrin::Abs if from.element() == DType::I32 => {
                let zero = self.literal(0);
                let minus = self.two(Op2::SubI, n, &zero, &a)?;
                self.two(Op2::MaxI, n, &a, &minus)?
            }
            Intrin::IsNan if float => self.compare(Compare::Unordered, n, &a, &a)?,
            Intrin::CopySign if float => {
                let (mask, sign) = (self.literal(0x7fff_ffff), self.literal(1 << 31));
                let x = self.two(Op2::And, n, &a, &mask)?;
                let y = self.two(Op2::And, n, v.get(1)?, &sign)?;
                self.two(Op2::Or, n, &x, &y)?
            }
            Intrin::Interleave => {
                let bytes = literal(2)? as u8;
                let op = Op2::Weave { bytes, high: literal(3)? != 0 };
                self.two(op, n, &a, v.get(1)?)?
            }
            Intrin::Parts if n == 8 || n == self.wide => {
                self.two(Op2::Parts { odd: literal(2)? != 0 }, n, &a, v.get(1)?)?
            }
            Intrin::Repeat => match (literal(1)?, literal(2)? as u8, literal(3)?) {
                (2, i, 1) => self.one(Op1::Within(0xa0 + 0x55 * i), n, &a)?,
                (4, i, 1) => self.one(Op1::Within(0x55 * i), n, &a)?,
                (2, i, 4) if n == 8 || n == self.wide => self.one(Op1::Twice(i), n, &a)?,
                _ => return None,
            },
            Intrin::Stretch => self.stretched(&a, from.lanes, literal(1)? as u16)?,
            Intrin::Sixteenths if self.wide == 16 => {
                let table = self.vector(&sixteenths());
                self.each(n, &[&a], |s, _, d, r| s.push(Inst::Two { op: Op2::Permute, w: 16, d, a: r[0], b: table }))?
            }
            Intrin::Turns => self.by_turns(&a, v.get(1)?, from.lanes)?,
            Intrin::ByteWords => match (literal(1)?, literal(2)?) {
                (0, 0) => {
                    let mask = self.literal(0x00ff_00ff);
                    self.two(Op2::And, n, &a, &mask)?
                }
                (_, 0) => self.one(Op1::WordsDown, n, &a)?,
                (0, _) => {
                    let up = self.one(Op1::WordsUp, n, &a)?;
                    self.one(Op1::WordsDownSigned, n, &up)?
                }
                _ => self.one(Op1::WordsDownSigned, n, &a)?,
            },
            Intrin::AddWords => self.two(Op2::AddWords, n, &a, v.get(1)?)?,
            Intrin::SubWords => self.two(Op2::SubWords, n, &a, v.get(1)?)?,
            Intrin::BitNot => self.flip(n, &a)?,
            Intrin::Fma if float => self.multiplied(false, n, &a, v.get(1)?, v.get(2)?)?,
            Intrin::ReduceAdd | Intrin::ReduceMul | Intrin::ReduceMax | Intrin::ReduceMin if !from.is_bool() => {
                let op = match f {
                    Intrin::ReduceAdd => BinOp::Add,
                    Intrin::ReduceMul => BinOp::Mul,
                    Intrin::ReduceMax => BinOp::Max,
                    _ => BinOp::Min,
                };
                let op = self.op2(op, from)?;
                self.reduced(op, &a, from)?
            }
            _ => return None,
        })
    }

    /// `a * b + c`, rounded once.
    pub(super) fn multiplied(&mut self, double: bool, n: u16, a: &Val, b: &Val, c: &Val) -> Option<Val> {
        self.each(n, &[a, b, c], |s, w, d, r| {
            s.push(Inst::Move { w, d, s: r[2] });
            s.push(Inst::Fma { double, w, d, a: r[0], b: r[1] });
        })
    }

    /// All lanes of a vector combined.
    pub(super) fn reduced(&mut self, op: Op2, a: &Val, from: DType) -> Option<Val> {
        let Val::Lanes { regs, uniform: false } = a else { return None };
        let widths = self.widths(units(from))?;
        let mut total: Option<Reg> = None;
        for (&w, &a) in widths.iter().zip(regs) {
            let (r, t) = (self.lanes_reg(), self.lanes_reg());
            self.push(Inst::Reduce { op, w, d: r, a, t });
            total = Some(match total {
                None => r,
                Some(x) => {
                    let d = self.lanes_reg();
                    self.push(Inst::Two { op, w: self.wide, d, a: x, b: r });
                    d
                }
            });
        }
        Some(Val::Lanes { regs: vec![total?], uniform: true })
    }
}

/// A vector that counts up: from where, by how much, and what is added to it.
fn ramp(e: &PrimExpr) -> Option<(&PrimExpr, &PrimExpr, i64)> {
    match e.kind() {
        PrimKind::Ramp(first, step) => Some((first, step, 0)),
        PrimKind::Binary(BinOp::Add, a, b) => match (ramp(a), b.kind()) {
            (Some((first, step, behind)), PrimKind::Broadcast(c)) => {
                Some((first, step, behind.wrapping_add(c.as_int()?)))
            }
            _ => None,
        },
        _ => None,
    }
}

/// The bits of powers of two in sixteenths, as [`Intrin::Sixteenths`] has them.
fn sixteenths() -> [u32; 16] {
    std::array::from_fn(|j| {
        let power = (j as f64 / 16.0).exp2() as f32;
        (power.to_bits() - 1f32.to_bits()).wrapping_sub((j as u32) << 19)
    })
}
