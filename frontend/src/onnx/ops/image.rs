//! Images: resizing, sampling at computed positions, regions, blocks of channels.

use super::movement::slice_axes;
use super::{one, op, OnnxOp};
use crate::onnx::builder::Arg;
use crate::onnx::node::{counted, ints, NodeCx};
use crate::onnx::value::{Tensor, Value};
use crate::onnx::Res;
use relax_ir::{AttrValue, Constant, DType, PrimExpr};

pub const OPS: &[OnnxOp] = &[
    op("AffineGrid", &[(20, affine_grid)]),
    op("CenterCropPad", &[(18, center_crop_pad)]),
    op("Col2Im", &[(18, col2im)]),
    op("DepthToSpace", &[(1, depth_to_space)]),
    op("GridSample", &[(16, grid_sample)]),
    op("Resize", &[(10, resize_v10), (11, resize)]),
    op("RoiAlign", &[(10, roi_align)]),
    op("MaxRoiPool", &[(1, max_roi_pool)]),
    op("SpaceToDepth", &[(1, space_to_depth)]),
    op("Upsample", &[(1, upsample)]),
];

/// Of one element, where a result of another size is made of repeated ones.
const MOST_REPEATS: f64 = 8.0;

fn text(s: &str) -> AttrValue {
    AttrValue::Str(s.to_string())
}

/// How `Resize` and `Upsample` sample.
struct Sampling {
    mode: String,
    coordinates: String,
    nearest: String,
    cubic_a: f64,
    exclude_outside: bool,
    antialias: bool,
    extrapolation: f64,
}

impl Sampling {
    fn attrs(&self) -> Vec<(&'static str, AttrValue)> {
        vec![
            ("mode", text(&self.mode)),
            ("coordinates", text(&self.coordinates)),
            ("nearest", text(&self.nearest)),
            ("cubic_a", AttrValue::Float(self.cubic_a)),
            ("exclude_outside", AttrValue::Bool(self.exclude_outside)),
            ("antialias", AttrValue::Bool(self.antialias)),
            ("extrapolation", AttrValue::Float(self.extrapolation)),
        ]
    }

    fn asymmetric(mode: &str) -> Sampling {
        Sampling {
            mode: if mode.contains("linear") { "linear".into() } else { mode.to_string() },
            coordinates: "asymmetric".into(),
            nearest: "floor".into(),
            cubic_a: -0.75,
            exclude_outside: false,
            antialias: false,
            extrapolation: 0.0,
        }
    }

    /// Whether a result of a whole number `n` of elements for each one has element `i // n` at `i`.
    fn repeats(&self) -> bool {
        let how = (self.coordinates.as_str(), self.nearest.as_str());
        let middle = ["half_pixel", "pytorch_half_pixel", "half_pixel_symmetric"].contains(&how.0);
        let around = ["round_prefer_floor", "round_prefer_ceil"].contains(&how.1);
        let from_start = ["asymmetric", "tf_half_pixel_for_nn"].contains(&how.0) && how.1 == "floor";
        self.mode == "nearest" && (middle && around || from_start)
    }

    fn read(cx: &NodeCx) -> Sampling {
        Sampling {
            mode: cx.str("mode", "nearest"),
            coordinates: cx.str("coordinate_transformation_mode", "half_pixel"),
            nearest: cx.str("nearest_mode", "round_prefer_floor"),
            cubic_a: cx.float("cubic_coeff_a", -0.75),
            exclude_outside: cx.flag("exclude_outside", false),
            antialias: cx.flag("antialias", false),
            extrapolation: cx.float("extrapolation_value", 0.0),
        }
    }
}

fn doubles(values: &[f64]) -> Tensor {
    let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    Tensor::constant(Constant::new(DType::F64, vec![values.len() as i64], bytes))
}

