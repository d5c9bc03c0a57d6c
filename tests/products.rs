//! Matrix products whose loops are cut for the caches, in the kernels of several processors beside sums in float64.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod command;

use command::{path, relax_aot, tensor, weights};
use relax_aot::loader::Library;
use relax_ir::Constant;
use std::path::Path;

/// `relu(x @ w + r)`; `rows` as the text has them.
fn model(dir: &Path, rows: &str, depth: i64, columns: i64) -> std::path::PathBuf {
    let tensor = |dims: String| format!(r#"R.Tensor(({dims}), dtype="float32")"#);
    let text = format!(
        "@I.ir_module\nclass Module:\n    @R.function\n    def main(x: {}, w: {}, r: {}):\n        {}\
         y = R.nn.relu(R.add(R.matmul(x, w), r))\n        return y\n",
        tensor(format!("{rows}, {depth}")),
        tensor(format!("{depth}, {columns}")),
        tensor(format!("{rows}, {columns}")),
        if rows.starts_with('"') { "n = T.int64()\n        " } else { "" },
    );
    let file = dir.join("model.rlx");
    std::fs::write(&file, text).expect("the model is written");
    file
}

fn check(got: &Constant, x: &Constant, w: &Constant, r: &Constant, what: &str) {
    check_either(got, x, w, r, false, what);
}

/// `turned`: the right side as it is given lies along the reduction.
fn check_either(got: &Constant, x: &Constant, w: &Constant, r: &Constant, turned: bool, what: &str) {
    let (rows, depth, columns) = (x.shape[0] as usize, x.shape[1] as usize, r.shape[1] as usize);
    let right = |k: usize, j: usize| w.get_f64(if turned { j * depth + k } else { k * columns + j });
    for i in 0..rows {
        for j in 0..columns {
            let sum: f64 = (0..depth).map(|k| x.get_f64(i * depth + k) * right(k, j)).sum();
            let (wanted, got) = ((sum + r.get_f64(i * columns + j)).max(0.0), got.get_f64(i * columns + j));
            assert!((wanted - got).abs() < 1e-4 * (1.0 + wanted), "{what}: {got} at {i}, {j}, not {wanted}");
        }
    }
}

fn levels() -> Vec<&'static str> {
    // What this machine lacks it cannot run.
    let wide = std::arch::is_x86_feature_detected!("avx512vl") && std::arch::is_x86_feature_detected!("avx512dq");
    let fused = std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma");
    let all = [
        ("baseline", true),
        ("x86-64-v3", fused),
        // Panels are made for vectors of 512 bits, and read by those of 256.
        ("auto=x86-64-v3", fused),
        ("x86-64-v4", wide),
        ("native", true),
    ];
    all.into_iter().filter(|(_, has)| *has).map(|(cpu, _)| cpu).collect()
}

