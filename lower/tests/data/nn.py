"""Writes nn.jsonl, in the form of ops.jsonl: the algorithmic operators against TVM's VM, NumPy where TVM has no kernel.

Run with Python and apache-tvm 0.27: `python3 nn.py > nn.jsonl`. What TVM cannot compile goes to stderr. Operands and
attributes are those that TVM prints.
"""
import ast, json, re, sys
import numpy as np
import tvm
from tvm import relax
from tvm.relax import op
from tvm.script import relax as R

rng = np.random.default_rng(2)
nn, image, vision, grad = op.nn, op.image, op.vision, op.grad


def f(*shape, d="float32", lo=-1.0, hi=1.0):
    return np.round(rng.uniform(lo, hi, shape), 2).astype(d)


def i(*shape, d="int32", lo=-9, hi=9):
    return rng.integers(lo, hi, shape).astype(d)


def num(v):
    return str(v) if v != v or v in (np.inf, -np.inf) else v


def enc(a):
    a = np.asarray(a)
    if a.dtype == np.float32:
        v = [num(float("%.8g" % x)) for x in a.ravel()]
    else:
        v = [num(x) for x in a.ravel().tolist()]
    return {"t": list(a.shape), "d": str(a.dtype), "v": v}


def literal(n):
    if isinstance(n, ast.Call):
        return literal(n.args[0])
    if isinstance(n, (ast.List, ast.Tuple)):
        return [literal(e) for e in n.elts]
    return ast.literal_eval(n)


def run(module, arrays):
    vm = relax.VirtualMachine(tvm.compile(module, "llvm"), tvm.cpu())
    flat = lambda r: [r.numpy()] if hasattr(r, "numpy") else [y for x in r for y in flat(x)]
    return flat(vm["main"](*[tvm.runtime.tensor(a) for a in arrays]))


def emit(fn, *arrays, tol=None, want=None, consts=()):
    """`fn` maps Relax variables (constants for the operands in `consts`) to a call."""
    arg = lambda k, a: relax.const(a, str(a.dtype)) if k in consts else relax.Var(f"x{k}", R.Tensor(a.shape, str(a.dtype)))
    args = [arg(k, a) for k, a in enumerate(arrays)]
    params = [a for a in args if isinstance(a, relax.Var)]
    try:
        bb = relax.BlockBuilder()
        with bb.function("main", params):
            bb.emit_func_output(bb.emit(fn(*args)))
        text = bb.get()["main"].script()
        line = [l for l in text.splitlines() if "= R." in l and "def " not in l][-1]
        call = ast.parse(line.split(" = ", 1)[1].strip()).body[0].value
        free = [a for k, a in enumerate(arrays) if k not in consts]
        out = run(bb.get(), free) if want is None else want
    except Exception as e:
        print("ERR", [l for l in str(e).split("\n") if l.strip()][-1][:200], file=sys.stderr)
        return
    rest = iter(sorted(consts))

    def operand(n):
        if isinstance(n, ast.Name):
            return enc(arrays[int(n.id[1:])])
        if isinstance(n, ast.Call) and ast.unparse(n.func) == "R.shape":
            return {"shape": literal(n.args[0])}
        if isinstance(n, ast.Subscript) or ast.unparse(n).startswith("R.const("):
            return enc(arrays[next(rest)])
        return {"tuple": [operand(e) for e in (n.elts if isinstance(n, ast.Tuple) else n.args)]}

    attrs = {k.arg: literal(k.value) for k in call.keywords}
    case = {"op": ast.unparse(call.func)[2:], "args": [operand(a) for a in call.args], "attrs": attrs, "out": [enc(o) for o in out]}
    if tol:
        case["tol"] = tol
    print(json.dumps(case, separators=(",", ":")))


# Products
for a, b in [((3, 4), (4, 5)), ((2, 1, 3, 4), (3, 4, 5)), ((4,), (4, 5)), ((2, 3, 4), (4,)), ((4,), (4,))]:
    emit(op.matmul, f(*a), f(*b))
