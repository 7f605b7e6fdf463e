"""Structured output, parsed into the program's own type, whole and streamed."""

from openai import OpenAI
from pydantic import BaseModel


class City(BaseModel):
    name: str
    people: int


client = OpenAI(max_retries=0)
ask = {"model": "gpt-scripted", "messages": [{"role": "user", "content": "Which city?"}], "response_format": City}
whole = client.chat.completions.parse(**ask)
assert whole.choices[0].message.parsed == City(name="Bern", people=134000), whole
with client.chat.completions.stream(**ask) as stream:
    streamed = stream.get_final_completion()
assert streamed.choices[0].message.parsed == City(name="Bern", people=134000), streamed
