//! Values of the suite's data sets, read from protobuf by a reader of the test's own: an error of the importer's reader
//! shows as a difference.

use relax_ir::{Constant, DType};

/// A value of a data set.
#[derive(Clone, Debug)]
pub enum Value {
    Tensor(Tensor),
    Sequence(Vec<Value>),
    Optional(Option<Box<Value>>),
}

/// A tensor: raw little-endian elements (packed below a byte), or strings.
#[derive(Clone, Debug, Default)]
pub struct Tensor {
    pub dims: Vec<i64>,
    pub elem_type: i64,
    pub raw: Vec<u8>,
    pub strings: Vec<Vec<u8>>,
}

/// What the type of a graph's value says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Tensor,
    Sequence,
    Optional,
    /// An optional sequence.
    OptionalSequence,
}

/// A named value of a graph.
#[derive(Clone, Debug)]
pub struct Info {
    pub name: String,
    pub kind: Kind,
}

/// A field of a message: its number and content.
enum Field<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    Fixed64([u8; 8]),
    Fixed32([u8; 4]),
}

impl<'a> Field<'a> {
    fn bytes(&self) -> &'a [u8] {
        match self {
            Field::Bytes(b) => b,
            _ => &[],
        }
    }
    fn int(&self) -> i64 {
        match self {
            Field::Varint(v) => *v as i64,
            _ => 0,
        }
    }
}

fn varint(data: &mut &[u8]) -> Option<u64> {
    let mut v = 0u64;
    for shift in (0..70).step_by(7) {
        let (&b, rest) = data.split_first()?;
        *data = rest;
        v |= u64::from(b & 0x7f).checked_shl(shift).unwrap_or(0);
        if b < 0x80 {
            return Some(v);
        }
    }
    None
}

fn take<'a>(data: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (head, rest) = (data.get(..n)?, data.get(n..)?);
    *data = rest;
    Some(head)
}

fn fields(mut data: &[u8]) -> Option<Vec<(u64, Field<'_>)>> {
    let mut out = vec![];
    while !data.is_empty() {
        let tag = varint(&mut data)?;
        let field = match tag & 7 {
            0 => Field::Varint(varint(&mut data)?),
            1 => Field::Fixed64(take(&mut data, 8)?.try_into().ok()?),
            2 => {
                let n = varint(&mut data)? as usize;
                Field::Bytes(take(&mut data, n)?)
            }
            5 => Field::Fixed32(take(&mut data, 4)?.try_into().ok()?),
            _ => return None,
        };
        out.push((tag >> 3, field));
    }
    Some(out)
}

/// Repeated integers: packed or one by one.
fn ints(f: &Field, out: &mut Vec<i64>) -> Option<()> {
    match f {
        Field::Bytes(mut b) => {
            while !b.is_empty() {
                out.push(varint(&mut b)? as i64);
            }
        }
        f => out.push(f.int()),
    }
    Some(())
}

/// Bits of an element in memory; `None` for strings.
pub fn bits(elem_type: i64) -> Option<usize> {
    Some(match elem_type {
        2 | 3 | 9 | 17..=20 | 24 => 8,
        4 | 5 | 10 | 16 => 16,
        1 | 6 | 12 => 32,
        7 | 11 | 13 | 14 => 64,
        15 => 128,
        21..=23 => 4,
        25 | 26 => 2,
        _ => return None,
    })
}

fn tensor(data: &[u8]) -> Option<Tensor> {
    let mut t = Tensor::default();
    let mut small = vec![];
    let mut large = vec![];
    for (number, f) in fields(data)? {
        match number {
            1 => ints(&f, &mut t.dims)?,
            2 => t.elem_type = f.int(),
            4 | 10 => match f {
                Field::Fixed32(b) => t.raw.extend(b),
                Field::Fixed64(b) => t.raw.extend(b),
                f => t.raw.extend(f.bytes()),
            },
            5 => ints(&f, &mut small)?,
            6 => t.strings.push(f.bytes().to_vec()),
            7 | 11 => ints(&f, &mut large)?,
            9 => t.raw = f.bytes().to_vec(),
            _ => {}
        }
    }
    small.extend(large);
    let bytes = bits(t.elem_type).unwrap_or(64).div_ceil(8);
    for v in small {
        t.raw.extend(&v.to_le_bytes()[..bytes]);
    }
    Some(t)
}

fn sequence(data: &[u8]) -> Option<Value> {
    let mut out = vec![];
    for (number, f) in fields(data)? {
        match number {
            3 => out.push(Value::Tensor(tensor(f.bytes())?)),
            5 => out.push(sequence(f.bytes())?),
            7 => out.push(optional(f.bytes())?),
            4 | 6 => return None,
            _ => {}
        }
    }
    Some(Value::Sequence(out))
}

fn optional(data: &[u8]) -> Option<Value> {
    let (mut kind, mut held) = (0, None);
    for (number, f) in fields(data)? {
        match number {
            2 => kind = f.int(),
            3 => held = Some(Value::Tensor(tensor(f.bytes())?)),
            5 => held = Some(sequence(f.bytes())?),
            7 => held = Some(optional(f.bytes())?),
            _ => {}
        }
    }
    // Kind 0 is an optional without a type: an empty one.
    Some(Value::Optional(held.filter(|_| kind != 0).map(Box::new)))
}

