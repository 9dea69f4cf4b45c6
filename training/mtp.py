"""Trains the head that predicts further tokens (MTP) beside a finished model, whose weights stay. Start at `main`.

The head reads the embedding of token i+1 and the model's hidden state of token i, and learns what the model itself says of token
i+2. Its second and third tokens read its own output in the place of the state, and keys of earlier tokens that were computed from
the model's states, as in use. Source: DeepSeek-V3 Technical Report, section 2.2; EAGLE-3 (arXiv 2503.01840), training-time test.

    python3 training/mtp.py --model crates/cli/models/omnibus-mini --out training/out/mtp
    python3 training/export.py --mtp training/out/mtp --to crates/cli/models/omnibus-mini
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.numpy import load_file
from safetensors.torch import save_file

import data
import model as net
from train import PROMPT_WEIGHT, Rows, rate_at

DEPTHS = (1.0, 0.8, 0.6)  # weight of the loss of each further token


def unpacked(tensors, cfg):
    """Weights of a model directory in float32: 8-bit affine groups are multiplied out."""
    group, bits = cfg["quantization"]["group_size"], cfg["quantization"]["bits"]
    weights = {}
    for name, tensor in tensors.items():
        base, _, part = name.rpartition(".")
        if part in ("scales", "biases"):
            continue
        if tensor.dtype == np.uint32:
            shifts = np.arange(32 // bits, dtype=np.uint32) * bits
            codes = (tensor[..., None] >> shifts) & ((1 << bits) - 1)
            codes = codes.reshape(tensor.shape[0], -1, group).astype(np.float32)
            tensor = codes * tensors[base + ".scales"][..., None] + tensors[base + ".biases"][..., None]
            tensor = tensor.reshape(tensor.shape[0], -1)
        weights[name.removeprefix("model.")] = torch.from_numpy(tensor.astype(np.float32))
    return weights


class Head(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        hidden, eps = cfg["hidden_size"], cfg["rms_norm_eps"]
        self.embedding_norm, self.state_norm = nn.RMSNorm(hidden, eps=eps), nn.RMSNorm(hidden, eps=eps)
        self.projection = nn.Linear(2 * hidden, hidden, bias=False)
        self.layer = net.Layer(cfg)
        self.norm = nn.RMSNorm(hidden, eps=eps)
        nn.init.normal_(self.projection.weight, std=0.03)

    def forward(self, embedded, states, angles, attend):
        """Hidden states that the output matrix and the next pass read, [batch, length, hidden]."""
        x = self.projection(torch.cat([self.embedding_norm(embedded), self.state_norm(states)], -1))
        return self.norm(self.layer(x, angles, attend))


class Attend:
    """Attention of the passes one after the other: pass j reads keys of the first pass up to position p - j, and behind those one key of
    each later pass."""

    def __init__(self, documents):
        length = documents.shape[1]
        self.same = documents[:, None, :, None] == documents[:, None, None, :]
        self.order = torch.arange(length, device=documents.device)
        self.first, self.later = None, []

    def __call__(self, q, k, v):
        times = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
        if self.first is None:
            self.first, depth = (k, v), 0
        else:
            self.later.append((k, v))
            depth = len(self.later)
        keys, values = self.first
        visible = self.same & (self.order[:, None] - self.order[None, :] >= depth)
        scores = (q @ keys.transpose(-1, -2) * q.shape[-1] ** -0.5).float().masked_fill(~visible, -torch.inf)
        beside = [(back(k, depth - 1 - at), back(v, depth - 1 - at)) for at, (k, v) in enumerate(self.later)]
        own = [(q * k).sum(-1, keepdim=True).float() * q.shape[-1] ** -0.5 for k, _ in beside]
        weights = torch.softmax(torch.cat([scores, *own], -1), -1).to(v.dtype)
        length = keys.shape[2]
        out = weights[..., :length] @ values
        for at, (_, v) in enumerate(beside):
            out = out + weights[..., length + at, None] * v
        return out


def back(x, steps):
    """What was `steps` positions before, along the axis before the last."""
    return x if steps == 0 else F.pad(x, (0, 0, steps, 0))[..., : x.shape[-2], :]


def hidden_states(network, tokens, angles, attend):
    x = network.embed_tokens(tokens)
    for layer in network.layers:
        x = layer(x, angles, attend)
    return network.norm(x)


def losses(network, head, tokens, learned, positions, documents):
    """The loss of each further token, and how often its most likely token is the model's."""
    angles = positions.float()[:, None, :, None] * network.frequencies
    with torch.no_grad():
        states = hidden_states(network, tokens, angles, net.dense_attend(documents))
        said = F.log_softmax(F.linear(states, network.embed_tokens.weight).float(), -1)
        embedded = network.embed_tokens(tokens)
    # Row p has token p + 1 and the state of p, and predicts what the model says at p + 1.
    behind = lambda x, steps: F.pad(x.transpose(1, -1), (0, steps)).transpose(1, -1)[:, steps:] if x.dim() > 2 else F.pad(x, (0, steps))[:, steps:]
    next_embedded, target = behind(embedded, 1), behind(said, 1)
    inside = (behind(documents + 1, 2) == documents + 1) & (documents < 255)
    weight = torch.where(behind(learned, 2) > 0, 1.0, PROMPT_WEIGHT) * inside
    attend, read, out, right, reached = Attend(documents), states, [], [], inside & (behind(learned, 2) > 0)
    for depth in range(len(DEPTHS)):
        normed = head(next_embedded, read, angles, attend)
        logits = F.linear(normed, network.embed_tokens.weight).float()
        each = -(target.exp() * F.log_softmax(logits, -1)).sum(-1)
        begins = torch.roll(documents, depth, 1) == documents if depth else torch.ones_like(inside)
        counted = weight * begins
        out.append((each * counted).sum() / counted.sum())
        hit = logits.argmax(-1) == target.argmax(-1)
        right.append((hit & reached & begins).sum() / (reached & begins).sum())
        read = back(normed, 1)
    return out, right


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--documents", type=int, default=300_000)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--batch-tokens", type=int, default=16384)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--seconds", type=float, help="fewer steps, if they would take longer")
    args, began = parser.parse_args(), time.time()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    args.out.mkdir(parents=True, exist_ok=True)
    cfg = json.loads((args.model / "config.json").read_text())
    network = net.Qwen3(cfg)
    network.load_state_dict(unpacked(load_file(args.model / "model.safetensors"), cfg))
    network = network.to(device).requires_grad_(False)
    head = Head(cfg).to(device)
    processes = max(1, min(32, (os.cpu_count() or 2) - 1))
    parts = data.corpus(str(args.model / "tokenizer.json"), args.seed, args.documents, args.width, 0.0, processes)
    rows = Rows(parts, args.width, args.seed, device)
    print(f"{len(parts[0]) / 1e6:.1f} million tokens after {time.time() - began:.0f}s", flush=True)
    optimizer = torch.optim.AdamW(head.parameters(), lr=args.rate, betas=(0.9, 0.98), weight_decay=0.05)
    run = torch.compile(losses, dynamic=False) if device == "cuda" else losses
    start, steps, step = time.time(), args.steps, 0
    while step < steps:
        tokens, learned, documents, positions = rows.batch(max(1, args.batch_tokens // args.width))
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step / steps, args.rate)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            each, right = run(network, head, tokens, learned, positions, documents)
        loss = sum(weight * part for weight, part in zip(DEPTHS, each)) / sum(DEPTHS)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        if step in (5, 60) or step % 200 == 0:
            shares = " ".join(f"{float(share):.3f}" for share in right)
            print(f"step {step}/{steps} loss {loss.item():.4f} right {shares} {time.time() - start:.0f}s", flush=True)
            if step == 5:
                early = time.time()
            if args.seconds and step == 60:
                steps = min(steps, step + int((args.seconds - (time.time() - began)) * 55 / (time.time() - early)))
                print(f"{steps} steps fit", flush=True)
    names = {"embedding_norm": "model.fuse.embedding_norm", "state_norm": "model.fuse.state_norm", "projection": "model.fuse.projection", "norm": "model.norm", "layer": f"model.layers.{cfg['num_hidden_layers']}"}
    weights = {}
    for name, weight in head.state_dict().items():
        part, _, rest = name.partition(".")
        weights[f"{names[part]}.{rest}"] = weight.detach().float().cpu().contiguous()
    save_file(weights, str(args.out / "mtp.safetensors"))
    shares = [round(float(share), 4) for share in right]
    report = {"steps": steps, "seed": args.seed, "documents": args.documents, "batch_tokens": args.batch_tokens, "right": shares, "seconds": round(time.time() - began), "torch": torch.__version__}
    (args.out / "mtp.json").write_text(json.dumps(report, indent=1))
    print(json.dumps(report))


if __name__ == "__main__":
    main()
