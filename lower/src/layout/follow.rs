//! What follows convolutions on the way: elementwise operators, pooling, reductions that keep the dims, concatenations.

use super::forms::{last_dims, place, two};
use super::{call, ints, Out, Pass};
use crate::schedule::window::{Kind, Plan, Window};
use relax_ir::attrs::Attrs;
use relax_ir::relax::{Binding, BindingValue, Call, Expr, ExprKind, RVar, StructInfo};
use relax_ir::{AttrValue, Constant, DType, PrimExpr};

/// How many elements the mean over the window at `at` divides by along axis `i` of rows and columns, as
/// `nn.avg_pool2d` defines it.
fn counted(c: &Call, i: usize, at: i64, size: i64) -> Option<i64> {
    let (stride, d, taps) = (two(c, "strides")?[i], two(c, "dilation")?[i], two(c, "pool_size")?[i]);
    let before = before(c)?[i];
    let after = match c.attrs.ints("padding")?.as_slice() {
        [a] => *a,
        [a, b] => [*a, *b][i],
        [.., a, b] => [*a, *b][i],
        [] => return None,
    };
    if before == 0 && after == 0 && c.attrs.bool("ceil_mode") != Some(true) {
        return Some(taps);
    }
    let start = at * stride - before;
    let end = start + (taps - 1) * d;
    let count = match c.attrs.bool("count_include_pad") {
        Some(true) => (end.min(size + after - 1) - start).div_euclid(d) + 1,
        _ => (end.min(size - 1) - (start + (d - 1 - start).div_euclid(d).max(0) * d)).div_euclid(d) + 1,
    };
    Some(count.max(1))
}

/// The padding before the first row and column.
pub(super) fn before(c: &Call) -> Option<[i64; 2]> {
    match c.attrs.ints("padding")?.as_slice() {
        [a] => Some([*a, *a]),
        [a, b] | [a, b, _, _] => Some([*a, *b]),
        _ => None,
    }
}

impl Pass {
    /// Elementwise operators with a tensor that exists as NHWC.
    pub(super) fn elementwise(&mut self, b: &Binding, c: &Call, dims: &[PrimExpr], out: &mut Out) -> Option<RVar> {
        let free = |a: &Expr| self.last_of(a).is_some() || dims.len() == 4 && self.is_last(a);
        if !c.args.iter().any(free) {
            return None;
        }
        let mut args = vec![];
        for a in &c.args {
            let Some(StructInfo::Tensor(_)) = out.typed.info_of(a) else {
                args.push(a.clone());
                continue;
            };
            let shape = self.shape(a, out)?;
            if let Some(k) = self.constant(a) {
                let k = constant_last(&k, dims.len())?;
                args.push(Expr::new(ExprKind::Constant(k), a.span()));
            } else if shape.len() == dims.len() && (shape == dims || self.last_of(a).is_some() && spreads(dims, &shape))
            {
                args.push(self.as_last(a, out)?.expr());
            } else if shape.iter().all(|d| d.is_int(1)) && shape.len() <= 4 {
                args.push(a.clone());
            } else if dims.len() == 4 && self.last_of(a).is_none() {
                args.push(self.as_point(a, out)?.expr());
            } else {
                return None;
            }
        }
        let value = match self.silu(c, &args) {
            Some(x) => call("nn.silu", vec![x], Attrs::default(), out.span)?,
            None => Expr::new(ExprKind::Call(Call { args: args.clone(), ..c.clone() }), out.span),
        };
        let var = out.bind(b.var.name(), value)?;
        if let Some(x) = args.first().and_then(|x| x.as_var()).filter(|_| c.is_op("sigmoid")) {
            self.sigmoids.insert(var.clone(), x.clone());
        }
        Some(var)
    }

    /// Floats as bytes and bytes as floats.
    pub(super) fn quantised(&mut self, b: &Binding, c: &Call, rank: usize, out: &mut Out) -> Option<RVar> {
        let x = c.args.first().filter(|x| self.last_of(x).is_some() || rank == 4 && self.is_last(x))?;
        let mut c = c.clone();
        if c.args[1..].iter().any(|a| self.constant(a).is_none_or(|k| k.elements() != 1)) {
            c.attrs.set("axis", AttrValue::Int(place(rank, c.attrs.int("axis")?)?));
        } else {
            c.attrs.set("axis", AttrValue::Int(-1));
        }
        c.args[0] = self.as_last(x, out)?.expr();
        out.bind(b.var.name(), Expr::new(ExprKind::Call(c), out.span))
    }

    /// Rule `silu`: `x * sigmoid(x)` is one operator, so that what makes `x` has one reader.
    fn silu(&self, c: &Call, args: &[Expr]) -> Option<Expr> {
        let [a, b] = args else { return None };
        let of =
            |s: &Expr, x: &Expr| s.as_var().and_then(|s| self.sigmoids.get(s)).is_some_and(|v| x.as_var() == Some(v));
        match c.is_op("multiply") {
            true if of(b, a) => Some(a.clone()),
            true if of(a, b) => Some(b.clone()),
            _ => None,
        }
    }

