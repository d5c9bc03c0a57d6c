//! Tensors that are written and read as parts of others: blocks as in Inception, DenseNet and networks that split their
//! channels, against the model as written (`-O0`).
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod command;

use command::{path, relax_aot, tensor, weights};
use relax_aot::loader::Library;
use std::path::Path;

/// Branches side by side, one of which is read elsewhere, too; all that came before, again and again; halves of channels;
/// rows of a batch that is open; a result that is a part of another one; parts of what is changed in place; what a step
/// moves to two places, or reads for something else, too.
const MODEL: &str = r#"
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def doubled(x: T.Buffer((T.int64(2), T.int64(6)), "float32")):
        for i, j in T.grid(T.int64(2), T.int64(6)):
            with T.sblock("doubled"):
                vi, vj = T.axis.remap("SS", [i, j])
                x[vi, vj] = x[vi, vj] * T.float32(2)

    @T.prim_func(private=True, s_tir=True)
    def beside(x: T.Buffer((T.int64(2), T.int64(3)), "float32"), y: T.Buffer((T.int64(2), T.int64(6)), "float32")):
        for i, j in T.grid(T.int64(2), T.int64(3)):
            with T.sblock("moved"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = x[vi, vj]
        for i, j in T.grid(T.int64(2), T.int64(3)):
            with T.sblock("doubled"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj + T.int64(3)] = x[vi, vj] * T.float32(2)

    @R.function
    def main(x: R.Tensor((2, 16, 11, 9), "float32"), m: R.Tensor(("n", 24), "float32"), s: R.Tensor((2, 3), "float32"),
             w0: R.Tensor((16, 16, 1, 1), "float32"), w1: R.Tensor((32, 16, 3, 3), "float32"),
             w2: R.Tensor((8, 16, 1, 1), "float32"), w3: R.Tensor((16, 56, 1, 1), "float32"),
             w4: R.Tensor((16, 72, 3, 3), "float32"), w5: R.Tensor((16, 88, 1, 1), "float32"),
             w6: R.Tensor((52, 52, 3, 3), "float32"), w7: R.Tensor((20, 156, 1, 1), "float32"),
             w8: R.Tensor((24, 24), "float32"), c: R.Tensor((104,), "float32")):
        n = T.int64()
        cls = Module
        with R.dataflow():
            a = R.nn.relu(R.nn.conv2d(x, w0))
            b = R.nn.relu(R.nn.conv2d(a, w1, padding=[1, 1, 1, 1]))
            p = R.nn.max_pool2d(x, pool_size=[3, 3], strides=[1, 1], padding=[1, 1, 1, 1])
            d = R.nn.conv2d(p, w2)
            inception = R.concat((a, b, d), axis=1)
            e = R.nn.max_pool2d(inception, pool_size=[3, 3], strides=[2, 2], padding=[1, 1, 1, 1])

            f1 = R.nn.conv2d(inception, w3)
            y1 = R.concat((inception, f1), axis=1)
            f2 = R.nn.conv2d(R.nn.relu(y1), w4, padding=[1, 1, 1, 1])
            y2 = R.concat((inception, f1, f2), axis=1)
            f3 = R.nn.conv2d(R.nn.relu(y2), w5)
            y3 = R.concat((inception, f1, f2, f3), axis=1)
            dense = R.multiply(R.nn.relu(y3), R.reshape(c, R.shape([1, 104, 1, 1])))

            halves = R.split(dense, 2, axis=1)
            g = halves[0]
            h = halves[1]
            i = R.add(h, R.nn.relu(R.nn.conv2d(h, w6, padding=[1, 1, 1, 1])))
            j = R.nn.conv2d(R.concat((g, h, i), axis=1), w7)
            k = R.mean(i, axis=[2, 3])

            q = R.matmul(m, w8)
            r = R.nn.relu(m)
            rows = R.concat((q, r, q), axis=0)
            t = R.add(r, m)

            u = R.exp(s)
            v = R.tanh(s)
            joined = R.concat((u, v), axis=1)
            twice = R.call_tir_inplace(cls.doubled, (joined,), inplace_indices=[0], out_sinfo=R.Tensor((2, 6), "float32"))
            z = R.add(u, v)
            halved = R.concat((z, z), axis=0)
            w = R.cos(s)
            pair = R.concat((w, w), axis=1)
            beside = R.call_tir(cls.beside, (R.sin(s),), out_sinfo=R.Tensor((2, 6), "float32"))
            out = (e, j, k, rows, t, twice, z, halved, f2, R.negative(pair), R.negative(beside))
            R.output(out)
        return out
"#;
const RESULTS: usize = 11;
const WEIGHTS: &[(&str, &[i64])] = &[
    ("w0", &[16, 16, 1, 1]),
    ("w1", &[32, 16, 3, 3]),
    ("w2", &[8, 16, 1, 1]),
    ("w3", &[16, 56, 1, 1]),
    ("w4", &[16, 72, 3, 3]),
    ("w5", &[16, 88, 1, 1]),
    ("w6", &[52, 52, 3, 3]),
    ("w7", &[20, 156, 1, 1]),
    ("w8", &[24, 24]),
    ("c", &[104]),
];

#[test]
fn parts_as_written_and_in_place() {
    let dir = tempfile::tempdir().expect("a folder");
    let (model, file) = (dir.path().join("model.rlx"), dir.path().join("weights.safetensors"));
    std::fs::write(&model, MODEL).expect("the model is written");
    weights(&file, WEIGHTS, 5);
    let compile = |out: &Path, options: &[&str]| {
        relax_aot(&[&[path(&model), "--params", path(&file), "--prefix", "m", "-o", path(out)], options].concat());
    };
    let inputs = |n: i64| [tensor(&[2, 16, 11, 9], 1), tensor(&[n, 24], 2), tensor(&[2, 3], 3)];
    let values = |so: &Path, n: i64| -> Vec<Vec<f64>> {
        let library = Library::open(so, "m").expect("the library");
        let results = library.run("main", &inputs(n), RESULTS).unwrap_or_else(|e| panic!("{}: {}", e.code, e.message));
        results.iter().map(|c| (0..c.elements()).map(|i| c.get_f64(i)).collect()).collect()
    };
    let plain = dir.path().join("plain.so");
    compile(&plain, &["-O0"]);
    let wanted: Vec<_> = [1, 5, 48].iter().map(|&n| (n, values(&plain, n))).collect();
    let forms: &[&[&str]] = &[
        &["--target-cpu", "baseline"],
        &["--target-cpu", "x86-64-v3"],
        &["--target-cpu", "native"],
        &["--target-cpu", "native", "--threads", "2"],
        &["--target-cpu", "native", "--check-bounds"],
        &["--target-cpu", "native", "--likely", "n=5"],
    ];
    for (i, options) in forms.iter().enumerate() {
        let so = dir.path().join(format!("{i}.so"));
        compile(&so, options);
        for (n, wanted) in &wanted {
            let got = values(&so, *n);
            for (r, (a, b)) in wanted.iter().zip(&got).enumerate() {
                let largest = a.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
                for (a, b) in a.iter().zip(b) {
                    assert!(
                        (a - b).abs() <= 1e-5 * largest.max(1.0),
                        "{options:?}, {n} rows, result {r}: {b}, not {a}"
                    );
                }
            }
        }
    }
}

/// What is left of copies: what a transformed convolution reads, too; all before the last layer, whose place would have to be
/// reserved from the first one on; what is put together with itself; what is changed in place while its parts are still
/// read; and a part that is a result.
#[test]
fn what_copies_is_gone() {
    let dir = tempfile::tempdir().expect("a folder");
    let (model, file) = (dir.path().join("model.rlx"), dir.path().join("weights.safetensors"));
    std::fs::write(&model, MODEL).expect("the model is written");
    weights(&file, WEIGHTS, 5);
    let out = dir.path().join("m.tir");
    relax_aot(&[
        path(&model),
        "--params",
        path(&file),
        "--emit",
        "flat",
        "--target-cpu",
        "x86-64-v3",
        "-o",
        path(&out),
    ]);
    let text = std::fs::read_to_string(&out).expect("the text");
    let body = text.lines().filter(|l| l.trim_start().starts_with("call ")).collect::<Vec<_>>();
    let copies = body.iter().filter(|l| l.contains("_k_concat") || l.contains("_k_split")).count();
    assert!(copies == 6 && text.contains("_k_concat_1(") && text.contains("_k_concat4_1("), "{body:#?}");
}
