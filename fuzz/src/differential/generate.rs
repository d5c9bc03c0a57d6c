//! Random well-formed programs.
//!
//! The generator keeps what it knows of every variable ([`Var`]): decisions (conditions, indices, sorting) are made
//! from exact values only, so that the interpreter and compiled code take the same way, and magnitudes stay far from
//! where rounding differs much.

use super::functions;
use super::operators;
use super::types::{Dim, Dt, Place, Ty, Var};
use crate::mutate::Rng;
use std::collections::HashMap;

/// A program and how to call it.
pub struct Program {
    pub text: String,
    pub params: Vec<(Ty, Role)>,
    /// Of the results, flattened: exact or not, and the greatest magnitude.
    pub results: Vec<(bool, i32)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Role {
    Data,
    /// How often to recurse: 0 to 3.
    Count,
}

/// A function that can be called.
#[derive(Clone)]
pub struct Callee {
    pub name: String,
    pub params: Vec<Ty>,
    pub result: Var,
    /// The first argument is a count.
    pub counts: bool,
}

/// A function body under way.
pub struct Body {
    pub lines: Vec<String>,
    pub indent: usize,
    pub vars: Vec<Var>,
    /// Shape variables in scope.
    pub dims: Vec<Dim>,
    /// Inside of `with R.dataflow()`: no branches, no local functions.
    pub dataflow: bool,
    /// Closures that can be called.
    pub locals: Vec<Callee>,
    /// The body of `main`: effects are allowed.
    main: bool,
}

impl Body {
    fn new(indent: usize) -> Body {
        Body { lines: vec![], indent, vars: vec![], dims: vec![], dataflow: false, locals: vec![], main: false }
    }

    pub fn line(&mut self, text: &str) {
        self.lines.push(format!("{}{text}", "    ".repeat(self.indent)));
    }
}

pub struct Gen<'a> {
    pub rng: &'a mut Rng,
    /// Functions of the module written so far.
    pub module: Vec<String>,
    callees: Vec<Callee>,
    counter: usize,
    size: usize,
    /// The function that forgets the type of its argument.
    forget: Option<String>,
    /// `main` has effects.
    impure: bool,
}

/// Statements inside at most; smaller programs of the same seed are other programs.
pub fn program(rng: &mut Rng, size: usize) -> Program {
    let mut g = Gen { rng, module: vec![], callees: vec![], counter: 0, size, forget: None, impure: false };
    for _ in 0..g.rng.below(3) {
        g.global();
    }
    if g.chance(4) {
        g.recursive();
    }
    if g.chance(8) {
        g.mutual();
    }
    g.main()
}

