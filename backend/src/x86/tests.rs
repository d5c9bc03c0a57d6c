//! Code of small functions, byte for byte.

use super::build::Held;
use super::inst::{Base, Inst, Op1, Op2};
use super::{alloc, assemble, in_loops, innermost, translated, Wide};
use relax_ir::flat::{FlatFunc, FlatStmt, Linkage};
use relax_ir::prim::{BinOp, Intrin, PrimExpr, Var};
use relax_ir::{DType, Span};

const WIDE: Wide = Wide { dot4: true, ..Wide::V4 };

/// `y = sum + a * b` for tiles of so many rows, of which one more has `extra` rows for each that is given.
fn product(rows: u16, extra: &[u16]) -> FlatFunc {
    let params: Vec<Var> = ["sum", "a", "b", "y"].map(|n| Var::new(n, DType::HANDLE)).into();
    let [sum, a, b, y] = [0, 1, 2, 3].map(|i: usize| params[i].expr());
    let mut body = vec![];
    let mut tile = |ptr: &PrimExpr, stride: i64, d: DType| {
        let var = Var::new("tile", d);
        body.push(FlatStmt::Let { var: var.clone(), value: PrimExpr::tile_rows(ptr.clone(), stride.into(), d) });
        var.expr()
    };
    let others: Vec<_> = extra.iter().map(|rows| tile(&a, 96, DType::U8.with_lanes(rows * 64))).collect();
    let (a, b) = (tile(&a, 96, DType::U8.with_lanes(rows * 64)), tile(&b, 256, DType::I8.with_lanes(1024)));
    let sums = DType::I32.with_lanes(rows * 16);
    let acc = Var::new("acc", sums);
    body.push(FlatStmt::Local { var: acc.clone(), init: PrimExpr::tile_rows(sum, 0.into(), sums) });
    let value = PrimExpr::call(Intrin::TileDot, [acc.expr(), a, b]);
    body.push(FlatStmt::Assign { var: acc.clone(), value });
    body.push(FlatStmt::Store { ptr: y.clone(), offset: 0.into(), value: acc.expr() });
    for value in others {
        body.push(FlatStmt::Store { ptr: y.clone(), offset: 0.into(), value });
    }
    let name = "product".to_string();
    FlatFunc { name, params, ret: None, linkage: Linkage::Local, body, span: Span::NONE }
}

fn has(code: &[u8], part: &[u8]) -> bool {
    code.windows(part.len()).any(|w| w == part)
}

/// The instructions of Intel's manual (volume 2: LDTILECFG, TILELOADD, TDPBUSD, TILESTORED, TILERELEASE), and the
/// configuration behind the code: palette 1, 64 bytes a row, rows of each register.
#[test]
fn tiles_are_configured_multiplied_and_released() {
    let code = assemble(&product(13, &[]), WIDE).expect("tiles").bytes;
    for (name, part) in [
        ("ldtilecfg", &[0xc4, 0xe2, 0x78, 0x49][..]),
        // tmm0 from [rsi + r11], tmm2 to [r8 + r11].
        ("tileloadd", &[0xc4, 0xa2, 0x7b, 0x4b, 0x04, 0x1e]),
        ("tilestored", &[0xc4, 0x82, 0x7a, 0x4b, 0x14, 0x18]),
        ("tilerelease", &[0xc4, 0xe2, 0x78, 0x49, 0xc0]),
        // Sums in tmm2, bytes in tmm0 and tmm1.
        ("tdpbusd", &[0xc4, 0xe2, 0x71, 0x5e, 0xd0]),
    ] {
        assert!(has(&code, part), "{name}: {code:x?}");
    }
    let config = &code[code.len() - 64..];
    assert_eq!(config[0], 1);
    assert_eq!(config[16..22], [64, 0, 64, 0, 64, 0]);
    assert_eq!(config[48..52], [13, 16, 13, 0]);
}

