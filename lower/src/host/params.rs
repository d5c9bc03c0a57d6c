//! Reading the arguments of an entry: flattened parameters, their checks, and the shape variables they bind.

use super::build::{Builder, Failure};
use super::check_tensor::{self, Checked};
use super::checks::Checks;
use super::plan::Scope;
use super::value::*;
use relax_ir::analysis::constraints::{self, Stated};
use relax_ir::analysis::show;
use relax_ir::prim::PrimKind;
use relax_ir::program::{code, value_check, DimStated, EntryDim, EntryKind, EntryValue};
use relax_ir::relax::{Function, StructInfo, StructInfoMap, TensorInfo};
use relax_ir::sym::Facts;
use relax_ir::{AttrValue, DType, Diagnostic, PrimExpr, Span, Var};
use std::collections::HashMap;

/// A flattened parameter.
#[derive(Clone)]
pub struct Leaf {
    pub name: String,
    pub kind: LeafKind,
    pub info: StructInfo,
    /// Where the parameter stands.
    pub span: Span,
}

/// The scalars among them are arguments of their own, whatever else has their name.
fn stated(f: &Function, v: &Var, leaves: &[Leaf]) -> DimStated {
    let dim = |l: &Leaf| match &l.kind {
        LeafKind::Tensor { dims, .. } | LeafKind::Unranked { dims: Some(dims), .. } => dims.contains(&v.expr()),
        LeafKind::Shape { values } => values.contains(&v.expr()),
        _ => false,
    };
    match (constraints::written(f, v.name()), constraints::solved_var(f, v.name())) {
        (Some(text), Some(var)) => DimStated::Solved { text: text.to_string(), var: var.to_string() },
        _ if leaves.iter().any(dim) => DimStated::Named,
        _ => DimStated::Scalar,
    }
}

#[derive(Clone)]
pub enum LeafKind {
    Tensor {
        dtype: DType,
        dims: Vec<PrimExpr>,
        ptr: Var,
    },
    /// Rank or dtype unknown: both arrive in variables.
    Unranked {
        dtype: Option<DType>,
        /// The dims of a tensor of any dtype whose rank is known.
        dims: Option<Vec<PrimExpr>>,
        /// Does the signature state them, as numbers or with variables of others?
        stated: bool,
        ptr: Var,
        ndim: Var,
        dtype_word: Var,
    },
    Shape {
        values: Vec<PrimExpr>,
    },
    Scalar {
        var: Var,
        value: Option<PrimExpr>,
    },
}

/// How the arguments of a function arrive.
pub struct Signature {
    pub leaves: Vec<Leaf>,
    /// Shape variables and scalars that the arguments bind, in order of first occurrence.
    pub vars: Vec<Var>,
    pub dims: Vec<EntryDim>,
    /// What the body starts with.
    pub scope: Scope,
    pub bufs: Vec<Buf>,
    /// Ranks and dtypes of unranked tensors: variables of the body, not of the interface.
    hidden: Vec<Var>,
    /// Dims of unranked tensors, known once planning has seen the MatchCasts.
    pub late: Vec<LateDim>,
    /// Dims that must agree, found while binding: (leaf, axis, dim) and its check number.
    checks: Vec<DimCheck>,
    /// What the function states of its shape variables, with its checks.
    constraints: Vec<(Stated, Numbered)>,
    /// Bounds and divisors of shape variables.
    limits: Vec<Limit>,
    /// Values of shapes, which are never negative.
    negative: Vec<DimCheck>,
    /// Checks of the body that come before the results are looked at: without them a dim of a result may be negative.
    pub first: Vec<Step>,
    /// By leaf: what the call record says when the argument is none.
    whats: Vec<String>,
}

/// The number of a check, and what the call record says when it fails.
type Numbered = (u32, String);

/// A bound or a divisor: what must not be, what there is and what is wanted.
struct Limit {
    broken: PrimExpr,
    got: PrimExpr,
    wanted: PrimExpr,
    check: Numbered,
}

struct DimCheck {
    leaf: usize,
    axis: usize,
    dim: PrimExpr,
    check: Numbered,
}

