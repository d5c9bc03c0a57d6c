//! Adds to a program what its users ask it about itself.
//!
//! Hosted: `P_metadata` (JSON) and the generic entry `P_run`, which hands the runtime a table of the entries
//! (`relax_rt::ModuleDesc`). For other targets: the error function, so that the object has no undefined symbol.

use crate::header::prim_text;
use relax_ir::abi::{AbiLayout, KEPT_FROM, MESSAGE_BYTES};
use relax_ir::flat::{Callee, DataBytes, FlatData, FlatFunc, FlatStmt, Linkage};
use relax_ir::prim::PrimKind;
use relax_ir::program::{EntryKind, EntryValue, Program};
use relax_ir::{DType, PrimExpr, Span, Var};
use serde_json::{json, Value};

/// `ModuleDesc::version` of the runtime.
const DESC_VERSION: u32 = 1;
/// The generic entry of libraries whose workspaces may have [`KEPT_FROM`] bytes, which it keeps: `hosted::kept` of the runtime.
const RUN_KEEPING: &str = "relax_rt_run_keeping";

/// Adds the data and functions that `hosted` (with pointers of 64 bits) or embedded programs need; see the module's
/// head.
pub fn add(program: &mut Program, hosted: bool, pointer_bytes: u32) {
    if hosted {
        add_metadata(program);
        add_run(program);
    } else {
        let hook = program.on_error.clone();
        program.module.funcs.push(fail_function(AbiLayout::new(pointer_bytes), hook));
    }
}

/// What `P_metadata` returns.
pub fn metadata(program: &Program) -> Value {
    let optional = |e: &Option<PrimExpr>| e.as_ref().map_or(Value::Null, size);
    let entries: Vec<Value> = program
        .entries
        .iter()
        .map(|e| {
            let values: Vec<Value> =
                e.values().map(|(check, v)| value(v, label(program, &e.name, &v.name), check)).collect();
            json!({
                "name": e.name,
                "symbol": format!("{}_{}", program.prefix, e.name),
                "params": values[..e.params.len()],
                "results": values[e.params.len()..],
                "dims": e.dims.iter().map(|d| json!({
                    "name": d.var.name(), "lower": d.lower, "upper": d.upper, "divisor": d.divisor,
                })).collect::<Vec<_>>(),
                "workspace": optional(&e.workspace),
                "workspace_max": e.workspace_max,
            })
        })
        .collect();
    json!({
        "compiler": format!("relax-aot {}", env!("CARGO_PKG_VERSION")),
        "abi": 1,
        "prefix": program.prefix,
        "entries": entries,
        "checked": !program.unchecked,
        "constraints": program.checks.iter().map(|c| json!({
            "number": c.number, "condition": c.condition, "message": c.message, "line": c.line,
        })).collect::<Vec<_>>(),
        "memory": {
            "weights": program.weight_bytes,
            "weights_file": program.weights_file.as_ref().map(|w| w.bytes),
        },
    })
}

/// A number when constant, else an expression in the dims.
fn size(e: &PrimExpr) -> Value {
    e.as_int().map_or_else(|| json!(prim_text(e)), |v| json!(v))
}

/// What the model calls a parameter.
fn label<'a>(program: &'a Program, entry: &str, name: &'a str) -> &'a str {
    program.labels.iter().find(|(e, id, _)| e == entry && id == name).map_or(name, |(_, _, label)| label)
}

fn value(v: &EntryValue, name: &str, check: i32) -> Value {
    let sizes = |list: &[PrimExpr]| list.iter().map(size).collect::<Vec<_>>();
    let (kind, dtype, shape) = match &v.kind {
        EntryKind::Tensor { dtype, dims } => {
            let shape = dims.as_ref().map(|d| d.iter().map(|x| x.as_ref().map_or(Value::Null, size)).collect());
            ("tensor", dtype.map(|d| d.to_string()), shape)
        }
        EntryKind::Shape { values, .. } => ("shape", None, values.as_ref().map(|v| sizes(v))),
        EntryKind::Scalar { dtype } => ("scalar", Some(dtype.to_string()), None),
        EntryKind::Str => ("str", None, None),
        EntryKind::Boxed => ("value", None, None),
    };
    json!({ "name": name, "kind": kind, "dtype": dtype, "shape": shape, "text": v.text, "check": check,
        "at_most": v.bounds.as_ref().map(|b| sizes(b)) })
}

