#!/usr/bin/env python3
"""Decode speed with a quarter of a mixture's experts resident (`--expert-memory`), and with all of them.

    cargo xtask bench expert_memory [--rounds 7] [--tokens 128] [--skew 0.3]

The model is a Qwen3-MoE of 8 layers with 128 experts in 4 bits, 8 of them for each token, with random weights. Rows of its
routers have lengths by Zipf's law, (rank + 1) ** -skew, so that some experts are chosen more often than others. Both
servers run at the same time and are measured in turns, so that other load on the machine affects both. Tokens are sampled,
so that text does not repeat itself. The model's file stays in the system's page cache: misses cost a copy, not a disk.
"""

import json
import random
import shutil
import statistics
import struct

import serving

TOKENIZER = serving.HERE.parent / "crates/cli/models/omnibus-mini"
BITS, GROUP = 4, 64
EXPERTS, CHOSEN = 128, 8
CONFIG = dict(model_type="qwen3_moe", architectures=["Qwen3MoeForCausalLM"], vocab_size=2048, hidden_size=1024,
              num_hidden_layers=8, intermediate_size=512, moe_intermediate_size=512, num_attention_heads=16,
              num_key_value_heads=4, head_dim=64, num_experts=EXPERTS, num_experts_per_tok=CHOSEN, decoder_sparse_step=1,
              mlp_only_layers=[], norm_topk_prob=True, rms_norm_eps=1e-6, rope_theta=1e6,
              max_position_embeddings=4096, tie_word_embeddings=False, torch_dtype="bfloat16")
STREAMS = (1, 4)


# --- the model

def bf16(values):
    return b"".join(struct.pack(">f", value)[1::-1] for value in values)


