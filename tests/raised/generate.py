#!/usr/bin/env python3
"""Writes the modules of this folder: operators, and the PrimFuncs that TVM's LegalizeOps makes of each.

    tests/raised/generate.py

NAME.rlx has the operator, NAME.legal.rlx the PrimFunc; the first line of both has the shapes of the arguments, with numbers for dims that
are open. Needs apache-tvm.
"""

import pathlib

import tvm
from tvm import relax
from tvm.relax import op

HERE = pathlib.Path(__file__).resolve().parent
IMAGE = (1, 8, 14, 12)
n = tvm.tirx.Var("n", "int64")
OPEN = {n: 3}


def const(v):
    return relax.const(v, "float32")


def resized(size, method, mode, rounding="round", alpha=-0.75):
    def build(x):
        how = {"method": method, "coordinate_transformation_mode": mode, "rounding_method": rounding, "cubic_alpha": alpha}
        return op.image.resize2d(x, size, layout="NCHW", **how)

    return [IMAGE], build


CASES = {
    "softmax": ([(2, 5, 7)], lambda x: op.nn.softmax(x, axis=-1)),
    "log_softmax": ([(2, 5, 7)], lambda x: op.nn.log_softmax(x, axis=-1)),
    "layer_norm": ([(2, 5, 16), (16,), (16,)], lambda x, a, b: op.nn.layer_norm(x, a, b, axes=[-1])),
    "rms_norm": ([(2, 5, 16), (16,)], lambda x, a: op.nn.rms_norm(x, a, axes=[-1])),
    "group_norm": ([IMAGE, (8,), (8,)], lambda x, a, b: op.nn.group_norm(x, a, b, num_groups=4, channel_axis=1, axes=[2, 3])),
    "instance_norm": ([IMAGE, (8,), (8,)], lambda x, a, b: op.nn.instance_norm(x, a, b, channel_axis=1, axes=[2, 3])),
    "matmul": ([(2, 5, 7), (7, 9)], op.matmul),
    "matmul_batch": ([(2, 3, 5, 7), (2, 3, 7, 9)], op.matmul),
    "matmul_row": ([(1, 7), (7, 9)], op.matmul),
    "matmul_vector": ([(7,), (7, 9)], op.matmul),
    "matmul_column": ([(4, 5, 7), (4, 7, 1)], op.matmul),
    "dense": ([(5, 7), (9, 7)], lambda x, w: op.matmul(x, op.permute_dims(w))),
    "open_dense": ([(n, 16), (16, 4)], lambda x, w: op.nn.relu(op.matmul(x, w))),
    "open_softmax": ([(n, 16)], lambda x: op.nn.softmax(x, axis=-1)),
    "open_columns": ([(4, n)], lambda x: op.sum(op.exp(x), axis=[1])),
    "mean": ([IMAGE], lambda x: op.mean(x, axis=[2, 3], keepdims=True)),
    "mean_rows": ([(3, 5, 7)], lambda x: op.mean(x, axis=[1])),
    "sum": ([(3, 5, 7)], lambda x: op.sum(x, axis=[0, 2])),
    "prod": ([(3, 5, 7)], lambda x: op.prod(x, axis=[2])),
    "max": ([(3, 5, 7)], lambda x: op.max(x, axis=[2], keepdims=True)),
    "min": ([(3, 5, 7)], lambda x: op.min(x, axis=[1])),
    "variance": ([(3, 5, 7)], lambda x: op.variance(x, axis=[1], keepdims=True)),
    "gelu": ([IMAGE], op.nn.gelu),
    "silu": ([IMAGE], op.nn.silu),
    "leakyrelu": ([IMAGE], lambda x: op.nn.leakyrelu(x, 0.1)),
    "prelu": ([IMAGE, (8,)], lambda x, a: op.nn.prelu(x, a, axis=1)),
    "hard_swish": ([IMAGE], lambda x: x * op.clip(x + const(3.0), 0, 6) / const(6.0)),
    "compare": ([(4, 5), (5,)], lambda x, y: op.where(op.logical_and(op.greater(x, y), op.less(x, const(0.4))), x, op.negative(y))),
    "unary": ([(4, 5)], lambda x: op.floor(op.tanh(x) * const(9.0)) + op.abs(op.sin(x)) + op.sqrt(op.exp(x)) + op.round(op.cos(x) * const(3.0))),
    "cast": ([(4, 5)], lambda x: op.astype(op.astype(x * const(9.0), "int32"), "float32")),
    "batch_norm": ([IMAGE, (8,), (8,), (8,), (8,)], lambda x, a, b, c, d: op.nn.batch_norm(x, a, b, c, op.abs(d), axis=1, training=False)[0]),
    "max_pool": ([IMAGE], lambda x: op.nn.max_pool2d(x, pool_size=(3, 3), strides=(2, 2), padding=(1, 1))),
    "max_pool_ceil": ([IMAGE], lambda x: op.nn.max_pool2d(x, pool_size=(3, 3), strides=(2, 2), ceil_mode=True)),
    "max_pool1d": ([(1, 8, 20)], lambda x: op.nn.max_pool1d(x, pool_size=2, strides=2)),
    "avg_pool": ([IMAGE], lambda x: op.nn.avg_pool2d(x, pool_size=(2, 2), strides=(2, 2))),
    "avg_pool_without": ([IMAGE], lambda x: op.nn.avg_pool2d(x, pool_size=(3, 3), padding=(1, 1))),
    "avg_pool_with": ([IMAGE], lambda x: op.nn.avg_pool2d(x, pool_size=(3, 3), padding=(1, 1), count_include_pad=True)),
    "adaptive": ([IMAGE], lambda x: op.nn.adaptive_avg_pool2d(x, output_size=(1, 1))),
    "reshape": ([(1, 8, 4, 4)], lambda x: op.reshape(x, (1, 128))),
    "reshape_heads": ([(2, 12, 64)], lambda x: op.permute_dims(op.reshape(x, (2, 12, 4, 16)), [0, 2, 1, 3])),
    "open_reshape": ([(n, 16)], lambda x: op.reshape(x, (n, 4, 4))),
    "squeeze": ([(2, 1, 6, 1)], lambda x: op.expand_dims(op.squeeze(x), 0)),
    "concat": ([IMAGE, IMAGE, IMAGE], lambda x, y, z: op.concat([x, y, z], axis=1)),
    "split": ([IMAGE], lambda x: op.subtract(*[op.split(x, 2, axis=1)[i] for i in (0, 1)])),
    "slice": ([IMAGE], lambda x: op.strided_slice(x, axes=[1, 3], begin=[2, 1], end=[6, 12], strides=[1, 2])),
    "broadcast": ([(8, 1)], lambda x: op.broadcast_to(x, (3, 8, 5))),
    "pad": ([IMAGE], lambda x: op.nn.pad(x, [0, 0, 1, 0, 2, 1, 0, 3], "constant", 0.5)),
    "conv": ([IMAGE, (16, 8, 3, 3)], lambda x, w: op.nn.conv2d(x, w, padding=(1, 1))),
    "conv_strided": ([IMAGE, (16, 8, 3, 5)], lambda x, w: op.nn.conv2d(x, w, strides=(2, 3), padding=(0, 1, 2, 3))),
    "conv_dilated": ([IMAGE, (16, 8, 3, 3)], lambda x, w: op.nn.conv2d(x, w, padding=(2, 2), dilation=(2, 2))),
    "conv_groups": ([IMAGE, (16, 4, 3, 3)], lambda x, w: op.nn.conv2d(x, w, groups=2, padding=(1, 1))),
    "conv_depthwise": ([IMAGE, (16, 1, 3, 3)], lambda x, w: op.nn.conv2d(x, w, groups=8, padding=(1, 1))),
    "conv_pointwise": ([IMAGE, (16, 8, 1, 1)], op.nn.conv2d),
    "conv_whole": ([IMAGE, (16, 8, 14, 12)], op.nn.conv2d),
    "conv1d": ([(2, 8, 20), (16, 8, 3)], lambda x, w: op.nn.conv1d(x, w, padding=1, strides=2)),
    "conv3d": ([(1, 4, 5, 6, 7), (8, 4, 3, 3, 3)], lambda x, w: op.nn.conv3d(x, w, padding=(1, 1, 1))),
    "conv_transpose": ([(1, 8, 7, 6), (8, 4, 3, 3)], lambda x, w: op.nn.conv2d_transpose(x, w, strides=(2, 2), padding=(1, 1), output_padding=(1, 1))),
    "conv_transpose_even": ([(1, 8, 7, 6), (8, 4, 2, 2)], lambda x, w: op.nn.conv2d_transpose(x, w, strides=(2, 2))),
    "conv_transpose_dense": ([(1, 8, 7, 6), (8, 4, 3, 3)], lambda x, w: op.nn.conv2d_transpose(x, w, padding=(1, 1))),
    "conv1d_transpose": ([(1, 8, 7), (8, 4, 5)], lambda x, w: op.nn.conv1d_transpose(x, w, strides=3, padding=(2, 1))),
    "resize_nearest": resized((28, 24), "nearest_neighbor", "asymmetric", "floor"),
    "resize_nearest_half": resized((21, 31), "nearest_neighbor", "half_pixel", "round_prefer_floor"),
    "resize_nearest_less": resized((9, 5), "nearest_neighbor", "half_pixel", "round"),
    "resize_linear": resized((28, 24), "linear", "half_pixel"),
    "resize_corners": resized((31, 23), "linear", "align_corners"),
    "resize_asymmetric": resized((31, 23), "linear", "asymmetric"),
    "resize_less": resized((7, 6), "linear", "half_pixel"),
    "resize_cubic": resized((28, 30), "cubic", "half_pixel"),
    "conv_open_batch": ([(n, 8, 6, 5), (16, 8, 3, 3)], lambda x, w: op.nn.conv2d(x, w, padding=(1, 1))),
    "conv_open_rows": ([(1, 8, n, 5), (16, 8, 3, 3)], lambda x, w: op.nn.conv2d(x, w, padding=(1, 2), strides=(1, 2))),
    "max_pool_open": ([(1, 8, n, 5)], lambda x: op.nn.max_pool2d(x, pool_size=(3, 3), padding=(1, 1))),
    "pad_open": ([(n, 5)], lambda x: op.nn.pad(x, [1, 2, 0, 3])),
}


def main():
    for name, (shapes, build) in CASES.items():
        builder = relax.BlockBuilder()
        params = [relax.Var(f"x{i}", relax.TensorType(s, "float32")) for i, s in enumerate(shapes)]
        with builder.function("main", params):
            builder.emit_func_output(builder.emit(build(*params)))
        module = relax.transform.Normalize()(builder.get())
        fixed = ["x".join(str(OPEN.get(d, d)) for d in s) for s in shapes]
        head = f"# {' '.join(fixed)}\n"
        (HERE / f"{name}.rlx").write_text(head + module.script() + "\n")
        (HERE / f"{name}.legal.rlx").write_text(head + relax.transform.LegalizeOps()(module).script() + "\n")


if __name__ == "__main__":
    main()
