"""OpenAI's SDK against a running server. The address is argv[1] or OMNIBUS_URL."""

import json
import os
import sys

import openai

URL = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("OMNIBUS_URL")
if not URL:
    sys.exit("usage: openai_sdk.py URL, or set OMNIBUS_URL, such as http://127.0.0.1:8000/v1")
client = openai.OpenAI(base_url=URL, api_key=os.environ.get("OMNIBUS_API_KEY") or "none", max_retries=0)
MODEL = client.models.list().data[0].id
HELLO = [{"role": "user", "content": "What is two plus two?"}]


def models():
    one = client.models.retrieve(MODEL)
    assert one.id == MODEL and one.object == "model" and one.context_length > 0


def chat():
    answer = client.chat.completions.create(model=MODEL, messages=HELLO, max_completion_tokens=8, temperature=0)
    choice = answer.choices[0]
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-")
    assert choice.message.role == "assistant" and choice.finish_reason in ("stop", "length")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.prompt_tokens_details.cached_tokens >= 0
    return choice.message.content


def chat_turns():
    """A message from the SDK's response can be sent in the next request."""
    first = client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=4)
    turns = [*HELLO, first.choices[0].message, {"role": "user", "content": [{"type": "text", "text": "And then?"}]}]
    again = client.chat.completions.create(model=MODEL, messages=turns, max_tokens=4, user="user-1")
    assert again.usage.prompt_tokens > first.usage.prompt_tokens


def stream():
    text, last = "", None
    options = {"include_usage": True}
    for chunk in client.chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=8, temperature=0, stream=True, stream_options=options
    ):
        last = chunk
        for choice in chunk.choices:
            text += choice.delta.content or ""
    assert last.usage.completion_tokens > 0 and not last.choices
    assert text == chat(), (text, chat())


def stream_ends_early():
    parts = client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=512, stream=True)
    next(iter(parts))
    parts.close()


def several():
    answer = client.chat.completions.create(model=MODEL, messages=HELLO, n=3, seed=1, max_tokens=8, temperature=1.5)
    again = client.chat.completions.create(model=MODEL, messages=HELLO, n=3, seed=1, max_tokens=8, temperature=1.5)
    texts = [choice.message.content for choice in answer.choices]
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert texts == [choice.message.content for choice in again.choices]


def logprobs():
    answer = client.chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=4, temperature=0, logprobs=True, top_logprobs=3
    )
    tokens = answer.choices[0].logprobs.content
    assert tokens and all(len(token.top_logprobs) == 3 and token.logprob <= 1e-4 for token in tokens)
    assert all(bytes(token.bytes) for token in tokens)


def tools():
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
    plain = client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=2)
    with_tool = client.chat.completions.create(
        model=MODEL, messages=HELLO, max_tokens=2, tools=[tool], tool_choice="auto"
    )
    assert with_tool.usage.prompt_tokens >= plain.usage.prompt_tokens


def completions():
    answer = client.completions.create(
        model=MODEL, prompt=["one two", "three four"], max_tokens=4, echo=True, logprobs=2, temperature=0
    )
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert answer.choices[0].text.startswith("one two")
    lists = answer.choices[0].logprobs
    assert len(lists.tokens) == len(lists.text_offset) == len(lists.token_logprobs) == len(lists.top_logprobs)
    tokens = client.completions.create(model=MODEL, prompt=[1, 2, 3], max_tokens=2)
    assert tokens.usage.prompt_tokens == 3
    parts = client.completions.create(model=MODEL, prompt="one two", max_tokens=4, temperature=0, stream=True)
    assert "one two" + "".join(part.choices[0].text for part in parts) == answer.choices[0].text


def extra_fields():
    extra = {"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1, "ignore_eos": True}
    answer = client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=6, extra_body=extra)
    assert answer.usage.completion_tokens == 6 and answer.choices[0].finish_reason == "length"


def structured():
    schema = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "one", "schema": schema}}
    for sampling in ({"temperature": 0}, {"temperature": 1.0, "seed": 3}):
        answer = client.chat.completions.create(
            model=MODEL, messages=HELLO, max_tokens=60, response_format=form, **sampling
        )
        assert json.loads(answer.choices[0].message.content) == {"a": 1}, answer


def conversations():
    """Responses continue and extend a conversation; its items are listed, read and removed."""
    kept = client.conversations.create(items=[{"role": "user", "content": "My name is Ada."}], metadata={"a": "b"})
    answer = client.responses.create(model=MODEL, input="hi", conversation=kept.id, max_output_tokens=8)
    assert answer.conversation.id == kept.id
    items = list(client.conversations.items.list(kept.id, order="asc", limit=2))
    assert [item.role for item in items] == ["user", "user", "assistant"], items
    added = client.conversations.items.create(kept.id, items=[{"role": "user", "content": "and?"}])
    one = client.conversations.items.retrieve(added.first_id, conversation_id=kept.id)
    assert one.content[0].text == "and?"
    client.conversations.items.delete(added.first_id, conversation_id=kept.id)
    assert client.conversations.update(kept.id, metadata={"c": "d"}).metadata == {"c": "d"}
    assert client.conversations.delete(kept.id).deleted


def compaction():
    """What a compaction returns is sent back as input."""
    turns = [{"role": "user", "content": "We launch on Tuesday."}, {"role": "assistant", "content": "Noted."}]
    compacted = client.responses.compact(model=MODEL, input=turns)
    assert compacted.output[-1].type == "compaction" and compacted.usage.output_tokens > 0
    again = [item.model_dump(exclude_none=True, warnings=False) for item in compacted.output] + [{"role": "user", "content": "When?"}]
    answer = client.responses.create(model=MODEL, input=again, max_output_tokens=8)
    assert answer.usage.input_tokens > 0


def errors():
    def refused(kind, param, **fields):
        try:
            client.chat.completions.create(**{"model": MODEL, "messages": HELLO, "max_tokens": 2, **fields})
        except kind as error:
            assert error.param == param, (error.param, param)
            assert error.request_id
            return
        raise AssertionError(f"{fields} was not refused")

    refused(openai.BadRequestError, "temperature", temperature=-1)
    refused(openai.BadRequestError, "messages", messages=[])
    refused(openai.BadRequestError, "n", n=1000, stream=True)
    refused(openai.NotFoundError, "model", model="missing")


def vectors():
    """The SDK requests base64 unless it is given another format; both are the same numbers."""
    by_default = client.embeddings.create(model=MODEL, input=["one", "two"])
    floats = client.embeddings.create(model=MODEL, input=["one", "two"], encoding_format="float")
    assert [row.index for row in by_default.data] == [0, 1] and by_default.usage.total_tokens > 0
    for one, other in zip(by_default.data, floats.data):
        assert len(one.embedding) == len(other.embedding)
        assert max(abs(a - b) for a, b in zip(one.embedding, other.embedding)) < 1e-6
    cut = client.embeddings.create(model=MODEL, input="one", dimensions=8).data[0].embedding
    assert len(cut) == 8 and abs(sum(number * number for number in cut) - 1) < 1e-4


CHECKS = [
    models, chat, chat_turns, stream, stream_ends_early, several, logprobs, tools, completions, extra_fields, structured,
    conversations, compaction, vectors, errors,
]
for check in CHECKS:
    check()
    print("ok", check.__name__)
print(f"{len(CHECKS)} checks with openai {openai.__version__}")
