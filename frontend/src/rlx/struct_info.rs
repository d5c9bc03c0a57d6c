//! Types: `R.Tensor(..)`, `R.Shape(..)`, `R.Tuple(..)`, `R.Callable(..)`, `R.Prim(..)`, `T.int64`, `R.Any`.

use super::context::{Cx, Value};
use super::syntax::*;
use super::tir_func::named_type;
use crate::suggest::nearest;
use relax_ir::relax::{FuncInfo, RVar, StructInfo, TensorInfo, TensorShape};
use relax_ir::{DType, Diagnostic, Span};
use std::sync::Arc;

const TYPES: [&str; 11] = [
    "R.Tensor",
    "R.Shape",
    "R.Tuple",
    "R.Callable",
    "R.Prim",
    "R.Any",
    "R.Object",
    "I.StringType",
    "T.int64",
    "T.float32",
    "T.bool",
];

/// What DLPack's consumers and TVM's saved tensors stay below by far.
const MAX_RANK: usize = 64;

impl<'a> Cx<'a> {
    pub fn struct_info(&mut self, e: &Expr<'a>) -> Option<StructInfo> {
        let (name, call) = match e.as_call() {
            Some(c) => (c.func.dotted(), Some(c)),
            None => (e.dotted(), None),
        };
        let Some(name) = name else {
            if let ExprKind::None = e.kind {
                return Some(StructInfo::unit());
            }
            return self.expected(e, "a type");
        };
        if let (ExprKind::Attribute(of, field), None) = (&e.kind, call) {
            if matches!(field.name, "ty" | "struct_info") {
                return self.type_of(of);
            }
        }
        match (name.as_str(), call) {
            ("R.Tensor", call) => self.tensor(call, e.span),
            ("R.Shape", call) => self.shape_type(call, e.span),
            ("R.Tuple", None) => Some(StructInfo::Tuple(vec![])),
            ("R.Tuple", Some(c)) => {
                let fields = match c.args.as_slice() {
                    [one] if one.elements().is_some() => one.elements().unwrap_or(&[]),
                    many => many,
                };
                let fields: Vec<Option<StructInfo>> = fields.iter().map(|f| self.struct_info(f)).collect();
                Some(StructInfo::Tuple(fields.into_iter().collect::<Option<_>>()?))
            }
            ("R.Callable", call) => self.callable(call, e.span),
            ("R.Prim", call) => self.prim_type(call, e.span),
            ("R.Any" | "R.Object", _) => Some(StructInfo::Object),
            ("I.StringType" | "R.String", _) => Some(StructInfo::Str),
            ("R.DType" | "I.DTypeType", _) => Some(StructInfo::DType),
            ("R.DTensor", _) => {
                self.unsupported("distributed", e.span, "distributed tensors (R.DTensor) are not supported")
            }
            (n, call) => {
                if let Some(dtype) = n.strip_prefix("T.").and_then(named_type) {
                    if call.is_none() {
                        return Some(StructInfo::Prim { dtype, value: None });
                    }
                    let d = Diagnostic::error("type", e.span, "this is a variable, a type is needed here");
                    return self.report(d.help(format!("write `{n}`, without parentheses")));
                }
                let mut d = Diagnostic::error("type", e.span, format!("`{n}` is no type"));
                d = match nearest(n, TYPES) {
                    Some(t) => d.help(format!("did you mean `{t}`?")),
                    None => d.help("types are R.Tensor, R.Shape, R.Tuple, R.Callable, R.Any and T.int64 and its kin"),
                };
                self.report(d)
            }
        }
    }

