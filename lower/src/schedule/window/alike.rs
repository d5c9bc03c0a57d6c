//! Windows that another one comes down to over the same bytes: products, one row for a picture, pictures that lie down.

use super::{Kind, Sizes, Window};
use relax_ir::PrimExpr;

/// The product of `rows` rows with a matrix of weights.
pub fn product(w: &Window, rows: i64) -> Window {
    Window {
        kind: Kind::Conv,
        batch: 1,
        size: [1, rows],
        out: [1, rows],
        kernel: [1, 1],
        stride: [1, 1],
        dilation: [1, 1],
        groups: 1,
        before: [0, 0],
        margin: [0, 0],
        last: true,
        pitch: 0,
        ..w.clone()
    }
}

/// A 1x1 convolution as one over a single row.
pub fn flattened(w: &Window) -> Option<Window> {
    let whole = w.kernel == [1, 1] && w.stride == [1, 1] && w.before == [0, 0] && w.size == w.out && w.last;
    let columns = w.batch * w.size[0] * w.size[1];
    (whole && w.kind == Kind::Conv).then(|| Window { batch: 1, size: [1, columns], out: [1, columns], ..w.clone() })
}

/// A window over pictures of one column as one over pictures of one row, whose elements lie alike: tiles are neighbouring
/// columns. Of open sizes these are likely ones, which [`pinned`] asks for.
pub fn laid_down(w: &Window) -> Option<Window> {
    let single = [w.size, w.out, w.kernel].iter().all(|n| n[1] == 1) && w.before[1] == 0;
    let inside = w.before[0] == 0 && (w.out[0] - 1) * w.stride[0] + (w.kernel[0] - 1) * w.dilation[0] < w.size[0];
    let direct = !matches!(w.kind, Kind::Winograd(_));
    (single && w.out[0] > 1 && direct && (inside || !w.open)).then(|| {
        let turned = |[rows, columns]: [i64; 2]| [columns, rows];
        Window {
            size: turned(w.size),
            out: turned(w.out),
            kernel: turned(w.kernel),
            stride: turned(w.stride),
            dilation: turned(w.dilation),
            before: turned(w.before),
            ..w.clone()
        }
    })
}

/// Of open sizes a window whose rows and columns are known: pictures are many or few, but alike.
pub fn pinned(w: &Window, sizes: &Sizes) -> Option<Window> {
    let known = |of: &[PrimExpr; 2], likely: [i64; 2]| of.iter().zip(likely).all(|(n, known)| n.is_int(known));
    let alike = known(&sizes.size, w.size) && known(&sizes.out, w.out) && !matches!(w.kind, Kind::Winograd(_));
    (w.open && alike).then(|| Window { open: false, margin: [0, 0], ..w.clone() })
}
