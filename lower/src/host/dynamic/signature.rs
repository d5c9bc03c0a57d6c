//! What closures say of themselves at run time, and casts of functions (relax_spec.md, "Evaluating MatchCast", 5).
//!
//! The words are those of `relax_rt::signature`. What the signature of a closure contradicts fails at the cast; what it
//! leaves open is checked when the function is called.

use super::expr::{Dyn, Gen, Res, Scope};
use crate::host::build::{null, Failure};
use crate::host::check_tensor::dtype_word;
use relax_ir::analysis::{signature, vars};
use relax_ir::flat::Callee;
use relax_ir::program::code;
use relax_ir::relax::{FuncInfo, Function, RVar, StructInfo};
use relax_ir::{DType, Func, PrimExpr, Span, Var};

/// Kinds of nodes, as in `relax_rt::signature::kind`.
mod kind {
    pub const OBJECT: i64 = 0;
    pub const TENSOR: i64 = 1;
    pub const SHAPE: i64 = 2;
    pub const TUPLE: i64 = 3;
    pub const FUNCTION: i64 = 4;
    pub const PACKED: i64 = 5;
    pub const SCALAR: i64 = 6;
    pub const TEXT: i64 = 7;
    pub const KERNEL: i64 = 8;
}

/// Kinds of dims, as in `relax_rt::signature::dim`.
mod dim {
    pub const UNKNOWN: i64 = 0;
    pub const LITERAL: i64 = 1;
    pub const VALUE: i64 = 2;
    pub const OWN: i64 = 3;
}

/// Variables that the runtime compares with each other, as in `relax_rt::signature::OWN`.
const OWN: usize = 16;

/// Writes a node for each struct info.
struct Words<'a> {
    out: Vec<i64>,
    dim: &'a mut dyn FnMut(&PrimExpr) -> (i64, i64),
    /// Inside of a function among the parameters or results: its variables are its own.
    inner: bool,
}

impl Words<'_> {
    fn dims(&mut self, dims: &[PrimExpr]) {
        self.out.push(dims.len() as i64);
        for d in dims {
            let (tag, value) = match d.as_int() {
                Some(n) => (dim::LITERAL, n),
                None if self.inner => (dim::UNKNOWN, 0),
                None => (self.dim)(d),
            };
            self.out.extend([tag, value]);
        }
    }

    fn node(&mut self, info: &StructInfo) {
        let rank = |n: Option<usize>| n.map_or(-1, |n| n as i64);
        match info {
            StructInfo::Object => self.out.push(kind::OBJECT),
            StructInfo::Tensor(t) => {
                let dtype = t.dtype.map_or(0, |d| dtype_word(d) as i64);
                self.out.extend([kind::TENSOR, rank(t.ndim), dtype]);
                self.dims(t.known_dims().unwrap_or_default());
            }
            StructInfo::Shape { values, ndim } => {
                self.out.extend([kind::SHAPE, rank(ndim.or(values.as_ref().map(Vec::len)))]);
                self.dims(values.as_deref().unwrap_or_default());
            }
            StructInfo::Prim { dtype, value } => {
                self.out.extend([kind::SCALAR, dtype_word(*dtype) as i64]);
                let value = value.as_ref().filter(|v| v.dtype() == DType::I64);
                self.dims(value.map(std::slice::from_ref).unwrap_or_default());
            }
            StructInfo::Tuple(fields) => {
                self.out.extend([kind::TUPLE, fields.len() as i64]);
                fields.iter().for_each(|f| self.node(f));
            }
            StructInfo::Func(f) => {
                let before = std::mem::replace(&mut self.inner, true);
                self.function(f);
                self.inner = before;
            }
            StructInfo::Str | StructInfo::DType => self.out.push(kind::TEXT),
        }
    }

    fn function(&mut self, f: &FuncInfo) {
        let Some(params) = &f.params else {
            self.out.push(kind::PACKED);
            return;
        };
        self.out.extend([kind::FUNCTION, f.pure as i64, params.len() as i64]);
        params.iter().for_each(|p| self.node(p));
        self.node(&f.ret);
    }
}

fn words(f: &FuncInfo, dim: &mut dyn FnMut(&PrimExpr) -> (i64, i64)) -> Vec<i64> {
    let mut w = Words { out: vec![], dim, inner: false };
    w.function(f);
    w.out
}

/// The variables that each call binds.
fn own_vars(f: &FuncInfo) -> Vec<Var> {
    let params = f.params.as_deref().unwrap_or_default();
    vars::lone_vars(params).into_iter().map(|(v, _)| v).collect()
}

