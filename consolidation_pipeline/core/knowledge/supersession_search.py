"""Search for supersessions among all memories of a project; the result does not depend on their order."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, groupby, pairwise
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.core.chunks import Apply, split_chunks
from consolidation_pipeline.core.grouping.union_find import unite
from consolidation_pipeline.core.knowledge.claim_table import (
    EXPLICIT,
    MAX_SENTENCES_OF_WORD,
    ClaimTable,
    KnownClaims,
    answer_pairs,
    combine_hashes,
    count_words,
    join_known,
    join_tables,
    list_answers,
    read_claims,
    to_revision,
)
from consolidation_pipeline.core.knowledge.supersession import (
    Revision,
    Supersession,
    Writer,
    choose_revision,
    follow_other_names,
    follow_other_subjects,
    judge_revision,
    say_same,
    split_claims,
    tells_past_month,
)
from consolidation_pipeline.core.vectors import find_positions

# Sentences without change words are compared if they share this part of the words of the longer one.
_SHARED_WORDS = 0.6
# A sentence with change words is compared with so many others, those with which it shares the rarest words.
_MAX_COMPARED = 12
# A text that comes with more values than this is a series of measurements or events, and no changing fact.
_MAX_VALUES = 5
# Sentences whose pairs are proposed at a time, and pairs whose words are counted at a time: about 100 MB.
_BLOCK_SENTENCES, _BLOCK_PAIRS = 2_000, 100_000
# Texts that are read, and pairs of sentences that are compared, at a time.
_PORTION_TEXTS, _PORTION_PAIRS = 500, 500

Integers = NDArray[np.int64]
Hashes = NDArray[np.uint64]

# Returns the texts of memories by id.
LoadTexts = Callable[[Sequence[UUID]], Mapping[UUID, str]]


@dataclass(frozen=True)
class DatedMemory:
    """A memory with a known date. ``scope``: equal for memories of one scope.

    ``content_hash`` is that of its text, ``normalized_hash`` that of the normal form: equal for exact repeats.
    """

    id: UUID
    content_hash: str
    normalized_hash: str
    learned_at: datetime
    writer: Writer
    scope: str = ""

    @property
    def text_hash(self) -> int:
        """Hash of its text in a claim table."""
        return int(self.content_hash[:16], 16)


class FoundSupersession(NamedTuple):
    """The memory ``newer_id`` supersedes the memory ``older_id``."""

    newer_id: UUID
    older_id: UUID
    found: Supersession


def find_supersessions(
    memories: Iterable[DatedMemory],
    load_texts: LoadTexts,
    *,
    known: Mapping[str, bytes] | None = None,
    apply: Apply = map,
) -> tuple[list[FoundSupersession], dict[str, bytes]]:
    """Return which memories supersede which, sorted by ids, and what is known of the texts of each scope.

    Of several versions of one fact, each supersedes the version before. What comes with more than five values is a
    series of measurements and is superseded only by change words.

    Args:
        memories: In any order.
        load_texts: Returns texts that are not known, and those of sentences that are compared.
        known: What an earlier call by the same version of the program returned, by scope. It changes no result.
        apply: Reads texts and compares sentences, in portions.
    """
    versions = _list_versions(memories)
    if not versions:
        return [], {}
    names = sorted({one.scope for one in versions})
    stored = join_known(KnownClaims.from_bytes((known or {}).get(name, b"")) for name in names)
    library = _Library(versions, load_texts, apply)
    table = library.read_missing(stored.table)
    rows = find_positions(table.texts["text"], np.array([one.text for one in versions], np.uint64))
    scopes = np.searchsorted(names, [one.scope for one in versions])
    sentences = _list_sentences(versions, table.select(rows), scopes)
    revisions, answers = _find_revisions(sentences, library, stored.pairs)
    links = {
        (new.id, old.id): found
        for (was, now), revision in revisions.items()
        for old, new in _pair_in_time(versions[was].memories, versions[now].memories)
        if not tells_past_month(revision, old.learned_at.date(), new.learned_at.date())
        and (found := judge_revision(revision, old.writer, new.writer))
    }
    told = (FoundSupersession(newer, older, links[newer, older]) for newer, older in drop_indirect(links))
    known_now = _split_by_scope(table, rows, scopes, answers)
    return sorted(told, key=lambda one: (one.newer_id, one.older_id)), dict(zip(names, known_now, strict=True))


class _Version(NamedTuple):
    """The memories of a scope that are exact repeats of one text, the oldest first. ``text``: its hash."""

    scope: str
    text: int
    memories: Sequence[DatedMemory]


def _list_versions(memories: Iterable[DatedMemory]) -> list[_Version]:
    """Return the distinct texts by scope, without the scopes whose memories are of one instant.

    Memories of one instant, such as those of an import without dates, do not supersede each other.
    """
    ordered = sorted(memories, key=lambda one: (one.scope, one.normalized_hash, one.learned_at, one.id))
    versions = []
    for scope, grouped in groupby(ordered, key=lambda one: one.scope):
        own = list(grouped)
        if any(one.learned_at != own[0].learned_at for one in own):
            repeats = (list(same) for _, same in groupby(own, key=lambda one: one.normalized_hash))
            versions += [_Version(scope, same[0].text_hash, same) for same in repeats]
    return versions


class _Library:
    """Texts of the versions, loaded when they are needed."""

    def __init__(self, versions: Sequence[_Version], load_texts: LoadTexts, apply: Apply) -> None:
        self._versions = versions
        self._load_texts = load_texts
        self._apply = apply
        # Sentences of the texts that were read, by hash.
        self._sentences: dict[int, tuple[str, ...]] = {}

    def read_missing(self, known: ClaimTable) -> ClaimTable:
        """Return the claims of all texts; those that are not known are read."""
        first = {version.text: at for at, version in reversed(list(enumerate(self._versions)))}
        texts = np.array(sorted(first), np.uint64)
        missing = [first[text] for text in texts[find_positions(known.texts["text"], texts) < 0].tolist()]
        loaded = [(self._versions[at].text, text) for at, text in zip(missing, self.load(missing), strict=True)]
        tables = [known]
        for table, sentences in self._apply(read_claims, split_chunks(loaded, size=_PORTION_TEXTS)):
            tables.append(table)
            self._sentences |= sentences
        whole = join_tables(tables)
        return whole.select(find_positions(whole.texts["text"], texts))

    def load(self, versions: Sequence[int]) -> list[str]:
        """Return the texts of versions."""
        ids = [self._versions[at].memories[0].id for at in versions]
        loaded = self._load_texts(ids) if ids else {}
        return [loaded[id_] for id_ in ids]

    def load_sentences(self, versions: Integers, places: Integers) -> list[str]:
        """Return sentences by their version and place in its text."""
        hashes = {at: self._versions[at].text for at in np.unique(versions).tolist()}
        missing = [at for at, text in hashes.items() if text not in self._sentences]
        for at, text in zip(missing, self.load(missing), strict=True):
            self._sentences[hashes[at]] = split_claims(text)
        of_version = {at: self._sentences[text] for at, text in hashes.items()}
        return [of_version[at][place] for at, place in zip(versions.tolist(), places.tolist(), strict=True)]

    def compare(self, pairs: Sequence[tuple[str, str]]) -> list[int]:
        """Return the answers of pairs of sentences."""
        return list(chain.from_iterable(self._apply(answer_pairs, split_chunks(pairs, size=_PORTION_PAIRS))))


class _Sentences(NamedTuple):
    """The sentences of all versions (m,), version by version.

    ``claims``: their rows of a claim table. ``of_version``: number of the version; ``scopes``: of the scope. ``first``,
    ``last``: ranks of the instants at which the version was learned first and last. ``words``: of the rows.
    """

    claims: NDArray[np.void]
    of_version: Integers
    scopes: Integers
    first: Integers
    last: Integers
    words: NDArray[np.uint32]


def _list_sentences(versions: Sequence[_Version], own: ClaimTable, scopes: Integers) -> _Sentences:
    """Return the sentences of versions. ``own``: claims of each; ``scopes``: number of the scope of each (v,)."""
    of_version = np.repeat(np.arange(len(versions)), own.texts["count"])
    instants = {one.learned_at for version in versions for one in (version.memories[0], version.memories[-1])}
    rank = {instant: at for at, instant in enumerate(sorted(instants))}
    first, last = (np.array([rank[version.memories[at].learned_at] for version in versions]) for at in (0, -1))
    return _Sentences(own.claims, of_version, scopes[of_version], first[of_version], last[of_version], own.words)


class _Answers(NamedTuple):
    """The hashes of compared pairs of sentences, their answers, and their scopes (p,)."""

    pairs: Hashes
    answers: Integers
    scopes: Integers


def _find_revisions(
    sentences: _Sentences, library: _Library, known: NDArray[np.void]
) -> tuple[dict[tuple[int, int], Revision], _Answers]:
    """Return the revision of one version by another, by their numbers (older, newer), and all answers.

    ``known``: answers of earlier comparisons.
    """
    was, now = _list_candidates(sentences)
    claims = sentences.claims
    hashes = combine_hashes(claims["claim"][was], claims["claim"][now])
    at = find_positions(known["pair"], hashes)
    answers = np.append(known["answer"].astype(np.int64), -1)[at]  # -1 = not known

    def load(rows: Integers) -> list[str]:
        return library.load_sentences(sentences.of_version[rows], claims["place"][rows].astype(np.int64))

    _, asked, of_pair = np.unique(hashes[answers < 0], return_index=True, return_inverse=True)
    # Pairs of one sentence follow each other, so that it is read once.
    order = np.argsort(asked)
    rows = np.flatnonzero(answers < 0)[asked[order]]
    texts = load(np.concatenate([was[rows], now[rows]]))
    found_answers = np.empty(len(rows), np.int64)
    found_answers[order] = library.compare(list(zip(texts[: len(rows)], texts[len(rows) :], strict=True)))
    answers[answers < 0] = found_answers[of_pair.reshape(-1)]

    # Those of a sentence that revises another one with words of change are looked at again.
    changed = np.unique(claims["claim"][now[answers == EXPLICIT]])
    revised = np.flatnonzero((answers > 0) | np.isin(claims["claim"][now], changed))
    texts = load(np.concatenate([was[revised], now[revised]]))
    openings = _load_openings(sentences, library, np.concatenate([was[revised], now[revised]]))
    found: defaultdict[tuple[int, int], list[Revision]] = defaultdict(list)
    numbers = zip(*(sentences.of_version[side[revised]].tolist() for side in (was, now)), strict=True)
    sides = zip(texts[: len(revised)], texts[len(revised) :], strict=True)
    opened = zip(openings[: len(revised)], openings[len(revised) :], strict=True)
    told: defaultdict[tuple[int, str], set[str]] = defaultdict(set)
    uncertain = []
    scopes = sentences.scopes[now[revised]].tolist()
    for pair, scope, (old, new), openings_of, answer in zip(
        numbers, scopes, sides, opened, answers[revised].tolist(), strict=True
    ):
        if follow_other_names(old, new, *openings_of) or follow_other_subjects(old, new, *openings_of):
            continue
        revision = to_revision(old, new, answer) if answer else None
        if revision and revision.is_explicit:
            found[pair].append(revision)
            told[scope, new].add(old)
        else:
            uncertain.append((pair, scope, Revision(old, new, True), revision))
    for pair, scope, explicit, revision in uncertain:
        # Of two sentences that say the same, a change of one is a change of the other.
        if any(say_same(old, explicit.was) for old in told.get((scope, explicit.now), ())):
            found[pair].append(explicit)
        elif revision:
            found[pair].append(revision)
    chosen = {pair: choose_revision(revisions) for pair, revisions in found.items()}
    revisions = _drop_series({pair: revision for pair, revision in chosen.items() if revision})
    return revisions, _Answers(hashes, answers, sentences.scopes[was])


def _load_openings(sentences: _Sentences, library: _Library, rows: Integers) -> list[str]:
    """Return the sentences that open the texts of sentences."""
    return library.load_sentences(sentences.of_version[rows], np.zeros(len(rows), np.int64))


def _split_by_scope(table: ClaimTable, rows: Integers, scopes: Integers, answers: _Answers) -> Iterator[bytes]:
    """Yield what is known of the texts of each scope.

    Args:
        table: Claims of all texts.
        rows: Row of the text of each version (v,).
        scopes: Number of the scope of each version (v,), ascending.
        answers: All answers.
    """
    order = np.argsort(answers.scopes, kind="stable")
    numbers = np.arange(scopes[-1] + 2)
    ends, cuts = (np.searchsorted(found, numbers) for found in (scopes, answers.scopes[order]))
    for (begin, end), (first, last) in zip(pairwise(ends.tolist()), pairwise(cuts.tolist()), strict=True):
        part = order[first:last]
        pairs = list_answers(answers.pairs[part], answers.answers[part])
        yield KnownClaims(table.select(np.unique(rows[begin:end])), pairs).to_bytes()


def _list_candidates(sentences: _Sentences) -> tuple[Integers, Integers]:
    """Return the pairs of an older and a newer sentence that may be about one matter, by position."""
    i, j = _propose_pairs(sentences)
    was, now = np.concatenate([i, j]), np.concatenate([j, i])
    of, claims = sentences.of_version, sentences.claims["claim"]
    is_later = (of[was] != of[now]) & (sentences.first[was] < sentences.last[now])
    was, now = was[is_later], now[is_later]
    # What both texts say is no revision.
    said = combine_hashes(of.astype(np.uint64), claims)
    is_new = ~np.isin(combine_hashes(of[was].astype(np.uint64), claims[now]), said)
    is_new &= ~np.isin(combine_hashes(of[now].astype(np.uint64), claims[was]), said)
    return was[is_new], now[is_new]


def _find_series(sentences: _Sentences) -> NDArray[np.bool_]:
    """Return which sentences (m,) are one text with many different numbers."""
    forms = combine_hashes(sentences.scopes.astype(np.uint64), sentences.claims["form"])
    of_form = np.unique(forms, return_inverse=True)[1].reshape(-1)
    first = np.unique(combine_hashes(forms, sentences.claims["claim"]), return_index=True)[1]
    values = np.bincount(of_form[first], minlength=1)
    return np.asarray(values[of_form] > _MAX_VALUES)


def _propose_pairs(sentences: _Sentences) -> tuple[Integers, Integers]:
    """Return the pairs of sentences of one scope, by position (i < j), that may be about one matter."""
    matrix, counts = _build_matrix(sentences)
    blocks = [*_propose_alike(sentences, matrix, counts), *_propose_changes(sentences, matrix, counts)]
    size = len(sentences.claims)
    pairs = np.unique(np.concatenate([np.empty(0, np.int64), *(i.astype(np.int64) * size + j for i, j in blocks)]))
    return pairs // max(size, 1), pairs % max(size, 1)


def _build_matrix(sentences: _Sentences) -> tuple[Any, Integers]:
    """Return the words of sentences as a sparse matrix of ones (m, v), and the number of sentences of each (v,).

    A word of two scopes is two words.
    """
    sizes = sentences.claims["size"].astype(np.int64)
    scopes = np.repeat(sentences.scopes, sizes)
    return count_words((scopes.astype(np.uint64) << np.uint64(32)) | sentences.words, sizes)


def _propose_alike(sentences: _Sentences, matrix: Any, counts: Integers) -> Iterator[tuple[Integers, Integers]]:
    """Yield the pairs of sentences with enough words in common.

    Two such sentences share one of the rarest words of each: of n words, the n - 0.6 n + 1 rarest.
    """
    from scipy.sparse import csr_array

    sizes = np.diff(matrix.indptr)
    rows = np.repeat(np.arange(len(sizes)), sizes)
    rank = np.empty(len(counts), np.int64)
    rank[np.argsort(counts, kind="stable")] = np.arange(len(counts))
    order = np.argsort(rows * len(counts) + rank[matrix.indices])
    # Rows keep their places in this order; inside a row, the rarest words are the first.
    words, places = matrix.indices[order], np.arange(len(rows)) - matrix.indptr[rows]
    is_taken = places <= sizes[rows] - np.ceil(_SHARED_WORDS * sizes[rows])
    is_taken &= (counts[words] <= MAX_SENTENCES_OF_WORD) & ~_find_series(sentences)[rows]
    rows, words = rows[is_taken], words[is_taken]
    prefixes = csr_array((np.ones(len(rows), np.float32), (rows, words)), shape=matrix.shape)
    turned = prefixes.T.tocsr()
    for begin in range(0, len(sizes), _BLOCK_SENTENCES):
        shared = (prefixes[begin : begin + _BLOCK_SENTENCES] @ turned).tocoo()
        i, j = shared.coords
        above = i + begin < j
        i, j = i[above].astype(np.int64) + begin, j[above].astype(np.int64)
        for start in range(0, len(i), _BLOCK_PAIRS):
            a, b = i[start : start + _BLOCK_PAIRS], j[start : start + _BLOCK_PAIRS]
            common = matrix[a].multiply(matrix[b]).sum(axis=1)
            enough = common >= _SHARED_WORDS * np.maximum(sizes[a], sizes[b])
            yield a[enough], b[enough]


def _propose_changes(sentences: _Sentences, matrix: Any, counts: Integers) -> Iterator[tuple[Integers, Integers]]:
    """Yield the pairs of a sentence with change words and those with which it shares the rarest words."""
    from scipy.sparse import diags_array

    scope_of_word = np.zeros(len(counts), np.int64)
    scope_of_word[matrix.indices] = np.repeat(sentences.scopes, np.diff(matrix.indptr))
    in_scope = np.bincount(sentences.scopes, minlength=1)
    weights = np.log((1 + in_scope[scope_of_word]) / np.maximum(counts, 1))
    weighted = (diags_array(np.where(counts <= MAX_SENTENCES_OF_WORD, weights, 0.0)) @ matrix.T).tocsr()
    weighted.eliminate_zeros()  # Nearly all sentences of a large scope share a frequent word.
    changed = np.flatnonzero(sentences.claims["is_change"])
    for start in range(0, len(changed), _BLOCK_SENTENCES):
        part = changed[start : start + _BLOCK_SENTENCES]
        shared = (matrix[part] @ weighted).tocoo()
        rows, others = shared.coords
        order = np.lexsort((others, -np.round(shared.data, 6), rows))
        rows, others = rows[order], others[order].astype(np.int64)
        own = part[rows]
        is_near = (np.arange(len(rows)) - np.searchsorted(rows, rows) <= _MAX_COMPARED) & (own != others)
        yield np.minimum(own, others)[is_near], np.maximum(own, others)[is_near]


def _drop_series(revisions: Mapping[tuple[int, int], Revision]) -> dict[tuple[int, int], Revision]:
    """Drop the revisions without change words among texts that come with many values."""
    groups = unite(pair for pair, revision in revisions.items() if not revision.is_explicit)
    sizes = Counter(groups.values())
    return {
        pair: revision
        for pair, revision in revisions.items()
        if revision.is_explicit or sizes[groups[pair[0]]] <= _MAX_VALUES
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


def drop_indirect(links: Mapping[tuple[UUID, UUID], Supersession]) -> list[tuple[UUID, UUID]]:
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
