//! Calls: functions, closures, packed functions, kernels.

use super::expr::{Dyn, Gen, Res, Scope, TensorAt};
use super::{value_callee, Kind};
use crate::accesses::{tested, STATUS, TESTED};
use crate::appends::APPENDS;
use crate::host::body::copy_callee;
use crate::host::build::{local_callee, null, runtime_callee, Failure};
use crate::host::kernel_args::{called, match_args, returned, From, KernelArg};
use crate::host::{byte_size, written_buffers};
use relax_ir::flat::FlatStmt;
use relax_ir::prim::BinOp;
use relax_ir::program::code;
use relax_ir::relax::{Call, Callee, Expr, ExprKind, StructInfo};
use relax_ir::tir::{PrimFunc, StmtKind};
use relax_ir::{DType, Diagnostic, Func, PrimExpr, Span};

/// Dims and dtype of a tensor to be made.
type Output = (Vec<PrimExpr>, DType);

/// The packed function that the runtime has itself: the file of a picture as one that is not compressed.
pub const PICTURE: &str = "relax_aot.plain_picture";

impl Gen<'_, '_> {
    pub fn call(&mut self, c: &Call, span: Span, info: Option<&StructInfo>, scope: &mut Scope) -> Res<Dyn> {
        match &c.callee {
            Callee::Op(op) => match op.name {
                "call_tir" | "call_tir_inplace" | "call_tir_with_grad" => self.call_tir(c, span, scope),
                "call_dps_packed" => self.call_dps(c, span, scope),
                // What is written in place is the argument itself; constants are copies already (`fresh.rs`).
                "call_packed" | "call_pure_packed" | "call_inplace_packed" => {
                    let callee = self.operand(c, 0, span, scope)?;
                    let args = c.args[1..].iter().map(|a| self.expr(a, None, scope)).collect::<Res<Vec<_>>>()?;
                    self.invoke(callee, &args, span)
                }
                "invoke_closure" | "invoke_pure_closure" => {
                    let callee = self.operand(c, 0, span, scope)?;
                    let args = self.fields(c, 1, span, scope)?;
                    self.invoke(callee, &args, span)
                }
                "make_closure" => self.make_closure(c, span, scope),
                _ => self.operator(c, op, span, info, scope),
            },
            Callee::Expr(f) => {
                if let ExprKind::GlobalVar(name) = f.kind() {
                    let typed = self.typed;
                    if let Some(prim) = typed.module.prim(name) {
                        return self.plain(prim, c, span, scope);
                    }
                }
                let callee = self.callee(f, scope)?;
                let args = c.args.iter().map(|a| self.expr(a, None, scope)).collect::<Res<Vec<_>>>()?;
                self.invoke(callee, &args, span)
            }
        }
    }

    /// A PrimFunc called as it is: it writes to what it is given.
    fn plain(&mut self, prim: &PrimFunc, c: &Call, span: Span, scope: &mut Scope) -> Res<Dyn> {
        let written = written_buffers(prim);
        let constant = |(b, a): (&relax_ir::tir::Buffer, &Expr)| {
            written.contains(&b.id()) && matches!(a.kind(), ExprKind::Constant(_))
        };
        if prim.buffers().zip(&c.args).any(constant) {
            let d = Diagnostic::error("call", span, format!("{} writes to a constant", prim.name));
            return Err(d.help("give it a tensor of R.builtin.alloc_tensor"));
        }
        let args = c.args.iter().map(|a| self.expr(a, None, scope)).collect::<Res<Vec<_>>>()?;
        if prim.returns.is_none() {
            self.kernel(prim, &args, &[], span)?;
            return Ok(Dyn::Tuple(vec![]));
        }
        if !matches!(prim.body.kind(), StmtKind::Seq(s) if s.is_empty()) {
            self.kernel(prim, &args, &[], span)?;
        }
        let scalars = args.iter().map(|a| match a {
            Dyn::Prim(p) => Some(p.clone()),
            _ => None,
        });
        let what = || format!("what {} returns of values whose type is not known", prim.name);
        returned(prim, scalars).map(Dyn::Prim).ok_or_else(|| Diagnostic::unsupported("call", span, what()))
    }

