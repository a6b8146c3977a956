"""Patterns and principles: the units they are made of, the stored rows, and how rows are superseded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from sqlalchemy import Connection, RowMapping, text

from consolidation_pipeline.store.database.raw_connections import fetch_rows, format_uuids
from consolidation_pipeline.store.database.schema import consolidated_memories
from consolidation_pipeline.store.database.scope_keys import (
    REPLACED,
    crosses_scopes,
    derived_scope_key,
    is_dissolved,
    raw_scope_key,
    source_scope,
)
from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.database.vector_copy import Vectors, load_vectors, to_uuids
from consolidation_pipeline.store.ledger.active_keys import lock_active_keys
from consolidation_pipeline.store.ledger.ledger_writer import Author, Change, update_rows
from consolidation_pipeline.store.memories.memories import join_texts

# Key in ``details`` of a pattern or principle that a person approved, until its text changes.
APPROVED = "approved"
# Key in ``details`` of a row with a text made without the model, as it failed. The next run asks the model again.
REWRITE_PENDING = "rewrite_pending"
# Key in ``details`` of how often and when an extracted pattern or principle was seen.
SEEN = "seen"
# Key in ``details`` of a pattern or summary: the relations that had replaced something in its memories.
SUPERSEDED = "superseded"
# Reason for which a pattern is retired that has no text without what newer memories replaced.
REPLACED_REASON = f"{REPLACED}newer memories say otherwise, and the others have nothing in common"


@dataclass(frozen=True, kw_only=True)
class SourceRow:
    """An active row that a derived memory is made of.

    ``raw_ids``: the raw memories behind it. ``scope_key``: their scope, None in a project without walls.
    """

    id: UUID
    kind: str
    text: str
    memory_type: str
    success: bool | None
    importance: float
    tags: tuple[str, ...]
    files: tuple[str, ...]
    language: str
    learned_at: datetime
    raw_ids: tuple[UUID, ...]
    scope_key: str | None


@dataclass(frozen=True, kw_only=True)
class UnitRow(SourceRow):
    """An active unit or pattern. ``kind``: raw, merged or pattern. ``title``: that of a pattern, or None."""

    pattern_type: str | None
    title: str | None
    last_accessed_at: datetime | None


def read_source_columns(row: RowMapping) -> dict[str, Any]:
    """Return the fields of a ``SourceRow`` from a row whose ``texts`` are the text columns or the content."""
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
    texts = fields.pop("texts")
    return {**fields, "text": join_texts(fields["kind"], texts)}


_LOAD_RAW_IDS = """
    SELECT id, NULL FROM consolidation.task_memories
    WHERE id = ANY(%(ids)s::uuid[]) AND NOT is_archived AND NOT is_consolidated
    UNION ALL
    SELECT id, source_memory_ids FROM consolidation.consolidated_memories
    WHERE id = ANY(%(ids)s::uuid[]) AND retired_at IS NULL
"""


def load_raw_ids(connection: Connection, ids: Iterable[UUID]) -> dict[UUID, tuple[UUID, ...]]:
    """Return the raw memories behind each active unit or pattern, by its id."""
    rows = fetch_rows(connection, _LOAD_RAW_IDS, {"ids": format_uuids(ids)})
    return {id_: (id_,) if sources is None else tuple(sources) for id_, sources in rows}


_LOAD_UNITS = """
    SELECT id, 'raw' AS kind, ARRAY[goal, execution_summary, result, lessons_learned, feedback] AS texts, memory_type,
        NULL AS pattern_type, NULL AS title, success, importance, tags,
        ARRAY(SELECT path FROM consolidation.memory_files f WHERE f.owner_id = t.id ORDER BY path) AS files,
        language::text AS language, learned_at, last_accessed_at, ARRAY[id] AS raw_ids, /* raw_key */ AS scope_key
    FROM consolidation.task_memories t WHERE id = ANY(:ids) AND NOT is_archived AND NOT is_consolidated
    UNION ALL
    SELECT id, kind, ARRAY[content], memory_type, pattern_type, details ->> 'title', success, importance, tags,
        ARRAY(SELECT path FROM consolidation.memory_files f WHERE f.owner_id = t.id ORDER BY path),
        language::text, learned_at, last_accessed_at, source_memory_ids, /* derived_key */
    FROM consolidation.consolidated_memories t WHERE id = ANY(:ids) AND retired_at IS NULL
