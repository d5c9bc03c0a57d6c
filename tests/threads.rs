//! Libraries compiled with `--threads N`: the same bits for any N, from any number of calling threads.
#![cfg(target_os = "linux")]

use relax_aot::loader::Library;
use relax_ir::{Constant, DType};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Products of a dynamic number of rows, rows normalised, products over heads; convolutions with constant weights,
/// direct and by Winograd's algorithm in blocks
/// and whole, windows over a copy with borders; a map over many elements.
const MODEL: &str = r#"
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 512), dtype="float32"), w: R.Tensor((512, 1024), dtype="float32"),
             h: R.Tensor((8, 192, 64), dtype="float32"), p: R.Tensor((1, 64, 56, 56), dtype="float32"),
             e: R.Tensor((2000003,), dtype="float32")):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.nn.gelu(a)
            c = R.nn.softmax(b, axis=-1)
            d = R.matmul(c, R.permute_dims(w))
            t = R.permute_dims(h, axes=[0, 2, 1])
            s = R.nn.softmax(R.matmul(h, t), axis=-1)
            o = R.matmul(s, h)
            k = R.arange(0, 36864, 1, dtype="float32")
            f = R.reshape(R.sin(k), (64, 64, 3, 3))
            q = R.nn.relu(R.nn.conv2d(p, f, padding=[1, 1, 1, 1]))
            u = R.nn.max_pool2d(q, pool_size=[3, 3], strides=[2, 2], padding=[1, 1, 1, 1])
            y = R.nn.max_pool2d(R.nn.conv2d(u, f, padding=[1, 1, 1, 1]), pool_size=[2, 2], strides=[2, 2])
            z = R.add(R.nn.conv2d(y, f, padding=[1, 1, 1, 1]), y)
            r = R.nn.conv2d(z, f, strides=[2, 2], padding=[1, 1, 1, 1])
            m = R.multiply(R.exp(e), R.tanh(e))
            out = (d, o, r, m)
            R.output(out)
        return out
"#;
const RESULTS: usize = 4;

fn relax_aot(args: &[&str]) -> Output {
    let mut c = Command::new(env!("CARGO_BIN_EXE_relax-aot"));
    c.args(args).output().expect("the command starts")
}

fn path(p: &Path) -> &str {
    p.to_str().expect("paths of tests are text")
}

fn library(dir: &Path, threads: usize, more: &[&str]) -> PathBuf {
    let model = dir.join("model.rlx");
    std::fs::write(&model, MODEL).expect("the model is written");
    let so = dir.join(format!("lib{threads}.so"));
    let n = threads.to_string();
    let args = [path(&model), "--prefix", "m", "-o", path(&so), "--threads", &n];
    let out = relax_aot(&[&args[..], more].concat());
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    so
}

fn tensor(shape: &[i64]) -> Constant {
    let n = shape.iter().product::<i64>();
    let value = |i: i64| ((i * 37 + 11) % 1009) as f32 / 504.0 - 1.0;
    Constant::new(DType::F32, shape.to_vec(), (0..n).flat_map(|i| value(i).to_le_bytes()).collect())
}

fn inputs(rows: i64) -> Vec<Constant> {
    [&[rows, 512][..], &[512, 1024], &[8, 192, 64], &[1, 64, 56, 56], &[2_000_003]].map(tensor).to_vec()
}

fn run(library: &Library, inputs: &[Constant]) -> Vec<Vec<u8>> {
    let results = library.run("main", inputs, RESULTS).unwrap_or_else(|e| panic!("{}: {}", e.code, e.message));
    results.iter().map(|c| c.bytes().to_vec()).collect()
}

fn symbols(so: &Path) -> String {
    let out = Command::new("nm").arg(so).output().expect("nm");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

#[test]
fn the_same_bits_for_any_number_of_threads() {
    for cpu in ["auto", "baseline"] {
        let dir = tempfile::tempdir().expect("a folder");
        let alone = library(dir.path(), 1, &["--target-cpu", cpu]);
        assert!(!symbols(&alone).contains("_tasks"));
        let alone = Library::open(&alone, "m").expect("the library");
        for threads in [2, 3] {
            let so = library(dir.path(), threads, &["--target-cpu", cpu]);
            let shared = symbols(&so).matches("_tasks\n").count();
            assert!(shared >= 2, "{shared} kernels of {cpu} run on {threads} threads\n{}", symbols(&so));
            let library = Library::open(&so, "m").expect("the library");
            // Many rows, and so few that a kernel stays on one thread.
            for rows in [300, 2, 1] {
                let inputs = inputs(rows);
                assert!(run(&alone, &inputs) == run(&library, &inputs), "{cpu}, {threads} threads, {rows} rows");
            }
        }
    }
}

#[test]
fn callers_at_the_same_time() {
    let dir = tempfile::tempdir().expect("a folder");
    let so = library(dir.path(), 3, &[]);
    let wanted = run(&Library::open(&so, "m").expect("the library"), &inputs(64));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let library = Library::open(&so, "m").expect("the library");
                let inputs = inputs(64);
                for _ in 0..4 {
                    assert!(run(&library, &inputs) == wanted);
                }
            });
        }
    });
}

#[test]
fn objects_have_no_threads() {
    let dir = tempfile::tempdir().expect("a folder");
    let model = dir.path().join("model.rlx");
    std::fs::write(&model, MODEL).expect("the model is written");
    let object = dir.path().join("model.o");
    let out = relax_aot(&[path(&model), "-o", path(&object), "--threads", "2"]);
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.code() == Some(3) && err.contains("--threads 2"), "{err}");
    assert!(!object.exists());
}

/// The caller's `parallel_for` is asked instead of a team, each element is the same, and what it returns is returned.
#[test]
fn a_parallel_for_of_the_caller() {
    let dir = tempfile::tempdir().expect("a folder");
    let so = library(dir.path(), 2, &[]);
    let client = dir.path().join("own");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/threads/own.c");
    let flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pthread", "-I", path(dir.path()), "-o", path(&client)];
    let out = Command::new("gcc").args(flags).args([source, path(&so)]).output().expect("gcc");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let out = Command::new(&client).env("LD_LIBRARY_PATH", dir.path()).output().expect("the client starts");
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{:?} {}", out.status, String::from_utf8_lossy(&out.stderr));
    let loops: usize = said.trim().parse().expect("a number");
    assert!(loops >= 5, "{loops} loops went through the caller's parallel_for");
}
