"""Older memories that a newer one may make outdated, for a judge to read: near by vectors, or with its rare words."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.core.knowledge.claim_table import MAX_SENTENCES_OF_WORD, ClaimTable, count_words
from consolidation_pipeline.core.vectors import find_positions

Vectors = NDArray[np.float32]
Integers = NDArray[np.int64]
Scores = NDArray[np.floating[Any]]

# Memories of each list that are fused, and the damping of their reciprocal ranks (Cormack, Clarke and Büttcher, 2009).
_LISTED, _DAMPING = 50, 60


class CandidateMemories(NamedTuple):
    """Memories with a known date, arrays of shape (n,).

    ``vectors`` float32 (n, d), normalised. ``texts``: numbers, equal for exact repeats. ``hashes``: uint64, of the
    texts as in a claim table. ``scopes``: equal for memories of one scope. ``learned_at``: ranks of the instants at
    which they were learned. ``is_judged``: the judge was asked about it as the newer one.
    """

    vectors: Vectors
    texts: Integers
    hashes: NDArray[np.uint64]
    scopes: Integers
    learned_at: Integers
    is_judged: NDArray[np.bool_]

    def select(self, rows: Integers) -> CandidateMemories:
        """Return the memories at ``rows``."""
        chosen: Any = [column[rows] for column in self]
        return CandidateMemories(*chosen)


def list_candidates(
    memories: CandidateMemories, asking: Integers, claims: ClaimTable, *, most: int
) -> dict[int, list[int]]:
    """Return for newer memories the older ones of its scope to be judged, by row, the best first.

    The best are those with the highest cosine and those that have a sentence with the rarest words of one of its own,
    by reciprocal ranks. A memory that comes late, with others that are newer and judged, is listed as an older one of
    the best of these.

    Args:
        memories: All memories of the scopes of ``asking``.
        asking: Rows (q,) of the memories to ask about.
        claims: Sentences of their texts; a text that is not among them is found by its vector alone.
        most: Number of older memories of each one, and of newer ones that are judged.
    """
    found: defaultdict[int, list[int]] = defaultdict(list)
    for scope in np.unique(memories.scopes[asking]).tolist():
        rows = np.flatnonzero(memories.scopes == scope)
        members, words = memories.select(rows), _SentenceWords(memories.select(rows), claims)
        chosen = find_positions(rows, asking[memories.scopes[asking] == scope])
        cosines = members.vectors[chosen] @ members.vectors.T
        for at, cosine in zip(chosen.tolist(), cosines, strict=True):
            scores, is_other = (cosine, words.score(at)), members.texts != members.texts[at]
            earlier = is_other & (members.learned_at < members.learned_at[at])
            found[int(rows[at])] += rows[_choose_best(members, scores, earlier, most)].tolist()
            later = is_other & (members.learned_at > members.learned_at[at]) & members.is_judged
            for newer in rows[_choose_best(members, scores, later, most)].tolist():
                found[newer].append(int(rows[at]))
    return {newer: list(dict.fromkeys(older)) for newer, older in found.items() if older}


def _choose_best(
    members: CandidateMemories, scores: tuple[Scores, ...], allowed: NDArray[np.bool_], most: int
) -> Integers:
    """Return the rows of the best ``allowed`` members with different texts; of exact repeats the latest."""
    fused = np.zeros(len(allowed))
    for score in scores:
        rows = np.flatnonzero(allowed & (score > 0))
        order = rows[np.lexsort((rows, -members.learned_at[rows], -np.round(score[rows], 5)))]
        listed = order[np.sort(np.unique(members.texts[order], return_index=True)[1])[:_LISTED]]
        fused[listed] += 1 / (_DAMPING + np.arange(1, len(listed) + 1))
    best = np.argsort(-fused, kind="stable")[:most]
    return best[fused[best] > 0]


class _SentenceWords:
    """Rare words of the sentences of some memories."""

    def __init__(self, members: CandidateMemories, claims: ClaimTable) -> None:
        from scipy.sparse import diags_array

        # Of exact repeats, one is in the table.
        of_text = np.full(members.texts.max(initial=-1) + 1, -1, np.int64)
        np.maximum.at(of_text, members.texts, find_positions(claims.texts["text"], members.hashes))
        rows = of_text[members.texts]
        known = np.flatnonzero(rows >= 0)
        own = claims.select(rows[known])
        self._memory = np.repeat(known, own.texts["count"])  # of each sentence
        self._size = len(rows)
        self._words, counts = count_words(own.words, own.claims["size"].astype(np.int64))
        weights = np.log((1 + len(own.claims)) / np.maximum(counts, 1))
        self._weighted = (self._words @ diags_array(np.where(counts <= MAX_SENTENCES_OF_WORD, weights, 0.0))).T.tocsr()

    def score(self, row: int) -> Scores:
        """Return for each memory (n,) the weight of the words that a sentence of it shares with one of ``row``."""
        shared = (self._words[np.flatnonzero(self._memory == row)] @ self._weighted).tocoo()
        scores = np.zeros(self._size)
        np.maximum.at(scores, self._memory[shared.coords[1]], shared.data)
        return scores