    /// Maxima or sums over windows of float32 as a kernel that reads its data in place.
    pub(super) fn windows(&mut self, kind: Kind, b: &Binding, c: &Call, dims: &[i64], out: &mut Out) -> Option<RVar> {
        let at = b.expr();
        let x = self.last_of(c.args.first()?)?;
        let data = self.dims(c.args.first()?, out)?;
        let text = |name: &str| c.attrs.str(name).unwrap_or("");
        let plain = text("layout") == "NCHW" && ["", "NCHW"].contains(&text("out_layout"));
        let w = Window {
            kind,
            batch: data[0],
            size: [data[2], data[3]],
            taken: data[1],
            pitch: 0,
            out: [dims[2], dims[3]],
            made: data[1],
            kernel: two(c, "pool_size")?,
            stride: two(c, "strides")?,
            dilation: two(c, "dilation")?,
            groups: 1,
            before: before(c)?,
            last: true,
            panel: self.lanes,
            open: false,
            half: None,
            margin: [0, 0],
            plan: Plan { epilogue: self.epilogues.get(&b.var).copied().unwrap_or(0), ..Plan::default() },
        };
        let open = w.made % 4 != 0 || w.before.iter().any(|p| *p < 0) || dims.contains(&0) || data.contains(&0);
        // Small windows: their columns are written out.
        if !plain || open || w.kernel[1] > 5 || w.dilation[1] > 4 {
            return None;
        }
        // Maxima of a concatenation are one of maxima.
        let parts = self.parts_of(c.args.first()?, out).filter(|_| kind == Kind::Max);
        if let Some(parts) = parts.filter(|p| p.iter().all(|(_, n)| n % 4 == 0)) {
            let mut all = vec![];
            for (x, taken) in parts {
                all.push(self.kernel(b, &Window { taken, made: taken, ..w.clone() }, vec![x.expr()], at, out)?);
            }
            return self.joined(b, all, out);
        }
        self.kernel(b, &w, vec![x.expr()], at, out)
    }

    /// NHWC tensors along their channels, known as the parts that they are.
    pub(super) fn joined(&mut self, b: &Binding, parts: Vec<RVar>, out: &mut Out) -> Option<RVar> {
        let items = parts.iter().map(|v| v.expr()).collect();
        let mut attrs = Attrs::default();
        attrs.set("axis", AttrValue::Int(3));
        let value = call("concat", vec![Expr::new(ExprKind::Tuple(items), out.span)], attrs, out.span)?;
        let joined = out.bind(b.var.name(), value)?;
        self.parts.insert(joined.clone(), parts);
        Some(joined)
    }

    /// Means over windows: sums, divided by how many elements of the data each has.
    pub(super) fn means(&mut self, b: &Binding, c: &Call, dims: &[i64], out: &mut Out) -> Option<RVar> {
        let data = self.dims(c.args.first()?, out)?;
        let counts: Vec<Vec<i64>> = (0..2)
            .map(|i| (0..dims[2 + i]).map(|at| counted(c, i, at, data[2 + i])).collect::<Option<_>>())
            .collect::<Option<_>>()?;
        let same = counts.iter().all(|n| n.windows(2).all(|w| w[0] == w[1]));
        let (rows, columns) = (&counts[0], &counts[1]);
        let all: Vec<i64> = rows.iter().flat_map(|r| columns.iter().map(move |c| r * c)).collect();
        let (shape, all) = match same {
            true => (vec![], all.get(..1)?.to_vec()),
            false => (vec![1, dims[2], dims[3], 1], all),
        };
        let bytes = all.iter().flat_map(|n| (*n as f32).to_le_bytes()).collect();
        let sums = self.windows(Kind::Sum, b, c, dims, out)?;
        let count = Expr::new(ExprKind::Constant(Constant::new(DType::F32, shape, bytes)), out.span);
        out.bind(b.var.name(), call("divide", vec![sums.expr(), count], Attrs::default(), out.span)?)
    }

    /// Windows over rows and columns.
    pub(super) fn pool(&mut self, b: &Binding, c: &Call, out: &mut Out) -> Option<RVar> {
        let x = self.last_of(c.args.first()?)?;
        let mut c = c.clone();
        if c.attrs.str("layout") != Some("NCHW") || !["", "NCHW"].contains(&c.attrs.str("out_layout").unwrap_or("")) {
            return None;
        }
        c.attrs.set("layout", AttrValue::Str("NHWC".into()));
        c.attrs.set("out_layout", AttrValue::Str("NHWC".into()));
        c.args[0] = x.expr();
        out.bind(b.var.name(), Expr::new(ExprKind::Call(c), out.span))
    }

