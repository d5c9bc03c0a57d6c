//! A library of kernels alone: each heavy kernel of a model in each way it can be computed, as an entry of its own.

use relax_ir::analysis::Typed;
use relax_ir::attrs::Attrs;
use relax_ir::relax::{
    Binding, BindingBlock, BindingValue, Call, Expr, ExprKind, Function, Param, RVar, SeqExpr, StructInfo, TensorInfo,
};
use relax_ir::tir::PrimFunc;
use relax_ir::{DType, Func, IRModule, PrimExpr, Span, Var};
use relax_lower::choice::{Config, Site};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A tensor's dtype and dims.
pub type Shaped = (DType, Vec<i64>);

/// One way to compute one kernel.
pub struct Case {
    pub key: String,
    pub config: Config,
    pub entry: String,
    pub args: Vec<Shaped>,
    /// Which of them another kernel of the model makes.
    pub made: Vec<usize>,
    pub results: Vec<Shaped>,
}

/// A heavy kernel of a model.
pub struct Heavy {
    /// As the model computes it.
    pub site: Site,
    /// Calls of it in a run of the model.
    pub calls: usize,
    /// Multiplications of vectors, about, of all calls.
    pub work: f64,
}

/// The calls of kernels that there are several ways for, by key.
pub fn heavy(typed: &Typed, lanes: i64, open: i64) -> BTreeMap<String, Heavy> {
    let mut out: BTreeMap<String, Heavy> = BTreeMap::new();
    for (prim, _) in calls(typed) {
        if let [site] = Site::of(prim).as_slice() {
            let h = out.entry(site.key()).or_insert_with(|| Heavy { site: site.clone(), calls: 0, work: 0.0 });
            h.calls += 1;
            h.work += site.work(lanes, open);
        }
    }
    out
}

fn calls(typed: &Typed) -> Vec<(&PrimFunc, &Call)> {
    let prims: HashMap<&str, &PrimFunc> = typed
        .module
        .funcs
        .iter()
        .filter_map(|f| match f {
            Func::Prim(p) => Some((p.name.as_str(), p)),
            Func::Relax(_) => None,
        })
        .collect();
    let mut out = vec![];
    for f in typed.module.relax_funcs() {
        for b in f.bindings() {
            let Some(c) = b.expr().as_op_call("call_tir").filter(|c| c.args.len() == 2) else { continue };
            if let ExprKind::GlobalVar(name) = c.args[0].kind() {
                out.extend(prims.get(name.as_str()).map(|p| (*p, c)));
            }
        }
    }
    out
}

/// Adds an entry to `module` for the first call of each kernel whose key `ways` names, in that way. Dims that are open
/// have `open` values.
pub fn add(module: &mut IRModule, typed: &Typed, ways: &BTreeMap<String, Config>, open: i64) -> Vec<Case> {
    let mut out: Vec<Case> = vec![];
    for (prim, call) in calls(typed) {
        let [site] = &Site::of(prim)[..] else { continue };
        let key = site.key();
        let Some(config) = ways.get(&key).filter(|_| !out.iter().any(|c| c.key == key)) else { continue };
        let number = module.funcs.len();
        let name = format!("k{number}");
        let Some(Entry { func, args, made, results }) = entry(&name, typed, call, open) else { continue };
        let mut prim = prim.clone();
        prim.name = format!("{name}_kernel");
        // Only what says nothing else is compiled.
        let mut alone = IRModule { funcs: vec![Func::Prim(prim), Func::Relax(func)], ..IRModule::default() };
        let (fine, d) = relax_ir::analysis::analyze(&alone);
        if fine.is_none() || d.has_errors() {
            continue;
        }
        module.funcs.append(&mut alone.funcs);
        out.push(Case { key, config: *config, entry: name, args, made, results });
    }
    out
}

/// A function of tensors and what it takes and gives.
struct Entry {
    func: Function,
    args: Vec<Shaped>,
    made: Vec<usize>,
    results: Vec<Shaped>,
}

/// A function of tensors that calls the kernel `NAME_kernel` as `call` does; constants are arguments, too.
fn entry(name: &str, typed: &Typed, call: &Call, open: i64) -> Option<Entry> {
    let ExprKind::Tuple(operands) = call.args.get(1)?.kind() else { return None };
    let mut params = vec![];
    let (mut args, mut made, mut results) = (vec![], vec![], vec![]);
    for (i, o) in operands.iter().enumerate() {
        let tensor = match o.kind() {
            ExprKind::Constant(c) => (c.dtype, c.shape.clone()),
            _ => {
                made.push(i);
                sized(typed.info_of(o)?.as_tensor()?, open)?
            }
        };
        let var = RVar::new(format!("a{i}"), false, Span::NONE);
        params.push(Param { var, annotation: Some(info(&tensor)) });
        args.push(tensor);
    }
    for s in &call.sinfo_args {
        results.push(sized(s.as_tensor()?, open)?);
    }
    let operands = params.iter().map(|p| p.var.expr()).collect();
    let kernel = Expr::new(ExprKind::GlobalVar(format!("{name}_kernel")), Span::NONE);
    let value = Call {
        args: vec![kernel, Expr::new(ExprKind::Tuple(operands), Span::NONE)],
        sinfo_args: results.iter().map(info).collect(),
        ..call.clone()
    };
    let var = RVar::new("out", false, Span::NONE);
    let value = BindingValue::Expr(Expr::new(ExprKind::Call(value), Span::NONE));
    let binding = Binding { var: var.clone(), annotation: None, value, span: Span::NONE };
    let block = BindingBlock { dataflow: false, bindings: vec![binding], span: Span::NONE };
    let func = Function {
        name: name.to_string(),
        params,
        ret: None,
        body: Arc::new(SeqExpr { blocks: vec![block], body: var.expr() }),
        attrs: Attrs::default(),
        private: false,
        pure: true,
        span: Span::NONE,
        signature_span: Span::NONE,
    };
    Some(Entry { func, args, made, results })
}

fn info(t: &Shaped) -> StructInfo {
    StructInfo::tensor(t.1.iter().map(|d| PrimExpr::i64(*d)).collect(), t.0)
}

fn sized(t: &TensorInfo, open: i64) -> Option<Shaped> {
    let dims = t.known_dims()?.iter().map(|d| {
        let map: HashMap<Var, PrimExpr> =
            d.vars().into_iter().map(|v| (v.clone(), PrimExpr::int(v.dtype(), open))).collect();
        d.substitute(&map).as_int().filter(|n| *n >= 0)
    });
    Some((t.dtype?, dims.collect::<Option<_>>()?))
}
