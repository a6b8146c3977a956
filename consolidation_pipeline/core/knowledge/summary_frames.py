"""Frames of a summary without a model: the words around what the memories say, in their language."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from consolidation_pipeline.core.differences.language import detect_language

# Texts whose language is asked for, and the share of those of a known one that must be in it.
_MOST_TEXTS, _ONE_LANGUAGE = 200, 0.9


class Frames(NamedTuple):
    """Words of a language for the lines of a summary.

    ``part``: a number of memories of all. ``others``: before advice that another attempt gives.
    """

    memory: str
    memories: str
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


FRAMES = {
    "en": Frames(
        "1 memory",
        "{} memories",
        "{} of {}",
        "{} to {}",
        "on 1 topic",
        "on {} topics",
        "{} times",
        "Other lessons",
        "Other matters",
        "Without a lesson of their own",
        "Others:",
        "For example",
        "Also",
        "Asked, for example",
        "Also asked",
    ),
    "de": Frames(
        "1 Notiz",
        "{} Notizen",
        "{} von {}",
        "{} bis {}",
        "zu 1 Thema",
        "zu {} Themen",
        "{}-mal",
        "Weitere Lehren",
        "Weiteres",
        "Ohne eigene Lehre",
        "Andere:",
        "Zum Beispiel",
        "Auch",
        "Gefragt, zum Beispiel",
        "Auch gefragt",
    ),
    "es": Frames(
        "1 nota",
        "{} notas",
        "{} de {}",
        "de {} a {}",
        "sobre 1 tema",
        "sobre {} temas",
        "{} veces",
        "Otras lecciones",
        "Otros asuntos",
        "Sin lección propia",
        "Otros:",
        "Por ejemplo",
        "También",
        "Preguntado, por ejemplo",
        "También preguntado",
    ),
    "fr": Frames(
        "1 note",
        "{} notes",
        "{} sur {}",
        "du {} au {}",
        "sur 1 sujet",
        "sur {} sujets",
        "{} fois",
        "Autres leçons",
        "Autres sujets",
        "Sans leçon propre",
        "Autres :",
        "Par exemple",
        "Aussi",
        "Demandé, par exemple",
        "Aussi demandé",
    ),
    "zh": Frames(
        "1 条记忆",
        "{} 条记忆",
        "{} / {}",
        "{} 至 {}",
        "1 个主题",
        "{} 个主题",
        "{} 次",
        "其他经验",
        "其他事项",
        "没有经验的",
        "另有：",
        "例如",
        "还有",
        "提问，例如",
        "还问过",
    ),
    "ja": Frames(
        "1 件",
        "{} 件",
        "{} / {}",
        "{} – {}",
        "1 件の話題",
        "{} 件の話題",
        "{} 回",
        "ほかの教訓",
        "ほかの事柄",
        "教訓のないもの",
        "ほかに：",
        "例",
        "ほかに",
        "質問、例",
        "ほかの質問",
    ),
}


def choose_frames(texts: Sequence[str]) -> Frames:
    """Return the frames of the language of memories."""
    return FRAMES[find_common_language(texts)]


def find_common_language(texts: Sequence[str]) -> str:
    """Return the language of memories, English if they are in several or in none that texts are compared in.

    Of many memories a sample is read, and names of a few words have no language.
    """
    step = max(1, len(texts) // _MOST_TEXTS)
    known = Counter(filter(None, map(detect_language, texts[::step])))
    language, count = max(known.items(), key=lambda one: (one[1], one[0]), default=("en", 0))
    return language if count >= _ONE_LANGUAGE * known.total() else "en"
