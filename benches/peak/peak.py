#!/usr/bin/env python3
"""Matrix products of float32 beside the peak of multiply-adds in the same run, one thread.

    benches/peak/peak.py [MxKxN ..] [--kinds constant,plain,turned] [--against COMPILER] [--store]

Each product is compiled as a user would (`relax-aot product.rlx --target-cpu CPU`), loaded, and called through its typed
entry; bursts of calls take turns with bursts of multiply-adds on registers, and the best of each count. The right side is
known when the model is compiled (constant), a second argument (plain), or a second argument that the model transposes,
as for the scores of attention (turned). Bold: less than 95 % of the peak. Without sizes, all of SIZES; `--grid`: M and N
of 64 to 1024, K of 256 to 4096. --against: the figures of a second compiler, in turns, as A -> B. --store puts the table
into docs/performance.md. Needs numpy, cc, and the compiler (RELAX_AOT, or target/release/relax-aot).
"""

import argparse
import datetime
import os
import pathlib
import platform
import subprocess
import sys
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
COMPILER = os.environ.get("RELAX_AOT", str(ROOT / "target/release/relax-aot"))
KINDS = ["constant", "plain", "turned"]
MARK = "<!-- The last run of benches/peak/peak.py --store. -->"
END = "<!-- The end of it. -->"

# Few and many rows, columns that fill vectors and that do not, depths within and beyond the caches; the scores and the
# sums of attention (128 and 197 tokens, heads of 64), layers of vit tiny, bert base and gpt2.
SIZES = [
    *[(m, k, n) for m in (64, 128, 256, 1024) for n in (64, 256, 1024) for k in (256, 1024, 4096)],
    *[(m, k, n) for m in (64, 100, 197, 512) for n in (100, 197) for k in (256, 512, 2048)],
    *[(197, 64, 197), (128, 64, 128), (197, 197, 64), (128, 128, 64)],
    *[(197, 192, 768), (197, 768, 192), (128, 768, 768), (128, 768, 3072), (128, 3072, 768)],
    *[(m, k, 512) for m in (8, 16, 32, 50) for k in (256, 2048)],
]
GRID = [(m, k, n) for m in (64, 100, 128, 256, 512, 1024) for n in (64, 100, 128, 256, 512, 1024)
        for k in (256, 512, 1024, 2048, 4096)]


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def text(m, k, n, kind):
    tensor = lambda *dims: f'R.Tensor(({", ".join(map(str, dims))}), dtype="float32")'
    turned = "            t = R.permute_dims(b, axes=[1, 0])\n" if kind == "turned" else ""
    b = tensor(n, k) if kind == "turned" else tensor(k, n)
    return (
        f"@I.ir_module\nclass Module:\n    @R.function\n    def main(a: {tensor(m, k)}, b: {b}) -> {tensor(m, n)}:\n"
        f"        with R.dataflow():\n{turned}            gv = R.matmul(a, {'t' if turned else 'b'})\n"
        "            R.output(gv)\n        return gv\n"
    )


def rates(client, work, compilers, cpu, size, kind, options):
    """GFLOP/s of multiply-adds and of each compiler's library."""
    m, k, n = size
    r = np.random.default_rng(0)
    a, b = (r.random(s, dtype=np.float32) - 0.5 for s in ([m, k], [n, k] if kind == "turned" else [k, n]))
    a.tofile(work / "a")
    b.tofile(work / "b")
    (work / "product.rlx").write_text(text(m, k, n, kind))
    params = []
    if kind == "constant":
        np.savez(work / "b.npz", b=b)
        params = ["--params", work / "b.npz"]
    libraries = []
    for i, c in enumerate(compilers):
        path = work / f"libp{i}.so"
        run(c, work / "product.rlx", "-o", path, "--prefix", f"p{i}", "--target-cpu", cpu, *params)
        libraries += [path, f"p{i}"]
    out = run(client, options.rounds, options.burst, m, k, n, work / "a", work / "b", kind, *libraries)
    return [float(x) for x in out.split()]


def cell(parts):
    return " -> ".join(f"**{p:.1f}**" if p < 95 else f"{p:.1f}" for p in parts)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("sizes", nargs="*")
    p.add_argument("--kinds", default=",".join(KINDS))
    p.add_argument("--grid", action="store_true")
    p.add_argument("--cpu", default="native")
    p.add_argument("--against")
    p.add_argument("--rounds", type=int, default=12)
    p.add_argument("--burst", type=float, default=1500, help="microseconds of calls in turn")
    p.add_argument("--store", action="store_true")
    o = p.parse_args()
    sizes = [tuple(int(d) for d in s.split("x")) for s in o.sizes] or (GRID if o.grid else SIZES)
    kinds = o.kinds.split(",")
    compilers = [COMPILER] + ([o.against] if o.against else [])
    lines = []

    def say(line):
        lines.append(line)
        print(line, flush=True)

    say("| product | " + " | ".join(f"{k}, %" for k in kinds) + " |")
    say("|---|" + "---|" * len(kinds))
    counts, peaks = [{k: [0, 0, 0] for k in kinds} for _ in compilers], []
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        client = work / "client"
        run(os.environ.get("CC", "cc"), "-O2", "-o", client, HERE / "client.c", "-ldl", "-lm")
        for size in sizes:
            cells = []
            for kind in kinds:
                peak, *ours = rates(client, work, compilers, o.cpu, size, kind, o)
                peaks.append(peak)
                parts = [100 * x / peak for x in ours]
                for c, part in zip(counts, parts):
                    c[kind][0 if part >= 95 else 1 if part >= 90 else 2] += 1
                cells.append(cell(parts))
            say(f"| {'x'.join(map(str, size))} | {' | '.join(cells)} |")
    say("")
    for c in counts:
        for kind, (good, fair, low) in c.items():
            say(f"- {kind}: {good} of {good + fair + low} at 95 % or more, {fair} at 90 to 95, {low} below")
    say(f"- peak of multiply-adds: {min(peaks):.1f} to {max(peaks):.1f} GFLOP/s")
    if o.store:
        store("\n".join(lines))


def store(table):
    cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.machine())
    doc = ROOT / "docs/performance.md"
    head, rest = doc.read_text().split(MARK)
    tail = rest.split(END)[1].lstrip("\n")
    doc.write_text(f"{head}{MARK}\n{datetime.date.today()}; {cpu}; one thread.\n\n{table}\n\n{END}\n\n{tail}")


if __name__ == "__main__":
    main()
