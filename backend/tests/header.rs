//! The header compiles as C99 and C++ without a warning and has the layout of the runtime's structs; the generic
//! entry works through the descriptor.

use libloading::Library;
use relax_backend::elf::{link_shared, runtime_object};
use relax_backend::{descriptor, header};
use relax_ir::abi::AbiLayout;
use relax_ir::flat::{DataBytes, FlatFunc, FlatStmt, Linkage};
use relax_ir::program::{CheckInfo, DimStated, Entry, EntryDim, EntryKind, EntryValue, Program};
use relax_ir::{DType, PrimExpr, Span, Var};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

fn tensor(name: &str, dims: Vec<Option<PrimExpr>>) -> EntryValue {
    let kind = EntryKind::Tensor { dtype: Some(DType::F32), dims: Some(dims) };
    EntryValue { name: name.into(), kind, text: "R.Tensor".into(), bounds: None, span: Span::NONE }
}

fn program() -> Program {
    let n = Var::dim("n");
    let value =
        |name: &str, kind| EntryValue { name: name.into(), kind, text: String::new(), bounds: None, span: Span::NONE };
    let main = Entry {
        name: "main".into(),
        params: vec![tensor("x", vec![Some(n.expr()), Some(PrimExpr::i64(3))])],
        results: vec![
            tensor("result", vec![Some(n.expr()), Some(PrimExpr::i64(3))]),
            value("class.1", EntryKind::Shape { values: Some(vec![n.expr()]), ndim: Some(1) }),
        ],
        dims: vec![EntryDim {
            var: n.clone(),
            lower: Some(1),
            upper: Some(512),
            divisor: Some(8),
            stated: DimStated::Named,
        }],
        workspace: Some(n.expr() * 64),
        workspace_max: Some(32768),
        regions: vec![],
        dynamic: None,
    };
    let every = Entry {
        name: "every".into(),
        params: vec![
            value("int", EntryKind::Scalar { dtype: DType::I32 }),
            value("f", EntryKind::Scalar { dtype: DType::F16 }),
            value("s", EntryKind::Shape { values: None, ndim: Some(2) }),
            value("s_count", EntryKind::Str),
            value("call", EntryKind::Boxed),
        ],
        results: vec![
            tensor("late", vec![None]),
            value("late", EntryKind::Scalar { dtype: DType::I64 }),
            value("any", EntryKind::Boxed),
            value("open", EntryKind::Tensor { dtype: None, dims: None }),
        ],
        dims: vec![],
        workspace: None,
        workspace_max: None,
        regions: vec![],
        dynamic: None,
    };
    Program {
        prefix: "model".into(),
        entries: vec![main, every],
        checks: vec![CheckInfo {
            line: None,
            number: 1,
            code: 8,
            condition: "n % 8 == 0".into(),
            names: vec!["8".into(), "n".into()],
            message: "a \"quoted\" */ remark??/".into(),
            span: Span::NONE,
        }],
        ..Default::default()
    }
}

fn compiler(name: &str, dir: &Path, file: &str, source: &str, flags: &[&str]) {
    std::fs::write(dir.join(file), source).expect("write");
    let out = Command::new(name)
        .args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-c", "-o"])
        .arg(dir.join(format!("{file}.o")))
        .arg(dir.join(file))
        .args(flags)
        .output()
        .expect("compiler");
    assert!(out.status.success(), "{name}: {}\n{source}", String::from_utf8_lossy(&out.stderr));
}

/// Each argument and output has a number for what it must be, whatever else is checked.
#[test]
fn headers_list_the_checks_of_arguments() {
    let text = header::write(&program());
    assert!(text.contains(" *   -1 x, -2 result, -3 class_1\n"), "{text}");
    assert!(text.contains("-9 open\n"), "{text}");
    assert!(text.contains("Below 0: what an argument or output is"), "{text}");
}

