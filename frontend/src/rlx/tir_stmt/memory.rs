//! Memory that a kernel makes (`T.alloc_buffer`): it is set aside before the kernel runs, so its size is one of dims.

use super::pointers::reads;
use super::*;

/// Does a call of this make memory, or give memory another name?
pub(super) fn makes(function: &str) -> bool {
    let all = ["T.sblock_alloc_buffer", "T.alloc_buffer", "T.alloc_local", "T.alloc_shared", "T.decl_buffer"];
    all.contains(&function)
}

impl<'a> Cx<'a> {
    /// The memory that one of the calls that [`makes`] some makes: a buffer called `name`, for which `held` stands.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn made_memory(
        &mut self,
        name: &'a str,
        held: &'a str,
        call: &CallExpr<'a>,
        span: Span,
        f: &mut PrimCx,
        block: &mut Option<BlockParts>,
        place: Place,
    ) -> Option<Vec<Item>> {
        let function = call.func.dotted()?;
        let scope = match function.as_str() {
            "T.alloc_local" => "local",
            "T.alloc_shared" => "shared",
            _ => "global",
        };
        self.own_offset(call)?;
        if let Some(data) = buffer_argument(call, 0, "data").filter(|_| function == "T.decl_buffer") {
            self.view(held, call, data, span)?;
            self.born(held, span, f);
            return Some(vec![]);
        }
        let b = self.memory_type(name, call, scope, span)?;
        let b = self.lanes_apart(b, span)?;
        self.names.bind(held, Value::Buffer(b.clone()));
        if function == "T.sblock_alloc_buffer" {
            if !f.blocks {
                let d = Diagnostic::error("tir", span, "only functions with blocks have memory of blocks");
                return self.report(d.help("write T.alloc_buffer, or @T.prim_func(s_tir=True)"));
            }
        } else {
            self.born(held, span, f);
        }
        let of_block = matches!(function.as_str(), "T.sblock_alloc_buffer" | "T.alloc_buffer");
        match (block, place) {
            (Some(parts), Place::Body) if of_block => parts.alloc_buffers.push(b),
            (None, Place::Body) if of_block => f.alloc_buffers.push(b),
            _ => {
                self.scope(f, span)?;
                return Some(vec![Item::Alloc(b, span)]);
            }
        }
        Some(vec![])
    }

    /// The memory that the elements of a list called `name` make, and the list with names for it; `None` where none does.
    pub(super) fn memory_in_list(
        &mut self,
        name: &'a str,
        e: &Expr<'a>,
        span: Span,
        f: &mut PrimCx,
        block: &mut Option<BlockParts>,
        place: Place,
    ) -> Option<(Vec<Item>, Option<Expr<'a>>)> {
        if let Some(call) = e.as_call().filter(|c| c.func.dotted().is_some_and(|n| makes(&n))) {
            let Some(held) = self.names.hidden_name() else {
                return self.unsupported("tir", e.span, "this kernel has too many names that Python makes");
            };
            let made = self.made_memory(name, held, call, span, f, block, place)?;
            return Some((made, Some(Expr { kind: ExprKind::Name(held), span: e.span, depth: 1 })));
        }
        let mut made = vec![];
        let mut changed = false;
        let mut each = |cx: &mut Self, e: &Expr<'a>| {
            let (more, new) = cx.memory_in_list(name, e, span, f, block, place)?;
            made.extend(more);
            changed |= new.is_some();
            Some(new.unwrap_or_else(|| e.clone()))
        };
        let kind = match &e.kind {
            ExprKind::List(items) => ExprKind::List(items.iter().map(|i| each(self, i)).collect::<Option<_>>()?),
            ExprKind::Tuple(items) => ExprKind::Tuple(items.iter().map(|i| each(self, i)).collect::<Option<_>>()?),
            ExprKind::Dict(entries) => {
                let new = entries.iter().map(|(k, v)| Some((k.clone(), each(self, v)?)));
                ExprKind::Dict(new.collect::<Option<_>>()?)
            }
            ExprKind::Call(call) if builder::several(e) => {
                let args = call.args.iter().map(|a| each(self, a)).collect::<Option<_>>()?;
                ExprKind::Call(Box::new(CallExpr { args, ..(**call).clone() }))
            }
            _ => return Some((made, None)),
        };
        Some((made, changed.then(|| Expr { kind, ..e.clone() })))
    }

    /// A buffer of the kernel's own. Names of values in its shape are written out. It is dense whatever strides it states,
    /// which are its `strides` all the same.
    ///
    /// Errors: a size that elements of memory or the variables of loops tell.
    ///
    /// Source: TVM's build takes memory out of loops: "variable i has been used before definition"; its compaction of memory leaves no strides.
    pub(super) fn memory_type(
        &mut self,
        name: &'a str,
        call: &CallExpr<'a>,
        default_scope: &str,
        span: Span,
    ) -> Option<Buffer> {
        let b = self.buffer_type(name, call, 0, default_scope, span)?;
        let shape: Vec<PrimExpr> = b.shape.iter().map(|d| d.substitute(&self.names.lets)).collect();
        let help = "memory of a kernel is set aside before it runs: state a size in dims";
        if shape.iter().any(reads) {
            let d = Diagnostic::unsupported("tir", span, format!("elements of memory tell the size of `{name}`"));
            return self.report(d.help(help));
        }
        let counted = |v: &Var| self.names.loops.contains_key(&v.id());
        if let Some(v) = shape.iter().flat_map(PrimExpr::vars).find(counted) {
            let message = format!("the size of `{name}` depends on `{}`, the variable of a loop", v.name());
            return self.report(Diagnostic::error("tir", span, message).help(help));
        }
        if shape == b.shape && b.strides.is_empty() {
            return Some(b);
        }
        let own = Buffer::from_parts(&b.name, shape, b.dtype(), vec![], b.elem_offset.clone(), &b.scope, span);
        if b.strides.len() == b.ndim() {
            self.names.strides.insert(own.id(), b.strides.clone());
        }
        Some(own)
    }

    /// `offset_factor` makes a variable of the offset, which nothing binds here.
    pub(super) fn own_offset(&mut self, call: &CallExpr<'a>) -> Option<()> {
        let Some(factor) = buffer_argument(call, 0, "offset_factor") else { return Some(()) };
        if self.int(factor)? != 0 && buffer_argument(call, 0, "elem_offset").is_none() {
            let d = Diagnostic::error("tir", factor.span, "memory of its own has no offset");
            return self.report(d.help("drop offset_factor"));
        }
        Some(())
    }

    /// `A.strides`: what the text states.
    pub fn strides_of(&self, b: &Buffer) -> Vec<PrimExpr> {
        self.names.strides.get(&b.id()).unwrap_or(&b.strides).clone()
    }

    /// Notes the value of a name, for sizes that say it.
    pub(super) fn note_let(&mut self, var: &Var, value: &PrimExpr) {
        if var.dtype().is_int() && var.dtype().lanes == 1 {
            let value = value.substitute(&self.names.lets);
            self.names.lets.insert(var.clone(), value);
        }
    }
}
