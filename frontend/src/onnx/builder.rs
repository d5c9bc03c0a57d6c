//! The Relax function under construction: bindings, struct info and what is known of dims.

use super::alternatives::Picked;
use super::value::Tensor;
use super::Res;
use relax_ir::analysis::infer_expr;
use relax_ir::op::{self, Default as OpDefault, ParamKind, ShapeFacts};
use relax_ir::prim::Var;
use relax_ir::printer::is_reserved;
use relax_ir::relax::{
    Binding, BindingBlock, BindingValue, Call, Callee, Expr, ExprKind, RVar, SeqExpr, StructInfo, StructInfoMap,
};
use relax_ir::sym::Facts;
use relax_ir::{AttrValue, Attrs, DType, Diagnostic, IRModule, PrimExpr, Span};
use std::collections::{HashMap, HashSet};

/// An operand of [`Builder::call`].
#[derive(Clone, Debug)]
pub enum Arg {
    Tensor(Tensor),
    Tuple(Vec<Tensor>),
    /// A shape, a scalar, an operand that is not given...
    Expr(Expr),
}

impl Arg {
    pub fn absent() -> Arg {
        Arg::Expr(Expr::new(ExprKind::Absent, Span::NONE))
    }
    pub fn shape(dims: &[PrimExpr]) -> Arg {
        Arg::Expr(Expr::new(ExprKind::Shape(dims.to_vec()), Span::NONE))
    }
    pub fn prim(value: impl Into<PrimExpr>) -> Arg {
        Arg::Expr(Expr::new(ExprKind::Prim(value.into()), Span::NONE))
    }
    /// A tuple of scalars: axes, begins and ends of slices.
    pub fn prims(values: &[PrimExpr]) -> Arg {
        let fields = values.iter().map(|v| Expr::new(ExprKind::Prim(v.clone()), Span::NONE)).collect();
        Arg::Expr(Expr::new(ExprKind::Tuple(fields), Span::NONE))
    }
}
impl From<&Tensor> for Arg {
    fn from(t: &Tensor) -> Arg {
        Arg::Tensor(t.clone())
    }
}
impl From<Tensor> for Arg {
    fn from(t: Tensor) -> Arg {
        Arg::Tensor(t)
    }
}
impl From<&[Tensor]> for Arg {
    fn from(t: &[Tensor]) -> Arg {
        Arg::Tuple(t.to_vec())
    }
}

/// Bindings of a function or a branch.
#[derive(Default)]
struct Block {
    bindings: Vec<Binding>,
    /// Tensors made of known elements, by their elements.
    made: HashMap<(DType, Vec<PrimExpr>, Vec<PrimExpr>), Expr>,
    /// Names of dims that are long formulas.
    named: HashMap<PrimExpr, PrimExpr>,
    /// Conditions that are checked, and what they are.
    settled: Picked,
    /// What was known before the block: in a branch that is not taken nothing of it need hold.
    before: Option<Facts>,
}

/// Builds one Relax function; branches are nested blocks.
pub struct Builder {
    /// Functions that are done; calls of them are typed.
    pub module: IRModule,
    pub facts: Facts,
    pub sinfo: StructInfoMap,
    blocks: Vec<Block>,
    /// Dims that the caller alone decides, and what they broadcast to: any of them may be 1.
    pub free_dims: HashSet<PrimExpr>,
    names: HashSet<String>,
    /// How often a name was wanted again.
    counts: HashMap<String, usize>,
}

/// Tensors of more dims are refused: no operator needs them, and each takes its time for every dim.
pub const MAX_DIMS: usize = 64;

/// Dims that are larger formulas get names: what is made of them stays small, and analysis refuses far larger ones.
const LONG_DIM: usize = 400;

/// Numbers of a shape that are read at run time.
const MAX_READ: usize = 1024;

