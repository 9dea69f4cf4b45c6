#!/usr/bin/env python3
"""The engine's steps beside mlx-lm's, with random weights of the same config, in turns.

    python3 bench/gpu.py OMNIBUS [--case PRESET:BITS[:STREAMS[:PREFILL]] …] [--context 512] [--rounds 1]
                         [--case-timeout 120] [--python PYTHON] [--library FOLDER] [--json FILE] [-- FLAGS]

OMNIBUS is the binary; PRESET is a name that `omnibus bench engine --random-weights` knows, or the path of a config.json;
BITS is 16, 8 or 4; STREAMS is `1+16+64`; PREFILL is a prompt's length, 0 for none. FLAGS go to `omnibus bench engine`.

A machine needs the binary and a Python with mlx and mlx-lm, nothing else. Where the binary was built against another
libmlx than the Python package's, --library names the folder of the one to load (default: that of the package). mlx-lm runs
`generate_step` with one stream and `BatchGenerator` with more. Each case has a time limit, and each result is printed as
soon as it is there. Speeds of mlx-lm hold for its own scheduling; its weights are packed as `mlx_lm.convert` packs them.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import threading
import time

PRESETS = pathlib.Path(__file__).resolve().parent.parent / "crates/cli/src/bench/presets"
CASES = ["qwen3-0.6b:16:1+16+64:2048", "llama-3.1-8b:16:1+16+64:2048", "qwen3-4b:4:1+16+64:2048"]
WARM_UP = 16
STEPS = 64
PREFILL_CHUNK = 2048
PREFILLS = 3


def say(*words):
    print(*words, flush=True)


# Peer: runs in a process of its own, one for each case, and prints one JSON object per measurement.


def config_of(name):
    path = PRESETS / f"{name}.json"
    return json.loads((path if path.exists() else pathlib.Path(name)).read_text())


def build(config, bits):
    """mlx-lm's model of a config, with random bfloat16 weights, packed layer by layer."""
    import importlib

    import mlx.core as mx
    import mlx.nn as nn

    module = importlib.import_module(f"mlx_lm.models.{config['model_type']}")
    config = {key: value for key, value in config.items() if key not in ("quantization", "quantization_config")}
    mx.random.seed(0)
    model = module.Model(module.ModelArgs.from_dict(config))
    chosen = getattr(model, "quant_predicate", None)

    def predicate(prefix):
        def of(path, layer):
            if not hasattr(layer, "to_quantized") or layer.weight.shape[-1] % 64:
                return False
            return chosen(f"{prefix}{path}", layer) if chosen else True

        return of

    parts = [(f"model.layers.{index}.", layer) for index, layer in enumerate(model.layers)] + [("", model)]
    for prefix, part in parts:
        part.set_dtype(mx.bfloat16)
        if bits != 16:
            nn.quantize(part, 64, bits, class_predicate=predicate(prefix))
        mx.eval(part.parameters())
    model.eval()
    mx.clear_cache()
    return model


def tokens(count, vocab):
    return [random.randrange(vocab) for _ in range(count)]


def step_times(step, deadline):
    """Seconds of each step after the warm-up."""
    for _ in range(WARM_UP):
        step()
    seconds, last = [], time.perf_counter()
    while len(seconds) < STEPS and time.perf_counter() < deadline:
        step()
        now = time.perf_counter()
        seconds.append(now - last)
        last = now
    return seconds


def decode(model, vocab, streams, context, deadline):
    from mlx_lm.generate import BatchGenerator, generate_step
    import mlx.core as mx

    most = WARM_UP + STEPS + 8
    if streams == 1:
        steps = generate_step(mx.array(tokens(context, vocab)), model, max_tokens=most)
        return step_times(lambda: next(steps), deadline)
    batch = BatchGenerator(model, max_tokens=most + streams, completion_batch_size=streams, prefill_batch_size=streams)
    try:
        batch.insert([tokens(context, vocab) for _ in range(streams)])
        while len(batch.next()[1]) < streams:
            pass
        return step_times(batch.next, deadline)
    finally:
        batch.close()


