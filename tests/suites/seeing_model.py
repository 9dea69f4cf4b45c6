"""A model that reads pictures and calls tools: the embedded model behind a vision tower with random weights.

Usage: seeing_model.py EMBEDDED_MODEL FOLDER

It is a LLaVA whose text model is the embedded one, so it calls tools as that does. What it says of a picture means nothing:
the tower is untrained. The token `<|endoftext|>`, which no chat contains, is renamed to stand for a picture.
"""

import json
import sys
from pathlib import Path

import numpy
from safetensors.numpy import load_file, save_file

UNUSED, PICTURE = "<|endoftext|>", "<image>"
SIDE, PATCH, WIDTH, HEADS, INNER = 32, 8, 64, 2, 128
source, folder = map(Path, sys.argv[1:3])

config = json.loads((source / "config.json").read_text())
tokenizer = json.loads((source / "tokenizer.json").read_text().replace(UNUSED, PICTURE))
settings = json.loads((source / "tokenizer_config.json").read_text().replace(UNUSED, PICTURE))
picture_id = next(token["id"] for token in tokenizer["added_tokens"] if token["content"] == PICTURE)
random = numpy.random.default_rng(7)


def matrix(*shape):
    return random.normal(0, 0.02, shape).astype(numpy.float32)


def linear(name, outputs, inputs):
    return {f"{name}.weight": matrix(outputs, inputs), f"{name}.bias": numpy.zeros(outputs, numpy.float32)}


def norm(name):
    return {f"{name}.weight": numpy.ones(WIDTH, numpy.float32), f"{name}.bias": numpy.zeros(WIDTH, numpy.float32)}


def tower():
    patches = (SIDE // PATCH) ** 2
    yield {
        "embeddings.patch_embedding.weight": matrix(WIDTH, 3, PATCH, PATCH),
        "embeddings.patch_embedding.bias": numpy.zeros(WIDTH, numpy.float32),
        "embeddings.position_embedding.weight": matrix(patches, WIDTH),
    }
    layer = "encoder.layers.0"
    yield norm(f"{layer}.layer_norm1")
    yield norm(f"{layer}.layer_norm2")
    for projection in ["q_proj", "k_proj", "v_proj", "out_proj"]:
        yield linear(f"{layer}.self_attn.{projection}", WIDTH, WIDTH)
    yield linear(f"{layer}.mlp.fc1", INNER, WIDTH)
    yield linear(f"{layer}.mlp.fc2", WIDTH, INNER)
    yield norm("post_layernorm")


tensors = {f"language_model.{name}": value for name, value in load_file(source / "model.safetensors").items()}
for part in tower():
    tensors |= {f"vision_tower.{name}": value for name, value in part.items()}
tensors |= linear("multi_modal_projector.linear_1", config["hidden_size"], WIDTH)
tensors |= linear("multi_modal_projector.linear_2", config["hidden_size"], config["hidden_size"])

quantization = config.pop("quantization")
config.pop("quantization_config", None)
vision = {
    "model_type": "siglip_vision_model",
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_hidden_layers": 1,
    "num_attention_heads": HEADS,
    "num_channels": 3,
    "image_size": SIDE,
    "patch_size": PATCH,
    "hidden_act": "gelu_pytorch_tanh",
    "layer_norm_eps": 1e-6,
    "vision_use_head": False,
}
settings["chat_template"] = settings["chat_template"].replace(
    "{%- for part in content -%}",
    "{%- for part in content -%}{%- if part.type == 'image' -%}{{- '" + PICTURE + "' -}}{%- endif -%}",
)
files = {
    "config.json": {
        "architectures": ["LlavaForConditionalGeneration"],
        "model_type": "llava",
        "text_config": config,
        "vision_config": vision,
        "image_token_index": picture_id,
        "image_seq_length": (SIDE // PATCH) ** 2,
        "projector_hidden_act": "gelu",
        "vision_feature_select_strategy": "full",
        "vision_feature_layer": -1,
        "multimodal_projector_bias": True,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "quantization": quantization,
    },
    "preprocessor_config.json": {
        "image_processor_type": "SiglipImageProcessor",
        "do_resize": True,
        "resample": 3,
        "size": {"height": SIDE, "width": SIDE},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
    },
    "processor_config.json": {
        "processor_class": "LlavaProcessor",
        "patch_size": PATCH,
        "vision_feature_select_strategy": "full",
        "image_token": PICTURE,
        "num_additional_image_tokens": 0,
    },
    "tokenizer_config.json": settings,
    "tokenizer.json": tokenizer,
    "generation_config.json": json.loads((source / "generation_config.json").read_text()),
}
folder.mkdir(parents=True)
for name, value in files.items():
    (folder / name).write_text(json.dumps(value))
save_file(tensors, folder / "model.safetensors", metadata={"format": "mlx"})
