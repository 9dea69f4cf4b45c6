#!/usr/bin/env python3
"""Speculative decoding: tokens per second with and without draft tokens, of answers that repeat text and of free ones.

    cargo xtask bench speculation [--model DIR] [--streams 1,4,16] [--tokens 120]

Two servers of one binary, with `--draft auto` and `--draft off`, answer the same greedy requests in turns. The answers must
be equal. Answers that repeat text: the model continues a text that its prompt already has. Free ones are sampled at
temperature 1.
"""

import random
import statistics
import sys

import serving
from serving import log_line

STATIONS = ("Harbour", "Market", "Old Mill", "University", "Castle Hill", "Airport", "North Gate", "Observatory")


def timetable(rng):
    """Lines that no two requests share."""
    rows = [f"Line {rng.randrange(100)} leaves {rng.choice(STATIONS)} at {rng.randrange(24):02}:{rng.randrange(60):02}, "
            f"platform {rng.randrange(1, 20)}." for _ in range(12)]
    return "\n".join(rows)


def repeating(number):
    text = timetable(random.Random(number))
    return dict(prompt=f"The timetable:\n{text}\n\nThe timetable again, word for word:\n{text[:120]}", temperature=0)


def free(number):
    return dict(prompt=f"Chapter {number}. {serving.prose(random.Random(number), 30)}", temperature=1, seed=number)


KINDS = {"repeats its prompt": repeating, "free, temperature 1": free}


def measure(running, server, kind, numbers, options):
    def call(number):
        body = {**serving.streaming(server, options.tokens), **KINDS[kind](number), "ignore_eos": True}
        return lambda: serving.send(running.url, body)

    answers = serving.completed(serving.together([call(number) for number in numbers]))
    details = [answer.usage["completion_tokens_details"] for answer in answers]
    accepted = sum(detail["accepted_prediction_tokens"] for detail in details)
    rejected = sum(detail["rejected_prediction_tokens"] for detail in details)
    tokens = sum(answer.usage["completion_tokens"] for answer in answers)
    seconds = max(answer.ended for answer in answers) - min(answer.sent for answer in answers)
    result = dict(tokens_per_s=tokens / seconds, accepted=accepted, rejected=rejected, tokens=tokens,
                  text=[answer.text for answer in answers])
    log_line(f"{server.name}, {len(numbers)} streams, {kind}: {result['tokens_per_s']:.1f} tokens/s, "
             f"{accepted} of {accepted + rejected} draft tokens accepted")
    return result


def main():
    parser = serving.compare_arguments(__doc__, tokens=(120, "output tokens"),
                                       rounds=(3, "turns of each server; the median counts"))
    parser.add_argument("--model", help="a model directory; default: the embedded model")
    parser.add_argument("--streams", default="1,4,16", help="numbers of streams at once")
    options = serving.begin(parser)
    loads = [int(streams) for streams in options.streams.split(",")]
    binary = options.binary[0]
    servers = {draft: serving.omnibus(binary, options.model, "--draft", draft, "--prefix-cache", "off", name=draft)
               for draft in ("off", "auto")}
    results, rows, asked = {}, [], 0
    with open(options.out / "speculation.log", "w") as log, \
            serving.serving(servers["off"], log) as off, serving.serving(servers["auto"], log) as auto:
        running = {"off": off, "auto": auto}
        for streams in loads:
            for kind in KINDS:
                rounds = {draft: [] for draft in servers}
                for _ in range(1 + options.rounds):
                    # No answer may help a later one.
                    numbers = range(asked, asked + streams)
                    asked += streams
                    for draft, server in servers.items():
                        rounds[draft].append(measure(running[draft], server, kind, numbers, options))
                    if rounds["off"][-1]["text"] != rounds["auto"][-1]["text"]:
                        sys.exit(f"{streams} streams, {kind}: answers differ with and without drafts")
                # The first round teaches the server what rows cost.
                speed = {draft: statistics.median(one["tokens_per_s"] for one in rounds[draft][1:]) for draft in servers}
                last = rounds["auto"][-1]
                drafted = last["accepted"] + last["rejected"]
                rows.append([streams, kind, f"{speed['off']:.1f}", f"{speed['auto']:.1f}",
                             f"{speed['auto'] / speed['off']:.2f}×",
                             f"{last['accepted'] / drafted:.0%} of {drafted}" if drafted else "none"])
                results[f"{streams} {kind}"] = {draft: speed[draft] for draft in servers}
    header = ["streams", "answers", "off, tokens/s", "auto, tokens/s", "ratio", "accepted draft tokens"]
    remarks = f"{options.model or 'The embedded model'}; answers of {options.tokens} tokens, {options.rounds} rounds."
    serving.finish(__file__, options, results, [serving.table(header, rows)], remarks)


if __name__ == "__main__":
    main()
