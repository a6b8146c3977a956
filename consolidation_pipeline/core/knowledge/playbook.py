"""Entries of the playbook: how urgent one is, and what it is about."""

from __future__ import annotations

import re
from itertools import combinations

from consolidation_pipeline.core.conflicts.literals import contradict
from consolidation_pipeline.core.text.word_overlap import content_words

# Pieces of evidence that promotion asks for; only those beyond them raise the priority.
REQUIRED_EVIDENCE = 3
STATUSES = ("active", "review", "retired")
_BASE, _RANGE, _MOST = 50, 50, 100
# Of two lines that say nearly the same; sentences on one topic have less in common.
_SAME_WORDS = 0.6

# In this order; the first category that a word of the text belongs to is taken. Every form that counts is written out:
# endings alone would make "fixture" a fix and "performs" a matter of performance.
CATEGORY_WORDS: dict[str, str] = {
    "gotchas": r"fix(?:es|ed|ing)?|bug(?:s|gy)?|error(?:s|ed|ing)?|issu(?:e|es|ed|ing)|pitfalls?|warn(?:s|ed|ings?)?",
    "architecture": r"architect(?:s|ed|ing|ures?|ural|urally)?|design(?:s|ed|ing)?|structur(?:e|es|ed|ing|al|ally)"
    r"|layer(?:s|ed|ing)?",
    "patterns": r"pattern(?:s|ed)?|recommend(?:s|ed|ing|ations?)?|best[\s-]+practices?",
    "security": r"secur(?:ity|e|es|ed|ing|ely)",
    "testing": r"test(?:s|ed|ing|able)?",
    "performance": r"performan(?:ces?|t)",
    "workflow": r"workflows?",
}
GENERAL = "general"
# Every category there is, as a playbook lists them.
CATEGORIES = (*CATEGORY_WORDS, GENERAL)
_CATEGORIES = tuple(
    (find_category, re.compile(rf"\b(?:{words})\b", re.IGNORECASE)) for find_category, words in CATEGORY_WORDS.items()
)


def compute_priority(confidence: float | None, evidence: int) -> int:
    """Priority 50 to 100: min(100, 50 + int(50 * confidence) + max(0, evidence - 3)); 50 without a confidence.

    The product is the float's, rounded down, as pipeline.md writes it: 0.58 gives 28, for 50 * 0.58 is a little less
    than 29. ValueError: confidence NaN or outside [0, 1], or negative
    evidence.
    """
    if evidence < 0:
        raise ValueError(f"evidence is {evidence}; it must be 0 or more")
    if confidence is None:
        return _BASE
    if not 0.0 <= confidence <= 1.0:
        raise ValueError(f"confidence is {confidence}; it must be from 0 to 1, or None")
    return min(_MOST, _BASE + int(_RANGE * confidence) + max(0, evidence - REQUIRED_EVIDENCE))


def find_category(text: str) -> str:
    """What ``text`` is about, by whole words: the first of ``CATEGORY_WORDS`` that it has a word of, else general.

    Letter case does not count; inflected forms do ("fixed", "layered", "tests"), parts of words do not ("prefix",
    "tissue", "infrastructure").
    """
    return next((name for name, words in _CATEGORIES if words.search(text)), GENERAL)


def contradicts_itself(text: str) -> bool:
    """Whether two lines of ``text`` say nearly the same of different things, or the opposite: no instruction does.

    They share at least 0.6 of their content words (Dice) and have literals or denials in conflict, as what is put
    together from near-misses has: "the limit of this queue is 5", "the limit of that queue is 8".
    """
    lines = [line for line in text.splitlines() if line.strip()]
    return any(_share_words(a, b) >= _SAME_WORDS and contradict(a, b) for a, b in combinations(lines, 2))


def _share_words(a: str, b: str) -> float:
    one, other = content_words(a), content_words(b)
    return 2 * len(one & other) / max(1, len(one) + len(other))
