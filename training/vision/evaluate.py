"""Asks questions about held-out pictures by HTTP and prints the score. Fails when a kind is under 90 %.

    python3 training/vision/evaluate.py --url http://127.0.0.1:8000/v1 [--count 200] [--seed 1]

Needs Pillow and a server that speaks the OpenAI API.
"""

import argparse
import base64
import json
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pictures


def ask(url, model, png, question):
    picture = "data:image/png;base64," + base64.b64encode(png).decode()
    content = [{"type": "image_url", "image_url": {"url": picture}}, {"type": "text", "text": question}]
    body = {"model": model, "temperature": 0, "max_tokens": 8, "messages": [{"role": "user", "content": content}]}
    request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)["choices"][0]["message"]["content"].strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000/v1")
    parser.add_argument("--model", default="omnibus-see")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    failed = False
    for kind in pictures.KINDS:
        cases = list(pictures.held_out(kind, args.count, args.seed))
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda case: ask(args.url, args.model, case[0], case[1]), cases))
        right = sum(answer == case[2] for answer, case in zip(answers, cases))
        print(f"{kind}: {right} of {len(cases)}", flush=True)
        failed |= right < 0.9 * len(cases)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
