"""Modules around one piece of the language: a type, a value or a statement, right and wrong, in every place it can stand."""

HEADER = "# from tvm.script import ir as I, relax as R, tirx as T\n@I.ir_module\nclass Module:\n"
X = 'x: R.Tensor((2, 3), "float32")'
T3 = 'R.Tensor((2,), "float32")'

DIMS = ["(2, 3)", "(-1, 3)", "(0, 3)", "(2.0, 3)", '("n", "n")', '("n", "n + 1")', '("n", "m", "n * m")', '("n + 1",)', '("n", "T.max(n, 2)")',
        '("n", "n // 2")', '("n", "n % 3")', '("n", "-n")', '("n", "n - 1")', '("n", "n * n")', '("n", "n / 2")', '("n", "n > 2")', '("batch size",)',
        '("",)', '("3",)', "(n,)", "(T.int64(2), 3)", "(T.int32(2), 3)", "(2 + 1, 3 * 2)", "()"]
DTYPES = ["float32", "float64", "float16", "bfloat16", "int4", "uint4", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool",
          "float", "int", "boolean", "handle", "nope", ""]
TYPES = ([f'R.Tensor({d}, "float32")' for d in DIMS] + [f'R.Tensor((2, 3), "{d}")' for d in DTYPES] + [
    "R.Tensor", "R.Tensor()", 'R.Tensor("float32")', 'R.Tensor("float32", ndim=2)', "R.Tensor(ndim=2)", "R.Tensor(ndim=-1)", "R.Tensor((2, 3))",
    'R.Tensor((2, 3), "float32", ndim=3)', 'R.Tensor((2, 3), 3)', 'R.Tensor(2, "float32")', 'R.Tensor((2, 3), "float32", "llvm")',
    "R.Shape", "R.Shape()", "R.Shape(ndim=2)", "R.Shape([])", "R.Shape([2, 3])", "R.Shape((2, 3))", 'R.Shape(["n", 2])', 'R.Shape(["n + 1"])', "R.Shape(2)",
    "R.Tuple", "R.Tuple()", "R.Tuple([])", f"R.Tuple({T3})", f"R.Tuple(({T3}, R.Any))", "R.Tuple(R.Tuple(), R.Tuple(R.Tuple()))", "R.Tuple(2)",
    "R.Any", "R.Object", "R.Any()", 'R.Prim("int64")', 'R.Prim("float32")', 'R.Prim("bool")', "R.Prim()", 'R.Prim("nope")', "T.int64",
    "R.Callable", "R.Callable()", f"R.Callable(({T3},), {T3})", f"R.Callable(({T3},), {T3}, False)", "R.Callable((), R.Any)", "R.Callable(ret=R.Any)",
    "R.Callable((R.Callable((R.Any,), R.Any),), R.Any)", "int", "None", "R.Nope", "2", "I.Tensor", "x", "R.add"])
VALUES = ["3", "3.5", "True", "None", '"a"', "()", "(x,)", "(x, x)", "[x, x]", "R.tuple()", "R.tuple(x, x)", "R.shape([])", "R.shape([2])", "R.shape([n])",
          "R.shape([2, x])", "R.shape([2.5])", "R.const(1)", "R.const(1.5)", 'R.const([[1.0, 2.0]], "float32")', 'R.const(300, "int8")', 'R.const(-1, "uint8")',
          'R.const(1, "nope")', "R.const(x)", "R.const()", "R.prim_value(3)", "R.prim_value(2.5)", "R.prim_value(x)", 'R.str("a")', "R.str(3)", 'R.dtype("float32")',
          'R.dtype("nope")', 'R.ExternFunc("f")', "R.ExternFunc(3)", "R.add", "x", "x[0]", "x.shape", "x + x", "x * 2", "x / x", "x ** x", "-x", "x @ x", "x > x",
          "x < 3", "x == x", "x and x", "(x, x)[0]", "(x, x)[2]", "(x, x)[-1]", "R.split(x, 3, axis=1)[2]", "R.split(x, 3, axis=1)[3]", "R.split(x, 3, axis=1)[-1]",
          "R.exp(R.exp(x))", "R.shape_of(x)", "R.shape_of((x, x))", 'R.tensor_to_shape(R.const([2, 3], "int64"))', "R.shape_to_tensor(R.shape([2, 3]))",
          'R.astype(x, "int32")', 'R.astype(x, "nope")', "R.nn.dropout(x, 0.3)[0]", 'R.call_pure_packed("f", x, ty_args=R.Any)', "R.call_pure_packed(x, x, ty_args=R.Any)",
          'R.call_packed("f", x, ty_args=R.Any)', 'R.call_dps_packed("f", (x,), out_ty=R.Tensor((2, 3), "float32"))', 'R.call_dps_packed("f", (x,), out_ty=R.Any)',
          'R.call_dps_packed("f", (x,))', 'R.print(x, format="")', "R.assert_op(x)", 'R.assert_op(R.const(True, "bool"))', "R.exp()", "R.exp(x, x)", "R.exp((x,))",
          'R.exp("a")', "R.exp(None)", "R.add(x, 1)", "R.add(1, x)", "R.add(1, 2)", "R.add(x, True)", "R.add(x, R.shape([3]))", "R.nope(x)", "y"]
STATEMENTS = ["pass", "x = x", "a = b = x", "a, b = (x, x)", "a, b = R.split(x, 3, axis=1)", "x += x", "del x", "assert x", "import os", "return x",
              "with R.dataflow():\n    pass", "with R.dataflow():\n    y = x", "with R.dataflow():\n    y = x\n    R.output(x)",
              "with R.dataflow():\n    y = x\n    R.output(y)\n    z = x", "with R.dataflow():\n    y = x\n    R.output(y)\n    R.output(y)", "R.output(x)",
              "@R.function\ndef g():\n    return x", "def g():\n    return x", "_ = x", "R.exp(x)", "x", "3", 'R.func_attr({"a": 1})', 'R.func_attr({"global_symbol": "foo"})',
              'n = T.int64()\ny = R.zeros(R.shape([n]), "float32")', 'n = T.int64()\ny = R.match_cast(x, R.Tensor((n, 3), "float32"))',
              'n = T.int64()\ny = R.match_cast(x, R.Tensor((n, n), "float32"))', 'y = R.match_cast(x, R.Tensor((2, 3), "int32"))', "y = R.match_cast(x, R.Any)"]


def function(params, lines, returns=""):
    body = "".join(f"        {line}\n" for line in lines.split("\n"))
    return f"{HEADER}    @R.function\n    def main({params}){returns}:\n{body}"


def module(rng):
    kind = rng.random()
    if kind < 0.45:
        t = rng.choice(TYPES)
        inside = t.replace('"n"', "n").replace('"m"', "m")
        return rng.choice([
            function(f"x: {t}", "return x"), function(f"x: {t}", "y = x\nreturn y", f" -> {t}"), function(X, f"y: {t} = x\nreturn y"),
            function(X, "return x", f" -> {t}"), function("x: R.Any", f"n = T.int64()\nm = T.int64()\ny = R.match_cast(x, {inside})\nreturn y")])
    if kind < 0.8:
        v = rng.choice(VALUES)
        return rng.choice([function(X, f"y = {v}\nreturn y"), function(X, f"return {v}"),
                           function(X, f"with R.dataflow():\n    y = {v}\n    R.output(y)\nreturn y")])
    s = rng.choice(STATEMENTS)
    return function(X, f"{s}\nreturn {rng.choice(['x', 'y']) if 'y' in s else 'x'}")
