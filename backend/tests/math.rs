//! Errors of the expanded transcendental functions, measured on compiled code against the C library in f64.

use relax_backend::{clif, Cpu, Target};
use relax_ir::flat::{FlatFunc, FlatModule, FlatStmt, Linkage};
use relax_ir::prim::{Intrin, PrimExpr, Var};
use relax_ir::{DType, Span};
use std::process::Command;

#[link(name = "m")]
extern "C" {
    fn exp(x: f64) -> f64;
    fn exp2(x: f64) -> f64;
    fn pow(x: f64, y: f64) -> f64;
    fn log(x: f64) -> f64;
    fn log2(x: f64) -> f64;
    fn log10(x: f64) -> f64;
    fn log1p(x: f64) -> f64;
    fn sin(x: f64) -> f64;
    fn cos(x: f64) -> f64;
    fn tan(x: f64) -> f64;
    fn asin(x: f64) -> f64;
    fn acos(x: f64) -> f64;
    fn atan(x: f64) -> f64;
    fn atan2(y: f64, x: f64) -> f64;
    fn sinh(x: f64) -> f64;
    fn cosh(x: f64) -> f64;
    fn tanh(x: f64) -> f64;
    fn asinh(x: f64) -> f64;
    fn acosh(x: f64) -> f64;
    fn atanh(x: f64) -> f64;
    fn erf(x: f64) -> f64;
    fn hypot(x: f64, y: f64) -> f64;
    fn fmod(x: f64, y: f64) -> f64;
    fn ldexp(x: f64, n: i32) -> f64;
    fn nextafter(x: f64, y: f64) -> f64;
    fn nextafterf(x: f32, y: f32) -> f32;
}

fn kernel(name: &str, f: Intrin, d: DType, lanes: u16, args: usize) -> FlatFunc {
    let ptrs: Vec<Var> = (0..args).map(|i| Var::new(format!("in{i}"), DType::HANDLE)).collect();
    let (o, n, i) = (Var::new("out", DType::HANDLE), Var::dim("n"), Var::dim("i"));
    let at: Vec<PrimExpr> = ptrs.iter().map(|p| PrimExpr::load_ptr(p.expr(), i.expr(), d.with_lanes(lanes))).collect();
    let mut value = PrimExpr::call(f, at);
    if value.dtype().is_bool() {
        value = value.cast(d.with_lanes(lanes));
    }
    elementwise(name, ptrs, i, o, n, lanes, value)
}

/// Stores `value`, of so many lanes, at each `i` below `n`.
fn elementwise(name: &str, ptrs: Vec<Var>, i: Var, o: Var, n: Var, lanes: u16, value: PrimExpr) -> FlatFunc {
    let body = vec![FlatStmt::For {
        var: i.clone(),
        begin: PrimExpr::i64(0),
        end: n.expr(),
        step: lanes as i64,
        body: vec![FlatStmt::Store { ptr: o.expr(), offset: i.expr(), value }],
    }];
    let params = ptrs.into_iter().chain([o, n]).collect();
    let mut f = FlatFunc { name: name.into(), params, ret: None, linkage: Linkage::Export, body, span: Span::NONE };
    relax_lower::math::expand(&mut f, 16);
    f
}

struct Loaded {
    library: libloading::Library,
    _dir: tempfile::TempDir,
}

fn load(module: &FlatModule, target: &Target) -> Loaded {
    let object = clif::compile(module, target).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (o, so) = (dir.path().join("t.o"), dir.path().join("t.so"));
    std::fs::write(&o, object).unwrap();
    let done = Command::new("cc").args(["-shared", "-nostdlib", "-o"]).arg(&so).arg(&o).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    // SAFETY: the library has no constructors.
    Loaded { library: unsafe { libloading::Library::new(&so).unwrap() }, _dir: dir }
}

impl Loaded {
    fn run<T: Copy + Default>(&self, name: &str, a: &[T], b: Option<&[T]>) -> Vec<T> {
        let mut out = vec![T::default(); a.len()];
        let n = a.len() as i64;
        // SAFETY: the signature is the one `kernel` builds and the buffers hold n elements.
        unsafe {
            match b {
                None => {
                    let f = self.library.get::<unsafe extern "C" fn(*const T, *mut T, i64)>(name.as_bytes()).unwrap();
                    f(a.as_ptr(), out.as_mut_ptr(), n)
                }
                Some(b) => {
                    let f = self
                        .library
                        .get::<unsafe extern "C" fn(*const T, *const T, *mut T, i64)>(name.as_bytes())
                        .unwrap();
                    f(a.as_ptr(), b.as_ptr(), out.as_mut_ptr(), n)
                }
            }
        }
        out
    }
}

