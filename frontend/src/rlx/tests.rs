use super::*;
use relax_ir::relax::ExprKind;
use relax_ir::{AttrValue, Fault};

mod verdicts;

fn diagnostics(text: &str) -> Diagnostics {
    parse(FileId(0), text).1
}

/// `line: message`, with the help where there is one.
fn messages(text: &str) -> Vec<String> {
    let show = |d: &Diagnostic| {
        let help = d.help.as_ref().map(|h| format!(" | {h}")).unwrap_or_default();
        format!("{}: {}{help}", line(text, d.span()), d.message)
    };
    diagnostics(text).list.iter().map(show).collect()
}

fn line(text: &str, span: Span) -> usize {
    text.as_bytes()[..(span.lo as usize).min(text.len())].iter().filter(|b| **b == b'\n').count() + 1
}

/// What the first diagnostic points at.
fn pointed(text: &str) -> String {
    let span = diagnostics(text).list[0].span();
    text[span.lo as usize..span.hi as usize].to_string()
}

fn module(text: &str) -> IRModule {
    let (m, d) = parse(FileId(0), text);
    assert!(d.list.is_empty(), "{:?}", d.list);
    m.expect("a module")
}

/// A Relax function around `body`, whose first line is line 5.
fn relax(body: &str) -> String {
    let body = body.replace('\n', "\n        ");
    format!(
        "n = TypeVar(\"n\")\n@I.ir_module\nclass Module:\n    @R.function\n    def main(x: R.Tensor((n, 4), \
         dtype=\"float32\")) -> R.Tensor((n, 4), dtype=\"float32\"):\n        {body}\n        return x\n"
    )
}

/// A PrimFunc around `body`, whose first line is line 6.
fn tir(body: &str) -> String {
    let body = body.replace('\n', "\n        ");
    format!(
        "n = TypeVar(\"n\")\n@I.ir_module\nclass Module:\n    @T.prim_func(private=True, s_tir=True)\n    def f(x: \
         T.Buffer((n, T.int64(4)), \"float32\"), y: T.Buffer((n, T.int64(4)), \"float32\")):\n        {body}\n"
    )
}

#[test]
fn nothing_is_no_module() {
    assert_eq!(messages(""), ["1: the text holds no module | a module begins with `@I.ir_module` and `class Module:`"]);
    assert_eq!(messages("x = 3\n").len(), 1);
}

#[test]
fn every_mistake_of_a_file_is_found_in_one_run() {
    let text = relax(
        "a = R.ad(x, x)\nb = R.nn.relu(z)\nd = R.nn.relu(a)\ne: R.Tenso((n,), dtype=\"float32\") = x\n\
         g = R.nn.softmax(x, axs=1)\nh = R.nn.relu((x\ni = R.const(1.5, \"float23\")\nj = cls.main(x)\nk = R.add(x)",
    );
    let wanted = [
        "6: there is no operator `R.ad` | did you mean `R.add`?",
        "7: `z` is not defined | did you mean `x`?",
        "9: `R.Tenso` is no type | did you mean `R.Tensor`?",
        "10: R.nn.softmax has no argument `axs` | did you mean `axis`?",
        "11: `(` is never closed",
        "12: `float23` is no data type | did you mean \"float32\"?",
        "13: `cls.main` is no value",
        "14: `x2` of R.add is missing | the operator is R.add(x1, x2)",
    ];
    assert_eq!(messages(&text), wanted);
}

#[test]
fn an_unknown_operator_is_an_unsupported_feature() {
    let text = relax("a = R.nn.frobnicate(x)\nb = R.relu(x)");
    let d = diagnostics(&text);
    assert!(d.list.iter().all(|d| d.fault == Fault::Unsupported && d.code == "unknown-operator"));
    assert_eq!(pointed(&text), "R.nn.frobnicate");
    assert_eq!(d.list[1].help.as_deref(), Some("did you mean `R.nn.relu`?"));
}

#[test]
fn mistakes_in_primfuncs() {
    let text = tir(
        "for i, j in T.grid(n, T.int64(4)):\n    with T.sblock(\"b\"):\n        vi, vj = T.axis.remap(\"SS\", [i, j])\n\
         \x20       y[vi] = x[vi, vj]\n        y[vi, vj] = T.expp(x[vi, vj])\n        y[vi, vj] = x[vi, vk] / 2\n\
         \x20       y[vi, vj] = n / 2",
    );
    let wanted = [
        "9: `y` has 2 dims, 1 index is given",
        "10: `T.expp` is not supported | did you mean `T.exp`?",
        "11: `vk` is not defined | did you mean `vi`?",
        "12: `/` on integers is ambiguous | write `//` (floor), T.truncdiv(a, b) or T.Div(a, b)",
    ];
    assert_eq!(messages(&text), wanted);
}

#[test]
fn literals_take_the_type_of_the_other_side() {
    let text = tir("for i, j in T.grid(n, T.int64(4)):\n    y[i, j] = x[i, j + 1] * 0.5 + 2");
    let m = module(&text);
    let f = m.prim("f").expect("a PrimFunc");
    let shown = format!("{:?}", f.body);
    assert!(shown.contains("Int(1):int64") && shown.contains("Float(FloatBits(0.5)):float32"), "{shown}");
    assert!(shown.contains("Float(FloatBits(2.0)):float32") && !shown.contains("Cast"), "{shown}");
}

#[test]
fn a_decimal_is_rounded_once() {
    let text = relax("a = R.const(1.00000017881393432617187499, \"float32\")");
    let m = module(&text);
    let f = m.relax("main").expect("a function");
    let value = f.bindings().next().expect("a binding").expr();
    let ExprKind::Constant(c) = value.kind() else { panic!("{value:?}") };
    // Through float64 it would round to the neighbour.
    assert_eq!(c.get_f64(0), f64::from(1.0000001f32));
}

#[test]
fn wrong_indentation() {
    let text = relax("a = x\n   b = x");
    assert_eq!(messages(&text), ["7: this block belongs to no statement"]);
    let text = "@I.ir_module\nclass Module:\n    @R.function\n   def main():\n        return R.tuple()\n";
    assert!(messages(text).iter().any(|m| m.starts_with("4: this indentation matches no enclosing block")));
    let text = "@I.ir_module\nclass Module:\n    @R.function\n    def main():\n    return R.tuple()\n";
    assert!(
        messages(text).iter().any(|m| m.starts_with("5: an indented block is needed here")),
        "{:?}",
        messages(text)
    );
}

