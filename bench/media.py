#!/usr/bin/env python3
"""Images: the first token of a cold one, of a repeated one, after a restart, of eight at once, and streams beside them.

    OMNIBUS=target/release/omnibus python3 bench/media.py [--tower small|so400m] [--rounds 5] [--mlx-vlm PYTHON]
                                                          [-- SERVE-ARGUMENTS…]

A LLaVA with random weights: `small` has a SigLIP tower of 21 million parameters (576 features an image) and a Llama of 4
million, in float32; `so400m` the published tower of 430 million (729 features) and a Llama of 420 million, in bfloat16, for
GPUs. Times are of whole answers of one token, which include decoding and resizing the file. With --mlx-vlm, its server runs the same
requests in turns with ours, on the same weights. Needs numpy and Pillow, and the release binary.
"""

import argparse
import base64
import http.client
import io
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import numpy
from PIL import Image

from kill_engine import Server

SEE = pathlib.Path(__file__).resolve().parent.parent / "training/vision/omnibus-see"
MODELS = {
    "small": dict(
        dtype="float32",
        vision=dict(hidden_size=384, intermediate_size=1536, num_hidden_layers=12, num_attention_heads=6, image_size=384, patch_size=16),
        text=dict(hidden_size=256, intermediate_size=704, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=64)),
    "so400m": dict(
        dtype="bfloat16",
        vision=dict(hidden_size=1152, intermediate_size=4304, num_hidden_layers=27, num_attention_heads=16, image_size=384, patch_size=14),
        text=dict(hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16, num_key_value_heads=8, head_dim=128)),
}


