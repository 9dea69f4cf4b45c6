"""Golden logits of Molmo 2 whose pictures' tokens see each other: `cargo xtask fixtures molmo2` writes them into molmo2 beside
this file. Prompts and features stay as they are.

mlx-vlm's text model is causal. Here it gets the mask of transformers' `models/molmo2/modeling_molmo2.py`: a key is seen that is
not later, or where query and key are both tokens of pictures.
"""

import json
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx_vlm.models.molmo2.config import TextConfig
from mlx_vlm.models.molmo2.language import LanguageModel

from formulas import expanded, generated

TARGET = Path(__file__).parent / "molmo2"
TOKENS = ["image_start", "image_end", "low_res_image_start", "frame_start", "frame_end"]
IDS = ["image_patch_id", "image_col_id", "image_low_res_id", *(f"{name}_token_id" for name in TOKENS)]


def main():
    config = json.loads((TARGET / "config.json").read_text())
    recipe = json.loads((TARGET / "tensors.json").read_text())
    golden, metadata = mx.load(str(TARGET / "golden.safetensors"), return_metadata=True)
    prefix = "language_model."
    weights = [(name[len(prefix):], mx.array(generated(recipe["seed"], name, *rest)))
               for name, rest in expanded(recipe["tensors"]) if name.startswith(prefix)]
    model = LanguageModel(TextConfig.from_dict(config["text_config"]))
    model.load_weights(weights)
    of_pictures = [config[name] for name in IDS]
    for case in sorted(name.split(".")[1] for name in golden if name.startswith("prompt.")):
        prompt = np.array(golden[f"prompt.{case}"])
        tokens = np.concatenate([prompt, np.array(golden[f"decode.{case}"])])
        embedded = np.array(model.model.wte(mx.array(tokens)[None]))
        if f"features.{case}" in golden:
            embedded[0, tokens == config["image_patch_id"]] = np.array(golden[f"features.{case}"])
        is_picture = np.isin(tokens, of_pictures)
        sees = np.tri(len(tokens), dtype=bool)
        causal = np.array(model(None, mx.array(embedded), mx.array(sees)[None, None]).logits[0])[len(prompt) - 1:]
        seen = sees | (is_picture[:, None] & is_picture[None, :])
        logits = np.array(model(None, mx.array(embedded), mx.array(seen)[None, None]).logits[0])[len(prompt) - 1:]
        before = np.array(golden[f"logits.{case}"])
        print(case, "causal:", np.abs(causal - before).max(), "moved:", np.abs(logits - causal).max())
        golden[f"logits.{case}"] = mx.array(logits)
    mx.save_safetensors(str(TARGET / "golden.safetensors"), golden, metadata | {"mask": "as published"})


if __name__ == "__main__":
    main()
