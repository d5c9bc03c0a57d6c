//! Structural equality of modules, up to the identity of variables and buffers.
//!
//! Two modules are equal when a one-to-one renaming of variables and buffers makes them the same text. What counts:
//!
//! * every node, type, attribute and literal (floats by bits, any NaN equals any NaN), the names of the module and of
//!   its global functions, names of blocks;
//! * not spans, not the names of variables, buffers and local functions, not the order of functions in the module nor of
//!   entries in attributes and dicts, not whether a buffer parameter was written with a handle;
//! * neighbouring binding blocks outside of dataflow are one block, empty blocks are none;
//! * `R.call_packed("f", ..)` is a call of the extern function `f`.
//!
//! Shape variables belong to their function: each function is compared with a renaming of its own.

use crate::attrs::{AttrValue, Attrs};
use crate::module::{Func, IRModule};
use crate::prim::{PrimExpr, PrimKind, Var};
use crate::relax::*;
use crate::tir::{Block, Buffer, BufferRegion, ForKind, PackedArg, PrimFunc, PrimParam, Stmt, StmtKind};
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;

/// Where two modules first differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// From the module inwards, e.g. `main.blocks[0].bindings[2].value.args[1]`.
    pub path: String,
    pub left: String,
    pub right: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}: {} is not {}", self.path, self.left, self.right)
    }
}

type Same = Result<(), Difference>;

/// Compares two modules; the first difference found, if any.
pub fn compare(a: &IRModule, b: &IRModule) -> Same {
    let mut c = Compare::default();
    c.value("name", &a.name, &b.name)?;
    c.at("attrs", |c| c.attrs(&a.attrs, &b.attrs))?;
    c.at("global_infos", |c| {
        c.value("length", &a.global_infos.len(), &b.global_infos.len())?;
        for (x, y) in a.global_infos.iter().zip(&b.global_infos) {
            c.value("key", &x.0, &y.0)?;
            c.list(&x.1, &y.1, |c, x, y| c.attr(x, y))?;
        }
        Ok(())
    })?;
    for f in &a.funcs {
        let Some(g) = b.get(f.name()) else {
            return c.differ(&f.name(), &"missing on the right");
        };
        compare_functions(f, g).map_err(|d| Difference { path: format!("{}.{}", f.name(), d.path), ..d })?;
    }
    match b.funcs.iter().find(|g| a.get(g.name()).is_none()) {
        Some(g) => c.differ(&"missing on the left", &g.name()),
        None => Ok(()),
    }
}

/// Compares two functions, names included.
pub fn compare_functions(a: &Func, b: &Func) -> Same {
    let mut c = Compare::default();
    match (a, b) {
        (Func::Relax(f), Func::Relax(g)) => {
            c.value("name", &f.name, &g.name)?;
            c.function(f, g)
        }
        (Func::Prim(f), Func::Prim(g)) => {
            c.value("name", &f.name, &g.name)?;
            c.prim_func(f, g)
        }
        _ => c.differ(&"a Relax function", &"a PrimFunc"),
    }
}

/// Compares two PrimFuncs; the name does not count.
pub fn compare_prim_funcs(a: &PrimFunc, b: &PrimFunc) -> Same {
    Compare::default().prim_func(a, b)
}

/// A one-to-one pairing, found on the way.
struct Pairs<T> {
    left: HashMap<T, T>,
    right: HashMap<T, T>,
}

impl<T> Default for Pairs<T> {
    fn default() -> Pairs<T> {
        Pairs { left: HashMap::new(), right: HashMap::new() }
    }
}

impl<T: Clone + Eq + Hash> Pairs<T> {
    /// `Some(agree)` when one of them is paired already; pairs them otherwise.
    fn meet(&mut self, a: &T, b: &T) -> Option<bool> {
        match (self.left.get(a), self.right.get(b)) {
            (None, None) => {
                self.left.insert(a.clone(), b.clone());
                self.right.insert(b.clone(), a.clone());
                None
            }
            (x, y) => Some(x == Some(b) && y == Some(a)),
        }
    }
}

