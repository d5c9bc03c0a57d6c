"""Writes ops.jsonl: calls of Relax operators with inputs, attributes and the outputs of TVM's VM.

Run with Python and apache-tvm 0.27: `python3 ops.py > ops.jsonl`. What TVM cannot compile goes to stderr.
"""
import json, math, sys
import numpy as np
import tvm
from tvm import relax
from tvm.relax import op
from tvm.script import relax as R

rng = np.random.default_rng(1)
F = "float32"


def f(*shape, d=F, lo=-2.0, hi=2.0):
    return rng.uniform(lo, hi, shape).astype(d)


def i(*shape, d="int64", lo=-9, hi=9):
    return rng.integers(lo, hi, shape).astype(d)


def b(*shape):
    return rng.integers(0, 2, shape).astype("bool")


def special():
    return np.array([0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -0.5, -1.5, np.inf, -np.inf, np.nan], F)


def num(v):
    if isinstance(v, float):
        return "nan" if math.isnan(v) else ("inf" if v > 0 else "-inf") if math.isinf(v) else v
    return v


def enc(a):
    a = np.asarray(a)
    if a.dtype == np.float32:
        flat = [num(float(x)) for x in a.astype(np.float64).ravel()]
        flat = [x if isinstance(x, str) else float(np.format_float_positional(np.float32(x), unique=True)) if abs(x) > 1e-30 and abs(x) < 1e30 else x for x in flat]
    elif a.dtype.kind == "f":
        flat = [num(float(x)) for x in a.ravel()]
    else:
        flat = [int(x) for x in a.ravel()]
    return {"t": list(a.shape), "d": str(a.dtype), "v": flat}


def value(a):
    """Our JSON form of an argument and the Relax expression for it (a variable for arrays)."""
    if isinstance(a, np.ndarray):
        return enc(a)
    if isinstance(a, S):
        return {"shape": list(a.v)}
    if isinstance(a, tuple):
        return {"tuple": [value(x) for x in a]}
    if isinstance(a, (bool, np.bool_)):
        return {"prim": int(a), "d": "bool"}
    if isinstance(a, int):
        return {"prim": a, "d": "int64"}
    if isinstance(a, float):
        return {"prim": num(a), "d": "float64"}
    return None


class S:
    def __init__(self, *v):
        self.v = v


def emit(name, fn, args, attrs=None, tol=None, note=None, want=None, static=False):
    """fn gets Relax variables for arrays (inside tuples too) and the rest as it is."""
    arrays, params = [], []

    def expr(a):
        if isinstance(a, np.ndarray):
            v = relax.Var(f"x{len(arrays)}", R.Tensor(a.shape, str(a.dtype)))
            arrays.append(a)
            params.append(v)
            return v
        if isinstance(a, tuple):
            return tuple(expr(x) for x in a)
        if isinstance(a, S):
            return relax.ShapeExpr(list(a.v))
        return a

    if want is None:
        try:
            exprs = [expr(a) for a in args]
            bb = relax.BlockBuilder()
            with bb.function("main", params):
                out = bb.emit(fn(*exprs))
                bb.emit_func_output(out)
            ex = tvm.compile(bb.get(), "llvm")
            vm = relax.VirtualMachine(ex, tvm.cpu())
            res = vm["main"](*[tvm.runtime.tensor(a) for a in arrays])
            def flat(r):
                if hasattr(r, "numpy"):
                    return [r.numpy()]
                return [y for x in r for y in flat(x)]
            want = flat(res)
        except Exception as e:
            line = [l for l in str(e).split("\n") if l.strip()]
            print(name, note, "ERR", line[-1][:160] if line else e, file=sys.stderr)
            return
    case = {"op": name, "args": [value(a) for a in args], "attrs": attrs or {}, "out": [enc(w) for w in want]}
    if tol:
        case["tol"] = tol
    if note:
        case["note"] = note
    if static:
        case["static"] = True
    print(json.dumps(case, separators=(",", ":")))


