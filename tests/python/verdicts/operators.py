"""Modules of one or two operator calls, right and wrong, over static, symbolic and unknown shapes."""

HEADER = "# from tvm.script import ir as I, relax as R, tirx as T\n@I.ir_module\nclass Module:\n"
FLOATS = ["float32"] * 12 + ["float64", "float16", "int32"]
INTS = ["int32", "int32", "int64", "int8", "uint8"]
ANY = FLOATS + INTS + ["bool"]
SYMBOLS = ["n", "m", "k"]


class Gen:
    """Declares parameters on demand; now and then it declares a wrong one."""

    def __init__(self, rng, wrong):
        self.rng, self.wrong, self.params, self.symbols = rng, wrong, [], []
        self.symbolic = rng.random() < 0.5
        self.dims = {}

    def chance(self, p):
        return self.rng.random() < p

    def dim(self, *allowed):
        """A static dim, or a shape variable where any size would do."""
        if self.symbolic and not allowed and self.chance(0.5):
            return self.rng.choice(SYMBOLS)
        return self.rng.choice(allowed or (1, 2, 3, 4, 6))

    def dims_of(self, rank):
        return [self.dim() for _ in range(rank)]

    def tensor(self, dims, dtype="float32"):
        dims = list(dims)
        if self.chance(self.wrong):
            what = self.rng.randint(0, 5)
            if what == 0 and dims:
                dims[self.rng.randrange(len(dims))] = self.rng.choice([0, 1, 2, 3, 5, 7, "n", "m"])
            elif what == 1 and dims:
                dims.pop(self.rng.randrange(len(dims)))
            elif what == 2:
                dims.insert(self.rng.randint(0, len(dims)), self.rng.choice([1, 2, 3]))
            elif what == 3:
                dtype = self.rng.choice(["int32", "int64", "float16", "float64", "bool", "uint8", "float32"])
            elif what == 4 and dims:
                dims[self.rng.randrange(len(dims))] = self.rng.choice(["n * 2", "n + 1", "n + m", "m * 4", "n // 2"])
            else:
                dims.append(1)
        loose = self.rng.random()
        name = f"p{len(self.params)}"
        if loose < 0.03:
            kind = f'R.Tensor(dtype="{dtype}", ndim={len(dims)})'
        elif loose < 0.045:
            kind = f'R.Tensor(dtype="{dtype}")'
        elif loose < 0.055:
            kind = f'R.Tensor({self.shape(dims, True)})'
        else:
            kind = f'R.Tensor({self.shape(dims, True)}, dtype="{dtype}")'
        self.params.append((name, kind))
        return name

    def other(self, kind):
        name = f"p{len(self.params)}"
        self.params.append((name, kind))
        return name

    def note(self, dim):
        for s in SYMBOLS:
            if isinstance(dim, str) and s in dim.split() and s not in self.symbols:
                self.symbols.append(s)

    def shape(self, dims, quoted=False):
        for d in dims:
            self.note(d)
        parts = [f'"{d}"' if quoted and isinstance(d, str) else str(d) for d in dims]
        return "(" + "".join(p + ", " for p in parts) + ")"

    def value_shape(self, dims):
        for d in dims:
            self.note(d)
        return "R.shape([" + ", ".join(str(d) for d in dims) + "])"

    def of(self, right, wrong=()):
        if wrong and self.chance(self.wrong):
            return self.rng.choice(list(wrong))
        return self.rng.choice(list(right))

    def axis(self, rank):
        return self.of(range(-rank, rank) if rank else [0], [rank, -rank - 1, rank + 2])

    def float(self):
        return self.rng.choice(FLOATS)


UNARY = ("abs acos acosh asin asinh atan atanh ceil cos cosh erf exp floor log negative round rsqrt sigmoid sign sin sinh "
         "sqrt square tan tanh trunc isfinite isinf isnan bitwise_not logical_not nn.relu nn.gelu nn.gelu_tanh nn.silu "
         "nn.selu nn.softplus nn.leakyrelu").split()
