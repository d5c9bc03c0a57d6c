//! Kernels of 8-bit networks: convolutions and matrix products of uint8 activations (NHWC, padded) with int8 weights,
//! accumulated in int32, scaled and rounded to uint8 in the same pass.
//!
//! [`Conv::prim_func`] says what is computed, for every target; [`kernel`] is the same for wide vectors: for processors
//! that multiply four pairs of bytes at a time ([`Intrin::Dot4`]), and for others, where bytes become int16, in registers
//! or before ([`Intrin::DotWords`]; sums of two such products are exact in int32), and for tiles of bytes ([`Intrin::TileDot`]).
//! Weights are packed while compiling
//! ([`Conv::pack`]): panels of as many channels as the widest register tile has; in each, four consecutive inputs of
//! every channel stand together. Narrower forms of a kernel take a panel in groups.

mod ahead;
mod border;
mod depthwise;
mod lookup;
mod meaning;
mod pixels;
mod plus;
mod product;
mod results;
mod sizes;
mod squares;
#[cfg(test)]
mod tests;
mod tile;
mod tiles;
mod words;

use relax_ir::attrs::AttrValue;
use relax_ir::flat::{FlatFunc, FlatStmt, Linkage};
use relax_ir::prim::{BinOp, Intrin};
use relax_ir::tir::PrimFunc;
use relax_ir::{DType, PrimExpr, Var};

use lookup::LOOKUP;
pub use lookup::{is_lookup, lookup, mark_lookup};
use pixels::PIXELS;
pub use pixels::{pixels, Pixels};
pub use plus::Plus;
use product::PRODUCT;
pub use product::{kernel as product, Product};
pub use sizes::Sizes;
pub use tile::Tile;

/// The attribute that holds a [`Conv`].
pub const ATTR: &str = "relax_aot.int8";

/// Whether a PrimFunc has a kernel of its own here, and so must stay as it is.
pub fn is_special(f: &PrimFunc) -> bool {
    [ATTR, PIXELS, PRODUCT, LOOKUP].iter().any(|a| f.attrs.get(a).is_some())
}

/// A convolution over buffers whose borders are there already: `x [batch, in_h, in_w, in_c]` gives
/// `y [batch, out_h, out_w, channels]`, of which the `rows` by `columns` at (`top`, `left`) are computed and the border
/// is `zero`. `clip(round((acc + sum[c]) * scale[c] + bias[c]), low - zero, high - zero) + zero`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conv {
    pub batch: i64,
    pub in_h: i64,
    pub in_w: i64,
    /// A multiple of 4.
    pub in_c: i64,
    pub k_h: i64,
    pub k_w: i64,
    pub stride_h: i64,
    pub stride_w: i64,
    /// Where the first window begins.
    pub off_h: i64,
    pub off_w: i64,
    pub rows: i64,
    pub columns: i64,
    /// A multiple of 4.
    pub channels: i64,
    pub out_h: i64,
    pub out_w: i64,
    pub top: i64,
    pub left: i64,
    /// One input channel per output channel.
    pub depthwise: bool,
    pub zero: i64,
    /// Scaled sums are small enough for int32.
    pub bounded: bool,
    /// Bytes of a vector register of the widest form.
    pub vector_bytes: i64,
    pub tile: Tile,
    /// Another tensor of `y`'s shape that is added to the bytes; not where it is depthwise.
    pub plus: Option<Plus>,
    /// `y` holds the sums, in int32: no scale, no border, not depthwise. `x` is given as words of four channels, the first
    /// of them in the lowest bits.
    pub sums: bool,
    /// How many images there are, and their rows and columns, is known when the kernel runs ([`Sizes`]). Numbers here are
    /// likely ones then, for the choice of tiles; the differences between them, which are borders, hold.
    pub open: bool,
}