impl Signature {
    /// Flattens the parameters of `f`. Parameters of unknown structure are refused here.
    pub fn new(
        f: &Function,
        sinfo: &StructInfoMap,
        infos: &mut Checks,
        uncallable: bool,
    ) -> Result<Signature, Diagnostic> {
        let mut s = Signature {
            leaves: vec![],
            vars: vec![],
            dims: vec![],
            scope: Scope::default(),
            bufs: vec![],
            hidden: vec![],
            late: vec![],
            checks: vec![],
            constraints: vec![],
            limits: vec![],
            negative: vec![],
            first: vec![],
            whats: vec![],
        };
        for p in &f.params {
            let info = sinfo.get(&p.var).or(p.annotation.as_ref()).cloned().unwrap_or(StructInfo::Object);
            let value = s.flatten(p.var.name(), &info, p.var.span(), uncallable)?;
            s.scope.vars.insert(p.var.clone(), value);
        }
        for v in &s.vars {
            s.scope.dims.insert(v.clone(), v.expr());
        }
        let bound = |key: &str, v: &Var| match f.attrs.get(key) {
            Some(AttrValue::Dict(d)) => d.iter().find(|(n, _)| n == v.name()).and_then(|(_, x)| x.as_int()),
            _ => None,
        };
        for v in s.vars.iter().filter(|v| v.dtype() == DType::I64) {
            s.dims.push(EntryDim {
                var: v.clone(),
                lower: bound("tir_var_lower_bound", v),
                upper: bound("tir_var_upper_bound", v),
                divisor: bound(relax_ir::attrs::VAR_DIVISOR, v).filter(|k| *k > 1),
                stated: stated(f, v, &s.leaves),
            });
        }
        s.whats = s.leaves.iter().map(|l| infos.place(l.span, format!("parameter {}", l.name))).collect();
        s.number_checks(infos);
        for c in constraints::of(f, f.params.iter().filter_map(|p| p.annotation.as_ref()))? {
            let message = match &c.solves {
                Some((_, text)) => format!("{text} has no solution"),
                None => format!("shape constraint {}", c.text),
            };
            let check = infos.add(code::DIM, c.text.clone(), message, f.signature_span);
            s.constraints.push((c, check));
        }
        s.number_limits(f, infos);
        Ok(s)
    }

    /// What is known once the arguments were checked.
    pub fn facts(&self) -> Facts {
        let mut facts = Facts::new();
        for leaf in &self.leaves {
            if let LeafKind::Scalar { var, .. } = &leaf.kind {
                let dim = |l: &Leaf| match &l.kind {
                    LeafKind::Tensor { dims, .. } | LeafKind::Shape { values: dims } => {
                        dims.iter().any(|d| d.as_var() == Some(var))
                    }
                    _ => false,
                };
                if !self.leaves.iter().any(dim) {
                    facts.declare_signed(var);
                }
            }
        }
        for d in &self.dims {
            facts.declare_bounds(&d.var, d.lower, d.upper);
            facts.declare_divisor(&d.var, d.divisor.unwrap_or(1));
        }
        for (c, _) in &self.constraints {
            facts.assume(&c.condition);
        }
        facts
    }

    fn flatten(
        &mut self,
        name: &str,
        info: &StructInfo,
        span: Span,
        uncallable: bool,
    ) -> Result<HostValue, Diagnostic> {
        let refuse = |what: &str| {
            Err(Diagnostic::unsupported("parameter", span, format!("parameter {name}: {what} cannot be passed from C"))
                .here("declared here")
                .help("C passes tensors, shapes, scalars and tuples of these; what only other functions call is private=True"))
        };
        match info {
            StructInfo::Tuple(fields) => {
                let field = |(i, f)| self.flatten(&format!("{name}.{i}"), f, span, uncallable);
                let values = fields.iter().enumerate().map(field);
                Ok(HostValue::Tuple(values.collect::<Result<_, _>>()?))
            }
            StructInfo::Tensor(t) => {
                let (Some(dims), Some(dtype)) = (t.known_dims(), t.dtype) else {
                    return Ok(self.unranked(name, t, info, span));
                };
                self.new_vars(dims);
                let ptr = Var::new(name, DType::HANDLE);
                self.bufs
                    .push(Buf { place: Place::Param(self.leaves.len()), bytes: super::plan::byte_size(dims, dtype) });
                let value = TensorValue { buf: BufId(self.bufs.len() - 1), dims: dims.to_vec(), dtype };
                let kind = LeafKind::Tensor { dtype, dims: dims.to_vec(), ptr };
                self.leaves.push(Leaf { name: name.to_string(), kind, info: info.clone(), span });
                Ok(HostValue::Tensor(value))
            }
            StructInfo::Shape { values: Some(values), .. } => {
                self.new_vars(values);
                let kind = LeafKind::Shape { values: values.clone() };
                self.leaves.push(Leaf { name: name.to_string(), kind, info: info.clone(), span });
                Ok(HostValue::Shape(values.clone()))
            }
            StructInfo::Shape { ndim: Some(n), .. } => {
                let values: Vec<PrimExpr> = (0..*n).map(|i| Var::dim(format!("{name}_{i}")).expr()).collect();
                self.flatten(name, &StructInfo::shape(values), span, uncallable)
            }
            StructInfo::Prim { dtype, value } => {
                let var = match value.as_ref().and_then(|v| v.as_var()) {
                    Some(v) => v.clone(),
                    None => Var::new(name, *dtype),
                };
                if !self.vars.contains(&var) {
                    self.vars.push(var.clone());
                }
                let kind = LeafKind::Scalar { var: var.clone(), value: value.clone() };
                self.leaves.push(Leaf { name: name.to_string(), kind, info: info.clone(), span });
                Ok(HostValue::Prim(var.expr()))
            }
            // What C can hand over is a tensor.
            StructInfo::Shape { .. } => {
                let t = TensorInfo { shape: None, dtype: Some(DType::I64), ndim: None, vdevice: None };
                Ok(self.unranked(name, &t, info, span))
            }
            StructInfo::Object | StructInfo::Func(_) if uncallable || *info == StructInfo::Object => {
                let t = TensorInfo { shape: None, dtype: None, ndim: None, vdevice: None };
                Ok(self.unranked(name, &t, info, span))
            }
            StructInfo::Object | StructInfo::Func(_) => refuse("a function"),
            StructInfo::Str => refuse("a string"),
            StructInfo::DType => refuse("a dtype"),
        }
    }

