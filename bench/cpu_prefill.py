#!/usr/bin/env python3
"""Prefill and decode on a CPU: exact activations, 8-bit activations, and llama.cpp with the same weights, in turns.

    python3 bench/cpu_prefill.py OMNIBUS MODEL_DIR [--gguf FILE --node FOLDER] [--rounds 5] [--threads N] [--prefill 512]
                                 [--load 1.5] [--wait 20]

OMNIBUS is the binary. FOLDER is where `npm i node-llama-cpp --ignore-scripts` ran; llama.cpp is left out without it. Each
round runs every side once, in a process of its own, after waiting up to --wait seconds for the machine's load to fall
below --load. The table has the best and the median round: where other programs run, the best one says more.
"""

import argparse
import json
import os
import statistics
import subprocess
import time

DECODE_STEPS = 32

LLAMA = """
import {getLlama} from "node-llama-cpp";
const [file, prefill, steps, threads] = [process.argv[2], ...process.argv.slice(3).map(Number)];
const llama = await getLlama({gpu: false, build: "never", logLevel: "error", maxThreads: threads});
const model = await llama.loadModel({modelPath: file});
const rounds = [];
for (let round = 0; round < 4; round++) {
  const context = await model.createContext(
    {sequences: 1, contextSize: prefill + steps + 16, batchSize: prefill, threads, flashAttention: true});
  const tokens = Array.from({length: prefill}, (_, i) => (i * 7919 + round * 104729) % 30000 + 100);
  const start = performance.now();
  let first = 0, count = 0;
  for await (const token of context.getSequence().evaluate(tokens, {temperature: 0, yieldEogToken: true})) {
    if (count++ == 0) first = performance.now();
    if (count > steps) break;
  }
  rounds.push([prefill / (first - start) * 1e3, (performance.now() - first) / steps]);
  await context.dispose();
}
const median = (values) => values.sort((a, b) => a - b)[values.length >> 1];
console.log(JSON.stringify({
  prefill: median(rounds.slice(1).map((round) => round[0])), step_ms: median(rounds.slice(1).map((round) => round[1]))}));
process.exit(0);
"""


def omnibus(arguments, activations):
    """Tokens per second of prefill, and milliseconds of a decode step."""
    environment = dict(os.environ)
    if arguments.threads:
        environment["OMNIBUS_CPU_THREADS"] = str(arguments.threads)
    command = [arguments.omnibus, "bench", "engine", "-m", arguments.model, "--device", "cpu", "--streams", "1",
               "--context", str(arguments.prefill), "--steps", str(DECODE_STEPS), "--prefill", str(arguments.prefill),
               "--cpu-activations", activations, "--json"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    found = json.loads(printed)
    return found["prefill"]["tokens_per_s"], found["decode"][0]["step_ms"]


def llama(arguments):
    script = os.path.join(arguments.node, "cpu_prefill.mjs")
    with open(script, "w") as file:
        file.write(LLAMA)
    command = ["node", script, os.path.abspath(arguments.gguf), str(arguments.prefill), str(DECODE_STEPS),
               str(arguments.threads or os.cpu_count())]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=arguments.node).stdout
    found = json.loads(printed.splitlines()[-1])
    return found["prefill"], found["step_ms"]


def wait_for_quiet(arguments):
    end = time.monotonic() + arguments.wait
    while os.getloadavg()[0] > arguments.load and time.monotonic() < end:
        time.sleep(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("omnibus")
    parser.add_argument("model")
    parser.add_argument("--gguf")
    parser.add_argument("--node")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--load", type=float, default=1.5)
    parser.add_argument("--wait", type=float, default=20)
    arguments = parser.parse_args()
    sides = {"exact": lambda: omnibus(arguments, "exact"), "int8": lambda: omnibus(arguments, "int8")}
    if arguments.gguf and arguments.node:
        sides["llama.cpp"] = lambda: llama(arguments)
    found = {side: [] for side in sides}
    for _ in range(arguments.rounds):
        for side, measure in sides.items():
            wait_for_quiet(arguments)
            found[side].append(measure())
            print(f"# {side}: {found[side][-1][0]:.0f} tok/s, {found[side][-1][1]:.1f} ms, load {os.getloadavg()[0]:.1f}",
                  flush=True)
    print(f"\n| {arguments.prefill} tokens | prefill, best | median | decode step, best | median |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for side, rounds in found.items():
        prefill, step = [list(values) for values in zip(*rounds)]
        print(f"| {side} | {max(prefill):.0f} tok/s | {statistics.median(prefill):.0f} | {min(step):.1f} ms"
              f" | {statistics.median(step):.1f} |")


main()