/// Others are for the vectors of another form.
#[test]
fn kernels_with_too_many_tiles_are_refused() {
    assert!(assemble(&product(16, &[16; 5]), WIDE).is_some());
    assert!(assemble(&product(16, &[16; 6]), WIDE).is_none());
    assert!(assemble(&product(16, &[12, 12, 13, 14, 15]), WIDE).is_some());
    assert!(assemble(&product(16, &[]), Wide::V3).is_none());
}

/// PREFETCHT1 (0F 18 /2) of an address with a displacement.
#[test]
fn lines_are_fetched_ahead() {
    let x = Var::new("x", DType::HANDLE);
    let body = vec![FlatStmt::Prefetch { ptr: x.expr().ptr_add(64) }];
    let name = "ahead".to_string();
    let f = FlatFunc { name, params: vec![x], ret: None, linkage: Linkage::Local, body, span: Span::NONE };
    let code = assemble(&f, WIDE).expect("a hint").bytes;
    let fetches = |w: &[u8]| w[..2] == [0x0f, 0x18] && w[2] / 8 == 0b1010 && w[3] == 64;
    assert!(code.windows(4).any(fetches), "{code:x?}");
}

fn kernel(params: &[&Var], body: Vec<FlatStmt>) -> FlatFunc {
    let params = params.iter().map(|v| (*v).clone()).collect();
    FlatFunc { name: "kernel".into(), params, ret: None, linkage: Linkage::Local, body, span: Span::NONE }
}

/// VFMADD231PD (EVEX.66.0F38.W1 B8) of 512 bits, with an element for all lanes in memory.
#[test]
fn float64_is_multiplied_by_vectors() {
    let [a, b, y] = ["a", "b", "y"].map(|n| Var::new(n, DType::HANDLE));
    let d = DType::F64.with_lanes(8);
    let acc = Var::new("acc", d);
    let zero = PrimExpr::float(DType::F64, 0.0).broadcast(8);
    let row = PrimExpr::load_ptr(b.expr(), 0.into(), d);
    let one = PrimExpr::load_ptr(a.expr(), 0.into(), DType::F64).broadcast(8);
    let body = vec![
        FlatStmt::Local { var: acc.clone(), init: zero },
        FlatStmt::Assign { var: acc.clone(), value: PrimExpr::call(Intrin::Fma, [row, one, acc.expr()]) },
        FlatStmt::Store { ptr: y.expr(), offset: 0.into(), value: acc.expr() },
    ];
    let f = kernel(&[&a, &b, &y], body);
    let code = assemble(&f, WIDE).expect("a kernel").bytes;
    let multiplies =
        |w: &[u8]| w[0] == 0x62 && w[1] & 7 == 2 && w[2] & 0x83 == 0x81 && w[3] & 0x70 == 0x50 && w[4] == 0xb8;
    assert!(code.windows(5).any(multiplies), "{code:x?}");
}

/// VCVTTPS2QQ (EVEX.66.0F.W0 7A) is AVX-512's.
#[test]
fn floats_become_int64_by_vectors_where_these_are_wide() {
    let [x, y] = ["x", "y"].map(|n| Var::new(n, DType::HANDLE));
    let value = PrimExpr::load_ptr(x.expr(), 0.into(), DType::F32.with_lanes(8)).cast(DType::I64.with_lanes(8));
    let f = kernel(&[&x, &y], vec![FlatStmt::Store { ptr: y.expr(), offset: 0.into(), value }]);
    let code = assemble(&f, WIDE).expect("a kernel").bytes;
    let converts = |w: &[u8]| w[0] == 0x62 && w[1] & 7 == 1 && w[2] & 0x83 == 1 && w[3] & 0x60 == 0x40 && w[4] == 0x7a;
    assert!(code.windows(5).any(converts), "{code:x?}");
    assert!(assemble(&f, Wide::V3).is_none());
}

