//! What TVM 0.27's parser refuses and reads of modules of Relax, one rule a line.

use super::*;

#[test]
fn bodies_are_refused_where_tvm_refuses_them() {
    let refused = [
        ("R.func_attr({1: 2})", "the name of an attribute in quotes is needed here, not an integer"),
        ("R.func_attr({R.str(\"a\"): 2})", "the name of an attribute in quotes is needed here"),
        ("R.func_attr({\"num_input\": 9})", "num_input is 9, there"),
        ("R.func_attr({\"num_input\": -1})", "num_input is -1, there"),
        ("z = R.const(2**70)", "1180591620717411303424 does not fit into 64 bits"),
        ("z = R.const([2**64, 1])", "18446744073709551616 does not fit into 64 bits"),
        ("z: T.int64() = R.prim_value(2)", "this is a variable, a type is needed here | write `T.int64`"),
        ("z = Module.main(3)", "a function takes values of Relax, this is an integer | write R.prim_value(..)"),
        ("z = Module.main([x])", "a function takes values of Relax, this is a list | write a tuple: `(a, b)`"),
        ("z = Module.main(None)", "a function takes values of Relax, this is None"),
        ("R = R.add(x, x)\nz = R.add(x, x)", "`R` is a value of this function, it has no `add` | give the value"),
        ("T = R.add(x, x)\nm = T.int64()", "`T` is a value of this function, it has no `int64`"),
        ("@R.function\ndef T(y: R.Tensor):\n    return y", "a local function cannot be called `T`"),
        ("@R.function\ndef Module(y: R.Tensor):\n    return y", "a local function cannot be called `Module`"),
        ("a, *b, c, d = (x, x)", "4 names for a tuple of 2 fields"),
        ("z = R.call_packed(\"f\", x, k=y, ty_args=[R.Tensor])", "`y` is not defined"),
        (
            "z = R.call_packed(\"f\", x, attrs_type_key=3, ty_args=[R.Tensor])",
            "the name of a type in quotes is needed here",
        ),
        (
            "z = R.call_packed(\"f\", x, axis=1, attrs_type_key=\"\", ty_args=[R.Tensor])",
            "the name of a type in quotes",
        ),
        ("z = R.ExternFunc(\"f\", None, 3)(x)", "R.ExternFunc takes the name of a function and its type"),
        ("z = R.ExternFunc(\"f\", R.Tensor)(x)", "the type of a function is needed here | write R.Callable"),
        ("z = R.ExternFunc(\"f\", R.Callable)(x)", "the type of a function is needed here | write R.Callable"),
        ("z = R.ExternFunc(\"f\", R.Tensor((4,)))(x)", "the type of a function is needed here | write R.Callable"),
        ("z = R.ExternFunc(\"f\")(x, [x])", "a function takes values of Relax, this is a list of Python"),
        ("z = R.ExternFunc(\"f\")(x, None)", "None is no value of Relax"),
        ("z = R.arg(\"x\", R.Tensor((4,)))", "two parameters are called `x`"),
        (
            "t = (x,)\nz = R.invoke_pure_closure(x, t, ty_args=[R.Tensor])",
            "the arguments of a closure are written down here | write them as a tuple: (a, b)",
        ),
        ("z = R.arg(\"a\")", "R.arg takes a name and a type"),
        ("R.func_ret_type(R.Any)\nR.func_ret_type(R.Any)", "the result of this function is stated twice"),
        ("z = R.const(2 ** 200, \"float32\")", "2 ** 200 does not fit into 127 bits | write it as a float: 2.0 ** 200"),
        ("z = R.const(0 ** -1, \"float32\")", "`**` does not apply to scalars"),
        ("z = R.zeros((1, 2)[::0], \"float32\")", "an integer is needed here, not a slice"),
        ("z: R.Tensor((n, 4), \"float32\", 3) = x", "a device is needed here, not an integer"),
        ("z: R.Tensor((n, 4), \"float32\", I.vdevice(\"foo\")) = x", "there is no target `foo`"),
    ];
    for (body, message) in refused {
        let found = messages(&relax(body));
        assert!(found.first().is_some_and(|m| m.contains(message)), "{body}: {found:?}");
    }
}

