"""Modules of relax.frontend.torch, of exported programs and of FX graphs. Without torch there are none."""

try:
    import torch
    from torch import nn
except ImportError:
    torch = None


def functions():
    """(name, function, shapes of its float inputs)."""
    f = torch.nn.functional
    x = (3, 4)
    for name in """abs acos asin atan ceil cos cosh erf exp floor log neg reciprocal relu round rsqrt sigmoid sign sin sinh sqrt square tan tanh log2 log10 log1p expm1 trunc
            isnan isinf isfinite logical_not bitwise_not sum mean prod max min argmax argmin median std var cumsum cumprod any all flatten t numel clone
            softmax log_softmax argsort sort flip roll triu tril unique nonzero erfinv""".split():
        fn = getattr(torch, name)
        kw = {"dim": 1} if name in ("cumsum", "cumprod", "softmax", "log_softmax") else {"dims": (0,)} if name == "flip" else {"shifts": 1, "dims": 0} if name == "roll" else {}
        yield name, (lambda fn, kw: lambda a: fn(a, **kw))(fn, kw), [x]
    for name in ["sum", "mean", "amax", "amin", "prod", "std", "var", "argmax", "logsumexp", "norm", "any", "all"]:
        yield f"{name}_dim", (lambda fn: lambda a: fn(a, dim=1))(getattr(torch, name)), [x]
        yield f"{name}_keep", (lambda fn: lambda a: fn(a, dim=0, keepdim=True))(getattr(torch, name)), [x]
    for name in "add sub mul div maximum minimum pow atan2 fmod remainder floor_divide eq ne lt le gt ge logical_and logical_or logical_xor".split():
        yield name, (lambda fn: lambda a, b: fn(a, b))(getattr(torch, name)), [x, (4,)]
        yield f"{name}_scalar", (lambda fn: lambda a: fn(a, torch.tensor(2.0)))(getattr(torch, name)), [x]
    for name in "relu relu6 elu selu celu gelu silu mish hardsigmoid hardswish hardtanh leaky_relu softplus softsign tanhshrink logsigmoid softshrink hardshrink".split():
        yield f"f_{name}", getattr(f, name), [x]
    yield "matmul", torch.matmul, [(2, 3, 4), (4, 5)]
    yield "bmm", torch.bmm, [(2, 3, 4), (2, 4, 5)]
    yield "mm", torch.mm, [(3, 4), (4, 5)]
    yield "addmm", torch.addmm, [(5,), (3, 4), (4, 5)]
    yield "baddbmm", torch.baddbmm, [(2, 3, 5), (2, 3, 4), (2, 4, 5)]
    yield "einsum", lambda a, b: torch.einsum("ij,jk->ik", a, b), [(3, 4), (4, 5)]
    yield "outer", torch.outer, [(3,), (4,)]
    yield "cat", lambda a, b: torch.cat([a, b], 1), [x, x]
    yield "stack", lambda a, b: torch.stack([a, b], 1), [x, x]
    yield "split", lambda a: torch.split(a, 2, 1), [x]
    yield "chunk", lambda a: torch.chunk(a, 3, 1), [x]
    yield "unbind", lambda a: torch.unbind(a, 0), [x]
    yield "permute", lambda a: a.permute(1, 0), [x]
    yield "reshape", lambda a: a.reshape(2, -1), [x]
    yield "view", lambda a: a.view(-1), [x]
    yield "unsqueeze", lambda a: a.unsqueeze(1), [x]
    yield "squeeze", lambda a: a.squeeze(), [(3, 1, 4)]
    yield "squeeze_dim", lambda a: a.squeeze(1), [(3, 1, 4)]
    yield "expand", lambda a: a.expand(2, 3, 4), [x]
    yield "expand_as", lambda a, b: a.expand_as(b), [(1, 4), x]
    yield "repeat", lambda a: a.repeat(2, 3), [x]
    yield "tile", lambda a: a.tile(2), [x]
    yield "repeat_interleave", lambda a: a.repeat_interleave(2, dim=1), [x]
    yield "narrow", lambda a: a.narrow(1, 1, 2), [x]
    yield "select", lambda a: a.select(1, 2), [x]
    yield "index", lambda a: a[1:, ::2], [x]
    yield "index_none", lambda a: a[:, None, 1], [x]
    yield "index_last", lambda a: a[..., -1], [x]
    yield "index_tensor", lambda a: a[torch.tensor([0, 2])], [x]
    yield "index_select", lambda a: a.index_select(0, torch.tensor([0, 2])), [x]
    yield "index_put", lambda a: torch.index_put(a, (torch.tensor([0, 1]),), torch.ones(2, 4)), [x]
    yield "gather", lambda a: a.gather(1, torch.tensor([[0, 1], [2, 3], [1, 1]])), [x]
    yield "scatter", lambda a, b: a.scatter(1, torch.tensor([[0, 1], [2, 3], [1, 2]]), b), [x, (3, 2)]
    yield "where", lambda a, b: torch.where(a > b, a, b), [x, x]
    yield "masked_fill", lambda a: a.masked_fill(a > 0.5, 0.0), [x]
    yield "clamp", lambda a: a.clamp(0.2, 0.8), [x]
    yield "clamp_min", lambda a: a.clamp(min=0.2), [x]
    yield "topk", lambda a: a.topk(2), [x]
    yield "zeros_like", torch.zeros_like, [x]
    yield "ones_like", torch.ones_like, [x]
    yield "full_like", lambda a: torch.full_like(a, 3.0), [x]
    yield "new_zeros", lambda a: a.new_zeros(2, 3), [x]
    yield "full", lambda a: a + torch.full((4,), 2.0), [x]
    yield "arange", lambda a: a + torch.arange(4), [x]
    yield "linspace", lambda a: a + torch.linspace(0, 1, 4), [x]
    yield "eye", lambda a: a @ torch.eye(4), [x]
    yield "to_half", lambda a: a.half(), [x]
    yield "to_int", lambda a: a.to(torch.int32), [x]
    yield "to_double", lambda a: a.double() * 2, [x]
    yield "type_as", lambda a: a.int().type_as(a), [x]
    yield "meshgrid", lambda a, b: torch.meshgrid(a, b, indexing="ij"), [(3,), (4,)]
    yield "pad", lambda a: f.pad(a, (1, 2)), [x]
    yield "pad_value", lambda a: f.pad(a, (1, 2, 0, 1), value=3.0), [x]
    yield "pad_reflect", lambda a: f.pad(a, (1, 2), mode="reflect"), [(1, 3, 4)]
    yield "one_hot", lambda a: f.one_hot(a.to(torch.int64), 5), [(3,)]
    yield "interpolate", lambda a: f.interpolate(a, scale_factor=2.0), [(1, 2, 3, 3)]
    yield "interpolate_linear", lambda a: f.interpolate(a, size=(5, 6), mode="bilinear", align_corners=False), [(1, 2, 3, 3)]
    yield "interpolate_cubic", lambda a: f.interpolate(a, size=(5, 6), mode="bicubic", align_corners=True), [(1, 2, 3, 3)]
    yield "grid_sample", lambda a, g: f.grid_sample(a, g, align_corners=False), [(1, 2, 3, 3), (1, 4, 4, 2)]
    yield "normalize", lambda a: f.normalize(a, dim=1), [x]
    yield "cross_entropy", lambda a: f.cross_entropy(a, torch.tensor([0, 1, 3])), [x]
    yield "nll", lambda a: f.nll_loss(f.log_softmax(a, 1), torch.tensor([0, 1, 3])), [x]
    yield "mse", f.mse_loss, [x, x]
    yield "l1", f.l1_loss, [x, x]
    yield "bce", lambda a, b: f.binary_cross_entropy(a / 2, b / 2), [x, x]
    yield "sdpa", f.scaled_dot_product_attention, [(1, 2, 5, 4), (1, 2, 5, 4), (1, 2, 5, 4)]
    yield "sdpa_causal", lambda q, k, v: f.scaled_dot_product_attention(q, k, v, is_causal=True), [(1, 2, 5, 4), (1, 2, 5, 4), (1, 2, 5, 4)]
    yield "diagonal", lambda a: torch.diagonal(a), [(4, 4)]
    yield "diag", lambda a: torch.diag(a), [(4,)]
    yield "bincount", lambda a: torch.bincount(a.to(torch.int64), minlength=5), [(4,)]
    yield "lerp", torch.lerp, [x, x, x]
    yield "addcmul", torch.addcmul, [x, x, x]
    yield "swapaxes", lambda a: a.swapaxes(0, 1), [x]
    yield "movedim", lambda a: a.movedim(0, 1), [x]
    yield "unflatten", lambda a: a.unflatten(1, (2, 2)), [x]
    yield "unfold", lambda a: a.unfold(1, 2, 1), [x]
    yield "take", lambda a: torch.take(a, torch.tensor([0, 5])), [x]
    yield "shapes", lambda a: a.reshape(a.shape[0] * a.shape[1]) + a.size(0), [x]
    yield "several", lambda a, b: (a + b, a * b, (a - b).sum()), [x, x]
    yield "dictionary", lambda a: {"p": a + 1, "q": a * 2}, [x]


