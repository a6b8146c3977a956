"""`events deliver`, `events list` and the webhook check of `doctor`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from consolidation_pipeline.service.intake.importer import ensure_project
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.jobs.event_outbox import append_event
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline_tests.cli.conftest import Cli
from consolidation_pipeline_tests.webhook_receiver import SECRET, Receiver, run_receiver, status_reply


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """Receiver named by the environment; a Dagster URL keeps the doctor from starting a server."""
    monkeypatch.setenv("DAGSTER_POSTGRES_URL", "postgresql://me@127.0.0.1:5432/runs")
    with run_receiver() as found:
        monkeypatch.setenv("CONSOLIDATION_WEBHOOK_URL", found.url)
        monkeypatch.setenv("CONSOLIDATION_WEBHOOK_SECRET", SECRET)
        monkeypatch.setenv("CONSOLIDATION_WEBHOOK_ALLOW_PRIVATE", "1")
        yield found


@pytest.fixture
def events(cli: Cli, engine: Engine) -> Cli:
    """Command line with two events of the project `notes`."""
    ensure_project(engine, "notes")
    with engine.begin() as connection:
        project = get_project(connection, "notes").id
        append_event(connection, project, "consolidation.started", {"job_id": "x"})
    with engine.begin() as connection:
        append_event(connection, project, "consolidation.completed", {"job_id": "x", "error": None})
    return cli


def test_due_events_are_delivered_and_listed(events: Cli, receiver: Receiver) -> None:
    answer = events("events", "deliver", "--once")
    assert answer.code == 0, answer
    assert [line.split(" ", 1)[1] for line in answer.out.splitlines()[:2]] == [
        "consolidation.started of notes: delivered",
        "consolidation.completed of notes: delivered",
    ]
    assert answer.out.endswith("2 delivered, 0 attempts failed, 0 waiting\n")
    assert [message.body["type"] for message in receiver.messages] == [
        "consolidation.started",
        "consolidation.completed",
    ]
    listed = events("events", "list", "notes", "--json").json
    assert [event["type"] for event in listed["events"]] == ["consolidation.completed", "consolidation.started"]
    assert {event["status"] for event in listed["events"]} == {"delivered"}
    listed = events("events", "list", "notes").out.splitlines()
    assert listed[0].strip() == "notes: 2 delivered, 0 waiting, 0 given up, 0 unsent"
    assert listed[1].split() == ["id", "created", "type", "status"]


def test_failed_delivery_is_reported_everywhere(events: Cli, receiver: Receiver) -> None:
    receiver.then(status_reply(500))
    answer = events("events", "deliver", "--once", "--json")
    assert (answer.code, answer.json) == (1, {"delivered": 0, "failed": 1, "waiting": 2})
    assert "waiting, 1 attempts: 500 Internal Server Error" in events("events", "list", "notes").out
    (found,) = [row for row in events("doctor", "--json").json["checks"] if row["check"] == "webhook"]
    assert found["status"] == "warning"
    assert found["message"] == (
        f"http://127.0.0.1:{receiver.port} (127.0.0.1): 2 events wait, 0 were given up; "
        "the last attempt failed: 500 Internal Server Error"
    )


@pytest.mark.usefixtures("receiver")
def test_doctor_reports_private_webhook(events: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSOLIDATION_WEBHOOK_ALLOW_PRIVATE", "0")
    answer = events("events", "deliver", "--once", "--json")
    assert (answer.code, answer.json["error"]) == (2, "invalid_webhook")
    output = events("doctor", "--json").out
    assert "CONSOLIDATION_WEBHOOK_ALLOW_PRIVATE=true allows it" in output
    assert "t0ken" not in output + answer.out + answer.err


def test_delivery_without_webhook_is_usage_error(events: Cli) -> None:
    assert events("events", "deliver", "--once").code == 2
    assert events("events", "deliver", "--json").code == 2
    assert "2 waiting" in events("events", "list", "notes").out
    assert events("events", "list", "nobody").code == 2
