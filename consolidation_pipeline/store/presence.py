"""Which Dagster runs a worker is at work on: a lock for each, which Postgres drops when the worker's process ends.

The locks and the queue of runs are in the database of Dagster's own storage.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from sqlalchemy import text

from consolidation_pipeline.store.engine import Connection, Engine

_LOCK_OF_RUN = "hashtextextended('consolidation:run:' || :run_id, 0)"


@contextmanager
def hold_run(engine: Engine, run_id: str) -> Iterator[Connection]:
    """Be at work on a run; waits while another process is. Yields the connection on which the lock stands."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f"SELECT pg_advisory_lock({_LOCK_OF_RUN})"), {"run_id": run_id})
        try:
            yield connection
        finally:
            if not connection.invalidated:
                connection.execute(text(f"SELECT pg_advisory_unlock({_LOCK_OF_RUN})"), {"run_id": run_id})


def is_run_held(engine: Engine, run_id: str) -> bool:
    """Whether a living process is at work on the run."""
    free = text(f"SELECT pg_try_advisory_xact_lock_shared({_LOCK_OF_RUN})")
    with engine.connect() as connection:
        return not connection.execute(free, {"run_id": run_id}).scalar_one()


def delete_delivered(engine: Engine, *, older_than: timedelta) -> int:
    """Remove messages of the queue that a worker took so long ago: kombu only hides them. Returns how many."""
    with engine.begin() as connection:
        if connection.execute(text("SELECT to_regclass('kombu_message')")).scalar_one() is None:
            return 0
        old = text("DELETE FROM kombu_message WHERE NOT visible AND timestamp < localtimestamp - :older_than")
        return connection.execute(old, {"older_than": older_than}).rowcount
