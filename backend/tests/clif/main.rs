//! Every operation in every type and vector width, compiled, linked, run and compared with plain Rust: on this machine
//! for several processors, and under QEMU for others where clang, lld and QEMU are there.

mod cross;
mod expect;
mod harness;

use expect::{binary, convert};
use harness::*;
use relax_backend::{clif, Target};
use relax_ir::flat::{Callee, DataBytes, FlatData, FlatFunc, FlatModule, FlatStmt, Linkage};
use relax_ir::prim::{wrap_int, BinOp, Intrin, PrimExpr, PrimKind, Var};
use relax_ir::{Constant, DType, Span};

const INTS: [DType; 8] = [DType::I8, DType::I16, DType::I32, DType::I64, DType::U8, DType::U16, DType::U32, DType::U64];
const LANES: [u16; 6] = [1, 2, 4, 8, 12, 16];

// ---- tests ------------------------------------------------------------------------------------------------------------

#[test]
fn binary_operations() {
    use BinOp::*;
    let floats = [Add, Sub, Mul, Div, Min, Max, FloorDiv, FloorMod, Eq, Ne, Lt, Le, Gt, Ge];
    let ints = [
        Add, Sub, Mul, Div, FloorDiv, FloorMod, TruncDiv, TruncMod, Min, Max, Eq, Ne, Lt, Le, Gt, Ge, BitAnd, BitOr,
        BitXor, Shl, Shr,
    ];
    let mut module = FlatModule::default();
    let mut cases = vec![];
    let types = INTS.iter().chain(&[DType::F32, DType::F64, DType::BOOL]);
    for &d in types {
        let ops: &[BinOp] = if d.is_bool() {
            &[And, Or, Eq, Ne, BitXor]
        } else if d.is_float() {
            &floats
        } else {
            &ints
        };
        for &op in ops {
            for lanes in LANES {
                let name = format!("{op:?}_{d}_{lanes}");
                let out = if op.is_predicate() { DType::BOOL } else { d };
                module.funcs.push(elementwise(&name, &[d, d], out, lanes, |a| {
                    PrimExpr::raw_binary(op, a[0].clone(), a[1].clone())
                }));
                let expected = Box::new(move |a: &[V]| binary(op, d, a[0], a[1]));
                cases.push(Case { name, inputs: vec![d, d], out, expected });
            }
        }
    }
    check(module, cases);
}

#[test]
fn operations_with_literals() {
    use BinOp::*;
    let mut module = FlatModule::default();
    let mut cases = vec![];
    for d in INTS {
        for op in [FloorDiv, FloorMod, TruncDiv, TruncMod, Mul, Shl, Shr] {
            for c in [0i64, 1, -1, 2, 3, 8, -3, 7, -8, 10, 125, -100] {
                if c < 0 && (d.is_uint() || matches!(op, Shl | Shr)) {
                    continue;
                }
                for lanes in [1, 4] {
                    let name = format!("{op:?}_{d}_{lanes}_{}{}", if c < 0 { "m" } else { "" }, c.abs());
                    module.funcs.push(elementwise(&name, &[d], d, lanes, |a| {
                        PrimExpr::raw_binary(op, a[0].clone(), PrimExpr::int(d.with_lanes(lanes), c))
                    }));
                    let expected = Box::new(move |a: &[V]| binary(op, d, a[0], V::I(c)));
                    cases.push(Case { name, inputs: vec![d], out: d, expected });
                }
            }
        }
    }
    check(module, cases);
}

#[test]
fn casts() {
    let all: Vec<DType> =
        INTS.into_iter().chain([DType::BOOL, DType::F16, DType::BF16, DType::F32, DType::F64]).collect();
    let mut module = FlatModule::default();
    let mut cases = vec![];
    for &from in &all {
        for &to in &all {
            for lanes in LANES {
                let name = format!("{from}_to_{to}_{lanes}");
                module.funcs.push(elementwise(&name, &[from], to, lanes, |a| a[0].clone().cast(to.with_lanes(lanes))));
                let expected = Box::new(move |a: &[V]| convert(from, to, a[0]));
                cases.push(Case { name, inputs: vec![from], out: to, expected });
            }
        }
    }
    check(module, cases);
}

