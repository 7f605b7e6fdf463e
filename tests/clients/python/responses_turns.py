"""One turn on the Responses API by each interface of the package: the response that the model has answered with. Its
items go back into the input as they are, which is how the package's guides keep a conversation without a store."""


def turns(client):
    """The interfaces by their names, each a function of what is asked."""

    def streamed(ask):
        for event in client.responses.create(**ask, stream=True):
            if event.type == "response.completed":
                return event.response
        raise AssertionError("no last event")

    def items(ask):
        """Goes by the complete items, and never looks at the last event's list."""
        seen = [event.item for event in client.responses.create(**ask, stream=True) if event.type.endswith("item.done")]
        return Seen(seen)

    def helper(ask):
        with client.responses.stream(**ask) as stream:
            for _ in stream:
                pass
            return stream.get_final_response()

    return {"whole": lambda ask: client.responses.create(**ask), "streamed": streamed, "items": items, "helper": helper}


class Seen:
    """What a reply was by its items alone."""

    def __init__(self, output):
        self.output = output
        parts = [part for item in output if item.type == "message" for part in item.content]
        self.output_text = "".join(part.text for part in parts)


def loop(turn, ask, run, most=60):
    """Plays until the model makes no more calls; its last text and how many replies it took."""
    history = [{"role": "user", "content": ask["input"]}]
    for step in range(most):
        response = turn({**ask, "input": history})
        history += [sent_back(item) for item in response.output]
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            return response.output_text, step + 1
        for call in calls:
            history.append({"type": "function_call_output", "call_id": call.call_id, "output": run(call)})
    raise AssertionError(f"{most} replies, and no end")


def sent_back(item):
    """An item as it goes back, without what the package's own parser has added."""
    item = item.model_dump(exclude_none=True, exclude={"parsed_arguments"})
    for part in item.get("content") or []:
        part.pop("parsed", None)
    return item
