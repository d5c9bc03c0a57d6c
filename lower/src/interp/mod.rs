//! The reference interpreter: runs a PrimFunc in block form on plain tensors, one scalar at a time.
//!
//! It is the oracle of tests and folds constants, so it values plain meaning over speed (some ten million steps a
//! second, some hundred million in innermost loops over float32): every operation is rounded or wrapped to its type, every
//! load and store is bounds-checked, nothing is reordered. Transcendental functions are those of `std` in f64, rounded once to the type.
//!
//! ```
//! use relax_ir::{tir::KernelBuilder, DType};
//! use relax_lower::interp::{run, Arg, Tensor};
//!
//! let n = relax_ir::Var::dim("n");
//! let mut k = KernelBuilder::new("double");
//! let x = k.input("x", &[n.expr()], DType::F32);
//! let y = k.compute("y", &[n.expr()], DType::F32, |i| x.at(i) + x.at(i));
//! let f = k.finish(&[y]);
//!
//! let mut args = [
//!     Arg::Tensor(Tensor::from_f32(&[3], &[1.0, 2.0, 3.0])),
//!     Arg::Tensor(Tensor::zeros(DType::F32, &[3])),
//! ];
//! run(&f, &mut args).unwrap();
//! assert_eq!(args[1].tensor().unwrap().to_f32(), [2.0, 4.0, 6.0]);
//! ```
//!
//! * One [`Arg`] per parameter, in order, outputs too. Shape variables take their values from the tensors' shapes
//!   (first those that stand alone as a dim), scalar parameters from [`Arg::Scalar`] and [`Arg::Float`].
//! * A block's init runs where every reduce axis is at its minimum. Where a reduction is empty (a reduce loop of
//!   extent 0), the output is the init value.
//! * Buffers that a kernel allocates start as zeros.
//! * Faults are diagnostics: an index out of bounds, a division of integers by zero, a shape or dtype that does not
//!   match its parameter, a failed `T.Assert`.

mod env;
mod expr;
mod lines;
pub(crate) mod scalar;
mod stmt;
pub(crate) mod tensor;

pub use env::Budget;
pub use tensor::{Arg, Tensor};

use env::{row_major, Env, StmtFn, View};
use expr::{Compiler, Slot};
use relax_ir::prim::PrimExpr;
use relax_ir::tir::{Buffer, PrimFunc, PrimParam, TensorField};
use relax_ir::{Diagnostic, Span};

/// Runs `f`; output tensors among `args` hold the results afterwards.
pub fn run(f: &PrimFunc, args: &mut [Arg]) -> Result<(), Diagnostic> {
    Kernel::new(f)?.run(args)
}

/// As [`run`], within a budget from which is taken what the run took.
pub fn run_within(f: &PrimFunc, args: &mut [Arg], budget: &mut Budget) -> Result<(), Diagnostic> {
    Kernel::new(f)?.run_within(args, budget)
}

/// A PrimFunc made ready to run, any number of times.
pub struct Kernel {
    name: String,
    span: Span,
    params: Vec<Param>,
    n_ints: usize,
    n_floats: usize,
    n_views: usize,
    allocs: Vec<StmtFn>,
    body: StmtFn,
}

struct Param {
    buffer: Option<(Buffer, usize)>,
    /// Of a handle: what is read of the struct of its tensor.
    fields: Option<Vec<(TensorField, usize)>>,
    /// Of a scalar parameter.
    scalar: Option<Slot>,
    /// Per dim: the variable it binds.
    binds: Vec<Option<usize>>,
    /// Per dim: what it must equal.
    dims: Vec<env::IntFn>,
    /// Variables of strides (with their axis) and of the element offset.
    strides: Vec<(usize, usize)>,
    offset: Option<usize>,
}

impl Kernel {
    /// Compiles `f`; diagnostics name what the interpreter cannot run (vector expressions) and undefined names.
    pub fn new(f: &PrimFunc) -> Result<Kernel, Diagnostic> {
        let mut c = Compiler::default();
        let mut params = vec![];
        for p in &f.params {
            let mut param = Param {
                buffer: None,
                fields: None,
                scalar: None,
                binds: vec![],
                dims: vec![],
                strides: vec![],
                offset: None,
            };
            match p {
                PrimParam::Scalar(v) => param.scalar = Some(c.define(v)),
                PrimParam::Buffer { buffer, .. } => param.buffer = Some((buffer.clone(), c.define_buffer(buffer))),
                PrimParam::Handle { fields, .. } => {
                    let slots = fields.iter().map(|(f, v)| Ok((*f, c.define_int(v)?)));
                    param.fields = Some(slots.collect::<Result<_, Diagnostic>>()?);
                }
            }
            params.push(param);
        }
        for p in &mut params {
            let Some((b, _)) = &p.buffer else { continue };
            for d in &b.shape {
                p.binds.push(bind(&mut c, d)?);
            }
            for (axis, s) in b.strides.iter().enumerate() {
                p.strides.extend(bind(&mut c, s)?.map(|slot| (axis, slot)));
            }
            if let Some(o) = &b.elem_offset {
                p.offset = bind(&mut c, o)?;
            }
        }
        for p in &mut params {
            if let Some((b, _)) = &p.buffer {
                p.dims = b.shape.iter().map(|d| c.int(d)).collect::<Result<_, _>>()?;
            }
        }
        let allocs = f.alloc_buffers.iter().map(|b| c.alloc(b, f.span)).collect::<Result<Vec<_>, _>>()?;
        let body = c.stmt(&f.body)?;
        let (n_ints, n_floats, n_views) = (c.n_ints, c.n_floats, c.n_views);
        Ok(Kernel { name: f.name.clone(), span: f.span, params, n_ints, n_floats, n_views, allocs, body })
    }

