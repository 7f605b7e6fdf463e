"""Recorded replies of a server that cannot be installed here: kept by what the model says, and served in its place.

A file is `recorded/SERVER/REPLY.API.FORM`: `oslo-and-bern.responses.sse` is the streamed reply of Responses in which the model makes these
two calls. With `--record` a run writes those that are missing."""

import json
import re
import secrets
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import script
from processes import ROOT, Failed

FOLDER = ROOT / "tests" / "servers" / "recorded"
IDS = re.compile(rb'"(?:id|call_id|item_id|previous_response_id)": ?"([^"]{8,})"')


def keep(server, exchange):
    """Writes the reply of an exchange, if there is none yet that says the same."""
    reply, request = exchange.reply, exchange.request
    if reply is None or not reply.is_whole or " 200" not in reply.start or not request.start.startswith("POST"):
        return
    body = json.loads(request.body)
    if body.get("previous_response_id"):
        return
    path = FOLDER / server / name_of(body, request.start, items_of(body))
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(reply.body)


def name_of(body, start, items):
    """What the model says to this request, and in which form."""
    api = "responses" if "/responses" in start else "chat"
    limit = body.get("max_tokens") or body.get("max_output_tokens")
    said = script.choose(items, "" if not body.get("tools") else json.dumps(body["tools"]))
    marks = [said, *(["cut"] if limit else []), *(["none"] if body.get("tool_choice") == "none" else []), api]
    return ".".join([*marks, "sse" if body.get("stream") else "json"])


def items_of(body):
    """The conversation as pairs of a role and a text."""
    items = body.get("messages") or body.get("input") or []
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    return [(item.get("role") or {"function_call_output": "tool"}.get(item.get("type"), "assistant"), text_of(item)) for item in items]


def text_of(item):
    content = item.get("content", item.get("output"))
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content or ())


class Recorded:
    """Answers as the server did, with new ids each time, on a free port."""

    def __init__(self, server):
        self.folder, self.histories = FOLDER / server, {}
        if not self.folder.exists():
            raise Failed("no recorded replies")
        recorded = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                status, kind, reply = recorded.answer(self.path, body)
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(reply)))
                self.end_headers()
                for event in re.split(rb"(?<=\n\n)", reply):
                    self.wfile.write(event)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, path, body):
        previous = body.get("previous_response_id")
        if previous and previous not in self.histories:
            return 400, "application/json", b'{"error":{"message":"unknown previous_response_id","type":"invalid_request_error"}}'
        items = [*self.histories.get(previous, ()), *items_of(body)]
        file = self.folder / name_of(body, path, items)
        if not file.exists():
            return 501, "application/json", json.dumps({"error": {"message": f"{file.name} is not recorded"}}).encode()
        reply = renew(file.read_bytes())
        for identity in re.findall(rb'"(resp_[^"]+)"', reply)[:1]:
            self.histories[identity.decode()] = items
        return 200, "text/event-stream" if body.get("stream") else "application/json", reply

    def stop(self):
        self.server.shutdown()


def renew(reply):
    """The reply with other ids. One id may contain another, so their random parts are replaced."""
    parts = {re.split(rb"[_-]", found)[-1] for found in IDS.findall(reply)}
    for part in sorted((part for part in parts if len(part) >= 8), key=len, reverse=True):
        reply = reply.replace(part, secrets.token_hex(len(part))[:len(part)].encode())
    return reply
