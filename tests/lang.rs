//! The language in compiled code beyond what the corpus has: `tests/lang/NAME.rlx`, each with runs in its head:
//!
//! ```text
//! # args: --check-bounds         options, for all runs
//! # laid out                     at compile time, not over the runtime's values; runs between unmapped pages
//! # run
//! # in: float32 2 : 1 2          an argument: dtype, dims, elements
//! # out: int64 : 3               a result, or
//! # fails: 8                     the error code
//! # says: line 9, n == 4: ..     and what its message begins with; the header names the check
//! # prints: x                    the format of the next `R.print`
//! ```
//!
//! After each run every block of memory must have been given back.

use relax_aot::cli::{Cli, CodegenArgs};
use relax_aot::compare::compare;
use relax_aot::driver::Session;
use relax_aot::loader::{Counted, Library, Memory, PackedFunction, Reply};
use relax_aot::render;
use relax_ir::{Constant, DType};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

#[derive(Default)]
struct Run {
    args: Vec<Constant>,
    results: Vec<Constant>,
    fails: Option<i32>,
    says: Option<String>,
    prints: Vec<String>,
}

/// The options that a line `# args: ..` of the text names.
fn options(text: &str) -> CodegenArgs {
    use clap::Parser;
    let more = text.lines().find_map(|l| l.strip_prefix("# args: ")).unwrap_or("");
    let words = ["relax-aot", "model.rlx", "-o", "libmodel.so"];
    Cli::parse_from(words.into_iter().chain(more.split_whitespace())).compile.options
}

/// `float32 2 : 1 2`; a scalar may leave out the colon.
fn tensor(text: &str) -> Constant {
    let (head, elements) = text.split_once(':').or_else(|| text.trim().split_once(' ')).unwrap_or((text, ""));
    let mut head = head.split_whitespace();
    let dtype: DType = head.next().and_then(|d| d.parse().ok()).expect("a dtype");
    let shape: Vec<i64> = head.map(|d| d.parse().expect("a dim")).collect();
    let mut bytes = vec![];
    for x in elements.split_whitespace() {
        match dtype {
            DType::F32 => bytes.extend(x.parse::<f32>().expect("a number").to_le_bytes()),
            DType::I32 => bytes.extend(x.parse::<i32>().expect("a number").to_le_bytes()),
            DType::I8 => bytes.push(x.parse::<i8>().expect("a number") as u8),
            DType::I64 => bytes.extend(x.parse::<i64>().expect("a number").to_le_bytes()),
            DType::U64 => bytes.extend(x.parse::<u64>().expect("a number").to_le_bytes()),
            DType::F64 => bytes.extend(x.parse::<f64>().expect("a number").to_le_bytes()),
            _ => bytes.push(x.parse::<u8>().expect("a number")),
        }
    }
    Constant::new(dtype, shape, bytes)
}

fn runs(text: &str) -> Vec<Run> {
    let mut out: Vec<Run> = vec![];
    for line in text.lines().filter_map(|l| l.strip_prefix("# ")) {
        if line == "run" {
            out.push(Run::default());
        }
        let Some(run) = out.last_mut() else { continue };
        match line.split_once(": ") {
            Some(("in", t)) => run.args.push(tensor(t)),
            Some(("out", t)) => run.results.push(tensor(t)),
            Some(("fails", t)) => run.fails = t.trim().parse().ok(),
            Some(("says", t)) => run.says = Some(t.to_string()),
            Some(("prints", t)) => run.prints.push(t.to_string()),
            _ => {}
        }
    }
    out
}

