"""Fixtures of store tests: a shared, empty database; each test is rolled back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection

from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline_tests.database_pool import DatabasePool
from consolidation_pipeline_tests.store.sample_rows import add_project


@pytest.fixture(scope="session")
def shared_engine(databases: DatabasePool) -> Iterator[Engine]:
    """Engine on a migrated database that stays empty."""
    with databases.engine() as engine:
        yield engine


@pytest.fixture
def connection(shared_engine: Engine) -> Iterator[Connection]:
    """Connection in a transaction that the test must not commit."""
    with shared_engine.connect() as connection:
        yield connection


@pytest.fixture
def project(connection: Connection) -> Project:
    """Project without memories."""
    return add_project(connection)
