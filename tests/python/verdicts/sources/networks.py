"""Modules of relax.frontend.nn: its layers, blocks of language models, effects, and its operators one by one."""

import inspect

from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import modules as more
from tvm.relax.frontend.nn import spec
from tvm.relax.frontend.nn import op

F = "float32"


def layers():
    """(name, layer, shapes of its inputs)."""
    for bias in (True, False):
        yield f"linear{bias}", nn.Linear(4, 6, bias=bias), [("n", 4)]
        yield f"linear_half{bias}", nn.Linear(4, 6, bias=bias, dtype="float16"), [(("n", 4), "float16")]
        yield f"linear_out{bias}", nn.Linear(4, 6, bias=bias, out_dtype="float32"), [("n", "m", 4)]
        yield f"conv1d{bias}", nn.Conv1D(3, 4, 3, stride=2, padding=1, bias=bias), [(1, 3, 8)]
        yield f"conv2d{bias}", nn.Conv2D(4, 6, 3, padding=1, groups=2, bias=bias), [(1, 4, 7, 7)]
        yield f"conv2d_sym{bias}", nn.Conv2D(3, 4, 3, stride=2, dilation=1, bias=bias), [("n", 3, "h", "w")]
        yield f"conv2d_last{bias}", nn.Conv2D(3, 4, 3, bias=bias, data_layout="NHWC"), [(1, 5, 5, 3)]
        yield f"conv3d{bias}", nn.Conv3D(2, 3, 3, bias=bias), [(1, 2, 5, 5, 5)]
        yield f"conv1dt{bias}", nn.ConvTranspose1D(3, 4, 3, stride=2, output_padding=1, bias=bias), [(1, 3, 5)]
    yield "layer_norm", nn.LayerNorm(6), [("n", 6)]
    yield "layer_norm_plain", nn.LayerNorm(6, elementwise_affine=False), [("n", 6)]
    yield "rms_norm", nn.RMSNorm(6, axes=-1, bias=False), [("n", 6)]
    yield "rms_norm2", nn.RMSNorm(6, axes=[2], bias=False), [(1, "n", 6)]
    yield "group_norm", nn.GroupNorm(2, 4), [(1, 4, "n")]
    yield "embedding", nn.Embedding(10, 4), [(("n",), "int32")]
    yield "embedding2", nn.Embedding("vocab", 4), [((2, "n"), "int32")]
    yield "relu", nn.ReLU(), [("n", 4)]
    yield "silu", nn.SiLU(), [("n", 4)]
    yield "gelu", nn.GELU(), [("n", 4)]
    yield "timesteps", more.Timesteps(8), [(3,)]
    yield "timestep_embedding", more.TimestepEmbedding(8, 12), [(1, 8)]
    yield "attention", more.Attention(8, heads=2, dim_head=4), [(2, 5, 8)]
    yield "attention_cross", more.Attention(8, cross_attention_dim=6, heads=2, dim_head=4, norm_num_groups=2), [(2, 5, 8), (2, 3, 6)]
    yield "mlp", nn.ModuleList([nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)]), [("n", 4)]
    yield "dict", _Dict(), [("n", 4)]
    yield "llama", _Llama(), [((1, "seq"), "int32")]
    yield "gpt", _Gpt(), [((1, 5), "int32")]
    yield "conv_net", _ConvNet(), [("b", 3, 8, 8)]
    yield "residual", _Residual(), [(1, 4, "h", "w")]


class _Dict(nn.Module):
    def __init__(self):
        self.parts = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.LayerNorm(4)})

    def forward(self, x):
        for part in self.parts.values():
            x = part(x)
        return x, op.sum(x, -1)


class _Mlp(nn.Module):
    def __init__(self, d):
        self.gate_up = nn.Linear(d, 4 * d, bias=False)
        self.down = nn.Linear(2 * d, d, bias=False)

    def forward(self, x):
        a, b = op.split(self.gate_up(x), 2, axis=-1)
        return self.down(op.silu(a) * b)


class _Block(nn.Module):
    def __init__(self, d, heads, causal):
        self.heads, self.head, self.causal = heads, d // heads, causal
        self.qkv, self.out = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.norm1, self.norm2, self.mlp = nn.RMSNorm(d, -1, bias=False), nn.RMSNorm(d, -1, bias=False), _Mlp(d)

    def forward(self, x):
        b, s, d = x.shape
        q, k, v = (op.reshape(t, (b, s, self.heads, self.head)) for t in op.split(self.qkv(self.norm1(x)), 3, axis=-1))
        x = x + self.out(op.reshape(op.scaled_dot_product_attention(q, k, v, is_causal=self.causal), (b, s, d)))
        return x + self.mlp(self.norm2(x))


class _Llama(nn.Module):
    def __init__(self):
        self.embed, self.layers = nn.Embedding(11, 8), nn.ModuleList([_Block(8, 2, True) for _ in range(2)])
        self.norm, self.head = nn.RMSNorm(8, -1, bias=False), nn.Linear(8, 11, bias=False)

    def forward(self, ids):
        return self.head(self.norm(self.layers(self.embed(ids))))