def layers():
    n = torch.nn
    yield "linear", n.Linear(4, 5), [(3, 4)]
    yield "bilinear", n.Bilinear(4, 3, 5), [(2, 4), (2, 3)]
    yield "conv1d", n.Conv1d(3, 4, 3, padding=1), [(1, 3, 8)]
    yield "conv2d", n.Conv2d(4, 6, 3, stride=2, groups=2), [(1, 4, 8, 8)]
    yield "conv2d_same", n.Conv2d(4, 6, 3, padding="same"), [(1, 4, 8, 8)]
    yield "conv3d", n.Conv3d(2, 3, 3), [(1, 2, 5, 5, 5)]
    yield "conv1dt", n.ConvTranspose1d(3, 4, 3, stride=2), [(1, 3, 5)]
    yield "conv2dt", n.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1), [(1, 3, 5, 5)]
    yield "bn1", n.BatchNorm1d(4).eval(), [(3, 4)]
    yield "bn2", n.BatchNorm2d(4).eval(), [(2, 4, 3, 3)]
    yield "bn2_train", n.BatchNorm2d(4), [(2, 4, 3, 3)]
    yield "ln", n.LayerNorm(4), [(3, 4)]
    yield "ln_plain", n.LayerNorm(4, elementwise_affine=False), [(3, 4)]
    yield "gn", n.GroupNorm(2, 4), [(2, 4, 5)]
    yield "in2", n.InstanceNorm2d(4), [(2, 4, 5, 5)]
    yield "rms", n.RMSNorm(4), [(3, 4)]
    yield "embedding", _Embed(), [(2, 3)]
    yield "dropout", n.Dropout(0.3).eval(), [(3, 4)]
    for k in (1, 2, 3):
        s = (1, 2) + (6,) * k
        yield f"maxpool{k}", getattr(n, f"MaxPool{k}d")(3, stride=2, padding=1), [s]
        yield f"maxpool_ceil{k}", getattr(n, f"MaxPool{k}d")(3, stride=2, ceil_mode=True), [s]
        yield f"avgpool{k}", getattr(n, f"AvgPool{k}d")(2), [s]
        yield f"avgpool_pad{k}", getattr(n, f"AvgPool{k}d")(3, stride=2, padding=1, count_include_pad=False), [s]
        yield f"adaptive{k}", getattr(n, f"AdaptiveAvgPool{k}d")(3), [s]
    yield "prelu", n.PReLU(), [(3, 4)]
    yield "glu", n.GLU(), [(3, 4)]
    yield "softmax2d", n.Softmax2d(), [(1, 3, 2, 2)]
    yield "pixel_shuffle", n.PixelShuffle(2), [(1, 4, 3, 3)]
    yield "pixel_unshuffle", n.PixelUnshuffle(2), [(1, 2, 4, 4)]
    yield "channel_shuffle", n.ChannelShuffle(2), [(1, 4, 3, 3)]
    yield "upsample", n.Upsample(scale_factor=2), [(1, 2, 3, 3)]
    yield "reflection", n.ReflectionPad2d(1), [(1, 2, 4, 4)]
    yield "replication", n.ReplicationPad2d(1), [(1, 2, 4, 4)]
    yield "circular", n.CircularPad1d(1), [(1, 2, 4)]
    yield "constant_pad", n.ConstantPad2d(1, 2.0), [(1, 2, 4, 4)]
    yield "zero_pad", n.ZeroPad2d(1), [(1, 2, 4, 4)]
    yield "lstm", n.LSTM(4, 3, batch_first=True), [(2, 5, 4)]
    yield "gru", n.GRU(4, 3), [(5, 2, 4)]
    yield "rnn", n.RNN(4, 3), [(5, 2, 4)]
    yield "mha", n.MultiheadAttention(8, 2, batch_first=True).eval(), [(1, 5, 8), (1, 5, 8), (1, 5, 8)]
    yield "encoder", n.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), [(1, 5, 8)]
    yield "decoder", n.TransformerDecoderLayer(8, 2, 16, batch_first=True).eval(), [(1, 5, 8), (1, 3, 8)]
    yield "mlp", n.Sequential(n.Linear(4, 8), n.ReLU(), n.Linear(8, 3), n.Softmax(-1)), [(2, 4)]
    yield "cnn", n.Sequential(n.Conv2d(3, 4, 3), n.BatchNorm2d(4), n.ReLU(), n.MaxPool2d(2), n.Flatten(), n.Linear(36, 5)).eval(), [(1, 3, 8, 8)]
    yield "cond", _Cond(), [(3, 4)]
    yield "residual", _Residual(), [(1, 4, 6, 6)]


