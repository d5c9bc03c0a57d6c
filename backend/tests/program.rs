//! A small program through compiler, descriptor and linker, on every architecture that a library can be written for.

use relax_backend::elf::{link_shared, link_system, runtime_object};
use relax_backend::{clif, descriptor, Cpu, Target};
use relax_ir::abi::AbiLayout;
use relax_ir::flat::{Callee, DataBytes, FlatData, FlatFunc, FlatStmt, Linkage};
use relax_ir::program::{Entry, EntryKind, EntryValue, Program};
use relax_ir::{DType, PrimExpr, Span, Var};
use std::path::{Path, PathBuf};
use std::process::Command;

const HANDLE: DType = DType::HANDLE;

fn func(name: &str, params: &[&Var], ret: DType, body: Vec<FlatStmt>, linkage: Linkage) -> FlatFunc {
    let params = params.iter().map(|v| (*v).clone()).collect();
    FlatFunc { name: name.into(), params, ret: Some(ret), linkage, body, span: Span::NONE }
}

fn load(p: &PrimExpr, at: i64, dtype: DType) -> PrimExpr {
    PrimExpr::load_ptr(p.clone().ptr_add(PrimExpr::i64(at)), PrimExpr::i64(0), dtype)
}

/// One entry: `y[i] = x[i] + weights[i]` for four floats; fails on another rank.
fn program(hosted: bool) -> Program {
    let l = AbiLayout::new(8);
    let vars = || (Var::new("args", HANDLE), Var::new("outs", HANDLE), Var::new("call", HANDLE));
    let fail = Callee {
        name: "relax_rt_fail".into(),
        params: vec![HANDLE, DType::I32, DType::I32, DType::I64, DType::I64, HANDLE],
        ret: Some(DType::I32),
        linkage: Linkage::Import,
    };
    let store = |ptr: PrimExpr, at: i64, value| FlatStmt::Store {
        ptr: ptr.ptr_add(PrimExpr::i64(at)),
        offset: PrimExpr::i64(0),
        value,
    };

    let (args, outs, call) = vars();
    let (out, shape) = (Var::new("out", HANDLE), Var::new("shape", HANDLE));
    let infer = vec![
        FlatStmt::Let { var: out.clone(), value: load(&outs.expr(), 0, HANDLE) },
        FlatStmt::Let { var: shape.clone(), value: load(&out.expr(), l.tensor_shape, HANDLE) },
        store(out.expr(), l.tensor_ndim, PrimExpr::i32(1)),
        store(shape.expr(), 0, PrimExpr::i64(4)),
        FlatStmt::Return(Some(PrimExpr::i32(0))),
    ];
    let infer = func("m_main__infer", &[&args, &outs, &call], DType::I32, infer, Linkage::Local);

    let (args, outs, call) = vars();
    let (x, y, what, rc) =
        (Var::new("x", HANDLE), Var::new("y", HANDLE), Var::new("what", HANDLE), Var::new("rc", DType::I32));
    let (weights, i) = (Var::new("weights", HANDLE), Var::dim("i"));
    let rank = load(&x.expr(), l.tensor_ndim, DType::I32);
    let at = |p: &PrimExpr| PrimExpr::load_ptr(p.clone(), i.expr(), DType::F32);
    let data = |t: &Var| load(&t.expr(), l.tensor_data, HANDLE);
    let body = vec![
        FlatStmt::Let { var: x.clone(), value: load(&args.expr(), 0, HANDLE) },
        FlatStmt::Let { var: y.clone(), value: load(&outs.expr(), 0, HANDLE) },
        FlatStmt::If {
            cond: rank.clone().ne(PrimExpr::i32(1)),
            then: vec![
                FlatStmt::Address { var: what.clone(), symbol: "m__what".into() },
                FlatStmt::Call {
                    callee: fail,
                    args: vec![
                        call.expr(),
                        PrimExpr::i32(3),
                        PrimExpr::i32(2),
                        PrimExpr::i64(1),
                        rank.cast(DType::I64),
                        what.expr(),
                    ],
                    result: Some(rc.clone()),
                },
                FlatStmt::Return(Some(rc.expr())),
            ],
            otherwise: vec![],
        },
        FlatStmt::Address { var: weights.clone(), symbol: "m__weights".into() },
        FlatStmt::For {
            var: i.clone(),
            begin: PrimExpr::i64(0),
            end: PrimExpr::i64(4),
            step: 1,
            body: vec![FlatStmt::Store { ptr: data(&y), offset: i.expr(), value: at(&data(&x)) + at(&weights.expr()) }],
        },
        FlatStmt::Return(Some(PrimExpr::i32(0))),
    ];
    let call_function = func("m_main__call", &[&args, &outs, &call], DType::I32, body, Linkage::Local);

    // The typed entry, without the wrapper's checks: int32_t m_main(x, y, call).
    let (x, y, call) = (Var::new("x", HANDLE), Var::new("y", HANDLE), Var::new("call", HANDLE));
    let (args, rc) = (Var::new("args", HANDLE), Var::new("rc", DType::I32));
    let callee =
        Callee { name: "m_main__call".into(), params: vec![HANDLE; 3], ret: Some(DType::I32), linkage: Linkage::Local };
    let typed = vec![
        FlatStmt::Stack { var: args.clone(), bytes: 16, align: 8 },
        store(args.expr(), 0, x.expr()),
        store(args.expr(), 8, y.expr()),
        FlatStmt::Call {
            callee,
            args: vec![args.expr(), args.expr().ptr_add(PrimExpr::i64(8)), call.expr()],
            result: Some(rc.clone()),
        },
        FlatStmt::Return(Some(rc.expr())),
    ];
    let typed = func("m_main", &[&x, &y, &call], DType::I32, typed, Linkage::Export);

    let bytes = [10f32, 20.0, 30.0, 40.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    let datum = |symbol: &str, align, bytes| FlatData {
        symbol: symbol.into(),
        align,
        bytes: DataBytes::Owned(bytes),
        relocs: vec![],
        linkage: Linkage::Local,
    };
    let value = |name: &str| EntryValue {
        name: name.into(),
        kind: EntryKind::Tensor { dtype: Some(DType::F32), dims: Some(vec![Some(PrimExpr::i64(4))]) },
        text: String::new(),
        bounds: None,
        span: Span::NONE,
    };
    let mut program = Program { prefix: "m".into(), ..Default::default() };
    program.module.funcs.extend([infer, call_function, typed]);
    program.module.data.extend([datum("m__weights", 64, bytes), datum("m__what", 1, b"parameter x\0".to_vec())]);
    program.entries.push(Entry {
        name: "main".into(),
        params: vec![value("x")],
        results: vec![value("y")],
        dims: vec![],
        workspace: Some(PrimExpr::i64(0)),
        workspace_max: Some(0),
        regions: vec![],
        dynamic: None,
    });
    descriptor::add(&mut program, hosted, 8);
    program
}

fn object(triple: &str, hosted: bool) -> Vec<u8> {
    let target = Target::new(triple.parse().expect("triple"), Cpu::Baseline);
    clif::compile(&program(hosted).module, &target).expect("compile")
}

fn save(dir: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, bytes).expect("write");
    path
}

