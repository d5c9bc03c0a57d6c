//! Channels last: convolution networks are laid out as their kernels want them.
//!
//! A convolution of NCHW data with constant weights becomes a kernel over NHWC data with weights packed here, at
//! compile time ([`Window::pack`]); what follows it on the way (elementwise operators, pooling, concatenation along the
//! channels, means over rows and columns) is written over NHWC too. Each value that exists as NHWC also gets its NCHW
//! form as a transposition behind it, for readers that need that; where none does it is dead and goes away. The first
//! convolution reads NCHW as it comes. A concatenation that one convolution reads, also through maxima, is not made: the
//! convolution is the sum of one over each part.
//!
//! Which operators follow, by name: [`elementwise`], [`pool`], [`reduction`], [`concat`], [`flattened`].

mod computed;
mod slices;

use crate::choice::{epilogue_class, Algorithm, Site, Tuned};
use crate::legalize::{call_tir, Names};
use crate::schedule::window::{Kind, Plan, Window};
use relax_ir::analysis::{infer_expr, Typed};
use relax_ir::attrs::Attrs;
use relax_ir::op::lookup;
use relax_ir::relax::{map_bindings, Binding, BindingValue, Call, Callee, Expr, ExprKind, RVar, StructInfo};
use relax_ir::sym::Facts;
use relax_ir::tir::PrimFunc;
use relax_ir::{AttrValue, Constant, DType, Func, PrimExpr, Span};
use std::collections::HashMap;
use std::sync::Arc;

/// Operators that compute element by element.
const ELEMENTWISE: &[&str] = &[
    "add",
    "subtract",
    "multiply",
    "divide",
    "maximum",
    "minimum",
    "nn.relu",
    "nn.relu6",
    "nn.silu",
    "nn.gelu",
    "nn.gelu_tanh",
    "nn.leakyrelu",
    "nn.softplus",
    "sigmoid",
    "tanh",
    "exp",
    "abs",
    "negative",
    "sqrt",
    "clip",
    "erf",
    "nn.dropout",
];

/// Data with at most so many channels is read as NCHW.
const FEW_CHANNELS: i64 = 4;

/// What the pass may do.
#[derive(Clone, Debug)]
pub struct Choice {
    /// float32 lanes of the vectors that kernels will have.
    pub lanes: i64,
    /// How large the weights of a library may become, for each byte of the model's; see [`crate::Options`].
    pub growth: f64,
    /// Sums of products only: no transformed convolutions.
    pub strict: bool,
    /// Two vectors are multiplied in a cycle.
    pub twice: bool,
    /// Kernels with narrower vectors read the same weights.
    pub shared: bool,
    /// What was measured for vectors of these lanes.
    pub tuned: Option<Arc<Tuned>>,
}

/// Rewrites every function.
pub fn channels_last(typed: &mut Typed, choice: Choice) {
    let lanes = choice.lanes;
    let mut pass = Pass {
        names: Names::new(&typed.module),
        new: vec![],
        known: HashMap::new(),
        last: HashMap::new(),
        transformed: HashMap::new(),
        sigmoids: HashMap::new(),
        parts: HashMap::new(),
        pieces: HashMap::new(),
        readers: readers(typed),
        lanes,
        strict: choice.strict,
        twice: choice.twice,
        shared: choice.shared,
        tuned: choice.tuned.clone().filter(|t| t.vector_bytes as i64 == lanes * 4),
        epilogues: epilogues(typed),
    };
    for b in typed.module.relax_funcs().flat_map(|f| f.bindings()) {
        if let Some(c) = pass.constant(b.expr()) {
            pass.known.insert(b.var.clone(), c);
        }
    }
    if !choice.strict {
        pass.transformed = transformed(&pass, typed, &choice);
    }
    let mut funcs = std::mem::take(&mut typed.module.funcs);
    for f in &mut funcs {
        if let Func::Relax(f) = f {
            f.body = map_bindings(&f.body, &mut |b, dataflow| pass.binding(b, dataflow, typed));
        }
    }
    let changed = !pass.new.is_empty();
    funcs.extend(pass.new.into_iter().map(Func::Prim));
    typed.module.funcs = funcs;
    if changed {
        crate::dead::remove_dead(typed);
    }
}

