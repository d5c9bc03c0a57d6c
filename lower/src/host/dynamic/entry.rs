//! The C entries of an exported function over values: arguments in, results out.

use super::expr::{Dyn, Gen, Res};
use super::{clear, drop_all, stack_base, tag, VALUE};
use crate::host::body::copy_callee;
use crate::host::build::{address_of, local_callee, Builder, Failure};
use crate::host::check_tensor::{self, dtype_word, Checked};
use crate::host::entry::{pointer_int, typed_function};
use crate::host::params::Signature;
use crate::host::value::{HostValue, Place};
use crate::host::Context;
use relax_ir::analysis::Typed;
use relax_ir::flat::{FlatStmt, Linkage};
use relax_ir::prim::BinOp;
use relax_ir::program::{code, value_check, Entry, EntryKind, EntryValue};
use relax_ir::relax::{Function, StructInfo};
use relax_ir::{DType, Diagnostic, PrimExpr, Span, Var};

/// A flattened result.
struct Leaf {
    name: String,
    info: StructInfo,
    /// `None`: any.
    dtype: Option<DType>,
    /// `None`: any rank. A dim that only the call tells is `None`.
    dims: Option<Vec<Option<PrimExpr>>>,
}

impl Leaf {
    /// The value becomes a tensor when it is handed over: a scalar has no dims, a shape is a list of integers, a
    /// string one of bytes; anything else fails.
    fn boxed(&self) -> bool {
        match &self.info {
            StructInfo::Tensor(_) | StructInfo::Prim { .. } => false,
            StructInfo::Shape { values, ndim } => values.is_none() && ndim.is_none(),
            _ => true,
        }
    }

    fn open(&self) -> bool {
        self.dtype.is_none() || self.dims.as_ref().is_none_or(|d| d.iter().any(Option::is_none))
    }
}

/// Compiles the exported function `f`; `why` is what keeps it from being laid out at compile time.
pub fn compile(cx: &mut Context, typed: &Typed, f: &Function, why: Diagnostic) -> Result<Entry, Diagnostic> {
    let symbol = f.global_symbol().unwrap_or(&f.name).to_string();
    let base = format!("{}_{}", cx.prefix, symbol);
    let sig = Signature::new(f, &typed.sinfo, &mut cx.checks, cx.uncallable)?;
    let ret = f.ret.clone().or_else(|| typed.info_of(&f.body.body)).unwrap_or(StructInfo::Object);
    let mut leaves = vec![];
    flatten("result", &ret, &sig, f, cx.uncallable, &mut leaves)?;
    if let [one] = &mut leaves[..] {
        one.name = "result".into();
    }
    inner_function(cx, typed, &base, f, &sig, &ret, &leaves)?;
    super::drain(cx, typed)?;
    call_function(cx, &base, &sig, &leaves);
    infer_function(cx, &base, &sig, &leaves);
    let mut b = Builder::new(&mut cx.pool, cx.abi, crate::host::build::null());
    b.ret(PrimExpr::int(pointer_int(cx.abi), 0));
    let dims = sig.dims.iter().map(|d| d.var.clone()).collect();
    let size = pointer_int(cx.abi);
    cx.funcs.push(b.finish(format!("{base}_workspace_size"), dims, Some(size), Linkage::Export));
    let names: Vec<String> = leaves.iter().map(|l| l.name.clone()).collect();
    for suffix in ["", "_infer"] {
        let inner = format!("{base}_{}", if suffix.is_empty() { "_call" } else { "_infer" });
        cx.funcs.push(typed_function(&mut cx.pool, &format!("{base}{suffix}"), &inner, cx.abi, &sig, &names));
    }
    let results = leaves.iter().map(|l| EntryValue {
        name: l.name.clone(),
        text: relax_ir::printer::print_struct_info(&l.info),
        bounds: None,
        span: Span::NONE,
        kind: match &l.info {
            StructInfo::Shape { values, ndim } => EntryKind::Shape { values: values.clone(), ndim: *ndim },
            StructInfo::Prim { dtype, .. } => EntryKind::Scalar { dtype: *dtype },
            _ => EntryKind::Tensor { dtype: l.dtype, dims: l.dims.clone() },
        },
    });
    Ok(Entry {
        name: symbol,
        params: sig.entry_values(),
        results: results.collect(),
        dims: sig.dims,
        workspace: Some(PrimExpr::i64(0)),
        workspace_max: Some(0),
        regions: vec![],
        dynamic: Some(Box::new(why)),
    })
}

