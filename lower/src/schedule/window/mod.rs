//! Window operators over channels-last tensors: convolutions whose weights were packed at compile time, in groups or
//! not, depthwise convolutions, maxima, and sums.
//!
//! [`Window`] says everything about one of them; it travels as an attribute of the block that states what it computes
//! ([`Window::prim`]), through fusion, to the kernels here ([`conv`], [`depthwise`]). Windows at the edges leave out
//! the taps that fall outside, by variants of a tile along the columns and by the bounds of a loop along the rows;
//! nothing is padded or gathered.

mod alike;
mod blocks;
pub mod cascade;
mod choose;
mod conv;
mod depthwise;
mod tile;
mod winograd;

use super::emit::{compute_type, Emit, Res};
use super::poly::Poly;
use super::stage::Stage;
use super::SchedOptions;
pub use choose::Pace;
use relax_ir::attrs::Attrs;
use relax_ir::prim::PrimKind;
use relax_ir::tir::{Buffer, KernelBuilder, PrimFunc, Reducer, StmtKind};
use relax_ir::{AttrValue, DType, PrimExpr, Var};

/// The attribute of a block.
const KEY: &str = "window";
/// What weights may be besides float32.
const HALVES: [DType; 2] = [DType::F16, DType::BF16];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Conv,
    Depthwise,
    /// The largest value under the window instead of a sum of products; no weights.
    Max,
    /// The sum of the values under the window; no weights.
    Sum,
    /// With tiles of so many rows and columns of the result: 2 or 4.
    Winograd(i64),
}

/// What goes by outside of what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outer {
    /// The cost model decides.
    #[default]
    Model,
    /// Tiles of the data; all weights are read for each.
    Data,
    /// Panels of weights; all data is read for each.
    Weights,
}

impl Outer {
    /// From its name.
    pub fn parse(name: &str) -> Option<Outer> {
        [Outer::Model, Outer::Data, Outer::Weights].into_iter().find(|o| o.to_string() == name)
    }
}

impl std::fmt::Display for Outer {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(match self {
            Outer::Model => "model",
            Outer::Data => "data",
            Outer::Weights => "weights",
        })
    }
}

/// Decisions about a window's kernel beyond algorithm and panel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Rows of a tile for vectors of `lanes`; 0: as the model has it.
    pub rows: i64,
    pub lanes: i64,
    pub outer: Outer,
    /// See [`crate::choice::epilogue_class`].
    pub epilogue: i64,
}

/// How many pictures there are, and their rows and columns: of the data and of the result.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    pub batch: PrimExpr,
    pub size: [PrimExpr; 2],
    pub out: [PrimExpr; 2],
}

/// A convolution of float32. Data is NHWC, or NCHW when not `last`; the result is NHWC. Weights are one-dimensional, see
/// [`Window::pack`].
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    pub kind: Kind,
    pub batch: i64,
    /// Rows and columns of the data.
    pub size: [i64; 2],
    /// Channels of the data.
    pub taken: i64,
    /// Elements from one pixel of channels-last data to the next, where it is a part of a tensor; 0: its channels.
    pub pitch: i64,
    /// Rows and columns of the result.
    pub out: [i64; 2],
    /// Channels of the result.
    pub made: i64,
    pub kernel: [i64; 2],
    pub stride: [i64; 2],
    /// Rows and columns of the data from tap to tap.
    pub dilation: [i64; 2],
    /// Of a [`Kind::Conv`]: so many, side by side.
    pub groups: i64,
    /// Zeros before the first row and column.
    pub before: [i64; 2],
    pub last: bool,
    /// Channels of the result whose weights lie together.
    pub panel: i64,
    /// Pictures, rows and columns are known when the kernel runs ([`Sizes`]); those here are likely ones, for the cost
    /// model alone.
    pub open: bool,
    /// The float of 16 bits that weights are, if they are no float32.
    pub half: Option<DType>,
    /// Columns of zeros that data of open sizes has at both ends; of windows that ask for columns, those beyond the data, at
    /// most.
    pub margin: [i64; 2],
    pub plan: Plan,
}

