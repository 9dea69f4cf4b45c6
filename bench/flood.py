#!/usr/bin/env python3
"""Overload: five hundred requests in one instant and a short queue. Outcomes, goodput and leaks.

    cargo xtask bench flood

Each round measures the capacity with as many clients as the queue has places, and then the flood. Goodput is the tokens
of complete responses per second, until the last of them. Each request must end as 200, or as 429 with `Retry-After`.
"""

import random
import statistics
import time

import serving
from serving import log_line

AT_ONCE = 16
QUEUE = 64
ANSWER_TOKENS = 384
PROMPT_TOKENS = 48
# Token ids of the embedded model that are text.
TEXT_TOKENS = range(300, 1900)


def burst(running, server, count, clients, rng):
    """Sends `count` requests from `clients` clients: the answers, and the goodput in tokens/s."""
    def request():
        prompt = [rng.choice(TEXT_TOKENS) for _ in range(PROMPT_TOKENS)]
        body = dict(model=server.model, prompt=prompt, max_tokens=ANSWER_TOKENS, temperature=0, ignore_eos=True)
        return lambda: serving.send(running.url, body)

    answers = serving.pool([request() for _ in range(count)], clients)
    good = [answer for answer in answers if answer.status == 200 and not answer.error]
    seconds = max(answer.ended for answer in good) - min(answer.sent for answer in answers)
    return answers, sum(answer.usage["completion_tokens"] for answer in good) / seconds


def outcome(answer):
    if answer.status == 429:
        return "429" if int(answer.headers.get("retry-after", 0)) > 0 else "429 without Retry-After"
    return str(answer.status) if not answer.error else f"{answer.status}: {answer.error[:120]}"


def idle(running):
    values = serving.metrics(running.url)
    return not any(values[f"omnibus_{name}"] for name in ("kv_blocks_used", "requests_running", "requests_queued"))


def left_over(running):
    """Open files and used blocks of an idle server."""
    serving.wait_until(lambda: idle(running), 30, "the server is idle and holds no blocks")
    # The server notices closed connections a moment later.
    time.sleep(1)
    return dict(files=serving.open_files(running.process.pid),
                blocks=serving.metrics(running.url)["omnibus_kv_blocks_used"])


def main():
    parser = serving.arguments(__doc__, requests=(500, "requests in the flood"),
                               rounds=(3, "rounds; the median counts"))
    options = serving.begin(parser)
    server = serving.omnibus(options.omnibus, None, "--max-num-seqs", AT_ONCE, "--max-queue", QUEUE)
    rng, rounds = random.Random(1), []
    with open(options.out / "flood.log", "w") as log, serving.serving(server, log) as running:
        burst(running, server, AT_ONCE, AT_ONCE, rng)
        before = left_over(running)
        for _ in range(options.rounds):
            calm, capacity = burst(running, server, AT_ONCE + QUEUE, QUEUE, rng)
            serving.completed(calm)
            flood, goodput = burst(running, server, options.requests, options.requests, rng)
            outcomes = [outcome(answer) for answer in flood]
            refused = [answer.ended - answer.sent for answer in flood if answer.status == 429]
            waits = [int(answer.headers["retry-after"]) for answer in flood if "retry-after" in answer.headers]
            rounds.append(dict(capacity=capacity, goodput=goodput, retry_after_s=waits,
                               refused_s=max(refused, default=0),
                               outcomes={name: outcomes.count(name) for name in sorted(set(outcomes))}))
            log_line({key: value for key, value in rounds[-1].items() if key != "retry_after_s"})
        after = left_over(running)
    finish(options, rounds, before, after)


def finish(options, rounds, before, after):
    header = ["round", "outcomes", "Retry-After", "slowest refusal", "goodput, tokens/s", "without flood, tokens/s",
              "share"]
    rows = [[index + 1, ", ".join(f"{count} × {name}" for name, count in turn["outcomes"].items()),
             f"{min(turn['retry_after_s'], default=0)} to {max(turn['retry_after_s'], default=0)} s",
             f"{turn['refused_s']:.2f} s",
             f"{turn['goodput']:.0f}", f"{turn['capacity']:.0f}", f"{100 * turn['goodput'] / turn['capacity']:.0f} %"]
            for index, turn in enumerate(rounds)]
    share = statistics.median(turn["goodput"] / turn["capacity"] for turn in rounds)
    left = serving.table(["left over", "before", "after"],
                         [[name, f"{before[name]:.0f}", f"{after[name]:.0f}"] for name in before])
    remarks = (f"The median share is {100 * share:.0f} %. The embedded model; --max-num-seqs {AT_ONCE}, --max-queue "
               f"{QUEUE}; prompts of {PROMPT_TOKENS} and outputs of {ANSWER_TOKENS} tokens; {options.requests} at once "
               f"against {AT_ONCE + QUEUE} of {QUEUE} clients. Files are those of the server and of its engine "
               f"process; clients share the machine.")
    serving.finish(__file__, options, dict(rounds=rounds, before=before, after=after, share=share),
                   [serving.table(header, rows), left], remarks)


if __name__ == "__main__":
    main()
