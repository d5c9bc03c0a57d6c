//! `metadata = tvm.ir.load_json("""..""")`: constants too big to print in place.
//!
//! The text is a JSON graph: `nodes`, each `{"type", "data"}` that refer to one another by index, and `root_index`, a
//! map from a node type to the list of constants. A tensor is the base64 of TVM's saved form: u64 magic, u64
//! reserved, i32 device type, i32 device id, i32 ndim, u8 type code, u8 bits, u16 lanes, i64 shape[ndim], i64 byte
//! size, data.

use super::context::Cx;
use super::syntax::*;
use base64::Engine;
use relax_ir::{Constant, DType, Diagnostic, Span};
use serde_json::Value as Json;

const MAGIC: u64 = 0xDD5E_40F0_96B4_A13F;

/// The constants by the key that the text names them by.
pub struct Metadata {
    /// A message for those that could not be read.
    tables: Vec<(String, Vec<Result<Constant, String>>)>,
}

impl Metadata {
    pub fn parse(text: &str) -> Result<Metadata, String> {
        let json: Json = serde_json::from_str(text).map_err(|e| format!("the metadata is no JSON: {e}"))?;
        let nodes = json.get("nodes").and_then(Json::as_array).ok_or("the metadata has no `nodes`")?;
        let root = index(json.get("root_index").or(json.get("root"))).ok_or("the metadata has no `root_index`")?;
        let root = data(nodes, root).and_then(Json::as_array).ok_or("the root of the metadata is no map")?;
        let mut tables = vec![];
        for pair in root.chunks(2) {
            let [key, list] = pair else { return Err("the root of the metadata is no map".into()) };
            let key = index(Some(key)).and_then(|k| data(nodes, k)).and_then(Json::as_str);
            let list = index(Some(list)).and_then(|l| data(nodes, l)).and_then(Json::as_array);
            let (Some(key), Some(list)) = (key, list) else {
                return Err("the root of the metadata is no map from names to lists".into());
            };
            let constants = list.iter().map(|c| constant(nodes, index(Some(c)))).collect();
            tables.push((key.to_string(), constants));
        }
        Ok(Metadata { tables })
    }
}

fn index(j: Option<&Json>) -> Option<usize> {
    j?.as_u64().and_then(|v| usize::try_from(v).ok())
}

fn data(nodes: &[Json], i: usize) -> Option<&Json> {
    nodes.get(i)?.get("data")
}

/// A node that holds a tensor, itself or in a field.
fn constant(nodes: &[Json], i: Option<usize>) -> Result<Constant, String> {
    let node = i.and_then(|i| nodes.get(i)).ok_or("a constant refers to a missing node")?;
    let content = node.get("data").ok_or("a constant has no data")?;
    if let Some(text) = content.as_str() {
        return tensor(text);
    }
    let held = index(content.get("value").or(content.get("data"))).and_then(|i| data(nodes, i));
    match held.and_then(Json::as_str) {
        Some(text) => tensor(text),
        None => Err(format!("nodes of type {} are not supported", node.get("type").unwrap_or(&Json::Null))),
    }
}

fn tensor(text: &str) -> Result<Constant, String> {
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(text.trim())
        .map_err(|e| format!("a tensor is no base64: {e}"))?;
    read_tensor(&bytes).ok_or_else(|| "a tensor is not in TVM's saved form".to_string())
}

/// TVM's saved form of a tensor.
fn read_tensor(bytes: &[u8]) -> Option<Constant> {
    let u64_at = |i: usize| Some(u64::from_le_bytes(bytes.get(i..i + 8)?.try_into().ok()?));
    let i32_at = |i: usize| Some(i32::from_le_bytes(bytes.get(i..i + 4)?.try_into().ok()?));
    if u64_at(0)? != MAGIC {
        return None;
    }
    let ndim = usize::try_from(i32_at(24)?).ok().filter(|n| *n <= 64)?;
    let lanes = u16::from_le_bytes(bytes.get(30..32)?.try_into().ok()?);
    let dtype = DType::from_dlpack(*bytes.get(28)?, *bytes.get(29)?).filter(|_| lanes == 1)?;
    let mut shape = vec![];
    let mut elements = 1usize;
    for k in 0..ndim {
        let d = u64_at(32 + 8 * k)? as i64;
        elements = elements.checked_mul(usize::try_from(d).ok()?)?;
        shape.push(d);
    }
    let at = 32 + 8 * ndim;
    let size = usize::try_from(u64_at(at)?).ok()?;
    let whole = elements.checked_mul(dtype.bytes())? == size;
    let packed = dtype.bits < 8 && elements.checked_mul(dtype.bits as usize)?.div_ceil(8) == size;
    if !whole && !packed {
        return None;
    }
    let end = (at + 8).checked_add(size)?;
    let data = bytes.get(at + 8..end)?;
    let data = match (dtype.is_float(), dtype.bits) {
        // TVM 0.27 saves a byte for each element of float4 and fills half of them: two codes a byte, the first in the
        // high bits. Those of float6 have a byte each.
        (true, 4) if whole => (0..elements).map(|i| data[i / 2] >> (4 * (1 - i % 2)) & 15).collect(),
        (true, 6) if whole => data.to_vec(),
        _ if packed => Constant::unpacked(dtype, data, elements),
        _ => data.to_vec(),
    };
    Some(Constant::new(dtype, shape, data))
}

