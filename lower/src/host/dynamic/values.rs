//! Values between registers and memory: boxing, views of tensors, slots of the frame.

use super::expr::{Dyn, Gen, Res, TensorAt};
use super::{tag, value_callee, CLOSURE_HEAD, VALUE};
use crate::host::build::{null, runtime_callee};
use crate::host::check_tensor::dtype_word;
use relax_ir::flat::{Callee, FlatStmt};
use relax_ir::{DType, PrimExpr, Span};

impl Gen<'_, '_> {
    /// A new slot of the frame.
    pub fn slot(&mut self) -> PrimExpr {
        self.slots += 1;
        self.frame.clone().ptr_add(PrimExpr::i64((self.slots as i64 - 1) * VALUE))
    }

    /// `count` neighbouring slots.
    fn slot_array(&mut self, count: usize) -> PrimExpr {
        let at = self.slots as i64;
        self.slots += count;
        self.frame.clone().ptr_add(PrimExpr::i64(at * VALUE))
    }

    /// Calls a function of the runtime that may fail.
    pub fn runtime(&mut self, name: &str, args: Vec<PrimExpr>) {
        let params = args.iter().map(|a| a.dtype()).collect();
        let rc = self.b.call(runtime_callee(name, params), args);
        self.b.return_if_failed(rc);
    }

    /// A pointer to the value; it is made in a slot unless it is one already.
    pub fn pointer(&mut self, v: &Dyn, span: Span) -> Res<PrimExpr> {
        match v {
            Dyn::Tensor(t) => Ok(t.at.clone()),
            Dyn::Value(p) => Ok(p.clone()),
            _ => {
                let to = self.slot();
                self.own(v, &to, span)?;
                Ok(to)
            }
        }
    }

    /// Writes an owned value to `to`, which holds none.
    pub fn own(&mut self, v: &Dyn, to: &PrimExpr, span: Span) -> Res<()> {
        match v {
            Dyn::Tensor(TensorAt { at, .. }) | Dyn::Value(at) => {
                super::copy_value(&mut self.b, at, 0, to, 0);
                self.retain(to);
            }
            Dyn::This(captured) => {
                let closure = captured.clone().ptr_add(PrimExpr::i64(-CLOSURE_HEAD));
                self.b.store(to, 0, PrimExpr::i32(tag::CLOSURE));
                self.b.store(to, 4, PrimExpr::i32(1));
                self.b.store(to, 8, closure);
                self.retain(to);
            }
            Dyn::Shape(values) => {
                let array = self.integers(values);
                let count = PrimExpr::i64(values.len() as i64);
                let call = self.b.call.clone();
                self.runtime("relax_rt_shape", vec![call, null(), count, array, to.clone()]);
            }
            Dyn::Prim(e) => {
                let d = e.dtype();
                let (kind, word) = if d.is_bool() {
                    (tag::BOOL, e.clone().cast(DType::I64))
                } else if d.is_float() {
                    (tag::FLOAT, e.clone().cast(DType::F64))
                } else {
                    (tag::INT, e.clone().cast(DType::I64))
                };
                self.b.store(to, 0, PrimExpr::i32(kind));
                self.b.store(to, 4, PrimExpr::i32(0));
                self.b.store(to, 8, word);
            }
            Dyn::Tuple(fields) => {
                let array = self.slot_array(fields.len());
                for (i, f) in fields.iter().enumerate() {
                    let at = array.clone().ptr_add(PrimExpr::i64(i as i64 * VALUE));
                    self.own(f, &at, span)?;
                }
                let call = self.b.call.clone();
                let count = PrimExpr::i64(fields.len() as i64);
                let args = vec![call, null(), count, array.clone(), to.clone()];
                self.take_over("relax_rt_tuple", args, &array, fields.len());
            }
            Dyn::Str(s) => {
                let symbol = self.b.pool.string(s);
                let text = self.b.address(&symbol);
                self.b.store(to, 0, PrimExpr::i32(tag::STR));
                self.b.store(to, 4, PrimExpr::i32(0));
                self.b.store(to, 8, text);
            }
            Dyn::Global(name) => {
                let symbol = self.queue.global(self.prefix, name);
                let signature = self.signature_of_global(name);
                self.closure(&symbol, signature, &[], to, span)?;
            }
            Dyn::Extern(name) => {
                let symbol = self.queue.packed(self.prefix, name);
                self.closure(&symbol, None, &[], to, span)?;
            }
            Dyn::DType(d) => self.own(&Dyn::Str(d.to_string()), to, span)?,
            Dyn::Absent => self.b.store(to, 0, PrimExpr::i32(0)),
        }
        Ok(())
    }

    /// A closure of the function `symbol` over `captured`; without a signature it is a packed function.
    pub fn closure(
        &mut self,
        symbol: &str,
        signature: Option<Vec<i64>>,
        captured: &[Dyn],
        to: &PrimExpr,
        span: Span,
    ) -> Res<()> {
        let array = self.slot_array(captured.len());
        for (i, f) in captured.iter().enumerate() {
            let at = array.clone().ptr_add(PrimExpr::i64(i as i64 * VALUE));
            self.own(f, &at, span)?;
        }
        let body = self.b.address(symbol);
        let signature = match signature {
            Some(words) => {
                let symbol = self.b.pool.words(&words);
                self.b.address(&symbol)
            }
            None => null(),
        };
        let call = self.b.call.clone();
        let count = PrimExpr::i64(captured.len() as i64);
        let args = vec![call, null(), body, signature, count, array.clone(), to.clone()];
        self.take_over("relax_rt_closure", args, &array, captured.len());
        Ok(())
    }

