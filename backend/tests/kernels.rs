//! Scheduled kernels through the code generator: results, and (ignored) speed.

use relax_backend::{clif, Cpu, Target};
use relax_ir::flat::{FlatModule, Linkage};
use relax_ir::prim::{Intrin, PrimExpr, Var};
use relax_ir::tir::{KernelBuilder, PrimFunc, Reducer};
use relax_ir::DType;
use relax_lower::schedule::{schedule, SchedOptions};
use std::process::Command;
use std::slice::from_ref;

const F: DType = DType::F32;

fn matmul(dims: [PrimExpr; 3]) -> PrimFunc {
    let [m, n, k] = dims;
    let mut b = KernelBuilder::new("matmul");
    let x = b.input("x", &[m.clone(), k.clone()], F);
    let y = b.input("y", &[k.clone(), n.clone()], F);
    let o =
        b.sum("o", &[m, n], F, &[k], |s, r| x.at([s[0].clone(), r[0].clone()]) * y.at([r[0].clone(), s[1].clone()]));
    b.finish(&[o])
}

/// 3x3, NHWC, padded beforehand.
fn conv(h: i64, ci: i64, co: i64) -> PrimFunc {
    let d = PrimExpr::i64;
    let mut b = KernelBuilder::new("conv");
    let x = b.input("x", &[d(h + 2), d(h + 2), d(ci)], F);
    let y = b.input("y", &[d(3), d(3), d(ci), d(co)], F);
    let o = b.sum("o", &[d(h), d(h), d(co)], F, &[d(3), d(3), d(ci)], |s, r| {
        let at = [s[0].clone() + r[0].clone(), s[1].clone() + r[1].clone(), r[2].clone()];
        x.at(at) * y.at([r[0].clone(), r[1].clone(), r[2].clone(), s[2].clone()])
    });
    b.finish(&[o])
}

/// Two inputs, of which the second is not used, to keep one signature for all.
fn softmax(m: i64, n: i64) -> PrimFunc {
    let (m, n) = (PrimExpr::i64(m), PrimExpr::i64(n));
    let mut b = KernelBuilder::new("softmax");
    let x = b.input("x", &[m.clone(), n.clone()], F);
    b.input("y", from_ref(&n), F);
    let at = |s: &[PrimExpr], r: &[PrimExpr]| x.at([s[0].clone(), r[0].clone()]);
    let max = Reducer { init: PrimExpr::min_value(F), combine: &|a, b| a.max(b) };
    let top = b.reduce("top", from_ref(&m), F, from_ref(&n), max, at);
    let e =
        b.compute("e", &[m.clone(), n.clone()], F, |s| (x.at(s.to_vec()) - top.at([s[0].clone()])).call1(Intrin::Exp));
    let sum = b.sum("sum", from_ref(&m), F, from_ref(&n), |s, r| e.at([s[0].clone(), r[0].clone()]));
    let o = b.compute("o", &[m, n], F, |s| e.at(s.to_vec()) / sum.at([s[0].clone()]));
    b.finish(&[o])
}

fn map(n: i64, f: impl Fn(PrimExpr, PrimExpr) -> PrimExpr) -> PrimFunc {
    let n = PrimExpr::i64(n);
    let mut b = KernelBuilder::new("map");
    let x = b.input("x", from_ref(&n), F);
    let y = b.input("y", from_ref(&n), F);
    let o = b.compute("o", &[n], F, |s| f(x.at(s.to_vec()), y.at(s.to_vec())));
    b.finish(&[o])
}

struct Kernel {
    library: libloading::Library,
    _dir: tempfile::TempDir,
    workspace: Vec<u8>,
}

impl Kernel {
    fn new(f: &PrimFunc, target: &Target) -> Kernel {
        let mut flat = schedule(f, &SchedOptions::default()).unwrap();
        flat.name = "kernel".into();
        flat.linkage = Linkage::Export;
        relax_lower::math::expand(&mut flat, 16);
        let module = FlatModule { funcs: vec![flat], ..Default::default() };
        if std::env::var_os("SHOW_ASM").is_some() {
            println!("{}", clif::asm(&module, target).unwrap());
        }
        let object = clif::compile(&module, target).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let (o, so) = (dir.path().join("t.o"), dir.path().join("t.so"));
        std::fs::write(&o, object).unwrap();
        let done = Command::new("cc").args(["-shared", "-nostdlib", "-o"]).arg(&so).arg(&o).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let bytes = relax_lower::kernel_workspace(f).as_int().unwrap_or(1 << 16);
        // SAFETY: the library has no constructors.
        let library = unsafe { libloading::Library::new(&so).unwrap() };
        Kernel { library, _dir: dir, workspace: vec![0; bytes as usize + 64] }
    }