    /// A parameter whose value is made from the tensor that C hands over.
    pub fn boxed(&self) -> Option<&Leaf> {
        self.leaves
            .iter()
            .find(|l| matches!(l.kind, LeafKind::Unranked { .. }) && !matches!(l.info, StructInfo::Tensor(_)))
    }

    /// A tensor of any dtype whose dims say something.
    pub fn untyped_dims(&self) -> Option<&str> {
        let stated = |l: &&Leaf| matches!(l.kind, LeafKind::Unranked { stated: true, .. });
        self.leaves.iter().find(stated).map(|l| l.name.as_str())
    }

    fn unranked(&mut self, name: &str, t: &TensorInfo, info: &StructInfo, span: Span) -> HostValue {
        let ptr = Var::new(name, DType::HANDLE);
        let ndim = Var::dim(format!("{name}_ndim"));
        let dtype_word = Var::dim(format!("{name}_dtype"));
        self.hidden.extend([ndim.clone(), dtype_word.clone()]);
        let leaf = self.leaves.len();
        self.bufs.push(Buf { place: Place::Param(leaf), bytes: PrimExpr::i64(0) });
        let value = UnrankedValue {
            buf: BufId(self.bufs.len() - 1),
            leaf,
            ndim: ndim.expr(),
            dtype: t.dtype,
            dtype_word: dtype_word.expr(),
        };
        // Numbers, or variables that are not its own alone.
        let own = |(i, d): (usize, &PrimExpr)| {
            d.as_var().is_some_and(|v| v.name() == format!("{}_d{i}", name.replace('.', "_")))
        };
        let dims = t.known_dims().map(<[PrimExpr]>::to_vec);
        let stated = dims.as_ref().is_some_and(|dims| !dims.iter().enumerate().all(own));
        self.new_vars(dims.as_deref().unwrap_or_default());
        let kind = LeafKind::Unranked { dtype: t.dtype, dims, stated, ptr, ndim, dtype_word };
        self.leaves.push(Leaf { name: name.to_string(), kind, info: info.clone(), span });
        HostValue::Unranked(value)
    }

    fn new_vars(&mut self, dims: &[PrimExpr]) {
        for v in dims.iter().filter_map(PrimExpr::as_var) {
            if !self.vars.contains(v) {
                self.vars.push(v.clone());
            }
        }
    }