#[test]
fn intrinsics() {
    type F = fn(f64) -> f64;
    let floats: [(Intrin, F); 8] = [
        (Intrin::Sqrt, f64::sqrt),
        (Intrin::Floor, f64::floor),
        (Intrin::Ceil, f64::ceil),
        (Intrin::Trunc, f64::trunc),
        (Intrin::NearbyInt, f64::round_ties_even),
        (Intrin::Round, f64::round_ties_even),
        (Intrin::Abs, f64::abs),
        (Intrin::Fabs, f64::abs),
    ];
    let mut module = FlatModule::default();
    let mut cases = vec![];
    for lanes in LANES {
        for d in [DType::F16, DType::F32, DType::F64] {
            for (f, g) in floats {
                let name = format!("{}_{d}_{lanes}", f.name());
                module.funcs.push(elementwise(&name, &[d], d, lanes, |a| a[0].clone().call1(f)));
                let expected = Box::new(move |a: &[V]| match a[0] {
                    V::F(x) => V::F(relax_ir::prim::round_float(d, g(x))),
                    v => v,
                });
                cases.push(Case { name, inputs: vec![d], out: d, expected });
            }
            let name = format!("isnan_{d}_{lanes}");
            module.funcs.push(elementwise(&name, &[d], DType::BOOL, lanes, |a| a[0].clone().call1(Intrin::IsNan)));
            let expected = Box::new(|a: &[V]| V::I(matches!(a[0], V::F(x) if x.is_nan()) as i64));
            cases.push(Case { name, inputs: vec![d], out: DType::BOOL, expected });
            let name = format!("copysign_{d}_{lanes}");
            let two = |a: &[PrimExpr]| PrimExpr::call(Intrin::CopySign, [a[0].clone(), a[1].clone()]);
            module.funcs.push(elementwise(&name, &[d, d], d, lanes, two));
            let expected = Box::new(|a: &[V]| match (a[0], a[1]) {
                (V::F(x), V::F(y)) => V::F(x.copysign(y)),
                _ => unreachable!(),
            });
            cases.push(Case { name, inputs: vec![d, d], out: d, expected });
            let name = format!("neg_{d}_{lanes}");
            module.funcs.push(elementwise(&name, &[d], d, lanes, |a| a[0].clone().neg()));
            let expected = Box::new(|a: &[V]| match a[0] {
                V::F(x) => V::F(-x),
                v => v,
            });
            cases.push(Case { name, inputs: vec![d], out: d, expected });
        }
        for d in INTS {
            for f in [Intrin::Abs, Intrin::PopCount, Intrin::Clz, Intrin::BitNot] {
                let name = format!("{}_{d}_{lanes}", f.name());
                module.funcs.push(elementwise(&name, &[d], d, lanes, |a| a[0].clone().call1(f)));
                let mask = if d.bits == 64 { u64::MAX } else { (1 << d.bits) - 1 };
                let expected = Box::new(move |a: &[V]| {
                    let V::I(x) = a[0] else { unreachable!() };
                    let bits = x as u64 & mask;
                    V::I(match f {
                        Intrin::Abs if d.is_signed() => wrap_int(d, x.wrapping_abs()),
                        Intrin::Abs => x,
                        Intrin::PopCount => bits.count_ones() as i64,
                        Intrin::Clz => bits.leading_zeros() as i64 - (64 - d.bits as i64),
                        _ => wrap_int(d, !x),
                    })
                });
                cases.push(Case { name, inputs: vec![d], out: d, expected });
            }
        }
    }
    check(module, cases);
}

