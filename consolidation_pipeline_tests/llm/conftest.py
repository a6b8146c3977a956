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
from consolidation_pipeline_tests.conftest import open_shared_engine
from consolidation_pipeline_tests.llm.patterns import KEY, MODEL, Connect, well
from consolidation_pipeline_tests.openai_server import OpenAIServer, openai_server, reply_with_json


@pytest.fixture(scope="session")
def engine(server: str) -> Iterator[Engine]:
    """Engine on a database shared by these tests; each uses its own project."""
    yield from open_shared_engine(server)


@pytest.fixture
def provider() -> Iterator[OpenAIServer]:
    with openai_server(reply_with_json(well)) as running:
        yield running


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
def ledger(engine: Engine) -> SpendLedger:
    return SpendLedger(engine, uuid4(), uuid4(), Budgets(1.0, 5.0, 2_000_000))


@pytest.fixture
def connect(provider: OpenAIServer, ledger: SpendLedger, waits: list[float]) -> Connect:
    def to_provider(*, model: str = MODEL, ledger: SpendLedger = ledger, **options: Any) -> Gateway:
        defaults = {"api_base": provider.api_base, "api_key": KEY, "sleep": waits.append}
        return Gateway(model, ledger, **{**defaults, **options})

    return to_provider


@pytest.fixture
def gateway(connect: Connect) -> Gateway:
    return connect()
