#!/usr/bin/env python3
"""Many models in little memory: swaps under load, with clients that leave and engines that are killed.

    cargo xtask bench pool_swaps [--swaps 1000] [--memory-limit 2GiB] -- MODEL_DIRECTORY…

Starts a server with these models and memory for some of them, and sends requests for random ones from several clients. Each
answer must equal that of the model alone; one that is cut differs. Prints the swaps a second and the growth of the server's
resident memory; exits with 1 if an answer differs or a request is refused. A model that embeds gets requests for vectors.
"""

import argparse
import http.client
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time

from kill_engine import Server

PROMPTS = ["The bus stops at the", "Once upon a time", "A list of stations:", "The answer is"]
# Of the clients, those that leave before they have an answer.
LEAVING = 0.15


def request(server, method, path, body=None):
    connection = http.client.HTTPConnection(server.host, server.port, timeout=600)
    sent = json.dumps(body) if body is not None else None
    connection.request(method, path, sent, {"content-type": "application/json"})
    response = connection.getresponse()
    text = response.read()
    connection.close()
    return response.status, json.loads(text or b"null")


def settings(folder, models, limit):
    """The path of a file with these models."""
    lines = [f"memory-limit = {json.dumps(limit)}"]
    for name, path in models.items():
        lines += [f"[models.{name}]", f"model = {json.dumps(path)}"]
    path = os.path.join(folder, "omnibus.toml")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines))
    return path


def resident(server):
    with open(f"/proc/{server.process.pid}/status", encoding="utf-8") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) * 1024


def engines(server):
    """The processes that the server has started."""
    tasks, found = f"/proc/{server.process.pid}/task", set()
    for task in os.listdir(tasks):
        try:
            with open(f"{tasks}/{task}/children", encoding="utf-8") as children:
                found |= {int(child) for child in children.read().split()}
        except OSError:
            continue
    return sorted(found)


def rows(server):
    return {row["id"]: row for row in request(server, "GET", "/v1/models")[1]["data"]}


def loads(server):
    return sum(row["memory"]["loads"] for row in rows(server).values())


def body(kind, name, prompt):
    if kind == "embed":
        return "/v1/embeddings", {"model": name, "input": prompt}
    return "/v1/completions", {
        "model": name, "prompt": prompt, "max_tokens": 24, "temperature": 0, "ignore_eos": True, "seed": 1,
    }


def answer(kind, reply):
    return reply["data"][0]["embedding"] if kind == "embed" else reply["choices"][0]["text"]


def leave(server, path, sent):
    """Sends a request and closes the connection without reading the answer."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
    connection.request("POST", path, json.dumps(sent), {"content-type": "application/json"})
    time.sleep(random.random() * 0.2)
    connection.close()


def references(server, models):
    """What each model is for, and its answers while it is alone."""
    kinds, answers = {}, {}
    for name in models:
        request(server, "POST", "/v1/models/load", {"model": name})
        kinds[name] = rows(server)[name]["task"]
        for prompt in PROMPTS:
            status, reply = request(server, "POST", *body(kinds[name], name, prompt))
            if status != 200:
                sys.exit(f"{models[name]}: {reply}")
            answers[name, prompt] = answer(kinds[name], reply)
    return kinds, answers


class Load:
    """Clients that send requests until they are stopped, and what became of these."""

    def __init__(self, server, models, options):
        self.server, self.names, self.options = server, list(models), options
        self.kinds, self.answers = references(server, models)
        self.counts = {"answers": 0, "differ": 0, "refused": 0, "left": 0, "kills": 0}
        self.lock, self.done = threading.Lock(), threading.Event()

    def client(self, number):
        choose = random.Random(self.options.seed * 1000 + number)
        while not self.done.is_set():
            name, prompt = choose.choice(self.names), choose.choice(PROMPTS)
            path, sent = body(self.kinds[name], name, prompt)
            if choose.random() < LEAVING:
                leave(self.server, path, sent)
                self.count("left")
                continue
            status, reply = request(self.server, "POST", path, sent)
            if status != 200:
                self.count("refused")
                print("refused:", status, reply, flush=True)
            elif answer(self.kinds[name], reply) != self.answers[name, prompt]:
                self.count("differ")
                print("differs:", name, prompt, answer(self.kinds[name], reply), flush=True)
            answers = self.count("answers")
            if self.options.kill_every and answers % self.options.kill_every == 0:
                self.kill(choose)

    def kill(self, choose):
        running = engines(self.server)
        if running:
            os.kill(choose.choice(running), signal.SIGKILL)
            self.count("kills")

    def count(self, what):
        with self.lock:
            self.counts[what] += 1
            return self.counts[what]


def measure(server, models, options):
    load = Load(server, models, options)
    first, memory, since = loads(server), [], time.monotonic()
    threads = [threading.Thread(target=load.client, args=(number,)) for number in range(options.clients)]
    for thread in threads:
        thread.start()
    swaps = 0
    while swaps < options.swaps:
        time.sleep(1)
        swaps = loads(server) - first
        memory.append((swaps, resident(server)))
        if len(memory) % 30 == 0:
            print(f"{swaps} swaps, {load.counts}, server {memory[-1][1] / 1e6:.1f} MB", flush=True)
    load.done.set()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - since
    settled = next(size for at, size in memory if at >= min(options.swaps / 10, memory[-1][0]))
    print(f"{swaps} swaps in {seconds:.0f} s, {swaps / seconds:.1f} a second; {load.counts}")
    print(f"server's resident memory: {settled / 1e6:.1f} MB after a tenth, {memory[-1][1] / 1e6:.1f} MB at the end")
    return 1 if load.counts["differ"] or load.counts["refused"] else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--swaps", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--memory-limit", default="2GiB")
    parser.add_argument("--kill-every", type=int, default=50, help="answers between two kills of an engine; 0 for none")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("models", nargs="+", help="directories of models")
    options = parser.parse_args()
    models = {f"m{at}": os.path.abspath(path) for at, path in enumerate(options.models)}
    with tempfile.TemporaryDirectory() as folder:
        server = Server(["--config", settings(folder, models, options.memory_limit)])
        failed = measure(server, models, options)
        failed |= server.stop()
    sys.exit(failed)


if __name__ == "__main__":
    main()
