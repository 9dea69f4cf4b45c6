#!/usr/bin/env python3
"""Twenty bodies of 31 MB at once, by each API: how much resident memory they take, and how much of it stays.

    cargo xtask bench large_bodies

Each body is a text far beyond the context of the embedded model, or a list of many short ones. Every request must end as
a 4xx; memory is that of the server and of its engine process, sampled every few milliseconds.
"""

import json
import threading
import time

import serving
from serving import log_line

BODY_BYTES = 31 * 10**6
GROWTH_BYTES = 300 * 10**6
TEXT = "the bus stops at the market.\\n "


def text(bytes_left):
    return TEXT * (bytes_left // len(TEXT))


def message(bytes_left):
    return '[{"role":"user","content":"%s"}]' % text(bytes_left)


def prompts(bytes_left):
    """A list of texts, of 4 KB each."""
    one = '"%s"' % text(4096)
    return "[" + ",".join([one] * (bytes_left // (len(one) + 1))) + "]"


# What is sent to which path: the body without what grows, and what grows.
APIS = [
    ("chat", "/v1/chat/completions", '{"messages":%s}', message),
    ("completions", "/v1/completions", '{"prompt":"%s"}', text),
    ("completions, a list", "/v1/completions", '{"prompt":%s}', prompts),
    ("tokenize", "/tokenize", '{"prompt":"%s"}', text),
    ("responses", "/v1/responses", '{"input":"%s"}', text),
    ("messages", "/v1/messages", '{"max_tokens":1,"messages":%s}', message),
    ("Ollama", "/api/chat", '{"model":"bench","messages":%s}', message),
    ("numbers", "/v1/completions", '{"prompt":[%s]}', lambda size: ",".join(["7"] * min(1_000_000, size // 2))),
]


class Watch:
    """The highest resident memory until it is stopped."""

    def __init__(self, pid):
        self.pid, self.peak, self.ended = pid, 0, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        pids = serving.family(self.pid)
        while not self.ended.is_set():
            self.peak = max(self.peak, sum(map(resident, pids)))
            time.sleep(0.003)

    def stop(self):
        self.ended.set()
        self.thread.join()
        return self.peak


def resident(pid):
    with open(f"/proc/{pid}/statm") as pages:
        return int(pages.read().split()[1]) * 4096


def send(url, path, body):
    answer = serving.Answer(sent=time.monotonic())
    try:
        connection = serving.connect(url, 600)
        connection.request("POST", path, body, {"content-type": "application/json"})
        response = connection.getresponse()
        answer.status, answer.text = response.status, response.read().decode()
        connection.close()
    except OSError as error:
        answer.error = repr(error)
    answer.ended = time.monotonic()
    return answer


def main():
    parser = serving.arguments(__doc__, requests=(20, "bodies at once"))
    options = serving.begin(parser)
    server = serving.omnibus(options.omnibus, None)
    rows = []
    with open(options.out / "large_bodies.log", "w") as log, serving.serving(server, log) as running:
        send(running.url, "/v1/chat/completions", b'{"messages":[{"role":"user","content":"hi"}]}')
        time.sleep(1)
        start = serving.resident_bytes(running.process.pid)
        for name, path, frame, grown in APIS:
            body = (frame % grown(BODY_BYTES - len(frame))).encode()
            before = serving.resident_bytes(running.process.pid)
            watch, begun = Watch(running.process.pid), time.monotonic()
            answers = serving.together([lambda: send(running.url, path, body)] * options.requests)
            wall, peak = time.monotonic() - begun, watch.stop()
            time.sleep(1)
            after = serving.resident_bytes(running.process.pid)
            outcomes = sorted({str(answer.status) if not answer.error else answer.error for answer in answers})
            says = json.loads(answers[0].text or "{}") if answers[0].status != 200 else ""
            rows.append(dict(api=name, outcomes=outcomes, grown=peak - before, kept=after - start, wall_s=wall))
            log_line({**rows[-1], "says": str(says)[:120]})
    finish(options, rows)


def finish(options, rows):
    header = ["API", "outcomes", "grown at most", "kept a second later, since the start", "time"]
    lines = [[row["api"], ", ".join(row["outcomes"]), f"{row['grown'] / 1e6:.0f} MB", f"{row['kept'] / 1e6:.0f} MB",
              f"{row['wall_s']:.2f} s"] for row in rows]
    worst = max(row["grown"] for row in rows)
    remarks = (f"The embedded model; {options.requests} bodies of {BODY_BYTES / 1e6:.0f} MB at once. The most is "
               f"{worst / 1e6:.0f} MB; the limit is {GROWTH_BYTES / 1e6:.0f} MB.")
    serving.finish(__file__, options, dict(rows=rows), [serving.table(header, lines)], remarks)


if __name__ == "__main__":
    main()
