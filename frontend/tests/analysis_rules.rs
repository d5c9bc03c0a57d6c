//! Rules of the specification, one module each. A comment `# error[code]: part of the message` (or `# warning[..]`)
//! stands at the line where the diagnostic is expected; a module without one is accepted.

use relax_frontend::rlx::parse;
use relax_ir::analysis::{analyze, materialise, show, Typed};
use relax_ir::diag::Severity;
use relax_ir::{Diagnostics, FileId};

/// The functions of a module, indented by four.
fn module(functions: &str) -> String {
    let mut text = String::from("from tvm.script import ir as I, relax as R, tirx as T\n@I.ir_module\nclass Module:\n");
    for line in functions.lines() {
        text.push_str("    ");
        text.push_str(line);
        text.push('\n');
    }
    text
}

fn run(text: &str) -> (Option<Typed>, Diagnostics) {
    let (m, mut diags) = parse(FileId(0), text);
    let Some(m) = m.filter(|_| !diags.has_errors()) else { return (None, diags) };
    let (typed, more) = analyze(&m);
    diags.extend(more);
    (typed, diags)
}

/// Analyses and compares the diagnostics with the comments.
fn check(functions: &str) -> Option<Typed> {
    let text = module(functions);
    let (typed, diags) = run(&text);
    let mut got: Vec<(usize, String, String)> = diags
        .list
        .iter()
        .map(|d| {
            let line = text[..(d.span().lo as usize).min(text.len())].matches('\n').count() + 1;
            let line = if d.span().is_none() { 0 } else { line };
            let kind = if d.severity == Severity::Error { "error" } else { "warning" };
            let labels: Vec<&str> = d.labels.iter().map(|l| l.text.as_str()).collect();
            (line, format!("{kind}[{}]", d.code), format!("{} | {}", d.message, labels.join(" | ")))
        })
        .collect();
    let mut missing = vec![];
    for (i, line) in text.lines().enumerate() {
        for want in line.split("# ").skip(1).filter(|c| c.starts_with("error[") || c.starts_with("warning[")) {
            let (code, part) = want.split_once(": ").unwrap_or((want, ""));
            match got.iter().position(|(l, c, m)| *l == i + 1 && c == code && m.contains(part.trim())) {
                Some(at) => {
                    got.remove(at);
                }
                None => missing.push(format!("line {}: {want}", i + 1)),
            }
        }
    }
    assert!(missing.is_empty() && got.is_empty(), "{text}\nmissing: {missing:#?}\nunexpected: {got:#?}");
    typed
}

/// The struct info of the variable with this name in the (materialised) module.
fn info(t: &Typed, name: &str) -> String {
    let mut all: Vec<_> = t.sinfo.iter().filter(|(v, _)| v.name() == name).collect();
    all.sort_by_key(|(v, _)| v.id());
    all.first().map_or_else(|| format!("no {name}"), |(_, s)| show::info(s))
}

fn checks(t: &Typed) -> Vec<String> {
    t.checks.iter().map(|c| format!("{}: {}", c.before.name(), show::dim(&c.condition))).collect()
}

#[test]
fn well_formedness_4_results_mention_variables_of_the_signature() {
    check(
        r#"@R.function
def main(x: R.Tensor(dtype="float32", ndim=1)) -> R.Tensor(("k",), dtype="float32"): # error[unbound-shape-variable]: `k`
    return x
"#,
    );
}

#[test]
fn well_formedness_5_shape_variables_are_bound_alone() {
    check(
        r#"@R.function
def main(x: R.Tensor(("n", "m * m"), dtype="float32")): # error[unbound-shape-variable]: `m`
    return x
"#,
    );
    // Anywhere in the signature, also in tuples, shapes and scalars, also after its use.
    check(
        r#"@R.function
def main(x: R.Tensor(("m * 4",), dtype="float32"), t: R.Tuple(R.Shape(["m"]), R.Prim(value="k")), y: R.Tensor(("k + 1",), dtype="float32")):
    return x
"#,
    );
    check(
        r#"@R.function
def main(x: R.Tensor(dtype="float32", ndim=1)):
    k = T.int64()
    s = R.shape([k]) # error[unbound-shape-variable]: `k`
    y = R.match_cast(x, R.Tensor((k,), dtype="float32"))
    return y
"#,
    );
}

