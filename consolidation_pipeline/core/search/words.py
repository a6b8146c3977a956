"""Words of a query: how frequent they are, and which of them lead to the memories that match best."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Words of a group at most, and words that are combined.
_LARGEST_GROUP = 3
_MOST_COMBINED = 4


@dataclass(frozen=True)
class WordFrequencies:
    """Number of texts, and of those that have each frequent word.

    ``rare``: number of texts with any other word, about.
    """

    rows: int
    words: Mapping[str, int]
    rare: int

    def estimate(self, word: str) -> int:
        """Return in how many texts a word is, about."""
        return self.words.get(word, min(self.rare, self.rows))


@dataclass(frozen=True)
class TextStatistics:
    """Number of texts, of those with each of m words (m,), and their mean length, above 0.

    Of q searches, these are arrays (q, 1), (q, m) and (q, 1).
    """

    total: int | NDArray[np.int64]
    frequencies: NDArray[np.int64]
    mean_length: float | NDArray[np.float64]


def count_texts(
    lengths: NDArray[Any],
    counts: NDArray[Any],
    words: Sequence[str] = (),
    known: WordFrequencies | None = None,
) -> TextStatistics:
    """Return the statistics of n texts; with ``known``, those of all texts, of which these are the best.

    Args:
        lengths: Length of each text (n,), in any unit.
        counts: Occurrences of each word in each text (n, m).
        words: The m words.
        known: Frequencies of words in all texts. A rare word is counted in the n texts.
    """
    counted = (counts > 0).sum(axis=0)
    mean = float(lengths.mean()) if lengths.any() else 1.0
    if known is None:
        return TextStatistics(len(lengths), counted, mean)
    frequent = [known.words.get(word, own) for word, own in zip(words, counted.tolist(), strict=True)]
    frequencies = np.maximum(counted, np.array(frequent, np.int64))
    return TextStatistics(max(known.rows, int(frequencies.max(initial=0))), frequencies, mean)


def add_frequencies(parts: Sequence[WordFrequencies], words: Collection[str]) -> WordFrequencies:
    """Return the frequencies of ``words`` in all parts together."""
    frequent = {word for word in words for part in parts if word in part.words}
    return WordFrequencies(
        sum(part.rows for part in parts),
        {word: sum(part.estimate(word) for part in parts) for word in frequent},
        sum(part.rare for part in parts),
    )


def choose_groups(
    words: Collection[str], frequencies: WordFrequencies, *, most: int, alone: int | None = None
) -> list[tuple[str, ...]]:
    """Return groups of words that lead to the best matches of a query: texts that have all words of any group.

    Rare words say most about a text, so they come first, each alone, as long as about ``alone`` texts have one of them.
    Then come pairs of the others, and groups of three, rarest words first, as long as about ``most`` texts match: so
    many texts have them as if words were independent. If nothing fits, the group is the rarest words together.
    ``alone``: None = ``most``.
    """
    shares = {word: frequencies.estimate(word) / max(1, frequencies.rows) for word in words}
    ordered = sorted(shares, key=lambda word: (shares[word], word))
    groups: list[tuple[str, ...]] = []
    left = float(most if alone is None else alone)
    others = []
    for word in ordered:
        if (expected := frequencies.rows * shares[word]) <= left:
            groups.append((word,))
            left -= expected
        else:
            others.append(word)
    left += most - (most if alone is None else alone)
    combined: list[set[str]] = []
    for size in range(2, _LARGEST_GROUP + 1):
        for group in combinations(others[:_MOST_COMBINED], size):
            expected = frequencies.rows * math.prod(map(shares.__getitem__, group))
            if expected <= left and not any(known.issubset(group) for known in combined):
                groups.append(group)
                combined.append(set(group))
                left -= expected
    return groups or [tuple(ordered[:_LARGEST_GROUP])]
