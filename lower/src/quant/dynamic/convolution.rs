//! Convolutions of bytes whose sums stay in int32 (ONNX `ConvInteger`): images get their channels last and a border of
//! the zero point, which adds nothing to the sums that it is taken off.

use super::super::find::windows;
use super::super::named;
use super::{constant, Left, Pass};
use crate::layout::open::likely;
use crate::schedule::int8::Conv;
use crate::schedule::streamed::takes;
use relax_ir::prim::BinOp;
use relax_ir::relax::{Binding, BindingValue, Call, Expr, StructInfo};
use relax_ir::tir::{Buffer, KernelBuilder, PrimFunc};
use relax_ir::{Constant, DType, PrimExpr};

/// How a convolution is given.
struct Image {
    channels: i64,
    outputs: i64,
    /// Batch, rows and columns of the data, and of the result.
    from: [PrimExpr; 3],
    to: [PrimExpr; 3],
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
        let a = &call.attrs;
        let plain = |k: &str, v: &str| a.str(k).is_none_or(|x| x == v || x.is_empty());
        let layouts = plain("data_layout", "NCHW") && plain("kernel_layout", "OIHW") && plain("out_layout", "NCHW");
        if !layouts || a.int("groups").unwrap_or(1) != 1 || a.ints("dilation")?.iter().any(|d| *d != 1) {
            return None;
        }
        let strides: [i64; 2] = a.ints("strides")?.try_into().ok()?;
        let pads: [i64; 4] = a.ints("padding")?.try_into().ok()?;
        let left = self.left(&call.args[0])?;
        let (channels, from) = image(left.info.known_dims()?)?;
        let (outputs, to) = image(out.known_dims()?)?;
        let weights = self.tensor(&call.args[1])?;
        let sizes: Option<Vec<i64>> = weights.known_dims()?.iter().map(|d| d.as_int().filter(|n| *n > 0)).collect();
        let [_, inputs, k_h, k_w] = sizes?[..] else { return None };
        if inputs != channels
            || !self.borders(&left, pads)
            || !windows(&from[1..], &to[1..], &[k_h, k_w], strides, pads)
        {
            return None;
        }
        let weights = self.ints(&call.args[1])?.values;
        let lacks = super::lacks(&weights)?;
        let signed = left.info.dtype == Some(DType::I8);
        let zero = left.zero.as_ref().map(|z| z.1.clone());
        let image = Image { channels, outputs, from, to, pads, signed, lacks, zero };
        let channels = (outputs + (lacks != 0) as i64 + 3) / 4 * 4;
        let [n, h, w, _] = image.held();
        let open = image.from.iter().chain(&image.to).any(|d| d.as_int().is_none());
        let [in_h, in_w, rows, columns] = likely([&h, &w, &image.to[1], &image.to[2]])?;
        let conv = Conv {
            batch: n.as_int().unwrap_or(1),
            in_h,
            in_w,
            in_c: image.filled(),
            k_h,
            k_w,
            stride_h: strides[0],
            stride_w: strides[1],
            rows,
            columns,
            channels,
            out_h: rows,
            out_w: columns,
            vector_bytes: self.vector_bytes as i64,
            sums: true,
            open,
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
        let words = self.bind(image.words(), vec![left.bytes], &image.in_words(), DType::I32, b, &mut before)?;
        let shape = image.held();
        let held =
            self.bind(image.bordered(), [vec![words], zero.clone()].concat(), &shape, DType::I32, b, &mut before)?;
        let args = vec![
            held,
            constant(Constant::new(DType::I8, vec![conv.weights()], packed), e),
            constant(Constant::new(DType::I32, vec![channels], vec![0; 4 * channels as usize]), e),
        ];
        let [n, rows, columns] = image.to.clone();
        let prim = conv.prim_func_over("conv2d_integer", &named(&conv, &[n.clone(), h, w], &image.to));
        let shape = [n, rows, columns, PrimExpr::i64(channels)];
        let sums = self.bind(prim, args, &shape, DType::I32, b, &mut before)?;
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

/// Channels, and batch, rows and columns, which may be open.
fn image(dims: &[PrimExpr]) -> Option<(i64, [PrimExpr; 3])> {
    let [n, c, h, w] = dims else { return None };
    let fits = [n, h, w].iter().all(|d| takes(d) && d.as_int().is_none_or(|d| d > 0));
    fits.then(|| Some((c.as_int().filter(|c| *c > 0)?, [n.clone(), h.clone(), w.clone()])))?
}

impl Image {
    /// Channels, filled up to a multiple of 4.
    fn filled(&self) -> i64 {
        (self.channels + 3) / 4 * 4
    }

    /// Words of four channels each, where they are: `[n, channels / 4, h, w]`.
    fn in_words(&self) -> [PrimExpr; 4] {
        let [n, h, w] = self.from.clone();
        [n, PrimExpr::i64(self.filled() / 4), h, w]
    }

    /// NHWC of these words with the border.
    fn held(&self) -> [PrimExpr; 4] {
        let ([n, h, w], [top, left, bottom, right]) = (self.from.clone(), self.pads);
        [n, h + (top + bottom), w + (left + right), PrimExpr::i64(self.filled() / 4)]
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

    /// The bytes as words.
    fn words(&self) -> PrimFunc {
        let mut f = KernelBuilder::new("words");
        let dtype = if self.signed { DType::I8 } else { DType::U8 };
        let channels = self.channels;
        let [n, h, w] = self.from.clone();
        let x = f.input("x", &[n, PrimExpr::i64(channels), h, w], dtype);
        let y = f.compute("y", &self.in_words(), DType::I32, |i| {
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
        let [n, h, w] = self.from.clone();
        let [_, _, columns, words] = self.held();
        let [top, left, bottom, right] = self.pads;
        let x = f.input("x", &self.in_words(), DType::I32);
        let zero = self.zero(&mut f);
        let y = f.buffer("y", &self.held(), DType::I32);
        let at = |y: PrimExpr, x: PrimExpr| {
            move |i: &[PrimExpr]| vec![i[0].clone(), i[1].clone() + y.clone(), i[2].clone() + x.clone(), i[3].clone()]
        };
        let number = PrimExpr::i64;
        let border = || {
            let byte = zero.as_ref().map_or(PrimExpr::i32(self.moved()), |z| z());
            byte * PrimExpr::i32(0x0101_0101)
        };
        let sides = [
            (top, [number(top), columns.clone()], at(number(0), number(0))),
            (bottom, [number(bottom), columns], at(h.clone() + top, number(0))),
            (left, [h.clone(), number(left)], at(number(top), number(0))),
            (right, [h.clone(), number(right)], at(number(top), w.clone() + left)),
        ];
        for (size, [high, wide], to) in sides {
            if size > 0 {
                f.write("border", &y, &[n.clone(), high, wide, words.clone()], to, |_| border());
            }
        }
        f.write("inside", &y, &[n, h, w, words], at(number(top), number(left)), |i| {
            x.at([i[0].clone(), i[3].clone(), i[1].clone(), i[2].clone()])
        });
        f.finish(&[y])
    }

    /// The sums without what the zero point adds, channels second again.
    fn centred(&self, channels: i64) -> PrimFunc {
        let ([n, rows, columns], outputs) = (self.to.clone(), self.outputs);
        let mut f = KernelBuilder::new("centred");
        let shape = [n.clone(), PrimExpr::i64(outputs), rows.clone(), columns.clone()];
        let x = f.input("x", &[n, rows, columns, PrimExpr::i64(channels)], DType::I32);
        let totals = f.input("totals", &[PrimExpr::i64(outputs)], DType::I32);
        let zero = self.zero(&mut f);
        let y = f.compute("y", &shape, DType::I32, |i| {
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