# Unary
for n in "abs acos acosh asin asinh atan atanh ceil cos cosh erf exp floor log negative round rsqrt sigmoid sign sin sinh sqrt square tan tanh trunc".split():
    fn = getattr(op, n)
    lo, hi = {"acosh": (1.0, 9.0), "acos": (-1, 1), "asin": (-1, 1), "atanh": (-0.99, 0.99), "log": (0.01, 9), "rsqrt": (0.01, 9), "sqrt": (0, 9)}.get(n, (-3, 3))
    emit(n, fn, [f(3, 5, lo=lo, hi=hi)], tol=2e-5)
    emit(n, fn, [f(7, d="float16", lo=lo, hi=hi)], tol=4e-3)
    emit(n, fn, [f(7, d="float64", lo=lo, hi=hi)], tol=1e-5)
    if n in "abs ceil floor negative round sign square trunc".split():
        emit(n, fn, [special()])
        emit(n, fn, [i(9, d="int32")])
        emit(n, fn, [i(9, d="int8")])
for n in "isfinite isinf isnan".split():
    emit(n, getattr(op, n), [special()])
    emit(n, getattr(op, n), [special().astype("float16")])
emit("bitwise_not", op.bitwise_not, [i(9, d="int32")])
emit("bitwise_not", op.bitwise_not, [i(9, d="uint8", lo=0, hi=255)])
emit("bitwise_not", op.bitwise_not, [b(9)])
emit("logical_not", op.logical_not, [b(9)])
emit("clip", op.clip, [f(3, 5, lo=-9, hi=9), -3, 6])
emit("clip", op.clip, [special(), 0, 1])
emit("clip", op.clip, [i(9, d="int32"), -3, 6])

# Binary
pairs = [((3, 5), (3, 5)), ((3, 5), (5,)), ((3, 1), (1, 5)), ((), (4,)), ((2, 1, 3), (4, 1))]
for n in "add subtract multiply divide maximum minimum".split():
    for d in "float16 float64 int8 uint8 int16 int32 int64".split():
        if d not in ("float16", "int32"):
            lo = 0 if d == "uint8" else -9
            emit(n, getattr(op, n), [rng.integers(lo, 9, 35).astype(d), rng.integers(1, 9, 35).astype(d)])
    for a, c in pairs:
        emit(n, getattr(op, n), [f(*a), f(*c)])
    emit(n, getattr(op, n), [i(7, d="int32"), i(7, d="int32", lo=1)])
    emit(n, getattr(op, n), [f(7, d="float16"), f(7, d="float16", lo=0.5)])
    emit(n, getattr(op, n), [special(), special()[::-1].copy()])
for n in "floor_divide floor_mod mod".split():
    emit(n, getattr(op, n), [f(9, lo=-9, hi=9), f(9, lo=0.5, hi=4)], tol=1e-4)
    emit(n, getattr(op, n), [f(9, lo=-9, hi=9), f(9, lo=-4, hi=-0.5)], tol=1e-4)
    emit(n, getattr(op, n), [i(15, d="int32"), np.array([2, -3, 4] * 5, "int32")])
    emit(n, getattr(op, n), [i(15), np.array([2, -3, 4] * 5, "int64")])
emit("divide", op.divide, [i(15), np.array([2, -3, 4] * 5, "int64")], note="truncates")
emit("power", op.power, [f(9, lo=0.1, hi=3), f(9)], tol=1e-4)
emit("power", op.power, [f(4), np.array([2, 3, 0, 1], F)], tol=1e-4)
emit("atan2", op.atan2, [f(9), f(9)])
emit("log_add_exp", op.log_add_exp, [f(9, lo=-9, hi=9), f(9, lo=-9, hi=9)])
for n in "bitwise_and bitwise_or bitwise_xor".split():
    emit(n, getattr(op, n), [i(9, d="int32"), i(9, d="int32")])
    emit(n, getattr(op, n), [b(9), b(9)])
for n in "left_shift right_shift".split():
    emit(n, getattr(op, n), [i(9, d="int32"), i(9, d="int32", lo=0, hi=5)])
