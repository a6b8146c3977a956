"""Latency and CPU time of searches, alone and beside rivals, and recall of the vector index.

    python benchmarks/search.py [--rivals] [ROWS ...]        default: 1000 10000

ROWS memories are in 50 projects: half in the largest, a quarter of the rest in each next one. Words are as frequent as
in real texts without their stop words. A temporary embedded server holds them. With --rivals, all are in one project,
and the same texts and vectors are searched by a plain statement of pgvector and by mem0 over pgvector too, in turn.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import psycopg
from sqlalchemy import text
from temporary_server import use_temporary_server

PROJECTS = 50
SEARCHES = 200
CLIENTS = (1, 8)
SEED = 7
# Zipf's law: the word of rank r is 1/r as frequent as the first. The first ranks are stop words, which no search reads.
WORDS, STOP_WORDS = 50_000, 20


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
    return " ".join(f"w{int(STOP_WORDS * (WORDS / STOP_WORDS) ** source.random())}" for _ in range(words))


def create_projects(engine: Any, rows: int, sizes: Sequence[int] = ()) -> list[str]:
    """Create projects with embedded memories; return their slugs, largest project first."""
    from consolidation_pipeline.core.memories.memories import NewMemory
    from consolidation_pipeline.embed import load_embedder
    from consolidation_pipeline.store.memories.memories import append_memories
    from consolidation_pipeline.store.projects import create_project

    source, embedder, slugs = random.Random(SEED), load_embedder("local"), []
    for number, size in enumerate(sizes or list_sizes(rows)):
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
    from consolidation_pipeline.store.search.index_upkeep import build_indexes

    with engine.connect() as connection:
        project = get_project(connection, slug)
    build_indexes(engine, project.id, LOCAL_MODEL, load_embedder("local").embed(["length"]).shape[1])


def measure_recall(engine: Any, slug: str) -> float | None:
    """Return the mean share of the ten nearest that the index finds; None if the project has no index."""
    from consolidation_pipeline.core.memories.memories import LEVELS
    from consolidation_pipeline.core.search.ranking import MIN_CANDIDATES
    from consolidation_pipeline.embed import load_embedder
    from consolidation_pipeline.store.projects import get_project
    from consolidation_pipeline.store.search.retrievers import SearchFilters, open_snapshot, read_nearest, run_reads
    from consolidation_pipeline.store.search.vector_indexes import count_candidates, find_indexes

    embedder, source, shares = load_embedder("local"), random.Random(SEED), []
    filters = SearchFilters(LEVELS)
    with engine.connect() as connection:
        project = get_project(connection, slug)
    vectors = embedder.embed([draw_text(source, 12) for _ in range(50)])
    for vector in vectors:
        with open_snapshot(engine) as connection:
            indexed = find_indexes(connection, project.id, embedder.name, len(vector))
            if not indexed:
                return None
            how: dict[str, Any] = {
                "model": embedder.name,
                "vector": vector,
                "min_similarity": -1.0,
                "limit": MIN_CANDIDATES,
            }
            how["candidates"] = count_candidates(connection, indexed.values(), nearest=MIN_CANDIDATES)
            found, exact = (
                {near.id for near in run_reads(connection, read_nearest(project.id, filters, indexed=used, **how))[:10]}
                for used in (indexed, {})
            )
        shares.append(len(found & exact) / len(exact))
    return float(np.mean(shares))


def create_rivals(engine: Any, slug: str) -> dict[str, Callable[[str], object]]:
    """Copy the memories of a project for pgvector and mem0; return what searches them for ten hits."""
    from pgvector import Vector

    from consolidation_pipeline.embed import load_embedder
    from consolidation_pipeline.store.projects import get_project

    os.environ.update(MEM0_TELEMETRY="False", MEM0_DIR=os.environ["CONSOLIDATION_DATA_DIR"])
    from mem0 import Memory

    embedder = load_embedder("local")
    with engine.connect() as connection:
        project = get_project(connection, slug)
    bound = {"project": project.id}
    with engine.begin() as connection:
        for statement in RIVAL_TABLES:
            connection.execute(text(statement), bound)
    url = engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    store = {"connection_string": url, "collection_name": "mem0_rows", "embedding_model_dims": 256, "hnsw": True}
    # The models are never called: the embedder is replaced, and nothing is added by it.
    model = {"provider": "openai", "config": {"api_key": "none"}}
    memory = Memory.from_config(
        {"vector_store": {"provider": "pgvector", "config": store}, "embedder": model, "llm": model}
    )
    memory.embedding_model.embed = lambda query, *_: embedder.embed([query])[0].tolist()
    memory.search("first", filters={"user_id": "u"})  # creates the table
    with engine.begin() as connection:
        connection.execute(text(FILL_MEM0), bound)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM ANALYZE")
    pgvector = psycopg.connect(url, autocommit=True)

    def search_pgvector(query: str) -> object:
        return pgvector.execute(TOP_10, {"vector": Vector(embedder.embed([query])[0])}, binary=True).fetchall()

    def search_mem0(query: str) -> object:
        return memory.search(query, filters={"user_id": "u"}, top_k=10)

    return {"pgvector, top 10 by one statement": search_pgvector, "mem0 over pgvector": search_mem0}


# The same texts and vectors, indexed as each of the two does by itself.
RIVAL_TABLES = (
    "CREATE TABLE rival_rows (id uuid PRIMARY KEY, content text, embedding vector(256))",
    "INSERT INTO rival_rows SELECT id, execution_summary, embedding FROM consolidation.task_memories "
    "WHERE project_id = :project",
    "CREATE INDEX ON rival_rows USING hnsw (embedding vector_cosine_ops)",
)
FILL_MEM0 = """
    INSERT INTO mem0_rows (id, vector, payload)
    SELECT id, embedding, jsonb_build_object('data', execution_summary, 'text_lemmatized', execution_summary,
        'user_id', 'u', 'hash', content_hash, 'created_at', created_at)
    FROM consolidation.task_memories WHERE project_id = :project
