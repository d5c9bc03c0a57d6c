//! Planes of floats to pixels of bytes: the first step of a quantised network over images.

use super::{let_, load, loop_, Conv, Form, Writer};
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
            ..Conv::default()
        }
    }
}

/// The kernel of [`Pixels`] for wide vectors.
pub fn pixels(f: &PrimFunc, p: &Pixels, vector_bytes: i64) -> FlatFunc {
    let conv = p.conv();
    let param = |name: &str| Var::new(name, DType::HANDLE);
    let (x, y) = (param("x"), param("y"));
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
    };
    let mut body = vec![];
    w.border(&mut body);
    loop_(&mut body, 0, p.batch, 1, &mut |out, n| {
        loop_(out, 0, p.rows, 1, &mut |out, row| {
            let from = n.clone() * (p.planes * p.rows * p.columns * 4) + row.clone() * (p.columns * 4);
            let from = let_(out, "from", x.expr().ptr_add(from));
            let to = n.clone() * (p.out_h * p.out_w * 4) + (row + p.top) * (p.out_w * 4) + p.left * 4;
            let to = let_(out, "to", y.expr().ptr_add(to));
            let (mut begin, mut lanes) = (0, vector_bytes / 4);
            while lanes >= 1 {
                let end = begin + (p.columns - begin) / lanes * lanes;
                loop_(out, begin, end, lanes, &mut |out, i| {
                    let missing = (p.planes..4).map(|k| (p.zero as u32) << (8 * k)).sum::<u32>();
                    let mut total = PrimExpr::i32(missing as i32).broadcast(lanes as u16);
                    for k in 0..p.planes {
                        let plane = from.clone().ptr_add(k * p.rows * p.columns * 4);
                        let v = load(&plane, i.clone(), DType::F32.with_lanes(lanes as u16));
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
    FlatFunc { name: f.name.clone(), params: vec![x, y], ret: None, linkage: Linkage::Local, body, span: f.span }
}
