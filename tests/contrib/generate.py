#!/usr/bin/env python3
"""Write the cases of operators of the domain com.microsoft, and a few that the ONNX suite lacks: NAME.onnx, and
NAME.npz with what onnxruntime computes.

    generate.py OUT [--only PART]

Each case is a model of one node, or a graph in ONNX's text form. NAME.npz holds its inputs by name and the results as `result.I`. The recorded cases
lie in tests/contrib/cases; `cargo test --test contrib` compiles each and compares. Needs onnx and onnxruntime.
"""
import argparse
import itertools
import pathlib

import numpy as np
import onnx
import onnx.parser
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(7)
CASES = {}
# Results that onnxruntime computes less exactly.
RESULTS = {}


def f(*shape, lo=-1.0, hi=1.0, dtype="f4"):
    return np.asarray(RNG.uniform(lo, hi, shape)).astype(dtype)


def q(*shape, dtype="u1"):
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


def s(value, dtype="f4"):
    return np.array(value, dtype)


def case(name, op, inputs, n_out=1, attrs=None, constant=(), vary=None, domain="com.microsoft", opset=17, wanted=None):
    """Inputs: name -> array, None for one left out. `constant`: those that the model holds. `vary`: name -> dims
    that get a name. `wanted`: which outputs are named."""
    assert name not in CASES, name
    CASES[name] = (op, inputs, n_out, attrs or {}, set(constant), vary or {}, domain, opset, wanted)


def build(op, inputs, n_out, attrs, constant, vary, domain, opset, wanted):
    infos, weights, names = [], [], []
    for name, value in inputs.items():
        names.append("" if value is None else name)
        if value is None:
            continue
        if name in constant:
            weights.append(numpy_helper.from_array(np.asarray(value), name))
        else:
            shape = [vary.get(name, {}).get(i, d) for i, d in enumerate(value.shape)]
            infos.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), shape))
    outs = [f"y{i}" if wanted is None or i in wanted else "" for i in range(n_out)]
    while names and not names[-1]:
        names.pop()
    node = helper.make_node(op, names, outs, name="the_node", domain=domain, **attrs)
    results = [onnx.ValueInfoProto(name=o) for o in outs if o]
    graph = helper.make_graph([node], "g", infos, results, weights)
    imports = [helper.make_opsetid("", opset)]
    if domain:
        imports.append(helper.make_opsetid(domain, 1))
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def graph(name, text, inputs):
    """A case that is a graph; `inputs`: name -> array."""
    assert name not in CASES, name
    CASES[name] = (text, inputs, 0, {}, set())


def activations():
    x = {"x": {0: "n"}}
    case("gelu", "Gelu", {"x": f(2, 17, lo=-4, hi=4)}, vary=x)
    case("bias_gelu", "BiasGelu", {"x": f(3, 17), "b": f(17)}, vary=x)
    case("fast_gelu", "FastGelu", {"x": f(3, 17, lo=-4, hi=4)}, vary=x)
    case("fast_gelu_bias", "FastGelu", {"x": f(3, 17), "b": f(17)})
    case("quick_gelu", "QuickGelu", {"x": f(3, 17, lo=-4, hi=4)}, vary=x)
    case("quick_gelu_alpha", "QuickGelu", {"x": f(3, 17)}, attrs={"alpha": 1.1})


