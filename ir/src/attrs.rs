//! Attribute values of operators, functions, blocks and modules.

use crate::constant::Constant;
use crate::dtype::DType;
use crate::prim::{PrimExpr, Var};
use crate::relax::StructInfo;

/// The function attribute that says which dims were solved (`{"m_times_4": "m * 4"}`), and what became of conditions on
/// them (`{"m_times_4 // 4 < n": "m < n"}`).
/// Under [`SIGNATURE`] it holds the whole signature as it was.
pub const SOLVED_DIMS: &str = "tir_var_solved";

/// The function attribute that says for which variable each dim of a signature was solved (`{"m_times_4": "m"}`).
pub const SOLVED_VARS: &str = "tir_var_solved_for";

/// The function attribute that says what casts want of dims that were solved (`{"k_times_4 // 4 * 4": "k * 4"}`).
pub const CAST_DIMS: &str = "tir_var_cast";

/// See [`SOLVED_DIMS`].
pub const SIGNATURE: &str = "";

/// The function attribute with the condition under which a dim of [`SOLVED_DIMS`] has a solution, by dim.
pub const SOLVABLE: &str = "tir_var_solvable";

/// The function attribute with conditions on the shape variables of a signature, a list of texts (`["n % m == 0"]`).
pub const SHAPE_CONSTRAINTS: &str = "shape_constraints";

/// The function attribute that states divisors of shape variables (`{"n": 8}`), beside TVM's `tir_var_lower_bound` and
/// `tir_var_upper_bound`.
pub const VAR_DIVISOR: &str = "tir_var_divisor";

/// The function attribute with likely values of shape variables (`{"n": [1, 128]}`): calls with these sizes run code of
/// their own.
pub const VAR_LIKELY: &str = "tir_var_likely";

/// As [`VAR_LIKELY`], with likely divisors (`{"n": 16}`, or a list).
pub const VAR_LIKELY_DIVISOR: &str = "tir_var_likely_divisor";

/// The attribute of a private function that is another one for particular sizes: that one's name. Under [`FORM_WHEN`]
/// are the values and divisors of its shape variables.
pub const FORM_OF: &str = "relax_aot.form_of";

/// See [`FORM_OF`]: a list of texts such as `n == 128` and `n % 16 == 0`.
pub const FORM_WHEN: &str = "relax_aot.form_when";

/// The attribute of a private function that computes one image of another one's batch: that one's name.
pub const EACH_OF: &str = "relax_aot.each_of";

/// The attribute of a private function that computes another one's results from what [`EACH_OF`]'s gave for all images: that
/// one's name.
pub const REST_OF: &str = "relax_aot.rest_of";

#[derive(Clone, Debug, PartialEq)]
pub enum AttrValue {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(String),
    DType(DType),
    List(Vec<AttrValue>),
    /// In the order written.
    Dict(Vec<(String, AttrValue)>),
    /// A symbolic or typed scalar, e.g. `T.int64(3)` or `n`.
    Prim(PrimExpr),
    /// `T.index_map(lambda i, j: (..))`
    IndexMap(IndexMap),
    StructInfo(Box<StructInfo>),
    Const(Constant),
    /// `I.vdevice(..)` and the other kinds of global infos, kept as text.
    GlobalInfo(String),
}

#[derive(Clone, Debug, PartialEq)]
pub struct IndexMap {
    pub params: Vec<Var>,
    pub results: Vec<PrimExpr>,
}

impl AttrValue {
    pub fn as_int(&self) -> Option<i64> {
        match self {
            AttrValue::Int(v) => Some(*v),
            AttrValue::Bool(b) => Some(*b as i64),
            AttrValue::Prim(p) => p.as_int(),
            _ => None,
        }
    }
    pub fn as_float(&self) -> Option<f64> {
        match self {
            AttrValue::Float(v) => Some(*v),
            AttrValue::Prim(p) => p.as_float().or_else(|| p.as_int().map(|v| v as f64)),
            _ => self.as_int().map(|v| v as f64),
        }
    }
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            AttrValue::Bool(b) => Some(*b),
            _ => self.as_int().map(|v| v != 0),
        }
    }
    pub fn as_str(&self) -> Option<&str> {
        match self {
            AttrValue::Str(s) => Some(s),
            _ => None,
        }
    }
    pub fn as_dtype(&self) -> Option<DType> {
        match self {
            AttrValue::DType(d) => Some(*d),
            AttrValue::Str(s) => s.parse().ok(),
            _ => None,
        }
    }
    pub fn as_list(&self) -> Option<&[AttrValue]> {
        match self {
            AttrValue::List(v) => Some(v),
            _ => None,
        }
    }
    /// A list of integers; a lone integer counts as a list of one.
    pub fn as_ints(&self) -> Option<Vec<i64>> {
        match self {
            AttrValue::List(v) => v.iter().map(AttrValue::as_int).collect(),
            _ => self.as_int().map(|v| vec![v]),
        }
    }
    pub fn is_none(&self) -> bool {
        matches!(self, AttrValue::None)
    }
}

/// Named attributes in the order written (operators: in the order declared).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attrs(pub Vec<(String, AttrValue)>);

impl Attrs {
    pub fn get(&self, name: &str) -> Option<&AttrValue> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, v)| v)
    }
    /// Replaces or appends.
    pub fn set(&mut self, name: &str, value: AttrValue) {
        match self.0.iter_mut().find(|(n, _)| n == name) {
            Some((_, v)) => *v = value,
            None => self.0.push((name.to_string(), value)),
        }
    }
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    pub fn int(&self, name: &str) -> Option<i64> {
        self.get(name)?.as_int()
    }
    pub fn float(&self, name: &str) -> Option<f64> {
        self.get(name)?.as_float()
    }
    pub fn bool(&self, name: &str) -> Option<bool> {
        self.get(name)?.as_bool()
    }
    pub fn str(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str()
    }
    pub fn ints(&self, name: &str) -> Option<Vec<i64>> {
        self.get(name)?.as_ints()
    }
    pub fn dtype(&self, name: &str) -> Option<DType> {
        self.get(name)?.as_dtype()
    }
}