/// `d * scale`, rounded down, where that is a closed form.
fn scaled(d: &PrimExpr, scale: f64) -> Option<PrimExpr> {
    if let Some(d) = d.as_int() {
        return Some(PrimExpr::i64((d as f64 * scale).floor() as i64));
    }
    let inverse = 1.0 / scale;
    if scale >= 1.0 && scale.fract() == 0.0 {
        Some(d.clone() * scale as i64)
    } else if scale < 1.0 && inverse.fract() == 0.0 {
        Some(d.clone().floor_div(inverse as i64))
    } else {
        None
    }
}

fn upsample(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let how = Sampling::asymmetric(&cx.str("mode", "nearest"));
    let axes: Vec<usize> = (0..x.rank()).collect();
    let scales = match (cx.floats("scales"), cx.optional(1)?) {
        (Some(s), _) => floats(&s),
        (None, Some(t)) => t,
        (None, None) => {
            let (h, w) = (cx.float("height_scale", 1.0), cx.float("width_scale", 1.0));
            floats(&[1.0, 1.0, h, w])
        }
    };
    one(by_scales(cx, &x, &axes, &how, &scales, None)?)
}

fn floats(values: &[f64]) -> Tensor {
    let bytes = values.iter().flat_map(|v| (*v as f32).to_le_bytes()).collect();
    Tensor::constant(Constant::new(DType::F32, vec![values.len() as i64], bytes))
}

fn resize_v10(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, scales) = (cx.input(0)?, cx.input(1)?);
    let how = Sampling::asymmetric(&cx.str("mode", "nearest"));
    let axes: Vec<usize> = (0..x.rank()).collect();
    one(by_scales(cx, &x, &axes, &how, &scales, None)?)
}

fn resize(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let how = Sampling::read(cx);
    let axes = match cx.ints("axes") {
        Some(a) => cx.axes(&a, x.rank())?,
        None => (0..x.rank()).collect(),
    };
    let given = |t: &Tensor| !t.dims.first().is_some_and(|d| d.is_int(0));
    let roi = cx.optional(1)?.filter(|_| how.coordinates == "tf_crop_and_resize").filter(given);
    let scales = cx.optional(2)?.filter(given);
    let sizes = cx.optional(3)?.filter(given);
    match (scales, sizes) {
        (Some(s), _) => one(by_scales(cx, &x, &axes, &how, &s, roi)?),
        (None, Some(s)) => one(by_sizes(cx, &x, &axes, &how, &s, roi)?),
        (None, None) => Err(cx.error("scales and sizes are missing")),
    }
}

/// Axis by axis, by literal scales.
fn by_scales(
    cx: &mut NodeCx,
    x: &Tensor,
    axes: &[usize],
    how: &Sampling,
    scales: &Tensor,
    roi: Option<Tensor>,
) -> Res<Tensor> {
    let region = match &roi {
        None => Some(vec![]),
        Some(t) => t.as_floats(),
    };
    let known = scales.as_floats().zip(region).filter(|(s, _)| s.len() == axes.len());
    if let Some((s, region)) = known {
        let sizes: Option<Vec<PrimExpr>> = axes.iter().zip(&s).map(|(a, s)| scaled(&x.dims[*a], *s)).collect();
        if let Some(sizes) = sizes {
            let params: Vec<Tensor> =
                s.iter().enumerate().map(|(i, s)| region_of(*s, &region, i, axes.len())).collect();
            return step_by_step(cx, x, axes, how, &params, &sizes);
        }
    }
    let wide = cx.cast(scales, DType::F64)?;
    let dims = dims_of(cx, x, axes)?;
    let product = cx.op("multiply", &[&wide, &dims])?;
    at_once(cx, x, axes, how, &wide, &product, roi)
}

/// Scale, start and end of axis `i` of `n`.
fn region_of(scale: f64, region: &[f64], i: usize, n: usize) -> Tensor {
    let at = |k: usize, default: f64| region.get(k).copied().unwrap_or(default);
    doubles(&[scale, at(i, 0.0), at(i + n, 1.0)])
}