    /// The elements of `old` in a tensor of its own.
    pub fn copied(&mut self, old: &TensorAt) -> TensorAt {
        let new = self.tensor(old.dims.clone(), old.dtype);
        let args = vec![new.data.clone(), old.data.clone(), byte_size(&old.dims, old.dtype)];
        self.b.push(FlatStmt::Call { callee: copy_callee(self.prefix), args, result: None });
        new
    }

    /// What is called: the call looks up the name of a packed function.
    fn callee(&mut self, e: &Expr, scope: &mut Scope) -> Res<Dyn> {
        match e.kind() {
            ExprKind::ExternFunc(name, _) => Ok(Dyn::Extern(name.clone())),
            _ => self.expr(e, None, scope),
        }
    }

    pub fn operand(&mut self, c: &Call, i: usize, span: Span, scope: &mut Scope) -> Res<Dyn> {
        let missing = || Diagnostic::error("operator", span, format!("operand {} is missing", i + 1));
        let e = c.args.get(i).ok_or_else(missing)?;
        match self.callee(e, scope)? {
            // The name of a packed function.
            Dyn::Str(s) if i == 0 && c.op().is_some_and(|o| o.name.contains("packed")) => Ok(Dyn::Extern(s)),
            v => Ok(v),
        }
    }

    /// The fields of operand `i`, a tuple.
    fn fields(&mut self, c: &Call, i: usize, span: Span, scope: &mut Scope) -> Res<Vec<Dyn>> {
        match self.operand(c, i, span, scope)? {
            Dyn::Tuple(f) => Ok(f),
            v @ (Dyn::Tensor(_) | Dyn::Shape(_) | Dyn::Prim(_)) => Ok(vec![v]),
            _ => Err(Diagnostic::unsupported("call", span, "arguments in a tuple of unknown structure")),
        }
    }

    /// Calls a function value.
    fn invoke(&mut self, callee: Dyn, args: &[Dyn], span: Span) -> Res<Dyn> {
        let n = PrimExpr::i32(args.len() as i32);
        match callee {
            Dyn::Global(name) => match self.typed.module.get(&name) {
                Some(Func::Relax(_)) => {
                    let symbol = self.queue.global(self.prefix, &name);
                    self.call_symbol(&symbol, args, span)
                }
                _ => Err(Diagnostic::unsupported(
                    "call",
                    span,
                    format!("the PrimFunc {name} as a plain call cannot be compiled"),
                )
                .help("call it through R.call_tir")),
            },
            // A function of the runtime.
            Dyn::Extern(name) if name == PICTURE => {
                let array = self.arguments(args, span)?;
                let (to, call) = (self.slot(), self.b.call.clone());
                self.runtime("relax_rt_picture", vec![call, array, n, to.clone()]);
                Ok(Dyn::Value(to))
            }
            Dyn::Extern(name) => {
                let to = self.call_packed(&name, args, span)?;
                Ok(Dyn::Value(to))
            }
            callee @ (Dyn::Value(_) | Dyn::This(_)) => {
                let closure = self.pointer(&callee, span)?;
                let array = self.arguments(args, span)?;
                let to = self.slot();
                let call = self.b.call.clone();
                self.runtime("relax_rt_invoke", vec![call, closure, array, n, to.clone()]);
                Ok(Dyn::Value(to))
            }
            _ => Err(Diagnostic::error("call", span, "what is called is not a function")),
        }
    }

