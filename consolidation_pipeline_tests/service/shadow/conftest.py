"""A project on which shadows are run; what they leave on the server is dropped."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from consolidation_pipeline.service.shadow import comparison
from consolidation_pipeline.store.shadow import databases as shadow_databases
from consolidation_pipeline.store.shadow.databases import drop_shadows
from consolidation_pipeline_tests.database_pool import DatabasePool
from consolidation_pipeline_tests.service.corpus import MIGRATIONS, WEBHOOKS, corpus, topic_notes
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline


@pytest.fixture(autouse=True)
def migrated_shadows(databases: DatabasePool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Create the databases of shadows as copies of a migrated one, so that no test waits for the migrations.

    The tests of shadows in ``api`` and ``defs`` create and migrate them.
    """
    copy = f"CREATE DATABASE {{}} TEMPLATE {databases.template} STRATEGY FILE_COPY"
    monkeypatch.setattr(shadow_databases, "_CREATE_DATABASE", copy)


@pytest.fixture(autouse=True)
def few_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure the search before and after with few memories: it takes a third of the time of a shadow."""
    monkeypatch.setattr(comparison, "QUERIES", 5)


@pytest.fixture
def live(pipeline: Pipeline) -> Iterator[Pipeline]:
    """Project that was consolidated once and has new memories since."""
    rows = [*corpus(), *topic_notes("hooks", WEBHOOKS), *topic_notes("migrations", MIGRATIONS)]
    pipeline.consolidate(rows[: len(rows) // 2])
    pipeline.add(rows)
    project = pipeline.project().id
    yield pipeline
    drop_shadows(pipeline.engine, project)
