//! What the translation of an operator sees of a node: typed inputs and attributes, and a builder to emit into.

use super::builder::{Arg, Builder};
use super::graph::Importer;
use super::kind::{decode, encode, Kind};
use super::proto::{AttributeProto, GraphProto, NodeProto, TensorProto, TypeProto};
use super::tensor::{require_dtype, require_storage};
use super::value::{Tensor, Value};
use super::Res;
use relax_ir::{AttrValue, DType, Diagnostic, PrimExpr, Span};
use std::cell::RefCell;

/// The types of attributes, as `AttributeProto.AttributeType` numbers them.
#[derive(Clone, Copy)]
enum AttrType {
    Float = 1,
    Int = 2,
    String = 3,
    Tensor = 4,
    Graph = 5,
    Floats = 6,
    Ints = 7,
    Strings = 8,
    Type = 13,
}

impl AttrType {
    /// The name of a type by its number.
    fn name(number: i32) -> &'static str {
        match number {
            1 => "a float",
            2 => "an integer",
            3 => "a string",
            4 => "a tensor",
            5 => "a graph",
            6 => "floats",
            7 => "integers",
            8 => "strings",
            13 => "a type",
            _ => "of another type",
        }
    }
}

/// A number of things, of which there may be one.
pub fn counted(n: usize, one: &str) -> String {
    match (n, one) {
        (1, _) => format!("1 {one}"),
        (n, "entry") => format!("{n} entries"),
        (n, "axis") => format!("{n} axes"),
        (n, _) => format!("{n} {one}s"),
    }
}

/// A node under translation.
pub struct NodeCx<'a, 'm> {
    pub im: &'a mut Importer<'m>,
    pub node: &'a NodeProto,
    /// The version of the node's domain that the model (or the function around the node) imports.
    pub version: i64,
    /// One per input; `None` for those left out.
    pub inputs: Vec<Option<Value>>,
    /// An attribute that was asked for and has another type.
    mistyped: RefCell<Option<Diagnostic>>,
}

impl<'a, 'm> NodeCx<'a, 'm> {
    pub fn new(im: &'a mut Importer<'m>, node: &'a NodeProto, version: i64, inputs: Vec<Option<Value>>) -> Self {
        NodeCx { im, node, version, inputs, mistyped: RefCell::default() }
    }

    /// What the translation gave, unless it asked for an attribute that has another type.
    pub fn finish<T>(self, result: Res<T>) -> Res<T> {
        match self.mistyped.into_inner() {
            Some(d) => Err(d),
            None => result,
        }
    }
}

impl NodeCx<'_, '_> {
    /// The user's mistake.
    pub fn error(&self, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error("onnx", Span::NONE, message)
    }

    /// Something we cannot compile yet.
    pub fn unsupported(&self, message: impl Into<String>) -> Diagnostic {
        Diagnostic::unsupported("onnx", Span::NONE, message)
    }

    /// A warning about the node, and what to do.
    pub fn warn(&mut self, message: &str, help: &str) {
        let d = Diagnostic::warning("onnx", Span::NONE, message).help(help);
        let d = self.im.at(self.node, d);
        self.im.diags.push(d);
    }

    pub fn builder(&mut self) -> &mut Builder {
        &mut self.im.b
    }

    // Inputs.

    /// Is input `i` given?
    pub fn has(&self, i: usize) -> bool {
        self.inputs.get(i).is_some_and(Option::is_some)
    }

    /// Input `i`, a tensor.
    pub fn input(&self, i: usize) -> Res<Tensor> {
        self.optional(i)?.ok_or_else(|| self.error(format!("input {i} is missing")))
    }

    /// Input `i`, a tensor or left out.
    pub fn optional(&self, i: usize) -> Res<Option<Tensor>> {
        match self.inputs.get(i) {
            None | Some(None) => Ok(None),
            Some(Some(Value::Tensor(t))) => Ok(Some(t.clone())),
            Some(Some(Value::Optional(Some(v)))) => match &**v {
                Value::Tensor(t) => Ok(Some(t.clone())),
                _ => Err(self.error(format!("input {i} must be a tensor"))),
            },
            Some(Some(_)) => Err(self.error(format!("input {i} must be a tensor"))),
        }
    }

    /// Input `i`, of any kind.
    pub fn value(&self, i: usize) -> Res<Value> {
        self.inputs.get(i).cloned().flatten().ok_or_else(|| self.error(format!("input {i} is missing")))
    }

