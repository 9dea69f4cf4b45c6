"""Makes the corpus, trains the tokenizer and the model, and writes both under --out. Start at `main`.

The same recipe runs on a GPU (preset gpu) and on a CPU (preset cpu, a smaller model).
"""

import argparse
import json
import math
import os
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

import data
import model as net

PROMPT_WEIGHT = 0.1  # what the user writes counts less than what the model must write


def options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True)
    parser.add_argument("--device", default="auto", choices=["auto", "cuda", "cpu"])
    parser.add_argument("--preset", default="auto", choices=["auto", "gpu", "cpu"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--documents", type=int, help="conversations in the corpus")
    parser.add_argument("--steps", type=int, help="training steps")
    parser.add_argument("--seconds", type=float, help="fewer steps, if the steps would take longer than this")
    parser.add_argument("--batch-tokens", type=int, default=32768)
    parser.add_argument("--rate", type=float, default=2e-3, help="highest learning rate")
    parser.add_argument("--width", type=int, default=1024, help="tokens in a row")
    parser.add_argument("--start", type=Path, help="go on from what an earlier run wrote, with its tokenizer")
    parser.add_argument("--attention", default="auto", choices=["auto", "flex", "dense"])
    args = parser.parse_args()
    if args.device == "auto":
        args.device = "cuda" if torch.cuda.is_available() else "cpu"
    gpu = args.device == "cuda"
    if args.preset == "auto":
        args.preset = "gpu" if gpu else "cpu"
    if args.attention == "auto":
        args.attention = "flex" if gpu else "dense"
    args.documents = args.documents or (1_200_000 if gpu else 150_000)
    args.steps = args.steps or (13_000 if gpu else 6_000)
    return args


class Rows:
    """Packed rows on the device, drawn in a seeded order, epoch after epoch."""

    def __init__(self, parts, width, seed, device):
        packed = data.pack(np.random.default_rng(seed), *parts, width)
        self.arrays = [torch.from_numpy(array).to(device) for array in packed]
        self.order = torch.empty(0, dtype=torch.long)
        self.random = torch.Generator().manual_seed(seed)
        self.device = device

    def batch(self, rows):
        while len(self.order) < rows:
            self.order = torch.cat([self.order, torch.randperm(len(self.arrays[0]), generator=self.random)])
        chosen, self.order = self.order[:rows].to(self.device), self.order[rows:]
        tokens, learned, documents, positions = (array[chosen] for array in self.arrays)
        return tokens.long(), learned, documents.int(), positions.int()


def loss_of(network, tokens, learned, positions, attend, documents):
    """Cross entropy of the next token inside each document, weighted by who writes it."""
    logits = network(tokens, positions, attend)[:, :-1]
    weight = torch.where(learned[:, 1:] > 0, 1.0, PROMPT_WEIGHT) * ((documents[:, 1:] == documents[:, :-1]) & (documents[:, 1:] < 255))
    each = F.cross_entropy(logits.reshape(-1, logits.shape[-1]).float(), tokens[:, 1:].reshape(-1), reduction="none")
    return (each * weight.reshape(-1)).sum() / weight.sum()


def rate_at(done, highest):
    """Warm-up over the first hundredth, then a cosine down to a hundredth of the highest rate."""
    if done < 0.01:
        return highest * (done / 0.01)
    return highest * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * (done - 0.01) / 0.99)))