impl Window {
    /// The attribute's value.
    fn list(&self) -> Vec<i64> {
        let kind = match self.kind {
            Kind::Conv => 0,
            Kind::Depthwise => 1,
            Kind::Max => 3,
            Kind::Sum => 5,
            Kind::Winograd(made) => made,
        };
        let mut v = vec![kind, self.batch, self.taken, self.made];
        for pair in [self.size, self.out, self.kernel, self.stride, self.before] {
            v.extend(pair);
        }
        v.extend([self.last as i64, self.panel]);
        let p = &self.plan;
        v.extend([p.rows, p.lanes, p.outer as i64, p.epilogue]);
        v.extend(self.dilation);
        v.extend([self.groups, self.open as i64]);
        v.extend(self.margin);
        v.push(HALVES.iter().position(|d| self.half == Some(*d)).map_or(0, |i| i as i64 + 1));
        v
    }

    /// What a block says about itself.
    pub fn of(attrs: &Attrs) -> Option<Window> {
        let v = attrs.ints(KEY)?;
        let pair = |i: usize| [v[i], v[i + 1]];
        (v.len() == 27).then(|| Window {
            kind: match v[0] {
                0 => Kind::Conv,
                1 => Kind::Depthwise,
                3 => Kind::Max,
                5 => Kind::Sum,
                made => Kind::Winograd(made),
            },
            batch: v[1],
            taken: v[2],
            pitch: 0,
            made: v[3],
            size: pair(4),
            out: pair(6),
            kernel: pair(8),
            stride: pair(10),
            dilation: pair(20),
            groups: v[22],
            before: pair(12),
            last: v[14] != 0,
            panel: v[15],
            open: v[23] != 0,
            margin: pair(24),
            half: HALVES.get((v[26] - 1) as usize).copied(),
            plan: Plan {
                rows: v[16],
                lanes: v[17],
                outer: [Outer::Model, Outer::Data, Outer::Weights][v[18].clamp(0, 2) as usize],
                epilogue: v[19],
            },
        })
    }

    /// Sets the panel that suits vectors of so many lanes best.
    pub fn choose_panel(&mut self, lanes: i64) {
        self.panel = tile::best_panel(self, lanes);
    }

    /// For channels-last data with these strides, where its pixels lie evenly.
    pub fn with_strides(&self, strides: &[i64]) -> Option<Window> {
        let &[n, h, w, c] = strides else { return None };
        if self.open {
            return None;
        }
        let even = c == 1 && w >= self.taken && h == w * self.size[1] && (self.batch == 1 || n == h * self.size[0]);
        (even && self.last).then(|| Window { pitch: if w == self.taken { 0 } else { w }, ..self.clone() })
    }

    /// Elements from one pixel of channels-last data to the next.
    pub fn pixel(&self) -> i64 {
        if self.pitch == 0 {
            self.taken
        } else {
            self.pitch
        }
    }

    /// What weights are in memory.
    pub fn stored(&self) -> DType {
        self.half.unwrap_or(DType::F32)
    }

    /// So many weights at `offset`, as float32.
    fn weights(&self, from: &PrimExpr, offset: PrimExpr, lanes: i64) -> PrimExpr {
        let load = PrimExpr::load_ptr(from.clone(), offset, self.stored().with_lanes(lanes as u16));
        load.cast(DType::F32.with_lanes(lanes as u16))
    }

    /// Elements of packed weights.
    fn packed(&self) -> i64 {
        match self.kind {
            Kind::Depthwise | Kind::Conv => self.made * self.depth(),
            Kind::Max | Kind::Sum => 0,
            Kind::Winograd(made) => self.made * self.taken * (made + 2) * (made + 2),
        }
    }

    /// Of open sizes: whether columns may lie outside of the data. [`Kind::Conv`] of channels-last data gets columns of
    /// zeros with it.
    pub fn has_edges(&self) -> bool {
        match self.kind {
            Kind::Conv => !self.last && self.margin != [0, 0],
            _ => self.kernel[1] > 1 || self.before[1] > 0,
        }
    }

    /// Whether a column under a tile of so many columns of the result, counted from the first one under it, may lie before
    /// the data, and behind it.
    pub fn may_miss(&self, column: i64, len: i64) -> [bool; 2] {
        let last = (len - 1) * self.stride[1] + (self.kernel[1] - 1) * self.dilation[1];
        [column < self.before[1], column > last - self.margin[1]]
    }

    /// Whether its data has columns of zeros.
    pub fn is_bordered(&self) -> bool {
        self.open && self.kind == Kind::Conv && self.last && self.margin != [0, 0]
    }

    /// Whether it has weights.
    pub fn is_pool(&self) -> bool {
        matches!(self.kind, Kind::Max | Kind::Sum)
    }

    /// Channels taken and made by a group.
    fn group(&self) -> [i64; 2] {
        [self.taken, self.made].map(|n| n / self.groups.max(1))
    }

