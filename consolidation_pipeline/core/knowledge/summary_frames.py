"""Frames of a summary without a model: the words around what the memories say, in their language."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from consolidation_pipeline.core.differences.language_detection import detect_language
from consolidation_pipeline.core.knowledge.phrases import load_phrases

# Texts whose language is asked for, and the share of those of a known one that must be in it.
_MOST_TEXTS, _ONE_LANGUAGE = 200, 0.9


class Frames(NamedTuple):
    """Words of a language for the lines of a summary, as ``summary_frames.toml`` explains them."""

    memory: str
    memories: str
    replaced: str
    part: str
    span: str
    topic: str
    topics: str
    times: str
    other_lessons: str
    other_matters: str
    without_lesson: str
    others: str
    examples: str
    further: str
    asked: str
    asked_too: str


FRAMES = load_phrases("summary_frames.toml", Frames)


def choose_frames(texts: Sequence[str]) -> Frames:
    """Return the frames of the language of memories."""
    return FRAMES[find_common_language(texts)]


def find_common_language(texts: Sequence[str]) -> str:
    """Return the language of memories; English if they are in several, one of them English, or if none is known.

    Of several other languages it is the most frequent one. Of many memories a sample is read, and names of a few words
    have no language.
    """
    step = max(1, len(texts) // _MOST_TEXTS)
    known = Counter(filter(None, map(detect_language, texts[::step])))
    language, count = max(known.items(), key=lambda one: (one[1], one[0]), default=("en", 0))
    is_one = count >= _ONE_LANGUAGE * known.total() or known["en"] <= (1 - _ONE_LANGUAGE) * known.total()
    return language if is_one else "en"
