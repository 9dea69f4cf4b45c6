"""Writes the model directory from what train.py left: quantized weights, configs, tokenizer, chat template.

    python3 training/export.py --run RUN --to crates/cli/models/omnibus-mini
"""

import argparse
import json
from pathlib import Path

import mlx.core as mx

import chatml

GROUP, BITS = 64, 8
MTP_BITS = 4  # what its rounding gets wrong costs acceptance, never a token
MOST_BYTES = 8_000_000


def quantized(weights, bits=BITS):
    """Matrices in MLX's affine format, all other weights and the scales in float32, which is the fast path on a CPU."""
    out = {}
    for name, weight in weights.items():
        weight = weight.astype(mx.float32)
        if weight.ndim == 2:
            base = name.removesuffix(".weight")
            out[base + ".weight"], out[base + ".scales"], out[base + ".biases"] = mx.quantize(weight, group_size=GROUP, bits=bits)
        else:
            out[name] = weight
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--run", type=Path)
    source.add_argument("--mtp", type=Path, help="what mtp.py left: only the head is written")
    parser.add_argument("--to", type=Path, required=True)
    args = parser.parse_args()
    args.to.mkdir(parents=True, exist_ok=True)
    if args.mtp:
        head = quantized(mx.load(str(args.mtp / "mtp.safetensors")), MTP_BITS)
        mx.save_safetensors(str(args.to / "mtp.safetensors"), head, metadata={"format": "mlx"})
        return check_size(args.to)
    weights = quantized(mx.load(str(args.run / "weights.safetensors")))
    mx.save_safetensors(str(args.to / "model.safetensors"), weights, metadata={"format": "mlx"})
    cfg = json.loads((args.run / "config.json").read_text())
    cfg["quantization"] = cfg["quantization_config"] = {"group_size": GROUP, "bits": BITS, "mode": "affine"}
    write(args.to / "config.json", cfg)
    tokenizer = json.loads((args.run / "tokenizer.json").read_text())
    (args.to / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":")))
    ids = {mark["content"]: mark["id"] for mark in tokenizer["added_tokens"]}
    write(args.to / "tokenizer_config.json", {
        "added_tokens_decoder": {str(mark["id"]): {key: mark[key] for key in ("content", "lstrip", "normalized", "rstrip", "single_word", "special")} for mark in tokenizer["added_tokens"]},
        "additional_special_tokens": [chatml.START, chatml.END], "bos_token": None, "add_bos_token": False, "add_prefix_space": False, "clean_up_tokenization_spaces": False, "eos_token": chatml.END, "pad_token": chatml.STOP, "unk_token": None,
        "errors": "replace", "model_max_length": cfg["max_position_embeddings"], "split_special_tokens": False, "tokenizer_class": "PreTrainedTokenizerFast", "chat_template": chatml.TEMPLATE,
    })
    write(args.to / "generation_config.json", {"bos_token_id": ids[chatml.STOP], "do_sample": False, "eos_token_id": [ids[chatml.END], ids[chatml.STOP]], "pad_token_id": ids[chatml.STOP]})
    check_size(args.to)


def check_size(folder):
    total = sum(file.stat().st_size for file in folder.iterdir())
    print({file.name: file.stat().st_size for file in sorted(folder.iterdir())}, "total", total)
    assert total <= MOST_BYTES, f"{total} bytes are more than {MOST_BYTES}"


def write(path, value):
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