#[derive(Default)]
struct Compare {
    path: Vec<String>,
    vars: Pairs<Var>,
    rvars: Pairs<RVar>,
    buffers: Pairs<Buffer>,
}

impl Compare {
    fn differ(&self, a: &dyn fmt::Debug, b: &dyn fmt::Debug) -> Same {
        let short = |x: &dyn fmt::Debug| {
            let text = format!("{x:?}");
            match text.char_indices().nth(200) {
                Some((i, _)) => format!("{}...", &text[..i]),
                None => text,
            }
        };
        let path = self.path.iter().fold(String::new(), |p, s| match s.starts_with('[') {
            true => p + s,
            false => p + "." + s,
        });
        Err(Difference { path: path.trim_start_matches('.').to_string(), left: short(a), right: short(b) })
    }

    fn at(&mut self, segment: &str, f: impl FnOnce(&mut Compare) -> Same) -> Same {
        self.path.push(segment.to_string());
        f(self)?;
        self.path.pop();
        Ok(())
    }

    fn value<T: PartialEq + fmt::Debug>(&mut self, name: &str, a: &T, b: &T) -> Same {
        if a == b {
            return Ok(());
        }
        self.at(name, |c| c.differ(a, b))
    }

    fn list<T: fmt::Debug>(&mut self, a: &[T], b: &[T], mut f: impl FnMut(&mut Compare, &T, &T) -> Same) -> Same {
        if a.len() != b.len() {
            return self.differ(&a, &b);
        }
        for (i, (x, y)) in a.iter().zip(b).enumerate() {
            self.at(&format!("[{i}]"), |c| f(c, x, y))?;
        }
        Ok(())
    }

    fn option<T: fmt::Debug>(
        &mut self,
        name: &str,
        a: Option<&T>,
        b: Option<&T>,
        f: impl FnOnce(&mut Compare, &T, &T) -> Same,
    ) -> Same {
        match (a, b) {
            (None, None) => Ok(()),
            (Some(x), Some(y)) => self.at(name, |c| f(c, x, y)),
            _ => self.at(name, |c| c.differ(&a, &b)),
        }
    }

    // Scalars.

    fn var(&mut self, a: &Var, b: &Var) -> Same {
        match self.vars.meet(a, b) {
            Some(true) => Ok(()),
            Some(false) => self.differ(a, b),
            None => self.value("dtype", &a.dtype(), &b.dtype()),
        }
    }

    fn prims(&mut self, a: &[PrimExpr], b: &[PrimExpr]) -> Same {
        self.list(a, b, |c, x, y| c.prim(x, y))
    }

    fn prim(&mut self, a: &PrimExpr, b: &PrimExpr) -> Same {
        use PrimKind::*;
        self.value("dtype", &a.dtype(), &b.dtype())?;
        match (a.kind(), b.kind()) {
            (Var(x), Var(y)) => self.var(x, y),
            (Float(x), Float(y)) if x == y || (x.0.is_nan() && y.0.is_nan()) => Ok(()),
            (Let(v, ..), Let(w, ..)) => {
                self.at("let", |c| c.var(v, w))?;
                self.operands(a, b)
            }
            (Binary(x, ..), Binary(y, ..)) if x == y => self.operands(a, b),
            (Call(f, x), Call(g, y)) if f == g && x.len() == y.len() => self.operands(a, b),
            (BufferLoad(x, i), BufferLoad(y, j)) if i.len() == j.len() => {
                self.buffer(x, y)?;
                self.operands(a, b)
            }
            (Int(x), Int(y)) if x == y => Ok(()),
            (Str(x), Str(y)) if x == y => Ok(()),
            (Cast(_), Cast(_))
            | (Reinterpret(_), Reinterpret(_))
            | (Not(_), Not(_))
            | (Neg(_), Neg(_))
            | (Select(..), Select(..))
            | (IfThenElse(..), IfThenElse(..))
            | (Load { .. }, Load { .. })
            | (Ramp(..), Ramp(..))
            | (Broadcast(_), Broadcast(_))
            | (PtrAdd(..), PtrAdd(..)) => self.operands(a, b),
            _ => self.differ(a, b),
        }
    }

