//! Finding quantised operators: what stands between `dequantize` and `quantize`.

use super::kernels::{Part, Sum, Window};
use relax_ir::analysis::Typed;
use relax_ir::relax::{Binding, BindingValue, Call, Expr, ExprKind, Function, RVar};
use relax_ir::{Constant, DType, PrimExpr};
use std::collections::HashMap;

/// A convolution (with a window) or matrix product over integers.
pub struct Product {
    pub x: Expr,
    pub x_dtype: DType,
    pub x_zero: i64,
    /// Of a convolution.
    pub window: Option<Window>,
    /// int8: (O, kh, kw, I) of a convolution, (kh, kw, C) of a depthwise one, (O, K) of a matrix product.
    pub weights: Constant,
    /// int32, (O,)
    pub bias: Constant,
    /// float32, (O,): from sums to steps of the result.
    pub scales: Constant,
    pub y_dtype: DType,
    pub y_zero: i64,
    /// Least and largest value of the result.
    pub limits: (i64, i64),
}

/// Definitions and uses of the variables of a function.
pub struct Matcher {
    definitions: HashMap<RVar, Expr>,
    uses: HashMap<RVar, usize>,
}

/// A tensor of 8-bit integers with one scale and zero point.
struct Quantized {
    data: Expr,
    scale: f32,
    zero: i64,
    dtype: DType,
}

/// Weights as float: int8 with a scale for the tensor or along an axis.
struct Weights {
    data: Constant,
    scales: Vec<f32>,
    axis: usize,
}

/// The value before `quantize`, without clipping.
struct Result {
    value: Expr,
    scale: f32,
    zero: i64,
    dtype: DType,
    limits: (i64, i64),
}

impl Matcher {
    pub fn new(f: &Function) -> Matcher {
        let mut uses: HashMap<RVar, usize> = HashMap::new();
        f.body.walk(&mut |e| {
            if let ExprKind::Var(v) = e.kind() {
                *uses.entry(v.clone()).or_default() += 1;
            }
        });
        Matcher { definitions: HashMap::new(), uses }
    }

    pub fn define(&mut self, b: &Binding) {
        if let BindingValue::Expr(e) = &b.value {
            self.definitions.insert(b.var.clone(), e.clone());
        }
    }

    fn definition(&self, e: &Expr) -> Option<&Expr> {
        self.definitions.get(e.as_var()?)
    }

    /// The call of `op` that alone `e` sees.
    fn only(&self, e: &Expr, op: &str) -> Option<&Call> {
        let v = e.as_var()?;
        (self.uses.get(v) == Some(&1)).then_some(())?;
        self.definitions.get(v)?.as_op_call(op)
    }

    /// The number and the other operand of a `maximum` or `minimum` with a number on its left.
    fn limited(&self, e: &Expr, op: &str) -> Option<(f64, Expr)> {
        let c = self.only(e, op)?;
        Some((self.scalar(&c.args[0])?, c.args[1].clone()))
    }

    fn constant(&self, e: &Expr) -> Option<Constant> {
        match e.kind() {
            ExprKind::Constant(c) => Some(c.clone()),
            ExprKind::Var(_) => self.constant(self.definition(e)?),
            _ => None,
        }
    }

    fn scalar(&self, e: &Expr) -> Option<f64> {
        if let ExprKind::Prim(p) = e.kind() {
            return p.as_float().or_else(|| p.as_int().map(|v| v as f64));
        }
        self.constant(e).filter(|c| c.elements() == 1).map(|c| c.get_f64(0))
    }

    fn dequantized(&self, e: &Expr, typed: &Typed) -> Option<Quantized> {
        let c = self.definition(e)?.as_op_call("dequantize")?;
        let (scale, zero) = (self.scalar(&c.args[1])? as f32, self.scalar(&c.args[2])? as i64);
        let float = c.attrs.dtype("out_dtype") == Some(DType::F32);
        // Data without a name is a constant.
        (float && c.args[0].as_var().is_some() && self.constant(&c.args[0]).is_none()).then_some(())?;
        let dtype = typed.info_of(&c.args[0])?.as_tensor()?.dtype?;
        matches!(dtype, DType::I8 | DType::U8).then(|| Quantized { data: c.args[0].clone(), scale, zero, dtype })
    }

    fn result(&self, e: &Expr) -> Option<Result> {
        let c = e.as_op_call("quantize")?;
        let (scale, zero) = (self.scalar(&c.args[1])? as f32, self.scalar(&c.args[2])? as i64);
        let dtype = c.attrs.dtype("out_dtype")?;
        if !matches!(dtype, DType::I8 | DType::U8) || scale <= 0.0 {
            return None;
        }
        let (mut low, mut high) = (dtype.int_min(), dtype.int_max());
        let mut value = c.args[0].clone();
        let step = |v: f64| (v / f64::from(scale)).round_ties_even().clamp(-1e6, 1e6) as i64 + zero;
        loop {
            // What is done before has its bounds inside of those that come behind it.
            value = if let Some(c) = self.only(&value, "nn.relu") {
                low = zero.clamp(low, high);
                c.args[0].clone()
            } else if let Some(c) = self.only(&value, "clip") {
                high = step(self.scalar(&c.args[2])?).clamp(low, high);
                low = step(self.scalar(&c.args[1])?).clamp(low, high);
                c.args[0].clone()
            } else if let Some((limit, inner)) = self.limited(&value, "maximum") {
                low = step(limit).clamp(low, high);
                inner
            } else if let Some((limit, inner)) = self.limited(&value, "minimum") {
                high = step(limit).clamp(low, high);
                inner
            } else {
                break;
            };
        }
        Some(Result { value, scale, zero, dtype, limits: (low, high) })
    }

