//! Functions as values, types that are forgotten and asked for again, writing in place, functions of the host.

use super::generate::{Body, Callee, Gen};
use super::types::{Dim, Dt, Place, Ty, Var};

/// Some statement of this kind; now and then nothing fits and nothing is written.
pub fn statement(g: &mut Gen, b: &mut Body) {
    match g.rng.below(9) {
        0 if !b.dataflow => stored(g, b),
        1 if !b.dataflow => chosen(g, b),
        2 if !b.dataflow && b.indent < 4 => passed(g, b),
        3 if !b.dataflow && b.indent < 4 => returned(g, b),
        4 | 5 => forgotten(g, b),
        6 => shapes(g, b),
        7 => in_place(g, b),
        _ => packed(g, b),
    }
}

fn some_local(g: &mut Gen, b: &Body) -> Option<Callee> {
    if b.locals.is_empty() {
        return None;
    }
    let i = g.rng.below(b.locals.len());
    Some(b.locals[i].clone())
}

/// A closure in a tuple, and taken out of it.
fn stored(g: &mut Gen, b: &mut Body) {
    let Some(c) = some_local(g, b) else { return };
    let (t, h) = (g.fresh("t"), g.fresh("h"));
    match g.pick(b, |_| true) {
        Some(x) if g.chance(2) => {
            b.line(&format!("{t} = ({}, ({}, {}))", x.name, c.name, c.name));
            let inner = g.fresh("t");
            b.line(&format!("{inner} = {t}[1]"));
            b.line(&format!("{h} = {inner}[{}]", g.rng.below(2)));
        }
        _ => {
            b.line(&format!("{t} = ({},)", c.name));
            b.line(&format!("{h} = {t}[0]"));
        }
    }
    b.locals.push(Callee { name: h, ..c });
}

/// One of two closures of the same type.
fn chosen(g: &mut Gen, b: &mut Body) {
    let Some(c) = some_local(g, b) else { return };
    let alike: Vec<Callee> =
        b.locals.iter().filter(|o| o.params == c.params && o.result.ty == c.result.ty).cloned().collect();
    let other = alike[g.rng.below(alike.len())].clone();
    let Some(condition) = g.condition(b) else { return };
    let h = g.fresh("h");
    b.line(&format!("if {condition}:"));
    b.line(&format!("    {h} = {}", c.name));
    b.line("else:");
    b.line(&format!("    {h} = {}", other.name));
    let exact = c.result.exact && other.result.exact;
    let result = Var { exact, bits: c.result.bits.max(other.result.bits), ..c.result };
    b.locals.push(Callee { name: h, result, ..c });
}

fn callable(ty: &str) -> String {
    format!("R.Callable(({ty},), {ty})")
}

/// A closure as an argument of another.
fn passed(g: &mut Gen, b: &mut Body) {
    let Some(c) = some_local(g, b) else { return };
    let [ty] = c.params.as_slice() else { return };
    if c.result.ty != *ty || c.result.bits > 16 {
        return;
    }
    let Some(x) = g.pick(b, |v| v.exact && v.bits <= 3 && v.ty == *ty) else { return };
    let t = ty.text(Place::Body);
    let (h, f, a) = (g.fresh("g"), g.fresh("f"), g.fresh("a"));
    let (y, z) = (g.fresh("v"), g.fresh("v"));
    b.line("@R.function");
    b.line(&format!("def {h}({f}: {}, {a}: {t}) -> {t}:", callable(&t)));
    b.line(&format!("    {y}: {t} = {f}({a})"));
    b.line(&format!("    {z}: {t} = R.add({y}, {a})"));
    b.line(&format!("    return {z}"));
    let value = format!("{h}({}, {})", c.name, x.name);
    g.bind(b, ty.clone(), &value, c.result.exact, c.result.bits.max(3) + 1);
}

/// A closure as a result, which outlives the call that made it.
fn returned(g: &mut Gen, b: &mut Body) {
    let Some(x) = g.pick(b, |v| v.exact && v.bits <= 3 && matches!(v.tensor(), Some((_, Dt::F32)))) else { return };
    let t = x.ty.text(Place::Body);
    let (make, inner, a, s, p, w, h) =
        (g.fresh("g"), g.fresh("g"), g.fresh("a"), g.fresh("v"), g.fresh("a"), g.fresh("v"), g.fresh("h"));
    b.line("@R.function");
    b.line(&format!("def {make}({a}: {t}) -> {}:", callable(&t)));
    b.line(&format!("    {s}: {t} = R.negative({a})"));
    b.line("    @R.function");
    b.line(&format!("    def {inner}({p}: {t}) -> {t}:"));
    // Also what stands outside of both.
    let op = ["R.add", "R.multiply", "R.maximum"][g.rng.below(3)];
    let captured = if g.chance(2) { s.clone() } else { x.name.clone() };
    b.line(&format!("        {w}: {t} = {op}({p}, {captured})"));
    b.line(&format!("        return {w}"));
    b.line(&format!("    return {inner}"));
    b.line(&format!("{h} = {make}({})", x.name));
    let result = Var { name: String::new(), ty: x.ty.clone(), exact: true, bits: 6 };
    b.locals.push(Callee { name: h, params: vec![x.ty], result, counts: false });
}