class _Gpt(nn.Module):
    def __init__(self):
        self.embed, self.block, self.norm = nn.Embedding(11, 8), _Block(8, 2, False), nn.LayerNorm(8)

    def forward(self, ids):
        x = self.norm(self.block(self.embed(ids)))
        return op.softmax(op.matmul(x, op.permute_dims(self.embed.weight)))


class _ConvNet(nn.Module):
    def __init__(self):
        self.c1, self.c2, self.fc = nn.Conv2D(3, 4, 3, padding=1), nn.Conv2D(4, 8, 3, stride=2), nn.Linear(72, 5)

    def forward(self, x):
        x = op.relu(self.c2(op.relu(self.c1(x))))
        return self.fc(op.reshape(x, (x.shape[0], 72)))


class _Residual(nn.Module):
    def __init__(self):
        self.norm, self.c = nn.GroupNorm(2, 4), nn.Conv2D(4, 4, 3, padding=1)

    def forward(self, x):
        return x + self.c(op.silu(self.norm(x)))


class _Cached(nn.Module):
    """A block with the cache that grows, an effect."""

    def __init__(self):
        self.proj = nn.Linear(4, 4, bias=False)
        self.cache = nn.KVCache(8, [2, 2])

    def forward(self, x):
        h = op.reshape(self.proj(x), (x.shape[0], 2, 2))
        self.cache.append(h)
        return op.sum(self.cache.view(x.shape[0] + 3), axis=0)


class _Printing(nn.Module):
    def forward(self, x):
        op.print_(x)
        return x + x


def _ops():
    """(name, function of tensors, shapes of its inputs)."""
    x = [("n", 4)]
    for name in ["exp", "log", "tanh", "sigmoid", "relu", "relu6", "silu", "gelu", "softmax", "softplus", "negative", "square", "sqrt", "floor", "sort", "argsort", "cumsum",
                 "triu", "permute_dims", "squeeze", "topk"]:
        f = getattr(op, name)
        shapes = [(1, 4)] if name == "squeeze" else x
        kw = {"axis": 0} if name == "squeeze" else {"k": 2} if name == "topk" else {}
        yield name, (lambda f, kw: lambda a: f(a, **kw))(f, kw), shapes
    for name in ["add", "subtract", "multiply", "divide", "maximum", "minimum", "less", "less_equal", "greater", "greater_equal", "equal", "not_equal"]:
        yield name, (lambda f: lambda a, b: f(a, b))(getattr(op, name)), [("n", 4), (4,)]
    yield "gelu_tanh", lambda a: op.gelu(a, "tanh"), x
    yield "unsqueeze", lambda a: op.unsqueeze(a, 1), x
    yield "concat", lambda a, b: op.concat([a, b], 0), [("n", 4), ("m", 4)]
    yield "chunk", lambda a: op.chunk(a, 2, 1), x
    yield "split", lambda a: op.split(a, [1, 3], 1), x
    yield "sum", lambda a: op.sum(a, 1, keepdims=True), x
    yield "max", lambda a: op.max(a, 1), x
    yield "min", lambda a: op.min(a, 0), x
    yield "broadcast_to", lambda a: op.broadcast_to(a, (3, a.shape[0], 4)), x
    yield "repeat", lambda a: op.repeat(a, 2, axis=1), x
    yield "reshape", lambda a: op.reshape(a, (2, -1)), [(4, 6)]
    yield "take", lambda a, i: op.take(a, i, axis=0), [(5, 4), (("n",), "int32")]
    yield "astype", lambda a: op.astype(a, "float16"), x
    yield "arange", lambda a: op.add(a, op.arange(0, 4, dtype=F)), x
    yield "full", lambda a: op.add(a, op.full((4,), 2.0, dtype=F)), x
    yield "zeros", lambda a: op.concat([a, op.zeros((2, 4), F)], 0), x
    yield "ones", lambda a: op.concat([a, op.ones((2, 4), F)], 0), x
    yield "pad", lambda a: op.pad(a, [1, 1, 0, 2]), [(3, 4)]
    yield "where", lambda c, a, b: op.where(c, a, b), [(("n", 4), "bool"), ("n", 4), ("n", 4)]
    yield "interpolate", lambda a: op.interpolate(a, scale_factor=2.0, mode="nearest"), [(1, 2, 4, 4)]
    yield "interpolate_size", lambda a: op.interpolate(a, size=(6, 7), mode="bilinear"), [(1, 2, 4, 4)]
    yield "matmul", lambda a, b: op.matmul(a, b, out_dtype=F), [(("n", 4), "float16"), ((4, "m"), "float16")]
    yield "prelu", lambda a, b: op.prelu(a, b), [(2, 4, 3), (4,)]
    yield "sdpa", lambda a: op.scaled_dot_product_attention(a, a, a), [(1, 5, 2, 4)]
    yield "timestep", lambda a: op.get_timestep_embedding(a, 8), [("n",)]
    yield "te", lambda a: op.tensor_expr_op(lambda t: _te(t), "twice", [a]), x
    yield "extern", lambda a: op.extern("my.f", [a], out=nn.Tensor.placeholder(a.shape, F)), x
    yield "uniform", lambda p, u, i: op.multinomial_from_uniform(p, u, i), [(3, 5), (6, 1), ((6, 1), "int64")]
    yield "sample", lambda p, i, u, t, k: op.sample_top_p_top_k_from_sorted_prob(p, i, t, k, u), [(3, 5), ((3, 5), "int64"), (2, 1), (3, 1), ((3, 1), "int64")]
    yield "renorm", lambda p, s, t, k: op.renormalize_top_p_top_k_prob(p, s, t, k), [("b", 5), ("b", 5), ("b", 1), (("b", 1), "int64")]
    yield "allreduce", lambda a: op.ccl_allreduce(a), x