fn flatten(
    name: &str,
    info: &StructInfo,
    sig: &Signature,
    f: &Function,
    uncallable: bool,
    out: &mut Vec<Leaf>,
) -> Res<()> {
    let leaf = |dtype, dims| Leaf { name: name.to_string(), info: info.clone(), dtype, dims };
    match info {
        StructInfo::Tuple(fields) => {
            for (i, x) in fields.iter().enumerate() {
                flatten(&format!("{name}.{i}"), x, sig, f, uncallable, out)?;
            }
        }
        StructInfo::Tensor(t) => {
            let known = |d: &PrimExpr| d.vars().iter().all(|v| sig.vars.contains(v)).then(|| d.clone());
            let dims = match (t.known_dims(), t.ndim) {
                (Some(d), _) => Some(d.iter().map(known).collect()),
                (None, Some(n)) => Some(vec![None; n]),
                (None, None) => None,
            };
            out.push(leaf(t.dtype, dims));
        }
        StructInfo::Shape { values: None, ndim: None } => out.push(leaf(Some(DType::I64), Some(vec![None]))),
        StructInfo::Shape { values, ndim } => {
            let n = values.as_ref().map_or(ndim.unwrap_or(0), Vec::len) as i64;
            out.push(leaf(Some(DType::I64), Some(vec![Some(PrimExpr::i64(n))])));
        }
        StructInfo::Prim { dtype, .. } => out.push(leaf(Some(*dtype), Some(vec![]))),
        StructInfo::Func(_) if !uncallable => return Err(refuse(f, "a function")),
        // As tensors, see [`Leaf::boxed`].
        StructInfo::Func(_) | StructInfo::Object => out.push(leaf(None, None)),
        StructInfo::Str | StructInfo::DType => out.push(leaf(Some(DType::U8), Some(vec![None]))),
    }
    Ok(())
}

fn refuse(f: &Function, what: &str) -> Diagnostic {
    Diagnostic::unsupported(
        "result",
        f.signature_span,
        format!("the result of {}: {what} cannot be returned to C", f.name),
    )
    .here("returned here")
}