#[test]
fn bodies_are_read_where_tvm_reads_them() {
    let read = [
        "R.func_attr({\"a\": {1: 2}})",
        "R.func_attr({\"a\": 1, \"a\": 2})",
        "z = R.const(2**63)",
        "z = R.const(2 ** -3)",
        "z = R.const(1, \"double\")",
        "z = R.zeros((2,), \"bfloat\")",
        "(a, b), c = (x, x), x\nz = R.add(a, c)",
        "a, *b = x, x, x\nz = R.add(a, b[1])",
        "*a, b = x, x\nz = R.concat([*a, b])",
        "z = R.call_packed(\"f\", x, k=3, m=[x], ty_args=[R.Tensor])",
        "z = Module.main((x, x))",
        "z = R.ExternFunc(\"f\")(x, (x, x))",
        "z = R.invoke_pure_closure(x, R.exp(x), ty_args=[R.Tensor])",
        "I = R.add(x, x)",
        "z = R.const(2.0 ** 200, \"float64\")",
    ];
    for body in read {
        let found = messages(&relax(body));
        assert!(found.is_empty(), "{body}: {found:?}");
    }
}

#[test]
fn signatures_are_refused_where_tvm_refuses_them() {
    let refused = [
        ("R: R.Tensor((4,)), y: R.Tensor((4,))", "`R` is a value of this function, it has no `Tensor`"),
        ("n: T.int64()", "this is a variable, a type is needed here | write `T.int64`, without parentheses"),
        ("n: R.Tuple(T.int64(), R.Tensor)", "this is a variable, a type is needed here"),
        ("n: R.Prim(\"int33\")", "integers of 33 bits are not supported"),
    ];
    for (params, message) in refused {
        let text = format!("@R.function\ndef main({params}):\n    return R.tuple()\n");
        let found = messages(&text);
        assert!(found.first().is_some_and(|m| m.contains(message)), "{params}: {found:?}");
    }
}

#[test]
fn type_vars_have_their_own_names_and_no_bounds() {
    let with = |line: &str| relax("").replace("n = TypeVar(\"n\")", line);
    assert!(messages(&with("n = TypeVar(\"m\")"))[0].contains("the TypeVar `n` has another name here"));
    assert!(messages(&with("n = TypeVar(\"n\", bound=int)"))[0].contains("the TypeVar `n` stands for any size"));
    assert!(messages(&with("n, k = TypeVar(\"n\"), TypeVar(\"k\")")).is_empty());
}

/// `int` is the only bound that TVM's parser takes; what Python refuses as syntax is refused here too.
#[test]
fn type_parameters_are_dims_of_any_size() {
    let with = |list: &str| {
        let text = relax("").replace("n = TypeVar(\"n\")\n", "").replace("def main(", &format!("def main{list}("));
        (messages(&text), text)
    };
    for list in ["[n]", "[n: int]", "[n, m,]", "[\n        n,\n        m: int,\n    ]"] {
        assert!(with(list).0.is_empty(), "{list}: {:?}", with(list).0);
    }
    let spelling = "a type parameter is a dim of any size: write `n` or `n: int`";
    let refused = [
        ("[n: float]", spelling, "float"),
        ("[n = 3]", spelling, "="),
        ("[*n]", spelling, "*"),
        ("[**n]", spelling, "**"),
        ("[n, m, n]", "two type parameters are called `n`", "n"),
        ("[]", "this list of type parameters is empty | leave the brackets out", "[]"),
        ("[4]", "a type parameter is needed here, not `4`", "4"),
        ("[m]", "`n` is not defined | did you mean `m`?", "n"),
        ("", "`n` is not defined", "n"),
    ];
    for (list, message, at) in refused {
        let (found, text) = with(list);
        assert!(found.first().is_some_and(|m| m.contains(message)), "{list}: {found:?}");
        assert_eq!(pointed(&text), at, "{list}");
    }
}

