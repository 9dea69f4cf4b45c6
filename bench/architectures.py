#!/usr/bin/env python3
"""Decode and prefill of eight kinds of architectures beside mlx-lm on a CPU, with random weights of the same config, in turns.

    python3 bench/architectures.py OMNIBUS [--kind NAME …] [--rounds 3] [--python PYTHON] [--out FOLDER] [--profile]

OMNIBUS is the binary; PYTHON has the packages `mlx` and `mlx-lm`. Each kind has 50 to 100 million parameters in 4 bits, groups
of 64; mlx-lm computes in float32, which is faster on a CPU than half-width floats. Each round runs both sides once, in a
process of its own; the best round of each side counts. A table row has the speeds at one stream, at eight with prompts of 16
to 128 tokens, and of the first token of a prompt of 512; in brackets, how many times that is mlx-lm's. mlx-lm is given fewer
steps and, where a measured prompt of 64 tokens says that 512 would take over a minute, a quarter of the prompt: its speed
hardly depends on the length.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

CONTEXT, SHORTEST, STREAMS, PREFILL = 128, 16, 8, 512

COMMON = dict(vocab_size=16384, rms_norm_eps=1e-5, rope_theta=10000.0, max_position_embeddings=4096)

KINDS = {
    "dense": dict(
        COMMON, model_type="llama", hidden_size=768, num_hidden_layers=8, intermediate_size=2048, num_attention_heads=12,
        num_key_value_heads=4, tie_word_embeddings=True),
    "MoE with shared experts": dict(
        COMMON, model_type="qwen2_moe", hidden_size=512, num_hidden_layers=6, intermediate_size=1024, num_attention_heads=8,
        num_key_value_heads=4, tie_word_embeddings=True, moe_intermediate_size=256, num_experts_per_tok=4, num_experts=24,
        shared_expert_intermediate_size=512),
    "latent attention (MLA)": dict(
        COMMON, model_type="deepseek_v3", hidden_size=512, num_hidden_layers=6, intermediate_size=1408, num_attention_heads=8,
        num_key_value_heads=8, tie_word_embeddings=False, kv_lora_rank=256, q_lora_rank=384, qk_rope_head_dim=32,
        qk_nope_head_dim=64, v_head_dim=64, moe_intermediate_size=256, num_experts_per_tok=4, n_routed_experts=24,
        n_shared_experts=1, moe_layer_freq=1, first_k_dense_replace=1, norm_topk_prob=True, routed_scaling_factor=1.5,
        n_group=4, topk_group=2, topk_method="noaux_tc", scoring_func="sigmoid"),
    "gated delta net, hybrid": dict(
        COMMON, model_type="qwen3_next", hidden_size=512, num_hidden_layers=8, intermediate_size=1024, num_attention_heads=8,
        num_key_value_heads=2, tie_word_embeddings=False, linear_num_value_heads=8, linear_num_key_heads=4,
        linear_key_head_dim=64, linear_value_head_dim=64, linear_conv_kernel_dim=4, head_dim=64, moe_intermediate_size=192,
        num_experts_per_tok=4, num_experts=16, decoder_sparse_step=1, shared_expert_intermediate_size=512,
        mlp_only_layers=[], partial_rotary_factor=0.25, norm_topk_prob=True, full_attention_interval=4),
    "Mamba-2": dict(
        model_type="mamba2", vocab_size=16384, hidden_size=640, num_hidden_layers=20, num_heads=20, head_dim=64,
        intermediate_size=1280, state_size=64, n_groups=1, conv_kernel=4, layer_norm_epsilon=1e-5, use_bias=False,
        use_conv_bias=True, tie_word_embeddings=True, time_step_limit=[0.001, 100.0], time_step_rank="auto"),
    "sliding windows": dict(
        COMMON, model_type="gemma3_text", hidden_size=640, num_hidden_layers=12, intermediate_size=2048,
        num_attention_heads=4, num_key_value_heads=1, head_dim=256, rope_local_base_freq=10000.0, query_pre_attn_scalar=256,
        sliding_window=64, sliding_window_pattern=6, tie_word_embeddings=True),
    "convolutions (LFM2)": dict(
        model_type="lfm2", vocab_size=16384, hidden_size=768, num_hidden_layers=10, num_attention_heads=12,
        num_key_value_heads=4, max_position_embeddings=4096, norm_eps=1e-5, conv_bias=False, conv_L_cache=3, block_dim=768,
        block_multiple_of=256, block_ffn_dim_multiplier=1.0, block_auto_adjust_ff_dim=False, block_ff_dim=2048,
        rope_theta=10000.0, layer_types=["conv", "conv", "full_attention", "conv", "conv", "full_attention", "conv",
                                         "full_attention", "conv", "full_attention"]),
    "RWKV-7": dict(
        model_type="rwkv7", vocab_size=16384, hidden_size=640, intermediate_size=2560, norm_eps=1e-5, head_dim=64,
        num_hidden_layers=10, a_low_rank_dim=64, v_low_rank_dim=32, gate_low_rank_dim=128, decay_low_rank_dim=64,
        tie_word_embeddings=False),
}

# Prints one JSON object. Weights are packed as `mlx_lm.convert` packs them.
PEER = """
import importlib, json, random, sys, time
import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.generate import BatchGenerator, generate_step
from mlx_lm.models.cache import make_prompt_cache
mx.set_default_device(mx.cpu)
config = json.load(open(sys.argv[1]))
context, shortest, streams, length = map(int, sys.argv[2:])
module = importlib.import_module(f"mlx_lm.models.{config['model_type']}")
mx.random.seed(0)
model = module.Model(module.ModelArgs.from_dict(config))
parameters = sum(array.size for _, array in tree_flatten(model.parameters()))
chosen = getattr(model, "quant_predicate", None)
def predicate(path, layer):
    if not hasattr(layer, "to_quantized") or layer.weight.shape[-1] % 64:
        return False
    return chosen(path, layer) if chosen else True
