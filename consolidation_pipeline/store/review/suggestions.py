"""Suggestions: proposed merges that wait for a person, read and written through the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from sqlalchemy import Connection, Row, text

from consolidation_pipeline.core.grouping.cannot_link import CannotLink
from consolidation_pipeline.core.knowledge.merge_proposals import list_suggestion_ids
from consolidation_pipeline.scopes import NO_WALLS
from consolidation_pipeline.store.database.raw_connections import fetch_rows, format_uuids
from consolidation_pipeline.store.database.schema import consolidation_suggestions
from consolidation_pipeline.store.database.scope_keys import derived_scope_key, raw_scope_key
from consolidation_pipeline.store.database.sql import compose, conditions
from consolidation_pipeline.store.database.vector_copy import load_columns, to_ids
from consolidation_pipeline.store.knowledge.abstractions import APPROVED
from consolidation_pipeline.store.ledger.ledger_writer import (
    Author,
    Change,
    check_constraints_at_end,
    insert_rows,
    update_rows,
)
from consolidation_pipeline.store.memories.memories import TEXT_COLUMNS, join_texts, lock_rows
from consolidation_pipeline.store.memories.pending_uses import count_with_pending

# `memory_type`: all originals have one type, unless the project lets groups cross types; then the first one's counts.
# `decided_in`: the ledger group of the decision in force, to undo it by.
_SELECT_SUGGESTIONS = """
    SELECT s.*, p.slug,
        coalesce((SELECT memory_type FROM consolidation.task_memories WHERE id = s.original_memory_ids[1]),
            (SELECT memory_type FROM consolidation.consolidated_memories WHERE id = s.original_memory_ids[1])
        ) AS memory_type,
        CASE WHEN s.status IN ('validated', 'rejected', 'kept') THEN (
            SELECT c.group_id FROM consolidation.consolidation_changes c
            WHERE c.entity_id = s.id AND c.version_after = s.version ORDER BY c.seq DESC LIMIT 1) END AS decided_in
    FROM consolidation.consolidation_suggestions s JOIN consolidation.projects p ON p.id = s.project_id
    WHERE true/* filters */
    ORDER BY s.reviewed_at DESC NULLS LAST, s.worth DESC NULLS LAST, s.similarity DESC NULLS LAST, s.id/* page */
