//! Rule `halves`: what computes with float16 or bfloat16 computes with float32, before layouts are chosen.
//!
//! Convolutions and pools are those of float32 between two conversions: their sums are float32 as they are, rounded once. So they
//! have the kernels of float32; the conversions go into the kernels around them. Unless floats are strict, what other operators
//! hand each other stays float32, too ([`FLOATS`], [`MOVES`]): nothing is rounded to 16 bits but what a caller, an operator
//! of another kind or an `astype` of the model asks for. Weights of convolutions and products stay as they are in the library: kernels
//! read them so ([`crate::layout`]).

use crate::layout::{COMPARISONS, CONVOLUTIONS, TRANSPOSED};
use relax_ir::analysis::{infer_expr, Typed};
use relax_ir::attrs::Attrs;
use relax_ir::op::lookup;
use relax_ir::relax::{map_bindings, Binding, BindingValue, Call, Callee, Expr, ExprKind, RVar, StructInfo};
use relax_ir::sym::Facts;
use relax_ir::{AttrValue, DType, Func, Span};
use std::collections::{HashMap, HashSet};

const POOLS: &[&str] = &["nn.max_pool2d", "nn.avg_pool2d", "nn.adaptive_avg_pool2d"];

/// Operators whose results are rounded to the type of their operands.
const FLOATS: &[&str] = &[
    "add",
    "subtract",
    "multiply",
    "divide",
    "maximum",
    "minimum",
    "power",
    "abs",
    "negative",
    "square",
    "sqrt",
    "rsqrt",
    "exp",
    "log",
    "erf",
    "sin",
    "cos",
    "tanh",
    "sigmoid",
    "clip",
    "nn.relu",
    "nn.relu6",
    "nn.leakyrelu",
    "nn.prelu",
    "nn.gelu",
    "nn.gelu_tanh",
    "nn.silu",
    "nn.selu",
    "nn.softplus",
    "sum",
    "mean",
    "max",
    "min",
    "variance",
    "std",
    "nn.softmax",
    "nn.log_softmax",
    "nn.batch_norm",
    "nn.layer_norm",
    "nn.group_norm",
    "nn.instance_norm",
    "nn.rms_norm",
    "nn.attention",
    "nn.attention_bias",
    "image.resize2d",
];

/// Operators that move elements: they do as what they read does.
const MOVES: &[&str] = &[
    "reshape",
    "nn.batch_flatten",
    "expand_dims",
    "squeeze",
    "permute_dims",
    "broadcast_to",
    "concat",
    "split",
    "stack",
    "strided_slice",
    "flip",
    "where",
    "nn.pad",
    "nn.pixel_shuffle",
];

/// Rewrites every Relax function.
pub fn halves(typed: &mut Typed, strict: bool) {
    let mut funcs = std::mem::take(&mut typed.module.funcs);
    let mut pass = Pass { typed: &mut *typed, strict, wide: HashMap::new(), constant: HashSet::new(), changed: false };
    for f in &mut funcs {
        if let Func::Relax(f) = f {
            f.body = map_bindings(&f.body, &mut |b, dataflow| pass.binding(b, dataflow));
        }
    }
    let changed = pass.changed;
    typed.module.funcs = funcs;
    if changed {
        crate::dead::remove_dead(typed);
    }
}

/// The 16-bit float that a tensor, or each of several, is of.
fn half(info: &StructInfo) -> Option<DType> {
    match info {
        StructInfo::Tuple(fields) => {
            let first = half(fields.first()?)?;
            fields.iter().all(|f| half(f) == Some(first)).then_some(first)
        }
        _ => info.as_tensor()?.dtype.filter(|d| *d == DType::F16 || *d == DType::BF16),
    }
}

fn astype(x: Expr, dtype: DType, span: Span) -> Option<Expr> {
    let mut attrs = Attrs::default();
    attrs.set("dtype", AttrValue::DType(dtype));
    let call = Call { callee: Callee::Op(lookup("astype")?), args: vec![x], attrs, sinfo_args: vec![] };
    Some(Expr::new(ExprKind::Call(call), span))
}

/// What becomes of an operand of 16 bits.
#[derive(Clone, Copy, PartialEq)]
enum Operand {
    /// It is converted where it is not known as float32.
    Wide,
    /// It stays where it is not known as float32.
    AsKnown,
    Same,
}

struct Pass<'a> {
    typed: &'a mut Typed,
    strict: bool,
    /// Values of 16 bits as the float32 that they are rounded from.
    wide: HashMap<RVar, RVar>,
    /// What is computed from constants alone.
    constant: HashSet<RVar>,
    changed: bool,
}

