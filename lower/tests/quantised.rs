//! A quantised network in integers against the same network in floats.

mod eval;

use eval::program::Program;
use eval::{Dims, Value};
use relax_frontend::rlx;
use relax_ir::analysis::{analyze, Typed};
use relax_ir::{Constant, DType, FileId, IRModule};
use relax_lower::interp::Tensor;
use relax_lower::{bind_params, quant};
use std::collections::HashMap;

/// Convolutions with borders, strides and groups, a sum, maxima, a mean and a product.
const TEXT: &str = r#"
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 3, 7, 6), "float32"), w0: R.Tensor((8, 3, 3, 3), "int8"), w1: R.Tensor((8, 1, 3, 3), "int8"),
             w2: R.Tensor((8, 8, 1, 1), "int8"), w3: R.Tensor((10, 8), "int8"), b0: R.Tensor((8,), "int32"),
             b1: R.Tensor((8,), "float32"), b3: R.Tensor((10,), "float32"), s0: R.Tensor((8,), "float32")) -> R.Tensor((1, 10), "float32"):
        q0 = R.quantize(x, R.const(0.02, "float32"), R.const(3, "int8"), axis=-1, out_dtype="int8")
        d0 = R.dequantize(q0, R.const(0.02, "float32"), R.const(3, "int8"), axis=-1, out_dtype="float32")
        f0 = R.dequantize(w0, s0, R.const(0, "int8"), axis=0, out_dtype="float32")
        c0 = R.nn.conv2d(d0, f0, strides=[1, 1], padding=[1, 1, 1, 1], dilation=[1, 1], groups=1)
        g0 = R.dequantize(b0, s0, R.const(0, "int32"), axis=0, out_dtype="float32")
        a0 = R.add(c0, R.reshape(g0, R.shape([8, 1, 1])))
        q1 = R.quantize(a0, R.const(0.05, "float32"), R.const(-128, "int8"), axis=-1, out_dtype="int8")
        d1 = R.dequantize(q1, R.const(0.05, "float32"), R.const(-128, "int8"), axis=-1, out_dtype="float32")
        f1 = R.dequantize(w1, R.const(0.004, "float32"), R.const(0, "int8"), axis=0, out_dtype="float32")
        c1 = R.nn.conv2d(d1, f1, strides=[2, 2], padding=[1, 1, 1, 1], dilation=[1, 1], groups=8)
        a1 = R.add(c1, R.reshape(b1, R.shape([8, 1, 1])))
        q2 = R.quantize(a1, R.const(0.06, "float32"), R.const(4, "int8"), axis=-1, out_dtype="int8")
        d2 = R.dequantize(q2, R.const(0.06, "float32"), R.const(4, "int8"), axis=-1, out_dtype="float32")
        f2 = R.dequantize(w2, R.const(0.006, "float32"), R.const(0, "int8"), axis=0, out_dtype="float32")
        c2 = R.nn.conv2d(d2, f2, strides=[1, 1], padding=[0, 0, 0, 0], dilation=[1, 1], groups=1)
        q3 = R.quantize(c2, R.const(0.07, "float32"), R.const(121, "uint8"), axis=-1, out_dtype="uint8")
        d3 = R.dequantize(q3, R.const(0.07, "float32"), R.const(121, "uint8"), axis=-1, out_dtype="float32")
        a3 = R.add(d3, d2)
        q4 = R.quantize(a3, R.const(0.09, "float32"), R.const(0, "uint8"), axis=-1, out_dtype="uint8")
        d4 = R.dequantize(q4, R.const(0.09, "float32"), R.const(0, "uint8"), axis=-1, out_dtype="float32")
        m4 = R.nn.max_pool2d(d4, pool_size=[2, 2], strides=[1, 1], padding=[1, 1, 1, 1])
        q5 = R.quantize(m4, R.const(0.09, "float32"), R.const(0, "uint8"), axis=-1, out_dtype="uint8")
        d5 = R.dequantize(q5, R.const(0.09, "float32"), R.const(0, "uint8"), axis=-1, out_dtype="float32")
        m5 = R.mean(d5, axis=[2, 3], keepdims=False)
        q6 = R.quantize(m5, R.const(0.03, "float32"), R.const(-100, "int8"), axis=-1, out_dtype="int8")
        d6 = R.dequantize(q6, R.const(0.03, "float32"), R.const(-100, "int8"), axis=-1, out_dtype="float32")
        f3 = R.dequantize(w3, R.const(0.01, "float32"), R.const(0, "int8"), axis=0, out_dtype="float32")
        p6 = R.matmul(d6, R.permute_dims(f3, axes=[1, 0]))
        a6 = R.add(p6, b3)
        q7 = R.quantize(a6, R.const(0.04, "float32"), R.const(-7, "int8"), axis=-1, out_dtype="int8")
        d7 = R.dequantize(q7, R.const(0.04, "float32"), R.const(-7, "int8"), axis=-1, out_dtype="float32")
        return d7
"#;

