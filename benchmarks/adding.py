"""Memories that agents add over HTTP: additions a second, and their latencies.

    python benchmarks/adding.py [CLIENTS ...]        default: 1 16

Each client adds one memory after the other, for ten seconds, to one of ten projects with 1,000 memories each. Server,
database and clients share this machine.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
from pipeline import draw_notes, write_corpus
from serving import serve
from temporary_server import use_temporary_server

PROJECTS = 10
MEMORIES = 1_000
SECONDS = 10


def add_memories(port: int, key: str, until: float, client: int) -> list[tuple[float, int]]:
    """Add memories until then, one after the other; return the milliseconds and the status of each."""
    source = random.Random(client)
    notes = draw_notes(source)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    found = []
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    while (began := time.perf_counter()) < until:
        text = f"{next(notes)[1]} Noted by {client} at {began}."
        row = {"project": f"p{source.randrange(PROJECTS)}", "content": text}
        connection.request("POST", "/api/v1/memories", json.dumps(row), headers)
        with connection.getresponse() as reply:
            reply.read()
            found.append(((time.perf_counter() - began) * 1000, reply.status))
    return found


def main() -> None:
    """Measure each number of clients on the command line."""
    use_temporary_server()
    from consolidation_pipeline.service.admin.api_keys import create_key
    from consolidation_pipeline.service.intake.importer import import_memories
    from consolidation_pipeline.settings import Settings
    from consolidation_pipeline.store.database.engine import open_engine

    engine = open_engine(Settings())
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus.jsonl"
        write_corpus(corpus, MEMORIES)
        for at in range(PROJECTS):
            import_memories(engine, f"p{at}", str(corpus), format="jsonl")
    _, key = create_key(engine, role="agent")
    print("| clients | added a second | statuses | p50 ms | p95 | p99 |\n|---:|---:|---|---:|---:|---:|")
    with serve() as port:
        add_memories(port, key, time.perf_counter() + 2, 0)
        for clients in [int(argument) for argument in sys.argv[1:]] or [1, 16]:
            send = partial(add_memories, port, key, time.perf_counter() + SECONDS)
            with ThreadPoolExecutor(clients) as pool:
                answers = list(pool.map(send, range(1, clients + 1)))
            every = [answer for found in answers for answer in found]
            counts = Counter(status for _, status in every)
            columns = " | ".join(f"{latency:.1f}" for latency in np.percentile([ms for ms, _ in every], [50, 95, 99]))
            print(f"| {clients} | {len(every) / SECONDS:.0f} | {dict(counts)} | {columns} |", flush=True)


if __name__ == "__main__":
    main()
