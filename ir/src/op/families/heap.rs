//! Heaps of element numbers: no number is above the one at the root.

use crate::prim::PrimExpr;
use crate::tir::{Buffer, Stmt};

/// A heap in a part of a buffer of int64 numbers.
pub struct Heap<'a> {
    pub items: &'a Buffer,
    /// The indices of the item at a place.
    pub at: &'a dyn Fn(PrimExpr) -> Vec<PrimExpr>,
    /// Whether the element of the first number belongs above that of the second.
    pub above: &'a dyn Fn(&PrimExpr, &PrimExpr) -> PrimExpr,
    /// Counters, of which the cells from `cell` on are used: where an item sinks, which child is looked at, and what
    /// part of the heap is in order.
    pub state: &'a Buffer,
    pub cell: i64,
}

/// Cells of the counters.
pub const CELLS: i64 = 3;

impl Heap<'_> {
    fn counter(&self, n: i64) -> PrimExpr {
        self.state.at([PrimExpr::i64(self.cell + n)])
    }

    fn set(&self, n: i64, value: PrimExpr) -> Stmt {
        Stmt::store(self.state, vec![PrimExpr::i64(self.cell + n)], value)
    }

    /// The item at a place.
    pub fn item(&self, place: PrimExpr) -> PrimExpr {
        self.items.at((self.at)(place))
    }

    /// Puts an item at a place.
    pub fn put(&self, place: PrimExpr, item: PrimExpr) -> Stmt {
        Stmt::store(self.items, (self.at)(place), item)
    }

    /// Lets `held`, a variable, sink from a place in a heap of `size` items.
    pub fn sink(&self, from: PrimExpr, size: PrimExpr, held: PrimExpr) -> Stmt {
        let (place, child) = (self.counter(0), self.counter(1));
        let right = child.clone() + 1;
        let other = (self.above)(&self.item(right.clone()), &self.item(child.clone()));
        let other = right.clone().lt(size.clone()).if_then_else(other, PrimExpr::bool(false));
        let rise = Stmt::seq(vec![
            self.put(place.clone(), self.item(child.clone())),
            self.set(0, child.clone()),
            self.set(1, child.clone() * 2 + 1),
        ]);
        let step = Stmt::seq(vec![
            Stmt::if_then(other, self.set(1, right)),
            Stmt::if_else((self.above)(&self.item(child.clone()), &held), rise, self.set(1, size.clone())),
        ]);
        Stmt::seq(vec![
            self.set(0, from.clone()),
            self.set(1, from * 2 + 1),
            Stmt::while_loop(child.lt(size), step),
            self.put(place, held),
        ])
    }

    /// Makes a heap of the first `size` items.
    pub fn build(&self, size: PrimExpr) -> Stmt {
        let left = self.counter(2);
        let held = crate::prim::Var::dim("held");
        let sink = Stmt::let_in(&held, self.item(left.clone()), self.sink(left.clone(), size.clone(), held.expr()));
        Stmt::seq(vec![
            self.set(2, size.floor_div(2)),
            Stmt::while_loop(left.clone().gt(0), Stmt::seq(vec![self.set(2, left - 1), sink])),
        ])
    }
}
