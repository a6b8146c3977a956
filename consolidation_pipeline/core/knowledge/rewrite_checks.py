"""Checks of a rewritten text: its length, and the words and denials of its sources that it must keep."""

from __future__ import annotations

from collections.abc import Sequence

from consolidation_pipeline.core.conflicts.clause_reader import read_clauses
from consolidation_pipeline.core.conflicts.clauses import Clause
from consolidation_pipeline.core.conflicts.polarity import SAME_TOPIC
from consolidation_pipeline.core.literals.literals import conflicts
from consolidation_pipeline.core.text.text_merge import merge_texts
from consolidation_pipeline.core.text.word_overlap import extract_content_words

# Lowest share of each source's content words that a rewrite keeps. Near-duplicates share half of theirs; a text with
# fewer is a summary.
MIN_KEPT_SHARE = 0.5
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
    """Return the denying clauses of ``source`` whose denial no clause of ``text`` on the same topic repeats.

    A clause is on the same topic if it has 0.65 of the other's words, as for vetoes.
    """
    others = list(read_clauses(text))
    lost = [
        clause
        for clause in read_clauses(source)
        if clause.denied and not any(_repeats_denial(other, clause) for other in others)
    ]
    return [" ".join(source[clause.start : clause.end].split()) for clause in lost]


def _repeats_denial(other: Clause, clause: Clause) -> bool:
    denied = {word for word, _ in clause.denied} & {word for word, _ in other.denied}
    return bool(denied) and len(clause.words & other.words) >= SAME_TOPIC * len(clause.words)


def find_reversals(source: str, text: str) -> list[str]:
    """Return the words of ``source`` whose opposite ``text`` says."""
    return [item.value for found in conflicts(source, text) if found.kind == "polarity" for item in found.a]
