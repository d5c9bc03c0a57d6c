//! Tensor constants.

use crate::dtype::DType;
use std::sync::{Arc, OnceLock};

/// A dense row-major little-endian tensor. `shape` is empty for a scalar.
#[derive(Clone, Debug)]
pub struct Constant {
    pub dtype: DType,
    pub shape: Vec<i64>,
    pub data: Arc<dyn ConstantData>,
}

/// The bytes of a constant: owned, borrowed from a mapped weight file, or another constant's in another order.
pub trait ConstantData: Send + Sync + std::fmt::Debug {
    /// All of them. Data in another order is made and kept: large weights go through [`ConstantData::pieces`].
    fn bytes(&self) -> &[u8];

    /// How many there are.
    fn size(&self) -> usize {
        self.bytes().len()
    }

    /// The bytes from first to last in pieces that are not kept, until `f` fails.
    fn pieces(&self, f: &mut dyn FnMut(&[u8]) -> std::io::Result<()>) -> std::io::Result<()> {
        f(self.bytes())
    }

    /// For data in another order: the constant that it was, and in which order.
    fn reordered(&self) -> Option<(&Constant, Order)> {
        None
    }

    /// For a matrix of float32 that was stored in fewer bits: how.
    fn coded(&self) -> Option<&Coded> {
        None
    }

    /// What makes two constants the same one.
    fn address(&self) -> usize {
        self.bytes().as_ptr() as usize
    }
}

/// An order of the elements of a matrix, other than row by row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Column by column, of a matrix of `rows` rows.
    Transposed { rows: usize, columns: usize },
    /// As many columns as `width`, all `depth` rows of them, row by row; then the next columns, up to `whole`. What is left
    /// is a panel with rows of `last` elements, zeros behind those that there are. `turned` when the matrix is there column
    /// by column.
    Panels { depth: usize, columns: usize, width: usize, whole: usize, last: usize, turned: bool },
}

impl Order {
    /// Elements of a matrix of `elements` in this order.
    pub fn elements(&self, elements: usize) -> usize {
        match self {
            Order::Transposed { .. } => elements,
            Order::Panels { depth, whole, last, .. } => depth * (whole + last),
        }
    }
}

/// A matrix as codes: `(code - zero) * scale`, with a scale and a zero point for each column of a block of rows.
#[derive(Clone, Debug)]
pub struct Coded {
    pub rows: usize,
    pub columns: usize,
    /// Rows of a block; the last block may have fewer.
    pub block: usize,
    /// Bits that a code needs: at most 8.
    pub bits: u32,
    /// Row by row, a byte each.
    pub codes: Vec<u8>,
    /// Block by block, one for each column.
    pub scales: Vec<f32>,
    pub zeros: Vec<f32>,
}

impl Coded {
    /// As a constant of float32.
    pub fn constant(self) -> Constant {
        let shape = vec![self.rows as i64, self.columns as i64];
        Constant { dtype: DType::F32, shape, data: Arc::new(Decoded { coded: self, made: OnceLock::new() }) }
    }

    fn floats(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(4 * self.codes.len());
        for (i, row) in self.codes.chunks_exact(self.columns.max(1)).enumerate() {
            let first = i / self.block.max(1) * self.columns;
            for (j, &code) in row.iter().enumerate() {
                let (scale, zero) = (self.scales[first + j], self.zeros[first + j]);
                out.extend_from_slice(&((code as f32 - zero) * scale).to_le_bytes());
            }
        }
        out
    }
}

#[derive(Debug)]
struct Decoded {
    coded: Coded,
    made: OnceLock<Vec<u8>>,
}

impl ConstantData for Decoded {
    fn bytes(&self) -> &[u8] {
        self.made.get_or_init(|| self.coded.floats())
    }

    fn size(&self) -> usize {
        4 * self.coded.codes.len()
    }

    fn coded(&self) -> Option<&Coded> {
        Some(&self.coded)
    }

    fn address(&self) -> usize {
        self.coded.codes.as_ptr() as usize
    }
}

impl ConstantData for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Constant {
    fn eq(&self, o: &Constant) -> bool {
        self.dtype == o.dtype && self.shape == o.shape && self.bytes() == o.bytes()
    }
}

impl Constant {
    /// `bytes` must hold exactly `product(shape) * dtype.bytes()` bytes.
    pub fn new(dtype: DType, shape: Vec<i64>, bytes: Vec<u8>) -> Constant {
        let c = Constant { dtype, shape, data: Arc::new(bytes) };
        debug_assert_eq!(c.bytes().len(), c.elements() * dtype.bytes());
        c
    }

    pub fn bytes(&self) -> &[u8] {
        self.data.bytes()
    }