#[test]
fn deep_nesting_is_a_diagnostic() {
    for (open, close) in [("(", ")"), ("[", "]"), ("R.nn.relu(", ")"), ("-", ""), ("not ", ""), ("x if x else ", "")] {
        let value = open.repeat(10_000) + "x" + &close.repeat(10_000);
        let d = diagnostics(&relax(&format!("a = {value}")));
        assert_eq!(d.list.len(), 1, "{open}: {:?}", d.list);
        assert_eq!(d.list[0].code, "nesting");
    }
    for link in [" + x", "[0]", "(x)", ".a", " < x", " and x", " ** x"] {
        let d = diagnostics(&relax(&format!("a = x{}", link.repeat(10_000))));
        assert_eq!(d.list.first().map(|d| d.code), Some("nesting"), "{link}");
    }
    let mut blocks = String::new();
    for i in 0..10_000 {
        blocks += &" ".repeat(i.min(300));
        blocks += "while x:\n";
    }
    assert!(diagnostics(&tir(&blocks)).has_errors());
    let elifs = "if x > 1:\n    pass\n".to_string() + &"elif x > 1:\n    pass\n".repeat(10_000);
    assert!(diagnostics(&tir(&elifs)).has_errors());
    let lets: String = (0..10_000).map(|i| format!("v{i} = n + 1\n")).collect();
    assert!(diagnostics(&tir(&lets)).has_errors());
    let open = diagnostics(&"(".repeat(10_000));
    assert!(open.list.iter().any(|d| d.code == "unclosed"));
}

#[test]
fn the_number_of_diagnostics_is_bounded() {
    let d = diagnostics(&relax(&"a = R.nothing(x)\n".repeat(1000)));
    assert_eq!(d.list.len(), MAX_DIAGNOSTICS + 1);
}

#[test]
fn branches_bind_one_name() {
    let body = "if c:\n    a: R.Tensor((n, 4), dtype=\"float32\") = R.sin(x)\n    r: R.Tensor((n, 4), dtype=\"float32\") = a\n\
                else:\n    s = R.cos(x)";
    let text = relax(&format!("c = R.const(True, \"bool\")\n{body}"));
    let d = diagnostics(&text);
    assert_eq!(d.list[0].message, "the branches end with different names, `r` and `s`");
    assert_eq!(d.list[0].labels.len(), 2);
    let m = module(&text.replace("s = R.cos(x)", "r = R.cos(x)"));
    let f = m.relax("main").expect("a function");
    let last = f.bindings().last().expect("a binding");
    let ExprKind::If { then, otherwise, .. } = last.expr().kind() else { panic!("{last:?}") };
    assert_eq!(last.var.name(), "r");
    // The annotations of the two differ: each branch keeps its own.
    assert!(then.body.as_var().is_some_and(|v| v.name() == "r"), "{then:?}");
    assert_eq!(otherwise.blocks[0].bindings.len(), 1);
}

#[test]
fn names_may_be_shadowed() {
    let m = module(&relax("x = R.nn.relu(x)\nx = R.add(x, x)"));
    let f = m.relax("main").expect("a function");
    let vars: Vec<_> = f.bindings().map(|b| b.var.clone()).collect();
    assert_ne!(vars[0], vars[1]);
    let call = f.bindings().nth(1).and_then(|b| b.expr().as_call()).expect("a call");
    assert_eq!(call.args[0].as_var(), Some(&vars[0]));
    assert_eq!(f.body.body.as_var(), Some(&vars[1]));
}

#[test]
fn arguments_of_unknown_operators_are_read() {
    let found = messages(&relax("z = R.nn.rleu(R.ad(x, x))"));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].contains("`R.nn.rleu`") && found[1].contains("`R.ad`"), "{found:?}");
}

#[test]
fn dataflow_variables_end_with_their_block() {
    let block = |outputs: &str| {
        relax(&format!("with R.dataflow():\n    lv = R.exp(x)\n    gv = R.exp(lv){outputs}\ny = R.exp(lv)"))
    };
    for outputs in ["", "\n    R.output(gv)"] {
        let found = messages(&block(outputs));
        assert!(found[0].contains("`lv` is not defined") && found[0].contains("R.output(lv)"), "{found:?}");
    }
    let found = messages(&relax("with R.dataflow():\n    lv = R.exp(x)\n    R.output(lw)"));
    assert!(found[0].starts_with("8: this block outputs `lw`, which it never binds"), "{found:?}");
}

#[test]
fn dataflow_variables_are_those_not_output() {
    let m = module(&relax("with R.dataflow():\n    a = R.sin(x)\n    b = R.cos(a)\n    R.output(b)\nd = b"));
    let f = m.relax("main").expect("a function");
    let flags: Vec<bool> = f.bindings().map(|b| b.var.is_dataflow()).collect();
    assert_eq!(flags, [true, false, false]);
    assert_eq!(f.body.blocks.len(), 2);
    let text = relax("with R.dataflow():\n    a = R.sin(x)\n    b = R.cos(a)\n    R.output(b)\nd = a");
    assert!(messages(&text)[0].starts_with("10: `a` is not defined"), "{:?}", messages(&text));
}

#[test]
fn attributes_are_all_there() {
    let m = module(&relax("a = R.nn.softmax(x)\nb = R.sum(x, axis=[0], keepdims=True)"));
    let f = m.relax("main").expect("a function");
    let calls: Vec<_> = f.bindings().filter_map(|b| b.expr().as_call().cloned()).collect();
    assert_eq!(calls[0].attrs.int("axis"), Some(-1));
    assert_eq!(calls[1].attrs.get("axis"), Some(&AttrValue::List(vec![AttrValue::Int(0)])));
}

#[test]
fn spans_point_at_the_culprit() {
    assert_eq!(pointed(&relax("a = R.add(x, R.nn.relu(oops))")), "oops");
    assert_eq!(pointed(&relax("a: R.Tensor((k, 4), dtype=\"float32\") = x")), "k");
    let text = relax("a = x").replace("(n, 4)", "(\"n * q +\", 4)");
    assert!(messages(&text)[0].starts_with("5: an expression is needed here"), "{:?}", messages(&text));
}

#[test]
fn tir_vars_become_arguments() {
    let text = "@I.ir_module\nclass Module:\n    @T.prim_func(private=True)\n    def fill(X: T.Buffer((T.int64(2),), \
                \"int64\"), O: T.Buffer((T.int64(2),), \"int64\"), a: T.int64):\n        for i in range(T.int64(2)):\n\
                \x20           O[i] = X[i] * a\n\n    @R.function\n    def main(x: R.Tensor((2,), dtype=\"int64\"), y: \
                R.Tensor((\"m\",), dtype=\"int64\")) -> R.Tensor((2,), dtype=\"int64\"):\n        m = T.int64()\n\
                \x20       r = R.call_tir(Module.fill, (x,), out_sinfo=R.Tensor((2,), dtype=\"int64\"), \
                tir_vars=R.shape([m]))\n        return r\n";
    let m = module(text);
    let fill = m.prim("fill").expect("a PrimFunc");
    assert!(fill.params[1].buffer().is_none() && fill.params[2].buffer().is_some());
    let call = m.relax("main").and_then(|f| f.bindings().next()?.expr().as_call().cloned()).expect("a call");
    assert_eq!(call.args.len(), 2);
    assert!(matches!(call.args[1].kind(), ExprKind::Tuple(f) if f.len() == 2));
}

