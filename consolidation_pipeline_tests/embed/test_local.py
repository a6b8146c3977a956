"""The local embedder: offline, independent of other texts, and clear errors for invalid texts."""

import os
import random
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import wordllama
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.embed import load_embedder
from consolidation_pipeline.embed.embedder import Usage, check_vectors
from consolidation_pipeline.embed.local import LOCAL_MODEL, LocalEmbedder, word_similarity
from consolidation_pipeline.embed.remote import LiteLLMEmbedder
from consolidation_pipeline.errors import EmbeddingError
from consolidation_pipeline_tests.hypothesis_examples import examples

WORDS = ["migration", "lock", "timeout", "retry", "日本", "naïve", "v2.1", "/etc/hosts", "🙂", "don't", "\n", "x" * 50]
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=40).map(" ".join).filter(str.strip), max_size=12)


@settings(deadline=None, max_examples=examples(50))
@given(texts=TEXTS, seed=st.integers())
def test_local_vector_ignores_other_texts(texts: list[str], seed: int) -> None:
    embedder = LocalEmbedder()
    vectors = embedder.embed(texts)
    order = random.Random(seed).sample(range(len(texts)), len(texts))
    shuffled = embedder.embed([texts[i] for i in order])
    assert shuffled.tobytes() == vectors[order].tobytes()
    for text, vector in zip(texts, vectors, strict=True):
        assert embedder.embed([text]).tobytes() == vector.tobytes()


def test_local_vectors_are_unit_float32() -> None:
    vectors = LocalEmbedder().embed(["first text", "日本", "\ue000 a character outside of the vocabulary"])
    assert vectors.dtype == np.float32
    assert vectors.shape == (3, 256)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_local_vectors_match_wordllama() -> None:
    texts = ["Retry with backoff after a 429.", "The migration takes a lock.", "one"]
    reference = wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
    np.testing.assert_allclose(LocalEmbedder().embed(texts), reference.embed(texts, norm=True), atol=1e-6)


def test_local_vectors_rank_similar_texts_closer() -> None:
    text, similar, unrelated = LocalEmbedder().embed(
        ["database connection timed out", "the connection to the database ran into a timeout", "bake bread at 220 C"]
    )
    assert text @ similar > text @ unrelated + 0.2


def test_local_embedder_accepts_no_texts() -> None:
    assert LocalEmbedder().embed([]).shape == (0, 256)


def test_local_embedder_bounds_memory_of_long_text() -> None:
    long = "the build cache is stale " * 4_000
    texts = [long, long[:-6] + "fresh ", *["short"] * 62]
    embedder = LocalEmbedder()
    embedder.embed(["loaded before memory is measured"])
    tracemalloc.start()
    try:
        vectors = embedder.embed(texts)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (vectors[0] != vectors[1]).any()
    assert peak < 32 * 2**20  # a padded batch of these texts takes more than 1 GB


@pytest.mark.parametrize("blank", ["", " ", "\n\t "])
def test_local_embedder_rejects_blank_text(blank: str) -> None:
    with pytest.raises(EmbeddingError, match=r"text 1 \('.*'\) is blank"):
        LocalEmbedder().embed(["fine", blank])


def test_local_embedder_rejects_lone_surrogate() -> None:
    with pytest.raises(EmbeddingError) as refusal:
        LocalEmbedder().embed(["y" * 70 + "\ud83d"])
    assert f"text 0 ('{'y' * 60}')" in str(refusal.value)


@pytest.mark.parametrize("bad", [[0.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0]])
def test_check_vectors_rejects_zero_or_nan_vector(bad: list[float]) -> None:
    with pytest.raises(EmbeddingError, match=r"text 11 \('b'\).*zero or holds NaN or infinity"):
        check_vectors([[1.0, 2.0], bad], ["a", "b"], first=10)


def test_check_vectors_rejects_wrong_dimension() -> None:
    with pytest.raises(EmbeddingError, match=r"text 1 \('b'\): its vector has 3 dimensions, 2 are expected"):
        check_vectors([[1.0, 2.0], [1.0, 2.0, 3.0]], ["a", "b"])
    with pytest.raises(EmbeddingError, match="has 2 dimensions, 256 are expected"):
        check_vectors([[1.0, 2.0]], ["a"], dimension=256)


def test_check_vectors_rejects_wrong_count() -> None:
    with pytest.raises(EmbeddingError, match="2 texts from text 0 on got 1 vectors"):
        check_vectors([[1.0]], ["a", "b"])


def test_check_vectors_normalizes_any_magnitude() -> None:
    np.testing.assert_allclose(check_vectors([[3e38, 4e38], [3e-30, 4e-30]], ["a", "b"]), [[0.6, 0.8]] * 2, atol=1e-6)


def test_local_embedding_is_free() -> None:
    assert LocalEmbedder().estimate(["some text"]) == Usage(tokens=0, cost_usd=0.0)


def test_local_alias_names_bundled_model() -> None:
    assert load_embedder("local").name == load_embedder(LOCAL_MODEL).name == LOCAL_MODEL == "wordllama/l2_supercat_256"


def test_other_model_names_use_litellm() -> None:
    embedder = load_embedder("openai/text-embedding-3-large")
    assert isinstance(embedder, LiteLLMEmbedder)
    assert embedder.name == "openai/text-embedding-3-large"


OFFLINE_PROGRAM = """
import logging, os, sys
NETWORK = {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"}
sys.addaudithook(lambda event, _: os._exit(99) if event in NETWORK else None)  # no exception that could be swallowed
from consolidation_pipeline.embed import load_embedder
embedder = load_embedder("local")
assert not {"wordllama", "litellm", "openai"} & sys.modules.keys(), "models are imported before they are used"
assert embedder.embed(["no network"]).shape == (1, 256)
root = logging.getLogger()
assert (root.handlers, root.level) == ([], logging.WARNING), "wordllama has configured logging"
"""


def test_local_embedder_works_offline_in_new_process(tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", OFFLINE_PROGRAM], env=environment, capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


def test_word_without_its_own_vector_is_like_no_other() -> None:
    assert word_similarity("picture", "photo") > 0.6
    assert not LocalEmbedder().knows("tenant")
    assert word_similarity("tenant", "ten") == word_similarity("ten", "tenant") == 0.0
