//! Single operators at every level of processors: their kernels give what those of the baseline give, which are made by
//! another code generator, bit for bit where nothing is summed in another order.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

#[expect(dead_code, reason = "no weights are given")]
mod command;

use command::{path, relax_aot, tensor};
use relax_aot::loader::Library;
use relax_ir::{Constant, DType};
use std::path::Path;

struct Case {
    /// The rule that it holds us to.
    rule: &'static str,
    /// Parameters as in the model's text, and the dims of the inputs.
    params: &'static str,
    inputs: fn() -> Vec<Constant>,
    /// From the parameters to `y`.
    body: &'static str,
    /// How far results may be from the baseline's, relatively; 0 for the same bits.
    tolerance: f64,
}

/// Numbers that are rounded, cut off and compared in every way: ties of float16 and bfloat16, their least and largest
/// numbers and those beyond, infinities and NaN, in vectors of every width and single elements.
fn special(shape: &[i64]) -> Constant {
    numbers(shape, &[f32::NAN, f32::INFINITY, f32::from_bits(0x7f80_0001), f32::from_bits(0xffc1_2345)])
}

/// The same without NaN.
fn ordered(shape: &[i64]) -> Constant {
    numbers(shape, &[f32::INFINITY])
}

fn numbers(shape: &[i64], odd: &[f32]) -> Constant {
    let halves =
        [1.0, 1.000_488_3, 1.001_464_8, 2049.0, 2051.0, 65504.0, 65519.0, 65520.0, 5.96e-8, 2.98e-8, 2.99e-8, 6.1e-5];
    let brains = [1.003_906_3, 1.011_718_8, 3.39e38, f32::MAX, 1e-40, 9.2e-41, f32::MIN_POSITIVE];
    let bytes = [0.5, 1.5, 2.5, 126.5, 127.5, 128.0, 254.5, 255.5, 256.0, 1e10, 0.0, 3e9];
    let all: Vec<f32> = [&halves[..], &brains, &bytes, odd].concat();
    let n = shape.iter().product::<i64>() as usize;
    let value = |i: usize| if (i / all.len()).is_multiple_of(2) { all[i % all.len()] } else { -all[i % all.len()] };
    Constant::new(DType::F32, shape.to_vec(), (0..n).flat_map(|i| value(i).to_le_bytes()).collect())
}

fn truths(shape: &[i64]) -> Constant {
    let n = shape.iter().product::<i64>();
    Constant::new(DType::BOOL, shape.to_vec(), (0..n).map(|i| (i * i % 7 < 3) as u8).collect())
}

/// Of sequences of at most nine steps.
fn lengths() -> Constant {
    Constant::new(DType::I32, vec![5], [9i32, 1, 5, 0, 8].iter().flat_map(|n| n.to_le_bytes()).collect())
}

/// Small whole numbers, many of them equal.
fn ties(shape: &[i64]) -> Constant {
    let n = shape.iter().product::<i64>();
    let value = |i: i64| ((i * 37 + 11) % 101 % 7) as f32;
    Constant::new(DType::F32, shape.to_vec(), (0..n).flat_map(|i| value(i).to_le_bytes()).collect())
}

/// Integers of so many bytes: small ones in whole rows, then those beside powers of two, the lowest and the highest one.
fn whole(shape: &[i64], bytes: usize, at: fn(usize) -> usize) -> Constant {
    let small = [0, 1, -1, 2, -2, 3, -3, 7, 10, -10, 41, 999, -999, 1_000_000];
    let powers =
        [i64::MIN, i64::MAX, i32::MIN as i64, i32::MAX as i64, (1 << 50) - 1, 1 << 50, -(1 << 50), (1 << 53) + 1];
    let large = [&small[..], &powers, &powers.map(|p| p.wrapping_sub(1)), &powers.map(|p| p / 3)].concat();
    let n = shape.iter().product::<i64>() as usize;
    let value = |i: usize| match i / 71 % 2 {
        0 => small[at(i) % small.len()],
        _ => large[at(i) % large.len()],
    };
    let dtype = if bytes == 8 { DType::I64 } else { DType::I32 };
    Constant::new(dtype, shape.to_vec(), (0..n).flat_map(|i| value(i).to_le_bytes()[..bytes].to_vec()).collect())
}

/// Regions of interest within pictures of the second and the first of a batch, partly outside, and without an extent.
fn regions() -> Constant {
    let all: [f32; 25] = [
        [1.0, 0.5, 1.0, 14.0, 16.5],
        [0.0, -6.0, 3.0, 9.0, 40.0],
        [1.0, 7.0, 7.0, 7.0, 7.0],
        [0.0, 60.0, 60.0, 70.0, 64.0],
        [0.0, 2.0, 0.0, 22.0, 18.0],
    ]
    .concat()
    .try_into()
    .expect("five regions");
    Constant::new(DType::F32, vec![5, 5], all.iter().flat_map(|v| v.to_le_bytes()).collect())
}

