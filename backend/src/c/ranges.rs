//! Intervals of integer expressions: which arithmetic cannot overflow, which fits 32 bits, what is a constant.

use fnv::FnvHashMap;
use relax_ir::prim::{BinOp, Intrin, PrimExpr, PrimKind, Var};
use relax_ir::{DType, TypeCode};

/// Both ends included.
pub type Interval = (i128, i128);

/// What is known of variables.
#[derive(Default)]
pub struct Ranges {
    vars: FnvHashMap<u32, Interval>,
    /// Variables whose values come from data: their arithmetic may wrap around.
    data: FnvHashMap<u32, ()>,
    /// Of the statement at hand, by node.
    memo: FnvHashMap<usize, Interval>,
    /// Likewise, whether it comes from data.
    origin: FnvHashMap<usize, bool>,
}

pub fn of_type(d: DType) -> Interval {
    match (d.code, d.bits) {
        (TypeCode::Bool, _) => (0, 1),
        (TypeCode::Int, b) => (-(1i128 << (b - 1)), (1i128 << (b - 1)) - 1),
        (TypeCode::UInt, b) => (0, (1i128 << b) - 1),
        _ => (i128::from(i64::MIN), i128::from(i64::MAX)),
    }
}

fn inside(a: Interval, b: Interval) -> bool {
    b.0 <= a.0 && a.1 <= b.1
}

fn union(a: Interval, b: Interval) -> Interval {
    (a.0.min(b.0), a.1.max(b.1))
}

/// The four products or quotients of the ends.
fn corners(a: Interval, b: Interval, f: impl Fn(i128, i128) -> Option<i128>) -> Option<Interval> {
    let all = [f(a.0, b.0)?, f(a.0, b.1)?, f(a.1, b.0)?, f(a.1, b.1)?];
    Some((*all.iter().min()?, *all.iter().max()?))
}

fn is_integer(d: DType) -> bool {
    d.is_int() || d.is_bool()
}

impl Ranges {
    pub fn set(&mut self, v: &Var, range: Interval, data: bool) {
        self.vars.insert(v.id(), range);
        if data {
            self.data.insert(v.id(), ());
        } else {
            self.data.remove(&v.id());
        }
        self.forget();
    }

    pub fn forget(&mut self) {
        self.memo.clear();
        self.origin.clear();
    }

    /// Whether the value comes from data, so that overflow is the model's business and wraps around. Other integers are
    /// indices, which stay far below the limits.
    pub fn is_data(&mut self, e: &PrimExpr) -> bool {
        if e.children().is_empty() {
            return e.as_var().is_some_and(|v| self.data.contains_key(&v.id()));
        }
        let key = e.kind() as *const PrimKind as usize;
        if let Some(&r) = self.origin.get(&key) {
            return r;
        }
        let r = match e.kind() {
            PrimKind::Load { .. } | PrimKind::Reinterpret(_) | PrimKind::Call(..) => true,
            PrimKind::Cast(a) if a.dtype().is_float() => true,
            _ => e.children().into_iter().any(|c| self.is_data(c)),
        };
        self.origin.insert(key, r);
        r
    }

    /// The interval of an integer expression (of one lane of it).
    pub fn of(&mut self, e: &PrimExpr) -> Interval {
        match e.kind() {
            PrimKind::Int(v) if e.dtype() == DType::U64 => return (i128::from(*v as u64), i128::from(*v as u64)),
            PrimKind::Int(v) => return (i128::from(*v), i128::from(*v)),
            PrimKind::Var(v) => return self.vars.get(&v.id()).copied().unwrap_or_else(|| of_type(v.dtype())),
            _ => {}
        }
        let key = e.kind() as *const PrimKind as usize;
        if let Some(&r) = self.memo.get(&key) {
            return r;
        }
        let limits = of_type(e.dtype());
        let found = self.node(e).unwrap_or(limits);
        let r = if inside(found, limits) {
            found
        } else if !e.dtype().is_handle() && !self.is_data(e) && e.dtype().bits == 64 {
            // Indices do not overflow: clip instead of wrapping.
            (found.0.clamp(limits.0, limits.1), found.1.clamp(limits.0, limits.1))
        } else {
            limits
        };
        self.memo.insert(key, r);
        r
    }

    /// The exact result of a sum, difference or product before it wraps.
    pub fn exact(&mut self, op: BinOp, a: &PrimExpr, b: &PrimExpr) -> Option<Interval> {
        let (x, y) = (self.of(a), self.of(b));
        match op {
            BinOp::Add => Some((x.0 + y.0, x.1 + y.1)),
            BinOp::Sub => Some((x.0 - y.1, x.1 - y.0)),
            BinOp::Mul => corners(x, y, i128::checked_mul),
            _ => None,
        }
    }

