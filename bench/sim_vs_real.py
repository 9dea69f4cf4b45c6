#!/usr/bin/env python3
"""Accuracy of the simulator: one trace of requests, served and simulated.

    cargo xtask bench sim_vs_real

Serves a model, lets its cost model learn from a first trace, and gives that (`cost_model` of /v1/status) to the
simulator. Then the same arrivals are sent to the server by `omnibus bench serve` and simulated by `omnibus bench sim`.
Medians of the rounds are compared; each round has a profile and arrivals of its own.
"""

import json
import statistics
import subprocess

import serving
from serving import log_line

LIMITS = ["--max-num-seqs", "16", "--max-num-batched-tokens", "512"]
COMPARED = ("ttft_ms", "tpot_ms", "e2e_ms")


def measured(options, command, *flags):
    done = subprocess.run([str(options.omnibus), "bench", command, "--json", *map(str, flags)],
                          check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def one_round(options, running, number):
    trace = ["--num-prompts", options.requests, "--request-rate", options.rate, "--output-len", options.output]
    load = ["--url", f"{running.url}/v1", "--endpoint", "completions", "--input-len", options.input, "--ignore-eos"]
    measured(options, "serve", *trace, *load, "--seed", 100 + number)
    profile = options.out / f"profile-{number}.json"
    profile.write_text(json.dumps(serving.status(running.url)["cost_model"]))
    real = measured(options, "serve", *trace, *load, "--seed", number)
    # Words are not tokens.
    tokens = round(real["input_tokens"] / real["completed"])
    simulated = measured(options, "sim", *trace, *LIMITS, "--workload", "random", "--profile", profile,
                         "--input-len", tokens, "--seed", number)
    fair = next(row for row in simulated if row["schedule"] == "fair")
    return {name: (real[name]["p50"], fair[name]["p50"]) for name in COMPARED} | {
        "tokens/s": (real["output_throughput"], fair["output_throughput"])}


def main():
    parser = serving.arguments(__doc__, requests=(60, "requests in a trace"), rate=(1.5, "requests per second"),
                               input=(200, "words of a prompt"), output=(40, "output tokens"),
                               rounds=(3, "rounds; the median counts"), size=("100m", "test model"))
    options = serving.begin(parser)
    # The simulator computes every prompt whole, so the server must do the same.
    model = serving.make_models(options.out, options.size)["f32"]
    server = serving.omnibus(options.omnibus, model, *LIMITS, "--prefix-cache", "off")
    rounds = []
    with open(options.out / "sim_vs_real.log", "w") as log, serving.serving(server, log) as running:
        for number in range(options.rounds):
            rounds.append(one_round(options, running, number))
            log_line(f"round {number + 1}: {rounds[-1]}")
    rows = []
    for name in rounds[0]:
        real, simulated = (statistics.median(one[name][side] for one in rounds) for side in (0, 1))
        rows.append([name, f"{real:.1f}", f"{simulated:.1f}", f"{100 * (simulated / real - 1):+.0f} %"])
    remarks = (f"Medians of {options.rounds} rounds; times in ms. A llama with {options.size[:-1]} million "
               f"parameters, prompts of {options.input} words and outputs of {options.output} tokens, "
               f"{options.requests} requests at {options.rate} per second in each round; server and client "
               f"share the machine.")
    table = serving.table(["p50", "served", "simulated", "difference"], rows)
    serving.finish(__file__, options, dict(rounds=rounds), [table], remarks)


if __name__ == "__main__":
    main()