    /// All inputs from `start` on, as tensors.
    pub fn tensors(&self, start: usize) -> Res<Vec<Tensor>> {
        (start..self.inputs.len()).map(|i| self.input(i)).collect()
    }

    // Attributes.

    pub fn attr(&self, name: &str) -> Option<&AttributeProto> {
        self.node.attribute.iter().find(|a| a.name.as_deref() == Some(name))
    }

    /// An attribute of that type. Files of old exporters do not state types.
    fn typed(&self, name: &str, wanted: AttrType) -> Option<&AttributeProto> {
        let a = self.attr(name)?;
        let stated = a.r#type.unwrap_or(0);
        if stated != 0 && stated != wanted as i32 {
            let (is, wanted) = (AttrType::name(stated), AttrType::name(wanted as i32));
            let d = self.error(format!("attribute `{name}` is {is}, not {wanted}"));
            self.mistyped.borrow_mut().get_or_insert(d);
        }
        Some(a)
    }

    pub fn int_opt(&self, name: &str) -> Option<i64> {
        self.typed(name, AttrType::Int).map(|a| a.i.unwrap_or(0))
    }
    pub fn int(&self, name: &str, default: i64) -> i64 {
        self.int_opt(name).unwrap_or(default)
    }
    pub fn flag(&self, name: &str, default: bool) -> bool {
        self.int(name, default as i64) != 0
    }
    pub fn float_opt(&self, name: &str) -> Option<f64> {
        self.typed(name, AttrType::Float).map(|a| a.f.unwrap_or(0.0) as f64)
    }
    pub fn float(&self, name: &str, default: f64) -> f64 {
        self.float_opt(name).unwrap_or(default)
    }
    pub fn ints(&self, name: &str) -> Option<Vec<i64>> {
        self.typed(name, AttrType::Ints).map(|a| a.ints.clone())
    }
    pub fn floats(&self, name: &str) -> Option<Vec<f64>> {
        self.typed(name, AttrType::Floats).map(|a| a.floats.iter().map(|f| *f as f64).collect())
    }
    pub fn str_opt(&self, name: &str) -> Option<String> {
        self.typed(name, AttrType::String)
            .map(|a| String::from_utf8_lossy(a.s.as_deref().unwrap_or_default()).into_owned())
    }
    pub fn str(&self, name: &str, default: &str) -> String {
        self.str_opt(name).unwrap_or_else(|| default.to_string())
    }
    pub fn strings(&self, name: &str) -> Option<Vec<String>> {
        self.typed(name, AttrType::Strings)
            .map(|a| a.strings.iter().map(|s| String::from_utf8_lossy(s).into_owned()).collect())
    }
    pub fn tensor_attr(&self, name: &str) -> Option<&TensorProto> {
        self.typed(name, AttrType::Tensor).and_then(|a| a.t.as_ref())
    }
    pub fn graph(&self, name: &str) -> Option<&GraphProto> {
        self.typed(name, AttrType::Graph).and_then(|a| a.g.as_ref())
    }
    pub fn type_attr(&self, name: &str) -> Option<&TypeProto> {
        self.typed(name, AttrType::Type).and_then(|a| a.tp.as_ref())
    }
    /// An attribute that holds an element type (`to`, `dtype`).
    pub fn dtype_opt(&self, name: &str) -> Res<Option<DType>> {
        self.int_opt(name).map(|v| require_dtype(v as i32)).transpose()
    }
    /// An element type of any kind.
    pub fn storage_opt(&self, name: &str) -> Res<Option<(DType, Kind)>> {
        self.int_opt(name).map(|v| require_storage(v as i32)).transpose()
    }
    pub fn required<T>(&self, name: &str, value: Option<T>) -> Res<T> {
        value.ok_or_else(|| self.error(format!("attribute `{name}` is missing")))
    }

    /// An axis of a tensor of `rank` dims: negative ones count from the end.
    pub fn axis(&self, axis: i64, rank: usize) -> Res<usize> {
        let n = rank as i64;
        if axis < -n || axis >= n {
            return Err(self.error(format!("axis {axis} is out of range for {}", counted(rank, "dim"))));
        }
        Ok(if axis < 0 { axis + n } else { axis } as usize)
    }

    pub fn axes(&self, axes: &[i64], rank: usize) -> Res<Vec<usize>> {
        axes.iter().map(|a| self.axis(*a, rank)).collect()
    }

