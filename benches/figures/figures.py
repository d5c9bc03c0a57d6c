#!/usr/bin/env python3
"""The figures that a user can hold us to, network by network, beside their bounds.

    benches/figures/figures.py MODELS [NETWORK ..] [--store] [--only load,size,compile,versions,static,tune,batches,images,products]

MODELS is a folder of NAME.onnx with NAME.npz, its arguments. Prints a table, bold where a bound does not hold; with
--store also puts it into docs/performance.md. Needs numpy, cc, and the compiler (RELAX_AOT, or target/release/relax-aot).

load      dlopen to the first result, less the least time of a call, in processor time, each in a new process whose file
          is in the page cache: the least of seven; bound 1 ms up to 100 MB of weights
memory    peak of resident memory, less what the process had before loading; bound: library's constants + workspace + 5 MB
size      library for one processor; bound 1.6 x weights of the model + 300 KB
compile   seconds of processor time (it is spread over the cores), for one processor and for all; bound 5 s
versions  a call of the library for all processors, of a call of the one for this machine, in turns (the smaller one of the
          ratios of least and of median times, here and below); bound 1.05
static    a call of the model with open dims, of a call of the one whose dims are bound on the command line; bound 1.05
tune      a call of the library as the cost model has it, of a call of the one compiled with a tune file (made here
          where there is none in the folder TUNED); bound 1.05
batches   convolution networks whose batch was opened (needs onnx), for one image and four, of those whose batch is bound; bound 1.05
images    convolution networks whose rows and columns were opened (needs onnx), of those where they are bound; bound 1.05
products  matrix products with an open count of rows, of those whose rows are bound, in turns; bound 1.05
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import resource
import shutil
import struct
import subprocess
import sys
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
COMPILER = os.environ.get("RELAX_AOT", str(ROOT / "target/release/relax-aot"))
CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
MARK = "<!-- The last run of benches/figures/figures.py --store. -->"
END = "<!-- Its end. -->"


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


class Network:
    def __init__(self, models, name, work):
        self.name, self.work = name, work
        self.model = models / f"{name}.onnx"
        self.arrays = np.load(models / f"{name}.npz")
        self.args = work / f"{name}.args"

    def write_args(self, metadata):
        entry = next(e for e in metadata["entries"] if e["name"] == "main")
        with open(self.args, "wb") as f:
            f.write(struct.pack("<2q", len(entry["params"]), len(entry["results"])))
            for name in self.arrays.files:
                a = np.asarray(self.arrays[name], order="C")
                f.write(struct.pack("<3q", CODES[a.dtype.kind], a.dtype.itemsize * 8, a.ndim))
                f.write(struct.pack(f"<{a.ndim}q", *a.shape))
                f.write(struct.pack("<q", a.nbytes))
                f.write(a.tobytes())

    def compiled(self, label, *options):
        """The library, its prefix and the seconds it took."""
        prefix = f"{label}_{self.name}"
        path = self.work / f"lib{prefix}.so"
        spent = lambda: sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
        start = spent()
        run(COMPILER, self.model, "-o", path, "--prefix", prefix, *options)
        return path, prefix, spent() - start

    def metadata(self, path):
        return json.loads(run(COMPILER, "inspect", path, "--format", "json"))

    def dims(self, metadata):
        """The values of the open dims, from the arguments."""
        entry = next(e for e in metadata["entries"] if e["name"] == "main")
        values = {}
        for p, name in zip(entry["params"], self.arrays.files):
            for d, n in zip(p["shape"], self.arrays[name].shape):
                if isinstance(d, str) and d.isidentifier():
                    values[d] = n
        return values

    def weights(self):
        """Bytes of the model's weights."""
        return self.model.stat().st_size + sum(
            f.stat().st_size for f in [self.model.with_suffix(".onnx.data")] if f.exists()
        )


