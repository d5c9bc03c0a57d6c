//! Elementwise functions, compiled, loaded and compared.

use crate::cross;
use object::{Object, ObjectSymbol};
use relax_backend::{clif, Cpu, Target};
use relax_ir::flat::{FlatFunc, FlatModule, FlatStmt, Linkage};
use relax_ir::prim::{wrap_int, PrimExpr, Var};
use relax_ir::{Constant, DType, Span};
use std::path::Path;
use std::process::Command;

pub fn export(name: &str, params: Vec<Var>, ret: Option<DType>, body: Vec<FlatStmt>) -> FlatFunc {
    FlatFunc { name: name.into(), params, ret, linkage: Linkage::Export, body, span: Span::NONE }
}

/// `for i in (0..n).step_by(lanes) { out[i..] = f(a[i..], b[i..]) }`
pub fn elementwise(
    name: &str,
    inputs: &[DType],
    out: DType,
    lanes: u16,
    f: impl Fn(&[PrimExpr]) -> PrimExpr,
) -> FlatFunc {
    let ptrs: Vec<Var> = (0..inputs.len()).map(|i| Var::new(format!("in{i}"), DType::HANDLE)).collect();
    let (o, n, i) = (Var::new("out", DType::HANDLE), Var::dim("n"), Var::dim("i"));
    let loads: Vec<PrimExpr> =
        ptrs.iter().zip(inputs).map(|(p, d)| PrimExpr::load_ptr(p.expr(), i.expr(), d.with_lanes(lanes))).collect();
    let value = f(&loads);
    assert_eq!(value.dtype(), out.with_lanes(lanes), "{name}");
    let body = vec![FlatStmt::For {
        var: i.clone(),
        begin: PrimExpr::i64(0),
        end: n.expr(),
        step: lanes as i64,
        body: vec![FlatStmt::Store { ptr: o.expr(), offset: i.expr(), value }],
    }];
    let params = ptrs.into_iter().chain([o, n]).collect();
    export(name, params, None, body)
}

pub struct Loaded {
    pub library: libloading::Library,
    _dir: tempfile::TempDir,
}

pub fn undefined(object: &[u8]) -> Vec<String> {
    let file = object::File::parse(object).unwrap();
    file.symbols()
        .filter(|s| s.is_undefined())
        .map(|s| s.name().unwrap().to_string())
        .filter(|n| !n.is_empty())
        .collect()
}

pub fn load(module: &FlatModule, target: &Target) -> Loaded {
    let object = clif::compile(module, target).unwrap();
    assert_eq!(undefined(&object), Vec::<String>::new());
    let dir = tempfile::tempdir().unwrap();
    let (o, so) = (dir.path().join("t.o"), dir.path().join("t.so"));
    std::fs::write(&o, object).unwrap();
    link(&o, &so);
    // SAFETY: the library has no constructors.
    Loaded { library: unsafe { libloading::Library::new(&so).unwrap() }, _dir: dir }
}

pub fn link(o: &Path, so: &Path) {
    let done = Command::new("cc").args(["-shared", "-nostdlib", "-Wl,-z,text", "-o"]).arg(so).arg(o).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

impl Loaded {
    pub fn run(&self, name: &str, inputs: &[&[u8]], out: &mut [u8], n: usize) {
        // SAFETY: the signature is the one `elementwise` builds and the buffers hold n elements.
        unsafe {
            let out = out.as_mut_ptr();
            match inputs {
                [a] => {
                    let f = self.library.get::<unsafe extern "C" fn(*const u8, *mut u8, i64)>(name.as_bytes()).unwrap();
                    f(a.as_ptr(), out, n as i64)
                }
                [a, b] => {
                    let f = self
                        .library
                        .get::<unsafe extern "C" fn(*const u8, *const u8, *mut u8, i64)>(name.as_bytes())
                        .unwrap();
                    f(a.as_ptr(), b.as_ptr(), out, n as i64)
                }
                [a, b, c] => {
                    let f = self
                        .library
                        .get::<unsafe extern "C" fn(*const u8, *const u8, *const u8, *mut u8, i64)>(name.as_bytes())
                        .unwrap();
                    f(a.as_ptr(), b.as_ptr(), c.as_ptr(), out, n as i64)
                }
                _ => unreachable!(),
            }
        }
    }
}

pub fn targets() -> Vec<Target> {
    [Cpu::Baseline, Cpu::Named("x86-64-v2".into()), Cpu::Named("x86-64-v3".into()), Cpu::Native]
        .into_iter()
        .map(|cpu| Target::new(Target::host().triple, cpu))
        .filter(|t| match &t.cpu {
            Cpu::Named(n) if n == "x86-64-v3" => std::is_x86_feature_detected!("avx2"),
            _ => true,
        })
        .collect()
}

// ---- values -----------------------------------------------------------------------------------------------------------

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum V {
    I(i64),
    F(f64),
}

pub const N: usize = 192;

pub struct Rng(u64);
impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

pub fn samples(d: DType, seed: u64) -> Vec<V> {
    let mut r = Rng(seed * 7919 + 88172645463325252);
    let mut out: Vec<V> = vec![];
    if d.is_bool() {
        return (0..N).map(|_| V::I((r.next() >> 20 & 1) as i64)).collect();
    }
    if d.is_float() {
        let special = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            -0.5,
            1.5,
            2.5,
            -2.5,
            -1.5,
            3.7,
            -3.7,
            1e-30,
            -1e-3,
            255.0,
            256.5,
            -129.0,
            70000.0,
            3e9,
            -3e9,
            5e9,
            1e19,
            1e38,
            -1e38,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
            8388609.0,
            6e-8,
            1e-7,
            65519.0,
            65520.0,
            3e-5,
            0.3,
        ];
        for i in 0..N {
            let v = if i < 100 {
                special[(r.next() % special.len() as u64) as usize]
            } else {
                let e = (r.next() % 40) as i32 - 20;
                (r.next() as i64 as f64 / i64::MAX as f64) * 2f64.powi(e)
            };
            out.push(V::F(relax_ir::prim::round_float(d, v)));
        }
        return out;
    }
    for i in 0..N {
        let v = match i % 5 {
            0 => [0, 1, -1, 2, -2, 7, -7][(r.next() % 7) as usize],
            1 => [d.int_min(), d.int_max(), d.int_min() + 1, 64, -64][(r.next() % 5) as usize],
            2 => (r.next() % 200) as i64 - 100,
            _ => r.next() as i64,
        };
        out.push(V::I(wrap_int(d, v)));
    }
    out
}

