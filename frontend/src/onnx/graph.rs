//! Graphs, nodes and functions of a model.

use super::alternatives::Picked;
use super::builder::{Arg, Builder};
use super::kind::{knows, moves, storage, Kind};
use super::node::{counted, NodeCx};
use super::ops;
use super::proto::{
    AttributeProto, DimValue, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TypeProto,
    TypeValue, ValueInfoProto,
};
use super::tensor::{require_storage, External};
use super::value::{Tensor, Value};
use super::{choices, order, schema, stated, Options, Res, Structure};
use relax_ir::prim::Var;
use relax_ir::printer::is_reserved;
use relax_ir::program::{LABELS, RESULT_LABELS};
use relax_ir::relax::{Expr, ExprKind, Function, Param, RVar, StructInfo};
use relax_ir::{AttrValue, Attrs, DType, Diagnostic, Diagnostics, Func, IRModule, PrimExpr, Span};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

/// Functions within functions, graphs within graphs.
const MAX_DEPTH: usize = 64;
/// Nodes after functions are expanded and loops unrolled.
pub(super) const MAX_NODES: usize = 1_000_000;

/// Elements of a sequence that is an input.
const MAX_ELEMENTS: usize = 4096;

/// The newest version of the standard's operators.
const NEWEST_IR: i64 = 14;

/// Operator set versions by domain.
pub type Opsets = HashMap<String, i64>;

/// Imports one model.
pub struct Importer<'m> {
    pub b: Builder,
    pub diags: Diagnostics,
    pub external: External,
    functions: HashMap<(String, String, String), &'m FunctionProto>,
    scopes: Vec<Scope>,
    /// Opsets of the model or of the function that is being expanded.
    opsets: Vec<Opsets>,
    /// Shape variables by the name that the model gives them.
    dims: HashMap<String, Var>,
    depth: usize,
    /// Alternatives under translation.
    pub(super) picked: Picked,
    pub(super) nodes: usize,
    /// Where we are, for messages: names of functions and control flow nodes.
    path: Vec<String>,
    /// Attributes by operator that a warning told of.
    told: HashSet<(String, String)>,
}

/// Names of one graph; a function sees none of its caller's.
#[derive(Default)]
struct Scope {
    values: HashMap<String, Value>,
    /// Names that a later node of the graph gives: to tell an unsorted graph from a broken one.
    later: HashSet<String>,
    /// The nodes of the graph, where one of them differentiates others.
    nodes: Arc<[NodeProto]>,
    function: bool,
}

/// Imports the model's graph as a function.
pub fn model(m: &ModelProto, path: &Path, options: &Options) -> (Option<IRModule>, Diagnostics) {
    let mut im = Importer {
        b: Builder::new(),
        diags: Diagnostics::default(),
        external: External::beside(path),
        functions: HashMap::new(),
        scopes: vec![],
        opsets: vec![],
        dims: HashMap::new(),
        depth: 0,
        picked: vec![],
        nodes: 0,
        path: vec![],
        told: HashSet::new(),
    };
    for f in &m.functions {
        let key = (domain(f.domain.as_deref()), text(&f.name), text(&f.overload));
        im.functions.insert(key, f);
    }
    if m.ir_version.unwrap_or(0) > NEWEST_IR {
        im.diags.push(Diagnostic::warning(
            "onnx-version",
            Span::NONE,
            format!("the model has IR version {}, the newest known one is {NEWEST_IR}", m.ir_version.unwrap_or(0)),
        ));
    }
    let opsets = opsets(&m.opset_import);
    im.versions(&opsets);
    im.opsets.push(opsets);
    let Some(g) = &m.graph else {
        im.diags.push(Diagnostic::error("onnx", Span::NONE, format!("{}: the model has no graph", path.display())));
        return (None, im.diags);
    };
    if m.opset_import.is_empty() && m.ir_version.unwrap_or(0) >= 3 {
        im.diags.push(Diagnostic::error(
            "onnx-version",
            Span::NONE,
            format!("{}: the model imports no operator set", path.display()),
        ));
    }
    match im.main(g, options) {
        Ok(f) if !im.diags.has_errors() => {
            let mut module = std::mem::take(&mut im.b.module);
            module.funcs.insert(0, Func::Relax(f));
            (Some(module), im.diags)
        }
        Ok(_) => (None, im.diags),
        Err(d) => {
            im.diags.push(d);
            (None, im.diags)
        }
    }
}