"""
_COUNT_SUGGESTIONS = "SELECT count(*) FROM consolidation.consolidation_suggestions s WHERE true/* filters */"
_HAS_TYPE = """:type = coalesce(
    (SELECT memory_type FROM consolidation.task_memories WHERE id = s.original_memory_ids[1]),
    (SELECT memory_type FROM consolidation.consolidated_memories WHERE id = s.original_memory_ids[1]))"""


def list_suggestions(
    connection: Connection,
    project_id: UUID | None,
    *,
    status: str | None,
    memory_type: str | None,
    min_similarity: float | None,
    differ_only_in: str | None = None,
    limit: int,
    offset: int = 0,
) -> tuple[int, Sequence[Row[Any]]]:
    """Return the number of suggestions that match, and a page of them.

    The last decided come first; of those that wait, the ones worth most. None = any project, status and so on.

    Args:
        differ_only_in: Kind of all differences between the originals.
    """
    filters = list_conditions(project_id, status, memory_type, min_similarity, differ_only_in)
    bound = {
        "project": project_id,
        "status": status,
        "type": memory_type,
        "min_similarity": min_similarity,
        "kind": differ_only_in,
    }
    total = connection.execute(text(compose(_COUNT_SUGGESTIONS, filters=filters)), bound).scalar_one()
    statement = compose(_SELECT_SUGGESTIONS, filters=filters, page=" LIMIT :limit OFFSET :offset")
    return int(total), connection.execute(text(statement), {**bound, "limit": limit, "offset": offset}).all()


# As ``differs_only_in``.
_DIFFERS_ONLY_IN = """cardinality(s.difference_kinds) > 0 AND NOT EXISTS (
    SELECT 1 FROM unnest(s.difference_kinds) AS d(kind) WHERE :kind NOT IN (d.kind, split_part(d.kind, ':', 1)))"""


def list_conditions(
    project_id: UUID | None,
    status: str | None,
    memory_type: str | None,
    min_similarity: float | None,
    differ_only_in: str | None,
) -> str:
    """Return the conditions on suggestions ``s``, with the parameters of ``list_suggestions``; None = no condition."""
    return conditions(
        None if project_id is None else "s.project_id = :project",
        None if status is None else "s.status = :status",
        # Similarities are stored as real: a stored 0.9 is a little below 0.9.
        None if min_similarity is None else "s.similarity >= CAST(:min_similarity AS real) - 1e-6",
        None if memory_type is None else _HAS_TYPE,
        None if differ_only_in is None else _DIFFERS_ONLY_IN,
    )


def find_suggestion(connection: Connection, suggestion_id: UUID) -> Row[Any] | None:
    """Return one suggestion with the columns of ``list_suggestions``; None if there is none."""
    statement = compose(_SELECT_SUGGESTIONS, filters=conditions("s.id = :id"), page="")
    return connection.execute(text(statement), {"id": suggestion_id}).one_or_none()


_LOAD_ORIGINALS = compose(
    """
    SELECT id, 'raw' AS kind, memory_type, version, learned_at, source, content_hash, language::text,
        NOT is_archived AND NOT is_consolidated AS is_active, /* raw_key */ AS scope_key,
        CASE WHEN is_consolidated THEN 'was merged' ELSE 'was archived' END AS gone,
        ARRAY[/* text_columns */]::text[] AS texts, false AS is_approved
    FROM consolidation.task_memories t WHERE id = ANY(:ids)
    UNION ALL
    SELECT id, kind, memory_type, version, learned_at, NULL, content_hash, language::text, retired_at IS NULL,
        /* derived_key */,
        CASE WHEN superseded_by_id IS NOT NULL THEN 'was merged' ELSE 'was archived' END, ARRAY[content],
        coalesce(details ? '/* approved */', false)
    FROM consolidation.consolidated_memories t WHERE id = ANY(:ids)
    """,
    text_columns=", ".join(TEXT_COLUMNS),
    approved=APPROVED,
)


def load_originals(connection: Connection, ids: Sequence[UUID], *, scope: str = NO_WALLS) -> dict[UUID, Row[Any]]:
    """Return raw and consolidated memories by id, active or not.

    ``texts``: of a raw memory in the order of ``TEXT_COLUMNS``, else the content alone. ``gone``: what became of a
    memory that is not active. ``scope_key``: by the option ``scope``; None without walls. ``is_approved``: a person
    approved the text.
    """
    statement = compose(_LOAD_ORIGINALS, raw_key=raw_scope_key(scope), derived_key=derived_scope_key(scope))
    return {row.id: row for row in connection.execute(text(statement), {"ids": list(ids)})}


def read_text(row: Row[Any]) -> str:
    """Return the whole text of an original, a row of ``load_originals``."""
    return join_texts(row.kind, row.texts)


_LOAD_STATES = compose(
    """
    SELECT id, version, content_hash, /* raw_uses */, /* raw_key */
    FROM consolidation.task_memories t
    WHERE id = ANY(%(ids)s::uuid[]) AND NOT is_archived AND NOT is_consolidated
    UNION ALL
    SELECT id, version, content_hash, /* derived_uses */, /* derived_key */
    FROM consolidation.consolidated_memories t WHERE id = ANY(%(ids)s::uuid[]) AND retired_at IS NULL
    """,
    raw_uses=count_with_pending("t", "reused_count"),
    derived_uses=count_with_pending("t", "reuse_count"),
)


class MemoryState(NamedTuple):
    """State of an active memory, without its text."""

    id: UUID
    version: int
    content_hash: str
    uses: int
    scope_key: str | None


def load_states(connection: Connection, ids: Sequence[UUID], *, scope: str) -> dict[UUID, MemoryState]:
    """Return version, content hash, uses and scope key of the active memories among these ids, without their texts."""
    statement = compose(_LOAD_STATES, raw_key=raw_scope_key(scope), derived_key=derived_scope_key(scope))
    return {row[0]: MemoryState(*row) for row in fetch_rows(connection, statement, {"ids": format_uuids(ids)})}


@dataclass(frozen=True)
class NewSuggestion:
    """A proposed merge to be written; ``originals``: (id, version) as the proposal was made from.

    ``worth``: rank among those that wait. ``method``: heuristic for a text that keeps everything, llm for a model's,
    hybrid if the model's text was refused.
    """

    cluster_key: str
    originals: Sequence[tuple[UUID, int]]
    fingerprint: str
    content: str
    lessons_learned: str | None
    keywords: Sequence[str]
    similarity: float | None
    rationale: str
    worth: float | None = None
    difference_kinds: Sequence[str] = ()
    method: str = "heuristic"


_LIST_IDS = "SELECT id FROM consolidation.consolidation_suggestions WHERE fingerprint = ANY(:fingerprints)"


def append_suggestions(
    connection: Connection, author: Author, suggestions: Sequence[NewSuggestion], *, now: datetime
) -> list[UUID]:
    """Write pending suggestions, each in its own ledger group; return their ids.

    Raises:
        ConflictError: a suggestion was proposed before, or shares a memory with a pending one. Nothing is written.
    """
    taken = set(connection.scalars(text(_LIST_IDS), {"fingerprints": [one.fingerprint for one in suggestions]}))
    ids = [next(id_ for id_ in list_suggestion_ids(one.fingerprint) if id_ not in taken) for one in suggestions]
    rows = zip(ids, suggestions, strict=True)
    changes = [Change(id_, uuid4(), _columns(one, now), None, one.rationale) for id_, one in rows]
    with check_constraints_at_end(connection, "suggestion"):
        insert_rows(connection, author, consolidation_suggestions, changes, operation="review")
    return ids


def _columns(suggestion: NewSuggestion, now: datetime) -> dict[str, Any]:
    ids, versions = zip(*suggestion.originals, strict=True)
    return {
        "group_id": suggestion.cluster_key,
        "status": "pending",
        "suggested_content": suggestion.content,
        "suggested_lessons_learned": suggestion.lessons_learned,
        "suggested_keywords": list(suggestion.keywords),
        "original_memory_ids": list(ids),
        "original_versions": list(versions),
        "similarity": suggestion.similarity,
        "rationale": suggestion.rationale,
        "fingerprint": suggestion.fingerprint,
        "worth": suggestion.worth,
        "difference_kinds": list(suggestion.difference_kinds),
        "method": suggestion.method,
        "created_at": now,
    }


# Originals that a person keeps as variants: each, with the sources of a merged one, is a part of its own.
_LOAD_VARIANTS = """
    SELECT m.id, dense_rank() OVER (ORDER BY s.id)::integer - 1, o.part::integer - 1
    FROM consolidation.consolidation_suggestions s, unnest(s.original_memory_ids) WITH ORDINALITY AS o(id, part),
        LATERAL (SELECT o.id UNION ALL SELECT unnest(c.source_memory_ids)
            FROM consolidation.consolidated_memories c WHERE c.id = o.id) AS m(id)
    WHERE s.project_id = %(project)s AND s.status = 'kept' ORDER BY s.id, o.part, m.id
