"""What most sources have in common stands for what is made of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


def most_frequent(names: Iterable[str]) -> str:
    """The most frequent of at least one name, ties by the alphabet."""
    counted = Counter(names)
    return min(counted, key=lambda name: (-counted[name], name))
