//! Gradients and marks of the gradient pass.

use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::elem::wide_dtype;
use crate::op::families::pool::Window;
use crate::op::families::{loss, rules};
use crate::op::rule::dim_text;
use crate::op::*;
use crate::prim::{PrimExpr, Var};
use crate::relax::StructInfo;
use crate::tir::{PrimFunc, Reducer, Stmt};

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "grad.no_grad",
        "Marks the operand as constant for the gradient; the identity.",
        &[operand("input")],
        infer_same,
        Compute::Kernel(identity),
    ),
    OpDecl::pure(
        "grad.start_checkpoint",
        "Begins a checkpointed stage of the gradient; the identity of a variable.",
        &[operand("input")],
        infer_checkpoint,
        Compute::Kernel(identity),
    ),
    OpDecl::pure(
        "grad.end_checkpoint",
        "Ends a checkpointed stage of the gradient; the identity of a variable.",
        &[operand("input")],
        infer_checkpoint,
        Compute::Kernel(identity),
    ),
    OpDecl::pure(
        "grad.nll_loss_backward",
        "The gradient of `nn.nll_loss` with respect to the predictions, from that of its result.",
        &[
            operand("output_grad"),
            operand("predictions"),
            operand("targets"),
            optional("weights"),
            attr("reduction", Default::Str("mean")),
            attr("ignore_index", Default::Int(-100)),
        ],
        infer_nll_loss_backward,
        Compute::Kernel(nll_loss_backward),
    )
    .ulp(8),
    OpDecl::pure(
        "grad.max_pool2d_backward",
        "The gradient of `nn.max_pool2d` with respect to the data: each window adds its gradient to its first largest element.",
        &[
            operand("output_grad"),
            operand("data"),
            attr("pool_size", Default::Ints(&[1, 1])),
            attr("strides", Default::Ints(&[1, 1])),
            attr("padding", Default::Ints(&[0, 0, 0, 0])),
            attr("dilation", Default::Ints(&[1, 1])),
            attr("ceil_mode", Default::Bool(false)),
            attr("count_include_pad", Default::Bool(false)),
            attr("layout", Default::Str("NCHW")),
            attr("out_layout", Default::None),
        ],
        infer_pool,
        Compute::Kernel(max_pool2d_backward),
    )
    .ulp(2),
    OpDecl::pure(
        "grad.avg_pool2d_backward",
        "The gradient of `nn.avg_pool2d` with respect to the data: each window spreads its gradient over its elements; `count_include_pad` divides by the size of the window, else by its elements inside the input.",
        &[
            operand("output_grad"),
            operand("data"),
            attr("pool_size", Default::Ints(&[1, 1])),
            attr("strides", Default::Ints(&[1, 1])),
            attr("padding", Default::Ints(&[0, 0, 0, 0])),
            attr("dilation", Default::Ints(&[1, 1])),
            attr("ceil_mode", Default::Bool(false)),
            attr("count_include_pad", Default::Bool(false)),
            attr("layout", Default::Str("NCHW")),
            attr("out_layout", Default::None),
        ],
        infer_pool,
        Compute::Kernel(avg_pool2d_backward),
    )
    .ulp(4),
    OpDecl::pure(
        "grad.take_backward",
        "The gradient of `take` with respect to the data: adds the gradient where the one-dim indices point; those out of range (negative ones count from the end) are ignored.",
        &[
            operand("output_grad"),
            operand("x"),
            operand("indices"),
            attr("axis", Default::None),
            attr("mode", Default::Str("fast")),
        ],
        infer_take_backward,
        Compute::Kernel(take_backward),
    )
    .ulp(4),
];

fn infer_same(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    cx.infos.first().cloned().ok_or_else(|| cx.error("an operand is missing"))
}

fn identity(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let outs: Vec<_> = inputs.iter().map(|x| k.compute("copy", &x.shape, x.dtype(), |i| x.at(i))).collect();
    Ok(k.finish(&outs))
}

fn infer_checkpoint(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    if cx.args.first().is_some_and(|a| a.as_var().is_none()) {
        return Err(cx.error("the operand must be a variable"));
    }
    infer_same(cx)
}

/// The gradient of a result may have another dtype than the numbers `of` that it is handed back to, whose dtype is the
/// result's (TVM `InferType` of each takes that of `of`).
fn counts_as(cx: &InferCx, grad: (&str, Option<DType>), of: (&str, Option<DType>)) -> Result<(), Diagnostic> {
    match of.1 {
        Some(d) if !d.is_bool() => Ok(()),
        _ => cx.same_dtype(&[grad, of]).map(drop),
    }
}

