#!/usr/bin/env python3
"""int8_io.py IN.onnx OUT.onnx: a QDQ network whose input and output are the int8 tensors themselves, as TensorFlow Lite's
are: without the first QuantizeLinear and the last DequantizeLinear."""
import sys

import onnx

model = onnx.load(sys.argv[1])
graph = model.graph


def int8(value, name):
    shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
    return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT8, shape)


first = next(n for n in graph.node if n.op_type == "QuantizeLinear" and n.input[0] == graph.input[0].name)
last = next(n for n in graph.node if n.op_type == "DequantizeLinear" and n.output[0] == graph.output[0].name)
graph.input[0].CopyFrom(int8(graph.input[0], first.output[0]))
graph.output[0].CopyFrom(int8(graph.output[0], last.input[0]))
graph.node.remove(first), graph.node.remove(last)
onnx.save(model, sys.argv[2])