"""
TOP_10 = "SELECT id, content FROM rival_rows ORDER BY embedding <=> %(vector)s::vector LIMIT 10"


def sum_cpu_seconds() -> float:
    """Return the CPU seconds of this process and of all processes of the embedded server."""
    pidfile = Path(os.environ["CONSOLIDATION_DATA_DIR"]) / "postgres" / "postmaster.pid"
    server = psutil.Process(int(pidfile.read_text().split()[0]))
    used = [process.cpu_times() for process in server.children()]
    return time.process_time() + sum(times.user + times.system for times in used)


def compare_rivals(engine: Any, settings: Any, rows: int) -> None:
    """Print latency and CPU time of searches of one project by this product and by its rivals."""
    (slug,) = create_projects(engine, rows, [rows])
    build_index(engine, slug)
    ways: dict[str, Callable[[str], object]] = {
        "this project, hybrid": lambda query: time_search(engine, settings, slug, query),
        **create_rivals(engine, slug),
    }
    source = random.Random(SEED)
    queries = [draw_text(source, 12) for _ in range(SEARCHES)]
    for name, run in ways.items():
        for query in queries[:20]:
            run(query)
        milliseconds, before = [], sum_cpu_seconds()
        for query in queries:
            began = time.perf_counter()
            run(query)
            milliseconds.append((time.perf_counter() - began) * 1000)
        cpu = (sum_cpu_seconds() - before) * 1000 / SEARCHES
        shown = " | ".join(f"{each:.1f}" for each in np.percentile(milliseconds, [50, 95, 99]))
        print(f"| {rows:,} | {name} | {shown} | {cpu:.1f} |", flush=True)
    print(f"\nrecall@10 of the index: {measure_recall(engine, slug)}\n")


def main() -> None:
    """Measure each size given on the command line."""
    use_temporary_server()
    from consolidation_pipeline.settings import Settings
    from consolidation_pipeline.store.database.engine import open_engine

    settings = Settings()
    engine = open_engine(settings)
    numbers = [int(argument) for argument in sys.argv[1:] if argument != "--rivals"] or [1_000, 10_000]
    if "--rivals" in sys.argv:
        print("| memories | searched by | p50 ms | p95 | p99 | CPU ms |\n|---:|---|---:|---:|---:|---:|")
        for rows in numbers:
            compare_rivals(engine, settings, rows)
        return
    print(
        "| memories | asked | clients | p50 ms | p95 | p99 | recall@10 of the index |"
        "\n|---:|---|---:|---:|---:|---:|---:|"
    )
    for rows in numbers:
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
