"""One turn of a conversation by each interface of the package: the message that the model has answered with, as it goes
back into the history. For the scenarios that keep a conversation; they load this file by its path."""


def turns(client):
    """The interfaces by their names, each a function of what is asked."""
    create = client.chat.completions.create

    def whole(ask):
        return create(**ask).choices[0].message.model_dump(exclude_none=True)

    def streamed(ask):
        text, calls = "", {}
        for chunk in create(**ask, stream=True):
            for choice in chunk.choices:
                text += choice.delta.content or ""
                for part in choice.delta.tool_calls or []:
                    function = {"name": "", "arguments": ""}
                    call = calls.setdefault(part.index, {"type": "function", "function": function})
                    call["id"] = part.id or call["id"]
                    call["function"]["name"] += part.function.name or ""
                    call["function"]["arguments"] += part.function.arguments or ""
        message = {"role": "assistant", "content": text}
        return message | {"tool_calls": list(calls.values())} if calls else message

    def helper(ask):
        with client.chat.completions.stream(**ask) as stream:
            message = stream.get_final_completion().choices[0].message
        assert message.role == "assistant", message
        return message.model_dump(exclude_none=True)

    return {"whole": whole, "streamed": streamed, "helper": helper}
