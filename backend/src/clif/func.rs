//! One flat function to one Cranelift function: statements and expressions.

use super::symbols::{callee_signature, func_signature, Symbols};
use super::value::*;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    types, Block, BlockArg, ExtFuncData, ExternalName, FuncRef, Function, GlobalValue, GlobalValueData, InstBuilder,
    StackSlotData, StackSlotKind, Type, UserExternalName, UserFuncName, Value,
};
use cranelift_codegen::isa::{CallConv, TargetIsa};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};
use fnv::FnvHashMap;
use relax_ir::flat::{Callee, FlatFunc, FlatStmt, Linkage};
use relax_ir::prim::{BinOp, PrimExpr, PrimKind, Var};
use relax_ir::{DType, Diagnostic, Span};

/// What a variable stands for.
enum Binding {
    Value(Val),
    Register { rep: Rep, vars: Vec<Variable> },
}

/// Translates one function.
pub(super) struct Fx<'a> {
    pub b: FunctionBuilder<'a>,
    symbols: &'a Symbols,
    conv: CallConv,
    span: Span,
    pic: bool,
    /// 128-bit vectors; otherwise every lane is a scalar.
    pub simd: bool,
    pub has_fma: bool,
    /// `floor` and its like are instructions.
    pub has_round: bool,
    /// Vectors of bytes can be multiplied.
    pub has_mul8: bool,
    /// Comparisons of vectors of floats must not take an operand from memory: see [`Fx::fcmp`].
    pub loads_apart: bool,
    bindings: FnvHashMap<u32, Binding>,
    /// Values of shared subexpressions of the statement at hand, by node; one layer per branch that may not run.
    memo: Vec<FnvHashMap<usize, Val>>,
    funcs: FnvHashMap<u32, FuncRef>,
    data: FnvHashMap<u32, GlobalValue>,
    /// Computed in the current block, by operation and operands: index arithmetic repeats itself, and kernels that are
    /// compiled as written have nobody else to notice.
    known: FnvHashMap<(Known, Value, Value), Value>,
    /// Integer literals of the current block.
    pub literals: FnvHashMap<(Type, u64), Value>,
    /// The current block has ended (`Return`).
    ended: bool,
}

/// Operations that [`Fx::once`] remembers.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Known {
    Int(BinOp),
    /// Shifted left by a literal.
    Shl(u8),
    /// Spread over lanes of this many bits.
    Splat(u8),
}

/// What the machine can do, found once per module.
#[derive(Clone, Copy)]
pub(super) struct Machine<'a> {
    pub isa: &'a dyn TargetIsa,
    pub simd: bool,
    pub has_fma: bool,
    pub has_round: bool,
    pub has_mul8: bool,
    pub loads_apart: bool,
    pub pic: bool,
}

/// Builds the Cranelift function of `f`.
///
/// # Errors
/// Internal: something in `f` that flat form does not allow.
pub(super) fn build(f: &FlatFunc, symbols: &Symbols, m: Machine) -> Result<Function, Diagnostic> {
    let conv = m.isa.default_call_conv();
    let sig = func_signature(f, conv)
        .ok_or_else(|| Diagnostic::internal(f.span, format!("`{}`: a parameter has no machine type", f.name)))?;
    let index = symbols.get(&f.name).map_or(0, |s| s.0);
    let mut func = Function::with_name_signature(UserFuncName::user(0, index), sig);
    let mut context = FunctionBuilderContext::new();
    let mut fx = Fx {
        b: FunctionBuilder::new(&mut func, &mut context),
        symbols,
        conv,
        span: f.span,
        pic: m.pic,
        simd: m.simd,
        has_fma: m.has_fma,
        has_round: m.has_round,
        has_mul8: m.has_mul8,
        loads_apart: m.loads_apart,
        bindings: FnvHashMap::default(),
        memo: vec![FnvHashMap::default()],
        funcs: FnvHashMap::default(),
        data: FnvHashMap::default(),
        known: FnvHashMap::default(),
        literals: FnvHashMap::default(),
        ended: false,
    };
    let entry = fx.b.create_block();
    fx.b.append_block_params_for_function_params(entry);
    fx.switch_to(entry);
    fx.b.seal_block(entry);
    let values: Vec<Value> = fx.b.block_params(entry).to_vec();
    for (p, v) in f.params.iter().zip(values) {
        fx.bindings.insert(p.id(), Binding::Value(Val::scalar(p.dtype(), v)));
    }
    fx.stmts(&f.body)?;
    if !fx.ended {
        // Falling off the end returns nothing, or zero where that cannot happen by construction.
        let zero = f.ret.map(|d| if d.is_float() { fx.float_const(d, 0.0) } else { fx.int_const(d, 0) });
        fx.b.ins().return_(zero.as_slice());
    }
    let config = m.isa.frontend_config();
    fx.b.finalize(config);
    Ok(func)
}

