//! Operators on bytes that say in integers what `dequantize -> operator -> quantize` says in floats, as ONNX's
//! `QLinearConv` and `QLinearMatMul` do: `quantize(astype(conv2d(x - zero, w) + bias) * scale)`, with bytes `x` of a known
//! scale. They are written in floats, so that one pass finds both; those that it does not take stay as they are, exact in int32.
//! Maxima of bytes are those of their floats.

use super::find::values;
use crate::layout::{call, reshape, transpose};
use relax_ir::analysis::Typed;
use relax_ir::attrs::Attrs;
use relax_ir::relax::{map_bindings, Binding, BindingValue, Call, Expr, ExprKind, Function, RVar, StructInfo};
use relax_ir::{AttrValue, Constant, DType, PrimExpr, Span};
use std::collections::{HashMap, HashSet};

/// Writes in floats what [`super::quantised`] will take, where nobody writes to tensors.
pub(super) fn in_floats(f: &mut Function, typed: &mut Typed) {
    let mut left: HashSet<RVar> = HashSet::new();
    loop {
        let (new, info, written) = written(f, typed, &left);
        if written.is_empty() {
            return;
        }
        let mut sinfo = typed.sinfo.clone();
        sinfo.extend(info.iter().cloned());
        let taken = values(&new, &sinfo, &HashSet::new());
        let before = left.len();
        left.extend(written.into_iter().filter(|v| !taken.contains_key(v)));
        if left.len() == before {
            *f = new;
            typed.sinfo.extend(info);
            return;
        }
    }
}

/// The function with all but `left` in floats, what its new variables are, and the bytes that are made so.
fn written(f: &Function, typed: &Typed, left: &HashSet<RVar>) -> (Function, Vec<(RVar, StructInfo)>, Vec<RVar>) {
    let values = f.bindings().map(|b| (b.var.clone(), b.expr().clone())).collect();
    let mut pass = Pass { values, typed, scales: HashMap::new(), info: vec![], written: vec![] };
    let mut new = f.clone();
    new.body = map_bindings(&f.body, &mut |b, _| {
        let BindingValue::Expr(e) = &b.value else { return None };
        let c = e.as_call()?;
        let made = match c.op()?.name {
            "quantize" => {
                pass.known(b, c);
                pass.product(b, c).filter(|_| !left.contains(&b.var))
            }
            "nn.max_pool2d" => pass.maximum(b, c).filter(|_| !left.contains(&b.var)),
            _ => None,
        }?;
        pass.info.extend(made.info);
        pass.written.push(b.var.clone());
        Some(made.list)
    });
    let (info, written) = (pass.info, pass.written);
    let chain = written.iter().flat_map(|v| behind(v, &pass.values, &pass.scales)).collect();
    unread(&mut new, chain, typed);
    (new, info, written)
}

/// What the bytes `v` were computed from, as far as other bytes.
fn behind(v: &RVar, values: &HashMap<RVar, Expr>, bytes: &HashMap<RVar, [Constant; 2]>) -> Vec<RVar> {
    let (mut all, mut open) = (vec![], vec![v.clone()]);
    while let Some(e) = open.pop().and_then(|v| values.get(&v)) {
        let args = e.as_call().map_or(&[][..], |c| &c.args);
        let made = args.iter().filter_map(Expr::as_var).filter(|v| !bytes.contains_key(v) && values.contains_key(v));
        let made: Vec<RVar> = made.cloned().collect();
        all.extend(made.iter().cloned());
        open.extend(made);
    }
    all
}

/// Of `chain`, what nothing reads any more goes away, as it would read the bytes; not what something is checked before.
fn unread(f: &mut Function, mut chain: HashSet<RVar>, typed: &Typed) {
    let checked: HashSet<&RVar> = typed.checks.iter().map(|c| &c.before).chain(typed.births.keys()).collect();
    chain.retain(|v| !checked.contains(v));
    loop {
        let mut read = HashSet::new();
        f.body.walk(&mut |e| read.extend(e.as_var().cloned()));
        let gone: HashSet<RVar> =
            f.bindings().map(|b| &b.var).filter(|v| chain.contains(v) && !read.contains(v)).cloned().collect();
        if gone.is_empty() {
            return;
        }
        f.body = map_bindings(&f.body, &mut |b, _| gone.contains(&b.var).then(Vec::new));
    }
}

