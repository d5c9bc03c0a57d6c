//! Constant factors and offsets behind convolutions, unless floats are strict.
//!
//! * Rule `scaled weights`: what a convolution makes, times and plus constants for each channel, is the convolution with
//!   other weights, plus one constant.
//! * Rule `scaled clip`: `clip(x + a, low, high) * c` with numbers is `clip(x * c + a * c, low * c, high * c)`, also where
//!   the clip is one factor of what is multiplied, as hard swish is written by most exporters: no division is left.

use crate::layout::{CONVOLUTIONS, TRANSPOSED};
use crate::written::Written;
use relax_ir::analysis::Typed;
use relax_ir::prim::PrimKind;
use relax_ir::relax::{map_bindings, Binding, BindingValue, Call, Expr, ExprKind, Function, RVar};
use relax_ir::{Constant, DType, Func};
use std::collections::HashMap;

/// Rewrites every Relax function, before layouts are chosen.
pub fn scales(typed: &mut Typed) {
    let weights = Weights::of(typed);
    let mut funcs = std::mem::take(&mut typed.module.funcs);
    let mut changed = false;
    for f in &mut funcs {
        let Func::Relax(f) = f else { continue };
        let found = Pass::of(f, typed, &weights).found();
        if found.is_empty() {
            continue;
        }
        changed = true;
        f.body = map_bindings(&f.body, &mut |b, _| {
            let new = found.get(&b.var)?;
            written(Written::instead_of(b, typed), new)
        });
    }
    typed.module.funcs = funcs;
    if changed {
        crate::dead::remove_dead(typed);
    }
}

/// Constants, and how often the data of each is read.
struct Weights {
    known: HashMap<RVar, Constant>,
    reads: HashMap<usize, usize>,
}

impl Weights {
    fn of(typed: &Typed) -> Weights {
        let mut known = HashMap::new();
        let mut reads: HashMap<usize, usize> = HashMap::new();
        for f in typed.module.relax_funcs() {
            for b in f.bindings() {
                if let BindingValue::Expr(e) = &b.value {
                    if let ExprKind::Constant(c) = e.kind() {
                        known.insert(b.var.clone(), c.clone());
                        // The walk below meets it once more.
                        reads.entry(c.data.address()).or_default();
                    }
                }
            }
        }
        for f in typed.module.relax_funcs() {
            f.body.walk(&mut |e| match e.kind() {
                ExprKind::Constant(c) => *reads.entry(c.data.address()).or_default() += 1,
                ExprKind::Var(v) => {
                    if let Some(c) = known.get(v) {
                        *reads.entry(c.data.address()).or_default() += 1;
                    }
                }
                _ => {}
            });
        }
        for c in known.values() {
            reads.entry(c.data.address()).and_modify(|n| *n = n.saturating_sub(1));
        }
        Weights { known, reads }
    }

    fn constant<'a>(&'a self, e: &'a Expr) -> Option<&'a Constant> {
        match e.kind() {
            ExprKind::Constant(c) => Some(c),
            ExprKind::Var(v) => self.known.get(v),
            _ => None,
        }
    }

    /// One number of float32.
    fn number(&self, e: &Expr) -> Option<f64> {
        let c = self.constant(e).filter(|c| c.elements() == 1 && c.dtype == DType::F32)?;
        Some(c.get_f64(0))
    }
}

/// A convolution times and plus something for each channel.
#[derive(Clone)]
struct Affine {
    conv: RVar,
    factor: Option<Vec<f64>>,
    offset: Option<Vec<f64>>,
    /// Operators that made it so.
    steps: usize,
}

/// What becomes of a binding.
enum New {
    Conv { call: Call, weights: Constant, offset: Option<Constant> },
    Clip { times: Option<Expr>, clip: Clip, by: f64 },
}

/// `clip(x + add, low, high)`
struct Clip {
    x: Expr,
    add: f64,
    low: f64,
    high: f64,
}

struct Pass<'a> {
    typed: &'a Typed,
    weights: &'a Weights,
    bindings: Vec<&'a Binding>,
    calls: HashMap<&'a RVar, &'a Call>,
    uses: HashMap<RVar, usize>,
}