    fn operands(&mut self, a: &PrimExpr, b: &PrimExpr) -> Same {
        for (i, (x, y)) in a.children().into_iter().zip(b.children()).enumerate() {
            self.at(&format!("[{i}]"), |c| c.prim(x, y))?;
        }
        Ok(())
    }

    // Attributes.

    fn attrs(&mut self, a: &Attrs, b: &Attrs) -> Same {
        self.dict(&a.0, &b.0)
    }

    fn dict(&mut self, a: &[(String, AttrValue)], b: &[(String, AttrValue)]) -> Same {
        for (name, x) in a {
            match b.iter().find(|(n, _)| n == name) {
                Some((_, y)) => self.at(name, |c| c.attr(x, y))?,
                None => return self.at(name, |c| c.differ(x, &"missing on the right")),
            }
        }
        match b.iter().find(|(n, _)| !a.iter().any(|(m, _)| m == n)) {
            Some((name, y)) => self.at(name, |c| c.differ(&"missing on the left", y)),
            None => Ok(()),
        }
    }

    fn attr(&mut self, a: &AttrValue, b: &AttrValue) -> Same {
        match (a, b) {
            (AttrValue::Prim(x), AttrValue::Prim(y)) => self.prim(x, y),
            (AttrValue::List(x), AttrValue::List(y)) => self.list(x, y, |c, x, y| c.attr(x, y)),
            (AttrValue::Dict(x), AttrValue::Dict(y)) => self.dict(x, y),
            (AttrValue::StructInfo(x), AttrValue::StructInfo(y)) => self.info(x, y),
            (AttrValue::Float(x), AttrValue::Float(y)) if x.is_nan() && y.is_nan() => Ok(()),
            (AttrValue::IndexMap(x), AttrValue::IndexMap(y)) => {
                self.list(&x.params, &y.params, |c, x, y| c.var(x, y))?;
                self.prims(&x.results, &y.results)
            }
            // A dtype may be written as its name.
            (AttrValue::DType(d), AttrValue::Str(s)) | (AttrValue::Str(s), AttrValue::DType(d))
                if s.parse() == Ok(*d) =>
            {
                Ok(())
            }
            _ if a == b => Ok(()),
            _ => self.differ(a, b),
        }
    }

    // Relax.

    fn rvar(&mut self, a: &RVar, b: &RVar) -> Same {
        match self.rvars.meet(a, b) {
            Some(true) => Ok(()),
            Some(false) => self.differ(a, b),
            None => self.value("dataflow", &a.is_dataflow(), &b.is_dataflow()),
        }
    }

    fn function(&mut self, a: &Function, b: &Function) -> Same {
        self.at("params", |c| {
            c.list(&a.params, &b.params, |c, x, y| {
                c.rvar(&x.var, &y.var)?;
                c.option("annotation", x.annotation.as_ref(), y.annotation.as_ref(), |c, x, y| c.info(x, y))
            })
        })?;
        self.value("private", &a.private, &b.private)?;
        self.value("pure", &a.pure, &b.pure)?;
        self.at("attrs", |c| c.attrs(&a.attrs, &b.attrs))?;
        self.option("ret", a.ret.as_ref(), b.ret.as_ref(), |c, x, y| c.info(x, y))?;
        self.seq(&a.body, &b.body)
    }

    fn seq(&mut self, a: &SeqExpr, b: &SeqExpr) -> Same {
        self.at("blocks", |c| {
            c.list(&merged(a), &merged(b), |c, x, y| {
                c.value("dataflow", &x.0, &y.0)?;
                c.at("bindings", |c| c.list(&x.1, &y.1, |c, x, y| c.binding(x, y)))
            })
        })?;
        self.at("body", |c| c.expr(&a.body, &b.body))
    }

