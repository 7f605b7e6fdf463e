"""What must hold of a scenario that was played straight and through toolrein. Each check returns what is wrong, as sentences."""

import json

# What no client may be left with as a text: a call as the model writes it.
MARKUP = ("<tool_call", "</tool_call", '{"name"')


def unchanged(client_side, server_side):
    """No policy acted: what the client sent and got is what the server got and sent."""
    if len(client_side) != len(server_side):
        yield f"the client sent {len(client_side)} requests, the server got {len(server_side)}"
    for number, (outer, inner) in enumerate(zip(client_side, server_side), 1):
        if outer.request.body != inner.request.body:
            yield f"request {number} changed {difference(outer.request.body, inner.request.body)}"
        if outer.request.start != inner.request.start:
            yield f"request {number} went to {inner.request.start}, not {outer.request.start}"
        if (outer.reply is None) != (inner.reply is None):
            yield f"reply {number} is missing on one side"
        elif outer.reply is not None:
            if outer.reply.body != inner.reply.body:
                yield f"reply {number} changed {difference(inner.reply.body, outer.reply.body)}"
            if outer.reply.start.split()[1] != inner.reply.start.split()[1]:
                yield f"reply {number} has the status {outer.reply.start.split()[1]}, not {inner.reply.start.split()[1]}"


def same_end(straight, through):
    """The client ended through toolrein as it did without it."""
    for member in ("error", "made", "texts"):
        if without_numbers(straight[member]) != without_numbers(through[member]):
            yield f"{member}: {through[member]!r}, straight {straight[member]!r}"


def same_requests(straight, through):
    """The server got the same requests, but for the ids that it made itself."""
    ours, theirs = ([without_ids(one.request.body) for one in some] for some in (through, straight))
    if ours != theirs:
        number = next((n for n, pair in enumerate(zip(ours, theirs)) if pair[0] != pair[1]), min(len(ours), len(theirs)))
        yield f"request {number + 1} of {len(ours)} differs from that of the {len(theirs)} straight ones"


def good_end(scenario, outcome):
    """A policy acted: the client has an answer, and made no call that it may not make."""
    if outcome["error"]:
        yield f"the client failed: {outcome['error'][:300]}"
    if any(name == "delete_file" for name, _ in outcome["made"]):
        yield "the forbidden call ran"
    if isinstance(scenario.made, int):
        if len(outcome["made"]) > scenario.made:
            yield f"{len(outcome['made'])} calls ran, not {scenario.made} at most"
    elif outcome["made"] != [*scenario.made]:
        yield f"these calls ran: {outcome['made']}, not {[*scenario.made]}"
    if outcome["error"]:
        return
    text = outcome["texts"][-1]
    if not text or (scenario.text is not None and text != scenario.text):
        yield f"the answer is {text!r}, not {scenario.text or 'some text'!r}"
    for said in outcome["texts"]:
        if any(mark in said for mark in MARKUP) and not scenario.answers:
            yield f"an answer holds a call as text: {said!r}"
    if len(outcome["texts"]) != 1 + len(scenario.answers):
        yield f"the user read {len(outcome['texts'])} texts: {outcome['texts']!r}"


def no_new_errors(straight_side, client_side):
    """The client gets no error that it would not get without toolrein."""
    if not any(map(failed, straight_side)):
        yield from (f"reply {number} is an error: {one.reply.body[:300].decode(errors='replace')}"
                    for number, one in enumerate(client_side, 1) if failed(one))


def failed(one):
    return one.reply is None or int(one.reply.start.split()[1]) >= 400 or b"event: error" in one.reply.body


def readable_requests(server_side):
    """Whatever toolrein writes is JSON, and a good server accepts it."""
    for number, one in enumerate(server_side, 1):
        try:
            json.loads(one.request.body or b"{}")
        except ValueError as problem:
            yield f"request {number} to the server is no JSON: {problem}"


def refusals(server_side):
    """What the server refused, for the notes of the table."""
    for number, one in enumerate(server_side, 1):
        if one.reply is not None and int(one.reply.start.split()[1]) >= 400:
            yield f"the server refused request {number} of {len(server_side)}: {one.reply.body[:300].decode(errors='replace')}"


def difference(before, after):
    at = next((n for n, pair in enumerate(zip(before, after)) if pair[0] != pair[1]), min(len(before), len(after)))
    return f"at byte {at}: {before[max(0, at - 40):at + 80]!r} became {after[max(0, at - 40):at + 80]!r}"


def without_numbers(value):
    """Ids that a server makes differ between two runs, also within messages of errors."""
    if not isinstance(value, str):
        return value
    return " ".join("*" if any(character.isdigit() for character in word) else word for word in value.split())


def without_ids(body):
    """A request with each id replaced by the number of its first appearance."""
    seen = {}

    def plain(value, member=""):
        if isinstance(value, dict):
            return {name: plain(inner, name) for name, inner in value.items()}
        if isinstance(value, list):
            return [plain(inner) for inner in value]
        if isinstance(value, str) and (member == "id" or member.endswith("_id")):
            return seen.setdefault(value, f"id {len(seen)}")
        return value

    try:
        return plain(json.loads(body or b"null"))
    except ValueError:
        return body
