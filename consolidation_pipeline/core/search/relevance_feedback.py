"""Relevance feedback: memories like the best ones of a task are raised, by words and by common patterns."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from uuid import UUID

import numpy as np

from consolidation_pipeline.core.search.context_pieces import ContextPiece
from consolidation_pipeline.core.text.word_overlap import extract_content_words

# The best memories speak for the task if there is no doubt about them: so many standard deviations above the mean of
# the candidates, and at most so many of them. With less, wrong ones drag along others like them.
_CLEAR, _MAX_SPOKEN = 3.0, 3
# Standard deviations that a similarity of one standard deviation adds, and a pattern in common with all of the best.
# Measured: docs/quality.md.
_WORD_WEIGHT, _PATTERN_WEIGHT = 0.3, 0.85


def raise_similar(memories: Sequence[ContextPiece]) -> list[ContextPiece]:
    """Return raw and merged memories with scores that take the best ones into account, after Rocchio (1971).

    The words of the best memories are what the task is about beyond its own words. Each word is weighted by its rarity
    among the candidates. Memories of one pattern with some of the best are raised too, by the share of these in the
    score: a pattern of a single one may be of another matter.
    """
    memories = sorted(memories, key=lambda one: one.id)  # sums depend on the order
    spoken = sorted(memories, key=lambda one: (-one.z_score, one.id))[:_MAX_SPOKEN]
    spoken = [one for one in spoken if one.z_score >= _CLEAR]
    if not spoken:
        return memories
    words = {one.id: extract_content_words(one.text) for one in memories}
    frequency = Counter(word for found in words.values() for word in found)
    weights = {word: math.log1p(len(memories) / count) for word, count in frequency.items()}
    norms = {id_: math.sqrt(math.fsum(weights[word] ** 2 for word in found)) or 1.0 for id_, found in words.items()}
    center: defaultdict[str, float] = defaultdict(float)
    for one in spoken:
        for word in words[one.id]:
            center[word] += one.z_score * weights[word] / norms[one.id]
    similarity = np.array(
        [
            math.fsum(center[word] * weights[word] for word in words[one.id] if word in center) / norms[one.id]
            for one in memories
        ]
    )
    spread = similarity.std()
    standard = (similarity - similarity.mean()) / spread if spread > 0 else np.zeros(len(memories))
    shares: defaultdict[UUID, float] = defaultdict(float)
    total = math.fsum(one.z_score for one in spoken)
    for one in spoken:
        for pattern in one.pattern_ids:
            shares[pattern] += one.z_score / total
    raised = []
    for one, gain in zip(memories, standard.tolist(), strict=True):
        in_common = max((shares.get(pattern, 0.0) for pattern in one.pattern_ids), default=0.0)
        raised.append(one.with_z_score(one.z_score + _WORD_WEIGHT * gain + _PATTERN_WEIGHT * in_common))
    return raised
