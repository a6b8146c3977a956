"""Latency of searches, and recall of the vector index.

    python benchmarks/search.py [ROWS ...]        default: 1000 10000

ROWS memories are in 50 projects: half in the largest, a quarter of the rest in each next one. Texts are random words of
a skewed vocabulary. A temporary embedded server holds them.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from temporary_server import use_temporary_server

PROJECTS = 50
SEARCHES = 200
CLIENTS = (1, 8)
WORDS = 20_000
SEED = 7


def list_sizes(rows: int) -> list[int]:
    """Return the rows of each project: half of all, then each time a quarter of the rest, at least one."""
    sizes, left = [rows // 2], rows - rows // 2
    for number in range(1, PROJECTS):
        size = left if number == PROJECTS - 1 else max(1, left // 4)
        sizes.append(min(size, left))
        left -= sizes[-1]
    return [size for size in sizes if size]


def draw_text(source: random.Random, words: int) -> str:
    """Return random words, of which a few are frequent and most are rare."""
    return " ".join(f"w{int(WORDS ** source.random())}" for _ in range(words))


def create_projects(engine: Any, rows: int) -> list[str]:
    """Create projects with embedded memories; return their slugs, largest project first."""
    from consolidation_pipeline.core.memories.memories import NewMemory
    from consolidation_pipeline.embed import load_embedder
    from consolidation_pipeline.store.memories.memories import append_memories
    from consolidation_pipeline.store.projects import create_project

    source, embedder, slugs = random.Random(SEED), load_embedder("local"), []
    for number, size in enumerate(list_sizes(rows)):
        slugs.append(f"p{rows}-{number}")
        texts = [draw_text(source, 60) for _ in range(size)]
        memories = [
            NewMemory(
                source="benchmark",
                external_id=str(row),
                memory_type="learning",
                execution_summary=text,
                embedding=tuple(vector.tolist()),
                embedding_model=embedder.name,
            )
            for row, (text, vector) in enumerate(zip(texts, embedder.embed(texts), strict=True))
        ]
        with engine.begin() as connection:
            project = create_project(connection, slugs[-1])
            append_memories(connection, project.id, project.slug, enumerate(memories, 1))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM ANALYZE")  # as autovacuum does within minutes
    return slugs


def time_search(engine: Any, settings: Any, slug: str, query: str) -> float:
    """Return the milliseconds of one search, including its update of the use counts."""
    from consolidation_pipeline.service.search.hybrid_search import SearchQuery, search

    began = time.perf_counter()
    search(engine, slug, SearchQuery(query), settings=settings)
    return (time.perf_counter() - began) * 1000


def measure_searches(engine: Any, settings: Any, slugs: Sequence[str], clients: int) -> list[float]:
    """Return the milliseconds of each of ``SEARCHES`` searches. Each client sends one at a time."""
    source = random.Random(SEED + clients)
    queries = [(source.choice(slugs), draw_text(source, 12)) for _ in range(SEARCHES)]
    with ThreadPoolExecutor(clients) as pool:
        return list(pool.map(lambda pair: time_search(engine, settings, *pair), queries))


def build_index(engine: Any, slug: str) -> None:
    """Build the vector index of a project as the end of a run does, if the project is large enough."""
    from consolidation_pipeline.embed import load_embedder
    from consolidation_pipeline.embed.local import LOCAL_MODEL
    from consolidation_pipeline.store.projects import get_project
    from consolidation_pipeline.store.search.vector_indexes import build_indexes

    with engine.connect() as connection:
        project = get_project(connection, slug)
    build_indexes(engine, project.id, LOCAL_MODEL, load_embedder("local").embed(["length"]).shape[1])


def measure_recall(engine: Any, slug: str) -> float | None:
    """Return the mean share of the ten nearest that the index finds; None if the project has no index."""
    from consolidation_pipeline.core.memories.memories import LEVELS
    from consolidation_pipeline.embed import load_embedder
    from consolidation_pipeline.store.projects import get_project
    from consolidation_pipeline.store.search.retrievers import SearchFilters, find_nearest, open_snapshot
    from consolidation_pipeline.store.search.vector_indexes import find_indexes

    embedder, source, shares = load_embedder("local"), random.Random(SEED), []
    with engine.connect() as connection:
        project = get_project(connection, slug)
    vectors = embedder.embed([draw_text(source, 12) for _ in range(50)])
    for vector in vectors:
        with open_snapshot(engine) as connection:
            indexed = find_indexes(connection, project.id, embedder.name, len(vector))
            if not indexed:
                return None
            how: dict[str, Any] = {"model": embedder.name, "vector": vector, "min_similarity": -1.0, "limit": 200}
            found, exact = (
                {
                    near.id
                    for near in find_nearest(connection, project.id, SearchFilters(LEVELS), indexed=used, **how)[:10]
                }
                for used in (indexed, {})
            )
        shares.append(len(found & exact) / len(exact))
    return float(np.mean(shares))


def main() -> None:
    """Measure each size given on the command line."""
    use_temporary_server()
    from consolidation_pipeline.settings import Settings
    from consolidation_pipeline.store.database.engine import open_engine

    settings = Settings()
    engine = open_engine(settings)
    print(
        "| memories | asked | clients | p50 ms | p95 | p99 | recall@10 of the index |"
        "\n|---:|---|---:|---:|---:|---:|---:|"
    )
    for rows in [int(argument) for argument in sys.argv[1:]] or [1_000, 10_000]:
        slugs = create_projects(engine, rows)
        build_index(engine, slugs[0])
        recall = measure_recall(engine, slugs[0])
        for label, chosen in (("the largest project", slugs[:1]), ("any project", slugs)):
            for clients in CLIENTS:
                times = np.percentile(measure_searches(engine, settings, chosen, clients), [50, 95, 99])
                shown_recall = "not indexed" if recall is None else f"{recall:.3f}"
                print(
                    f"| {rows:,} | {label} | {clients} | {' | '.join(f'{t:.1f}' for t in times)} | {shown_recall} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
