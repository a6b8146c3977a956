"""Time of import, embedding, index builds and searches for many memories in many projects.

    python benchmarks/large.py [MEMORIES [PROJECTS]]        default: 100000 20

Project sizes are log-normal. The corpus is that of pipeline.py: lessons, each noted one to five times in different
words. Memories are imported from JSON lines and embedded by the phase `embedding_matrix`, project by project in one
process. Then the indexes of large projects are built. Finally, `consolidation serve` gets searches for lessons in other
words at fixed rates, as in serving.py. Everything uses a temporary embedded server.
"""

from __future__ import annotations

import random
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pipeline import draw_lessons, phrase, write_corpus
from search import build_index
from serving import draw_requests, measure_rates
from temporary_server import use_temporary_server

SEED = 7
SIZE_SIGMA = 1.0  # standard deviation of the logarithm of a project's size
RATES = (20, 50, 100)


def draw_sizes(memories: int, projects: int) -> list[int]:
    """Return the number of memories of each project, largest first; their sum is ``memories``."""
    drawn = np.sort(np.random.default_rng(SEED).lognormal(sigma=SIZE_SIGMA, size=projects))[::-1]
    sizes = np.maximum(1, drawn / drawn.sum() * memories).astype(int)
    sizes[0] += memories - sizes.sum()
    return [int(size) for size in sizes]


def print_timed(step: str, count: int, work: Callable[[], Any]) -> None:
    """Call ``work`` and print a row with its time."""
    began = time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    print(f"| {step} | {seconds:,.0f} s | {count / seconds:,.0f} | {peak_mb():,.0f} MB |", flush=True)


def peak_mb() -> float:
    """Return the peak memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def import_all(engine: Any, corpora: dict[str, Path]) -> None:
    """Import the file of each project."""
    from consolidation_pipeline.service.intake.importer import import_memories

    for slug, path in corpora.items():
        import_memories(engine, slug, str(path), format="jsonl", source="benchmark")


def embed_all(engine: Any, settings: Any, slugs: list[str]) -> None:
    """Embed all memories as the first phase of a run does."""
    from consolidation_pipeline.service.runs.run_lifecycle import open_run
    from consolidation_pipeline.service.similarity.embedding import embed_memories

    for slug in slugs:
        with (
            open_run(engine, slug, settings=settings, planned=["embedding_matrix"], triggered_by="benchmark") as run,
            run.phase("embedding_matrix"),
        ):
            embed_memories(run)


def draw_bodies(slugs: list[str], count: int) -> list[bytes]:
    """Return ``count`` request bodies: searches in random projects for lessons in other words."""
    draw = random.Random(SEED + count)
    lessons = draw_lessons(draw)
    return draw_requests(draw, slugs, count, lambda: phrase(next(lessons), draw)[:200])


def main() -> None:
    """Import, embed, index and search; print a table of each."""
    arguments = [int(argument) for argument in sys.argv[1:]]
    memories, projects = [*arguments, *(100_000, 20)[len(arguments) :]]
    folder = use_temporary_server()
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
    print_timed("import", memories, lambda: import_all(engine, corpora))
    print_timed("vectors", memories, lambda: embed_all(engine, settings, slugs))
    print_timed("indexes", memories, lambda: [build_index(engine, slug) for slug in slugs])
    with engine.connect() as connection:
        size = connection.exec_driver_sql("SELECT pg_database_size(current_database())").scalar_one()
    print(f"\nThe database has {size / 1e6:,.0f} MB.\n")
    measure_rates(engine, RATES, partial(draw_bodies, slugs))


if __name__ == "__main__":
    main()
