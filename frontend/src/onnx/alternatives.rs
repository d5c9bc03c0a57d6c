//! Nodes whose inputs are one of two values of different structure ([`Value::Choice`]): each is translated. Where one
//! of the two makes the model wrong, the condition can but pick the other: that is checked at run time, and the model
//! goes on with it alone. Exporters write so what a program decides by sizes, such as a dim that is removed if it is 1.

use super::builder::Arg;
use super::graph::{Importer, MAX_NODES};
use super::node::NodeCx;
use super::ops;
use super::proto::{GraphProto, NodeProto};
use super::value::{Tensor, Value};
use super::Res;
use relax_ir::diag::Fault;
use relax_ir::prim::{BinOp, PrimKind};
use relax_ir::relax::{Expr, ExprKind, StructInfo};
use relax_ir::{AttrValue, DType, Diagnostic, PrimExpr, Span};

/// Conditions and what is taken of them to hold.
pub type Picked = Vec<(Tensor, bool)>;

/// What a node came to with one of the two values.
enum Outcome {
    Values(Vec<Value>),
    /// An input failed, or the failure was reported.
    Poisoned,
    /// The model is wrong if this value is it.
    Wrong(Diagnostic),
    Refused(Diagnostic),
}

impl Importer<'_> {
    /// A value without the choices that are made: by the alternative under translation, or as the other is wrong.
    pub(super) fn settled(&self, v: Value) -> Value {
        let Value::Choice(c, both) = &v else { return v };
        match self.side(c) {
            Some(true) => self.settled(both.0.clone()),
            Some(false) => self.settled(both.1.clone()),
            None => v,
        }
    }

    /// What a step of a loop makes: states and conditions are tensors where they can be.
    pub(super) fn step(&mut self, name: &str, body: &GraphProto, inputs: Vec<Value>) -> Res<Vec<Value>> {
        let made = self.subgraph(name, body, inputs)?;
        made.into_iter().map(|v| self.one_tensor(v)).collect()
    }

    /// A choice between tensors of as many dims as a tensor; other values as they are.
    pub(super) fn one_tensor(&mut self, v: Value) -> Res<Value> {
        let Value::Choice(cond, both) = v else { return Ok(v) };
        let (a, b) = (self.one_tensor(both.0)?, self.one_tensor(both.1)?);
        match (&a, &b) {
            (Value::Tensor(x), Value::Tensor(y)) if x.dtype == y.dtype && x.rank() == y.rank() => {
                let node = NodeProto::default();
                ops::choose(&mut NodeCx::new(self, &node, 1, vec![]), &cond, x, y).map(Value::from)
            }
            _ => Ok(Value::Choice(cond, Box::new((a, b)))),
        }
    }

    /// What a condition is in the alternative under translation, or as the other is wrong.
    pub(super) fn side(&self, cond: &Tensor) -> Option<bool> {
        let taken = self.picked.iter().find(|(p, _)| same(p, cond));
        taken.map(|p| p.1).or_else(|| self.b.settled(|p| same(p, cond)))
    }

    /// Does the alternative under translation have 1 for this dim? Both are computed, so no check may ask for it.
    pub(super) fn is_taken_for_one(&self, dim: &PrimExpr) -> bool {
        let one = |(c, side): &(Tensor, bool)| {
            *side && equal(c).is_some_and(|(a, b)| (a == *dim && b.is_int(1)) || (b == *dim && a.is_int(1)))
        };
        self.picked.iter().any(one)
    }

    /// Translates the graph of a node for what `cond` is then.
    pub(super) fn supposing(
        &mut self,
        (cond, side): (&Tensor, bool),
        make: impl FnOnce(&mut Self) -> Res<Vec<Value>>,
    ) -> Res<Vec<Value>> {
        self.picked.push((cond.clone(), side));
        let values = make(self);
        self.picked.pop();
        values
    }

    /// The values of a node's outputs over inputs of which one is chosen by `cond`.
    pub(super) fn alternatives(
        &mut self,
        n: &NodeProto,
        inputs: &[Option<Value>],
        cond: &Tensor,
        poisoned: bool,
    ) -> Result<Vec<Value>, Option<Diagnostic>> {
        let first = self.alternative(n, inputs, (cond, true), poisoned);
        let second = self.alternative(n, inputs, (cond, false), poisoned);
        match (first, second) {
            (Outcome::Values(a), Outcome::Values(b)) => {
                let mut cx = NodeCx::new(self, n, 1, vec![]);
                let joined = a.into_iter().zip(b).map(|(a, b)| ops::join(&mut cx, cond, a, b)).collect::<Res<_>>();
                joined.map_err(Some)
            }
            (Outcome::Values(v), Outcome::Wrong(_)) => self.require(n, cond, true).map(|()| v).map_err(Some),
            (Outcome::Wrong(_), Outcome::Values(v)) => self.require(n, cond, false).map(|()| v).map_err(Some),
            (Outcome::Refused(d), _) | (_, Outcome::Refused(d)) | (Outcome::Wrong(d), _) | (_, Outcome::Wrong(d)) => {
                Err(Some(d))
            }
            _ => Err(None),
        }
    }

    fn alternative(
        &mut self,
        n: &NodeProto,
        inputs: &[Option<Value>],
        (cond, side): (&Tensor, bool),
        poisoned: bool,
    ) -> Outcome {
        // Each is a node of its own.
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Outcome::Refused(Diagnostic::unsupported("onnx-size", Span::NONE, "the model has too many nodes"));
        }
        let before = self.diags.list.len();
        self.picked.push((cond.clone(), side));
        self.b.open();
        let inputs = inputs.iter().map(|v| v.clone().map(|v| self.settled(v))).collect();
        let made = self.translate(n, inputs, poisoned);
        self.picked.pop();
        // Graphs within report what is wrong in them.
        let reported = self.diags.list[before..].iter().find(|d| d.is_error() && d.fault == Fault::User).cloned();
        let outcome = match (made, reported) {
            (Err(Some(d)), _) | (_, Some(d)) if d.fault == Fault::User => Outcome::Wrong(d),
            (Err(Some(d)), _) => Outcome::Refused(d),
            (Err(None), _) => Outcome::Poisoned,
            (Ok(v), _) => Outcome::Values(v),
        };
        match &outcome {
            Outcome::Values(_) => self.b.splice(),
            _ => self.b.discard(),
        }
        if matches!(outcome, Outcome::Wrong(_)) {
            self.diags.list.truncate(before);
        }
        outcome
    }

    /// Checks at run time that `cond` picks this side, where the alternatives under translation are taken.
    fn require(&mut self, n: &NodeProto, cond: &Tensor, side: bool) -> Res<()> {
        if self.picked.is_empty() {
            self.b.settle(cond, side);
            if let Some((a, b)) = equal(cond).filter(|_| side) {
                let dims = Expr::new(ExprKind::Shape([a].into()), Span::NONE);
                self.b.match_cast("assumed", dims, StructInfo::shape(vec![b]));
                return Ok(());
            }
        }
        let mut cx = NodeCx::new(self, n, 1, vec![]);
        let mut holds = is(&mut cx, cond, side)?;
        for (c, s) in cx.im.picked.clone() {
            let not = is(&mut cx, &c, !s)?;
            holds = cx.call("logical_or", &[Arg::from(&holds), Arg::from(&not)], &[])?;
        }
        let one = [PrimExpr::i64(1)];
        let holds = cx.call("astype", &[Arg::from(&holds)], &[("dtype", AttrValue::DType(DType::I64))])?;
        let holds = cx.call("reshape", &[Arg::from(&holds), Arg::shape(&one)], &[])?;
        let e = self.b.shape_of_values(&holds)?;
        self.b.match_cast("assumed", e, StructInfo::shape(one.to_vec()));
        Ok(())
    }
}

