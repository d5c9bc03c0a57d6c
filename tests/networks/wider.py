#!/usr/bin/env python3
"""Write further networks, of kinds that the benchmark set lacks: NAME.onnx and NAME.npz (its arguments) for each.

    wider.py OUT [NAME ..] [--open]

Classifiers, segmentation and video of torchvision, language, speech and vision models of transformers with few layers, and
written here: generators, vocoders, diffusion, detection, separation, recurrent and graph networks. Weights are seeded random.
--open leaves dims of those in OPEN open, for `benches/figures/figures.py OUT --only static`. What is there already stays. Needs torch, torchvision, transformers, onnx, onnxscript.
"""
import inspect
import os
import sys
import time
import warnings

import numpy as np
import onnx
import torch
import torch.nn.functional as F
import transformers as tr
from torch import nn
from torchvision import models as tv

warnings.filterwarnings("ignore")
OUT, WANTED = sys.argv[1], [a for a in sys.argv[2:] if a != "--open"]
PICTURE = (1, 3, 224, 224)
BATCH, WORDS = [{0: "batch"}], [{0: "batch", 1: "seq"}]
# The open dims of each argument.
OPEN = {
    **dict.fromkeys("whisper_enc clip_vision mobilevit segformer yolos swin2sr mixer nbeats unet unet3d r3d_18 yolov8n swin_t "
                    "vit_b_16 convnext_tiny".split(), BATCH),
    **dict.fromkeys("distilbert roberta deberta albert t5enc llama_prefill gpt2_prefill bilstm lstm wav2vec2".split(), WORDS),
    **dict.fromkeys("hifigan convtasnet encodec tcn pointnet".split(), [{2: "length"}]),
    "t5dec": [{0: "batch", 1: "seq"}, {0: "batch", 1: "made"}],
    "bert_b8": WORDS * 2,
    "dlrm": BATCH * 2,
    "sd_unet": BATCH * 2,
    "gnn": [{0: "nodes"}, {1: "edges"}],
    "gru_b32": [{0: "seq", 1: "batch"}],
    "crnn": [{0: "batch", 3: "columns"}],
    "espcn": [{0: "batch", 2: "rows", 3: "columns"}],
}


def save(name, make, *shapes):
    """Exports `make()` with arguments of these shapes: floats, or integers below the last of a list."""
    path = os.path.join(OUT, name + ".onnx")
    opened = OPEN.get(name) if "--open" in sys.argv else None
    if WANTED and name not in WANTED or os.path.exists(path) or "--open" in sys.argv and opened is None:
        return
    torch.manual_seed(0)
    start = time.time()
    args = [torch.randint(0, s[-1], tuple(s[:-1])) if isinstance(s, list) else torch.randn(*s) for s in shapes]
    shown, dims = args, None
    if opened:
        # One of something would be taken for the only number of it.
        double = lambda x, axes: x.repeat(*[2 if a in axes and n == 1 else 1 for a, n in enumerate(x.shape)])
        shown = [double(x, axes) for x, axes in zip(args, opened)]
        dims = tuple({a: torch.export.Dim.DYNAMIC for a in axes} for axes in opened)
        if "args" in inspect.signature(make().forward).parameters:
            dims = (dims,)
    with torch.no_grad():
        program = torch.onnx.export(make().eval(), tuple(shown), dynamo=True, opset_version=18, verbose=False, optimize=True,
            dynamic_shapes=dims)
    program.save(path + ".part", include_initializers=True)
    os.rename(path + ".part", path)
    names = [i.name for i in onnx.load(path, load_external_data=False).graph.input]
    np.savez(path[:-5] + ".npz", **{n: x.numpy() for n, x in zip(names, args)})
    print(f"{name}: {time.time() - start:.0f} s, {os.path.getsize(path) >> 20} MB", flush=True)


class Part(nn.Module):
    """Of what a model returns, one tensor."""

    def __init__(self, model, pick):
        super().__init__()
        self.model, self.pick = (model, pick)

    def forward(self, *args):
        return self.pick(self.model, *args)


