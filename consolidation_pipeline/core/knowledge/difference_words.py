"""Differences of texts in words for people."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import shorten

from consolidation_pipeline.core.differences.explanation import Difference

# A kind of difference in words.
DIFFERENCE_LABELS = {
    "polarity": "one denies it",
    "opposite": "opposites",
    "cue": "another condition or degree",
    "value": "different values",
    "name": "different names",
    "code": "different code",
    "exchange": "two words have changed places",
    "order": "another order of words",
    "exception": "an exception in one only",
    "added cue": "a condition in one only",
    "moved cue": "a condition on something else",
    "modifier": "a word in one only that may say which one is meant",
    "word": "different words",
    "language": "languages not known, or not the same",
    "addition": "one says more",
}
# Of kinds that most often are in one text only, in words if both texts have such a word.
_IN_BOTH = {"added cue": "different conditions", "exception": "different exceptions", "modifier": "different details"}
_SHOWN_CHARS = 80


def describe_differences(differences: Iterable[Difference]) -> list[str]:
    """Return differences in words, such as ``only one says: after 90 days``, each once.

    What both texts say, and what is nothing in one of them, is left out.
    """
    return [*dict.fromkeys(describe_sides(one.kind, one.a, one.b) for one in differences)]


def describe_sides(kind: str, a: str, b: str) -> str:
    """Return a kind of difference in words with the words of both texts that differ."""
    label = DIFFERENCE_LABELS.get(kind, kind)
    if a.casefold() == b.casefold():
        return label
    one, other = (shorten_words(side) for side in (a, b))
    if one and other:
        return f"{_IN_BOTH.get(kind, label)}: {one} / {other}"
    only = {"polarity": "only one denies it: ", "exception": "only one has an exception: "}
    return only.get(kind, "only one says: ") + (one or other)


def shorten_words(words: str) -> str:
    """Return words of a difference on one line, shortened."""
    return shorten(words, _SHOWN_CHARS, placeholder=" …")
