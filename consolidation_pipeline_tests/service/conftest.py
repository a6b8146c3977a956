"""Pipelines on a database per test or per module, and a provider of models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from consolidation_pipeline.llm import retries
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine, connect_engine, with_driver
from consolidation_pipeline_tests.database_pool import DatabasePool
from consolidation_pipeline_tests.openai_server import OpenAIServer, client_environment, openai_server
from consolidation_pipeline_tests.service.model_replies import reply_to_any
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline
from consolidation_pipeline_tests.service.rules import rules_hold as rules_hold


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    """Provider of models that replies validly to any prompt and embeds any text; nobody waits before a retry."""
    monkeypatch.setattr(retries, "_compute_wait", lambda *_: 0.0)
    with openai_server(reply_to_any) as running:
        for name, value in client_environment(running.api_base).items():
            monkeypatch.setenv(name, value)
        yield running


@pytest.fixture
def pipeline(engine: Engine, settings: Settings, tmp_path: Path) -> Pipeline:
    """Pipeline on an empty database."""
    return Pipeline(engine, settings, tmp_path)


@pytest.fixture(scope="module")
def shared(databases: DatabasePool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """Pipeline on a database that tests and examples of a module share; each begins with ``clear``."""
    folder = tmp_path_factory.mktemp("shared")
    with databases.database() as url:
        settings = Settings(database_url=SecretStr(url), data_dir=folder)
        yield Pipeline(connect_engine(with_driver(url, "psycopg")), settings, folder)
