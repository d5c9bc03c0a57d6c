#!/usr/bin/env python3
"""Whole networks beside other runtimes: what part of their time a call of ours takes.

    benches/networks/networks.py MODELS [NETWORK ..] [--threads 1,2] [--seconds 0.5] [--json FILE] [--store]

MODELS is a folder of NAME.onnx with NAME.npz, its arguments by name. Competitors: onnxruntime and OpenVINO (where Python has
them), and what RUST_PEERS, a program, has of tract and rten (one thread only): it takes `PEER MODEL INPUTS THREADS`, then
lines `run N` (gives {"ns": [..]}) and `out FOLDER` (writes out_0.npy ..). Ours is called through P_run as the competitor is:
from Python beside the Python ones, from C beside RUST_PEERS. The compiler is RELAX_AOT, or target/release/relax-aot; needs cc.

Each competitor is a process of its own; those of a network live together and take turns in bursts, so that what else the
machine does falls on all alike; on several threads a burst begins when those of the last one sleep. A cell is ours / theirs
by least times, and by medians behind a stroke where that is above 1: bold where we lose. A competitor whose results differ
from onnxruntime's without optimisations by more than half of the largest one is wrong. --json keeps what was measured and
adds to what is there; --store puts the tables into docs/performance.md.
"""

import argparse
import ctypes
import datetime
import json
import math
import os
import pathlib
import platform
import select
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "figures"))
import figures  # noqa: E402

HERE = pathlib.Path(__file__).resolve()
ROOT = HERE.parent.parent.parent
COMPILER = os.environ.get("RELAX_AOT", str(ROOT / "target/release/relax-aot"))
RUST = os.environ.get("RUST_PEERS")
# Competitors that are called from a compiled language, and ours called likewise.
COMPILED = ("tract", "rten")
NATIVE = "ours, from C"
# Seconds before a burst on several threads: those of onnxruntime look for work for some 60 ms behind its last call, on a
# processor that the next competitor would have.
SETTLED = 0.1
MARK = "<!-- The last run of benches/networks/networks.py --store. -->"
END = "<!-- The end of networks. -->"


# What runs in a process of its own.


class OnnxRuntime:
    level = "ORT_ENABLE_ALL"

    def __init__(self, model, feeds, threads):
        import onnxruntime as ort

        o = ort.SessionOptions()
        o.intra_op_num_threads, o.inter_op_num_threads = threads, 1
        o.graph_optimization_level = getattr(ort.GraphOptimizationLevel, self.level)
        self.session, self.feeds = ort.InferenceSession(model, o, providers=["CPUExecutionProvider"]), feeds

    def call(self):
        self.results = self.session.run(None, self.feeds)

    def outputs(self):
        return self.results


class Reference(OnnxRuntime):
    level = "ORT_DISABLE_ALL"


class OpenVino:
    def __init__(self, model, feeds, threads):
        import openvino as ov

        hints = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY"}
        model = ov.Core().compile_model(model, "CPU", {**hints, "INFERENCE_PRECISION_HINT": "f32"})
        self.request, self.feeds = model.create_infer_request(), feeds
        for name, array in feeds.items():
            self.request.set_tensor(name, ov.Tensor(array, shared_memory=True))

    def call(self):
        self.request.infer()

    def outputs(self):
        return [t.data.copy() for t in self.request.output_tensors]