struct Rng(u64);
impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

const N: usize = 60_000;
const SPECIAL: [f64; 26] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    2.0,
    -2.0,
    0.5,
    -0.5,
    3.0,
    -3.0,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    1e-40,
    -1e-40,
    1e-45,
    3.4e38,
    -3.4e38,
    1.1754944e-38,
    8388608.5,
    1e10,
    -1e10,
    1e-10,
    std::f64::consts::FRAC_1_SQRT_2,
    std::f64::consts::SQRT_2,
    std::f64::consts::PI,
];

/// Special values, then values of all sizes, then values in the range that matters.
fn samples(seed: u64, low: f64, high: f64, single: bool) -> Vec<f64> {
    let mut r = Rng(seed * 7919 + 88172645463325252);
    (0..N)
        .map(|i| {
            if i < SPECIAL.len() * SPECIAL.len() {
                return if seed == 1 { SPECIAL[i % SPECIAL.len()] } else { SPECIAL[i / SPECIAL.len()] };
            }
            match i % 4 {
                0 if single => f32::from_bits(r.next() as u32) as f64,
                0 => f64::from_bits(r.next()),
                1 => {
                    let e = (r.next() % 60) as i32 - 40;
                    (2.0 * r.unit() - 1.0) * 2f64.powi(e)
                }
                _ => low + (high - low) * r.unit(),
            }
        })
        .collect()
}

fn ulp(reference: f64, single: bool) -> f64 {
    let a = reference.abs();
    if single {
        let e = (a.log2().floor() as i32).clamp(-126, 127);
        return 2f64.powi(e - 23);
    }
    f64::from_bits(a.to_bits() + 1) - a
}

fn error(got: f64, reference: f64, single: bool) -> f64 {
    let rounded = if single { reference as f32 as f64 } else { reference };
    if got.is_nan() && rounded.is_nan() {
        return 0.0;
    }
    if got == rounded {
        return if got == 0.0 && got.is_sign_negative() != rounded.is_sign_negative() { 1e9 } else { 0.0 };
    }
    if !got.is_finite() || !rounded.is_finite() {
        // One step before overflow.
        let top = if single { f32::MAX as f64 } else { f64::MAX };
        if got.abs() >= top && rounded.abs() >= top && got.signum() == rounded.signum() {
            return 1.0;
        }
        return 1e12;
    }
    (got - reference).abs() / ulp(reference, single)
}

type Function = fn(f64, f64) -> f64;

struct Case {
    f: Intrin,
    args: usize,
    reference: Function,
    low: f64,
    high: f64,
    /// Bounds in ULP for f32 and f64.
    bound: (f64, f64),
    /// Results smaller than this may be zero in f32.
    flush: f64,
}

fn case(f: Intrin, reference: Function, low: f64, high: f64, bound: (f64, f64)) -> Case {
    Case { f, args: 1, reference, low, high, bound, flush: 0.0 }
}

fn case2(f: Intrin, reference: Function, low: f64, high: f64, bound: (f64, f64)) -> Case {
    Case { f, args: 2, reference, low, high, bound, flush: 0.0 }
}

