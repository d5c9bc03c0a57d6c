//! The Relax AST (relax_spec.md, "Grammar"), with struct info.
//!
//! Derived struct info is not stored in the AST: analysis returns a [`StructInfoMap`] from variables to struct info,
//! and passes carry it along. In normal form every non-leaf expression is bound to a variable, so that map covers
//! every expression.

mod instance;
mod rewrite;
mod struct_info;

pub use instance::instance;
pub use rewrite::map_bindings;
pub use struct_info::*;

use crate::attrs::{AttrValue, Attrs};
use crate::constant::Constant;
use crate::dtype::DType;
use crate::op::OpDecl;
use crate::prim::{fresh_id, PrimExpr};
use crate::span::Span;
use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A Relax variable: `Var`, or `DataflowVar` where `dataflow`. Identity, not the name, decides equality.
#[derive(Clone)]
pub struct RVar(Arc<RVarNode>);

struct RVarNode {
    id: u32,
    name: String,
    dataflow: bool,
    span: Span,
}

impl RVar {
    pub fn new(name: impl Into<String>, dataflow: bool, span: Span) -> RVar {
        RVar(Arc::new(RVarNode { id: fresh_id(), name: name.into(), dataflow, span }))
    }
    pub fn id(&self) -> u32 {
        self.0.id
    }
    pub fn name(&self) -> &str {
        &self.0.name
    }
    pub fn is_dataflow(&self) -> bool {
        self.0.dataflow
    }
    pub fn span(&self) -> Span {
        self.0.span
    }
    pub fn expr(&self) -> Expr {
        Expr::new(ExprKind::Var(self.clone()), Span::NONE)
    }
}
impl PartialEq for RVar {
    fn eq(&self, o: &RVar) -> bool {
        self.0.id == o.0.id
    }
}
impl Eq for RVar {}
impl Hash for RVar {
    fn hash<H: Hasher>(&self, h: &mut H) {
        self.0.id.hash(h)
    }
}
impl fmt::Debug for RVar {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}%{}", self.0.name, self.0.id)
    }
}

/// What analysis found out about each variable (parameters, bindings).
pub type StructInfoMap = HashMap<RVar, StructInfo>;

/// An expression; cheap to clone. Equality leaves spans out.
#[derive(Clone)]
pub struct Expr(Arc<(ExprKind, Span)>);

#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// `R.const(..)` (shape []), `metadata[..]`.
    Constant(Constant),
    Var(RVar),
    /// A function of the module, by name.
    GlobalVar(String),
    Tuple(Vec<Expr>),
    TupleGetItem(Expr, usize),
    /// Bodies of functions and branches; nested ones are flattened by normalisation.
    Seq(Arc<SeqExpr>),
    /// A local function: a closure value.
    Function(Arc<Function>),
    If {
        cond: Expr,
        then: Arc<SeqExpr>,
        otherwise: Arc<SeqExpr>,
    },
    /// `R.ExternFunc("name", R.Callable(..))`: with the type that it states, where it states one.
    ExternFunc(String, Option<Arc<FuncInfo>>),
    Call(Call),
    /// `R.shape([..])`
    Shape(Vec<PrimExpr>),
    /// A scalar value: `R.prim_value(n)`, `T.float32(1.0)`, bare `3` or `True`.
    Prim(PrimExpr),
    /// `R.str("..")`
    Str(String),
    /// `R.dtype("float32")`
    DType(DType),
    /// An optional operand that is not given although a later one is.
    Absent,
    /// An operator used as a value: only as the callee of a call (well-formedness 8).
    Op(&'static OpDecl),
}

