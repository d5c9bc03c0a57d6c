#!/usr/bin/env python3
"""Compile networks and compare what the libraries compute with onnxruntime.

    compare.py RELAX_AOT DIR [--only NAME,..] [--limit SECONDS] [--no-text]

DIR holds NAME.onnx beside NAME.npz, its inputs by name; NAME.alt.npz, inputs of other sizes, is optional. For each
network:

* `relax-aot check` finds nothing, and what `relax-aot print` writes compiles to the same program (as `--emit flat` shows
  it, all but the messages, which name lines of the text, and the metadata);
* the library agrees with onnxruntime (graph optimisations off): floats to 1e-4 of the largest value of an output,
  integers exactly;
* one library serves NAME.npz, NAME.alt.npz, and two more sizes of the dims that vary;
* a network with QuantizeLinear nodes agrees within a quantum after each layer: every layer is given the reference's
  inputs, so that one rounding does not start a different computation. A network of at most 200 nodes agrees within
  one quantum from end to end too;
* no compilation takes more than 20 s and the median is below 2 s. Both are seconds of the processor, so that other
  work on the machine does not count; the wall clock is printed beside them.

Exits with 1 when one of these does not hold. Needs onnx, onnxruntime and numpy.
"""
import argparse
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
import onnxruntime

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples/python"))
from relax_model import Model, Refused

# Of the largest value of an output.
FLOAT_TOLERANCE = 1e-4
# Nodes of a quantised network that must agree from end to end.
SMALL = 200
ORT_TYPES = {"tensor(float)": "f4", "tensor(int64)": "i8", "tensor(int32)": "i4", "tensor(bool)": "?"}


class Wrong(Exception):
    pass


def command(*args):
    """Runs the compiler: seconds of the processor, of the wall clock, and megabytes at the peak."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([str(a) for a in args], capture_output=True, text=True)
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise Wrong(f"`{args[1]}`: exit {done.returncode}: {done.stderr.strip()[:300]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, wall, done.stdout


def reference(model):
    """A session of onnxruntime that computes what the model says; `model` is a path or bytes."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def difference(want, got):
    """The largest difference: as a part of the largest value for floats, absolute for integers."""
    if want.shape != got.shape or want.dtype != got.dtype:
        raise Wrong(f"{got.dtype}{list(got.shape)} where {want.dtype}{list(want.shape)} is expected")
    if want.size == 0:
        return 0.0
    a, b = want.astype("f8"), got.astype("f8")
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if not np.isfinite(b[~same]).all():
        raise Wrong("a result is not finite")
    error = float(np.abs(np.where(same, 0, a - b)).max())
    if want.dtype.kind != "f":
        return error
    finite = np.abs(a[np.isfinite(a)])
    return error / max(float(finite.max()) if finite.size else 0.0, 1e-9)


def call(model, feeds):
    names = [p["name"] for p in model.entries["main"]["params"]]
    by_name = {identifier(k): v for k, v in feeds.items()} | feeds
    out = model(*[by_name[n] for n in names])
    return out if isinstance(out, list) else [out]


def identifier(name):
    """A name of the model as the library writes it."""
    out = "".join(c if c.isascii() and c.isalnum() else "_" for c in name)
    return "_" + out if out[:1].isdigit() else out


def other_sizes(session, feeds, rng):
    """Inputs of two more sizes, when there are dims that vary: small ones, and none a multiple of a vector."""
    names = sorted({d for i in session.get_inputs() for d in i.shape if isinstance(d, str)})
    for sizes in [(1, 7, 3), (5, 33, 19)] if names else []:
        of = {n: sizes[k % 3] for k, n in enumerate(names)}
        out = {}
        for i in session.get_inputs():
            like = feeds[i.name]
            # A dim without a name stays as it is.
            shape = [of.get(d, d) if d is not None else like.shape[k] for k, d in enumerate(i.shape)]
            if like.dtype.kind == "f":
                out[i.name] = rng.uniform(-1, 1, shape).astype(like.dtype)
            else:
                out[i.name] = rng.integers(like.min(), like.max() + 1, shape).astype(like.dtype)
        yield out


def quanta(model):
    """Initialisers of scales by the tensors they quantise."""
    values = {i.name: onnx.numpy_helper.to_array(i) for i in model.graph.initializer}
    return {n.output[0]: values.get(n.input[1]) for n in model.graph.node if n.op_type == "DequantizeLinear"}


def apart(model):
    """The network cut at each quantised tensor: cuts are inputs and outputs."""
    made = {o: n for n in model.graph.node for o in n.output}
    cut = [o for n in model.graph.node if n.op_type == "QuantizeLinear" for o in n.output]
    typed = onnx.ModelProto.FromString(model.SerializeToString())
    types = {v.name: v for v in onnx.shape_inference.infer_shapes(typed).graph.value_info}
    for n in typed.graph.node:
        for k, name in enumerate(n.input):
            if name in cut:
                n.input[k] = name + ".given"
    known = {o.name for o in typed.graph.output}
    for name in cut:
        if name not in types:
            raise Wrong(f"the type of {name} is not known")
        if name not in known:
            typed.graph.output.append(types[name])
        given = onnx.ValueInfoProto.FromString(types[name].SerializeToString())
        given.name = name + ".given"
        typed.graph.input.append(given)
    assert all(name in made for name in cut)
    return typed, cut


