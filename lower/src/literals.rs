//! Constants of one value become literals in the kernels that read them, and arithmetic with literals becomes cheaper.
//!
//! A kernel that reads a constant of one element (or, where it computes element by element, a constant whose elements are
//! all equal) gets a copy with the value in its text and one parameter less. [`RULES`] then name what may be written
//! differently for a known operand; each keeps the value, up to the rounding of the operator that it replaces.

use crate::fuse::{classify, Pattern};
use crate::legalize::{call_tir, Names};
use relax_ir::analysis::Typed;
use relax_ir::prim::{BinOp, Intrin, PrimExpr, PrimKind};
use relax_ir::relax::{map_bindings, Binding, BindingValue, ExprKind, RVar};
use relax_ir::tir::{Buffer, PrimFunc};
use relax_ir::{Constant, DType, Func};
use std::collections::HashMap;

/// Constants with more equal elements than this are not looked at.
const MOST_ELEMENTS: usize = 1 << 16;

/// A rewriting of scalar arithmetic: what it is called and what it does.
type Rule = (&'static str, fn(&PrimExpr) -> Option<PrimExpr>);

/// In the order in which they are tried.
const RULES: &[Rule] = &[
    // Both are the exact quotient, rounded once.
    ("x / 2^k = x * 2^-k", |e| operands(e, BinOp::Div).and_then(|(x, c)| Some(x * reciprocal(c, e.dtype())?))),
    ("x * 1 = x", |e| operands(e, BinOp::Mul).and_then(|(x, c)| (c == 1.0).then_some(x))),
    ("1 * x = x", |e| swapped(e, BinOp::Mul).and_then(|(c, x)| (c == 1.0).then_some(x))),
    ("pow(x, 1) = x", |e| power(e, 1.0)),
    ("pow(x, 2) = x * x", |e| power(e, 2.0).map(|x| x.clone() * x)),
    ("pow(x, 3) = x * x * x", |e| power(e, 3.0).map(|x| x.clone() * x.clone() * x)),
    ("pow(x, -1) = 1 / x", |e| power(e, -1.0).map(|x| PrimExpr::one(x.dtype()) / x)),
    // Of minus infinity the power is plus infinity, and of -0.0 it is 0.0.
    ("pow(x, 1/2) = sqrt(x)", |e| power(e, 0.5).map(square_root)),
];

/// The left operand and the literal on the right of a float operation.
fn operands(e: &PrimExpr, op: BinOp) -> Option<(PrimExpr, f64)> {
    match e.kind() {
        PrimKind::Binary(o, x, c) if *o == op && wide_float(e.dtype()) => Some((x.clone(), c.as_float()?)),
        _ => None,
    }
}

fn swapped(e: &PrimExpr, op: BinOp) -> Option<(f64, PrimExpr)> {
    match e.kind() {
        PrimKind::Binary(o, c, x) if *o == op && wide_float(e.dtype()) => Some((c.as_float()?, x.clone())),
        _ => None,
    }
}

/// The base of a power with this exponent: a load, which costs nothing to repeat.
fn power(e: &PrimExpr, exponent: f64) -> Option<PrimExpr> {
    match e.kind() {
        PrimKind::Call(Intrin::Pow, args) if wide_float(e.dtype()) => match &args[..] {
            [x, c] if c.as_float() == Some(exponent) => matches!(x.kind(), PrimKind::BufferLoad(..)).then(|| x.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// Of a power of two whose reciprocal is a normal number: that one.
fn reciprocal(c: f64, d: DType) -> Option<PrimExpr> {
    let most = 2f64.powi(if d == DType::F32 { 126 } else { 1022 });
    let power = c.to_bits() << 12 == 0;
    (power && c.abs() <= most && c.abs() >= 1.0 / most).then(|| PrimExpr::float(d, 1.0 / c))
}

fn square_root(x: PrimExpr) -> PrimExpr {
    let d = x.dtype();
    let infinity = PrimExpr::float(d, f64::INFINITY);
    let root = (x.clone() + PrimExpr::zero(d)).call1(Intrin::Sqrt);
    x.eq(PrimExpr::float(d, f64::NEG_INFINITY)).select(infinity, root)
}

fn wide_float(d: DType) -> bool {
    d == DType::F32 || d == DType::F64
}

/// Applies [`RULES`] from the inside out.
pub fn simplified(e: &PrimExpr) -> PrimExpr {
    let e = e.map_children(&mut simplified);
    RULES.iter().find_map(|(_, apply)| apply(&e)).unwrap_or(e)
}

/// Specialises the kernels of every function.
pub fn literals(typed: &mut Typed) {
    let prims = (typed.module.funcs.iter())
        .filter_map(|f| match f {
            Func::Prim(p) if p.private && !crate::integer::in_library(p) && !crate::schedule::is_special(p) => {
                Some((p.name.clone(), p.clone()))
            }
            _ => None,
        })
        .collect();
    let mut pass =
        Literals { prims, names: Names::new(&typed.module), known: HashMap::new(), made: HashMap::new(), new: vec![] };
    let mut funcs = std::mem::take(&mut typed.module.funcs);
    for f in &mut funcs {
        if let Func::Relax(f) = f {
            f.body = map_bindings(&f.body, &mut |b, _| pass.binding(b));
        }
    }
    funcs.extend(pass.new.into_iter().map(Func::Prim));
    typed.module.funcs = funcs;
    crate::dead::remove_dead(typed);
}

struct Literals {
    prims: HashMap<String, PrimFunc>,
    names: Names,
    /// Variables that are constants.
    known: HashMap<RVar, Constant>,
    /// What a kernel with these values is called.
    made: HashMap<(String, Vec<Option<PrimExpr>>), String>,
    new: Vec<PrimFunc>,
}

impl Literals {
    /// The kernel call without what became literals; `None` when nothing changes.
    fn binding(&mut self, b: &Binding) -> Option<Vec<Binding>> {
        let BindingValue::Expr(e) = &b.value else { return None };
        if let ExprKind::Constant(c) = e.kind() {
            self.known.insert(b.var.clone(), c.clone());
            return None;
        }
        let call = e.as_op_call("call_tir")?;
        let [func, args] = call.args.as_slice() else { return None };
        let (ExprKind::GlobalVar(name), ExprKind::Tuple(args)) = (func.kind(), args.kind()) else { return None };
        let prim = self.prims.get(name)?;
        let pointwise = classify(prim) < Pattern::Reduction;
        let values: Vec<Option<PrimExpr>> = (prim.params.iter().zip(args))
            .map(|(p, a)| {
                let c = match a.kind() {
                    ExprKind::Constant(c) => c,
                    ExprKind::Var(v) => self.known.get(v)?,
                    _ => return None,
                };
                let b = p.buffer().filter(|b| plain(b, c))?;
                (c.elements() == 1 || pointwise).then(|| value(c, b.dtype())).flatten()
            })
            .collect();
        if values.iter().all(Option::is_none) {
            return None;
        }
        let kept = args.iter().zip(&values).filter(|(_, v)| v.is_none()).map(|(a, _)| a.clone()).collect();
        let key = (name.clone(), values);
        let name = match self.made.get(&key) {
            Some(name) => name.clone(),
            None => {
                let mut new = specialised(prim, &key.1);
                new.name = self.names.fresh(&prim.name);
                let name = new.name.clone();
                self.new.push(new);
                self.made.insert(key, name.clone());
                name
            }
        };
        let value = call_tir(&name, kept, call.sinfo_args.clone(), e).ok()?;
        Some(vec![Binding { value: BindingValue::Expr(value), ..b.clone() }])
    }
}

/// A dense buffer of known dims: those of the constant.
fn plain(b: &Buffer, c: &Constant) -> bool {
    let known = b.shape.len() == c.shape.len() && b.shape.iter().zip(&c.shape).all(|(d, n)| d.is_int(*n));
    known && b.dtype() == c.dtype && b.strides.is_empty() && b.elem_offset.is_none()
}

/// What every element is, as a literal: a finite number of a type that kernels compute in.
fn value(c: &Constant, d: DType) -> Option<PrimExpr> {
    let size = d.bytes();
    if c.elements() == 0 || c.elements() > MOST_ELEMENTS || d.lanes != 1 || d.bits < 8 && !d.is_bool() {
        return None;
    }
    let (first, rest) = c.bytes().split_at(size);
    if rest.chunks_exact(size).any(|x| x != first) {
        return None;
    }
    match d.is_float() {
        true if wide_float(d) => Some(c.get_f64(0)).filter(|v| v.is_finite()).map(|v| PrimExpr::float(d, v)),
        true => None,
        false if d == DType::U64 => None,
        false => Some(PrimExpr::int(d, c.get_i64(0))),
    }
}

/// The kernel with values in place of parameters.
fn specialised(f: &PrimFunc, values: &[Option<PrimExpr>]) -> PrimFunc {
    let mut f = f.clone();
    let mut known: HashMap<Buffer, PrimExpr> = HashMap::new();
    let params = std::mem::take(&mut f.params);
    for (i, p) in params.into_iter().enumerate() {
        match (values.get(i).cloned().flatten(), p.buffer()) {
            (Some(v), Some(b)) => drop(known.insert(b.clone(), v)),
            _ => f.params.push(p),
        }
    }
    let body = f.body.replace_loads(&|b, _| known.get(b).cloned());
    f.body = body.rewrite(&mut |e| simplified(e), &mut |s| s);
    f
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interp::{run, Arg, Tensor};
    use relax_ir::tir::KernelBuilder;

    /// A kernel of one element and its result, with the second operand as a buffer and as a literal.
    fn both(f: fn(PrimExpr, PrimExpr) -> PrimExpr, x: f64, c: f64) -> (f64, f64, PrimFunc) {
        let mut k = KernelBuilder::new("kernel");
        let a = k.input("a", &[PrimExpr::i64(1)], DType::F32);
        let b = k.input("b", &[], DType::F32);
        let y = k.compute("y", &[PrimExpr::i64(1)], DType::F32, |i| f(a.at(i), b.at([])));
        let plain = k.finish(&[y]);
        let literal = specialised(&plain, &[None, Some(PrimExpr::float(DType::F32, c)), None]);
        let eval = |f: &PrimFunc, inputs: &[Tensor]| {
            let mut args: Vec<Arg> = inputs.iter().cloned().map(Arg::Tensor).collect();
            args.push(Arg::Tensor(Tensor::zeros(DType::F32, &[1])));
            run(f, &mut args).unwrap();
            match args.pop() {
                Some(Arg::Tensor(t)) => t.to_f64()[0],
                _ => f64::NAN,
            }
        };
        let (x, c) = (Tensor::from_f64(DType::F32, &[1], &[x]), Tensor::from_f64(DType::F32, &[], &[c]));
        (eval(&plain, &[x.clone(), c]), eval(&literal, &[x]), literal)
    }

    #[test]
    fn rules_keep_the_value_and_take_the_operation_away() {
        let pow = |x: PrimExpr, c: PrimExpr| PrimExpr::call(Intrin::Pow, [x, c]);
        let div = |x: PrimExpr, c: PrimExpr| x / c;
        let mul = |x: PrimExpr, c: PrimExpr| x * c;
        let left = |x: PrimExpr, c: PrimExpr| c * x;
        type Op = fn(PrimExpr, PrimExpr) -> PrimExpr;
        let cases: &[(Op, f64, &str)] = &[
            (div, 8.0, " / "),
            (div, -0.125, " / "),
            (mul, 1.0, " * "),
            (left, 1.0, " * "),
            (pow, 1.0, "T.pow"),
            (pow, 2.0, "T.pow"),
            (pow, 3.0, "T.pow"),
            (pow, 0.5, "T.pow"),
        ];
        let xs = [0.0, -0.0, 1.5, -3.0, 1e-42, 3e38, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
        for (op, c, gone) in cases {
            for x in xs {
                let (wanted, got, f) = both(*op, x, *c);
                let text = relax_ir::printer::print_prim_func(&f);
                assert!(!text.contains(gone) && f.params.len() == 2, "{text}");
                let near = (wanted - got).abs() <= 2e-7 * wanted.abs();
                let same = wanted == got && wanted.is_sign_positive() == got.is_sign_positive();
                assert!(same || near || wanted.is_nan() && got.is_nan(), "{x} with {c}: {wanted}, {got}\n{text}");
            }
        }
        // A quotient that rounds stays one.
        let (_, _, f) = both(div, 1.0, 3.0);
        assert!(relax_ir::printer::print_prim_func(&f).contains(" / "));
    }

    #[test]
    fn values_that_are_not_one_number_stay_buffers() {
        let c = |v: &[f32]| {
            Constant::new(DType::F32, vec![v.len() as i64], v.iter().flat_map(|x| x.to_le_bytes()).collect())
        };
        assert!(value(&c(&[2.0, 2.0]), DType::F32).is_some());
        assert!(value(&c(&[2.0, 3.0]), DType::F32).is_none());
        assert!(value(&c(&[f32::INFINITY]), DType::F32).is_none());
        assert!(value(&c(&[0.0, -0.0]), DType::F32).is_none());
        assert!(value(&c(&[]), DType::F32).is_none());
    }
}
