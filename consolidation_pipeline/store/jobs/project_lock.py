"""Lock of a project: one run or rollback at a time. The server drops it when the process dies.

The lock is a Postgres advisory lock of a session. A job row that says ``running`` while nobody holds the lock belongs
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

_TRY_LOCK = "SELECT pg_try_advisory_lock(hashtextextended('consolidation:project:' || CAST(:project AS text), 0))"
_UNLOCK = "SELECT pg_advisory_unlock(hashtextextended('consolidation:project:' || CAST(:project AS text), 0))"


@contextmanager
def project_lock(engine: Engine, project_id: UUID, slug: str, *, wait_seconds: float) -> Iterator[None]:
    """Hold the lock of a project.

    Raises:
        ProjectBusyError: Another process still holds the project after ``wait_seconds``.
    """
    connection = autocommit_connection(engine)
    try:
        if not _acquire(connection, project_id, wait_seconds):
            raise ProjectBusyError(
                f"project {slug} is busy: another run or rollback holds it; try again when it is done"
            )
        yield
    finally:
        _release(connection, project_id)


def _acquire(connection: Connection, project_id: UUID, wait_seconds: float) -> bool:
    deadline = time.monotonic() + wait_seconds
    while True:
        acquired = connection.execute(text(_TRY_LOCK), {"project": project_id}).scalar()
        if acquired or time.monotonic() >= deadline:
            return bool(acquired)
        time.sleep(0.1)


def _release(connection: Connection, project_id: UUID) -> None:
    try:
        if not connection.invalidated:  # A connection that was cut has lost the lock already.
            connection.execute(text(_UNLOCK), {"project": project_id})
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
