"""A hop that records: what a client and a server sent each other, byte for byte, by connection."""

import socket
import threading
from dataclasses import dataclass, field


@dataclass
class Message:
    """A request or a reply: its first line, its headers by lower-case name, its body without the framing of chunks."""

    start: str
    headers: dict
    body: bytes
    is_whole: bool = True


@dataclass
class Exchange:
    request: Message
    reply: Message | None


@dataclass
class Connection:
    sent: bytearray = field(default_factory=bytearray)
    received: bytearray = field(default_factory=bytearray)


class Tap:
    """Listens on a free port and passes every connection on to `port`."""

    def __init__(self, port):
        self.target, self.connections = port, []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def exchanges(self, key):
        """The finished and unfinished exchanges whose request carries the API key `key`, oldest first."""
        found = [exchange for connection in list(self.connections) for exchange in _exchanges(connection)]
        return [one for one in found if one.request.headers.get("authorization") == f"Bearer {key}"]

    def close(self):
        self.listener.close()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            connection = Connection()
            self.connections.append(connection)
            threading.Thread(target=self._join, args=(client, connection), daemon=True).start()

    def _join(self, client, connection):
        with client:
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                return
            with server:
                up = threading.Thread(target=_pass, args=(client, server, connection.sent), daemon=True)
                up.start()
                _pass(server, client, connection.received)
                up.join(timeout=60)


def _pass(source, sink, record):
    try:
        while data := source.recv(65536):
            record += data
            sink.sendall(data)
    except OSError:
        pass
    # Half a connection may stay open; whoever is asked to close decides.
    for end, how in ((sink, socket.SHUT_WR), (source, socket.SHUT_RD)):
        try:
            end.shutdown(how)
        except OSError:
            pass


def _exchanges(connection):
    requests = _messages(bytes(connection.sent), closed_by_end=False)
    replies = [reply for reply in _messages(bytes(connection.received), closed_by_end=True) if " 1" not in reply.start[8:10]]
    return [Exchange(request, replies[n] if n < len(replies) else None) for n, request in enumerate(requests)]


def _messages(data, closed_by_end):
    messages = []
    while b"\r\n\r\n" in data:
        head, data = data.split(b"\r\n\r\n", 1)
        start, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)}
        if headers.get("transfer-encoding", "").lower() == "chunked":
            body, data, is_whole = _unchunk(data)
        elif "content-length" in headers:
            size = int(headers["content-length"])
            body, data, is_whole = data[:size], data[size:], len(data) >= size
        elif closed_by_end and start.split()[1] not in ("204", "304"):
            body, data, is_whole = data, b"", True
        else:
            body, is_whole = b"", True
        messages.append(Message(start, headers, body, is_whole))
    return messages


def _unchunk(data):
    body = b""
    while b"\r\n" in data:
        line, rest = data.split(b"\r\n", 1)
        size = int(line.split(b";")[0], 16)
        if size == 0:
            return body, rest[2:] if rest.startswith(b"\r\n") else rest, True
        if len(rest) < size + 2:
            return body + rest[:size], b"", False
        body, data = body + rest[:size], rest[size + 2:]
    return body, b"", False
