"""Memories: bulk import of raw memories, one memory with its columns and feedback, texts and row locks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import numpy as np
from sqlalchemy import Connection, Row, select, text

from consolidation_pipeline.core.memories.memories import (
    NewMemory,
    content_hash,
    embedding_text,
    memory_id,
    normalized_hash,
)
from consolidation_pipeline.core.vectors import find_unusable, normalize
from consolidation_pipeline.errors import EmbeddingError
from consolidation_pipeline.store.database.schema import (
    consolidated_memories,
    describe_columns,
    memory_files,
    task_memories,
)
from consolidation_pipeline.store.database.scope_keys import raw_scope_key
from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.database.vector_copy import Vectors, format_vector
from consolidation_pipeline.store.ledger.ledger_reader import IS_UNDONE
from consolidation_pipeline.store.ledger.ledger_writer import copy_rows
from consolidation_pipeline.store.ledger.lineage import find_memories

# Columns of a raw memory that are embedded, the parameters of `embedding_text`.
TEXT_COLUMNS = ("goal", "execution_summary", "result", "lessons_learned", "feedback")

# Column -> type in the staging table, in the order of its rows: what a `NewMemory` holds, and what is derived from it.
_DERIVED = {"id", "content_hash", "normalized_hash", "embedding_dim"}
_STAGED = {
    name: kind
    for name, kind, _ in describe_columns(task_memories.name)
    if name in _DERIVED or name in NewMemory.__dataclass_fields__
}
_JSON = tuple(name for name, kind in _STAGED.items() if kind == "jsonb")
_ARRAYS = tuple(name for name, kind in _STAGED.items() if kind.endswith("[]"))
_encode_json = json.JSONEncoder().encode

# A row of the staging table, see ``stage_memory``.
StagedMemory = Sequence[Any]


@dataclass(frozen=True)
class AppendResult:
    """Result of a batch. ``changed``: line numbers of rows whose id exists with other content; ``ids``: added rows."""

    added: int
    unchanged: int
    changed: tuple[int, ...]
    ids: frozenset[UUID] = field(default=frozenset(), compare=False)


_CREATE_STAGING = compose(
    "CREATE TEMP TABLE arriving (line bigint, files text[], /* columns */) ON COMMIT DROP",
    columns=", ".join(f"{name} {kind}" for name, kind in _STAGED.items()),
)
_INSERT_MEMORIES = compose(
    """
    INSERT INTO consolidation.task_memories (project_id, learned_at, /* columns */)
    SELECT DISTINCT ON (id) :project, coalesce(learned_at, now()), /* columns */ FROM arriving
    ORDER BY id, line ON CONFLICT DO NOTHING RETURNING id
    """,
    columns=", ".join(name for name in _STAGED if name != "learned_at"),
)
_INSERT_FILES = """
    INSERT INTO consolidation.memory_files (project_id, owner_id, path)
    SELECT DISTINCT CAST(:project AS uuid), id, path
    FROM (SELECT DISTINCT ON (id) id, files FROM arriving WHERE id = ANY(:added) ORDER BY id, line) kept,
        unnest(files) AS path
"""
_COUNT_ARRIVED = """
    SELECT count(*), coalesce(array_agg(line ORDER BY line) FILTER (WHERE a.content_hash <> m.content_hash), '{}')
    FROM arriving a JOIN consolidation.task_memories m USING (id)
"""


def append_memories(
    connection: Connection, project_id: UUID, slug: str, rows: Iterable[tuple[int, NewMemory]]
) -> AppendResult:
    """Store new raw memories; rows with a known (source, external_id) are left as they are.

    Args:
        slug: The project's slug, from which ids are derived.
        rows: Line number and memory.

    Raises:
        EmbeddingError: The embedding of a memory is NaN, infinite or zero; nothing is stored.
    """
    return append_staged(connection, project_id, [stage_memory(slug, line, memory) for line, memory in rows])


def append_staged(connection: Connection, project_id: UUID, rows: Iterable[StagedMemory]) -> AppendResult:
    """Store memories as ``append_memories`` does, from rows of ``stage_memory``.

    One COPY and three statements for any number of rows. Of equal ids in a batch the first line counts.
    """
    connection.execute(text("DROP TABLE IF EXISTS arriving"))
    connection.execute(text(_CREATE_STAGING))
    copy_rows(connection, "arriving", rows)
    added = connection.scalars(text(_INSERT_MEMORIES), {"project": project_id}).all()
    connection.execute(text(_INSERT_FILES), {"project": project_id, "added": added})
    total, changed = connection.execute(text(_COUNT_ARRIVED)).one()
    return AppendResult(len(added), total - len(added) - len(changed), tuple(changed), frozenset(added))


def stage_memory(slug: str, line: int, memory: NewMemory) -> StagedMemory:
    """Return the row of the staging table for a memory: its columns as they are sent, and what is derived from them.

    Raises:
        EmbeddingError: The embedding is NaN, infinite or zero.
    """
    values = dict(vars(memory))
    body = join_text_columns([values[name] for name in TEXT_COLUMNS])
    values["id"] = memory_id(slug, memory.source, memory.external_id)
    values["content_hash"] = content_hash(body)
    values["normalized_hash"] = normalized_hash(body)
    values["embedding"] = None if memory.embedding is None else format_vector(_unit_vector(memory))
    values["embedding_dim"] = None if memory.embedding is None else len(memory.embedding)
    for name in _JSON:
        if values[name] is not None:
            values[name] = _encode_json(values[name])
    for name in _ARRAYS:
        values[name] = list(values[name])
    return [line, list(memory.files), *[values[name] for name in _STAGED]]


_COUNT_REPEATS_APART = """
    SELECT coalesce(sum(scopes - 1), 0)::integer FROM (
        SELECT count(DISTINCT /* scope_key */) AS scopes FROM consolidation.task_memories t
        WHERE project_id = :project AND NOT is_archived GROUP BY memory_type, normalized_hash) texts
    WHERE scopes > 1