/// The reader accepts the file without a warning; its output.
fn readelf(path: &Path) -> String {
    let out = Command::new("readelf").arg("-aW").arg(path).output().expect("readelf");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success() && out.stderr.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(!text.contains("arning"), "{text}");
    text
}

#[test]
fn hosted() {
    use relax_rt::{Call, DLDataType, DLDevice, DLManagedTensor, DLTensor};
    type Run =
        unsafe extern "C" fn(*const u8, *const *const DLTensor, i32, *mut *mut DLManagedTensor, i32, *mut Call) -> i32;
    type Main = unsafe extern "C" fn(*const DLTensor, *mut DLTensor, *mut Call) -> i32;
    let dir = tempfile::tempdir().expect("dir");
    let triple = "x86_64-unknown-linux-gnu";
    let object = object(triple, true);
    let runtime = runtime_object(triple);
    let exports: Vec<String> = ["m_main", "m_metadata", "m_run"].map(String::from).to_vec();
    let ours = link_shared(&object, runtime, "libm1.so", &exports).expect("link");
    let path = save(dir.path(), "ours.so", &ours);
    let text = readelf(&path);
    assert!(text.contains("libc.so.6") && text.contains("GNU_RELRO") && !text.contains("TEXTREL"));
    let system = save(
        dir.path(),
        "system.so",
        &link_system(&object, runtime, "libm1.so", &exports).expect("the system's linker"),
    );
    for path in [&path, &system] {
        // SAFETY: the library exports these functions with these signatures, see `program`.
        unsafe {
            let lib = libloading::Library::new(path).expect("load");
            let run = lib.get::<Run>(b"m_run").expect("m_run");
            let main = lib.get::<Main>(b"m_main").expect("m_main");
            let (mut data, mut shape) = ([1f32, 2.0, 3.0, 4.0], [4i64]);
            let mut x = DLTensor {
                data: data.as_mut_ptr().cast(),
                device: DLDevice { device_type: 1, device_id: 0 },
                ndim: 1,
                dtype: DLDataType { code: 2, bits: 32, lanes: 1 },
                shape: shape.as_mut_ptr(),
                strides: std::ptr::null_mut(),
                byte_offset: 0,
            };
            let mut call = Call::new();
            let mut result = std::ptr::null_mut();
            assert_eq!(run(c"main".as_ptr().cast(), &(&raw const x), 1, &mut result, 1, &mut call), 0);
            let y = std::slice::from_raw_parts((*result).dl_tensor.data.cast::<f32>(), 4);
            assert_eq!(y, [11.0, 22.0, 33.0, 44.0]);
            ((*result).deleter.expect("deleter"))(result);
            let mut out = [0f32; 4];
            let mut y = DLTensor { data: out.as_mut_ptr().cast(), ..x };
            assert_eq!(main(&x, &mut y, &mut call), 0);
            assert_eq!(out, [11.0, 22.0, 33.0, 44.0]);
            x.ndim = 2;
            assert_eq!(main(&x, &mut y, &mut call), 3);
            let text = std::ffi::CStr::from_bytes_until_nul(&call.message).expect("text").to_str().expect("text");
            assert_eq!((text, call.constraint), ("parameter x: wanted 1, got 2", 2));
            assert_eq!(run(std::ptr::null(), &(&raw const x), 1, &mut result, 1, std::ptr::null_mut()), 3);
            assert!(result.is_null());
        }
    }
}

