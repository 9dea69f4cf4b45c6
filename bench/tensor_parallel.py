#!/usr/bin/env python3
"""Ranks on several GPUs: what they answer and how fast, beside one GPU.

    python3 bench/tensor_parallel.py OMNIBUS [--preset llama-3.1-8b] [--quantize 4] [--ranks 2] [--streams 1,16,64,256] [--prompt 2048] [-- SERVE-FLAGS]

Needs as many GPUs as ranks, and torch and numpy. The model gets random weights and the embedded model's tokenizer; any Llama, Qwen3
or Qwen3-MoE preset of `bench engine` or config.json does.

Answers: the log-probabilities of greedy tokens of the embedded model, whose text must be equal as long as no two tokens are nearly
as likely. Speed: `omnibus bench serve`, medians of the milliseconds between two tokens of a stream for each number of streams, and to the first token of
one prompt. Of a step: milliseconds in which the host planned and built it, and waited for it; launches of a decode step.
"""

import argparse
import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

import gpu
import serving

TOKENIZER = pathlib.Path(__file__).resolve().parent.parent / "crates/cli/models/omnibus-mini"
CONTEXT, OUTPUT = 128, 192
# Of packed weights: inputs that share a scale. Routers are not packed.
GROUP, ROUTER = 64, "mlp.gate.weight"
BYTES = dict(BF16=2, U32=4)
QUESTIONS = ["Where does the bus stop?", "Count from one to twenty.", "What is omnibus?", "Tell me about trams."]


def shapes(config):
    """Names and shapes of a decoder's tensors, dense or with experts, by mlx-lm's names."""
    hidden, vocabulary = config["hidden_size"], config["vocab_size"]
    heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
    size = config.get("head_dim") or hidden // heads
    experts = config.get("num_experts")
    yield "model.embed_tokens.weight", (vocabulary, hidden)
    yield "model.norm.weight", (hidden,)
    if not config.get("tie_word_embeddings"):
        yield "lm_head.weight", (vocabulary, hidden)
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        for name, rows in (("q", heads), ("k", kv), ("v", kv)):
            yield f"{at}self_attn.{name}_proj.weight", (rows * size, hidden)
        yield f"{at}self_attn.o_proj.weight", (hidden, heads * size)
        if config["model_type"].startswith("qwen3"):
            yield f"{at}self_attn.q_norm.weight", (size,)
            yield f"{at}self_attn.k_norm.weight", (size,)
        mlp, stack, wide = f"{at}mlp", (), config["intermediate_size"]
        if experts:
            mlp, stack, wide = f"{at}mlp.switch_mlp", (experts,), config["moe_intermediate_size"]
            yield f"{at}{ROUTER}", (experts, hidden)
        yield f"{mlp}.gate_proj.weight", (*stack, wide, hidden)
        yield f"{mlp}.up_proj.weight", (*stack, wide, hidden)
        yield f"{mlp}.down_proj.weight", (*stack, hidden, wide)
        yield f"{at}input_layernorm.weight", (hidden,)
        yield f"{at}post_attention_layernorm.weight", (hidden,)