fn opsets(list: &[OperatorSetIdProto]) -> Opsets {
    list.iter().map(|o| (domain(o.domain.as_deref()), o.version.unwrap_or(1))).collect()
}

/// The standard's domain has two names.
fn domain(d: Option<&str>) -> String {
    match d.unwrap_or("") {
        "ai.onnx" => String::new(),
        d => d.to_string(),
    }
}

fn text(s: &Option<String>) -> String {
    s.clone().unwrap_or_default()
}

/// A name as an identifier of a function parameter or a shape variable.
pub fn identifier(name: &str, fallback: &str) -> String {
    let mut out: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if out.chars().all(|c| c == '_') {
        out = fallback.to_string();
    }
    if out.starts_with(|c: char| c.is_ascii_digit()) {
        out.insert(0, '_');
    }
    out
}

impl<'m> Importer<'m> {
    /// Are the operator sets those that there are?
    fn versions(&mut self, opsets: &Opsets) {
        let none = opsets.iter().filter(|(_, v)| **v < 1).map(|(domain, v)| (domain.clone(), *v)).min();
        if let Some((domain, v)) = none {
            let domain = if domain.is_empty() { "ai.onnx" } else { &domain };
            let what = format!("the model imports operator set {v} of the domain {domain}: the first one is 1");
            self.diags.push(Diagnostic::error("onnx-version", Span::NONE, what));
        }
        let (newest, stated) = (schema::newest(), opsets.get("").copied().unwrap_or(1));
        if stated > newest {
            let what = format!("the model imports operator set {stated}, the newest known one is {newest}");
            self.diags.push(
                Diagnostic::warning("onnx-version", Span::NONE, what)
                    .help("operators mean here what they mean in the newest known one"),
            );
        }
    }

    /// The entry function.
    fn main(&mut self, g: &'m GraphProto, options: &Options) -> Res<Function> {
        let mut scope = Scope::default();
        self.initializers(g, &mut scope)?;
        let mut params = vec![];
        let mut names = HashSet::new();
        let mut labels = vec![];
        for (i, input) in g.input.iter().enumerate() {
            let name = text(&input.name);
            if scope.values.contains_key(&name) {
                continue;
            }
            let mut id = identifier(&name, &format!("input_{i}"));
            while is_reserved(&id) || !names.insert(id.clone()) {
                id.push('_');
            }
            if id != name {
                labels.push((id.clone(), AttrValue::Str(name.clone())));
            }
            let at = |d: Diagnostic| Diagnostic { message: format!("input `{name}`: {}", d.message), ..d };
            let structure = options.structures.iter().find(|(n, _)| *n == name).map(|(_, s)| s.clone());
            let value = input.type_info().and_then(|t| self.input(t, &id, structure, &mut params));
            let value = value.unwrap_or_else(|d| {
                self.diags.push(at(d));
                Value::Poison
            });
            scope.values.insert(name, value);
        }
        self.scopes.push(scope);
        self.body(&g.node);
        let mut results = vec![];
        let mut tensors = true;
        for o in &g.output {
            let name = text(&o.name);
            match self.lookup(&name) {
                Some(v) => {
                    let at = |d: Diagnostic| Diagnostic { message: format!("output `{name}`: {}", d.message), ..d };
                    let v = self.one_tensor(v)?;
                    self.diags.list.extend(stated::wrong(o, &v).map(at));
                    tensors &= matches!(v, Value::Tensor(_));
                    match self.result(&v) {
                        Ok(e) => results.push(e),
                        Err(d) => self.diags.push(at(d)),
                    }
                }
                None => self.diags.push(Diagnostic::error(
                    "onnx-name",
                    Span::NONE,
                    format!("output `{name}` of the graph is the name of no value"),
                )),
            }
        }
        self.scopes.pop();
        let body = match results.len() {
            1 => results.swap_remove(0),
            _ => Expr::new(ExprKind::Tuple(results), Span::NONE),
        };
        let seq = self.b.close(body);
        let name = options.entry.clone().unwrap_or_else(|| "main".to_string());
        let mut attrs = Attrs::default();
        if !labels.is_empty() {
            attrs.set(LABELS, AttrValue::Dict(labels));
        }
        // Sequences are several results each, which have numbers.
        if tensors {
            let names = g.output.iter().map(|o| AttrValue::Str(text(&o.name)));
            attrs.set(RESULT_LABELS, AttrValue::List(names.collect()));
        }
        Ok(Function {
            name,
            params,
            ret: None,
            body: Arc::new(seq),
            attrs,
            private: false,
            pure: true,
            span: Span::NONE,
            signature_span: Span::NONE,
        })
    }

