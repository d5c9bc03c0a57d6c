#!/usr/bin/env python3
"""A model of 1.5 GB of external weights: the memory that checking and compiling it take.

    large.py RELAX_AOT [--megabytes M]

Writes the model to a temporary folder (and removes it), then runs `check`, a compilation with the weights in the library
and one with `--weights external`.
The peak of each must stay below the weights and 500 MB. Mapped pages of the weights count in that peak although the
system can take them back; the memory of the process itself (anonymous pages) must stay below 500 MB alone, so there is no
copy of the weights. Compares the results of both libraries with onnxruntime. Needs Linux, onnx, onnxruntime, numpy, and
three times the size on the disk.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import onnx
from onnx import TensorProto, helper

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples/python"))
from relax_model import Model

SIDE = 4096
ROOM = 500


def write(path, megabytes):
    count = -(-megabytes * (1 << 20) // (SIDE * SIDE * 4))
    rng = np.random.default_rng(0)
    nodes, weights = [], []
    with open(path.with_suffix(".data"), "wb") as f:
        for i in range(count):
            t = TensorProto(name=f"w{i}", data_type=TensorProto.FLOAT, dims=[SIDE, SIDE])
            w = rng.standard_normal((SIDE, SIDE), dtype="f4") / np.sqrt(SIDE, dtype="f4")
            for key, value in [("location", f"{path.stem}.data"), ("offset", str(f.tell())), ("length", str(w.nbytes))]:
                t.external_data.add(key=key, value=value)
            t.data_location = TensorProto.EXTERNAL
            f.write(w.tobytes())
            weights.append(t)
            nodes.append(helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"]))
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", SIDE]) for n in ["x0", f"x{count}"]]
    graph = helper.make_graph(nodes, "large", values[:1], values[1:], weights)
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10).SerializeToString())
    return path.with_suffix(".data").stat().st_size >> 20


def run(*args):
    """Megabytes at the peak: all, and those of the process itself; seconds."""
    begin = time.perf_counter()
    p = subprocess.Popen([str(a) for a in args], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    peak = [0, 0]

    def watch():
        while p.poll() is None:
            try:
                text = pathlib.Path(f"/proc/{p.pid}/status").read_text()
            except OSError:
                return
            rows = dict(line.split(":", 1) for line in text.splitlines() if line.startswith(("VmHWM", "RssAnon")))
            for i, k in enumerate(["VmHWM", "RssAnon"]):
                peak[i] = max(peak[i], int(rows.get(k, "0 kB").split()[0]) >> 10)
            time.sleep(0.005)

    t = threading.Thread(target=watch)
    t.start()
    _, err = p.communicate()
    t.join()
    if p.returncode:
        sys.exit(f"{args[1]}: exit {p.returncode}: {err.decode()[:500]}")
    return peak, time.perf_counter() - begin


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("compiler", type=pathlib.Path)
    a.add_argument("--megabytes", type=int, default=1536)
    a = a.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as tmp:
        model, library = pathlib.Path(tmp, "large.onnx"), pathlib.Path(tmp, "large.so")
        size = write(model, a.megabytes)
        whole = pathlib.Path(tmp, "whole.so")
        external = [model, "-o", library, "--weights", "external"]
        for name, args in [("check", ["check", model]), ("embedded", [model, "-o", whole]), ("--weights external", external)]:
            (peak, own), seconds = run(a.compiler, *args)
            good = peak < size + ROOM and own < ROOM
            failed |= not good
            print(f"{name}: peak {peak} MB for {size} MB of weights, {own} MB of it the process's own; {seconds:.1f} s"
                  + ("" if good else ": TOO MUCH"))
        import onnxruntime

        x = np.random.default_rng(1).standard_normal((3, SIDE), dtype="f4")
        want = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"]).run(None, {"x0": x})[0]
        for compiled in Model(str(whole)), Model(str(library), weights=str(library.with_suffix(".weights"))):
            error = float(np.abs(compiled(x) - want).max() / np.abs(want).max())
            print(f"differs from onnxruntime by {error:.1e} of full scale")
            failed |= error > 1e-4
    sys.exit(failed)


if __name__ == "__main__":
    main()