BINARY = ("add subtract multiply divide floor_divide power maximum minimum mod floor_mod equal not_equal less less_equal greater "
          "greater_equal atan2 log_add_exp").split()
BITWISE = "bitwise_and bitwise_or bitwise_xor left_shift right_shift".split()
LOGICAL = "logical_and logical_or logical_xor".split()
REDUCE = "sum mean prod max min std variance argmax argmin median".split()


def unary(g):
    op = g.rng.choice(UNARY)
    dtype = "int32" if op == "bitwise_not" else "bool" if op == "logical_not" else g.float()
    return f"R.{op}({g.tensor(g.dims_of(g.rng.randint(0, 4)), dtype)})"


def broadcast_pair(g, count=2):
    dims = g.dims_of(g.rng.randint(0, 4))
    shapes = []
    for _ in range(count):
        s = [1 if g.chance(0.2) else d for d in dims]
        if g.chance(0.2) and s:
            s = s[g.rng.randint(0, len(s)):]
        shapes.append(s)
    return shapes


def binary(g):
    op = g.rng.choice(BINARY + BITWISE + LOGICAL)
    dtype = g.rng.choice(INTS) if op in BITWISE else "bool" if op in LOGICAL else g.rng.choice(ANY[:-1])
    a, b = broadcast_pair(g)
    right = g.tensor(b, dtype)
    if g.chance(0.1):
        right = f'R.const(2, "{dtype}")' if dtype != "bool" else 'R.const(True, "bool")'
    elif g.chance(0.05):
        right = g.rng.choice(["1", "2.5", "T.float32(1.5)", "True", "R.str('a')", "R.shape([2, 3])"])
    return f"R.{op}({g.tensor(a, dtype)}, {right})"


def ternary(g):
    a, b, c = broadcast_pair(g, 3)
    if g.chance(0.6):
        return f'R.where({g.tensor(a, "bool")}, {g.tensor(b)}, {g.tensor(c)})'
    d = g.dims_of(2)
    return f"R.ewise_fma({g.tensor(d)}, {g.tensor(d)}, {g.tensor(d)})"


def reduce(g):
    op = g.rng.choice(REDUCE)
    r = g.rng.randint(1, 4)
    if op in ("argmax", "argmin", "median"):
        axis = g.of([g.axis(r), None])
    else:
        axis = g.of([None, [g.axis(r)], g.axis(r), list({g.rng.randrange(r) for _ in range(2)})], [[0, 0]])
    return f"R.{op}({g.tensor(g.dims_of(r), g.float())}, axis={axis}, keepdims={g.chance(0.5)})"


def matmul(g):
    k, n, m = g.dim(), g.dim(), g.dim()
    batch = g.dims_of(g.rng.randint(0, 2))
    a, b = [*batch, n, k], [*batch[g.rng.randint(0, len(batch)):], k, m]
    if g.chance(0.15):
        a = [k]
    if g.chance(0.15):
        b = [k]
    dtype = g.float()
    out = f', out_dtype="{g.float()}"' if g.chance(0.2) else ""
    return f"R.matmul({g.tensor(a, dtype)}, {g.tensor(b, dtype)}{out})"


def linear(g):
    k, n = g.dim(), g.dim()
    bias = f", {g.tensor([n])}" if g.chance(0.5) else ""
    return f"R.linear({g.tensor([g.dim(), k])}, {g.tensor([n, k])}{bias})"


def einsum(g):
    a, b, c = g.dim(), g.dim(), g.dim()
    spec, shapes = g.rng.choice([
        ("ij,jk->ik", [[a, b], [b, c]]), ("ij->ji", [[a, b]]), ("ij,ij->", [[a, b], [a, b]]), ("i,j->ij", [[a], [b]]),
        ("bij,bjk->bik", [[2, a, b], [2, b, c]]), ("ij,jk", [[a, b], [b, c]]), ("ii->i", [[a, a]]), ("...i->i...", [[a, b]]),
        ("ij->k", [[a, b]])])
    args = ", ".join(g.tensor(s) for s in shapes)
    return f'R.einsum(({args},), subscripts="{spec}")'