/// `i32 inner(call, args, outs, frame, mine, pointers.., variables..)`: values of the arguments, the call, the copies
/// out. `mine` has a word per result: not 0 when its data was allocated here.
fn inner_function(
    cx: &mut Context,
    typed: &Typed,
    base: &str,
    f: &Function,
    sig: &Signature,
    ret: &StructInfo,
    leaves: &[Leaf],
) -> Res<()> {
    let h = |n: &str| Var::new(n, DType::HANDLE);
    let (call, args, outs, frame, mine) = (h("call"), h("args"), h("outs"), h("frame"), h("mine"));
    let prefix = cx.prefix.clone();
    let target = cx.dynamic.global(&prefix, &f.name);
    let abi = cx.abi;
    let mut g = Gen::new(cx, typed, &call, &frame);
    let mut scope = super::expr::Scope::default();
    for v in &sig.vars {
        scope.dims.insert(v.clone(), v.expr());
    }
    let mut values = vec![];
    for p in &f.params {
        let v = sig.scope.vars.get(&p.var).cloned().unwrap_or(HostValue::Absent);
        values.push(argument(&mut g, &v, sig, &args.expr(), f)?);
    }
    let array = g.arguments(&values, f.span)?;
    let result = g.call_with(&target, array, f.params.len());
    let what = format!("result of {}", f.name);
    // The function has checked its result.
    g.trusted = true;
    let v = g.refine(Dyn::Value(result), ret, &mut scope, &what, f.span)?;
    g.trusted = false;
    let mut list = vec![];
    collect(v, &mut list);
    for (i, (leaf, v)) in leaves.iter().zip(list).enumerate() {
        let out = g.b.load("out", &outs.expr(), i as i64 * abi.pointer as i64, DType::HANDLE);
        let flag = mine.expr().ptr_add(PrimExpr::i64(i as i64 * 8));
        let v = if leaf.boxed() { g.as_tensor(&v, &format!("output {}", leaf.name), f.span)? } else { v };
        let what = format!("output {}", leaf.name);
        let of = Checked { what: &what, number: value_check(sig.leaves.len() + i) };
        copy_out(&mut g, &prefix, leaf, v, &out, &flag, of);
    }
    g.b.ret(PrimExpr::i32(0));
    let (slots, b) = g.finish();
    let mut params = vec![call, args, outs, frame, mine];
    params.extend(sig.pointers());
    params.extend(sig.body_vars());
    let body = b.finish(format!("{base}__values"), params.clone(), Some(DType::I32), Linkage::Local);
    cx.funcs.push(body);

    // The outer one owns the frame.
    let outer: Vec<Var> =
        params.iter().filter(|v| v.name() != "frame").map(|v| Var::new(v.name(), v.dtype())).collect();
    let mut b = Builder::new(&mut cx.pool, abi, outer[0].expr());
    let frame = b.stack("frame", (slots as i64 * VALUE) as u32, 16);
    clear(&mut b, &frame, slots);
    let mut passed: Vec<PrimExpr> = outer.iter().map(Var::expr).collect();
    passed.insert(3, frame.clone());
    let types = params.iter().map(Var::dtype).collect();
    let rc = b.call(local_callee(&format!("{base}__values"), types, Some(DType::I32)), passed);
    drop_all(&mut b, &frame, slots);
    b.ret(rc);
    cx.funcs.push(b.finish(format!("{base}__boxed"), outer, Some(DType::I32), Linkage::Local));
    Ok(())
}

/// The value of a parameter.
fn argument(g: &mut Gen, v: &HostValue, sig: &Signature, args: &PrimExpr, f: &Function) -> Res<Dyn> {
    let abi = g.b.abi;
    let tensor = |g: &mut Gen, buf: usize| {
        let Place::Param(i) = sig.bufs[buf].place else {
            return Err(Diagnostic::internal(f.span, "a parameter without storage"));
        };
        let t = g.b.load("arg", args, i as i64 * abi.pointer as i64, DType::HANDLE);
        let at = g.slot();
        g.b.store(&at, 0, PrimExpr::i32(tag::TENSOR));
        g.b.store(&at, 8, t);
        Ok(Dyn::Value(at))
    };
    match v {
        HostValue::Tensor(t) => tensor(g, t.buf.0),
        HostValue::Unranked(t) => {
            let leaf = &sig.leaves[t.leaf];
            let what = format!("parameter {}", leaf.name);
            match &leaf.info {
                StructInfo::Shape { .. } => {
                    let from = g.b.load("arg", args, t.leaf as i64 * abi.pointer as i64, DType::HANDLE);
                    g.as_shape(from, &what, code::DIM, leaf.span)
                }
                StructInfo::Func(_) => {
                    let (wanted, got) = (PrimExpr::i64(tag::CLOSURE.into()), PrimExpr::i64(tag::TENSOR.into()));
                    let what = format!("{what}: a function cannot be passed from C");
                    let constraint = value_check(t.leaf);
                    let failure = Failure { code: code::TYPE, constraint, wanted, got, what: &what };
                    // Always true, yet not for the eyes of whoever drops what follows.
                    g.b.if_then(address_of(args.clone()).ne(PrimExpr::i64(0)), |b| b.fail(failure));
                    tensor(g, t.buf.0)
                }
                _ => tensor(g, t.buf.0),
            }
        }
        HostValue::Shape(values) => Ok(Dyn::Shape(values.clone())),
        HostValue::Prim(e) => Ok(Dyn::Prim(e.clone())),
        HostValue::Tuple(fields) => {
            Ok(Dyn::Tuple(fields.iter().map(|x| argument(g, x, sig, args, f)).collect::<Res<_>>()?))
        }
        _ => Err(Diagnostic::internal(f.span, "a parameter that cannot come from C")),
    }
}

