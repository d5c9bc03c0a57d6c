//! The kernels of the table: each as Relax text, as the C loop one would write, and as ONNX nodes.

use serde_json::{json, Value};

/// A model of one or two operators over float32.
pub struct Case {
    pub group: &'static str,
    pub name: String,
    /// The bindings of the Relax function; `gv` is the result.
    pub relax: String,
    /// Shapes of the parameters `a`, `b`, `c`.
    pub inputs: Vec<Vec<i64>>,
    /// How many of the last parameters are weights, known when the model is compiled.
    pub weights: usize,
    pub output: Vec<i64>,
    /// The body of `void f(const float *a, const float *b, const float *c, float *o)`.
    pub c: String,
    /// `[operator, inputs, outputs, attributes]` each; `o` is the result.
    pub onnx: Value,
    /// What one call does, in `unit`s.
    pub work: f64,
    pub unit: &'static str,
}

fn count(shape: &[i64]) -> i64 {
    shape.iter().product()
}

pub fn all() -> Vec<Case> {
    let mut all = vec![];
    for n in [64, 128, 256, 512, 1024] {
        all.push(matmul(n, n, n, 0));
    }
    for (m, k, n) in [
        (1, 1024, 1024),
        (1, 512, 512),
        (4, 512, 512),
        (16, 512, 512),
        (128, 768, 3072),
        (1024, 64, 64),
        (64, 1024, 16),
    ] {
        all.push(matmul(m, k, n, 1));
    }
    for (c, h, o, k, stride) in [
        (3, 224, 64, 7, 2),
        (64, 56, 64, 3, 1),
        (128, 28, 128, 3, 1),
        (256, 14, 256, 3, 1),
        (512, 7, 512, 3, 1),
        (64, 56, 128, 3, 2),
        (64, 56, 256, 1, 1),
        (256, 56, 64, 1, 1),
        (16, 112, 96, 1, 1),
        (320, 7, 1280, 1, 1),
        (16, 32, 16, 3, 1),
    ] {
        all.push(conv(c, h, o, k, stride, 1));
    }
    for (c, h, k, stride) in [(96, 112, 3, 2), (144, 56, 3, 1), (576, 14, 3, 1), (240, 28, 5, 1)] {
        all.push(conv(c, h, c, k, stride, c));
    }
    elementwise(&mut all);
    rows(&mut all);
    movement(&mut all);
    reductions(&mut all);
    all
}

fn matmul(m: i64, k: i64, n: i64, weights: usize) -> Case {
    Case {
        group: if weights == 0 { "matmul" } else { "linear" },
        name: format!("{m}x{k}x{n}"),
        relax: "gv = R.matmul(a, b)".into(),
        inputs: vec![vec![m, k], vec![k, n]],
        weights,
        output: vec![m, n],
        c: format!(
            "for (int i = 0; i < {m}; i++) {{ for (int j = 0; j < {n}; j++) o[i * {n} + j] = 0;
             for (int k = 0; k < {k}; k++) for (int j = 0; j < {n}; j++) o[i * {n} + j] += a[i * {k} + k] * b[k * {n} + j]; }}"
        ),
        onnx: json!([["MatMul", ["a", "b"], ["o"], {}]]),
        work: (2 * m * k * n) as f64,
        unit: "GFLOP/s",
    }
}

fn conv(c: i64, h: i64, o: i64, k: i64, stride: i64, groups: i64) -> Case {
    let pad = k / 2;
    let out = (h + 2 * pad - k) / stride + 1;
    let (padded, per) = (h + 2 * pad, c / groups);
    let outs = o / groups;
    let c_loop = format!(
        "static float p[{c} * {padded} * {padded}];
         for (int c = 0; c < {c}; c++) for (int y = 0; y < {h}; y++) for (int x = 0; x < {h}; x++)
           p[(c * {padded} + y + {pad}) * {padded} + x + {pad}] = a[(c * {h} + y) * {h} + x];
         for (int f = 0; f < {o}; f++) {{
           float *r = o + f * {out} * {out};
           for (int i = 0; i < {out} * {out}; i++) r[i] = 0;
           for (int c = 0; c < {per}; c++) for (int u = 0; u < {k}; u++) for (int v = 0; v < {k}; v++) {{
             const float w = b[((f * {per} + c) * {k} + u) * {k} + v];
             for (int y = 0; y < {out}; y++) for (int x = 0; x < {out}; x++)
               r[y * {out} + x] += w * p[((f / {outs} * {per} + c) * {padded} + y * {stride} + u) * {padded} + x * {stride} + v];
           }}
           for (int i = 0; i < {out} * {out}; i++) r[i] = r[i] > 0 ? r[i] : 0;
         }}"
    );
    Case {
        group: if groups == 1 { "conv" } else { "depthwise" },
        name: format!("{k}x{k}/{stride} {c}->{o} at {h}"),
        relax: format!(
            "lv = R.nn.conv2d(a, b, strides=[{stride}, {stride}], padding=[{pad}, {pad}, {pad}, {pad}], groups={groups})
            gv = R.nn.relu(lv)"
        ),
        inputs: vec![vec![1, c, h, h], vec![o, per, k, k]],
        weights: 1,
        output: vec![1, o, out, out],
        c: c_loop,
        onnx: json!([
            ["Conv", ["a", "b"], ["t"], {"strides": [stride, stride], "pads": [pad, pad, pad, pad], "group": groups}],
            ["Relu", ["t"], ["o"], {}]
        ]),
        work: (2 * o * out * out * per * k * k) as f64,
        unit: "GFLOP/s",
    }
}

