#!/usr/bin/env python3
"""Images, videos and sounds: the first token and the answer of cold ones, of repeated ones, and text streams beside them.

    OMNIBUS=target/release/omnibus python3 bench/media.py [--size small|published] [--image-size WxH] [--rounds 5]
        [--targets cpu|gpu] [--mlx-vlm PYTHON] [--vllm-mlx PYTHON] [--vllm-mlx-simple PYTHON] [--peer-rounds 2]
        [--only images,videos,sounds,streams] [--json FILE] [-- SERVE-ARGUMENTS…]

Models with random weights (media_models.py): `small` has towers of about 21 million parameters, in float32; `published` the
vision tower of Qwen3-VL-4B and the audio tower of Gemma 4 E2B, in bfloat16, for GPUs. An image has
640 × 480 pixels, unless --image-size says otherwise: the abstract of arXiv 2601.19139, which claims 28 times for repeated images,
names no size, and vllm-mlx's own image benchmark (its docs/benchmarks/image.md) goes to 1024x1024 and 1920x1080.
A video has 32 frames of 320 × 256, its longer cut 48, a sound 20 s. All rows but those after a restart are of a server with the
default settings, which has no cache on disk. Peers load the same folders and get the same requests, with the kinds of parts that
they read. vllm-mlx runs with --continuous-batching, because its simple engine refuses a second request
at a time; --vllm-mlx-simple is that one. Their PYTHON is a path or a name; PYTHONPATH and LD_LIBRARY_PATH reach all servers.
Needs the standard library and the release binary, and no network. A second table says where the time of our first tokens
goes, by the server's own metrics. With --targets, the exit status is 1 where one is missed.
"""

import argparse
import hashlib
import http.client
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import media_files as files
import media_models as models
from kill_engine import Server

ANSWER_TOKENS = 16
# How many times sooner than cold the first token of a repetition must be.
TARGETS = {
    "cpu": {"image": 10, "video": 10, "sound": 10},
    "gpu": {"image": 28, "video": 25, "sound": 10},
}


class Refused(Exception):
    """A server's answer that is none."""


class Client:
    """Requests to one server."""

    def __init__(self, host, port, model, video=files.video_part, audio=files.audio_part):
        # video, audio: make a part of a file's bytes, as this server takes it.
        self.host, self.port, self.model, self.video, self.audio = host, port, model, video, audio

    def get(self, path):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=900)
        connection.request("GET", path)
        return connection.getresponse().read().decode()

    def body(self, **fields):
        return json.dumps(dict(model=self.model, temperature=0) | fields).encode()

    def post(self, path, body):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=900)
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        return connection.getresponse()

    def seconds(self, before, part, tokens=1):
        """The time of an answer of so many tokens about a part behind some text, and the prompt's tokens."""
        content = [dict(type="text", text=before), part, dict(type="text", text="What is it?")]
        body = self.body(max_tokens=tokens, messages=[dict(role="user", content=content)])
        started = time.perf_counter()
        answer = self.post("/v1/chat/completions", body)
        text = answer.read()
        took = time.perf_counter() - started
        if answer.status != 200:
            raise Refused(f"{answer.status}: {text[:300].decode(errors='replace')}")
        usage = json.loads(text).get("usage") or {}
        return took, usage.get("prompt_tokens") or usage.get("input_tokens") or 0

    def stream(self, number, tokens):
        """The text of one stream of text, and when its tokens came."""
        prompt = f"{'a stop, ' * (number * 3)}and the bus number {number}"
        body = self.body(prompt=prompt, max_tokens=tokens, ignore_eos=True, stream=True, logit_bias=models.ascii_bias())
        answer = self.post("/v1/completions", body)
        text, times = "", []
        for line in answer:
            if line.startswith(b"data: {"):
                times.append(time.perf_counter())
                choices = json.loads(line[6:]).get("choices")
                text += (choices[0].get("text") or "") if choices else ""
        return text, times


