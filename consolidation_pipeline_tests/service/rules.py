"""Invariants that must hold at any time, and those that hold only after a run.

A folder whose conftest imports ``rules_hold`` has them checked after each of its tests that uses a database.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from uuid import UUID

import pytest

from consolidation_pipeline.store.admin import invariants
from consolidation_pipeline.store.database.engine import Connection, Engine, connect_engine, with_driver
from consolidation_pipeline.store.database.raw_connections import autocommit_connection
from consolidation_pipeline.store.projects import list_projects
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline

Finder = Callable[[Connection, UUID], list[str]]

# The next run embeds, scores and groups imported and restored memories, with the model and thresholds of that time.
AFTER_A_RUN = {
    "find_unembedded": invariants.find_unembedded,
    "find_without_relevance": invariants.find_without_relevance,
    "find_mixed_models": invariants.find_mixed_models,
    "find_weak_merge_groups": invariants.find_weak_merge_groups,
}
# Findings about the input: memories with a future date are accepted.
ABOUT_INPUT = {"find_future_memories": invariants.find_future_memories}
EVERY = {name: f for name, f in vars(invariants).items() if name.startswith("find_") and inspect.isfunction(f)}
AT_ANY_TIME: dict[str, Finder] = {
    name: find for name, find in EVERY.items() if name not in {*AFTER_A_RUN, *ABOUT_INPUT}
}


def find_violations(connection: Connection, project_id: UUID, finders: Iterable[Finder]) -> list[str]:
    """List violations of the invariants ``finders`` in a project, each with the name of its finder."""
    return [f"{find.__name__}: {found}" for find in finders for found in find(connection, project_id)]


def find_broken_rules(pipeline: Pipeline) -> list[str]:
    """List violations of the invariants that hold at any time, and of weak merge groups."""
    finders = [*AT_ANY_TIME.values(), invariants.find_weak_merge_groups]
    with pipeline.engine.connect() as connection:
        return find_violations(connection, pipeline.project().id, finders)


def find_all_violations(engine: Engine) -> list[str]:
    """List violations in all projects of invariants that must hold at any time."""
    with autocommit_connection(engine) as connection:
        return [
            f"project {project.slug}: {found}"
            for project in list_projects(connection)
            for found in find_violations(connection, project.id, AT_ANY_TIME.values())
        ]


@pytest.fixture(autouse=True)
def rules_hold(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check the invariants after each test with a database, unless it is marked ``breaks_rules``."""
    engine = None if request.node.get_closest_marker("breaks_rules") else _engine_of(request)
    yield
    broken = find_all_violations(engine) if engine is not None else []
    assert not broken, broken


def _engine_of(request: pytest.FixtureRequest) -> Engine | None:
    """Return the engine of a test; requested before the test, so that its database exists after it."""
    if "shared" in request.fixturenames:
        engine: Engine = request.getfixturevalue("shared").engine
        return engine
    if "database_url" in request.fixturenames:
        return connect_engine(with_driver(request.getfixturevalue("database_url"), "psycopg"))
    return None