"""


def load_variants(connection: Connection, project_id: UUID) -> CannotLink:
    """Return the memories that a person keeps as variants of each other: they are neither merged nor asked about."""
    kinds = {"id": "S16", "merge": ">i4", "part": ">i4"}
    return CannotLink(*load_columns(connection, _LOAD_VARIANTS, {"project": project_id}, kinds))


# Rejected groups whose memories still have the texts that the person read, so that the fingerprint is the same.
_LIST_REJECTED = """
    SELECT s.original_memory_ids FROM consolidation.consolidation_suggestions s, LATERAL (
        SELECT string_agg(o.id || ' ' || coalesce(t.content_hash, c.content_hash), E'\\n'
            ORDER BY o.id || ' ' || coalesce(t.content_hash, c.content_hash) COLLATE "C") AS parts
        FROM unnest(s.original_memory_ids) AS o(id) LEFT JOIN consolidation.task_memories t ON t.id = o.id
            LEFT JOIN consolidation.consolidated_memories c ON c.id = o.id) texts
    WHERE s.project_id = :project AND s.status = 'rejected'
        AND s.fingerprint = encode(sha256(convert_to(texts.parts, 'UTF8')), 'hex')
"""


def load_rejected(connection: Connection, project_id: UUID) -> frozenset[frozenset[bytes]]:
    """Return the memories of each group that a person rejected, if they still have the texts that were read."""
    found = connection.scalars(text(_LIST_REJECTED), {"project": project_id})
    return frozenset(frozenset(to_ids(ids).tolist()) for ids in found)


_LIST_FINGERPRINTS = """
    SELECT fingerprint FROM consolidation.consolidation_suggestions
    WHERE project_id = :project AND status <> 'superseded'
