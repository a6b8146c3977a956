"""Outbox of events: written in the transaction that they describe, claimed one by one, and sent to their receiver.

Events whose type begins with ``openlineage.`` are for the OpenLineage collector, all others for the webhook.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from sqlalchemy import Connection, Engine, Row, text

from consolidation_pipeline.store.database.raw_connections import autocommit_connection
from consolidation_pipeline.store.database.sql import compose, conditions

# Events older than a week are not sent any more, also not when a webhook is configured later. With status 410 a
# receiver says that it never wants the event (https://www.standardwebhooks.com).
_STILL_SENT = conditions("created_at > now() - interval '7 days'", "NOT coalesce(last_error LIKE '410 %', false)")
# An event waits until each earlier event of its project was delivered or tried this often. Three failures take about 20
# seconds. After them, an event that the receiver rejects no longer blocks later ones.
_ATTEMPTS_THAT_BLOCK = 3

ReceiverName = Literal["webhook", "openlineage"]
# SQL of the receiver of event `e`.
_RECEIVER = "CASE WHEN starts_with(e.type, 'openlineage.') THEN 'openlineage' ELSE 'webhook' END"


_APPEND_EVENTS = """
    WITH event AS (
        INSERT INTO consolidation.consolidation_events (project_id, type, payload)
        SELECT :project, :type, payload FROM unnest(CAST(:payloads AS jsonb[])) AS payload RETURNING id)
    SELECT pg_notify('consolidation', id::text) FROM event
"""


def append_event(connection: Connection, project_id: UUID, kind: str, payload: Mapping[str, Any]) -> None:
    """Put an event into the outbox, in the transaction that it describes, and wake listeners at commit."""
    append_events(connection, project_id, kind, [payload])


def append_events(connection: Connection, project_id: UUID, kind: str, payloads: Sequence[Mapping[str, Any]]) -> None:
    """Put events of one kind into the outbox, as ``append_event`` does, by one statement."""
    if payloads:
        written = [json.dumps(dict(payload)) for payload in payloads]
        connection.execute(text(_APPEND_EVENTS), {"project": project_id, "type": kind, "payloads": written})


# An event of a job that began is queued once for the collector: its id follows from that of the other event.
_QUEUE_LINEAGE = """
    INSERT INTO consolidation.consolidation_events (id, project_id, type, payload, created_at)
    SELECT CAST(md5('openlineage ' || e.id) AS uuid), e.project_id,
        CASE e.type WHEN 'consolidation.started' THEN 'openlineage.start' ELSE 'openlineage.end' END,
        jsonb_build_object('job_id', e.payload ->> 'job_id'), e.created_at
    FROM consolidation.consolidation_events e
        JOIN consolidation.consolidation_jobs j
            ON CAST(j.id AS text) = e.payload ->> 'job_id' AND j.started_at IS NOT NULL
    WHERE e.type IN (
            'consolidation.started', 'consolidation.completed', 'consolidation.failed', 'consolidation.cancelled')
        AND e.created_at > now() - interval '7 days'
        AND NOT EXISTS (
            SELECT FROM consolidation.consolidation_events known
            WHERE known.id = CAST(md5('openlineage ' || e.id) AS uuid))
    ON CONFLICT (id) DO NOTHING
"""


def queue_lineage_events(connection: Connection) -> int:
    """Queue the begin and end of jobs of the last week for the OpenLineage collector; return how many are new."""
    return connection.execute(text(_QUEUE_LINEAGE)).rowcount


@dataclass(frozen=True)
class OpenEvent:
    """An event to be delivered, locked by this transaction.

    ``project``: slug of the project; None if it was deleted. ``attempts``: number of attempts so far.
    """

    id: UUID
    project: str | None
    type: str
    payload: Mapping[str, Any]
    created_at: datetime
    attempts: int


# Due at once, then at the age of 5 s, 20 s, 80 s, 5 min, 21 min, 85 min, 6 h, 23 h and 4 days. The age of the event
# decides, so no time of the last attempt is stored, and after a standstill the attempts that were missed follow.
_CLAIM_EVENT = compose(
    """
    SELECT e.id, (SELECT slug FROM consolidation.projects p WHERE p.id = e.project_id) AS project,
        e.type, e.payload, e.created_at, e.attempts
    FROM consolidation.consolidation_events e
    WHERE delivered_at IS NULL /* still_sent */ AND e.id <> ALL(:tried) AND /* receiver */ = :receiver
        AND (e.attempts = 0 OR e.created_at + interval '5 seconds' * power(4, e.attempts - 1) <= now())
        AND NOT EXISTS (
            SELECT FROM consolidation.consolidation_events
            WHERE project_id = e.project_id AND delivered_at IS NULL /* still_sent */
                AND starts_with(type, 'openlineage.') = starts_with(e.type, 'openlineage.')
                AND attempts < :blocking_attempts AND (created_at, id) < (e.created_at, e.id))
    ORDER BY e.created_at, e.id LIMIT 1 FOR UPDATE OF e SKIP LOCKED
    """,
    still_sent=_STILL_SENT,
    receiver=_RECEIVER,
)


def claim_event(
    connection: Connection, tried: Collection[UUID] = (), *, receiver: ReceiverName = "webhook"
) -> OpenEvent | None:
    """Lock the oldest event that is due and not in ``tried`` until this transaction ends; None if there is none.

    Only events for the ``receiver`` are looked at. Events that another transaction holds are skipped, and so are later
    events of the same project.
    """
    parameters = {"tried": list(tried), "blocking_attempts": _ATTEMPTS_THAT_BLOCK, "receiver": receiver}
    row = connection.execute(text(_CLAIM_EVENT), parameters).one_or_none()
    return None if row is None else OpenEvent(*row)


_RECORD_ATTEMPT = """
    UPDATE consolidation.consolidation_events
    SET attempts = attempts + 1, last_error = :error,
        delivered_at = CASE WHEN CAST(:error AS text) IS NULL THEN clock_timestamp() END
    WHERE id = :id