def dense():
    vary = {"a": {0: "m"}}
    case("fused_matmul", "FusedMatMul", {"a": f(3, 5), "b": f(5, 7)}, attrs={"alpha": 0.5}, vary=vary)
    case("fused_matmul_transa", "FusedMatMul", {"a": f(2, 5, 3), "b": f(2, 5, 7)}, attrs={"transA": 1})
    case("fused_matmul_transb", "FusedMatMul", {"a": f(2, 3, 5), "b": f(7, 5)}, attrs={"transB": 1, "alpha": 2.0})
    case("fused_matmul_both", "FusedMatMul", {"a": f(5, 3), "b": f(7, 5)}, attrs={"transA": 1, "transB": 1})
    case("fused_matmul_batch_a", "FusedMatMul", {"a": f(3, 2, 5), "b": f(2, 5, 7)}, attrs={"transBatchA": 1})
    case("fused_matmul_batch_ab", "FusedMatMul", {"a": f(5, 2, 3), "b": f(7, 2, 5)},
         attrs={"transBatchA": 1, "transA": 1, "transBatchB": 1, "transB": 1})
    case("transpose_matmul", "TransposeMatMul", {"a": f(5, 3), "b": f(5, 7)}, attrs={"transA": 1})
    for act, params in [("Relu", {}), ("LeakyRelu", {"activation_alpha": 0.2}), ("Tanh", {}), ("Sigmoid", {}),
                        ("Softplus", {}), ("Elu", {"activation_alpha": 0.7}),
                        ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4})]:
        case(f"fused_gemm_{act.lower()}", "FusedGemm", {"a": f(3, 5), "b": f(5, 7), "c": f(7)},
             attrs={"activation": act, "alpha": 1.5, "beta": 0.5} | params)
    case("fused_gemm_trans", "FusedGemm", {"a": f(5, 3), "b": f(7, 5)}, attrs={"activation": "Relu", "transA": 1, "transB": 1})
    for act, params in [("Relu", []), ("LeakyRelu", [0.2]), ("Tanh", []), ("Sigmoid", []), ("Clip", [-0.2, 0.3]),
                        ("HardSigmoid", [0.3, 0.4])]:
        attrs = {"activation": act, "kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
        attrs |= {"activation_params": params} if params else {}
        case(f"fused_conv_{act.lower()}", "FusedConv", {"x": f(1, 3, 5, 6), "w": f(4, 3, 3, 3), "b": f(4)}, attrs=attrs)
    case("fused_conv_sum", "FusedConv", {"x": f(1, 3, 5, 6), "w": f(4, 3, 1, 1), "b": f(4), "z": f(1, 4, 5, 6)},
         attrs={"activation": "Relu"})
    case("fused_conv_strides", "FusedConv", {"x": f(2, 4, 7, 8), "w": f(4, 2, 3, 3), "b": f(4)},
         attrs={"activation": "Relu", "group": 2, "strides": [2, 2], "pads": [1, 1, 1, 1]})


def norms():
    vary = {"x": {0: "b", 1: "s"}, "skip": {0: "b", 1: "s"}}
    h = 17
    case("simplified_layer_norm", "SimplifiedLayerNormalization", {"x": f(2, 3, h), "g": f(h)}, domain="", vary=vary)
    case("simplified_layer_norm_eps", "SimplifiedLayerNormalization", {"x": f(2, 3, h), "g": f(h)}, domain="", n_out=2,
         attrs={"axis": -1, "epsilon": 1e-2, "stash_type": 1})
    case("layer_norm", "LayerNormalization", {"x": f(2, 3, h), "g": f(h), "b": f(h)}, domain="", n_out=3, vary=vary)
    case("layer_norm_axis1", "LayerNormalization", {"x": f(2, 3, 5), "g": f(3, 5)}, domain="", attrs={"axis": 1})
    skip = {"x": f(2, 3, h), "skip": f(2, 3, h), "g": f(h)}
    case("skip_layer_norm", "SkipLayerNormalization", skip | {"beta": f(h)}, vary=vary)
    case("skip_layer_norm_bias", "SkipLayerNormalization", skip | {"beta": f(h), "bias": f(h)}, n_out=4, wanted=[0, 3],
         attrs={"epsilon": 1e-3})
    case("skip_layer_norm_no_beta", "SkipLayerNormalization", skip | {"beta": None, "bias": f(h)})
    case("skip_layer_norm_broadcast", "SkipLayerNormalization", skip | {"skip": f(3, h), "beta": f(h)})
    case("skip_layer_norm_broadcast3", "SkipLayerNormalization", skip | {"skip": f(1, 3, h), "beta": f(h)})
    case("skip_simplified", "SkipSimplifiedLayerNormalization", skip, vary=vary)
    case("skip_simplified_bias", "SkipSimplifiedLayerNormalization", skip | {"bias": f(h)}, n_out=4, wanted=[0, 3])
    case("skip_layer_norm_f16", "SkipLayerNormalization",
         {k: v.astype("f2") for k, v in skip.items()} | {"beta": f(h, dtype="f2")})
    ids, words = {"ids": q(2, 5).astype("i4") % 11}, {"words": f(11, h), "places": f(8, h)}
    segments = {"segments": q(2, 5).astype("i4") % 2}
    scale = {"g": f(h), "beta": f(h)}
    vary = {n: {0: "b", 1: "s"} for n in ["ids", "segments", "mask", "at"]}
    case("embed_layer_norm", "EmbedLayerNormalization", ids | segments | words | {"kinds": f(2, h)} | scale, n_out=2, vary=vary)
    mask = {"mask": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], "i4")}
    case("embed_layer_norm_mask", "EmbedLayerNormalization", ids | segments | words | {"kinds": f(2, h)} | scale | mask,
         n_out=2, vary=vary, attrs={"epsilon": 1e-5})
    case("embed_layer_norm_no_segments", "EmbedLayerNormalization",
         ids | {"segments": None} | words | {"kinds": None} | scale, n_out=3, wanted=[0, 2])
    case("embed_layer_norm_positions", "EmbedLayerNormalization",
         ids | segments | words | {"kinds": f(2, h)} | scale | mask | {"at": q(2, 5).astype("i4") % 8}, n_out=2)


