//! Elements of 64 bits: float64, and int64 that is read, converted and written.

use super::*;

/// The first number that int64 does not hold.
const BEYOND: f64 = 9_223_372_036_854_775_808.0;

impl Builder {
    pub(super) fn double(&mut self, bits: u64) -> Val {
        Val::Lanes { regs: vec![self.constant(Constant::Double(bits))], uniform: true }
    }

    pub(super) fn choose(&mut self, n: u16, c: &Val, t: &Val, f: &Val) -> Option<Val> {
        self.each(n, &[c, t, f], |s, w, d, r| s.push(Inst::Choose { w, d, c: r[0], t: r[1], f: r[2] }))
    }

    /// Lanes of 32 bits in twice as many bits.
    pub(super) fn widen(&mut self, how: Widen, lanes: u16, v: &Val) -> Option<Val> {
        let Val::Lanes { regs, uniform } = v else { return None };
        let (from, to) = match uniform {
            true => (vec![self.wide], vec![self.wide]),
            false => (self.widths(lanes)?, self.widths(2 * lanes)?),
        };
        let (mut k, mut high, mut out) = (0, false, vec![]);
        for w in to {
            let (a, d) = (*regs.get(k)?, self.lanes_reg());
            self.push(Inst::One { op: Op1::Widen { how, high }, w, d, a });
            out.push(d);
            // A register becomes two, or one that is twice as wide.
            high = from[k] == w && !high;
            k += !high as usize;
        }
        Some(Val::Lanes { regs: out, uniform: *uniform })
    }

    /// Lanes of 64 bits in half as many bits.
    pub(super) fn narrow(&mut self, how: Narrow, lanes: u16, v: &Val) -> Option<Val> {
        let Val::Lanes { regs, uniform } = v else { return None };
        let half = |s: &mut Self, w: u16, a: Reg| {
            let d = s.lanes_reg();
            s.push(Inst::One { op: Op1::Narrow(how), w, d, a });
            d
        };
        let join = |s: &mut Self, w: u16, a: Reg, b: Reg| {
            let d = s.lanes_reg();
            s.push(Inst::Two { op: Op2::Join, w, d, a, b });
            d
        };
        if *uniform {
            let a = half(self, self.wide, *regs.first()?);
            return Some(Val::Lanes { regs: vec![join(self, self.wide, a, a)], uniform: true });
        }
        let from = self.widths(2 * lanes)?;
        let (mut k, mut out) = (0, vec![]);
        for w in self.widths(lanes)? {
            let a = half(self, from[k], regs[k]);
            if from[k] > w {
                out.push(a);
                k += 1;
                continue;
            }
            let b = half(self, w, *regs.get(k + 1)?);
            out.push(join(self, w, a, b));
            k += 2;
        }
        Some(Val::Lanes { regs: out, uniform: false })
    }

    /// A load of elements of 32 bits that a vector of int64 names.
    pub(super) fn gathered(&mut self, ptr: &PrimExpr, offset: &PrimExpr) -> Option<Val> {
        if !self.evex {
            return None;
        }
        let lanes = offset.dtype().lanes;
        let Val::Lanes { regs, uniform: false } = self.value(offset)? else { return None };
        let m = self.address(ptr, &PrimExpr::i64(0), 4)?;
        let gather = |s: &mut Self, w: u16, i: Reg| {
            let d = s.lanes_reg();
            s.push(Inst::Gather { w, d, m, i });
            d
        };
        let from = self.widths(2 * lanes)?;
        let (mut k, mut out) = (0, vec![]);
        for w in self.widths(lanes)? {
            let a = gather(self, from[k], regs[k]);
            k += 1;
            if from[k - 1] > w {
                out.push(a);
                continue;
            }
            let (b, d) = (gather(self, w, *regs.get(k)?), self.lanes_reg());
            self.push(Inst::Two { op: Op2::Join, w, d, a, b });
            out.push(d);
            k += 1;
        }
        Some(Val::Lanes { regs: out, uniform: false })
    }

    /// A conversion from or to elements of 64 bits, of which `d` are not int64.
    pub(super) fn resized(&mut self, a: &PrimExpr, d: DType) -> Option<Val> {
        let v = self.value(a)?;
        Some(match (a.dtype().element(), d.element()) {
            (DType::F32, DType::F64) => self.widen(Widen::FloatToDouble, d.lanes, &v)?,
            (DType::I32, DType::F64) => self.widen(Widen::IntToDouble, d.lanes, &v)?,
            (DType::F64, DType::F32) => self.narrow(Narrow::DoubleToFloat, d.lanes, &v)?,
            (DType::I64, DType::F32) if self.evex => self.narrow(Narrow::LongToFloat, d.lanes, &v)?,
            (DType::I64, DType::F64) if self.evex => self.one(Op1::LongToDouble, units(d), &v)?,
            (DType::F64, DType::F64) => v,
            _ => return None,
        })
    }