class Product:
    """A product of an open count of rows; `both`: of two arguments, as attention has it, else with a weight."""

    def __init__(self, work, rows, depth, columns, both):
        self.work, self.rows = work, rows
        self.name = f"{rows}x{depth}x{columns}{' of arguments' if both else ''}"
        self.model, self.args = work / "product.rlx", work / "product.args"
        tensor = lambda *dims: f'R.Tensor(({", ".join(map(str, dims))}), dtype="float32")'
        shapes = [("n", depth), (depth, columns)]
        if both:
            shapes = [(4, "n", depth), (4, depth, columns)]
        out = tensor(*[f'"{d}"' if d == "n" else d for d in shapes[0][:-1]], columns)
        x, w = (tensor(*[f'"{d}"' if d == "n" else d for d in s]) for s in shapes)
        self.model.write_text(
            "@I.ir_module\nclass Module:\n    @R.function\n"
            f"    def main(x: {x}, w: {w}) -> {out}:\n"
            "        with R.dataflow():\n            gv = R.matmul(x, w)\n            R.output(gv)\n        return gv\n"
        )
        r = np.random.default_rng(0)
        arrays = [r.random([rows if d == "n" else d for d in s], dtype=np.float32) - 0.5 for s in shapes]
        self.options = []
        if not both:
            np.savez(work / "product.npz", w=arrays.pop())
            self.options = ["--params", work / "product.npz"]
        with open(self.args, "wb") as f:
            f.write(struct.pack("<2q", len(arrays), 1))
            for a in arrays:
                f.write(struct.pack(f"<{4 + a.ndim}q", 2, 32, a.ndim, *a.shape, a.nbytes))
                f.write(a.tobytes())

    def compiled(self, label, *options):
        path = self.work / f"lib{label}_product.so"
        run(COMPILER, self.model, "-o", path, "--prefix", label, *self.options, "--target-cpu", "native", *options)
        return path, label


def products(client, work, seconds):
    table = Table(["product", "open, us", "bound, us", "open / bound"])
    print(table.text(), flush=True)
    shapes = [(m, k, n, False) for k, n in [(64, 64), (512, 512), (768, 3072)] for m in (1, 4, 7, 16, 50, 128)]
    shapes += [(m, 64, 128, True) for m in (1, 16, 50, 128)]
    for shape in shapes:
        p = Product(work, *shape)
        times = pair(client, p, p.compiled("open"), p.compiled("bound", "--dim", f"n={shape[0]}"), seconds)
        table.row(p.name, [(f"{times[0]:.2f}", None), (f"{times[2]:.2f}", None), ratio(times)])
    return table


class Table:
    def __init__(self, columns):
        self.columns, self.rows, self.broken = columns, [], []

    def line(self, cells):
        return "| " + " | ".join(cells) + " |"

    def row(self, name, cells):
        """Each cell: a text, and whether its bound holds (None: there is none)."""
        self.rows.append(self.line([name] + [f"**{t}**" if held is False else t for t, held in cells]))
        self.broken += [f"{name}: {c} {t}" for c, (t, held) in zip(self.columns[1:], cells) if held is False]
        print(self.rows[-1], flush=True)

    def text(self):
        return "\n".join([self.line(self.columns), "|" + "---|" * len(self.columns)] + self.rows)


def opened(models, name, folder, images):
    """The network with an open batch, and arguments of so many images; `None` where it has no convolution or no batch of one."""
    import onnx

    model = onnx.load(models / f"{name}.onnx")
    graph = model.graph
    constants = {i.name: i for i in graph.initializer}
    arguments = [i for i in graph.input if i.name not in constants]
    first = lambda v: v.type.tensor_type.shape.dim[0]
    if not any("Conv" in n.op_type for n in graph.node) or any(first(v).dim_value != 1 for v in arguments):
        return None
    for v in arguments + list(graph.output):
        first(v).dim_param = "batch"
    del graph.value_info[:]
    for node in (n for n in graph.node if n.op_type == "Reshape"):
        constant = next((c.attribute[0].t for c in graph.node if c.op_type == "Constant" and c.output[0] == node.input[1]), None)
        shape = constant or constants.get(node.input[1])
        dims = shape is not None and onnx.numpy_helper.to_array(shape).copy()
        if shape is not None and dims[0] == 1:
            dims[0] = -1 if -1 not in dims else 0
            shape.CopyFrom(onnx.numpy_helper.from_array(dims, shape.name))
    onnx.save(model, folder / f"{name}.onnx")
    arrays = np.load(models / f"{name}.npz")
    np.savez(folder / f"{name}.npz", **{k: np.concatenate([v] * images) for k, v in arrays.items()})
    return Network(folder, name, folder)


