//! Pooling over regions of interest and box decoding.

use crate::op::families::pending::pending;
use crate::op::*;

pub static OPS: &[OpDecl] = &[
    OpDecl {
        name: "vision.roi_align",
        doc: "Mean or maximum of bilinear samples over regions of interest `(batch index, x1, y1, x2, y2)`.",
        params: &[
            operand("data"),
            operand("rois"),
            attr("pooled_size", Default::Required),
            attr("spatial_scale", Default::Required),
            attr("sample_ratio", Default::Int(-1)),
            attr("aligned", Default::Bool(false)),
            attr("layout", Default::Str("NCHW")),
            attr("mode", Default::Str("avg")),
        ],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 8,
    },
    OpDecl {
        name: "vision.roi_pool",
        doc: "Maximum over the bins of regions of interest `(batch index, x1, y1, x2, y2)`.",
        params: &[
            operand("data"),
            operand("rois"),
            attr("pooled_size", Default::Required),
            attr("spatial_scale", Default::Required),
            attr("layout", Default::Str("NCHW")),
        ],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 0,
    },
    OpDecl {
        name: "vision.multibox_transform_loc",
        doc: "Decodes SSD boxes from anchors and location predictions. Returns (boxes, scores).",
        params: &[
            operand("cls_pred"),
            operand("loc_pred"),
            operand("anchor"),
            attr("clip", Default::Bool(false)),
            attr("threshold", Default::Float(0.0)),
            attr("variances", Default::None),
            attr("keep_background", Default::Bool(true)),
            attr("apply_softmax", Default::Bool(true)),
        ],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 8,
    },
];
