#!/usr/bin/env python3
"""Writes input.h and expected.h: the recorded input, and the outputs that the host computes from it.

    record.py FOLDER INPUT.npz TOLERANCE MODEL [OPTIONS OF relax-aot run..]

The images here have been recorded with

    M=tests/corpus/torch_mobilenet_block
    examples/embedded/record.py examples/embedded/mobilenet $M.0.in.npz 1e-5 $M.rlx --params $M.params.safetensors
    examples/embedded/record.py examples/embedded/kws examples/models/kws_int8.in.npz 0 examples/models/kws_int8.onnx \\
      --quantized integer

Needs numpy and a built relax-aot (RELAX_AOT, default target/release/relax-aot)."""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

here, inputs, tolerance = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
tool = os.environ.get("RELAX_AOT", "target/release/relax-aot")
with tempfile.TemporaryDirectory() as folder:
    out = Path(folder) / "out.npz"
    subprocess.run([tool, "run", *sys.argv[4:], "--inputs", inputs, "--outputs", out], check=True)
    results = np.load(out)
    y = results[results.files[0]]
arrays = np.load(inputs)
x = arrays[arrays.files[0]]


def values(a):
    items = [float(v).hex() + "f" for v in a.ravel()]
    return ",\n".join("    " + ", ".join(items[i : i + 6]) for i in range(0, len(items), 6))


def shape(a):
    return "{" + ", ".join(map(str, a.shape)) + "}"


note = "/* Written by record.py. */\n"
(here / "input.h").write_text(
    f"{note}#define INPUT_SHAPE {shape(x)}\nstatic const float input[{x.size}] = {{\n{values(x)}}};\n"
)
(here / "expected.h").write_text(
    f"{note}#define OUTPUT_SHAPE {shape(y)}\n#define OUTPUTS {y.size}\n#define TOLERANCE {tolerance}f\n"
    f"static const float expected[{y.size}] = {{\n{values(y)}}};\n"
)
