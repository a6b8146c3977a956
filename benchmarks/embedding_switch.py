"""Change of the embedding model of a project that is searched all the time: how long the switch takes, what fails.

    python benchmarks/embedding_switch.py [MEMORIES]        default: 10000

Two clients search for the text of one memory after another. A search fails if it raises, finds nothing, or does not
find the memory by its vector. A local server stands for the provider of the second model. A temporary embedded server
holds the memories.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from search import SEED, create_projects
from temporary_server import use_temporary_server

MODEL = "openai/text-embedding-3-small"
DIMENSION = 256
CLIENTS = 2


@dataclass
class Load:
    """Searches since the phase began: their milliseconds, and what failed."""

    texts: list[tuple[Any, str]]
    milliseconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def search(self, engine: Any, settings: Any, slug: str, source: random.Random) -> None:
        """Search for a memory by its text."""
        from consolidation_pipeline.service.search.hybrid_search import SearchQuery, search

        wanted, text = source.choice(self.texts)
        began = time.perf_counter()
        try:
            results = search(engine, slug, SearchQuery(text), settings=settings, count_use=False).results
            if not any(hit.id == wanted and (hit.similarity or 0) > 0.99 for hit in results):
                self.failures.append(f"{wanted} was not found by its vector among {len(results)} results")
        except Exception as error:
            self.failures.append(repr(error))
        self.milliseconds.append((time.perf_counter() - began) * 1000)

    def report(self, phase: str, seconds: float, update: float | None) -> None:
        """Print a row of the phase, and begin the next one. ``update``: seconds of a switch itself."""
        times, failures = self.milliseconds[:], self.failures[:]
        p50, p95 = np.percentile(times, [50, 95]) if times else (float("nan"), float("nan"))
        locked = "" if update is None else f"{update:.3f}"
        print(
            f"| {phase} | {seconds:.2f} | {locked} | {len(times)} | {p50:.1f} | {p95:.1f} | {len(failures)} |",
            flush=True,
        )
        for failure in failures[:3]:
            print(f"    {failure}")
        del self.milliseconds[: len(times)], self.failures[: len(failures)]


@contextmanager
def searching(engine: Any, settings: Any, slug: str, load: Load) -> Iterator[None]:
    """Search all the time with ``CLIENTS`` clients."""
    stop = threading.Event()

    def run(number: int) -> None:
        source = random.Random(SEED + number)
        while not stop.is_set():
            load.search(engine, settings, slug, source)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def reembed(engine: Any, settings: Any, slug: str) -> None:
    """Embed and calibrate as the job ``reembed`` begins."""
    from consolidation_pipeline.service.runs.run_lifecycle import open_run
    from consolidation_pipeline.service.shadow.phase_runner import run_phases

    phases = ("embedding_matrix", "threshold_calibration")
    with open_run(engine, slug, settings=settings, job="reembed", planned=phases) as run:
        run_phases(run, phases)


def main(memories: int) -> None:
    """Print a table of the phases."""
    use_temporary_server()
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from sqlalchemy import text

    from consolidation_pipeline.service.admin.embedding_change import stage_embeddings, switch_model
    from consolidation_pipeline.settings import Settings
    from consolidation_pipeline.store.database.engine import open_engine
    from consolidation_pipeline_tests.openai_server import client_environment, openai_server, reply_with_embeddings

    settings = Settings()
    with openai_server(reply_with_embeddings(dimension=DIMENSION)) as server:
        os.environ.update(client_environment(server.api_base))
        engine = open_engine(settings)
        [slug] = create_projects(engine, memories, [memories])
        with engine.connect() as connection:
            rows = connection.execute(
                text("SELECT id, execution_summary FROM consolidation.task_memories ORDER BY id LIMIT 200")
            )
            load = Load([(row.id, row.execution_summary) for row in rows])

        def switch() -> float:
            return switch_model(engine, slug, settings=settings).seconds

        def measure(phase: str, act: Callable[[], Any]) -> None:
            began = time.perf_counter()
            result = act()
            whole = time.perf_counter() - began
            time.sleep(5)
            load.report(phase, whole, result if isinstance(result, float) else None)

        print(f"{memories:,} memories; {CLIENTS} clients search; each phase and the 5 s after it\n")
        print(
            "| phase | s | of it the update | searches | median ms | p95 ms | failed |\n|---|---|---|---|---|---|---|"
        )
        with searching(engine, settings, slug, load):
            measure("before", lambda: None)
            measure("stage", lambda: stage_embeddings(engine, slug, MODEL, settings=settings))
            measure("switch", switch)
            measure("switch back", switch)
            measure("switch again", switch)
            measure("run: embed, calibrate", lambda: reembed(engine, settings, slug))
            measure("switch back after the run", switch)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
