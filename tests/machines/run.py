#!/usr/bin/env python3
"""The corpus on other machines: objects (or C) of every case without boxed values, linked into one program for a triple,
run by QEMU's user mode, results compared with those that TVM recorded.

    run.py RELAX_AOT TRIPLE OUT [--cpu CPU] [--emit obj|c] [--case NAME]

The cross compiler (TRIPLE's gcc) and qemu-user must be installed; numpy and ml_dtypes too. Byte order is the machine's:
s390x is big-endian.
"""
import argparse, json, subprocess, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ml_dtypes
import numpy as np

CORPUS = Path(__file__).resolve().parents[1] / "corpus"
# What needs the runtime's values or functions of the caller, and texts that read outside of their buffers.
ELSEWHERE = {"control", "closure", "datadep", "packed", "effects", "functions"}
CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
GCC = {"s390x": "s390x-linux-gnu-gcc", "aarch64": "aarch64-linux-gnu-gcc", "riscv64": "riscv64-linux-gnu-gcc",
       "x86_64": "gcc"}
QEMU = {"s390x": ["qemu-s390x"], "aarch64": ["qemu-aarch64"], "riscv64": ["qemu-riscv64", "-cpu", "rv64,v=true,vlen=128"],
        "x86_64": []}

HEAD = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *take(void *self, size_t bytes, size_t align) {
  (void)self;
  void *p = 0;
  return posix_memalign(&p, align < 8 ? 8 : align, bytes ? bytes : 1) ? 0 : p;
}
static void give(void *self, void *p, size_t bytes) { (void)self, (void)bytes, free(p); }

/* Arguments and results between which nothing may be read: right behind each the heap's own words begin. */
static void *copy(const void *from, size_t bytes) {
  void *p = take(0, bytes, 64);
  memcpy(p, from, bytes);
  return p;
}

