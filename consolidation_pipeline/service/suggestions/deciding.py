"""What a person says of suggestions: approved, rejected, and the undoing of both by the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.engine import Engine


@dataclass(frozen=True)
class Decided:
    """A decision. ``memory_id``: the merged memory that an approval made; rolling ``group_id`` back undoes all of it."""

    suggestion_id: UUID
    status: str
    memory_id: UUID | None
    group_id: UUID


@dataclass(frozen=True)
class Bulk:
    """What became of many: those decided, and id and reason of those that could not be."""

    decided: list[Decided]
    refused: list[tuple[UUID, str]]


def approve_suggestion(
    engine: Engine,
    id: UUID,
    *,
    content: str | None = None,
    lessons_learned: str | None = None,
    note: str | None = None,
    decided_by: str,
    settings: Settings | None = None,
) -> Decided:
    raise NotImplementedError


def reject_suggestion(engine: Engine, id: UUID, *, note: str | None = None, decided_by: str) -> Decided:
    raise NotImplementedError


def decide_all(
    engine: Engine,
    slug: str,
    *,
    verdict: str,
    min_similarity: float | None = None,
    type: str | None = None,
    decided_by: str,
    limit: int | None = None,
    settings: Settings | None = None,
) -> Bulk:
    raise NotImplementedError
