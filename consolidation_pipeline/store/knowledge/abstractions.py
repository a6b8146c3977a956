"""Patterns and principles: the units they are made of, and those there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from sqlalchemy import Connection, RowMapping, text

from consolidation_pipeline.core.memories.memories import embedding_text
from consolidation_pipeline.store.database.schema import consolidated_memories
from consolidation_pipeline.store.database.vector_copy import Vectors, load_vectors, to_uuids
from consolidation_pipeline.store.ledger.active_keys import lock_active_keys
from consolidation_pipeline.store.ledger.ledger_writer import Author, Change, update_rows
from consolidation_pipeline.store.memories.memories import FILES, TEXT_COLUMNS

# What ``details`` say of a pattern or principle that a person approved, until it is worded anew.
APPROVED = "approved"


@dataclass(frozen=True, kw_only=True)
class UnitRow:
    """An active unit, or an active pattern: ``kind`` raw, merged or pattern; ``raw_ids``: its raw memories."""

    id: UUID
    kind: str
    text: str
    memory_type: str
    pattern_type: str | None
    success: bool | None
    importance: float
    tags: tuple[str, ...]
    files: tuple[str, ...]
    language: str
    learned_at: datetime
    last_accessed_at: datetime | None
    raw_ids: tuple[UUID, ...]


_SHARED = f"success, importance, tags, {FILES}, language::text AS language, learned_at, last_accessed_at"
_RAW = "FROM consolidation.task_memories t WHERE id = ANY(:ids) AND NOT is_archived AND NOT is_consolidated"
_DERIVED = "FROM consolidation.consolidated_memories t WHERE id = ANY(:ids) AND retired_at IS NULL"
_RAW_IDS = f"SELECT id, ARRAY[id] AS raw_ids {_RAW} UNION ALL SELECT id, source_memory_ids {_DERIVED}"
_UNITS = f"""
    SELECT id, 'raw' AS kind, ARRAY[{", ".join(TEXT_COLUMNS)}] AS texts, memory_type, NULL AS pattern_type, {_SHARED},
        ARRAY[id] AS raw_ids {_RAW}
    UNION ALL
    SELECT id, kind, ARRAY[content], memory_type, pattern_type, {_SHARED}, source_memory_ids {_DERIVED}
"""


def load_raw_ids(connection: Connection, ids: Iterable[UUID]) -> dict[UUID, tuple[UUID, ...]]:
    """The raw memories behind each of the units, or patterns, that are active, by id."""
    rows = connection.execute(text(_RAW_IDS), {"ids": list(ids)})
    return {row.id: tuple(row.raw_ids) for row in rows}


def load_units(connection: Connection, ids: Iterable[UUID]) -> dict[UUID, UnitRow]:
    """The units, or patterns, that are active, by id."""
    rows = connection.execute(text(_UNITS), {"ids": list(ids)})
    return {row.id: _unit(row._asdict()) for row in rows}


def _unit(row: Mapping[str, Any]) -> UnitRow:
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
    texts = values.pop("texts")
    said = embedding_text(**dict(zip(TEXT_COLUMNS, texts, strict=True))) if values["kind"] == "raw" else texts[0]
    return UnitRow(text=said, **values)


def load_sessions(connection: Connection, ids: Iterable[UUID]) -> dict[UUID, str]:
    """The session that each raw memory was written in, without those of which it is not known."""
    query = "SELECT id, session_id FROM consolidation.task_memories WHERE id = ANY(:ids) AND session_id IS NOT NULL"
    return {row.id: row.session_id for row in connection.execute(text(query), {"ids": list(ids)})}


def load_unit_vectors(connection: Connection, ids: Iterable[UUID], model: str, dimension: int) -> dict[UUID, Vectors]:
    """Plain vectors float32 (dimension,) of units and patterns by id; those of another model are left out."""
    tables = " UNION ALL ".join(
        f"SELECT id, embedding FROM consolidation.{name} WHERE id = ANY(%(ids)s) AND embedding_model = %(model)s"
        for name in ("task_memories", "consolidated_memories")
    )
    found, vectors = load_vectors(connection, tables, {"ids": list(ids), "model": model}, dimension=dimension)
    return dict(zip(to_uuids(found), vectors, strict=True))


class ActivePattern(NamedTuple):
    """What grouping asks of a pattern; ``raw_ids``: its raw memories."""

    id: UUID
    memory_type: str
    raw_ids: list[UUID]


def list_active_patterns(connection: Connection, project_id: UUID) -> list[ActivePattern]:
    """The active consolidated memories of a kind, by id."""
    query = (
        "SELECT id, memory_type, source_memory_ids FROM consolidation.consolidated_memories "
        "WHERE project_id = :project AND kind = 'pattern' AND retired_at IS NULL ORDER BY id"
    )
    return [ActivePattern(*row) for row in connection.execute(text(query), {"project": project_id})]


@dataclass(frozen=True, kw_only=True)
class ExistingRow:
    """A pattern or principle there is.

    ``members``: the raw memories of a pattern, the patterns of a principle; ``raw_ids``: its raw memories.
    ``is_dismissed``: a person dismissed or archived it; ``is_kept``: one pinned or approved it, or undid that another
    one took its place.
    """

    id: UUID
    version: int
    cluster_key: str
    members: frozenset[UUID]
    raw_ids: frozenset[UUID]
    is_active: bool
    is_dismissed: bool
    is_kept: bool


# Rollbacks alone have ``reverts_change_id``, and an index of their own: the ledger at large is not read for them.
_BROUGHT_BACK = """EXISTS (
    SELECT 1 FROM consolidation.consolidation_changes r WHERE r.entity_id = c.id AND r.reverts_change_id IS NOT NULL
        AND r.reverts_scope = 'group' AND r.previous_state ->> 'superseded_by_id' IS NOT NULL)"""
_HELD = f"""
    SELECT id, version, cluster_key, {{members}} AS members, source_memory_ids AS raw_ids,
        retired_at IS NULL AS is_active, archive_reason IS NOT NULL AS is_dismissed,
        retired_at IS NULL AND (pinned OR details ? '{APPROVED}' OR {_BROUGHT_BACK}) AS is_kept
    FROM consolidation.consolidated_memories c WHERE project_id = :project AND kind = :kind ORDER BY id
"""
_PARENTS = "ARRAY(SELECT parent_id FROM consolidation.memory_lineage l WHERE l.child_id = c.id)"


def load_existing_rows(connection: Connection, project_id: UUID, kind: str) -> list[ExistingRow]:
    """Every pattern or principle of a project, retired ones too, by id."""
    query = _HELD.format(members=_PARENTS if kind == "principle" else "NULL")
    rows = connection.execute(text(query), {"project": project_id, "kind": kind}).mappings()
    return [_held(row, frozenset(row["raw_ids"])) for row in rows]


def _held(row: RowMapping, raw_ids: frozenset[UUID]) -> ExistingRow:
    members = raw_ids if row["members"] is None else frozenset(row["members"])
    return ExistingRow(**{**row, "members": members, "raw_ids": raw_ids})


def supersede_rows(
    connection: Connection,
    author: Author,
    superseded: Sequence[tuple[ExistingRow, UUID]],
    *,
    operation: str,
    now: datetime,
) -> None:
    """Retire rows in favour of the one with the id beside each, every one as a group of its own.

    Raises:
        ConflictError: a row changed since it was read.
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
