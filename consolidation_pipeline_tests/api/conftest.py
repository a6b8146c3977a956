"""Fixtures of the HTTP API: the application in this process, over a database shared by the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from fastapi import FastAPI
from pydantic import SecretStr
from sqlalchemy import make_url
from starlette.testclient import TestClient

from consolidation_pipeline.api.app import create_app
from consolidation_pipeline.service.admin.api_keys import create_key
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import connect_engine, with_driver
from consolidation_pipeline.store.ledger.ledger_writer import Author
from consolidation_pipeline.store.review.suggestions import NewSuggestion, append_suggestions
from consolidation_pipeline_tests.cli.conftest import LESSONS, RECENT
from consolidation_pipeline_tests.database_pool import DatabasePool, temporary_database
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline
from consolidation_pipeline_tests.service.table_dumps import compute_checksums

FOREIGN = "foreign"
API = "/api/v1"


@dataclass
class ApiContext:
    """Application over two projects: ``notes``, consolidated once, and ``foreign``, never consolidated.

    Attributes:
        job_id: job of the run of ``notes``.
        keys: API keys by role and project (None: all projects).
    """

    pipeline: Pipeline
    job_id: UUID
    keys: dict[tuple[str, str | None], str] = field(default_factory=dict)

    @cached_property
    def app(self) -> FastAPI:
        """The application, with a rate limit that tests do not reach."""
        return create_app(self.pipeline.engine, self.pipeline.settings)

    def key(self, role: str, project: str | None = None) -> str:
        """Return the key of a role and project; create it on first use."""
        if (role, project) not in self.keys:
            self.keys[role, project] = create_key(self.pipeline.engine, role=role, project=project)[1]
        return self.keys[role, project]

    def client(self, role: str | None = "admin", project: str | None = None, app: FastAPI | None = None) -> TestClient:
        """Return a client that sends a key; ``role`` None: no key."""
        headers = {} if role is None else {"Authorization": f"Bearer {self.key(role, project)}"}
        return TestClient(app or self.app, headers=headers, base_url="http://localhost", raise_server_exceptions=False)

    def table_checksums(self) -> list[tuple[str, int, int]]:
        """Return checksums of all tables but ``api_keys``, in which each use of a key is recorded."""
        return [counted for counted in compute_checksums(self.pipeline) if counted[0] != "api_keys"]

    @property
    def memory(self) -> str:
        """Id of an active raw memory of ``notes``."""
        query = "SELECT id FROM {s}.task_memories WHERE NOT is_consolidated AND project_id = :of ORDER BY id LIMIT 1"
        return str(self.pipeline.value(query, of=self.pipeline.project().id))


def memory_row(at: int, text: str) -> dict[str, Any]:
    """Return a row for an import."""
    return {"id": f"n{at}", "content": text, "created_at": RECENT}


def add_entry(api: ApiContext) -> UUID:
    """Add a playbook entry of ``notes`` that waits for review; return its id."""
    query = (
        "INSERT INTO {s}.playbook_entries (project_id, content, content_hash, status, category) "
        "SELECT id, 'Batch the requests.', 'h', 'review', 'performance' FROM {s}.projects WHERE slug = :slug"
    )
    api.pipeline.write(query, slug=SLUG)
    entry_id: UUID = api.pipeline.value("SELECT id FROM {s}.playbook_entries WHERE content_hash = 'h'")
    return entry_id


def add_suggestions(api: ApiContext, count: int) -> list[str]:
    """Add ``count`` suggestions to ``notes``, each for two new memories; return their ids, the most similar first."""
    texts = [f"The proxy closes idle connections after {30 + at} seconds." for at in range(2 * count)]
    api.pipeline.add([{**memory_row(at, text), "id": f"alike{at}"} for at, text in enumerate(texts)], SLUG)
    query = "SELECT id, version FROM {s}.task_memories WHERE external_id LIKE 'alike%' ORDER BY external_id"
    rows = api.pipeline.rows(query)
    suggestions = [
        NewSuggestion(
            cluster_key="4e1c",
            originals=[tuple(row) for row in rows[2 * at : 2 * at + 2]],
            fingerprint=f"fingerprint {at}",
            content=f"The proxy closes idle connections after half a minute ({at}).",
            lessons_learned=None,
            keywords=["proxy"],
            similarity=0.95 - at / 100,
            rationale="2 memories may say the same (lowest similarity 0.95)",
            worth=2.5,
            difference_kinds=["value: after #"],
            method="llm",
        )
        for at in range(count)
    ]
    return list(map(str, insert_suggestions(api.pipeline, SLUG, suggestions)))


def insert_suggestions(pipeline: Pipeline, slug: str, suggestions: Sequence[NewSuggestion]) -> list[UUID]:
    """Insert suggestions into a project; return their ids in the same order."""
    author = Author(pipeline.project(slug).id, None, "test")
    with pipeline.engine.begin() as connection:
        return append_suggestions(connection, author, suggestions, now=datetime.now(UTC))


def _serve(url: str, folder: Path) -> Pipeline:
    settings = Settings(database_url=SecretStr(url), data_dir=folder, api_rate=10_000, api_burst=100_000)
    return Pipeline(connect_engine(with_driver(url, "psycopg")), settings, folder)


@pytest.fixture(scope="session")
def api_template(databases: DatabasePool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, UUID]]:
    """Name of a database with both projects, and the job of its run. Copying it takes less time than a run."""
    with databases.database() as url:
        pipeline = _serve(url, tmp_path_factory.mktemp("api_template"))
        pipeline.add([memory_row(at, text) for at, text in enumerate(LESSONS)], SLUG)
        foreign = "A note of another project, which no other key may read"
        pipeline.add([memory_row(at, foreign + end) for at, end in enumerate(".!")], FOREIGN)
        # Tests of suggestions insert their own.
        pipeline.configure(review_limit=0)
        job_id = pipeline.run(SLUG).job_id
        pipeline.engine.dispose()  # Postgres copies only databases without connections
        yield str(make_url(url).database), job_id


@pytest.fixture(scope="module")
def api(server: str, api_template: tuple[str, UUID], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiContext]:
    """Application with its own database for each module. Tests must not depend on rows of other tests."""
    template, job_id = api_template
    with temporary_database(server, template) as url:
        pipeline = _serve(url, tmp_path_factory.mktemp("api"))
        yield ApiContext(pipeline, job_id)
        pipeline.engine.dispose()


@pytest.fixture
def admin(api: ApiContext) -> TestClient:
    """Client with an admin key for all projects."""
    return api.client("admin")
