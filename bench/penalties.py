#!/usr/bin/env python3
"""Cost of penalties and logit_bias: decoding speed of long outputs, at their beginning and at their end.

    cargo xtask bench penalties [--binary A --binary B] [--streams 16] [--tokens 2000]

Streams decode at once, each with repetition, presence and frequency penalties and a logit_bias of 300 entries. A cost
that grows with the output shows as a slowdown from the first tokens to the last. Binaries are measured in turns.
"""

import random
import statistics

import serving
from serving import log_line

BIASES = 300
EDGE_TOKENS = 200
PROMPT_TOKENS = 64
# Token ids of the embedded model that are text.
TEXT_TOKENS = range(300, 1900)


def body(server, number, tokens):
    rng = random.Random(number)
    biases = {str(token): rng.uniform(-2, 2) for token in rng.sample(TEXT_TOKENS, BIASES)}
    fields = dict(temperature=0.8, seed=number, ignore_eos=True, repetition_penalty=1.1, presence_penalty=0.2,
                  frequency_penalty=0.2, logit_bias=biases)
    prompt = [rng.choice(TEXT_TOKENS) for _ in range(PROMPT_TOKENS)]
    return {**serving.streaming(server, tokens, prompt=prompt), **fields}


def edges(answer, tokens):
    """Seconds per token at the beginning and at the end; pieces of text stand for equal numbers of tokens."""
    last = len(answer.times) - 1
    edge = min(EDGE_TOKENS, tokens // 2)
    pieces = max(1, round(last * edge / tokens))
    return (answer.times[pieces] - answer.times[0]) / edge, (answer.times[last] - answer.times[last - pieces]) / edge


def measure(server, options, log):
    with serving.serving(server, log) as running:
        # The first requests have one-time costs.
        serving.completed([serving.send(running.url, body(server, 0, 8))])
        before = serving.cpu_seconds(running.process.pid)
        calls = [lambda number=number: serving.send(running.url, body(server, number, options.tokens))
                 for number in range(options.streams)]
        answers = serving.completed(serving.together(calls))
        cpu_s = serving.cpu_seconds(running.process.pid) - before
    generated = sum(answer.usage["completion_tokens"] for answer in answers)
    seconds = max(answer.ended for answer in answers) - min(answer.sent for answer in answers)
    firsts, lasts = zip(*(edges(answer, options.tokens) for answer in answers))
    result = dict(tokens_per_s=generated / seconds, first_s=statistics.median(firsts), last_s=statistics.median(lasts),
                  slowdown=statistics.median(last / first for first, last in zip(firsts, lasts)), cpu_s=cpu_s,
                  tokens=generated)
    log_line(f"{server.name}: {result}")
    return result


def row(name, rounds):
    def median(key):
        return statistics.median(result[key] for result in rounds)

    return [name, f"{median('tokens_per_s'):.0f}", f"{1e3 * median('first_s'):.2f} ms",
            f"{1e3 * median('last_s'):.2f} ms", f"{median('slowdown'):.2f}×", f"{median('cpu_s'):.1f}"]


def main():
    parser = serving.compare_arguments(__doc__, streams=(16, "streams at once"), tokens=(2000, "output tokens"),
                                       rounds=(1, "turns of each binary; the median counts"))
    options = serving.begin(parser)
    servers = [serving.omnibus(binary, None, "--max-num-seqs", options.streams, "--prefix-cache", "off",
                               name=f"`{binary}`") for binary in options.binary]
    results = {server.name: [] for server in servers}
    with open(options.out / "penalties.log", "w") as log:
        for _ in range(options.rounds):
            for server in servers:
                results[server.name].append(measure(server, options, log))
    edge = min(EDGE_TOKENS, options.tokens // 2)
    header = ["binary", "tokens/s", f"first {edge} tokens, each", f"last {edge} tokens, each", "slowdown",
              "CPU seconds"]
    remarks = (f"The embedded model; {options.streams} streams of {options.tokens} tokens with repetition, presence "
               f"and frequency penalties and a logit_bias of {BIASES} entries; {options.rounds} rounds.")
    serving.finish(__file__, options, results, [serving.table(header, [row(*one) for one in results.items()])], remarks)


if __name__ == "__main__":
    main()
