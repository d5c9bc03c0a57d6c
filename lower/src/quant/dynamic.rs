//! Networks that are quantised when they run: products of bytes with constant weights whose sums stay in int32, as
//! ONNX's `MatMulInteger` and `matmul(.., out_dtype="int32")` say it, and convolutions ([`convolution`]). What a scale and a zero point that are computed do
//! to the sums stays with the operators behind them.
//!
//! `sum((x - z) * w)` is `sum(x * w) - z * sum(w)`, in int32 exactly, wraps included: the kernel
//! ([`crate::schedule::int8::Product`]) multiplies bytes as they are, and a function of its sums, which is fused with what
//! reads them, takes off the rest. Signed bytes are moved by 128; so are weights that no int8 holds, which needs the
//! sums of the rows of `x` too.

mod convolution;

use crate::legalize::{call_tir, scalars, Names};
use crate::schedule::int8::Product;
use crate::schedule::streamed::takes;
use relax_ir::analysis::Typed;
use relax_ir::prim::BinOp;
use relax_ir::relax::{
    map_bindings, Binding, BindingValue, Call, Expr, ExprKind, RVar, StructInfo, StructInfoMap, TensorInfo,
};
use relax_ir::tir::{KernelBuilder, PrimFunc};
use relax_ir::{Constant, DType, Func, PrimExpr};
use std::collections::HashMap;

/// Fewer weights than this are left to the general product.
const FEW: i64 = 1 << 10;

/// Rewrites every Relax function, before operators become kernels. The result is for [`super::check_before`].
pub fn dynamic(typed: &mut Typed, vector_bytes: u32) -> HashMap<RVar, RVar> {
    let mut moved = HashMap::new();
    let mut names = Names::new(&typed.module);
    let mut funcs = std::mem::take(&mut typed.module.funcs);
    let mut new = vec![];
    for f in &mut funcs {
        let Func::Relax(f) = f else { continue };
        let values = f.bindings().map(|b| (b.var.clone(), b.expr().clone())).collect();
        let mut pass = Pass { values, sinfo: &typed.sinfo, names: &mut names, new: vec![], made: vec![], vector_bytes };
        f.body = map_bindings(&f.body, &mut |b, _| {
            let new = pass.binding(b)?;
            moved.insert(b.var.clone(), new[0].var.clone());
            Some(new)
        });
        new.append(&mut pass.new);
        let made = pass.made;
        typed.sinfo.extend(made);
    }
    funcs.extend(new.into_iter().map(Func::Prim));
    typed.module.funcs = funcs;
    moved
}

struct Pass<'a> {
    values: HashMap<RVar, Expr>,
    sinfo: &'a StructInfoMap,
    names: &'a mut Names,
    new: Vec<PrimFunc>,
    made: Vec<(RVar, StructInfo)>,
    vector_bytes: u32,
}

/// Integers of a constant.
struct Ints {
    values: Vec<i32>,
    shape: Vec<i64>,
}

/// The left side of a product: bytes, and what is taken off them.
struct Left {
    bytes: Expr,
    info: TensorInfo,
    zero: Option<(Expr, Vec<PrimExpr>)>,
}

/// What is to be done to the sums of a product.
struct Rest {
    /// Columns of the kernel.
    made: i64,
    /// What is added to the zero point.
    moved: i32,
    /// What every weight lacks.
    lacks: i32,
    /// Dims of the zero point.
    zero: Option<Vec<PrimExpr>>,
}