nn.quantize(model, 64, 4, class_predicate=predicate)
model.set_dtype(mx.float32)
model.eval()
mx.eval(model.parameters())
vocab = config["vocab_size"]
prompt = lambda length: [random.randrange(vocab) for _ in range(length)]
def timed(step, seconds):
    step(), step()
    times, end = [], time.perf_counter() + seconds
    while len(times) < 3 or (time.perf_counter() < end and len(times) < 24):
        begun = time.perf_counter()
        step()
        times.append(time.perf_counter() - begun)
    return min(times)
steps = generate_step(mx.array(prompt(context)), model, max_tokens=64)
one = 1 / timed(lambda: next(steps), 4)
batch = BatchGenerator(model, max_tokens=128, completion_batch_size=streams, prefill_batch_size=streams)
spread = context - shortest
batch.insert([prompt(context - spread * stream // (streams - 1)) for stream in range(streams)])
while len(batch.next()[1]) < streams:
    pass
several = streams / timed(batch.next, 6)
batch.close()
def prefill(length):
    tokens, cache = mx.array(prompt(length))[None], make_prompt_cache(model)
    begun = time.perf_counter()
    mx.eval(model(tokens, cache=cache)[:, -1])
    return time.perf_counter() - begun
short = prefill(64)
length = length if short * length / 64 < 60 else length // 4
print(json.dumps(dict(parameters=parameters, one=one, several=several,
    prefill=length / min(prefill(length) for _ in range(1 if short > 1 else 2)))))
"""


def omnibus(binary, config, profile):
    command = [binary, "bench", "engine", "--random-weights", str(config), "--quantize", "4", "--device", "cpu",
               "--streams", f"1,{STREAMS}", "--context", str(CONTEXT), "--shortest-context", str(SHORTEST),
               "--prefill", str(PREFILL), "--steps", "32", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    found = json.loads(done.stdout)
    if profile:
        print(json.dumps(found, indent=1))
    one, several = [case["streams"] / case["step_ms"] * 1e3 for case in found["decode"]]
    return dict(one=one, several=several, prefill=found["prefill"]["tokens_per_s"])


def mlx_lm(python, config):
    numbers = [CONTEXT, SHORTEST, STREAMS, PREFILL]
    command = [python, "-c", PEER, str(config), *map(str, numbers)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print(f"# mlx-lm: {done.stderr.splitlines()[-1]}", flush=True)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def best(rounds):
    rounds = [found for found in rounds if found]
    return {key: max(found[key] for found in rounds) for key in rounds[0]} if rounds else None


def shown(speed):
    return f"{speed:.0f}" if speed >= 100 else f"{speed:.1f}"


def row(kind, ours, theirs):
    cells = [f"{kind} (`{KINDS[kind]['model_type']}`)", f"{theirs['parameters'] / 1e6:.0f} M" if theirs else "?"]
    for key in ("one", "several", "prefill"):
        ratio = f" ({ours[key] / theirs[key]:.1f}×)" if theirs else ""
        cells.append(f"{shown(ours[key])}{ratio}")
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("omnibus")
    parser.add_argument("--kind", action="append", choices=list(KINDS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--profile", action="store_true", help="print all that `omnibus bench engine` says")
    arguments = parser.parse_args()
    folder = arguments.out or pathlib.Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for kind in arguments.kind or KINDS:
        config = folder / f"{KINDS[kind]['model_type']}.json"
        config.write_text(json.dumps(KINDS[kind]))
        ours, theirs = [], []
        for _ in range(arguments.rounds):
            ours.append(omnibus(arguments.omnibus, config, arguments.profile))
            theirs.append(mlx_lm(arguments.python, config))
            print(f"# {kind}: {ours[-1]} beside {theirs[-1]}", flush=True)
        rows.append(row(kind, best(ours), best(theirs)))
    print(f"\n| kind | parameters | 1 stream, tokens/s | {STREAMS} streams | prompt of {PREFILL} |\n"
          "| --- | ---: | ---: | ---: | ---: |\n" + "\n".join(rows))


main()
