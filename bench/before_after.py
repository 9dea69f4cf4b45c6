#!/usr/bin/env python3
"""Compares two binaries in one run, in turns: decoding, time to first token, isolation, start time and memory.

    cargo xtask bench before_after --binary BEFORE --binary AFTER [--model DIR] [--rounds 5]

Each round starts a server of each binary, measures it, and measures decoding once more with `--in-process`. The order
alternates. The table has medians of the rounds, and the median of the ratios of one round.
"""

import pathlib
import random
import statistics
import time

import serving
from serving import log_line

STREAMS = 16
DECODE_TOKENS = 256
# Runs of each measurement in a round; the median counts.
REPEATS = 3
PREFILL_TOKENS = 512
HISTORY_WORDS = 800
TURN_WORDS = 32
TURNS = 4
TURN_TOKENS = 8
# Token ids that are text in the embedded model and in the test models.
TEXT_TOKENS = range(300, 1900)

# Key, name, how a value is printed. A cost is compared by difference, everything else by ratio.
MEASURES = [
    ("decode_1", "decode, 1 stream, tokens/s", "{:.1f}"),
    ("decode_16", f"decode, {STREAMS} streams, tokens/s", "{:.1f}"),
    ("cpu_16", f"CPU ms per token, {STREAMS} streams", "{:.2f}"),
    ("ttft", f"TTFT of {PREFILL_TOKENS} tokens, ms", "{:.1f}"),
    ("warm", "TTFT of a warm agent turn, ms", "{:.1f}"),
    ("in_process_16", f"decode with --in-process, {STREAMS} streams, tokens/s", "{:.1f}"),
    ("in_process_cpu_16", f"CPU ms per token with --in-process, {STREAMS} streams", "{:.2f}"),
    ("isolation", "cost of isolation, % of tokens/s", "{:.1f}"),
    ("start", "start to ready, s", "{:.2f}"),
    ("resident", "resident memory when ready, MB", "{:.0f}"),
]
COSTS = ("isolation",)


def prompt(rng, tokens):
    return [rng.choice(TEXT_TOKENS) for _ in range(tokens)]


def decoding(running, server, rng, streams):
    """Tokens/s of the streams together, and CPU milliseconds per token: medians."""
    rates, costs = [], []
    for _ in range(REPEATS):
        before = serving.cpu_seconds(running.process.pid)
        rates.append(decode(running, server, rng, streams))
        cpu_s = serving.cpu_seconds(running.process.pid) - before
        costs.append(1e3 * cpu_s / (streams * DECODE_TOKENS))
    return statistics.median(rates), statistics.median(costs)


def decode(running, server, rng, streams):
    """Tokens/s of the streams together, from the first token of any to the last."""
    calls = []
    for _ in range(streams):
        body = serving.streaming(server, DECODE_TOKENS, prompt=prompt(rng, 16), ignore_eos=True)
        calls.append(lambda body=body: serving.send(running.url, body))
    answers = serving.completed(serving.together(calls))
    tokens = sum(answer.usage["completion_tokens"] for answer in answers) - streams
    return tokens / (max(answer.times[-1] for answer in answers) - min(answer.times[0] for answer in answers))


def ttft_ms(running, server, rng):
    def one():
        body = serving.streaming(server, 1, prompt=prompt(rng, PREFILL_TOKENS), ignore_eos=True)
        [answer] = serving.completed([serving.send(running.url, body)])
        # One token may be half a character: then only the end is a time.
        return 1e3 * ((answer.times[0] if answer.times else answer.ended) - answer.sent)

    return statistics.median(one() for _ in range(REPEATS))


def warm_turn_ms(running, server, rng):
    """The median TTFT of the turns after the first, each with the whole conversation."""
    messages, times = [dict(role="system", content=serving.prose(rng, HISTORY_WORDS))], []
    for _ in range(1 + TURNS):
        messages.append(dict(role="user", content=serving.prose(rng, TURN_WORDS)))
        body = serving.streaming(server, TURN_TOKENS, messages=messages, ignore_eos=True)
        [answer] = serving.completed([serving.send(running.url, body, path="/v1/chat/completions")])
        messages.append(dict(role="assistant", content=answer.text))
        times.append(1e3 * answer.ttft_s)
    return statistics.median(times[1:])


def measure(binary, options, seed, log):
    """One round of one binary: every value of `MEASURES`."""
    rng, values = random.Random(seed), {}
    flags = ["--max-num-seqs", STREAMS]
    server = serving.omnibus(binary, options.model, *flags)
    begun = time.monotonic()
    with serving.serving(server, log) as running:
        serving.wait_until(lambda: serving.get(running.url, "/ready").status == 200, 120, "ready", pause_s=0.005)
        values["start"] = time.monotonic() - begun
        process = running.process.pid
        values["resident"] = serving.resident_bytes(process) / 1e6
        # The first requests have one-time costs.
        decode(running, server, rng, STREAMS)
        values["decode_1"], _ = decoding(running, server, rng, 1)
        values["decode_16"], values["cpu_16"] = decoding(running, server, rng, STREAMS)
        values["ttft"] = ttft_ms(running, server, rng)
        values["warm"] = warm_turn_ms(running, server, rng)
    within = serving.omnibus(binary, options.model, "--in-process", *flags)
    with serving.serving(within, log) as running:
        decode(running, within, rng, STREAMS)
        values["in_process_16"], values["in_process_cpu_16"] = decoding(running, within, rng, STREAMS)
    values["isolation"] = 100 * (1 - values["decode_16"] / values["in_process_16"])
    log_line(f"{binary}: " + ", ".join(f"{key} {value:.4g}" for key, value in values.items()))
    return values


def row(key, name, form, rounds):
    """`rounds` has a list of values for each binary."""
    cells = [form.format(statistics.median(values[key] for values in of_one)) for of_one in rounds]
    if len(rounds) == 2:
        pairs = [(before[key], after[key]) for before, after in zip(*rounds)]
        if key in COSTS:
            cells.append(f"{statistics.median(after - before for before, after in pairs):+.1f}")
        else:
            cells.append(f"{statistics.median(after / before for before, after in pairs):.2f}×")
    return [name, *cells]


def main():
    parser = serving.compare_arguments(__doc__, rounds=(5, "rounds of each binary"))
    parser.add_argument("--model", type=pathlib.Path, help="a model directory (default: the embedded model)")
    options = serving.begin(parser)
    rounds = [[] for _ in options.binary]
    with open(options.out / "before_after.log", "w") as log:
        for number in range(options.rounds):
            order = list(zip(options.binary, rounds))
            for binary, values in order if number % 2 == 0 else reversed(order):
                values.append(measure(binary, options, number, log))
    names = ["before", "after"] if len(rounds) == 2 else [str(binary) for binary in options.binary]
    header = ["", *names, *(["after / before"] if len(rounds) == 2 else [])]
    model = options.model.name if options.model else "the embedded model"
    measured = ", ".join(f"{name}: {binary}" for name, binary in zip(names, options.binary))
    remarks = (f"{model[0].upper()}{model[1:]}; medians of {options.rounds} rounds; outputs of {DECODE_TOKENS} tokens, "
               f"conversations of {HISTORY_WORDS} words; {measured}.")
    results = {str(binary): values for binary, values in zip(options.binary, rounds)}
    rows = [row(*one, rounds) for one in MEASURES]
    serving.finish(__file__, options, results, [serving.table(header, rows)], remarks)


if __name__ == "__main__":
    main()
