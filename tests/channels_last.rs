//! Channels last between convolutions: what follows, so that nothing is transposed there, and that the results are those of the
//! model as written (`-O0`).
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod command;
mod model;

use command::tensor;
use model::Model;

const WEIGHTS: &[(&str, &[i64])] = &[
    ("w", &[32, 16, 3, 3]),
    ("a", &[32]),
    ("b", &[32]),
    ("m", &[32, 32]),
    ("k32", &[16, 32, 1, 1]),
    ("k8", &[16, 8, 1, 1]),
];

/// Two convolutions, one behind the other and by Winograd's algorithm, differ by so much.
const WITHIN: f64 = 2e-5;

/// Between a convolution that makes `c`, 32 channels of 12 by 10, and one with the weights `k`.
fn between(rows: &str, x: &str, k: &str) -> Model {
    let args = format!("x: R.Tensor((1, 16, {rows}, 10), \"float32\")");
    let lines = x.rsplit_once('\n').map_or(String::new(), |(lines, _)| format!("{lines}\n"));
    let last = x.lines().last().unwrap_or(x).trim();
    let body = format!("c = R.nn.conv2d(x, w, padding=(1, 1))\n{lines}y = {last}\nout = R.nn.conv2d(y, {k})");
    Model::new(&[&args], WEIGHTS, &body)
}

/// How many kernels transpose, beside the ones at the ends.
fn turned(m: &Model) -> usize {
    m.kernels(&[]).iter().filter(|k| k.contains("permute_dims")).count().saturating_sub(2)
}

fn follows(x: &str, k: &str) {
    let m = between("12", x, k);
    assert_eq!(turned(&m), 0, "{x}: {:?}", m.kernels(&[]));
    m.agrees(&[tensor(&[1, 16, 12, 10], 1)], WITHIN);
}

/// Every operator that computes element by element, also with bools between and with vectors of channels beside.
#[test]
fn elementwise_operators_follow() {
    for x in [
        "R.power(R.abs(c), R.const(1.5, \"float32\"))",
        "R.square(R.rsqrt(R.add(R.abs(c), R.const(1.0, \"float32\"))))",
        "R.floor(R.multiply(c, R.const(7.3, \"float32\")))",
        "R.sin(R.log(R.add(R.abs(c), R.const(1.0, \"float32\"))))",
        "R.nn.selu(c)",
        "R.nn.prelu(c, a, axis=1)",
        "R.where(R.logical_and(R.greater(c, R.const(0.0, \"float32\")), R.isfinite(c)), c, R.negative(c))",
        "R.multiply(c, R.reshape(R.sigmoid(R.matmul(R.reshape(R.mean(c, axis=[2, 3]), R.shape([1, 32])), m)), R.shape([1, 32, 1, 1])))",
        "R.multiply(c, R.broadcast_to(R.max(c, axis=[2, 3], keepdims=True), R.shape([1, 32, 12, 10])))",
    ] {
        follows(x, "k32");
    }
}

/// Operators along an axis, and those that put something around.
#[test]
fn operators_along_axes_follow() {
    for x in [
        "R.image.resize2d(c, R.shape([24, 25]), roi=[0.0, 0.0, 0.0, 0.0], layout=\"NCHW\", method=\"linear\")",
        "R.image.resize2d(R.permute_dims(R.tanh(R.permute_dims(c, axes=[0, 2, 3, 1])), axes=[0, 3, 1, 2]), R.shape([24, 25]), layout=\"NCHW\", method=\"linear\")",
        "R.nn.softmax(c, axis=1)",
        "R.nn.log_softmax(c, axis=3)",
        "R.flip(c, axis=2)",
        "R.cumsum(c, axis=1)",
        "R.nn.pad(c, pad_width=[0, 0, 0, 0, 1, 2, 3, 0])",
        "R.nn.pad(c, pad_width=[0, 0, 0, 0, 1, 2, 3, 0], pad_mode=\"reflect\")",
    ] {
        follows(x, "k32");
    }
}