#[test]
fn well_formedness_6_dataflow_blocks_hold_no_control_flow_and_no_effects() {
    check(
        r#"@R.function
def main(x: R.Tensor((3,), dtype="float32")) -> R.Tensor((3,), dtype="float32"):
    with R.dataflow():
        y = Module.main(x) # error[dataflow]: recursive call
        R.output(y)
    return y
"#,
    );
    check(
        r#"@R.function(pure=False)
def main(x: R.Tensor((3,), dtype="float32")):
    with R.dataflow():
        y = R.print(x, format="x") # error[dataflow]: R.print is not pure
        R.output(y)
    return y
"#,
    );
    check(
        r#"@R.function(pure=False)
def effect(x: R.Tensor((3,), dtype="float32")) -> R.Tuple:
    return R.print(x, format="x")
@R.function(pure=False)
def main(x: R.Tensor((3,), dtype="float32")):
    with R.dataflow():
        y = Module.effect(x) # error[dataflow]: `effect` is not pure
        R.output(y)
    return y
"#,
    );
}

#[test]
fn well_formedness_7_recursive_functions_state_their_result() {
    check(
        r#"@R.function
def main(x: R.Tensor((3,), dtype="float32")): # error[missing-annotation]: `main`
    y = Module.other(x)
    return y
@R.function
def other(x: R.Tensor((3,), dtype="float32")) -> R.Tensor((3,), dtype="float32"):
    y: R.Tensor((3,), dtype="float32") = Module.main(x)
    return y
"#,
    );
}

#[test]
fn well_formedness_11_some_function_is_exported() {
    let text = module("@R.function(private=True)\ndef f(x: R.Tensor((3,), dtype=\"float32\")):\n    return x\n");
    let (typed, diags) = run(&text);
    assert!(typed.is_some());
    assert_eq!(diags.list.iter().map(|d| d.code).collect::<Vec<_>>(), ["no-entry"]);
}

#[test]
fn well_formedness_12_global_symbols_are_names() {
    check(
        r#"@R.function
def main(x: R.Tensor((3,), dtype="float32")): # error[global-symbol]: "foo"
    R.func_attr({"global_symbol": "foo"})
    return x
"#,
    );
}

#[test]
fn derivation_8_annotations_are_checked() {
    check(
        r#"@R.function
def main(x: R.Tensor((3,), dtype="float32")):
    y: R.Tensor((4,), dtype="float32") = R.add(x, x) # error[annotation]: dim 0 of `y` is 3, 4 is wanted
    z: R.Tensor((3,), dtype="int32") = R.add(x, x) # error[annotation]: has dtype float32, int32 is wanted
    w: R.Tensor((3, 1), dtype="float32") = R.add(x, x) # error[annotation]: has rank 1, rank 2 is wanted
    s: R.Shape([3]) = R.add(x, x) # error[annotation]: is a tensor, a shape is wanted
    return x
"#,
    );
    let t = check(
        r#"@R.function
def main(x: R.Tensor(("n",), dtype="float32"), y: R.Tensor(("m",), dtype="float32")):
    n = T.int64()
    m = T.int64()
    a: R.Tensor((m,), dtype="float32") = R.exp(x)
    b: R.Tensor((n,), dtype="float32") = R.exp(y)
    c = R.add(a, b)
    d: R.Tensor(dtype="float32", ndim=1) = R.exp(c)
    return c
"#,
    )
    .unwrap();
    // One check makes both known for what follows.
    assert_eq!(checks(&t), ["a: n == m"]);
    // A vaguer annotation takes nothing away.
    assert_eq!(info(&t, "d"), "R.Tensor((n,), dtype=\"float32\")");
}

#[test]
fn annotations_of_values_of_unknown_structure_are_match_casts() {
    let functions = r#"@R.function(pure=False)
def main(x: R.Tensor(("n",), dtype="float32")) -> R.Tensor(("n",), dtype="float32"):
    n = T.int64()
    y: R.Tensor((n,), dtype="float32") = R.call_packed("f", x)
    return y
"#;
    let mut t = check(functions).unwrap();
    let body = |t: &Typed| {
        let f = t.module.relax("main").unwrap();
        f.bindings().filter(|b| matches!(b.value, relax_ir::relax::BindingValue::MatchCast { .. })).count()
    };
    assert_eq!(body(&t), 1);
    materialise(&mut t).unwrap();
    assert_eq!(body(&t), 1);
    assert_eq!(info(&t, "y"), "R.Tensor((n,), dtype=\"float32\")");
}