/// Operators whose operands broadcast but for so many of their last dims.
fn own_dims(name: &str) -> Option<usize> {
    match name {
        "matmul" => Some(2),
        // The width of the texts.
        "onnx.text_equal" | "onnx.text_concat" => Some(1),
        name => BROADCASTING.contains(&name).then_some(0),
    }
}

/// Operators whose operands broadcast.
const BROADCASTING: &[&str] = &[
    "add",
    "subtract",
    "multiply",
    "divide",
    "floor_divide",
    "floor_mod",
    "mod",
    "power",
    "maximum",
    "minimum",
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "logical_and",
    "logical_or",
    "logical_xor",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "left_shift",
    "right_shift",
    "where",
];

impl Builder {
    pub fn new() -> Builder {
        Builder {
            module: IRModule { name: "Module".into(), ..Default::default() },
            facts: Facts::new(),
            sinfo: StructInfoMap::new(),
            blocks: vec![Block::default()],
            free_dims: HashSet::new(),
            names: HashSet::new(),
            counts: HashMap::new(),
        }
    }

    /// Starts a nested block.
    pub fn open(&mut self) {
        self.blocks.push(Block { before: Some(self.facts.clone()), ..Block::default() });
    }

    /// Ends the innermost block.
    pub fn close(&mut self, body: Expr) -> SeqExpr {
        let block = self.blocks.pop().unwrap_or_default();
        self.facts = block.before.unwrap_or_else(|| std::mem::take(&mut self.facts));
        let bindings = block.bindings;
        let blocks = match bindings.is_empty() {
            true => vec![],
            false => vec![BindingBlock { dataflow: false, bindings, span: Span::NONE }],
        };
        if self.blocks.is_empty() {
            self.blocks.push(Block::default());
        }
        SeqExpr { blocks, body }
    }

    /// Ends the innermost block: its bindings become those of the block around it.
    pub fn splice(&mut self) {
        if self.blocks.len() > 1 {
            let inner = self.blocks.pop().unwrap_or_default();
            if let Some(b) = self.blocks.last_mut() {
                b.bindings.extend(inner.bindings);
                b.made.extend(inner.made);
                b.settled.extend(inner.settled);
            }
        }
    }

    /// Ends the innermost block and drops what it holds.
    pub fn discard(&mut self) {
        if self.blocks.len() > 1 {
            let block = self.blocks.pop().unwrap_or_default();
            self.facts = block.before.unwrap_or_else(|| std::mem::take(&mut self.facts));
        }
    }

    /// From here on in this block, `cond` is known to be this.
    pub fn settle(&mut self, cond: &Tensor, is: bool) {
        if let Some(b) = self.blocks.last_mut() {
            b.settled.push((cond.clone(), is));
        }
    }

    /// What the condition that `which` finds is known to be.
    pub fn settled(&self, which: impl Fn(&Tensor) -> bool) -> Option<bool> {
        self.blocks.iter().flat_map(|b| &b.settled).find(|(c, _)| which(c)).map(|(_, is)| *is)
    }

    /// Sets the blocks aside while another function is built; give them back to [`Builder::resume`].
    pub fn suspend(&mut self) -> Suspended {
        Suspended(std::mem::replace(&mut self.blocks, vec![Block::default()]))
    }

    pub fn resume(&mut self, s: Suspended) {
        self.blocks = s.0;
    }

    /// A name like `hint` that nothing has yet: a model and the text that is printed of it are the same program.
    pub fn unique(&mut self, hint: &str) -> String {
        let mut name = hint.to_string();
        while is_reserved(&name) || !self.names.insert(name.clone()) {
            let i = self.counts.entry(hint.to_string()).or_insert(0);
            *i += 1;
            name = format!("{hint}_{i}");
        }
        name
    }

    /// A variable.
    pub fn var(&mut self, hint: &str) -> RVar {
        RVar::new(self.unique(hint), false, Span::NONE)
    }

