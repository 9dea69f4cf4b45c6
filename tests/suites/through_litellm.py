"""LiteLLM against a running server: each API that it has for servers like OpenAI's, and Anthropic's messages.

    through_litellm.py URL
"""

import asyncio
import json
import sys

import litellm

ROOT = sys.argv[1]
OPENAI = {"api_base": ROOT + "/v1", "api_key": "none", "num_retries": 0}
QUESTION = [{"role": "user", "content": "What is two plus two?"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}


def chat(model):
    same = {"model": model, "messages": QUESTION, "temperature": 0, "max_tokens": 8, **OPENAI}
    whole = litellm.completion(**same)
    parts = litellm.completion(**same, stream=True, stream_options={"include_usage": True})
    chunks = list(parts)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content, (text, whole)
    counted = [chunk.usage for chunk in chunks if getattr(chunk, "usage", None)]
    assert counted[-1].completion_tokens == whole.usage.completion_tokens > 0, counted


def tools(model):
    forced = {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "weather"}}}
    message = litellm.completion(model=model, messages=QUESTION, temperature=0, **forced, **OPENAI).choices[0].message
    call = message.tool_calls[0]
    assert call.function.name == "weather" and "city" in json.loads(call.function.arguments), message
    answered = [*QUESTION, message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    assert litellm.completion(model=model, messages=answered, tools=[WEATHER], max_tokens=8, **OPENAI).choices


def structured(model):
    form = {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA, "strict": True}}
    answer = litellm.completion(model=model, messages=QUESTION, response_format=form, temperature=0, **OPENAI)
    assert set(json.loads(answer.choices[0].message.content)) == {"city"}, answer


def text(model):
    answer = litellm.text_completion(model=f"text-completion-{model}", prompt="Two plus two is", max_tokens=4, **OPENAI)
    assert answer.usage.completion_tokens > 0, answer


def responses(model):
    first = litellm.responses(model=model, input="What is two plus two?", max_output_tokens=16, **OPENAI)
    assert first.output[0].content[0].text, first
    second = litellm.responses(model=model, input="Again.", previous_response_id=first.id, max_output_tokens=16, **OPENAI)
    assert second.usage.input_tokens > first.usage.input_tokens, (first.usage, second.usage)


def vectors(model):
    found = litellm.embedding(model=model, input=["two", "four"], **OPENAI)
    assert [len(item["embedding"]) for item in found.data] == [len(found.data[0]["embedding"])] * 2


def messages(name):
    answer = litellm.completion(model=f"anthropic/{name}", messages=QUESTION, max_tokens=8, api_base=ROOT, api_key="none")
    assert answer.choices[0].message.content, answer
    sent = asyncio.run(
        litellm.anthropic.messages.acreate(
            model=f"anthropic/{name}", messages=QUESTION, max_tokens=8, api_base=ROOT, api_key="none"
        )
    )
    assert sent["content"][0]["text"], sent


def refused(model):
    try:
        litellm.completion(model=model, messages=QUESTION, top_p=7, **OPENAI)
    except litellm.BadRequestError as error:
        assert "top_p" in str(error), error
    else:
        raise AssertionError("a top_p of 7 was taken")


def main():
    import openai

    name = openai.OpenAI(base_url=OPENAI["api_base"], api_key="none").models.list().data[0].id
    for check in (chat, tools, structured, text, responses, vectors, refused):
        check(f"openai/{name}")
        print("ok", check.__name__)
    messages(name)
    print("ok messages")


if __name__ == "__main__":
    main()
