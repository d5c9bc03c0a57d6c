//! Channels last: convolution networks are laid out as their kernels want them.
//!
//! A convolution of NCHW data with constant weights becomes a kernel over NHWC data with weights packed here, at
//! compile time ([`Window::pack`]); what follows it on the way (elementwise operators, pooling, concatenation along the
//! channels, means over rows and columns) is written over NHWC too. Each value that exists as NHWC also gets its NCHW
//! form as a transposition behind it, for readers that need that; where none does it is dead and goes away. The first
//! convolution reads NCHW as it comes. A concatenation that one convolution reads, also through maxima, is not made: the
//! convolution is the sum of one over each part.
//!
//! Convolutions over one axis and over frames take the same way ([`planes`]), transposed ones become convolutions
//! ([`transposed`]), and tensors of tokens, whose channels are the last dim anyway, are NHWC as they are ([`forms`]). Which
//! operators follow, by name: [`follow`], [`slices`]. What samples pictures at places that data tells reads them so even
//! where nothing else does ([`samples`]).

mod computed;
mod follow;
mod forms;
mod norms;
pub(crate) mod open;
mod planes;
mod samples;
mod shuffles;
mod slices;
mod transposed;
mod weights;

use crate::choice::{epilogue_class, Algorithm, Site, Tuned};
use crate::legalize::{call_tir, scalars, Names};
use crate::schedule::window::{Kind, Sizes, Window};
use norms::NORMS;
pub(crate) use planes::{CONVOLUTIONS, TRANSPOSED};
use relax_ir::analysis::{infer_expr, Typed};
use relax_ir::attrs::Attrs;
use relax_ir::op::{is_elementwise, lookup};
use relax_ir::relax::{map_bindings, Binding, BindingValue, Call, Callee, Expr, ExprKind, RVar, StructInfo};
use relax_ir::sym::Facts;
use relax_ir::tir::PrimFunc;
use relax_ir::{AttrValue, Constant, DType, Func, PrimExpr, Span};
use samples::SAMPLERS;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use weights::{epilogues, transformed};

/// Whether the operator takes over the layout of a tensor that it reads, element by element.
pub(crate) fn follows(op: &str) -> bool {
    is_elementwise(op)
}

/// Those that compare: their results are bools.
pub(crate) const COMPARISONS: &[&str] = &["less", "less_equal", "greater", "greater_equal", "equal", "not_equal"];

/// Those that move elements of any type.
const MOVES: &[&str] = &["permute_dims", "concat", "strided_slice"];

/// Those between floats and bytes.
const QUANTISES: &[&str] = &["quantize", "dequantize"];

/// Operators that reduce axes.
const REDUCTIONS: &[&str] = &["mean", "sum", "max", "min", "prod"];

/// Operators along one axis.
const ALONG: &[&str] =
    &["onnx.resize_axis", "repeat", "nn.softmax", "nn.log_softmax", "nn.prelu", "flip", "cumsum", "cumprod"];

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
    /// And tiles of few rows are the faster ones.
    pub short_tiles: bool,
    /// Kernels with narrower vectors read the same weights.
    pub shared: bool,
    /// Convolutions may become one kernel that goes by bands of rows, which threads do not share.
    pub cascades: bool,
    /// What was measured for vectors of these lanes.
    pub tuned: Option<Arc<Tuned>>,
}

