"""Search for supersessions among all memories of a project; the result does not depend on their order."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.core.knowledge.judged_claims import JudgedClaims
from consolidation_pipeline.core.knowledge.supersession import (
    Revision,
    Supersession,
    Writer,
    choose_revision,
    judge_revision,
    split_claims,
)
from consolidation_pipeline.core.memories.memories import normalize_text
from consolidation_pipeline.core.text.word_overlap import extract_content_words

# Sentences without change words are compared if they share this part of the words of the longer one.
_SHARED_WORDS = 0.6
# A sentence with change words is compared with so many others, those with which it shares the rarest words.
_MAX_COMPARED = 12
# Words of more sentences tell little of a matter.
_MAX_SENTENCES_OF_WORD = 500
# A text that comes with more values than this is a series of measurements or events, and no changing fact.
_MAX_VALUES = 5
# Sentences with more words than this are lists or logs.
_MAX_WORDS = 60

_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True)
class DatedMemory:
    """A memory with a known date. ``scope``: equal for memories of one scope."""

    id: UUID
    text: str
    learned_at: datetime
    writer: Writer
    scope: str = ""


class FoundSupersession(NamedTuple):
    """The memory ``newer_id`` supersedes the memory ``older_id``."""

    newer_id: UUID
    older_id: UUID
    found: Supersession


class ComparedScope(NamedTuple):
    """Memories of one scope. ``judged``: what is known of their texts, see ``JudgedClaims``."""

    memories: Sequence[DatedMemory]
    judged: bytes


class ScopeResult(NamedTuple):
    """Supersessions in one scope. ``judged``: what is known of its texts by now."""

    found: list[FoundSupersession]
    judged: bytes


# Applies a function to each scope, in order, as ``map`` does.
Apply = Callable[[Callable[[ComparedScope], ScopeResult], Iterable[ComparedScope]], Iterable[ScopeResult]]


def find_supersessions(
    memories: Iterable[DatedMemory], *, judged: Mapping[str, bytes] | None = None, apply: Apply = map
) -> tuple[list[FoundSupersession], dict[str, bytes]]:
    """Return which memories supersede which, sorted by ids, and what is known of the texts of each scope.

    Of several versions of one fact, each supersedes the version before. What comes with more than five values is a
    series of measurements and is superseded only by change words.

    Args:
        memories: In any order.
        judged: What an earlier call by the same version of the program returned, by scope. It changes no result.
        apply: Compares the scopes, which are independent of each other.
    """
    scopes: defaultdict[str, list[DatedMemory]] = defaultdict(list)
    for memory in memories:
        scopes[memory.scope].append(memory)
    # Memories of one instant, such as those of an import without dates, do not supersede each other.
    names = [name for name, scope in scopes.items() if len({memory.learned_at for memory in scope}) > 1]
    known = judged or {}
    results = list(apply(_find_in_scope, (ComparedScope(scopes[name], known.get(name, b"")) for name in names)))
    found = sorted((one for result in results for one in result.found), key=lambda one: (one.newer_id, one.older_id))
    return found, {name: result.judged for name, result in zip(names, results, strict=True)}


def _find_in_scope(scope: ComparedScope) -> ScopeResult:
    versions: defaultdict[str, list[DatedMemory]] = defaultdict(list)
    for memory in sorted(scope.memories, key=lambda one: (one.learned_at, one.id)):
        versions[normalize_text(memory.text)].append(memory)
    groups = [versions[form] for form in sorted(versions)]
    judged = JudgedClaims(scope.judged)
    texts = [(group[0].text, group[0].learned_at, group[-1].learned_at) for group in groups]
    revisions = _find_revisions(texts, judged)
    links = {
        (new.id, old.id): judge_revision(revision, old.writer, new.writer)
        for (was, now), revision in revisions.items()
        for old, new in _pair_in_time(groups[was], groups[now])
    }
    found = [FoundSupersession(newer, older, links[newer, older]) for newer, older in _drop_indirect(links)]
    return ScopeResult(found, judged.to_bytes())


class _Sentence(NamedTuple):
    text: str
    group: int
    words: frozenset[str]
    is_change: bool


def _find_revisions(
    texts: Sequence[tuple[str, datetime, datetime]], judged: JudgedClaims
) -> dict[tuple[int, int], Revision]:
    """Return the revision of one text by another, by their positions (older, newer).

    Args:
        texts: Text with the dates of its first and last memory.
        judged: Reads and compares the sentences, if that was not done before.
    """
    claims_of = [split_claims(text) for text, _, _ in texts]
    sentences = [
        _Sentence(claim, group, extract_content_words(_DIGITS.sub(" ", claim)), is_change)
        for group, claims in enumerate(claims_of)
        for claim, is_change in zip(claims, judged.tell_changes(texts[group][0], claims), strict=True)
    ]
    sentences = [one for one in sentences if 0 < len(one.words) <= _MAX_WORDS]
    series = _find_series(sentences)
    same = [frozenset(claims) for claims in claims_of]
    found: defaultdict[tuple[int, int], list[Revision]] = defaultdict(list)
    for i, j in sorted(_propose_pairs(sentences, series)):
        for was, now in ((sentences[i], sentences[j]), (sentences[j], sentences[i])):
            if was.group == now.group or texts[was.group][1] >= texts[now.group][2]:
                continue
            if now.text in same[was.group] or was.text in same[now.group]:
                continue
            if revision := judged.revise(was.text, now.text):
                found[was.group, now.group].append(revision)
    chosen = {pair: choose_revision(revisions) for pair, revisions in found.items()}
    return _drop_series({pair: revision for pair, revision in chosen.items() if revision})


def _find_series(sentences: Sequence[_Sentence]) -> set[int]:
    """Return the sentences that are one text with many different numbers."""
    forms: defaultdict[str, set[str]] = defaultdict(set)
    places: defaultdict[str, list[int]] = defaultdict(list)
    for at, sentence in enumerate(sentences):
        form = _DIGITS.sub("0", sentence.text.lower())
        forms[form].add(sentence.text)
        places[form].append(at)
    return {at for form, texts in forms.items() if len(texts) > _MAX_VALUES for at in places[form]}


def _propose_pairs(sentences: Sequence[_Sentence], series: set[int]) -> set[tuple[int, int]]:
    """Return the pairs of sentences, by position, that may be about one matter."""
    matrix, counts = _build_matrix(sentences)
    pairs = set(_propose_alike(sentences, matrix, counts, series))
    pairs |= _propose_changes(sentences, matrix, counts)
    return pairs


def _build_matrix(sentences: Sequence[_Sentence]) -> tuple[Any, NDArray[np.int64]]:
    """Return the words of sentences as a sparse matrix of ones (n, v), and the number of sentences of each (v,)."""
    from scipy.sparse import csr_array

    numbers: dict[str, int] = {}
    rows: list[int] = []
    columns: list[int] = []
    for at, sentence in enumerate(sentences):
        rows += [at] * len(sentence.words)
        columns += [numbers.setdefault(word, len(numbers)) for word in sorted(sentence.words)]
    shape = len(sentences), max(1, len(numbers))
    matrix = csr_array((np.ones(len(rows), np.float32), (rows, columns)), shape=shape)
    return matrix, np.bincount(np.array(columns, np.int64), minlength=shape[1])


def _propose_alike(
    sentences: Sequence[_Sentence], matrix: Any, counts: NDArray[np.int64], series: set[int]
) -> Iterator[tuple[int, int]]:
    """Yield the pairs of sentences with enough words in common.

    Two such sentences share one of the rarest words of each: of n words, the n - 0.6 n + 1 rarest.
    """
    from scipy.sparse import csr_array

    sizes = np.diff(matrix.indptr)
    rows, words = np.repeat(np.arange(len(sentences)), sizes), matrix.indices
    order = np.lexsort((words, counts[words], rows))
    # Rows keep their places in this order; inside a row, the rarest words are the first.
    rows, words, places = rows[order], words[order], np.arange(len(rows)) - matrix.indptr[rows]
    is_taken = places <= sizes[rows] - np.ceil(_SHARED_WORDS * sizes[rows])
    is_taken &= (counts[words] <= _MAX_SENTENCES_OF_WORD) & ~np.isin(rows, list(series))
    rows, words = rows[is_taken], words[is_taken]
    prefixes = csr_array((np.ones(len(rows), np.float32), (rows, words)), shape=matrix.shape)
    shared = (prefixes @ prefixes.T).tocoo()
    i, j = shared.coords
    above = i < j
    i, j = i[above], j[above]
    for start in range(0, len(i), 100_000):
        a, b = i[start : start + 100_000], j[start : start + 100_000]
        common = matrix[a].multiply(matrix[b]).sum(axis=1)
        enough = common >= _SHARED_WORDS * np.maximum(sizes[a], sizes[b])
        yield from zip(a[enough].tolist(), b[enough].tolist(), strict=True)


def _propose_changes(sentences: Sequence[_Sentence], matrix: Any, counts: NDArray[np.int64]) -> set[tuple[int, int]]:
    """Return the pairs of a sentence with change words and those with which it shares the rarest words."""
    from scipy.sparse import diags_array

    changed = [at for at, sentence in enumerate(sentences) if sentence.is_change]
    weights = np.where(counts <= _MAX_SENTENCES_OF_WORD, np.log((1 + len(sentences)) / counts), 0.0)
    pairs = set()
    for start in range(0, len(changed), 500):
        part = changed[start : start + 500]
        shared = (matrix[part] @ diags_array(weights) @ matrix.T).tocsr()
        for at, row in zip(part, pairwise(shared.indptr.tolist()), strict=True):
            others, scores = shared.indices[slice(*row)], shared.data[slice(*row)]
            order = np.lexsort((others, -np.round(scores, 6)))
            near = [other for other in others[order[: _MAX_COMPARED + 1]].tolist() if other != at]
            pairs |= {(min(at, other), max(at, other)) for other in near}
    return pairs


def _drop_series(revisions: Mapping[tuple[int, int], Revision]) -> dict[tuple[int, int], Revision]:
    """Drop the revisions without change words among texts that come with many values."""
    parent: dict[int, int] = {}

    def find(text: int) -> int:
        while parent.setdefault(text, text) != text:
            text = parent[text]
        return text

    implicit = [pair for pair, revision in revisions.items() if not revision.is_explicit]
    for was, now in implicit:
        parent[find(now)] = find(was)
    sizes: defaultdict[int, int] = defaultdict(int)
    for text in list(parent):
        sizes[find(text)] += 1
    return {
        pair: revision
        for pair, revision in revisions.items()
        if revision.is_explicit or sizes[find(pair[0])] <= _MAX_VALUES
    }


def _pair_in_time(
    older: Sequence[DatedMemory], newer: Sequence[DatedMemory]
) -> Iterator[tuple[DatedMemory, DatedMemory]]:
    """Yield each memory of ``newer`` with the last one of ``older`` before it, unless another newer one is between.

    Both are sorted by date. Memories of one instant do not supersede each other.
    """
    days, later = [one.learned_at for one in older], [one.learned_at for one in newer]
    for at, memory in enumerate(newer):
        before = bisect_left(days, memory.learned_at)
        if not before:
            continue
        last = older[before - 1]
        if at == bisect_right(later, last.learned_at):
            yield last, memory


def _drop_indirect(links: Mapping[tuple[UUID, UUID], Supersession]) -> list[tuple[UUID, UUID]]:
    """Return the links without those that two others of at least the same strength make superfluous."""
    older_of: defaultdict[UUID, set[UUID]] = defaultdict(set)
    for newer, older in links:
        older_of[newer].add(older)
    return [
        (newer, older)
        for newer, older in links
        if not any(
            older in older_of[between]
            and links[newer, older].confidence <= links[newer, between].confidence
            and links[newer, older].confidence <= links[between, older].confidence
            for between in older_of[newer] & older_of.keys()
        )
    ]
