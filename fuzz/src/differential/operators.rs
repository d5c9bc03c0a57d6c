//! Calls of operators and of PrimFuncs, with the types of their results.

use super::generate::{Body, Gen};
use super::types::{Dim, Dt, Place, Ty, Var};

/// Values grow no further than this: sums of such are exact in float32.
const EXACT_BITS: i32 = 22;
const MOST_BITS: i32 = 40;

fn bind(g: &mut Gen, b: &mut Body, dims: &[Dim], dt: Dt, value: &str, exact: bool, bits: i32) {
    let rounded = dt == Dt::F32 && bits > EXACT_BITS;
    g.bind(b, Ty::Tensor(dims.to_vec(), dt), value, exact && !rounded, bits);
}

/// A result whose dims nobody tells: they get names.
fn bind_open(g: &mut Gen, b: &mut Body, rank: usize, dt: Dt, value: &str, exact: bool, bits: i32) {
    let raw = g.fresh("u");
    b.line(&format!("{raw} = {value}"));
    let dims: Vec<Dim> = (0..rank)
        .map(|_| {
            let d = g.fresh("d");
            b.line(&format!("{d} = T.int64()"));
            Dim::var(&d)
        })
        .collect();
    b.dims.extend(dims.iter().cloned());
    let ty = Ty::Tensor(dims.clone(), dt);
    let cast = format!("R.match_cast({raw}, {})", ty.text(Place::Body));
    bind(g, b, &dims, dt, &cast, exact, bits);
}

fn number(g: &mut Gen, dt: Dt) -> String {
    let v = g.rng.below(6) as i64 - 2;
    if dt.is_float() {
        format!("R.const({v}.0, \"{}\")", dt.name())
    } else {
        format!("R.const({v}, \"{}\")", dt.name())
    }
}

/// Some operator on values in scope; now and then nothing fits and nothing is written.
pub fn operator(g: &mut Gen, b: &mut Body) {
    match g.rng.below(16) {
        0..=2 => unary(g, b),
        3..=5 => binary(g, b),
        6 => reduce(g, b),
        7 => matmul(g, b),
        8 | 9 => shape(g, b),
        10 => concat(g, b),
        11 => select(g, b),
        12 => slices(g, b),
        13 => make(g, b),
        14 => data(g, b),
        _ => convert(g, b),
    }
}

fn float(v: &Var) -> bool {
    v.tensor().is_some_and(|(_, d)| d.is_float())
}

fn numeric(v: &Var) -> bool {
    v.tensor().is_some_and(|(_, d)| d != Dt::Bool)
}

fn unary(g: &mut Gen, b: &mut Body) {
    let Some(x) = g.pick(b, numeric) else { return };
    let Some((d, dt)) = x.tensor() else { return };
    let (n, d) = (&x.name, d.to_vec());
    match g.rng.below(if dt.is_float() { 12 } else { 3 }) {
        0 => bind(g, b, &d, dt, &format!("R.negative({n})"), x.exact, x.bits),
        1 => bind(g, b, &d, dt, &format!("R.abs({n})"), x.exact, x.bits),
        2 if x.bits * 2 < 30 => bind(g, b, &d, dt, &format!("R.square({n})"), x.exact, 2 * x.bits),
        3 => bind(g, b, &d, dt, &format!("R.nn.relu({n})"), x.exact, x.bits),
        4 => bind(g, b, &d, dt, &format!("R.tanh({n})"), false, 0),
        5 => bind(g, b, &d, dt, &format!("R.sigmoid({n})"), false, 0),
        6 if x.bits <= 3 => bind(g, b, &d, dt, &format!("R.exp({n})"), false, 12),
        7 if x.bits <= 8 => bind(g, b, &d, dt, &format!("R.sin({n})"), false, 0),
        8 if x.exact => bind(g, b, &d, dt, &format!("R.floor({n})"), true, x.bits),
        9 if x.exact => bind(g, b, &d, dt, &format!("R.sqrt(R.abs({n}))"), false, x.bits),
        10 => {
            let c = number(g, dt);
            bind(g, b, &d, dt, &format!("R.multiply({n}, {c})"), x.exact, x.bits + 2)
        }
        11 => {
            let c = number(g, dt);
            bind(g, b, &d, dt, &format!("R.subtract({c}, {n})"), x.exact, x.bits.max(2) + 1)
        }
        _ => {}
    }
}