pub fn encode(d: DType, v: &[V]) -> Vec<u8> {
    v.iter()
        .flat_map(|v| match v {
            V::I(x) => Constant::scalar_i64(d, *x).bytes().to_vec(),
            V::F(x) => Constant::scalar_f64(d, *x).bytes().to_vec(),
        })
        .collect()
}

pub fn decode(d: DType, bytes: &[u8]) -> Vec<V> {
    let c = Constant::new(d, vec![(bytes.len() / d.bytes()) as i64], bytes.to_vec());
    (0..c.elements()).map(|i| if d.is_float() { V::F(c.get_f64(i)) } else { V::I(c.get_i64(i)) }).collect()
}

pub fn same(a: V, b: V) -> bool {
    match (a, b) {
        (V::F(x), V::F(y)) => x.is_nan() && y.is_nan() || x.to_bits() == y.to_bits(),
        _ => a == b,
    }
}

type Expected = Box<dyn Fn(&[V]) -> V>;

pub struct Case {
    pub name: String,
    pub inputs: Vec<DType>,
    pub out: DType,
    pub expected: Expected,
}

pub fn check(module: FlatModule, cases: Vec<Case>) {
    let values: Vec<Vec<Vec<V>>> =
        cases.iter().map(|c| c.inputs.iter().enumerate().map(|(i, d)| samples(*d, i as u64 + 1)).collect()).collect();
    let mut bad = vec![];
    let mut compare = |on: &str, outputs: &[Vec<u8>]| {
        for ((c, values), out) in cases.iter().zip(&values).zip(outputs) {
            let got = decode(c.out, out);
            for i in 0..N {
                let args: Vec<V> = values.iter().map(|v| v[i]).collect();
                let want = (c.expected)(&args);
                if !same(got[i], want) {
                    bad.push(format!("{on} {} {args:?}: got {:?}, want {want:?}", c.name, got[i]));
                    break;
                }
            }
        }
    };
    let inputs: Vec<Vec<Vec<u8>>> = cases
        .iter()
        .zip(&values)
        .map(|(c, values)| c.inputs.iter().zip(values).map(|(d, v)| encode(*d, v)).collect())
        .collect();
    for target in targets() {
        let loaded = load(&module, &target);
        let outputs: Vec<Vec<u8>> = cases
            .iter()
            .zip(&inputs)
            .map(|(c, inputs)| {
                let refs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
                let mut out = vec![0u8; N * c.out.bytes()];
                loaded.run(&c.name, &refs, &mut out, N);
                out
            })
            .collect();
        compare(&format!("{:?}", target.cpu), &outputs);
    }
    let others = TRIPLES.iter().map(|t| (*t, "baseline")).chain([("riscv64gc-unknown-linux-gnu", "+v,+zvl128b")]);
    for (triple, cpu) in others {
        let object = clif::compile(&module, &Target::parse(triple, cpu).unwrap()).unwrap();
        assert_eq!(undefined(&object), Vec::<String>::new(), "{triple}");
        if let Some(outputs) = cross::run(triple, cpu, &object, &cases, &inputs) {
            compare(&format!("{triple} {cpu}"), &outputs);
        }
    }
    assert!(bad.is_empty(), "{} wrong:\n{}", bad.len(), bad.join("\n"));
}

pub const TRIPLES: [&str; 8] = [
    "aarch64-unknown-linux-gnu",
    "aarch64-unknown-none-elf",
    "aarch64-unknown-none",
    "riscv64gc-unknown-linux-gnu",
    "riscv64gc-unknown-none-elf",
    "x86_64-unknown-none",
    "s390x-unknown-linux-gnu",
    "x86_64-unknown-linux-musl",
];
