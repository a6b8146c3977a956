"""Marginal coverage: what a text adds to what is told about a task, and which derived memories point to the rest."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable
from textwrap import shorten

from consolidation_pipeline.core.search.context_markdown import DERIVED
from consolidation_pipeline.core.search.context_pieces import ContextPiece
from consolidation_pipeline.core.search.results import MemoryPointer
from consolidation_pipeline.core.text.word_overlap import extract_content_words

# A title is cut to this many characters.
_TITLE_CHARS = 80
_MARKS = re.compile(r"^[#>*\-\s]+|[*_`]{2,}")


class WordCoverage:
    """Coverage of memories by words: the share of each memory's content words that are told, weighted by relevance.

    It is submodular: a further text adds less, the more is told already (after Lin and Bilmes 2011).
    """

    def __init__(self, memories: Iterable[ContextPiece]) -> None:
        self._weights: defaultdict[str, float] = defaultdict(float)
        for memory in memories:
            words = extract_content_words(memory.text)
            for word in words:
                self._weights[word] += memory.weight / len(words)

    def measure(self, texts: Iterable[str], told: Iterable[str] = ()) -> float:
        """Return what ``texts`` add to the coverage by the texts that are ``told``."""
        words = frozenset[str]().union(*map(extract_content_words, texts))
        # Summed in one order, so that the same texts give the same sum.
        return math.fsum(self._weights.get(word, 0.0) for word in words.difference(*map(extract_content_words, told)))


def list_pointers(pieces: Iterable[ContextPiece], missing: Iterable[ContextPiece]) -> list[MemoryPointer]:
    """Return the derived memories made from ``missing`` memories, the one that says most about these first.

    The value is the relevance of the missing memories behind it, over the square root of the number of all behind it:
    a summary of everything stands for each of them, but is about none. The title is the first line; of a list, which
    opens with a colon, it is the line that covers most of the missing memories.
    """
    missing, ranked = list(missing), []
    coverage = WordCoverage(missing)
    for piece in pieces:
        behind = [memory.weight for memory in missing if memory.raw_ids <= piece.raw_ids]
        if piece.kind in DERIVED and len(behind) > 1 and any(behind):
            ranked.append((-math.fsum(behind) / math.sqrt(len(piece.raw_ids)), piece.id, piece))
    return [
        MemoryPointer(id_, one.kind, _find_title(one.text, coverage), len(one.raw_ids))
        for _, id_, one in sorted(ranked)
    ]


def _find_title(text: str, coverage: WordCoverage) -> str:
    """Return the line of a text that tells what it is about, without marks and shortened."""
    first, *rest = [*filter(None, (_MARKS.sub("", line).strip() for line in text.splitlines()))] or [""]
    if first.endswith(":") and rest:
        first = max(rest, key=lambda line: coverage.measure([line]))
    return shorten(first, _TITLE_CHARS, placeholder=" …")
