"""Delivery of events: at least once, in order, retried at growing intervals, shared among processes."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
import standardwebhooks
from pydantic import SecretStr

from consolidation_pipeline.errors import InvalidWebhookError
from consolidation_pipeline.service.intake.importer import ensure_project
from consolidation_pipeline.service.webhooks import event_delivery
from consolidation_pipeline.service.webhooks.event_delivery import (
    DeliveryResult,
    deliver_events,
    list_events,
    remove_old_events,
)
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import connect_engine
from consolidation_pipeline.store.jobs.event_outbox import append_event, count_events, listen
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline
from consolidation_pipeline_tests.webhook_receiver import SECRET, Message, Receiver, Reply, run_receiver, status_reply


@pytest.fixture
def outbox(shared: Pipeline) -> Pipeline:
    """Pipeline with a project `notes` and an empty outbox."""
    shared.clear()
    shared.write("DELETE FROM {s}.consolidation_events")
    ensure_project(shared.engine, SLUG)
    return shared


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with run_receiver() as found:
        yield found


@pytest.fixture
def webhook(outbox: Pipeline, receiver: Receiver) -> Settings:
    """Settings with the receiver's URL."""
    return settings_for(outbox, receiver.url)


def settings_for(outbox: Pipeline, url: str, *, private: bool = True) -> Settings:
    update = {"webhook_url": SecretStr(url), "webhook_secret": SecretStr(SECRET), "webhook_allow_private": private}
    return outbox.settings.model_copy(update=update)


_offsets = itertools.count()


def add_events(outbox: Pipeline, *payloads: int, slug: str = SLUG, age: str = "1 s") -> None:
    """Append events with these numbers, in order, with this age."""
    for number in payloads:
        with outbox.engine.begin() as connection:
            append_event(connection, outbox.project(slug).id, "test.happened", {"n": number})
        outbox.write(
            "UPDATE {s}.consolidation_events SET created_at = now() - CAST(:age AS interval) + :at * interval '1 us' "
            "WHERE payload = jsonb_build_object('n', CAST(:n AS integer)) AND attempts = 0",
            age=age,
            at=next(_offsets),
            n=number,
        )


def age_events(outbox: Pipeline, age: str) -> None:
    """Make all events older by an interval."""
    outbox.write("UPDATE {s}.consolidation_events SET created_at = created_at - CAST(:age AS interval)", age=age)


def received_numbers(receiver: Receiver) -> list[int]:
    return [message.body["data"]["n"] for message in receiver.messages]


def single_event(outbox: Pipeline) -> Any:
    (found,) = outbox.rows("SELECT * FROM {s}.consolidation_events")
    return found


def count_states(outbox: Pipeline) -> dict[str, int]:
    with outbox.engine.connect() as connection:
        counts = count_events(connection)
    named = {name: getattr(counts, name) for name in ("delivered", "waiting", "given_up", "unsent")}
    return {name: count for name, count in named.items() if count}


def test_event_is_delivered_signed_with_its_payload(outbox: Pipeline, webhook: Settings, receiver: Receiver) -> None:
    add_events(outbox, 1)
    assert deliver_events(outbox.engine, webhook, once=True) == DeliveryResult(1, 0, 0)
    (message,) = receiver.messages
    body = standardwebhooks.Webhook(SECRET).verify(message.text, message.headers)
    event = single_event(outbox)
    assert (UUID(message.headers["webhook-id"]), body["type"]) == (event.id, "test.happened")
    assert datetime.fromisoformat(body["timestamp"]) == event.created_at
    assert body["data"] == {"project": SLUG, "n": 1}
    assert (event.attempts, event.last_error, event.delivered_at is not None) == (1, None, True)
    assert deliver_events(outbox.engine, webhook, once=True) == DeliveryResult(0, 0, 0)
    assert len(receiver.messages) == 1


