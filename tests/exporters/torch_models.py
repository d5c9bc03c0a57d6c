#!/usr/bin/env python3
"""Write what torch's two exporters make of small networks, at several opsets: NAME_EXPORTER_OPSET.onnx and .npz.

    torch_models.py OUT [--only NAME,..]

The networks are chosen for the code that exporters write around operators: shapes taken apart and put together
(flatten, view, adaptive pooling, interpolation), recurrent layers with states, attention with masks, boxes that are
selected by their scores. The dims named in each vary. Compare with `tests/networks/compare.py RELAX_AOT OUT`. What an
exporter refuses is printed. Needs torch, torchvision, onnx and onnxscript.
"""
import logging
import warnings

import torch
import torchvision
from torch import nn
from torch.nn import functional as F

from writing import Folder

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)

LEGACY = [9, 11, 13, 17]
DYNAMO = [18, 21]


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 8), nn.GELU(),
                                    nn.Linear(8, 5), nn.Softmax(-1))

    def forward(self, x):
        return self.layers(x)


class Cnn(nn.Module):
    """Pooling to a fixed size, and a view whose dims come from the tensor."""

    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 8, 3, padding=1, stride=2)
        self.norm = nn.BatchNorm2d(8)
        self.b = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8, 6)

    def forward(self, x):
        x = F.hardswish(self.norm(self.a(x)))
        x = F.max_pool2d(F.relu6(self.b(x)) + x, 2, ceil_mode=True)
        x = self.pool(x)
        return self.fc(x.view(x.size(0), -1))


class Segment(nn.Module):
    """Sizes that follow another tensor's: interpolation and crops."""

    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(3, 6, 3, stride=2, padding=1)
        self.deep = nn.Conv2d(6, 6, 3, stride=2, padding=1)
        self.head = nn.Conv2d(12, 4, 1)
        self.up = nn.ConvTranspose2d(4, 4, 2, stride=2)

    def forward(self, x):
        a = F.leaky_relu(self.down(x))
        b = F.interpolate(F.elu(self.deep(a)), size=a.shape[-2:], mode="nearest")
        c = self.head(torch.cat([a, b], 1))
        c = self.up(c)
        return F.log_softmax(c[:, :, : x.shape[2], : x.shape[3]], 1)


class Bilinear(nn.Module):
    def forward(self, x):
        a = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        return a.mean((2, 3)), F.interpolate(x, size=(9, 5), mode="bilinear", align_corners=True)


class Shuffle(nn.Module):
    """Views of five dims, a permutation and back, as ShuffleNet has them; split and stack."""

    def forward(self, x):
        n, c, h, w = x.size()
        y = x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
        a, b = y.chunk(2, 1)
        z = torch.stack([a * torch.sigmoid(b), b.abs().sqrt()], 1)
        return z.flatten(1, 2), F.pixel_shuffle(x, 2), y.std(1, keepdim=True)


class Recurrent(nn.Module):
    def __init__(self, kind, **more):
        super().__init__()
        self.rnn = kind(6, 7, batch_first=True, **more)
        self.fc = nn.Linear(7 * (2 if more.get("bidirectional") else 1), 4)

    def forward(self, x):
        y, state = self.rnn(x)
        return self.fc(y[:, -1]), y


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 24, batch_first=True, dropout=0.0)

    def forward(self, ids, mask):
        return self.layer(self.embed(ids), src_key_padding_mask=mask == 0)


