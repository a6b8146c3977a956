"""Sentences of groups of texts, ranked by how much of its group each one says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.core.conflicts.literals import literals
from consolidation_pipeline.core.memories.memories import normalize_text
from consolidation_pipeline.core.text.key_terms import NO_BACKGROUND, Background, count_terms, read_terms
from consolidation_pipeline.core.text.sentences import Sentence, read_sentences

# A sentence with this share of its (squared) weight in terms of another one repeats it, unless it names a fact more.
_COVERED = 0.8
# Maximal marginal relevance (Carbonell and Goldstein 1998): the share of relevance against that of novelty.
_RELEVANCE = 0.7
# Of more than these, the least central ones are never chosen anyway; a bound keeps their products small.
_MOST_CANDIDATES = 64
# Scores are compared to this many decimals, as more is rounding noise.
_DECIMALS = 9


@dataclass(frozen=True)
class RankedSentence:
    """A sentence of the text at position ``text`` of its group; the higher its ``score``, the more central it is.

    ``row`` is its row among the term vectors.
    """

    sentence: Sentence
    text: int
    score: float
    row: int

    @property
    def order(self) -> tuple[float, str, int]:
        """What sentences are sorted by: best first, then by what they say."""
        return -round(self.score, _DECIMALS), self.sentence.text, self.text


@dataclass(frozen=True, eq=False)
class SentenceRanking:
    """The sentences of one group, best first; ``vectors`` (rows, terms): sparse, L2-normalised."""

    sentences: tuple[RankedSentence, ...]
    vectors: Any

    def choose(self, candidates: Iterable[RankedSentence], *, most: int, max_chars: int) -> list[RankedSentence]:
        """At most ``most`` of the candidates, in ``max_chars`` characters with a line break between them.

        Greedy by maximal marginal relevance: central, and not what was said already; a second sentence of one text
        counts as if it were. The first one is taken whatever its length.
        """
        best = sorted(candidates, key=lambda ranked: ranked.order)[:_MOST_CANDIDATES]
        if not best:
            return []
        (cosines, covered), texts = self._compared(best), np.array([ranked.text for ranked in best])
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
            is_open[_repeats(best, at, covered[at])] = False
        return chosen

    def _compared(self, ranked: Sequence[RankedSentence]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Cosines (n, n), and the share of each column's sentence that the row's covers: above 1 for equal wording."""
        vectors = _dense(self.vectors, [one.row for one in ranked])
        forms = np.array([normalize_text(one.sentence.text) for one in ranked])
        covered = (vectors > 0).astype(np.float64) @ (vectors**2).T
        return vectors @ vectors.T, np.where(forms[:, None] == forms, 2.0, covered)


def rank_sentences(
    groups: Sequence[Sequence[str]],
    weights: Sequence[Sequence[float]] | None = None,
    *,
    boilerplate: Collection[str] = (),
    context: Sequence[bool] | None = None,
    background: Background = NO_BACKGROUND,
) -> list[SentenceRanking]:
    """The sentences of each group of texts, by how much of the group's other texts each says, and how well it reads.

    Score = ``Sentence.worth`` times the mean cosine of the sentence with the other texts of its group, each text
    counted by its weight (1 unless given); of a lone text, with the text itself. Terms weigh
    ln((1 + n) / (1 + df)) + 1, df of the n texts of ``context`` having it: of these groups, all unless given, and of
    the ``background``. One pass over all groups; neither the order of the groups nor, but for ``Ranked.text``, that of
    the texts matters, and a group outside of the context matters to none but itself. A blank text has no sentences;
    those in ``boilerplate`` (``boilerplate.find_boilerplate``) are left out of every text that holds anything else.
    """
    said = _normal_sentences(boilerplate)
    read = [[_read(text, said) for text in group] for group in groups]
    sizes = np.array([len(sentences) for group in read for sentences in group], dtype=np.int64)
    text_of = np.repeat(np.arange(len(sizes)), sizes)
    group_of_text = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    flat = [sentence for group in read for sentences in group for sentence in sentences]
    weight = np.ones(len(sizes)) if weights is None else np.array([w for group in weights for w in group], dtype=float)
    counted = np.ones(len(groups), dtype=bool) if context is None else np.array(context, dtype=bool)
    places = _Places(text_of, group_of_text, counted, background)
    scores, vectors = _score([sentence.text for sentence in flat], places, weight)
    scores = scores * np.array([sentence.worth for sentence in flat])
    first = np.searchsorted(group_of_text, np.arange(len(groups)))
    ranked = [
        RankedSentence(sentence, int(text - first[group_of_text[text]]), score, row)
        for row, (sentence, text, score) in enumerate(zip(flat, text_of.tolist(), scores.tolist(), strict=True))
    ]
    ends = np.searchsorted(group_of_text[text_of], np.arange(len(groups) + 1))
    return [
        SentenceRanking(tuple(sorted(ranked[start:end], key=lambda one: one.order)), vectors)
        for start, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)
    ]


