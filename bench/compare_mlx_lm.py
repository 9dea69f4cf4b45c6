#!/usr/bin/env python3
"""Compares omnibus with mlx-lm's server: same weights, same prompts, the same client for both.

    pip install 'mlx[cpu]==0.32.4' mlx-lm==0.32.2 && cargo build --release && python3 bench/compare_mlx_lm.py

Makes a 4-bit llama of about 100 million random weights with mlx-lm's own quantizer, once as it would be published
(bfloat16 scales) and once with float32 scales, which mlx computes much faster on a CPU. The servers take turns, one
at a time, so that what else the machine does falls on all of them; of all turns the best counts. A slow server gets
fewer requests and shorter answers: its rates are steady from the first tokens on, and the table says what it got.

Random weights answer with random words; greedy decoding makes that repeatable, and no token ends an answer early.
"""

import argparse
import contextlib
import json
import os
import pathlib
import platform
import socket
import subprocess
import sys
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
STREAMS = (1, 4, 16)
LATE = "no answer in time"
PREFILL_TOKENS = 512

# llama: 12 layers, and an untied head whose row for the end token is zero, so that greedy never picks it.
SIZES = dict(hidden_size=768, num_hidden_layers=12, num_attention_heads=12, num_key_value_heads=4, head_dim=64,
             intermediate_size=2048, vocab_size=16000, rms_norm_eps=1e-5, rope_theta=10000.0,
             max_position_embeddings=4096, tie_word_embeddings=False)
END = SIZES["vocab_size"] - 1

# The loop that plans and builds steps; Linux keeps 15 bytes of a thread's name.
ENGINE_THREAD = "omnibus-engine"

# Requests of a cell are `streams` times `rounds`; answers have `output` tokens, prompts `input` words. mlx-lm in
# bfloat16 computes about one token a second on a CPU, in a batch or not: it takes ten minutes even so, and one turn.
FAST = dict(input=32, output=64, rounds=2, prefills=3, turns=None)
SLOW = dict(input=8, output=24, rounds=1, prefills=1, turns=None)
SLOWEST = dict(input=4, output=4, rounds=1, prefills=1, turns=1)


# --- the model

def make_models(folder):
    """Both directories, made once: `bf16` as published, `f32` with float32 scales and norms."""
    done = folder / "complete"
    if done.exists():
        return
    import mlx.core as mx
    from mlx_lm.models import llama
    from mlx_lm.utils import quantize_model, save_config, save_model

    mx.set_default_device(mx.cpu)
    mx.random.seed(7)
    config = dict(model_type="llama", architectures=["LlamaForCausalLM"], bos_token_id=END, eos_token_id=END,
                  attention_bias=False, mlp_bias=False, **SIZES)
    model = llama.Model(llama.ModelArgs.from_dict(config))
    head = model.lm_head.weight
    head[END] = 0
    model.set_dtype(mx.bfloat16)
    model, config = quantize_model(model, config, group_size=64, bits=4)
    for name, dtype in (("bf16", mx.bfloat16), ("f32", mx.float32)):
        model.set_dtype(dtype)
        (folder / name).mkdir(parents=True, exist_ok=True)
        save_model(folder / name, model)
        save_config(dict(config), config_path=folder / name / "config.json")
        make_tokenizer(folder / name)
    done.touch()


