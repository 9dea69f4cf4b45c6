"""Golden spectra, features and logits of a tiny Gemma 3n with pictures and sounds: `cargo xtask fixtures gemma3n` writes
gemma3n.hf beside this file, and checksums of the processor with its published settings for the tests of the crate media.

Weights, pictures and sounds follow formulas (../fixtures/README.md), in PyTorch's layout. The tower of pictures is timm's
MobileNetV5, whose blocks the config names as arguments of the published architecture, each kind of block once;
transformers computes. In the case `padded`, the extractor has filled the sound up to the length of a longer one.
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
from transformers import Gemma3nAudioFeatureExtractor, Gemma3nConfig, Gemma3nForConditionalGeneration
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from formulas import generated, picture, sound

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
SOUND_TOKENS, BANDS = 12, 22
BEGIN, END, SOFT, BLANK_LINE = 128, 130, 131, 5
BEGIN_SOUND, END_SOUND, SOFT_SOUND = 129, 133, 134
# Name, pictures, samples and seeds of sounds, and samples up to which these are filled up.
CASES = [
    ("one", [[61, 47, 11]], [], 0),
    ("two", [[300, 180, 12], [33, 90, 13]], [], 0),
    ("text", [], [], 0),
    ("sound", [], [[16100, 31]], 0),
    ("both", [[61, 47, 11]], [[9000, 5]], 0),
    ("padded", [], [[7000, 8]], 12000),
]
CONFIG = {
    "architectures": ["Gemma3nForConditionalGeneration"],
    "model_type": "gemma3n",
    "audio_config": {
        "model_type": "gemma3n_audio", "vocab_size": 9, "vocab_offset": 133, "hidden_size": 32, "rms_norm_eps": 1e-3,
        "input_feat_size": BANDS, "gradient_clipping": 1e10, "conf_attention_chunk_size": 5, "conf_attention_context_left": 4,
        "conf_attention_context_right": 2, "conf_attention_logit_cap": 3.0, "conf_num_attention_heads": 4,
        "conf_num_hidden_layers": 2, "conf_conv_kernel_size": 4, "conf_reduction_factor": 3, "conf_residual_weight": 0.25,
        "sscp_conv_channel_size": [8, 6], "sscp_conv_group_norm_eps": 0.01, "sscp_conv_kernel_size": [[3, 3], [3, 3]],
        "sscp_conv_stride_size": [[2, 2], [2, 2]],
    },
    "audio_soft_tokens_per_image": SOUND_TOKENS, "audio_token_id": SOFT_SOUND, "boa_token_id": BEGIN_SOUND,
    "eoa_token_id": END_SOUND,
    "boi_token_id": BEGIN, "eoi_token_id": END, "image_token_id": SOFT, "vision_soft_tokens_per_image": TOKENS,
    "text_config": {
        "model_type": "gemma3n_text", "vocab_size": 142, "hidden_size": 64, "num_hidden_layers": 5, "intermediate_size": 80,
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
        "num_classes": 2, "label_names": ["LABEL_0", "LABEL_1"], "rms_norm_eps": 1e-6, "vocab_size": 3, "vocab_offset": 130,
        "model_args": {"stem_size": 8, "msfa_output_resolution": 4, "block_args": decode_arch_def(BLOCKS)},
    },
}
PROCESSOR = {
    "image_processor_type": "SiglipImageProcessorFast", "do_convert_rgb": None, "do_normalize": False, "do_rescale": True,
    "do_resize": True, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "image_seq_length": TOKENS,
    "resample": 2, "rescale_factor": 0.00392156862745098, "size": {"height": SIDE, "width": SIDE},
}
EXTRACTOR = {"feature_extractor_type": "Gemma3nAudioFeatureExtractor", "feature_size": BANDS, "sampling_rate": 16000}


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


def prompts(case, media):
    raw = [64 + (7 * case + at) % 60 for at in range(5)]
    for at, soft in enumerate(media):
        raw += [soft] + [70 + 3 * case + at, 100 + at]
    whole = {SOFT: [BEGIN] + [SOFT] * TOKENS + [END], SOFT_SOUND: [BEGIN_SOUND] + [SOFT_SOUND] * SOUND_TOKENS + [END_SOUND]}
    expanded = []
    for token in raw:
        expanded += [BLANK_LINE] + whole[token] + [BLANK_LINE] if token in whole else [token]
    return raw, expanded


def spectra(sounds, filled_up):
    """What the extractor makes of sounds, and which frames are sound. It fills them up to the longest, or to so many samples."""
    longest = [np.zeros(filled_up, np.float32)] if filled_up else []
    extract = Gemma3nAudioFeatureExtractor(**{name: EXTRACTOR[name] for name in ("feature_size", "sampling_rate")})
    made = extract([sound(*of) for of in sounds] + longest)
    return [np.stack(made[name][:len(sounds)]) for name in ("input_features", "input_features_mask")]


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
        for index, (case, pictures, sounds, filled_up) in enumerate(CASES):
            raw, prompt = prompts(index, [SOFT] * len(pictures) + [SOFT_SOUND] * len(sounds))
            decode = [80 + index, 90 + index]
            media, features = {}, []
            if pictures:
                images = [Image.fromarray(picture(*numbers)) for numbers in pictures]
                media["pixel_values"] = torch.from_numpy(np.stack(make(images)["pixel_values"]))
            if sounds:
                spectrum, mask = spectra(sounds, filled_up)
                out[f"input_features.{case}"], out[f"input_features_mask.{case}"] = spectrum, mask.astype(np.int32)
                media |= {"input_features": torch.from_numpy(spectrum), "input_features_mask": torch.from_numpy(mask)}
            with torch.no_grad():
                found = model(input_ids=torch.tensor([prompt + decode]), **media, use_cache=False)
            logits = found.logits[0]
            if pictures:
                features.append(seen["features"].reshape(-1, 64))
            if sounds:
                features.append(found.audio_hidden_states.reshape(-1, 64))
            out[f"raw.{case}"] = np.array(raw, np.int32)
            out[f"prompt.{case}"] = np.array(prompt, np.int32)
            out[f"decode.{case}"] = np.array(decode, np.int32)
            out[f"logits.{case}"] = logits[len(prompt) - 1:].numpy().astype(np.float32)
            if features:
                out[f"features.{case}"] = torch.cat(features).numpy().astype(np.float32)
        return out

    golden, moved = compute(1.0), compute(1.0 + 2.0**-20)
    change = max(float(np.abs(golden[k] - moved[k]).max() / np.abs(golden[k]).max()) for k in golden if k.startswith("logits"))
    TARGET.mkdir(exist_ok=True)
    write(TARGET / "config.json", CONFIG)
    write(TARGET / "preprocessor_config.json", EXTRACTOR | PROCESSOR)
    write(TARGET / "processor_config.json", {
        "processor_class": "Gemma3nProcessor", "audio_seq_length": SOUND_TOKENS, "image_seq_length": TOKENS})
    checksums()
    cases = []
    for case, pictures, sounds, filled_up in CASES:
        media = {"images": pictures, "sounds": [] if filled_up else sounds}
        cases.append({"name": case} | {name: of for name, of in media.items() if of})
    write(TARGET / "case.json", {"cases": cases, "media_ids": [SOFT, SOFT_SOUND]})
    lines = ",\n".join(json.dumps(line, separators=(",", ":")) for line in rows)
    (TARGET / "tensors.json").write_text(f'{{"generator": 1, "seed": {SEED},"tensors":[\n{lines}\n]}}\n')
    save_file(golden, TARGET / "golden.safetensors", {"sensitivity": f"{change:.3e}", "transformers": "5.23.0", "timm": "1.0.31"})
    print(f"{TARGET.name}: {len(rows)} tensors, sensitivity {change:.1e}")


if __name__ == "__main__":
    main()
