#!/usr/bin/env python3
"""Round trips beside mlx-lm: convert, serve, complete in every quantization; and adapters that mlx-lm trained, served by name.

    pip install 'mlx[cpu]==0.32.4' mlx-lm==0.32.2 && cargo build --release
    python3 tests/peers/round_trips.py [--omnibus target/release/omnibus] [--only NAME ...]

The embedded model, in float32, is converted by `omnibus convert` and by mlx-lm in every mode. What ours serves must give the
log-probabilities of mlx-lm with its own conversion for every token of a text, and continue it greedily with the same tokens,
unless mlx-lm's two best tokens are nearer than that. mlx-lm must load what we wrote, with the same log-probabilities. Then mlx-lm
trains LoRA and DoRA on random words, for the model in floats and in 4 bits; each is served by its name beside the base model.
"""

import argparse
import contextlib
import io
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import urllib.request

import mlx.core as mx
from mlx_lm import load
from mlx_lm.convert import QUANT_RECIPES, convert
from mlx_lm.models.cache import make_prompt_cache

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "bench"))
import serving  # noqa: E402

TEXT = "My name is Ada and I live in Paris. The sum of two and three is five. Count to ten: one, two, three, four."
COMPLETION = 24
# Of a log-probability.
BOUND = 2e-3
# How much an adapter must change some log-probability to count as one.
CHANGE = 0.05

MODES = {f"{bits} bits": (["--q-bits", bits, "--q-group-size", 64], dict(q_bits=bits, q_group_size=64))
         for bits in (2, 3, 4, 5, 6, 8)}
MODES |= {mode: (["--q-mode", mode], dict(q_mode=mode)) for mode in ("mxfp4", "mxfp8", "nvfp4")}
MODES |= {recipe: (["--quant-predicate", recipe], dict(quant_predicate=recipe)) for recipe in QUANT_RECIPES}


class Reference:
    """mlx-lm with a model, in float32 as we compute on a CPU."""

    def __init__(self, directory, adapter=None):
        self.model, self.tokenizer = load(str(directory), adapter_path=adapter and str(adapter))
        self.tokens = self.tokenizer.encode(TEXT, add_special_tokens=False)

    def logprobs(self):
        logits = self.model(mx.array([self.tokens]))[0].astype(mx.float32)
        scores = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
        return [float(scores[at, token]) for at, token in enumerate(self.tokens[1:])]

    def greedy(self):
        """The text that follows, and by how much the best token of each step leads."""
        cache, found, leads = make_prompt_cache(self.model), [], []
        logits = self.model(mx.array([self.tokens]), cache=cache)[0, -1]
        for _ in range(COMPLETION):
            two = mx.sort(logits.astype(mx.float32))[-2:]
            leads.append(float(two[1] - two[0]))
            found.append(mx.argmax(logits).item())
            logits = self.model(mx.array([found[-1:]]), cache=cache)[0, -1]
        return self.tokenizer.decode(found, skip_special_tokens=True), min(leads)


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: {(done.stderr or done.stdout).strip()[-400:]}")


def ask(url, model, tokens, **fields):
    body = dict(model=model, prompt=tokens, temperature=0, ignore_eos=True, **fields)
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)["choices"][0]


def served(url, model, reference):
    """The log-probabilities of the text's tokens but the first, and the greedy completion."""
    scored = ask(url, model, reference.tokens, max_tokens=1, echo=True, logprobs=1)
    logprobs = scored["logprobs"]["token_logprobs"][1:len(reference.tokens)]
    return logprobs, ask(url, model, reference.tokens, max_tokens=COMPLETION)["text"]


@contextlib.contextmanager
def serving_of(omnibus, model, *flags):
    with tempfile.TemporaryFile() as log, serving.serving(serving.omnibus(omnibus, model, *flags), log) as running:
        yield running.url


def distance(ours, theirs):
    return max(abs(a - b) for a, b in zip(ours, theirs, strict=True))


def compare(name, found, reference):
    (logprobs, text), (expected, lead) = found, reference.greedy()
    apart = distance(logprobs, reference.logprobs())
    same = text == expected or lead < 2 * apart
    say = f"{name}: log-probabilities {apart:.1e} apart, text {'equal' if text == expected else 'differs'}, lead {lead:.1e}"
    print(say, flush=True)
    return [] if apart <= BOUND and same else [say]


def round_trip(omnibus, folder, base, name, flags, asked):
    ours, theirs = folder / f"{name}.ours", folder / f"{name}.theirs"
    run(omnibus, "convert", "--hf-path", base, "--mlx-path", ours, "-q", *flags)
    with contextlib.redirect_stdout(io.StringIO()):
        convert(str(base), str(theirs), quantize=True, **asked)
    reference = Reference(theirs)
    with serving_of(omnibus, ours) as url:
        problems = compare(name, served(url, "bench", reference), reference)
    apart = distance(Reference(ours).logprobs(), reference.logprobs())
    return problems + ([f"{name}: mlx-lm with ours, {apart:.1e} apart"] if apart > BOUND else [])


def write_words(folder):
    """Random words to train on."""
    rng = random.Random(3)
    folder.mkdir()
    for name, lines in (("train", 12), ("valid", 2), ("test", 2)):
        texts = [json.dumps(dict(text=serving.prose(rng, 24))) for _ in range(lines)]
        (folder / f"{name}.jsonl").write_text("\n".join(texts))


def adapters(omnibus, folder, base):
    packed, data = folder / "packed", folder / "data"
    run(omnibus, "convert", "--hf-path", base, "--mlx-path", packed, "-q", "--q-bits", 4)
    write_words(data)
    problems = []
    for model in (base, packed):
        trained = {kind: folder / f"{model.name}.{kind}" for kind in ("lora", "dora")}
        for kind, path in trained.items():
            run(sys.executable, "-c", "import mlx.core as mx; mx.set_default_device(mx.cpu); from mlx_lm.lora import main; main()",
                "--model", model, "--train", "--data", data, "--fine-tune-type", kind, "--num-layers", 4, "--iters", 12,
                "--batch-size", 2, "--learning-rate", 1e-2, "--max-seq-length", 64, "--adapter-path", path)
        named = [part for kind, path in trained.items() for part in ("--adapter-path", f"{kind}={path}")]
        plain = Reference(model)
        with serving_of(omnibus, model, *named) as url:
            problems += compare(f"{model.name} with adapters loaded", served(url, "bench", plain), plain)
            for kind, path in trained.items():
                reference = Reference(model, path)
                problems += compare(f"{kind} of {model.name}", served(url, kind, reference), reference)
                change = distance(reference.logprobs(), plain.logprobs())
                if change < CHANGE:
                    problems.append(f"{kind} of {model.name}: changes nothing, {change:.1e}")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--omnibus", default="target/release/omnibus")
    parser.add_argument("--only", nargs="*", help="modes, or `adapters`")
    arguments = parser.parse_args()
    mx.set_default_device(mx.cpu)
    omnibus, problems = pathlib.Path(arguments.omnibus).resolve(), []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        base = folder / "floats"
        run(omnibus, "convert", "--hf-path", "omnibus-mini", "--mlx-path", base, "-d", "--dtype", "float32")
        for name, (flags, asked) in MODES.items():
            if not arguments.only or name in arguments.only:
                problems += round_trip(omnibus, folder, base, name, flags, asked)
        if not arguments.only or "adapters" in arguments.only:
            problems += adapters(omnibus, folder, base)
    print("\n".join(problems) or "all agree")
    sys.exit(bool(problems))


main()