    fn bind(&mut self, name: &str, value: BindingValue, info: StructInfo) -> RVar {
        let var = self.var(name);
        self.sinfo.insert(var.clone(), info);
        if let Some(b) = self.blocks.last_mut() {
            b.bindings.push(Binding { var: var.clone(), annotation: None, value, span: Span::NONE });
        }
        var
    }

    /// Binds `value` to a variable that it may mention: a local function.
    pub fn define(&mut self, var: RVar, value: Expr, info: StructInfo) {
        self.sinfo.insert(var.clone(), info);
        if let Some(b) = self.blocks.last_mut() {
            let value = BindingValue::Expr(value);
            b.bindings.push(Binding { var, annotation: None, value, span: Span::NONE });
        }
    }

    /// Binds an expression whose struct info is known.
    pub fn bind_typed(&mut self, name: &str, value: Expr, info: StructInfo) -> Expr {
        self.bind(name, BindingValue::Expr(value), info).expr()
    }

    /// Binds `value` with struct info checked at run time; shape variables that `info` has alone are born here.
    pub fn match_cast(&mut self, name: &str, value: Expr, info: StructInfo) -> Expr {
        self.bind(name, BindingValue::MatchCast { value, struct_info: info.clone() }, info).expr()
    }

    /// Binds an expression in normal form and gives it struct info.
    pub fn emit(&mut self, name: &str, value: Expr) -> Res<(Expr, StructInfo)> {
        let info = self.infer(&value)?;
        let var = self.bind(name, BindingValue::Expr(value), info.clone());
        Ok((var.expr(), info))
    }

    pub fn infer(&mut self, value: &Expr) -> Res<StructInfo> {
        let info = infer_expr(&mut self.facts, value, &self.sinfo, &self.module)?;
        self.facts.take_requirements();
        Ok(info)
    }

    /// A fresh shape variable.
    pub fn fresh_dim(&mut self, name: &str) -> PrimExpr {
        Var::dim(self.unique(name)).expr()
    }

    /// The Relax leaf of a tensor.
    pub fn expr(&mut self, t: &Tensor) -> Res<Expr> {
        if let Some(e) = t.leaf() {
            return Ok(e.clone());
        }
        if let Some(c) = t.to_constant() {
            return Ok(Expr::new(ExprKind::Constant(c), Span::NONE));
        }
        let elements = t.elements().ok_or_else(|| Diagnostic::internal(Span::NONE, "a tensor of nothing"))?;
        let key = (t.dtype, t.dims.clone(), elements.clone());
        if let Some(e) = self.blocks.iter().find_map(|b| b.made.get(&key)) {
            return Ok(e.clone());
        }
        let values: Vec<PrimExpr> = elements
            .into_iter()
            .map(
                |e| if e.dtype().is_bool() { e.select(PrimExpr::i64(1), PrimExpr::i64(0)) } else { e.cast(DType::I64) },
            )
            .collect();
        let n = values.len();
        let shape =
            Tensor::new(Expr::new(ExprKind::Shape(values), Span::NONE), vec![PrimExpr::i64(n as i64)], DType::I64);
        let mut x = self.call("shape_to_tensor", &[Arg::from(&shape)], &[])?;
        if t.dtype != DType::I64 {
            x = self.call("astype", &[Arg::from(&x)], &[("dtype", AttrValue::DType(t.dtype))])?;
        }
        if t.dims.len() != 1 {
            x = self.call("reshape", &[Arg::from(&x), Arg::shape(&t.dims)], &[])?;
        }
        let e = self.expr(&x)?;
        if let Some(b) = self.blocks.last_mut() {
            b.made.insert(key, e.clone());
        }
        Ok(e)
    }

