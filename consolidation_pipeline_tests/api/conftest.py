"""The HTTP application in this process, over a database with a consolidated project that a module's tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
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
from consolidation_pipeline.service.keys import create_key
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.engine import connect_engine, with_driver
from consolidation_pipeline_tests.cli.conftest import LESSONS, RECENT
from consolidation_pipeline_tests.conftest import TEMPLATE, _database
from consolidation_pipeline_tests.service.running import SLUG, Pipeline

FOREIGN = "foreign"
API = "/api/v1"


@dataclass
class Served:
    """An application over ``notes``, a project that was run once, and ``foreign``, whose memories nobody ran."""

    pipeline: Pipeline
    job_id: UUID
    keys: dict[tuple[str, str | None], str] = field(default_factory=dict)

    @cached_property
    def app(self) -> FastAPI:
        """The application; its rate limit does not get in the way."""
        return create_app(self.pipeline.engine, self.pipeline.settings)

    def key(self, role: str, project: str | None = None) -> str:
        """A key, made when it is first asked for."""
        if (role, project) not in self.keys:
            self.keys[role, project] = create_key(self.pipeline.engine, role=role, project=project)[1]
        return self.keys[role, project]

    def client(self, role: str | None = "admin", project: str | None = None, app: FastAPI | None = None) -> TestClient:
        """A client with a key; ``role`` None: without one."""
        headers = {} if role is None else {"Authorization": f"Bearer {self.key(role, project)}"}
        return TestClient(app or self.app, headers=headers, base_url="http://localhost", raise_server_exceptions=False)

    @property
    def memory(self) -> str:
        """An active raw memory of the project."""
        query = "SELECT id FROM {s}.task_memories WHERE NOT is_consolidated AND project_id = :of ORDER BY id LIMIT 1"
        return str(self.pipeline.value(query, of=self.pipeline.project().id))


def row(at: int, text: str) -> dict[str, Any]:
    """A memory as an import takes it."""
    return {"id": f"n{at}", "content": text, "created_at": RECENT}


def _serve(url: str, folder: Path) -> Pipeline:
    settings = Settings(database_url=SecretStr(url), data_dir=folder, api_rate=10_000, api_burst=100_000)
    return Pipeline(connect_engine(with_driver(url, "psycopg")), settings, folder)


@pytest.fixture(scope="session")
def served_once(server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, UUID]]:
    """A database with both projects, and the job of the one run: made once, for a copy takes less than a run."""
    template = f"{TEMPLATE}_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"
    for url in _database(server, template):
        pipeline = _serve(url, tmp_path_factory.mktemp("served_once"))
        pipeline.add([row(at, text) for at, text in enumerate(LESSONS)], SLUG)
        pipeline.add(
            [row(at, f"A note of somebody else, which no other key may read{end}") for at, end in enumerate(".!")],
            FOREIGN,
        )
        job_id = pipeline.run(SLUG).job_id
        pipeline.engine.dispose()  # nobody may be connected to what is copied
        yield str(make_url(url).database), job_id


@pytest.fixture(scope="module")
def served(server: str, served_once: tuple[str, UUID], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One application and database for a module: tests must not depend on what others left."""
    template, job_id = served_once
    for url in _database(server, template):
        pipeline = _serve(url, tmp_path_factory.mktemp("served"))
        yield Served(pipeline, job_id)
        pipeline.engine.dispose()


@pytest.fixture
def admin(served: Served) -> TestClient:
    """A client that may do everything."""
    return served.client("admin")
