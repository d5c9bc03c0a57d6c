//! The safetensors format: a JSON header with dtype, shape and byte range of every tensor, then the data.

use super::mapped::{map, MappedBytes};
use super::{byte_size, failed, unsupported, Weights};
use relax_ir::{Constant, DType, Diagnostic};
use safetensors::tensor::Dtype;
use safetensors::{SafeTensorError, SafeTensors};
use std::path::Path;
use std::sync::Arc;

/// What is wrong with a file.
fn reason(e: &SafeTensorError) -> String {
    match e {
        SafeTensorError::HeaderTooSmall => "not a safetensors file: it has less than 8 bytes".into(),
        SafeTensorError::HeaderTooLarge | SafeTensorError::InvalidHeaderLength => {
            "not a safetensors file: the header is longer than the file".into()
        }
        SafeTensorError::InvalidHeader(_) => "not a safetensors file: the header is no text".into(),
        SafeTensorError::InvalidHeaderDeserialization(e) => {
            format!("not a safetensors file: the header is no JSON: {e}")
        }
        SafeTensorError::MetadataIncompleteBuffer => {
            "the tensors of the header and the data behind it differ in size: the file is cut off or damaged".into()
        }
        SafeTensorError::InvalidOffset(name) => format!("tensor `{name}` does not follow the one before it"),
        SafeTensorError::TensorInvalidInfo => "a tensor's shape and dtype do not fit its bytes".into(),
        SafeTensorError::ValidationOverflow => "a tensor has more elements than memory can hold".into(),
        e => format!("not a safetensors file: {e}"),
    }
}

/// Opens a `.safetensors` file; the tensors borrow from the mapped file, in the order of their data.
pub fn open_safetensors(path: &Path) -> Result<Weights, Diagnostic> {
    let map = map(path)?;
    let (header, metadata) = SafeTensors::read_metadata(&map).map_err(|e| failed(path, reason(&e)))?;
    let start = header + 8;
    let mut tensors: Vec<_> = metadata.tensors().into_iter().collect();
    tensors.sort_by(|a, b| (a.1.data_offsets, &a.0).cmp(&(b.1.data_offsets, &b.0)));
    let mut out = vec![];
    for (name, info) in tensors {
        let dtype = match info.dtype {
            Dtype::BOOL => DType::BOOL,
            Dtype::U8 => DType::U8,
            Dtype::I8 => DType::I8,
            Dtype::U16 => DType::U16,
            Dtype::I16 => DType::I16,
            Dtype::U32 => DType::U32,
            Dtype::I32 => DType::I32,
            Dtype::U64 => DType::U64,
            Dtype::I64 => DType::I64,
            Dtype::F16 => DType::F16,
            Dtype::BF16 => DType::BF16,
            Dtype::F32 => DType::F32,
            Dtype::F64 => DType::F64,
            other => return Err(unsupported(path, format!("tensor `{name}` has dtype {other:?}"))),
        };
        let shape: Option<Vec<i64>> = info.shape.iter().map(|d| i64::try_from(*d).ok()).collect();
        let range = start + info.data_offsets.0..start + info.data_offsets.1;
        let fits = shape.as_ref().and_then(|s| byte_size(s, dtype.bytes())) == Some(range.len());
        let (Some(shape), true, true) = (shape, fits, range.end <= map.len()) else {
            return Err(failed(path, format!("tensor `{name}` does not fit its place in the file")));
        };
        let data = Arc::new(MappedBytes { map: map.clone(), range });
        out.push((name, Constant { dtype, shape, data }));
    }
    Ok(out)
}