for n in "logical_and logical_or logical_xor".split():
    emit(n, getattr(op, n), [b(3, 4), b(4)])
emit("ewise_fma", op.ewise_fma, [f(3, 4), f(3, 4), f(3, 4)])
for n in "equal not_equal less less_equal greater greater_equal".split():
    emit(n, getattr(op, n), [i(3, 4, lo=0, hi=3), i(4, lo=0, hi=3)])
    # TVM's own != is false of NaN, which is no IEEE comparison.
    emit(n, getattr(op, n), [special()[:-1].copy(), special()[-2::-1].copy()])
    emit(n, getattr(op, n), [b(9), b(9)])
for d in "float32 float16 float64 int32 int64 int8 uint8 bool".split():
    for e in "float32 float16 float64 int32 int64 int8 uint8 bool".split():
        x = f(37, lo=0, hi=9).astype(d)
        emit("astype", lambda v: op.astype(v, e), [x], {"dtype": e}, tol=1e-3)

# Activations
acts = {"nn.relu": op.nn.relu, "nn.gelu": op.nn.gelu, "nn.gelu_tanh": op.nn.gelu_tanh, "nn.selu": op.nn.selu, "nn.silu": op.nn.silu, "nn.softplus": op.nn.softplus, "nn.leakyrelu": op.nn.leakyrelu}
for n, fn in acts.items():
    emit(n, fn, [f(3, 5, lo=-5, hi=5)])
    emit(n, fn, [f(7, d="float16")], tol=5e-3)
emit("nn.leakyrelu", lambda x: op.nn.leakyrelu(x, 0.3), [f(7)], {"alpha": 0.3})
emit("nn.softplus", lambda x: op.nn.softplus(x, 2.0, 3.0), [f(9, lo=-4, hi=4)], {"beta": 2.0, "threshold": 3.0})
emit("nn.relu", op.nn.relu, [special()])
emit("nn.relu", op.nn.relu, [i(9, d="int32")])

for ax in (0, 1, -1):
    emit("nn.prelu", lambda x, a: op.nn.prelu(x, a, ax), [f(3, 3, 3), f(3)], {"axis": ax})

# Creation
emit("arange", lambda *a: op.arange(10, dtype="int64"), [10], {"dtype": "int64"})
for a in [(2, 11, 3), (10, 0, -3), (0, 7, 1)]:
    emit("arange", lambda *x: op.arange(*a, dtype="int32"), list(a), {"dtype": "int32"})
emit("arange", lambda *x: op.arange(1.0, 4.0, 0.25, dtype=F), [1.0, 4.0, 0.25], {"dtype": F})
emit("eye", lambda *a: op.eye(3, 5, 1, dtype="int32"), [3, 5, 1], {"dtype": "int32"})
emit("eye", lambda *a: op.eye(4, 3, -2), [4, 3, -2])
emit("eye_like", lambda x, k: op.eye_like(x, k), [f(4, 5), 1])
emit("full", lambda s, v: op.full(s, v), [S(2, 3), np.array(2.5, F)])
emit("full", lambda s, v: op.full(s, v, "int32"), [S(2, 3), np.array(2.5, F)], {"dtype": "int32"})
emit("full_like", op.full_like, [i(2, 3), np.array(7, "int64")])
for n in "ones zeros".split():
    emit(n, lambda s: getattr(op, n)(s, "int8"), [S(2, 3)], {"dtype": "int8"})
    emit(n + "_like", getattr(op, n + "_like"), [f(2, 3)])
for k in (-1, 0, 2):
    emit("tril", lambda x, k: op.tril(x, k), [f(2, 4, 5), k])
    emit("triu", lambda x, k: op.triu(x, k), [f(2, 4, 5), k])
for p in (True, False):
    emit("hamming_window", lambda *a: op.hamming_window(10, p, 0.54, 0.46, F), [10, p, 0.54, 0.46], {"dtype": F})

