#!/usr/bin/env python3
"""Log-probabilities on a GPU beside mlx-lm's in float32: how far ours in bfloat16 are off, and how far mlx-lm's own.

    python3 bench/gpu_accuracy.py OMNIBUS [--case PRESET:BITS …] [--streams 1+8+16+64] [--library FOLDER] [-- SERVE-FLAGS]

PRESET and BITS are those of `gpu.py`, whose requirements hold here, too. The model gets random weights and the embedded model's
tokenizer. For each number of streams, so many prompts are sent at once: one request gives the log-probabilities of the prompts'
tokens, which kernels of prompt chunks compute, one those of generated tokens, which kernels of decode steps compute. mlx-lm reads
the same tokens in one pass, in float32 and in bfloat16. The exit status is 1 where our mean or largest difference from float32
is more than 1.5 times mlx-lm's own.
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

import gpu
import gpu_served
import serving
from gpu import say

PROMPT = 300
OUTPUT = 24
# Some answers begin with tokens that share their text with others.
PROMPTS_LEAST = 8
# Times mlx-lm's own difference.
ALLOWED = 1.5


def ids_of_texts():
    """Tokens whose texts are plain ASCII, by text."""
    vocabulary = json.loads((gpu_served.TOKENIZER / "tokenizer.json").read_text())["model"]["vocab"]
    plain = lambda name: all("!" <= one <= "~" or one == "Ġ" for one in name)
    return {name.replace("Ġ", " "): id for name, id in vocabulary.items() if plain(name)}


def ask(server, running, **fields):
    body = dict(model=server.model, temperature=0, ignore_eos=True, logprobs=1, **fields)
    with contextlib.closing(serving.connect(running.url, 300)) as connection:
        connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
        answer = json.loads(connection.getresponse().read())
    if "choices" not in answer:
        sys.exit(f"no answer: {answer}")
    return answer["choices"][0]["logprobs"]


def ours(server, running, prompts, streams):
    """Tokens of each prompt and of its answer, and the log-probabilities of all but the first."""
    ids = ids_of_texts()
    def one(prompt):
        read = ask(server, running, prompt=prompt, max_tokens=0, echo=True)["token_logprobs"][1:]
        made = ask(server, running, prompt=prompt, max_tokens=OUTPUT)
        # Tokens of other texts cannot be identified by their text.
        known = next((at for at, text in enumerate(made["tokens"]) if text not in ids), OUTPUT)
        tokens = [ids[text] for text in made["tokens"][:known]]
        return dict(tokens=prompt + tokens, prompt=len(prompt), found=read + made["token_logprobs"][:known])
    with concurrent.futures.ThreadPoolExecutor(streams) as threads:
        return list(threads.map(one, prompts))


def peer(preset, bits, file):
    """Puts mlx-lm's log-probabilities of the same tokens in the file, in float32 and bfloat16."""
    import mlx.core as mx

    folder, groups = file.parent, json.loads(file.read_text())
    config = json.loads((folder / "config.json").read_text())
    model = gpu.build(config, bits)
    model.load_weights(str(folder / "model.safetensors"))
    for name, dtype in (("bfloat16", mx.bfloat16), ("float32", mx.float32)):
        model.set_dtype(dtype)
        for sequence in (one for group in groups.values() for one in group):
            tokens = mx.array(sequence["tokens"])[None]
            logits = model(tokens)[0, :-1].astype(mx.float32)
            logprobs = logits - mx.logsumexp(logits, -1, keepdims=True)
            sequence[name] = mx.take_along_axis(logprobs, tokens[0, 1:, None], -1)[:, 0].tolist()
    file.write_text(json.dumps(groups))


def differences(group, name, of_prompt):
    """From float32, of tokens of the prompts or of the answers."""
    found = []
    for one in group:
        pairs = list(zip(one[name], one["float32"]))
        cut = one["prompt"] - 1
        found += [abs(a - b) for a, b in (pairs[:cut] if of_prompt else pairs[cut:])]
    return statistics.mean(found), max(found), len(found)


def measure(options, case, log):
    preset, bits = case.split(":")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        python = [options.python, __file__]
        subprocess.run([options.python, gpu_served.__file__, "--make", preset, bits, str(folder)], check=True, env=options.peer_environment)
        rng, groups = random.Random(1), {}
        with gpu_served.started(options, folder, log, "--max-num-seqs", max(options.streams)) as (server, running, _):
            for streams in options.streams:
                prompts = [[rng.choice(gpu_served.TEXT_TOKENS) for _ in range(PROMPT)] for _ in range(max(streams, PROMPTS_LEAST))]
                groups[streams] = ours(server, running, prompts, streams)
        file = folder / "logprobs.json"
        file.write_text(json.dumps(groups))
        subprocess.run([*python, "--peer", preset, bits, str(file)], check=True, env=options.peer_environment | dict(MLX_ENABLE_TF32="0"))
        sound = True
        for streams, group in json.loads(file.read_text()).items():
            for of_prompt, what in ((True, "prompts"), (False, "answers")):
                (mean, most, count), (peer_mean, peer_most, _) = [differences(group, name, of_prompt) for name in ("found", "bfloat16")]
                near = mean <= ALLOWED * peer_mean and most <= ALLOWED * peer_most
                sound &= near
                say(f"{case}, {streams} streams, {count} tokens of {what}: mean {mean:.4f}, largest {most:.3f};"
                    f" mlx-lm {peer_mean:.4f}, {peer_most:.3f}{'' if near else ' FAR'}")
        return sound


def main():
    if sys.argv[1:2] == ["--peer"]:
        return peer(sys.argv[2], int(sys.argv[3]), pathlib.Path(sys.argv[4]))
    arguments = sys.argv[1:]
    flags = arguments[arguments.index("--") + 1:] if "--" in arguments else []
    arguments = arguments[:arguments.index("--")] if "--" in arguments else arguments
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("omnibus", type=pathlib.Path)
    parser.add_argument("--case", action="append", dest="cases")
    parser.add_argument("--streams", type=lambda text: [int(one) for one in text.split("+")], default=[1, 8, 16, 64])
    parser.add_argument("--python", default=sys.executable, help="the Python with mlx-lm")
    parser.add_argument("--library", type=pathlib.Path, help="the folder of the libmlx that omnibus loads")
    parser.add_argument("--log", type=pathlib.Path, default=pathlib.Path("gpu_accuracy.log"))
    options = parser.parse_args(arguments)
    options.flags, options.omnibus = flags, options.omnibus.resolve()
    options.peer_environment = dict(os.environ)
    library = options.library or gpu.library_of(options.python)
    if library:
        os.environ["LD_LIBRARY_PATH"] = ":".join(filter(None, [str(library), os.environ.get("LD_LIBRARY_PATH")]))
    with options.log.open("w") as log:
        found = [measure(options, case, log) for case in options.cases or ["qwen3-0.6b:16", "qwen3-0.6b:4"]]
    return 0 if all(found) else 1


if __name__ == "__main__":
    sys.exit(main())
