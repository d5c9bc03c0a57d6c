//! Operators on a tensor whose rank or dtype only the call tells: a kernel for each that it may have, chosen at run time.

use super::expr::{Dyn, Gen, Res, Scope};
use crate::host::build::{null, Failure};
use crate::host::check_tensor::dtype_word;
use relax_ir::flat::FlatStmt;
use relax_ir::op::{rule, ComputeCx, InferCx, OpDecl};
use relax_ir::prim::BinOp;
use relax_ir::program::code;
use relax_ir::relax::{Call, Expr, ExprKind, StructInfo, TensorInfo};
use relax_ir::sym::Facts;
use relax_ir::tir::PrimFunc;
use relax_ir::{DType, Diagnostic, PrimExpr, Span, Var};

/// The operators that have such kernels: those that TVM computes for any tensor.
pub const OPEN: [&str; 3] = ["unique", "nonzero", "eye_like"];
/// The highest rank that a tensor of unknown rank may have where each rank has a kernel of its own.
const MOST: usize = 5;
/// The dtypes that a tensor of unknown dtype may have.
const DTYPES: [DType; 13] = [
    DType::F32,
    DType::F64,
    DType::F16,
    DType::BF16,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::BOOL,
];

/// What a kernel for a tensor of any rank sees of it.
enum Form {
    /// Its elements in their order.
    Elements,
    /// What is before this axis, the axis, and what is behind it, as three dims.
    Slices(i64),
    /// Its dims: each rank has a kernel.
    Ranks,
}

