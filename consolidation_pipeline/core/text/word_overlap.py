"""How many words two texts share: what tells the same thing said again from another one on the same topic."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.core.conflicts.antonyms import stem

# Scripts without spaces between words: each sign counts as one.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_FUNCTION_WORDS = frozenset(
    """
    a about again all also an and any are as at be because been being both but by can could did do does each every for
    from had has have how i if in into is it its may might more most must my not of on once only or our own same shall
    should so such than that the their them then there these they this those to too very was we were what when where
    which while who will with would you your
    """.split()
)
# Pairs that are looked at together: 100,000 of some 30 words each take about 50 MB.
_BLOCK = 100_000


@dataclass(frozen=True, eq=False)
class WordSets:
    """The words of n texts: how many ``distinct`` ones each has, int64 (n,), and which ``content`` words, by their
    stems, as a sparse matrix (n, v) of ones. Function words such as *the* are no content.
    """

    distinct: NDArray[np.int64]
    content: Any

    def shared(self, i: NDArray[np.integer], j: NDArray[np.integer]) -> NDArray[np.float64]:
        """Share (m,) of the content words of the text that has fewer, which the other one has too (the overlap
        coefficient of Szymkiewicz and Simpson), for pairs of positions ``i`` and ``j`` (m,); 1 where one has none.
        """
        common = np.empty(len(i))
        for at in range(0, len(i), _BLOCK):
            part = slice(at, at + _BLOCK)
            common[part] = self.content[i[part]].multiply(self.content[j[part]]).sum(axis=1)
        sizes = np.diff(self.content.indptr)
        fewer = np.minimum(sizes[i], sizes[j])
        return np.asarray(np.where(fewer == 0, 1.0, common / np.maximum(fewer, 1)))


def read_words(texts: Sequence[str]) -> WordSets:
    """The words of each text: runs of letters, digits and underscores, in lower case."""
    from scipy.sparse import csr_array

    numbers: dict[str, int] = {}
    distinct, sizes, content = [], [], []
    for text in texts:
        words = set(_WORD.findall(text.lower()))
        stems = {_content(word) for word in words} - {""}
        distinct.append(len(words))
        sizes.append(len(stems))
        content += [numbers.setdefault(name, len(numbers)) for name in stems]
    columns = np.array(content, dtype=np.int32)
    rows = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    shape = len(texts), max(1, len(numbers))
    matrix = csr_array((np.ones(len(columns), dtype=np.int32), columns, rows), shape=shape)
    return WordSets(np.array(distinct, dtype=np.int64), matrix)


def content_words(text: str) -> frozenset[str]:
    """The content words of one text, by their stems."""
    return frozenset({_content(word) for word in set(_WORD.findall(text.lower()))} - {""})


@lru_cache(maxsize=1 << 16)
def _content(word: str) -> str:
    """The stem of a word that carries content, else ""."""
    return "" if word in _FUNCTION_WORDS else stem(word)
