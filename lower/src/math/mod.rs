//! Transcendental functions as arithmetic.
//!
//! [`expand`] rewrites a flat function so that only the intrinsics remain that every backend translates (the list at
//! [`FlatFunc`]). The expansions are branch-free polynomials without tables, so they vectorise; the single exception are
//! sine and cosine of huge arguments, behind a condition that holds for no lane in practice. f16 and bf16 are computed
//! in f32. Each function's doc gives its error bound in units in the last place (ULP) against the exact value, as the
//! tests measure it, with and without fused multiply-add.
//!
//! All functions pass NaN on, give the limits at infinities, and odd functions keep -0.0. f32 exp, exp2, exp10 and
//! sigmoid return 0 for results below 2^-125 (1.2e-38 would be the least normal number); everything else handles
//! denormal arguments and results. Vectors of 512 bits find the sixteenths of exp's and sigmoid's powers of two in a register
//! ([`Intrin::Sixteenths`]), which shortens the polynomial; exp's results below 2^-125 are not always 0 there, but below it.

mod alike;
mod build;
mod erf;
mod exp;
mod hyperbolic;
mod integer;
mod inverse;
mod log;
mod misc;
mod pow;
mod trig;

use alike::Alike;
use build::Build;
use relax_ir::flat::{FlatFunc, FlatStmt};
use relax_ir::prim::{BinOp, Intrin, PrimExpr, PrimKind};
use relax_ir::DType;
use std::collections::HashMap;

/// Replaces every intrinsic that backends do not translate; for vectors of so many bytes.
pub fn expand(f: &mut FlatFunc, vector_bytes: u32) {
    for s in &mut f.body {
        expand_stmt(s, vector_bytes == 64);
    }
}

fn expand_stmt(s: &mut FlatStmt, wide: bool) {
    let (mut alike, mut memo) = (Alike::default(), Memo { wide, done: HashMap::new() });
    let mut go = |e: &mut PrimExpr| *e = expand_with(&alike.one(e), &mut memo);
    let expand_stmt = |s: &mut FlatStmt| expand_stmt(s, wide);
    match s {
        FlatStmt::Let { value, .. } | FlatStmt::Assign { value, .. } => go(value),
        FlatStmt::Local { init, .. } => go(init),
        FlatStmt::Store { ptr, offset, value } => {
            go(ptr);
            go(offset);
            go(value);
        }
        FlatStmt::For { begin, end, body, .. } => {
            go(begin);
            go(end);
            body.iter_mut().for_each(expand_stmt);
        }
        FlatStmt::While { cond, body } => {
            go(cond);
            body.iter_mut().for_each(expand_stmt);
        }
        FlatStmt::If { cond, then, otherwise } => {
            go(cond);
            then.iter_mut().chain(otherwise).for_each(expand_stmt);
        }
        FlatStmt::Call { args, .. } => args.iter_mut().for_each(go),
        FlatStmt::CallIndirect { target, args, .. } => {
            go(target);
            args.iter_mut().for_each(go);
        }
        FlatStmt::Prefetch { ptr: e } | FlatStmt::Return(Some(e)) => go(e),
        FlatStmt::Stack { .. } | FlatStmt::Address { .. } | FlatStmt::Return(None) => {}
    }
}

/// Expands one expression.
pub fn expand_expr(e: &PrimExpr) -> PrimExpr {
    expand_with(e, &mut Memo { wide: false, done: HashMap::new() })
}

/// Nodes (kept alive by the statement) and what became of them, so that shared nodes stay shared.
struct Memo {
    /// Vectors have 512 bits.
    wide: bool,
    done: HashMap<usize, PrimExpr>,
}

