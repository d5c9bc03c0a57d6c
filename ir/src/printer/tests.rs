use super::*;
use crate::prim::BinOp;
use crate::tir::KernelBuilder;

fn n() -> Var {
    Var::dim("n")
}

#[test]
fn operators_bind_as_in_python() {
    let (a, b, c) = (Var::dim("a").expr(), Var::dim("b").expr(), Var::dim("c").expr());
    let bin = |op, x: &PrimExpr, y: &PrimExpr| PrimExpr::raw_binary(op, x.clone(), y.clone());
    let sum = bin(BinOp::Add, &b, &c);
    assert_eq!(print_prim(&bin(BinOp::Add, &a, &sum)), "a + (b + c)");
    assert_eq!(print_prim(&bin(BinOp::Add, &sum, &a)), "b + c + a");
    assert_eq!(print_prim(&bin(BinOp::Mul, &sum, &a)), "(b + c) * a");
    assert_eq!(print_prim(&bin(BinOp::FloorMod, &bin(BinOp::FloorDiv, &a, &b), &c)), "a // b % c");
    let less = bin(BinOp::Lt, &a, &sum);
    assert_eq!(print_prim(&bin(BinOp::Eq, &less, &less)), "(a < b + c) == (a < b + c)");
    let and = bin(BinOp::And, &less, &less);
    assert_eq!(print_prim(&bin(BinOp::Or, &and, &less)), "a < b + c and a < b + c or a < b + c");
    assert_eq!(
        print_prim(&bin(BinOp::And, &less, &bin(BinOp::Or, &less, &less)).not()),
        "not (a < b + c and (a < b + c or a < b + c))"
    );
}

#[test]
fn literals_state_their_type() {
    assert_eq!(print_prim(&PrimExpr::i64(-3)), "-3");
    assert_eq!(print_prim(&PrimExpr::i32(4)), "T.int32(4)");
    assert_eq!(print_prim(&PrimExpr::f32(0.1)), "T.float32(0.1)");
    assert_eq!(print_prim(&PrimExpr::float(DType::F16, 0.1)), "T.float16(0.1)");
    assert_eq!(print_prim(&PrimExpr::float(DType::BF16, 1e30)), "T.bfloat16(1e30)");
    assert_eq!(print_prim(&PrimExpr::float(DType::F64, f64::NEG_INFINITY)), "T.float64(\"-inf\")");
    assert_eq!(print_prim(&PrimExpr::int(DType::U64, -1)), "T.uint64(18446744073709551615)");
    let two = PrimExpr::raw_binary(BinOp::Add, PrimExpr::i64(1), PrimExpr::i64(2));
    assert_eq!(print_prim(&two), "T.int64(1) + 2", "or a parser would see 3");
}

#[test]
fn a_kernel_with_a_scalar_parameter() {
    let (n, m) = (n(), Var::dim("m"));
    let mut k = KernelBuilder::new("pad");
    let x = k.input("x", &[n.expr()], DType::F32);
    let y = k.compute("y", &[n.expr() + m.expr()], DType::F32, |i| {
        let inside = i[0].clone().lt(n.expr());
        inside.if_then_else(x.at(i), PrimExpr::f32(0.0))
    });
    let f = k.finish(&[y]);
    let want = "\
@T.prim_func(private=True, s_tir=True)
def pad(x: T.Buffer((n,), \"float32\"), m: T.int64, y: T.Buffer((\"n + m\",), \"float32\")):
    T.func_attr({\"tirx.noalias\": True})
    # with T.sblock(\"root\"):
    for ax0 in range(n + m):
        with T.sblock(\"y\"):
            v_ax0 = T.axis.spatial(n + m, ax0)
            y[v_ax0] = T.if_then_else(v_ax0 < n, x[v_ax0], T.float32(0.0))
";
    assert_eq!(print_prim_func(&f), want);
}

#[test]
fn flat_functions_are_listed() {
    use crate::flat::{FlatFunc, FlatStmt, Linkage};
    let (p, n, i) = (Var::new("p", DType::HANDLE), n(), Var::dim("i"));
    let v4 = DType::F32.with_lanes(4);
    let loaded = PrimExpr::load_ptr(p.expr(), i.expr(), v4);
    let store = FlatStmt::Store { ptr: p.expr().ptr_add(64), offset: i.expr(), value: loaded };
    let body = vec![
        FlatStmt::For { var: i.clone(), begin: PrimExpr::i64(0), end: n.expr(), step: 4, body: vec![store] },
        FlatStmt::Return(Some(PrimExpr::i32(0))),
    ];
    let f = FlatFunc {
        name: "copy".into(),
        params: vec![p, n],
        ret: Some(DType::I32),
        linkage: Linkage::Export,
        body,
        span: crate::Span::NONE,
    };
    let want = "\
export func copy(p: handle, n: int64) -> int32:
    for i in range(0, n, 4):
        T.float32x4(p + 64[i]) = T.float32x4(p[i])
    return T.int32(0)
";
    assert_eq!(print_flat_func(&f), want.replace("p + 64[i]", "(p + 64)[i]"));
}

/// TVM takes a name for `T.Let` that the kernel declares.
#[test]
fn names_of_lets_are_declared() {
    let mut k = KernelBuilder::new("f");
    let four = [PrimExpr::i64(4)];
    let x = k.input("x", &four, DType::F32);
    let v = Var::new("v", DType::F32);
    let y = k.compute("y", &four, DType::F32, |i| PrimExpr::let_in(v.clone(), x.at(i), v.expr() + v.expr()));
    let text = print_prim_func(&k.finish(&[y]));
    assert!(text.contains("v = T.float32()\n"), "{text}");
    assert!(text.contains("T.Let(v + v, where={v: x["), "{text}");
}