    fn binding(&mut self, a: &Binding, b: &Binding) -> Same {
        match (&a.value, &b.value) {
            (BindingValue::Expr(x), BindingValue::Expr(y)) => {
                // The name of a local function is in scope of its own body.
                if matches!(x.kind(), ExprKind::Function(_)) {
                    self.rvar(&a.var, &b.var)?;
                }
                self.at("value", |c| c.expr(x, y))?;
            }
            (
                BindingValue::MatchCast { value: x, struct_info: s },
                BindingValue::MatchCast { value: y, struct_info: t },
            ) => {
                self.at("match_cast", |c| c.expr(x, y))?;
                self.at("struct_info", |c| c.info(s, t))?;
            }
            _ => return self.differ(a, b),
        }
        self.at("var", |c| c.rvar(&a.var, &b.var))?;
        self.option("annotation", a.annotation.as_ref(), b.annotation.as_ref(), |c, x, y| c.info(x, y))
    }

    fn expr(&mut self, a: &Expr, b: &Expr) -> Same {
        use ExprKind::*;
        match (a.kind(), b.kind()) {
            (Var(x), Var(y)) => self.rvar(x, y),
            (Tuple(x), Tuple(y)) => self.list(x, y, |c, x, y| c.expr(x, y)),
            (TupleGetItem(x, i), TupleGetItem(y, j)) => {
                self.value("index", i, j)?;
                self.at("tuple", |c| c.expr(x, y))
            }
            (Seq(x), Seq(y)) => self.seq(x, y),
            (Function(x), Function(y)) => self.function(x, y),
            (If { cond: x, then: t, otherwise: e }, If { cond: y, then: u, otherwise: f }) => {
                self.at("cond", |c| c.expr(x, y))?;
                self.at("then", |c| c.seq(t, u))?;
                self.at("otherwise", |c| c.seq(e, f))
            }
            (Call(x), Call(y)) => self.call(x, y),
            (Shape(x), Shape(y)) => self.prims(x, y),
            (Prim(x), Prim(y)) => self.prim(x, y),
            (ExternFunc(x, Some(f)), ExternFunc(y, Some(g))) if x == y => {
                self.info(&StructInfo::Func(f.clone()), &StructInfo::Func(g.clone()))
            }
            (x, y) if x == y => Ok(()),
            _ => self.differ(a, b),
        }
    }

    fn call(&mut self, a: &Call, b: &Call) -> Same {
        let ((f, x), (g, y)) = (direct(a), direct(b));
        match (&f, &g) {
            (Callee::Expr(x), Callee::Expr(y)) => self.at("callee", |c| c.expr(x, y))?,
            (x, y) => self.value("callee", x, y)?,
        }
        self.at("args", |c| c.list(x, y, |c, x, y| c.expr(x, y)))?;
        self.at("attrs", |c| c.attrs(&a.attrs, &b.attrs))?;
        self.at("sinfo_args", |c| c.list(&a.sinfo_args, &b.sinfo_args, |c, x, y| c.info(x, y)))
    }

