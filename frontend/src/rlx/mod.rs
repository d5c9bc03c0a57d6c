//! TVMScript: text to an IR module.
//!
//! [`lexer`] makes tokens, `pyparse` and `pyexpr` a syntax tree of the Python subset ([`syntax`]), the other files
//! translate that tree, each construct in its own file. Every dialect from TVM 0.23 to 0.27 is read (the corpus'
//! README lists the differences); text that was lowered for TVM's virtual machine is [raised](raise).
//!
//! Invariants: a function that returns `None` has reported why; names bound by something unreadable are poisoned, so
//! that one mistake is reported once; every recursion is bounded by the height limit of the syntax tree.

mod arguments;
mod attrs;
mod call;
mod context;
mod dialect;
mod global_infos;
mod lexer;
mod metadata;
mod module;
mod prelude;
mod pyexpr;
mod pyparse;
mod python;
mod raise;
mod relax_expr;
mod relax_func;
mod scalar;
mod scalar_call;
mod scalar_types;
mod spread;
mod struct_info;
mod syntax;
mod targets;
mod tir_block;
mod tir_func;
mod tir_sort;
mod tir_stmt;
mod unpack;

use relax_ir::{Diagnostic, Diagnostics, FileId, IRModule, Span};

/// Diagnostics shown for one file; beyond them only a remark.
const MAX_DIAGNOSTICS: usize = 100;

/// Parses a `.rlx` file. The module holds every function that was understood; it is `None` when the text has no
/// module at all. It is complete when there is no error among the diagnostics.
pub fn parse(file: FileId, text: &str) -> (Option<IRModule>, Diagnostics) {
    let mut diags = Diagnostics::default();
    if text.len() >= u32::MAX as usize / 2 {
        let span = Span::new(file, 0, 0);
        diags.push(
            Diagnostic::unsupported("file-size", span, "the text is larger than 2 GiB")
                .help("pass big constants as parameters, in a weight file"),
        );
        return (None, diags);
    }
    let (tree, python) = pyparse::parse_file(file, text, &mut diags);
    let mut cx = context::Cx::new(file, text, diags);
    cx.python = python;
    let mut module = cx.module(&tree);
    if let Some(m) = &mut module {
        dialect::modernize(m);
        raise::raise(m, &mut cx.diags);
    }
    let mut diags = cx.diags;
    diags.list.sort_by_key(|d| d.span().lo);
    if diags.list.len() > MAX_DIAGNOSTICS {
        let rest = diags.list.len() - MAX_DIAGNOSTICS;
        let span = diags.list[MAX_DIAGNOSTICS].span();
        diags.list.truncate(MAX_DIAGNOSTICS);
        diags.push(Diagnostic::error("too-many", span, format!("{rest} more problems follow from here on")));
    }
    (module, diags)
}

#[cfg(test)]
mod tests;
