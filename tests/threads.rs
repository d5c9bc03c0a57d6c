//! Libraries compiled with `--threads N`: the same bits for any N, from any number of calling threads.
#![cfg(target_os = "linux")]

use relax_aot::loader::Library;
use relax_ir::{Constant, DType};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Products of a dynamic number of rows, rows normalised, products over heads; convolutions with constant weights,
/// direct and by Winograd's algorithm in blocks
/// and whole, windows over a copy with borders; a map over many elements; a recurrence, whose product has columns left
/// over; pictures of an open batch, one of which is one block of tiles; a convolution to few channels, whose loop over a copy with borders has scratch memory of its own; rows that are taken
/// from where a loop with a rest says. Pictures of a batch, of which each thread takes some.
const MODEL: &str = r#"
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def steps(x: T.Buffer((T.int64(12), T.int64(1), T.int64(512)), "float32"),
              w: T.Buffer((T.int64(256), T.int64(544)), "float32"),
              y: T.Buffer((T.int64(12), T.int64(1), T.int64(256)), "float32")):
        h = T.alloc_buffer((T.int64(1), T.int64(256)))
        gates = T.alloc_buffer((T.int64(1), T.int64(544)))
        for i in range(T.int64(256)):
            with T.sblock("start"):
                vi = T.axis.spatial(T.int64(256), i)
                h[T.int64(0), vi] = T.float32(0.25)
        for t in range(T.int64(12)):
            for i, j, k in T.grid(T.int64(1), T.int64(544), T.int64(256)):
                with T.sblock("gates"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    with T.init():
                        gates[vi, vj] = T.float32(0)
                    gates[vi, vj] = gates[vi, vj] + h[vi, vk] * w[vk, vj]
            for i, j in T.grid(T.int64(1), T.int64(256)):
                with T.sblock("hidden"):
                    vt, vi, vj = T.axis.remap("SSS", [t, i, j])
                    y[vt, vi, vj] = T.tanh(x[vt, vi, vj] + gates[vi, vj]) * T.sigmoid(
                        x[vt, vi, vj + T.int64(256)] + gates[vi, vj + T.int64(288)])
            for i, j in T.grid(T.int64(1), T.int64(256)):
                with T.sblock("next"):
                    vt, vi, vj = T.axis.remap("SSS", [t, i, j])
                    h[vi, vj] = y[vt, vi, vj]

    @R.function
    def main(x: R.Tensor(("n", 512), dtype="float32"), w: R.Tensor((512, 1024), dtype="float32"),
             h: R.Tensor((8, 192, 64), dtype="float32"), p: R.Tensor((1, 64, 56, 56), dtype="float32"),
             e: R.Tensor((60003,), dtype="float32"), g: R.Tensor((12, 1, 512), dtype="float32"),
             k: R.Tensor(("b", 64, 14, 14), dtype="float32"), f: R.Tensor((64, 64, 3, 3), dtype="float32"),
             l: R.Tensor((7, 64, 3, 3), dtype="float32")):
        cls = Module
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.nn.gelu(a)
            c = R.nn.softmax(b, axis=-1)
            d = R.matmul(c, R.permute_dims(w))
            t = R.permute_dims(h, axes=[0, 2, 1])
            s = R.nn.softmax(R.matmul(h, t), axis=-1)
            o = R.matmul(s, h)
            q = R.nn.relu(R.nn.conv2d(p, f, padding=[1, 1, 1, 1]))
            u = R.nn.max_pool2d(q, pool_size=[3, 3], strides=[2, 2], padding=[1, 1, 1, 1])
            y = R.nn.max_pool2d(R.nn.conv2d(u, f, padding=[1, 1, 1, 1]), pool_size=[2, 2], strides=[2, 2])
            z = R.add(R.nn.conv2d(y, f, padding=[1, 1, 1, 1]), y)
            r = R.nn.conv2d(z, f, strides=[2, 2], padding=[1, 1, 1, 1])
            m = R.multiply(R.exp(e), R.tanh(e))
            a0 = R.arange(0, 139264, 1, dtype="float32")
            a1 = R.reshape(R.multiply(R.sin(a0), R.const(0.125, "float32")), (256, 544))
            v = R.call_tir(cls.steps, (g, a1), out_sinfo=R.Tensor((12, 1, 256), dtype="float32"))
            one = R.nn.relu(R.nn.conv2d(k, f, padding=[1, 1, 1, 1]))
            last = R.nn.relu(R.nn.conv2d(p, l, padding=[2, 2, 2, 2], dilation=[2, 2]))
            i0 = R.strided_slice(e, axes=[0], begin=[0], end=[3001])
            i1 = R.astype(R.multiply(R.abs(i0), R.const(8000, "float32")), "int64")
            taken = R.take(R.reshape(w, (8192, 64)), i1, axis=0)
            out = (d, o, r, m, v, one, last, taken)
            R.output(out)
        return out

    @R.function
    def pictures(p: R.Tensor(("n", 64, 14, 14), dtype="float32"), f: R.Tensor((64, 64, 3, 3), dtype="float32")):
        n = T.int64()
        with R.dataflow():
            a = R.nn.relu(R.nn.conv2d(p, f, padding=[1, 1, 1, 1]))
            b = R.nn.max_pool2d(R.nn.conv2d(a, f, padding=[1, 1, 1, 1]), pool_size=[2, 2], strides=[2, 2])
            R.output(b)
        return b
"#;
const RESULTS: usize = 8;

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
    let file = dir.join("weights.safetensors");
    let f = tensor(&[64, 64, 3, 3]).bytes().to_vec();
    let l = tensor(&[7, 64, 3, 3]).bytes().to_vec();
    weights(&file, &[("f", "F32", "[64,64,3,3]", f), ("l", "F32", "[7,64,3,3]", l)]);
    let so = dir.join(format!("lib{threads}.so"));
    let n = threads.to_string();
    let args = [path(&model), "--params", path(&file), "--prefix", "m", "-o", path(&so), "--threads", &n];
    let out = relax_aot(&[&args[..], more].concat());
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    so
}

