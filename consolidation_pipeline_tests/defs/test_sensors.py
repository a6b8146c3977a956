"""The sensor that delivers events."""

from __future__ import annotations

import dagster as dg
import pytest

from consolidation_pipeline.defs.sensors import event_delivery_sensor
from consolidation_pipeline.errors import InvalidWebhookError
from consolidation_pipeline.service.intake.importer import ensure_project
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.jobs.event_outbox import append_event
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline_tests.defs.conftest import sensor_context
from consolidation_pipeline_tests.webhook_receiver import SECRET, run_receiver


def tick(engine: Engine) -> str:
    skipped = event_delivery_sensor(sensor_context(engine))
    assert isinstance(skipped, dg.SkipReason)
    return str(skipped.skip_message)


def test_event_sensor_delivers_to_webhook(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    ensure_project(engine, "notes")
    with engine.begin() as connection:
        append_event(connection, get_project(connection, "notes").id, "test.happened", {})
    assert tick(engine).startswith("no webhook is configured")
    with run_receiver() as receiver:
        monkeypatch.setenv("CONSOLIDATION_WEBHOOK_URL", receiver.url)
        monkeypatch.setenv("CONSOLIDATION_WEBHOOK_SECRET", SECRET)
        with pytest.raises(InvalidWebhookError):
            tick(engine)
        monkeypatch.setenv("CONSOLIDATION_WEBHOOK_ALLOW_PRIVATE", "true")
        assert tick(engine) == "1 events delivered, 0 attempts failed, 0 events waiting"
        assert len(receiver.messages) == 1
