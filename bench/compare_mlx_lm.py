#!/usr/bin/env python3
"""Throughput and TTFT of omnibus and of mlx-lm's server: same weights, same prompts, same client.

    pip install 'mlx[cpu]==0.32.4' mlx-lm==0.32.2 && cargo build --release && python3 bench/compare_mlx_lm.py

Serves a 4-bit llama of about 100 million random weights, once as it would be published (bfloat16 scales) and once
with float32 scales, which mlx computes much faster on a CPU. One server runs at a time, in turns, so that other load on
the machine affects all of them; the best of all turns counts. A slow server gets fewer requests and shorter outputs:
its rates are steady from the first tokens on, and the table states the numbers.
"""

import dataclasses
import json
import pathlib
import subprocess
import sys

import serving
from serving import log_line

STREAMS = (1, 4, 16)
LATE = "no answer in time"
PREFILL_TOKENS = 512

# The thread of the engine loop; Linux keeps 15 bytes of a thread's name.
ENGINE_THREAD = "omnibus-engine"

# A cell has `streams` times `rounds` requests, with prompts of `input` words and outputs of `output` tokens. mlx-lm in
# bfloat16 computes about one token/s on a CPU, batched or not: one turn takes ten minutes even so.
FAST = dict(input=32, output=64, rounds=2, prefills=3, turns=None)
SLOW = dict(input=8, output=24, rounds=1, prefills=1, turns=None)
SLOWEST = dict(input=4, output=4, rounds=1, prefills=1, turns=1)


# --- the servers

@dataclasses.dataclass
class Contender(serving.Server):
    effort: dict
    has_status: bool = False


def contenders(options, models):
    bf16, f32 = models["bf16"], models["f32"]

    def contender(server, effort, **more):
        return Contender(**vars(server), effort=effort, **more)

    def mlx_lm(model, name):
        return serving.mlx_lm(options.python, model, "--prompt-cache-size", 1, name=name)

    return [
        contender(serving.omnibus(options.omnibus, bf16, "--prefix-cache", "off"), FAST, has_status=True),
        contender(mlx_lm(f32, "mlx-lm, f32 scales"), SLOW),
        contender(mlx_lm(bf16, "mlx-lm, as shipped (bf16)"), SLOWEST),
    ]


# --- measuring