fn step_by_step(
    cx: &mut NodeCx,
    x: &Tensor,
    axes: &[usize],
    how: &Sampling,
    params: &[Tensor],
    sizes: &[PrimExpr],
) -> Res<Tensor> {
    let mut y = x.clone();
    let crop = how.coordinates == "tf_crop_and_resize";
    // Interpolation rounds once.
    let wide = if how.mode != "nearest" && y.dtype.is_float() && y.dtype.bits < 32 { DType::F32 } else { y.dtype };
    y = cx.cast(&y, wide)?;
    // Axes that shrink first, then the innermost: outer ones are made of whole rows.
    let mut order: Vec<usize> = (0..axes.len()).collect();
    if how.mode == "nearest" || y.dtype.is_float() {
        let grows = |i: usize| params[i].as_floats().is_some_and(|p| p[0] > 1.0);
        order.sort_by_key(|&i| if grows(i) { (1, x.rank() - axes[i]) } else { (0, axes[i]) });
    }
    for i in order {
        let axis = &axes[i];
        let same = y.dims[*axis] == sizes[i];
        let unit = params[i].as_floats().is_some_and(|p| p[0] == 1.0);
        if same && unit && !crop {
            continue;
        }
        let size = cx.simplify(sizes[i].clone());
        if let Some(times) = whole_factor(cx, &y.dims[*axis], &size, &params[i]).filter(|_| how.repeats()) {
            let attrs = [("repeats", AttrValue::Int(times)), ("axis", AttrValue::Int(*axis as i64))];
            y = cx.call("repeat", &[(&y).into()], &attrs)?;
            continue;
        }
        let mut attrs = how.attrs();
        attrs.push(("axis", AttrValue::Int(*axis as i64)));
        y = cx.call("onnx.resize_axis", &[(&y).into(), (&params[i]).into(), Arg::prim(size)], &attrs)?;
    }
    cx.cast(&y, x.dtype)
}

/// How many elements of the result there are for each of `d`, where that is a whole number and the scale is, too.
fn whole_factor(cx: &mut NodeCx, d: &PrimExpr, size: &PrimExpr, params: &Tensor) -> Option<i64> {
    let times = match params.as_floats() {
        Some(p) => Some(p[0]).filter(|s| s.fract() == 0.0 && (2.0..=MOST_REPEATS).contains(s))? as i64,
        // The scale is the quotient of both.
        None => (2..=MOST_REPEATS as i64).find(|n| cx.simplify(d.clone() * *n) == *size)?,
    };
    (cx.simplify(d.clone() * times) == *size).then_some(times)
}

/// The dims at `axes` as a float64 vector.
fn dims_of(cx: &mut NodeCx, x: &Tensor, axes: &[usize]) -> Res<Tensor> {
    let dims = Tensor::shape(axes.iter().map(|a| x.dims[*a].clone()).collect());
    cx.cast(&dims, DType::F64)
}

/// All axes in one kernel, by scales that are only known at run time; `target` holds the sizes before rounding down.
fn at_once(
    cx: &mut NodeCx,
    x: &Tensor,
    axes: &[usize],
    how: &Sampling,
    scales: &Tensor,
    target: &Tensor,
    roi: Option<Tensor>,
) -> Res<Tensor> {
    let n = axes.len();
    let target = cx.op("floor", &[target])?;
    let target = cx.cast(&target, DType::I64)?;
    let sizes = cx.read(&target)?;
    let mut dims = x.dims.clone();
    for (a, s) in axes.iter().zip(sizes) {
        dims[*a] = s;
    }
    let column = [PrimExpr::i64(n as i64), PrimExpr::i64(1)];
    let (from, to) = match roi {
        Some(r) => {
            let r = cx.cast(&r, DType::F64)?;
            let half = PrimExpr::i64(n as i64);
            let from = slice_axes(cx, &r, &[0], &[PrimExpr::i64(0)], std::slice::from_ref(&half), &[1])?;
            (from, slice_axes(cx, &r, &[0], &[half], &[PrimExpr::i64(2 * n as i64)], &[1])?)
        }
        None => (doubles(&vec![0.0; n]), doubles(&vec![1.0; n])),
    };
    let mut columns = vec![];
    for t in [scales, &from, &to] {
        columns.push(cx.reshape(t, &column)?);
    }
    let params = cx.call("concat", &[columns.as_slice().into()], &[("axis", AttrValue::Int(1))])?;
    let params = cx.reshape(&params, &[PrimExpr::i64(3 * n as i64)])?;
    let mut attrs = how.attrs();
    attrs.push(("axes", ints(axes.iter().map(|a| *a as i64))));
    cx.call("onnx.resize", &[x.into(), (&params).into(), Arg::shape(&dims)], &attrs)
}