def test_long_event_text_is_truncated(outbox: Pipeline, webhook: Settings, receiver: Receiver) -> None:
    with outbox.engine.begin() as connection:
        append_event(connection, outbox.project().id, "consolidation.failed", {"error": "x" * 100_000})
    deliver_events(outbox.engine, webhook, once=True)
    assert receiver.messages[0].body["data"]["error"] == "x" * 2000 + "…"


def test_failed_delivery_is_retried_under_same_id(outbox: Pipeline, webhook: Settings, receiver: Receiver) -> None:
    add_events(outbox, 1)
    receiver.then(status_reply(500))
    assert deliver_events(outbox.engine, webhook, once=True) == DeliveryResult(0, 1, 1)
    assert (single_event(outbox).attempts, single_event(outbox).last_error) == (1, "500 Internal Server Error")
    assert deliver_events(outbox.engine, webhook, once=True) == DeliveryResult(0, 0, 1)  # not due yet
    age_events(outbox, "5 s")
    assert deliver_events(outbox.engine, webhook, once=True) == DeliveryResult(1, 0, 0)
    assert (single_event(outbox).attempts, single_event(outbox).last_error) == (2, None)
    assert len({message.headers["webhook-id"] for message in receiver.messages}) == 1


def test_retry_intervals_grow_fourfold_for_one_week(outbox: Pipeline, webhook: Settings, receiver: Receiver) -> None:
    receiver.answer = lambda _, reply: reply(status_reply(503))
    add_events(outbox, 1, age="0 s")
    age, tried = 0, []
    for seconds in (0, 1, 8, 13, 27, 70, 90, 300, 340, 400_000, 604_000, 604_900):
        age_events(outbox, f"{seconds - age} s")
        age = seconds
        if deliver_events(outbox.engine, webhook, once=True).failed:
            tried.append(seconds)
    assert tried == [0, 8, 27, 90, 340, 400_000, 604_000]
    assert count_states(outbox) == {"given_up": 1}


def test_missed_retries_are_made_one_per_round(outbox: Pipeline, webhook: Settings, receiver: Receiver) -> None:
    receiver.answer = lambda _, reply: reply(status_reply(500))
    add_events(outbox, 1, age="1 min")
    done = [deliver_events(outbox.engine, webhook, once=True).failed for _ in range(4)]
    assert done == [1, 1, 1, 0]


def test_status_410_gives_up_only_that_event(outbox: Pipeline, webhook: Settings, receiver: Receiver) -> None:
    add_events(outbox, 1, 2)
    receiver.then(status_reply(410))
    assert deliver_events(outbox.engine, webhook, once=True) == DeliveryResult(1, 1, 0)
    age_events(outbox, "1 day")
    assert deliver_events(outbox.engine, webhook, once=True) == DeliveryResult(0, 0, 0)
    assert received_numbers(receiver) == [1, 2]
    assert count_states(outbox) == {"delivered": 1, "given_up": 1}


def test_events_older_than_one_week_are_not_sent(outbox: Pipeline, webhook: Settings, receiver: Receiver) -> None:
    add_events(outbox, 1, age="8 days")
    add_events(outbox, 2, age="6 days")
    deliver_events(outbox.engine, webhook, once=True)
    assert received_numbers(receiver) == [2]
    assert count_states(outbox) == {"delivered": 1, "unsent": 1}


def test_events_of_project_wait_for_first_one(outbox: Pipeline, webhook: Settings, receiver: Receiver) -> None:
    ensure_project(outbox.engine, "other")
    add_events(outbox, 1, 2, 3)
    add_events(outbox, 4, slug="other")
    receiver.answer = lambda message, reply: reply(status_reply(500 if message.body["data"]["n"] == 1 else 200))
    assert deliver_events(outbox.engine, webhook, once=True) == DeliveryResult(1, 1, 3)
    age_events(outbox, "5 s")
    assert deliver_events(outbox.engine, webhook, once=True) == DeliveryResult(0, 1, 3)
    age_events(outbox, "20 s")
    assert deliver_events(outbox.engine, webhook, once=True) == DeliveryResult(2, 1, 1)
    assert received_numbers(receiver) == [1, 4, 1, 1, 2, 3]


