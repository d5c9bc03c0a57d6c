//! Convolutions over one to three axes as convolutions over rows and columns: of one axis there is one row; over frames the
//! frames under a window lie behind one another as channels of one picture.

use super::open::reshape_to;
use super::slices::list;
use super::{dims_of, floats, reshape, Out, Pass, FEW_CHANNELS};
use crate::legalize::{call_tir, scalars};
use crate::schedule::window::{Kind, Plan, Window};
use relax_ir::attrs::Attrs;
use relax_ir::relax::{Binding, Call, Expr, RVar, StructInfo};
use relax_ir::tir::{KernelBuilder, PrimFunc};
use relax_ir::{Constant, DType, PrimExpr};

/// Operators that become windows.
pub(crate) const CONVOLUTIONS: &[&str] = &["nn.conv1d", "nn.conv2d", "nn.conv3d"];

/// Operators that become several of them.
pub(crate) const TRANSPOSED: &[&str] = &["nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose"];

/// Columns of windows of convolutions over one axis that have code of their own where they reach beyond the data; data of
/// larger ones gets its zeros.
const OWN_COLUMNS: i64 = 7;

/// Where windows make at most so many channels, vectors of pixels are better ones than vectors of channels.
const FEW_MADE: i64 = 8;

/// So many channels are vectors of channels in any case.
const MANY_MADE: i64 = 16;

/// Sums over so many channels pay for channels last.
const DEEP: i64 = 16;

/// Bytes that weights may grow by for zeros, if that is more than a sixteenth.
const GROWTH: i64 = 96 << 10;

/// Columns of windows of groups, which have code of their own each. Of larger windows neighbouring columns are stacked as
/// channels.
const GROUPED_COLUMNS: i64 = 16;

/// Frames under a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Frames {
    /// Of the data.
    taken: i64,
    made: i64,
    kernel: i64,
    stride: i64,
    dilation: i64,
    before: i64,
}

/// Neighbouring columns under a window in groups.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Columns {
    together: i64,
    dilation: i64,
    before: i64,
}

/// A convolution over rows and columns.
#[derive(Clone, Debug)]
pub(super) struct Plane {
    pub window: Window,
    /// Where pictures are stacked before.
    frames: Option<Frames>,
    /// Where columns are.
    pub columns: Option<Columns>,
}

/// Attributes of a convolution over one to three axes, transposed or not, of data with channels second.
pub(super) struct Sides {
    pub stride: Vec<i64>,
    pub before: Vec<i64>,
    pub dilation: Vec<i64>,
    pub groups: i64,
}

impl Sides {
    /// `kernel`: the layout of the weights, but for its spatial axes.
    pub fn read(c: &Call, rank: usize, kernel: &str) -> Option<Sides> {
        let axes = ["", "W", "HW", "DHW"][rank];
        let text = |name: &str| c.attrs.str(name).unwrap_or("");
        let data = format!("NC{axes}");
        let plain = text("data_layout") == data && text("kernel_layout") == format!("{kernel}{axes}");
        if !plain || !["", data.as_str()].contains(&text("out_layout")) {
            return None;
        }
        let list = |name: &str| {
            let v = c.attrs.ints(name)?;
            match v.len() {
                1 => Some(vec![v[0]; rank]),
                n if n == rank || n == 2 * rank && name == "padding" => Some(v[..rank].to_vec()),
                _ => None,
            }
        };
        let before = list("padding").filter(|p| p.iter().all(|p| *p >= 0))?;
        Some(Sides { stride: list("strides")?, before, dilation: list("dilation")?, groups: c.attrs.int("groups")? })
    }
}

/// The last two of one to three numbers, one row where there is one.
fn pair(v: &[i64], single: i64) -> [i64; 2] {
    match *v {
        [w] => [single, w],
        [.., h, w] => [h, w],
        [] => [single, single],
    }
}

/// Whether all data of a picture and all taps lie along this axis of rows and columns.
fn is_line(w: &Window, along: usize) -> bool {
    w.size[1 - along] == 1 && w.kernel[1 - along] == 1
}

/// Whether windows over one row have so many columns that its data gets zeros at its ends, where few channels of it do not
/// ask for each column either.
pub(super) fn is_long(w: &Window) -> bool {
    is_line(w, 1) && w.kernel[1] > OWN_COLUMNS
}

