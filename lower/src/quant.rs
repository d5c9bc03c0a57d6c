//! Quantised networks in integers: chains `dequantize -> convolution or matrix product -> quantize` become kernels on
//! bytes ([`crate::schedule::int8`]).
//!
//! A tensor that `quantize` makes and only `dequantize` reads is *held* as uint8 (int8 values moved by 128) in NHWC,
//! channels filled up to a multiple of 4, with the border that the convolutions behind it need. What else reads it gets
//! its floats back. Sums of products are exact in int32; where the float form rounds each product and sum, the integer
//! form rounds once, when it scales the total to the output. Sums of two tensors are those of the float form ([`sums`]).
//! Channels are known; how many images there are, and their rows and columns, may be open.

mod dynamic;
mod find;
mod gathered;
mod kernels;
mod linear;
mod pairs;
mod sums;
mod tables;

pub use dynamic::dynamic;
use find::values;
pub(crate) use kernels::LAST;
use kernels::{bytes, floats, maximum};

use crate::layout::open::likely;
use crate::layout::transpose;
use crate::legalize::{call_tir, scalars, Names};
use crate::schedule::int8::{Conv, Plus, Sizes, Tile};
use relax_ir::analysis::Typed;
use relax_ir::op::Answer;
use relax_ir::relax::{map_bindings, Binding, BindingValue, Expr, ExprKind, RVar, StructInfo};
use relax_ir::sym::Facts;
use relax_ir::tir::PrimFunc;
use relax_ir::{Constant, DType, Func, PrimExpr, Var};
use std::collections::HashMap;
use std::sync::Arc;

/// Floats below this become int32 as they are, also after a zero point was added.
const LARGE: f64 = 1e9;

/// Rewrites every Relax function, before operators become kernels. `vector_bytes` are those of the registers in which
/// four bytes at a time can be multiplied; with `dot4`, the form that is tuned does it in one step,
/// with `twice` two of them a cycle. The result is for [`check_before`].
pub fn quantised(typed: &mut Typed, vector_bytes: u32, dot4: bool, twice: bool) -> HashMap<RVar, RVar> {
    let written = crate::fresh::shared(typed);
    let mut names = Names::new(&typed.module);
    let mut funcs = std::mem::take(&mut typed.module.funcs);
    let mut new = vec![];
    let mut moved = HashMap::new();
    for f in &mut funcs {
        if let Func::Relax(f) = f {
            // One name for what were two, or a later reading, is another value where somebody writes.
            if written.is_empty() {
                gathered::gathered(f, typed);
                linear::in_floats(f, typed);
                pairs::pairs(f, typed);
            }
            let values = values(f, &typed.sinfo, &written);
            let mut pass = Pass { values, names: &mut names, new: vec![], vector_bytes, dot4, twice };
            if pass.values.is_empty() {
                continue;
            }
            let mut made = vec![];
            f.body = map_bindings(&f.body, &mut |b, _| {
                let new = pass.binding(b, &mut made)?;
                if let Some(x) = pass.values.get(&b.var) {
                    let held = x.held.as_ref()?;
                    moved.extend(x.chain.iter().chain([&b.var]).map(|v| (v.clone(), held.clone())));
                }
                Some(new)
            });
            typed.sinfo.extend(made);
            new.append(&mut pass.new);
        }
    }
    funcs.extend(new.into_iter().map(Func::Prim));
    typed.module.funcs = funcs;
    moved
}

/// What is checked before floats are made is checked before their bytes are, which may be all that stays: `moved` is by
/// floats.
pub fn check_before(typed: &mut Typed, moved: &HashMap<RVar, RVar>) {
    for check in &mut typed.checks {
        if let Some(to) = moved.get(&check.before) {
            check.before = to.clone();
        }
    }
}

/// How a tensor was quantised; `zero` counts from the least value of the dtype.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Scale {
    scale: f32,
    zero: i64,
    dtype: DType,
}

/// Weights of a convolution or product.
#[derive(Clone)]
struct Weights {
    data: Constant,
    /// One, or one per output channel.
    scales: Vec<f32>,
    bias: Option<Bias>,
    /// A matrix whose rows are the inputs.
    transposed: bool,
}

#[derive(Clone)]
struct Bias {
    values: Vec<f64>,
    /// Unscaled, with their scales.
    ints: Option<(Vec<i64>, Vec<f32>)>,
}

#[derive(Clone)]
enum Kind {
    Conv {
        input: RVar,
        weights: Weights,
        strides: [i64; 2],
        pads: [i64; 4],
        depthwise: bool,
    },
    Product {
        input: RVar,
        weights: Weights,
    },
    Add(RVar, RVar),
    Max {
        input: RVar,
        window: [i64; 2],
        strides: [i64; 2],
        pads: [i64; 4],
    },
    /// The result for each byte of the input; `source` has its floats.
    Table {
        input: RVar,
        table: Arc<[u8]>,
        source: Expr,
    },
    Float(Expr),
}