impl Gen<'_, '_> {
    /// The call of `cx`, whose operand `at` is open. A rank or dtype for which there is no kernel fails at run time.
    pub fn open_kernel(
        &mut self,
        cx: &ComputeCx,
        at: usize,
        values: Vec<Dyn>,
        scope: &mut Scope,
        compute: fn(&ComputeCx) -> Result<PrimFunc, Diagnostic>,
        data_dependent: bool,
    ) -> Res<Dyn> {
        let span = cx.span;
        let StructInfo::Tensor(known) = &cx.infos[at] else {
            return Err(Diagnostic::internal(span, "an open operand that is no tensor"));
        };
        let value = self.pointer(&values[at], span)?;
        let tensor = self.dltensor(&value);
        let abi = self.b.abi;
        let form = match cx.op.name {
            "unique" if !cx.has(5) => Form::Elements,
            "nonzero" => Form::Elements,
            "unique" if known.ndim.is_none() => Form::Slices(self.literal_axis(cx)?),
            _ => Form::Ranks,
        };
        let axis = Expr::new(ExprKind::Prim(PrimExpr::i64(1)), span);
        let args: Vec<Expr> = match form {
            Form::Slices(_) => cx.args.iter().take(5).cloned().chain([axis]).collect(),
            _ => cx.args.to_vec(),
        };
        let cx = &ComputeCx { args: &args, ..*cx };
        let dims = |n: usize| (0..n).map(|i| Var::dim(format!("d{i}"))).collect::<Vec<Var>>();
        let of = |vars: &[Var], dtype: DType| {
            StructInfo::Tensor(TensorInfo::dims(vars.iter().map(Var::expr).collect(), Some(dtype)))
        };
        let mut infos = cx.infos.to_vec();
        if let (Form::Slices(_), Some(axis)) = (&form, infos.get_mut(5)) {
            *axis = StructInfo::Prim { dtype: DType::I64, value: Some(PrimExpr::i64(1)) };
        }
        // The ranks and dtypes that the operator takes.
        let ranks = match (&form, known.ndim) {
            (Form::Elements, _) => 1..=1,
            (Form::Slices(_), _) => 3..=3,
            (Form::Ranks, Some(n)) => n..=n,
            (Form::Ranks, None) => 0..=MOST,
        };
        let ranks: Vec<usize> = ranks
            .filter(|&n| {
                infos[at] = of(&dims(n), known.dtype.unwrap_or(DType::F32));
                result(cx, &infos).is_ok()
            })
            .collect();
        let (Some(&lowest), Some(&highest)) = (ranks.first(), ranks.last()) else {
            infos[at] = of(&dims(known.ndim.unwrap_or(0)), known.dtype.unwrap_or(DType::F32));
            return Err(result(cx, &infos).err().unwrap_or_else(|| Diagnostic::internal(span, "no rank is left")));
        };
        let dtypes: Vec<DType> = known.dtype.map_or_else(|| DTYPES.to_vec(), |d| vec![d]);
        let name = cx.op.params.first().map_or("x", |p| p.name);
        let rank = self.b.load("rank", &tensor, abi.tensor_ndim, DType::I32).cast(DType::I64);
        let rank = self.b.bind("rank", rank);
        if known.ndim.is_none() && !matches!(form, Form::Elements) {
            // As many dims as the axis needs.
            let (lowest, highest) = match form {
                Form::Slices(a) if a < 0 => (a.unsigned_abs() as usize, usize::MAX),
                Form::Slices(a) => (a as usize + 1, usize::MAX),
                _ => (lowest, highest),
            };
            for (wrong, wanted, limit) in [
                (rank.clone().lt(PrimExpr::i64(lowest as i64)), lowest, "least"),
                (rank.clone().gt(PrimExpr::i64(highest as i64)), highest, "most"),
            ] {
                if wanted == usize::MAX {
                    continue;
                }
                let what = format!("R.{} of {name}, number of dims at {limit}", cx.op.name);
                let (wanted, got) = (PrimExpr::i64(wanted as i64), rank.clone());
                self.b.fail_if(wrong, Failure { code: code::RANK, constraint: 0, wanted, got, what: &what });
            }
        }
        let word = self.b.load_dtype(&tensor);
        let word = self.b.bind("word", word);
        let is = |d: DType| word.clone().eq(PrimExpr::i32(dtype_word(d)));
        if known.dtype.is_none() {
            let any = dtypes.iter().map(|d| is(*d)).reduce(|a, b| a.or(b)).unwrap_or_else(|| PrimExpr::bool(false));
            let what = format!("R.{} of {name}, dtype", cx.op.name);
            let (wanted, got) = (PrimExpr::i64(dtype_word(DTYPES[0]) as i64), word.clone().cast(DType::I64));
            self.b.fail_if(any.not(), Failure { code: code::DTYPE, constraint: 0, wanted, got, what: &what });
        }
        let stands_for = match form {
            Form::Elements => vec![self.elements(&value)],
            Form::Slices(axis) => self.around(&value, axis),
            Form::Ranks => vec![],
        };
        let to = self.slot();
        for &n in &ranks {
            for &dtype in &dtypes {
                let here = rank.clone().eq(PrimExpr::i64(n as i64));
                let cond = match (ranks.len() > 1, dtypes.len() > 1) {
                    (true, true) => here.and(is(dtype)),
                    (true, false) => here,
                    (false, true) => is(dtype),
                    (false, false) => PrimExpr::bool(true),
                };
                self.begin_branch();
                let mut x = self.read_tensor(&value, if stands_for.is_empty() { n } else { 0 }, dtype);
                x.dims.extend(stands_for.iter().cloned());
                // Dims that are stated keep their names.
                let vars = dims(n);
                let stated = known.known_dims().filter(|_| stands_for.is_empty());
                let shape: Vec<PrimExpr> = stated.map_or_else(|| vars.iter().map(Var::expr).collect(), <[_]>::to_vec);
                let mut inner = scope.clone();
                inner.dims.extend(vars.into_iter().zip(x.dims.iter().cloned()));
                infos[at] = StructInfo::Tensor(TensorInfo::dims(shape, Some(dtype)));
                let out = result(cx, &infos)?;
                let mut values = values.clone();
                values[at] = Dyn::Tensor(x);
                let exact = ComputeCx { infos: &infos, out: &out, ..*cx };
                let mut v = self.computed(&exact, values, &mut inner, compute, data_dependent)?;
                match (&form, cx.op.name) {
                    (Form::Elements, "nonzero") => v = self.coordinates(&v, &value, span)?,
                    (Form::Slices(axis), _) => self.unfold(&mut v, &value, *axis, span)?,
                    _ => {}
                }
                self.own(&v, &to, span)?;
                let then = self.end_branch();
                self.b.push(FlatStmt::If { cond, then, otherwise: vec![] });
            }
        }
        Ok(Dyn::Value(to))
    }