impl Pass {
    /// A convolution of constant weights: what its NHWC form is, and the weights. It may make more channels than `dims` has;
    /// see [`Pass::kept`].
    pub(super) fn plane(&self, var: &RVar, c: &Call, data: &[i64], dims: &[i64]) -> Option<(Plane, Constant)> {
        let weight = self.constant(c.args.get(1)?).filter(|w| w.dtype == DType::F32)?;
        let weight = self.rounded(weight, c);
        let mut plane = self.plane_of(var, c, data, dims, &weight.shape)?;
        plane.window.half = c.args[1].as_var().and_then(|v| self.halves.get(v)).copied();
        Some((plane, weight))
    }

    /// Weights of a convolution with zeros for channels that it does not make, where kernels of that many are faster: products
    /// take four at a time, sums over windows whole vectors, and those that can be transformed pay even for few.
    fn rounded(&self, weight: Constant, c: &Call) -> Constant {
        let &[made, taken, ref window @ ..] = weight.shape.as_slice() else { return weight };
        let once = |name: &str| c.attrs.ints(name).is_some_and(|n| n.iter().all(|n| *n == 1));
        let whole = taken % self.lanes == 0 && once("strides") && once("dilation") && !self.strict;
        let transformed = window == [3, 3] && whole;
        // Of few channels taken vectors of pixels are better for longer.
        let (unit, least) = match window.iter().all(|n| *n == 1) {
            true => (4, if taken < DEEP { MANY_MADE } else { 2 }),
            false if transformed => (self.lanes, 3),
            false => (self.lanes, if taken <= FEW_CHANNELS { MANY_MADE } else { FEW_MADE + 1 }),
        };
        let few = transformed && made < self.lanes;
        if made < least || made % 4 == 0 && !few || c.attrs.int("groups") != Some(1) || !self.grows {
            return weight;
        }
        let up = |unit: i64| (made + unit - 1) / unit * unit;
        let each = weight.bytes().len() as i64 / made;
        let small = |all: i64| (all - made) * each <= GROWTH || (all - made) * 16 <= made;
        let Some(all) = [unit, 4].map(up).into_iter().find(|all| small(*all)) else { return weight };
        let mut bytes = weight.bytes().to_vec();
        bytes.resize((each * all) as usize, 0);
        let shape = [&[all], &weight.shape[1..]].concat();
        Constant::new(weight.dtype, shape, bytes)
    }

    /// Of what the kernel of `w` makes the channels that the convolution has.
    pub(super) fn kept(
        &mut self,
        b: &Binding,
        w: &Window,
        channels: &PrimExpr,
        made: RVar,
        out: &mut Out,
    ) -> Option<RVar> {
        if channels.is_int(w.made) {
            return Some(made);
        }
        let bounds = [PrimExpr::i64(3), PrimExpr::i64(0), channels.clone()].map(|v| list([v], out.span));
        let args = [vec![made.expr()], bounds.to_vec()].concat();
        out.bind(b.var.name(), super::call("strided_slice", args, Attrs::default(), out.span)?)
    }