def _te(t):
    from tvm import te

    return te.compute(t.shape, lambda *i: t(*i) * 2, name="twice")


class _Op(nn.Module):
    def __init__(self, f):
        self.f = f

    def forward(self, *args):
        return self.f(*args)


def _method(count):
    names = ", ".join("abcde"[:count])
    scope = {}
    exec(f"def forward(self, {names}):\n    return self.f({names})", scope)
    return type("Op", (_Op,), {"forward": scope["forward"]})


def _spec(shapes):
    out = []
    for s in shapes:
        shape, dtype = s if len(s) == 2 and isinstance(s[1], str) and isinstance(s[0], tuple) else (s, F)
        out.append(spec.Tensor(list(shape), dtype))
    return out


def modules():
    """(name, IRModule); what the frontend refuses is left out."""
    made = [(n, lambda m=m: m, shapes) for n, m, shapes in layers()]
    made += [(f"op_{n}", lambda f=f, s=shapes: _method(len(s))(f), shapes) for n, f, shapes in _ops()]
    made += [("kv_cache", _Cached, [("n", 4)]), ("print", _Printing, [(2, 2)])]
    for name, make, shapes in made:
        for mode, debug in (("plain", False), ("packed", False), ("plain", True)):
            try:
                m = make()
                names = [p for p in inspect.signature(m.forward).parameters][: len(shapes)]
                what = dict(zip(names, _spec(shapes)))
                what["$"] = {"param_mode": mode, "effect_mode": "plain"}
                mod, _ = m.export_tvm({"forward": what}, debug=debug)
                yield f"nn_{name}_{mode}{'_debug' if debug else ''}", mod
            except Exception as error:
                print(f"nn {name} {mode}: {str(error).strip().splitlines()[-1:]}")
    yield from _paged()


def _paged():
    """The paged cache of language models: kernels of the processor, and the object behind packed functions."""
    import tvm
    from tvm import tirx
    from tvm.relax.frontend.nn.llm import kv_cache as kv

    class Model(nn.Module):
        def forward(self, x: nn.Tensor, cache: kv.PagedKVCache):
            n = x.shape[1]
            qkv = op.reshape(x, (1, n, 6, 8))
            o = cache.attention_with_fused_qkv(0, qkv, num_qo_heads=2, sm_scale=8**-0.5)
            return op.reshape(o, (1, n, 16)), cache

    for k in range(2):
        try:
            with tvm.target.Target("llvm"):
                class Whole(Model):
                    def create(self, a: tirx.Var, b: tirx.Var, c: tirx.Var, d: tirx.Var, e: tirx.Var):
                        return kv.TIRPagedKVCache(
                            attn_kind="mha", max_batch_size=a, max_total_seq_len=b, prefill_chunk_size=c, page_size=d, support_sliding_window=e,
                            layer_partition=nn.Tensor.placeholder([2], "int64")._expr if False else __import__("tvm").relax.ShapeExpr([0, 1]), num_hidden_layers=1,
                            num_attention_heads=2, num_key_value_heads=2, qk_head_dim=8, v_head_dim=8, mla_original_qk_head_dim=0, mla_original_v_head_dim=0,
                            rope_mode=kv.RopeMode.NONE, rope_scale=1, rope_theta=10000, rope_scaling={}, rope_ext_factors=None if False else tvm.relax.PrimValue(0) if hasattr(tvm.relax, "PrimValue") else 0,
                            rotary_dim=8, enable_disaggregation=False, dtype=F, target=tvm.target.Target("llvm"))

                m = (Whole if k else Model)()
                what = {"forward": {"x": spec.Tensor([1, "n", 48], F), "cache": spec.Object(object_type=kv.PagedKVCache)}}
                if k:
                    what["create"] = {p: int for p in "abcde"}
                mod, _ = m.export_tvm(what)
                yield f"nn_paged{k}", mod
        except Exception as error:
            print(f"nn paged{k}: {str(error).strip().splitlines()[-1:]}")