fn collect(v: Dyn, out: &mut Vec<Dyn>) {
    match v {
        Dyn::Tuple(f) => f.into_iter().for_each(|x| collect(x, out)),
        leaf => out.push(leaf),
    }
}

/// Copies a result into the caller's tensor `out`; where its size is open and its data null, memory comes from the
/// call's allocator.
fn copy_out(g: &mut Gen, prefix: &str, leaf: &Leaf, v: Dyn, out: &PrimExpr, mine: &PrimExpr, of: Checked) {
    let abi = g.b.abi;
    let (what, constraint) = (of.what, of.number);
    let (wanted, got) = (PrimExpr::i64(0), PrimExpr::i64(0));
    let is_null = address_of(out.clone()).eq(PrimExpr::i64(0));
    g.b.fail_if(is_null, Failure { code: code::NULL, constraint, wanted, got, what });
    let store_scalars = |g: &mut Gen, dims: usize, dtype: DType, values: &[PrimExpr]| {
        check_tensor::check(&mut g.b, prefix, out, of, dtype, dims);
        if dims == 1 {
            let shape = g.b.load("shape", out, abi.tensor_shape, DType::HANDLE);
            let got = g.b.load("dim", &shape, 0, DType::I64);
            let wanted = PrimExpr::i64(values.len() as i64);
            let what = format!("{what}, dimension 0");
            g.b.fail_if(
                got.clone().ne(wanted.clone()),
                Failure { code: code::DIM, constraint, wanted, got, what: &what },
            );
        }
        let to = pointer(&mut g.b, out);
        for (i, x) in values.iter().enumerate() {
            let x = x.clone().cast(dtype);
            g.b.push(FlatStmt::Store { ptr: to.clone(), offset: PrimExpr::i64(i as i64), value: x });
        }
    };
    match v {
        Dyn::Shape(values) => store_scalars(g, 1, DType::I64, &values),
        Dyn::Prim(e) => store_scalars(g, 0, leaf.dtype.unwrap_or(e.dtype()), &[e]),
        Dyn::Tensor(t) => {
            let source = g.dltensor(&t.at);
            tensor_out(&mut g.b, prefix, leaf, &source, Some((&t.dims, t.dtype)), out, mine, of);
        }
        Dyn::Value(at) => {
            let source = g.dltensor(&at);
            tensor_out(&mut g.b, prefix, leaf, &source, None, out, mine, of);
        }
        _ => {}
    }
}

/// The address of a tensor's first element.
fn pointer(b: &mut Builder, t: &PrimExpr) -> PrimExpr {
    let abi = b.abi;
    let data = b.load("data", t, abi.tensor_data, DType::HANDLE);
    let offset = b.load("offset", t, abi.tensor_byte_offset, DType::I64);
    b.bind("pointer", data.ptr_add(offset))
}