    /// Channels that a channel made is a sum over.
    pub fn reach(&self) -> i64 {
        self.group()[0]
    }

    /// The first of them.
    fn first_taken(&self, channel: PrimExpr) -> PrimExpr {
        let [taken, made] = self.group();
        channel.floor_div(made.max(1)) * taken
    }

    /// The same for the first channel of a panel.
    fn panel_taken(&self, first: PrimExpr) -> PrimExpr {
        let [taken, made] = self.group();
        match self.panel % made.max(1) == 0 && taken == made {
            true => first,
            false => first.floor_div(made.max(1)) * taken,
        }
    }

    /// Whether a vector of so many lanes holds several groups.
    fn is_shared(&self, lanes: i64) -> bool {
        let made = self.group()[1];
        self.groups > 1 && made < lanes && self.panel != made
    }

    /// Panels for vectors of so many lanes: as many vectors as a tile has side by side, or where groups are no such
    /// number of channels a group each.
    pub fn panels(&self, lanes: i64) -> Vec<i64> {
        let most = tile::most_pieces(lanes) as i64;
        let all: Vec<i64> = (1..=most).map(|n| n * lanes).filter(|n| self.takes_panel(*n)).collect();
        let made = self.group()[1];
        let own = all.is_empty() && made % 4 == 0 && tile::pieces(made, lanes).len() <= 8;
        if own {
            vec![made]
        } else {
            all
        }
    }

    /// Whether panels of so many channels can be computed: each belongs to one group, or to several whole ones that do
    /// not share vectors, or share one in equal parts. The last panel may be half a vector, for a group of its own.
    pub fn takes_panel(&self, panel: i64) -> bool {
        let [taken, made] = self.group();
        let equal = taken == made && [2, 4, 8].contains(&made) && panel <= 16;
        let several = panel % made.max(1) == 0 && (made % 16 == 0 || equal);
        let whole = self.made % panel == 0 || equal && panel == 16 && made == 8 && self.made % panel == made;
        self.groups <= 1 || (whole && (made % panel == 0 || several))
    }

    /// Whether [`Kind::Winograd`] can compute it.
    pub fn suits_winograd(&self, lanes: i64) -> bool {
        let channels = self.made % lanes == 0 && self.taken % lanes == 0;
        let shape = self.kernel == [3, 3] && self.stride == [1, 1] && self.before.iter().all(|p| *p <= 2);
        let shape = shape && self.dilation == [1, 1] && self.groups == 1;
        self.kind == Kind::Conv && self.last && channels && shape
    }

    /// Bytes that transformed weights take beyond the convolution's own.
    pub fn winograd_growth(&self, made: i64) -> f64 {
        let own = self.kernel[0] * self.kernel[1] * self.stored().bytes() as i64;
        (((made + 2) * (made + 2) * 4 - own) * self.made * self.taken) as f64
    }

    /// Cycles that tiles of `made` x `made` save, about, where so many vectors are multiplied and so many bytes come from
    /// memory in a cycle.
    pub fn winograd_gain(&self, made: i64, lanes: i64, pace: Pace) -> f64 {
        let positions = ((made + 2) * (made + 2)) as f64;
        let tiles = (self.batch * self.out.map(|n| (n + made - 1) / made).iter().product::<i64>()) as f64;
        let (taken, out) = (self.taken as f64, self.made as f64);
        let lanes = lanes as f64;
        let taps: f64 = [0, 1].map(|i| (3 * self.out[i] - 2 * self.before[i].min(1)) as f64).iter().product();
        let direct = taps * self.batch as f64 * taken * out / lanes;
        let products = positions * tiles.max(4.0) * taken * out / lanes * 1.15;
        let transforms = tiles * positions * 5.0 * (taken + out) / lanes;
        // Large weights come from memory in each call.
        let growth = self.winograd_growth(made);
        let cold = if growth > 1e6 { growth / pace.bytes } else { 0.0 };
        (direct - products) / pace.vectors - transforms - cold
    }

    /// Bytes of scratch memory that the kernel of a stage needs, where it needs some.
    pub fn scratch(&self, s: &Stage) -> Option<PrimExpr> {
        let Kind::Winograd(made) = self.kind else { return None };
        let sources = loaded(&s.accs.first()?.update);
        Some(winograd::scratch(self, &Sizes::of(s, self, sources.first()?)?, made))
    }