    /// The call of operator `name` as an expression: attributes that are not given have their defaults.
    fn call_expr(&mut self, name: &str, args: &[Arg], attrs: &[(&str, AttrValue)]) -> Res<Expr> {
        let decl = op::lookup(name)
            .ok_or_else(|| Diagnostic::internal(Span::NONE, format!("there is no operator R.{name}")))?;
        let mut operands = vec![];
        for a in args {
            operands.push(match a {
                Arg::Tensor(t) => self.expr(t)?,
                Arg::Expr(e) => e.clone(),
                Arg::Tuple(list) => {
                    let fields = list.iter().map(|t| self.expr(t)).collect::<Res<Vec<_>>>()?;
                    Expr::new(ExprKind::Tuple(fields), Span::NONE)
                }
            });
        }
        while operands.last().is_some_and(|a| matches!(a.kind(), ExprKind::Absent)) {
            operands.pop();
        }
        let mut all = Attrs::default();
        for p in decl.params.iter().filter(|p| p.kind == ParamKind::Attr) {
            let given = attrs.iter().find(|(n, _)| *n == p.name).map(|(_, v)| v.clone());
            all.0.push((p.name.to_string(), given.unwrap_or_else(|| default_value(p.default))));
        }
        if let Some((n, _)) = attrs.iter().find(|(n, _)| all.get(n).is_none()) {
            return Err(Diagnostic::internal(Span::NONE, format!("R.{name} has no attribute {n}")));
        }
        let call = Call { callee: Callee::Op(decl), args: operands, attrs: all, sinfo_args: vec![] };
        Ok(Expr::new(ExprKind::Call(call), Span::NONE))
    }

    /// Calls a Relax operator that gives one tensor.
    pub fn call(&mut self, name: &str, args: &[Arg], attrs: &[(&str, AttrValue)]) -> Res<Tensor> {
        let mut all = self.call_multi(name, args, attrs)?;
        match all.len() {
            1 => Ok(all.swap_remove(0)),
            n => Err(Diagnostic::internal(Span::NONE, format!("R.{name} gives {n} tensors"))),
        }
    }

    /// Calls a Relax operator that gives any number of tensors.
    pub fn call_multi(&mut self, name: &str, args: &[Arg], attrs: &[(&str, AttrValue)]) -> Res<Vec<Tensor>> {
        let spread = match own_dims(name) {
            Some(own) => self.spread(args, own)?,
            None => None,
        };
        let value = self.call_expr(name, spread.as_deref().unwrap_or(args), attrs)?;
        let hint = name.rsplit('.').next().unwrap_or(name);
        let (e, info) = self.emit(hint, value)?;
        self.tensors(hint, e, info)
    }

    /// Operands in which two dims meet that only the caller decides, and whose names differ: which of them is 1 shows at
    /// run time, so each operand is brought to the dims of the result before. `None`: there is no such pair. The last
    /// `own` dims do not broadcast.
    fn spread(&mut self, args: &[Arg], own: usize) -> Res<Option<Vec<Arg>>> {
        let tensors: Vec<Tensor> =
            args.iter().filter_map(|a| if let Arg::Tensor(t) = a { Some(t.clone()) } else { None }).collect();
        let outer = |t: &Tensor| t.rank().saturating_sub(own);
        let rank = tensors.iter().map(outer).max().unwrap_or(0);
        let mut dims = vec![PrimExpr::i64(1); rank];
        let mut open = vec![false; rank];
        for t in &tensors {
            for (i, d) in t.dims[..outer(t)].iter().enumerate() {
                let slot = &mut dims[rank - outer(t) + i];
                let free = |d: &PrimExpr| self.free_dims.contains(d);
                if slot.is_int(1) || slot == d {
                    *slot = d.clone();
                } else if free(slot) && free(d) {
                    open[rank - outer(t) + i] = true;
                    *slot = slot.clone().eq(PrimExpr::i64(1)).select(d.clone(), slot.clone());
                }
            }
        }
        if !open.contains(&true) {
            return Ok(None);
        }
        for (d, _) in dims.iter_mut().zip(&open).filter(|(_, o)| **o) {
            *d = self.facts.simplify(d);
        }
        self.free_dims.extend(dims.iter().zip(&open).filter(|(_, o)| **o).map(|(d, _)| d.clone()));
        let mut out = vec![];
        for a in args {
            let Arg::Tensor(t) = a else {
                out.push(a.clone());
                continue;
            };
            let lead = rank - outer(t);
            let differs = (0..outer(t)).any(|i| open[lead + i] && t.dims[i] != dims[lead + i] && !t.dims[i].is_int(1));
            if !differs {
                out.push(a.clone());
                continue;
            }
            let mut to = t.dims.clone();
            for (i, d) in to.iter_mut().enumerate().take(outer(t)) {
                if open[lead + i] && !d.is_int(1) {
                    *d = dims[lead + i].clone();
                }
            }
            out.push(Arg::Tensor(self.widened(t, &to)?));
        }
        Ok(Some(out))
    }

