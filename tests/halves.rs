//! Models in float16 and bfloat16 are those of float32 with the same numbers, rounded once, where their results leave them (rule
//! `halves` in `lower/src/halves.rs`); with strict floats every operator rounds.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod command;

use command::{dtype, path, relax_aot, tensor, weights};
use relax_aot::loader::Library;
use relax_ir::DType;
use std::path::Path;

/// Of tokens and of pictures: what operators hand each other, in one block or in several.
const BODIES: &[&str] = &[
    "n = R.nn.layer_norm(x, g, h, axes=[-1])
     q = R.nn.silu(R.add(R.matmul(n, a), h))
     k = R.permute_dims(R.reshape(R.matmul(n, a), (20, 2, 12)), axes=[1, 0, 2])
     s = R.nn.softmax(R.matmul(k, R.permute_dims(k, axes=[0, 2, 1])))
     m = R.reshape(R.permute_dims(R.matmul(s, k), axes=[1, 0, 2]), (20, 24))
     p = R.split(R.concat((m, q), axis=1), 2, axis=1)
     y = R.add(R.nn.gelu(R.multiply(p[0], p[1])), x)",
    "i = R.reshape(x, (1, 2, 20, 12))
     c = R.nn.conv2d(i, w, padding=[1, 1, 1, 1])
     d = R.nn.relu(R.divide(c, R.add(R.sqrt(R.mean(R.multiply(c, c), axis=[2, 3], keepdims=True)), R.const(1.0, DTYPE))))
     e = R.nn.max_pool2d(R.where(R.greater(d, R.const(0.5, DTYPE)), R.exp(d), d), pool_size=[2, 2], strides=[2, 2])
     y = R.add(R.reshape(R.strided_slice(e, axes=[1], begin=[2], end=[10]), (20, 24)), R.astype(R.astype(x, \"float32\"), DTYPE))",
];

const WEIGHTS: &[(&str, &[i64])] = &[("a", &[24, 24]), ("g", &[24]), ("h", &[24]), ("w", &[16, 2, 3, 3])];

/// The model over numbers of `stored`, computed in `dtype`.
fn model(file: &Path, body: &str, stored: &str, dtype: &str) {
    let params: Vec<String> = [("z", &[20i64, 24] as &[i64])]
        .iter()
        .chain(WEIGHTS)
        .map(|(name, shape)| {
            let dims: Vec<String> = shape.iter().map(|d| d.to_string()).collect();
            let raw = if *name == "z" { "" } else { "_" };
            format!("{name}{raw}: R.Tensor(({},), \"float32\")", dims.join(", "))
        })
        .collect();
    let mut lines = vec![format!("x = R.astype(R.astype(z, \"{stored}\"), \"{dtype}\")")];
    for (name, _) in WEIGHTS {
        lines.push(format!("{name} = R.astype(R.astype({name}_, \"{stored}\"), \"{dtype}\")"));
    }
    lines.extend(body.lines().map(|l| l.trim().replace("DTYPE", &format!("\"{dtype}\""))));
    lines.push("o = R.astype(y, \"float32\")".into());
    let text = format!(
        "@I.ir_module\nclass Module:\n    @R.function\n    def main({}):\n        {}\n        return o\n",
        params.join(", "),
        lines.join("\n        ")
    );
    std::fs::write(file, text).expect("the model is written");
}

fn values(dir: &Path, model: &Path, options: &[&str]) -> Vec<f64> {
    let so = dir.join("m.so");
    let file = dir.join("weights.safetensors");
    relax_aot(&[&[path(model), "--params", path(&file), "--prefix", "m", "-o", path(&so)], options].concat());
    let library = Library::open(&so, "m").expect("the library");
    let results =
        library.run("main", &[tensor(&[20, 24], 5)], 1).unwrap_or_else(|e| panic!("{}: {}", e.code, e.message));
    (0..results[0].elements()).map(|i| results[0].get_f64(i)).collect()
}

#[test]
fn nothing_is_rounded_between_operators() {
    let dir = tempfile::tempdir().expect("a folder");
    let named: Vec<(String, &[i64])> = WEIGHTS.iter().map(|(n, s)| (format!("{n}_"), *s)).collect();
    let named: Vec<(&str, &[i64])> = named.iter().map(|(n, s)| (n.as_str(), *s)).collect();
    weights(&dir.path().join("weights.safetensors"), &named, 3);
    let forms: &[&[&str]] =
        &[&["--target-cpu", "x86-64-v3"], &["--target-cpu", "native"], &["--target-cpu", "auto", "--threads", "2"]];
    // Half a unit in the last place, and a little more where sums of float32 went in another order.
    for (stored, unit) in [("float16", 1.0 / 1024.0), ("bfloat16", 1.0 / 128.0)] {
        for body in BODIES {
            let file = dir.path().join("model.rlx");
            model(&file, body, stored, "float32");
            let wanted = values(dir.path(), &file, &["--target-cpu", "baseline"]);
            model(&file, body, stored, stored);
            let furthest = |got: &[f64]| {
                let off = |(a, b): (&f64, &f64)| (a - b).abs() / (a.abs() + 1e-3);
                wanted.iter().zip(got).map(off).fold(0.0, f64::max)
            };
            for options in forms {
                let far = furthest(&values(dir.path(), &file, options));
                assert!(far < 0.51 * unit, "{stored}, {options:?}: {far} of a result, not {}\n{body}", unit / 2.0);
            }
            let rounded = furthest(&values(dir.path(), &file, &["--target-cpu", "native", "--fp", "strict"]));
            assert!(rounded > unit, "{stored}: with strict floats results are no further than {rounded}\n{body}");
        }
    }
}

/// Weights of 16 bits lie in panels and are converted as they are read: one row, open counts of rows and known ones, panels
/// side by side, deep reductions by blocks, columns that fill no vector, and every level of the default library.
#[test]
fn products_read_weights_of_16_bits() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("weights.safetensors");
    let forms: &[&[&str]] = &[
        &["--target-cpu", "native"],
        &["--target-cpu", "x86-64-v3", "--threads", "2"],
        &["--target-cpu", "auto"],
        &["--target-cpu", "auto=x86-64-v3"],
        &["--target-cpu", "auto=x86-64-v2"],
        &["--target-cpu", "baseline"],
    ];
    for (name, rows, calls, depth, columns) in [
        ("half_w", r#""n""#, &[1, 5, 300][..], 270, 1100),
        ("half_w", "1", &[1], 1700, 640),
        ("brain_w", r#""n""#, &[1, 30], 1700, 85),
        ("brain_w", "50", &[50], 96, 100),
    ] {
        weights(&file, &[(name, &[depth, columns])], 3);
        let stored = dtype(name);
        let text = format!(
            "@I.ir_module\nclass Module:\n    @R.function\n    def main(x: R.Tensor(({rows}, {depth}), \"float32\"), {name}: \
             R.Tensor(({depth}, {columns}), \"{stored}\")):\n        {}y = R.matmul(R.astype(x, \"{stored}\"), {name})\n        \
             z = R.astype(R.nn.relu(y), \"float32\")\n        return z\n",
            if calls.len() > 1 { "n = T.int64()\n        " } else { "" }
        );
        let model = dir.path().join("model.rlx");
        std::fs::write(&model, text).expect("the model is written");
        let rounded = |v: f64| match stored {
            DType::F16 => half::f16::from_f64(v).to_f64(),
            _ => half::bf16::from_f64(v).to_f64(),
        };
        let w = tensor(&[depth, columns], 3);
        let unit = if stored == DType::F16 { 1.0 / 1024.0 } else { 1.0 / 128.0 };
        for options in forms {
            let so = dir.path().join(format!("{}.so", options.join("")));
            relax_aot(&[&[path(&model), "--params", path(&file), "--prefix", "m", "-o", path(&so)], *options].concat());
            let library = Library::open(&so, "m").expect("the library");
            for &n in calls {
                let x = tensor(&[n, depth], 5);
                let got = library.run("main", &[x.clone()], 1).unwrap_or_else(|e| panic!("{}", e.message));
                // Of long results some rows and columns.
                for (i, j) in (0..n).step_by(n as usize / 5 + 1).flat_map(|i| (0..columns).map(move |j| (i, j))) {
                    let at = |t: &relax_ir::Constant, k: i64| rounded(t.get_f64(k as usize));
                    let sum: f64 = (0..depth).map(|k| at(&x, i * depth + k) * at(&w, k * columns + j)).sum();
                    let (wanted, got) = (sum.max(0.0), got[0].get_f64((i * columns + j) as usize));
                    let near = (wanted - got).abs() < 0.51 * unit * wanted + 1e-4;
                    assert!(near, "{options:?}, {n}x{depth}x{columns}: {got} at {i}, {j}, not {wanted}");
                }
            }
        }
    }
}