impl Pass<'_> {
    /// What the operands of a call become; `None` where it stays as it is.
    fn operands(&self, c: &Call) -> Option<Vec<Operand>> {
        let name = c.op()?.name;
        let first = |n: usize, of: Operand| -> Option<Vec<Operand>> {
            let kind = |i| if i < n { of } else { Operand::Same };
            Some((0..c.args.len()).map(kind).collect())
        };
        match name {
            _ if CONVOLUTIONS.contains(&name) || TRANSPOSED.contains(&name) => first(2, Operand::Wide),
            _ if POOLS.contains(&name) => first(1, Operand::Wide),
            _ if self.strict || c.args.iter().all(|a| self.is_constant(a)) => None,
            "matmul" => first(2, Operand::AsKnown),
            // They see what is there before it is rounded.
            _ if COMPARISONS.contains(&name)
                && c.args.iter().any(|a| a.as_var().is_some_and(|v| self.wide.contains_key(v))) =>
            {
                first(2, Operand::Wide)
            }
            _ if FLOATS.contains(&name) => first(c.args.len(), Operand::Wide),
            _ if MOVES.contains(&name) && self.is_wide(&c.args) => first(c.args.len(), Operand::Wide),
            _ => None,
        }
    }

    fn is_constant(&self, e: &Expr) -> bool {
        match e.kind() {
            ExprKind::Constant(_) | ExprKind::Shape(_) | ExprKind::Prim(_) => true,
            ExprKind::Var(v) => self.constant.contains(v),
            ExprKind::Tuple(fields) => fields.iter().all(|f| self.is_constant(f)),
            _ => false,
        }
    }

    /// Whether what is moved is known as float32, constants aside. A cache that the caller holds stays as it is, and so does what
    /// is added to it.
    fn is_wide(&self, args: &[Expr]) -> bool {
        let (mut any, mut all) = (false, true);
        for a in args {
            a.walk(&mut |e| {
                if matches!(e.kind(), ExprKind::Tuple(_)) {
                    return;
                }
                let known = e.as_var().is_some_and(|v| self.wide.contains_key(v));
                any |= known;
                all &= known || self.is_constant(e) || self.typed.info_of(e).and_then(|i| half(&i)).is_none();
            });
        }
        any && all
    }

    /// The operator of `b` over float32, and its result as it was.
    fn binding(&mut self, b: &Binding, dataflow: bool) -> Option<Vec<Binding>> {
        let BindingValue::Expr(e) = &b.value else { return None };
        if let ExprKind::TupleGetItem(t, i) = e.kind() {
            let wide = self.wide.get(t.as_var()?)?;
            let (item, mut list) = (Expr::new(ExprKind::TupleGetItem(wide.expr(), *i), e.span()), vec![]);
            let item = self.bind(b.var.name(), item, b.var.is_dataflow(), &mut list)?;
            return self.rounded(b, item, list);
        }
        let constant = match e.kind() {
            ExprKind::Call(c) => c.op().is_some() && c.args.iter().all(|a| self.is_constant(a)),
            _ => self.is_constant(e),
        };
        if constant {
            self.constant.insert(b.var.clone());
        }
        let c = e.as_call()?;
        if !self.strict && c.is_op("astype") && c.attrs.get("dtype") == Some(&AttrValue::DType(DType::F32)) {
            let known = self.wide.get(c.args.first()?.as_var()?)?;
            return Some(vec![Binding { value: BindingValue::Expr(known.expr()), ..b.clone() }]);
        }
        let kinds = self.operands(c)?;
        let compares = c.op().is_some_and(|o| COMPARISONS.contains(&o.name));
        if !compares {
            self.typed.sinfo.get(&b.var).and_then(half)?;
        }
        let mut list = vec![];
        let mut wide = c.clone();
        for (a, kind) in wide.args.iter_mut().zip(kinds) {
            *a = self.operand(a, kind, dataflow, &mut list)?;
        }
        if wide.attrs.get("out_dtype").is_some() || c.is_op("matmul") {
            wide.attrs.set("out_dtype", AttrValue::DType(DType::F32));
        }
        if compares {
            let value = BindingValue::Expr(Expr::new(ExprKind::Call(wide), e.span()));
            list.push(Binding { value, ..b.clone() });
            return Some(list);
        }
        let sum = self.bind(b.var.name(), Expr::new(ExprKind::Call(wide), e.span()), b.var.is_dataflow(), &mut list)?;
        self.rounded(b, sum, list)
    }

    /// `b`, which `wide` is the float32 of.
    fn rounded(&mut self, b: &Binding, wide: RVar, mut list: Vec<Binding>) -> Option<Vec<Binding>> {
        self.changed = true;
        let span = b.span;
        let info = self.typed.sinfo.get(&b.var)?;
        match (info, half(info)?) {
            // Who reads all of a tuple reads this one.
            (StructInfo::Tuple(_), _) => list.push(b.clone()),
            (_, dtype) => {
                let value = BindingValue::Expr(astype(wide.expr(), dtype, span)?);
                list.push(Binding { value, ..b.clone() });
            }
        }
        if !self.strict {
            self.wide.insert(b.var.clone(), wide);
        }
        Some(list)
    }

    fn operand(&mut self, a: &Expr, kind: Operand, dataflow: bool, list: &mut Vec<Binding>) -> Option<Expr> {
        if let ExprKind::Tuple(fields) = a.kind() {
            let fields = fields.iter().map(|f| self.operand(f, kind, dataflow, list)).collect::<Option<Vec<_>>>()?;
            return Some(Expr::new(ExprKind::Tuple(fields), a.span()));
        }
        if kind == Operand::Same || self.typed.info_of(a).and_then(|i| half(&i)).is_none() {
            return Some(a.clone());
        }
        if let Some(known) = a.as_var().and_then(|v| self.wide.get(v)) {
            return Some(known.expr());
        }
        match kind {
            Operand::Wide => {
                let wide = self.bind("wide", astype(a.clone(), DType::F32, a.span())?, dataflow, list)?;
                Some(wide.expr())
            }
            _ => Some(a.clone()),
        }
    }

    fn bind(&mut self, name: &str, value: Expr, dataflow: bool, list: &mut Vec<Binding>) -> Option<RVar> {
        let info = infer_expr(&mut Facts::new(), &value, &self.typed.sinfo, &self.typed.module).ok()?;
        let var = RVar::new(name, dataflow, value.span());
        let span = value.span();
        self.typed.sinfo.insert(var.clone(), info);
        list.push(Binding { var: var.clone(), annotation: None, value: BindingValue::Expr(value), span });
        Some(var)
    }
}