/// The first convolution is read by the second one and by their sum.
const READ_TWICE: &str = r#"
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 3, 5, 4), "float32"), w0: R.Tensor((8, 3, 1, 1), "int8"), w1: R.Tensor((8, 8, 1, 1), "int8")
             ) -> R.Tensor((1, 8, 5, 4), "float32"):
        q0 = R.quantize(x, R.const(0.02, "float32"), R.const(3, "int8"), axis=-1, out_dtype="int8")
        d0 = R.dequantize(q0, R.const(0.02, "float32"), R.const(3, "int8"), axis=-1, out_dtype="float32")
        f0 = R.dequantize(w0, R.const(0.004, "float32"), R.const(0, "int8"), axis=0, out_dtype="float32")
        c0 = R.nn.conv2d(d0, f0, strides=[1, 1], padding=[0, 0, 0, 0], dilation=[1, 1], groups=1)
        q1 = R.quantize(c0, R.const(0.05, "float32"), R.const(-9, "int8"), axis=-1, out_dtype="int8")
        d1 = R.dequantize(q1, R.const(0.05, "float32"), R.const(-9, "int8"), axis=-1, out_dtype="float32")
        f1 = R.dequantize(w1, R.const(0.006, "float32"), R.const(0, "int8"), axis=0, out_dtype="float32")
        c1 = R.nn.conv2d(d1, f1, strides=[1, 1], padding=[0, 0, 0, 0], dilation=[1, 1], groups=1)
        q2 = R.quantize(c1, R.const(0.07, "float32"), R.const(4, "int8"), axis=-1, out_dtype="int8")
        d2 = R.dequantize(q2, R.const(0.07, "float32"), R.const(4, "int8"), axis=-1, out_dtype="float32")
        a2 = R.add(d1, d2)
        q3 = R.quantize(a2, R.const(0.09, "float32"), R.const(2, "int8"), axis=-1, out_dtype="int8")
        d3 = R.dequantize(q3, R.const(0.09, "float32"), R.const(2, "int8"), axis=-1, out_dtype="float32")
        return d3
"#;

fn constant(d: DType, shape: &[i64], f: impl Fn(i64) -> f64) -> Constant {
    let v: Vec<f64> = (0..shape.iter().product::<i64>()).map(f).collect();
    match d.is_float() {
        true => Tensor::from_f64(d, shape, &v).into_constant(),
        false => Tensor::from_i64(d, shape, &v.iter().map(|x| *x as i64).collect::<Vec<_>>()).into_constant(),
    }
}

fn run(module: &IRModule, x: &Value) -> Value {
    Program { module, mode: Dims::Static }.run("main", std::slice::from_ref(x)).expect("it runs")
}

/// -125 to 125, in no order.
fn byte(i: i64) -> f64 {
    ((i * 73 + 19) % 251 - 125) as f64
}

fn typed(text: &str, weights: &HashMap<String, Constant>) -> Typed {
    let (module, diags) = rlx::parse(FileId(0), text);
    assert!(!diags.has_errors(), "{:?}", diags.list);
    let mut module = module.expect("the text parses");
    let (_, diags) = bind_params(&mut module, weights);
    assert!(!diags.has_errors(), "{:?}", diags.list);
    let (typed, diags) = analyze(&module);
    assert!(!diags.has_errors(), "{:?}", diags.list);
    typed.expect("the module is sound")
}

/// At most a step of the last scale apart.
fn assert_near(wanted: &Value, got: &Value, step: f64) {
    for (a, b) in wanted.leaves().iter().zip(got.leaves()) {
        for (a, b) in a.to_f64().iter().zip(b.to_f64()) {
            assert!((a - b).abs() < step * 1.0025, "more than a step apart: {a} and {b}");
        }
    }
}

/// A sum goes behind a convolution that nothing else reads: behind another it would be computed twice.
#[test]
fn sums_go_behind_what_they_alone_read() {
    let weights = HashMap::from([
        ("w0".to_string(), constant(DType::I8, &[8, 3, 1, 1], byte)),
        ("w1".to_string(), constant(DType::I8, &[8, 8, 1, 1], byte)),
    ]);
    let mut typed = typed(READ_TWICE, &weights);
    let x = Value::Tensor(Tensor::from_constant(&constant(DType::F32, &[1, 3, 5, 4], |i| byte(i) * 0.02)));
    let wanted = run(&typed.module, &x);
    quant::quantised(&mut typed, 64, true, false);
    let sums: Vec<i64> = (typed.module.funcs.iter())
        .filter(|f| f.name().starts_with("qconv2d_add"))
        .filter_map(|f| typed.module.prim(f.name())?.buffers().next()?.shape.last()?.as_int())
        .collect();
    // Three channels are held in four.
    assert_eq!(sums, [8], "channels that the convolution before the sum reads");
    assert_near(&wanted, &run(&typed.module, &x), 0.09);
}

