//! Which tensors are held in bytes, by what the bindings of a function say.

use super::{tables, Bias, Kind, Scale, Value, Weights};
use crate::layout::open::likely;
use crate::layout::{follows, CONVOLUTIONS};
use crate::schedule::streamed::takes;
use relax_ir::op::Answer;
use relax_ir::relax::{Call, Expr, ExprKind, Function, RVar, StructInfoMap};
use relax_ir::sym::Facts;
use relax_ir::{Constant, DType, PrimExpr};
use std::collections::{HashMap, HashSet};

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

/// What the bindings of a function say.
pub(super) struct Defs<'a> {
    pub(super) calls: HashMap<RVar, &'a Call>,
    constants: HashMap<RVar, &'a Constant>,
    uses: HashMap<RVar, usize>,
    pub(super) sinfo: &'a StructInfoMap,
    /// Tensors that somebody may write to: other values than what made them.
    pub(super) written: &'a HashSet<RVar>,
}

impl<'a> Defs<'a> {
    fn call(&self, e: &Expr, op: &str) -> Option<&'a Call> {
        self.calls.get(e.as_var()?).copied().filter(|c| c.is_op(op))
    }

    fn once(&self, e: &Expr) -> bool {
        e.as_var().is_some_and(|v| self.uses.get(v) == Some(&1))
    }

    pub(super) fn constant<'b>(&'b self, e: &'b Expr) -> Option<&'b Constant> {
        match e.kind() {
            ExprKind::Constant(c) => Some(c),
            ExprKind::Var(v) => self.constants.get(v).copied(),
            _ => None,
        }
    }

    pub(super) fn shape(&self, v: &RVar) -> Option<&[PrimExpr]> {
        self.sinfo.get(v)?.as_tensor()?.known_dims()
    }

    pub(super) fn dims(&self, v: &RVar) -> Option<Vec<i64>> {
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
        let c = self.call(e, "dequantize").filter(|_| !e.as_var().is_some_and(|v| self.written.contains(v)))?;
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

    /// Whether the floats of an image come from bytes or convolutions, so that their channels are last.
    fn is_last(&self, x: &Value, found: &HashMap<RVar, Value>) -> bool {
        matches!(&x.kind, Kind::Float(source) if self.laid_out(source, x.rank, found))
    }

    /// Whether floats of so many dims come from convolutions, from images of bytes or from such with their channels last,
    /// through what leaves channels where they are.
    pub(super) fn laid_out(&self, source: &Expr, rank: usize, found: &HashMap<RVar, Value>) -> bool {
        let (mut open, mut seen) = (vec![source.clone()], HashSet::new());
        while let Some(e) = open.pop() {
            if let ExprKind::Tuple(items) = e.kind() {
                open.extend(items.iter().cloned());
                continue;
            }
            let Some(v) = e.as_var().filter(|v| seen.insert((*v).clone())) else { continue };
            let tensor = self.sinfo.get(v).is_some_and(|i| i.as_tensor().is_some());
            let fits = !tensor || self.shape(v).is_some_and(|d| d.len() == rank);
            let Some(c) = self.calls.get(v).filter(|_| fits) else { continue };
            let Some(name) = c.op().map(|o| o.name) else { continue };
            let bytes = c.args.first().and_then(|q| q.as_var()).is_some_and(|q| found.contains_key(q));
            let turned = name == "permute_dims" && c.attrs.ints("axes").is_some_and(|a| a == [0, 3, 1, 2]);
            if CONVOLUTIONS.contains(&name) || rank == 4 && (name == "dequantize" && bytes || turned) {
                return true;
            }
            if follows(name) || FOLLOW.contains(&name) {
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
pub(super) fn same(a: &[PrimExpr], b: &[PrimExpr]) -> bool {
    let mut facts = Facts::new();
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| facts.equal(a, b) == Answer::Yes)
}

/// Whether rows and columns `to` are those of windows over rows and columns `from`, as far as one of them is open.
pub(super) fn windows(from: &[PrimExpr], to: &[PrimExpr], window: &[i64], strides: [i64; 2], pads: [i64; 4]) -> bool {
    (0..2).all(|i| {
        let open = from[i].as_int().is_none() || to[i].as_int().is_none();
        let room = from[i].clone() + (pads[i] + pads[i + 2] - window[i]);
        !open || same(&[room.floor_div(strides[i]) + 1i64], &to[i..=i])
    })
}

/// The tensors to hold in bytes, with their borders; none of which somebody writes to what its reader gets (`written`).
pub(super) fn values(f: &Function, sinfo: &StructInfoMap, written: &HashSet<RVar>) -> HashMap<RVar, Value> {
    let mut defs = Defs { calls: HashMap::new(), constants: HashMap::new(), uses: HashMap::new(), sinfo, written };
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
