//! Constants: small ones in place, the others in the JSON graph that the text starts with, as TVM writes it.

use super::scalar::{float_literal_of, quote};
use super::Printer;
use crate::constant::Constant;
use serde_json::{json, Value};
use std::fmt::Write;

/// TVM's saved-tensor format.
const TENSOR_MAGIC: u64 = 0xDD5E40F096B4A13F;

#[derive(Default)]
pub struct Metadata {
    constants: Vec<Constant>,
}

impl Printer<'_> {
    pub fn constant(&mut self, c: &Constant) -> String {
        let d = c.dtype;
        if c.shape.is_empty() && c.elements() == 1 {
            let text = if d.is_bool() {
                Some(if c.get_i64(0) != 0 { "True" } else { "False" }.to_string())
            } else if d.is_float() {
                // TVM's parser refuses its own text for the others.
                Some(c.get_f64(0)).filter(|v| v.is_finite()).map(|v| float_literal_of(d, v))
            } else if d == crate::DType::U64 {
                Some((c.get_i64(0) as u64).to_string())
            } else {
                Some(c.get_i64(0).to_string())
            };
            if let Some(text) = text {
                return format!("R.const({text}, {})", quote(&d.to_string()));
            }
        }
        if self.names.plain {
            return format!("<constant of shape {:?}, {d}>", c.shape);
        }
        let found = self.metadata.constants.iter().position(|k| std::sync::Arc::ptr_eq(&k.data, &c.data) && k == c);
        let index = found.unwrap_or_else(|| {
            self.metadata.constants.push(c.clone());
            self.metadata.constants.len() - 1
        });
        format!("metadata[\"ir.GenericConst\"][{index}]")
    }
}

impl Metadata {
    /// The line that defines `metadata`; nothing when there are no constants.
    pub fn text(&self) -> String {
        if self.constants.is_empty() {
            return String::new();
        }
        let mut g = Graph::default();
        let key = g.add("ffi.String", json!("ir.GenericConst"));
        let none = g.add("None", Value::Null);
        let constants: Vec<usize> = self.constants.iter().map(|c| g.constant(none, c)).collect();
        let list = g.add("ffi.Array", json!(constants));
        let root = g.add("ffi.Map", json!([key, list]));
        let graph = json!({
            "root_index": root,
            "nodes": g.nodes,
            "metadata": { "tvm_version": "0.27.0.post1" },
        });
        let text = serde_json::to_string_pretty(&graph).unwrap_or_default();
        format!("metadata = tvm.ir.load_json(\"\"\"{}\"\"\")\n", text.replace('\\', "\\\\").replace('"', "\\\""))
    }
}

#[derive(Default)]
struct Graph {
    nodes: Vec<Value>,
}

impl Graph {
    fn add(&mut self, kind: &str, data: Value) -> usize {
        self.nodes.push(match data {
            Value::Null => json!({ "type": kind }),
            data => json!({ "type": kind, "data": data }),
        });
        self.nodes.len() - 1
    }

    fn constant(&mut self, none: usize, c: &Constant) -> usize {
        let index = self.add("ir.PrimType", json!({ "span": none, "dtype": "int64" }));
        let dims: Vec<usize> = c
            .shape
            .iter()
            .map(|d| {
                let value = self.add("int", json!(d));
                self.add("ir.IntImm", json!({ "span": none, "ty": index, "value": value }))
            })
            .collect();
        let values = self.add("ffi.Array", json!(dims));
        let ndim = c.shape.len();
        let ty = self.add("relax.ShapeType", json!({ "span": none, "values": values, "ndim": ndim }));
        let shape = self.add("relax.expr.ShapeExpr", json!({ "span": none, "ty": ty, "values": values }));
        let dtype = self.add("ir.PrimType", json!({ "span": none, "dtype": c.dtype.to_string() }));
        let ty = json!({ "span": none, "shape": shape, "dtype": dtype, "vdevice": none, "ndim": ndim });
        let ty = self.add("relax.TensorType", ty);
        let value = self.add("ffi.Tensor", json!(base64(&saved_tensor(c))));
        self.add("ir.GenericConst", json!({ "span": none, "ty": ty, "value": value }))
    }
}

/// A tensor in TVM's saved form: header, shape, data.
fn saved_tensor(c: &Constant) -> Vec<u8> {
    let (code, bits) = c.dtype.dlpack();
    let mut out = vec![];
    out.extend(TENSOR_MAGIC.to_le_bytes());
    out.extend(0u64.to_le_bytes());
    // Device type (CPU), device id, rank.
    out.extend(1i32.to_le_bytes());
    out.extend(0i32.to_le_bytes());
    out.extend((c.shape.len() as i32).to_le_bytes());
    out.extend([code, bits]);
    out.extend(1u16.to_le_bytes());
    for d in &c.shape {
        out.extend(d.to_le_bytes());
    }
    // What `read_tensor` of the frontend says of TVM's own files.
    let data = match (c.dtype.is_float(), c.dtype.bits) {
        (true, 4) => {
            let codes = c.bytes();
            let pair = |i: usize| codes.get(i).map_or(0, |b| b & 15) << 4 | codes.get(i + 1).map_or(0, |b| b & 15);
            (0..codes.len()).map(|i| if 2 * i < codes.len() { pair(2 * i) } else { 0 }).collect()
        }
        (true, 6) => c.bytes().to_vec(),
        _ => c.packed(),
    };
    out.extend((data.len() as i64).to_le_bytes());
    out.extend(data);
    out
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0u32, |w, b| w << 8 | *b as u32) << (8 * (3 - chunk.len()));
        for i in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * i)) as usize & 63] as char;
            let _ = out.write_char(if i <= chunk.len() { digit } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn base64_pads() {
        assert_eq!(super::base64(b"Man"), "TWFu");
        assert_eq!(super::base64(b"Ma"), "TWE=");
        assert_eq!(super::base64(b"M"), "TQ==");
        assert_eq!(super::base64(b""), "");
    }
}