class Attention(nn.Module):
    """Written by hand, with a causal mask made from the length."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(12, 36), nn.Linear(12, 12)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (y.reshape(b, t, 3, 4).permute(0, 2, 1, 3) for y in self.qkv(x).split(12, -1))
        mask = torch.ones(t, t, dtype=torch.bool).tril()
        scores = (q @ k.transpose(-1, -2) / 2).masked_fill(~mask, float("-inf"))
        y = scores.softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(b, t, -1))


class Detect(nn.Module):
    """Boxes from anchors, the best by score, without those that overlap."""

    def forward(self, boxes, scores):
        score, label = scores.max(1)
        near = torch.cat([boxes[:, :2], boxes[:, :2] + boxes[:, 2:].abs() + 0.5], 1)
        keep = torchvision.ops.nms(near, score, 0.4)
        return near[keep], score[keep], label[keep]


class Select(nn.Module):
    """Indices, comparisons, sorting, sums along an axis."""

    def forward(self, x, i):
        best, at = x.topk(3, 1)
        y = torch.where(x > 0, x, x * 0.1)
        z = torch.gather(y, 1, i.clamp(0, 3))
        return best, at, z, y.cumsum(1), torch.einsum("bi,bj->bij", x, y), x[:, ::2], x.argmax(1), torch.zeros_like(x).scatter(1, i, 2.0)


def models():
    torch.manual_seed(0)
    # Exporters know the layer's own operators, not the one that fuses it.
    torch.backends.mha.set_fastpath_enabled(False)
    image = {"n": 0, "h": 2, "w": 3}
    yield "mlp", Mlp(), {"x": torch.randn(3, 12)}, {"x": {0: "n"}}
    yield "cnn", Cnn(), {"x": torch.randn(2, 3, 17, 23)}, {"x": {v: k for k, v in image.items()}}
    yield "segment", Segment(), {"x": torch.randn(1, 3, 18, 22)}, {"x": {v: k for k, v in image.items()}}
    yield "bilinear", Bilinear(), {"x": torch.randn(1, 3, 6, 7)}, {"x": {v: k for k, v in image.items()}}
    yield "shuffle", Shuffle(), {"x": torch.randn(2, 8, 5, 6)}, {"x": {v: k for k, v in image.items()}}
    for kind in [nn.LSTM, nn.GRU, nn.RNN]:
        yield kind.__name__.lower(), Recurrent(kind), {"x": torch.randn(2, 5, 6)}, {"x": {0: "n", 1: "t"}}
    yield "bilstm", Recurrent(nn.LSTM, bidirectional=True, num_layers=2), {"x": torch.randn(2, 5, 6)}, {"x": {0: "n", 1: "t"}}
    mask = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]])
    ids = torch.randint(0, 20, (2, 5))
    yield "encoder", Encoder(), {"ids": ids, "mask": mask}, {"ids": {0: "n", 1: "t"}, "mask": {0: "n", 1: "t"}}
    yield "attention", Attention(), {"x": torch.randn(2, 5, 12)}, {"x": {0: "n", 1: "t"}}
    detect = {"boxes": torch.rand(9, 4) * 4, "scores": torch.rand(9, 3)}
    yield "detect", Detect(), detect, {"boxes": {0: "n"}, "scores": {0: "n"}}
    yield "select", Select(), {"x": torch.randn(3, 7), "i": torch.randint(0, 4, (3, 4))}, {"x": {0: "n"}, "i": {0: "n"}}


def export(name, model, inputs, axes, legacy, opset):
    def write(path):
        args = {"opset_version": opset, "input_names": list(inputs), "dynamo": not legacy}
        if legacy:
            # Names are the same for all inputs: dims of one name must agree. The encoder has the length of the trace
            # written into its attention.
            args["dynamic_axes"] = {k: {0: "n"} for k in axes} if name == "encoder" else axes
            args["do_constant_folding"] = opset != 11
        else:
            args["dynamic_shapes"] = {k: {i: torch.export.Dim(v) for i, v in d.items()} for k, d in axes.items()}
            args["verbose"] = False
            args["external_data"] = False
        with torch.no_grad():
            torch.onnx.export(model, tuple(inputs.values()), str(path), **args)

    return write


def main():
    folder = Folder(__doc__)
    for name, model, inputs, axes in models():
        if not folder.wants(name):
            continue
        model.eval()
        for legacy, opset in [(True, v) for v in LEGACY] + [(False, v) for v in DYNAMO]:
            stem = f"{name}_{'legacy' if legacy else 'dynamo'}_{opset}"
            folder.add(stem, export(name, model, inputs, axes, legacy, opset), {k: v.numpy() for k, v in inputs.items()})
    folder.close()


if __name__ == "__main__":
    main()