fn by_sizes(
    cx: &mut NodeCx,
    x: &Tensor,
    axes: &[usize],
    how: &Sampling,
    sizes: &Tensor,
    roi: Option<Tensor>,
) -> Res<Tensor> {
    let policy = cx.str("keep_aspect_ratio_policy", "stretch");
    let literal: Option<Vec<f64>> = axes.iter().map(|a| x.dims[*a].as_int().map(|d| d as f64)).collect();
    let region = match &roi {
        None => Some(vec![]),
        Some(t) => t.as_floats(),
    };
    if let (Some(s), Some(d), Some(region)) = (sizes.as_floats(), &literal, &region) {
        if s.len() != axes.len() {
            return Err(cx.error(format!("{} for {}", counted(s.len(), "size"), counted(axes.len(), "axis"))));
        }
        let mut scales: Vec<f64> = s.iter().zip(d).map(|(s, d)| s / d).collect();
        let mut sizes: Vec<i64> = s.iter().map(|s| *s as i64).collect();
        if policy != "stretch" {
            let pick = if policy == "not_larger" { f64::min } else { f64::max };
            let scale = scales.iter().copied().reduce(pick).unwrap_or(1.0);
            scales = vec![scale; scales.len()];
            sizes = d.iter().map(|d| (scale * d + 0.5) as i64).collect();
        }
        let params: Vec<Tensor> =
            scales.iter().enumerate().map(|(i, s)| region_of(*s, region, i, axes.len())).collect();
        let sizes: Vec<PrimExpr> = sizes.into_iter().map(PrimExpr::i64).collect();
        return step_by_step(cx, x, axes, how, &params, &sizes);
    }
    if policy == "stretch" && roi.is_none() {
        if let Some(sizes) = sizes.elements().filter(|s| s.len() == axes.len()) {
            let mut params = vec![];
            let sizes: Vec<PrimExpr> = sizes.into_iter().map(|s| cx.simplify(s.cast(DType::I64))).collect();
            for (a, size) in axes.iter().zip(&sizes) {
                let dim = cx.simplify(x.dims[*a].clone().cast(DType::I64));
                let scale = match (size.as_int(), dim.as_int()) {
                    (Some(s), Some(d)) => Some(s as f64 / d as f64),
                    _ => (*size == dim).then_some(1.0),
                };
                if let Some(scale) = scale {
                    params.push(region_of(scale, &[], 0, 1));
                    continue;
                }
                let pair = [size.clone(), dim].map(|e| Tensor::shape(vec![e]));
                let (s, d) = (cx.cast(&pair[0], DType::F64)?, cx.cast(&pair[1], DType::F64)?);
                let scale = cx.op("divide", &[&s, &d])?;
                let all = [scale, doubles(&[0.0]), doubles(&[1.0])];
                params.push(cx.call("concat", &[all.as_slice().into()], &[("axis", AttrValue::Int(0))])?);
            }
            return step_by_step(cx, x, axes, how, &params, &sizes);
        }
    }
    let dims = dims_of(cx, x, axes)?;
    let wide = cx.cast(sizes, DType::F64)?;
    let mut scales = cx.op("divide", &[&wide, &dims])?;
    let mut target = wide;
    if policy != "stretch" {
        let relax = if policy == "not_larger" { "min" } else { "max" };
        let scale = super::reduce::reduce_axes(cx, &scales, relax, &[0], true)?;
        scales = cx.broadcast_to(&scale, &[PrimExpr::i64(axes.len() as i64)])?;
        let half = Tensor::scalar(DType::F64, 0.5);
        target = cx.op("multiply", &[&scales, &dims])?;
        target = cx.op("add", &[&target, &half])?;
    }
    at_once(cx, x, axes, how, &scales, &target, roi)
}

