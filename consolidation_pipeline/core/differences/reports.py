"""Clauses that tell how what follows is known: "We were told that it is full", "It proved wrong that it is full"."""

import re
from collections.abc import Iterator, Mapping
from functools import cache

from consolidation_pipeline.core.differences.language import Language
from consolidation_pipeline.core.differences.order import Reordered
from consolidation_pipeline.core.differences.reading import Reading, Token

# Words before the one that opens what is reported.
_MOST_WORDS = 8


def find_new_frame(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> Reordered | None:
    """Return the words of a clause of one text alone that tells how what both say is known.

    It opens a sentence and ends with one of ``complementizers``. Labels such as "We found that" are no words.
    """
    if not language.complementizers:
        return None
    if frame := next(_list_frames(a, {*places}, language), None):
        return frame, []
    if frame := next(_list_frames(b, {*places.values()}, language), None):
        return [], frame
    return None


def _list_frames(reading: Reading, shared: set[int], language: Language) -> Iterator[list[Token]]:
    """Yield the tokens of each clause of a text that none of its tokens shares, if what follows it does."""
    opening, begin = _compile(language.complementizers), 0
    written = sorted((token.start - reading.begin, at) for at, token in enumerate(reading.tokens))
    for end in [end for end, *_ in reading.ends] or [len(reading.text)]:
        if match := opening.match(reading.text, begin, end):
            inside = [at for start, at in written if begin <= start < match.end()]
            after = next((at for start, at in written if match.end() <= start < end), None)
            if inside and after in shared and shared.isdisjoint(inside):
                yield [reading.tokens[at] for at in inside]
        begin = end


@cache
def _compile(complementizers: frozenset[str]) -> re.Pattern[str]:
    """Return the pattern of the opening of a sentence up to one of these words, without a comma before the last one."""
    last = "|".join(sorted(complementizers))
    return re.compile(rf"\W*(?:[\w'’-]+\s+){{0,{_MOST_WORDS - 1}}}?[\w'’-]+,?\s+(?:{last})(?![\w-])", re.IGNORECASE)