    fn info(&mut self, a: &StructInfo, b: &StructInfo) -> Same {
        match (a, b) {
            (StructInfo::Tensor(x), StructInfo::Tensor(y)) => {
                self.value("dtype", &x.dtype, &y.dtype)?;
                self.value("ndim", &x.ndim, &y.ndim)?;
                self.value("vdevice", &x.vdevice, &y.vdevice)?;
                match (&x.shape, &y.shape) {
                    (None, None) => Ok(()),
                    (Some(TensorShape::Dims(x)), Some(TensorShape::Dims(y))) => self.at("shape", |c| c.prims(x, y)),
                    (Some(TensorShape::Var(x)), Some(TensorShape::Var(y))) => self.at("shape", |c| c.rvar(x, y)),
                    (x, y) => self.at("shape", |c| c.differ(x, y)),
                }
            }
            (StructInfo::Shape { values: x, ndim: n }, StructInfo::Shape { values: y, ndim: m }) => {
                self.value("ndim", n, m)?;
                self.option("values", x.as_ref(), y.as_ref(), |c, x, y| c.prims(x, y))
            }
            (StructInfo::Prim { dtype: d, value: x }, StructInfo::Prim { dtype: e, value: y }) => {
                self.value("dtype", d, e)?;
                self.option("value", x.as_ref(), y.as_ref(), |c, x, y| c.prim(x, y))
            }
            (StructInfo::Tuple(x), StructInfo::Tuple(y)) => self.list(x, y, |c, x, y| c.info(x, y)),
            (StructInfo::Func(x), StructInfo::Func(y)) => {
                self.option("params", x.params.as_ref(), y.params.as_ref(), |c, x, y| {
                    c.list(x, y, |c, x, y| c.info(x, y))
                })?;
                self.at("ret", |c| c.info(&x.ret, &y.ret))?;
                self.value("pure", &x.pure, &y.pure)?;
                self.value("derive", &x.derive, &y.derive)
            }
            _ if a == b => Ok(()),
            _ => self.differ(a, b),
        }
    }

    // TIR.

    fn buffer(&mut self, a: &Buffer, b: &Buffer) -> Same {
        match self.buffers.meet(a, b) {
            Some(true) => return Ok(()),
            Some(false) => return self.differ(a, b),
            None => {}
        }
        self.at(&a.name, |c| {
            c.value("dtype", &a.dtype(), &b.dtype())?;
            c.value("scope", &a.scope, &b.scope)?;
            c.at("shape", |c| c.prims(&a.shape, &b.shape))?;
            c.at("strides", |c| c.prims(&a.strides, &b.strides))?;
            c.option("elem_offset", a.elem_offset.as_ref(), b.elem_offset.as_ref(), |c, x, y| c.prim(x, y))
        })
    }

    fn prim_func(&mut self, a: &PrimFunc, b: &PrimFunc) -> Same {
        self.at("params", |c| {
            c.list(&a.params, &b.params, |c, x, y| match (x, y) {
                (PrimParam::Scalar(x), PrimParam::Scalar(y)) => c.var(x, y),
                (PrimParam::Buffer { buffer: x, .. }, PrimParam::Buffer { buffer: y, .. }) => c.buffer(x, y),
                (PrimParam::Handle { handle: x, fields: f }, PrimParam::Handle { handle: y, fields: g }) => {
                    c.var(x, y)?;
                    c.list(f, g, |c, (f, v), (g, w)| {
                        c.value("field", f, g)?;
                        c.var(v, w)
                    })
                }
                _ => c.differ(x, y),
            })
        })?;
        self.value("ret", &a.ret, &b.ret)?;
        self.value("private", &a.private, &b.private)?;
        self.at("attrs", |c| c.attrs(&a.attrs, &b.attrs))?;
        self.at("alloc_buffers", |c| c.list(&a.alloc_buffers, &b.alloc_buffers, |c, x, y| c.buffer(x, y)))?;
        self.at("body", |c| c.stmt(&a.body, &b.body))?;
        self.option("returns", a.returns.as_ref(), b.returns.as_ref(), |c, x, y| c.prim(x, y))
    }