"""
_LIST_WAITING_MEMORIES = "SELECT memory_id FROM consolidation.suggestion_originals WHERE project_id = :project"


def load_proposed(connection: Connection, project_id: UUID) -> tuple[set[str], set[UUID]]:
    """Return the fingerprints of all suggestions that are not superseded, and the memories of pending ones."""
    bound = {"project": project_id}
    fingerprints = connection.scalars(text(_LIST_FINGERPRINTS), bound)
    return set(fingerprints), set(connection.scalars(text(_LIST_WAITING_MEMORIES), bound))


_LIST_PENDING = """
    SELECT id, version, worth, method, similarity, original_memory_ids
    FROM consolidation.consolidation_suggestions WHERE project_id = :project AND status = 'pending'
    ORDER BY worth DESC NULLS LAST, similarity DESC NULLS LAST, id
"""


def list_pending(connection: Connection, project_id: UUID) -> Sequence[Row[Any]]:
    """Return the suggestions that wait, those worth most first."""
    return connection.execute(text(_LIST_PENDING), {"project": project_id}).all()


_COUNT_BY_STATUS = """
    SELECT status, count(*) FROM consolidation.consolidation_suggestions WHERE project_id = :project GROUP BY 1
"""


def count_suggestions(connection: Connection, project_id: UUID) -> dict[str, int]:
    """Return the number of suggestions by status, without statuses that have none."""
    return {row[0]: row[1] for row in connection.execute(text(_COUNT_BY_STATUS), {"project": project_id})}


_LOCK_STALE = """
    SELECT s.id, s.version FROM consolidation.consolidation_suggestions s
    WHERE s.project_id = :project AND s.status = 'pending' AND EXISTS (
        SELECT 1 FROM unnest(s.original_memory_ids, s.original_versions) AS o(id, version)
        WHERE NOT EXISTS (SELECT 1 FROM consolidation.task_memories m
                WHERE m.id = o.id AND m.version = o.version AND NOT m.is_archived AND NOT m.is_consolidated)
            AND NOT EXISTS (SELECT 1 FROM consolidation.consolidated_memories c
                WHERE c.id = o.id AND c.version = o.version AND c.retired_at IS NULL)
        UNION ALL
        SELECT 1 FROM (
            SELECT /* raw_key */ AS key FROM consolidation.task_memories t WHERE t.id = ANY(s.original_memory_ids)
            UNION ALL
            SELECT /* derived_key */ FROM consolidation.consolidated_memories t
            WHERE t.id = ANY(s.original_memory_ids)) keys HAVING min(key) <> max(key))
    ORDER BY s.id FOR UPDATE OF s
