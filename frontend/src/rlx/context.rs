//! What the translation of a file carries along: diagnostics, the module's names, the names of the current function.

use super::metadata::Metadata;
use super::python::Named;
use super::relax_func::Said;
use super::syntax::*;
use super::tir_stmt::{Pointer, View};
use super::unpack::Types;
use crate::suggest::nearest;
use fnv::{FnvHashMap, FnvHashSet};
use relax_ir::prim::PrimExpr;
use relax_ir::relax::{FuncInfo, RVar, StructInfo};
use relax_ir::tir::{Buffer, BufferRegion, TensorField};
use relax_ir::{DType, Diagnostic, Diagnostics, FileId, Span, Var};
use std::collections::HashMap;
use std::sync::Arc;

/// Hidden names, by their lengths.
static BLANKS: [u8; 1024] = [b' '; 1024];

/// What a name stands for.
#[derive(Clone, Debug)]
pub enum Value {
    Relax(RVar),
    /// A scalar: loop variable, block axis, let-bound value, parameter of a lambda.
    Prim(Var),
    /// One name for several loop variables or axes: `for iters in T.grid(m, n)`.
    Several(Vec<Var>),
    /// The variable of a loop with a step: its value, and the range that it goes through.
    Counted {
        value: PrimExpr,
        min: PrimExpr,
        extent: PrimExpr,
    },
    Buffer(Buffer),
    /// A buffer without memory: attributes name it.
    Described(Buffer),
    /// A place in the memory of a buffer: `p = A.data`.
    Data(Pointer),
    /// A part of a buffer: `r = A[0:4]`.
    Region(BufferRegion),
    /// A `T.handle` parameter, by its position.
    Handle(usize, Var),
    /// `cls = Module`
    Module,
    /// A value of Python, by its number.
    Python(usize),
    /// Bound by something that was not understood.
    Poison,
}

/// Where unknown names in dims become new shape variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Births {
    No,
    /// Quoted names, TypeVars and type parameters of a signature.
    Signature,
}

/// The names of a function.
pub struct Names<'a> {
    frames: Vec<FnvHashMap<&'a str, Value>>,
    /// The numbers of these scopes; none has that of another.
    scopes: Vec<usize>,
    /// How many scopes there were.
    begun: usize,
    /// Shape variables of a kernel, kept apart: what declares them may stand behind what names them. Those of a Relax
    /// function are names like others.
    pub dims: FnvHashMap<&'a str, Var>,
    /// Names that a kernel's own statements declared as dims, and how many scopes there were.
    declared: Vec<(&'a str, usize)>,
    /// Dims of a Relax function whose names bindings have taken.
    taken: FnvHashSet<&'a str>,
    pub births: Births,
    /// The type of a literal that nothing else decides: int64 in Relax, int32 in TIR.
    pub int: DType,
    /// Some dim was declared as int32 and is an int64 here.
    pub widened: bool,
    /// What a kernel declares such dims as.
    pub stated: HashMap<Var, DType>,
    /// `(min, extent)` of each loop variable in scope, by its id: what `T.axis.remap` reads.
    pub loops: FnvHashMap<u32, (PrimExpr, PrimExpr)>,
    /// The values of names in kernels (`v: T.let = ..`): sizes of memory are told by them.
    pub lets: HashMap<Var, PrimExpr>,
    /// Variables for the offsets of parameters' buffers.
    pub offsets: Vec<Var>,
    /// The axes of blocks that have more than one value, by their ids.
    pub moving: FnvHashSet<u32>,
    /// Types of variables, for what `*t` unpacks.
    pub types: Types,
    /// Parameters and bindings that are scalars, and the shape variables of those that dims and scalars name.
    pub scalars: HashMap<RVar, (DType, Option<Var>)>,
    /// Bindings of an `R.ExternFunc` that is a PrimFunc of the module, with the type that is stated.
    pub kernels: HashMap<RVar, Arc<FuncInfo>>,
    /// Bindings of scalars that are written down.
    pub known: HashMap<RVar, PrimExpr>,
    /// What a PrimFunc reads of the structs of its handles, these by position.
    pub read: Vec<(usize, TensorField, Var)>,
    /// The values behind [`Value::Python`].
    pub pythons: Vec<Named<'a>>,
    /// Those of them that another value may hold as well.
    pub shared: FnvHashSet<usize>,
    /// Two lists may hold the same one.
    pub entangled: bool,
    /// Names that were made, see [`Names::hidden_name`].
    hidden: usize,
    /// Hidden names for what a list holds: the name that it had, and its scope.
    held: FnvHashMap<&'a str, (&'a str, Option<usize>)>,
    /// Where the buffers of regions begin, by their ids: elements from where that of the region does.
    pub regions: FnvHashMap<u32, PrimExpr>,
    /// What memory of kernels states as its strides, by the ids of the buffers.
    pub strides: FnvHashMap<u32, Vec<PrimExpr>>,
    /// Buffers over the memory of others.
    pub views: Vec<View>,
    /// Buffers of vectors, by their ids: the last dim is their lanes.
    pub vectors: FnvHashSet<u32>,
}

