"""The 17 cases of Open Responses' compliance suite, checked by the types that the specification publishes.

Usage: open_responses.py ADDRESS MODEL

The suite itself needs Bun and its repository; these are its cases in words of our own, with the validation of each answer and
each event by `openresponses-types`, which is generated from the same specification.
"""

import asyncio
import base64
import json
import sys
import zlib

import httpx
import openresponses_types.types as spec
import websockets
from pydantic import TypeAdapter

address, model = sys.argv[1:3]
socket_address = address.replace("http", "ws", 1) + "/v1/responses"
Event = TypeAdapter(
    spec.ResponseCreatedStreamingEvent
    | spec.ResponseQueuedStreamingEvent
    | spec.ResponseInProgressStreamingEvent
    | spec.ResponseCompletedStreamingEvent
    | spec.ResponseFailedStreamingEvent
    | spec.ResponseIncompleteStreamingEvent
    | spec.ResponseOutputItemAddedStreamingEvent
    | spec.ResponseOutputItemDoneStreamingEvent
    | spec.ResponseContentPartAddedStreamingEvent
    | spec.ResponseContentPartDoneStreamingEvent
    | spec.ResponseOutputTextDeltaStreamingEvent
    | spec.ResponseOutputTextDoneStreamingEvent
    | spec.ResponseFunctionCallArgumentsDeltaStreamingEvent
    | spec.ResponseFunctionCallArgumentsDoneStreamingEvent
    | spec.ErrorStreamingEvent
    | spec.WebSocketErrorEvent
)
ENDS = {"response.completed", "response.failed", "response.incomplete"}
client = httpx.AsyncClient(base_url=f"{address}/v1", timeout=300)


def message(role, content, **more):
    return {"type": "message", "role": role, "content": content, **more}


def red_picture():
    """A PNG of 32 by 32 red pixels, as a data URL."""

    def chunk(kind, data):
        body = kind + data
        return len(data).to_bytes(4) + body + zlib.crc32(body).to_bytes(4)

    header = (32).to_bytes(4) * 2 + bytes([8, 2, 0, 0, 0])
    rows = zlib.compress((b"\0" + b"\xff\0\0" * 32) * 32)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(png).decode()


WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather for a location",
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string", "description": "The city and state, e.g. San Francisco, CA"}},
        "required": ["location"],
    },
}


def completed(answer):
    """What each answer of the suite must be: of the published type, complete, with output."""
    spec.ResponseResource.model_validate(answer)
    assert answer["status"] == "completed", answer["status"]
    assert answer["output"], "no output"
    return answer


async def create(**body):
    response = await client.post("/responses", json={"model": model, **body})
    assert response.status_code == 200, response.text
    return response.json()


async def compact(**body):
    return await client.post("/responses/compact", json=body)


async def basic_response():
    completed(await create(input=[message("user", "Say hello in exactly 3 words.")]))


async def assistant_phase():
    history = [
        message("assistant", "I should answer with the saved number.", phase="commentary"),
        message("assistant", "The number is four.", phase="final_answer"),
        message("user", "Repeat only the number."),
    ]
    completed(await create(input=history))


async def output_phase_is_of_the_published_type():
    """The suite checks this of a fixed answer; here it is one of the server's with the phases put in."""
    answer = completed(await create(input="Hello"))
    said = answer["output"][-1]
    answer["output"] = [{**said, "phase": phase} for phase in ("commentary", "final_answer")]
    completed(answer)


async def streaming_response():
    events = []
    body = {"model": model, "stream": True, "input": [message("user", "Count from 1 to 5.")]}
    async with client.stream("POST", "/responses", json=body) as response:
        assert response.status_code == 200
        async for line in response.aiter_lines():
            data = line.removeprefix("data: ")
            if line.startswith("data:") and data != "[DONE]":
                events.append(json.loads(data))
                Event.validate_python(events[-1])
    completed(events[-1]["response"])


async def turns(*steps):
    """Answers or errors of requests on one WebSocket; a step may be a function of the answers before it."""
    ends = []
    async with websockets.connect(socket_address, max_size=None) as socket:
        for step in steps:
            body = step(ends) if callable(step) else step
            await socket.send(json.dumps({"type": "response.create", "model": model, **body}))
            while True:
                event = json.loads(await socket.recv())
                Event.validate_python(event)
                if event["type"] in ENDS:
                    ends.append(event["response"])
                    break
                if event["type"] == "error":
                    ends.append(event)
                    break
    return ends


def error_code(end):
    return (end.get("error") or {}).get("code")


async def websocket_response():
    completed(*await turns({"input": [message("user", "Count from 1 to 3.")]}))


