#!/usr/bin/env python3
"""Write small networks of the kinds that users bring: detectors, speech, text to text, language models, quantised ones.

    kinds_models.py OUT [--only NAME,..]

Detectors of torchvision with non-maximum suppression, Whisper and T5 of transformers (encoder, and decoder steps with
caches), a greedy decoder as a scripted loop, LLaMA with key and value caches in ai.onnx and in com.microsoft's operators
(GroupQueryAttention, RotaryEmbedding, MatMulNBits), and what onnxruntime's quantisers make of a CNN and of BERT: static as
QDQ and as operators, dynamic, fused attention. Compare with `tests/networks/compare.py RELAX_AOT OUT --no-text`. Needs
torch, torchvision, transformers, onnxscript and onnxruntime.
"""
import logging
import tempfile
import warnings
from pathlib import Path

import numpy as np
import onnx
import torch
import torchvision
from onnx import TensorProto, helper
from torch import nn
from torch.nn import functional as F

from writing import Folder

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
torch.manual_seed(0)
torch.backends.mha.set_fastpath_enabled(False)
Dim = torch.export.Dim


def numpy(inputs):
    return {k: v.numpy() for k, v in inputs.items()}


def legacy(model, inputs, axes, opset=17):
    def write(path):
        with torch.no_grad():
            torch.onnx.export(model, tuple(inputs.values()), str(path), opset_version=opset, input_names=list(inputs), dynamic_axes=axes, dynamo=False)

    return write


def dynamo(model, inputs, axes, opset=20):
    def write(path):
        shapes = {k: {i: Dim(v) for i, v in axes.get(k, {}).items()} for k in inputs}
        with torch.no_grad():
            torch.onnx.export(model, tuple(inputs.values()), str(path), opset_version=opset, input_names=list(inputs),
                              dynamic_shapes=tuple(shapes.values()), dynamo=True, verbose=False, external_data=False)

    return write


class Detector(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, image):
        out = self.model([image])[0]
        return tuple(out[k] for k in sorted(out))


def detectors(folder):
    detection = torchvision.models.detection
    made = {
        "ssdlite": lambda: detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=4, score_thresh=0.2, topk_candidates=40, detections_per_img=20),
        "fasterrcnn": lambda: detection.fasterrcnn_mobilenet_v3_large_320_fpn(weights=None, weights_backbone=None, num_classes=4, box_score_thresh=0.2, rpn_pre_nms_top_n_test=60, rpn_post_nms_top_n_test=30, box_detections_per_img=20, min_size=96, max_size=128),
        "retinanet": lambda: detection.RetinaNet(detection.backbone_utils.mobilenet_backbone("mobilenet_v3_small", None, True), 4, min_size=96, max_size=128, score_thresh=0.01, topk_candidates=40, detections_per_img=20,
                                                anchor_generator=detection.anchor_utils.AnchorGenerator(((16, 32), (32, 64), (64, 128)), ((1.0,),) * 3)),
    }
    for name, make in made.items():
        if not folder.wants(name):
            continue
        try:
            model = Detector(make()).eval()
        except Exception as e:
            print(f"{name}: torchvision: {e}")
            continue
        inputs = {"image": torch.rand(3, 96, 120)}
        folder.add(f"{name}_legacy", legacy(model, inputs, None), numpy(inputs))


