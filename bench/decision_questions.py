#!/usr/bin/env python3
"""Decisions: what sixteen questions on one state cost, in prefills of one question on a state as long.

    cargo xtask bench decision_questions -- --model MODEL_DIRECTORY

Each request has a state that no request had before, so nothing of it is cached. Rounds alternate between one question
and sixteen. A prefill is the median time of one question. Computed tokens are those that the replies do not count as
cached.
"""

import http.client
import json
import random
import statistics
import time
import urllib.parse

import serving
from serving import log_line

STATE_WORDS = (500, 1000, 2000)
TOPICS = ("money", "a delay", "a lost bag", "the driver", "a ticket", "the app", "a seat", "the weather")
KINDS = (
    lambda topic: {"type": "noul", "instructions": f"Is it about {topic}?"},
    lambda topic: {"type": "score", "instructions": f"How angry about {topic}?", "criteria": ["calm", "angry"]},
)
QUESTIONS = {f"q{at}": KINDS[at % 2](TOPICS[at // 2]) for at in range(16)}


def ask(url, state, questions):
    """Seconds of a request, and the usage of its reply."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=600)
    body = json.dumps({"model": "jev-latest", "state": state, "questions": questions})
    since = time.monotonic()
    connection.request("POST", "/v1/systemone", body, {"content-type": "application/json"})
    response = connection.getresponse()
    reply = json.loads(response.read())
    seconds = time.monotonic() - since
    connection.close()
    if response.status != 200:
        raise SystemExit(f"{response.status}: {reply}")
    return seconds, reply["usage"]


def computed(usage):
    return usage["input_tokens"] - usage.get("x_cached_tokens", 0)


def measure(running, words, rounds, rng):
    """The row of one length of states."""
    first = dict(list(QUESTIONS.items())[:1])
    one, all_of_them = [], []
    for number in range(rounds + 1):
        pair = [ask(running.url, serving.prose(rng, words), questions) for questions in (first, QUESTIONS)]
        # The first round warms up.
        if number > 0:
            one.append(pair[0])
            all_of_them.append(pair[1])
        log_line(f"{words} words: {pair[0][0]:.2f} s for one question, {pair[1][0]:.2f} s for {len(QUESTIONS)}")
    prefill, sixteen = (statistics.median(seconds for seconds, _ in times) for times in (one, all_of_them))
    tokens = [statistics.median(computed(usage) for _, usage in times) for times in (one, all_of_them)]
    return dict(words=words, prefill_s=prefill, sixteen_s=sixteen, time_ratio=sixteen / prefill,
                prefill_tokens=tokens[0], sixteen_tokens=tokens[1], token_ratio=tokens[1] / tokens[0])


def main():
    parser = serving.arguments(__doc__, rounds=(5, "rounds; the median counts"), seed=(1, "of the states"))
    parser.add_argument("--model", help="the model's directory; the embedded one without")
    options = serving.begin(parser)
    rng = random.Random(options.seed)
    server = serving.omnibus(options.omnibus, options.model)
    with open(options.out / "decision_questions.log", "w") as log, serving.serving(server, log) as running:
        results = [measure(running, words, options.rounds, rng) for words in STATE_WORDS]
    rows = [[row["words"], f"{row['prefill_tokens']:.0f}", f"{row['prefill_s']:.2f} s", f"{row['sixteen_tokens']:.0f}",
             f"{row['sixteen_s']:.2f} s", f"{row['token_ratio']:.2f}", f"{row['time_ratio']:.2f}"] for row in results]
    header = ["words of the state", "tokens, 1 question", "time, 1 question", "tokens, 16 questions",
              "time, 16 questions", "tokens, 16 by 1", "time, 16 by 1"]
    about = f"Medians of {options.rounds} rounds. Each state is new; tokens are those that were computed."
    serving.finish(__file__, options, results, [serving.table(header, rows)], about)


if __name__ == "__main__":
    main()