    fn call_packed(&mut self, name: &str, args: &[Dyn], span: Span) -> Res<PrimExpr> {
        let array = self.arguments(args, span)?;
        let to = self.slot();
        let symbol = self.b.pool.string(name);
        let name = self.b.address(&symbol);
        let n = PrimExpr::i32(args.len() as i32);
        let call = self.b.call.clone();
        self.runtime("relax_rt_call_packed", vec![call, name, array, n, to.clone()]);
        Ok(to)
    }

    /// `R.print`: the format comes last.
    pub fn print(&mut self, c: &Call, span: Span, scope: &mut Scope) -> Res<Dyn> {
        let mut args = c.args.iter().map(|a| self.expr(a, None, scope)).collect::<Res<Vec<_>>>()?;
        let format = match args.last() {
            Some(Dyn::Str(s)) => {
                let s = s.clone();
                args.pop();
                s
            }
            Some(Dyn::Absent) => {
                args.pop();
                String::new()
            }
            _ => String::new(),
        };
        args.insert(0, Dyn::Str(format));
        let array = self.arguments(&args, span)?;
        let call = self.b.call.clone();
        let n = PrimExpr::i32(args.len() as i32);
        let callee = runtime_callee("relax_rt_print", vec![DType::HANDLE, DType::HANDLE, DType::I32]);
        let rc = self.b.call(callee, vec![call, array, n]);
        self.b.return_if_failed(rc);
        Ok(Dyn::Tuple(vec![]))
    }

    fn make_closure(&mut self, c: &Call, span: Span, scope: &mut Scope) -> Res<Dyn> {
        let (target, name) = match self.operand(c, 0, span, scope)? {
            Dyn::Global(name) if matches!(self.typed.module.get(&name), Some(Func::Relax(_))) => {
                (self.queue.global(self.prefix, &name), name)
            }
            _ => return Err(Diagnostic::unsupported("call", span, "R.make_closure takes a function of the module")),
        };
        let captured = self.fields(c, 1, span, scope)?;
        let kind = Kind::Bound { target, count: captured.len() };
        let symbol = self.queue.other(self.prefix, "closure", kind);
        let to = self.slot();
        let signature = self.signature_of_bound(&name, captured.len());
        self.closure(&symbol, signature, &captured, &to, span)?;
        Ok(Dyn::Value(to))
    }

    /// Tensors that a call's output annotation states, and whether it is a single one.
    fn outputs(&mut self, c: &Call, span: Span, scope: &Scope) -> Res<(Vec<Output>, bool)> {
        let single = c.sinfo_args.len() == 1 && !matches!(c.sinfo_args[0], StructInfo::Tuple(_));
        let infos: Vec<StructInfo> = match &c.sinfo_args[..] {
            [StructInfo::Tuple(f)] => f.clone(),
            other => other.to_vec(),
        };
        let mut out = vec![];
        for info in infos {
            match info.as_tensor().map(|t| (t.known_dims(), t.dtype)) {
                Some((Some(d), Some(t))) => out.push((self.dims(d, scope, span)?, t)),
                _ => {
                    return Err(Diagnostic::unsupported(
                        "call",
                        span,
                        "a call in destination-passing style whose output is no tensor of known dims and dtype",
                    ))
                }
            }
        }
        Ok((out, single))
    }

    fn call_dps(&mut self, c: &Call, span: Span, scope: &mut Scope) -> Res<Dyn> {
        let callee = self.operand(c, 0, span, scope)?;
        let mut args = self.fields(c, 1, span, scope)?;
        let (outputs, single) = self.outputs(c, span, scope)?;
        let outputs: Vec<Dyn> = outputs.into_iter().map(|(d, t)| Dyn::Tensor(self.tensor(d, t))).collect();
        args.extend(outputs.iter().cloned());
        self.invoke(callee, &args, span)?;
        Ok(if single { outputs[0].clone() } else { Dyn::Tuple(outputs) })
    }

