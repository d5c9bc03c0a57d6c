//! Tensors of a model as constants: typed fields, raw bytes, and external files, which are mapped and never copied.

use super::kind::{storage, Kind};
use super::proto::{data_type as T, SparseTensorProto, TensorProto};
use super::value::Tensor;
use crate::weights::mapped::{map, MappedBytes};
use memmap2::Mmap;
use prost::bytes::Bytes;
use relax_ir::constant::ConstantData;
use relax_ir::{Constant, DType, Diagnostic, Span};
use sha1::{Digest, Sha1};
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Bytes of the model file itself.
#[derive(Debug)]
struct FileBytes(Bytes);

impl ConstantData for FileBytes {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// External files of a model, mapped once each.
#[derive(Default)]
pub struct External {
    folder: PathBuf,
    maps: HashMap<PathBuf, Arc<Mmap>>,
    /// SHA-1 of files, where the model states it.
    digests: HashMap<String, String>,
}

impl External {
    /// Files are looked up beside the model.
    pub fn beside(model: &Path) -> External {
        External { folder: model.parent().unwrap_or(Path::new("")).to_path_buf(), ..Default::default() }
    }

    fn open(&mut self, location: &str) -> Result<Arc<Mmap>, Diagnostic> {
        let relative = Path::new(location);
        let inside = relative.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
        if !inside || location.is_empty() {
            return Err(Diagnostic::error(
                "external-data",
                Span::NONE,
                format!("the external file `{location}` must lie beside the model or in a folder below it"),
            ));
        }
        let path = self.folder.join(relative);
        if let Some(m) = self.maps.get(&path) {
            return Ok(m.clone());
        }
        let m = map(&path)?;
        self.maps.insert(path, m.clone());
        Ok(m)
    }

    /// The whole file has the digest that the model states of it. Source: ONNX, `TensorProto.external_data`.
    fn verify(&mut self, location: &str, file: &Mmap, stated: &str) -> Result<(), Diagnostic> {
        let digest = self
            .digests
            .entry(location.to_string())
            .or_insert_with(|| Sha1::digest(file).iter().map(|b| format!("{b:02x}")).collect());
        if digest.eq_ignore_ascii_case(stated.trim()) {
            return Ok(());
        }
        let what = format!("the SHA-1 of the external file `{location}` is {digest}, the model states {stated}");
        Err(Diagnostic::error("external-data", Span::NONE, what)
            .help("the file was changed or belongs to another model: put the one that was saved with the model there"))
    }
}

/// The dtype that holds an ONNX element type; `None` for types without a counterpart.
pub fn dtype_of(elem_type: i32) -> Option<DType> {
    Some(match elem_type {
        T::FLOAT => DType::F32,
        T::UINT8 => DType::U8,
        T::INT8 => DType::I8,
        T::UINT16 => DType::U16,
        T::INT16 => DType::I16,
        T::INT32 => DType::I32,
        T::INT64 => DType::I64,
        T::BOOL => DType::BOOL,
        T::FLOAT16 => DType::F16,
        T::DOUBLE => DType::F64,
        T::UINT32 => DType::U32,
        T::UINT64 => DType::U64,
        T::BFLOAT16 => DType::BF16,
        _ => return None,
    })
}

/// An element type as the standard names it.
pub fn type_name(elem_type: i32) -> &'static str {
    const NAMES: [&str; 29] = [
        "undefined",
        "float",
        "uint8",
        "int8",
        "uint16",
        "int16",
        "int32",
        "int64",
        "string",
        "bool",
        "float16",
        "double",
        "uint32",
        "uint64",
        "complex64",
        "complex128",
        "bfloat16",
        "float8e4m3fn",
        "float8e4m3fnuz",
        "float8e5m2",
        "float8e5m2fnuz",
        "uint4",
        "int4",
        "float4e2m1",
        "float8e8m0",
        "uint2",
        "int2",
        "float6e2m3",
        "float6e3m2",
    ];
    usize::try_from(elem_type).ok().and_then(|i| NAMES.get(i)).copied().unwrap_or("unknown")
}