impl Default for Conv {
    /// Four channels of one point by a window of one.
    fn default() -> Conv {
        Conv {
            batch: 1,
            in_h: 1,
            in_w: 1,
            in_c: 4,
            k_h: 1,
            k_w: 1,
            stride_h: 1,
            stride_w: 1,
            off_h: 0,
            off_w: 0,
            rows: 1,
            columns: 1,
            channels: 4,
            out_h: 1,
            out_w: 1,
            top: 0,
            left: 0,
            depthwise: false,
            zero: 0,
            bounded: false,
            vector_bytes: 64,
            tile: Tile::default(),
            plus: None,
            sums: false,
            open: false,
        }
    }
}

/// What the processor of a form has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Form {
    /// Bytes of a vector register.
    pub vector_bytes: i64,
    /// Four pairs of bytes are multiplied at a time.
    pub dot4: bool,
    /// And tiles of bytes.
    pub tiles: bool,
}

/// Vectors of a panel that are computed together.
struct Group {
    lanes: i64,
    /// Where each begins among the channels as the panel has them.
    at: Vec<i64>,
    /// Where their results begin.
    first: i64,
}

/// Channels that go together: from the first, so many vectors of so many lanes.
#[derive(Clone, Copy)]
struct Panel {
    start: i64,
    /// Where the next kind of panel begins.
    end: i64,
    lanes: i64,
    count: i64,
}

impl Panel {
    fn width(&self) -> i64 {
        self.lanes * self.count
    }
}

pub(super) fn c(v: i64) -> PrimExpr {
    PrimExpr::i64(v)
}

impl Conv {
    /// Products of two bytes.
    pub fn steps(&self) -> i64 {
        self.batch * self.rows * self.columns * self.steps_of_pixel()
    }

    /// Of a PrimFunc that states what it computes, over [`crate::kernel_dims`].
    pub fn steps_of(&self, f: &PrimFunc) -> PrimExpr {
        let s = Sizes::of(f, self);
        s.batch * s.rows * s.columns * self.steps_of_pixel()
    }

    fn steps_of_pixel(&self) -> i64 {
        self.channels * self.k_h * self.k_w * if self.depthwise { 1 } else { self.in_c }
    }

    /// As an attribute.
    pub fn attr(&self) -> AttrValue {
        AttrValue::List(self.ints().into_iter().map(AttrValue::Int).collect())
    }

    fn ints(&self) -> Vec<i64> {
        let mut ints = vec![
            self.batch,
            self.in_h,
            self.in_w,
            self.in_c,
            self.k_h,
            self.k_w,
            self.stride_h,
            self.stride_w,
            self.off_h,
            self.off_w,
            self.rows,
            self.columns,
            self.channels,
            self.out_h,
            self.out_w,
            self.top,
            self.left,
            self.depthwise as i64,
            self.zero,
            self.bounded as i64,
            self.vector_bytes,
            self.tile.rows,
            self.tile.columns,
            self.tile.dot4 as i64,
            self.sums as i64,
            self.open as i64,
        ];
        ints.extend(self.plus.iter().flat_map(Plus::ints));
        ints
    }

    /// Of a PrimFunc that [`Conv::prim_func`] made.
    pub fn of(f: &PrimFunc) -> Option<Conv> {
        Conv::from(&f.attrs.ints(ATTR)?)
    }

    fn from(v: &[i64]) -> Option<Conv> {
        const OWN: usize = 26;
        let (own, rest) = v.split_at_checked(OWN)?;
        let plus = if rest.is_empty() { None } else { Some(Plus::from(rest)?) };
        let [batch, in_h, in_w, in_c, k_h, k_w, stride_h, stride_w, off_h, off_w, rows, columns, channels, out_h, out_w, top, left, depthwise, zero, bounded, vector_bytes, tile_rows, tile_columns, dot4, sums, open] =
            *own
        else {
            return None;
        };
        let depthwise = depthwise != 0;
        Some(Conv {
            batch,
            in_h,
            in_w,
            in_c,
            k_h,
            k_w,
            stride_h,
            stride_w,
            off_h,
            off_w,
            rows,
            columns,
            channels,
            out_h,
            out_w,
            top,
            left,
            depthwise,
            zero,
            bounded: bounded != 0,
            vector_bytes,
            tile: Tile { rows: tile_rows, columns: tile_columns, dot4: dot4 != 0 },
            plus,
            sums: sums != 0,
            open: open != 0,
        })
    }

