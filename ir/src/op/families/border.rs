//! What stands beyond the elements of padded axes: mirrored ones, those of the other end, the last one.

use crate::prim::PrimExpr;
use crate::tir::Buffer;

/// Dims below this are counted without a care for the limits of int64.
const MOST: i64 = 1 << 40;

/// The place in `x` of an index, counted from its first element, that is outside of so many elements.
type Place = fn(PrimExpr, i64) -> PrimExpr;

/// How one axis continues beyond its `size` elements, of which the first is element `begin` of the result.
pub struct Side {
    begin: i64,
    size: i64,
    /// The element that stands at a place before the first one, and the one behind the last.
    ends: Option<[Place; 2]>,
}

/// The axes, where they are padded by known numbers of elements that are there once: pieces that loops run over without
/// a division. At most three: each makes three loops of one.
pub fn sides(mode: &str, begin: &[i64], from: &[PrimExpr], to: &[PrimExpr]) -> Option<Vec<Side>> {
    let ends: [Place; 2] = match mode {
        "reflect" => [|p, _| PrimExpr::i64(0) - p, |p, n| PrimExpr::i64(2 * n - 2) - p],
        "wrap" => [|p, n| p + n, |p, n| p - n],
        "edge" => [|_, _| PrimExpr::i64(0), |_, n| PrimExpr::i64(n - 1)],
        _ => return None,
    };
    let mut out = vec![];
    for ((&begin, n), m) in begin.iter().zip(from).zip(to) {
        if begin == 0 && n == m {
            out.push(Side { begin, size: 0, ends: None });
            continue;
        }
        let (n, m) = (n.as_int()?, m.as_int()?);
        if !(1..MOST).contains(&n) || !(0..MOST).contains(&m) || !(0..MOST).contains(&begin) {
            return None;
        }
        let end = m - n - begin;
        let most = match mode {
            "reflect" => n - 1,
            "wrap" => n,
            _ => MOST,
        };
        if begin > most || !(0..=most).contains(&end) {
            return None;
        }
        out.push(Side { begin, size: n, ends: Some(ends) });
    }
    (out.iter().filter(|s| s.ends.is_some()).count() <= 3).then_some(out)
}

/// The element of `x` for `i`, of whose axes `at` has the places in `x` already.
pub fn outside(x: &Buffer, i: &[PrimExpr], sides: &[Side], at: Vec<PrimExpr>) -> PrimExpr {
    let Some(side) = sides.get(at.len()) else { return x.at(at) };
    let p = i[at.len()].clone();
    let place = |p: PrimExpr| outside(x, i, sides, at.iter().cloned().chain([p]).collect());
    let Some([before, behind]) = side.ends else { return place(p) };
    let from = p.clone() - side.begin;
    let inside = p.clone().lt(PrimExpr::i64(side.begin + side.size));
    let inner = inside.if_then_else(place(from.clone()), place(behind(from.clone(), side.size)));
    match side.begin {
        0 => inner,
        begin => p.lt(PrimExpr::i64(begin)).if_then_else(place(before(from, side.size)), inner),
    }
}
