//! Quantised networks in integers: a float operator between `dequantize` and `quantize` becomes one kernel over 8-bit
//! integers that sums in int32 and rounds once.
//!
//! What is rewritten: convolutions and matrix products with constant int8 weights (zero point 0, a scale per tensor or
//! per output channel), with or without bias and clipping, whose data and result have one scale and zero point each;
//! sums of two such tensors; means over height and width. Images have their channels last between such kernels, so that
//! what one output needs lies side by side. Everything else stays as it is.
//!
//! The result is `clip(round_half_even(float32(acc) * m) + zero_point)` with the int32 sum `acc` and the float32
//! multiplier `m = scale_x * scale_w / scale_y`, as ONNX Runtime's QLinearConv computes it. It is the same on every
//! machine; a float network rounds differently where it comes close to a half.

mod kernels;
mod library;
mod matching;

pub use library::call as library_call;
pub(crate) use library::{forget, has as in_library};

use crate::legalize::{call_tir, Names};
use kernels::{Sum, Window};
use matching::{Matcher, Product};
use relax_ir::analysis::Typed;
use relax_ir::relax::{Binding, BindingBlock, BindingValue, Expr, ExprKind, Function, RVar, SeqExpr, StructInfo};
use relax_ir::tir::PrimFunc;
use relax_ir::{Constant, DType, Func, PrimExpr};
use std::collections::HashMap;
use std::sync::Arc;

/// Rewrites every function of the module, outside of branches and local functions.
pub fn to_integers(typed: &mut Typed) {
    let mut names = Names::new(&typed.module);
    let mut new = vec![];
    let mut funcs = std::mem::take(&mut typed.module.funcs);
    for f in &mut funcs {
        if let Func::Relax(f) = f {
            let matcher = Matcher::new(f);
            Pass { typed, names: &mut names, new: &mut new, matcher, last: HashMap::new() }.function(f);
        }
    }
    funcs.extend(new.into_iter().map(Func::Prim));
    typed.module.funcs = funcs;
}

struct Pass<'a> {
    typed: &'a mut Typed,
    names: &'a mut Names,
    new: &'a mut Vec<PrimFunc>,
    matcher: Matcher,
    /// Images with their channels last, by the variable that has them second.
    last: HashMap<RVar, RVar>,
}