fn infer_nll_loss_backward(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let loss = loss::infer_nll(cx, 1)?;
    let (g, p) = (rules::tensor(cx, 0)?, rules::tensor(cx, 1)?);
    counts_as(cx, ("output_grad", g.dtype), ("predictions", p.dtype))?;
    if let Some(l) = loss.as_tensor() {
        if let Some(n) = l.ndim {
            rules::require_ndim(cx, 0, n)?;
        }
        if let (Some(a), Some(b)) = (g.known_dims(), l.known_dims()) {
            for (a, b) in a.iter().zip(b) {
                cx.require_eq(a, b, || format!("dims differ: output_grad {}, loss {}", dim_text(a), dim_text(b)))?;
            }
        }
    }
    Ok(StructInfo::Tensor(p))
}

fn nll_loss_backward(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (targets, out) = (cx.tensor(2)?, cx.result()?);
    let (mut k, x) = cx.kernel()?;
    let (g, t, w) = (&x[0], &x[2], x.get(3));
    let acc = wide_dtype(out.dtype);
    let reduction = cx.attrs.str("reduction").unwrap_or("mean");
    let total = match reduction {
        "mean" => Some(k.sum("weight_sum", &[], acc, targets.dims, |_, r| loss::weight(cx, t, w, r, acc))),
        _ => None,
    };
    let class_axis = out.dims.len().min(2) - 1;
    let y = k.compute("nll_loss_backward", out.dims, out.dtype, |i| {
        let mut at = i.to_vec();
        let class = at.remove(class_axis);
        let grad = match reduction {
            "none" => g.at(at.clone()),
            _ => g.at([]),
        };
        let value = (loss::weight(cx, t, w, &at, acc) * grad.cast(acc)).neg();
        let value = match &total {
            Some(n) => value / n.at([]),
            None => value,
        };
        t.at(at).cast(DType::I64).eq(class).if_then_else(value, PrimExpr::zero(acc))
    });
    Ok(k.finish(&[y]))
}

fn infer_pool(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let win = Window::read("max_pool2d", cx.attrs).map_err(|e| cx.error(e))?;
    if cx.attrs.ints("padding").is_some_and(|p| p.len() != 4) {
        return Err(cx.error("padding must be 4 integers: top, left, bottom, right"));
    }
    let (g, x) = (rules::tensor(cx, 0)?, rules::tensor(cx, 1)?);
    counts_as(cx, ("output_grad", g.dtype), ("data", x.dtype))?;
    rules::require_ndim(cx, 0, win.out.rank())?;
    rules::require_ndim(cx, 1, win.data.rank())?;
    Ok(StructInfo::Tensor(x))
}

/// The dtype that gradients of dtype `grad` for data of dtype `data` are summed in: floats stay floats until the sum is one
/// of integers.
fn sum_dtype(grad: DType, data: DType) -> DType {
    match (grad.is_float(), data.is_float()) {
        (_, true) => wide_dtype(data),
        (true, false) => wide_dtype(grad),
        (false, false) => DType::I64,
    }
}

/// For each element of the data, the sum over the windows it lies in: `value(window, tap)` with the index of the
/// window in `output_grad` and the taps.
fn scatter_windows(
    cx: &ComputeCx,
    k: &mut crate::tir::KernelBuilder,
    win: &Window,
    value: impl Fn(&[PrimExpr], &[PrimExpr]) -> PrimExpr,
) -> Result<crate::tir::Buffer, Diagnostic> {
    let (grad, out) = (cx.tensor(0)?, cx.result()?);
    let acc = sum_dtype(grad.dtype, out.dtype);
    let taps: Vec<PrimExpr> = win.size.iter().map(|s| PrimExpr::i64(*s)).collect();
    let sum = k.sum("pool_grad", out.dims, acc, &taps, |s, r| {
        let mut inside = PrimExpr::bool(true);
        let mut at = vec![];
        for (i, a) in win.axes.chars().enumerate() {
            let from = win.data.along(s, a) + win.before[i] - r[i].clone() * win.dilation[i];
            let w = from.clone().floor_div(win.strides[i]);
            let fits = from.clone().ge(0).and(w.clone().lt(win.out.size(grad.dims, a)));
            inside = inside.and(fits).and(from.floor_mod(win.strides[i]).eq(0));
            at.push(w);
        }
        let window = win.out.index(|a| match win.axes.find(a) {
            Some(i) => at[i].clone(),
            None => win.data.along(s, a),
        });
        inside.if_then_else(value(&window, r).cast(acc), PrimExpr::zero(acc))
    });
    Ok(rules::narrow(k, sum, out.dtype))
}

fn avg_pool2d_backward(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let win = Window::read("avg_pool2d", cx.attrs).map_err(|e| cx.error(e))?;
    let (grad, data) = (cx.tensor(0)?, cx.tensor(1)?);
    let (mut k, x) = cx.kernel()?;
    let acc = sum_dtype(grad.dtype, data.dtype);
    let whole: i64 = win.size.iter().product();
    let y = scatter_windows(cx, &mut k, &win, |w, _| {
        let count = match win.count_include_pad {
            true => PrimExpr::i64(whole),
            false => win.count(w, data.dims),
        };
        // As TVM: integers are divided as integers, towards zero.
        match grad.dtype.is_float() {
            true => x[0].at(w).cast(acc) / count.cast(acc),
            false => x[0].at(w).cast(DType::I64).trunc_div(count.cast(DType::I64)),
        }
    })?;
    Ok(k.finish(&[y]))
}