"""


def count_repeats_apart(connection: Connection, project_id: UUID, *, scope: str) -> int:
    """Return how many exact repeats of memories are in other scopes: each text once for each scope after the first.

    ``scope``: the project's option.
    """
    statement = compose(_COUNT_REPEATS_APART, scope_key=raw_scope_key(scope))
    return int(connection.execute(text(statement), {"project": project_id}).scalar_one())


def _unit_vector(memory: NewMemory) -> Vectors:
    rows = np.asarray([memory.embedding], np.float64)
    if find_unusable(rows).size:
        raise EmbeddingError(
            f"the embedding of memory {memory.external_id} is NaN, infinite or zero: leave it out, or give another"
        )
    unit: Vectors = normalize(rows)[0]
    return unit


# How the ledger's reason of a change by feedback begins.
FEEDBACK_PREFIX = "feedback: "
_INTERNAL = {"embedding", "content_tsv", "content_hash", "normalized_hash", "graph_version", "abstraction_level"}
_SUCCESSOR = {"task_memories": "consolidated_into_id", "consolidated_memories": "superseded_by_id"}


def load_memory(connection: Connection, memory_id: UUID) -> dict[str, Any] | None:
    """Return a raw or consolidated memory by column name, without its vector; None if there is none.

    Further keys: ``project``, ``kind``, ``level``, ``status``, ``content``, ``successor`` and ``files``.
    """
    found = next(iter(find_memories(connection, memory_id, memory_id, limit=1)), None)
    if found is None or found.kind == "playbook":
        return None
    table = task_memories if found.kind == "raw" else consolidated_memories
    # Built from the schema: all columns of either table, with their types.
    columns = [column for column in table.c if column.name not in _INTERNAL]
    row = connection.execute(select(*columns).where(table.c.id == memory_id)).one()._mapping
    paths = select(memory_files.c.path).where(memory_files.c.owner_id == memory_id).order_by(memory_files.c.path)
    return {
        **vars(found),
        **row,
        "successor": row[_SUCCESSOR[table.name]],
        "files": list(connection.scalars(paths)),
    }


_LIST_FEEDBACK = compose(
    """
    SELECT substr(c.reason, length(CAST(:prefix AS text)) + 1) AS words,
        (c.new_state ->> 'importance')::float8 AS importance, c.changed_by, c.changed_at, c.group_id
    FROM consolidation.consolidation_changes c
    WHERE c.entity_id = :id AND c.operation = 'edit' AND starts_with(c.reason, CAST(:prefix AS text))
        AND NOT /* is_undone */
    ORDER BY c.seq DESC
    """,
    is_undone=IS_UNDONE,
)


def list_feedback(connection: Connection, memory_id: UUID) -> Sequence[Row[Any]]:
    """Return the feedback on a memory that was not undone, newest first.

    Columns: words, importance (after the feedback), changed_by, changed_at and group_id.
    """
    return connection.execute(text(_LIST_FEEDBACK), {"id": memory_id, "prefix": FEEDBACK_PREFIX}).all()


_LOAD_TEXTS = compose(
    "SELECT id, /* columns */ FROM consolidation.task_memories WHERE id = ANY(:ids)", columns=", ".join(TEXT_COLUMNS)
)


def load_texts(connection: Connection, ids: Sequence[UUID]) -> Mapping[UUID, str]:
    """Return the embedded text of raw memories, by id."""
    return {row[0]: join_text_columns(row[1:]) for row in connection.execute(text(_LOAD_TEXTS), {"ids": list(ids)})}


def join_text_columns(values: Sequence[str | None]) -> str:
    """Return the embedded text of a raw memory from the values of its ``TEXT_COLUMNS``."""
    return embedding_text(**dict(zip(TEXT_COLUMNS, values, strict=True)))


_LOCK_ROWS = """
    SELECT count(*) FROM (
        SELECT 1 FROM /* table */ WHERE /* condition */ ORDER BY id FOR NO KEY UPDATE) AS locked
"""


def lock_rows(connection: Connection, table: str, condition: str, parameters: Mapping[str, Any] | None = None) -> None:
    """Lock the rows of ``table`` that meet ``condition``, in the order of ids, as all writers do to avoid deadlocks."""
    statement = compose(_LOCK_ROWS, table=f"consolidation.{table}", condition=condition)
    connection.execute(text(statement), parameters or {})
