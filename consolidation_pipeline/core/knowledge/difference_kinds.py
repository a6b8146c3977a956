"""Kinds of differences of a group of texts, by which a person decides on many groups at once.

A kind is one of ``PROOFS``. A value has its place too, as ``value: build #``: the word before it, and its form with
signs in place of digits. So all groups that differ only in a build number are of one kind.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, islice

from consolidation_pipeline.core.differences.alignment import Similarity
from consolidation_pipeline.core.differences.explanation import Explanation, explain

# Pairs of a group that are compared: those of ten texts.
MAX_PAIRS = 45

_DIGITS = re.compile(r"\d+")
# A value in a text, with what is written tight to it: ``v1.2.3``, ``30``, ``#12``.
_VALUE = re.compile(r"[^\s,;()\[\]]*\d[^\s,;()\[\]]*")
_WORD = re.compile(r"[^\W\d]\w*")
_MASKED = re.compile(r"[\w#]*#[\w#]*")


def explain_pairs(texts: Sequence[str], similarity: Similarity | None) -> Iterator[tuple[int, int, Explanation]]:
    """Yield the positions of two texts and how they differ, for each of at most ``MAX_PAIRS`` pairs."""
    for i, j in islice(combinations(range(len(texts)), 2), MAX_PAIRS):
        yield i, j, explain(texts[i], texts[j], similarity)


def list_kinds(texts: Sequence[str], similarity: Similarity | None = None) -> tuple[str, ...]:
    """Return the kinds of the differences of these texts that are not harmless; the one of most pairs comes first."""
    found = Counter[str]()
    for i, j, explanation in explain_pairs(texts, similarity):
        found.update(set(_name_kinds(texts[i], texts[j], explanation)))
    return tuple(sorted(found, key=lambda kind: (-found[kind], kind)))


def find_common_kind(kinds: Sequence[str]) -> str | None:
    """Return the one kind of these, with its place if all have the same; None if there are several or none."""
    if len(set(kinds)) == 1:
        return kinds[0]
    names = {kind.partition(":")[0] for kind in kinds}
    return names.pop() if len(names) == 1 else None


def count_kinds(kinds_of: Iterable[Sequence[str]]) -> Counter[str]:
    """Return by kind how many of some groups differ only in it: those that a decision on this kind decides on.

    Values count by their place, and together as ``value`` if they have several places.
    """
    common = [kind for kind in map(find_common_kind, kinds_of) if kind]
    found = Counter(common)
    for name, count in Counter(kind.partition(":")[0] for kind in common).items():
        if all(found[kind] < count for kind in found if kind.partition(":")[0] == name):
            found[name] = count
    return found


def _name_kinds(a: str, b: str, explanation: Explanation) -> Iterator[str]:
    if a != b and _mask(a) == _mask(b):
        # Texts of one form differ in values alone, whatever their language.
        values = zip(_VALUE.finditer(a), _VALUE.finditer(b), strict=False)
        yield from (_name_value(a, one.start(), one[0]) for one, other in values if one[0] != other[0])
        return
    for difference in explanation.list_obstacles():
        if difference.kind == "value" and difference.spans_a:
            yield from (_name_value(a, start, a[start:end]) for start, end in difference.spans_a)
        else:
            yield difference.kind


def _name_value(text: str, start: int, value: str) -> str:
    """Return the kind of a value at an offset of a text, with the word before it on its line."""
    before = _WORD.findall(text[:start].rpartition("\n")[2])
    number = _VALUE.search(value)
    form = _MASKED.sub(_shorten, _mask(number[0] if number else value)).strip(".:!?")
    return "value: " + " ".join([*(before[-1:]), form]).lower()


def _shorten(masked: re.Match[str]) -> str:
    """Return one sign for a commit or another identifier with digits among its letters; ``v#`` and ``#ms`` stay."""
    form = masked[0]
    is_identifier = form.count("#") > 1 or not (form.startswith("#") or form.endswith("#"))
    return "#" if is_identifier else form


def _mask(text: str) -> str:
    return _DIGITS.sub("#", text)