    pub fn known_keywords(&mut self, call: &CallExpr<'a>, known: &[&'static str]) {
        for (k, _) in &call.keywords {
            if !known.contains(&k.name) {
                let mut d = Diagnostic::error("argument", k.span, format!("there is no argument `{}` here", k.name));
                if let Some(n) = nearest(k.name, known.iter().copied()) {
                    d = d.help(format!("did you mean `{n}`?"));
                } else {
                    d = d.help(format!("the arguments are {}", known.join(", ")));
                }
                self.diags.push(d);
            }
        }
    }

    fn tensor(&mut self, call: Option<&CallExpr<'a>>, span: Span) -> Option<StructInfo> {
        let mut info = TensorInfo { shape: None, dtype: None, ndim: None, vdevice: None };
        let Some(call) = call else { return Some(StructInfo::Tensor(info)) };
        self.known_keywords(call, &["shape", "dtype", "vdevice", "ndim"]);
        let mut shape = call.arg(0, "shape");
        let mut dtype = call.arg(1, "dtype");
        if let Some(s) = shape {
            if dtype.is_none() && s.as_str().is_some_and(|t| t.parse::<DType>().is_ok()) {
                // `R.Tensor("float32", ndim=2)`
                dtype = Some(s);
                shape = None;
            }
        }
        let mut ok = true;
        match shape {
            None => {}
            Some(s) if matches!(s.kind, ExprKind::None) => {}
            Some(s) if s.elements().is_some() => match self.dims(s) {
                Some(dims) => {
                    info.ndim = Some(dims.len());
                    info.shape = Some(TensorShape::Dims(dims));
                }
                None => ok = false,
            },
            Some(s) => match s.as_name().and_then(|n| self.names.get(n)) {
                Some(Value::Relax(v)) => info.shape = Some(TensorShape::Var(RVar::clone(v))),
                Some(Value::Poison) => ok = false,
                _ => match s.called().as_deref() {
                    Some("R.shape") => match s.as_call().and_then(|c| c.args.first()).and_then(|l| self.dims(l)) {
                        Some(dims) => {
                            info.ndim = Some(dims.len());
                            info.shape = Some(TensorShape::Dims(dims));
                        }
                        None => ok = false,
                    },
                    _ => return self.expected(s, "a list of dims"),
                },
            },
        }
        match dtype {
            None => {}
            Some(d) if matches!(d.kind, ExprKind::None) || d.as_str().is_some_and(|s| s == "void" || s.is_empty()) => {}
            Some(d) => match self.dtype(d) {
                // `R.dtype(..)` is a value, no name of a type.
                Some(_) if d.called().as_deref() == Some("R.dtype") => {
                    return self.expected(d, "a data type in quotes");
                }
                Some(t) if t.is_handle() => {
                    return self.error("dtype", d.span, "a tensor has no elements of type handle")
                }
                Some(t) => info.dtype = Some(t),
                None => ok = false,
            },
        }
        if info.ndim.is_some_and(|n| n > MAX_RANK) {
            let n = info.ndim.unwrap_or(0);
            return self.unsupported("type", span, format!("a tensor of {n} dims: a rank is from 0 to {MAX_RANK}"));
        }
        if let Some(n) = call.arg(3, "ndim") {
            match self.int(n)? {
                -1 => {}
                n @ 0..=64 => {
                    if let Some(have) = info.ndim {
                        let message = match n == have as i64 {
                            true => "a tensor states its shape or its rank, not both".to_string(),
                            false => format!("the shape has {have} dims, ndim says {n}"),
                        };
                        return self.report(Diagnostic::error("type", span, message).help("leave ndim out"));
                    }
                    info.ndim = Some(n as usize);
                }
                _ => return self.error("type", n.span, "a rank is from 0 to 64"),
            }
        }
        if let Some(v) = call.arg(2, "vdevice") {
            info.vdevice = match v.as_str() {
                Some(_) => Some(self.listed_device(v, false)?),
                None if matches!(v.kind, ExprKind::Int(_) | ExprKind::Float(_) | ExprKind::Bool(_)) => {
                    return self.expected(v, "a device");
                }
                None => {
                    self.target_exists(v)?;
                    self.vdevice(v)
                }
            };
        }
        ok.then_some(StructInfo::Tensor(info))
    }

    fn shape_type(&mut self, call: Option<&CallExpr<'a>>, _span: Span) -> Option<StructInfo> {
        let Some(call) = call else { return Some(StructInfo::Shape { values: None, ndim: None }) };
        self.known_keywords(call, &["values", "ndim"]);
        if let Some(values) = call.arg(0, "values").filter(|v| !matches!(v.kind, ExprKind::None)) {
            let info = self.dims(values).map(StructInfo::shape)?;
            if let (Some(n), StructInfo::Shape { ndim: Some(have), .. }) = (call.arg(1, "ndim"), &info) {
                let stated = self.int(n)?;
                if stated != -1 {
                    let message = match stated == *have as i64 {
                        true => "a shape states its values or their number, not both".to_string(),
                        false => format!("the shape has {have} values, ndim says {stated}"),
                    };
                    return self.error("type", n.span, message);
                }
            }
            return Some(info);
        }
        let ndim = match call.arg(1, "ndim") {
            None => None,
            Some(n) => match self.int(n)? {
                -1 => None,
                v @ 0..=64 => Some(v as usize),
                _ => return self.error("type", n.span, "a rank is from 0 to 64"),
            },
        };
        Some(StructInfo::Shape { values: None, ndim })
    }

    /// `R.Prim("int64")`, `R.Prim(value=n)`
    fn prim_type(&mut self, call: Option<&CallExpr<'a>>, span: Span) -> Option<StructInfo> {
        let Some(call) = call else { return self.error("type", span, "R.Prim needs a data type") };
        self.known_keywords(call, &["dtype", "value"]);
        if let Some(e) = call.args.get(1) {
            return self.error("argument", e.span, "R.Prim takes one data type");
        }
        // How TVM 0.25 and before states a value.
        if let Some(v) = call.keyword("value") {
            let value = if v.as_str().is_some() { self.dim(v)? } else { self.prim(v)? };
            return Some(StructInfo::Prim { dtype: value.dtype(), value: Some(value) });
        }
        let Some(d) = call.arg(0, "dtype") else { return self.error("type", span, "R.Prim needs a data type") };
        self.dtype(d).map(|dtype| StructInfo::Prim { dtype, value: None })
    }

    fn callable(&mut self, call: Option<&CallExpr<'a>>, span: Span) -> Option<StructInfo> {
        // Of a function of unknown parameters nothing can be derived.
        let empty = || Some("empty".to_string());
        let unknown = FuncInfo { params: None, ret: StructInfo::Object, pure: false, derive: empty() };
        let Some(call) = call else { return Some(StructInfo::Func(Arc::new(unknown))) };
        self.known_keywords(call, &["params", "ret", "purity", "derive_func"]);
        let params = match call.arg(0, "params").filter(|p| !matches!(p.kind, ExprKind::None)) {
            None => None,
            Some(p) => {
                let list = match p.elements() {
                    Some(items) => items,
                    None => std::slice::from_ref(p),
                };
                let list: Vec<Option<StructInfo>> = list.iter().map(|f| self.struct_info(f)).collect();
                Some(list.into_iter().collect::<Option<Vec<_>>>()?)
            }
        };
        let ret = match call.arg(1, "ret") {
            Some(r) => self.struct_info(r)?,
            None if params.is_none() => StructInfo::Object,
            None => return self.error("type", span, "R.Callable needs the type of its result"),
        };
        let pure = match call.arg(2, "purity") {
            Some(p) => self.bool(p)?,
            None => params.is_some(),
        };
        let derive = match call.keyword("derive_func") {
            Some(d) => Some(self.string(d)?),
            None if params.is_none() => empty(),
            None => None,
        };
        Some(StructInfo::Func(Arc::new(FuncInfo { params, ret, pure, derive })))
    }
}