class Tensor(ctypes.Structure):
    _fields_ = [
        *[("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32)],
        *[("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)],
        *[("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64))],
        ("byte_offset", ctypes.c_uint64),
    ]


class Managed(ctypes.Structure):
    pass


DELETER = ctypes.CFUNCTYPE(None, ctypes.POINTER(Managed))
Managed._fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", DELETER)]


class Ours:
    CODES = {"i": 0, "u": 1, "f": 2, "b": 6}

    def __init__(self, model, feeds, threads, *more):
        with tempfile.TemporaryDirectory() as work:
            path = f"{work}/libm.so"
            options = ["--prefix", "m", "--target-cpu", "native", "--threads", str(threads), *more]
            done = subprocess.run([COMPILER, model, "-o", path, *options], capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(done.stderr.strip().splitlines()[0])
            lib = ctypes.CDLL(path)
        lib.m_metadata.restype = ctypes.c_char_p
        entry = json.loads(lib.m_metadata())["entries"][0]
        self.arrays = [np.asarray(feeds[p["name"]], order="C") for p in entry["params"]]
        self.tensors = [self.tensor(a) for a in self.arrays]
        self.args = (ctypes.POINTER(Tensor) * len(self.tensors))(*map(ctypes.pointer, self.tensors))
        self.results = (ctypes.POINTER(Managed) * len(entry["results"]))()
        self.run, self.entry = lib.m_run, entry["name"].encode()

    def tensor(self, a):
        shape = (ctypes.c_int64 * max(a.ndim, 1))(*a.shape)
        device = (ctypes.c_int32 * 2)(1, 0)
        return Tensor(a.ctypes.data, device, a.ndim, self.CODES[a.dtype.kind], 8 * a.itemsize, 1, shape, None, 0)

    def call(self):
        for r in self.results:
            if r:
                r.contents.deleter(r)
        code = self.run(self.entry, self.args, len(self.args), self.results, len(self.results), None)
        if code:
            raise RuntimeError(f"P_run returned {code}")

    def outputs(self):
        kinds = {code: kind for kind, code in self.CODES.items()}
        out = []
        for r in self.results:
            t = r.contents.tensor
            shape = [t.shape[i] for i in range(t.ndim)]
            raw = ctypes.string_at(t.data + t.byte_offset, math.prod(shape) * t.bits // 8)
            out.append(np.frombuffer(raw, np.dtype(f"{kinds[t.code]}{t.bits // 8}")).reshape(shape))
        return out


PEERS = {"ours": Ours, "reference": Reference, "onnxruntime": OnnxRuntime, "OpenVINO": OpenVino}


def serve(peer, model, inputs, threads):
    import time

    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # What a competitor prints is not an answer.

    def answer(what):
        try:
            print(json.dumps(what()), file=answers)
        except Exception as e:
            print(json.dumps({"error": f"{type(e).__name__}: {e}"[:300]}), file=answers)

    def load():
        nonlocal peer
        folder = pathlib.Path(inputs)
        names = json.loads((folder / "names.json").read_text())
        peer = PEERS[peer](model, {n: np.load(folder / f"in_{i}.npy") for i, n in enumerate(names)}, int(threads))
        peer.call()
        return {}

    def run(n):
        clock, times = time.perf_counter_ns, []
        for _ in range(int(n)):
            start = clock()
            peer.call()
            times.append(clock() - start)
        return {"ns": times}

    def out(folder):
        peer.call()
        for i, y in enumerate(peer.outputs()):
            np.save(f"{folder}/out_{i}.npy", np.asarray(y))
        return {}

    answer(load)
    for line in sys.stdin:
        what, arg = line.strip().split(" ", 1)
        answer(lambda: {"run": run, "out": out}[what](arg))


# What measures.


class Worker:
    def __init__(self, peer, model, inputs, threads):
        self.peer, self.times = peer, []
        command = [sys.executable, HERE, "--serve"]
        if peer in COMPILED:
            command = [RUST]
        command = [str(c) for c in (*command, peer, model, inputs, threads)]
        if peer == NATIVE:
            command = client(model, inputs)
        # numpy's own threads, which wait by turning round, are in nobody's way.
        env = os.environ | {f"{n}_NUM_THREADS": str(threads) for n in ("OMP", "RTEN", "RAYON")} | {"OPENBLAS_NUM_THREADS": "1"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, text=True, bufsize=1, env=env, **pipes)
        self.error = self.read().get("error")

    def read(self):
        if not select.select([self.process.stdout], [], [], 120)[0]:
            return {"error": "no answer in two minutes"}
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"error": "it died"}

    def ask(self, line):
        try:
            self.process.stdin.write(line + "\n")
            return self.read()
        except BrokenPipeError:
            return {"error": "it died"}

    def end(self):
        self.process.kill()
        self.process.wait()


def client(model, work):
    """The command of a C program that calls ours; its results are those that Python's call was checked by."""
    network = figures.Network(model.parent, model.stem, work)
    path, prefix, _ = network.compiled("c", "--target-cpu", "native")
    network.write_args(network.metadata(path))
    figures.run(os.environ.get("CC", "cc"), "-O2", "-o", work / "client", figures.HERE / "client.c", "-ldl")
    return [str(c) for c in (work / "client", "serve", path, prefix, network.args)]


def differs(wanted, got):
    """Whether results are further apart than half of the largest one."""
    for a in sorted(pathlib.Path(wanted).glob("out_*.npy")):
        x, y = np.load(a).astype("f8").ravel(), np.load(pathlib.Path(got) / a.name).astype("f8").ravel()
        if x.size != y.size or not np.isfinite(y).all():
            return True
        if x.size and np.abs(x - y).max() > 0.5 * max(np.abs(x).max(), 1e-9):
            return True
    return False


def measure(models, name, threads, seconds):
    """{peer: [least, median] in ms, or what went wrong}."""
    model = (models / f"{name}.onnx").resolve()
    peers = ["ours", "onnxruntime", "OpenVINO"] + ([NATIVE, *COMPILED] if RUST and threads == 1 else [])
    rows = {}
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        arrays = np.load(model.with_suffix(".npz"))
        (work / "names.json").write_text(json.dumps(arrays.files))
        for i, n in enumerate(arrays.files):
            np.save(work / f"in_{i}.npy", np.asarray(arrays[n], order="C"))

        def results(worker):
            folder = work / worker.peer
            folder.mkdir()
            return worker.ask(f"out {folder}").get("error"), folder

        reference = Worker("reference", model, work, 1)
        wanted = results(reference)[1]
        reference.end()
        workers = [Worker(peers[0], model, work, threads)]
        if workers[0].error:
            workers[0].end()
            return {"ours": workers[0].error}
        workers += [Worker(p, model, work, threads) for p in peers[1:]]
        active = []
        for w in workers:
            if w.peer != NATIVE:
                w.error = w.error or results(w)[0] or ("wrong" if differs(wanted, work / w.peer) else None)
            if w.error:
                rows[w.peer] = w.error
            else:
                w.ask("run 1")
                active.append(w)
        while active:  # A burst each, in turns.
            for w in list(active):
                if threads > 1:
                    time.sleep(SETTLED)
                per = statistics.median(w.times) if w.times else None
                count = 1 if not per else max(1, min(2000, int(seconds / 8 / per * 1e9)))
                w.times += w.ask(f"run {count}").get("ns", [])
                spent = sum(w.times) / 1e9
                if not w.times or spent >= seconds or (len(w.times) >= 20 and spent >= seconds / 2):
                    active.remove(w)
                    rows[w.peer] = [min(w.times) / 1e6, statistics.median(w.times) / 1e6] if w.times else "it died"
        for w in workers:
            w.end()
    return rows


def number(x):
    return f"{x:.3g}"


def cell(ours, theirs):
    if not isinstance(theirs, list):
        return "wrong" if theirs == "wrong" else "fails" if theirs else ""
    least, median = (a / b for a, b in zip(ours, theirs))
    text = f"{least:.2f}" + (f" / {median:.2f}" if median >= 1 or least >= 1 else "")
    return f"**{text}**" if max(least, median) >= 1 else text


def table(results, threads):
    peers = [p for p in ("onnxruntime", "OpenVINO", *COMPILED) if any(p in r for r in results.values())]
    lines = ["| network | ms, least | median | " + " | ".join(peers) + " |", "|---" * (3 + len(peers)) + "|"]
    best = [[], []]
    for name, rows in results.items():
        ours = rows.get("ours")
        if not isinstance(ours, list):
            lines.append(f"| {name} | {ours} |" + " |" * (1 + len(peers)))
            continue
        beside = {p: rows[NATIVE] if p in COMPILED and NATIVE in rows else ours for p in peers}
        cells = [cell(beside[p], rows.get(p)) for p in peers]
        lines.append(f"| {name} | {number(ours[0])} | {number(ours[1])} | " + " | ".join(cells) + " |")
        right = [p for p in peers if isinstance(rows.get(p), list)]
        for i in range(2) if name != "noop" and right else ():
            best[i].append(max(beside[p][i] / rows[p][i] for p in right))
    mean = [math.exp(sum(map(math.log, b)) / len(b)) for b in best if b]
    last = [sum(x >= 1 for x in b) for b in best]
    if mean:
        lines.append(f"\n{threads} thread{'s' * (threads > 1)}: geometric means over {len(best[0])} networks (without noop), of the best "
                     f"competitor in each row: {mean[0]:.3f} by least times, {mean[1]:.3f} by medians; behind in {last[0]} "
                     f"and {last[1]} rows.")
    return "\n".join(lines)


def versions():
    found = []
    for module in ("onnxruntime", "openvino"):
        done = subprocess.run([sys.executable, "-c", f"import {module}; print({module}.__version__)"], capture_output=True, text=True)
        found += [f"{module} {done.stdout.split()[0].split('-')[0]}"] if done.returncode == 0 else []
    return found + ([os.environ.get("RUST_PEERS_VERSIONS", "tract and rten")] if RUST else [])


def machine():
    cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.machine())
    return f"{datetime.date.today()}; {cpu}, {os.cpu_count()} processors; {', '.join(versions())}"


def store(text, mark=None, end=None):
    mark, end = mark or MARK, end or END
    doc = ROOT / "docs/performance.md"
    old = doc.read_text()
    if mark not in old or end not in old:
        sys.exit(f"{doc} has no place for the tables")
    head, rest = old.split(mark)
    doc.write_text(f"{head}{mark}\n{text}\n\n{end}{rest.split(end)[1]}")


def main():
    if sys.argv[1:2] == ["--serve"]:
        return serve(*sys.argv[2:])
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", type=pathlib.Path)
    p.add_argument("networks", nargs="*")
    p.add_argument("--threads", default="1,2")
    p.add_argument("--seconds", type=float, default=0.5, help="of each competitor and network")
    p.add_argument("--json", type=pathlib.Path)
    p.add_argument("--store", action="store_true")
    a = p.parse_args()
    every = sorted(f.stem for f in a.models.glob("*.onnx") if f.with_suffix(".npz").exists())
    measured = json.loads(a.json.read_text()) if a.json and a.json.exists() else {}
    parts = [machine()]
    for threads in map(int, a.threads.split(",")):
        of = measured.setdefault(str(threads), {})
        for name in a.networks or every:
            of[name] = measure(a.models, name, threads, a.seconds)
            print(table({name: of[name]}, threads).splitlines()[2], flush=True)
            if a.json:
                a.json.write_text(json.dumps(measured, indent=1))
        parts.append(table({n: of[n] for n in every if n in of}, threads))
    print("\n" + "\n\n".join(parts))
    if a.store:
        store("\n\n".join(parts))


if __name__ == "__main__":
    main()