    /// The same of weights of these dims.
    pub(super) fn plane_of(&self, var: &RVar, c: &Call, data: &[i64], dims: &[i64], weight: &[i64]) -> Option<Plane> {
        let rank = weight.len().checked_sub(2).filter(|r| (1..=3).contains(r))?;
        let sides = Sides::read(c, rank, "OI")?;
        let (made, reach) = (weight[0], weight[1]);
        let (kind, groups) = match sides.groups {
            1 => (Kind::Conv, 1),
            g if g == data[1] && reach == 1 && made == g => (Kind::Depthwise, 1),
            g => (Kind::Conv, g),
        };
        let single = made == 1 && reach >= DEEP && weight[2..].iter().all(|k| *k == 1);
        if made % 4 != 0 && !single || dims.contains(&0) || data.contains(&0) || data.len() != rank + 2 {
            return None;
        }
        let mut frames = None;
        let (mut batch, mut taken) = (data[0], data[1]);
        if rank == 3 {
            let f = Frames {
                taken: data[2],
                made: dims[2],
                kernel: weight[2],
                stride: sides.stride[0],
                dilation: sides.dilation[0],
                before: sides.before[0],
            };
            batch *= f.made;
            if f.kernel > 1 || f.stride > 1 || f.made != f.taken {
                taken *= f.kernel;
                // Stacked, the channels of a group lie apart.
                if f.kernel > 1 && sides.groups != 1 {
                    return None;
                }
                frames = Some(f);
            }
        }
        let mut w = Window {
            kind,
            batch,
            size: pair(&data[2..], 1),
            taken,
            pitch: 0,
            out: pair(&dims[2..], 1),
            made,
            kernel: pair(&weight[2..], 1),
            stride: pair(&sides.stride, 1),
            dilation: pair(&sides.dilation, 1),
            groups,
            before: pair(&sides.before, 0),
            last: true,
            panel: self.lanes,
            open: false,
            half: None,
            margin: [0, 0],
            plan: Plan { epilogue: self.epilogues.get(var).copied().unwrap_or(0), ..Plan::default() },
        };
        let mut columns = None;
        if groups > 1 && rank == 1 && w.kernel[1] > GROUPED_COLUMNS {
            let all = w.kernel[1];
            let together = (2..all).find(|n| all % n == 0 && all / n <= GROUPED_COLUMNS)?;
            columns = Some(Columns { together, dilation: w.dilation[1], before: w.before[1] });
            w.taken *= together;
            w.kernel[1] = all / together;
            w.dilation[1] *= together;
            w.before[1] = 0;
            w.size[1] = (w.out[1] - 1) * w.stride[1] + (w.kernel[1] - 1) * w.dilation[1] + 1;
        }
        let taken = groups == 1 || !w.panels(self.lanes).is_empty();
        taken.then_some(Plane { window: w, frames, columns })
    }

    /// The data of a plane as its kernel reads it: NHWC, stacked, and with its own zeros where windows have many columns.
    pub(super) fn data_of(&mut self, b: &Binding, p: &mut Plane, x: &Expr, out: &mut Out) -> Option<Expr> {
        let w = &mut p.window;
        if !w.last {
            if self.dims(x, out)?.len() == 4 {
                return Some(x.clone());
            }
            let pictures = reshape(x.clone(), &[w.batch, w.taken, w.size[0], w.size[1]], out.span)?;
            return Some(out.bind("data", pictures)?.expr());
        }
        let last = self.as_last(x, out)?;
        if let Some(f) = p.frames {
            return Some(self.stacked(b, f, &last, w, out)?.expr());
        }
        if let Some(c) = p.columns {
            return Some(self.beside(b, c, &last, w, &PrimExpr::i64(w.out[1]), out)?.expr());
        }
        // Pictures of one column lie down.
        for along in [1, 0].into_iter().filter(|i| is_line(w, *i) && w.kernel[*i] > OWN_COLUMNS) {
            let reach = (w.out[along] - 1) * w.stride[along] + (w.kernel[along] - 1) * w.dilation[along];
            let (before, after) = (w.before[along], (reach - w.before[along] + 1 - w.size[along]).max(0));
            if before > 0 || after > 0 {
                let mut widths = [0; 8];
                widths[2 + 2 * along..4 + 2 * along].copy_from_slice(&[before, after]);
                let mut attrs = Attrs::default();
                attrs.set("pad_width", super::ints(&widths));
                let padded = out.bind("padded", super::call("nn.pad", vec![last.expr()], attrs, out.span)?)?;
                w.size[along] += before + after;
                w.before[along] = 0;
                return Some(padded.expr());
            }
        }
        Some(last.expr())
    }

