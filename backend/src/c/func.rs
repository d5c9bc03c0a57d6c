//! One flat function to one C function: statements.

use super::names::Names;
use super::pointers::{element_bytes, Definitions, Pointers};
use super::ranges::{of_type, Ranges};
use super::support::Used;
use super::types::{memory_type, value_type, Pointee};
use fnv::{FnvHashMap, FnvHashSet};
use relax_ir::flat::{Callee, FlatFunc, FlatStmt};
use relax_ir::prim::{BinOp, PrimExpr, PrimKind, Var};
use relax_ir::{DType, Diagnostic};
use std::collections::HashSet;

/// A piece of C with how tightly it binds.
#[derive(Clone, Debug)]
pub struct Text {
    pub s: String,
    pub level: Level,
    /// For int64 values on machines of 32 bits: the C type is `int32_t` or `int`, which holds the value.
    pub narrow: bool,
}

/// From tight to loose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Atom,
    Unary,
    Mul,
    Add,
    /// Shifts, comparisons, bits, logic, `?:`: in parentheses wherever they are operands.
    Loose,
}

impl Text {
    pub fn atom(s: impl Into<String>) -> Text {
        Text { s: s.into(), level: Level::Atom, narrow: false }
    }
    pub fn new(s: impl Into<String>, level: Level) -> Text {
        Text { s: s.into(), level, narrow: false }
    }
    /// As an operand where at most `level` may stand without parentheses.
    pub fn at(&self, level: Level) -> String {
        if self.level <= level {
            self.s.clone()
        } else {
            format!("({})", self.s)
        }
    }
}

/// What a variable stands for.
#[derive(Clone)]
pub enum Bound {
    Value(Text),
    /// A vector in an array of this name.
    Array(String),
}

/// What every function of the file shares.
pub struct Shared<'a> {
    pub pointer_bytes: u32,
    /// Parameter types of the functions of the file.
    pub signatures: &'a FnvHashMap<String, Vec<Param>>,
    /// Element types of the data of the file; `None` for bytes.
    pub data: &'a FnvHashMap<String, Option<DType>>,
    /// Data that is a struct, since there are pointers in it.
    pub structs: &'a FnvHashSet<&'a str>,
}

/// A parameter of a C function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Param {
    Pointer(Pointee),
    Number(DType),
}

/// A line (or a nested block of lines).
struct Line {
    text: String,
    /// It does nothing but define this name.
    defines: Option<String>,
}

pub struct Fx<'a> {
    pub shared: &'a Shared<'a>,
    pub f: &'a FlatFunc,
    pub used: &'a mut Used,
    pub names: Names,
    pub ranges: Ranges,
    pub definitions: Definitions,
    pub pointers: Pointers,
    /// Variables that are assigned to.
    pub locals: FnvHashSet<u32>,
    /// Variables that are read.
    read: FnvHashSet<u32>,
    pub bindings: FnvHashMap<u32, Bound>,
    blocks: Vec<Vec<Line>>,
    /// Named values of shared nodes; one layer per block of the statement at hand.
    pub memo: Vec<FnvHashMap<usize, Text>>,
    /// Nodes that the statement at hand has in several places.
    pub repeated: FnvHashSet<usize>,
    /// Inside a loop over lanes, whose index is `l`.
    pub lane: bool,
    /// Expressions made on the way: nodes are known by their address while a statement is translated.
    kept: Vec<PrimExpr>,
}

/// Names in `text`, in no order.
fn identifiers(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|t| !t.is_empty())
}

pub fn indent(text: &str) -> String {
    let mut out = String::new();
    for l in text.lines() {
        if !l.is_empty() {
            out += "  ";
            out += l;
        }
        out.push('\n');
    }
    out
}

