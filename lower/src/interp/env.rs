//! The state of a running kernel: variables in slots, buffers as views of byte stores.

use super::tensor::{read_float, read_int, write_float, write_int};
use relax_ir::{DType, Diagnostic, Span};

/// Compiled code. Expressions that fail record the fault in [`Env`] and go on with 0; statements look for it.
pub type IntFn = Box<dyn Fn(&mut Env) -> i64>;
pub type FloatFn = Box<dyn Fn(&mut Env) -> f64>;
pub type StmtFn = Box<dyn Fn(&mut Env) -> Flow>;

/// `Err` unwinds to the caller of the kernel, which finds the diagnostic in [`Env::fault`].
pub type Flow = Result<(), Halt>;
pub struct Halt;

/// A buffer at run time: part of a store.
#[derive(Clone, Debug, Default)]
pub struct View {
    pub store: usize,
    pub shape: Vec<i64>,
    pub strides: Vec<i64>,
    pub offset: i64,
}

pub struct Env {
    pub ints: Vec<i64>,
    pub floats: Vec<f64>,
    pub stores: Vec<Vec<u8>>,
    pub views: Vec<View>,
    pub fault: Option<Box<Diagnostic>>,
    pub budget: Budget,
}

/// What a kernel may still take.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Iterations of loops.
    pub steps: u64,
    /// Of one buffer that it allocates.
    pub bytes: i64,
}

impl Default for Budget {
    /// Any time.
    fn default() -> Budget {
        Budget { steps: u64::MAX, bytes: 1 << 34 }
    }
}

impl Env {
    /// Takes `n` steps from the budget.
    #[inline]
    pub fn steps(&mut self, n: i64, span: Span) -> Flow {
        let n = n.max(0) as u64;
        if n > self.budget.steps {
            self.fail(|| Diagnostic::error("too-long", span, "this takes too many steps"));
            return Err(Halt);
        }
        self.budget.steps -= n;
        Ok(())
    }

    /// Keeps the first fault only.
    #[cold]
    pub fn fail(&mut self, make: impl FnOnce() -> Diagnostic) {
        if self.fault.is_none() {
            self.fault = Some(Box::new(make()));
        }
    }

    pub fn check(&self) -> Flow {
        match self.fault {
            None => Ok(()),
            Some(_) => Err(Halt),
        }
    }
}

/// An index or extent: most are variables or literals, which need no call.
pub enum Index {
    Const(i64),
    Slot(usize),
    Fn(IntFn),
}

impl Index {
    #[inline]
    pub fn get(&self, env: &mut Env) -> i64 {
        match self {
            Index::Const(v) => *v,
            Index::Slot(s) => env.ints[*s],
            Index::Fn(f) => f(env),
        }
    }
}

/// An element of a buffer.
pub struct Access {
    pub buffer: String,
    pub dtype: DType,
    pub view: usize,
    pub indices: Vec<Index>,
    pub span: Span,
}

impl Access {
    /// Element number in its store; a fault when an index or the view leaves its bounds.
    #[inline]
    pub fn locate(&self, env: &mut Env, verb: &str) -> Option<(usize, usize)> {
        let mut at = env.views[self.view].offset;
        for (i, index) in self.indices.iter().enumerate() {
            let v = index.get(env);
            let view = &env.views[self.view];
            let extent = view.shape[i];
            if v as u64 >= extent as u64 || extent < 0 {
                self.out_of_bounds(env, verb, i, v, extent);
                return None;
            }
            at += v * view.strides[i];
        }
        let store = env.views[self.view].store;
        let n = self.dtype.bytes() as i64;
        if at < 0 || (at + 1) * n > env.stores[store].len() as i64 {
            self.out_of_bounds(env, verb, self.indices.len(), at, 0);
            return None;
        }
        Some((store, at as usize))
    }

    #[cold]
    fn out_of_bounds(&self, env: &mut Env, verb: &str, axis: usize, index: i64, extent: i64) {
        env.fail(|| {
            let what = if axis < self.indices.len() {
                format!("index {index} is out of bounds for axis {axis} with extent {extent}")
            } else {
                format!("element {index} lies outside of the memory of the buffer")
            };
            Diagnostic::error("out-of-bounds", self.span, format!("{verb} of buffer `{}`: {what}", self.buffer))
        })
    }

    #[inline]
    pub fn load_int(&self, env: &mut Env) -> i64 {
        match self.locate(env, "load") {
            Some((s, at)) => match (self.dtype.bytes(), self.dtype.is_signed()) {
                (4, true) => i32::from_le_bytes(four(&env.stores[s], at)) as i64,
                _ => read_int(self.dtype, &env.stores[s], at),
            },
            None => 0,
        }
    }

    #[inline]
    pub fn load_float(&self, env: &mut Env) -> f64 {
        match self.locate(env, "load") {
            Some((s, at)) if self.dtype == DType::F32 => f32::from_le_bytes(four(&env.stores[s], at)) as f64,
            Some((s, at)) => read_float(self.dtype, &env.stores[s], at),
            None => 0.0,
        }
    }

    #[inline]
    pub fn store_int(&self, env: &mut Env, v: i64) {
        if let Some((s, at)) = self.locate(env, "store") {
            write_int(self.dtype, &mut env.stores[s], at, v);
        }
    }

    #[inline]
    pub fn store_float(&self, env: &mut Env, v: f64) {
        if let Some((s, at)) = self.locate(env, "store") {
            write_float(self.dtype, &mut env.stores[s], at, v);
        }
    }
}

#[inline]
fn four(bytes: &[u8], at: usize) -> [u8; 4] {
    let b = &bytes[at * 4..at * 4 + 4];
    [b[0], b[1], b[2], b[3]]
}

/// Row-major strides in elements.
pub fn row_major(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![1i64; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i].wrapping_mul(shape[i].max(1));
    }
    strides
}