def test_delivery_stops_after_three_failures(outbox: Pipeline, webhook: Settings, receiver: Receiver) -> None:
    receiver.answer = lambda _, reply: reply(status_reply(502))
    for number in range(5):
        ensure_project(outbox.engine, f"p{number}")
        add_events(outbox, number, slug=f"p{number}")
    assert deliver_events(outbox.engine, webhook, once=True) == DeliveryResult(0, 3, 5)


def test_delivery_stops_after_max_seconds(outbox: Pipeline, webhook: Settings, receiver: Receiver) -> None:
    add_events(outbox, 1, 2)
    assert deliver_events(outbox.engine, webhook, once=True, max_seconds=0) == DeliveryResult(1, 0, 1)
    assert received_numbers(receiver) == [1]


def test_endless_delivery_ends_after_max_seconds(outbox: Pipeline, webhook: Settings, receiver: Receiver) -> None:
    add_events(outbox, 1, 2)
    result = deliver_events(outbox.engine, webhook, once=False, max_seconds=0.5)
    assert result == DeliveryResult(2, 0, 0)
    assert received_numbers(receiver) == [1, 2]


def test_two_deliverers_send_each_event_once(outbox: Pipeline, webhook: Settings, receiver: Receiver) -> None:
    ensure_project(outbox.engine, "other")
    add_events(outbox, *range(5))
    add_events(outbox, *range(10, 15), slug="other")
    both = threading.Barrier(2)
    first = itertools.count()

    def answer(message: Message, reply: Reply) -> None:
        del message
        if next(first) < 2:
            both.wait(10)  # the first two requests are answered only when both have arrived
        reply(status_reply(200))

    receiver.answer = answer
    other = connect_engine(outbox.engine.url.render_as_string(hide_password=False))
    with ThreadPoolExecutor() as pool:
        done = list(pool.map(lambda engine: deliver_events(engine, webhook, once=True), [outbox.engine, other]))
    other.dispose()
    assert sum(one.delivered for one in done) == 10
    assert sorted(received_numbers(receiver)) == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
    assert [n for n in received_numbers(receiver) if n < 10] == [0, 1, 2, 3, 4]
    assert [n for n in received_numbers(receiver) if n >= 10] == [10, 11, 12, 13, 14]


def test_killed_delivery_is_repeated_by_next_one(outbox: Pipeline, webhook: Settings, receiver: Receiver) -> None:
    add_events(outbox, 1)
    environment = os.environ | {
        "CONSOLIDATION_DATABASE_URL": outbox.engine.url.set(drivername="postgresql").render_as_string(False),
        "CONSOLIDATION_WEBHOOK_URL": receiver.url,
        "CONSOLIDATION_WEBHOOK_SECRET": SECRET,
        "CONSOLIDATION_WEBHOOK_ALLOW_PRIVATE": "1",
    }
    code = "from consolidation_pipeline.cli.app import main; main(['events', 'deliver', '--once'])"
    child = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.DEVNULL)
    receiver.answer = lambda _, __: child.kill()
    assert child.wait() == -signal.SIGKILL
    # Postgres may keep the row lock of the killed process for a moment; delivery skips locked events.
    outbox.rows("SELECT id FROM {s}.consolidation_events FOR UPDATE")
    assert (single_event(outbox).attempts, single_event(outbox).delivered_at) == (0, None)
    receiver.answer = lambda _, reply: reply(status_reply(200))
    assert deliver_events(outbox.engine, webhook, once=True) == DeliveryResult(1, 0, 0)
    assert len(receiver.messages) == 2
    assert len({message.headers["webhook-id"] for message in receiver.messages}) == 1


