"""How many searches a second does the HTTP API answer?

    python benchmarks/serving.py [RATE ...]        default: 50 100 200

10,000 memories lie in 50 projects of very different sizes, the largest has its index (as in search.py). Requests are
sent at a fixed rate for 20 seconds, whether the ones before were answered or not; a latency counts from the moment the
request was due. They are mixed: any project, 3 to 10 words, plain, by level, by type, with sources, with explanations.
Server, database and clients share this machine.
"""

from __future__ import annotations

import json
import random
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import local
from typing import Any

import numpy as np
from fresh import start_fresh
from search import SEED, index, plant, sentence

ROWS = 10_000
SECONDS = 20
CLIENTS = 16
WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"limit": 20},
    {"abstraction_levels": ["0", "1"]},
    {"memory_types": ["learning"]},
    {"include_sources": True},
    {"explain": True, "fusion": "rrf"},
)


_HEAD = (
    b"POST /api/v1/consolidated-memories/search HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %b\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)


@contextmanager
def serving(*arguments: str) -> Iterator[int]:
    """A server in a process of its own; its port."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [str(Path(sys.executable).parent / "consolidation"), "serve", "--port", str(port), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        process.wait()


def ask(port: int, key: str, held: local, due: float, body: bytes) -> tuple[float, int]:
    """Milliseconds from when a request was due until its reply was read, and the reply's status.

    Over a plain socket: the client's work is not what is measured, and it is done on the same cores.
    """
    time.sleep(max(0.0, due - time.perf_counter()))
    if not hasattr(held, "socket"):
        held.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        held.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    held.socket.sendall(_HEAD % (key.encode(), len(body)) + body)
    head, _, rest = held.socket.recv(1 << 16).partition(b"\r\n\r\n")
    left = int(re.search(rb"content-length: (\d+)", head, re.IGNORECASE)[1]) - len(rest)
    while left > 0:
        left -= len(held.socket.recv(1 << 16))
    return (time.perf_counter() - due) * 1000, int(head.split(b" ", 2)[1])


def draw_bodies(slugs: Sequence[str], rate: int, seconds: int) -> list[bytes]:
    """As many searches as are sent."""
    source = random.Random(SEED + rate)
    return [
        json.dumps(
            {
                "project_id": source.choice(slugs),
                "query": sentence(source, source.randint(3, 10)),
                **source.choice(WAYS),
            }
        ).encode()
        for _ in range(rate * seconds)
    ]


def send(port: int, key: str, bodies: Sequence[bytes], rate: int) -> tuple[float, Counter[int], list[float]]:
    """Send ``rate`` a second: replies a second, how many of each status, and the latencies in milliseconds."""
    held = local()
    began = time.perf_counter() + 0.2
    with ThreadPoolExecutor(CLIENTS) as pool:
        answers = list(pool.map(lambda at: ask(port, key, held, began + at / rate, bodies[at]), range(len(bodies))))
    took = time.perf_counter() - began
    return len(bodies) / took, Counter(status for _, status in answers), [ms for ms, _ in answers]


def main() -> None:
    """Measure every rate given on the command line."""
    start_fresh()
    from consolidation_pipeline.service.admin.api_keys import create_key
    from consolidation_pipeline.settings import Settings
    from consolidation_pipeline.store.database.engine import open_engine

    engine = open_engine(Settings())
    slugs = plant(engine, ROWS)
    index(engine, slugs[0])
    _, key = create_key(engine, role="reader")
    print("| requests a second | answered a second | statuses | p50 ms | p95 | p99 |\n|---:|---:|---|---:|---:|---:|")
    with serving() as port:
        send(port, key, draw_bodies(slugs, 20, 3), 20)
        for rate in [int(argument) for argument in sys.argv[1:]] or [50, 100, 200]:
            answered, statuses, latencies = send(port, key, draw_bodies(slugs, rate, SECONDS), rate)
            told = ", ".join(f"{status}: {count:,}" for status, count in sorted(statuses.items()))
            columns = " | ".join(f"{one:.1f}" for one in np.percentile(latencies, [50, 95, 99]))
            print(f"| {rate} | {answered:.0f} | {told} | {columns} |", flush=True)


if __name__ == "__main__":
    main()