def prefill(model, vocab, length):
    import mlx.core as mx
    from mlx_lm.models.cache import make_prompt_cache

    seconds = []
    for _ in range(1 + PREFILLS):
        prompt, cache = mx.array(tokens(length, vocab))[None], make_prompt_cache(model)
        mx.eval(prompt)
        begun = time.perf_counter()
        for start in range(0, length, PREFILL_CHUNK):
            logits = model(prompt[:, start:start + PREFILL_CHUNK], cache=cache)
            mx.eval([part.state for part in cache])
        mx.eval(mx.argmax(logits[:, -1], -1))
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds[1:])


def peer(options):
    """Measures mlx-lm in this process."""
    import mlx.core as mx

    config = config_of(options.preset)
    vocab = config["vocab_size"]
    begun = time.perf_counter()
    model = build(config, options.bits)
    say(json.dumps(dict(load_s=time.perf_counter() - begun, active_gb=mx.get_active_memory() / 1e9)))
    for streams in options.streams:
        try:
            seconds = decode(model, vocab, streams, options.context, time.perf_counter() + options.case_timeout / 2)
            result = dict(step_ms=1e3 * statistics.median(seconds), steps=len(seconds))
        except Exception as error:
            result = dict(error=str(error)[:300])
        say(json.dumps(dict(result, streams=streams, peak_gb=mx.get_peak_memory() / 1e9)))
        mx.clear_cache()
    if options.prefill:
        try:
            result = dict(ms=1e3 * prefill(model, vocab, options.prefill))
        except Exception as error:
            result = dict(error=str(error)[:300])
        say(json.dumps(dict(result, prefill=options.prefill)))


# Both, in turns.


def lines(command, environment, timeout_s):
    """The lines that a program prints, as they come; it is ended after `timeout_s`."""
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    # A program that prints nothing more is ended by the timer.
    begun, timer = time.monotonic(), threading.Timer(timeout_s, process.kill)
    try:
        timer.start()
        yield from process.stdout
        if process.wait() != 0:
            say(f"  exit code {process.returncode} after {time.monotonic() - begun:.0f} s: {' '.join(map(str, command))}")
    finally:
        timer.cancel()
        process.kill()
        process.wait()


def run_omnibus(options, case):
    """The results of `omnibus bench engine`, or `None`. Its progress goes to stderr."""
    preset, bits, streams, prefill_tokens = case
    path = PRESETS / f"{preset}.json"
    command = [options.omnibus, "bench", "engine", "--json", "--random-weights", path if path.exists() else preset]
    command += ["--streams", ",".join(map(str, streams)), "--context", str(options.context), "--steps", str(STEPS)]
    command += ["--prefill", str(prefill_tokens), "--case-timeout", str(options.case_timeout), *options.flags]
    command += [] if bits == 16 else ["--quantize", str(bits)]
    environment = dict(os.environ)
    if options.library:
        paths = [str(options.library), environment.get("LD_LIBRARY_PATH")]
        environment["LD_LIBRARY_PATH"] = ":".join(path for path in paths if path)
    text = "".join(lines(command, environment, limit_s(options, case)))
    return json.loads(text) if text.strip() else None


def run_peer(options, case):
    """mlx-lm's results by number of streams, and of prefill."""
    preset, bits, streams, prefill_tokens = case
    command = [options.python, __file__, "--peer", preset, str(bits), "+".join(map(str, streams)), str(prefill_tokens)]
    command += ["--context", str(options.context), "--case-timeout", str(options.case_timeout)]
    found = dict(decode={}, prefill=None)
    for line in lines(command, dict(os.environ, PYTHONUNBUFFERED="1"), limit_s(options, case)):
        if not line.startswith("{"):
            continue
        result = json.loads(line)
        say(f"  mlx-lm: {result}")
        if "streams" in result:
            found["decode"][result["streams"]] = result.get("step_ms")
        elif "prefill" in result:
            found["prefill"] = result.get("ms")
    return found


def limit_s(options, case):
    """The time limit of a whole case: loading, each number of streams, prefill."""
    return options.case_timeout * (1 + len(case[2]) + bool(case[3]))


def library_of(python):
    """The folder of the package's libmlx."""
    code = "import mlx, pathlib; print(pathlib.Path(list(mlx.__path__)[0]) / 'lib')"
    found = subprocess.run([python, "-c", code], capture_output=True, text=True).stdout.strip()
    return pathlib.Path(found) if found and pathlib.Path(found).is_dir() else None


