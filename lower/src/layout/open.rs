//! Pictures of open sizes: rows and columns (or how many pictures there are) that are known when a function is called.
//!
//! Their convolutions and maxima are windows too, whose kernels take the sizes from their arguments
//! ([`Window::open`](crate::schedule::window::Window::open)). Which columns lie outside of the data under which window is
//! not known here: kernels ask ([`Window::has_edges`]), and channels-last data of direct convolutions gets its columns of
//! zeros before;
//! rows are left out as they are under windows of known sizes.

use super::forms::two;
use super::norms::NORMS;
use super::planes::{is_long, CONVOLUTIONS, TRANSPOSED};
use super::samples::SAMPLERS;
use super::{call, follow, follows, ints, packed, Out, Pass, ALONG, FEW_CHANNELS, REDUCTIONS};
use crate::schedule::window::{Kind, Plan, Sizes, Window};
use relax_ir::attrs::Attrs;
use relax_ir::relax::{Binding, BindingValue, Call, Expr, ExprKind, RVar};
use relax_ir::{DType, PrimExpr, Var};
use std::collections::HashMap;

/// What is open is taken for where costs are compared: rows and columns of pictures, else so many samples of a sound that
/// something is left of them behind the convolutions before.
const LIKELY: [i64; 4] = [224, 224 << 4, 224 << 8, 224 << 12];

/// Of an open dim something is left if that many are.
const LEFT: i64 = 3;

/// Dims as the cost model takes them, all for the same value of what is open: positive.
pub(crate) fn likely<const N: usize>(dims: [&PrimExpr; N]) -> Option<[i64; N]> {
    likely_dims(&dims)?.try_into().ok()
}

/// Those of data, and of what windows over it make.
pub(super) fn likely_sides(data: &[PrimExpr], made: &[PrimExpr]) -> Option<[Vec<i64>; 2]> {
    let all: Vec<&PrimExpr> = data.iter().chain(made).collect();
    let mut data_of = likely_dims(&all)?;
    let made = data_of.split_off(data.len());
    Some([data_of, made])
}

fn likely_dims(dims: &[&PrimExpr]) -> Option<Vec<i64>> {
    let at = |value: i64| -> Option<Vec<i64>> {
        let int = |v: Var| (v.clone(), PrimExpr::int(v.dtype(), value));
        let number = |d: &PrimExpr| d.substitute(&d.vars().into_iter().map(int).collect::<HashMap<_, _>>()).as_int();
        dims.iter().map(|d| number(d).filter(|n| *n > 0)).collect()
    };
    let left = |n: &[i64]| dims.iter().zip(n).all(|(d, n)| d.as_int().is_some() || *n >= LEFT);
    let mut all = LIKELY.into_iter().filter_map(at).peekable();
    let first = all.peek().cloned();
    all.find(|n| left(n)).or(first)
}

/// The padding behind the last column, at most.
fn after(c: &Call) -> Option<i64> {
    c.attrs.ints("padding")?.last().copied().filter(|n| *n >= 0)
}

/// The tensor with other dims.
pub(super) fn reshape_to(x: Expr, dims: Vec<PrimExpr>, out: &Out) -> Option<Expr> {
    call("reshape", vec![x, Expr::new(ExprKind::Shape(dims), out.span)], Attrs::default(), out.span)
}

impl Pass {
    /// The dims of a tensor.
    pub(super) fn shape(&self, e: &Expr, out: &Out) -> Option<Vec<PrimExpr>> {
        Some(out.typed.info_of(e)?.as_tensor()?.known_dims()?.to_vec())
    }

    /// What binds a tensor of open dims.
    pub(super) fn open(&mut self, b: &Binding, c: &Call, at: &Expr, mut out: Out) -> Option<Vec<Binding>> {
        let dims = self.shape(&b.var.expr(), &out)?;
        let name = c.op()?.name;
        if REDUCTIONS.contains(&name) && dims.len() == 2 {
            return self.reduced(b, c, &mut out);
        }
        if let Some(new) = self.written_norm(b, &dims, &mut out) {
            return Some(self.also(b, new, out));
        }
        let dtype = out.typed.sinfo.get(&b.var)?.as_tensor()?.dtype;
        let compared = dtype == Some(DType::BOOL) && follows(name);
        let float = dtype == Some(DType::F32);
        if !(3..=4).contains(&dims.len()) || !float && !compared {
            return None;
        }
        let new = match name {
            _ if CONVOLUTIONS.contains(&name) => self.open_conv(b, c, &dims, at, &mut out)?,
            _ if TRANSPOSED.contains(&name) => self.transposed(b, c, &dims, &mut out)?,
            "concat" => self.concat(b, c, &mut out)?,
            "nn.max_pool2d" if self.last_of(c.args.first()?).is_some() => match self.open_max(b, c, &dims, &mut out) {
                Some(new) => new,
                None => self.pool(b, c, &mut out)?,
            },
            "nn.max_pool2d" | "nn.avg_pool2d" | "nn.adaptive_avg_pool2d" => self.pool(b, c, &mut out)?,
            "strided_slice" => self.slice(b, c, &mut out)?,
            "image.resize2d" => self.resize(b, c, &mut out)?,
            _ if SAMPLERS.contains(&name) => self.sampled(b, c, &dims, &mut out)?,
            _ if ALONG.contains(&name) => self.along_axis(b, c, dims.len(), &mut out)?,
            "nn.pad" => self.padded(b, c, dims.len(), &mut out)?,
            "broadcast_to" => self.broadcast(b, c, &dims, &mut out)?,
            _ if NORMS.contains(&name) => self.norm(b, c, &dims, &mut out)?,
            _ if REDUCTIONS.contains(&name) => self.reduction(b, c, &mut out)?,
            _ if compared || follows(name) => self.elementwise(b, c, &dims, &mut out)?,
            _ => return None,
        };
        self.open_bound(b, new, &dims, out)
    }

