//! Results: values of a function become tensors in the caller's buffers.

use super::*;

impl Planner<'_> {
    /// Moves the tensors of the result into the caller's buffers: in place where the storage is ours, else by a copy.
    pub(super) fn place_results(&mut self, result: HostValue) -> Res<HostValue> {
        let result = self.scalars_to_tensors(result)?;
        let leaves = result.leaves();
        // The most bytes of each tensor.
        let sizes: Vec<Option<PrimExpr>> = leaves
            .iter()
            .map(|l| match l {
                HostValue::Tensor(t) => Some(self.most_bytes(&t.dims, t.dtype)),
                _ => None,
            })
            .collect();
        // What decides the dims of open results runs before these are there, so it writes into none of them.
        let tensors = leaves.iter().filter_map(|l| if let HostValue::Tensor(t) = l { Some(t) } else { None });
        let open: HashSet<Var> = tensors.flat_map(|t| t.dims.iter().flat_map(PrimExpr::vars)).collect();
        let open = open.into_iter().filter(|v| self.unbounded.contains(v)).collect();
        let deciding = crate::host::slice::for_vars(self.steps.last().map_or(&[][..], |s| s), open);
        let before: HashSet<BufId> = deciding.iter().flat_map(crate::host::slice::touched).collect();
        let mut placed: Vec<TensorValue> = vec![];
        for (i, (leaf, size)) in leaves.iter().zip(sizes).enumerate() {
            // An unranked parameter that is passed on is copied by the entry itself.
            let (HostValue::Tensor(t), Some(size)) = (leaf, size) else { continue };
            let whole = self.bufs[t.buf.0].bytes == size && self.sized_when_written(t.buf, &size);
            if matches!(self.bufs[t.buf.0].place, Place::Workspace) && whole && !before.contains(&t.buf) {
                self.bufs[t.buf.0].place = Place::Result(i);
                placed.push(t.clone());
            } else {
                self.bufs.push(Buf { place: Place::Result(i), bytes: size });
                let to = BufId(self.bufs.len() - 1);
                self.step(Step::Copy { from: t.buf, to, bytes: byte_size(&t.dims, t.dtype) });
                placed.push(TensorValue { buf: to, ..t.clone() });
            }
        }
        let mut it = placed.into_iter();
        Ok(replace_tensors(&result, &mut it))
    }

    /// Has the buffer this size under what is known when it is first written to? What is checked after that may fail:
    /// until then the caller's buffer is as large as the result's dims say, not as large as what is written.
    fn sized_when_written(&self, buf: BufId, size: &PrimExpr) -> bool {
        let steps = self.steps.last().map_or(&[][..], |s| s);
        let first = steps.iter().position(|s| crate::host::slice::touched(s).contains(&buf)).unwrap_or(steps.len());
        if !steps[first..].iter().any(|s| matches!(s, Step::Check { .. })) {
            return true;
        }
        let mut facts = self.given.clone();
        self.unbounded.iter().for_each(|v| facts.declare_signed(v));
        let mut bounds: Vec<PrimExpr> = self.bounds.iter().map(|(v, b)| v.expr().le(b.clone())).collect();
        bounds.sort_by_key(relax_ir::printer::print_prim);
        bounds.iter().for_each(|b| facts.assume(b));
        for s in &steps[..first] {
            if let Step::Check { condition, .. } = s {
                facts.assume(condition);
            }
        }
        facts.simplify(size) == facts.simplify(&self.bufs[buf.0].bytes)
    }

    /// Shapes and scalars of the result are written into tensors: one representation for the caller.
    fn scalars_to_tensors(&mut self, v: HostValue) -> Res<HostValue> {
        Ok(match v {
            HostValue::Tensor(_) | HostValue::Unranked(_) => v,
            HostValue::Tuple(f) => {
                HostValue::Tuple(f.into_iter().map(|x| self.scalars_to_tensors(x)).collect::<Res<_>>()?)
            }
            HostValue::Shape(values) => {
                let t = self.tensor(vec![PrimExpr::i64(values.len() as i64)], DType::I64);
                self.step(Step::Write { to: t.buf, values });
                HostValue::Tensor(t)
            }
            HostValue::Prim(e) => {
                let t = self.tensor(vec![], e.dtype());
                self.step(Step::Write { to: t.buf, values: vec![e] });
                HostValue::Tensor(t)
            }
            _ => {
                return Err(Diagnostic::unsupported(
                    "result",
                    Span::NONE,
                    "a function whose result is neither a tensor, a shape, a scalar nor a tuple of these",
                ))
            }
        })
    }
}

fn replace_tensors(v: &HostValue, with: &mut impl Iterator<Item = TensorValue>) -> HostValue {
    match v {
        HostValue::Tensor(t) => HostValue::Tensor(with.next().unwrap_or_else(|| t.clone())),
        HostValue::Tuple(f) => HostValue::Tuple(f.iter().map(|x| replace_tensors(x, with)).collect()),
        other => other.clone(),
    }
}
