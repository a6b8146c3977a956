"""Limits of connections, with raw sockets against a server that has small ones."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import uvicorn

from consolidation_pipeline.api.connection_limits import ConnectionLimits, LimitedProtocol, limit_connections
from consolidation_pipeline.settings import Settings

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\n"
Connect = Callable[..., socket.socket]


async def echo_size(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the size of the body.

    ``/slow``: after 0.6 s. ``/stream``: after ten parts in 1 s. ``/large``: after 50 MB.
    """
    size = 0
    while scope["method"] == "POST":
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size += len(message["body"])
        if not message["more_body"]:
            break
    if scope["path"] == "/slow":
        await asyncio.sleep(0.6)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(10 if scope["path"] == "/stream" else 0):
        await send({"type": "http.response.body", "body": b"part ", "more_body": True})
        await asyncio.sleep(0.1)
    for _ in range(50 if scope["path"] == "/large" else 0):
        await send({"type": "http.response.body", "body": b"x" * 1_000_000, "more_body": True})
    await send({"type": "http.response.body", "body": b"size %d" % size})


@contextmanager
def run_server(**limits: Any) -> Iterator[tuple[ConnectionLimits, Connect]]:
    """Run a server with these limits; yield them and a function that opens a connection."""
    own = ConnectionLimits(**limits)
    protocol = type("Small", (LimitedProtocol,), {"limits": own})
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        config = uvicorn.Config(echo_size, http=protocol, ws="none", lifespan="off", log_config=None)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()

        def connect(data: bytes = b"") -> socket.socket:
            client = stack.enter_context(socket.create_connection(listener.getsockname(), timeout=10))
            client.sendall(data)
            return client

        try:
            while not server.started:
                time.sleep(0.01)
            yield own, connect
        finally:
            server.should_exit = server.force_exit = True
            thread.join()


def read_all(client: socket.socket) -> bytes:
    """Return what the server sends until it closes the connection."""
    parts = []
    try:
        while part := client.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def is_closed(client: socket.socket) -> bool:
    """Return True if the server has closed the connection."""
    client.setblocking(False)
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def is_cut(client: socket.socket, part: bytes, *, times: int, pause: float = 0) -> bool:
    """Send ``part`` again and again; return True if the server closes the connection meanwhile."""
    try:
        for _ in range(times):
            client.sendall(part)
            time.sleep(pause)
    except OSError:
        return True
    return False


@pytest.mark.parametrize("step", [1_000, 100_000])
def test_large_head_is_refused(step: int) -> None:
    with run_server(max_head=50_000) as (_, connect):
        client = connect(HEAD + b"X-Big: ")
        assert is_cut(client, b"a" * step, times=100_000_000 // step)
        assert connect(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").recv(12) == b"HTTP/1.1 200"


def test_refusal_of_large_head_is_problem() -> None:
    with run_server(max_head=1_000) as (_, connect):
        answer = read_all(connect(HEAD + b"X-Big: " + b"a" * 2_000))
    assert answer.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/problem+json")
    assert b'"message": "the head of the request must not be larger than 1000 bytes"' in answer


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (b"", b""),
        (HEAD, b"HTTP/1.1 408 Request Timeout"),
        (HEAD + b"Content-Length: 10\r\n\r\n12345", b"HTTP/1.1 408 Request Timeout"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n12", b"HTTP/1.1 408 Request Timeout"),
        (HEAD + b"Content-Length: 2\r\n\r\n12" + HEAD, b"HTTP/1.1 200 OK"),
    ],
)
def test_request_sent_in_part_ends_in_time(sent: bytes, expected: bytes) -> None:
    with run_server(head_seconds=0.3, body_seconds=0.3) as (limits, connect):
        answer = read_all(connect(sent))
        assert answer.startswith(expected)
        assert (b"408 Request Timeout" in answer) == bool(sent)
        assert limits.held == 0


def test_trickled_head_ends_in_time() -> None:
    with run_server(head_seconds=0.5) as (_, connect):
        client = connect(HEAD + b"X-Slow: ")
        assert is_cut(client, b"a", times=100, pause=0.05)


def test_slow_body_above_rate_is_read() -> None:
    with run_server(body_seconds=0.2, body_rate=1000) as (limits, connect):
        client = connect(HEAD + b"Connection: close\r\nContent-Length: 2000\r\n\r\n")
        for _ in range(10):
            client.sendall(b"a" * 200)
            time.sleep(0.1)
        assert read_all(client).endswith(b"size 2000\r\n0\r\n\r\n")
        assert limits.held == 0


def test_large_body_with_expect_is_read() -> None:
    with run_server() as (limits, connect):
        client = connect(HEAD + b"Connection: close\r\nExpect: 100-continue\r\nContent-Length: 900000\r\n\r\n")
        assert client.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"a" * 900_000)
        assert b"size 900000" in read_all(client)
        assert limits.held == 0