impl<'a> Fx<'a> {
    pub fn new(shared: &'a Shared<'a>, f: &'a FlatFunc, used: &'a mut Used) -> Fx<'a> {
        let definitions = Definitions::new(&f.body);
        let (mut locals, mut read) = (FnvHashSet::default(), FnvHashSet::default());
        uses(&f.body, &mut locals, &mut read, &mut FnvHashSet::default());
        let pointers = Pointers::new(f, &definitions, &locals, shared.pointer_bytes);
        Fx {
            shared,
            f,
            used,
            names: Names::default(),
            ranges: Ranges::default(),
            definitions,
            pointers,
            locals,
            read,
            bindings: FnvHashMap::default(),
            blocks: vec![],
            memo: vec![FnvHashMap::default()],
            repeated: FnvHashSet::default(),
            lane: false,
            kept: vec![],
        }
    }

    pub fn fault(&self, message: impl Into<String>) -> Diagnostic {
        Diagnostic::internal(self.f.span, format!("`{}` to C: {}", self.f.name, message.into()))
    }

    /// Whether 64-bit integers are costly: those that fit are declared with 32 bits.
    pub fn narrows(&self) -> bool {
        self.shared.pointer_bytes < 8
    }

    pub fn remember(&mut self, e: PrimExpr) {
        self.kept.push(e);
    }

    pub fn use_helper(&mut self, name: &'static str) -> &'static str {
        self.used.insert(name);
        name
    }

    // ---- lines ----------------------------------------------------------------------------------------------------

    pub fn line(&mut self, text: impl Into<String>) {
        if let Some(b) = self.blocks.last_mut() {
            b.push(Line { text: text.into(), defines: None });
        }
    }

    pub fn define(&mut self, name: &str, text: String) {
        if let Some(b) = self.blocks.last_mut() {
            b.push(Line { text, defines: Some(name.to_string()) });
        }
    }

    pub fn open(&mut self) {
        self.blocks.push(vec![]);
        self.names.open();
    }

    /// The text of the innermost block, without definitions that nothing uses.
    pub fn close(&mut self) -> String {
        self.names.close();
        let lines = self.blocks.pop().unwrap_or_default();
        let mut used: HashSet<String> = HashSet::new();
        let mut kept = vec![];
        for l in lines.into_iter().rev() {
            if l.defines.as_ref().is_some_and(|d| !used.contains(d)) {
                continue;
            }
            used.extend(identifiers(&l.text).map(str::to_string));
            kept.push(l.text);
        }
        kept.reverse();
        kept.into_iter().map(|l| if l.ends_with('\n') { l } else { l + "\n" }).collect()
    }

    /// Runs `f` in a block of its own that may not be run: what it names is not known outside.
    pub fn branch<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T, Diagnostic>) -> Result<(T, String), Diagnostic> {
        self.open();
        self.memo.push(FnvHashMap::default());
        let r = f(self);
        self.memo.pop();
        let text = self.close();
        Ok((r?, text))
    }

    // ---- function -------------------------------------------------------------------------------------------------

    /// Binds the parameters by `declared` C names and gives the function's body.
    pub fn body(&mut self, declared: &[(String, Text)]) -> Result<String, Diagnostic> {
        self.open();
        for (v, (name, text)) in self.f.params.iter().zip(declared) {
            self.names.take(name);
            self.bindings.insert(v.id(), Bound::Value(text.clone()));
        }
        self.stmts(&self.f.body)?;
        if let (Some(_), false) = (self.f.ret, matches!(self.f.body.last(), Some(FlatStmt::Return(_)))) {
            self.line("return 0;");
        }
        let mut text = self.close();
        let used: HashSet<&str> = identifiers(&text).collect();
        let unused: String = declared
            .iter()
            .filter(|(name, _)| !used.contains(name.as_str()))
            .map(|(name, _)| format!("(void)({name});\n"))
            .collect();
        text.insert_str(0, &unused);
        Ok(indent(&text))
    }

    pub fn stmts(&mut self, body: &[FlatStmt]) -> Result<(), Diagnostic> {
        for s in body {
            self.start(s);
            self.stmt(s)?;
            if matches!(s, FlatStmt::Return(_)) {
                break;
            }
        }
        Ok(())
    }

    /// Forgets the last statement and finds the nodes that this one repeats.
    fn start(&mut self, s: &FlatStmt) {
        self.ranges.forget();
        self.memo.iter_mut().for_each(|m| m.clear());
        self.repeated.clear();
        self.kept.clear();
        let mut seen = FnvHashSet::default();
        for e in s.exprs() {
            count(e, &mut seen, &mut self.repeated);
        }
    }

    fn stmt(&mut self, s: &FlatStmt) -> Result<(), Diagnostic> {
        match s {
            FlatStmt::Let { var, value } => self.bind(var, value)?,
            FlatStmt::Local { var, init } => {
                if !self.read.contains(&var.id()) {
                    return Ok(());
                }
                let d = var.dtype();
                let data = d.is_int();
                if d.lanes > 1 {
                    let name = self.array(var.name(), init)?;
                    self.bindings.insert(var.id(), Bound::Array(name));
                } else {
                    let v = self.value(init)?;
                    let name = self.names.add(var.name());
                    self.line(format!("{} = {};", declare(d, &name), v.s));
                    self.bindings.insert(var.id(), Bound::Value(Text::atom(name)));
                }
                if data {
                    self.ranges.set(var, of_type(d), true);
                }
            }
            FlatStmt::Assign { var, value } => {
                if !self.read.contains(&var.id()) {
                    return Ok(());
                }
                match self.bindings.get(&var.id()).cloned() {
                    Some(Bound::Value(t)) => {
                        let v = self.value(value)?;
                        self.line(format!("{} = {};", t.s, v.s));
                    }
                    Some(Bound::Array(name)) => self.lanes(value, var.dtype(), |v| format!("{name}[l] = {v};"))?,
                    None => return Err(self.fault(format!("assignment to `{}`, which is no local", var.name()))),
                }
            }
            FlatStmt::Store { ptr, offset, value } => self.store(ptr, offset, value)?,
            FlatStmt::For { var, begin, end, step, body } => self.for_loop(var, begin, end, *step, body)?,
            FlatStmt::While { cond, body } => {
                let (inner, text) = self.branch(|s| {
                    let c = s.condition(cond)?;
                    s.line(format!("if (!{}) break;", c.at(Level::Unary)));
                    s.stmts(body)
                })?;
                let () = inner;
                self.line(format!("for (;;) {{\n{}}}", indent(&text)));
            }
            FlatStmt::If { cond, then, otherwise } => {
                let c = self.condition(cond)?;
                let ((), yes) = self.branch(|s| s.stmts(then))?;
                let ((), no) = self.branch(|s| s.stmts(otherwise))?;
                let mut text = format!("if ({}) {{\n{}}}", c.s, indent(&yes));
                if !no.is_empty() {
                    text += &format!(" else {{\n{}}}", indent(&no));
                }
                self.line(text);
            }
            FlatStmt::Call { callee, args, result } => {
                let args = self.arguments(callee, args)?;
                self.called(format!("{}({})", callee.name, args.join(", ")), result.as_ref());
            }
            FlatStmt::CallIndirect { target, callee, args, result } => {
                let target = self.value(target)?;
                let args = self.arguments(callee, args)?;
                let params: Vec<String> = callee.params.iter().map(|d| self.abstract_type(*d)).collect();
                let ret = callee.ret.map_or("void".to_string(), |d| self.abstract_type(d));
                let params = if params.is_empty() { "void".to_string() } else { params.join(", ") };
                // Pointers to data and to functions convert through integers only.
                let function = format!("(({ret} (*)({params}))(uintptr_t){})", target.at(Level::Unary));
                self.called(format!("{function}({})", args.join(", ")), result.as_ref());
            }
            FlatStmt::Prefetch { .. } => {}
            FlatStmt::Stack { var, bytes, align } => {
                let p = self.pointers.pointee(var);
                let size = p.element.map_or(1, |d| element_bytes(d, self.shared.pointer_bytes)) as u32;
                let element = p.element.map_or("unsigned char", memory_type);
                let count = bytes.div_ceil(size).max(1);
                let name = self.names.add(var.name());
                self.define(&name, format!("ALIGNED({align}) {element} {name}[{count}];"));
                // What callees fill in: C compilers see a path on which they do not.
                if matches!(p.element, Some(d) if d.is_int()) && count <= 16 && has_call(&self.f.body) {
                    for i in 0..count {
                        self.line(format!("{name}[{i}] = 0;"));
                    }
                }
                let text = match p.element {
                    Some(_) => Text::atom(name),
                    None => Text::new(format!("(void *){name}"), Level::Unary),
                };
                self.bindings.insert(var.id(), Bound::Value(text));
            }
            FlatStmt::Address { var, symbol } => {
                let text = match self.shared.structs.contains(symbol.as_str()) {
                    true => Text::new(format!("(void *)&{symbol}"), Level::Unary),
                    false => Text::atom(symbol.clone()),
                };
                self.bindings.insert(var.id(), Bound::Value(text));
            }
            FlatStmt::Return(None) => self.line("return;"),
            FlatStmt::Return(Some(e)) => {
                let v = self.value(e)?;
                let cast = if e.dtype().is_handle() { "(void *)" } else { "" };
                self.line(format!("return {cast}{};", v.s));
            }
        }
        Ok(())
    }

    fn called(&mut self, call: String, result: Option<&Var>) {
        match result {
            Some(r) if self.read.contains(&r.id()) => {
                let name = self.names.add(r.name());
                self.line(format!("{} = {call};", declare(r.dtype(), &name)));
                if r.dtype().is_int() {
                    self.ranges.set(r, of_type(r.dtype()), true);
                }
                self.bindings.insert(r.id(), Bound::Value(Text::atom(name)));
            }
            Some(_) => self.line(format!("(void){call};")),
            None => self.line(format!("{call};")),
        }
    }

    /// Types in the prototype of a function that is called through a pointer.
    fn abstract_type(&self, d: DType) -> String {
        value_type(d).to_string()
    }

    fn arguments(&mut self, callee: &Callee, args: &[PrimExpr]) -> Result<Vec<String>, Diagnostic> {
        let shared = self.shared;
        let signature = shared.signatures.get(&callee.name);
        let mut out = vec![];
        for (i, a) in args.iter().enumerate() {
            let v = self.value(a)?;
            let symbol = shared.data.get(v.s.as_str());
            let param = match signature.and_then(|s| s.get(i)) {
                Some(Param::Pointer(p)) => *p,
                _ => Pointee::VOID,
            };
            let fits = match symbol {
                // Data is constant: passed as it is where nothing is written and the types agree.
                Some(element) => !param.writable && param.element.is_some() && *element == param.element,
                None => {
                    let p = self.pointee_of(a);
                    (p.writable || !param.writable) && (p.element.is_none() || p.element == param.element)
                }
            };
            let cast = a.dtype().is_handle() && !fits && v.s != "NULL" && !v.s.starts_with("(void *)");
            out.push(if cast { format!("(void *){}", v.at(Level::Unary)) } else { v.s });
        }
        Ok(out)
    }

    fn pointee_of(&self, e: &PrimExpr) -> Pointee {
        let mut e = e;
        while let PrimKind::PtrAdd(b, _) = e.kind() {
            e = b;
        }
        e.as_var().map_or(Pointee::VOID, |v| self.pointers.pointee(v))
    }

    fn for_loop(
        &mut self,
        var: &Var,
        begin: &PrimExpr,
        end: &PrimExpr,
        step: i64,
        body: &[FlatStmt],
    ) -> Result<(), Diagnostic> {
        let (b, e) = (self.ranges.of(begin), self.ranges.of(end));
        let mut stop = self.value(end)?;
        let start = self.value(begin)?;
        // The bound is computed once.
        if stop.level != Level::Atom || !(e.0 == e.1 || self.is_stable_name(end)) {
            let name = self.names.add("end");
            let narrow = stop.narrow;
            let d = if narrow { DType::I32 } else { end.dtype() };
            self.line(format!("const {} = {};", declare(d, &name), stop.s));
            stop = Text { s: name, level: Level::Atom, narrow };
        }
        let last = e.1.max(b.1).saturating_add(i128::from(step));
        let narrow = self.narrows() && var.dtype() == DType::I64 && fits32((b.0, last));
        let d = if narrow { DType::I32 } else { var.dtype() };
        self.open();
        self.memo.push(FnvHashMap::default());
        let name = self.names.add(var.name());
        self.bindings.insert(var.id(), Bound::Value(Text { s: name.clone(), level: Level::Atom, narrow }));
        // After the last step the variable is one step further.
        self.ranges.set(var, (b.0, b.0.max(e.1 - 1)), false);
        let done = self.stmts(body);
        self.memo.pop();
        let text = self.close();
        done?;
        let next = if step == 1 { format!("{name}++") } else { format!("{name} += {step}") };
        let head = format!("for ({} = {}; {name} < {}; {next}) {{\n", declare(d, &name), start.s, stop.s);
        self.line(format!("{head}{}}}", indent(&text)));
        Ok(())
    }

    /// Names a value.
    pub fn bind(&mut self, var: &Var, value: &PrimExpr) -> Result<(), Diagnostic> {
        let d = var.dtype();
        if d.lanes > 1 && !self.lane {
            let name = self.array(var.name(), value)?;
            self.bindings.insert(var.id(), Bound::Array(name));
            return Ok(());
        }
        if d.is_int() || d.is_bool() {
            let (range, data) = (self.ranges.of(value), self.ranges.is_data(value));
            let v = self.value(value)?;
            self.ranges.set(var, range, data);
            // Literals and other variables keep their own names.
            if v.level == Level::Atom && (range.0 == range.1 || self.is_stable_name(value)) {
                self.bindings.insert(var.id(), Bound::Value(v));
                return Ok(());
            }
            let narrow = self.narrows() && d == DType::I64 && fits32(range);
            self.named(var, if narrow { DType::I32.with_lanes(d.lanes) } else { d }, v, narrow);
            return Ok(());
        }
        let v = self.value(value)?;
        if v.level == Level::Atom && self.is_stable_name(value) {
            self.bindings.insert(var.id(), Bound::Value(v));
            return Ok(());
        }
        self.named(var, d, v, false);
        Ok(())
    }

    fn is_stable_name(&self, e: &PrimExpr) -> bool {
        e.as_var().is_some_and(|v| !self.locals.contains(&v.id()))
    }

    fn named(&mut self, var: &Var, d: DType, v: Text, narrow: bool) {
        let name = self.names.add(var.name());
        let head = if d.is_handle() { self.pointers.pointee(var).declare(&name) } else { declare(d.element(), &name) };
        let constant = if d.is_handle() { "" } else { "const " };
        self.define(&name, format!("{constant}{head} = {};", v.s));
        self.bindings.insert(var.id(), Bound::Value(Text { s: name, level: Level::Atom, narrow }));
    }

    /// A scalar that `if` and `while` test.
    pub fn condition(&mut self, e: &PrimExpr) -> Result<Text, Diagnostic> {
        if e.dtype().lanes != 1 {
            return Err(self.fault("a condition has several lanes"));
        }
        self.value(e)
    }

    /// The lvalue or value at `ptr[offset]`.
    pub fn element(&mut self, ptr: &PrimExpr, offset: &PrimExpr, d: DType) -> Result<Text, Diagnostic> {
        let d = d.element();
        let size = element_bytes(d, self.shared.pointer_bytes);
        let mut base = ptr;
        let mut bytes: Option<PrimExpr> = None;
        while let PrimKind::PtrAdd(b, k) = base.kind() {
            bytes = Some(bytes.map_or_else(|| k.clone(), |x| k.clone() + x));
            base = b;
        }
        let typed = base.as_var().is_some_and(|v| self.pointers.pointee(v).element == Some(d));
        let index = match &bytes {
            None => Some(offset.clone()),
            Some(k) => self.definitions.divide(k, size, &self.locals).map(|k| k + offset.clone()),
        };
        let p = self.value(base)?;
        if let (true, Some(index)) = (typed, &index) {
            self.kept.push(index.clone());
            let i = self.value(index)?;
            return Ok(Text::atom(format!("{}[{}]", p.at(Level::Atom), i.s)));
        }
        let bytes = bytes.unwrap_or_else(|| PrimExpr::i64(0));
        let at = bytes + offset.clone() * PrimExpr::i64(size);
        self.kept.push(at.clone());
        let at = self.value(&at)?;
        Ok(Text::atom(format!("AT({}, {}, {})", memory_type(d), p.s, at.s)))
    }

    fn store(&mut self, ptr: &PrimExpr, offset: &PrimExpr, value: &PrimExpr) -> Result<(), Diagnostic> {
        if self.pointers.never_read(ptr) {
            return Ok(());
        }
        let d = value.dtype();
        if d.lanes > 1 {
            return self.store_lanes(ptr, offset, value);
        }
        let v = self.value(value)?;
        let to = self.element(ptr, offset, d)?;
        let v = if d.is_handle() && !self.pointee_of(value).writable {
            format!("(void *){}", v.at(Level::Unary))
        } else {
            v.s
        };
        self.line(format!("{} = {v};", to.s));
        Ok(())
    }
}

