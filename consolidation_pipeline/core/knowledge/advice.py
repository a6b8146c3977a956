"""Advice: whether an extracted text says what to do."""

from __future__ import annotations

from consolidation_pipeline.core.knowledge.lesson_sentences import TO_TRY, read_lesson
from consolidation_pipeline.core.knowledge.pattern_layout import read_statements
from consolidation_pipeline.core.knowledge.weak_sentences import names_goal_alone
from consolidation_pipeline.core.text.sentences import extract_sentences


def advises(content: str, summary: str = "", title: str = "") -> bool:
    """Return True if an extracted text says what to do, or never to do.

    Its title and its examples do not count, nor what was tried and failed, nor what to try instead: failed attempts on
    one task suppose opposite things, and none of them is proven.

    Args:
        content: Text of a pattern or principle.
        summary: Its headline.
        title: Its first line, if that is a title.
    """
    told = f"{summary}\n\n{read_statements(content, title)}"
    lessons = (read_lesson(one.text) for one in extract_sentences(told))
    return any(
        lesson.role in ("rule", "warning")
        and not lesson.is_verdict
        and not lesson.text.startswith(TO_TRY)
        and not names_goal_alone(lesson.text)
        for lesson in lessons
    )
