"""The decision on many pairs at once gives the same results as ``explain`` on each pair."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.differences import pair_screen
from consolidation_pipeline.core.differences.explanation import explain
from consolidation_pipeline.core.differences.pair_screen import (
    concatenate_keys,
    find_mergeable,
    list_keys,
    pack_keys,
    split_pairs,
    unpack_keys,
)
from consolidation_pipeline.core.differences.reader import read
from consolidation_pipeline.embed.local import word_similarity
from consolidation_pipeline_tests.core.differences.near_misses import PAIRS
from consolidation_pipeline_tests.core.differences.test_explanation import MAY_MERGE, MUST_NOT_MERGE
from consolidation_pipeline_tests.hypothesis_examples import examples

TABLE = [*MAY_MERGE.values(), *(pair for pairs in MUST_NOT_MERGE.values() for pair in pairs)]
TEXTS = [text for pair in (*TABLE, *PAIRS) for text in pair]
WORDS = """
    The the It service cache job Note: handler needs stops runs uses enabled amber birch keys reports night, Friday.
    and of at after before never not all some must may 30 60 seconds v2 a.py `lock` Alice
    """.split()
sentences = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)
# Texts that share most of their words: others are screened out.
edited = st.tuples(sentences, st.sampled_from(WORDS), st.integers(0, 12)).map(
    lambda drawn: " ".join([*drawn[0].split()[: drawn[2]], drawn[1], *drawn[0].split()[drawn[2] :]])
)
text_lists = st.lists(st.one_of(sentences, edited, st.sampled_from(TEXTS)), min_size=1, max_size=6)


def judge_pairwise(texts: Sequence[str], i: Sequence[int], j: Sequence[int]) -> list[bool]:
    return [explain(texts[a], texts[b], word_similarity).may_merge for a, b in zip(i, j, strict=True)]


def test_bulk_decision_agrees_with_explain_on_pairs() -> None:
    i, j = list(range(0, len(TEXTS), 2)), list(range(1, len(TEXTS), 2))
    expected = judge_pairwise(TEXTS, i, j)
    assert find_mergeable(TEXTS, i, j, word_similarity).tolist() == expected
    assert find_mergeable(TEXTS, j, i, word_similarity).tolist() == expected
    assert 50 < sum(expected) < len(expected) - 50


@pytest.mark.slow
def test_bulk_decision_agrees_with_explain_on_all_pairs() -> None:
    texts = [text for pair in TABLE for text in pair]
    i, j = (side.tolist() for side in np.triu_indices(len(texts), 1))
    assert find_mergeable(texts, i, j, word_similarity).tolist() == judge_pairwise(texts, i, j)


@settings(deadline=None, max_examples=examples(200))
@given(text_lists, st.data())
def test_bulk_decision_agrees_with_explain_on_any_texts(texts: list[str], data: st.DataObject) -> None:
    position = st.integers(0, len(texts) - 1)
    pairs = data.draw(st.lists(st.tuples(position, position), min_size=1, max_size=12))
    i, j = zip(*pairs, strict=True)
    found = find_mergeable(texts, i, j, word_similarity).tolist()
    # The screen drops only pairs of which both texts have several words alone.
    for (one, other), is_found, expected in zip(pairs, found, judge_pairwise(texts, i, j), strict=True):
        words = [{token.key for token in read(texts[side]).tokens} for side in (one, other)]
        is_screened = min(len(words[0] - words[1]), len(words[1] - words[0])) > 2
        assert is_found == expected or (is_screened and not is_found), (texts[one], texts[other])


@settings(deadline=None, max_examples=examples(100))
@given(st.randoms(use_true_random=False), st.integers(1, 40))
def test_bulk_decision_ignores_order_of_pairs(random: object, kept: int) -> None:
    pairs = [(at, at + 1) for at in range(0, 60, 2)] + [(at, at + 3) for at in range(40)]
    expected = dict(zip(pairs, find_mergeable(TEXTS, *zip(*pairs, strict=True)).tolist(), strict=True))
    random.shuffle(pairs)  # type: ignore[attr-defined]
    chosen = pairs[:kept]
    found = find_mergeable(TEXTS, *zip(*chosen, strict=True)).tolist()
    assert found == [expected[pair] for pair in chosen]


def test_bulk_decision_uses_similarity() -> None:
    texts = ["The clerk checks vouchers.", "The clerk checks coupons."]
    assert find_mergeable(texts, [0], [1]).tolist() == [False]
    assert find_mergeable(texts, [0], [1], lambda *_: 0.9).tolist() == [True]


def test_bulk_decision_reads_each_text_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(pair_screen, "read", lambda text: seen.append(text) or read(text))
    find_mergeable(["a", "b 1", "b 2", "b 3", "c", "d"], [5, 1, 1, 4, 3], [4, 2, 3, 5, 2])
    assert sorted(seen) == ["b 1", "b 2", "b 3", "c", "d"]


def test_bulk_decision_keeps_few_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"The service needs {word}." for word in "amber birch cedar delta".split() * 2]
    i, j = (side.tolist() for side in np.triu_indices(len(texts), 1))
    whole = find_mergeable(texts, i, j)
    monkeypatch.setattr(pair_screen, "_KEPT_READINGS", 1)
    assert find_mergeable(texts, i, j).tolist() == whole.tolist()


def test_packed_keys_are_those_of_the_texts() -> None:
    texts = ["", *TEXTS[:50], "Wait 30 seconds, then 60 seconds.", "30"]
    keys = list_keys(texts)
    packed = pack_keys(keys)
    for found, expected in zip(unpack_keys(packed), keys, strict=True):
        assert found.dtype == expected.dtype
        assert found.tolist() == expected.tolist()
    assert [pack_keys(list_keys([text])) for text in texts] == [[one] for one in packed]
    turned = concatenate_keys([list_keys(texts[20:]), list_keys(texts[:20])])
    assert pack_keys(turned) == [*packed[20:], *packed[:20]]


def test_portions_keep_connected_pairs_together() -> None:
    parts = split_pairs(6, [0, 3, 1, 4, 0], [1, 4, 2, 5, 2], size=3)
    assert [sorted(part.tolist()) for part in parts] == [[0, 2, 4], [1, 3]]
    assert split_pairs(3, np.array([], int), np.array([], int), size=3)[0].tolist() == []


def test_bulk_decision_on_no_pairs_is_empty() -> None:
    found = find_mergeable([], [], [])
    assert found.shape == (0,)
    assert found.dtype == np.bool_


@pytest.mark.parametrize(
    ("i", "j", "message"),
    [
        ([0], [0, 1], r"i and j have the shapes \(1,\) and \(2,\); both must be \(m,\)"),
        ([[0]], [[1]], r"shapes \(1, 1\) and \(1, 1\)"),
        (0, 1, r"shapes \(\) and \(\)"),
        ([0], [2], "positions reach from 0 to 2; there are 2 texts"),
        ([-1], [0], "positions reach from -1 to 0; there are 2 texts"),
    ],
)
def test_bulk_decision_rejects_invalid_pairs(i: list[int], j: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_mergeable(["a", "b"], i, j)