# Reductions
for n in "sum prod max min mean variance std".split():
    for ax in (None, [0], [1, 2], [-1], [0, 2]):
        for keep in (False, True):
            emit(n, lambda x: getattr(op, n)(x, ax, keep), [f(3, 4, 5)], {"axis": ax, "keepdims": keep}, tol=1e-4)
    if n in ("sum", "prod", "max", "min"):
        emit(n, lambda x: getattr(op, n)(x, 1), [i(3, 4, d="int32")], {"axis": [1]})
        emit(n, lambda x: getattr(op, n)(x, 1), [i(3, 4, d="uint8", lo=0, hi=4)], {"axis": [1]})
    emit(n, lambda x: getattr(op, n)(x, 1), [f(3, 4, d="float16")], {"axis": [1]}, tol=5e-3)
emit("sum", lambda x: op.sum(x, 1), [b(3, 4)], {"axis": [1]})
for ax in ([1], [0], None, [-1]):
    emit("median", lambda x: op.median(x, ax), [f(4, 5)], {"axis": ax})
    if ax:  # TVM forgets keepdims without an axis
        emit("median", lambda x: op.median(x, ax, True), [f(4, 6)], {"axis": ax, "keepdims": True})
for n in ("argmax", "argmin"):
    for ax in (None, 0, 1, -1):
        for keep in (False, True):
            emit(n, lambda x: getattr(op, n)(x, ax, keep), [i(4, 5, lo=0, hi=4).astype(F)], {"axis": ax, "keepdims": keep})
    emit(n, lambda x: getattr(op, n)(x, 1), [i(4, 5, d="int32", lo=0, hi=4)], {"axis": 1})
emit("collapse_sum_to", op.collapse_sum_to, [f(3, 2, 4), S(2, 1)])
emit("collapse_sum_to", op.collapse_sum_to, [f(3, 2, 4), S(4)])
emit("collapse_sum_like", op.collapse_sum_like, [f(3, 2, 4), f(2, 1)])

# Scans
for n in ("cumsum", "cumprod"):
    np_fn = getattr(np, n)
    for ax in (None, 0, 1, -1):
        for ex in (False, True):
            emit(n, lambda x: getattr(op, n)(x, ax, None, ex), [f(3, 4, 2)], {"axis": ax, "exclusive": ex}, tol=1e-4)
    emit(n, lambda x: getattr(op, n)(x, 1, "float64"), [i(3, 4, d="int32", lo=1, hi=4)], {"axis": 1, "dtype": "float64"})
    emit(n, lambda x: getattr(op, n)(x, 1), [i(3, 4, d="int32", lo=1, hi=4)], {"axis": 1})

# Search
emit("where", op.where, [b(3, 1), f(2), f(1, 2)])
emit("where", op.where, [b(5), i(5), i(5)])
for right in (False, True):
    emit("bucketize", lambda x, c: op.bucketize(x, c, right=right), [i(4, 5, lo=0, hi=6).astype(F), np.array([1, 2, 2, 4], F)], {"right": right})
emit("bucketize", lambda x, c: op.bucketize(x, c, out_int32=True), [i(4, d="int32"), np.array([-3, 2, 5], "int32")], {"out_int32": True})
emit("bucketize", lambda x, c: op.bucketize(x, c, right=True), [np.array([-1, 0, 2, 5], "int32"), np.array([-2.5, -1.5, 0.2], F)], {"right": True})

# Sorting
for ax in (0, 1, -1):
    for desc in (False, True):
        emit("sort", lambda x: op.sort(x, ax, desc), [f(7, 5)], {"axis": ax, "descending": desc})
        emit("argsort", lambda x: op.argsort(x, ax, desc, "int64"), [i(7, 5, lo=0, hi=4).astype(F)], {"axis": ax, "descending": desc, "dtype": "int64"})
emit("sort", lambda x: op.sort(x), [f(37)])
emit("sort", lambda x: op.sort(x), [i(9, d="int32")])
emit("argsort", lambda x: op.argsort(x), [i(3, 9, lo=0, hi=4)])
for ret in ("both", "values", "indices"):
    for largest in (True, False):
        emit("topk", lambda x: op.topk(x, 3, 1, ret, largest, "int64"), [f(4, 7)], {"k": 3, "axis": 1, "ret_type": ret, "largest": largest, "dtype": "int64"})