const CASES: &[Case] = &[
    Case {
        rule: "float32 to float16: the nearest, half to even, what is too large is infinite",
        params: r#"x: R.Tensor(("n", 71), dtype="float32")"#,
        inputs: || vec![special(&[3, 71])],
        body: r#"y = R.astype(x, "float16")"#,
        tolerance: 0.0,
    },
    Case {
        rule: "float16 to float32 is exact",
        params: r#"x: R.Tensor(("n", 71), dtype="float32")"#,
        inputs: || vec![special(&[3, 71])],
        body: r#"h = R.permute_dims(R.astype(x, "float16"), axes=[1, 0]); y = R.astype(h, "float32")"#,
        tolerance: 0.0,
    },
    Case {
        rule: "float32 to bfloat16: the nearest, half to even, and back",
        params: r#"x: R.Tensor(("n", 71), dtype="float32")"#,
        inputs: || vec![special(&[3, 71])],
        body: r#"h = R.permute_dims(R.astype(x, "bfloat16"), axes=[1, 0]); y = R.astype(h, "float32")"#,
        tolerance: 0.0,
    },
    Case {
        rule: "strict arithmetic of float16 is rounded after each operation",
        params: r#"x: R.Tensor(("n", 71), dtype="float32"), z: R.Tensor(("n", 71), dtype="float32")"#,
        inputs: || vec![tensor(&[3, 71], 1), tensor(&[3, 71], 2)],
        body: r#"a = R.astype(x, "float16"); b = R.astype(z, "float16");
                 y = R.subtract(R.multiply(R.add(a, b), b), R.nn.relu(a))"#,
        tolerance: 0.0,
    },
    Case {
        rule: "strict arithmetic of bfloat16 is rounded after each operation",
        params: r#"x: R.Tensor(("n", 71), dtype="float32"), z: R.Tensor(("n", 71), dtype="float32")"#,
        inputs: || vec![tensor(&[3, 71], 1), tensor(&[3, 71], 2)],
        body: r#"a = R.astype(x, "bfloat16"); b = R.astype(z, "bfloat16");
                 y = R.subtract(R.multiply(R.add(a, b), b), R.nn.relu(a))"#,
        tolerance: 0.0,
    },
    Case {
        rule: "products of float16 are summed in float32",
        params: r#"x: R.Tensor(("n", 71), dtype="float32"), z: R.Tensor((71, 45), dtype="float32")"#,
        inputs: || vec![tensor(&[19, 71], 1), tensor(&[71, 45], 2)],
        body: r#"y = R.matmul(R.astype(x, "float16"), R.astype(z, "float16"), out_dtype="float32")"#,
        tolerance: 1e-5,
    },
    Case {
        rule: "truth values are read and written beside elements of 32 bits",
        params: r#"x: R.Tensor(("n", 71), dtype="float32"), z: R.Tensor(("n", 71), dtype="float32"), m: R.Tensor(("n", 71), dtype="bool")"#,
        inputs: || vec![special(&[3, 71]), ordered(&[3, 71]), truths(&[3, 71])],
        body: r#"l = R.permute_dims(R.logical_or(R.less(x, z), m), axes=[1, 0]);
                 k = R.permute_dims(R.not_equal(x, z), axes=[1, 0]);
                 w = R.where(m, R.where(R.permute_dims(l, axes=[1, 0]), x, R.exp(R.clip(z, -3.0, 3.0))), z);
                 y = R.concat((w, R.astype(R.permute_dims(k, axes=[1, 0]), "float32")), axis=0)"#,
        tolerance: 1e-6,
    },
    Case {
        rule: "masked scores of attention",
        params: r#"x: R.Tensor(("n", 71), dtype="float32"), m: R.Tensor(("n", 71), dtype="bool")"#,
        inputs: || vec![tensor(&[3, 71], 1), truths(&[3, 71])],
        body: r#"y = R.nn.softmax(R.where(m, x, R.const(-10000.0, "float32")), axis=-1)"#,
        tolerance: 1e-5,
    },
    Case {
        rule: "recurrences over sequences of their own lengths, backwards",
        params: r#"x: R.Tensor(("n", 5, 105), dtype="float32"), w: R.Tensor((35, 105), dtype="float32"), h: R.Tensor((5, 35), dtype="float32"), t: R.Tensor((5,), dtype="int32")"#,
        inputs: || vec![tensor(&[9, 5, 105], 1), tensor(&[35, 105], 2), tensor(&[5, 35], 3), lengths()],
        body: r#"g = R.onnx.gru(x, w, h, None, t, activations=["sigmoid", "tanh"], alpha=[0.0, 0.0], beta=[0.0, 0.0], reverse=True);
                 f = R.onnx.gru(x, w, h, None, t, activations=["sigmoid", "tanh"], alpha=[0.0, 0.0], beta=[0.0, 0.0]);
                 y = R.concat((g[0], f[0]), axis=0)"#,
        tolerance: 1e-5,
    },
    Case {
        rule: "elements and rows repeated, alone and beside others",
        params: r#"x: R.Tensor((2, "n", 13), dtype="float32"), z: R.Tensor((2, "n * 2", 26), dtype="float32")"#,
        inputs: || vec![special(&[2, 5, 13]), special(&[2, 10, 26])],
        body: r#"r = R.repeat(R.repeat(x, repeats=2, axis=2), repeats=2, axis=1);
                 s = R.repeat(R.add(r, z), repeats=3, axis=2);
                 y = R.concat((R.repeat(R.repeat(s, repeats=8, axis=2), repeats=5, axis=0), R.repeat(R.repeat(s, repeats=4, axis=2), repeats=2, axis=2)), axis=0)"#,
        tolerance: 0.0,
    },
    Case {
        rule: "float32 to uint8: towards zero, limited, NaN is 0",
        params: r#"x: R.Tensor(("n", 71), dtype="float32")"#,
        inputs: || vec![special(&[3, 71])],
        body: r#"y = R.astype(x, "uint8")"#,
        tolerance: 0.0,
    },
    Case {
        rule: "float32 to int8: towards zero, limited, NaN is 0",
        params: r#"x: R.Tensor(("n", 71), dtype="float32")"#,
        inputs: || vec![special(&[3, 71])],
        body: r#"y = R.astype(x, "int8")"#,
        tolerance: 0.0,
    },
    Case {
        rule: "float32 to int32: towards zero, limited, NaN is 0",
        params: r#"x: R.Tensor(("n", 71), dtype="float32")"#,
        inputs: || vec![special(&[3, 71])],
        body: r#"y = R.concat((R.astype(x, "int32"), R.astype(R.round(x), "int32"),
                               R.astype(R.clip(x, -7.0, 9.0), "int32"),
                               R.astype(R.round(R.clip(x, -7.5, 9.5)), "int32")), axis=1)"#,
        tolerance: 0.0,
    },
    Case {
        rule: "floats to int64: towards zero, limited, NaN is 0",
        params: r#"x: R.Tensor(("n", 71), dtype="float32")"#,
        inputs: || vec![special(&[3, 71])],
        body: r#"far = R.multiply(x, R.const(1e16, "float32"));
                 y = R.concat((R.astype(x, "int64"), R.astype(far, "int64"),
                               R.astype(R.astype(x, "float64"), "int64"),
                               R.astype(R.astype(far, "float64"), "int64")), axis=1)"#,
        tolerance: 0.0,
    },
    Case {
        rule: "int64 to floats: the nearest, half to even",
        params: r#"x: R.Tensor(("n", 71), dtype="float32")"#,
        inputs: || vec![special(&[3, 71])],
        body: r#"whole = R.astype(R.multiply(x, R.const(12345.678, "float32")), "int64");
                 i = R.add(R.permute_dims(whole, axes=[1, 0]), R.const(1, "int64"));
                 y = R.concat((R.astype(R.astype(i, "float32"), "float64"), R.astype(i, "float64")), axis=0)"#,
        tolerance: 0.0,
    },
    Case {
        rule: "float64: arithmetic, roots, whole numbers, comparisons",
        params: r#"x: R.Tensor(("n", 71), dtype="float32"), z: R.Tensor(("n", 71), dtype="float32")"#,
        inputs: || vec![special(&[3, 71]), tensor(&[3, 71], 2)],
        body: r#"a = R.astype(x, "float64"); b = R.astype(z, "float64");
                 c = R.divide(R.subtract(R.multiply(a, b), R.abs(b)), R.const(3.0, "float64"));
                 d = R.maximum(R.floor(c), R.minimum(R.sqrt(R.abs(a)), R.negative(b)));
                 y = R.where(R.less(a, b), R.round(d), R.add(c, d))"#,
        tolerance: 0.0,
    },
    Case {
        rule: "float64 to float32 and back",
        params: r#"x: R.Tensor(("n", 71), dtype="float32"), z: R.Tensor(("n", 71), dtype="float32")"#,
        inputs: || vec![tensor(&[3, 71], 1), tensor(&[3, 71], 2)],
        body: r#"a = R.multiply(R.astype(x, "float64"), R.astype(z, "float64"));
                 b = R.permute_dims(R.astype(a, "float32"), axes=[1, 0]); y = R.astype(b, "float64")"#,
        tolerance: 0.0,
    },
    Case {
        rule: "products and sums of float64",
        params: r#"x: R.Tensor(("n", 71), dtype="float32"), z: R.Tensor((71, 45), dtype="float32")"#,
        inputs: || vec![tensor(&[19, 71], 1), tensor(&[71, 45], 2)],
        body: r#"y = R.matmul(R.astype(x, "float64"), R.astype(z, "float64"));
                 m = R.max(y, axis=[1], keepdims=True); s = R.sum(y, axis=[1], keepdims=True);
                 y = R.concat((y, m, s), axis=1)"#,
        tolerance: 1e-13,
    },
    Case {
        rule: "determinants, one of them of a matrix that is singular",
        params: r#"x: R.Tensor((3, 19, 19), dtype="float32")"#,
        inputs: || vec![tensor(&[3, 19, 19], 4)],
        body: r#"p = R.strided_slice(x, axes=[1], begin=[0], end=[18]); q = R.strided_slice(x, axes=[1], begin=[3], end=[4]);
                 y = R.concat((R.onnx.det(x), R.onnx.det(R.concat((p, q), axis=1))), axis=0)"#,
        tolerance: 1e-5,
    },
    Case {
        rule: "grid_sample: elements by their numbers, borders, infinities",
        params: r#"x: R.Tensor((2, 3, 9, 11), dtype="float32"), z: R.Tensor((2, 2, 7, 13), dtype="float32")"#,
        inputs: || vec![special(&[2, 3, 9, 11]), tensor(&[2, 2, 7, 13], 3)],
        body: r#"g = R.multiply(z, R.const(2.5, "float32")); d = R.add(R.flip(x, axis=3), R.const(1.0, "float32"));
                 a = R.image.grid_sample(d, g, method="bilinear", padding_mode="zeros", align_corners=False);
                 b = R.image.grid_sample(x, g, method="bilinear", padding_mode="border", align_corners=True);
                 c = R.image.grid_sample(x, g, method="nearest", padding_mode="zeros", align_corners=False);
                 y = R.concat((a, b, c), axis=0)"#,
        tolerance: 1e-6,
    },
    Case {
        rule: "eye: diagonals above and below",
        params: r#"x: R.Tensor((19, 71), dtype="float32")"#,
        inputs: || vec![tensor(&[19, 71], 3)],
        body: r#"y = R.concat((R.add(x, R.eye_like(x, 0)), R.eye_like(x, 60), R.eye_like(x, -15)), axis=0)"#,
        tolerance: 0.0,
    },
    Case {
        rule: "quantize: half to even, limited",
        params: r#"x: R.Tensor(("n", 71), dtype="float32")"#,
        inputs: || vec![special(&[3, 71])],
        body: r#"y = R.quantize(x, R.const(1.0, "float32"), R.const(3, "int8"), axis=-1, out_dtype="int8")"#,
        tolerance: 0.0,
    },
    Case {
        rule: "max_pool2d: windows by steps of 2 over a border, infinities in them",
        params: r#"x: R.Tensor(("n", 5, 41, 39), dtype="float32")"#,
        inputs: || vec![ordered(&[2, 5, 41, 39])],
        body: r#"a = R.nn.max_pool2d(x, pool_size=[3, 3], strides=[2, 2], padding=[1, 1, 1, 1]);
                 b = R.nn.max_pool2d(x, pool_size=[2, 3], strides=[1, 2], padding=[0, 1, 1, 0], ceil_mode=True);
                 y = R.concat((R.flatten(a), R.flatten(b)), axis=0)"#,
        tolerance: 0.0,
    },
    Case {
        rule: "max_pool2d of open sizes",
        params: r#"x: R.Tensor((2, 5, "h", "w"), dtype="float32")"#,
        inputs: || vec![ties(&[2, 5, 46, 67])],
        body: r#"y = R.nn.max_pool2d(x, pool_size=[3, 3], strides=[2, 2], padding=[1, 1, 1, 1])"#,
        tolerance: 0.0,
    },
    Case {
        rule: "avg_pool2d: windows by steps of 1 and 2, with dilation, divided by what lies within the input",
        params: r#"x: R.Tensor(("n", 5, 41, 39), dtype="float32")"#,
        inputs: || vec![tensor(&[2, 5, 41, 39], 3)],
        body: r#"a = R.nn.avg_pool2d(x, pool_size=[3, 3], strides=[2, 2], padding=[1, 1, 1, 1]);
                 b = R.nn.avg_pool2d(x, pool_size=[3, 2], strides=[1, 1], padding=[1, 1, 1, 1], dilation=[2, 2]);
                 c = R.nn.avg_pool2d(x, pool_size=[5, 5], strides=[2, 1], padding=[2, 2, 2, 2], count_include_pad=True);
                 y = R.concat((R.flatten(a), R.flatten(b), R.flatten(c)), axis=0)"#,
        tolerance: 1e-6,
    },
    Case {
        rule: "strided_slice by steps of 2, and what is read backwards",
        params: r#"x: R.Tensor(("n", 135), dtype="float32")"#,
        inputs: || vec![special(&[3, 135])],
        body: r#"a = R.strided_slice(x, axes=[1], begin=[1], end=[135], strides=[2]);
                 b = R.strided_slice(x, axes=[1], begin=[0], end=[135], strides=[2]);
                 c = R.flip(x, axis=1);
                 i = R.flip(R.strided_slice(R.astype(R.nn.relu(x), "int32"), axes=[1], begin=[3], end=[120], strides=[2]), axis=1);
                 y = R.concat((a, b, c, R.astype(i, "float32")), axis=1)"#,
        tolerance: 0.0,
    },
    Case {
        rule: "argmax: the first of several largest, along either axis and of all",
        params: r#"x: R.Tensor((21, 75), dtype="float32")"#,
        inputs: || vec![ties(&[21, 75])],
        body: r#"y = R.concat((R.argmax(x, axis=0), R.argmax(x, axis=1), R.argmin(x, axis=0), R.argmin(x, axis=1),
                               R.reshape(R.argmax(x), R.shape([1]))), axis=0)"#,
        tolerance: 0.0,
    },
    Case {
        rule: "argmax among NaN and infinities, and of open dims",
        params: r#"x: R.Tensor(("n", "m"), dtype="float32")"#,
        inputs: || vec![special(&[37, 41])],
        body: r#"y = R.concat((R.argmax(x, axis=0), R.argmax(x, axis=1), R.argmin(x, axis=1)), axis=0)"#,
        tolerance: 0.0,
    },
    Case {
        rule: "prod: factors by lanes",
        params: r#"x: R.Tensor(("n", 67), dtype="float32")"#,
        inputs: || vec![ties(&[29, 67])],
        body: r#"y = R.prod(R.add(R.multiply(x, R.const(0.3, "float32")), R.const(0.2, "float32")), axis=[1], keepdims=True)"#,
        tolerance: 1e-5,
    },
    Case {
        rule: "col2im: blocks that overlap, by steps, with dilation and over borders",
        params: r#"x: R.Tensor((2, 27, 403), dtype="float32")"#,
        inputs: || vec![ties(&[2, 27, 403])],
        body: r#"a = R.onnx.col2im(x, R.shape([13, 31]), R.shape([3, 3]), strides=[1, 1], padding=[1, 1, 1, 1], dilation=[1, 1]);
                 b = R.onnx.col2im(x, R.shape([25, 61]), R.shape([3, 3]), strides=[2, 2], padding=[1, 0, 1, 2], dilation=[1, 1]);
                 c = R.onnx.col2im(x, R.shape([41, 34]), R.shape([3, 3]), strides=[3, 1], padding=[0, 1, 0, 0], dilation=[2, 2]);
                 y = R.concat((R.flatten(a), R.flatten(b), R.flatten(c)), axis=0)"#,
        tolerance: 0.0,
    },
    Case {
        rule: "col2im: blocks beside each other, whose rows are read by turns",
        params: r#"x: R.Tensor((2, 48, 403), dtype="float32")"#,
        inputs: || vec![ties(&[2, 48, 403])],
        body: r#"a = R.onnx.col2im(x, R.shape([26, 62]), R.shape([2, 2]), strides=[2, 2], padding=[0, 0, 0, 0], dilation=[1, 1]);
                 b = R.onnx.col2im(x, R.shape([52, 121]), R.shape([4, 4]), strides=[4, 4], padding=[0, 3, 0, 0], dilation=[1, 1]);
                 c = R.onnx.col2im(x, R.shape([27, 62]), R.shape([4, 4]), strides=[2, 2], padding=[1, 1, 0, 1], dilation=[1, 1]);
                 y = R.concat((R.flatten(a), R.flatten(b), R.flatten(c)), axis=0)"#,
        tolerance: 0.0,
    },
    Case {
        rule: "samples of pictures with many channels: channels last, borders, infinities",
        params: r#"x: R.Tensor((2, 19, 9, 11), dtype="float32"), z: R.Tensor((2, 2, 7, 13), dtype="float32"), r: R.Tensor(("n", 5), dtype="float32")"#,
        inputs: || vec![special(&[2, 19, 9, 11]), tensor(&[2, 2, 7, 13], 3), regions()],
        body: r#"g = R.multiply(z, R.const(2.5, "float32"));
                 a = R.image.grid_sample(x, g, method="bilinear", padding_mode="zeros", align_corners=False);
                 b = R.image.grid_sample(x, g, method="bilinear", padding_mode="border", align_corners=True);
                 c = R.image.grid_sample(x, g, method="nearest", padding_mode="reflection", align_corners=False);
                 d = R.vision.roi_align(x, r, pooled_size=(3, 4), spatial_scale=0.5, sample_ratio=2, aligned=True);
                 e = R.vision.roi_align(x, r, pooled_size=(3, 4), spatial_scale=0.5, sample_ratio=2, mode="max");
                 y = R.concat((R.flatten(a), R.flatten(b), R.flatten(c), R.flatten(d), R.flatten(e)), axis=0)"#,
        tolerance: 1e-6,
    },
    Case {
        rule: "col2im: few parts of blocks, element by element",
        params: r#"x: R.Tensor((2, 27, 403), dtype="float32")"#,
        inputs: || vec![ties(&[2, 27, 403])],
        body: r#"a = R.onnx.col2im(x, R.shape([13, 31]), R.shape([3, 3]), strides=[1, 1], padding=[1, 1, 1, 1], dilation=[1, 1]);
                 b = R.onnx.col2im(x, R.shape([17, 31]), R.shape([3, 1]), strides=[1, 1], padding=[0, 0, 0, 0], dilation=[2, 1]);
                 c = R.onnx.col2im(x, R.shape([10, 33]), R.shape([1, 3]), strides=[1, 1], padding=[1, 0, 2, 0], dilation=[1, 1]);
                 y = R.concat((R.flatten(a), R.flatten(b), R.flatten(c)), axis=0)"#,
        tolerance: 0.0,
    },
    Case {
        rule: "topk: blocks of elements none of which comes first are passed over, NaN comes before none",
        params: r#"x: R.Tensor(("n", 223), dtype="float32"), z: R.Tensor((5, 150), dtype="float32")"#,
        inputs: || vec![special(&[3, 223]), ties(&[5, 150])],
        body: r#"a = R.topk(x, k=3, axis=-1, ret_type="values"); b = R.topk(x, k=3, axis=-1, ret_type="indices", largest=False);
                 c = R.topk(x, k=55, axis=-1, ret_type="indices"); d = R.topk(z, k=30, axis=1, ret_type="indices", largest=False);
                 e = R.topk(x, k=200, axis=-1, ret_type="indices"); f = R.topk(z, k=3, axis=0, ret_type="indices");
                 y = R.concat((R.flatten(R.astype(a, "float64")), R.flatten(R.astype(b, "float64")), R.flatten(R.astype(c, "float64")),
                               R.flatten(R.astype(d, "float64")), R.flatten(R.astype(e, "float64")), R.flatten(R.astype(f, "float64"))), axis=0)"#,
        tolerance: 0.0,
    },
    Case {
        rule: "quotients and remainders of int64, small and large ones, by 0 and -1, of computed and constant numbers",
        params: r#"x: R.Tensor(("n", 71), dtype="int64"), z: R.Tensor(("n", 71), dtype="int64")"#,
        inputs: || vec![whole(&[40, 71], 8, |i| i), whole(&[40, 71], 8, |i| i / 71 + i)],
        body: r#"a = R.divide(x, z); b = R.floor_divide(x, z); c = R.mod(x, z); d = R.floor_mod(x, z);
                 e = R.floor_mod(x, R.const(-7, "int64")); f = R.divide(R.const(1000003, "int64"), z);
                 g = R.divide(x, R.const(41, "int64")); h = R.floor_divide(x, R.const(-3, "int64"));
                 i = R.mod(x, R.const(10, "int64")); j = R.floor_mod(x, R.const(999, "int64")); k = R.divide(x, R.const(-1, "int64"));
                 y = R.concat((a, b, c, d, e, f, g, h, i, j, k), axis=1)"#,
        tolerance: 0.0,
    },
    Case {
        rule: "quotients and remainders of int32, the lowest one by -1 too",
        params: r#"x: R.Tensor(("n", 71), dtype="int32"), z: R.Tensor(("n", 71), dtype="int32")"#,
        inputs: || vec![whole(&[40, 71], 4, |i| i), whole(&[40, 71], 4, |i| i / 71 + i)],
        body: r#"a = R.divide(x, z); b = R.floor_divide(x, z); c = R.mod(x, z); d = R.floor_mod(x, z);
                 e = R.mod(x, R.const(-7, "int32")); f = R.floor_divide(R.const(1000003, "int32"), z);
                 g = R.divide(x, R.const(41, "int32")); h = R.floor_divide(x, R.const(-3, "int32"));
                 i = R.mod(x, R.const(10, "int32")); j = R.floor_mod(x, R.const(999, "int32")); k = R.divide(x, R.const(-1, "int32"));
                 y = R.concat((a, b, c, d, e, f, g, h, i, j, k), axis=1)"#,
        tolerance: 0.0,
    },
    Case {
        rule: "softplus: no limit at infinities and NaN, small results, a threshold",
        params: r#"x: R.Tensor(("n", 71), dtype="float32"), z: R.Tensor(("n", 71), dtype="float32")"#,
        inputs: || vec![special(&[3, 71]), tensor(&[3, 71], 2)],
        body: r#"far = R.multiply(z, R.const(95.0, "float32"));
                 y = R.concat((R.nn.softplus(x), R.nn.softplus(far), R.nn.softplus(z, beta=2.0, threshold=0.5)), axis=1)"#,
        tolerance: 1e-6,
    },
    Case {
        rule: "powers: special numbers, computed and constant exponents",
        params: r#"x: R.Tensor((192, 70), dtype="float32"), z: R.Tensor((192, 70), dtype="float32"), w: R.Tensor((192, 70), dtype="float32")"#,
        inputs: || {
            let all = special(&[192, 70]);
            let (bytes, row) = (all.data.bytes(), 70 * 4);
            let turned = (0..192).flat_map(|r| {
                let (front, back) = bytes[row * r..row * (r + 1)].split_at(4 * r % row);
                [back, front].concat()
            });
            let turned = Constant::new(DType::F32, vec![192, 70], turned.collect());
            vec![all, turned, tensor(&[192, 70], 3)]
        },
        body: r#"y = R.concat((R.power(x, z), R.power(z, w), R.power(R.abs(w), z), R.power(w, R.const(-2.7, "float32"))), axis=1)"#,
        tolerance: 1e-6,
    },
    Case {
        rule: "a sum over squares, whose dims are kept",
        params: r#"x: R.Tensor(("n", 67), dtype="float32")"#,
        inputs: || vec![tensor(&[29, 67], 5)],
        body: r#"y = R.sqrt(R.sum(R.square(x), axis=[1], keepdims=True))"#,
        tolerance: 1e-6,
    },
];