/// A tensor held in bytes.
#[derive(Clone)]
struct Value {
    kind: Kind,
    scale: Scale,
    /// Of the result: batch, height, width; matrices have their rows as the width.
    images: [PrimExpr; 3],
    outputs: i64,
    rank: usize,
    /// Top, left, bottom, right.
    pads: [i64; 4],
    /// Read once.
    alone: bool,
    /// The floats on the way, which nothing else needs.
    chain: Vec<RVar>,
    /// Images that are made of floats which have their channels last, too.
    last: bool,
    held: Option<RVar>,
}

impl Value {
    fn channels(&self) -> i64 {
        (self.outputs + 3) / 4 * 4
    }

    /// The dims as the model has them.
    fn dims(&self) -> Vec<PrimExpr> {
        let [n, h, w] = self.images.clone();
        match self.rank {
            4 => vec![n, PrimExpr::i64(self.outputs), h, w],
            3 => vec![n, w, PrimExpr::i64(self.outputs)],
            _ => vec![w, PrimExpr::i64(self.outputs)],
        }
    }

    /// The dims of images with their channels last, without a border.
    fn last_dims(&self) -> [PrimExpr; 4] {
        let [n, h, w] = self.images.clone();
        [n, h, w, PrimExpr::i64(self.outputs)]
    }

    /// Whether a table makes the zero of `y` of zero.
    fn keeps_zero(&self, y: &Value, table: &[u8]) -> bool {
        usize::try_from(self.scale.zero).ok().and_then(|zero| table.get(zero)) == Some(&(y.scale.zero as u8))
    }

    /// Batch, rows and columns with the border.
    fn bordered(&self) -> [PrimExpr; 3] {
        let [n, h, w] = self.images.clone();
        let [top, left, bottom, right] = self.pads;
        [n, h + (top + bottom), w + (left + right)]
    }

    /// NHWC with the border.
    fn shape(&self) -> [PrimExpr; 4] {
        let [n, h, w] = self.bordered();
        [n, h, w, PrimExpr::i64(self.channels())]
    }

    /// Images of known sizes, whose floats may have channels last.
    fn is_image(&self) -> bool {
        self.rank == 4 && !self.is_open()
    }

    fn is_open(&self) -> bool {
        self.images.iter().any(|d| d.as_int().is_none())
    }
}

struct Pass<'a> {
    values: HashMap<RVar, Value>,
    names: &'a mut Names,
    new: Vec<PrimFunc>,
    vector_bytes: u32,
    dot4: bool,
    twice: bool,
}

