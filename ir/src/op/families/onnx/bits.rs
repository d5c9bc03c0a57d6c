//! Bits of numbers: reinterpretation, small floating point formats, random numbers.

use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::op::elem::{convert, flat_index};
use crate::op::families::rules;
use crate::op::*;
use crate::prim::{BinOp, Intrin, PrimExpr, Var};
use crate::relax::StructInfo;
use crate::tir::PrimFunc;

pub static OPS: &[OpDecl] = &[
    OpDecl::pure(
        "onnx.bitcast",
        "The same bits as elements of `dtype`, which has the same width. Source: ONNX `BitCast`.",
        &[operand("x"), attr("dtype", Default::Required)],
        infer_bitcast,
        Compute::Kernel(bitcast),
    ),
    OpDecl::pure(
        "onnx.float_code",
        "The codes (uint8) of float32 numbers in a floating point format with `mantissa` bits and exponents from `1 - bias`, rounded half to even. `largest` is the code of the largest number; what is larger gets `overflow`, infinity `infinite`, NaN `nan`; `negative_zero` says whether there is one, the sign stands at bit `sign` (0: there is none). Source: ONNX `Cast` to float8 and float4.",
        &[
            operand("x"),
            attr("mantissa", Default::Required),
            attr("bias", Default::Required),
            attr("sign", Default::Int(7)),
            attr("largest", Default::Required),
            attr("overflow", Default::Required),
            attr("infinite", Default::Required),
            attr("nan", Default::Required),
            attr("negative_zero", Default::Bool(true)),
        ],
        infer_code,
        Compute::Kernel(code),
    ),
    OpDecl::pure(
        "onnx.exponent_code",
        "The exponents (uint8, bias 127) of float32 numbers, rounded `up`, `down` or to the `nearest`; 255 of NaN. Source: ONNX `Cast` to float8e8m0.",
        &[operand("x"), attr("rounding", Default::Str("up"))],
        infer_code,
        Compute::Kernel(exponent),
    ),
    OpDecl::pure(
        "onnx.random",
        "Numbers of [0, 1), the same for the same `seed`: a hash of each element's place. Source: splitmix64.",
        &[operand("dims"), attr("seed", Default::Int(0)), attr("dtype", Default::Str("float32"))],
        infer_random,
        Compute::Kernel(random),
    ),
];

fn infer_bitcast(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let x = rules::tensor(cx, 0)?;
    let to = cx.dtype("dtype")?.ok_or_else(|| cx.error("dtype is missing"))?;
    match x.dtype {
        Some(d) if d.bits != to.bits => Err(cx.error(format!("{d} and {to} differ in width"))),
        _ => Ok(StructInfo::Tensor(x.with_dtype(Some(to)))),
    }
}

fn bitcast(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let (x, out) = (&inputs[0], cx.result()?);
    let y = k.compute("bitcast", out.dims, out.dtype, |i| {
        let v = x.at(i);
        match (v.dtype().is_bool(), out.dtype.is_bool()) {
            (true, _) => v.cast(DType::U8).reinterpret(out.dtype),
            (_, true) => v.reinterpret(DType::U8).ne(PrimExpr::zero(DType::U8)),
            _ => v.reinterpret(out.dtype),
        }
    });
    Ok(k.finish(&[y]))
}

fn infer_code(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let x = rules::tensor(cx, 0)?;
    match x.dtype {
        Some(d) if d != DType::F32 => Err(cx.error(format!("x must be float32, it is {d}"))),
        _ => Ok(StructInfo::Tensor(x.with_dtype(Some(DType::U8)))),
    }
}

const I: DType = DType::I32;

fn c(v: i64) -> PrimExpr {
    PrimExpr::int(I, v)
}

fn shift(op: BinOp, a: PrimExpr, n: i64) -> PrimExpr {
    PrimExpr::binary(op, a, c(n))
}

fn with(name: &str, value: PrimExpr, body: impl FnOnce(PrimExpr) -> PrimExpr) -> PrimExpr {
    let v = Var::new(name, value.dtype());
    let body = body(v.expr());
    PrimExpr::let_in(v, value, body)
}

