//! Constants in another order of elements, made natively while compiling.

use relax_ir::Constant;

/// The elements of `c` at the positions of `order`, as a tensor of `shape`. Positions outside of `c` give zeros;
/// `order` has an item per element of `shape`.
pub fn gather(c: &Constant, shape: Vec<i64>, order: impl Iterator<Item = usize>) -> Constant {
    let elements = shape.iter().product::<i64>() as usize;
    let bytes = match c.dtype.bytes() {
        1 => collect::<1>(c, elements, order),
        2 => collect::<2>(c, elements, order),
        4 => collect::<4>(c, elements, order),
        _ => collect::<8>(c, elements, order),
    };
    Constant::new(c.dtype, shape, bytes)
}

/// A matrix of `columns` columns in panels of `width` (the last may be narrower), each row by row.
pub fn panels(c: &Constant, columns: usize, width: usize) -> Constant {
    let (line, width) = (columns * c.dtype.bytes(), width * c.dtype.bytes());
    let bytes = c.bytes();
    let mut out = Vec::with_capacity(bytes.len());
    for first in (0..line).step_by(width.max(1)) {
        let end = line.min(first + width);
        for row in bytes.chunks_exact(line.max(1)) {
            out.extend_from_slice(&row[first..end]);
        }
    }
    Constant::new(c.dtype, vec![c.elements() as i64], out)
}

/// The transposed form of a matrix; `None` for other tensors.
pub fn transposed(c: &Constant) -> Option<Constant> {
    let [rows, columns] = *c.shape.as_slice() else { return None };
    let bytes = match c.dtype.bytes() {
        1 => turned::<1>(c, rows as usize, columns as usize),
        2 => turned::<2>(c, rows as usize, columns as usize),
        4 => turned::<4>(c, rows as usize, columns as usize),
        _ => turned::<8>(c, rows as usize, columns as usize),
    };
    Some(Constant::new(c.dtype, vec![columns, rows], bytes))
}

/// Rows of the result that are filled together, so that what is read comes in whole lines of a cache.
const TOGETHER: usize = 16;

fn turned<const N: usize>(c: &Constant, rows: usize, columns: usize) -> Vec<u8> {
    if rows * columns == 0 {
        return vec![];
    }
    let (all, _) = c.bytes().as_chunks::<N>();
    let mut out = vec![0; rows * columns * N];
    let (to, _) = out.as_chunks_mut::<N>();
    for first in (0..columns).step_by(TOGETHER) {
        let end = columns.min(first + TOGETHER);
        for (i, row) in all.chunks_exact(columns).enumerate() {
            for (j, x) in (first..end).zip(&row[first..end]) {
                to[j * rows + i] = *x;
            }
        }
    }
    out
}

fn collect<const N: usize>(c: &Constant, elements: usize, order: impl Iterator<Item = usize>) -> Vec<u8> {
    let (all, _) = c.bytes().as_chunks::<N>();
    let mut out = Vec::with_capacity(elements * N);
    for i in order.take(elements) {
        out.extend_from_slice(all.get(i).unwrap_or(&[0; N]));
    }
    out.resize(elements * N, 0);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use relax_ir::DType;

    #[test]
    fn a_matrix_in_panels() {
        let c = Constant::new(DType::U8, vec![2, 5], (0..10).collect());
        assert_eq!(panels(&c, 5, 2).bytes(), [0, 1, 5, 6, 2, 3, 7, 8, 4, 9]);
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

    #[test]
    fn a_transposed_constant() {
        let c = Constant::new(DType::U8, vec![2, 3], vec![1, 2, 3, 4, 5, 6]);
        let t = gather(&c, vec![3, 2], (0..6).map(|i| i % 2 * 3 + i / 2));
        assert_eq!(t.bytes(), [1, 4, 2, 5, 3, 6]);
    }
}
