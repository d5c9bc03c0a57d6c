"""What the generators share: their command line, and the files of a network: NAME.onnx beside NAME.npz, its inputs by name."""
import argparse
import pathlib

import numpy as np


def first_line(e):
    return (str(e).splitlines() or [type(e).__name__])[0][:150]


class Folder:
    """A folder of networks; a network whose name `--only` does not have is left out."""

    def __init__(self, doc):
        a = argparse.ArgumentParser(description=doc.splitlines()[0])
        a.add_argument("out", type=pathlib.Path)
        a.add_argument("--only", default="", help="NAME,..")
        a = a.parse_args()
        self.out, self.only = a.out, set(filter(None, a.only.split(",")))
        self.out.mkdir(parents=True, exist_ok=True)
        self.written = 0

    def wants(self, name):
        return not self.only or name in self.only

    def add(self, stem, write, inputs, others=None):
        """`write(path)` makes the model; why it does not is printed. `inputs` by name, as numpy has them; `others` are of
        other sizes."""
        path = self.out / f"{stem}.onnx"
        try:
            write(path)
        # An exporter may end in any way.
        except Exception as e:
            print(f"{stem}: {first_line(e)}", flush=True)
            path.unlink(missing_ok=True)
            return
        np.savez(path.with_suffix(".npz"), **inputs)
        if others:
            np.savez(path.with_suffix(".alt.npz"), **others)
        self.written += 1

    def close(self):
        print(f"{self.written} models")
