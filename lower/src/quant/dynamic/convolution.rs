//! Convolutions of bytes whose sums stay in int32 (ONNX `ConvInteger`): images get their channels last and a border of
//! the zero point, which adds nothing to the sums that it is taken off.

use super::{constant, Left, Pass};
use crate::schedule::int8::Conv;
use relax_ir::prim::BinOp;
use relax_ir::relax::{Binding, BindingValue, Call, Expr, StructInfo};
use relax_ir::tir::{Buffer, KernelBuilder, PrimFunc};
use relax_ir::{Constant, DType, PrimExpr};

/// How a convolution is given.
struct Image {
    /// NCHW of the data, and of the result.
    from: [i64; 4],
    to: [i64; 4],
    /// Top, left, bottom, right.
    pads: [i64; 4],
    /// The data is of int8.
    signed: bool,
    /// What every weight lacks; the sums of windows are a channel of their own then.
    lacks: i32,
    /// Dims of the zero point, all of which are 1.
    zero: Option<Vec<PrimExpr>>,
}

impl Pass<'_> {
    pub(super) fn convolution(&mut self, b: &Binding, call: &Call) -> Option<Vec<Binding>> {
        let out = self.sinfo.get(&b.var)?.as_tensor().filter(|t| t.dtype == Some(DType::I32))?.clone();
        let four = |dims: &[PrimExpr]| -> Option<[i64; 4]> {
            let all: Option<Vec<i64>> = dims.iter().map(|d| d.as_int().filter(|n| *n > 0)).collect();
            all?.try_into().ok()
        };
        let a = &call.attrs;
        let plain = |k: &str, v: &str| a.str(k).is_none_or(|x| x == v || x.is_empty());
        let layouts = plain("data_layout", "NCHW") && plain("kernel_layout", "OIHW") && plain("out_layout", "NCHW");
        if !layouts || a.int("groups").unwrap_or(1) != 1 || a.ints("dilation")?.iter().any(|d| *d != 1) {
            return None;
        }
        let strides: [i64; 2] = a.ints("strides")?.try_into().ok()?;
        let pads: [i64; 4] = a.ints("padding")?.try_into().ok()?;
        let left = self.left(&call.args[0])?;
        let (from, to) = (four(left.info.known_dims()?)?, four(out.known_dims()?)?);
        let [_, inputs, k_h, k_w] = four(self.tensor(&call.args[1])?.known_dims()?)?;
        if inputs != from[1] || !self.borders(&left, pads) {
            return None;
        }
        let weights = self.ints(&call.args[1])?.values;
        let lacks = super::lacks(&weights)?;
        let signed = left.info.dtype == Some(DType::I8);
        let image = Image { from, to, pads, signed, lacks, zero: left.zero.as_ref().map(|z| z.1.clone()) };
        let outputs = to[1];
        let channels = (outputs + (lacks != 0) as i64 + 3) / 4 * 4;
        let [batch, in_h, in_w, in_c] = image.held();
        let conv = Conv {
            batch,
            in_h,
            in_w,
            in_c,
            k_h,
            k_w,
            stride_h: strides[0],
            stride_w: strides[1],
            rows: to[2],
            columns: to[3],
            channels,
            out_h: to[2],
            out_w: to[3],
            vector_bytes: self.vector_bytes as i64,
            sums: true,
            ..Conv::default()
        };
        let packed = conv.pack(|y, x, i, j| match i < inputs {
            true if j < outputs => (weights[(((j * inputs + i) * k_h + y) * k_w + x) as usize] - lacks) as i8,
            true if lacks != 0 && j == outputs => 1,
            _ => 0,
        });
        let e = b.expr();
        let mut before = vec![];
        let zero: Vec<Expr> = left.zero.into_iter().map(|z| z.0).collect();
        let literals = |dims: [i64; 4]| dims.map(PrimExpr::i64).to_vec();
        let [n, _, h, w] = from;
        let shape = literals([n, in_c / 4, h, w]);
        let words = self.bind(image.words(), vec![left.bytes], &shape, DType::I32, b, &mut before)?;
        let shape = literals([batch, in_h, in_w, in_c / 4]);
        let held =
            self.bind(image.bordered(), [vec![words], zero.clone()].concat(), &shape, DType::I32, b, &mut before)?;
        let args = vec![
            held,
            constant(Constant::new(DType::I8, vec![conv.weights()], packed), e),
            constant(Constant::new(DType::I32, vec![channels], vec![0; 4 * channels as usize]), e),
        ];
        let shape = literals([batch, to[2], to[3], channels]);
        let sums = self.bind(conv.prim_func("conv2d_integer"), args, &shape, DType::I32, b, &mut before)?;
        let each = weights.len() / outputs as usize;
        let of = |w: &[i32]| w.iter().fold(0i32, |n, v| n.wrapping_add(*v));
        let totals = weights.chunks(each).flat_map(|w| of(w).to_le_bytes()).collect();
        let args = vec![sums, constant(Constant::new(DType::I32, vec![outputs], totals), e)];
        let call = self.kernel(image.centred(channels), [args, zero].concat(), StructInfo::Tensor(out), b)?;
        before.push(Binding { value: BindingValue::Expr(call), ..b.clone() });
        Some(before)
    }

    /// Whether the zero point is one number that a byte of the data's kind holds, if there is a border.
    fn borders(&self, left: &Left, pads: [i64; 4]) -> bool {
        let Some((zero, dims)) = &left.zero else { return true };
        let one = dims.iter().all(|d| d.is_int(1));
        let mut of = zero;
        while let Some(c) = self.call(of, "reshape") {
            of = &c.args[0];
        }
        let byte = self.call(of, "astype").and_then(|c| self.tensor(&c.args[0])).and_then(|t| t.dtype);
        one && (pads == [0; 4] || (byte.is_some() && byte == left.info.dtype))
    }
}