/// What TVM's parser refuses in kernels (tirx: operators of scalars, statements, literals), each with our first message.
#[test]
fn kernels_are_refused_where_tvm_refuses_them() {
    let rows = [
        ("break", "`break` stands outside of a loop"),
        ("p: T.let = x.access_ptr(\"x\")", "`x` is no kind of access"),
        ("p: T.let = T.tvm_access_ptr(T.type_annotation(\"int8\"), x.data, 0, 4, 1)", "`x` is of float32, the pointer to int8"),
        ("T.evaluate(T.address_of(x[0, 0] + 1))", "an element of a buffer is needed here"),
        ("y[0, 0] = T.Cast(\"float32\", x.offset_of([0])[0])", "`x` has 2 dims, 1 index is given"),
        ("y[0, 0] = T.Cast(\"float32\", x.offset_of([0, 0])[1])", "the memory of a buffer has one dim: its index is 0"),
        ("r = y[0, 0:4]\nr[0, 0] = x[0, 0]", "`r` is not a buffer"),
        ("r = x[0, 0:4]\ny[0, 0] = r[0]", "a part of a part of a buffer is no element"),
        ("v = T.match_buffer(x, (4, n), \"float32\")", "`x` has another shape or dtype"),
        ("for i in range(2):\n    with T.sblock(\"b\"):\n        v = T.axis.spatial(2, i)\n        m = T.match_buffer(x[0, 0:T.min(v + 2, 3)], (3,))\n        y[0, v] = m[0]", "dim 1 of the region is not that of the buffer"),
        ("xs = T.meta_var([1])\nys = T.meta_var([xs])\nxs.append(2)\ny[0, 0] = T.Cast(\"float32\", ys[0][0])", "another list may hold `xs` or what is in it, which changes here"),
        ("xs = T.meta_var([[]] * 2)\nxs[0].append(2)\ny[0, 0] = x[0, 0]", "another list may hold `xs` or what is in it, which changes here"),
        ("xs = T.meta_var([])\nfor i in range(4):\n    xs.append(i)\ny[0, 0] = xs[0]", "a list holds `i` here, whose scope has ended"),
        ("xs = T.meta_var([])\nfor i in range(4):\n    xs.append(x[i, 0])\nfor i in range(4):\n    y[i, 0] = xs[0]", "a list holds `i` here, whose scope has ended"),
        ("xs = T.meta_var((1, 2))\nxs.append(3)\ny[0, 0] = x[0, 0]", "`xs` is a tuple, only lists and dictionaries change"),
        ("xs = T.meta_var([1])\nxs.pop(3)\ny[0, 0] = x[0, 0]", "`pop`: the list has no such element"),
        ("xs = T.meta_var([])\nxs.pop()\ny[0, 0] = x[0, 0]", "`pop`: the list is empty"),
        ("xs = T.meta_var([1])\nxs.append(1, 2)\ny[0, 0] = x[0, 0]", "`append` does not take these arguments"),
        ("xs = T.meta_var([0, 1])\ny[0, xs.pop()] += T.float32(1)", "this changes a list each time it is looked at"),
        ("y[0, 0] = x[0, 0] + T.Cast(\"float32\", T.vscale())", "`T.vscale` is not supported"),
        ("y[0, 0] = T.call_extern(\"float32\", \"ilogbf\", x[0, 0])", "`ilogbf` gives int32, not float32"),
        ("y[0, 0] = T.call_extern(\"float32\", \"cbrtf\", x[0, 0], x[0, 0])", "`cbrtf` takes 1 argument, 2 given"),
        ("p: T.let = T.handle_add_byte_offset(x.data, 2)\ny[0, 0] = x[0, 0]", "this is no place of an element of `x`, of float32"),
        ("v = T.parallel(8)\nv = 3\ny[0, 0] = x[0, 0]", "`v` is defined in this scope already"),
        ("y[0, 0] = T.Cast(f\"{x}{3 / 2}\", 1)", "what text an expression has is not known while this is read"),
        ("with T.sblock(\"b\"):\n    v = T.match_buffer(x, (n, 4), \"float32\")\n    y[0, 0] = v[0, 0]", "T.match_buffer of a whole buffer is for parameters, outside of blocks"),
        ("m = T.alloc_buffer((4,), \"float32\", offset_factor=1)\ny[0, 0] = m[0]", "memory of its own has no offset"),
        ("m = T.alloc_buffer((4, 2), \"float32\", strides=(8, 1))\nv = m.view(8)", "`m` has 2 strides, the view 1 dims"),
        ("for i in T.unroll(n):\n    y[i, 0] = x[i, 0]", "the extent of an unrolled loop is a number"),
        (
            "with T.sblock(\"b\"):\n    p: T.let = x.data\n    y[0, 0] = x[0, 0]",
            "block \"b\" names memory by its pointer and does not state what it accesses",
        ),
        (
            "with T.sblock(\"b\"):\n    m = T.match_buffer(x[0:2, 0:2], (2, 2), \"float32\", strides=[8, 1])\n    y[0, 0] = m[0, 0]",
            "stride 0 of the buffer is not that of the region",
        ),
        (
            "with T.sblock(\"b\"):\n    m = T.match_buffer(x[0:2, 0:2], (2,), \"float32\")\n    y[0, 0] = m[0]",
            "dim 0 of the region has more than one element, the buffer lacks the dim",
        ),
        (
            "with T.sblock(\"b\"):\n    m = T.match_buffer(x[0:2, 0:2], (1, 2), \"float32\")\n    y[0, 0] = m[0, 0]",
            "dim 0 of the region is not that of the buffer",
        ),
        (
            "with T.sblock(\"b\"):\n    m = T.match_buffer(x[0, 1:3], (2,), \"float32\", offset_factor=2)\n    y[0, 0] = m[0]",
            "the region does not begin at a multiple of 2 elements",
        ),
        ("y[0, 0] = T.popcount(x[0, 0])", "T.popcount of float32 is not defined"),
        ("y[0, 0] = T.Add(x[0, 0], 1)", "the operands are float32 and int32, one type is needed here"),
        ("y[0, 0] = T.Max(T.Cast(\"int64\", x[0, 0]), 1)", "the operands are int64 and int32, one type is needed here"),
        ("y[0, 0] = T.Cast(\"uint32\", x[0, 0]) * -1", "-1 is no value of uint32"),
        ("with T.sblock(name_hint=\"b\"):\n    y[0, 0] = x[0, 0]", "T.sblock has no argument `name_hint`"),
        ("m = T.alloc_local((4,), \"float32\", buffer_type=\"\")", "T.alloc_local has no argument `buffer_type`"),
        ("for i in T.parallel(4):\n    if x[0, 0] > 0:\n        break", "this loop has no order that a jump could end"),
        ("for i in range(0, 4, 0):\n    y[0, i] = x[0, i]", "the step of a loop must be positive"),
        ("for i in T.serial(0, 4, step=-1):\n    y[0, i] = x[0, i]", "the step of a loop must be positive"),
        ("return", "a PrimFunc has no bare return"),
        ("assert x[0, 0] > 0", "an assertion of a PrimFunc says what it is about"),
        ("y[0, 0] = x[0, 0] ** 2", "`**` does not apply to scalars"),
        ("y[0, 0] = +x[0, 0]", "`+` does not apply to float32"),
        ("y[0, 0] = -T.Cast(\"uint8\", x[0, 0])", "`-` does not apply to uint8"),
        ("y[0, 0] = x[0, 0] / 0.0", "this divides by zero"),
        ("y[0, 0] = T.truncdiv(T.Cast(\"int32\", x[0, 0]), 0)", "this divides by zero"),
        ("y[0, 0] = T.Cast(\"int32\", x[0, 0]) << 32", "int32 is shifted by 32: from 0 to 31 is possible"),
        ("y[0, 0] = T.Cast(\"int32\", x[0, 0]) >> -1", "int32 is shifted by -1: from 0 to 31 is possible"),
        ("y[0, 0] = T.int8(200)", "200 is no value of int8"),
        ("y[0, 0] = T.uint8(-1)", "-1 is no value of uint8"),
        ("y[0, 0] = T.exp(T.Cast(\"int32\", x[0, 0]))", "T.exp of int32 is not defined"),
        ("y[0, 0:4] = x[0, 0:4]", "a slice is a region, no vector of elements"),
        ("y[0, 0:4] = T.float32(2)", "a scalar is stored where float32x4 is"),
        (
            "for k in range(1):\n    with T.sblock(\"b\"):\n        s = x[0, 0]\n        y[0, 0] = s",
            "block \"b\" has memory of its own and does not state what it accesses",
        ),
        ("n2 = T.int64()\ny[0, 0] = T.Cast(\"float32\", n2)", "nothing gives `n2` a value"),
        ("y[0, 0] = x[0, 0] == T.int32(1)", "the operands are float32 and int32, one type is needed here"),
        ("y[0, 0] = T.Add(x[0, 0], T.float16(1))", "the operands are float32 and float16, one type is needed here"),
        ("y[0, 0] = T.Select(x[0, 0] > 0, x[0, 0], 0)", "the operands are float32 and int32, one type is needed here"),
        ("for i, in range(4):\n    y[0, i] = x[0, i]", "a loop variable is an integer, it does not unpack"),
        ("for i in T.grid(4.0):\n    y[0, i] = x[0, i]", "an integer is needed here"),
        ("if T.bool(4):\n    y[0, 0] = x[0, 0]", "4 is no value of bool"),
        ("y[0, 0] = T.Cast(T.float32, 1)", "a data type in quotes is needed here"),
        ("for i in range(4):\n    with T.sblock(\"b\"):\n        v = T.axis.remap(\"S\", [i + 1])\n        y[0, v] = x[0, v]", "T.axis.remap takes loop variables"),
        ("for i in range(4):\n    with T.sblock(\"b\"):\n        v = T.axis.remap(\"S\", [T.Cast(\"int32\", i)])\n        y[0, v] = x[0, v]", "T.axis.remap takes loop variables"),
        ("print(unknown)", "`unknown` is not defined"),
        ("y[0, 0] = T.Let(v + v, where={v: x[0, 0]})", "`v` is not defined"),
        ("v = T.int32()\ny[0, 0] = T.Let(v + v, where={v: x[0, 0]})", "its value is of float32"),
        ("for v in range(4):\n    y[0, v] = T.Let(T.Cast(\"float32\", v), where={v: 1})", "`v` has a value already"),
        ("import numpy", "imports stand at the top of the file"),
        ("V = T.decl_buffer((4,), data=x)", "the memory of a buffer, `A.data`, is needed here, not a name"),
        ("y[0, 0] = T.fmod(x[0, 0], x[0, 1])", "a kernel has no T.fmod of float32"),
        ("y[0, 0] = T.Cast(\"float32\", T.erf(T.Cast(\"float16\", x[0, 0])))", "a kernel has no T.erf of float16"),
        ("y[0, 0] = T.Cast(\"float32\", T.clz(T.Cast(\"int8\", x[0, 0])))", "a kernel has no T.clz of int8"),
        ("y[0, 0] = T.Cast(\"float32\", T.isnan(T.Cast(\"bfloat16\", x[0, 0])))", "a kernel has no T.isnan of bfloat16"),
        ("y[0, 0] = T.bitwise_not(x[0, 0])", "a kernel has no T.bitwise_not of float32"),
        ("y[0, 0] = T.Cast(\"float32\", T.likely(T.Cast(\"int32\", x[0, 0])))", "a kernel has no T.likely of int32"),
        ("y[0, 0] = T.Cast(\"float32\", (x[0, 0] > 0) + (x[0, 1] > 0))", "a kernel computes this of numbers, not of bools"),
        ("y[0, 0] = T.Cast(\"float32\", (x[0, 0] > 0) == True)", "a kernel computes this of numbers, not of bools"),
        ("y[0, 0] = T.Cast(\"float32\", (x[0, 0] > 0) // 2)", "a kernel computes this of numbers, not of bools"),
        ("y[0, 0] = T.Cast(\"float32\", T.reinterpret(\"int8\", x[0, 0] > 0))", "bool and int8 differ in size"),
        ("y[0, 0] = T.Cast(\"float32\", T.infinity(\"int32\"))", "int32 has no T.infinity"),
        ("y[0, 0] = T.Cast(\"float32\", T.Cast(\"handle\", x[0, 0]))", "float32 is no handle"),
        ("y[0, 0] = T.if_then_else(1, x[0, 0], x[0, 1])", "a condition must be bool, this is int32"),
        ("if 1:\n    y[0, 0] = x[0, 0]", "a condition must be bool, this is int32"),
        ("y[0, 0] = T.max(x[0, 0], x[0, 1], x[0, 2])", "T.max takes 2 arguments, 3 given"),
        ("y[0, 0] = T.max(x[0, 0], c=x[0, 1])", "T.max has no argument `c`"),
        ("y[0, 0] = T.Shuffle([x[0, 0], x[0, 1]], [2])", "the vectors have no lane of this number"),
        ("y[0, T.Ramp(0, 1, 4)] = T.vectorcombine(\"float32x8\", x[0, 0:2], x[0, 2:4])", "a slice is a region, no vector of elements"),
        ("y[0, T.Ramp(0, 1, 4)] = T.vectorcombine(\"float32x8\", x[0, T.Ramp(0, 1, 2)], x[0, T.Ramp(2, 1, 2)])", "float32x8 is not float32x2 and float32x2"),
        ("b = T.alloc_buffer((2,), \"float32x4\")\nb[0] = T.float32(3)", "a scalar is stored where float32x4 is"),
        ("b = T.alloc_buffer((2,), \"float32x4\")\nb[0, 0] = x[0, 0]", "`b` has 1 dims, 2 indices are given"),
        ("v = x[0, T.Ramp(0, 1, 4)]\nv = x[0, 0]", "`v` does not hold float32"),
        ("y[0, 0] = T.call_llvm_intrin(\"float32\", \"llvm.fma\", x[0, 0], x[0, 1])", "`llvm.fma` takes 3 arguments, 2 given"),
        ("y[0, 0] = T.Cast(\"float32\", T.call_llvm_intrin(\"float64\", \"llvm.sqrt\", x[0, 0]))", "`llvm.sqrt` of float32 does not give float64"),
        ("y[0, 0] = T.Cast(\"float32\", T.call_llvm_intrin(\"int8\", \"llvm.smul.fix\", T.int8(3), T.int8(4), T.int32(8)))", "`llvm.smul.fix` of int8 takes two values and a scale from 0 to 7"),
        ("y[0, 0] = T.Cast(\"float32\", T.call_llvm_intrin(\"bool\", \"llvm.is.fpclass\", x[0, 0], T.int32(1024)))", "`llvm.is.fpclass` of bool is not supported"),
        ("for i in T.serial(T.float32(4)):\n    y[0, i] = x[0, i]", "an integer is needed here, not a call"),
        ("y[0, 0] = T.Cast(\"float32\", T.Cast(\"int24\", x[0, 0]))", "integers of 24 bits are not supported"),
        ("y[0, 0] = T.call_llvm_intrin(\"float32\", \"llvm.nothing\", x[0, 0])", "`llvm.nothing` of float32 is not supported"),
        ("p: T.let = T.tvm_stack_alloca(\"arg_value\", 4)", "a stack holds no `arg_value`"),
        ("for i in T.parallel(4):\n    if i * 2 > 5:\n        break", "this loop has no order that a jump could end"),
        ("T.func_attr({\"calling_conv\": 1})", "a kernel is called in one way"),
        ("T.attr(0, \"compute_scope\", \"f\")\ny[0, 0] = x[0, 0]", "`compute_scope` asks for another form of code"),
        ("x = 3", "`x` is defined in this scope already"),
        ("for i in range(4):\n    i = 3\n    y[0, i] = x[0, i]", "`i` is defined in this scope already"),
        ("a: T.let = 3\na = 4", "`a` is defined in this scope already"),
        ("a, b = x[0, 0], x[0, 1]\na, b = b, a", "`a` is defined in this scope already"),
        ("a = T.meta_var([1, 2])\na = T.meta_var([3])", "`a` is defined in this scope already"),
        ("a: T.let[T.int64] = 3", "this is int32, int64 is stated"),
        ("for i, i in T.grid(4, 4):\n    y[0, i] = x[0, i]", "two loop variables are called `i`"),
        ("for i in T.parallel(4):\n    for j in T.parallel(4):\n        y[0, i] = x[0, j]", "this parallel loop stands in another one"),
        ("for i in T.vectorized(4):\n    for j in T.vectorized(4):\n        y[0, i] = x[0, j]", "this vectorised loop stands in another one"),
        ("for i in T.vectorized(4):\n    while y[0, i] < x[0, i]:\n        y[0, i] = x[0, i]", "a vectorised loop holds no `while`"),
        ("for i in T.vectorized(n):\n    y[i, 0] = x[i, 0]", "the extent of a vectorised loop is a number"),
        (
            "for i in T.vectorized(4):\n    for j in range(T.if_then_else(i > 2, 1, 2)):\n        y[0, i] = x[0, j]",
            "this loop has an extent for each lane around it",
        ),
        ("with T.let(v, x[0, 0]):\n    y[0, 0] = v", "T.let is the type of a binding, it opens no scope"),
        ("y.vstore([0, 0], x.vload([0, 0], \"uint32x4\"))", "`x` is of float32, not of uint32"),
        ("xs = [1, \"a\"]", "an element of a list in a kernel is a value, not a string"),
        ("xs = [1, 2]\nxs = [3]", "`xs` is defined in this scope already"),
        ("for i in T.thread_binding(4, thread=\"threadIdx.x\"):\n    y[0, i] = x[0, i]", "a processor has no `threadIdx.x`"),
        ("for i in T.serial(4, thread=\"x\"):\n    y[0, i] = x[0, i]", "T.serial has no argument `thread`"),
        ("with T.sblock(\"b\"):\n    T.where(x[0, 0] > 0)\n    T.where(x[0, 1] > 0)\n    y[0, 0] = x[0, 0]", "`T.where` of this block is stated already"),
        ("with T.sblock(\"b\"):\n    T.sblock_attr({\"a\": 1})\n    T.sblock_attr({\"a\": 2})\n    y[0, 0] = x[0, 0]", "the attribute `a` has another value already"),
        ("T.func_attr({\"a\": 1})\nT.func_attr({\"a\": 2})", "the attribute `a` is stated already"),
        ("for i in range(4):\n    T.func_attr({\"a\": 1})", "T.func_attr belongs directly into the function"),
        ("with T.sblock(\"b\") as b:\n    y[0, 0] = x[0, 0]", "a block is no value"),
        ("for i in range(4):\n    with T.sblock(\"b\"):\n        v, = T.axis.remap(\"S\", [i])\n        y[0, v] = x[0, v]", "one axis is no tuple"),
        ("for i in range(4):\n    with T.sblock(\"b\"):\n        v = T.axis.spatial(T.int8(4), i)\n        y[0, v] = x[0, v]", "an axis counts in int32 or int64, its extent is int8"),
        ("for i in range(4):\n    with T.sblock(\"b\"):\n        v = T.axis.spatial(4, i, \"int64\")\n        y[0, v] = x[0, v]", "the extent of this axis is int32, not int64"),
        ("for i in range(4):\n    with T.sblock(\"b\"):\n        v = T.axis.spatial(4, i)\n        m = T.match_buffer(x[0, v], (1,), \"int32\", offset_factor=1)\n        y[0, v] = T.Cast(\"float32\", m[0])", "the region is of float32, the buffer of int32"),
        ("for i in range(4):\n    with T.sblock(\"b\"):\n        v = T.axis.remap(\"S\", [i])\n        m = T.match_buffer(x[0, v], (1,))\n        y[0, v] = m[0]", "the region does not begin where its buffer does"),
        ("c = T.sblock_alloc_buffer((4,), scope=\"somewhere\")", "`somewhere` is no scope of memory"),
        ("c = T.sblock_alloc_buffer((4,), offset_factor=1)", "memory of its own has no offset"),
        ("T.static_assert(3 < 2)", "this static assertion does not hold"),
        ("T.buffer_store(y, x[0, 0], [0, 0], True)", "T.buffer_store takes a buffer, a value and indices"),
        ("y[0, 0] = T.int4(1)", "`T.int4` is not supported"),
        ("for i in T.parallel(4):\n    if i == 3:\n        return 0\n    y[0, i] = x[0, i]", "the loop around this has no order that a return could end"),
        ("if x[0, 0] > 0:\n    return None\ny[0, 0] = x[0, 0]", "a scalar expression is needed here, not None"),
        ("s = T.int64()\nb = T.alloc_buffer((s, 4), \"float32\")\ny[0, 0] = x[0, 0]", "nothing gives `s` a value"),
        ("y[0, 0] = T.Cast(\"float32\", T.call_llvm_intrin(\"int32\", \"llvm.ctlz\", T.Cast(\"int32\", x[0, 0])))", "`llvm.ctlz` takes a value, and T.bool(True) or T.bool(False)"),
        ("v = T.match_buffer(x, (n, 4), \"float32\")\ny[0, 0] = v[0, 0] + x[0, 0]", "`x` has another name in this PrimFunc"),
        ("y[0, 0] = x[0, 0]\nv = T.match_buffer(x, (n, 4), \"float32\")\ny[0, 1] = v[0, 0]", "`x` has another name in this PrimFunc"),
        ("f = T.meta_var(lambda a, b=3: a + b)\ny[0, 0] = f(x[0, 0], 1, 2)", "this lambda takes 2 arguments (a, b), 3 given"),
        ("f = T.meta_var(lambda a, *, b: a + b)\ny[0, 0] = f(x[0, 0], 1)", "this lambda takes 2 arguments (a, b), 2 given"),
        ("y[0, 0] = 1 if x[0, 0] in [y[0, 0]] else 2", "what `in` says here is not known while the text is read"),
        ("y[0, 0] = 1 if isinstance(x[0, 0], R.Tensor) else 2", "a class of Python is needed here"),
        ("y[0, 0] = Module.f(x[0, 0])", "a kernel calls no function of its module: `f`"),
        ("y[0, 0] = T.max(**x)", "only a dictionary that is written down can be unpacked"),
        ("b = T.Buffer((4,), \"float32\")\ny[0, 0] = b[0]", "`b` has no memory: attributes name it"),
        ("b = T.Buffer((), \"float32\")\ny[0, 0] = b", "`b` is a buffer without memory"),
    ];
    for (body, message) in rows {
        let all = messages(&tir(body));
        assert!(all.first().is_some_and(|m| m.contains(message)), "{body}: {all:?}");
    }
    // The same where what is missing is stated.
    module(&tir(
        "with T.sblock(\"b\"):\n    T.reads(x[0, 0])\n    T.writes(y[0, 0])\n    s = x[0, 0]\n    y[0, 0] = s",
    ));
    module(&tir("with T.sblock(\"b\"):\n    s: T.let = x[0, 0]\n    y[0, 0] = s"));
    module(&tir(
        "with T.sblock(\"b\"):\n    b = T.Buffer((n, 4))\n    T.sblock_attr({\"layout_free_placeholders\": [b]})\n    y[0, \
         0] = x[0, 0] + T.Cast(\"float32\", b.shape[1])",
    ));
}

