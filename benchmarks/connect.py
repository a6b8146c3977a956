"""Time of syncing and writing a large store, and how long its program waits meanwhile.

    python benchmarks/connect.py [--rows N] [--dimension D] [--no-index] [--merge-only]

A collection as mem0 makes it gets N memories of N / 250 users; two of a hundred are worded twice. It is connected,
copied, consolidated and written. Then a night: 1,000 rows (at most a hundredth of N) are new, changed or deleted, half
of the new ones in words for what the user has already, and sync, run and write follow. It is measured twice: first the
rows are those of a tenth of the users, then of any of them.

Meanwhile a process updates and inserts rows of the collection one by one, fifty in a second, half of them among the
rows that are being merged. The server tells it of each lock that it waits for longer than 50 ms. The same is measured
with nothing of ours, while one program copies rows and two more compute.

Vectors have the directions of the local model's, repeated up to D numbers. Everything is in one temporary embedded
server. Phases run as Dagster assets in this process, as by `consolidation run`. CPU seconds are those of this process,
which also plays the provider of the model, and of the server.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from hashlib import md5
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import psutil
from pipeline import Lesson, draw_lessons, phrase
from temporary_server import use_temporary_server

USER_ROWS = 250
TWICE = 0.02
MAX_NIGHT = 1_000
# Shares of the rows of a night; half of the new ones word an old fact again.
NEW, CHANGED = 0.6, 0.3
# Share of the users whose rows change in a night, and their name.
NIGHTS = ((0.1, "a tenth of the users"), (1.0, "any user"))
SOURCE, PROJECT, MODEL, URL_ENV = "shop", "shop", "openai/repeated", "SHOP_DATABASE_URL"
SEED = 7
# Each memory has a time of its own in these 90 days.
FIRST_DAY, DAYS_IN_SECONDS = datetime(2026, 1, 5, tzinfo=UTC), 90 * 86_400
WRITES_PER_SECOND = 50
BATCH_ROWS = 2_000

Row = tuple[UUID, str, str]


def draw_id(draw: random.Random) -> UUID:
    """Return a random id."""
    return UUID(int=draw.getrandbits(128), version=4)


def word_again(text: str) -> str:
    """Return other words for a text."""
    return f"Note: {text[0].lower()}{text[1:]}"


def draw_rows(rows: int) -> Iterator[Row]:
    """Yield id, user and text of every memory."""
    draw = random.Random(SEED)
    lessons, text = draw_lessons(draw), ""
    for number in range(rows):
        again = number % USER_ROWS and draw.random() < TWICE
        text = word_again(text) if again and not text.startswith("Note") else phrase(next(lessons), draw)
        yield draw_id(draw), f"user-{number // USER_ROWS:04}", text


def make_values(row: Row, vector: np.ndarray) -> tuple[str, str, str]:
    """Return the columns of a memory as mem0 writes them."""
    id_, user, text = row
    payload = {
        "data": text,
        "hash": md5(text.encode(), usedforsecurity=False).hexdigest(),
        "user_id": user,
        "created_at": (FIRST_DAY + timedelta(seconds=id_.int % DAYS_IN_SECONDS)).isoformat(),
        "text_lemmatized": text.lower(),
    }
    return str(id_), f"[{','.join(map(repr, vector.tolist()))}]", json.dumps(payload)


def fill(url: str, rows: int, dimension: int, *, index: bool) -> None:
    """Make the collection with its indexes, and its rows by COPY."""
    import psycopg

    from consolidation_pipeline_tests.service.sources.local_vectors import repeat_vectors

    with psycopg.connect(url, autocommit=True) as store:
        store.execute("CREATE EXTENSION IF NOT EXISTS vector")
        store.execute(f"CREATE TABLE mem0 (id uuid PRIMARY KEY, vector vector({dimension}), payload jsonb)")
        drawn = draw_rows(rows)
        while batch := list(islice(drawn, BATCH_ROWS)):
            vectors = repeat_vectors([text for _, _, text in batch], dimension)
            with store.cursor() as cursor, cursor.copy("COPY mem0 FROM STDIN") as copy:
                for row, vector in zip(batch, vectors, strict=True):
                    copy.write_row(make_values(row, vector))
        store.execute("CREATE INDEX ON mem0 USING gin (to_tsvector('simple', payload ->> 'text_lemmatized'))")
        if index:
            store.execute("SET maintenance_work_mem = '4GB'")
            store.execute("CREATE INDEX ON mem0 USING hnsw (vector vector_cosine_ops)")
        store.execute("VACUUM ANALYZE mem0")
        store.execute("CHECKPOINT")  # Else the rows that are filled here are flushed during the first measurements.


def change_rows(url: str, rows: int, dimension: int, night: int, *, users: float) -> int:
    """Add, change and delete rows as the agents of a day do; return how many.

    Args:
        url: The store's database.
        rows: Rows that it had at first.
        dimension: Length of the vectors.
        night: Number of the night; another one changes other rows.
        users: Share of the users whose rows change.
    """
    import psycopg

    from consolidation_pipeline_tests.service.sources.local_vectors import repeat_vectors

    draw = random.Random(SEED + night)
    lessons: Iterator[Lesson] = draw_lessons(draw)
    count = min(MAX_NIGHT, rows // 100)
    drawn = list(draw_rows(rows))
    names = sorted({user for _, user, _ in drawn})
    active = {*draw.sample(names, max(1, round(users * len(names))))}
    known = draw.sample([row for row in drawn if row[1] in active], count)
    new, changed = int(count * NEW), int(count * CHANGED)
    texts = [word_again(row[2]) if at % 2 else phrase(next(lessons), draw) for at, row in enumerate(known[:new])]
    texts += [phrase(next(lessons), draw) for _ in range(changed)]
    with psycopg.connect(url, autocommit=True) as store:
        for at, (text, vector) in enumerate(zip(texts, repeat_vectors(texts, dimension), strict=True)):
            old, user, _ = known[at]
            id_, written, payload = make_values((draw_id(draw) if at < new else old, user, text), vector)
            store.execute(
                "INSERT INTO mem0 VALUES (%s, %s, %s) ON CONFLICT (id) DO UPDATE SET vector = excluded.vector, "
                "payload = excluded.payload",
                [id_, written, payload],
            )
        store.execute("DELETE FROM mem0 WHERE id = ANY(%s)", [[row[0] for row in known[new + changed :]]])
    return count


def write_as_the_program(url: str, dimension: int, merged: Sequence[str], stop: Any, times: Any) -> None:
    """Update and insert rows one by one until ``stop`` is set; put the seconds of each into ``times``."""
    import psycopg

    from consolidation_pipeline_tests.service.sources.local_vectors import repeat_vectors

    draw, taken, locks = random.Random(SEED + os.getpid()), [], []
    # Few texts, and one user's: they cost the next run little.
    texts = [f"Entry {at} of the writer" for at in range(20)]
    vectors = repeat_vectors(texts, dimension)
    own = [make_values((UUID(int=0), "writer", text), vector) for text, vector in zip(texts, vectors, strict=True)]
    with psycopg.connect(url, autocommit=True) as store:
        store.add_notice_handler(lambda told: locks.append(told.message_primary))
        store.execute("SET deadlock_timeout = '50ms'; SET log_lock_waits = on; SET client_min_messages = log")
        ids = [str(id_) for (id_,) in store.execute("SELECT id FROM mem0 ORDER BY md5(id::text) LIMIT 2000")]
        while not stop.is_set():
            began = time.perf_counter()
            if draw.random() < 0.1:
                _, vector, payload = draw.choice(own)
                store.execute("INSERT INTO mem0 VALUES (%s, %s, %s)", [draw_id(draw), vector, payload])
            else:
                id_ = draw.choice(merged) if merged and draw.random() < 0.5 else draw.choice(ids)
                store.execute("UPDATE mem0 SET payload = payload WHERE id = %s", [id_])
            taken.append(time.perf_counter() - began)
            time.sleep(max(0.0, 1 / WRITES_PER_SECOND - taken[-1]))
        store.execute("DELETE FROM mem0 WHERE payload ->> 'user_id' = 'writer'")
    times.put((taken, sum("still waiting for" in str(told) for told in locks)))


def load_as_others(url: str, stop: Any) -> None:
    """Copy rows of the collection until ``stop`` is set."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as store:
        store.execute("CREATE TABLE copied (LIKE mem0)")
        while not stop.is_set():
            store.execute("INSERT INTO copied SELECT gen_random_uuid(), vector, payload FROM mem0 LIMIT 2000")
        store.execute("DROP TABLE copied")


