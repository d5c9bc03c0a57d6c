//! What attributes may say: one of a few words, where others are refused and not taken for the default, and integers in
//! their range.

use super::proto::NodeProto;
use super::Res;
use relax_ir::analysis::limits::MOST;
use relax_ir::{Diagnostic, Span};

/// Operator (empty: all that have the attribute), attribute, what the standard allows.
const WORDS: &[(&str, &str, &[&str])] = &[
    ("", "auto_pad", &["", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]),
    ("", "post_transform", &["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]),
    ("", "reduction", &["none", "add", "mul", "max", "min", "mean", "sum"]),
    ("DepthToSpace", "mode", &["DCR", "CRD"]),
    ("Gelu", "approximate", &["none", "tanh"]),
    ("GridSample", "mode", &["linear", "nearest", "cubic", "bilinear", "bicubic"]),
    ("GridSample", "padding_mode", &["zeros", "border", "reflection"]),
    ("GRU", "direction", &["forward", "reverse", "bidirectional"]),
    ("LSTM", "direction", &["forward", "reverse", "bidirectional"]),
    ("Pad", "mode", &["constant", "reflect", "edge", "wrap"]),
    (
        "Resize",
        "coordinate_transformation_mode",
        &[
            "half_pixel",
            "half_pixel_symmetric",
            "pytorch_half_pixel",
            "align_corners",
            "asymmetric",
            "tf_half_pixel_for_nn",
            "tf_crop_and_resize",
        ],
    ),
    ("Resize", "keep_aspect_ratio_policy", &["stretch", "not_larger", "not_smaller"]),
    ("Resize", "mode", &["nearest", "linear", "cubic", "bilinear", "bicubic"]),
    ("Resize", "nearest_mode", &["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]),
    ("RNN", "direction", &["forward", "reverse", "bidirectional"]),
    ("RoiAlign", "coordinate_transformation_mode", &["half_pixel", "output_half_pixel"]),
    ("RoiAlign", "mode", &["avg", "max"]),
    ("StringNormalizer", "case_change_action", &["LOWER", "UPPER", "NONE"]),
    ("TfIdfVectorizer", "mode", &["TF", "IDF", "TFIDF"]),
    ("Upsample", "mode", &["nearest", "linear", "bilinear", "trilinear", "cubic"]),
];

/// Refuses a word that the standard does not have.
pub fn check(n: &NodeProto, op: &str) -> Res<()> {
    for a in &n.attribute {
        let (Some(name), Some(word)) = (a.name.as_deref(), &a.s) else { continue };
        let Some((.., words)) = WORDS.iter().find(|(o, w, _)| (o.is_empty() || *o == op) && *w == name) else {
            continue;
        };
        let word = String::from_utf8_lossy(word);
        if !words.contains(&word.as_ref()) {
            let known: Vec<&str> = words.iter().copied().filter(|w| !w.is_empty()).collect();
            let d = Diagnostic::error("onnx", Span::NONE, format!("attribute {name} is `{word}`"));
            return Err(d.help(format!("{name} is one of {}", known.join(", "))));
        }
    }
    Ok(())
}

/// Integers that are values and no counts: they are compared, never calculated with. `*` is any prefix.
const VALUES: &[&str] = &[
    "*_int64",
    "*_int64s",
    "classlabels_ints",
    "end",
    "ends",
    "ignore_index",
    "seed",
    "start",
    "starts",
    "value_int",
    "value_ints",
];

/// Refuses integers that are out of every range.
pub fn range(n: &NodeProto) -> Res<()> {
    for a in &n.attribute {
        let name = a.name.as_deref().unwrap_or_default();
        let value = |v: &&str| v.strip_prefix('*').map_or(**v == *name, |end| name.ends_with(end));
        let beyond = a.i.iter().chain(&a.ints).find(|v| !(-MOST..=MOST).contains(*v));
        if let Some(v) = beyond.filter(|_| !VALUES.iter().any(value)) {
            let message = format!("attribute {name} is {v}, out of range: at most {MOST} either way from 0");
            return Err(Diagnostic::error("onnx", Span::NONE, message));
        }
    }
    Ok(())
}