def resized(models, name, folder):
    """The network with open rows and columns of its images, and the options that bind them; `None` where it has none."""
    import onnx

    model = onnx.load(models / f"{name}.onnx")
    graph = model.graph
    constants = {i.name for i in graph.initializer}
    arguments = [i for i in graph.input if i.name not in constants]
    dims = [v.type.tensor_type.shape.dim for v in arguments]
    if not any("Conv" in n.op_type for n in graph.node) or any(len(d) != 4 or not d[3].dim_value for d in dims):
        return None
    bound = []
    for d in dims:
        for i, letter in [(2, "rows"), (3, "columns")]:
            bound += ["--dim", f"{letter}={d[i].dim_value}"]
            d[i].dim_param = letter
    for v in (v for v in graph.output if len(v.type.tensor_type.shape.dim) > 2):
        v.type.tensor_type.ClearField("shape")
    del graph.value_info[:]
    onnx.save(model, folder / f"{name}.onnx")
    shutil.copyfile(models / f"{name}.npz", folder / f"{name}.npz")
    return Network(folder, name, folder), bound


def images(client, models, names, work, seconds):
    table = Table(["open images", "open, us", "bound, us", "open / bound"])
    print(table.text(), flush=True)
    for name in names:
        network, bound = resized(models, name, work) or (None, [])
        if network is None:
            continue
        try:
            free = network.compiled("free", "--target-cpu", "native")
            static = network.compiled("static", "--target-cpu", "native", *bound)
        except SystemExit:
            continue  # Images of one size alone.
        network.write_args(network.metadata(free[0]))
        times = pair(client, network, free, static, seconds)
        table.row(name, [(f"{times[0]:.1f}", None), (f"{times[2]:.1f}", None), ratio(times)])
        for f in work.glob(f"*{name}*"):
            f.unlink()
    return table


def batches(client, models, names, work, seconds):
    table = Table(["open batch", "of one / bound", "of four / bound"])
    print(table.text(), flush=True)
    for name in names:
        cells = []
        for images in (1, 4):
            network = opened(models, name, work, images)
            if network is None:
                break
            try:
                free = network.compiled("free", "--target-cpu", "native")
                static = network.compiled("static", "--target-cpu", "native", "--dim", f"batch={images}")
            except SystemExit:
                break  # It has more of one image in it than its arguments say.
            network.write_args(network.metadata(free[0]))
            cells.append(ratio(pair(client, network, free, static, seconds)))
            for f in work.glob(f"*{name}*"):
                f.unlink()
        if len(cells) == 2:
            table.row(name, cells)
    return table


def pair(client, network, a, b, seconds):
    """Least and median microseconds of a call of each. Which pages of a library displace each other in the caches is chance,
    most where all of it fits into the second-level one: several copies of both files, each with pages of its own."""
    places = 6 if max(x[0].stat().st_size for x in (a, b)) < 4e6 else 3
    rounds = []
    for place in range(places):
        copies = []
        for path, prefix, *_ in (a, b):
            copy = path.with_suffix(f".{place}.so")
            shutil.copyfile(path, copy)
            copies += [copy, prefix]
        out = run(client, "pair", network.args, seconds / places, *copies).split()
        rounds.append([float(x) for x in out])
        for copy in copies[::2]:
            copy.unlink()
    return [min(r[i] for r in rounds) for i in range(4)]


def ratio(times):
    # Other work on the machine only ever makes calls longer.
    value = min(times[0] / times[2], times[1] / times[3])
    return f"{value:.3f}", value <= 1.05