    /// Numbers the checks of dims that are no first occurrence of a variable.
    fn number_checks(&mut self, infos: &mut Checks) {
        let mut seen: Vec<Var> = vec![];
        for (l, leaf) in self.leaves.iter().enumerate() {
            let values: &[PrimExpr] = match &leaf.kind {
                LeafKind::Tensor { dims, .. } => dims,
                LeafKind::Shape { values } => values,
                LeafKind::Unranked { dims, .. } => dims.as_deref().unwrap_or_default(),
                LeafKind::Scalar { var, value } => {
                    // What a dim or another scalar is, too; and what the scalar is stated to be.
                    let again = seen.contains(var).then(|| var.expr());
                    let stated = value.clone().filter(|v| v.as_var().is_none());
                    for (axis, dim) in [again, stated].into_iter().enumerate() {
                        let Some(dim) = dim else { continue };
                        let condition = format!("{} == {}", leaf.name, relax_ir::printer::print_prim(&dim));
                        let message = format!("parameter {}", leaf.name);
                        let check = infos.add(code::DIM, condition, message, leaf.span);
                        self.checks.push(DimCheck { leaf: l, axis, dim, check });
                    }
                    seen.push(var.clone());
                    continue;
                }
            };
            for (axis, d) in values.iter().enumerate() {
                if let Some(v) = d.as_var().filter(|v| !seen.contains(v)) {
                    seen.push(v.clone());
                    continue;
                }
                let text = relax_ir::printer::print_prim(d);
                let condition = format!("{}.shape[{axis}] == {text}", leaf.name);
                let shown = if d.as_int().is_some() { String::new() } else { format!(" ({text})") };
                let message = format!("parameter {}, dimension {axis}{shown}", leaf.name);
                let check = infos.add(code::DIM, condition, message, leaf.span);
                self.checks.push(DimCheck { leaf: l, axis, dim: d.clone(), check });
            }
        }
    }

    /// Where a shape variable gets its value: as an expression and in words.
    fn place(&self, v: &Var) -> Option<(String, String)> {
        self.leaves.iter().find_map(|leaf| {
            let dims = match &leaf.kind {
                LeafKind::Tensor { dims, .. } => dims,
                LeafKind::Shape { values } => values,
                _ => return None,
            };
            let axis = dims.iter().position(|d| d.as_var() == Some(v))?;
            let name = &leaf.name;
            Some(match &leaf.kind {
                LeafKind::Shape { .. } => (format!("{name}[{axis}]"), format!("parameter {name}, value {axis}")),
                _ => (format!("{name}.shape[{axis}]"), format!("parameter {name}, dimension {axis}")),
            })
        })
    }

    /// Numbers the bounds and divisors of shape variables. Dims that were solved are called what was written.
    fn number_limits(&mut self, f: &Function, infos: &mut Checks) {
        let divisor = |name: &str| match f.attrs.get(relax_ir::attrs::VAR_DIVISOR) {
            Some(AttrValue::Dict(d)) => d.iter().find(|(n, _)| n == name).and_then(|(_, k)| k.as_int()),
            _ => None,
        };
        for d in &self.dims {
            let name = constraints::solved_text(f, d.var.name());
            let got = d.var.expr();
            if let Some(k) = d.divisor {
                let also = constraints::solved_var(f, d.var.name()).and_then(|v| Some((v, divisor(v)?)));
                let also = also.map(|(v, k)| format!(" with {v} % {k} == 0")).unwrap_or_default();
                let (condition, message) = match self.place(&d.var).filter(|_| name != d.var.name()) {
                    Some((dim, place)) => {
                        (format!("{dim} % {k} == 0"), format!("{place}: {name} has no solution{also}"))
                    }
                    None => (format!("{name} % {k} == 0"), format!("divisor of {name}")),
                };
                let check = infos.add_of(&d.var, condition, message, f.signature_span);
                let wanted = PrimExpr::i64(k);
                let broken = got.clone().floor_mod(wanted.clone()).ne(PrimExpr::i64(0));
                self.limits.push(Limit { broken, got: got.clone(), wanted, check });
            }
            for (limit, upper) in [(d.upper, true), (d.lower, false)] {
                let Some(limit) = limit else { continue };
                let (which, sign) = if upper { ("upper", "<=") } else { ("lower", ">=") };
                let (condition, message) = match self.place(&d.var).filter(|_| name != d.var.name()) {
                    Some((dim, place)) => {
                        (format!("{dim} {sign} {limit}"), format!("{place}: {which} bound of {name}"))
                    }
                    None => (format!("{name} {sign} {limit}"), format!("{which} bound of {name}")),
                };
                let check = infos.add_of(&d.var, condition, message, f.signature_span);
                let wanted = PrimExpr::i64(limit);
                let broken = if upper { got.clone().gt(wanted.clone()) } else { got.clone().lt(wanted.clone()) };
                self.limits.push(Limit { broken, got: got.clone(), wanted, check });
            }
        }
        for (l, leaf) in self.leaves.iter().enumerate() {
            let LeafKind::Shape { values } = &leaf.kind else { continue };
            for (axis, v) in values.iter().enumerate().filter(|(_, v)| v.as_int().is_none()) {
                let text = show::dim(v);
                let message = format!("parameter {}, value {axis} ({text}) is negative", leaf.name);
                let check = infos.add(code::DIM, format!("{text} >= 0"), message, leaf.span);
                self.negative.push(DimCheck { leaf: l, axis, dim: v.clone(), check });
            }
        }
    }