class Heads(nn.Module):
    """The end of a YOLO: boxes of three strides decoded, the best of each class kept, any number of images."""

    def forward(self, small, large):
        found = []
        for stride, x in ((16, small), (8, large)):
            n, c, h, w = x.shape
            y = x.view(n, 3, c // 3, h, w).permute(0, 1, 3, 4, 2)
            grid = torch.stack(torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij"), -1).flip(-1).float()
            xy = (y[..., :2].sigmoid() * 2 - 0.5 + grid) * stride
            wh = (y[..., 2:4].sigmoid() * 2) ** 2 * stride * 2
            found.append(torch.cat([xy - wh / 2, xy + wh / 2, y[..., 4:].sigmoid()], -1).flatten(1, 3))
        found = torch.cat(found, 1)
        boxes, scores = found[..., :4], found[..., 4:5] * found[..., 5:]
        best, label = scores[0].max(-1)
        keep = torchvision.ops.batched_nms(boxes[0], best, label, 0.45)
        return boxes[0][keep], best[keep], label[keep], scores


class Greedy(nn.Module):
    """A scripted greedy decoder: a loop that ends when every row has ended, a branch in it."""

    def __init__(self):
        super().__init__()
        self.embed, self.mix, self.out = nn.Embedding(13, 8), nn.Linear(16, 8), nn.Linear(8, 13)

    def forward(self, state: torch.Tensor, most: torch.Tensor) -> torch.Tensor:
        token = torch.zeros([state.size(0)], dtype=torch.long)
        tokens = token.unsqueeze(1)
        i = 0
        going = True
        while going and i < int(most):
            state = torch.tanh(self.mix(torch.cat([self.embed(token), state], 1)))
            logits = self.out(state)
            if i < 2:
                token = logits[:, 1:].argmax(1) + 1
            else:
                token = logits.argmax(1)
            tokens = torch.cat([tokens, token.unsqueeze(1)], 1)
            going = bool((token != 0).any())
            i += 1
        return tokens


def speech(folder):
    import transformers as hf

    c = hf.WhisperConfig(vocab_size=51, num_mel_bins=8, encoder_layers=2, encoder_attention_heads=2, decoder_layers=2, decoder_attention_heads=2, decoder_ffn_dim=24, encoder_ffn_dim=24, d_model=16,
                         max_source_positions=20, max_target_positions=24, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None, attn_implementation="eager")
    model = hf.WhisperForConditionalGeneration(c).eval()

    class Encoder(nn.Module):
        def forward(self, mel):
            return model.model.encoder(mel).last_hidden_state

    class Decoder(nn.Module):
        def forward(self, ids, states):
            return model.proj_out(model.model.decoder(input_ids=ids, encoder_hidden_states=states, use_cache=False).last_hidden_state)

    inputs = {"mel": torch.randn(2, 8, 40)}
    if folder.wants("whisper_encoder"):
        m = Encoder()
        m.inner = model
        folder.add("whisper_encoder_dynamo", dynamo(m, inputs, {"mel": {0: "n"}}), numpy(inputs))
        folder.add("whisper_encoder_legacy", legacy(m, inputs, {"mel": {0: "n"}}), numpy(inputs))
    inputs = {"ids": torch.randint(0, 51, (2, 5)), "states": torch.randn(2, 20, 16)}
    if folder.wants("whisper_decoder"):
        m = Decoder()
        m.inner = model
        folder.add("whisper_decoder_dynamo", dynamo(m, inputs, {"ids": {0: "n", 1: "t"}, "states": {0: "n"}}), numpy(inputs))
    if folder.wants("greedy"):
        inputs = {"state": torch.randn(3, 8), "most": torch.tensor(9)}
        folder.add("greedy_legacy", legacy(torch.jit.script(Greedy().eval()), inputs, {"state": {0: "n"}}), numpy(inputs))
    if folder.wants("heads"):
        inputs = {"small": torch.randn(1, 24, 4, 5), "large": torch.randn(1, 24, 8, 10)}
        axes = {"small": {2: "h", 3: "w"}, "large": {2: "h2", 3: "w2"}}
        folder.add("heads_legacy", legacy(Heads(), inputs, axes), numpy(inputs))


def text(folder):
    import transformers as hf

    if folder.wants("t5"):
        c = hf.T5Config(vocab_size=37, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2, relative_attention_num_buckets=8, decoder_start_token_id=0, attn_implementation="eager", use_cache=False)
        model = hf.T5ForConditionalGeneration(c).eval()

        class Both(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = model

            def forward(self, ids, mask, out):
                return self.inner(input_ids=ids, attention_mask=mask, decoder_input_ids=out, use_cache=False).logits

        mask = torch.ones(2, 7, dtype=torch.long)
        mask[1, 5:] = 0
        inputs = {"ids": torch.randint(0, 37, (2, 7)), "mask": mask, "out": torch.randint(0, 37, (2, 4))}
        axes = {"ids": {0: "n", 1: "t"}, "mask": {0: "n", 1: "t"}, "out": {0: "n", 1: "u"}}
        folder.add("t5_dynamo", dynamo(Both(), inputs, axes), numpy(inputs))
        folder.add("t5_legacy", legacy(Both(), inputs, axes), numpy(inputs))
    if folder.wants("llama"):
        c = hf.LlamaConfig(vocab_size=41, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, attn_implementation="eager")
        model = hf.LlamaForCausalLM(c).eval()

        class Step(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = model

            def forward(self, ids, mask, k0, v0, k1, v1):
                cache = hf.DynamicCache()
                for i, (k, v) in enumerate(((k0, v0), (k1, v1))):
                    cache.update(k, v, i)
                positions = (mask.cumsum(1) - 1)[:, -ids.shape[1] :]
                out = self.inner(input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True)
                new = out.past_key_values
                return out.logits, new.layers[0].keys, new.layers[0].values, new.layers[1].keys, new.layers[1].values

        inputs = {"ids": torch.randint(0, 41, (2, 3)), "mask": torch.ones(2, 8, dtype=torch.long)}
        inputs |= {k: torch.randn(2, 2, 5, 8) for k in ("k0", "v0", "k1", "v1")}
        axes = {"ids": {0: "n"}, "mask": {0: "n", 1: "s"}} | {k: {0: "n", 2: "p"} for k in ("k0", "v0", "k1", "v1")}
        folder.add("llama_legacy", legacy(Step(), inputs, {k: {0: "n"} for k in axes}), numpy(inputs))

        def write(path):
            with torch.no_grad():
                d = {"n": Dim("n"), "p": Dim("p")}
                shapes = {"ids": {0: d["n"]}, "mask": {0: d["n"], 1: d["p"] + 3}} | {k: {0: d["n"], 2: d["p"]} for k in ("k0", "v0", "k1", "v1")}
                torch.onnx.export(Step(), tuple(inputs.values()), str(path), opset_version=20, input_names=list(inputs), dynamic_shapes=tuple(shapes.values()), dynamo=True, verbose=False, external_data=False)

        folder.add("llama_dynamo", write, numpy(inputs))
    if folder.wants("llama_contrib"):
        folder.add("llama_contrib", *contrib_llama())


def contrib_llama(layers=2, width=32, heads=4, kv=2, size=16, vocabulary=41, most=64):
    """As onnxruntime-genai's builder writes it: one library for the prompt and for each step."""
    rng = np.random.default_rng(0)
    nodes, weights = [], []

    def weight(name, *shape, dtype="f4"):
        v = rng.standard_normal(shape).astype("f4") * 0.2
        weights.append(onnx.numpy_helper.from_array(v if dtype == "f4" else rng.integers(0, 256, shape).astype(dtype), name))
        return name

    def node(op, inputs, outputs, domain="com.microsoft", **attributes):
        nodes.append(helper.make_node(op, inputs, outputs, domain=domain, **attributes))
        return outputs[0]

    def linear(x, name, depth, columns):
        blocks = -(-depth // 16)
        weight(f"{name}.q", columns, blocks, 8, dtype="u1")
        weights.append(onnx.numpy_helper.from_array((rng.random((columns * blocks)) * 0.02).astype("f4"), f"{name}.s"))
        return node("MatMulNBits", [x, f"{name}.q", f"{name}.s"], [f"{name}.y"], K=depth, N=columns, bits=4, block_size=16, accuracy_level=0)

    angles = np.outer(np.arange(most), 1 / 10000 ** (np.arange(size // 2) / (size // 2)))
    for name, v in ("cos", np.cos(angles)), ("sin", np.sin(angles)):
        weights.append(onnx.numpy_helper.from_array(v.astype("f4"), name))
    for name, v in ("one", np.array([1], "i8")), ("zero", np.array(1, "i8")):
        weights.append(onnx.numpy_helper.from_array(v, name))
    x = node("Gather", [weight("embed", vocabulary, width), "input_ids"], ["x"], domain="")
    # The lengths, as the builder computes them from the mask.
    node("ReduceSum", ["attention_mask", "one"], ["sum"], domain="", keepdims=1)
    node("Sub", ["sum", "one"], ["less"], domain="")
    lengths = node("Cast", ["less"], ["lengths"], domain="", to=TensorProto.INT32)
    node("Shape", ["attention_mask"], ["dims"], domain="")
    node("Gather", ["dims", "zero"], ["total64"], domain="")
    total = node("Cast", ["total64"], ["total"], domain="", to=TensorProto.INT32)
    f, i8, i4 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32
    info = helper.make_tensor_value_info
    ins = [info("input_ids", i8, ["n", "t"]), info("attention_mask", i8, ["n", "s"])]
    outs = [info("logits", f, ["n", "t", vocabulary])]
    def feeds(new, past):
        out = {"input_ids": rng.integers(0, vocabulary, (2, new)), "attention_mask": np.ones((2, past + new), "i8")}
        return out | {f"past.{i}.{w}": rng.standard_normal((2, kv, past, size)).astype("f4") for i in range(layers) for w in ("key", "value")}

    normal = node("SimplifiedLayerNormalization", [x, weight("norm0", width)], ["normal0"], domain="", axis=-1, epsilon=1e-5, stash_type=1)
    for i in range(layers):
        q, k, v = (linear(normal, f"{w}{i}", width, (heads if w == "q" else kv) * size) for w in "qkv")
        for w in ("key", "value"):
            ins.append(info(f"past.{i}.{w}", f, ["n", kv, "p", size]))
            outs.append(info(f"present.{i}.{w}", f, ["n", kv, "s", size]))
        a = f"attention{i}"
        node("GroupQueryAttention", [q, k, v, f"past.{i}.key", f"past.{i}.value", lengths, total, "cos", "sin"], [a, f"present.{i}.key", f"present.{i}.value"],
             num_heads=heads, kv_num_heads=kv, do_rotary=1, rotary_interleaved=0, scale=size**-0.5)
        y = linear(a, f"o{i}", heads * size, width)
        node("SkipSimplifiedLayerNormalization", [x, y, weight(f"post{i}", width)], [f"p{i}", "", "", f"r{i}"], epsilon=1e-5)
        gate, up = linear(f"p{i}", f"gate{i}", width, 48), linear(f"p{i}", f"up{i}", width, 48)
        node("Sigmoid", [gate], [f"sig{i}"], domain="")
        node("Mul", [gate, f"sig{i}"], [f"silu{i}"], domain="")
        node("Mul", [f"silu{i}", up], [f"gated{i}"], domain="")
        y = linear(f"gated{i}", f"down{i}", 48, width)
        x = f"x{i}"
        last = i + 1 == layers
        node("SkipSimplifiedLayerNormalization", [f"r{i}", y, weight(f"norm{i + 1}", width)], [f"normal{i + 1}"] + ([] if last else ["", "", x]), epsilon=1e-5)
        normal = f"normal{i + 1}"
    node("MatMul", [normal, weight("head", width, vocabulary)], ["logits"], domain="")
    graph = helper.make_graph(nodes, "llama", ins, outs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10)
    # A step, and the prompt.
    return lambda path: onnx.save(model, str(path)), feeds(1, 5), feeds(7, 0)


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1, groups=4)
        self.norm, self.fc = nn.BatchNorm2d(16), nn.Linear(16, 10)

    def forward(self, x):
        x = F.relu(self.norm(self.a(x)))
        x = F.max_pool2d(F.hardswish(self.b(x)) + x, 2)
        return self.fc(x.mean((2, 3)))


def quantised(folder):
    from onnxruntime import quantization as q

    class Reader(q.CalibrationDataReader):
        def __init__(self, make):
            self.left = [make() for _ in range(8)]

        def get_next(self):
            return self.left.pop() if self.left else None

    def cnn(path):
        legacy(Small().eval(), {"x": torch.randn(2, 3, 12, 12)}, {"x": {0: "n"}})(path)

    def bert(path):
        import transformers as hf

        c = hf.BertConfig(vocab_size=37, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48, max_position_embeddings=24, attn_implementation="eager")
        model = hf.BertModel(c, add_pooling_layer=False).eval()

        class Wrapped(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = model

            def forward(self, ids, mask):
                return self.inner(input_ids=ids, attention_mask=mask).last_hidden_state

        inputs = {"ids": torch.randint(0, 37, (2, 9)), "mask": torch.ones(2, 9, dtype=torch.long)}
        legacy(Wrapped(), inputs, {"ids": {0: "n", 1: "t"}, "mask": {0: "n", 1: "t"}}, 14)(path)

    rng = np.random.default_rng(0)
    image = lambda: {"x": rng.standard_normal((2, 3, 12, 12)).astype("f4")}
    words = lambda: {"ids": rng.integers(0, 37, (2, 9)), "mask": np.ones((2, 9), "i8")}

    def through(make, how):
        def write(path):
            with tempfile.TemporaryDirectory() as tmp:
                plain = Path(tmp, "plain.onnx")
                make(plain)
                how(plain, path)

        return write

    def static(make, **more):
        return lambda plain, path: q.quantize_static(str(plain), str(path), Reader(make), **more)

    def dynamic(**more):
        return lambda plain, path: q.quantize_dynamic(str(plain), str(path), **more)

    def fused(plain, path):
        from onnxruntime.transformers import optimizer
        from onnxruntime.transformers.fusion_options import FusionOptions

        optimised = optimizer.optimize_model(str(plain), "bert", num_heads=2, hidden_size=32, opt_level=0, optimization_options=FusionOptions("bert"))
        kept = plain.with_name("fused.onnx")
        optimised.save_model_to_file(str(kept))
        types = ["MatMul", "Attention", "EmbedLayerNormalization"]
        dynamic(op_types_to_quantize=types, extra_options={"DefaultTensorType": TensorProto.FLOAT})(kept, path)

    qdq, operators = q.QuantFormat.QDQ, q.QuantFormat.QOperator
    u8, i8 = q.QuantType.QUInt8, q.QuantType.QInt8
    made = {
        "cnn_qdq": (cnn, static(image, quant_format=qdq, per_channel=True, activation_type=u8, weight_type=i8), image),
        "cnn_qdq_s8": (cnn, static(image, quant_format=qdq, activation_type=i8, weight_type=i8), image),
        "cnn_qoperator": (cnn, static(image, quant_format=operators, activation_type=u8, weight_type=i8), image),
        "cnn_dynamic": (cnn, dynamic(weight_type=u8), image),
        "bert_qdq": (bert, static(words, quant_format=qdq, activation_type=u8, weight_type=i8), words),
        "bert_qoperator": (bert, static(words, quant_format=operators, activation_type=u8, weight_type=u8), words),
        "bert_dynamic": (bert, dynamic(weight_type=i8, per_channel=True), words),
        "bert_attention": (bert, fused, words),
    }
    for name, (make, how, inputs) in made.items():
        if folder.wants(name):
            folder.add(name, through(make, how), inputs())


def main():
    folder = Folder(__doc__)
    for part in (detectors, speech, text, quantised):
        try:
            part(folder)
        except Exception as e:
            print(f"{part.__name__}: {e}")
    folder.close()


if __name__ == "__main__":
    main()
