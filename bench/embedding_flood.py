#!/usr/bin/env python3
"""A chat beside a flood of texts to embed, by the same model: whether its tokens keep the server's objective.

    cargo xtask bench embedding_flood [--tpot-slo-ms 50]

In each round a chat streams alone, and then while clients send texts to embed without a pause. TPOT is the time of an
answer after its first token, by token.
"""

import random
import statistics
import threading

import serving
from serving import log_line

CHATS = 4
CHAT_TOKENS = 256
CLIENTS = 8
TEXTS = 16
TEXT_WORDS = 48


def chat(server, running, rng):
    """TTFT and TPOT of a streamed answer, in seconds."""
    messages = [{"role": "user", "content": serving.prose(rng, 32)}]
    body = serving.streaming(server, CHAT_TOKENS, ignore_eos=True, messages=messages)
    (answer,) = serving.completed([serving.send(running.url, body, "/v1/chat/completions")])
    tokens = answer.usage["completion_tokens"]
    return answer.ttft_s, (answer.times[-1] - answer.times[0]) / (tokens - 1)


class Flood:
    """Clients that embed texts until the block ends."""

    def __init__(self, server, running):
        self.server, self.running = server, running
        self.over, self.lock, self.texts, self.failures = threading.Event(), threading.Lock(), 0, []

    def client(self, seed):
        rng = random.Random(seed)
        while not self.over.is_set():
            texts = [serving.prose(rng, TEXT_WORDS) for _ in range(TEXTS)]
            answer = serving.send(self.running.url, {"model": self.server.model, "input": texts}, "/v1/embeddings")
            with self.lock:
                self.texts += TEXTS
                if answer.status != 200:
                    self.failures.append(answer.error)

    def __enter__(self):
        self.threads = [threading.Thread(target=self.client, args=(seed,)) for seed in range(CLIENTS)]
        for thread in self.threads:
            thread.start()
        serving.wait_until(lambda: self.texts, 120, "the flood has its first vectors")
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()


def measure(server, running, rounds, rng):
    chat(server, running, rng)
    alone, beside, texts = [], [], 0
    for number in range(rounds):
        alone += [chat(server, running, rng) for _ in range(CHATS)]
        with Flood(server, running) as flood:
            beside += [chat(server, running, rng) for _ in range(CHATS)]
        if flood.failures:
            raise SystemExit(f"a request for vectors failed: {flood.failures[0]}")
        texts += flood.texts
        log_line(f"round {number}: TPOT {1e3 * alone[-1][1]:.1f} ms alone, {1e3 * beside[-1][1]:.1f} ms beside")
    return alone, beside, texts


def main():
    parser = serving.arguments(__doc__, rounds=(3, "rounds"), tpot_slo_ms=(50, "objective of the server"))
    options = serving.begin(parser)
    server = serving.omnibus(options.omnibus, None, "--tpot-slo-ms", options.tpot_slo_ms)
    with open(options.out / "embedding_flood.log", "w") as log, serving.serving(server, log) as running:
        alone, beside, texts = measure(server, running, options.rounds, random.Random(1))
    rows = []
    for name, found in (("alone", alone), ("beside the flood", beside)):
        firsts, tokens = zip(*found)
        rows.append([name, f"{1e3 * statistics.median(firsts):.0f} ms", f"{1e3 * statistics.median(tokens):.1f} ms",
                     f"{1e3 * max(tokens):.1f} ms"])
    kept = max(tokens for _, tokens in beside) <= options.tpot_slo_ms / 1e3
    remarks = (f"The objective of {options.tpot_slo_ms} ms is {'kept' if kept else 'missed'}. {CLIENTS} clients, {TEXTS} "
               f"texts of {TEXT_WORDS} words in a request, {texts} texts in all; the embedded model.")
    table = serving.table(["chat", "TTFT, median", "TPOT, median", "TPOT, longest"], rows)
    serving.finish(__file__, options, dict(alone=alone, beside=beside, texts=texts, kept=kept), [table], remarks)
    if not kept:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
