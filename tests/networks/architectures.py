#!/usr/bin/env python3
"""Write networks of some hundred architectures that wider.py lacks: NAME.onnx and NAME.npz (its arguments) for each.

    architectures.py OUT [NAME ..]

Classifiers of timm, and language, vision, speech, video and series models of transformers and torchvision with few layers.
NAME_ts: written by the TorchScript exporter (opset 17), where the other one fails. Weights are seeded random; no parameter is
0 or 1 everywhere, so that every part matters to the result. What is there already stays. Needs torch, torchvision,
transformers, timm, onnx, onnxscript.
"""
import gc
import os
import sys
import time
import warnings

import numpy as np
import onnx
import timm
import torch
import transformers as tr
from torch import nn
from torchvision import models as tv

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
OUT, WANTED = sys.argv[1], sys.argv[2:]
PICTURE = (1, 3, 224, 224)


@torch.no_grad()
def stir(m):
    """No parameter is nought, one or next to nothing everywhere, so that each part matters to the result."""
    for p in m.parameters():
        if p.is_floating_point() and p.numel() > 1 and (p - p.flatten()[0]).abs().max() == 0:
            v = p.flatten()[0].abs().item()
            if v == 0:
                p.add_(0.02 * torch.randn_like(p))
            elif v < 0.05:
                p.copy_(0.1 + 0.1 * torch.rand_like(p))
            else:
                p.mul_(1 + 0.1 * torch.randn_like(p))
    for b in m.modules():
        if isinstance(b, nn.modules.batchnorm._BatchNorm) and b.running_mean is not None:
            b.running_mean.normal_(0, 0.1)
            b.running_var.uniform_(0.7, 1.3)
    return m


class Part(nn.Module):
    def __init__(self, model, pick):
        super().__init__()
        self.model, self.pick = (model, pick)

    def forward(self, *args):
        return self.pick(self.model, *args)


def save(name, make, *shapes):
    """Exports `make()` with arguments of these shapes: floats, integers below the last of a list, or tensors as they are."""
    if WANTED and name not in WANTED:
        return
    for suffix in ("", "_ts"):
        path = os.path.join(OUT, name + suffix + ".onnx")
        if os.path.exists(path) or os.path.exists(os.path.join(OUT, name + "_ts.onnx")):
            return
        start = time.time()
        try:
            torch.manual_seed(0)
            model = stir(make().eval())
            torch.manual_seed(0)
            args = [torch.randint(0, s[-1], tuple(s[:-1])) if isinstance(s, list) else s if isinstance(s, torch.Tensor)
                    else torch.randn(*s) for s in shapes]
            with torch.no_grad():
                if suffix:
                    torch.onnx.export(model, tuple(args), path + ".part", dynamo=False, opset_version=17)
                else:
                    program = torch.onnx.export(model, tuple(args), dynamo=True, opset_version=18, verbose=False, optimize=True)
                    program.save(path + ".part", include_initializers=True)
            names = [i.name for i in onnx.load(path + ".part", load_external_data=False).graph.input]
            # Arguments that nothing reads are left out.
            assert len(names) == len(args), names
            np.savez(path[:-5] + ".npz", **{n: x.numpy() for n, x in zip(names, args)})
            os.rename(path + ".part", path)
            print(f"{name}{suffix}: {time.time() - start:.0f} s, {os.path.getsize(path) >> 20} MB", flush=True)
            return
        except Exception as e:
            print(f"{name}{suffix}: not exported: {type(e).__name__}: {str(e.__cause__ or e)[-300:]!r}", flush=True)
        finally:
            gc.collect()


TIMM = """mobilenetv4_conv_small ghostnet_100 lcnet_100 rexnet_100 tf_efficientnet_lite0 ese_vovnet19b_dw efficientvit_m2
efficientvit_b1 fastvit_t8 edgenext_small levit_128s xcit_tiny_12_p16_224 pvt_v2_b1 mobileone_s1 poolformer_s12 repvgg_a2
hrnet_w18_small dla34 skresnet18 eca_nfnet_l0 res2net50_26w_4s xception41 twins_pcpvt_small focalnet_tiny_srf davit_tiny
mvitv2_tiny cait_xxs24_224 eva02_tiny_patch14_224 hiera_tiny_224 crossvit_tiny_240 visformer_tiny inception_resnet_v2 dpn68
volo_d1_224 coatnet_0_rw_224 halonet26t botnet26t_256 lambda_resnet26t gcresnet33ts convmixer_768_32 tnt_s_patch16_224
sequencer2d_s gmlp_s16_224 starnet_s1 mambaout_tiny tiny_vit_5m_224 nextvit_small""".split()
SIDES = {"eva02_tiny_patch14_224": 224, "crossvit_tiny_240": 240, "inception_resnet_v2": 299, "xception41": 299,
         "botnet26t_256": 256, "halonet26t": 256, "lambda_resnet26t": 256, "gcresnet33ts": 256}