    fn stmt(&mut self, a: &Stmt, b: &Stmt) -> Same {
        use StmtKind::*;
        match (a.kind(), b.kind()) {
            (Seq(x), Seq(y)) => self.list(x, y, |c, x, y| c.stmt(x, y)),
            // What does nothing prints as `T.evaluate(0)`: the syntax wants a statement.
            (Seq(x), Evaluate(e)) | (Evaluate(e), Seq(x)) if x.is_empty() && e.as_int() == Some(0) => Ok(()),
            (
                For { var: v, min: m, extent: e, kind: k, annotations: n, body: s },
                For { var: w, min: o, extent: f, kind: l, annotations: p, body: t },
            ) => self.at(&format!("for {}", v.name()), |c| {
                c.at("min", |c| c.prim(m, o))?;
                c.at("extent", |c| c.prim(e, f))?;
                c.value::<ForKind>("kind", k, l)?;
                c.at("annotations", |c| c.dict(n, p))?;
                c.var(v, w)?;
                c.stmt(s, t)
            }),
            (While { cond: x, body: s }, While { cond: y, body: t }) => {
                self.at("while", |c| c.prim(x, y))?;
                self.at("do", |c| c.stmt(s, t))
            }
            (If { cond: x, then: s, otherwise: d }, If { cond: y, then: t, otherwise: e }) => {
                self.at("if", |c| c.prim(x, y))?;
                self.at("then", |c| c.stmt(s, t))?;
                self.option("otherwise", d.as_ref(), e.as_ref(), |c, x, y| c.stmt(x, y))
            }
            (Block(x), Block(y)) => self.at(&x.name, |c| c.block(x, y)),
            (Store { buffer: x, indices: i, value: v }, Store { buffer: y, indices: j, value: w }) => {
                self.buffer(x, y)?;
                self.at("indices", |c| c.prims(i, j))?;
                self.at("stored", |c| c.prim(v, w))
            }
            (Let { var: v, value: x, body: s }, Let { var: w, value: y, body: t }) => {
                self.at("let", |c| {
                    c.prim(x, y)?;
                    c.var(v, w)
                })?;
                self.stmt(s, t)
            }
            (Assert { cond: x, message: m }, Assert { cond: y, message: n }) => {
                self.at("assert", |c| c.prim(x, y))?;
                self.value("message", m, n)
            }
            (Evaluate(x), Evaluate(y)) => self.at("evaluate", |c| c.prim(x, y)),
            (CallPacked { function: f, args: a }, CallPacked { function: g, args: b }) => {
                self.value("function", f, g)?;
                self.list(a, b, |c, x, y| match (x, y) {
                    (PackedArg::Scalar(x), PackedArg::Scalar(y)) => c.prim(x, y),
                    (PackedArg::Text(x), PackedArg::Text(y)) => c.value("text", x, y),
                    (PackedArg::Tensor(x), PackedArg::Tensor(y)) => c.buffer(x, y),
                    (PackedArg::Handle(x), PackedArg::Handle(y)) => c.var(x, y),
                    _ => c.differ(x, y),
                })
            }
            (Attr { node: n, key: k, value: v, body: s }, Attr { node: o, key: l, value: w, body: t }) => {
                self.value("attr.key", k, l)?;
                self.at("attr.node", |c| c.attr(n, o))?;
                self.at("attr.value", |c| c.prim(v, w))?;
                self.stmt(s, t)
            }
            (Alloc { buffer: x, body: s }, Alloc { buffer: y, body: t }) => {
                self.buffer(x, y)?;
                self.stmt(s, t)
            }
            _ => self.differ(a, b),
        }
    }

