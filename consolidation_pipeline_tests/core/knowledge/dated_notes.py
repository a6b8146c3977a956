"""Dated memories with their texts, and the search for supersessions among them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from consolidation_pipeline.core.knowledge.supersession import Supersession, Writer
from consolidation_pipeline.core.knowledge.supersession_search import DatedMemory, FoundSupersession, find_supersessions
from consolidation_pipeline.core.memories.memories import content_hash, normalized_hash


@dataclass(frozen=True)
class DatedNote(DatedMemory):
    """A dated memory with its ``text``."""

    text: str = ""

    @classmethod
    def of(cls, id_: UUID, text: str, learned_at: datetime, writer: Writer, scope: str = "") -> DatedNote:
        """Return the memory with the hashes of its text."""
        return cls(id_, content_hash(text), normalized_hash(text), learned_at, writer, scope, text)


def find(notes: Iterable[DatedNote], **how: Any) -> tuple[list[FoundSupersession], dict[str, bytes]]:
    """Return what ``find_supersessions`` does."""
    known = list(notes)

    def load_texts(ids: Sequence[UUID]) -> Mapping[UUID, str]:
        return {one.id: one.text for one in known if one.id in ids}

    return find_supersessions(known, load_texts, **how)


def find_between(older: DatedNote, newer: DatedNote) -> Supersession | None:
    """Return how the one note supersedes the other; None if it does not."""
    found, _ = find([older, newer])
    return next((one.found for one in found if one.newer_id == newer.id), None)