    /// As [`run`].
    pub fn run(&self, args: &mut [Arg]) -> Result<(), Diagnostic> {
        self.run_within(args, &mut Budget::default())
    }

    fn run_within(&self, args: &mut [Arg], budget: &mut Budget) -> Result<(), Diagnostic> {
        if args.len() != self.params.len() {
            return Err(self.error(format!("takes {} arguments, {} were given", self.params.len(), args.len())));
        }
        let mut env = Env {
            ints: vec![0; self.n_ints],
            floats: vec![0.0; self.n_floats],
            stores: vec![vec![]; self.n_views],
            views: vec![View::default(); self.n_views],
            fault: None,
            budget: *budget,
        };
        self.bind(args, &mut env)?;
        for (p, a) in self.params.iter().zip(args.iter_mut()) {
            if let (Some((_, view)), Arg::Tensor(t)) = (&p.buffer, a) {
                env.stores[*view] = std::mem::take(&mut t.data);
            }
        }
        let done = stmt::run_all(&self.allocs, &mut env).and_then(|()| (self.body)(&mut env));
        *budget = env.budget;
        for (p, a) in self.params.iter().zip(args.iter_mut()) {
            if let (Some((_, view)), Arg::Tensor(t)) = (&p.buffer, a) {
                t.data = std::mem::take(&mut env.stores[*view]);
            }
        }
        match (done, env.fault) {
            (_, Some(d)) => Err(d.note(format!("in PrimFunc `{}`, run by the reference interpreter", self.name))),
            (Ok(()), None) => Ok(()),
            (Err(_), None) => Err(Diagnostic::internal(self.span, "the interpreter stopped without a reason")),
        }
    }

    fn error(&self, text: String) -> Diagnostic {
        Diagnostic::error("argument", self.span, format!("PrimFunc `{}`: {text}", self.name))
    }

    fn bind(&self, args: &[Arg], env: &mut Env) -> Result<(), Diagnostic> {
        for (i, (p, a)) in self.params.iter().zip(args).enumerate() {
            match (p.scalar, a) {
                (Some(Slot::Int(s)), Arg::Scalar(v)) => env.ints[s] = *v,
                (Some(Slot::Float(s)), Arg::Float(v)) => env.floats[s] = *v,
                (Some(Slot::Float(s)), Arg::Scalar(v)) => env.floats[s] = *v as f64,
                (None, Arg::Tensor(t)) => {
                    for (field, slot) in p.fields.iter().flatten() {
                        env.ints[*slot] = field.of(Some(t.dtype), Some(t.shape.len())).unwrap_or(0);
                    }
                }
                _ => return Err(self.error(format!("argument {} is of the wrong kind", i + 1))),
            }
        }
        let tensors = || {
            self.params.iter().zip(args).filter_map(|(p, a)| match (&p.buffer, a) {
                (Some((b, view)), Arg::Tensor(t)) => Some((p, b, *view, t)),
                _ => None,
            })
        };
        for (p, b, view, t) in tensors() {
            let bytes = t.elements() as i64 == t.shape.iter().product::<i64>();
            if t.dtype != b.dtype() || t.shape.len() != b.ndim() || !bytes {
                let want = format!("{} of {} dims", b.dtype(), b.ndim());
                let got = format!("{} of shape {:?} with {} bytes", t.dtype, t.shape, t.data.len());
                return Err(self.error(format!("`{}` is {want}, got {got}", b.name)));
            }
            let strides = row_major(&t.shape);
            for (slot, v) in p.binds.iter().zip(&t.shape) {
                if let Some(s) = slot {
                    env.ints[*s] = *v;
                }
            }
            for (axis, s) in &p.strides {
                env.ints[*s] = strides.get(*axis).copied().unwrap_or(1);
            }
            if let Some(s) = p.offset {
                env.ints[s] = 0;
            }
            env.views[view] = View { store: view, shape: t.shape.clone(), strides, offset: 0 };
        }
        for (p, b, _, t) in tensors() {
            for (axis, want) in p.dims.iter().enumerate() {
                let (want, got) = (want(env), t.shape[axis]);
                if want != got {
                    return Err(self.error(format!("dim {axis} of `{}` must be {want}, got {got}", b.name)));
                }
            }
        }
        match env.fault.take() {
            Some(d) => Err(*d),
            None => Ok(()),
        }
    }
}

/// The slot of a variable that an argument defines.
fn bind(c: &mut Compiler, e: &PrimExpr) -> Result<Option<usize>, Diagnostic> {
    match e.as_var() {
        Some(v) if !c.is_defined(v) => Ok(Some(c.define_int(v)?)),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests;
