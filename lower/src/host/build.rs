//! Writing host code in flat TIR: nested statement lists, loads and stores at byte offsets, failing checks.

use super::message::fill::{self, Fills};
use super::message::Told;
use fnv::FnvHashMap;
use relax_ir::abi::AbiLayout;
use relax_ir::flat::{Callee, DataBytes, FlatData, FlatFunc, FlatStmt, Linkage};
use relax_ir::prim::BinOp;
use relax_ir::{DType, PrimExpr, Span, Var};

/// Strings and other small data shared by all host functions of a program.
#[derive(Default)]
pub struct Pool {
    prefix: String,
    strings: FnvHashMap<String, String>,
    words: FnvHashMap<Vec<i64>, String>,
    pub data: Vec<FlatData>,
    /// Leave out the checks of arguments and shapes: see [`Pool::leaves_out`].
    unchecked: bool,
    /// Leave out the texts of errors.
    silent: bool,
    /// What is written into messages.
    pub fills: Fills,
}

impl Pool {
    pub fn new(prefix: &str, unchecked: bool, silent: bool) -> Pool {
        Pool { prefix: prefix.to_string(), unchecked, silent, ..Default::default() }
    }

    /// What the names of the program begin with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Whether a check with this return code is left out. Assertions of the model stay, and what a call needs whatever
    /// its arguments are: memory.
    pub fn leaves_out(&self, code: i64) -> bool {
        use relax_ir::program::code::*;
        self.unchecked && matches!(code, NULL | DTYPE | RANK | DIM | STRIDES | CHECK | TYPE)
    }

    /// The symbol of a NUL-terminated string.
    pub fn string(&mut self, text: &str) -> String {
        if let Some(s) = self.strings.get(text) {
            return s.clone();
        }
        let symbol = format!("{}__s{}", self.prefix, self.strings.len());
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        self.data.push(FlatData {
            symbol: symbol.clone(),
            align: 1,
            bytes: DataBytes::Owned(bytes),
            relocs: vec![],
            linkage: Linkage::Local,
        });
        self.strings.insert(text.to_string(), symbol.clone());
        symbol
    }

    /// The symbol of a list of 64-bit words.
    pub fn words(&mut self, words: &[i64]) -> String {
        if let Some(s) = self.words.get(words) {
            return s.clone();
        }
        let symbol = format!("{}__g{}", self.prefix, self.words.len());
        self.data.push(FlatData {
            symbol: symbol.clone(),
            align: 8,
            bytes: DataBytes::Owned(words.iter().flat_map(|w| w.to_le_bytes()).collect()),
            relocs: vec![],
            linkage: Linkage::Local,
        });
        self.words.insert(words.to_vec(), symbol.clone());
        symbol
    }
}

/// Builds one flat function.
pub struct Builder<'p> {
    pub pool: &'p mut Pool,
    pub abi: AbiLayout,
    /// The innermost list is last.
    lists: Vec<Vec<FlatStmt>>,
    /// The `P_call` pointer, passed to the failure function.
    pub call: PrimExpr,
    /// What a failing check returns instead of its code.
    pub failed: Option<PrimExpr>,
}

/// A failing check: return code, constraint number (0: none, below 0: of an argument), the values compared and what they are.
pub struct Failure<'a> {
    pub code: i64,
    pub constraint: i32,
    pub wanted: PrimExpr,
    pub got: PrimExpr,
    pub what: &'a str,
}

