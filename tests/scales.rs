//! Batch norms and constant factors behind convolutions: what they become, and that the results are those of the model as
//! written (`-O0`).
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod command;
mod model;

use command::tensor;
use model::Model;

const WEIGHTS: &[(&str, &[i64])] = &[
    ("w", &[24, 12, 3, 3]),
    ("d", &[24, 1, 3, 3]),
    ("t", &[24, 10, 2, 2]),
    ("s", &[24]),
    ("g", &[24, 1, 1]),
    ("b", &[1, 24, 1, 1]),
    ("m", &[24]),
    ("v", &[24]),
];

const ARGS: &[&str] = &["x: R.Tensor((1, 12, 14, 11), \"float32\")", "y: R.Tensor((\"n\", 24), \"float32\")"];

fn model(body: &str) -> Model {
    let variance = "u = R.add(R.multiply(v, v), R.const(0.25, \"float32\"))";
    Model::new(ARGS, WEIGHTS, &format!("{variance}\n{body}"))
}

fn agrees(model: &Model) {
    model.agrees(&[tensor(&[1, 12, 14, 11], 1), tensor(&[5, 24], 2)], 1e-5);
}

fn batch_norm(x: &str, more: &str) -> String {
    format!("R.nn.batch_norm({x}, s, R.reshape(b, R.shape([24])), m, u, axis=1, training=False{more})[0]")
}

/// Rules `batch_norm` and `scaled weights`: the norm behind a convolution is in its weights and one constant, so that nothing
/// moves between channels first and last.
#[test]
fn batch_norms_are_in_weights() {
    for (more, kernel) in [
        ("", "conv2d_add_nn_relu"),
        (", center=False", "conv2d_add_nn_relu"),
        (", scale=False, epsilon=0.01", "conv2d_add_nn_relu"),
    ] {
        let norm = batch_norm("c", more);
        let m = model(&format!(
            "c = R.nn.conv2d(x, w, padding=(1, 1))
             e = R.nn.relu({norm})
             f = R.nn.conv2d(e, d, padding=(1, 1), groups=24)
             out = R.nn.relu({})",
            batch_norm("f", more)
        ));
        let kernels = m.kernels(&[]);
        let fused: Vec<&String> = kernels.iter().filter(|k| k.ends_with(kernel)).collect();
        assert_eq!(fused.len(), 2, "{kernels:?}");
        assert!(kernels.iter().all(|k| k.contains("conv2d") || k.starts_with("permute_dims")), "{kernels:?}");
        assert!(kernels.len() <= 4, "{kernels:?}");
        agrees(&m);
    }
}

/// Rule `batch_norm`: of what is no convolution it is a product and a sum; of a batch's own moments, and where the moments are read,
/// it stays.
#[test]
fn batch_norms_elsewhere() {
    let m = model(&format!("out = R.nn.relu({})", batch_norm("y", "")));
    assert_eq!(m.kernels(&[]), ["fused_multiply_add_nn_relu"]);
    agrees(&m);
    let own = model("out = R.nn.batch_norm(y, s, m, m, u, axis=1, training=True)[0]");
    assert!(own.kernels(&[]).iter().any(|k| k.contains("batch_norm")));
    agrees(&own);
    let read = model("t = R.nn.batch_norm(y, s, m, m, u, axis=1, training=False)\nout = R.add(t[0], t[1])");
    assert!(read.kernels(&[]).iter().any(|k| k.contains("batch_norm")));
    agrees(&read);
}

/// Rule `scaled weights`: factors and offsets by channel and numbers, on either side, and quotients; transposed convolutions, too.
#[test]
fn factors_are_in_weights() {
    let chain = "h = R.multiply(g, R.add(c, b))
                 i = R.divide(R.subtract(h, R.const(0.5, \"float32\")), R.const(3.0, \"float32\"))
                 j = R.subtract(R.reshape(m, R.shape([24, 1, 1])), i)";
    let m = model(&format!("c = R.nn.conv2d(x, w, padding=(1, 1))\n{chain}\nout = R.tanh(j)"));
    let kernels = m.kernels(&[]);
    assert!(kernels.iter().any(|k| k.ends_with("conv2d_add_tanh")), "{kernels:?}");
    // The sums that the model has, in its order.
    let strict = m.kernels(&["--fp", "strict"]);
    assert!(strict.iter().any(|k| k.contains("conv2d_add_multiply")), "{strict:?}");
    agrees(&m);
    let turned = model(
        "c = R.nn.relu(R.nn.conv2d(x, w, padding=(1, 1)))
         e = R.nn.conv2d_transpose(c, t, strides=(2, 2))
         out = R.add(R.multiply(e, R.const(0.3, \"float32\")), R.const(0.1, \"float32\"))",
    );
    assert!(!turned.kernels(&[]).iter().any(|k| k.contains("multiply")), "{:?}", turned.kernels(&[]));
    agrees(&turned);
}

/// Weights that two convolutions read, and sums that are read twice, stay as they are.
#[test]
fn shared_weights_stay() {
    let twice = model(
        "c = R.multiply(R.nn.conv2d(x, w, padding=(1, 1)), g)
         e = R.multiply(R.nn.conv2d(R.negative(x), w, padding=(1, 1)), b)
         out = R.add(R.tanh(c), e)",
    );
    assert!(twice.kernels(&[]).iter().any(|k| k.contains("conv2d_multiply")), "{:?}", twice.kernels(&[]));
    agrees(&twice);
    let read = model("c = R.nn.conv2d(x, w, padding=(1, 1))\ne = R.multiply(c, g)\nout = R.add(R.tanh(c), e)");
    agrees(&read);
}

/// Rule `scaled clip`: hard swish in the ways in which it is written has no division.
#[test]
fn hard_swish_has_no_division() {
    let (three, six) = ("R.const(3.0, \"float32\")", "R.const(6.0, \"float32\")");
    let zero = "R.const(0.0, \"float32\")";
    for out in [
        format!("R.divide(R.multiply(c, R.minimum(R.maximum(R.add(c, {three}), {zero}), {six})), {six})"),
        format!("R.multiply(c, R.divide(R.clip(R.add({three}, c), 0, 6), {six}))"),
        format!(
            "R.divide(R.multiply(c, R.clip(R.clip(R.add(c, {three}), 0, T.float64(\"inf\")), T.float64(\"-inf\"), 6)), {six})"
        ),
        format!("R.multiply(R.const(0.16666667, \"float32\"), R.multiply(R.maximum({zero}, R.minimum({six}, R.add(c, {three}))), c))"),
    ] {
        let m = model(&format!("c = R.nn.conv2d(x, w, padding=(1, 1))\nout = {out}"));
        let tir = m.tir(&["--target-cpu", "native"]);
        assert!(!tir.contains("/ T.float32(6"), "{tir}");
        let kernels = m.kernels(&[]);
        assert!(kernels.iter().any(|k| k.ends_with("multiply_add_maximum_minimum_multiply")), "{kernels:?}");
        agrees(&m);
    }
}