struct Pass {
    names: Names,
    new: Vec<PrimFunc>,
    /// Variables that are constants.
    known: HashMap<RVar, Constant>,
    /// The NHWC form of NCHW values.
    last: HashMap<RVar, RVar>,
    /// Convolutions by Winograd's algorithm, and the size of their tiles.
    transformed: HashMap<RVar, i64>,
    /// Operands of the NHWC forms of `sigmoid`.
    sigmoids: HashMap<RVar, RVar>,
    /// What NHWC forms are concatenated from, along the channels.
    parts: HashMap<RVar, Vec<RVar>>,
    /// What NHWC forms are cut into.
    pieces: HashMap<RVar, slices::Pieces>,
    /// How often each variable of the program is used.
    readers: HashMap<RVar, usize>,
    lanes: i64,
    strict: bool,
    twice: bool,
    shared: bool,
    tuned: Option<Arc<Tuned>>,
    /// What follows convolutions and maxima, see [`epilogue_class`].
    epilogues: HashMap<RVar, i64>,
}

/// The new bindings of one.
struct Out<'a> {
    typed: &'a mut Typed,
    dataflow: bool,
    span: Span,
    list: Vec<Binding>,
}

impl Out<'_> {
    fn bind_as(&mut self, name: &str, value: Expr, info: StructInfo) -> RVar {
        let var = RVar::new(name, self.dataflow, self.span);
        self.typed.sinfo.insert(var.clone(), info);
        self.list.push(Binding {
            var: var.clone(),
            annotation: None,
            value: BindingValue::Expr(value),
            span: self.span,
        });
        var
    }

    /// Binds a call, whose struct info is derived.
    fn bind(&mut self, name: &str, value: Expr) -> Option<RVar> {
        let info = infer_expr(&mut Facts::new(), &value, &self.typed.sinfo, &self.typed.module).ok()?;
        info.as_tensor().and_then(dims_of)?;
        Some(self.bind_as(name, value, info))
    }
}

fn call(op: &str, args: Vec<Expr>, attrs: Attrs, span: Span) -> Option<Expr> {
    let call = Call { callee: Callee::Op(lookup(op)?), args, attrs, sinfo_args: vec![] };
    Some(Expr::new(ExprKind::Call(call), span))
}

fn ints(v: &[i64]) -> AttrValue {
    AttrValue::List(v.iter().map(|&i| AttrValue::Int(i)).collect())
}

fn reshape(x: Expr, dims: &[i64], span: Span) -> Option<Expr> {
    let shape = dims.iter().map(|&d| PrimExpr::i64(d)).collect();
    call("reshape", vec![x, Expr::new(ExprKind::Shape(shape), span)], Attrs::default(), span)
}

fn transpose(x: Expr, axes: &[i64], span: Span) -> Option<Expr> {
    let mut attrs = Attrs::default();
    attrs.set("axes", ints(axes));
    call("permute_dims", vec![x], attrs, span)
}

/// An attribute of two numbers, or of one that stands for both.
fn two(c: &Call, name: &str) -> Option<[i64; 2]> {
    match c.attrs.ints(name)?.as_slice() {
        [a] => Some([*a, *a]),
        [a, b] => Some([*a, *b]),
        _ => None,
    }
}

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
fn before(c: &Call) -> Option<[i64; 2]> {
    match c.attrs.ints("padding")?.as_slice() {
        [a] => Some([*a, *a]),
        [a, b] | [a, b, _, _] => Some([*a, *b]),
        _ => None,
    }
}

fn dims_of(t: &relax_ir::relax::TensorInfo) -> Option<Vec<i64>> {
    t.known_dims()?.iter().map(|d| d.as_int()).collect()
}