/// Rewrites every function. Of `written`, the variables whose tensor somebody may write to, the NHWC form is not kept.
pub fn channels_last(typed: &mut Typed, choice: Choice, written: HashSet<RVar>) {
    let lanes = choice.lanes;
    let mut pass = Pass {
        names: Names::new(&typed.module),
        new: vec![],
        known: HashMap::new(),
        halves: HashMap::new(),
        last: HashMap::new(),
        turned: HashMap::new(),
        written,
        transformed: HashMap::new(),
        ready: ready(typed),
        sigmoids: HashMap::new(),
        parts: HashMap::new(),
        pieces: HashMap::new(),
        shuffled: HashMap::new(),
        norms: HashMap::new(),
        readers: readers(typed),
        lanes,
        strict: choice.strict,
        grows: choice.growth > 1.0,
        twice: choice.twice,
        short_tiles: choice.short_tiles,
        shared: choice.shared,
        tuned: choice.tuned.clone().filter(|t| t.vector_bytes as i64 == lanes * 4),
        epilogues: epilogues(typed),
    };
    for b in typed.module.relax_funcs().flat_map(|f| f.bindings()) {
        if let Some(c) = pass.constant(b.expr()) {
            let held = b.expr().as_op_call("astype").and_then(|c| typed.info_of(c.args.first()?)?.as_tensor()?.dtype);
            if let Some(held) = held {
                pass.halves.insert(b.var.clone(), held);
            }
            pass.known.insert(b.var.clone(), c);
        }
    }
    if !choice.strict {
        pass.transformed = transformed(&pass, typed, &choice);
        pass.norms = norms::written(typed, &pass.known);
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
    /// The floats of 16 bits as which the model holds some of them.
    halves: HashMap<RVar, DType>,
    /// The NHWC forms of values.
    last: HashMap<RVar, RVar>,
    /// What values are transpositions of that has channels last, with the same rows and columns in one order.
    turned: HashMap<RVar, RVar>,
    /// The variables whose tensor somebody may write to.
    written: HashSet<RVar>,
    /// Convolutions by Winograd's algorithm, and the size of their tiles.
    transformed: HashMap<RVar, i64>,
    /// What kernels of an earlier pass make with channels last.
    ready: HashSet<RVar>,
    /// Operands of the NHWC forms of `sigmoid`.
    sigmoids: HashMap<RVar, RVar>,
    /// What NHWC forms are concatenated from, along the channels.
    parts: HashMap<RVar, Vec<RVar>>,
    /// What NHWC forms are cut into.
    pieces: HashMap<RVar, slices::Pieces>,
    /// Tensors of parts of their axes.
    shuffled: HashMap<RVar, shuffles::Shuffled>,
    /// What are norms of groups, written out.
    norms: HashMap<RVar, norms::Norm>,
    /// How often each variable of the program is used.
    readers: HashMap<RVar, usize>,
    lanes: i64,
    strict: bool,
    /// Whether weights may become larger.
    grows: bool,
    twice: bool,
    short_tiles: bool,
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
        info.as_tensor()?.known_dims()?;
        Some(self.bind_as(name, value, info))
    }
}

pub(crate) fn call(op: &str, args: Vec<Expr>, attrs: Attrs, span: Span) -> Option<Expr> {
    let call = Call { callee: Callee::Op(lookup(op)?), args, attrs, sinfo_args: vec![] };
    Some(Expr::new(ExprKind::Call(call), span))
}

fn ints(v: &[i64]) -> AttrValue {
    AttrValue::List(v.iter().map(|&i| AttrValue::Int(i)).collect())
}

pub(crate) fn reshape(x: Expr, dims: &[i64], span: Span) -> Option<Expr> {
    let shape = dims.iter().map(|&d| PrimExpr::i64(d)).collect();
    call("reshape", vec![x, Expr::new(ExprKind::Shape(shape), span)], Attrs::default(), span)
}

