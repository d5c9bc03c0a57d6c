//! Which convolutions become one kernel that goes down bands of rows ([`crate::schedule::window`]).
//!
//! What a pointwise convolution hands the depthwise one behind it is several times as large as the pictures before and
//! after: beyond the second-level cache it is written to memory and read back, and takes the most of the workspace.

use crate::schedule::window::{Kind, Window};
use relax_ir::prim::PrimKind;
use relax_ir::tir::{Block, PrimFunc, StmtKind};
use relax_ir::DType;

/// Bytes of a tensor that is worth it: less stays in the second-level cache.
const LEAST: i64 = 1 << 20;

/// Bytes of weights that are read again for each band.
const WEIGHTS: i64 = 64 << 10;

/// The window of a kernel that has one, with anything but reductions behind it.
pub fn window(f: &PrimFunc) -> Option<Window> {
    let blocks = blocks(f);
    let mut reductions = blocks.iter().filter(|b| b.init.is_some());
    let only = reductions.next().filter(|_| reductions.next().is_none())?;
    let w = Window::of(&only.attrs)?;
    (!w.open && w.batch == 1 && !matches!(w.kind, Kind::Winograd(_))).then_some(w)
}

/// Whether `second`, whose parameter `at` is the result of `first`, may take it band by band.
pub fn may_follow(first: &PrimFunc, second: &PrimFunc, at: usize) -> bool {
    let (Some(a), Some(b), Some(data)) = (window(first), window(second), second.buffers().nth(at)) else {
        return false;
    };
    let between = a.out[0] * a.out[1] * a.made * 4;
    let weights = |w: &Window| if w.is_pool() { 0 } else { w.made * w.depth() * w.stored().bytes() as i64 };
    let tall = (b.kernel[0] - 1) * b.dilation[0] + 1 >= b.stride[0];
    let fits = b.last && tall && data.dtype() == DType::F32 && b.size == a.out && b.taken == a.made;
    let worth = between >= LEAST && weights(&a).max(weights(&b)) <= WEIGHTS;
    fits && worth && reads(second, data.id()) == [true]
}

/// For each load of a buffer, whether a window's block makes it.
fn reads(f: &PrimFunc, buffer: u32) -> Vec<bool> {
    let mut out = vec![];
    for b in blocks(f) {
        let StmtKind::Store { value, indices, .. } = b.body.kind() else { continue };
        indices.iter().chain([value]).for_each(|e| {
            e.walk(&mut |e| {
                if matches!(e.kind(), PrimKind::BufferLoad(l, _) if l.id() == buffer) {
                    out.push(Window::of(&b.attrs).is_some());
                }
            })
        });
    }
    out
}

fn blocks(f: &PrimFunc) -> Vec<Block> {
    let mut out = vec![];
    f.body.walk(&mut |s| {
        if let StmtKind::Block(b) = s.kind() {
            out.push((**b).clone());
        }
    });
    out
}
