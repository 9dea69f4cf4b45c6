"""Golden features and logits of a tiny Gemma 3n with pictures: `cargo xtask fixtures gemma3n` writes gemma3n.hf beside this file,
and checksums of the processor with its published settings for the tests of the crate media.

Weights and pictures follow formulas (../fixtures/README.md), in PyTorch's layout. The tower is timm's MobileNetV5, whose
blocks the config names as arguments of the published architecture, each kind of block once; transformers computes.
"""

import copy
import json
import zlib
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.numpy import save_file
from timm.models._efficientnet_builder import decode_arch_def
from transformers import Gemma3nConfig, Gemma3nForConditionalGeneration
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from formulas import generated, picture

TARGET = Path(__file__).parent / "gemma3n.hf"
CHECKSUMS = Path(__file__).parents[3] / "media/tests/fixtures/gemma3n.json"
PICTURES = [[61, 47, 11], [300, 180, 12], [33, 90, 13], [5, 4, 14], [96, 96, 15], [640, 37, 16]]
SEED = 7
BLOCKS = [
    ["er_r1_k3_s2_e4_c16", "er_r1_k3_s1_e2_c16"],
    ["uir_r1_a3_k5_s2_e6_c24", "uir_r1_a5_k0_s1_e4_c24"],
    ["uir_r1_a5_k5_s2_e6_c32", "uir_r1_a0_k0_s1_e1_c32", "mqa_r1_k3_h3_v2_s1_d8_c32", "uir_r1_a0_k0_s1_e2_c32"],
    ["uir_r1_a5_k5_s2_e6_c40", "mqa_r1_k3_h2_s1_d12_c40", "uir_r1_a0_k0_s1_e2_c40"],
]
SIDE, TOKENS = 128, 16
BEGIN, END, SOFT, BLANK_LINE = 128, 130, 131, 5
CASES = [("one", [[61, 47, 11]]), ("two", [[300, 180, 12], [33, 90, 13]]), ("text", [])]
CONFIG = {
    "architectures": ["Gemma3nForConditionalGeneration"],
    "model_type": "gemma3n",
    "audio_config": {
        "model_type": "gemma3n_audio", "vocab_size": 8, "vocab_offset": 138, "hidden_size": 32, "rms_norm_eps": 1e-6,
        "conf_num_hidden_layers": 1, "conf_num_attention_heads": 2, "sscp_conv_channel_size": [8, 4],
    },
    "audio_soft_tokens_per_image": 188, "audio_token_id": 139, "boa_token_id": 129, "eoa_token_id": 138,
    "boi_token_id": BEGIN, "eoi_token_id": END, "image_token_id": SOFT, "vision_soft_tokens_per_image": TOKENS,
    "text_config": {
        "model_type": "gemma3n_text", "vocab_size": 146, "hidden_size": 64, "num_hidden_layers": 5, "intermediate_size": 80,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "rms_norm_eps": 1e-6,
        "max_position_embeddings": 256, "rope_theta": 10000.0, "rope_local_base_freq": 5000.0, "rope_scaling": None,
        "sliding_window": 8, "final_logit_softcapping": 6.0, "num_kv_shared_layers": 2,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"],
        "activation_sparsity_pattern": [0.9, 0.5, 0.0, 0.0, 0.0], "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size_per_layer_input": 16, "vocab_size_per_layer_input": 130, "altup_num_inputs": 3,
        "altup_coef_clip": 120.0, "altup_correct_scale": True, "altup_active_idx": 0, "laurel_rank": 8,
    },
    "vision_config": {
        "model_type": "gemma3n_vision", "architecture": "mobilenetv5_300m_enc", "do_pooling": False, "hidden_size": 2048,
        "num_classes": 2, "label_names": ["LABEL_0", "LABEL_1"], "rms_norm_eps": 1e-6, "vocab_size": 8, "vocab_offset": 130,
        "model_args": {"stem_size": 8, "msfa_output_resolution": 4, "block_args": decode_arch_def(BLOCKS)},
    },
}
PROCESSOR = {
    "image_processor_type": "SiglipImageProcessorFast", "do_convert_rgb": None, "do_normalize": False, "do_rescale": True,
    "do_resize": True, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "image_seq_length": TOKENS,
    "resample": 2, "rescale_factor": 0.00392156862745098, "size": {"height": SIDE, "width": SIDE},
}