impl Pass<'_> {
    fn value<'b>(&'b self, e: &'b Expr) -> &'b Expr {
        e.as_var().and_then(|v| self.values.get(v)).unwrap_or(e)
    }

    fn call<'b>(&'b self, e: &'b Expr, op: &str) -> Option<&'b Call> {
        self.value(e).as_call().filter(|c| c.is_op(op))
    }

    fn tensor(&self, e: &Expr) -> Option<TensorInfo> {
        match e.kind() {
            ExprKind::Constant(c) => {
                let dims = c.shape.iter().map(|&n| PrimExpr::i64(n)).collect();
                StructInfo::tensor(dims, c.dtype).as_tensor().cloned()
            }
            _ => self.sinfo.get(e.as_var()?)?.as_tensor().cloned(),
        }
    }

    fn is(&self, e: &Expr, dtype: DType) -> bool {
        self.tensor(e).is_some_and(|t| t.dtype == Some(dtype))
    }

    /// A constant of integers that int32 holds, behind casts, transpositions, other shapes and zero points.
    fn ints(&self, e: &Expr) -> Option<Ints> {
        if let ExprKind::Constant(c) = self.value(e).kind() {
            let held = matches!(c.dtype, DType::I8 | DType::U8 | DType::I32);
            let values = || (0..c.elements()).map(|i| c.get_i64(i) as i32).collect();
            return held.then(|| Ints { values: values(), shape: c.shape.clone() });
        }
        if let Some(c) = self.call(e, "astype") {
            return self.ints(&c.args[0]).filter(|_| self.is(e, DType::I32));
        }
        if let Some(c) = self.call(e, "reshape") {
            let of = self.ints(&c.args[0])?;
            let shape: Option<Vec<i64>> = self.tensor(e)?.known_dims()?.iter().map(|d| d.as_int()).collect();
            return Some(Ints { shape: shape?, ..of });
        }
        if let Some(c) = self.call(e, "permute_dims") {
            let Ints { values, shape } = self.ints(&c.args[0])?;
            let [rows, columns] = shape[..] else { return None };
            let turned = self.tensor(e)?.known_dims()?.iter().map(|d| d.as_int()).eq([Some(columns), Some(rows)]);
            let plain = c.attrs.ints("axes").is_none_or(|a| a == [1, 0] || a == [-1, -2]);
            let at = |i: i64| values[(i % rows * columns + i / rows) as usize];
            let values = (0..rows * columns).map(at).collect();
            return (turned && plain).then_some(Ints { values, shape: vec![columns, rows] });
        }
        let c = self.call(e, "subtract").filter(|_| self.is(e, DType::I32))?;
        let (mut of, zero) = (self.ints(&c.args[0])?, self.ints(&c.args[1])?);
        let last = *of.shape.last()?;
        let along = zero.shape.last() == Some(&last) && zero.values.len() as i64 == last;
        if zero.values.len() != 1 && !along || zero.shape.len() > of.shape.len() {
            return None;
        }
        let count = zero.values.len();
        of.values.iter_mut().enumerate().for_each(|(i, v)| *v = v.wrapping_sub(zero.values[i % count]));
        Some(of)
    }

    /// Bytes, behind a cast and a zero point that is the same along the last axis.
    fn left(&self, e: &Expr) -> Option<Left> {
        let bytes = |e: &Expr| {
            let e = match self.call(e, "astype") {
                Some(c) if self.is(e, DType::I32) => c.args[0].clone(),
                _ => e.clone(),
            };
            let info = self.tensor(&e)?;
            (info.dtype == Some(DType::U8) || info.dtype == Some(DType::I8)).then_some((e, info))
        };
        if let Some((bytes, info)) = bytes(e) {
            return Some(Left { bytes, info, zero: None });
        }
        let c = self.call(e, "subtract")?;
        let (x, zero) = (c.args[0].clone(), c.args[1].clone());
        let (bytes, info) = bytes(&x).filter(|_| self.is(&x, DType::I32) && self.is(&zero, DType::I32))?;
        let of_zero = self.tensor(&zero)?;
        let dims = of_zero.known_dims()?.to_vec();
        let same = dims.last().is_none_or(|d| d.is_int(1)) && dims.len() <= info.known_dims()?.len();
        same.then_some(Left { bytes, info, zero: Some((zero, dims)) })
    }

    fn binding(&mut self, b: &Binding) -> Option<Vec<Binding>> {
        let BindingValue::Expr(e) = &b.value else { return None };
        let call = e.as_call()?;
        if call.is_op("matmul") {
            return self.product(b, call);
        }
        call.is_op("nn.conv2d").then(|| self.convolution(b, call))?
    }

    fn product(&mut self, b: &Binding, call: &Call) -> Option<Vec<Binding>> {
        let e = b.expr();
        let out = self.sinfo.get(&b.var)?.as_tensor().filter(|t| t.dtype == Some(DType::I32))?.clone();
        let left = self.left(&call.args[0])?;
        let dims = left.info.known_dims()?.to_vec();
        let (last, rows) = dims.split_last()?;
        let plain = rows.iter().all(|d| takes(d) && d.as_int().is_none_or(|d| d > 0));
        let weights = self.tensor(&call.args[1])?;
        let [Some(k), Some(n)] = weights.known_dims()?.iter().map(|d| d.as_int()).collect::<Vec<_>>()[..] else {
            return None;
        };
        if !plain || last.as_int() != Some(k) || k % 4 != 0 || k.checked_mul(n)? < FEW {
            return None;
        }
        let weights = self.ints(&call.args[1]).filter(|w| w.shape == [k, n])?.values;
        let lacks = lacks(&weights)?;
        let mut before = vec![];
        let mut bytes = left.bytes.clone();
        let signed = left.info.dtype == Some(DType::I8);
        if signed {
            bytes = self.bind(unsigned(&dims), vec![bytes], &dims, DType::U8, b, &mut before)?;
        }
        let made = (n + 3) / 4 * 4;
        let p = Product { k, n: made, vector_bytes: self.vector_bytes as i64 };
        let packed = p.pack(|i, j| if j < n { (weights[(i * n + j) as usize] - lacks) as i8 } else { 0 });
        let packed = constant(Constant::new(DType::I8, vec![packed.len() as i64], packed), e);
        let with = |last: i64| -> Vec<PrimExpr> { rows.iter().cloned().chain([PrimExpr::i64(last)]).collect() };
        let rest =
            Rest { made, moved: if signed { 128 } else { 0 }, lacks, zero: left.zero.as_ref().map(|z| z.1.clone()) };
        let prim = p.prim_func("matmul_integer", rows);
        let args = vec![bytes.clone(), packed];
        if made == n && rest.moved == 0 && rest.lacks == 0 && rest.zero.is_none() {
            let call = self.kernel(prim, args, StructInfo::Tensor(out), b)?;
            return Some(vec![Binding { value: BindingValue::Expr(call), ..b.clone() }]);
        }
        let mut args = vec![self.bind(prim, args, &with(made), DType::I32, b, &mut before)?];
        let mut sums = vec![0i32; n as usize];
        weights.iter().enumerate().for_each(|(i, v)| sums[i % n as usize] = sums[i % n as usize].wrapping_add(*v));
        let sums = sums.into_iter().flat_map(i32::to_le_bytes).collect();
        args.push(constant(Constant::new(DType::I32, vec![n], sums), e));
        args.extend(left.zero.map(|z| z.0));
        if rest.lacks != 0 {
            args.push(self.bind(row_sums(&dims), vec![bytes], rows, DType::I32, b, &mut before)?);
        }
        let call = self.kernel(rest.prim_func(rows, n), args, StructInfo::Tensor(out), b)?;
        before.push(Binding { value: BindingValue::Expr(call), ..b.clone() });
        Some(before)
    }

    /// The result of a kernel, as a variable of its own.
    fn bind(
        &mut self,
        prim: PrimFunc,
        args: Vec<Expr>,
        dims: &[PrimExpr],
        dtype: DType,
        b: &Binding,
        out: &mut Vec<Binding>,
    ) -> Option<Expr> {
        let info = StructInfo::tensor(dims.to_vec(), dtype);
        let var = RVar::new(prim.name.clone(), b.var.is_dataflow(), b.span);
        let value = BindingValue::Expr(self.kernel(prim, args, info.clone(), b)?);
        self.made.push((var.clone(), info));
        out.push(Binding { var: var.clone(), annotation: None, value, span: b.span });
        Some(Expr::new(ExprKind::Var(var), b.span))
    }

    fn kernel(&mut self, mut prim: PrimFunc, mut args: Vec<Expr>, out: StructInfo, b: &Binding) -> Option<Expr> {
        prim.name = self.names.fresh(&prim.name);
        prim.span = b.span;
        args.extend(scalars(&prim, b.expr()));
        let call = call_tir(&prim.name, args, vec![out], b.expr()).ok()?;
        self.new.push(prim);
        Some(call)
    }
}

