//! Where a call's workspace comes from: the caller, several memories, or the runtime.

use super::*;

/// Runs `f` with a pointer to the workspace: the caller's when it is large enough, else from the call's allocator,
/// given back behind it.
pub(super) fn with_workspace(
    b: &mut Builder,
    call: &PrimExpr,
    layout: &Layout,
    f: impl FnOnce(&mut Builder, PrimExpr) -> PrimExpr,
) -> PrimExpr {
    let abi = b.abi;
    let ws = b.local("workspace", null());
    if layout.total.is_int(0) {
        return f(b, ws.expr());
    }
    let owned = b.local("owned", PrimExpr::i32(0));
    room::check(b, &layout.total);
    let needed = b.bind("needed", layout.total.clone());
    if !layout.regions.is_empty() {
        memories(b, call, layout, &ws);
        return f(b, ws.expr());
    }
    workspace(b, call, &needed, &ws, &owned);
    let rc = f(b, ws.expr());
    b.if_then(owned.expr().ne(PrimExpr::i32(0)), |b| {
        let release = b.load("release", call, abi.call_release, DType::HANDLE);
        let this = b.load("allocator", call, abi.call_allocator, DType::HANDLE);
        let int = pointer_int(abi);
        let callee = local_callee("", vec![DType::HANDLE, DType::HANDLE, int], None);
        b.if_then(address_of(release.clone()).ne(PrimExpr::i64(0)), |b| {
            let args = vec![this, ws.expr(), needed.clone().cast(int)];
            b.push(FlatStmt::CallIndirect { target: release, callee, args, result: None })
        });
    });
    rc
}

/// Sets `ws` to the array of memories that the call brings: each large enough and aligned.
pub(super) fn memories(b: &mut Builder, call: &PrimExpr, layout: &Layout, ws: &Var) {
    let (abi, zero) = (b.abi, PrimExpr::i64(0));
    let size = b.local("size", zero.clone());
    b.if_then(address_of(call.clone()).ne(zero.clone()), |b| {
        let given = b.load("given", call, abi.call_workspace, DType::HANDLE);
        b.assign(ws, given.clone());
        b.if_then(address_of(given).ne(PrimExpr::i64(0)), |b| {
            let bytes = b.load("bytes", call, abi.call_workspace_size, pointer_int(abi)).cast(DType::I64);
            b.assign(&size, bytes);
        });
    });
    let wanted = layout.total.clone();
    let small = size.expr().lt(wanted.clone());
    let what = "array of the workspace's regions, size in bytes";
    b.fail_if(small, Failure { code: code::WORKSPACE, constraint: 0, wanted, got: size.expr(), what });
    for (i, r) in layout.regions.iter().enumerate().filter(|(_, r)| r.bytes > 0) {
        let at = 2 * i as i64 * i64::from(abi.pointer);
        let memory = b.load("memory", &ws.expr(), at, DType::HANDLE);
        let got = b.load("bytes", &ws.expr(), at + i64::from(abi.pointer), pointer_int(abi)).cast(DType::I64);
        let got = b.bind("got", got);
        let wanted = PrimExpr::i64(r.bytes as i64);
        let what = format!("region {} of the workspace, size in bytes", r.name);
        let small = got.clone().lt(wanted.clone());
        b.fail_if(small, Failure { code: code::WORKSPACE, constraint: 0, wanted, got, what: &what });
        let what = format!("region {} of the workspace", r.name);
        let none = address_of(memory.clone()).eq(zero.clone());
        b.fail_if(
            none,
            Failure { code: code::NULL, constraint: 0, wanted: zero.clone(), got: zero.clone(), what: &what },
        );
        let off = PrimExpr::binary(BinOp::BitAnd, address_of(memory), PrimExpr::i64(memory::ALIGN - 1));
        let off = b.bind("off", off);
        let what = format!("region {} of the workspace, alignment in bytes", r.name);
        let wanted = PrimExpr::i64(memory::ALIGN);
        let bad = off.clone().ne(zero.clone());
        b.fail_if(bad, Failure { code: code::ALIGN, constraint: 0, wanted, got: off, what: &what });
    }
}

/// Sets `ws` to `needed` bytes: from the call record, or its allocator (then `owned` is set).
pub(super) fn workspace(b: &mut Builder, call: &PrimExpr, needed: &PrimExpr, ws: &Var, owned: &Var) {
    let abi = b.abi;
    let zero = PrimExpr::i64(0);
    let size = b.local("size", zero.clone());
    let allocate = b.local("allocate", null());
    b.if_then(address_of(call.clone()).ne(zero.clone()), |b| {
        let given = b.load("given", call, abi.call_workspace, DType::HANDLE);
        let alloc = b.load("alloc", call, abi.call_allocate, DType::HANDLE);
        b.assign(ws, given.clone());
        b.assign(&allocate, alloc);
        b.if_then(address_of(given).ne(PrimExpr::i64(0)), |b| {
            let bytes = b.load("bytes", call, abi.call_workspace_size, pointer_int(abi)).cast(DType::I64);
            b.assign(&size, bytes);
        });
    });
    b.if_then(size.expr().lt(needed.clone()), |b| {
        b.fail_if(
            address_of(allocate.expr()).eq(zero.clone()),
            Failure {
                code: code::WORKSPACE,
                constraint: 0,
                wanted: needed.clone(),
                got: size.expr(),
                what: "workspace size in bytes",
            },
        );
        let this = b.load("allocator", call, abi.call_allocator, DType::HANDLE);
        let int = pointer_int(abi);
        let callee = local_callee("", vec![DType::HANDLE, int, int], Some(DType::HANDLE));
        let result = Var::new("fresh", DType::HANDLE);
        b.push(FlatStmt::CallIndirect {
            target: allocate.expr(),
            callee,
            args: vec![this, needed.clone().cast(int), PrimExpr::int(int, memory::ALIGN)],
            result: Some(result.clone()),
        });
        b.fail_if(
            address_of(result.expr()).eq(zero.clone()),
            Failure {
                code: code::MEMORY,
                constraint: 0,
                wanted: needed.clone(),
                got: zero.clone(),
                what: "allocation of the workspace in bytes",
            },
        );
        b.assign(ws, result.expr());
        b.assign(owned, PrimExpr::i32(1));
    });
    let off = PrimExpr::binary(BinOp::BitAnd, address_of(ws.expr()), PrimExpr::i64(memory::ALIGN - 1));
    let off = b.bind("off", off);
    b.fail_if(
        off.clone().ne(zero),
        Failure {
            code: code::ALIGN,
            constraint: 0,
            wanted: PrimExpr::i64(memory::ALIGN),
            got: off,
            what: "alignment of the workspace in bytes",
        },
    );
}