    /// `t` with these dims: each is the tensor's own, or the tensor's is 1, which may show at run time only.
    pub fn widened(&mut self, t: &Tensor, dims: &[PrimExpr]) -> Res<Tensor> {
        let wide = self.call("onnx.expand", &[Arg::from(t), Arg::shape(dims)], &[])?;
        self.call("reshape", &[Arg::from(&wide), Arg::shape(dims)], &[])
    }

    /// The tensors of a bound value.
    pub fn tensors(&mut self, hint: &str, e: Expr, info: StructInfo) -> Res<Vec<Tensor>> {
        match info {
            StructInfo::Tuple(fields) => {
                let mut out = vec![];
                for (i, f) in fields.into_iter().enumerate() {
                    let item = Expr::new(ExprKind::TupleGetItem(e.clone(), i), Span::NONE);
                    let item = self.bind_typed(&format!("{hint}_{i}"), item, f.clone());
                    out.push(self.tensor(hint, item, f)?);
                }
                Ok(out)
            }
            info => Ok(vec![self.tensor(hint, e, info)?]),
        }
    }

    /// As [`Builder::call`]; the result has these dims, `None` where its own decides.
    pub fn call_of_dims(&mut self, name: &str, args: &[Arg], dims: &[Option<PrimExpr>]) -> Res<Tensor> {
        let value = self.call_expr(name, args, &[])?;
        let (e, info) = self.emit(name, value)?;
        let Some(dtype) = info.as_tensor().and_then(|t| t.dtype) else {
            return Err(Diagnostic::internal(Span::NONE, format!("R.{name} gives no tensor of a known dtype")));
        };
        let fresh =
            |(i, d): (usize, &Option<PrimExpr>)| d.clone().unwrap_or_else(|| self.fresh_dim(&format!("{name}_{i}")));
        let dims: Vec<PrimExpr> = dims.iter().enumerate().map(fresh).collect();
        let e = self.match_cast(name, e, StructInfo::tensor(dims.clone(), dtype));
        Ok(Tensor::new(e, dims, dtype))
    }

    /// A bound tensor; dims that are not known get names.
    pub fn tensor(&mut self, hint: &str, e: Expr, info: StructInfo) -> Res<Tensor> {
        let t = match info {
            StructInfo::Tensor(t) => t,
            _ => return Err(Diagnostic::internal(Span::NONE, format!("{hint} gives no tensor"))),
        };
        let dtype =
            t.dtype.ok_or_else(|| Diagnostic::internal(Span::NONE, format!("{hint}: the dtype is not known")))?;
        if t.ndim.is_some_and(|n| n > MAX_DIMS) || t.known_dims().is_some_and(|d| d.len() > MAX_DIMS) {
            let m = format!("{hint}: the result has more than {MAX_DIMS} dims");
            return Err(Diagnostic::unsupported("too-many-dims", Span::NONE, m));
        }
        if let Some(dims) = t.known_dims() {
            if !dims.iter().any(|d| d.exceeds(LONG_DIM)) {
                return Ok(Tensor::new(e, dims.to_vec(), dtype));
            }
            let dims: Vec<PrimExpr> = dims.iter().map(|d| self.named(hint, d)).collect();
            let e = self.match_cast(hint, e, StructInfo::tensor(dims.clone(), dtype));
            return Ok(Tensor::new(e, dims, dtype));
        }
        let n = t.ndim.ok_or_else(|| {
            Diagnostic::unsupported("unknown-rank", Span::NONE, format!("{hint}: the rank of the result is not known"))
        })?;
        let dims: Vec<PrimExpr> = (0..n).map(|i| self.fresh_dim(&format!("{hint}_{i}"))).collect();
        let e = self.match_cast(hint, e, StructInfo::tensor(dims.clone(), dtype));
        Ok(Tensor::new(e, dims, dtype))
    }

