"""Judged claims: results of an earlier comparison of a scope, so that only new texts are read and compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import pack, unpack_from

import numpy as np

from consolidation_pipeline.core.differences.language import detect_language
from consolidation_pipeline.core.knowledge.change_words import find_changes
from consolidation_pipeline.core.knowledge.supersession import Revision, revise_sentence
from consolidation_pipeline.core.memories.memories import hash_text

# Texts with more sentences are read again: the sentences that tell of a change are bits of one number.
_MOST_SENTENCES = 64
# What is known of a pair of sentences: no revision, or the fields of the revision.
_FIELDS = (None, (True, True), (False, True), (False, False))
_TEXTS = np.dtype([("text", "<u8"), ("changes", "<u8")])
_PAIRS = np.dtype([("pair", "<u8"), ("revision", "u1")])
_SIZES = "<II"


class JudgedClaims:
    """The sentences that tell of a change, and those that revise another one, in the texts of one scope.

    Both follow from the texts and the program alone. Texts are known by hashes of 64 bits.
    """

    def __init__(self, stored: bytes = b"") -> None:
        """Take over what ``to_bytes`` of an earlier comparison returned, by the same version of the program."""
        self._known_texts: dict[int, int] = {}
        self._known_pairs: dict[int, int] = {}
        self._texts: dict[int, int] = {}
        self._pairs: dict[int, int] = {}
        if stored:
            texts, pairs = unpack_from(_SIZES, stored)
            start = len(pack(_SIZES, 0, 0))
            self._known_texts = dict(np.frombuffer(stored, _TEXTS, texts, start).tolist())
            self._known_pairs = dict(np.frombuffer(stored, _PAIRS, pairs, start + texts * _TEXTS.itemsize).tolist())

    def tell_changes(self, text: str, claims: Sequence[str]) -> list[bool]:
        """Return for each of the ``claims`` of a text, its sentences, if it tells of a change."""
        key = hash_text(text)
        changes = self._known_texts.get(key)
        if changes is None:
            language = detect_language(text)
            changes = sum(_tells_change(claim, language) << at for at, claim in enumerate(claims))
        if len(claims) <= _MOST_SENTENCES:
            self._texts[key] = changes
        return [bool(changes >> at & 1) for at in range(len(claims))]

    def revise(self, was: str, now: str) -> Revision | None:
        """Return the revision of the sentence ``was`` by the later sentence ``now``, None if it does not revise it."""
        key = hash_text(f"{was}\0{now}")
        known = self._known_pairs.get(key)
        if known is None:
            found = revise_sentence(was, now)
            known = _FIELDS.index(found and (found.is_explicit, found.is_certain))
        self._pairs[key] = known
        fields = _FIELDS[known]
        return fields and Revision(was, now, *fields)

    def to_bytes(self) -> bytes:
        """Return what was asked for, about 30 bytes for each memory."""
        texts, pairs = _to_rows(self._texts.items(), _TEXTS), _to_rows(self._pairs.items(), _PAIRS)
        return pack(_SIZES, len(texts), len(pairs)) + texts.tobytes() + pairs.tobytes()


def _to_rows(items: Iterable[tuple[int, int]], dtype: np.dtype[np.void]) -> np.ndarray:
    return np.array(sorted(items), dtype=dtype)


def _tells_change(sentence: str, language: str | None) -> bool:
    """Return True if a sentence of a text tells of a change. ``language``: of the text, None = unknown."""
    known = language or detect_language(sentence)
    return known is not None and bool(find_changes(sentence, known))
