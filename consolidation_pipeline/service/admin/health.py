"""Health of the store, and the amount of work that waits and was done."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from cachetools import TTLCache, cached

from consolidation_pipeline.service.jobs.retry_policy import list_failing_jobs
from consolidation_pipeline.store.admin.monitoring import (
    WaitingWork,
    WorkTotals,
    estimate_memories,
    load_totals,
    load_waiting_work,
)
from consolidation_pipeline.store.database.engine import Connection, Engine, check_schema, connect

# Upper bounds of the buckets of run durations, seconds. The last one is the maximum of `timeout_seconds`.
RUN_BOUNDS = (1.0, 3.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1800.0, 3600.0)
# Computing the totals reads every job and every model call: 1.6 s for a million calls (0.9 GB) on a busy machine.
TOTALS_CACHE_SECONDS = 60.0


@dataclass(frozen=True)
class WorkStatus:
    """Waiting work and number of dead jobs now; totals and memories by state, at most a minute old."""

    waiting: WaitingWork
    jobs_dead: int
    totals: WorkTotals
    memories: Mapping[str, int]


def check_ready(engine: Engine) -> None:
    """Check that the store can be used.

    Raises:
        StoreError: The database does not answer.
        SchemaOutOfDateError: The schema is not that of this version.
    """
    check_schema(engine)


class WorkMonitor:
    """Reader of the work of all projects. Thread-safe: one thread reads at a time, and totals are cached."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._load_totals = cached(TTLCache(maxsize=1, ttl=TOTALS_CACHE_SECONDS), key=lambda _: None)(_load_totals)

    def read(self) -> WorkStatus:
        """Return the current work. Raise StoreError if the database does not answer."""
        with self._lock, connect(self._engine) as connection:
            totals, memories = self._load_totals(connection)
            dead = sum(job.dead for job in list_failing_jobs(connection))
            return WorkStatus(load_waiting_work(connection), dead, totals, memories)


def _load_totals(connection: Connection) -> tuple[WorkTotals, Mapping[str, int]]:
    return load_totals(connection, RUN_BOUNDS), estimate_memories(connection)