/// Do the dims broadcast, as far as texts tell?
fn broadcast(a: &[Dim], b: &[Dim]) -> Option<Vec<Dim>> {
    let (long, short) = if a.len() >= b.len() { (a, b) } else { (b, a) };
    let lead = long.len() - short.len();
    let mut out = long[..lead].to_vec();
    for (x, y) in long[lead..].iter().zip(short) {
        out.push(match (x, y) {
            (x, y) if x == y => x.clone(),
            (Dim::Const(1), d) | (d, Dim::Const(1)) => d.clone(),
            _ => return None,
        });
    }
    Some(out)
}

fn binary(g: &mut Gen, b: &mut Body) {
    let Some(x) = g.pick(b, numeric) else { return };
    let Some((dx, dt)) = x.tensor() else { return };
    let fits = |v: &Var| v.tensor().is_some_and(|(d, t)| t == dt && broadcast(dx, d).is_some());
    let Some(y) = g.pick(b, fits) else { return };
    let Some(d) = y.tensor().and_then(|(dy, _)| broadcast(dx, dy)) else { return };
    let exact = x.exact && y.exact;
    let (p, q) = (&x.name, &y.name);
    let most = x.bits.max(y.bits);
    match g.rng.below(9) {
        0 | 1 if most < MOST_BITS => bind(g, b, &d, dt, &format!("R.add({p}, {q})"), exact, most + 1),
        2 if most < MOST_BITS => bind(g, b, &d, dt, &format!("R.subtract({p}, {q})"), exact, most + 1),
        3 if x.bits + y.bits < MOST_BITS && (dt.is_float() || x.bits + y.bits < 30) => {
            bind(g, b, &d, dt, &format!("R.multiply({p}, {q})"), exact, x.bits + y.bits)
        }
        4 => bind(g, b, &d, dt, &format!("R.maximum({p}, {q})"), exact, most),
        5 => bind(g, b, &d, dt, &format!("R.minimum({p}, {q})"), exact, most),
        6 if exact => {
            let op = ["greater", "less", "equal", "not_equal", "greater_equal"][g.rng.below(5)];
            bind(g, b, &d, Dt::Bool, &format!("R.{op}({p}, {q})"), true, 1)
        }
        7 if dt == Dt::F32 && y.bits < 12 => {
            // Never near zero.
            let divisor = format!("R.add(R.multiply({q}, {q}), R.const(1.0, \"float32\"))");
            bind(g, b, &d, dt, &format!("R.divide({p}, {divisor})"), false, x.bits)
        }
        8 if !dt.is_float() => {
            let op = ["floor_divide", "floor_mod", "mod", "divide"][g.rng.below(4)];
            bind(g, b, dx, dt, &format!("R.{op}({p}, R.const(3, \"{}\"))", dt.name()), exact, x.bits)
        }
        _ => {}
    }
}

fn reduce(g: &mut Gen, b: &mut Body) {
    let Some(x) = g.pick(b, |v| numeric(v) && v.bits < MOST_BITS - 16) else { return };
    let Some((d, dt)) = x.tensor() else { return };
    if d.is_empty() {
        return;
    }
    let axis = g.rng.below(d.len());
    let all = g.chance(5);
    let keep = g.chance(2);
    let mut dims = vec![];
    for (i, e) in d.iter().enumerate() {
        if i != axis && !all {
            dims.push(e.clone());
        } else if keep {
            dims.push(Dim::Const(1));
        }
    }
    let size: usize = d.iter().map(Dim::size).sum();
    let grow = 6 * if all { size as i32 } else { d[axis].size() as i32 };
    let list = if all { "None".to_string() } else { format!("[{axis}]") };
    let k = if keep { "True" } else { "False" };
    let n = &x.name;
    match g.rng.below(7) {
        0 | 1 if x.bits + grow < MOST_BITS && (dt.is_float() || x.bits + grow < 30) => {
            bind(g, b, &dims, dt, &format!("R.sum({n}, axis={list}, keepdims={k})"), x.exact, x.bits + grow)
        }
        2 => bind(g, b, &dims, dt, &format!("R.max({n}, axis={list}, keepdims={k})"), x.exact, x.bits),
        3 => bind(g, b, &dims, dt, &format!("R.min({n}, axis={list}, keepdims={k})"), x.exact, x.bits),
        4 if dt == Dt::F32 => bind(g, b, &dims, dt, &format!("R.mean({n}, axis={list}, keepdims={k})"), false, x.bits),
        5 if dt == Dt::F32 && x.bits <= 4 => bind(g, b, d, dt, &format!("R.nn.softmax({n}, axis={axis})"), false, 0),
        6 if x.exact && !all => {
            let op = ["argmax", "argmin"][g.rng.below(2)];
            bind(g, b, &dims, Dt::I64, &format!("R.{op}({n}, axis={axis}, keepdims={k})"), true, 12)
        }
        _ => {}
    }
}