fn var(name: &str, dtype: DType) -> Var {
    Var::new(name, dtype)
}

fn add_metadata(program: &mut Program) {
    let symbol = format!("{}__metadata", program.prefix);
    let mut bytes = metadata(program).to_string().into_bytes();
    // JSON escapes control characters: no NUL inside.
    bytes.push(0);
    program.module.data.push(FlatData {
        symbol: symbol.clone(),
        align: 1,
        bytes: DataBytes::Owned(bytes),
        relocs: vec![],
        linkage: Linkage::Local,
    });
    let at = var("metadata", DType::HANDLE);
    program.module.funcs.push(FlatFunc {
        name: format!("{}_metadata", program.prefix),
        params: vec![],
        ret: Some(DType::HANDLE),
        linkage: Linkage::Export,
        body: vec![FlatStmt::Address { var: at.clone(), symbol }, FlatStmt::Return(Some(at.expr()))],
        span: Span::NONE,
    });
}

/// Bytes of the runtime's structs on a 64-bit host.
const MODULE_DESC: usize = 16;
const ENTRY_DESC: usize = 56;
const VALUE_DESC: usize = 16;

/// A read-only blob with pointers into itself and to functions.
struct Blob {
    symbol: String,
    bytes: Vec<u8>,
    relocs: Vec<(u32, String, i64)>,
}

impl Blob {
    fn u32(&mut self, at: usize, v: u32) {
        if let Some(to) = self.bytes.get_mut(at..at + 4) {
            to.copy_from_slice(&v.to_le_bytes());
        }
    }
    fn reserve(&mut self, bytes: usize) -> usize {
        let at = self.bytes.len().next_multiple_of(8);
        self.bytes.resize(at + bytes, 0);
        at
    }
    fn inside(&mut self, at: usize, to: usize) {
        self.relocs.push((at as u32, self.symbol.clone(), to as i64));
    }
    fn text(&mut self, at: usize, text: &str) {
        let to = self.bytes.len();
        self.bytes.extend(text.bytes().take_while(|b| *b != 0));
        self.bytes.push(0);
        self.inside(at, to);
    }
}

fn add_run(program: &mut Program) {
    let p = program.prefix.clone();
    let mut blob = Blob { symbol: format!("{p}__module"), bytes: vec![], relocs: vec![] };
    let head = blob.reserve(MODULE_DESC);
    let table = blob.reserve(ENTRY_DESC * program.entries.len());
    blob.u32(head, DESC_VERSION);
    blob.u32(head + 4, program.entries.len() as u32);
    blob.inside(head + 8, table);
    for (i, e) in program.entries.iter().enumerate() {
        let at = table + i * ENTRY_DESC;
        blob.text(at, &e.name);
        for (k, suffix) in ["call", "infer", "workspace"].into_iter().enumerate() {
            let name = format!("{p}_{}__{suffix}", e.name);
            if program.module.funcs.iter().any(|f| f.name == name) {
                blob.relocs.push(((at + 8 + 8 * k) as u32, name, 0));
            }
        }
        for (k, values) in [&e.params, &e.results].into_iter().enumerate() {
            let rows = blob.reserve(VALUE_DESC * values.len());
            blob.inside(at + 32 + 8 * k, rows);
            blob.u32(at + 48 + 4 * k, values.len() as u32);
            for (j, v) in values.iter().enumerate() {
                let row = rows + j * VALUE_DESC;
                blob.text(row, &v.name);
                let (ndim, dtype) = match &v.kind {
                    EntryKind::Tensor { dtype, dims } => (dims.as_ref().map(Vec::len), *dtype),
                    EntryKind::Shape { .. } => (Some(1), Some(DType::I64)),
                    EntryKind::Scalar { dtype } => (Some(0), Some(*dtype)),
                    EntryKind::Str => (Some(1), Some(DType::U8)),
                    EntryKind::Boxed => (None, None),
                };
                blob.u32(row + 8, ndim.map_or(u32::MAX, |n| n as u32));
                let word = dtype.map_or(0, |d| {
                    let (code, bits) = d.stored().dlpack();
                    code as u32 | (bits as u32) << 8 | (d.lanes as u32) << 16
                });
                blob.u32(row + 12, word);
            }
        }
    }
    let symbol = blob.symbol.clone();
    program.module.data.push(FlatData {
        symbol: blob.symbol,
        align: 8,
        bytes: DataBytes::Owned(blob.bytes),
        relocs: blob.relocs,
        linkage: Linkage::Local,
    });

    // int32_t P_run(entry, args, n_args, results, n_results, call)
    let (h, i) = (DType::HANDLE, DType::I32);
    let params = [("entry", h), ("args", h), ("n_args", i), ("results", h), ("n_results", i), ("call", h)]
        .map(|(name, d)| var(name, d))
        .to_vec();
    let module = var("module", h);
    let rc = var("rc", i);
    let mut args = vec![module.expr()];
    args.extend(params.iter().map(Var::expr));
    let keeps = program.entries.iter().any(|e| e.workspace.is_some() && e.workspace_max.is_none_or(|b| b >= KEPT_FROM));
    let callee = Callee {
        name: if keeps { RUN_KEEPING } else { "relax_rt_run" }.into(),
        params: vec![h, h, h, i, h, i, h],
        ret: Some(i),
        linkage: Linkage::Import,
    };
    program.module.funcs.push(FlatFunc {
        name: format!("{p}_run"),
        params,
        ret: Some(i),
        linkage: Linkage::Export,
        body: vec![
            FlatStmt::Address { var: module, symbol },
            FlatStmt::Call { callee, args, result: Some(rc.clone()) },
            FlatStmt::Return(Some(rc.expr())),
        ],
        span: Span::NONE,
    });
}