fn run(dir: &Path, model: &Path, rule: &str, cpu: &str, threads: &str, inputs: &[Constant]) -> Constant {
    let so = dir.join(format!("{cpu}{threads}.so"));
    let fp = if rule.starts_with("strict ") { "strict" } else { "fast" };
    relax_aot(&[path(model), "--prefix", "m", "-o", path(&so), "--target-cpu", cpu, "--threads", threads, "--fp", fp]);
    let library = Library::open(&so, "m").expect("the library");
    let mut results = library.run("main", inputs, 1).unwrap_or_else(|e| panic!("{}: {}", e.code, e.message));
    results.swap_remove(0)
}

#[test]
fn every_level_computes_what_the_baseline_computes() {
    let dir = tempfile::tempdir().expect("a folder");
    let wide = std::arch::is_x86_feature_detected!("avx512vl") && std::arch::is_x86_feature_detected!("avx512bw");
    for (i, c) in CASES.iter().enumerate() {
        let folder = dir.path().join(i.to_string());
        std::fs::create_dir(&folder).expect("a folder");
        let model = folder.join("model.rlx");
        let dims: String = (["n", "m", "h", "w"].iter())
            .filter(|d| c.params.contains(&format!("\"{d}\"")))
            .map(|d| format!("        {d} = T.int64()\n"))
            .collect();
        let body: String = c.body.split(';').map(|s| format!("        {}\n", s.trim())).collect();
        let text = format!(
            "@I.ir_module\nclass Module:\n    @R.function\n    def main({}):\n{dims}{body}        return y\n",
            c.params
        );
        std::fs::write(&model, text).expect("the model is written");
        let inputs = (c.inputs)();
        let wanted = run(&folder, &model, c.rule, "baseline", "1", &inputs);
        // What this machine lacks it cannot run.
        let levels = [("x86-64-v3", "1"), ("native", "1"), ("x86-64-v3", "2"), ("x86-64-v4", "1")];
        for (cpu, threads) in &levels[..if wide { 4 } else { 3 }] {
            let got = run(&folder, &model, c.rule, cpu, threads, &inputs);
            assert_eq!((got.dtype, &got.shape), (wanted.dtype, &wanted.shape), "{}", c.rule);
            for k in 0..wanted.elements() {
                let (a, b) = (wanted.get_f64(k), got.get_f64(k));
                let same = a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
                let near = (a - b).abs() <= c.tolerance * (1.0 + a.abs()) && c.tolerance > 0.0;
                assert!(same || near, "{}: {cpu}, {threads} threads, element {k}: {b:?}, not {a:?}", c.rule);
            }
        }
    }
}

