"""Locks of a session, as that of a project: one run or rollback at a time. The server drops them when the process dies.

They are Postgres advisory locks. A job row that says ``running`` while nobody holds the lock belongs
to a process that died.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import OperationalError

from consolidation_pipeline.errors import ProjectBusyError
from consolidation_pipeline.store.database.raw_connections import autocommit_connection
from consolidation_pipeline.store.database.sql import compose

# Keys of the advisory locks that sessions hold in this database.
HELD_LOCKS = """
    SELECT (l.classid::bigint << 32) | l.objid::bigint AS key FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""

_TRY_LOCK = "SELECT pg_try_advisory_lock(hashtextextended('consolidation:' || CAST(:name AS text), 0))"
_UNLOCK = "SELECT pg_advisory_unlock(hashtextextended('consolidation:' || CAST(:name AS text), 0))"


@contextmanager
def session_lock(engine: Engine, name: str, *, wait_seconds: float) -> Iterator[bool]:
    """Hold the lock ``name``, on a connection of its own; yield False if another session has it all the time."""
    connection = autocommit_connection(engine)
    try:
        yield _acquire(connection, name, wait_seconds)
    finally:
        _release(connection, name)


@contextmanager
def project_lock(engine: Engine, project_id: UUID, slug: str, *, wait_seconds: float) -> Iterator[None]:
    """Hold the lock of a project.

    Raises:
        ProjectBusyError: Another process still holds the project after ``wait_seconds``.
    """
    with session_lock(engine, f"project:{project_id}", wait_seconds=wait_seconds) as held:
        if not held:
            raise _busy(slug)
        yield


def _acquire(connection: Connection, name: str, wait_seconds: float) -> bool:
    deadline = time.monotonic() + wait_seconds
    while True:
        acquired = connection.execute(text(_TRY_LOCK), {"name": name}).scalar()
        if acquired or time.monotonic() >= deadline:
            return bool(acquired)
        time.sleep(0.1)


def _release(connection: Connection, name: str) -> None:
    try:
        if not connection.invalidated:  # A connection that was cut has lost the lock already.
            connection.execute(text(_UNLOCK), {"name": name})
    except OperationalError:
        connection.invalidate()
    finally:
        connection.close()


_IS_BUSY = compose(
    """
    SELECT hashtextextended('consolidation:project:' || CAST(:project AS text), 0) IN (/* held_locks */)
    """,
    held_locks=HELD_LOCKS,
)


def is_project_busy(connection: Connection, project_id: UUID) -> bool:
    """Return True if a live process holds the lock of the project."""
    return bool(connection.execute(text(_IS_BUSY), {"project": project_id}).scalar())


def check_not_busy(connection: Connection, project_id: UUID, slug: str) -> None:
    """Raise ProjectBusyError if a live process holds the lock of the project."""
    if is_project_busy(connection, project_id):
        raise _busy(slug)


def _busy(slug: str) -> ProjectBusyError:
    return ProjectBusyError(f"project {slug} is busy: another run or rollback holds it; try again when it is done")
