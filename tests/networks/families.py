#!/usr/bin/env python3
"""Write networks of other libraries: NAME.onnx and NAME.npz (its arguments) for each.

    families.py OUT KIND [NAME ..]

KIND is `timm` (the smallest network of each of its modules, up to 60 million weights), `keras` (its applications over torch),
`detectors` (torchvision's, which end in what `NonMaxSuppression` leaves) or `half` (networks in float16). Weights are seeded
random, norms have statistics. What is there already stays; what an exporter refuses is named. `benches/networks/networks.py OUT`
compares them with other runtimes. Needs torch, onnx and torchvision; `timm` and `half` timm, `keras` keras.
"""
import os
import sys
import warnings

os.environ.setdefault("KERAS_BACKEND", "torch")
warnings.filterwarnings("ignore")

import numpy as np
import torch

MOST = 60e6
KERAS = ("MobileNet MobileNetV2 EfficientNetB0 EfficientNetV2B0 DenseNet121 ResNet50 ResNet50V2 InceptionV3 InceptionResNetV2 "
         "ConvNeXtTiny").split()
DETECTORS = ("ssdlite320_mobilenet_v3_large ssd300_vgg16 fasterrcnn_mobilenet_v3_large_320_fpn retinanet_resnet50_fpn "
             "fcos_resnet50_fpn keypointrcnn_resnet50_fpn").split()
HALVES = "resnet18 mobilenetv2_100 vit_tiny_patch16_224 convnext_atto".split()


def with_statistics(net):
    for m in net.modules():
        if isinstance(m, torch.nn.BatchNorm2d):
            m.running_var.uniform_(0.5, 1.5)
            m.running_mean.normal_(0, 0.1)
    return net.eval()


def timm_network(name):
    import timm
    net = with_statistics(timm.create_model(name, exportable=True))
    return net, torch.randn(1, *net.default_cfg["input_size"])


def timm_names():
    import timm
    for module in timm.list_modules():
        sizes = []
        for name in timm.list_models(module=module):
            try:
                with torch.device("meta"):
                    sizes.append((sum(p.numel() for p in timm.create_model(name).parameters()), name))
            except Exception:  # some cannot be made without memory
                continue
        if sizes and min(sizes)[0] <= MOST:
            yield min(sizes)[1]


def keras_network(name):
    import keras
    model = getattr(keras.applications, name)(weights=None)
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.moving_variance.assign(np.random.uniform(0.5, 1.5, layer.moving_variance.shape))
            layer.moving_mean.assign(np.random.normal(0, 0.1, layer.moving_mean.shape))

    class Network(torch.nn.Module):

        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x):
            return self.model(x, training=False)

    return Network().eval(), torch.randn(1, *model.input_shape[1:])


def detector(name):
    from torchvision.models import detection
    sizes = {} if name.startswith("ssd") or "320" in name else {"min_size": 256, "max_size": 320}
    net = with_statistics(getattr(detection, name)(weights=None, weights_backbone=None, **sizes))
    # Scores far enough apart that rounding does not change their order.
    for part, m in net.named_modules():
        if isinstance(m, (torch.nn.Conv2d, torch.nn.Linear)) and any(k in part for k in ("classification_head", "cls_")):
            m.weight.data.normal_(0, 1 / m.weight[0].numel()**0.5)
    return net, torch.rand(3, 240, 320)


def half_network(name):
    net, x = timm_network(name)
    return net.half(), x.half()


KINDS = {
    "timm": (timm_names, timm_network),
    "keras": (lambda: KERAS, keras_network),
    "detectors": (lambda: DETECTORS, detector),
    "half": (lambda: HALVES, half_network),
}


def main():
    if len(sys.argv) < 3 or sys.argv[2] not in KINDS:
        sys.exit(__doc__)
    out, kind, wanted = sys.argv[1], sys.argv[2], sys.argv[3:]
    names, make = KINDS[kind]
    os.makedirs(out, exist_ok=True)
    for name in wanted or names():
        path = os.path.join(out, name + ".onnx")
        if os.path.exists(path):
            continue
        torch.manual_seed(0)
        np.random.seed(0)
        try:
            net, x = make(name)
            args = ([x],) if kind == "detectors" else (x,)
            with torch.no_grad():
                torch.onnx.export(net, args, path + ".part", dynamo=False, opset_version=17, input_names=["x"])
        except Exception as e:
            print(f"{name}: not exported: {str(e).splitlines()[0][:120]}", flush=True)
            continue
        os.rename(path + ".part", path)
        np.savez(path[:-5] + ".npz", x=x.numpy())
        print(f"{name}: {os.path.getsize(path) >> 20} MB", flush=True)


if __name__ == "__main__":
    main()
