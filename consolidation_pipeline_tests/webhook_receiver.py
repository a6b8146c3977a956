"""Local receiver of webhooks with configurable raw responses.

with run_receiver() as receiver:
    receiver.then(b"HTTP/1.1 500 Oops\\r\\n\\r\\n")    # response to the next message
    receiver.answer = lambda message, reply: ...       # all messages without a queued response
"""

from __future__ import annotations

import json
import socket
import socketserver
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@dataclass(frozen=True)
class Message:
    """A received HTTP request; ``line``: the request line."""

    line: str
    headers: dict[str, str]
    text: str

    @property
    def body(self) -> Any:
        return json.loads(self.text)


Reply = Callable[[bytes], None]
Answer = Callable[[Message, Reply], None]


def status_reply(code: int, **headers: str) -> bytes:
    """Return a raw HTTP response with this status and no body."""
    lines = [f"HTTP/1.1 {code} Test", *(f"{name}: {value}" for name, value in headers.items()), "Content-Length: 0"]
    return "\r\n".join([*lines, "", ""]).encode()


class Receiver:
    """Receiver of webhooks: records ``messages`` in order and responds by queued responses or ``answer``."""

    def __init__(self, port: int, scheme: str) -> None:
        self.port, self.scheme = port, scheme
        self.messages: list[Message] = []
        self.answer: Answer = lambda _, reply: reply(status_reply(200))
        self.closing = threading.Event()
        self._next: deque[bytes] = deque()
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/hooks/t0ken?room=1"

    def then(self, *answers: bytes) -> None:
        """Queue raw responses to the next messages."""
        self._next.extend(answers)

    def take(self, message: Message, reply: Reply) -> None:
        with self._lock:
            self.messages.append(message)
            response = self._next.popleft() if self._next else None
        if response is None:
            self.answer(message, reply)
        else:
            reply(response)


@contextmanager
def run_receiver(tls: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """Serve a receiver on a free port of the loopback interface."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with suppress(OSError, ssl.SSLError):
                connection: socket.socket = self.request
                if tls is not None:
                    connection = tls.wrap_socket(connection, server_side=True)
                with connection, connection.makefile("rb") as lines:
                    receiver.take(_read(lines), connection.sendall)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

    with Server(("127.0.0.1", 0), Handler) as server:
        receiver = Receiver(server.server_address[1], "http" if tls is None else "https")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield receiver
        finally:
            receiver.closing.set()
            server.shutdown()
            thread.join()


def _read(lines: Any) -> Message:
    line = lines.readline().decode().strip()
    headers = {}
    while header := lines.readline().decode().strip():
        name, _, value = header.partition(": ")
        headers[name.lower()] = value
    return Message(line, headers, lines.read(int(headers.get("content-length", 0))).decode())