def outer(g):
    return f"R.outer({g.tensor([g.dim()])}, {g.tensor([g.dim()])})"


def reshape(g):
    r = g.rng.randint(1, 3)
    dims = g.dims_of(r)
    if g.chance(0.6) and all(isinstance(d, int) for d in dims):
        total = 1
        for d in dims:
            total *= d
        new = g.of([[total], [1, total], [-1], [total, 1, 1], [1, -1], [0, -1][:max(1, r)]], [[total + 1], [-1, -1], [-2], [5, -1]])
    else:
        new = g.of([list(reversed(dims)), [*dims, 1], [" * ".join(map(str, dims))], [-1], [dims[0], -1]], [[*dims, 2], [7], [-1, 5]])
    x = g.tensor(dims, g.float())
    how = g.rng.random()
    if how < 0.5:
        return f"R.reshape({x}, {g.value_shape(new)})"
    return f"R.reshape({x}, {g.shape(new)})"


def transpose(g):
    r = g.rng.randint(1, 4)
    order = list(range(r))
    g.rng.shuffle(order)
    order = g.of([order, None, [o - r for o in order]], [order[1:], [0] * r, [*order, r], [r, *order[1:]]])
    return f"R.permute_dims({g.tensor(g.dims_of(r))}, axes={order})"


def concat(g):
    r = g.rng.randint(1, 4)
    base = g.dims_of(r)
    axis = g.axis(r)
    parts = []
    for _ in range(g.rng.randint(1, 3)):
        s = list(base)
        if -r <= axis < r:
            s[axis] = g.dim()
        parts.append(g.tensor(s))
    op = "concat"
    if g.chance(0.25):
        op, parts = "stack", [g.tensor(base) for _ in range(2)]
    if g.chance(0.2):
        kinds = dict(g.params)
        names = [p for p in parts]
        g.params = [p for p in g.params if p[0] not in names]
        t = g.other("R.Tuple(" + ", ".join(kinds[p] for p in names) + ")")
        return f"R.{op}({t}, axis={axis})"
    return f"R.{op}(({', '.join(parts)},), axis={axis})"


def split(g):
    r = g.rng.randint(1, 3)
    axis = g.axis(r)
    dims = g.dims_of(r)
    if -r <= axis < r and g.chance(0.7):
        dims[axis] = g.rng.choice([4, 6, 8, 5])
    how = g.of([2, 3, 1, [1, 3], [2], [2, 4]], [0, -1, [3, 1], [-1, 3], [9], []])
    return f"R.split({g.tensor(dims)}, indices_or_sections={how}, axis={axis})"


def squeeze(g):
    r = g.rng.randint(1, 4)
    dims = [1 if g.chance(0.5) else d for d in g.dims_of(r)]
    ones = [i for i, d in enumerate(dims) if d == 1]
    axis = g.of([None, ones or None, ones[:1] or None], [[0, 0], [r], [g.axis(r)]])
    if g.chance(0.5):
        return f"R.expand_dims({g.tensor(dims)}, axis={g.of([g.axis(r + 1), [0, -1], [0, 2]], [[0, 0], [r + 5]])})"
    return f"R.squeeze({g.tensor(dims)}, axis={axis})"


def broadcast_to(g):
    dims = g.dims_of(g.rng.randint(0, 3))
    target = g.dims_of(g.rng.randint(0, 1)) + dims
    src = [1 if g.chance(0.3) else d for d in dims]
    op = g.rng.choice(["broadcast_to", "broadcast_to", "collapse_sum_to", "collapse_sum_like"])
    if op == "collapse_sum_to":
        return f"R.collapse_sum_to({g.tensor(target)}, {g.value_shape(src)})"
    if op == "collapse_sum_like":
        return f"R.collapse_sum_like({g.tensor(target)}, {g.tensor(src)})"
    return f"R.broadcast_to({g.tensor(src)}, {g.value_shape(target)})"


