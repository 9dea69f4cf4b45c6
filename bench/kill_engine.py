#!/usr/bin/env python3
"""Recovery from an engine crash: SIGKILL for the engine process while streams run. Texts must equal undisturbed ones.

    cargo xtask bench kill_engine [--streams 16] [--tokens 256] [--kills 1] [-- SERVE-ARGUMENTS…]

Prints the longest pause between two chunks of a stream, with and without a kill. Needs Python and the release binary.
"""

import argparse
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

BINARY = os.environ.get("OMNIBUS") or "target/release/omnibus"


class Server:
    """`omnibus serve` on a free port."""

    def __init__(self, arguments=()):
        command = [BINARY, "serve", "--port", "0", "--log", "off", *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        lines = []
        for line in self.process.stderr:
            lines.append(line)
            found = re.search(r"http://([^:/\s]+):(\d+)", line)
            if found:
                self.host, self.port = found[1], int(found[2])
                return
        sys.exit("the server did not start: " + "".join(lines))

    def get(self, path):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=600)
        connection.request("GET", path)
        return connection.getresponse().read().decode()

    def engine(self):
        return json.loads(self.get("/v1/status"))["engine"]

    def stop(self):
        self.process.terminate()
        return self.process.wait(60)


class Stream(threading.Thread):
    """One streamed completion: its text, and the longest time between two of its chunks."""

    def __init__(self, server, number, tokens):
        super().__init__()
        self.server, self.text, self.pause, self.begun, self.error = server, "", 0.0, threading.Event(), None
        self.body = {
            "prompt": f"{'a stop, ' * (number * 3)}and the bus number {number}",
            "max_tokens": tokens,
            "temperature": 0.9 if number % 2 else 0,
            "seed": number,
            "ignore_eos": True,
            "stream": True,
        }

    def run(self):
        try:
            self.read()
        except (OSError, ValueError, http.client.HTTPException) as error:
            self.error = error
        self.begun.set()

    def read(self):
        connection = http.client.HTTPConnection(self.server.host, self.server.port, timeout=600)
        connection.request("POST", "/v1/completions", json.dumps(self.body), {"content-type": "application/json"})
        last = None
        for line in connection.getresponse():
            if not line.startswith(b"data: {"):
                continue
            chunk = json.loads(line[6:])
            if "error" in chunk:
                raise ValueError(chunk["error"]["message"])
            if chunk["choices"]:
                self.text += chunk["choices"][0].get("text") or ""
            now = time.monotonic()
            self.pause = max(self.pause, now - last if last else 0.0)
            last = now
            self.begun.set()


def run(server, options, disturb):
    """The streams of one run, and the seconds until the last one ended."""
    streams = [Stream(server, number, options.tokens) for number in range(options.streams)]
    since = time.monotonic()
    for stream in streams:
        stream.start()
    for stream in streams:
        stream.begun.wait()
    disturb()
    for stream in streams:
        stream.join()
    return streams, time.monotonic() - since


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--kills", type=int, default=1)
    parser.add_argument("arguments", nargs="*", help="for `omnibus serve`")
    options = parser.parse_args()
    server = Server(options.arguments)

    def kill():
        for _ in range(options.kills):
            process = server.engine()["process"]
            os.kill(process, signal.SIGKILL)
            while server.engine()["process"] in (process, 0):
                time.sleep(0.01)

    run(server, options, lambda: None)
    calm, calm_s = run(server, options, lambda: None)
    killed, killed_s = run(server, options, kill)
    restarts = server.engine()["engine_restarts_total"]
    status = server.stop()
    wrong = [i for i, (one, other) in enumerate(zip(calm, killed)) if other.error or one.text != other.text]
    tokens = options.streams * options.tokens
    print(f"undisturbed: {tokens / calm_s:8.1f} tokens/s, longest pause {max(s.pause for s in calm):.3f} s")
    print(f"killed:      {tokens / killed_s:8.1f} tokens/s, longest pause {max(s.pause for s in killed):.3f} s")
    print(f"{restarts} restarts, {options.streams - len(wrong)} of {options.streams} texts equal, exit code {status}")
    for number in wrong:
        print(f"stream {number}: {killed[number].error or 'the text differs'}")
    sys.exit(1 if wrong or status or restarts != options.kills else 0)


if __name__ == "__main__":
    main()
