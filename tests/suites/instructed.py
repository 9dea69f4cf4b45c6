"""instructor against a running server: every mode that sends a schema gives an object of it.

    instructed.py URL
"""

import sys

import instructor
import openai
from pydantic import BaseModel

client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none")
MODEL = client.models.list().data[0].id
MESSAGES = [{"role": "user", "content": "Which city is the capital of France?"}]


class City(BaseModel):
    city: str
    population: int


for mode in (instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT, instructor.Mode.JSON_SCHEMA):
    found = instructor.from_openai(client, mode=mode).chat.completions.create(
        model=MODEL, messages=MESSAGES, response_model=City, max_retries=0, temperature=0, max_tokens=200
    )
    assert isinstance(found, City), (mode, found)
    print("ok", mode)
