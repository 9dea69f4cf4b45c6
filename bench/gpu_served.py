#!/usr/bin/env python3
"""A server on a GPU: how soon it is ready, its throughput beside `bench engine`'s, and a burst of prompts beside streams.

    python3 bench/gpu_served.py OMNIBUS [--case PRESET:BITS …] [--streams 64] [--burst 16:8] [--library FOLDER]
                                [-- SERVE-FLAGS]

PRESET and BITS are those of `gpu.py`, whose requirements hold here, too. The model gets random weights and the embedded
model's tokenizer. Clients are processes that read raw sockets, so that they cost little beside the server.

Ready: seconds from the start of the process, the loading of the weights included, with no compiled kernels on disk and with
those of the first start. Throughput: tokens a second of all streams in the second after the last first token, beside
`bench engine` on the same weights and at the context that the streams had in the middle of that second.
Burst: so many prompts that arrive together while so many streams decode, under `fair` and `fcfs`.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import pathlib
import random
import selectors
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse

import gpu
import serving
from gpu import say

TOKENIZER = pathlib.Path(__file__).resolve().parent.parent / "crates/cli/models/omnibus-mini"
PROMPT = 512
OUTPUT = 1500
# Steps of `bench engine`, whose context is that of its first.
STEPS = 64
# Seconds in which tokens are counted.
COUNTED_S = 1.0
CLIENTS = 8
BURST_TOKENS = 368
TEXT_TOKENS = range(300, 1900)


def make_model(preset, bits, folder):
    """Writes random weights in mlx-lm's layout."""
    import mlx.core as mx
    from mlx.utils import tree_flatten

    # Tokens without a text would be no events.
    texts = json.loads((TOKENIZER / "tokenizer.json").read_text())
    vocabulary = len(texts["model"]["vocab"].keys() | {token["content"] for token in texts["added_tokens"]})
    config = dict(gpu.config_of(preset), vocab_size=vocabulary)
    model = gpu.build(config, int(bits))
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(model.parameters())))
    if bits != 16:
        config["quantization"] = dict(group_size=64, bits=bits)
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZER / name, folder)


def read_streams(address, bodies, results):
    """Sends requests on sockets of their own, and puts when each piece of text arrived, in seconds."""
    selector, times, rest = selectors.DefaultSelector(), [[] for _ in bodies], [b""] * len(bodies)
    for index, body in enumerate(bodies):
        data = json.dumps(body).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: {address[0]}\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n"
        connection = socket.create_connection(address)
        connection.sendall(head.encode() + b"Connection: close\r\n\r\n" + data)
        selector.register(connection, selectors.EVENT_READ, index)
    while selector.get_map():
        for key, _ in selector.select():
            data = key.fileobj.recv(1 << 16)
            if not data:
                selector.unregister(key.fileobj)
                key.fileobj.close()
                continue
            text = rest[key.data] + data
            # An event's beginning may come in two pieces.
            times[key.data] += [time.monotonic()] * text.count(b'"text":')
            rest[key.data] = text[-6:] if not text.endswith(b'"text":') else b""
    results.put(times)


def stream_all(url, bodies, clients=CLIENTS):
    """Starts clients for the requests; the returned function waits, and gives the times of each."""
    place = urllib.parse.urlsplit(url)
    results = multiprocessing.Queue()
    shares = [bodies[index::clients] for index in range(clients) if bodies[index::clients]]
    processes = [multiprocessing.Process(target=read_streams, args=((place.hostname, place.port), share, results))
                 for share in shares]
    for process in processes:
        process.start()

    def finish():
        times = [one for _ in processes for one in results.get(timeout=300)]
        for process in processes:
            process.join()
        if not all(times):
            sys.exit(f"{sum(not one for one in times)} of {len(times)} streams had no text")
        return times
    return finish


def request(server, rng, prompt_tokens, output):
    prompt = [rng.choice(TEXT_TOKENS) for _ in range(prompt_tokens)]
    return dict(model=server.model, prompt=prompt, max_tokens=output, temperature=0, stream=True, ignore_eos=True)


@contextlib.contextmanager
def started(options, folder, log, *flags):
    """The server, and the seconds after which it was ready."""
    command = [options.omnibus, "serve", folder, "--served-model-name", "bench", "--log", "error", *options.flags, *flags]
    server = serving.Server("omnibus", list(map(str, command)), "bench")
    begun = time.monotonic()
    with serving.serving(server, log, patience_s=400) as running:
        serving.wait_until(lambda: serving.get(running.url, "/ready").status == 200, 400, "ready", pause_s=0.01)
        yield server, running, time.monotonic() - begun