pub(crate) fn transpose(x: Expr, axes: &[i64], span: Span) -> Option<Expr> {
    let mut attrs = Attrs::default();
    attrs.set("axes", ints(axes));
    call("permute_dims", vec![x], attrs, span)
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
        let dims = match self.dims(&b.var.expr(), &out) {
            Some(dims) => dims,
            None => return self.open(b, c, e, out),
        };
        if crate::host::VIEWS.contains(&name) {
            return self.viewed(b, c, &dims, out);
        }
        if REDUCTIONS.contains(&name) && dims.len() == 2 {
            return self.reduced(b, c, &mut out);
        }
        if name == "permute_dims" {
            self.reordered(b, c);
        }
        if name == "nn.pixel_shuffle" {
            let new = self.pixels(b, c, &dims, &mut out)?;
            return Some(self.also(b, new, out));
        }
        let dtype = out.typed.sinfo.get(&b.var)?.as_tensor()?.dtype;
        let compared = dtype == Some(DType::BOOL) && follows(name);
        let bytes = QUANTISES.contains(&name);
        let half = matches!(dtype, Some(DType::F16 | DType::BF16)) && (follows(name) || MOVES.contains(&name));
        if !(3..=5).contains(&dims.len()) || dtype != Some(DType::F32) && !half && !compared && !bytes {
            return None;
        }
        if name == "permute_dims" {
            return self.turn(b, c, &dims, out);
        }
        let new = match name {
            _ if CONVOLUTIONS.contains(&name) => self.conv(b, c, &dims, e, &mut out)?,
            _ if TRANSPOSED.contains(&name) => {
                let shape = self.shape(&b.var.expr(), &out)?;
                self.transposed(b, c, &shape, &mut out)?
            }
            "concat" => self.concat(b, c, &mut out)?,
            _ if bytes => self.quantised(b, c, dims.len(), &mut out)?,
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
            _ if SAMPLERS.contains(&name) => {
                let shape = self.shape(&b.var.expr(), &out)?;
                self.sampled(b, c, &shape, &mut out)?
            }
            _ if ALONG.contains(&name) => self.along_axis(b, c, dims.len(), &mut out)?,
            "nn.pad" => self.padded(b, c, dims.len(), &mut out)?,
            "broadcast_to" => {
                let shape = self.shape(&b.var.expr(), &out)?;
                self.broadcast(b, c, &shape, &mut out)?
            }
            _ if NORMS.contains(&name) => {
                let shape = self.shape(&b.var.expr(), &out)?;
                self.norm(b, c, &shape, &mut out)?
            }
            _ if REDUCTIONS.contains(&name) => self.reduction(b, c, &mut out)?,
            _ if compared || follows(name) => {
                let shape = self.shape(&b.var.expr(), &out)?;
                self.elementwise(b, c, &shape, &mut out)?
            }
            _ => return None,
        };
        self.bound(b, new, &dims, out)
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
            // Weights of 16 bits: kernels of float32 read them.
            ExprKind::Call(c) if c.is_op("astype") && c.attrs.dtype("dtype") == Some(DType::F32) => {
                let c = self.constant(c.args.first()?)?;
                let float: fn([u8; 2]) -> f32 = match c.dtype {
                    DType::F16 => |b| half::f16::from_le_bytes(b).to_f32(),
                    DType::BF16 => |b| half::bf16::from_le_bytes(b).to_f32(),
                    _ => return None,
                };
                let wide = c.bytes().chunks_exact(2).flat_map(|b| float([b[0], b[1]]).to_le_bytes()).collect();
                Some(Constant::new(DType::F32, c.shape.clone(), wide))
            }
            _ => None,
        }
    }

    fn conv(&mut self, b: &Binding, c: &Call, dims: &[i64], at: &Expr, out: &mut Out) -> Option<RVar> {
        let x = c.args.first()?;
        let data = self.dims(x, out)?;
        let Some((mut plane, weight)) = self.plane(&b.var, c, &data, dims) else {
            return self.computed(b, c, &data, dims, at, out);
        };
        let values = plane.weights(&weight);
        let channels = PrimExpr::i64(dims[1]);
        let w = &mut plane.window;
        let few = data[1] <= FEW_CHANNELS && w.size[0] * w.size[1] > 1 && data.len() < 5 && !planes::is_long(w);
        w.last = w.kind == Kind::Depthwise || w.groups > 1 || self.is_last(x) || !few;
        if let Some(&made) = self.transformed.get(&b.var).filter(|_| w.suits_winograd(self.lanes)) {
            w.kind = Kind::Winograd(made);
        }
        if let Some(parts) = self.parts_of(x, out).filter(|p| self.splits(w, p.len()) && data.len() == 4) {
            let sum = self.split(b, w, &values, parts, at, out)?;
            return self.kept(b, &plane.window, &channels, sum, out);
        }
        let x = self.data_of(b, &mut plane, x, out)?;
        let mut w = plane.window;
        self.choose(&mut w);
        w.half = w.half.filter(|_| !matches!(w.kind, Kind::Winograd(_)));
        let args = vec![x, Expr::new(ExprKind::Constant(packed(&w, &values)), at.span())];
        let made = self.kernel(b, &w, args, at, out)?;
        self.kept(b, &w, &channels, made, out)
    }

    /// The NHWC tensors, with their channels, that `x` is concatenated from for one reader.
    fn parts_of(&self, x: &Expr, out: &Out) -> Option<Vec<(RVar, i64)>> {
        let once = self.readers.get(x.as_var()?) == Some(&1);
        let parts = self.parts.get(&self.last_of(x)?).filter(|_| once)?;
        parts.iter().map(|p| Some((p.clone(), self.shape(&p.expr(), out)?.last()?.as_int()?))).collect()
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
        values: &[f32],
        parts: Vec<(RVar, i64)>,
        at: &Expr,
        out: &mut Out,
    ) -> Option<RVar> {
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

    /// Binds the call of a window's kernel.
    fn kernel(&mut self, b: &Binding, w: &Window, args: Vec<Expr>, at: &Expr, out: &mut Out) -> Option<RVar> {
        let mut w = w.clone();
        if w.is_pool() {
            self.choose(&mut w);
        }
        let sizes = match w.open {
            true => self.open_sizes(b, &w, args.first()?, out)?,
            false => w.sizes(),
        };
        self.kernel_of(b, &w, sizes, args, at, out)
    }

    /// The same of these sizes.
    fn kernel_of(
        &mut self,
        b: &Binding,
        w: &Window,
        sizes: Sizes,
        args: Vec<Expr>,
        at: &Expr,
        out: &mut Out,
    ) -> Option<RVar> {
        let mut prim = w.prim(&sizes);
        prim.name = self.names.fresh(&prim.name);
        prim.span = at.span();
        let info = StructInfo::tensor(w.out_shape(&sizes), DType::F32);
        let args = [args, scalars(&prim, at)].concat();
        let value = call_tir(&prim.name, args, vec![info.clone()], at).ok()?;
        self.new.push(prim);
        Some(out.bind_as(b.var.name(), value, info))
    }

    /// Decides how a window is computed, its algorithm aside.
    fn choose(&self, w: &mut Window) {
        let algorithm = match w.kind {
            Kind::Winograd(made) => Algorithm::Winograd(made),
            _ => Algorithm::Direct,
        };
        let best = self
            .tuned
            .as_ref()
            .filter(|_| !w.open)
            .and_then(|t| t.best(&Site::Window(w.clone()).key(), Some(algorithm)));
        match best {
            Some(c) => w.configure(&c, self.lanes),
            None if self.short_tiles && algorithm == Algorithm::Direct => w.configure_short(self.lanes),
            None if self.twice && self.shared && algorithm == Algorithm::Direct => w.configure_shared(self.lanes),
            None if self.twice && algorithm == Algorithm::Direct => w.configure_twice(self.lanes),
            None => w.choose_panel(self.lanes),
        }
    }
}