def train(args, network, short, long):
    gpu = args.device == "cuda"
    decayed = [weight for weight in network.parameters() if weight.dim() == 2]
    plain = [weight for weight in network.parameters() if weight.dim() != 2]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}], lr=args.rate, betas=(0.9, 0.98), fused=gpu)
    flex = args.attention == "flex"

    def forward(tokens, learned, positions, documents, mask):
        attend = net.flex_attend(mask) if flex else net.dense_attend(documents)
        return loss_of(network, tokens, learned, positions, attend, documents)

    run = torch.compile(forward, dynamic=False) if gpu else forward
    began, steps, step, log = time.time(), args.steps, 0, []
    measured = None
    while step < steps:
        rows, width = (short, args.width) if step < 0.88 * steps or long is None else (long, 4 * args.width)
        tokens, learned, documents, positions = rows.batch(max(1, args.batch_tokens // width))
        mask = net.flex_mask(documents) if flex else None
        rate = rate_at(step / steps, args.rate)
        for group in optimizer.param_groups:
            group["lr"] = rate
        with torch.autocast(args.device, torch.bfloat16, enabled=gpu):
            loss = run(tokens, learned, positions, documents, mask)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        if step % (500 if gpu else 20) == 0 or step in (20, 120):
            value, now = loss.item(), time.time()
            log.append((step, round(value, 4)))
            print(f"step {step}/{steps} loss {value:.4f} rate {rate:.2e} {now - began:.0f}s", flush=True)
            if args.seconds and measured is None and step > 20:
                pace = (now - early[1]) / (step - early[0])
                measured = min(steps, step + int((args.seconds - (now - began) - 45) / (pace * 1.08)))
                print(f"{pace * 1000:.1f} ms a step: {measured} steps fit", flush=True)
                steps = measured
            early = (step, now)
    return {"steps": steps, "train_seconds": round(time.time() - began), "log": log}


def main():
    args, began = options(), time.time()
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    if args.start:
        (out / "tokenizer.json").write_bytes((args.start / "tokenizer.json").read_bytes())
        tokenizer = Tokenizer.from_file(str(out / "tokenizer.json"))
    else:
        tokenizer = data.train_tokenizer(str(out / "tokenizer.json"), args.seed)
    ids = {mark: tokenizer.token_to_id(mark) for mark in data.chatml.SPECIAL}
    cfg = net.config_of(args.preset, tokenizer.get_vocab_size(), ids["<|endoftext|>"], [ids["<|im_end|>"], ids["<|endoftext|>"]])
    print(f"tokenizer of {cfg['vocab_size']} tokens after {time.time() - began:.0f}s", flush=True)
    processes = max(1, min(32, (os.cpu_count() or 2) - 1))
    path = str(out / "tokenizer.json")
    parts = data.corpus(path, args.seed, args.documents, args.width, 0.0, processes)
    extra = data.corpus(path, args.seed + 1000, max(2000, args.documents // 12), 4 * args.width, 0.12, processes)
    print(f"{len(parts[2])} + {len(extra[2])} documents, {len(parts[0]) / 1e6:.1f} + {len(extra[0]) / 1e6:.1f} million tokens after {time.time() - began:.0f}s", flush=True)
    short, long = Rows(parts, args.width, args.seed, args.device), Rows(extra, 4 * args.width, args.seed, args.device)
    print(f"packed after {time.time() - began:.0f}s, {(short.arrays[2] < 255).float().mean():.3f} full", flush=True)
    network = net.Qwen3(cfg).to(args.device)
    if args.start:
        earlier = load_file(str(args.start / "weights.safetensors"))
        network.load_state_dict({name.removeprefix("model."): weight.float() for name, weight in earlier.items()})
    size = sum(weight.numel() for weight in network.parameters())
    if args.seconds:
        args.seconds -= time.time() - began
    report = train(args, network, short, long)
    weights = {"model." + name: weight.detach().to(torch.float16).cpu().contiguous() for name, weight in network.state_dict().items()}
    save_file(weights, str(out / "weights.safetensors"))
    (out / "config.json").write_text(json.dumps(cfg, indent=2))
    report |= {"preset": args.preset, "seed": args.seed, "documents": args.documents, "batch_tokens": args.batch_tokens, "rate": args.rate, "parameters": size, "start": str(args.start or ""), "corpus_tokens": len(parts[0]), "seconds": round(time.time() - began),
               "device": torch.cuda.get_device_name() if args.device == "cuda" else "cpu", "torch": torch.__version__}
    (out / "report.json").write_text(json.dumps(report, indent=1))
    print(json.dumps({key: value for key, value in report.items() if key != "log"}))


if __name__ == "__main__":
    main()