    /// Axes given as attribute `axes` in old versions and as input `i` in new ones. Those of a tensor of `rank` dims
    /// (of the result for Unsqueeze: with `added` more per axis).
    pub fn axes_attr_or_input(&mut self, i: usize, rank: usize, added: usize) -> Res<Option<Axes>> {
        let t = match (self.ints("axes"), self.optional(i)?) {
            (None, None) => return Ok(None),
            (Some(a), _) => return Ok(Some(Axes::Known(self.axes(&a, rank + added * a.len())?))),
            (None, Some(t)) => t,
        };
        if let Some(a) = t.as_ints() {
            return Ok(Some(Axes::Known(self.axes(&a, rank + added * a.len())?)));
        }
        let count = t.literal_len().filter(|n| *n <= 64);
        let count = count.ok_or_else(|| self.error("the number of axes must be known, and not more than of dims"))?;
        let n = Tensor::scalar_int(t.dtype, (rank + added * count) as i64);
        let t = self.wrap(&t, &n)?;
        Ok(Some(Axes::Computed(self.read(&t)?)))
    }

    // Outputs.

    pub fn outputs(&self) -> usize {
        self.node.output.len()
    }

    /// Is output `i` used?
    pub fn wants(&self, i: usize) -> bool {
        self.node.output.get(i).is_some_and(|o| !o.is_empty())
    }

    // Emitting.

    /// Calls a Relax operator on tensors.
    pub fn op(&mut self, name: &str, args: &[&Tensor]) -> Res<Tensor> {
        let args: Vec<Arg> = args.iter().map(|t| Arg::from(*t)).collect();
        self.im.b.call(name, &args, &[])
    }

    /// Calls a Relax operator on any operands, with attributes.
    pub fn call(&mut self, name: &str, args: &[Arg], attrs: &[(&str, AttrValue)]) -> Res<Tensor> {
        self.im.b.call(name, args, attrs)
    }

    /// Calls a Relax operator with several results.
    pub fn call_multi(&mut self, name: &str, args: &[Arg], attrs: &[(&str, AttrValue)]) -> Res<Vec<Tensor>> {
        self.im.b.call_multi(name, args, attrs)
    }

    /// Calls a Relax operator with one attribute list of integers.
    pub fn cast(&mut self, t: &Tensor, dtype: DType) -> Res<Tensor> {
        if t.dtype == dtype {
            return Ok(t.clone());
        }
        if let Some(t) = super::known::cast(t, dtype) {
            return Ok(t);
        }
        self.call("astype", &[t.into()], &[("dtype", AttrValue::DType(dtype))])
    }

    /// A cast from and to any kind of elements. `saturate` and `rounding` are those of small floats.
    pub fn cast_kind(&mut self, t: &Tensor, to: (DType, Kind), saturate: bool, rounding: &str) -> Res<Tensor> {
        if t.dtype == to.0 && t.kind == to.1 {
            return Ok(t.clone());
        }
        let plain = decode(self, t)?;
        match to.1 {
            Kind::Plain => self.cast(&plain, to.0),
            kind => encode(self, &plain, kind, saturate, rounding),
        }
    }

    /// The values of a tensor of any kind: integers as they are, floats as float32.
    pub fn decode(&mut self, t: &Tensor) -> Res<Tensor> {
        decode(self, t)
    }

    /// The same elements under other dims.
    pub fn reshape(&mut self, t: &Tensor, dims: &[PrimExpr]) -> Res<Tensor> {
        if t.dims == dims {
            return Ok(t.clone());
        }
        if let Some(t) = super::known::reshape(t, dims) {
            return Ok(t);
        }
        let mut y = self.call("reshape", &[t.into(), Arg::shape(dims)], &[])?;
        if y.dims.len() == dims.len() {
            y.dims = dims.to_vec();
        }
        Ok(y)
    }

    /// Inserts dims of 1 at `axes` of the result (ascending, no duplicates).
    pub fn unsqueeze(&mut self, t: &Tensor, axes: &[usize]) -> Res<Tensor> {
        let mut dims = t.dims.clone();
        for a in axes {
            dims.insert((*a).min(dims.len()), PrimExpr::i64(1));
        }
        self.reshape(t, &dims)
    }

    pub fn transpose(&mut self, t: &Tensor, perm: &[usize]) -> Res<Tensor> {
        if perm.iter().enumerate().all(|(i, p)| i == *p) {
            return Ok(t.clone());
        }
        if let Some(t) = super::known::transpose(t, perm) {
            return Ok(t);
        }
        self.call("permute_dims", &[t.into()], &[("axes", ints(perm.iter().map(|p| *p as i64)))])
    }