#[test]
fn integers_agree_with_floats() {
    let weights = HashMap::from([
        ("w0".to_string(), constant(DType::I8, &[8, 3, 3, 3], byte)),
        ("w1".to_string(), constant(DType::I8, &[8, 1, 3, 3], byte)),
        ("w2".to_string(), constant(DType::I8, &[8, 8, 1, 1], byte)),
        ("w3".to_string(), constant(DType::I8, &[10, 8], byte)),
        ("b0".to_string(), constant(DType::I32, &[8], |i| (i * 37 - 90) as f64)),
        ("b1".to_string(), constant(DType::F32, &[8], |i| i as f64 * 0.21 - 0.8)),
        ("b3".to_string(), constant(DType::F32, &[10], |i| i as f64 * 0.13 - 0.5)),
        ("s0".to_string(), constant(DType::F32, &[8], |i| 0.002 + i as f64 * 0.0003)),
    ]);
    let mut typed = typed(TEXT, &weights);
    let x = Value::Tensor(Tensor::from_constant(&constant(DType::F32, &[1, 3, 7, 6], |i| byte(i) * 0.02)));
    let wanted = run(&typed.module, &x);
    quant::quantised(&mut typed, 64, true, false);
    let got = run(&typed.module, &x);
    let names: Vec<&str> = typed.module.funcs.iter().map(|f| f.name()).collect();
    let count = |name: &str| names.iter().filter(|n| n.starts_with(name)).count();
    // Three convolutions, and the last of them again with the sum behind it: it is dead now.
    let kinds = ["qconv2d", "qconv2d_add", "qadd", "qmax_pool2d", "qmatmul"];
    assert_eq!(kinds.map(count), [4, 1, 0, 1, 1], "{names:?}");
    assert_near(&wanted, &got, 0.04);
}

/// Products of bytes whose sums stay in int32: zero points that are computed, along rows too, weights beyond int8, signed
/// bytes, columns that are no multiple of four, and what `out_dtype` says.
const SUMMED: &str = r#"
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((3, 5, 64), "float32"), w: R.Tensor((64, 30), "uint8"), v: R.Tensor((32, 64), "int8"), z: R.Tensor((5, 1), "uint8")
             ) -> R.Tuple(R.Tensor((3, 5, 30), "int32"), R.Tensor((3, 5, 32), "int32"), R.Tensor((3, 5, 32), "int32")):
        a = R.astype(x, "uint8")
        b = R.subtract(R.astype(a, "int32"), R.astype(z, "int32"))
        c = R.subtract(R.astype(w, "int32"), R.const(11, "int32"))
        y0 = R.matmul(b, c)
        d = R.astype(R.subtract(R.astype(a, "int32"), R.const(128, "int32")), "int8")
        e = R.subtract(R.astype(d, "int32"), R.const(-3, "int32"))
        y1 = R.matmul(e, R.permute_dims(R.astype(v, "int32"), axes=[1, 0]))
        y2 = R.matmul(d, R.permute_dims(v, axes=[1, 0]), out_dtype="int32")
        return (y0, y1, y2)
"#;

#[test]
fn sums_of_bytes_are_exact() {
    let weights = HashMap::from([
        ("w".to_string(), constant(DType::U8, &[64, 30], |i| byte(i) + 125.0)),
        ("v".to_string(), constant(DType::I8, &[32, 64], byte)),
        ("z".to_string(), constant(DType::U8, &[5, 1], |i| (i * 50 + 3) as f64)),
    ]);
    let mut typed = typed(SUMMED, &weights);
    let x = Value::Tensor(Tensor::from_constant(&constant(DType::F32, &[3, 5, 64], |i| byte(i) + 125.0)));
    let wanted = run(&typed.module, &x);
    quant::dynamic(&mut typed, 64);
    let count = |name: &str| typed.module.funcs.iter().filter(|f| f.name().starts_with(name)).count();
    assert_eq!(["matmul_integer", "centred", "row_sums", "unsigned"].map(count), [3, 3, 1, 2]);
    let got = run(&typed.module, &x);
    for (a, b) in wanted.leaves().iter().zip(got.leaves()) {
        assert_eq!(a.to_f64(), b.to_f64());
    }
}

/// Rows that are a product of dims, which no dim of a parameter of the kernel gives: the kernel takes the dims.
const ROWS_OF_DIMS: &str = r#"
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("a", "b", 64), "float32"), w: R.Tensor((64, 256), "int8")
             ) -> R.Tuple(R.Tensor(("a * b", 256), "int32"), R.Tensor(("a * b", 256), "float32")):
        rows = R.reshape(x, R.shape([-1, 64]))
        y0 = R.matmul(R.astype(R.astype(rows, "uint8"), "int32"), R.astype(w, "int32"))
        y1 = R.matmul(rows, R.dequantize(w, R.const(0.5, "float32"), R.const(3, "int8"), axis=-1, out_dtype="float32"))
        return (y0, y1)
"#;

#[test]
fn rows_may_be_a_product_of_dims() {
    let weights = HashMap::from([("w".to_string(), constant(DType::I8, &[64, 256], byte))]);
    let typed = typed(ROWS_OF_DIMS, &weights);
    let x = Value::Tensor(Tensor::from_constant(&constant(DType::F32, &[2, 3, 64], |i| byte(i) + 125.0)));
    let wanted = run(&typed.module, &x);
    let options = relax_lower::Options { opt_level: 2, wide_bytes: 64, ..Default::default() };
    let typed = relax_lower::kernels(typed, &options, true).expect("it becomes kernels");
    let names: Vec<&str> = typed.module.funcs.iter().map(|f| f.name()).collect();
    for kernel in ["matmul_integer", "matmul_streamed"] {
        assert!(names.iter().any(|n| n.starts_with(kernel)), "{kernel} among {names:?}");
    }
    for (a, b) in wanted.leaves().iter().zip(run(&typed.module, &x).leaves()) {
        assert_eq!(a.to_f64(), b.to_f64());
    }
}