    fn call_tir(&mut self, c: &Call, span: Span, scope: &mut Scope) -> Res<Dyn> {
        let typed = self.typed;
        let prim = called(&typed.module, c, span)?;
        let mut inputs = vec![];
        for a in &c.args[1..] {
            match self.expr(a, None, scope)? {
                Dyn::Tuple(f) => inputs.extend(f),
                Dyn::Shape(v) => inputs.extend(v.into_iter().map(Dyn::Prim)),
                Dyn::Absent => {}
                v => inputs.push(v),
            }
        }
        let (outputs, single) = self.outputs(c, span, scope)?;
        if prim.attrs.get(APPENDS).is_some() && prim.attrs.get(TESTED).is_none() {
            if let ([Dyn::Tensor(all), Dyn::Tensor(new), ..], [(dims, _)]) = (&inputs[..], &outputs[..]) {
                if self.args.contains(&all.at) && all.dtype.lanes == 1 && all.dtype.bits % 8 == 0 {
                    return self.append(prim, (all, new, &inputs), dims, span);
                }
            }
        }
        let inplace = c.attrs.ints("inplace_indices").filter(|_| c.is_op("call_tir_inplace")).unwrap_or_default();
        let mut values = vec![];
        let mut fresh = vec![];
        for (i, (dims, dtype)) in outputs.into_iter().enumerate() {
            match inplace.get(i).and_then(|k| usize::try_from(*k).ok()) {
                Some(k) => {
                    // Constants that are written to are copies already (`fresh.rs`).
                    let Some(old @ Dyn::Tensor(_)) = inputs.get(k) else {
                        return Err(Diagnostic::error("inplace", span, "inplace_indices names no tensor argument"));
                    };
                    values.push(old.clone());
                }
                None => {
                    let t = self.tensor(dims, dtype);
                    fresh.push(t.clone());
                    values.push(Dyn::Tensor(t));
                }
            }
        }
        self.kernel(prim, &inputs, &fresh, span)?;
        Ok(if single { values.swap_remove(0) } else { Dyn::Tuple(values) })
    }

    /// `all`, an argument that is not read again, with `new` behind it: in its own memory where no caller has it any more
    /// and there is room. What `prim` asks of the two is asked here.
    fn append(
        &mut self,
        prim: &PrimFunc,
        (all, new, inputs): (&TensorAt, &TensorAt, &[Dyn]),
        dims: &[PrimExpr],
        span: Span,
    ) -> Res<Dyn> {
        let ins: Vec<KernelArg> = inputs.iter().map(kernel_arg).collect();
        let out = KernelArg::Tensor { dims, dtype: all.dtype };
        let m = match_args(prim, &ins, &[out], self.room, span)?;
        for (actual, wanted, what) in m.later {
            self.require(PrimExpr::raw_binary(BinOp::Eq, actual, wanted), code::CHECK, what, span);
        }
        let to = self.slot();
        let more = self.b.bind("more", byte_size(&new.dims, new.dtype));
        let before = self.b.bind("before", byte_size(&all.dims, all.dtype));
        let rows = new.dims[0].clone().cast(DType::I64);
        let call = self.b.call.clone();
        let args = vec![call, all.at.clone(), self.again.clone(), rows, more.clone(), to.clone()];
        self.runtime("relax_rt_append", args);
        let data = self.data(&to);
        let args = vec![data.clone().ptr_add(before), new.data.clone(), more];
        self.b.push(FlatStmt::Call { callee: copy_callee(self.prefix), args, result: None });
        Ok(Dyn::Tensor(TensorAt { at: to, data, dims: dims.to_vec(), dtype: all.dtype }))
    }

    /// Calls `prim` on `inputs` (tensors and scalars) and fresh `outputs`, with tests of its accesses where it is to
    /// have them.
    pub fn kernel(&mut self, prim: &PrimFunc, inputs: &[Dyn], outputs: &[TensorAt], span: Span) -> Res<()> {
        match prim.attrs.get(TESTED) {
            Some(_) => self.tested_kernel(prim, inputs, outputs, span),
            None => self.plain_kernel(prim, inputs, outputs, span),
        }
    }

