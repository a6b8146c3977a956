"""Whether the store can be worked with, and how much work there is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from consolidation_pipeline.service.failing import list_failing
from consolidation_pipeline.store.engine import Engine, check_schema, reach
from consolidation_pipeline.store.statistics import count_events_waiting, count_jobs_by_status


@dataclass(frozen=True)
class Work:
    """Jobs of all projects by status, those that are dead, and events that nobody was told of yet."""

    jobs: Mapping[str, int]
    jobs_dead: int
    events_waiting: int


def check_ready(engine: Engine) -> None:
    """Raises StoreError: the database does not answer. SchemaOutOfDateError: its schema is not this version's."""
    check_schema(engine)


def count_work(engine: Engine) -> Work:
    """How much there is to do, in all projects. Raises StoreError: the database does not answer."""
    with reach(engine) as connection:
        dead = sum(job.dead for job in list_failing(connection))
        return Work(count_jobs_by_status(connection), dead, count_events_waiting(connection))
