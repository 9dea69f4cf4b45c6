#!/usr/bin/env python3
"""Ten turns of an agent on top of a long history: how much is computed again, and how soon does an answer begin?

    pip install 'mlx[cpu]==0.32.4' mlx-lm==0.32.2 && cargo xtask bench agent_turns [--vllm-mlx PROGRAM]

Each turn sends the whole conversation and what a tool has said, and hears a short answer, which joins the history.
Then pairs of prompts that share their first 2048 words, with another end each: the first is cold, the second warm.
"""

import random
import statistics
import tempfile

import serving
from serving import say

HISTORY_WORDS = 4000
TURNS = 10
TOOL_WORDS = 64
ANSWER_TOKENS = 24
SHARED_WORDS = 2048
OWN_WORDS = 32


def turns(running, server):
    """The answers of a conversation that grows."""
    rng = random.Random(1)
    messages = [dict(role="system", content=serving.prose(rng, HISTORY_WORDS))]
    answers = []
    for _ in range(TURNS):
        messages.append(dict(role="user", content=serving.prose(rng, TOOL_WORDS)))
        body = serving.streaming(server, ANSWER_TOKENS, messages=messages)
        answer = serving.ask(running.url, body, path="/v1/chat/completions")
        serving.completed([answer])
        messages.append(dict(role="assistant", content=answer.text))
        answers.append(answer)
        say(f"{server.name}: {answer.usage}, first token after {answer.ttft_s:.3f} s")
    return answers


def pairs(running, server, count):
    """Seconds to the first token of cold prompts and of warm ones."""
    rng = random.Random(2)
    cold, warm = [], []
    for _ in range(count):
        shared = serving.prose(rng, SHARED_WORDS)
        for times in (cold, warm):
            body = serving.streaming(server, 2, prompt=shared + serving.prose(rng, OWN_WORDS))
            [answer] = serving.completed([serving.ask(running.url, body)])
            times.append(answer.ttft_s)
    say(f"{server.name}: cold {cold}, warm {warm}")
    return cold, warm


def measure(server, count, log):
    with serving.serving(server, log) as running:
        # The first request ever pays for more than its tokens.
        serving.completed([serving.ask(running.url, serving.streaming(server, 4, prompt=" time him like"))])
        answers = turns(running, server)
        cold, warm = pairs(running, server, count)
    cells = [dict(prompt_tokens=answer.usage.get("prompt_tokens"), cached_tokens=answer.cached_tokens,
                  ttft_s=answer.ttft_s) for answer in answers]
    return dict(server=server.name, turns=cells, cold_s=cold, warm_s=warm)


def turn_table(results):
    header = ["turn", "tokens of the prompt",
              *(f"{result['server']}: {what}" for result in results for what in ("cached", "first token"))]
    rows = []
    for index in range(TURNS):
        cells = [result["turns"][index] for result in results]
        rows.append([index + 1, cells[0]["prompt_tokens"],
                     *(text for cell in cells for text in (told(cell["cached_tokens"]), milliseconds(cell)))])
    return serving.table(header, rows)


def told(cached_tokens):
    return "not told" if cached_tokens is None else cached_tokens


def milliseconds(cell):
    return f"{1e3 * cell['ttft_s']:.0f} ms"


def pair_table(results):
    header = ["server", "cold", "warm", "cold over warm"]
    return serving.table(header, [
        [result["server"], serving.spread(result["cold_s"]), serving.spread(result["warm_s"]),
         f"{statistics.median(result['cold_s']) / statistics.median(result['warm_s']):.1f}×"] for result in results])


def main():
    parser = serving.arguments(__doc__, size=("10m", "which test model"),
                               pairs=(3, "how many pairs of prompts omnibus gets"),
                               slow_pairs=(1, "how many the others get"))
    parser.add_argument("--vllm-mlx", help="the program of that name, to be measured too")
    parser.add_argument("--only", action="append", help="measure only servers whose name begins so")
    options = serving.begin(parser)
    model = serving.make_models(options.out, options.size)["f32"]
    listed = [(serving.omnibus(options.omnibus, model), options.pairs),
              (serving.mlx_lm(options.python, model), options.slow_pairs)]
    # vllm-mlx keeps prompts below its home, and would know them from the last run.
    with open(options.out / "agent_turns.log", "w") as log, tempfile.TemporaryDirectory(dir=options.out) as home:
        if options.vllm_mlx:
            command = ["env", f"HOME={home}", options.vllm_mlx, "serve", str(model), "--continuous-batching",
                       "--served-model-name", "bench"]
            listed.append((serving.Server("vllm-mlx", command, "bench"), options.slow_pairs))
        results = [measure(server, count, log) for server, count in listed
                   if not options.only or any(server.name.startswith(only) for only in options.only)]
    remarks = (f"A llama with {options.size[:-1]} million parameters, 4 bits with float32 scales; answers of "
               f"{ANSWER_TOKENS} tokens; prompts of the second table have {SHARED_WORDS} + {OWN_WORDS} tokens, "
               f"{options.pairs} pairs for omnibus and {options.slow_pairs} for others, the median (least to most); "
               f"{serving.versions('mlx', 'mlx-lm')}.")
    serving.finish(__file__, options, results, [turn_table(results), pair_table(results)], remarks)


if __name__ == "__main__":
    main()
