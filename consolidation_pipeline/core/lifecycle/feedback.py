"""Feedback: its effect on the importance of a memory, and the usefulness that the votes of its readers add up to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

# Two helpful ratings raise the default importance of 0.5 to 0.7. From 0.7 on, a memory is not forgotten.
IMPORTANCE_STEP = 0.1
MAX_IMPORTANCE = 1.0

# Votes of the last days count. The ledger, which tells if feedback was undone, is kept at least as long.
VOTE_DAYS = 90
# Weight of a vote on a memory that the voter wrote, against 1 on any other.
OWN_WEIGHT = 0.25
# Cosines of two queries at which a vote for one begins to count for the other, and counts in full. What helped for one
# question misleads for another that only resembles it. Measured: docs/quality.md.
RELATED_QUERIES, SAME_QUERIES = 0.70, 0.95
# Weight of a vote of which the query is not known (of the part that others wrote: nobody raises all of its own memories
# for every query), and of a vote that a memory did not help, whatever was asked.
UNKNOWN_QUERY_WEIGHT, UNHELPFUL_WEIGHT = 0.5, 1.0
# Days of votes after which a voter has half of its weight, so that one mistake counts little.
_HALF_DAYS = 3.0
# Sum of the weights of independent voters at which the usefulness is 1/2.
_HALF_VOTERS = 2.0

Id = TypeVar("Id", bound=Hashable)


@dataclass(frozen=True)
class Votes(Generic[Id]):
    """Votes of one voter on one memory.

    ``net_days``: days on which the memory helped the voter, less those on which it did not; each counts as far as its
    query was like the one that is asked now. ``own_share``: share of the memory's sources that the voter wrote, 0 to 1.
    """

    memory_id: Id
    voter: str
    net_days: float
    own_share: float


def adjust_importance(importance: float, *, helpful: bool) -> float:
    """Return the importance after one rating: ``IMPORTANCE_STEP`` higher or lower, between 0 and 1.

    An importance above 1, which people may set, is not lowered by a helpful rating.
    """
    if helpful:
        return max(importance, min(MAX_IMPORTANCE, round(importance + IMPORTANCE_STEP, 6)))
    return max(0.0, round(importance - IMPORTANCE_STEP, 6))


def compute_usefulness(votes: Iterable[Votes[Id]]) -> dict[Id, float]:
    """Return the usefulness of each memory with votes, between -1 and 1; positive if it helped::

        usefulness = s / (|s| + 2),  s = sum over the voters of weight * days / (|days| + 3)

    However often one voter votes, its part of ``s`` stays below its weight: 1, or down to 0.25 for what it wrote. So
    one voter moves the usefulness by at most 1/3 alone, and that of its own memory by at most 1/9.
    """
    parts: dict[Id, list[float]] = defaultdict(list)
    for vote in votes:
        weight = 1.0 - (1.0 - OWN_WEIGHT) * vote.own_share
        parts[vote.memory_id].append(weight * vote.net_days / (abs(vote.net_days) + _HALF_DAYS))
    # Sorted, so that the order of the voters does not matter.
    sums = {id_: sum(sorted(terms)) for id_, terms in parts.items()}
    return {id_: total / (abs(total) + _HALF_VOTERS) for id_, total in sums.items()}
