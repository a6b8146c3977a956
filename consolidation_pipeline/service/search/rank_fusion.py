"""The two legs of a search made one ranking."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from consolidation_pipeline.core.search.ranking import reciprocal_rank_fusion, weighted_z_scores

# So many memories each leg lists, best first.
CANDIDATES = 200
FUSIONS = ("rrf", "zscore")
# Measured: docs/quality.md.
DEFAULT = "zscore"

# Weights of meaning and of words.
_RANK_WEIGHTS = (0.6, 0.4)
_SCORE_WEIGHTS = (0.4, 0.6)

# Standard deviations by which a pattern must answer better than a memory to stand before it: it is short and of the
# topic, so it scores high, and says less than what it rests on. Measured: docs/quality.md.
_HANDICAP = 0.5


@dataclass(frozen=True)
class Legs:
    """Cosines and scores of words, each by id, best first; ``abstract``: those of them of level 2 and above."""

    similar: Mapping[str, float]
    matching: Mapping[str, float]
    abstract: Collection[str] = ()

    def explain(self, id_: str) -> str:
        """Why a memory was found, in words."""
        told = []
        for leg, by in ((self.similar, "meaning"), (self.matching, "words")):
            if id_ in leg:
                place = list(leg).index(id_) + 1
                how = f"similarity {leg[id_]:.3f}" if by == "meaning" else f"score {leg[id_]:.2f}"
                told.append(f"number {place} of {len(leg)} by {by} ({how})")
            else:
                told.append(f"not found by {by}")
        return ", ".join(told)


def fuse(legs: Legs, fusion: str) -> list[tuple[str, float]]:
    """Ids of both legs with a score, highest first, ties by id.

    ``rrf``: reciprocal ranks. ``zscore``: standardised scores, where a memory without a common word has the score 0 and
    one that was not found by meaning the lowest cosine that was. What is abstract gives way to a memory that answers
    about as well. Brought between 0 and 1 by the logistic function.
    """
    if (DEFAULT if fusion == "default" else fusion) == "rrf":
        return reciprocal_rank_fusion([list(legs.similar), list(legs.matching)], _RANK_WEIGHTS)
    scored = weighted_z_scores(
        [legs.similar, legs.matching], _SCORE_WEIGHTS, [min(legs.similar.values(), default=0.0), 0.0]
    )
    handicapped = ((id_, score - _HANDICAP if id_ in legs.abstract else score) for id_, score in scored)
    ranked = sorted(handicapped, key=lambda pair: (-pair[1], pair[0]))
    return [(id_, 1 / (1 + math.exp(-score))) for id_, score in ranked]
