//! Batches of convolution networks, image by image.
//!
//! Kernels for convolutions are made for a number of images. Where an exported function leaves it open, no other dim
//! depends on it, and each image of its results follows from the same image of its arguments, the function for a batch of
//! one is compiled in its place, and the entry runs it once for each image ([`crate::host`]): at the speed of the static
//! network, and in its memory. Dense layers at the end whose weights come from memory are left to a function of the whole
//! batch ([`tail`]), which reads them once. A batch that is a number is left open first ([`opened`]), as all images' values
//! are more than caches keep. [`split`] finds such functions, by a rule for each operator of what it does to
//! the first dim; those without a rule end the search.

mod opened;
mod tail;

use crate::likely::{self, with_values};
use relax_ir::analysis::{self, Typed};
use relax_ir::attrs::{Attrs, EACH_OF, FORM_OF, REST_OF, SHAPE_CONSTRAINTS, VAR_DIVISOR};
use relax_ir::op::{is_elementwise, lookup, Purity};
use relax_ir::prim::{BinOp, PrimKind};
use relax_ir::relax::{
    Binding, BindingBlock, BindingValue, Call, Callee, Expr, ExprKind, Function, RVar, SeqExpr, StructInfo, TensorInfo,
};
use relax_ir::{AttrValue, DType, Func, IRModule, PrimExpr, Var};
use std::collections::HashMap;
use std::sync::Arc;

/// What is worth it.
const CONVOLUTIONS: &[&str] =
    &["nn.conv1d", "nn.conv2d", "nn.conv3d", "nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose"];

/// Over rows and columns of images, in layouts that begin with the batch.
const WINDOWS: &[&str] = &[
    "image.resize2d",
    "nn.adaptive_avg_pool1d",
    "nn.adaptive_avg_pool2d",
    "nn.adaptive_avg_pool3d",
    "nn.avg_pool1d",
    "nn.avg_pool2d",
    "nn.avg_pool3d",
    "nn.max_pool1d",
    "nn.max_pool2d",
    "nn.max_pool3d",
];

/// Along the axes of an attribute.
const ALONG: &[&str] = &[
    "max",
    "mean",
    "min",
    "nn.log_softmax",
    "nn.softmax",
    "onnx.resize_axis",
    "prod",
    "repeat",
    "split",
    "squeeze",
    "std",
    "sum",
    "variance",
    "nn.layer_norm",
];

/// The function of one image for an exported function.
pub fn of<'a>(module: &'a IRModule, name: &str) -> Option<&'a Function> {
    module.relax_funcs().find(|f| f.attrs.str(EACH_OF) == Some(name))
}

/// What follows it for the whole batch, where that is a function of its own.
pub fn rest_of<'a>(module: &'a IRModule, name: &str) -> Option<&'a Function> {
    module.relax_funcs().find(|f| f.attrs.str(REST_OF) == Some(name))
}

/// Splits every exported function that can be: the function of one image is added, and the function itself states its
/// results alone. `tails`: dense layers may go by the batch, which takes memory for all images.
pub fn split(typed: &mut Typed, tails: bool) {
    let names: Vec<String> =
        typed.module.relax_funcs().filter(|f| f.global_symbol().is_some()).map(|f| f.name.clone()).collect();
    for name in names {
        let Some(f) = typed.module.relax(&name) else { continue };
        if typed.module.relax_funcs().any(|g| calls(g, &name)) {
            continue;
        }
        let Some(whole) = apart(f, typed) else { continue };
        let Some(body) = f.ret.as_ref().and_then(|ret| nothing(f, ret)) else { continue };
        let Some(open) = whole.typed.module.relax(&name) else { continue };
        let parts = tail::cut(open, &whole.typed, &whole.batch).filter(|_| tails);
        let parts = parts.map(|(images, rest)| (images, Some(rest))).into_iter().chain([(open.clone(), None)]);
        for (images, rest) in parts {
            let Some(one) = one(&images, &whole.batch) else { continue };
            let rest = rest.map(|rest| match whole.count {
                Some(count) => with_values(&rest, &HashMap::from([(whole.batch.clone(), PrimExpr::i64(count))])),
                None => rest,
            });
            let mut t = typed.clone();
            for new in [Some(one), rest].into_iter().flatten() {
                let fresh = t.module.fresh_name(&new.name);
                t.module.funcs.push(Func::Relax(Function { name: fresh, ..new }));
            }
            // Its forms for numbers of images would be no faster.
            let batch = whole.batch.name();
            let needless = |w: &String| w.split_whitespace().next() == Some(batch);
            t.module.funcs.retain(|g| match g {
                Func::Relax(g) => g.attrs.str(FORM_OF) != Some(&name) || !likely::when(g).iter().all(needless),
                _ => true,
            });
            for g in &mut t.module.funcs {
                match g {
                    Func::Relax(g) if g.name == name => g.body = body.clone(),
                    _ => {}
                }
            }
            // A function that has an error at that size stays as it is.
            if analysis::materialise(&mut t).is_ok() && t.checks.is_empty() {
                *typed = t;
                break;
            }
        }
    }
}

