"""Texts of proposed merges: those of the originals, and the one that keeps everything they say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from consolidation_pipeline.core.differences.explanation import Explanation
from consolidation_pipeline.core.knowledge.difference_kinds import explain_pairs
from consolidation_pipeline.core.memories.memories import embedding_text
from consolidation_pipeline.core.text.text_merge import MergedText, merge_capped
from consolidation_pipeline.embed.local import word_similarity
from consolidation_pipeline.llm.prompts.suggestion import OriginalMemory
from consolidation_pipeline.store.database.engine import Row
from consolidation_pipeline.store.memories.memories import TEXT_COLUMNS
from consolidation_pipeline.store.review.suggestions import read_text

# Kinds of differences in what a text holds under or of.
_CONDITIONS = ("added cue", "moved cue")


def split_text(row: Row[Any]) -> tuple[str, str | None]:
    """Return content and lessons of an original."""
    if row.kind != "raw":
        return row.texts[0], None
    fields = dict(zip(TEXT_COLUMNS, row.texts, strict=True))
    return embedding_text(**{**fields, "lessons_learned": None}), fields["lessons_learned"]


def to_prompt_text(row: Row[Any]) -> OriginalMemory:
    """Return an original as a language model sees it."""
    content, lessons = split_text(row)
    return OriginalMemory(content, (lessons or "").strip() or None, row.language)


def merge_originals(rows: Sequence[Row[Any]], *, max_chars: int) -> MergedText:
    """Return the text that says all that the originals say; texts that a person approved come first and stay.

    Originals of several days that contradict each other are told newest first, each with its day.

    Args:
        rows: Originals, the representative first.
        max_chars: Longest text, in characters.
    """
    if _has_approved(rows) or not _contradict(rows):
        texts = map(read_text, _approved_first(rows))
        return merge_capped(texts, max_chars=max_chars, keep_first=_has_approved(rows))
    newest_first = sorted(rows, key=lambda row: (row.learned_at, row.id), reverse=True)
    dated = [f"{row.learned_at:%Y-%m-%d}: {read_text(row)}" for row in newest_first]
    content = "\n\n".join(dated)
    fits = len(content) <= max_chars
    return MergedText(content, ()) if fits else merge_capped(dated, max_chars=max_chars, keep_first=True)


def _contradict(rows: Sequence[Row[Any]]) -> bool:
    """Return True if two of the originals were learned on different days and contradict each other, or may do so."""
    return any(
        _may_contradict(explanation) and rows[i].learned_at.date() != rows[j].learned_at.date()
        for i, j, explanation in explain_pairs([read_text(row) for row in rows], word_similarity)
    )


def _may_contradict(explanation: Explanation) -> bool:
    """Return True for a contradiction, and for two conditions in one place, such as "before" and "after"."""
    conditions = [one for one in explanation.differences if one.kind in _CONDITIONS]
    return explanation.verdict == "contradicts" or any(one.a and one.b for one in conditions)


def _approved_first(rows: Iterable[Row[Any]]) -> list[Row[Any]]:
    return sorted(rows, key=lambda row: not row.is_approved)


def _has_approved(rows: Iterable[Row[Any]]) -> bool:
    return any(row.is_approved for row in rows)
