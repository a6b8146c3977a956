"""The language of a text, told by its function words and by the words that the lists know."""

import re
from functools import lru_cache

from consolidation_pipeline.core.differences.language import IDEOGRAPH, KANA, LATIN, split_words
from consolidation_pipeline.core.differences.language_loader import load_function_words, load_vocabulary

# Words of a text without function words that names something and claims nothing: "shopping list".
_MOST_WORDS_OF_NAME = 2
# It tells no language: CI, IT.
_ACRONYM = re.compile(r"\b[A-Z]{2,}\b")


@lru_cache(maxsize=8192)
def detect_language(text: str) -> str | None:
    """Return the language of a text, None if it is none of ``LANGUAGES``.

    Kana decide for Japanese, other ideographs for Chinese. Between alphabetic languages, the number of function words
    decides, and if these are as many in two or only one, the number of words that the lists know: "CI takes a minute"
    is not French. A text with fewer than one function word in eight is of the language that knows at least a quarter of
    its words, more than any other does. Otherwise, and if it is a name of one or two words, it is of no known language.
    """
    words = split_words(_ACRONYM.sub(" ", text)) or split_words(text)
    if not words:
        return "en"
    if not text.isascii():
        if len(KANA.findall(text)) * 10 >= len(words):
            return "ja"
        if len(IDEOGRAPH.findall(text)) * 4 >= len(words):
            return "zh"
    hits = dict.fromkeys(LATIN, 0)
    for word in words:
        for code in _find_languages(word):
            hits[code] += 1
    best, second = sorted(LATIN, key=lambda code: -hits[code])[:2]
    is_clear = hits[best] * 8 >= len(words)
    if is_clear and hits[best] > max(hits[second], 1):
        return best
    known = {code: sum(_knows(code, word) for word in words) for code in LATIN}
    if is_clear:
        return max(LATIN, key=lambda code: (known[code], hits[code]))
    if len(words) <= _MOST_WORDS_OF_NAME and not any(map(str.isdigit, text)):
        return None
    best, second = sorted(known, key=lambda code: -known[code])[:2]
    return best if known[best] > known[second] and known[best] * 4 >= len(words) else None


def _knows(code: str, word: str) -> bool:
    """Return True if a word in lower case, or what is left of it without a short ending, is in the lists."""
    words = load_vocabulary(code)
    return load_function_words(code).is_light(word) or any(word[: len(word) - cut] in words for cut in range(3))


@lru_cache(maxsize=50_000)
def _find_languages(word: str) -> tuple[str, ...]:
    """Return the alphabetic languages in which a word in lower case is a function word."""
    return tuple(code for code in LATIN if load_function_words(code).is_light(word))