    /// Reductions that keep the dims.
    pub(super) fn reduction(&mut self, b: &Binding, c: &Call, out: &mut Out) -> Option<RVar> {
        let x = self.last_of(c.args.first()?)?;
        let axes = c.attrs.ints("axis").or_else(|| c.attrs.int("axis").map(|a| vec![a]))?;
        if c.attrs.bool("keepdims") != Some(true) {
            return None;
        }
        let rank = self.shape(c.args.first()?, out)?.len();
        let mut axes: Vec<i64> = axes.iter().map(|a| a.rem_euclid(rank as i64)).collect();
        axes.sort();
        // Of one film all frames are pictures.
        axes = match rank == 5 && axes == [2, 3, 4] && self.shape(c.args.first()?, out)?[0].is_int(1) {
            true => vec![0, 1, 2],
            false => axes.iter().map(|a| place(rank, *a)).collect::<Option<_>>()?,
        };
        axes.sort();
        let mut c = c.clone();
        c.attrs.set("axis", ints(&axes));
        c.args[0] = x.expr();
        out.bind(b.var.name(), Expr::new(ExprKind::Call(c), out.span))
    }

    /// Reductions over all rows and columns that do not keep the dims: their results are the same in both forms.
    pub(super) fn reduced(&mut self, b: &Binding, c: &Call, out: &mut Out) -> Option<Vec<Binding>> {
        let x = self.last_of(c.args.first()?)?;
        let rank = self.shape(c.args.first()?, out)?.len() as i64;
        let axes = c.attrs.ints("axis").or_else(|| c.attrs.int("axis").map(|a| vec![a]))?;
        let mut axes: Vec<i64> = axes.iter().map(|a| a.rem_euclid(rank)).collect();
        axes.sort();
        if c.attrs.bool("keepdims") == Some(true) || rank > 4 || axes != (2..rank).collect::<Vec<_>>() {
            return None;
        }
        let mut c = c.clone();
        c.attrs.set("axis", ints(&[1, 2]));
        c.args[0] = x.expr();
        let value = Expr::new(ExprKind::Call(c), out.span);
        Some(vec![Binding { value: BindingValue::Expr(value), ..b.clone() }])
    }

    /// Concatenation along any axis of tensors that all exist as NHWC.
    pub(super) fn concat(&mut self, b: &Binding, c: &Call, out: &mut Out) -> Option<RVar> {
        let ExprKind::Tuple(items) = c.args.first()?.kind() else { return None };
        let free = items.iter().any(|i| self.last_of(i).is_some()) && items.iter().all(|i| self.is_last(i));
        let items = items.iter().filter(|_| free);
        let parts: Vec<RVar> = items.map(|i| self.as_last(i, out)).collect::<Option<_>>()?;
        parts.first()?;
        let items = parts.iter().map(|p| p.expr()).collect();
        let rank = self.shape(&b.var.expr(), out)?.len();
        let axis = place(rank, c.attrs.int("axis")?)?;
        let mut c = c.clone();
        c.attrs.set("axis", AttrValue::Int(axis));
        c.args[0] = Expr::new(ExprKind::Tuple(items), out.span);
        let joined = out.bind(b.var.name(), Expr::new(ExprKind::Call(c), out.span))?;
        if axis == 3 {
            self.parts.insert(joined.clone(), parts);
        }
        Some(joined)
    }
}

/// Whether what has one row and column for each picture can be read for every pixel: frames are pictures of the NHWC form.
fn spreads(dims: &[PrimExpr], own: &[PrimExpr]) -> bool {
    dims.len() <= 4 || dims[0].is_int(1) && (dims[2].is_int(1) || own[2].is_int(1))
}

/// A constant operand of tensors of `rank` dims, channels second, for their NHWC forms.
fn constant_last(c: &Constant, rank: usize) -> Option<Constant> {
    let own = c.shape.len();
    if c.elements() == 1 && own <= 4 {
        return Some(c.clone());
    }
    let mut shape = vec![1; rank.checked_sub(own)?];
    shape.extend(&c.shape);
    let (n, ch) = (shape[0], shape[1]);
    let [images, h, w, _] = last_dims(&shape)?;
    let to = vec![images, h, w, ch];
    if images * h * w == 1 || ch == 1 {
        return Some(Constant { shape: to, ..c.clone() });
    }
    let points = (c.elements() as i64) / n / ch;
    let size = c.dtype.bytes();
    let bytes = c.bytes();
    let mut out = Vec::with_capacity(bytes.len());
    for i in 0..n {
        for p in 0..points {
            for k in 0..ch {
                let at = ((i * ch + k) * points + p) as usize * size;
                out.extend_from_slice(&bytes[at..at + size]);
            }
        }
    }
    Some(Constant::new(c.dtype, to, out))
}