class UNet(nn.Module):

    def __init__(s, c=32):
        super().__init__()

        def b(i, o):
            return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.Conv2d(o, o, 3,
                padding=1), nn.BatchNorm2d(o), nn.ReLU())
        s.d = nn.ModuleList([b(3, c), b(c, 2 * c), b(2 * c, 4 * c), b(4 * c, 8 * c)])
        s.u = nn.ModuleList([nn.ConvTranspose2d(8 * c, 4 * c, 2, 2), nn.ConvTranspose2d(4 * c, 2 * c, 2, 2),
            nn.ConvTranspose2d(2 * c, c, 2, 2)])
        s.e = nn.ModuleList([b(8 * c, 4 * c), b(4 * c, 2 * c), b(2 * c, c)])
        s.o = nn.Conv2d(c, 2, 1)

    def forward(s, x):
        k = []
        for i, d in enumerate(s.d):
            x = d(x)
            if i < 3:
                k.append(x)
                x = F.max_pool2d(x, 2)
        for u, e in zip(s.u, s.e):
            x = e(torch.cat([k.pop(), u(x)], 1))
        return s.o(x)


class DCGAN(nn.Module):

    def __init__(s):
        super().__init__()
        L = []
        c = [100, 512, 256, 128, 64, 3]
        for i in range(5):
            stride, padding = (1, 0) if i == 0 else (2, 1)
            L.append(nn.ConvTranspose2d(c[i], c[i + 1], 4, stride, padding, bias=False))
            L += [nn.BatchNorm2d(c[i + 1]), nn.ReLU()] if i < 4 else [nn.Tanh()]
        s.m = nn.Sequential(*L)

    def forward(s, x):
        return s.m(x)


class TCN(nn.Module):

    def __init__(s, c=64):
        super().__init__()
        s.i = nn.Conv1d(40, c, 1)
        s.l = nn.ModuleList([nn.Sequential(nn.Conv1d(c, c, 3, padding=2 ** i, dilation=2 ** i), nn.PReLU(),
            nn.GroupNorm(1, c), nn.Conv1d(c, c, 1)) for i in range(8)])
        s.o = nn.Conv1d(c, 30, 1)

    def forward(s, x):
        x = s.i(x)
        for l in s.l:
            x = x + l(x)
        return s.o(x).softmax(1)


class BiLSTM(nn.Module):

    def __init__(s):
        super().__init__()
        s.e = nn.Embedding(5000, 128)
        s.l = nn.LSTM(128, 128, 2, bidirectional=True, batch_first=True)
        s.o = nn.Linear(256, 20)

    def forward(s, x):
        return s.o(s.l(s.e(x))[0])


class ESPCN(nn.Module):

    def __init__(s):
        super().__init__()
        s.a = nn.Conv2d(1, 64, 5, padding=2)
        s.b = nn.Conv2d(64, 32, 3, padding=1)
        s.c = nn.Conv2d(32, 9, 3, padding=1)
        s.p = nn.PixelShuffle(3)

    def forward(s, x):
        return s.p(s.c(torch.tanh(s.b(torch.tanh(s.a(x))))))


class MLPMixer(nn.Module):

    def __init__(s, d=256, t=196):
        super().__init__()
        s.p = nn.Conv2d(3, d, 16, 16)
        s.l = nn.ModuleList([nn.ModuleList([nn.LayerNorm(d), nn.Linear(t, 128), nn.Linear(128, t), nn.LayerNorm(d),
            nn.Linear(d, 1024), nn.Linear(1024, d)]) for _ in range(8)])
        s.o = nn.Linear(d, 1000)

    def forward(s, x):
        x = s.p(x).flatten(2).transpose(1, 2)
        for n1, a, b, n2, c, d in s.l:
            x = x + b(F.gelu(a(n1(x).transpose(1, 2)))).transpose(1, 2)
            x = x + d(F.gelu(c(n2(x))))
        return s.o(x.mean(1))


class PointNet(nn.Module):

    def __init__(s):
        super().__init__()
        s.m = nn.Sequential(nn.Conv1d(3, 64, 1), nn.BatchNorm1d(64), nn.ReLU(), nn.Conv1d(64, 128, 1),
            nn.BatchNorm1d(128), nn.ReLU(), nn.Conv1d(128, 1024, 1))
        s.o = nn.Sequential(nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 40))

    def forward(s, x):
        return s.o(s.m(x).amax(2))


