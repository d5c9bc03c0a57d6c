//! Functions over the runtime's values: what cannot be laid out at compile time.
//!
//! Recursion, closures as values, packed functions, prints, branches of different structure, tensors of unknown rank:
//! a Relax function that needs one of these becomes a function of the closures' calling convention
//! (`relax_rt::value::ClosureFn`) over tagged, counted values. Kernels are the same as everywhere else.
//!
//! # Ownership
//!
//! Arguments and captured values are borrowed, the result is owned by the caller. All values that a function makes
//! live in its *frame*, an array of values on the stack; the function proper is an inner one that returns an error
//! code at any point, and the outer one gives up the frame in every case. So no path leaks.
//!
//! A call of the function itself in tail position becomes a round of the outer function's loop, with the arguments in
//! two arrays that change places.
//!
//! # The call record
//!
//! Inside, `call` is a copy of the caller's `P_call` with one field behind it ([`stack_base`]): the address from which
//! the depth of recursion is measured.

mod calls;
mod direct;
mod entry;
mod expr;
mod inspect;
mod matching;
mod open;
mod operators;
mod signature;
mod values;

pub use entry::compile as compile_entry;

use super::build::{address_of, local_callee, null, runtime_callee, Builder, Failure};
use super::Context;
use expr::Gen;
use relax_ir::abi::AbiLayout;
use relax_ir::analysis::{signature as signatures, Typed};
use relax_ir::attrs::Attrs;
use relax_ir::flat::{Callee, FlatStmt, Linkage};
use relax_ir::program::code;
use relax_ir::relax::{
    Binding, BindingBlock, BindingValue, Call, Callee as Called, Expr, ExprKind, Function, Param, RVar, SeqExpr,
    StructInfo,
};
use relax_ir::tir::{PrimFunc, PrimParam};
use relax_ir::{DType, Diagnostic, PrimExpr, Var};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Bytes of a value.
pub(crate) const VALUE: i64 = 16;
/// Bytes of a closure before its captured values.
const CLOSURE_HEAD: i64 = 24;
/// Bytes of stack that recursion may take.
const STACK_LIMIT: i64 = 1 << 20;
/// What the inner function returns for another round.
const AGAIN: i32 = -1;

/// Tags of values, as in `relax_rt::value::tag`.
pub(crate) mod tag {
    pub const NULL: i32 = 0;
    pub const INT: i32 = 1;
    pub const FLOAT: i32 = 2;
    pub const BOOL: i32 = 3;
    pub const TENSOR: i32 = 8;
    pub const SHAPE: i32 = 9;
    pub const TUPLE: i32 = 10;
    pub const CLOSURE: i32 = 11;
    pub const STR: i32 = 13;
}

/// Where the address that recursion is measured from lies in the inner call record.
pub(crate) fn stack_base(abi: AbiLayout) -> i64 {
    (abi.call_size as i64 + 7) / 8 * 8
}

/// A function to be written.
pub(crate) struct Pending {
    pub symbol: String,
    pub kind: Kind,
}

pub(crate) enum Kind {
    Global(String),
    /// A local function over captured variables, then captured dims.
    Local {
        function: Arc<Function>,
        this: Option<RVar>,
        captured: Vec<RVar>,
        dims: Vec<Var>,
    },
    /// Calls the packed function of this name.
    Packed(String),
    /// Calls the function `symbol` with the captured values behind the arguments.
    Bound {
        target: String,
        count: usize,
    },
}

/// Functions over values that were asked for.
#[derive(Default)]
pub struct Queue {
    pub(crate) globals: HashMap<String, String>,
    pub(crate) packed: HashMap<String, String>,
    pub(crate) pending: VecDeque<Pending>,
    pub(crate) count: usize,
    direct: Option<std::rc::Rc<direct::Direct>>,
}

impl Queue {
    /// Which functions are called directly only.
    pub(crate) fn direct(&mut self, typed: &Typed) -> std::rc::Rc<direct::Direct> {
        self.direct.get_or_insert_with(|| std::rc::Rc::new(direct::Direct::new(typed))).clone()
    }

    /// A new symbol.
    pub(crate) fn fresh(&mut self, prefix: &str, name: &str) -> String {
        self.count += 1;
        let clean: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        format!("{prefix}__f{}_{clean}", self.count)
    }

