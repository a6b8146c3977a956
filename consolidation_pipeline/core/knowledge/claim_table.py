"""Claims of texts as columns of hashes, kept for the next run: no text is read twice, no two claims compared twice."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from struct import calcsize, pack, unpack_from
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.core.arrays import list_ranges
from consolidation_pipeline.core.differences.language_detection import detect_language
from consolidation_pipeline.core.knowledge.change_words import find_changes
from consolidation_pipeline.core.knowledge.supersession import Revision, revise_sentence, split_claims
from consolidation_pipeline.core.memories.memories import hash_text
from consolidation_pipeline.core.text.word_overlap import extract_content_words

# Words of more sentences tell little of a matter.
MAX_SENTENCES_OF_WORD = 500
# Sentences with more words than this are lists or logs; they are not compared.
_MAX_WORDS = 60
# What is known of a pair of sentences: no revision, or the fields of the revision.
_FIELDS = (None, (True, True), (False, True), (False, False))
# The answer of a pair whose later sentence has words of change.
EXPLICIT = _FIELDS.index((True, True))

_TEXTS = np.dtype([("text", "<u8"), ("count", "<u4")])
_CLAIMS = np.dtype([("claim", "<u8"), ("form", "<u8"), ("place", "<u4"), ("size", "u1"), ("is_change", "?")])
_WORDS = np.dtype("<u4")
_PAIRS = np.dtype([("pair", "<u8"), ("answer", "u1")])
_SIZES = "<IIII"

_DIGITS = re.compile(r"\d+")

Hashes = NDArray[np.uint64]


class ClaimTable(NamedTuple):
    """The claims of n texts: their sentences, each once, with 1 to ``_MAX_WORDS`` content words.

    Attributes:
        texts: ``text`` is a hash, ascending and each once; ``count``: its number of claims. (n,)
        claims: Text by text. ``claim`` is a hash of the sentence, ``form`` one of it with 0 for each number, ``place``
            its position among the sentences of the text, ``size`` its number of words. (m,)
        words: Hashes of the stems of the content words without numbers, claim by claim. (k,)
    """

    texts: NDArray[np.void]
    claims: NDArray[np.void]
    words: NDArray[np.uint32]

    def select(self, rows: NDArray[np.int64]) -> ClaimTable:
        """Return the claims of the texts at ``rows``, in this order. Rows may repeat."""
        of_text = list_ranges(self.texts["count"], rows)
        return ClaimTable(self.texts[rows], self.claims[of_text], self.words[list_ranges(self.claims["size"], of_text)])


class KnownClaims(NamedTuple):
    """The claims of some texts, and the answers of pairs of them.

    ``pairs``: ``pair`` is a hash of two sentences, ascending; ``answer``: if and how the later one revises the other.
    """

    table: ClaimTable
    pairs: NDArray[np.void]

    def to_bytes(self) -> bytes:
        """Return it as bytes, about 150 for each text."""
        columns = (*self.table, self.pairs)
        return pack(_SIZES, *map(len, columns)) + b"".join(column.tobytes() for column in columns)

    @classmethod
    def from_bytes(cls, stored: bytes) -> KnownClaims:
        """Return what ``to_bytes`` of the same version of the program returned; nothing if there is nothing."""
        counts, at = (unpack_from(_SIZES, stored) if stored else (0, 0, 0, 0)), calcsize(_SIZES)
        columns = []
        for dtype, count in zip((_TEXTS, _CLAIMS, _WORDS, _PAIRS), counts, strict=True):
            columns.append(np.frombuffer(stored, dtype, count, at) if count else np.empty(0, dtype))
            at += count * dtype.itemsize
        return cls(ClaimTable(*columns[:3]), columns[3])


def join_known(parts: Iterable[KnownClaims]) -> KnownClaims:
    """Return what is known of the texts of all parts, at least one."""
    tables, pairs = zip(*parts, strict=True)
    return KnownClaims(join_tables(tables), _sort_pairs(np.concatenate(pairs)))


def join_tables(tables: Iterable[ClaimTable]) -> ClaimTable:
    """Return the claims of the texts of all tables, at least one, each text once."""
    whole = ClaimTable(*map(np.concatenate, zip(*tables, strict=True)))
    return whole.select(np.unique(whole.texts["text"], return_index=True)[1])


def count_words(keys: NDArray[np.unsignedinteger[Any]], sizes: NDArray[np.int64]) -> tuple[Any, NDArray[np.int64]]:
    """Return the words of sentences as a sparse matrix of ones (m, v), and the number of sentences of each word (v,).

    Args:
        keys: Words, sentence by sentence (k,).
        sizes: Number of words of each sentence (m,).
    """
    from scipy.sparse import csr_array

    found, columns = np.unique(keys, return_inverse=True)
    columns = columns.reshape(-1).astype(np.int64)
    shape = len(sizes), max(1, len(found))
    ends = np.concatenate([[0], np.cumsum(sizes)])
    matrix = csr_array((np.ones(len(columns), np.float32), columns, ends), shape=shape)
    matrix.sort_indices()
    return matrix, np.bincount(columns, minlength=shape[1])


def read_claims(texts: Sequence[tuple[int, str]]) -> tuple[ClaimTable, dict[int, tuple[str, ...]]]:
    """Read distinct texts with their hashes; also return the sentences of each by its hash."""
    rows, claims, words = [], [], []
    sentences = {key: split_claims(text) for key, text in texts}
    for key, text in texts:
        language, found = detect_language(text), 0
        for place, claim in enumerate(sentences[key]):
            own = {_hash_word(word) for word in extract_content_words(_DIGITS.sub(" ", claim))}
            if 0 < len(own) <= _MAX_WORDS:
                form = hash_text(_DIGITS.sub("0", claim.lower()))
                claims.append((hash_text(claim), form, place, len(own), _tells_change(claim, language)))
                words += sorted(own)
                found += 1
        rows.append((key, found))
    table = ClaimTable(np.array(rows, _TEXTS), np.array(claims, _CLAIMS), np.array(words, _WORDS))
    return table.select(np.argsort(table.texts["text"])), sentences


@lru_cache(maxsize=1 << 16)
def _hash_word(word: str) -> int:
    return hash_text(word) & 0xFFFFFFFF


def _tells_change(sentence: str, language: str | None) -> bool:
    """Return True if a sentence of a text tells of a change. ``language``: of the text, None = unknown."""
    known = language or detect_language(sentence)
    return known is not None and bool(find_changes(sentence, known))


def answer_pairs(pairs: Sequence[tuple[str, str]]) -> list[int]:
    """Return for each pair of sentences (was, now) if the later one revises the other, as a number."""
    revisions = (revise_sentence(was, now) for was, now in pairs)
    return [_FIELDS.index(found and (found.is_explicit, found.is_certain)) for found in revisions]


def to_revision(was: str, now: str, answer: int) -> Revision:
    """Return the revision that ``answer_pairs`` has found."""
    fields = _FIELDS[answer]
    if fields is None:
        raise ValueError(f"answer {answer} of a pair of sentences tells of no revision")
    return Revision(was, now, *fields)


def list_answers(pairs: Hashes, answers: NDArray[np.integer]) -> NDArray[np.void]:
    """Return answers by the hash of the pair, ascending."""
    found = np.zeros(len(pairs), _PAIRS)
    found["pair"], found["answer"] = pairs, answers
    return _sort_pairs(found)


def _sort_pairs(pairs: NDArray[np.void]) -> NDArray[np.void]:
    """Return answers by the hash of the pair, ascending, each pair once."""
    return pairs[np.unique(pairs["pair"], return_index=True)[1]]


def combine_hashes(one: Hashes, other: Hashes) -> Hashes:
    """Return a hash of each pair of hashes (n,), which depends on their order (the mix of SplitMix64)."""
    mixed = one * np.uint64(0x9E3779B97F4A7C15) + other
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