class DLRM(nn.Module):

    def __init__(s):
        super().__init__()
        s.b = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU())
        s.e = nn.ModuleList([nn.Embedding(2000, 64) for _ in range(26)])
        s.t = nn.Sequential(nn.Linear(64 + 351, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1),
            nn.Sigmoid())

    def forward(s, d, i):
        x = s.b(d)
        z = torch.stack([x] + [e(i[:, k]) for k, e in enumerate(s.e)], 1)
        w = torch.bmm(z, z.transpose(1, 2))
        r, c = torch.tril_indices(27, 27, -1)
        return s.t(torch.cat([x, w[:, r, c]], 1))


class HifiGan(nn.Module):

    def __init__(s, c=256):
        super().__init__()
        s.pre = nn.Conv1d(80, c, 7, padding=3)
        s.ups = nn.ModuleList()
        s.res = nn.ModuleList()
        for u, k in [(8, 16), (8, 16), (2, 4), (2, 4)]:
            s.ups.append(nn.ConvTranspose1d(c, c // 2, k, u, (k - u) // 2))
            c //= 2
            s.res.append(nn.ModuleList([nn.ModuleList([nn.Conv1d(c, c, kk, padding=kk // 2 * d,
                dilation=d) for d in (1, 3)]) for kk in (3, 7, 11)]))
        s.post = nn.Conv1d(c, 1, 7, padding=3)

    def forward(s, x):
        x = s.pre(x)
        for u, rs in zip(s.ups, s.res):
            x = u(F.leaky_relu(x, 0.1))
            o = 0
            for r in rs:
                y = x
                for c in r:
                    y = y + c(F.leaky_relu(y, 0.1))
                o = o + y
            x = o / 3
        return torch.tanh(s.post(F.leaky_relu(x)))


def conv_block(i, o, k=1, s=1):
    return nn.Sequential(nn.Conv2d(i, o, k, s, k // 2, bias=False), nn.BatchNorm2d(o), nn.SiLU())


class Bottleneck(nn.Module):

    def __init__(s, c):
        super().__init__()
        s.a = conv_block(c, c, 3)
        s.b = conv_block(c, c, 3)

    def forward(s, x):
        return x + s.b(s.a(x))


class C2f(nn.Module):

    def __init__(s, i, o, n=1):
        super().__init__()
        s.h = o // 2
        s.a = conv_block(i, o)
        s.m = nn.ModuleList([Bottleneck(s.h) for _ in range(n)])
        s.b = conv_block((2 + n) * s.h, o)

    def forward(s, x):
        y = list(s.a(x).split(s.h, 1))
        for m in s.m:
            y.append(m(y[-1]))
        return s.b(torch.cat(y, 1))


class SPPF(nn.Module):

    def __init__(s, c):
        super().__init__()
        s.a = conv_block(c, c // 2)
        s.b = conv_block(c * 2, c)

    def forward(s, x):
        x = s.a(x)
        y = F.max_pool2d(x, 5, 1, 2)
        z = F.max_pool2d(y, 5, 1, 2)
        return s.b(torch.cat([x, y, z, F.max_pool2d(z, 5, 1, 2)], 1))


class Detector(nn.Module):

    def __init__(s, w=16):
        super().__init__()
        s.s1 = conv_block(3, w, 3, 2)
        s.s2 = conv_block(w, 2 * w, 3, 2)
        s.c2 = C2f(2 * w, 2 * w, 1)
        s.s3 = conv_block(2 * w, 4 * w, 3, 2)
        s.c3 = C2f(4 * w, 4 * w, 2)
        s.s4 = conv_block(4 * w, 8 * w, 3, 2)
        s.c4 = C2f(8 * w, 8 * w, 2)
        s.s5 = conv_block(8 * w, 16 * w, 3, 2)
        s.c5 = C2f(16 * w, 16 * w, 1)
        s.sp = SPPF(16 * w)
        s.u4 = C2f(24 * w, 8 * w, 1)
        s.u3 = C2f(12 * w, 4 * w, 1)
        s.d4 = conv_block(4 * w, 4 * w, 3, 2)
        s.n4 = C2f(12 * w, 8 * w, 1)
        s.d5 = conv_block(8 * w, 8 * w, 3, 2)
        s.n5 = C2f(24 * w, 16 * w, 1)
        s.h = nn.ModuleList([nn.Sequential(conv_block(c, 64, 3), conv_block(64, 64, 3), nn.Conv2d(64, 144,
            1)) for c in (4 * w, 8 * w, 16 * w)])

    def forward(s, x):
        p3 = s.c3(s.s3(s.c2(s.s2(s.s1(x)))))
        p4 = s.c4(s.s4(p3))
        p5 = s.sp(s.c5(s.s5(p4)))
        a = s.u4(torch.cat([F.interpolate(p5, scale_factor=2.0), p4], 1))
        b = s.u3(torch.cat([F.interpolate(a, scale_factor=2.0), p3], 1))
        c = s.n4(torch.cat([s.d4(b), a], 1))
        d = s.n5(torch.cat([s.d5(c), p5], 1))
        o = torch.cat([h(v).flatten(2) for h, v in zip(s.h, (b, c, d))], 2)
        box, cls = o.split([64, 80], 1)
        n, _, l = box.shape
        w = torch.arange(16.0).view(1, 16, 1, 1)
        return torch.cat([(box.view(n, 4, 16, l).transpose(1, 2).softmax(1) * w).sum(1), cls.sigmoid()], 1)


class ResidualBlock(nn.Module):

    def __init__(s, i, o, t=0):
        super().__init__()
        s.n1 = nn.GroupNorm(32, i)
        s.c1 = nn.Conv2d(i, o, 3, padding=1)
        s.n2 = nn.GroupNorm(32, o)
        s.c2 = nn.Conv2d(o, o, 3, padding=1)
        s.k = nn.Conv2d(i, o, 1) if i != o else nn.Identity()
        s.t = nn.Linear(t, o) if t else None

    def forward(s, x, t=None):
        h = s.c1(F.silu(s.n1(x)))
        if t is not None:
            h = h + s.t(F.silu(t))[:, :, None, None]
        return s.k(x) + s.c2(F.silu(s.n2(h)))


class SpatialAttention(nn.Module):

    def __init__(s, c, h=4):
        super().__init__()
        s.n = nn.GroupNorm(32, c)
        s.q = nn.Linear(c, 3 * c)
        s.o = nn.Linear(c, c)
        s.h = h

    def forward(s, x):
        n, c, hh, w = x.shape
        y = s.n(x).flatten(2).transpose(1, 2)
        q, k, v = s.q(y).view(n, hh * w, 3, s.h, c // s.h).permute(2, 0, 3, 1, 4)
        a = (q @ k.transpose(-1, -2) * (c // s.h) ** (-0.5)).softmax(-1) @ v
        return x + s.o(a.transpose(1, 2).reshape(n, hh * w, c)).transpose(1, 2).view(n, c, hh, w)


class DiffusionUNet(nn.Module):

    def __init__(s, c=64, t=256):
        super().__init__()
        s.i = nn.Conv2d(4, c, 3, padding=1)
        s.t = nn.Sequential(nn.Linear(64, t), nn.SiLU(), nn.Linear(t, t))
        s.d1 = ResidualBlock(c, c, t)
        s.p1 = nn.Conv2d(c, c, 3, 2, 1)
        s.d2 = ResidualBlock(c, 2 * c, t)
        s.a2 = SpatialAttention(2 * c)
        s.p2 = nn.Conv2d(2 * c, 2 * c, 3, 2, 1)
        s.m1 = ResidualBlock(2 * c, 4 * c, t)
        s.ma = SpatialAttention(4 * c)
        s.m2 = ResidualBlock(4 * c, 2 * c, t)
        s.u2 = ResidualBlock(4 * c, 2 * c, t)
        s.b2 = SpatialAttention(2 * c)
        s.u1 = ResidualBlock(3 * c, c, t)
        s.n = nn.GroupNorm(32, c)
        s.o = nn.Conv2d(c, 4, 3, padding=1)

    def forward(s, x, t):
        t = s.t(t)
        x = s.i(x)
        a = s.d1(x, t)
        b = s.a2(s.d2(s.p1(a), t))
        m = s.m2(s.ma(s.m1(s.p2(b), t)), t)
        m = s.b2(s.u2(torch.cat([F.interpolate(m, scale_factor=2.0), b], 1), t))
        m = s.u1(torch.cat([F.interpolate(m, scale_factor=2.0), a], 1), t)
        return s.o(F.silu(s.n(m)))


class PictureDecoder(nn.Module):

    def __init__(s, c=128):
        super().__init__()
        s.i = nn.Conv2d(4, c, 3, padding=1)
        s.r = nn.ModuleList([ResidualBlock(c, c), ResidualBlock(c, c // 2), ResidualBlock(c // 2, c // 2)])
        s.u = nn.ModuleList([nn.Conv2d(c, c, 3, padding=1), nn.Conv2d(c // 2, c // 2, 3, padding=1), nn.Conv2d(c // 2,
            c // 2, 3, padding=1)])
        s.n = nn.GroupNorm(32, c // 2)
        s.o = nn.Conv2d(c // 2, 3, 3, padding=1)

    def forward(s, x):
        x = s.i(x)
        for r, u in zip(s.r, s.u):
            x = u(F.interpolate(r(x), scale_factor=2.0))
        return s.o(F.silu(s.n(x)))


class UNet3d(nn.Module):

    def __init__(s, c=16):
        super().__init__()

        def b(i, o):
            return nn.Sequential(nn.Conv3d(i, o, 3, padding=1), nn.InstanceNorm3d(o, affine=True), nn.LeakyReLU(0.01),
                nn.Conv3d(o, o, 3, padding=1), nn.InstanceNorm3d(o, affine=True), nn.LeakyReLU(0.01))
        s.a = b(1, c)
        s.b = b(c, 2 * c)
        s.c = b(2 * c, 4 * c)
        s.u2 = nn.ConvTranspose3d(4 * c, 2 * c, 2, 2)
        s.d2 = b(4 * c, 2 * c)
        s.u1 = nn.ConvTranspose3d(2 * c, c, 2, 2)
        s.d1 = b(2 * c, c)
        s.o = nn.Conv3d(c, 3, 1)

    def forward(s, x):
        a = s.a(x)
        b = s.b(F.max_pool3d(a, 2))
        c = s.c(F.max_pool3d(b, 2))
        b = s.d2(torch.cat([s.u2(c), b], 1))
        return s.o(s.d1(torch.cat([s.u1(b), a], 1)))


class ConvTasNet(nn.Module):

    def __init__(s, N=256, Bc=128, H=256):
        super().__init__()
        s.e = nn.Conv1d(1, N, 16, 8, bias=False)
        s.n = nn.GroupNorm(1, N)
        s.b = nn.Conv1d(N, Bc, 1)
        s.l = nn.ModuleList([nn.ModuleList([nn.Conv1d(Bc, H, 1), nn.PReLU(), nn.GroupNorm(1, H), nn.Conv1d(H, H, 3,
            padding=2 ** i, dilation=2 ** i, groups=H), nn.PReLU(), nn.GroupNorm(1, H), nn.Conv1d(H, Bc,
            1)]) for i in range(8)])
        s.m = nn.Conv1d(Bc, 2 * N, 1)
        s.d = nn.ConvTranspose1d(N, 1, 16, 8, bias=False)
        s.N = N

    def forward(s, x):
        w = F.relu(s.e(x))
        y = s.b(s.n(w))
        for l in s.l:
            z = y
            for f in l:
                z = f(z)
            y = y + z
        m = torch.sigmoid(s.m(y)).view(2, s.N, -1)
        return s.d(w * m)


class AudioEncoder(nn.Module):

    def __init__(s):
        super().__init__()
        s.c = nn.Sequential(nn.Conv1d(1, 32, 7, padding=3), nn.ELU(), nn.Conv1d(32, 64, 4, 2, 1), nn.ELU(),
            nn.Conv1d(64, 128, 8, 4, 2), nn.ELU(), nn.Conv1d(128, 256, 10, 5, 3), nn.ELU(), nn.Conv1d(256, 256, 16, 8, 4))
        s.l = nn.LSTM(256, 256, 2, batch_first=True)
        s.o = nn.Conv1d(256, 128, 7, padding=3)

    def forward(s, x):
        x = s.c(x).transpose(1, 2)
        return s.o((x + s.l(x)[0]).transpose(1, 2))


class GNN(nn.Module):

    def __init__(s):
        super().__init__()
        s.a = nn.Linear(32, 64)
        s.b = nn.Linear(64, 64)
        s.o = nn.Linear(64, 7)

    def forward(s, x, e):
        for l in (s.a, s.b):
            x = F.relu(l(x))
            x = x + torch.zeros_like(x).index_add(0, e[1], x[e[0]])
        return s.o(x)


class Gru(nn.Module):

    def __init__(s):
        super().__init__()
        s.g = nn.GRU(64, 256, 1)
        s.o = nn.Linear(256, 10)

    def forward(s, x):
        return s.o(s.g(x)[0][-1])


class Lstm(nn.Module):

    def __init__(s):
        super().__init__()
        s.g = nn.LSTM(80, 256, 2, batch_first=True)
        s.o = nn.Linear(256, 40)

    def forward(s, x):
        return s.o(s.g(x)[0])


class CRNN(nn.Module):

    def __init__(s):
        super().__init__()
        s.c = nn.Sequential(nn.Conv2d(1, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(64, 128, 3,
            padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(128, 256, 3, padding=1), nn.BatchNorm2d(256), nn.ReLU(),
            nn.MaxPool2d((2, 1)), nn.Conv2d(256, 256, (4, 1)))
        s.l = nn.LSTM(256, 128, 1, bidirectional=True)
        s.o = nn.Linear(256, 37)

    def forward(s, x):
        return s.o(s.l(s.c(x).squeeze(2).permute(2, 0, 1))[0]).log_softmax(-1)


class NBeats(nn.Module):

    def __init__(s):
        super().__init__()
        s.b = nn.ModuleList([nn.Sequential(*sum([[nn.Linear(i, 256), nn.ReLU()] for i in (120, 256, 256, 256)], []),
            nn.Linear(256, 144)) for _ in range(6)])

    def forward(s, x):
        o = 0
        for b in s.b:
            t = b(x)
            x = x - t[:, :120]
            o = o + t[:, 120:]
        return o


def main():
    os.makedirs(OUT, exist_ok=True)
    for name in ("mobilenet_v3_small mobilenet_v3_large shufflenet_v2_x1_0 mnasnet1_0 regnet_y_400mf regnet_x_800mf "
                 "convnext_tiny efficientnet_v2_s densenet121 resnext50_32x4d wide_resnet50_2 swin_t swin_v2_t maxvit_t "
                 "vit_b_16 alexnet resnet34").split():
        save(name, lambda: getattr(tv, name)(weights=None), PICTURE)
    save("googlenet", lambda: tv.googlenet(weights=None, init_weights=False), PICTURE)
    save("inception_v3", lambda: tv.inception_v3(weights=None, init_weights=False), (1, 3, 299, 299))
    save("resnet18_b8", lambda: tv.resnet18(weights=None), (8, 3, 224, 224))
    for name, side in [("lraspp_mobilenet_v3_large", 256), ("deeplabv3_mobilenet_v3_large", 256), ("fcn_resnet50", 192)]:
        make = getattr(tv.segmentation, name)
        save(name, lambda: Part(make(weights=None, weights_backbone=None), lambda m, x: m(x)["out"]), (1, 3, side, side))
    save("r3d_18", lambda: tv.video.r3d_18(weights=None), (1, 3, 8, 112, 112))
    save("unet", UNet, (1, 3, 128, 128))
    save("unet3d", UNet3d, (1, 1, 32, 48, 48))
    save("dcgan", DCGAN, (1, 100, 1, 1))
    save("hifigan", HifiGan, (1, 80, 40))
    save("convtasnet", ConvTasNet, (1, 1, 8000))
    save("encodec", AudioEncoder, (1, 1, 12000))
    save("tcn", TCN, (1, 40, 400))
    save("espcn", ESPCN, (1, 1, 160, 160))
    save("yolov8n", Detector, (1, 3, 320, 320))
    save("sd_unet", DiffusionUNet, (1, 4, 32, 32), (1, 64))
    save("vae_dec", PictureDecoder, (1, 4, 16, 16))
    save("mixer", MLPMixer, PICTURE)
    save("pointnet", PointNet, (1, 3, 1024))
    save("dlrm", DLRM, (16, 13), [16, 26, 2000])
    save("gnn", GNN, (1000, 32), [2, 5000, 1000])
    save("nbeats", NBeats, (32, 120))
    save("bilstm", BiLSTM, [1, 64, 5000])
    save("lstm", Lstm, (1, 100, 80))
    save("gru_b32", Gru, (50, 32, 64))
    save("crnn", CRNN, (1, 1, 32, 128))
    eager = {"attn_implementation": "eager"}
    small = {"vocab_size": 5000, "num_hidden_layers": 3}
    words, hidden = [1, 128, 1000], lambda m, x: m(x).last_hidden_state
    save("distilbert", lambda: Part(tr.DistilBertModel(tr.DistilBertConfig(n_layers=3, vocab_size=5000, **eager)),
        hidden), words)
    save("roberta", lambda: Part(tr.RobertaModel(tr.RobertaConfig(**small, **eager), add_pooling_layer=False), hidden), words)
    sizes = {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536}
    save("deberta", lambda: Part(tr.DebertaV2Model(tr.DebertaV2Config(**small, **sizes)), hidden), words)
    shared = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072, "num_hidden_layers": 6}
    save("albert", lambda: Part(tr.AlbertModel(tr.AlbertConfig(vocab_size=5000, **shared, **eager)), hidden), words)
    save("t5enc", lambda: Part(tr.T5EncoderModel(tr.T5Config(num_layers=4, vocab_size=5000)), hidden), words)
    both = lambda m, x, y: m(input_ids=x, decoder_input_ids=y, use_cache=False).last_hidden_state
    save("t5dec", lambda: Part(tr.T5Model(tr.T5Config(num_layers=2, vocab_size=2000, use_cache=False)), both), [1, 64,
        2000], [1, 16, 2000])
    masked = lambda m, x, k: m(x, attention_mask=k + 1).last_hidden_state
    bert = tr.BertConfig(**{**small, **sizes, "num_hidden_layers": 2}, **eager)
    save("bert_b8", lambda: Part(tr.BertModel(bert, add_pooling_layer=False), masked), [8, 64, 3000], [8, 64, 1])
    llama = {"hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 4, "num_attention_heads": 8,
        "num_key_value_heads": 4}
    llama = tr.LlamaConfig(**llama, vocab_size=4000, use_cache=False, **eager)
    save("llama_prefill", lambda: Part(tr.LlamaModel(llama), hidden), words)
    gpt2 = tr.GPT2Config(n_layer=4, vocab_size=5000, bos_token_id=0, eos_token_id=0, use_cache=False, **eager)
    save("gpt2_prefill", lambda: Part(tr.GPT2Model(gpt2), hidden), words)
    whisper = {"encoder_layers": 4, "d_model": 384, "encoder_attention_heads": 6, "encoder_ffn_dim": 1536}
    whisper = tr.WhisperConfig(**whisper, max_source_positions=500, **eager)
    encoder = tr.models.whisper.modeling_whisper.WhisperEncoder
    save("whisper_enc", lambda: Part(encoder(whisper), hidden), (1, 80, 1000))
    save("wav2vec2", lambda: Part(tr.Wav2Vec2Model(tr.Wav2Vec2Config(num_hidden_layers=3, **eager)), hidden), (1, 16000))
    clip = tr.CLIPVisionConfig(num_hidden_layers=4, **eager)
    save("clip_vision", lambda: Part(tr.CLIPVisionModel(clip), lambda m, x: m(x).pooler_output), PICTURE)
    save("mobilevit", lambda: Part(tr.MobileViTModel(tr.MobileViTConfig(image_size=256, **eager)), hidden), (1, 3, 256, 256))
    segment = lambda m, x: m(x).logits
    save("segformer", lambda: Part(tr.SegformerForSemanticSegmentation(tr.SegformerConfig()), segment), (1, 3, 256, 256))
    mamba = tr.MambaConfig(num_hidden_layers=2, hidden_size=256, vocab_size=2000, use_cache=False)
    save("mamba", lambda: Part(tr.MambaModel(mamba), hidden), [1, 32, 1000])
    yolos = {"hidden_size": 192, "num_hidden_layers": 4, "num_attention_heads": 3, "intermediate_size": 768}
    yolos = tr.YolosConfig(**yolos, image_size=[224, 224], **eager)
    save("yolos", lambda: Part(tr.YolosModel(yolos), hidden), PICTURE)
    swin = tr.Swin2SRConfig(image_size=48, embed_dim=60, depths=[2, 2], num_heads=[6, 6])
    save("swin2sr", lambda: Part(tr.Swin2SRForImageSuperResolution(swin), lambda m, x: m(x).reconstruction), (1, 3, 48, 48))


if __name__ == "__main__":
    main()