impl<'a> Names<'a> {
    pub fn new(int: DType) -> Names<'a> {
        let frames = vec![FnvHashMap::default()];
        Names {
            frames,
            scopes: vec![1],
            begun: 1,
            dims: FnvHashMap::default(),
            declared: vec![],
            taken: FnvHashSet::default(),
            births: Births::No,
            int,
            widened: false,
            stated: HashMap::new(),
            loops: FnvHashMap::default(),
            lets: HashMap::new(),
            offsets: vec![],
            moving: FnvHashSet::default(),
            types: Types::default(),
            scalars: HashMap::new(),
            kernels: HashMap::new(),
            known: HashMap::new(),
            read: vec![],
            pythons: vec![],
            shared: FnvHashSet::default(),
            entangled: false,
            hidden: 0,
            held: FnvHashMap::default(),
            regions: FnvHashMap::default(),
            strides: FnvHashMap::default(),
            views: vec![],
            vectors: FnvHashSet::default(),
        }
    }
    /// Those of the function behind this one: the values before the module stay.
    pub fn following(&mut self, int: DType) -> Names<'a> {
        let (pythons, shared) = (std::mem::take(&mut self.pythons), std::mem::take(&mut self.shared));
        let begun = self.begun + 1;
        Names { pythons, shared, scopes: vec![begun], begun, ..Names::new(int) }
    }
    /// A name that no text has: for what a lambda holds and whose own name was bound again, for memory in lists.
    pub fn hidden_name(&mut self) -> Option<&'static str> {
        self.hidden += 1;
        BLANKS.get(..self.hidden).and_then(|b| std::str::from_utf8(b).ok())
    }
    /// A hidden name for what `name` stood for in this scope; it has no value where the scope has ended.
    pub fn hide(&mut self, name: &'a str, value: Option<Value>, scope: Option<usize>) -> Option<&'static str> {
        let hidden = self.hidden_name()?;
        let name = self.held.get(name).map_or(name, |(first, _)| first);
        self.held.insert(hidden, (name, scope));
        if let (Some(value), Some(outermost)) = (value, self.frames.first_mut()) {
            outermost.insert(hidden, value);
        }
        Some(hidden)
    }
    /// The name that what a list holds had before its scope ended.
    pub fn ended(&self, hidden: &str) -> Option<&'a str> {
        self.held.get(hidden).map(|(name, _)| *name)
    }
    /// The number of the scope that has this name.
    pub fn scope_of(&self, name: &str) -> Option<usize> {
        if let Some((_, scope)) = self.held.get(name) {
            return *scope;
        }
        self.frames.iter().rposition(|f| f.contains_key(name)).and_then(|at| self.scopes.get(at).copied())
    }
    pub fn is_open(&self, scope: Option<usize>) -> bool {
        scope.is_some_and(|s| self.scopes.contains(&s))
    }
    pub fn push(&mut self) {
        self.frames.push(FnvHashMap::default());
        self.begun += 1;
        self.scopes.push(self.begun);
    }
    pub fn pop(&mut self) {
        if self.frames.len() > 1 {
            self.frames.pop();
            self.scopes.pop();
            let left = self.frames.len();
            self.declared.retain(|(_, scopes)| *scopes <= left);
        }
    }
    pub fn bind(&mut self, name: &'a str, value: Value) {
        if matches!((self.get(name), &value), (Some(Value::Prim(_)), Value::Relax(_))) {
            self.taken.insert(name);
        }
        if let Some(f) = self.frames.last_mut() {
            f.insert(name, value);
        }
    }
    /// Are these the names of a PrimFunc?
    pub fn of_kernel(&self) -> bool {
        self.int == DType::I32
    }
    /// `name` is a shape variable from here on.
    pub fn declare(&mut self, name: &'a str, var: Var) {
        match self.of_kernel() {
            true => {
                self.dims.insert(name, var);
            }
            false => self.bind(name, Value::Prim(var)),
        }
    }
    /// A statement of the scope under way declares `name` as a dim of the kernel.
    pub fn note_declared(&mut self, name: &'a str) {
        self.declared.push((name, self.frames.len()));
    }
    /// Has a statement of the scope under way declared `name` as a dim of the kernel?
    pub fn is_declared(&self, name: &str) -> bool {
        self.declared.iter().any(|(n, scopes)| *n == name && *scopes == self.frames.len())
    }
    /// Was `name` a dim of this function before a binding took it?
    pub fn is_taken(&self, name: &str) -> bool {
        self.taken.contains(name)
    }
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.frames.iter().rev().find_map(|f| f.get(name))
    }
    /// What the innermost frame has under this name.
    pub fn own(&self, name: &str) -> Option<&Value> {
        self.frames.last().and_then(|f| f.get(name))
    }
    /// The scalar of this name.
    pub fn prim(&self, name: &str) -> Option<&Var> {
        match self.get(name) {
            Some(Value::Prim(v)) => Some(v),
            _ => self.dims.get(name),
        }
    }
    /// The name that stands for a dim here.
    pub fn name_of(&self, var: &Var) -> Option<&'a str> {
        let names = self.frames.iter().rev().flatten();
        let mut of = names.filter(|(_, v)| matches!(v, Value::Prim(v) if v == var)).map(|(n, _)| *n);
        of.find(|n| self.prim(n) == Some(var))
    }
    fn known(&self) -> impl Iterator<Item = &'a str> + '_ {
        self.frames.iter().flat_map(|f| f.keys().copied()).chain(self.dims.keys().copied())
    }
}