def compute_as_others(url: str, stop: Any) -> None:
    """Use a core until ``stop`` is set."""
    del url
    while not stop.is_set():
        sum(range(100_000))


@contextmanager
def run_others(url: str) -> Iterator[None]:
    """Run programs that have nothing to do with us during the body."""
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    targets = (load_as_others, compute_as_others, compute_as_others)
    others = [context.Process(target=target, args=(url, stop)) for target in targets]
    for other in others:
        other.start()
    try:
        yield
    finally:
        stop.set()
        for other in others:
            other.join()


def read_cpu_seconds() -> float:
    """Return the CPU seconds of this process and of the server with all its sessions, also those that ended."""
    folder = Path(os.environ["CONSOLIDATION_DATA_DIR"])
    server = psutil.Process(int(next(folder.rglob("postmaster.pid")).read_text().split()[0]))
    seconds = sum(server.cpu_times()[:4]) + sum(psutil.Process().cpu_times()[:2])
    for session in server.children():
        with suppress(psutil.Error):
            seconds += sum(session.cpu_times()[:2])
    return seconds


@contextmanager
def measure(name: str, url: str, dimension: int, merged: Sequence[str] = ()) -> Iterator[None]:
    """Print a row with the seconds of the body, and of the writes of another process meanwhile."""
    context = multiprocessing.get_context("spawn")
    stop, times = context.Event(), context.Queue()
    writer = context.Process(target=write_as_the_program, args=(url, dimension, merged, stop, times))
    writer.start()
    time.sleep(2)
    began, spent = time.perf_counter(), read_cpu_seconds()
    try:
        yield
    finally:
        took, spent = time.perf_counter() - began, read_cpu_seconds() - spent
        stop.set()
        taken, locks = times.get(timeout=60)
        taken = np.array(taken) * 1000
        writer.join()
    p50, p99, slowest = (*np.percentile(taken, (50, 99)), taken.max())
    print(
        f"| {name} | {took:.1f} s | {spent:.1f} s | {len(taken)} | {p50:.1f} ms | {p99:.1f} ms | {slowest:.0f} ms "
        f"| {locks} |",
        flush=True,
    )