    fn panels(&self) -> Vec<Panel> {
        let lanes = self.vector_bytes / 4;
        let most = if self.depthwise { 1 } else { 4 };
        let woven = self.weaves();
        let n = self.channels / lanes;
        let count = match n {
            n if n <= most => n.max(1),
            // Not where two go together.
            n if n % most != 0 && n % 3 == 0 && most == 4 && (self.vector_bytes > 32 || self.tile.dot4) => 3,
            _ => most,
        };
        let mut out = vec![];
        let mut at = 0;
        let mut add = |lanes: i64, count: i64| {
            let end = at + (self.channels - at) / (lanes * count) * (lanes * count);
            if end > at {
                out.push(Panel { start: at, end, lanes, count });
                at = end;
            }
        };
        if woven {
            for lanes in [lanes, lanes / 2, lanes / 4].into_iter().filter(|l| *l >= 4) {
                add(lanes, 4);
            }
        }
        add(lanes, count);
        for left in (1..count).rev() {
            add(lanes, left);
        }
        let mut half = lanes / 2;
        while half >= 4 {
            add(half, 1);
            half /= 2;
        }
        out
    }

    /// Inputs of an output: a row of the kernel lies in one piece.
    fn depth(&self) -> i64 {
        self.k_h * self.k_w * self.in_c
    }

    /// Where the weight of input `k` (in order of kernel row, kernel column, channel) and channel `j` is.
    fn position(&self, k: PrimExpr, j: PrimExpr) -> PrimExpr {
        let depth = self.depth();
        let mut at: Option<PrimExpr> = None;
        for p in self.panels().into_iter().rev() {
            let w = p.width();
            let column = j.clone() - p.start;
            let first = column.clone().floor_div(w) * w;
            let inside = k.clone().floor_div(4) * (w * 4) + (column - first.clone()) * 4 + k.clone().floor_mod(4);
            let here = (first + p.start) * depth + inside;
            at = Some(match at {
                None => here,
                Some(rest) => j.clone().lt(c(p.end)).select(here, rest),
            });
        }
        at.unwrap_or_else(|| c(0))
    }

    /// Weights in the kernel's order, from `weight(kernel row, kernel column, input channel, output channel)`; depthwise
    /// ones (input channel 0) as int32 where rows are not woven.
    pub fn pack(&self, weight: impl Fn(i64, i64, i64, i64) -> i8) -> Vec<u8> {
        let mut out = vec![];
        if self.weaves() {
            return self.pack_woven(&weight);
        }
        if self.depthwise {
            for (y, x) in (0..self.k_h).flat_map(|y| (0..self.k_w).map(move |x| (y, x))) {
                for j in 0..self.channels {
                    out.extend((weight(y, x, 0, j) as i32).to_le_bytes());
                }
            }
            return out;
        }
        for p in self.panels() {
            for first in (p.start..p.end).step_by(p.width() as usize) {
                for k in (0..self.depth()).step_by(4) {
                    for j in first..first + p.width() {
                        for k in k..k + 4 {
                            let (pixel, i) = (k / self.in_c, k % self.in_c);
                            out.push(weight(pixel / self.k_w, pixel % self.k_w, i, j) as u8);
                        }
                    }
                }
            }
        }
        out
    }

    pub fn weight_dtype(&self) -> DType {
        if self.depthwise && !self.weaves() {
            DType::I32
        } else {
            DType::I8
        }
    }