def repeat(g):
    r = g.rng.randint(1, 3)
    x = g.tensor(g.dims_of(r))
    return g.rng.choice([
        f"R.repeat({x}, repeats={g.of([1, 2, 3], [0, -1])}, axis={g.of([None, g.axis(r)])})",
        f"R.tile({x}, repeats={g.of([2, [2], [2, 1], [1, 2, 3]], [[0], [-1]])})",
        f"R.flip({x}, axis={g.axis(r)})", f"R.flatten({x})",
        f"R.tril({x}, {g.of([0, 1, -1])})", f"R.triu({x}, {g.of([0, 1, -1])})"])


def slices(g):
    r = g.rng.randint(1, 3)
    dims = [g.rng.choice([4, 6, 8]) if g.chance(0.7) else d for d in g.dims_of(r)]
    axes = sorted({g.rng.randrange(r) for _ in range(g.rng.randint(1, 2))})
    axes = g.of([axes, [a - r for a in axes]], [[r], [0, 0], [-r - 1]])
    n = len(axes)
    begin = [g.of([0, 1, -3, 2], [100, -100]) for _ in range(n)]
    end = [g.of([3, 4, -1, 9, 100000], [0, -100]) for _ in range(n)]
    if g.chance(0.1):
        begin.append(1)
    strides = g.of([None, [1] * n, [2] * n], [[-1] * n, [0] * n])
    x = g.tensor(dims)
    inbound = f", assume_inbound={g.chance(0.5)}" if g.chance(0.5) else ""
    if g.chance(0.15):
        i = g.rng.choice(["int64", "int64", "int32"])
        a = [g.tensor([r], i) for _ in range(3)]
        return f"R.dynamic_strided_slice({x}, {a[0]}, {a[1]}, {a[2]})"
    return f"R.strided_slice({x}, axes={axes}, begin={begin}, end={end}, strides={strides}{inbound})"


def slice_scatter(g):
    d = g.rng.choice([6, 8, "n"])
    x = g.tensor([d, 3])
    return f"R.slice_scatter({x}, {g.tensor([2, 3])}, 1, {g.of([3, 5])}, {g.of([1, 2])}, axis=0)"


def take(g):
    r = g.rng.randint(1, 3)
    dims = g.dims_of(r)
    ix = g.tensor(g.dims_of(g.rng.randint(0, 2)), g.of(["int32", "int64"], ["float32", "bool"]))
    axis = g.of([g.axis(r)] * 3 + [None] * (r == 1), [None])
    mode = g.of(['"fast"', '"clip"', '"wrap"', '"nan"'], ['"no"'])
    return f"R.take({g.tensor(dims)}, {ix}, axis={axis}, mode={mode})"


def gather(g):
    r = g.rng.randint(1, 3)
    dims = g.dims_of(r)
    i = g.of(["int64", "int32"], ["float32"])
    kind = g.rng.randint(0, 5)
    if kind == 0:
        return f"R.gather_elements({g.tensor(dims)}, {g.tensor(dims, i)}, axis={g.axis(r)})"
    if kind == 1:
        return f"R.gather_nd({g.tensor(dims)}, {g.tensor([2, g.rng.randint(1, r)], i)}, batch_dims={g.of([0], [1, 5])})"
    if kind == 2:
        red = g.of(["update", "add", "mul", "max", "min"], ["nope"])
        return f'R.scatter_elements({g.tensor(dims)}, {g.tensor(dims, i)}, {g.tensor(dims)}, axis={g.axis(r)}, reduction="{red}")'
    if kind == 3:
        red = g.of(["update", "add", "mul", "max", "min"], ["nope"])
        return f'R.scatter_nd({g.tensor(dims)}, {g.tensor([2, 1], i)}, {g.tensor([2, *dims[1:]])}, reduction="{red}")'
    if kind == 4:
        return f"R.index_tensor({g.tensor(dims)}, ({g.tensor([2], i)},))"
    return f"R.index_put({g.tensor(dims)}, ({g.tensor([2], i)},), {g.tensor([2, *dims[1:]])}, accumulate={g.chance(0.5)})"