def test_endless_trailers_are_refused() -> None:
    with run_server(max_body=1_000, max_head=1_000) as (limits, connect):
        client = connect(HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n")
        assert is_cut(client, b"X-Trailer: " + b"a" * 1_000 + b"\r\n", times=10_000)
        assert limits.held == 0


@pytest.mark.slow
@pytest.mark.parametrize("path", [b"/slow", b"/stream"])
def test_long_reply_is_never_cut(path: bytes) -> None:
    with run_server(head_seconds=0.2, body_seconds=0.2, max_connections=2) as (_, connect):
        client = connect(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n" + HEAD)
        others = [connect(HEAD) for _ in range(10)]
        answer = read_all(client)
        assert answer.count(b"part ") == (10 if path == b"/stream" else 0)
        assert b"size 0" in answer
        assert all(b" 200 " not in read_all(other) for other in others)


def test_idle_connection_serves_again() -> None:
    with run_server(head_seconds=0.2) as (_, connect):
        client = connect()
        for _ in range(2):
            client.sendall(HEAD + b"Content-Length: 3\r\n\r\nabc")
            answer = b""
            while not answer.endswith(b"0\r\n\r\n"):
                answer += client.recv(1000)
            assert b"size 3" in answer
            time.sleep(0.4)


def test_flood_of_heads_lets_requests_through() -> None:
    with run_server(max_connections=20) as (_, connect):
        flood = [connect(HEAD) for _ in range(100)]
        for _ in range(5):
            assert b"size 0" in read_all(connect(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
        closed = [is_closed(client) for client in flood]
        assert closed[0]
        assert not closed[-1]
        assert closed == sorted(closed, reverse=True)  # The oldest ones


def test_connections_with_replies_are_limited() -> None:
    with run_server(max_connections=3) as (_, connect):
        streams = [connect(b"GET /stream HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") for _ in range(3)]
        assert all(stream.recv(12) == b"HTTP/1.1 200" for stream in streams)
        refused = read_all(connect())
        assert refused.startswith(b"HTTP/1.1 503")
        assert b'"message": "too many connections; try again later"' in refused
        assert all(b"size 0" in read_all(stream) for stream in streams)


def test_bodies_held_are_limited() -> None:
    with run_server(max_held=500_000) as (limits, connect):
        head = HEAD + b"Content-Length: 200000\r\n\r\n"
        clients = [connect(head + b"a" * 150_000) for _ in range(10)]
        deadline = time.monotonic() + 5
        while not 0 < limits.held <= 500_000 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.2)
        assert 0 < limits.held <= 500_000
        clients[-1].sendall(b"a" * 50_000)
        assert b"size 200000" in clients[-1].recv(1000)


def test_client_that_reads_nothing_is_cut() -> None:
    with run_server(write_seconds=0.3) as (_, connect):
        client = connect(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(1)
        assert 0 < len(read_all(client)) < 50_000_000


def test_limits_come_from_settings() -> None:
    limits = limit_connections(Settings(api_max_body=2_000_000, api_max_connections=9)).limits
    assert (limits.max_body, limits.max_connections) == (2_000_000, 9)