    /// The result that a value of the graph is; sequences and optionals become tuples.
    fn result(&mut self, v: &Value) -> Res<Expr> {
        match v {
            Value::Tensor(t) => self.b.expr(t),
            Value::Sequence(items) => {
                let fields = items.iter().map(|i| self.result(i)).collect::<Res<Vec<_>>>()?;
                Ok(Expr::new(ExprKind::Tuple(fields), Span::NONE))
            }
            Value::Optional(Some(v)) => self.result(v),
            Value::Optional(None) => Ok(Expr::new(ExprKind::Tuple(vec![]), Span::NONE)),
            Value::Choice(..) => Err(Diagnostic::unsupported(
                "onnx-type",
                Span::NONE,
                "the structure of the result is only known at run time",
            )
            .help(
                "state the value of the input that decides it with --structure NAME=[VALUE]: code is compiled for it",
            )),
            // What made it was reported.
            Value::Poison => Ok(Expr::new(ExprKind::Tuple(vec![]), Span::NONE)),
        }
    }

    fn initializers(&mut self, g: &GraphProto, scope: &mut Scope) -> Res<()> {
        for t in &g.initializer {
            let value = match super::tensor::read(t, &mut self.external) {
                Ok(t) => t.into(),
                Err(d) => {
                    self.diags.push(d);
                    Value::Poison
                }
            };
            scope.values.insert(text(&t.name), value);
        }
        for s in &g.sparse_initializer {
            let name = s.values.as_ref().map(|v| text(&v.name)).unwrap_or_default();
            let value = match super::tensor::dense(s, &mut self.external) {
                Ok(c) => Tensor::constant(c).into(),
                Err(d) => {
                    self.diags.push(d);
                    Value::Poison
                }
            };
            scope.values.insert(name, value);
        }
        Ok(())
    }

    /// The value of a graph input, and the parameters that hold it: a sequence has one per element.
    fn input(&mut self, t: &TypeProto, id: &str, structure: Option<Structure>, params: &mut Vec<Param>) -> Res<Value> {
        let inner = |e: &super::proto::ElementType| {
            let t = e.elem_type.as_deref().cloned();
            t.ok_or_else(|| Diagnostic::error("onnx-type", Span::NONE, "a type of no elements"))
        };
        let length = match &structure {
            Some(Structure::Values(_)) if !matches!(t.value, Some(TypeValue::Tensor(_))) => {
                return Err(Diagnostic::error("structure", Span::NONE, "only a tensor has values"));
            }
            Some(Structure::Values(v)) => return self.fixed_input(t, id, &v.clone(), params),
            _ => structure.clone(),
        };
        match (&t.value, length) {
            (Some(TypeValue::Optional(_)), Some(Structure::Empty)) => Ok(Value::Optional(None)),
            (Some(TypeValue::Optional(e)), _) => {
                Ok(Value::Optional(Some(Box::new(self.input(&inner(e)?, id, structure, params)?))))
            }
            (Some(TypeValue::Sequence(e)), Some(Structure::Sequence { length, rank })) if length <= MAX_ELEMENTS => {
                let mut t = inner(e)?;
                if let Some(TypeValue::Tensor(t)) = &mut t.value {
                    if let (None, Some(rank)) = (&t.shape, rank.filter(|r| *r <= 64)) {
                        t.shape = Some(super::proto::TensorShapeProto { dim: vec![Default::default(); rank] });
                    }
                    // Each element has dims of its own.
                    for d in t.shape.iter_mut().flat_map(|s| &mut s.dim) {
                        d.value = d.value.take().filter(|v| matches!(v, DimValue::Value(_)));
                    }
                }
                let items = (0..length).map(|i| self.input(&t, &format!("{id}_{i}"), None, params));
                Ok(Value::Sequence(items.collect::<Res<_>>()?))
            }
            (Some(TypeValue::Sequence(_)), _) => {
                let d = "the length of the sequence must be known: code is compiled for it";
                Err(Diagnostic::unsupported("onnx-type", Span::NONE, d).help(
                    "state it with --structure NAME=LENGTH, or NAME=LENGTH:RANK when the elements state no shape",
                ))
            }
            _ => {
                let info = self.input_info(t, id)?;
                let var = self.b.var(id);
                let value = match self.param_value(&var, &info) {
                    Value::Tensor(v) => v.of_kind(kind_of(t)).into(),
                    v => v,
                };
                self.b.sinfo.insert(var.clone(), info.clone());
                params.push(Param { var, annotation: Some(info) });
                Ok(value)
            }
        }
    }

