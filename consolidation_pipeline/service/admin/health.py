"""Whether the store can be worked with, how much work there is, and what was done."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from cachetools import TTLCache, cached

from consolidation_pipeline.service.jobs.retry_policy import list_failing_jobs
from consolidation_pipeline.store.admin.monitoring import Totals, Waiting, estimate_memories, read_waiting, sum_up
from consolidation_pipeline.store.database.engine import Connection, Engine, check_schema, connect

# Upper bounds of how long a run took, seconds; the last is the longest `timeout_seconds`.
RUN_BOUNDS = (1.0, 3.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1800.0, 3600.0)
# Totals read every job and every call to a model: 1.6 s for 0.9 GB of calls, about a million, on a busy machine.
TOTALS_LAST_SECONDS = 60.0


@dataclass(frozen=True)
class Work:
    """What waits and what is dead, as of now; totals and numbers of memories by state, as of the last minute."""

    waiting: Waiting
    jobs_dead: int
    totals: Totals
    memories: Mapping[str, int]


def check_ready(engine: Engine) -> None:
    """Raises StoreError: the database does not answer. SchemaOutOfDateError: its schema is not this version's."""
    check_schema(engine)


class Watch:
    """Looks at the work of all projects; several threads may ask, and one of them counts."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._sum_up = cached(TTLCache(maxsize=1, ttl=TOTALS_LAST_SECONDS), key=lambda _: None)(_sum_up)

    def look(self) -> Work:
        """The work there is. Raises StoreError: the database does not answer."""
        with self._lock, connect(self._engine) as connection:
            totals, memories = self._sum_up(connection)
            dead = sum(job.dead for job in list_failing_jobs(connection))
            return Work(read_waiting(connection), dead, totals, memories)


def _sum_up(connection: Connection) -> tuple[Totals, Mapping[str, int]]:
    return sum_up(connection, RUN_BOUNDS), estimate_memories(connection)
