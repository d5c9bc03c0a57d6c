"""What TVM says of a text, and what it computes: each module in a child of its own, since some of them crash TVM."""

import os
import pickle
import re
import select
import signal
import sys
import time
import types

import numpy as np
import tvm
import tvm.script
from tvm import relax


SCALARS = types.SimpleNamespace(int64=int, max=max, min=min)


def reason(error):
    lines = [line.strip() for line in str(error).splitlines()]
    lines = [line for line in lines if line.strip(" |^") and not line.startswith("note: run with")]
    # What TVM's diagnostics say stands before the source that they quote.
    said = [line for line in lines[:-4] if line.startswith("error:")]
    return (type(error).__name__ + ": " + " | ".join(said + lines[-4:]))[:600]


def ill_formed(text):
    """Of a text that the parser calls not well-formed without a word why: what the analysis says."""
    try:
        relax.analysis.well_formed(tvm.script.from_source(text, check_well_formed=False))
    except BaseException as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return " | ".join(line[-300:] for line in lines[-3:])
    return ""


class NoInputs(Exception):
    """Parameters that a file of arrays cannot give."""


def inputs(mod, rng, entry="main"):
    """Random arrays for the parameters of the entry: small sizes for its shape variables."""
    sizes = {}

    def size(dim):
        if isinstance(dim, int):
            return dim
        text = dim.script() if hasattr(dim, "script") else str(dim)
        text = "\n".join(line for line in text.splitlines() if "TypeVar" not in line and "T.int64()" not in line and not line.startswith("#"))
        names = {v: sizes.setdefault(v, int(rng.integers(1, 5))) for v in re.findall(r"(?<![.\w])[A-Za-z_]\w*", text) if v != "T"}
        value = eval(text, {"T": SCALARS}, names)
        if not isinstance(value, int) or value < 0:
            raise NoInputs(text)
        return value

    def array(shape, dtype):
        dtype = str(dtype)
        if dtype == "bool":
            return rng.integers(0, 2, shape).astype("bool")
        if dtype.startswith(("int", "uint")):
            return rng.integers(0, 2, shape).astype(dtype)
        if dtype in ("float32", "float64", "float16"):
            return (rng.random(shape) * 1.5 + 0.05).astype(dtype)
        raise NoInputs(dtype)

    def value(info):
        if isinstance(info, relax.TensorType):
            if str(info.dtype) in ("", "None"):
                dtype = "float32"
            else:
                dtype = str(info.dtype)
            if info.shape is not None and isinstance(info.shape, relax.ShapeExpr):
                return array([size(d) for d in info.shape.values], dtype)
            return array([int(rng.integers(1, 4)) for _ in range(info.ndim if info.ndim >= 0 else 2)], dtype)
        if isinstance(info, relax.TupleType):
            return [value(f) for f in info.fields]
        if isinstance(info, tvm.ir.PrimType):
            dtype = np.dtype(str(info.dtype))
            return dtype.type(rng.integers(1, 4) if dtype.kind in "iu" else rng.random())
        raise NoInputs(type(info).__name__)

    return [value(p.ty) for p in mod[entry].params]


def flat(value):
    # A shape is a tuple too.
    if isinstance(value, tvm.runtime.ShapeTuple):
        return [np.array(list(value), dtype="int64")]
    if isinstance(value, (list, tuple, tvm.ir.Array)) or type(value).__name__ == "Array":
        return [a for v in value for a in flat(v)]
    if isinstance(value, (int, bool, float)):
        return [np.array(value)]
    return [value.numpy()]


def judge(text, seed, run):
    """{stage, why} when TVM refuses; else {args, outs} where they can be had."""
    try:
        mod = tvm.script.from_source(text)
    except BaseException as error:
        why = reason(error)
        return {"stage": "parse", "why": f"{why} | {ill_formed(text)}" if "not well-formed" in why else why}
    try:
        relax.analysis.well_formed(mod)  # it raises, and answers nothing
    except BaseException as error:
        return {"stage": "well_formed", "why": reason(error)}
    try:
        executable = relax.build(mod, "llvm")
    except BaseException as error:
        return {"stage": "build", "why": reason(error)}
    answer = {"stage": None}
    if not run:
        return answer
    try:
        names = [g.name_hint for g, f in mod.functions.items() if isinstance(f, relax.Function) and f.attrs and "global_symbol" in f.attrs]
        entry = "main" if "main" in names or len(names) != 1 else names[0]
        if entry not in [g.name_hint for g in mod.get_global_vars()]:
            return answer
        answer["entry"] = entry
        args = inputs(mod, np.random.default_rng(seed), entry)
        answer["args"] = args
    except BaseException as error:
        answer["no_run"] = reason(error)
        return answer
    try:
        def device(v):
            if isinstance(v, np.generic):
                return v.item()
            return [device(x) for x in v] if isinstance(v, list) else tvm.runtime.tensor(v)
        vm = relax.VirtualMachine(executable, tvm.cpu())
        result = vm[entry](*[device(a) for a in args])
        answer["tensors"] = not isinstance(result, tvm.runtime.ShapeTuple)
        answer["outs"] = flat(result)
    except BaseException as error:
        answer["run_error"] = reason(error)
    return answer


def ask(text, seed=0, run=True, timeout=60):
    """judge() in a child."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(r)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        try:
            data = pickle.dumps(judge(text, seed, run))
        except BaseException as error:
            data = pickle.dumps({"stage": "parse", "why": reason(error)})
        with os.fdopen(w, "wb") as f:
            f.write(data)
        os._exit(0)
    os.close(w)
    chunks, end = [], time.time() + timeout
    while True:
        ready, _, _ = select.select([r], [], [], max(0, end - time.time()))
        if not ready:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(r)
            return {"stage": "timeout", "why": "TVM takes too long"}
        part = os.read(r, 1 << 20)
        if not part:
            break
        chunks.append(part)
    os.close(r)
    _, status = os.waitpid(pid, 0)
    if not chunks:
        return {"stage": "crash", "why": f"TVM died with status {status}"}
    return pickle.loads(b"".join(chunks))
