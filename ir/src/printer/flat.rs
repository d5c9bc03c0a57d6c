//! Flat TIR, for people: there is no parser for it.

use super::scalar::quote;
use super::Printer;
use crate::flat::{Callee, FlatFunc, FlatModule, FlatStmt, Linkage};
use crate::module::IRModule;
use crate::prim::PrimExpr;

/// Functions, then data by size.
pub fn print_flat(module: &FlatModule) -> String {
    let mut out = String::new();
    for f in &module.funcs {
        out.push_str(&print_flat_func(f));
        out.push('\n');
    }
    for d in &module.data {
        let linkage = linkage(d.linkage);
        out.push_str(&format!("{linkage}data {}: {} bytes, align {}", d.symbol, d.bytes.get().len(), d.align));
        for (at, symbol, addend) in &d.relocs {
            out.push_str(&format!("\n    [{at}] = &{symbol}"));
            if *addend != 0 {
                out.push_str(&format!(" + {addend}"));
            }
        }
        out.push('\n');
    }
    out
}

/// One function.
pub fn print_flat_func(f: &FlatFunc) -> String {
    let mut p = Printer::new(&IRModule::default(), None);
    let mut params = vec![];
    for v in &f.params {
        let name = p.names.declare(v.id(), v.name());
        params.push(format!("{name}: {}", v.dtype()));
    }
    let ret = f.ret.map(|d| format!(" -> {d}")).unwrap_or_default();
    p.line(&format!("{}func {}({}){ret}:", linkage(f.linkage), f.name, params.join(", ")));
    p.nested(|p| p.flat_body(&f.body));
    p.out
}

fn linkage(l: Linkage) -> &'static str {
    match l {
        Linkage::Export => "export ",
        Linkage::Local => "",
        Linkage::Import => "import ",
    }
}

impl Printer<'_> {
    fn flat_body(&mut self, body: &[FlatStmt]) {
        if body.is_empty() {
            self.line("pass");
        }
        let mark = self.names.mark();
        body.iter().for_each(|s| self.flat_stmt(s));
        self.names.leave(mark);
    }

    fn flat_block(&mut self, body: &[FlatStmt]) {
        self.nested(|p| p.flat_body(body));
    }

    fn flat_stmt(&mut self, s: &FlatStmt) {
        match s {
            FlatStmt::Let { var, value } => {
                let value = self.prim(value);
                let name = self.names.declare(var.id(), var.name());
                self.line(&format!("{name}: {} = {value}", var.dtype()));
            }
            FlatStmt::Local { var, init } => {
                let init = self.prim(init);
                let name = self.names.declare(var.id(), var.name());
                self.line(&format!("local {name}: {} = {init}", var.dtype()));
            }
            FlatStmt::Assign { var, value } => {
                let value = self.prim(value);
                let name = self.var(var);
                self.line(&format!("{name} = {value}"));
            }
            FlatStmt::Store { ptr, offset, value } => {
                let d = value.dtype();
                let (ptr, offset, value) = (self.operand_of(ptr), self.prim(offset), self.prim(value));
                self.line(&format!("T.{d}({ptr}[{offset}]) = {value}"));
            }
            FlatStmt::For { var, begin, end, step, body } => {
                let (begin, end) = (self.prim(begin), self.prim(end));
                let mark = self.names.mark();
                let name = self.names.declare(var.id(), var.name());
                let step = if *step == 1 { String::new() } else { format!(", {step}") };
                self.line(&format!("for {name} in range({begin}, {end}{step}):"));
                self.flat_block(body);
                self.names.leave(mark);
            }
            FlatStmt::While { cond, body } => {
                let cond = self.prim(cond);
                self.line(&format!("while {cond}:"));
                self.flat_block(body);
            }
            FlatStmt::If { cond, then, otherwise } => {
                let cond = self.prim(cond);
                self.line(&format!("if {cond}:"));
                self.flat_block(then);
                if !otherwise.is_empty() {
                    self.line("else:");
                    self.flat_block(otherwise);
                }
            }
            FlatStmt::Call { callee, args, result } => {
                let target = callee.name.clone();
                self.flat_call(&target, callee, args, result.as_ref());
            }
            FlatStmt::CallIndirect { target, callee, args, result } => {
                let target = format!("({})", self.prim(target));
                self.flat_call(&target, callee, args, result.as_ref());
            }
            FlatStmt::Prefetch { ptr } => {
                let ptr = self.prim(ptr);
                self.line(&format!("prefetch({ptr})"));
            }
            FlatStmt::Stack { var, bytes, align } => {
                let name = self.names.declare(var.id(), var.name());
                self.line(&format!("{name}: handle = stack({bytes}, align={align})"));
            }
            FlatStmt::Address { var, symbol } => {
                let name = self.names.declare(var.id(), var.name());
                self.line(&format!("{name}: handle = address({})", quote(symbol)));
            }
            FlatStmt::Return(None) => self.line("return"),
            FlatStmt::Return(Some(e)) => {
                let e = self.prim(e);
                self.line(&format!("return {e}"));
            }
        }
    }

    fn flat_call(&mut self, target: &str, callee: &Callee, args: &[PrimExpr], result: Option<&crate::Var>) {
        let args = self.prims(args);
        match result {
            Some(v) => {
                let name = self.names.declare(v.id(), v.name());
                let d = callee.ret.unwrap_or(v.dtype());
                self.line(&format!("{name}: {d} = call {target}({args})"));
            }
            None => self.line(&format!("call {target}({args})")),
        }
    }
}