    pub(crate) fn global(&mut self, prefix: &str, name: &str) -> String {
        if let Some(s) = self.globals.get(name) {
            return s.clone();
        }
        let symbol = self.fresh(prefix, name);
        self.globals.insert(name.to_string(), symbol.clone());
        self.pending.push_back(Pending { symbol: symbol.clone(), kind: Kind::Global(name.to_string()) });
        symbol
    }

    pub(crate) fn packed(&mut self, prefix: &str, name: &str) -> String {
        if let Some(s) = self.packed.get(name) {
            return s.clone();
        }
        let symbol = self.fresh(prefix, name);
        self.packed.insert(name.to_string(), symbol.clone());
        self.pending.push_back(Pending { symbol: symbol.clone(), kind: Kind::Packed(name.to_string()) });
        symbol
    }

    pub(crate) fn other(&mut self, prefix: &str, name: &str, kind: Kind) -> String {
        let symbol = self.fresh(prefix, name);
        self.pending.push_back(Pending { symbol: symbol.clone(), kind });
        symbol
    }
}

/// The signature of functions over values: `i32(call, captured, args, n, result)`.
pub(crate) fn value_callee(symbol: &str) -> Callee {
    let h = DType::HANDLE;
    local_callee(symbol, vec![h, h, h, DType::I32, h], Some(DType::I32))
}

/// Writes every function that is pending, and those that these ask for.
pub(crate) fn drain(cx: &mut Context, typed: &Typed) -> Result<(), Diagnostic> {
    while let Some(p) = cx.dynamic.pending.pop_front() {
        match p.kind {
            Kind::Global(name) => match typed.module.get(&name) {
                Some(relax_ir::Func::Relax(f)) => function(cx, typed, &p.symbol, f, None, &[], &[])?,
                Some(relax_ir::Func::Prim(f)) => function(cx, typed, &p.symbol, &kernel_function(f), None, &[], &[])?,
                None => {
                    let what = format!("the module has no function named {name}");
                    return Err(Diagnostic::internal(relax_ir::Span::NONE, what));
                }
            },
            Kind::Local { function: f, this, captured, dims } => {
                function(cx, typed, &p.symbol, &f, this, &captured, &dims)?;
            }
            Kind::Packed(name) => packed_thunk(cx, &p.symbol, &name),
            Kind::Bound { target, count } => bound_thunk(cx, &p.symbol, &target, count),
        }
    }
    Ok(())
}

/// A PrimFunc as a value: the function that calls it with its parameters.
fn kernel_function(prim: &PrimFunc) -> Function {
    let info = match signatures::of_global(&relax_ir::Func::Prim(prim.clone())) {
        StructInfo::Func(f) => f.params.clone().unwrap_or_default(),
        _ => vec![],
    };
    let span = relax_ir::Span::NONE;
    let var = |(p, info): (&PrimParam, StructInfo)| {
        let name = match p {
            PrimParam::Buffer { buffer, .. } => buffer.name.to_string(),
            PrimParam::Scalar(v) | PrimParam::Handle { handle: v, .. } => v.name().to_string(),
        };
        Param { var: RVar::new(name, false, span), annotation: Some(info) }
    };
    let params: Vec<Param> = prim.params.iter().zip(info).map(var).collect();
    let call = Call {
        callee: Called::Expr(Expr::new(ExprKind::GlobalVar(prim.name.clone()), span)),
        args: params.iter().map(|p| Expr::new(ExprKind::Var(p.var.clone()), span)).collect(),
        attrs: Attrs::default(),
        sinfo_args: vec![],
    };
    let result = RVar::new("result", false, span);
    let value = BindingValue::Expr(Expr::new(ExprKind::Call(call), span));
    let binding = Binding { var: result.clone(), annotation: None, value, span };
    let block = BindingBlock { dataflow: false, bindings: vec![binding], span };
    Function {
        // Not the kernel's own name: it does not call itself.
        name: format!("kernel {}", prim.name),
        params,
        ret: None,
        body: Arc::new(SeqExpr { blocks: vec![block], body: Expr::new(ExprKind::Var(result), span) }),
        attrs: Attrs::default(),
        private: true,
        pure: false,
        span,
        signature_span: span,
    }
}

struct Params {
    call: Var,
    captured: Var,
    args: Var,
    n: Var,
    result: Var,
}