impl<'a> Fx<'a> {
    pub fn fault(&self, message: impl Into<String>) -> Diagnostic {
        Diagnostic::internal(self.span, message)
    }

    // ---- statements -----------------------------------------------------------------------------------------------

    fn stmts(&mut self, body: &[FlatStmt]) -> Result<(), Diagnostic> {
        for s in body {
            if self.ended {
                break;
            }
            self.forget();
            self.stmt(s)?;
        }
        self.forget();
        Ok(())
    }

    fn stmt(&mut self, s: &FlatStmt) -> Result<(), Diagnostic> {
        match s {
            FlatStmt::Let { var, value } => {
                let mut v = self.eval(value)?;
                // A named broadcast is meant to be spread once, not at every use.
                if let (PrimKind::Broadcast(a), false) = (value.kind(), value.dtype().is_bool()) {
                    if a.as_int().is_none() && a.as_float().is_none() {
                        v = self.canonicalise(&v);
                    }
                }
                self.bindings.insert(var.id(), Binding::Value(v));
            }
            FlatStmt::Local { var, init } => {
                let v = self.eval(init)?;
                let v = self.canonicalise(&v);
                let ty = self.part_type(v.dtype, v.rep);
                let vars: Vec<Variable> = v.parts.iter().map(|_| self.b.declare_var(ty)).collect();
                for (&r, &x) in vars.iter().zip(&v.parts) {
                    self.b.def_var(r, x);
                }
                self.bindings.insert(var.id(), Binding::Register { rep: v.rep, vars });
            }
            FlatStmt::Assign { var, value } => {
                let v = self.eval(value)?;
                let Some(Binding::Register { rep, vars }) = self.bindings.get(&var.id()) else {
                    return Err(self.fault(format!("assignment to `{}`, which is no local", var.name())));
                };
                let (rep, vars) = (*rep, vars.clone());
                let v = if v.lanes() == var.dtype().lanes as usize { v } else { Val::scalar(var.dtype(), v.one()) };
                let v = self.represent(&v, rep);
                for (r, x) in vars.into_iter().zip(v.parts) {
                    self.b.def_var(r, x);
                }
            }
            FlatStmt::Store { ptr, offset, value } => {
                let v = self.eval(value)?;
                self.store(ptr, offset, &v)?;
            }
            FlatStmt::For { var, begin, end, step, body } => self.for_loop(var, begin, end, *step, body)?,
            FlatStmt::While { cond, body } => {
                let (head, inner, exit) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
                self.b.ins().jump(head, &[]);
                self.switch_to(head);
                self.forget();
                let c = self.condition(cond)?;
                self.b.ins().brif(c, inner, &[], exit, &[]);
                self.switch_to(inner);
                self.b.seal_block(inner);
                self.stmts(body)?;
                if !self.ended {
                    self.b.ins().jump(head, &[]);
                }
                self.b.seal_block(head);
                self.enter(exit);
            }
            FlatStmt::If { cond, then, otherwise } => {
                let c = self.condition(cond)?;
                let (yes, no, exit) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
                self.b.ins().brif(c, yes, &[], no, &[]);
                let mut both_ended = true;
                for (block, body) in [(yes, then), (no, otherwise)] {
                    self.enter(block);
                    self.stmts(body)?;
                    if !self.ended {
                        self.b.ins().jump(exit, &[]);
                        both_ended = false;
                    }
                }
                self.enter(exit);
                if both_ended {
                    // Nothing jumps here: what follows is never run.
                    let code = cranelift_codegen::ir::TrapCode::unwrap_user(1);
                    self.b.ins().trap(code);
                    self.ended = true;
                }
            }
            FlatStmt::Call { callee, args, result } => {
                let f = self.callee(callee)?;
                let args = self.arguments(callee, args)?;
                let inst = self.b.ins().call(f, &args);
                self.bind_result(inst, callee, result);
            }
            FlatStmt::CallIndirect { target, callee, args, result } => {
                let target = self.eval(target)?.one();
                let args = self.arguments(callee, args)?;
                let sig = callee_signature(callee, self.conv)
                    .ok_or_else(|| self.fault("indirect call with a parameter that has no machine type"))?;
                let sig = self.b.import_signature(sig);
                let inst = self.b.ins().call_indirect(sig, target, &args);
                self.bind_result(inst, callee, result);
            }
            FlatStmt::Prefetch { .. } => {}
            FlatStmt::Stack { var, bytes, align } => {
                let align = (*align).max(1).next_power_of_two();
                // The frame is 16-aligned: round up by hand beyond that.
                let extra = if align > 16 { align } else { 0 };
                let shift = align.min(16).trailing_zeros() as u8;
                let data = StackSlotData::new(StackSlotKind::ExplicitSlot, bytes.saturating_add(extra).max(1), shift);
                let slot = self.b.create_sized_stack_slot(data);
                let mut address = self.b.ins().stack_addr(types::I64, slot, 0);
                if extra > 0 {
                    let up = self.b.ins().iadd_imm_s(address, extra as i64 - 1);
                    address = self.b.ins().band_imm_s(up, -(extra as i64));
                }
                self.bindings.insert(var.id(), Binding::Value(Val::scalar(var.dtype(), address)));
            }
            FlatStmt::Address { var, symbol } => {
                let Some((n, _)) = self.symbols.get(symbol) else {
                    return Err(self.fault(format!("address of `{symbol}`, which is not declared")));
                };
                let address = self.symbol_address(n);
                self.bindings.insert(var.id(), Binding::Value(Val::scalar(var.dtype(), address)));
            }
            FlatStmt::Return(value) => {
                let mut values = vec![];
                if let Some(e) = value {
                    let v = self.eval(e)?;
                    values.push(v.one());
                }
                self.b.ins().return_(&values);
                self.ended = true;
            }
        }
        Ok(())
    }