def classifiers(names):
    for name in names:
        side = SIDES.get(name, 224)
        save(name, lambda: timm.create_model(name, pretrained=False), (1, 3, side, side))


eager = {"attn_implementation": "eager"}
hidden = lambda m, x: m(x).last_hidden_state
logits = lambda m, x: m(x).logits


def language():
    words = [1, 128, 1000]
    small = {"vocab_size": 5000, "num_hidden_layers": 3}
    save("longformer", lambda: Part(tr.LongformerModel(tr.LongformerConfig(**small, attention_window=64,
        max_position_embeddings=600), add_pooling_layer=False), hidden), [1, 256, 1000])
    save("bigbird", lambda: Part(tr.BigBirdModel(tr.BigBirdConfig(**{**small, "num_hidden_layers": 2}, block_size=32,
        num_random_blocks=2, attention_type="block_sparse"), add_pooling_layer=False), hidden), [1, 512, 1000])
    save("xlnet", lambda: Part(tr.XLNetModel(tr.XLNetConfig(vocab_size=5000, n_layer=3, d_model=768, n_head=12, d_inner=3072,
        use_mems_eval=False)), hidden), words)
    save("squeezebert", lambda: Part(tr.SqueezeBertModel(tr.SqueezeBertConfig(**small)), hidden), words)
    save("mobilebert", lambda: Part(tr.MobileBertModel(tr.MobileBertConfig(**{**small, "num_hidden_layers": 8})), hidden), words)
    save("convbert", lambda: Part(tr.ConvBertModel(tr.ConvBertConfig(**small)), hidden), words)
    save("fnet", lambda: Part(tr.FNetModel(tr.FNetConfig(**small)), hidden), words)
    save("funnel", lambda: Part(tr.FunnelModel(tr.FunnelConfig(vocab_size=5000, block_sizes=[2, 2, 2], d_model=512, n_head=8,
        d_head=64, d_inner=2048)), hidden), words)
    save("electra_tok", lambda: Part(tr.ElectraForTokenClassification(tr.ElectraConfig(**{**small, "num_hidden_layers": 6},
        **eager, num_labels=9)), logits), words)
    save("nystromformer", lambda: Part(tr.NystromformerModel(tr.NystromformerConfig(**small, max_position_embeddings=512,
        segment_means_seq_len=256, num_landmarks=32)), hidden), [1, 256, 1000])
    save("modernbert", lambda: Part(tr.ModernBertModel(tr.ModernBertConfig(**small, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, cls_token_id=1, sep_token_id=2, **eager)), hidden), [1, 256, 1000])
    save("canine", lambda: Part(tr.CanineModel(tr.CanineConfig(num_hidden_layers=2)), hidden), [1, 256, 1000])

    # Prefill without a cache.
    wide = {"vocab_size": 4000, "hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 3, "num_attention_heads": 12,
            "num_key_value_heads": 4, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, **eager}
    save("qwen3_prefill", lambda: Part(tr.Qwen3ForCausalLM(tr.Qwen3Config(**wide, head_dim=64, use_cache=False)), logits), words)
    save("gemma2_prefill", lambda: Part(tr.Gemma2ForCausalLM(tr.Gemma2Config(**wide, head_dim=64, sliding_window=64,
        use_cache=False)), logits), words)
    save("phi_prefill", lambda: Part(tr.PhiForCausalLM(tr.PhiConfig(**{**wide, "num_key_value_heads": 12}, use_cache=False)),
        logits), words)
    save("mixtral_prefill", lambda: Part(tr.MixtralForCausalLM(tr.MixtralConfig(**{**wide, "num_hidden_layers": 2,
        "hidden_size": 512, "num_attention_heads": 8, "intermediate_size": 1024}, num_local_experts=4, use_cache=False)),
        logits), [1, 32, 1000])
    save("bloom_prefill", lambda: Part(tr.BloomModel(tr.BloomConfig(vocab_size=5000, hidden_size=768, n_layer=3, n_head=12,
        use_cache=False)), hidden), words)
    save("gpt_neox_prefill", lambda: Part(tr.GPTNeoXModel(tr.GPTNeoXConfig(**small, hidden_size=768, num_attention_heads=12,
        intermediate_size=3072, use_cache=False, **eager)), hidden), words)
    save("falcon_prefill", lambda: Part(tr.FalconModel(tr.FalconConfig(**small, hidden_size=768, num_attention_heads=12,
        use_cache=False, **eager)), hidden), words)
    save("opt_prefill", lambda: Part(tr.OPTModel(tr.OPTConfig(**small, hidden_size=768, num_attention_heads=12, ffn_dim=3072,
        use_cache=False, **eager)), hidden), words)
    save("rwkv", lambda: Part(tr.RwkvModel(tr.RwkvConfig(vocab_size=2000, hidden_size=512, num_hidden_layers=2,
        use_cache=False)), hidden), [1, 32, 1000])
    save("mamba2", lambda: Part(tr.Mamba2Model(tr.Mamba2Config(num_hidden_layers=2, hidden_size=256, head_dim=64, num_heads=8,
        state_size=64, n_groups=1, vocab_size=2000, chunk_size=64, use_cache=False)), hidden), [1, 128, 1000])
    save("bart", lambda: Part(tr.BartModel(tr.BartConfig(vocab_size=5000, d_model=768, encoder_layers=2, decoder_layers=2,
        encoder_ffn_dim=3072, decoder_ffn_dim=3072, encoder_attention_heads=12, decoder_attention_heads=12, use_cache=False,
        **eager)), lambda m, x, y: m(input_ids=x, decoder_input_ids=y, use_cache=False).last_hidden_state), words, [1, 16, 1000])

    # One step of a decoder: the token, and keys and values of what came before.
    def step(layers):
        def pick(m, x, *past):
            cache = tr.DynamicCache(list(zip(past[::2], past[1::2])))
            o = m(x, past_key_values=cache, use_cache=True)
            kept = [t for layer in o.past_key_values.layers for t in (layer.keys, layer.values)]
            return (o[0], *kept)
        return pick
    past = lambda layers, heads, width, n=255: [(1, heads, n, width)] * (2 * layers)
    token = [1, 1, 1000]
    save("qwen2_step", lambda: Part(tr.Qwen2ForCausalLM(tr.Qwen2Config(**wide)), step(3)), token, *past(3, 4, 64))
    save("gemma2_step", lambda: Part(tr.Gemma2ForCausalLM(tr.Gemma2Config(**wide, head_dim=64, sliding_window=512)),
        step(3)), token, *past(3, 4, 64))
    save("opt_step", lambda: Part(tr.OPTModel(tr.OPTConfig(**small, hidden_size=768, num_attention_heads=12, ffn_dim=3072,
        **eager)), step(3)), token, *past(3, 12, 64))
    save("bloom_step", lambda: Part(tr.BloomModel(tr.BloomConfig(vocab_size=5000, hidden_size=768, n_layer=3, n_head=12)),
        step(3)), token, *past(3, 12, 64))
    save("qwen2_step_b4", lambda: Part(tr.Qwen2ForCausalLM(tr.Qwen2Config(**wide)), step(3)), [4, 1, 1000],
        *[(4, 4, 255, 64)] * 6)