#[test]
fn selects_and_masks() {
    let mut module = FlatModule::default();
    let mut cases = vec![];
    let all: Vec<DType> =
        INTS.into_iter().chain([DType::BOOL, DType::F16, DType::BF16, DType::F32, DType::F64]).collect();
    for lanes in LANES {
        for &d in &all {
            // A condition from memory, and one from a comparison of another width.
            let name = format!("select_{d}_{lanes}");
            module.funcs.push(elementwise(&name, &[DType::BOOL, d, d], d, lanes, |a| {
                a[0].clone().select(a[1].clone(), a[2].clone())
            }));
            let expected = Box::new(|a: &[V]| if a[0] == V::I(1) { a[1] } else { a[2] });
            cases.push(Case { name, inputs: vec![DType::BOOL, d, d], out: d, expected });
            for c in [DType::I8, DType::F32, DType::I64] {
                let name = format!("select_{c}_{d}_{lanes}");
                module.funcs.push(elementwise(&name, &[c, d, d], d, lanes, |a| {
                    let zero = PrimExpr::zero(c.with_lanes(lanes));
                    let positive = PrimExpr::raw_binary(BinOp::Gt, a[0].clone(), zero);
                    PrimExpr::raw(PrimKind::Not(positive), DType::BOOL.with_lanes(lanes))
                        .select(a[1].clone(), a[2].clone())
                }));
                let expected = Box::new(move |a: &[V]| {
                    let gt = match a[0] {
                        V::I(x) => x > 0,
                        V::F(x) => x > 0.0,
                    };
                    if gt {
                        a[2]
                    } else {
                        a[1]
                    }
                });
                cases.push(Case { name, inputs: vec![c, d, d], out: d, expected });
            }
        }
        // Masks of different widths combined.
        let name = format!("both_{lanes}");
        module.funcs.push(elementwise(&name, &[DType::I8, DType::F64, DType::BOOL], DType::BOOL, lanes, |a| {
            let x = PrimExpr::raw_binary(BinOp::Gt, a[0].clone(), PrimExpr::zero(DType::I8.with_lanes(lanes)));
            let y = PrimExpr::raw_binary(BinOp::Lt, a[1].clone(), PrimExpr::zero(DType::F64.with_lanes(lanes)));
            x.and(y).or(a[2].clone())
        }));
        let expected = Box::new(|a: &[V]| {
            let x = matches!(a[0], V::I(v) if v > 0);
            let y = matches!(a[1], V::F(v) if v < 0.0);
            V::I((x && y || a[2] == V::I(1)) as i64)
        });
        cases.push(Case { name, inputs: vec![DType::I8, DType::F64, DType::BOOL], out: DType::BOOL, expected });
        // Ramps, fused multiply-add (exact here), reinterpretation.
        let name = format!("ramp_{lanes}");
        module.funcs.push(elementwise(&name, &[DType::I32], DType::I32, lanes, |a| {
            if lanes == 1 {
                return a[0].clone();
            }
            let ramp = PrimExpr::i32(5).ramp(PrimExpr::i32(3), lanes);
            let same = PrimExpr::i32(5).ramp(PrimExpr::i32(1) + PrimExpr::i32(2), lanes);
            PrimExpr::raw_binary(BinOp::Add, a[0].clone(), PrimExpr::raw_binary(BinOp::Sub, ramp, same))
        }));
        cases.push(Case { name, inputs: vec![DType::I32], out: DType::I32, expected: Box::new(|a: &[V]| a[0]) });
        let name = format!("bits_{lanes}");
        module.funcs.push(elementwise(&name, &[DType::F32], DType::I32, lanes, |a| {
            a[0].clone().reinterpret(DType::I32.with_lanes(lanes))
        }));
        let expected = Box::new(|a: &[V]| match a[0] {
            V::F(x) => V::I((x as f32).to_bits() as i32 as i64),
            v => v,
        });
        cases.push(Case { name, inputs: vec![DType::F32], out: DType::I32, expected });
    }
    check(module, cases);
}