def list_planned(engine: Any) -> list[str]:
    """Return the keys of the rows that the next write touches."""
    from consolidation_pipeline.service.sources.write_plan import plan_writes

    return [key for plan in plan_writes(engine, SOURCE) for key in plan.stamps]


def run(merge_only: bool) -> None:
    """Consolidate the project, or only merge."""
    from consolidation_pipeline.launch import run_project
    from consolidation_pipeline.service.runs.phases import PHASES

    phases = PHASES[: PHASES.index("merged_memories") + 1] if merge_only else None
    outcome = run_project(PROJECT, phases=phases, triggered_by="benchmark")
    if outcome.status not in ("completed", "unchanged"):
        raise SystemExit(f"run {outcome.status}: {outcome.error}")
    seconds = {name: float(outcome.metrics[name]["seconds"]) for name in PHASES if name in outcome.metrics}
    print(f"  {', '.join(f'{name} {took:.1f} s' for name, took in seconds.items() if took >= 1)}", flush=True)


def measure_all(engine: Any, url: str, rows: int, dimension: int, *, merge_only: bool) -> None:
    """Print a table of all steps."""
    from consolidation_pipeline.service.sources.connections import connect_source, set_mode
    from consolidation_pipeline.service.sources.sync import sync_source
    from consolidation_pipeline.service.sources.write_back import write_source

    config = {"kind": "mem0", "url_env": URL_ENV, "embedding_model": MODEL}
    print(f"\n| {rows:,} rows x {dimension} | time | CPU | its program's writes | p50 | p99 | longest | locks |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    with measure("nothing else", url, dimension):
        time.sleep(5)
    with run_others(url), measure("other programs, nothing of ours", url, dimension):
        time.sleep(30)
    with measure("connect", url, dimension):
        connect_source(engine, SOURCE, project=PROJECT, config=config)
    with measure("first sync", url, dimension):
        assert sync_source(engine, SOURCE).with_vectors >= rows
    with measure("sync, all rows compared", url, dimension):
        sync_source(engine, SOURCE)
    with measure("change of the mode to write", url, dimension):
        set_mode(engine, SOURCE, "write")
    with measure("first run", url, dimension):
        run(merge_only)
    with measure("first write", url, dimension, list_planned(engine)):
        first = write_source(engine, SOURCE, quiet_seconds=0, max_share=1)
    sync_source(engine, SOURCE)
    run(merge_only)
    for night, (users, who) in enumerate(NIGHTS, start=1):
        measure_night(engine, url, rows, dimension, night, users=users, who=who, merge_only=merge_only)
    print(f"\nFirst write: {first}")


def measure_night(
    engine: Any, url: str, rows: int, dimension: int, night: int, *, users: float, who: str, merge_only: bool
) -> None:
    """Print the rows of a night. ``users``: share of the users whose rows change; ``who``: that in words."""
    from consolidation_pipeline.service.sources.sync import sync_source
    from consolidation_pipeline.service.sources.write_back import write_source

    count = change_rows(url, rows, dimension, night, users=users)
    name = f"{count:,} rows of {who} changed"
    with measure(f"{name}: sync", url, dimension):
        synced = sync_source(engine, SOURCE)
    with measure(f"{name}: run", url, dimension):
        run(merge_only)
    with measure(f"{name}: write", url, dimension, list_planned(engine)):
        written = write_source(engine, SOURCE, quiet_seconds=0)
    print(f"{synced}\n{written}")


def main() -> None:
    """Measure one store."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--dimension", type=int, default=1536)
    parser.add_argument("--no-index", dest="index", action="store_false", help="leave the HNSW index of mem0 out")
    parser.add_argument("--merge-only", action="store_true", help="run no phases after merged_memories")
    given = parser.parse_args()
    folder = use_temporary_server()
    os.environ.update(DAGSTER_HOME=str(Path(__file__).resolve().parent.parent), OPENAI_API_KEY="unused")
    from consolidation_pipeline.service.admin.projects import create_project
    from consolidation_pipeline.settings import Settings
    from consolidation_pipeline.store.database.embedded_server import server_url
    from consolidation_pipeline.store.database.engine import open_engine
    from consolidation_pipeline_tests.openai_server import openai_server
    from consolidation_pipeline_tests.service.sources.local_vectors import reply_with_local_vectors

    url = os.environ[URL_ENV] = server_url(folder, "app")
    began = time.perf_counter()
    fill(url, given.rows, given.dimension, index=given.index)
    print(f"filled in {time.perf_counter() - began:.0f} s", flush=True)
    engine = open_engine(Settings())
    with openai_server(reply_with_local_vectors(given.dimension)) as server:
        os.environ["OPENAI_API_BASE"] = server.api_base
        options = {"embedding_model": MODEL, "scope": "user_id,agent_id,session_id", "timeout_seconds": 3600}
        create_project(engine, PROJECT, options, settings=Settings())
        measure_all(engine, url, given.rows, given.dimension, merge_only=given.merge_only)
    print(f"peak memory of this process {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
