"""Checks of a rewritten text: its length, and the words and denials of its sources that it must keep."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from consolidation_pipeline.core.differences.explanation import explain_readings
from consolidation_pipeline.core.differences.reading import Cue, Token, read
from consolidation_pipeline.core.text.sentence_splitter import split_sentences
from consolidation_pipeline.core.text.text_merge import merge_texts
from consolidation_pipeline.core.text.word_overlap import extract_content_words

# Lowest share of each source's content words that a rewrite keeps. Near-duplicates share half of theirs; a text with
# fewer is a summary.
MIN_KEPT_SHARE = 0.5
# Share of words that clauses and sentences on one topic have in common.
_SAME_TOPIC = 0.65
# Differences that reverse what is said.
_REVERSALS = frozenset(("polarity", "opposite", "cue"))
# Characters beyond the length of the lossless union, for words that join sentences.
_MARGIN_SHARE, _MARGIN_CHARS = 0.1, 40


def max_rewrite_chars(texts: Sequence[str], *, max_chars: int) -> int:
    """Return the most characters of a rewrite: 10 % or 40 more than the lossless union, at most ``max_chars``."""
    union = len(merge_texts(texts))
    return min(max_chars, union + max(int(union * _MARGIN_SHARE), _MARGIN_CHARS))


def compute_kept_share(source: str, text: str) -> float:
    """Return the share of content words of ``source``, by stem, that ``text`` has too; 1.0 if ``source`` has none."""
    words = extract_content_words(source)
    return len(words & extract_content_words(text)) / len(words) if words else 1.0


def find_lost_denials(source: str, text: str) -> list[str]:
    """Return the denying clauses of ``source`` that no denying clause of ``text`` repeats.

    A clause repeats another one if it has 0.65 of its words.
    """
    denials = [clause.words for clause in _read_clauses(text) if clause.is_denied]
    return [
        " ".join(clause.text.split())
        for clause in _read_clauses(source)
        if clause.is_denied and not any(_covers(words, clause.words) for words in denials)
    ]


def find_reversals(source: str, text: str) -> list[str]:
    """Return the words of ``source`` whose opposite a sentence of ``text`` says of the same.

    A sentence is compared if it has 0.65 of the content words of the source's, or the other way round.
    """
    sentences = [(read(one), extract_content_words(one)) for one in split_sentences(text)]
    return [
        difference.a or one
        for one in split_sentences(source)
        for other, words in sentences
        if _are_alike(extract_content_words(one), words)
        for difference in explain_readings(read(one), other).differences
        if difference.kind in _REVERSALS
    ]


@dataclass(frozen=True)
class _Clause:
    """A clause. ``words``: keys of its tokens. ``is_denied``: it has a negation."""

    text: str
    words: frozenset[str]
    is_denied: bool


def _read_clauses(text: str) -> list[_Clause]:
    reading = read(text)
    parts: list[Token | Cue] = [*reading.tokens, *reading.cues]
    clauses = defaultdict[int, list[Token | Cue]](list)
    for part in sorted(parts, key=lambda one: one.start):
        clauses[part.clause].append(part)
    return [
        _Clause(
            text[found[0].start : found[-1].start + len(found[-1].text)],
            frozenset(part.key for part in found if isinstance(part, Token)),
            any(_is_denial(part, following) for part, following in zip_longest(found, found[1:])),
        )
        for found in clauses.values()
    ]


def _is_denial(part: Token | Cue, following: Token | Cue | None) -> bool:
    """Return True for a negation, but not for that of "not only"."""
    is_restricted = isinstance(following, Cue) and following.category == "restriction"
    return isinstance(part, Cue) and part.category == "polarity" and not is_restricted


def _covers(words: frozenset[str], others: frozenset[str]) -> bool:
    return len(words & others) >= _SAME_TOPIC * len(others)


def _are_alike(a: frozenset[str], b: frozenset[str]) -> bool:
    return bool(a and b) and len(a & b) >= _SAME_TOPIC * min(len(a), len(b))