#[test]
fn derivation_8_3_match_cast_binds_and_knows() {
    let t = check(
        r#"@R.function
def main(x: R.Tensor(("n", 4), dtype="float32")):
    n = T.int64()
    m = T.int64()
    k = T.int64()
    y = R.match_cast(x, R.Tensor((m, k), dtype="float32"))
    z: R.Tensor((n, 4), dtype="float32") = R.exp(y)
    w: R.Tensor((n * 4,), dtype="float32") = R.reshape(z, R.shape([m * k]))
    return w
"#,
    )
    .unwrap();
    assert_eq!(checks(&t), Vec::<String>::new());
    check(
        r#"@R.function
def main(x: R.Tensor((3,), dtype="float32")):
    y = R.match_cast(x, R.Tensor((4,), dtype="float32")) # error[match-cast]: dim 0 of the value is 3, 4 is wanted
    return y
"#,
    );
}

#[test]
fn derivation_9_fields_of_tuples() {
    check(
        r#"@R.function
def main(t: R.Tuple(R.Tensor((3,), dtype="float32"))):
    a = t[0]
    b = t[1] # error[tuple-index]: field 1 of a tuple of 1 fields
    c = a[0] # error[tuple-index]: no tuple
    return a
"#,
    );
}

#[test]
fn derivation_11_calls_map_the_variables_of_the_signature() {
    let t = check(
        r#"@R.function
def g(x: R.Tensor(("n", "m"), dtype="float32"), s: R.Shape(["k"])) -> R.Tensor(("n * m", "k"), dtype="float32"):
    n = T.int64()
    m = T.int64()
    k = T.int64()
    y = R.broadcast_to(R.reshape(x, R.shape([n * m, 1])), R.shape([n * m, k]))
    return y
@R.function
def main(x: R.Tensor(("m", 4), dtype="float32"), y: R.Tensor(dtype="float32", ndim=2)):
    m = T.int64()
    a = Module.g(x, R.shape([m + 1]))
    b = Module.g(y, R.shape([m + 1]))
    return a
"#,
    )
    .unwrap();
    assert_eq!(info(&t, "a"), "R.Tensor((m * 4, m + 1), dtype=\"float32\")");
    assert_eq!(info(&t, "b"), "R.Tensor(dtype=\"float32\", ndim=2)");
    check(
        r#"@R.function
def g(x: R.Tensor(("n", "n"), dtype="float32")) -> R.Tensor(("n",), dtype="float32"):
    n = T.int64()
    return R.sum(x, axis=[1])
@R.function
def main(x: R.Tensor((3, 4), dtype="float32"), y: R.Tensor(("m", 4), dtype="float32"), z: R.Any, u: R.Tensor(dtype="float32")):
    a = Module.g(x) # error[argument]: dim 1 of argument 1 of `g` is 4, 3 is wanted
    b = Module.g(y)
    c = Module.g(z) # error[argument]: may be any object
    d = Module.g(u) # error[argument]: the rank of argument 1 of `g` is not known
    e = Module.g(b) # error[argument]: has rank 1, rank 2 is wanted
    f = Module.g(y, y) # error[call]: takes 1 arguments, 2 are given
    return a
"#,
    );
}

#[test]
fn derivation_11_call_tir_meets_the_prim_func() {
    let prim = r#"@T.prim_func(s_tir=True)
def f(a: T.Buffer((T.int64(4),), "float32"), b: T.Buffer((T.int64(4),), "float32")):
    for i in range(4):
        with T.sblock("b"):
            vi = T.axis.spatial(4, i)
            b[vi] = a[vi]
"#;
    let main = r#"@R.function
def main(x: R.Tensor((3,), dtype="float32"), y: R.Tensor((4,), dtype="int32"), z: R.Tensor((4,), dtype="float32"), w: R.Tensor(("n",), dtype="float32")):
    a = R.call_tir(Module.f, (x,), out_ty=R.Tensor((4,), dtype="float32")) # error[argument]: dim 0 of argument 1 of `f` is 3, 4 is wanted
    b = R.call_tir(Module.f, (y,), out_ty=R.Tensor((4,), dtype="float32")) # error[argument]: has dtype int32
    c = R.call_tir(Module.f, (z,), out_ty=R.Tensor((5,), dtype="float32")) # error[argument]: dim 0 of output 1 of `f` is 5
    d = R.call_tir(Module.f, (z, z), out_ty=R.Tensor((4,), dtype="float32")) # error[call]: takes 2 parameters, 3 are given
    e = R.call_tir(Module.f, (w,), out_ty=R.Tensor((4,), dtype="float32"))
    return e
"#;
    check(&format!("{prim}{main}"));
}