pub struct Cx<'a> {
    pub file: FileId,
    pub text: &'a str,
    pub diags: Diagnostics,
    /// The class.
    pub module_name: &'a str,
    /// Names of all functions of the module, also of those that could not be read.
    pub globals: Vec<&'a str>,
    /// What functions state of their results, where that is a tuple.
    pub results: HashMap<&'a str, StructInfo>,
    /// The names of PrimFuncs by the symbol that packed calls find them by.
    pub kernels: HashMap<String, &'a str>,
    /// `n = TypeVar("n")`
    pub type_vars: Vec<&'a str>,
    /// Values that Python has before the module, by name; their numbers hold in all functions.
    pub before: Vec<(&'a str, Value)>,
    pub metadata: Option<Metadata>,
    pub names: Names<'a>,
    /// The kinds of the virtual devices that the module lists, where it does.
    pub devices: Option<Vec<String>>,
    /// Python computes something in the text.
    pub python: bool,
    /// What the body of the function under way says of its signature.
    pub said: Said,
    /// The variables of the function's dataflow blocks that no `R.output` names, once their block has ended.
    pub ended: FnvHashSet<String>,
}

impl<'a> Cx<'a> {
    pub fn new(file: FileId, text: &'a str, diags: Diagnostics) -> Cx<'a> {
        Cx {
            file,
            text,
            diags,
            module_name: "Module",
            globals: vec![],
            results: HashMap::new(),
            kernels: HashMap::new(),
            type_vars: vec![],
            before: vec![],
            metadata: None,
            names: Names::new(DType::I64),
            devices: None,
            python: false,
            said: Said::default(),
            ended: FnvHashSet::default(),
        }
    }

    /// Reports; always `None`, for `return cx.error(..)`.
    pub fn error<T>(&mut self, code: &'static str, span: Span, message: impl Into<String>) -> Option<T> {
        self.report(Diagnostic::error(code, span, message))
    }

    pub fn unsupported<T>(&mut self, code: &'static str, span: Span, message: impl Into<String>) -> Option<T> {
        self.report(Diagnostic::unsupported(code, span, message))
    }

    pub fn report<T>(&mut self, d: Diagnostic) -> Option<T> {
        self.diags.push(d);
        None
    }

    /// "X is needed here, not Y"; silent about what was reported already.
    pub fn expected<T>(&mut self, e: &Expr<'a>, what: &str) -> Option<T> {
        if e.is_error() {
            return None;
        }
        self.error("argument", e.span, format!("{what} is needed here, not {}", e.describe()))
    }

    pub fn unknown_name<T>(&mut self, name: &str, span: Span) -> Option<T> {
        if let Some(first) = self.names.ended(name) {
            let message = format!("a list holds `{first}` here, whose scope has ended");
            let d = Diagnostic::error("python-value", span, message);
            return self.report(d.help(format!("use this element of the list where `{first}` is")));
        }
        let known: Vec<&str> = self.names.known().filter(|n| !n.starts_with(' ')).collect();
        let mut d = Diagnostic::error("unknown-name", span, format!("`{name}` is not defined"));
        if self.ended.contains(name) {
            d = d
                .help(format!("it ends with its dataflow block: name it in the block's last line, `R.output({name})`"));
        } else if let Some(n) = nearest(name, known) {
            d = d.help(format!("did you mean `{n}`?"));
        } else if self.type_vars.contains(&name) {
            d = d.help(format!("no dim of this function's signature is `{name}`, or a parameter is called so"));
        } else {
            d = d.help(format!("a shape variable is declared by `{name} = T.int64()`"));
        }
        self.report(d)
    }

    /// A data type in a string.
    pub fn dtype(&mut self, e: &Expr<'a>) -> Option<DType> {
        // `x.dtype`
        if let ExprKind::Attribute(base, field) = &e.kind {
            if let (Some(Value::Buffer(b)), "dtype") = (base.as_name().and_then(|n| self.names.get(n)), field.name) {
                return Some(b.dtype());
            }
        }
        if let Some(call) = e.as_call() {
            if call.func.dotted().as_deref() == Some("R.dtype") {
                let arg = call.arg(0, "value")?;
                return self.dtype(arg);
            }
        }
        let Some(s) = e.as_str() else { return self.expected(e, "a data type in quotes") };
        self.dtype_text(s, e.span)
    }

    pub fn dtype_text(&mut self, s: &str, span: Span) -> Option<DType> {
        if let Ok(d) = s.parse() {
            return Some(d);
        }
        match s {
            "float" => return Some(DType::F32),
            "int" => return Some(DType::I32),
            "uint" => return Some(DType::U32),
            "bool8" => return Some(DType::BOOL),
            _ => {}
        }
        // No width at all, and TVM's short names: `f32`, `i8`.
        let long = match s {
            "bfloat" | "bf16" => "bfloat16".to_string(),
            "float0" | "int0" | "uint0" => s.replace('0', "32"),
            _ => match s.split_at_checked(1) {
                Some(("f", bits)) => format!("float{bits}"),
                Some(("i", bits)) => format!("int{bits}"),
                Some(("u", bits)) => format!("uint{bits}"),
                _ => String::new(),
            },
        };
        if let Ok(d) = long.parse() {
            return Some(d);
        }
        if s.starts_with("custom[") {
            return self.unsupported("dtype", span, format!("the data type `{s}` is not supported"));
        }
        // LLVM has integers of any width, and so have TVM's kernels.
        let bits = s.strip_prefix('u').unwrap_or(s).strip_prefix("int").and_then(|b| b.parse::<u16>().ok());
        if let Some(bits) = bits.filter(|b| *b > 0) {
            let d = Diagnostic::unsupported("dtype", span, format!("integers of {bits} bits are not supported"));
            return self.report(d.help("integers have 1, 2, 4, 8, 16, 32 or 64 bits"));
        }
        const KNOWN: [&str; 13] = [
            "float32", "float16", "float64", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16",
            "uint32", "uint64", "bool",
        ];
        let mut d = Diagnostic::error("dtype", span, format!("`{s}` is no data type"));
        d = match nearest(s, KNOWN) {
            Some(n) => d.help(format!("did you mean \"{n}\"?")),
            None => d.help(format!("one of {}", KNOWN.join(", "))),
        };
        self.report(d)
    }

    /// An integer that must be known: `3`, `-1`, `T.int64(3)`.
    pub fn int(&mut self, e: &Expr<'a>) -> Option<i64> {
        let known = matches!(&e.kind, ExprKind::Int(_) | ExprKind::Unary(..) | ExprKind::Call(_) | ExprKind::Bool(_));
        if !known {
            return self.expected(e, "an integer");
        }
        match self.prim(e)?.as_int() {
            Some(v) => Some(v),
            None => self.expected(e, "an integer"),
        }
    }

    pub fn bool(&mut self, e: &Expr<'a>) -> Option<bool> {
        match e.kind {
            ExprKind::Bool(b) => Some(b),
            _ => self.int(e).map(|v| v != 0),
        }
    }

    pub fn string(&mut self, e: &Expr<'a>) -> Option<String> {
        if let Some(s) = self.text_of(e) {
            return Some(s);
        }
        if e.called().as_deref() == Some("R.str") {
            if let Some(s) = e.as_call().and_then(|c| c.arg(0, "value")).and_then(Expr::as_str) {
                return Some(s.to_string());
            }
        }
        self.expected(e, "a string")
    }
}