/// VGATHERQPS (EVEX.66.0F38.W0 93), whose result is no register of its operands.
#[test]
fn elements_are_read_by_their_numbers() {
    let [x, at, y] = ["x", "at", "y"].map(|n| Var::new(n, DType::HANDLE));
    let numbers = PrimExpr::load_ptr(at.expr(), 0.into(), DType::I64.with_lanes(16));
    let value = PrimExpr::load_ptr(x.expr(), numbers, DType::F32.with_lanes(16));
    let f = kernel(&[&x, &at, &y], vec![FlatStmt::Store { ptr: y.expr(), offset: 0.into(), value }]);
    let code = assemble(&f, WIDE).expect("a kernel").bytes;
    let gathers: Vec<&[u8]> =
        code.windows(7).filter(|w| w[0] == 0x62 && w[1] & 7 == 2 && w[2] & 0x83 == 1 && w[4] == 0x93).collect();
    assert_eq!(gathers.len(), 2, "{code:x?}");
    for g in gathers {
        // The register of the result and that of the index, of three bits here and further ones in the prefix, inverted.
        let result = ((g[5] >> 3) & 7) | ((!g[1] >> 4) & 8) | (!g[1] & 16);
        let index = ((g[6] >> 3) & 7) | ((!g[1] >> 3) & 8) | ((!g[3] << 1) & 16);
        assert_ne!(result, index, "{g:x?}");
    }
    assert!(assemble(&f, Wide::V3).is_none());
}

/// `y += a[0] * b` for 16 elements, with a store to `a` between load and product where `stored`.
fn spread_once(stored: bool) -> FlatFunc {
    let params: Vec<Var> = ["a", "b", "y"].map(|n| Var::new(n, DType::HANDLE)).into();
    let [a, b, y] = [0, 1, 2].map(|i: usize| params[i].expr());
    let wide = DType::F32.with_lanes(16);
    let (x, w, acc) = (Var::new("x", DType::F32), Var::new("w", wide), Var::new("acc", wide));
    let mut body = vec![
        FlatStmt::Local { var: acc.clone(), init: PrimExpr::load_ptr(y.clone(), 0.into(), wide) },
        FlatStmt::Let { var: w.clone(), value: PrimExpr::load_ptr(b, 0.into(), wide) },
        FlatStmt::Let { var: x.clone(), value: PrimExpr::load_ptr(a.clone(), 0.into(), DType::F32) },
    ];
    if stored {
        body.push(FlatStmt::Store { ptr: a, offset: 0.into(), value: w.expr() });
    }
    let value = PrimExpr::call(Intrin::Fma, [x.expr().broadcast(16), w.expr(), acc.expr()]);
    body.push(FlatStmt::Assign { var: acc.clone(), value });
    body.push(FlatStmt::Store { ptr: y, offset: 0.into(), value: acc.expr() });
    let name = "spread".to_string();
    FlatFunc { name, params, ret: None, linkage: Linkage::Local, body, span: Span::NONE }
}

/// VBROADCASTSS zmm, m32, and what follows the prefix of VFMADD231PS zmm, zmm, m32{1to16} (EVEX.b is set).
#[test]
fn an_element_of_one_product_is_spread_by_it() {
    let spread = [0x62, 0xf2, 0x7d, 0x48, 0x18];
    let code = assemble(&spread_once(false), WIDE).expect("vectors").bytes;
    assert!(!has(&code, &spread), "{code:x?}");
    assert!(code.windows(6).any(|w| w[0] == 0x62 && w[3] & 0x10 != 0 && w[4] == 0xb8), "{code:x?}");
    let code = assemble(&spread_once(true), WIDE).expect("vectors").bytes;
    assert!(has(&code, &spread), "{code:x?}");
}

/// Two loops over vectors with so many constants each.
fn constants(count: usize) -> FlatFunc {
    let params: Vec<Var> = ["x", "y"].map(|n| Var::new(n, DType::HANDLE)).into();
    let [x, y] = [0, 1].map(|i: usize| params[i].expr());
    let each = |from: usize| {
        let var = Var::new("i", DType::I64);
        let d = DType::F32.with_lanes(16);
        let mut value = PrimExpr::load_ptr(x.clone(), var.expr(), d);
        for k in from..from + count {
            value = value * PrimExpr::f32(k as f32 + 0.5).broadcast(16) + PrimExpr::f32(k as f32 + 0.25).broadcast(16);
        }
        let body = vec![FlatStmt::Store { ptr: y.clone(), offset: var.expr(), value }];
        FlatStmt::For { var, begin: 0.into(), end: 64.into(), step: 16, body }
    };
    let body = vec![each(0), each(count)];
    FlatFunc { name: "constants".into(), params, ret: None, linkage: Linkage::Local, body, span: Span::NONE }
}