/// A dim that is a variable of the call.
fn own(d: &PrimExpr, own: &[Var]) -> Option<(i64, i64)> {
    let at = own.iter().position(|v| d.as_var() == Some(v)).filter(|i| *i < OWN)?;
    Some((dim::OWN, at as i64))
}

impl Gen<'_, '_> {
    /// Of a function of the module.
    pub fn signature_of_global(&self, name: &str) -> Option<Vec<i64>> {
        self.signature_of_bound(name, 0)
    }

    /// Of a function of the module whose last parameters are given.
    pub fn signature_of_bound(&self, name: &str, given: usize) -> Option<Vec<i64>> {
        let (mut info, kernel) = match self.typed.module.get(name)? {
            Func::Relax(f) => (signature::of_function(f), None),
            Func::Prim(f) => (signature::of_prim_func(f), Some(kind::KERNEL)),
        };
        if let Some(params) = &mut info.params {
            params.truncate(params.len().saturating_sub(given));
        }
        let variables = own_vars(&info);
        let words = words(&info, &mut |d| own(d, &variables).unwrap_or((dim::UNKNOWN, 0)));
        Some(kernel.into_iter().chain(words).collect())
    }

    /// Of a local function; the dims around it that it states join the captured `values`.
    pub fn signature_of_local(
        &mut self,
        f: &Function,
        this: Option<&RVar>,
        scope: &Scope,
        values: &mut Vec<Dyn>,
        span: Span,
    ) -> Res<Vec<i64>> {
        let info = match this.and_then(|v| self.typed.sinfo.get(v)) {
            Some(StructInfo::Func(info)) if info.params.is_some() => (**info).clone(),
            _ => signature::of_function(f),
        };
        let mut variables = own_vars(&info);
        variables.retain(|v| !scope.dims.contains_key(v));
        let mut outer: Vec<PrimExpr> = vec![];
        let first = values.len();
        let words = words(&info, &mut |d| {
            if let Some(own) = own(d, &variables) {
                return own;
            }
            if d.dtype() != DType::I64 || d.vars().iter().any(|v| variables.contains(v) || !scope.dims.contains_key(v))
            {
                return (dim::UNKNOWN, 0);
            }
            let at = outer.iter().position(|o| o == d).unwrap_or_else(|| {
                outer.push(d.clone());
                outer.len() - 1
            });
            (dim::VALUE, (first + at) as i64)
        });
        for d in outer {
            values.push(Dyn::Prim(self.dim(&d, scope, span)?));
        }
        Ok(words)
    }

    /// Checks that the value is a function whose signature does not contradict `info`.
    pub fn match_function(&mut self, at: &PrimExpr, info: &FuncInfo, scope: &Scope, what: &str, span: Span) -> Res<()> {
        if self.trusted || self.b.pool.leaves_out(code::TYPE) {
            return Ok(());
        }
        let mut known: Vec<PrimExpr> = vec![];
        let words = words(info, &mut |d| {
            let open = |v: &Var| !scope.dims.contains_key(v);
            if d.dtype() != DType::I64 || d.vars().iter().any(open) {
                return (dim::UNKNOWN, 0);
            }
            known.push(d.clone());
            (dim::VALUE, known.len() as i64 - 1)
        });
        let dims = self.dims(&known, scope, span)?;
        let dims = if dims.is_empty() { null() } else { self.integers(&dims) };
        let symbol = self.b.pool.words(&words);
        let wanted = self.b.address(&symbol);
        let (number, what) = self.infos.add(code::TYPE, "a function of this type".to_string(), what.to_string(), span);
        let (call, what) = (self.b.call.clone(), self.b.text(&what));
        let number = PrimExpr::i32(number as i32);
        self.runtime("relax_rt_match_function", vec![call, at.clone(), wanted, dims, number, what]);
        Ok(())
    }

    /// Evaluating `R.ExternFunc` of a name that nobody registered is an error (relax_spec.md, "Evaluating Expressions", 8).
    pub fn must_be_registered(&mut self, name: &str) {
        if name == super::calls::PICTURE {
            return;
        }
        let symbol = self.b.pool.string(name);
        let text = self.b.address(&symbol);
        let params = vec![DType::HANDLE, DType::HANDLE];
        let find =
            Callee { ret: Some(DType::HANDLE), ..crate::host::build::runtime_callee("relax_rt_find_packed", params) };
        let row = self.b.call(find, vec![self.b.call.clone(), text]);
        let row = crate::host::build::address_of(row);
        let zero = PrimExpr::i64(0);
        let failure =
            Failure { code: code::PACKED, constraint: 0, wanted: zero.clone(), got: zero.clone(), what: name };
        self.b.fail_if(row.eq(zero), failure);
    }
}