fn expand_with(e: &PrimExpr, memo: &mut Memo) -> PrimExpr {
    if e.children().is_empty() {
        return e.clone();
    }
    let key = e.kind() as *const PrimKind as usize;
    if let Some(done) = memo.done.get(&key) {
        return done.clone();
    }
    if let Some(done) = logistic_product(e, memo).or_else(|| softplus_rest(e, memo)) {
        memo.done.insert(key, done.clone());
        return done;
    }
    let inner = e.map_children(&mut |c| expand_with(c, memo));
    let done = match inner.kind() {
        PrimKind::Call(f, args) => expand_call(*f, args, inner.dtype(), memo.wide).unwrap_or(inner),
        _ => inner,
    };
    memo.done.insert(key, done.clone());
    done
}

/// Rule `silu`: `a * sigmoid(x)` in f32 is the one division that the logistic function has anyway.
fn logistic_product(e: &PrimExpr, memo: &mut Memo) -> Option<PrimExpr> {
    let PrimKind::Binary(BinOp::Mul, a, b) = e.kind() else { return None };
    let of = |s: &PrimExpr| match s.kind() {
        PrimKind::Call(Intrin::Sigmoid, args) => args.first().cloned(),
        _ => None,
    };
    let (top, x) = of(b).map(|x| (a, x)).or_else(|| of(a).map(|x| (b, x)))?;
    if e.dtype().element() != DType::F32 {
        return None;
    }
    let (top, x) = (expand_with(top, memo), expand_with(&x, memo));
    let mut b = Build::wide_as(e.dtype(), memo.wide);
    let (top, x) = (b.bind(top), b.bind(x));
    let r = b.logistic(&x, &top);
    Some(b.finish(r))
}

/// Rule `softplus`: `log(1 + e^-|x|)` in f32 is a polynomial of the exponential, which is at most 1.
fn softplus_rest(e: &PrimExpr, memo: &mut Memo) -> Option<PrimExpr> {
    let of = |e: &PrimExpr, f: Intrin| match e.kind() {
        PrimKind::Call(g, args) if *g == f => args.first().cloned(),
        _ => None,
    };
    let minus = of(&of(e, Intrin::Log1p)?, Intrin::Exp)?;
    let PrimKind::Neg(x) = minus.kind() else { return None };
    of(x, Intrin::Abs).or_else(|| of(x, Intrin::Fabs)).filter(|_| e.dtype().element() == DType::F32)?;
    let x = expand_with(&minus, memo);
    let mut b = Build::new(e.dtype());
    let x = b.bind(x);
    let r = b.log1p_exp(&x);
    Some(b.finish(r))
}