pub fn fits32(r: (i128, i128)) -> bool {
    r.0 >= i128::from(i32::MIN) && r.1 <= i128::from(i32::MAX)
}

pub fn declare(d: DType, name: &str) -> String {
    let t = value_type(d);
    if t.ends_with('*') {
        format!("{t}{name}")
    } else {
        format!("{t} {name}")
    }
}

/// Nodes met twice.
fn count(e: &PrimExpr, seen: &mut FnvHashSet<usize>, repeated: &mut FnvHashSet<usize>) {
    let children = e.children();
    if children.is_empty() {
        return;
    }
    let key = e.kind() as *const PrimKind as usize;
    if !seen.insert(key) {
        if worth_a_name(e) {
            repeated.insert(key);
        }
        return;
    }
    children.into_iter().for_each(|c| count(c, seen, repeated));
}

/// Cheaper to name than to write and compute twice.
fn worth_a_name(e: &PrimExpr) -> bool {
    let leaf = |e: &PrimExpr| e.children().is_empty();
    match e.kind() {
        PrimKind::Load { .. } | PrimKind::Call(..) | PrimKind::IfThenElse(..) => true,
        PrimKind::PtrAdd(..) | PrimKind::Broadcast(_) | PrimKind::Ramp(..) | PrimKind::Let(..) => false,
        PrimKind::Cast(a) | PrimKind::Not(a) | PrimKind::Neg(a) => !leaf(a),
        PrimKind::Binary(op, a, b) if !a.dtype().is_float() => {
            !(leaf(a) && leaf(b) && matches!(op, BinOp::Add | BinOp::Sub | BinOp::Mul))
        }
        _ => true,
    }
}