"""


def load_units(connection: Connection, ids: Iterable[UUID], *, scope: str) -> dict[UUID, UnitRow]:
    """Return the active units and patterns among ``ids``, by id. ``scope``: the project's option, here and below."""
    statement = compose(_LOAD_UNITS, raw_key=raw_scope_key(scope), derived_key=derived_scope_key(scope))
    rows = connection.execute(text(statement), {"ids": list(ids)}).mappings()
    return {row["id"]: UnitRow(**read_source_columns(row)) for row in rows}


class Origin(NamedTuple):
    """Origin of a raw memory. ``person``: the key of its writer, or else the agent or user given."""

    session_id: str | None
    person: str | None
    learned_at: datetime


_LOAD_ORIGINS = """
    SELECT id, nullif(session_id, ''),
        coalesce(writer, 'agent ' || nullif(agent_id, ''), 'user ' || nullif(user_id, '')), learned_at
    FROM consolidation.task_memories WHERE id = ANY(%(ids)s::uuid[])
"""


def load_origins(connection: Connection, ids: Iterable[UUID]) -> dict[UUID, Origin]:
    """Return the origin of each raw memory, by memory id."""
    return {row[0]: Origin(*row[1:]) for row in fetch_rows(connection, _LOAD_ORIGINS, {"ids": format_uuids(ids)})}


_LOAD_UNIT_VECTORS = """
    SELECT id, embedding FROM consolidation.task_memories WHERE id = ANY(%(ids)s) AND embedding_model = %(model)s
    UNION ALL
    SELECT id, embedding FROM consolidation.consolidated_memories
    WHERE id = ANY(%(ids)s) AND embedding_model = %(model)s
"""


def load_unit_vectors(connection: Connection, ids: Iterable[UUID], model: str, dimension: int) -> dict[UUID, Vectors]:
    """Return the plain vectors float32 (dimension,) of raw and consolidated memories by id, those of ``model`` only.

    Raises:
        EmbeddingError: a vector has another length than ``dimension``.
    """
    parameters = {"ids": list(ids), "model": model}
    found, vectors = load_vectors(connection, _LOAD_UNIT_VECTORS, parameters, dimension=dimension)
    return dict(zip(to_uuids(found), vectors, strict=True))


class ActivePattern(NamedTuple):
    """The columns of a pattern that grouping needs.

    ``raw_ids``: the raw memories behind it. ``scope_key``: their scope, None in a project without walls. ``title``:
    empty if it has none.
    """

    id: UUID
    memory_type: str
    raw_ids: list[UUID]
    scope_key: str | None
    content: str
    title: str


_LIST_ACTIVE_PATTERNS = """
    SELECT id, memory_type, source_memory_ids, scope.key, content, coalesce(details ->> 'title', '')
    FROM consolidation.consolidated_memories t, /* scope */
    WHERE project_id = :project AND kind = 'pattern' AND retired_at IS NULL AND NOT scope.crosses ORDER BY id
"""


def list_active_patterns(connection: Connection, project_id: UUID, *, scope: str) -> list[ActivePattern]:
    """Return the active patterns of a project, by id, without those of several scopes, which a run dissolves."""
    statement = compose(_LIST_ACTIVE_PATTERNS, scope=source_scope(scope, "t"))
    return [ActivePattern(*row) for row in connection.execute(text(statement), {"project": project_id})]


@dataclass(frozen=True, kw_only=True)
class ExistingRow:
    """A stored pattern or principle.

    ``members``: the raw memories of a pattern, the patterns of a principle. ``raw_ids``: the raw memories behind it.
    ``is_dismissed``: a person dismissed or archived it. ``is_kept``: a person pinned or approved it, or rolled back
    that it was replaced. ``by_model``: a model wrote its text. ``is_pending``: a model is to write it again.
    ``has_old_layout``: its extracted text tells how often it was seen. ``relations``: those that replaced something in
    its memories, when its text was written. ``quotes``: of a principle, what it quotes of its patterns, as (id, quote).
    """

    id: UUID
    version: int
    cluster_key: str
    members: frozenset[UUID]
    raw_ids: frozenset[UUID]
    is_active: bool
    is_dismissed: bool
    is_kept: bool
    by_model: bool = False
    is_pending: bool = False
    has_old_layout: bool = False
    relations: frozenset[UUID] = frozenset()
    quotes: tuple[tuple[UUID, str], ...] = ()


