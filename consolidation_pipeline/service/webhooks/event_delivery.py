"""Delivery of events to their receivers: at least once, in order unless an attempt fails."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from consolidation_pipeline.errors import InvalidWebhookError
from consolidation_pipeline.service.webhooks.webhook_client import send
from consolidation_pipeline.service.webhooks.webhook_config import read_webhook
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Connection, Engine
from consolidation_pipeline.store.jobs import event_outbox
from consolidation_pipeline.store.projects import get_project

# Events are listed for this long; they are retried for a week only.
EVENT_RETENTION_DAYS = 30
# Interval of checks for due retries; a new event wakes a waiting process at once.
_POLL_SECONDS = 5.0
# After this many consecutive failures the receiver is considered down; the other events wait.
_MAX_FAILURES_IN_A_ROW = 3
# Receivers expect at most 20 kB; error messages can be longer.
_MAX_TEXT_CHARS = 2000


@dataclass(frozen=True)
class Receiver:
    """Receiver of events.

    ``send``: tries once to send an event; returns None, or why that failed. ``queue``: puts the events that the
    receiver still lacks into the outbox; None if they are there already.
    """

    name: event_outbox.ReceiverName
    send: Callable[[event_outbox.OpenEvent], str | None]
    queue: Callable[[Connection], object] | None = None


@dataclass(frozen=True)
class DeliveryAttempt:
    """An attempt to deliver an event. ``error``: None if the receiver took it."""

    id: UUID
    type: str
    project: str | None
    error: str | None


@dataclass(frozen=True)
class DeliveryResult:
    """Numbers of delivered events, of failed attempts, and of events that still wait."""

    delivered: int
    failed: int
    waiting: int


def deliver_events(
    engine: Engine,
    settings: Settings,
    *,
    once: bool,
    max_seconds: float | None = None,
    on_attempt: Callable[[DeliveryAttempt], None] | None = None,
    others: Sequence[Receiver] = (),
) -> DeliveryResult:
    """Send due events to the webhook, if one is configured. Several processes may do so at the same time.

    If a process dies between sending an event and recording it, the event is sent again with the same id.

    Args:
        once: try each due event at most once and return; otherwise run until ``max_seconds`` or interrupted.
        max_seconds: start no further attempt after this time; None = no limit.
        on_attempt: called after each attempt.
        others: receivers beside the webhook. If one is down, the next one gets its events nevertheless.

    Raises:
        InvalidWebhookError: no webhook is configured and there is no other receiver, or the webhook cannot be used.
    """
    webhook = read_webhook(settings)
    receivers = [*others]
    if webhook is not None:
        receivers.insert(0, Receiver("webhook", lambda event: send(webhook, event.id, _build_message(event))))
    if not receivers:
        raise InvalidWebhookError("no webhook is configured: set CONSOLIDATION_WEBHOOK_URL and _SECRET")
    end = math.inf if max_seconds is None else time.monotonic() + max_seconds
    if once:
        delivered, failed = _deliver_due(engine, receivers, end, on_attempt)
    else:
        delivered, failed = _deliver_until(engine, receivers, end, on_attempt)
    with engine.connect() as connection:
        return DeliveryResult(delivered, failed, event_outbox.count_waiting_events(connection))


def _deliver_until(
    engine: Engine, receivers: Sequence[Receiver], end: float, on_attempt: Callable[[DeliveryAttempt], None] | None
) -> tuple[int, int]:
    """Deliver events as they come until the monotonic time ``end``."""
    delivered = failed = 0
    with event_outbox.listen(engine) as wait:
        while time.monotonic() < end:
            more = _deliver_due(engine, receivers, end, on_attempt)
            delivered, failed = delivered + more[0], failed + more[1]
            wait(max(0.0, min(_POLL_SECONDS, end - time.monotonic())))
    return delivered, failed


def _deliver_due(
    engine: Engine, receivers: Sequence[Receiver], end: float, on_attempt: Callable[[DeliveryAttempt], None] | None
) -> tuple[int, int]:
    """Try each due event once, until the monotonic time ``end`` or until its receiver is considered down.

    Returns how many were delivered, and how many attempts failed.
    """
    delivered, all_failed = 0, 0
    for receiver in receivers:
        if receiver.queue is not None:
            with engine.begin() as connection:
                receiver.queue(connection)
        in_a_row = 0
        failed: list[UUID] = []
        while in_a_row < _MAX_FAILURES_IN_A_ROW and (attempt := _deliver_next(engine, receiver, failed)) is not None:
            if attempt.error is None:
                delivered, in_a_row = delivered + 1, 0
            else:
                failed.append(attempt.id)
                in_a_row += 1
            if on_attempt is not None:
                on_attempt(attempt)
            if time.monotonic() >= end:
                return delivered, all_failed + len(failed)
        all_failed += len(failed)
    return delivered, all_failed


def _deliver_next(engine: Engine, receiver: Receiver, failed: list[UUID]) -> DeliveryAttempt | None:
    """Try the receiver's next due event that is not in ``failed``; return None if there is none."""
    # The row is locked while the event is sent: if the process dies, the lock is released, and no lease must expire.
    with engine.begin() as connection:
        event = event_outbox.claim_event(connection, failed, receiver=receiver.name)
        if event is None:
            return None
        error = receiver.send(event)
        event_outbox.record_attempt(connection, event.id, error)
    return DeliveryAttempt(event.id, event.type, event.project, error)


def _build_message(event: event_outbox.OpenEvent) -> str:
    """Return the message as JSON: type, time, project and payload; long texts are cut."""
    data = {"project": event.project, **event.payload}
    for name, value in event.payload.items():
        if isinstance(value, str) and len(value) > _MAX_TEXT_CHARS:
            data[name] = f"{value[:_MAX_TEXT_CHARS]}…"
    occurred = event.created_at.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return json.dumps({"type": event.type, "timestamp": occurred, "data": data})


def remove_old_events(engine: Engine, *, now: datetime) -> int:
    """Delete the events older than ``EVENT_RETENTION_DAYS``; return their number."""
    with engine.begin() as connection:
        return event_outbox.remove_events(connection, before=now - timedelta(days=EVENT_RETENTION_DAYS))


def list_events(engine: Engine, slug: str, *, limit: int) -> dict[str, Any]:
    """Return the newest events of a project, and the number of its events by status."""
    with engine.connect() as connection:
        project = get_project(connection, slug)
        rows = event_outbox.list_events(connection, project.id, limit=limit)
        totals = event_outbox.count_events(connection, project.id)
    return {"project": slug, "totals": asdict(totals), "events": [dict(row._mapping) for row in rows]}
