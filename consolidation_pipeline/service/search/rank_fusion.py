"""Rank fusion: one ranking from the scores of the semantic and the keyword retriever."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from consolidation_pipeline.core.search.ranking import reciprocal_rank_fusion, weighted_z_scores

# Maximum number of memories that each retriever lists.
CANDIDATES = 200
FUSIONS = ("rrf", "zscore")
# Measured: docs/quality.md.
DEFAULT_FUSION = "zscore"

# Weights of the semantic and of the keyword retriever.
_RANK_WEIGHTS = (0.6, 0.4)
_SCORE_WEIGHTS = (0.4, 0.6)

# Standard deviations subtracted from the score of an abstract memory. It is short and on topic, so it scores high, but
# says less than the memories it was made from. Measured: docs/quality.md.
_ABSTRACT_PENALTY = 0.5


@dataclass(frozen=True)
class RetrieverScores:
    """Scores of the memories that each retriever found, by id, best first.

    ``semantic``: cosine similarities. ``keyword``: BM25 scores. ``abstract``: ids of level 2 and above among them.
    """

    semantic: Mapping[str, float]
    keyword: Mapping[str, float]
    abstract: Collection[str] = ()

    def explain(self, id_: str) -> str:
        """Return in words why a memory was found."""
        reasons = []
        retrievers = (self.semantic, "meaning", "similarity {:.3f}"), (self.keyword, "words", "score {:.2f}")
        for scores, by, score in retrievers:
            if id_ in scores:
                rank = list(scores).index(id_) + 1
                reasons.append(f"number {rank} of {len(scores)} by {by} ({score.format(scores[id_])})")
            else:
                reasons.append(f"not found by {by}")
        return ", ".join(reasons)


def fuse_scores(scores: RetrieverScores, fusion: str) -> list[tuple[str, float]]:
    """Return the ids that either retriever found, with a score between 0 and 1, highest first, ties by id.

    ``rrf`` is reciprocal rank fusion. ``zscore`` adds weighted z-scores, subtracts a penalty from abstract memories and
    applies the logistic function. A memory that only one retriever found gets from the other the lowest similarity
    found, or the keyword score 0. ``default`` is ``DEFAULT_FUSION``.
    """
    if (DEFAULT_FUSION if fusion == "default" else fusion) == "rrf":
        return reciprocal_rank_fusion([list(scores.semantic), list(scores.keyword)], _RANK_WEIGHTS)
    absent = [min(scores.semantic.values(), default=0.0), 0.0]
    z_scores = weighted_z_scores([scores.semantic, scores.keyword], _SCORE_WEIGHTS, absent)
    penalised = ((id_, z - _ABSTRACT_PENALTY if id_ in scores.abstract else z) for id_, z in z_scores)
    ranked = sorted(penalised, key=lambda pair: (-pair[1], pair[0]))
    return [(id_, 1 / (1 + math.exp(-z))) for id_, z in ranked]
