//! Dims that operators need of their inputs, and inputs that must be floats, where nothing else asks: a model that states
//! others is refused.

use super::node::{counted, NodeCx};
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
    ("DynamicQuantizeLSTM", &[(0, 3), (1, 3), (2, 3), (8, 1), (9, 1), (10, 1), (11, 1)]),
    ("GroupQueryAttention", &[(3, 4), (4, 4), (7, 2), (8, 2)]),
    ("MultiHeadAttention", &[(0, 3), (3, 1), (6, 4), (7, 4)]),
    ("RotaryEmbedding", &[(3, 2)]),
];

/// Of the standard, operators whose kernels compute in floats only: these inputs.
const FLOATS: &[(&str, &[usize])] = &[
    ("AffineGrid", &[0]),
    ("Attention", &[0, 1, 2]),
    ("BatchNormalization", &[0]),
    ("CausalConvWithState", &[0, 1, 2, 3]),
    ("DeformConv", &[0, 1, 2, 3, 4]),
    ("Det", &[0]),
    ("GlobalLpPool", &[0]),
    ("GridSample", &[1]),
    ("GroupNormalization", &[0]),
    ("GRU", &[0, 1, 2, 3, 5]),
    ("InstanceNormalization", &[0]),
    ("LayerNormalization", &[0]),
    ("LinearAttention", &[0, 1, 2, 3, 4, 5]),
    ("LpNormalization", &[0]),
    ("LpPool", &[0]),
    ("LRN", &[0]),
    ("LSTM", &[0, 1, 2, 3, 5, 6, 7]),
    ("MaxRoiPool", &[0, 1]),
    ("RMSNormalization", &[0]),
    ("RNN", &[0, 1, 2, 3, 5]),
    ("RoiAlign", &[0, 1]),
    ("RotaryEmbedding", &[0, 1, 2]),
];

/// Refuses inputs of too few dims, and integers where floats are needed.
pub fn check(cx: &NodeCx, domain: &str, op: &str) -> Res<()> {
    let table = match domain {
        "" => STANDARD,
        "com.microsoft" => CONTRIB,
        _ => return Ok(()),
    };
    for (i, least) in table.iter().find(|(name, _)| *name == op).map_or(&[][..], |row| row.1) {
        if let Some(x) = cx.optional(*i)?.filter(|x| x.rank() < *least) {
            return Err(cx.error(format!("input {i} has {}, {least} are needed", counted(x.rank(), "dim"))));
        }
    }
    let floats = FLOATS.iter().find(|(name, _)| domain.is_empty() && *name == op);
    for i in floats.map_or(&[][..], |row| row.1) {
        if let Some(x) = cx.optional(*i)?.filter(|x| !x.dtype.is_float()) {
            return Err(cx.error(format!("input {i} is of {}, a float type is needed", x.dtype)));
        }
    }
    Ok(())
}
