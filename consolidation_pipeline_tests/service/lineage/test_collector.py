"""The collector: off by default, sent to through the outbox, and no run notices if it is down or hangs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from uuid import UUID

import pytest

from consolidation_pipeline.errors import InvalidWebhookError, UsageError
from consolidation_pipeline.service.lineage import collector
from consolidation_pipeline.service.lineage.collector import find_receivers, is_configured, list_event_lines
from consolidation_pipeline.service.webhooks.event_delivery import DeliveryAttempt, DeliveryResult, deliver_events
from consolidation_pipeline_tests.service.corpus import LESSONS, note
from consolidation_pipeline_tests.service.lineage.openlineage_rules import check_event
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline
from consolidation_pipeline_tests.webhook_receiver import SECRET, Receiver, run_receiver, status_reply


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """Collector that the environment names."""
    with run_receiver() as found:
        monkeypatch.setenv("OPENLINEAGE_URL", f"http://127.0.0.1:{found.port}")
        yield found


def deliver(pipeline: Pipeline) -> tuple[DeliveryResult, list[DeliveryAttempt]]:
    attempts: list[DeliveryAttempt] = []
    others = find_receivers(pipeline.engine)
    done = deliver_events(pipeline.engine, pipeline.settings, once=True, on_attempt=attempts.append, others=others)
    return done, attempts


def lineage_rows(pipeline: Pipeline) -> list[tuple[str, int, bool]]:
    found = pipeline.rows(
        "SELECT type, attempts, delivered_at IS NOT NULL FROM {s}.consolidation_events "
        "WHERE starts_with(type, 'openlineage.') ORDER BY created_at"
    )
    return [tuple(row) for row in found]


def test_nothing_is_sent_by_default(pipeline: Pipeline, job: UUID) -> None:
    del job
    assert not is_configured({})
    assert not is_configured({"OPENLINEAGE_URL": "http://x", "OPENLINEAGE_DISABLED": "True"})
    assert is_configured({"OPENLINEAGE__TRANSPORT__TYPE": "console"})
    with pytest.raises(InvalidWebhookError, match="no webhook is configured"):
        deliver(pipeline)
    assert lineage_rows(pipeline) == []


def test_events_arrive_once_and_in_order(
    pipeline: Pipeline, job: UUID, backend: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "k3y")
    done, attempts = deliver(pipeline)
    assert [attempt.type for attempt in attempts] == ["openlineage.start", "openlineage.end"]
    assert (done.delivered, done.failed) == (2, 0)
    first, second = backend.messages
    assert first.line.startswith("POST /api/v1/lineage ")
    assert first.headers["authorization"] == "Bearer k3y"
    assert [message.body["eventType"] for message in (first, second)] == ["START", "COMPLETE"]
    assert {message.body["run"]["runId"] for message in backend.messages} == {str(job)}
    for message in backend.messages:
        check_event(message.body)
        assert "sourceCodeLocation" not in message.body["job"]["facets"]
    assert deliver(pipeline)[0].delivered == 0
    assert len(backend.messages) == 2


def test_collector_that_is_down_is_tried_again(pipeline: Pipeline, job: UUID, backend: Receiver) -> None:
    del job
    for _ in range(2):
        backend.then(status_reply(403))
    done, attempts = deliver(pipeline)
    assert (done.delivered, done.failed) == (0, 1)  # the end waits for the start
    assert attempts[0].error == "the collector answered 403"
    assert lineage_rows(pipeline) == [("openlineage.start", 1, False), ("openlineage.end", 0, False)]
    pipeline.write("UPDATE {s}.consolidation_events SET created_at = created_at - interval '1 minute'")
    backend.answer = lambda _, reply: reply(status_reply(201))
    backend._next.clear()
    assert deliver(pipeline)[0].delivered == 2


def test_collector_that_hangs_is_given_up(
    pipeline: Pipeline, job: UUID, backend: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    del job
    monkeypatch.setattr(collector, "TRY_SECONDS", 0.3)
    backend.answer = lambda *_: backend.closing.wait(60) and None
    _, attempts = deliver(pipeline)
    assert [attempt.error for attempt in attempts] == ["no answer within 0.3 s"]
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:1")  # nobody listens, runs go on
    pipeline.add([note("more", LESSONS[7])])
    later = pipeline.run().job_id
    assert pipeline.value("SELECT status FROM {s}.consolidation_jobs WHERE id = :id", id=later) == "completed"


def test_webhook_and_collector_do_not_wait_for_each_other(pipeline: Pipeline, job: UUID, backend: Receiver) -> None:
    del job
    from pydantic import SecretStr

    with run_receiver() as webhook:
        webhook.answer = lambda _, reply: reply(status_reply(500))
        update = {
            "webhook_url": SecretStr(webhook.url),
            "webhook_secret": SecretStr(SECRET),
            "webhook_allow_private": True,
        }
        settings = pipeline.settings.model_copy(update=update)
        others = find_receivers(pipeline.engine)
        done = deliver_events(pipeline.engine, settings, once=True, others=others)
    assert done.failed >= 1
    assert done.delivered == len(backend.messages) == 2
    assert not [message for message in webhook.messages if message.body["type"].startswith("openlineage")]


def test_other_transports_of_the_library_work(pipeline: Pipeline, job: UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    path = pipeline.folder / "events.jsonl"
    transport = {"type": "file", "log_file_path": str(path), "append": True}
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT", json.dumps(transport))
    assert deliver(pipeline)[0].delivered == 2
    sent = [json.loads(line) for line in path.read_text().splitlines()]
    assert [one["run"]["runId"] for one in sent] == [str(job)] * 2


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("OPENLINEAGE_URL", "not a url/s3cret", "the configuration of OpenLineage is wrong: ValueError"),
        ("OPENLINEAGE__TRANSPORT__TYPE", "pigeon", "the configuration of OpenLineage is wrong: "),
    ],
)
def test_wrong_configuration_is_told(
    pipeline: Pipeline, job: UUID, monkeypatch: pytest.MonkeyPatch, name: str, value: str, told: str
) -> None:
    del job
    monkeypatch.setenv(name, value)
    _, attempts = deliver(pipeline)
    assert (attempts[0].error or "").startswith(told)
    assert "s3cret" not in (attempts[0].error or "")


def test_missing_library_is_told(pipeline: Pipeline, job: UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openlineage.client", None)
    with pytest.raises(UsageError, match=r"install consolidation-pipeline\[openlineage\]"):
        list_event_lines(pipeline.engine, job)
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:1")
    assert "openlineage-python is not installed" in (deliver(pipeline)[1][0].error or "")
