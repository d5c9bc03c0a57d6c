//! Struct info and attribute values.

use super::scalar::{float_literal, quote, scalar_type};
use super::Printer;
use crate::attrs::{AttrValue, Attrs};
use crate::prim::PrimExpr;
use crate::relax::{FuncInfo, StructInfo, TensorInfo, TensorShape};

/// Where a type stands: expressions among the dims of a signature go in quotes.
#[derive(Clone, Copy, PartialEq)]
pub enum Place {
    Signature,
    Body,
}

impl Printer<'_> {
    pub fn info(&mut self, s: &StructInfo, place: Place) -> String {
        match s {
            StructInfo::Tensor(t) => self.tensor_info(t, place),
            StructInfo::Shape { values: Some(v), .. } => {
                let dims: Vec<String> = v.iter().map(|d| self.dim(d, place)).collect();
                format!("R.Shape([{}])", dims.join(", "))
            }
            StructInfo::Shape { values: None, ndim: Some(n) } => format!("R.Shape(ndim={n})"),
            StructInfo::Shape { values: None, ndim: None } => "R.Shape(ndim=-1)".to_string(),
            StructInfo::Prim { dtype, value: None } => scalar_type(*dtype),
            StructInfo::Prim { value: Some(v), .. } => format!("R.Prim(value={})", self.dim(v, place)),
            StructInfo::Tuple(fields) if fields.is_empty() => "R.Tuple".to_string(),
            StructInfo::Tuple(fields) => format!("R.Tuple({})", self.infos(fields, place)),
            StructInfo::Func(f) => self.func_info(f, place),
            StructInfo::Object => "R.Any".to_string(),
            StructInfo::Str => "I.StringType()".to_string(),
            // TVM has no type of its own for data types.
            StructInfo::DType => "R.Any".to_string(),
        }
    }

    pub fn infos(&mut self, list: &[StructInfo], place: Place) -> String {
        let list: Vec<String> = list.iter().map(|s| self.info(s, place)).collect();
        list.join(", ")
    }

    pub fn dim(&mut self, d: &PrimExpr, place: Place) -> String {
        match place {
            Place::Signature => self.signature_dim(d),
            Place::Body => self.prim(d),
        }
    }

    /// `(n, 4)`, `(n,)`, `()`
    pub fn dim_tuple(&mut self, dims: &[PrimExpr], place: Place) -> String {
        let list: Vec<String> = dims.iter().map(|d| self.dim(d, place)).collect();
        match list.len() {
            1 => format!("({},)", list[0]),
            _ => format!("({})", list.join(", ")),
        }
    }

    fn tensor_info(&mut self, t: &TensorInfo, place: Place) -> String {
        let mut args = vec![];
        match &t.shape {
            Some(TensorShape::Dims(dims)) => args.push(self.dim_tuple(dims, place)),
            Some(TensorShape::Var(v)) => args.push(self.names.get(v.id(), v.name())),
            None => {}
        }
        if let Some(d) = t.dtype {
            args.push(format!("dtype=\"{d}\""));
        }
        if let (None, Some(n)) = (&t.shape, t.ndim) {
            args.push(format!("ndim={n}"));
        }
        if let Some(v) = &t.vdevice {
            args.push(format!("vdevice={}", quote(v)));
        }
        match args.is_empty() {
            true => "R.Tensor".to_string(),
            false => format!("R.Tensor({})", args.join(", ")),
        }
    }

    fn func_info(&mut self, f: &FuncInfo, place: Place) -> String {
        let Some(params) = &f.params else {
            let mut args = vec![];
            if f.ret != StructInfo::Object {
                args.push(format!("ret={}", self.info(&f.ret, place)));
            }
            if f.pure {
                args.push("purity=True".to_string());
            }
            if let Some(d) = f.derive.as_ref().filter(|d| *d != "empty") {
                args.push(format!("derive_func={}", quote(d)));
            }
            return match args.is_empty() {
                true => "R.Callable".to_string(),
                false => format!("R.Callable({})", args.join(", ")),
            };
        };
        let comma = if params.len() == 1 { "," } else { "" };
        let params = self.infos(params, place);
        let ret = self.info(&f.ret, place);
        format!("R.Callable(({params}{comma}), {ret}, {})", if f.pure { "True" } else { "False" })
    }

    pub fn attr(&mut self, v: &AttrValue) -> String {
        match v {
            AttrValue::None => "None".to_string(),
            AttrValue::Bool(b) => if *b { "True" } else { "False" }.to_string(),
            AttrValue::Int(v) => v.to_string(),
            AttrValue::Float(v) if v.is_finite() => float_literal(*v),
            AttrValue::Float(v) => format!("float({})", float_literal(*v)),
            AttrValue::Str(s) => quote(s),
            AttrValue::DType(d) => format!("\"{d}\""),
            AttrValue::List(list) => {
                let list: Vec<String> = list.iter().map(|v| self.attr(v)).collect();
                format!("[{}]", list.join(", "))
            }
            AttrValue::Dict(entries) => self.dict(entries),
            // Outside of expressions a bare number is an `Int`.
            AttrValue::Prim(p) => match p.as_int() {
                Some(v) if p.dtype() == self.int || p.dtype().is_bool() => {
                    let v = if p.dtype().is_bool() { self.attr(&AttrValue::Bool(v != 0)) } else { v.to_string() };
                    format!("T.{}({v})", p.dtype())
                }
                _ => self.prim(p),
            },
            AttrValue::IndexMap(m) => {
                let mark = self.names.mark();
                let params: Vec<String> = m.params.iter().map(|v| self.names.declare(v.id(), v.name())).collect();
                let int = m.params.first().map_or(self.int, |v| v.dtype());
                let outer = std::mem::replace(&mut self.int, int);
                let results = self.dim_tuple(&m.results, Place::Body);
                self.int = outer;
                self.names.leave(mark);
                format!("T.index_map(lambda {}: {results})", params.join(", "))
            }
            AttrValue::StructInfo(s) => self.info(s, Place::Body),
            AttrValue::Const(c) => self.constant(c),
            AttrValue::GlobalInfo(text) => text.clone(),
        }
    }

    pub fn dict(&mut self, entries: &[(String, AttrValue)]) -> String {
        let list: Vec<String> = entries.iter().map(|(k, v)| format!("{}: {}", quote(k), self.attr(v))).collect();
        format!("{{{}}}", list.join(", "))
    }

    pub fn attrs(&mut self, attrs: &Attrs) -> String {
        self.dict(&attrs.0)
    }
}
