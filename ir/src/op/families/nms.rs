//! Non-maximum suppression.

use crate::op::families::pending::pending;
use crate::op::*;

pub static OPS: &[OpDecl] = &[
OpDecl {
        name: "vision.get_valid_counts",
        doc: "Moves the boxes with a score above `score_threshold` to the front. Returns (count, boxes, indices).",
        params: &[operand("data"), attr("score_threshold", Default::Float(0.0)), attr("id_index", Default::Int(0)), attr("score_index", Default::Int(1))],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 0,
    },
OpDecl {
        name: "vision.non_max_suppression",
        doc: "Greedy suppression of overlapping boxes, hard or soft. Returns (indices, count), or the boxes when `return_indices` is false.",
        params: &[operand("data"), operand("valid_count"), operand("indices"), attr("max_output_size", Default::Int(-1)), attr("iou_threshold", Default::Float(0.5)), attr("force_suppress", Default::Bool(false)), attr("top_k", Default::Int(-1)), attr("coord_start", Default::Int(2)), attr("score_index", Default::Int(1)), attr("id_index", Default::Int(0)), attr("return_indices", Default::Bool(true)), attr("invalid_to_bottom", Default::Bool(false)), attr("soft_nms_sigma", Default::Float(0.0)), attr("score_threshold", Default::Float(0.0))],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 0,
    },
OpDecl {
        name: "vision.all_class_non_max_suppression",
        doc: "Greedy suppression for each class of each batch on its own (ONNX `NonMaxSuppression`).",
        params: &[operand("boxes"), operand("scores"), operand("max_output_boxes_per_class"), operand("iou_threshold"), operand("score_threshold"), attr("output_format", Default::Str("onnx"))],
        purity: Purity::Pure,
        infer: pending,
        compute: Compute::Unsupported("no computation yet"),
        ulp: 0,
    },
];
