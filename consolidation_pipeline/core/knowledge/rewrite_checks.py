"""Checks of a rewritten text: its length, and the words and denials of its sources that it must keep."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from consolidation_pipeline.core.differences.explanation import explain_readings
from consolidation_pipeline.core.differences.language_detection import detect_language
from consolidation_pipeline.core.differences.reader import read
from consolidation_pipeline.core.differences.reading import Cue, Token
from consolidation_pipeline.core.knowledge.disputes import read_sentence
from consolidation_pipeline.core.knowledge.rival_claims import is_denial
from consolidation_pipeline.core.text.sentence_splitter import split_sentences
from consolidation_pipeline.core.text.text_merge import merge_texts
from consolidation_pipeline.core.text.word_overlap import extract_content_words

# Lowest share of each source's content words that a rewrite keeps. Near-duplicates share half of theirs; a text with
# fewer is a summary.
MIN_KEPT_SHARE = 0.5
# Share of words that clauses and sentences on one topic have in common.
_SAME_TOPIC = 0.65
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
    """Return the denying clauses of ``source`` that no clause of ``text`` repeats.

    A clause repeats another one if it denies one of the same words and has 0.65 of its words.
    """
    others = _read_clauses(text)
    return [
        " ".join(clause.text.split())
        for clause in _read_clauses(source)
        if clause.denied and not any(_repeats_denial(other, clause) for other in others)
    ]


def find_reversals(source: str, text: str) -> list[str]:
    """Return the words of ``source`` whose opposite a sentence of ``text`` says of the same.

    Two sentences are compared if one has 0.65 of the content words of the other.
    """
    language = detect_language(source)
    sentences, others = (
        [(one, read_sentence(one, language), extract_content_words(one)) for one in split_sentences(part)]
        for part in (source, text)
    )
    return [
        difference.a or one
        for one, reading, words in sentences
        for _, other, other_words in others
        if _are_alike(words, other_words)
        for difference in explain_readings(reading, other).differences
        if is_denial(difference, reading)
    ]


@dataclass(frozen=True)
class _Clause:
    """A clause. ``words``: keys of its tokens. ``denied``: those that follow a negation."""

    text: str
    words: frozenset[str]
    denied: frozenset[str]


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
            frozenset(_find_denied(found)),
        )
        for found in clauses.values()
    ]


def _find_denied(clause: Sequence[Token | Cue]) -> Iterator[str]:
    """Yield the word after each negation, or the one before it at the end of a clause; "not only" is none."""
    for at, part in enumerate(clause):
        following = clause[at + 1] if at + 1 < len(clause) else None
        is_restricted = isinstance(following, Cue) and following.category == "restriction"
        if isinstance(part, Cue) and part.category == "polarity" and not is_restricted:
            near = (one.key for one in (*clause[at:], *clause[at::-1]) if isinstance(one, Token))
            yield next(near, "")


def _repeats_denial(other: _Clause, clause: _Clause) -> bool:
    common = len(clause.words & other.words)
    return bool(clause.denied & other.denied) and common >= _SAME_TOPIC * len(clause.words)


def _are_alike(a: frozenset[str], b: frozenset[str]) -> bool:
    return bool(a and b) and len(a & b) >= _SAME_TOPIC * min(len(a), len(b))
