#!/usr/bin/env python3
"""Sixteen prompts that arrive together, under `--schedule fair` and `fcfs`, on a fresh server and on one that has learned.

    cargo xtask bench prompt_burst [--model DIR] [--rounds 3]

`fair` keeps decoding requests on time, which may not cost a burst without such requests anything that its clients notice.
"""

import pathlib
import random
import statistics

import serving
from serving import log_line

PROMPTS = 16
PROMPT_TOKENS = 128
ANSWER_TOKENS = 48
# Bursts between the first one and the one that counts as learned.
LESSONS = 3
# Token ids that are text in the embedded model and in larger ones.
TEXT_TOKENS = range(300, 1900)
SCHEDULES = ("fair", "fcfs")


def burst(running, server, seed):
    """Seconds to the last token, and to the last first token."""
    rng, calls = random.Random(seed), []
    for _ in range(PROMPTS):
        prompt = [rng.choice(TEXT_TOKENS) for _ in range(PROMPT_TOKENS)]
        body = serving.streaming(server, ANSWER_TOKENS, prompt=prompt, ignore_eos=True)
        calls.append(lambda body=body: serving.send(running.url, body))
    answers = serving.completed(serving.together(calls))
    begun = min(answer.sent for answer in answers)
    return max(answer.times[-1] for answer in answers) - begun, max(answer.times[0] for answer in answers) - begun


def measure(options, schedule, number, log):
    """The first burst of a server, and one after others."""
    server = serving.omnibus(options.omnibus, options.model, "--schedule", schedule)
    with serving.serving(server, log) as running:
        serving.wait_until(lambda: serving.get(running.url, "/ready").status == 200, 120, "ready")
        seeds = range(number * 100, number * 100 + LESSONS + 2)
        bursts = [burst(running, server, seed) for seed in seeds]
    log_line(f"{schedule}: " + ", ".join(f"{total:.2f} s" for total, _ in bursts))
    return dict(fresh=bursts[0], learned=bursts[-1])


def main():
    parser = serving.arguments(__doc__, rounds=(3, "servers of each schedule; the median counts"))
    parser.add_argument("--model", type=pathlib.Path, help="a model directory (default: the embedded model)")
    options = serving.begin(parser)
    found = {schedule: [] for schedule in SCHEDULES}
    with open(options.out / "prompt_burst.log", "w") as log:
        for number in range(options.rounds):
            for schedule in SCHEDULES if number % 2 == 0 else reversed(SCHEDULES):
                found[schedule].append(measure(options, schedule, number, log))
    rows = []
    for server in ("fresh", "learned"):
        for at, name in enumerate(("last token", "last first token")):
            fair, fcfs = (statistics.median(one[server][at] for one in found[schedule]) for schedule in SCHEDULES)
            rows.append([f"{server} server, {name}", f"{fair:.2f} s", f"{fcfs:.2f} s", f"{fair / fcfs:.2f}×"])
    model = options.model.name if options.model else "the embedded model"
    remarks = (f"{PROMPTS} prompts of {PROMPT_TOKENS} tokens with {ANSWER_TOKENS} output tokens each, {model}, medians of "
               f"{options.rounds} servers; learned: after {LESSONS + 1} bursts.")
    table = serving.table(["", "fair", "fcfs", "fair / fcfs"], rows)
    serving.finish(__file__, options, found, [table], remarks)


if __name__ == "__main__":
    main()
