"""Tenses of verbs without an auxiliary: what will be done and what was, what is to be done and what was."""

import re
from collections.abc import Mapping

from consolidation_pipeline.core.differences.language import Language
from consolidation_pipeline.core.differences.order import Reordered
from consolidation_pipeline.core.differences.reading import Reading, Token

# Text before the first word of a sentence, maybe with the mark of a list.
_OPENING = re.compile(r"(?:^|[.!?:;\n])[\s\W]*(?:\d{1,2}[.)]\s*)?$")
_MOST_BEFORE = 12


def find_new_tense(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> Reordered | None:
    """Return a verb that tells in one text alone what will be done, and in the other what was: borrará, borró."""
    for at, there in places.items():
        forms = a.tokens[at].text.lower(), b.tokens[there].text.lower()
        for form, other in (forms, forms[::-1]):
            if language.is_future(form) and not language.is_future(other) and language.is_past(other):
                return [a.tokens[at]], [b.tokens[there]]
    return None


def find_new_mood(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> Reordered | None:
    """Return a verb that opens a request in one text and a report in the other: "Restart it", "Restarted it"."""
    for at, there in places.items():
        one, other = a.tokens[at], b.tokens[there]
        has_past, has_past_there = (language.is_past(token.text.lower()) for token in (one, other))
        is_other = one.kind == other.kind == "word" and has_past != has_past_there
        if is_other and _opens_sentence(a, one) and _opens_sentence(b, other):
            return [one], [other]
    return None


def _opens_sentence(reading: Reading, token: Token) -> bool:
    return _OPENING.search(reading.source[max(0, token.start - _MOST_BEFORE) : token.start]) is not None