def row(name, shape):
    """Center and scale of a tensor: norms around 1, products that keep their inputs' size."""
    if name.endswith("gamma") or "correct_output_scale" in name:
        return [name, shape, 1.0, 0.2]
    if len(shape) == 1 and not name.endswith("bias"):
        return [name, shape, 1.0, 0.25]
    if "_coefs" in name:
        return [name, shape, 0.0, 1.0]
    inputs = int(np.prod(shape[1:])) if len(shape) > 1 else 64
    return [name, shape, 0.0, round(float(np.sqrt(3.0 / inputs)), 8)]


def write(file, value):
    file.write_text(json.dumps(value, separators=(",", ":")) + "\n")


def processor(settings):
    return SiglipImageProcessorPil(**{name: value for name, value in settings.items() if name != "image_processor_type"})


def checksums():
    """CRC-32 of the pixels, little-endian float32, that the published settings make of pictures."""
    settings = PROCESSOR | {"size": {"height": 768, "width": 768}, "image_seq_length": 256}
    make = processor(settings)
    pixels = [np.asarray(make(Image.fromarray(picture(*of)))["pixel_values"][0], "<f4") for of in PICTURES]
    sums = {str(index): zlib.crc32(of.tobytes()) for index, of in enumerate(pixels)}
    write(CHECKSUMS, {"settings": settings, "pictures": PICTURES, "crc32": sums})


def prompts(case, pictures):
    raw = [64 + (7 * case + at) % 60 for at in range(5)]
    for at in range(len(pictures)):
        raw += [SOFT] + [70 + 3 * case + at, 100 + at]
    expanded = []
    for token in raw:
        expanded += [BLANK_LINE, BEGIN] + [SOFT] * TOKENS + [END, BLANK_LINE] if token == SOFT else [token]
    return raw, expanded


def main():
    torch.manual_seed(0)
    model = Gemma3nForConditionalGeneration(Gemma3nConfig(**copy.deepcopy(CONFIG))).eval()
    own = model.state_dict()
    names = sorted(name for name in own if name != "lm_head.weight" and own[name].is_floating_point())
    rows = [row(name, list(own[name].shape)) for name in names if own[name].ndim > 0]
    weights = {name: torch.from_numpy(generated(SEED, name, *rest)) for name, *rest in rows}
    make = processor(PROCESSOR)
    seen = {}
    model.model.embed_vision.register_forward_hook(
        lambda module, inputs, kwargs, output: seen.update(features=output) if "inputs_embeds" in kwargs else None,
        with_kwargs=True)

    def compute(factor):
        model.load_state_dict({name: tensor * factor for name, tensor in weights.items()}, strict=False)
        model.tie_weights()
        out = {}
        for index, (case, pictures) in enumerate(CASES):
            raw, prompt = prompts(index, pictures)
            decode = [80 + index, 90 + index]
            pixels = {}
            if pictures:
                images = [Image.fromarray(picture(*numbers)) for numbers in pictures]
                pixels = {"pixel_values": torch.from_numpy(np.stack(make(images)["pixel_values"]))}
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([prompt + decode]), **pixels, use_cache=False).logits[0]
            out[f"raw.{case}"] = np.array(raw, np.int32)
            out[f"prompt.{case}"] = np.array(prompt, np.int32)
            out[f"decode.{case}"] = np.array(decode, np.int32)
            out[f"logits.{case}"] = logits[len(prompt) - 1:].numpy().astype(np.float32)
            if pictures:
                out[f"features.{case}"] = seen["features"].reshape(-1, 64).numpy().astype(np.float32)
        return out

    golden, moved = compute(1.0), compute(1.0 + 2.0**-20)
    change = max(float(np.abs(golden[k] - moved[k]).max() / np.abs(golden[k]).max()) for k in golden if k.startswith("logits"))
    TARGET.mkdir(exist_ok=True)
    write(TARGET / "config.json", CONFIG)
    write(TARGET / "preprocessor_config.json", PROCESSOR)
    checksums()
    cases = [{"name": case, "images": pictures} if pictures else {"name": case} for case, pictures in CASES]
    write(TARGET / "case.json", {"cases": cases, "media_ids": [SOFT]})
    lines = ",\n".join(json.dumps(line, separators=(",", ":")) for line in rows)
    (TARGET / "tensors.json").write_text(f'{{"generator": 1, "seed": {SEED},"tensors":[\n{lines}\n]}}\n')
    save_file(golden, TARGET / "golden.safetensors", {"sensitivity": f"{change:.3e}", "transformers": "5.23.0", "timm": "1.0.31"})
    print(f"{TARGET.name}: {len(rows)} tensors, sensitivity {change:.1e}")


if __name__ == "__main__":
    main()