    /// Calls a function of the runtime that takes over the owners in `array`, also when it fails.
    fn take_over(&mut self, name: &str, args: Vec<PrimExpr>, array: &PrimExpr, count: usize) {
        let params = args.iter().map(|a| a.dtype()).collect();
        let rc = self.b.call(runtime_callee(name, params), args);
        super::clear(&mut self.b, array, count);
        self.b.return_if_failed(rc);
    }

    fn retain(&mut self, at: &PrimExpr) {
        let callee = Callee { ret: None, ..runtime_callee("relax_rt_retain", vec![DType::HANDLE]) };
        self.b.push(FlatStmt::Call { callee, args: vec![at.clone()], result: None });
    }

    /// An array of integers on the stack.
    pub fn integers(&mut self, values: &[PrimExpr]) -> PrimExpr {
        let array = self.b.stack("integers", 8 * values.len() as u32, 8);
        for (i, v) in values.iter().enumerate() {
            self.b.store(&array, i as i64 * 8, v.clone().cast(DType::I64));
        }
        array
    }

    /// Arguments of a call, side by side on the stack, borrowed.
    pub fn arguments(&mut self, args: &[Dyn], span: Span) -> Res<PrimExpr> {
        let pointers: Vec<PrimExpr> = args.iter().map(|a| self.pointer(a, span)).collect::<Res<_>>()?;
        let array = self.b.stack("args", (VALUE * args.len() as i64) as u32, 16);
        for (i, p) in pointers.iter().enumerate() {
            super::copy_value(&mut self.b, p, 0, &array, i as i64 * VALUE);
        }
        Ok(array)
    }

    /// Calls the function `symbol` of this program; the result comes in a slot.
    pub fn call_symbol(&mut self, symbol: &str, args: &[Dyn], span: Span) -> Res<Dyn> {
        let array = self.arguments(args, span)?;
        let to = self.slot();
        let n = PrimExpr::i32(args.len() as i32);
        let call = self.b.call.clone();
        let rc = self.b.call(value_callee(symbol), vec![call, null(), array, n, to.clone()]);
        self.b.return_if_failed(rc);
        Ok(Dyn::Value(to))
    }

    /// A value as a tensor; fails at run time where it has none.
    pub fn as_tensor(&mut self, v: &Dyn, what: &str, span: Span) -> Res<Dyn> {
        let from = self.pointer(v, span)?;
        let to = self.slot();
        let (call, what) = (self.b.call.clone(), self.b.text(what));
        self.runtime("relax_rt_as_tensor", vec![call, from, to.clone(), what]);
        Ok(Dyn::Value(to))
    }

    /// A tensor of integers as a shape.
    /// A negative element fails with this code.
    pub fn as_shape(&mut self, tensor: PrimExpr, what: &str, negative: i64, span: Span) -> Res<Dyn> {
        let to = self.slot();
        let (number, what) = self.infos.add(negative, "every value >= 0".to_string(), what.to_string(), span);
        let (call, what) = (self.b.call.clone(), self.b.text(&what));
        let (code, number) = (PrimExpr::i32(negative as i32), PrimExpr::i32(number as i32));
        self.runtime("relax_rt_as_shape", vec![call, tensor, to.clone(), what, code, number]);
        Ok(Dyn::Value(to))
    }

    /// A fresh tensor.
    pub fn tensor(&mut self, dims: Vec<PrimExpr>, dtype: DType) -> TensorAt {
        let to = self.slot();
        let array = self.integers(&dims);
        let call = self.b.call.clone();
        let word = PrimExpr::i32(dtype_word(dtype));
        let rank = PrimExpr::i32(dims.len() as i32);
        self.runtime("relax_rt_tensor", vec![call, null(), word, rank, array, to.clone()]);
        let data = self.data(&to);
        TensorAt { at: to, data, dims, dtype }
    }

    /// The elements of `t` under other dims.
    pub fn view(&mut self, t: &TensorAt, dims: Vec<PrimExpr>) -> TensorAt {
        let to = self.slot();
        let array = self.integers(&dims);
        let call = self.b.call.clone();
        let rank = PrimExpr::i32(dims.len() as i32);
        self.runtime("relax_rt_view", vec![call, null(), t.at.clone(), rank, array, to.clone()]);
        TensorAt { at: to, data: t.data.clone(), dims, dtype: t.dtype }
    }

    /// The `DLTensor` of the value at `at`.
    pub fn dltensor(&mut self, at: &PrimExpr) -> PrimExpr {
        self.b.load("tensor", at, 8, DType::HANDLE)
    }

    pub fn data(&mut self, at: &PrimExpr) -> PrimExpr {
        let abi = self.b.abi;
        let t = self.dltensor(at);
        let data = self.b.load("data", &t, abi.tensor_data, DType::HANDLE);
        let offset = self.b.load("offset", &t, abi.tensor_byte_offset, DType::I64);
        self.b.bind("data", data.ptr_add(offset))
    }

    /// The tensor at `at`, known to have this rank and dtype.
    pub fn read_tensor(&mut self, at: &PrimExpr, rank: usize, dtype: DType) -> TensorAt {
        let abi = self.b.abi;
        let data = self.data(at);
        let t = self.dltensor(at);
        let shape = if rank == 0 { null() } else { self.b.load("shape", &t, abi.tensor_shape, DType::HANDLE) };
        let dims = (0..rank as i64).map(|i| self.b.load("dim", &shape, i * 8, DType::I64)).collect();
        TensorAt { at: at.clone(), data, dims, dtype }
    }
}
