"""Structured output of the Responses API, parsed into the program's own type, whole and streamed."""

from openai import OpenAI
from pydantic import BaseModel


class City(BaseModel):
    name: str
    people: int


client = OpenAI(max_retries=0)
ask = {"model": "gpt-scripted", "input": "Which city?", "text_format": City}
assert client.responses.parse(**ask).output_parsed == City(name="Bern", people=134000)
with client.responses.stream(**ask) as stream:
    for _ in stream:
        pass
    assert stream.get_final_response().output_parsed == City(name="Bern", people=134000)
