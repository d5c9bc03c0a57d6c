//! numpy's `.npy`: the magic `\x93NUMPY`, a version, a header that is a Python dictionary, the data.

use relax_ir::DType;

/// What the header says.
#[derive(Debug, PartialEq, Eq)]
pub struct Header {
    pub dtype: DType,
    pub big_endian: bool,
    pub fortran: bool,
    pub shape: Vec<i64>,
    /// Where the data begins.
    pub data: usize,
}

/// Reads the header at the start of `bytes`.
pub fn header(bytes: &[u8]) -> Result<Header, String> {
    let bad = || "not in numpy's .npy form".to_string();
    if bytes.len() < 10 || &bytes[..6] != b"\x93NUMPY" {
        return Err(bad());
    }
    let (start, length): (usize, usize) = match bytes[6] {
        1 => (10, u16::from_le_bytes([bytes[8], bytes[9]]) as usize),
        2 | 3 => {
            let n = bytes.get(8..12).ok_or_else(bad)?;
            (12, u32::from_le_bytes([n[0], n[1], n[2], n[3]]) as usize)
        }
        v => return Err(format!("version {v} of .npy is not known")),
    };
    let data = start.checked_add(length).ok_or_else(bad)?;
    let text = std::str::from_utf8(bytes.get(start..data).ok_or_else(bad)?).map_err(|_| bad())?;
    let descr = field(text, "descr").ok_or_else(bad)?;
    let descr = descr.strip_prefix(['\'', '"']).and_then(|d| d.split(['\'', '"']).next());
    let descr = descr.ok_or("arrays of records are not supported")?;
    let (big_endian, kind) = match descr.split_at_checked(1) {
        Some((">", k)) => (true, k),
        Some(("<" | "|" | "=", k)) => (false, k),
        _ => (false, descr),
    };
    let dtype = match kind {
        "f4" => DType::F32,
        "f8" => DType::F64,
        "f2" => DType::F16,
        // How numpy stores the bfloat16 of ml_dtypes: bytes of size 2 without a type.
        "V2" | "bfloat16" => DType::BF16,
        "b1" => DType::BOOL,
        // The floats of fewer bits of ml_dtypes: their codes.
        "V1" => DType::U8,
        "i1" => DType::I8,
        "i2" => DType::I16,
        "i4" => DType::I32,
        "i8" => DType::I64,
        "u1" => DType::U8,
        "u2" => DType::U16,
        "u4" => DType::U32,
        "u8" => DType::U64,
        _ => return Err(format!("numpy dtype `{descr}` is not supported")),
    };
    let fortran = field(text, "fortran_order").is_some_and(|f| f.starts_with("True"));
    let shape = field(text, "shape").and_then(|s| s.strip_prefix('(')).and_then(|s| s.split(')').next());
    let shape: Result<Vec<i64>, String> = shape
        .ok_or_else(bad)?
        .split(',')
        .map(str::trim)
        .filter(|d| !d.is_empty())
        .map(|d| d.trim_end_matches('L').parse::<i64>().ok().filter(|d| *d >= 0).ok_or_else(bad))
        .collect();
    Ok(Header { dtype, big_endian, fortran, shape: shape?, data })
}

/// What follows `'name':` in the dictionary.
fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let at = text.find(&format!("'{name}'")).or_else(|| text.find(&format!("\"{name}\"")))?;
    let rest = text[at + name.len() + 2..].trim_start();
    Some(rest.strip_prefix(':')?.trim_start())
}

/// The header of a little-endian row-major array; its length is a multiple of 64.
pub fn write_header(dtype: DType, shape: &[i64]) -> Result<Vec<u8>, String> {
    use relax_ir::TypeCode::*;
    let descr = match (dtype.code, dtype.bytes()) {
        _ if dtype.lanes != 1 => return Err(format!("numpy has no dtype for {dtype}")),
        (Bool, _) => "|b1".to_string(),
        // The codes.
        (Small(_), _) => "|u1".to_string(),
        (Int, 1) => "|i1".to_string(),
        (UInt, 1) => "|u1".to_string(),
        (Int, n) => format!("<i{n}"),
        (UInt, n) => format!("<u{n}"),
        (Float, n) => format!("<f{n}"),
        (BFloat, _) => "<V2".to_string(),
        (Handle, _) => return Err("numpy has no dtype for pointers".into()),
    };
    let dims: Vec<String> = shape.iter().map(i64::to_string).collect();
    let tuple = match dims.as_slice() {
        [one] => format!("({one},)"),
        many => format!("({})", many.join(", ")),
    };
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {tuple}, }}");
    while (10 + text.len() + 1) % 64 != 0 {
        text.push(' ');
    }
    text.push('\n');
    let length = u16::try_from(text.len()).map_err(|_| "the array has too many dims")?;
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend(length.to_le_bytes());
    out.extend(text.as_bytes());
    Ok(out)
}

/// Bytes in row-major little-endian order.
pub fn to_row_major(h: &Header, mut data: Vec<u8>) -> Vec<u8> {
    let n = h.dtype.bytes();
    if h.big_endian && n > 1 {
        data.chunks_exact_mut(n).for_each(<[u8]>::reverse);
    }
    if !h.fortran || h.shape.len() < 2 {
        return data;
    }
    // Walks the row-major order and keeps the place in the column-major data.
    let shape: Vec<usize> = h.shape.iter().map(|d| *d as usize).collect();
    let strides: Vec<usize> = shape
        .iter()
        .scan(1, |s, d| {
            let stride = *s;
            *s *= d;
            Some(stride)
        })
        .collect();
    let mut index = vec![0; shape.len()];
    let mut out = Vec::with_capacity(data.len());
    for _ in 0..data.len() / n {
        let from: usize = index.iter().zip(&strides).map(|(i, s)| i * s).sum::<usize>() * n;
        out.extend_from_slice(&data[from..from + n]);
        for k in (0..shape.len()).rev() {
            index[k] += 1;
            if index[k] < shape[k] {
                break;
            }
            index[k] = 0;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_every_dtype_come_back() {
        let dtypes = [
            DType::F32,
            DType::F64,
            DType::F16,
            DType::BF16,
            DType::BOOL,
            DType::I8,
            DType::I16,
            DType::I32,
            DType::I64,
            DType::U8,
            DType::U16,
            DType::U32,
            DType::U64,
        ];
        for dtype in dtypes {
            for shape in [vec![], vec![3], vec![2, 0, 5]] {
                let bytes = write_header(dtype, &shape).expect("a header");
                assert_eq!(bytes.len() % 64, 0);
                let data = bytes.len();
                let wanted = Header { dtype, big_endian: false, fortran: false, shape, data };
                assert_eq!(header(&bytes), Ok(wanted));
                for n in 0..data {
                    assert!(header(&bytes[..n]).is_err());
                }
            }
        }
    }

    #[test]
    fn column_major_and_big_endian_are_turned() {
        let h = Header { dtype: DType::I16, big_endian: true, fortran: true, shape: vec![2, 3], data: 0 };
        // [[1, 2, 3], [4, 5, 6]] column by column, high byte first.
        let data = vec![0, 1, 0, 4, 0, 2, 0, 5, 0, 3, 0, 6];
        assert_eq!(to_row_major(&h, data), [1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0]);
    }
}