/// What weights have to be moved by to be int8, if that is possible.
fn lacks(weights: &[i32]) -> Option<i32> {
    let (least, most) = (*weights.iter().min()?, *weights.iter().max()?);
    let lacks = if least >= -128 && most <= 127 { 0 } else { least.checked_add(128)? };
    (most.checked_sub(lacks)? <= 127).then_some(lacks)
}

fn constant(c: Constant, at: &Expr) -> Expr {
    Expr::new(ExprKind::Constant(c), at.span())
}

/// Signed bytes moved by 128.
fn unsigned(dims: &[PrimExpr]) -> PrimFunc {
    let mut f = KernelBuilder::new("unsigned");
    let x = f.input("x", dims, DType::I8);
    let y = f.compute("y", dims, DType::U8, |i| {
        PrimExpr::raw_binary(BinOp::BitXor, x.at(i).cast(DType::U8), PrimExpr::int(DType::U8, 128))
    });
    f.finish(&[y])
}

/// Sums along the last axis.
fn row_sums(dims: &[PrimExpr]) -> PrimFunc {
    let mut f = KernelBuilder::new("row_sums");
    let x = f.input("x", dims, DType::U8);
    let (last, rows) = (&dims[dims.len() - 1..], &dims[..dims.len() - 1]);
    let y = f.sum("y", rows, DType::I32, last, |i, k| {
        x.at(i.iter().cloned().chain([k[0].clone()]).collect::<Vec<_>>()).cast(DType::I32)
    });
    f.finish(&[y])
}

