"""Language of a text whose words leave no doubt about it."""

import re

from consolidation_pipeline.core.differences.language import LATIN, split_words
from consolidation_pipeline.core.differences.language_detection import detect_language
from consolidation_pipeline.core.differences.language_loader import load_function_words

# Fewest function words that a clear language has, and how many times those of any other language.
_FEWEST_WORDS, _TIMES = 4, 3
# Share of Chinese and Japanese characters among the words of a text in one of them.
_SHARE = 0.5
_CJK = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]")


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