#[test]
fn compiles() {
    let dir = tempfile::tempdir().expect("dir");
    let mut program = program();
    let embedded = header::write(&program);
    assert!(!embedded.contains("model_run"));
    program.prefix = "other".into();
    let mut text = embedded + &header::write(&program);
    program.prefix = "model".into();
    descriptor::add(&mut program, true, 8);
    text += "#undef MODEL_RELAX_AOT_H_\n";
    let hosted = header::write(&program);
    assert!(hosted.contains("int32_t model_run("));
    assert!(hosted.contains("size_t model_main_workspace_size(int64_t n);"), "{hosted}");
    assert!(hosted.contains("#define MODEL_MAIN_WORKSPACE_MAX 32768u"));
    assert!(
        hosted
            .contains("int32_t model_main(const DLTensor *x, DLTensor *result, DLTensor *class_1, model_call *call);"),
        "{hosted}"
    );
    use relax_rt::value::tag;
    for (name, v) in [
        ("NULL", tag::NULL),
        ("INT", tag::INT),
        ("FLOAT", tag::FLOAT),
        ("BOOL", tag::BOOL),
        ("TENSOR", tag::TENSOR),
        ("SHAPE", tag::SHAPE),
        ("TUPLE", tag::TUPLE),
        ("CLOSURE", tag::CLOSURE),
        ("OBJECT", tag::OBJECT),
        ("STR", tag::STR),
    ] {
        let define = format!("#define RELAX_VALUE_{name} {v}");
        assert!(hosted.lines().any(|l| l.split(" /*").next().unwrap_or(l).trim() == define), "{define}");
    }
    use relax_ir::program::code;
    for (name, v) in [
        ("NULL", code::NULL),
        ("DTYPE", code::DTYPE),
        ("RANK", code::RANK),
        ("DIM", code::DIM),
        ("STRIDES", code::STRIDES),
        ("ALIGN", code::ALIGN),
        ("WORKSPACE", code::WORKSPACE),
        ("CHECK", code::CHECK),
        ("ASSERT", code::ASSERT),
        ("MEMORY", code::MEMORY),
        ("CALL", code::CALL),
        ("PACKED", code::PACKED),
        ("PACKED_FAILED", code::PACKED_FAILED),
        ("TYPE", code::TYPE),
        ("DEVICE", code::DEVICE),
    ] {
        let define = format!("#define RELAX_E_{name} {v}");
        assert!(hosted.lines().any(|l| l.split(" /*").next().unwrap_or(l).trim() == define), "{define}");
    }
    let l = AbiLayout::new(8);
    let mut checks = String::from("\n#define SAME(a, b) typedef char check_##b[(a) == (b) ? 1 : -1]\n");
    for (at, field) in [
        (l.tensor_data, "DLTensor, data"),
        (l.tensor_device, "DLTensor, device"),
        (l.tensor_ndim, "DLTensor, ndim"),
        (l.tensor_dtype, "DLTensor, dtype"),
        (l.tensor_shape, "DLTensor, shape"),
        (l.tensor_strides, "DLTensor, strides"),
        (l.tensor_byte_offset, "DLTensor, byte_offset"),
        (l.call_workspace, "model_call, workspace"),
        (l.call_workspace_size, "model_call, workspace_size"),
        (l.call_allocate, "model_call, allocate"),
        (l.call_release, "model_call, release"),
        (l.call_allocator, "model_call, allocator"),
        (l.call_parallel_for, "model_call, parallel_for"),
        (l.call_parallel_self, "model_call, parallel_self"),
        (l.call_packed, "model_call, packed"),
        (l.call_n_packed, "model_call, n_packed"),
        (l.call_code, "model_call, code"),
        (l.call_constraint, "model_call, constraint"),
        (l.call_wanted, "model_call, wanted"),
        (l.call_got, "model_call, got"),
        (l.call_message, "model_call, message"),
        (l.call_weights, "model_call, weights"),
        (l.call_weights_size, "model_call, weights_size"),
    ] {
        let id = field.replace(", ", "_");
        let _ = writeln!(checks, "typedef char at_{id}[offsetof({field}) == {at} ? 1 : -1];");
    }
    let _ = writeln!(checks, "typedef char size_call[sizeof(model_call) == {} ? 1 : -1];", l.call_size);
    let _ = writeln!(checks, "typedef char size_tensor[sizeof(DLTensor) == {} ? 1 : -1];", l.tensor_size);
    let _ = writeln!(checks, "typedef char size_value[sizeof(model_value) == 16 ? 1 : -1];");
    checks += "int codes(void);\nint codes(void) { return RELAX_OK + RELAX_E_TYPE + MODEL_CONSTRAINTS + (int)sizeof(MODEL_CONSTRAINT_1); }\n";
    for source in [format!("{hosted}{checks}"), text.replace("#undef MODEL_RELAX_AOT_H_\n", "")] {
        compiler("gcc", dir.path(), "a.c", &source, &["-std=c99"]);
        compiler("gcc", dir.path(), "b.c", &source, &["-std=c11"]);
        compiler("g++", dir.path(), "a.cc", &source, &["-std=c++11"]);
        compiler("g++", dir.path(), "b.cc", &source, &["-std=c++20"]);
    }
}