    /// A kernel that tests its accesses (`--check-bounds`); what it found fails here.
    fn tested_kernel(&mut self, prim: &PrimFunc, inputs: &[Dyn], outputs: &[TensorAt], span: Span) -> Res<()> {
        let (mut with_tests, found) = tested(prim);
        crate::share::place(&mut with_tests, &self.typed.module, self.kernels);
        let status = self.tensor(vec![PrimExpr::i64(STATUS)], DType::I64);
        let outputs: Vec<TensorAt> = outputs.iter().cloned().chain([status.clone()]).collect();
        self.plain_kernel(&with_tests, inputs, &outputs, span)?;
        let told: Vec<PrimExpr> = (0..STATUS).map(|i| self.b.load("told", &status.data, i * 8, DType::I64)).collect();
        for (i, f) in found.iter().enumerate() {
            let (number, what) = f.check(&prim.name, self.infos, span);
            let failure = Failure {
                code: code::CHECK,
                constraint: number as i32,
                wanted: told[2].clone(),
                got: told[1].clone(),
                what: &what,
            };
            self.b.fail_if(told[0].clone().eq(PrimExpr::i64(i as i64 + 1)), failure);
        }
        Ok(())
    }

    fn plain_kernel(&mut self, prim: &PrimFunc, inputs: &[Dyn], outputs: &[TensorAt], span: Span) -> Res<()> {
        if !inputs.iter().all(|v| matches!(v, Dyn::Prim(_) | Dyn::Tensor(_))) {
            let what = "a tensor whose rank or dtype is not known cannot be an operand here";
            let d = Diagnostic::unsupported("dynamic-structure", span, what);
            return Err(d.help("state its rank and dtype with R.match_cast"));
        }
        let ins: Vec<KernelArg> = inputs.iter().map(kernel_arg).collect();
        let outs: Vec<KernelArg> =
            outputs.iter().map(|t| KernelArg::Tensor { dims: &t.dims, dtype: t.dtype }).collect();
        let m = match_args(prim, &ins, &outs, self.room, span)?;
        for (actual, wanted, what) in m.later {
            self.require(PrimExpr::raw_binary(BinOp::Eq, actual, wanted), code::CHECK, what, span);
        }
        let mut args: Vec<PrimExpr> = m
            .buffers
            .iter()
            .map(|from| match from {
                From::Input(i) => match &inputs[*i] {
                    Dyn::Tensor(t) => t.data.clone(),
                    _ => null(),
                },
                From::Output(i) => outputs[*i].data.clone(),
            })
            .collect();
        args.extend(m.dims);
        if !m.scratch.is_int(0) {
            let bytes = self.b.bind("bytes", m.scratch);
            let scratch = self.tensor(vec![bytes], DType::U8);
            args.push(scratch.data);
        }
        let params: Vec<DType> = args.iter().map(|a| a.dtype()).collect();
        let symbol = crate::host::kernel_symbol(self.prefix, &prim.name);
        self.b.push(FlatStmt::Call { callee: local_callee(&symbol, params, None), args, result: None });
        Ok(())
    }

    /// Calls the function `symbol` with its arguments already side by side.
    pub fn call_with(&mut self, symbol: &str, array: PrimExpr, n: usize) -> PrimExpr {
        let to = self.slot();
        let call = self.b.call.clone();
        let args = vec![call, null(), array, PrimExpr::i32(n as i32), to.clone()];
        let rc = self.b.call(value_callee(symbol), args);
        self.b.return_if_failed(rc);
        to
    }
}

fn kernel_arg(v: &Dyn) -> KernelArg<'_> {
    match v {
        Dyn::Prim(e) => KernelArg::Scalar(e.clone()),
        Dyn::Tensor(t) => KernelArg::Tensor { dims: &t.dims, dtype: t.dtype },
        _ => KernelArg::Other,
    }
}