/// What the embedded targets link: no undefined symbol, and an error record without the runtime.
#[test]
fn embedded_objects_are_complete() {
    use object::{Object, ObjectSymbol};
    for triple in ["x86_64-unknown-none", "aarch64-unknown-none", "riscv64gc-unknown-none-elf"] {
        let object = object(triple, false);
        let file = object::File::parse(&*object).expect("object");
        let undefined: Vec<_> =
            file.symbols().filter(|s| s.is_undefined() && s.name() != Ok("")).map(|s| s.name().unwrap_or("")).collect();
        assert!(undefined.is_empty(), "{triple}: {undefined:?}");
    }
}

/// A freestanding client that maps the library into memory itself, relocates it and calls it; exits with 0 when all
/// is as expected. Serves architectures whose C library is not installed.
const CLIENT: &str = r#"
typedef unsigned long u64;
typedef unsigned int u32;
typedef unsigned short u16;
extern const char library[];
static char memory[1 << 20] __attribute__((aligned(65536)));
struct tensor { void *data; int device[2]; int ndim; u32 dtype; long *shape; long *strides; u64 byte_offset; };
struct call { char before[72]; int code, constraint; long wanted, got; char message[256]; };
static void *at(u64 a) { return memory + a; }
static int same(const char *a, const char *b) { while (*a && *a == *b) a++, b++; return *a == *b; }
int check(void) {
  const u64 *h = (const u64 *)library;
  const char *ph = library + h[4];
  const u64 *dynamic = 0;
  for (int i = 0; i < *(u16 *)(library + 56); i++, ph += 56) {
    u32 type = *(u32 *)ph;
    u64 offset = *(u64 *)(ph + 8), address = *(u64 *)(ph + 16), size = *(u64 *)(ph + 32);
    if (type == 1) for (u64 k = 0; k < size; k++) memory[address + k] = library[offset + k];
    if (type == 2) dynamic = at(address);
  }
  const u64 *rela = 0; u64 rela_size = 0; const char *symtab = 0, *strtab = 0; const u32 *hash = 0;
  for (; *dynamic; dynamic += 2) {
    if (dynamic[0] == 7) rela = at(dynamic[1]);
    if (dynamic[0] == 8) rela_size = dynamic[1];
    if (dynamic[0] == 6) symtab = at(dynamic[1]);
    if (dynamic[0] == 5) strtab = at(dynamic[1]);
    if (dynamic[0] == 4) hash = at(dynamic[1]);
  }
  for (u64 i = 0; i < rela_size / 8; i += 3) {
    if ((u32)rela[i + 1] != RELATIVE) return 2;
    *(u64 *)at(rela[i]) = (u64)memory + rela[i + 2];
  }
  int (*entry)(struct tensor *, struct tensor *, struct call *) = 0;
  for (u32 i = 1; i < hash[1]; i++)
    if (same(strtab + *(u32 *)(symtab + 24 * i), "m_main")) entry = at(*(u64 *)(symtab + 24 * i + 8));
  if (!entry) return 3;
  float in[4] = {1, 2, 3, 4}, out[4];
  long shape[1] = {4};
  struct tensor x = {in, {1, 0}, 1, 0x12002, shape, 0, 0}, y = {out, {1, 0}, 1, 0x12002, shape, 0, 0};
  static struct call call;
  if (entry(&x, &y, &call) != 0) return 4;
  for (int i = 0; i < 4; i++) if (out[i] != 11 * in[i]) return 5;
  x.ndim = 2;
  if (entry(&x, &y, &call) != 3 || call.code != 3 || call.constraint != 2 || call.got != 2) return 6;
  if (!same(call.message, "parameter x")) return 7;
  return entry(&x, &y, 0) == 3 ? 0 : 8;
}
"#;