    fn weights(&self, e: &Expr) -> Option<Weights> {
        let c = self.definition(e)?.as_op_call("dequantize")?;
        let (data, scale, zero) = (self.constant(&c.args[0])?, self.constant(&c.args[1])?, self.constant(&c.args[2])?);
        if data.dtype != DType::I8 || (0..zero.elements()).any(|i| zero.get_i64(i) != 0) {
            return None;
        }
        let axis = c.attrs.int("axis")?;
        let axis = if axis < 0 { axis + data.shape.len() as i64 } else { axis } as usize;
        let scales = (0..scale.elements()).map(|i| scale.get_f64(i) as f32).collect();
        Some(Weights { data, scales, axis })
    }

    /// Constant numbers in order, whatever their shape.
    fn numbers(&self, e: &Expr) -> Option<Vec<f64>> {
        if let Some(c) = self.constant(e) {
            return Some((0..c.elements()).map(|i| c.get_f64(i)).collect());
        }
        let d = self.definition(e)?;
        if let Some(c) = d.as_op_call("reshape").or_else(|| d.as_op_call("expand_dims")) {
            return self.numbers(&c.args[0]);
        }
        let c = d.as_op_call("dequantize")?;
        let (v, s, z) = (self.numbers(&c.args[0])?, self.numbers(&c.args[1])?, self.numbers(&c.args[2])?);
        let one = |p: &[f64], i: usize| if p.len() == 1 { p.first().copied() } else { p.get(i).copied() };
        v.iter().enumerate().map(|(i, v)| Some((v - one(&z, i)?) * one(&s, i)?)).collect()
    }

    /// `e` as a product and a bias, which has its entries along the axis `from_end` of the result.
    fn with_bias(&self, e: &Expr, op: &str, from_end: usize, typed: &Typed) -> Option<(Call, Option<Vec<f64>>)> {
        if let Some(c) = self.only(e, op) {
            return Some((c.clone(), None));
        }
        let add = self.only(e, "add")?;
        for (p, b) in [(0, 1), (1, 0)] {
            let (Some(c), Some(bias)) = (self.only(&add.args[p], op), self.numbers(&add.args[b])) else { continue };
            let info = typed.info_of(&add.args[b])?;
            let dims: Vec<i64> = info.as_tensor()?.known_dims()?.iter().map(PrimExpr::as_int).collect::<Option<_>>()?;
            let others = dims.iter().rev().enumerate().any(|(i, d)| i + 1 != from_end && *d != 1);
            if !others {
                return Some((c.clone(), Some(bias)));
            }
        }
        None
    }

    pub fn product(&self, e: &Expr, typed: &Typed) -> Option<Product> {
        let r = self.result(e)?;
        let conv = self.with_bias(&r.value, "nn.conv2d", 3, typed);
        let (call, bias) = match conv {
            Some(c) => c,
            None => self.with_bias(&r.value, "matmul", 1, typed)?,
        };
        let x = self.dequantized(&call.args[0], typed)?;
        let (weights, channels, window, per) = match call.is_op("matmul") {
            true => self.matrix(&call.args[1])?,
            false => self.kernel(&call)?,
        };
        let scale = |o: usize| if per.len() == 1 { per.first().copied() } else { per.get(o).copied() };
        let (mut biases, mut scales) = (vec![], vec![]);
        let n = weights.elements();
        for o in 0..channels {
            let product = f64::from(x.scale) * f64::from(scale(o)?);
            let b = match &bias {
                Some(b) if b.len() == 1 => b[0],
                Some(b) => *b.get(o)?,
                None => 0.0,
            };
            let b = (b / product).round_ties_even();
            let depthwise = window.is_some_and(|w| w.depthwise);
            let own: i64 = match depthwise {
                true => (o..n).step_by(channels).map(|i| weights.get_i64(i).abs()).sum(),
                false => (o * n / channels..(o + 1) * n / channels).map(|i| weights.get_i64(i).abs()).sum(),
            };
            // Neither sums nor their multiples may leave their types.
            let most = own as f64 * 255.0 + b.abs();
            let multiplier = (product / f64::from(r.scale)) as f32;
            if !(most < 2e9 && most * f64::from(multiplier) < 4e6) {
                return None;
            }
            biases.extend((b as i32).to_le_bytes());
            scales.extend(multiplier.to_le_bytes());
        }
        let channels = channels as i64;
        Some(Product {
            x: x.data,
            x_dtype: x.dtype,
            x_zero: x.zero,
            window,
            weights,
            bias: Constant::new(DType::I32, vec![channels], biases),
            scales: Constant::new(DType::F32, vec![channels], scales),
            y_dtype: r.dtype,
            y_zero: r.zero,
            limits: r.limits,
        })
    }

