"""Summaries and profiles: the episodes they are made of, and those there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, text

from consolidation_pipeline.core.knowledge.summary_batches import SESSION_IDLE
from consolidation_pipeline.core.memories.memories import embedding_text
from consolidation_pipeline.store.memories.memories import FILES, TEXT_COLUMNS
from consolidation_pipeline.store.similarity.similarity_graph import IS_NODE

# Raw memories ``t`` that wait for a summary; those that were merged are episodes like the others.
IS_UNSUMMARIZED = f"t.summarized_into_id IS NULL AND {IS_NODE}"
# Whose an episode is. A blank user is none: there is one profile for both.
_USER = "nullif(t.user_id, '') AS user_id"


@dataclass(frozen=True, kw_only=True)
class SummarySource:
    """What a summary or a profile is made of: a raw memory or a summary, by ``kind``; ``raw_ids``: its raw memories."""

    id: UUID
    kind: str
    user_id: str | None
    text: str
    memory_type: str
    language: str
    tags: tuple[str, ...]
    files: tuple[str, ...]
    importance: float
    success: bool | None
    learned_at: datetime
    last_accessed_at: datetime | None
    raw_ids: tuple[UUID, ...]


_SHARED = (
    f"memory_type, language::text AS language, tags, {FILES}, importance, success, learned_at, last_accessed_at, "
    f"{_USER}"
)
_EPISODES = f"""
    SELECT id, 'raw' AS kind, ARRAY[{", ".join(TEXT_COLUMNS)}] AS texts, ARRAY[id] AS raw_ids, {_SHARED}
    FROM consolidation.task_memories t WHERE project_id = :project AND embedding_model = :model AND {IS_UNSUMMARIZED}
    ORDER BY user_id NULLS FIRST, learned_at, id
"""
_SUMMARIES = f"""
    SELECT id, kind, ARRAY[content] AS texts, source_memory_ids AS raw_ids, {_SHARED}
    FROM consolidation.consolidated_memories t WHERE project_id = :project AND kind = 'summary' AND retired_at IS NULL
    ORDER BY user_id NULLS FIRST, learned_at, id
"""


def load_unsummarized(connection: Connection, project_id: UUID, model: str) -> list[SummarySource]:
    """Raw memories with a vector of ``model`` that no summary covers and that are not archived.

    By user, those without one first; oldest first.
    """
    rows = connection.execute(text(_EPISODES), {"project": project_id, "model": model})
    return [_material(row._asdict(), embedding_text(**dict(zip(TEXT_COLUMNS, row.texts, strict=True)))) for row in rows]


def load_summaries(connection: Connection, project_id: UUID) -> list[SummarySource]:
    """The active summaries of a project, by user and oldest first, as ``load_unsummarized``."""
    rows = connection.execute(text(_SUMMARIES), {"project": project_id})
    return [_material(row._asdict(), row.texts[0]) for row in rows]


def _material(row: Mapping[str, Any], said: str) -> SummarySource:
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
    values.pop("texts")
    return SummarySource(text=said, **values)


@dataclass(frozen=True)
class UnsummarizedCount:
    """Memories of a project that no summary covers, and whether a session ended in which some were written."""

    memories: int
    session_ended: bool


def count_unsummarized(connection: Connection, project_id: UUID, as_of: datetime) -> UnsummarizedCount:
    """What waits for a summary as of an instant."""
    query = f"""
        SELECT coalesce(sum(waiting), 0)::integer, coalesce(bool_or(ended), false) FROM (
            SELECT count(*) AS waiting,
                session_id IS NOT NULL AND max(created_at) <= CAST(:idle_since AS timestamptz) AS ended
            FROM consolidation.task_memories t WHERE project_id = :project AND {IS_UNSUMMARIZED} GROUP BY session_id) s
    """
    parameters = {"project": project_id, "idle_since": as_of - SESSION_IDLE}
    return UnsummarizedCount(*connection.execute(text(query), parameters).one())


@dataclass(frozen=True)
class SummaryCoverage:
    """Raw memories that a summary covers, and how many summaries there are for them."""

    memories: int
    summaries: int


def count_coverage(connection: Connection, project_id: UUID) -> SummaryCoverage:
    """Episodes and summaries of a project, retired ones too: their memories are not summarised again."""
    query = """
        SELECT (SELECT count(*) FROM consolidation.task_memories
                WHERE project_id = :project AND summarized_into_id IS NOT NULL),
            (SELECT count(*) FROM consolidation.consolidated_memories WHERE project_id = :project AND kind = 'summary')
    """
    return SummaryCoverage(*connection.execute(text(query), {"project": project_id}).one())


@dataclass(frozen=True)
class ExistingProfile:
    """A profile there is. ``is_archived``: a person archived it."""

    id: UUID
    version: int
    cluster_key: str
    is_archived: bool


def load_profiles(connection: Connection, project_id: UUID) -> dict[UUID, ExistingProfile]:
    """The profiles of a project, archived ones too, by id."""
    query = """
        SELECT id, version, cluster_key, retired_at IS NOT NULL FROM consolidation.consolidated_memories
        WHERE project_id = :project AND kind = 'procedural'
    """
    rows = connection.execute(text(query), {"project": project_id}).tuples()
    return {row[0]: ExistingProfile(*row) for row in rows}
