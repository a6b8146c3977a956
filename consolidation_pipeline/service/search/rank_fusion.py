"""Rank fusion: one ranking from the scores of the semantic and the keyword retriever."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from consolidation_pipeline.core.search.ranking import SCORE_WEIGHTS, reciprocal_rank_fusion, weighted_z_scores
from consolidation_pipeline.store.search.keyword_matches import KeywordMatches
from consolidation_pipeline.store.search.retrievers import ABSTRACT_KINDS, SemanticMatch

FUSIONS = ("rrf", "zscore")
# Measured: docs/quality.md.
DEFAULT_FUSION = "zscore"

# Weights of the ranks of the semantic and of the keyword retriever.
_RANK_WEIGHTS = (0.6, 0.4)

# Standard deviations subtracted from the score of an abstract memory. It is short and on topic, so it scores high, but
# says less than the memories it was made from. Measured: docs/quality.md.
_ABSTRACT_PENALTY = 2.0
# Share of a pattern's score that is added to the score of its members: the query is about what they have in common
# ("cluster-based smoothing", Liu and Croft 2004). Measured: docs/quality.md.
_PATTERN_SHARE = 0.2
# Standard deviations that the usefulness of a memory adds to its score, at most. Measured: docs/quality.md.
_USEFULNESS_WEIGHT = 2.0


@dataclass(frozen=True)
class RetrieverScores:
    """Scores of the memories that each retriever found, by id, best first.

    ``semantic``: cosine similarities. ``keyword``: BM25 scores. ``abstract``: ids of level 2 and above among them.
    ``members``: ids of the raw and merged memories of each pattern. ``usefulness``: of memories with votes, -1 to 1.
    ``word_shares``: shares of the query's words, of memories that have some; None = the query has no words.
    ``cosines``: similarities that are known of memories found by words, also of those too low for ``semantic``.
    """

    semantic: Mapping[str, float]
    keyword: Mapping[str, float]
    abstract: Collection[str] = ()
    members: Mapping[str, Collection[str]] = field(default_factory=dict)
    usefulness: Mapping[str, float] = field(default_factory=dict)
    word_shares: Mapping[str, float] | None = None
    cosines: Mapping[str, float] = field(default_factory=dict)

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
        if id_ in self.usefulness:
            reasons.append(f"usefulness {self.usefulness[id_]:+.2f} by the votes of its readers")
        return ", ".join(reasons)


def add_nearer(
    semantic: Sequence[SemanticMatch], matches: KeywordMatches, lowest: float, listed: int
) -> list[SemanticMatch]:
    """Return the nearest memories and those found by words that are as near, as an index on vectors misses some.

    ``lowest``: similarity below which nothing is added. ``listed``: number of raw and merged memories to return.
    """
    concrete = [match for match in semantic if match.kind not in ABSTRACT_KINDS]
    if len(concrete) >= listed:
        lowest = max(lowest, concrete[-1].similarity)
    known = {match.id for match in semantic}
    nearer = [
        SemanticMatch(id_, min(1.0, cosine), kind)
        for id_, cosine, kind in zip(matches.ids, matches.similarities, matches.kinds, strict=True)
        if cosine is not None and cosine >= lowest and id_ not in known and kind not in ABSTRACT_KINDS
    ]
    if not nearer:
        return list(semantic)
    kept = sorted([*concrete, *nearer], key=_nearest_first)[:listed]
    abstract = [match for match in semantic if match.kind in ABSTRACT_KINDS]
    return sorted([*kept, *abstract], key=_nearest_first)


def _nearest_first(match: SemanticMatch) -> tuple[float, str]:
    return -match.similarity, match.id


def fuse_scores(scores: RetrieverScores, fusion: str) -> list[tuple[str, float]]:
    """Return the ids that either retriever found, with a score between 0 and 1, highest first, ties by id.

    ``rrf`` is reciprocal rank fusion. ``zscore`` adds weighted z-scores and applies the logistic function. A memory
    that only one retriever found gets from the other the lowest similarity found, or the keyword score 0. Abstract
    memories change the z-scores of others only as patterns, which raise those of their members. The usefulness of a
    memory moves its z-score by at most ``_USEFULNESS_WEIGHT``. ``default`` is ``DEFAULT_FUSION``.
    """
    if (DEFAULT_FUSION if fusion == "default" else fusion) == "rrf":
        return reciprocal_rank_fusion([list(scores.semantic), list(scores.keyword)], _RANK_WEIGHTS)
    absent = [min(scores.semantic.values(), default=0.0), 0.0]
    listed = weighted_z_scores([scores.semantic, scores.keyword], SCORE_WEIGHTS, absent, outside=scores.abstract)
    if not (scores.abstract or scores.usefulness):
        return [(id_, 1 / (1 + math.exp(-z))) for id_, z in listed]
    z_scores, raised = dict(listed), dict(listed)
    for pattern, members in scores.members.items():
        for id_ in members:
            raised[id_] = max(raised[id_], z_scores[id_] + _PATTERN_SHARE * z_scores[pattern])
    for id_, usefulness in scores.usefulness.items():
        raised[id_] += _USEFULNESS_WEIGHT * usefulness
    penalised = ((id_, z - _ABSTRACT_PENALTY if id_ in scores.abstract else z) for id_, z in raised.items())
    ranked = sorted(penalised, key=lambda pair: (-pair[1], pair[0]))
    return [(id_, 1 / (1 + math.exp(-z))) for id_, z in ranked]