/// Boxes of one batch that stay: the best one that overlaps none of those before it, and so on.
fn kept(boxes: &[[f32; 4]], scores: &[f32], most: usize, iou: f32, threshold: f32) -> Vec<usize> {
    let mut order: Vec<usize> = (0..boxes.len()).filter(|&i| scores[i] > threshold).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    let area = |b: &[f32; 4]| (b[2] - b[0]) * (b[3] - b[1]);
    let overlap = |a: &[f32; 4], b: &[f32; 4]| {
        let side = |d: usize| (a[d + 2].min(b[d + 2]) - a[d].max(b[d])).max(0.0);
        let both = side(0) * side(1);
        both / (area(a) + area(b) - both)
    };
    let mut out: Vec<usize> = vec![];
    for i in order {
        if out.len() < most && out.iter().all(|&j| overlap(&boxes[j], &boxes[i]) <= iou) {
            out.push(i);
        }
    }
    out
}

/// More boxes stay than are compared at a time.
#[test]
fn suppression_keeps_what_overlaps_none_before_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let model = dir.path().join("model.rlx");
    let (batches, classes, n) = (2usize, 2usize, 500usize);
    let start = tensor(&[batches as i64, n as i64, 2], 1);
    let (size, scores) = (tensor(&start.shape, 2), tensor(&[batches as i64, classes as i64, n as i64], 3));
    let at = |c: &Constant, i: usize| c.get_f64(i) as f32;
    let mut boxes = vec![];
    for i in 0..batches * n {
        let [y, x] = [2 * i, 2 * i + 1].map(|k| at(&start, k) * 10.0);
        let [h, w] = [2 * i, 2 * i + 1].map(|k| at(&size, k).abs() * 2.0 + 0.25);
        boxes.push([y, x, y + h, x + w]);
    }
    let bytes = boxes.iter().flatten().flat_map(|v| v.to_le_bytes()).collect();
    let inputs = [Constant::new(DType::F32, vec![batches as i64, n as i64, 4], bytes), scores.clone()];
    for (most, iou, threshold) in [(500, 0.25f32, -0.5f32), (40, 0.5, 0.0), (500, 0.0, -2.0), (500, 1.0, 0.25)] {
        let text = format!(
            "@I.ir_module\nclass Module:\n    @R.function\n    def main(x: R.Tensor(({batches}, {n}, 4), dtype=\"float32\"), \
             s: R.Tensor(({batches}, {classes}, {n}), dtype=\"float32\")):\n        y = R.onnx.nms(x, s, R.const({most}, \
             \"int64\"), R.const({iou:?}, \"float32\"), R.const({threshold:?}, \"float32\"))\n        return y\n"
        );
        std::fs::write(&model, text).expect("the model is written");
        let mut wanted = vec![];
        for b in 0..batches {
            for c in 0..classes {
                let scores: Vec<f32> = (0..n).map(|i| at(&scores, (b * classes + c) * n + i)).collect();
                let rows = kept(&boxes[b * n..(b + 1) * n], &scores, most, iou, threshold);
                wanted.extend(rows.into_iter().map(|i| [b as f64, c as f64, i as f64]));
            }
        }
        assert!(wanted.len() > 60, "{} boxes", wanted.len());
        for cpu in ["baseline", "native"] {
            let got = run(dir.path(), &model, "", cpu, "1", &inputs);
            let rows: Vec<[f64; 3]> =
                (0..got.elements() / 3).map(|r| [0, 1, 2].map(|k| got.get_f64(3 * r + k))).collect();
            assert_eq!(rows, wanted, "{cpu}, at most {most}, {iou}, above {threshold}");
        }
    }
}