emit("topk", lambda x: op.topk(x, 2, 0), [i(4, 7, lo=0, hi=4).astype(F)], {"k": 2, "axis": 0})
emit("topk", lambda x: op.topk(x, -1, 0), [f(4, 7)], {"k": -1, "axis": 0})
prob = np.array([[0.2, 0.3, 0.5], [0.3, 0.4, 0.3]], F)
emit("multinomial_from_uniform", op.multinomial_from_uniform, [prob, np.array([[0.4], [0.9], [0.1]], F), np.array([[0], [1], [1]], "int64")], {"dtype": "int64"}, want=[np.array([[1], [2], [0]], "int64")])

# Movement
emit("reshape", lambda x, s: op.reshape(x, s), [f(2, 3, 4), S(4, 6)])
emit("reshape", lambda x, s: op.reshape(x, s), [f(2, 3, 4), S(2, 12)])
emit("reshape", lambda x, s: op.reshape(x, s), [f(6, 4), S(2, 3, 2, 2)])
emit("reshape", lambda x, s: op.reshape(x, s), [f(2, 3, 5), S(5, 3, 2)])
emit("reshape", lambda x, s: op.reshape(x, s), [f(1, 5), S(5, 1, 1)])
emit("reshape", lambda x, s: op.reshape(x, (-1, 3)), [f(2, 6), S(-1, 3)], static=True)
emit("reshape", lambda x, s: op.reshape(x, ()), [f(1, 1), S()])
emit("flatten", op.flatten, [f(2, 3, 4)])
emit("nn.batch_flatten", op.nn.batch_flatten, [f(2, 3, 4)])
for ax in ([0], [-1], [0, 2], [1, -1]):
    emit("expand_dims", lambda x: op.expand_dims(x, ax), [f(3, 4)], {"axis": ax})
emit("squeeze", lambda x: op.squeeze(x, [0, -1]), [f(1, 3, 1)], {"axis": [0, -1]})
emit("squeeze", lambda x: op.squeeze(x), [f(1, 3, 1)], {"axis": None})
emit("permute_dims", lambda x: op.permute_dims(x), [f(2, 3, 4)])
emit("permute_dims", lambda x: op.permute_dims(x, [0, 2, 1]), [f(2, 3, 4)], {"axes": [0, 2, 1]})
emit("permute_dims", lambda x: op.permute_dims(x, [-1, 0, 1]), [f(2, 3, 4)], {"axes": [-1, 0, 1]})
emit("broadcast_to", op.broadcast_to, [f(3, 1), S(2, 3, 4)])
emit("broadcast_to", op.broadcast_to, [f(), S(2, 3)])
for ax in (0, 1, -1):
    shapes = [[2, 3, 2], [2, 3, 2], [2, 3, 2]]
    for k, s in enumerate(shapes):
        s[ax] += k
    emit("concat", lambda t: op.concat(t, ax), [tuple(f(*s) for s in shapes)], {"axis": ax})
emit("concat", lambda t: op.concat(t, 0), [(i(3), i(2), i(4))], {"axis": 0})
for sec, ax in ((2, 1), ([1, 3], -1), ([0, 2, 4], 0), (4, 0)):
    emit("split", lambda x: op.split(x, sec, ax), [f(6, 4)], {"indices_or_sections": sec, "axis": ax})
for ax in (0, 1, -1):
    emit("stack", lambda t: op.stack(t, ax), [(f(3, 2), f(3, 2), f(3, 2))], {"axis": ax})
for r in ([2], [2, 3], [2, 1, 3], [1, 1]):
    emit("tile", lambda x: op.tile(x, r), [f(3, 4)], {"repeats": r})
for ax in (None, 0, 1, -1):
    emit("repeat", lambda x: op.repeat(x, 3, ax), [f(3, 4)], {"repeats": 3, "axis": ax})