    /// Multiplications for one element of the result.
    pub fn depth(&self) -> i64 {
        match self.kind {
            Kind::Conv | Kind::Winograd(_) => self.kernel[0] * self.kernel[1] * self.reach(),
            Kind::Depthwise | Kind::Max | Kind::Sum => self.kernel[0] * self.kernel[1],
        }
    }

    /// The sizes, where they are known.
    pub fn sizes(&self) -> Sizes {
        let int = PrimExpr::i64;
        Sizes { batch: int(self.batch), size: self.size.map(int), out: self.out.map(int) }
    }

    /// Dims of the data.
    fn data_shape(&self, s: &Sizes) -> [PrimExpr; 4] {
        let ([h, w], c) = (s.size.clone(), PrimExpr::i64(self.taken));
        match self.last {
            true => [s.batch.clone(), h, w, c],
            false => [s.batch.clone(), c, h, w],
        }
    }

    /// Dims of the result.
    pub fn out_shape(&self, s: &Sizes) -> Vec<PrimExpr> {
        let [h, w] = s.out.clone();
        vec![s.batch.clone(), h, w, PrimExpr::i64(self.made)]
    }

    /// Weights `[made, taken / groups, rows, columns]` (depthwise: `[made, 1, rows, columns]`) in the order in which kernels
    /// read them: convolutions panel by panel, within a panel by tap (row, column, channel taken; NCHW data: channel,
    /// row, column), within a tap by channel made; depthwise by tap, then by channel.
    pub fn pack(&self, w: &[f32]) -> Vec<f32> {
        let [kh, kw] = self.kernel;
        let mut out = Vec::with_capacity(w.len());
        let at = |o: i64, i: i64, y: i64, x: i64, taken: i64| w[(((o * taken + i) * kh + y) * kw + x) as usize];
        if self.kind == Kind::Depthwise {
            for tap in 0..kh * kw {
                out.extend((0..self.made).map(|o| at(o, 0, tap / kw, tap % kw, 1)));
            }
            return out;
        }
        if let Kind::Winograd(m) = self.kind {
            return self.pack_transformed(m, &|o, i| {
                std::array::from_fn(|t| at(o, i, t as i64 / 3, t as i64 % 3, self.taken) as f64)
            });
        }
        let reach = self.reach();
        for first in (0..self.made).step_by(self.panel as usize) {
            let end = self.made.min(first + self.panel);
            for k in 0..self.depth() {
                let (i, y, x) = match self.last {
                    true => (k % reach, k / reach / kw, k / reach % kw),
                    false => (k / (kh * kw), k / kw % kh, k % kw),
                };
                out.extend((first..end).map(|o| at(o, i, y, x, reach)));
            }
        }
        out
    }

    /// Position by position, then as for a 1x1 convolution.
    fn pack_transformed(&self, m: i64, kernel: &dyn Fn(i64, i64) -> [f64; 9]) -> Vec<f32> {
        let plane = (self.made * self.taken) as usize;
        let mut out = vec![0.0; self.packed() as usize];
        let mut next = 0;
        for first in (0..self.made).step_by(self.panel as usize) {
            for i in 0..self.taken {
                for o in first..self.made.min(first + self.panel) {
                    let places = ((m + 2) * (m + 2)) as usize;
                    for (p, x) in winograd::weights(&kernel(o, i), m).into_iter().take(places).enumerate() {
                        out[p * plane + next] = x as f32;
                    }
                    next += 1;
                }
            }
        }
        out
    }

