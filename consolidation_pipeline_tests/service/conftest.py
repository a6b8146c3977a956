"""A pipeline on a fresh database, or on one that a module's tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine, connect_engine, with_driver
from consolidation_pipeline_tests.conftest import TEMPLATE, create_database
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline
from consolidation_pipeline_tests.service.rules import rules_hold as rules_hold


@pytest.fixture
def pipeline(engine: Engine, settings: Settings, tmp_path: Path) -> Pipeline:
    """A fresh database, and whole runs over it without Dagster."""
    return Pipeline(engine, settings, tmp_path)


@pytest.fixture(scope="module")
def shared(server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """As ``pipeline``, shared by the examples of a test; each begins with ``clear``."""
    folder = tmp_path_factory.mktemp("shared")
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    for url in create_database(server, f"{TEMPLATE}_{worker}"):
        settings = Settings(database_url=SecretStr(url), data_dir=folder)
        yield Pipeline(connect_engine(with_driver(url, "psycopg")), settings, folder)