    /// Binds `new`, the NHWC form, as what the program names.
    pub(super) fn open_bound(
        &mut self,
        b: &Binding,
        new: RVar,
        dims: &[PrimExpr],
        mut out: Out,
    ) -> Option<Vec<Binding>> {
        let value = self.open_named(&new, dims, &mut out)?;
        // What is checked before the tensor is made is checked before its NHWC form is, which may be all that stays.
        if let Some(first) = out.list.first().map(|f| f.var.clone()) {
            for check in out.typed.checks.iter_mut().filter(|k| k.before == b.var) {
                check.before = first.clone();
            }
        }
        if !self.written.contains(&b.var) {
            self.last.insert(b.var.clone(), new);
        }
        out.list.push(Binding { value: BindingValue::Expr(value), ..b.clone() });
        Some(out.list)
    }

    /// The form that the program names, of these dims, of an NHWC tensor.
    fn open_named(&self, new: &RVar, dims: &[PrimExpr], out: &mut Out) -> Option<Expr> {
        if let [n, channels, columns] = dims {
            let apart = reshape_to(new.expr(), vec![n.clone(), columns.clone(), channels.clone()], out)?;
            let apart = out.bind("channels_last", apart)?;
            return super::transpose(apart.expr(), &[0, 2, 1], out.span);
        }
        match dims[2..].iter().all(|d| d.is_int(1)) {
            true => reshape_to(new.expr(), dims.to_vec(), out),
            false => super::transpose(new.expr(), &[0, 3, 1, 2], out.span),
        }
    }

    /// The NHWC form of a tensor of open dims that has none.
    pub(super) fn open_last(&mut self, e: &Expr, out: &mut Out) -> Option<RVar> {
        let dims = self.shape(e, out)?;
        match dims.as_slice() {
            [n, channels, columns] => {
                let turned = out.bind("channels_last", super::transpose(e.clone(), &[0, 2, 1], out.span)?)?;
                let to = vec![n.clone(), PrimExpr::i64(1), columns.clone(), channels.clone()];
                out.bind("channels_last", reshape_to(turned.expr(), to, out)?)
            }
            [..] if dims.len() == 4 => out.bind("channels_last", super::transpose(e.clone(), &[0, 2, 3, 1], out.span)?),
            _ => None,
        }
    }

    /// The sizes of a window's data, as its kernel reads it, and of its result.
    pub(super) fn open_sizes(&self, b: &Binding, w: &Window, x: &Expr, out: &Out) -> Option<Sizes> {
        let (data, dims) = (self.shape(x, out)?, self.shape(&b.var.expr(), out)?);
        let first = if w.last { 1 } else { 2 };
        let size = [data.get(first)?.clone(), data.get(first + 1)?.clone()];
        let made = match dims.as_slice() {
            [_, _, columns] => [PrimExpr::i64(1), columns.clone()],
            [_, _, rows, columns] => [rows.clone(), columns.clone()],
            _ => return None,
        };
        Some(Sizes { batch: data[0].clone(), size, out: made })
    }