/// Convolutions of bytes whose sums stay in int32: borders of a zero point that is computed, weights beyond int8, signed
/// bytes, channels that fill no word.
const SUMMED_WINDOWS: &str = r#"
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 6, 5, 7), "float32"), w: R.Tensor((5, 6, 3, 2), "uint8"), v: R.Tensor((8, 6, 1, 1), "int8"), z: R.Tensor((1,), "uint8")
             ) -> R.Tuple(R.Tensor((2, 5, 6, 4), "int32"), R.Tensor((2, 8, 5, 7), "int32")):
        a = R.astype(x, "uint8")
        b = R.subtract(R.astype(a, "int32"), R.reshape(R.astype(z, "int32"), R.shape([])))
        c = R.subtract(R.astype(w, "int32"), R.const(11, "int32"))
        y0 = R.nn.conv2d(b, c, strides=[1, 2], padding=[1, 0, 2, 1])
        d = R.astype(R.subtract(R.astype(a, "int32"), R.const(128, "int32")), "int8")
        y1 = R.nn.conv2d(R.astype(d, "int32"), R.astype(v, "int32"))
        return (y0, y1)
"#;

#[test]
fn sums_of_windows_are_exact() {
    let weights = HashMap::from([
        ("w".to_string(), constant(DType::U8, &[5, 6, 3, 2], |i| byte(i) + 125.0)),
        ("v".to_string(), constant(DType::I8, &[8, 6, 1, 1], byte)),
        ("z".to_string(), constant(DType::U8, &[1], |_| 201.0)),
    ]);
    let open = [
        ("(2, 6, 5, 7)", "(\"n\", 6, \"p\", \"q\")"),
        ("(2, 5, 6, 4)", "(\"n\", 5, \"p + 1\", \"(q - 1) // 2 + 1\")"),
        ("(2, 8, 5, 7)", "(\"n\", 8, \"p\", \"q\")"),
    ];
    let open = open.iter().fold(SUMMED_WINDOWS.to_string(), |text, (from, to)| text.replace(from, to));
    for text in [SUMMED_WINDOWS, &open] {
        let mut typed = typed(text, &weights);
        let x = Value::Tensor(Tensor::from_constant(&constant(DType::F32, &[2, 6, 5, 7], |i| byte(i) + 125.0)));
        let wanted = run(&typed.module, &x);
        quant::dynamic(&mut typed, 64);
        let count = |name: &str| typed.module.funcs.iter().filter(|f| f.name().starts_with(name)).count();
        assert_eq!(["words", "bordered", "conv2d_integer", "centred"].map(count), [2; 4]);
        let got = run(&typed.module, &x);
        for (a, b) in wanted.leaves().iter().zip(got.leaves()) {
            assert_eq!(a.to_f64(), b.to_f64());
        }
    }
}

/// ONNX's `QLinearConv` and `QLinearMatMul` as they are imported: sums in int32 by scales, bytes between; weights that are
/// int32 already, maxima of bytes, no bias, a matrix that is transposed, scales of channels.
const IN_INTEGERS: &str = r#"
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 3, 7, 6), "float32"), w0: R.Tensor((8, 3, 3, 3), "int8"), w1: R.Tensor((8, 1, 3, 3), "int32"),
             w2: R.Tensor((10, 8), "int8"), b0: R.Tensor((1, 8, 1, 1), "int32"), b2: R.Tensor((10,), "int32"), s0: R.Tensor((1, 8, 1, 1), "float32")
             ) -> R.Tensor((1, 10), "float32"):
        q0 = R.quantize(x, R.const(0.02, "float32"), R.const(3, "uint8"), axis=-1, out_dtype="uint8")
        i0 = R.subtract(R.astype(q0, "int32"), R.const(3, "int32"))
        j0 = R.subtract(R.astype(w0, "int32"), R.const(0, "int32"))
        c0 = R.nn.conv2d(i0, j0, strides=[1, 1], padding=[1, 1, 1, 1], dilation=[1, 1], groups=1)
        f0 = R.multiply(R.multiply(R.astype(R.add(c0, b0), "float32"), R.const(0.02, "float32")), s0)
        q1 = R.quantize(f0, R.const(0.05, "float32"), R.const(0, "uint8"), axis=-1, out_dtype="uint8")
        m1 = R.nn.max_pool2d(q1, pool_size=[2, 2], strides=[1, 1], padding=[1, 1, 1, 1])
        i1 = R.astype(m1, "int32")
        c1 = R.nn.conv2d(i1, w1, strides=[2, 2], padding=[1, 1, 1, 1], dilation=[1, 1], groups=8)
        f1 = R.multiply(R.astype(c1, "float32"), R.const(0.0002, "float32"))
        q2 = R.quantize(f1, R.const(0.06, "float32"), R.const(99, "uint8"), axis=-1, out_dtype="uint8")
        d2 = R.dequantize(q2, R.const(0.06, "float32"), R.const(99, "uint8"), axis=-1, out_dtype="float32")
        a2 = R.mean(d2, axis=[2, 3], keepdims=False)
        q3 = R.quantize(a2, R.const(0.03, "float32"), R.const(-100, "int8"), axis=-1, out_dtype="int8")
        i3 = R.subtract(R.astype(q3, "int32"), R.const(-100, "int32"))
        j3 = R.subtract(R.astype(R.permute_dims(w2, axes=[1, 0]), "int32"), R.const(0, "int32"))
        p3 = R.add(R.matmul(i3, j3), b2)
        f3 = R.multiply(R.astype(p3, "float32"), R.multiply(R.const(0.03, "float32"), R.const(0.01, "float32")))
        q4 = R.quantize(f3, R.const(0.04, "float32"), R.const(-7, "int8"), axis=-1, out_dtype="int8")
        d4 = R.dequantize(q4, R.const(0.04, "float32"), R.const(-7, "int8"), axis=-1, out_dtype="float32")
        return d4