class Metrics:
    """Where the time of a request goes, by the difference that it makes to the server's metrics."""

    SUMS = ("omnibus_e2e_seconds_sum", "omnibus_queue_seconds_sum", "omnibus_media_encode_seconds_total")

    def __init__(self, client):
        self.client, self.before = client, self.sums(client)

    @classmethod
    def sums(cls, client):
        lines = client.get("/metrics").splitlines()
        values = lambda name: (float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))
        return [sum(values(name)) for name in cls.SUMS]

    def spent(self, took):
        """Seconds of a request that took so many for one token. The queue has the encoder, which runs meanwhile."""
        whole, queue, encoder = (after - before for before, after in zip(self.before, self.sums(self.client)))
        return dict(prepare=took - whole, queue=queue - encoder, encode=encoder, prefill=whole - queue)


class Rows:
    """Times of kinds of requests, by name: the first token, and a whole answer."""

    def __init__(self, client, images, metrics=None):
        # images: `Images`. metrics: `Metrics`, where the server has them.
        self.client, self.images, self.metrics = client, images, metrics
        self.first, self.answer, self.tokens, self.spent = {}, {}, {}, {}

    def ask(self, row, before, part, tokens=1):
        metrics = self.metrics(self.client) if self.metrics and tokens == 1 else None
        took, self.tokens[row] = self.client.seconds(before, part, tokens)
        (self.first if tokens == 1 else self.answer).setdefault(row, []).append(took)
        if metrics:
            self.spent.setdefault(row, []).append(metrics.spent(took))

    def ask_both(self, row, before, parts):
        """One part for the first token, one for the answer: where it is repeated, the same."""
        self.ask(row, before, parts[0])
        self.ask(row, before, parts[-1], ANSWER_TOKENS)

    def together(self, row, before, parts):
        """All at once: the time until the last has its first token."""
        found = []
        def ask(part):
            try:
                found.append(self.client.seconds(before, part)[1])
            except (Refused, OSError) as failed:
                found.append(failed)
        took = all_at_once([lambda part=part: ask(part) for part in parts])
        failed = [one for one in found if not isinstance(one, int)]
        if failed:
            raise Refused(str(failed[0]))
        self.tokens[row] = found[0]
        self.first[row] = [took]

    def medians(self):
        middle = lambda times: statistics.median(times) if times else None
        return {row: (middle(self.first.get(row)), middle(self.answer.get(row)), self.tokens[row]) for row in self.tokens}

    def medians_spent(self):
        """Of each row, the medians of the parts of its first token's time."""
        return {row: {part: statistics.median(one[part] for one in found) for part in found[0]} for row, found in self.spent.items()}


def all_at_once(calls):
    threads = [threading.Thread(target=call) for call in calls]
    started = time.perf_counter()
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return time.perf_counter() - started


def images(rows, rounds, elsewhere="And now look."):
    png = rows.images.part
    rows.client.seconds("Warm up.", png(0))
    rows.client.seconds("Warm up.", png(0), ANSWER_TOKENS)
    for number in range(1, 1 + rounds):
        same, other = png(number), png(100 + number)
        rows.ask_both("image, cold", "Look.", [same, other])
        rows.ask_both("image again", "Look.", [same])
        rows.ask_both("image as BMP", "Look.", [rows.images.part(number, "bmp")])
        rows.ask_both("image as TIFF", "Look.", [rows.images.part(number, "tiff")])
        rows.ask_both("image in another conversation", elsewhere, [same])
    rows.together("8 images at once", "Look.", [png(200 + number) for number in range(8)])


def images_before(rows, rounds):
    for number in range(1, 1 + rounds):
        rows.client.seconds("Look.", rows.images.part(number))


def images_restarted(rows, rounds):
    rows.client.seconds("Warm up.", rows.images.part(0))
    for number in range(1, 1 + rounds):
        part = rows.images.part(number)
        rows.ask("image again after a restart", "Look.", part)
        rows.ask("image in another conversation after a restart", "Then look.", part)


