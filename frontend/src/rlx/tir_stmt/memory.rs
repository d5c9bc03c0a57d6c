//! Memory that a kernel makes (`T.alloc_buffer`): it is set aside before the kernel runs, so its size is one of dims.

use super::pointers::reads;
use super::*;

impl<'a> Cx<'a> {
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
        if !b.strides.is_empty() {
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
