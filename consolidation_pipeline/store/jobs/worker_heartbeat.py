"""Which Dagster runs workers are at work on: a lock for each, which Postgres drops when the worker's process ends.

The locks and the queue of runs are in the database of Dagster's own storage.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from sqlalchemy import text

from consolidation_pipeline.store.database.engine import Connection, Engine

_LOCK = "hashtextextended('consolidation:' || :name, 0)"


@contextmanager
def hold(engine: Engine, name: str) -> Iterator[Connection]:
    """Hold the lock ``name``; waits while another process does. Yields the connection on which it stands."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f"SELECT pg_advisory_lock({_LOCK})"), {"name": name})
        try:
            yield connection
        finally:
            if not connection.invalidated:
                connection.execute(text(f"SELECT pg_advisory_unlock({_LOCK})"), {"name": name})


def is_held(engine: Engine, name: str) -> bool:
    """Whether a living process holds the lock ``name``."""
    free = text(f"SELECT pg_try_advisory_xact_lock_shared({_LOCK})")
    with engine.connect() as connection:
        return not connection.execute(free, {"name": name}).scalar_one()


def delete_delivered(engine: Engine, *, older_than: timedelta) -> int:
    """Remove messages of the queue that a worker took so long ago: kombu only hides them. Returns how many."""
    with engine.begin() as connection:
        if connection.execute(text("SELECT to_regclass('kombu_message')")).scalar_one() is None:
            return 0
        old = text("DELETE FROM kombu_message WHERE NOT visible AND timestamp < localtimestamp - :older_than")
        return connection.execute(old, {"older_than": older_than}).rowcount