    /// The frames under each window as channels of one picture.
    fn stacked(&mut self, b: &Binding, f: Frames, x: &RVar, w: &Window, out: &mut Out) -> Option<RVar> {
        let from = dims_of(out.typed.info_of(&x.expr())?.as_tensor()?)?;
        let &[images, h, cols, channels] = from.as_slice() else { return None };
        let int = PrimExpr::i64;
        let mut k = KernelBuilder::new("stack_frames");
        let data = k.input("data", &from.iter().map(|d| int(*d)).collect::<Vec<_>>(), DType::F32);
        let shape = [w.batch, h, cols, f.kernel, channels];
        let y = k.compute("stack_frames", &shape.map(int), DType::F32, |s| {
            let frame = s[0].clone().floor_mod(f.made) * f.stride + s[3].clone() * f.dilation - f.before;
            let image = s[0].clone().floor_div(f.made) * f.taken + frame.clone();
            let inside = frame.clone().ge(0).and(frame.lt(f.taken));
            let value = data.at(vec![image, s[1].clone(), s[2].clone(), s[4].clone()]);
            inside.if_then_else(value, PrimExpr::zero(DType::F32))
        });
        debug_assert_eq!(images, w.batch / f.made * f.taken);
        self.arranged(b, k.finish(&[y]), x, [w.batch, h, cols, f.kernel * channels].map(int), out)
    }

    /// Neighbouring columns under each of `made` windows of a row as channels of their group.
    pub(super) fn beside(
        &mut self,
        b: &Binding,
        c: Columns,
        x: &RVar,
        w: &Window,
        made: &PrimExpr,
        out: &mut Out,
    ) -> Option<RVar> {
        let from = self.shape(&x.expr(), out)?;
        let [images, _, taken, _] = from.as_slice() else { return None };
        let int = PrimExpr::i64;
        let mut k = KernelBuilder::new("stack_columns");
        let data = k.input("data", &from, DType::F32);
        let reach = w.reach() / c.together;
        let columns = (made.clone() - 1) * w.stride[1] + ((w.kernel[1] - 1) * w.dilation[1] + 1);
        let shape = [images.clone(), columns.clone(), int(w.groups), int(c.together), int(reach)];
        let y = k.compute("stack_columns", &shape, DType::F32, |s| {
            let column = s[1].clone() + s[3].clone() * c.dilation - c.before;
            let inside = column.clone().ge(0).and(column.clone().lt(taken.clone()));
            let channel = s[2].clone() * reach + s[4].clone();
            let value = data.at(vec![s[0].clone(), int(0), column, channel]);
            inside.if_then_else(value, PrimExpr::zero(DType::F32))
        });
        self.arranged(b, k.finish(&[y]), x, [images.clone(), int(1), columns, int(w.taken)], out)
    }

    /// The result of a kernel over `x`, with other dims.
    fn arranged(
        &mut self,
        b: &Binding,
        mut prim: PrimFunc,
        x: &RVar,
        dims: [PrimExpr; 4],
        out: &mut Out,
    ) -> Option<RVar> {
        prim.name = self.names.fresh(&prim.name);
        prim.span = out.span;
        let info = StructInfo::tensor(prim.params.iter().rev().find_map(|p| p.buffer())?.shape.clone(), DType::F32);
        let args = [vec![x.expr()], scalars(&prim, b.expr())].concat();
        let value = call_tir(&prim.name, args, vec![info.clone()], b.expr()).ok()?;
        self.new.push(prim);
        let apart = out.bind_as("stacked", value, info);
        out.bind("stacked", reshape_to(apart.expr(), dims.to_vec(), out)?)
    }
}

impl Plane {
    /// The weights as the window's own: `[made, taken, rows, columns]`.
    pub(super) fn weights(&self, weight: &Constant) -> Vec<f32> {
        let values = floats(weight);
        if let Some(c) = self.columns {
            let (all, reach) = (self.window.kernel[1] * c.together, weight.shape[1]);
            let mut out = Vec::with_capacity(values.len());
            for o in 0..weight.shape[0] {
                for own in 0..c.together * reach {
                    let row = (o * reach + own % reach) * all + own / reach;
                    out.extend((0..self.window.kernel[1]).map(|t| values[(row + t * c.together) as usize]));
                }
            }
            return out;
        }
        let Some(f) = self.frames.filter(|f| f.kernel > 1) else { return values };
        let area = (self.window.kernel[0] * self.window.kernel[1]) as usize;
        let (taps, reach) = (f.kernel as usize, weight.shape[1] as usize);
        let mut out = Vec::with_capacity(values.len());
        for o in 0..weight.shape[0] as usize {
            for t in 0..taps {
                for i in 0..reach {
                    let at = ((o * reach + i) * taps + t) * area;
                    out.extend_from_slice(&values[at..at + area]);
                }
            }
        }
        out
    }
}