    /// With constant dims.
    fn run(&mut self, x: &[f32], y: &[f32], o: &mut [f32]) {
        let at = self.workspace.as_mut_ptr();
        // SAFETY: a kernel takes its buffers and then the workspace, which it may ignore.
        unsafe {
            let f = self.library.get::<unsafe extern "C" fn(*const f32, *const f32, *mut f32, *mut u8)>(b"kernel");
            f.unwrap()(x.as_ptr(), y.as_ptr(), o.as_mut_ptr(), at.add(at.align_offset(64)))
        }
    }

    fn run_dims(&mut self, x: &[f32], y: &[f32], o: &mut [f32], dims: [i64; 3]) {
        let at = self.workspace.as_mut_ptr();
        // SAFETY: as above, with three dims before the workspace.
        unsafe {
            type F = unsafe extern "C" fn(*const f32, *const f32, *mut f32, i64, i64, i64, *mut u8);
            let f = self.library.get::<F>(b"kernel").unwrap();
            f(x.as_ptr(), y.as_ptr(), o.as_mut_ptr(), dims[0], dims[1], dims[2], at.add(at.align_offset(64)))
        }
    }
}

fn numbers(n: usize, seed: u64) -> Vec<f32> {
    let mut s = seed * 7919 + 88172645463325252;
    (0..n)
        .map(|_| {
            s ^= s << 13;
            s ^= s >> 7;
            s ^= s << 17;
            (s >> 40) as f32 / (1 << 24) as f32 - 0.5
        })
        .collect()
}

fn reference(x: &[f32], y: &[f32], [m, n, k]: [usize; 3]) -> Vec<f32> {
    let mut o = vec![0f32; m * n];
    for i in 0..m {
        for l in 0..k {
            for j in 0..n {
                o[i * n + j] += x[i * k + l] * y[l * n + j];
            }
        }
    }
    o
}

fn close(a: &[f32], b: &[f32], tolerance: f32) {
    for (i, (x, y)) in a.iter().zip(b).enumerate() {
        assert!((x - y).abs() <= tolerance * (1.0 + y.abs()), "element {i}: {x} for {y}");
    }
}

fn targets() -> [Target; 2] {
    let mut t = [Cpu::Baseline, Cpu::Native].map(|c| Target::new(Target::host().triple, c));
    if std::env::var_os("OPT_NONE").is_some() {
        for t in &mut t {
            t.kernel_opt = relax_backend::OptLevel::None;
        }
    }
    t
}

#[test]
fn matrix_products() {
    for t in targets() {
        for [m, n, k] in [[16, 32, 16], [7, 5, 3], [1, 100, 33], [33, 17, 64]] {
            let f = matmul([m as i64, n as i64, k as i64].map(PrimExpr::i64));
            let (x, y) = (numbers(m * k, 1), numbers(k * n, 2));
            let mut o = vec![f32::NAN; m * n];
            Kernel::new(&f, &t).run(&x, &y, &mut o);
            close(&o, &reference(&x, &y, [m, n, k]), 1e-5);
        }
        let dims = ["m", "k", "n"].map(Var::dim);
        let f = matmul([dims[0].expr(), dims[2].expr(), dims[1].expr()]);
        let mut kernel = Kernel::new(&f, &t);
        for [m, n, k] in [[16, 32, 16], [7, 5, 3], [1, 100, 33]] {
            let (x, y) = (numbers(m * k, 1), numbers(k * n, 2));
            let mut o = vec![f32::NAN; m * n];
            kernel.run_dims(&x, &y, &mut o, [m as i64, k as i64, n as i64]);
            close(&o, &reference(&x, &y, [m, n, k]), 1e-5);
        }
    }
}