fn check(path: &Path) {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let text = std::fs::read_to_string(path).expect("the text is there");
    let mut session = Session::default();
    let dir = tempfile::tempdir().expect("a temporary folder");
    let so = dir.path().join("libmodel.so");
    let program = session.build(path, &so, None, &options(&text));
    let Ok(program) = program else {
        panic!("{name}: {}", render::text(&session.diags, &session.sources, false));
    };
    let entry = program.entries.iter().find(|e| e.name == "main").expect("an entry main");
    let library = Library::open(&so, "model").expect("the library loads");
    let laid_out = text.lines().any(|l| l == "# laid out");
    assert!(!laid_out || entry.dynamic.is_none(), "{name}: {:?}", entry.dynamic);
    let memory = if laid_out { Memory::GuardedEnd } else { Memory::Heap };
    let runs = runs(&text);
    assert!(!runs.is_empty(), "{name}: no runs");
    for (i, run) in runs.iter().enumerate() {
        let printed: Arc<Mutex<Vec<String>>> = Arc::default();
        let lines = printed.clone();
        let packed = [
            PackedFunction::new("test.reverse", |args| match args {
                [x] if x.shape == [4] => Err(7),
                [x] => {
                    let data = x.bytes().chunks_exact(4).rev().flatten().copied().collect();
                    Ok(Reply::Tensor(Constant::new(x.dtype, x.shape.clone(), data)))
                }
                _ => Err(1),
            }),
            // In destination-passing style: the last argument is twice the first, plus the scalar between them.
            PackedFunction::new("test.scaled", |args| match args {
                [x, by, out] if by.shape.is_empty() => {
                    let by = by.bytes().first().map_or(0.0, |b| *b as f32);
                    let floats = x.bytes().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
                    let data = floats.flat_map(|v| (2.0 * v + by).to_le_bytes()).collect();
                    Ok(Reply::Last(Constant::new(out.dtype, out.shape.clone(), data)))
                }
                _ => Err(1),
            }),
            PackedFunction::new("relax.run.print", move |args| {
                let format = args.first().map(|f| String::from_utf8_lossy(f.bytes()).into_owned());
                lines.lock().map_err(|_| 1)?.extend(format);
                Ok(Reply::Nothing)
            }),
        ];
        let counted = Counted::default();
        let what = format!("{name}, run {i}");
        let n = entry.results.len();
        let got = library.run_with(memory, "main", &run.args, n, &packed, Some(&counted));
        let live = counted.live() + packed.iter().map(PackedFunction::live).sum::<i64>();
        assert_eq!(live, 0, "{what}: blocks not given back");
        match (got, run.fails) {
            (Ok(got), None) => {
                assert_eq!(got.len(), run.results.len(), "{what}: number of results");
                for (g, w) in got.iter().zip(&run.results) {
                    compare(&what, g, w, 1e-6, 1e-6).unwrap_or_else(|m| panic!("{}", m.text));
                }
            }
            (Err(e), Some(code)) => {
                assert_eq!(e.code, code, "{what}: {e:?}");
                if let Some(says) = &run.says {
                    assert!(e.message.starts_with(says), "{what}: {e:?}");
                    let named = program.checks.iter().find(|c| i64::from(c.number) == i64::from(e.constraint));
                    assert!(named.is_some_and(|c| c.line.is_some()), "{what}: no check {}", e.constraint);
                }
            }
            (got, _) => panic!("{what}: {got:?}"),
        }
        assert_eq!(*printed.lock().expect("no panic"), run.prints, "{what}: what is printed");
    }
}

#[test]
fn every_text_runs() {
    let dir: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lang");
    let mut texts: Vec<PathBuf> =
        std::fs::read_dir(dir).expect("the folder is there").flatten().map(|e| e.path()).collect();
    texts.sort();
    assert!(!texts.is_empty());
    for t in texts.iter().filter(|p| p.extension().is_some_and(|e| e == "rlx")) {
        check(t);
    }
}

const SMALL: &str = r#"from tvm.script import ir as I, relax as R, tirx as T
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def convert(C: T.Buffer((T.int64(CODES),), "TYPE"), X: T.Buffer((T.int64(COUNT),), "float32"), D: T.Buffer((T.int64(CODES),), "float32"), E: T.Buffer((T.int64(COUNT),), "TYPE")):
        for i in range(T.int64(CODES)):
            with T.sblock("decode"):
                vi = T.axis.spatial(T.int64(CODES), i)
                D[vi] = T.Cast("float32", C[vi])
        for i in range(T.int64(COUNT)):
            with T.sblock("encode"):
                vi = T.axis.spatial(T.int64(COUNT), i)
                E[vi] = T.Cast("TYPE", X[vi])

    @T.prim_func(private=True, s_tir=True)
    def combine(C: T.Buffer((T.int64(CODES),), "TYPE"), S: T.Buffer((T.int64(CODES), T.int64(CODES)), "TYPE"), P: T.Buffer((T.int64(CODES), T.int64(CODES)), "TYPE"), Q: T.Buffer((T.int64(CODES), T.int64(CODES)), "TYPE")):
        for i, j in T.grid(T.int64(CODES), T.int64(CODES)):
            with T.sblock("pairs"):
                vi, vj = T.axis.remap("SS", [i, j])
                S[vi, vj] = C[vi] + C[vj]
                P[vi, vj] = T.max(C[vi] * C[vj], -C[vi])
                Q[vi, vj] = C[vi] / C[vj] - T.Cast("TYPE", T.Cast("float64", C[vi]) * T.float64(0.37))

    @R.function
    def main(c: R.Tensor((CODES,), dtype="TYPE"), x: R.Tensor((COUNT,), dtype="float32")):
        cls = Module
        a = R.call_tir(cls.convert, (c, x), out_ty=[R.Tensor((CODES,), dtype="float32"), R.Tensor((COUNT,), dtype="TYPE")])
        b = R.call_tir(cls.combine, (c,), out_ty=[R.Tensor((CODES, CODES), dtype="TYPE"), R.Tensor((CODES, CODES), dtype="TYPE"), R.Tensor((CODES, CODES), dtype="TYPE")])
        return (a[0], a[1], b[0], b[1], b[2], R.astype(c, "float32"), R.astype(x, "TYPE"))
