//! TVMScript as TVM 0.27 prints it under Python before 3.12: shape variables of signatures are `TypeVar` lines before
//! the module, expressions among the dims of a signature are in quotes.
//!
//! What is printed parses back to the same module ([`crate::structural`]), and TVM parses it too. Names are kept
//! where they are unique, and get a number where they are not: shape variables within their function, loop variables
//! within their loops. Constants that are no finite scalar go into the JSON of a `metadata` line.
//!
//! Differences to TVM's own text, all of which TVM reads: floats have the shortest digits that round to them, entries of
//! dictionaries keep their order, variables born in a body are never called like a `TypeVar` (TVM's parser refuses its
//! own text there).

mod flat;
mod function;
mod metadata;
mod names;
mod scalar;
mod tir;
mod types;

pub use flat::{print_flat, print_flat_func};
pub use names::is_reserved;

use crate::dtype::DType;
use crate::module::{Func, IRModule};
use crate::prim::{PrimExpr, Var};
use crate::relax::{Expr, StructInfo, StructInfoMap};
use crate::tir::PrimFunc;
use metadata::Metadata;
use names::{identifier, Names};
use std::collections::{BTreeSet, HashMap, HashSet};
use types::Place;

/// The whole module.
pub fn print_module(module: &IRModule) -> String {
    Printer::new(module, None).module(module)
}

/// The whole module; bindings without an annotation show what analysis found.
pub fn print_typed(module: &IRModule, types: &StructInfoMap) -> String {
    Printer::new(module, Some(types)).module(module)
}

/// One PrimFunc without its module.
pub fn print_prim_func(f: &PrimFunc) -> String {
    let module = IRModule { funcs: vec![Func::Prim(f.clone())], ..Default::default() };
    let mut p = Printer::new(&module, None);
    let names = p.signature_names(&module.funcs[0]);
    p.prim_func(f, &names);
    p.out
}

/// A type, for diagnostics: names as they are.
pub fn print_struct_info(s: &StructInfo) -> String {
    Printer::plain().info(s, Place::Body)
}

/// A scalar expression, for diagnostics: names as they are, int64 literals bare.
pub fn print_prim(e: &PrimExpr) -> String {
    Printer::plain().prim(e)
}

/// A Relax expression, for diagnostics; functions and branches are abbreviated.
pub fn print_expr(e: &Expr) -> String {
    Printer::plain().expr(e)
}

/// The shape variables that a function's signature brings, with the names they get.
type SignatureNames = Vec<(Var, String)>;

struct Printer<'a> {
    out: String,
    indent: usize,
    names: Names,
    /// Names of all `TypeVar` lines.
    type_vars: BTreeSet<String>,
    /// Scalar parameters that come later in the signature: they go in quotes until then.
    undeclared: HashSet<Var>,
    /// The type of integer literals that print bare: int64 in Relax, int32 in TIR.
    int: DType,
    bare_bool: bool,
    module: String,
    metadata: Metadata,
    types: Option<&'a StructInfoMap>,
    /// Ranges of the loops around, for `T.axis.remap`.
    loops: HashMap<Var, (PrimExpr, PrimExpr)>,
    /// Relax variables that occur in the current function.
    used: HashSet<u32>,
}

impl<'a> Printer<'a> {
    fn new(module: &IRModule, types: Option<&'a StructInfoMap>) -> Printer<'a> {
        let name = if module.name.is_empty() { "Module".to_string() } else { identifier(&module.name) };
        Printer {
            out: String::new(),
            indent: 0,
            names: Names::default(),
            type_vars: BTreeSet::new(),
            undeclared: HashSet::new(),
            int: DType::I64,
            bare_bool: true,
            module: name,
            metadata: Metadata::default(),
            types,
            loops: HashMap::new(),
            used: HashSet::new(),
        }
    }

    fn plain() -> Printer<'a> {
        let mut p = Printer::new(&IRModule::default(), None);
        p.names.plain = true;
        p
    }

    fn line(&mut self, text: &str) {
        if !text.is_empty() {
            self.out.extend(std::iter::repeat_n("    ", self.indent));
            self.out.push_str(text);
        }
        self.out.push('\n');
    }

    /// Runs `f` one level deeper.
    fn nested(&mut self, f: impl FnOnce(&mut Self)) {
        self.indent += 1;
        f(self);
        self.indent -= 1;
    }

    /// Names for one function.
    fn fresh_names(&mut self) {
        self.names = Names::default();
        self.names.reserve(&self.module.clone());
        self.loops.clear();
        self.undeclared.clear();
    }

    fn module(&mut self, module: &IRModule) -> String {
        let signatures: Vec<SignatureNames> = module.funcs.iter().map(|f| self.signature_names(f)).collect();
        self.type_vars = signatures.iter().flatten().map(|(_, n)| n.clone()).collect();
        self.indent = 1;
        if !module.attrs.is_empty() {
            let attrs = self.attrs(&module.attrs);
            self.line(&format!("I.module_attrs({attrs})"));
        }
        if !module.global_infos.is_empty() {
            let entries: Vec<String> = module
                .global_infos
                .iter()
                .map(|(k, list)| {
                    let list: Vec<String> = list.iter().map(|v| self.attr(v)).collect();
                    format!("{}: [{}]", scalar::quote(k), list.join(", "))
                })
                .collect();
            self.line(&format!("I.module_global_infos({{{}}})", entries.join(", ")));
        }
        for (i, (f, names)) in module.funcs.iter().zip(&signatures).enumerate() {
            if i > 0 {
                self.out.push('\n');
            }
            match f {
                Func::Relax(f) => self.global_function(f, names),
                Func::Prim(f) => self.prim_func(f, names),
            }
        }
        if self.out.is_empty() {
            self.line("pass");
        }
        self.head() + &self.out
    }

    /// Everything above the class's body.
    fn head(&self) -> String {
        let mut head = self.metadata.text();
        if !self.type_vars.is_empty() {
            head.push_str("# from typing import TypeVar\n");
        }
        head.push_str("# from tvm.script import ir as I\n");
        if self.out.contains("T.") {
            head.push_str("# from tvm.script import tirx as T\n# from tvm.tirx.layout import Axis\n");
        }
        if self.out.contains("R.") {
            head.push_str("# from tvm.script import relax as R\n");
        }
        head.push('\n');
        for v in &self.type_vars {
            head.push_str(&format!("{v} = TypeVar(\"{v}\")\n"));
        }
        head + &format!("@I.ir_module\nclass {}:\n", self.module)
    }

    /// Finds the shape variables of a signature (nested functions too) and names them apart from the parameters.
    fn signature_names(&mut self, f: &Func) -> SignatureNames {
        let mut names = Names::default();
        names.reserve(&self.module);
        let vars = match f {
            Func::Relax(f) => {
                for p in &f.params {
                    names.declare(p.var.id(), p.var.name());
                }
                function::signature_vars(f)
            }
            Func::Prim(f) => {
                tir::declare_params(f, &mut names);
                tir::signature_vars(f)
            }
        };
        let names = vars.into_iter().map(|v| {
            let name = names.declare(v.id(), v.name());
            (v, name)
        });
        names.collect()
    }
}

#[cfg(test)]
mod tests;
