"""What all clients share: the four tools, the tools' results, and the loop that reads jobs and prints outcomes.

A job is a line of JSON: `url` and `key` of the API, `model`, `api` ("chat" or "responses"), `is_streamed`, `is_chained` (the upstream
keeps the history), `question`, `answers` (what the user says to texts of the model, in order), and further options of the request.
The outcome is a line of JSON: `texts` (each final text), `made` (calls that ran, in order) and `error`."""

import json
import sys
import traceback

# A client that is not stopped by then has a runaway.
MOST_TURNS = 14

SCHEMAS = {
    "weather": ("The weather in a city.", {"city": "string"}),
    "search": ("Searches.", {"query": "string"}),
    "delete_file": ("Deletes a file.", {"path": "string"}),
    "pay": ("Pays somebody.", {"to": "string", "amount": "integer"}),
}


def schema(name):
    """The name, the description and the JSON Schema of a tool's parameters."""
    description, members = SCHEMAS[name]
    properties = {member: {"type": kind} for member, kind in members.items()}
    return name, description, {"type": "object", "properties": properties, "required": list(members), "additionalProperties": False}


class Tools:
    """Runs calls and notes them."""

    def __init__(self):
        self.made = []

    def run(self, name, arguments):
        """`arguments`: an object, or the text of one."""
        if isinstance(arguments, str):
            arguments = json.loads(arguments)
        self.made.append([name, arguments])
        return {
            "weather": lambda: f"clear in {arguments['city']}",
            "search": lambda: "nothing found",
            "delete_file": lambda: "deleted",
            "pay": lambda: "paid",
        }[name]()


class Runaway(Exception):
    """The client gave up after `MOST_TURNS`."""


def serve(converse):
    """Calls `converse(job, tools, texts)` for each job, which adds to both."""
    for line in sys.stdin:
        job, tools, texts, error = json.loads(line), Tools(), [], None
        try:
            converse(job, tools, texts)
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}"
            traceback.print_exc()
        print(json.dumps({"texts": texts, "made": tools.made, "error": error}), flush=True)