/// TVM's build: "(arg.ty() == value.ty()) is false". A stride counts the dims behind it, and has their widest type.
#[test]
fn strides_have_the_type_of_what_they_count() {
    let text = |declared: &str, shape: &str, strides: &str| {
        format!(
            "@I.ir_module\nclass Module:\n    @T.prim_func(private=True, s_tir=True)\n    def f(a: T.handle, c: T.Buffer((2, \
             4), \"float32\")):\n        {declared}\n        A = T.match_buffer(a, {shape}, \"float32\", \
             strides={strides})\n        for i, j in T.grid(2, 4):\n            c[i, j] = A[i, j]\n"
        )
    };
    let (long, mixed) = ("(T.int64(2), T.int64(4))", "(T.int64(2), 4)");
    let taken = [
        ("(2, 4)", "[4, 1]"),
        (long, "[T.int64(4), T.int64(1)]"),
        (long, "[\"s\", T.int64(1)]"),
        (mixed, "[\"s\", 1]"),
        ("(2, T.int64(4))", "[s, T.int64(1)]"),
        ("(2, T.int64(4))", "[T.int64(4), T.int64(1)]"),
    ];
    for (shape, strides) in taken {
        module(&text("s = T.int64()", shape, strides));
    }
    let refused = [
        ("(2, 4)", "[T.int64(4), 1]", "stride 0 is int64, the dims that it counts are int32"),
        ("(2, 4)", "[4, T.int64(1)]", "stride 1 is int64, the dims that it counts are int32"),
        ("(2, 4)", "[s, 1]", "stride 0 is int64, the dims that it counts are int32"),
        (long, "[\"s\", 1]", "stride 1 is int32, the dims that it counts are int64"),
        (mixed, "[T.int64(4), T.int64(1)]", "stride 1 is int64, the dims that it counts are int32"),
        ("(2, T.int64(4))", "[4, T.int64(1)]", "stride 0 is int32, the dims that it counts are int64"),
    ];
    for (shape, strides, message) in refused {
        let all = messages(&text("s = T.int64()", shape, strides));
        assert!(all.first().is_some_and(|m| m.contains(message)), "{shape} {strides}: {all:?}");
    }
    // What is declared as int32 is an int64 here, and an int32 to these rules.
    module(&text("s = T.int32()", "(2, 4)", "[s, 1]"));
    module(&text("m, s = T.int32(), T.int64()", "(m, s)", "[s, T.int64(1)]"));
    let declared = [
        ("s = T.int32()", long, "[s, T.int64(1)]", "stride 0 is int32, the dims that it counts are int64"),
        ("m, s = T.int64(), T.int32()", "(m, s)", "[s, 1]", "stride 0 is int32, the dims that it counts are int64"),
        ("m, s = T.int32(), T.int64()", "(m, s)", "[s, 1]", "stride 1 is int32, the dims that it counts are int64"),
        ("s = T.uint32()", "(2, 4)", "[s, 1]", "stride 0 is uint32, the dims that it counts are int32"),
    ];
    for (dims, shape, strides, message) in declared {
        let all = messages(&text(dims, shape, strides));
        assert!(all.first().is_some_and(|m| m.contains(message)), "{dims} {shape} {strides}: {all:?}");
    }
}

