"""Versions of a fact in a ranking: the newer one first, the rest in its order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from consolidation_pipeline.core.search.versions import place_newer_first

RANKED = [("a", 0.9), ("b", 0.8), ("c", 0.7), ("d", 0.6)]
NAMES = "abcdef"


def order(ranked: list[tuple[str, float]]) -> str:
    return "".join(id_ for id_, _ in ranked)


def test_ranking_without_versions_stays() -> None:
    assert place_newer_first(RANKED, {"a": ["x"], "y": ["a"]}) == RANKED


def test_newer_version_moves_above_older_one() -> None:
    placed = place_newer_first(RANKED, {"b": ["d"]})
    assert order(placed) == "adbc"
    scores = dict(placed)
    assert 0.9 > scores["d"] > scores["b"] == 0.8


def test_newest_version_moves_above_all() -> None:
    assert order(place_newer_first(RANKED, {"a": ["b"], "b": ["d"]})) == "dbac"


def test_circle_of_versions_ends() -> None:
    assert sorted(order(place_newer_first(RANKED, {"a": ["b"], "b": ["a"]}))) == list("abcd")


@given(
    scores=st.lists(st.floats(0, 1, exclude_max=True), min_size=6, max_size=6),
    newer=st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=8),
)
def test_no_older_version_is_ranked_above(scores: list[float], newer: set[tuple[int, int]]) -> None:
    ranked = sorted(zip(NAMES, scores, strict=True), key=lambda pair: -pair[1])
    newer_of: dict[str, set[str]] = {}
    for older, later in newer:
        if older < later:
            newer_of.setdefault(NAMES[older], set()).add(NAMES[later])
    placed = place_newer_first(ranked, newer_of)
    assert sorted(order(placed)) == list(NAMES)
    values = [score for _, score in placed]
    assert values == sorted(values, reverse=True)
    places = order(placed)
    assert all(places.index(one) < places.index(id_) for id_, listed in newer_of.items() for one in listed)
