//! What kernels do, as fusion sees it.

use crate::accesses::TESTED;
use crate::appends::APPENDS;
use crate::schedule::window::Window;
use relax_ir::prim::{BinOp, Intrin, PrimExpr, PrimKind};
use relax_ir::tir::{Buffer, IterKind, PrimFunc, Stmt, StmtKind};
use relax_ir::DType;
use std::collections::HashSet;

/// What a kernel's body does to its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pattern {
    /// `out[i] = f(a[i], b[i], ..)`; broadcast inputs allowed.
    Elementwise,
    /// `out[i] = f(a[g(i)], ..)`: transposes, slices, gathers by index arithmetic.
    Injective,
    /// One block with reduction axes.
    Reduction,
    Opaque,
}

/// Classes a PrimFunc by its body: one perfect nest around one block is understood, everything else is opaque.
pub fn classify(f: &PrimFunc) -> Pattern {
    // Strides that a kernel states are checked where it is called.
    let strided = |b: &Buffer| b.strides.iter().any(|s| s.as_var().is_none());
    if [TESTED, APPENDS].iter().any(|a| f.attrs.get(a).is_some()) || f.buffers().any(strided) {
        return Pattern::Opaque;
    }
    let mut blocks = vec![];
    let mut plain = true;
    f.body.walk(&mut |s| match s.kind() {
        StmtKind::Block(b) => blocks.push(b.clone()),
        StmtKind::For { .. } | StmtKind::Seq(_) | StmtKind::Store { .. } => {}
        _ => plain = false,
    });
    let n_outputs_written: HashSet<u32> = stores(&f.body);
    if !plain || blocks.is_empty() || f.buffers().filter(|b| n_outputs_written.contains(&b.id())).count() != 1 {
        return Pattern::Opaque;
    }
    let mut worst = Pattern::Elementwise;
    let stages = blocks.len();
    for b in &blocks {
        if !b.alloc_buffers.is_empty() || !b.match_buffers.is_empty() || b.predicate.is_some() {
            return Pattern::Opaque;
        }
        let StmtKind::Store { buffer, indices, value } = b.body.kind() else { return Pattern::Opaque };
        let axes: Vec<PrimExpr> = b.axes.iter().filter(|a| a.kind == IterKind::Spatial).map(|a| a.var.expr()).collect();
        if b.axes.iter().any(|a| a.kind != IterKind::Spatial) {
            worst = worst.max(Pattern::Reduction);
            if indices != &axes {
                return Pattern::Opaque;
            }
            continue;
        }
        if indices != &axes {
            return Pattern::Opaque;
        }
        let mut injective = false;
        let mut self_read = false;
        value.walk(&mut |e| {
            if let PrimKind::BufferLoad(l, idx) = e.kind() {
                self_read |= l == buffer;
                let same = idx[..] == axes[..];
                // Broadcast: each index is an axis in order, or 0 along a dim of extent 1.
                let broadcast = idx.len() <= axes.len() && {
                    let tail = &axes[axes.len() - idx.len()..];
                    idx.iter().zip(tail).all(|(i, a)| i == a || i.is_int(0))
                };
                injective |= !same && !broadcast;
            }
        });
        if self_read {
            return Pattern::Opaque;
        }
        if injective {
            worst = worst.max(Pattern::Injective);
        }
    }
    if worst == Pattern::Reduction && stages > 2 {
        return Pattern::Opaque;
    }
    worst
}

fn stores(s: &Stmt) -> HashSet<u32> {
    let mut out = HashSet::new();
    s.walk(&mut |s| {
        if let StmtKind::Store { buffer, .. } = s.kind() {
            out.insert(buffer.id());
        }
    });
    out
}

/// Whether several statements write the kernel's result, each a piece of it.
pub(super) fn pieced(f: &PrimFunc) -> bool {
    let Some(out) = f.buffers().last() else { return false };
    let mut writers = 0;
    f.body.walk(&mut |s| {
        if let StmtKind::Block(b) = s.kind() {
            writers += matches!(b.body.kind(), StmtKind::Store { buffer, .. } if buffer == out) as usize;
        }
    });
    writers > 1
}