fn floats(c: &Constant) -> Vec<f32> {
    c.bytes().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Weights as a window's kernel reads them.
fn packed(w: &Window, weights: &[f32]) -> Constant {
    let all = w.pack(weights);
    let count = vec![all.len() as i64];
    let bytes = match w.half {
        Some(DType::BF16) => all.into_iter().flat_map(|v| half::bf16::from_f32(v).to_le_bytes()).collect(),
        Some(_) => all.into_iter().flat_map(|v| half::f16::from_f32(v).to_le_bytes()).collect(),
        None => all.into_iter().flat_map(f32::to_le_bytes).collect(),
    };
    Constant::new(w.stored(), count, bytes)
}

/// What kernels make that say so ([`crate::quant::LAST`]).
fn ready(typed: &Typed) -> HashSet<RVar> {
    let prims = typed.module.funcs.iter().filter_map(|f| match f {
        Func::Prim(f) => f.attrs.bool(crate::quant::LAST)?.then_some(f.name.as_str()),
        Func::Relax(_) => None,
    });
    let names: HashSet<&str> = prims.collect();
    let made = |b: &&Binding| match b.expr().as_op_call("call_tir").and_then(|c| c.args.first()).map(|f| f.kind()) {
        Some(ExprKind::GlobalVar(name)) => names.contains(name.as_str()),
        _ => false,
    };
    let bindings = typed.module.relax_funcs().flat_map(|f| f.bindings());
    bindings.filter(made).map(|b| b.var.clone()).collect()
}

/// How often each variable is used.
pub(crate) fn readers(typed: &Typed) -> HashMap<RVar, usize> {
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
