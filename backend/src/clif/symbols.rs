//! The symbols of a module: what each name is, and how Cranelift functions refer to it.

use super::value::lane_type;
use cranelift_codegen::ir::{AbiParam, Signature};
use cranelift_codegen::isa::CallConv;
use fnv::FnvHashMap;
use relax_ir::flat::{Callee, FlatFunc, FlatModule, FlatStmt, Linkage};
use relax_ir::prim::PrimKind;
use relax_ir::{DType, Diagnostic, Span, TypeCode};

/// What a symbol stands for in the object.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// `FlatModule::funcs[i]`
    Func(usize),
    /// `FlatModule::data[i]`
    Data(usize),
    /// A string literal, NUL-terminated.
    Text(String),
    /// Defined elsewhere.
    ImportFunc,
    ImportData,
}

#[derive(Clone, Debug)]
pub(super) struct Symbol {
    pub name: String,
    pub kind: Kind,
    pub linkage: Linkage,
}

impl Symbol {
    pub fn is_func(&self) -> bool {
        matches!(self.kind, Kind::Func(_) | Kind::ImportFunc)
    }
}

/// All symbols, in a fixed order: functions, data, strings, imports.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    pub list: Vec<Symbol>,
    by_name: FnvHashMap<String, u32>,
    texts: FnvHashMap<String, u32>,
}

impl Symbols {
    /// Collects what is defined and what is used.
    ///
    /// # Errors
    /// A name defined twice, or with a NUL byte.
    pub fn new(module: &FlatModule) -> Result<Symbols, Diagnostic> {
        let mut s = Symbols::default();
        for (i, f) in module.funcs.iter().enumerate() {
            s.define(&f.name, Kind::Func(i), f.linkage, f.span)?;
        }
        for (i, d) in module.data.iter().enumerate() {
            s.define(&d.symbol, Kind::Data(i), d.linkage, Span::NONE)?;
        }
        for f in &module.funcs {
            s.collect(&f.body, f)?;
        }
        for d in &module.data {
            for (_, symbol, _) in &d.relocs {
                s.import(symbol, Kind::ImportData, Span::NONE)?;
            }
        }
        Ok(s)
    }

    pub fn get(&self, name: &str) -> Option<(u32, &Symbol)> {
        let i = *self.by_name.get(name)?;
        Some((i, &self.list[i as usize]))
    }

    pub fn text(&self, text: &str) -> Option<u32> {
        self.texts.get(text).copied()
    }

    fn define(&mut self, name: &str, kind: Kind, linkage: Linkage, span: Span) -> Result<(), Diagnostic> {
        if name.contains('\0') {
            return Err(Diagnostic::internal(span, format!("symbol {name:?} contains a NUL byte")));
        }
        let n = self.list.len() as u32;
        if self.by_name.insert(name.to_string(), n).is_some() {
            return Err(Diagnostic::internal(span, format!("symbol `{name}` is defined twice")));
        }
        self.list.push(Symbol { name: name.to_string(), kind, linkage });
        Ok(())
    }

    fn import(&mut self, name: &str, kind: Kind, span: Span) -> Result<(), Diagnostic> {
        match self.by_name.get(name) {
            Some(&i) => {
                // An address taken before the call was seen.
                if let (Kind::ImportData, Kind::ImportFunc) = (&self.list[i as usize].kind, &kind) {
                    self.list[i as usize].kind = kind;
                }
                Ok(())
            }
            None => self.define(name, kind, Linkage::Import, span),
        }
    }

    fn collect(&mut self, body: &[FlatStmt], f: &FlatFunc) -> Result<(), Diagnostic> {
        for s in body {
            match s {
                FlatStmt::Call { callee, .. } => self.import(&callee.name, Kind::ImportFunc, f.span)?,
                FlatStmt::Address { symbol, .. } => self.import(symbol, Kind::ImportData, f.span)?,
                _ => {}
            }
            for e in s.exprs() {
                e.walk(&mut |e| {
                    if let PrimKind::Str(t) = e.kind() {
                        self.add_text(t)
                    }
                });
            }
            for inner in stmt_bodies(s) {
                self.collect(inner, f)?;
            }
        }
        Ok(())
    }

    fn add_text(&mut self, text: &str) {
        if !self.texts.contains_key(text) {
            let n = self.list.len() as u32;
            self.texts.insert(text.to_string(), n);
            let name = format!(".Lstr.{}", self.texts.len());
            self.list.push(Symbol { name, kind: Kind::Text(text.to_string()), linkage: Linkage::Local });
        }
    }
}

/// The statement lists inside one statement.
pub(super) fn stmt_bodies(s: &FlatStmt) -> Vec<&[FlatStmt]> {
    match s {
        FlatStmt::For { body, .. } | FlatStmt::While { body, .. } => vec![body],
        FlatStmt::If { then, otherwise, .. } => vec![then, otherwise],
        _ => vec![],
    }
}

/// The C calling convention: small integers are extended, bool is one byte.
pub(super) fn signature(params: &[DType], ret: Option<DType>, conv: CallConv) -> Option<Signature> {
    let abi = |d: DType| -> Option<AbiParam> {
        if d.lanes != 1 {
            return None;
        }
        let p = AbiParam::new(lane_type(d)?);
        Some(match d.code {
            TypeCode::Int if d.bits < 64 => p.sext(),
            TypeCode::UInt | TypeCode::Bool if d.bits < 64 => p.uext(),
            _ => p,
        })
    };
    let mut sig = Signature::new(conv);
    for d in params {
        sig.params.push(abi(*d)?);
    }
    if let Some(d) = ret {
        sig.returns.push(abi(d)?);
    }
    Some(sig)
}

/// The signature of a function of the module.
pub(super) fn func_signature(f: &FlatFunc, conv: CallConv) -> Option<Signature> {
    let params: Vec<DType> = f.params.iter().map(|v| v.dtype()).collect();
    signature(&params, f.ret, conv)
}

/// The signature of a callee.
pub(super) fn callee_signature(c: &Callee, conv: CallConv) -> Option<Signature> {
    signature(&c.params, c.ret, conv)
}