emit(lambda a, b: op.matmul(a, b, "int32"), i(3, 8, d="int8", lo=-128, hi=127), i(8, 4, d="int8", lo=-128, hi=127))
emit(op.matmul, f(3, 8, d="float16"), f(8, 4, d="float16"), tol=1e-2)
emit(lambda a, b: op.matmul(a, b, "float32"), f(3, 8, d="float16"), f(8, 4, d="float16"))
emit(op.outer, f(3), f(5))
for text, shapes in [("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]), ("ij->ji", [(3, 4)]), ("ij,ij->", [(3, 3), (3, 3)]), ("...ij,...jk->...ik", [(2, 3, 4), (2, 4, 5)]), ("ij,jk", [(3, 4), (4, 5)]), ("i,j->ij", [(3,), (4,)]), ("abc,cd,de->abe", [(2, 3, 4), (4, 5), (5, 2)]), ("i...->...", [(3, 4, 2)]), (" i j , j k -> i k ", [(2, 3), (3, 4)])]:
    arrays = [f(*s) for s in shapes]
    emit(lambda *a: op.einsum(a, text), *arrays, want=[np.array(np.einsum(text, *arrays))])

# Convolution
for attrs, x, w in [
    (dict(padding=1), (1, 3, 5, 6), (4, 3, 3, 3)),
    (dict(strides=(2, 1), padding=(0, 1, 2, 1), dilation=(1, 2)), (2, 2, 6, 7), (3, 2, 3, 2)),
    (dict(groups=2), (1, 4, 4, 5), (6, 2, 3, 3)),
    (dict(groups=4, padding=1), (1, 4, 4, 5), (4, 1, 3, 3)),
    (dict(groups=2, padding=1), (1, 2, 4, 5), (4, 1, 3, 3)),
    (dict(padding=1, strides=2, data_layout="NHWC", kernel_layout="HWIO"), (1, 5, 6, 3), (3, 3, 3, 4)),
    (dict(padding=1, data_layout="NHWC", kernel_layout="OHWI", groups=4), (1, 4, 5, 4), (4, 3, 3, 1)),
]:
    emit(lambda a, b: nn.conv2d(a, b, **attrs), f(*x), f(*w))
emit(lambda a, b: nn.conv2d(a, b, padding=1, out_dtype="int32"), i(1, 3, 5, 4, d="int8", lo=-128, hi=127), i(2, 3, 3, 3, d="int8", lo=-128, hi=127))
emit(lambda a, b: nn.conv2d(a, b), f(1, 2, 4, 4, d="float16"), f(3, 2, 3, 3, d="float16"), tol=1e-2)
emit(lambda a, b: nn.conv1d(a, b, strides=2, padding=(1, 2)), f(2, 3, 9), f(4, 3, 3))
emit(lambda a, b: nn.conv1d(a, b, padding=1, data_layout="NWC", kernel_layout="WIO"), f(2, 7, 3), f(3, 3, 4))
emit(lambda a, b: nn.conv3d(a, b, strides=(1, 2, 1), padding=1), f(1, 2, 3, 4, 3), f(2, 2, 3, 3, 3))
for attrs, x, w in [
    (dict(strides=2, padding=1, output_padding=1), (1, 4, 3, 4), (4, 3, 3, 3)),
    (dict(strides=(3, 2), padding=(0, 1, 2, 1), output_padding=(2, 0), groups=2), (1, 4, 3, 4), (4, 3, 2, 3)),
    (dict(strides=2, dilation=2), (1, 2, 3, 4), (2, 3, 3, 2)),
    (dict(padding=3), (1, 2, 6, 6), (2, 3, 3, 3)),
]:
    emit(lambda a, b: nn.conv2d_transpose(a, b, **attrs), f(*x), f(*w))
emit(lambda a, b: nn.conv1d_transpose(a, b, strides=2, padding=1, output_padding=1), f(1, 4, 7), f(4, 3, 3))
emit(lambda a, b: nn.conv3d_transpose(a, b, strides=2, padding=1), f(1, 2, 2, 3, 2), f(2, 2, 3, 3, 3))

# Pooling
for ceil in (False, True):
    for st, pd, dl, sz in [((2, 2), (1, 1, 1, 1), (1, 1), (3, 3)), ((2, 1), (0, 1, 1, 0), (1, 2), (2, 3)), ((3, 2), (1, 1), (2, 2), (3, 2)), ((3, 2), (1, 1), (1, 1), (2, 2))]:
        emit(lambda x: nn.max_pool2d(x, sz, st, pd, dl, ceil), f(1, 1, 8, 9))
        for inc in (False, True):
            emit(lambda x: nn.avg_pool2d(x, sz, st, pd, dl, ceil, inc), f(1, 1, 8, 9))
emit(lambda x: nn.avg_pool2d(x, 3, 2, 1, 1, True, False, "NHWC"), f(1, 6, 7, 2))
emit(lambda x: nn.max_pool2d(x, 3, 2, 1, 1, True), i(1, 2, 6, 7, d="int8"))
emit(lambda x: nn.max_pool1d(x, (3,), (2,), (1,)), f(1, 2, 9))
emit(lambda x: nn.avg_pool1d(x, (3,), (2,), (1,)), f(1, 2, 9))
emit(lambda x: nn.max_pool3d(x, (3, 2, 3), (2, 1, 1), (1, 1, 1)), f(1, 1, 4, 5, 4))
emit(lambda x: nn.avg_pool3d(x, (3, 2, 3), (2, 1, 1), (1, 1, 1)), f(1, 1, 4, 5, 4))
for n in (1, 2, 3, 5, 8):
    emit(lambda x: nn.adaptive_avg_pool1d(x, (n,)), f(1, 2, 8))
emit(lambda x: nn.adaptive_avg_pool2d(x, (3, 4)), f(1, 2, 8, 7))
emit(lambda x: nn.adaptive_avg_pool2d(x), f(1, 2, 3, 4))
emit(lambda x: nn.adaptive_avg_pool2d(x, (3, 1), "NHWC"), f(1, 5, 4, 2))
emit(lambda x: nn.adaptive_avg_pool3d(x, (3, 1, 2)), f(1, 1, 5, 4, 3))

# Normalisation and softmax
for ax in (0, 1, -1):
    emit(lambda x: nn.softmax(x, ax), f(3, 4, 5, lo=-5, hi=5))
    emit(lambda x: nn.log_softmax(x, ax), f(3, 4, 5, lo=-5, hi=5))
emit(lambda x: nn.softmax(x, -1), f(3, 9, d="float16"), tol=2e-3)
emit(lambda x: nn.log_softmax(x, -1), f(3, 9, d="float64"))
emit(lambda x, g, b: nn.layer_norm(x, g, b, -1), f(3, 4, 8), f(8), f(8))
emit(lambda x, g, b: nn.layer_norm(x, g, b, [-2, -1], epsilon=1e-3), f(3, 4, 8), f(4, 8), f(4, 8))
emit(lambda x, g, b: nn.layer_norm(x, g, b, [1], center=False, scale=False), f(3, 4, 8), f(4), f(4))
emit(lambda x, g, b: nn.layer_norm(x, g, b, -1), f(3, 8, d="float16"), f(8, d="float16"), f(8, d="float16"), tol=5e-3)
emit(lambda x, g: nn.rms_norm(x, g, -1, 1e-6), f(3, 4, 8), f(8))
emit(lambda x, g: nn.rms_norm(x, g, [1, 2], 1e-6), f(3, 4, 8), f(4, 8))
emit(lambda x, g: nn.rms_norm(x, g, -1), f(3, 8, d="float16"), f(8, d="float16"), tol=5e-3)
emit(lambda x, g, b: nn.group_norm(x, g, b, 2, 1, [2, 3]), f(2, 4, 3, 5), f(4), f(4), tol=1e-4)
emit(lambda x, g, b: nn.group_norm(x, g, b, 2, -1, [1]), f(3, 5, 4), f(4), f(4), tol=1e-4)
emit(lambda x, g, b: nn.instance_norm(x, g, b, 1, [2, 3]), f(2, 4, 3, 5), f(4), f(4), tol=1e-4)
for training in (False, True):
    for center, scale in ((True, True), (True, False), (False, True)):
        emit(lambda x, g, b, m, v: nn.batch_norm(x, g, b, m, v, 1, 1e-3, center, scale, 0.2, training), f(2, 4, 3, 5), f(4), f(4), f(4), f(4, lo=0.1))
emit(lambda x, g, b, m, v: nn.batch_norm(x, g, b, m, v, 3, training=False), f(2, 3, 5, 4), f(4), f(4), f(4), f(4, lo=0.1))

# Attention
q, k, v = f(2, 6, 2, 4), f(2, 5, 2, 4), f(2, 5, 2, 3)
for mask in (None, "TopLeft", "BottomRight"):
    emit(lambda a, b, c: nn.attention(a, b, c, causal_mask=mask), q, k, v)
emit(lambda a, b, c: nn.attention(a, b, c, causal_mask="BottomRight"), f(2, 3, 2, 4), k, v)
emit(lambda a, b, c: nn.attention(a, b, c, scale=tvm.tirx.FloatImm("float32", 0.25)), q, k, v)
emit(lambda a, b, c, d: nn.attention(a, b, c, d), q, k, v, f(2, 2, 6, 5))
emit(lambda a, b, c, d: nn.attention(a, b, c, d, causal_mask="TopLeft"), q, k, v, f(1, 1, 6, 5))
emit(lambda a, b, c: nn.attention(a, b, c), *[x.astype("float16") for x in (q, k, v)], tol=5e-3)


def attention(q, k, v, seen):
    s = np.where(seen, np.einsum("bihd,bjhd->bhij", q, k).astype("float64") * q.shape[-1] ** -0.5, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("bhij,bjhe->bihe", e / e.sum(-1, keepdims=True), v).astype(q.dtype)


r, c = np.arange(6)[:, None], np.arange(6)[None, :]
k, v = f(2, 6, 2, 4), f(2, 6, 2, 4)
emit(lambda a, b, c: nn.attention(a, b, c, causal_mask="TopLeft", window_size=3), q, k, v, want=[attention(q, k, v, (c <= r) & (r - c < 3))])
emit(lambda a, b, c: nn.attention(a, b, c, window_size=2), q, k, v, want=[attention(q, k, v, abs(r - c) < 2)])
sq, sk = np.array([0, 2, 2, 6], "int32"), np.array([0, 3, 4, 8], "int32")
q, k, v = f(1, 6, 2, 4), f(1, 8, 2, 4), f(1, 8, 2, 3)
for mask in (None, "TopLeft", "BottomRight"):
    seen = np.zeros((6, 8), bool)
    for s in range(3):
        for a in range(sq[s], sq[s + 1]):
            for b in range(sk[s], sk[s + 1]):
                shift = {None: 99, "TopLeft": 0, "BottomRight": (sk[s + 1] - sk[s]) - (sq[s + 1] - sq[s])}[mask]
                seen[a, b] = b - sk[s] <= a - sq[s] + shift
    emit(lambda *a: nn.attention_var_len(*a, causal_mask=mask), q, k, v, sq, np.array(4, "int32"), sk, np.array(4, "int32"), want=[attention(q, k, v, seen)])

# Quantisation
x = f(3, 4, lo=-3, hi=3)
for d in ("int8", "uint8", "int16"):
    emit(lambda a, b, c: op.quantize(a, b, c, 1, d), x, f(4, lo=0.01, hi=0.05), i(4, d="int8", lo=0, hi=5))
emit(lambda a, b, c: op.quantize(a, b, c, -1, "int8"), np.arange(-8, 8, dtype="float32") * 0.5, np.array(1, "float32"), np.array(0, "int8"), consts=(1, 2))
emit(lambda a, b, c: op.quantize(a, b, c, -1, "int8"), x, np.array([0.01], "float32"), np.array([3], "int8"))
for d in ("float32", "float16"):
    emit(lambda a, b, c: op.dequantize(a, b, c, 1, d), i(3, 4, d="int8", lo=-128, hi=127), f(4, lo=0.01, hi=0.05), i(4, d="int8", lo=0, hi=5))
    emit(lambda a, b, c: op.dequantize(a, b, c, 0, d), i(3, 4, lo=-100000, hi=100000), f(3, lo=0.1, hi=0.9), i(3, lo=0, hi=5))
emit(lambda a, b, c: op.dequantize(a, b, c, -1, "float32"), i(3, 4, d="uint8", lo=0, hi=255), np.array(0.1, "float32"), np.array(128, "uint8"), consts=(1, 2))

# Losses and gradients
lp, w, one = f(4, 5, lo=-3, hi=0), f(5, lo=0.1), np.array(0.7, "float32")
for red in ("none", "sum", "mean"):
    emit(lambda a, b: nn.nll_loss(a, b, reduction=red), lp, np.array([1, -100, 4, 0], "int64"))
    emit(lambda a, b, c: nn.nll_loss(a, b, c, reduction=red, ignore_index=4), lp, np.array([1, 2, 4, 0], "int64"), w)
    emit(lambda a, b, c: nn.nll_loss(a, b, c, reduction=red), f(2, 5, 3, 2), i(2, 3, 2, lo=0, hi=5), w)
    emit(lambda a, b, c: nn.nll_loss(a, b, c, reduction=red), f(5), np.array(3, "int32"), w)
    g = f(4) if red == "none" else one
    emit(lambda g, a, b: grad.nll_loss_backward(g, a, b, reduction=red), g, lp, np.array([1, 2, 4, 0], "int64"))
    emit(lambda g, a, b, c: grad.nll_loss_backward(g, a, b, c, reduction=red, ignore_index=2), g, lp, np.array([1, 2, 4, 0], "int64"), w)
emit(grad.nll_loss_backward, one, f(2, 5, 3, 2), i(2, 3, 2, lo=0, hi=5), w)
emit(grad.nll_loss_backward, one, f(5), np.array(3, "int32"), w)
emit(nn.cross_entropy_with_logits, f(4, 5), f(4, 5))
emit(nn.cross_entropy_with_logits, f(5), f(5))
emit(grad.no_grad, f(3, 4))
emit(grad.start_checkpoint, f(3, 4))
emit(grad.end_checkpoint, f(3, 4))
for fn in (grad.max_pool2d_backward, grad.avg_pool2d_backward):
    for inc in (False, True):
        emit(lambda a, b: fn(a, b, (2, 2), (2, 2), (0, 1, 1, 0), count_include_pad=inc), f(1, 1, 4, 4), f(1, 1, 8, 7))
        emit(lambda a, b: fn(a, b, (3, 3), (1, 2), (1, 1, 1, 1), count_include_pad=inc), f(1, 1, 8, 4), f(1, 1, 8, 7))
        emit(lambda a, b: fn(a, b, (3, 3), (2, 2), (0, 0, 0, 0), ceil_mode=True, count_include_pad=inc), f(1, 1, 4, 3), f(1, 1, 8, 7))
emit(lambda g, x, i: grad.take_backward(g, x, i, 1), f(3, 5, 2), f(3, 4, 2), np.array([0, 3, 3, 1, 0], "int32"))
emit(grad.take_backward, f(5), f(4), np.array([0, 3, 3, 1, 0], "int64"))

# Images
x, x3 = f(1, 1, 4, 5), f(1, 1, 2, 3, 3)
for mode in ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "tf_half_pixel_for_nn"):
    for size in ((8, 10), (3, 4)):
        for rounding in ("", "round", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
            emit(lambda a: image.resize2d(a, size, method="nearest_neighbor", coordinate_transformation_mode=mode, rounding_method=rounding), x)
        emit(lambda a: image.resize2d(a, size, method="linear", coordinate_transformation_mode=mode), x)
        emit(lambda a: image.resize2d(a, size, method="cubic", coordinate_transformation_mode=mode), x)
emit(lambda a: image.resize2d(a, (6, 7), method="cubic", cubic_exclude=1, cubic_alpha=-0.5), x)
for method in ("nearest_neighbor", "linear", "cubic"):
    emit(lambda a: image.resize2d(a, (7, 9), roi=(0.1, -0.2, 0.9, 1.3), method=method, coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=2.5), x)
    emit(lambda a: image.resize3d(a, (3, 4, 5), method=method), x3)
    emit(lambda a: image.resize3d(a, (3, 2, 4), method=method, coordinate_transformation_mode="align_corners"), x3)
emit(lambda a: image.resize2d(a, (7, 9), layout="NHWC"), f(1, 3, 4, 2))
emit(lambda a: image.resize2d(a, (7, 9)), i(1, 1, 4, 5, d="uint8", lo=0, hi=255))
emit(lambda a: image.resize2d(a, (7, 9)), f(1, 1, 4, 5, d="float16"), tol=2e-3)
g, g3 = f(1, 2, 4, 3, lo=-1.6, hi=1.6), f(1, 3, 2, 4, 3, lo=-1.6, hi=1.6)
for method in ("nearest", "bilinear", "bicubic"):
    for pad in ("zeros", "border", "reflection"):
        for corners in (False, True):
            emit(lambda a, b: image.grid_sample(a, b, method, "NCHW", pad, corners), x, g, tol=2e-5)
            if method != "bicubic":
                emit(lambda a, b: image.grid_sample(a, b, method, "NCDHW", pad, corners), x3, g3, tol=2e-5)
for corners in (False, True):
    emit(lambda a: image.affine_grid(a, (4, 5), corners), f(2, 2, 3))
    emit(lambda a: image.affine_grid(a, (3, 4, 5), corners), f(2, 3, 4))

# Regions and boxes
x = f(2, 2, 7, 6)
rois = np.array([[0, 1, 1, 6, 5], [1, 0.5, 2.2, 7.9, 8.3], [0, -2, -3, 3, 4], [1, 5, 5, 5.2, 5.1], [0, 3, 3, 20, 20]], "float32")
for aligned in (False, True):
    for samples in (-1, 2):
        for mode in ("avg", "max"):
            emit(lambda a, b: vision.roi_align(a, b, (3, 2), 0.9, samples, aligned, "NCHW", mode), x, rois, tol=2e-5)
emit(lambda a, b: vision.roi_align(a, b, (3, 2), 0.9, 2, True, "NHWC"), f(2, 7, 6, 3), rois, tol=2e-5)
emit(lambda a, b: vision.roi_pool(a, b, (3, 2), 0.9), x, rois)
emit(lambda a, b: vision.roi_pool(a, b, 2, 1.0), x, rois)
for clip, th, bg, soft in [(False, 0.0, True, True), (True, 0.3, False, True), (True, 0.1, True, False)]:
    emit(lambda a, b, c: vision.multibox_transform_loc(a, b, c, clip, th, (0.1, 0.1, 0.2, 0.2), bg, soft), f(2, 3, 5), f(2, 20), f(1, 5, 4))
d = f(2, 9, 6, lo=0)
d[:, :, 0] = i(2, 9, lo=-1, hi=3)
d[:, :, 4:] = d[:, :, 2:4] + f(2, 9, 2, lo=0.2, hi=0.8)
emit(lambda a: vision.get_valid_counts(a, 0.3), d)
emit(lambda a: vision.get_valid_counts(a, 0.3, -1, 1), d)
count, index = np.array([9, 6], "int32"), np.stack([np.arange(9), np.arange(9)[::-1]]).astype("int32") + 10
for kw in [dict(), dict(iou_threshold=0.2), dict(iou_threshold=0.2, force_suppress=True), dict(iou_threshold=0.1, top_k=4), dict(iou_threshold=0.3, max_output_size=2), dict(iou_threshold=0.3, id_index=-1), dict(soft_nms_sigma=0.5, score_threshold=0.1), dict(soft_nms_sigma=0.3, score_threshold=0.1, iou_threshold=0.4, force_suppress=True, max_output_size=3)]:
    emit(lambda a, b, c: vision.non_max_suppression(a, b, c, **kw), d, count, index)
    emit(lambda a, b, c: vision.non_max_suppression(a, b, c, return_indices=False, invalid_to_bottom=len(kw) == 1, **kw), d, count, index)
boxes, scores = d[:, :, 2:].copy(), f(2, 3, 9, lo=-0.2)
for most, iou, least in [(3, 0.5, 0.1), (9, 0.2, 0.0), (2, 0.1, 0.5), (1, 0.5, 2.0)]:
    limits = [np.array(most, "int64"), np.array(iou, "float32"), np.array(least, "float32")]
    consts = [relax.const(a, str(a.dtype)) for a in limits]
    bb = relax.BlockBuilder()
    params = [relax.Var("b", R.Tensor(boxes.shape, "float32")), relax.Var("s", R.Tensor(scores.shape, "float32"))]
    with bb.function("main", params):
        bb.emit_func_output(bb.emit(vision.all_class_non_max_suppression(*params, *consts)))
    rows, total = run(bb.get(), [boxes, scores])
    # TVM cuts the rows to their number, though its own struct info says otherwise.
    padded = np.zeros((54, 3), "int64")
    padded[: len(rows)] = rows
    emit(vision.all_class_non_max_suppression, boxes, scores, *limits, want=[padded, total])
    emit(lambda *a: vision.all_class_non_max_suppression(*a, "tensorflow"), boxes, scores, *limits, consts=(2, 3, 4))