/// Whether a function names another one, which stays whole then.
fn calls(f: &Function, name: &str) -> bool {
    let mut found = false;
    f.body.walk(&mut |e| found |= matches!(e.kind(), ExprKind::GlobalVar(g) if g == name));
    found
}

/// The function for a batch of one.
fn one(f: &Function, n: &Var) -> Option<Function> {
    let stated = |key: &str| f.attrs.get(key).is_some();
    if stated(SHAPE_CONSTRAINTS) || stated(VAR_DIVISOR) {
        return None;
    }
    let mut g = with_values(f, &HashMap::from([(n.clone(), PrimExpr::i64(1))]));
    g.name = format!("{}_each", f.name);
    g.private = true;
    g.attrs.0.retain(|(key, _)| key != "global_symbol");
    g.attrs.set(EACH_OF, AttrValue::Str(f.name.clone()));
    Some(g)
}

/// A body with results of these shapes.
fn nothing(f: &Function, ret: &StructInfo) -> Option<Arc<SeqExpr>> {
    fn value(f: &Function, s: &StructInfo, bindings: &mut Vec<Binding>) -> Option<Expr> {
        let span = f.span;
        if let Some(fields) = s.as_tuple() {
            let all: Vec<Expr> = fields.iter().map(|s| value(f, s, bindings)).collect::<Option<_>>()?;
            return Some(Expr::new(ExprKind::Tuple(all), span));
        }
        let t = s.as_tensor()?;
        let shape = Expr::new(ExprKind::Shape(t.known_dims()?.to_vec()), span);
        let mut attrs = Attrs::default();
        attrs.set("dtype", AttrValue::DType(t.dtype?));
        let call = Call { callee: Callee::Op(lookup("zeros")?), args: vec![shape], attrs, sinfo_args: vec![] };
        let var = RVar::new("result", false, span);
        let value = BindingValue::Expr(Expr::new(ExprKind::Call(call), span));
        bindings.push(Binding { var: var.clone(), annotation: None, value, span });
        Some(var.expr())
    }
    let mut bindings = vec![];
    let body = value(f, ret, &mut bindings)?;
    let blocks = vec![BindingBlock { dataflow: false, bindings, span: f.span }];
    Some(Arc::new(SeqExpr { blocks, body }))
}

/// The first dim of tensors: the batch, which no other dim depends on, or none of their dims depends on it.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// So many rows of the first dim for each image.
    Each(i64),
    Free,
}

struct Search<'a> {
    typed: &'a Typed,
    n: &'a Var,
}

/// A function whose images are apart, in a module where its batch is open.
struct Apart {
    typed: Typed,
    batch: Var,
    /// The batch where it is a number in truth.
    count: Option<i64>,
}

/// The function with its batch open, where it can be split.
fn apart(f: &Function, typed: &Typed) -> Option<Apart> {
    let first = |p: &relax_ir::relax::Param| {
        let t = p.annotation.as_ref()?.as_tensor()?;
        t.known_dims()?.first()?.as_var().filter(|v| v.dtype() == DType::I64).cloned()
    };
    if let Some(batch) = f.params.iter().find_map(first).filter(|n| is_apart(f, typed, n)) {
        return Some(Apart { typed: typed.clone(), batch, count: None });
    }
    let whole = opened::opened(f, typed)?;
    is_apart(whole.typed.module.relax(&f.name)?, &whole.typed, &whole.batch).then_some(whole)
}

/// Whether a function whose batch is open can be split.
fn is_apart(f: &Function, typed: &Typed, n: &Var) -> bool {
    let s = Search { typed, n };
    let clean = typed.checks.is_empty() && typed.looks.is_empty();
    let params = f.params.iter().all(|p| {
        let kind = p.annotation.as_ref().and_then(|a| s.tensor(a.as_tensor()?));
        matches!(kind, Some(Kind::Each(1) | Kind::Free))
    });
    if !clean || !params || !f.pure || !f.ret.as_ref().is_some_and(|r| s.every(r)) {
        return false;
    }
    let mut worth = false;
    for b in f.bindings() {
        let BindingValue::Expr(e) = &b.value else { return false };
        if !typed.births.get(&b.var).is_none_or(|b| b.is_empty()) || !s.binding(b, e) {
            return false;
        }
        if let ExprKind::Call(c) = e.kind() {
            worth |= c.op().is_some_and(|o| CONVOLUTIONS.contains(&o.name)) && s.rows(&c.args[0]).is_some();
        }
    }
    worth
}