for ax in (0, 1, -1):
    emit("flip", lambda x: op.flip(x, ax), [f(3, 4)], {"axis": ax})
emit("layout_transform", lambda x: op.layout_transform(x, lambda a: (a // 4, a % 4), pad_value=1.0), [f(10)], {"index_map": {"map": 1, "to": [["//", "0", 4], ["%", "0", 4]]}, "pad_value": 1.0}, static=True)
emit("layout_transform", lambda x: op.layout_transform(x, lambda a, c: (c // 2, a, c % 2)), [f(3, 6)], {"index_map": {"map": 2, "to": [["//", "1", 2], "0", ["%", "1", 2]]}}, static=True)
emit("meshgrid", lambda t: op.meshgrid(t, "ij"), [(f(3), f(4))], {"indexing": "ij"})
emit("meshgrid", lambda t: op.meshgrid(t, "xy"), [(f(3), f(4), f(2))], {"indexing": "xy"})
emit("reverse_sequence", lambda x, l: op.reverse_sequence(x, l, 1, 0), [f(4, 6, 2), np.array([1, 6, 3, 2], "int64")])
emit("reverse_sequence", lambda x, l: op.reverse_sequence(x, l, 0, 1), [f(4, 6), np.array([1, 4, 3, 2, 2, 1], "int32")], {"seq_axis": 0, "batch_axis": 1})

for mode in ("constant", "reflect", "replicate", "circular"):
    for w in ([0, 0, 1, 2], [2, 1, 0, 0], [1, 1, 2, 3]):
        emit("nn.pad", lambda x: op.nn.pad(x, w, mode, 1.5), [f(4, 5)], {"pad_width": w, "pad_mode": mode, "pad_value": 1.5}, note=mode)
x = f(2, 8, 3, 5)
emit("nn.pixel_shuffle", None, [x], {"upscale_factor": 2}, want=[x.reshape(2, 2, 2, 2, 3, 5).transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 6, 10)])

# Indexing
for mode in ("fast", "clip", "wrap"):
    lo, hi = (0, 6) if mode == "fast" else (-9, 9)
    for ax in (0, 1, -1):
        hi2 = min(hi, 4) if ax == 0 and mode == "fast" else hi
        emit("take", lambda x, j: op.take(x, j, ax, mode), [f(4, 6), i(2, 3, lo=lo, hi=hi2)], {"axis": ax, "mode": mode})
emit("take", lambda x, j: op.take(x, j, 1, "nan"), [f(4, 6), i(5, lo=0, hi=9)], {"axis": 1, "mode": "nan"})
emit("take", lambda x, j: op.take(x, j), [f(6), i(2, 3, d="int32", lo=0, hi=6)])
emit("take", lambda x, j: op.take(x, j, 0), [f(6, 2), np.array(3, "int64")], {"axis": 0})
for ax in (0, 1, -1):
    emit("gather_elements", lambda x, j: op.gather_elements(x, j, ax), [f(4, 6), i(4, 6, lo=0, hi=4)], {"axis": ax})
    for red in ("update", "add", "mul", "mean", "max", "min"):
        j = np.stack([rng.permutation(4)[:3] for _ in range(4)], 1 if ax == 0 else 0).astype("int64")
        if red != "update":
            j = i(*j.shape, lo=-4, hi=4)
        emit("scatter_elements", lambda x, j, u: op.scatter_elements(x, j, u, ax, red), [f(4, 4), j, f(*j.shape)], {"axis": ax, "reduction": red})
emit("gather_nd", op.gather_nd, [f(4, 6, 5), i(3, 2, lo=0, hi=4)])
emit("gather_nd", op.gather_nd, [f(4, 6), i(3, 1, lo=0, hi=4)])
emit("gather_nd", lambda x, j: op.gather_nd(x, j, 1), [f(4, 6, 5), i(4, 3, 1, lo=0, hi=6)], {"batch_dims": 1})
emit("gather_nd", lambda x, j: op.gather_nd(x, j, 1), [np.arange(12, dtype=F).reshape(3, 4), np.array([[1], [2]])], {"batch_dims": 1})
for red in ("update", "add", "mul", "max", "min"):
    j = np.array([[0], [2], [3]], "int64") if red == "update" else i(5, 1, lo=0, hi=4)
    emit("scatter_nd", lambda x, j, u: op.scatter_nd(x, j, u, red), [f(4, 6), j, f(len(j), 6)], {"reduction": red})
emit("scatter_nd", lambda x, j, u: op.scatter_nd(x, j, u, "add"), [f(4, 6), i(5, 2, lo=0, hi=4), f(5)], {"reduction": "add"})
emit("index_tensor", lambda x, t: op.index_tensor(x, list(t)), [f(4, 6, 5), (i(3, 1, lo=0, hi=4), i(2, lo=0, hi=6))])
emit("index_tensor", lambda x, t: op.index_tensor(x, list(t)), [f(4, 6), (i(3, lo=0, hi=4),)])
for acc in (False, True):
    emit("index_put", lambda x, t, v: op.index_put(x, t, v, acc), [f(4, 6), (np.array([0, 1, 2], "int64"), np.array([-1, 2, 3], "int64")), f(3)], {"accumulate": acc})
emit("index_put", lambda x, t, v: op.index_put(x, t, v, True), [f(4), (np.array([0, 0, 2], "int64"),), f(3)], {"accumulate": True})
# Values of other shapes, one after the other.
emit("index_put", lambda x, t, v: op.index_put(x, t, v, True), [np.zeros(4, F), (np.array([1, 2]),), np.array([[1, 2], [3, 4]], F)], {"accumulate": True}, static=True)
emit("index_put", lambda x, t, v: op.index_put(x, t, v, True), [np.zeros(4, F), (np.array([[1], [2]]),), np.array([7, 8], F)], {"accumulate": True}, static=True)
for ax in (-1, 0, 1):
    emit("one_hot", lambda x, a, c: op.one_hot(x, 1.0, 0.0, 5, ax), [i(3, lo=0, hi=6) if ax < 1 else i(3, 2, lo=0, hi=6), 1.0, 0.0], {"depth": 5, "axis": ax})
emit("one_hot", lambda x, a, c: op.one_hot(x, 7, -1, 4), [i(3, d="int32", lo=0, hi=4), 7, -1], {"depth": 4})

# Slices
for ax, be, en, st in [([0], [1], [5], None), ([0, 1], [5, -1], [0, -6], [-2, -1]), ([1], [-3], [8], [1]), ([1], [1], [100], [2]), ([0], [3], [2], [1]), ([0], [-100], [2], [1]), ([0], [-1], [-100], [-1])]:
    args = [f(6, 5), tuple(ax), tuple(be), tuple(en)] + ([tuple(st)] if st else [])
    emit("strided_slice", lambda x, *a: op.strided_slice(x, ax, be, en, st), args, note=str((ax, be, en, st)))
emit("dynamic_strided_slice", op.dynamic_strided_slice, [f(6, 5), np.array([1, -1], "int64"), np.array([6, -5], "int64"), np.array([2, -1], "int64")])
emit("dynamic_strided_slice", op.dynamic_strided_slice, [f(6), np.array([4], "int64"), np.array([1], "int64"), np.array([-2], "int64")])
emit("slice_scatter", lambda x, s, *a: op.slice_scatter(x, s, 1, 5, 2, axis=0), [f(6, 4), f(2, 4), 1, 5, 2], {"axis": 0})
emit("slice_scatter", lambda x, s, *a: op.slice_scatter(x, s, 0, 100, 1, axis=1), [f(3, 4), f(3, 4), 0, 100, 1], {"axis": 1})

# Data dependent
x = i(3, 5, lo=0, hi=4)
emit("unique", op.unique, [x])
emit("unique", lambda x, *a: op.unique(x, True, True, True, True), [x, True, True, True, True], want=[v.reshape(-1) for v in np.unique(x, True, True, True)])
emit("nonzero", op.nonzero, [i(3, 5, lo=0, hi=2)])
emit("nonzero", op.nonzero, [b(7)])
