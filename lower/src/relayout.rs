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
    fn a_transposed_constant() {
        let c = Constant::new(DType::U8, vec![2, 3], vec![1, 2, 3, 4, 5, 6]);
        let t = gather(&c, vec![3, 2], (0..6).map(|i| i % 2 * 3 + i / 2));
        assert_eq!(t.bytes(), [1, 4, 2, 5, 3, 6]);
    }
}