    /// Continues in `block`, all of whose predecessors are known.
    fn enter(&mut self, block: Block) {
        self.switch_to(block);
        self.b.seal_block(block);
        self.ended = false;
    }

    fn for_loop(
        &mut self,
        var: &Var,
        begin: &PrimExpr,
        end: &PrimExpr,
        step: i64,
        body: &[FlatStmt],
    ) -> Result<(), Diagnostic> {
        let d = var.dtype();
        let begin = self.eval(begin)?.one();
        let end = self.eval(end)?.one();
        let cc = if d.is_uint() { IntCC::UnsignedLessThan } else { IntCC::SignedLessThan };
        let (inner, exit) = (self.b.create_block(), self.b.create_block());
        let ty = lane_type(d).ok_or_else(|| self.fault("loop variable without a machine type"))?;
        let i = self.b.append_block_param(inner, ty);
        let known = match (self.constant_bits(begin), self.constant_bits(end)) {
            (Some(a), Some(b)) if ty.bits() == 64 => (a as i64) < b as i64,
            _ => false,
        };
        if known {
            self.b.ins().jump(inner, &[BlockArg::Value(begin)]);
        } else {
            let c = self.b.ins().icmp(cc, begin, end);
            self.b.ins().brif(c, inner, &[BlockArg::Value(begin)], exit, &[]);
        }
        self.switch_to(inner);
        self.bindings.insert(var.id(), Binding::Value(Val::scalar(d, i)));
        self.stmts(body)?;
        if !self.ended {
            let next = self.b.ins().iadd_imm_s(i, step);
            let c = self.b.ins().icmp(cc, next, end);
            self.b.ins().brif(c, inner, &[BlockArg::Value(next)], exit, &[]);
        }
        self.b.seal_block(inner);
        self.enter(exit);
        Ok(())
    }

    /// A scalar bool.
    fn condition(&mut self, e: &PrimExpr) -> Result<Value, Diagnostic> {
        let v = self.eval(e)?;
        let v = self.cast(&v, DType::BOOL);
        if v.lanes() != 1 {
            return Err(self.fault("a condition has several lanes"));
        }
        Ok(v.one())
    }