def make_tokenizer(folder):
    """A byte-level BPE over printable ASCII, so that every token is text by itself, with common words in one token."""
    import random

    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    rng = random.Random(7)
    letters = "etaoinshrdlucmfwypvbgkqjxz"
    coined = ["".join(rng.choices(letters, weights=range(26, 0, -1), k=rng.randint(2, 9))) for _ in range(60000)]
    # What `omnibus bench serve` says, so that a word is a token.
    common = prompt_words() * 400
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = [letter for letter in pre_tokenizers.ByteLevel.alphabet() if letter.isascii() or letter == "Ġ"]
    trainer = trainers.BpeTrainer(vocab_size=END, initial_alphabet=sorted(alphabet), show_progress=False)
    tokenizer.train_from_iterator([" " + " ".join(coined), " " + " ".join(common)], trainer)
    filler = [f"<|{index}|>" for index in range(tokenizer.get_vocab_size(), END)]
    tokenizer.add_special_tokens(filler + ["<|end|>"])
    assert tokenizer.token_to_id("<|end|>") == END, "the tokenizer has as many tokens as the model"
    tokenizer.save(str(folder / "tokenizer.json"))
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    config = dict(tokenizer_class="PreTrainedTokenizerFast", eos_token="<|end|>", chat_template=template,
                  model_max_length=SIZES["max_position_embeddings"])
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def prompt_words():
    return ("the of and to in is that it was for on are with as his they at be this from have or by one had not but "
            "what all were when we there can an your which their said if do will each about how up out them then she "
            "many some so these would other into has more her two like him time").split()


# --- the servers

class Contender:
    def __init__(self, name, command, model, effort, has_status=False):
        self.name, self.command, self.model, self.effort = name, command, model, effort
        self.has_status = has_status