/// Norms by instance and by groups, also as exporters write them: of a reshape with one channel for each group.
#[test]
fn norms_follow() {
    let written = |groups: i64, variance: &str, scaled: &str| {
        format!(
            "r = R.reshape(c, R.shape([1, {groups}, {}]))
             d = R.subtract(r, R.mean(r, axis=[2], keepdims=True))
             v = {variance}
             s = R.divide(d, R.sqrt(R.add(v, R.const(0.001, \"float32\"))))
             {scaled}
             R.reshape(t, R.shape([1, 32, 12, 10]))",
            32 / groups * 120
        )
    };
    let squares = "R.mean(R.square(d), axis=[2], keepdims=True)";
    let operator = "R.variance(r, axis=[2], keepdims=True)";
    for x in [
        "R.nn.instance_norm(c, a, b, channel_axis=1, axes=[2, 3])".to_string(),
        "R.nn.instance_norm(c, a, b, channel_axis=1, axes=[0, 2, 3])".to_string(),
        "R.nn.group_norm(c, a, b, num_groups=4, channel_axis=1, axes=[2, 3], epsilon=0.01)".to_string(),
        written(8, squares, "t = R.add(s, R.const(0.5, \"float32\"))"),
        written(8, operator, "t = R.add(s, R.const(0.5, \"float32\"))"),
        written(1, squares, "t = R.multiply(s, R.const(0.5, \"float32\"))"),
        written(
            32,
            squares,
            "t = R.add(R.multiply(s, R.reshape(a, R.shape([32, 1]))), R.reshape(b, R.shape([1, 32, 1])))",
        ),
    ] {
        follows(&x, "k32");
        let m = between("12", &x, "k32");
        assert!(!m.kernels(&[]).iter().any(|k| k.contains("norm")), "{:?}", m.kernels(&[]));
    }
}

/// Pixels that channels become: as an operator and as it is written out. Channels that are interleaved stay as they are.
#[test]
fn shuffled_pixels_are_one_pass() {
    for x in [
        "R.nn.pixel_shuffle(c, upscale_factor=2)",
        "R.reshape(R.permute_dims(R.reshape(c, R.shape([1, 2, 2, 8, 12, 10])), axes=[0, 3, 4, 1, 5, 2]), R.shape([1, 8, 24, 20]))",
    ] {
        let m = between("12", x, "k8");
        assert_eq!(turned(&m), 1, "{x}: {:?}", m.kernels(&[]));
        m.agrees(&[tensor(&[1, 16, 12, 10], 1)], WITHIN);
    }
    let mixed =
        "R.reshape(R.permute_dims(R.reshape(c, R.shape([1, 2, 16, 12, 10])), axes=[0, 2, 1, 3, 4]), R.shape([1, 32, 12, 10]))";
    between("12", mixed, "k32").agrees(&[tensor(&[1, 16, 12, 10], 1)], WITHIN);
    // Windows of a picture are no picture.
    let windows = "R.reshape(R.permute_dims(R.reshape(c, R.shape([1, 32, 3, 4, 5, 2])), axes=[0, 2, 4, 3, 5, 1]), R.shape([1, 15, 8, 32]))";
    let m = Model::new(
        &["x: R.Tensor((1, 16, 12, 10), \"float32\")"],
        WEIGHTS,
        &format!("c = R.nn.conv2d(x, w, padding=(1, 1))\nout = R.matmul(R.tanh({windows}), m)"),
    );
    m.agrees(&[tensor(&[1, 16, 12, 10], 1)], WITHIN);
}

/// The same with rows that are open.
#[test]
fn pictures_of_open_rows() {
    for x in [
        "R.multiply(c, R.reshape(R.sigmoid(R.matmul(R.mean(c, axis=[2, 3]), m)), R.shape([1, 32, 1, 1])))",
        "R.nn.instance_norm(c, a, b, channel_axis=1, axes=[2, 3])",
        "R.nn.group_norm(c, a, b, num_groups=4, channel_axis=1, axes=[2, 3])",
        "R.nn.softmax(c, axis=1)",
        "R.nn.pad(c, pad_width=[0, 0, 0, 0, 1, 2, 3, 0])",
        "R.multiply(c, R.broadcast_to(R.max(c, axis=[2, 3], keepdims=True), R.shape([1, 32, n, 10])))",
    ] {
        let m = between("\"n\"", x, "k32");
        assert_eq!(turned(&m), 0, "{x}: {:?}", m.kernels(&[]));
        for rows in [1, 5, 12] {
            m.agrees(&[tensor(&[1, 16, rows, 10], 1)], WITHIN);
        }
    }
}

/// Of a film, whose frames are pictures, the mean over all of them.
#[test]
fn films_have_means() {
    let m = Model::new(
        &["x: R.Tensor((1, 8, 4, 9, 10), \"float32\")"],
        &[("w", &[16, 8, 3, 3, 3]), ("k", &[8, 16, 1, 1, 1])],
        "c = R.nn.conv3d(x, w, padding=(1, 1, 1))
         d = R.subtract(c, R.mean(c, axis=[2, 3, 4], keepdims=True))
         e = R.divide(d, R.sqrt(R.add(R.mean(R.square(d), axis=[2, 3, 4], keepdims=True), R.const(0.01, \"float32\"))))
         out = R.nn.conv3d(e, k)",
    );
    assert_eq!(turned(&m), 0, "{:?}", m.kernels(&[]));
    m.agrees(&[tensor(&[1, 8, 4, 9, 10], 1)], WITHIN);
}

/// Rule `own padding`: zeros around what a convolution reads are its own; others are made.
#[test]
fn zeros_around_are_padding() {
    let made = |pad: &str| {
        let m = Model::new(
            &["x: R.Tensor((1, 16, 12, 10), \"float32\")"],
            WEIGHTS,
            &format!("y = R.nn.pad(x, {pad})\nout = R.nn.conv2d(y, w, strides=(2, 1), padding=(1, 0))"),
        );
        m.agrees(&[tensor(&[1, 16, 12, 10], 1)], WITHIN);
        m.kernels(&[]).iter().any(|k| k.contains("pad"))
    };
    assert!(!made("pad_width=[0, 0, 0, 0, 1, 2, 3, 0]"));
    assert!(made("pad_width=[0, 0, 0, 0, 1, 2, 3, 0], pad_mode=\"replicate\""));
    assert!(made("pad_width=[0, 0, 0, 0, 1, 2, 3, 0], pad_value=0.5"));
    assert!(made("pad_width=[0, 0, 0, 0, -1, 2, 3, 0]"));
    let sound = Model::new(
        &["x: R.Tensor((1, 16, 40), \"float32\")"],
        &[("w", &[8, 16, 3])],
        "y = R.nn.pad(x, pad_width=[0, 0, 0, 0, 4, 1])\nout = R.nn.conv1d(y, w)",
    );
    sound.agrees(&[tensor(&[1, 16, 40], 1)], WITHIN);
    assert!(!sound.kernels(&[]).iter().any(|k| k.contains("pad")));
}

/// Rule `gated weights`: factors by channel of a large picture go into the weights of a pointwise convolution of few channels;
/// those of small ones, of several pictures and of what is read twice are multiplied.
#[test]
fn gates_are_in_weights() {
    let gated = |size: [i64; 2], out: &str| {
        let [n, side] = size;
        let m = Model::new(
            &[&format!("x: R.Tensor(({n}, 32, {side}, {side}), \"float32\")")],
            &[("w", &[24, 32, 1, 1])],
            &format!("c = R.nn.relu(x)\ns = R.sigmoid(R.mean(c, axis=[2, 3], keepdims=True))\n{out}"),
        );
        m.agrees(&[tensor(&[n, 32, side, side], 1)], WITHIN);
        m.tir(&["--target-cpu", "native"]).contains("R.Tensor((24, 32, 1, 1)")
    };
    let once = "out = R.nn.conv2d(R.multiply(s, c), w)";
    assert!(gated([1, 72], once));
    assert!(!gated([1, 20], once) && !gated([2, 72], once));
    assert!(!gated([1, 72], "p = R.multiply(s, c)\nout = R.add(R.nn.conv2d(p, w), R.mean(p))"));
}

/// Rules `fields of tuples` and `aliases`: what is read of a tuple that is written out is what it was written with, and what is not
/// read of it is not made.
#[test]
fn fields_of_written_tuples() {
    for x in [
        "p = R.nn.max_pool2d(c, pool_size=(2, 2), strides=(2, 2))
         t = (p, R.zeros_like(p))
         t[0]",
        "t = R.nn.dropout(c, rate=0.5)
         t[0]",
        "t = (c, (R.nn.relu(c), R.zeros_like(c)))
         u = t[1]
         v = u
         v[0]",
    ] {
        follows(x, "k32");
        let m = between("12", x, "k32");
        assert!(!m.kernels(&[]).iter().any(|k| k.contains("zeros") || k.contains("dropout")), "{:?}", m.kernels(&[]));
    }
}
