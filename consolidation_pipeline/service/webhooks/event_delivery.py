"""Events on their way to the webhook: at least once, in order as far as a failing receiver lets them be."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from consolidation_pipeline.errors import InvalidWebhookError
from consolidation_pipeline.service.webhooks.webhook_client import send
from consolidation_pipeline.service.webhooks.webhook_config import Webhook, read_webhook
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.jobs import event_outbox
from consolidation_pipeline.store.projects import get_project

# Events are tried for a week; what became of them can be looked up for so long.
EVENT_RETENTION_DAYS = 30
# Retries are looked for so often; a new event wakes a deliverer at once.
_POLL_SECONDS = 5.0
# So many failures in a row are the receiver's, not the events': the others need not be tried now.
_MAX_FAILURES_IN_A_ROW = 3
# Receivers expect at most 20 kB; what fails may be long to tell.
_MAX_TEXT_CHARS = 2000


@dataclass(frozen=True)
class DeliveryAttempt:
    """One try to deliver an event; ``error`` is None when it was taken."""

    id: UUID
    type: str
    project: str | None
    error: str | None


@dataclass(frozen=True)
class DeliveryResult:
    """Events delivered and tries that failed, and how many events wait after that."""

    delivered: int
    failed: int
    waiting: int


def deliver_events(
    engine: Engine,
    settings: Settings,
    *,
    once: bool,
    within: float | None = None,
    tell: Callable[[DeliveryAttempt], None] | None = None,
) -> DeliveryResult:
    """Send what is due to the webhook; with ``once`` each event at most once, otherwise for ever.

    Several processes share the work. A process that dies after it sent an event and before it noted so leaves it to be
    sent again, under the same id. ``within``: seconds after which no more tries are begun. ``tell`` hears of each try.

    Raises:
        InvalidWebhookError: none is configured, or it cannot be used.
    """
    webhook = read_webhook(settings)
    if webhook is None:
        raise InvalidWebhookError("no webhook is configured: set CONSOLIDATION_WEBHOOK_URL and _SECRET")
    if once:
        delivered, failed = _deliver_due(engine, webhook, within, tell)
        with engine.connect() as connection:
            return DeliveryResult(delivered, failed, event_outbox.count_waiting_events(connection))
    with event_outbox.listen(engine) as wait:
        while True:
            _deliver_due(engine, webhook, within, tell)
            wait(_POLL_SECONDS)


def _deliver_due(
    engine: Engine, webhook: Webhook, within: float | None, tell: Callable[[DeliveryAttempt], None] | None
) -> tuple[int, int]:
    began, failed, done = time.monotonic(), 0, 0
    for attempt in _try_due_events(engine, webhook):
        failed, done = failed + (attempt.error is not None), done + 1
        if tell is not None:
            tell(attempt)
        if within is not None and time.monotonic() - began >= within:
            break
    return done - failed, failed


def _try_due_events(engine: Engine, webhook: Webhook) -> Iterator[DeliveryAttempt]:
    tried: list[UUID] = []
    in_a_row = 0
    while in_a_row < _MAX_FAILURES_IN_A_ROW:
        attempt = _deliver_next(engine, webhook, tried)
        if attempt is None:
            return
        tried += [] if attempt.error is None else [attempt.id]
        in_a_row = 0 if attempt.error is None else in_a_row + 1
        yield attempt


def _deliver_next(engine: Engine, webhook: Webhook, tried: list[UUID]) -> DeliveryAttempt | None:
    # Sent while the row is locked: a deliverer that dies lets go of it, and no lease has to run out.
    with engine.begin() as connection:
        event = event_outbox.claim_event(connection, tried)
        if event is None:
            return None
        error = send(webhook, event.id, _build_message(event))
        event_outbox.record_attempt(connection, event.id, error)
    return DeliveryAttempt(event.id, event.type, event.project, error)


def _build_message(event: event_outbox.OpenEvent) -> str:
    """The message: what happened, when, and the payload with its project; long texts are cut."""
    data = {name: _cut(value) for name, value in event.payload.items()}
    occurred = event.created_at.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return json.dumps({"type": event.type, "timestamp": occurred, "data": {"project": event.project, **data}})


def _cut(value: Any) -> Any:
    return f"{value[:_MAX_TEXT_CHARS]}…" if isinstance(value, str) and len(value) > _MAX_TEXT_CHARS else value


def remove_old_events(engine: Engine, *, now: datetime) -> int:
    """Remove what is older than ``EVENT_RETENTION_DAYS``, which no deliverer has tried for weeks; returns how many events went."""
    with engine.begin() as connection:
        return event_outbox.remove_events(connection, before=now - timedelta(days=EVENT_RETENTION_DAYS))


def list_events(engine: Engine, slug: str, *, limit: int) -> dict[str, Any]:
    """The newest events of a project and how many there are by what became of them.

    Raises:
        NotFoundError: no such project.
    """
    with engine.connect() as connection:
        project = get_project(connection, slug)
        rows = event_outbox.list_events(connection, project.id, limit=limit)
        totals = event_outbox.count_events(connection, project.id)
    return {"project": slug, "totals": asdict(totals), "events": [dict(row._mapping) for row in rows]}
