//! Which products and norms of their rows become one kernel, as scores, softmax and what these weigh do, that goes by bands of
//! rows ([`crate::schedule`]): the scores of all rows by all keys are never there as a whole.

use crate::fuse::product_operands;
use crate::schedule;
use relax_ir::tir::PrimFunc;

/// What a kernel may be.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    /// A product of matrices of a batch or of heads; its right side is no matrix of weights.
    Product,
    /// Rows that are normalised.
    Rows,
}

fn part(f: &PrimFunc) -> Option<Part> {
    match product_operands(f) {
        Some(operands) => operands.iter().all(|b| b.ndim() > 2).then_some(Part::Product),
        None => (schedule::statements(f).len() > 1 && schedule::is_rows(f)).then_some(Part::Rows),
    }
}

/// Whether a kernel may be part of one.
pub fn is_part(f: &PrimFunc) -> bool {
    part(f).is_some()
}

/// Whether `second`, whose parameter `at` is the result of `first`, may take it band by band.
pub fn may_follow(first: &PrimFunc, second: &PrimFunc, at: usize) -> bool {
    match (part(first), part(second)) {
        (Some(Part::Product), Some(Part::Rows)) => true,
        // As its left side.
        (Some(Part::Rows), Some(Part::Product)) => {
            product_operands(second).is_some_and(|[left, _]| second.buffers().nth(at) == Some(&left))
        }
        _ => false,
    }
}
