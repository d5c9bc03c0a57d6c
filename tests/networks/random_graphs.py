#!/usr/bin/env python3
"""Write random networks, compile each for some processor and number of threads, and compare with onnxruntime.

    random_graphs.py RELAX_AOT [--seconds S] [--first SEED] [--count N] [--keep DIR] [--cpus CPU,..]

A network is made of what real ones are made of, in random order, with sizes that fill no vector: convolutions of all
kinds, pools, norms, activations, branches that join, enlarged and shuffled pictures, attention, recurrences; some are
in bytes. Batches, rows and columns are open in some; a library of those is called with several sizes. Each seed is one network,
one processor and one number of threads: what fails is found again by its seed. Floats must agree to 1e-3 of the largest
value of an output, and several threads compute the same bits as one. Of networks in bytes few results may differ, by few steps: a sum that lies between two of them is
rounded either way, and goes on through the layers behind.

The models that fail are kept in DIR (target/random/ by default). Exits with 1 when there are any. Needs onnx, onnxruntime, numpy.
"""
import argparse
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples/python"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from compare import Wrong, call, difference, reference
from relax_model import Model, Refused

TOLERANCE = 1e-3
LEAST = 0.01
# Of networks in bytes: the longest step, so many of which results may differ by, and the part of them that may.
STEP = 0.033
STEPS = 3
SELDOM = 0.1
# Elements of a tensor, at most.
LARGEST = 1 << 18
TIMEOUT = 120