/// What kernels of single operators do, by the text of each.
#[test]
fn kernels_of_single_operators() {
    let col2im = |image: &str, block: &str, steps: &str| {
        let rest = "padding=[0, 0, 0, 0], dilation=[1, 1]";
        format!("R.onnx.col2im(x, R.shape({image}), R.shape({block}), strides={steps}, {rest})")
    };
    let rows = |call: &str| format!("R.{call}");
    for (rule, body, kernel, has, without) in [
        (
            "blocks beside each other are rows by turns",
            col2im("[26, 62]", "[2, 2]", "[2, 2]"),
            "onnx_col2im",
            "T.turns",
            "workspace",
        ),
        ("few parts are added in place", col2im("[15, 31]", "[3, 1]", "[1, 1]"), "onnx_col2im", "+", "workspace"),
        (
            "a block of elements is compared at a time",
            rows("topk(z, k=3, ret_type=\"values\")"),
            "topk",
            "vector_reduce_add",
            "turns",
        ),
        (
            "the same for a heap",
            rows("topk(z, k=70, axis=1, ret_type=\"values\")"),
            "topk",
            "vector_reduce_add",
            "turns",
        ),
        (
            "neighbours along another axis are not",
            rows("topk(z, k=3, axis=0, ret_type=\"values\")"),
            "topk",
            "if",
            "reduce_add",
        ),
        ("columns are counted by int32", rows("eye_like(z, 3)"), "eye_like", "int32x", "int64x"),
        ("of two runs the place of the next element is chosen", rows("sort(z)"), "sort", "T.Select(right", "z["),
        ("what is not zero is counted by vectors", rows("nonzero(z)"), "nonzero", "vector_reduce_add", "turns"),
        ("factors of rows go by lanes", rows("prod(z, axis=[1])"), "prod", "vector_reduce_mul", "reduce_add"),
    ] {
        let dir = tempfile::tempdir().expect("a folder");
        let (model, flat) = (dir.path().join("model.rlx"), dir.path().join("model.flat"));
        let params = r#"x: R.Tensor((2, 48, 403), dtype="float32"), z: R.Tensor((90, 300), dtype="float32")"#;
        let text = format!(
            "@I.ir_module\nclass Module:\n    @R.function\n    def main({params}):\n        y = {body}\n        return y\n"
        );
        std::fs::write(&model, text).expect("the model is written");
        relax_aot(&[path(&model), "--prefix", "m", "--emit", "flat", "--target-cpu", "x86-64-v3", "-o", path(&flat)]);
        let flat = std::fs::read_to_string(&flat).expect("flat TIR");
        let begin = flat.find(&format!("func m_k_{kernel}(")).expect("the kernel");
        let own =
            flat[begin + 1..].split("\nfunc ").next().and_then(|k| k.split("\nexport ").next()).unwrap_or_default();
        assert!(own.contains(has) && !own.contains(without), "{rule}: {own}");
    }
}