#[allow(clippy::too_many_arguments)]
fn tensor_out(
    b: &mut Builder,
    prefix: &str,
    leaf: &Leaf,
    source: &PrimExpr,
    known: Option<(&[PrimExpr], DType)>,
    out: &PrimExpr,
    mine: &PrimExpr,
    of: Checked,
) {
    let abi = b.abi;
    let (what, constraint) = (of.what, of.number);
    let zero = || PrimExpr::i64(0);
    let have = b.load("have", source, abi.tensor_shape, DType::HANDLE);
    let word = b.load("word", source, abi.tensor_dtype, DType::I32);
    let rank = b.load("rank", source, abi.tensor_ndim, DType::I32).cast(DType::I64);
    let rank = b.bind("rank", rank);
    let element = match known {
        Some((_, d)) => PrimExpr::i64(d.bytes() as i64),
        None => {
            let bits = PrimExpr::binary(BinOp::Shr, word.clone(), PrimExpr::i32(8));
            let bits = PrimExpr::binary(BinOp::BitAnd, bits, PrimExpr::i32(255));
            bits.floor_div(PrimExpr::i32(8)).cast(DType::I64)
        }
    };
    let element = b.bind("element", element);
    let count = b.local("count", PrimExpr::i64(1));
    {
        let have = have.clone();
        let count = count.clone();
        b.for_range("axis", rank.clone(), |b, i| {
            let next = count.expr() * PrimExpr::load_ptr(have, i, DType::I64);
            b.assign(&count, next);
        });
    }
    let bytes = b.bind("bytes", count.expr() * element);
    let write_dims = |b: &mut Builder| {
        let shape = b.load("shape", out, abi.tensor_shape, DType::HANDLE);
        let have = have.clone();
        b.for_range("axis", rank.clone(), |b, i| {
            let d = PrimExpr::load_ptr(have, i.clone(), DType::I64);
            b.push(FlatStmt::Store { ptr: shape, offset: i, value: d });
        });
    };

    // The caller's buffer.
    b.open();
    match known {
        Some((dims, dtype)) => {
            check_tensor::check(b, prefix, out, of, dtype, dims.len());
            let shape = b.load("shape", out, abi.tensor_shape, DType::HANDLE);
            let mut room = PrimExpr::i64(1);
            for (axis, d) in dims.iter().enumerate() {
                let got = b.load("dim", &shape, axis as i64 * 8, DType::I64);
                if leaf.open() {
                    room = room * got;
                    continue;
                }
                let what = format!("{what}, dimension {axis}");
                let differ = got.clone().ne(d.clone());
                b.fail_if(differ, Failure { code: code::DIM, constraint, wanted: d.clone(), got, what: &what });
            }
            if leaf.open() {
                let room = b.bind("room", room);
                let what = format!("{what}, room in elements");
                let small = room.clone().lt(count.expr());
                b.fail_if(small, Failure { code: code::DIM, constraint, wanted: count.expr(), got: room, what: &what });
                write_dims(b);
            }
        }
        None => {
            check_tensor::check(b, prefix, out, of, None, None);
            for (wanted, at, code, what) in [
                (word.clone().cast(DType::I64), abi.tensor_dtype, code::DTYPE, format!("{what}, dtype")),
                (rank.clone(), abi.tensor_ndim, code::RANK, format!("{what}, number of dims")),
            ] {
                let got = b.load("got", out, at, DType::I32).cast(DType::I64);
                let got = b.bind("got", got);
                let differ = got.clone().ne(wanted.clone());
                b.fail_if(differ, Failure { code, constraint, wanted, got, what: &what });
            }
            let shape = b.load("shape", out, abi.tensor_shape, DType::HANDLE);
            let have = have.clone();
            let what = format!("{what}, a dimension");
            b.for_range("axis", rank.clone(), |b, i| {
                let wanted = b.bind("wanted", PrimExpr::load_ptr(have, i.clone(), DType::I64));
                let got = b.bind("got", PrimExpr::load_ptr(shape, i, DType::I64));
                let differ = wanted.clone().ne(got.clone());
                b.fail_if(differ, Failure { code: code::DIM, constraint, wanted, got, what: &what });
            });
        }
    }
    let given = b.close();

    // Memory of the call's allocator.
    let mut fresh = vec![];
    if leaf.open() {
        b.open();
        let room = b.load("room", out, abi.tensor_ndim, DType::I32).cast(DType::I64);
        let room = b.bind("room", room);
        let what_rank = format!("{what}, room for dims");
        let small = room.clone().lt(rank.clone());
        b.fail_if(small, Failure { code: code::RANK, constraint, wanted: rank.clone(), got: room, what: &what_rank });
        let allocate = b.load("allocate", &b.call.clone(), abi.call_allocate, DType::HANDLE);
        let this = b.load("allocator", &b.call.clone(), abi.call_allocator, DType::HANDLE);
        let int = pointer_int(abi);
        let callee = local_callee("", vec![DType::HANDLE, int, int], Some(DType::HANDLE));
        let result = Var::new("fresh", DType::HANDLE);
        // Never nothing, so that the pointer is not null.
        let size = b.bind("size", bytes.clone().max(PrimExpr::i64(1)));
        b.push(FlatStmt::CallIndirect {
            target: allocate,
            callee,
            args: vec![this, size.clone().cast(int), PrimExpr::int(int, 64)],
            result: Some(result.clone()),
        });
        let failure = Failure { code: code::MEMORY, constraint: 0, wanted: size.clone(), got: zero(), what };
        b.fail_if(address_of(result.expr()).eq(zero()), failure);
        b.store(mine, 0, size);
        b.store(out, abi.tensor_data, result.expr());
        b.store(out, abi.tensor_byte_offset, zero());
        b.store(out, abi.tensor_strides, crate::host::build::null());
        b.store(out, abi.tensor_dtype, word.clone());
        b.store(out, abi.tensor_ndim, rank.clone().cast(DType::I32));
        write_dims(b);
        fresh = b.close();
    }
    let data = b.load("data", out, abi.tensor_data, DType::HANDLE);
    let empty = if leaf.open() { address_of(data).eq(zero()) } else { PrimExpr::bool(false) };
    if leaf.open() {
        b.push(FlatStmt::If { cond: empty, then: fresh, otherwise: given });
    } else {
        for s in given {
            b.push(s);
        }
    }
    let (from, to) = (pointer(b, source), pointer(b, out));
    b.push(FlatStmt::Call { callee: copy_callee(prefix), args: vec![to, from, bytes], result: None });
}

