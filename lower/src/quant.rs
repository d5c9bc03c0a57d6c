//! Quantised networks in integers: chains `dequantize -> convolution or matrix product -> quantize` become kernels on
//! bytes ([`crate::schedule::int8`]).
//!
//! A tensor that `quantize` makes and only `dequantize` reads is *held* as uint8 (int8 values moved by 128) in NHWC,
//! channels filled up to a multiple of 4, with the border that the convolutions behind it need. What else reads it gets
//! its floats back. Sums of products are exact in int32; where the float form rounds each product and sum, the integer
//! form rounds once, when it scales the total to the output. Sums of two tensors are those of the float form ([`sums`]).
//! Channels are known; how many images there are, and their rows and columns, may be open.

mod dynamic;
mod gathered;
mod kernels;
mod linear;
mod sums;
mod tables;

pub use dynamic::dynamic;
pub(crate) use kernels::LAST;
use kernels::{bytes, floats, maximum};

use crate::layout::open::likely;
use crate::layout::transpose;
use crate::legalize::{call_tir, scalars, Names};
use crate::schedule::int8::{Conv, Plus, Sizes, Tile};
use crate::schedule::streamed::takes;
use relax_ir::analysis::Typed;
use relax_ir::op::Answer;
use relax_ir::relax::{
    map_bindings, Binding, BindingValue, Call, Expr, ExprKind, Function, RVar, StructInfo, StructInfoMap,
};
use relax_ir::sym::Facts;
use relax_ir::tir::PrimFunc;
use relax_ir::{Constant, DType, Func, PrimExpr, Var};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Products of bytes that are added in int32 without a carry out of it, at most.
const MOST_INPUTS: usize = 1 << 15;

/// Operators besides elementwise ones that leave channels where they are.
const FOLLOW: &[&str] = &[
    "quantize",
    "dequantize",
    "concat",
    "strided_slice",
    "image.resize2d",
    "nn.max_pool2d",
    "nn.avg_pool2d",
    "nn.adaptive_avg_pool2d",
    "nn.pad",
    "mean",
];

/// Floats below this become int32 as they are, also after a zero point was added.
const LARGE: f64 = 1e9;

