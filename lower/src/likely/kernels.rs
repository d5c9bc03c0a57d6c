//! Kernels that know of their dims what their callers know: numbers, and numbers that divide them.

use crate::fuse::rebuild;
use crate::kernel::kernel_dims;
use crate::legalize::Names;
use crate::schedule::DIVISORS;
use relax_ir::analysis::{refine, vars, Typed};
use relax_ir::attrs::{FORM_OF, VAR_DIVISOR};
use relax_ir::relax::{map_bindings, Binding, BindingValue, Expr, ExprKind, Function, StructInfo};
use relax_ir::sym::Facts;
use relax_ir::tir::{Buffer, PrimFunc, PrimParam, StmtKind};
use relax_ir::{AttrValue, DType, Func, PrimExpr, Var};
use std::collections::HashMap;

/// Divisors beyond this say no more to a kernel.
const MOST: i64 = 1 << 12;

/// A kernel of the model that is called with more sizes than these stays for any size.
const MOST_SIZES: usize = 4;

/// Kernels over shape variables become kernels over the numbers that the calls have, those too that a check behind which
/// they stand has found (shape_constraint_ir.md, "Refine types with partial known information globally"). `all`: not in
/// forms for likely sizes alone.
pub fn with_numbers(typed: &mut Typed, all: bool) {
    let open = typed.module.funcs.iter().any(|f| matches!(f, Func::Prim(p) if !kernel_dims(p).is_empty()));
    let wanted = |f: &Function| open && (all || f.attrs.str(FORM_OF).is_some());
    let mut sizes: HashMap<String, Vec<Vec<PrimExpr>>> = HashMap::new();
    rewrite(typed, &wanted, &mut |f, prim, dims| {
        if f.attrs.str(FORM_OF).is_none() {
            let size: Vec<PrimExpr> = kernel_dims(prim).iter().filter_map(|v| dims.get(v).cloned()).collect();
            let seen = sizes.entry(prim.name.clone()).or_default();
            match (seen.contains(&size), seen.len() < MOST_SIZES) {
                (true, _) => {}
                (false, true) => seen.push(size),
                (false, false) => return None,
            }
        }
        let known: HashMap<Var, PrimExpr> = kernel_dims(prim)
            .into_iter()
            .filter_map(|v| {
                dims.get(&v).filter(|e| e.as_int().is_some()).map(|e| (v.clone(), e.clone().cast(v.dtype())))
            })
            .collect();
        if known.is_empty() {
            return None;
        }
        numbered(prim, &known)
    });
}

/// Where a function knows divisors of its shape variables, its kernels know what divides their dims.
pub fn with_divisors(typed: &mut Typed) {
    let wanted = |f: &Function| f.attrs.get(VAR_DIVISOR).is_some();
    rewrite(typed, &wanted, &mut |f, prim, dims| {
        let mut facts = Facts::new();
        if let Some(AttrValue::Dict(stated)) = f.attrs.get(VAR_DIVISOR) {
            for (v, _) in vars::lone_vars(f.params.iter().filter_map(|p| p.annotation.as_ref())) {
                if let Some(k) = stated.iter().find(|(n, _)| n == v.name()).and_then(|(_, k)| k.as_int()) {
                    facts.declare_divisor(&v, k);
                }
            }
        }
        let divisor = |v: &Var| match dims.get(v).filter(|_| v.dtype().is_int()) {
            Some(e) => gcd(facts.divisor(&e.clone().cast(DType::I64)), MOST * 3 * 5 * 7).max(1),
            None => 1,
        };
        let divisors: Vec<i64> = kernel_dims(prim).iter().map(divisor).collect();
        if divisors.iter().all(|k| *k == 1) {
            return None;
        }
        let mut p = prim.clone();
        p.attrs.set(DIVISORS, AttrValue::List(divisors.into_iter().map(AttrValue::Int).collect()));
        Some(p)
    });
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 {
        a
    } else {
        gcd(b, a % b)
    }
}

/// Another kernel for a function's call, given what the dims of its parameters are there.
type Change<'a> = &'a mut dyn FnMut(&Function, &PrimFunc, &HashMap<Var, PrimExpr>) -> Option<PrimFunc>;

