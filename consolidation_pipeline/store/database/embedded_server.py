"""Embedded server: PostgreSQL with pgvector from a wheel, shared by every process that uses the same data folder.

Each process holds a shared lock on a file beside the data. The operating system drops the lock when a process ends, in
whatever way. So a process that gets the exclusive lock at its own exit is the last one and can stop the server.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fasteners import InterProcessLock, InterProcessReaderWriterLock  # type: ignore[import-untyped]

from consolidation_pipeline.errors import StoreError
from consolidation_pipeline.store.database.server_account import (
    ServerAccount,
    find_account,
    find_binaries,
    place_cluster,
    place_socket,
)

# fasteners does not exclude a second thread of this process.
_start_lock = threading.Lock()
# After a crash, the server replays its log before it is ready.
_START_SECONDS, _STOP_SECONDS = 60.0, 60.0
_SUPERUSER = "postgres"
# Starts a command and prints its process id. The shell ends at once: a server that is no child of this process leaves
# no zombie in it. Standard output of the command is its standard error.
_DETACH = 'exec 3>&1 >&2; "$@" 3>&- & echo $! >&3'


@dataclass(frozen=True)
class EmbeddedServer:
    """Running server.

    Attributes:
        folder: the database cluster; its log is the file ``log`` in it.
        socket_dir: folder of its Unix socket.
        account: user and group of its processes.
        binaries: folder of ``initdb``, ``postgres`` and the rest.
    """

    folder: Path
    socket_dir: Path
    account: ServerAccount
    binaries: Path

    def url(self, database: str) -> str:
        """Return the URL of a database, without a driver."""
        return f"postgresql://{_SUPERUSER}:@/{quote(database, safe='')}?host={quote(str(self.socket_dir), safe='')}"

    def run_program(self, name: str, *arguments: str) -> None:
        """Run a program of PostgreSQL as the server's user.

        Raises:
            StoreError: It fails; the message has its output.
        """
        _run_program(self.binaries / name, *arguments, account=self.account)


def start_server(data_dir: Path) -> EmbeddedServer:
    """Return the server of ``data_dir``, started if it does not run yet.

    Raises:
        StoreError: The server does not start; the message names the cause or its log.
    """
    with _start_lock:
        return _start(data_dir.resolve())


def server_url(data_dir: Path, database: str) -> str:
    """Return the URL, without a driver, of ``database`` on the embedded server; create the database if needed."""
    import psycopg
    from psycopg import errors, sql

    server = start_server(data_dir)
    with psycopg.connect(server.url(_SUPERUSER), autocommit=True) as connection:
        row = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (database,)).fetchone()
        if row is None:
            with suppress(errors.DuplicateDatabase, errors.UniqueViolation):  # Another process was faster.
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
    return server.url(database)


@cache
def _start(data_dir: Path) -> EmbeddedServer:
    lock = InterProcessReaderWriterLock(data_dir / "postgres.lock")
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        lock.acquire_read_lock()
        server = _start_or_join(data_dir)
    except Exception as error:
        if lock.lockfile is not None:
            lock.release_read_lock()
        raise StoreError(f"the embedded Postgres in {data_dir / 'postgres'} does not start: {error}") from error
    atexit.register(_stop_if_unused, server, lock, os.getpid())
    return server


def _start_or_join(data_dir: Path) -> EmbeddedServer:
    account = find_account()
    folder = place_cluster(data_dir / "postgres", account)
    binaries = find_binaries(account)
    with InterProcessLock(data_dir / "postgres.start.lock"):
        running = _await_ready(folder)
        if running is None:
            _prepare(folder, binaries, account)
            pid = _launch(folder, place_socket(folder, account), binaries, account)
            running = _await_ready(folder, pid)
        if running is None:
            raise StoreError(f"it ended at once; see {folder / 'log'}")
    return EmbeddedServer(folder, Path(running["socket_dir"]), account, binaries)


def _prepare(folder: Path, binaries: Path, account: ServerAccount) -> None:
    """Make the cluster if there is none, and let only this user and the server's own connect."""
    folder.mkdir(mode=0o700, exist_ok=True)
    account.own(folder)
    version = folder / "PG_VERSION"
    if not version.exists():
        arguments = ("--auth=peer", "--encoding=utf8", "-U", _SUPERUSER, "-D", str(folder))
        _run_program(binaries / "initdb", *arguments, account=account)
    elif version.read_text().strip() != account.postgres_version:
        found = version.read_text().strip()
        raise StoreError(f"its data is of PostgreSQL {found}, the server is {account.postgres_version}: use pg_upgrade")
    account.write(folder / "pg_hba.conf", "local all all peer map=owner\n")
    names = dict.fromkeys((account.client, account.name))
    account.write(folder / "pg_ident.conf", "".join(f'owner "{name}" all\n' for name in names))