    /// An input of integers or bools whose values the code is compiled for; others are an error at run time.
    fn fixed_input(&mut self, t: &TypeProto, id: &str, values: &[i64], params: &mut Vec<Param>) -> Res<Value> {
        let Value::Tensor(x) = self.input(t, id, None, params)? else { return Ok(Value::Poison) };
        let wrong = |what: String| Diagnostic::error("structure", Span::NONE, what);
        if x.dtype.is_float() || x.kind != Kind::Plain {
            return Err(wrong("only the values of integers and bools can be stated".into()));
        }
        let dims: Option<Vec<usize>> = match (x.literal_dims(), x.rank()) {
            (None, 1) => Some(vec![values.len()]),
            (d, _) => d,
        };
        let Some(dims) = dims.filter(|d| d.iter().product::<usize>() == values.len()) else {
            return Err(wrong(format!(
                "{} stated, the input has {}",
                counted(values.len(), "value"),
                counted(x.rank(), "dim")
            )));
        };
        let n = PrimExpr::i64(values.len() as i64);
        let mut y = self.b.call("astype", &[(&x).into()], &[("dtype", AttrValue::DType(DType::I64))])?;
        y = self.b.call("reshape", &[(&y).into(), Arg::shape(&[n])], &[])?;
        let wanted = Tensor::ints(values);
        y = self.b.call("not_equal", &[(&y).into(), (&wanted).into()], &[])?;
        y = self.b.call("astype", &[(&y).into()], &[("dtype", AttrValue::DType(DType::I64))])?;
        let shape = self.b.shape_of_values(&y)?;
        let same = vec![PrimExpr::i64(0); values.len()];
        self.b.match_cast(&format!("{id}_as_stated"), shape, StructInfo::shape(same));
        let element = |v: &i64| match x.dtype.is_bool() {
            true => PrimExpr::bool(*v != 0),
            false => PrimExpr::int(x.dtype, *v),
        };
        Ok(Tensor::known(&dims, x.dtype, values.iter().map(element).collect()).into())
    }

    /// Struct info of a graph input.
    fn input_info(&mut self, t: &TypeProto, hint: &str) -> Res<StructInfo> {
        match &t.value {
            Some(TypeValue::Tensor(t)) => {
                let (dtype, kind) = require_storage(t.elem_type.unwrap_or(0))?;
                let Some(shape) = &t.shape else {
                    return Err(Diagnostic::unsupported("unknown-rank", Span::NONE, "the rank is not stated")
                        .help("state the shape of the input, with names for dims that vary"));
                };
                let dims = shape.dim.iter().enumerate();
                let dims = dims.map(|(i, d)| self.dim(d.value.as_ref(), &format!("{hint}_{i}")));
                let mut dims = dims.collect::<Res<Vec<_>>>()?;
                self.b.free_dims.extend(dims.iter().filter(|d| d.as_var().is_some()).cloned());
                if kind == Kind::Text {
                    dims.push(self.b.fresh_dim(&format!("{hint}_bytes")));
                }
                Ok(StructInfo::tensor(dims, dtype))
            }
            Some(_) => Err(Diagnostic::unsupported("onnx-type", Span::NONE, "only tensors are supported as inputs")),
            None => Err(Diagnostic::error("onnx-type", Span::NONE, "the type is not stated")),
        }
    }

    fn dim(&mut self, d: Option<&DimValue>, hint: &str) -> Res<PrimExpr> {
        match d {
            Some(DimValue::Value(v)) if *v >= 0 => Ok(PrimExpr::i64(*v)),
            // `?` is no name: exporters write it of each dim that varies, and so is a dim of -1.
            Some(DimValue::Param(p)) if p.chars().any(char::is_alphabetic) => Ok(self.dim_var(p).expr()),
            _ => Ok(self.b.fresh_dim(hint)),
        }
    }