    /// The axis that the call names.
    fn literal_axis(&self, cx: &ComputeCx) -> Res<i64> {
        let axis = rule::scalar_value(cx.args.get(5), cx.infos.get(5)).and_then(|a| a.as_int());
        axis.ok_or_else(|| cx.error("the axis must be a literal"))
    }

    /// Rank and dims of the tensor at `value`.
    fn rank_and_shape(&mut self, value: &PrimExpr) -> (PrimExpr, PrimExpr) {
        let (abi, tensor) = (self.b.abi, self.dltensor(value));
        let rank = self.b.load("rank", &tensor, abi.tensor_ndim, DType::I32).cast(DType::I64);
        let rank = self.b.bind("rank", rank);
        (rank, self.b.load("shape", &tensor, abi.tensor_shape, DType::HANDLE))
    }

    /// The tensor at `value` as three dims, of which `axis` is the second.
    fn around(&mut self, value: &PrimExpr, axis: i64) -> Vec<PrimExpr> {
        let (rank, shape) = self.rank_and_shape(value);
        let at = from_start(axis, &rank);
        let before = self.product(shape.clone(), at.clone());
        let along = self.b.bind("along", PrimExpr::load_ptr(shape.clone(), at.clone(), DType::I64));
        let behind = shape.ptr_add((at.clone() + 1) * 8);
        let behind = self.product(behind, rank - 1 - at);
        vec![before, along, behind]
    }

    /// The first of `v`, whose dims are those of [`Gen::around`], with those of the tensor at `value` around `axis`.
    fn unfold(&mut self, v: &mut Dyn, value: &PrimExpr, axis: i64, span: Span) -> Res<()> {
        let first = match v {
            Dyn::Tuple(fields) => fields.first_mut(),
            one => Some(one),
        };
        let Some(first @ Dyn::Tensor(_)) = first else {
            return Err(Diagnostic::internal(span, "a kernel along an axis without a tensor"));
        };
        let Dyn::Tensor(t) = &*first else { return Ok(()) };
        let (rank, shape) = self.rank_and_shape(value);
        let dims = self.tensor(vec![rank.clone()], DType::I64);
        let to = dims.data.clone();
        self.b.for_range("i", rank.clone(), |b, i| {
            let value = PrimExpr::load_ptr(shape, i.clone(), DType::I64);
            b.push(FlatStmt::Store { ptr: to, offset: i, value });
        });
        let (ptr, offset) = (dims.data.clone(), from_start(axis, &rank));
        self.b.push(FlatStmt::Store { ptr, offset, value: t.dims[1].clone() });
        let t = t.at.clone();
        *first = Dyn::Value(self.viewed(t, rank, dims.data));
        Ok(())
    }

    /// Positions among all elements, a row of them, as indices into the tensor at `value`: a row for each of its dims, one
    /// for a scalar.
    fn coordinates(&mut self, v: &Dyn, value: &PrimExpr, span: Span) -> Res<Dyn> {
        let Dyn::Tensor(found) = v else {
            return Err(Diagnostic::internal(span, "positions that are no tensor"));
        };
        let (rank, shape) = self.rank_and_shape(value);
        let count = found.dims[1].clone();
        let out = self.tensor(vec![rank.clone().max(1), count.clone()], DType::I64);
        let (from, to) = (found.data.clone(), out.data.clone());
        self.b.for_range("p", count.clone(), |b, p| {
            let rest = b.local("rest", PrimExpr::load_ptr(from, p.clone(), DType::I64));
            b.push(FlatStmt::Store { ptr: to.clone(), offset: p.clone(), value: rest.expr() });
            b.for_range("i", rank.clone(), |b, i| {
                let axis = b.bind("axis", rank - 1 - i);
                let n = b.bind("n", PrimExpr::load_ptr(shape, axis.clone(), DType::I64));
                let value = rest.expr().floor_mod(n.clone());
                b.push(FlatStmt::Store { ptr: to, offset: axis * count + p, value });
                b.assign(&rest, rest.expr().floor_div(n));
            });
        });
        Ok(Dyn::Tensor(out))
    }

