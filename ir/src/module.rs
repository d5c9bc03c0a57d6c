//! The module: named functions in the order written.

use crate::attrs::{AttrValue, Attrs};
use crate::relax::Function;
use crate::tir::PrimFunc;

#[derive(Clone, Debug, PartialEq)]
pub enum Func {
    Relax(Function),
    Prim(PrimFunc),
}

impl Func {
    pub fn name(&self) -> &str {
        match self {
            Func::Relax(f) => &f.name,
            Func::Prim(f) => &f.name,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct IRModule {
    /// The Python class name, `Module` unless written otherwise.
    pub name: String,
    pub funcs: Vec<Func>,
    pub attrs: Attrs,
    /// `I.module_global_infos({"vdevice": [..]})`
    pub global_infos: Vec<(String, Vec<AttrValue>)>,
}

impl IRModule {
    pub fn get(&self, name: &str) -> Option<&Func> {
        self.funcs.iter().find(|f| f.name() == name)
    }
    pub fn relax(&self, name: &str) -> Option<&Function> {
        match self.get(name) {
            Some(Func::Relax(f)) => Some(f),
            _ => None,
        }
    }
    pub fn prim(&self, name: &str) -> Option<&PrimFunc> {
        match self.get(name) {
            Some(Func::Prim(f)) => Some(f),
            _ => None,
        }
    }
    pub fn relax_funcs(&self) -> impl Iterator<Item = &Function> {
        self.funcs.iter().filter_map(|f| match f {
            Func::Relax(f) => Some(f),
            Func::Prim(_) => None,
        })
    }
    /// `base`, or `base1`, `base2`... : the first that no function has.
    pub fn fresh_name(&self, base: &str) -> String {
        if self.get(base).is_none() {
            return base.to_string();
        }
        (1..).map(|i| format!("{base}{i}")).find(|n| self.get(n).is_none()).unwrap_or_default()
    }
}