class Checkpoint:
    """Tensors of random numbers; `write` makes and writes one after the other."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.tensors = {}

    def packed(self, path, *shape):
        """Codes of `BITS` bits, uniformly distributed, in MLX's affine format; sums keep the length of what they multiply."""
        words = shape[-1] * BITS // 32
        scale = 1 / (4.61 * shape[-1] ** 0.5)
        count = size(shape) // GROUP
        self.tensors[f"{path}.weight"] = ("U32", [*shape[:-1], words], lambda: self.rng.randbytes(size(shape) * BITS // 8))
        for name, value in (("scales", scale), ("biases", -7.5 * scale)):
            self.tensors[f"{path}.{name}"] = ("BF16", [*shape[:-1], shape[-1] // GROUP],
                                              lambda value=value: bf16([value]) * count)

    def ones(self, path, length):
        self.tensors[f"{path}.weight"] = ("BF16", [length], lambda: bf16([1.0]) * length)

    def router(self, path, width, skew):
        def rows():
            lengths = [(rank + 1) ** -skew for rank in range(EXPERTS)]
            self.rng.shuffle(lengths)
            return b"".join(bf16(self.rng.gauss(0, length / width ** 0.5) for _ in range(width)) for length in lengths)
        self.tensors[f"{path}.weight"] = ("BF16", [EXPERTS, width], rows)

    def write(self, path):
        header, offset = {}, 0
        for name, (dtype, shape, _) in self.tensors.items():
            end = offset + size(shape) * (4 if dtype == "U32" else 2)
            header[name] = dict(dtype=dtype, shape=shape, data_offsets=[offset, end])
            offset = end
        text = json.dumps(header).encode()
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for _, _, data in self.tensors.values():
                file.write(data())


def size(shape):
    product = 1
    for axis in shape:
        product *= axis
    return product


def make_model(out, skew):
    """The folder of a model, made once."""
    folder = out / f"mixture-{skew}"
    if (folder / "complete").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    width, wide = CONFIG["hidden_size"], CONFIG["moe_intermediate_size"]
    heads, kv = (CONFIG[name] * CONFIG["head_dim"] for name in ("num_attention_heads", "num_key_value_heads"))
    model = Checkpoint(7)
    model.packed("model.embed_tokens", CONFIG["vocab_size"], width)
    model.packed("lm_head", CONFIG["vocab_size"], width)
    model.ones("model.norm", width)
    for layer in (f"model.layers.{index}" for index in range(CONFIG["num_hidden_layers"])):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            model.ones(f"{layer}.{norm}", width)
        for norm in ("q_norm", "k_norm"):
            model.ones(f"{layer}.self_attn.{norm}", CONFIG["head_dim"])
        for name, rows, columns in (("q", heads, width), ("k", kv, width), ("v", kv, width), ("o", width, heads)):
            model.packed(f"{layer}.self_attn.{name}_proj", rows, columns)
        model.router(f"{layer}.mlp.gate", width, skew)
        for name, rows, columns in (("gate", wide, width), ("up", wide, width), ("down", width, wide)):
            model.packed(f"{layer}.mlp.switch_mlp.{name}_proj", EXPERTS, rows, columns)
    model.write(folder / "model.safetensors")
    routers = {f"model.layers.{index}.mlp.gate": False for index in range(CONFIG["num_hidden_layers"])}
    config = dict(CONFIG, quantization=dict(group_size=GROUP, bits=BITS, mode="affine", **routers))
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZER / name, folder)
    (folder / "complete").touch()
    return folder


def expert_bytes():
    """Of all experts, with their scales and biases."""
    matrices = 3 * CONFIG["num_hidden_layers"] * EXPERTS * CONFIG["hidden_size"] * CONFIG["moe_intermediate_size"]
    return matrices * BITS // 8 + 2 * 2 * matrices // GROUP


# --- the measurement

def tokens_per_second(running, server, streams, tokens, seed):
    """Of all streams together, from the last first token to the first last one."""
    rng = random.Random(seed)
    bodies = [dict(serving.streaming(server, tokens, prompt=serving.prose(rng, 16), ignore_eos=True),
                   temperature=1, seed=seed * 100 + stream) for stream in range(streams)]
    answers = serving.completed(serving.together(
        [lambda body=body: serving.send(running.url, body) for body in bodies]))
    seconds = statistics.median(answer.times[-1] - answer.times[0] for answer in answers)
    return streams * (tokens - 1) / seconds


def expert_counts(running):
    values = serving.metrics(running.url)
    return {name: values[f"omnibus_expert_memory_{name}_total"]
            for name in ("hits", "misses", "prefetches", "prefetch_hits", "read_bytes")}


def measure(servers, runs, streams, options):
    """Rates of each server, and what the second one's experts did meanwhile."""
    rates = {name: [] for name in servers}
    stored = runs[list(servers)[1]]
    tokens_per_second(stored, servers[list(servers)[1]], streams, options.tokens, 999)
    before = expert_counts(stored)
    for turn in range(options.rounds):
        order = list(servers)
        for name in order if turn % 2 else reversed(order):
            rates[name].append(tokens_per_second(runs[name], servers[name], streams, options.tokens, turn))
    after = expert_counts(stored)
    counts = {name: after[name] - before[name] for name in after}
    uses = counts["hits"] + counts["misses"]
    made = options.rounds * options.tokens * streams
    medians = [statistics.median(rates[name]) for name in servers]
    shares = [one / other for one, other in zip(rates[list(servers)[1]], rates[list(servers)[0]])]
    result = dict(streams=streams, rates=rates, share=statistics.median(shares), counts=counts)
    row = [streams, *(f"{rate:.1f}" for rate in medians),
           f"{statistics.median(shares):.2f} ({min(shares):.2f} to {max(shares):.2f})",
           f"{100 * counts['hits'] / uses:.0f} %", f"{counts['read_bytes'] / made / 1e6:.1f} MB",
           f"{100 * counts['prefetch_hits'] / max(1, counts['prefetches']):.0f} %"]
    serving.log_line(row)
    return result, row


def main():
    options = serving.begin(serving.arguments(
        __doc__, rounds=(7, "rounds, each with both servers"), tokens=(128, "tokens of each stream"),
        skew=(0.3, "of routing: the exponent of Zipf's law"), share=(0.25, "of the experts that are resident")))
    model = make_model(options.out, options.skew)
    limit = int(options.share * expert_bytes())
    servers = {"all": serving.omnibus(options.omnibus, model, "--max-model-len", 4096),
               "part": serving.omnibus(options.omnibus, model, "--max-model-len", 4096, "--expert-memory", limit)}
    results, rows = [], []
    with open(options.out / "expert_memory.log", "w") as log, serving.serving(servers["all"], log) as resident, \
            serving.serving(servers["part"], log) as stored:
        for streams in STREAMS:
            result, row = measure(servers, dict(all=resident, part=stored), streams, options)
            results.append(result)
            rows.append(row)
    header = ["streams", "all resident, tokens/s", f"{options.share:g} resident, tokens/s", "share of the speed",
              "hits", "read for a token", "prefetches that were used"]
    remarks = (f"Medians of {options.rounds} rounds of {options.tokens} tokens. {expert_bytes() / 1e6:.0f} MB of experts, "
               f"--expert-memory {limit}, skew {options.skew}.")
    serving.finish(__file__, options, results, [serving.table(header, rows)], remarks)


if __name__ == "__main__":
    main()
