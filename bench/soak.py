#!/usr/bin/env python3
"""Soak test: random traffic against the real server for some minutes, with disconnects, bad requests and crashes.

    cargo xtask soak [--minutes 5] [--seed N] [-- SERVE-ARGUMENTS…]

Clients stream, disconnect, cancel by id, and send invalid requests; the engine process is killed at random times. A
prompt must always get the same text; only a request that the engine was killed twice under may be given up, as one that
ends the engine. Between rounds, when the server is idle, it must hold no blocks and no requests,
and no more file handles and memory than after the first round. Prints the seed and a summary; exits with 1 on a failed
check.
"""

import argparse
import collections
import http.client
import json
import os
import random
import signal
import sys
import threading
import time

from kill_engine import Server

CLIENTS = 8
REQUESTS_PER_ROUND = 40
# Allowed growth since the first round: caches fill, threads start and end.
HANDLES_MAX = 16
BYTES_MAX = 192 << 20
# In the error of a request that ran alone at two ends of the engine.
GIVEN_UP = "this request ended the engine twice"


class Soak:
    """Counts and failed checks so far, and the text of each prompt."""

    def __init__(self, server):
        self.server, self.lock = server, threading.Lock()
        self.answers, self.counts, self.wrong = {}, collections.Counter(), []

    def count(self, what):
        with self.lock:
            self.counts[what] += 1

    def fail(self, what):
        with self.lock:
            self.wrong.append(what)

    def client(self, choice, share):
        for _ in range(share):
            kind = choice.choices(("read", "disconnect", "cancel", "invalid"), (6, 2, 1, 1))[0]
            try:
                self.request(choice, kind)
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.fail(f"{kind}: {error!r}")

    def request(self, choice, kind):
        number = choice.randrange(24)
        body = {
            "prompt": f"{'a stop, ' * (number * 4)}and the bus number {number}",
            "max_tokens": 8 + 5 * (number % 12),
            "temperature": 0.9 if number % 2 else 0,
            "seed": number,
            "ignore_eos": True,
            "stream": True,
        }
        if kind == "invalid":
            body["top_p"] = 7
        identity = f"soak-{choice.randrange(1 << 60)}"
        headers = {"content-type": "application/json", "x-request-id": identity}
        kills = self.counts["engine killed"]
        connection = http.client.HTTPConnection(self.server.host, self.server.port, timeout=300)
        try:
            connection.request("POST", "/v1/completions", json.dumps(body), headers)
            response = connection.getresponse()
            if kind == "invalid" or response.status != 200:
                if (response.status, kind) != (400, "invalid"):
                    self.fail(f"{kind}: {response.status} {response.read()[:200]}")
                return self.count(kind)
            self.read(choice, kind, identity, number, response, kills)
        finally:
            connection.close()
        self.count(kind)

    def read(self, choice, kind, identity, number, response, kills):
        """Reads a stream; `kills` is how often the engine had been killed when it was sent."""
        text, end, leaves = "", None, choice.randrange(1, 8)
        for count, line in enumerate(line for line in response if line.startswith(b"data: {")):
            chunk = json.loads(line[6:])
            if "error" in chunk:
                if GIVEN_UP in chunk["error"]["message"] and self.counts["engine killed"] >= kills + 2:
                    return self.count("given up")
                return self.fail(f"stream {number}: {chunk['error']['message']}")
            for part in chunk["choices"]:
                text, end = text + (part.get("text") or ""), part.get("finish_reason") or end
            if count == leaves and kind == "disconnect":
                return None
            if count == leaves and kind == "cancel":
                cancel = http.client.HTTPConnection(self.server.host, self.server.port, timeout=300)
                cancel.request("DELETE", f"/v1/requests/{identity}")
                cancel.getresponse().read()
                cancel.close()
        if kind == "read" or end == "length":
            with self.lock:
                known = self.answers.setdefault(number, text)
            if end != "length" or known != text:
                self.fail(f"stream {number} ended with {end} and {'a different' if known != text else 'the same'} text")
        return None

    def disturb(self, choice):
        process = self.server.engine()["process"]
        if process:
            self.count("engine killed")
            os.kill(process, signal.SIGKILL)
        time.sleep(choice.random())

    def settle(self):
        """Waits until the server is idle. The engine's status."""
        until = time.monotonic() + 120
        while True:
            engine = self.server.engine()
            left = {name: engine[name] for name in ("queued", "running", "kv_blocks_used")}
            healthy = json.loads(self.server.get("/v1/status"))["alive"]
            if healthy and engine["process"] and not any(left.values()):
                return engine
            if time.monotonic() > until:
                self.fail(f"not idle after two minutes: {left}")
                return engine
            time.sleep(0.05)

    def round(self, choice):
        share = REQUESTS_PER_ROUND // CLIENTS
        clients = [
            threading.Thread(target=self.client, args=(random.Random(choice.random()), share)) for _ in range(CLIENTS)
        ]
        for client in clients:
            client.start()
        for _ in range(choice.randrange(3)):
            time.sleep(choice.random())
            self.disturb(choice)
        for client in clients:
            client.join()
        return self.settle()


def held(process):
    """File handles and resident bytes of a process; 0 where there is no /proc."""
    folder = f"/proc/{process}"
    if not os.path.isdir(folder):
        return 0, 0
    with open(f"{folder}/status", encoding="utf-8") as status:
        rows = dict(line.split(":", 1) for line in status if ":" in line)
    return len(os.listdir(f"{folder}/fd")), int(rows["VmRSS"].split()[0]) * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("arguments", nargs="*", help="for `omnibus serve`")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}", flush=True)
    choice, server = random.Random(seed), Server(options.arguments)
    soak, first, rounds, until = Soak(server), None, 0, time.monotonic() + 60 * options.minutes
    while not soak.wrong and (rounds < 2 or time.monotonic() < until):
        soak.round(choice)
        rounds += 1
        handles, size = held(server.process.pid)
        first = first or (handles, size)
        if handles > first[0] + HANDLES_MAX or size > first[1] + BYTES_MAX:
            soak.fail(f"{handles} handles and {size} bytes are held, after the first round {first}")
    restarts = server.engine()["engine_restarts_total"]
    if server.stop():
        soak.fail("the server did not exit with 0")
    counts = ", ".join(f"{count} {what}" for what, count in sorted(soak.counts.items()))
    print(f"{rounds} rounds: {counts}; {restarts} restarts, {handles} handles, {size >> 20} MiB")
    for what in soak.wrong:
        print(f"FAILED {what}")
    sys.exit(1 if soak.wrong else 0)


if __name__ == "__main__":
    main()
