#!/usr/bin/env python3
"""Transcriptions of a Whisper with random weights: seconds for one recording, again, with times of words, and for eight at once.

    OMNIBUS=target/release/omnibus python3 bench/speech.py [--shape tiny|base] [--rounds 3]

The weights are float32, so that a window's answer goes on to its longest, 224 tokens: times are those of full windows. A
recording has 30 s. Needs numpy and the release binary.
"""

import argparse
import concurrent.futures
import io
import json
import os
import pathlib
import statistics
import struct
import sys
import tempfile
import time
import urllib.request
import wave

import numpy as np

import serving

SHAPES = {"tiny": (384, 6, 4), "base": (512, 8, 6)}
VOCAB, BANDS, POSITIONS, CONTEXT = 51865, 80, 1500, 448
END, LANGUAGES = 50257, 99
RATE, SECONDS, CLIENTS = 16000, 30, 8
# As many as published models of these sizes have.
ALIGNED_HEADS = 8


def tensors(width, layers):
    """Names in transformers' layout and random values."""
    rng = np.random.default_rng(0)

    def matrix(*shape):
        fan = int(np.prod(shape[1:]))
        return (rng.uniform(-1, 1, shape) * (3 / fan) ** 0.5).astype(np.float32)

    def norm(name):
        yield f"{name}.weight", np.ones(width, np.float32)
        yield f"{name}.bias", np.zeros(width, np.float32)

    def linear(name, inner, outer, bias=True):
        yield f"{name}.weight", matrix(outer, inner)
        if bias:
            yield f"{name}.bias", np.zeros(outer, np.float32)

    def attention(name):
        for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
            yield from linear(f"{name}.{part}", width, width, bias=part != "k_proj")
        yield from norm(f"{name}_layer_norm")

    for side, parts, rows in (("encoder", ["self_attn"], POSITIONS), ("decoder", ["self_attn", "encoder_attn"], CONTEXT)):
        root = f"model.{side}"
        yield f"{root}.embed_positions.weight", matrix(rows, width)
        yield from norm(f"{root}.layer_norm")
        for layer in range(layers):
            at = f"{root}.layers.{layer}"
            for part in parts:
                yield from attention(f"{at}.{part}")
            yield from linear(f"{at}.fc1", width, 4 * width)
            yield from linear(f"{at}.fc2", 4 * width, width)
            yield from norm(f"{at}.final_layer_norm")
    for number, inner in ((1, BANDS), (2, width)):
        yield f"model.encoder.conv{number}.weight", matrix(width, inner, 3)
        yield f"model.encoder.conv{number}.bias", np.zeros(width, np.float32)
    yield "model.decoder.embed_tokens.weight", matrix(VOCAB, width)


def ours(folder, shape, values):
    width, heads, layers = shape
    config = dict(
        model_type="whisper", vocab_size=VOCAB, d_model=width, num_mel_bins=BANDS, max_source_positions=POSITIONS,
        max_target_positions=CONTEXT, encoder_layers=layers, encoder_attention_heads=heads, encoder_ffn_dim=4 * width,
        decoder_layers=layers, decoder_attention_heads=heads, decoder_ffn_dim=4 * width, activation_function="gelu",
        eos_token_id=END, bos_token_id=END, pad_token_id=END)
    marks = ["endoftext", "startoftranscript", "en", *(f"l{i}" for i in range(1, LANGUAGES)), "translate", "transcribe",
             "startoflm", "startofprev", "nospeech", "notimestamps", *(f"{i * 0.02:.2f}" for i in range(1501))]
    words = [f"t{i}" for i in range(END)] + [f"<|{mark}|>" for mark in marks]
    special = [dict(id=i, content=word, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
               for i, word in enumerate(words) if i >= END]
    tokenizer = dict(
        version="1.0", truncation=None, padding=None, added_tokens=special, normalizer=None, post_processor=None,
        decoder=None, pre_tokenizer=dict(type="WhitespaceSplit"),
        model=dict(type="WordLevel", vocab={word: i for i, word in enumerate(words)}, unk_token="t0"))
    extractor = dict(feature_extractor_type="WhisperFeatureExtractor", feature_size=BANDS, sampling_rate=RATE,
                     hop_length=160, chunk_length=30, n_fft=400)
    half = [[layer, head] for layer in range(layers // 2, layers) for head in range(heads)]
    generation = dict(eos_token_id=END, is_multilingual=True, alignment_heads=half[:ALIGNED_HEADS])
    header, at = {}, 0
    for name, value in values.items():
        header[name] = dict(dtype="F32", shape=list(value.shape), data_offsets=[at, at + value.nbytes])
        at += value.nbytes
    text = json.dumps(header).encode()
    folder.mkdir()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for value in values.values():
            file.write(value.tobytes())
    for name, body in (("config", config), ("tokenizer", tokenizer), ("preprocessor_config", extractor),
                       ("generation_config", generation)):
        (folder / f"{name}.json").write_text(json.dumps(body))


def sound(seed):
    return np.random.default_rng(seed).uniform(-0.3, 0.3, RATE * SECONDS).astype(np.float32)


def wav(samples):
    data = io.BytesIO()
    with wave.open(data, "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes((samples * 32767).astype("<i2").tobytes())
    return data.getvalue()


SEGMENTS = [("timestamp_granularities[]", "segment")]
WORDS = [*SEGMENTS, ("timestamp_granularities[]", "word")]


def transcribe(url, file, times=SEGMENTS):
    fields = [("temperature", "0.000001"), ("language", "en"), ("response_format", "verbose_json"), *times]
    body = b"".join(f'--x\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
                    for name, value in fields)
    body += b'--x\r\ncontent-disposition: form-data; name="file"; filename="a.wav"\r\n\r\n' + file + b"\r\n--x--\r\n"
    request = urllib.request.Request(
        f"{url}/v1/audio/transcriptions", body, {"content-type": "multipart/form-data; boundary=x"})
    began = time.monotonic()
    answer = json.load(urllib.request.urlopen(request))
    windows = len({segment["seek"] for segment in answer["segments"]})
    tokens = sum(len(segment["tokens"]) for segment in answer["segments"])
    return dict(seconds=time.monotonic() - began, windows=windows, tokens=tokens)


def per_window(results):
    return statistics.median(result["seconds"] / max(result["windows"], 1) for result in results)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="base")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    binary = os.environ.get("OMNIBUS", "target/release/omnibus")
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        shape = SHAPES[options.shape]
        values = dict(tensors(shape[0], shape[2]))
        ours(work / "ours", shape, values)
        server = serving.omnibus(binary, work / "ours")
        with open(work / "log", "w") as log, serving.serving(server, log) as running:
            transcribe(running.url, wav(sound(1000)))
            cold, again, words = [], [], []
            for round in range(options.rounds):
                file = wav(sound(round))
                cold.append(transcribe(running.url, file))
                again.append(transcribe(running.url, file))
                words.append(transcribe(running.url, file, WORDS))
            files = [wav(sound(100 + client)) for client in range(CLIENTS)]
            began = time.monotonic()
            with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
                together = list(pool.map(lambda file: transcribe(running.url, file), files))
            took = time.monotonic() - began
        windows = sum(result["windows"] for result in together)
        print(f"one recording: {per_window(cold):.2f} s a window; heard before: {per_window(again):.2f} s; "
              f"with times of words: {per_window(words):.2f} s")
        print(f"{CLIENTS} recordings at once: {took / windows:.2f} s a window ({windows} windows in {took:.1f} s)")
        print(f"tokens a window: {cold[0]['tokens'] / cold[0]['windows']:.0f}")


if __name__ == "__main__":
    sys.exit(main())