def measure(network, client, only, seconds, tuned):
    cells = []
    native = network.compiled("native", "--target-cpu", "native")
    network.write_args(network.metadata(native[0]))
    weights = network.weights()
    if "load" in only:
        loads = [run(client, "load", native[0], native[1], network.args).split() for _ in range(7)]
        took = (min(float(l[1]) for l in loads) - min(float(l[2]) for l in loads)) / 1e3
        cells.append((f"{took:.2f}", took < 1 or weights > 100e6))
        # What the process needs for its results is within the 5 MB.
        memory = min(int(l[4]) - int(l[3]) for l in loads) * 1024
        entry = next(e for e in network.metadata(native[0])["entries"] if e["name"] == "main")
        arena = workspace(network, entry)
        bound = native[0].stat().st_size + arena + 5e6
        cells += [(f"{memory / 1e6:.1f}", memory <= bound), (f"{bound / 1e6:.1f}", None)]
    if "size" in only:
        size = native[0].stat().st_size
        bound = 1.6 * weights + 300e3
        cells += [(f"{size / 1e6:.2f}", size <= bound), (f"{bound / 1e6:.2f}", None)]
    if "compile" in only or "versions" in only:
        every = network.compiled("every")
        if "compile" in only:
            cells += [(f"{s:.2f}", s < 5) for s in (native[2], every[2])]
        if "versions" in only:
            cells.append(ratio(pair(client, network, every, native, seconds)))
    if "static" in only:
        dims = network.dims(network.metadata(native[0]))
        if dims:
            bound = [o for d, n in dims.items() for o in ("--dim", f"{d}={n}")]
            static = network.compiled("static", "--target-cpu", "native", *bound)
            cells.append(ratio(pair(client, network, native, static, seconds)))
        else:
            cells.append(("", None))
    if "tune" in only:
        file = tuned / f"{network.name}.tune.json"
        how = ["--target-cpu", "native", "--tune-file", file]
        if not file.exists():
            network.compiled("tuned", *how, "--tune")
        best = network.compiled("tuned", *how)
        cells.append(ratio(pair(client, network, native, best, seconds)))
    return cells


def workspace(network, entry):
    """Bytes, from the closed form in the metadata."""
    if entry.get("workspace_max") is not None:
        return int(entry["workspace_max"])
    values = dict(network.dims({"entries": [entry]}), min=min, max=max)
    text = str(entry["workspace"]).replace("//", "/").replace("/", "//")
    try:
        return int(eval(text, {"__builtins__": {}}, values))  # Sums, products and quotients of dims.
    except (NameError, SyntaxError):
        return 0


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", type=pathlib.Path)
    p.add_argument("networks", nargs="*")
    p.add_argument("--only", default="load,size,compile,versions,static,batches,images,products")
    p.add_argument("--seconds", type=float, default=2.0, help="of each comparison")
    p.add_argument("--tuned", type=pathlib.Path, help="where tune files are and stay; without, they are made anew")
    p.add_argument("--store", action="store_true")
    a = p.parse_args()
    only = a.only.split(",")
    names = a.networks or sorted(f.stem for f in a.models.glob("*.onnx") if f.with_suffix(".npz").exists())
    columns = ["network"]
    columns += ["load, ms", "memory, MB", "at most"] if "load" in only else []
    columns += ["library, MB", "at most"] if "size" in only else []
    columns += ["compiled in, s", "for all, s"] if "compile" in only else []
    columns += ["for all / native"] if "versions" in only else []
    columns += ["open / bound dims"] if "static" in only else []
    columns += ["as is / tuned"] if "tune" in only else []
    tables = []
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        client = work / "client"
        run(os.environ.get("CC", "cc"), "-O2", "-o", client, HERE / "client.c", "-ldl")
        if len(columns) > 1:
            table = Table(columns)
            print(table.text(), flush=True)
            for name in names:
                network = Network(a.models, name, work)
                table.row(name, measure(network, client, only, a.seconds, a.tuned or work))
                for f in work.glob(f"*{name}*"):
                    f.unlink()
            tables.append(table)
        if "batches" in only:
            print()
            tables.append(batches(client, a.models, names, work, a.seconds / 4))
        if "images" in only:
            print()
            tables.append(images(client, a.models, names, work, a.seconds / 4))
        if "products" in only:
            print()
            tables.append(products(client, work, a.seconds / 4))
    broken = [b for t in tables for b in t.broken]
    print("\n".join(["", "bounds that do not hold:"] + broken) if broken else "\nevery bound holds")
    if a.store:
        store("\n\n".join(t.text() for t in tables))


def store(text):
    cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.machine())
    doc = ROOT / "docs/performance.md"
    old = doc.read_text()
    section = f"{MARK}\n{datetime.date.today()}; {cpu}; one thread. Bold: beyond the bound.\n\n{text}\n\n{END}\n"
    if MARK in old:
        head, rest = old.split(MARK)
        doc.write_text(head + section + rest.split(END)[1].lstrip("\n"))
    else:
        head, rest = old.split("<!-- The last run of `cargo bench")
        section = "### Figures, network by network\n\n" + section
        doc.write_text(head + section + "\n<!-- The last run of `cargo bench" + rest)


if __name__ == "__main__":
    main()