    fn block(&mut self, a: &Block, b: &Block) -> Same {
        self.value("name", &a.name, &b.name)?;
        self.at("axes", |c| {
            c.list(&a.axes, &b.axes, |c, x, y| {
                c.value("kind", &x.kind, &y.kind)?;
                c.at("min", |c| c.prim(&x.min, &y.min))?;
                c.at("extent", |c| c.prim(&x.extent, &y.extent))?;
                c.at("binding", |c| c.prim(&x.binding, &y.binding))?;
                c.var(&x.var, &y.var)
            })
        })?;
        self.option("where", a.predicate.as_ref(), b.predicate.as_ref(), |c, x, y| c.prim(x, y))?;
        self.at("attrs", |c| c.attrs(&a.attrs, &b.attrs))?;
        self.at("alloc_buffers", |c| c.list(&a.alloc_buffers, &b.alloc_buffers, |c, x, y| c.buffer(x, y)))?;
        self.at("match_buffers", |c| {
            c.list(&a.match_buffers, &b.match_buffers, |c, x, y| {
                c.region(&x.source, &y.source)?;
                c.buffer(&x.buffer, &y.buffer)
            })
        })?;
        for (name, x, y) in [("reads", &a.reads, &b.reads), ("writes", &a.writes, &b.writes)] {
            // Where a block leaves them out they are derived: nothing differs.
            if let (Some(x), Some(y)) = (x, y) {
                self.at(name, |c| c.list(x, y, |c, x, y| c.region(x, y)))?;
            }
        }
        self.option("init", a.init.as_ref(), b.init.as_ref(), |c, x, y| c.stmt(x, y))?;
        self.at("body", |c| c.stmt(&a.body, &b.body))
    }

    fn region(&mut self, a: &BufferRegion, b: &BufferRegion) -> Same {
        self.buffer(&a.buffer, &b.buffer)?;
        self.list(&a.region, &b.region, |c, x, y| {
            c.prim(&x.0, &y.0)?;
            c.prim(&x.1, &y.1)
        })
    }
}

/// Callee and arguments, `R.call_packed` of a named function as a call of that function.
fn direct(c: &Call) -> (Callee, &[Expr]) {
    match (&c.callee, c.args.first().map(Expr::kind)) {
        (Callee::Op(op), Some(ExprKind::ExternFunc(..))) if op.name == "call_packed" => {
            (Callee::Expr(c.args[0].clone()), &c.args[1..])
        }
        _ => (c.callee.clone(), &c.args),
    }
}

/// Bindings of a sequence, neighbouring blocks outside of dataflow joined.
fn merged(s: &SeqExpr) -> Vec<(bool, Vec<Binding>)> {
    let mut out: Vec<(bool, Vec<Binding>)> = vec![];
    for b in s.blocks.iter().filter(|b| !b.bindings.is_empty()) {
        match out.last_mut() {
            Some((false, last)) if !b.dataflow => last.extend(b.bindings.iter().cloned()),
            _ => out.push((b.dataflow, b.bindings.clone())),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::tir::KernelBuilder;

    fn double(name: &str, by: f64) -> IRModule {
        let n = Var::dim(name);
        let mut k = KernelBuilder::new("double");
        let x = k.input("x", &[n.expr()], DType::F32);
        let y = k.compute("y", &[n.expr()], DType::F32, |i| x.at(i) * PrimExpr::f32(by as f32));
        IRModule { name: "Module".into(), funcs: vec![Func::Prim(k.finish(&[y]))], ..Default::default() }
    }

    #[test]
    fn names_do_not_count_and_literals_do() {
        assert_eq!(compare(&double("n", 2.0), &double("m", 2.0)), Ok(()));
        let d = compare(&double("n", 2.0), &double("n", 3.0)).unwrap_err();
        assert_eq!(d.path, "double.body.for ax0.y.body.stored[1]");
    }

    #[test]
    fn a_renaming_is_one_to_one() {
        let func = |m: &Var, n: &Var| {
            let mut k = KernelBuilder::new("f");
            let x = k.input("x", &[m.expr(), n.expr()], DType::F32);
            let y = k.compute("y", &[m.expr()], DType::F32, |i| x.at([i[0].clone(), PrimExpr::i64(0)]));
            Func::Prim(k.finish(&[y]))
        };
        let (m, n) = (Var::dim("m"), Var::dim("n"));
        assert_eq!(compare_functions(&func(&m, &n), &func(&n, &m)), Ok(()));
        assert!(compare_functions(&func(&m, &n), &func(&m, &m)).is_err());
        assert!(compare_functions(&func(&m, &m), &func(&m, &n)).is_err());
    }
}