def test_refused_target_counts_no_attempt(outbox: Pipeline, receiver: Receiver) -> None:
    add_events(outbox, 1)
    with pytest.raises(InvalidWebhookError, match="not a public address"):
        deliver_events(outbox.engine, settings_for(outbox, receiver.url, private=False), once=True)
    assert (single_event(outbox).attempts, receiver.messages) == (0, [])


def test_delivery_without_webhook_is_refused(outbox: Pipeline) -> None:
    with pytest.raises(InvalidWebhookError, match="CONSOLIDATION_WEBHOOK_URL"):
        deliver_events(outbox.engine, outbox.settings, once=True)


def test_uncommitted_event_is_never_sent(outbox: Pipeline, webhook: Settings, receiver: Receiver) -> None:
    with outbox.engine.connect() as connection:
        append_event(connection, outbox.project().id, "test.happened", {"n": 1})
        assert deliver_events(outbox.engine, webhook, once=True) == DeliveryResult(0, 0, 0)
        connection.rollback()
    assert deliver_events(outbox.engine, webhook, once=True) == DeliveryResult(0, 0, 0)
    assert receiver.messages == []


class StopDeliveryError(Exception):
    pass


def test_new_event_wakes_waiting_deliverer(
    outbox: Pipeline, webhook: Settings, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_delivery, "_POLL_SECONDS", 60.0)
    delivered: list[UUID] = []

    def write() -> None:
        with outbox.engine.begin() as connection:
            append_event(connection, outbox.project().id, "test.happened", {"n": len(delivered)})

    def record_delivery(attempt: event_delivery.DeliveryAttempt) -> None:
        delivered.append(attempt.id)
        if len(delivered) == 3:
            raise StopDeliveryError
        # Written after the poll: only a notification can wake the deliverer within the minute.
        threading.Timer(0.1, write).start()

    write()
    with pytest.raises(StopDeliveryError):
        deliver_events(outbox.engine, webhook, once=False, on_attempt=record_delivery)
    assert received_numbers(receiver) == [0, 1, 2]
    assert outbox.engine.pool.checkedout() == 0  # type: ignore[attr-defined]


def test_event_before_wait_ends_it(outbox: Pipeline) -> None:
    with listen(outbox.engine) as wait:
        add_events(outbox, 1)
        wait(60)
        wait(0)
    assert outbox.value("SELECT count(*) FROM pg_listening_channels()") == 0


def test_events_are_listed_newest_first_with_status(outbox: Pipeline, webhook: Settings, receiver: Receiver) -> None:
    add_events(outbox, 1, 2)
    receiver.then(status_reply(200), status_reply(500))
    deliver_events(outbox.engine, webhook, once=True)
    found = list_events(outbox.engine, SLUG, limit=1)
    (event,) = found["events"]
    assert (event["payload"], event["status"], event["attempts"]) == ({"n": 2}, "waiting", 1)
    assert event["last_error"] == found["totals"]["last_error"] == "500 Internal Server Error"
    assert (found["totals"]["delivered"], found["totals"]["waiting"]) == (1, 1)


def test_event_of_deleted_project_is_delivered(outbox: Pipeline, webhook: Settings, receiver: Receiver) -> None:
    add_events(outbox, 1)
    outbox.clear()
    deliver_events(outbox.engine, webhook, once=True)
    assert receiver.messages[0].body["data"] == {"project": None, "n": 1}


def test_events_older_than_one_month_are_removed(outbox: Pipeline) -> None:
    add_events(outbox, 1, 2, age="31 days")
    outbox.write("UPDATE {s}.consolidation_events SET delivered_at = now() WHERE payload ->> 'n' = '1'")
    add_events(outbox, 3, age="29 days")
    assert remove_old_events(outbox.engine, now=datetime.now(UTC)) == 2
    assert [event["payload"] for event in list_events(outbox.engine, SLUG, limit=9)["events"]] == [{"n": 3}]
