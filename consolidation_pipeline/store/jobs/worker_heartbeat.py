"""Liveness of workers: a lock for each Dagster run at work, which Postgres drops when the worker's process ends.

The locks and the queue of runs are in the database of Dagster's own storage.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from sqlalchemy import Connection, Engine, text

from consolidation_pipeline.store.database.raw_connections import autocommit_connection

_LOCK = "SELECT pg_advisory_lock(hashtextextended('consolidation:' || :name, 0))"
_UNLOCK = "SELECT pg_advisory_unlock(hashtextextended('consolidation:' || :name, 0))"


@contextmanager
def hold_lock(engine: Engine, name: str) -> Iterator[Connection]:
    """Hold the lock ``name``, waiting while another process holds it; yield the connection that holds it."""
    with autocommit_connection(engine) as connection:
        connection.execute(text(_LOCK), {"name": name})
        try:
            yield connection
        finally:
            if not connection.invalidated:
                connection.execute(text(_UNLOCK), {"name": name})


_IS_LOCK_FREE = "SELECT pg_try_advisory_xact_lock_shared(hashtextextended('consolidation:' || :name, 0))"


def is_lock_held(engine: Engine, name: str) -> bool:
    """Return True if a living process holds the lock ``name``."""
    with engine.connect() as connection:
        return not connection.execute(text(_IS_LOCK_FREE), {"name": name}).scalar_one()


_DELETE_DELIVERED_MESSAGES = """
    DELETE FROM kombu_message WHERE NOT visible AND timestamp < localtimestamp - :older_than
"""


def delete_delivered_messages(engine: Engine, *, older_than: timedelta) -> int:
    """Delete messages of the queue that a worker took this long ago, as kombu only hides them; return how many."""
    with engine.begin() as connection:
        if connection.execute(text("SELECT to_regclass('kombu_message')")).scalar_one() is None:
            return 0
        return connection.execute(text(_DELETE_DELIVERED_MESSAGES), {"older_than": older_than}).rowcount
