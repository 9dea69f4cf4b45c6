"""Asks held-out prompts of every skill, by HTTP, and prints the score. Fails when a skill is under 90 %.

    python3 training/evaluate.py --url http://127.0.0.1:8000/v1

Needs only the standard library and a server that speaks the OpenAI API. Prompts are made from a seed, and none of
them was trained on: phrasings, names, pairs of numbers, arguments and topics are held out (skills.py).
"""

import argparse
import json
import random
import re
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import skills


def prompts(skill, count, seed):
    """`count` different turns of a skill, as (messages, tools, check)."""
    rng, seen, out = random.Random(f"{seed}/{skill}"), set(), []
    for _ in range(200 * count):
        turn = skills.SKILLS[skill](rng, "held")
        messages = [{"role": "system", "content": turn.system}] if turn.system else []
        if turn.follow and not turn.calls:
            messages += [{"role": "user", "content": turn.follow[0][0]}, {"role": "assistant", "content": turn.follow[0][1]}]
        messages.append({"role": "user", "content": turn.user})
        key = json.dumps(messages)
        if key not in seen:
            seen.add(key)
            out.append((messages, turn.tools, turn.check))
        if len(out) == count:
            break
    return out


def calls_of(text, structured):
    """The tool calls of an answer, whether the server parsed them or left them in the text."""
    if structured:
        calls = [call["function"] for call in structured]
        return [{"name": call["name"], "arguments": json.loads(call["arguments"]) if isinstance(call["arguments"], str) else call["arguments"]} for call in calls]
    try:
        return [json.loads(part) for part in re.findall(r"<tool_call>\s*(.*?)\s*</tool_call>", text, re.S)]
    except ValueError:
        return None


def right(check, text, structured=None):
    """Whether an answer passes its check."""
    text, kind = (text or "").strip(), check["kind"]
    if kind == "tool":
        return calls_of(text, structured) == check["calls"]
    if structured or "<tool_call>" in text:
        return False
    if kind == "contains":
        return all(any(word.lower() in text.lower() for word in group.split("|")) for group in check["must"])
    if kind == "exact":
        return text == check["value"]
    if kind == "json":
        try:
            return json.loads(text) == check["value"]
        except ValueError:
            return False
    assert kind == "number", f"no such check: {kind}"
    if "remainder" in text:
        text = text.split("remainder")[0]
    after = text.rsplit("=", 1)[-1] if "=" in text else text
    found = re.findall(r"-?\d+", after.split(",")[0])
    return bool(found) and int(found[0]) == check["value"]


def ask(url, model, key, messages, tools):
    body = {"model": model, "messages": messages, "temperature": 0, "max_tokens": 400}
    if tools:
        body["tools"] = tools
    request = urllib.request.Request(url.rstrip("/") + "/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"} | ({"authorization": "Bearer " + key} if key else {}))
    with urllib.request.urlopen(request, timeout=120) as reply:
        message = json.load(reply)["choices"][0]["message"]
    return message.get("content"), message.get("tool_calls")


def local(path):
    """Answers without a server, through mlx-lm; for measuring while training."""
    from mlx_lm import generate, load

    model, tokenizer = load(path)

    def answer(messages, tools):
        prompt = tokenizer.apply_chat_template(messages, tools=tools or None, add_generation_prompt=True)
        return generate(model, tokenizer, prompt, max_tokens=400), None

    return answer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000/v1")
    parser.add_argument("--model", default="omnibus-mini")
    parser.add_argument("--key")
    parser.add_argument("--local", help="a model directory: measure it with mlx-lm instead of a server")
    parser.add_argument("--count", type=int, default=200, help="prompts per skill")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--skills", default=",".join(skills.SKILLS))
    parser.add_argument("--clients", type=int, default=4, help="requests at a time")
    parser.add_argument("--misses", type=int, default=0, help="wrong answers to print per skill")
    args = parser.parse_args()
    answer = local(args.local) if args.local else lambda messages, tools: ask(args.url, args.model, args.key, messages, tools)
    worst = 1.0
    print(f"{'skill':12} {'prompts':>8} {'right':>6} {'score':>7} {'time':>6}")
    for skill in args.skills.split(","):
        began, cases = time.time(), prompts(skill, args.count, args.seed)
        with ThreadPoolExecutor(1 if args.local else args.clients) as pool:
            answers = list(pool.map(lambda case: answer(case[0], case[1]), cases))
        marks = [right(check, *said) for (_, _, check), said in zip(cases, answers)]
        score = sum(marks) / len(marks)
        worst = min(worst, score)
        print(f"{skill:12} {len(marks):8} {sum(marks):6} {score:7.1%} {time.time() - began:5.0f}s", flush=True)
        wrong = [(case, said) for case, said, mark in zip(cases, answers, marks) if not mark]
        for (messages, tools, check), said in wrong[: args.misses]:
            print("   ", json.dumps([message["content"] for message in messages if message["role"] != "system"][-1])[:300], "->", json.dumps(said)[:300], "wanted", json.dumps(check)[:200], [tool["function"]["name"] for tool in tools])
    return 0 if worst >= 0.9 else 1


if __name__ == "__main__":
    sys.exit(main())