/// Names of a kernel: TVM's table of variables has one place for each in a scope.
#[test]
fn dims_of_kernels_have_names_of_their_own() {
    let text = |param: &str, body: &str| {
        format!(
            "@I.ir_module\nclass Module:\n    @T.prim_func(private=True, s_tir=True)\n    def f(a: T.handle, {param}c: \
             T.Buffer((3,), \"float32\")):\n        {}\n        for i in range(3):\n            c[i] = A[i]\n",
            body.replace('\n', "\n        ")
        )
    };
    let matched = "A = T.match_buffer(a, (n,), \"float32\")";
    module(&text("", &format!("n = T.int64()\n{matched}")));
    module(&text("b: T.Buffer((\"n\",), \"float32\"), n: T.int64, ", &format!("n = T.int64()\n{matched}")));
    let refused = [
        ("", format!("n = T.int64()\nn = T.int64()\n{matched}"), "`n` is defined in this scope already"),
        (
            "",
            format!("n = T.int64()\n{matched}\nn = T.alloc_buffer((3,), \"float32\")"),
            "`n` is defined in this scope",
        ),
        ("", format!("n = T.int64()\n{matched}\nn = T.int64(3)"), "`n` is defined in this scope already"),
        ("n: T.int64, ", format!("n = T.int64()\n{matched}"), "`n` is defined in this scope already"),
        ("", "a = T.int64()\nA = T.match_buffer(a, (3,), \"float32\")".to_string(), "`a` is defined in this scope"),
        (
            "",
            format!("n, m = T.int32(), T.int64()\n{matched}\nassert n == m, \"\""),
            "the operands are int32 and int64",
        ),
    ];
    for (param, body, message) in refused {
        let all = messages(&text(param, &body));
        assert!(all.iter().any(|m| m.contains(message)), "{param} {body}: {all:?}");
    }
}

