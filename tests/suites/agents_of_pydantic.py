"""pydantic-ai against a running server: agents of both of OpenAI's APIs, with outputs by calls and by formats, and their streams.

    agents_of_pydantic.py URL
"""

import asyncio
import sys

import openai
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

URL = sys.argv[1] + "/v1"
MODEL = openai.OpenAI(base_url=URL, api_key="none").models.list().data[0].id
QUESTION = "Which city is the capital of France?"
SETTINGS = {"temperature": 0, "max_tokens": 200}


class City(BaseModel):
    city: str
    population: int


async def run(kind):
    model = kind(MODEL, provider=OpenAIProvider(base_url=URL, api_key="none"))
    for output in (ToolOutput(City, strict=True), NativeOutput(City, strict=True)):
        found = await Agent(model, output_type=output, model_settings=SETTINGS).run(QUESTION)
        assert isinstance(found.output, City) and found.usage.output_tokens > 0, found
    async with Agent(model, model_settings=SETTINGS).run_stream(QUESTION) as stream:
        texts = [text async for text in stream.stream_text(delta=True)]
    assert "".join(texts).strip()


for kind in (OpenAIChatModel, OpenAIResponsesModel):
    asyncio.run(run(kind))
    print("ok", kind.__name__)
