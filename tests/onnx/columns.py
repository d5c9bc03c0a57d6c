#!/usr/bin/env python3
"""Write other shapes of the cases that suite.py wrote.

    python3 tests/onnx/columns.py SUITE OUT [--sample N --seed S] [--networks] [--jobs N]

OUT/KIND/NAME/ holds, for each case of SUITE that has a tensor input with dims:

    symbolic/model.onnx     every dim of every tensor input has a name of its own
    zero/, one/, ragged/    one size that the inputs share is 0, 1, or a prime that no vector divides:
                            model.onnx with these dims as numbers, input_I.pb, output_I.pb

Outputs are computed by onnx's ReferenceEvaluator, in processes with a limit of time and memory; a case is left out where
it refuses, or where it does not reproduce the case's own results. Values are those of the case, repeated. Where the
evaluator is at odds with the specification, reference.toml says why and what is expected instead: the results of
onnxruntime or of a few lines of numpy, a refusal, or any values; a file named like its section then lies in the folder.
"""
import argparse
import multiprocessing
import os
import random
import resource
import shutil
import sys
import threading
import tomllib
import warnings

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from suite import write_value

# Inputs whose length is a number of dims, axes or results: no graph lets it vary.
RANKS = {
    "AffineGrid": [1], "CenterCropPad": [1], "Col2Im": [1, 2], "ConstantOfShape": [0], "Expand": [1],
    "MaxUnpool": [2], "Pad": [1, 3], "Reshape": [1], "Resize": [1, 2, 3], "Slice": [1, 2, 3, 4], "Split": [1],
    "SplitToSequence": [1], "Squeeze": [1], "Tile": [1], "Unsqueeze": [1], "Upsample": [1],
    **{f"Reduce{k}": [1] for k in ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]},
}
# Inputs whose last dim is a number of dims, or of parts of a complex number.
LAST = {"DFT": [0], "GatherND": [1], "ScatterND": [1], "STFT": [0]}
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "reference.toml"), "rb") as f:
    TABLE = tomllib.load(f)
SIZES = {"zero": 0, "one": 1, "ragged": 13}
LIMIT_SECONDS = 20
LIMIT_BYTES = 6 << 30


def tensor_inputs(model):
    """Inputs in the order of the data files: those without an initialiser."""
    initialised = {t.name for t in model.graph.initializer}
    return [i for i in model.graph.input if i.name not in initialised]


def read_tensor(path):
    t = onnx.TensorProto()
    with open(path, "rb") as f:
        t.ParseFromString(f.read())
    return numpy_helper.to_array(t)


def load(folder):
    """The model, its input arrays in order, its expected outputs; None when something is no tensor."""
    model = onnx.load(os.path.join(folder, "model.onnx"))
    data = os.path.join(folder, "test_data_set_0")
    inputs = tensor_inputs(model)
    for info in list(inputs) + list(model.graph.output):
        if info.type.WhichOneof("value") != "tensor_type":
            return None
    arrays = [read_tensor(os.path.join(data, f"input_{i}.pb")) for i in range(len(inputs))
              if os.path.exists(os.path.join(data, f"input_{i}.pb"))]
    wanted = [read_tensor(os.path.join(data, f"output_{i}.pb")) for i in range(len(model.graph.output))]
    return (model, arrays, wanted) if len(arrays) == len(inputs) else None


def with_dims(model, dims_of):
    """The model with other input dims; what it states of all other values is left out."""
    out = onnx.ModelProto()
    out.CopyFrom(model)
    del out.graph.value_info[:]
    for k, info in enumerate(tensor_inputs(out)):
        if info.type.WhichOneof("value") != "tensor_type" or not info.type.tensor_type.HasField("shape"):
            continue
        shape = info.type.tensor_type.shape
        dims = dims_of(k, [d for d in shape.dim])
        if dims is None:
            continue
        shape.Clear()
        for d in dims:
            e = shape.dim.add()
            if isinstance(d, str):
                e.dim_param = d
            else:
                e.dim_value = d
    for info in out.graph.output:
        if info.type.WhichOneof("value") == "tensor_type":
            info.type.tensor_type.ClearField("shape")
    return out


