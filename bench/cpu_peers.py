#!/usr/bin/env python3
"""Prefill and decode on a CPU beside llama.cpp and mlx-lm with the same weights, in turns.

    python3 bench/cpu_peers.py OMNIBUS MODEL_DIR [--gguf FILE --node FOLDER] [--mlx-lm PYTHON] [--rounds 5] [--threads N]
                               [--prefill 512] [--streams 1,4,16] [--context 128] [--load 1.5] [--wait 20]

OMNIBUS is the binary, measured with exact and with 8-bit activations. FOLDER is where `npm i node-llama-cpp --ignore-scripts`
ran; PYTHON has the packages `mlx` and `mlx-lm`. Either peer is left out without it. Each round runs every side once, in a
process of its own, after waiting up to --wait seconds for the machine's load to fall below --load. The table has the best
round of each side, whose medians are printed before it: where other programs run, the best one says more. mlx-lm computes in
float32 here, which is faster on a CPU than the half-width floats of most checkpoints, and with an eighth of the prompts'
tokens: its speed hardly depends on their length.
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
const [file, prefill, context, steps, threads] = [process.argv[2], ...process.argv.slice(4).map(Number)];
const streams = process.argv[3].split(",").map(Number);
const llama = await getLlama({gpu: false, build: "never", logLevel: "error", maxThreads: threads});
const model = await llama.loadModel({modelPath: file});
const prompt = (length, seed) => Array.from({length}, (_, i) => (i * 7919 + seed * 104729) % 30000 + 100);
async function run(count, length, steps) {
  const context = await model.createContext(
    {sequences: count, contextSize: length + steps + 16, batchSize: 512, threads, flashAttention: true});
  const sequences = Array.from({length: count}, () => context.getSequence());
  const start = performance.now();
  let first = 0;
  await Promise.all(sequences.map(async (sequence, seed) => {
    let tokens = 0;
    for await (const token of sequence.evaluate(prompt(length, seed), {temperature: 0, yieldEogToken: true})) {
      if (tokens++ == 0) first = Math.max(first, performance.now());
      if (tokens > steps) break;
    }
  }));
  const end = performance.now();
  await context.dispose();
  return [count * length / (first - start) * 1e3, count * steps / (end - first) * 1e3];
}
const best = (values) => Math.max(...values);
const rounds = [];
for (let round = 0; round < 4; round++) rounds.push((await run(1, prefill, 1))[0]);
const decode = {};
for (const count of streams) decode[count] = best([(await run(count, context, steps))[1], (await run(count, context, steps))[1]]);
console.log(JSON.stringify({prefill: best(rounds.slice(1)), decode}));
process.exit(0);
"""

MLX_LM = """
import json, sys, time
import mlx.core as mx
from mlx_lm import load
from mlx_lm.generate import BatchGenerator
from mlx_lm.models.cache import make_prompt_cache
model, _ = load(sys.argv[1])
model.set_dtype(mx.float32)
streams, prefill, context, steps = [int(n) for n in sys.argv[2].split(",")], *map(int, sys.argv[3:])
prompt = lambda length, seed: [(i * 7919 + seed * 104729) % 30000 + 100 for i in range(length)]
seconds = []
for seed in range(2):
    cache, tokens = make_prompt_cache(model), mx.array(prompt(prefill, seed))[None]
    begun = time.perf_counter()
    mx.eval(model(tokens, cache=cache)[:, -1])
    seconds.append(time.perf_counter() - begun)
decode = {}
for count in streams:
    batch = BatchGenerator(model, max_tokens=steps + 8, completion_batch_size=count, prefill_batch_size=count)
    batch.insert([prompt(context, seed) for seed in range(count)])
    while len(batch.next()[1]) < count:
        pass
    begun = time.perf_counter()
    for _ in range(steps):
        batch.next()
    decode[count] = count * steps / (time.perf_counter() - begun)
    batch.close()
print(json.dumps(dict(prefill=prefill / min(seconds), decode=decode)))
"""


def omnibus(arguments, activations):
    environment = dict(os.environ)
    if arguments.threads:
        environment["OMNIBUS_CPU_THREADS"] = str(arguments.threads)
    command = [arguments.omnibus, "bench", "engine", "-m", arguments.model, "--device", "cpu", "--streams",
               arguments.streams, "--context", str(arguments.context), "--steps", str(DECODE_STEPS), "--prefill",
               str(arguments.prefill), "--cpu-activations", activations, "--json"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    found = json.loads(printed)
    decode = {case["streams"]: case["streams"] / case["step_ms"] * 1e3 for case in found["decode"]}
    return found["prefill"]["tokens_per_s"], decode


def peer(command, folder):
    printed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder).stdout
    found = json.loads(printed.splitlines()[-1])
    return found["prefill"], {int(count): speed for count, speed in found["decode"].items()}


def llama(arguments):
    script = os.path.join(arguments.node, "cpu_peers.mjs")
    with open(script, "w") as file:
        file.write(LLAMA)
    numbers = [arguments.prefill, arguments.context, DECODE_STEPS, arguments.threads or os.cpu_count()]
    return peer(["node", script, os.path.abspath(arguments.gguf), arguments.streams, *map(str, numbers)], arguments.node)


def mlx_lm(arguments):
    numbers = [arguments.prefill // 8, arguments.context // 8, DECODE_STEPS // 4]
    model = os.path.abspath(arguments.model)
    return peer([arguments.mlx_lm, "-c", MLX_LM, model, arguments.streams, *map(str, numbers)], None)


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
    parser.add_argument("--mlx-lm")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--streams", default="1,4,16")
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--load", type=float, default=1.5)
    parser.add_argument("--wait", type=float, default=20)
    arguments = parser.parse_args()
    sides = {"omnibus, exact": lambda: omnibus(arguments, "exact"), "omnibus, int8": lambda: omnibus(arguments, "int8")}
    if arguments.gguf and arguments.node:
        sides["llama.cpp"] = lambda: llama(arguments)
    if arguments.mlx_lm:
        sides["mlx-lm, float32"] = lambda: mlx_lm(arguments)
    streams = [int(count) for count in arguments.streams.split(",")]
    found = {side: [] for side in sides}
    for _ in range(arguments.rounds):
        for side, measure in sides.items():
            wait_for_quiet(arguments)
            found[side].append(measure())
            prefill, decode = found[side][-1]
            speeds = ", ".join(f"{decode[count]:.1f}" for count in streams)
            print(f"# {side}: {prefill:.0f}; {speeds} tok/s; load {os.getloadavg()[0]:.1f}", flush=True)
    columns = [f"prompt of {arguments.prefill}"] + [f"{count} stream{'s' * (count > 1)}" for count in streams]
    print("\nMedians: " + "; ".join(
        f"{side} {statistics.median(prefill for prefill, _ in rounds):.0f}, "
        + ", ".join(f"{statistics.median(decode[count] for _, decode in rounds):.1f}" for count in streams)
        for side, rounds in found.items()))
    print(f"\n| tokens/s | {' | '.join(columns)} |\n| --- |{' ---: |' * len(columns)}")
    for side, rounds in found.items():
        best = [max(prefill for prefill, _ in rounds)] + [max(decode[count] for _, decode in rounds) for count in streams]
        print(f"| {side} | {' | '.join(f'{speed:.0f}' if speed >= 100 else f'{speed:.1f}' for speed in best)} |")


main()