impl Image {
    /// NHWC with the border, channels filled up to a multiple of 4.
    fn held(&self) -> [i64; 4] {
        let ([n, c, h, w], [top, left, bottom, right]) = (self.from, self.pads);
        [n, h + top + bottom, w + left + right, (c + 3) / 4 * 4]
    }

    fn moved(&self) -> i32 {
        if self.signed {
            128
        } else {
            0
        }
    }

    /// The zero point as it is for unsigned bytes.
    fn zero(&self, f: &mut KernelBuilder) -> Option<impl Fn() -> PrimExpr> {
        let moved = self.moved();
        let buffer: Option<Buffer> = self.zero.as_ref().map(|dims| f.input("zero", dims, DType::I32));
        let at = vec![PrimExpr::i64(0); self.zero.as_ref().map_or(0, Vec::len)];
        buffer.map(|z| move || z.at(at.clone()) + PrimExpr::i32(moved))
    }

    /// Words of four channels each, where they are: `[n, channels / 4, h, w]`.
    fn words(&self) -> PrimFunc {
        let mut f = KernelBuilder::new("words");
        let dtype = if self.signed { DType::I8 } else { DType::U8 };
        let x = f.input("x", &self.from.map(PrimExpr::i64), dtype);
        let [n, channels, h, w] = self.from;
        let shape = [n, self.held()[3] / 4, h, w];
        let y = f.compute("y", &shape.map(PrimExpr::i64), DType::I32, |i| {
            let byte = |b: i64| {
                let channel = i[1].clone() * 4 + b;
                let v = x.at([i[0].clone(), channel.clone(), i[2].clone(), i[3].clone()]).cast(DType::I32);
                let v = if self.signed { v + PrimExpr::i32(self.moved()) } else { v };
                let v = PrimExpr::raw_binary(BinOp::Shl, v, PrimExpr::i32(8 * b as i32));
                match channels % 4 {
                    0 => v,
                    _ => channel.lt(PrimExpr::i64(channels)).if_then_else(v, PrimExpr::i32(0)),
                }
            };
            (1..4).fold(byte(0), |all, b| PrimExpr::raw_binary(BinOp::BitOr, all, byte(b)))
        });
        f.finish(&[y])
    }

    /// The words with their channels last and a border of zero points.
    fn bordered(&self) -> PrimFunc {
        let mut f = KernelBuilder::new("bordered");
        let [n, rows, columns, channels] = self.held();
        let [_, _, h, w] = self.from;
        let [top, left, bottom, right] = self.pads;
        let words = channels / 4;
        let x = f.input("x", &[n, words, h, w].map(PrimExpr::i64), DType::I32);
        let zero = self.zero(&mut f);
        let y = f.buffer("y", &[n, rows, columns, words].map(PrimExpr::i64), DType::I32);
        let at =
            |y: i64, x: i64| move |i: &[PrimExpr]| vec![i[0].clone(), i[1].clone() + y, i[2].clone() + x, i[3].clone()];
        let border = || {
            let byte = zero.as_ref().map_or(PrimExpr::i32(self.moved()), |z| z());
            byte * PrimExpr::i32(0x0101_0101)
        };
        let sides = [
            ([top, columns], at(0, 0)),
            ([bottom, columns], at(top + h, 0)),
            ([h, left], at(top, 0)),
            ([h, right], at(top, left + w)),
        ];
        for ([high, wide], to) in sides {
            if high * wide > 0 {
                f.write("border", &y, &[n, high, wide, words].map(PrimExpr::i64), to, |_| border());
            }
        }
        f.write("inside", &y, &[n, h, w, words].map(PrimExpr::i64), at(top, left), |i| {
            x.at([i[0].clone(), i[3].clone(), i[1].clone(), i[2].clone()])
        });
        f.finish(&[y])
    }

    /// The sums without what the zero point adds, channels second again.
    fn centred(&self, channels: i64) -> PrimFunc {
        let [n, outputs, rows, columns] = self.to;
        let mut f = KernelBuilder::new("centred");
        let x = f.input("x", &[n, rows, columns, channels].map(PrimExpr::i64), DType::I32);
        let totals = f.input("totals", &[PrimExpr::i64(outputs)], DType::I32);
        let zero = self.zero(&mut f);
        let y = f.compute("y", &self.to.map(PrimExpr::i64), DType::I32, |i| {
            let at = |channel: PrimExpr| x.at([i[0].clone(), i[2].clone(), i[3].clone(), channel]);
            let mut y = at(i[1].clone());
            let off = zero.as_ref().map(|z| z()).or((self.moved() != 0).then(|| PrimExpr::i32(self.moved())));
            if let Some(off) = off {
                y = y - off * totals.at([i[1].clone()]);
            }
            match self.lacks {
                0 => y,
                lacks => y + at(PrimExpr::i64(outputs)) * PrimExpr::i32(lacks),
            }
        });
        f.finish(&[y])
    }
}
