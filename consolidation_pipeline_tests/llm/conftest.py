"""Fixtures: a gateway to a local provider and its ledger in Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from consolidation_pipeline.core.jobs.spending import Budgets
from consolidation_pipeline.llm.gateway import Gateway
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.jobs.llm_calls import SpendLedger
from consolidation_pipeline_tests.database_pool import DatabasePool
from consolidation_pipeline_tests.llm.patterns import API_KEY, MODEL, Connect, valid_reply
from consolidation_pipeline_tests.openai_server import OpenAIServer, openai_server, reply_with_json


@pytest.fixture(scope="session")
def engine(databases: DatabasePool) -> Iterator[Engine]:
    """Engine on a database shared by these tests; each uses its own project."""
    with databases.engine() as engine:
        yield engine


@pytest.fixture
def provider() -> Iterator[OpenAIServer]:
    with openai_server(reply_with_json(valid_reply)) as server:
        yield server


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
def ledger(engine: Engine) -> SpendLedger:
    return SpendLedger(engine, uuid4(), uuid4(), Budgets(1.0, 5.0, 2_000_000))


@pytest.fixture
def connect(provider: OpenAIServer, ledger: SpendLedger, waits: list[float]) -> Connect:
    def connect_gateway(*, model: str = MODEL, ledger: SpendLedger = ledger, **options: Any) -> Gateway:
        defaults = {"api_base": provider.api_base, "api_key": API_KEY, "sleep": waits.append}
        return Gateway(model, ledger, **{**defaults, **options})

    return connect_gateway


@pytest.fixture
def gateway(connect: Connect) -> Gateway:
    return connect()