impl Pass<'_> {
    fn binding(&mut self, b: &Binding, made: &mut Vec<(RVar, StructInfo)>) -> Option<Vec<Binding>> {
        let BindingValue::Expr(e) = &b.value else { return None };
        let call = e.as_call()?;
        if call.is_op("dequantize") {
            let value = self.values.get(call.args[0].as_var()?)?.clone();
            let held = value.held.clone()?;
            if !value.is_image() {
                let out = StructInfo::tensor(value.dims(), DType::F32);
                let new = self.call(floats(&value), vec![held.expr()], out, e)?;
                return Some(vec![Binding { value: BindingValue::Expr(new), ..b.clone() }]);
            }
            let out = StructInfo::tensor(value.last_dims().to_vec(), DType::F32);
            let new = self.call(floats(&value), vec![held.expr()], out.clone(), e)?;
            let var = RVar::new("real", b.var.is_dataflow(), b.span);
            made.push((var.clone(), out));
            let turned = BindingValue::Expr(transpose(var.expr(), &[0, 3, 1, 2], b.span)?);
            return Some(vec![
                Binding { var, annotation: None, value: BindingValue::Expr(new), span: b.span },
                Binding { value: turned, ..b.clone() },
            ]);
        }
        let value = self.values.get(&b.var)?.clone();
        let (prim, mut args) = self.kernel(&value)?;
        let mut before = vec![];
        if let (Kind::Float(source), true) = (&value.kind, value.last) {
            let var = RVar::new("channels_last", b.var.is_dataflow(), b.span);
            made.push((var.clone(), StructInfo::tensor(value.last_dims().to_vec(), DType::F32)));
            args = vec![var.expr()];
            let turned = BindingValue::Expr(transpose(source.clone(), &[0, 2, 3, 1], b.span)?);
            before.push(Binding { var, annotation: None, value: turned, span: b.span });
        }
        let info = StructInfo::tensor(value.shape().to_vec(), DType::U8);
        let new = self.call(prim, args, info.clone(), e)?;
        let var = RVar::new("held", b.var.is_dataflow(), b.span);
        made.push((var.clone(), info));
        self.values.get_mut(&b.var)?.held = Some(var.clone());
        before.push(Binding { var, annotation: None, value: BindingValue::Expr(new), span: b.span });
        // Nothing needs it any more.
        before.push(b.clone());
        Some(before)
    }

    fn call(&mut self, mut prim: PrimFunc, mut args: Vec<Expr>, out: StructInfo, at: &Expr) -> Option<Expr> {
        prim.name = self.names.fresh(&prim.name);
        prim.span = at.span();
        args.extend(scalars(&prim, at));
        let e = call_tir(&prim.name, args, vec![out], at).ok()?;
        self.new.push(prim);
        Some(e)
    }

    fn kernel(&self, value: &Value) -> Option<(PrimFunc, Vec<Expr>)> {
        let held = |v: &RVar| self.values.get(v).and_then(|x| Some((x.clone(), x.held.clone()?)));
        match &value.kind {
            Kind::Float(source) => Some((bytes(value, value.last, self.vector_bytes), vec![source.clone()])),
            Kind::Add(a, b) => {
                let (a, b) = (held(a)?, held(b)?);
                let sum = || (sums::sum(value, &a.0, &b.0), vec![a.1.expr(), b.1.expr()]);
                let with = self.summed(value, &a, &b).or_else(|| self.summed(value, &b, &a));
                Some(with.unwrap_or_else(sum))
            }
            Kind::Max { input, window, strides, pads } => {
                let (x, var) = held(input)?;
                let off = [x.pads[0] - pads[0], x.pads[1] - pads[1]];
                Some((maximum(value, &x, *window, *strides, off), vec![var.expr()]))
            }
            Kind::Table { input, table, .. } => {
                let (x, var) = held(input)?;
                let results = Constant::new(DType::U8, vec![table.len() as i64], table.to_vec());
                let results = Expr::new(ExprKind::Constant(results), var.span());
                Some((tables::looked_up(value, &x, table), vec![var.expr(), results]))
            }
            Kind::Conv { .. } => self.convolution(value, None),
            Kind::Product { input, weights } => {
                let (x, var) = held(input)?;
                let conv = self.conv(value, &x, [1, 1], [1, 1], [0, 0], false);
                let (inputs, outputs) = (x.outputs, value.outputs);
                let index = |_: i64, _: i64, i: i64, j: i64| match weights.transposed {
                    true => i * outputs + j,
                    false => j * inputs + i,
                };
                Some(product("qmatmul", value, &x, &var, weights, conv, inputs, &index))
            }
        }
    }

    /// The sum `y` in the pass of the convolution that makes `a`, which nothing else reads.
    fn summed(&self, y: &Value, a: &(Value, RVar), b: &(Value, RVar)) -> Option<(PrimFunc, Vec<Expr>)> {
        let fits = a.0.alone && matches!(a.0.kind, Kind::Conv { depthwise: false, .. });
        let plus = fits.then(|| sums::linear(&a.0.scale, &b.0.scale, &y.scale))??;
        let (f, mut args) = self.convolution(&a.0, Some(plus))?;
        args.push(b.1.expr());
        Some((f, args))
    }

    fn convolution(&self, value: &Value, plus: Option<Plus>) -> Option<(PrimFunc, Vec<Expr>)> {
        let Kind::Conv { input, weights, strides, pads, depthwise } = &value.kind else { return None };
        let x = self.values.get(input)?;
        let var = x.held.as_ref()?;
        let [_, _, k_h, k_w] = weights.data.shape[..] else { return None };
        let off = [x.pads[0] - pads[0], x.pads[1] - pads[1]];
        let conv = Conv { plus, ..self.conv(value, x, [k_h, k_w], *strides, off, *depthwise) };
        let inputs = weights.data.shape[1];
        let index = |y: i64, z: i64, i: i64, j: i64| ((j * inputs + i) * k_h + y) * k_w + z;
        let name = if plus.is_some() { "qconv2d_add" } else { "qconv2d" };
        Some(product(name, value, x, var, weights, conv, inputs, &index))
    }

    fn conv(&self, y: &Value, x: &Value, k: [i64; 2], strides: [i64; 2], off: [i64; 2], depthwise: bool) -> Conv {
        let open = x.is_open() || y.is_open();
        let ([batch, in_h, in_w], [_, out_h, out_w]) = (x.bordered(), y.bordered());
        let [_, rows, columns] = &y.images;
        let sizes = likely([&in_h, &in_w, rows, columns, &out_h, &out_w]);
        let [in_h, in_w, rows, columns, out_h, out_w] = sizes.unwrap_or([1; 6]);
        let channels = y.channels();
        let tile = Tile { dot4: self.dot4, ..Tile::default() };
        let tile = if self.twice && !depthwise { tile.for_twice(channels) } else { tile };
        Conv {
            batch: batch.as_int().unwrap_or(1),
            in_h,
            in_w,
            in_c: x.channels(),
            k_h: k[0],
            k_w: k[1],
            stride_h: strides[0],
            stride_w: strides[1],
            off_h: off[0],
            off_w: off[1],
            rows,
            columns,
            channels,
            out_h,
            out_w,
            top: y.pads[0],
            left: y.pads[1],
            depthwise,
            zero: y.scale.zero,
            vector_bytes: self.vector_bytes as i64,
            tile,
            open,
            ..Conv::default()
        }
    }
}