fn grid_sample(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, grid) = (cx.input(0)?, cx.input(1)?);
    let rank = x.rank();
    if !(4..=5).contains(&rank) || grid.rank() != rank {
        return Err(cx.unsupported(format!("sampling of {rank} dims")));
    }
    if let Some(n) = grid.dims[rank - 1].as_int().filter(|n| *n != rank as i64 - 2) {
        return Err(cx.error(format!("the grid has {n} coordinates, {} are needed", rank - 2)));
    }
    let method = match cx.str("mode", "linear").as_str() {
        "linear" | "bilinear" => "bilinear",
        "cubic" | "bicubic" => "bicubic",
        m => m,
    }
    .to_string();
    let mut perm = vec![0, rank - 1];
    perm.extend(1..rank - 1);
    let grid = cx.transpose(&grid, &perm)?;
    let padding = cx.str("padding_mode", "zeros");
    let corners = cx.flag("align_corners", false);
    one(cx.call(
        "image.grid_sample",
        &[(&x).into(), (&grid).into()],
        &[
            ("method", text(&method)),
            ("layout", text(if rank == 4 { "NCHW" } else { "NCDHW" })),
            ("padding_mode", text(&padding)),
            ("align_corners", AttrValue::Bool(corners)),
        ],
    )?)
}

fn affine_grid(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (theta, size) = (cx.input(0)?, cx.input(1)?);
    let size = cx.read(&size)?;
    if size.len() < 3 {
        return Err(cx.error("size must have at least three entries"));
    }
    let corners = cx.flag("align_corners", false);
    one(cx.call(
        "onnx.affine_grid",
        &[(&theta).into(), Arg::shape(&size[2..])],
        &[("align_corners", AttrValue::Bool(corners))],
    )?)
}

/// Cuts or pads the middle: half the difference, rounded down, comes first.
fn center_crop_pad(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, shape) = (cx.input(0)?, cx.input(1)?);
    let axes = match cx.ints("axes") {
        Some(a) => cx.axes(&a, x.rank())?,
        None => (0..x.rank()).collect(),
    };
    let shape = cx.read(&shape)?;
    let mut begin = vec![PrimExpr::i64(0); x.rank()];
    let mut dims = x.dims.clone();
    for (a, s) in axes.into_iter().zip(shape) {
        let more = s.clone() - x.dims[a].clone();
        // Towards zero: of an odd difference the smaller half is at the front.
        let half = more.clone().max(0).floor_div(2) - (PrimExpr::i64(0) - more).max(0).floor_div(2);
        begin[a] = cx.simplify(half);
        dims[a] = s;
    }
    one(cx.call("onnx.pad", &[(&x).into(), Arg::prims(&begin), Arg::shape(&dims)], &[])?)
}

fn col2im(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, image, block) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let (image, block) = (cx.read(&image)?, cx.read(&block)?);
    let n = image.len();
    let list = |name: &str, v: i64, n: usize| cx.ints(name).unwrap_or_else(|| vec![v; n]);
    let (strides, pads, dilations) = (list("strides", 1, n), list("pads", 0, 2 * n), list("dilations", 1, n));
    one(cx.call(
        "onnx.col2im",
        &[(&x).into(), Arg::shape(&image), Arg::shape(&block)],
        &[("strides", ints(strides)), ("padding", ints(pads)), ("dilation", ints(dilations))],
    )?)
}

/// `batch_indices` and `rois` as rows of five.
fn regions(cx: &mut NodeCx, rois: &Tensor, batch: &Tensor) -> Res<Tensor> {
    let batch = cx.cast(batch, rois.dtype)?;
    let batch = cx.reshape(&batch, &[rois.dims[0].clone(), PrimExpr::i64(1)])?;
    cx.call("concat", &[[batch, rois.clone()].as_slice().into()], &[("axis", AttrValue::Int(1))])
}

