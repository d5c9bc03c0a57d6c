//! Runs a model that the build script compiled and linked in.

mod mlp;

fn input(rows: usize, features: usize) -> Vec<f32> {
    (0..rows * features).map(|i| (i % 7) as f32 * 0.25 - 0.75).collect()
}

fn main() {
    for rows in [1, 3] {
        println!("{rows} rows:");
        match mlp::infer(&input(rows, 16), rows) {
            Ok(out) => out.iter().for_each(|row| println!("  {row:.4?}")),
            Err(e) => println!("  {e}"),
        }
    }
    println!("2 rows of 15 features:");
    match mlp::infer(&input(2, 15), 2) {
        Ok(_) => std::process::exit(1),
        Err(e) => println!("  {e}"),
    }
}