    /// The shape variable of a `dim_param`.
    fn dim_var(&mut self, name: &str) -> Var {
        if let Some(v) = self.dims.get(name) {
            return v.clone();
        }
        let v = Var::dim(self.b.unique(&identifier(name, "n")));
        self.dims.insert(name.to_string(), v.clone());
        v
    }

    fn param_value(&mut self, var: &RVar, info: &StructInfo) -> Value {
        match info {
            StructInfo::Tensor(t) => match (t.known_dims(), t.dtype) {
                (Some(d), Some(dtype)) => Tensor::new(var.expr(), d.to_vec(), dtype).into(),
                _ => Value::Poison,
            },
            _ => Value::Poison,
        }
    }

    /// The value of a name: of this graph, or of the graphs around it.
    pub fn lookup(&self, name: &str) -> Option<Value> {
        for s in self.scopes.iter().rev() {
            if let Some(v) = s.values.get(name) {
                return Some(self.settled(v.clone()));
            }
            if s.function {
                break;
            }
        }
        None
    }

    /// The nodes of the graph under translation, for a node that differentiates them.
    pub fn nodes_here(&self) -> Arc<[NodeProto]> {
        self.scopes.last().map(|s| s.nodes.clone()).unwrap_or_default()
    }

    fn define(&mut self, name: &str, value: Value) {
        if let Some(s) = self.scopes.last_mut() {
            s.later.remove(name);
            s.values.insert(name.to_string(), value);
        }
    }

    /// Translates nodes in the order written, but what a node reads before it.
    fn body(&mut self, nodes: &[NodeProto]) {
        let nodes = &*order::sorted(nodes);
        if let Some(s) = self.scopes.last_mut() {
            if nodes.iter().any(|n| n.op_type.as_deref() == Some("Gradient")) {
                s.nodes = nodes.to_vec().into();
            }
            s.later = nodes.iter().flat_map(|n| n.output.iter()).filter(|o| !o.is_empty()).cloned().collect();
        }
        for n in nodes {
            match self.node(n) {
                Ok(values) => {
                    let mut values = values.into_iter();
                    for o in &n.output {
                        let v = values.next();
                        if o.is_empty() {
                            continue;
                        }
                        if self.scopes.last().is_some_and(|s| s.values.contains_key(o)) {
                            let d = Diagnostic::error("onnx", Span::NONE, format!("`{o}` has a value already"));
                            let d =
                                self.at(n, d.help("each name is the output of one node, an input or an initializer"));
                            self.diags.push(d);
                        }
                        if v.is_none() {
                            let d = Diagnostic::unsupported(
                                "onnx-output",
                                Span::NONE,
                                format!("output `{o}` is not supported"),
                            );
                            let d = self.at(n, d);
                            self.diags.push(d);
                        }
                        self.define(o, v.unwrap_or(Value::Poison));
                    }
                }
                Err(d) => {
                    if let Some(d) = d {
                        let d = self.at(n, d);
                        self.diags.push(d);
                    }
                    for o in &n.output {
                        self.define(o, Value::Poison);
                    }
                }
            }
        }
    }

    /// A diagnostic with its place.
    pub fn at(&self, n: &NodeProto, d: Diagnostic) -> Diagnostic {
        let op = n.op_type.as_deref().unwrap_or("");
        let n_domain = domain(n.domain.as_deref());
        let version = self.version(&n_domain).map(|v| format!(" version {v}")).unwrap_or_default();
        let domain = if n_domain.is_empty() { "ai.onnx" } else { &n_domain };
        let path = self.path.join("/");
        let output = n.output.iter().find(|o| !o.is_empty()).map(|o| format!(", output `{o}`")).unwrap_or_default();
        let node = match (n.name.as_deref().unwrap_or(""), path.is_empty()) {
            ("", true) => format!("node ({domain}.{op}{version}{output})"),
            ("", false) => format!("node in `{path}` ({domain}.{op}{version}{output})"),
            (name, true) => format!("node `{name}` ({domain}.{op}{version})"),
            (name, false) => format!("node `{path}/{name}` ({domain}.{op}{version})"),
        };
        Diagnostic { message: format!("{node}: {}", d.message), ..d }
    }

    fn version(&self, domain: &str) -> Option<i64> {
        self.opsets.last()?.get(domain).copied()
    }