impl<'a> Pass<'a> {
    fn of(f: &'a Function, typed: &'a Typed, weights: &'a Weights) -> Pass<'a> {
        let mut uses: HashMap<RVar, usize> = HashMap::new();
        f.body.walk(&mut |e| {
            if let ExprKind::Var(v) = e.kind() {
                *uses.entry(v.clone()).or_default() += 1;
            }
        });
        let bindings: Vec<&Binding> = f.bindings().collect();
        let calls = bindings.iter().filter_map(|b| Some((&b.var, b.expr().as_call()?))).collect();
        Pass { typed, weights, bindings, calls, uses }
    }

    fn found(&self) -> HashMap<RVar, New> {
        let mut found = HashMap::new();
        let mut affine: HashMap<&RVar, Affine> = HashMap::new();
        let mut taken: Vec<RVar> = vec![];
        for b in &self.bindings {
            let Some(call) = b.expr().as_call() else { continue };
            let Some(op) = call.op() else { continue };
            if CONVOLUTIONS.contains(&op.name) || TRANSPOSED.contains(&op.name) {
                if self.made(call).is_some() {
                    affine.insert(&b.var, Affine { conv: b.var.clone(), factor: None, offset: None, steps: 0 });
                }
            } else if let Some((of, a)) = self.step(call, &affine) {
                taken.push(of);
                affine.insert(&b.var, a);
            } else if let Some(new) = self.clipped(call) {
                found.insert(b.var.clone(), new);
            }
        }
        for v in &taken {
            affine.remove(v);
        }
        for (v, a) in affine {
            // One constant that is added has no better form.
            if a.factor.is_some() || a.steps > 1 {
                if let Some(new) = self.convolution(&a) {
                    found.insert(v.clone(), new);
                }
            }
        }
        found
    }

    /// The weights of a convolution that alone reads them, and their axis of what is made.
    fn made<'b>(&'b self, c: &'b Call) -> Option<(&'b Constant, usize)> {
        let layout =
            |name: &str, known: [&str; 3]| c.attrs.str(name).is_none_or(|l| l.is_empty() || known.contains(&l));
        let transposed = TRANSPOSED.contains(&c.op()?.name);
        let kernel = if transposed { ["IOW", "IOHW", "IODHW"] } else { ["OIW", "OIHW", "OIDHW"] };
        let data = ["NCW", "NCHW", "NCDHW"];
        let usual = layout("kernel_layout", kernel) && layout("data_layout", data) && layout("out_layout", data);
        let groups = c.attrs.int("groups").unwrap_or(1);
        let w = self.weights.constant(c.args.get(1)?).filter(|w| w.dtype == DType::F32 && w.data.coded().is_none())?;
        let once = self.weights.reads.get(&w.data.address()) == Some(&1);
        (usual && once && (!transposed || groups == 1)).then_some((w, usize::from(transposed)))
    }

    /// A factor or an offset for each channel of a convolution.
    fn by_channel(&self, k: &Expr, conv: &RVar) -> Option<Vec<f64>> {
        let k = self.weights.constant(k).filter(|k| k.dtype == DType::F32)?;
        let (w, axis) = self.made(self.calls.get(conv)?)?;
        let (channels, rank) = (*w.shape.get(axis)?, w.shape.len());
        if k.elements() == 1 && k.shape.len() <= rank {
            return Some(vec![k.get_f64(0); channels as usize]);
        }
        let before = rank.checked_sub(k.shape.len())?;
        let fits = (0..k.shape.len()).all(|i| k.shape[i] == if before + i == 1 { channels } else { 1 });
        (fits && k.elements() as i64 == channels).then(|| (0..channels as usize).map(|i| k.get_f64(i)).collect())
    }

    /// An operator behind a convolution that nothing else reads.
    fn step(&self, c: &Call, affine: &HashMap<&RVar, Affine>) -> Option<(RVar, Affine)> {
        let name = c.op()?.name;
        let [l, r] = c.args.as_slice() else { return None };
        let of = |e: &Expr| e.as_var().and_then(|v| affine.get(v).map(|a| (v.clone(), a.clone())));
        let left = of(l);
        let (v, a) = left.clone().or_else(|| of(r))?;
        if self.uses.get(&v) != Some(&1) {
            return None;
        }
        let k = self.by_channel(if left.is_some() { r } else { l }, &a.conv)?;
        let ones = || vec![1.0; k.len()];
        let zip =
            |a: &[f64], f: fn(f64, f64) -> f64| -> Vec<f64> { a.iter().zip(&k).map(|(a, k)| f(*a, *k)).collect() };
        let (mut factor, mut offset) = (a.factor.clone(), a.offset.clone());
        match (name, left.is_some()) {
            ("multiply", _) => {
                factor = Some(zip(&factor.unwrap_or_else(ones), |a, k| a * k));
                offset = offset.map(|o| zip(&o, |a, k| a * k));
            }
            ("divide", true) => {
                factor = Some(zip(&factor.unwrap_or_else(ones), |a, k| a / k));
                offset = offset.map(|o| zip(&o, |a, k| a / k));
            }
            ("add", _) => offset = Some(zip(&offset.unwrap_or_else(|| vec![0.0; k.len()]), |a, k| a + k)),
            ("subtract", true) => offset = Some(zip(&offset.unwrap_or_else(|| vec![0.0; k.len()]), |a, k| a - k)),
            ("subtract", false) => {
                factor = Some(factor.unwrap_or_else(ones).iter().map(|a| -a).collect());
                offset = Some(zip(&offset.unwrap_or_else(|| vec![0.0; k.len()]), |a, k| k - a));
            }
            _ => return None,
        }
        Some((v, Affine { conv: a.conv, factor, offset, steps: a.steps + 1 }))
    }