struct Pass<'a> {
    values: HashMap<RVar, Expr>,
    typed: &'a Typed,
    /// Scale and zero point of bytes.
    scales: HashMap<RVar, [Constant; 2]>,
    info: Vec<(RVar, StructInfo)>,
    written: Vec<RVar>,
}

/// The bindings for one.
struct Made {
    list: Vec<Binding>,
    info: Vec<(RVar, StructInfo)>,
}

impl Made {
    fn bind(&mut self, b: &Binding, name: &str, value: Expr, dims: Vec<PrimExpr>) -> Expr {
        let var = RVar::new(name, b.var.is_dataflow(), b.span);
        self.info.push((var.clone(), StructInfo::tensor(dims, DType::F32)));
        self.list.push(Binding { var: var.clone(), annotation: None, value: BindingValue::Expr(value), span: b.span });
        var.expr()
    }
}

fn constant(c: Constant, span: Span) -> Expr {
    Expr::new(ExprKind::Constant(c), span)
}

/// A call of `quantize` or `dequantize`.
fn scaled(op: &str, x: Expr, [scale, zero]: [Constant; 2], axis: i64, dtype: DType, span: Span) -> Option<Expr> {
    let mut attrs = Attrs::default();
    attrs.set("axis", AttrValue::Int(axis));
    attrs.set("out_dtype", AttrValue::DType(dtype));
    call(op, vec![x, constant(scale, span), constant(zero, span)], attrs, span)
}

