#!/usr/bin/env python3
"""Write networks of one operator each, of sizes that take microseconds and more: NAME.onnx and NAME.npz (its arguments).

    operators.py OUT [NAME ..]

benches/networks/networks.py OUT puts them beside other runtimes, and their results beside onnxruntime's. What is there
already stays. Needs onnx.
"""
import os
import sys

import numpy as np
import onnx
from onnx import helper, numpy_helper

OUT, WANTED = sys.argv[1], sys.argv[2:]
RANDOM = np.random.default_rng(1)
CASES = []


def floats(*shape):
    return RANDOM.standard_normal(shape).astype("float32")


def positive(*shape):
    return np.abs(floats(*shape)) + np.float32(0.1)


def below(limit, *shape):
    return RANDOM.integers(0, limit, shape).astype("int64")


def bits(*shape):
    return floats(*shape) > 0


def ints(*values):
    return np.array(values, "int64")


def case(name, operator, inputs, constants=(), outputs=1, **attributes):
    """`operator` of arguments and of constants behind them (None is an input that is left out)."""
    CASES.append((name, operator, inputs, constants, outputs, attributes))


PICTURE = (1, 64, 56, 56)
HALF = np.array([1, 1, 0.5, 0.5], "float32")
TWICE = np.array([1, 1, 2, 2], "float32")


def moving():
    case("gather_rows", "Gather", [floats(5000, 128), below(5000, 2000)], axis=0)
    case("gather_columns", "Gather", [floats(512, 256), below(256, 128)], axis=1)
    case("gather_elements", "GatherElements", [floats(1024, 256), below(1024, 512, 256)], axis=0)
    case("gather_nd", "GatherND", [floats(64, 64, 64), below(64, 4096, 2)])
    case("scatter_nd", "ScatterND", [floats(1000, 64), below(1000, 5000, 1), floats(5000, 64)], reduction="add")
    data, at, new = floats(1024, 128), below(1024, 2048, 128), floats(2048, 128)
    case("scatter_elements", "ScatterElements", [data, at, new], reduction="add", axis=0)
    case("one_hot", "OneHot", [below(100, 2048)], [ints(100), np.array([0, 1], "float32")])
    case("pad_zeros", "Pad", [floats(*PICTURE)], [ints(0, 0, 1, 1, 0, 0, 1, 1)])
    case("pad_reflect", "Pad", [floats(*PICTURE)], [ints(0, 0, 3, 3, 0, 0, 3, 3)], mode="reflect")
    case("pad_edge", "Pad", [floats(*PICTURE)], [ints(0, 0, 3, 3, 0, 0, 3, 3)], mode="edge")
    case("tile", "Tile", [floats(64, 256)], [ints(8, 4)])
    case("depth_to_space", "DepthToSpace", [floats(1, 64, 64, 64)], blocksize=2)
    case("space_to_depth", "SpaceToDepth", [floats(1, 16, 128, 128)], blocksize=2)
    case("transpose_heads", "Transpose", [floats(1, 128, 12, 64)], perm=[0, 2, 1, 3])
    case("transpose_inner", "Transpose", [floats(16, 256, 256)], perm=[0, 2, 1])
    case("transpose_all", "Transpose", [floats(16, 32, 32, 16)], perm=[3, 2, 1, 0])
    case("slice_steps", "Slice", [floats(512, 512)], [ints(0, 0), ints(512, 512), ints(0, 1), ints(2, 2)])
    case("slice_backwards", "Slice", [floats(512, 512)], [ints(-1), ints(-10000), ints(1), ints(-1)])
    case("expand", "Expand", [floats(1, 64, 1, 128)], [ints(8, 64, 16, 128)])
    case("concat", "Concat", [floats(64, 256), floats(64, 256), floats(64, 128)], axis=1)
    case("triangle", "Trilu", [floats(512, 512)])
    case("eye_like", "EyeLike", [floats(512, 512)])
    case("compress", "Compress", [floats(4096, 64), bits(4096)], axis=0)
    case("nonzero", "NonZero", [bits(512, 512)])
    case("unique", "Unique", [below(1000, 20000)])