"#;

fn of_integers() -> HashMap<String, Constant> {
    HashMap::from([
        ("w0".to_string(), constant(DType::I8, &[8, 3, 3, 3], byte)),
        ("w1".to_string(), constant(DType::I32, &[8, 1, 3, 3], byte)),
        ("w2".to_string(), constant(DType::I8, &[10, 8], byte)),
        ("b0".to_string(), constant(DType::I32, &[1, 8, 1, 1], |i| (i * 37 - 90) as f64)),
        ("b2".to_string(), constant(DType::I32, &[10], |i| (i * 23 - 70) as f64)),
        ("s0".to_string(), constant(DType::F32, &[1, 8, 1, 1], |i| 0.002 + i as f64 * 0.0003)),
    ])
}

/// ONNX QLinearConv 10, QLinearMatMul 10.
#[test]
fn sums_that_are_scaled_are_kernels_of_bytes() {
    let mut typed = typed(IN_INTEGERS, &of_integers());
    let x = Value::Tensor(Tensor::from_constant(&constant(DType::F32, &[1, 3, 7, 6], |i| byte(i) * 0.02)));
    let wanted = run(&typed.module, &x);
    quant::quantised(&mut typed, 64, true, false);
    let count = |name: &str| typed.module.funcs.iter().filter(|f| f.name().starts_with(name)).count();
    assert_eq!(["qconv2d", "qmax_pool2d", "qmatmul"].map(count), [2, 1, 1]);
    assert_near(&wanted, &run(&typed.module, &x), 0.04);
}

/// What no kernel of bytes takes (a dilated window) keeps its sums in int32, and so does what it reads: `q1` of
/// [`IN_INTEGERS`] would be read as bytes and as integers.
#[test]
fn sums_that_no_kernel_takes_stay_exact() {
    let text = IN_INTEGERS.replace(
        "w1, strides=[2, 2], padding=[1, 1, 1, 1], dilation=[1, 1]",
        "w1, strides=[2, 2], padding=[2, 2, 2, 2], dilation=[2, 2]",
    );
    assert_ne!(text, IN_INTEGERS);
    let mut typed = typed(&text, &of_integers());
    let x = Value::Tensor(Tensor::from_constant(&constant(DType::F32, &[1, 3, 7, 6], |i| byte(i) * 0.02)));
    let wanted = run(&typed.module, &x);
    quant::quantised(&mut typed, 64, true, false);
    let main = typed.module.relax("main").expect("the function");
    let integers = main.bindings().filter(|b| {
        let dtype = typed.sinfo.get(&b.var).and_then(|i| i.as_tensor()).and_then(|t| t.dtype);
        b.expr().as_op_call("nn.conv2d").is_some() && dtype == Some(DType::I32)
    });
    assert_eq!(integers.count(), 2);
    assert_near(&wanted, &run(&typed.module, &x), 0.04);
}