"#;

/// Bytes of float32 numbers, every NaN the same.
fn floats(bytes: &[u8]) -> Vec<u32> {
    let all = bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    all.map(|v| if v.is_nan() { u32::MAX } else { v.to_bits() }).collect()
}

/// Every code of every small float, and numbers around every border between two of them: conversions are those of
/// ml_dtypes, arithmetic on all pairs is the interpreter's, to the bit.
#[test]
fn small_floats_are_those_of_ml_dtypes() {
    use relax_ir::small_float::SmallFloat;
    use relax_lower::interp::{run, Arg, Tensor};
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lang");
    let wanted = relax_frontend::weights::open_npz(&folder.join("small_floats.npz"));
    let wanted: std::collections::HashMap<String, Constant> =
        wanted.expect("the arrays are there").into_iter().collect();
    let dir = tempfile::tempdir().expect("a temporary folder");
    for s in SmallFloat::ALL {
        let (name, dtype) = (s.format().name, DType::small(s));
        let get = |what: &str| wanted[&format!("{name}.{what}")].clone();
        let (values, x, codes) = (get("values"), get("x"), get("codes"));
        let n = 1i64 << s.format().bits;
        let text = SMALL.replace("TYPE", name).replace("CODES", &n.to_string());
        let text = text.replace("COUNT", &x.elements().to_string());
        let path = dir.path().join(format!("{name}.rlx"));
        std::fs::write(&path, &text).expect("the text is written");
        let so = dir.path().join(format!("lib{name}.so"));
        let mut session = Session::default();
        if session.build(&path, &so, None, &options("")).is_err() {
            panic!("{name}: {}", render::text(&session.diags, &session.sources, false));
        }
        let library = Library::open(&so, name).expect("the library loads");
        let all = Constant::new(dtype, vec![n], (0..n).map(|c| c as u8).collect());
        let args = [all.clone(), x.clone()];
        let got = library.run_with(Memory::Heap, "main", &args, 7, &[], None).expect("it runs");
        for i in [0, 5] {
            assert_eq!(floats(got[i].bytes()), floats(values.bytes()), "{name}: values of the codes");
        }
        for i in [1, 6] {
            let differ = got[i].bytes().iter().zip(codes.bytes()).position(|(g, w)| g != w);
            assert_eq!(differ, None, "{name}: code of a number");
        }
        let module = relax_frontend::rlx::parse(relax_ir::FileId(0), &text).0.expect("the text is read");
        let pairs = || Arg::Tensor(Tensor::zeros(dtype, &[n, n]));
        let mut args = vec![Arg::Tensor(Tensor::from_constant(&all)), pairs(), pairs(), pairs()];
        run(module.prim("combine").expect("the kernel"), &mut args).expect("the interpreter runs");
        for (i, arg) in args[1..].iter().enumerate() {
            let want = &arg.tensor().expect("a tensor").data;
            let differ = got[2 + i].bytes().iter().zip(want).position(|(g, w)| {
                let number = |c: u8| s.decode(c);
                g != w && !(number(*g).is_nan() && number(*w).is_nan())
            });
            assert_eq!(differ, None, "{name}: result {i} of pairs");
        }
    }
}
