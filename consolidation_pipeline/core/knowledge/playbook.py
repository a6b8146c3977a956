"""Playbook entries: their priority and their category."""

from __future__ import annotations

import re

from consolidation_pipeline.core.checks import check_count, check_share

# Memories that a proposal requires, and independent writers that an automatic promotion requires. Each further writer
# raises the priority.
REQUIRED_EVIDENCE = 3
_BASE, _RANGE, _MAX = 50, 50, 100
# Priority that a usefulness of 1 adds. One reader moves an entry by at most 7, however often it votes.
_USEFULNESS_RANGE = 20

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


def compute_priority(confidence: float | None, writers: int) -> int:
    """Return the priority, 50 to 100: min(100, 50 + int(50 * confidence) + max(0, writers - 3)).

    The product is rounded down as a float: 0.58 gives 28, because 50 * 0.58 is slightly less than 29.

    Args:
        confidence: In [0, 1]; None gives 50.
        writers: Number of independent writers of the memories that support the entry.
    """
    check_count("writers", writers)
    if confidence is None:
        return _BASE
    check_share("confidence", confidence)
    return min(_MAX, _BASE + int(_RANGE * confidence) + max(0, writers - REQUIRED_EVIDENCE))


def adjust_priority(priority: int, usefulness: float) -> int:
    """Return the priority, 0 to 100, raised or lowered by the usefulness that the readers found, -1 to 1."""
    return max(0, min(_MAX, priority + round(_USEFULNESS_RANGE * usefulness)))


def find_category(text: str) -> str:
    """Return the first category of ``CATEGORY_WORDS`` with a word in ``text``, in any letter case; else general."""
    return next((name for name, words in _CATEGORIES if words.search(text)), GENERAL)