def vision():
    vit = {"num_hidden_layers": 3, **eager}
    resnet = lambda **k: tr.ResNetConfig(depths=[2, 2, 2, 2], layer_type="basic", hidden_sizes=[64, 128, 256, 512], **k)
    save("detr", lambda: Part(tr.DetrForObjectDetection(tr.DetrConfig(use_timm_backbone=False, use_pretrained_backbone=False,
        backbone=None, backbone_config=resnet(out_features=["stage4"]), encoder_layers=2, decoder_layers=2, **eager)),
        lambda m, x: (lambda o: (o.logits, o.pred_boxes))(m(x))), (1, 3, 256, 256))
    save("rtdetr", lambda: Part(tr.RTDetrForObjectDetection(tr.RTDetrConfig(backbone_config=tr.RTDetrResNetConfig(
        depths=[2, 2, 2, 2], layer_type="basic", hidden_sizes=[64, 128, 256, 512], out_features=["stage2", "stage3", "stage4"]),
        encoder_in_channels=[128, 256, 512], decoder_layers=2, num_queries=100, anchor_image_size=[256, 256])),
        lambda m, x: (lambda o: (o.logits, o.pred_boxes))(m(x))), (1, 3, 256, 256))
    save("dpt", lambda: Part(tr.DPTForDepthEstimation(tr.DPTConfig(**{**vit, "num_hidden_layers": 4}, hidden_size=384,
        num_attention_heads=6, intermediate_size=1536, image_size=224, backbone_out_indices=[0, 1, 2, 3],
        neck_hidden_sizes=[48, 96, 192, 384], fusion_hidden_size=64)), lambda m, x: m(x).predicted_depth), PICTURE)
    dino = tr.Dinov2Config(hidden_size=384, num_attention_heads=6, image_size=224, patch_size=14, out_indices=[1, 2, 3, 4],
        apply_layernorm=True, reshape_hidden_states=False, **{**vit, "num_hidden_layers": 4})
    save("depth_anything", lambda: Part(tr.DepthAnythingForDepthEstimation(tr.DepthAnythingConfig(backbone_config=dino,
        reassemble_hidden_size=384, neck_hidden_sizes=[48, 96, 192, 384], fusion_hidden_size=64)),
        lambda m, x: m(x).predicted_depth), PICTURE)
    sam = {"hidden_size": 384, "num_attention_heads": 6, "num_hidden_layers": 3, "global_attn_indexes": [1], "image_size": 512,
           "window_size": 14, "mlp_dim": 1536}
    save("sam_vision", lambda: Part(tr.SamVisionModel(tr.SamVisionConfig(**sam, **eager)), hidden), (1, 3, 512, 512))
    prompts = lambda m, e, p: (lambda o: (o.pred_masks, o.iou_scores))(m(image_embeddings=e, input_points=p,
        multimask_output=True))
    save("sam_mask", lambda: Part(tr.SamModel(tr.SamConfig(vision_config=tr.SamVisionConfig(**sam, **eager).to_dict(),
        prompt_encoder_config={"image_size": 512, "image_embedding_size": 32})), prompts), (1, 256, 32, 32), (1, 1, 2, 2))
    swin = tr.SwinConfig(image_size=128, embed_dim=96, depths=[1, 1, 1, 1], num_heads=[3, 6, 12, 24],
        out_features=["stage1", "stage2", "stage3", "stage4"])
    tr.models.mask2former.modeling_mask2former.requires_backends = lambda *_: None
    save("mask2former", lambda: Part(tr.Mask2FormerForUniversalSegmentation(tr.Mask2FormerConfig(backbone_config=swin,
        encoder_layers=2, decoder_layers=3, num_queries=50, num_labels=20)),
        lambda m, x: (lambda o: (o.class_queries_logits, o.masks_queries_logits))(m(x))), (1, 3, 128, 128))
    cn = tr.ConvNextConfig(depths=[1, 1, 2, 1], hidden_sizes=[96, 192, 384, 768], out_features=["stage1", "stage2", "stage3", "stage4"])
    save("upernet", lambda: Part(tr.UperNetForSemanticSegmentation(tr.UperNetConfig(backbone_config=cn, hidden_size=128,
        use_auxiliary_head=False, num_labels=20)), logits), (1, 3, 128, 128))
    save("superpoint", lambda: Part(tr.SuperPointForKeypointDetection(tr.SuperPointConfig()),
        lambda m, x: (lambda o: (o.keypoints, o.scores, o.descriptors))(m(x))), (1, 3, 120, 160))
    save("layoutlmv3", lambda: Part(tr.LayoutLMv3Model(tr.LayoutLMv3Config(vocab_size=5000, num_hidden_layers=3)),
        lambda m, x, b, p: m(input_ids=x, bbox=b, pixel_values=p).last_hidden_state), [1, 64, 1000],
        torch.tensor([[[10, 20, 300, 400]]]).repeat(1, 64, 1) + torch.arange(64).reshape(1, 64, 1), PICTURE)
    save("beit", lambda: Part(tr.BeitModel(tr.BeitConfig(num_hidden_layers=3, use_relative_position_bias=True), False), hidden),
        PICTURE)
    vitdet = tr.VitDetConfig(hidden_size=384, num_attention_heads=6, num_hidden_layers=3, image_size=256, pretrain_image_size=256,
        num_channels=4, window_size=8, window_block_indices=[0, 1], residual_block_indices=[2], out_features=["stage3"],
        use_relative_position_embeddings=True)
    save("vitmatte", lambda: Part(tr.VitMatteForImageMatting(tr.VitMatteConfig(backbone_config=vitdet, hidden_size=384, convstream_hidden_sizes=[48, 96, 192], fusion_hidden_sizes=[256, 128, 64, 32])),
        lambda m, x: m(x).alphas), (1, 4, 256, 256))
    owl = tr.OwlViTConfig(text_config={"num_hidden_layers": 2, "vocab_size": 5000, **eager}, vision_config={
        "num_hidden_layers": 2, "image_size": 224, "patch_size": 32, **eager})
    save("owlvit", lambda: Part(tr.OwlViTForObjectDetection(owl), lambda m, w, x: (lambda o: (o.logits, o.pred_boxes))(m(
        input_ids=w, pixel_values=x, attention_mask=torch.ones_like(w)))), [4, 16, 1000], PICTURE)
    save("dinov3", lambda: Part(tr.DINOv3ViTModel(tr.DINOv3ViTConfig(hidden_size=384, num_attention_heads=6,
        intermediate_size=1536, num_hidden_layers=4, **eager)), hidden), PICTURE)
    save("dfine", lambda: Part(tr.DFineForObjectDetection(tr.DFineConfig(decoder_layers=2, num_queries=100,
        anchor_image_size=[256, 256])), lambda m, x: (lambda o: (o.logits, o.pred_boxes))(m(x))), (1, 3, 256, 256))
    save("ssdlite320", lambda: Part(tv.detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None),
        lambda m, x: (lambda o: (o["boxes"], o["scores"], o["labels"]))(m([x[0]])[0])), (1, 3, 320, 320))
    save("fasterrcnn", lambda: Part(tv.detection.fasterrcnn_mobilenet_v3_large_320_fpn(weights=None, weights_backbone=None,
        box_score_thresh=0.011),
        lambda m, x: (lambda o: (o["boxes"], o["scores"], o["labels"]))(m([x[0]])[0])), (1, 3, 256, 256))
    save("raft_small", lambda: Part(tv.optical_flow.raft_small(weights=None), lambda m, a, b: m(a, b, num_flow_updates=3)[-1]),
        (1, 3, 128, 160), (1, 3, 128, 160))
    save("lightglue", lambda: Part(tr.LightGlueForKeypointMatching(tr.LightGlueConfig()), lambda m, x: m(x).matches),
        (1, 2, 3, 120, 160))