fn matmul(g: &mut Gen, b: &mut Body) {
    let small = |v: &Var| matches!(v.tensor(), Some((d, Dt::F32)) if !d.is_empty()) && v.bits < 16;
    let Some(x) = g.pick(b, small) else { return };
    let Some((dx, _)) = x.tensor() else { return };
    let Some(inner) = dx.last() else { return };
    let fits = |v: &Var| small(v) && matches!(v.tensor(), Some((d, _)) if d.len() == 2 && &d[0] == inner);
    let turned = |v: &Var| small(v) && matches!(v.tensor(), Some((d, _)) if d.len() == 2 && &d[1] == inner);
    let (y, by, outer) = match (g.pick(b, fits), g.pick(b, turned)) {
        (Some(y), _) => {
            let Some(o) = y.tensor().map(|(d, _)| d[1].clone()) else { return };
            (y.clone(), y.name, o)
        }
        (None, Some(y)) => {
            let Some(o) = y.tensor().map(|(d, _)| d[0].clone()) else { return };
            (y.clone(), format!("R.permute_dims({}, axes=[1, 0])", y.name), o)
        }
        _ => return,
    };
    let mut d = dx[..dx.len() - 1].to_vec();
    d.push(outer);
    let bits = x.bits + y.bits + 6 * inner.size() as i32;
    if bits < MOST_BITS {
        bind(g, b, &d, Dt::F32, &format!("R.matmul({}, {by})", x.name), x.exact && y.exact, bits);
    }
}

fn list(d: &[Dim]) -> String {
    let v: Vec<String> = d.iter().map(Dim::to_string).collect();
    format!("R.shape([{}])", v.join(", "))
}

fn product(d: &[Dim]) -> Dim {
    d.iter().fold(Dim::Const(1), |p, d| p.times(d))
}

fn shape(g: &mut Gen, b: &mut Body) {
    let Some(x) = g.pick(b, |v| v.tensor().is_some()) else { return };
    let Some((d, dt)) = x.tensor() else { return };
    let (n, mut d) = (&x.name, d.to_vec());
    let (exact, bits) = (x.exact, x.bits);
    match g.rng.below(9) {
        0 if d.iter().map(Dim::size).sum::<usize>() < 6 => {
            let flat = vec![product(&d)];
            bind(g, b, &flat, dt, &format!("R.reshape({n}, {})", list(&flat)), exact, bits)
        }
        1 if d.len() >= 2 => {
            let i = g.rng.below(d.len() - 1);
            let joined = d[i].times(&d[i + 1]);
            d.splice(i..i + 2, [joined]);
            bind(g, b, &d, dt, &format!("R.reshape({n}, {})", list(&d)), exact, bits)
        }
        2 => {
            let i = g.rng.below(d.len() + 1);
            d.insert(i, Dim::Const(1));
            if d.len() < 5 {
                bind(g, b, &d, dt, &format!("R.expand_dims({n}, axis=[{i}])"), exact, bits)
            }
        }
        3 => {
            if let Some(i) = d.iter().position(|d| *d == Dim::Const(1)) {
                d.remove(i);
                bind(g, b, &d, dt, &format!("R.squeeze({n}, axis=[{i}])"), exact, bits)
            }
        }
        4 | 5 if d.len() >= 2 => {
            let mut axes: Vec<usize> = (0..d.len()).collect();
            for i in 0..axes.len() {
                let j = g.rng.below(axes.len());
                axes.swap(i, j);
            }
            let new: Vec<Dim> = axes.iter().map(|&a| d[a].clone()).collect();
            let axes: Vec<String> = axes.iter().map(usize::to_string).collect();
            bind(g, b, &new, dt, &format!("R.permute_dims({n}, axes=[{}])", axes.join(", ")), exact, bits)
        }
        6 if d.len() < 3 => {
            let lead = b.dims[g.rng.below(b.dims.len())].clone();
            d.insert(0, lead);
            bind(g, b, &d, dt, &format!("R.broadcast_to({n}, {})", list(&d)), exact, bits)
        }
        7 if !d.is_empty() => {
            let s = g.fresh("s");
            b.line(&format!("{s} = R.shape_of({n})"));
            let r = d.len() as i64;
            bind(g, b, &[Dim::Const(r)], Dt::I64, &format!("R.shape_to_tensor({s})"), true, 10)
        }
        8 if !d.is_empty() => {
            let i = g.rng.below(d.len());
            bind(g, b, &d, dt, &format!("R.flip({n}, axis={i})"), exact, bits)
        }
        _ => {}
    }
}