/// A C initializer for the data that the descriptor adds: what a backend would put into the object.
fn data_as_c(program: &Program) -> String {
    let mut s = String::new();
    for d in &program.module.data {
        let DataBytes::Owned(bytes) = &d.bytes else { continue };
        let mut bytes = bytes.clone();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let words = bytes.len() / 8;
        let _ = write!(s, "static const struct {{");
        for i in 0..words {
            let pointer = d.relocs.iter().any(|r| r.0 as usize == i * 8);
            let _ = write!(s, " {} w{i};", if pointer { "const void *" } else { "unsigned long" });
        }
        let _ = write!(s, " }} {} = {{", d.symbol);
        for (i, w) in bytes.chunks(8).enumerate() {
            match d.relocs.iter().find(|r| r.0 as usize == i * 8) {
                Some((_, symbol, addend)) => {
                    let _ = write!(s, "(const char *)&{symbol} + {addend}, ");
                }
                None => {
                    let _ = write!(s, "{}ul, ", u64::from_le_bytes(w.try_into().expect("8 bytes")));
                }
            }
        }
        s += "};\n";
    }
    s
}

const MODEL: &str = r#"
typedef float f32;
int32_t model_main__infer(const DLTensor *const *a, DLTensor *const *o, model_call *call) {
  if (a[0]->ndim != 2) return relax_rt_fail(call, RELAX_E_RANK, 0, 2, a[0]->ndim, "parameter x");
  if (a[0]->shape[0] % 8) return relax_rt_fail(call, RELAX_E_CHECK, 1, 0, a[0]->shape[0] % 8, "n % 8 == 0");
  o[0]->ndim = 2; o[0]->shape[0] = a[0]->shape[0]; o[0]->shape[1] = 3;
  o[1]->ndim = 1; o[1]->shape[0] = 1;
  return 0;
}
int64_t model_main__workspace(const DLTensor *const *a) { return a[0]->shape[0] * 64; }
int32_t model_main__call(const DLTensor *const *a, DLTensor *const *o, model_call *call) {
  int64_t i;
  char *w = call->workspace;
  if (!w || call->workspace_size < (size_t)a[0]->shape[0] * 64 || (size_t)w % 64) return RELAX_E_WORKSPACE;
  for (i = 0; i < a[0]->shape[0] * 64; i++) w[i] = 1;
  for (i = 0; i < a[0]->shape[0] * 3; i++) ((f32 *)o[0]->data)[i] = 2 * ((f32 *)a[0]->data)[i];
  if ((size_t)o[0]->data % 64) return 100;
  *(int64_t *)o[1]->data = a[0]->shape[0];
  return ((f32 *)a[0]->data)[0] == 13 ? 77 : 0;
}
"#;

