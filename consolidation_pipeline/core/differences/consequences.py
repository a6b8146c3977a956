"""Causes and consequences that changed places: "The pump overheated. That is why the fuse blew"."""

import re
from collections.abc import Mapping
from functools import cache

from consolidation_pipeline.core.differences.language import Language, is_unspaced
from consolidation_pipeline.core.differences.order import Reordered
from consolidation_pipeline.core.differences.reading import Reading


def find_turned_consequence(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> Reordered | None:
    """Return the words of a cause that the other text tells as the consequence, with this; None if there is none.

    Args:
        places: Position in ``b`` of each aligned position in ``a``.
    """
    place, place_there = _find_connective(a, language), _find_connective(b, language)
    if place is None or place_there is None:
        return None
    (begin, middle, end), middle_there = place, place_there[1]
    causes = [at for at in places if begin <= a.tokens[at].start < middle]
    effects = [at for at in places if middle < a.tokens[at].start < end]
    later = [at for at in causes if b.tokens[places[at]].start > middle_there]
    earlier = [at for at in effects if b.tokens[places[at]].start < middle_there]
    if 2 * len(later) <= len(causes) or 2 * len(earlier) <= len(effects):
        return None
    return [a.tokens[at] for at in (later[0], earlier[0])], [b.tokens[places[at]] for at in (earlier[0], later[0])]


def _find_connective(reading: Reading, language: Language) -> tuple[int, int, int] | None:
    """Return where the sentence before the only connective begins, where this stands and where its sentence ends."""
    found = list(_compile_connectives(language.consequences).finditer(reading.source))
    if len(found) != 1:
        return None
    start = found[0].start()
    begin, end = reading.find_sentence(start)
    # What a connective at the begin of its sentence follows from is in the one before.
    is_first = not reading.source[begin:start].strip()
    return reading.find_sentence(begin - 1)[0] if is_first and begin else begin, start, end


@cache
def _compile_connectives(connectives: frozenset[str]) -> re.Pattern[str]:
    words = sorted(connectives, key=len, reverse=True)
    boundary = "" if any(map(is_unspaced, words)) else r"\b"
    return re.compile(f"{boundary}(?:{'|'.join(map(re.escape, words))}){boundary}", re.IGNORECASE)
