//! ONNX models to an IR module.
//!
//! [`import`] decodes the file ([`proto`]) and translates the graph node by node ([`graph`]): each operator by the entry
//! of its name and version in the table of [`ops`], which sees the node through [`node::NodeCx`] and emits Relax
//! through [`builder::Builder`]. Shapes are derived by our own analysis: what the file states of intermediate values is
//! not trusted. Values that are known at import flow through [`known`], so that shape code disappears.
//!
//! Every problem of a model is reported in one run. There is no text to point at: messages name the node, its operator
//! and version.

mod alternatives;
pub mod builder;
mod choices;
mod graph;
mod kind;
mod known;
pub mod node;
pub mod ops;
mod order;
pub mod proto;
mod ranks;
mod schema;
mod stated;
pub mod tensor;
pub mod value;

use prost::bytes::Bytes;
use prost::Message;
use relax_ir::{Constant, Diagnostic, Diagnostics, FileId, IRModule, Span};
use std::path::Path;

/// The result of a step that reports one problem.
pub type Res<T> = Result<T, Diagnostic>;

/// How a model is imported.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The name of the entry; `main` unless stated.
    pub entry: Option<String>,
    /// The structure of inputs that are sequences or optionals, or the values of inputs that decide structure, by
    /// name: code is compiled for it.
    pub structures: Vec<(String, Structure)>,
}

/// The structure that a sequence or an optional has, or the values of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Structure {
    /// An optional that holds nothing.
    Empty,
    /// A sequence of so many elements; the rank of the elements is for models that do not state it.
    Sequence { length: usize, rank: Option<usize> },
    /// A tensor of these integers or bools: other values are an error at run time.
    Values(Vec<i64>),
}

impl Structure {
    /// Reads `NAME=none`, `NAME=3`, `NAME=3:2` (three elements of two dims each) or `NAME=[5]` (values).
    pub fn parse(text: &str) -> Res<(String, Structure)> {
        let wrong = || {
            Diagnostic::error("structure", Span::NONE, format!("`{text}` is no structure of an input"))
                .help("write NAME=none, NAME=LENGTH, NAME=LENGTH:RANK or NAME=[VALUE,..]")
        };
        let (name, value) = text.rsplit_once('=').ok_or_else(wrong)?;
        if value == "none" {
            return Ok((name.to_string(), Structure::Empty));
        }
        if let Some(list) = value.strip_prefix('[').and_then(|v| v.strip_suffix(']')) {
            let values = list.split(',').map(str::trim).filter(|v| !v.is_empty());
            let values = values.map(|v| v.parse().map_err(|_| wrong())).collect::<Res<_>>()?;
            return Ok((name.to_string(), Structure::Values(values)));
        }
        let (length, rank) = match value.split_once(':') {
            Some((l, r)) => (l, Some(r.parse().map_err(|_| wrong())?)),
            None => (value, None),
        };
        let length = length.parse().map_err(|_| wrong())?;
        Ok((name.to_string(), Structure::Sequence { length, rank }))
    }
}

/// Imports a model. `bytes` is the file's content: constants keep a reference to it and copy nothing. External data is
/// looked up beside `path`. The module is there when there is no error.
pub fn import(file: FileId, path: &Path, bytes: Bytes, options: &Options) -> (Option<IRModule>, Diagnostics) {
    let _ = file;
    let model = match proto::ModelProto::decode(bytes) {
        Ok(m) => m,
        Err(e) => {
            let d =
                Diagnostic::error("onnx-file", Span::NONE, format!("{}: this is no ONNX model: {e}", path.display()));
            return (None, d.into());
        }
    };
    graph::model(&model, path, options)
}

/// The tensors `{what}_0.pb`, `{what}_1.pb`, .. of a folder in the layout of ONNX's tests (`test_data_set_0`).
pub fn data_set(folder: &Path, what: &str) -> Res<Vec<(String, Constant)>> {
    let mut out = vec![];
    let wrong = |path: &Path, why: &dyn std::fmt::Display| {
        Diagnostic::error("data-set", Span::NONE, format!("{}: {why}", path.display()))
    };
    loop {
        let path = folder.join(format!("{what}_{}.pb", out.len()));
        if !path.exists() {
            break;
        }
        let bytes = std::fs::read(&path).map_err(|e| wrong(&path, &e))?;
        let t = proto::TensorProto::decode(&bytes[..]).map_err(|e| wrong(&path, &format!("this is no tensor: {e}")))?;
        let name = t.name.clone().unwrap_or_default();
        let value = tensor::constant(&t, &mut tensor::External::beside(&path));
        out.push((name, value.map_err(|d| Diagnostic { message: format!("{}: {}", path.display(), d.message), ..d })?));
    }
    match out.is_empty() {
        true => {
            Err(wrong(folder, &format!("the folder has no {what}_0.pb"))
                .help("tensors as in the folders of ONNX's tests"))
        }
        false => Ok(out),
    }
}

/// A model file as [`import`] takes it: mapped, not read.
pub fn open(path: &Path) -> Res<Bytes> {
    struct Owner(std::sync::Arc<memmap2::Mmap>);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    Ok(Bytes::from_owner(Owner(crate::weights::mapped::map(path)?)))
}
