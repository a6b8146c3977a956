"""Postgres with pgvector for all tests: one embedded server per session, one fresh database per test."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.embedded_server import server_url
from consolidation_pipeline.store.database.engine import Engine, connect_engine, upgrade, with_driver

TEMPLATE = "consolidation_template"


@pytest.fixture(scope="session")
def server() -> str:
    """URL (no driver) of a server with a migrated template database; ``TEST_DATABASE_URL`` names another server."""
    given = os.environ.get("TEST_DATABASE_URL")
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    template = f"{TEMPLATE}_{worker}"
    if given is None:
        # One server per worker, in a folder outside of pytest's: pytest closes old folders to other users, and a server
        # started by root runs as another user. The folder is registered first, so it is removed after the server stops.
        folder = tempfile.mkdtemp()
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        given = server_url(Path(folder), "postgres")
        disable_durability(given)
    with psycopg.connect(given, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(template)))
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(template)))
    engine = connect_engine(replace_database(given, template))
    upgrade(engine)
    engine.dispose()
    return given


def disable_durability(url: str) -> None:
    """Switch off waiting for the disk, which takes most of the time; the data need not survive a power failure."""
    with psycopg.connect(url, autocommit=True) as connection:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            connection.execute(sql.SQL("ALTER SYSTEM SET {} = off").format(sql.Identifier(setting)))
        connection.execute("SELECT pg_reload_conf()")


@pytest.fixture
def empty_database_url(server: str) -> Iterator[str]:
    """URL of a database without our schema."""
    yield from create_database(server, None)


@pytest.fixture
def database_url(server: str) -> Iterator[str]:
    """URL of a fresh, migrated database."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    yield from create_database(server, f"{TEMPLATE}_{worker}")


@pytest.fixture
def engine(database_url: str) -> Engine:
    """Engine on a fresh, migrated database."""
    return connect_engine(with_driver(database_url, "psycopg"))


@pytest.fixture
def settings(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings of a process whose environment names the fresh database."""
    monkeypatch.setenv("CONSOLIDATION_DATABASE_URL", database_url)
    monkeypatch.setenv("CONSOLIDATION_DATA_DIR", str(tmp_path))
    return Settings()


def open_shared_engine(server: str) -> Iterator[Engine]:
    """Engine on a migrated database that several tests share."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    for url in create_database(server, f"{TEMPLATE}_{worker}"):
        engine = connect_engine(with_driver(url, "psycopg"))
        yield engine
        engine.dispose()


def create_database(server: str, template: str | None) -> Iterator[str]:
    name = f"test_{uuid.uuid4().hex[:12]}"
    create = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
    if template is not None:
        # Copying files is several times faster than writing the template to the log.
        create += sql.SQL(" TEMPLATE {} STRATEGY FILE_COPY").format(sql.Identifier(template))
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(create)
    yield replace_database(server, name).replace("postgresql+psycopg://", "postgresql://")
    connect_engine(replace_database(server, name)).dispose()
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def replace_database(server: str, database: str) -> str:
    """Return the URL of another database on the same server."""
    head, _, query = server.partition("?")
    return with_driver(f"{head.rpartition('/')[0]}/{database}" + (f"?{query}" if query else ""), "psycopg")
