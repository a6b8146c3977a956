"""A project that was consolidated once, and an environment without OpenLineage variables."""

from __future__ import annotations

import os
from collections.abc import Iterator
from uuid import UUID

import pytest

from consolidation_pipeline_tests.service.corpus import LESSONS, REWORDINGS, STALE, note
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline


def notes() -> list[dict[str, object]]:
    """Return notes of which two are merged, one is archived, and the rest stay."""
    texts = [LESSONS[0], REWORDINGS[1].format(LESSONS[0]), *LESSONS[1:4]]
    return [*(note(f"n{at}", text) for at, text in enumerate(texts)), note("old", LESSONS[5], **STALE)]


@pytest.fixture
def job(pipeline: Pipeline) -> UUID:
    """Job of a run over the notes."""
    return pipeline.consolidate(notes()).job_id


@pytest.fixture(autouse=True)
def no_collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Remove OpenLineage variables, also those that the library sets."""
    for name in [name for name in os.environ if name.startswith("OPENLINEAGE_")]:
        monkeypatch.delenv(name)
    yield
    for name in [name for name in os.environ if name.startswith("OPENLINEAGE_")]:
        del os.environ[name]