/// The packed entry: arguments checked, the call record copied, results given back when the call fails.
fn call_function(cx: &mut Context, base: &str, sig: &Signature, leaves: &[Leaf]) {
    let h = |n: &str| Var::new(n, DType::HANDLE);
    let (args, outs, call) = (h("args"), h("outs"), h("call"));
    let abi = cx.abi;
    let prefix = cx.prefix.clone();
    let mut b = Builder::new(&mut cx.pool, abi, call.expr());
    sig.bind(&mut b, &prefix, &args.expr());
    let zero = || PrimExpr::i64(0);
    let missing = |what| Failure { code: code::MEMORY, constraint: 0, wanted: zero(), got: zero(), what };
    b.fail_if(address_of(call.expr()).eq(zero()), missing("call record with an allocator"));
    for at in [abi.call_allocate, abi.call_release] {
        let function = b.load("function", &call.expr(), at, DType::HANDLE);
        b.fail_if(address_of(function).eq(zero()), missing("allocator of the call"));
    }
    let record = b.stack("record", stack_base(abi) as u32 + 8, 16);
    let bytes = PrimExpr::i64(abi.call_size as i64);
    b.push(FlatStmt::Call {
        callee: copy_callee(&prefix),
        args: vec![record.clone(), call.expr(), bytes],
        result: None,
    });
    b.store(&record, stack_base(abi), address_of(record.clone()));
    let mine = b.stack("mine", 8 * leaves.len() as u32, 8);
    for i in 0..leaves.len() as i64 {
        b.store(&mine, i * 8, zero());
    }
    let mut passed = vec![record.clone(), args.expr(), outs.expr(), mine.clone()];
    passed.extend(sig.pointers().iter().map(Var::expr));
    passed.extend(sig.body_vars().iter().map(Var::expr));
    let types = passed.iter().map(|p| p.dtype()).collect();
    let rc = b.call(local_callee(&format!("{base}__boxed"), types, Some(DType::I32)), passed);
    b.if_then(rc.clone().ne(PrimExpr::i32(0)), |b| {
        let int = pointer_int(abi);
        for (i, _) in leaves.iter().enumerate().filter(|(_, l)| l.open()) {
            let size = b.load("size", &mine, i as i64 * 8, DType::I64);
            b.if_then(size.clone().ne(PrimExpr::i64(0)), |b| {
                let release = b.load("release", &call.expr(), abi.call_release, DType::HANDLE);
                let this = b.load("allocator", &call.expr(), abi.call_allocator, DType::HANDLE);
                let out = b.load("out", &outs.expr(), i as i64 * abi.pointer as i64, DType::HANDLE);
                let data = b.load("data", &out, abi.tensor_data, DType::HANDLE);
                let callee = local_callee("", vec![DType::HANDLE, DType::HANDLE, int], None);
                let args = vec![this, data, size.cast(int)];
                b.push(FlatStmt::CallIndirect { target: release, callee, args, result: None });
                b.store(&out, abi.tensor_data, crate::host::build::null());
            });
        }
        let at = PrimExpr::i64(abi.call_code);
        let bytes = PrimExpr::i64(abi.call_size as i64 - abi.call_code);
        let args = vec![call.expr().ptr_add(at.clone()), record.clone().ptr_add(at), bytes];
        b.push(FlatStmt::Call { callee: copy_callee(&prefix), args, result: None });
    });
    b.ret(rc);
    let f = b.finish(format!("{base}__call"), vec![args, outs, call], Some(DType::I32), Linkage::Local);
    cx.funcs.push(f);
}