fn concat(g: &mut Gen, b: &mut Body) {
    let Some(x) = g.pick(b, |v| v.tensor().is_some_and(|(d, _)| !d.is_empty())) else { return };
    let Some((dx, dt)) = x.tensor() else { return };
    let axis = g.rng.below(dx.len());
    let rest = |d: &[Dim]| d.len() == dx.len() && (0..d.len()).all(|i| i == axis || d[i] == dx[i]);
    let Some(y) = g.pick(b, |v| v.tensor().is_some_and(|(d, t)| t == dt && rest(d))) else { return };
    let Some((dy, _)) = y.tensor() else { return };
    let mut d = dx.to_vec();
    d[axis] = match (&dx[axis], &dy[axis]) {
        (Dim::Const(p), Dim::Const(q)) => Dim::Const(p + q),
        (p, q) => p.plus(q),
    };
    if d[axis].size() > 5 {
        return;
    }
    let value = format!("R.concat(({}, {}), axis={axis})", x.name, y.name);
    bind(g, b, &d, dt, &value, x.exact && y.exact, x.bits.max(y.bits));
}

fn select(g: &mut Gen, b: &mut Body) {
    let Some(c) = g.pick(b, |v| v.exact && matches!(v.tensor(), Some((_, Dt::Bool)))) else { return };
    let Some((dc, _)) = c.tensor() else { return };
    let Some(x) = g.pick(b, |v| v.tensor().is_some_and(|(d, t)| t != Dt::Bool && d == dc)) else { return };
    let Some((_, dt)) = x.tensor() else { return };
    let Some(y) = g.pick(b, |v| v.tensor().is_some_and(|(d, t)| t == dt && d == dc)) else { return };
    let value = format!("R.where({}, {}, {})", c.name, x.name, y.name);
    bind(g, b, dc, dt, &value, x.exact && y.exact, x.bits.max(y.bits));
}

fn slices(g: &mut Gen, b: &mut Body) {
    let Some(x) = g.pick(b, |v| v.tensor().is_some_and(|(d, _)| !d.is_empty())) else { return };
    let Some((d, dt)) = x.tensor() else { return };
    let axis = g.rng.below(d.len());
    let n = &x.name;
    match g.rng.below(4) {
        0 | 1 => {
            let (begin, step) = (g.rng.below(3), 1 + g.rng.below(3));
            let end = begin + g.rng.below(6);
            let value = format!(
                "R.strided_slice({n}, axes=[{axis}], begin=[{begin}], end=[{end}], strides=[{step}], assume_inbound=False)"
            );
            bind_open(g, b, d.len(), dt, &value, x.exact, x.bits)
        }
        2 => {
            let mut out = d.to_vec();
            out[axis] = out[axis].times(&Dim::Const(2));
            if out[axis].size() < 5 {
                bind(g, b, &out, dt, &format!("R.repeat({n}, repeats=2, axis={axis})"), x.exact, x.bits)
            }
        }
        _ => {
            let grow = 6 * d[axis].size() as i32;
            if dt == Dt::F32 && x.bits + grow < EXACT_BITS {
                let value = format!("R.cumsum({n}, axis={axis}, dtype=None, exclusive=False)");
                bind(g, b, d, dt, &value, x.exact, x.bits + grow)
            } else if x.exact && dt == Dt::F32 {
                bind(g, b, d, dt, &format!("R.sort({n}, axis={axis}, descending=False)"), true, x.bits)
            }
        }
    }
}

fn make(g: &mut Gen, b: &mut Body) {
    let d: Vec<Dim> = (0..1 + g.rng.below(2)).map(|_| b.dims[g.rng.below(b.dims.len())].clone()).collect();
    match g.rng.below(3) {
        0 => bind(
            g,
            b,
            &d,
            Dt::F32,
            &format!("R.full({}, R.const(2.0, \"float32\"), dtype=\"float32\")", list(&d)),
            true,
            1,
        ),
        1 => bind(g, b, &d, Dt::I64, &format!("R.ones({}, dtype=\"int64\")", list(&d)), true, 1),
        _ => bind(g, b, &d, Dt::F32, &format!("R.zeros({}, dtype=\"float32\")", list(&d)), true, 0),
    }
}

fn data(g: &mut Gen, b: &mut Body) {
    let Some(x) = g.pick(b, |v| v.exact && numeric(v)) else { return };
    let Some((d, dt)) = x.tensor() else { return };
    if d.is_empty() || d.iter().map(Dim::size).sum::<usize>() > 4 {
        return;
    }
    if g.chance(2) {
        let value = format!("R.unique({}, True, False, False, False)", x.name);
        bind_open(g, b, 1, dt, &value, true, x.bits);
    } else {
        bind_open(g, b, 2, Dt::I64, &format!("R.nonzero({})", x.name), true, 12);
    }
}

