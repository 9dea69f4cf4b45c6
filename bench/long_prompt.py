#!/usr/bin/env python3
"""Inter-token latency of eight decoding streams while a long prompt is prefilled.

    pip install 'mlx[cpu]==0.32.4' mlx-lm==0.32.2 && cargo xtask bench long_prompt

Eight streams alone give the usual time between tokens; `--tpot-slo-ms` is twice that. Then, while eight streams decode,
a prompt of four times the token budget arrives, several times. Each gap between two tokens of a stream counts that
overlaps with the time from sending a prompt to its first token; the same number of seconds before the prompt shows the
machine's own noise. The same with `--schedule fcfs` and with mlx-lm's server.
"""

import random
import statistics
import threading
import time

import serving
from serving import log_line

STREAMS = 8
PROMPT_WORDS = 32
SLO_TIMES = 2
MORE_THAN_ENOUGH = 6000


def decoding(running, server, seed, during):
    """Starts eight streams; when all of them decode, calls `during`, and then disconnects. Returns both results."""
    rng = random.Random(seed)
    stop, decode = threading.Event(), threading.Semaphore(0)

    def stream():
        pieces = 0

        def on_text():
            nonlocal pieces
            pieces += 1
            if pieces == 4:
                decode.release()

        body = serving.streaming(server, MORE_THAN_ENOUGH, prompt=serving.prose(rng, PROMPT_WORDS))
        return lambda: serving.send(running.url, body, until=stop, on_text=on_text)

    def conduct():
        try:
            for _ in range(STREAMS):
                if not decode.acquire(timeout=600):
                    raise TimeoutError("a stream did not begin within 600 s")
            return during()
        finally:
            stop.set()

    *answers, result = serving.together([stream() for _ in range(STREAMS)] + [conduct])
    return serving.completed(answers), result


def gaps_during(answers, windows):
    """Seconds between consecutive tokens of a stream that overlap with any of the windows."""
    return [later - earlier
            for answer in answers for earlier, later in zip(answer.times, answer.times[1:])
            if any(earlier < end and later > start for start, end in windows)]


def usual_gap(running, server, seconds, least):
    """The median gap of eight undisturbed streams, in seconds, from at least `least` tokens of each.

    The window is longer than the one before the prompts: a token takes longer the longer its context is, and contexts
    are longer while the prompts are prefilled.
    """
    def wait():
        start = time.monotonic()
        time.sleep(seconds)
        return start, time.monotonic()

    while True:
        answers, window = decoding(running, server, 1, wait)
        gaps = gaps_during(answers, [window])
        if len(gaps) >= STREAMS * least:
            return statistics.median(gaps)
        seconds *= 2


def disturbed(running, server, words, seed, quiet_s):
    """Gaps before and during the prefill of a prompt, and the answer to the prompt."""
    rng = random.Random(seed)

    def arrive():
        quiet = time.monotonic()
        time.sleep(quiet_s)
        sent = serving.send(running.url, serving.streaming(server, 4, prompt=serving.prose(rng, words)))
        return (quiet, sent.sent), serving.completed([sent])

    answers, (quiet, [sent]) = decoding(running, server, seed + 1, arrive)
    return gaps_during(answers, [quiet]), gaps_during(answers, [(sent.sent, sent.times[0])]), sent


def measure(server, with_slo, options, prompts, log):
    """`with_slo` returns the server with the given objective in milliseconds."""
    words = 4 * options.budget
    with serving.serving(server, log) as running:
        usual = usual_gap(running, server, 3 * options.seconds, least=4)
    slo = SLO_TIMES * usual
    server = with_slo(1e3 * slo)
    with serving.serving(server, log) as running:
        # The cost model learns from the first steps.
        serving.completed([serving.send(running.url, serving.streaming(server, 16, prompt=" the of and to"))])
        # Each prompt has streams of its own, so that contexts are as long as in `usual_gap`.
        rounds = [disturbed(running, server, words, 2 * round, options.seconds) for round in range(1, prompts + 1)]
    before, while_read = ([gap for round in rounds for gap in round[part]] for part in range(2))
    sent = [round[2] for round in rounds]
    result = dict(server=server.name, usual_s=usual, slo_s=slo, prompts=prompts,
                  prompt_tokens=sent[0].usage.get("prompt_tokens"), ttft_s=[answer.ttft_s for answer in sent],
                  before=summary(before, slo), while_read=summary(while_read, slo))
    log_line(result)
    return result


def summary(gaps, slo):
    within = sum(gap <= slo for gap in gaps)
    return dict(gaps=len(gaps), within=within / len(gaps), p50_s=statistics.median(gaps),
                p99_s=serving.quantile(gaps, 0.99), largest_s=max(gaps))


def row(result):
    before, read, usual = result["before"], result["while_read"], result["usual_s"]
    return [result["server"], f"{1e3 * usual:.1f} ms", f"{1e3 * result['slo_s']:.1f} ms",
            f"{100 * before['within']:.1f} %", f"{100 * read['within']:.1f} % of {read['gaps']}",
            f"{1e3 * read['p99_s']:.0f} ms", f"{1e3 * read['largest_s']:.0f} ms ({read['largest_s'] / usual:.0f}×)",
            serving.spread(result["ttft_s"])]


def main():
    parser = serving.arguments(__doc__, budget=(512, "--max-num-batched-tokens; prompts have four times that"),
                               prompts=(3, "long prompts, each beside streams of its own"),
                               seconds=(4.0, "seconds of undisturbed decoding"),
                               size=("100m", "test model"))
    parser.add_argument("--only", action="append", help="measure only servers with this name prefix")
    parser.add_argument("--slow-prompts", type=int, default=1, help="long prompts for mlx-lm (default 1)")
    options = serving.begin(parser)
    model = serving.make_models(options.out, options.size)["f32"]

    def omnibus(schedule):
        def with_slo(slo_ms=None):
            slo = ["--tpot-slo-ms", f"{slo_ms:.3f}"] if slo_ms is not None and schedule == "fair" else []
            return serving.omnibus(options.omnibus, model, "--schedule", schedule, "--max-num-batched-tokens",
                                   options.budget, "--prefix-cache", "off", *slo, name=f"omnibus, {schedule}")
        return with_slo

    def mlx_lm(slo_ms=None):
        return serving.mlx_lm(options.python, model, "--prompt-cache-size", 1)

    listed = [(omnibus("fair"), options.prompts), (omnibus("fcfs"), options.prompts), (mlx_lm, options.slow_prompts)]
    with open(options.out / "long_prompt.log", "w") as log:
        results = [measure(make(), make, options, prompts, log) for make, prompts in listed
                   if not options.only or any(make().name.startswith(only) for only in options.only)]
    header = ["server", "usual gap", "objective", "within it, before", "within it, during prefill", "p99 gap",
              "largest gap", "first token of the prompt"]
    remarks = (f"{STREAMS} streams of a llama with {options.size[:-1]} million parameters, 4 bits with float32 scales; "
               f"prompts of {results[0]['prompt_tokens']} tokens, "
               f"{', '.join(str(result['prompts']) for result in results)} of them; in brackets, times the usual gap; "
               f"{serving.versions('mlx', 'mlx-lm')}.")
    serving.finish(__file__, options, results, [serving.table(header, map(row, results))], remarks)


if __name__ == "__main__":
    main()
