"""Fixtures: a local provider of embeddings, and a spend ledger in Postgres."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from consolidation_pipeline_tests.llm.conftest import engine as engine
from consolidation_pipeline_tests.llm.conftest import ledger as ledger
from consolidation_pipeline_tests.llm.conftest import waits as waits
from consolidation_pipeline_tests.openai_server import OpenAIServer, openai_server

MODEL = "openai/text-embedding-3-large"


@pytest.fixture
def provider() -> Iterator[OpenAIServer]:
    with openai_server() as server:
        yield server


def make_texts(count: int) -> list[str]:
    return [f"memory number {at}" for at in range(count)]
