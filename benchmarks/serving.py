"""Searches a second that the HTTP API answers, and their latencies.

    python benchmarks/serving.py [--rows ROWS] [RATE ...]        default: 10000 memories, 50 100 200

The memories are in 50 projects as in search.py; those of 5,000 or more have indexes. Requests are sent at a fixed rate
for 20 seconds, even if earlier ones are not answered yet. A latency counts from the time when its request was due. At
the rate 0, each of 16 clients sends its next request when it has its reply. Requests are mixed: any project, 3 to 10
words, plain, by level, by type, with sources, with explanations. Server, database and clients share this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import local
from typing import Any

import numpy as np
from search import SEED, build_index, create_projects, draw_text
from temporary_server import find_free_port, use_temporary_server, wait_for_port

ROWS = 10_000
SECONDS = 20
# More requests a second than are ever answered.
UNREACHED = 1_000
CLIENTS = 16
SEARCH_OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"limit": 20},
    {"abstraction_levels": ["0", "1"]},
    {"memory_types": ["learning"]},
    {"include_sources": True},
    {"explain": True, "fusion": "rrf"},
)

_HEAD = (
    b"POST /api/v1/search HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %b\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)


@contextmanager
def serve(*arguments: str) -> Iterator[int]:
    """Run `consolidation serve` in a process of its own, which refuses no request for its rate; yield its port."""
    port = find_free_port()
    command = [str(Path(sys.executable).parent / "consolidation"), "serve", "--port", str(port), *arguments]
    environment = os.environ | {"CONSOLIDATION_API_RATE": "100000", "CONSOLIDATION_API_BURST": "100000"}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    try:
        wait_for_port(port)
        yield port
    finally:
        process.terminate()
        process.wait()


def send_one(port: int, key: str, connection: local, due: float | None, body: bytes) -> tuple[float, int]:
    """Send a request when it is due, None = now; return the milliseconds until its reply was read, and the status.

    A plain socket keeps the client's work small, because it shares the server's cores.
    """
    due = time.perf_counter() if due is None else due
    time.sleep(max(0.0, due - time.perf_counter()))
    if not hasattr(connection, "socket"):
        connection.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.socket.sendall(_HEAD % (key.encode(), len(body)) + body)
    head, _, rest = connection.socket.recv(1 << 16).partition(b"\r\n\r\n")
    left = int(re.search(rb"content-length: (\d+)", head, re.IGNORECASE)[1]) - len(rest)
    while left > 0:
        left -= len(connection.socket.recv(1 << 16))
    return (time.perf_counter() - due) * 1000, int(head.split(b" ", 2)[1])


def draw_requests(
    source: random.Random, slugs: Sequence[str], count: int, draw_query: Callable[[], str]
) -> list[bytes]:
    """Return ``count`` request bodies: searches in random projects with random options."""
    return [
        json.dumps(
            {"project_id": source.choice(slugs), "query": draw_query(), **source.choice(SEARCH_OPTIONS)}
        ).encode()
        for _ in range(count)
    ]


def send(port: int, key: str, bodies: Sequence[bytes], rate: int) -> tuple[float, Counter[int], list[float]]:
    """Send ``rate`` requests a second, 0 = as fast as they are answered, for at most ``SECONDS`` then.

    Return replies a second, replies by status, and latencies in milliseconds.
    """
    connection = local()
    began = time.perf_counter() + 0.2

    def send_next(at: int) -> tuple[float, int] | None:
        if not rate and time.perf_counter() > began + SECONDS:
            return None
        return send_one(port, key, connection, began + at / rate if rate else None, bodies[at])

    with ThreadPoolExecutor(CLIENTS) as pool:
        answers = [answer for answer in pool.map(send_next, range(len(bodies))) if answer is not None]
    took = time.perf_counter() - began
    return len(answers) / took, Counter(status for _, status in answers), [ms for ms, _ in answers]


def measure_rates(engine: Any, rates: Sequence[int], draw_bodies: Callable[[int], list[bytes]]) -> None:
    """Serve the API, send ``draw_bodies(count)`` at each rate for ``SECONDS``, and print a row for each."""
    from consolidation_pipeline.service.admin.api_keys import create_key

    _, key = create_key(engine, role="reader")
    print("| requests a second | answered a second | statuses | p50 ms | p95 | p99 |\n|---:|---:|---|---:|---:|---:|")
    with serve() as port:
        send(port, key, draw_bodies(60), 20)
        for rate in rates:
            answered, statuses, latencies = send(port, key, draw_bodies((rate or UNREACHED) * SECONDS), rate)
            counts = ", ".join(f"{status}: {count:,}" for status, count in sorted(statuses.items()))
            columns = " | ".join(f"{latency:.1f}" for latency in np.percentile(latencies, [50, 95, 99]))
            print(f"| {rate} | {answered:.0f} | {counts} | {columns} |", flush=True)


def main() -> None:
    """Measure each rate given on the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("rates", type=int, nargs="*", default=[50, 100, 200])
    given = parser.parse_args()
    use_temporary_server()
    from consolidation_pipeline.settings import Settings
    from consolidation_pipeline.store.database.engine import open_engine

    engine = open_engine(Settings())
    slugs = create_projects(engine, given.rows)
    for slug in slugs:
        build_index(engine, slug)

    def draw_bodies(count: int) -> list[bytes]:
        source = random.Random(SEED + count)
        return draw_requests(source, slugs, count, lambda: draw_text(source, source.randint(3, 10)))

    measure_rates(engine, given.rates, draw_bodies)


if __name__ == "__main__":
    main()