/// Rewrites every Relax function, before operators become kernels. `vector_bytes` are those of the registers in which
/// four bytes at a time can be multiplied; with `dot4`, the form that is tuned does it in one step,
/// with `twice` two of them a cycle. The result is for [`check_before`].
pub fn quantised(typed: &mut Typed, vector_bytes: u32, dot4: bool, twice: bool) -> HashMap<RVar, RVar> {
    let mut names = Names::new(&typed.module);
    let mut funcs = std::mem::take(&mut typed.module.funcs);
    let mut new = vec![];
    let mut moved = HashMap::new();
    for f in &mut funcs {
        if let Func::Relax(f) = f {
            gathered::gathered(f, typed);
            linear::in_floats(f, typed);
            let values = values(f, &typed.sinfo);
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

/// What the bindings of a function say.
struct Defs<'a> {
    calls: HashMap<RVar, &'a Call>,
    constants: HashMap<RVar, &'a Constant>,
    uses: HashMap<RVar, usize>,
    sinfo: &'a StructInfoMap,
}

impl<'a> Defs<'a> {
    fn call(&self, e: &Expr, op: &str) -> Option<&'a Call> {
        self.calls.get(e.as_var()?).copied().filter(|c| c.is_op(op))
    }

    fn once(&self, e: &Expr) -> bool {
        e.as_var().is_some_and(|v| self.uses.get(v) == Some(&1))
    }

    fn constant<'b>(&'b self, e: &'b Expr) -> Option<&'b Constant> {
        match e.kind() {
            ExprKind::Constant(c) => Some(c),
            ExprKind::Var(v) => self.constants.get(v).copied(),
            _ => None,
        }
    }

    fn shape(&self, v: &RVar) -> Option<&[PrimExpr]> {
        self.sinfo.get(v)?.as_tensor()?.known_dims()
    }

    fn dims(&self, v: &RVar) -> Option<Vec<i64>> {
        self.shape(v)?.iter().map(|d| d.as_int()).collect()
    }

    /// Scale and zero point of a whole tensor, from a call of `quantize` or `dequantize`.
    fn scale(&self, c: &Call, dtype: DType) -> Option<Scale> {
        let (scale, zero) = (self.constant(&c.args[1])?, self.constant(&c.args[2])?);
        if scale.elements() != 1 || zero.elements() != 1 || scale.dtype != DType::F32 {
            return None;
        }
        let least = match dtype {
            DType::I8 => -128,
            DType::U8 => 0,
            _ => return None,
        };
        let scale = scale.get_f64(0) as f32;
        (scale > 0.0 && scale.is_finite()).then(|| Scale { scale, zero: zero.get_i64(0) - least, dtype })
    }

    /// The quantised tensor behind a float one.
    fn dequantized(&self, e: &Expr) -> Option<(RVar, Scale)> {
        let c = self.call(e, "dequantize")?;
        let v = c.args[0].as_var()?.clone();
        let q = self.calls.get(&v)?;
        let to = self.sinfo.get(e.as_var()?)?.as_tensor()?.dtype?;
        let dtype = self.sinfo.get(&v)?.as_tensor()?.dtype?;
        (q.is_op("quantize") && to == DType::F32).then_some(())?;
        Some((v, self.scale(c, dtype)?))
    }

    /// int8 weights with scales along `axis`.
    fn weights(&self, e: &Expr, axis: i64) -> Option<(Constant, Vec<f32>)> {
        let c = self.call(e, "dequantize")?;
        let (data, scale, zero) = (self.constant(&c.args[0])?, self.constant(&c.args[1])?, self.constant(&c.args[2])?);
        let rank = data.shape.len() as i64;
        let at = c.attrs.int("axis").unwrap_or(-1);
        let at = if at < 0 { at + rank } else { at };
        let symmetric = (0..zero.elements()).all(|i| zero.get_f64(i) == 0.0);
        let fits =
            scale.elements() == 1 || (at == axis && scale.elements() as i64 == *data.shape.get(axis as usize)?);
        if data.dtype != DType::I8 || scale.dtype != DType::F32 || !symmetric || !fits {
            return None;
        }
        Some((data.clone(), (0..scale.elements()).map(|i| scale.get_f64(i) as f32).collect()))
    }

    /// A constant of one value per channel, whatever its shape.
    fn bias(&self, e: &Expr, channels: i64) -> Option<Bias> {
        if let Some(c) = self.call(e, "reshape") {
            return self.bias(&c.args[0], channels);
        }
        if let Some(c) = self.constant(e) {
            let fits = c.dtype == DType::F32 && c.elements() as i64 == channels;
            return fits.then(|| Bias { values: (0..c.elements()).map(|i| c.get_f64(i)).collect(), ints: None });
        }
        let c = self.call(e, "dequantize")?;
        let (data, scale, zero) = (self.constant(&c.args[0])?, self.constant(&c.args[1])?, self.constant(&c.args[2])?);
        if data.elements() as i64 != channels || data.dtype != DType::I32 || data.shape.len() != 1 {
            return None;
        }
        let n = data.elements();
        let entry = |c: &Constant, i: usize| c.get_f64(if c.elements() == 1 { 0 } else { i });
        if (scale.elements() != 1 && scale.elements() != n) || (zero.elements() != 1 && zero.elements() != n) {
            return None;
        }
        let ints: Vec<i64> = (0..n).map(|i| data.get_i64(i) - entry(zero, i) as i64).collect();
        let scales: Vec<f32> = (0..n).map(|i| entry(scale, i) as f32).collect();
        let values = ints.iter().zip(&scales).map(|(i, s)| *i as f64 * *s as f64).collect();
        Some(Bias { values, ints: Some((ints, scales)) })
    }

    /// The bias's shape must run along the channels.
    fn along_channels(&self, e: &Expr, channels: i64, rank: usize, axis: usize) -> bool {
        let shape = match e.kind() {
            ExprKind::Var(v) => self.dims(v),
            _ => self.constant(e).map(|c| c.shape.clone()),
        };
        shape.is_some_and(|s| {
            let at = (axis + s.len()).checked_sub(rank);
            s.len() <= rank
                && at.is_some_and(|at| s.iter().enumerate().all(|(i, d)| *d == if i == at { channels } else { 1 }))
        })
    }

    /// What a call of `quantize` makes.
    fn value(&self, v: &RVar, c: &Call) -> Option<Value> {
        let dtype = self.sinfo.get(v)?.as_tensor()?.dtype?;
        let scale = self.scale(c, dtype)?;
        let dims = self.shape(v)?;
        let (outputs, images) = match dims {
            [n, c, h, w] => (c.as_int()?, [n, h, w].map(PrimExpr::clone)),
            [n, m, k] => (k.as_int()?, [n.clone(), PrimExpr::i64(1), m.clone()]),
            [m, k] => (k.as_int()?, [PrimExpr::i64(1), PrimExpr::i64(1), m.clone()]),
            _ => return None,
        };
        if outputs < 1 || images.iter().any(|d| likely([d]).is_none() || !takes(d)) {
            return None;
        }
        let source = &c.args[0];
        let float = self.sinfo.get(source.as_var()?)?.as_tensor()?.dtype? == DType::F32;
        if !float {
            return None;
        }
        let kind = self
            .conv(source, dims)
            .or_else(|| self.sum(source, v))
            .or_else(|| self.max(source, dims))
            .unwrap_or(Kind::Float(source.clone()));
        let chain = if matches!(kind, Kind::Float(_)) { vec![] } else { self.chain(source) };
        let rank = dims.len();
        Some(Value { chain, kind, scale, images, outputs, rank, pads: [0; 4], alone: false, last: false, held: None })
    }

    /// What a product is made of before it is quantised.
    fn chain(&self, source: &Expr) -> Vec<RVar> {
        let made = |e: &Expr| e.as_var().filter(|v| self.calls.get(v).is_some_and(|c| !c.is_op("dequantize"))).cloned();
        let args = self.call(source, "add").map_or(&[][..], |c| &c.args);
        args.iter().chain([source]).filter_map(made).collect()
    }

    fn conv(&self, source: &Expr, dims: &[PrimExpr]) -> Option<Kind> {
        if !self.once(source) {
            return None;
        }
        let rank = dims.len();
        let axis = if rank == 4 { 1 } else { rank - 1 };
        let channels = dims[axis].as_int()?;
        let name = if rank == 4 { "nn.conv2d" } else { "matmul" };
        let (c, bias) = match self.call(source, "add") {
            Some(add) => {
                let (a, b) = (&add.args[0], &add.args[1]);
                let (product, bias) = if self.call(a, name).is_some() { (a, b) } else { (b, a) };
                if !self.once(product) || !self.along_channels(bias, channels, rank, axis) {
                    return None;
                }
                (self.call(product, name)?, Some(self.bias(bias, channels)?))
            }
            None => (self.call(source, name)?, None),
        };
        let (input, _) = self.dequantized(&c.args[0])?;
        if rank < 4 {
            let (e, transposed) = match self.call(&c.args[1], "permute_dims") {
                Some(p) => (&p.args[0], false),
                None => (&c.args[1], true),
            };
            let (data, scales) = self.weights(e, transposed as i64)?;
            let weights = Weights { data, scales, bias, transposed };
            let fits = weights.data.elements() / channels as usize <= MOST_INPUTS;
            return (fits && weights.data.shape.len() == 2).then_some(Kind::Product { input, weights });
        }
        let a = &c.attrs;
        let plain = |k: &str, v: &str| a.str(k).is_none_or(|x| x == v || x.is_empty());
        if !plain("data_layout", "NCHW") || !plain("kernel_layout", "OIHW") || !plain("out_layout", "NCHW") {
            return None;
        }
        let (strides, pads) = (a.ints("strides")?, a.ints("padding")?);
        if a.ints("dilation")?.iter().any(|d| *d != 1) || strides.len() != 2 || pads.len() != 4 {
            return None;
        }
        let (data, scales) = self.weights(&c.args[1], 0)?;
        let groups = a.int("groups").unwrap_or(1);
        let depthwise = groups > 1;
        let from = self.shape(&input).filter(|d| d.len() == 4)?;
        let inputs = from[1].as_int()?;
        if depthwise && (groups != inputs || groups != channels || data.shape.get(1) != Some(&1))
            || data.shape.len() != 4
        {
            return None;
        }
        if data.elements() / channels as usize > MOST_INPUTS {
            return None;
        }
        let (strides, pads) = ([strides[0], strides[1]], [pads[0], pads[1], pads[2], pads[3]]);
        if !windows(&from[2..], &dims[2..], &data.shape[2..], strides, pads) {
            return None;
        }
        let weights = Weights { data, scales, bias, transposed: false };
        Some(Kind::Conv { input, weights, strides, pads, depthwise })
    }

    /// The maximum over windows, which is the same for bytes where no border is larger than they.
    fn max(&self, source: &Expr, dims: &[PrimExpr]) -> Option<Kind> {
        let c = self.call(source, "nn.max_pool2d").filter(|_| self.once(source))?;
        let (input, scale) = self.dequantized(&c.args[0])?;
        let a = &c.attrs;
        let pair = |name: &str| <[i64; 2]>::try_from(a.ints(name)?).ok();
        let pads = <[i64; 4]>::try_from(a.ints("padding")?).ok()?;
        let plain = a.str("layout").is_none_or(|l| l == "NCHW") && a.ints("dilation").is_none_or(|d| d == [1, 1]);
        let inside = scale.zero == 0 || pads == [0; 4];
        if !plain || !inside || a.bool("ceil_mode") == Some(true) {
            return None;
        }
        let (window, strides) = (pair("pool_size")?, pair("strides")?);
        let from = self.shape(&input).filter(|d| d.len() == 4 && dims.len() == 4)?;
        windows(&from[2..], &dims[2..], &window, strides, pads).then_some(Kind::Max { input, window, strides, pads })
    }

    /// Whether the floats of a tensor come from bytes or convolutions, so that their channels are last.
    fn is_last(&self, x: &Value, found: &HashMap<RVar, Value>) -> bool {
        let Kind::Float(source) = &x.kind else { return false };
        let (mut open, mut seen) = (vec![source.clone()], HashSet::new());
        while let Some(e) = open.pop() {
            if let ExprKind::Tuple(items) = e.kind() {
                open.extend(items.iter().cloned());
                continue;
            }
            let Some(v) = e.as_var().filter(|v| seen.insert((*v).clone())) else { continue };
            let images = self.shape(v).is_some_and(|d| d.len() == 4)
                || !self.sinfo.get(v).is_some_and(|i| i.as_tensor().is_some());
            let Some(c) = self.calls.get(v).filter(|_| images) else { continue };
            let held = c.is_op("dequantize") && c.args[0].as_var().is_some_and(|q| found.get(q).is_some());
            if held || c.is_op("nn.conv2d") {
                return true;
            }
            if c.op().is_some_and(|o| crate::layout::follows(o.name) || FOLLOW.contains(&o.name)) {
                open.extend(c.args.iter().cloned());
            }
        }
        false
    }

    /// The sum of two tensors of the same shape.
    fn sum(&self, source: &Expr, v: &RVar) -> Option<Kind> {
        let add = self.call(source, "add").filter(|_| self.once(source))?;
        let (a, b) = (self.dequantized(&add.args[0])?.0, self.dequantized(&add.args[1])?.0);
        let of = |v: &RVar| self.shape(v);
        (same(of(&a)?, of(v)?) && same(of(&b)?, of(v)?)).then_some(Kind::Add(a, b))
    }
}

/// Whether dims are known to be equal.
fn same(a: &[PrimExpr], b: &[PrimExpr]) -> bool {
    let mut facts = Facts::new();
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| facts.equal(a, b) == Answer::Yes)
}