/// Constants of several loops that have no room in registers together are held in them while each loop runs.
#[test]
fn each_loop_holds_its_own_constants() {
    for count in [6, 13] {
        let f = constants(count);
        let all = translated(&f, WIDE, Held::Always, &[]).expect("instructions");
        assert_eq!(alloc::in_registers(&all, WIDE).is_some(), 4 * count < 30, "{count} constants");
        let program = translated(&f, WIDE, Held::Loops, &innermost(&f.body)).expect("instructions");
        assert!(alloc::in_registers(&program, WIDE).is_some(), "{count} constants");
        assert_eq!(program.loops.len(), 2);
        for &(from, to) in &program.loops {
            assert!(matches!(program.code[from], Inst::Label(_)) && matches!(program.code[to], Inst::Branch { .. }));
            assert!(!program.code[from..=to].iter().any(reads_constant), "{count} constants are read in each round");
            assert_eq!(program.code[from - 2 * count..from].iter().filter(|i| reads_constant(i)).count(), 2 * count);
        }
    }
}

/// Whether an instruction reads a constant.
fn reads_constant(i: &Inst) -> bool {
    matches!(i, Inst::Spread { m, .. } if matches!(m.base, Base::Pool(_)))
}

/// Loops around loops hold constants, too, where there are registers for all within them.
#[test]
fn loops_around_loops_hold_constants() {
    for (count, together) in [(13, 1), (13, 2), (6, 2)] {
        let mut f = constants(count);
        let last = f.body.split_off(2 - together);
        let around =
            FlatStmt::For { var: Var::new("j", DType::I64), begin: 0.into(), end: 4.into(), step: 1, body: last };
        f.body.push(around);
        let (program, _) = in_loops(&f, WIDE, Held::Runs).expect("registers");
        let &(from, to) = program.loops.iter().max_by_key(|(from, to)| to - from).expect("loops");
        let within = program.code[from..=to].iter().filter(|i| reads_constant(i)).count();
        let holds = 2 * count * together < 30;
        assert_eq!(within, if holds { 0 } else { 2 * count * together }, "{count} constants of {together} loops");
    }
}

/// What no loop holds is read once for all that comes before the next label.
#[test]
fn constants_are_read_once_in_a_run() {
    let y = Var::new("y", DType::HANDLE);
    let value =
        |k: f32| PrimExpr::f32(k).broadcast(16) + PrimExpr::load_ptr(y.expr(), 64.into(), DType::F32.with_lanes(16));
    let store = |at: i64| FlatStmt::Store { ptr: y.expr(), offset: at.into(), value: value(1.5) };
    let f = kernel(&[&y], vec![store(0), store(16), store(32)]);
    for (held, reads) in [(Held::Runs, 1), (Held::Loops, 3)] {
        let program = translated(&f, WIDE, held, &[]).expect("instructions");
        assert_eq!(program.code.iter().filter(|i| reads_constant(i)).count(), reads, "{held:?}");
    }
}

/// `y = x / z` of 64 integers by the operator, 16 at a time; or by a constant.
fn divided(op: BinOp, d: DType, by: Option<i64>) -> FlatFunc {
    let [x, z, y] = ["x", "z", "y"].map(|n| Var::new(n, DType::HANDLE));
    let i = Var::new("i", DType::I64);
    let [a, b] = [&x, &z].map(|p| PrimExpr::load_ptr(p.expr(), i.expr(), d.with_lanes(16)));
    let b = by.map_or(b, |n| PrimExpr::int(d, n).broadcast(16));
    let store = FlatStmt::Store { ptr: y.expr(), offset: i.expr(), value: PrimExpr::raw_binary(op, a, b) };
    let body = vec![FlatStmt::For { var: i, begin: 0.into(), end: 64.into(), step: 16, body: vec![store] }];
    kernel(&[&x, &z, &y], body)
}