    /// Code that checks `args` (a pointer to `DLTensor` pointers) and binds the pointers and variables of the
    /// signature.
    pub fn bind(&self, b: &mut Builder, prefix: &str, args: &PrimExpr) {
        let abi = b.abi;
        let mut bound: Vec<Var> = vec![];
        let mut actual: HashMap<(usize, usize), PrimExpr> = HashMap::new();
        for (i, leaf) in self.leaves.iter().enumerate() {
            let tensor = b.load("arg", args, i as i64 * abi.pointer as i64, DType::HANDLE);
            let what = self.whats.get(i).map_or("", String::as_str);
            let of = Checked { what, number: value_check(i) };
            match &leaf.kind {
                LeafKind::Tensor { dtype, dims, ptr } => {
                    check_tensor::check(b, prefix, &tensor, of, *dtype, dims.len());
                    let data = b.load("data", &tensor, abi.tensor_data, DType::HANDLE);
                    let offset = b.load("offset", &tensor, abi.tensor_byte_offset, DType::I64);
                    b.let_var(ptr, data.ptr_add(offset));
                    if !dims.is_empty() {
                        let shape = b.load("shape", &tensor, abi.tensor_shape, DType::HANDLE);
                        bind_values(b, i, dims, &shape, &mut bound, &mut actual);
                    }
                }
                LeafKind::Unranked { dtype, dims, ptr, ndim, dtype_word, .. } => {
                    check_tensor::check(b, prefix, &tensor, of, *dtype, dims.as_ref().map(Vec::len));
                    let data = b.load("data", &tensor, abi.tensor_data, DType::HANDLE);
                    let offset = b.load("offset", &tensor, abi.tensor_byte_offset, DType::I64);
                    b.let_var(ptr, data.ptr_add(offset));
                    let rank = b.load("rank", &tensor, abi.tensor_ndim, DType::I32);
                    b.let_var(ndim, rank.cast(DType::I64));
                    let word = b.load_dtype(&tensor);
                    b.let_var(dtype_word, word.cast(DType::I64));
                    let shape = b.load("shape", &tensor, abi.tensor_shape, DType::HANDLE);
                    bind_values(b, i, dims.as_deref().unwrap_or_default(), &shape, &mut bound, &mut actual);
                    for l in self.late.iter().filter(|l| l.leaf == i) {
                        let is = ndim.expr().eq(PrimExpr::i64(l.rank as i64));
                        let dim = PrimExpr::load_ptr(shape.clone(), PrimExpr::i64(l.axis as i64), DType::I64);
                        b.let_var(&l.var, is.if_then_else(dim, PrimExpr::i64(0)));
                    }
                }
                LeafKind::Shape { values } => {
                    check_tensor::check(b, prefix, &tensor, of, DType::I64, 1);
                    let shape = b.load("shape", &tensor, abi.tensor_shape, DType::HANDLE);
                    let len = b.load("len", &shape, 0, DType::I64);
                    let wanted = PrimExpr::i64(values.len() as i64);
                    let what = format!("{what}, number of values");
                    b.fail_if(
                        len.clone().ne(wanted.clone()),
                        Failure { code: code::RANK, constraint: of.number, wanted, got: len, what: &what },
                    );
                    let data = b.load("data", &tensor, abi.tensor_data, DType::HANDLE);
                    let offset = b.load("offset", &tensor, abi.tensor_byte_offset, DType::I64);
                    let data = b.bind("values", data.ptr_add(offset));
                    for c in self.negative.iter().filter(|c| c.leaf == i) {
                        let got = b.load("value", &data, c.axis as i64 * 8, DType::I64);
                        let (wanted, (number, what)) = (PrimExpr::i64(0), &c.check);
                        let broken = got.clone().lt(wanted.clone());
                        b.fail_if(broken, Failure { code: code::DIM, constraint: *number as i32, wanted, got, what });
                    }
                    bind_values(b, i, values, &data, &mut bound, &mut actual);
                }
                LeafKind::Scalar { var, value } => {
                    check_tensor::check(b, prefix, &tensor, of, var.dtype(), 0);
                    let data = b.load("data", &tensor, abi.tensor_data, DType::HANDLE);
                    let offset = b.load("offset", &tensor, abi.tensor_byte_offset, DType::I64);
                    let data = b.bind("values", data.ptr_add(offset));
                    let x = PrimExpr::load_ptr(data, PrimExpr::i64(0), var.dtype());
                    if bound.contains(var) {
                        actual.insert((i, 0), b.bind("got", x.cast(DType::I64)));
                    } else {
                        b.let_var(var, x);
                        bound.push(var.clone());
                    }
                    if value.as_ref().is_some_and(|v| v.as_var().is_none()) {
                        actual.insert((i, 1), var.expr().cast(DType::I64));
                    }
                }
            }
        }
        // A dim without a solution would make nonsense of others: limits go first.
        for l in &self.limits {
            let (wanted, got, (number, what)) = (l.wanted.clone(), l.got.clone(), &l.check);
            b.fail_if(l.broken.clone(), Failure { code: code::DIM, constraint: *number as i32, wanted, got, what });
        }
        for c in &self.checks {
            let Some(got) = actual.get(&(c.leaf, c.axis)).cloned() else { continue };
            let (wanted, (number, what)) = (c.dim.clone().cast(DType::I64), &c.check);
            let failure =
                Failure { code: code::DIM, constraint: *number as i32, wanted: wanted.clone(), got: got.clone(), what };
            b.fail_if(got.ne(wanted), failure);
        }
        for (c, (number, what)) in &self.constraints {
            let (wanted, got) = match (&c.solves, c.condition.kind()) {
                (Some((dim, _)), _) => (PrimExpr::i64(1), dim.expr()),
                (None, PrimKind::Binary(op, a, w))
                    if op.is_compare() && constraints::divisors(&c.condition).is_empty() =>
                {
                    (w.clone(), a.clone())
                }
                _ => (PrimExpr::i64(1), PrimExpr::i64(0)),
            };
            b.fail_if(c.guarded().not(), Failure { code: code::DIM, constraint: *number as i32, wanted, got, what });
        }
    }