/// A convolution, SiLU in steps that are quantised each, a window with a border of its zero; a sigmoid, whose zero is
/// another number, before a border; GELU with constants that are quantised, too, before a product.
const FUNCTIONS: &str = r#"
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 4, 7, 6), "float32"), w0: R.Tensor((8, 4, 1, 1), "int8"), w1: R.Tensor((8, 8, 3, 3), "int8"),
             w2: R.Tensor((6, 8, 3, 3), "int8"), w3: R.Tensor((6, 10), "int8"), k: R.Tensor((), "uint8")
             ) -> R.Tensor((1, 42, 10), "float32"):
        q0 = R.quantize(x, R.const(0.02, "float32"), R.const(3, "int8"), axis=-1, out_dtype="int8")
        d0 = R.dequantize(q0, R.const(0.02, "float32"), R.const(3, "int8"), axis=-1, out_dtype="float32")
        f0 = R.dequantize(w0, R.const(0.004, "float32"), R.const(0, "int8"), axis=0, out_dtype="float32")
        q1 = R.quantize(R.nn.conv2d(d0, f0), R.const(0.04, "float32"), R.const(11, "int8"), axis=-1, out_dtype="int8")
        d1 = R.dequantize(q1, R.const(0.04, "float32"), R.const(11, "int8"), axis=-1, out_dtype="float32")
        q2 = R.quantize(R.sigmoid(d1), R.const(0.004, "float32"), R.const(0, "uint8"), axis=-1, out_dtype="uint8")
        d2 = R.dequantize(q2, R.const(0.004, "float32"), R.const(0, "uint8"), axis=-1, out_dtype="float32")
        e1 = R.dequantize(q1, R.const(0.04, "float32"), R.const(11, "int8"), axis=-1, out_dtype="float32")
        q3 = R.quantize(R.multiply(e1, d2), R.const(0.03, "float32"), R.const(9, "uint8"), axis=-1, out_dtype="uint8")
        d3 = R.dequantize(q3, R.const(0.03, "float32"), R.const(9, "uint8"), axis=-1, out_dtype="float32")
        f1 = R.dequantize(w1, R.const(0.002, "float32"), R.const(0, "int8"), axis=0, out_dtype="float32")
        c4 = R.nn.conv2d(d3, f1, padding=[1, 1, 1, 1])
        q4 = R.quantize(c4, R.const(0.06, "float32"), R.const(4, "int8"), axis=-1, out_dtype="int8")
        d4 = R.dequantize(q4, R.const(0.06, "float32"), R.const(4, "int8"), axis=-1, out_dtype="float32")
        q5 = R.quantize(R.sigmoid(d4), R.const(0.004, "float32"), R.const(-128, "int8"), axis=-1, out_dtype="int8")
        d5 = R.dequantize(q5, R.const(0.004, "float32"), R.const(-128, "int8"), axis=-1, out_dtype="float32")
        f2 = R.dequantize(w2, R.const(0.003, "float32"), R.const(0, "int8"), axis=0, out_dtype="float32")
        c6 = R.permute_dims(R.nn.conv2d(d5, f2, padding=[1, 1, 1, 1]), axes=[0, 2, 3, 1])
        q6 = R.quantize(R.reshape(c6, R.shape([1, 42, 6])), R.const(0.03, "float32"), R.const(120, "uint8"), axis=-1, out_dtype="uint8")
        d6 = R.dequantize(q6, R.const(0.03, "float32"), R.const(120, "uint8"), axis=-1, out_dtype="float32")
        q7 = R.quantize(R.erf(R.multiply(d6, R.const(0.7071, "float32"))), R.const(0.008, "float32"), R.const(128, "uint8"), axis=-1, out_dtype="uint8")
        d7 = R.dequantize(q7, R.const(0.008, "float32"), R.const(128, "uint8"), axis=-1, out_dtype="float32")
        one = R.dequantize(k, R.const(0.0039, "float32"), R.const(0, "uint8"), axis=-1, out_dtype="float32")
        e6 = R.dequantize(q6, R.const(0.03, "float32"), R.const(120, "uint8"), axis=-1, out_dtype="float32")
        g7 = R.multiply(R.multiply(e6, R.add(d7, one)), R.const(0.5, "float32"))
        q8 = R.quantize(g7, R.const(0.02, "float32"), R.const(8, "uint8"), axis=-1, out_dtype="uint8")
        d8 = R.dequantize(q8, R.const(0.02, "float32"), R.const(8, "uint8"), axis=-1, out_dtype="float32")
        f3 = R.dequantize(w3, R.const(0.01, "float32"), R.const(0, "int8"), axis=-1, out_dtype="float32")
        q9 = R.quantize(R.matmul(d8, f3), R.const(0.04, "float32"), R.const(-7, "int8"), axis=-1, out_dtype="int8")
        d9 = R.dequantize(q9, R.const(0.04, "float32"), R.const(-7, "int8"), axis=-1, out_dtype="float32")
        return d9
"#;

/// Once by what the pass makes, once by all kernels with channels last.
#[test]
fn functions_of_one_tensor_are_tables() {
    let weights = HashMap::from([
        ("w0".to_string(), constant(DType::I8, &[8, 4, 1, 1], byte)),
        ("w1".to_string(), constant(DType::I8, &[8, 8, 3, 3], byte)),
        ("w2".to_string(), constant(DType::I8, &[6, 8, 3, 3], byte)),
        ("w3".to_string(), constant(DType::I8, &[6, 10], byte)),
        ("k".to_string(), constant(DType::U8, &[], |_| 255.0)),
    ]);
    let before = typed(FUNCTIONS, &weights);
    let x = Value::Tensor(Tensor::from_constant(&constant(DType::F32, &[1, 4, 7, 6], |i| byte(i) * 0.02)));
    let wanted = run(&before.module, &x);
    let mut after = typed(FUNCTIONS, &weights);
    quant::quantised(&mut after, 64, true, false);
    let names: Vec<&str> = after.module.funcs.iter().map(|f| f.name()).collect();
    // SiLU and its sigmoid, a sigmoid, GELU and its error function: the inner ones are dead now.
    assert_eq!(names.iter().filter(|n| n.starts_with("qtable")).count(), 5, "{names:?}");
    assert_near(&wanted, &run(&after.module, &x), 0.04);
    let options = relax_lower::Options { opt_level: 2, wide_bytes: 64, ..Default::default() };
    let kernels = relax_lower::kernels(before, &options, true).expect("it becomes kernels");
    let names: Vec<&str> = kernels.module.funcs.iter().map(|f| f.name()).collect();
    assert_eq!(names.iter().filter(|n| n.starts_with("qtable")).count(), 3, "{names:?}");
    assert!(!names.iter().any(|n| n.contains("sigmoid") || n.contains("erf")), "{names:?}");
    assert_near(&wanted, &run(&kernels.module, &x), 0.04);
}