/// Sums, control flow, calls, addresses, stack slots, short circuits, data with pointers.
#[test]
fn statements() {
    let mut module = FlatModule::default();
    let x = Var::new("x", DType::I64);
    let double = FlatFunc {
        name: "double".into(),
        params: vec![x.clone()],
        ret: Some(DType::I64),
        linkage: Linkage::Local,
        body: vec![FlatStmt::Return(Some(x.expr() + x.expr()))],
        span: Span::NONE,
    };
    module.funcs.push(double);
    let callee =
        Callee { name: "double".into(), params: vec![DType::I64], ret: Some(DType::I64), linkage: Linkage::Local };
    // i64 f(i64 n): sum of double(i) for odd i < n by a while loop, through a pointer every other time
    let (n, i, sum, r, p, q) = (
        Var::dim("n"),
        Var::dim("i"),
        Var::dim("sum"),
        Var::dim("r"),
        Var::new("p", DType::HANDLE),
        Var::new("slot", DType::HANDLE),
    );
    let body = vec![
        FlatStmt::Local { var: i.clone(), init: PrimExpr::i64(0) },
        FlatStmt::Local { var: sum.clone(), init: PrimExpr::i64(0) },
        FlatStmt::Address { var: p.clone(), symbol: "double".into() },
        FlatStmt::Stack { var: q.clone(), bytes: 64, align: 64 },
        FlatStmt::While {
            cond: i.expr().lt(n.expr()),
            body: vec![
                FlatStmt::If {
                    cond: i.expr().floor_mod(2).eq(1),
                    then: vec![
                        FlatStmt::Call { callee: callee.clone(), args: vec![i.expr()], result: Some(r.clone()) },
                        FlatStmt::Store { ptr: q.expr(), offset: PrimExpr::i64(3), value: r.expr() },
                        FlatStmt::Assign {
                            var: sum.clone(),
                            value: sum.expr() + PrimExpr::load_ptr(q.expr(), PrimExpr::i64(3), DType::I64),
                        },
                    ],
                    otherwise: vec![
                        FlatStmt::CallIndirect {
                            target: p.expr(),
                            callee,
                            args: vec![i.expr()],
                            result: Some(Var::dim("unused")),
                        },
                        FlatStmt::If {
                            cond: q.expr().cast(DType::I64).floor_mod(64).ne(0),
                            then: vec![FlatStmt::Return(Some(PrimExpr::i64(-1)))],
                            otherwise: vec![],
                        },
                    ],
                },
                FlatStmt::Assign { var: i.clone(), value: i.expr() + PrimExpr::i64(1) },
            ],
        },
        FlatStmt::Return(Some(sum.expr())),
    ];
    module.funcs.push(export("sum_odd", vec![n], Some(DType::I64), body));

    // f32 dot(a, b, n): vector accumulator and reduction; n a multiple of 8
    let (a, b, n, i, acc) = (
        Var::new("a", DType::HANDLE),
        Var::new("b", DType::HANDLE),
        Var::dim("n"),
        Var::dim("i"),
        Var::new("acc", DType::F32.with_lanes(8)),
    );
    let v8 = DType::F32.with_lanes(8);
    let at = |p: &Var| PrimExpr::load_ptr(p.expr(), i.expr(), v8);
    let body = vec![
        FlatStmt::Local { var: acc.clone(), init: PrimExpr::zero(v8) },
        FlatStmt::For {
            var: i.clone(),
            begin: PrimExpr::i64(0),
            end: n.expr(),
            step: 8,
            body: vec![FlatStmt::Assign {
                var: acc.clone(),
                value: PrimExpr::call(Intrin::Fma, [at(&a), at(&b), acc.expr()]),
            }],
        },
        FlatStmt::Return(Some(acc.expr().call1(Intrin::ReduceAdd))),
    ];
    module.funcs.push(export("dot", vec![a, b, n], Some(DType::F32), body));

    // i64 guarded(p, n): n > 0 && p[0] == 7 ? p[1] : -5, with p = null for n = 0
    let (p, n) = (Var::new("p", DType::HANDLE), Var::dim("n"));
    let word = |k: i64| PrimExpr::load_ptr(p.expr(), PrimExpr::i64(k), DType::I64);
    let cond = n.expr().gt(0).and(word(0).eq(7));
    let guarded = PrimExpr::raw(PrimKind::IfThenElse(cond, word(1), PrimExpr::i64(-5)), DType::I64);
    module.funcs.push(export(
        "guarded",
        vec![p.clone(), n.clone()],
        Some(DType::I64),
        vec![FlatStmt::Return(Some(guarded))],
    ));

    // Data: a table of pointers to a constant and a function; a string.
    let constant = Constant::new(DType::I32, vec![3], [1i32, 2, 42].iter().flat_map(|v| v.to_le_bytes()).collect());
    module.data.push(FlatData {
        symbol: "numbers".into(),
        align: 64,
        bytes: DataBytes::Constant(constant),
        relocs: vec![],
        linkage: Linkage::Local,
    });
    module.data.push(FlatData {
        symbol: "table".into(),
        align: 8,
        bytes: DataBytes::Owned(vec![0; 16]),
        relocs: vec![(0, "numbers".into(), 8), (8, "double".into(), 0)],
        linkage: Linkage::Export,
    });
    let (t, inner, s) = (Var::new("t", DType::HANDLE), Var::new("inner", DType::HANDLE), Var::new("s", DType::HANDLE));
    let big = Constant::new(DType::U8, vec![1 << 17], vec![9; 1 << 17]);
    module.data.push(FlatData {
        symbol: "big".into(),
        align: 64,
        bytes: DataBytes::Constant(big),
        relocs: vec![],
        linkage: Linkage::Local,
    });
    let g = Var::new("g", DType::HANDLE);
    let body = vec![
        FlatStmt::Address { var: t.clone(), symbol: "table".into() },
        FlatStmt::Address { var: g.clone(), symbol: "big".into() },
        FlatStmt::Let { var: inner.clone(), value: PrimExpr::load_ptr(t.expr(), PrimExpr::i64(0), DType::HANDLE) },
        FlatStmt::Let { var: s.clone(), value: PrimExpr::raw(PrimKind::Str("AB".into()), DType::HANDLE) },
        FlatStmt::Return(Some(
            PrimExpr::load_ptr(inner.expr(), PrimExpr::i64(0), DType::I32).cast(DType::I64)
                + PrimExpr::load_ptr(s.expr(), PrimExpr::i64(1), DType::U8).cast(DType::I64) * PrimExpr::i64(100)
                + PrimExpr::load_ptr(g.expr(), PrimExpr::i64(70000), DType::U8).cast(DType::I64)
                    * PrimExpr::i64(100000),
        )),
    ];
    module.funcs.push(export("data", vec![], Some(DType::I64), body));

    // A let that is bound twice with different values around a shared body.
    let (y, z) = (Var::dim("y"), Var::dim("z"));
    let shared = y.expr() * PrimExpr::i64(10) + PrimExpr::i64(1);
    let twice = PrimExpr::let_in(y.clone(), z.expr(), shared.clone())
        + PrimExpr::let_in(y.clone(), z.expr() + PrimExpr::i64(1), shared);
    module.funcs.push(export("twice", vec![z], Some(DType::I64), vec![FlatStmt::Return(Some(twice))]));

    for target in targets() {
        let l = load(&module, &target);
        // SAFETY: signatures as built above.
        unsafe {
            let f = l.library.get::<unsafe extern "C" fn(i64) -> i64>(b"sum_odd").unwrap();
            assert_eq!(f(10), 50);
            assert_eq!(f(0), 0);
            let a: Vec<f32> = (0..64).map(|v| v as f32).collect();
            let f = l.library.get::<unsafe extern "C" fn(*const f32, *const f32, i64) -> f32>(b"dot").unwrap();
            assert_eq!(f(a.as_ptr(), a.as_ptr(), 64), a.iter().map(|v| v * v).sum::<f32>());
            let f = l.library.get::<unsafe extern "C" fn(*const i64, i64) -> i64>(b"guarded").unwrap();
            assert_eq!(f(std::ptr::null(), 0), -5);
            assert_eq!(f([7, 8].as_ptr(), 2), 8);
            assert_eq!(f([6, 8].as_ptr(), 2), -5);
            let f = l.library.get::<unsafe extern "C" fn() -> i64>(b"data").unwrap();
            assert_eq!(f(), 42 + 6600 + 900000);
            let f = l.library.get::<unsafe extern "C" fn(i64) -> i64>(b"twice").unwrap();
            assert_eq!(f(3), 31 + 41);
        }
    }
    for triple in TRIPLES {
        let t = Target::parse(triple, "baseline").unwrap();
        assert_eq!(undefined(&clif::compile(&module, &t).unwrap()), Vec::<String>::new(), "{triple}");
    }
    let t = Target::host();
    assert!(clif::print(&module, &t).unwrap().contains("iadd"));
    assert!(clif::asm(&module, &t).unwrap().contains("ret"));
    assert_eq!(clif::compile(&module, &t).unwrap(), clif::compile(&module, &t).unwrap());
}

