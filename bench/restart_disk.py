#!/usr/bin/env python3
"""Disk cache: time to first token after a restart, compared with a prefix in memory.

    pip install 'mlx[cpu]==0.32.4' mlx-lm==0.32.2 && cargo xtask bench restart_disk

Each round sends two new prompts (cold) and the first of them again (cached in memory), ends the server with SIGTERM and
sends both to a new one (cached on disk): one as its first request, which has one-time costs, the other after it. Then
the same with SIGKILL, once the blocks are on disk. Each prompt ends in words of its own, so that the same number of
tokens is computed in each case.
"""

import random
import shutil
import signal
import statistics

import serving
from serving import BLOCK_TOKENS, log_line

WORDS = 2048
OWN_WORDS = 32


def first_token(running, server, prompt, rng):
    body = serving.streaming(server, 2, prompt=prompt + serving.prose(rng, OWN_WORDS))
    [answer] = serving.completed([serving.send(running.url, body)])
    return dict(ttft_s=answer.ttft_s, cached_tokens=answer.cached_tokens, prompt_tokens=answer.usage["prompt_tokens"])


def wait_until_written(running, server, rng):
    """Waits until all blocks are on disk. Returns how many were dropped."""
    def is_done():
        # An idle engine sends no statistics.
        first_token(running, server, "", rng)
        values = serving.metrics(running.url)
        done = values["omnibus_disk_written_blocks_total"] + values["omnibus_disk_dropped_blocks_total"]
        return done >= 2 * (WORDS // BLOCK_TOKENS)

    serving.wait_until(is_done, 60, "the blocks of both prompts are written or dropped")
    return serving.metrics(running.url)["omnibus_disk_dropped_blocks_total"]


def measure(server, how, rng, log):
    """TTFT of a cold prompt, from memory, and from disk after a restart."""
    prompt, other = (serving.prose(rng, WORDS) for _ in range(2))
    with serving.serving(server, log) as running:
        # The first request has one-time costs.
        first_token(running, server, "", rng)
        cold = first_token(running, server, prompt, rng)
        first_token(running, server, other, rng)
        memory = [first_token(running, server, prompt, rng) for _ in range(3)]
        dropped = wait_until_written(running, server, rng)
        running.end(how)
    with serving.serving(server, log) as running:
        first = first_token(running, server, prompt, rng)
        second = first_token(running, server, other, rng)
    median = sorted(memory, key=lambda one: one["ttft_s"])[len(memory) // 2]
    times = dict(cold=cold, memory=median, first=first, second=second)
    log_line({name: f"{1e3 * one['ttft_s']:.0f} ms, {one['cached_tokens']} cached" for name, one in times.items()})
    return dict(times, dropped_blocks=dropped)


def row(name, rounds):
    def cell(kind):
        cached = statistics.median(one[kind]["cached_tokens"] for one in rounds)
        return f"{serving.spread([one[kind]['ttft_s'] for one in rounds])}, {cached:.0f} cached"

    def ratio(kind):
        times = statistics.median(one[kind]["ttft_s"] / one["memory"]["ttft_s"] for one in rounds)
        return f"{times:.1f}×"

    return [name, cell("cold"), cell("memory"), cell("first"), ratio("first"), cell("second"), ratio("second")]


def main():
    parser = serving.arguments(__doc__, size=("100m", "test model"), rounds=(3, "rounds for each signal"),
                               limit=("4GB", "--cache-disk-limit"))
    options = serving.begin(parser)
    model = serving.make_models(options.out, options.size)["f32"]
    folder = options.out / "restart_disk"
    shutil.rmtree(folder, ignore_errors=True)
    server = serving.omnibus(options.omnibus, model, "--cache-dir", folder, "--cache-disk-limit", options.limit)
    rng, results = random.Random(1), {}
    with open(options.out / "restart_disk.log", "w") as log:
        for name, how in (("SIGTERM", signal.SIGTERM), ("SIGKILL", signal.SIGKILL)):
            results[name] = [measure(server, how, rng, log) for _ in range(options.rounds)]
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    shutil.rmtree(folder)
    header = ["ended by", "cold", "from memory", "after the restart: first request", "over memory", "second request",
              "over memory"]
    dropped = sum(one["dropped_blocks"] for rounds in results.values() for one in rounds)
    remarks = (f"A llama with {options.size[:-1]} million parameters, 4 bits with float32 scales; prompts of "
               f"{results['SIGTERM'][0]['cold']['prompt_tokens']} tokens; {size / 1e6:.0f} MB on disk at the end, "
               f"which the system still had in memory, and {dropped:.0f} blocks dropped because the writer was "
               f"behind; medians of {options.rounds} (least to most).")
    serving.finish(__file__, options, results, [serving.table(header, [row(*one) for one in results.items()])], remarks)


if __name__ == "__main__":
    main()