impl<'a> Cx<'a> {
    /// `metadata = tvm.ir.load_json(..)`
    pub fn load_metadata(&mut self, call: &CallExpr<'a>, span: Span) {
        let Some(text) = call.args.first().and_then(Expr::as_str) else {
            let _: Option<()> = self.error("metadata", span, "the metadata must be one string");
            return;
        };
        match Metadata::parse(text) {
            Ok(m) => self.metadata = Some(m),
            Err(message) => {
                // Every use of it would complain again.
                self.metadata = Some(Metadata { tables: vec![] });
                let at = Span::new(span.file, span.lo, call.func.span.hi);
                let _: Option<()> = self.error("metadata", at, message);
            }
        }
    }

    /// Is this `metadata[..][..]`?
    pub fn is_metadata(&self, e: &Expr<'a>) -> bool {
        match &e.kind {
            ExprKind::Subscript(base, _) => match &base.kind {
                ExprKind::Subscript(inner, _) => inner.as_name() == Some("metadata"),
                _ => false,
            },
            _ => false,
        }
    }

    /// `metadata["ir.GenericConst"][0]`
    pub fn metadata_constant(&mut self, e: &Expr<'a>) -> Option<Constant> {
        let ExprKind::Subscript(base, number) = &e.kind else { return self.expected(e, "a constant") };
        let ExprKind::Subscript(_, key) = &base.kind else { return self.expected(e, "a constant") };
        let (key, number) = (self.string(key)?, self.int(number)?);
        let Some(metadata) = &self.metadata else {
            let d = Diagnostic::error("metadata", e.span, "this text has no metadata section");
            return self.report(d.help("print the module whole, `metadata = tvm.ir.load_json(..)` included"));
        };
        if metadata.tables.is_empty() {
            return None;
        }
        let list = metadata.tables.iter().find(|(k, _)| *k == key).map(|(_, l)| l);
        match list.and_then(|l| l.get(usize::try_from(number).ok()?)) {
            Some(Ok(c)) => Some(c.clone()),
            Some(Err(message)) => {
                let message = message.clone();
                self.unsupported("metadata", e.span, message)
            }
            None => self.error("metadata", e.span, format!("the metadata holds no \"{key}\" number {number}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Saved by TVM 0.27 itself, but for the integers, which its arrays hold packed.
    #[test]
    fn small_elements_are_unpacked() {
        let saved = |code: u8, bits: u8, n: i64, data: &[u8]| {
            let mut b = MAGIC.to_le_bytes().to_vec();
            b.extend([0; 8]);
            b.extend([1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, code, bits, 1, 0]);
            b.extend(n.to_le_bytes());
            b.extend((data.len() as i64).to_le_bytes());
            b.extend(data);
            let c = read_tensor(&b)?;
            Some((0..n as usize).map(|i| c.get_f64(i)).collect::<Vec<f64>>())
        };
        // 0.5, -6, 1.5 and what lay in memory; 1, -7.5, 0.125.
        assert_eq!(saved(17, 4, 3, &[0x1f, 0x30, 0xd5]), Some(vec![0.5, -6.0, 1.5]));
        assert_eq!(saved(15, 6, 3, &[0x08, 0x3f, 0x01]), Some(vec![1.0, -7.5, 0.125]));
        assert_eq!(saved(0, 4, 3, &[0x78, 0x03]), Some(vec![-8.0, 7.0, 3.0]));
        assert_eq!(saved(1, 4, 3, &[0x1f, 0x08]), Some(vec![15.0, 1.0, 8.0]));
        assert_eq!(saved(0, 4, 1, &[0x0f]), Some(vec![-1.0]));
        assert_eq!(saved(0, 2, 5, &[0b1100_0110, 1]), Some(vec![-2.0, 1.0, 0.0, -1.0, 1.0]));
        assert_eq!(saved(6, 8, 3, &[1, 0, 1]), Some(vec![1.0, 0.0, 1.0]));
    }

    #[test]
    fn a_saved_tensor_is_checked_to_its_end() {
        let mut b = MAGIC.to_le_bytes().to_vec();
        b.extend([0; 8]);
        b.extend(1i32.to_le_bytes());
        b.extend(0i32.to_le_bytes());
        b.extend(1i32.to_le_bytes());
        b.extend([2, 32, 1, 0]);
        b.extend(2i64.to_le_bytes());
        b.extend(8i64.to_le_bytes());
        b.extend(1.5f32.to_le_bytes());
        b.extend(2.5f32.to_le_bytes());
        let c = read_tensor(&b).map(|c| (c.shape.clone(), c.get_f64(1)));
        assert_eq!(c, Some((vec![2], 2.5)));
        for n in 0..b.len() {
            assert!(read_tensor(&b[..n]).is_none());
        }
        b[32..40].copy_from_slice(&i64::MAX.to_le_bytes());
        assert!(read_tensor(&b).is_none());
    }
}