/// Lengths of rows: none, those of one run, of runs of the same length and of a shorter one behind them.
#[test]
fn sorted_rows_keep_every_element() {
    let dir = tempfile::tempdir().expect("a folder");
    let model = dir.path().join("model.rlx");
    let text = "@I.ir_module\nclass Module:\n    @R.function\n    def main(x: R.Tensor((2, \"n\"), dtype=\"float32\")):\n        \
                n = T.int64()\n        up = R.argsort(x)\n        down = R.argsort(x, descending=True)\n        \
                return (up, down)\n";
    std::fs::write(&model, text).expect("the model is written");
    for cpu in ["baseline", "native"] {
        let so = dir.path().join(format!("{cpu}.so"));
        relax_aot(&[path(&model), "--prefix", "m", "-o", path(&so), "--target-cpu", cpu]);
        let library = Library::open(&so, "m").expect("the library");
        for n in [0usize, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 257] {
            let value = |i: usize| match (i * 7919 + n) % 23 {
                3 | 11 => f32::NAN,
                5 => f32::INFINITY,
                8 => f32::NEG_INFINITY,
                k => (k % 9) as f32 - 4.0,
            };
            let x: Vec<f32> = (0..2 * n).map(value).collect();
            let bytes = x.iter().flat_map(|v| v.to_le_bytes()).collect();
            let got = library.run("main", &[Constant::new(DType::F32, vec![2, n as i64], bytes)], 2).expect("a call");
            for (got, down) in got.iter().zip([false, true]) {
                for (row, x) in x.chunks_exact(n.max(1)).enumerate() {
                    // Numbers before what is none, and what is alike in the order of the row.
                    let mut wanted: Vec<usize> = (0..n).collect();
                    wanted.sort_by(|&a, &b| match (x[a].is_nan(), x[b].is_nan()) {
                        (false, false) if down => x[b].partial_cmp(&x[a]).expect("numbers"),
                        (false, false) => x[a].partial_cmp(&x[b]).expect("numbers"),
                        (a, b) => a.cmp(&b),
                    });
                    let got: Vec<usize> = (0..n).map(|i| got.get_f64(row * n + i) as usize).collect();
                    assert_eq!(got, wanted, "{cpu}, {n} elements, descending {down}: {x:?}");
                }
            }
        }
    }
}

