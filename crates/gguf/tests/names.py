"""llama.cpp's names of the tensors of tiny models, as its own Python package maps them: writes names.json.

    python3 -m venv v && v/bin/pip install gguf && v/bin/python names.py ../../model/tests/fixtures names.json
"""
import json
import pathlib
import sys

import gguf

# Fixtures of `omnibus-model` with llama.cpp's names of their architectures.
MODELS = {
    "mistral": "mistral3", "ministral3": "mistral3", "qwen2_moe": "qwen2moe", "glm4": "glm4", "glm4_moe": "glm4moe",
    "exaone4": "exaone4", "exaone4.full": "exaone4", "cohere": "command-r", "cohere2": "cohere2", "starcoder2": "starcoder2",
    "phi": "phi2", "hunyuan_v1_dense": "hunyuan-dense", "lfm2": "lfm2", "qwen3_5.flat": "qwen35",
    "qwen3_5": "qwen35", "qwen3_5_moe": "qwen35moe", "qwen3_next": "qwen3next", "deepseek_v3": "deepseek2",
}
# What MLX's names have in place of the published ones, which conversion changes before it looks names up.
PUBLISHED = [
    ("language_model.", ""), ("switch_mlp.", "experts."), ("e_score_correction_bias", "e_score_correction.bias"),
    (".dt_bias", ".dt_proj.bias"), (".embed_q.", ".k_b_proj."), (".unembed_out.", ".v_b_proj."),
]


def name_in_file(architecture, names, name):
    for ours, published in PUBLISHED:
        name = name.replace(ours, published)
    found = names.get_name(name, try_suffixes=(".weight", ".bias"))
    if found is None:
        sys.exit(f"{architecture}: {name} has no name")
    return found


folder, out = pathlib.Path(sys.argv[1]), sys.argv[2]
kinds = {name: kind for kind, name in gguf.MODEL_ARCH_NAMES.items()}
models = {}
for model, architecture in MODELS.items():
    names = gguf.get_tensor_name_map(kinds[architecture], 8)
    tensors = [row[0] for row in json.loads((folder / model / "tensors.json").read_text())["tensors"]]
    if model == "qwen3_next":  # whose files have experts in every layer, and one projection in two parts
        tensors = [name for name in tensors if not name.startswith("model.layers.0.mlp.")]
        tensors = [part for name in tensors for part in dict.fromkeys([name.replace("_qkvz", "_qkv"), name.replace("_qkvz", "_z")])]
    models[model] = {"architecture": architecture, "names": {name: name_in_file(architecture, names, name) for name in tensors}}
json.dump(models, open(out, "w"), indent=0)