/// The dtype of an element type, or what the user reads when there is none.
pub fn require_dtype(elem_type: i32) -> Result<DType, Diagnostic> {
    dtype_of(elem_type).ok_or_else(|| {
        Diagnostic::unsupported(
            "onnx-type",
            Span::NONE,
            format!("elements of type {} ({elem_type}) are not supported", type_name(elem_type)),
        )
    })
}

/// The dtype that holds an element type and what the bytes mean, or what the user reads when there is none.
pub fn require_storage(elem_type: i32) -> Result<(DType, Kind), Diagnostic> {
    storage(elem_type).map_or_else(|| require_dtype(elem_type).map(|d| (d, Kind::Plain)), Ok)
}

/// A tensor of the model and what its elements mean.
pub fn read(t: &TensorProto, external: &mut External) -> Result<Tensor, Diagnostic> {
    let (dtype, kind) = match storage(t.data_type.unwrap_or(0)) {
        Some((dtype, kind)) if kind != Kind::Plain => (dtype, kind),
        _ => return constant(t, external).map(Tensor::constant),
    };
    if kind == Kind::Text {
        let elements = t.dims.iter().try_fold(1i64, |n, d| n.checked_mul((*d).max(0)));
        if elements != Some(t.string_data.len() as i64) {
            return Err(Diagnostic::error(
                "onnx-tensor",
                Span::NONE,
                format!("{} strings for dims {:?}", t.string_data.len(), t.dims),
            ));
        }
        return Ok(texts(&t.dims, &t.string_data));
    }
    // Packed bytes, read as such.
    let elements = t
        .dims
        .iter()
        .try_fold(1usize, |n, d| n.checked_mul(usize::try_from(*d).ok()?))
        .filter(|n| n.checked_mul(8).is_some())
        .ok_or_else(|| Diagnostic::error("onnx-tensor", Span::NONE, "dims are negative or too large"))?;
    let packed = elements.div_ceil(8 / kind.bits());
    // A typed field has one entry per byte.
    let bytes = TensorProto { dims: vec![packed as i64], data_type: Some(T::UINT8), ..t.clone() };
    let bytes = constant(&bytes, external)?;
    let data = kind.unpack(bytes.bytes(), elements);
    Ok(Tensor::constant(Constant::new(dtype, t.dims.clone(), data)).of_kind(kind))
}

/// Strings as a tensor.
pub fn texts<S: AsRef<[u8]>>(dims: &[i64], strings: &[S]) -> Tensor {
    let width = strings.iter().map(|s| s.as_ref().len()).max().unwrap_or(0).max(1);
    let mut bytes = vec![];
    for s in strings {
        bytes.extend_from_slice(s.as_ref());
        bytes.resize(bytes.len() + width - s.as_ref().len(), 0);
    }
    let mut dims = dims.to_vec();
    dims.push(width as i64);
    Tensor::constant(Constant::new(DType::U8, dims, bytes)).of_kind(Kind::Text)
}