    /// Floats as int64: 0 for NaN, the nearest for what int64 does not hold.
    pub(super) fn truncated(&mut self, x: &PrimExpr) -> Option<Val> {
        if !self.evex {
            return None;
        }
        let v = self.value(x)?;
        let lanes = x.dtype().lanes;
        let (most, zero) = (self.double(i64::MAX as u64), self.double(0));
        // Beyond the lowest one the processor makes that.
        let (whole, large, nan) = if is_double(x.dtype()) {
            let (n, beyond) = (units(x.dtype()), self.double(BEYOND.to_bits()));
            let whole = self.one(Op1::DoubleToLong, n, &v)?;
            let large = self.compare(Compare::Double(Cc::Ge), n, &v, &beyond)?;
            (whole, large, self.compare(Compare::UnorderedDouble, n, &v, &v)?)
        } else if x.dtype().element() == DType::F32 {
            let beyond = self.literal((BEYOND as f32).to_bits());
            let whole = self.widen(Widen::FloatToLong, lanes, &v)?;
            let large = self.compare(Compare::Float(Cc::Ge), lanes, &v, &beyond)?;
            let nan = self.compare(Compare::Unordered, lanes, &v, &v)?;
            (whole, self.widen(Widen::IntToLong, lanes, &large)?, self.widen(Widen::IntToLong, lanes, &nan)?)
        } else {
            return None;
        };
        let n = units(DType::I64.with_lanes(lanes));
        let limited = self.choose(n, &large, &most, &whole)?;
        self.choose(n, &nan, &zero, &limited)
    }

    /// Vectors of int64.
    pub(super) fn longs(&mut self, e: &PrimExpr) -> Option<Val> {
        let d = e.dtype();
        match e.kind() {
            PrimKind::Int(v) => Some(self.double(*v as u64)),
            PrimKind::Broadcast(a) if a.as_int().is_some() => Some(self.double(a.as_int()? as u64)),
            // With 16 registers what works on the bits of float64 leaves no room for the rest.
            PrimKind::Reinterpret(a) if self.evex && (is_double(a.dtype()) || is_longs(a.dtype())) => self.value(a),
            PrimKind::Binary(op, a, b) if bits(*op, d, b).is_some() => {
                let op = bits(*op, d, b)?;
                let (a, b) = (self.value(a)?, self.value(b)?);
                self.two(op, units(d), &a, &b)
            }
            _ if d.element() == DType::U64 => None,
            PrimKind::Broadcast(a) => match self.value(a)? {
                Val::General(Opnd::Imm(v)) => Some(self.double(v as u64)),
                Val::General(Opnd::Reg(a)) => {
                    let r = self.lanes_reg();
                    self.push(Inst::LongsFromGeneral { d: r, a });
                    Some(Val::Lanes { regs: vec![r], uniform: true })
                }
                _ => None,
            },
            PrimKind::Binary(BinOp::Mul, one, x) | PrimKind::Binary(BinOp::Mul, x, one) if is_one(one) => self.value(x),
            PrimKind::Binary(op, a, b) => {
                let op = match op {
                    BinOp::Add => Op2::AddL,
                    BinOp::Sub => Op2::SubL,
                    BinOp::Mul if self.evex => Op2::MulL,
                    BinOp::Min if self.evex => Op2::MinL,
                    BinOp::Max if self.evex => Op2::MaxL,
                    _ => return self.divided_longs(*op, a, b),
                };
                let (a, b) = (self.value(a)?, self.value(b)?);
                self.two(op, units(d), &a, &b)
            }
            PrimKind::Load { ptr, offset } if offset.dtype().lanes == 1 => {
                let mut m = self.address(ptr, offset, 8)?;
                let mut regs = vec![];
                for w in self.widths(units(d))? {
                    let r = self.lanes_reg();
                    self.push(Inst::Load { w, d: r, m });
                    m.disp += w as i32 * 4;
                    regs.push(r);
                }
                Some(Val::Lanes { regs, uniform: false })
            }
            PrimKind::Cast(x) if x.dtype().element() == DType::I32 => {
                let v = self.value(x)?;
                self.widen(Widen::IntToLong, d.lanes, &v)
            }
            PrimKind::Cast(x) if x.dtype().is_float() => self.truncated(x),
            _ => None,
        }
    }