/// Types, ranks and dims of the results; -1 for what only the call tells.
fn infer_function(cx: &mut Context, base: &str, sig: &Signature, leaves: &[Leaf]) {
    let h = |n: &str| Var::new(n, DType::HANDLE);
    let (args, outs, call) = (h("args"), h("outs"), h("call"));
    let abi = cx.abi;
    let prefix = cx.prefix.clone();
    let mut b = Builder::new(&mut cx.pool, abi, call.expr());
    sig.bind(&mut b, &prefix, &args.expr());
    for (i, leaf) in leaves.iter().enumerate() {
        let out = b.load("out", &outs.expr(), i as i64 * abi.pointer as i64, DType::HANDLE);
        let what = format!("output {}", leaf.name);
        let failure = || Failure {
            code: code::NULL,
            constraint: value_check(sig.leaves.len() + i),
            wanted: PrimExpr::i64(0),
            got: PrimExpr::i64(0),
            what: &what,
        };
        b.fail_if(address_of(out.clone()).eq(PrimExpr::i64(0)), failure());
        b.store(&out, abi.tensor_dtype, PrimExpr::i32(leaf.dtype.map_or(0, dtype_word)));
        // Nobody has room for elements of a dtype that only the call tells.
        let dims = leaf.dims.as_ref().filter(|_| leaf.dtype.is_some());
        b.store(&out, abi.tensor_ndim, PrimExpr::i32(dims.map_or(-1, |d| d.len() as i32)));
        let dims = dims.cloned().unwrap_or_default();
        if dims.is_empty() {
            continue;
        }
        let shape = b.load("shape", &out, abi.tensor_shape, DType::HANDLE);
        b.fail_if(address_of(shape.clone()).eq(PrimExpr::i64(0)), failure());
        for (axis, d) in dims.into_iter().enumerate() {
            b.store(&shape, axis as i64 * 8, d.unwrap_or(PrimExpr::i64(-1)));
        }
    }
    b.ret(PrimExpr::i32(0));
    let f = b.finish(format!("{base}__infer"), vec![args, outs, call], Some(DType::I32), Linkage::Local);
    cx.funcs.push(f);
}
