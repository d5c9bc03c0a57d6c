//! PrimFuncs that a model brings become operators again, where every block of theirs computes what operators do: rule
//! `raise`. Models that went through TVM's `LegalizeOps` (and `FuseTIR` after it) have a call of a PrimFunc in the place of each
//! operator; as operators they take part in everything that graphs go through here: layouts, Winograd's algorithm, factors in weights,
//! fusion.
//!
//! What a block computes decides, never its name. Each is one of: values of each point ([`values`]), copies with other
//! indices ([`copies`]), reductions ([`reductions`]), products and windows ([`windows`], [`transposed`]), resized images ([`resizes`]). Several
//! together may be a norm ([`norms`]). The dims and the dtype that the operators
//! have must be those of the buffer that the block writes. A PrimFunc of which one block is none of these stays as it is.

mod copies;
mod norms;
mod reductions;
mod resizes;
mod transposed;
mod values;
mod view;
mod windows;

use crate::schedule::poly::Poly;
use crate::schedule::stage::{recognise, Acc, Axis, Out, Stage};
use crate::schedule::Ranges;
use crate::written::Written;
use relax_ir::analysis::Typed;
use relax_ir::attrs::{AttrValue, Attrs};
use relax_ir::op::{lookup, Default as ParamDefault, ParamKind};
use relax_ir::prim::PrimKind;
use relax_ir::relax::{map_bindings, Binding, BindingValue, Call, Callee, Expr, ExprKind, StructInfo, TensorInfo};
use relax_ir::tir::{Buffer, PrimFunc, PrimParam, Stmt, StmtKind};
use relax_ir::{DType, Func, PrimExpr, Var};
use std::collections::HashMap;

/// Points at which indices are evaluated where algebra does not tell what they are, at most.
const MOST_POINTS: i64 = 1 << 16;

/// Rewrites every Relax function. `strict`: sums keep the rounding that the model has.
pub fn raise(typed: &mut Typed, strict: bool) {
    let prims: HashMap<String, PrimFunc> = typed
        .module
        .funcs
        .iter()
        .filter_map(|f| match f {
            Func::Prim(p) => Some((p.name.clone(), p.clone())),
            _ => None,
        })
        .collect();
    if prims.is_empty() {
        return;
    }
    let mut funcs = std::mem::take(&mut typed.module.funcs);
    let mut changed = false;
    for f in &mut funcs {
        let Func::Relax(f) = f else { continue };
        f.body = map_bindings(&f.body, &mut |b, _| {
            let BindingValue::Expr(e) = &b.value else { return None };
            let call = e.as_op_call("call_tir")?;
            let ExprKind::GlobalVar(name) = call.args.first()?.kind() else { return None };
            let prim = prims.get(name)?;
            let list = Raise::new(b, typed, call, prim, strict)?.all(prim, call)?;
            changed = true;
            Some(list)
        });
    }
    typed.module.funcs = funcs;
    if changed {
        crate::dead::remove_dead(typed);
    }
}

/// What a buffer of the PrimFunc holds.
#[derive(Clone, Default)]
struct Value {
    /// The tensor of the buffer's shape; none where only another form of it is useful.
    expr: Option<Expr>,
    /// The same with dims of 1 for what was reduced, of this shape.
    kept: Option<(Expr, Vec<PrimExpr>)>,
    /// A sum of so many elements: the operand and axes that it is a sum of.
    sum: Option<Sum>,
    /// A constant around another tensor.
    padded: Option<Padded>,
    /// Sums of windows.
    window: Option<windows::Window>,
    /// Zeros between the elements of another tensor.
    spread: Option<transposed::Spread>,
    /// The weights of a transposed convolution, of which these are turned round.
    weight: Option<Expr>,
}

#[derive(Clone)]
struct Sum {
    of: Expr,
    axes: Vec<i64>,
    count: i64,
}

#[derive(Clone)]
struct Padded {
    of: Expr,
    /// Those that are known.
    dims: Vec<Option<i64>>,
    /// Before and after each dim.
    widths: Vec<i64>,
    value: f64,
}

/// One call on its way to operators.
struct Raise<'a> {
    w: Written<'a>,
    values: HashMap<Buffer, Value>,
    /// Variables of the PrimFunc in the caller's.
    dims: HashMap<Var, PrimExpr>,
    ranges: Ranges,
    strict: bool,
}