/// Whether rows and columns `to` are those of windows over rows and columns `from`, as far as one of them is open.
fn windows(from: &[PrimExpr], to: &[PrimExpr], window: &[i64], strides: [i64; 2], pads: [i64; 4]) -> bool {
    (0..2).all(|i| {
        let open = from[i].as_int().is_none() || to[i].as_int().is_none();
        let room = from[i].clone() + (pads[i] + pads[i + 2] - window[i]);
        !open || same(&[room.floor_div(strides[i]) + 1i64], &to[i..=i])
    })
}

/// The tensors to hold in bytes, with their borders.
fn values(f: &Function, sinfo: &StructInfoMap) -> HashMap<RVar, Value> {
    let mut defs = Defs { calls: HashMap::new(), constants: HashMap::new(), uses: HashMap::new(), sinfo };
    let mut order = vec![];
    for b in f.bindings() {
        match b.expr().kind() {
            ExprKind::Call(c) => drop(defs.calls.insert(b.var.clone(), c)),
            ExprKind::Constant(c) => drop(defs.constants.insert(b.var.clone(), c)),
            _ => {}
        }
        order.push(b.var.clone());
    }
    f.body.walk(&mut |e| {
        if let ExprKind::Var(v) = e.kind() {
            *defs.uses.entry(v.clone()).or_default() += 1;
        }
    });
    let mut found: HashMap<RVar, Value> = HashMap::new();
    for v in &order {
        let Some(c) = defs.calls.get(v).filter(|c| c.is_op("quantize") && c.args.len() == 3) else { continue };
        found.extend(defs.value(v, c).map(|x| (v.clone(), x)));
    }
    tables::tables(&defs, &order, &mut found);
    // Every reader gives the floats back with the scale that made the bytes.
    let mut readers: HashMap<RVar, usize> = HashMap::new();
    // Who reads those floats.
    let mut users: HashMap<RVar, usize> = HashMap::new();
    for v in &order {
        if let Some((q, scale)) = defs.dequantized(&v.expr()) {
            if found.get(&q).is_some_and(|x| x.scale == scale) {
                *users.entry(q.clone()).or_default() += defs.uses.get(v).copied().unwrap_or(0);
                *readers.entry(q).or_default() += 1;
            }
        }
    }
    found.retain(|v, _| readers.get(v) == defs.uses.get(v));
    found.iter_mut().for_each(|(v, x)| x.alone = users.get(v) == Some(&1));
    loop {
        let all = found.clone();
        let mut wanted: HashMap<&RVar, bool> = HashMap::new();
        for x in all.values() {
            match &x.kind {
                Kind::Conv { input, .. }
                | Kind::Product { input, .. }
                | Kind::Max { input, .. }
                | Kind::Table { input, .. } => {
                    wanted.insert(input, true);
                }
                Kind::Add(a, b) => {
                    wanted.insert(a, true);
                    wanted.insert(b, true);
                }
                Kind::Float(_) => {}
            }
        }
        found.retain(|v, x| match &x.kind {
            Kind::Conv { input, .. } | Kind::Max { input, .. } => all.get(input).is_some_and(|i| i.rank == 4),
            Kind::Product { input, .. } => all.get(input).is_some_and(|i| i.rank == x.rank),
            Kind::Add(a, b) => all.contains_key(a) && all.contains_key(b),
            Kind::Float(_) => wanted.contains_key(v),
            Kind::Table { .. } => true,
        });
        // A table of what is not held is made of floats.
        let mut changed = found.len() < all.len();
        for x in found.values_mut() {
            if let Kind::Table { input, source, .. } = &x.kind {
                if !all.contains_key(input) {
                    x.kind = Kind::Float(source.clone());
                    changed = true;
                }
            }
        }
        if !changed {
            break;
        }
    }
    borders(&mut found);
    let last: HashMap<RVar, bool> =
        found.iter().map(|(v, x)| (v.clone(), x.is_image() && defs.is_last(x, &found))).collect();
    found.iter_mut().for_each(|(v, x)| x.last = last[v]);
    found
}

