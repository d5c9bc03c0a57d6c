//! Arguments of a kernel and the typed access to their bytes.

use super::scalar::{float_bits, float_from_bits};
use ndarray::{ArrayD, IxDyn};
use relax_ir::{Constant, DType, Diagnostic, Span};

/// An argument of a PrimFunc, one per parameter, in order.
#[derive(Clone, Debug)]
pub enum Arg {
    /// A dense row-major tensor; outputs are overwritten in place.
    Tensor(Tensor),
    /// An integer or bool scalar.
    Scalar(i64),
    /// A float scalar.
    Float(f64),
}

impl Arg {
    pub fn tensor(&self) -> Option<&Tensor> {
        match self {
            Arg::Tensor(t) => Some(t),
            _ => None,
        }
    }
}

/// A dense row-major little-endian tensor; bool is one byte.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub dtype: DType,
    pub shape: Vec<i64>,
    pub data: Vec<u8>,
}

impl Tensor {
    /// All zeros (what outputs start with).
    pub fn zeros(dtype: DType, shape: &[i64]) -> Tensor {
        let n = shape.iter().product::<i64>().max(0) as usize;
        Tensor { dtype, shape: shape.to_vec(), data: vec![0; n * dtype.bytes()] }
    }

    /// Values rounded (floats) or truncated (integers) to `dtype`, row-major. Missing values are 0.
    pub fn from_f64(dtype: DType, shape: &[i64], values: &[f64]) -> Tensor {
        let mut t = Tensor::zeros(dtype, shape);
        let n = t.elements();
        for (i, v) in values.iter().take(n).enumerate() {
            if dtype.is_float() {
                write_float(dtype, &mut t.data, i, *v);
            } else {
                write_int(dtype, &mut t.data, i, super::scalar::float_to_int(dtype, *v));
            }
        }
        t
    }

    /// Integer values wrapped to `dtype`, row-major.
    pub fn from_i64(dtype: DType, shape: &[i64], values: &[i64]) -> Tensor {
        let mut t = Tensor::zeros(dtype, shape);
        let n = t.elements();
        for (i, v) in values.iter().take(n).enumerate() {
            if dtype.is_float() {
                write_float(dtype, &mut t.data, i, *v as f64);
            } else {
                write_int(dtype, &mut t.data, i, *v);
            }
        }
        t
    }

    pub fn from_f32(shape: &[i64], values: &[f32]) -> Tensor {
        let values: Vec<f64> = values.iter().map(|v| *v as f64).collect();
        Tensor::from_f64(DType::F32, shape, &values)
    }

    pub fn from_constant(c: &Constant) -> Tensor {
        Tensor { dtype: c.dtype, shape: c.shape.clone(), data: c.bytes().to_vec() }
    }

    pub fn into_constant(self) -> Constant {
        Constant::new(self.dtype, self.shape, self.data)
    }

    pub fn elements(&self) -> usize {
        self.data.len() / self.dtype.bytes().max(1)
    }

    /// Row-major values; exact for all but large 64-bit integers.
    pub fn to_f64(&self) -> Vec<f64> {
        let unsigned = self.dtype == DType::U64;
        (0..self.elements())
            .map(|i| match (self.dtype.is_float(), unsigned) {
                (true, _) => read_float(self.dtype, &self.data, i),
                (_, true) => read_int(self.dtype, &self.data, i) as u64 as f64,
                _ => read_int(self.dtype, &self.data, i) as f64,
            })
            .collect()
    }

    pub fn to_f32(&self) -> Vec<f32> {
        self.to_f64().into_iter().map(|v| v as f32).collect()
    }

    /// Row-major values of an integer or bool tensor (floats truncate; uint64 as its bits).
    pub fn to_i64(&self) -> Vec<i64> {
        (0..self.elements())
            .map(|i| match self.dtype.is_float() {
                true => read_float(self.dtype, &self.data, i) as i64,
                false => read_int(self.dtype, &self.data, i),
            })
            .collect()
    }

    /// The values as an array; an internal diagnostic when the bytes do not fit the shape.
    pub fn to_array(&self) -> Result<ArrayD<f64>, Diagnostic> {
        let dims: Vec<usize> = self.shape.iter().map(|d| *d as usize).collect();
        ArrayD::from_shape_vec(IxDyn(&dims), self.to_f64())
            .map_err(|e| Diagnostic::internal(Span::NONE, format!("tensor bytes do not fit the shape: {e}")))
    }

    /// From an array of any layout.
    pub fn from_array(dtype: DType, a: &ArrayD<f64>) -> Tensor {
        let shape: Vec<i64> = a.shape().iter().map(|d| *d as i64).collect();
        let values: Vec<f64> = a.iter().copied().collect();
        Tensor::from_f64(dtype, &shape, &values)
    }
}

/// Element `i` of integer (or bool) bytes, sign- or zero-extended. The caller has checked the bounds.
pub fn read_int(d: DType, bytes: &[u8], i: usize) -> i64 {
    let n = d.bytes();
    let mut raw = [0u8; 8];
    raw[..n].copy_from_slice(&bytes[i * n..(i + 1) * n]);
    let v = i64::from_le_bytes(raw);
    let s = 64 - 8 * n as u32;
    if d.is_bool() {
        (v != 0) as i64
    } else if d.bits < 8 {
        super::scalar::Wrap::new(d).apply(v)
    } else if d.is_signed() {
        (v << s) >> s
    } else {
        v
    }
}

pub fn write_int(d: DType, bytes: &mut [u8], i: usize, v: i64) {
    let n = d.bytes();
    let v = if d.is_bool() { (v != 0) as i64 } else { v };
    bytes[i * n..(i + 1) * n].copy_from_slice(&v.to_le_bytes()[..n]);
}

pub fn read_float(d: DType, bytes: &[u8], i: usize) -> f64 {
    let n = d.bytes();
    let mut raw = [0u8; 8];
    raw[..n].copy_from_slice(&bytes[i * n..(i + 1) * n]);
    float_from_bits(d, u64::from_le_bytes(raw))
}

pub fn write_float(d: DType, bytes: &mut [u8], i: usize, v: f64) {
    let n = d.bytes();
    bytes[i * n..(i + 1) * n].copy_from_slice(&float_bits(d, v).to_le_bytes()[..n]);
}
