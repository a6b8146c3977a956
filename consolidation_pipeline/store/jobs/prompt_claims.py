"""Claims on prompts while a model is asked: no two threads or processes pay for the same prompt at the same time.

A claim is a Postgres advisory lock of a session, as the lock of a project is: the server drops it when the process
dies. All claims of a process on one database share one session, which is open while there are any.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition, Lock
from uuid import UUID
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from consolidation_pipeline.store.database.raw_connections import autocommit_connection

# Seconds between attempts to get a claim that another process holds. A model takes seconds to reply.
_POLL_SECONDS = 0.2

_TRY_LOCK = "SELECT pg_try_advisory_lock(hashtextextended('consolidation:prompt:' || CAST(:name AS text), 0))"
_UNLOCK = "SELECT pg_advisory_unlock(hashtextextended('consolidation:prompt:' || CAST(:name AS text), 0))"


class _Claims:
    """Claims of this process on one database."""

    def __init__(self) -> None:
        self._held: set[str] = set()
        self._connection: Connection | None = None
        self._changed = Condition()

    def take(self, engine: Engine, name: str) -> bool:
        """Take a claim, waiting for it if it is held; return False if it was held."""
        is_first = True
        with self._changed:
            while name in self._held or not self._try_lock(engine, name):
                is_first = False
                self._changed.wait(_POLL_SECONDS)
            self._held.add(name)
        return is_first

    def drop(self, name: str) -> None:
        """Release a claim. If the connection was cut, the server has released it already."""
        with self._changed:
            self._held.discard(name)
            try:
                if self._connection is not None:
                    self._connection.execute(text(_UNLOCK), {"name": name})
            except DBAPIError:
                self._close(is_broken=True)
            if not self._held:
                self._close()
            self._changed.notify_all()

    def _try_lock(self, engine: Engine, name: str) -> bool:
        if self._connection is None:
            self._connection = autocommit_connection(engine)
        try:
            return bool(self._connection.execute(text(_TRY_LOCK), {"name": name}).scalar())
        except DBAPIError:
            self._close(is_broken=True)
            raise

    def _close(self, *, is_broken: bool = False) -> None:
        if self._connection is not None:
            if is_broken:
                self._connection.invalidate()
            self._connection.close()
            self._connection = None


_CLAIMS: WeakKeyDictionary[Engine, _Claims] = WeakKeyDictionary()
_CLAIMS_LOCK = Lock()


@contextmanager
def hold_prompt(engine: Engine, project_id: UUID, prompt_hash: str) -> Iterator[bool]:
    """Hold a prompt of a project; wait for the thread or process that holds it, if any.

    Yields False if another one held it: its reply may be stored by now.
    """
    with _CLAIMS_LOCK:
        claims = _CLAIMS.setdefault(engine, _Claims())
    name = f"{project_id}:{prompt_hash}"
    is_first = claims.take(engine, name)
    try:
        yield is_first
    finally:
        claims.drop(name)