fn roi_align(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, mut rois, batch) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let scale = cx.float("spatial_scale", 1.0);
    let default = if cx.version >= 16 { "half_pixel" } else { "output_half_pixel" };
    let aligned = cx.str("coordinate_transformation_mode", default) == "half_pixel";
    if aligned {
        let half = cx.like(&rois, 0.5 / scale);
        rois = cx.op("subtract", &[&rois, &half])?;
    }
    let rows = regions(cx, &rois, &batch)?;
    let size = vec![cx.int("output_height", 1), cx.int("output_width", 1)];
    let ratio = match cx.int("sampling_ratio", 0) {
        0 => -1,
        r => r,
    };
    let mode = if cx.str("mode", "avg") == "max" { "max_tap" } else { "avg" };
    one(cx.call(
        "vision.roi_align",
        &[(&x).into(), (&rows).into()],
        &[
            ("pooled_size", ints(size)),
            ("spatial_scale", AttrValue::Float(scale)),
            ("sample_ratio", AttrValue::Int(ratio)),
            ("aligned", AttrValue::Bool(aligned)),
            ("layout", text("NCHW")),
            ("mode", text(mode)),
        ],
    )?)
}

fn max_roi_pool(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let (x, rois) = (cx.input(0)?, cx.input(1)?);
    let size = cx.ints("pooled_shape");
    let size = cx.required("pooled_shape", size)?;
    let scale = cx.float("spatial_scale", 1.0);
    one(cx.call(
        "vision.roi_pool",
        &[(&x).into(), (&rois).into()],
        &[("pooled_size", ints(size)), ("spatial_scale", AttrValue::Float(scale)), ("layout", text("NCHW"))],
    )?)
}

fn image_dims(cx: &NodeCx, x: &Tensor) -> Res<i64> {
    if x.rank() != 4 {
        return Err(cx.error(format!("an image of 4 dims is needed, the input has {}", x.rank())));
    }
    let b = cx.int("blocksize", 0);
    if b < 1 {
        return Err(cx.error("blocksize must be positive"));
    }
    Ok(b)
}

fn depth_to_space(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let b = image_dims(cx, &x)?;
    let block = PrimExpr::i64(b);
    let [n, c, h, w] = [0, 1, 2, 3].map(|i| x.dims[i].clone());
    let c = cx.simplify(c.floor_div(b * b));
    let columns_first = cx.str("mode", "DCR") == "DCR";
    let (split, perm) = match columns_first {
        true => ([n.clone(), block.clone(), block.clone(), c.clone(), h.clone(), w.clone()], [0, 3, 4, 1, 5, 2]),
        false => ([n.clone(), c.clone(), block.clone(), block.clone(), h.clone(), w.clone()], [0, 1, 4, 2, 5, 3]),
    };
    let y = cx.reshape(&x, &split)?;
    let y = cx.transpose(&y, &perm)?;
    one(cx.reshape(&y, &[n, c, h * b, w * b])?)
}

fn space_to_depth(cx: &mut NodeCx) -> Res<Vec<Value>> {
    let x = cx.input(0)?;
    let b = image_dims(cx, &x)?;
    let block = PrimExpr::i64(b);
    let [n, c, h, w] = [0, 1, 2, 3].map(|i| x.dims[i].clone());
    let (h, w) = (cx.simplify(h.floor_div(b)), cx.simplify(w.floor_div(b)));
    let y = cx.reshape(&x, &[n.clone(), c.clone(), h.clone(), block.clone(), w.clone(), block])?;
    // By default the block's places come before the channels; with mode CRD after them.
    let perm = if cx.str("mode", "DCR") == "CRD" { [0, 1, 3, 5, 2, 4] } else { [0, 3, 5, 1, 2, 4] };
    let y = cx.transpose(&y, &perm)?;
    one(cx.reshape(&y, &[n, c * (b * b), h, w])?)
}