fn code(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let int = |name: &str| cx.attrs.int(name).ok_or_else(|| cx.error(format!("{name} must be an integer")));
    let (mantissa, bias, sign) = (int("mantissa")?, int("bias")?, int("sign")?);
    let (largest, overflow, infinite, nan) = (int("largest")?, int("overflow")?, int("infinite")?, int("nan")?);
    let zero = cx.attrs.bool("negative_zero").unwrap_or(true);
    let (mut k, inputs) = cx.kernel()?;
    let x = &inputs[0];
    let y = k.compute("code", &x.shape, DType::U8, |i| {
        with("bits", x.at(i).reinterpret(I), |bits| {
            let magnitude = PrimExpr::binary(BinOp::BitAnd, bits.clone(), c(0x7fff_ffff));
            let exponent = (shift(BinOp::Shr, magnitude.clone(), 23) - c(127)).max(c(1 - bias));
            let coded = with("exponent", exponent, |e| {
                // The number in units of its last place.
                let power = shift(BinOp::Shl, c(mantissa + 127) - e.clone(), 23).reinterpret(DType::F32);
                let units = (magnitude.clone().reinterpret(DType::F32) * power).call1(Intrin::NearbyInt).cast(I);
                units + (e + c(bias - 1)) * c(1 << mantissa)
            });
            let coded = with("code", coded, |v| v.clone().gt(c(largest)).select(c(overflow), v));
            let finite = with("rounded", coded, |v| {
                let signed = if sign == 0 {
                    v.clone()
                } else {
                    let s = shift(BinOp::Shl, shift(BinOp::Shr, bits.clone(), 31), sign);
                    v.clone() + PrimExpr::binary(BinOp::BitAnd, s, c(1 << sign))
                };
                if zero {
                    signed
                } else {
                    v.clone().eq(c(0)).or(v.clone().eq(c(1 << sign))).select(v, signed)
                }
            });
            let infinity = 0x7f80_0000;
            let endless = with("endless", c(infinite), |v| {
                let s = shift(BinOp::Shl, shift(BinOp::Shr, bits.clone(), 31), sign);
                match sign == 0 || !zero && infinite == 1 << sign {
                    true => v,
                    false => v + PrimExpr::binary(BinOp::BitAnd, s, c(1 << sign)),
                }
            });
            let v = magnitude.clone().eq(c(infinity)).select(endless, finite);
            magnitude.gt(c(infinity)).select(c(nan), v)
        })
    });
    Ok(k.finish(&[y]))
}

fn exponent(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, inputs) = cx.kernel()?;
    let x = &inputs[0];
    let how = cx.attrs.str("rounding").unwrap_or("up");
    let y = k.compute("code", &x.shape, DType::U8, |i| {
        with("bits", x.at(i).reinterpret(I), |bits| {
            let e = PrimExpr::binary(BinOp::BitAnd, shift(BinOp::Shr, bits.clone(), 23), c(255));
            let rest = PrimExpr::binary(BinOp::BitAnd, bits, c(0x7f_ffff));
            let up = match how {
                "down" => PrimExpr::bool(false),
                "nearest" => rest.clone().ge(c(0x40_0000)),
                _ => rest.clone().gt(c(0)),
            };
            let rounded = (e.clone() + up.select(c(1), c(0))).min(c(254));
            e.eq(c(255)).select(rest.eq(c(0)).select(c(254), c(255)), rounded)
        })
    });
    Ok(k.finish(&[y]))
}

fn infer_random(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let (dims, n) = cx.shape_operand(0)?;
    let dtype = cx.dtype("dtype")?.unwrap_or(DType::F32);
    Ok(match dims {
        Some(d) => rules::known(d, Some(dtype)),
        None => rules::unknown(n, Some(dtype)),
    })
}

fn random(cx: &ComputeCx) -> Result<PrimFunc, Diagnostic> {
    let (mut k, _) = cx.kernel()?;
    let out = cx.result()?;
    let seed = cx.attrs.int("seed").unwrap_or(0);
    let u = |v: u64| PrimExpr::int(DType::U64, v as i64);
    let y = k.compute("random", out.dims, out.dtype, |i| {
        let place = flat_index(i, out.dims).cast(DType::U64);
        let mixed = |x: PrimExpr, by: u64, factor: u64| {
            with("x", x, |x| {
                let x = PrimExpr::binary(BinOp::BitXor, x.clone(), PrimExpr::binary(BinOp::Shr, x, u(by)));
                x * u(factor)
            })
        };
        let x = (place + u(1)) * u(0x9e37_79b9_7f4a_7c15) + u((seed as u64).wrapping_mul(0xd134_2543_de82_ef95));
        let x = mixed(x, 30, 0xbf58_476d_1ce4_e5b9);
        let x = mixed(x, 27, 0x94d0_49bb_1331_11eb);
        let x = mixed(x, 31, 1);
        let top = PrimExpr::binary(BinOp::Shr, x, u(40)).cast(DType::I64);
        convert(top.cast(DType::F32) * PrimExpr::float(DType::F32, 1.0 / (1u64 << 24) as f64), out.dtype)
    });
    Ok(k.finish(&[y]))
}
