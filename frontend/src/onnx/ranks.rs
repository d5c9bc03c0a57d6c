//! Dims that operators need of their inputs, where nothing else asks: a model that states fewer is refused.

use super::node::NodeCx;
use super::Res;

type Row = (&'static str, &'static [(usize, usize)]);

/// By operator: input, fewest dims.
const STANDARD: &[Row] = &[
    ("Attention", &[(4, 4), (5, 4)]),
    ("CausalConvWithState", &[(0, 3), (1, 1), (3, 3)]),
    ("GRU", &[(0, 3), (1, 3), (2, 3)]),
    ("LinearAttention", &[(0, 3), (1, 3), (2, 3), (4, 3), (5, 3)]),
    ("LSTM", &[(0, 3), (1, 3), (2, 3)]),
    ("MaxRoiPool", &[(0, 4), (1, 2)]),
    ("RNN", &[(0, 3), (1, 3), (2, 3)]),
    ("RoiAlign", &[(0, 4), (1, 2), (2, 1)]),
    ("RotaryEmbedding", &[(0, 3)]),
    ("STFT", &[(2, 1)]),
    ("TensorScatter", &[(0, 1), (1, 1)]),
];

/// Of the domain com.microsoft.
const CONTRIB: &[Row] = &[
    ("Attention", &[(0, 3), (1, 2), (2, 1)]),
    ("GroupQueryAttention", &[(3, 4), (4, 4), (7, 2), (8, 2)]),
    ("MultiHeadAttention", &[(0, 3), (3, 1), (6, 4), (7, 4)]),
    ("RotaryEmbedding", &[(3, 2)]),
];

/// Refuses inputs of too few dims.
pub fn check(cx: &NodeCx, domain: &str, op: &str) -> Res<()> {
    let table = match domain {
        "" => STANDARD,
        "com.microsoft" => CONTRIB,
        _ => return Ok(()),
    };
    let Some((_, needs)) = table.iter().find(|(name, _)| *name == op) else { return Ok(()) };
    for (i, least) in *needs {
        if let Some(x) = cx.optional(*i)?.filter(|x| x.rank() < *least) {
            return Err(cx.error(format!("input {i} has {} dims, {least} are needed", x.rank())));
        }
    }
    Ok(())
}