#[test]
fn derivation_6_branches_join() {
    let t = check(
        r#"@R.function
def main(c: R.Tensor((), dtype="bool"), x: R.Tensor(("n", 4), dtype="float32"), y: R.Tensor(("m", 4), dtype="float32")):
    n = T.int64()
    if c:
        a = R.add(x, x)
        r = a
    else:
        b = R.exp(x)
        r = b
    if c:
        s = R.exp(x)
    else:
        s = R.exp(y)
    if c:
        u = R.exp(x)
    else:
        u = R.sum(x, axis=None)
    if c:
        v = x
    else:
        v = (x, x)
    return (r, s, u, v)
"#,
    )
    .unwrap();
    let f = t.module.relax("main").unwrap();
    let ret = show::info(f.ret.as_ref().unwrap());
    assert_eq!(
        ret,
        "R.Tuple(R.Tensor((n, 4), dtype=\"float32\"), R.Tensor(dtype=\"float32\", ndim=2), R.Tensor(dtype=\"float32\"), R.Any)"
    );
    check(
        r#"@R.function
def main(x: R.Tensor((3,), dtype="bool")):
    if x: # error[condition]: bool scalar
        y = x
    else:
        y = x
    return y
"#,
    );
}

#[test]
fn derivation_12_results_are_checked() {
    check(
        r#"@R.function
def main(x: R.Tensor((3,), dtype="float32")) -> R.Tensor((4,), dtype="float32"):
    y = R.add(x, x)
    return y # error[result]: dim 0 of the result is 3, 4 is wanted
"#,
    );
    let t = check(
        r#"@R.function
def main(x: R.Tensor(("n",), dtype="float32"), y: R.Tensor(("m",), dtype="float32")) -> R.Tensor(("m",), dtype="float32"):
    return x
"#,
    )
    .unwrap();
    assert_eq!(checks(&t), ["ret: n == m"]);
    let mut twice = t.clone();
    materialise(&mut twice).unwrap();
    assert_eq!(checks(&twice), ["ret: n == m"]);
}

#[test]
fn type_rule_11_purity() {
    check(
        r#"@R.function
def main(x: R.Tensor((3,), dtype="float32")):
    y = R.print(x, format="x") # error[purity]: R.print is not pure
    z = R.call_packed("f", x) # error[purity]: "f" is not pure
    w = R.call_pure_packed("f", x, ty_args=(R.Tensor((3,), dtype="float32"),))
    return w
"#,
    );
    check(
        r#"@R.function
def main(x: R.Tensor((3,), dtype="float32")):
    R.func_attr({"relax.force_pure": True})
    y = R.print(x, format="x")
    return x
"#,
    );
}

#[test]
fn closures_capture_shape_variables_and_bind_their_own() {
    let t = check(
        r#"@R.function
def main(x: R.Tensor(("n",), dtype="float32"), y: R.Tensor(("m",), dtype="float32")):
    n = T.int64()
    m = T.int64()
    @R.function
    def inner(a: R.Tensor((n,), dtype="float32"), b: R.Tensor(("k",), dtype="float32")) -> R.Tensor(("k", n), dtype="float32"):
        k = T.int64()
        c = R.broadcast_to(R.expand_dims(b, axis=[1]), R.shape([k, n]))
        return c
    r = inner(x, y)
    s = inner(y, y)
    return (r, s)
"#,
    )
    .unwrap();
    assert_eq!(info(&t, "r"), "R.Tensor((m, n), dtype=\"float32\")");
    assert_eq!(checks(&t), ["s: m == n"]);
}

#[test]
fn one_mistake_is_reported_once() {
    check(
        r#"@R.function
def main(x: R.Tensor((3,), dtype="float32"), y: R.Tensor((4,), dtype="float32")):
    a = R.add(x, y) # error[operator]: do not broadcast
    b = R.exp(a)
    c = R.add(b, b)
    d: R.Tensor((3,), dtype="float32") = R.exp(c)
    e: R.Tensor((4,), dtype="float32") = R.exp(d) # error[annotation]: dim 0
    return c
"#,
    );
}