def create(g):
    d = g.dims_of(g.rng.randint(0, 3))
    dtype = g.rng.choice(ANY)
    return g.rng.choice([
        lambda: f'R.zeros({g.value_shape(d)}, "{dtype}")', lambda: f'R.ones({g.value_shape(d)}, dtype="{dtype}")',
        lambda: f'R.full({g.value_shape(d)}, R.const(2, "float32"), dtype="{dtype}")',
        lambda: f"R.full({g.value_shape(d)}, {g.tensor([], 'float32')})",
        lambda: f"R.full_like({g.tensor(d, dtype)}, R.const(1.5, 'float32'))",
        lambda: f"R.zeros_like({g.tensor(d, dtype)})", lambda: f'R.ones_like({g.tensor(d)}, dtype="{dtype}")',
        lambda: f'R.arange({g.of([0, 1, 5])}, {g.of([6, 10])}, {g.of([1, 2], [0, -1])}, dtype="{dtype}")',
        lambda: f'R.eye({g.of([2, 3])}, {g.of([3, 4])}, {g.of([0, 1, -1])}, dtype="{dtype}")',
        lambda: f"R.eye_like({g.tensor([g.dim(), g.dim()])})",
        lambda: f'R.hamming_window({g.of([4, 5])}, True, 0.54, 0.46, "float32")',
        lambda: f'R.astype({g.tensor(d, g.rng.choice(ANY))}, "{dtype}")',
        lambda: f"R.one_hot({g.tensor(d, 'int32')}, {g.of(['R.prim_value(T.float32(1))', '1', 'T.int32(1)'])}, {g.of(['R.prim_value(T.float32(0))', '0'])}, {g.of([3, 5], [-1, 0])}, axis={g.axis(len(d) + 1)})",
        lambda: f"R.nn.dropout({g.tensor(d)}, rate=0.5)", lambda: f"R.nn.batch_flatten({g.tensor([2, *d])})",
        lambda: f"R.clip({g.tensor(d, g.float())}, {g.of([0, -1, 0.5])}, {g.of([1, 6.0])})",
        lambda: f"R.shape_of({g.tensor(d)})", lambda: f"R.size({g.tensor(d)})", lambda: f"R.shape_to_tensor({g.value_shape(d)})",
        lambda: f"R.tensor_to_shape({g.tensor([g.dim(1, 2, 3)], g.of(['int64'], ['int32', 'float32']))})",
        lambda: f"R.meshgrid(({g.tensor([g.dim()])}, {g.tensor([g.dim()])}), indexing=\"{g.of(['ij', 'xy'], ['zz'])}\")",
        lambda: f"R.builtin.stop_lift_params({g.tensor(d)})", lambda: f"R.memory.ensure_zero_offset({g.tensor(d)})",
    ])()


def sorting(g):
    r = g.rng.randint(1, 3)
    x = g.tensor(g.dims_of(r), g.float())
    axis = g.axis(r)
    return g.rng.choice([
        lambda: f"R.sort({x}, axis={axis}, descending={g.chance(0.5)})",
        lambda: f'R.argsort({x}, axis={axis}, descending={g.chance(0.5)}, dtype="{g.of(["int32", "int64"], ["float32"])}")',
        lambda: f'R.topk({x}, k={g.of([1, 2], [0, -1, 100])}, axis={axis}, ret_type="{g.of(["both", "values", "indices"], ["x"])}", largest={g.chance(0.5)}, dtype="{g.of(["int32", "int64"], ["float32"])}")',
        lambda: f"R.cumsum({x}, axis={g.of([axis, None])}, exclusive={g.chance(0.5)})",
        lambda: f'R.cumprod({x}, axis={g.of([axis, None])}, dtype="{g.of(["float32", "int32", "float64"])}")',
        lambda: f"R.unique({x}, True, {g.chance(0.5)}, {g.chance(0.5)}, {g.chance(0.5)}, axis={g.of([None, 0], [axis])})",
        lambda: f"R.nonzero({x})",
        lambda: f"R.bucketize({x}, {g.tensor([g.dim()])}, {g.chance(0.5)}, {g.chance(0.5)})",
    ])()