fn cases() -> Vec<Case> {
    // SAFETY: pure functions of the C library.
    unsafe {
        let flush = |c: Case| Case { flush: 2.4e-38, ..c };
        vec![
            flush(case(Intrin::Exp, |x, _| exp(x), -87.0, 89.0, (1.5, 1.5))),
            flush(case(Intrin::Exp2, |x, _| exp2(x), -126.0, 128.0, (1.5, 1.5))),
            flush(case(Intrin::Exp10, |x, _| pow(10.0, x), -38.0, 38.5, (2.0, 2.5))),
            flush(case(Intrin::Sigmoid, |x, _| 1.0 / (1.0 + exp(-x)), -88.0, 20.0, (3.0, 4.0))),
            case(Intrin::Log, |x, _| log(x), 0.0, 4.0, (1.5, 2.0)),
            case(Intrin::Log2, |x, _| log2(x), 0.0, 4.0, (2.5, 3.0)),
            case(Intrin::Log10, |x, _| log10(x), 0.0, 4.0, (2.5, 3.0)),
            case(Intrin::Log1p, |x, _| log1p(x), -1.0, 2.0, (2.0, 3.0)),
            case(Intrin::Sin, |x, _| sin(x), -100.0, 100.0, (1.5, 2.0)),
            case(Intrin::Cos, |x, _| cos(x), -100.0, 100.0, (1.5, 2.0)),
            case(Intrin::Tan, |x, _| tan(x), -100.0, 100.0, (3.0, 4.0)),
            case(Intrin::Asin, |x, _| asin(x), -1.0, 1.0, (3.0, 3.0)),
            case(Intrin::Acos, |x, _| acos(x), -1.0, 1.0, (3.0, 3.0)),
            case(Intrin::Atan, |x, _| atan(x), -4.0, 4.0, (3.0, 3.0)),
            case(Intrin::Sinh, |x, _| sinh(x), -10.0, 10.0, (3.0, 4.0)),
            case(Intrin::Cosh, |x, _| cosh(x), -90.0, 90.0, (3.0, 4.0)),
            case(Intrin::Tanh, |x, _| tanh(x), -10.0, 10.0, (3.0, 4.0)),
            case(Intrin::Asinh, |x, _| asinh(x), -10.0, 10.0, (4.0, 4.0)),
            case(Intrin::Acosh, |x, _| acosh(x), 1.0, 10.0, (4.0, 4.0)),
            case(Intrin::Atanh, |x, _| atanh(x), -1.0, 1.0, (4.0, 4.0)),
            case(Intrin::Erf, |x, _| erf(x), -4.0, 4.0, (3.0, 4.0)),
            case(Intrin::Rsqrt, |x, _| 1.0 / x.sqrt(), 0.0, 10.0, (1.5, 2.0)),
            case(Intrin::IsInf, |x, _| x.is_infinite() as i32 as f64, 0.0, 1.0, (0.0, 0.0)),
            case(Intrin::IsFinite, |x, _| x.is_finite() as i32 as f64, 0.0, 1.0, (0.0, 0.0)),
            case(Intrin::Round, |x, _| x.round_ties_even(), -5.0, 5.0, (0.0, 0.0)),
            case2(Intrin::Atan2, |y, x| atan2(y, x), -4.0, 4.0, (3.5, 4.0)),
            case2(Intrin::Pow, |x, y| pow(x, y), 0.0, 20.0, (0.6, 10.0)),
            case2(Intrin::Hypot, |x, y| hypot(x, y), -4.0, 4.0, (1.0, 3.0)),
            case2(Intrin::Fmod, |x, y| fmod(x, y), -40.0, 4.0, (0.0, 0.0)),
        ]
    }
}