def fixed_axes(model):
    """Dims of inputs, by name, that the graph does not let vary: all of a vector (None), or the last."""
    fixed = {}

    def walk(graph):
        for n in graph.node:
            for i in RANKS.get(n.op_type, []):
                if i < len(n.input):
                    fixed[n.input[i]] = None
            for i in LAST.get(n.op_type, []):
                if i < len(n.input):
                    fixed.setdefault(n.input[i], -1)
            for a in n.attribute:
                for g in [a.g, *a.graphs]:
                    walk(g)

    walk(model.graph)
    return fixed


def save(model, folder):
    os.makedirs(folder, exist_ok=True)
    onnx.save(model, os.path.join(folder, "model.onnx"))


def close(got, want):
    if got.shape != want.shape or got.dtype != want.dtype:
        return False
    if got.dtype.kind in "OSU":
        return bool((got.astype(str) == want.astype(str)).all())
    try:
        got, want = got.astype(np.float64), want.astype(np.float64)
    except (TypeError, ValueError):
        return bool((got == want).all())
    return np.allclose(got, want, rtol=1e-3, atol=1e-5, equal_nan=True)


def evaluate(evaluator, model, arrays):
    names = [i.name for i in tensor_inputs(model)]
    with np.errstate(all="ignore"):
        out = evaluator.run(None, dict(zip(names, arrays)))
    return [np.asarray(o) for o in out]


def candidates(arrays, fixed):
    """Which dims to change together: of one size over all inputs, then of the first alone; inner dims first. `fixed`: by
    input, the first axis that may not change."""
    seen = []
    for a, end in zip(arrays, fixed):
        for d in reversed(a.shape[:end]):
            if d > 1 and d not in seen:
                seen.append(d)
    for size in seen:
        yield [[d == size and i < end for i, d in enumerate(a.shape)] for a, end in zip(arrays, fixed)]
    if len(arrays) > 1:
        for axis in reversed(range(min(arrays[0].ndim, fixed[0]))):
            yield [[k == 0 and i == axis for i in range(a.ndim)] for k, a in enumerate(arrays)]


def prelu(x, slope):
    return np.where(x < 0, x * slope.reshape([-1] + [1] * (x.ndim - 2)), x)


NUMPY = {"PRelu": prelu}


def mended(place, column, case, arrays, results):
    """The results that reference.toml wants, and its reason in a file; those given where it has no row."""
    for section, rows in TABLE.items():
        why = rows.get(f"{column} {case}")
        if why is None:
            continue
        with open(os.path.join(place, f"{section}.txt"), "w") as f:
            f.write(why + "\n")
        model = onnx.load(os.path.join(place, "model.onnx"))
        if section == "onnxruntime":
            import onnxruntime

            options = onnxruntime.SessionOptions()
            options.log_severity_level = 4
            session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
            return session.run(None, dict(zip([i.name for i in tensor_inputs(model)], arrays)))
        if section == "numpy":
            values = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
            values |= dict(zip([i.name for i in tensor_inputs(model)], arrays))
            return [NUMPY[model.graph.node[0].op_type](*(values[i] for i in model.graph.node[0].input))]
    return results