    /// Weights of a matrix product as (O, K), how many outputs, and their scales.
    fn matrix(&self, e: &Expr) -> Option<(Constant, usize, Option<Window>, Vec<f32>)> {
        let (w, transposed) = match self.definition(e)?.as_op_call("permute_dims") {
            Some(c) if c.attrs.ints("axes").is_none_or(|a| a == [1, 0]) => (self.weights(&c.args[0])?, true),
            Some(_) => return None,
            None => (self.weights(e)?, false),
        };
        let [a, b] = w.data.shape[..] else { return None };
        let (outputs, axis) = if transposed { (a, 0) } else { (b, 1) };
        if w.scales.len() > 1 && w.axis != axis {
            return None;
        }
        let data = match transposed {
            true => w.data,
            false => {
                let from = w.data.bytes();
                let at = |o: i64, k: i64| from.get((k * b + o) as usize).copied();
                let all = (0..b).flat_map(|o| (0..a).map(move |k| (o, k)));
                let bytes: Option<Vec<u8>> = all.map(|(o, k)| at(o, k)).collect();
                Constant::new(DType::I8, vec![b, a], bytes?)
            }
        };
        Some((data, outputs as usize, None, w.scales))
    }

    /// Weights of a convolution with the input channels last.
    fn kernel(&self, call: &Call) -> Option<(Constant, usize, Option<Window>, Vec<f32>)> {
        let a = &call.attrs;
        let layout = |name: &str, is: &str| a.str(name).is_none_or(|l| l == is);
        if !layout("data_layout", "NCHW") || !layout("kernel_layout", "OIHW") || !layout("out_layout", "NCHW") {
            return None;
        }
        let w = self.weights(&call.args[1])?;
        let [o, i, kh, kw] = w.data.shape[..] else { return None };
        let pair = |name: &str| match a.ints(name)?[..] {
            [v] => Some([v, v]),
            [v, u] => Some([v, u]),
            _ => None,
        };
        let before = match a.ints("padding")?[..] {
            [p] => [p, p],
            [p, q] => [p, q],
            [p, q, _, _] => [p, q],
            _ => return None,
        };
        let groups = a.int("groups")?;
        let depthwise = groups > 1;
        if depthwise && (groups != o || i != 1) || w.scales.len() > 1 && w.axis != 0 {
            return None;
        }
        let window =
            Window { kernel: [kh, kw], strides: pair("strides")?, dilation: pair("dilation")?, before, depthwise };
        let from = w.data.bytes();
        let mut bytes = Vec::with_capacity(from.len());
        let at = |o: i64, i: i64, p: i64| from.get(((o * w.data.shape[1] + i) * kh * kw + p) as usize).copied();
        if depthwise {
            for p in 0..kh * kw {
                for o in 0..o {
                    bytes.push(at(o, 0, p)?);
                }
            }
        } else {
            for o in 0..o {
                for p in 0..kh * kw {
                    for i in 0..i {
                        bytes.push(at(o, i, p)?);
                    }
                }
            }
        }
        let shape = if depthwise { vec![kh, kw, o] } else { vec![o, kh, kw, i] };
        Some((Constant::new(DType::I8, shape, bytes), o as usize, Some(window), w.scales))
    }

    /// `quantize(dequantize(a) + dequantize(b))`
    pub fn sum(&self, e: &Expr, typed: &Typed) -> Option<Sum> {
        let r = self.result(e)?;
        let add = self.only(&r.value, "add")?;
        let (a, b) = (self.dequantized(&add.args[0], typed)?, self.dequantized(&add.args[1], typed)?);
        let part = |q: Quantized| {
            let scale = (f64::from(q.scale) / f64::from(r.scale)) as f32;
            (scale < 1e3).then_some(Part { data: q.data, scale, zero: q.zero, dtype: q.dtype })
        };
        Some(Sum { a: part(a)?, b: part(b)?, y_dtype: r.dtype, y_zero: r.zero, limits: r.limits })
    }

    /// The image whose mean over height and width `e` is, with its scale and zero point.
    pub fn mean(&self, e: &Expr, typed: &Typed) -> Option<Part> {
        let c = e.as_op_call("mean")?;
        let mut axes: Vec<i64> = c.attrs.ints("axis")?.iter().map(|a| if *a < 0 { a + 4 } else { *a }).collect();
        axes.sort_unstable();
        let q = self.dequantized(&c.args[0], typed)?;
        (axes == [2, 3]).then_some(Part { data: q.data, scale: q.scale, zero: q.zero, dtype: q.dtype })
    }
}