/// `None`: backends translate it as it is.
fn expand_call(f: Intrin, args: &[PrimExpr], result: DType, wide: bool) -> Option<PrimExpr> {
    use Intrin::*;
    let x = args.first()?;
    let d = x.dtype();
    match f {
        Sqrt | Floor | Ceil | Trunc | NearbyInt | Abs | Fabs | IsNan | PopCount | Clz | BitNot | Fma | Dot4
        | ByteWords | DotWords | AddWords | SubWords | Bytes | WovenBytes | Interleave | Parts | Repeat | Stretch
        | Turns | Sixteenths | TileRows | TileDot | CopySign | Likely | ReduceAdd | ReduceMul | ReduceMax
        | ReduceMin | ExtractLane => return None,
        Round => return Some(PrimExpr::raw(PrimKind::Call(NearbyInt, args.into()), result)),
        _ => {}
    }
    // The same value in every lane is computed once.
    if let Some(scalars) = args.iter().map(uniform).collect::<Option<Vec<_>>>() {
        if d.lanes > 1 {
            let one = expand_call(f, &scalars, result.element(), wide)?;
            return Some(one.broadcast(d.lanes));
        }
    }
    if !d.is_float() {
        return integer::expand(f, args);
    }
    if d.bits == 16 {
        if f == NextAfter {
            return Some(misc::nextafter_half(x, args.get(1)?));
        }
        let single = DType::F32.with_lanes(d.lanes);
        let wider: Vec<PrimExpr> =
            args.iter().map(|a| if a.dtype().is_float() { a.clone().cast(single) } else { a.clone() }).collect();
        let r = expand_call(f, &wider, if result.is_float() { single } else { result }, wide)?;
        return Some(if result.is_float() { r.cast(result) } else { r });
    }
    let mut b = Build::wide_as(d, wide);
    let x = match x.kind() {
        // As GELU has it: half a unit in the last place more, and no division.
        PrimKind::Binary(BinOp::Div, a, by) if f == Erf && d.bits == 32 => match literal(by) {
            Some(by) if by != 0.0 => b.mul(a, &b.c(1.0 / by)),
            _ => b.bind(x.clone()),
        },
        _ => b.bind(x.clone()),
    };
    let second = |b: &mut Build| args.get(1).map(|y| b.bind(y.clone()));
    let r = match f {
        Exp => b.exp(&x),
        Exp2 => b.exp2(&x),
        Exp10 => b.exp10(&x),
        Sigmoid => b.sigmoid(&x),
        Log => b.log(&x),
        Log2 => b.log2(&x),
        Log10 => b.log10(&x),
        Log1p => b.log1p(&x),
        Sin => b.sin(&x),
        Cos => b.cos(&x),
        Tan => b.tan(&x),
        Asin => b.asin(&x),
        Acos => b.acos(&x),
        Atan => b.atan(&x),
        Atan2 => {
            let other = second(&mut b)?;
            b.atan2(&x, &other)
        }
        Sinh => b.sinh(&x),
        Cosh => b.cosh(&x),
        Tanh => b.tanh(&x),
        Asinh => b.asinh(&x),
        Acosh => b.acosh(&x),
        Atanh => b.atanh(&x),
        Erf => b.erf(&x),
        Rsqrt => b.c(1.0) / b.sqrt(&x),
        Pow => {
            let y = second(&mut b)?;
            b.pow(&x, &y)
        }
        Fmod => {
            let y = second(&mut b)?;
            b.fmod(&x, &y)
        }
        Hypot => {
            let y = second(&mut b)?;
            b.hypot(&x, &y)
        }
        NextAfter => {
            let y = second(&mut b)?;
            b.nextafter(&x, &y)
        }
        LdExp => {
            let y = second(&mut b)?;
            b.ldexp(&x, &y)
        }
        IsInf => b.abs(&x).eq(b.c(f64::INFINITY)),
        IsFinite => b.abs(&x).lt(b.c(f64::INFINITY)),
        Sqrt | Floor | Ceil | Trunc | NearbyInt | Round | Abs | Fabs | IsNan | PopCount | Clz | BitNot | Fma | Dot4
        | ByteWords | DotWords | AddWords | SubWords | Bytes | WovenBytes | Interleave | Parts | Repeat | Stretch
        | Turns | Sixteenths | TileRows | TileDot | CopySign | Likely | ReduceAdd | ReduceMul | ReduceMax
        | ReduceMin | ExtractLane => return None,
    };
    Some(b.finish(r))
}

/// The value of a literal, also of one in every lane.
fn literal(e: &PrimExpr) -> Option<f64> {
    uniform(e)?.as_float()
}

/// The scalar that all lanes hold; a scalar is its own.
fn uniform(e: &PrimExpr) -> Option<PrimExpr> {
    match e.kind() {
        PrimKind::Broadcast(a) => Some(a.clone()),
        _ if e.dtype().lanes == 1 => Some(e.clone()),
        _ => None,
    }
}

/// Any lane of a condition.
fn any(c: PrimExpr) -> PrimExpr {
    if c.dtype().lanes == 1 {
        c
    } else {
        PrimExpr::call(Intrin::ReduceMax, [c])
    }
}

fn raw(op: BinOp, a: PrimExpr, b: PrimExpr) -> PrimExpr {
    PrimExpr::raw_binary(op, a, b)
}