def norms(g):
    r = g.rng.randint(2, 4)
    d = g.dims_of(r)
    c = d[1]
    x = g.tensor(d, g.of(["float32"], ["float16", "int32"]))
    def extra():
        return f", epsilon={g.of([1e-5, 0.001])}, center={g.chance(0.7)}, scale={g.chance(0.7)}"
    return g.rng.choice([
        lambda: f"R.nn.softmax({x}, axis={g.axis(r)})", lambda: f"R.nn.log_softmax({x}, axis={g.axis(r)})",
        lambda: f"R.nn.batch_norm({x}, {g.tensor([c])}, {g.tensor([c])}, {g.tensor([c])}, {g.tensor([c])}, axis={g.of([1, 1 - r], [0, r])}{extra()}, momentum=0.1, training={g.chance(0.3)})",
        lambda: f"R.nn.layer_norm({x}, {g.tensor([d[-1]])}, {g.tensor([d[-1]])}, axes={g.of([[-1], [r - 1]], [[0], [r], [0, 1]])}{extra()})",
        lambda: f"R.nn.layer_norm({x}, {g.tensor(d[-2:])}, {g.tensor(d[-2:])}, axes=[-2, -1])",
        lambda: f"R.nn.rms_norm({x}, {g.tensor([d[-1]])}, axes={g.of([[-1], [r - 1]], [[0], [r]])}, epsilon=1e-05)",
        lambda: f"R.nn.group_norm({g.tensor([d[0], 4, *d[2:], 3])}, {g.tensor([4])}, {g.tensor([4])}, num_groups={g.of([1, 2, 4], [3, 0])}, channel_axis={g.of([1], [0, 9])}, axes={g.of([list(range(2, r + 1))], [[1, 2], [9]])}{extra()})",
        lambda: f"R.nn.instance_norm({x}, {g.tensor([c])}, {g.tensor([c])}, channel_axis={g.of([1], [0])}, axes={g.of([list(range(2, r)) or [0]], [[9]])}{extra()})",
        lambda: f"R.nn.prelu({x}, {g.tensor([c])}, axis={g.of([1, 1 - r], [0, r])})",
    ])()


