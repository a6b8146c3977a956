"""Versions of a fact in a ranking: what superseded a memory is placed above it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence


def place_newer_first(
    ranked: Sequence[tuple[str, float]], newer_of: Mapping[str, Collection[str]]
) -> list[tuple[str, float]]:
    """Return a ranking in which every memory comes after those that supersede it.

    A newer memory that was ranked lower moves up to the place of the older one, with a score just above it. The rest
    keeps its order.

    Args:
        ranked: Ids with their scores, best first.
        newer_of: Ids of the newer versions, by the id of the older one. Ids that are not ranked are left out.
    """
    if not newer_of:
        return list(ranked)
    scores = dict(ranked)
    placed: dict[str, float] = {}

    def place(id_: str, above: frozenset[str]) -> None:
        if id_ in placed:
            return
        newer = [one for one in newer_of.get(id_, ()) if one in scores and one not in above]
        for one in sorted(newer, key=lambda one: (-scores[one], one)):
            place(one, above | {id_})
        placed[id_] = scores[id_]

    for id_, _ in ranked:
        place(id_, frozenset())
    return _raise_scores(list(placed.items()))


def _raise_scores(placed: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """Return a ranking in which no score is below, nor that of a moved memory equal to, the score after it."""
    raised: list[tuple[str, float]] = []
    best = -math.inf
    for id_, score in reversed(placed):
        best = score if score >= best else math.nextafter(best, math.inf)
        raised.append((id_, best))
    return raised[::-1]
