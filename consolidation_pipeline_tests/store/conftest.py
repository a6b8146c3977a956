"""One database for all store tests that leave nothing behind: each sees it empty and is rolled back."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import Connection, make_url

from consolidation_pipeline.store.engine import Engine, connect_engine, upgrade, with_driver
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline_tests.store.planting import plant_project


@pytest.fixture(scope="session")
def shared_engine(server: str) -> Iterator[Engine]:
    """Engine on a migrated database that stays empty."""
    name = f"shared_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    url = make_url(with_driver(server, "psycopg")).set(database=name)
    engine = connect_engine(url.render_as_string(hide_password=False))
    upgrade(engine)
    yield engine
    engine.dispose()
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def connection(shared_engine: Engine) -> Iterator[Connection]:
    """A transaction that the test must not commit."""
    with shared_engine.connect() as connection:
        yield connection


@pytest.fixture
def project(connection: Connection) -> Project:
    """A project without memories."""
    return plant_project(connection)
