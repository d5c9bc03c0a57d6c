"""Modules from TVM's own frontends and passes, as texts.

Usage: collect.py OUT [--sources nn,torch,onnx,docs,kernels] [--count N] [--passes N] [--table T] [--mutations N] [--seed S] [--sample N]

Writes OUT/NAME.rlx: the modules of each source (sources/), what N passes each make of them, in the ways that TVM's printer has, and N
texts with slips of each. Texts that are the same up to names of the file are written once. `compare.py RELAX_AOT OUT` then
puts them before TVM and us. A development step: torch, where it is installed, makes one of the sources.
"""

import argparse
import hashlib
import os
import pathlib
import random
import signal
import sys

import tvm
from tvm import relax  # noqa: F401
from sources import mutate, passes

STYLES = [{}, {"show_meta": True}, {"show_meta": True, "show_all_ty": False}, {"show_meta": True, "syntax_sugar": False}, {"show_meta": True, "int_dtype": "int64"},
          {"show_meta": True, "module_alias": ""}, {"show_meta": True, "verbose_expr": True}, {"show_meta": True, "float_dtype": "float32"}]
LIMIT = 40_000


def made_of(mod, f, style, seconds=10):
    """The text of what a pass makes of a module, in a child: some passes crash TVM, some never end. None where there is none."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(r)
        signal.alarm(seconds)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        try:
            text = f(mod).script(**style)
            with os.fdopen(w, "w") as pipe:
                pipe.write(text)
        finally:
            os._exit(0)
    os.close(w)
    with os.fdopen(r) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return text or None


def base(source, seed, count):
    if source == "nn":
        from sources import networks
        yield from networks.modules()
    elif source == "torch":
        from sources import traced
        yield from traced.modules()
    elif source == "onnx":
        from sources import onnx_models
        yield from onnx_models.modules()
    elif source == "docs":
        from sources import documented
        yield from documented.docstrings()
        yield from documented.modules()
    elif source == "kernels":
        from sources import kernels
        yield from kernels.modules(seed, count)
    elif source == "programs":
        import operators
        import programs
        for i in range(count):
            for make in (operators, programs):
                yield f"{make.__name__}_{i}", make.module(random.Random(f"p {i}" if seed == 1 else f"p {seed} {i}"))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("out")
    p.add_argument("--sources", default="nn,torch,onnx,docs,programs")
    p.add_argument("--count", type=int, default=150, help="of the sources that are made at random")
    p.add_argument("--passes", type=int, default=3)
    p.add_argument("--table", default="table", choices=["table", "unusual"], help="the passes: the plain ones, or those with arguments")
    p.add_argument("--mutations", type=int, default=2)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--sample", type=int, default=0, help="keep about one module of N")
    o = p.parse_args()
    out = pathlib.Path(o.out)
    out.mkdir(parents=True, exist_ok=True)
    seen, count = set(), {}
    table = list(getattr(passes, o.table)())

    def write(kind, name, text):
        key = hashlib.sha256(text.encode()).hexdigest()
        if len(text) > LIMIT or key in seen:
            return False
        seen.add(key)
        count[kind] = count.get(kind, 0) + 1
        (out / f"{name}.rlx").write_text(text)
        return True

    for source in o.sources.split(","):
        for name, made in base(source, o.seed, o.count):
            rng = random.Random(f"{o.seed} {name}")
            if o.sample and rng.randrange(o.sample):
                continue
            if callable(made):
                made = made_of(None, lambda _, make=made: make(), rng.choice(STYLES))
                if made is None:
                    continue
            if isinstance(made, str):
                if not write(source, name, made):
                    continue
                texts = [made]
                try:
                    mod = tvm.script.from_source(made)
                except BaseException:
                    mod = None
            else:
                mod = made
                style = rng.choice(STYLES[1:])
                text = mod.script(**style)
                if not write(source, name, text):
                    continue
                texts = [text]
            for k, (way, f) in enumerate(rng.sample(table, o.passes) if mod is not None else []):
                text = made_of(mod, f, rng.choice(STYLES))
                if text and write(f"{source}, passes", f"{name}-{way}", text):
                    texts.append(text)
            for k in range(o.mutations):
                slip = mutate.mutate(rng, rng.choice(texts))
                if slip and rng.random() < 0.3:
                    slip = mutate.mutate(rng, slip) or slip
                if slip:
                    write(f"{source}, slips", f"{name}-slip{k}", slip)
    print(count, sum(count.values()), file=sys.stderr)


main()