/// The axes that tensors are aligned with, dims of 1 without one. Tensors of fewer dims stand at the end.
type Space = Vec<Option<Axis>>;

impl<'a> Raise<'a> {
    fn new(b: &'a Binding, typed: &'a mut Typed, call: &Call, prim: &PrimFunc, strict: bool) -> Option<Raise<'a>> {
        let w = Written::instead_of(b, typed);
        let mut r = Raise { w, values: HashMap::new(), dims: HashMap::new(), ranges: Ranges::default(), strict };
        let ExprKind::Tuple(args) = call.args.get(1)?.kind() else { return None };
        let scalars: &[PrimExpr] = match call.args.get(2).map(Expr::kind) {
            Some(ExprKind::Shape(s)) => s,
            None | Some(ExprKind::Absent) => &[],
            _ => return None,
        };
        let (mut args, mut scalars) = (args.iter(), scalars.iter());
        let outputs = prim.params.len().checked_sub(call.sinfo_args.len() + scalars.len())?;
        if outputs != args.len() || prim.returns.is_some() {
            return None;
        }
        let mut given = vec![];
        for p in &prim.params {
            match p {
                PrimParam::Scalar(v) => drop(r.dims.insert(v.clone(), scalars.next()?.clone())),
                PrimParam::Handle { .. } => return None,
                PrimParam::Buffer { buffer, .. } => {
                    if !buffer.strides.is_empty() || buffer.elem_offset.as_ref().is_some_and(|o| !o.is_int(0)) {
                        return None;
                    }
                    let Some(x) = args.next() else { continue };
                    let info = r.w.typed.info_of(x)?.as_tensor()?.clone();
                    let known = info.known_dims()?;
                    if known.len() != buffer.ndim() || info.dtype != Some(buffer.dtype()) {
                        return None;
                    }
                    for (own, dim) in buffer.shape.iter().zip(known) {
                        if let Some(v) = own.as_var() {
                            r.dims.entry(v.clone()).or_insert_with(|| dim.clone());
                        }
                    }
                    given.push((buffer, known.to_vec()));
                    r.values.insert(buffer.clone(), x.clone().into());
                }
            }
        }
        // What operators would broadcast is as large as the PrimFunc says.
        given.iter().all(|(b, dims)| same(&r.shape(b), dims)).then_some(r)
    }

    /// The bindings of the whole PrimFunc.
    fn all(mut self, prim: &PrimFunc, call: &Call) -> Option<Vec<Binding>> {
        let nests: Vec<Stmt> = match prim.body.kind() {
            StmtKind::Seq(list) => list.clone(),
            _ => vec![prim.body.clone()],
        };
        for nest in &nests {
            let stage = recognise(nest)?;
            self.stage(without_units(stage))?;
        }
        let outputs: Vec<&Buffer> = prim.buffers().collect();
        let outputs = &outputs[outputs.len().checked_sub(call.sinfo_args.len())?..];
        // What checks elsewhere have made of the result's dims, too.
        let wanted: Vec<StructInfo> = match self.w.typed.sinfo.get(self.w.var())? {
            StructInfo::Tuple(fields) => fields.clone(),
            one => vec![one.clone()],
        };
        let mut results = vec![];
        for (buffer, wanted) in outputs.iter().zip(&wanted) {
            let result = self.values.get(buffer)?.expr.clone()?;
            let (own, wanted) = (self.info(&result)?, wanted.as_tensor()?.clone());
            if own.dtype != wanted.dtype || !same(own.known_dims()?, wanted.known_dims()?) {
                return None;
            }
            results.push(result);
        }
        let last = match (results.as_slice(), self.w.typed.sinfo.get(self.w.var())) {
            ([one], Some(StructInfo::Tensor(_))) => one.clone(),
            (_, Some(StructInfo::Tuple(_))) => Expr::new(ExprKind::Tuple(results), self.w.span()),
            _ => return None,
        };
        Some(self.w.done(last))
    }

    /// The values of what a block writes.
    fn stage(&mut self, s: Stage) -> Option<()> {
        for a in s.spatial.iter().chain(&s.reduce) {
            self.ranges.add_loop(&a.var, Poly::default(), Poly::of(&a.extent, &Ranges::default()));
        }
        for (i, out) in s.outs.iter().enumerate() {
            // Of several results each is one of its own.
            let read = |e: &PrimExpr, b: &Buffer| crate::schedule::stage::loads(e, b);
            if s.outs.iter().any(|o| read(&out.value, &o.buffer)) || self.values.contains_key(&out.buffer) {
                return None;
            }
            let space = self.space(&s, out)?;
            let value = match s.accs.get(i) {
                None if s.reduce.is_empty() => {
                    let mut value = self.pointwise(out, &space)?;
                    if let Some(norm) = value.expr.as_ref().and_then(|e| self.norm(e)) {
                        value = norm.into();
                    }
                    value
                }
                Some(acc) if out.value == acc.var.expr() => {
                    let others = s.accs.iter().filter(|o| o.var != acc.var).any(|o| acc.update.uses(&o.var));
                    if others || s.outs.iter().any(|o| read(&acc.update, &o.buffer) || read(&acc.init, &o.buffer)) {
                        return None;
                    }
                    self.reduced(&s, acc, out, &space)?
                }
                _ => return None,
            };
            if let Some(e) = &value.expr {
                let info = self.info(e)?;
                let wanted = self.shape(&out.buffer);
                if info.dtype != Some(out.buffer.dtype()) || !same(info.known_dims()?, &wanted) {
                    return None;
                }
            }
            self.values.insert(out.buffer.clone(), value);
        }
        Some(())
    }

    /// The axes of what a block writes, all of each dim.
    fn space(&self, s: &Stage, out: &Out) -> Option<Space> {
        let mut space: Space = vec![];
        for (i, dim) in out.indices.iter().zip(&out.buffer.shape) {
            let p = Poly::of(i, &self.ranges);
            if p.is_zero() && dim.is_int(1) {
                space.push(None);
                continue;
            }
            let axis = s.spatial.iter().find(|a| p == Poly::var(&a.var))?;
            if !self.equal(&axis.extent, dim) || space.iter().flatten().any(|a| a.var == axis.var) {
                return None;
            }
            space.push(Some(axis.clone()));
        }
        (space.iter().flatten().count() == s.spatial.len()).then_some(space)
    }

    /// A block without reductions.
    fn pointwise(&mut self, out: &Out, space: &Space) -> Option<Value> {
        if let Some(v) = self.copied(out, space) {
            return Some(v);
        }
        if let Some(e) = self.average(out, space) {
            return Some(e.into());
        }
        let wanted = self.shape(&out.buffer);
        if let Some((wider, dims)) = self.kept_space(&out.value, space) {
            let e = self.value(&out.value, &wider, &mut HashMap::new())?;
            if same(self.info(&e)?.known_dims()?, &dims) {
                let expr = Some(self.reshaped(e.clone(), wanted)?);
                return Some(Value { expr, kept: Some((e, dims)), ..Value::default() });
            }
        }
        let Some(e) = self.value(&out.value, space, &mut HashMap::new()) else {
            return self.resized(out, space).map(Value::from);
        };
        // Dims of 1 apart it is all there.
        let several = |dims: &[PrimExpr]| dims.iter().filter(|d| !d.is_int(1)).cloned().collect::<Vec<_>>();
        if same(&several(self.info(&e)?.known_dims()?), &several(&wanted)) {
            return Some(self.reshaped(e, wanted)?.into());
        }
        let shape = Expr::new(ExprKind::Shape(wanted), self.w.span());
        Some(self.op("broadcast_to", vec![e, shape], &[])?.into())
    }

    /// Where all that is read has forms with dims of 1 for what was reduced, of the same dims: these, and their axes.
    fn kept_space(&self, e: &PrimExpr, space: &Space) -> Option<(Space, Vec<PrimExpr>)> {
        let mut found: Vec<Option<&Vec<PrimExpr>>> = vec![];
        e.walk(&mut |e| {
            if let Some((b, _)) = loaded(e) {
                found.push(self.values.get(b).and_then(|v| v.kept.as_ref()).map(|k| &k.1));
            }
        });
        let dims = (*found.first()?)?;
        if !found.iter().all(|d| d.is_some_and(|d| same(d, dims))) {
            return None;
        }
        let (mut wider, mut axes): (Space, _) = (vec![], space.iter().flatten().peekable());
        for d in dims {
            let own = axes.next_if(|a| same(&[self.caller(&a.extent)], std::slice::from_ref(d)));
            if own.is_none() && !d.is_int(1) {
                return None;
            }
            wider.push(own.cloned());
        }
        axes.next().is_none().then(|| (wider, dims.clone()))
    }

    fn reduced(&mut self, s: &Stage, acc: &Acc, out: &Out, space: &Space) -> Option<Value> {
        if let Some(e) = self.product(s, acc, out, space) {
            return Some(e.into());
        }
        if let Some(v) = self.windowed(s, acc, out, space) {
            return Some(v);
        }
        self.reduction(s, acc, out)
    }

    fn equal(&self, a: &PrimExpr, b: &PrimExpr) -> bool {
        let of = |e: &PrimExpr| Poly::of(&e.substitute(&self.dims), &Ranges::default());
        of(a).sub(&of(b)).is_zero()
    }

    /// The dims of a buffer in the caller's variables.
    fn shape(&self, b: &Buffer) -> Vec<PrimExpr> {
        b.shape.iter().map(|d| self.caller(d)).collect()
    }

    fn caller(&self, e: &PrimExpr) -> PrimExpr {
        e.clone().cast(DType::I64).substitute(&self.dims)
    }

    fn info(&self, e: &Expr) -> Option<TensorInfo> {
        self.w.typed.info_of(e)?.as_tensor().cloned()
    }

    fn expr(&self, b: &Buffer) -> Option<Expr> {
        self.values.get(b)?.expr.clone()
    }

    /// The result of a call with these attributes, and defaults for the others.
    fn op(&mut self, name: &str, args: Vec<Expr>, given: &[(&str, AttrValue)]) -> Option<Expr> {
        let call = self.call(name, args, given)?;
        self.w.bind(call)
    }

    fn call(&self, name: &str, mut args: Vec<Expr>, given: &[(&str, AttrValue)]) -> Option<Expr> {
        let decl = lookup(name)?;
        let mut attrs = Attrs::default();
        for p in decl.params.iter().filter(|p| p.kind == ParamKind::Attr) {
            let default = match p.default {
                ParamDefault::Required | ParamDefault::None => AttrValue::None,
                ParamDefault::Int(v) => AttrValue::Int(v),
                ParamDefault::Float(v) => AttrValue::Float(v),
                ParamDefault::Bool(v) => AttrValue::Bool(v),
                ParamDefault::Str(s) => AttrValue::Str(s.to_string()),
                ParamDefault::Ints(v) => ints(v),
            };
            let value = given.iter().find(|(n, _)| *n == p.name).map_or(default, |(_, v)| v.clone());
            attrs.set(p.name, value);
        }
        let operands = decl.params.iter().filter(|p| p.kind == ParamKind::Operand).count();
        args.resize(operands.max(args.len()), Expr::new(ExprKind::Absent, self.w.span()));
        let call = Call { callee: Callee::Op(decl), args, attrs, sinfo_args: vec![] };
        Some(Expr::new(ExprKind::Call(call), self.w.span()))
    }

    fn reshaped(&mut self, x: Expr, dims: Vec<PrimExpr>) -> Option<Expr> {
        if same(self.info(&x)?.known_dims()?, &dims) {
            return Some(x);
        }
        let shape = Expr::new(ExprKind::Shape(dims), self.w.span());
        self.op("reshape", vec![x, shape], &[])
    }
}