impl Pass {
    fn binding(&mut self, b: &Binding, dataflow: bool, typed: &mut Typed) -> Option<Vec<Binding>> {
        let BindingValue::Expr(e) = &b.value else { return None };
        if let Some(c) = self.constant(e) {
            self.known.insert(b.var.clone(), c);
            return None;
        }
        if matches!(e.kind(), ExprKind::TupleGetItem(..)) {
            return self.field(b, dataflow, typed);
        }
        let c = e.as_call()?;
        let name = c.op()?.name;
        let mut out = Out { typed, dataflow, span: e.span(), list: vec![] };
        if name == "split" {
            self.cut(b, c, &out)?;
        }
        let dims = self.dims(&b.var.expr(), &out)?;
        if flattening(name) {
            return self.flattened(b, c, &dims, out);
        }
        if dims.len() != 4 || out.typed.sinfo.get(&b.var)?.as_tensor()?.dtype != Some(DType::F32) {
            return None;
        }
        let new = match name {
            "nn.conv2d" => self.conv(b, c, &dims, e, &mut out)?,
            "concat" => self.concat(b, c, &mut out)?,
            "nn.max_pool2d" if self.last_of(c.args.first()?).is_some() => {
                match self.windows(Kind::Max, b, c, &dims, &mut out) {
                    Some(new) => new,
                    None => self.pool(b, c, &mut out)?,
                }
            }
            "nn.avg_pool2d" if self.last_of(c.args.first()?).is_some() => match self.means(b, c, &dims, &mut out) {
                Some(new) => new,
                None => self.pool(b, c, &mut out)?,
            },
            "nn.max_pool2d" | "nn.avg_pool2d" | "nn.adaptive_avg_pool2d" => self.pool(b, c, &mut out)?,
            "strided_slice" => self.slice(b, c, &mut out)?,
            "image.resize2d" => self.resize(b, c, &mut out)?,
            "mean" | "sum" | "max" | "min" => self.reduction(b, c, &mut out)?,
            _ if ELEMENTWISE.contains(&name) => self.elementwise(b, c, &dims, &mut out)?,
            _ => return None,
        };
        // The form that the program names.
        let value = self.named(&new, &dims, out.span)?;
        self.last.insert(b.var.clone(), new);
        out.list.push(Binding { value: BindingValue::Expr(value), ..b.clone() });
        Some(out.list)
    }

    /// Constants, also under other dims.
    fn constant(&self, e: &Expr) -> Option<Constant> {
        match e.kind() {
            ExprKind::Constant(c) => Some(c.clone()),
            ExprKind::Var(v) => self.known.get(v).cloned(),
            ExprKind::Call(c) if c.is_op("reshape") => {
                let ExprKind::Shape(dims) = c.args.get(1)?.kind() else { return None };
                let shape: Vec<i64> = dims.iter().map(|d| d.as_int()).collect::<Option<_>>()?;
                let c = self.constant(c.args.first()?)?;
                (shape.iter().all(|d| *d >= 0) && shape.iter().product::<i64>() == c.elements() as i64)
                    .then(|| Constant { shape, ..c })
            }
            _ => None,
        }
    }

    fn dims(&self, e: &Expr, out: &Out) -> Option<Vec<i64>> {
        dims_of(out.typed.info_of(e)?.as_tensor()?)
    }

    fn last_of(&self, e: &Expr) -> Option<RVar> {
        e.as_var().and_then(|v| self.last.get(v)).cloned()
    }

    /// The NHWC form of a tensor of rank 4, made where there is none.
    fn as_last(&mut self, e: &Expr, out: &mut Out) -> Option<RVar> {
        if let Some(v) = self.last_of(e) {
            return Some(v);
        }
        let dims = self.dims(e, out).filter(|d| d.len() == 4)?;
        let value = match dims[2] * dims[3] {
            1 => reshape(e.clone(), &[dims[0], 1, 1, dims[1]], out.span)?,
            _ => transpose(e.clone(), &[0, 2, 3, 1], out.span)?,
        };
        out.bind("channels_last", value)
    }

    /// A convolution of constant weights: the window of its NHWC form, and the weights.
    fn window(&self, var: &RVar, c: &Call, data: &[i64], dims: &[i64]) -> Option<(Window, Constant)> {
        let weight = self.constant(c.args.get(1)?).filter(|w| w.dtype == DType::F32)?;
        Some((self.window_of(var, c, data, dims, &weight.shape)?, weight))
    }

