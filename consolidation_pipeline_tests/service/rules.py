"""Invariants that must hold at any moment, and those that hold only when a run has just ended.

A folder whose conftest imports ``rules_hold`` has them checked after each of its tests that uses a database.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from uuid import UUID

import pytest

from consolidation_pipeline.store.admin import invariants
from consolidation_pipeline.store.database.engine import Connection, Engine, connect_engine, with_driver
from consolidation_pipeline.store.projects import list_projects

Finder = Callable[[Connection, UUID], list[str]]

# What was imported or brought back waits for the next run to be embedded, scored and grouped, in the model and by the
# thresholds in force by then.
AFTER_A_RUN = {
    "find_unembedded": invariants.find_unembedded,
    "find_without_relevance": invariants.find_without_relevance,
    "find_mixed_models": invariants.find_mixed_models,
    "find_weak_merge_groups": invariants.find_weak_merge_groups,
}
# What only tells of what was given: memories with a date in the future are taken in.
ABOUT_INPUT = {"find_future_memories": invariants.find_future_memories}
EVERY = {name: f for name, f in vars(invariants).items() if name.startswith("find_") and inspect.isfunction(f)}
AT_ANY_TIME: dict[str, Finder] = {
    name: find for name, find in EVERY.items() if name not in {*AFTER_A_RUN, *ABOUT_INPUT}
}


def find_violations(connection: Connection, project_id: UUID, finders: Iterable[Finder]) -> list[str]:
    """List violations of the invariants ``finders`` in a project, each with the name of its finder."""
    return [f"{find.__name__}: {found}" for find in finders for found in find(connection, project_id)]


def find_all_violations(engine: Engine) -> list[str]:
    """List violations in all projects of invariants that must hold at any moment."""
    with engine.connect() as connection:
        return [
            f"project {project.slug}: {found}"
            for project in list_projects(connection)
            for found in find_violations(connection, project.id, AT_ANY_TIME.values())
        ]


@pytest.fixture(autouse=True)
def rules_hold(request: pytest.FixtureRequest) -> Iterator[None]:
    """The rules hold in whatever a test leaves behind, unless it is marked ``breaks_rules``."""
    engine = None if request.node.get_closest_marker("breaks_rules") else _engine_of(request)
    yield
    broken = find_all_violations(engine) if engine is not None else []
    assert not broken, broken


def _engine_of(request: pytest.FixtureRequest) -> Engine | None:
    """The database of a test, asked for before the test, so that it is still there after it."""
    if "shared" in request.fixturenames:
        engine: Engine = request.getfixturevalue("shared").engine
        return engine
    if "database_url" in request.fixturenames:
        return connect_engine(with_driver(request.getfixturevalue("database_url"), "psycopg"))
    return None