fn has_call(body: &[FlatStmt]) -> bool {
    body.iter().any(|s| match s {
        FlatStmt::Call { .. } => true,
        FlatStmt::For { body, .. } | FlatStmt::While { body, .. } => has_call(body),
        FlatStmt::If { then, otherwise, .. } => has_call(then) || has_call(otherwise),
        _ => false,
    })
}

/// Variables that are assigned to.
pub fn locals(body: &[FlatStmt]) -> FnvHashSet<u32> {
    let mut locals = FnvHashSet::default();
    uses(body, &mut locals, &mut FnvHashSet::default(), &mut FnvHashSet::default());
    locals
}

/// Assigned variables, and variables that are read.
fn uses(body: &[FlatStmt], locals: &mut FnvHashSet<u32>, read: &mut FnvHashSet<u32>, seen: &mut FnvHashSet<usize>) {
    fn reads(e: &PrimExpr, read: &mut FnvHashSet<u32>, seen: &mut FnvHashSet<usize>) {
        if let PrimKind::Var(v) = e.kind() {
            read.insert(v.id());
        }
        let children = e.children();
        if !children.is_empty() && seen.insert(e.kind() as *const PrimKind as usize) {
            children.into_iter().for_each(|c| reads(c, read, seen));
        }
    }
    for s in body {
        s.exprs().into_iter().for_each(|e| reads(e, read, seen));
        match s {
            FlatStmt::Local { var, .. } => {
                locals.insert(var.id());
            }
            FlatStmt::For { body, .. } | FlatStmt::While { body, .. } => uses(body, locals, read, seen),
            FlatStmt::If { then, otherwise, .. } => {
                uses(then, locals, read, seen);
                uses(otherwise, locals, read, seen);
            }
            _ => {}
        }
    }
}
