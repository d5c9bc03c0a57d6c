//! The module: decorators, classes, attributes, global infos, functions in the order written.

use super::context::Cx;
use super::relax_func::{decorator, first_line};
use super::syntax::*;
use super::unpack::outline;
use relax_ir::relax::StructInfo;
use relax_ir::{Diagnostic, Func, IRModule, Span};

impl<'a> Cx<'a> {
    /// `None` when the text has no module and no function.
    pub fn module(&mut self, tree: &[Stmt<'a>]) -> Option<IRModule> {
        let mut module = None;
        let mut loose: Vec<&Stmt<'a>> = vec![];
        for s in tree {
            match &s.kind {
                StmtKind::Class(class) => {
                    if module.is_some() {
                        let at = first_line(self.text, s.span);
                        let _: Option<()> = self.error("module", at, "a file holds one module, this is another");
                        continue;
                    }
                    module = Some(self.class(class));
                }
                StmtKind::Function(_) => loose.push(s),
                StmtKind::Assign { target, annotation: None, value: Some(value) } => self.prelude(target, value),
                StmtKind::Assign { annotation: Some(stated), .. } => {
                    let d = Diagnostic::error("module", stated.span, "a value before the module has no type");
                    self.diags.push(d.help("write `N = 4`"));
                }
                StmtKind::Import | StmtKind::Pass | StmtKind::Broken(_) => {}
                StmtKind::Expr(e) if matches!(e.kind, ExprKind::Str(_)) || e.is_error() => {}
                _ => {
                    let at = first_line(self.text, s.span);
                    let d = Diagnostic::error("module", at, "this belongs to no module");
                    self.diags.push(d.help("functions are inside of `@I.ir_module class Module:`"));
                }
            }
        }
        if module.is_some() {
            if let Some(s) = loose.first() {
                let at = first_line(self.text, s.span);
                let d = Diagnostic::error("module", at, "this function is outside of the module");
                self.diags.push(d.help("indent it into the class"));
            }
            return module;
        }
        if loose.is_empty() {
            if !self.diags.has_errors() {
                let d = Diagnostic::error("module", Span::new(self.file, 0, 0), "the text holds no module");
                self.diags.push(d.help("a module begins with `@I.ir_module` and `class Module:`"));
            }
            return None;
        }
        // The print of one function alone.
        let mut module = IRModule { name: "Module".into(), ..IRModule::default() };
        self.globals = loose.iter().filter_map(|s| function_name(s)).collect();
        loose.iter().for_each(|s| self.declare(s));
        for s in loose {
            self.member(s, &mut module);
        }
        Some(module)
    }

    fn class(&mut self, class: &ClassDef<'a>) -> IRModule {
        // TVM's parser takes a class without decorators as well: what a decorated class is when Python shows its source.
        let is_module = |d: &Expr| {
            matches!(
                decorator(d).as_deref(),
                Some("I.ir_module" | "tvm.script.ir_module" | "tvm.script.ir.ir_module" | "ir_module")
            ) || d.is_error()
        };
        if !class.decorators.is_empty() && !class.decorators.iter().any(is_module) {
            let d = Diagnostic::error("module", class.name.span, format!("`{}` is no module", class.name.name));
            self.diags.push(d.help("write `@I.ir_module` above the class"));
        }
        self.module_name = class.name.name;
        let mut module = IRModule { name: class.name.name.to_string(), ..IRModule::default() };
        let mut seen: Vec<(&'a str, Span)> = vec![];
        for s in &class.body {
            if let Some(name) = function_name(s) {
                if let StmtKind::Function(f) = &s.kind {
                    if let Some((_, first)) = seen.iter().find(|(n, _)| *n == name) {
                        let d = Diagnostic::error("module", f.name.span, format!("`{name}` is defined twice"))
                            .here("defined again")
                            .label(*first, "first defined here");
                        self.diags.push(d);
                    }
                    seen.push((name, f.name.span));
                }
                self.globals.push(name);
                self.declare(s);
            }
        }
        for s in &class.body {
            self.member(s, &mut module);
        }
        module
    }

    /// Remembers a stated result that is a tuple: functions before this one may unpack it. And PrimFuncs that have a
    /// symbol: they are packed functions of that name.
    fn declare(&mut self, s: &Stmt<'a>) {
        let StmtKind::Function(def) = &s.kind else { return };
        let private = |d: &Expr<'a>| {
            let stated = d.as_call().and_then(|c| c.keyword("private"));
            stated.is_some_and(|p| matches!(p.kind, ExprKind::Bool(true)))
        };
        let kernel = |d: &Expr<'a>| decorator(d).as_deref() == Some("T.prim_func");
        if def.decorators.iter().any(kernel) {
            let own = (!def.decorators.iter().any(private)).then(|| def.name.name.to_string());
            if let Some(symbol) = stated_symbol(def).or(own) {
                self.kernels.insert(symbol, def.name.name);
            }
        }
        if let Some(info @ StructInfo::Tuple(_)) = def.returns.as_ref().map(outline) {
            self.results.insert(def.name.name, info);
        }
    }

    fn member(&mut self, s: &Stmt<'a>, module: &mut IRModule) {
        if let (StmtKind::Expr(e), false) = (&s.kind, self.before.is_empty()) {
            self.begin_names();
            match self.written_out(e) {
                Ok(Some(new)) => return self.stated(&new, s, module),
                Ok(None) => {}
                Err(_) => return,
            }
        }
        match &s.kind {
            StmtKind::Function(def) => {
                let kinds: Vec<String> = def.decorators.iter().filter_map(decorator).collect();
                let f = if kinds.iter().any(|k| k == "R.function") {
                    self.relax_function(def, s.span).map(Func::Relax)
                } else if kinds.iter().any(|k| k == "T.prim_func") {
                    self.prim_func(def, s.span).map(Func::Prim)
                } else {
                    if !def.decorators.iter().any(Expr::is_error) {
                        self.foreign_function(def, &kinds);
                    }
                    None
                };
                module.funcs.extend(f);
            }
            StmtKind::Expr(e) => self.stated(e, s, module),
            StmtKind::Pass | StmtKind::Import | StmtKind::Broken(_) => {}
            _ if is_extern_function(s) => {}
            _ => self.stray(s),
        }
    }

    /// `I.module_attrs(..)` and `I.module_global_infos(..)`.
    fn stated(&mut self, e: &Expr<'a>, s: &Stmt<'a>, module: &mut IRModule) {
        match (e.called().as_deref(), e.as_call()) {
            (Some("I.module_attrs"), Some(call)) => {
                if let Some(attrs) = self.attrs_argument(call, e.span) {
                    if !module.attrs.is_empty() {
                        let d = Diagnostic::error("module", e.span, "the attributes of this module are stated already");
                        self.diags.push(d.help("one I.module_attrs({..}) holds them all"));
                    }
                    module.attrs = attrs;
                }
            }
            (Some("I.module_global_infos"), Some(call)) => {
                if let Some(infos) = self.global_infos(call) {
                    if !module.global_infos.is_empty() {
                        let message = "the global infos of this module are stated already";
                        let d = Diagnostic::error("module", e.span, message);
                        self.diags.push(d.help("one I.module_global_infos({..}) holds them all"));
                    }
                    module.global_infos = infos;
                }
            }
            _ if matches!(e.kind, ExprKind::Str(_)) || e.is_error() => {}
            _ => self.stray(s),
        }
    }

    fn foreign_function(&mut self, def: &FunctionDef<'a>, kinds: &[String]) {
        let d = match kinds.first() {
            None => Diagnostic::error("module", def.signature, format!("`{}` has no decorator", def.name.name)),
            Some(k) => {
                Diagnostic::unsupported("module", def.signature, format!("functions of `@{k}` are not supported"))
            }
        };
        self.diags.push(d.help("functions are `@R.function` (Relax) or `@T.prim_func` (TIR)"));
    }

    fn stray(&mut self, s: &Stmt<'a>) {
        let at = first_line(self.text, s.span);
        let d = Diagnostic::error("module", at, "a module holds functions and attributes only");
        self.diags.push(d.help("this line is neither; is it indented as it should be?"));
    }
}

/// `T.func_attr({"global_symbol": "symbol"})` among the statements of the function.
fn stated_symbol(def: &FunctionDef) -> Option<String> {
    def.body.iter().find_map(|s| {
        let StmtKind::Expr(e) = &s.kind else { return None };
        let call = e.as_call().filter(|_| e.called().as_deref() == Some("T.func_attr"))?;
        let ExprKind::Dict(entries) = &call.args.first()?.kind else { return None };
        let symbol = entries.iter().find(|(k, _)| k.as_str() == Some("global_symbol"))?;
        symbol.1.as_str().map(str::to_string)
    })
}

/// `f = R.ExternFunc("symbol")`, which no function of the module can be called by.
fn is_extern_function(s: &Stmt) -> bool {
    let StmtKind::Assign { target, value: Some(value), .. } = &s.kind else { return false };
    let symbol = value.as_call().and_then(|c| c.args.first()).and_then(Expr::as_str);
    target.as_name().is_some() && symbol.is_some() && value.called().as_deref() == Some("R.ExternFunc")
}

fn function_name<'a>(s: &Stmt<'a>) -> Option<&'a str> {
    match &s.kind {
        StmtKind::Function(f) => Some(f.name.name),
        StmtKind::Broken(n) => *n,
        _ => None,
    }
}
