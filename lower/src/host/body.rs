//! The body of a Relax function in flat TIR: kernel calls, copies, scalar reads and writes, checks and branches over
//! placed buffers.

use super::build::{local_callee, Builder, Failure};
use super::memory::Layout;
use super::plan::Plan;
use super::value::*;
use super::Stored;
use relax_ir::flat::{Callee, FlatStmt};
use relax_ir::{DType, PrimExpr, Var};
use std::collections::HashMap;

/// What the steps need to know to become code.
pub struct Body<'a> {
    pub prefix: &'a str,
    pub plan: &'a Plan,
    pub layout: &'a Layout,
    /// Pointer variables of the flattened parameters, by `Place::Param` index.
    pub params: HashMap<usize, Var>,
    /// Pointer variables of the flattened results.
    pub results: Vec<Var>,
    pub workspace: Var,
    /// The starts of the memories, when there are several.
    pub regions: Vec<PrimExpr>,
    /// The constants, by buffer.
    pub constants: HashMap<usize, Stored>,
    /// Start of the weights file, when a constant is in it.
    pub weights: Option<PrimExpr>,
    /// Whether the kernel (by name) takes a workspace pointer.
    pub kernel_symbol: &'a dyn Fn(&str) -> String,
}

impl Body<'_> {
    pub fn steps(&self, b: &mut Builder, steps: &[Step]) {
        for s in steps {
            self.step(b, s);
        }
    }

    fn pointer(&self, b: &mut Builder, id: BufId) -> PrimExpr {
        match &self.plan.bufs[id.0].place {
            Place::Param(i) => self.params.get(i).map_or_else(super::build::null, Var::expr),
            Place::Result(i) => self.results[*i].expr(),
            Place::Constant(_) => match self.constants.get(&id.0) {
                Some(Stored::Symbol(symbol)) => b.address(symbol),
                Some(Stored::External(at)) => {
                    let start = self.weights.clone().unwrap_or_else(super::build::null);
                    start.ptr_add(PrimExpr::i64(*at as i64))
                }
                None => super::build::null(),
            },
            Place::Part { of, at } => self.pointer(b, *of).ptr_add(at.clone()),
            Place::Workspace => match &self.layout.offsets[id.0] {
                Some(o) => {
                    let base = self.layout.region_of.get(id.0).and_then(|&r| self.regions.get(r));
                    base.cloned().unwrap_or_else(|| self.workspace.expr()).ptr_add(o.clone())
                }
                None => self.workspace.expr(),
            },
        }
    }

    fn step(&self, b: &mut Builder, s: &Step) {
        match s {
            Step::Kernel { kernel, buffers, dims, scratch, .. } => {
                let mut args: Vec<PrimExpr> = buffers.iter().map(|&x| self.pointer(b, x)).collect();
                args.extend(dims.iter().cloned());
                args.extend(scratch.map(|x| self.pointer(b, x)));
                let params: Vec<DType> = args.iter().map(|a| a.dtype()).collect();
                let symbol = (self.kernel_symbol)(kernel);
                b.push(FlatStmt::Call { callee: local_callee(&symbol, params, None), args, result: None });
            }
            Step::Copy { from, to, bytes } => {
                if from == to {
                    return;
                }
                let (from, to) = (self.pointer(b, *from), self.pointer(b, *to));
                b.push(FlatStmt::Call {
                    callee: copy_callee(self.prefix),
                    args: vec![to, from, bytes.clone()],
                    result: None,
                });
            }
            Step::Write { to, values } => {
                let to = self.pointer(b, *to);
                for (i, v) in values.iter().enumerate() {
                    b.push(FlatStmt::Store { ptr: to.clone(), offset: PrimExpr::i64(i as i64), value: v.clone() });
                }
            }
            Step::Read { var, from, index, dtype } => {
                let from = self.pointer(b, *from);
                if dtype.is_handle() {
                    b.let_var(var, from);
                    return;
                }
                let x = PrimExpr::load_ptr(from, PrimExpr::i64(*index as i64), *dtype);
                b.let_var(var, x.cast(var.dtype()));
            }
            Step::Check { .. } => checks(b, std::slice::from_ref(s)),
            Step::If { condition, then, otherwise } => {
                let then = b.nested(|b| self.steps(b, then));
                let otherwise = b.nested(|b| self.steps(b, otherwise));
                b.push(FlatStmt::If { cond: condition.clone(), then, otherwise });
            }
        }
    }
}

/// The checks among these steps.
pub fn checks(b: &mut Builder, steps: &[Step]) {
    for s in steps {
        let Step::Check { condition, code, constraint, wanted, got, what, numbers } = s else { continue };
        let (wanted, got) = (wanted.clone(), got.clone());
        let failure = Failure { code: *code, constraint: *constraint as i32, wanted, got, what: what.as_str() };
        b.fail_if_filled(condition.clone().not(), failure, numbers);
    }
}

/// `void P__copy(void *to, const void *from, int64_t bytes)`
pub fn copy_callee(prefix: &str) -> Callee {
    local_callee(&format!("{prefix}__copy"), vec![DType::HANDLE, DType::HANDLE, DType::I64], None)
}

/// The copy function: 16 bytes at a time, then the rest.
pub fn copy_function(
    pool: &mut super::build::Pool,
    prefix: &str,
    abi: relax_ir::abi::AbiLayout,
) -> relax_ir::flat::FlatFunc {
    let to = Var::new("to", DType::HANDLE);
    let from = Var::new("from", DType::HANDLE);
    let bytes = Var::new("bytes", DType::I64);
    let mut b = Builder::new(pool, abi, super::build::null());
    let sixteen = PrimExpr::i64(16);
    let whole = b.bind("whole", bytes.expr().floor_div(sixteen.clone()));
    b.for_range("i", whole.clone(), |b, i| {
        let at = b.bind("at", i * PrimExpr::i64(4));
        let x = PrimExpr::load_ptr(from.expr(), at.clone(), DType::I32.with_lanes(4));
        b.push(FlatStmt::Store { ptr: to.expr(), offset: at, value: x });
    });
    let done = b.bind("done", whole * sixteen);
    b.for_range("j", bytes.expr() - done.clone(), |b, j| {
        let at = b.bind("at", done.clone() + j);
        let x = PrimExpr::load_ptr(from.expr(), at.clone(), DType::U8);
        b.push(FlatStmt::Store { ptr: to.expr(), offset: at, value: x });
    });
    b.push(FlatStmt::Return(None));
    b.finish(format!("{prefix}__copy"), vec![to, from, bytes], None, relax_ir::flat::Linkage::Local)
}