    /// The values of a node's outputs. `Err(None)`: something it depends on failed.
    fn node(&mut self, n: &NodeProto) -> Result<Vec<Value>, Option<Diagnostic>> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(Some(Diagnostic::unsupported("onnx-size", Span::NONE, "the model has too many nodes")));
        }
        let mut inputs = vec![];
        let mut poisoned = false;
        for i in &n.input {
            if i.is_empty() {
                inputs.push(None);
                continue;
            }
            match self.lookup(i) {
                Some(Value::Poison) => poisoned = true,
                Some(v) => inputs.push(Some(v)),
                None => {
                    let later = self.scopes.iter().any(|s| s.later.contains(i));
                    let why = match later {
                        true => format!("input `{i}` is made from what this node makes: nodes must not be in a cycle"),
                        false => format!("input `{i}` is the name of no value"),
                    };
                    return Err(Some(Diagnostic::error("onnx-name", Span::NONE, why)));
                }
            }
        }
        while inputs.last().is_some_and(Option::is_none) {
            inputs.pop();
        }
        self.translate(n, inputs, poisoned)
    }

    /// The values of a node's outputs over these inputs.
    pub(super) fn translate(
        &mut self,
        n: &NodeProto,
        inputs: Vec<Option<Value>>,
        poisoned: bool,
    ) -> Result<Vec<Value>, Option<Diagnostic>> {
        let chosen = inputs.iter().find_map(|v| match v {
            Some(Value::Choice(c, _)) => Some(c.clone()),
            _ => None,
        });
        if let Some(cond) = chosen {
            return self.alternatives(n, &inputs, &cond, poisoned);
        }
        let domain = domain(n.domain.as_deref());
        let op = text(&n.op_type);
        if let Some(f) = self.functions.get(&(domain.clone(), op.clone(), text(&n.overload))).copied() {
            if poisoned {
                return Err(None);
            }
            let who = format!("the function `{op}`");
            schema::at_most("input", schema::given(&n.input), Some(f.input.len()), &who).map_err(Some)?;
            schema::at_most("output", schema::given(&n.output), Some(f.output.len()), &who).map_err(Some)?;
            return self.function(f, n, inputs).map_err(Some);
        }
        let version = self.version(&domain).unwrap_or(1);
        let Some(translate) = ops::find(&domain, &op, version) else {
            let at = "onnx-operator";
            return Err(Some(match ops::similar(&domain, &op) {
                Some(known) => Diagnostic::error(at, Span::NONE, "there is no such operator")
                    .help(format!("did you mean {known}?")),
                None => Diagnostic::unsupported(at, Span::NONE, "this operator is not supported"),
            }));
        };
        for (attribute, d) in schema::check(n, &domain, &op, version).map_err(Some)? {
            if self.told.insert((op.clone(), attribute)) {
                let d = self.at(n, d);
                self.diags.push(d);
            }
        }
        if domain.is_empty() {
            choices::check(n, &op).map_err(Some)?;
        }
        choices::range(n).map_err(Some)?;
        if poisoned {
            return Err(None);
        }
        let kind = inputs.iter().flatten().find_map(|v| match v {
            Value::Tensor(t) if t.kind != Kind::Plain => Some(t.kind),
            _ => None,
        });
        // The quantisers of other domains take the same types.
        let standard = domain.is_empty() || matches!(op.as_str(), "QuantizeLinear" | "DequantizeLinear");
        let fits = |k: Kind| match k {
            Kind::Text => knows(&op, k),
            k => standard && (moves(&op) || knows(&op, k)),
        };
        if let Some(k) = kind.filter(|k| !fits(*k)) {
            let d =
                Diagnostic::unsupported("onnx-type", Span::NONE, format!("the operator does not take {}", k.name()));
            return Err(Some(d.help("cast to float first")));
        }
        let mut cx = NodeCx::new(self, n, version, inputs);
        super::ranks::check(&cx, &domain, &op).map_err(Some)?;
        let translated = translate(&mut cx);
        let mut values = cx.finish(translated).map_err(Some)?;
        if let Some(k) = kind.filter(|k| *k != Kind::Text && moves(&op)) {
            for v in &mut values {
                if let Value::Tensor(t) = v {
                    t.kind = k;
                }
            }
        }
        Ok(values)
    }

    /// Expands a function of the model in place.
    fn function(&mut self, f: &'m FunctionProto, n: &NodeProto, inputs: Vec<Option<Value>>) -> Res<Vec<Value>> {
        if self.depth >= MAX_DEPTH {
            return Err(Diagnostic::error("onnx-function", Span::NONE, "functions call each other without end"));
        }
        let mut attrs: HashMap<&str, &AttributeProto> = HashMap::new();
        for a in f.attribute_proto.iter().chain(&n.attribute) {
            attrs.insert(a.name.as_deref().unwrap_or(""), a);
        }
        let nodes: Vec<NodeProto> = f.node.iter().map(|n| with_attributes(n, &attrs)).collect();
        self.expand(&text(&f.name), &f.input, &f.output, &nodes, opsets(&f.opset_import), inputs)
    }

    /// Translates the nodes of a function over these inputs.
    pub fn expand(
        &mut self,
        name: &str,
        params: &[String],
        results: &[String],
        nodes: &[NodeProto],
        opsets: Opsets,
        inputs: Vec<Option<Value>>,
    ) -> Res<Vec<Value>> {
        let mut scope = Scope { function: true, ..Default::default() };
        let mut missing = HashSet::new();
        for (i, p) in params.iter().enumerate() {
            match inputs.get(i).cloned().flatten() {
                Some(v) => {
                    scope.values.insert(p.clone(), v);
                }
                None => {
                    missing.insert(p.clone());
                }
            }
        }
        // An input that the caller leaves out is left out inside too.
        let mut nodes = nodes.to_vec();
        for n in &mut nodes {
            for i in &mut n.input {
                if missing.contains(i) {
                    i.clear();
                }
            }
        }
        self.depth += 1;
        self.path.push(name.to_string());
        self.opsets.push(opsets);
        self.scopes.push(scope);
        self.body(&nodes);
        let out = results.iter().map(|r| self.lookup(r).unwrap_or(Value::Poison)).collect();
        self.scopes.pop();
        self.opsets.pop();
        self.path.pop();
        self.depth -= 1;
        Ok(out)
    }

    /// Translates a graph of a control flow node in place: a graph sees the names around it.
    pub fn subgraph(&mut self, name: &str, g: &GraphProto, inputs: Vec<Value>) -> Res<Vec<Value>> {
        if self.depth >= MAX_DEPTH {
            return Err(Diagnostic::unsupported("onnx-graph", Span::NONE, "graphs are nested too deeply"));
        }
        let mut scope = Scope::default();
        self.initializers(g, &mut scope)?;
        for (p, v) in g.input.iter().zip(inputs) {
            scope.values.insert(text(&p.name), v);
        }
        self.depth += 1;
        self.path.push(name.to_string());
        self.scopes.push(scope);
        self.body(&g.node);
        let mut out = vec![];
        for o in &g.output {
            let name = text(&o.name);
            match self.lookup(&name) {
                Some(v) => out.push(v),
                None => {
                    self.diags.push(Diagnostic::error(
                        "onnx-name",
                        Span::NONE,
                        format!("output `{name}` of a graph is the name of no value"),
                    ));
                    out.push(Value::Poison);
                }
            }
        }
        self.scopes.pop();
        self.path.pop();
        self.depth -= 1;
        Ok(out)
    }
}

