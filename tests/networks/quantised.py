#!/usr/bin/env python3
"""Write networks as onnxruntime's tools quantise them: NAME_HOW.onnx and NAME_HOW.npz (its arguments) for each.

    quantised.py OUT FOLDER [FOLDER ..] [--only NAME:HOW ..]

FOLDERs hold NAME.onnx beside NAME.npz, as `generate.py` and `wider.py` write them. HOW is `qdq` (pairs of QuantizeLinear and
DequantizeLinear, weights by channels, data of uint8), `qdqs` (data of int8), `qop` (QLinear operators) or `dyn` (quantised when it
runs); without --only the list below. Ranges come from the network's own arguments. What is there already stays; what the tools
refuse is named. `benches/networks/networks.py OUT` compares them with other runtimes. Needs onnx and onnxruntime.
"""
import argparse
import logging
import os
import shutil
import sys
from pathlib import Path

import numpy as np
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

STATIC = {
    "qdq": (QuantFormat.QDQ, QuantType.QUInt8),
    "qdqs": (QuantFormat.QDQ, QuantType.QInt8),
    "qop": (QuantFormat.QOperator, QuantType.QUInt8),
}
LIST = ("resnet18:qop resnet18:qdqs mobilenet_v3_small:qdq mobilenet_v3_large:qop efficientnet_b0:qdq squeezenet1_1:qdq "
        "shufflenet_v2_x1_0:qdq googlenet:qdq densenet121:qdq regnet_y_400mf:qdq yolov8n:qdq unet:qdq "
        "deeplabv3_mobilenet_v3_large:qdq espcn:qdq encodec:qdq vit_tiny:qdq bert_base:qdq bert_small_dyn:qdq segformer:qdq "
        "mobilevit:qdq swin_t:qdq convnext_tiny:qdq resnet18:dyn mobilenet_v2:dyn squeezenet1_1:dyn distilbert:dyn "
        "gpt2_step_dyn:dyn whisper_enc:dyn lstm:dyn crnn:dyn").split()


class Arguments(CalibrationDataReader):
    """The network's own, then normal numbers of their shapes."""

    def __init__(self, path):
        own = dict(np.load(path))
        rng = np.random.default_rng(1)
        other = lambda a: rng.normal(size=a.shape).astype(a.dtype) if a.dtype.kind == "f" else a
        self.all = iter([own] + [{k: other(a) for k, a in own.items()} for _ in range(3)])

    def get_next(self):
        return next(self.all, None)


def quantise(source, out, how):
    part = out.with_suffix(".part")
    if how == "dyn":
        quantize_dynamic(str(source), str(part), weight_type=QuantType.QInt8)
    else:
        before = out.with_suffix(".before")
        try:
            quant_pre_process(str(source), str(before), skip_symbolic_shape=True)
        except Exception:  # Shapes that it does not understand: as the network is.
            shutil.copy(source, before)
        form, data = STATIC[how]
        quantize_static(str(before), str(part), Arguments(source.with_suffix(".npz")), quant_format=form, per_channel=True,
                        activation_type=data, weight_type=QuantType.QInt8)
        before.unlink()
    shutil.copy(source.with_suffix(".npz"), out.with_suffix(".npz"))
    os.rename(part, out)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--only", nargs="+", default=LIST)
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    args.out.mkdir(parents=True, exist_ok=True)
    for name, how in (one.split(":") for one in args.only):
        out = args.out / f"{name}_{how}.onnx"
        source = next((f / f"{name}.onnx" for f in args.folders if (f / f"{name}.onnx").exists()), None)
        if source is None:
            print(f"{name}: in none of the folders", flush=True)
        elif not out.exists():
            try:
                quantise(source, out, how)
                print(f"{out.stem}: {out.stat().st_size >> 10} KB", flush=True)
            except Exception as e:
                print(f"{out.stem}: not quantised: {str(e).splitlines()[0][:120]}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