/// A call. For operators `args` holds the operands in declared order and `attrs` every declared attribute, defaults
/// included.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub callee: Callee,
    pub args: Vec<Expr>,
    pub attrs: Attrs,
    /// `ty_args` / `sinfo_args` of packed calls; the output annotation (`out_ty`) of `call_tir` and its kin,
    /// one entry per output.
    pub sinfo_args: Vec<StructInfo>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Callee {
    Op(&'static OpDecl),
    /// A global, a variable holding a function, an ExternFunc, or any expression before normalisation.
    Expr(Expr),
}

impl Expr {
    pub fn new(kind: ExprKind, span: Span) -> Expr {
        Expr(Arc::new((kind, span)))
    }
    pub fn kind(&self) -> &ExprKind {
        &self.0 .0
    }
    pub fn span(&self) -> Span {
        self.0 .1
    }
    pub fn as_var(&self) -> Option<&RVar> {
        match self.kind() {
            ExprKind::Var(v) => Some(v),
            _ => None,
        }
    }
    pub fn as_call(&self) -> Option<&Call> {
        match self.kind() {
            ExprKind::Call(c) => Some(c),
            _ => None,
        }
    }
    /// The call of operator `name`, if this is one.
    pub fn as_op_call(&self, name: &str) -> Option<&Call> {
        self.as_call().filter(|c| c.op().is_some_and(|o| o.name == name))
    }
    /// Leaf expressions of the normal form: no sub-expression that computes.
    pub fn is_leaf(&self) -> bool {
        match self.kind() {
            ExprKind::Tuple(fields) => fields.iter().all(Expr::is_leaf),
            ExprKind::Constant(_)
            | ExprKind::Var(_)
            | ExprKind::GlobalVar(_)
            | ExprKind::ExternFunc(..)
            | ExprKind::Shape(_)
            | ExprKind::Prim(_)
            | ExprKind::Str(_)
            | ExprKind::DType(_)
            | ExprKind::Absent
            | ExprKind::Op(_) => true,
            _ => false,
        }
    }
    pub fn same(&self, o: &Expr) -> bool {
        Arc::ptr_eq(&self.0, &o.0)
    }
}
impl PartialEq for Expr {
    fn eq(&self, o: &Expr) -> bool {
        self.same(o) || self.kind() == o.kind()
    }
}
impl fmt::Debug for Expr {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.kind().fmt(f)
    }
}

impl Call {
    /// The operator called, if it is one.
    pub fn op(&self) -> Option<&'static OpDecl> {
        match self.callee {
            Callee::Op(o) => Some(o),
            Callee::Expr(_) => None,
        }
    }
    pub fn is_op(&self, name: &str) -> bool {
        self.op().is_some_and(|o| o.name == name)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct SeqExpr {
    pub blocks: Vec<BindingBlock>,
    pub body: Expr,
}

#[derive(Clone, Debug, PartialEq)]
pub struct BindingBlock {
    /// `with R.dataflow():`
    pub dataflow: bool,
    pub bindings: Vec<Binding>,
    pub span: Span,
}

/// `var: annotation = value`, or a MatchCast when `kind` says so. A bare statement binds a fresh variable named `_`.
#[derive(Clone, Debug, PartialEq)]
pub struct Binding {
    pub var: RVar,
    /// As written; `None` when left out.
    pub annotation: Option<StructInfo>,
    pub value: BindingValue,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub enum BindingValue {
    Expr(Expr),
    /// `R.match_cast(value, struct_info)`: checks at run time, may bind new shape variables.
    MatchCast {
        value: Expr,
        struct_info: StructInfo,
    },
}

impl Binding {
    /// The bound expression, or the value that a MatchCast checks.
    pub fn expr(&self) -> &Expr {
        match &self.value {
            BindingValue::Expr(e) | BindingValue::MatchCast { value: e, .. } => e,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    pub var: RVar,
    pub annotation: Option<StructInfo>,
}

/// A Relax function, global or local. Shape variables belong to their function.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// The global's name; the bound variable's for a local function.
    pub name: String,
    pub params: Vec<Param>,
    pub ret: Option<StructInfo>,
    pub body: Arc<SeqExpr>,
    pub attrs: Attrs,
    pub private: bool,
    /// As declared (`pure=False`); true when not stated.
    pub pure: bool,
    pub span: Span,
    /// The signature alone, for diagnostics.
    pub signature_span: Span,
}

impl Function {
    /// The exported name: the `global_symbol` attribute, or the function's name when it is not private.
    pub fn global_symbol(&self) -> Option<&str> {
        match self.attrs.get("global_symbol") {
            Some(AttrValue::Str(s)) => Some(s),
            _ if !self.private => Some(&self.name),
            _ => None,
        }
    }
    /// All bindings in order, not those of nested functions and branches.
    pub fn bindings(&self) -> impl Iterator<Item = &Binding> {
        self.body.blocks.iter().flat_map(|b| &b.bindings)
    }
}
