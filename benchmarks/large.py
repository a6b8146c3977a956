"""A million memories over 200 projects: how long do import, vectors and indexes take, and what do searches cost then?

    python benchmarks/large.py [MEMORIES [PROJECTS]]        default: 100000 20

Projects are of very different sizes (log-normal). The corpus is that of pipeline.py: lessons, each noted one to five
times in changed wordings. Memories are imported from JSON lines and given their vectors by the phase that does it in
runs, project after project in one process; then the indexes of large projects are built, and `consolidation serve` is
searched at fixed rates as in serving.py, with lessons of the project in other words. Everything is on an embedded
server of its own.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from fresh import start_fresh
from pipeline import draw_lessons, word, write_corpus
from search import index
from serving import WAYS, send, serving

SEED = 7
SPREAD = 1.0  # of the logarithm of a project's size
RATES = (20, 50, 100)
SECONDS = 20


def draw_sizes(memories: int, projects: int) -> list[int]:
    """Memories of each project, largest first; they add up."""
    drawn = np.sort(np.random.default_rng(SEED).lognormal(sigma=SPREAD, size=projects))[::-1]
    sizes = np.maximum(1, drawn / drawn.sum() * memories).astype(int)
    sizes[0] += memories - sizes.sum()
    return [int(size) for size in sizes]


def timed(step: str, count: int, work: Callable[[], Any]) -> None:
    """Do the work and print its row."""
    began = time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    print(f"| {step} | {seconds:,.0f} s | {count / seconds:,.0f} | {peak_mb():,.0f} MB |", flush=True)


def peak_mb() -> float:
    """The most memory that this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def import_all(engine: Any, corpora: dict[str, Path]) -> None:
    """Import every project's file."""
    from consolidation_pipeline.service.intake.importer import import_memories

    for slug, path in corpora.items():
        import_memories(engine, slug, str(path), format="jsonl", source="benchmark")


def embed_all(engine: Any, settings: Any, slugs: list[str]) -> None:
    """Give every memory its vector, as the first phase of a run does."""
    from consolidation_pipeline.service.runs.run_lifecycle import open_run
    from consolidation_pipeline.service.similarity.embedding import embed_memories

    for slug in slugs:
        with (
            open_run(engine, slug, settings=settings, planned=["embedding_matrix"], triggered_by="benchmark") as run,
            run.phase("embedding_matrix"),
        ):
            embed_memories(run)


def index_all(engine: Any, slugs: list[str]) -> None:
    """Build the indexes of the large projects."""
    for slug in slugs:
        index(engine, slug)


def draw_bodies(slugs: list[str], count: int) -> list[bytes]:
    """Searches for lessons in other words, in any project."""
    draw = random.Random(SEED + count)
    lessons = draw_lessons(draw)
    return [
        json.dumps(
            {"project_id": draw.choice(slugs), "query": word(next(lessons), draw)[:200], **draw.choice(WAYS)}
        ).encode()
        for _ in range(count)
    ]


def search_all(engine: Any, slugs: list[str]) -> None:
    """Print what searches take at each rate."""
    from consolidation_pipeline.service.admin.api_keys import create_key

    _, key = create_key(engine, role="reader")
    print("\n| requests a second | answered a second | statuses | p50 ms | p95 | p99 |\n|---:|---:|---|---:|---:|---:|")
    with serving() as port:
        send(port, key, draw_bodies(slugs, 100), 20)
        for rate in RATES:
            answered, statuses, latencies = send(port, key, draw_bodies(slugs, rate * SECONDS), rate)
            told = ", ".join(f"{status}: {count:,}" for status, count in sorted(statuses.items()))
            columns = " | ".join(f"{one:.1f}" for one in np.percentile(latencies, [50, 95, 99]))
            print(f"| {rate} | {answered:.0f} | {told} | {columns} |", flush=True)


def main() -> None:
    """Import, embed, index and search."""
    given = [int(argument) for argument in sys.argv[1:]]
    memories, projects = [*given, *(100_000, 20)[len(given) :]]
    folder = start_fresh()
    from consolidation_pipeline.settings import Settings
    from consolidation_pipeline.store.database.engine import open_engine

    settings = Settings()
    engine = open_engine(settings)
    corpora = {}
    for number, size in enumerate(draw_sizes(memories, projects)):
        corpora[f"p{number}"] = folder / f"p{number}.jsonl"
        write_corpus(corpora[f"p{number}"], size, seed=number)
    slugs = list(corpora)
    print(f"\n{memories:,} memories over {projects} projects, the largest of {draw_sizes(memories, projects)[0]:,}\n")
    print("| step | time | memories a second | peak memory of the process |\n|---|---:|---:|---:|")
    timed("import", memories, lambda: import_all(engine, corpora))
    timed("vectors", memories, lambda: embed_all(engine, settings, slugs))
    timed("indexes", memories, lambda: index_all(engine, slugs))
    with engine.connect() as connection:
        size = connection.exec_driver_sql("SELECT pg_database_size(current_database())").scalar_one()
    print(f"\nThe database has {size / 1e6:,.0f} MB.")
    search_all(engine, slugs)


if __name__ == "__main__":
    main()
