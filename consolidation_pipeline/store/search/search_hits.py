"""Content of search hits, and their similarities to a query."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from pgvector import Vector
from sqlalchemy import Connection

from consolidation_pipeline.core.memories.memories import LEVELS
from consolidation_pipeline.core.search.results import HitSource, SearchHit
from consolidation_pipeline.store.database.raw_connections import fetch_rows, format_uuids
from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.database.vector_copy import Vectors
from consolidation_pipeline.store.memories.memories import join_text_columns


class RankedMemory(NamedTuple):
    """Memory that a search ranked, before its content is loaded; the fields are those of ``SearchHit``."""

    id: UUID
    relevance_score: float
    match: float
    similarity: float | None
    keyword_rank: int | None
    why: str | None


_LOAD_HITS = """
    SELECT id, 'raw' AS kind, memory_type, NULL AS pattern_type, NULL::float8 AS confidence, tags, learned_at,
        0 AS source_count, NULL AS content, goal, execution_summary, result, lessons_learned, feedback
    FROM consolidation.task_memories WHERE id = ANY(%(ids)s::uuid[])
    UNION ALL
    SELECT id, kind, memory_type, pattern_type, confidence_score, tags, learned_at,
        source_count, /* content */, NULL, NULL, NULL, NULL, NULL
    FROM consolidation.consolidated_memories m WHERE id = ANY(%(ids)s::uuid[])
"""
# The ledger has the text before the first change after that time.
_CONTENT_AS_OF = """coalesce((
    SELECT c.previous_state ->> 'content' FROM consolidation.consolidation_changes c
    WHERE c.entity_id = m.id AND c.changed_at > %(as_of)s AND c.previous_state ? 'content' ORDER BY c.seq LIMIT 1),
    content)"""


def load_hits(
    connection: Connection,
    ranked: Sequence[RankedMemory],
    *,
    include_sources: bool = False,
    as_of: datetime | None = None,
) -> list[SearchHit]:
    """Return the ranked memories as search hits, in the same order.

    The content of a raw memory is its whole text, as it is embedded. Without ``include_sources`` the hits have none.
    With ``as_of``, a consolidated memory has the text of that time, as far back as the ledger is kept.
    """
    ids = [memory.id for memory in ranked]
    sources = load_hit_sources(connection, ids) if include_sources else {}
    statement = compose(_LOAD_HITS, content="content" if as_of is None else _CONTENT_AS_OF)
    bound = {"ids": format_uuids(ids)} | ({} if as_of is None else {"as_of": as_of})
    rows = {row[0]: row[1:] for row in fetch_rows(connection, statement, bound)}
    hits = []
    for memory in ranked:
        kind, memory_type, pattern_type, confidence, tags, learned_at, source_count, content, *texts = rows[memory.id]
        if content is None:
            content = join_text_columns(texts)
        hits.append(
            SearchHit(
                id=memory.id,
                kind=kind,
                level=LEVELS[kind],
                memory_type=memory_type,
                pattern_type=pattern_type,
                content=content,
                relevance_score=memory.relevance_score,
                match=memory.match,
                similarity=memory.similarity,
                keyword_rank=memory.keyword_rank,
                confidence=confidence,
                tags=tags,
                learned_at=learned_at,
                source_count=source_count,
                sources=sources.get(memory.id),
                why=memory.why,
            )
        )
    return hits


_LOAD_SIMILARITIES = """
    SELECT id::text, 1 - (embedding <=> CAST(%(vector)s AS vector)) FROM consolidation.task_memories
    WHERE id = ANY(%(ids)s::uuid[]) AND embedding_model = %(model)s AND embedding_dim = %(dimension)s
    UNION ALL
    SELECT id::text, 1 - (embedding <=> CAST(%(vector)s AS vector)) FROM consolidation.consolidated_memories
    WHERE id = ANY(%(ids)s::uuid[]) AND embedding_model = %(model)s AND embedding_dim = %(dimension)s
"""


_LOAD_STAGED_SIMILARITIES = """
    SELECT memory_id::text, 1 - (s.embedding <=> CAST(%(vector)s AS vector)) FROM consolidation.staged_embeddings s
        LEFT JOIN consolidation.task_memories t ON t.id = s.memory_id
        LEFT JOIN consolidation.consolidated_memories c ON c.id = s.memory_id
    WHERE s.project_id = %(project)s AND s.memory_id = ANY(%(ids)s::uuid[]) AND s.embedding_model = %(model)s
        AND s.embedding_dim = %(dimension)s AND s.content_hash = coalesce(t.content_hash, c.content_hash)
"""


def load_staged_similarities(
    connection: Connection, project_id: UUID, ids: Collection[str], *, model: str, vector: Vectors
) -> dict[str, float]:
    """Return what ``load_similarities`` does, by staged vectors."""
    if not ids:
        return {}
    bound = {"project": project_id, "ids": format_uuids(ids), "model": model}
    bound |= {"dimension": len(vector), "vector": Vector(vector)}
    return dict(fetch_rows(connection, _LOAD_STAGED_SIMILARITIES, bound))


def load_similarities(connection: Connection, ids: Collection[str], *, model: str, vector: Vectors) -> dict[str, float]:
    """Return the cosine similarities of memories to a vector (d,) of ``model``; without those that have no vector."""
    if not ids:
        return {}
    bound = {"ids": format_uuids(ids), "model": model, "dimension": len(vector), "vector": Vector(vector)}
    return dict(fetch_rows(connection, _LOAD_SIMILARITIES, bound))


_LOAD_HIT_SOURCES = """
    SELECT l.child_id, l.parent_id AS id, l.parent_kind AS kind, l.similarity,
        coalesce(raw.memory_type, consolidated.memory_type) AS memory_type,
        coalesce(raw.execution_summary, consolidated.content) AS content
    FROM consolidation.memory_lineage l
        LEFT JOIN consolidation.task_memories raw ON raw.id = l.parent_id
        LEFT JOIN consolidation.consolidated_memories consolidated ON consolidated.id = l.parent_id
    WHERE l.child_id = ANY(%(ids)s::uuid[])
    ORDER BY l.child_id, l.similarity DESC NULLS LAST, l.parent_id
"""


def load_hit_sources(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, list[HitSource]]:
    """Return what each memory was made from, the most similar first; an empty list for a raw memory."""
    sources: dict[UUID, list[HitSource]] = {id_: [] for id_ in ids}
    for child_id, *source in fetch_rows(connection, _LOAD_HIT_SOURCES, {"ids": format_uuids(ids)}):
        sources[child_id].append(HitSource(*source))
    return sources


_LOAD_MEMBERS = """
    SELECT child_id::text, array_agg(parent_id::text ORDER BY parent_id) FROM consolidation.memory_lineage
    WHERE child_id = ANY(%(patterns)s::uuid[]) AND parent_id = ANY(%(ids)s::uuid[]) GROUP BY child_id
"""


def load_members(connection: Connection, patterns: Collection[str], ids: Collection[str]) -> dict[str, list[str]]:
    """Return which of the memories ``ids`` each pattern was made from; a pattern of others is left out."""
    if not patterns or not ids:
        return {}
    return dict(fetch_rows(connection, _LOAD_MEMBERS, {"patterns": format_uuids(patterns), "ids": format_uuids(ids)}))
