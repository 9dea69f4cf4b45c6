#!/usr/bin/env python3
"""Decoding speed by how tokens are chosen: greedy, by a temperature, and with filters.

    cargo xtask bench sampling [--binary A --binary B] [--model DIR] [--streams 16] [--tokens 64]

Binaries are measured in turns, each way of choosing on its own. Without a model the embedded one is used.
"""

import pathlib
import random
import statistics

import serving
from serving import log_line

PROMPT_TOKENS = 32
# Token ids that are text, of every model.
TEXT_TOKENS = range(300, 1900)
WAYS = {
    "greedy": {},
    "temperature 0.8": dict(temperature=0.8),
    "top-k 20, top-p 0.8": dict(temperature=0.7, top_k=20, top_p=0.8),
    "top-p 0.95": dict(temperature=0.8, top_p=0.95),
}


def body(server, number, tokens, way):
    rng = random.Random(number)
    prompt = [rng.choice(TEXT_TOKENS) for _ in range(PROMPT_TOKENS)]
    return {**serving.streaming(server, tokens, prompt=prompt), **WAYS[way], "seed": number, "ignore_eos": True}


def measure(server, options, log):
    speeds = {}
    with serving.serving(server, log) as running:
        for way in WAYS:
            serving.completed([serving.send(running.url, body(server, 0, 4, way))])
            calls = [lambda number=number: serving.send(running.url, body(server, number, options.tokens, way))
                     for number in range(options.streams)]
            answers = serving.completed(serving.together(calls))
            generated = sum(answer.usage["completion_tokens"] for answer in answers)
            speeds[way] = generated / (max(answer.ended for answer in answers) - min(answer.sent for answer in answers))
    log_line(f"{server.name}: {speeds}")
    return speeds


def main():
    parser = serving.compare_arguments(__doc__, streams=(16, "streams at once"), tokens=(64, "output tokens"),
                                       rounds=(1, "turns of each binary; the median counts"))
    parser.add_argument("--model", type=pathlib.Path, help="a model directory (default: the embedded model)")
    options = serving.begin(parser)
    servers = [serving.omnibus(binary, options.model, "--max-num-seqs", options.streams, "--prefix-cache", "off",
                               name=f"`{binary}`") for binary in options.binary]
    results = {server.name: [] for server in servers}
    with open(options.out / "sampling.log", "w") as log:
        for _ in range(options.rounds):
            for server in servers:
                results[server.name].append(measure(server, options, log))
    rows = [[name, *(f"{statistics.median(one[way] for one in rounds):.0f}" for way in WAYS)]
            for name, rounds in results.items()]
    remarks = (f"Tokens per second of {options.streams} streams of {options.tokens} tokens each, model "
               f"`{options.model.name if options.model else 'embedded'}`, {options.rounds} rounds.")
    serving.finish(__file__, options, results, [serving.table(["binary", *WAYS], rows)], remarks)


if __name__ == "__main__":
    main()