impl Gen<'_> {
    pub fn chance(&mut self, one_in: usize) -> bool {
        self.rng.below(one_in) == 0
    }

    pub fn fresh(&mut self, base: &str) -> String {
        self.counter += 1;
        format!("{base}{}", self.counter)
    }

    fn signature_dims(&mut self, names: &[&str]) -> Vec<Dim> {
        let mut out: Vec<Dim> = names.iter().map(|n| Dim::var(n)).collect();
        out.push(Dim::Const(2 + self.rng.below(7) as i64));
        out
    }

    fn param_type(&mut self, dims: &[Dim]) -> Ty {
        let rank = [0, 1, 1, 2, 2, 2, 3][self.rng.below(7)];
        let dt = [Dt::F32, Dt::F32, Dt::F32, Dt::F32, Dt::I64, Dt::I32, Dt::F64, Dt::Bool][self.rng.below(8)];
        Ty::Tensor((0..rank).map(|_| dims[self.rng.below(dims.len())].clone()).collect(), dt)
    }

    fn main(mut self) -> Program {
        let dims = self.signature_dims(&["n", "m", "k"]);
        let mut params: Vec<(Ty, Role)> = vec![];
        // Every variable is born in a parameter of its own.
        let used = 1 + self.rng.below(3);
        let own: Vec<Dim> = dims[..used].to_vec();
        params.push((Ty::Tensor(own.clone(), Dt::F32), Role::Data));
        let mut pool = own;
        pool.push(dims[3].clone());
        for _ in 0..1 + self.rng.below(3) {
            let ty = self.param_type(&pool);
            let ty = if self.chance(8) { Ty::Tuple(vec![ty, self.param_type(&pool)]) } else { ty };
            params.push((ty, Role::Data));
        }
        params.push((Ty::Tensor(vec![], Dt::Bool), Role::Data));
        params.push((Ty::Tensor(vec![], Dt::I64), Role::Count));
        let mut b = Body::new(2);
        b.main = true;
        b.dims = pool;
        let mut names = vec![];
        for (ty, role) in &params {
            let name = self.fresh("x");
            let bits = if *role == Role::Count { 2 } else { 3 };
            b.vars.push(Var { name: name.clone(), ty: ty.clone(), exact: true, bits });
            names.push(name);
        }
        let count = names.last().cloned().unwrap_or_default();
        self.statements(&mut b, self.size, Some(&count));
        let n = 1 + self.rng.below(3);
        let mut returned: Vec<Var> = vec![];
        for _ in 0..n {
            // Later values depend on more.
            let from = b.vars.len() / 2;
            let i = from + self.rng.below(b.vars.len() - from);
            returned.push(b.vars[i].clone());
        }
        let mut results = vec![];
        for v in &returned {
            let mut leaves = vec![];
            v.ty.leaves(&mut leaves);
            results.extend(leaves.iter().map(|_| (v.exact, v.bits)));
        }
        let vague = self.chance(3);
        let types: Vec<String> = returned.iter().map(|v| self.result_type(&v.ty, used, vague)).collect();
        let (ret, value) = match returned.as_slice() {
            [one] => (types[0].clone(), one.name.clone()),
            list => {
                let names: Vec<&str> = list.iter().map(|v| v.name.as_str()).collect();
                (format!("R.Tuple({})", types.join(", ")), format!("({})", names.join(", ")))
            }
        };
        let listed: Vec<String> =
            names.iter().zip(&params).map(|(n, (t, _))| format!("{n}: {}", t.text(Place::Signature))).collect();
        let mut text = String::from("@I.ir_module\nclass Module:\n");
        for f in &self.module {
            text.push_str(f);
            text.push('\n');
        }
        let decorator = if self.impure { "@R.function(pure=False)" } else { "@R.function" };
        text.push_str(&format!("    {decorator}\n    def main({}) -> {ret}:\n", listed.join(", ")));
        for d in ["n", "m", "k"].iter().take(used) {
            text.push_str(&format!("        {d} = T.int64()\n"));
        }
        text.push_str("        cls = Module\n");
        for l in &b.lines {
            text.push_str(l);
            text.push('\n');
        }
        text.push_str(&format!("        return {value}\n"));
        Program { text, params, results }
    }

    /// A result's type in the signature; dims that the signature does not know are left open.
    fn result_type(&mut self, ty: &Ty, used: usize, vague: bool) -> String {
        match ty {
            Ty::Tuple(f) => {
                let list: Vec<String> = f.iter().map(|t| self.result_type(t, used, vague)).collect();
                format!("R.Tuple({})", list.join(", "))
            }
            Ty::Tensor(d, dt) => {
                let known = ["n", "m", "k"];
                fn known_in(d: &Dim, names: &[&str]) -> bool {
                    match d {
                        Dim::Const(_) => true,
                        Dim::Var(v) => names.contains(&v.as_str()),
                        Dim::Add(a, b) | Dim::Mul(a, b) => known_in(a, names) && known_in(b, names),
                    }
                }
                if !vague && d.iter().all(|d| known_in(d, &known[..used])) {
                    ty.text(Place::Signature)
                } else {
                    format!("R.Tensor(ndim={}, dtype=\"{}\")", d.len(), dt.name())
                }
            }
        }
    }

    /// A private function over its own shape variables.
    fn global(&mut self) {
        let name = self.fresh("f");
        let mut b = Body::new(2);
        let (p, q) = (format!("{name}p"), format!("{name}q"));
        let dims = [Dim::var(&p), Dim::var(&q)];
        let first = Ty::Tensor(dims.to_vec(), Dt::F32);
        b.dims = dims.to_vec();
        let mut params = vec![first];
        if self.chance(2) {
            let ty = self.param_type(&dims);
            params.push(ty);
        }
        let mut listed = vec![];
        for ty in &params {
            let v = self.fresh("a");
            listed.push(format!("{v}: {}", ty.text(Place::Signature)));
            b.vars.push(Var { name: v, ty: ty.clone(), exact: true, bits: 3 });
        }
        let size = self.size / 3 + 1;
        self.statements(&mut b, size, None);
        let known = |v: &&Var| {
            let mut leaves = vec![];
            v.ty.leaves(&mut leaves);
            fn own(d: &Dim, p: &str, q: &str) -> bool {
                match d {
                    Dim::Const(_) => true,
                    Dim::Var(v) => v == p || v == q,
                    Dim::Add(a, b) | Dim::Mul(a, b) => own(a, p, q) && own(b, p, q),
                }
            }
            leaves.iter().all(|(d, _)| d.iter().all(|d| own(d, &p, &q)))
        };
        let Some(result) = b.vars.iter().rev().find(known).cloned() else { return };
        let text = [
            format!(
                "    @R.function(private=True)\n    def {name}({}) -> {}:\n",
                listed.join(", "),
                result.ty.text(Place::Signature)
            ),
            format!("        {p} = T.int64()\n        {q} = T.int64()\n        cls = Module\n"),
            b.lines.join("\n"),
            format!("\n        return {}\n", result.name),
        ];
        self.module.push(text.concat());
        self.callees.push(Callee { name: format!("cls.{name}"), params, result, counts: false });
    }

    /// A private function that calls itself.
    fn recursive(&mut self) {
        let name = self.fresh("r");
        let (p, q) = (format!("{name}p"), format!("{name}q"));
        let ty = Ty::Tensor(vec![Dim::var(&p), Dim::var(&q)], Dt::F32);
        let t = ty.text(Place::Body);
        let step = [
            "R.nn.relu(y)",
            "R.add(y, x)",
            "R.negative(y)",
            "R.maximum(y, x)",
            "R.multiply(y, R.const(2.0, \"float32\"))",
        ];
        let step = step[self.rng.below(step.len())];
        let after = ["x", "R.negative(t)", "R.add(t, x)"][self.rng.below(3)];
        let i = Ty::Tensor(vec![], Dt::I64).text(Place::Body);
        let text = format!(
            "    @R.function(private=True)
    def {name}(i: {i}, x: {}) -> {}:
        {p} = T.int64()
        {q} = T.int64()
        cls = Module
        done: R.Tensor((), dtype=\"bool\") = R.less_equal(i, R.const(0, \"int64\"))
        if done:
            r: {t} = x
        else:
            j: {i} = R.subtract(i, R.const(1, \"int64\"))
            y: {t} = R.add(x, R.const(1.0, \"float32\"))
            z: {t} = {step}
            t: {t} = cls.{name}(j, z)
            s: {t} = {}
            r: {t} = s
        return r
",
            ty.text(Place::Signature),
            ty.text(Place::Signature),
            if after == "x" { "t" } else { after },
        );
        self.module.push(text);
        let result = Var { name: String::new(), ty: ty.clone(), exact: true, bits: 8 };
        self.callees.push(Callee { name: format!("cls.{name}"), params: vec![ty], result, counts: true });
    }

    /// Two private functions that call each other in turn.
    fn mutual(&mut self) {
        let (one, two) = (self.fresh("r"), self.fresh("r"));
        let i = Ty::Tensor(vec![], Dt::I64).text(Place::Body);
        let mut types = vec![];
        for (name, other, step) in [(&one, &two, "R.negative(x)"), (&two, &one, "R.add(x, x)")] {
            let (p, q) = (format!("{name}p"), format!("{name}q"));
            let ty = Ty::Tensor(vec![Dim::var(&p), Dim::var(&q)], Dt::F32);
            let (t, s) = (ty.text(Place::Body), ty.text(Place::Signature));
            self.module.push(format!(
                "    @R.function(private=True)
    def {name}(i: {i}, x: {s}) -> {s}:
        {p} = T.int64()
        {q} = T.int64()
        cls = Module
        done: R.Tensor((), dtype=\"bool\") = R.less_equal(i, R.const(0, \"int64\"))
        if done:
            r: {t} = x
        else:
            j: {i} = R.subtract(i, R.const(1, \"int64\"))
            y: {t} = {step}
            r: {t} = cls.{other}(j, y)
        return r
"
            ));
            types.push(ty);
        }
        for (name, ty) in [one, two].into_iter().zip(types) {
            let result = Var { name: String::new(), ty: ty.clone(), exact: true, bits: 8 };
            self.callees.push(Callee { name: format!("cls.{name}"), params: vec![ty], result, counts: true });
        }
    }

    /// The name of a function of any object that returns it.
    pub fn forget(&mut self) -> String {
        if let Some(name) = &self.forget {
            return name.clone();
        }
        let name = self.fresh("any");
        self.module
            .push(format!("    @R.function(private=True)\n    def {name}(x: R.Any) -> R.Any:\n        return x\n"));
        self.forget = Some(name.clone());
        name
    }

    /// A condition that must hold, in a body that may have effects.
    fn assertion(&mut self, b: &mut Body) {
        if !b.main || b.dataflow || b.indent != 2 || !self.chance(4) {
            return;
        }
        let Some(c) = self.condition(b) else { return };
        b.line(&format!("R.assert_op({c}, format=\"it must hold\")"));
        self.impure = true;
    }

    pub fn statements(&mut self, b: &mut Body, size: usize, count: Option<&str>) {
        for _ in 0..size {
            match self.rng.below(28) {
                0 if !b.dataflow => self.branch(b),
                1 if !b.dataflow && b.indent < 4 => self.local(b),
                2 if !b.dataflow && b.indent < 3 => self.block(b),
                3 | 4 => self.call(b, count),
                5 => self.tuple(b),
                6 => self.cast(b),
                7 => operators::prim_func(self, b),
                8..=10 => functions::statement(self, b),
                11 => self.assertion(b),
                _ => operators::operator(self, b),
            }
        }
    }

    pub fn bind(&mut self, b: &mut Body, ty: Ty, value: &str, exact: bool, bits: i32) -> Var {
        let name = self.fresh("v");
        let annotation = if self.chance(3) { String::new() } else { format!(": {}", ty.text(Place::Body)) };
        b.line(&format!("{name}{annotation} = {value}"));
        let v = Var { name, ty, exact, bits };
        b.vars.push(v.clone());
        v
    }

    pub fn pick(&mut self, b: &Body, wanted: impl Fn(&Var) -> bool) -> Option<Var> {
        let list: Vec<&Var> = b.vars.iter().filter(|v| wanted(v)).collect();
        if list.is_empty() {
            return None;
        }
        // The later half twice as often.
        let mut i = self.rng.below(list.len());
        if i < list.len() / 2 && self.chance(2) {
            i = list.len() - 1 - i;
        }
        Some(list[i].clone())
    }

    /// A dataflow block; some of its values are visible after it.
    fn block(&mut self, b: &mut Body) {
        let before = b.vars.len();
        let at = b.lines.len();
        b.line("with R.dataflow():");
        b.indent += 1;
        b.dataflow = true;
        let size = 2 + self.rng.below(5);
        self.statements(b, size, None);
        b.dataflow = false;
        let born = b.vars.split_off(before);
        if born.is_empty() {
            b.indent -= 1;
            b.lines.truncate(at);
            return;
        }
        let mut out: Vec<Var> = vec![];
        for (i, v) in born.iter().enumerate() {
            if i + 1 == born.len() || self.chance(3) {
                out.push(v.clone());
            }
        }
        let names: Vec<&str> = out.iter().map(|v| v.name.as_str()).collect();
        b.line(&format!("R.output({})", names.join(", ")));
        b.indent -= 1;
        // The names of dims end with the block that declares them; what the values that it outputs are made of may be used later.
        let (declared, body): (Vec<String>, Vec<String>) =
            b.lines.split_off(at).into_iter().partition(|line| line.ends_with(" = T.int64()"));
        b.lines.extend(declared.iter().map(|line| line.replacen("    ", "", 1)));
        b.lines.extend(body);
        b.vars.extend(out);
    }

    /// A condition from exact values.
    pub fn condition(&mut self, b: &mut Body) -> Option<String> {
        let scalar = |v: &Var| v.exact && matches!(v.tensor(), Some(([], Dt::Bool)));
        if self.chance(2) {
            return self.pick(b, scalar).map(|v| v.name);
        }
        let x = self.pick(b, |v| v.exact && v.bits < 14 && matches!(v.tensor(), Some((_, Dt::F32))))?;
        let s = self.bind(
            b,
            Ty::Tensor(vec![], Dt::F32),
            &format!("R.max({}, axis=None, keepdims=False)", x.name),
            true,
            x.bits,
        );
        let c = self.bind(
            b,
            Ty::Tensor(vec![], Dt::Bool),
            &format!("R.greater({}, R.const(2.0, \"float32\"))", s.name),
            true,
            1,
        );
        Some(c.name)
    }

    fn branch(&mut self, b: &mut Body) {
        if b.indent > 4 {
            return;
        }
        let Some(x) = self.pick(b, |v| v.tensor().is_some_and(|(_, d)| d.is_float()) && v.bits < 16) else { return };
        let Some(c) = self.condition(b) else { return };
        let name = self.fresh("v");
        let t = x.ty.text(Place::Body);
        let mut joined = Var { name: name.clone(), ..x.clone() };
        for (i, head) in [format!("if {c}:"), "else:".to_string()].iter().enumerate() {
            b.line(head);
            b.indent += 1;
            let (vars, dims, locals) = (b.vars.len(), b.dims.len(), b.locals.len());
            let size = self.rng.below(3);
            self.statements(b, size, None);
            let same = |v: &Var| v.ty == x.ty && v.bits < 20;
            let from = self.pick(b, same).unwrap_or_else(|| x.clone());
            let op = ["R.nn.relu", "R.negative", "R.abs"][(i + self.rng.below(3)) % 3];
            let last = self.bind(b, x.ty.clone(), &format!("{op}({})", from.name), from.exact, from.bits);
            b.line(&format!("{name}: {t} = {}", last.name));
            joined.exact &= last.exact;
            joined.bits = joined.bits.max(last.bits);
            b.vars.truncate(vars);
            b.dims.truncate(dims);
            b.locals.truncate(locals);
            b.indent -= 1;
        }
        b.vars.push(joined);
    }

    /// A closure over what is in scope.
    fn local(&mut self, b: &mut Body) {
        let Some(x) = self.pick(b, |v| matches!(v.tensor(), Some((_, Dt::F32)))) else { return };
        let name = self.fresh("g");
        let param = self.fresh("a");
        let t = x.ty.text(Place::Body);
        let at = b.lines.len();
        let (vars, dims, locals) = (b.vars.clone(), b.dims.len(), b.locals.len());
        let main = std::mem::replace(&mut b.main, false);
        b.indent += 1;
        b.vars.push(Var { name: param.clone(), ty: x.ty.clone(), exact: true, bits: 3 });
        let size = 1 + self.rng.below(3);
        self.statements(b, size, None);
        // The result has a type over what is visible outside.
        let here = |v: &Var| v.ty == x.ty;
        let Some(from) = b.vars.iter().rev().find(|v| here(v)).cloned() else { return };
        b.main = main;
        let last =
            self.bind(b, x.ty.clone(), &format!("R.add({}, {param})", from.name), from.exact, from.bits.max(3) + 1);
        b.line(&format!("return {}", last.name));
        b.indent -= 1;
        b.dims.truncate(dims);
        b.locals.truncate(locals);
        b.vars = vars;
        let pad = "    ".repeat(b.indent);
        b.lines.insert(at, format!("{pad}@R.function\n{pad}def {name}({param}: {t}) -> {t}:"));
        let result = Var { name: String::new(), ..last };
        b.locals.push(Callee { name, params: vec![x.ty], result, counts: false });
    }

    fn call(&mut self, b: &mut Body, count: Option<&str>) {
        let mut list: Vec<Callee> = self.callees.iter().chain(&b.locals).cloned().collect();
        if b.dataflow {
            list.retain(|c| !c.counts);
        }
        if list.is_empty() {
            return operators::operator(self, b);
        }
        let c = list[self.rng.below(list.len())].clone();
        let mut map: HashMap<String, Dim> = HashMap::new();
        let mut args = vec![];
        if c.counts {
            let Some(count) = count else { return };
            args.push(count.to_string());
        }
        for p in &c.params {
            // Inside, parameters count as exact.
            let global = c.name.starts_with("cls.");
            let fits =
                |v: &Var| v.exact && v.bits <= 3 && if global { fit(p, &v.ty, &mut map.clone()) } else { v.ty == *p };
            let Some(v) = self.pick(b, fits) else { return };
            if global {
                fit(p, &v.ty, &mut map);
            }
            args.push(v.name);
        }
        let ty = c.result.ty.substitute(&map);
        self.bind(b, ty, &format!("{}({})", c.name, args.join(", ")), c.result.exact, c.result.bits);
    }

    fn tuple(&mut self, b: &mut Body) {
        if let (true, Some(t)) = (self.chance(2), self.pick(b, |v| matches!(v.ty, Ty::Tuple(_)))) {
            let Ty::Tuple(f) = &t.ty else { return };
            if f.is_empty() {
                return;
            }
            let i = self.rng.below(f.len());
            self.bind(b, f[i].clone(), &format!("{}[{i}]", t.name), t.exact, t.bits);
            return;
        }
        let n = 1 + self.rng.below(3);
        let parts: Vec<Var> = (0..n).filter_map(|_| self.pick(b, |_| true)).collect();
        if parts.iter().any(|p| p.ty.text(Place::Body).len() > 400) {
            return;
        }
        let names: Vec<&str> = parts.iter().map(|v| v.name.as_str()).collect();
        let ty = Ty::Tuple(parts.iter().map(|v| v.ty.clone()).collect());
        let exact = parts.iter().all(|v| v.exact);
        let bits = parts.iter().map(|v| v.bits).max().unwrap_or(0);
        let text = if names.len() == 1 { format!("({},)", names[0]) } else { format!("({})", names.join(", ")) };
        self.bind(b, ty, &text, exact, bits);
    }

    /// A MatchCast: to fresh variables, to what is known, or (sometimes wrongly) to other dims in scope.
    fn cast(&mut self, b: &mut Body) {
        let Some(x) = self.pick(b, |v| v.tensor().is_some_and(|(d, _)| !d.is_empty())) else { return };
        let Some((dims, dt)) = x.tensor() else { return };
        let mut new = dims.to_vec();
        for d in &mut new {
            match self.rng.below(6) {
                0..=3 => {
                    let name = self.fresh("d");
                    b.line(&format!("{name} = T.int64()"));
                    *d = Dim::var(&name);
                    b.dims.push(d.clone());
                }
                4 => {}
                _ if self.chance(6) => *d = b.dims[self.rng.below(b.dims.len())].clone(),
                _ => {}
            }
        }
        let ty = Ty::Tensor(new, dt);
        let value = format!("R.match_cast({}, {})", x.name, ty.text(Place::Body));
        self.bind(b, ty, &value, x.exact, x.bits);
    }
}

/// Does a value of type `t` fit a parameter of type `p`? Variables of `p` get their dims.
fn fit(p: &Ty, t: &Ty, map: &mut HashMap<String, Dim>) -> bool {
    match (p, t) {
        (Ty::Tensor(a, x), Ty::Tensor(b, y)) => {
            x == y
                && a.len() == b.len()
                && a.iter().zip(b).all(|(p, d)| match p {
                    // Variables of the function itself have names with its name in them.
                    Dim::Var(v) if v.starts_with(['f', 'r']) => match map.get(v) {
                        Some(known) => known == d,
                        None => {
                            map.insert(v.clone(), d.clone());
                            true
                        }
                    },
                    other => other == d,
                })
        }
        (Ty::Tuple(a), Ty::Tuple(b)) => a.len() == b.len() && a.iter().zip(b).all(|(p, t)| fit(p, t, map)),
        _ => false,
    }
}