fn convert(g: &mut Gen, b: &mut Body) {
    let Some(x) = g.pick(b, |v| v.exact && v.bits < EXACT_BITS && v.tensor().is_some()) else { return };
    let Some((d, dt)) = x.tensor() else { return };
    let to = [Dt::F32, Dt::F32, Dt::I64, Dt::I32, Dt::F64][g.rng.below(5)];
    if to != dt {
        bind(g, b, d, to, &format!("R.astype({}, dtype=\"{}\")", x.name, to.name()), true, x.bits);
    }
}

/// A PrimFunc of the module's own, and a call of it.
pub fn prim_func(g: &mut Gen, b: &mut Body) {
    let Some(x) = g.pick(b, |v| float(v) && v.bits < 10 && v.tensor().is_some_and(|(d, _)| !d.is_empty())) else {
        return;
    };
    let Some((d, dt)) = x.tensor() else { return };
    if dt != Dt::F32 || d.len() > 2 {
        return;
    }
    let name = g.fresh("p");
    let names: Vec<String> = (0..d.len()).map(|i| format!("{name}n{i}")).collect();
    let axes: Vec<String> = (0..d.len()).map(|i| format!("i{i}")).collect();
    let reduce = d.len() == 2 && g.chance(3);
    let comma = |v: &[String]| if v.len() == 1 { format!("{},", v[0]) } else { v.join(", ") };
    let out_dims = if reduce { &names[..1] } else { &names[..] };
    let mut t = format!("    @T.prim_func(private=True, s_tir=True)\n    def {name}(a: T.handle, o: T.handle):\n");
    for n in &names {
        t.push_str(&format!("        {n} = T.int64()\n"));
    }
    t.push_str(&format!("        A = T.match_buffer(a, ({}))\n", comma(&names)));
    t.push_str(&format!("        O = T.match_buffer(o, ({}))\n", comma(out_dims)));
    t.push_str(&format!("        for {} in T.grid({}):\n", axes.join(", "), names.join(", ")));
    t.push_str("            with T.sblock(\"b\"):\n");
    let vs: Vec<String> = axes.iter().map(|a| format!("v{a}")).collect();
    for (k, v) in vs.iter().enumerate() {
        let kind = if reduce && k == 1 { "reduce" } else { "spatial" };
        t.push_str(&format!("                {v} = T.axis.{kind}({}, {})\n", names[k], axes[k]));
    }
    let at = format!("A[{}]", vs.join(", "));
    let (value, bits) = element(g, &at, &vs, &names);
    if reduce {
        t.push_str("                with T.init():\n                    O[vi0] = T.float32(0)\n");
        t.push_str(&format!("                O[vi0] = O[vi0] + {value}\n"));
    } else {
        t.push_str(&format!("                O[{}] = {value}\n", vs.join(", ")));
    }
    g.module.push(t);
    let out: Vec<Dim> = if reduce { d[..1].to_vec() } else { d.to_vec() };
    let grow = if reduce { 6 * d[1].size() as i32 } else { 0 };
    let ty = Ty::Tensor(out.clone(), Dt::F32);
    let value = format!("R.call_tir(cls.{name}, ({},), out_ty={})", x.name, ty.text(Place::Body));
    bind(g, b, &out, Dt::F32, &value, x.exact, x.bits + bits + grow);
}

/// An element from the element `at` and its neighbours: always exact, at most 2 to the second more times as great.
fn element(g: &mut Gen, at: &str, vs: &[String], names: &[String]) -> (String, i32) {
    let last = vs.len() - 1;
    let (v, n) = (&vs[last], &names[last]);
    let lead: String = vs[..last].iter().map(|v| format!("{v}, ")).collect();
    let reversed = format!("A[{lead}{n} - 1 - {v}]");
    let before = format!("T.if_then_else({v} > 0, A[{lead}{v} - 1], T.float32(0))");
    let parity = format!("T.Select({v} % 2 == 0, {at}, T.float32(-1) * {at})");
    match g.rng.below(7) {
        0 => (format!("{at} * T.float32(2) + T.float32(1)"), 3),
        1 => (format!("{at} + {reversed}"), 1),
        2 => (format!("{at} - {before}"), 1),
        3 => (format!("T.max({at}, {reversed})"), 0),
        4 => (parity, 0),
        5 => (format!("T.min({before}, {at}) * T.Cast(\"float32\", {v})"), 12),
        _ => (reversed, 0),
    }
}