#[test]
fn errors_in_ulp() {
    let mut failures = vec![];
    let mut report = String::new();
    for (name, cpu) in [("baseline", Cpu::Baseline), ("native", Cpu::Native)] {
        let target = Target::new(Target::host().triple, cpu);
        let mut module = FlatModule::default();
        for c in cases() {
            for (d, lanes) in [(DType::F32, 1), (DType::F32, 8), (DType::F64, 1), (DType::F64, 4)] {
                module.funcs.push(kernel(&format!("{}_{d}_{lanes}", c.f.name()), c.f, d, lanes, c.args));
            }
        }
        let loaded = load(&module, &target);
        for c in cases() {
            for single in [true, false] {
                let (d, lanes) = if single { (DType::F32, 8) } else { (DType::F64, 4) };
                let round = |v: Vec<f64>| -> Vec<f64> {
                    if single {
                        v.into_iter().map(|x| x as f32 as f64).collect()
                    } else {
                        v
                    }
                };
                let a = round(samples(1, c.low, c.high, single));
                let b = round(samples(2, c.low, c.high, single));
                let second = (c.args == 2).then_some(&b);
                let run = |lanes: u16| -> Vec<f64> {
                    let name = format!("{}_{d}_{lanes}", c.f.name());
                    if single {
                        let a: Vec<f32> = a.iter().map(|&x| x as f32).collect();
                        let b: Option<Vec<f32>> = second.map(|b| b.iter().map(|&x| x as f32).collect());
                        loaded.run(&name, &a, b.as_deref()).into_iter().map(|x: f32| x as f64).collect()
                    } else {
                        loaded.run(&name, &a, second.map(Vec::as_slice))
                    }
                };
                let (got, scalar) = (run(lanes), run(1));
                let mut worst = (0.0, 0usize);
                for i in 0..N {
                    let trig = matches!(c.f, Intrin::Sin | Intrin::Cos | Intrin::Tan);
                    if !single && trig && a[i].abs() > 1e6 && a[i].is_finite() {
                        // Bounded absolutely, and up to 2^120 only.
                        let want = (c.reference)(a[i], b[i]);
                        if a[i].abs() < 1e36 && c.f != Intrin::Tan && (got[i] - want).abs() > 2e-15 {
                            failures.push(format!("{} {name} f64({:e}): {:e} for {want:e}", c.f.name(), a[i], got[i]));
                        }
                        continue;
                    }
                    if !single && c.f == Intrin::Fmod && (a[i] / b[i]).abs() > 9e15 && b[i] != 0.0 && a[i].is_finite() {
                        continue;
                    }
                    let want = (c.reference)(a[i], b[i]);
                    if single && want.abs() < c.flush && got[i] == 0.0 {
                        continue;
                    }
                    let e = error(got[i], want, single);
                    if e > worst.0 {
                        worst = (e, i);
                    }
                    let same = got[i].to_bits() == scalar[i].to_bits() || got[i].is_nan() && scalar[i].is_nan();
                    if !same && failures.len() < 50 {
                        failures.push(format!(
                            "{} {name} {d}({:e}, {:e}): vector {:e}, scalar {:e}",
                            c.f.name(),
                            a[i],
                            b[i],
                            got[i],
                            scalar[i]
                        ));
                    }
                }
                let bound = if single { c.bound.0 } else { c.bound.1 };
                let (e, i) = worst;
                report += &format!("{name:9} {:9} {d} {e:.2}\n", c.f.name());
                if e > bound {
                    failures.push(format!(
                        "{} {name} {d}({:e}, {:e}) = {:e} for {:e}: {e:.2} ULP, bound {bound}",
                        c.f.name(),
                        a[i],
                        b[i],
                        got[i],
                        (c.reference)(a[i], b[i])
                    ));
                }
            }
        }
    }
    println!("{report}");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Rule `softplus`: no logarithm, and 2.5 ULP.
#[test]
fn logarithms_of_one_and_an_exponential() {
    let of = |lanes: u16| {
        let (x, o) = (Var::new("in0", DType::HANDLE), Var::new("out", DType::HANDLE));
        let (n, i) = (Var::dim("n"), Var::dim("i"));
        let at = PrimExpr::load_ptr(x.expr(), i.expr(), DType::F32.with_lanes(lanes));
        let value = at.call1(Intrin::Fabs).neg().call1(Intrin::Exp).call1(Intrin::Log1p);
        elementwise(&format!("softplus_{lanes}"), vec![x], i, o, n, lanes, value)
    };
    let module = FlatModule { funcs: vec![of(1), of(8)], ..Default::default() };
    for f in &module.funcs {
        assert!(!format!("{:?}", f.body).contains("Div"), "{:?}", f.body);
    }
    let l = load(&module, &Target::host());
    let a: Vec<f32> = samples(1, -88.0, 88.0, true).iter().map(|&x| x as f32).collect();
    let (got, scalar) = (l.run("softplus_8", &a, None), l.run("softplus_1", &a, None));
    for (i, &x) in a.iter().enumerate() {
        // SAFETY: pure functions of the C library.
        let want = unsafe { log1p(exp(-(x as f64).abs())) };
        let e = error(got[i] as f64, want, true);
        assert!(e <= 2.5 || want < 2.4e-38 && got[i] == 0.0, "{x:e}: {:e} for {want:e}, {e} ULP", got[i]);
        assert!(got[i].to_bits() == scalar[i].to_bits() || x.is_nan() && scalar[i].is_nan(), "{x:e}");
    }
}

#[test]
fn neighbours_and_scaling() {
    let mut module = FlatModule::default();
    for d in [DType::F32, DType::F64] {
        module.funcs.push(kernel(&format!("next_{d}"), Intrin::NextAfter, d, 4, 2));
        module.funcs.push(kernel(&format!("ldexp_{d}"), Intrin::LdExp, d, 4, 2));
    }
    module.funcs.push(kernel("next_float16", Intrin::NextAfter, DType::F16, 4, 2));
    let l = load(&module, &Target::host());
    let (a, b) = (samples(1, -2.0, 2.0, true), samples(2, -2.0, 2.0, true));
    let (fa, fb): (Vec<f32>, Vec<f32>) = (a.iter().map(|&x| x as f32).collect(), b.iter().map(|&x| x as f32).collect());
    let next = l.run("next_float32", &fa, Some(&fb));
    for i in 0..N {
        // SAFETY: pure functions of the C library.
        let want = unsafe { nextafterf(fa[i], fb[i]) };
        assert!(next[i].to_bits() == want.to_bits() || want.is_nan() && next[i].is_nan(), "{} {}", fa[i], fb[i]);
    }
    let next = l.run("next_float64", &a, Some(&b));
    for i in 0..N {
        // SAFETY: pure functions of the C library.
        let want = unsafe { nextafter(a[i], b[i]) };
        assert!(next[i].to_bits() == want.to_bits() || want.is_nan() && next[i].is_nan(), "{} {}", a[i], b[i]);
    }
    let n: Vec<f64> = (0..N).map(|i| (i as f64 * 0.01) as i32 as f64 - 300.0).collect();
    let scaled = l.run("ldexp_float64", &a, Some(&n));
    for i in 0..N {
        // SAFETY: pure functions of the C library.
        let want = unsafe { ldexp(a[i], n[i] as i32) };
        assert!(scaled[i] == want || want.is_nan() && scaled[i].is_nan(), "{} {}", a[i], n[i]);
    }
    // 1.0, 0.0, -0.0, 65504.0, 1.0 towards 2.0, 1.0, -1.0, inf, 0.0
    let x: [u16; 8] = [0x3c00, 0, 0x8000, 0x7bff, 0x3c00, 0x3c00, 0x8001, 0x7c00];
    let y: [u16; 8] = [0x4000, 0x3c00, 0xbc00, 0x7c00, 0, 0x3c00, 0x3c00, 0];
    let want: [u16; 8] = [0x3c01, 1, 0x8001, 0x7c00, 0x3bff, 0x3c00, 0x8000, 0x7bff];
    assert_eq!(l.run("next_float16", &x, Some(&y)), want);
}

#[test]
fn integer_powers() {
    let mut module = FlatModule::default();
    for (d, lanes) in [(DType::I32, 1), (DType::I32, 4), (DType::I64, 1), (DType::I64, 2)] {
        module.funcs.push(kernel(&format!("pow_{d}_{lanes}"), Intrin::Pow, d, lanes, 2));
    }
    let l = load(&module, &Target::host());
    let mut r = Rng(99);
    let a: Vec<i64> = (0..4096).map(|_| (r.next() % 25) as i64 - 12).collect();
    let b: Vec<i64> = (0..4096).map(|_| (r.next() % 40) as i64 - 3).collect();
    let want = |x: i64, n: i64| match (x, n) {
        (_, 0..) => x.wrapping_pow(n as u32),
        (1, _) => 1,
        (-1, _) => 1 - 2 * (n & 1),
        _ => 0,
    };
    let expected: Vec<i64> = a.iter().zip(&b).map(|(&x, &n)| want(x, n)).collect();
    for lanes in [1, 2] {
        assert_eq!(l.run(&format!("pow_int64_{lanes}"), &a, Some(&b)), expected);
    }
    let (a, b): (Vec<i32>, Vec<i32>) = (a.iter().map(|&x| x as i32).collect(), b.iter().map(|&x| x as i32).collect());
    let expected: Vec<i32> = expected.iter().map(|&x| x as i32).collect();
    for lanes in [1, 4] {
        assert_eq!(l.run(&format!("pow_int32_{lanes}"), &a, Some(&b)), expected);
    }
}

/// Elements per second: `cargo test --release -p relax-backend --test math -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn speed() {
    for (name, cpu) in [("baseline", Cpu::Baseline), ("native", Cpu::Native)] {
        let target = Target::new(Target::host().triple, cpu);
        let mut module = FlatModule::default();
        for c in cases() {
            for (d, lanes) in [(DType::F32, 4), (DType::F32, 8), (DType::F32, 16), (DType::F64, 4)] {
                module.funcs.push(kernel(&format!("{}_{d}_{lanes}", c.f.name()), c.f, d, lanes, c.args));
            }
        }
        let l = load(&module, &target);
        for c in cases() {
            let mut line = format!("{name:9} {:9}", c.f.name());
            for (d, lanes) in [(DType::F32, 4), (DType::F32, 8), (DType::F32, 16), (DType::F64, 4)] {
                let mut r = Rng(5);
                let x: Vec<f64> =
                    (0..4096).map(|_| c.low.max(-40.0) + (c.high.min(40.0) - c.low.max(-40.0)) * r.unit()).collect();
                let f: Vec<f32> = x.iter().map(|&v| v as f32).collect();
                let name = format!("{}_{d}_{lanes}", c.f.name());
                let mut best = f64::MAX;
                for _ in 0..60 {
                    let start = std::time::Instant::now();
                    if d == DType::F32 {
                        std::hint::black_box(l.run(&name, &f, (c.args == 2).then_some(&f[..])));
                    } else {
                        std::hint::black_box(l.run(&name, &x, (c.args == 2).then_some(&x[..])));
                    }
                    best = best.min(start.elapsed().as_secs_f64());
                }
                line += &format!("  {d}x{lanes} {:.2} G/s", 4096.0 / best / 1e9);
            }
            println!("{line}");
        }
    }
}