    fn node(&mut self, e: &PrimExpr) -> Option<Interval> {
        let d = e.dtype();
        if !is_integer(d) {
            return None;
        }
        Some(match e.kind() {
            PrimKind::Cast(a) if is_integer(a.dtype()) => {
                let r = self.of(a);
                if d.is_bool() {
                    return Some(match r {
                        (0, 0) => (0, 0),
                        _ if r.0 > 0 || r.1 < 0 => (1, 1),
                        _ => (0, 1),
                    });
                }
                r
            }
            PrimKind::Binary(op, a, b) if is_integer(a.dtype()) && is_integer(b.dtype()) => self.binary(*op, a, b)?,
            PrimKind::Not(a) => {
                let (lo, hi) = self.of(a);
                (1 - hi.min(1), 1 - lo.max(0))
            }
            PrimKind::Neg(a) => {
                let (lo, hi) = self.of(a);
                (-hi, -lo)
            }
            PrimKind::Select(_, a, b) | PrimKind::IfThenElse(_, a, b) => union(self.of(a), self.of(b)),
            PrimKind::Let(v, value, body) => {
                if is_integer(v.dtype()) {
                    let (r, data) = (self.of(value), self.is_data(value));
                    self.vars.insert(v.id(), r);
                    if data {
                        self.data.insert(v.id(), ());
                    }
                }
                self.of(body)
            }
            PrimKind::Broadcast(a) => self.of(a),
            PrimKind::Ramp(base, stride) => {
                let (b, s) = (self.of(base), self.of(stride));
                let last = i128::from(d.lanes) - 1;
                let reach = corners((0, last), s, i128::checked_mul)?;
                (b.0 + reach.0, b.1 + reach.1)
            }
            PrimKind::Call(Intrin::Likely, args) => self.of(args.first()?),
            PrimKind::Call(Intrin::PopCount | Intrin::Clz, _) => (0, 64),
            _ => return None,
        })
    }

    fn binary(&mut self, op: BinOp, a: &PrimExpr, b: &PrimExpr) -> Option<Interval> {
        if let Some(r) = self.exact(op, a, b) {
            return Some(if a.dtype().is_bool() { (0, 1) } else { r });
        }
        let (x, y) = (self.of(a), self.of(b));
        let answer = |yes: bool, no: bool| match (yes, no) {
            (true, _) => (1, 1),
            (_, true) => (0, 0),
            _ => (0, 1),
        };
        Some(match op {
            BinOp::Min => (x.0.min(y.0), x.1.min(y.1)),
            BinOp::Max => (x.0.max(y.0), x.1.max(y.1)),
            BinOp::Lt => answer(x.1 < y.0, x.0 >= y.1),
            BinOp::Le => answer(x.1 <= y.0, x.0 > y.1),
            BinOp::Gt => answer(x.0 > y.1, x.1 <= y.0),
            BinOp::Ge => answer(x.0 >= y.1, x.1 < y.0),
            BinOp::Eq => answer(x.0 == x.1 && x == y, x.1 < y.0 || x.0 > y.1),
            BinOp::Ne => answer(x.1 < y.0 || x.0 > y.1, x.0 == x.1 && x == y),
            BinOp::And => (x.0.min(y.0).clamp(0, 1), x.1.min(y.1).clamp(0, 1)),
            BinOp::Or => (x.0.max(y.0).clamp(0, 1), x.1.max(y.1).clamp(0, 1)),
            BinOp::FloorDiv if y.0 == y.1 && y.0 > 0 => (x.0.div_euclid(y.0), x.1.div_euclid(y.0)),
            BinOp::Div | BinOp::TruncDiv if y.0 == y.1 && y.0 > 0 => (x.0 / y.0, x.1 / y.0),
            BinOp::FloorMod if y.0 == y.1 && y.0 > 0 => {
                if x.0.div_euclid(y.0) == x.1.div_euclid(y.0) {
                    (x.0.rem_euclid(y.0), x.1.rem_euclid(y.0))
                } else {
                    (0, y.0 - 1)
                }
            }
            BinOp::TruncMod if y.0 == y.1 && y.0 > 0 => {
                let most = y.0 - 1;
                (if x.0 < 0 { -most } else { 0 }, if x.1 > 0 { most } else { 0 })
            }
            BinOp::BitAnd if y.0 >= 0 => (0, y.1),
            BinOp::BitAnd if x.0 >= 0 => (0, x.1),
            BinOp::Shr if y.0 == y.1 && (0..64).contains(&y.0) => (x.0 >> y.0, x.1 >> y.0),
            BinOp::Shl if y.0 == y.1 && (0..64).contains(&y.0) && x.0 >= 0 && x.1 < 1 << 62 => (x.0 << y.0, x.1 << y.0),
            _ => return None,
        })
    }
}