/// VDIVPD (5E) by wide vectors; int64 also has a loop that divides one by one, within the loop that holds the constants.
#[test]
fn integers_are_divided_as_float64() {
    for op in [BinOp::TruncDiv, BinOp::TruncMod, BinOp::FloorDiv, BinOp::FloorMod] {
        for (d, loops) in [(DType::I32, 1), (DType::I64, 3)] {
            let f = divided(op, d, None);
            for wide in [WIDE, Wide::V3] {
                let program = translated(&f, wide, Held::Loops, &innermost(&f.body)).expect("instructions");
                let divisions = |i: &&Inst| matches!(i, Inst::Two { op: Op2::DivD, .. });
                assert_eq!(program.code.iter().filter(divisions).count(), 32 / wide.lanes as usize, "{op:?} of {d}");
                assert_eq!(program.loops.len(), if wide == WIDE { loops } else { 2 * loops - 1 }, "{op:?} of {d}");
                for &(from, to) in &program.loops {
                    assert!(matches!(program.code[from], Inst::Label(_)), "{op:?} of {d}");
                    assert!(matches!(program.code[to], Inst::Branch { .. }), "{op:?} of {d}");
                }
                assert!(assemble(&f, wide).is_some(), "{op:?} of {d}");
                let known = translated(&divided(op, d, Some(-7)), wide, Held::Loops, &[]).expect("instructions");
                assert!(!known.code.iter().any(|i| divisions(&i)), "{op:?} of {d} by a constant");
            }
        }
    }
}

/// A node that binds names is computed once, as others are.
#[test]
fn names_that_are_used_twice_are_bound_once() {
    let [x, y] = ["x", "y"].map(|n| Var::new(n, DType::HANDLE));
    let d = DType::F32.with_lanes(16);
    let t = Var::new("t", d);
    let root = PrimExpr::load_ptr(x.expr(), 0.into(), d).call1(Intrin::Sqrt);
    let named = PrimExpr::let_in(t.clone(), root, t.expr() + PrimExpr::f32(1.0).broadcast(16));
    let value = named.clone() * (named + PrimExpr::f32(2.0).broadcast(16));
    let f = kernel(&[&x, &y], vec![FlatStmt::Store { ptr: y.expr(), offset: 0.into(), value }]);
    let program = translated(&f, WIDE, Held::Always, &[]).expect("instructions");
    let roots = |i: &&Inst| matches!(i, Inst::One { op: Op1::Sqrt, .. });
    assert_eq!(program.code.iter().filter(roots).count(), 1);
}

/// Exponents of float64 are taken apart and made by vectors of 64 bits: VPSRLQ and VPSLLQ by AVX-512.
#[test]
fn bits_of_float64_are_shifted_by_vectors() {
    let [x, y] = ["x", "y"].map(|n| Var::new(n, DType::HANDLE));
    let of = |code| relax_ir::DType { code, ..DType::I64.with_lanes(16) };
    let (signed, unsigned) = (of(relax_ir::TypeCode::Int), of(relax_ir::TypeCode::UInt));
    let by = || PrimExpr::i64(52).broadcast(16);
    let bits = PrimExpr::load_ptr(x.expr(), 0.into(), DType::F64.with_lanes(16)).reinterpret(unsigned);
    let down = PrimExpr::raw_binary(BinOp::Shr, bits, by().reinterpret(unsigned)).reinterpret(signed);
    let up = PrimExpr::raw_binary(BinOp::Shl, down, by()).reinterpret(DType::F64.with_lanes(16));
    let f = kernel(&[&x, &y], vec![FlatStmt::Store { ptr: y.expr(), offset: 0.into(), value: up }]);
    let program = translated(&f, WIDE, Held::Always, &[]).expect("instructions");
    for op in [Op2::ShrL, Op2::ShlL] {
        let shifts = |i: &&Inst| matches!(i, Inst::Two { op: o, .. } if *o == op);
        assert_eq!(program.code.iter().filter(shifts).count(), 2, "{op:?}");
    }
    assert!(assemble(&f, Wide::V3).is_none());
}
