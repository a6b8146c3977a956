"""The outbox from its other end: which event is to be delivered next, what came of it, and who wakes up for it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, Row, text

# Older events are not news any more: they are not tried again, nor sent when a webhook is configured later.
_FRESH = "{e}.created_at > now() - interval '7 days'"
# With this answer a receiver says that it never wants the event (https://www.standardwebhooks.com).
_REFUSED = "coalesce({e}.last_error LIKE '410 %', false)"
_OPEN = f"{{e}}.delivered_at IS NULL AND {_FRESH} AND NOT {_REFUSED}"
# After the first try at once: when it is 5 s old, 20 s, 80 s, 5 min, 21 min, 85 min, 6 h, 23 h and 4 days. The age
# needs no note of when the last try was, and after a standstill of deliveries all tries that were due are made up for.
_DUE = "(e.attempts = 0 OR e.created_at + interval '5 seconds' * power(4, e.attempts - 1) <= now())"
# Later events of a project wait for the earlier ones, but only so long: three tries fail within 20 seconds or in a
# standstill, and one event that the receiver cannot take must not stop all.
_PATIENCE = 3


@dataclass(frozen=True)
class OpenEvent:
    """An event that this transaction holds. ``project``: its slug; None = deleted since. ``attempts``: so far."""

    id: UUID
    project: str | None
    type: str
    payload: Mapping[str, Any]
    created_at: datetime
    attempts: int


def claim_event(connection: Connection, tried: Collection[UUID] = ()) -> OpenEvent | None:
    """The oldest event that is due, but for those in ``tried``, locked until this transaction ends; None = none is.

    What another transaction holds is passed over, and with it what comes after it in its project.
    """
    query = f"""
        SELECT e.id, p.slug, e.type, e.payload, e.created_at, e.attempts
        FROM consolidation.consolidation_events e LEFT JOIN consolidation.projects p ON p.id = e.project_id
        WHERE {_OPEN.format(e="e")} AND {_DUE} AND e.id <> ALL(:tried) AND NOT EXISTS (
            SELECT FROM consolidation.consolidation_events o WHERE o.project_id = e.project_id AND {_OPEN.format(e="o")}
                AND o.attempts < :patience AND (o.created_at, o.id) < (e.created_at, e.id))
        ORDER BY e.created_at, e.id LIMIT 1 FOR UPDATE OF e SKIP LOCKED
    """
    row = connection.execute(text(query), {"tried": list(tried), "patience": _PATIENCE}).one_or_none()
    return None if row is None else OpenEvent(*row)


def record_attempt(connection: Connection, event_id: UUID, error: str | None) -> None:
    """Note a try to deliver an event: why it failed, or that it did not."""
    connection.execute(
        text(
            "UPDATE consolidation.consolidation_events SET attempts = attempts + 1, last_error = :error, "
            "delivered_at = CASE WHEN CAST(:error AS text) IS NULL THEN clock_timestamp() END WHERE id = :id"
        ),
        {"id": event_id, "error": error},
    )


def remove_events(connection: Connection, *, before: datetime) -> int:
    """Remove events that were written before an instant, delivered or not; returns how many there were."""
    query = "DELETE FROM consolidation.consolidation_events WHERE created_at < :before"
    return connection.execute(text(query), {"before": before}).rowcount


def count_waiting(connection: Connection) -> int:
    """How many events of all projects are still to be delivered."""
    query = f"SELECT count(*) FROM consolidation.consolidation_events e WHERE {_OPEN.format(e='e')}"
    return int(connection.execute(text(query)).scalar_one())


@dataclass(frozen=True)
class EventCounts:
    """Events by what became of them.

    ``given_up``: failed for a week, or refused for ever. ``unsent``: a week old and never tried. ``last_error``: of the
    newest event that was tried; None when that was delivered.
    """

    delivered: int
    waiting: int
    given_up: int
    unsent: int
    last_error: str | None


_STATUSES = ("delivered", "waiting", "given_up", "unsent")
_STATUS = f"""CASE WHEN e.delivered_at IS NOT NULL THEN 'delivered' WHEN {_OPEN.format(e="e")} THEN 'waiting'
    WHEN e.attempts > 0 THEN 'given_up' ELSE 'unsent' END"""
_ALL_EVENTS = f"""SELECT e.id, e.type, e.payload, e.created_at, {_STATUS} AS status, e.delivered_at, e.attempts,
    e.last_error FROM consolidation.consolidation_events e WHERE (CAST(:project AS uuid) IS NULL OR e.project_id = :project)"""


def count_events(connection: Connection, project_id: UUID | None = None) -> EventCounts:
    """Events of a project or, without one, of all, by what became of them."""
    each = ", ".join(f"count(*) FILTER (WHERE status = '{status}')" for status in _STATUSES)
    newest = "(array_agg(last_error ORDER BY created_at DESC) FILTER (WHERE attempts > 0))[1]"
    query = f"SELECT {each}, {newest} FROM ({_ALL_EVENTS}) events"
    return EventCounts(*connection.execute(text(query), {"project": project_id}).one())


def list_events(connection: Connection, project_id: UUID, *, limit: int) -> Sequence[Row[Any]]:
    """Events of a project, newest first, with their ``status``: delivered, waiting, given_up or unsent."""
    query = f"{_ALL_EVENTS} ORDER BY e.created_at DESC, e.id LIMIT :limit"
    return connection.execute(text(query), {"project": project_id, "limit": limit}).all()


@contextmanager
def listen(engine: Engine) -> Iterator[Callable[[float], None]]:
    """Listen for new events; hands over a function that waits for the next one, at most so many seconds.

    What was written since ``listen`` began, or since the function returned, ends the wait at once.
    """
    connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
    driver: Any = connection.connection.driver_connection
    try:
        connection.execute(text("LISTEN consolidation"))
        yield lambda seconds: _drain(driver.notifies(timeout=seconds, stop_after=1))
    finally:
        connection.invalidate()  # it listens: nobody else is to have it
        connection.close()


def _drain(notes: Iterator[Any]) -> None:
    for _ in notes:
        pass