#[test]
fn rows_and_maps() {
    for t in targets() {
        let (m, n) = (5, 37);
        let x = numbers(m * n, 3);
        let mut o = vec![f32::NAN; m * n];
        Kernel::new(&softmax(m as i64, n as i64), &t).run(&x, &x, &mut o);
        for (row, out) in x.chunks(n).zip(o.chunks(n)) {
            let sum: f32 = row.iter().map(|v| v.exp()).sum();
            let want: Vec<f32> = row.iter().map(|v| v.exp() / sum).collect();
            close(out, &want, 1e-6);
        }
        let y = numbers(m * n, 4);
        let f = map((m * n) as i64, |a, b| (a * PrimExpr::f32(3.0)).call1(Intrin::Tanh) * b.call1(Intrin::Erf));
        Kernel::new(&f, &t).run(&x, &y, &mut o);
        let want: Vec<f32> = x.iter().zip(&y).map(|(a, b)| (a * 3.0).tanh() * erf(*b as f64) as f32).collect();
        close(&o, &want, 1e-6);
    }
}

/// SSE's comparisons fault on memory that is not aligned to 16 bytes; tensors are aligned to their element.
#[test]
fn comparisons_read_any_address() {
    for t in targets() {
        let n = 64;
        let (x, y) = (numbers(n + 1, 5), numbers(n + 1, 6));
        let mut b = KernelBuilder::new("less");
        let [p, q] = ["x", "y"].map(|name| b.input(name, &[PrimExpr::i64(n as i64)], F));
        let o = b.compute("o", &[PrimExpr::i64(n as i64)], DType::BOOL, |s| p.at(s.to_vec()).lt(q.at(s.to_vec())));
        let mut kernel = Kernel::new(&b.finish(&[o]), &t);
        for at in [0, 1] {
            // Bytes, in the memory of floats.
            let mut o = vec![f32::NAN; n / 4];
            let (x, y) = (&x[at..at + n], &y[at..at + n]);
            kernel.run(x, y, &mut o);
            let want: Vec<u8> = x.iter().zip(y).map(|(a, b)| u8::from(a < b)).collect();
            assert_eq!(o.iter().flat_map(|f| f.to_le_bytes()).collect::<Vec<_>>(), want);
        }
    }
}

/// By its series; small arguments only.
fn erf(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..40 {
        term *= -x * x / n as f64;
        sum += term / (2 * n + 1) as f64;
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI
}

fn time(mut f: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..30 {
        let start = std::time::Instant::now();
        f();
        best = best.min(start.elapsed().as_secs_f64());
    }
    best
}

/// `cargo test -p relax-backend --test kernels -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn speed() {
    for t in targets() {
        println!("{:?}", t.cpu);
        for s in [64usize, 256, 512] {
            let f = matmul([s as i64; 3].map(PrimExpr::i64));
            let (x, y) = (numbers(s * s, 1), numbers(s * s, 2));
            let mut o = vec![0f32; s * s];
            let mut k = Kernel::new(&f, &t);
            let best = time(|| k.run(&x, &y, &mut o));
            println!("matmul {s}: {:.1} GFLOP/s", 2.0 * (s * s * s) as f64 / best / 1e9);
        }
        for (h, ci, co) in [(56, 64, 64), (28, 128, 128)] {
            let (x, y) = (numbers((h + 2) * (h + 2) * ci, 1), numbers(9 * ci * co, 2));
            let mut o = vec![0f32; h * h * co];
            let mut k = Kernel::new(&conv(h as i64, ci as i64, co as i64), &t);
            let best = time(|| k.run(&x, &y, &mut o));
            println!("conv {h} {ci} {co}: {:.1} GFLOP/s", 18.0 * (h * h * ci * co) as f64 / best / 1e9);
        }
        let (m, n) = (64, 1024);
        let x = numbers(m * n, 3);
        let mut o = vec![0f32; m * n];
        let mut k = Kernel::new(&softmax(m as i64, n as i64), &t);
        println!("softmax: {:.2} G elements/s", (m * n) as f64 / time(|| k.run(&x, &x, &mut o)) / 1e9);
        for (name, f) in [
            ("add", map(4096, |a, b| a + b)),
            ("relu", map(4096, |a, b| (a + b).max(PrimExpr::f32(0.0)))),
            (
                "gelu",
                map(4096, |a, _| {
                    let h = (a.clone() * PrimExpr::f32(std::f32::consts::FRAC_1_SQRT_2)).call1(Intrin::Erf);
                    a * PrimExpr::f32(0.5) * (h + PrimExpr::f32(1.0))
                }),
            ),
            ("silu", map(4096, |a, _| a.clone() * a.call1(Intrin::Sigmoid))),
        ] {
            let mut k = Kernel::new(&f, &t);
            let best = time(|| k.run(&x[..4096], &x[4096..8192], &mut o[..4096]));
            println!("{name}: {:.2} G elements/s", 4096.0 / best / 1e9);
        }
    }
}
