"""The language of a text, told by its function words and by the words that the lists know."""

import re
from functools import lru_cache

from consolidation_pipeline.core.differences.language import IDEOGRAPH, KANA, LATIN, split_words
from consolidation_pipeline.core.differences.language_loader import load_function_words, load_vocabulary

# Words of a text without function words that names something and claims nothing: "shopping list".
_MOST_WORDS_OF_NAME = 2
# It tells no language: CI, IT.
_ACRONYM = re.compile(r"\b[A-Z]{2,}\b")
# Fewest function words that a clear language has, and how many times those of any other language.
_FEWEST_WORDS, _TIMES = 4, 3
# Share of Chinese and Japanese characters among the words of a text in one of them.
_SHARE = 0.5
_CJK = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]")
# Letters that only one of the languages has, but for names.
_LETTERS = {"de": re.compile("[äöüß]"), "es": re.compile("[ñóíáú]"), "fr": re.compile("[èêàçùûîôœ]")}
# Text search configuration of Postgres for each language.
_CONFIGURATIONS = {"en": "english", "de": "german", "es": "spanish", "fr": "french", "zh": "simple", "ja": "simple"}
# Characters of a text that are read: the language of a longer one is told by its beginning.
_READ_CHARS = 400


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
    marked = [code for code, letters in _LETTERS.items() if letters.search(text)]
    if len(marked) == 1 and hits[marked[0]]:
        return marked[0]
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


def find_clear_language(text: str) -> str | None:
    """Return the code of the language of a text, None if it is not clear: short texts, mixed and other languages.

    Chinese and Japanese are told apart by kana alone, which a short text may lack.
    """
    words = split_words(text)
    if not words:
        return None
    if len(_CJK.findall(text)) >= _SHARE * len(words):
        found = detect_language(text)
        return found if found in ("zh", "ja") else None
    hits = {code: sum(map(load_function_words(code).is_light, words)) for code in LATIN}
    second, best = sorted(LATIN, key=hits.__getitem__)[-2:]
    return best if hits[best] >= max(_FEWEST_WORDS, _TIMES * hits[second]) else None


def detect_configuration(text: str) -> str:
    """Return the text search configuration of the language of a text.

    Of an unknown language it is ``english`` if the text has no other letters than English has, else ``simple``.
    """
    text = text[:_READ_CHARS]
    code = detect_language(text)
    return _CONFIGURATIONS[code] if code else "english" if text.isascii() else "simple"
