"""Postgres with pgvector for all tests: one embedded server per worker, one database per test."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import psutil  # type: ignore[import-untyped]
import psycopg
import pytest
from psycopg import sql
from sqlalchemy import make_url

from consolidation_pipeline.service.runs.garbage_collection import collect_rarely
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.embedded_server import server_url
from consolidation_pipeline.store.database.engine import Engine, connect_engine, with_driver
from consolidation_pipeline_tests.database_pool import STORE_SERVER_ENV, DatabasePool, temporary_database
from consolidation_pipeline_tests.hypothesis_examples import examples

# Files in memory: a database is copied in 25 ms instead of up to 130. The servers of two workers use less than this.
MEMORY_FOLDER = Path("/dev/shm")
MEMORY_NEEDED = 8e9
# For property tests that name no number of examples.
hypothesis.settings.register_profile("examples", max_examples=examples(100))
hypothesis.settings.load_profile("examples")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector: modules and tests stay until the end, and to search them takes long."""
    gc.disable()
    try:
        return (yield)
    finally:
        collect_rarely()  # With the defaults, collecting took 6 % of the time of Python.
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that need a database: ``make test-fast`` leaves them out."""
    for item in items:
        if "server" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.database)


@pytest.fixture(scope="session")
def server() -> str:
    """URL (no driver) of a server for tests; ``TEST_DATABASE_URL`` names another than the embedded one."""
    given = os.environ.get("TEST_DATABASE_URL")
    if given is None:
        # One server per worker, in a folder outside of pytest's: pytest closes old folders to other users, and a server
        # started by root runs as another user. The folder is registered first, so it is removed after the server stops.
        given = server_url(make_memory_folder(), "postgres")
        disable_durability(given)
    return given


def make_memory_folder() -> Path:
    """Create a folder in memory if there is room, else on disk; it is removed when the process ends."""
    folder = tempfile.mkdtemp(dir=MEMORY_FOLDER if _fits_in_memory() else None)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _fits_in_memory() -> bool:
    if not MEMORY_FOLDER.is_dir():
        return False
    return min(shutil.disk_usage(MEMORY_FOLDER).free, psutil.virtual_memory().available) > MEMORY_NEEDED


def disable_durability(url: str) -> None:
    """Switch off waiting for the disk, which takes most of the time; the data need not survive a power failure."""
    with psycopg.connect(url, autocommit=True) as connection:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            connection.execute(sql.SQL("ALTER SYSTEM SET {} = off").format(sql.Identifier(setting)))
        connection.execute("SELECT pg_reload_conf()")


@pytest.fixture(scope="session")
def databases(server: str) -> Iterator[DatabasePool]:
    """Migrated databases, one for each test that asks."""
    with DatabasePool(server, f"consolidation_template_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}") as pool:
        yield pool


@pytest.fixture(scope="session")
def store_server(server: str) -> str:
    """URL of the server of connected stores."""
    return os.environ.get(STORE_SERVER_ENV, server)


@pytest.fixture(scope="session")
def store_template(store_server: str) -> Iterator[str]:
    """Name of a database with pgvector only. Copying it takes less time than creating the extension."""
    with temporary_database(store_server) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION vector")
        yield str(make_url(url).database)


@pytest.fixture
def empty_database_url(server: str) -> Iterator[str]:
    """URL of a database without our schema."""
    with temporary_database(server) as url:
        yield url


@pytest.fixture
def database_url(databases: DatabasePool) -> Iterator[str]:
    """URL of an empty, migrated database."""
    with databases.database() as url:
        yield url


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