    /// The operator as a PrimFunc of data and packed weights, over pictures of these sizes.
    pub fn prim(&self, sizes: &Sizes) -> PrimFunc {
        let name = match self.kind {
            Kind::Conv => "conv2d",
            Kind::Depthwise => "depthwise_conv2d",
            Kind::Max => "max_pool2d",
            Kind::Sum => "sum_pool2d",
            Kind::Winograd(_) => "winograd_conv2d",
        };
        let mut k = KernelBuilder::new(name);
        let x = k.input("data", &self.data_shape(sizes), DType::F32);
        let pool = self.kind == Kind::Max;
        let w = (!self.is_pool()).then(|| k.input("weight", &[PrimExpr::i64(self.packed())], self.stored()));
        let [kh, kw] = self.kernel.map(PrimExpr::i64);
        let taken = PrimExpr::i64(self.reach());
        let extents = match (self.kind, self.last) {
            (Kind::Depthwise | Kind::Max | Kind::Sum, _) => vec![kh.clone(), kw.clone()],
            (_, true) => vec![kh.clone(), kw.clone(), taken.clone()],
            (_, false) => vec![taken.clone(), kh.clone(), kw.clone()],
        };
        let nothing = if pool { PrimExpr::min_value(DType::F32) } else { PrimExpr::zero(DType::F32) };
        let combine: &dyn Fn(PrimExpr, PrimExpr) -> PrimExpr = if pool { &|a, b| a.max(b) } else { &|a, b| a + b };
        let reducer = Reducer { init: nothing.clone(), combine };
        let y = k.reduce(name, &self.out_shape(sizes), DType::F32, &extents, reducer, |s, r| {
            let o = s[3].clone();
            let (c, y, x_) = match (self.kind, self.last) {
                (Kind::Depthwise | Kind::Max | Kind::Sum, _) => (o.clone(), &r[0], &r[1]),
                (_, true) if self.groups > 1 => (self.first_taken(o.clone()) + r[2].clone(), &r[0], &r[1]),
                (_, true) => (r[2].clone(), &r[0], &r[1]),
                (_, false) => (r[0].clone(), &r[1], &r[2]),
            };
            let row = s[1].clone() * self.stride[0] + y.clone() * self.dilation[0] - self.before[0];
            let col = s[2].clone() * self.stride[1] + x_.clone() * self.dilation[1] - self.before[1];
            let index = match self.last {
                true => vec![s[0].clone(), row.clone(), col.clone(), c],
                false => vec![s[0].clone(), c, row.clone(), col.clone()],
            };
            let mut inside = PrimExpr::bool(true);
            for (i, at) in [row, col].into_iter().enumerate() {
                if self.open {
                    if i == 0 && (self.before[0] > 0 || self.kernel[0] > 1) || i == 1 && self.has_edges() {
                        inside = inside.and(at.clone().ge(0)).and(at.lt(sizes.size[i].clone()));
                    }
                    continue;
                }
                let reach =
                    (self.out[i] - 1) * self.stride[i] + (self.kernel[i] - 1) * self.dilation[i] - self.before[i];
                if self.before[i] > 0 {
                    inside = inside.and(at.clone().ge(0));
                }
                if reach >= self.size[i] {
                    inside = inside.and(at.lt(self.size[i]));
                }
            }
            let value = x.at(index);
            let value = match inside.as_int() {
                Some(_) => value,
                None => inside.if_then_else(value, nothing),
            };
            let Some(w) = w else { return value };
            let tap = r.iter().zip(&extents).fold(PrimExpr::i64(0), |t, (v, n)| t * n.clone() + v.clone());
            let first = o.clone().floor_div(self.panel) * self.panel;
            let width = match self.made % self.panel {
                0 => PrimExpr::i64(self.panel),
                _ => (PrimExpr::i64(self.made) - first.clone()).min(self.panel),
            };
            let in_panel = |k: PrimExpr, depth: i64| first.clone() * depth + k * width + (o.clone() - first.clone());
            let weight = match self.kind {
                Kind::Depthwise | Kind::Max | Kind::Sum => w.at(vec![tap * self.made + o.clone()]).cast(DType::F32),
                Kind::Conv => w.at(vec![in_panel(tap, self.depth())]).cast(DType::F32),
                Kind::Winograd(m) => {
                    let at = in_panel(r[2].clone(), self.taken);
                    let mut sum: Option<PrimExpr> = None;
                    for (f, i) in winograd::tap(m, &r[0]) {
                        for (g, j) in winograd::tap(m, &r[1]) {
                            let position = i.clone() * (m + 2) + j;
                            let x = f.clone() * g * w.at(vec![position * (self.made * self.taken) + at.clone()]);
                            sum = Some(sum.map_or(x.clone(), |s| s + x));
                        }
                    }
                    sum.unwrap_or_else(|| PrimExpr::zero(DType::F32))
                }
            };
            value * weight
        });
        let mut prim = k.finish(&[y]);
        prim.body = prim.body.rewrite(&mut |e| e.clone(), &mut |s| match s.kind() {
            StmtKind::Block(b) => {
                let mut b = b.clone();
                let list = self.list().into_iter().map(AttrValue::Int).collect();
                b.attrs.set(KEY, AttrValue::List(list));
                relax_ir::tir::Stmt::at(StmtKind::Block(b), s.span())
            }
            _ => s,
        });
        prim
    }
}