/// Pairs around what only moves elements: channels last and back around a mean, rows of a matrix and back around a sigmoid.
const PAIRS: &str = r#"
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 4, 7, 6), "float32"), w0: R.Tensor((8, 4, 1, 1), "int8"), w1: R.Tensor((8, 8, 3, 3), "int8"),
             w2: R.Tensor((8, 12), "int8"), w3: R.Tensor((12, 10), "int8")) -> R.Tensor((42, 10), "float32"):
        q0 = R.quantize(x, R.const(0.02, "float32"), R.const(3, "int8"), axis=-1, out_dtype="int8")
        d0 = R.dequantize(q0, R.const(0.02, "float32"), R.const(3, "int8"), axis=-1, out_dtype="float32")
        f0 = R.dequantize(w0, R.const(0.004, "float32"), R.const(0, "int8"), axis=0, out_dtype="float32")
        q1 = R.quantize(R.nn.conv2d(d0, f0), R.const(0.04, "float32"), R.const(11, "int8"), axis=-1, out_dtype="int8")
        d1 = R.dequantize(q1, R.const(0.04, "float32"), R.const(11, "int8"), axis=-1, out_dtype="float32")
        q2 = R.quantize(R.permute_dims(d1, axes=[0, 2, 3, 1]), R.const(0.04, "float32"), R.const(11, "int8"), axis=-1, out_dtype="int8")
        d2 = R.dequantize(q2, R.const(0.04, "float32"), R.const(11, "int8"), axis=-1, out_dtype="float32")
        s2 = R.subtract(d2, R.mean(d2, axis=[3], keepdims=True))
        q3 = R.quantize(s2, R.const(0.03, "float32"), R.const(2, "int8"), axis=-1, out_dtype="int8")
        d3 = R.dequantize(q3, R.const(0.03, "float32"), R.const(2, "int8"), axis=-1, out_dtype="float32")
        q4 = R.quantize(R.permute_dims(d3, axes=[0, 3, 1, 2]), R.const(0.03, "float32"), R.const(2, "int8"), axis=-1, out_dtype="int8")
        d4 = R.dequantize(q4, R.const(0.03, "float32"), R.const(2, "int8"), axis=-1, out_dtype="float32")
        f1 = R.dequantize(w1, R.const(0.002, "float32"), R.const(0, "int8"), axis=0, out_dtype="float32")
        c5 = R.nn.conv2d(d4, f1, padding=[1, 1, 1, 1])
        q5 = R.quantize(c5, R.const(0.06, "float32"), R.const(4, "int8"), axis=-1, out_dtype="int8")
        d5 = R.dequantize(q5, R.const(0.06, "float32"), R.const(4, "int8"), axis=-1, out_dtype="float32")
        r5 = R.reshape(R.permute_dims(d5, axes=[0, 2, 3, 1]), R.shape([42, 8]))
        q6 = R.quantize(r5, R.const(0.06, "float32"), R.const(4, "int8"), axis=-1, out_dtype="int8")
        d6 = R.dequantize(q6, R.const(0.06, "float32"), R.const(4, "int8"), axis=-1, out_dtype="float32")
        f2 = R.dequantize(w2, R.const(0.01, "float32"), R.const(0, "int8"), axis=-1, out_dtype="float32")
        q7 = R.quantize(R.matmul(d6, f2), R.const(0.05, "float32"), R.const(-7, "int8"), axis=-1, out_dtype="int8")
        d7 = R.dequantize(q7, R.const(0.05, "float32"), R.const(-7, "int8"), axis=-1, out_dtype="float32")
        r7 = R.reshape(d7, R.shape([1, 7, 6, 12]))
        q8 = R.quantize(r7, R.const(0.05, "float32"), R.const(-7, "int8"), axis=-1, out_dtype="int8")
        d8 = R.dequantize(q8, R.const(0.05, "float32"), R.const(-7, "int8"), axis=-1, out_dtype="float32")
        q9 = R.quantize(R.sigmoid(d8), R.const(0.004, "float32"), R.const(-128, "int8"), axis=-1, out_dtype="int8")
        d9 = R.dequantize(q9, R.const(0.004, "float32"), R.const(-128, "int8"), axis=-1, out_dtype="float32")
        r9 = R.reshape(d9, R.shape([42, 12]))
        q10 = R.quantize(r9, R.const(0.004, "float32"), R.const(-128, "int8"), axis=-1, out_dtype="int8")
        d10 = R.dequantize(q10, R.const(0.004, "float32"), R.const(-128, "int8"), axis=-1, out_dtype="float32")
        f3 = R.dequantize(w3, R.const(0.01, "float32"), R.const(0, "int8"), axis=-1, out_dtype="float32")
        q11 = R.quantize(R.matmul(d10, f3), R.const(0.03, "float32"), R.const(5, "int8"), axis=-1, out_dtype="int8")
        d11 = R.dequantize(q11, R.const(0.03, "float32"), R.const(5, "int8"), axis=-1, out_dtype="float32")
        return d11
"#;

/// Rule `pairs`: what is left of them are the bytes that kernels read, and a table from matrix to matrix.
#[test]
fn pairs_around_moves_go_away() {
    let weights = HashMap::from([
        ("w0".to_string(), constant(DType::I8, &[8, 4, 1, 1], byte)),
        ("w1".to_string(), constant(DType::I8, &[8, 8, 3, 3], byte)),
        ("w2".to_string(), constant(DType::I8, &[8, 12], byte)),
        ("w3".to_string(), constant(DType::I8, &[12, 10], byte)),
    ]);
    let typed = typed(PAIRS, &weights);
    let x = Value::Tensor(Tensor::from_constant(&constant(DType::F32, &[1, 4, 7, 6], |i| byte(i) * 0.02)));
    let wanted = run(&typed.module, &x);
    let options = relax_lower::Options { opt_level: 2, wide_bytes: 64, ..Default::default() };
    let typed = relax_lower::kernels(typed, &options, true).expect("it becomes kernels");
    let names: Vec<&str> = typed.module.funcs.iter().map(|f| f.name()).collect();
    let count = |name: &str| names.iter().filter(|n| n.starts_with(name)).count();
    assert_eq!(["qconv2d", "qmatmul", "qtable"].map(count), [2, 2, 1], "{names:?}");
    assert!(!names.iter().any(|n| n.contains("permute_dims")), "{names:?}");
    // Of the argument, of what the mean is taken off, and of the rows of the second product.
    assert_eq!(count("quantize"), 3, "{names:?}");
    assert_near(&wanted, &run(&typed.module, &x), 0.03);
}

