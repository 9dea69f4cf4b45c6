#!/usr/bin/env python3
"""Cost of structured output: decoding speed of a batch in which every row has a grammar, beside that of free rows.

    cargo xtask bench structured [--binary A] [--streams 16] [--tokens 200] [--vocabulary 150000]

Batches of free and of constrained streams take turns on one server. The grammar allows any printable text without an
end, so nothing is forced and both kinds sample the same number of tokens. With `--vocabulary` the model is one of random
weights with so many tokens, whose masks are as large as those of real models; else the embedded one. The time of a mask
comes from `/metrics`. On a machine with other work, CPU seconds per token say more than tokens per second.
"""

import json
import random
import statistics
import struct

import serving
from serving import log_line

GRAMMAR = r"[ -~]+"
PROMPT_TOKENS = 64
HIDDEN, LAYERS, HEADS, HEAD_DIM, MLP = 512, 8, 8, 64, 1408
METRICS = ("omnibus_grammar_masks_total", "omnibus_grammar_mask_seconds_total", "omnibus_grammar_wait_seconds_total",
           "omnibus_grammar_accept_seconds_total", "omnibus_steps_total")


def byte_characters():
    """The characters that stand for bytes in byte-level vocabularies."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]


def make_vocabulary(count):
    """The bytes, and made-up words with and without a space before them."""
    rng = random.Random(1)
    syllables = ["ka", "no", "ther", "ing", "str", "bel", "ur", "qu", "es", "tion", "X", "Al", "_id", '":', "};"]
    characters = byte_characters()
    vocab = {character: number for number, character in enumerate(characters)}
    while len(vocab) < count - 1:
        word = rng.choice(["", " "]) + "".join(rng.choice(syllables) for _ in range(rng.randint(1, 5)))
        word += rng.choice(["", "", str(rng.randrange(1000))])
        vocab.setdefault("".join(characters[byte] for byte in word.encode()), len(vocab))
    return vocab


def make_model(folder, count):
    """A directory of a llama with random weights and a made-up vocabulary of `count` tokens, made once."""
    if (folder / "complete").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    vocab = make_vocabulary(count)
    level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    end = dict(id=count - 1, content="<|end|>", special=True, single_word=False, lstrip=False, rstrip=False,
               normalized=False)
    tokenizer = dict(version="1.0", added_tokens=[end], normalizer=None, pre_tokenizer=level, post_processor=None,
                     decoder=level, model=dict(type="BPE", vocab=vocab, merges=[], ignore_merges=True))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = dict(model_type="llama", vocab_size=count, hidden_size=HIDDEN, num_hidden_layers=LAYERS,
                  intermediate_size=MLP, num_attention_heads=HEADS, num_key_value_heads=HEADS, head_dim=HEAD_DIM,
                  rms_norm_eps=1e-5, rope_theta=10000.0, max_position_embeddings=4096, tie_word_embeddings=True,
                  eos_token_id=count - 1)
    (folder / "config.json").write_text(json.dumps(config))
    shapes = {"model.embed_tokens.weight": (count, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        shapes |= {at + f"self_attn.{name}_proj.weight": (HIDDEN, HIDDEN) for name in "qkvo"}
        shapes |= {at + f"mlp.{name}_proj.weight": (MLP, HIDDEN) for name in ("gate", "up")}
        shapes |= {at + "mlp.down_proj.weight": (HIDDEN, MLP), at + "input_layernorm.weight": (HIDDEN,),
                   at + "post_attention_layernorm.weight": (HIDDEN,)}
    write_weights(folder / "model.safetensors", shapes)
    (folder / "complete").touch()
    return folder


def write_weights(path, shapes):
    """Random float16 weights in the safetensors format: values from a block of random bytes, repeated."""
    rng = random.Random(7)
    block = b"".join(struct.pack("<e", rng.uniform(-0.06, 0.06)) for _ in range(1 << 20))
    header, offset = {}, 0
    for name, shape in shapes.items():
        size = 2
        for axis in shape:
            size *= axis
        header[name] = dict(dtype="F16", shape=shape, data_offsets=[offset, offset + size])
        offset += size
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for entry in header.values():
            begin, end = entry["data_offsets"]
            left = end - begin
            while left > 0:
                left -= file.write(block[:left])


def body(server, number, tokens, fields):
    rng = random.Random(number)
    prompt = [rng.randrange(300, 1900) for _ in range(PROMPT_TOKENS)]
    return {**serving.streaming(server, tokens, prompt=prompt), "temperature": 0.8, "seed": number, "ignore_eos": True,
            **fields}


def batch(running, server, options, fields):
    """Tokens per second of one batch of streams, prompts included, and CPU milliseconds per token."""
    before = serving.cpu_seconds(running.process.pid)
    calls = [lambda number=number: serving.send(running.url, body(server, number, options.tokens, fields))
             for number in range(options.streams)]
    answers = serving.completed(serving.together(calls))
    generated = sum(answer.usage["completion_tokens"] for answer in answers)
    assert generated == options.streams * options.tokens, "a stream ended early"
    seconds = max(answer.ended for answer in answers) - min(answer.sent for answer in answers)
    return generated / seconds, 1e3 * (serving.cpu_seconds(running.process.pid) - before) / generated


def measure(server, options, log):
    kinds = {"free": {}, "constrained": {"guided_regex": GRAMMAR}}
    with serving.serving(server, log) as running:
        for fields in kinds.values():
            serving.completed([serving.send(running.url, body(server, 0, 8, fields))])
        before = serving.metrics(running.url)
        speeds, costs = ({kind: [] for kind in kinds} for _ in range(2))
        for turn in range(options.rounds):
            # The order changes, so that a drift of the machine is no difference.
            for kind in sorted(kinds, reverse=turn % 2 == 1):
                speed, cost = batch(running, server, options, kinds[kind])
                speeds[kind].append(speed)
                costs[kind].append(cost)
                log_line(f"{kind}: {speed:.1f} tokens/s, {cost:.3f} CPU ms per token")
        after = serving.metrics(running.url)
    passed = {name: after[name] - before[name] for name in METRICS}
    masks = max(1, passed["omnibus_grammar_masks_total"])
    return dict(free=statistics.median(speeds["free"]), constrained=statistics.median(speeds["constrained"]),
                free_cpu_ms=statistics.median(costs["free"]), constrained_cpu_ms=statistics.median(costs["constrained"]),
                masks=masks, mask_us=1e6 * passed["omnibus_grammar_mask_seconds_total"] / masks,
                wait_us=1e6 * passed["omnibus_grammar_wait_seconds_total"] / masks,
                accept_us=1e6 * passed["omnibus_grammar_accept_seconds_total"] / masks, speeds=speeds, costs=costs)


def main():
    parser = serving.compare_arguments(__doc__, streams=(16, "streams at once"), tokens=(200, "output tokens"),
                                       rounds=(5, "batches of each kind; the median counts"),
                                       vocabulary=(0, "tokens of a model of random weights; 0 is the embedded model"))
    options = serving.begin(parser)
    model = make_model(options.out / f"vocabulary-{options.vocabulary}", options.vocabulary) if options.vocabulary else None
    results, rows = {}, []
    with open(options.out / "structured.log", "w") as log:
        for binary in options.binary:
            server = serving.omnibus(binary, model, "--max-num-seqs", options.streams, "--prefix-cache", "off",
                                     "--grammar-compile-ms", 60_000,
                                     name=f"`{binary}`")
            result = results[server.name] = measure(server, options, log)
            rows.append([server.name, f"{result['free']:.1f}", f"{result['constrained']:.1f}",
                         f"{100 * (result['free'] / result['constrained'] - 1):+.1f} %",
                         f"{100 * (result['constrained_cpu_ms'] / result['free_cpu_ms'] - 1):+.1f} %",
                         f"{result['mask_us']:.1f} µs",
                         f"{result['wait_us']:.1f} µs", f"{result['accept_us']:.1f} µs"])
    header = ["binary", "free, tokens/s", "constrained, tokens/s", "overhead", "in CPU time", "mean mask", "waited for it",
              "token taken in"]
    remarks = (f"{options.streams} streams of {options.tokens} tokens, {options.rounds} batches of each kind in turns; "
               f"{options.vocabulary or 2048} tokens.")
    serving.finish(__file__, options, results, [serving.table(header, rows)], remarks)


if __name__ == "__main__":
    main()