/// Elements that are not zero: none, some, all, and the last one, of several ranks.
#[test]
fn places_of_what_is_not_zero() {
    let dir = tempfile::tempdir().expect("a folder");
    let model = dir.path().join("model.rlx");
    for dims in [vec![], vec![70], vec![9, 35], vec![3, 5, 40]] {
        let shape: Vec<String> = dims.iter().map(|d: &usize| format!("{d},")).collect();
        let text = format!(
            "@I.ir_module\nclass Module:\n    @R.function\n    def main(x: R.Tensor(({}), dtype=\"float32\")):\n        \
             y = R.nonzero(x)\n        return y\n",
            shape.join(" ")
        );
        std::fs::write(&model, text).expect("the model is written");
        let elements: usize = dims.iter().product();
        for cpu in ["baseline", "native"] {
            let so = dir.path().join(format!("{cpu}{elements}.so"));
            relax_aot(&[path(&model), "--prefix", "m", "-o", path(&so), "--target-cpu", cpu]);
            let library = Library::open(&so, "m").expect("the library");
            for (kind, hit) in [
                ("none", (|_, _| false) as fn(usize, usize) -> bool),
                ("all", |_, _| true),
                ("some", |i, _| i * i % 7 < 3),
                ("the first", |i, _| i == 0),
                ("the last", |i, n| i + 1 == n),
            ] {
                let at: Vec<usize> = (0..elements).filter(|&i| hit(i, elements)).collect();
                let values = (0..elements).flat_map(|i| (if hit(i, elements) { 0.5f32 } else { -0.0 }).to_le_bytes());
                let x = Constant::new(DType::F32, dims.iter().map(|d| *d as i64).collect(), values.collect());
                let got = library.run("main", &[x], 1).unwrap_or_else(|e| panic!("{}", e.message)).swap_remove(0);
                let rank = dims.len().max(1);
                assert_eq!(got.shape, [rank as i64, at.len() as i64], "{cpu}, {kind} of {dims:?}");
                for (k, flat) in at.iter().enumerate() {
                    let mut rest = *flat;
                    for d in (0..rank).rev() {
                        let size = dims.get(d).copied().unwrap_or(1);
                        assert_eq!(got.get_f64(d * at.len() + k) as usize, rest % size, "{cpu}, {kind} of {dims:?}");
                        rest /= size;
                    }
                }
            }
        }
    }
}