def _launch(folder: Path, socket_dir: Path, binaries: Path, account: ServerAccount) -> int:
    """Start the server and return its process id. Its session is its own: Ctrl+C does not reach it."""
    log = os.open(folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        account.own(log)
        command = [str(binaries / "postgres"), "-D", str(folder), "-h", "", "-k", str(socket_dir), *_list_settings()]
        done = subprocess.run(
            ["/bin/sh", "-c", _DETACH, "sh", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            check=True,
            **account.process_options(),
        )
        return int(done.stdout)
    finally:
        os.close(log)


def _list_settings() -> list[str]:
    """Return the arguments that set the memory of the server, by that of the machine, and its log.

    Indexes of large projects should stay in its own memory, which it takes as it needs it: an eighth, at most 1 GB.
    """
    import psutil  # type: ignore[import-untyped]

    megabytes = psutil.virtual_memory().total // 1024**2
    buffers = max(128, min(1_024, megabytes // 8))
    settings = {
        "shared_buffers": f"{buffers}MB",
        "effective_cache_size": f"{max(buffers, megabytes // 2)}MB",
        # After each checkpoint, the first change of a page writes all of it to the log.
        "checkpoint_timeout": "15min",
        "max_wal_size": "2GB",
        "wal_compression": "on",
    }
    return [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]


def _run_program(program: Path, *arguments: str, account: ServerAccount) -> None:
    command = [str(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, **account.process_options())
    if done.returncode:
        raise StoreError(f"{program.name} fails: {(done.stderr or done.stdout).strip()}")


_POSTMASTER_LINES = ("pid", "data_dir", "started", "port", "socket_dir", "host", "memory", "status")


def _await_ready(folder: Path, pid: int | None = None) -> Mapping[str, str] | None:
    """Wait for a server that is starting, and return the lines of its ``postmaster.pid`` by name.

    None: no server runs; the file of one that died is removed.

    Args:
        pid: process that was started just now and may not have written the file yet.
    """
    deadline = time.monotonic() + _START_SECONDS
    while True:
        found = _find_running(folder)
        if found is None and (pid is None or not _is_server(pid, folder)):
            (folder / "postmaster.pid").unlink(missing_ok=True)
            return None
        if found is not None and found.get("status") == "ready":
            return found
        if time.monotonic() > deadline:
            raise StoreError(f"it is not ready after {_START_SECONDS:.0f} seconds; see {folder / 'log'}")
        time.sleep(0.02)


def _find_running(folder: Path) -> Mapping[str, str] | None:
    """Return the lines of ``postmaster.pid`` by name, or None if its server does not run."""
    try:
        lines = (folder / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return None
    found = dict(zip(_POSTMASTER_LINES, map(str.strip, lines), strict=False))
    return found if found.get("pid", "").isdecimal() and _is_server(int(found["pid"]), folder) else None


def _is_server(pid: int, folder: Path) -> bool:
    import psutil

    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and str(folder) in process.cmdline()
    except psutil.Error:
        return False


def _stop_if_unused(server: EmbeddedServer, lock: Any, owner: int) -> None:
    """Stop the server at exit, unless another process still uses it."""
    if os.getpid() != owner:
        return
    lock.release_read_lock()
    if lock.acquire_write_lock(blocking=False):
        try:
            _stop(server.folder)
        finally:
            lock.release_write_lock()


def _stop(folder: Path) -> None:
    """Shut the server down: what is not committed is rolled back."""
    running = _await_ready(folder)
    deadline = time.monotonic() + _STOP_SECONDS
    if running is None:
        return
    with suppress(ProcessLookupError):
        os.kill(int(running["pid"]), signal.SIGINT)
    while _is_server(int(running["pid"]), folder) and time.monotonic() < deadline:
        time.sleep(0.02)
