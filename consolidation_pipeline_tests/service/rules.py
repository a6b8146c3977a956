"""Invariants that must hold at any time, and those that hold only after a run.

A folder whose conftest imports ``rules_hold`` has them checked after each of its tests that uses a database.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from uuid import UUID

import pytest

from consolidation_pipeline.store.checks import groups, memories
from consolidation_pipeline.store.checks.catalogue import CHECKS
from consolidation_pipeline.store.checks.check import Check
from consolidation_pipeline.store.database.engine import Connection, Engine, connect_engine, with_driver
from consolidation_pipeline.store.database.raw_connections import autocommit_connection
from consolidation_pipeline.store.projects import list_projects
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline

# The next run embeds, scores and groups imported and restored memories, with the model and thresholds of that time.
AFTER_A_RUN = {
    memories.EVERY_MEMORY_IS_EMBEDDED,
    memories.RELEVANCE_IS_POSITIVE,
    memories.ONE_EMBEDDING_MODEL,
    groups.MERGE_GROUPS_DO_NOT_CHAIN,
}
# Findings about the input: memories with a future date are accepted.
ABOUT_INPUT = {memories.NO_MEMORY_IS_FROM_THE_FUTURE}
AT_ANY_TIME = [check for check in CHECKS if check not in AFTER_A_RUN | ABOUT_INPUT]


def find_violations(connection: Connection, project_id: UUID, checks: Iterable[Check]) -> list[str]:
    """List the rows of a project that break some checks, each with the name of its check."""
    return [f"{check.name}: {found}" for check in checks for found in check.find(connection, project_id)]


def find_broken_rules(pipeline: Pipeline) -> list[str]:
    """List violations of the invariants that hold at any time, and of weak merge groups."""
    checks = [*AT_ANY_TIME, groups.MERGE_GROUPS_DO_NOT_CHAIN]
    with pipeline.engine.connect() as connection:
        return find_violations(connection, pipeline.project().id, checks)


def find_all_violations(engine: Engine) -> list[str]:
    """List violations in all projects of invariants that must hold at any time."""
    with autocommit_connection(engine) as connection:
        return [
            f"project {project.slug}: {found}"
            for project in list_projects(connection)
            for found in find_violations(connection, project.id, AT_ANY_TIME)
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
