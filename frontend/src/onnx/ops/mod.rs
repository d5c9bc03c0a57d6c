//! Translations of operators: one entry per operator, one family per file.
//!
//! An entry names the domain, the operator and, for each version of the operator set in which its meaning changed, the
//! function that translates it. A node is translated by the newest entry that is not newer than the model's operator
//! set.

mod activation;
mod attention;
mod constant;
mod contrib;
mod control;
mod elementwise;
mod features;
mod fourier;
mod gradient;
mod image;
mod loss;
mod matmul;
mod movement;
mod nn;
mod norm;
mod normalize;
mod picture;
mod pool;
mod quant;
mod recurrent;
mod reduce;
mod regex;
mod rolled;
mod select;
mod sequence;
mod shape;
mod signal;
mod text;
mod training;
mod trees;
mod windows;

pub use control::{choose, join};

use super::node::NodeCx;
use super::schema;
use super::value::Value;
use super::Res;
use crate::suggest::nearest;
use std::collections::HashMap;
use std::sync::OnceLock;

/// Translates a node: the values of its outputs in order, as many as it makes (unused ones included).
pub type Translate = fn(&mut NodeCx) -> Res<Vec<Value>>;

/// An operator of ONNX and how it is translated.
pub struct OnnxOp {
    /// Empty for the standard's domain.
    pub domain: &'static str,
    pub name: &'static str,
    /// Ascending versions, each with the translation that holds from it on.
    pub since: &'static [(i64, Translate)],
}

/// An operator of the standard's domain.
pub const fn op(name: &'static str, since: &'static [(i64, Translate)]) -> OnnxOp {
    OnnxOp { domain: "", name, since }
}

/// An operator of another domain.
pub const fn op_of(domain: &'static str, name: &'static str, since: &'static [(i64, Translate)]) -> OnnxOp {
    OnnxOp { domain, name, since }
}

/// Every family's operators.
static FAMILIES: &[&[OnnxOp]] = &[
    activation::OPS,
    attention::OPS,
    constant::OPS,
    control::OPS,
    elementwise::OPS,
    features::OPS,
    gradient::OPS,
    image::OPS,
    fourier::OPS,
    loss::OPS,
    matmul::OPS,
    movement::OPS,
    nn::OPS,
    norm::OPS,
    normalize::OPS,
    picture::OPS,
    pool::OPS,
    quant::OPS,
    recurrent::OPS,
    reduce::OPS,
    regex::OPS,
    select::OPS,
    sequence::OPS,
    shape::OPS,
    signal::OPS,
    text::OPS,
    training::OPS,
    trees::OPS,
    windows::OPS,
];

/// Every operator.
pub fn all() -> impl Iterator<Item = &'static OnnxOp> {
    FAMILIES.iter().chain(contrib::FAMILIES).flat_map(|f| f.iter())
}

/// The translation of an operator in a version of its domain.
pub fn find(domain: &str, name: &str, version: i64) -> Option<Translate> {
    static TABLE: OnceLock<HashMap<(&'static str, &'static str), &'static OnnxOp>> = OnceLock::new();
    let table = TABLE.get_or_init(|| all().map(|o| ((o.domain, o.name), o)).collect());
    let op = table.get(&(domain, name))?;
    op.since.iter().rev().find(|(v, _)| *v <= version).or(op.since.first()).map(|(_, f)| *f)
}

/// The operator of the domain whose name is nearest, if there is none of this name.
pub fn similar(domain: &str, name: &str) -> Option<&'static str> {
    let known = || schema::names(domain).chain(all().filter(|o| o.domain == domain).map(|o| o.name));
    match known().any(|n| n == name) {
        true => None,
        false => nearest(name, known()),
    }
}

/// One result.
pub fn one(t: impl Into<Value>) -> Res<Vec<Value>> {
    Ok(vec![t.into()])
}