def audio():
    w2v = {"num_hidden_layers": 3}
    save("wavlm", lambda: Part(tr.WavLMModel(tr.WavLMConfig(**w2v)), hidden), (1, 16000))
    save("hubert", lambda: Part(tr.HubertModel(tr.HubertConfig(**w2v, feat_extract_norm="layer", do_stable_layer_norm=True,
        **eager)), hidden), (1, 16000))
    save("sew", lambda: Part(tr.SEWModel(tr.SEWConfig(**w2v, hidden_size=512, num_attention_heads=8, intermediate_size=2048,
        **eager)), hidden), (1, 16000))
    save("ast", lambda: Part(tr.ASTModel(tr.ASTConfig(num_hidden_layers=3, max_length=256, **eager)), hidden), (1, 256, 128))
    save("conformer", lambda: Part(tr.Wav2Vec2ConformerModel(tr.Wav2Vec2ConformerConfig(num_hidden_layers=2, hidden_size=512,
        num_attention_heads=8, intermediate_size=2048, position_embeddings_type="relative")), hidden), (1, 16000))
    moon = tr.MoonshineConfig(vocab_size=2000, hidden_size=288, intermediate_size=1152, encoder_num_hidden_layers=3,
        decoder_num_hidden_layers=3, **eager)
    save("moonshine", lambda: Part(tr.MoonshineModel(moon), lambda m, x, y: m(input_values=x, decoder_input_ids=y,
        use_cache=False).last_hidden_state), (1, 32000), [1, 12, 1000])
    save("speecht5_hifigan", lambda: Part(tr.SpeechT5HifiGan(tr.SpeechT5HifiGanConfig(upsample_initial_channel=256)),
        lambda m, x: m(x)), (1, 30, 80))
    save("univnet", lambda: Part(tr.UnivNetModel(tr.UnivNetConfig()), lambda m, x, n: m(x, n).waveforms), (1, 24, 100),
        (1, 24, 64))
    save("vits_enc", lambda: Part(tr.VitsModel(tr.VitsConfig(num_hidden_layers=3, vocab_size=60)).text_encoder,
        lambda m, x: m(input_ids=x, padding_mask=torch.ones(1, 64, 1))[0]), [1, 64, 60])
    save("vits_flow", lambda: Part(tr.VitsModel(tr.VitsConfig(num_hidden_layers=1)), lambda m, x: m.decoder(m.flow(x,
        torch.ones(1, 1, 40), None, reverse=True))), (1, 192, 40))
    save("vits", lambda: Part(tr.VitsModel(tr.VitsConfig(num_hidden_layers=2, vocab_size=60)), lambda m, x: m(x).waveform),
        [1, 24, 60])
    save("wav2vec2_bert", lambda: Part(tr.Wav2Vec2BertModel(tr.Wav2Vec2BertConfig(num_hidden_layers=2, hidden_size=512,
        num_attention_heads=8, intermediate_size=2048)), hidden), (1, 100, 160))
    save("clip_text", lambda: Part(tr.CLIPTextModel(tr.CLIPTextConfig(num_hidden_layers=3, vocab_size=5000, **eager)),
        hidden), [1, 77, 1000])


