"""What a text that stands in place of several must keep of them, though its words are others."""

from __future__ import annotations

from collections.abc import Sequence

from consolidation_pipeline.core.conflicts.clause_reader import read_clauses
from consolidation_pipeline.core.conflicts.clauses import Clause
from consolidation_pipeline.core.conflicts.literals import conflicts
from consolidation_pipeline.core.conflicts.polarity import SAME_TOPIC
from consolidation_pipeline.core.text.text_merge import merge_texts
from consolidation_pipeline.core.text.word_overlap import content_words

# Near-duplicates share half of their content words; a text that has fewer of a source is a summary of it.
MIN_KEPT_SHARE = 0.5
# Room for the words that join sentences, beyond the length of the lossless union.
_MARGIN_SHARE, _MARGIN_CHARS = 0.1, 40


def max_rewrite_chars(texts: Sequence[str], *, max_chars: int) -> int:
    """Most characters of a rewrite: those of the lossless union and a little more, never beyond ``max_chars``."""
    union = len(merge_texts(texts))
    return min(max_chars, union + max(int(union * _MARGIN_SHARE), _MARGIN_CHARS))


def compute_kept_share(source: str, text: str) -> float:
    """Share of the content words of ``source``, by their stems, that ``text`` has too; 1 where it has none."""
    words = content_words(source)
    return len(words & content_words(text)) / len(words) if words else 1.0


def find_lost_denials(source: str, text: str) -> list[str]:
    """The clauses of ``source`` that deny something which no clause of ``text`` on the same topic denies.

    A clause is on the topic of another that has 0.65 of its words, as for the vetoes.
    """
    denying = [clause for clause in read_clauses(text) if clause.denied]
    lost = [
        clause
        for clause in read_clauses(source)
        if clause.denied and not any(_says_too(other, clause) for other in denying)
    ]
    return [" ".join(source[clause.start : clause.end].split()) for clause in lost]


def _says_too(other: Clause, clause: Clause) -> bool:
    denied = {word for word, _ in clause.denied} & {word for word, _ in other.denied}
    return bool(denied) and len(clause.words & other.words) >= SAME_TOPIC * len(clause.words)


def find_reversals(source: str, text: str) -> list[str]:
    """What ``text`` says the opposite of, in the words of ``source``."""
    return [item.value for found in conflicts(source, text) if found.kind == "polarity" for item in found.a]
