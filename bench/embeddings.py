#!/usr/bin/env python3
"""Vectors of many texts: one call of `/v1/embeddings` beside sentence-transformers on as many threads, in turns.

    cargo xtask bench embeddings [--rounds 5] [--texts 256] [--threads 2] [--base] -- MODEL_DIRECTORY

The model is one that sentence-transformers reads, such as all-MiniLM-L6-v2. `--base` adds a BERT of base size with random
weights and this model's tokenizer. Texts have 16 to 256 tokens, most of them few. Needs sentence-transformers, and the release
binary as OMNIBUS. Prints seconds of both, their ratio, and the largest difference of two vectors.
"""

import argparse
import base64
import json
import os
import pathlib
import random
import shutil
import statistics
import struct
import sys
import tempfile
import time
import urllib.request

import serving

WORDS = "the bus stops at market square and river seine is in paris capital of france city large small blue train runs".split()
BASE = dict(hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072)


def texts(count):
    """Lengths are even on a logarithmic scale."""
    chance = random.Random(1)
    lengths = [round(14 * (240 / 14) ** chance.random()) for _ in range(count)]
    return [" ".join(chance.choice(WORDS) for _ in range(length)) for length in lengths]


def of_base_size(folder, model):
    """A BERT of random weights with the other files of a model."""
    from transformers import BertConfig, BertModel

    shutil.copytree(model, folder, ignore=shutil.ignore_patterns("*.safetensors", "config.json"), dirs_exist_ok=True)
    vocabulary = json.loads((model / "config.json").read_text())["vocab_size"]
    BertModel(BertConfig(vocab_size=vocabulary, **BASE)).save_pretrained(folder)
    pooling = next(folder.glob("*_Pooling/config.json"))
    modes = json.loads(pooling.read_text())
    pooling.write_text(json.dumps(modes | {"word_embedding_dimension": BASE["hidden_size"]}))
    return folder


def vectors(url, inputs):
    body = json.dumps({"input": inputs, "encoding_format": "base64"}).encode()
    request = urllib.request.Request(f"{url}/v1/embeddings", body, {"content-type": "application/json"})
    since = time.perf_counter()
    with urllib.request.urlopen(request, timeout=600) as response:
        answer = json.load(response)
    seconds = time.perf_counter() - since
    raw = [base64.b64decode(item["embedding"]) for item in answer["data"]]
    return seconds, [struct.unpack(f"<{len(vector) // 4}f", vector) for vector in raw], answer["usage"]["total_tokens"]


def compare(name, model, arguments, log):
    from sentence_transformers import SentenceTransformer

    peer = SentenceTransformer(str(model), device="cpu")
    inputs = texts(arguments.texts)
    command = [os.environ.get("OMNIBUS", "target/release/omnibus"), "serve", str(model)]
    with serving.serving(serving.Server("omnibus", command, str(model)), log) as running:
        def ours():
            return vectors(running.url, inputs)

        def theirs():
            since = time.perf_counter()
            made = peer.encode(inputs, batch_size=32)
            return time.perf_counter() - since, made

        (_, got, tokens), (_, expected) = ours(), theirs()
        differences = (abs(a - b) for mine, other in zip(got, expected) for a, b in zip(mine, other))
        print(f"{name}: {len(inputs)} texts, {tokens} tokens, largest difference {max(differences):.1e}")
        rounds = [(ours()[0], theirs()[0]) for _ in range(arguments.rounds)]
    mine, other = (statistics.median(times) for times in zip(*rounds))
    ratio = statistics.median(other / mine for mine, other in rounds)
    print(f"| {name} | {mine:.2f} s | {other:.2f} s | {tokens / mine:,.0f} | {ratio:.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--texts", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--base", action="store_true", help="a BERT of base size, too")
    arguments = parser.parse_args()
    import torch

    torch.set_num_threads(arguments.threads)
    os.environ["OMNIBUS_CPU_THREADS"] = str(arguments.threads)
    with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "log"), "w+", encoding="utf-8") as log:
        compare(arguments.model.name, arguments.model, arguments, log)
        if arguments.base:
            base = of_base_size(pathlib.Path(folder) / "base", arguments.model)
            compare("BERT base", base, arguments, log)


if __name__ == "__main__":
    sys.exit(main())