    /// Makes `block` the current one.
    fn switch_to(&mut self, block: Block) {
        self.known.clear();
        self.literals.clear();
        self.b.switch_to_block(block);
    }

    /// `make`, unless it was made in this block before.
    pub fn once(&mut self, what: Known, x: Value, y: Value, make: impl FnOnce(&mut Self) -> Value) -> Value {
        if let Some(&v) = self.known.get(&(what, x, y)) {
            return v;
        }
        let v = make(self);
        self.known.insert((what, x, y), v);
        v
    }

    /// Shifts a scalar left by a literal.
    pub fn shift_left(&mut self, x: Value, by: u8) -> Value {
        self.once(Known::Shl(by), x, x, |s| s.b.ins().ishl_imm_u(x, by as i64))
    }

    // ---- calls and symbols ----------------------------------------------------------------------------------------

    fn arguments(&mut self, callee: &Callee, args: &[PrimExpr]) -> Result<Vec<Value>, Diagnostic> {
        if args.len() != callee.params.len() {
            return Err(self.fault(format!(
                "call of `{}` with {} arguments for {} parameters",
                callee.name,
                args.len(),
                callee.params.len()
            )));
        }
        let mut out = vec![];
        for (a, d) in args.iter().zip(&callee.params) {
            let v = self.eval(a)?;
            let v = self.cast(&v, *d);
            out.push(v.one());
        }
        Ok(out)
    }

    fn bind_result(&mut self, inst: cranelift_codegen::ir::Inst, callee: &Callee, result: &Option<Var>) {
        let value = self.b.inst_results(inst).first().copied();
        if let (Some(var), Some(v), Some(d)) = (result, value, callee.ret) {
            self.bindings.insert(var.id(), Binding::Value(Val::scalar(d, v)));
        }
    }

    fn callee(&mut self, c: &Callee) -> Result<FuncRef, Diagnostic> {
        let sig = callee_signature(c, self.conv)
            .ok_or_else(|| self.fault(format!("`{}`: a parameter has no machine type", c.name)))?;
        let Some((n, _)) = self.symbols.get(&c.name) else {
            return Err(self.fault(format!("call of `{}`, which is not declared", c.name)));
        };
        if let Some(&f) = self.funcs.get(&n) {
            return Ok(f);
        }
        let sig = self.b.import_signature(sig);
        let f = self.import_function(n, sig);
        self.funcs.insert(n, f);
        Ok(f)
    }

    fn import_function(&mut self, n: u32, sig: cranelift_codegen::ir::SigRef) -> FuncRef {
        let name = self.b.func.declare_imported_user_function(UserExternalName::new(0, n));
        let colocated = self.colocated(n);
        self.b.import_function(ExtFuncData {
            name: ExternalName::user(name),
            signature: sig,
            colocated,
            patchable: false,
        })
    }

    /// Whether the symbol is in this object and cannot be replaced at load time.
    fn colocated(&self, n: u32) -> bool {
        match self.symbols.list[n as usize].linkage {
            Linkage::Local => true,
            Linkage::Export => !self.pic,
            Linkage::Import => false,
        }
    }

    fn symbol_address(&mut self, n: u32) -> Value {
        let gv = match self.data.get(&n) {
            Some(&gv) => gv,
            None => {
                let name = self.b.func.declare_imported_user_function(UserExternalName::new(0, n));
                let colocated = self.colocated(n);
                let gv = self.b.create_global_value(GlobalValueData::Symbol {
                    name: ExternalName::user(name),
                    offset: 0.into(),
                    colocated,
                    tls: false,
                });
                self.data.insert(n, gv);
                gv
            }
        };
        self.b.ins().symbol_value(types::I64, gv)
    }

    // ---- expressions ----------------------------------------------------------------------------------------------

    fn forget(&mut self) {
        self.memo.iter_mut().for_each(|m| m.clear());
    }