impl Params {
    fn new() -> Params {
        let h = |n: &str| Var::new(n, DType::HANDLE);
        Params {
            call: h("call"),
            captured: h("captured"),
            args: h("args"),
            n: Var::new("n", DType::I32),
            result: h("result"),
        }
    }
    fn list(self) -> Vec<Var> {
        vec![self.call, self.captured, self.args, self.n, self.result]
    }
}

/// The pair of functions of one Relax function.
fn function(
    cx: &mut Context,
    typed: &Typed,
    symbol: &str,
    f: &Function,
    this: Option<RVar>,
    captured: &[RVar],
    dims: &[Var],
) -> Result<(), Diagnostic> {
    let inner = format!("{symbol}_body");
    let h = |n: &str| Var::new(n, DType::HANDLE);
    let again = Var::new("again", DType::I32);
    let params = [h("call"), h("captured"), h("args"), h("frame"), h("next"), h("result"), again];
    let mut g = Gen::new(cx, typed, &params[0], &params[3]);
    g.next = params[4].expr();
    g.result = params[5].expr();
    g.again = params[6].expr();
    let tail = g.function(f, this, captured, dims, &params[1].expr(), &params[2].expr())?;
    let (slots, builder) = g.finish();
    let body = builder.finish(inner.clone(), params.to_vec(), Some(DType::I32), Linkage::Local);
    cx.funcs.push(body);
    outer(cx, symbol, &inner, f, slots, tail);
    Ok(())
}

/// The outer function: depth, frame, rounds.
fn outer(cx: &mut Context, symbol: &str, inner: &str, f: &Function, slots: usize, tail: bool) {
    let p = Params::new();
    let abi = cx.abi;
    let mut b = Builder::new(&mut cx.pool, abi, p.call.expr());
    clear(&mut b, &p.result.expr(), 1);
    let mark = b.stack("mark", 8, 8);
    let base = b.load("base", &p.call.expr(), stack_base(abi), DType::I64);
    let distance = b.bind("distance", base - address_of(mark));
    let used = b.bind("used", distance.clone().max(PrimExpr::i64(0) - distance));
    let limit = PrimExpr::i64(STACK_LIMIT);
    let what = format!("recursion of {}, stack in bytes", f.name);
    let failure = Failure { code: code::STACK, constraint: 0, wanted: limit.clone(), got: used.clone(), what: &what };
    b.fail_if(used.gt(limit), failure);
    let count = f.params.len() as i64;
    let what = format!("number of arguments of {}", f.name);
    let (wanted, got) = (PrimExpr::i64(count), p.n.expr().cast(DType::I64));
    let differ = got.clone().ne(wanted.clone());
    b.fail_if(differ, Failure { code: code::TYPE, constraint: 0, wanted, got, what: &what });

    let frame = b.stack("frame", (slots as i64 * VALUE) as u32, 16);
    clear(&mut b, &frame, slots);
    let (own, next) = if tail {
        let own = b.stack("own", (count * VALUE) as u32, 16);
        let next = b.stack("next", (count * VALUE) as u32, 16);
        clear(&mut b, &own, count as usize);
        clear(&mut b, &next, count as usize);
        (own, next)
    } else {
        (null(), null())
    };
    let h = DType::HANDLE;
    let callee = local_callee(inner, [vec![h; 6], vec![DType::I32]].concat(), Some(DType::I32));
    let args = b.local("now", p.args.expr());
    let again = b.local("again", PrimExpr::i32(0));
    let rc = b.local("code", PrimExpr::i32(AGAIN));
    b.open();
    let values = [p.call.expr(), p.captured.expr(), args.expr(), frame.clone(), next.clone(), p.result.expr()];
    let call = [values.to_vec(), vec![again.expr()]].concat();
    let got = b.call(callee, call);
    b.assign(&rc, got);
    drop_all(&mut b, &frame, slots);
    if tail {
        b.if_then(rc.expr().eq(PrimExpr::i32(AGAIN)), |b| {
            drop_all(b, &own, count as usize);
            for i in 0..count {
                copy_value(b, &next, i * VALUE, &own, i * VALUE);
            }
            clear(b, &next, count as usize);
            b.assign(&args, own.clone());
            b.assign(&again, PrimExpr::i32(1));
        });
    }
    let body = b.close();
    b.push(FlatStmt::While { cond: rc.expr().eq(PrimExpr::i32(AGAIN)), body });
    if tail {
        drop_all(&mut b, &own, count as usize);
        drop_all(&mut b, &next, count as usize);
    }
    b.ret(rc.expr());
    let f = b.finish(symbol.to_string(), p.list(), Some(DType::I32), Linkage::Local);
    cx.funcs.push(f);
}