def videos(rows, rounds):
    gif = lambda number, frames=32: rows.client.video(files.gif(number, frames))
    rows.client.seconds("Warm up.", gif(0))
    rows.client.seconds("Warm up.", gif(0), ANSWER_TOKENS)
    for number in range(1, 1 + rounds):
        rows.ask_both("video, cold", "Watch.", [gif(number), gif(100 + number)])
        rows.ask_both("video again", "Watch.", [gif(number)])
        rows.ask("video in another conversation", "And now watch.", gif(number))
        rows.ask("longer cut", "Watch.", gif(number, 48))
        rows.ask("longer cut, cold", "Watch.", gif(200 + number, 48))


def sounds(rows, rounds):
    wav = lambda number: rows.client.audio(files.wav(number))
    rows.client.seconds("Warm up.", wav(0))
    rows.client.seconds("Warm up.", wav(0), ANSWER_TOKENS)
    for number in range(1, 1 + rounds):
        rows.ask_both("sound, cold", "Listen.", [wav(number), wav(100 + number)])
        rows.ask_both("sound again", "Listen.", [wav(number)])
        rows.ask("sound in another conversation", "And now listen.", wav(number))


def sounds_before(rows, rounds):
    for number in range(1, 1 + rounds):
        rows.client.seconds("Listen.", rows.client.audio(files.wav(number)))


def sounds_restarted(rows, rounds):
    rows.client.seconds("Warm up.", rows.client.audio(files.wav(0)))
    for number in range(1, 1 + rounds):
        rows.ask("sound again after a restart", "Listen.", rows.client.audio(files.wav(number)))


# Of each kind: its model, its rows, and what is sent to the servers before and after a restart.
KINDS = {"images": (models.make_qwen, images, (images_before, images_restarted)), "videos": (models.make_qwen, videos, ()),
         "sounds": (models.make_gemma, sounds, (sounds_before, sounds_restarted))}