fn tensor(shape: &[i64]) -> Constant {
    let n = shape.iter().product::<i64>();
    let value = |i: i64| ((i * 37 + 11) % 1009) as f32 / 504.0 - 1.0;
    Constant::new(DType::F32, shape.to_vec(), (0..n).flat_map(|i| value(i).to_le_bytes()).collect())
}

fn inputs(rows: i64, pictures: i64) -> Vec<Constant> {
    let fixed = [&[512, 1024][..], &[8, 192, 64], &[1, 64, 56, 56], &[60_003], &[12, 1, 512]].map(tensor);
    let mut all = vec![tensor(&[rows, 512])];
    all.extend(fixed);
    all.push(tensor(&[pictures, 64, 14, 14]));
    all
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
        for threads in [2, 3, 5] {
            let so = library(dir.path(), threads, &["--target-cpu", cpu]);
            let shared = symbols(&so).matches("_tasks\n").count();
            assert!(symbols(&so).contains("steps_tasks"), "{}", symbols(&so));
            // Blocks of tiles, not of a number that the threads divide: shares begin and end among them.
            let transformed = symbols(&so).lines().any(|l| l.contains("winograd") && l.ends_with("_tasks"));
            assert!(transformed == (cpu == "auto"), "{}", symbols(&so));
            let named = ["nn_conv2d_nn_relu_tasks", "astype_take_tasks"];
            assert!(named.iter().all(|name| symbols(&so).contains(name)), "{}", symbols(&so));
            assert!(shared >= 14, "{shared} kernels of {cpu} run on {threads} threads\n{}", symbols(&so));
            let library = Library::open(&so, "m").expect("the library");
            // Many rows, and so few that a kernel stays on one thread; pictures that are many, few, and none.
            for (rows, pictures) in [(300, 1), (2, 3), (1, 2), (33, 12), (17, 0)] {
                let inputs = inputs(rows, pictures);
                let same = run(&alone, &inputs) == run(&library, &inputs);
                assert!(same, "{cpu}, {threads} threads, {rows} rows, {pictures} pictures");
            }
        }
    }
}

/// A copy with borders, which is filled before it is written: no share fills what another one has written.
const BORDERS: &str = r#"
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, "h", "w", 32), dtype="float32")):
        return R.nn.pad(x, pad_width=[0, 0, 0, 0, 1, 1, 0, 0])
"#;

/// Where the call tells that a picture has fewer blocks of tiles than there are threads, phases of a block are shared out instead.
#[test]
fn fewer_rounds_than_threads_are_cut_into_phases() {
    let dir = tempfile::tempdir().expect("a folder");
    library(dir.path(), 2, &["--target-cpu", "x86-64-v3"]);
    let flat = dir.path().join("m.flat");
    let [model, weights] = ["model.rlx", "weights.safetensors"].map(|name| dir.path().join(name));
    let args = [path(&model), "--params", path(&weights), "--prefix", "m", "-o", path(&flat), "--emit", "flat"];
    let out = relax_aot(&[&args[..], &["--threads", "2", "--target-cpu", "x86-64-v3"]].concat());
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = std::fs::read_to_string(&flat).expect("the flat module");
    let host = text.split("for round in range(0, T.max(b, 0)").nth(1).expect("a loop over rounds");
    let round = host.split("else:").next().unwrap_or_default();
    assert_eq!(round.matches("call m__parallel(").count(), 3, "{round}");
}