/// TVM `Target.list_kinds`, `I.vdevice`.
#[test]
fn devices_have_targets_that_there_are() {
    let with = |info: &str| {
        let infos = format!("    I.module_global_infos({{\"vdevice\": [{info}]}})\n    @R.function");
        messages(&relax("").replacen("    @R.function", &infos, 1))
    };
    let read = [
        "I.vdevice()",
        "I.vdevice(\"llvm\", 0, \"global\")",
        "I.vdevice({\"kind\": \"llvm\", \"mcpu\": \"x\"})",
        "I.vdevice(\"nvidia/nvidia-a100\")",
        "I.vdevice({\"tag\": \"nvidia/nvidia-a100\"})",
        "I.vdevice({\"kind\": \"llvm\", \"fast-math\": 1, \"num-cores\": 4, \"host\": {\"kind\": \"c\"}, \"feature.x\": 1})",
    ];
    for info in read {
        assert!(with(info).is_empty(), "{info}: {:?}", with(info));
    }
    let refused = [
        ("I.vdevice(\"cudda\")", "there is no target `cudda` | did you mean \"cuda\"?"),
        ("I.vdevice(\"nvidia/foo\")", "there is no target `nvidia/foo` | name a kind of target"),
        ("I.vdevice(\"raspberry-pi/4b\")", "there is no target `raspberry-pi/4b`"),
        ("I.vdevice({\"tag\": \"foo/bar\"})", "there is no target `foo/bar`"),
        ("I.vdevice({\"kind\": \"llvm\", \"host\": \"nvidia/foo\"})", "there is no target `nvidia/foo`"),
        ("I.vdevice({\"kind\": \"cpu\"})", "there is no target `cpu`"),
        ("I.vdevice({\"mcpu\": \"x\"})", "this target has no kind"),
        ("I.vdevice(\"llvm -mcpu=x\")", "there is no target `llvm -mcpu=x` | a target with options is a dictionary"),
        ("I.vdevice({\"kind\": \"llvm\", \"mpcu\": \"x\"})", "no option `mpcu` | it has kind, keys"),
        ("I.vdevice({\"kind\": \"llvm\", \"mcpu\": 1})", "a string is needed here, not an integer"),
        ("I.vdevice({\"kind\": \"llvm\", \"mattr\": \"+a\"})", "a list of strings is needed here"),
        ("I.vdevice({\"kind\": \"llvm\", \"host\": \"foo\"})", "there is no target `foo`"),
        ("I.vdevice(\"llvm\", \"a\")", "an integer is needed here"),
        ("I.vdevice(\"llvm\", 0, 5)", "a string is needed here"),
        ("I.vdevice(\"llvm\", 0, \"global\", 1)", "I.vdevice takes a target, a number and a scope"),
        (
            "I.vdevice()]})\n    I.module_global_infos({\"vdevice\": [I.vdevice()",
            "the global infos of this module are stated already",
        ),
        ("I.dummy_global_info(1)", "I.dummy_global_info takes no arguments"),
    ];
    for (info, message) in refused {
        assert!(with(info).first().is_some_and(|m| m.contains(message)), "{info}: {:?}", with(info));
    }
}

/// TVM takes single dims of a shape; dims of which no name is in scope cannot be written.
#[test]
fn types_tell_what_has_a_name() {
    let of = |line: &str| messages(&relax(line));
    assert!(of("y = R.reshape(x, x.ty.shape)").is_empty());
    assert!(of("y = R.reshape(x, x.ty.shape[::-1])")[0].contains("the dims of a shape are taken one by one"));
    assert!(
        of("n = R.add(x, x)\ny = R.reshape(x, x.ty.shape)")[0].contains("the dim `n` of this type has no name here")
    );
}

/// A TypeVar that a kernel's signature names without quotes is defined there, whether quotes name it first or not.
#[test]
fn kernels_declare_no_dim_again_that_is_a_type_var() {
    let text = |a: &str, c: &str| {
        format!(
            "n = TypeVar(\"n\")\n@I.ir_module\nclass Module:\n    @T.prim_func(private=True, s_tir=True)\n    def f(a: T.Buffer({a}), \
             c: T.Buffer({c})):\n        n = T.int64()\n        c[0] = a[0]\n    @R.function\n    def main(x: R.Tensor):\n        \
             return x\n"
        )
    };
    for (a, c) in [("(n,)", "(4,)"), ("(\"n\",)", "(n,)"), ("(\"n\",)", "(n + 1,)")] {
        let found = messages(&text(a, c));
        assert!(
            found.first().is_some_and(|m| m.contains("`n` is defined in this scope already")),
            "{a}, {c}: {found:?}"
        );
    }
}

/// A bare number is an int32 where a closure is called: others are printed with their types.
#[test]
fn numbers_of_closures_keep_their_types() {
    let body = "f = R.ExternFunc(\"f\")\nz = f(x, 3, T.int64(3), T.int64(-3), True, 2.5)";
    let print = |text: &str| relax_ir::printer::print_module(&module(text));
    let printed = print(&relax(body));
    assert!(printed.contains("f(x, T.int32(3), T.int64(3), T.int64(-3), T.bool(True), T.float32(2.5))"), "{printed}");
    assert_eq!(print(&printed), printed);
}