    pub(super) fn store_longs(&mut self, ptr: &PrimExpr, offset: &PrimExpr, value: &PrimExpr) -> Option<()> {
        let v = self.value(value)?;
        let mut m = self.address(ptr, offset, 8)?;
        for (k, w) in self.widths(units(value.dtype()))?.into_iter().enumerate() {
            self.push(Inst::Store { w, s: piece(&v, k)?, m });
            m.disp += w as i32 * 4;
        }
        Some(())
    }

    /// A condition on float64 alone: masks of 64 bits.
    pub(super) fn double_test(&mut self, c: &PrimExpr) -> Option<Val> {
        let is_double = |e: &PrimExpr| is_double(e.dtype());
        match c.kind() {
            PrimKind::Broadcast(a) => self.double_test(a),
            PrimKind::Int(v) => Some(self.double(if *v != 0 { u64::MAX } else { 0 })),
            PrimKind::Not(a) => {
                let (v, ones) = (self.double_test(a)?, self.double(u64::MAX));
                self.two(Op2::Xor, 2 * c.dtype().lanes, &v, &ones)
            }
            PrimKind::Binary(op @ (BinOp::And | BinOp::Or), a, b) => {
                let (a, b) = (self.double_test(a)?, self.double_test(b)?);
                let op = if *op == BinOp::And { Op2::And } else { Op2::Or };
                self.two(op, 2 * c.dtype().lanes, &a, &b)
            }
            PrimKind::Binary(op, a, b) if op.is_compare() && is_double(a) => {
                let (cc, a, b) = (cc(*op)?, self.value(a)?, self.value(b)?);
                self.compare(Compare::Double(cc), units(DType::F64.with_lanes(c.dtype().lanes)), &a, &b)
            }
            PrimKind::Call(Intrin::IsNan, a) if a.first().is_some_and(is_double) => {
                let v = self.value(a.first()?)?;
                self.compare(Compare::UnorderedDouble, units(DType::F64.with_lanes(c.dtype().lanes)), &v, &v)
            }
            _ => None,
        }
    }

    pub(super) fn call_doubles(&mut self, f: Intrin, args: &[PrimExpr], d: DType) -> Option<Val> {
        let from = args.first()?.dtype();
        let n = units(from);
        let v = args.iter().map(|a| self.value(a)).collect::<Option<Vec<_>>>()?;
        let a = v.first()?;
        match f {
            Intrin::Likely => Some(a.clone()),
            Intrin::Sqrt => self.one(Op1::SqrtD, n, a),
            Intrin::Floor => self.one(Op1::RoundD(1), n, a),
            Intrin::Ceil => self.one(Op1::RoundD(2), n, a),
            Intrin::Trunc => self.one(Op1::RoundD(3), n, a),
            Intrin::Round | Intrin::NearbyInt => self.one(Op1::RoundD(0), n, a),
            Intrin::Abs | Intrin::Fabs => {
                let mask = self.double(!(1 << 63));
                self.two(Op2::And, n, a, &mask)
            }
            Intrin::CopySign => {
                let (mask, sign) = (self.double(!(1 << 63)), self.double(1 << 63));
                let x = self.two(Op2::And, n, a, &mask)?;
                let y = self.two(Op2::And, n, v.get(1)?, &sign)?;
                self.two(Op2::Or, n, &x, &y)
            }
            Intrin::Fma => self.multiplied(true, n, a, v.get(1)?, v.get(2)?),
            Intrin::ReduceAdd => self.reduced(Op2::AddD, a, from),
            Intrin::ReduceMul => self.reduced(Op2::MulD, a, from),
            Intrin::ReduceMax => self.reduced(Op2::MaxD, a, from),
            Intrin::ReduceMin => self.reduced(Op2::MinD, a, from),
            _ => None,
        }
        .filter(|_| is_double(d))
    }
}

/// What is done to bits; they are shifted by literals.
fn bits(op: BinOp, d: DType, by: &PrimExpr) -> Option<Op2> {
    let within = match by.kind() {
        PrimKind::Reinterpret(by) => return bits(op, d, by),
        PrimKind::Broadcast(n) => n.as_int().is_some_and(|n| (0..64).contains(&n)),
        _ => false,
    };
    Some(match op {
        BinOp::BitAnd => Op2::And,
        BinOp::BitOr => Op2::Or,
        BinOp::BitXor => Op2::Xor,
        BinOp::Shl if within => Op2::ShlL,
        BinOp::Shr if within && d.element() == DType::U64 => Op2::ShrL,
        _ => return None,
    })
}

fn is_one(e: &PrimExpr) -> bool {
    matches!(e.kind(), PrimKind::Broadcast(a) if a.is_int(1))
}