/// Which blocks state what they access of their own memory, and what may stand before that.
#[test]
fn blocks_state_what_they_access_of_their_own_memory() {
    let own = "b = T.decl_buffer((4,), \"float32\")";
    let through = "for i in range(4):\n    b[i] = x[0, i]\nfor i in range(4):\n    y[0, i] = b[i]";
    let stated = "T.reads(x[0, 0:4])\nT.writes(y[0, 0:4])";
    let block = |inner: &str| format!("with T.sblock(\"b\"):\n    {}", inner.replace('\n', "\n    "));
    let looped = |inner: &str| format!("for k in range(1):\n    {}", block(inner).replace('\n', "\n    "));
    let taken = [
        block(&format!("{own}\n{through}")),
        looped(&format!("{stated}\n{own}\n{through}")),
        looped(&format!("b = T.sblock_alloc_buffer((4,), \"float32\")\n{through}")),
        looped(&format!("{own}\ny[0, 0] = x[0, 0]")),
        looped(&format!("T.writes(y[0, 0:4])\n{own}\nb[0] = T.float32(0)").replace("T.writes", "T.reads()\nT.writes")),
        format!("{own}\n{}", looped(through)),
        "b = T.Buffer((4,), \"float32\", data=x.data)\nd = T.Buffer((2, 2), \"float32\", strides=[\"s\", \"t\"])\ny[0, 0] = x[0, 0]".into(),
    ];
    for body in taken {
        module(&tir(&body));
    }
    let no_account = "has memory of its own and does not state what it accesses";
    let refused = [
        (looped(&format!("{own}\n{through}")), no_account),
        (looped(&format!("T.reads(x[0, 0:4])\n{own}\n{through}")), no_account),
        (looped(&format!("T.writes(y[0, 0:4])\n{own}\n{through}")), no_account),
        (looped("b = T.decl_buffer((4,), \"float32\", data=x.data)\ny[0, 0] = b[0]"), no_account),
        (format!("{}\ny[0, 0] = x[0, 0]", block(&format!("{own}\n{through}"))), no_account),
        (block(&format!("{own}\n{stated}\n{through}")), "`T.reads` stands behind what encloses the rest"),
        (
            block(&format!("b = T.alloc_buffer((4,), \"float32\")\nT.reads(b[0:4])\nT.writes(y[0, 0:4])\n{through}")),
            "`b` is memory of this block",
        ),
        ("b = T.Buffer((4,), \"float32\", data=x)\ny[0, 0] = x[0, 0]".into(), "the memory of a buffer, `A.data`,"),
        ("b = T.Buffer((4,), \"float32\", elem_offset=o)\ny[0, 0] = x[0, 0]".into(), "`o` is not defined"),
    ];
    for (body, message) in refused {
        let all = messages(&tir(&body));
        assert!(all.iter().any(|m| m.contains(message)), "{body}: {all:?}");
    }
}