/// See [`Fuse::permutation`].
pub(super) fn permutation(f: &PrimFunc) -> Option<Vec<usize>> {
    let mut blocks = vec![];
    f.body.walk(&mut |s| {
        if let StmtKind::Block(b) = s.kind() {
            blocks.push(b.clone());
        }
    });
    let [b] = blocks.as_slice() else { return None };
    let StmtKind::Store { indices, value, .. } = b.body.kind() else { return None };
    let PrimKind::BufferLoad(_, read) = value.kind() else { return None };
    if read.len() != indices.len() || read.len() < 2 {
        return None;
    }
    let mut order = vec![];
    for i in read.iter() {
        let at = indices.iter().position(|x| x == i && x.as_var().is_some())?;
        if order.contains(&at) {
            return None;
        }
        order.push(at);
    }
    Some(order)
}

/// The number of the buffer of which several elements that data chooses go into one, as where samples of pictures are
/// interpolated.
pub(super) fn mixed(f: &PrimFunc) -> Option<usize> {
    let mut chosen: Vec<(u32, PrimExpr)> = vec![];
    let load = |e: &PrimExpr| matches!(e.kind(), PrimKind::BufferLoad(..));
    f.body.walk(&mut |s| {
        for e in s.exprs() {
            e.walk(&mut |e| {
                let PrimKind::BufferLoad(b, at) = e.kind() else { return };
                let mut by_data = false;
                at.iter().for_each(|i| i.walk(&mut |i| by_data |= load(i)));
                if by_data && !chosen.iter().any(|(_, other)| other == e) {
                    chosen.push((b.id(), e.clone()));
                }
            });
        }
    });
    f.buffers().position(|b| chosen.iter().filter(|(id, _)| *id == b.id()).count() > 1)
}

/// Whether sines, cosines or tangents are computed, for which there are no instructions of wide vectors
/// ([`crate::Assemble`]): what they are fused with goes without such, too.
pub(super) fn of_angles(f: &PrimFunc) -> bool {
    let mut found = false;
    f.body.walk(&mut |s| {
        for e in s.exprs() {
            e.walk(&mut |e| found |= matches!(e.kind(), PrimKind::Call(Intrin::Sin | Intrin::Cos | Intrin::Tan, _)));
        }
    });
    found
}

/// A sum of products of two float32 tensors, both of the dims of the result and one more or less: no window.
pub(super) fn is_product(f: &PrimFunc) -> bool {
    product_operands(f).is_some()
}

/// Its two tensors.
pub(crate) fn product_operands(f: &PrimFunc) -> Option<[Buffer; 2]> {
    let mut found = vec![];
    f.body.walk(&mut |s| {
        let StmtKind::Block(b) = s.kind() else { return };
        let reduced: Vec<_> = b.axes.iter().filter(|a| a.kind == IterKind::Reduce).collect();
        let (StmtKind::Store { buffer, value, .. }, [k]) = (b.body.kind(), reduced.as_slice()) else { return };
        let PrimKind::Binary(BinOp::Add, acc, product) = value.kind() else { return };
        let PrimKind::Binary(BinOp::Mul, x, y) = product.kind() else { return };
        let own = matches!(acc.kind(), PrimKind::BufferLoad(o, _) if o == buffer);
        let plain = |e: &PrimExpr| match e.kind() {
            PrimKind::BufferLoad(b, i) => {
                let along = |i: &PrimExpr| i.as_var().is_some() || i.is_int(0);
                let walked = i.iter().all(along) && i.iter().any(|i| i.uses(&k.var));
                (b.dtype() == DType::F32 && walked).then(|| b.clone())
            }
            _ => None,
        };
        if let (true, Some(x), Some(y)) = (own && b.attrs.is_empty(), plain(x), plain(y)) {
            found.push([x, y]);
        }
    });
    let [only] = found.as_slice() else { return None };
    Some(only.clone())
}

/// Every input is loaded at most once per point, with each reduce and spatial axis in its index: a sum, not a matmul; nor
/// a window, whose kernels take their data from memory.
pub(crate) fn reads_inputs_once(f: &PrimFunc) -> bool {
    let mut ok = true;
    f.body.walk(&mut |s| {
        let StmtKind::Block(b) = s.kind() else { return };
        let StmtKind::Store { buffer, value, .. } = b.body.kind() else { return };
        ok &= Window::of(&b.attrs).is_none();
        value.walk(&mut |e| {
            if let PrimKind::BufferLoad(l, idx) = e.kind() {
                if l != buffer {
                    ok &= b.axes.iter().all(|a| a.extent.is_int(1) || idx.iter().any(|i| i.uses(&a.var)));
                }
            }
        });
    });
    ok
}