const START_AARCH64: &str = r#"
#define RELATIVE 1027
__asm__(".globl _start\n_start: bl check\nmov x8, #93\nsvc #0\n");
"#;

const START_RISCV64: &str = r#"
#define RELATIVE 3
__asm__(".globl _start\n_start: .option push\n.option norelax\nla gp, __global_pointer$\n.option pop\ncall check\nli a7, 93\necall\n");
"#;

#[test]
fn other_architectures() {
    let dir = tempfile::tempdir().expect("dir");
    let exports = ["m_main".to_string()];
    for (triple, start, emulator, flags) in [
        ("aarch64-unknown-linux-gnu", START_AARCH64, "qemu-aarch64", &[][..]),
        ("riscv64gc-unknown-linux-gnu", START_RISCV64, "qemu-riscv64", &["-march=rv64gc", "-mabi=lp64d"][..]),
    ] {
        let bytes = link_shared(&object(triple, false), None, "libm.so", &exports).expect("link");
        let library = save(dir.path(), &format!("{triple}.so"), &bytes);
        readelf(&library);
        let arch = triple.split('-').next().unwrap_or(triple).trim_end_matches("gc");
        let include = format!(
            "__asm__(\".section .rodata\\n.balign 16\\n.globl library\\nlibrary: .incbin \\\"{}\\\"\\n.text\\n\");\n",
            library.display()
        );
        let source = save(dir.path(), "client.c", format!("{start}{include}{CLIENT}").as_bytes());
        let client = dir.path().join(arch);
        let out = Command::new("clang")
            .arg(format!("--target={arch}-unknown-linux-gnu"))
            .args(["-O1", "-ffreestanding", "-nostdlib", "-static", "-fuse-ld=lld", "-fno-stack-protector"])
            .args(["-fno-builtin", "-Wl,-z,execstack", "-Wl,-N"])
            .args(flags)
            .arg("-o")
            .args([&client, &source])
            .output()
            .expect("clang");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let status = Command::new(emulator).arg(&client).status().expect("qemu");
        assert_eq!(status.code(), Some(0), "{triple}");
    }
}
