"""Query vectors of a paid model: cached, one attempt, a pause after failures."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from consolidation_pipeline.embed import load_embedder
from consolidation_pipeline.embed.remote import LiteLLMEmbedder
from consolidation_pipeline.errors import EmbeddingError
from consolidation_pipeline.service.search import query_vectors
from consolidation_pipeline.service.search.query_vectors import (
    MAX_CACHED_VECTORS,
    PAUSE_SECONDS,
    QUERY_TIMEOUT_SECONDS,
    QueryVectorCache,
)
from consolidation_pipeline_tests.openai_server import (
    Behaviour,
    OpenAIServer,
    never_reply,
    openai_server,
    reply_with_error,
)

MODEL = "openai/text-embedding-3-small"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with openai_server() as running:
        yield running


def embedder_of(server: OpenAIServer, timeout: float = QUERY_TIMEOUT_SECONDS) -> LiteLLMEmbedder:
    return LiteLLMEmbedder(MODEL, api_base=server.api_base, api_key="key", timeout=timeout, retries=0)


def test_query_vector_is_cached(server: OpenAIServer) -> None:
    vectors, embedder = QueryVectorCache(), embedder_of(server)
    first, again = (vectors.embed(embedder, "a question") for _ in range(2))
    vectors.embed(embedder, "another question")
    assert np.array_equal(first, again)
    assert len(server.requests) == 2


def test_query_cache_is_bounded(server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_CACHED_VECTORS >= 100
    monkeypatch.setattr(query_vectors, "MAX_CACHED_VECTORS", 2)
    vectors, embedder = QueryVectorCache(), embedder_of(server)
    for text in ("one", "two", "one", "three", "one", "two"):
        vectors.embed(embedder, text)
    assert [request.body["input"] for request in server.requests] == [["one"], ["two"], ["three"], ["two"]]


@pytest.mark.parametrize("behaviour", [reply_with_error(503), reply_with_error(429), never_reply])
def test_unreachable_model_is_retried_after_pause(server: OpenAIServer, behaviour: Behaviour) -> None:
    clock = Clock()
    vectors, embedder = QueryVectorCache(clock), embedder_of(server, timeout=0.3)
    server.then(behaviour)
    for text in ("one", "two", "three"):
        with pytest.raises(EmbeddingError, match=MODEL):
            vectors.embed(embedder, text)
    assert len(server.requests) == 1
    clock.now += PAUSE_SECONDS
    assert vectors.embed(embedder, "two").ndim == 1
    assert len(server.requests) == 2


def test_refused_query_does_not_pause_model(server: OpenAIServer) -> None:
    vectors, embedder = QueryVectorCache(), embedder_of(server)
    server.then(reply_with_error(400))
    with pytest.raises(EmbeddingError, match="test error with status 400"):
        vectors.embed(embedder, "one")
    assert vectors.embed(embedder, "two").ndim == 1


def test_query_embedding_makes_one_attempt(monkeypatch: pytest.MonkeyPatch, server: OpenAIServer) -> None:
    monkeypatch.setenv("OPENAI_API_BASE", server.api_base)
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    server.then(reply_with_error(503))
    with pytest.raises(EmbeddingError, match="attempt 1 "):
        load_embedder(MODEL, timeout=QUERY_TIMEOUT_SECONDS).embed(["one"])
    assert len(server.requests) == 1
