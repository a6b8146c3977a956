"""Words that tell how many or which of a kind: "both keys", "one key", "the same key"."""

import re
from collections.abc import Mapping
from itertools import pairwise

from consolidation_pipeline.core.differences.language import Language, is_unspaced
from consolidation_pipeline.core.differences.order import Reordered
from consolidation_pipeline.core.differences.reading import Reading, Token, sort_as_written

# Counts that do not stand for each other. "If any test fails" is "if a test fails".
_OPPOSED = {frozenset(pair) for pair in (("two", "one"), ("two", "a"), ("any", "one"), ("same", "a"))}
# Words before a noun among which its count is: "both of the keys".
_LONGEST_COUNT = 4
# Characters that hold as many words.
_CHARS_BEFORE = 48
_CLAUSE_END = re.compile(r"[.,;:!?\n]")
_WORDS = re.compile(r"\w+")


def find_new_count(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> Reordered | None:
    """Return a word of both texts of which they count other numbers; None if there is none.

    Args:
        places: Position in ``b`` of each aligned position in ``a``.
    """
    if not any(language.counts.keys() & one.words for one in (a, b)) and language.stemmer:
        return None
    for at, there in places.items():
        one, other = a.tokens[at], b.tokens[there]
        counts = _read_count(a, one, language), _read_count(b, other, language)
        if frozenset(counts) in _OPPOSED or _is_plural(one, other, counts, language):
            return [one], [other]
    alone, alone_there = (_list_counts(x, y, language) for x, y in ((a, b), (b, a)))
    if any("two" in here and "one" in there for here, there in ((alone, alone_there), (alone_there, alone))):
        return list(a.tokens), list(b.tokens)  # "both of them", "one of them"
    return None


def find_new_rate(a: Reading, _b: Reading, places: Mapping[int, int], language: Language) -> Reordered | None:
    """Return a count that ``a`` has before a time of both texts: "twice a year", "once a year"; None if there is none.

    Args:
        places: Position in the other text of each aligned position in ``a``.
    """
    for at, following in pairwise(sort_as_written(a.tokens)):
        count, time = a.tokens[at], a.tokens[following]
        is_rate = count.key.startswith("number:") and count.clause == time.clause and time.words_before <= 1
        if is_rate and at not in places and following in places and _is_time(time.text, language):
            return [count, time], []
    return None


def _is_time(text: str, language: Language) -> bool:
    words = _WORDS.findall(text.lower())
    return any(language.stem(word) in language.times or word in language.time_adverbs for word in words)


def _read_count(reading: Reading, token: Token, language: Language) -> str:
    """Return the count before a word, empty if there is none."""
    before = reading.source[max(0, token.start - _CHARS_BEFORE) : token.start].lower()
    if is_unspaced(token.text):
        return next((count for word, count in language.counts.items() if before.endswith(word)), "")
    for word in _WORDS.findall(_CLAUSE_END.split(before)[-1])[: -_LONGEST_COUNT - 1 : -1]:
        if count := language.counts.get(word):
            return count
        if word not in language.determiners and word not in language.genitives:
            break
    return ""


def _is_plural(one: Token, other: Token, counts: tuple[str, str], language: Language) -> bool:
    """Return True if one text has two of what the other one has in the singular: "both tests", "the test"."""
    is_one_word = language.stem(one.text.lower()) == language.stem(other.text.lower())
    if (counts[0] == "two") == (counts[1] == "two") or not is_one_word:
        return False
    plural, singular = (one, other) if counts[0] == "two" else (other, one)
    return len(plural.text) > len(singular.text)


def _list_counts(one: Reading, other: Reading, language: Language) -> set[str]:
    """Return the counts of the words of one text alone."""
    return {language.counts[word] for word in (one.words - other.words) & language.counts.keys()}