#[test]
fn borders_are_filled_first() {
    let dir = tempfile::tempdir().expect("a folder");
    let model = dir.path().join("model.rlx");
    std::fs::write(&model, BORDERS).expect("the model is written");
    let library = |threads: &str| {
        let so = dir.path().join(format!("{threads}.so"));
        relax_aot(&[path(&model), "--prefix", "m", "-o", path(&so), "--threads", threads]);
        Library::open(&so, "m").expect("the library")
    };
    let (alone, shared) = (library("1"), library("3"));
    for (h, w) in [(11, 48), (60, 70), (111, 48), (3, 900)] {
        let x = [tensor(&[1, h, w, 32])];
        let run = |l: &Library| l.run("main", &x, 1).unwrap_or_else(|e| panic!("{}", e.message));
        let wanted = run(&alone);
        assert!((0..4).all(|_| run(&shared) == wanted), "{h}x{w}");
    }
}

/// Pools over planes: of a wide plane the borders of the sums that wait on the stack are filled in each share; of data that is
/// computed on the way, forms for other vectors have other phases.
#[test]
fn shares_of_a_pool_fill_its_borders() {
    let dir = tempfile::tempdir().expect("a folder");
    let model = dir.path().join("model.rlx");
    let pool = |x: &str, k: i64, s: i64| {
        let p = k / 2;
        format!("R.nn.max_pool2d({x}, pool_size=[{k}, {k}], strides=[{s}, {s}], padding=[{p}, {p}, {p}, {p}])")
    };
    let steps = "R.const(0.03, \"float32\"), R.const(7, \"int8\")";
    let bytes = format!("R.dequantize(R.quantize(x, {steps}, out_dtype=\"int8\"), {steps}, out_dtype=\"float32\")");
    let cases = [
        ([2, 1, 642, 598], pool("x", 3, 2)),
        ([1, 1, 842, 1190], pool("x", 3, 2)),
        ([3, 8, 64, 120], pool(&bytes, 5, 1)),
    ];
    for (shape, pool) in cases {
        let [n, c, h, w] = shape;
        let text = format!(
            "@I.ir_module\nclass Module:\n    @R.function\n    def main(x: R.Tensor(({n}, {c}, {h}, {w}), \
             dtype=\"float32\")):\n        with R.dataflow():\n            y = {pool}\n            R.output(y)\n        \
             return y\n"
        );
        std::fs::write(&model, text).expect("the model is written");
        // Below zero, which a border that was not filled may hold.
        let below = |b: &[u8]| (f32::from_le_bytes([b[0], b[1], b[2], b[3]]) - 1.5).to_le_bytes();
        let values = tensor(&shape).bytes().chunks_exact(4).flat_map(below).collect();
        let x = [Constant::new(DType::F32, shape.to_vec(), values)];
        let results = |threads: &str| {
            let so = dir.path().join(format!("{n}{c}{h}.{threads}.so"));
            let out = relax_aot(&[path(&model), "--prefix", "m", "-o", path(&so), "--threads", threads]);
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            let library = Library::open(&so, "m").expect("the library");
            let run = || library.run("main", &x, 1).unwrap_or_else(|e| panic!("{}", e.message));
            (0..3).map(|_| run()).collect::<Vec<_>>()
        };
        let wanted = results("1");
        for threads in ["2", "3", "5"] {
            assert!(results(threads) == wanted, "{shape:?}, {threads} threads");
        }
    }
}