def attention():
    b, t, n, d = 2, 5, 2, 4
    h = n * d
    vary = {"x": {0: "b", 1: "s"}}
    base = {"x": f(b, t, 6), "w": f(6, 3 * h), "bias": f(3 * h)}
    heads = {"num_heads": n}
    case("attention", "Attention", base, attrs=heads, vary=vary)
    case("attention_causal", "Attention", base, attrs=heads | {"unidirectional": 1}, vary=vary)
    case("attention_scale", "Attention", base, attrs=heads | {"scale": 0.3})
    raw = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], "i4")
    case("attention_mask", "Attention", base | {"mask": raw}, attrs=heads,
         vary={"x": {0: "b", 1: "s"}, "mask": {0: "b", 1: "s"}})
    case("attention_mask_filter", "Attention", base | {"mask": raw}, attrs=heads | {"mask_filter_value": -3.0})
    case("attention_mask_ends", "Attention", base | {"mask": np.array([3, 5], "i4")}, attrs=heads)
    case("attention_mask_begins", "Attention", base | {"mask": np.array([3, 5, 1, 0], "i4")}, attrs=heads)
    case("attention_mask_3d", "Attention", base | {"mask": (q(b, t, t) > 60).astype("i4")}, attrs=heads)
    past = {"past": f(2, b, n, 3, d)}
    case("attention_past", "Attention", base | {"mask": None} | past, n_out=2, attrs=heads | {"unidirectional": 1},
         vary={"x": {1: "s"}, "past": {3: "p"}})
    case("attention_past_mask", "Attention", base | {"mask": (q(b, t + 3) > 60).astype("i4")} | past, n_out=2, attrs=heads)
    case("attention_present", "Attention", base, n_out=2, attrs=heads)
    case("attention_bias_added", "Attention", base | {"mask": None, "past": None, "more": f(1, n, t, t)}, attrs=heads)
    case("attention_sizes", "Attention", {"x": f(b, t, 6), "w": f(6, 8 + 8 + 12), "bias": f(28)},
         attrs=heads | {"qkv_hidden_sizes": [8, 8, 12]})

    qkv = {"q": f(b, t, h), "k": f(b, 7, h), "v": f(b, 7, h)}
    case("mha", "MultiHeadAttention", qkv, attrs=heads, vary={"q": {0: "b", 1: "s"}, "k": {0: "b", 1: "t"}, "v": {0: "b", 1: "t"}})
    case("mha_bias", "MultiHeadAttention", qkv | {"bias": f(3 * h)}, attrs=heads)
    case("mha_value_size", "MultiHeadAttention", qkv | {"v": f(b, 7, 12)}, attrs=heads | {"scale": 0.4})
    case("mha_causal", "MultiHeadAttention", qkv | {"k": f(b, t, h), "v": f(b, t, h)}, attrs=heads | {"unidirectional": 1})
    case("mha_mask", "MultiHeadAttention", qkv | {"bias": None, "mask": (q(b, 7) > 90).astype("i4")}, attrs=heads)
    case("mha_mask_lengths", "MultiHeadAttention", qkv | {"bias": None, "mask": np.array([4, 7], "i4")}, attrs=heads)
    case("mha_mask_3d", "MultiHeadAttention", qkv | {"bias": None, "mask": (q(b, t, 7) > 90).astype("i4")}, attrs=heads)
    case("mha_bias_added", "MultiHeadAttention", qkv | {"bias": None, "mask": None, "more": f(b, n, t, 7)}, attrs=heads)
    case("mha_bias_added_1", "MultiHeadAttention", qkv | {"bias": None, "mask": None, "more": f(1, 1, t, 7)}, attrs=heads)
    more = {"bias": None, "mask": None, "more": None, "past_k": f(b, n, 3, d), "past_v": f(b, n, 3, d)}
    case("mha_past", "MultiHeadAttention", qkv | more, n_out=3, attrs=heads,
         vary={"past_k": {2: "p"}, "past_v": {2: "p"}})
    case("mha_past_bias", "MultiHeadAttention", qkv | more | {"bias": f(3 * h)}, n_out=3, attrs=heads)
    case("mha_cross", "MultiHeadAttention", {"q": f(b, t, h), "k": f(b, n, 7, d), "v": f(b, n, 7, d)}, attrs=heads)
    case("mha_cross_bias", "MultiHeadAttention", {"q": f(b, t, h), "k": f(b, n, 7, d), "v": f(b, n, 7, d), "bias": f(3 * h)}, attrs=heads)

    half = 4
    caches = {"cos": np.cos(f(16, half)), "sin": np.sin(f(16, half))}
    at = (q(b, t) % 16).astype("i8")
    x3, x4 = {"x": f(b, t, 16)}, {"x": f(b, 2, t, 8)}
    case("rotary_3d", "RotaryEmbedding", x3 | {"at": at} | caches, vary={"x": {0: "b", 1: "s"}, "at": {0: "b", 1: "s"}})
    case("rotary_4d", "RotaryEmbedding", x4 | {"at": at} | caches)
    case("rotary_offset", "RotaryEmbedding", x3 | {"at": np.array([3], "i8")} | caches, vary={"x": {0: "b", 1: "s"}})
    case("rotary_interleaved", "RotaryEmbedding", x4 | {"at": at} | caches, attrs={"interleaved": 1})
    case("rotary_part", "RotaryEmbedding", {"x": f(b, t, 24)} | {"at": at} | caches,
         attrs={"rotary_embedding_dim": 8, "num_heads": 2})

    n, m, d = 4, 2, 16
    heads = {"num_heads": n, "kv_num_heads": m}
    cos = {"cos": np.cos(f(16, d // 2)), "sin": np.sin(f(16, d // 2))}

    def gqa(name, s_, past, lens, total, attrs=None, rotary=False, packed=False, b=b, **rest):
        new = {"q": f(b, s_, (n + 2 * m) * d if packed else n * d)}
        new |= {"k": None, "v": None} if packed else {"k": f(b, s_, m * d), "v": f(b, s_, m * d)}
        new |= {"past_k": f(b, m, past, d), "past_v": f(b, m, past, d)} if past is not None else {"past_k": None, "past_v": None}
        new |= {"lens": np.array(lens, "i4") - 1, "total": s(total, "i4")}
        new |= cos if rotary else {"cos": None, "sin": None}
        vary = {"q": {1: "s"}, "past_k": {2: "p"}, "past_v": {2: "p"}}
        if not packed:
            vary |= {"k": {1: "s"}, "v": {1: "s"}}
        case(f"gqa_{name}", "GroupQueryAttention", new | rest, n_out=3,
             attrs=heads | (attrs or {}) | ({"do_rotary": 1} if rotary else {}), vary=vary)

    gqa("prompt", 5, None, [5, 5], 5)
    gqa("prompt_padded", 5, None, [5, 3], 5)
    gqa("step", 1, 6, [7, 7], 7)
    gqa("step_lengths", 1, 6, [7, 4], 7)
    gqa("step_rotary", 1, 6, [7, 4], 7, rotary=True)
    gqa("prompt_rotary", 5, None, [5, 5], 5, rotary=True)
    gqa("prompt_rotary_interleaved", 5, None, [5, 5], 5, rotary=True, attrs={"rotary_interleaved": 1})
    gqa("packed", 1, 6, [7, 7], 7, packed=True, rotary=True)
    gqa("packed_prompt", 4, 0, [4, 4], 4, packed=True)
    gqa("window", 1, 6, [7, 7], 7, attrs={"local_window_size": 3})
    gqa("window_prompt", 6, None, [6, 6], 6, attrs={"local_window_size": 2})
    gqa("softcap", 1, 6, [7, 7], 7, attrs={"softcap": 2.0})
    gqa("smooth", 1, 6, [7, 7], 7, attrs={"smooth_softmax": 1})
    gqa("scale", 1, 6, [7, 7], 7, attrs={"scale": 0.21})
    gqa("continued", 3, 4, [7], 7, b=1)
    gqa("positions", 1, 6, [7, 7], 7, rotary=True, at=np.array([[6], [2]], "i8"))
    gqa("bias", 1, 6, [7, 7], 7, at=None, bias=f(b, n, 1, 7))
    gqa("sink", 1, 6, [7, 7], 7, at=None, bias=None, sink=f(n))


def quantised():
    x, y = q(2, 3, 5), q(2, 3, 5)
    params = {"xs": s(0.02), "xz": s(120, "u1"), "y": y, "ys": s(0.03), "yz": s(130, "u1"), "zs": s(0.04), "zz": s(125, "u1")}
    for op in ["Add", "Mul"]:
        case(f"qlinear_{op.lower()}", f"QLinear{op}", {"x": x} | params, vary={"x": {0: "n"}, "y": {0: "n"}})
        case(f"qlinear_{op.lower()}_broadcast", f"QLinear{op}", {"x": x} | params | {"y": q(5)})
        signed = {"x": q(2, 17, dtype="i1"), "xs": s(0.02), "xz": s(3, "i1"), "y": q(2, 17, dtype="i1"), "ys": s(0.03),
                  "yz": s(-7, "i1"), "zs": s(0.01), "zz": s(11, "i1")}
        case(f"qlinear_{op.lower()}_signed", f"QLinear{op}", signed)
    for dtype in ["u1", "i1"]:
        one = {"x": q(2, 33, dtype=dtype), "xs": s(0.05), "xz": s(7, dtype), "ys": s(1 / 256), "yz": s(-128 if dtype == "i1" else 0, dtype)}
        fixed = ["xs", "xz", "ys", "yz"]
        case(f"qlinear_sigmoid_{dtype}", "QLinearSigmoid", one, constant=fixed, vary={"x": {0: "n"}})
        case(f"qlinear_leaky_relu_{dtype}", "QLinearLeakyRelu", one | {"ys": s(0.03), "yz": s(20, dtype)}, constant=fixed, attrs={"alpha": 0.2})
        case(f"qlinear_softmax_{dtype}", "QLinearSoftmax", one, constant=fixed, attrs={"axis": -1, "opset": 13})
        pool = {"x": q(1, 3, 6, 7, dtype=dtype), "xs": s(0.05), "xz": s(7, dtype), "ys": s(0.04), "yz": s(9, dtype)}
        case(f"qlinear_average_pool_{dtype}", "QLinearAveragePool", pool, constant=fixed,
             attrs={"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]})
        case(f"qlinear_global_average_pool_{dtype}", "QLinearGlobalAveragePool", pool, constant=fixed, attrs={"channels_last": 0})
    case("qlinear_average_pool_include", "QLinearAveragePool", pool, constant=fixed,
         attrs={"kernel_shape": [3, 2], "pads": [1, 1, 1, 0], "count_include_pad": 1})
    case("qlinear_average_pool_last", "QLinearAveragePool", pool | {"x": q(1, 6, 7, 3, dtype="i1")}, constant=fixed,
         attrs={"kernel_shape": [2, 2], "channels_last": 1})
    case("qlinear_global_average_pool_last", "QLinearGlobalAveragePool", pool | {"x": q(1, 6, 7, 3, dtype="i1")}, constant=fixed,
         attrs={"channels_last": 1})
    cat = {"zs": s(0.05), "zz": s(100, "u1"), "a": q(2, 3), "as_": s(0.04), "az": s(110, "u1"), "b": q(2, 5), "bs": s(0.05), "bz": s(100, "u1")}
    case("qlinear_concat", "QLinearConcat", cat, attrs={"axis": 1}, vary={"a": {1: "n"}},
         constant=[k for k in cat if k not in ("a", "b")])
    where = {"c": q(2, 5) > 120, "x": q(2, 5), "xs": s(0.04), "xz": s(110, "u1"), "y": q(2, 5), "ys": s(0.05), "yz": s(100, "u1"),
             "zs": s(0.06), "zz": s(90, "u1")}
    case("qlinear_where", "QLinearWhere", where, constant=["xs", "xz", "ys", "yz", "zs", "zz"])

    b = q(6, 9, dtype="i1")
    case("dynamic_quantize_matmul", "DynamicQuantizeMatMul", {"a": f(3, 6), "b": b, "s": s(0.02)}, vary={"a": {0: "m"}})
    case("dynamic_quantize_matmul_bias", "DynamicQuantizeMatMul", {"a": f(2, 3, 6), "b": q(6, 9), "s": s(0.02), "z": s(120, "u1"), "bias": f(9)})
    case("dynamic_quantize_matmul_columns", "DynamicQuantizeMatMul", {"a": f(3, 6), "b": b, "s": f(9, lo=0.01, hi=0.03), "z": np.zeros(9, "i1"), "bias": f(9)},
         constant=["b", "s", "z", "bias"])
    mm = {"a": q(3, 6), "b": q(6, 9), "as_": s(0.02), "bs": s(0.03), "az": s(120, "u1"), "bz": s(110, "u1"), "bias": f(9)}
    case("matmul_integer_to_float", "MatMulIntegerToFloat", mm, vary={"a": {0: "m"}})
    case("matmul_integer_to_float_no_zero", "MatMulIntegerToFloat", {k: mm[k] for k in ["a", "b", "as_", "bs"]})
    case("matmul_integer_to_float_columns", "MatMulIntegerToFloat", mm | {"b": b, "bs": f(9, lo=0.01, hi=0.03), "bz": q(9, dtype="i1")})
    gemm = {"a": q(3, 6), "as_": s(0.02), "az": s(120, "u1"), "b": b, "bs": s(0.03), "bz": s(3, "i1"),
            "c": q(9).astype("i4") * 5, "ys": s(0.1), "yz": s(99, "u1")}
    fixed = [k for k in gemm if k != "a"]
    case("qgemm", "QGemm", gemm, vary={"a": {0: "m"}}, constant=fixed)
    case("qgemm_trans", "QGemm", gemm | {"b": np.ascontiguousarray(b.T)}, attrs={"transB": 1}, constant=fixed)
    case("qgemm_float", "QGemm", {k: v for k, v in gemm.items() if k not in ("ys", "yz")}, attrs={"alpha": 1.5}, constant=fixed)
    case("qgemm_columns", "QGemm", gemm | {"bs": f(9, lo=0.01, hi=0.03), "bz": np.zeros(9, "i1")}, constant=fixed)
    k, n = 70, 9
    for bits, block in [(4, 32), (8, 32), (2, 32), (4, 16)]:
        blocks = -(-k // block)
        blob = block * bits // 8
        base = {"a": f(3, k), "b": q(n, blocks, blob), "s": f(n, blocks, lo=0.01, hi=0.1)}
        attrs = {"K": k, "N": n, "bits": bits, "block_size": block}
        case(f"matmul_nbits_{bits}_{block}", "MatMulNBits", base, attrs=attrs, constant=["b", "s"], vary={"a": {0: "m"}})
        row = -(-blocks * bits // 8)
        case(f"matmul_nbits_{bits}_{block}_zero", "MatMulNBits", base | {"z": q(n, row)}, attrs=attrs, constant=["b", "s", "z"])
    case("matmul_nbits_float_zero", "MatMulNBits", base | {"z": f(n, blocks, lo=5, hi=9)}, attrs=attrs, constant=["b", "s", "z"])
    case("matmul_nbits_bias", "MatMulNBits", base | {"z": None, "g": None, "bias": f(n)}, attrs=attrs, constant=["b", "s", "bias"])
    h = 8
    qa = {"x": q(2, 5, 6), "w": q(6, 3 * h, dtype="i1"), "bias": f(3 * h), "xs": s(0.01), "ws": s(0.02), "mask": None,
          "xz": s(120, "u1"), "wz": s(0, "i1")}
    case("qattention", "QAttention", qa, attrs={"num_heads": 2}, vary={"x": {0: "b", 1: "s"}})
    case("qattention_mask", "QAttention", qa | {"mask": np.array([3, 5], "i4")}, attrs={"num_heads": 2})
    case("qattention_causal", "QAttention", qa, attrs={"num_heads": 2, "unidirectional": 1})
    case("qattention_columns", "QAttention", qa | {"ws": f(3 * h, lo=0.01, hi=0.03), "wz": np.zeros(3 * h, "i1")},
         attrs={"num_heads": 2}, constant=["w", "ws", "wz"])
    for dtype in ["u1", "i1", "u2", "i2"]:
        case(f"quantize_linear_{dtype}", "QuantizeLinear", {"x": f(3, 5), "s": s(0.01), "z": s(5, dtype)})
        case(f"dequantize_linear_{dtype}", "DequantizeLinear", {"x": q(3, 5, dtype=dtype), "s": s(0.01), "z": s(5, dtype)})
    case("dequantize_linear_i4", "DequantizeLinear", {"x": q(3, 5).astype("i4"), "s": s(0.01)})
    case("quantize_linear_axis", "QuantizeLinear", {"x": f(3, 5), "s": f(5, lo=0.01, hi=0.02), "z": q(5)}, attrs={"axis": 1})


def layouts():
    case("trilu", "Trilu", {"x": f(2, 4, 5)}, attrs={"upper": 0}, vary={"x": {0: "n"}})
    case("expand_dims", "ExpandDims", {"x": f(3, 5), "axis": s(1, "i4")}, constant=["axis"])
    case("cdist", "CDist", {"a": f(4, 3), "b": f(5, 3)}, attrs={"metric": "euclidean"}, vary={"a": {0: "n"}})
    case("cdist_squared", "CDist", {"a": f(4, 3), "b": f(5, 3)}, attrs={"metric": "sqeuclidean"})
    case("nhwc_max_pool", "NhwcMaxPool", {"x": q(1, 6, 7, 3)}, attrs={"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]})
    case("gather_nd", "GatherND", {"x": f(3, 5), "i": np.array([[0, 1], [2, 3]], "i8")})
    case("pad", "Pad", {"x": f(2, 3), "p": np.array([0, 1, 1, 0], "i8"), "v": f()}, constant=["p"])


def same_size():
    """Padding that follows dims that vary, as TensorFlow's exporters write it."""
    vary = {"x": {0: "n", 2: "h", 3: "w"}}
    for mode, size in itertools.product(["SAME_UPPER", "SAME_LOWER"], [(7, 10), (8, 9)]):
        tag = f"{mode.split('_')[1].lower()}_{size[0]}"
        x = {"x": f(2, 3, *size)}
        for name, kernel, strides in [("conv", [3, 4], [2, 3]), ("conv_far", [2, 1], [3, 2])]:
            case(f"same_{name}_{tag}", "Conv", x | {"w": f(4, 3, *kernel)}, constant=["w"], domain="", vary=vary,
                 attrs={"auto_pad": mode, "strides": strides})
        for op in ["MaxPool", "AveragePool"]:
            for k, more in enumerate([{}, {"count_include_pad": 1}] if op == "AveragePool" else [{}]):
                case(f"same_{op.lower()}{k}_{tag}", op, x, domain="", vary=vary,
                     attrs={"auto_pad": mode, "strides": [2, 3], "kernel_shape": [3, 4]} | more)


def sums_of_bytes():
    """Sums that stay in int32: rows that are open, few, one more than a tile has; weights beyond int8; signed data."""
    held = ["b", "zb", "w", "zw"]
    rows = {"a": {0: "batch", 1: "time"}}
    case("bytes_product_open", "MatMulInteger", {"a": q(5, 8, 64), "b": q(64, 30), "za": q(), "zb": np.uint8(121)},
         constant=held, domain="", vary=rows)
    case("bytes_product_few", "MatMulInteger", {"a": q(3, 128), "b": q(128, 64, dtype="i1"), "za": q()},
         constant=held, domain="")
    case("bytes_product_tiles", "MatMulInteger", {"a": q(33, 64), "b": q(64, 112, dtype="i1"), "za": q()},
         constant=held, domain="")
    case("bytes_product_signed", "MatMulInteger", {"a": q(18, 20, dtype="i1"), "b": q(20, 64, dtype="i1")},
         constant=held, domain="")
    for name, channels, kernel, attrs in [
        ("window", (6, 20), (3, 3), {"pads": [1, 0, 2, 1], "strides": [1, 2]}),
        ("tiles", (64, 48), (3, 3), {"pads": [1, 1, 1, 1]}),
        ("point", (64, 128), (1, 1), {}),
    ]:
        inputs = {"x": q(2, channels[0], 9, 17), "w": q(channels[1], channels[0], *kernel), "zx": q(), "zw": np.uint8(131)}
        case(f"bytes_conv_{name}", "ConvInteger", inputs, constant=held, attrs=attrs, domain="")


def signals():
    """Transforms of known lengths, also of fewer elements and of parts; distinct elements."""
    n = np.array(24)
    case("transform", "DFT", {"x": f(2, 20, 1), "n": n}, constant=["n"], attrs={"axis": 1}, domain="")
    case("transform_half", "DFT", {"x": f(2, 24, 1), "n": n}, constant=["n"], attrs={"axis": 1, "onesided": 1}, domain="")
    case("transform_back", "DFT", {"x": f(2, 24, 2), "n": n}, constant=["n"], attrs={"axis": 1, "inverse": 1}, domain="")
    inputs = {"x": f(2, 50, 1), "step": np.array(7), "w": f(16), "n": np.array(16)}
    case("transform_windows", "STFT", inputs, constant=["step", "w", "n"], domain="")
    large = f(4, 6) * 300
    large[1, 2], large[2], large[3, 1] = np.inf, -np.inf, np.nan
    for keep in [0, 1]:
        case(f"log_sum_exp_large{keep}", "ReduceLogSumExp", {"x": large}, attrs={"axes": [1], "keepdims": keep}, domain="",
             vary={"x": {0: "rows"}})
    for sort in [0, 1]:
        case(f"distinct_{sort}", "Unique", {"x": np.round(f(7, 9, hi=5))}, attrs={"sorted": sort}, n_out=4, domain="")


def numbers():
    """What is no number stays none; powers of integers by floats."""
    x = f(5, 37, lo=-3, hi=3)
    x[0, :3] = x[2, 17:] = np.nan
    y = f(5, 37)
    y[1, 4] = y[2, 36] = y[4, 30:] = np.nan
    opens = {"x": {0: "rows"}}
    for op in ["Relu", "Elu", "Selu", "Celu", "HardSigmoid", "HardSwish", "LeakyRelu", "Sigmoid", "Tanh", "Softplus", "Sign", "Abs"]:
        case(f"nan_{op.lower()}", op, {"x": x}, domain="", vary=opens)
    for op in ["Max", "Min"]:
        case(f"nan_{op.lower()}", op, {"x": x, "y": y}, domain="")
        case(f"nan_{op.lower()}_of_three", op, {"x": x, "y": y, "z": x[:1]}, domain="")
        case(f"nan_{op.lower()}_constant", op, {"x": x, "c": s(0.5)}, domain="", constant=["c"], vary=opens)
        case(f"nan_{op.lower()}_behind_constant", op, {"c": s(0.5), "x": x}, domain="", constant=["c"], vary=opens)
    case("nan_clip", "Clip", {"x": x, "low": s(-0.5), "high": s(0.5)}, domain="", constant=["low", "high"], vary=opens)
    base = np.arange(-4, 12).reshape(2, 8)
    for dtype in ["i4", "i8"]:
        exponent = np.where(base < 0, 2, 0.5).astype("f4")
        case(f"power_{dtype}_by_floats", "Pow", {"x": base.astype(dtype), "e": exponent}, domain="", vary=opens)


def extremes():
    """Windows and regions that are much larger than what they are of."""
    x = f(2, 5, 3, 4)
    for size in [9, 40_001]:
        case(f"lrn_{size}", "LRN", {"x": x}, domain="", attrs={"size": size, "alpha": 0.5})
        case(f"lrn_{size}_open", "LRN", {"x": x}, domain="", attrs={"size": size, "alpha": 0.5}, vary={"x": {1: "c"}})
    rois = s([[0, 0, 3, 2], [-400, -300, 500, 700], [-2, -1, 3.5, 900], [1, 1, 1.2, 1.1], [700, 800, 900, 950], [3, 2, -5, -4]])
    inputs = {"x": f(2, 3, 7, 9), "rois": rois, "batch": np.array([0, 1, 0, 1, 0, 1])}
    for mode in ["avg", "max"]:
        for how in ["half_pixel", "output_half_pixel"]:
            attrs = {"mode": mode, "coordinate_transformation_mode": how, "output_height": 2, "output_width": 3}
            case(f"roi_align_far_{mode}_{how}", "RoiAlign", inputs, domain="", attrs=attrs)


# What PyTorch writes for `y = x.squeeze(2)` of an open dim, and what asks for the rank of `y` after it.
SQUEEZED = """<ir_version: 8, opset_import: ["" : 17]>
squeezed (float[b, 4, n] x) => (float[b, 5] out) <float[4, 5] w = {%s}> {
    shape = Shape (x)
    one = Constant <value = int64[1] {1}> ()
    two = Constant <value = int64 {2}> ()
    first = Constant <value = int64[1] {0}> ()
    last = Constant <value = int64[1] {2}> ()
    n = Gather (shape, last)
    is_one = Equal (n, one)
    y = If (is_one) <
        then_branch = squeezes () => (yes) { yes = Squeeze (x, last) },
        else_branch = keeps () => (no) { no = Identity (x) }>
    dims = Shape (y)
    rank = Size (dims)
    flat = Equal (rank, two)
    alone = Not (flat)
    z = If (alone) <
        then_branch = widens () => (wide) { wide = Unsqueeze (y, first) },
        else_branch = leaves () => (same) { same = Identity (y) }>
    product = Gemm (z, w)
    b = Gather (shape, first)
    single = Equal (b, one)
    row = If (single) <
        then_branch = drops () => (dropped) { dropped = Squeeze (product, first) },
        else_branch = holds () => (held) { held = Identity (product) }>
    to = Constant <value = int64[2] {-1, 5}> ()
    out = Reshape (row, to)
}"""
# Slices that end before every dim, and what comes of their sizes.
REVERSED = """<ir_version: 8, opset_import: ["" : 17]>
reversed (float[b, n] x) => (float[b, m] out) {
    from = Constant <value = int64[1] {2}> ()
    least = Constant <value = int64[1] {-9223372036854775808}> ()
    axis = Constant <value = int64[1] {1}> ()
    back = Constant <value = int64[1] {-1}> ()
    head = Slice (x, from, least, axis, back)
    tail = Slice (x, back, least, axis, back)
    most = Constant <value = int64[1] {9223372036854775807}> ()
    all = Slice (x, least, most, axis)
    joined = Concat <axis = 1> (head, x, tail, all)
    sums = CumSum (joined, axis)
    out = Softmax <axis = 1> (sums)
}"""


def structures():
    text = SQUEEZED % ", ".join(f"{v:.3f}" for v in f(20))
    graph("squeezed_if_one", text, {"x": f(3, 4, 1)})
    graph("squeezed_if_one_batch_of_one", text, {"x": f(1, 4, 1)})
    graph("slices_to_before_the_first", REVERSED, {"x": f(2, 7)})
    graph("slices_to_before_the_first_short", REVERSED, {"x": f(2, 2)})


def loop_body(states, nodes, outs, scans=()):
    """A body of these states, the name behind a step of each, and names of scan outputs; `go` is its condition."""
    info = lambda n: helper.make_tensor_value_info(n, TensorProto.FLOAT, None)
    ins = [helper.make_tensor_value_info("i", TensorProto.INT64, []), helper.make_tensor_value_info("go_on", TensorProto.BOOL, [])]
    constants = [numpy_helper.from_array(s(7), "limit"), numpy_helper.from_array(s(0.5), "half")]
    outs = [helper.make_tensor_value_info("go", TensorProto.BOOL, []), *map(info, [*outs, *scans])]
    nodes = [helper.make_node(op, inputs, outputs, **attrs) for op, inputs, outputs, attrs in nodes]
    return helper.make_graph(nodes, "body", ins + [info(n) for n in states], outs, constants)


def settling():
    """Loops whose states become what they stay in their first steps: more dims than before them."""
    grow = [("Cast", ["i"], ["at"], {"to": TensorProto.FLOAT}), ("Add", ["at", "half"], ["factor"], {}), ("Mul", ["x", "factor"], ["part"], {}),
            ("Add", ["sum", "part"], ["next"], {}), ("ReduceSum", ["next"], ["all"], {"keepdims": 0}), ("Less", ["all", "limit"], ["go"], {})]
    body = loop_body(["sum", "x"], grow, ["next", "x"], ["next"])
    for name, x in [("", s([0.3, 0.1, 0.2])), ("_at_once", s([4, 5, 6]))]:
        inputs = {"n": np.array(20), "start": np.array(True), "sum": s(0), "x": x}
        case(f"loop_settles{name}", "Loop", inputs, n_out=3, attrs={"body": body}, constant=["n", "start", "sum"], vary={"x": {0: "n"}}, domain="")
    shift = [("Mul", ["x", "half"], ["new"], {}), ("Identity", ["go_on"], ["go"], {})]
    inputs = {"n": np.array(1500), "start": None, "early": s(1), "late": s([2, 3]), "x": f(2, 2)}
    case("loop_settles_later", "Loop", inputs, n_out=3, attrs={"body": loop_body(["early", "late", "x"], shift, ["late", "new", "x"])},
         constant=["n", "early", "late"], domain="")


def transforms():
    """DFT of lengths that are worth several stages, and of one that is prime: along other axes, backwards, of real elements with
    half of the terms, of fewer elements than the length."""
    for name, shape, axis, length, flags in [
        ("along", (2, 3, 768, 2), 2, None, {}),
        ("across", (180, 5, 2), 0, None, {}),
        ("back", (2, 512, 2), 1, None, {"inverse": 1}),
        ("real", (3, 600, 1), 1, None, {}),
        ("half", (2, 1000, 1), 1, 1024, {"onesided": 1}),
        ("long", (1, 2048, 2), 1, 6000, {}),
        ("prime", (1, 211, 2), 1, None, {}),
        ("twice_prime", (2, 422, 2), 1, None, {}),
        ("open", (3, 240, 2), 1, None, {}),
    ]:
        inputs = {"x": f(*shape)} | ({"n": np.array(length)} if length else {})
        # In float64: onnxruntime's transforms of lengths that are no power of 2 are off by 5e-4.
        x = inputs["x"].astype("f8")
        x = x[..., 0] + (1j * x[..., 1] if shape[-1] == 2 else 0)
        y = (np.fft.ifft if "inverse" in flags else np.fft.fft)(x, n=length, axis=axis)
        if "onesided" in flags:
            y = y.take(range(y.shape[axis] // 2 + 1), axis)
        RESULTS[f"stages_{name}"] = [np.stack([y.real, y.imag], -1).astype("f4")]
        case(f"stages_{name}", "DFT", inputs, constant=["n"], attrs={"axis": axis} | flags, domain="",
             vary={"x": {0: "batch"}} if name == "open" else None)


def recurrences():
    """Results are those of the LSTM over the values of the weights."""
    n, k, h = 3, 5, 6
    for name, directions, dtype, columns in [("", 1, "i1", False), ("_both", 2, "u1", False), ("_columns", 2, "i1", True)]:
        of = (directions, 4 * h) if columns else (directions,)
        inputs = {"x": f(4, n, k), "w": q(directions, k, 4 * h, dtype=dtype), "r": q(directions, h, 4 * h, dtype=dtype), "b": f(directions, 8 * h),
                  "lengths": None, "h": f(directions, n, h), "c": f(directions, n, h), "p": None,
                  "ws": f(*of, lo=0.002, hi=0.004), "wz": np.full(of, 0 if columns else 3, dtype),
                  "rs": f(*of, lo=0.002, hi=0.004), "rz": np.full(of, 0 if dtype == "i1" else 120, dtype)}
        attrs = {"hidden_size": h, "direction": "bidirectional" if directions == 2 else "forward"}
        case(f"dynamic_quantize_lstm{name}", "DynamicQuantizeLSTM", inputs, n_out=3, attrs=attrs, vary={"x": {0: "steps"}},
             constant=["w", "r", "b", "ws", "wz", "rs", "rz"])


def in_floats(model):
    """The model with the weights of a DynamicQuantizeLSTM as floats: data and states are not quantised."""
    node = model.graph.node[0]
    held = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    for i, at in [(1, 8), (2, 10)]:
        w, scale, zero = (held[node.input[j]].astype("f4") for j in [i, at, at + 1])
        wide = lambda t: t.reshape(t.shape[0], 1, -1)
        values = ((w - wide(zero)) * wide(scale)).transpose(0, 2, 1)
        model.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(values), f"floats_{i}"))
        node.input[i] = f"floats_{i}"
    node.op_type, node.domain = "LSTM", ""
    del node.input[7:]


PARTS = [
    activations, dense, norms, attention, quantised, layouts, same_size, sums_of_bytes,
    signals, numbers, extremes, structures, settling, recurrences, transforms,
]


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("out", type=pathlib.Path)
    a.add_argument("--only", default="")
    a = a.parse_args()
    a.out.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        part()
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    failed = 0
    for name, args in CASES.items():
        if a.only not in name:
            continue
        model = onnx.parser.parse_model(args[0]) if args[0].startswith("<") else build(*args)
        feeds = {k: v for k, v in args[1].items() if v is not None and k not in args[4]}
        asked = onnx.ModelProto.FromString(model.SerializeToString())
        if args[0] == "DynamicQuantizeLSTM":
            in_floats(asked)
        try:
            results = RESULTS.get(name)
            if results is None:
                results = onnxruntime.InferenceSession(asked.SerializeToString(), options).run(None, feeds)
        except Exception as e:
            failed += 1
            print(f"{name}: onnxruntime: {str(e)[:300]}")
            continue
        onnx.save(model, a.out / f"{name}.onnx")
        np.savez(a.out / f"{name}.npz", **feeds, **{f"result.{i}": r for i, r in enumerate(results)})
    print(f"{len(CASES) - failed} cases, {failed} that onnxruntime refuses")


if __name__ == "__main__":
    main()
