"""Word overlap of texts, which distinguishes a repeated statement from another one on the same topic."""

import re
from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Endings of English words.
_ENDING = re.compile(r"(?<=\w{3})(?:ing|ed|es|s|e)$")
_DOUBLED = re.compile(r"(\w)\1$")
# In scripts without spaces between words, each sign counts as a word.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_FUNCTION_WORDS = frozenset(
    """
    a about again all also an and any are as at be because been being both but by can could did do does each every for
    from had has have how i if in into is it its may might more most must my not of on once only or our own same shall
    should so such than that the their them then there these they this those to too very was we were what when where
    which while who will with would you your
    """.split()
)
# Pairs per block: 100,000 pairs of about 30 words take about 50 MB.
_BLOCK = 100_000


def stem(word: str) -> str:
    """Return ``word``, in lower case, without its ending: ``enabled`` and ``enables`` become one."""
    if word in ("uses", "used", "using"):
        return "use"
    bare = _DOUBLED.sub(r"\1", _ENDING.sub("", word))
    return bare[:-1] + "i" if len(bare) > 3 and bare.endswith("y") else bare


@dataclass(frozen=True, eq=False)
class WordSets:
    """The words of n texts.

    ``content``: sparse matrix (n, v) of ones, the stems of the content words of each text. Function words such as *the*
    are no content words.
    """

    content: Any

    def overlap(self, i: NDArray[np.integer], j: NDArray[np.integer]) -> NDArray[np.float64]:
        """Return the overlap coefficients (Szymkiewicz and Simpson) of the texts ``i``, ``j`` (m,), float64 (m,).

        It is the share of the smaller set's content words that are in the other set too; 1 if a set is empty.
        """
        common = np.empty(len(i))
        for at in range(0, len(i), _BLOCK):
            part = slice(at, at + _BLOCK)
            common[part] = self.content[i[part]].multiply(self.content[j[part]]).sum(axis=1)
        sizes = np.diff(self.content.indptr)
        fewer = np.minimum(sizes[i], sizes[j])
        return np.asarray(np.where(fewer == 0, 1.0, common / np.maximum(fewer, 1)))


def build_word_sets(texts: Sequence[str]) -> WordSets:
    """Return the words of each text: runs of letters, digits and underscores, in lower case."""
    from scipy.sparse import csr_array

    numbers: dict[str, int] = {}
    sizes, content = [], []
    for text in texts:
        stems = {_content_stem(word) for word in {*_WORD.findall(text.lower())}} - {""}
        sizes.append(len(stems))
        content += [numbers.setdefault(name, len(numbers)) for name in stems]
    columns = np.array(content, dtype=np.int32)
    rows = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    shape = len(texts), max(1, len(numbers))
    matrix = csr_array((np.ones(len(columns), dtype=np.int32), columns, rows), shape=shape)
    return WordSets(matrix)


@lru_cache(maxsize=1 << 13)
def extract_content_words(text: str) -> frozenset[str]:
    """Return the stems of the content words of a text."""
    return frozenset({_content_stem(word) for word in set(_WORD.findall(text.lower()))} - {""})


def shares_words(words: Set[str], others: Set[str], share: float) -> bool:
    """Return True if two sets have this share of the smaller one in common."""
    return len(words & others) >= share * min(len(words), len(others))


@lru_cache(maxsize=1 << 16)
def _content_stem(word: str) -> str:
    """Return the stem of a content word, "" for a function word."""
    return "" if word in _FUNCTION_WORDS else stem(word)
