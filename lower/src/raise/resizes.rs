//! Resized images. What a block reads, and with which weights, is compared with the kernel that the operator's own declaration
//! makes, for every row and every column: the same for one of its methods and modes, it is that operator.

use super::{loaded, without_units, Raise, Space};
use crate::schedule::stage::{recognise, Out};
use relax_ir::attrs::AttrValue;
use relax_ir::op::{Compute, ComputeCx};
use relax_ir::prim::{BinOp, Intrin, PrimKind};
use relax_ir::relax::{Expr, ExprKind, StructInfo};
use relax_ir::tir::{Buffer, PrimFunc, Stmt, StmtKind};
use relax_ir::{DType, PrimExpr, Var};
use std::collections::HashMap;

const MODES: [&str; 5] = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "tf_half_pixel_for_nn"];
const ROUNDINGS: [&str; 5] = ["floor", "round", "round_prefer_floor", "round_prefer_ceil", "ceil"];
const ALPHAS: [f64; 2] = [-0.75, -0.5];

/// One element that is read, for every point, with its weight.
struct Term {
    buffer: Buffer,
    indices: Vec<PrimExpr>,
    factors: Vec<PrimExpr>,
}

/// A term by its dims: the element along each and its weight there, for every position.
#[derive(PartialEq)]
struct Table {
    dims: Vec<(Vec<i64>, Vec<f32>)>,
    /// What depends on none.
    constant: f32,
}

impl Raise<'_> {
    pub(super) fn resized(&mut self, out: &Out, space: &Space) -> Option<Expr> {
        let name = *["image.resize2d", "image.resize3d"].get(space.len().checked_sub(4)?)?;
        if out.buffer.dtype() != DType::F32 {
            return None;
        }
        let mut terms = vec![];
        collect(&out.value, &[], &mut terms)?;
        let b = terms.first()?.buffer.clone();
        let known = |b: &Buffer| b.shape.iter().map(PrimExpr::as_int).collect::<Option<Vec<i64>>>();
        let (from, to) = (known(&b)?, known(&out.buffer)?);
        if from.len() != to.len() || from[..2] != to[..2] || from == to || to.contains(&0) || b.dtype() != DType::F32 {
            return None;
        }
        let wanted = tables(&terms, &b, space)?;
        let methods: Vec<(&str, Vec<f64>, &[&str])> = match terms.len() {
            1 => vec![("nearest_neighbor", vec![ALPHAS[0]], &ROUNDINGS)],
            n if n == 1 << (space.len() - 2) => vec![("linear", vec![ALPHAS[0]], &[""])],
            _ => vec![("cubic", ALPHAS.to_vec(), &[""])],
        };
        let data = self.expr(&b)?;
        let size = to[2..].iter().map(|n| PrimExpr::i64(*n)).collect();
        let size = Expr::new(ExprKind::Shape(size), self.w.span());
        for (method, alphas, roundings) in methods {
            for (mode, alpha, rounding) in MODES.iter().flat_map(|m| {
                let pairs = alphas.iter().flat_map(move |a| roundings.iter().map(move |r| (a, r)));
                pairs.map(move |(a, r)| (*m, *a, *r))
            }) {
                let text = |s: &str| AttrValue::Str(s.to_string());
                let attrs = [
                    ("layout", text(if space.len() == 4 { "NCHW" } else { "NCDHW" })),
                    ("method", text(method)),
                    ("coordinate_transformation_mode", text(mode)),
                    ("rounding_method", text(rounding)),
                    ("cubic_alpha", AttrValue::Float(alpha)),
                ];
                let call = self.call(name, vec![data.clone(), size.clone()], &attrs)?;
                let own = self.kernel(&call, &out.buffer).and_then(|k| own_tables(&k));
                if own.is_some_and(|own| alike(&own, &wanted)) {
                    return self.w.bind(call);
                }
            }
        }
        None
    }

    /// The kernel that an operator is.
    fn kernel(&self, call: &Expr, out: &Buffer) -> Option<PrimFunc> {
        let c = call.as_call()?;
        let op = c.op()?;
        let Compute::Kernel(compute) = op.compute else { return None };
        let infos: Vec<StructInfo> = c.args.iter().map(|a| self.w.typed.info_of(a)).collect::<Option<_>>()?;
        let out = StructInfo::tensor(self.shape(out), out.dtype());
        let cx = ComputeCx { op, args: &c.args, infos: &infos, attrs: &c.attrs, out: &out, span: call.span() };
        compute(&cx).ok()
    }
}

/// The tables of a kernel whose last block reads its data, and positions and weights that blocks before it have written.
fn own_tables(k: &PrimFunc) -> Option<Vec<Table>> {
    let nests: Vec<Stmt> = match k.body.kind() {
        StmtKind::Seq(list) => list.clone(),
        _ => vec![k.body.clone()],
    };
    let mut before: HashMap<Buffer, Out> = HashMap::new();
    for (n, nest) in nests.iter().enumerate() {
        let s = without_units(recognise(nest)?);
        let [out] = s.outs.as_slice() else { return None };
        let out = Out { value: inlined(&out.value, &before), ..out.clone() };
        if !s.accs.is_empty() {
            return None;
        }
        if n + 1 < nests.len() {
            before.insert(out.buffer.clone(), out);
            continue;
        }
        let mut space: Space = vec![];
        for i in &out.indices {
            space.push(s.spatial.iter().find(|a| i.as_var() == Some(&a.var)).cloned());
        }
        let mut terms = vec![];
        collect(&out.value, &[], &mut terms)?;
        return tables(&terms, k.buffers().next()?, &space);
    }
    None
}

