"""Do we accept and refuse the modules that TVM accepts and refuses?

Usage: verdicts.py RELAX_AOT [SEED [COUNT]]

Random small modules: elementwise operators, products, reductions, reshapes and calls between functions, on static and
symbolic dims, right and wrong. TVM's verdict is that of its parser, well_formed and normaliser; ours that of
`relax-aot check`. Prints every difference and exits with 1 when TVM accepts what we refuse. What we refuse and TVM
accepts is listed in docs/spec-coverage.md where the specification asks for it.
"""

import collections
import pathlib
import random
import subprocess
import sys
import tempfile

import tvm
import tvm.script
from tvm import relax

HEADER = "from tvm.script import ir as I, relax as R, tirx as T\n@I.ir_module\nclass Module:\n"
DIMS = ["1", "2", "3", "4", "n", "m", "n * 2", "n + m"]


def shape(dims, quoted):
    parts = [f'"{d}"' if quoted and not d.isdigit() else d for d in dims]
    return "(" + "".join(p + ", " for p in parts) + ")"


def tensor(dims, dtype, quoted=False):
    return f'R.Tensor({shape(dims, quoted)}, dtype="{dtype}")'


def module(rng):
    """The text of one module: a main function of up to six bindings."""
    dims = [["n", "m"]] + [[rng.choice(DIMS) for _ in range(rng.randint(1, 3))] for _ in range(2)]
    dtypes = [rng.choice(["float32", "float32", "float32", "int32", "bool"]) for _ in dims]
    params = ", ".join(f"p{i}: {tensor(d, t, True)}" for i, (d, t) in enumerate(zip(dims, dtypes)))
    values = [f"p{i}" for i in range(len(dims))]
    lines = []
    for i in range(rng.randint(1, 6)):
        a, b = rng.choice(values), rng.choice(values)
        axis = rng.randint(-3, 3)
        call = rng.choice([
            f"R.exp({a})", f"R.add({a}, {b})", f"R.multiply({a}, {b})", f"R.matmul({a}, {b})",
            f"R.sum({a}, axis=[{axis}])", f"R.reshape({a}, R.shape([{rng.choice(DIMS)}, {rng.choice(DIMS)}]))",
            f"R.concat(({a}, {b}), axis={axis})", f"R.expand_dims({a}, axis=[{axis}])", f"R.permute_dims({a})",
            f"R.nn.softmax({a}, axis={axis})", f"R.where({a}, {b}, {b})", f'R.astype({a}, "float32")',
        ])
        note = ""
        if rng.random() < 0.2:
            note = ": " + tensor([rng.choice(DIMS) for _ in range(rng.randint(1, 3))], "float32")
        lines.append(f"        v{i}{note} = {call}")
        values.append(f"v{i}")
    body = "\n".join(lines)
    return (f"{HEADER}    @R.function\n    def main({params}):\n        n = T.int64()\n        m = T.int64()\n"
            f"{body}\n        return {values[-1]}\n")


def theirs(text):
    try:
        mod = tvm.script.from_source(text)
        if not relax.analysis.well_formed(mod):
            return "not well formed"
        relax.transform.Normalize()(mod)
        return None
    except Exception as error:  # whatever TVM throws is a refusal
        lines = [line for line in str(error).splitlines() if line.strip()]
        return lines[-1].strip() if lines else type(error).__name__


def ours(program, text, folder):
    path = pathlib.Path(folder) / "module.rlx"
    path.write_text(text)
    done = subprocess.run([program, "check", str(path)], capture_output=True, text=True)
    return None if done.returncode == 0 else done.stderr.strip() or f"exit code {done.returncode}"


def main():
    program = sys.argv[1]
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 300
    rng = random.Random(seed)
    seen = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        for i in range(count):
            text = module(rng)
            them, us = theirs(text), ours(program, text, folder)
            seen[(them is None, us is None)] += 1
            if (them is None) != (us is None):
                verdict = "TVM accepts, we refuse" if them is None else "TVM refuses, we accept"
                print(f"--- {i}: {verdict}\n{text}{them or us}\n")
    print(f"seed {seed}, {count} modules: {seen[(True, True)]} accepted by both, {seen[(False, False)]} refused by both, "
          f"{seen[(True, False)]} accepted by TVM alone, {seen[(False, True)]} by us alone")
    sys.exit(1 if seen[(True, False)] else 0)


if __name__ == "__main__":
    main()
