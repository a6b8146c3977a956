"""Fixtures of store tests: a shared, empty database; each test is rolled back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection

from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline_tests.conftest import open_shared_engine
from consolidation_pipeline_tests.store.sample_rows import plant_project


@pytest.fixture(scope="session")
def shared_engine(server: str) -> Iterator[Engine]:
    """Engine on a migrated database that stays empty."""
    yield from open_shared_engine(server)


@pytest.fixture
def connection(shared_engine: Engine) -> Iterator[Connection]:
    """Connection in a transaction that the test must not commit."""
    with shared_engine.connect() as connection:
        yield connection


@pytest.fixture
def project(connection: Connection) -> Project:
    """Project without memories."""
    return plant_project(connection)