    /// Elements of the packed weights.
    pub fn weights(&self) -> i64 {
        let per_channel = match self.depthwise {
            true if self.weaves() => 4 * self.k_w,
            true => self.k_h * self.k_w,
            false => self.depth(),
        };
        per_channel * self.channels
    }

    /// The border of `y`.
    fn border(&self) -> i64 {
        self.plus.map_or(self.zero, |p| p.zero)
    }

    /// Bytes of an element of `y`.
    fn element(&self) -> i64 {
        if self.sums {
            4
        } else {
            1
        }
    }

    /// From float to int32, not limited to 0..255 yet.
    fn unlimited(&self, v: PrimExpr, lanes: u16) -> PrimExpr {
        let v = match self.bounded {
            true => v,
            false => v.min(PrimExpr::f32((255 - self.zero) as f32).broadcast(lanes)),
        };
        let v = v.call1(Intrin::NearbyInt).cast(DType::I32.with_lanes(lanes));
        match self.zero {
            0 => v,
            zero => v + PrimExpr::i32(zero as i32).broadcast(lanes),
        }
    }

    /// From float to 0..255, as int32.
    fn round(&self, v: PrimExpr, lanes: u16) -> PrimExpr {
        let v = self.limited(v, lanes).call1(Intrin::NearbyInt).cast(DType::I32.with_lanes(lanes));
        v + PrimExpr::i32(self.zero as i32).broadcast(lanes)
    }

    fn limited(&self, v: PrimExpr, lanes: u16) -> PrimExpr {
        let f = |x: i64| PrimExpr::f32(x as f32).broadcast(lanes);
        v.max(f(-self.zero)).min(f(255 - self.zero))
    }

    /// From float to 0..255, as float.
    fn byte(&self, v: PrimExpr, lanes: u16) -> PrimExpr {
        let v = self.limited(v, lanes).call1(Intrin::NearbyInt);
        match self.zero {
            0 => v,
            zero => v + PrimExpr::f32(zero as f32).broadcast(lanes),
        }
    }
}

/// Flat statements of one kernel.
struct Writer<'a> {
    conv: &'a Conv,
    form: Form,
    x: Var,
    w: Var,
    sum: Var,
    scale: Var,
    bias: Var,
    other: Var,
    y: Var,
    /// Sums of tiles on the stack.
    sums: Var,
    workspace: Var,
    sizes: Sizes,
    /// Bytes from one row of the data to the next.
    stride: PrimExpr,
}

pub(super) type Body = Vec<FlatStmt>;

pub(super) fn let_(out: &mut Body, name: &str, value: PrimExpr) -> PrimExpr {
    if value.as_int().is_some() || value.as_var().is_some() {
        return value;
    }
    let var = Var::new(name, value.dtype());
    out.push(FlatStmt::Let { var: var.clone(), value });
    var.expr()
}

/// A loop over `begin..end`, the steps complete.
pub(super) fn loop_(out: &mut Body, begin: i64, end: i64, step: i64, body: &mut dyn FnMut(&mut Body, PrimExpr)) {
    if begin >= end {
        return;
    }
    if begin + step >= end {
        return body(out, c(begin));
    }
    for_(out, c(begin), c(end), step, body);
}

/// The same where the bounds may be open.
fn steps(out: &mut Body, begin: &PrimExpr, end: &PrimExpr, step: i64, body: &mut dyn FnMut(&mut Body, PrimExpr)) {
    match (begin.as_int(), end.as_int()) {
        (Some(begin), Some(end)) => loop_(out, begin, end, step, body),
        _ => for_(out, begin.clone(), end.clone(), step, body),
    }
}

fn for_(out: &mut Body, begin: PrimExpr, end: PrimExpr, step: i64, body: &mut dyn FnMut(&mut Body, PrimExpr)) {
    let var = Var::new("i", DType::I64);
    let mut inner = vec![];
    body(&mut inner, var.expr());
    out.push(FlatStmt::For { var, begin, end, step, body: inner });
}

