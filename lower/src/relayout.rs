//! Constants in another order of elements, made natively while compiling.
//!
//! Large ones are made when their bytes are asked for, and piece by piece where they are written to a file: there is no
//! copy of them in memory.

use relax_ir::constant::{ConstantData, Order};
use relax_ir::Constant;
use std::hash::{Hash, Hasher};
use std::io;
use std::sync::{Arc, OnceLock};

/// Smaller constants are made at once.
const LARGE: usize = 1 << 20;
/// Bytes of a piece, about.
const PIECE: usize = 1 << 20;
/// Rows of a transposed matrix that are filled together, so that what is read comes in whole lines of a cache.
const TOGETHER: usize = 16;

/// A matrix in panels ([`Order::Panels`]).
pub fn panels(c: &Constant, order: Order) -> Constant {
    let Order::Panels { depth, columns, turned, .. } = order else { return c.clone() };
    let n = order.elements(c.elements()) as i64;
    // Panels of what was transposed are panels of what it was.
    if let Some((of, Order::Transposed { rows, columns: c })) = c.data.reordered() {
        if (rows, c) == if turned { (depth, columns) } else { (columns, depth) } {
            let mut order = order;
            if let Order::Panels { turned, .. } = &mut order {
                *turned = !*turned;
            }
            return reordered(of, vec![n], order);
        }
    }
    reordered(c, vec![n], order)
}

/// The transposed form of a matrix; `None` for other tensors.
pub fn transposed(c: &Constant) -> Option<Constant> {
    let [rows, columns] = *c.shape.as_slice() else { return None };
    let order = Order::Transposed { rows: rows as usize, columns: columns as usize };
    Some(reordered(c, vec![columns, rows], order))
}

fn reordered(c: &Constant, shape: Vec<i64>, order: Order) -> Constant {
    let data = Reordered { of: c.clone(), order, made: OnceLock::new() };
    match data.size() >= LARGE {
        true => Constant { dtype: c.dtype, shape, data: Arc::new(data) },
        false => Constant::new(c.dtype, shape, data.make()),
    }
}

/// The bytes of `of` in another order.
#[derive(Debug)]
struct Reordered {
    of: Constant,
    order: Order,
    made: OnceLock<Vec<u8>>,
}

impl Reordered {
    fn make(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.size());
        // Nothing here fails.
        let _ = self.pieces(&mut |piece| {
            out.extend_from_slice(piece);
            Ok(())
        });
        out
    }
}

impl ConstantData for Reordered {
    fn bytes(&self) -> &[u8] {
        self.made.get_or_init(|| self.make())
    }

    fn size(&self) -> usize {
        self.order.elements(self.of.elements()) * self.of.dtype.bytes()
    }

    fn pieces(&self, f: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        if let Some(made) = self.made.get() {
            return f(made);
        }
        let from = self.of.bytes();
        match (self.order, self.of.dtype.bytes()) {
            (Order::Panels { columns, width, whole, last, turned: false, .. }, n) => {
                panels_of_rows(from, columns * n, [width, whole, last].map(|x| x * n), f)
            }
            (order, 1) => columnwise::<1>(from, order, f),
            (order, 2) => columnwise::<2>(from, order, f),
            (order, 4) => columnwise::<4>(from, order, f),
            (order, _) => columnwise::<8>(from, order, f),
        }
    }

    fn reordered(&self) -> Option<(&Constant, Order)> {
        Some((&self.of, self.order))
    }

    fn address(&self) -> usize {
        self as *const Reordered as usize
    }
}

/// What is to be written, in pieces of about [`PIECE`].
struct Pieces<'a> {
    piece: Vec<u8>,
    f: &'a mut dyn FnMut(&[u8]) -> io::Result<()>,
}

impl Pieces<'_> {
    fn flush(&mut self, least: usize) -> io::Result<()> {
        if self.piece.len() >= least.max(1) {
            (self.f)(&self.piece)?;
            self.piece.clear();
        }
        Ok(())
    }
}

/// First column, end and row length of each panel.
fn each_panel(columns: usize, [width, whole, last]: [usize; 3]) -> impl Iterator<Item = (usize, usize, usize)> {
    let full = (0..whole).step_by(width).map(move |first| (first, first + width, width));
    full.chain((whole < columns).then_some((whole, columns, last)))
}

/// Panels of a matrix that is there row by row, all in bytes.
fn panels_of_rows(
    from: &[u8],
    line: usize,
    panels: [usize; 3],
    f: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut out = Pieces { piece: Vec::with_capacity(PIECE.min(from.len())), f };
    for (first, end, width) in each_panel(line, panels) {
        for row in from.chunks_exact(line) {
            let next = out.piece.len() + width;
            out.piece.extend_from_slice(&row[first..end]);
            out.piece.resize(next, 0);
            out.flush(PIECE)?;
        }
    }
    out.flush(0)
}