def median(values):
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def row(name, ours, theirs, limit):
    """`ours` and `theirs` have a number of each round, in milliseconds."""
    pairs = [peer_ms / our_ms for our_ms, peer_ms in zip(ours, theirs) if our_ms and peer_ms]
    cells = [median(ours), median(theirs), limit]
    shown = ["–" if cell is None else f"{cell:.3f}" if cell < 1 else f"{cell:.2f}" for cell in cells]
    ratio = f"{statistics.median(pairs):.2f}×" if pairs else "–"
    share = f"{limit / cells[0]:.2f}" if limit and cells[0] else "–"
    return f"| {name} | {shown[0]} | {shown[1]} | {ratio} | {shown[2]} | {share} |"


def compare(options, case):
    """Runs a case in turns and prints its rows. Returns the raw results."""
    preset, bits, streams, prefill_tokens = case
    label = f"{preset} {'bf16' if bits == 16 else f'{bits}-bit'}"
    say(f"{label}: streams {streams}, context {options.context}, prefill {prefill_tokens}")
    ours, theirs = [], []
    for number in range(options.rounds):
        turns = [(run_omnibus, ours), (run_peer, theirs)]
        for run, results in turns if number % 2 == 0 else reversed(turns):
            if not (options.only and options.only != run.__name__.removeprefix("run_")):
                results.append(run(options, case))
    ours = [result or dict(decode=[], prefill=None) for result in ours]
    rows = []
    for count in streams:
        found = [next((one for one in result["decode"] if one.get("streams") == count), {}) for result in ours]
        peers = [result["decode"].get(count) for result in theirs]
        rows.append(row(f"{label}, {count} streams, ms a step", [one.get("step_ms") for one in found], peers,
                        median([one.get("limit_ms") for one in found])))
    if prefill_tokens:
        found = [result["prefill"] or {} for result in ours]
        peers = [result["prefill"] for result in theirs]
        rows.append(row(f"{label}, prefill of {prefill_tokens}, ms", [one.get("ms") for one in found], peers,
                        median([one.get("limit_ms") for one in found])))
    for one in rows:
        say(one)
    return rows, dict(case=label, omnibus=ours, mlx_lm=theirs)


def parse_case(text):
    """`PRESET:BITS[:STREAMS[:PREFILL]]`"""
    preset, bits, streams, prefill_tokens, *_ = [*text.split(":"), *["", "", "", ""]][:5]
    counts = [int(count) for count in (streams or "1+16").split("+")]
    return preset, int(bits or 16), counts, int(prefill_tokens or 0)


def peer_options(arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("preset")
    parser.add_argument("bits", type=int)
    parser.add_argument("streams", type=lambda text: [int(count) for count in text.split("+")])
    parser.add_argument("prefill", type=int)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--case-timeout", type=float, default=120)
    return parser.parse_args(arguments)


def main():
    arguments = sys.argv[1:]
    if "--peer" in arguments:
        return peer(peer_options(arguments))
    flags = arguments[arguments.index("--") + 1:] if "--" in arguments else []
    arguments = arguments[:arguments.index("--")] if "--" in arguments else arguments
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("omnibus", type=pathlib.Path)
    parser.add_argument("--case", action="append", dest="cases")
    parser.add_argument("--context", type=int, default=512, help="tokens of each prompt")
    parser.add_argument("--rounds", type=int, default=1, help="turns of each; the median counts")
    parser.add_argument("--case-timeout", type=float, default=120, help="seconds for one number of streams")
    parser.add_argument("--python", default=sys.executable, help="the Python with mlx-lm")
    parser.add_argument("--library", type=pathlib.Path, help="the folder of the libmlx that omnibus loads")
    parser.add_argument("--only", choices=["omnibus", "peer"], help="measure one side alone")
    parser.add_argument("--json", type=pathlib.Path, help="also write the raw results here")
    options = parser.parse_args(arguments)
    options.flags = flags
    options.library = options.library or library_of(options.python)
    options.omnibus = options.omnibus.resolve()
    rows, raw = [], []
    for text in options.cases or CASES:
        printed, results = compare(options, parse_case(text))
        rows += printed
        raw.append(results)
        if options.json:
            options.json.write_text(json.dumps(raw, indent=1))
    say("\n| case | omnibus | mlx-lm | mlx-lm / omnibus | limit | share of the limit |")
    say("| --- | ---: | ---: | ---: | ---: | ---: |")
    for one in rows:
        say(one)


if __name__ == "__main__":
    main()