def throughput(options, server, running):
    """Tokens a second while all streams decode, and the mean context of the streams meanwhile."""
    rng, best = random.Random(1), (0, PROMPT)
    for _ in range(2):
        bodies = [request(server, rng, PROMPT, OUTPUT) for _ in range(options.streams)]
        times = stream_all(running.url, bodies)()
        begin = max(one[0] for one in times)
        end = min(begin + COUNTED_S, *(one[-1] for one in times))
        if end <= begin:
            sys.exit("a stream ended before the last one began: outputs are too short for this machine")
        # Some events hold several tokens.
        counted = sum(OUTPUT / len(one) * sum(begin < at <= end for at in one) for one in times)
        before = sum(OUTPUT / len(one) * sum(at <= begin for at in one) for one in times)
        context = PROMPT + (before + counted / 2) / options.streams
        best = max(best, (counted / (end - begin), context))
    return best


def burst(options, server, running):
    """Seconds to the last first token of the burst, and the 99th percentile of the other streams' gaps during it."""
    prompts, streams = options.burst
    found = []
    for seed in range(3):
        rng = random.Random(seed)
        beside = stream_all(running.url, [request(server, rng, 128, 2500) for _ in range(streams)], 2)
        time.sleep(0.7)
        sent = time.monotonic()
        times = stream_all(running.url, [request(server, rng, BURST_TOKENS, 8) for _ in range(prompts)], 4)()
        last_first = max(one[0] for one in times)
        gaps = [after - before for one in beside() for before, after in zip(one, one[1:]) if sent < after < last_first + 0.1]
        if not gaps:
            sys.exit("the streams ended before the burst: outputs are too short for this machine")
        found.append((last_first - sent, serving.quantile(gaps, 0.99)))
    return [statistics.median(values) for values in zip(*found)]


def engine_rate(options, folder, context):
    """Tokens a second of steps whose mean context is this."""
    command = [options.omnibus, "bench", "engine", "--json", "--model", folder, "--streams", str(options.streams)]
    first = max(1, round(context) - STEPS // 2)
    command += ["--context", str(first), "--steps", str(STEPS), "--prefill", "0", *options.flags]
    text = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300).stdout
    return 1e3 * options.streams / json.loads(text)["decode"][0]["step_ms"]


def measure(options, case, log):
    preset, bits = case.split(":")
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as kernels:
        folder = pathlib.Path(folder)
        make = [options.python, __file__, "--make", preset, bits, str(folder)]
        subprocess.run(make, check=True, env=options.peer_environment)
        os.environ["MLX_PTX_CACHE_DIR"] = kernels
        os.environ["CUDA_CACHE_PATH"] = kernels
        ready = []
        for _ in range(2):
            with started(options, folder, log) as (_, _, seconds):
                ready.append(seconds)
        say(f"{case}: ready after {ready[0]:.1f} s without compiled kernels, {ready[1]:.1f} s with them")
        with started(options, folder, log, "--max-num-seqs", options.streams) as (server, running, _):
            served, context = throughput(options, server, running)
        engine = engine_rate(options, folder, context)
        say(f"{case}: {options.streams} streams of {context:.0f} tokens: served {served:.0f} tok/s, "
            f"bench engine {engine:.0f}: {served / engine:.2f}")
        for schedule in ("fair", "fcfs"):
            with started(options, folder, log, "--schedule", schedule) as (server, running, _):
                first, gap = burst(options, server, running)
            say(f"{case}: burst, {schedule}: last first token {first:.3f} s, p99 gap of streams {1e3 * gap:.1f} ms")


def main():
    if sys.argv[1:2] == ["--make"]:
        return make_model(sys.argv[2], int(sys.argv[3]), pathlib.Path(sys.argv[4]))
    arguments = sys.argv[1:]
    flags = arguments[arguments.index("--") + 1:] if "--" in arguments else []
    arguments = arguments[:arguments.index("--")] if "--" in arguments else arguments
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("omnibus", type=pathlib.Path)
    parser.add_argument("--case", action="append", dest="cases")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--burst", type=lambda text: tuple(map(int, text.split(":"))), default=(16, 8), help="PROMPTS:STREAMS")
    parser.add_argument("--python", default=sys.executable, help="the Python with mlx-lm")
    parser.add_argument("--library", type=pathlib.Path, help="the folder of the libmlx that omnibus loads")
    parser.add_argument("--log", type=pathlib.Path, default=pathlib.Path("gpu_served.log"))
    options = parser.parse_args(arguments)
    options.flags, options.omnibus = flags, options.omnibus.resolve()
    options.peer_environment = dict(os.environ)
    library = options.library or gpu.library_of(options.python)
    if library:
        os.environ["LD_LIBRARY_PATH"] = ":".join(filter(None, [str(library), os.environ.get("LD_LIBRARY_PATH")]))
    with options.log.open("w") as log:
        for case in options.cases or ["qwen3-0.6b:16", "qwen3-4b:4"]:
            measure(options, case, log)


if __name__ == "__main__":
    main()