    /// The same of weights of these dims.
    fn window_of(&self, var: &RVar, c: &Call, data: &[i64], dims: &[i64], weight: &[i64]) -> Option<Window> {
        let text = |name: &str| c.attrs.str(name).unwrap_or("");
        let plain = text("data_layout") == "NCHW" && text("kernel_layout") == "OIHW";
        if !plain || !["", "NCHW"].contains(&text("out_layout")) {
            return None;
        }
        let before = before(c)?;
        let [made, taken, kh, kw] = *weight else { return None };
        let (kind, groups) = match c.attrs.int("groups")? {
            1 => (Kind::Conv, 1),
            g if g == data[1] && taken == 1 && made == g => (Kind::Depthwise, 1),
            g => (Kind::Conv, g),
        };
        if made % 4 != 0 || before.iter().any(|p| *p < 0) || dims.contains(&0) || data.contains(&0) {
            return None;
        }
        let w = Window {
            kind,
            batch: data[0],
            size: [data[2], data[3]],
            taken: data[1],
            pitch: 0,
            out: [dims[2], dims[3]],
            made,
            kernel: [kh, kw],
            stride: two(c, "strides")?,
            dilation: two(c, "dilation")?,
            groups,
            before,
            last: true,
            panel: self.lanes,
            plan: Plan { epilogue: self.epilogues.get(var).copied().unwrap_or(0), ..Plan::default() },
        };
        (groups == 1 || (1..=4).any(|n| w.takes_panel(n * self.lanes))).then_some(w)
    }

    fn conv(&mut self, b: &Binding, c: &Call, dims: &[i64], at: &Expr, out: &mut Out) -> Option<RVar> {
        let x = c.args.first()?;
        let data = self.dims(x, out)?;
        let Some((mut w, weight)) = self.window(&b.var, c, &data, dims) else {
            return self.computed(b, c, &data, dims, at, out);
        };
        let few = w.taken <= FEW_CHANNELS && w.size[0] * w.size[1] > 1;
        w.last = w.kind == Kind::Depthwise || w.groups > 1 || self.last_of(x).is_some() || !few;
        if let Some(&made) = self.transformed.get(&b.var).filter(|_| w.suits_winograd(self.lanes)) {
            w.kind = Kind::Winograd(made);
        }
        if let Some(parts) = self.parts_of(x, out).filter(|p| self.splits(&w, p.len())) {
            return self.split(b, &w, &weight, parts, at, out);
        }
        self.choose(&mut w);
        let x = if w.last { self.as_last(x, out)?.expr() } else { x.clone() };
        let packed = packed(&w, &floats(&weight));
        let args = vec![x, Expr::new(ExprKind::Constant(packed), at.span())];
        self.kernel(b, &w, args, at, out)
    }

    /// The NHWC tensors, with their channels, that `x` is concatenated from for one reader.
    fn parts_of(&self, x: &Expr, out: &Out) -> Option<Vec<(RVar, i64)>> {
        let once = self.readers.get(x.as_var()?) == Some(&1);
        let parts = self.parts.get(&self.last_of(x)?).filter(|_| once)?;
        parts.iter().map(|p| Some((p.clone(), *self.dims(&p.expr(), out)?.last()?))).collect()
    }

    /// Whether a convolution of so many parts is faster as a sum of convolutions, which read and write their sums so
    /// often, than with the copy that joins its data.
    fn splits(&self, w: &Window, parts: usize) -> bool {
        let plain = w.kind == Kind::Conv && w.groups == 1 && w.last && !self.strict;
        plain && 2 * w.made * (parts as i64 - 1) < w.taken
    }

    /// The sum of convolutions of parts of the data.
    fn split(
        &mut self,
        b: &Binding,
        w: &Window,
        weight: &Constant,
        parts: Vec<(RVar, i64)>,
        at: &Expr,
        out: &mut Out,
    ) -> Option<RVar> {
        let values = floats(weight);
        let area = (w.kernel[0] * w.kernel[1]) as usize;
        let (mut first, mut sum): (usize, Option<RVar>) = (0, None);
        let count = parts.len();
        for (i, (x, taken)) in parts.into_iter().enumerate() {
            let mut w = Window { taken, ..w.clone() };
            w.plan.epilogue = if i + 1 == count { w.plan.epilogue | epilogue_class(true, false) } else { 0 };
            self.choose(&mut w);
            let end = first + taken as usize * area;
            let rows = values.chunks_exact(values.len() / w.made as usize);
            let own: Vec<f32> = rows.flat_map(|row| row[first..end].iter().copied()).collect();
            first = end;
            let args = vec![x.expr(), Expr::new(ExprKind::Constant(packed(&w, &own)), at.span())];
            let part = self.kernel(b, &w, args, at, out)?;
            sum = Some(match sum {
                None => part,
                Some(s) => {
                    let both = vec![part.expr(), s.expr()];
                    out.bind(b.var.name(), call("add", both, Attrs::default(), out.span)?)?
                }
            });
        }
        sum
    }

