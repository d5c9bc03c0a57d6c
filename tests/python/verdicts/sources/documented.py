"""Modules that the wheel itself shows or makes: examples in its docstrings, its optimizers, losses and rewriters."""

import ast
import pathlib
import re
import textwrap

import tvm
from tvm import relax


def docstrings():
    """Fragments of TVMScript in the documentation of the wheel's Python files."""
    root = pathlib.Path(tvm.__file__).parent
    for path in sorted(root.rglob("*.py")):
        text = path.read_text(errors="ignore")
        if "R.function" not in text and "ir_module" not in text:
            continue
        try:
            tree = ast.parse(text)
        except SyntaxError:
            continue
        k = 0
        for node in ast.walk(tree):
            parts = []
            if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Module)):
                doc = ast.get_docstring(node)
                parts = doc and pieces(doc) or []
                if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.decorator_list:
                    seen = [ast.unparse(d) for d in node.decorator_list]
                    if any(s.startswith(("R.function", "I.ir_module", "ir_module", "tvm.script.ir_module", "T.prim_func")) for s in seen):
                        parts = [textwrap.dedent("\n".join(text.splitlines()[node.decorator_list[0].lineno - 1:node.end_lineno]))]
            for part in parts:
                k += 1
                yield f"doc_{path.stem}_{k}", wrapped(part)


def pieces(doc):
    """Each decorated function or class of a text."""
    lines = doc.splitlines()
    out = []
    at = 0
    while at < len(lines):
        if re.match(r"\s*@(R\.function|I\.ir_module|ir_module|tvm\.script\.ir_module|T\.prim_func)", lines[at]):
            indent = len(lines[at]) - len(lines[at].lstrip())
            end = at + 1
            head = True
            while end < len(lines):
                line = lines[end]
                own = len(line) - len(line.lstrip())
                if line.strip() and own <= indent and not (head and line.strip().startswith(("@", "def", "class"))):
                    break
                head = head and line.strip().startswith("@")
                end += 1
            out.append(textwrap.dedent("\n".join(lines[at:end])))
            at = end
        else:
            at += 1
    return out


HEAD = "# from tvm.script import ir as I, relax as R, tirx as T\n"


def wrapped(part):
    part = part.replace("@ir_module", "@I.ir_module").replace("@tvm.script.ir_module", "@I.ir_module")
    if part.startswith("@I.ir_module"):
        return HEAD + part + "\n"
    return HEAD + "@I.ir_module\nclass Module:\n" + textwrap.indent(part, "    ") + "\n"


def modules():
    """(name, IRModule)."""
    from tvm.relax import training
    from tvm.relax.training import loss, optimizer

    x = relax.Var("x", relax.TensorType((3, 4), "float32"))
    y = relax.Var("y", relax.TensorType((4,), "float32"))
    for name, make in {
        "sgd": lambda: optimizer.SGD(0.1, 0.01), "sgd_plain": lambda: optimizer.SGD(0.1), "momentum": lambda: optimizer.MomentumSGD(0.1, 0.9, 0.1, 0.01, True),
        "momentum_plain": lambda: optimizer.MomentumSGD(0.1, 0.9), "adam": lambda: optimizer.Adam(0.01), "adam_decay": lambda: optimizer.Adam(0.01, (0.8, 0.99), 1e-7, 0.1),
    }.items():
        try:
            o = make()
            o.init([x, y])
            yield f"made_{name}", tvm.IRModule({"main": o.get_function().with_attr("global_symbol", "main")})
        except Exception as error:
            print(name, str(error).splitlines()[-1:])
    pred = relax.TensorType((3, 5), "float32")
    for name, make in {
        "l1": lambda: (loss.L1Loss("mean"), [pred, pred]), "mse": lambda: (loss.MSELoss("sum"), [pred, pred]), "l1_none": lambda: (loss.L1Loss("none"), [pred, pred]),
        "entropy": lambda: (loss.CrossEntropyLoss("mean"), [pred, relax.TensorType((3,), "int64")]),
        "entropy_ignore": lambda: (loss.CrossEntropyLoss("sum", ignore_index=1), [pred, relax.TensorType((3,), "int64"), relax.TensorType((5,), "float32")]),
        "hinge": lambda: (loss.CategoricalCrossEntropyLoss("mean"), [pred, pred]),
    }.items():
        try:
            f, types = make()
            mod = tvm.IRModule({"main": f(*types).with_attr("global_symbol", "main")})
            yield f"made_loss_{name}", mod
        except Exception as error:
            print(name, str(error).splitlines()[-1:])
    yield from backbone()


def backbone():
    """Losses appended to a network, with its gradient."""
    from tvm.relax import training
    from tvm.relax.training import loss
    from tvm.script import from_source

    text = HEAD + """@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((3, 4), "float32"), w: R.Tensor((4, 5), "float32"), b: R.Tensor((5,), "float32")):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.nn.relu(R.add(y, b))
            R.output(z)
        return z
"""
    pred = relax.TensorType((3, 5), "float32")
    for name, f, args in [("mse", loss.MSELoss("mean"), [pred, pred]), ("entropy", loss.CrossEntropyLoss("mean"), [pred, relax.TensorType((3,), "int64")])]:
        try:
            mod = training.AppendLoss("main", f(*args), 1)(from_source(text)) if hasattr(training, "AppendLoss") else None
            if mod is None:
                continue
            yield f"made_train_{name}", mod
            yield f"made_grad_{name}", relax.transform.Gradient("main_loss", None)(mod) if "main_loss" in [g.name_hint for g in mod.get_global_vars()] else relax.transform.Gradient("main")(mod)
        except Exception as error:
            print(name, str(error).splitlines()[-1:])
