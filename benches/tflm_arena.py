#!/usr/bin/env python3
"""The RAM that TensorFlow Lite Micro's interpreter needs for the four MLPerf Tiny networks in int8: the smallest arena
with which its Python wheel (the reference kernels, on this machine) runs each, and what it records of its allocations.

    python3 -m venv v && v/bin/pip install tensorflow-cpu tflite-micro
    v/bin/python benches/tflm_arena.py [FOLDER FOR THE .tflite FILES]

The networks are built with Keras, layer for layer as in the ONNX models of docs/embedded.md, and quantised by
TensorFlow's converter: int8 weights by channel, activations, input and output. The weights are random: no arena depends
on them.

The wheel's structures have pointers of 64 bits: on a Cortex-M the persistent part is smaller, the tensors are the same.
"""
import os
import re
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
import numpy as np
import tensorflow as tf
from tensorflow.keras import Input, Model
from tensorflow.keras import layers as l
from tflite_micro.python.tflite_micro import runtime


def normal(x, relu=True):
    x = l.BatchNormalization(momentum=0)(x)
    return l.ReLU()(x) if relu else x


def conv(x, channels, kernel, stride=1, relu=True):
    return normal(l.Conv2D(channels, kernel, stride, "same", use_bias=False)(x), relu)


def separable(x, channels, stride=1):
    x = normal(l.DepthwiseConv2D(3, stride, "same", use_bias=False)(x))
    return conv(x, channels, 1)


def head(x, classes):
    x = l.AveragePooling2D(x.shape[1:3])(x)
    return l.Softmax()(l.Dense(classes)(l.Flatten()(x)))


def keyword_spotting(batch):
    i = Input((49, 10, 1), batch_size=batch)
    x = conv(i, 64, (10, 4), 2)
    for _ in range(4):
        x = separable(x, 64)
    return Model(i, head(x, 12))


def image_classification(batch):
    i = Input((32, 32, 3), batch_size=batch)
    x = conv(i, 16, 3)
    for channels, stride in [(16, 1), (32, 2), (64, 2)]:
        y = conv(conv(x, channels, 3, stride), channels, 3, relu=False)
        x = l.ReLU()(l.Add()([y, l.Conv2D(channels, 1, stride, "same")(x) if stride > 1 else x]))
    return Model(i, head(x, 10))


def person_detection(batch):
    i = Input((96, 96, 3), batch_size=batch)
    x = conv(i, 8, 3, 2)
    for channels, stride in [(16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), *[(128, 1)] * 5, (256, 2), (256, 1)]:
        x = separable(x, channels, stride)
    return Model(i, head(x, 2))


def anomaly_detection(batch):
    i = x = Input((640,), batch_size=batch)
    for units in [128, 128, 128, 128, 8, 128, 128, 128, 128]:
        x = normal(l.Dense(units)(x))
    return Model(i, l.Dense(640)(x))


def quantised(make):
    random = np.random.default_rng(1)
    batch, model = make(32), make(1)
    shape = (1, *model.input_shape[1:])
    # The averages and variances of normalisation are those of one batch: values stay near 1 in all layers.
    batch(random.uniform(-1, 1, (32, *shape[1:])).astype(np.float32), training=True)
    model.set_weights(batch.get_weights())
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([random.uniform(-1, 1, shape).astype(np.float32)] for _ in range(8))
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.int8
    return converter.convert()


def run(model, arena):
    """Whether the network runs in an arena of this size, and what the interpreter wrote. In a process of its own: the
    interpreter may fall over when memory is short."""
    with tempfile.TemporaryFile() as text:
        child = os.fork()
        if child == 0:
            os.dup2(text.fileno(), 1), os.dup2(text.fileno(), 2)
            try:
                i = runtime.Interpreter.from_bytes(model, arena_size=arena)
                i.set_input(np.zeros(i.get_input_details(0)["shape"], np.int8), 0)
                i.invoke()
                i.print_allocations()
                os._exit(0)
            except RuntimeError:
                os._exit(1)
        status = os.waitpid(child, 0)[1]
        text.seek(0)
        return status == 0, text.read().decode()


def smallest(model):
    low, high = 0, 1 << 20
    assert run(model, high)[0], run(model, high)[1]
    while high - low > 16:
        middle = (low + high) // 2 & ~15
        low, high = (low, middle) if run(model, middle)[0] else (middle, high)
    return high


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    print("network, smallest arena, of it tensors (head), persistent structures (tail), model file")
    for make in [keyword_spotting, image_classification, person_detection, anomaly_detection]:
        model = quantised(make)
        if folder:
            (folder / f"{make.__name__}.tflite").write_bytes(model)
        text = run(model, 1 << 20)[1]
        number = lambda name: re.search(rf"[Aa]rena allocation {name} (\d+) bytes", text)
        head_, tail = (number(n) for n in ("head", "tail"))
        print(make.__name__, smallest(model), head_ and head_[1], tail and tail[1], len(model), flush=True)
        if os.environ.get("VERBOSE"):
            print(text)
