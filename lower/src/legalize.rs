//! Operator calls become calls of PrimFuncs: every operator that computes through a kernel, once its operands' shapes
//! and dtypes are known.

use crate::appends::{appended, APPENDS};
use crate::host::VIEWS;
use relax_ir::analysis::{refine, Typed};
use relax_ir::attrs::Attrs;
use relax_ir::op::{lookup, Compute, ComputeCx, OpDecl};
use relax_ir::relax::{map_bindings, Binding, BindingValue, Call, Callee, Expr, ExprKind, RVar, StructInfo};
use relax_ir::tir::{PrimFunc, PrimParam};
use relax_ir::{AttrValue, Diagnostic, Diagnostics, Func, IRModule};
use std::collections::{HashMap, HashSet};

/// Rewrites the module in place; operators that stay are views, host operators and data-dependent ones.
pub fn legalize(typed: &mut Typed) -> Result<(), Diagnostics> {
    legalize_those(typed, &|_| true)
}

/// The same for bindings of `those` variables.
pub fn legalize_those(typed: &mut Typed, those: &dyn Fn(&RVar) -> bool) -> Result<(), Diagnostics> {
    let appended = appended(&typed.module);
    let mut pass = Legalize { names: Names::new(&typed.module), new: vec![], errors: Diagnostics::default(), appended };
    let mut funcs = std::mem::take(&mut typed.module.funcs);
    for f in &mut funcs {
        if let Func::Relax(f) = f {
            f.body = map_bindings(&f.body, &mut |b, dataflow| match those(&b.var) {
                true => pass.binding(b, dataflow, typed),
                false => None,
            });
        }
    }
    funcs.extend(pass.new.into_iter().map(Func::Prim));
    typed.module.funcs = funcs;
    if pass.errors.has_errors() {
        return Err(pass.errors);
    }
    Ok(())
}

/// Function names in use.
pub struct Names {
    used: HashSet<String>,
    /// By base: the number to try next.
    next: HashMap<String, usize>,
}

impl Names {
    pub fn new(m: &IRModule) -> Names {
        Names { used: m.funcs.iter().map(|f| f.name().to_string()).collect(), next: HashMap::new() }
    }

    /// `base`, `base1`, `base2`...: the first that is free; it is taken from now on.
    pub fn fresh(&mut self, base: &str) -> String {
        let mut name = base.to_string();
        if self.used.insert(name.clone()) {
            return name;
        }
        let next = self.next.entry(name.clone()).or_insert(1);
        loop {
            name.truncate(base.len());
            name.push_str(&next.to_string());
            *next += 1;
            if self.used.insert(name.clone()) {
                return name;
            }
        }
    }
}

struct Legalize {
    names: Names,
    new: Vec<PrimFunc>,
    errors: Diagnostics,
    /// Variables whose kernels append to an operand that nothing else reads.
    appended: HashSet<RVar>,
}