def write_case(suite, out, case):
    folder, target = os.path.join(suite, case), os.path.join(out, case)
    model = onnx.load(os.path.join(folder, "model.onnx"))
    some = False
    fixed = fixed_axes(model)
    inputs = tensor_inputs(model)
    # A function body takes what the operator takes.
    operator = os.path.join(suite, case.split("_expanded")[0], "model.onnx")
    if "_expanded" in case and os.path.exists(operator):
        operator = onnx.load(operator)
        outer = {i.name: k for k, i in enumerate(tensor_inputs(operator))}
        fixed |= {inputs[outer[n]].name: axis for n, axis in fixed_axes(operator).items() if n in outer}

    def names(k, dims):
        nonlocal some
        if inputs[k].name in fixed and fixed[inputs[k].name] is None:
            return None
        last = len(dims) - 1 if inputs[k].name in fixed else None
        out = [d.dim_value if i == last and d.dim_value else f"d{k}_{i}" for i, d in enumerate(dims)]
        some = some or any(isinstance(d, str) for d in out)
        return out

    symbolic = with_dims(model, names)
    if not some:
        return
    save(symbolic, os.path.join(target, "symbolic"))
    loaded = None if case.startswith("light/") else load(folder)
    if loaded is None:
        return
    model, arrays, wanted = loaded
    evaluator = ReferenceEvaluator(model)
    own = evaluate(evaluator, model, arrays)
    if len(own) != len(wanted) or not all(close(o, w) for o, w in zip(own, wanted)):
        return
    ends = [{None: 0, -1: a.ndim - 1}[fixed[i.name]] if i.name in fixed else a.ndim for i, a in zip(inputs, arrays)]
    for column, size in SIZES.items():
        for marks in candidates(arrays, ends):
            shapes = [[size if m else d for m, d in zip(mark, a.shape)] for mark, a in zip(marks, arrays)]
            if all(list(a.shape) == s for a, s in zip(arrays, shapes)):
                continue
            changed = [np.resize(a, s) if a.size else np.zeros(s, a.dtype) for a, s in zip(arrays, shapes)]
            try:
                results = evaluate(evaluator, model, changed)
                again = evaluate(evaluator, model, changed)
            except Exception:
                continue
            infos = [o.type.tensor_type for o in model.graph.output]
            same = all(a.shape == b.shape for a, b in zip(results, again))
            typed = all(onnx.helper.tensor_dtype_to_np_dtype(i.elem_type) == r.dtype
                        or r.dtype.kind in "OSU" for i, r in zip(infos, results))
            if not (same and typed and all(len(i.shape.dim) == r.ndim or not i.HasField("shape")
                                           for i, r in zip(infos, results))):
                continue
            place = os.path.join(target, column)
            sized = with_dims(model, lambda k, dims: shapes[k] if len(dims) == len(shapes[k]) else None)
            save(sized, place)
            results = mended(place, column, case, changed, results)
            for what, values in (("input", changed), ("output", results)):
                for i, v in enumerate(values):
                    write_value(v, None, os.path.join(place, f"{what}_{i}.pb"))
            break


def serve(pipe, suite, out):
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    while True:
        case = pipe.recv()
        try:
            write_case(suite, out, case)
            pipe.send("")
        except Exception as e:  # pylint: disable=broad-except
            pipe.send(f"{type(e).__name__}: {str(e)[:100]}")


def run(suite, out, cases, lock):
    process = pipe = None
    while True:
        with lock:
            if not cases:
                break
            case = cases.pop()
        if process is None:
            pipe, inner = multiprocessing.Pipe()
            process = multiprocessing.Process(target=serve, args=(inner, suite, out), daemon=True)
            process.start()
        try:
            pipe.send(case)
            done = pipe.poll(LIMIT_SECONDS) and pipe.recv() is not None
        except (EOFError, OSError):
            done = False
        if not done:
            process.kill()
            process = None
    if process is not None:
        process.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite")
    parser.add_argument("out")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--networks", action="store_true", help="whole networks too, with symbolic dims")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    args = parser.parse_args()
    shutil.rmtree(args.out, ignore_errors=True)
    cases = sorted(f"{kind}/{name}" for kind in os.listdir(args.suite) for name in os.listdir(f"{args.suite}/{kind}"))
    if not args.networks:
        cases = [c for c in cases if not c.startswith("light/")]
    if args.sample is not None:
        cases = random.Random(args.seed).sample(cases, args.sample)
    left, lock = list(cases), threading.Lock()
    threads = [threading.Thread(target=run, args=(args.suite, args.out, left, lock)) for _ in range(args.jobs)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    name = "whole" if args.sample is None else f"sample-{args.sample}-{args.seed}"
    with open(os.path.join(args.out, "set.txt"), "w") as f:
        f.write(name + "\n")
    for column in ["symbolic", *SIZES]:
        there = sum(os.path.exists(os.path.join(args.out, c, column, "model.onnx")) for c in cases)
        print(f"{column} {there}")


if __name__ == "__main__":
    sys.exit(main())
