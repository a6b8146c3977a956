"""Word overlap: symmetric, over content words only, in any script."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.text import word_overlap
from consolidation_pipeline.core.text.word_overlap import build_word_sets

WORDS = "retry timeout cache token deploy 缓存 超时 the of and".split()
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join), min_size=1, max_size=8)


def overlap(one: str, other: str) -> float:
    """Return the share of content words that two texts have in common."""
    return float(build_word_sets([one, other]).overlap(np.array([0]), np.array([1]))[0])


@settings(deadline=None)
@given(texts=TEXTS)
def test_word_overlap_is_symmetric_and_bounded(texts: list[str]) -> None:
    words = build_word_sets(texts)
    i, j = np.divmod(np.arange(len(texts) ** 2), len(texts))
    there, back = words.overlap(i, j), words.overlap(j, i)
    assert there.tolist() == back.tolist()
    assert ((there >= 0) & (there <= 1)).all()
    assert (there[i == j] == 1.0).all()


@settings(deadline=None)
@given(texts=TEXTS, data=st.data())
def test_word_overlap_ignores_order(texts: list[str], data: st.DataObject) -> None:
    order = np.array(data.draw(st.permutations(range(len(texts)))))
    turned = [" ".join(reversed(texts[at].split())) for at in order]
    words, again = build_word_sets(texts), build_word_sets(turned)
    i, j = np.divmod(np.arange(len(texts) ** 2), len(texts))
    assert again.overlap(i, j).tolist() == words.overlap(order[i], order[j]).tolist()


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("Retry after a timeout.", "retry: TIMEOUT", 1.0),  # case and punctuation
        ("Restart the worker", "restarted workers", 1.0),  # inflected
        ("restart worker", "restart worker after rotating webhook secret", 1.0),  # of the shorter text
        ("restart worker now please", "restart worker after lunch", 0.5),
        ("rotate webhook secret", "deploy web service", 0.0),
        ("The cache is in the way of it", "The queue is in the way of it", 0.5),  # "way" alone is content
        ("the of and", "cache", 1.0),  # nothing that could differ
        ("", "cache", 1.0),
        ("", "", 1.0),
        ("部署前运行迁移", "部署前运行迁移", 1.0),
        ("部署迁移", "缓存超时", 0.0),
        ("部署缓存", "部署超时", 0.5),  # each character counts as one word
        ("データ保存", "保存データ", 1.0),
        ("한국어", "한국", 1.0),
        ("Redis缓存", "缓存 in redis", 1.0),  # scripts next to each other
    ],
)
def test_word_overlap_uses_text_with_fewer_words(one: str, other: str, expected: float) -> None:
    assert overlap(one, other) == overlap(other, one) == expected


def test_word_overlap_ignores_function_words() -> None:
    words = build_word_sets(["it is on the server", "it is on the client"])
    assert words.overlap(np.array([0]), np.array([1])).tolist() == [0.0]


def test_word_sets_of_nothing_are_empty() -> None:
    none = np.empty(0, dtype=np.int64)
    assert build_word_sets([]).overlap(none, none).shape == (0,)
    assert build_word_sets(["a b", ""]).overlap(none, none).shape == (0,)


def test_word_overlap_ignores_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"cache {word} {other}" for word in WORDS for other in WORDS]
    words = build_word_sets(texts)
    i, j = np.triu_indices(len(texts), 1)
    whole = words.overlap(i, j)
    monkeypatch.setattr(word_overlap, "_BLOCK", 7)
    assert words.overlap(i, j).tolist() == whole.tolist()
