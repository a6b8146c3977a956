"""Remote embedding through litellm over HTTP, against a local server with simulated failures."""

import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from consolidation_pipeline.embed.embedder import Usage
from consolidation_pipeline.embed.remote import BATCH_CHARACTERS, BATCH_TEXTS, CONCURRENCY, LiteLLMEmbedder
from consolidation_pipeline.errors import EmbeddingError
from consolidation_pipeline_tests.embed.conftest import MODEL, make_texts
from consolidation_pipeline_tests.openai_server import (
    Behaviour,
    OpenAIServer,
    Reply,
    Request,
    drop_last_row,
    json_response,
    never_reply,
    openai_server,
    record_concurrency,
    replace_vector,
    reply_with_broken_json,
    reply_with_embeddings,
    reply_with_error,
    reverse_rows,
    text_vector,
)

DOLLARS_PER_TOKEN = 0.13e-6


@pytest.fixture
def embedder(provider: OpenAIServer, waits: list[float]) -> LiteLLMEmbedder:
    return connect(provider, sleep=waits.append)


def connect(provider: OpenAIServer, **options: Any) -> LiteLLMEmbedder:
    return LiteLLMEmbedder(MODEL, api_base=provider.api_base, api_key="key", **options)


def expected_vectors(texts: list[str]) -> NDArray[np.float64]:
    vectors = np.array([text_vector(text) for text in texts])
    lengths: NDArray[np.float64] = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / lengths


def test_remote_vectors_are_unit_float32_in_order(embedder: LiteLLMEmbedder) -> None:
    texts = make_texts(5)
    vectors = embedder.embed(texts)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, expected_vectors(texts), atol=1e-6)


@pytest.mark.parametrize("packs", [True, False])
def test_vectors_come_in_base64_if_the_server_can(
    provider: OpenAIServer, embedder: LiteLLMEmbedder, packs: bool
) -> None:
    provider.behaviour = reply_with_embeddings(packs=packs)
    np.testing.assert_allclose(embedder.embed(["a"]), expected_vectors(["a"]), atol=1e-6)
    assert [request.body["encoding_format"] for request in provider.requests] == ["base64"]


def test_server_that_refuses_base64_is_asked_for_numbers(provider: OpenAIServer, embedder: LiteLLMEmbedder) -> None:
    def refuse(request: Request) -> Reply | None:
        if "encoding_format" in request.body:
            return json_response({"error": {"message": "unknown parameter: encoding_format"}}, status=400)
        return reply_with_embeddings()(request)

    provider.behaviour = refuse
    for _ in range(2):
        np.testing.assert_allclose(embedder.embed(["a"]), expected_vectors(["a"]), atol=1e-6)
    assert [request.body.get("encoding_format") for request in provider.requests] == ["base64", None, None]


@pytest.mark.parametrize("vector", ["not base64", "AAAA"], ids=["letters", "three bytes"])
def test_vector_that_is_no_base64_is_rejected(provider: OpenAIServer, embedder: LiteLLMEmbedder, vector: str) -> None:
    rows = [{"object": "embedding", "index": 0, "embedding": vector}]
    provider.behaviour = lambda _: json_response({"object": "list", "model": "m", "data": rows})
    with pytest.raises(EmbeddingError, match=r"no base64 of float32, texts 0 to 0 \(longest: text 0 \('a'\)"):
        embedder.embed(["a"])


def test_remote_embedder_sends_nothing_for_no_texts(provider: OpenAIServer, embedder: LiteLLMEmbedder) -> None:
    assert embedder.embed([]).shape == (0, 0)
    assert connect(provider, dimension=8).embed([]).shape == (0, 8)
    assert provider.requests == []


def test_many_texts_are_embedded_in_batches(provider: OpenAIServer, embedder: LiteLLMEmbedder) -> None:
    texts = make_texts(2 * BATCH_TEXTS + 44)
    np.testing.assert_allclose(embedder.embed(texts), expected_vectors(texts), atol=1e-6)
    assert sorted(len(request.body["input"]) for request in provider.requests) == [44, BATCH_TEXTS, BATCH_TEXTS]


