//! What a module means: normal form, well-formedness, struct info, purity and the checks that remain.
//!
//! [`analyze`] takes a module as parsed and gives it back in normal form with the struct info of every variable. It
//! reports everything it finds. In order:
//!
//! 1. scopes and the criteria that hold before normalisation;
//! 2. [`normalize`]: the normal form;
//! 3. [`derive`]: struct info, function by function, callees before callers.
//!
//! # Annotations
//!
//! The annotation of a binding, and the declared result of a function, state what the value is. What is proved costs
//! nothing; what is proved different is an error; the rest is checked at run time. An open equality of dims is a
//! [`Check`]; where the value's kind, rank, dtype or shape is not known the analysis writes the check into the module
//! as a MatchCast. Either way the struct info afterwards is the more precise of the two.
//!
//! # Checks
//!
//! A [`Check`] is a condition over shape variables. It runs before the value of the binding `before` is computed.
//! Conditions of the form `got == wanted` have what is there on the left and what is asked for on the right.
//! Parameters and MatchCasts have no checks here: the host code matches each argument against the signature, and the
//! value of a MatchCast against its struct info.
//!
//! A binding may give birth to shape variables: a MatchCast those that stand alone in its struct info, any binding
//! those that [`materialise`] made for unknown dims. They are bound when the value is known, before the next binding.
//!
//! # Calls between functions
//!
//! The caller's checks cover everything that the callee's signature demands, provided that all dims have names
//! ([`materialise`]).

mod births;
pub mod call;
pub mod constraints;
mod derive;
mod graph;
pub mod limits;
mod normalize;
pub mod refine;
pub mod relate;
mod runtime_calls;
pub mod show;
pub mod signature;
mod solve;
mod vague;
pub mod vars;
pub mod warnings;
mod well_formed;

pub use call::Env;
pub use graph::CallGraph;

use crate::diag::{Diagnostic, Diagnostics};
use crate::module::{Func, IRModule};
use crate::prim::{PrimExpr, Var};
use crate::relax::{Expr, RVar, StructInfo, StructInfoMap};
use crate::span::Span;
use crate::sym::{Facts, Look};
use std::collections::{HashMap, HashSet};

/// A module that means something.
#[derive(Clone, Debug)]
pub struct Typed {
    /// In normal form; every function states its result.
    pub module: IRModule,
    /// Of every parameter and binding, nested functions and branches included.
    pub sinfo: StructInfoMap,
    /// In program order.
    pub checks: Vec<Check>,
    /// What is possibly compatible and has no condition over shape variables: annotations, results and arguments that say
    /// more than is known of the value.
    pub looks: Vec<Look>,
    /// Shape variables that are born in a body, by the binding that gives birth to them.
    pub births: HashMap<RVar, Vec<Birth>>,
    /// Dims of operands that are known to be numbers where a binding is computed, by its variable; after [`materialise`].
    pub numbers: HashMap<RVar, Vec<(PrimExpr, i64)>>,
    /// Requirements over shape variables that were proved, in program order: what the code relies on without a check.
    pub proved: Vec<Proved>,
}

/// A requirement that holds for all values of the shape variables.
#[derive(Clone, Debug, PartialEq)]
pub struct Proved {
    pub condition: PrimExpr,
    /// The binding that requires it.
    pub span: Span,
}

/// A condition that could not be decided and must hold at run time.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    pub before: RVar,
    /// A bool over shape variables.
    pub condition: PrimExpr,
    pub message: String,
    pub span: Span,
}

/// A shape variable and where its value comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Birth {
    pub var: Var,
    /// Which field of the bound value, for nested tuples from the outside in; empty for the value itself.
    pub path: Vec<usize>,
    /// Which dim of it; 0 for a scalar.
    pub axis: usize,
    /// The dim as derived from the value, when it is known: then nothing needs to be read at run time.
    pub known: Option<PrimExpr>,
}

impl Typed {
    /// The struct info of a leaf: a variable, constant, tuple of leaves, shape, scalar, ...; `None` for what computes.
    pub fn info_of(&self, e: &Expr) -> Option<StructInfo> {
        if !e.is_leaf() {
            return None;
        }
        infer_expr(&mut Facts::new(), e, &self.sinfo, &self.module).ok()
    }
}

/// Normalises, checks and types a module. `None` when it has errors.
///
/// Dims of a signature such as `m * 4` and `m + n` are solved for `m`.
pub fn analyze(module: &IRModule) -> (Option<Typed>, Diagnostics) {
    match solve::multiples(module) {
        Some(solved) => analyze_strict(&solved),
        None => analyze_strict(module),
    }
}

/// As [`analyze`], with criterion 5 to the letter: a shape variable stands alone where it is bound.
pub fn analyze_strict(module: &IRModule) -> (Option<Typed>, Diagnostics) {
    let mut diags = Diagnostics::default();
    well_formed::module(module, &mut diags);
    let broken = diags.has_errors();
    let mut normal = module.clone();
    for f in &mut normal.funcs {
        if let Func::Relax(f) = f {
            *f = normalize::function(f, &mut diags);
        }
    }
    let mut more = Diagnostics::default();
    let typed = derive::module(normal, false, &mut more);
    limits::tensors(&typed.module, &typed.sinfo, &mut more);
    // Broken scopes were reported once.
    diags.list.extend(more.list.into_iter().filter(|d| !broken || d.code != "undefined-variable"));
    if diags.has_errors() {
        (None, diags)
    } else {
        (Some(typed), diags)
    }
}

pub use births::named_dims;

/// Gives every dim a name: tensors and shapes of known rank and unknown dims get fresh shape variables, born at their
/// binding ([`Typed::births`]) or at the parameter, whose annotation then shows them. Everything is derived again.
pub fn materialise(typed: &mut Typed) -> Result<(), Diagnostics> {
    let mut diags = Diagnostics::default();
    let named = derive::module(typed.module.clone(), true, &mut diags);
    if diags.has_errors() {
        return Err(diags);
    }
    *typed = named;
    Ok(())
}

/// The struct info of a new expression in normal form (leaf or call), for passes that create calls. Requirements that
/// stay open are left in `facts` ([`Facts::take_requirements`]): the pass adds them to the checks of the new binding.
pub fn infer_expr(
    facts: &mut Facts,
    expr: &Expr,
    sinfo: &StructInfoMap,
    module: &IRModule,
) -> Result<StructInfo, Diagnostic> {
    let scope = HashSet::new();
    Env { module, sinfo, facts, scope: &scope }.infer(expr)
}

#[cfg(test)]
mod tests;