"""


def record_attempt(connection: Connection, event_id: UUID, error: str | None) -> None:
    """Record an attempt to deliver an event. ``error``: why it failed; None = delivered."""
    connection.execute(text(_RECORD_ATTEMPT), {"id": event_id, "error": error})


_REMOVE_EVENTS = "DELETE FROM consolidation.consolidation_events WHERE created_at < :before"


def remove_events(connection: Connection, *, before: datetime) -> int:
    """Delete the events written before an instant, delivered or not; return how many there were."""
    return connection.execute(text(_REMOVE_EVENTS), {"before": before}).rowcount


_COUNT_WAITING_EVENTS = compose(
    "SELECT count(*) FROM consolidation.consolidation_events WHERE delivered_at IS NULL /* still_sent */",
    still_sent=_STILL_SENT,
)


def count_waiting_events(connection: Connection) -> int:
    """Count the events of all projects that are still to be delivered."""
    return int(connection.execute(text(_COUNT_WAITING_EVENTS)).scalar_one())


@dataclass(frozen=True)
class EventCounts:
    """Numbers of events by status.

    ``given_up``: failed for a week, or refused for good. ``unsent``: older than a week and never tried.
    ``last_error``: error of the newest event that was tried; None if it was delivered.
    """

    delivered: int
    waiting: int
    given_up: int
    unsent: int
    last_error: str | None


# Events with their status: of a project, or of all if `:project` is null; for a receiver, or for all.
_EVENTS = compose(
    """
    SELECT id, type, payload, created_at, CASE
            WHEN delivered_at IS NOT NULL THEN 'delivered'
            WHEN delivered_at IS NULL /* still_sent */ THEN 'waiting'
            WHEN attempts > 0 THEN 'given_up'
            ELSE 'unsent' END AS status,
        delivered_at, attempts, last_error
    FROM consolidation.consolidation_events e
    WHERE (CAST(:project AS uuid) IS NULL OR project_id = :project)
        AND (CAST(:receiver AS text) IS NULL OR /* receiver */ = :receiver)
    """,
    still_sent=_STILL_SENT,
    receiver=_RECEIVER,
)

_COUNT_EVENTS = compose(
    """
    SELECT count(*) FILTER (WHERE status = 'delivered') AS delivered,
        count(*) FILTER (WHERE status = 'waiting') AS waiting,
        count(*) FILTER (WHERE status = 'given_up') AS given_up,
        count(*) FILTER (WHERE status = 'unsent') AS unsent,
        (array_agg(last_error ORDER BY created_at DESC) FILTER (WHERE attempts > 0))[1] AS last_error
    FROM (/* events */) events
    """,
    events=_EVENTS,
)


def count_events(
    connection: Connection, project_id: UUID | None = None, *, receiver: ReceiverName | None = None
) -> EventCounts:
    """Count events by status, of one project or of all, for one receiver or for all."""
    parameters = {"project": project_id, "receiver": receiver}
    return EventCounts(*connection.execute(text(_COUNT_EVENTS), parameters).one())


_LIST_EVENTS = compose("SELECT * FROM (/* events */) events ORDER BY created_at DESC, id LIMIT :limit", events=_EVENTS)


def list_events(connection: Connection, project_id: UUID, *, limit: int) -> Sequence[Row[Any]]:
    """Return the events of a project, newest first, with their ``status``: see ``EventCounts``."""
    parameters = {"project": project_id, "limit": limit, "receiver": None}
    return connection.execute(text(_LIST_EVENTS), parameters).all()


@contextmanager
def listen(engine: Engine) -> Iterator[Callable[[float], None]]:
    """Listen for new events; yield a function that waits for the next one, at most the given number of seconds.

    The wait ends at once if an event was written since ``listen`` began or since the last wait ended.
    """
    connection = autocommit_connection(engine)
    driver: Any = connection.connection.driver_connection
    try:
        connection.execute(text("LISTEN consolidation"))
        yield lambda seconds: _wait_for_event(driver, seconds)
    finally:
        connection.invalidate()  # It still listens, so the pool must not hand it out again.
        connection.close()


def _wait_for_event(driver: Any, seconds: float) -> None:
    for _ in driver.notifies(timeout=seconds, stop_after=1):
        pass
