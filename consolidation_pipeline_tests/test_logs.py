"""Log formatters: context fields in text and JSON lines, also in threads that copy the context."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path

import pytest

from consolidation_pipeline.logs import JsonFormatter, TextFormatter, log_context
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline

CaptureLog = Callable[[logging.Formatter], io.StringIO]


@pytest.fixture
def capture_log(request: pytest.FixtureRequest) -> CaptureLog:
    """Function that captures the package's log in a format."""
    logger = logging.getLogger("consolidation_pipeline")

    def capture(formatter: logging.Formatter) -> io.StringIO:
        caught = io.StringIO()
        handler = logging.StreamHandler(caught)
        handler.setFormatter(formatter)
        logger.addHandler(handler)
        request.addfinalizer(lambda: logger.removeHandler(handler))
        return caught

    return capture


def test_json_log_line_has_context_and_traceback(capture_log: CaptureLog) -> None:
    caught, logger = capture_log(JsonFormatter()), logging.getLogger("consolidation_pipeline.somewhere")
    with log_context({"project": "shop"}), log_context({"job": "j1"}):
        try:
            raise ValueError("two\nlines")
        except ValueError:
            logger.exception("it broke", extra={"fields": {"status": 500}})
    (line,) = caught.getvalue().splitlines()
    record = json.loads(line)
    expected = {"level": "ERROR", "message": "it broke", "project": "shop", "job": "j1", "status": 500}
    assert expected.items() <= record.items()
    assert record["error"].endswith("ValueError: two\nlines")
    assert record["time"].endswith("+00:00")


def test_text_log_line_escapes_values(capture_log: CaptureLog) -> None:
    caught, logger = capture_log(TextFormatter()), logging.getLogger("consolidation_pipeline.somewhere")
    facts = {"request_id": "r1"}
    with log_context(facts), ThreadPoolExecutor(1) as pool:
        facts["project"] = "shop\nERROR x: y=1"
        pool.submit(copy_context().run, logger.warning, "odd").result()
    logger.warning("after")
    assert caught.getvalue().splitlines() == [
        "WARNING consolidation_pipeline.somewhere: odd request_id=r1 project=shop%0AERROR%20x:%20y%3D1",
        "WARNING consolidation_pipeline.somewhere: after",
    ]


def test_phase_log_names_project_job_and_phase(
    engine: Engine, settings: Settings, tmp_path: Path, capture_log: CaptureLog
) -> None:
    caught, pipeline = capture_log(JsonFormatter()), Pipeline(engine, settings, tmp_path)
    pipeline.configure_new()
    with pipeline.open() as run, run.phase("clusters"):
        logging.getLogger("consolidation_pipeline.service").warning("odd")
    record = json.loads(caught.getvalue())
    assert (record["project"], record["job"], record["phase"]) == (SLUG, str(run.job_id), "clusters")
