"""Checks a model directory: files, tokenizer, template, and that PyTorch and mlx-lm compute the same logits.

    python3 training/check.py crates/cli/models/omnibus-mini [--run RUN]

Without PyTorch the comparison of logits is skipped, and says so.
"""

import argparse
import json
import random
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx_lm import generate, load

import chatml
import data

TEXTS = ["Hello, world!", "naïve café, 日本語, Привет, עברית, 🚌🚍 e\u0301", "\x00\x01\x7f tabs\tand\r\nnew lines   spaces", "1234567890 12.5 x² ½", "<tool_call>{\"name\": \"a\"}</tool_call>", "".join(map(chr, range(0x20, 0x250)))]
PROMPTS = ["What is omnibus?", "How do I start the server?", "What is 47 + 38?", "What is 36 * 47?", "Hi!", "Who won the 1998 World Cup?", "Extract names and numbers as JSON: Maria bought 12 apples and Wenzel ate 5.", "Count from 1 to 12."]


def check_tokenizer(tokenizer):
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.decode(ids) == text, f"{text!r} comes back as {tokenizer.decode(ids)!r}"


def check_template(tokenizer):
    """The template and chatml.render agree on what the model was trained on."""
    rng = random.Random(11)
    for _ in range(400):
        messages, tools = data.conversation(rng)
        ours = "".join(text for text, _ in chatml.render(messages, tools))
        theirs = tokenizer.apply_chat_template(messages, tools=tools or None, tokenize=False, enable_thinking=True)
        assert ours.rstrip("\n") == theirs.rstrip("\n"), f"the template differs:\n{ours}\n---\n{theirs}"


def check_logits(path, run, tokenizer):
    try:
        import torch
        from safetensors.torch import load_file
    except ImportError:
        print("logits: skipped, since PyTorch is not installed")
        return
    import model as net

    cfg = json.loads((run / "config.json").read_text())
    network = net.Qwen3(cfg)
    weights = mx.load(str(path / "model.safetensors"))
    state = {}  # what the quantized file stands for, so that only the arithmetic can differ
    for name in load_file(str(run / "weights.safetensors")):
        base = name.removesuffix(".weight")
        weight = weights[name] if base + ".scales" not in weights else mx.dequantize(weights[name], weights[base + ".scales"], weights[base + ".biases"], group_size=64, bits=8)
        state[name.removeprefix("model.")] = torch.from_numpy(np.array(weight.astype(mx.float32)))
    network.load_state_dict(state)
    ids = tokenizer.apply_chat_template([{"role": "user", "content": PROMPTS[6]}], add_generation_prompt=True)
    tokens = torch.tensor([ids])
    with torch.no_grad():
        ours = network(tokens, torch.arange(len(ids))[None], net.dense_attend(torch.zeros_like(tokens)))[0].numpy()
    theirs = np.array(load(str(path))[0](mx.array([ids]))[0].astype(mx.float32))
    error = np.linalg.norm(ours - theirs) / np.linalg.norm(ours)
    print(f"logits: relative difference {error:.1e} over {len(ids)} positions")
    assert error < 1e-3, "PyTorch and mlx-lm disagree"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--run", type=Path, help="what train.py wrote, for the comparison with PyTorch")
    args = parser.parse_args()
    network, tokenizer = load(str(args.path))
    check_tokenizer(tokenizer._tokenizer)
    print("tokenizer: every text comes back")
    check_template(tokenizer)
    print("template: the same as in training")
    if args.run:
        check_logits(args.path, args.run, tokenizer)
    for prompt in PROMPTS:
        text = tokenizer.apply_chat_template([{"role": "user", "content": prompt}], add_generation_prompt=True)
        print(f"{prompt}\n    {generate(network, tokenizer, text, max_tokens=120)}")


if __name__ == "__main__":
    main()
