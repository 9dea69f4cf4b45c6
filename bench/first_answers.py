#!/usr/bin/env python3
"""Warm-up on a GPU: latency of the first requests, with and without compiled kernels on disk.

    cargo xtask bench first_answers [--device gpu]

Each way of starting is measured with an empty folder for compiled kernels (CUDA), and again with the kernels in it.
"""

import os
import pathlib
import tempfile
import time

import serving

WORDS = 360
STREAMS = 16


def measure(options, warm_up, log):
    command = [str(options.omnibus), "serve", "--served-model-name", "bench", "--device", options.device,
               "--prefix-cache", "off", "--log", "error", "--warm-up", warm_up]
    server = serving.Server(f"--warm-up {warm_up}", command, "bench")
    started = time.monotonic()
    with serving.serving(server, log, patience_s=600) as running:
        ready = time.monotonic() - started

        def answer(tokens, prompt, **fields):
            body = dict(serving.streaming(server, tokens, prompt=prompt), **fields)
            return lambda: serving.send(running.url, body)

        firsts = [[answer(1, "Once upon a time")], [answer(4, " the" * WORDS)],
                  [answer(8, "Once there was", temperature=0.8, top_p=0.9, top_k=20)],
                  [answer(32, f"Number {i}:") for i in range(STREAMS)]]
        return [ready, *(took(calls) for calls in firsts)]


def took(calls):
    """Seconds until all calls have returned."""
    started = time.monotonic()
    serving.completed(serving.together(calls))
    return time.monotonic() - started


def main():
    parser = serving.arguments(__doc__, device=("gpu", "for the server"))
    options = serving.begin(parser)
    results = []
    with open(options.out / "first_answers.log", "w") as log:
        for warm_up in ("off", "auto"):
            with tempfile.TemporaryDirectory() as kernels:
                os.environ["MLX_PTX_CACHE_DIR"] = kernels
                for kept in ("no kernels on disk", "kernels on disk"):
                    results.append(dict(start=f"`--warm-up {warm_up}`, {kept}", seconds=measure(options, warm_up, log)))
    header = ["", "ready after", "first answer", f"first of {WORDS} words", "first sampled",
              f"first {STREAMS} at once"]
    rows = [[result["start"], *(f"{seconds:.2f} s" for seconds in result["seconds"])] for result in results]
    remarks = "The embedded model; outputs of 1, 4, 8 and 32 tokens, one after the other in this order."
    serving.finish(pathlib.Path(__file__), options, results, [serving.table(header, rows)], remarks)


if __name__ == "__main__":
    main()
