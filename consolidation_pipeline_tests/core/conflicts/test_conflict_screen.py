"""The bulk conflict screen gives the same results as ``conflicts`` on each pair."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.conflicts import conflict_screen
from consolidation_pipeline.core.conflicts.conflict_screen import find_conflicting
from consolidation_pipeline.core.literals.literals import Facts, conflicts
from consolidation_pipeline_tests.core.conflicts.near_misses import PAIRS
from consolidation_pipeline_tests.hypothesis_examples import examples

PAIR_TEXTS = [text for pair in PAIRS for text in pair]
WORDS = """
    the a it I cache index lock handler test commit run use enable disable works fails valid invalid not never no
    without doesn't can't should must is are always may if when unless how why and but so that before after first last
    first, cache. index, ? instead of rather than to avoid non-empty turn off on 30 s 60 s 7.5 v7.5 8 a.py src/a.py
    `lock` "test" snake_case 5 March 2024 2024-03-05 properly incorrect
    """.split()
sentences = st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join)
# Only pairs that share most of their words can conflict.
edited = st.tuples(sentences, st.sampled_from(WORDS), st.integers(0, 14)).map(
    lambda drawn: " ".join([*drawn[0].split()[: drawn[2]], drawn[1], *drawn[0].split()[drawn[2] :]])
)
text_lists = st.lists(st.one_of(sentences, edited, st.sampled_from(PAIR_TEXTS)), min_size=1, max_size=8)


def compare_pairwise(given_texts: Sequence[str], i: Sequence[int], j: Sequence[int]) -> list[bool]:
    return [bool(conflicts(given_texts[a], given_texts[b])) for a, b in zip(i, j, strict=True)]


def test_bulk_screen_matches_pairwise_on_near_misses() -> None:
    i, j = list(range(0, len(PAIR_TEXTS), 2)), list(range(1, len(PAIR_TEXTS), 2))
    assert find_conflicting(PAIR_TEXTS, i, j).tolist() == compare_pairwise(PAIR_TEXTS, i, j)


def test_bulk_screen_matches_pairwise_on_all_pairs() -> None:
    i, j = np.triu_indices(len(PAIR_TEXTS[:120]), 1)
    assert find_conflicting(PAIR_TEXTS, i, j).tolist() == compare_pairwise(PAIR_TEXTS, i.tolist(), j.tolist())


@settings(deadline=None, max_examples=examples(300))
@given(text_lists, st.data())
def test_bulk_screen_matches_pairwise_on_any_texts(given_texts: list[str], data: st.DataObject) -> None:
    position = st.integers(0, len(given_texts) - 1)
    i, j = zip(*data.draw(st.lists(st.tuples(position, position), min_size=1, max_size=30)), strict=True)
    assert find_conflicting(given_texts, i, j).tolist() == compare_pairwise(given_texts, i, j)


@settings(deadline=None, max_examples=examples(100))
@given(st.text(max_size=150), st.text(max_size=150))
def test_bulk_screen_matches_pairwise_on_any_characters(one: str, other: str) -> None:
    assert find_conflicting([one, other], [0], [1]).tolist() == [bool(conflicts(one, other))]


def test_screen_reads_each_text_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr(conflict_screen, "Facts", lambda text: read.append(text) or Facts(text))
    find_conflicting(["a", "b 1", "b 2", "b 3", "c", "d"], [5, 1, 1, 4, 3], [4, 2, 3, 5, 2])
    assert sorted(read) == ["b 1", "b 2", "b 3", "c", "d"]


def test_screen_of_no_pairs_is_empty() -> None:
    found = find_conflicting([], [], [])
    assert found.shape == (0,)
    assert found.dtype == np.bool_


def test_screen_reads_only_texts_in_pairs() -> None:
    unread = ["a", 5, "b"]
    assert find_conflicting(unread, [0], [2]).tolist() == [False]  # type: ignore[arg-type]


@pytest.mark.parametrize(("i", "j"), [([0], [0, 1]), ([[0]], [[1]]), ([0], [2]), ([-1], [0])])
def test_screen_rejects_invalid_pairs(i: list[int], j: list[int]) -> None:
    with pytest.raises(ValueError, match=r"shapes|positions"):
        find_conflicting(["a", "b"], i, j)