/// Sums have the border of their terms; each convolution finds its border in its input.
fn borders(values: &mut HashMap<RVar, Value>) {
    loop {
        let mut grown: Vec<(RVar, [i64; 4])> = vec![];
        for (v, x) in values.iter() {
            match &x.kind {
                Kind::Conv { input, pads, .. } | Kind::Max { input, pads, .. } => grown.push((input.clone(), *pads)),
                // Zero may be another number behind a table, as it is a border of the input.
                Kind::Table { input, table, .. } if values.get(input).is_some_and(|i| i.keeps_zero(x, table)) => {
                    grown.extend([(input.clone(), x.pads), (v.clone(), values[input].pads)]);
                }
                Kind::Add(a, b) => {
                    for (one, other) in [(a, v), (b, v), (v, a), (v, b)] {
                        if let Some(y) = values.get(other) {
                            grown.push((one.clone(), y.pads));
                        }
                    }
                }
                _ => {}
            }
        }
        let mut changed = false;
        for (v, pads) in grown {
            if let Some(x) = values.get_mut(&v) {
                let most: [i64; 4] = std::array::from_fn(|i| x.pads[i].max(pads[i]));
                changed |= most != x.pads;
                x.pads = most;
            }
        }
        if !changed {
            return;
        }
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

/// The sizes of a kernel over `x` that makes `y`: names of its own for what is open, the same name for what is known to
/// be equal.
fn sizes(conv: &Conv, x: &Value, y: &Value) -> Sizes {
    let mut facts = Facts::new();
    let mut known: Vec<(PrimExpr, PrimExpr)> = vec![];
    let mut named = |d: PrimExpr, name: &str| {
        if d.as_int().is_some() {
            return d;
        }
        if let Some((_, var)) = known.iter().find(|(e, _)| facts.equal(e, &d) == Answer::Yes) {
            return var.clone();
        }
        let var = Var::new(name, DType::I64).expr();
        known.push((d, var.clone()));
        var
    };
    let ([n, in_h, in_w], [_, out_h, out_w]) = (x.bordered(), y.bordered());
    let x = [named(n.clone(), "n"), named(in_h, "in_h"), named(in_w, "in_w")];
    let y = [x[0].clone(), named(out_h, "out_h"), named(out_w, "out_w")];
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
    let sizes = if conv.open { sizes(&conv, x, y) } else { conv.sizes() };
    (conv.prim_func_over(name, &sizes), args)
}
