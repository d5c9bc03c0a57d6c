#!/usr/bin/env python3
"""Write what tf2onnx makes of small Keras networks, at several opsets: NAME_OPSET.onnx and NAME_OPSET.npz.

    keras_models.py OUT [--only NAME,..]

Channels last, with the transpositions that tf2onnx puts around convolutions; batch and, where the network allows it,
the other dims vary. Compare with `tests/networks/compare.py RELAX_AOT OUT`. Needs tensorflow (tensorflow-cpu will do)
and tf2onnx.
"""
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import onnx
import tensorflow as tf
import tf2onnx

from writing import Folder

OPSETS = [9, 11, 13, 15, 18]
layers = tf.keras.layers


def cnn():
    x = i = tf.keras.Input((None, None, 3), name="x")
    x = layers.Conv2D(8, 3, strides=2, padding="same", use_bias=False)(x)
    x = layers.BatchNormalization()(x)
    x = layers.ReLU(6.0)(x)
    x = layers.DepthwiseConv2D(3, padding="same")(x)
    x = layers.Conv2D(8, 1, activation="swish")(x)
    x = layers.MaxPooling2D(2, padding="same")(x)
    x = layers.AveragePooling2D(3, 2, padding="same")(x)
    x = layers.GlobalAveragePooling2D()(x)
    return tf.keras.Model(i, layers.Dense(5, activation="softmax")(x))


def unet():
    i = tf.keras.Input((16, 24, 2), name="x")
    a = layers.Conv2D(4, 3, padding="same", activation="relu")(i)
    b = layers.Conv2D(6, 3, strides=2, padding="same", activation="elu")(a)
    c = layers.UpSampling2D(2, interpolation="bilinear")(b)
    d = layers.Conv2DTranspose(4, 3, strides=2, padding="same")(b)
    x = layers.Concatenate()([a, c, d])
    x = layers.Cropping2D(1)(layers.ZeroPadding2D(2)(x))
    return tf.keras.Model(i, layers.Conv2D(3, 1, activation="sigmoid")(x))


def recurrent(kind):
    def make():
        i = tf.keras.Input((7, 6), name="x")
        x = layers.Bidirectional(kind(5, return_sequences=True))(i)
        return tf.keras.Model(i, layers.Dense(3)(kind(4)(x)))

    return make


def attention():
    i = tf.keras.Input((9,), dtype="int32", name="ids")
    x = layers.Embedding(20, 16)(i)
    y = layers.MultiHeadAttention(2, 8)(x, x)
    x = layers.LayerNormalization()(x + y)
    y = layers.Dense(16)(layers.Dense(24, activation="tanh")(x))
    return tf.keras.Model(i, layers.LayerNormalization()(x + y))


def separable():
    i = tf.keras.Input((20, 3), name="x")
    x = layers.SeparableConv1D(8, 5, dilation_rate=2, padding="same")(i)
    x = layers.AveragePooling1D(2)(layers.LeakyReLU()(x))
    x = layers.Conv1D(4, 3, padding="causal")(x)
    x = layers.Reshape((-1, 8))(x)
    return tf.keras.Model(i, layers.Flatten()(layers.Permute((2, 1))(x)))


class Boxes(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([9, 4], tf.float32, name="boxes"), tf.TensorSpec([9], tf.float32, name="scores")])
    def __call__(self, boxes, scores):
        near = tf.concat([boxes[:, :2], boxes[:, :2] + boxes[:, 2:] + 0.5], 1)
        keep = tf.image.non_max_suppression(near, scores, 20, 0.4, 0.1)
        return tf.gather(near, keep), tf.gather(scores, keep)


class Ragged(tf.Module):
    """Shape code of TensorFlow: strided slices, tf.shape, tile, where, one_hot."""

    @tf.function(input_signature=[tf.TensorSpec([None, None, 4], tf.float32, name="x")])
    def __call__(self, x):
        n, t = tf.shape(x)[0], tf.shape(x)[1]
        y = tf.reshape(x, [n * t, 4])[::2, 1:]
        z = tf.tile(tf.expand_dims(tf.reduce_mean(x, 1), 1), [1, t, 1])
        w = tf.where(x > z, x, tf.zeros_like(x))
        return y, tf.reshape(w, tf.stack([n, -1])), tf.one_hot(tf.argmax(x, -1), 4), tf.cumsum(x, 1), tf.reverse(x, [1])


def models():
    tf.random.set_seed(0)
    rng = np.random.default_rng(0)

    def f(*shape):
        return rng.random(shape, "f4")

    yield "cnn", cnn(), {"x": f(2, 17, 23, 3)}
    yield "unet", unet(), {"x": f(1, 16, 24, 2)}
    yield "lstm", recurrent(layers.LSTM)(), {"x": f(2, 7, 6)}
    yield "gru", recurrent(layers.GRU)(), {"x": f(2, 7, 6)}
    yield "attention", attention(), {"ids": rng.integers(0, 20, (2, 9), "i4")}
    yield "separable", separable(), {"x": f(2, 20, 3)}
    yield "boxes", Boxes(), {"boxes": f(9, 4) * 4, "scores": f(9)}
    yield "ragged", Ragged(), {"x": f(2, 5, 4)}


def export(model, inputs, opset):
    def write(path):
        if isinstance(model, tf.keras.Model):
            spec = [tf.TensorSpec(model.inputs[0].shape, model.inputs[0].dtype, name=next(iter(inputs)))]
            call = tf.function(lambda x: model(x, training=False))
            tf2onnx.convert.from_function(call, spec, opset=opset, output_path=str(path))
        else:
            tf2onnx.convert.from_function(model.__call__, model.__call__.input_signature, opset=opset, output_path=str(path))
        left = {n.op_type for n in onnx.load(path).graph.node if not n.domain and not onnx.defs.has(n.op_type)}
        if left:
            raise ValueError(f"{', '.join(sorted(left))} are left as TensorFlow has them")
        onnx.checker.check_model(str(path))

    return write


def main():
    folder = Folder(__doc__)
    for name, model, inputs in models():
        if folder.wants(name):
            for opset in OPSETS:
                folder.add(f"{name}_{opset}", export(model, inputs, opset), inputs)
    folder.close()


if __name__ == "__main__":
    main()