/// The sizes of a kernel over data `x` that makes `y`, both batch, rows and columns with their borders: names of its own for
/// what is open, the same name for what is known to be equal.
fn named(conv: &Conv, x: &[PrimExpr; 3], y: &[PrimExpr; 3]) -> Sizes {
    if !conv.open {
        return conv.sizes();
    }
    let mut facts = Facts::new();
    let mut known: Vec<(PrimExpr, PrimExpr)> = vec![];
    let mut named = |d: &PrimExpr, name: &str| {
        if d.as_int().is_some() {
            return d.clone();
        }
        if let Some((_, var)) = known.iter().find(|(e, _)| facts.equal(e, d) == Answer::Yes) {
            return var.clone();
        }
        let var = Var::new(name, DType::I64).expr();
        known.push((d.clone(), var.clone()));
        var
    };
    let x = [named(&x[0], "n"), named(&x[1], "in_h"), named(&x[2], "in_w")];
    let y = [x[0].clone(), named(&y[1], "out_h"), named(&y[2], "out_w")];
    conv.sizes_of(&x, &y)
}

/// The kernel of a convolution or product and its arguments; `index` says where a weight is.
#[allow(clippy::too_many_arguments)]
fn product(
    name: &str,
    y: &Value,
    x: &Value,
    var: &RVar,
    w: &Weights,
    mut conv: Conv,
    inputs: i64,
    index: &dyn Fn(i64, i64, i64, i64) -> i64,
) -> (PrimFunc, Vec<Expr>) {
    let data = w.data.bytes();
    let outputs = y.outputs;
    let weight = |ky: i64, kx: i64, i: i64, j: i64| match i < inputs && j < outputs {
        true => data[index(ky, kx, i, j) as usize] as i8,
        false => 0,
    };
    let empty = vec![0; 4 * conv.channels as usize];
    let (mut sums, mut scales, mut biases) = (empty.clone(), empty.clone(), empty);
    conv.bounded = true;
    for j in 0..conv.channels {
        let mut sum = 0i64;
        for ky in 0..conv.k_h {
            for kx in 0..conv.k_w {
                sum += (0..inputs).map(|i| weight(ky, kx, i, j) as i64).sum::<i64>();
            }
        }
        let mut total = -x.scale.zero * sum;
        let most = (255 * conv.k_h * conv.k_w * inputs * 128) as f64;
        let (mut scale, mut bias) = (0.0, 0.0);
        if j < outputs {
            let s = w.scales[if w.scales.len() == 1 { 0 } else { j as usize }] as f64 * x.scale.scale as f64;
            scale = s / y.scale.scale as f64;
            if let Some(b) = &w.bias {
                let exact = b.ints.as_ref().filter(|(_, t)| (t[j as usize] as f64 / s - 1.0).abs() < 1e-6);
                match exact {
                    Some((ints, _)) => total += ints[j as usize],
                    None => bias = b.values[j as usize] / y.scale.scale as f64,
                }
            }
        }
        conv.bounded &= (most + total.abs() as f64) * scale.abs() + bias.abs() < LARGE;
        let at = 4 * conv.place(PrimExpr::i64(j)).as_int().unwrap_or(j) as usize;
        for (to, bits) in [(&mut sums, total as i32 as u32), (&mut scales, (scale as f32).to_bits())] {
            to[at..at + 4].copy_from_slice(&bits.to_le_bytes());
        }
        biases[at..at + 4].copy_from_slice(&(bias as f32).to_le_bytes());
    }
    let constant =
        |d: DType, n: i64, bytes: Vec<u8>| Expr::new(ExprKind::Constant(Constant::new(d, vec![n], bytes)), var.span());
    let args = vec![
        var.expr(),
        constant(conv.weight_dtype(), conv.weights(), conv.pack(weight)),
        constant(DType::I32, conv.channels, sums),
        constant(DType::F32, conv.channels, scales),
        constant(DType::F32, conv.channels, biases),
    ];
    let sizes = named(&conv, &x.bordered(), &y.bordered());
    (conv.prim_func_over(name, &sizes), args)
}
