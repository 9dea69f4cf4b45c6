"""Tool calls through the SDKs of OpenAI and Anthropic, against a server with `tests/clients/scripted_model.py`.

usage: agents.py URL FILE WORD, where URL is the server's root, such as http://127.0.0.1:8000
"""

import json
import sys

import anthropic
import openai

ROOT, FILE, WORD = sys.argv[1:4]
OPENAI = openai.OpenAI(base_url=ROOT + "/v1", api_key="none", max_retries=0)
ANTHROPIC = anthropic.Anthropic(base_url=ROOT, api_key="none", max_retries=0)
MODEL = OPENAI.models.list().data[0].id
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOL = {"name": "read_file", "description": "Reads a file.", "parameters": SCHEMA}
QUESTION = "Which word is in the file?"
RESULT = f"The word is {WORD}."


def chat():
    tools = [{"type": "function", "function": TOOL}]
    messages = [{"role": "user", "content": QUESTION}]
    first = OPENAI.chat.completions.create(model=MODEL, messages=messages, tools=tools)
    message = first.choices[0].message
    call = message.tool_calls[0]
    assert first.choices[0].finish_reason == "tool_calls" and json.loads(call.function.arguments) == {"path": FILE}
    assert message.reasoning_content and first.usage.completion_tokens_details.reasoning_tokens > 0
    messages += [message, {"role": "tool", "tool_call_id": call.id, "content": RESULT}]
    second = OPENAI.chat.completions.create(model=MODEL, messages=messages, tools=tools)
    assert WORD in second.choices[0].message.content
    assert second.usage.prompt_tokens_details.cached_tokens > 0


def chat_stream():
    tools = [{"type": "function", "function": TOOL}]
    with OPENAI.chat.completions.stream(
        model=MODEL, messages=[{"role": "user", "content": QUESTION}], tools=tools
    ) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
    assert json.loads(done[0].arguments) == {"path": FILE} and done[0].name == "read_file"


def responses():
    tools = [{"type": "function", "strict": False, **TOOL}]
    first = OPENAI.responses.create(model="any-name", input=QUESTION, tools=tools)
    call = next(item for item in first.output if item.type == "function_call")
    assert json.loads(call.arguments) == {"path": FILE}
    output = {"type": "function_call_output", "call_id": call.call_id, "output": RESULT}
    second = OPENAI.responses.create(
        model="any-name", input=[output], tools=tools, previous_response_id=first.id
    )
    assert WORD in second.output_text and second.usage.input_tokens_details.cached_tokens > 0
    assert OPENAI.responses.retrieve(second.id).output_text == second.output_text
    assert len(OPENAI.responses.input_items.list(second.id).data) == 4
    OPENAI.responses.delete(first.id)
    with OPENAI.responses.stream(model="any-name", input=QUESTION) as stream:
        kinds = [event.type for event in stream]
        assert stream.get_final_response().output_text == "A short answer."
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"


def messages():
    tools = [{"name": "read_file", "description": "Reads a file.", "input_schema": SCHEMA}]
    turns = [{"role": "user", "content": QUESTION}]
    thinking = {"type": "enabled", "budget_tokens": 1024}
    first = ANTHROPIC.messages.create(
        model="claude-of-the-client", max_tokens=2000, messages=turns, tools=tools, thinking=thinking
    )
    assert [block.type for block in first.content] == ["thinking", "tool_use"] and first.stop_reason == "tool_use"
    call = first.content[1]
    assert call.input == {"path": FILE}
    result = {"type": "tool_result", "tool_use_id": call.id, "content": RESULT}
    turns += [{"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    counted = ANTHROPIC.messages.count_tokens(model="m", messages=turns, tools=tools, thinking=thinking)
    with ANTHROPIC.messages.stream(
        model="claude-of-the-client", max_tokens=2000, messages=turns, tools=tools, thinking=thinking
    ) as stream:
        second = stream.get_final_message()
    assert WORD in second.content[0].text and second.stop_reason == "end_turn"
    usage = second.usage
    assert usage.input_tokens + usage.cache_read_input_tokens == counted.input_tokens
    assert usage.cache_read_input_tokens > 0


def errors():
    try:
        # With a timeout of its own, as the SDK refuses long requests itself.
        turns = [{"role": "user", "content": "hi"}]
        ANTHROPIC.messages.create(model="m", max_tokens=10**9, messages=turns, timeout=60)
    except anthropic.BadRequestError as error:
        assert "exceed context limit" in str(error), error
    else:
        raise AssertionError("a completion of 10^9 tokens was not refused")
    try:
        OPENAI.responses.create(model="m", input="hi", max_output_tokens=10**9)
    except openai.BadRequestError as error:
        assert error.code == "context_length_exceeded", error
    else:
        raise AssertionError("a completion of 10^9 tokens was not refused")


CHECKS = [chat, chat_stream, responses, messages, errors]
for check in CHECKS:
    check()
    print("ok", check.__name__)
print(f"{len(CHECKS)} checks with openai {openai.__version__}, anthropic {anthropic.__version__}")
