#!/usr/bin/env python3
"""A large batch: killed and resumed, its speed beside the best closed loop, and what it costs a chat in the same server.

    cargo xtask bench batch_lines [--lines 100000] [--kills 3] [--rounds 3]

1. `omnibus batch` with a server of its own is killed (SIGKILL, with its server) at random shares of the file and started again.
   In the end each line must be there once, and each must have been answered.
2. In turns, one server gets a batch and closed loops of as many requests of that shape; tokens a second are those of output.
3. A chat streams alone, and beside a batch in the same server (`/v1/batches`); gaps are those between its pieces of text.
"""

import collections
import contextlib
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import serving
from serving import log_line

INPUT_WORDS = 16
OUTPUT_TOKENS = 16
STREAMS = (16, 32, 64, 128)
CHAT_TOKENS = 512
CHATS = 4
# What the servers of a benchmark call their model, and what `omnibus batch` calls the embedded one.
SERVED, EMBEDDED = "bench", "omnibus-mini"


def lines(count, model, rng):
    """Requests of random words, as JSON lines."""
    for number in range(count):
        body = {"model": model, "max_tokens": OUTPUT_TOKENS, "temperature": 0, "ignore_eos": True,
                "messages": [{"role": "user", "content": serving.prose(rng, INPUT_WORDS)}]}
        yield json.dumps({"custom_id": f"line-{number}", "method": "POST", "url": "/v1/chat/completions", "body": body})


def write(path, count, model, seed):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in lines(count, model, random.Random(seed)))