/// With the values that blocks before have written in the place of their loads.
fn inlined(e: &PrimExpr, before: &HashMap<Buffer, Out>) -> PrimExpr {
    let inner = e.map_children(&mut |c| inlined(c, before));
    let Some((b, indices)) = loaded(&inner) else { return inner };
    let Some(out) = before.get(b) else { return inner };
    let place = |(own, at): (&PrimExpr, &PrimExpr)| Some((own.as_var()?.clone(), at.clone()));
    out.value.substitute(&out.indices.iter().zip(indices).filter_map(place).collect())
}

/// The terms of a sum, each an element of a buffer times factors.
fn collect(e: &PrimExpr, factors: &[PrimExpr], out: &mut Vec<Term>) -> Option<()> {
    let reads = |e: &PrimExpr| {
        let mut found = false;
        e.walk(&mut |e| found |= loaded(e).is_some());
        found
    };
    match e.kind() {
        PrimKind::BufferLoad(b, i) => {
            out.push(Term { buffer: b.clone(), indices: i.to_vec(), factors: factors.to_vec() });
            Some(())
        }
        PrimKind::Cast(x) if x.dtype() == e.dtype() => collect(x, factors, out),
        PrimKind::Binary(BinOp::Add, a, b) => {
            collect(a, factors, out)?;
            collect(b, factors, out)
        }
        PrimKind::Binary(BinOp::Mul, a, b) => {
            let (sum, factor) = match (reads(a), reads(b)) {
                (true, false) => (a, b),
                (false, true) => (b, a),
                _ => return None,
            };
            collect(sum, &[factors, std::slice::from_ref(factor)].concat(), out)
        }
        _ => None,
    }
}

/// `None` where an index or a weight depends on more than one dim, its own.
fn tables(terms: &[Term], b: &Buffer, space: &Space) -> Option<Vec<Table>> {
    let mut all = vec![];
    for t in terms {
        if t.buffer != *b || t.indices.len() != space.len() {
            return None;
        }
        let mut factors: Vec<&PrimExpr> = t.factors.iter().collect();
        let mut dims = vec![];
        for (a, index) in space.iter().zip(&t.indices) {
            let own: Vec<&PrimExpr> = match a {
                Some(a) => factors.extract_if(.., |f| f.uses(&a.var)).collect(),
                None => vec![],
            };
            let (mut indices, mut weights) = (vec![], vec![]);
            for at in 0..a.as_ref().map_or(Some(1), |a| a.len())? {
                let place: HashMap<Var, i64> = a.iter().map(|a| (a.var.clone(), at)).collect();
                let Number::Int(i) = number(index, &place)? else { return None };
                indices.push(i);
                weights.push(product(&own, &place)?);
            }
            dims.push((indices, weights));
        }
        all.push(Table { dims, constant: product(&factors, &HashMap::new())? });
    }
    Some(all)
}

fn product(factors: &[&PrimExpr], place: &HashMap<Var, i64>) -> Option<f32> {
    let mut p = 1.0;
    for f in factors {
        let Number::Float(v) = number(f, place)? else { return None };
        p *= v;
    }
    Some(p)
}

fn alike(a: &[Table], b: &[Table]) -> bool {
    let mut left: Vec<&Table> = b.iter().collect();
    let mut take = |t: &Table| left.iter().position(|o| *o == t).map(|i| left.swap_remove(i)).is_some();
    a.len() == b.len() && a.iter().all(&mut take)
}

#[derive(Clone, Copy)]
enum Number {
    Int(i64),
    Float(f32),
}

/// The value of arithmetic on int64 and float32, rounded as kernels round it.
fn number(e: &PrimExpr, place: &HashMap<Var, i64>) -> Option<Number> {
    use Number::{Float, Int};
    Some(match e.kind() {
        PrimKind::Int(v) => Int(*v),
        PrimKind::Float(v) if e.dtype() == DType::F32 => Float(v.0 as f32),
        PrimKind::Var(v) => Int(*place.get(v)?),
        PrimKind::Cast(x) => match (number(x, place)?, e.dtype()) {
            (Int(v), DType::F32) => Float(v as f32),
            (Float(v), DType::F32) => Float(v),
            (Int(v), d) if d.is_int() => Int(v),
            (Float(v), d) if d.is_int() && v.abs() < 1e9 => Int(v as i64),
            _ => return None,
        },
        PrimKind::Select(c, a, b) | PrimKind::IfThenElse(c, a, b) => match number(c, place)? {
            Int(0) => number(b, place)?,
            _ => number(a, place)?,
        },
        PrimKind::Call(f, args) => {
            let Float(v) = number(args.first()?, place)? else { return None };
            Float(match f {
                Intrin::Floor => v.floor(),
                Intrin::Ceil => v.ceil(),
                Intrin::Round | Intrin::NearbyInt => v.round_ties_even(),
                _ => return None,
            })
        }
        PrimKind::Binary(op, a, b) => match (number(a, place)?, number(b, place)?) {
            (Float(x), Float(y)) => match op {
                BinOp::Add => Float(x + y),
                BinOp::Sub => Float(x - y),
                BinOp::Mul => Float(x * y),
                BinOp::Div => Float(x / y),
                _ => return None,
            },
            (Int(x), Int(y)) => {
                let whole = PrimExpr::binary(*op, PrimExpr::i64(x), PrimExpr::i64(y));
                Int(whole.evaluate(&HashMap::new())?)
            }
            _ => return None,
        },
        _ => return None,
    })
}