def _later():
    class Embed(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Embedding(10, 4)

        def forward(self, x):
            return self.e(x.to(torch.int64))

    class Cond(nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 1, lambda x: (x + 1,), lambda x: (x * 2,), (x,))

    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.n = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)

        def forward(self, x):
            return torch.relu(x + self.n(self.b(torch.relu(self.a(x)))))

    return Embed, Cond, Residual


if torch:
    _Embed, _Cond, _Residual = _later()


def modules():
    """(name, IRModule); what the frontend refuses is left out."""
    if torch is None:
        print("no torch: nothing is traced")
        return
    import warnings

    from tvm.relax.frontend.torch import from_exported_program, from_fx

    warnings.simplefilter("ignore")

    class Function(nn.Module):
        def __init__(self, f):
            super().__init__()
            self.f = f

    def function(f, count):
        names, scope = ", ".join("abcde"[:count]), {}
        exec(f"def forward(self, {names}):\n    return self.f({names})", scope)
        return type("Op", (Function,), {"forward": scope["forward"]})(f)

    cases = [(n, function(f, len(s)), s) for n, f, s in functions()] + [(f"layer_{n}", m.eval() if "train" not in n else m, s) for n, m, s in layers()]
    for name, module, shapes in cases:
        args = tuple(torch.rand(s) for s in shapes)
        program = None
        for way in ("export", "keep", "dynamic", "fx"):
            try:
                if way == "fx":
                    mod = from_fx(torch.fx.symbolic_trace(module), [(tuple(s), "float32") for s in shapes])
                elif way == "dynamic":
                    dims = {0: torch.export.Dim.AUTO}
                    moved = tuple(torch.rand((s[0] + 3,) + tuple(s[1:])) for s in shapes)
                    mod = from_exported_program(torch.export.export(module, moved, dynamic_shapes=tuple(dims for _ in shapes)))
                else:
                    program = program or torch.export.export(module, args)
                    mod = from_exported_program(program, keep_params_as_input=way == "keep", unwrap_unit_return_tuple=way == "keep")
                yield f"torch_{name}_{way}", mod
            except BaseException as error:
                print(f"torch {name} {way}: {str(error).strip().splitlines()[-1:]}")