def streams(client, images, tokens):
    """Gaps of eight streams of text, alone and while 16 images are encoded, and whether the texts are the same."""
    def run(pictures):
        found, window = [None] * 8, []
        def read(number):
            found[number] = client.stream(number, tokens)
        def send():
            time.sleep(0.3)
            window.append(time.perf_counter())
            all_at_once([lambda part=part: client.seconds("Look.", part) for part in pictures])
            window.append(time.perf_counter())
        all_at_once([lambda number=number: read(number) for number in range(8)] + ([send] if pictures else []))
        started, ended = window or (0, float("inf"))
        gaps = [later - before for _, times in found for before, later in zip(times, times[1:]) if later > started and before < ended]
        outlasted = not window or min(times[-1] for _, times in found) >= ended
        return [text for text, _ in found], sorted(gaps), outlasted
    client.seconds("Warm up.", images.part(0))
    run([])
    texts, alone, _ = run([])
    beside_texts, beside, outlasted = run([images.part(300 + number) for number in range(16)])
    if not alone or not beside:
        raise SystemExit("the streams ended before the images were sent: raise --stream-tokens")
    quantiles = lambda gaps: {"p50": gaps[len(gaps) // 2] * 1e3, "p99": gaps[int(len(gaps) * 0.99)] * 1e3, "max": gaps[-1] * 1e3, "gaps": len(gaps)}
    return dict(alone=quantiles(alone), beside=quantiles(beside), same_texts=texts == beside_texts, outlasted=outlasted)


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def video_file(folder):
    """Parts with videos in files, for a server that reads them from nowhere else."""
    def part(data):
        file = folder / f"{hashlib.sha256(data).hexdigest()}.gif"
        file.write_bytes(data)
        return dict(type="video_url", video_url=dict(url=str(file)))
    return part


def vllm_mlx(*flags):
    """How vllm-mlx is started, and the parts that it reads: it ignores `input_audio`, and takes GIFs as videos by their type only."""
    command = lambda model: ["-m", "vllm_mlx.cli", "serve", str(model), "--mllm", *flags]
    video = lambda folder: lambda data: files.video_part(data, "video/gif")
    audio = lambda data: dict(type="audio_url", audio_url=dict(url=files.data_url("audio/wav", data)))
    return command, video, audio


# Of each peer: its arguments for a model, how its parts with videos are made in a folder, and those with sounds.
PEERS = {
    "mlx-vlm": (lambda model: ["-m", "mlx_vlm.server", "--model", str(model), "--log-level", "ERROR"], video_file, files.audio_part),
    "vllm-mlx": vllm_mlx("--continuous-batching"),
    "vllm-mlx-simple": vllm_mlx(),
}


class Peer:
    """Another server on the same folder."""

    def __init__(self, name, python, model):
        port = free_port()
        command, video, audio = PEERS[name]
        command = [*command(model), "--host", "127.0.0.1", "--port", str(port)]
        self.name, self.log = name, tempfile.TemporaryFile()
        environment = os.environ | dict(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
        self.process = subprocess.Popen([python, *command], stdout=self.log, stderr=self.log, cwd=model, env=environment)
        self.client = Client("127.0.0.1", port, str(model), video(model.parent), audio)
        for _ in range(900):
            if self.process.poll() is not None:
                raise Refused(f"ended at its start: {self.last_line()}")
            try:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
                connection.request("GET", "/v1/models")
                if connection.getresponse().status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.2)
        self.stop()
        raise Refused("did not start within 180 s")

    def last_line(self):
        self.log.seek(0)
        lines = self.log.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "without a word"

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def of_peer(name, python, model, images, asks, rounds):
    """A peer's medians, each step on a new server. A row that it refuses ends its step, with the reason."""
    found = {}
    for ask in asks:
        try:
            peer = Peer(name, python, model)
        except Refused as failed:
            print(f"{name}: {failed}", flush=True)
            break
        rows = Rows(peer.client, images)
        try:
            ask(rows, rounds)
        except (Refused, OSError, http.client.HTTPException) as failed:
            print(f"{name}: {failed}", flush=True)
        finally:
            peer.stop()
        found |= rows.medians()
    return found


def of_ours(model, cache, flags, images, asks, rounds):
    """Our medians, and those of the parts of the time. Each step has a new server: the first has the default settings, those
    around the restart one cache on disk."""
    found, spent = {}, {}
    ask, around_restart = asks
    for step, ask in enumerate([ask, *around_restart]):
        server = Server([str(model), *(["--cache-dir", str(cache)] if step > 0 else []), *flags])
        rows = Rows(Client(server.host, server.port, model.name), images, Metrics)
        try:
            ask(rows, rounds)
            # Files are written behind the answers.
            time.sleep(2)
        finally:
            server.stop()
        found |= rows.medians()
        spent |= rows.medians_spent()
    return found, spent


def milliseconds(seconds):
    return f"{seconds * 1e3:,.1f}" if seconds else "–"


def cold_of(row):
    if row == "longer cut":
        return "longer cut, cold"
    return next((f"{kind}, cold" for kind in ("image", "video", "sound") if row.startswith(kind)), None)


def print_table(ours, theirs):
    peers = "".join(f" {name}: first token, ms | cold / this | answer, ms | tokens |" for name in theirs)
    print(f"\n| | first token, ms | cold / this | answer, ms | prompt tokens |{peers}")
    print("| --- |" + " ---: |" * (4 + 4 * len(theirs)))
    for row in ours:
        cells = []
        for table in (ours, *theirs.values()):
            first, answer, tokens = table.get(row) or (None, None, None)
            cold = (table.get(cold_of(row)) or (None,))[0]
            ratio = f"{cold / first:.1f}×" if first and cold else "–"
            cells += [milliseconds(first), ratio, milliseconds(answer), f"{tokens or '–'}"]
        print(f"| {row} | " + " | ".join(cells) + " |", flush=True)


def print_spent(spent):
    """Where the time of our first tokens goes."""
    print("\n| | prepare and answer, ms | queue | encode | prefill |\n| --- | ---: | ---: | ---: | ---: |")
    for row, parts in spent.items():
        print(f"| {row} | " + " | ".join(f"{seconds * 1e3:,.1f}" for seconds in parts.values()) + " |", flush=True)


def missed(ours, theirs, kind):
    """The targets that are missed, each in a line."""
    found = []
    for what, times in TARGETS[kind].items():
        cold, again = ours.get(f"{what}, cold"), ours.get(f"{what} again")
        if cold and again and cold[0] / again[0] < times:
            found.append(f"a repeated {what} is {cold[0] / again[0]:.1f} times sooner than cold, not {times}")
        for name, table in theirs.items():
            peer = table.get(f"{what}, cold")
            if cold and peer and cold[0] > peer[0]:
                found.append(f"a cold {what} takes {cold[0] * 1e3:.0f} ms, {name}'s {peer[0] * 1e3:.0f}")
    return found


def main():
    arguments = sys.argv[1:]
    flags = arguments[arguments.index("--") + 1:] if "--" in arguments else []
    arguments = arguments[:arguments.index("--")] if "--" in arguments else arguments
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=models.SIZES, default="small")
    parser.add_argument("--image-size", metavar="WxH", type=files.Images.read, default=files.Images(), help="pixels of an image")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer-rounds", type=int, default=2)
    parser.add_argument("--only", default="images,videos,sounds,streams", help="parts to run, separated by commas")
    parser.add_argument("--targets", choices=TARGETS, help="exit with status 1 where one of these is missed")
    parser.add_argument("--objective-ms", type=float, default=100.0, help="of the streams beside images (--tpot-slo-ms)")
    parser.add_argument("--stream-tokens", type=int, default=2000)
    parser.add_argument("--mlx-vlm", metavar="PYTHON", help="a Python with mlx-vlm, to compare with")
    parser.add_argument("--vllm-mlx", metavar="PYTHON", help="a Python with vllm-mlx, to compare with")
    parser.add_argument("--vllm-mlx-simple", metavar="PYTHON", help="the same for its engine without batching")
    parser.add_argument("--json", metavar="FILE", help="write all numbers there, in seconds")
    options = parser.parse_args(arguments)
    peers = {name: python for name in PEERS if (python := getattr(options, name.replace("-", "_")))}
    images = options.image_size
    parts, ours, spent, theirs, beside = options.only.split(","), {}, {}, {name: {} for name in peers}, None
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        made = {}
        for make in (models.make_qwen, models.make_gemma):
            made[make] = folder / make.__name__.removeprefix("make_")
            make(made[make], models.SIZES[options.size])
        for part, (make, ask, around_restart) in KINDS.items():
            if part in parts:
                asks = (ask, around_restart)
                found, found_spent = of_ours(made[make], folder / f"cache-{part}", flags, images, asks, options.rounds)
                ours |= found
                spent |= found_spent
                for name, python in peers.items():
                    theirs[name] |= of_peer(name, python, made[make], images, (ask, *around_restart[1:]), options.peer_rounds)
                print_table(found, theirs)
                print_spent(found_spent)
        if "streams" in parts:
            server = Server([str(made[models.make_qwen]), "--tpot-slo-ms", str(options.objective_ms), *flags])
            try:
                beside = streams(Client(server.host, server.port, "qwen"), images, options.stream_tokens)
            finally:
                server.stop()
    if beside:
        for name, gaps in (("alone", beside["alone"]), ("beside 16 images", beside["beside"])):
            print(f"eight streams {name}: gaps p50 {gaps['p50']:.1f} ms, p99 {gaps['p99']:.1f}, largest {gaps['max']:.1f} ({gaps['gaps']} gaps)")
        same = "the same" if beside["same_texts"] else "NOT the same"
        print(f"objective {options.objective_ms:g} ms; texts {same} as alone; streams outlast the images: {beside['outlasted']}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(dict(ours=ours, spent=spent, theirs=theirs, streams=beside, size=options.size, image_size=str(images))))
    failed = missed(ours, theirs, options.targets) if options.targets else []
    if options.targets and beside and (not beside["same_texts"] or beside["beside"]["p99"] > options.objective_ms):
        failed.append("streams beside images miss their objective, or have other texts")
    for line in failed:
        print(f"missed: {line}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