/// Half of the bytes of each lane, as int16.
fn words(bytes: &PrimExpr, odd: i64, signed: bool) -> PrimExpr {
    PrimExpr::call(Intrin::ByteWords, [bytes.clone(), c(odd), c(signed as i64)])
}

pub(super) fn load(ptr: &PrimExpr, at: PrimExpr, d: DType) -> PrimExpr {
    PrimExpr::load_ptr(ptr.clone(), at, d)
}

/// The kernel of a [`Conv`] for wide vectors, at most as wide as those of the weights' order.
pub fn kernel(f: &PrimFunc, conv: &Conv, form: Form) -> FlatFunc {
    let param = |name: &str| Var::new(name, DType::HANDLE);
    let mut body = vec![];
    let sizes = Sizes::of(f, conv).named(&mut body);
    let stride = sizes.stride(conv, &mut body);
    let w = Writer {
        conv,
        form,
        x: param("x"),
        w: param("w"),
        sum: param("sum"),
        scale: param("scale"),
        bias: param("bias"),
        other: param("other"),
        y: param("y"),
        sums: param("sums"),
        workspace: param("workspace"),
        sizes,
        stride,
    };
    if form.tiles && conv.has_tiles() {
        body.push(w.slot());
    }
    if !conv.sums {
        w.border(&mut body);
    }
    match (conv.in_squares(form), conv.in_words(form)) {
        (Some(squares), _) => w.in_squares(&mut body, &squares),
        (None, Some(words)) => w.in_words(&mut body, &words),
        (None, None) => conv.panels().iter().for_each(|p| w.all_of(&mut body, p)),
    }
    let mut params = vec![w.x, w.w, w.sum];
    if !conv.sums {
        params.extend([w.scale, w.bias]);
    }
    params.extend(conv.plus.map(|_| w.other));
    params.push(w.y);
    params.extend(crate::kernel_dims(f));
    params.extend(conv.takes_words(form).then_some(w.workspace));
    FlatFunc { name: f.name.clone(), params, ret: None, linkage: Linkage::Local, body, span: f.span }
}

