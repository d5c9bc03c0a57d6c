//! One value for the two branches of an `If`.

use super::*;

/// The branches of an `If` while their values become one.
pub(super) struct Join {
    pub then: Vec<Step>,
    pub otherwise: Vec<Step>,
    /// Dims that only the branch taken tells: the variable, what it is in each, and the most it can be.
    pub sizes: Vec<Size>,
    pub span: Span,
}

/// A dim of the joined value.
pub(super) struct Size {
    var: Var,
    then: PrimExpr,
    otherwise: PrimExpr,
    most: PrimExpr,
}

impl Planner<'_> {
    /// One value for two branches: tensors are copied into common storage. A dim that differs is a new variable, at most
    /// what it is at most in either branch.
    pub(super) fn join(
        &mut self,
        a: &HostValue,
        b: &HostValue,
        info: Option<&StructInfo>,
        j: &mut Join,
    ) -> Res<HostValue> {
        match (a, b) {
            (HostValue::Tensor(x), HostValue::Tensor(y)) if x.dtype == y.dtype && x.dims.len() == y.dims.len() => {
                if x.buf == y.buf && x.dims == y.dims {
                    return Ok(a.clone());
                }
                let (dims, most) = match common(info, x.dims.len()) {
                    _ if x.dims == y.dims => (x.dims.clone(), x.dims.clone()),
                    // Equal in each branch by what holds there.
                    Some(dims) => (dims.to_vec(), dims.to_vec()),
                    None => self.sizes(x, y, j),
                };
                let own = self.tensor(most, x.dtype);
                j.then.push(Step::Copy { from: x.buf, to: own.buf, bytes: byte_size(&x.dims, x.dtype) });
                j.otherwise.push(Step::Copy { from: y.buf, to: own.buf, bytes: byte_size(&y.dims, y.dtype) });
                Ok(HostValue::Tensor(TensorValue { dims, ..own }))
            }
            (HostValue::Tuple(x), HostValue::Tuple(y)) if x.len() == y.len() => {
                let infos = info.and_then(StructInfo::as_tuple);
                let mut out = vec![];
                for (i, (p, q)) in x.iter().zip(y).enumerate() {
                    let info = infos.and_then(|f| f.get(i));
                    out.push(self.join(p, q, info, j)?);
                }
                Ok(HostValue::Tuple(out))
            }
            (HostValue::Shape(x), HostValue::Shape(y)) if x == y => Ok(a.clone()),
            (HostValue::Prim(x), HostValue::Prim(y)) if x == y => Ok(a.clone()),
            (HostValue::Str(x), HostValue::Str(y)) if x == y => Ok(a.clone()),
            _ => Err(Diagnostic::unsupported(
                "if-join",
                j.span,
                "the branches of this If give values of different structure or rank",
            )
            .here("cannot be laid out statically")),
        }
    }

    /// The dims of one tensor for two, and the most they can be.
    fn sizes(&mut self, x: &TensorValue, y: &TensorValue, j: &mut Join) -> (Vec<PrimExpr>, Vec<PrimExpr>) {
        let (mut dims, mut most) = (vec![], vec![]);
        for (p, q) in x.dims.iter().zip(&y.dims) {
            if p == q {
                dims.push(p.clone());
                most.push(self.upper(p));
                continue;
            }
            let bound = self.upper(p).max(self.upper(q));
            let bound = self.facts.simplify(&bound);
            let var = Var::dim("joined");
            dims.push(var.expr());
            most.push(bound.clone());
            j.sizes.push(Size { var, then: p.clone(), otherwise: q.clone(), most: bound });
        }
        (dims, most)
    }

    /// The step of the whole `If`, and the dims that only the branch taken tells, read from where it wrote them.
    pub(super) fn close(&mut self, condition: PrimExpr, j: Join) {
        let Join { mut then, mut otherwise, sizes, .. } = j;
        let told = (!sizes.is_empty()).then(|| {
            let told = self.tensor(vec![PrimExpr::i64(sizes.len() as i64)], DType::I64).buf;
            let values = sizes.iter().map(|s| s.then.clone()).collect();
            then.push(Step::Write { to: told, values });
            let values = sizes.iter().map(|s| s.otherwise.clone()).collect();
            otherwise.push(Step::Write { to: told, values });
            told
        });
        self.step(Step::If { condition, then, otherwise });
        for (index, s) in sizes.into_iter().enumerate() {
            if let Some(from) = told {
                self.step(Step::Read { var: s.var.clone(), from, index, dtype: DType::I64 });
            }
            self.set_bound(&s.var, s.most);
        }
    }
}

/// The dims of a tensor of this rank, as far as they are known.
fn common(info: Option<&StructInfo>, rank: usize) -> Option<&[PrimExpr]> {
    info?.as_tensor()?.known_dims().filter(|d| d.len() == rank)
}
