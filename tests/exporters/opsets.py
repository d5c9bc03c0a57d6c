#!/usr/bin/env python3
"""Cases of the ONNX suite in other opsets, by onnx.version_converter.

    opsets.py RELAX_AOT SUITE [--every N] [--opsets 9,11,13]

SUITE is what `tests/onnx/suite.py` wrote. Each N-th case is converted to each opset, down or up; where the converter
has a way and its result passes onnx's checker and runs in onnxruntime, relax-aot must compile it and agree with
onnxruntime on the case's inputs. Prints a table by opset and every case that fails; exits with 1 when one does.
"""
import argparse
import collections
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import version_converter

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples/python"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "networks"))
from compare import Wrong, call, difference, reference
from relax_model import Model


def inputs(case, model):
    out = {}
    for i, v in enumerate(model.graph.input):
        path = case / "test_data_set_0" / f"input_{i}.pb"
        if not v.type.HasField("tensor_type") or not path.exists():
            return None
        out[v.name] = onnx.numpy_helper.to_array(onnx.load_tensor(str(path)))
    return out


def results(case, count):
    paths = [case / "test_data_set_0" / f"output_{i}.pb" for i in range(count)]
    return [onnx.numpy_helper.to_array(onnx.load_tensor(str(p))) for p in paths]


def converted(model, opset):
    """The model in another opset, when the standard and onnxruntime agree to it."""
    try:
        other = version_converter.convert_version(model, opset)
        onnx.checker.check_model(other)
        return other, reference(other.SerializeToString())
    except Exception:
        return None


def run(compiler, case, other, session, feeds, tmp):
    path = tmp / "model.onnx"
    path.write_bytes(other.SerializeToString())
    command = [str(compiler), str(path), "-o", str(tmp / "libm.so"), "--target-cpu", "native"]
    done = subprocess.run(command, capture_output=True, text=True)
    if "--structure" in done.stderr:
        # The structure of a result hangs on values: those of the case.
        for name, v in feeds.items():
            if v.dtype.kind in "iub" and v.size <= 8:
                command += ["--structure", f"{name}=[{','.join(str(int(n)) for n in v.flat)}]"]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return "refused", done.stderr.strip().splitlines()[0][:200]
    try:
        want = session.run(None, feeds)
    except Exception:
        return "left out", ""
    if not all(isinstance(w, np.ndarray) for w in want):
        return "left out", ""
    try:
        got = call(Model(str(tmp / "libm.so")), feeds)
    except (RuntimeError, ValueError, TypeError, KeyError) as e:
        return "wrong", str(e)[:200]
    # Where onnxruntime is of another mind than the standard, the case has the last word.
    why = ""
    for wanted in want, results(case, len(want)):
        try:
            worst = max((difference(w, g) for w, g in zip(wanted, got, strict=True)), default=0)
            if worst <= 1e-3:
                return "right", ""
            why = why or f"off by {worst:.1e}"
        except (Wrong, RuntimeError, ValueError, TypeError, KeyError) as e:
            why = why or str(e)[:200]
    return "wrong", why


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("compiler", type=pathlib.Path)
    a.add_argument("suite", type=pathlib.Path)
    a.add_argument("--every", type=int, default=1)
    a.add_argument("--opsets", default="7,9,11,13,17,21,25")
    a = a.parse_args()
    table = collections.defaultdict(collections.Counter)
    for case in sorted(p.parent for p in (a.suite / "node").glob("*/model.onnx"))[:: a.every]:
        if any(word in case.name for word in ["bernoulli", "dropout", "random"]):
            continue
        model = onnx.load(case / "model.onnx")
        own = {o.domain: o.version for o in model.opset_import}.get("")
        feeds = inputs(case, model)
        if own is None or feeds is None or any(v.dtype.kind not in "fiub" for v in feeds.values()):
            continue
        for opset in map(int, a.opsets.split(",")):
            found = None if opset == own else converted(model, opset)
            if found is None:
                continue
            with tempfile.TemporaryDirectory() as tmp:
                how, why = run(a.compiler, case, *found, feeds, pathlib.Path(tmp))
            table[opset][how] += 1
            if how in ("wrong", "refused"):
                print(f"{case.name} in opset {opset}: {how}: {why}", flush=True)
    for opset in sorted(table):
        print(f"opset {opset}: " + ", ".join(f"{n} {how}" for how, n in sorted(table[opset].items())))
    sys.exit(any(t["wrong"] + t["refused"] for t in table.values()))


if __name__ == "__main__":
    main()