    /// Pointers of the tensor leaves, in order.
    pub fn pointers(&self) -> Vec<Var> {
        self.leaves
            .iter()
            .filter_map(|l| match &l.kind {
                LeafKind::Tensor { ptr, .. } | LeafKind::Unranked { ptr, .. } => Some(ptr.clone()),
                _ => None,
            })
            .collect()
    }

    /// Variables that the body takes: those of the signature, then ranks, dtypes and dims of unranked tensors.
    pub fn body_vars(&self) -> Vec<Var> {
        self.vars.iter().chain(&self.hidden).chain(self.late.iter().map(|l| &l.var)).cloned().collect()
    }

    pub fn entry_values(&self) -> Vec<EntryValue> {
        self.leaves
            .iter()
            .map(|l| EntryValue {
                name: l.name.clone(),
                text: relax_ir::printer::print_struct_info(&l.info),
                bounds: None,
                span: l.span,
                kind: match &l.kind {
                    LeafKind::Tensor { dtype, dims, .. } => {
                        EntryKind::Tensor { dtype: Some(*dtype), dims: Some(dims.iter().cloned().map(Some).collect()) }
                    }
                    LeafKind::Unranked { dtype, .. } => EntryKind::Tensor { dtype: *dtype, dims: None },
                    LeafKind::Shape { values } => {
                        EntryKind::Shape { values: Some(values.clone()), ndim: Some(values.len()) }
                    }
                    LeafKind::Scalar { var, .. } => EntryKind::Scalar { dtype: var.dtype() },
                },
            })
            .collect()
    }
}

fn bind_values(
    b: &mut Builder,
    leaf: usize,
    values: &[PrimExpr],
    at: &PrimExpr,
    bound: &mut Vec<Var>,
    actual: &mut HashMap<(usize, usize), PrimExpr>,
) {
    for (axis, d) in values.iter().enumerate() {
        let x = PrimExpr::load_ptr(at.clone(), PrimExpr::i64(axis as i64), DType::I64);
        match d.as_var() {
            Some(v) if !bound.contains(v) => {
                b.let_var(v, x);
                bound.push(v.clone());
            }
            _ => {
                let x = b.bind("dim", x);
                actual.insert((leaf, axis), x);
            }
        }
    }
}