def conv(g):
    s = g.rng.randint(1, 3)
    lay = {1: "NCW", 2: "NCHW", 3: "NCDHW"}[s]
    groups = g.of([1, 1, 1, 2], [3, 0])
    ci, co = 4, g.dim(2, 4)
    if groups == 2 and g.chance(0.7):
        pass
    batch = g.dim() if g.symbolic else g.dim(1, 2)
    space = [g.rng.choice([6, 7, 8]) if g.chance(0.8) else g.dim() for _ in range(s)]
    kernel = [g.rng.choice([1, 2, 3]) for _ in range(s)]
    transposed = g.chance(0.3)
    per = max(1, groups if isinstance(groups, int) else 1)
    last = g.chance(0.25)
    data = [batch, *space, ci] if last else [batch, ci, *space]
    dl = lay.replace("C", "") + "C" if last else lay
    if transposed:
        weight, kl = [ci, co // per if co % per == 0 else co, *kernel], "IO" + lay[2:]
    else:
        weight, kl = [co, ci // per if ci % per == 0 else ci, *kernel], "OI" + lay[2:]
    if g.chance(g.wrong):
        dl = g.rng.choice(["NCHW", "NHWC", "NWC", "XYZ", "NCHW4c"])
    attrs = [f"strides={[g.of([1, 2], [0, -1])] * s}", f"padding={g.of([[0] * s, [1] * s, [1] * (2 * s), [0, 1] * s], [[1] * (2 * s + 1), [-1] * s])}",
             f"dilation={[g.of([1, 1, 2], [0])] * s}", f"groups={groups}", f'data_layout="{dl}"', f'kernel_layout="{kl}"']
    if transposed:
        attrs.append(f"output_padding={[g.of([0, 0, 1], [3])] * s}")
    if g.chance(0.1):
        attrs.append(f'out_dtype="{g.of(["float32", "float16", "float64"])}"')
    dtype = g.of(["float32"] * 8 + ["float16"])
    return f"R.nn.conv{s}d{'_transpose' if transposed else ''}({g.tensor(data, dtype)}, {g.tensor(weight, dtype)}, {', '.join(attrs)})"


def pool(g):
    s = g.rng.randint(1, 3)
    lay = {1: "NCW", 2: "NCHW", 3: "NCDHW"}[s]
    d = [g.dim(), g.dim(), *[g.rng.choice([6, 7, 8]) if g.chance(0.8) else g.dim() for _ in range(s)]]
    x = g.tensor(d, g.of(["float32"] * 5 + ["float16", "int32"]))
    if g.chance(0.3):
        return f'R.nn.adaptive_avg_pool{s}d({x}, output_size={g.of([[1] * s, [3] * s, None, 2], [[2] * (s + 1), [0] * s])}, layout="{lay}")'
    kind = g.rng.choice(["max", "avg"])
    return (f"R.nn.{kind}_pool{s}d({x}, pool_size={[g.of([1, 2, 3], [0, 20])] * s}, strides={[g.of([1, 2], [0])] * s}, "
            f"padding={g.of([[0] * s, [1] * s, [1] * (2 * s)], [[1] * (2 * s + 1), [-1] * s])}, dilation={[g.of([1, 1, 2])] * s}, "
            f'ceil_mode={g.chance(0.3)}, count_include_pad={g.chance(0.3)}, layout="{g.of([lay], ["NHWC", "NCL"])}")')


def attention(g):
    b, s, t, h, d = g.dim(), g.dim(), g.dim(), 2, 4
    q, k, v = g.tensor([b, s, h, d]), g.tensor([b, t, h, d]), g.tensor([b, t, h, d])
    bias = f", bias={g.tensor(g.of([[b, h, s, t], [b, 1, s, t]], [[s, t], [h, s, t]]))}" if g.chance(0.3) else ""
    causal = g.of(["", ', causal_mask="TopLeft"', ', causal_mask="BottomRight"'], [', causal_mask="Nope"'])
    return f"R.nn.attention({q}, {k}, {v}{bias}{causal}{g.of(['', ', scale=0.5'])})"


def padding(g):
    r = g.rng.randint(1, 3)
    width = g.of([[1] * (2 * r), [0, 1] * r], [[1] * r, [1] * (2 * r + 1), [-1] * (2 * r)])
    mode = g.of(["constant", "constant", "reflect", "replicate", "circular"], ["edge", "x"])
    x = g.tensor(g.dims_of(r))
    return g.rng.choice([
        lambda: f'R.nn.pad({x}, {width}, "{mode}", {g.of([0.0, 1.5])})',
        lambda: f"R.nn.pixel_shuffle({g.tensor([g.dim(), 8, g.dim(), 3])}, {g.of([2, 1], [3, 0])})",
        lambda: f'R.image.resize2d({g.tensor([g.dim(), 3, g.dim(4, 5), g.dim(4, 6)])}, {g.value_shape([g.dim(4, 8), g.dim(3, 8)])}, layout="NCHW", method="{g.of(["nearest_neighbor", "linear", "cubic"], ["foo"])}", coordinate_transformation_mode="{g.of(["half_pixel", "align_corners", "asymmetric"], ["bar"])}", rounding_method="{g.of(["round", "floor", ""])}")',
        lambda: f'R.image.grid_sample({g.tensor([2, 3, 4, 4])}, {g.tensor([2, 2, 5, 5])}, method="{g.of(["bilinear", "nearest", "bicubic"], ["x"])}", padding_mode="{g.of(["zeros", "border", "reflection"], ["y"])}")',
        lambda: f"R.image.affine_grid({g.tensor([2, 2, 3])}, {g.of(['R.shape([4, 5])', '(4, 5)'], ['R.shape([4, 5, 6])'])})",
        lambda: f'R.vision.roi_align({g.tensor([2, 3, 8, 8])}, {g.tensor([g.dim(), 5])}, pooled_size=(2, 2), spatial_scale=1.0, sample_ratio=2, mode="{g.of(["avg", "max"], ["z"])}")',
        lambda: f"R.vision.roi_pool({g.tensor([2, 3, 8, 8])}, {g.tensor([g.dim(), 5])}, pooled_size=(2, 2), spatial_scale=1.0)",
    ])()


def losses(g):
    n, c = g.dim(), g.dim(2, 3)
    red = g.of(["mean", "sum", "none"], ["q"])
    return g.rng.choice([
        lambda: f"R.nn.cross_entropy_with_logits({g.tensor([n, c])}, {g.tensor([n, c])})",
        lambda: f'R.nn.nll_loss({g.tensor([n, c])}, {g.tensor([n], "int64")}, {g.tensor([c])}, reduction="{red}", ignore_index=-1)',
        lambda: f'R.nn.nll_loss({g.tensor([n, c, 2])}, {g.tensor([n, 2], "int64")}, reduction="{red}", ignore_index=-1)',
        lambda: f'R.quantize({g.tensor([n, c])}, {g.tensor([c])}, {g.tensor([c], "int8")}, axis={g.of([1, -1], [0, 4])}, out_dtype="{g.of(["int8", "uint8"], ["float32"])}")',
        lambda: f'R.dequantize({g.tensor([n, c], "int8")}, {g.tensor([c])}, {g.tensor([c], "int8")}, axis={g.of([1, -1], [0, 4])}, out_dtype="{g.of(["float32", "float16"], ["int8"])}")',
        lambda: f'R.multinomial_from_uniform({g.tensor([n, c])}, {g.tensor([n, 1])}, {g.tensor([n, 1], "int64")}, dtype="int64")',
        lambda: f"R.reverse_sequence({g.tensor([n, 3, 2])}, {g.tensor([n], 'int64')}, seq_axis={g.of([1], [0, 5])}, batch_axis={g.of([0], [7])})",
        lambda: f"R.layout_transform({g.tensor([8])}, index_map=lambda i: (i // 4, i % 4))",
        lambda: f"R.memory.view({g.tensor([8])}, {g.value_shape([2, 4])})",
    ])()


FAMILIES = [unary, binary, binary, ternary, reduce, reduce, matmul, matmul, linear, einsum, outer, reshape, reshape, transpose, concat,
            concat, split, squeeze, broadcast_to, repeat, slices, slices, slice_scatter, take, gather, gather, create, create, sorting,
            sorting, norms, norms, conv, conv, pool, pool, attention, padding, losses]


def module(rng):
    """One call, in a function with or without a dataflow block and a stated result."""
    g = Gen(rng, rng.choice([0, 0, 0.15, 0.4]))
    call = rng.choice(FAMILIES)(g)
    lines, result = [f"v = {call}"], "v"
    if rng.random() < 0.25:
        lines.append("w = R.add(v, v)" if rng.random() < 0.5 else "w = R.nn.relu(v)")
        result = "w"
    if rng.random() < 0.15:
        lines[0] = lines[0].replace("v = ", 'v: R.Tensor(' + g.shape(g.dims_of(rng.randint(1, 3))) + ', dtype="float32") = ', 1)
    ret = ""
    if rng.random() < 0.1:
        ret = ' -> R.Tensor(' + g.shape(g.dims_of(rng.randint(1, 3)), True) + ', dtype="float32")'
    out = [f"    @R.function\n    def main({', '.join(f'{n}: {k}' for n, k in g.params)}){ret}:"]
    out += [f"        {s} = T.int64()" for s in g.symbols]
    if rng.random() < 0.5:
        out += ["        with R.dataflow():"] + [f"            {line}" for line in lines] + [f"            R.output({result})"]
    else:
        out += [f"        {line}" for line in lines]
    return HEADER + "\n".join(out) + f"\n        return {result}\n"