fn max_pool2d_backward(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let win = Window::read("max_pool2d", cx.attrs).map_err(|e| cx.error(e))?;
    let (grad, data) = (cx.tensor(0)?, cx.tensor(1)?);
    let (mut k, x) = cx.kernel()?;
    let taps: Vec<PrimExpr> = win.size.iter().map(|s| PrimExpr::i64(*s)).collect();
    let lowest = PrimExpr::min_value(data.dtype);
    let tap = |s: &[PrimExpr], r: &[PrimExpr]| {
        let mut inside = PrimExpr::bool(true);
        let at = win.data.index(|a| match win.axes.find(a) {
            Some(i) => win.out.along(s, a) * win.strides[i] + r[i].clone() * win.dilation[i] - win.before[i],
            None => win.out.along(s, a),
        });
        for a in win.axes.chars() {
            let p = win.data.along(&at, a);
            inside = inside.and(p.clone().ge(0)).and(p.lt(win.data.size(data.dims, a)));
        }
        inside.if_then_else(x[1].at(at), lowest.clone())
    };
    let reducer = Reducer { init: lowest.clone(), combine: &|a, b| a.max(b) };
    let max = k.reduce("pool_max", grad.dims, data.dtype, &taps, reducer, tap);
    // The number of the first tap that holds the maximum.
    let number = |r: &[PrimExpr]| r[0].clone() * win.size[1] + r[1].clone();
    let none = PrimExpr::i64(win.size.iter().product());
    let reducer = Reducer { init: none.clone(), combine: &|a, b| a.min(b) };
    let first = k.reduce("pool_argmax", grad.dims, DType::I64, &taps, reducer, |s, r| {
        tap(s, r).eq(max.at(s)).select(number(r), none.clone())
    });
    let acc = sum_dtype(grad.dtype, data.dtype);
    let y = scatter_windows(cx, &mut k, &win, |w, r| {
        first.at(w).eq(number(r)).select(x[0].at(w).cast(acc), PrimExpr::zero(acc))
    })?;
    Ok(k.finish(&[y]))
}

fn infer_take_backward(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (g, x, i) = (rules::tensor(cx, 0)?, rules::tensor(cx, 1)?, rules::tensor(cx, 2)?);
    counts_as(cx, ("output_grad", g.dtype), ("x", x.dtype))?;
    cx.require_int(2, i.dtype)?;
    rules::require_ndim(cx, 2, 1)?;
    match (cx.attrs.int("axis"), x.ndim) {
        (Some(a), Some(n)) => drop(cx.axis(a, n)?),
        (None, Some(n)) if n != 1 => return Err(cx.error("without axis the data must have one dim")),
        _ => {}
    }
    if let Some(n) = x.ndim {
        rules::require_ndim(cx, 0, n)?;
    }
    Ok(StructInfo::Tensor(x))
}

fn take_backward(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let out = cx.result()?;
    let (mut k, x) = cx.kernel()?;
    let (grad, indices) = (&x[0], &x[2]);
    let axis = cx.axis(cx.attrs.int("axis").unwrap_or(0), out.dims.len())?;
    let acc = wide_dtype(out.dtype);
    let sum = k.compute("zero", out.dims, acc, |_| PrimExpr::zero(acc));
    let vars: Vec<Var> = (0..out.dims.len()).map(|d| Var::new(format!("i{d}"), DType::I64)).collect();
    let from: Vec<PrimExpr> = vars.iter().map(|v| v.expr()).collect();
    let at = Var::new("at", DType::I64);
    let size = out.dims[axis].clone();
    let raw = indices.at([from[axis].clone()]).cast(DType::I64);
    let wrapped = raw.clone().lt(0).select(raw.clone() + size.clone(), raw);
    let mut to = from.clone();
    to[axis] = at.expr();
    // As TVM: a gradient of floats is added to each integer, and cut, on its own.
    let step = match (grad.dtype().is_float(), acc.is_float()) {
        (true, false) => wide_dtype(grad.dtype()),
        _ => acc,
    };
    let add = Stmt::store(&sum, to.clone(), (sum.at(to).cast(step) + grad.at(from).cast(step)).cast(acc));
    let inside = at.expr().ge(0).and(at.expr().lt(size));
    let body = Stmt::let_in(&at, wrapped, Stmt::if_then(inside, add));
    let loops = vars.iter().zip(&grad.shape).rev();
    k.push(loops.fold(body, |s, (v, extent)| Stmt::for_serial(v, extent.clone(), s)));
    let y = rules::narrow(&mut k, sum, out.dtype);
    Ok(k.finish(&[y]))
}