/// TVM: "Please convert 2.0 with `const` first"; `return None` is no expression.
#[test]
fn numbers_of_python_are_no_relax_values() {
    assert!(
        messages(&relax("z = 2.0 * x"))[0].contains("`*` takes Relax values on both sides | write R.const(2.0, dtype)")
    );
    assert!(messages(&relax("return None"))[0].contains("a Relax function returns a value"));
}

/// TVM: `prim_func() got an unexpected keyword argument 'foo'`.
#[test]
fn prim_func_takes_its_own_arguments() {
    let text = tir("y[0, 0] = x[0, 0]");
    let with = |more: &str| text.replace("s_tir=True", &format!("s_tir=True{more}"));
    assert_ne!(with(", foo=3"), text);
    assert!(messages(&with(", foo=3"))[0].contains("T.prim_func has no such argument"));
    module(&with(", check_well_formed=False, persistent=False"));
}

/// TVM's parser has its dialects under their names too (`tvm.script.parser.core.entry`).
#[test]
fn dialects_have_names_beside_their_letters() {
    let letters = relax("z = R.nn.relu(x)");
    let named = letters.replace("R.nn", "relax.nn").replace("I.ir_module", "ir.ir_module");
    assert_ne!(letters, named);
    let (a, b) = (module(&letters), module(&named));
    assert_eq!(relax_ir::printer::print_module(&a), relax_ir::printer::print_module(&b));
    let body = "for i in T.serial(n):\n    y[i, 0] = T.exp(x[i, 0])";
    let (letters, named) = (tir(body), tir(&body.replace("T.", "tir.")));
    assert_eq!(relax_ir::printer::print_module(&module(&letters)), relax_ir::printer::print_module(&module(&named)));
}

/// Source: TVM `ir.GlobalInfo`, `relax.distributed.DeviceMesh`.
#[test]
fn global_infos_are_lists_of_their_kinds() {
    let with = |list: &str| {
        relax("").replace("    @R.function", &format!("    I.module_global_infos({{\"a\": {list}}})\n    @R.function"))
    };
    let fine = [
        "[I.dummy_global_info(), I.vdevice(\"llvm\")]",
        "[R.device_mesh((2, 2), I.Range(0, 4)), R.device_mesh([3], [0, 1, 2]), R.device_mesh((4,), I.Range(4))]",
    ];
    for list in fine {
        assert_eq!(module(&with(list)).global_infos[0].1.len(), if list.contains("mesh") { 3 } else { 2 }, "{list}");
    }
    let wrong = [
        ("[R.device_mesh((2, 2), [0, 1, 2])]", "the mesh has 4 places for 3 devices"),
        ("[R.device_mesh((2,), I.Range(1, 4))]", "the mesh has 2 places for 3 devices"),
        ("I.dummy_global_info()", "a list of global infos is needed here"),
        ("[3]", "a global info (I.vdevice(..), R.device_mesh(..), I.dummy_global_info()) is needed here"),
    ];
    for (list, message) in wrong {
        assert!(messages(&with(list))[0].contains(message), "{list}: {:?}", messages(&with(list)));
    }
}

