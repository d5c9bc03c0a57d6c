//! Quotients and remainders of integers lane by lane: by 0 both are 0, the lowest number by -1 wraps.
//!
//! They are divided as float64. For integers `a` and `b` below 2^53 the rounded quotient is on the same side of every
//! integer as the exact one, and equal to it where that is an integer: beside the integer `k` the exact quotient is at least
//! `1 / |b|` away, and half of what lies between floats there is at most `k 2^-53`, less than that since `k |b|` is below
//! 2^53. So its integer part is the quotient's, and `a - q b` is exact with one rounding.
//!
//! By a constant a product with the reciprocal serves: `(a + 1/2) / |b|` is at least `1/2 / |b|` away from every integer on
//! the side of the quotient, for `a` below 2^50 a part of 2^-51 of it, and two roundings change it by less than 2^-52.

use super::*;

/// int64 from -2^50 on and below 2^50 become float64 by adding a number whose bits count in ones, and so do their quotients.
const LIMIT: i64 = 1 << 50;
/// 1.5 times 2^52.
const COUNTS: u64 = 0x4338_0000_0000_0000;

/// What of a division is asked for.
#[derive(Clone, Copy)]
struct Part {
    /// Quotients are rounded down, otherwise to zero.
    floor: bool,
    remainder: bool,
}

impl Part {
    fn of(op: BinOp) -> Option<Part> {
        let floor = matches!(op, BinOp::FloorDiv | BinOp::FloorMod);
        let remainder = matches!(op, BinOp::FloorMod | BinOp::TruncMod);
        (floor || remainder || matches!(op, BinOp::Div | BinOp::TruncDiv)).then_some(Part { floor, remainder })
    }
}

impl Builder {
    /// Of int32.
    pub(super) fn divided(&mut self, op: BinOp, a: &PrimExpr, b: &PrimExpr) -> Option<Val> {
        let (part, lanes, by) = (Part::of(op)?, a.dtype().lanes, constant(b));
        let (a, b) = (self.value(a)?, self.value(b)?);
        let (a, b) = (self.widen(Widen::IntToDouble, lanes, &a)?, self.widen(Widen::IntToDouble, lanes, &b)?);
        let r = self.whole(part, units(DType::F64.with_lanes(lanes)), &a, &b, by)?;
        self.narrow(Narrow::DoubleToInt, lanes, &r)
    }

    /// Of int64, register after register: one by one where a number is not within the limit.
    pub(super) fn divided_longs(&mut self, op: BinOp, a: &PrimExpr, b: &PrimExpr) -> Option<Val> {
        let (part, n, by) = (Part::of(op)?, units(a.dtype()), constant(b));
        let (a, b) = (self.value(a)?, self.value(b)?);
        let mut regs = vec![];
        for (k, w) in self.widths(n)?.into_iter().enumerate() {
            let (a, b, d) = (piece(&a, k)?, piece(&b, k)?, self.lanes_reg());
            let (slow, exit) = (self.label(), self.label());
            let [x, y] = [a, b].map(|r| Val::Lanes { regs: vec![r], uniform: false });
            self.unless_within(&x, &y, w, slow)?;
            let (x, y) = (self.as_double(&x, w)?, self.as_double(&y, w)?);
            let (r, counts) = (self.whole(part, w, &x, &y, by)?, self.double(COUNTS));
            let r = self.two(Op2::AddD, w, &r, &counts)?;
            let r = self.two(Op2::SubL, w, &r, &counts)?;
            self.push(Inst::Move { w, d, s: piece(&r, 0)? });
            self.push(Inst::Jump(exit));
            self.push(Inst::Label(slow));
            self.one_by_one(part, a, b, w, d)?;
            self.push(Inst::Label(exit));
            regs.push(d);
        }
        Some(Val::Lanes { regs, uniform: false })
    }

    /// Goes to `slow` where a number is beyond the limit.
    fn unless_within(&mut self, a: &Val, b: &Val, w: u16, slow: Label) -> Option<()> {
        let (up, beyond) = (self.double(LIMIT as u64), self.double(!(2 * LIMIT - 1) as u64));
        let (a, b) = (self.two(Op2::AddL, w, a, &up)?, self.two(Op2::AddL, w, b, &up)?);
        let both = self.two(Op2::Or, w, &a, &b)?;
        let any = self.two(Op2::And, w, &both, &beyond)?;
        self.push(Inst::BranchAny { w, a: piece(&any, 0)?, to: slow });
        Some(())
    }

