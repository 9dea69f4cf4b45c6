"""The request types of OpenAI's and Anthropic's SDKs, field by field, against a running server.

    request_types.py URL [CASES]

URL is the server's root, such as http://127.0.0.1:8000. The types are those of Python's SDKs, or of others: CASES is a file
with a list of [route, field, value], as request_types.mjs prints it.

Each optional field is sent alone, with each kind of value that its type allows. No answer may be a 5xx; a refusal must name
the field; and what the server does not know must be in `HARMLESS`, with the reason why no answer changes without it: the
server counts what it leaves out in `omnibus_unknown_fields_total`.
"""

import collections
import json
import sys
import types
import typing
import urllib.error
import urllib.request

import typing_extensions
from openai.types import completion_create_params as completions
from openai.types.chat import completion_create_params as chat
from openai.types.responses import response_create_params as responses
from anthropic.types import message_count_tokens_params as counting
from anthropic.types import message_create_params as messages

URL = sys.argv[1].rstrip("/")
# Values of one kind, and depth of nested types, that are sent.
VALUES_MAX = 12
DEPTH_MAX = 5
HELLO = [{"role": "user", "content": "What is two plus two?"}]
APIS = [
    ("/v1/chat/completions", chat.CompletionCreateParamsNonStreaming, {"messages": HELLO, "max_tokens": 2}),
    ("/v1/completions", completions.CompletionCreateParamsNonStreaming, {"prompt": "two plus two", "max_tokens": 2}),
    ("/v1/responses", responses.ResponseCreateParamsNonStreaming, {"input": "two plus two", "max_output_tokens": 2}),
    ("/v1/messages", messages.MessageCreateParamsNonStreaming, {"messages": HELLO, "max_tokens": 2}),
    ("/v1/messages/count_tokens", counting.MessageCountTokensParams, {"messages": HELLO}),
]
# What is sent where any text, number or object of the type would be refused for its value.
EXAMPLES = {
    "model": ["omnibus-mini"],
    "temperature": [0.5],
    "top_p": [0.5],
    "top_k": [3],
    "top_logprobs": [2],
    "logprobs": [2, True],
    "max_tokens": [2],
    "max_output_tokens": [16],
    "max_completion_tokens": [2],
    "n": [2],
    "best_of": [1],
    "seed": [7],
    "presence_penalty": [0.5],
    "frequency_penalty": [0.5],
    "logit_bias": [{"5": 1}],
    "metadata": [{"a": "b"}],
    "suffix": ["x"],
    "max_tool_calls": [1],
}
# What the server leaves out, by its route and its path, and why no answer changes without it.
HARMLESS = {
    ("/v1/responses", "tools"): "tools that OpenAI's servers run are never called here, as where a model does not choose them",
}
# Fields that go with another one only.
WITH = {
    "top_logprobs": {"logprobs": True},  # of chat
    "tool_choice": {"tools": None},
    "parallel_tool_calls": {"tools": None},
    "function_call": {"functions": [{"name": "f", "parameters": {"type": "object", "properties": {}}}]},
    "stream_options": {"stream": True},
}
TOOLS = {
    "/v1/chat/completions": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "/v1/responses": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}],
    "/v1/messages": [{"name": "f", "input_schema": {"type": "object"}}],
    "/v1/messages/count_tokens": [{"name": "f", "input_schema": {"type": "object"}}],
}


def fields(kind):
    """The fields of a TypedDict with their types."""
    return typing_extensions.get_type_hints(kind, include_extras=False)


def values(kind, name="", depth=0):
    """Values of a type: each alternative, and of objects the required fields, with each optional one alone."""
    if depth > DEPTH_MAX:
        return []
    if name in EXAMPLES and depth <= 1:
        return EXAMPLES[name]
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Annotated, typing_extensions.Required, typing_extensions.NotRequired):
        return values(inner[0], name, depth)
    if origin in (typing.Union, types.UnionType):
        found = [value for one in inner if one is not type(None) for value in values(one, "", depth)[:4]]
        return found[: 4 * VALUES_MAX]
    if origin is typing.Literal:
        return list(inner)
    if origin in (list, collections.abc.Iterable, collections.abc.Sequence):
        return [[value] for value in values(inner[0], "", depth + 1)]
    if origin in (dict, collections.abc.Mapping) or kind is object:
        return [{"type": "object", "properties": {}}] if kind is not object else ["x"]
    if typing_extensions.is_typeddict(kind):
        return objects(kind, depth)
    return {bool: [True, False], int: [1], float: [0.5], str: ["x"]}.get(kind, [])


def objects(kind, depth):
    hints = fields(kind)
    base = {}
    for name in sorted(kind.__required_keys__):
        found = values(hints[name], name, depth + 1)
        if not found:
            return []
        base[name] = found[0]
    more = [
        {**base, name: value}
        for name in sorted(kind.__optional_keys__)
        for value in values(hints[name], name, depth + 1)[:2]
    ]
    return [base, *more]


def post(path, body):
    """The status and the answer."""
    data = json.dumps(body).encode()
    request = urllib.request.Request(URL + path, data, {"content-type": "application/json", "anthropic-version": "2023-06-01"})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def left_out():
    with urllib.request.urlopen(URL + "/metrics") as page:
        lines = page.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("omnibus_unknown_fields_total"))


def check(path, base, name, value):
    """What is wrong with the answer to a field; None where nothing is."""
    extra = {key: TOOLS[path] if other is None else other for key, other in WITH.get(name, {}).items()}
    if path == "/v1/responses":
        extra.pop("logprobs", None)
    before = left_out()
    status, text = post(path, {**base, **extra, name: value})
    shown = f"{path} {name}={json.dumps(value)[:160]}"
    if status >= 500:
        return f"{shown}: {status} {text[:200]}"
    if status >= 400:
        return None if name in text else f"{shown}: refused without its name: {text[:200]}"
    if left_out() > before and (path, name) not in HARMLESS:
        return f"{shown}: accepted, and something of it left out"
    return None


def types_of_python():
    """A list of (route, field, value); None where a field has no value that is known here."""
    for path, kind, _ in APIS:
        for name, hint in fields(kind).items():
            yield from ((path, name, value) for value in values(hint, name) or [None])


def cases_of(file):
    """A list of (route, field, value) with the examples of this file."""
    with open(file, encoding="utf-8") as text:
        found = json.load(text)
    examples = {(path, name): EXAMPLES[name] for path, name, _ in found if name in EXAMPLES}
    yield from ((path, name, value) for path, name, value in found if name not in EXAMPLES)
    yield from ((path, name, value) for (path, name), several in examples.items() for value in several)


def main():
    counts, wrong = collections.Counter(), []
    bases = {path: base for path, _, base in APIS}
    for path, base in bases.items():
        status, text = post(path, base)
        assert status == 200, (path, status, text)
    for path, name, value in cases_of(sys.argv[2]) if len(sys.argv) > 2 else types_of_python():
        base = bases[path]
        if name in base or name == "stream":
            continue
        if value is None:
            wrong.append(f"{path} {name}: no value of its type is known here")
            continue
        counts[path] += 1
        found = check(path, base, name, value)
        if found:
            wrong.append(found)
    for line in wrong:
        print(line)
    print(", ".join(f"{path}: {count}" for path, count in counts.items()), f"requests; {len(wrong)} wrong")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