impl Pass<'_> {
    fn function(&mut self, f: &mut Function) {
        let mut blocks = vec![];
        for block in &f.body.blocks {
            let mut bindings = vec![];
            for b in &block.bindings {
                self.matcher.define(b);
                let before = bindings.len();
                if self.binding(b, block.dataflow, &mut bindings).is_none() {
                    bindings.truncate(before);
                    bindings.push(b.clone());
                }
            }
            blocks.push(BindingBlock { bindings, ..block.clone() });
        }
        f.body = Arc::new(SeqExpr { blocks, body: f.body.body.clone() });
    }

    /// What replaces `b` goes to `out`; `None` when it stays.
    fn binding(&mut self, b: &Binding, dataflow: bool, out: &mut Vec<Binding>) -> Option<()> {
        let BindingValue::Expr(e) = &b.value else { return None };
        if let Some(p) = self.matcher.product(e, self.typed) {
            return match &p.window {
                Some(_) => self.convolution(b, e, p, dataflow, out),
                None => self.matrix_product(b, e, p, out),
            };
        }
        if let Some(s) = self.matcher.sum(e, self.typed) {
            return self.sum(b, e, s, dataflow, out);
        }
        self.mean(b, e, out)
    }

    fn convolution(&mut self, b: &Binding, e: &Expr, p: Product, dataflow: bool, out: &mut Vec<Binding>) -> Option<()> {
        let (x, y) = (self.dims(&p.x)?, self.dims_of(&b.var)?);
        let prim = kernels::convolution(&p, &x, &y)?;
        let data = self.channels_last(&p.x, p.x_dtype, &x, e, dataflow, out)?;
        let args = vec![data, constant(p.weights), constant(p.bias), constant(p.scales)];
        let shape = vec![y[0], y[2], y[3], y[1]];
        self.image(b, prim, args, shape, p.y_dtype, e, dataflow, out)
    }

    fn matrix_product(&mut self, b: &Binding, e: &Expr, p: Product, out: &mut Vec<Binding>) -> Option<()> {
        let (x, y) = (self.dims(&p.x)?, self.dims_of(&b.var)?);
        let prim = kernels::matrix_product(&p, &x, &y)?;
        let args = vec![p.x.clone(), constant(p.weights), constant(p.bias), constant(p.scales)];
        let value = self.call(prim, args, &y, p.y_dtype, e)?;
        out.push(Binding { value, ..b.clone() });
        Some(())
    }

    fn sum(&mut self, b: &Binding, e: &Expr, s: Sum, dataflow: bool, out: &mut Vec<Binding>) -> Option<()> {
        let y = self.dims_of(&b.var)?;
        if self.dims(&s.a.data)? != y || self.dims(&s.b.data)? != y {
            return None;
        }
        let images =
            s.a.data.as_var().and_then(|v| self.last.get(v)).zip(s.b.data.as_var().and_then(|v| self.last.get(v)));
        match images {
            Some((a, c)) => {
                let args = vec![a.expr(), c.expr()];
                let shape = vec![y[0], y[2], y[3], y[1]];
                let prim = kernels::sum(&s, &shape);
                self.image(b, prim, args, shape, s.y_dtype, e, dataflow, out)
            }
            None => {
                let value =
                    self.call(kernels::sum(&s, &y), vec![s.a.data.clone(), s.b.data.clone()], &y, s.y_dtype, e)?;
                out.push(Binding { value, ..b.clone() });
                Some(())
            }
        }
    }

    /// Of an image whose channels are last.
    fn mean(&mut self, b: &Binding, e: &Expr, out: &mut Vec<Binding>) -> Option<()> {
        let x = self.matcher.mean(e, self.typed)?;
        let dims = self.dims(&x.data)?;
        let [n, c, h, w] = dims[..] else { return None };
        let y = self.dims_of(&b.var)?;
        if y.iter().product::<i64>() != n * c {
            return None;
        }
        let last = self.last.get(x.data.as_var()?)?.expr();
        let prim = kernels::mean([n, h, w, c], &y, &x);
        let value = self.call(prim, vec![last], &y, DType::F32, e)?;
        out.push(Binding { value, ..b.clone() });
        Some(())
    }

    /// Binds the image that `prim` makes with its channels last, and `b`'s variable to what others expect.
    #[allow(clippy::too_many_arguments)]
    fn image(
        &mut self,
        b: &Binding,
        prim: PrimFunc,
        args: Vec<Expr>,
        shape: Vec<i64>,
        dtype: DType,
        e: &Expr,
        dataflow: bool,
        out: &mut Vec<Binding>,
    ) -> Option<()> {
        let value = self.call(prim, args, &shape, dtype, e)?;
        let var = self.variable(b.var.name(), &shape, dtype, e, dataflow);
        out.push(Binding { var: var.clone(), annotation: None, value, span: b.span });
        let [n, h, w, c] = shape[..] else { return None };
        let first = [n, c, h, w];
        let back = kernels::transpose("channels_second", &shape, &first, [0, 2, 3, 1], dtype);
        let value = self.call(back, vec![var.expr()], &first, dtype, e)?;
        out.push(Binding { value, ..b.clone() });
        self.last.insert(b.var.clone(), var);
        Some(())
    }

    fn channels_last(
        &mut self,
        x: &Expr,
        dtype: DType,
        dims: &[i64],
        e: &Expr,
        dataflow: bool,
        out: &mut Vec<Binding>,
    ) -> Option<Expr> {
        let v = x.as_var()?;
        if let Some(known) = self.last.get(v) {
            return Some(known.expr());
        }
        let [n, c, h, w] = dims[..] else { return None };
        let shape = [n, h, w, c];
        let prim = kernels::transpose("channels_last", dims, &shape, [0, 3, 1, 2], dtype);
        let value = self.call(prim, vec![x.clone()], &shape, dtype, e)?;
        let var = self.variable(v.name(), &shape, dtype, e, dataflow);
        out.push(Binding { var: var.clone(), annotation: None, value, span: e.span() });
        self.last.insert(v.clone(), var.clone());
        Some(var.expr())
    }

    fn variable(&mut self, name: &str, shape: &[i64], dtype: DType, e: &Expr, dataflow: bool) -> RVar {
        let var = RVar::new(format!("{name}_nhwc"), dataflow, e.span());
        self.typed.sinfo.insert(var.clone(), tensor(shape, dtype));
        var
    }

    fn call(
        &mut self,
        mut prim: PrimFunc,
        args: Vec<Expr>,
        shape: &[i64],
        dtype: DType,
        e: &Expr,
    ) -> Option<BindingValue> {
        prim.name = self.names.fresh(&prim.name);
        prim.span = e.span();
        let value = call_tir(&prim.name, args, vec![tensor(shape, dtype)], e).ok()?;
        self.new.push(prim);
        Some(BindingValue::Expr(value))
    }

    fn dims(&self, e: &Expr) -> Option<Vec<i64>> {
        let info = self.typed.info_of(e)?;
        info.as_tensor()?.known_dims()?.iter().map(PrimExpr::as_int).collect()
    }

    fn dims_of(&self, v: &RVar) -> Option<Vec<i64>> {
        self.typed.sinfo.get(v)?.as_tensor()?.known_dims()?.iter().map(PrimExpr::as_int).collect()
    }
}

fn tensor(shape: &[i64], dtype: DType) -> StructInfo {
    StructInfo::tensor(shape.iter().map(|d| PrimExpr::i64(*d)).collect(), dtype)
}

fn constant(c: Constant) -> Expr {
    Expr::new(ExprKind::Constant(c), relax_ir::Span::NONE)
}

impl Product {
    /// What limits the result: the type, and the clipping in the model.
    pub(super) fn window_or_point(&self) -> Window {
        self.window.unwrap_or_default()
    }
}