/// A value goes through a function of any object, and comes back with a type: now and then with a wrong one.
fn forgotten(g: &mut Gen, b: &mut Body) {
    let Some(x) = g.pick(b, |_| true) else { return };
    if x.ty.text(Place::Body).len() > 200 {
        return;
    }
    let f = g.forget();
    let o = g.fresh("o");
    b.line(&format!("{o} = cls.{f}({})", x.name));
    let vague = g.chance(3);
    let o = match &x.ty {
        Ty::Tensor(d, dt) if vague => {
            let vague = match g.rng.below(3) {
                0 => "R.Tensor".to_string(),
                1 => format!("R.Tensor(ndim={})", d.len()),
                _ => format!("R.Tensor(dtype=\"{}\")", dt.name()),
            };
            let next = g.fresh("o");
            b.line(&format!("{next} = R.match_cast({o}, {vague})"));
            next
        }
        _ => o,
    };
    let mut ty = x.ty.clone();
    if let Ty::Tensor(d, dt) = &mut ty {
        // What is known to be wrong is refused before it runs.
        match g.rng.below(30) {
            0 | 1 if vague => {}
            0 => *dt = if *dt == Dt::F32 { Dt::I64 } else { Dt::F32 },
            1 => d.push(Dim::Const(2)),
            2 if !d.is_empty() => d[0] = Dim::Const(5),
            3..=9 => {
                for dim in d.iter_mut() {
                    let name = g.fresh("d");
                    b.line(&format!("{name} = T.int64()"));
                    *dim = Dim::var(&name);
                    b.dims.push(dim.clone());
                }
            }
            _ => {}
        }
    }
    let value = format!("R.match_cast({o}, {})", ty.text(Place::Body));
    g.bind(b, ty, &value, x.exact, x.bits);
}

/// A shape as a value, taken apart.
fn shapes(g: &mut Gen, b: &mut Body) {
    let Some(x) = g.pick(b, |v| v.tensor().is_some_and(|(d, _)| !d.is_empty())) else { return };
    let Some((dims, _)) = x.tensor() else { return };
    let (s, t) = (g.fresh("s"), g.fresh("s"));
    b.line(&format!("{s} = R.shape_of({})", x.name));
    let mut new = vec![];
    for d in dims {
        if g.chance(3) {
            new.push(d.clone());
            continue;
        }
        let name = g.fresh("d");
        b.line(&format!("{name} = T.int64()"));
        new.push(Dim::var(&name));
    }
    b.dims.extend(new.iter().cloned());
    let list: Vec<String> = new.iter().map(Dim::to_string).collect();
    b.line(&format!("{t} = R.match_cast({s}, R.Shape([{}]))", list.join(", ")));
    let value = format!("R.full({t}, R.const(3.0, \"float32\"), dtype=\"float32\")");
    g.bind(b, Ty::Tensor(new, Dt::F32), &value, true, 2);
}

/// A kernel that overwrites a value of its own.
fn in_place(g: &mut Gen, b: &mut Body) {
    let fits = |v: &Var| v.bits < 10 && matches!(v.tensor(), Some((d, Dt::F32)) if !d.is_empty() && d.len() < 3);
    let Some(x) = g.pick(b, fits) else { return };
    let Some((d, _)) = x.tensor() else { return };
    let name = g.fresh("p");
    let sizes: Vec<String> = (0..d.len()).map(|i| format!("{name}n{i}")).collect();
    let loops: Vec<String> = (0..d.len()).map(|i| format!("i{i}")).collect();
    let axes: Vec<String> = (0..d.len()).map(|i| format!("v{i}")).collect();
    let mut t = format!("    @T.prim_func(private=True, s_tir=True)\n    def {name}(a: T.handle):\n");
    for n in &sizes {
        t.push_str(&format!("        {n} = T.int64()\n"));
    }
    let comma = if sizes.len() == 1 { "," } else { "" };
    t.push_str(&format!("        A = T.match_buffer(a, ({}{comma}))\n", sizes.join(", ")));
    t.push_str(&format!("        for {} in T.grid({}):\n", loops.join(", "), sizes.join(", ")));
    t.push_str("            with T.sblock(\"b\"):\n");
    for ((v, n), i) in axes.iter().zip(&sizes).zip(&loops) {
        t.push_str(&format!("                {v} = T.axis.spatial({n}, {i})\n"));
    }
    let at = format!("A[{}]", axes.join(", "));
    t.push_str(&format!("                {at} = {at} * T.float32(2) + T.float32(1)\n"));
    g.module.push(t);
    let own = g.fresh("w");
    b.line(&format!("{own} = R.add({0}, {0})", x.name));
    let ty = x.ty.text(Place::Body);
    let value = format!("R.call_tir_inplace(cls.{name}, ({own},), inplace_indices=[0], out_ty={ty})");
    g.bind(b, x.ty.clone(), &value, x.exact, x.bits + 4);
}

/// A function of the host, for its result or into an output.
fn packed(g: &mut Gen, b: &mut Body) {
    let Some(x) = g.pick(b, |v| matches!(v.tensor(), Some((_, Dt::F32)))) else { return };
    let t = x.ty.text(Place::Body);
    let value = match g.rng.below(4) {
        0 => format!("R.call_dps_packed(\"fuzz.negative_into\", ({},), out_ty={t})", x.name),
        1 => format!("R.call_inplace_packed(\"fuzz.negative\", {}, inplace_indices=[0], ty_args={t})", x.name),
        _ => format!("R.call_pure_packed(\"fuzz.negative\", {}, ty_args={t})", x.name),
    };
    g.bind(b, x.ty, &value, x.exact, x.bits);
}
