"""Clauses that tell how what follows is known: "We were told that it is full", "It proved wrong that it is full"."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache

from consolidation_pipeline.core.differences.language import Language
from consolidation_pipeline.core.differences.order import Reordered
from consolidation_pipeline.core.differences.reading import Reading, Token

# Words before the one that opens what is reported, and signs after the one that ends it.
_MOST_WORDS, _MOST_SIGNS = 8, 16


def find_new_frame(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> Reordered | None:
    """Return the words of a clause of one text alone that tells how what both say is known.

    It opens a sentence and ends with one of ``complementizers``, or ends it behind one of ``closing_complementizers``.
    Labels such as "We found that" are no words.
    """
    if frame := next(_list_frames(a, {*places}, language), None):
        return frame, []
    if frame := next(_list_frames(b, {*places.values()}, language), None):
        return [], frame
    return None


def _list_frames(reading: Reading, shared: set[int], language: Language) -> Iterator[list[Token]]:
    """Yield the tokens of each clause of a text that none of its tokens shares, if what follows it does."""
    find, begin = _compile(language.complementizers, language.closing_complementizers), 0
    if find is None:
        return
    for end in [end for end, *_ in reading.ends] or [len(reading.text)]:
        if match := find(reading.text, begin, end):
            written = ((token.start - reading.begin, at) for at, token in enumerate(reading.tokens))
            of_sentence = sorted((start, at) for start, at in written if begin <= start < end)
            inside = [at for start, at in of_sentence if match.start() <= start < match.end()]
            beside = [at for start, at in of_sentence if not match.start() <= start < match.end()]
            if language.closing_complementizers:
                beside.reverse()
            if inside and beside and beside[0] in shared and shared.isdisjoint(inside):
                yield [reading.tokens[at] for at in inside]
        begin = end


@cache
def _compile(
    opening: frozenset[str], closing: frozenset[str]
) -> Callable[[str, int, int], re.Match[str] | None] | None:
    """Return the function that finds in a part of a text, a sentence, what stands up to or behind one of these words.

    Before the words that open what is reported there is no comma, but right before one of them.
    """
    if closing:
        words = "|".join(sorted(closing, key=len, reverse=True))
        return re.compile(rf"(?:{words})[^\W\d_]{{1,{_MOST_SIGNS}}}[たるいうすだ](?=\W*$)").search
    if opening:
        words = "|".join(sorted(opening))
        start = rf"\W*(?:[\w'’-]+\s+){{0,{_MOST_WORDS - 1}}}?[\w'’-]+,?\s+"
        return re.compile(rf"{start}(?:{words})(?![\w-])", re.IGNORECASE).match
    return None