impl From<Expr> for Value {
    fn from(e: Expr) -> Value {
        Value { expr: Some(e), ..Value::default() }
    }
}

/// Axes of one point stand for 0.
fn without_units(mut s: Stage) -> Stage {
    let mut map = HashMap::new();
    for a in s.spatial.iter().chain(&s.reduce).filter(|a| a.len() == Some(1)) {
        map.insert(a.var.clone(), PrimExpr::i64(0));
    }
    s.spatial.retain(|a| a.len() != Some(1));
    s.reduce.retain(|a| a.len() != Some(1));
    if !map.is_empty() {
        s.substitute(&map);
    }
    s
}

fn ints(v: &[i64]) -> AttrValue {
    AttrValue::List(v.iter().map(|i| AttrValue::Int(*i)).collect())
}

/// Whether both lists of dims are provably the same.
fn same(a: &[PrimExpr], b: &[PrimExpr]) -> bool {
    let of = |e: &PrimExpr| Poly::of(e, &Ranges::default());
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| of(a).sub(&of(b)).is_zero())
}

/// Buffer and indices of a load.
fn loaded(e: &PrimExpr) -> Option<(&Buffer, &[PrimExpr])> {
    match e.kind() {
        PrimKind::BufferLoad(b, i) => Some((b, i)),
        _ => None,
    }
}
