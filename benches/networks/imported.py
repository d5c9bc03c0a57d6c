#!/usr/bin/env python3
"""Networks of torch as TVM's importer writes them in Relax, beside their ONNX export: what part of its time a call takes. Also
behind TVM's passes: LegalizeOps, with a PrimFunc for each operator, and FuseTIR, with one for each group that TVM fuses.

    benches/networks/imported.py OUT [NETWORK ..] [--seconds 2] [--store]

Writes NAME.rlx, NAME_legal.rlx, NAME_fused.rlx, their weights NAME_w.npz, NAME.onnx and NAME.npz (the argument) into OUT, where they are not there yet; compiles all
(`--target-cpu native`, one thread; the compiler is RELAX_AOT, or target/release/relax-aot), checks the results of each against
torch's to 1e-4 of the largest value, and calls the libraries in turns. Weights are seeded random, with moments for batch norms. --store
puts the table into docs/performance.md. Needs torch, torchvision, transformers, onnx and apache-tvm.
"""

import argparse
import math
import pathlib
import sys
import time
import warnings

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import networks  # noqa: E402

MARK = "<!-- The last run of benches/networks/imported.py --store. -->"
END = "<!-- The end of imported. -->"
CLASSIFIERS = (
    "alexnet convnext_tiny densenet121 efficientnet_b0 efficientnet_v2_s googlenet inception_v3 maxvit_t mnasnet1_0 mobilenet_v2 "
    "mobilenet_v3_large regnet_y_400mf resnet18 resnext50_32x4d shufflenet_v2_x1_0 squeezenet1_1 swin_t swin_v2_t vit_b_16"
).split()
# As it is imported, behind LegalizeOps, and behind FuseTIR.
FORMS = ["", "_legal", "_fused"]
OTHERS = ["deeplabv3_mobilenet_v3_large", "r3d_18", "unet", "gated", "lstm", "distilbert"]


def unet():
    """Norms of groups, transposed convolutions and pictures of another size."""
    from torch import nn

    def block(taken, made):
        layers = []
        for n in (taken, made):
            layers += [nn.Conv2d(n, made, 3, padding=1), nn.GroupNorm(8, made), nn.SiLU()]
        return nn.Sequential(*layers)

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c, self.d = block(3, 32), block(32, 64), block(64, 64), block(128, 32)
            self.up, self.last = nn.ConvTranspose2d(64, 64, 2, 2), nn.Conv2d(32, 3, 1)

        def forward(self, x):
            import torch
            import torch.nn.functional as F

            b = self.b(F.max_pool2d(self.a(x), 2))
            joined = torch.cat([self.up(self.c(F.avg_pool2d(b, 2))), b], 1)
            return self.last(F.interpolate(self.d(joined), scale_factor=2, mode="bilinear"))

    return UNet()


def gated():
    """A gate of dense layers, PReLU, norms of instances, hard swish and shuffled pixels."""
    from torch import nn

    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm, self.prelu = nn.Conv2d(3, 64, 3, 2, 1, bias=False), nn.BatchNorm2d(64), nn.PReLU(64)
            self.down, self.up = nn.Linear(64, 16), nn.Linear(16, 64)
            self.mix, self.instance = nn.Conv2d(64, 32, 1), nn.InstanceNorm2d(32, affine=True)
            self.shuffle, self.last = nn.PixelShuffle(2), nn.Conv2d(8, 16, 3, padding=1)

        def forward(self, x):
            import torch
            import torch.nn.functional as F

            x = self.prelu(self.norm(self.first(x)))
            gate = torch.sigmoid(self.up(torch.relu(self.down(x.mean((2, 3))))))
            x = self.instance(self.mix(x * gate.view(x.shape[0], x.shape[1], 1, 1).expand_as(x)))
            return self.last(self.shuffle(F.hardswish(x)))

    return Gated()


