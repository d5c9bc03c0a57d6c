//! Long sums of floats, made in pieces that are added up.
//!
//! One sum of `n` terms is rounded `n` times, at the size it has by then: 120 by 160 pixels come to 1e-4 of their mean. Of
//! pieces of `m` terms each is rounded `m` times and the sum of them `n / m` times.

use super::emit::{compute_type, Emit, Res};
use super::map::spread;
use super::nest::{used_plainly, Nest};
use super::poly::Poly;
use super::stage::{Acc, Axis};
use relax_ir::prim::{BinOp, PrimKind};
use relax_ir::{DType, PrimExpr, Var};

/// Terms from which a sum is made in pieces, and of a piece: at least, and at most where it is cut.
const LONG: i64 = 1024;
const LEAST: i64 = 32;
const MOST: i64 = 128;

/// Where the pieces of a sum begin.
#[derive(Clone, Copy)]
pub struct Pieces {
    /// The reduction axes from this on are within a piece.
    first: usize,
    /// Of that axis so many steps are a piece; all of them without.
    steps: Option<i64>,
}

/// Emits the loops over these axes, of the first over a range, for these accumulators of each point.
pub type Piece<'a> = &'a mut dyn FnMut(&mut Emit, &[Axis], Option<(PrimExpr, PrimExpr)>, &[Vec<Var>]) -> Res<()>;

impl Pieces {
    /// The pieces of a reduction whose accumulators are all sums of floats, over more terms than are exact enough or an
    /// unknown count of them.
    pub fn of(n: &Nest) -> Option<Pieces> {
        if n.accs.is_empty() || !n.accs.iter().all(|a| is_float_sum(n, a)) {
            return None;
        }
        let product = |axes: &[Axis]| axes.iter().try_fold(1i64, |n, a| Some(n.saturating_mul(a.len()?)));
        if product(&n.reduce).is_some_and(|n| n < LONG) {
            return None;
        }
        // The innermost loops that are enough for a piece.
        let enough = |i: &usize| product(&n.reduce[*i..]).is_none_or(|n| n >= LEAST);
        let first = (0..n.reduce.len()).rev().find(enough)?;
        // Nothing is summed where a loop does not run.
        let within = product(&n.reduce[first + 1..]).filter(|n| *n > 0)?;
        let cut = first == 0 || product(&n.reduce[first..]).is_none_or(|n| n >= LONG);
        Some(Pieces { first, steps: cut.then(|| (MOST / within).max(1)) })
    }

    /// Adds the pieces to `sums`, each point's accumulators.
    pub fn emit(self, e: &mut Emit, n: &Nest, sums: &[Vec<Var>], piece: Piece) -> Res<()> {
        self.outer(e, n, &n.reduce, sums, piece)
    }

    fn outer(self, e: &mut Emit, n: &Nest, axes: &[Axis], sums: &[Vec<Var>], piece: Piece) -> Res<()> {
        let mut one = |e: &mut Emit, range| {
            let own: Vec<Vec<Var>> =
                sums.iter().map(|s| s.iter().map(|s| e.local("part", zero_like(s))).collect()).collect();
            piece(e, axes, range, &own)?;
            for (sum, part) in sums.iter().flatten().zip(own.iter().flatten()) {
                e.assign(sum, sum.expr() + part.expr());
            }
            Ok(())
        };
        let Some(axis) = axes.first() else { return Err(e.internal("a sum of pieces has no axis")) };
        let end = Poly::of(&axis.extent, &e.ranges);
        let end = e.index(&end)?;
        let end = e.hoist(end);
        let zero = PrimExpr::i64(0);
        if axes.len() + self.first > n.reduce.len() {
            return e.for_loop(&axis.var, zero, end, 1, |e| self.outer(e, n, &axes[1..], sums, piece));
        }
        let Some(steps) = self.steps else { return one(e, None) };
        let begin = Var::new("begin", DType::I64);
        e.ranges.add_loop(&begin, Poly::default(), Poly::of(&axis.extent, &e.ranges));
        e.for_loop(&begin, zero, end.clone(), steps, |e| {
            let to = e.hoist((begin.expr() + steps).min(end));
            one(e, Some((begin.expr(), to)))
        })
    }
}

fn zero_like(v: &Var) -> PrimExpr {
    let d = v.dtype();
    spread(PrimExpr::zero(d.with_lanes(1)), d.lanes)
}

/// `acc = acc + term`, in a type whose sums are not rounded to 16 bits at each step anyway.
fn is_float_sum(n: &Nest, acc: &Acc) -> bool {
    let d = compute_type(acc.var.dtype());
    let PrimKind::Binary(BinOp::Add, a, b) = acc.update.kind() else { return false };
    let free = |e: &PrimExpr| !n.accs.iter().any(|a| used_plainly(e, &a.var));
    let own = |e: &PrimExpr| e.as_var() == Some(&acc.var);
    d.is_float() && acc.var.dtype().bits > 16 && ((own(a) && free(b)) || (own(b) && free(a)))
}
