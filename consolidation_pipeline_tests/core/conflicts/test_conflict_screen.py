"""The bulk veto says what the pairwise one says."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.conflicts import conflict_screen
from consolidation_pipeline.core.conflicts.conflict_screen import find_conflicting
from consolidation_pipeline.core.conflicts.literals import conflicts
from consolidation_pipeline_tests.core.conflicts.near_misses import PAIRS
from consolidation_pipeline_tests.hypothesis_examples import examples

TABLE = [text for pair in PAIRS for text in pair]
WORDS = """
    the a it I cache index lock handler test commit run use enable disable works fails valid invalid not never no
    without doesn't can't should must is are always may if when unless how why and but so that before after first last
    first, cache. index, ? instead of rather than to avoid non-empty turn off on 30 s 60 s 7.5 v7.5 8 a.py src/a.py
    `lock` "test" snake_case 5 March 2024 2024-03-05 properly incorrect
    """.split()
sentences = st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join)
# Pairs that share most of their words are the ones in which something can be disputed.
edited = st.tuples(sentences, st.sampled_from(WORDS), st.integers(0, 14)).map(
    lambda drawn: " ".join([*drawn[0].split()[: drawn[2]], drawn[1], *drawn[0].split()[drawn[2] :]])
)
texts = st.lists(st.one_of(sentences, edited, st.sampled_from(TABLE)), min_size=1, max_size=8)


def pairwise(given_texts: list[str], i: list[int], j: list[int]) -> list[bool]:
    return [bool(conflicts(given_texts[a], given_texts[b])) for a, b in zip(i, j, strict=True)]


def in_bulk(given_texts: list[str], i: list[int], j: list[int]) -> list[bool]:
    """The answers of the compiled code, which few pairs would not reach."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conflict_screen, "_FEW", 0)
        return [bool(answer) for answer in conflict_screen.find_conflicting(given_texts, i, j)]


def test_the_table_is_decided_alike_one_by_one_and_in_bulk() -> None:
    i, j = list(range(0, len(TABLE), 2)), list(range(1, len(TABLE), 2))
    expected = pairwise(TABLE, i, j)
    assert in_bulk(TABLE, i, j) == expected
    assert find_conflicting(TABLE, i, j).tolist() == expected


def test_every_text_of_the_table_against_every_other_is_decided_alike() -> None:
    i, j = np.triu_indices(len(TABLE[:120]), 1)
    assert find_conflicting(TABLE, i, j).tolist() == pairwise(TABLE, i.tolist(), j.tolist())


@settings(deadline=None, max_examples=examples(300))
@given(texts)
def test_bulk_and_pairwise_agree_on_any_texts(given_texts: list[str]) -> None:
    i, j = (part.tolist() for part in np.indices((len(given_texts), len(given_texts))).reshape(2, -1))
    assert in_bulk(given_texts, i, j) == pairwise(given_texts, i, j)


@settings(deadline=None, max_examples=examples(200))
@given(sentences, st.sampled_from(WORDS), st.integers(0, 14))
@example("the before cache before", "before", 0)
def test_bulk_and_pairwise_agree_on_texts_one_word_apart(text: str, word: str, at: int) -> None:
    words = text.split()
    other = " ".join([*words[:at], word, *words[at + 1 :]])
    assert in_bulk([text, other], [0, 1], [1, 0]) == [bool(conflicts(text, other))] * 2


@settings(deadline=None, max_examples=examples(100))
@given(st.text(max_size=150), st.text(max_size=150))
def test_any_characters_are_read(one: str, other: str) -> None:
    assert in_bulk([one, other], [0], [1]) == [bool(conflicts(one, other))]


def test_no_pairs_give_no_answers() -> None:
    found = find_conflicting([], [], [])
    assert found.shape == (0,)
    assert found.dtype == np.bool_


def test_only_texts_in_pairs_are_read() -> None:
    unread = ["a", 5, "b"]
    assert find_conflicting(unread, [0], [2]).tolist() == [False]  # type: ignore[arg-type]


@pytest.mark.parametrize(("i", "j"), [([0], [0, 1]), ([[0]], [[1]]), ([0], [2]), ([-1], [0])])
def test_pairs_that_are_none_are_refused(i: list[int], j: list[int]) -> None:
    with pytest.raises(ValueError, match=r"shapes|positions"):
        find_conflicting(["a", "b"], i, j)