    /// The value of an expression; shared nodes are computed once.
    pub fn eval(&mut self, e: &PrimExpr) -> Result<Val, Diagnostic> {
        match e.kind() {
            PrimKind::Var(v) => return self.variable(v),
            PrimKind::Int(_) | PrimKind::Float(_) => return self.eval_node(e),
            _ => {}
        }
        let key = e.kind() as *const PrimKind as usize;
        if let Some(v) = self.memo.iter().rev().find_map(|m| m.get(&key)) {
            return Ok(v.clone());
        }
        let v = match e.kind() {
            PrimKind::Let(..) => {
                // A chain of them is long and need not be deep.
                let mut e = e;
                while let PrimKind::Let(var, value, body) = e.kind() {
                    let v = self.eval(value)?;
                    if self.bindings.insert(var.id(), Binding::Value(v)).is_some() {
                        // Bound before, to something else: what was computed from it no longer holds.
                        self.forget();
                    }
                    e = body;
                }
                self.eval(e)?
            }
            _ => self.eval_node(e)?,
        };
        if let Some(m) = self.memo.last_mut() {
            m.insert(key, v.clone());
        }
        Ok(v)
    }

    fn variable(&mut self, v: &Var) -> Result<Val, Diagnostic> {
        match self.bindings.get(&v.id()) {
            Some(Binding::Value(x)) => Ok(x.clone()),
            Some(Binding::Register { rep, vars }) => {
                let (rep, vars) = (*rep, vars.clone());
                let parts = vars.into_iter().map(|r| self.b.use_var(r)).collect();
                Ok(Val { dtype: v.dtype(), rep, parts })
            }
            None => Err(self.fault(format!("variable `{}` has no value here", v.name()))),
        }
    }

    fn eval_node(&mut self, e: &PrimExpr) -> Result<Val, Diagnostic> {
        let d = e.dtype();
        if lane_type(d).is_none() {
            return Err(Diagnostic::unsupported("dtype", self.span, format!("no code for values of type {d}")));
        }
        Ok(match e.kind() {
            PrimKind::Int(v) if d.is_float() => {
                let x = self.float_const(d, *v as f64);
                Val::scalar(d, x)
            }
            PrimKind::Int(v) => {
                let x = self.int_const(d, *v);
                Val::scalar(d, x)
            }
            PrimKind::Float(v) => {
                let x = self.float_const(d, v.0);
                Val::scalar(d, x)
            }
            PrimKind::Str(text) => {
                let Some(n) = self.symbols.text(text) else {
                    return Err(self.fault("a string literal was not collected"));
                };
                let x = self.symbol_address(n);
                Val::scalar(DType::HANDLE, x)
            }
            PrimKind::Cast(a) => {
                let v = self.eval(a)?;
                self.cast(&v, d)
            }
            PrimKind::Reinterpret(a) => {
                let v = self.eval(a)?;
                self.reinterpret(&v, d)
            }
            PrimKind::Binary(op @ (BinOp::And | BinOp::Or), a, b) if d.lanes == 1 && has_load(b) => {
                let x = self.condition(a)?;
                let (more, exit) = (self.b.create_block(), self.b.create_block());
                let r = self.b.append_block_param(exit, types::I8);
                if *op == BinOp::And {
                    self.b.ins().brif(x, more, &[], exit, &[BlockArg::Value(x)]);
                } else {
                    self.b.ins().brif(x, exit, &[BlockArg::Value(x)], more, &[]);
                }
                self.enter(more);
                self.memo.push(FnvHashMap::default());
                let y = self.condition(b)?;
                self.memo.pop();
                self.b.ins().jump(exit, &[BlockArg::Value(y)]);
                self.enter(exit);
                Val::scalar(DType::BOOL, r)
            }
            PrimKind::Binary(op, a, b) => {
                let x = self.eval(a)?;
                let y = self.eval(b)?;
                let y = if y.dtype.element() != x.dtype.element() && !matches!(op, BinOp::Shl | BinOp::Shr) {
                    self.cast(&y, x.dtype)
                } else {
                    y
                };
                self.binary(*op, &x, &y)
            }
            PrimKind::Not(a) => {
                let v = self.eval(a)?;
                let v = self.cast(&v, DType::BOOL);
                self.not(&v)
            }
            PrimKind::Neg(a) => {
                let v = self.eval(a)?;
                self.neg(&v)
            }
            PrimKind::Select(c, t, f) => self.eager(c, t, f)?,
            PrimKind::IfThenElse(c, t, f) => {
                if c.dtype().lanes > 1 || (is_small(t, &mut 8) && is_small(f, &mut 8)) {
                    self.eager(c, t, f)?
                } else {
                    self.lazy(c, t, f, d)?
                }
            }
            PrimKind::Load { ptr, offset } => self.load(ptr, offset, d)?,
            PrimKind::Call(f, args) => self.intrinsic(*f, args, e)?,
            PrimKind::Ramp(base, stride) => {
                let (base, stride) = (self.eval(base)?, self.eval(stride)?);
                self.ramp(&base, &stride, d)
            }
            PrimKind::Broadcast(a) => {
                let v = self.eval(a)?;
                if v.lanes() != 1 {
                    return Err(self.fault("broadcast of a vector"));
                }
                Val::scalar(d, v.one())
            }
            PrimKind::PtrAdd(p, k) => {
                let (p, k) = (self.eval(p)?, self.eval(k)?);
                let k = self.cast(&k, DType::I64);
                let x = self.b.ins().iadd(p.one(), k.one());
                Val::scalar(DType::HANDLE, x)
            }
            PrimKind::Var(_) | PrimKind::Let(..) => return self.eval(e),
            PrimKind::BufferLoad(..) => return Err(self.fault("a buffer access is left in flat form")),
        })
    }