async def websocket_sequential_responses():
    for end in await turns(*({"store": False, "input": f"Reply with exactly: {word}"} for word in ["first", "second"])):
        completed(end)


def after(index, text):
    """A request that goes on from the answer of turn `index`."""
    return lambda ends: {"store": False, "previous_response_id": ends[index]["id"], "input": text}


async def websocket_continuation():
    first = {"store": False, "input": "Remember the code word: cobalt. Reply with OK."}
    for end in await turns(first, after(0, "What is the code word? Reply with only the code word.")):
        completed(end)


async def websocket_reconnect_recovers():
    (first,) = await turns({"store": False, "input": "Remember the code word: copper. Reply with OK."})
    completed(first)
    lost, recovered = await turns(
        {"store": False, "previous_response_id": first["id"], "input": "Try to continue."},
        {"store": False, "input": [message("user", "Start a new response and reply with exactly: recovered")]},
    )
    assert error_code(lost) == "previous_response_not_found", lost
    completed(recovered)


async def websocket_previous_response_not_found():
    (end,) = await turns({"store": False, "previous_response_id": "resp_missing", "input": "This should fail."})
    assert error_code(end) == "previous_response_not_found", end


async def websocket_failed_continuation_evicts():
    orphan = [{"type": "function_call_output", "call_id": "call_missing", "output": "No such call."}]
    first, failed, retried = await turns(
        {"store": False, "input": "Remember the code word: ember. Reply with OK."},
        after(0, orphan),
        after(0, "Try to continue after the failed turn. Reply with exactly: stale"),
    )
    completed(first)
    assert failed.get("type") == "error" or failed.get("status") == "failed", failed
    assert error_code(retried) == "previous_response_not_found", retried


async def websocket_compact_new_chain():
    history = [
        message("user", [{"type": "input_text", "text": "Remember the compaction code word: slate."}]),
        message("assistant", [{"type": "output_text", "text": "OK."}]),
        message("user", [{"type": "input_text", "text": "Compress this conversation for later continuation."}]),
    ]
    response = await compact(model=model, input=history)
    assert response.status_code == 200, response.text
    window = [*response.json()["output"], message("user", "Continue from here. Reply with exactly: compacted")]
    completed(*await turns({"store": False, "input": window, "tools": []}))


async def system_prompt():
    pirate = message("system", "You are a pirate. Always respond in pirate speak.")
    completed(await create(input=[pirate, message("user", "Say hello.")]))


async def tool_calling():
    answer = await create(input=[message("user", "What's the weather like in San Francisco?")], tools=[WEATHER])
    spec.ResponseResource.model_validate(answer)
    assert "function_call" in [item["type"] for item in answer["output"]], answer["output"]


async def image_input():
    content = [
        {"type": "input_text", "text": "What do you see in this image? Answer in one sentence."},
        {"type": "input_image", "image_url": red_picture()},
    ]
    completed(await create(input=[message("user", content)]))


async def multi_turn():
    history = [
        message("user", "My name is Alice."),
        message("assistant", "Hello Alice! Nice to meet you. How can I help you today?"),
        message("user", "What is my name?"),
    ]
    completed(await create(input=history))


async def compact_response():
    history = [
        message("user", "We agreed to launch on Tuesday and notify support first."),
        message("assistant", "Understood. The launch is Tuesday, with support notified beforehand."),
    ]
    response = await compact(model=model, prompt_cache_key="compact-test", input=history)
    assert response.status_code == 200, response.text
    answer = response.json()
    spec.CompactResource.model_validate(answer)
    assert answer["object"] == "response.compaction"
    assert "compaction" in [item["type"] for item in answer["output"]], answer["output"]


async def compact_missing_model():
    response = await compact(input=[message("user", "Compact this conversation.")])
    assert response.status_code in (400, 422), response.text


CASES = [
    basic_response,
    assistant_phase,
    output_phase_is_of_the_published_type,
    streaming_response,
    websocket_response,
    websocket_sequential_responses,
    websocket_continuation,
    websocket_reconnect_recovers,
    websocket_previous_response_not_found,
    websocket_failed_continuation_evicts,
    websocket_compact_new_chain,
    system_prompt,
    tool_calling,
    image_input,
    multi_turn,
    compact_response,
    compact_missing_model,
]


async def main():
    failed = []
    for case in CASES:
        try:
            await case()
        except Exception as error:  # Each case is run, whatever those before it gave.
            failed.append(f"{case.__name__}: {error!r}")
    print(f"Open Responses: {len(CASES) - len(failed)} of {len(CASES)}")
    for line in failed:
        print(line[:2000], file=sys.stderr)
    return 1 if failed else 0


sys.exit(asyncio.run(main()))
