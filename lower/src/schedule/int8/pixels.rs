//! Planes of floats to pixels of bytes: the first step of a quantised network over images.

use super::{c, let_, load, steps, Conv, Form, Sizes, Writer};
use relax_ir::attrs::AttrValue;
use relax_ir::flat::{FlatFunc, FlatStmt, Linkage};
use relax_ir::tir::PrimFunc;
use relax_ir::{DType, PrimExpr, Var};

/// The attribute that holds [`Pixels`].
pub(super) const PIXELS: &str = "relax_aot.pixels";

/// Planes of floats to pixels of four bytes: `x [batch, planes, rows, columns]` to `y [batch, out_h, out_w, 4]`, see
/// [`Conv`] for the border.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pixels {
    pub batch: i64,
    /// At most 4.
    pub planes: i64,
    pub rows: i64,
    pub columns: i64,
    pub out_h: i64,
    pub out_w: i64,
    pub top: i64,
    pub left: i64,
    pub zero: i64,
    pub scale: f32,
    /// Bytes of a vector register.
    pub vector_bytes: i64,
    /// See [`Conv`].
    pub open: bool,
}

impl Pixels {
    /// Marks a PrimFunc that computes this.
    pub fn mark(&self, f: &mut PrimFunc) {
        let mut v = self.conv().ints();
        v.push(self.scale.to_bits() as i64);
        f.attrs.set(PIXELS, AttrValue::List(v.into_iter().map(AttrValue::Int).collect()));
    }

    /// Of a marked PrimFunc.
    pub fn of(f: &PrimFunc) -> Option<Pixels> {
        let v = f.attrs.ints(PIXELS)?;
        let (scale, v) = v.split_last()?;
        let v = Conv::from(v)?;
        Some(Pixels {
            batch: v.batch,
            planes: v.in_c,
            rows: v.rows,
            columns: v.columns,
            out_h: v.out_h,
            out_w: v.out_w,
            top: v.top,
            left: v.left,
            zero: v.zero,
            scale: f32::from_bits(*scale as u32),
            vector_bytes: v.vector_bytes,
            open: v.open,
        })
    }

    /// With the same output.
    fn conv(&self) -> Conv {
        Conv {
            batch: self.batch,
            in_h: self.rows,
            in_w: self.columns,
            in_c: self.planes,
            rows: self.rows,
            columns: self.columns,
            out_h: self.out_h,
            out_w: self.out_w,
            top: self.top,
            left: self.left,
            zero: self.zero,
            vector_bytes: self.vector_bytes,
            open: self.open,
            ..Conv::default()
        }
    }
}

/// The kernel of [`Pixels`] for wide vectors.
pub fn pixels(f: &PrimFunc, p: &Pixels, vector_bytes: i64) -> FlatFunc {
    let conv = p.conv();
    let param = |name: &str| Var::new(name, DType::HANDLE);
    let (x, y) = (param("x"), param("y"));
    let mut body = vec![];
    // The data of planes is given as `[batch, planes, rows, columns]`.
    let sizes = Sizes::of_planes(f, &conv).named(&mut body);
    let w = Writer {
        conv: &conv,
        form: Form { vector_bytes, dot4: false, tiles: false },
        x: x.clone(),
        w: x.clone(),
        sum: x.clone(),
        scale: x.clone(),
        bias: x.clone(),
        other: x.clone(),
        y: y.clone(),
        sums: x.clone(),
        workspace: x.clone(),
        sizes,
        stride: c(0),
    };
    w.border(&mut body);
    let Sizes { batch, rows, columns, out_h, out_w, .. } = &w.sizes;
    let plane = let_(&mut body, "plane", rows.clone() * columns.clone() * 4);
    steps(&mut body, &c(0), batch, 1, &mut |out, n| {
        steps(out, &c(0), rows, 1, &mut |out, row| {
            let from = n.clone() * (plane.clone() * p.planes) + row.clone() * (columns.clone() * 4);
            let from = let_(out, "from", x.expr().ptr_add(from));
            let to = n.clone() * (out_h.clone() * out_w.clone() * 4);
            let to = to + (row + p.top) * (out_w.clone() * 4) + p.left * 4;
            let to = let_(out, "to", y.expr().ptr_add(to));
            let mut planes = vec![from];
            for k in 1..p.planes {
                let next = match plane.as_int() {
                    Some(bytes) => planes[0].clone().ptr_add(k * bytes),
                    None => let_(out, "from", planes[k as usize - 1].clone().ptr_add(plane.clone())),
                };
                planes.push(next);
            }
            let (mut begin, mut lanes) = (c(0), vector_bytes / 4);
            while lanes >= 1 {
                let end = let_(out, "end", begin.clone() + (columns.clone() - begin.clone()).floor_div(lanes) * lanes);
                steps(out, &begin, &end, lanes, &mut |out, i| {
                    let missing = (p.planes..4).map(|k| (p.zero as u32) << (8 * k)).sum::<u32>();
                    let mut total = PrimExpr::i32(missing as i32).broadcast(lanes as u16);
                    for (k, plane) in planes.iter().enumerate() {
                        let v = load(plane, i.clone(), DType::F32.with_lanes(lanes as u16));
                        let v = v / PrimExpr::f32(p.scale).broadcast(lanes as u16);
                        let q = conv.round(v, lanes as u16);
                        total = total + q * PrimExpr::i32(1 << (8 * k)).broadcast(lanes as u16);
                    }
                    out.push(FlatStmt::Store { ptr: to.clone(), offset: i, value: total });
                });
                begin = end;
                lanes = if lanes > 4 { lanes / 2 } else { lanes / 4 };
            }
        });
    });
    let mut params = vec![x, y];
    params.extend(crate::kernel_dims(f));
    FlatFunc { name: f.name.clone(), params, ret: None, linkage: Linkage::Local, body, span: f.span }
}