def measure(omnibus, url, model, streams, prompts, words, tokens, warmups, limit_s):
    """One run of `omnibus bench serve`; None at the time limit."""
    command = [str(omnibus), "bench", "serve", "--json", "--url", f"{url}/v1", "--model", model,
               "--endpoint", "completions", "--num-prompts", str(prompts), "--num-warmups", str(warmups),
               "--input-len", str(words), "--output-len", str(tokens), "--concurrency", str(streams), "--seed", "7"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode != 0 or json.loads(done.stdout)["failed"]:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def turn(omnibus, contender, log, limit_s):
    """All cells of one contender: tokens/s by streams, while decoding; `prefill` in seconds; `host` as a share.

    A cell that reaches its time limit ends the turn: the server may still be busy with its requests.
    """
    cells = dict.fromkeys((*STREAMS, "prefill", "prompt_tokens", "host"))
    with serving.serving(contender, log) as running:
        url, process = running.url, running.process.pid

        def cell(key, unit, streams, prompts, words, tokens, warmups, value):
            run = measure(omnibus, url, contender.model, streams, prompts, words, tokens, warmups, limit_s)
            cells[key] = LATE if run is None else value(run)
            shown = cells[key] if isinstance(cells[key], str) else f"{cells[key]:.4g} {unit}"
            log_line(f"{contender.name}: {key}: {shown}")
            return run

        effort = contender.effort
        for streams in STREAMS:
            before = engine_seconds(contender, url, process)
            run = cell(streams, "tokens/s", streams, streams * effort["rounds"], effort["input"], effort["output"],
                       int(streams == 1), lambda run: streams * 1e3 / run["tpot_ms"]["mean"])
            if streams == 1 and run:
                cells["host"] = host_share(before, engine_seconds(contender, url, process))
                run = cell("prefill", "s", 1, effort["prefills"], PREFILL_TOKENS, 1, 0,
                           lambda run: run["ttft_ms"]["p50"] / 1e3)
                cells["prompt_tokens"] = run and run["input_tokens"] / run["completed"]
            if run is None:
                break
    return cells


def engine_seconds(contender, url, process):
    """Seconds that the engine loop has spent on steps, and seconds in which its thread was on a core (Linux only).

    MLX computes on a thread of its own, and the loop may already wait while a step is launched: wall time cannot
    separate work from waiting, CPU time can.
    """
    if not contender.has_status:
        return None
    engine = serving.status(url)["engine"]
    tasks = (task for member in serving.family(process) for task in pathlib.Path(f"/proc/{member}/task").glob("*"))
    for task in tasks:
        if (task / "comm").read_text().strip() == ENGINE_THREAD:
            steps = sum(engine[f"{part}_seconds_total"] for part in ("host", "dispatch", "wait"))
            return steps, int((task / "schedstat").read_text().split()[0]) / 1e9
    return None


def host_share(before, after):
    """Share of the time of all steps in between; None where it is unknown."""
    if before is None or after is None or after[0] <= before[0]:
        return None
    return (after[1] - before[1]) / (after[0] - before[0])


def best(turns):
    """The best of every cell: the highest rate, the shortest time."""
    def pick(key, choose):
        values = [cells[key] for cells in turns if cells[key] is not None]
        numbers = [value for value in values if value != LATE]
        return choose(numbers) if numbers else next(iter(values), None)

    rates = {streams: pick(streams, max) for streams in STREAMS}
    return rates | {key: pick(key, min) for key in ("prefill", "prompt_tokens", "host")}


# --- the table

def table(results):
    """Markdown; in brackets, how many times faster the first row is."""
    ours = results[0][1]
    header = ["server", *(f"{streams} stream{'s' * (streams > 1)}, tokens/s" for streams in STREAMS),
              f"first token, {PREFILL_TOKENS}-token prompt", "host share of a step"]
    rows = []
    for name, cells in results:
        row = [rate(cells[streams], ours[streams], higher=True, unit="") for streams in STREAMS]
        row.append(rate(cells["prefill"], ours["prefill"], higher=False, unit=" s"))
        row.append("–" if cells["host"] is None else f"{100 * cells['host']:.1f} %")
        rows.append([name, *row])
    return serving.table(header, rows)


def rate(value, ours, higher, unit):
    if value is None or value == LATE:
        return value or "–"
    shown = f"{value:.1f}{unit}" if value >= 10 else f"{value:.2g}{unit}"
    if not isinstance(ours, float) or value == ours:
        return shown
    times = ours / value if higher else value / ours
    return f"{shown} ({times:.1f}×)"


def remarks(listed, turns):
    efforts = "; ".join(f"{c.name}: {c.effort['rounds']} × streams requests of {c.effort['input']} words and "
                        f"{c.effort['output']} tokens, {c.effort['prefills']} long, "
                        f"{c.effort['turns'] or turns} turns" for c in listed)
    return (f"{serving.versions('mlx', 'mlx-lm')}; llama with 100 million parameters, 4 bits, group 64; temperature 0; "
            f"the best turn counts. {efforts}. The host share is the CPU time of the engine loop's thread, at one "
            f"stream.")


def main():
    parser = serving.arguments(__doc__, turns=(2, "turns of each server"),
                               limit=(600.0, "time limit of a cell in seconds"))
    parser.add_argument("--only", action="append", help="measure only servers with this name prefix")
    options = serving.begin(parser)
    models = serving.make_models(options.out)
    listed = [contender for contender in contenders(options, models)
              if not options.only or any(contender.name.startswith(only) for only in options.only)]
    taken = {contender.name: [] for contender in listed}
    with open(options.out / "compare_mlx_lm.log", "w") as log:
        for index in range(options.turns):
            for contender in listed:
                if index >= (contender.effort["turns"] or options.turns):
                    continue
                taken[contender.name].append(turn(options.omnibus, contender, log, options.limit))
    results = [(name, best(turns)) for name, turns in taken.items()]
    serving.finish(__file__, options, dict(results), [table(results)], remarks(listed, options.turns))


if __name__ == "__main__":
    main()