def pictures():
    for mode in ("nearest", "linear", "cubic"):
        case(f"resize_{mode}", "Resize", [floats(1, 16, 64, 64)], [None, TWICE], mode=mode)
    steps = dict(coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    case("resize_whole", "Resize", [floats(1, 64, 40, 40)], [None, TWICE], mode="nearest", **steps)
    case("resize_half", "Resize", [floats(1, 3, 448, 448)], [None, HALF], mode="linear")
    case("resize_half_nearest", "Resize", [floats(1, 3, 448, 448)], [None, HALF], mode="nearest")
    grid = RANDOM.uniform(-1, 1, (1, 64, 64, 2)).astype("float32")
    case("grid_sample", "GridSample", [floats(1, 32, 64, 64), grid])
    corners = RANDOM.uniform(0, 25, (100, 4)).astype("float32") + np.array([0, 0, 20, 20], "float32")
    regions = [floats(1, 64, 50, 50), corners, np.zeros(100, "int64")]
    case("roi_align", "RoiAlign", regions, output_height=7, output_width=7, sampling_ratio=2)
    start = RANDOM.uniform(0, 600, (1, 3000, 2)).astype("float32")
    boxes = np.concatenate([start, start + RANDOM.uniform(20, 80, (1, 3000, 2)).astype("float32")], 2)
    scores = RANDOM.uniform(0, 1, (1, 1, 3000)).astype("float32")
    limits = [ints(200), np.array(0.5, "float32"), np.array(0.3, "float32")]
    case("non_max_suppression", "NonMaxSuppression", [boxes, scores], limits)
    case("col2im", "Col2Im", [floats(1, 576, 3136)], [ints(56, 56), ints(3, 3)], pads=[1, 1, 1, 1])
    case("col2im_steps", "Col2Im", [floats(1, 256, 784)], [ints(56, 56), ints(2, 2)], strides=[2, 2])
    window = dict(kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    case("max_pool", "MaxPool", [floats(*PICTURE)], **window)
    case("average_pool", "AveragePool", [floats(*PICTURE)], **window)
    case("max_pool_large", "MaxPool", [floats(1, 64, 112, 112)], **window)
    case("average_pool_large", "AveragePool", [floats(1, 64, 112, 112)], **window)
    pairs = dict(kernel_shape=[2, 2], strides=[2, 2])
    case("max_pool_pairs", "MaxPool", [floats(1, 64, 112, 112)], **pairs)
    case("average_pool_pairs", "AveragePool", [floats(1, 64, 112, 112)], **pairs)
    case("max_pool_each", "MaxPool", [floats(*PICTURE)], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    case("global_pool_large", "GlobalAveragePool", [floats(1, 64, 112, 112)])
    case("global_pool", "GlobalAveragePool", [floats(1, 512, 7, 7)])
    same = dict(pads=[1, 1, 1, 1])
    case("conv_1x1", "Conv", [floats(*PICTURE)], [floats(256, 64, 1, 1)])
    case("conv_3x3", "Conv", [floats(*PICTURE)], [floats(64, 64, 3, 3)], **same)
    case("conv_steps", "Conv", [floats(*PICTURE)], [floats(64, 64, 3, 3)], strides=[2, 2], **same)
    case("conv_7x7", "Conv", [floats(1, 3, 224, 224)], [floats(64, 3, 7, 7)], strides=[2, 2], pads=[3, 3, 3, 3])
    case("depthwise", "Conv", [floats(1, 96, 56, 56)], [floats(96, 1, 3, 3)], group=96, **same)
    case("depthwise_steps", "Conv", [floats(1, 96, 112, 112)], [floats(96, 1, 3, 3)], group=96, strides=[2, 2], **same)
    case("conv_computed", "Conv", [floats(1, 32, 28, 28), floats(32, 32, 3, 3)], **same)
    turned = dict(strides=[2, 2], **same)
    case("conv_transposed", "ConvTranspose", [floats(1, 64, 28, 28)], [floats(64, 32, 4, 4)], **turned)
    case("conv_transposed_computed", "ConvTranspose", [floats(1, 64, 28, 28), floats(64, 32, 4, 4)], **turned)
    case("conv_transposed_depthwise", "ConvTranspose", [floats(1, 64, 28, 28)], [floats(64, 1, 4, 4)], group=64, **turned)


def sums():
    for name in ("Sum", "Mean", "Max", "Prod", "L2", "LogSumExp"):
        case(f"reduce_rows_{name.lower()}", f"Reduce{name}", [floats(512, 1024)], [ints(1)])
    for name in ("Sum", "Max"):
        case(f"reduce_columns_{name.lower()}", f"Reduce{name}", [floats(512, 1024)], [ints(0)])
        case(f"reduce_picture_{name.lower()}", f"Reduce{name}", [floats(*PICTURE)], [ints(2, 3)])
    case("running_rows", "CumSum", [floats(64, 4096)], [np.array(1)])
    case("running_columns", "CumSum", [floats(1024, 256)], [np.array(0)])
    case("arg_max", "ArgMax", [floats(256, 1000)], axis=1, keepdims=0)
    case("arg_max_channels", "ArgMax", [floats(1, 21, 256, 256)], axis=1)
    case("top_5", "TopK", [floats(64, 1000)], [ints(5)], outputs=2)
    case("top_300", "TopK", [floats(1, 8400)], [ints(300)], outputs=2)
    case("sort", "TopK", [floats(16, 1000)], [ints(1000)], outputs=2)
    case("softmax", "Softmax", [floats(591, 197)])
    case("softmax_columns", "Softmax", [floats(128, 512)], axis=0)
    case("log_softmax", "LogSoftmax", [floats(128, 1000)])
    case("hardmax", "Hardmax", [floats(128, 1000)])
    case("layer_norm", "LayerNormalization", [floats(197, 768)], [floats(768), floats(768)])
    case("group_norm", "GroupNormalization", [floats(*PICTURE)], [floats(64), floats(64)], num_groups=8)
    case("instance_norm", "InstanceNormalization", [floats(*PICTURE)], [floats(64), floats(64)])
    case("response_norm", "LRN", [floats(1, 96, 27, 27)], size=5)


def products():
    case("matvec", "MatMul", [floats(1, 2048)], [floats(2048, 2048)])
    case("matmul_heads", "MatMul", [floats(12, 128, 64), floats(12, 64, 128)])
    case("gemm_turned", "Gemm", [floats(64, 512), floats(256, 512)], transB=1)
    case("matmul_f64", "MatMul", [floats(128, 256).astype("float64"), floats(256, 128).astype("float64")])
    case("matmul_f64_large", "MatMul", [floats(512, 512).astype("float64"), floats(512, 512).astype("float64")])
    case("determinant", "Det", [floats(64, 16, 16)])
    case("determinant_large", "Det", [floats(128, 128) * np.float32(0.15)])
    case("matmul_f16", "MatMul", [floats(128, 256).astype("float16"), floats(256, 128).astype("float16")])
    weights = RANDOM.integers(-127, 127, (512, 256)).astype("int8")
    case("matmul_bytes", "MatMulInteger", [RANDOM.integers(0, 255, (64, 512)).astype("uint8")], [weights])
    image = RANDOM.integers(0, 255, (1, 64, 28, 28)).astype("uint8")
    weights = RANDOM.integers(0, 255, (64, 64, 3, 3)).astype("uint8")
    case("conv_bytes", "ConvInteger", [image], [weights], pads=[1, 1, 1, 1])
    case("einsum", "Einsum", [floats(2, 64, 4, 32), floats(2, 64, 4, 32)], equation="bqhd,bkhd->bhqk")
    case("fourier", "DFT", [floats(8, 512, 1)], [np.array(512)])
    state = dict(hidden_size=128, outputs=3)
    case("lstm", "LSTM", [floats(50, 4, 64)], [floats(1, 512, 64) * 0.1, floats(1, 512, 128) * 0.1], **state)


def elements():
    unary = "Erf Tanh Sigmoid Exp Log Sqrt Sin Atan Softplus Elu Mish Gelu HardSwish Round Sign Abs Reciprocal"
    for name in unary.split():
        case(name.lower(), name, [positive(128, 1024)])
    case("pow", "Pow", [positive(128, 1024), floats(128, 1024)])
    case("where", "Where", [bits(256, 1024), floats(256, 1024), floats(1, 1024)])
    case("add_both_ways", "Add", [floats(64, 1, 128), floats(1, 64, 128)])
    case("multiply_rows", "Mul", [floats(512, 512), floats(512, 1)])
    case("less", "Less", [floats(512, 512), floats(512, 512)])
    case("and", "And", [bits(512, 512), bits(512, 512)])
    case("remainder", "Mod", [below(1000, 128, 1024), below(50, 128, 1024) + 1])
    case("cast_int64", "Cast", [floats(512, 512)], to=onnx.TensorProto.INT64)
    case("cast_double_int64", "Cast", [floats(512, 512).astype("float64")], to=onnx.TensorProto.INT64)
    case("cast_from_int64", "Cast", [below(1000, 512, 512)], to=onnx.TensorProto.FLOAT)
    case("cast_int64_double", "Cast", [below(1000, 512, 512)], to=onnx.TensorProto.DOUBLE)
    case("cast_half", "Cast", [floats(512, 512)], to=onnx.TensorProto.FLOAT16)
    case("clip", "Clip", [floats(512, 512)], [np.array(-1, "float32"), np.array(1, "float32")])
    scale = [np.array(0.05, "float32"), np.array(128, "uint8")]
    case("quantize", "QuantizeLinear", [floats(512, 512)], scale)
    case("dequantize", "DequantizeLinear", [RANDOM.integers(0, 255, (512, 512)).astype("uint8")], scale)
    case("quantize_by_range", "DynamicQuantizeLinear", [floats(512, 512)], outputs=3)


def save(name, operator, inputs, constants, outputs, attributes):
    path = os.path.join(OUT, name + ".onnx")
    if WANTED and name not in WANTED or os.path.exists(path):
        return
    arguments = {f"x{i}": np.asarray(v) for i, v in enumerate(inputs)}
    known = {f"c{i}": v for i, v in enumerate(constants) if v is not None}
    names = [*arguments, *(f"c{i}" if v is not None else "" for i, v in enumerate(constants))]
    results = [f"y{i}" for i in range(outputs)]
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in arguments.items()]
    outs = [onnx.ValueInfoProto(name=n) for n in results]
    tensors = [numpy_helper.from_array(np.asarray(v), n) for n, v in known.items()]
    graph = helper.make_graph([helper.make_node(operator, names, results, **attributes)], name, infos, outs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    np.savez(path[:-5] + ".npz", **arguments)


def main():
    os.makedirs(OUT, exist_ok=True)
    for kind in (moving, pictures, sums, products, elements):
        kind()
    for one in CASES:
        save(*one)


main()