    /// A name for a long formula, the same wherever the formula is.
    fn named(&mut self, hint: &str, dim: &PrimExpr) -> PrimExpr {
        if !dim.exceeds(LONG_DIM) {
            return dim.clone();
        }
        if let Some(d) = self.blocks.iter().find_map(|b| b.named.get(dim)) {
            return d.clone();
        }
        let fresh = self.fresh_dim(&format!("{hint}_dim"));
        if let Some(b) = self.blocks.last_mut() {
            b.named.insert(dim.clone(), fresh.clone());
        }
        fresh
    }

    /// Canonical form of a dim.
    pub fn simplify(&mut self, dim: &PrimExpr) -> PrimExpr {
        self.facts.simplify(dim)
    }

    /// An int64 vector of known length as a shape.
    pub fn shape_of_values(&mut self, x: &Tensor) -> Res<Expr> {
        let value = self.call_expr("tensor_to_shape", &[Arg::from(x)], &[])?;
        Ok(self.emit("shape", value)?.0)
    }

    /// The elements of an integer vector as scalars of the function: known ones, or read at run time, where each
    /// becomes a shape variable. Those must not be negative: wrap what may be, before.
    pub fn read(&mut self, t: &Tensor) -> Res<Vec<PrimExpr>> {
        if let Some(v) = t.elements() {
            return Ok(v.into_iter().map(|e| e.cast(DType::I64)).collect());
        }
        let n = t.literal_len().ok_or_else(|| {
            Diagnostic::unsupported(
                "unknown-rank",
                Span::NONE,
                "a shape of a number of dims that is only known at run time",
            )
        })?;
        if n > MAX_READ {
            let d = Diagnostic::unsupported("unknown-rank", Span::NONE, format!("{n} numbers as a shape"));
            return Err(d.help(format!("at most {MAX_READ} numbers are read at run time")));
        }
        let mut x = t.clone();
        if x.dtype != DType::I64 {
            x = self.call("astype", &[Arg::from(&x)], &[("dtype", AttrValue::DType(DType::I64))])?;
        }
        if x.rank() != 1 {
            x = self.call("reshape", &[Arg::from(&x), Arg::shape(&[PrimExpr::i64(n as i64)])], &[])?;
        }
        let e = self.shape_of_values(&x)?;
        let vars: Vec<Var> = (0..n).map(|i| Var::dim(self.unique(&format!("s{i}")))).collect();
        let dims: Vec<PrimExpr> = vars.iter().map(Var::expr).collect();
        self.match_cast("dims", e, StructInfo::shape(dims.clone()));
        Ok(dims)
    }
}

impl Default for Builder {
    fn default() -> Builder {
        Builder::new()
    }
}

/// Blocks of a function that waits.
pub struct Suspended(Vec<Block>);

fn default_value(d: OpDefault) -> AttrValue {
    match d {
        OpDefault::Required | OpDefault::None => AttrValue::None,
        OpDefault::Int(v) => AttrValue::Int(v),
        OpDefault::Float(v) => AttrValue::Float(v),
        OpDefault::Bool(v) => AttrValue::Bool(v),
        OpDefault::Str(s) => AttrValue::Str(s.to_string()),
        OpDefault::Ints(v) => AttrValue::List(v.iter().map(|i| AttrValue::Int(*i)).collect()),
    }
}
