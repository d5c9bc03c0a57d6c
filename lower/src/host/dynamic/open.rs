//! Operators on a tensor whose rank or dtype only the call tells: a kernel for each that it may have, chosen at run time.

use super::expr::{Dyn, Gen, Res, Scope, TensorAt};
use crate::host::build::{null, Failure};
use crate::host::check_tensor::dtype_word;
use relax_ir::flat::FlatStmt;
use relax_ir::op::{ComputeCx, InferCx, OpDecl};
use relax_ir::prim::BinOp;
use relax_ir::program::code;
use relax_ir::relax::{Call, StructInfo, TensorInfo};
use relax_ir::sym::Facts;
use relax_ir::tir::PrimFunc;
use relax_ir::{DType, Diagnostic, PrimExpr, Span, Var};

/// The operators that have such kernels: those that TVM computes for any tensor.
pub const OPEN: [&str; 3] = ["unique", "nonzero", "eye_like"];
/// The highest rank that a tensor of unknown rank may have.
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
        // Elements in their order are all that it reads.
        let flat = cx.op.name == "unique" && !cx.has(5);
        let dims = |n: usize| (0..n).map(|i| Var::dim(format!("d{i}"))).collect::<Vec<Var>>();
        let of = |vars: &[Var], dtype: DType| {
            StructInfo::Tensor(TensorInfo::dims(vars.iter().map(Var::expr).collect(), Some(dtype)))
        };
        let mut infos = cx.infos.to_vec();
        // The ranks and dtypes that the operator takes.
        let ranks = match known.ndim {
            _ if flat => 1..=1,
            Some(n) => n..=n,
            None => 0..=MOST,
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
        if known.ndim.is_none() && !flat {
            for (wrong, wanted, limit) in [
                (rank.clone().lt(PrimExpr::i64(lowest as i64)), lowest, "least"),
                (rank.clone().gt(PrimExpr::i64(highest as i64)), highest, "most"),
            ] {
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
        let count = if flat { Some(self.elements(&value)) } else { None };
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
                let mut x = self.read_tensor(&value, if flat { 0 } else { n }, dtype);
                x.dims.extend(count.clone());
                // Dims that are stated keep their names.
                let vars = dims(n);
                let stated = known.known_dims().filter(|_| !flat);
                let shape: Vec<PrimExpr> = stated.map_or_else(|| vars.iter().map(Var::expr).collect(), <[_]>::to_vec);
                let mut inner = scope.clone();
                inner.dims.extend(vars.into_iter().zip(x.dims.iter().cloned()));
                infos[at] = StructInfo::Tensor(TensorInfo::dims(shape, Some(dtype)));
                let out = result(cx, &infos)?;
                let mut values = values.clone();
                values[at] = Dyn::Tensor(x);
                let exact = ComputeCx { infos: &infos, out: &out, ..*cx };
                let v = self.computed(&exact, values, &mut inner, compute, data_dependent)?;
                self.own(&v, &to, span)?;
                let then = self.end_branch();
                self.b.push(FlatStmt::If { cond, then, otherwise: vec![] });
            }
        }
        Ok(Dyn::Value(to))
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
    fn product(&mut self, integers: PrimExpr, count: PrimExpr) -> PrimExpr {
        let all = self.b.local("all", PrimExpr::i64(1));
        let count = self.b.bind("count", count);
        self.b.for_range("i", count, |b, i| {
            let next = all.expr() * PrimExpr::load_ptr(integers, i, DType::I64);
            b.assign(&all, next);
        });
        self.b.bind("all", all.expr())
    }

    /// `R.reshape` of a tensor of any rank and dtype, to a shape of any length; and `R.memory.view`, which may leave
    /// elements out at the end.
    pub fn open_reshape(&mut self, c: &Call, op: &OpDecl, v: Dyn, scope: &mut Scope, span: Span) -> Res<Dyn> {
        let target = match c.args.get(1) {
            Some(e) => self.expr(e, None, scope)?,
            None => return Err(Diagnostic::error("operator", span, format!("R.{}: operand 2 is missing", op.name))),
        };
        if !matches!(target, Dyn::Shape(_) | Dyn::Value(_)) {
            return Err(Diagnostic::unsupported(
                "operator",
                span,
                format!("R.{}: the new shape must be a shape", op.name),
            ));
        }
        let old = self.pointer(&v, span)?;
        let shape = self.pointer(&target, span)?;
        let shape = self.b.load("shape", &shape, 8, DType::HANDLE);
        let rank = self.b.load("count", &shape, 0, DType::I64);
        let values = self.b.bind("values", shape.ptr_add(PrimExpr::i64(8)));
        let (had, asked) = (self.elements(&old), self.product(values.clone(), rank.clone()));
        let compared = if op.name == "reshape" { BinOp::Eq } else { BinOp::Le };
        let fits = PrimExpr::raw_binary(compared, asked, had);
        self.require(fits, code::CHECK, format!("number of elements of R.{}", op.name), span);
        let to = self.slot();
        let call = self.b.call.clone();
        let args = vec![call, null(), old, rank.cast(DType::I32), values, to.clone()];
        self.runtime("relax_rt_view", args);
        Ok(match v {
            Dyn::Tensor(TensorAt { dtype, .. }) => match &target {
                Dyn::Shape(values) => Dyn::Tensor(self.read_tensor(&to, values.len(), dtype)),
                _ => Dyn::Value(to),
            },
            _ => Dyn::Value(to),
        })
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