    fn eager(&mut self, c: &PrimExpr, t: &PrimExpr, f: &PrimExpr) -> Result<Val, Diagnostic> {
        let c = self.eval(c)?;
        let c = self.cast(&c, DType::BOOL);
        let (t, f) = (self.eval(t)?, self.eval(f)?);
        Ok(self.select(&c, &t, &f))
    }

    /// Evaluates only the chosen side.
    fn lazy(&mut self, c: &PrimExpr, t: &PrimExpr, f: &PrimExpr, d: DType) -> Result<Val, Diagnostic> {
        let c = self.condition(c)?;
        let (yes, no, exit) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let rep = self.canonical(d);
        let ty = self.part_type(d, rep);
        let parts: Vec<Value> = (0..self.rep_parts(d, rep)).map(|_| self.b.append_block_param(exit, ty)).collect();
        self.b.ins().brif(c, yes, &[], no, &[]);
        for (block, side) in [(yes, t), (no, f)] {
            self.enter(block);
            self.memo.push(FnvHashMap::default());
            let v = self.eval(side)?;
            self.memo.pop();
            let v = self.represent(&v, rep);
            let args: Vec<BlockArg> = v.parts.iter().map(|&x| BlockArg::Value(x)).collect();
            self.b.ins().jump(exit, &args);
        }
        self.enter(exit);
        Ok(Val { dtype: d, rep, parts })
    }

    fn ramp(&mut self, base: &Val, stride: &Val, d: DType) -> Val {
        let base = Val::scalar(d, base.one());
        let e = d.element();
        if !self.simd {
            let base = self.scalarise(&base);
            let mut parts = vec![];
            for (i, &x) in base.parts.iter().enumerate() {
                let k = self.int_const(e, i as i64);
                let k = self.b.ins().imul(stride.one(), k);
                parts.push(self.b.ins().iadd(x, k));
            }
            return Val { dtype: d, rep: Rep::Scalar, parts };
        }
        let bits = lane_bits(d);
        let ty = int_vector(bits);
        let per = lanes_per_part(bits);
        let known = self.constant_bits(stride.one());
        let parts = (0..part_count(d.lanes as usize, bits))
            .map(|p| self.vector_const(ty, bits, |i| ((p * per + i) as u64).wrapping_mul(known.unwrap_or(1))))
            .collect();
        let mut steps = Val { dtype: d, rep: Rep::Simd(bits), parts };
        if known.is_none() {
            let stride = Val::scalar(d, stride.one());
            steps = self.int_op(BinOp::Mul, &steps, &stride);
        }
        self.int_op(BinOp::Add, &steps, &base)
    }
}

pub(super) fn has_load(e: &PrimExpr) -> bool {
    matches!(e.kind(), PrimKind::Load { .. }) || e.children().into_iter().any(has_load)
}

/// At most `budget` nodes and no load: cheaper to compute than to jump around.
fn is_small(e: &PrimExpr, budget: &mut u32) -> bool {
    if *budget == 0 || matches!(e.kind(), PrimKind::Load { .. } | PrimKind::Let(..)) {
        return false;
    }
    *budget -= 1;
    e.children().into_iter().all(|c| is_small(c, budget))
}
