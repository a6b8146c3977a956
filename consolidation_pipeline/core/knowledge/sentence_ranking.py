"""Rank the sentences of groups of texts by their centrality, and choose sentences that do not repeat each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.core.literals.literals import literals
from consolidation_pipeline.core.memories.memories import normalize_text
from consolidation_pipeline.core.text.key_terms import BackgroundTerms, count_terms, extract_terms, normalize_rows
from consolidation_pipeline.core.text.sentences import Sentence, extract_sentences

# A sentence repeats another if the other's terms have this share of its squared weight, and it adds no literal.
_COVERED = 0.8
# Maximal marginal relevance (Carbonell and Goldstein 1998): weight of relevance; the rest is the weight of novelty.
_RELEVANCE = 0.7
# Candidates that are compared. Less central ones would not be chosen; the bound keeps the matrices small.
_MAX_CANDIDATES = 64
# Scores are compared to this many decimals; further ones are rounding noise.
_DECIMALS = 9


@dataclass(frozen=True)
class RankedSentence:
    """A sentence with its centrality.

    ``text``: position of its text in the group. ``score``: higher is more central. ``row``: its row of the group's term
    vectors.
    """

    sentence: Sentence
    text: int
    score: float
    row: int

    @property
    def order(self) -> tuple[float, str, int]:
        """Sort key: best first; ties: by the words."""
        return -round(self.score, _DECIMALS), self.sentence.text, self.text


@dataclass(frozen=True, eq=False)
class SentenceRanking:
    """The sentences of one group, best first. ``vectors``: sparse term vectors (rows, terms), L2-normalised."""

    sentences: tuple[RankedSentence, ...]
    vectors: Any

    def choose(self, candidates: Iterable[RankedSentence], *, most: int, max_chars: int) -> list[RankedSentence]:
        """Return at most ``most`` of the candidates, of ``max_chars`` characters in all with a line break in between.

        Greedy choice by maximal marginal relevance: central, and unlike the sentences chosen before. A second sentence
        of the same text counts as a repetition. The first sentence is taken whatever its length.
        """
        best = sorted(candidates, key=lambda ranked: ranked.order)[:_MAX_CANDIDATES]
        if not best:
            return []
        (cosines, covered), texts = self._compare(best), np.array([ranked.text for ranked in best])
        scores, nearest = np.array([ranked.score for ranked in best]), np.zeros(len(best))
        scores = scores / max(scores.max(), np.finfo(np.float64).tiny)
        is_open = np.ones(len(best), dtype=bool)
        chosen: list[RankedSentence] = []
        room = max_chars
        while len(chosen) < most and is_open.any():
            values = np.round(_RELEVANCE * scores - (1 - _RELEVANCE) * nearest, _DECIMALS)
            at = int(np.argmax(np.where(is_open, values, -np.inf)))
            is_open[at] = False
            if chosen and len(best[at].sentence.text) >= room:
                continue
            chosen.append(best[at])
            room -= len(best[at].sentence.text) + 1
            nearest = np.maximum(nearest, np.where(texts == texts[at], 1.0, cosines[at]))
            is_open[_find_repeats(best, at, covered[at])] = False
        return chosen

    def _compare(self, ranked: Sequence[RankedSentence]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return cosines (n, n), and the share (n, n) of each column's sentence that the row's covers; 2 if equal."""
        vectors = _dense(self.vectors, [one.row for one in ranked])
        forms = np.array([normalize_text(one.sentence.text) for one in ranked])
        covered = (vectors > 0).astype(np.float64) @ (vectors**2).T
        return vectors @ vectors.T, np.where(forms[:, None] == forms, 2.0, covered)


def rank_sentences(
    groups: Sequence[Sequence[str]],
    weights: Sequence[Sequence[float]] | None = None,
    *,
    boilerplate: Collection[str] = (),
    background: BackgroundTerms | None = None,
) -> list[SentenceRanking]:
    """Rank the sentences of each group of texts by their similarity to the other texts and by their readability.

    The score is ``Sentence.readability`` times the mean cosine of the sentence with the other texts of its group,
    weighted by text; in a group of one text, the cosine with that text. The weight of a term is
    ln((1 + n) / (1 + df)) + 1, where df of the n texts of the background have it. The order of groups and texts does
    not matter, except for ``RankedSentence.text``. A blank text has no sentences.

    Args:
        groups: The texts of each group.
        weights: Weight of each text; None = 1.
        boilerplate: Sentences (``boilerplate.find_boilerplate``) to leave out of texts that hold anything else.
        background: Of a sample of texts (``count_background``); None = of those of the groups.
    """
    skipped = _normal_sentences(boilerplate)
    read = [[_read(text, skipped) for text in group] for group in groups]
    sizes = np.array([len(sentences) for group in read for sentences in group], dtype=np.int64)
    text_of = np.repeat(np.arange(len(sizes)), sizes)
    group_of_text = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    flat = [sentence for group in read for sentences in group for sentence in sentences]
    weight = np.ones(len(sizes)) if weights is None else np.array([w for group in weights for w in group], dtype=float)
    scores, vectors = _score([sentence.text for sentence in flat], text_of, group_of_text, weight, background)
    scores = scores * np.array([sentence.readability for sentence in flat])
    first = np.searchsorted(group_of_text, np.arange(len(groups)))
    ends = np.searchsorted(group_of_text[text_of], np.arange(len(groups) + 1))
    places, rows = text_of - first[group_of_text[text_of]], np.arange(len(flat)) - ends[group_of_text[text_of]]
    ranked = list(map(RankedSentence, flat, places.tolist(), scores.tolist(), rows.tolist()))
    return [
        SentenceRanking(tuple(sorted(ranked[start:end], key=lambda one: one.order)), vectors[start:end])
        for start, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)
    ]