/// Is this what a condition is?
fn is(cx: &mut NodeCx, cond: &Tensor, side: bool) -> Res<Tensor> {
    let cond = cx.reshape(cond, &[])?;
    match side {
        true => Ok(cond),
        false => cx.call("logical_not", &[Arg::from(&cond)], &[]),
    }
}

/// The sizes that a condition compares, when it holds if they are equal.
fn equal(cond: &Tensor) -> Option<(PrimExpr, PrimExpr)> {
    let elements = cond.elements()?;
    let [e] = elements.as_slice() else { return None };
    let mut e = e.clone();
    loop {
        e = match e.kind() {
            PrimKind::Binary(BinOp::Eq, a, b) if a.dtype() == DType::I64 => return Some((a.clone(), b.clone())),
            PrimKind::Binary(BinOp::Ne, a, b) if b.is_int(0) => a.clone(),
            PrimKind::Select(c, a, b) if a.is_int(1) && b.is_int(0) => c.clone(),
            PrimKind::Cast(a) => a.clone(),
            _ => return None,
        };
    }
}

/// Are both the same value of the function?
fn same(a: &Tensor, b: &Tensor) -> bool {
    match (a.leaf().map(Expr::kind), b.leaf().map(Expr::kind)) {
        (Some(ExprKind::Var(a)), Some(ExprKind::Var(b))) => a == b,
        (Some(_), _) | (_, Some(_)) => false,
        (None, None) => a.elements().is_some() && a.elements() == b.elements(),
    }
}