/// Sets values to null.
pub(crate) fn clear(b: &mut Builder, values: &PrimExpr, count: usize) {
    if count <= 4 {
        for i in 0..count as i64 {
            b.store(values, i * VALUE, PrimExpr::i64(0));
            b.store(values, i * VALUE + 8, PrimExpr::i64(0));
        }
        return;
    }
    let values = values.clone();
    b.for_range("i", PrimExpr::i64(count as i64 * 2), |b, i| {
        b.push(FlatStmt::Store { ptr: values, offset: i, value: PrimExpr::i64(0) });
    });
}

/// One owner less for each of these values; they become null.
pub(crate) fn drop_all(b: &mut Builder, values: &PrimExpr, count: usize) {
    let callee = Callee { ret: None, ..runtime_callee("relax_rt_drop", vec![DType::HANDLE]) };
    let values = values.clone();
    if count > 0 {
        b.for_range("i", PrimExpr::i64(count as i64), |b, i| {
            let at = b.bind("at", values.ptr_add(i * PrimExpr::i64(VALUE)));
            b.push(FlatStmt::Call { callee, args: vec![at], result: None });
        });
    }
}

/// Copies the bits of a value.
pub(crate) fn copy_value(b: &mut Builder, from: &PrimExpr, from_at: i64, to: &PrimExpr, to_at: i64) {
    for k in [0, 8] {
        let word = b.load("word", from, from_at + k, DType::I64);
        b.store(to, to_at + k, word);
    }
}

/// A packed function as the code of a closure.
fn packed_thunk(cx: &mut Context, symbol: &str, name: &str) {
    let p = Params::new();
    let abi = cx.abi;
    let text = cx.pool.string(name);
    let mut b = Builder::new(&mut cx.pool, abi, p.call.expr());
    let h = DType::HANDLE;
    let text = b.address(&text);
    let callee = runtime_callee("relax_rt_call_packed", vec![h, h, h, DType::I32, h]);
    let rc = b.call(callee, vec![p.call.expr(), text, p.args.expr(), p.n.expr(), p.result.expr()]);
    b.ret(rc);
    let f = b.finish(symbol.to_string(), p.list(), Some(DType::I32), Linkage::Local);
    cx.funcs.push(f);
}

/// `R.make_closure`: the captured values follow the arguments.
fn bound_thunk(cx: &mut Context, symbol: &str, target: &str, count: usize) {
    let p = Params::new();
    let abi = cx.abi;
    let mut b = Builder::new(&mut cx.pool, abi, p.call.expr());
    clear(&mut b, &p.result.expr(), 1);
    // As many arguments as such a closure can be called with.
    const MOST: i64 = 64;
    let all = b.stack("all", ((MOST + count as i64) * VALUE) as u32, 16);
    let n = p.n.expr().cast(DType::I64);
    let what = "number of arguments of a closure";
    let failure = Failure { code: code::TYPE, constraint: 0, wanted: PrimExpr::i64(MOST), got: n.clone(), what };
    b.fail_if(n.clone().gt(PrimExpr::i64(MOST)), failure);
    let (from, to) = (p.args.expr(), all.clone());
    b.for_range("i", n.clone() * PrimExpr::i64(2), |b, i| {
        let word = PrimExpr::load_ptr(from, i.clone(), DType::I64);
        b.push(FlatStmt::Store { ptr: to, offset: i, value: word });
    });
    let behind = b.bind("behind", all.clone().ptr_add(n.clone() * PrimExpr::i64(VALUE)));
    for i in 0..count as i64 {
        copy_value(&mut b, &p.captured.expr(), i * VALUE, &behind, i * VALUE);
    }
    let total = p.n.expr() + PrimExpr::i32(count as i32);
    let rc = b.call(value_callee(target), vec![p.call.expr(), null(), all, total, p.result.expr()]);
    b.ret(rc);
    let f = b.finish(symbol.to_string(), p.list(), Some(DType::I32), Linkage::Local);
    cx.funcs.push(f);
}