def count_background(groups: Sequence[Sequence[str]], *, boilerplate: Collection[str]) -> BackgroundTerms:
    """Count the terms of a sample of groups, for ``rank_sentences`` and ``find_key_terms``."""
    skipped, texts = _normal_sentences(boilerplate), [text for group in groups for text in group]
    terms = ({term.stem for one in _read(text, skipped) for term in extract_terms(one.text)} for text in texts)
    return BackgroundTerms(len(groups), len(texts), Counter(chain.from_iterable(terms)))


def _normal_sentences(texts: Iterable[str]) -> set[str]:
    return {normalize_text(sentence.text) for text in texts for sentence in extract_sentences(text)}


def _read(text: str, boilerplate: Collection[str]) -> list[Sentence]:
    sentences = extract_sentences(text)
    own = [one for one in sentences if normalize_text(one.text) not in boilerplate] if boilerplate else sentences
    return own or sentences


def _score(
    sentences: Sequence[str],
    text_of: NDArray[np.int64],
    group_of_text: NDArray[np.int64],
    weight: NDArray[np.float64],
    background: BackgroundTerms | None,
) -> tuple[NDArray[np.float64], Any]:
    """Return the mean cosine (rows,) of each sentence with the other texts of its group, and the term vectors.

    ``text_of``: text of each sentence (rows,). ``group_of_text``: group of each text (texts,).
    """
    from scipy.sparse import csr_array

    counts, terms = count_terms(sentences)
    rows, texts, groups = len(sentences), len(group_of_text), int(group_of_text.max(initial=-1)) + 1
    of_text = csr_array((np.ones(rows), (text_of, np.arange(rows))), shape=(texts, rows))
    of_group = csr_array((weight, (group_of_text, np.arange(texts))), shape=(groups, texts))
    text_counts = of_text @ counts
    if background is None:
        known, having = texts, np.bincount(text_counts.nonzero()[1], minlength=text_counts.shape[1])
    else:
        known, having = background.texts, np.zeros(text_counts.shape[1], dtype=np.int64)
        having[: len(terms)] = [background.frequency[term] for term in terms]
    idf = np.log((1 + known) / (1 + having)) + 1
    vectors, text_vectors = (normalize_rows(part.log1p().multiply(idf)) for part in (counts, text_counts))
    centres, group_of = of_group @ text_vectors, group_of_text[text_of]
    own = np.asarray(vectors.multiply(text_vectors[text_of]).sum(axis=1))
    all_texts = np.asarray(vectors.multiply(centres[group_of]).sum(axis=1))
    total = (of_group @ np.ones(texts))[group_of]
    others = total - weight[text_of]
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (all_texts - weight[text_of] * own) / others
    speaking = np.bincount(group_of_text, weights=np.bincount(text_of, minlength=texts) > 0, minlength=groups)
    return np.where(speaking[group_of] == 1, own, mean), vectors


def _dense(vectors: Any, rows: Sequence[int]) -> NDArray[np.float64]:
    """Return these rows of a sparse matrix as a dense one, without the columns that are 0 in all of them."""
    start, end = vectors.indptr[rows], vectors.indptr[[row + 1 for row in rows]]
    at = np.concatenate([np.arange(a, b) for a, b in zip(start.tolist(), end.tolist(), strict=True)])
    columns, place = np.unique(vectors.indices[at], return_inverse=True)
    dense = np.zeros((len(rows), len(columns)))
    dense[np.repeat(np.arange(len(rows)), end - start), place] = vectors.data[at]
    return dense


def _find_repeats(ranked: Sequence[RankedSentence], at: int, covered: NDArray[np.float64]) -> list[int]:
    """Return the positions of the sentences that add nothing to the one at ``at``."""
    near = np.flatnonzero(covered >= _COVERED).tolist()
    known = literals(ranked[at].sentence.text) if len(near) > 1 else frozenset()
    return [other for other in near if covered[other] > 1.5 or literals(ranked[other].sentence.text) <= known]