/// Sum, maximum and minimum of the lanes, of numbers and of conditions.
#[test]
fn reductions() {
    let mut module = FlatModule::default();
    let mut cases = vec![];
    for lanes in [2u16, 4, 8, 12, 16] {
        for d in INTS.into_iter().chain([DType::F32, DType::F64, DType::BOOL]) {
            for f in [Intrin::ReduceAdd, Intrin::ReduceMax, Intrin::ReduceMin] {
                if (d.is_bool() || d.is_float()) && f == Intrin::ReduceAdd {
                    continue;
                }
                // Over the same value in every lane, and over the value and its neighbours in a ramp.
                let name = format!("{}_{d}_{lanes}", f.name());
                module.funcs.push(elementwise(&name, &[d], d, 1, |a| {
                    let spread = a[0].clone().broadcast(lanes);
                    if d.is_bool() {
                        let first = PrimExpr::i32(0).ramp(PrimExpr::i32(1), lanes);
                        let first =
                            PrimExpr::raw_binary(BinOp::Eq, first, PrimExpr::zero(DType::I32.with_lanes(lanes)));
                        let v = PrimExpr::raw_binary(BinOp::Or, spread, first);
                        return PrimExpr::call(f, [v]);
                    }
                    let v = if d.is_float() {
                        spread
                    } else {
                        let ramp = PrimExpr::int(d, 0).ramp(PrimExpr::int(d, 1), lanes);
                        PrimExpr::raw_binary(BinOp::Add, spread, ramp)
                    };
                    PrimExpr::call(f, [v])
                }));
                let expected = Box::new(move |a: &[V]| match a[0] {
                    V::I(x) if d.is_bool() => V::I((f == Intrin::ReduceMax || x == 1) as i64),
                    V::I(x) => {
                        let all = (0..lanes as i64).map(|i| wrap_int(d, x.wrapping_add(i)));
                        let key = |v: &i64| if d.is_uint() { *v as u64 as i128 } else { *v as i128 };
                        V::I(match f {
                            Intrin::ReduceAdd => wrap_int(d, all.fold(0, i64::wrapping_add)),
                            Intrin::ReduceMax => all.max_by_key(key).unwrap_or(0),
                            _ => all.min_by_key(key).unwrap_or(0),
                        })
                    }
                    v => v,
                });
                cases.push(Case { name, inputs: vec![d], out: d, expected });
            }
        }
    }
    check(module, cases);
}

#[test]
fn faults_are_diagnostics() {
    let v = Var::dim("v");
    let f = export("f", vec![], Some(DType::I64), vec![FlatStmt::Return(Some(v.expr()))]);
    let module = FlatModule { funcs: vec![f], ..Default::default() };
    let e = clif::compile(&module, &Target::host()).unwrap_err();
    assert!(e.message.contains("`v`"), "{}", e.message);
    assert!(Target::parse("foo", "baseline").is_err());
    assert!(Target::parse("x86_64-unknown-linux-gnu", "no-such-cpu").is_err());
    assert!(Target::parse("wasm32-unknown-unknown", "baseline").is_err());
    assert!(Target::parse("aarch64-unknown-linux-gnu", "+amx-int8").is_err());
}