    fn open_conv(&mut self, b: &Binding, c: &Call, dims: &[PrimExpr], at: &Expr, out: &mut Out) -> Option<RVar> {
        let x = c.args.first()?;
        let data = self.shape(x, out)?;
        data.get(1)?.as_int()?;
        let [taken, made] = likely_sides(&data, dims)?;
        let (plane, weight) = self.plane(&b.var, c, &taken, &made)?;
        let values = plane.weights(&weight);
        let mut w = plane.window.clone();
        // Columns that are stacked have their zeros.
        let after = if plane.columns.is_some() { 0 } else { after(c)? };
        w.open = true;
        w.batch = data[0].as_int().unwrap_or(1);
        let few = w.taken <= FEW_CHANNELS && w.kernel[0] * w.kernel[1] > 1 && !self.is_last(x) && !is_long(&w);
        w.last = w.kind == Kind::Depthwise || w.groups > 1 || !few;
        if after == 0 && w.before[1] == 0 {
            if let Some(parts) = self.parts_of(x, out).filter(|p| self.splits(&w, p.len())) {
                let sum = self.split(b, &w, &values, parts, at, out)?;
                return self.kept(b, &w, dims.get(1)?, sum, out);
            }
        }
        let x = match (w.last, data.as_slice()) {
            (true, _) => match (self.as_last(x, out)?, plane.columns) {
                (x, Some(c)) => self.beside(b, c, &x, &w, dims.last()?, out)?.expr(),
                (x, None) => x.expr(),
            },
            (false, [n, channels, columns]) => {
                let to = vec![n.clone(), channels.clone(), PrimExpr::i64(1), columns.clone()];
                out.bind("data", reshape_to(x.clone(), to, out)?)?.expr()
            }
            (false, _) => x.clone(),
        };
        if let Some(&made) = self.transformed.get(&b.var).filter(|_| w.suits_winograd(self.lanes)) {
            w.kind = Kind::Winograd(made);
        }
        let asks = match w.kind {
            Kind::Conv => !w.last,
            _ => w.has_edges(),
        };
        let x = match asks {
            true => {
                w.margin = [w.before[1], after];
                x
            }
            false => self.bordered(&mut w, after, x, out)?,
        };
        self.choose(&mut w);
        w.half = w.half.filter(|_| !matches!(w.kind, Kind::Winograd(_)));
        let args = vec![x, Expr::new(ExprKind::Constant(packed(&w, &values)), at.span())];
        let made = self.kernel(b, &w, args, at, out)?;
        self.kept(b, &w, dims.get(1)?, made, out)
    }

    fn open_max(&mut self, b: &Binding, c: &Call, dims: &[PrimExpr], out: &mut Out) -> Option<RVar> {
        let x = self.last_of(c.args.first()?)?;
        let data = self.shape(c.args.first()?, out)?;
        let text = |name: &str| c.attrs.str(name).unwrap_or("");
        let plain = text("layout") == "NCHW" && ["", "NCHW"].contains(&text("out_layout"));
        let channels = data[1].as_int().filter(|n| n % 4 == 0 && plain)?;
        let (before, [_, stride]) = (follow::before(c)?, two(c, "strides")?);
        // The last one of windows that are rounded up reaches less than a step further.
        let after = after(c)? + if c.attrs.bool("ceil_mode") == Some(true) { stride - 1 } else { 0 };
        let [rows, columns, made_rows, made_columns] = likely([&data[2], &data[3], &dims[2], &dims[3]])?;
        let w = Window {
            kind: Kind::Max,
            batch: data[0].as_int().unwrap_or(1),
            size: [rows, columns],
            taken: channels,
            pitch: 0,
            out: [made_rows, made_columns],
            made: channels,
            kernel: two(c, "pool_size")?,
            stride: two(c, "strides")?,
            dilation: two(c, "dilation")?,
            groups: 1,
            before,
            last: true,
            panel: self.lanes,
            open: true,
            half: None,
            margin: [before[1], after],
            plan: Plan { epilogue: self.epilogues.get(&b.var).copied().unwrap_or(0), ..Plan::default() },
        };
        if w.before.iter().any(|p| *p < 0) || w.kernel[1] > 5 || w.dilation[1] > 4 {
            return None;
        }
        // Maxima of a concatenation are one of maxima.
        let parts = self.parts_of(c.args.first()?, out).filter(|p| p.iter().all(|(_, n)| n % 4 == 0));
        let Some(parts) = parts else { return self.kernel(b, &w, vec![x.expr()], b.expr(), out) };
        let mut all = vec![];
        for (x, taken) in parts {
            all.push(self.kernel(b, &Window { taken, made: taken, ..w.clone() }, vec![x.expr()], b.expr(), out)?);
        }
        self.joined(b, all, out)
    }

    /// The data with columns of zeros at both ends, as many as windows reach beyond it.
    pub(super) fn bordered(&self, w: &mut Window, after: i64, x: Expr, out: &mut Out) -> Option<Expr> {
        let before = std::mem::take(&mut w.before[1]);
        if before == 0 && after == 0 {
            return Some(x);
        }
        w.size[1] += before + after;
        w.margin = [before, after];
        let mut widths = vec![0; 8];
        let columns = if w.last { 2 } else { 3 };
        (widths[2 * columns], widths[2 * columns + 1]) = (before, after);
        let mut attrs = Attrs::default();
        attrs.set("pad_width", ints(&widths));
        let padded = out.bind("bordered", call("nn.pad", vec![x], attrs, out.span)?)?;
        Some(padded.expr())
    }
}