/// Rows of an open number, turned: by a condition there is one loop or another.
#[test]
fn one_of_two_loops_is_shared_out() {
    let dir = tempfile::tempdir().expect("a folder");
    let model = dir.path().join("model.rlx");
    let text = "@I.ir_module\nclass Module:\n    @R.function\n    def main(x: R.Tensor((\"b\", \"n\", \"m\"), \
                dtype=\"float32\")):\n        return R.permute_dims(x, axes=[0, 2, 1])\n";
    std::fs::write(&model, text).expect("the model is written");
    let library = |threads: &str| {
        let so = dir.path().join(format!("{threads}.so"));
        let out = relax_aot(&[path(&model), "--prefix", "m", "-o", path(&so), "--threads", threads]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        assert_eq!(symbols(&so).contains("permute_dims_tasks"), threads != "1", "{}", symbols(&so));
        Library::open(&so, "m").expect("the library")
    };
    let alone = library("1");
    for threads in ["2", "3"] {
        let shared = library(threads);
        for (b, n, m) in [(1, 300, 70), (1, 33, 1000), (3, 129, 65), (1, 9, 4000), (2, 4000, 7), (1, 0, 16), (5, 20, 0)]
        {
            let x = [tensor(&[b, n, m])];
            let [a, b] = [&alone, &shared].map(|l| l.run("main", &x, 1).unwrap_or_else(|e| panic!("{}", e.message)));
            assert!(a[0].bytes() == b[0].bytes(), "{threads} threads, {n} x {m}");
        }
    }
}

/// Of an open number of rows few read a right side where it is and many a copy on the stack: one of two lists of loops, of
/// which each share fills its own stack.
#[test]
fn shares_fill_their_own_stack() {
    let dir = tempfile::tempdir().expect("a folder");
    let (model, file) = (dir.path().join("model.rlx"), dir.path().join("w.safetensors"));
    let text =
        "@I.ir_module\nclass Module:\n    @R.function\n    def main(x: R.Tensor((\"n\", 4), dtype=\"float32\"), \
                y: R.Tensor((\"n\", 24), dtype=\"float32\"), w: R.Tensor((4, 24), dtype=\"float32\")):\n        \
                n = T.int64()\n        with R.dataflow():\n            z = R.add(R.matmul(x, w), y)\n            \
                R.output(z)\n        return z\n";
    std::fs::write(&model, text).expect("the model is written");
    weights(&file, &[("w", "F32", "[4,24]", tensor(&[4, 24]).bytes().to_vec())]);
    let fused = std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma");
    for cpu in ["native", "x86-64-v3"].into_iter().filter(|c| *c == "native" || fused) {
        let library = |threads: &str| {
            let so = dir.path().join(format!("{cpu}{threads}.so"));
            let args = [path(&model), "--params", path(&file), "--prefix", "m", "-o", path(&so), "--threads", threads];
            let out = relax_aot(&[&args[..], &["--target-cpu", cpu]].concat());
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            Library::open(&so, "m").expect("the library")
        };
        let alone = library("1");
        let libraries = ["2", "3"].map(|threads| (threads, library(threads)));
        for ((threads, shared), n) in libraries.iter().flat_map(|l| [64, 480, 1001, 5000].map(|n| (l, n))) {
            let x = [tensor(&[n, 4]), tensor(&[n, 24])];
            let [a, b] = [&alone, shared].map(|l| l.run("main", &x, 1).unwrap_or_else(|e| panic!("{}", e.message)));
            assert!(a[0].bytes() == b[0].bytes(), "{cpu}, {threads} threads, {n} rows");
        }
    }
}

/// Products whose right side is copied or turned in scratch memory, whole or in passing, or whose left side is copied: a share reads nothing that another has
/// copied.
#[test]
fn shares_copy_what_they_read() {
    let dir = tempfile::tempdir().expect("a folder");
    let model = dir.path().join("model.rlx");
    for (m, k, n, turned) in [
        (48, 512, 512, true),
        (64, 1024, 352, true),
        (64, 272, 64, true),
        (130, 544, 192, true),
        (100, 1024, 228, true),
        (8, 768, 512, true),
        (7, 2048, 200, true),
        (40, 1040, 1024, false),
        (200, 544, 192, false),
    ] {
        let right = if turned { [n, k] } else { [k, n] };
        let b = if turned { "R.permute_dims(b)" } else { "b" };
        let text = format!(
            "@I.ir_module\nclass Module:\n    @R.function\n    def main(a: R.Tensor(({m}, {k}), dtype=\"float32\"), \
             b: R.Tensor(({}, {}), dtype=\"float32\")):\n        return R.matmul(a, {b})\n",
            right[0], right[1]
        );
        std::fs::write(&model, text).expect("the model is written");
        let inputs = [tensor(&[m, k]), tensor(&right)];
        let results = |threads: &str| {
            let so = dir.path().join(format!("{m}x{k}x{n}.{turned}.{threads}.so"));
            let out = relax_aot(&[path(&model), "--prefix", "m", "-o", path(&so), "--threads", threads]);
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            let library = Library::open(&so, "m").expect("the library");
            let run = || library.run("main", &inputs, 1).unwrap_or_else(|e| panic!("{}", e.message));
            (0..3).map(|_| run()).collect::<Vec<_>>()
        };
        let wanted = results("1");
        for threads in ["2", "3"] {
            assert!(results(threads) == wanted, "{m}x{k}x{n}, turned: {turned}, {threads} threads");
        }
    }
}

/// A product with an epilogue that needs registers of its own, so that its sums wait on the stack: 32 columns behind the last full panel,
/// and rows that tiles do not divide, are work of one share, epilogue included. A convolution by Winograd's algorithm in one block, whose
/// loops hand each other pieces of the workspace.
const GATED: &str = r#"
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((128, 512), dtype="float32"), u: R.Tensor((128, 352), dtype="float32"),
             p: R.Tensor((1, 64, 14, 14), dtype="float32"), w: R.Tensor((512, 352), dtype="float32"),
             f: R.Tensor((64, 64, 3, 3), dtype="float32")):
        with R.dataflow():
            a = R.matmul(x, w)
            g = R.multiply(R.multiply(a, R.sigmoid(a)), u)
            q = R.nn.relu(R.nn.conv2d(p, f, padding=[1, 1, 1, 1]))
            out = (g, q)
            R.output(out)
        return out
