//! What convolutions of bytes compute, for every target.

use super::{c, Conv, Sizes, ATTR};
use relax_ir::prim::BinOp;
use relax_ir::tir::{Buffer, KernelBuilder, PrimFunc};
use relax_ir::{DType, PrimExpr};

impl Conv {
    /// The meaning: parameters `x, w, sum, scale, bias, y`, with another summand before `y`; `x, w, sum, y` where that
    /// holds the sums.
    pub fn prim_func(&self, name: &str) -> PrimFunc {
        self.prim_func_over(name, &self.sizes())
    }

    /// The same over images of these sizes.
    pub fn prim_func_over(&self, name: &str, s: &Sizes) -> PrimFunc {
        let mut k = KernelBuilder::new(name);
        let (of_word, dtype) = if self.sums { (4, DType::I32) } else { (1, DType::U8) };
        let x = k.input("x", &s.input(self.in_c / of_word), dtype);
        let w = k.input("w", &[c(self.weights())], self.weight_dtype());
        let sum = k.input("sum", &[c(self.channels)], DType::I32);
        if self.sums {
            let acc = self.products(&mut k, s, &x, &w);
            let y = k.compute("y", &s.computed(self.channels), DType::I32, |i| acc.at(i) + sum.at([i[3].clone()]));
            let mut f = k.finish(&[y]);
            f.attrs.set(ATTR, self.attr());
            return f;
        }
        let scale = k.input("scale", &[c(self.channels)], DType::F32);
        let bias = k.input("bias", &[c(self.channels)], DType::F32);
        let other = self.plus.map(|p| (p, k.input("other", &s.output(self.channels), DType::U8)));
        let acc = self.products(&mut k, s, &x, &w);
        let y = k.compute("y", &s.output(self.channels), DType::U8, |i| {
            let (row, column) = (i[1].clone() - self.top, i[2].clone() - self.left);
            let j = self.place(i[3].clone());
            let total = acc.at([i[0].clone(), row.clone(), column.clone(), i[3].clone()]) + sum.at([j.clone()]);
            let v = total.cast(DType::F32) * scale.at([j.clone()]) + bias.at([j]);
            let v = match &other {
                Some((p, other)) => p.byte(self.round(v, 1), other.at(i)),
                None => self.round(v, 1).cast(DType::U8),
            };
            let mut inside = PrimExpr::bool(true);
            if self.rows < self.out_h {
                inside = inside.and(row.clone().ge(c(0))).and(row.lt(s.rows.clone()));
            }
            if self.columns < self.out_w {
                inside = inside.and(column.clone().ge(c(0))).and(column.lt(s.columns.clone()));
            }
            inside.if_then_else(v, PrimExpr::int(DType::U8, self.border()))
        });
        let mut f = k.finish(&[y]);
        f.attrs.set(ATTR, self.attr());
        f
    }

    /// The sums of products of all pixels.
    fn products(&self, k: &mut KernelBuilder, s: &Sizes, x: &Buffer, w: &Buffer) -> Buffer {
        let inner = if self.depthwise { 1 } else { self.in_c };
        k.sum("acc", &s.computed(self.channels), DType::I32, &[self.k_h, self.k_w, inner].map(c), |i, r| {
            let y = i[1].clone() * self.stride_h + r[0].clone() + self.off_h;
            let z = i[2].clone() * self.stride_w + r[1].clone() + self.off_w;
            let channel = if self.depthwise { i[3].clone() } else { r[2].clone() };
            let pixel = r[0].clone() * self.k_w + r[1].clone();
            let at = match self.depthwise {
                true if self.weaves() => self.woven_position(r[0].clone(), r[1].clone(), &i[3]),
                true => pixel * self.channels + i[3].clone(),
                false => self.position(pixel * self.in_c + r[2].clone(), i[3].clone()),
            };
            let x = match self.sums {
                true => {
                    let word = x.at([i[0].clone(), y, z, channel.clone().floor_div(4)]);
                    let by = (channel.floor_mod(4) * 8).cast(DType::I32);
                    let byte = PrimExpr::raw_binary(BinOp::Shr, word, by);
                    PrimExpr::raw_binary(BinOp::BitAnd, byte, PrimExpr::i32(255))
                }
                false => x.at([i[0].clone(), y, z, channel]).cast(DType::I32),
            };
            x * w.at([at]).cast(DType::I32)
        })
    }
}