/// A tensor of the model, of a type that has a dtype.
pub fn constant(t: &TensorProto, external: &mut External) -> Result<Constant, Diagnostic> {
    let name = t.name.as_deref().unwrap_or("");
    let wrong = |what: String| Diagnostic::error("onnx-tensor", Span::NONE, format!("tensor `{name}`: {what}"));
    let dtype = require_dtype(t.data_type.unwrap_or(0)).map_err(|d| d.note(format!("the tensor is `{name}`")))?;
    if t.segment.is_some() {
        return Err(wrong("tensors in segments are not supported".into()));
    }
    let shape = t.dims.clone();
    let elements = shape
        .iter()
        .try_fold(1usize, |n, d| n.checked_mul(usize::try_from(*d).ok()?))
        .ok_or_else(|| wrong(format!("dims {shape:?} are negative or too large")))?;
    let size = elements.checked_mul(dtype.bytes()).ok_or_else(|| wrong(format!("dims {shape:?} are too large")))?;
    let fits = |n: usize| -> Result<(), Diagnostic> {
        if n == size {
            Ok(())
        } else {
            Err(wrong(format!("{n} bytes of data, dims {shape:?} of {dtype} take {size}")))
        }
    };
    if t.data_location == Some(1) {
        let get =
            |k: &str| t.external_data.iter().find(|e| e.key.as_deref() == Some(k)).and_then(|e| e.value.as_deref());
        let number = |k: &str| -> Result<Option<usize>, Diagnostic> {
            let parse = |v: &str| v.parse().map_err(|_| wrong(format!("external {k} `{v}` is no number")));
            get(k).map(parse).transpose()
        };
        let location = get("location").ok_or_else(|| wrong("external data without a location".into()))?;
        let file = external.open(location)?;
        if let Some(stated) = get("checksum") {
            external.verify(location, &file, stated)?;
        }
        let start = number("offset")?.unwrap_or(0);
        let length = number("length")?.unwrap_or(size);
        fits(length)?;
        let end = start.checked_add(length).filter(|e| *e <= file.len()).ok_or_else(|| {
            wrong(format!("bytes {start} to {start}+{length} of `{location}`, which has {} bytes", file.len()))
        })?;
        return Ok(Constant { dtype, shape, data: Arc::new(MappedBytes { map: file, range: start..end }) });
    }
    if let Some(raw) = &t.raw_data {
        fits(raw.len())?;
        return Ok(Constant { dtype, shape, data: Arc::new(FileBytes(raw.clone())) });
    }
    let count = |n: usize| -> Result<(), Diagnostic> {
        if n == elements {
            Ok(())
        } else {
            Err(wrong(format!("{n} elements of data, dims {shape:?} hold {elements}")))
        }
    };
    let bytes: Vec<u8> = match t.data_type.unwrap_or(0) {
        T::FLOAT => {
            count(t.float_data.len())?;
            t.float_data.iter().flat_map(|v| v.to_le_bytes()).collect()
        }
        T::DOUBLE => {
            count(t.double_data.len())?;
            t.double_data.iter().flat_map(|v| v.to_le_bytes()).collect()
        }
        T::INT64 => {
            count(t.int64_data.len())?;
            t.int64_data.iter().flat_map(|v| v.to_le_bytes()).collect()
        }
        T::UINT32 | T::UINT64 => {
            count(t.uint64_data.len())?;
            t.uint64_data.iter().flat_map(|v| v.to_le_bytes()[..dtype.bytes()].to_vec()).collect()
        }
        _ => {
            // Smaller integers, bool and the bits of float16 and bfloat16.
            count(t.int32_data.len())?;
            t.int32_data.iter().flat_map(|v| v.to_le_bytes()[..dtype.bytes()].to_vec()).collect()
        }
    };
    Ok(Constant::new(dtype, shape, bytes))
}

/// A sparse tensor as a dense constant.
pub fn dense(s: &SparseTensorProto, external: &mut External) -> Result<Constant, Diagnostic> {
    let wrong = |what: &str| Diagnostic::error("onnx-tensor", Span::NONE, format!("sparse tensor: {what}"));
    let values = constant(s.values.as_ref().ok_or_else(|| wrong("there are no values"))?, external)?;
    let n = values.elements();
    let indices: Vec<i64> = match &s.indices {
        Some(i) => {
            let i = constant(i, external)?;
            (0..i.elements()).map(|k| i.get_i64(k)).collect()
        }
        None => vec![],
    };
    let elements = s
        .dims
        .iter()
        .try_fold(1usize, |n, d| n.checked_mul(usize::try_from(*d).ok()?))
        .filter(|n| *n <= 1 << 31)
        .ok_or_else(|| wrong("the dims are negative or too large"))?;
    let size = values.dtype.bytes();
    let mut bytes = vec![0; elements * size];
    let rank = s.dims.len();
    for k in 0..n {
        let flat = match indices.len() {
            m if m == n => indices[k],
            m if Some(m) == n.checked_mul(rank) => {
                let at = &indices[k * rank..(k + 1) * rank];
                if at.iter().zip(&s.dims).any(|(i, d)| i < &0 || i >= d) {
                    return Err(wrong("an index is out of range"));
                }
                at.iter().zip(&s.dims).fold(0, |f, (i, d)| f * d + i)
            }
            _ => return Err(wrong("as many indices as values are needed")),
        };
        let at =
            usize::try_from(flat).ok().filter(|f| *f < elements).ok_or_else(|| wrong("an index is out of range"))?;
        bytes[at * size..(at + 1) * size].copy_from_slice(&values.bytes()[k * size..(k + 1) * size]);
    }
    Ok(Constant::new(values.dtype, s.dims.clone(), bytes))
}
