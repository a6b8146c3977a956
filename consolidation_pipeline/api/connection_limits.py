"""Limits on what a client may hold of the server: size and time of heads and bodies, and number of connections.

uvicorn bounds neither the head of a request nor the time that a client takes to send one. A middleware cannot: it sees
a request when its head is complete.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from enum import Enum, auto
from http import HTTPStatus
from time import monotonic
from typing import Any
from uuid import uuid4

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from consolidation_pipeline.api.problems import MEDIA_TYPE
from consolidation_pipeline.settings import Settings


@dataclass
class ConnectionLimits:
    """Limits of all connections of a server, and what incomplete bodies hold now.

    A body may take ``body_seconds`` and a second more for each ``body_rate`` bytes received, as a slow line is no
    attack. ``write_seconds``: how long a client may take no byte of a reply.
    """

    max_connections: int = 512
    max_body: int = 1_000_000
    max_head: int = 64_000
    max_held: int = 64_000_000
    head_seconds: float = 10
    body_seconds: float = 30
    body_rate: float = 10_000
    write_seconds: float = 60
    held: int = 0


class _Stage(Enum):
    HEAD = auto()
    BODY = auto()
    REPLY = auto()
    IDLE = auto()


class LimitedProtocol(HttpToolsProtocol):
    """HTTP/1.1 connection with limits.

    Over ``max_connections``, or while incomplete bodies hold more than ``max_held`` bytes, the connection that keeps
    the server waiting longest is closed: clients that send their requests are served during a flood of such that do
    not. Replies under way, also those that stream, are never cut.
    """

    limits = ConnectionLimits()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stage = _Stage.HEAD
        self._since = monotonic()  # Of the loop's time, connections made in the same millisecond have the same.
        self._received = 0  # bytes of the current head or body
        self._deadline: asyncio.TimerHandle | None = None
        self._write_deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()
        if len(self.connections) > self.limits.max_connections and not self._close_longest_waiting(*_Stage):
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", "too many connections; try again later")

    def connection_lost(self, exc: Exception | None) -> None:
        self._enter(_Stage.REPLY)
        self._stop_write_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._stage is _Stage.IDLE:
            self._enter(_Stage.HEAD)
        if self._stage is _Stage.HEAD:
            end = data.find(b"\r\n\r\n")
            if self._received + (len(data) if end < 0 else end) > self.limits.max_head:
                message = f"the head of the request must not be larger than {self.limits.max_head} bytes"
                return self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "too_large", message)
            self._received += len(data)
        elif self._stage is _Stage.BODY:
            self._received += len(data)
            self.limits.held += len(data)
        super().data_received(data)
        # Chunks and trailers may make a body larger than what the application counts.
        if self._stage is _Stage.BODY and self._received > 2 * self.limits.max_body + self.limits.max_head:
            message = f"the body must not be larger than {self.limits.max_body} bytes"
            return self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_large", message)
        self._watch()
        while self.limits.held > self.limits.max_held and self._close_longest_waiting(_Stage.BODY):
            pass
        return None

    # Callbacks of the parser, all within data_received.
    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._stage is not _Stage.HEAD:
            self._enter(_Stage.HEAD)
            self._received = 1  # It began within the data of the request before it.

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._enter(_Stage.BODY)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._enter(_Stage.REPLY)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._stage is _Stage.REPLY and self.timeout_keep_alive_task is not None:
            self._enter(_Stage.IDLE)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_deadline = self.loop.call_later(self.limits.write_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_write_deadline()
        super().resume_writing()

    def _stop_write_deadline(self) -> None:
        if self._write_deadline is not None:
            self._write_deadline.cancel()
            self._write_deadline = None

    def _enter(self, stage: _Stage) -> None:
        if self._stage is _Stage.BODY:
            self.limits.held -= self._received
        self._stage, self._since, self._received = stage, monotonic(), 0
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _watch(self) -> None:
        """Set the deadline of a head or body that is not complete."""
        if self._deadline is None and self._stage in (_Stage.HEAD, _Stage.BODY):
            self._deadline = self.loop.call_later(self._since + self._allowed() - monotonic(), self._expire)

    def _allowed(self) -> float:
        if self._stage is _Stage.HEAD:
            return self.limits.head_seconds
        return self.limits.body_seconds + self._received / self.limits.body_rate

    def _is_ours(self) -> bool:
        """Return True if the client waits for the server: for a reply, or as the server does not read now."""
        replying = self._stage is _Stage.HEAD and self.cycle is not None and not self.cycle.response_complete
        return self._stage is _Stage.REPLY or replying or bool(self.pipeline) or self.flow.read_paused

    def _expire(self) -> None:
        self._deadline = None
        if self._is_ours():
            self._since = monotonic()
        if monotonic() < self._since + self._allowed():
            self._watch()
        else:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "timeout", "the request was not complete in time")

    def _close_longest_waiting(self, *stages: _Stage) -> bool:
        """Close the connection in one of these stages that waits longest for its client; return False if none does."""
        waiting: list[LimitedProtocol] = [
            one
            for one in self.connections
            if isinstance(one, LimitedProtocol) and one is not self and one._stage in stages and not one._is_ours()
        ]
        if not waiting:
            return False
        longest = min(waiting, key=lambda one: one._since)
        self.connections.discard(longest)
        longest._enter(_Stage.REPLY)
        longest.transport.abort()
        return True

    def _refuse(self, status: HTTPStatus, error: str, message: str) -> None:
        """Close the connection. Answer with a problem first, unless the client sent nothing or a reply has begun."""
        sent_nothing = status is HTTPStatus.REQUEST_TIMEOUT and self._stage is _Stage.HEAD and not self._received
        has_reply = self._stage is _Stage.BODY and self.cycle.response_started
        if not (sent_nothing or has_reply or self.transport.is_closing()):
            problem = {"type": "about:blank", "title": status.phrase, "status": status, "detail": message}
            body = json.dumps(problem | {"error": error, "message": message, "request_id": uuid4().hex}).encode()
            head = f"HTTP/1.1 {status} {status.phrase}\r\ncontent-type: {MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\n"
            self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
        self._enter(_Stage.REPLY)
        self.transport.close()


def limit_connections(settings: Settings) -> type[LimitedProtocol]:
    """Return the protocol of a server with the limits of ``settings``, for ``http`` of uvicorn's configuration."""
    limits = ConnectionLimits(max_connections=settings.api_max_connections, max_body=settings.api_max_body)
    return type("LimitedProtocol", (LimitedProtocol,), {"limits": limits})