#[test]
fn unknown_dims_get_names() {
    let mut t = check(
        r#"@R.function
def main(x: R.Tensor(dtype="float32", ndim=2), t: R.Tuple(R.Shape(ndim=2), R.Tensor((3,), dtype="bool"))):
    y = R.exp(x)
    z = R.nonzero(t[1])
    w = R.add(z, z)
    return (y, w)
"#,
    )
    .unwrap();
    materialise(&mut t).unwrap();
    assert_eq!(info(&t, "y"), "R.Tensor((x_d0, x_d1), dtype=\"float32\")");
    assert_eq!(info(&t, "t"), "R.Tuple(R.Shape([t_0_d0, t_0_d1]), R.Tensor((3,), dtype=\"bool\"))");
    // The first dim of `nonzero` is its operand's rank.
    assert_eq!(info(&t, "w"), "R.Tensor((1, z_d1), dtype=\"int64\")");
    let z = t.births.iter().find(|(v, _)| v.name() == "z").map(|(_, b)| b.len());
    assert_eq!(z, Some(2));
}

#[test]
fn functions_of_tvms_runtime_are_operators() {
    let t = check(
        r#"@R.function
def main(x: R.Tensor(("n",), dtype="float32"), s: R.Shape(["n", 3])):
    a = R.call_pure_packed("relax.run.shape_to_tensor", s, ty_args=(R.Tensor((2,), dtype="int64"),))
    b = R.call_pure_packed("relax.run.unique", x, True, False, False, False, ty_args=(R.Tensor(dtype="float32", ndim=1),))
    c = R.call_pure_packed("other", x, ty_args=(R.Tensor(dtype="float32", ndim=1),))
    return (a, b, c)
"#,
    )
    .unwrap();
    let f = t.module.relax("main").unwrap();
    let ops: Vec<&str> = f.bindings().filter_map(|b| Some(b.expr().as_call()?.op()?.name)).collect();
    assert_eq!(ops, ["shape_to_tensor", "unique", "call_pure_packed"]);
}

#[test]
fn bounds_decide() {
    let t = check(
        r#"@R.function
def main(x: R.Tensor(("n",), dtype="float32")):
    R.func_attr({"tir_var_upper_bound": {"n": 16}, "tir_var_lower_bound": {"n": 2}})
    n = T.int64()
    y = R.nn.max_pool1d(R.reshape(x, R.shape([1, 1, n])), pool_size=[2], strides=[1], dilation=[1], padding=[0, 0], ceil_mode=False, count_include_pad=False, layout="NCW", out_layout="NCW")
    return y
"#,
    )
    .unwrap();
    assert_eq!(checks(&t), Vec::<String>::new());
}

/// Linear in the number of bindings.
#[test]
fn ten_thousand_bindings() {
    let mut body = String::from("@R.function\ndef main(x: R.Tensor((\"n\", \"m\"), dtype=\"float32\"), w: R.Tensor((\"k\", \"l\"), dtype=\"float32\")):\n    n = T.int64()\n    m = T.int64()\n    k = T.int64()\n    l = T.int64()\n    v0 = R.matmul(x, w, out_dtype=None)\n");
    for i in 0..10_000 {
        let line = match i % 4 {
            0 => format!("    v{}: R.Tensor((n, l), dtype=\"float32\") = R.exp(v{i})\n", i + 1),
            1 => format!("    v{} = R.add(v{i}, v{})\n", i + 1, i - 1),
            2 => format!("    v{} = R.reshape(v{i}, R.shape([n * l]))\n", i + 1),
            _ => format!("    v{} = R.reshape(v{i}, R.shape([n, l]))\n", i + 1),
        };
        body.push_str(&line);
    }
    body.push_str("    return v10000\n");
    let text = module(&body);
    let (m, d) = parse(FileId(0), &text);
    assert!(!d.has_errors());
    let m = m.unwrap();
    let start = std::time::Instant::now();
    let (t, d) = analyze(&m);
    let took = start.elapsed();
    assert!(t.is_some(), "{:?}", d.list.first());
    println!("analysis of 10,000 bindings: {took:?}");
    assert!(took.as_secs_f32() < if cfg!(debug_assertions) { 30.0 } else { 2.0 }, "{took:?}");
}
