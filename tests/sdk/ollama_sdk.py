"""Ollama's library and LangChain's ChatOllama, against a server with `tests/clients/scripted_model.py`.

usage: ollama_sdk.py URL FILE WORD, where URL is the server's root, such as http://127.0.0.1:8000
"""

import datetime
import importlib.metadata
import json
import sys

import ollama
from langchain_ollama import ChatOllama

ROOT, FILE, WORD = sys.argv[1:4]
CLIENT = ollama.Client(host=ROOT)
MODEL = CLIENT.list().models[0].model
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOL = {"type": "function", "function": {"name": "read_file", "description": "Reads a file.", "parameters": SCHEMA}}
QUESTION = {"role": "user", "content": "Which word is in the file?"}


def models():
    assert MODEL.endswith(":latest"), MODEL
    listed = CLIENT.list().models[0]
    assert listed.size > 0 and isinstance(listed.modified_at, datetime.datetime) and listed.details.family
    shown = CLIENT.show(MODEL)
    assert "tools" in shown.capabilities and "thinking" in shown.capabilities, shown.capabilities
    architecture = shown.modelinfo["general.architecture"]
    assert shown.modelinfo[f"{architecture}.context_length"] > 0
    loaded = CLIENT.ps().models[0]
    assert loaded.digest == listed.digest and loaded.expires_at.year > 2100


def chat():
    answer = CLIENT.chat(MODEL.removesuffix(":latest"), [{"role": "user", "content": "Hello!"}])
    assert answer.message.content == "A short answer." and answer.done and answer.done_reason == "stop"
    assert answer.eval_count > 0 and answer.total_duration >= answer.prompt_eval_duration + answer.eval_duration
    lines = list(CLIENT.chat(MODEL, [{"role": "user", "content": "Hello!"}], stream=True, keep_alive=-1))
    assert "".join(line.message.content for line in lines) == answer.message.content
    assert [line.done for line in lines] == [False] * (len(lines) - 1) + [True]


def tools():
    """The library drops the ids of calls: their results are known by the name of the tool."""
    first = CLIENT.chat(MODEL, [QUESTION], tools=[TOOL], think=True)
    call = first.message.tool_calls[0].function
    assert (call.name, call.arguments) == ("read_file", {"path": FILE}) and first.message.thinking
    result = {"role": "tool", "tool_name": call.name, "content": f"The word is {WORD}."}
    second = CLIENT.chat(MODEL, [QUESTION, first.message, result], tools=[TOOL])
    assert WORD in second.message.content
    quiet = CLIENT.chat(MODEL, [QUESTION], tools=[TOOL], think=False)
    assert quiet.message.thinking is None and quiet.message.tool_calls


def read_file(path: str) -> str:
    """Reads a file.

    Args:
      path: The file's path.
    """
    return f"The word is {WORD}, in {path}."


def functions():
    answer = CLIENT.chat(MODEL, [QUESTION], tools=[read_file])
    assert answer.message.tool_calls[0].function.arguments == {"path": FILE}


def generate():
    answer = CLIENT.generate(MODEL, "Hello!", system="Be brief.", options={"temperature": 0, "num_ctx": 2048})
    assert answer.response == "A short answer."
    # The end token is counted, and no part of the context.
    assert len(answer.context) == answer.prompt_eval_count + answer.eval_count - 1
    more = CLIENT.generate(MODEL, "And then?", context=answer.context)
    assert more.prompt_eval_count > len(answer.context)
    streamed = CLIENT.generate(MODEL, "Hello!", stream=True, options={"num_predict": 2})
    assert list(streamed)[-1].done_reason == "length"
    assert CLIENT.generate(MODEL).done_reason == "load"
    assert CLIENT.generate(MODEL, keep_alive=0).done_reason == "unload"


def formats():
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False}
    answer = CLIENT.chat(MODEL, [{"role": "user", "content": "Is it?"}], format=schema, options={"num_predict": 60, "temperature": 0})
    assert answer.message.content.startswith("{") and answer.done_reason == "stop", answer
    assert isinstance(json.loads(answer.message.content)["ok"], bool), answer


def pulls():
    assert [line.status for line in CLIENT.pull(MODEL, stream=True)][-1] == "success"
    assert CLIENT.pull(MODEL).status == "success"


def vectors():
    answer = CLIENT.embed(MODEL, ["a", "b"])
    assert len(answer.embeddings) == 2 and answer.prompt_eval_count >= 2, answer
    assert abs(sum(number * number for number in answer.embeddings[0]) - 1) < 1e-4
    assert list(CLIENT.embeddings(MODEL, "a").embedding) == list(answer.embeddings[0])


def errors():
    def refused(status, text, call):
        try:
            call()
        except ollama.ResponseError as error:
            assert error.status_code == status and text in error.error, (error.status_code, error.error)
            return
        raise AssertionError(f"not refused: {text}")

    refused(404, "not found", lambda: CLIENT.chat("missing", [QUESTION]))
    refused(404, "not found", lambda: list(CLIENT.chat("missing", [QUESTION], stream=True)))
    refused(404, "not found", lambda: CLIENT.show("missing"))
    refused(400, "omnibus pull org/name", lambda: CLIENT.pull("org/name"))
    refused(404, "not found", lambda: CLIENT.embed("missing", "a"))
    refused(403, "omnibus rm", lambda: CLIENT.delete(MODEL))
    refused(400, "options.temperature", lambda: CLIENT.chat(MODEL, [QUESTION], options={"temperature": "hot"}))


def langchain():
    model = ChatOllama(model=MODEL.removesuffix(":latest"), base_url=ROOT, validate_model_on_init=True, temperature=0)
    answer = model.invoke("Hello!")
    assert answer.content == "A short answer." and answer.usage_metadata["output_tokens"] > 0
    assert "".join(chunk.content for chunk in model.stream("Hello!")) == answer.content
    bound = model.bind_tools([TOOL])
    first = bound.invoke([("user", QUESTION["content"])])
    assert first.tool_calls[0]["args"] == {"path": FILE}
    result = {"role": "tool", "tool_call_id": first.tool_calls[0]["id"], "content": f"The word is {WORD}."}
    assert WORD in bound.invoke([("user", QUESTION["content"]), first, result]).content


CHECKS = [models, chat, tools, functions, generate, formats, pulls, vectors, errors, langchain]
for check in CHECKS:
    check()
    print("ok", check.__name__)
versions = [f"{name} {importlib.metadata.version(name)}" for name in ("ollama", "langchain-ollama")]
print(f"{len(CHECKS)} checks with {', '.join(versions)}")
