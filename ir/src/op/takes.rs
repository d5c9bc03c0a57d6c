//! What may be written for a parameter: the types of TVM's functions behind `R.name(..)`.
//!
//! TVM converts what Python gives to the types of its C++ functions and refuses the rest: an `int` takes no `T.int32(1)`, no
//! float and no list, a `bool` takes a whole number, a `float` takes whole numbers and bools.
//!
//! Source: TVM 0.27, `python/tvm/relax/op` and the functions registered as `relax.op.*`.

use super::{Default, OpDecl, ParamDecl, ParamKind};

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// A whole number or a bool of Python.
    Int,
    /// As [`Takes::Int`].
    Bool,
    /// A number or a bool of Python.
    Float,
    /// A string of Python.
    Str,
    /// The name of a data type, in quotes.
    DType,
    /// A list of whole numbers of Python.
    Ints,
    /// One whole number of Python, or a list of them.
    IntOrInts,
    /// A scalar: a number of Python, `R.prim_value(..)`, a dim, `T.int64(1)`.
    Scalar,
    /// A list of scalars.
    Scalars,
    /// Whatever the operator's rule says.
    Rule,
}

/// Scalar operands by operator; all others are tensors, shapes or what the rule says.
const SCALARS: &[(&str, &[&str])] = &[
    ("arange", &["start", "end", "step"]),
    ("builtin.alloc_tensor", &["runtime_device_index"]),
    ("clip", &["min", "max"]),
    ("eye", &["n", "m", "k"]),
    ("eye_like", &["k"]),
    ("hamming_window", &["window_size", "periodic", "alpha", "beta"]),
    ("inspect.tensor_shape_i", &["axis"]),
    ("inspect.tensor_stride_i", &["axis"]),
    ("memory.alloc_storage", &["virtual_device_index"]),
    ("one_hot", &["on_value", "off_value"]),
    ("slice_scatter", &["start", "end", "step"]),
    ("tril", &["k"]),
    ("triu", &["k"]),
    ("vm.alloc_storage", &["runtime_device_index"]),
    ("unique", &["sorted", "return_index", "return_inverse", "return_counts", "axis"]),
];

/// Operators whose `axis` may be several.
const AXES: &[&str] = &["expand_dims", "max", "mean", "median", "min", "prod", "squeeze", "std", "sum", "variance"];

impl ParamDecl {
    /// What TVM takes for this parameter of `op`.
    pub fn takes(&self, op: &OpDecl) -> Takes {
        if self.kind == ParamKind::Operand {
            let scalar = SCALARS.iter().any(|(name, params)| *name == op.name && params.contains(&self.name));
            let scalars = op.name == "strided_slice" && matches!(self.name, "axes" | "begin" | "end" | "strides");
            return match (scalar, scalars) {
                (true, _) => Takes::Scalar,
                (_, true) => Takes::Scalars,
                _ => Takes::Rule,
            };
        }
        // Operators of ONNX that TVM does not have, what has no fixed type, and keys that stand for nothing.
        if self.kind != ParamKind::Attr || op.name.starts_with("onnx.") || op.name.starts_with("call_") {
            return Takes::Rule;
        }
        match (self.default, self.name) {
            (Default::Required | Default::None | Default::Str(_), name) if name.ends_with("dtype") => Takes::DType,
            (_, "pad_width") => Takes::Ints,
            (_, "pool_size" | "strides" | "padding" | "dilation") if op.name.ends_with("_backward") => Takes::Ints,
            (_, "axes") if op.name == "permute_dims" => Takes::Ints,
            (_, "axis") if AXES.contains(&op.name) => Takes::IntOrInts,
            (_, "axes" | "output_size" | "pooled_size") => Takes::IntOrInts,
            (_, "repeats") if op.name == "tile" => Takes::IntOrInts,
            // A number, or a tensor of one: `rule` decides.
            (_, "k") if op.name == "topk" => Takes::Rule,
            (Default::Int(_), _) => Takes::Int,
            (Default::Bool(_), _) => Takes::Bool,
            (Default::Float(_), _) => Takes::Float,
            (Default::Str(_), _) => Takes::Str,
            (Default::Ints(_), _) => Takes::IntOrInts,
            (_, "axis" | "depth" | "num_groups" | "channel_axis" | "num_workers" | "upscale_factor" | "repeats") => {
                Takes::Int
            }
            (_, "spatial_scale") => Takes::Float,
            (Default::None, "scale" | "window_size") => Takes::Scalar,
            (_, "pad_value") => Takes::Scalar,
            (_, "out_layout" | "subscripts" | "causal_mask" | "te_grad_name") => Takes::Str,
            _ => Takes::Rule,
        }
    }
}
