//! Operators with effects, and markers without meaning at run time.
//!
//! Source: TVM `relax.print`, `relax.assert_op`, `relax.null_value`, `relax.to_vdevice`, ...

use crate::diag::Diagnostic;
use crate::op::{attr, operand, positional, Compute, Default, InferCx, OpDecl, ParamDecl, ParamKind, Purity};
use crate::relax::StructInfo;
use crate::DType;

const VALUES: ParamDecl =
    ParamDecl { name: "values", kind: ParamKind::Variadic, keyword: false, default: Default::None };
/// The format string, `{}` for each value: always the last operand.
const FORMAT: ParamDecl =
    ParamDecl { name: "format", kind: ParamKind::Operand, keyword: true, default: Default::Str("") };

const fn host(
    name: &'static str,
    doc: &'static str,
    params: &'static [ParamDecl],
    purity: Purity,
    infer: crate::op::InferFn,
) -> OpDecl {
    OpDecl { name, doc, params, purity, infer, compute: Compute::Host, ulp: 0 }
}

pub static OPS: &[OpDecl] = &[
    host(
        "print",
        "Prints values through a format string (`{}` for each value); without one, a list of the values.",
        &[VALUES, FORMAT],
        Purity::Impure,
        |_| Ok(StructInfo::unit()),
    ),
    host(
        "assert_op",
        "Stops with the formatted message when `condition`, a bool scalar, is false.",
        &[
            operand("condition"),
            ParamDecl { name: "format_args", kind: ParamKind::Variadic, keyword: false, default: Default::None },
            FORMAT,
        ],
        Purity::Impure,
        assert_op,
    ),
    host("null_value", "No value: the absent object.", &[], Purity::Pure, |_| Ok(StructInfo::Object)),
    host(
        "to_vdevice",
        "Copies a tensor to another device; the identity on one device.",
        &[operand("data"), positional("dst_vdevice", Default::Required)],
        Purity::Pure,
        to_vdevice,
    ),
    OpDecl {
        compute: Compute::Unsupported("a pass of TVM takes such hints away before it compiles a module"),
        ..host(
            "hint_on_device",
            "States on which device a tensor is.",
            &[
                operand("data"),
                positional("dst_vdevice", Default::Required),
                attr("memory_scope", Default::Str("global")),
            ],
            Purity::Pure,
            same,
        )
    },
    host(
        "builtin.stop_lift_params",
        "Marks where parameter lifting stops; the identity.",
        &[operand("x")],
        Purity::Pure,
        |cx| Ok(StructInfo::Tensor(cx.tensor(0)?.clone())),
    ),
    host(
        "builtin.copy",
        "A tensor of its own with the same elements: what is written to it, nobody else sees.",
        &[operand("x")],
        Purity::Pure,
        same,
    ),
    host(
        "wrap_param",
        "Casts a weight to `dtype` where it is used.",
        &[operand("data"), positional("dtype", Default::Str("float32"))],
        Purity::Pure,
        wrap_param,
    ),
];

/// The operand's own struct info.
fn same(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    cx.infos.first().cloned().ok_or_else(|| cx.error("the operand is missing"))
}

fn to_vdevice(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let mut t = cx.tensor(0)?.clone();
    t.vdevice = match cx.attrs.get("dst_vdevice") {
        Some(crate::AttrValue::GlobalInfo(d) | crate::AttrValue::Str(d)) => Some(d.clone()),
        _ => None,
    };
    Ok(StructInfo::Tensor(t))
}

fn wrap_param(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let mut t = cx.tensor(0)?.clone();
    t.dtype = cx.attrs.dtype("dtype").or(t.dtype);
    Ok(StructInfo::Tensor(t))
}

fn assert_op(cx: &mut InferCx) -> Result<StructInfo, Diagnostic> {
    let bad = match cx.infos.first() {
        Some(StructInfo::Tensor(t)) => t.dtype.is_some_and(|d| !d.is_bool()) || t.ndim.is_some_and(|n| n != 0),
        Some(StructInfo::Prim { dtype, .. }) => *dtype != DType::BOOL,
        Some(StructInfo::Object) => false,
        _ => true,
    };
    if bad {
        return Err(cx.error("the condition must be a bool scalar"));
    }
    Ok(StructInfo::unit())
}
