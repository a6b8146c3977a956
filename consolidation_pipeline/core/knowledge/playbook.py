"""Playbook entries: their priority, their category, and the check that a text does not contradict itself."""

from __future__ import annotations

import re
from itertools import combinations

from consolidation_pipeline.core.checks import check_count, check_share
from consolidation_pipeline.core.literals.literals import contradict
from consolidation_pipeline.core.text.word_overlap import extract_content_words

# Memories that promotion requires as evidence. Each further one raises the priority.
REQUIRED_EVIDENCE = 3
STATUSES = ("active", "review", "retired")
_BASE, _RANGE, _MAX = 50, 50, 100
# Dice coefficient of two lines that say nearly the same; sentences on one topic have less in common.
_SAME_WORDS = 0.6

# The first category with a word in the text applies. Inflected forms are listed, because by stem "fixture" would match
# "fix", and "performs" "performance".
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
# All categories, in the order in which a playbook lists them.
CATEGORIES = (*CATEGORY_WORDS, GENERAL)
_CATEGORIES = tuple((name, re.compile(rf"\b(?:{words})\b", re.IGNORECASE)) for name, words in CATEGORY_WORDS.items())


def compute_priority(confidence: float | None, evidence: int) -> int:
    """Return the priority, 50 to 100: min(100, 50 + int(50 * confidence) + max(0, evidence - 3)).

    The product is rounded down as a float: 0.58 gives 28, because 50 * 0.58 is slightly less than 29.

    Args:
        confidence: In [0, 1]; None gives 50.
        evidence: Number of memories that support the entry.
    """
    check_count("evidence", evidence)
    if confidence is None:
        return _BASE
    check_share("confidence", confidence)
    return min(_MAX, _BASE + int(_RANGE * confidence) + max(0, evidence - REQUIRED_EVIDENCE))


def find_category(text: str) -> str:
    """Return the first category of ``CATEGORY_WORDS`` with a word in ``text``, in any letter case; else general."""
    return next((name for name, words in _CATEGORIES if words.search(text)), GENERAL)


def contradicts_itself(text: str) -> bool:
    """Return True if two lines of ``text`` say nearly the same with different facts.

    They share at least 0.6 of their content words (Dice) and conflict in a literal or a denial: "the limit of this
    queue is 5", "the limit of that queue is 8". Texts extracted from near-misses have such lines.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    return any(_dice(a, b) >= _SAME_WORDS and contradict(a, b) for a, b in combinations(lines, 2))


def _dice(a: str, b: str) -> float:
    one, other = extract_content_words(a), extract_content_words(b)
    return 2 * len(one & other) / max(1, len(one) + len(other))