def finished(path):
    """How many lines are in the file of results."""
    if not path.exists():
        return 0
    with open(path, "rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


def killed_and_resumed(options, folder):
    """Runs the batch, with kills, and returns what became of its lines."""
    given, results = folder / "requests.jsonl", folder / "results.jsonl"
    write(given, options.lines, EMBEDDED, seed=1)
    command = [str(options.omnibus), "batch", "-i", str(given), "-o", str(results)]
    rng = random.Random(2)
    stops = sorted(rng.randrange(options.lines // 20, options.lines * 9 // 10) for _ in range(options.kills))
    since = time.monotonic()
    for stop in stops:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        while process.poll() is None and finished(results) < stop:
            time.sleep(0.2)
        if process.poll() is not None:
            sys.exit(f"the batch ended by itself with {process.returncode} before line {stop}")
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        log_line(f"killed at {finished(results)} lines")
    ended = subprocess.run([*command, "--json"], check=False, capture_output=True, text=True)
    seconds = time.monotonic() - since
    seen, failed = collections.Counter(), 0
    with open(results, encoding="utf-8") as file:
        for line in map(json.loads, file):
            seen[line["custom_id"]] += 1
            failed += line["response"]["status_code"] != 200
    outcome = {"lines": options.lines, "kills": len(stops), "seconds": seconds, "exit": ended.returncode,
               "distinct": len(seen), "repeated": sum(count - 1 for count in seen.values()), "failed": failed,
               "last_run": json.loads(ended.stdout)}
    if (len(seen), outcome["repeated"], failed, ended.returncode) != (options.lines, 0, 0, 0):
        sys.exit(f"lines are missing, repeated or failed: {outcome}")
    return outcome


def batch_rate(options, running, given, results):
    """Tokens a second of a batch at a running server."""
    results.unlink(missing_ok=True)
    command = [str(options.omnibus), "batch", "-i", str(given), "-o", str(results), "--url", running.url, "--json"]
    since = time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    seconds = time.monotonic() - since
    with open(results, encoding="utf-8") as file:
        tokens = sum(json.loads(line)["response"]["body"]["usage"]["completion_tokens"] for line in file)
    return tokens / seconds


def closed_rate(options, running, streams):
    """Tokens a second of a closed loop with that many streams."""
    command = [str(options.omnibus), "bench", "serve", "--url", f"{running.url}/v1", "--num-prompts",
               str(options.requests), "--input-len", str(INPUT_WORDS), "--output-len", str(OUTPUT_TOKENS),
               "--concurrency", str(streams), "--ignore-eos", "--json", "--seed", str(time.monotonic_ns() % 2**31)]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return report["output_throughput"]


def rates(options, folder, log):
    """Rows of tokens a second: of the batch, and of each closed loop, by round."""
    given, results = folder / "some.jsonl", folder / "some-results.jsonl"
    rounds = collections.defaultdict(list)
    with serving.serving(serving.omnibus(options.omnibus, None), log) as running:
        for number in range(options.rounds + 1):
            write(given, options.requests, SERVED, seed=100 + number)
            found = {"batch": batch_rate(options, running, given, results)}
            found |= {streams: closed_rate(options, running, streams) for streams in STREAMS}
            log_line(f"round {number}: {found}")
            # The first round warms up.
            if number:
                for name, rate in found.items():
                    rounds[name].append(rate)
    return rounds


def upload(running, path):
    """The id of a file for a batch."""
    boundary = "batch-lines"
    head = (f"--{boundary}\r\ncontent-disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--{boundary}\r\n"
            f"content-disposition: form-data; name=\"file\"; filename=\"lines.jsonl\"\r\n\r\n")
    body = head.encode() + path.read_bytes() + f"\r\n--{boundary}--\r\n".encode()
    return call(running, "POST", "/v1/files", body, f"multipart/form-data; boundary={boundary}")["id"]


def call(running, method, path, body=None, kind="application/json"):
    with contextlib.closing(serving.connect(running.url, 600)) as connection:
        connection.request(method, path, body, {"content-type": kind})
        response = connection.getresponse()
        text = response.read()
    if response.status != 200:
        sys.exit(f"{method} {path}: {response.status} {text[:500]!r}")
    return json.loads(text)


def chat_gaps(server, running, rng):
    """Seconds between the pieces of text of one streamed answer."""
    text = serving.prose(rng, INPUT_WORDS)
    body = serving.streaming(server, CHAT_TOKENS, ignore_eos=True, messages=[{"role": "user", "content": text}])
    (answer,) = serving.completed([serving.send(running.url, body, "/v1/chat/completions")])
    return [after - before for before, after in zip(answer.times, answer.times[1:])]


def beside_a_batch(options, folder, log):
    """p50 and p95 of the gaps of a chat, alone and beside a batch, by round; and the batch's lines a second meanwhile."""
    given = folder / "beside.jsonl"
    write(given, options.lines, SERVED, seed=5)
    rng, rounds = random.Random(6), []
    server = serving.omnibus(options.omnibus, None, "--state-dir", folder / "state")
    with serving.serving(server, log) as running:
        chat_gaps(server, running, rng)
        for _ in range(options.rounds):
            alone = [gap for _ in range(CHATS) for gap in chat_gaps(server, running, rng)]
            wanted = {"input_file_id": upload(running, given), "endpoint": "/v1/chat/completions",
                      "completion_window": "24h"}
            batch = call(running, "POST", "/v1/batches", json.dumps(wanted))["id"]
            done = lambda: call(running, "GET", f"/v1/batches/{batch}")["request_counts"]["completed"]
            serving.wait_until(lambda: done() > 0, 120, "the batch has a result")
            first, since = done(), time.monotonic()
            beside = [gap for _ in range(CHATS) for gap in chat_gaps(server, running, rng)]
            meanwhile = (done() - first) / (time.monotonic() - since)
            call(running, "POST", f"/v1/batches/{batch}/cancel")
            over = lambda: call(running, "GET", f"/v1/batches/{batch}")["status"] == "cancelled"
            serving.wait_until(over, 120, "the batch is cancelled")
            row = {name: {at: serving.quantile(gaps, at) for at in (0.5, 0.95)}
                   for name, gaps in (("alone", alone), ("beside", beside))}
            rounds.append(row | {"lines_per_s": meanwhile})
            log_line(f"chat: {rounds[-1]}")
    return rounds


def main():
    parser = serving.arguments(__doc__, lines=(100_000, "lines of the batch"), kills=(3, "kills of it"),
                               requests=(2_000, "requests of a measurement of speed"), rounds=(3, "rounds of it"))
    options = serving.begin(parser)
    with tempfile.TemporaryDirectory() as folder, open(options.out / "batch_lines.log", "w") as log:
        folder = pathlib.Path(folder)
        speed = rates(options, folder, log)
        chat = beside_a_batch(options, folder, log)
        outcome = killed_and_resumed(options, folder)
    best = max(STREAMS, key=lambda streams: statistics.median(speed[streams]))
    ratio = statistics.median(batch / loop for batch, loop in zip(speed["batch"], speed[best]))
    rows = [["batch" if name == "batch" else f"closed loop, {name} streams", f"{statistics.median(found):.0f}"]
            for name, found in speed.items()]
    gaps = [[name, *(f"{1e3 * statistics.median(row[name][at] for row in chat):.2f} ms" for at in (0.5, 0.95))]
            for name in ("alone", "beside")]
    slower = statistics.median(row["beside"][0.95] / row["alone"][0.95] for row in chat)
    tables = [serving.table(["load", "tokens/s"], rows), serving.table(["chat", "p50 gap", "p95 gap"], gaps)]
    remarks = (f"{outcome['lines']:,} lines, killed {outcome['kills']} times: each line is there once, in "
               f"{outcome['seconds']:.0f} s. The batch has {ratio:.2f} of the best closed loop; a chat's p95 gap beside "
               f"a batch is {slower:.2f} of that alone. Medians of {options.rounds} rounds in turns.")
    results = {"rates": speed, "chat": chat, "killed": outcome}
    serving.finish(__file__, options, results, tables, remarks)


if __name__ == "__main__":
    main()