def shapes(vision, texts):
    """Names and shapes of all weights."""
    hidden, width, text = vision["hidden_size"], vision["intermediate_size"], texts["hidden_size"]
    patch, queries = vision["patch_size"], texts["num_attention_heads"] * texts["head_dim"]
    tower, model = "vision_tower.vision_model.", "language_model.model."
    yield tower + "embeddings.patch_embedding.weight", (hidden, 3, patch, patch)
    yield tower + "embeddings.patch_embedding.bias", (hidden,)
    yield tower + "embeddings.position_embedding.weight", ((vision["image_size"] // patch) ** 2, hidden)
    for name in ("weight", "bias"):
        yield f"{tower}post_layernorm.{name}", (hidden,)
    for layer in range(vision["num_hidden_layers"]):
        at = f"{tower}encoder.layers.{layer}."
        linears = {f"self_attn.{name}_proj": (hidden, hidden) for name in ("q", "k", "v", "out")}
        linears |= {"mlp.fc1": (width, hidden), "mlp.fc2": (hidden, width)}
        for name, shape in linears.items():
            yield f"{at}{name}.weight", shape
            yield f"{at}{name}.bias", shape[:1]
        for norm in ("layer_norm1", "layer_norm2"):
            yield f"{at}{norm}.weight", (hidden,)
            yield f"{at}{norm}.bias", (hidden,)
    for name, shape in (("linear_1", (text, hidden)), ("linear_2", (text, text))):
        yield f"multi_modal_projector.{name}.weight", shape
        yield f"multi_modal_projector.{name}.bias", shape[:1]
    yield model + "embed_tokens.weight", (384, text)
    yield model + "norm.weight", (text,)
    keys = texts["num_key_value_heads"] * texts["head_dim"]
    for layer in range(texts["num_hidden_layers"]):
        at, mlp = f"{model}layers.{layer}.", texts["intermediate_size"]
        for name, shape in {"self_attn.q_proj": (queries, text), "self_attn.k_proj": (keys, text), "self_attn.v_proj": (keys, text), "self_attn.o_proj": (text, queries),
                            "mlp.gate_proj": (mlp, text), "mlp.up_proj": (mlp, text), "mlp.down_proj": (text, mlp)}.items():
            yield f"{at}{name}.weight", shape
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{at}{norm}.weight", (text,)


def stored(values, dtype):
    """The bytes of float32 values in a dtype of safetensors."""
    return values.tobytes() if dtype == "F32" else (values.view(numpy.uint32) >> 16).astype(numpy.uint16).tobytes()


def make_model(folder, vision, text, dtype):
    """A model directory with random weights, and the tokenizer of the repository's small model that sees."""
    shutil.copytree(SEE, folder)
    size, patch = vision["image_size"], vision["patch_size"]
    config = json.loads((folder / "config.json").read_text())
    config["vision_config"] |= vision
    config["text_config"] |= text
    config |= dict(image_seq_length=(size // patch) ** 2, torch_dtype=dtype)
    (folder / "config.json").write_text(json.dumps(config))
    processor = json.loads((folder / "preprocessor_config.json").read_text())
    processor["size"] = dict(height=size, width=size)
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    prompts = json.loads((folder / "processor_config.json").read_text())
    (folder / "processor_config.json").write_text(json.dumps(prompts | dict(patch_size=patch)))
    rng, header, data = numpy.random.default_rng(7), {}, io.BytesIO()
    kind = {"float32": "F32", "bfloat16": "BF16"}[dtype]
    for name, shape in shapes(vision, text):
        is_norm = "norm" in name and name.endswith("weight")
        values = numpy.ones(shape, "<f4") if is_norm else rng.standard_normal(shape, "<f4") * numpy.float32(0.02)
        first = data.tell()
        data.write(stored(values, kind))
        header[name] = dict(dtype=kind, shape=shape, data_offsets=[first, data.tell()])
    head = json.dumps(header | {"__metadata__": {"format": "pt"}}).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        file.write(data.getbuffer())


def picture(number):
    """A photo-like picture: smooth noise."""
    rng = numpy.random.default_rng(number)
    small = rng.integers(0, 256, (24, 32, 3), dtype=numpy.uint8)
    return Image.fromarray(small).resize((640, 480), Image.Resampling.BICUBIC)


def url(image, kind="PNG"):
    data = io.BytesIO()
    image.save(data, kind)
    return f"data:image/{kind.lower()};base64," + base64.b64encode(data.getvalue()).decode()


class Client:
    """Requests to one address."""

    def __init__(self, host, port, model):
        self.host, self.port, self.model = host, port, model

    def seconds(self, before, image):
        """The time of an answer of one token about an image behind some text."""
        content = [{"type": "text", "text": before}, {"type": "image_url", "image_url": {"url": image}}, {"type": "text", "text": "What is it?"}]
        body = dict(model=self.model, max_tokens=1, temperature=0, messages=[{"role": "user", "content": content}])
        connection = http.client.HTTPConnection(self.host, self.port, timeout=600)
        started = time.perf_counter()
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            sys.exit(f"{answer.status}: {text[:500]}")
        return time.perf_counter() - started

    def gaps(self, tokens, found):
        """Times between the tokens of one stream of text."""
        body = dict(model=self.model, prompt="one two three", max_tokens=tokens, temperature=0, ignore_eos=True, stream=True)
        connection = http.client.HTTPConnection(self.host, self.port, timeout=600)
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        last = None
        for line in connection.getresponse():
            if line.startswith(b"data: {"):
                now = time.perf_counter()
                if last is not None:
                    found.append(now - last)
                last = now


def all_at_once(calls):
    threads = [threading.Thread(target=call) for call in calls]
    started = time.perf_counter()
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return time.perf_counter() - started


def images(client, rounds, first):
    """Seconds of a cold image, the same again, as another file, elsewhere in a prompt, and of eight at once."""
    found = {name: [] for name in ("cold", "again", "other format", "elsewhere")}
    client.seconds("Warm up.", url(picture(first)))
    for number in range(first + 1, first + 1 + rounds):
        image = picture(number)
        found["cold"].append(client.seconds("Look.", url(image)))
        found["again"].append(client.seconds("Look.", url(image)))
        found["other format"].append(client.seconds("Look.", url(image, "BMP")))
        found["elsewhere"].append(client.seconds("And now look.", url(image)))
    medians = {name: statistics.median(times) for name, times in found.items()}
    pictures = [url(picture(first + 100 + number)) for number in range(8)]
    medians["eight at once"] = all_at_once([lambda image=image: client.seconds("Look.", image) for image in pictures])
    return medians


def streams(client, first):
    """The 99th percentile and the largest of the gaps of eight streams, alone and while 16 images come."""
    result = {}
    for name, count in (("alone", 0), ("beside 16 images", 16)):
        gaps = []
        pictures = [url(picture(first + number)) for number in range(count)]
        calls = [lambda: client.gaps(400, gaps) for _ in range(8)]

        def send():
            time.sleep(0.3)
            all_at_once([lambda image=image: client.seconds("Look.", image) for image in pictures])

        all_at_once(calls + [send])
        gaps.sort()
        result[name] = (gaps[int(len(gaps) * 0.99)] * 1e3, gaps[-1] * 1e3)
    return result


def row(name, ours, cold, theirs=None):
    cells = [f"{ours * 1e3:.1f}", f"{cold / ours:.1f}×", f"{theirs * 1e3:.1f}" if theirs else "–"]
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


def peer(python, model):
    """mlx-vlm's server, its process and client."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [python, "-m", "mlx_vlm.server", "--host", "127.0.0.1", "--port", str(port), "--model", str(model), "--log-level", "ERROR"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=model)
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return process, Client("127.0.0.1", port, str(model))
        except OSError:
            time.sleep(0.2)
    sys.exit("mlx-vlm's server did not start")


def main():
    arguments = sys.argv[1:]
    flags = arguments[arguments.index("--") + 1:] if "--" in arguments else []
    arguments = arguments[:arguments.index("--")] if "--" in arguments else arguments
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tower", choices=MODELS, default="small")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mlx-vlm", metavar="PYTHON", help="a Python with mlx-vlm, to compare with")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        model = folder / "model"
        make_model(model, **MODELS[options.tower])
        serve = [str(model), "--cache-dir", str(folder / "cache"), *flags]
        server = Server(serve)
        ours = images(Client(server.host, server.port, "model"), options.rounds, 0)
        beside = streams(Client(server.host, server.port, "model"), 300)
        time.sleep(3)
        server.stop()
        server = Server(serve)
        client = Client(server.host, server.port, "model")
        client.seconds("Warm up.", url(picture(1000)))
        restarted = [client.seconds("Look.", url(picture(1 + number))) for number in range(options.rounds)]
        moved = [client.seconds("Then look.", url(picture(1 + number))) for number in range(options.rounds)]
        ours["again after a restart"] = statistics.median(restarted)
        ours["elsewhere after a restart"] = statistics.median(moved)
        server.stop()
        theirs = {}
        if options.mlx_vlm:
            process, client = peer(options.mlx_vlm, model)
            try:
                theirs = images(client, options.rounds, 0)
            except SystemExit as failed:
                print(f"mlx-vlm: {failed}")
            finally:
                process.send_signal(signal.SIGTERM)
        print("| image | omnibus, ms | cold / this | mlx-vlm, ms |\n| --- | ---: | ---: | ---: |")
        for name, seconds in ours.items():
            row(name, seconds, ours["cold"], theirs.get(name))
        for name, (most, largest) in beside.items():
            print(f"eight streams {name}: gaps p99 {most:.1f} ms, largest {largest:.1f} ms")


if __name__ == "__main__":
    main()