"#;

#[test]
fn loops_that_hand_each_other_memory_are_shared_out() {
    let dir = tempfile::tempdir().expect("a folder");
    let (model, file) = (dir.path().join("model.rlx"), dir.path().join("w.safetensors"));
    std::fs::write(&model, GATED).expect("the model is written");
    let [w, f] = [&[512, 352][..], &[64, 64, 3, 3]].map(|shape| tensor(shape).bytes().to_vec());
    weights(&file, &[("w", "F32", "[512,352]", w), ("f", "F32", "[64,64,3,3]", f)]);
    let inputs = [&[128, 512][..], &[128, 352], &[1, 64, 14, 14]].map(tensor);
    for cpu in ["auto", "x86-64-v4", "x86-64-v3"] {
        let results = |threads: &str| {
            let so = dir.path().join(format!("{cpu}.{threads}.so"));
            let args = [path(&model), "--params", path(&file), "--prefix", "m", "-o", path(&so), "--threads", threads];
            let out = relax_aot(&[&args[..], &["--target-cpu", cpu]].concat());
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            for name in ["multiply1_tasks", "winograd_conv2d_nn_relu_tasks"] {
                assert_eq!(symbols(&so).contains(name), threads != "1", "{name}: {}", symbols(&so));
            }
            if cpu == "x86-64-v4" && !std::arch::is_x86_feature_detected!("avx512vl") {
                return vec![];
            }
            let library = Library::open(&so, "m").expect("the library");
            let run = || library.run("main", &inputs, 2).unwrap_or_else(|e| panic!("{}", e.message));
            (0..3).map(|_| run()).collect::<Vec<_>>()
        };
        let wanted = results("1");
        for threads in ["2", "3"] {
            assert!(results(threads) == wanted, "{cpu}, {threads} threads");
        }
    }
}

/// A product whose weights stay bytes: 17 panels of columns, the last of which is narrow, and any number of rows.
const STREAMED: &str = r#"
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 256), dtype="float32"), w: R.Tensor((256, 1040), dtype="int8"),
             s: R.Tensor((1040,), dtype="float32")):
        f = R.dequantize(w, s, R.const(3, "int8"), axis=1, out_dtype="float32")
        y = R.matmul(x, f)
        return y
"#;

/// A safetensors file of tensors by name, with their dtypes and shapes as JSON has them.
fn weights(at: &Path, tensors: &[(&str, &str, &str, Vec<u8>)]) {
    let (mut all, mut head) = (vec![], vec![]);
    for (name, dtype, shape, bytes) in tensors {
        let (from, to) = (all.len(), all.len() + bytes.len());
        head.push(format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{from},{to}]}}"#));
        all.extend(bytes);
    }
    let head = format!("{{{}}}", head.join(","));
    let bytes = [(head.len() as u64).to_le_bytes().as_slice(), head.as_bytes(), all.as_slice()].concat();
    std::fs::write(at, bytes).expect("the weights are written");
}