    pub fn broadcast_to(&mut self, t: &Tensor, dims: &[PrimExpr]) -> Res<Tensor> {
        if t.dims == dims {
            return Ok(t.clone());
        }
        if let Some(t) = super::known::broadcast(t, dims) {
            return Ok(t);
        }
        self.call("broadcast_to", &[t.into(), Arg::shape(dims)], &[])
    }

    /// The dims that two shapes broadcast to.
    pub fn broadcast_dims(&mut self, a: &[PrimExpr], b: &[PrimExpr]) -> Vec<PrimExpr> {
        let n = a.len().max(b.len());
        let at = |d: &[PrimExpr], i: usize| (i + d.len()).checked_sub(n).map(|j| d[j].clone());
        let mut out = vec![];
        for i in 0..n {
            out.push(match (at(a, i), at(b, i)) {
                (Some(x), None) | (None, Some(x)) => x,
                (Some(x), Some(y)) if x.is_int(1) || x == y => y,
                (Some(x), Some(y)) if y.is_int(1) || y.as_int().is_none() => x,
                (Some(_), Some(y)) => y,
                (None, None) => PrimExpr::i64(1),
            });
        }
        out
    }

    /// A float or integer constant of the dtype of `like`.
    pub fn like(&self, like: &Tensor, v: f64) -> Tensor {
        Tensor::scalar(like.dtype, v)
    }

    /// `max(x, v)` for a number `v`. Where it compares with NaN, `maximum` gives its second operand: NaN stays NaN, as in
    /// ONNX's reference.
    pub fn at_least(&mut self, x: &Tensor, v: f64) -> Res<Tensor> {
        let v = self.like(x, v);
        self.op("maximum", &[&v, x])
    }

    /// `min(x, v)` for a number `v`; NaN stays NaN.
    pub fn at_most(&mut self, x: &Tensor, v: f64) -> Res<Tensor> {
        let v = self.like(x, v);
        self.op("minimum", &[&v, x])
    }

    /// The elements of an integer vector (a shape, repeats, ...): known ones, or read at run time.
    pub fn read(&mut self, t: &Tensor) -> Res<Vec<PrimExpr>> {
        self.im.b.read(t)
    }

    /// `t`, with `size` added where it is negative.
    pub fn wrap(&mut self, t: &Tensor, size: &Tensor) -> Res<Tensor> {
        let zero = Tensor::scalar_int(t.dtype, 0);
        let negative = self.op("less", &[t, &zero])?;
        let wrapped = self.op("add", &[t, size])?;
        self.op("where", &[&negative, &wrapped, t])
    }

    /// Canonical form of a dim.
    pub fn simplify(&mut self, dim: PrimExpr) -> PrimExpr {
        self.im.b.simplify(&dim)
    }
}

/// Axes of a node, counted from the front.
#[derive(Clone, Debug)]
pub enum Axes {
    Known(Vec<usize>),
    /// Only known at run time.
    Computed(Vec<PrimExpr>),
}

impl Axes {
    pub fn len(&self) -> usize {
        match self {
            Axes::Known(a) => a.len(),
            Axes::Computed(a) => a.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Is dim `i` among the axes?
    pub fn contains(&self, i: usize) -> PrimExpr {
        match self {
            Axes::Known(a) => PrimExpr::bool(a.contains(&i)),
            Axes::Computed(a) => {
                a.iter().map(|v| v.clone().eq(PrimExpr::i64(i as i64))).fold(PrimExpr::bool(false), |a, b| a.or(b))
            }
        }
    }
}

/// The dims that stay when those at `axes` are taken out.
pub fn without(dims: &[PrimExpr], axes: &Axes) -> Vec<PrimExpr> {
    let kept: Vec<PrimExpr> = (0..dims.len()).map(|i| axes.contains(i).not()).collect();
    if let Axes::Known(a) = axes {
        return (0..dims.len()).filter(|i| !a.contains(i)).map(|i| dims[i].clone()).collect();
    }
    let count = dims.len().saturating_sub(axes.len());
    (0..count)
        .map(|j| {
            let mut before = PrimExpr::i64(0);
            let mut out = PrimExpr::i64(0);
            for (d, k) in dims.iter().zip(&kept) {
                let here = k.clone().and(before.clone().eq(PrimExpr::i64(j as i64)));
                out = here.select(d.clone(), out);
                before = before + k.clone().select(1, 0);
            }
            out
        })
        .collect()
}

/// A list attribute.
pub fn ints(values: impl IntoIterator<Item = i64>) -> AttrValue {
    AttrValue::List(values.into_iter().map(AttrValue::Int).collect())
}
