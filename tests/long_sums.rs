//! Sums of very many elements are made in pieces, so that they are right to 1e-5 or better: one float32
//! sum of 19200 positive terms would be off by 1e-4.

mod command;
#[expect(dead_code, reason = "sums are compared with those of their terms")]
mod model;

use command::tensor;
use model::Model;

/// Of each sum, and of its size.
const WITHIN: f64 = 1e-5;

const FORMS: [&[&str]; 4] =
    [&["--target-cpu", "baseline"], &["--target-cpu", "native"], &["--fp", "strict"], &["--threads", "2"]];

/// Every form of `out`, which reduces each of 16 channels of the positive `c`, is the sum or mean over all their elements.
fn exact(x: &str, dims: &[i64], c: &str, reductions: &[&str]) {
    let weights: &[(&str, &[i64])] = &[("w", &[16, 8, 3, 3]), ("k", &[16, 8, 3])];
    let of = |out: &str, options: &[&str]| {
        let args = [format!("x: R.Tensor({x}, \"float32\")")];
        let body = format!("c = R.add(R.nn.relu({c}), R.const(0.1, \"float32\"))\nout = {out}");
        Model::new(&[&args[0]], weights, &body).run(options, &[tensor(dims, 1)])
    };
    let all = of("c", FORMS[0]);
    for (reduction, options) in reductions.iter().flat_map(|r| FORMS.map(|o| (r, o))) {
        let got = of(reduction, options);
        assert_eq!(got.len(), 16, "{reduction}");
        for (got, channel) in got.iter().zip(all.chunks(all.len() / 16)) {
            let mut wanted = channel.iter().sum::<f64>();
            if !reduction.contains("R.sum") {
                wanted /= channel.len() as f64;
            }
            assert!((got - wanted).abs() <= WITHIN * wanted, "{reduction}, {options:?}: {got}, not {wanted}");
        }
    }
}

const MEANS: [&str; 4] = [
    "R.mean(c, axis=[2, 3])",
    "R.mean(c, axis=[2, 3], keepdims=True)",
    "R.nn.adaptive_avg_pool2d(c, output_size=[1, 1])",
    "R.sum(c, axis=[2, 3])",
];

#[test]
fn of_pictures() {
    exact("(1, 8, 160, 120)", &[1, 8, 160, 120], "R.nn.conv2d(x, w, padding=(1, 1))", &MEANS);
}

#[test]
fn of_open_pictures() {
    exact("(1, 8, \"n\", 120)", &[1, 8, 160, 120], "R.nn.conv2d(x, w, padding=(1, 1))", &MEANS);
}

#[test]
fn of_sounds() {
    let c = "R.nn.conv1d(x, k, padding=(1, 1))";
    exact("(1, 8, 16000)", &[1, 8, 16000], c, &["R.mean(c, axis=[2])", "R.sum(c, axis=[2], keepdims=True)"]);
}