def series():
    video = {"num_hidden_layers": 2, "hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536}
    save("videomae", lambda: Part(tr.VideoMAEModel(tr.VideoMAEConfig(**video, num_frames=8, image_size=112, **eager)), hidden),
        (1, 8, 3, 112, 112))
    save("timesformer", lambda: Part(tr.TimesformerModel(tr.TimesformerConfig(**video, num_frames=4, image_size=112)), hidden),
        (1, 4, 3, 112, 112))
    save("vivit", lambda: Part(tr.VivitModel(tr.VivitConfig(**video, num_frames=8, image_size=112, **eager), False), hidden),
        (1, 8, 3, 112, 112))
    save("patchtst", lambda: Part(tr.PatchTSTForPrediction(tr.PatchTSTConfig(num_input_channels=7, context_length=512,
        patch_length=16, patch_stride=8, d_model=128, num_attention_heads=16, ffn_dim=256, num_hidden_layers=3,
        prediction_length=96)), lambda m, x: m(x).prediction_outputs), (4, 512, 7))
    save("patchtsmixer", lambda: Part(tr.PatchTSMixerForPrediction(tr.PatchTSMixerConfig(context_length=512, patch_length=16,
        patch_stride=16, num_input_channels=7, d_model=128, num_layers=4, expansion_factor=3, prediction_length=96,
        mode="mix_channel", gated_attn=True)), lambda m, x: m(x).prediction_outputs), (16, 512, 7))
    informer = tr.InformerConfig(prediction_length=24, context_length=96, lags_sequence=[1, 2, 3], num_time_features=2,
        d_model=256, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=1024, decoder_ffn_dim=1024, encoder_attention_heads=8,
        decoder_attention_heads=8, use_cache=False, **eager)
    series_of = lambda m, v, t, o, f, u: m(past_values=v, past_time_features=t, past_observed_mask=o, future_values=f,
        future_time_features=u, use_cache=False).last_hidden_state
    save("informer", lambda: Part(tr.InformerModel(informer), series_of), (8, 99), (8, 99, 2), torch.ones(8, 99), (8, 24),
        (8, 24, 2))
    auto = tr.AutoformerConfig(prediction_length=24, context_length=96, lags_sequence=[1, 2, 3], num_time_features=2,
        d_model=256, encoder_layers=2, decoder_layers=1, use_cache=False)
    save("autoformer", lambda: Part(tr.AutoformerModel(auto), series_of), (8, 99), (8, 99, 2), torch.ones(8, 99), (8, 24),
        (8, 24, 2))


def more():
    """What needed another way, and further families."""
    moe = {"vocab_size": 4000, "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 2, "num_attention_heads": 8,
           "num_key_value_heads": 4, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, **eager}
    for way in ("batched_mm", "eager"):
        save("mixtral_" + way, lambda: Part(tr.MixtralForCausalLM(tr.MixtralConfig(**moe, num_local_experts=4, use_cache=False,
            experts_implementation=way)), logits), [1, 16, 1000])
    save("nystrom", lambda: Part(tr.NystromformerModel(tr.NystromformerConfig(vocab_size=5000, num_hidden_layers=3,
        max_position_embeddings=512, segment_means_seq_len=256, num_landmarks=32)),
        lambda m, x: m.encoder(m.embeddings(x))[0]), [1, 256, 1000])
    wide = {"vocab_size": 4000, "hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 3, "num_attention_heads": 12,
            "num_key_value_heads": 4, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, **eager}
    save("gemma3_prefill", lambda: Part(tr.Gemma3ForCausalLM(tr.Gemma3TextConfig(**wide, head_dim=64, sliding_window=64,
        use_cache=False)), logits), [1, 128, 1000])
    save("codegen_prefill", lambda: Part(tr.CodeGenModel(tr.CodeGenConfig(vocab_size=5000, n_embd=768, n_layer=3, n_head=12,
        rotary_dim=32, n_positions=512, use_cache=False)), hidden), [1, 128, 1000])
    save("falcon_mamba", lambda: Part(tr.FalconMambaModel(tr.FalconMambaConfig(num_hidden_layers=2, hidden_size=256,
        vocab_size=2000, use_cache=False)), hidden), [1, 32, 1000])
    save("clip_both", lambda: Part(tr.CLIPModel(tr.CLIPConfig(text_config={"num_hidden_layers": 2, "vocab_size": 5000,
        "eos_token_id": 999, **eager}, vision_config={"num_hidden_layers": 2, **eager})), lambda m, w, x: m(input_ids=w,
        pixel_values=x).logits_per_image), [4, 16, 1000], PICTURE)
    save("clipseg", lambda: Part(tr.CLIPSegForImageSegmentation(tr.CLIPSegConfig(text_config={"num_hidden_layers": 2,
        "vocab_size": 5000, "eos_token_id": 999}, vision_config={"num_hidden_layers": 10, "hidden_size": 256,
        "num_attention_heads": 4, "intermediate_size": 1024, "image_size": 224, "patch_size": 16})), lambda m, w, x: m(
        input_ids=w, pixel_values=x).logits), [1, 16, 1000], PICTURE)
    save("perceiver", lambda: Part(tr.PerceiverModel(tr.PerceiverConfig(num_latents=128, d_latents=512, d_model=256,
        num_self_attends_per_block=3)), hidden), (1, 1024, 256))
    save("cvt", lambda: Part(tr.CvtModel(tr.CvtConfig(depth=[1, 2, 3])), hidden), PICTURE)
    save("swiftformer", lambda: Part(tr.SwiftFormerModel(tr.SwiftFormerConfig()), hidden), PICTURE)
    save("textnet", lambda: Part(tr.TextNetModel(tr.TextNetConfig()), hidden), (1, 3, 224, 224))
    save("trocr_dec", lambda: Part(tr.TrOCRForCausalLM(tr.TrOCRConfig(vocab_size=4000, d_model=512, decoder_layers=3,
        decoder_attention_heads=8, decoder_ffn_dim=2048, cross_attention_hidden_size=384, use_cache=False)),
        lambda m, x, e: m(input_ids=x, encoder_hidden_states=e, use_cache=False).logits), [1, 16, 1000], (1, 197, 384))
    save("dac_dec", lambda: Part(tr.DacModel(tr.DacConfig(decoder_hidden_size=512, encoder_hidden_size=32)),
        lambda m, x: m.decoder(x)), (1, 512, 30))
    save("mimi_enc", lambda: Part(tr.MimiModel(tr.MimiConfig(num_hidden_layers=2, use_cache=False)),
        lambda m, x: m.encoder(x)), (1, 1, 24000))
    save("convnextv2_pico", lambda: timm.create_model("convnextv2_pico", pretrained=False), PICTURE)


if __name__ == "__main__":
    os.makedirs(OUT, exist_ok=True)
    for part in (lambda: classifiers(TIMM), language, vision, audio, series, more):
        part()
