#!/usr/bin/env python3
"""Prefix sharing: a thousand requests with one system prompt. KV blocks should grow only by the tokens that differ.

    cargo xtask bench shared_prompt

Prompts are token ids, so that blocks can be counted: all begin with the same 32 blocks and continue with tokens of
their own. At each number of clients, `omnibus_kv_blocks_used` is sampled; it should never exceed the shared blocks
plus, for each client, the blocks of its own tokens. Without sharing it would be every client's whole block table.
"""

import math
import random
import threading

import serving
from serving import BLOCK_TOKENS, log_line

SHARED_BLOCKS = 32
OWN_TOKENS = 40
ANSWER_TOKENS = 8
CLIENTS = (1, 8, 64)
# Token ids of the embedded model that are text.
TEXT_TOKENS = range(300, 1900)


def watch(url, stop, samples):
    while not stop.is_set():
        values = serving.metrics(url)
        samples.append((values["omnibus_kv_blocks_used"], values["omnibus_requests_running"]))
        stop.wait(0.01)


def level(running, server, shared, clients, count, rng):
    """Measures one number of clients: the row of the table, with the expected values."""
    first = serving.metrics(running.url)["omnibus_kv_blocks_cached"] == 0
    def request():
        own = [rng.choice(TEXT_TOKENS) for _ in range(OWN_TOKENS)]
        body = dict(model=server.model, prompt=shared + own, max_tokens=ANSWER_TOKENS, temperature=0, ignore_eos=True)
        return lambda: serving.send(running.url, body)

    calls = [request() for _ in range(count)]
    before, samples, stop = serving.metrics(running.url), [], threading.Event()
    watcher = threading.Thread(target=watch, args=(running.url, stop, samples))
    watcher.start()
    answers = serving.completed(serving.pool(calls, clients))
    stop.set()
    watcher.join()
    serving.wait_until(lambda: serving.metrics(running.url)["omnibus_kv_blocks_used"] == 0, 30, "no blocks in use")
    after = serving.metrics(running.url)
    own_blocks = math.ceil((OWN_TOKENS + ANSWER_TOKENS) / BLOCK_TOKENS)
    most_running = min(clients, int(max(running for _, running in samples)))
    result = dict(
        clients=clients, requests=count, samples=len(samples), most_running=most_running,
        most_used=max(used for used, _ in samples),
        expected=SHARED_BLOCKS + clients * own_blocks, unshared=clients * (SHARED_BLOCKS + own_blocks),
        prompt_tokens=sum(answer.usage["prompt_tokens"] for answer in answers),
        cached_tokens=sum(answer.cached_tokens for answer in answers),
        cached_blocks=after["omnibus_kv_blocks_cached"] - before["omnibus_kv_blocks_cached"],
        # The last, partial block of each request is cached, too.
        new_blocks=count * own_blocks + SHARED_BLOCKS * first,
        total_blocks=after["omnibus_kv_blocks_total"])
    log_line(result)
    return result


def row(result):
    return [result["clients"], result["requests"], result["most_running"], f"{result['most_used']:.0f}",
            result["expected"], result["unshared"], f"{result['prompt_tokens']}",
            f"{result['cached_tokens']} ({100 * result['cached_tokens'] / result['prompt_tokens']:.1f} %)",
            f"{result['cached_blocks']:.0f} ({result['new_blocks']})"]


def main():
    parser = serving.arguments(__doc__, requests=(1000, "requests in total"))
    options = serving.begin(parser)
    server = serving.omnibus(options.omnibus, None, "--max-num-seqs", max(CLIENTS), "--max-queue", options.requests)
    rng = random.Random(1)
    shared = [rng.choice(TEXT_TOKENS) for _ in range(SHARED_BLOCKS * BLOCK_TOKENS)]
    counts = [options.requests // 20, options.requests // 5]
    counts.append(options.requests - sum(counts))
    with open(options.out / "shared_prompt.log", "w") as log, serving.serving(server, log) as running:
        results = [level(running, server, shared, clients, count, rng) for clients, count in zip(CLIENTS, counts)]
    header = ["clients", "requests", "most at once", "most blocks used", "expected at most", "without sharing",
              "prompt tokens", "of them cached", "blocks added to the cache (expected)"]
    remarks = (f"The embedded model; blocks of {BLOCK_TOKENS} tokens, {results[0]['total_blocks']:.0f} of them; "
               f"prompts of {SHARED_BLOCKS * BLOCK_TOKENS} shared tokens and {OWN_TOKENS} of their own, outputs of "
               f"{ANSWER_TOKENS}; used blocks were sampled {sum(result['samples'] for result in results)} times.")
    serving.finish(__file__, options, results, [serving.table(header, map(row, results))], remarks)


if __name__ == "__main__":
    main()