def stored(config, bits):
    """Names, types and shapes of what a file has of the tensors."""
    for name, shape in shapes(config):
        if bits == 16 or len(shape) == 1 or name.endswith(ROUTER):
            yield name, "BF16", shape
            continue
        *rows, inputs = shape
        yield name, "U32", (*rows, inputs * bits // 32)
        for part in ("scales", "biases"):
            yield name.removesuffix("weight") + part, "BF16", (*rows, inputs // GROUP)


def values(name, kind, shape, vocabulary, bits):
    """Random values of a tensor, on the CPU. `vocabulary`: tokens with a text; others are never sampled: their rows of the head are zero,
    as those of the published vocabulary would be read."""
    import torch

    if kind == "U32":
        return torch.randint(-(2 ** 31), 2 ** 31 - 1, shape, device="cuda", dtype=torch.int32).cpu()
    if name.endswith(("scales", "biases")):
        # Codes are as likely as each other, so this is their standard deviation.
        step = (shape[-1] * GROUP) ** -0.5 / (2 ** bits / 12 ** 0.5)
        found = torch.full(shape, step if name.endswith("scales") else -step * (2 ** bits - 1) / 2, dtype=torch.bfloat16)
    elif len(shape) == 1:
        return torch.ones(shape, dtype=torch.bfloat16)
    else:
        found = (torch.randn(shape, device="cuda") * shape[-1] ** -0.5).to(torch.bfloat16).cpu()
    if name.startswith("lm_head."):
        found[vocabulary:] = 0
    return found


def make_model(preset, folder, bits):
    import torch

    config = dict(gpu.config_of(preset))
    if bits != 16:
        config["quantization"] = dict(group_size=GROUP, bits=bits)
    texts = json.loads((TOKENIZER / "tokenizer.json").read_text())
    vocabulary = len(texts["model"]["vocab"].keys() | {token["content"] for token in texts["added_tokens"]})
    tensors, offset, header = list(stored(config, bits)), 0, {}
    for name, kind, shape in tensors:
        size = BYTES[kind] * math.prod(shape)
        header[name] = dict(dtype=kind, shape=list(shape), data_offsets=[offset, offset + size])
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    torch.manual_seed(0)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, kind, shape in tensors:
            file.write(values(name, kind, shape, vocabulary, bits).contiguous().view(torch.uint8).numpy().data)
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZER / name, folder)


def started(options, model, ranks, log):
    command = [options.omnibus, "serve", *model, "--served-model-name", "bench", "--log", "warn", "--draft", "off"]
    command += ["--tensor-parallel-size", str(ranks), "--device", "gpu", *options.flags]
    return serving.serving(serving.Server("omnibus", list(map(str, command)), "bench"), log, patience_s=300)


def answers(running):
    """The tokens of greedy answers with their log-probabilities."""
    found = []
    for question in QUESTIONS:
        body = dict(model="bench", messages=[dict(role="user", content=question)], max_tokens=48, temperature=0, logprobs=True)
        request = urllib.request.Request(running.url + "/v1/chat/completions", json.dumps(body).encode(),
                                         {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as response:
            reply = json.load(response)
        found.append([(token["token"], token["logprob"]) for token in reply["choices"][0]["logprobs"]["content"]])
    return found


def compare(one, several):
    """How many answers begin alike until their end, and the largest difference of a log-probability before they part."""
    equal, worst = 0, 0.0
    for left, right in zip(one, several):
        alike = 0
        for (token, logprob), (other, of_other) in zip(left, right):
            if token != other:
                break
            alike, worst = alike + 1, max(worst, abs(logprob - of_other))
        equal += alike == len(left) == len(right)
    return equal, worst


def bench(options, running, *flags):
    command = [options.omnibus, "bench", "serve", "--url", running.url + "/v1", "--endpoint", "completions", "--json", "--ignore-eos"]
    done = subprocess.run(list(map(str, [*command, *flags])), capture_output=True, text=True, timeout=300)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def steps(running):
    """Steps so far, seconds of the host for them and of waiting, and launches of the last decode step."""
    values = serving.metrics(running.url)
    names = ["step_seconds_count", "step_host_seconds_total", "step_wait_seconds_total", "gpu_step_launches"]
    return [values[f"omnibus_{name}"] for name in names]


def speeds(options, running):
    found = {}
    for streams in options.streams:
        flags = ["--concurrency", streams, "--num-prompts", streams * (1 if streams > 4 else 2), "--input-len", CONTEXT, "--output-len", OUTPUT]
        bench(options, running, *flags)  # graphs are built when they are first used
        before = steps(running)
        found[f"{streams} streams"] = bench(options, running, *flags)["itl_ms"]["p50"]
        count, host, wait, launches = (now - then for now, then in zip(steps(running), before[:3] + [0]))
        print(f"{streams} streams: a step of {launches:.0f} launches has {1e3 * host / count:.2f} ms of the host and {1e3 * wait / count:.2f} of waiting", flush=True)
    flags = ["--concurrency", 1, "--num-prompts", 4, "--input-len", options.prompt, "--output-len", 2]
    found[f"prompt of {options.prompt} words"] = bench(options, running, *flags)["ttft_ms"]["p50"]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("omnibus", type=pathlib.Path)
    parser.add_argument("--preset", default="llama-3.1-8b")
    parser.add_argument("--quantize", type=int, default=16, choices=(4, 8), help="bits of the weights; default: bfloat16")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--streams", type=lambda text: [int(n) for n in text.split(",")], default=[1, 16, 64, 256])
    parser.add_argument("--prompt", type=int, default=2048)
    arguments = sys.argv[1:]
    at = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:at])
    options.flags = ["--max-num-seqs", max(options.streams), *arguments[at + 1:]]
    sizes = (1, options.ranks)
    with tempfile.TemporaryDirectory() as folder, open(pathlib.Path(folder) / "log", "w+") as log:
        found = []
        for ranks in sizes:
            with started(options, [], ranks, log) as running:
                found.append(answers(running))
        equal, worst = compare(*found)
        print(f"answers: {equal} of {len(QUESTIONS)} equal, log-probabilities within {worst:.4f}", flush=True)
        make_model(options.preset, pathlib.Path(folder), options.quantize)
        rows = []
        for ranks in sizes:
            begun = time.monotonic()
            with started(options, [folder], ranks, log) as running:
                print(f"{ranks} ranks are ready after {time.monotonic() - begun:.1f} s", flush=True)
                rows.append(speeds(options, running))
        print(f"| {options.preset}, ms | 1 GPU | {options.ranks} GPUs | ratio |\n| --- | --- | --- | --- |")
        for name in rows[0]:
            one, several = (row[name] for row in rows)
            print(f"| {name} | {one:.2f} | {several:.2f} | {one / several:.2f} |", flush=True)


if __name__ == "__main__":
    main()