/// Deep constant right sides: the reduction goes by blocks between which sums wait, an open count of rows by chunks of 240;
/// columns that fill panels, a last narrow panel, and too few for one.
#[test]
fn deep_right_sides_in_panels() {
    let dir = tempfile::tempdir().expect("a folder");
    for (rows, calls, depth, columns) in [
        (r#""n""#, &[1, 14, 239, 481][..], 1700, 85),
        (r#""n""#, &[13, 240], 3100, 37),
        ("16", &[16], 2000, 112),
        ("23", &[23], 1540, 64),
    ] {
        let file = dir.path().join("w.safetensors");
        weights(&file, &[("w", &[depth, columns])], 3);
        let text = model(dir.path(), rows, depth, columns);
        for cpu in levels() {
            let so = dir.path().join(format!("{cpu}{}{depth}.so", rows.len()));
            let args = ["--params", path(&file), "--prefix", "m", "-o", path(&so), "--target-cpu", cpu];
            relax_aot(&[&[path(&text)][..], &args].concat());
            let library = Library::open(&so, "m").expect("the library");
            for &n in calls {
                let (x, r) = (tensor(&[n, depth], 5), tensor(&[n, columns], 7));
                let got = library.run("main", &[x.clone(), r.clone()], 1).unwrap_or_else(|e| panic!("{}", e.message));
                check(&got[0], &x, &tensor(&[depth, columns], 3), &r, &format!("{cpu}, {n}x{depth}x{columns}"));
            }
        }
    }
}

/// One row of an open count, and one that is known, by several panels of weights at a time: counts of panels that leave one over
/// and that do not, columns behind them, deep reductions, and two threads.
#[test]
fn one_row_by_panels_side_by_side() {
    let dir = tempfile::tempdir().expect("a folder");
    for (depth, columns) in [(70, 512), (300, 1000), (200, 1331), (1700, 640)] {
        let file = dir.path().join("w.safetensors");
        weights(&file, &[("w", &[depth, columns])], 3);
        for (rows, calls) in [(r#""n""#, &[1, 2, 30][..]), ("1", &[1])] {
            let text = model(dir.path(), rows, depth, columns);
            for (cpu, threads) in levels().into_iter().flat_map(|cpu| [(cpu, "1"), (cpu, "2")]) {
                let so = dir.path().join(format!("{cpu}{}{depth}{threads}.so", rows.len()));
                let args = ["--params", path(&file), "--prefix", "m", "-o", path(&so)];
                relax_aot(&[&[path(&text)][..], &args, &["--target-cpu", cpu, "--threads", threads]].concat());
                let library = Library::open(&so, "m").expect("the library");
                for &n in calls {
                    let (x, r) = (tensor(&[n, depth], 5), tensor(&[n, columns], 7));
                    let got =
                        library.run("main", &[x.clone(), r.clone()], 1).unwrap_or_else(|e| panic!("{}", e.message));
                    check(&got[0], &x, &tensor(&[depth, columns], 3), &r, &format!("{cpu}, {n}x{depth}x{columns}"));
                }
            }
        }
    }
}

/// Few rows by a right side whose rows are multiples of 4 KiB apart, which is copied block by block, and by others, which
/// are read where they are; the last but one is so large that it is asked for ahead.
#[test]
fn few_rows_by_an_argument() {
    let dir = tempfile::tempdir().expect("a folder");
    for (n, depth, columns) in [(16, 300, 1024), (37, 140, 2048), (8, 200, 1024), (9, 1030, 1024), (33, 260, 1000)] {
        let text = model(dir.path(), &n.to_string(), depth, columns);
        let inputs = [tensor(&[n, depth], 1), tensor(&[depth, columns], 2), tensor(&[n, columns], 3)];
        for cpu in levels() {
            let so = dir.path().join(format!("{cpu}{n}.so"));
            relax_aot(&[path(&text), "--prefix", "m", "-o", path(&so), "--target-cpu", cpu]);
            let library = Library::open(&so, "m").expect("the library");
            let got = library.run("main", &inputs, 1).unwrap_or_else(|e| panic!("{}", e.message));
            check(&got[0], &inputs[0], &inputs[1], &inputs[2], &format!("{cpu}, {n}x{depth}x{columns}"));
        }
    }
}

/// Right sides that the model transposes: dot products of few rows, in one block of the reduction and in several, of one
/// block of columns and of two, with columns 4 KiB apart and an epilogue; slivers that are turned in passing, the last of
/// which no vectors fill; and last rows that are dot products.
#[test]
fn right_sides_that_are_transposed() {
    let dir = tempfile::tempdir().expect("a folder");
    let sizes =
        [(4, 256, 40), (5, 144, 107), (8, 1024, 100), (15, 1040, 35), (100, 272, 100), (36, 560, 165), (130, 512, 52)];
    for (n, depth, columns) in sizes.into_iter().chain([(8, 800, 1100), (50, 2048, 130)]) {
        let text = model(dir.path(), &n.to_string(), depth, columns);
        let plain = std::fs::read_to_string(&text).expect("the model");
        let plain =
            plain.replace(&format!("w: R.Tensor(({depth}, {columns})"), &format!("w: R.Tensor(({columns}, {depth})"));
        let turned = plain.replace("R.matmul(x, w)", "R.matmul(x, R.permute_dims(w))");
        std::fs::write(&text, turned).expect("the model is written");
        let inputs = [tensor(&[n, depth], 1), tensor(&[columns, depth], 2), tensor(&[n, columns], 3)];
        for cpu in levels() {
            let so = dir.path().join(format!("{cpu}{n}.so"));
            relax_aot(&[path(&text), "--prefix", "m", "-o", path(&so), "--target-cpu", cpu]);
            let library = Library::open(&so, "m").expect("the library");
            let got = library.run("main", &inputs, 1).unwrap_or_else(|e| panic!("{}", e.message));
            let what = format!("{cpu}, {n}x{depth}x{columns}");
            check_either(&got[0], &inputs[0], &inputs[1], &inputs[2], true, &what);
        }
    }
}

/// An open count of rows is every count: whole tiles, what is left behind them in one or two, none at all; a right side in panels,
/// one that is read where it is by few rows, and one whose rows are 4 KiB apart. Columns that make tiles of 4, 3, 2 and 1 vectors.
#[test]
fn every_open_count_of_rows() {
    let dir = tempfile::tempdir().expect("a folder");
    let counts: Vec<i64> = (0..=27).chain([50, 63, 64, 65, 66, 71, 100]).collect();
    for (depth, columns, constant) in [
        (70, 256, true),
        (70, 48, true),
        (70, 32, true),
        (70, 16, true),
        (70, 190, false),
        (70, 256, false),
        (40, 1024, false),
    ] {
        let text = model(dir.path(), r#""n""#, depth, columns);
        let (file, w) = (dir.path().join("w.safetensors"), tensor(&[depth, columns], 3));
        weights(&file, &[("w", &[depth, columns])], 3);
        let params = if constant { &["--params", path(&file)][..] } else { &[] };
        for cpu in levels() {
            let so = dir.path().join(format!("{cpu}{columns}{constant}.so"));
            let args = [path(&text), "--prefix", "m", "-o", path(&so), "--target-cpu", cpu];
            relax_aot(&[&args[..], params].concat());
            let library = Library::open(&so, "m").expect("the library");
            for &n in &counts {
                let (x, r) = (tensor(&[n, depth], 5), tensor(&[n, columns], 7));
                let mut inputs = vec![x.clone(), w.clone(), r.clone()];
                if constant {
                    inputs.remove(1);
                }
                let got = library.run("main", &inputs, 1).unwrap_or_else(|e| panic!("{}", e.message));
                check(&got[0], &x, &w, &r, &format!("{cpu}, {n}x{depth}x{columns}"));
            }
        }
    }
}

/// Known counts of rows that no tile divides go by tiles of which the last has rows enough to be worth it.
#[test]
fn known_counts_that_no_tile_divides() {
    let dir = tempfile::tempdir().expect("a folder");
    let (depth, columns) = (70, 256);
    let (file, w) = (dir.path().join("w.safetensors"), tensor(&[depth, columns], 3));
    weights(&file, &[("w", &[depth, columns])], 3);
    for n in [7, 11, 13, 19, 31] {
        let text = model(dir.path(), &n.to_string(), depth, columns);
        for cpu in levels() {
            let so = dir.path().join(format!("{cpu}{n}.so"));
            let args = ["--params", path(&file), "--prefix", "m", "-o", path(&so), "--target-cpu", cpu];
            relax_aot(&[&[path(&text)][..], &args].concat());
            let library = Library::open(&so, "m").expect("the library");
            let (x, r) = (tensor(&[n, depth], 5), tensor(&[n, columns], 7));
            let got = library.run("main", &[x.clone(), r.clone()], 1).unwrap_or_else(|e| panic!("{}", e.message));
            check(&got[0], &x, &w, &r, &format!("{cpu}, {n}x{depth}x{columns}"));
        }
    }
}