def layers(compiler, model, feeds, tmp):
    """The largest difference in quanta after any layer, when each is given the reference's inputs."""
    whole = onnx.ModelProto.FromString(model.SerializeToString())
    cut_model, cut = apart(model)
    have = {o.name for o in whole.graph.output}
    whole.graph.output.extend(o for o in cut_model.graph.output if o.name not in have)
    session = reference(whole.SerializeToString())
    names = [o.name for o in session.get_outputs()]
    want = dict(zip(names, session.run(None, feeds)))
    for i in cut_model.graph.input:
        # A dim that shape inference could not tell is the one it has.
        for d, n in zip(i.type.tensor_type.shape.dim, want.get(i.name.removesuffix(".given"), np.empty(0)).shape):
            if not d.HasField("dim_value") and (not d.dim_param or d.dim_param.startswith("unk__")):
                d.dim_value = n
    path = tmp / "layers.onnx"
    onnx.save(cut_model, path)
    command(compiler, path, "-o", tmp / "layers.so", "--target-cpu", "native")
    given = feeds | {f"{n}.given": want[n] for n in cut}
    got = dict(zip([o.name for o in cut_model.graph.output], call(Model(str(tmp / "layers.so")), given)))
    worst = 0
    for name in cut:
        worst = max(worst, difference(want[name].astype("i8"), got[name].astype("i8")))
    for name in set(got) - set(cut):
        if difference(want[name], got[name]) > FLOAT_TOLERANCE:
            raise Wrong(f"{name}, given the reference's inputs: {difference(want[name], got[name]):.1e}")
    return worst, len(cut)


def program(compiler, path, tmp):
    """What a model compiles to, without what names lines of its text."""
    out = tmp / "program.tir"
    command(compiler, path, "--emit", "flat", "-o", out, "--target-cpu", "native", "--prefix", path.stem)
    return [line for line in out.read_text().splitlines() if not re.match(r"data \S+__(s\d+|metadata):", line)]


def network(compiler, path, tmp, text):
    name = path.stem
    command(compiler, "check", path)
    library = tmp / f"{name}.so"
    cpu, wall, _ = command(compiler, path, "-o", library, "--target-cpu", "native")
    if text:
        (tmp / f"{name}.rlx").write_text(command(compiler, "print", path)[2])
        if program(compiler, path, tmp) != program(compiler, tmp / f"{name}.rlx", tmp):
            raise Wrong("what `print` writes compiles to another program")
    compiled, session = Model(str(library)), reference(str(path))
    model = onnx.load(path) if path.stat().st_size < 60e6 else None
    quantised = model is not None and any(n.op_type == "QuantizeLinear" for n in model.graph.node)
    feeds = dict(np.load(path.with_suffix(".npz")))
    runs = [feeds]
    alt = path.with_suffix(".alt.npz")
    if alt.exists():
        runs.append(dict(np.load(alt)))
    given = list(runs)
    runs += other_sizes(session, feeds, np.random.default_rng(1))
    worst, note = 0.0, f"{len(runs)} sizes" if len(runs) > 1 else ""
    for x in runs:
        try:
            wanted = session.run(None, x)
        except Exception:
            # A size that the network does not have, as a sentence longer than its table of positions.
            if any(x is y for y in given):
                raise
            note += ", one left out"
            continue
        for want, got in zip(wanted, call(compiled, x)):
            worst = max(worst, difference(want, got))
    if quantised:
        steps, count = layers(compiler, model, feeds, tmp)
        note += f"{count} layers within {steps:g} quanta"
        if steps > 1:
            raise Wrong(note)
        scales = [quanta(model).get(o.name) for o in model.graph.output]
        if len(model.graph.node) <= SMALL:
            for want, got, scale in zip(session.run(None, feeds), call(compiled, feeds), scales):
                step = float(np.max(scale)) if scale is not None else FLOAT_TOLERANCE * float(np.abs(want).max())
                off = float(np.abs(want.astype("f8") - got).max())
                note += f", {off / step:.2f} quanta at the end" if scale is not None else ", agrees at the end"
                if off > step * 1.001:
                    raise Wrong(note)
    elif worst > FLOAT_TOLERANCE:
        raise Wrong(f"differs by {worst:.1e}")
    return cpu, wall, worst, note


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("compiler", type=pathlib.Path)
    a.add_argument("folder", type=pathlib.Path)
    a.add_argument("--only", default="")
    a.add_argument("--limit", type=float, default=20.0, help="seconds for one compilation")
    a.add_argument("--no-text", action="store_true", help="leave the texts of `print` out")
    a = a.parse_args()
    only = set(filter(None, a.only.split(",")))
    paths = sorted(p for p in a.folder.glob("*.onnx") if not only or p.stem in only)
    seconds, failed = [], []
    print(f"{'network':24s} {'compile s':>9s} {'wall s':>7s} {'error':>8s}")
    for path in paths:
        with tempfile.TemporaryDirectory() as tmp:
            try:
                cpu, wall, worst, note = network(a.compiler, path, pathlib.Path(tmp), not a.no_text)
                seconds.append(cpu)
                if cpu > a.limit:
                    failed.append(f"{path.stem}: compiled for {cpu:.1f} s")
                print(f"{path.stem:24s} {cpu:9.2f} {wall:7.2f} {worst:8.1e} {note}", flush=True)
            except (Wrong, Refused, onnxruntime.capi.onnxruntime_pybind11_state.Fail) as e:
                failed.append(f"{path.stem}: {e}")
                print(f"{path.stem:24s} FAILED: {e}", flush=True)
    if seconds:
        print(f"{len(paths)} networks, {len(failed)} failed; "
              f"compilation: median {statistics.median(seconds):.2f} s, longest {max(seconds):.2f} s")
        if statistics.median(seconds) > a.limit / 10:
            failed.append("the median of compilations is too long")
    for f in failed:
        print(f"error: {f}", file=sys.stderr)
    sys.exit(bool(failed) or not paths)


if __name__ == "__main__":
    main()