def contenders(omnibus, models, python):
    def mlx_lm(directory):
        return [python, "-m", "mlx_lm", "server", "--model", str(directory), "--log-level", "ERROR",
                "--prompt-cache-size", "1"]

    bf16, f32 = models / "bf16", models / "f32"
    served = "bench"
    return [
        Contender("omnibus", [str(omnibus), "serve", str(bf16), "--served-model-name", served, "--device", "cpu",
                              "--prefix-cache", "off", "--log", "error"], served, FAST, has_status=True),
        Contender("mlx-lm, f32 scales", mlx_lm(f32), str(f32), SLOW),
        Contender("mlx-lm, as shipped (bf16)", mlx_lm(bf16), str(bf16), SLOWEST),
    ]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def serving(contender, log, patience_s):
    """Runs the server; gives its address without a path, and its process."""
    port = free_port()
    command = contender.command + ["--host", "127.0.0.1", "--port", str(port)]
    environment = dict(os.environ, HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until_up(url, server, patience_s)
        yield url, server.pid
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def wait_until_up(url, server, patience_s):
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        if server.poll() is not None:
            sys.exit(f"the server ended with {server.returncode} before it answered; see the log")
        try:
            read(f"{url}/health")
            return
        except OSError:
            time.sleep(0.2)
    sys.exit(f"the server did not answer within {patience_s} s; see the log")


def read(url):
    # No proxy: the server is on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=10) as response:
        return response.read()


# --- measuring

def measure(omnibus, url, model, streams, prompts, words, tokens, warmups, limit_s):
    """One run of `omnibus bench serve`, or None when it took too long."""
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

    A cell that takes too long ends the turn: the server may still be busy with what was given up.
    """
    cells = dict.fromkeys((*STREAMS, "prefill", "prompt_tokens", "host"))
    with serving(contender, log, patience_s=120) as (url, process):
        def cell(key, unit, streams, prompts, words, tokens, warmups, value):
            run = measure(omnibus, url, contender.model, streams, prompts, words, tokens, warmups, limit_s)
            cells[key] = LATE if run is None else value(run)
            shown = cells[key] if isinstance(cells[key], str) else f"{cells[key]:.4g} {unit}"
            print(f"{contender.name}: {key}: {shown}", file=sys.stderr, flush=True)
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
    """Seconds that the engine's loop has spent on steps, and those in which its thread had a core.

    MLX computes on a thread of its own, and may let the loop wait as soon as while a step is launched: so its own clock
    cannot tell work from waiting, and the system's can. Only Linux tells.
    """
    if not contender.has_status:
        return None
    engine = json.loads(read(f"{url}/v1/status"))["engine"]
    for task in pathlib.Path(f"/proc/{process}/task").glob("*"):
        if (task / "comm").read_text().strip() == ENGINE_THREAD:
            steps = sum(engine[f"{part}_seconds_total"] for part in ("host", "dispatch", "wait"))
            return steps, int((task / "schedstat").read_text().split()[0]) / 1e9
    return None


def host_share(before, after):
    """Of the time of all steps in between; None where nobody says."""
    if before is None or after is None or after[0] <= before[0]:
        return None
    return (after[1] - before[1]) / (after[0] - before[0])


def best(turns):
    """Of every cell the best: the highest rate, the shortest time."""
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
    lines = ["| server | " + " | ".join(f"{streams} stream{'s' * (streams > 1)}, tokens/s" for streams in STREAMS)
             + f" | first token, {PREFILL_TOKENS}-token prompt | host's share of a step |",
             "| --- |" + " ---: |" * (len(STREAMS) + 2)]
    for name, cells in results:
        row = [rate(cells[streams], ours[streams], higher=True, unit="") for streams in STREAMS]
        row.append(rate(cells["prefill"], ours["prefill"], higher=False, unit=" s"))
        row.append("–" if cells["host"] is None else f"{100 * cells['host']:.1f} %")
        lines.append(f"| {name} | " + " | ".join(row) + " |")
    return "\n".join(lines)


def rate(value, ours, higher, unit):
    if value is None or value == LATE:
        return value or "–"
    shown = f"{value:.1f}{unit}" if value >= 10 else f"{value:.2g}{unit}"
    if not isinstance(ours, float) or value == ours:
        return shown
    times = ours / value if higher else value / ours
    return f"{shown} ({times:.1f}×)"


def machine():
    with contextlib.suppress(OSError):
        for line in open("/proc/cpuinfo"):
            if line.startswith("model name"):
                return f"{line.split(':', 1)[1].strip()}, {os.cpu_count()} cores"
    return f"{platform.machine()}, {os.cpu_count()} cores"


def conditions(listed, turns):
    import importlib.metadata as metadata

    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("mlx", "mlx-lm"))
    efforts = "; ".join(f"{c.name}: {c.effort['rounds']} × streams requests of {c.effort['input']} words and "
                        f"{c.effort['output']} tokens, {c.effort['prefills']} long, "
                        f"{c.effort['turns'] or turns} turns" for c in listed)
    load = f", load {os.getloadavg()[0]:.1f} at the end" if hasattr(os, "getloadavg") else ""
    return (f"{machine()}{load}; {versions}; llama with 100 million parameters, 4 bits, group 64; temperature 0; "
            f"the best turn counts. {efforts}. The host's share is the time on a core of the thread that builds "
            f"steps, at one stream.")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--omnibus", type=pathlib.Path, default=HERE.parent / "target/release/omnibus",
                        help="the binary (cargo build --release)")
    parser.add_argument("--python", default=sys.executable, help="a Python that has mlx-lm")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "out", help="models, logs and results")
    parser.add_argument("--turns", type=int, default=2, help="how often each server is started and measured")
    parser.add_argument("--limit", type=float, default=600, help="seconds after which a cell is given up")
    parser.add_argument("--only", action="append", help="measure only servers whose name begins so")
    arguments = parser.parse_args()
    if not arguments.omnibus.exists():
        sys.exit(f"{arguments.omnibus} is not there: cargo build --release")
    arguments.out.mkdir(parents=True, exist_ok=True)
    models = arguments.out / "compare_mlx_lm"
    make_models(models)

    listed = [contender for contender in contenders(arguments.omnibus, models, arguments.python)
              if not arguments.only or any(contender.name.startswith(only) for only in arguments.only)]
    taken = {contender.name: [] for contender in listed}
    with open(arguments.out / "compare_mlx_lm.log", "w") as log:
        for index in range(arguments.turns):
            for contender in listed:
                if index >= (contender.effort["turns"] or arguments.turns):
                    continue
                taken[contender.name].append(turn(arguments.omnibus, contender, log, arguments.limit))
    results = [(name, best(turns)) for name, turns in taken.items()]
    text = table(results) + "\n\n" + conditions(listed, arguments.turns)
    (arguments.out / "compare_mlx_lm.md").write_text(text + "\n")
    (arguments.out / "compare_mlx_lm.json").write_text(json.dumps(dict(results), indent=2) + "\n")
    print(text)


if __name__ == "__main__":
    main()