"""


def supersede_stale(connection: Connection, author: Author, *, scope: str) -> int:
    """Mark pending suggestions as superseded if an original changed or is not active any more; return their number.

    Suggestions whose originals are of several scopes are superseded too. ``scope``: the project's option.
    """
    statement = compose(_LOCK_STALE, raw_key=raw_scope_key(scope), derived_key=derived_scope_key(scope))
    stale = connection.execute(text(statement), {"project": author.project_id}).all()
    values, reason = {"status": "superseded"}, "an original has changed since, or they are of several scopes"
    changes = [Change(row.id, uuid4(), values, row.version, reason) for row in stale]
    return update_rows(connection, author, consolidation_suggestions, changes, operation="review")


def supersede_suggestions(connection: Connection, author: Author, rows: Sequence[Row[Any]], reason: str) -> None:
    """Mark pending suggestions, rows of ``list_pending``, as superseded."""
    changes = [Change(row.id, uuid4(), {"status": "superseded"}, row.version, reason) for row in rows]
    update_rows(connection, author, consolidation_suggestions, changes, operation="review")


def update_texts(
    connection: Connection, author: Author, texts: Sequence[tuple[Row[Any], Mapping[str, Any]]], reason: str
) -> None:
    """Write new values by column to pending suggestions, rows of ``list_pending``."""
    changes = [Change(row.id, uuid4(), values, row.version, reason) for row, values in texts]
    update_rows(connection, author, consolidation_suggestions, changes, operation="review")


_LIST_PENDING_IDS = """
    SELECT s.id FROM consolidation.consolidation_suggestions s WHERE true/* filters */
    ORDER BY s.worth DESC NULLS LAST, s.similarity DESC NULLS LAST, s.id LIMIT :limit
"""


def list_pending_ids(
    connection: Connection,
    project_id: UUID,
    *,
    memory_type: str | None,
    min_similarity: float | None,
    differ_only_in: str | None,
    limit: int | None,
) -> list[UUID]:
    """Return the ids of the pending suggestions that match, those worth most first.

    None = any type, similarity or differences, no limit.
    """
    filters = list_conditions(project_id, "pending", memory_type, min_similarity, differ_only_in)
    bound = {
        "project": project_id,
        "status": "pending",
        "type": memory_type,
        "min_similarity": min_similarity,
        "kind": differ_only_in,
        "limit": limit,
    }
    return list(connection.scalars(text(compose(_LIST_PENDING_IDS, filters=filters)), bound))


_LIST_DIFFERING = """
    SELECT s.id FROM consolidation.consolidation_suggestions s WHERE s.id = ANY(:ids) AND EXISTS (
        SELECT 1 FROM unnest(s.difference_kinds) AS d(kind) WHERE split_part(d.kind, ':', 1) = ANY(:kinds))
"""


def list_differing(connection: Connection, ids: Sequence[UUID], *, kinds: Sequence[str]) -> set[UUID]:
    """Return the suggestions among these ids whose originals differ in one of the kinds, wherever it stands."""
    return set(connection.scalars(text(_LIST_DIFFERING), {"ids": list(ids), "kinds": list(kinds)}))


_LOCK_SUGGESTION = "SELECT s.* FROM consolidation.consolidation_suggestions s WHERE s.id = :id FOR UPDATE"


def lock_suggestion(connection: Connection, suggestion_id: UUID) -> Row[Any] | None:
    """Lock a suggestion until the transaction ends, and return it; None if there is none."""
    return connection.execute(text(_LOCK_SUGGESTION), {"id": suggestion_id}).one_or_none()


_LIST_RAW_IDS = """
    SELECT id FROM consolidation.task_memories WHERE id = ANY(:ids) OR consolidated_into_id = ANY(:ids) ORDER BY id
"""


def lock_originals(connection: Connection, ids: Sequence[UUID]) -> list[UUID]:
    """Lock these memories and the raw memories behind merged ones; return the ids of all raw ones."""
    chosen = {"ids": list(ids)}
    lock_rows(connection, "consolidated_memories", "id = ANY(:ids)", chosen)
    lock_rows(connection, "task_memories", "id = ANY(:ids) OR consolidated_into_id = ANY(:ids)", chosen)
    return list(connection.scalars(text(_LIST_RAW_IDS), chosen))


def decide_suggestion(
    connection: Connection,
    author: Author,
    suggestion: Row[Any],
    decision: Mapping[str, Any],
    *,
    group_id: UUID,
    reason: str,
) -> None:
    """Write a decision, the new values by column, on a row of ``lock_suggestion``."""
    change = Change(suggestion.id, group_id, decision, suggestion.version, reason)
    update_rows(connection, author, consolidation_suggestions, [change], operation="review")
