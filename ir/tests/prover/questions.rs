//! Random questions for the prover: expressions over a few dims, and pairs that differ by a step that looks right.
//! The same seed gives the same questions.

use relax_ir::prim::{BinOp, PrimExpr, PrimKind, Var};
use relax_ir::DType;

/// A question: is `condition` true under the facts?
pub struct Question {
    pub facts: Vec<PrimExpr>,
    pub condition: PrimExpr,
}

pub struct Questions {
    state: u64,
    pub vars: Vec<Var>,
}

impl Questions {
    pub fn new(seed: u64) -> Questions {
        let vars = ["n", "m", "k"].into_iter().map(Var::dim).collect();
        Questions { state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1, vars }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 16) % n
    }

    pub fn question(&mut self) -> Question {
        let count = [0, 0, 0, 1, 1, 2][self.below(6) as usize];
        let facts = (0..count).map(|_| self.fact()).collect();
        let left = self.dim(3);
        let right = match self.below(4) {
            0 => self.dim(3),
            _ => {
                let mut e = left.clone();
                for _ in 0..1 + self.below(3) {
                    e = self.step(&e);
                }
                e
            }
        };
        let condition = match self.below(8) {
            0 => PrimExpr::raw_binary(BinOp::Lt, left, right),
            1 => PrimExpr::raw_binary(BinOp::Le, left, right),
            2 => PrimExpr::raw_binary(BinOp::Ne, left, right),
            3 => {
                let c = self.number(2, 8);
                PrimExpr::raw_binary(BinOp::Eq, raw(BinOp::FloorMod, left, c), PrimExpr::i64(0))
            }
            _ => PrimExpr::raw_binary(BinOp::Eq, left, right),
        };
        Question { facts, condition }
    }

    /// What users state: bounds, divisors, equalities, orders.
    fn fact(&mut self) -> PrimExpr {
        let (a, b) = (self.var(), self.var());
        match self.below(7) {
            0 => raw(BinOp::Eq, raw(BinOp::FloorMod, a, self.number(2, 8)), PrimExpr::i64(0)),
            1 => raw(BinOp::Le, a, self.number(1, 16)),
            2 => raw(BinOp::Ge, a, self.number(1, 4)),
            3 => raw(BinOp::Eq, a, raw(BinOp::Mul, b, self.number(1, 4))),
            4 => raw(BinOp::Lt, a, b),
            5 => raw(BinOp::Eq, raw(BinOp::FloorMod, a, b), PrimExpr::i64(0)),
            _ => {
                let d = self.dim(2);
                raw(BinOp::Eq, a, d)
            }
        }
    }

    fn var(&mut self) -> PrimExpr {
        let i = self.below(self.vars.len() as u64) as usize;
        self.vars[i].expr()
    }

    fn number(&mut self, from: i64, to: i64) -> PrimExpr {
        PrimExpr::i64(from + self.below((to - from) as u64) as i64)
    }

    fn dim(&mut self, depth: u32) -> PrimExpr {
        if depth == 0 || self.below(5) == 0 {
            return if self.below(3) == 0 { self.number(-4, 9) } else { self.var() };
        }
        let a = self.dim(depth - 1);
        match self.below(14) {
            0..=2 => raw(BinOp::Add, a, self.dim(depth - 1)),
            3 => raw(BinOp::Sub, a, self.dim(depth - 1)),
            4 | 5 => raw(BinOp::Mul, a, self.number(-4, 9)),
            6 => raw(BinOp::Mul, a, self.dim(depth - 1)),
            7 => raw(BinOp::FloorDiv, a, self.divisor()),
            8 => raw(BinOp::FloorMod, a, self.divisor()),
            9 => {
                // As windows and tiles do: (a + c - 1) // c.
                let c = self.divisor();
                raw(BinOp::FloorDiv, raw(BinOp::Sub, raw(BinOp::Add, a, c.clone()), PrimExpr::i64(1)), c)
            }
            10 => raw(BinOp::Min, a, self.dim(depth - 1)),
            11 => raw(BinOp::Max, a, self.dim(depth - 1)),
            12 => {
                let (x, y) = (self.dim(depth - 1), self.dim(depth - 1));
                let c = raw(BinOp::Eq, a, x.clone());
                PrimExpr::raw(PrimKind::Select(c, x, y), DType::I64)
            }
            _ => {
                let c = self.divisor();
                raw(BinOp::Mul, raw(BinOp::FloorDiv, a, c.clone()), c)
            }
        }
    }

    fn divisor(&mut self) -> PrimExpr {
        match self.below(8) {
            0 => self.var(),
            1 => self.number(-4, 0),
            _ => self.number(1, 9),
        }
    }

    /// A step that keeps the value, or nearly.
    fn step(&mut self, e: &PrimExpr) -> PrimExpr {
        let (x, c) = (e.clone(), self.number(1, 6));
        match (self.below(12), e.kind()) {
            (0..=3, PrimKind::Binary(op, a, b)) => {
                let (a, b) = if self.below(2) == 0 { (self.step(a), b.clone()) } else { (a.clone(), self.step(b)) };
                raw(*op, a, b)
            }
            (4, PrimKind::Binary(op @ (BinOp::Add | BinOp::Mul | BinOp::Min | BinOp::Max), a, b)) => {
                raw(*op, b.clone(), a.clone())
            }
            (5, PrimKind::Binary(BinOp::Mul, a, b)) => match a.kind() {
                PrimKind::Binary(op @ (BinOp::Add | BinOp::Sub), p, q) => {
                    raw(*op, raw(BinOp::Mul, p.clone(), b.clone()), raw(BinOp::Mul, q.clone(), b.clone()))
                }
                _ => x,
            },
            (6, PrimKind::Binary(op @ (BinOp::FloorDiv | BinOp::FloorMod), a, b)) => {
                // Right for the quotient's numerator, wrong without scaling the divisor of the modulus.
                raw(*op, raw(BinOp::Mul, a.clone(), c.clone()), raw(BinOp::Mul, b.clone(), c))
            }
            (7, _) => raw(BinOp::FloorDiv, raw(BinOp::Mul, x, c.clone()), c),
            (8, _) => raw(
                BinOp::Add,
                raw(BinOp::Mul, raw(BinOp::FloorDiv, x.clone(), c.clone()), c.clone()),
                raw(BinOp::FloorMod, x, c),
            ),
            (9, _) => raw(BinOp::Mul, raw(BinOp::FloorDiv, x, c.clone()), c),
            (10, _) => {
                let y = self.var();
                raw(BinOp::Max, raw(BinOp::Min, x.clone(), y), x)
            }
            (11, _) => raw(BinOp::Add, x, self.number(-1, 2)),
            _ => x,
        }
    }
}

fn raw(op: BinOp, a: PrimExpr, b: PrimExpr) -> PrimExpr {
    PrimExpr::raw_binary(op, a, b)
}