/// Orders that read along columns.
fn columnwise<const N: usize>(from: &[u8], order: Order, f: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let (all, _) = from.as_chunks::<N>();
    let mut out = Pieces { piece: vec![], f };
    match order {
        Order::Transposed { rows, columns } if rows * columns > 0 => {
            for first in (0..columns).step_by(TOGETHER) {
                let end = columns.min(first + TOGETHER);
                out.piece.resize((end - first) * rows * N, 0);
                let (to, _) = out.piece.as_chunks_mut::<N>();
                for (i, row) in all.chunks_exact(columns).enumerate() {
                    for (j, x) in row[first..end].iter().enumerate() {
                        to[j * rows + i] = *x;
                    }
                }
                out.flush(0)?;
            }
        }
        Order::Panels { depth, columns, width, whole, last, turned: true } => {
            for (first, end, width) in each_panel(columns, [width, whole, last]) {
                for k in 0..depth {
                    let next = out.piece.len() + width * N;
                    for j in first..end {
                        out.piece.extend_from_slice(all.get(j * depth + k).unwrap_or(&[0; N]));
                    }
                    out.piece.resize(next, 0);
                    out.flush(PIECE)?;
                }
            }
            out.flush(0)?;
        }
        _ => {}
    }
    Ok(())
}

/// A hash of a part of the bytes: enough to tell weights apart, in a time that does not grow with them.
pub fn sample(c: &Constant) -> u64 {
    const WHOLE: usize = 4096;
    let mut h = fnv::FnvHasher::default();
    if let Some((of, order)) = c.data.reordered() {
        (sample(of), order).hash(&mut h);
        return h.finish();
    }
    let bytes = c.bytes();
    bytes.len().hash(&mut h);
    if bytes.len() <= 4 * WHOLE {
        bytes.hash(&mut h);
        return h.finish();
    }
    for part in [&bytes[..WHOLE], &bytes[bytes.len() / 2..][..WHOLE], &bytes[bytes.len() - WHOLE..]] {
        part.hash(&mut h);
    }
    h.finish()
}

/// Whether two constants are the same in every byte, as far as that can be told without making any: those in another
/// order are the same when what they were is.
pub fn same(a: &Constant, b: &Constant) -> bool {
    match (a.data.reordered(), b.data.reordered()) {
        (Some((a, i)), Some((b, j))) => i == j && same(a, b),
        (None, None) => a.bytes() == b.bytes(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use relax_ir::DType;

    #[test]
    fn a_matrix_in_panels() {
        let c = Constant::new(DType::U8, vec![2, 5], (0..10).collect());
        let t = transposed(&c).unwrap();
        for (whole, last, wanted) in [
            (4, 1, vec![0, 1, 5, 6, 2, 3, 7, 8, 4, 9]),
            (2, 4, vec![0, 1, 5, 6, 2, 3, 4, 0, 7, 8, 9, 0]),
            (0, 5, (0..10).collect()),
        ] {
            let order = |turned| Order::Panels { depth: 2, columns: 5, width: 2, whole, last, turned };
            assert_eq!(panels(&c, order(false)).bytes(), wanted);
            assert_eq!(panels(&t, order(true)).bytes(), wanted);
        }
    }

    /// Large constants are made late, and panels of a transposed one from the one it was.
    #[test]
    fn large_ones_in_pieces() {
        let (rows, columns) = (700, 450);
        let bytes: Vec<u8> = (0..rows * columns).flat_map(|i: usize| (i as f32).to_le_bytes()).collect();
        let c = Constant::new(DType::F32, vec![rows as i64, columns as i64], bytes);
        let element = |c: &Constant, at: usize| f32::from_le_bytes(c.bytes()[at * 4..at * 4 + 4].try_into().unwrap());
        let t = transposed(&c).unwrap();
        for (depth, count, p, turned, wanted) in [
            (columns, rows, &t, false, true),
            (rows, columns, &t, true, false),
            (rows, columns, &c, false, false),
            (columns, rows, &c, true, true),
        ]
        .map(|(depth, count, of, turned, found)| {
            let whole = count / 32 * 32;
            let order = |turned| Order::Panels { depth, columns: count, width: 32, whole, last: count - whole, turned };
            (depth, count, panels(of, order(turned)), found, order(found))
        }) {
            let (of, order) = p.data.reordered().unwrap();
            assert_eq!(of.data.address(), c.data.address());
            assert_eq!(order, wanted);
            let mut whole = vec![];
            p.data
                .pieces(&mut |piece| {
                    whole.extend_from_slice(piece);
                    Ok(())
                })
                .unwrap();
            assert_eq!(whole, p.bytes());
            let mut at = 0;
            for first in (0..count).step_by(32) {
                for k in 0..depth {
                    for j in first..count.min(first + 32) {
                        let wanted = if turned { j * depth + k } else { k * count + j };
                        assert_eq!(element(&p, at), wanted as f32);
                        at += 1;
                    }
                }
            }
        }
        assert_eq!(element(&t, 3), (3 * columns) as f32);
    }

    #[test]
    fn a_matrix_in_blocks() {
        let (rows, columns) = (5, 37);
        let c = Constant::new(DType::U8, vec![rows, columns], (0..rows * columns).map(|i| i as u8).collect());
        let t = transposed(&c).unwrap();
        assert_eq!(t.shape, [columns, rows]);
        let wanted = (0..rows * columns).map(|i| (i % rows * columns + i / rows) as u8);
        assert_eq!(t.bytes(), wanted.collect::<Vec<u8>>());
        assert!(transposed(&Constant::new(DType::U8, vec![0, 3], vec![])).unwrap().bytes().is_empty());
        assert!(transposed(&Constant::new(DType::U8, vec![3, 0], vec![])).unwrap().bytes().is_empty());
    }
}