#[test]
fn generic_entry() {
    use relax_rt::{Call, DLDataType, DLDevice, DLManagedTensor, DLTensor};
    use std::ffi::{c_char, CStr};
    let dir = tempfile::tempdir().expect("dir");
    let mut program = program();
    for suffix in ["call", "infer", "workspace"] {
        program.module.funcs.push(FlatFunc {
            name: format!("model_main__{suffix}"),
            params: vec![],
            ret: None,
            linkage: Linkage::Local,
            body: vec![FlatStmt::Return(None)],
            span: Span::NONE,
        });
    }
    descriptor::add(&mut program, true, 8);
    let source = format!(
        "{}\nint32_t relax_rt_fail(model_call *, int, int, int64_t, int64_t, const char *);\n{MODEL}\n{}
int32_t relax_rt_run(const void *, const char *, const DLTensor *const *, int32_t, DLManagedTensor **, int32_t, model_call *);
const char *model_metadata(void) {{ return (const char *)&model__metadata; }}
int32_t model_run(const char *entry, const DLTensor *const *args, int32_t n_args, DLManagedTensor **results,
                  int32_t n_results, model_call *call) {{
  return relax_rt_run(&model__module, entry, args, n_args, results, n_results, call);
}}\n",
        header::write(&program),
        data_as_c(&program),
    );
    std::fs::write(dir.path().join("m.c"), source).expect("write");
    let out = Command::new("gcc")
        .args(["-c", "-fPIC", "-O1", "-ffunction-sections", "-o"])
        .args([dir.path().join("m.o"), dir.path().join("m.c")])
        .output()
        .expect("gcc");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let object = std::fs::read(dir.path().join("m.o")).expect("object");
    let runtime = runtime_object("x86_64-unknown-linux-gnu").expect("runtime");
    let exports = ["model_run".to_string(), "model_metadata".to_string()];
    let bytes = link_shared(&object, Some(runtime), "libmodel.so", &exports).expect("link");
    let path = dir.path().join("libmodel.so");
    std::fs::write(&path, bytes).expect("write");

    type Run = unsafe extern "C" fn(
        *const c_char,
        *const *const DLTensor,
        i32,
        *mut *mut DLManagedTensor,
        i32,
        *mut Call,
    ) -> i32;
    // SAFETY: the library was built above with these signatures.
    unsafe {
        let lib = Library::new(&path).expect("load");
        let metadata = lib.get::<unsafe extern "C" fn() -> *const c_char>(b"model_metadata").expect("metadata");
        let json: serde_json::Value = serde_json::from_slice(CStr::from_ptr(metadata()).to_bytes()).expect("JSON");
        assert_eq!(json["entries"][0]["params"][0]["shape"], serde_json::json!(["n", 3]));
        assert_eq!(json["entries"][0]["workspace"], "n * 64");
        assert_eq!(json, descriptor::metadata(&program));

        let run = lib.get::<Run>(b"model_run").expect("run");
        let mut data: Vec<f32> = (0..24).map(|i| i as f32).collect();
        let mut shape = [8i64, 3];
        let mut x = DLTensor {
            data: data.as_mut_ptr().cast(),
            device: DLDevice { device_type: 1, device_id: 0 },
            ndim: 2,
            dtype: DLDataType { code: 2, bits: 32, lanes: 1 },
            shape: shape.as_mut_ptr(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        };
        let go = |x: *const DLTensor, entry: Option<&CStr>, n: (i32, i32), call: *mut Call| {
            let mut results = [std::ptr::dangling_mut::<DLManagedTensor>(); 2];
            let args = [x];
            let entry = entry.map_or(std::ptr::null(), CStr::as_ptr);
            let rc = run(entry, args.as_ptr(), n.0, results.as_mut_ptr(), n.1, call);
            (rc, results)
        };
        let mut small = [0u8; 64];
        for workspace in [false, true] {
            for entry in [None, Some(c"main")] {
                let mut call = Call::new();
                if workspace {
                    call.workspace = small.as_mut_ptr().cast();
                    call.workspace_size = small.len();
                }
                let given = call.workspace;
                let (rc, results) = go(&x, entry, (1, 2), &mut call);
                assert_eq!(rc, 0);
                assert_eq!((call.workspace, call.allocate.is_none()), (given, true));
                let [r, s] = results.map(|r| &*r);
                assert_eq!(std::slice::from_raw_parts(r.dl_tensor.shape, 2), &[8, 3]);
                let out = std::slice::from_raw_parts(r.dl_tensor.data.cast::<f32>(), 24);
                assert!(out.iter().zip(&data).all(|(a, b)| *a == 2.0 * b));
                assert_eq!((s.dl_tensor.ndim, s.dl_tensor.dtype.bits, *s.dl_tensor.data.cast::<i64>()), (1, 64, 8));
                for r in results {
                    (*r).deleter.expect("deleter")(r);
                }
            }
        }
        assert_eq!(go(&x, None, (1, 0), std::ptr::null_mut()).0, 11);
        let fails = |x: *const DLTensor, entry: Option<&CStr>, n: (i32, i32)| {
            let mut call = Call::new();
            let (rc, results) = go(x, entry, n, &mut call);
            assert_eq!(rc, call.code);
            assert!(results[..n.1.max(0) as usize].iter().all(|r| r.is_null()));
            let text = CStr::from_bytes_until_nul(&call.message).expect("terminated").to_str().expect("text");
            (rc, call.constraint, text.to_string())
        };
        assert_eq!(fails(&x, Some(c"nope"), (1, 2)), (11, 0, "no entry is named nope".into()));
        assert_eq!(fails(&x, None, (0, 2)), (11, 0, "number of arguments: wanted 1, got 0".into()));
        assert_eq!(fails(&x, None, (1, 1)), (11, 0, "number of results: wanted 2, got 1".into()));
        assert_eq!(fails(std::ptr::null(), None, (1, 2)), (1, 0, "x: wanted a pointer, got null".into()));
        shape[0] = 7;
        x.shape = shape.as_mut_ptr();
        assert_eq!(fails(&x, None, (1, 2)), (8, 1, "n % 8 == 0: wanted 0, got 7".into()));
        shape[0] = 8;
        x.shape = shape.as_mut_ptr();
        data[0] = 13.0;
        x.data = data.as_mut_ptr().cast();
        assert_eq!(fails(&x, None, (1, 2)).0, 77);
    }
}