class Graph:
    """A network in the making: what each tensor is named, and its shape for the sizes that the network is made with."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.weights, self.shapes = [], [], {}
        self.kind, self.quantised, self.scales = None, set(), {}

    def chance(self, p):
        return self.rng.random() < p

    def pick(self, *options):
        return options[self.rng.integers(len(options))]

    def constant(self, values, dtype="float32"):
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def weight(self, *shape, spread=1.0):
        return self.constant(self.rng.standard_normal(shape) * spread)

    def node(self, operator, inputs, shape=None, domain="", **attributes):
        """A node of one result; its shape is that of the first argument where none is given."""
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], domain=domain, **attributes))
        self.shapes[name] = tuple(self.shapes[inputs[0]] if shape is None else shape)
        return name


def along(size, kernel, stride, dilation, before, after):
    return (size + before + after - dilation * (kernel - 1) - 1) // stride + 1


def windowed(g, x, kernels=(1, 2, 3, 3, 3, 5, 7), dilated=True):
    """Random attributes of a window over the picture `x`, and the picture's size after it; None where it does not fit."""
    _, _, *size = g.shapes[x]
    square = g.chance(0.8)
    kernel = [int(g.pick(*kernels))] * 2 if square else [int(g.pick(*kernels)) for _ in range(2)]
    stride = [int(g.pick(1, 1, 1, 2, 3))] * 2 if g.chance(0.9) else [int(g.pick(1, 2)), int(g.pick(1, 2))]
    dilation = [int(g.pick(1, 1, 1, 1, 2, 3)) if dilated else 1] * 2
    same = [d * (k - 1) // 2 for k, d in zip(kernel, dilation)]
    pads = same + same if g.chance(0.8) else [int(g.rng.integers(0, max(k, 1))) for k in kernel + kernel]
    after = [along(size[i], kernel[i], stride[i], dilation[i], pads[i], pads[i + 2]) for i in range(2)]
    if min(after) < 1:
        return None
    return dict(kernel_shape=kernel, strides=stride, dilations=dilation, pads=pads), after


def conv(g, x, channels=None):
    n, c, *_ = g.shapes[x]
    window = windowed(g, x)
    if window is None:
        return None
    attributes, after = window
    groups = int(g.pick(1, 1, 1, c, *[d for d in (2, 3, 4) if c % d == 0]))
    few, many = (1, 3, 8, 12, 16, 17, 24, 32, 40, 64), (96, 128, 160, 256, 384)
    out = channels or int(g.pick(*few, *(many if after[0] * after[1] <= 200 else ()))) * (groups if groups < c else 1)
    if groups == c:
        out = c * int(g.pick(1, 1, 1, 2))
    if n * out * after[0] * after[1] > LARGEST:
        return None
    inside = c // groups * int(np.prod(attributes["kernel_shape"]))
    w = g.weight(out, c // groups, *attributes["kernel_shape"], spread=(2 / inside) ** 0.5)
    bias = [g.weight(out, spread=0.1)] if g.chance(0.6) else []
    return g.node("Conv", [x, w, *bias], (n, out, *after), group=groups, **attributes)


def deconv(g, x):
    n, c, h, w = g.shapes[x]
    k, s = int(g.pick(2, 3, 4)), int(g.pick(1, 2, 3))
    p = int(g.rng.integers(0, k // 2 + 1))
    more = int(g.rng.integers(0, s))
    after = [(d - 1) * s - 2 * p + k + more for d in (h, w)]
    out = int(g.pick(1, 3, 8, 16, 20))
    if min(after) < 1 or n * out * after[0] * after[1] > LARGEST:
        return None
    weight = g.weight(c, out, k, k, spread=(2 / (c * k * k)) ** 0.5)
    pads = dict(pads=[p] * 4, strides=[s, s], output_padding=[more, more])
    return g.node("ConvTranspose", [x, weight], (n, out, *after), kernel_shape=[k, k], **pads)


def batch_norm(g, x):
    c = g.shapes[x][1]
    rest = [g.weight(c, spread=0.3), g.weight(c, spread=0.3)]
    scale, variance = (g.constant(g.rng.uniform(0.5, 1.5, c)) for _ in range(2))
    return g.node("BatchNormalization", [x, scale, *rest, variance])


def activation(g, x):
    kind = g.pick("Relu", "Relu", "relu6", "silu", "gelu", "HardSwish", "LeakyRelu", "PRelu", "Elu", "Sigmoid", "Tanh",
                  "Softplus", "Mish", "HardSigmoid", "Selu", "Softsign", "Erf", "clamp")
    if kind == "relu6":
        return g.node("Clip", [x, g.constant(0.0), g.constant(6.0)])
    if kind == "clamp":
        return g.node("Min", [g.node("Max", [x, g.constant(-0.7)]), g.constant(0.9)])
    if kind == "silu":
        return g.node("Mul", [x, g.node("Sigmoid", [x])])
    if kind == "gelu":
        inner = g.node("Erf", [g.node("Div", [x, g.constant(2 ** 0.5)])])
        return g.node("Mul", [g.node("Mul", [x, g.node("Add", [inner, g.constant(1.0)])]), g.constant(0.5)])
    if kind == "PRelu":
        shape = g.shapes[x]
        slope = g.weight(shape[1], *[1] * (len(shape) - 2)) if len(shape) == 4 else g.weight(shape[-1])
        return g.node("PRelu", [x, slope])
    return g.node(kind, [x])


def pool(g, x):
    n, c, *_ = g.shapes[x]
    window = windowed(g, x, kernels=(2, 3, 3, 5), dilated=False)
    if window is None:
        return None
    attributes, after = window
    attributes.pop("dilations")
    if any(p >= k for p, k in zip(attributes["pads"], attributes["kernel_shape"] * 2)):
        return None
    if g.chance(0.5):
        return g.node("MaxPool", [x], (n, c, *after), **attributes)
    return g.node("AveragePool", [x], (n, c, *after), count_include_pad=int(g.chance(0.5)), **attributes)


def join(g, x, live):
    """`x` with another tensor that fits it, or with what can be made to fit."""
    shape = g.shapes[x]
    same = [t for t in live if g.shapes[t] == shape and t != x]
    if same and g.chance(0.8):
        return g.node(g.pick("Add", "Add", "Mul", "Sub", "Max"), [x, g.pick(*same)])
    beside = [t for t in live if len(g.shapes[t]) == len(shape) == 4 and g.shapes[t][2:] == shape[2:] and t != x]
    if beside:
        parts = [x, g.pick(*beside)] if g.chance(0.7) else [g.pick(*beside), x]
        channels = sum(g.shapes[p][1] for p in parts)
        if channels <= 160:
            return g.node("Concat", parts, (shape[0], channels, *shape[2:]), axis=1)
    return None


def squeeze_excite(g, x):
    n, c, *_ = g.shapes[x]
    if g.chance(0.5):
        mean = g.node("GlobalAveragePool", [x], (n, c, 1, 1))
    else:
        mean = g.node("ReduceMean", [x, g.constant([2, 3], "int64")], (n, c, 1, 1), keepdims=1)
    few = max(c // 4, 1)
    down = g.node("Conv", [mean, g.weight(few, c, 1, 1, spread=c ** -0.5), g.weight(few)], (n, few, 1, 1))
    up = g.node("Relu", [down])
    up = g.node("Conv", [up, g.weight(c, few, 1, 1, spread=few ** -0.5)], (n, c, 1, 1))
    return g.node("Mul", [x, g.node(g.pick("Sigmoid", "HardSigmoid"), [up])])


def split(g, x):
    """A part of the channels, or two that are put together the other way round."""
    shape = g.shapes[x]
    c = shape[1]
    if c < 2:
        return None
    at = int(g.rng.integers(1, c))
    axes = g.constant([1], "int64")
    ends = [(0, at), (at, c)]
    parts = []
    for a, b in ends:
        ints = [g.constant([v], "int64") for v in (a, b)]
        parts.append(g.node("Slice", [x, *ints, axes], (shape[0], b - a, *shape[2:])))
    if g.chance(0.5):
        return g.pick(*parts)
    left = activation(g, parts[0]) if g.chance(0.5) else parts[0]
    return g.node("Concat", [parts[1], left], shape, axis=1)


def shuffle(g, x):
    n, c, h, w = g.shapes[x]
    groups = [d for d in (2, 3, 4) if c % d == 0]
    if not groups or not g.known:
        return None
    d = int(g.pick(*groups))
    apart = g.node("Reshape", [x, g.constant([n, d, c // d, h, w], "int64")], (n, d, c // d, h, w))
    turned = g.node("Transpose", [apart], (n, c // d, d, h, w), perm=[0, 2, 1, 3, 4])
    return g.node("Reshape", [turned, g.constant([n, c, h, w], "int64")], (n, c, h, w))


def enlarge(g, x):
    n, c, h, w = g.shapes[x]
    if n * c * h * w * 4 > LARGEST:
        return None
    if c % 4 == 0 and g.chance(0.3):
        mode = g.pick("DCR", "CRD")
        return g.node("DepthToSpace", [x], (n, c // 4, 2 * h, 2 * w), blocksize=2, mode=mode)
    attributes = g.pick(
        dict(mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        dict(mode="linear", coordinate_transformation_mode="half_pixel"),
        dict(mode="linear", coordinate_transformation_mode="align_corners"),
    )
    return g.node("Resize", [x, "", g.constant([1, 1, 2, 2])], (n, c, 2 * h, 2 * w), **attributes)


def pad(g, x):
    n, c, h, w = g.shapes[x]
    mode = g.pick("constant", "reflect", "edge")
    t, l, b, r = (int(v) for v in g.rng.integers(0, min(h, w, 3), 4))
    if n * c * (h + t + b) * (w + l + r) > LARGEST:
        return None
    pads = g.constant([0, 0, t, l, 0, 0, b, r], "int64")
    return g.node("Pad", [x, pads], (n, c, h + t + b, w + l + r), mode=mode)


def picture_norm(g, x):
    n, c, h, w = g.shapes[x]
    if h * w < 4:
        return None
    if g.chance(0.5):
        return g.node("InstanceNormalization", [x, g.weight(c), g.weight(c)], epsilon=1e-3)
    groups = int(g.pick(1, *[d for d in (2, 3, 4, 8) if c % d == 0]))
    return g.node("GroupNormalization", [x, g.weight(c), g.weight(c)], num_groups=groups, epsilon=1e-3)


def around(g, t, spread):
    """`t` quantised and dequantised."""
    point = 0 if g.kind == "int8" else 128
    # No sum of multiples of two of them lies between two steps.
    scale = g.constant(spread / 100 * g.rng.uniform(0.9, 1.1))
    zero = g.constant(point + int(g.rng.integers(-9, 10)), g.kind)
    return pair(g, t, scale, zero)


def pair(g, t, scale, zero):
    q = g.node("QuantizeLinear", [t, scale, zero])
    d = g.node("DequantizeLinear", [q, scale, zero])
    g.scales[d] = scale, zero
    return d


def quantised_function(g, x):
    """A function of one tensor, whose steps may be quantised each."""
    step = (lambda t, spread: around(g, t, spread)) if g.chance(0.7) else (lambda t, _: t)
    kind = g.pick("Sigmoid", "Tanh", "silu", "hard swish", "gelu")
    if kind == "silu":
        y = g.node("Mul", [x, step(g.node("Sigmoid", [x]), 1.0)])
    elif kind == "hard swish":
        y = g.node("Mul", [x, step(g.node("HardSigmoid", [x], alpha=1 / 6, beta=0.5), 1.0)])
    elif kind == "gelu":
        error = step(g.node("Erf", [g.node("Div", [x, g.constant(2 ** 0.5)])]), 1.0)
        y = g.node("Mul", [step(g.node("Mul", [x, step(g.node("Add", [error, g.constant(1.0)]), 2.0)]), 3.0), g.constant(0.5)])
    else:
        y = g.node(kind, [x])
    return around(g, y, 2.0)


def quantised_rows(g, x):
    """What is taken off the channels of a place, with pairs behind each move."""
    if x not in g.scales:
        return None
    n, c, h, w = g.shapes[x]
    y = pair(g, g.node("Transpose", [x], (n, h, w, c), perm=[0, 2, 3, 1]), *g.scales[x])
    mean = g.node("ReduceMean", [y, g.constant([-1], "int64")], (n, h, w, 1), keepdims=1)
    y = around(g, g.node("Sub", [y, mean]), 2.0)
    return pair(g, g.node("Transpose", [y], (n, c, h, w), perm=[0, 3, 1, 2]), *g.scales[y])


def quantised_join(g, x):
    n, c, *size = g.shapes[x]
    fits = [t for t in g.quantised if (g.shapes[t][0], *g.shapes[t][2:]) == (n, *size) and g.shapes[t][1] + c <= 160]
    if not fits:
        return None
    other = g.pick(*sorted(fits))
    return around(g, g.node("Concat", [x, other], (n, c + g.shapes[other][1], *size), axis=1), 2.0)


def quantised_conv(g, x):
    n, c, *_ = g.shapes[x]
    window = windowed(g, x)
    if window is None:
        return None
    attributes, after = window
    groups = int(g.pick(1, 1, c))
    many = (64, 96, 160) if after[0] * after[1] <= 200 else ()
    out = c if groups == c else int(g.pick(3, 8, 16, 20, 32, *many))
    if n * out * after[0] * after[1] > LARGEST:
        return None
    kernel = attributes["kernel_shape"]
    inside = c // groups * int(np.prod(kernel))
    w = g.constant(g.rng.integers(-127, 128, (out, c // groups, *kernel)), "int8")
    each = g.chance(0.5)
    spread = 1 / (73 * inside ** 0.5)
    scale = g.constant(g.rng.uniform(0.5, 1.5, out) * spread) if each else g.constant(spread)
    zero = g.constant(np.zeros(out if each else ()), "int8")
    g.shapes[w] = (out, c // groups, *kernel)
    w = g.node("DequantizeLinear", [w, scale, zero], **(dict(axis=0) if each else {}))
    bias = [g.weight(out, spread=0.3)] if g.chance(0.5) else []
    y = g.node("Conv", [x, w, *bias], (n, out, *after), group=groups, **attributes)
    if g.chance(0.5):
        y = g.node("Relu", [y]) if g.chance(0.7) else g.node("Clip", [y, g.constant(0.0), g.constant(6.0)])
    return around(g, y, 2.0)


def quantised_sum(g, x):
    same = [t for t in g.shapes if g.shapes[t] == g.shapes[x] and t in g.quantised and t != x]
    return around(g, g.node("Add", [x, g.pick(*same)]), 3.0) if same else None


def quantised_pool(g, x):
    y = pool(g, x)
    return None if y is None else around(g, y, 2.0)


def quantised_mean(g, x):
    n, c, *_ = g.shapes[x]
    return around(g, g.node("GlobalAveragePool", [x], (n, c, 1, 1)), 1.0)


def tokens(g, x):
    """A picture as a sequence: batch, places, channels."""
    n, c, h, w = g.shapes[x]
    flat = g.node("Reshape", [x, g.constant([0, c, -1], "int64")], (n, c, h * w))
    return g.node("Transpose", [flat], (n, h * w, c), perm=[0, 2, 1])


def dense(g, x, out=None):
    *rows, k = g.shapes[x]
    many = (192, 384, 768, 1100) if np.prod(rows) <= 200 else ()
    out = out or int(g.pick(5, 16, 24, 33, 64, 96, *many))
    y = g.node("MatMul", [x, g.weight(k, out, spread=k ** -0.5)], (*rows, out))
    return g.node("Add", [y, g.weight(out, spread=0.1)]) if g.chance(0.6) else y


def layer_norm(g, x):
    k = g.shapes[x][-1]
    if k < 4:
        return None
    if g.chance(0.5):
        return g.node("LayerNormalization", [x, g.weight(k), g.weight(k)], axis=-1, epsilon=1e-3)
    axes = g.constant([-1], "int64")
    shape = (*g.shapes[x][:-1], 1)
    less = g.node("Sub", [x, g.node("ReduceMean", [x, axes], shape)])
    variance = g.node("ReduceMean", [g.node("Mul", [less, less]), axes], shape)
    deviation = g.node("Sqrt", [g.node("Add", [variance, g.constant(1e-3)])])
    return g.node("Mul", [g.node("Div", [less, deviation], g.shapes[x]), g.weight(k)])


def attention(g, x):
    n, t, c = g.shapes[x]
    heads, each = int(g.pick(1, 2, 3)), int(g.pick(4, 8, 16, 20))
    if n * heads * t * t > LARGEST:
        return None
    apart = g.constant([0, -1, heads, each], "int64")

    def head(perm, shape):
        wide = g.node("Reshape", [dense(g, x, heads * each), apart], (n, t, heads, each))
        return g.node("Transpose", [wide], shape, perm=perm)

    q, v = (head([0, 2, 1, 3], (n, heads, t, each)) for _ in range(2))
    k = head([0, 2, 3, 1], (n, heads, each, t))
    scores = g.node("MatMul", [q, k], (n, heads, t, t))
    scores = g.node("Mul", [scores, g.constant(each ** -0.5)])
    sums = g.node("MatMul", [g.node("Softmax", [scores], axis=-1), v], (n, heads, t, each))
    back = g.node("Transpose", [sums], (n, t, heads, each), perm=[0, 2, 1, 3])
    back = g.node("Reshape", [back, g.constant([0, -1, heads * each], "int64")], (n, t, heads * each))
    y = dense(g, back, c)
    return g.node("Add", [x, y]) if g.chance(0.7) else y


def recurrence(g, x):
    n, t, c = g.shapes[x]
    if t > 60:
        return None
    kind, hidden, both = g.pick(("LSTM", 4), ("GRU", 3), ("RNN", 1)), int(g.pick(4, 8, 20, 32)), g.chance(0.3)
    name, gates = kind
    directions = 2 if both else 1
    order = g.node("Transpose", [x], (t, n, c), perm=[1, 0, 2])
    w = g.weight(directions, gates * hidden, c, spread=c ** -0.5)
    r = g.weight(directions, gates * hidden, hidden, spread=hidden ** -0.5)
    b = g.weight(directions, 2 * gates * hidden, spread=0.1)
    more = dict(linear_before_reset=int(g.chance(0.5))) if name == "GRU" else {}
    direction = "bidirectional" if both else g.pick("forward", "reverse")
    y = g.node(name, [order, w, r, b], (t, directions, n, hidden), hidden_size=hidden, direction=direction, **more)
    y = g.node("Transpose", [y], (n, t, directions, hidden), perm=[2, 0, 1, 3])
    return g.node("Reshape", [y, g.constant([0, -1, directions * hidden], "int64")], (n, t, directions * hidden))


def reduction(g, x):
    axes = [[-1], [1]] if len(g.shapes[x]) == 3 else [[1], [2, 3], [3], [2]]
    picked = g.pick(*axes)
    shape = list(g.shapes[x])
    for a in picked:
        shape[a] = 1
    kind = g.pick("ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2")
    r = g.node(kind, [x, g.constant(picked, "int64")], shape, keepdims=1)
    return g.node(g.pick("Add", "Sub"), [x, r])


def softmax(g, x):
    return g.node("Softmax", [x], axis=int(g.pick(1, -1)))


def causal_conv(g, x):
    n, t, c = g.shapes[x]
    k, d, s = int(g.pick(1, 3, 5, 8)), int(g.pick(1, 1, 2, 4)), int(g.pick(1, 1, 1, 2, 4))
    back, front = d * (k - 1), int(g.pick(0, 1))
    after = along(t, k, s, d, back, front)
    groups = int(g.pick(1, 1, c))
    out = c if groups == c else int(g.pick(8, 16, 24, 33))
    if after < 1:
        return None
    lanes = g.node("Transpose", [x], (n, c, t), perm=[0, 2, 1])
    w = g.weight(out, c // groups, k, spread=(c // groups * k) ** -0.5)
    y = g.node("Conv", [lanes, w], (n, out, after), kernel_shape=[k], dilations=[d], strides=[s], pads=[back, front],
               group=groups)
    return g.node("Transpose", [y], (n, after, out), perm=[0, 2, 1])


PICTURES = [conv] * 8 + [activation] * 4 + [batch_norm] * 3 + [pool] * 2 + [squeeze_excite, split, shuffle, enlarge, pad,
            picture_norm, deconv, reduction, softmax]
BYTES = [quantised_conv] * 8 + [quantised_sum] * 3 + [quantised_function] * 3 + [quantised_rows, quantised_join,
         quantised_pool, quantised_mean, split, enlarge]
SEQUENCES = [dense] * 4 + [layer_norm] * 2 + [attention] * 2 + [activation] * 2 + [recurrence, softmax, reduction,
             causal_conv, causal_conv]


def make(seed):
    """The network of a seed: the model, and arguments of one size or several."""
    g = Graph(seed)
    g.known = g.chance(0.6)
    n, c = int(g.pick(1, 1, 1, 2, 3)), int(g.pick(1, 3, 3, 8, 16, 20, 32))
    h, w = int(g.pick(7, 14, 19, 28, 33)), int(g.pick(7, 14, 17, 28, 40))
    names = ["n", None, "h", "w"]
    g.shapes["x"] = (n, c, h, w)
    if g.chance(0.2):
        names = ["n", "t", None]
        g.shapes["x"] = (n, int(g.pick(1, 7, 16, 33, 50, 128)), int(g.pick(4, 16, 20, 64, 96)))
    live = ["x"]
    if len(names) == 4 and g.chance(0.2):
        g.kind = g.pick("int8", "uint8")
        live.append(around(g, "x", 3.0))
        g.quantised.add(live[-1])
    for _ in range(int(g.rng.integers(3, 14))):
        x = live[-1] if g.chance(0.85) else g.pick(*live[-4:])
        fitting = PICTURES if len(g.shapes[x]) == 4 else SEQUENCES
        if g.kind:
            y = g.pick(*BYTES)(g, x if x in g.quantised else live[-1])
            g.quantised |= {y} - {None}
        elif len(g.shapes[x]) == 4 and g.chance(0.06):
            y = tokens(g, x)
        elif len(live) > 1 and g.chance(0.25):
            y = join(g, x, live[-6:])
        else:
            y = g.pick(*fitting)(g, x)
        if y is not None:
            live.append(y)
    ends = [live[-1]] + [t for t in live[1:-1] if g.chance(0.15)]
    dims = list(g.shapes["x"])
    if not g.known:
        dims = [name if name and g.chance(0.7) else d for name, d in zip(names, dims)]
    used = {i for node in g.nodes for i in node.input} | set(ends)
    outputs = [helper.make_tensor_value_info(t, TensorProto.FLOAT, [None] * len(g.shapes[t])) for t in ends if t != "x"]
    graph = helper.make_graph(
        g.nodes, "random", [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)], outputs,
        [w for w in g.weights if w.name in used])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    sizes = [g.shapes["x"]]
    if not g.known:
        changes = [lambda s: s + g.rng.integers(1, 9), lambda s: 2 * s + 1]
        # Of a pool's window that is larger than its data onnxruntime rounds the negative quotient up.
        if not any(node.op_type in ("MaxPool", "AveragePool") for node in g.nodes):
            changes.append(lambda _: g.rng.integers(1, 7))
        for change in changes:
            sizes.append(tuple(d if isinstance(d, int) else int(change(s)) for d, s in zip(dims, sizes[0])))
    feeds = [{"x": g.rng.standard_normal(s).astype("float32")} for s in sizes]
    return model, feeds, g


def more_options(seed, model, shape):
    """Other options of the compiler that change the code, for some of the seeds."""
    rng = np.random.default_rng([seed, 1])
    out = []
    for chance, option in [(0.1, ["-O", "3"]), (0.05, ["-O", "1"]), (0.05, ["-O", "0"])]:
        if rng.random() < chance and not out:
            out = option
    if rng.random() < 0.1:
        out = [*out, "--fp", "strict"]
    if rng.random() < 0.1:
        out = [*out, "--size-budget", "1.0"]
    dims = [d.dim_param for d in model.graph.input[0].type.tensor_type.shape.dim]
    if rng.random() < 0.2 and any(dims):
        likely = [["--likely", f"{name}={size}"] for name, size in zip(dims, shape) if name]
        out = [*out, *likely[rng.integers(len(likely))]]
    return out


def runs(cpu):
    """Whether this machine has what kernels for such a processor need."""
    try:
        flags = pathlib.Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return True
    return cpu != "x86-64-v4" or {"avx512vl", "avx512dq"} <= set(flags)


def check(compiler, seed, cpus, folder):
    model, feeds, g = make(seed)
    if not model.graph.output:
        return "nothing to compute"
    path = folder / f"random{seed}.onnx"
    onnx.save(model, path)
    session = reference(str(path))
    cpu, threads = cpus[seed % len(cpus)], 1 + seed // len(cpus) % 3
    options = ["--target-cpu", cpu, *more_options(seed, model, feeds[0]["x"].shape)]
    what = " ".join(options)

    plain = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "LD_PRELOAD"))}

    def compiled(threads):
        library = folder / f"random{seed}.{threads}.so"
        command = [compiler, path, "-o", library, *options, "--threads", str(threads)]
        done = subprocess.run(command, capture_output=True, text=True, env=plain)
        if done.returncode:
            raise Wrong(f"{what}: exit {done.returncode}: {done.stderr.strip()[:400]}")
        return Model(str(library))

    library, alone = compiled(threads), compiled(1) if threads > 1 and seed % 2 else None
    names, refused = [o.name for o in session.get_outputs()], 0
    for x in feeds:
        try:
            wanted = session.run(None, x)
        except Exception:
            # A size that the network does not have.
            refused += 1
            continue
        try:
            results = call(library, x)
        except Refused as e:
            # Sizes that meet where one of them happens to be 1.
            if x is not feeds[0] and "do not broadcast" in str(e):
                refused += 1
                continue
            raise Wrong(f"{what}, x {list(x['x'].shape)}: {e}")
        if alone and any(a.tobytes() != b.tobytes() for a, b in zip(results, call(alone, x))):
            raise Wrong(f"{what}, x {list(x['x'].shape)}: {threads} threads do not compute what one does")
        for name, want, got in zip(names, wanted, results):
            off = difference(want, got)
            if g.kind:
                apart = np.abs(want - got)
                seldom = max(SELDOM * apart.size, 2)
                if apart.size == 0 or apart.max() <= STEPS * STEP and np.sum(apart > STEP / 10) <= seldom:
                    continue
            # What is left where large values took each other away is noise.
            largest = float(np.abs(want).max()) if want.size else 0.0
            if off * min(largest / LEAST, 1.0) > TOLERANCE:
                raise Wrong(f"{what}, {threads} threads, x {list(x['x'].shape)}: {name} {list(want.shape)} differs by {off:.1e}")
    return "no size" if refused == len(feeds) else None


def in_child(run):
    """Runs `run` in a process of its own: what it returned, or what it raised, or died of."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(TIMEOUT)
        try:
            text = run()
            text = f"ok {text}" if text else "ok"
        except Wrong as e:
            text = f"wrong {e}"
        except Exception as e:
            text = f"wrong {type(e).__name__}: {e}"
        os.write(write, text.encode()[:4000])
        os._exit(0)
    os.close(write)
    text = os.fdopen(read).read()
    _, status = os.waitpid(child, 0)
    return text or f"wrong the process ended by signal {status & 127}"


def guarded():
    """Starts again with memory that is filled with garbage when it is taken, and whose ends are looked at when it is freed."""
    wanted = {"LD_PRELOAD": "libc_malloc_debug.so.0", "MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "165"}
    if "MALLOC_PERTURB_" not in os.environ:
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | wanted)


def main():
    guarded()
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("compiler", type=pathlib.Path)
    a.add_argument("--seconds", type=float, default=300)
    a.add_argument("--first", type=int, default=0)
    a.add_argument("--count", type=int, default=1 << 40)
    a.add_argument("--keep", type=pathlib.Path, default=pathlib.Path("target/random"))
    a.add_argument("--cpus", default="native,x86-64-v3,auto,x86-64-v4,x86-64-v2")
    a = a.parse_args()
    compiler, cpus = a.compiler.resolve(), [cpu for cpu in a.cpus.split(",") if runs(cpu)]
    end, seed, failed, left = time.monotonic() + a.seconds, a.first, 0, 0
    while time.monotonic() < end and seed < a.first + a.count:
        with tempfile.TemporaryDirectory() as tmp:
            tmp = pathlib.Path(tmp)
            text = in_child(lambda: check(compiler, seed, cpus, tmp))
            left += text.startswith("ok ")
            if text.startswith("wrong"):
                failed += 1
                print(f"seed {seed}: {text[6:]}", flush=True)
                a.keep.mkdir(parents=True, exist_ok=True)
                for f in tmp.glob("*.onnx"):
                    (a.keep / f.name).write_bytes(f.read_bytes())
        seed += 1
    print(f"{seed - a.first} networks, {left} left out, {failed} failed")
    sys.exit(failed > 0 or seed == a.first)


if __name__ == "__main__":
    main()