    /// Decides how a window is computed, its algorithm aside.
    fn choose(&self, w: &mut Window) {
        let algorithm = match w.kind {
            Kind::Winograd(made) => Algorithm::Winograd(made),
            _ => Algorithm::Direct,
        };
        let best = self.tuned.as_ref().and_then(|t| t.best(&Site::Window(w.clone()).key(), Some(algorithm)));
        match best {
            Some(c) => w.configure(&c, self.lanes),
            None if self.twice && algorithm == Algorithm::Direct => w.configure_twice(self.lanes, self.shared),
            None => w.choose_panel(self.lanes),
        }
    }

    /// Operators of [`ELEMENTWISE`] with a tensor that exists as NHWC.
    fn elementwise(&mut self, b: &Binding, c: &Call, dims: &[i64], out: &mut Out) -> Option<RVar> {
        if !c.args.iter().any(|a| self.last_of(a).is_some()) {
            return None;
        }
        let mut args = vec![];
        for a in &c.args {
            let Some(StructInfo::Tensor(_)) = out.typed.info_of(a) else {
                args.push(a.clone());
                continue;
            };
            let shape = self.dims(a, out)?;
            if let Some(k) = self.constant(a) {
                let k = constant_last(&k)?;
                args.push(Expr::new(ExprKind::Constant(k), a.span()));
            } else if shape.len() == 4 && (shape == dims || self.last_of(a).is_some()) {
                args.push(self.as_last(a, out)?.expr());
            } else if shape.iter().product::<i64>() == 1 && shape.len() <= 4 {
                args.push(a.clone());
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
    fn windows(&mut self, kind: Kind, b: &Binding, c: &Call, dims: &[i64], out: &mut Out) -> Option<RVar> {
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
            let items = all.iter().map(|v| v.expr()).collect();
            let mut attrs = Attrs::default();
            attrs.set("axis", AttrValue::Int(3));
            let value = call("concat", vec![Expr::new(ExprKind::Tuple(items), out.span)], attrs, out.span)?;
            let joined = out.bind(b.var.name(), value)?;
            self.parts.insert(joined.clone(), all);
            return Some(joined);
        }
        self.kernel(b, &w, vec![x.expr()], at, out)
    }

    /// Means over windows: sums, divided by how many elements of the data each has.
    fn means(&mut self, b: &Binding, c: &Call, dims: &[i64], out: &mut Out) -> Option<RVar> {
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

    /// Binds the call of a window's kernel.
    fn kernel(&mut self, b: &Binding, w: &Window, args: Vec<Expr>, at: &Expr, out: &mut Out) -> Option<RVar> {
        let mut w = w.clone();
        if w.is_pool() {
            self.choose(&mut w);
        }
        let mut prim = w.prim();
        prim.name = self.names.fresh(&prim.name);
        prim.span = at.span();
        let info = StructInfo::tensor(w.out_shape(), DType::F32);
        let value = call_tir(&prim.name, args, vec![info.clone()], at).ok()?;
        self.new.push(prim);
        Some(out.bind_as(b.var.name(), value, info))
    }

    /// Windows over rows and columns.
    fn pool(&mut self, b: &Binding, c: &Call, out: &mut Out) -> Option<RVar> {
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
    fn reduction(&mut self, b: &Binding, c: &Call, out: &mut Out) -> Option<RVar> {
        let x = self.last_of(c.args.first()?)?;
        let axes = c.attrs.ints("axis").or_else(|| c.attrs.int("axis").map(|a| vec![a]))?;
        if c.attrs.bool("keepdims") != Some(true) {
            return None;
        }
        let mut axes: Vec<i64> =
            axes.iter().map(|a| [0, 3, 1, 2].get(a.rem_euclid(4) as usize).copied().unwrap_or(0)).collect();
        axes.sort();
        let mut c = c.clone();
        c.attrs.set("axis", ints(&axes));
        c.args[0] = x.expr();
        out.bind(b.var.name(), Expr::new(ExprKind::Call(c), out.span))
    }

    /// Concatenation along any axis of tensors that all exist as NHWC.
    fn concat(&mut self, b: &Binding, c: &Call, out: &mut Out) -> Option<RVar> {
        let ExprKind::Tuple(items) = c.args.first()?.kind() else { return None };
        let parts: Vec<RVar> = items.iter().map(|i| self.last_of(i)).collect::<Option<_>>()?;
        let items = parts.iter().map(|p| p.expr()).collect();
        let axis = c.attrs.int("axis")?.rem_euclid(4) as usize;
        let mut c = c.clone();
        c.attrs.set("axis", AttrValue::Int([0, 3, 1, 2][axis]));
        c.args[0] = Expr::new(ExprKind::Tuple(items), out.span);
        let joined = out.bind(b.var.name(), Expr::new(ExprKind::Call(c), out.span))?;
        if axis == 1 {
            self.parts.insert(joined.clone(), parts);
        }
        Some(joined)
    }

    /// Views of a tensor without rows and columns: the order of its elements is the same in both forms.
    fn flattened(&mut self, b: &Binding, c: &Call, dims: &[i64], mut out: Out) -> Option<Vec<Binding>> {
        let x = c.args.first()?;
        let from = self.dims(x, &out)?;
        let last = self.last_of(x)?;
        if from[2] * from[3] != 1 {
            return None;
        }
        let value = reshape(last.expr(), dims, out.span)?;
        out.list.push(Binding { value: BindingValue::Expr(value), ..b.clone() });
        Some(out.list)
    }
}

fn floats(c: &Constant) -> Vec<f32> {
    c.bytes().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Weights as a window's kernel reads them.
fn packed(w: &Window, weights: &[f32]) -> Constant {
    let bytes: Vec<u8> = w.pack(weights).into_iter().flat_map(f32::to_le_bytes).collect();
    Constant::new(DType::F32, vec![bytes.len() as i64 / 4], bytes)
}

/// How often each variable is used.
fn readers(typed: &Typed) -> HashMap<RVar, usize> {
    let mut out = HashMap::new();
    for f in typed.module.relax_funcs() {
        f.body.walk(&mut |e| {
            if let ExprKind::Var(v) = e.kind() {
                *out.entry(v.clone()).or_insert(0) += 1;
            }
        });
    }
    out
}

/// Bytes that a library may hold beyond the grown weights.
const ALLOWANCE: f64 = 200.0 * 1024.0;

/// Cycles of a microsecond, about.
const CYCLES: f64 = 3500.0;

/// Operators that evaluate transcendental functions.
const CALLS: &[&str] = &["nn.silu", "nn.gelu", "nn.gelu_tanh", "nn.softplus", "sigmoid", "tanh", "exp", "erf"];

/// What the elementwise operators behind each value do that one operator alone reads, see [`epilogue_class`].
fn epilogues(typed: &Typed) -> HashMap<RVar, i64> {
    let mut users: HashMap<RVar, Vec<&Binding>> = HashMap::new();
    let mut starts = vec![];
    for f in &typed.module.funcs {
        let Func::Relax(f) = f else { continue };
        for b in f.bindings() {
            let Some(c) = b.expr().as_call() else { continue };
            for a in &c.args {
                if let Some(v) = a.as_var() {
                    users.entry(v.clone()).or_default().push(b);
                }
            }
            if c.is_op("nn.conv2d") || c.is_op("nn.max_pool2d") {
                starts.push(b.var.clone());
            }
        }
    }
    let name = |b: &Binding| b.expr().as_call().and_then(|c| c.op()).map_or("", |o| o.name);
    let dims = |e: &Expr| dims_of(typed.info_of(e)?.as_tensor()?);
    let class = |start: &RVar| {
        let (mut residual, mut calls) = (false, false);
        let mut at = start.clone();
        for _ in 0..8 {
            let Some(list) = users.get(&at).filter(|l| l.len() <= 2) else { break };
            if !list.iter().all(|b| ELEMENTWISE.contains(&name(b))) {
                break;
            }
            calls |= list.iter().any(|b| CALLS.contains(&name(b)));
            let Some(last) = list.last() else { break };
            let Some(c) = last.expr().as_call().filter(|_| ["add", "subtract"].contains(&name(last))) else {
                at = last.var.clone();
                continue;
            };
            let size = dims(&at.expr());
            let other = |a: &&Expr| a.as_var().is_some_and(|v| *v != at) && dims(a) == size;
            residual |= c.args.iter().filter(other).count() > 0;
            at = last.var.clone();
        }
        epilogue_class(residual, calls)
    };
    starts.into_iter().map(|v| (v.clone(), class(&v))).collect()
}

/// The convolutions worth transforming: those that save the most time for each byte that their weights grow, as far as
/// the weights may grow.
fn transformed(pass: &Pass, typed: &Typed, choice: &Choice) -> HashMap<RVar, i64> {
    let mut total = 0.0;
    let mut found: Vec<(f64, f64, RVar, i64)> = vec![];
    for f in &typed.module.funcs {
        let Func::Relax(f) = f else { continue };
        f.body.walk(&mut |e| {
            if let ExprKind::Constant(c) = e.kind() {
                total += c.size() as f64;
            }
        });
        for b in f.bindings() {
            let BindingValue::Expr(e) = &b.value else { continue };
            let Some(c) = e.as_op_call("nn.conv2d") else { continue };
            let dims = |info: Option<StructInfo>| info.as_ref().and_then(|i| dims_of(i.as_tensor()?));
            let data = c.args.first().and_then(|x| dims(typed.info_of(x)));
            let (Some(data), Some(out)) = (data, dims(typed.sinfo.get(&b.var).cloned())) else { continue };
            let Some((w, _)) = pass.window(&b.var, c, &data, &out).filter(|(w, _)| w.suits_winograd(pass.lanes)) else {
                continue;
            };
            let key = Site::Window(w.clone()).key();
            for made in [2, 4] {
                let algorithm = Algorithm::Winograd(made);
                let measured = pass.tuned.as_ref().filter(|t| t.best(&key, None).is_some());
                let gain = match measured {
                    Some(t) => match t.saved(&key, algorithm) {
                        Some(us) => us * CYCLES,
                        // The only way that is left.
                        None if t.best(&key, None).map(|c| c.algorithm) == Some(algorithm) => f64::MAX,
                        None => 0.0,
                    },
                    None => w.winograd_gain(made, choice.lanes),
                };
                let bytes = if gain == f64::MAX { 1e-3 } else { w.winograd_growth(made) };
                if gain > 0.0 {
                    found.push((gain, bytes, b.var.clone(), made));
                }
            }
        }
    }
    found.sort_by(|a, b| (b.0 / b.1).total_cmp(&(a.0 / a.1)));
    let mut left = (choice.growth - 1.0).max(0.0) * total + ALLOWANCE;
    if choice.growth <= 1.0 {
        left = 0.0;
    }
    let mut chosen: HashMap<RVar, (f64, f64, i64)> = HashMap::new();
    for (gain, bytes, var, made) in found {
        let (old_gain, old_bytes) = chosen.get(&var).map_or((0.0, 0.0), |c| (c.0, c.1));
        if gain > old_gain && bytes - old_bytes <= left {
            left -= bytes - old_bytes;
            chosen.insert(var, (gain, bytes, made));
        }
    }
    chosen.into_iter().map(|(v, c)| (v, c.2)).collect()
}

fn flattening(name: &str) -> bool {
    crate::host::VIEWS.contains(&name)
}

/// A constant operand of NCHW tensors for NHWC ones.
fn constant_last(c: &Constant) -> Option<Constant> {
    let rank = c.shape.len();
    if c.elements() == 1 && rank <= 4 {
        return Some(c.clone());
    }
    if rank > 4 {
        return None;
    }
    let mut shape = vec![1; 4 - rank];
    shape.extend(&c.shape);
    let [n, ch, h, w] = shape[..] else { return None };
    let to = vec![n, h, w, ch];
    if h * w == 1 || ch == 1 {
        return Some(Constant { shape: to, ..c.clone() });
    }
    let size = c.dtype.bytes();
    let bytes = c.bytes();
    let mut out = Vec::with_capacity(bytes.len());
    for i in 0..n {
        for p in 0..h * w {
            for k in 0..ch {
                let at = ((i * ch + k) * h * w + p) as usize * size;
                out.extend_from_slice(&bytes[at..at + size]);
            }
        }
    }
    Some(Constant::new(c.dtype, to, out))
}
