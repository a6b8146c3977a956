"""Similarity of texts by their terms."""

import numpy as np
import pytest

from consolidation_pipeline.core.similarity import term_similarity
from consolidation_pipeline.core.similarity.term_similarity import join_terms


def test_texts_of_same_words_pair_in_any_order() -> None:
    texts = [("restart the worker", "after a deploy"), ("a deploy: after the", "worker restart"), ("unrelated", None)]
    pairs = join_terms(texts)
    assert list(zip(pairs.i.tolist(), pairs.j.tolist(), strict=True)) == [(0, 1)]
    assert pairs.similarity.dtype == np.float32
    assert 0.85 <= pairs.similarity[0] <= 1.0


def test_missing_lessons_match_nothing() -> None:
    pairs = join_terms([("alpha beta", None), ("gamma delta", None), ("none", None)], threshold=0.01)
    assert len(pairs.i) == 0


def test_texts_without_words_give_no_pairs() -> None:
    assert len(join_terms([("", None), (None, ""), ("?", "!")]).i) == 0
    assert len(join_terms([]).i) == 0


def test_term_join_ignores_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [(f"word{n % 3} same same", None) for n in range(7)]
    whole = join_terms(texts)
    monkeypatch.setattr(term_similarity, "_ROWS", 2)
    parts = join_terms(texts)
    assert [pair for pair in zip(whole.i, whole.j, strict=True) if pair[0] % 3 == pair[1] % 3] != []
    assert (whole.i.tolist(), whole.j.tolist()) == (parts.i.tolist(), parts.j.tolist())
    np.testing.assert_allclose(whole.similarity, parts.similarity)