/// `relax_rt_fail` for targets without the runtime: tells `hook`, then fills the record; the message is `what` alone. The hook is
/// `void hook(int32_t code, int32_t constraint, int64_t wanted, int64_t got, const char *what)`.
fn fail_function(abi: AbiLayout, hook: Option<String>) -> FlatFunc {
    let call = var("call", DType::HANDLE);
    let code = var("code", DType::I32);
    let constraint = var("constraint", DType::I32);
    let wanted = var("wanted", DType::I64);
    let got = var("got", DType::I64);
    let what = var("what", DType::HANDLE);
    let store = |at: i64, value: PrimExpr| FlatStmt::Store {
        ptr: call.expr().ptr_add(PrimExpr::i64(at)),
        offset: PrimExpr::i64(0),
        value,
    };
    let given = |p: &Var| PrimExpr::raw(PrimKind::Cast(p.expr()), DType::I64).ne(PrimExpr::i64(0));
    let message = call.expr().ptr_add(PrimExpr::i64(abi.call_message));
    let last = MESSAGE_BYTES as i64 - 1;
    let put = |at: PrimExpr, value: PrimExpr| FlatStmt::Store { ptr: message.clone(), offset: at, value };
    let zero = PrimExpr::int(DType::U8, 0);
    let i = var("i", DType::I64);
    let byte = var("byte", DType::U8);
    let copy = FlatStmt::For {
        var: i.clone(),
        begin: PrimExpr::i64(0),
        end: PrimExpr::i64(last),
        step: 1,
        body: vec![
            FlatStmt::Let { var: byte.clone(), value: PrimExpr::load_ptr(what.expr(), i.expr(), DType::U8) },
            put(i.expr(), byte.expr()),
            FlatStmt::If {
                cond: byte.expr().eq(zero.clone()),
                then: vec![FlatStmt::Return(Some(code.expr()))],
                otherwise: vec![],
            },
        ],
    };
    let fill = vec![
        store(abi.call_code, code.expr()),
        store(abi.call_constraint, constraint.expr()),
        store(abi.call_wanted, wanted.expr()),
        store(abi.call_got, got.expr()),
        put(PrimExpr::i64(0), zero.clone()),
        put(PrimExpr::i64(last), zero),
        FlatStmt::If { cond: given(&what), then: vec![copy], otherwise: vec![] },
    ];
    let mut body = vec![];
    if let Some(name) = hook {
        let args: Vec<PrimExpr> = [&code, &constraint, &wanted, &got, &what].iter().map(|v| v.expr()).collect();
        let params = args.iter().map(PrimExpr::dtype).collect();
        let callee = Callee { name, params, ret: None, linkage: Linkage::Import };
        body.push(FlatStmt::Call { callee, args, result: None });
    }
    body.push(FlatStmt::If { cond: given(&call), then: fill, otherwise: vec![] });
    body.push(FlatStmt::Return(Some(code.expr())));
    FlatFunc {
        name: "relax_rt_fail".into(),
        params: vec![call, code, constraint, wanted, got, what],
        ret: Some(DType::I32),
        linkage: Linkage::Local,
        body,
        span: Span::NONE,
    }
}