/// What the elements of a tensor of this type mean.
fn kind_of(t: &TypeProto) -> Kind {
    match &t.value {
        Some(TypeValue::Tensor(t)) => storage(t.elem_type.unwrap_or(0)).map_or(Kind::Plain, |(_, k)| k),
        _ => Kind::Plain,
    }
}

/// A node of a function with the attributes of the call in place of references to them.
fn with_attributes(n: &NodeProto, attrs: &HashMap<&str, &AttributeProto>) -> NodeProto {
    let mut n = n.clone();
    n.attribute = n
        .attribute
        .into_iter()
        .filter_map(|mut a| {
            if let Some(r) = a.ref_attr_name.as_deref().filter(|r| !r.is_empty()) {
                return attrs.get(r).map(|v| AttributeProto { name: a.name.clone(), ..(*v).clone() });
            }
            for g in a.g.iter_mut().chain(&mut a.graphs) {
                g.node = g.node.iter().map(|n| with_attributes(n, attrs)).collect();
            }
            Some(a)
        })
        .collect();
    n
}

impl ValueInfoProto {
    /// The stated type.
    fn type_info(&self) -> Res<&TypeProto> {
        self.r#type.as_ref().ok_or_else(|| Diagnostic::error("onnx-type", Span::NONE, "the type is not stated"))
    }
}
