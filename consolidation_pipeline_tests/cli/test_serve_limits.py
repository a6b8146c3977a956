"""`serve` as a process under attack by clients without a key."""

from __future__ import annotations

import signal
import socket
from contextlib import ExitStack
from urllib.request import urlopen

import psutil
import pytest

from consolidation_pipeline.settings import Settings
from consolidation_pipeline_tests.cli.conftest import serve_process


@pytest.mark.slow
def test_serve_survives_large_and_half_sent_heads(settings: Settings) -> None:
    del settings  # sets the database in the environment of the process
    with serve_process() as (process, port), ExitStack() as stack:
        assert process.stderr is not None
        while "listening" not in process.stderr.readline():
            assert process.poll() is None

        def connect(data: bytes) -> socket.socket:
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            client.sendall(data)
            return client

        with urlopen(f"http://127.0.0.1:{port}/health/ready") as answer:
            assert answer.status == 200
        before = psutil.Process(process.pid).memory_info().rss
        large = connect(b"GET / HTTP/1.1\r\nHost: x\r\nX-Large: ")
        sent = 0
        try:
            while sent < 200:
                large.sendall(b"a" * 1_000_000)
                sent += 1
        except OSError:
            pass
        half = [connect(b"GET / HTTP/1.1\r\nHost: x\r\n") for _ in range(800)]
        with urlopen(f"http://127.0.0.1:{port}/health/ready") as answer:
            assert answer.status == 200
        used = psutil.Process(process.pid).memory_info().rss - before
        half[-1].settimeout(60)
        assert b" 408 " in half[-1].recv(1000)
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
    assert sent < 20
    assert used < 60_000_000