impl Pass<'_> {
    fn value<'b>(&'b self, e: &'b Expr) -> &'b Expr {
        e.as_var().and_then(|v| self.values.get(v)).unwrap_or(e)
    }

    fn call<'b>(&'b self, e: &'b Expr, op: &str) -> Option<&'b Call> {
        self.value(e).as_call().filter(|c| c.is_op(op))
    }

    fn constant<'b>(&'b self, e: &'b Expr) -> Option<&'b Constant> {
        match self.value(e).kind() {
            ExprKind::Constant(c) => Some(c),
            ExprKind::Call(c) if c.is_op("reshape") => self.constant(c.args.first()?),
            _ => None,
        }
    }

    fn dims(&self, v: &RVar) -> Option<Vec<PrimExpr>> {
        Some(self.typed.sinfo.get(v)?.as_tensor()?.known_dims()?.to_vec())
    }

    fn dtype(&self, e: &Expr) -> Option<DType> {
        match self.constant(e) {
            Some(c) => Some(c.dtype),
            None => self.typed.sinfo.get(e.as_var()?)?.as_tensor()?.dtype,
        }
    }

    /// Remembers how bytes were made.
    fn known(&mut self, b: &Binding, c: &Call) -> Option<()> {
        let [scale, zero] = [self.constant(c.args.get(1)?)?, self.constant(c.args.get(2)?)?];
        let byte = matches!(zero.dtype, DType::U8 | DType::I8);
        if scale.dtype == DType::F32 && byte && scale.elements() == 1 && zero.elements() == 1 {
            self.scales.insert(b.var.clone(), [scale.clone(), zero.clone()]);
        }
        None
    }

    /// Numbers that a constant expression has: one, or one for each channel.
    fn numbers(&self, e: &Expr) -> Option<Vec<f64>> {
        if let Some(c) = self.constant(e) {
            return Some((0..c.elements()).map(|i| c.get_f64(i)).collect());
        }
        let c = self.call(e, "multiply")?;
        let (a, b) = (self.numbers(&c.args[0])?, self.numbers(&c.args[1])?);
        times(&a, &b)
    }

    /// An int32 sum of products behind the scales that it is multiplied by.
    fn factors<'b>(&'b self, e: &'b Expr) -> Option<(&'b Expr, Vec<f64>)> {
        if let Some(c) = self.call(e, "astype") {
            let int = self.dtype(&c.args[0]) == Some(DType::I32) && self.dtype(e) == Some(DType::F32);
            return int.then(|| (&c.args[0], vec![1.0]));
        }
        let c = self.call(e, "multiply")?;
        let [a, b] = &c.args[..] else { return None };
        let (of, by) = match self.numbers(b) {
            Some(by) => (a, by),
            None => (b, self.numbers(a)?),
        };
        let (sum, factors) = self.factors(of)?;
        Some((sum, times(&factors, &by)?))
    }

    /// What zero points are taken off, and they.
    fn centred<'b>(&'b self, e: &'b Expr) -> Option<(&'b Expr, Option<&'b Constant>)> {
        let (wide, zero) = match self.call(e, "subtract") {
            Some(c) => (&c.args[0], Some(self.constant(&c.args[1])?)),
            None => (e, None),
        };
        let c = self.call(wide, "astype").filter(|_| self.dtype(wide) == Some(DType::I32))?;
        Some((&c.args[0], zero))
    }

    /// int8 weights with no zero point, which may be int32 by now; the rows of a transposed matrix are the outputs.
    fn weights(&self, e: &Expr) -> Option<(Constant, bool)> {
        let (w, zero) = match self.call(e, "subtract") {
            Some(c) => (&c.args[0], Some(self.constant(&c.args[1])?)),
            None => (e, None),
        };
        let plain = zero.is_none_or(|z| (0..z.elements()).all(|i| z.get_i64(i) == 0));
        let w = self.call(w, "astype").map_or(w, |c| &c.args[0]);
        let (w, turned) = match self.call(w, "permute_dims") {
            Some(p) => (&p.args[0], true),
            None => (w, false),
        };
        let ExprKind::Constant(c) = self.value(w).kind() else { return None };
        if !plain || turned && c.shape.len() != 2 {
            return None;
        }
        let values = || (0..c.elements()).map(|i| i8::try_from(c.get_i64(i)).map(|v| v as u8));
        match c.dtype {
            DType::I8 => Some((c.clone(), turned)),
            DType::I32 => {
                Some((Constant::new(DType::I8, c.shape.clone(), values().collect::<Result<_, _>>().ok()?), turned))
            }
            _ => None,
        }
    }

    fn product(&self, b: &Binding, c: &Call) -> Option<Made> {
        let (sum, factors) = self.factors(&c.args[0])?;
        let (of, bias) = match self.call(sum, "add") {
            Some(add) => match self.constant(&add.args[1]) {
                Some(bias) => (&add.args[0], Some(bias)),
                None => (&add.args[1], Some(self.constant(&add.args[0])?)),
            },
            None => (sum, None),
        };
        let product = self.value(of).as_call().filter(|c| c.is_op("nn.conv2d") || c.is_op("matmul"))?;
        let image = product.is_op("nn.conv2d");
        let (x, zero) = self.centred(&product.args[0])?;
        let x = x.as_var()?;
        let [scale, of_x] = self.scales.get(x)?.clone();
        let same = match zero {
            Some(z) => z.elements() == 1 && z.get_i64(0) == of_x.get_i64(0),
            None => of_x.get_i64(0) == 0,
        };
        let (weights, turned) = self.weights(&product.args[1])?;
        let dims = self.dims(&b.var)?;
        let channels = dims.get(if image { 1 } else { dims.len().checked_sub(1)? })?.as_int()?;
        let along = |n: usize| n == 1 || n as i64 == channels;
        if !same || !along(factors.len()) || bias.is_some_and(|b| b.dtype != DType::I32 || !along(b.elements())) {
            return None;
        }
        let span = b.span;
        let mut made = Made { list: vec![], info: vec![] };
        let real = scaled("dequantize", x.expr(), [scale.clone(), of_x], -1, DType::F32, span)?;
        let real = made.bind(b, "real", real, self.dims(x)?);
        let numbers = |values: Vec<f64>| {
            let dims = if values.len() == 1 { vec![] } else { vec![values.len() as i64] };
            Constant::new(DType::F32, dims, values.iter().flat_map(|v| (*v as f32).to_le_bytes()).collect())
        };
        let one = scale.get_f64(0);
        let of_weights = numbers(factors.iter().map(|f| f / one).collect());
        let literals = |shape: &[i64]| shape.iter().map(|d| PrimExpr::i64(*d)).collect::<Vec<_>>();
        let none = Constant::scalar_i64(DType::I8, 0);
        let axis = if factors.len() == 1 { -1 } else { i64::from(!image && !turned) };
        let zeros = match factors.len() {
            1 => none,
            n => Constant::new(DType::I8, vec![n as i64], vec![0; n]),
        };
        let shape = weights.shape.clone();
        let w = scaled("dequantize", constant(weights, span), [of_weights, zeros], axis, DType::F32, span)?;
        let mut w = made.bind(b, "weights", w, literals(&shape));
        if turned {
            let [rows, columns] = shape[..] else { return None };
            w = made.bind(b, "turned", transpose(w, &[1, 0], span)?, literals(&[columns, rows]));
        }
        let value = Expr::new(ExprKind::Call(Call { args: vec![real, w], ..product.clone() }), span);
        let mut value = made.bind(b, "product", value, dims.clone());
        if let Some(bias) = bias {
            let n = bias.elements();
            let all: Vec<u8> = (0..channels as usize)
                .flat_map(|i| (bias.get_i64(if n == 1 { 0 } else { i }) as i32).to_le_bytes())
                .collect();
            let bias = constant(Constant::new(DType::I32, vec![channels], all), span);
            let scales = (0..channels as usize).map(|i| factors[if factors.len() == 1 { 0 } else { i }]).collect();
            let mut attrs = Attrs::default();
            attrs.set("axis", AttrValue::Int(0));
            attrs.set("out_dtype", AttrValue::DType(DType::F32));
            let scales = Constant::new(DType::F32, vec![channels], numbers(scales).bytes().to_vec());
            let zeros = Constant::new(DType::I32, vec![channels], vec![0; 4 * channels as usize]);
            let real = call("dequantize", vec![bias, constant(scales, span), constant(zeros, span)], attrs, span)?;
            let mut real = made.bind(b, "bias", real, literals(&[channels]));
            if image {
                let shape = [1, channels, 1, 1];
                real = made.bind(b, "bias", reshape(real, &shape, span)?, literals(&shape));
            }
            let sum = call("add", vec![value, real], Attrs::default(), span)?;
            value = made.bind(b, "sum", sum, dims);
        }
        let args = [&[value], &c.args[1..]].concat();
        let value = BindingValue::Expr(Expr::new(ExprKind::Call(Call { args, ..c.clone() }), span));
        made.list.push(Binding { value, ..b.clone() });
        Some(made)
    }

    fn maximum(&mut self, b: &Binding, c: &Call) -> Option<Made> {
        let x = c.args.first()?.as_var()?.clone();
        let scale = self.scales.get(&x)?.clone();
        let dtype = scale[1].dtype;
        self.scales.insert(b.var.clone(), scale.clone());
        let span = b.span;
        let mut made = Made { list: vec![], info: vec![] };
        let real = scaled("dequantize", x.expr(), scale.clone(), -1, DType::F32, span)?;
        let real = made.bind(b, "real", real, self.dims(&x)?);
        let value = Expr::new(ExprKind::Call(Call { args: vec![real], ..c.clone() }), span);
        let value = made.bind(b, "largest", value, self.dims(&b.var)?);
        let value = BindingValue::Expr(scaled("quantize", value, scale, -1, dtype, span)?);
        made.list.push(Binding { value, ..b.clone() });
        Some(made)
    }
}

/// One number or one for each channel, by others.
fn times(a: &[f64], b: &[f64]) -> Option<Vec<f64>> {
    let n = a.len().max(b.len());
    let fits = [a, b].iter().all(|v| v.len() == 1 || v.len() == n);
    let at = |v: &[f64], i: usize| v[if v.len() == 1 { 0 } else { i }];
    fits.then(|| (0..n).map(|i| at(a, i) * at(b, i)).collect())
}