/// A stored value of the given kind.
pub fn read(data: &[u8], kind: Kind) -> Option<Value> {
    match kind {
        Kind::Tensor => tensor(data).map(Value::Tensor),
        Kind::Sequence => sequence(data),
        Kind::Optional => optional(data),
        // The suite writes a list that an optional holds as a bare sequence.
        Kind::OptionalSequence => match optional(data) {
            Some(Value::Optional(Some(v))) if matches!(*v, Value::Tensor(_)) => {
                Some(Value::Optional(Some(Box::new(sequence(data)?))))
            }
            v => v.or_else(|| sequence(data)),
        },
    }
}

fn info(data: &[u8]) -> Option<Info> {
    let mut out = Info { name: String::new(), kind: Kind::Tensor };
    for (number, f) in fields(data)? {
        match number {
            1 => out.name = String::from_utf8_lossy(f.bytes()).into_owned(),
            2 => {
                for (kind, inner) in fields(f.bytes())? {
                    match kind {
                        4 => out.kind = Kind::Sequence,
                        9 => {
                            let held = fields(inner.bytes())?.into_iter().find(|(n, _)| *n == 1);
                            let held = held.map(|(_, f)| fields(f.bytes())).unwrap_or_default().unwrap_or_default();
                            let list = held.iter().any(|(n, _)| *n == 4);
                            out.kind = if list { Kind::OptionalSequence } else { Kind::Optional };
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    Some(out)
}

/// The inputs (those with an initialiser left out) and outputs of a model's graph.
pub fn signature(model: &[u8]) -> Option<(Vec<Info>, Vec<Info>)> {
    let (mut inputs, mut outputs, mut defaults) = (vec![], vec![], vec![]);
    for (number, graph) in fields(model)? {
        if number != 7 {
            continue;
        }
        for (number, f) in fields(graph.bytes())? {
            match number {
                5 => {
                    let name = fields(f.bytes())?.into_iter().find(|(n, _)| *n == 8);
                    defaults.extend(name.map(|(_, f)| String::from_utf8_lossy(f.bytes()).into_owned()));
                }
                11 => inputs.push(info(f.bytes())?),
                12 => outputs.push(info(f.bytes())?),
                _ => {}
            }
        }
    }
    inputs.retain(|i| !defaults.contains(&i.name));
    Some((inputs, outputs))
}

/// The dtype in which elements of this type cross the boundary of a library.
pub fn dtype(elem_type: i64) -> Option<DType> {
    Some(match elem_type {
        1 => DType::F32,
        2 => DType::U8,
        3 => DType::I8,
        4 => DType::U16,
        5 => DType::I16,
        6 => DType::I32,
        7 => DType::I64,
        9 => DType::BOOL,
        10 => DType::F16,
        11 => DType::F64,
        12 => DType::U32,
        13 => DType::U64,
        16 => DType::BF16,
        // One element per byte: codes of small floats, values of integers.
        17..=21 | 23..=25 => DType::U8,
        22 | 26 => DType::I8,
        _ => return None,
    })
}

/// Strings at the boundary: their bytes as one more dim, filled up with zeros to the longest.
fn text(t: &Tensor) -> Constant {
    let width = t.strings.iter().map(Vec::len).max().unwrap_or(0).max(1);
    let mut bytes = vec![];
    for s in &t.strings {
        bytes.extend(s);
        bytes.resize(bytes.len() + width - s.len(), 0);
    }
    let mut dims = t.dims.clone();
    dims.push(width as i64);
    Constant::new(DType::U8, dims, bytes)
}

/// The same strings with `width` bytes each; `None` when one is longer.
pub fn with_width(c: &Constant, width: i64) -> Option<Constant> {
    let (own, dims) = c.shape.split_last()?;
    let (own, width) = (*own as usize, width as usize);
    let mut bytes = vec![];
    for s in c.bytes().chunks(own.max(1)) {
        let used = s.iter().position(|b| *b == 0).unwrap_or(s.len());
        if used > width {
            return None;
        }
        bytes.extend(&s[..used]);
        bytes.resize(bytes.len() + width - used, 0);
    }
    Some(Constant::new(DType::U8, [dims, &[width as i64]].concat(), bytes))
}

/// Elements below a byte, one per byte; integers are sign-extended.
fn unpack(t: &Tensor, elements: usize) -> Vec<u8> {
    let bits = bits(t.elem_type).unwrap_or(8);
    if bits >= 8 {
        return t.raw.clone();
    }
    let mask = (1u8 << bits) - 1;
    let element = |i: usize| {
        let v = t.raw.get(i * bits / 8).map_or(0, |b| b >> (i * bits % 8) & mask);
        let negative = matches!(t.elem_type, 22 | 26) && v >> (bits - 1) != 0;
        if negative {
            v | !mask
        } else {
            v
        }
    };
    (0..elements).map(element).collect()
}

impl Value {
    /// The tensors that the value is at the boundary: sequences flatten, an empty optional is nothing.
    pub fn flatten(&self, out: &mut Vec<Constant>) -> Result<(), String> {
        match self {
            Value::Tensor(t) if t.elem_type == 8 => out.push(text(t)),
            Value::Tensor(t) => {
                let dtype = dtype(t.elem_type).ok_or_else(|| format!("values of element type {}", t.elem_type))?;
                let elements = t.dims.iter().product::<i64>() as usize;
                let raw = unpack(t, elements);
                if raw.len() != elements * dtype.bytes() {
                    return Err(format!("{} bytes of data for dims {:?}", raw.len(), t.dims));
                }
                out.push(Constant::new(dtype, t.dims.clone(), raw));
            }
            Value::Sequence(list) => list.iter().try_for_each(|v| v.flatten(out))?,
            Value::Optional(v) => v.iter().try_for_each(|v| v.flatten(out))?,
        }
        Ok(())
    }
}