/// Floats between kernels of bytes: what is joined, resized and averaged.
const BETWEEN: &str = r#"
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 4, 6, 8), "float32"), w0: R.Tensor((8, 4, 1, 1), "int8"), w1: R.Tensor((8, 12, 3, 3), "int8")
             ) -> R.Tensor((1, 8, 3, 4), "float32"):
        q0 = R.quantize(x, R.const(0.02, "float32"), R.const(3, "int8"), axis=-1, out_dtype="int8")
        d0 = R.dequantize(q0, R.const(0.02, "float32"), R.const(3, "int8"), axis=-1, out_dtype="float32")
        f0 = R.dequantize(w0, R.const(0.004, "float32"), R.const(0, "int8"), axis=0, out_dtype="float32")
        q1 = R.quantize(R.nn.conv2d(d0, f0), R.const(0.04, "float32"), R.const(11, "int8"), axis=-1, out_dtype="int8")
        d1 = R.dequantize(q1, R.const(0.04, "float32"), R.const(11, "int8"), axis=-1, out_dtype="float32")
        a2 = R.nn.avg_pool2d(R.concat((d0, d1), axis=1), pool_size=[2, 2], strides=[2, 2])
        q2 = R.quantize(a2, R.const(0.04, "float32"), R.const(5, "int8"), axis=-1, out_dtype="int8")
        d2 = R.dequantize(q2, R.const(0.04, "float32"), R.const(5, "int8"), axis=-1, out_dtype="float32")
        f1 = R.dequantize(w1, R.const(0.002, "float32"), R.const(0, "int8"), axis=0, out_dtype="float32")
        c3 = R.nn.conv2d(d2, f1, padding=[1, 1, 1, 1])
        q3 = R.quantize(c3, R.const(0.06, "float32"), R.const(4, "int8"), axis=-1, out_dtype="int8")
        d3 = R.dequantize(q3, R.const(0.06, "float32"), R.const(4, "int8"), axis=-1, out_dtype="float32")
        return d3
"#;

/// They have channels last, so that only the result is transposed.
#[test]
fn floats_between_bytes_have_channels_last() {
    let weights = HashMap::from([
        ("w0".to_string(), constant(DType::I8, &[8, 4, 1, 1], byte)),
        ("w1".to_string(), constant(DType::I8, &[8, 12, 3, 3], byte)),
    ]);
    let typed = typed(BETWEEN, &weights);
    let x = Value::Tensor(Tensor::from_constant(&constant(DType::F32, &[1, 4, 6, 8], |i| byte(i) * 0.02)));
    let wanted = run(&typed.module, &x);
    let options = relax_lower::Options { opt_level: 2, wide_bytes: 64, ..Default::default() };
    let typed = relax_lower::kernels(typed, &options, true).expect("it becomes kernels");
    let turned = typed.module.funcs.iter().filter(|f| f.name().contains("permute_dims"));
    assert_eq!(turned.map(|f| f.name()).collect::<Vec<_>>(), ["fused_dequantize_permute_dims"]);
    assert_near(&wanted, &run(&typed.module, &x), 0.06);
}

/// Rule `gathered bytes`: the table stays in bytes.
#[test]
fn rows_of_a_table_are_dequantised_when_they_are_taken() {
    let text = r#"
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 3), "int64"), w: R.Tensor((50, 64), "int8")) -> R.Tensor((2, 3, 64), "float32"):
        d = R.dequantize(w, R.const(0.5, "float32"), R.const(3, "int8"), axis=-1, out_dtype="float32")
        return R.take(d, x, axis=0)
"#;
    let weights = HashMap::from([("w".to_string(), constant(DType::I8, &[50, 64], byte))]);
    let typed = typed(text, &weights);
    let x = Value::Tensor(Tensor::from_i64(DType::I64, &[2, 3], &[0, 49, 7, 7, 30, 2]));
    let wanted = run(&typed.module, &x);
    let options = relax_lower::Options { opt_level: 2, wide_bytes: 64, ..Default::default() };
    let typed = relax_lower::kernels(typed, &options, true).expect("it becomes kernels");
    let mut largest = 0;
    typed.module.relax_funcs().for_each(|f| {
        f.body.walk(&mut |e| {
            if let relax_ir::relax::ExprKind::Constant(c) = e.kind() {
                largest = largest.max(c.size());
            }
        })
    });
    assert_eq!(largest, 50 * 64, "bytes");
    for (a, b) in wanted.leaves().iter().zip(run(&typed.module, &x).leaves()) {
        assert_eq!(a.to_f64(), b.to_f64());
    }
}