    /// The shape of the tensor at `value`.
    pub fn open_shape(&mut self, value: &PrimExpr) -> Dyn {
        let abi = self.b.abi;
        let tensor = self.dltensor(value);
        let rank = self.b.load("rank", &tensor, abi.tensor_ndim, DType::I32).cast(DType::I64);
        let shape = self.b.load("shape", &tensor, abi.tensor_shape, DType::HANDLE);
        let to = self.slot();
        let call = self.b.call.clone();
        self.runtime("relax_rt_shape", vec![call, null(), rank, shape, to.clone()]);
        Dyn::Value(to)
    }

    /// The values of the shape at `value`, as a tensor.
    pub fn open_values(&mut self, value: &PrimExpr) -> Dyn {
        let shape = self.b.load("shape", value, 8, DType::HANDLE);
        let count = self.b.load("count", &shape, 0, DType::I64);
        let t = self.tensor(vec![count.clone()], DType::I64);
        let (from, to) = (shape.ptr_add(PrimExpr::i64(8)), t.data.clone());
        self.b.for_range("i", count, |b, i| {
            let value = PrimExpr::load_ptr(from, i.clone(), DType::I64);
            b.push(FlatStmt::Store { ptr: to, offset: i, value });
        });
        Dyn::Tensor(t)
    }

    /// How many elements the tensor at `value` has.
    fn elements(&mut self, value: &PrimExpr) -> PrimExpr {
        let abi = self.b.abi;
        let tensor = self.dltensor(value);
        let rank = self.b.load("rank", &tensor, abi.tensor_ndim, DType::I32).cast(DType::I64);
        let shape = self.b.load("shape", &tensor, abi.tensor_shape, DType::HANDLE);
        self.product(shape, rank)
    }

    /// The product of `count` integers.
    pub fn product(&mut self, integers: PrimExpr, count: PrimExpr) -> PrimExpr {
        let all = self.b.local("all", PrimExpr::i64(1));
        let count = self.b.bind("count", count);
        self.b.for_range("i", count, |b, i| {
            let next = all.expr() * PrimExpr::load_ptr(integers, i, DType::I64);
            b.assign(&all, next);
        });
        self.b.bind("all", all.expr())
    }

    /// `R.reshape` of a tensor of any rank and dtype, to a shape of any length.
    pub fn open_reshape(&mut self, c: &Call, op: &OpDecl, v: Dyn, scope: &mut Scope, span: Span) -> Res<Dyn> {
        let target = match c.args.get(1) {
            Some(e) => self.expr(e, None, scope)?,
            None => return Err(Diagnostic::error("operator", span, format!("R.{}: operand 2 is missing", op.name))),
        };
        let old = self.pointer(&v, span)?;
        let (values, rank) = self.shape_values(&target, op.name, span)?;
        let (had, asked) = (self.elements(&old), self.product(values.clone(), rank.clone()));
        let fits = PrimExpr::raw_binary(BinOp::Eq, asked, had);
        let text = "elements of the new shape == elements of the tensor".to_string();
        self.require_named(fits, text, code::CHECK, format!("number of elements of R.{}", op.name), span);
        let to = self.viewed(old, rank, values);
        Ok(match (v, target) {
            (Dyn::Tensor(t), Dyn::Shape(dims)) => Dyn::Tensor(self.read_tensor(&to, dims.len(), t.dtype)),
            _ => Dyn::Value(to),
        })
    }