/// TVM `I.lookup_vdevice`.
#[test]
fn a_device_has_one_name() {
    let text = "@I.ir_module\nclass Module:\n    I.module_global_infos({\"vdevice\": [I.vdevice(\"llvm\"), I.vdevice(\"cuda\", \
                0), I.vdevice({\"kind\": \"cuda\"}, 0)]})\n    @R.function\n    def main(x: R.Tensor((2,), \"float32\", \
                \"NAME\")):\n        return x\n";
    let rows = [
        ("cuda:1", "cuda:1"),
        ("cuda:1:global", "cuda:1"),
        ("vdevice:2", "cuda:1"),
        ("vdevice:0", "llvm:0"),
        ("cuda", "cuda:0"),
        // None of those that are listed, as far as numbers go.
        ("llvm:2", "llvm:2"),
        ("opencl:0:global.texture", "opencl:0"),
    ];
    for (written, name) in rows {
        let m = module(&text.replace("NAME", written));
        let f = m.relax("main").expect("a function");
        let Some(relax_ir::relax::StructInfo::Tensor(t)) = &f.params[0].annotation else { panic!("{written}") };
        assert_eq!(t.vdevice.as_deref(), Some(name), "{written}");
    }
    for written in ["opencl:3", "vdevice:3", "cuda:x"] {
        let said = messages(&text.replace("NAME", written));
        assert!(said[0].contains(&format!("the module lists no device `{written}`")), "{said:?}");
    }
}

/// `x.ty` in Python is the type of the variable.
#[test]
fn types_are_those_of_variables() {
    let m =
        module(&relax("y = R.reshape(x, (4, n))\nz: y.ty = R.exp(y)\nw = R.call_pure_packed(\"f\", z, ty_args=x.ty)"));
    let f = m.relax("main").expect("a function");
    let shown: Vec<String> =
        f.bindings().filter_map(|b| b.annotation.as_ref()).map(relax_ir::printer::print_struct_info).collect();
    assert_eq!(shown, ["R.Tensor((4, n), dtype=\"float32\")"]);
    assert!(messages(&relax("z: n.ty = R.exp(x)"))[0].contains("a variable whose type is known is needed here"));
}

/// TVM `relax.script.builder.ir`, `emit_with_type`.
#[test]
fn operators_are_called_by_their_names() {
    let rows = [
        ("R.emit_with_ty(\"relax.add\", (x, x))", "R.add(x, x)"),
        ("R.emit_with_type(\"relax.call_tir\", (cls.f, (x,)), R.Tensor((n, 4), \"float32\"))", "R.call_tir(cls.f, (x,), R.Tensor((n, 4), \"float32\"))"),
        ("R.emit_with_ty(\"relax.builtin.alloc_tensor\", (R.shape([4]), R.dtype(\"float32\"), R.prim_value(0), R.str(\"global\")), (R.Tensor((4,), \"float32\"),))", "R.builtin.alloc_tensor(R.shape([4]), R.dtype(\"float32\"), R.prim_value(0), R.str(\"global\"))"),
    ];
    let kernel = tir("y[0, 0] = x[0, 0]");
    let kernel = kernel.split_once("class Module:\n").expect("a module").1;
    for (by_name, written) in rows {
        let print =
            |e: &str| relax_ir::printer::print_module(&module(&(relax(&format!("cls = Module\nz = {e}")) + kernel)));
        assert_eq!(print(by_name), print(written), "{by_name}");
    }
    assert!(messages(&relax("z = R.emit_with_ty(\"relax.ad\", (x, x))"))[0].contains("there is no operator"));
}

/// What numpy makes of Python's numbers: TVM's `const` (python/tvm/relax/expr.py).
#[test]
fn constants_are_what_python_computes() {
    let rows = [
        ("R.const(float(\"-inf\"), \"float32\")", f32::NEG_INFINITY),
        ("R.const(-float(\"inf\"))", f32::NEG_INFINITY),
        ("R.const(1 / 4, \"float32\")", 0.25),
        ("R.const(2 ** 3 - 1, \"float32\")", 7.0),
        ("R.const(5.0 / 4 - 0.5, \"float32\")", 0.75),
        ("R.const([1, 2.5])", 1.0),
    ];
    for (written, value) in rows {
        let m = module(&relax(&format!("z = R.add(x, {written})")));
        let call = m.relax("main").and_then(|f| f.bindings().next()?.expr().as_call().cloned()).expect("a call");
        let ExprKind::Constant(c) = call.args[1].kind() else { panic!("{written}") };
        assert_eq!(c.dtype, relax_ir::DType::F32, "{written}");
        assert_eq!(&c.bytes()[..4], value.to_le_bytes(), "{written}");
    }
    assert!(messages(&relax("z = R.const(300, \"uint8\")"))[0].contains("300 is no value of uint8"));
    assert!(messages(&relax("z = R.const(y, \"uint8\")"))[0].contains("a number is needed here"));
}

/// One of the elements' types holds all of them, whichever comes first.
#[test]
fn lists_of_constants_have_the_type_that_holds_all() {
    use relax_ir::DType;
    let rows: [(&str, DType, &[u8]); 3] = [
        ("[True, 2]", DType::I32, &[1, 0, 0, 0, 2, 0, 0, 0]),
        ("[[True], [2]]", DType::I32, &[1, 0, 0, 0, 2, 0, 0, 0]),
        ("[True, False]", DType::BOOL, &[1, 0]),
    ];
    for (written, dtype, bytes) in rows {
        let m = module(&relax(&format!("z = R.const({written})")));
        let value = m.relax("main").and_then(|f| Some(f.bindings().next()?.expr().clone())).expect("a binding");
        let ExprKind::Constant(c) = value.kind() else { panic!("{written}") };
        assert_eq!((c.dtype, c.bytes()), (dtype, bytes), "{written}");
    }
}

/// Memory of a kernel is set aside before it runs.
#[test]
fn sizes_of_memory_are_known_before_a_kernel_runs() {
    let own = |size: &str| {
        let body = format!("for i in range(n):\n    k: T.let[T.int64] = i + T.int64(1)\n    b = T.alloc_buffer(({size},), \"int64\")\n    b[0] = i");
        messages(&tir(&body))
    };
    assert!(own("n")[..].is_empty());
    for size in ["i", "k", "k * T.int64(2)"] {
        assert!(own(size)[0].starts_with("8: the size of `b` depends on `i`, the variable of a loop"), "{size}");
    }
    let read =
        messages(&tir("k: T.let[T.int64] = T.Cast(\"int64\", x[0, 0])\nb = T.alloc_buffer((k,), \"int64\")\nb[0] = k"));
    assert!(read[0].starts_with("7: elements of memory tell the size of `b`"), "{read:?}");
}
