//! Comparing results with a reference.

use relax_ir::Constant;

/// The worst element of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Mismatch {
    pub text: String,
}

/// Requires `|got - want| <= atol + rtol * |want|` for every element, equal infinities, NaN where NaN is expected, and
/// equal shapes and dtypes. Integers and bools must be equal.
pub fn compare(name: &str, got: &Constant, want: &Constant, rtol: f64, atol: f64) -> Result<(), Mismatch> {
    let fail = |text: String| Err(Mismatch { text: format!("{name}: {text}") });
    if got.dtype != want.dtype {
        return fail(format!("dtype {}, expected {}", got.dtype, want.dtype));
    }
    if got.shape != want.shape {
        return fail(format!("shape {:?}, expected {:?}", got.shape, want.shape));
    }
    let mut worst: Option<(f64, usize)> = None;
    let mut bad = 0;
    for i in 0..got.elements() {
        let excess = if got.dtype.is_float() {
            let (g, w) = (got.get_f64(i), want.get_f64(i));
            if g == w || (g.is_nan() && w.is_nan()) {
                continue;
            }
            let limit = atol + rtol * w.abs();
            let error = (g - w).abs();
            if error <= limit {
                continue;
            }
            if error.is_nan() || error.is_infinite() {
                f64::INFINITY
            } else {
                error / limit
            }
        } else if got.get_i64(i) == want.get_i64(i) {
            continue;
        } else {
            (got.get_i64(i) as f64 - want.get_i64(i) as f64).abs()
        };
        bad += 1;
        if worst.is_none_or(|(e, _)| excess > e) {
            worst = Some((excess, i));
        }
    }
    let Some((_, i)) = worst else { return Ok(()) };
    let index = unravel(i, &got.shape);
    let (g, w) = if got.dtype.is_float() {
        (got.get_f64(i).to_string(), want.get_f64(i).to_string())
    } else {
        (got.get_i64(i).to_string(), want.get_i64(i).to_string())
    };
    fail(format!("{bad} of {} elements differ; the worst at {index:?}: got {g}, expected {w}", got.elements()))
}

fn unravel(mut i: usize, shape: &[i64]) -> Vec<usize> {
    let mut out = vec![0; shape.len()];
    for (o, &d) in out.iter_mut().zip(shape).rev() {
        *o = i % d.max(1) as usize;
        i /= d.max(1) as usize;
    }
    out
}
