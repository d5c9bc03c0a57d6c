//! What comprehensions and Python's functions of lists go through.

use super::literals::integer;
use super::{Python, Reported};
use crate::rlx::syntax::*;

impl<'a> Python<'_, 'a> {
    /// What Python goes through: a list, a tuple, `range`, `zip`, `enumerate`, the fields of a variable.
    pub(super) fn sequence(&mut self, e: &Expr<'a>) -> Result<Option<Vec<Expr<'a>>>, Reported> {
        if let Some(items) = e.elements() {
            return Ok(Some(items.to_vec()));
        }
        if e.as_name().is_some() {
            let starred = Expr { kind: ExprKind::Starred(Box::new(e.clone())), span: e.span, depth: e.depth };
            return Ok(self.cx.unpacked(&[starred]));
        }
        let (Some(name), Some(call)) = (e.called(), e.as_call()) else { return Ok(None) };
        match name.as_str() {
            "range" => {
                let values: Option<Vec<i128>> = call.args.iter().map(integer).collect();
                let (from, to, step) = match values.as_deref() {
                    Some([to]) => (0, *to, 1),
                    Some([from, to]) => (*from, *to, 1),
                    Some([from, to, step]) if *step != 0 => (*from, *to, *step),
                    _ => return Ok(None),
                };
                let (mut at, mut out) = (from, vec![]);
                while if step > 0 { at < to } else { at > to } {
                    out.push(self.int(at, e.span)?);
                    let Some(next) = at.checked_add(step) else { break };
                    at = next;
                }
                Ok(Some(out))
            }
            "enumerate" if call.args.len() == 1 => {
                let Some(items) = self.sequence(&call.args[0])? else { return Ok(None) };
                let mut out = vec![];
                for (i, item) in items.into_iter().enumerate() {
                    let i = self.int(i as i128, e.span)?;
                    out.push(self.node(ExprKind::Tuple(vec![i, item]), e.span)?);
                }
                Ok(Some(out))
            }
            "map" => {
                let [func, of] = call.args.as_slice() else { return Ok(None) };
                let ExprKind::Lambda(params, body) = &func.kind else { return Ok(None) };
                let Some(items) = self.sequence(of)? else { return Ok(None) };
                let each = items.into_iter().map(|item| self.apply(params, body, vec![item], vec![], e.span));
                each.collect::<Result<Vec<_>, _>>().map(Some)
            }
            "zip" => {
                let mut lists = vec![];
                for a in &call.args {
                    match self.sequence(a)? {
                        Some(items) => lists.push(items),
                        None => return Ok(None),
                    }
                }
                let n = lists.iter().map(Vec::len).min().unwrap_or(0);
                let rows = (0..n).map(|i| lists.iter().map(|l| l[i].clone()).collect());
                rows.map(|row| self.node(ExprKind::Tuple(row), e.span)).collect::<Result<Vec<_>, _>>().map(Some)
            }
            _ => Ok(None),
        }
    }
}