impl<'p> Builder<'p> {
    pub fn new(pool: &'p mut Pool, abi: AbiLayout, call: PrimExpr) -> Builder<'p> {
        Builder { pool, abi, lists: vec![vec![]], call, failed: None }
    }

    pub fn push(&mut self, s: FlatStmt) {
        if let Some(list) = self.lists.last_mut() {
            list.push(s);
        }
    }

    /// The function made of everything pushed.
    pub fn finish(mut self, name: String, params: Vec<Var>, ret: Option<DType>, linkage: Linkage) -> FlatFunc {
        FlatFunc { name, params, ret, linkage, body: self.lists.pop().unwrap_or_default(), span: Span::NONE }
    }

    pub fn let_var(&mut self, var: &Var, value: PrimExpr) {
        self.push(FlatStmt::Let { var: var.clone(), value });
    }

    /// Names a value; literals and variables stay themselves.
    pub fn bind(&mut self, name: &str, value: PrimExpr) -> PrimExpr {
        if value.as_var().is_some() || value.as_int().is_some() {
            return value;
        }
        let v = Var::new(name, value.dtype());
        self.let_var(&v, value);
        v.expr()
    }

    pub fn nested(&mut self, f: impl FnOnce(&mut Self)) -> Vec<FlatStmt> {
        self.lists.push(vec![]);
        f(self);
        self.lists.pop().unwrap_or_default()
    }

    /// Statements go to a list of their own until [`Builder::close`].
    pub fn open(&mut self) {
        self.lists.push(vec![]);
    }

    pub fn close(&mut self) -> Vec<FlatStmt> {
        self.lists.pop().unwrap_or_default()
    }

    pub fn if_then(&mut self, cond: PrimExpr, f: impl FnOnce(&mut Self)) {
        if cond.is_int(0) {
            return;
        }
        let then = self.nested(f);
        self.push(FlatStmt::If { cond, then, otherwise: vec![] });
    }

    /// A loop over `[0, end)`.
    pub fn for_range(&mut self, name: &str, end: PrimExpr, f: impl FnOnce(&mut Self, PrimExpr)) {
        let var = Var::new(name, DType::I64);
        let body = self.nested(|b| f(b, var.expr()));
        self.push(FlatStmt::For { var, begin: PrimExpr::i64(0), end, step: 1, body });
    }

    /// A local mutable register.
    pub fn local(&mut self, name: &str, init: PrimExpr) -> Var {
        let var = Var::new(name, init.dtype());
        self.push(FlatStmt::Local { var: var.clone(), init });
        var
    }

    pub fn assign(&mut self, var: &Var, value: PrimExpr) {
        self.push(FlatStmt::Assign { var: var.clone(), value });
    }

    pub fn load(&mut self, name: &str, ptr: &PrimExpr, bytes: i64, dtype: DType) -> PrimExpr {
        let p = ptr.clone().ptr_add(PrimExpr::i64(bytes));
        self.bind(name, PrimExpr::load_ptr(p, PrimExpr::i64(0), dtype))
    }

    pub fn store(&mut self, ptr: &PrimExpr, bytes: i64, value: PrimExpr) {
        let ptr = ptr.clone().ptr_add(PrimExpr::i64(bytes));
        self.push(FlatStmt::Store { ptr, offset: PrimExpr::i64(0), value });
    }

    /// The dtype of a `DLTensor` as [`super::check_tensor::dtype_word`] has it, whatever the machine's byte order.
    pub fn load_dtype(&mut self, tensor: &PrimExpr) -> PrimExpr {
        let at = self.abi.tensor_dtype;
        let code = self.load("code", tensor, at, DType::U8).cast(DType::I32);
        let bits = self.load("bits", tensor, at + 1, DType::U8).cast(DType::I32);
        let lanes = self.load("lanes", tensor, at + 2, DType::U16).cast(DType::I32);
        let shifted = |x, by| PrimExpr::binary(BinOp::Shl, x, PrimExpr::i32(by));
        let low = PrimExpr::binary(BinOp::BitOr, code, shifted(bits, 8));
        let word = PrimExpr::binary(BinOp::BitOr, low, shifted(lanes, 16));
        self.bind("dtype", word)
    }

    /// Writes the dtype of a `DLTensor` from such a word.
    pub fn store_dtype(&mut self, tensor: &PrimExpr, word: i32) {
        let at = self.abi.tensor_dtype;
        self.store(tensor, at, PrimExpr::int(DType::U8, i64::from(word & 255)));
        self.store(tensor, at + 1, PrimExpr::int(DType::U8, i64::from(word >> 8 & 255)));
        self.store(tensor, at + 2, PrimExpr::int(DType::U16, i64::from(word >> 16)));
    }

    pub fn address(&mut self, symbol: &str) -> PrimExpr {
        let var = Var::new(symbol, DType::HANDLE);
        self.push(FlatStmt::Address { var: var.clone(), symbol: symbol.to_string() });
        var.expr()
    }

    pub fn stack(&mut self, name: &str, bytes: u32, align: u32) -> PrimExpr {
        let var = Var::new(name, DType::HANDLE);
        self.push(FlatStmt::Stack { var: var.clone(), bytes: bytes.max(1), align });
        var.expr()
    }

    pub fn call(&mut self, callee: Callee, args: Vec<PrimExpr>) -> PrimExpr {
        let result = callee.ret.map(|d| Var::new("rc", d));
        self.push(FlatStmt::Call { callee, args, result: result.clone() });
        result.map_or(PrimExpr::i64(0), |r| r.expr())
    }

    pub fn ret(&mut self, value: PrimExpr) {
        self.push(FlatStmt::Return(Some(value)));
    }

    /// Returns from the function when `code` (int32) is not 0.
    pub fn return_if_failed(&mut self, code: PrimExpr) {
        self.if_then(code.clone().ne(PrimExpr::i32(0)), |b| b.ret_failed(code));
    }

    /// A text for an error record: null where texts are left out.
    pub fn text(&mut self, what: &str) -> PrimExpr {
        if self.pool.silent {
            return null();
        }
        let symbol = self.pool.string(what);
        self.address(&symbol)
    }

    /// Reports the failure and returns its code, unconditionally.
    pub fn fail(&mut self, f: Failure) {
        self.fail_filled(f, &[]);
    }

    /// As [`Builder::fail`], with these numbers in the places of the message's `{}`.
    fn fail_filled(&mut self, f: Failure, numbers: &[(i64, Told)]) {
        let what = self.text(f.what);
        let args =
            vec![self.call.clone(), PrimExpr::i32(f.code as i32), PrimExpr::i32(f.constraint), f.wanted, f.got, what];
        let code = self.call(fail_callee(), args);
        // From the last one: the places of the others stay.
        let numbers = if self.pool.silent { &[] } else { numbers };
        for (nth, value) in numbers.iter().rev() {
            fill::write(self, *nth, value);
        }
        self.ret_failed(code);
    }

    fn ret_failed(&mut self, code: PrimExpr) {
        let value = self.failed.clone().unwrap_or(code);
        self.ret(value);
    }

    /// Reports a failure when `cond` holds.
    pub fn fail_if(&mut self, cond: PrimExpr, f: Failure) {
        self.fail_if_filled(cond, f, &[]);
    }

    /// As [`Builder::fail_if`], with these numbers in the places of the message's `{}`.
    pub fn fail_if_filled(&mut self, cond: PrimExpr, f: Failure, numbers: &[(i64, Told)]) {
        if self.pool.leaves_out(f.code) {
            return;
        }
        self.if_then(cond, |b| b.fail_filled(f, numbers));
    }
}

/// `int32_t relax_rt_fail(P_call *, int32_t code, int32_t constraint, int64_t wanted, int64_t got, const char *what)`
pub fn fail_callee() -> Callee {
    use DType as D;
    Callee {
        name: "relax_rt_fail".into(),
        params: vec![D::HANDLE, D::I32, D::I32, D::I64, D::I64, D::HANDLE],
        ret: Some(D::I32),
        linkage: Linkage::Import,
    }
}

/// A function of this program.
pub fn local_callee(name: &str, params: Vec<DType>, ret: Option<DType>) -> Callee {
    Callee { name: name.to_string(), params, ret, linkage: Linkage::Local }
}

/// A function of the runtime that returns an error code.
pub fn runtime_callee(name: &str, params: Vec<DType>) -> Callee {
    Callee { name: name.to_string(), params, ret: Some(DType::I32), linkage: Linkage::Import }
}

/// A null pointer.
pub fn null() -> PrimExpr {
    PrimExpr::raw(relax_ir::prim::PrimKind::Int(0), DType::HANDLE)
}

/// The address as an integer.
pub fn address_of(ptr: PrimExpr) -> PrimExpr {
    ptr.cast(DType::I64)
}