def count_background(groups: Sequence[Sequence[str]], *, boilerplate: Collection[str] = ()) -> Background:
    """What ``rank_sentences`` and ``key_terms`` ask of groups that are only to tell how rare a term is."""
    said, texts = _normal_sentences(boilerplate), [text for group in groups for text in group]
    terms = ({term.stem for one in _read(text, said) for term in read_terms(one.text)} for text in texts)
    return Background(len(groups), len(texts), Counter(chain.from_iterable(terms)))


def _normal_sentences(texts: Iterable[str]) -> set[str]:
    return {normalize_text(sentence.text) for text in texts for sentence in read_sentences(text)}


def _read(text: str, boilerplate: Collection[str]) -> list[Sentence]:
    sentences = read_sentences(text)
    own = [one for one in sentences if normalize_text(one.text) not in boilerplate] if boilerplate else sentences
    return own or sentences


@dataclass(frozen=True, eq=False)
class _Places:
    """The text of each sentence, the group of each text, and what tells how rare a term is: some of these groups, and
    the ``background``.
    """

    text_of: NDArray[np.int64]
    group_of_text: NDArray[np.int64]
    context: NDArray[np.bool_]
    background: Background


def _score(sentences: Sequence[str], places: _Places, weight: NDArray[np.float64]) -> tuple[NDArray[np.float64], Any]:
    """Mean cosine (rows,) of each sentence with the other texts of its group, and the sentences' vectors."""
    from scipy.sparse import csr_array

    text_of, group_of_text = places.text_of, places.group_of_text
    counts, terms = count_terms(sentences)
    rows, texts, groups = len(sentences), len(group_of_text), int(group_of_text.max(initial=-1)) + 1
    of_text = csr_array((np.ones(rows), (text_of, np.arange(rows))), shape=(texts, rows))
    of_group = csr_array((weight, (group_of_text, np.arange(texts))), shape=(groups, texts))
    held = of_text @ counts
    context = held[places.context[group_of_text]]
    having = np.bincount(context.nonzero()[1], minlength=held.shape[1])
    having[: len(terms)] += np.array([places.background.frequency.get(term, 0) for term in terms], dtype=np.int64)
    idf = np.log((1 + context.shape[0] + places.background.texts) / (1 + having)) + 1
    vectors, wholes = (_normalised(part.log1p().multiply(idf)) for part in (counts, held))
    centres, group_of = of_group @ wholes, group_of_text[text_of]
    own = np.asarray(vectors.multiply(wholes[text_of]).sum(axis=1))
    all_texts = np.asarray(vectors.multiply(centres[group_of]).sum(axis=1))
    total = (of_group @ np.ones(texts))[group_of]
    others = total - weight[text_of]
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (all_texts - weight[text_of] * own) / others
    speaking = np.bincount(group_of_text, weights=np.bincount(text_of, minlength=texts) > 0, minlength=groups)
    return np.where(speaking[group_of] == 1, own, mean), vectors


def _normalised(matrix: Any) -> Any:
    """The rows divided by their length; a row of zeros stays."""
    from scipy.sparse import diags_array

    rows = matrix.tocsr()
    length = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)))
    return diags_array(1.0 / np.where(length > 0, length, 1.0)).tocsr() @ rows


def _dense(vectors: Any, rows: Sequence[int]) -> NDArray[np.float64]:
    """These few rows of a sparse matrix, without the columns in which all are 0."""
    start, end = vectors.indptr[rows], vectors.indptr[[row + 1 for row in rows]]
    at = np.concatenate([np.arange(a, b) for a, b in zip(start.tolist(), end.tolist(), strict=True)])
    columns, place = np.unique(vectors.indices[at], return_inverse=True)
    dense = np.zeros((len(rows), len(columns)))
    dense[np.repeat(np.arange(len(rows)), end - start), place] = vectors.data[at]
    return dense


def _repeats(ranked: Sequence[RankedSentence], at: int, covered: NDArray[np.float64]) -> list[int]:
    """Positions of the sentences that say nothing beyond what the one at ``at`` says."""
    near = np.flatnonzero(covered >= _COVERED).tolist()
    known = literals(ranked[at].sentence.text) if len(near) > 1 else frozenset()
    return [other for other in near if covered[other] > 1.5 or literals(ranked[other].sentence.text) <= known]