impl Search<'_> {
    fn tensor(&self, t: &TensorInfo) -> Option<Kind> {
        let dims = t.known_dims()?;
        let alike = |d: &[PrimExpr]| d.iter().all(|d| !d.vars().contains(self.n));
        let bytes = t.dtype.is_some_and(|d| d.bits >= 8 && d.bits % 8 == 0);
        match dims.split_first() {
            Some((first, rest)) if first.vars().contains(self.n) => {
                (alike(rest) && bytes).then_some(Kind::Each(self.multiple(first)?))
            }
            _ => alike(dims).then_some(Kind::Free),
        }
    }

    /// How often the batch a dim is.
    fn multiple(&self, dim: &PrimExpr) -> Option<i64> {
        let is_batch = |e: &PrimExpr| e.as_var() == Some(self.n);
        match dim.kind() {
            PrimKind::Binary(BinOp::Mul, a, b) if is_batch(a) => b.as_int(),
            PrimKind::Binary(BinOp::Mul, a, b) if is_batch(b) => a.as_int(),
            _ => is_batch(dim).then_some(1),
        }
        .filter(|rows| *rows > 0)
    }

    /// The rows of each image, where images take part.
    fn rows(&self, e: &Expr) -> Option<i64> {
        match self.of(e) {
            Some(Kind::Each(rows)) => Some(rows),
            _ => None,
        }
    }

    /// Whether it is made of tensors of the two kinds.
    fn all(&self, s: &StructInfo) -> bool {
        match s.as_tuple() {
            Some(fields) => fields.iter().all(|s| self.all(s)),
            None => s.as_tensor().is_some_and(|t| self.tensor(t).is_some()),
        }
    }

    /// Whether it is made of tensors of images, a row each.
    fn every(&self, s: &StructInfo) -> bool {
        match s.as_tuple() {
            Some(fields) => !fields.is_empty() && fields.iter().all(|s| self.every(s)),
            None => s.as_tensor().is_some_and(|t| self.tensor(t) == Some(Kind::Each(1))),
        }
    }

    /// Of an operand that is a tensor.
    fn of(&self, e: &Expr) -> Option<Kind> {
        self.tensor(self.typed.info_of(e)?.as_tensor()?)
    }

    fn rank(&self, e: &Expr) -> Option<i64> {
        Some(self.typed.info_of(e)?.as_tensor()?.known_dims()?.len() as i64)
    }

    /// Whether each image of what is bound follows from the same image of its operands.
    fn binding(&self, b: &Binding, e: &Expr) -> bool {
        let Some(info) = self.typed.sinfo.get(&b.var) else { return false };
        match e.kind() {
            ExprKind::Shape(_) | ExprKind::Prim(_) => true,
            _ if !self.all(info) => false,
            ExprKind::Var(_) | ExprKind::Constant(_) | ExprKind::Tuple(_) | ExprKind::TupleGetItem(..) => true,
            ExprKind::Call(c) => {
                c.op().is_some_and(|o| o.purity == Purity::Pure && self.call(c, o.name, info) == Some(true))
            }
            _ => false,
        }
    }

    /// `None`: it is not known.
    fn call(&self, c: &Call, name: &str, info: &StructInfo) -> Option<bool> {
        let mut open = false;
        for a in &c.args {
            a.walk(&mut |e| {
                open |= match e.kind() {
                    ExprKind::Shape(dims) => dims.iter().any(|d| d.vars().contains(self.n)),
                    ExprKind::Prim(p) => p.vars().contains(self.n),
                    _ => self.rows(e).is_some(),
                }
            });
        }
        if !open {
            // What images do not take part in is the same for all of them.
            return Some(!self.some(info));
        }
        let x = c.args.first()?;
        let own = |e: &Expr| self.rows(e).is_some();
        let free = |e: &Expr| self.of(e) == Some(Kind::Free);
        let free_rest = || {
            c.args[1..].iter().all(|a| match a.kind() {
                ExprKind::Prim(p) => !p.vars().contains(self.n),
                ExprKind::Shape(dims) => !dims.iter().any(|d| d.vars().contains(self.n)),
                _ => !own(a),
            })
        };
        let behind = |axis: i64, rank: i64| axis.rem_euclid(rank.max(1)) != 0;
        let layouts = ["data_layout", "layout", "out_layout"];
        let batch_first = || layouts.iter().all(|l| c.attrs.str(l).is_none_or(|l| l.is_empty() || l.starts_with('N')));
        Some(match name {
            _ if CONVOLUTIONS.contains(&name) => own(x) && free_rest() && batch_first(),
            _ if WINDOWS.contains(&name) => own(x) && free_rest() && batch_first(),
            _ if is_elementwise(name) => {
                let rank = match info.as_tuple() {
                    Some(fields) => fields.first()?.as_tensor()?.known_dims()?.len() as i64,
                    None => info.as_tensor()?.known_dims()?.len() as i64,
                };
                // What is the same for all images has no first dim, or one of 1.
                let beside = |e: &Expr| match self.typed.info_of(e)?.as_tensor()?.known_dims()? {
                    dims if (dims.len() as i64) < rank => Some(true),
                    dims => Some(dims.first()?.is_int(1)),
                };
                let rows = c.args.iter().find_map(|a| self.rows(a));
                c.args.iter().all(|a| match a.kind() {
                    ExprKind::Prim(p) => !p.vars().contains(self.n),
                    _ if own(a) => self.rank(a) == Some(rank) && self.rows(a) == rows,
                    _ => free(a) && beside(a) == Some(true),
                })
            }
            _ if ALONG.contains(&name) => {
                let rank = self.rank(x)?;
                let last = ["nn.softmax", "nn.log_softmax"].contains(&name);
                let axes = c.attrs.ints("axis").or_else(|| c.attrs.ints("axes"));
                let axes = axes.or_else(|| Some(vec![c.attrs.int("axis").or_else(|| c.attrs.int("axes"))?]));
                let axes = axes.or_else(|| last.then(|| vec![-1]))?;
                own(x) && free_rest() && !axes.is_empty() && axes.iter().all(|a| behind(*a, rank))
            }
            "nn.batch_norm" => {
                let told = matches!(c.attrs.get("training"), Some(AttrValue::Bool(false)));
                told && own(x) && free_rest() && behind(c.attrs.int("axis")?, self.rank(x)?)
            }
            "nn.group_norm" => {
                let rank = self.rank(x)?;
                let axes = c.attrs.ints("axes")?;
                let all = axes.iter().chain(&[c.attrs.int("channel_axis")?]).all(|a| behind(*a, rank));
                own(x) && free_rest() && all
            }
            "quantize" | "dequantize" => {
                let whole = c.args[1..].iter().all(|a| self.rank(a) == Some(0));
                own(x) && free_rest() && (whole || behind(c.attrs.int("axis").unwrap_or(-1), self.rank(x)?))
            }
            "matmul" => {
                let (y, rank) = (c.args.get(1)?, self.rank(x)?);
                let both = |y: &Expr| self.rows(y) == self.rows(x) && self.rank(y) == Some(rank) && rank >= 3;
                own(x) && rank >= 2 && (free(y) && self.rank(y)? == 2 || both(y))
            }
            "strided_slice" => {
                let ExprKind::Tuple(axes) = c.args.get(1)?.kind() else { return None };
                let rank = self.rank(x)?;
                let behind = |e: &Expr| match e.kind() {
                    ExprKind::Prim(p) => p.as_int().is_some_and(|axis| behind(axis, rank)),
                    _ => false,
                };
                let mut of_batch = false;
                for a in &c.args[1..] {
                    a.walk(&mut |e| of_batch |= matches!(e.kind(), ExprKind::Prim(p) if p.vars().contains(self.n)));
                }
                own(x) && !of_batch && axes.iter().all(behind)
            }
            "take" => own(x) && free_rest() && behind(c.attrs.int("axis")?, self.rank(x)?),
            "permute_dims" => own(x) && c.attrs.ints("axes")?.first() == Some(&0),
            "reshape" => {
                let ExprKind::Shape(dims) = c.args.get(1)?.kind() else { return None };
                own(x) && self.multiple(dims.first()?).is_some()
            }
            "concat" => {
                let fields = match x.kind() {
                    ExprKind::Tuple(fields) => fields.clone(),
                    _ => return Some(false),
                };
                let rank = self.rank(fields.first()?)?;
                let rows = self.rows(fields.first()?);
                rows.is_some()
                    && fields.iter().all(|f| self.rows(f) == rows)
                    && behind(c.attrs.int("axis").unwrap_or(0), rank)
            }
            "expand_dims" => {
                let more = c.attrs.ints("axis").or_else(|| Some(vec![c.attrs.int("axis")?]))?;
                let rank = self.rank(x)? + more.len() as i64;
                own(x) && more.iter().all(|a| behind(*a, rank))
            }
            "nn.pad" => {
                let around = c.attrs.ints("pad_width")?;
                own(x) && free_rest() && around.len() as i64 == 2 * self.rank(x)? && around[..2] == [0, 0]
            }
            _ => return None,
        })
    }

    /// Whether images are among it.
    fn some(&self, s: &StructInfo) -> bool {
        match s.as_tuple() {
            Some(fields) => fields.iter().any(|s| self.some(s)),
            None => s.as_tensor().is_some_and(|t| matches!(self.tensor(t), Some(Kind::Each(_)))),
        }
    }
}