static void result(const DLTensor *t) {
  printf("result %d %d", t->dtype.code, t->dtype.bits);
  int64_t n = 1;
  for (int i = 0; i < t->ndim; i++) printf(" %lld", (long long)t->shape[i]), n *= t->shape[i];
  printf(":");
  const unsigned char *p = t->data;
  for (int64_t i = 0; i < n * ((t->dtype.bits + 7) / 8); i++) printf("%02x", p[i]);
  printf("\n");
}
"""


def arrays(path):
    """Arrays of an .npz or .safetensors file."""
    if path.suffix == ".npz":
        return dict(np.load(path))
    from safetensors.numpy import load_file
    return load_file(path)


def flatten(tree, values, params, out):
    kind = tree["kind"]
    if kind == "tensor":
        a = values[tree["key"]]
        if tree.get("dtype") and tree["dtype"] != a.dtype.name and tree["dtype"] != "bool":
            wanted = np.dtype(getattr(ml_dtypes, tree["dtype"], None) or tree["dtype"])
            a = a.view(wanted) if wanted.itemsize == a.dtype.itemsize else a
        out.append(a)
    elif kind == "param":
        out.append(params[tree["name"]])
    elif kind == "shape":
        out.append(np.array(tree["value"], dtype=np.int64))
    elif kind == "int":
        out.append(np.array(tree["value"], dtype=np.int64))
    elif kind == "float":
        out.append(np.array(tree["value"], dtype=np.float32))
    elif kind == "tuple":
        for t in tree["items"]:
            flatten(t, values, params, out)


def code_of(dtype):
    if dtype.name == "bfloat16":
        return 4
    return CODES.get(dtype.kind)


class Program:
    """The C program that makes every call, and what each must give."""

    def __init__(self, order):
        self.order, self.includes, self.calls, self.expected = order, [], [], []

    def bytes(self, a):
        """A C string literal of the array in the machine's byte order."""
        raw = np.ascontiguousarray(a)
        if self.order == ">" and raw.dtype.itemsize > 1:
            raw = raw.view(f"u{raw.dtype.itemsize}").byteswap()
        return '"' + "".join(f"\\x{b:02x}" for b in raw.tobytes()) + '"', raw.nbytes

    def run(self, prefix, entry, case, run, args, wanted):
        body, words, n = [], [], len(self.calls)
        for p, a in zip(entry["params"], args):
            i = len(body)
            if p["kind"] == "scalar":
                words.append(repr(float(a)) if p["dtype"].startswith("float") else f"{int(a)}LL")
                continue
            shape = list(a.shape)
            if p["kind"] == "shape":
                values = ", ".join(f"{int(v)}LL" for v in a) or "0"
                body.append(f"  int64_t v{i}[] = {{{values}}};")
                words += [f"v{i}", str(len(a))]
                continue
            # The weight files hold scalars as tensors of one element.
            if p["shape"] == [] and case.get("params"):
                shape = []
            literal, size = self.bytes(a)
            code = code_of(a.dtype)
            if code is None:
                return False
            bits = 8 if a.dtype == np.bool_ else a.dtype.itemsize * 8
            dims = ", ".join(f"{d}" for d in shape) or "0"
            body.append(f"  int64_t s{i}[] = {{{dims}}};\n"
                        f"  DLTensor t{i} = {{copy({literal}, {size}), {{kDLCPU, 0}}, {len(shape)}, "
                        f"{{{code}, {bits}, 1}}, s{i}, 0, 0}};")
            words.append(f"&t{i}")
        results = entry["results"]
        for i, _ in enumerate(results):
            body.append(f"  int64_t d{i}[32] = {{0}};\n  DLTensor r{i} = {{0, {{kDLCPU, 0}}, 32, {{0, 0, 1}}, d{i}, 0, 0}};")
            words.append(f"&r{i}")
        words.append("&call")
        symbol = f"{prefix}_{entry['name']}"
        body.append(f"  {prefix}_call call = {{0}};\n  call.allocate = take, call.release = give;")
        body.append(f"  int32_t code = {symbol}_infer({', '.join(words)});")
        for i, _ in enumerate(results):
            body.append(f"  if (!code) {{\n    size_t n = (r{i}.dtype.bits + 7) / 8;\n"
                        f"    for (int k = 0; k < r{i}.ndim; k++) n *= (size_t)d{i}[k];\n    r{i}.data = take(0, n, 64);\n  }}")
        body.append(f"  if (!code) code = {symbol}({', '.join(words)});")
        body.append(f'  printf("call {n} %d\\n", code);')
        body += [f"  if (!code) result(&r{i});" for i, _ in enumerate(results)]
        self.calls.append(f"static void call{n}(void) {{ /* {case['name']}, {run['in']} */\n" + "\n".join(body) + "\n}\n")
        self.expected.append((case, run, wanted))
        return True

    def text(self):
        names = "\n".join(f"  call{i}();" for i in range(len(self.calls)))
        heads = "\n".join(f'#include "{p}.h"' for p in self.includes)
        return f"{heads}\n{HEAD}\n" + "\n".join(self.calls) + f"\nint main(void) {{\n{names}\n  return 0;\n}}\n"


def compile_case(tool, options, out, prefix, case):
    text = CORPUS / case["texts"][0]["file"]
    extension = "c" if "c" in options else "o"
    done = subprocess.run([tool, text, "--prefix", prefix, *options, "-o", out / f"{prefix}.{extension}"],
                          capture_output=True, text=True)
    if done.returncode != 0:
        return None
    described = subprocess.run([tool, "inspect", text, "--format", "json"], capture_output=True, text=True)
    return json.loads(described.stdout)