    /// As many bytes as [`Constant::bytes`] has.
    pub fn size(&self) -> usize {
        self.data.size()
    }

    pub fn elements(&self) -> usize {
        self.shape.iter().product::<i64>() as usize
    }

    /// Elements of fewer than 8 bits as files and DLPack have them: packed, from the lowest bits of each byte on.
    /// One byte each; signed integers as int8.
    pub fn unpacked(dtype: DType, packed: &[u8], elements: usize) -> Vec<u8> {
        if dtype.bits >= 8 {
            return packed.to_vec();
        }
        let bits = dtype.bits as usize;
        let element = |i: usize| {
            let at = i * bits;
            let byte = |k: usize| packed.get(at / 8 + k).copied().unwrap_or(0) as u16;
            let v = (byte(0) | byte(1) << 8) >> (at % 8);
            match dtype.is_int() {
                true => crate::prim::wrap_int(dtype, v as i64) as u8,
                false => v as u8 & ((1u16 << bits) - 1) as u8,
            }
        };
        (0..elements).map(element).collect()
    }

    /// The opposite of [`Constant::unpacked`].
    pub fn packed(&self) -> Vec<u8> {
        let bits = self.dtype.bits as usize;
        if bits >= 8 {
            return self.bytes().to_vec();
        }
        let mut out = vec![0u8; (self.elements() * bits).div_ceil(8) + 1];
        for (i, b) in self.bytes().iter().enumerate() {
            let v = (*b as u16 & ((1 << bits) - 1)) << (i * bits % 8);
            out[i * bits / 8] |= v as u8;
            out[i * bits / 8 + 1] |= (v >> 8) as u8;
        }
        out.truncate((self.elements() * bits).div_ceil(8));
        out
    }

    /// A scalar from a float, rounded once to `dtype` (integers truncate, bool is `!= 0`).
    pub fn scalar_f64(dtype: DType, v: f64) -> Constant {
        use crate::dtype::TypeCode::*;
        let bytes = match (dtype.code, dtype.bits) {
            (Float, 16) => half::f16::from_f64(v).to_le_bytes().to_vec(),
            (BFloat, _) => half::bf16::from_f64(v).to_le_bytes().to_vec(),
            (Float, 32) => (v as f32).to_le_bytes().to_vec(),
            (Float, _) => v.to_le_bytes().to_vec(),
            (Small(s), _) => vec![s.encode(v)],
            (Bool, _) => vec![(v != 0.0) as u8],
            (UInt, 64) => (v as u64).to_le_bytes().to_vec(),
            _ => return Constant::scalar_i64(dtype, v as i64),
        };
        Constant::new(dtype, vec![], bytes)
    }

    /// A scalar from an integer, wrapped to an integer `dtype` or converted to a float one.
    pub fn scalar_i64(dtype: DType, v: i64) -> Constant {
        if dtype.is_float() {
            return Constant::scalar_f64(dtype, v as f64);
        }
        let v = if dtype.is_bool() { (v != 0) as i64 } else { crate::prim::wrap_int(dtype, v) };
        Constant::new(dtype, vec![], v.to_le_bytes()[..dtype.bytes()].to_vec())
    }

    /// Element `i` (row-major) as f64; exact for all but large 64-bit integers.
    pub fn get_f64(&self, i: usize) -> f64 {
        use crate::dtype::TypeCode::*;
        let n = self.dtype.bytes();
        let b = &self.bytes()[i * n..(i + 1) * n];
        match (self.dtype.code, self.dtype.bits) {
            (Float, 16) => half::f16::from_le_bytes([b[0], b[1]]).to_f64(),
            (BFloat, _) => half::bf16::from_le_bytes([b[0], b[1]]).to_f64(),
            (Float, 32) => f32::from_le_bytes([b[0], b[1], b[2], b[3]]) as f64,
            (Small(s), _) => s.decode(b[0]),
            (Float, _) => f64::from_le_bytes(b.try_into().unwrap_or_default()),
            (UInt, 64) => self.get_i64(i) as u64 as f64,
            _ => self.get_i64(i) as f64,
        }
    }

    /// Element `i` (row-major) of an integer or bool tensor, sign- or zero-extended.
    pub fn get_i64(&self, i: usize) -> i64 {
        if self.dtype.is_float() {
            return self.get_f64(i) as i64;
        }
        let n = self.dtype.bytes();
        let b = &self.bytes()[i * n..(i + 1) * n];
        let mut raw = [0u8; 8];
        raw[..n].copy_from_slice(b);
        let v = i64::from_le_bytes(raw);
        if self.dtype.is_signed() && n < 8 {
            let s = 64 - 8 * n as u32;
            (v << s) >> s
        } else {
            v
        }
    }
}
