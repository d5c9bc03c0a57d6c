//! Convolutions over one axis and over frames, transposed ones, and tensors of tokens between convolutions, which all become
//! kernels over channels-last pictures: their results are those of the model as written (`-O0`), and the kernels are made.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod command;

use command::{dtype, path, relax_aot, tensor, weights};
use relax_aot::loader::Library;
use relax_ir::DType;
use std::path::Path;

struct Case {
    /// What the test is about.
    name: &'static str,
    data: &'static [i64],
    weights: &'static [(&'static str, &'static [i64])],
    /// From `x` and the weights to `y`.
    body: &'static str,
    /// Kernels that are made, and those that are not.
    made: &'static [&'static str],
    gone: &'static [&'static str],
    /// Once more with a batch that is open.
    open: bool,
}

const PLAIN: Case = Case { name: "", data: &[], weights: &[], body: "", made: &[], gone: &[], open: false };

const CASES: &[Case] = &[
    Case {
        name: "one axis, with strides, borders of their own, and tokens behind",
        data: &[2, 8, 41],
        weights: &[("a", &[16, 8, 3]), ("b", &[1, 16, 1]), ("c", &[20, 16, 9]), ("d", &[20, 12])],
        body: "p = R.nn.gelu(R.add(R.nn.conv1d(x, a, strides=[2], padding=[1, 1]), b));
               q = R.nn.relu(R.nn.conv1d(p, c, padding=[4, 4]));
               y = R.matmul(R.permute_dims(q, axes=[0, 2, 1]), d)",
        made: &["conv2d"],
        gone: &["nn_conv1d"],
        ..PLAIN
    },
    Case {
        name: "one axis, one channel of data, far dilations, sums and concatenation",
        data: &[1, 1, 90],
        weights: &[("a", &[16, 1, 10]), ("b", &[16, 16, 3]), ("c", &[16, 1, 5])],
        body: "p = R.nn.conv1d(x, a, strides=[3]);
               q = R.add(p, R.nn.relu(R.nn.conv1d(p, b, padding=[8, 8], dilation=[8])));
               r = R.nn.conv1d(q, c, padding=[4, 4], dilation=[2], groups=16);
               y = R.mean(R.concat((q, r), axis=1), axis=[2])",
        made: &["conv2d", "depthwise_conv2d"],
        gone: &["nn_conv1d"],
        ..PLAIN
    },
    Case {
        name: "one axis, windows in groups of many columns",
        data: &[1, 32, 23],
        weights: &[("a", &[32, 16, 24]), ("b", &[32, 16, 18])],
        body: "y = R.nn.conv1d(R.nn.conv1d(x, a, padding=[12, 12], groups=2), b, strides=[2], padding=[5, 9], groups=2)",
        made: &["stack_columns", "conv2d"],
        gone: &["nn_conv1d"],
        ..PLAIN
    },
    Case {
        name: "weights that are computed from constants",
        data: &[1, 8, 30],
        weights: &[("a", &[16, 8, 3]), ("b", &[16, 1, 1])],
        body: "n = R.sqrt(R.sum(R.multiply(a, a), axis=[1, 2], keepdims=True));
               y = R.nn.conv1d(x, R.multiply(R.divide(a, n), b))",
        made: &["conv2d"],
        gone: &["nn_conv1d"],
        ..PLAIN
    },
    Case {
        name: "frames under windows, every frame alone, every second one",
        data: &[2, 4, 5, 9, 8],
        weights: &[("a", &[16, 4, 3, 3, 3]), ("b", &[16, 16, 1, 3, 3]), ("c", &[16, 16, 3, 1, 1]), ("d", &[1, 16, 1, 1, 1])],
        body: "p = R.nn.relu(R.nn.conv3d(x, a, padding=[1, 1, 1, 1, 1, 1]));
               q = R.add(p, R.multiply(R.nn.conv3d(p, b, padding=[0, 1, 1, 0, 1, 1]), d));
               r = R.nn.conv3d(q, c, strides=[2, 1, 1], padding=[1, 0, 0, 1, 0, 0]);
               s = R.nn.conv3d(r, b, strides=[2, 1, 2]);
               y = R.concat((s, s), axis=3)",
        made: &["stack_frames", "conv2d"],
        gone: &["nn_conv3d"],
        ..PLAIN
    },
    Case {
        name: "frames far apart, one picture scaled by its mean",
        data: &[1, 16, 6, 6, 7],
        weights: &[("a", &[16, 16, 3, 3, 3])],
        body: "p = R.nn.conv3d(x, a, padding=[2, 1, 1, 2, 1, 1], dilation=[2, 1, 1]);
               y = R.multiply(p, R.sigmoid(R.mean(p, axis=[2, 3, 4], keepdims=True)))",
        made: &["stack_frames"],
        gone: &["nn_conv3d"],
        ..PLAIN
    },
    Case {
        name: "transposed: phases of two taps",
        data: &[2, 12, 5, 4],
        weights: &[("a", &[12, 32, 4, 4]), ("b", &[32, 1, 1])],
        body: "y = R.nn.relu(R.add(R.nn.conv2d_transpose(x, a, strides=[2, 2], padding=[1, 1, 1, 1]), b))",
        made: &["conv2d"],
        gone: &["nn_conv2d_transpose"],
        ..PLAIN
    },
    Case {
        name: "transposed: phases of two taps and of one, more at the end",
        data: &[1, 8, 5, 4],
        weights: &[("a", &[8, 16, 3, 3])],
        body: "y = R.nn.conv2d_transpose(x, a, strides=[2, 2], padding=[1, 1, 1, 1], output_padding=[1, 1])",
        made: &["conv2d"],
        gone: &["nn_conv2d_transpose"],
        ..PLAIN
    },
    Case {
        name: "transposed: side by side, then into a convolution",
        data: &[1, 8, 5, 4],
        weights: &[("a", &[8, 16, 2, 2]), ("b", &[16, 16, 3, 3])],
        body: "y = R.nn.conv2d(R.nn.conv2d_transpose(x, a, strides=[2, 2]), b, padding=[1, 1, 1, 1])",
        made: &["conv2d"],
        gone: &["nn_conv2d_transpose"],
        ..PLAIN
    },
    Case {
        name: "transposed: few channels, cut at both ends, strides that differ",
        data: &[1, 8, 6, 7],
        weights: &[("a", &[8, 4, 5, 4])],
        body: "y = R.nn.conv2d_transpose(x, a, strides=[3, 2], padding=[2, 1, 1, 2])",
        made: &["conv2d"],
        gone: &["nn_conv2d_transpose"],
        ..PLAIN
    },
    Case {
        name: "transposed: fewer taps than the stride, whose last phases are zero",
        data: &[1, 8, 3, 3],
        weights: &[("a", &[8, 16, 2, 1])],
        body: "y = R.nn.conv2d_transpose(x, a, strides=[3, 2], output_padding=[1, 1])",
        made: &["conv2d"],
        gone: &["nn_conv2d_transpose"],
        ..PLAIN
    },
    Case {
        name: "transposed: weights that are computed, phases apart, side by side, cut, and with fewer taps than the stride",
        data: &[1, 8, 9, 10],
        weights: &[("a", &[8, 16, 4, 4]), ("b", &[8, 16, 2, 2]), ("c", &[8, 4, 5, 4]), ("d", &[8, 16, 2, 1])],
        body: "m = R.add(R.mean(x), R.const(1, 'float32'));
               p = R.nn.conv2d_transpose(x, R.multiply(a, m), strides=[2, 2], padding=[1, 1, 1, 1]);
               q = R.nn.relu(R.nn.conv2d_transpose(x, R.multiply(b, m), strides=[2, 2]));
               r = R.nn.conv2d_transpose(x, R.multiply(c, m), strides=[3, 2], padding=[2, 1, 1, 2]);
               s = R.nn.conv2d_transpose(x, R.multiply(d, m), strides=[3, 2], output_padding=[1, 1]);
               y = R.add(R.add(R.sum(r, axis=[1, 2, 3], keepdims=True), R.mean(s)), R.add(p, q))",
        made: &["conv2d"],
        gone: &["nn_conv2d_transpose"],
        ..PLAIN
    },
    Case {
        name: "transposed: one axis, weights that are computed",
        data: &[1, 8, 90],
        weights: &[("a", &[8, 16, 5])],
        body: "y = R.nn.conv1d_transpose(x, R.multiply(a, R.mean(x)), strides=[3], padding=[1, 1])",
        made: &["conv2d"],
        gone: &["nn_conv1d_transpose"],
        ..PLAIN
    },
    Case {
        name: "transposed: depthwise, of constant weights and of computed ones",
        data: &[2, 20, 9, 8],
        weights: &[("a", &[20, 1, 4, 4]), ("b", &[20, 1, 2, 2]), ("c", &[20, 1, 3])],
        body: "p = R.nn.conv2d_transpose(x, a, strides=[2, 2], padding=[1, 1, 1, 1], groups=20);
               q = R.nn.relu(R.nn.conv2d_transpose(x, b, strides=[2, 2], groups=20));
               r = R.nn.conv2d_transpose(x, R.multiply(a, R.mean(x)), strides=[2, 2], padding=[1, 1, 1, 1], groups=20);
               s = R.nn.conv1d_transpose(R.mean(x, axis=[2]), c, strides=[2], padding=[1, 1], output_padding=[1], groups=20);
               y = R.add(R.add(p, R.mean(s)), R.add(q, r))",
        made: &["depthwise_conv2d"],
        gone: &["nn_conv2d_transpose", "nn_conv1d_transpose"],
        ..PLAIN
    },
    Case {
        name: "transposed: strides of one, and one axis",
        data: &[1, 8, 12],
        weights: &[("a", &[8, 16, 4]), ("b", &[16, 16, 3])],
        body: "y = R.nn.conv1d_transpose(R.nn.relu(R.nn.conv1d_transpose(x, a, strides=[2], padding=[1, 1])), b, padding=[1, 1])",
        made: &["conv2d"],
        gone: &["nn_conv1d_transpose"],
        ..PLAIN
    },
    Case {
        name: "transposed: frames that become two or three",
        data: &[1, 8, 3, 4, 5],
        weights: &[("a", &[8, 8, 2, 2, 2]), ("b", &[8, 16, 3, 4, 4]), ("c", &[16, 1, 1, 1])],
        body: "p = R.nn.relu(R.nn.conv3d_transpose(x, a, strides=[2, 2, 2]));
               y = R.add(R.nn.conv3d_transpose(p, b, strides=[3, 2, 2], padding=[0, 1, 1, 0, 1, 1]), c)",
        made: &["conv2d"],
        gone: &["nn_conv3d_transpose"],
        ..PLAIN
    },
    Case {
        name: "comparisons and choices between convolutions",
        data: &[1, 8, 30],
        weights: &[("a", &[16, 8, 3]), ("b", &[16, 1]), ("c", &[16, 16, 1])],
        body: "p = R.nn.conv1d(x, a, padding=[1, 1]);
               q = R.where(R.less(p, R.const(0, 'float32')), R.multiply(p, b), p);
               y = R.permute_dims(R.nn.conv1d(q, c), axes=[0, 2, 1])",
        made: &["conv2d"],
        gone: &["nn_conv1d"],
        ..PLAIN
    },
    Case {
        name: "tokens as pictures and back",
        data: &[1, 30, 16],
        weights: &[("a", &[16, 32]), ("b", &[32, 1, 3, 3]), ("c", &[32, 8]), ("d", &[16, 16, 1, 1])],
        body: "t = R.matmul(x, a);
               p = R.reshape(R.permute_dims(t, axes=[0, 2, 1]), R.shape([1, 32, 5, 6]));
               q = R.nn.conv2d(p, b, padding=[1, 1, 1, 1], groups=32);
               u = R.permute_dims(R.reshape(q, R.shape([1, 32, 30])), axes=[0, 2, 1]);
               v = R.permute_dims(R.reshape(x, R.shape([1, 5, 6, 16])), axes=[0, 3, 1, 2]);
               w = R.concat((R.nn.conv2d(v, d), v), axis=1);
               z = R.permute_dims(R.reshape(w, R.shape([1, 32, 30])), axes=[0, 2, 1]);
               y = R.add(R.matmul(u, c), R.matmul(z, c))",
        made: &["depthwise_conv2d", "conv2d"],
        gone: &["permute_dims"],
        ..PLAIN
    },
    Case {
        name: "groups of eight, of which the last has half a vector",
        data: &[1, 40, 7, 6],
        weights: &[("a", &[40, 8, 3, 3])],
        body: "y = R.nn.conv2d(R.nn.relu(R.nn.conv2d(x, a, padding=[1, 1, 1, 1], groups=5)), a, strides=[2, 2], groups=5)",
        made: &["conv2d"],
        gone: &["nn_conv2d"],
        ..PLAIN
    },
    Case {
        name: "groups of other numbers of channels",
        data: &[1, 48, 7, 6],
        weights: &[("a", &[48, 24, 3, 3]), ("b", &[80, 12, 1, 1])],
        body: "y = R.nn.conv2d(R.nn.relu(R.nn.conv2d(x, a, padding=[1, 1, 1, 1], groups=2)), b, groups=4)",
        made: &["conv2d"],
        gone: &["nn_conv2d"],
        ..PLAIN
    },
    Case {
        name: "scales computed from constants, behind activations",
        data: &[1, 16, 7, 6],
        weights: &[("a", &[16, 16, 1, 1]), ("b", &[16, 1, 1])],
        body: "s = R.add(R.exp(b), R.const(0.25, \"float32\"));
               p = R.multiply(R.nn.relu(R.nn.conv2d(x, a)), s);
               y = R.nn.conv2d(R.add(p, R.subtract(b, s)), a)",
        made: &["fused_conv2d_nn_relu_multiply_add"],
        gone: &["nn_conv2d"],
        ..PLAIN
    },
    Case {
        name: "float16: windows of all kinds, sums and pools between them",
        data: &[1, 8, 13, 11],
        weights: &[
            ("half_a", &[16, 8, 3, 3]),
            ("half_b", &[16, 16, 3, 3]),
            ("half_c", &[16, 1, 3, 3]),
            ("half_d", &[40, 16, 1, 1]),
            ("half_e", &[1, 16, 1, 1]),
            ("half_f", &[96, 5, 3, 3]),
        ],
        body: "h = R.astype(x, \"float16\");
               p = R.nn.relu(R.add(R.nn.conv2d(h, half_a, padding=[1, 1, 1, 1]), half_e));
               q = R.add(R.nn.conv2d(p, half_b, padding=[1, 1, 1, 1]), p);
               r = R.nn.silu(R.nn.conv2d(q, half_c, padding=[1, 1, 1, 1], groups=16));
               s = R.nn.max_pool2d(r, pool_size=[3, 3], strides=[2, 2], padding=[1, 1, 1, 1]);
               t = R.nn.conv2d(s, half_d);
               u = R.nn.conv2d(t, half_f, padding=[1, 1, 1, 1], groups=8);
               v = R.nn.avg_pool2d(u, pool_size=[2, 2], strides=[2, 2]);
               y = R.astype(R.concat((v, v), axis=1), \"float32\")",
        made: &["conv2d", "depthwise_conv2d", "max_pool2d"],
        gone: &["nn_conv2d"],
        ..PLAIN
    },
    Case {
        name: "bfloat16: windows of all kinds, sums and pools between them",
        data: &[1, 8, 13, 11],
        weights: &[
            ("brain_a", &[16, 8, 3, 3]),
            ("brain_b", &[16, 16, 3, 3]),
            ("brain_c", &[16, 1, 3, 3]),
            ("brain_d", &[40, 16, 1, 1]),
            ("brain_e", &[1, 16, 1, 1]),
            ("brain_f", &[96, 5, 3, 3]),
        ],
        body: "h = R.astype(x, \"bfloat16\");
               p = R.nn.relu(R.add(R.nn.conv2d(h, brain_a, padding=[1, 1, 1, 1]), brain_e));
               q = R.add(R.nn.conv2d(p, brain_b, padding=[1, 1, 1, 1]), p);
               r = R.nn.silu(R.nn.conv2d(q, brain_c, padding=[1, 1, 1, 1], groups=16));
               s = R.nn.max_pool2d(r, pool_size=[3, 3], strides=[2, 2], padding=[1, 1, 1, 1]);
               t = R.nn.conv2d(s, brain_d);
               u = R.nn.conv2d(t, brain_f, padding=[1, 1, 1, 1], groups=8);
               v = R.nn.avg_pool2d(u, pool_size=[2, 2], strides=[2, 2]);
               y = R.astype(R.concat((v, v), axis=1), \"float32\")",
        made: &["conv2d", "depthwise_conv2d", "max_pool2d"],
        gone: &["nn_conv2d"],
        ..PLAIN
    },
    Case {
        name: "transpositions that move nothing",
        data: &[1, 6, 1, 8],
        body: "p = R.permute_dims(x, axes=[0, 2, 1, 3]);
               q = R.permute_dims(R.permute_dims(R.exp(p), axes=[3, 0, 2, 1]), axes=[1, 2, 3, 0]);
               y = R.add(R.tanh(q), R.permute_dims(p, axes=[1, 2, 0, 3]))",
        gone: &["permute_dims"],
        ..PLAIN
    },
    Case {
        name: "pictures of one column: padded, in steps, of many rows, added to, and of the whole batch",
        data: &[3, 8, 41, 1],
        weights: &[("a", &[16, 8, 5, 1]), ("b", &[20, 16, 3, 1]), ("c", &[20, 20, 3, 1]), ("d", &[24, 20, 9, 1]), ("f", &[24, 1, 5, 1])],
        body: "p = R.nn.relu(R.nn.conv2d(x, a));
               q = R.nn.conv2d(p, b, strides=[2, 1], padding=[1, 0, 1, 0]);
               r = R.add(R.nn.conv2d(q, c, padding=[2, 0, 2, 0], dilation=[2, 1]), q);
               s = R.nn.silu(R.nn.conv2d(r, d, padding=[4, 0, 4, 0]));
               t = R.nn.conv2d(s, f, padding=[2, 0, 2, 0], groups=24);
               u = R.nn.max_pool2d(t, pool_size=[3, 1], strides=[2, 1], padding=[1, 0, 1, 0]);
               y = R.subtract(u, R.mean(u, axis=[0], keepdims=True))",
        made: &["conv2d", "depthwise_conv2d", "max_pool2d"],
        gone: &["nn_conv2d"],
        open: true,
    },
    Case {
        name: "one channel under windows of many columns",
        data: &[2, 1, 1, 301],
        weights: &[("a", &[20, 1, 1, 33]), ("b", &[16, 20, 1, 9])],
        body: "p = R.nn.conv2d(x, a, strides=[1, 11], padding=[0, 7, 0, 20]);
               q = R.nn.conv2d(p, b, padding=[0, 0, 0, 8]);
               y = R.subtract(q, R.mean(q, axis=[0], keepdims=True))",
        made: &["conv2d"],
        gone: &["nn_conv2d"],
        open: true,
    },
    Case {
        name: "channels made that are no multiple of 4",
        data: &[2, 8, 13, 11],
        weights: &[
            ("a", &[32, 8, 3, 3]),
            ("b", &[1, 32, 1, 1]),
            ("c", &[3, 32, 1, 1]),
            ("d", &[6, 32, 1, 1]),
            ("f", &[3, 32, 3, 3]),
            ("g", &[17, 32, 2, 2]),
            ("h", &[32, 1, 1]),
            ("i", &[30, 40, 3, 3]),
            ("j", &[21, 32, 3, 3]),
        ],
        body: "p = R.nn.relu(R.add(R.nn.conv2d(x, a, padding=[1, 1, 1, 1]), h));
               q = R.sigmoid(R.nn.conv2d(p, b));
               r = R.multiply(R.nn.conv2d(p, c), q);
               s = R.add(R.nn.conv2d(p, f, padding=[1, 1, 1, 1]), r);
               t = R.nn.conv2d(R.concat((p, x), axis=1), i, padding=[1, 1, 1, 1]);
               u = R.nn.relu(R.nn.conv2d(p, j, padding=[1, 1, 1, 1]));
               z = R.concat((q, r, R.nn.conv2d(p, d), s, R.nn.conv2d(p, g, padding=[1, 1, 0, 0]), t, u), axis=1);
               y = R.subtract(z, R.mean(z, axis=[0], keepdims=True))",
        made: &["conv2d"],
        gone: &["nn_conv2d"],
        open: true,
    },
];

fn values(so: &Path, data: &[i64]) -> Vec<f64> {
    let library = Library::open(so, "m").expect("the library");
    let results = library.run("main", &[tensor(data, 1)], 1).unwrap_or_else(|e| panic!("{}: {}", e.code, e.message));
    (0..results[0].elements()).map(|i| results[0].get_f64(i)).collect()
}

#[test]
fn planes_as_written_and_rewritten() {
    let dir = tempfile::tempdir().expect("a folder");
    let (model, file) = (dir.path().join("model.rlx"), dir.path().join("weights.safetensors"));
    let open = CASES.iter().filter(|c| c.open).map(|c| (c, true));
    for (case, open) in CASES.iter().map(|c| (c, false)).chain(open) {
        let annotation = |name: &str, shape: &[i64]| {
            let mut dims: Vec<String> = shape.iter().map(|d| d.to_string()).collect();
            if open && name == "x" {
                dims[0] = "\"n\"".into();
            }
            format!("{name}: R.Tensor(({},), \"{}\")", dims.join(", "), dtype(name))
        };
        let mut params = vec![annotation("x", case.data)];
        params.extend(case.weights.iter().map(|(name, shape)| annotation(name, shape)));
        let body: Vec<&str> = case.body.split(';').map(str::trim).collect();
        let text = format!(
            "@I.ir_module\nclass Module:\n    @R.function\n    def main({}):\n        with R.dataflow():\n            {}\n            \
             R.output(y)\n        return y\n",
            params.join(", "),
            body.join("\n            ")
        );
        std::fs::write(&model, text).expect("the model is written");
        weights(&file, case.weights, 2);
        let compile = |out: &Path, options: &[&str]| {
            relax_aot(&[&[path(&model), "--params", path(&file), "--prefix", "m", "-o", path(out)], options].concat());
        };
        let plain = dir.path().join("plain.so");
        compile(&plain, &["-O0"]);
        let wanted = values(&plain, case.data);
        // As written each operator rounds.
        let bound = match case.weights.first().map(|(name, _)| dtype(name)) {
            Some(DType::F16) => 3e-3,
            Some(DType::BF16) => 3e-2,
            _ => 1e-5,
        };
        let largest = wanted.iter().fold(1.0, |m: f64, x| m.max(x.abs()));
        let forms: &[&[&str]] = &[
            &["--target-cpu", "baseline"],
            &["--target-cpu", "x86-64-v3"],
            &["--target-cpu", "native"],
            &["--target-cpu", "auto", "--threads", "2"],
            &["--target-cpu", "native", "--fp", "strict", "--check-bounds"],
        ];
        for options in forms {
            let so = dir.path().join(format!("{}.so", options.join("")));
            compile(&so, options);
            let got = values(&so, case.data);
            assert_eq!(wanted.len(), got.len(), "{}, {options:?}, open: {open}", case.name);
            for (i, (a, b)) in wanted.iter().zip(&got).enumerate() {
                let near = (a - b).abs() <= bound * largest;
                assert!(near, "{}, {options:?}, open: {open}: element {i} is {b}, not {a}", case.name);
            }
        }
        let stage = ["print", path(&model), "--params", path(&file), "--stage", "tir", "--target-cpu", "x86-64-v3"];
        let text = relax_aot(&stage);
        let kernels: Vec<&str> =
            text.lines().filter_map(|l| l.trim().strip_prefix("def ")?.split('(').next()).collect();
        for part in case.made {
            assert!(kernels.iter().any(|k| k.contains(part)), "{}: no {part} among {kernels:?}", case.name);
        }
        for part in case.gone {
            let left: Vec<_> = kernels.iter().filter(|k| k.contains(part) && !k.contains("fused")).collect();
            assert!(left.is_empty(), "{}: {left:?} among {kernels:?}", case.name);
        }
    }
}