fn elementwise(all: &mut Vec<Case>) {
    let mut add = |name: &str, n: i64, inputs: usize, relax: &str, c: &str, onnx: Value, memory: bool| {
        all.push(Case {
            group: "elementwise",
            name: format!("{name}, {}", if n >= 1 << 20 { format!("{} M", n >> 20) } else { format!("{} K", n >> 10) }),
            relax: relax.into(),
            inputs: vec![vec![n]; inputs],
            weights: 0,
            output: vec![n],
            c: format!("for (int i = 0; i < {n}; i++) o[i] = {c};"),
            onnx,
            work: if memory { (n * 4 * (inputs as i64 + 1)) as f64 } else { n as f64 },
            unit: if memory { "GB/s" } else { "G elements/s" },
        })
    };
    let sum = || json!([["Add", ["a", "b"], ["o"], {}]]);
    add("a + b", 4 << 20, 2, "gv = R.add(a, b)", "a[i] + b[i]", sum(), true);
    add("a + b", 2 << 10, 2, "gv = R.add(a, b)", "a[i] + b[i]", sum(), true);
    let relu = json!([["Add", ["a", "b"], ["t"], {}], ["Relu", ["t"], ["u"], {}], ["Mul", ["u", "c"], ["o"], {}]]);
    let relax = "lv = R.add(a, b)\n            lv1 = R.nn.relu(lv)\n            gv = R.multiply(lv1, c)";
    let loop_c = "(a[i] + b[i] > 0 ? a[i] + b[i] : 0) * c[i]";
    add("relu(a + b) * c", 4 << 20, 3, relax, loop_c, relu.clone(), true);
    add("relu(a + b) * c", 2 << 10, 3, relax, loop_c, relu, true);
    add("exp", 64 << 10, 1, "gv = R.exp(a)", "expf(a[i])", json!([["Exp", ["a"], ["o"], {}]]), false);
    add("tanh", 64 << 10, 1, "gv = R.tanh(a)", "tanhf(a[i])", json!([["Tanh", ["a"], ["o"], {}]]), false);
    add(
        "sigmoid",
        64 << 10,
        1,
        "gv = R.sigmoid(a)",
        "1 / (1 + expf(-a[i]))",
        json!([["Sigmoid", ["a"], ["o"], {}]]),
        false,
    );
    let c = "0.5f * a[i] * (1 + erff(a[i] * 0.70710678f))";
    add("gelu", 64 << 10, 1, "gv = R.nn.gelu(a)", c, json!([["Gelu", ["a"], ["o"], {}]]), false);
}

fn rows(all: &mut Vec<Case>) {
    for (n, w) in [(128, 128), (128, 1024), (1024, 16)] {
        all.push(Case {
            group: "softmax",
            name: format!("{n}x{w}"),
            relax: "gv = R.nn.softmax(a, axis=-1)".into(),
            inputs: vec![vec![n, w]],
            weights: 0,
            output: vec![n, w],
            c: format!(
                "for (int i = 0; i < {n}; i++) {{ const float *r = a + i * {w}; float *q = o + i * {w}; float m = r[0], s = 0;
                 for (int j = 1; j < {w}; j++) m = r[j] > m ? r[j] : m;
                 for (int j = 0; j < {w}; j++) q[j] = expf(r[j] - m);
                 for (int j = 0; j < {w}; j++) s += q[j];
                 for (int j = 0; j < {w}; j++) q[j] /= s; }}"
            ),
            onnx: json!([["Softmax", ["a"], ["o"], {"axis": -1}]]),
            work: (n * w) as f64,
            unit: "G elements/s",
        });
    }
    for (n, w) in [(128, 768), (1024, 64)] {
        all.push(Case {
            group: "layer norm",
            name: format!("{n}x{w}"),
            relax: "gv = R.nn.layer_norm(a, b, c, axes=[-1], epsilon=1e-05, center=True, scale=True)".into(),
            inputs: vec![vec![n, w], vec![w], vec![w]],
            weights: 2,
            output: vec![n, w],
            c: format!(
                "for (int i = 0; i < {n}; i++) {{ const float *r = a + i * {w}; float *q = o + i * {w}; float m = 0, s = 0;
                 for (int j = 0; j < {w}; j++) m += r[j];
                 m /= {w};
                 for (int j = 0; j < {w}; j++) s += (r[j] - m) * (r[j] - m);
                 s = 1 / sqrtf(s / {w} + 1e-5f);
                 for (int j = 0; j < {w}; j++) q[j] = (r[j] - m) * s * b[j] + c[j]; }}"
            ),
            onnx: json!([["LayerNormalization", ["a", "b", "c"], ["o"], {"axis": -1}]]),
            work: (n * w) as f64,
            unit: "G elements/s",
        });
    }
}

