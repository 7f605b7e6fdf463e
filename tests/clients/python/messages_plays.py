"""What the clients of the Messages API have in common: the plays, which are read from the input, and the tools. A play is an
agent's run in one form of the client. Each prints a line: the final text, the calls that ran, the error with which it ended."""

import json
import sys

# Requests of one play at most: more mean that nothing ends the loop.
MOST_REQUESTS = 60

SCHEMAS = {
    "get_weather": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "search": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
}
DESCRIPTIONS = {"get_weather": "The weather in a city.", "search": "Searches the web."}


class Tools:
    """The tools of one play; what ran is kept in order."""

    def __init__(self):
        self.ran = []

    def get_weather(self, city: str) -> str:
        """The weather in a city."""
        self.ran.append(["get_weather", city])
        return f"Clear in {city}."

    def search(self, query: str) -> str:
        """Searches the web."""
        self.ran.append(["search", query])
        return "Nothing found."

    def run(self, name, arguments):
        """The result of a call, whatever its arguments."""
        key = "city" if name == "get_weather" else "query"
        return getattr(self, name)(arguments.get(key, ""))


def play_all(forms):
    """Runs every play of the input by its form: a function of the play and its tools that returns the final text."""
    for play in json.load(sys.stdin):
        tools, text, error = Tools(), None, None
        try:
            text = forms[play["form"]](play, tools)
        except Exception as problem:  # noqa: BLE001 The test judges every error.
            error = f"{type(problem).__name__}: {problem}"
        print(json.dumps({"text": text, "ran": tools.ran, "error": error}), flush=True)
