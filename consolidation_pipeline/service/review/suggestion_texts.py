"""Texts of proposed merges: those of the originals, and the one that keeps everything they say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from consolidation_pipeline.core.memories.memories import embedding_text
from consolidation_pipeline.core.text.text_merge import MergedText, merge_capped
from consolidation_pipeline.llm.prompts.suggestion import OriginalMemory
from consolidation_pipeline.store.database.engine import Row
from consolidation_pipeline.store.memories.memories import TEXT_COLUMNS


def read_text(row: Row[Any]) -> str:
    """Return the whole text of an original, a row of ``load_originals``."""
    if row.kind != "raw":
        return str(row.texts[0])
    return embedding_text(**dict(zip(TEXT_COLUMNS, row.texts, strict=True)))


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

    Args:
        rows: Originals, the representative first.
        max_chars: Longest text, in characters.
    """
    return merge_capped(map(read_text, _approved_first(rows)), max_chars=max_chars, keep_first=_has_approved(rows))


def _approved_first(rows: Iterable[Row[Any]]) -> list[Row[Any]]:
    return sorted(rows, key=lambda row: not row.is_approved)


def _has_approved(rows: Iterable[Row[Any]]) -> bool:
    return any(row.is_approved for row in rows)
