//! Names of PrimFuncs that are given another value later, in a loop or a branch: each is a buffer of one element.
//!
//! Source: TVM's parser of `tirx` ("x = expr -> scalar"): every such name is mutable. Where no loop or branch assigns to it
//! again, a let says the same.

use super::*;

impl<'a> Cx<'a> {
    /// `name = value`, where `name` is such a buffer or one of shape `(1,)`.
    pub(super) fn reassign(&mut self, name: &str, value: &Expr<'a>, span: Span) -> Option<Option<TStmt>> {
        let Some(Value::Buffer(buffer)) = self.names.get(name) else { return None };
        if self.vector_cell(buffer) {
            let (buffer, dtype) = (buffer.clone(), self.vector_lanes(buffer).map(|n| buffer.dtype().with_lanes(n)));
            let value = self.prim(value);
            return Some(value.and_then(|v| match dtype {
                Some(t) if v.dtype() == t => self.vector_store(buffer, vec![all_lanes(t.lanes)], v, span),
                _ => self.error("type", span, format!("`{name}` does not hold {}", v.dtype())),
            }));
        }
        let indices = match buffer.shape.as_slice() {
            [] => vec![],
            [one] if one.is_int(1) => vec![PrimExpr::int(one.dtype(), 0)],
            _ => return None,
        };
        let buffer = buffer.clone();
        let value = self.prim_as(value, buffer.dtype());
        Some(value.map(|value| TStmt::at(TKind::Store { buffer, indices, value }, span)))
    }

    /// `x: T.float32[m, n]`: a buffer that is only there.
    pub(super) fn local_vector(
        &mut self,
        name: &'a str,
        dtype: DType,
        shape: &Expr<'a>,
        span: Span,
        f: &mut PrimCx,
    ) -> Option<Vec<Item>> {
        let shape = match shape.elements() {
            Some(_) => self.dims(shape)?,
            None => vec![self.dim(shape)?],
        };
        self.scope(f, span)?;
        let buffer = Buffer::from_parts(name, shape, dtype, vec![], None, "local", span);
        self.names.bind(name, Value::Buffer(buffer.clone()));
        self.born(name, span, f);
        Some(vec![Item::Alloc(buffer, span)])
    }

    /// The buffer of one element that `name` stands for from here on, and its first value.
    pub(super) fn mutable(
        &mut self,
        name: &'a str,
        dtype: DType,
        value: Option<PrimExpr>,
        span: Span,
    ) -> Option<Vec<Item>> {
        let buffer = self.lanes_apart(Buffer::new(name, vec![], dtype), span)?;
        self.names.bind(name, Value::Buffer(buffer.clone()));
        if let (Some(lanes), Some(value)) = (self.vector_lanes(&buffer), &value) {
            let store = self.vector_store(buffer.clone(), vec![all_lanes(lanes)], value.clone(), span)?;
            return Some(vec![Item::Alloc(buffer, span), Item::Stmt(store)]);
        }
        let store = value
            .map(|value| Item::Stmt(TStmt::at(TKind::Store { buffer: buffer.clone(), indices: vec![], value }, span)));
        Some(std::iter::once(Item::Alloc(buffer, span)).chain(store).collect())
    }
}

/// Is the name that `s` binds given another value in a loop or a branch of the statements after it?
pub(super) fn is_mutable(s: &Stmt, rest: &[Stmt]) -> bool {
    let StmtKind::Assign { target, .. } = &s.kind else { return false };
    let Some(name) = target.as_name() else { return false };
    rest.iter().any(|s| bodies(s).iter().any(|b| assigned(name, b)))
}

fn assigned(name: &str, list: &[Stmt]) -> bool {
    list.iter().any(|s| match &s.kind {
        StmtKind::Assign { target, annotation: None, .. } | StmtKind::Augment { target, .. } => {
            target.as_name() == Some(name)
        }
        _ => bodies(s).iter().any(|b| assigned(name, b)),
    })
}

/// The statements inside of a statement.
fn bodies<'s, 'a>(s: &'s Stmt<'a>) -> Vec<&'s [Stmt<'a>]> {
    match &s.kind {
        StmtKind::If { then, otherwise, .. } => vec![then.as_slice(), otherwise.as_slice()],
        StmtKind::For { body, .. } | StmtKind::While { body, .. } | StmtKind::With { body, .. } => {
            vec![body.as_slice()]
        }
        _ => vec![],
    }
}