    fn as_double(&mut self, v: &Val, n: u16) -> Option<Val> {
        let counts = self.double(COUNTS);
        let v = self.two(Op2::AddL, n, v, &counts)?;
        self.two(Op2::SubD, n, &v, &counts)
    }

    /// The part of integers as float64, of which the second may be known.
    fn whole(&mut self, part: Part, n: u16, a: &Val, b: &Val, by: Option<i64>) -> Option<Val> {
        if let Some(by) = by {
            let q = self.by_constant(part.floor, n, a, by as f64)?;
            let b = self.double((by as f64).to_bits());
            return if part.remainder { self.rest(n, a, &b, &q) } else { Some(q) };
        }
        // A remainder by 1 is 0, and so is a quotient by an infinite number.
        let (zero, other) = (self.double(0), self.double(if part.remainder { 1f64 } else { f64::INFINITY }.to_bits()));
        let none = self.compare(Compare::Double(Cc::Eq), n, b, &zero)?;
        let b = self.choose(n, &none, &other, b)?;
        let q = self.two(Op2::DivD, n, a, &b)?;
        let q = self.one(Op1::RoundD(if part.floor { 1 } else { 3 }), n, &q)?;
        if !part.remainder {
            return Some(q);
        }
        self.rest(n, a, &b, &q)
    }

    /// `a - q b`
    fn rest(&mut self, n: u16, a: &Val, b: &Val, q: &Val) -> Option<Val> {
        let sign = self.double(1 << 63);
        let minus = self.two(Op2::Xor, n, q, &sign)?;
        self.multiplied(true, n, &minus, b, a)
    }

    /// A half goes away from where the quotient is rounded to.
    fn by_constant(&mut self, floor: bool, n: u16, a: &Val, by: f64) -> Option<Val> {
        let half = if floor {
            self.double(0.5f64.copysign(by).to_bits())
        } else {
            let (sign, half) = (self.double(1 << 63), self.double(0.5f64.to_bits()));
            let sign = self.two(Op2::And, n, a, &sign)?;
            self.two(Op2::Or, n, &sign, &half)?
        };
        let (a, reciprocal) = (self.two(Op2::AddD, n, a, &half)?, self.double((1.0 / by).to_bits()));
        let q = self.two(Op2::MulD, n, &a, &reciprocal)?;
        self.one(Op1::RoundD(if floor { 1 } else { 3 }), n, &q)
    }

    /// Through the stack, in a loop.
    fn one_by_one(&mut self, part: Part, a: Reg, b: Reg, w: u16, d: Reg) -> Option<()> {
        let side = self.wide as u32 * 4;
        let at = self.divides.unwrap_or(self.p.stack);
        if self.divides.replace(at).is_none() {
            self.p.stack += (2 * side).div_ceil(64) * 64;
        }
        let mem = |at: u32, index| Mem { base: Base::Stack(at), index, disp: 0 };
        self.push(Inst::Store { w, s: a, m: mem(at, None) });
        self.push(Inst::Store { w, s: b, m: mem(at + side, None) });
        let [i, x, y, r] = [(); 4].map(|_| self.reg(Class::General));
        let top = self.label();
        self.push(Inst::Set { d: i, s: Opnd::Imm(0) });
        let first = self.p.code.len();
        self.push(Inst::Label(top));
        self.push(Inst::ReadGeneral { d: x, m: mem(at, Some((i, 8))) });
        self.push(Inst::ReadGeneral { d: y, m: mem(at + side, Some((i, 8))) });
        self.push(Inst::Divide { d: r, a: x, by: Opnd::Reg(y), floor: part.floor, remainder: part.remainder });
        self.push(Inst::WriteGeneral { s: r, m: mem(at, Some((i, 8))) });
        self.push(Inst::Arith { op: Arith::Add, d: i, a: i, b: Opnd::Imm(1) });
        self.push(Inst::Branch { cc: Cc::Lt, a: i, b: Opnd::Imm(w as i64 / 2), to: top });
        self.p.loops.push((first, self.p.code.len() - 1));
        self.push(Inst::Load { w, d, m: mem(at, None) });
        (self.p.stack <= STACK_BYTES).then_some(())
    }
}

/// A divisor that is known, other than 0.
fn constant(e: &PrimExpr) -> Option<i64> {
    let e = match e.kind() {
        PrimKind::Broadcast(e) => e,
        _ => e,
    };
    e.as_int().filter(|n| *n != 0 && n.unsigned_abs() < LIMIT as u64)
}