impl Writer<'_> {
    /// The vectors of a panel, as many at a time as there are registers for their tile.
    fn groups(&self, p: &Panel) -> Vec<Group> {
        let lanes = p.lanes.min(self.form.vector_bytes / 4);
        if p.is_woven(self.conv) {
            let group =
                |first: i64| Group { lanes, at: (0..4).map(|j| j * p.lanes + first).collect(), first: 4 * first };
            return (0..p.lanes).step_by(lanes as usize).map(group).collect();
        }
        let most = self.conv.columns_of(self.form) as usize;
        let all: Vec<i64> = (0..p.width()).step_by(lanes as usize).collect();
        all.chunks(most).map(|at| Group { lanes, at: at.to_vec(), first: at[0] }).collect()
    }

    /// All panels of a kind.
    fn all_of(&self, out: &mut Body, p: &Panel) {
        loop_(out, p.start, p.end, p.width(), &mut |out, column| self.panel(out, p, column));
    }

    /// All pixels of some channels.
    fn panel(&self, out: &mut Body, p: &Panel, column: PrimExpr) {
        let groups = |out: &mut Body| self.groups(p).iter().for_each(|g| self.group(out, p, g, &column));
        if !(self.form.tiles && self.conv.has_tiles() && p.lanes == 16) {
            return groups(out);
        }
        let (_, pixels) = self.lines(out);
        if pixels.as_int().is_some() {
            return self.tiles(out, p, &column);
        }
        let (mut then, mut otherwise) = (vec![], vec![]);
        self.tiles(&mut then, p, &column);
        groups(&mut otherwise);
        out.push(FlatStmt::If { cond: self.conv.fills_tiles(&pixels), then, otherwise });
    }

    fn group(&self, out: &mut Body, p: &Panel, g: &Group, column: &PrimExpr) {
        let v = self.conv;
        let lanes = g.lanes as u16;
        let ints = DType::I32.with_lanes(lanes);
        // In registers while all pixels pass, as far as there are any left.
        let taps = v.k_h * v.k_w;
        let woven: Option<Vec<PrimExpr>> = v.weaves().then(|| self.woven_weights(out, p, g, column));
        let weights: Option<Vec<PrimExpr>> = (v.depthwise && !v.weaves() && taps <= 9).then(|| {
            let at = |t: i64| column.clone() + (t * v.channels + g.first);
            (0..taps).map(|t| let_(out, "w", load(&self.w.expr(), at(t), ints))).collect()
        });
        let s = &self.sizes;
        let (lines, columns) = self.lines(out);
        let cut = self.cut(out, &columns, v.whole(v.rows_of(self.form, g.at.len() as i64)));
        steps(out, &c(0), &s.batch, 1, &mut |out, n| {
            let first = n.clone() * (s.in_h.clone() * s.in_w.clone()) + (s.in_w.clone() * v.off_h + v.off_w);
            let from = let_(out, "from", self.x.expr().ptr_add(first * v.in_c));
            let first = n * (s.out_h.clone() * s.out_w.clone()) + (s.out_w.clone() * v.top + v.left);
            let first = let_(out, "first", first * v.channels + column.clone() + g.first);
            let to = let_(out, "to", self.y.expr().ptr_add(first.clone() * v.element()));
            let other = v.plus.map(|p| (p, self.other.expr().ptr_add(first)));
            steps(out, &c(0), &lines, 1, &mut |out, y| {
                let from = let_(out, "from", from.clone().ptr_add(y.clone() * (self.stride.clone() * v.stride_h)));
                let line = let_(out, "line", y * (s.out_w.clone() * v.channels));
                let to = let_(out, "to", to.clone().ptr_add(line.clone() * v.element()));
                let other = other.clone().map(|(p, ptr)| (p, ptr.ptr_add(line)));
                self.in_tiles(out, &cut, &mut |out, x, size| {
                    let from = let_(out, "from", from.clone().ptr_add(x.clone() * (v.stride_w * v.in_c)));
                    let pixel = let_(out, "pixel", x * v.channels);
                    let to = let_(out, "to", to.clone().ptr_add(pixel.clone() * v.element()));
                    let other = other.clone().map(|(p, ptr)| (p, let_(out, "other", ptr.ptr_add(pixel))));
                    let accs = self.begun(out, g, column, size);
                    match v.depthwise {
                        true if v.weaves() => {
                            let weights = woven.as_deref().unwrap_or(&[]);
                            let channel = column.clone() + g.first;
                            self.woven_taps(out, p, g, &from, &channel, weights, &accs);
                        }
                        true => {
                            let channel = column.clone() + g.first;
                            self.taps(out, &from, &channel, weights.as_deref(), &accs, ints);
                        }
                        false => self.dots(out, p, g, &from, column, &accs, ints),
                    }
                    self.finish(out, p, g, column, &accs, other.as_ref(), &to);
                });
            });
        });
    }

    /// Four inputs at a time.
    #[allow(clippy::too_many_arguments)]
    fn dots(
        &self,
        out: &mut Body,
        p: &Panel,
        g: &Group,
        from: &PrimExpr,
        column: &PrimExpr,
        accs: &[Vec<Var>],
        ints: DType,
    ) {
        let v = self.conv;
        let vectors = g.at.len();
        let quads = v.k_w * v.in_c / 4;
        let panel = let_(out, "panel", self.w.expr().ptr_add(column.clone() * v.depth()));
        let unroll = [4, 3, 2].into_iter().find(|u| quads % u == 0).unwrap_or(1);
        loop_(out, 0, v.k_h, 1, &mut |out, ky| {
            let line = let_(out, "line", from.clone().ptr_add(ky.clone() * self.stride.clone()));
            let ws = let_(out, "ws", panel.clone().ptr_add(ky * (quads * p.width() * 4)));
            loop_(out, 0, quads, unroll, &mut |out, k| {
                let at = let_(out, "at", k.clone() * p.width());
                for u in 0..unroll {
                    // Where registers are few, the last weights are read by the multiplications.
                    let all = self.form.dot4 && accs.len() * vectors > 27;
                    let kept = if all { vectors - 1 } else { vectors };
                    let weights = |j: usize| load(&ws, at.clone() + (u * p.width() + g.at[j]), ints);
                    let w: Vec<PrimExpr> =
                        (0..vectors).map(|j| if j < kept { let_(out, "w", weights(j)) } else { weights(j) }).collect();
                    let pixel = |r: usize| {
                        let ptr = line.clone().ptr_add(r as i64 * v.stride_w * v.in_c);
                        load(&ptr, k.clone() + u, DType::I32).broadcast(ints.lanes)
                    };
                    if !self.form.dot4 {
                        let w: Vec<_> =
                            w.iter().map(|w| [0, 1].map(|odd| let_(out, "w", words(w, odd, true)))).collect();
                        for (r, row) in accs.iter().enumerate() {
                            let a = let_(out, "a", pixel(r));
                            for odd in [0, 1] {
                                let a = let_(out, "words", words(&a, odd, false));
                                for (acc, w) in row.iter().zip(&w) {
                                    let w = w[odd as usize].clone();
                                    let value = PrimExpr::call(Intrin::DotWords, [acc.expr(), a.clone(), w]);
                                    out.push(FlatStmt::Assign { var: acc.clone(), value });
                                }
                            }
                        }
                        continue;
                    }
                    for (r, row) in accs.iter().enumerate() {
                        let a = let_(out, "a", pixel(r));
                        for (acc, w) in row.iter().zip(&w) {
                            let value = PrimExpr::call(Intrin::Dot4, [acc.expr(), a.clone(), w.clone()]);
                            out.push(FlatStmt::Assign { var: acc.clone(), value });
                        }
                    }
                }
            });
        });
    }

    /// One input of each channel at a time; pixels that several windows share are read once per kernel row.
    fn taps(
        &self,
        out: &mut Body,
        from: &PrimExpr,
        column: &PrimExpr,
        weights: Option<&[PrimExpr]>,
        accs: &[Vec<Var>],
        ints: DType,
    ) {
        let v = self.conv;
        let bytes = DType::U8.with_lanes(ints.lanes);
        let last = (accs.len() as i64 - 1) * v.stride_w + v.k_w;
        let lines = self.kernel_rows(out, from);
        for ky in 0..v.k_h {
            let line = lines.as_ref().map(|l| l[ky as usize].clone());
            for x in 0..last {
                let users = |(r, _): &(usize, &Vec<Var>)| (0..v.k_w).contains(&(x - *r as i64 * v.stride_w));
                if !accs.iter().enumerate().any(|u| users(&u)) {
                    continue;
                }
                let ptr = match &line {
                    Some(line) => line.clone().ptr_add(x * v.in_c),
                    None => from.clone().ptr_add((ky * v.in_w + x) * v.in_c),
                };
                let value = let_(out, "x", load(&ptr, column.clone(), bytes).cast(ints));
                for (r, row) in accs.iter().enumerate().filter(users) {
                    let tap = ky * v.k_w + x - r as i64 * v.stride_w;
                    let w = match weights {
                        Some(w) => w[tap as usize].clone(),
                        None => load(&self.w.expr(), column.clone() + tap * v.channels, ints),
                    };
                    let acc = &row[0];
                    let value = PrimExpr::binary(BinOp::Add, acc.expr(), value.clone() * w);
                    out.push(FlatStmt::Assign { var: acc.clone(), value });
                }
            }
        }
    }
}