def agrees(text, order, wanted, tolerance):
    head, _, data = text.partition(":")
    _, code, bits, *shape = head.split()
    raw = np.frombuffer(bytes.fromhex(data), dtype=np.uint8)
    if order == ">" and int(bits) > 8:
        raw = raw.view(f"u{int(bits) // 8}").byteswap().view(np.uint8)
    shape = [int(d) for d in shape]
    if list(wanted.shape) != shape:
        return f"shape {shape}, expected {list(wanted.shape)}"
    if code_of(wanted.dtype) != int(code) or wanted.dtype.itemsize * 8 != int(bits):
        return f"dtype {code} {bits}, expected {wanted.dtype}"
    got = raw.view(wanted.dtype).reshape(shape)
    if wanted.dtype.kind in "fV" or wanted.dtype.name == "bfloat16":
        a, b = got.astype(np.float64), wanted.astype(np.float64)
        same = np.isclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
    else:
        a, b, same = got, wanted, got == wanted
    if same.all():
        return None
    at = np.argwhere(~same)[0]
    return f"element {tuple(at)}: {a[tuple(at)]}, expected {b[tuple(at)]}, {(~same).sum()} differ"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("tool")
    p.add_argument("triple")
    p.add_argument("out", type=Path)
    p.add_argument("--cpu", default="baseline")
    p.add_argument("--emit", default="obj", choices=["obj", "c"])
    p.add_argument("--case")
    a = p.parse_args()
    a.out.mkdir(parents=True, exist_ok=True)
    machine = a.triple.split("-")[0].replace("riscv64gc", "riscv64")
    order = ">" if machine == "s390x" else "<"
    cases = [c for c in json.load(open(CORPUS / "MANIFEST.json"))["cases"]
             if c["family"] not in ELSEWHERE and a.case in (None, c["name"])]
    options = ["--target", a.triple, "--emit", a.emit] + (["--target-cpu", a.cpu] if a.emit == "obj" else [])
    prefixes = [f"c{i}" for i in range(len(cases))]
    with ThreadPoolExecutor() as pool:
        described = list(pool.map(lambda pc: compile_case(a.tool, options, a.out, *pc), zip(prefixes, cases)))
    program, objects, left_out = Program(order), [], []
    for prefix, case, about in zip(prefixes, cases, described):
        entry = about and next((e for e in about["entries"] if e["name"] == case.get("entry", "main")), None)
        if not entry:
            left_out.append(case["name"])
            continue
        params = arrays(CORPUS / case["params"]) if case.get("params") else {}
        kinds = {x["kind"] for x in entry["params"] + entry["results"]}
        if "value" in kinds or "str" in kinds:
            left_out.append(case["name"])
            continue
        before = len(program.calls)
        for run in case["runs"]:
            args, wanted = [], []
            for t in run["args"]:
                flatten(t, arrays(CORPUS / run["in"]), params, args)
            if not run.get("err"):
                flatten(run["result"], arrays(CORPUS / run["out"]), params, wanted)
            # A wrong number of arguments cannot be written in C.
            if len(args) == len(entry["params"]):
                program.run(prefix, entry, case, run, args, wanted)
        if len(program.calls) > before:
            program.includes.append(prefix)
            objects.append(prefix)
        else:
            left_out.append(case["name"])
    (a.out / "all.c").write_text(program.text())
    extension = "c" if a.emit == "c" else "o"
    flags = ["-std=gnu99", "-O1" if a.emit == "c" else "-O0", "-ffp-contract=off", "-fno-strict-aliasing", "-Wall", "-Werror", "-static"]
    subprocess.run([GCC[machine], *flags, "-o", a.out / "all", a.out / "all.c",
                    *[a.out / f"{p}.{extension}" for p in objects], "-lm"], check=True)
    done = subprocess.run([*QEMU[machine], a.out / "all"], capture_output=True, text=True)
    failed = []
    lines = done.stdout.splitlines()
    starts = [i for i, l in enumerate(lines) if l.startswith("call ")] + [len(lines)]
    for k, (case, run, wanted) in enumerate(program.expected):
        what = f"{case['name']}, {run['in']}"
        if k + 1 >= len(starts):
            failed.append(f"{what}: the program ended before ({done.returncode}) {done.stderr.strip()}")
            break
        code, results = int(lines[starts[k]].split()[2]), lines[starts[k] + 1:starts[k + 1]]
        if run.get("err"):
            if code == 0:
                failed.append(f"{what}: must be refused")
        elif code != 0:
            failed.append(f"{what}: refused with {code}")
        elif len(results) != len(wanted):
            failed.append(f"{what}: {len(results)} results, expected {len(wanted)}")
        else:
            for i, (text, want) in enumerate(zip(results, wanted)):
                wrong = agrees(text, order, want, case.get("tol", 1e-5))
                if wrong:
                    failed.append(f"{what}, result {i}: {wrong}")
    for line in failed:
        print(line)
    print(f"{a.triple}{'' if a.cpu == 'baseline' else ' ' + a.cpu}, {a.emit}: {len(program.calls)} calls of "
          f"{len(objects)} models, {len(failed)} differ; {len(left_out)} models are for other tests")
    sys.exit(bool(failed) or (a.case is None and len(objects) < 90))


main()