def test_batches_bound_total_text_length(provider: OpenAIServer, embedder: LiteLLMEmbedder) -> None:
    half, over = "a" * (BATCH_CHARACTERS // 2), "b" * (BATCH_CHARACTERS + 1)
    embedder.embed([half, half, over, half])
    sent = [request.body["input"] for request in provider.requests]
    assert sorted(sent) == [[half], [half, half], [over]]


def test_unordered_vectors_are_sorted_by_index(provider: OpenAIServer, embedder: LiteLLMEmbedder) -> None:
    provider.behaviour = reply_with_embeddings(edit=reverse_rows)
    np.testing.assert_allclose(embedder.embed(make_texts(5)), expected_vectors(make_texts(5)), atol=1e-6)


def test_embedder_limits_concurrent_requests(provider: OpenAIServer, embedder: LiteLLMEmbedder) -> None:
    provider.behaviour, running = record_concurrency(CONCURRENCY, reply_with_embeddings())
    embedder.embed(make_texts(2 * CONCURRENCY * BATCH_TEXTS))
    assert running == [0, CONCURRENCY]


def test_embedder_honors_retry_after(provider: OpenAIServer, embedder: LiteLLMEmbedder, waits: list[float]) -> None:
    provider.then(reply_with_error(429, retry_after=7), reply_with_error(429, retry_after=3600), reply_with_error(429))
    np.testing.assert_allclose(embedder.embed(["a"]), expected_vectors(["a"]), atol=1e-6)
    assert len(provider.requests) == 4
    assert 7 <= waits[0] <= 10.5
    assert waits[1] == 60
    assert 4 <= waits[2] <= 6


@pytest.mark.parametrize(
    "behaviour", [reply_with_error(500), reply_with_error(503), reply_with_error(529), reply_with_broken_json]
)
def test_failing_server_is_tried_four_times(
    provider: OpenAIServer, embedder: LiteLLMEmbedder, waits: list[float], behaviour: Behaviour
) -> None:
    provider.behaviour = behaviour
    with pytest.raises(EmbeddingError, match=rf"{MODEL} gave no vectors, attempt 4 for texts 0 to 1"):
        embedder.embed(["a", "b"])
    assert len(provider.requests) == 4
    assert all(least <= wait <= 1.5 * least for wait, least in zip(waits, [1, 2, 4], strict=True))


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_permanent_error_is_not_retried(
    provider: OpenAIServer, embedder: LiteLLMEmbedder, waits: list[float], status: int
) -> None:
    provider.behaviour = reply_with_error(status)
    with pytest.raises(EmbeddingError, match=r"attempt 1 .*longest: text 1 \('longer'\), 6 characters.*test error"):
        embedder.embed(["a", "longer", "b"])
    assert (len(provider.requests), waits) == (1, [])


def test_embedding_error_prints_nothing(
    provider: OpenAIServer, embedder: LiteLLMEmbedder, capfd: pytest.CaptureFixture[str]
) -> None:
    provider.behaviour = reply_with_error(401)
    with pytest.raises(EmbeddingError):
        embedder.embed(["a"])
    assert capfd.readouterr() == ("", "")


def test_reply_without_vectors_is_rejected(provider: OpenAIServer, embedder: LiteLLMEmbedder) -> None:
    provider.behaviour = lambda _: json_response({"greeting": "hello"})
    with pytest.raises(EmbeddingError, match=r"0 vectors for 1 texts, texts 0 to 0 \(longest: text 0 \('a'\)"):
        embedder.embed(["a"])


def test_embedder_times_out_unresponsive_server(provider: OpenAIServer, waits: list[float]) -> None:
    provider.behaviour = never_reply
    with pytest.raises(EmbeddingError, match=r"attempt 4 .*[Tt]ime"):
        connect(provider, timeout=0.1, sleep=waits.append).embed(["a"])
    assert len(waits) == 3


def test_embedder_retries_after_timeout(provider: OpenAIServer, waits: list[float]) -> None:
    provider.then(never_reply)
    np.testing.assert_allclose(
        connect(provider, timeout=1.0, sleep=waits.append).embed(["a"]), expected_vectors(["a"]), atol=1e-6
    )
    assert len(waits) >= 1


def test_unreachable_server_is_tried_four_times(waits: list[float]) -> None:
    with openai_server() as stopped:
        embedder = connect(stopped, sleep=waits.append)
    with pytest.raises(EmbeddingError, match="attempt 4"):
        embedder.embed(["a"])
    assert len(waits) == 3


def test_error_stops_remaining_batches(provider: OpenAIServer, embedder: LiteLLMEmbedder) -> None:
    refused = threading.Event()

    def refuse_first(request: Request) -> Reply | None:
        if request.body["input"][0] == "memory number 0":
            return reply_with_error(401)(request)
        refused.wait(0.5)
        return reply_with_embeddings()(request)

    provider.behaviour = refuse_first
    with pytest.raises(EmbeddingError):
        embedder.embed(make_texts(40 * BATCH_TEXTS))
    assert len(provider.requests) <= 2 * CONCURRENCY


@pytest.mark.parametrize(
    "edit",
    [
        drop_last_row,
        lambda rows: [*rows, {**rows[0], "index": len(rows)}],
        lambda rows: [{**row, "index": 0} for row in rows],
        lambda rows: [{**row, "index": row["index"] + 1} for row in rows],
    ],
    ids=["missing", "extra", "same index", "indexed from one"],
)
def test_unmatched_vectors_are_rejected(
    provider: OpenAIServer, embedder: LiteLLMEmbedder, waits: list[float], edit: Any
) -> None:
    provider.behaviour = reply_with_embeddings(edit=edit)
    with pytest.raises(EmbeddingError, match=r"gave \d vectors for 3 texts, texts 0 to 2.*each text needs one"):
        embedder.embed(make_texts(3))
    assert waits == []


@pytest.mark.parametrize(
    "vector", [[0.0] * 8, [float("nan")] + [1.0] * 7, [float("inf")] + [1.0] * 7], ids=["zero", "nan", "inf"]
)
def test_embedder_rejects_zero_or_nan_vector(
    provider: OpenAIServer, embedder: LiteLLMEmbedder, vector: list[float]
) -> None:
    def invalidate_one(request: Request) -> Reply | None:
        texts = request.body["input"]
        bad = texts.index("memory number 130") if "memory number 130" in texts else -1
        return reply_with_embeddings(edit=replace_vector(bad, vector))(request)

    provider.behaviour = invalidate_one
    with pytest.raises(EmbeddingError, match=r"text 130 \('memory number 130'\): its vector is zero or holds NaN"):
        embedder.embed(make_texts(200))


@pytest.mark.parametrize("vector", [[1.0] * 7, []], ids=["shorter", "empty"])
def test_embedder_rejects_vector_of_wrong_length(
    provider: OpenAIServer, embedder: LiteLLMEmbedder, vector: list[float]
) -> None:
    provider.behaviour = reply_with_embeddings(edit=replace_vector(1, vector))
    with pytest.raises(EmbeddingError, match=rf"text 1 \('memory number 1'\): .* {len(vector)} dimensions, 8 are"):
        embedder.embed(make_texts(3))


def test_dimension_change_between_calls_is_rejected(provider: OpenAIServer, embedder: LiteLLMEmbedder) -> None:
    embedder.embed(["a"])
    provider.behaviour = reply_with_embeddings(dimension=16)
    with pytest.raises(EmbeddingError, match=r"text 0 \('b'\): its vector has 16 dimensions, 8 are expected"):
        embedder.embed(["b"])


def test_dimension_change_between_batches_is_rejected(provider: OpenAIServer, embedder: LiteLLMEmbedder) -> None:
    provider.then(reply_with_embeddings(dimension=16))
    with pytest.raises(EmbeddingError, match=r"dimensions, (8|16) are expected"):
        embedder.embed(make_texts(2 * BATCH_TEXTS))


def test_unexpected_dimension_is_rejected(provider: OpenAIServer) -> None:
    with pytest.raises(EmbeddingError, match="has 8 dimensions, 3072 are expected"):
        connect(provider, dimension=3072).embed(["a"])


def test_blank_text_is_rejected_before_request(provider: OpenAIServer, embedder: LiteLLMEmbedder) -> None:
    with pytest.raises(EmbeddingError, match=r"text 2 \(' '\) is blank"):
        embedder.embed(["a", "b", " "])
    assert provider.requests == []


def test_batches_arrive_before_error_is_raised(provider: OpenAIServer, waits: list[float]) -> None:
    embedder = connect(provider, sleep=waits.append)
    refused = "memory number 130"
    provider.behaviour = lambda request: (
        reply_with_error(401) if refused in request.body["input"] else reply_with_embeddings()
    )(request)
    texts, parts = make_texts(3 * BATCH_TEXTS), []
    with pytest.raises(EmbeddingError, match="test error with status 401"):
        parts.extend(embedder.embed_batches(texts))
    sizes = {first: len(vectors) for first, vectors in parts}
    assert sizes[0] == BATCH_TEXTS
    assert BATCH_TEXTS not in sizes
    assert set(sizes) <= {0, 2 * BATCH_TEXTS}


def test_embedding_estimate_makes_no_request(provider: OpenAIServer, embedder: LiteLLMEmbedder) -> None:
    assert embedder.estimate(["hello world", "hello <|endoftext|>"]) == Usage(9, 9 * DOLLARS_PER_TOKEN)
    assert provider.requests == []


def test_embedding_estimate_without_price_counts_tokens() -> None:
    assert LiteLLMEmbedder("openai/our-own-model").estimate(["hello world"]) == Usage(2, None)


def test_embedder_reads_url_and_key_from_environment(provider: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setenv("OPENAI_API_BASE", provider.api_base)
    monkeypatch.setenv("OPENAI_API_KEY", "from-the-environment")
    LiteLLMEmbedder(MODEL).embed(["a"])
    connect(provider).embed(["a"])
    keys = [request.headers["authorization"] for request in provider.requests]
    assert keys == ["Bearer from-the-environment", "Bearer key"]


OFFLINE_PROGRAM = """
import os, sys
NETWORK = {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"}
sys.addaudithook(lambda event, _: os._exit(99) if event in NETWORK else None)  # no exception that could be swallowed
from consolidation_pipeline.embed import load_embedder
assert load_embedder("openai/text-embedding-3-large").estimate(["two words"]).tokens == 2
"""


@pytest.mark.slow
def test_litellm_counts_tokens_offline() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LITELLM_")}
    run = subprocess.run(
        [sys.executable, "-c", OFFLINE_PROGRAM], env=environment, capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
