#!/usr/bin/env python3
"""Time to first token of agent turns: ten turns on top of a long history, and cold and warm prompts.

    pip install 'mlx[cpu]==0.32.4' mlx-lm==0.32.2 && cargo xtask bench agent_turns [--vllm-mlx PROGRAM]

Each turn sends the whole conversation and a tool result, and appends the short answer to the history. Then pairs of
prompts that share their first 2048 words, with different ends: the first is cold, the second warm.
"""

import random
import statistics
import tempfile

import serving
from serving import log_line

HISTORY_WORDS = 4000
TURNS = 10
TOOL_WORDS = 64
ANSWER_TOKENS = 24
SHARED_WORDS = 2048
OWN_WORDS = 32


def turns(running, server):
    """The answers of a growing conversation."""
    rng = random.Random(1)
    messages = [dict(role="system", content=serving.prose(rng, HISTORY_WORDS))]
    answers = []
    for _ in range(TURNS):
        messages.append(dict(role="user", content=serving.prose(rng, TOOL_WORDS)))
        body = serving.streaming(server, ANSWER_TOKENS, messages=messages)
        answer = serving.send(running.url, body, path="/v1/chat/completions")
        serving.completed([answer])
        messages.append(dict(role="assistant", content=answer.text))
        answers.append(answer)
        log_line(f"{server.name}: {answer.usage}, first token after {answer.ttft_s:.3f} s")
    return answers


def pairs(running, server, count):
    """Seconds to the first token of cold and of warm prompts."""
    rng = random.Random(2)
    cold, warm = [], []
    for _ in range(count):
        shared = serving.prose(rng, SHARED_WORDS)
        for times in (cold, warm):
            body = serving.streaming(server, 2, prompt=shared + serving.prose(rng, OWN_WORDS))
            [answer] = serving.completed([serving.send(running.url, body)])
            times.append(answer.ttft_s)
    log_line(f"{server.name}: cold {cold}, warm {warm}")
    return cold, warm


def measure(server, count, log):
    with serving.serving(server, log) as running:
        # The first request has one-time costs.
        serving.completed([serving.send(running.url, serving.streaming(server, 4, prompt=" time him like"))])
        answers = turns(running, server)
        cold, warm = pairs(running, server, count)
    cells = [dict(prompt_tokens=answer.usage.get("prompt_tokens"), cached_tokens=answer.cached_tokens,
                  ttft_s=answer.ttft_s) for answer in answers]
    return dict(server=server.name, turns=cells, cold_s=cold, warm_s=warm)


def turn_table(results):
    header = ["turn", "prompt tokens",
              *(f"{result['server']}: {what}" for result in results for what in ("cached", "first token"))]
    rows = []
    for index in range(TURNS):
        cells = [result["turns"][index] for result in results]
        rows.append([index + 1, cells[0]["prompt_tokens"],
                     *(text for cell in cells for text in (reported(cell["cached_tokens"]), milliseconds(cell)))])
    return serving.table(header, rows)


def reported(cached_tokens):
    return "not reported" if cached_tokens is None else cached_tokens


def milliseconds(cell):
    return f"{1e3 * cell['ttft_s']:.0f} ms"


def pair_table(results):
    header = ["server", "cold", "warm", "cold over warm"]
    return serving.table(header, [
        [result["server"], serving.spread(result["cold_s"]), serving.spread(result["warm_s"]),
         f"{statistics.median(result['cold_s']) / statistics.median(result['warm_s']):.1f}×"] for result in results])


def main():
    parser = serving.arguments(__doc__, size=("10m", "test model"),
                               pairs=(3, "pairs of prompts for omnibus"),
                               slow_pairs=(1, "pairs for the others"))
    parser.add_argument("--vllm-mlx", help="path of vllm-mlx, to measure it, too")
    parser.add_argument("--only", action="append", help="measure only servers with this name prefix")
    options = serving.begin(parser)
    model = serving.make_models(options.out, options.size)["f32"]
    listed = [(serving.omnibus(options.omnibus, model), options.pairs),
              (serving.mlx_lm(options.python, model), options.slow_pairs)]
    # vllm-mlx caches prompts below $HOME, also across runs.
    with open(options.out / "agent_turns.log", "w") as log, tempfile.TemporaryDirectory(dir=options.out) as home:
        if options.vllm_mlx:
            command = ["env", f"HOME={home}", options.vllm_mlx, "serve", str(model), "--continuous-batching",
                       "--served-model-name", "bench"]
            listed.append((serving.Server("vllm-mlx", command, "bench"), options.slow_pairs))
        results = [measure(server, count, log) for server, count in listed
                   if not options.only or any(server.name.startswith(only) for only in options.only)]
    remarks = (f"A llama with {options.size[:-1]} million parameters, 4 bits with float32 scales; outputs of "
               f"{ANSWER_TOKENS} tokens; prompts of the second table have {SHARED_WORDS} + {OWN_WORDS} tokens, "
               f"{options.pairs} pairs for omnibus and {options.slow_pairs} for others, the median (least to most); "
               f"{serving.versions('mlx', 'mlx-lm')}.")
    serving.finish(__file__, options, results, [turn_table(results), pair_table(results)], remarks)


if __name__ == "__main__":
    main()