# Only rollbacks have `reverts_change_id`, which has an index of its own: the rest of the ledger is not read.
_LOAD_EXISTING_ROWS = """
    SELECT id, version, cluster_key, source_memory_ids AS raw_ids,
        CASE kind WHEN 'principle' THEN
            ARRAY(SELECT parent_id FROM consolidation.memory_lineage l WHERE l.child_id = c.id) END AS members,
        is_active,
        archive_reason IS NOT NULL AND NOT /* dissolved */ AS is_dismissed,
        is_active AND (pinned OR details ? 'approved' OR EXISTS (
            SELECT 1 FROM consolidation.consolidation_changes r
            WHERE r.entity_id = c.id AND r.reverts_change_id IS NOT NULL AND r.reverts_scope = 'group'
                AND (r.previous_state ->> 'superseded_by_id' IS NOT NULL
                    OR starts_with(r.previous_state ->> 'archive_reason', /* replaced */)))) AS is_kept,
        consolidation_method = 'llm' AS by_model, details ? 'rewrite_pending' AS is_pending,
        consolidation_method = 'heuristic' AND NOT details ? 'seen' AS has_old_layout,
        ARRAY(SELECT CAST(jsonb_array_elements_text(details -> 'superseded') AS uuid)) AS relations,
        CASE kind WHEN 'principle' THEN details -> 'evidence' END AS quotes
    FROM consolidation.consolidated_memories c, LATERAL (
        -- Reads the memories of each row, so it is computed once.
        SELECT retired_at IS NULL AND NOT /* crosses_scopes */ AS is_active OFFSET 0) state
    WHERE project_id = :project AND kind = :kind ORDER BY id
"""


def load_existing_rows(connection: Connection, project_id: UUID, kind: str, *, scope: str) -> list[ExistingRow]:
    """Return every pattern or principle of a project, retired ones too, by id.

    Those of several scopes count as retired: a run dissolves them.
    """
    statement = compose(
        _LOAD_EXISTING_ROWS,
        crosses_scopes=crosses_scopes(scope, "c"),
        dissolved=is_dissolved("archive_reason"),
        replaced=f"'{REPLACED}'",
    )
    rows = connection.execute(text(statement), {"project": project_id, "kind": kind}).mappings()
    return [_to_existing_row(row, frozenset(row["raw_ids"])) for row in rows]


def _to_existing_row(row: RowMapping, raw_ids: frozenset[UUID]) -> ExistingRow:
    members = raw_ids if row["members"] is None else frozenset(row["members"])
    quotes = tuple((UUID(one["unit"]), one["quote"]) for one in row["quotes"] or ())
    sets = {"members": members, "raw_ids": raw_ids, "relations": frozenset(row["relations"]), "quotes": quotes}
    return ExistingRow(**{**row, **sets})


def supersede_rows(
    connection: Connection,
    author: Author,
    superseded: Sequence[tuple[ExistingRow, UUID]],
    *,
    operation: str,
    now: datetime,
) -> None:
    """Retire rows in favour of their successors, each as a group of its own in the ledger.

    ``superseded``: (row, id of its successor).

    Raises:
        ConflictError: A row changed since it was read.
    """
    lock_active_keys(connection, [author.project_id])
    changes = [
        Change(
            row.id,
            uuid4(),
            {"superseded_by_id": successor, "retired_at": now},
            row.version,
            "its group is no more, and all of its memories are in newer groups",
        )
        for row, successor in superseded
    ]
    update_rows(connection, author, consolidated_memories, changes, operation=operation)


def retire_replaced(
    connection: Connection, author: Author, rows: Sequence[ExistingRow], *, operation: str, now: datetime
) -> None:
    """Retire rows for ``REPLACED_REASON``, each as a group of its own in the ledger.

    Raises:
        ConflictError: A row changed since it was read.
    """
    lock_active_keys(connection, [author.project_id])
    values = {"retired_at": now, "archive_reason": REPLACED_REASON}
    changes = [Change(row.id, uuid4(), values, row.version, REPLACED_REASON) for row in rows]
    update_rows(connection, author, consolidated_memories, changes, operation=operation)