/// Replaces the kernels that `change` has another one for, given what the dims of its parameters are in the call.
fn rewrite(typed: &mut Typed, wanted: &dyn Fn(&Function) -> bool, change: Change) {
    if !typed.module.relax_funcs().any(wanted) {
        return;
    }
    let mut names = Names::new(&typed.module);
    let mut new: Vec<PrimFunc> = vec![];
    let mut funcs = std::mem::take(&mut typed.module.funcs);
    let numbers = std::mem::take(&mut typed.numbers);
    let prims: HashMap<String, PrimFunc> = funcs
        .iter()
        .filter_map(|f| match f {
            Func::Prim(p) => Some((p.name.clone(), p.clone())),
            Func::Relax(_) => None,
        })
        .collect();
    for f in &mut funcs {
        let Func::Relax(f) = f else { continue };
        if !wanted(f) {
            continue;
        }
        let whole = f.clone();
        f.body = map_bindings(&f.body, &mut |b, _| {
            let BindingValue::Expr(e) = &b.value else { return None };
            let call = e.as_op_call("call_tir")?;
            let ExprKind::GlobalVar(name) = call.args.first()?.kind() else { return None };
            let prim = prims.get(name).filter(|p| !crate::integer::in_library(p))?;
            let ExprKind::Tuple(args) = call.args.get(1)?.kind() else { return None };
            let known = numbers.get(&b.var).map(Vec::as_slice).unwrap_or_default();
            let mut inputs = vec![];
            for a in args.iter().chain(&call.args[2..]) {
                match typed.info_of(a)? {
                    StructInfo::Shape { values: Some(v), .. } => {
                        inputs.extend(v.into_iter().map(|v| StructInfo::Prim { dtype: v.dtype(), value: Some(v) }))
                    }
                    other => inputs.push(other),
                }
            }
            inputs.iter_mut().for_each(|s| *s = refine::with_numbers(s, known));
            let sinfo_args: Vec<StructInfo> = call.sinfo_args.iter().map(|s| refine::with_numbers(s, known)).collect();
            let outputs: Vec<&StructInfo> = match &sinfo_args[..] {
                [StructInfo::Tuple(f)] => f.iter().collect(),
                other => other.iter().collect(),
            };
            let dims = dims_of(prim, inputs.iter().chain(outputs))?;
            let mut p = change(&whole, prim, &dims)?;
            p.private = true;
            p.attrs.0.retain(|(n, _)| n != "global_symbol");
            let mut value = call.clone();
            p.name = match new.iter().find(|q| PrimFunc { name: q.name.clone(), ..p.clone() } == **q) {
                Some(same) => same.name.clone(),
                None => {
                    p.name = names.fresh(&p.name);
                    new.push(p.clone());
                    p.name.clone()
                }
            };
            let callee = call.args.first()?;
            value.args[0] = Expr::new(ExprKind::GlobalVar(p.name), callee.span());
            let value = Expr::new(ExprKind::Call(value), e.span());
            Some(vec![Binding { value: BindingValue::Expr(value), ..b.clone() }])
        });
    }
    funcs.extend(new.into_iter().map(Func::Prim));
    typed.module.funcs = funcs;
    typed.numbers = numbers;
    crate::dead::remove_dead(typed);
}

/// What the dims of the parameters are, by the arguments in order, results last; `None` where they do not fit.
fn dims_of<'a>(prim: &PrimFunc, args: impl Iterator<Item = &'a StructInfo>) -> Option<HashMap<Var, PrimExpr>> {
    let mut map = HashMap::new();
    let mut args = args;
    for p in &prim.params {
        match (p, args.next()?) {
            (PrimParam::Scalar(v), StructInfo::Prim { value, .. }) => {
                if let Some(e) = value {
                    map.entry(v.clone()).or_insert_with(|| e.clone());
                }
            }
            (PrimParam::Buffer { buffer, .. }, StructInfo::Tensor(t)) => {
                let dims = t.known_dims().filter(|d| d.len() == buffer.ndim())?;
                for (d, a) in buffer.shape.iter().zip(dims) {
                    if let Some(v) = d.as_var() {
                        map.entry(v.clone()).or_insert_with(|| a.clone());
                    }
                }
            }
            _ => return None,
        }
    }
    Some(map)
}

/// The kernel with numbers in place of dims; `None` where its buffers are laid out in a way of their own.
fn numbered(f: &PrimFunc, known: &HashMap<Var, PrimExpr>) -> Option<PrimFunc> {
    let mut plain = true;
    f.body.walk(&mut |s| match s.kind() {
        StmtKind::Alloc { .. } | StmtKind::Attr { .. } => plain = false,
        StmtKind::Block(b) => plain &= b.alloc_buffers.is_empty() && b.match_buffers.is_empty(),
        _ => {}
    });
    if !plain {
        return None;
    }
    let mut buffers = HashMap::new();
    let mut copy = |b: &Buffer| -> Option<Buffer> {
        if !b.strides.is_empty() || b.elem_offset.is_some() {
            return None;
        }
        let shape = b.shape.iter().map(|d| d.substitute(known)).collect();
        let new = Buffer::from_parts(&b.name, shape, b.dtype(), vec![], None, &b.scope, b.span);
        buffers.insert(b.id(), new.clone());
        Some(new)
    };
    let mut params = vec![];
    for p in &f.params {
        params.push(match p {
            PrimParam::Scalar(_) | PrimParam::Handle { .. } => p.clone(),
            PrimParam::Buffer { buffer, handle } => PrimParam::Buffer { buffer: copy(buffer)?, handle: handle.clone() },
        });
    }
    let alloc_buffers = f.alloc_buffers.iter().map(&mut copy).collect::<Option<Vec<_>>>()?;
    let body = rebuild(&f.body, known, &buffers)?;
    Some(PrimFunc { params, alloc_buffers, body, ..f.clone() })
}