def lstm():
    from torch import nn

    class Lstm(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.last = nn.LSTM(64, 128, 2, batch_first=True), nn.Linear(128, 10)

        def forward(self, x):
            return self.last(self.lstm(x)[0])

    return Lstm()


def made(name):
    """The model and its argument."""
    import torch
    import torchvision

    if name in ("unet", "gated"):
        return globals()[name](), torch.rand(1, 3, 128, 128)
    if name == "lstm":
        return lstm(), torch.rand(1, 50, 64)
    if name == "distilbert":
        import transformers

        config = transformers.DistilBertConfig(n_layers=2, vocab_size=1000)
        return transformers.DistilBertModel(config), torch.randint(0, 1000, (1, 64))
    if name == "deeplabv3_mobilenet_v3_large":
        return torchvision.models.segmentation.deeplabv3_mobilenet_v3_large(weights=None, weights_backbone=None), torch.rand(1, 3, 224, 224)
    if name == "r3d_18":
        return torchvision.models.video.r3d_18(weights=None), torch.rand(1, 3, 8, 64, 64)
    side = 299 if name == "inception_v3" else 224
    return getattr(torchvision.models, name)(weights=None), torch.rand(1, 3, side, side)


def write(out, name):
    import torch
    from tvm import relax
    from tvm.relax.frontend.torch import from_exported_program

    torch.manual_seed(0)
    model, x = made(name)
    model = model.eval()
    for m in model.modules():
        if isinstance(m, (torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)):
            m.running_mean.uniform_(-0.1, 0.1)
            m.running_var.uniform_(0.5, 1.5)
        head = getattr(m, "heads", None)
        if head is not None:
            # torchvision begins with zeros here.
            torch.nn.init.normal_(head[-1].weight, std=0.02)
    module = from_exported_program(torch.export.export(model, (x,)), keep_params_as_input=True)
    module, params = relax.frontend.detach_params(module)
    main = module["main"]
    first = int(main.attrs["num_input"])
    names = [p.name for p in main.params]
    (out / f"{name}.rlx").write_text(module.script(show_meta=True))
    legal = relax.transform.LegalizeOps()(module)
    (out / f"{name}_legal.rlx").write_text(legal.script(show_meta=True))
    for fusing in ("AnnotateTIROpPattern", "FuseOps", "FuseTIR"):
        legal = getattr(relax.transform, fusing)()(legal)
    (out / f"{name}_fused.rlx").write_text(legal.script(show_meta=True))
    np.savez(out / f"{name}_w.npz", **{n: p.numpy() for n, p in zip(names[first:], params.get("main", []))})
    y = model(x)
    y = y if torch.is_tensor(y) else next(iter(y.values()))
    np.savez(out / f"{name}.npz", **{names[0]: x.numpy(), "result": y.detach().numpy()})
    torch.onnx.export(model, (x,), str(out / f"{name}.onnx"), dynamo=False, input_names=[names[0]])


def measured(out, name, seconds):
    arrays = np.load(out / f"{name}.npz")
    feeds = {k: arrays[k] for k in arrays.files if k != "result"}
    weights = ["--params", str(out / f"{name}_w.npz")]
    all_ = [networks.Ours(str(out / f"{name}{form}.rlx"), feeds, 1, *weights) for form in FORMS]
    all_.append(networks.Ours(str(out / f"{name}.onnx"), feeds, 1))
    wanted = arrays["result"]
    for library in all_:
        library.call()
        error = np.abs(library.outputs()[0] - wanted).max() / np.abs(wanted).max()
        if not error < 1e-4:
            sys.exit(f"{name}: results differ from torch's by {error:.1e} of the largest one")
    times, until = [[] for _ in all_], time.time() + seconds
    while time.time() < until:
        for library, list_ in zip(all_, times):
            begin = time.perf_counter()
            library.call()
            list_.append(time.perf_counter() - begin)
    return [min(t) * 1e3 for t in times]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out", type=pathlib.Path)
    p.add_argument("networks", nargs="*")
    p.add_argument("--seconds", type=float, default=2)
    p.add_argument("--store", action="store_true")
    a = p.parse_args()
    warnings.filterwarnings("ignore")
    a.out.mkdir(parents=True, exist_ok=True)
    lines = ["| network | ONNX, ms | Relax, of its time | legalized | fused |", "|---|---|---|---|---|"]
    ratios = []
    for name in a.networks or CLASSIFIERS + OTHERS:
        if not (a.out / f"{name}.onnx").exists() or not (a.out / f"{name}_fused.rlx").exists():
            print(f"{name}: written", file=sys.stderr, flush=True)
            write(a.out, name)
        *relax, onnx = measured(a.out, name, a.seconds)
        ratios.append([t / onnx for t in relax])
        lines.append(f"| {name} | {onnx:.3g} | {' | '.join(f'{r:.2f}' for r in ratios[-1])} |")
        print(lines[-1], flush=True)
    means = [math.exp(sum(map(math.log, r)) / len(r)) for r in zip(*ratios)]
    text = "\n".join([networks.machine(), "", *lines, "", "Geometric means " + ", ".join(f"{m:.3f}" for m in means) + "."])
    if a.store:
        networks.store(text, MARK, END)
    print(text)


if __name__ == "__main__":
    main()