impl Legalize {
    fn binding(&mut self, b: &Binding, dataflow: bool, typed: &mut Typed) -> Option<Vec<Binding>> {
        let BindingValue::Expr(e) = &b.value else { return None };
        let call = e.as_call()?;
        let op = call.op()?;
        let Compute::Kernel(compute) = op.compute else { return None };
        if VIEWS.contains(&op.name) {
            return None;
        }
        match self.call(b, e, call, op, compute, dataflow, typed) {
            Ok(new) => new,
            Err(d) => {
                self.errors.push(d);
                None
            }
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn call(
        &mut self,
        b: &Binding,
        e: &Expr,
        call: &Call,
        op: &'static OpDecl,
        compute: fn(&ComputeCx) -> Result<PrimFunc, Diagnostic>,
        dataflow: bool,
        typed: &mut Typed,
    ) -> Result<Option<Vec<Binding>>, Diagnostic> {
        let Some(out) = typed.sinfo.get(&b.var).cloned() else { return Ok(None) };
        let infos: Option<Vec<StructInfo>> = call.args.iter().map(|a| typed.info_of(a)).collect();
        let Some(mut infos) = infos else { return Ok(None) };
        // Kernels are made for the numbers that are known here.
        if let Some(known) = typed.numbers.get(&b.var) {
            infos.iter_mut().for_each(|s| *s = refine::with_numbers(s, known));
        }
        if !infos.iter().chain([&out]).all(is_static) {
            return Ok(None);
        }
        let cx = ComputeCx { op, args: &call.args, infos: &infos, attrs: &call.attrs, out: &out, span: e.span() };
        let mut prim = compute(&cx)?;
        prim.name = self.names.fresh(&prim.name);
        prim.span = e.span();
        if self.appended.contains(&b.var) {
            prim.attrs.set(APPENDS, AttrValue::Bool(true));
        }
        let mut before = vec![];
        let mut args = vec![];
        for (a, info) in call.args.iter().zip(&infos) {
            self.operand(a, info, dataflow, typed, &mut before, &mut args);
        }
        args.extend(scalars(&prim, e));
        let sinfo_args = match &out {
            StructInfo::Tuple(f) => f.clone(),
            one => vec![one.clone()],
        };
        // A result that is a tuple of one stays a tuple.
        let sinfo_args =
            if matches!(&out, StructInfo::Tuple(f) if f.len() == 1) { vec![out.clone()] } else { sinfo_args };
        let value = call_tir(&prim.name, args, sinfo_args, e)?;
        before.push(Binding { value: BindingValue::Expr(value), ..b.clone() });
        self.new.push(prim);
        Ok(Some(before))
    }

    /// Tensor operands in order, tuples flattened.
    fn operand(
        &mut self,
        a: &Expr,
        info: &StructInfo,
        dataflow: bool,
        typed: &mut Typed,
        before: &mut Vec<Binding>,
        args: &mut Vec<Expr>,
    ) {
        match (info, a.kind()) {
            (StructInfo::Tensor(_), _) => args.push(a.clone()),
            (StructInfo::Tuple(f), ExprKind::Tuple(items)) => {
                for (x, i) in items.iter().zip(f) {
                    self.operand(x, i, dataflow, typed, before, args);
                }
            }
            (StructInfo::Tuple(f), _) => {
                for (i, field) in f.iter().enumerate() {
                    let var = RVar::new("item", dataflow, a.span());
                    typed.sinfo.insert(var.clone(), field.clone());
                    let value = Expr::new(ExprKind::TupleGetItem(a.clone(), i), a.span());
                    let value = BindingValue::Expr(value);
                    before.push(Binding { var: var.clone(), annotation: None, value, span: a.span() });
                    self.operand(&var.expr(), field, dataflow, typed, before, args);
                }
            }
            _ => {}
        }
    }
}

/// Arguments for the scalar parameters of a PrimFunc that [`relax_ir::tir::KernelBuilder`] made: shape variables of the
/// caller.
pub fn scalars(prim: &PrimFunc, at: &Expr) -> Vec<Expr> {
    let scalar = |p: &PrimParam| match p {
        PrimParam::Scalar(v) => Some(Expr::new(ExprKind::Prim(v.expr()), at.span())),
        _ => None,
    };
    prim.params.iter().filter_map(scalar).collect()
}

/// `R.call_tir(name, args, out_ty)`
pub fn call_tir(name: &str, args: Vec<Expr>, sinfo_args: Vec<StructInfo>, at: &Expr) -> Result<Expr, Diagnostic> {
    let op = lookup("call_tir").ok_or_else(|| Diagnostic::internal(at.span(), "R.call_tir is not declared"))?;
    let func = Expr::new(ExprKind::GlobalVar(name.to_string()), at.span());
    let args = Expr::new(ExprKind::Tuple(args), at.span());
    let call = Call { callee: Callee::Op(op), args: vec![func, args], attrs: Attrs::default(), sinfo_args };
    Ok(Expr::new(ExprKind::Call(call), at.span()))
}

/// Are rank, dims and dtype of every tensor inside known?
fn is_static(info: &StructInfo) -> bool {
    match info {
        StructInfo::Tensor(t) => t.dtype.is_some() && t.known_dims().is_some(),
        StructInfo::Tuple(f) => f.iter().all(is_static),
        _ => true,
    }
}
