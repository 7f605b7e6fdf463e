"""A small admin server that answers by the contract of the admin API, for the tests of the dashboard.

It serves the page from src/admin/dashboard under the same security headers as toolrein. Below /mock are the controls
that a test uses to make something happen; the test of the real program serves the same controls.

Usage: mock.py [--port N] [--conversations N] [--token TOKEN] [--quiet]
"""

import argparse
import json
import pathlib
import queue
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import fixtures

STATIC = pathlib.Path(__file__).resolve().parents[2] / "src" / "admin" / "dashboard"
POLICY = ("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
          "base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
         ".js": "text/javascript; charset=utf-8"}
PUBLIC = {"/config": "config", "/api/overview": "overview", "/api/tools": "tools", "/api/limits": "limits", "/api/health": "health"}


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        if url.path == "/" or url.path.startswith("/dashboard/"):
            return self.static("index.html" if url.path == "/" else url.path.removeprefix("/dashboard/"))
        if url.path in PUBLIC:
            return self.json(getattr(self.server.world, PUBLIC[url.path])())
        return self.protected(url, "GET")

    def do_POST(self):
        url = urllib.parse.urlsplit(self.path)
        if url.path.startswith("/mock/"):
            return self.control(url.path.removeprefix("/mock/"), self.body())
        return self.protected(url, "POST")

    def do_DELETE(self):
        return self.protected(urllib.parse.urlsplit(self.path), "DELETE")

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except ArithmeticError:
            self.error(500, "The mock divided by zero.", "internal")

    def protected(self, url, method):
        body = self.body() if method == "POST" else None
        if self.server.token is None:
            return self.error(404, "There is nothing at this path.", "not_found")
        if self.headers.get("authorization") != f"Bearer {self.server.token}":
            return self.error(401, "The bearer token is missing or wrong.", "unauthorized")
        parts = [urllib.parse.unquote(part) for part in url.path.split("/")[1:]]
        world = self.server.world
        match (method, parts):
            case ("GET", ["api", "conversations"]):
                return self.json(world.conversations(dict(urllib.parse.parse_qsl(url.query))))
            case ("GET", ["api", "conversations", name]):
                found = world.conversation(name)
                return self.json(found) if found else self.error(404, "No conversation has this id.", "not_found")
            case ("GET", ["api", "conversations", name, "explain"]):
                return self.send(200, TYPES[".html"], fixtures.explanation(name).encode())
            case (_, ["api", "conversations", name, "stop"]):
                return self.stop("conversation", name, method)
            case (_, ["api", "callers", name, "stop"]):
                return self.stop("caller", name, method)
            case ("GET", ["api", "stops"]):
                return self.json({"object": "list", "data": world.stopped(), "complete": True})
            case ("GET", ["api", "config", "difference"]):
                return self.json(world.difference())
            case ("GET", ["api", "confirmations", "history"]):
                return self.json({"history": world.history})
            case ("GET", ["api", "confirmations"]):
                return self.json({"object": "list", "data": world.waiting})
            case ("POST", ["api", "confirmations", token]):
                decided = world.decide(token, body)
                return self.json(decided) if decided else self.error(404, "No call waits under this token.", "confirmation_unknown")
            case ("GET", ["api", "events"]):
                return self.events()
        return self.error(404, "There is nothing at this path.", "not_found")

    def stop(self, what, name, method):
        done = self.server.world.stop(what, name, method == "POST")
        return self.json(done) if done else self.error(404, "No stop for this id was set here.", "not_stopped")

    def control(self, what, body):
        """What a test asks for: a blocked call, an approval that waits, the streams cut."""
        world = self.server.world
        actions = {"block": world.block, "approval": world.ask, "cut": world.cut, "many": world.many}
        if what not in actions:
            return self.error(404, "There is no such control.", "not_found")
        return self.json(actions[what](body or {}))

    def events(self):
        self.send_response(200)
        self.headers_common("text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        feed = self.server.world.listen()
        try:
            while True:
                try:
                    text = feed.get(timeout=5)
                except queue.Empty:
                    text = ": still here\n\n"
                if text is None:
                    return
                self.wfile.write(text.encode())
                self.wfile.flush()
        except OSError:
            return

    def static(self, name):
        path = (STATIC / name).resolve()
        if STATIC not in path.parents or not path.is_file():
            return self.error(404, "There is nothing at this path.", "not_found")
        return self.send(200, TYPES.get(path.suffix, "text/plain"), path.read_bytes())

    def body(self):
        length = int(self.headers.get("content-length") or 0)
        return json.loads(self.rfile.read(length)) if length else None

    def json(self, value):
        self.send(200, "application/json", json.dumps(value).encode())

    def error(self, status, message, code):
        body = {"error": {"message": message, "type": "toolrein_error", "code": code}}
        self.send(status, "application/json", json.dumps(body).encode())

    def send(self, status, kind, body):
        self.send_response(status)
        self.headers_common(kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def headers_common(self, kind):
        self.send_header("content-type", kind)
        self.send_header("content-security-policy", POLICY)
        self.send_header("x-content-type-options", "nosniff")
        self.send_header("referrer-policy", "no-referrer")
        self.send_header("cache-control", "no-store")

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    """The server with its world of data."""

    daemon_threads = True

    def __init__(self, port, token, conversations):
        super().__init__(("127.0.0.1", port), Handler)
        self.token = token
        self.world = fixtures.World(conversations)

    def handle_error(self, *_):
        """A browser that leaves is no error."""


def start(token, conversations, port=0):
    """A server in a thread of its own, and its address."""
    server = Server(port, token, conversations)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_address[1]}"


def main():
    parser = argparse.ArgumentParser(description="The mock of toolrein's admin API.")
    parser.add_argument("--port", type=int, default=4243)
    parser.add_argument("--token", default="a-token-for-tests")
    parser.add_argument("--conversations", type=int, default=240)
    parser.add_argument("--quiet", action="store_true", help="no events of their own")
    given = parser.parse_args()
    server, address = start(given.token, given.conversations, given.port)
    print(f"{address}/#token={given.token}", flush=True)
    while True:
        time.sleep(2)
        if not given.quiet:
            server.world.block({})


if __name__ == "__main__":
    sys.exit(main())
