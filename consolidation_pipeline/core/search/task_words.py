"""Words of a task, by which it is told if a text is about it."""

import re
from functools import lru_cache

from consolidation_pipeline.core.differences.language_detection import detect_language
from consolidation_pipeline.core.differences.language_loader import load_function_words
from consolidation_pipeline.core.search.novelty import Sentence
from consolidation_pipeline.core.text.key_terms import list_pairs
from consolidation_pipeline.core.text.word_overlap import extract_content_words

# A text is about a task if it has half of the task's words or _ENOUGH of them, and one in _LONG_DIVISOR of a long task.
# A single common word such as "write" is not enough.
_ENOUGH, _LONG_DIVISOR = 3, 5
# In scripts without blanks, pairs of characters count: a word has one pair, and as many stand between two words.
_ENOUGH_PAIRS, _LONG_DIVISOR_OF_PAIRS = 2, 8
_RUN = re.compile(r"[\u3005\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uac00-\ud7a3]+")
_HIRAGANA = re.compile(r"[\u3040-\u309f]+")


def is_on_task(task: str, text: str) -> bool:
    """Return True if ``text`` has enough words of ``task`` to be about it, or one of its literals."""
    language = detect_language(task)
    own = _list_words(task, language)
    is_paired = any(map(_RUN.match, own))
    enough, divisor = (_ENOUGH_PAIRS, _LONG_DIVISOR_OF_PAIRS) if is_paired else (_ENOUGH, _LONG_DIVISOR)
    required = max(1, min(enough, -(-len(own) // 2)), len(own) // divisor)
    return len(own & _list_words(text, language)) >= required or Sentence(task).shares_literal(text)


def _list_words(text: str, language: str | None) -> frozenset[str]:
    """Return the stems of the words of a text that say something, and pairs of characters in scripts without blanks.

    Function words are those of English and of ``language``; pairs of Hiragana are grammar, too.
    """
    words = {word for word in Sentence(text).content_words if not _RUN.match(word)} - _stem_function_words(language)
    runs = [run for run in _RUN.findall(text) if not _HIRAGANA.fullmatch(run)]
    pairs = {pair for run in runs for pair in list_pairs(run)}
    return frozenset(words | {pair for pair in pairs if not _HIRAGANA.fullmatch(pair)})


@lru_cache
def _stem_function_words(language: str | None) -> frozenset[str]:
    return extract_content_words(" ".join(load_function_words(language).light)) if language else frozenset()