    /// The convolution with other weights; `None` where these are no finite numbers.
    fn convolution(&self, a: &Affine) -> Option<New> {
        let call = self.calls.get(&a.conv)?;
        let (w, axis) = self.made(call)?;
        let weights = match &a.factor {
            None => w.clone(),
            Some(f) => {
                let inner: usize = w.shape[axis + 1..].iter().product::<i64>() as usize;
                let values = w.bytes().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
                let scaled = values.enumerate().map(|(i, v)| (f64::from(v) * f[i / inner % f.len()]) as f32);
                floats(w.shape.clone(), scaled)?
            }
        };
        let mut shape = vec![a.offset.as_ref().map_or(0, Vec::len) as i64];
        shape.extend(vec![1; w.shape.len() - 2]);
        let offset = match &a.offset {
            Some(o) => Some(floats(shape, o.iter().map(|v| *v as f32))?),
            None => None,
        };
        Some(New::Conv { call: (*call).clone(), weights, offset })
    }

    /// A clip, or a product of one and something else, times or through a number.
    fn clipped(&self, c: &Call) -> Option<New> {
        let [l, r] = c.args.as_slice() else { return None };
        let (x, by) = match c.op()?.name {
            "divide" => (l, 1.0 / self.weights.number(r)?),
            "multiply" => match self.weights.number(r) {
                Some(k) => (l, k),
                None => (r, self.weights.number(l)?),
            },
            _ => return None,
        };
        if !(by as f32).is_normal() || by < 0.0 {
            return None;
        }
        if let Some(clip) = self.clip(x) {
            return Some(New::Clip { times: None, clip, by });
        }
        let product = self.once(x, "multiply")?;
        let [l, r] = product.args.as_slice() else { return None };
        let (times, clip) = self.clip(r).map(|c| (l, c)).or_else(|| Some((r, self.clip(l)?)))?;
        Some(New::Clip { times: Some(times.clone()), clip, by })
    }

    /// The call that makes `e`, which nothing else reads.
    fn once(&self, e: &Expr, op: &str) -> Option<&'a Call> {
        let v = e.as_var().filter(|v| self.uses.get(v) == Some(&1))?;
        self.calls.get(v).copied().filter(|c| c.is_op(op))
    }

    fn clip(&self, e: &Expr) -> Option<Clip> {
        let dtype = self.typed.info_of(e)?.as_tensor()?.dtype;
        if dtype != Some(DType::F32) {
            return None;
        }
        let (mut low, mut high, mut at) = (None, None, e.clone());
        let sided = |c: &Call| -> Option<(Expr, f64)> {
            let [l, r] = c.args.as_slice() else { return None };
            match self.weights.number(r) {
                Some(k) => Some((l.clone(), k)),
                None => Some((r.clone(), self.weights.number(l)?)),
            }
        };
        let float = |e: &Expr| match e.kind() {
            ExprKind::Prim(p) => match p.kind() {
                PrimKind::Int(v) => Some(*v as f64),
                _ => p.as_float(),
            },
            _ => None,
        };
        // Each side once, in any order.
        while low.is_none() || high.is_none() {
            let (x, from, to) = if let Some(c) = self.once(&at, "clip") {
                (c.args.first()?.clone(), float(c.args.get(1)?)?, float(c.args.get(2)?)?)
            } else if let Some(c) = self.once(&at, "maximum") {
                let (x, k) = sided(c)?;
                (x, k, f64::INFINITY)
            } else {
                let (x, k) = sided(self.once(&at, "minimum")?)?;
                (x, f64::NEG_INFINITY, k)
            };
            for (bound, k) in [(&mut low, from), (&mut high, to)] {
                // As large as float32 has them is no bound.
                if k.abs() < f64::from(f32::MAX) && bound.replace(k).is_some() || k.is_nan() {
                    return None;
                }
            }
            at = x;
        }
        let (x, add) = sided(self.once(&at, "add")?)?;
        let (low, high) = (low?, high?);
        (low < high).then_some(Clip { x, add, low, high })
    }
}

/// float32, all of them finite.
fn floats(shape: Vec<i64>, values: impl Iterator<Item = f32>) -> Option<Constant> {
    let mut bytes = vec![];
    for v in values {
        if !v.is_finite() {
            return None;
        }
        bytes.extend_from_slice(&v.to_le_bytes());
    }
    Some(Constant::new(DType::F32, shape, bytes))
}

/// What takes the place of a binding.
fn written(mut w: Written, new: &New) -> Option<Vec<Binding>> {
    let last = match new {
        New::Conv { call, weights, offset } => {
            let mut call = call.clone();
            call.args[1] = w.constant(weights);
            let conv = Expr::new(ExprKind::Call(call), w.span());
            match offset {
                None => conv,
                Some(offset) => {
                    let conv = w.bind(conv)?;
                    w.call("add", [conv, w.constant(offset)])?
                }
            }
        }
        New::Clip { times, clip, by } => {
            let x = w.op("multiply", [clip.x.clone(), w.number(*by)])?;
            let x = w.op("add", [x, w.number(clip.add * by)])?;
            let x = w.op("maximum", [x, w.number(clip.low * by)])?;
            let high = w.number(clip.high * by);
            match times {
                None => w.call("minimum", [x, high])?,
                Some(t) => {
                    let x = w.op("minimum", [x, high])?;
                    w.call("multiply", [t.clone(), x])?
                }
            }
        }
    };
    Some(w.done(last))
}