/// Emits the stage; `false`, with nothing emitted, when it does not have the form.
pub fn emit(e: &mut Emit, s: &Stage, w: &Window, scratch: Option<&Var>, o: &SchedOptions) -> Res<bool> {
    let lanes = o.vector_bytes as i64 / 4;
    let Some((x, weight)) = operands(s, w).filter(|_| lanes >= 4) else { return Ok(false) };
    let (x, weight) = (&x, &weight);
    if s.outs.iter().any(|o| compute_type(o.buffer.dtype()) != DType::F32) {
        return Ok(false);
    }
    let dense = |e: &Emit, b: &Buffer| e.places.get(b).is_some_and(|p| p.offset.is_zero());
    if !dense(e, x) || !dense(e, weight) {
        return Ok(false);
    }
    if matches!(w.kind, Kind::Winograd(_))
        && (scratch.is_none() || !Window { kind: Kind::Conv, ..w.clone() }.suits_winograd(lanes))
    {
        return Ok(false);
    }
    let strides: Option<Vec<i64>> = e.places.get(x).and_then(|p| p.strides.iter().map(Poly::as_const).collect());
    let sizes = Sizes::of(s, w, x);
    if w.open && !sizes.as_ref().is_some_and(|n| n.is_dense(e, w, x)) {
        return Ok(false);
    }
    let dense = w.last.then(|| w.with_strides(&strides?));
    let w = match dense {
        Some(Some(w)) if w.pitch == 0 || !matches!(w.kind, Kind::Winograd(_)) => &w.clone(),
        None => w,
        _ if w.open => w,
        _ => return Ok(false),
    };
    let Some(sizes) = sizes else { return Ok(false) };
    let run = tile::Run::new(e, s, w, o, (x, weight), sizes, true)?;
    match w.kind {
        Kind::Conv => conv::emit(e, &run)?,
        Kind::Depthwise | Kind::Max | Kind::Sum => depthwise::emit(e, &run)?,
        Kind::Winograd(made) => {
            let Some(scratch) = scratch else { return Err(e.internal("no scratch memory")) };
            winograd::emit(e, &run, made, scratch)?
        }
    }
    Ok(true)
}

/// Data and weights of a window that is written as kernels here expect it; of one without weights the data twice.
fn operands(s: &Stage, w: &Window) -> Option<(Buffer, Buffer)> {
    let [acc] = s.accs.as_slice() else { return None };
    if s.spatial.len() != 4 || (w.kind != Kind::Max && acc.init.as_float() != Some(0.0)) {
        return None;
    }
    match loaded(&acc.update).as_slice() {
        [x, weight] => Some((x.clone(), weight.clone())),
        [x] if w.is_pool() => Some((x.clone(), x.clone())),
        _ => None,
    }
}

impl Sizes {
    /// Those of a stage with data `x`: by the window where it knows them, else by the buffers.
    fn of(s: &Stage, w: &Window, x: &Buffer) -> Option<Sizes> {
        if !w.open {
            return Some(w.sizes());
        }
        let [batch, out @ .., _] = s.spatial.as_slice() else { return None };
        let [rows, columns] = out else { return None };
        let at = if w.last { 1 } else { 2 };
        let size = [x.shape.get(at)?.clone(), x.shape.get(at + 1)?.clone()];
        Some(Sizes { batch: batch.extent.clone(), size, out: [rows.extent.clone(), columns.extent.clone()] })
    }

    /// As code reads them.
    fn flat(&self, e: &mut Emit) -> Res<Sizes> {
        let mut dim = |d: &PrimExpr| e.index(&Poly::of(d, &e.ranges));
        let [h, w] = &self.size;
        let [rows, columns] = &self.out;
        Ok(Sizes { batch: dim(&self.batch)?, size: [dim(h)?, dim(w)?], out: [dim(rows)?, dim(columns)?] })
    }

    /// Whether data of these sizes lies without gaps.
    fn is_dense(&self, e: &Emit, w: &Window, x: &Buffer) -> bool {
        let Some(p) = e.places.get(x) else { return false };
        let mut step = Poly::constant(1);
        let shape = w.data_shape(self);
        shape.iter().zip(&p.strides).rev().all(|(d, stride)| {
            let same = d.is_int(1) || *stride == step;
            step = step.mul(&Poly::of(d, &e.ranges));
            same
        })
    }
}

/// The buffers that an expression loads, in order.
fn loaded(x: &PrimExpr) -> Vec<Buffer> {
    let mut out: Vec<Buffer> = vec![];
    x.walk(&mut |n| {
        if let PrimKind::BufferLoad(b, _) = n.kind() {
            if !out.contains(b) {
                out.push(b.clone());
            }
        }
    });
    out
}

#[cfg(test)]
mod tests;
