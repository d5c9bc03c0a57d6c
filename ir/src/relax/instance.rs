//! Copies of functions for particular sizes.

use super::*;
use crate::analysis::vars;
use crate::prim::Var;

/// A copy of `f` with variables of its own, and `dims` in place of shape variables. The copy keeps spans, attributes and
/// all other shape variables.
pub fn instance(f: &Function, dims: &HashMap<Var, PrimExpr>) -> Function {
    Copy { dims, vars: HashMap::new() }.function(f)
}

struct Copy<'a> {
    dims: &'a HashMap<Var, PrimExpr>,
    vars: HashMap<RVar, RVar>,
}

impl Copy<'_> {
    fn function(&mut self, f: &Function) -> Function {
        let param = |p: &Param| Param { var: self.fresh(&p.var), annotation: p.annotation.clone() };
        let params: Vec<Param> = f.params.iter().map(param).collect();
        let params = params.into_iter().map(|p| Param { annotation: self.maybe(&p.annotation), ..p }).collect();
        let ret = self.maybe(&f.ret);
        let body = self.seq(&f.body);
        Function { params, ret, body, attrs: self.attrs(&f.attrs), ..f.clone() }
    }

    fn fresh(&mut self, v: &RVar) -> RVar {
        let new = RVar::new(v.name(), v.is_dataflow(), v.span());
        self.vars.insert(v.clone(), new.clone());
        new
    }

    fn info(&self, s: &StructInfo) -> StructInfo {
        vars::substitute(s, self.dims)
    }

    fn maybe(&self, s: &Option<StructInfo>) -> Option<StructInfo> {
        s.as_ref().map(|s| self.info(s))
    }

    fn seq(&mut self, s: &SeqExpr) -> Arc<SeqExpr> {
        let blocks = s.blocks.iter().map(|block| {
            let bindings = block.bindings.iter().map(|b| self.binding(b)).collect();
            BindingBlock { bindings, ..block.clone() }
        });
        let blocks = blocks.collect();
        Arc::new(SeqExpr { blocks, body: self.expr(&s.body) })
    }

    fn binding(&mut self, b: &Binding) -> Binding {
        // A local function may call itself.
        let early = matches!(b.expr().kind(), ExprKind::Function(_)).then(|| self.fresh(&b.var));
        let value = match &b.value {
            BindingValue::Expr(e) => BindingValue::Expr(self.expr(e)),
            BindingValue::MatchCast { value, struct_info } => {
                BindingValue::MatchCast { value: self.expr(value), struct_info: self.info(struct_info) }
            }
        };
        let var = early.unwrap_or_else(|| self.fresh(&b.var));
        Binding { var, annotation: self.maybe(&b.annotation), value, span: b.span }
    }

    fn expr(&mut self, e: &Expr) -> Expr {
        let kind = match e.kind() {
            ExprKind::Var(v) => ExprKind::Var(self.vars.get(v).unwrap_or(v).clone()),
            ExprKind::Tuple(fields) => ExprKind::Tuple(fields.iter().map(|f| self.expr(f)).collect()),
            ExprKind::TupleGetItem(t, i) => ExprKind::TupleGetItem(self.expr(t), *i),
            ExprKind::Seq(s) => ExprKind::Seq(self.seq(s)),
            ExprKind::Function(f) => ExprKind::Function(Arc::new(self.function(f))),
            ExprKind::If { cond, then, otherwise } => {
                ExprKind::If { cond: self.expr(cond), then: self.seq(then), otherwise: self.seq(otherwise) }
            }
            ExprKind::Call(c) => ExprKind::Call(Call {
                callee: match &c.callee {
                    Callee::Op(op) => Callee::Op(op),
                    Callee::Expr(f) => Callee::Expr(self.expr(f)),
                },
                args: c.args.iter().map(|a| self.expr(a)).collect(),
                attrs: self.attrs(&c.attrs),
                sinfo_args: c.sinfo_args.iter().map(|s| self.info(s)).collect(),
            }),
            ExprKind::Shape(values) => ExprKind::Shape(values.iter().map(|v| v.substitute(self.dims)).collect()),
            ExprKind::Prim(v) => ExprKind::Prim(v.substitute(self.dims)),
            ExprKind::ExternFunc(name, Some(f)) => match self.info(&StructInfo::Func(f.clone())) {
                StructInfo::Func(f) => ExprKind::ExternFunc(name.clone(), Some(f)),
                _ => return e.clone(),
            },
            _ => return e.clone(),
        };
        Expr::new(kind, e.span())
    }

    fn attrs(&self, a: &Attrs) -> Attrs {
        Attrs(a.0.iter().map(|(name, v)| (name.clone(), self.attr(v))).collect())
    }

    fn attr(&self, v: &AttrValue) -> AttrValue {
        match v {
            AttrValue::List(l) => AttrValue::List(l.iter().map(|v| self.attr(v)).collect()),
            AttrValue::Dict(d) => AttrValue::Dict(d.iter().map(|(k, v)| (k.clone(), self.attr(v))).collect()),
            AttrValue::Prim(e) => AttrValue::Prim(e.substitute(self.dims)),
            AttrValue::StructInfo(s) => AttrValue::StructInfo(Box::new(self.info(s))),
            v => v.clone(),
        }
    }
}