impl Rest {
    /// Parameters: the sums, those of the columns of the weights, the zero point and the sums of rows if there are any.
    fn prim_func(&self, rows: &[PrimExpr], n: i64) -> PrimFunc {
        let with = |last: i64| -> Vec<PrimExpr> { rows.iter().cloned().chain([PrimExpr::i64(last)]).collect() };
        let mut f = KernelBuilder::new("centred");
        let x = f.input("x", &with(self.made), DType::I32);
        let columns = f.input("columns", &[PrimExpr::i64(n)], DType::I32);
        let zero = self.zero.as_ref().map(|dims| (dims, f.input("zero", dims, DType::I32)));
        let of_rows = (self.lacks != 0).then(|| f.input("rows", rows, DType::I32));
        let y = f.compute("y", &with(n), DType::I32, |i| {
            let mut off = PrimExpr::i32(self.moved);
            if let Some((dims, zero)) = &zero {
                let first = i.len() - dims.len();
                let at = |(a, d): (usize, &PrimExpr)| match d.is_int(1) {
                    true => PrimExpr::i64(0),
                    false => i[first + a].clone(),
                };
                off = zero.at(dims.iter().enumerate().map(at).collect::<Vec<_>>()) + off;
            }
            let mut y = x.at(i) - off * columns.at([i[i.len() - 1].clone()]);
            if let Some(of_rows) = &of_rows {
                y = y + of_rows.at(&i[..i.len() - 1]) * PrimExpr::i32(self.lacks);
            }
            y
        });
        f.finish(&[y])
    }
}