    /// `R.memory.view` of a tensor of any rank and dtype: `info` says the dtype, where it is another one; what is behind
    /// the bytes that the view has is left out.
    pub fn open_view(
        &mut self,
        c: &Call,
        v: Dyn,
        info: Option<&StructInfo>,
        scope: &mut Scope,
        span: Span,
    ) -> Res<Dyn> {
        let given = |i: usize| c.args.get(i).filter(|e| !matches!(e.kind(), ExprKind::Absent));
        let old = self.pointer(&v, span)?;
        let target = match (given(1), &v) {
            (Some(e), _) => self.expr(e, None, scope)?,
            (None, Dyn::Tensor(t)) => Dyn::Shape(t.dims.clone()),
            (None, _) => self.open_shape(&old),
        };
        let (values, rank) = self.shape_values(&target, "memory.view", span)?;
        let (had, asked) = (self.elements(&old), self.product(values.clone(), rank.clone()));
        let dtype = match given(2) {
            None => None,
            Some(_) => Some(info.and_then(StructInfo::as_tensor).and_then(|t| t.dtype).ok_or_else(|| {
                Diagnostic::unsupported("operator", span, "R.memory.view: the dtype must be written in the call")
            })?),
        };
        let fits = match dtype {
            None => asked.le(had),
            Some(d) => (asked * PrimExpr::i64(d.bytes() as i64)).le(had * self.element_bytes(&old)),
        };
        let text = "bytes of the view <= bytes of the tensor".to_string();
        self.require_named(fits, text, code::CHECK, "R.memory.view".to_string(), span);
        let to = self.viewed(old, rank, values);
        if let Some(d) = dtype {
            let tensor = self.dltensor(&to);
            self.b.store_dtype(&tensor, dtype_word(d));
        }
        let of = match &v {
            Dyn::Tensor(t) => dtype.or(Some(t.dtype)),
            _ => dtype,
        };
        Ok(match (of, target) {
            (Some(d), Dyn::Shape(dims)) => Dyn::Tensor(self.read_tensor(&to, dims.len(), d)),
            _ => Dyn::Value(to),
        })
    }

    /// Where the values of a shape are, and how many.
    fn shape_values(&mut self, shape: &Dyn, op: &str, span: Span) -> Res<(PrimExpr, PrimExpr)> {
        if !matches!(shape, Dyn::Shape(_) | Dyn::Value(_)) {
            return Err(Diagnostic::unsupported("operator", span, format!("R.{op}: the new shape must be a shape")));
        }
        let shape = self.pointer(shape, span)?;
        let shape = self.b.load("shape", &shape, 8, DType::HANDLE);
        let count = self.b.load("count", &shape, 0, DType::I64);
        Ok((self.b.bind("values", shape.ptr_add(PrimExpr::i64(8))), count))
    }

    /// The tensor `old` with `rank` dims that lie at `values`.
    fn viewed(&mut self, old: PrimExpr, rank: PrimExpr, values: PrimExpr) -> PrimExpr {
        let to = self.slot();
        let call = self.b.call.clone();
        self.runtime("relax_rt_view", vec![call, null(), old, rank.cast(DType::I32), values, to.clone()]);
        to
    }

    /// The bytes of an element of the tensor at `value`.
    fn element_bytes(&mut self, value: &PrimExpr) -> PrimExpr {
        let (tensor, at) = (self.dltensor(value), self.b.abi.tensor_dtype);
        let bits = self.b.load("bits", &tensor, at + 1, DType::U8).cast(DType::I64);
        let lanes = self.b.load("lanes", &tensor, at + 2, DType::U16).cast(DType::I64);
        self.b.bind("bytes", (bits + 7).floor_div(PrimExpr::i64(8)) * lanes)
    }
}

/// An axis that may count from the end of `rank` dims.
fn from_start(axis: i64, rank: &PrimExpr) -> PrimExpr {
    match axis < 0 {
        true => rank.clone() + axis,
        false => PrimExpr::i64(axis),
    }
}

/// The result of the call on operands like `infos`, every dim that data decides under a name of its own.
fn result(cx: &ComputeCx, infos: &[StructInfo]) -> Res<StructInfo> {
    let mut facts = Facts::new();
    let mut infer =
        InferCx { op: cx.op, args: cx.args, infos, attrs: cx.attrs, sinfo_args: &[], span: cx.span, facts: &mut facts };
    let out = (cx.op.infer)(&mut infer)?;
    let named = |t: &TensorInfo| match (&t.shape, t.ndim) {
        (None, Some(n)) => t.with_dims(Some((0..n).map(|i| Var::dim(format!("s{i}")).expr()).collect()), None),
        _ => t.clone(),
    };
    Ok(match out {
        StructInfo::Tensor(t) => StructInfo::Tensor(named(&t)),
        StructInfo::Tuple(fields) => StructInfo::Tuple(
            fields.iter().map(|f| f.as_tensor().map_or_else(|| f.clone(), |t| StructInfo::Tensor(named(t)))).collect(),
        ),
        other => other,
    })
}