fn movement(all: &mut Vec<Case>) {
    for (shape, perm) in
        [(vec![1024, 1024], vec![1, 0]), (vec![64, 56 * 56], vec![1, 0]), (vec![128, 12, 64], vec![1, 0, 2])]
    {
        let output: Vec<i64> = perm.iter().map(|&p: &usize| shape[p]).collect();
        let c = match &shape[..] {
            [m, n] => {
                format!("for (int i = 0; i < {n}; i++) for (int j = 0; j < {m}; j++) o[i * {m} + j] = a[j * {n} + i];")
            }
            [m, n, k] => format!(
                "for (int i = 0; i < {n}; i++) for (int j = 0; j < {m}; j++) for (int l = 0; l < {k}; l++)
                   o[(i * {m} + j) * {k} + l] = a[(j * {n} + i) * {k} + l];"
            ),
            _ => unreachable!("two or three dims"),
        };
        all.push(Case {
            group: "transpose",
            name: format!("{shape:?} by {perm:?}"),
            relax: format!("gv = R.permute_dims(a, axes={perm:?})"),
            work: (count(&shape) * 8) as f64,
            inputs: vec![shape],
            weights: 0,
            output,
            c,
            onnx: json!([["Transpose", ["a"], ["o"], {"perm": perm}]]),
            unit: "GB/s",
        });
    }
}

fn reductions(all: &mut Vec<Case>) {
    let (m, n) = (512, 512);
    let mut add = |name: &str, relax: &str, output: Vec<i64>, c: String, onnx: Value| {
        all.push(Case {
            group: "reduction",
            name: format!("{name} of {m}x{n}"),
            relax: format!("gv = {relax}"),
            inputs: vec![vec![m, n]],
            weights: 0,
            output,
            c,
            onnx,
            work: (m * n * 4) as f64,
            unit: "GB/s",
        })
    };
    let along = format!(
        "for (int i = 0; i < {m}; i++) {{ float s = 0; for (int j = 0; j < {n}; j++) s += a[i * {n} + j]; o[i] = s; }}"
    );
    add(
        "sum of rows",
        "R.sum(a, axis=[1])",
        vec![m],
        along,
        json!([["ReduceSum", ["a", "#1"], ["o"], {"keepdims": 0}]]),
    );
    let across = format!(
        "for (int j = 0; j < {n}; j++) o[j] = 0; for (int i = 0; i < {m}; i++) for (int j = 0; j < {n}; j++) o[j] += a[i * {n} + j];"
    );
    add(
        "sum of columns",
        "R.sum(a, axis=[0])",
        vec![n],
        across,
        json!([["ReduceSum", ["a", "#0"], ["o"], {"keepdims": 0}]]),
    );
    let max = format!("float s = a[0]; for (int i = 1; i < {m} * {n}; i++) s = a[i] > s ? a[i] : s; o[0] = s;");
    add(
        "maximum",
        "R.max(a, axis=[0, 1], keepdims=True)",
        vec![1, 1],
        max,
        json!([["ReduceMax", ["a"], ["o"], {"keepdims": 1}]]),
    );
    let mean = format!("for (int i = 0; i < {m}; i++) {{ float s = 0; for (int j = 0; j < {n}; j++) s += a[i * {n} + j]; o[i] = s / {n}; }}");
    add(
        "mean of rows",
        "R.mean(a, axis=[1])",
        vec![m],
        mean,
        json!([["ReduceMean", ["a", "#1"], ["o"], {"keepdims": 0}]]),
    );
}

/// The model of the call overhead, its shapes left to the caller.
pub fn small_add() -> Case {
    let mut all = vec![];
    elementwise(&mut all);
    all.swap_remove(1)
}