#[test]
fn weights_of_few_bits_are_shared() {
    let dir = tempfile::tempdir().expect("a folder");
    let (model, file) = (dir.path().join("model.rlx"), dir.path().join("w.safetensors"));
    std::fs::write(&model, STREAMED).expect("the model is written");
    let w = (0..256 * 1040).map(|i: i64| (i * 73 % 251) as u8).collect();
    let s = (0..1040).flat_map(|i| (0.002 + i as f32 * 1e-6).to_le_bytes()).collect();
    weights(&file, &[("w", "I8", "[256,1040]", w), ("s", "F32", "[1040]", s)]);
    let library = |threads: &str| {
        let so = dir.path().join(format!("lib{threads}.so"));
        let args = [path(&model), "--params", path(&file), "--prefix", "m", "-o", path(&so), "--threads", threads];
        let out = relax_aot(&[&args[..], &["--target-cpu", "auto"]].concat());
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        assert_eq!(symbols(&so).contains("streamed_tasks"), threads != "1", "{}", symbols(&so));
        Library::open(&so, "m").expect("the library")
    };
    let alone = library("1");
    for threads in ["2", "3"] {
        let shared = library(threads);
        for rows in [1, 5, 30] {
            let x = [tensor(&[rows, 256])];
            let [a, b] = [&alone, &shared].map(|l| l.run("main", &x, 1).unwrap_or_else(|e| panic!("{}", e.message)));
            assert!(a[0].bytes() == b[0].bytes(), "{threads} threads, {rows} rows");
        }
    }
}

#[test]
fn callers_at_the_same_time() {
    let dir = tempfile::tempdir().expect("a folder");
    let so = library(dir.path(), 3, &[]);
    let wanted = run(&Library::open(&so, "m").expect("the library"), &inputs(64, 1));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let library = Library::open(&so, "m").expect("the library");
                let inputs = inputs(64, 1);
                for _ in 0..4 {
                    assert!(run(&library, &inputs) == wanted);
                }
            });
        }
    });
}

/// Builds a client of the library of two threads in `dir`.
fn client(dir: &Path, so: &Path, name: &str) -> PathBuf {
    let client = dir.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/threads").join(name).with_extension("c");
    let flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-I", path(dir), "-o", path(&client)];
    let out = Command::new("gcc").args(flags).args([path(&source), path(so)]).output().expect("gcc");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    client
}

fn loops(out: Output) -> usize {
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{:?} {}", out.status, String::from_utf8_lossy(&out.stderr));
    said.trim().parse().expect("a number")
}

/// No share writes what another one of its loop writes or reads, in any form of the kernels.
#[test]
fn shares_are_independent() {
    for (cpu, threads, least) in [("baseline", 2, 26), ("native", 2, 29), ("native", 5, 29)] {
        let dir = tempfile::tempdir().expect("a folder");
        let so = library(dir.path(), threads, &["--target-cpu", cpu]);
        let client = client(dir.path(), &so, "races");
        let apart = (cpu == "native").then_some("apart");
        let out = Command::new(&client).arg("states").args(apart).env("LD_LIBRARY_PATH", dir.path()).output();
        let loops = loops(out.expect("the client starts"));
        assert!(loops >= least, "{loops} loops of {cpu}, {threads} threads");
    }
}

/// The same by helgrind, where it is installed, of kernels with vectors that it knows.
#[test]
fn shares_have_no_races() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("valgrind is not installed: skipped");
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let so = library(dir.path(), 2, &["--target-cpu", "x86-64-v3"]);
    let client = client(dir.path(), &so, "races");
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=helgrind", "--error-exitcode=9", "--history-level=none", "-q"]);
    let out = valgrind.arg(&client).args(["threads", "apart"]).env("LD_LIBRARY_PATH", dir.path()).output();
    assert!(loops(out.expect("valgrind starts")) >= 20);
}

/// A library is unloaded while the workers of its calls sleep or spin, the child of a fork has workers of its own, and
/// threads call at the same time: `life.c`.
#[test]
fn teams_live_and_end() {
    let dir = tempfile::tempdir().expect("a folder");
    for linker in ["builtin", "system"] {
        let so = library(dir.path(), 3, &["--linker", linker]);
        let client = client(dir.path(), &so, "life");
        let out = Command::new(&client).arg(&so).output().expect("the client starts");
        assert!(out.status.success(), "{linker}: {:?} {}", out.status, String::from_utf8_lossy(&out.stderr));
    }
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
    let client = client(dir.path(), &so, "own");
    let out = Command::new(&client).env("LD_LIBRARY_PATH", dir.path()).output();
    let loops = loops(out.expect("the client starts"));
    assert!(loops >= 5, "{loops} loops went through the caller's parallel_for");
}
