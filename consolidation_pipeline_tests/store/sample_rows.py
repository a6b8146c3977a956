"""Sample rows for store tests, and the contents of ledgered tables as text."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import numpy as np
from sqlalchemy import Connection, Engine, Table, event, text

from consolidation_pipeline.core.memories.memories import NewMemory, content_hash, normalized_hash
from consolidation_pipeline.store.database.schema import SCHEMA, consolidated_memories, metadata, task_memories
from consolidation_pipeline.store.database.vector_copy import format_vector, to_ids
from consolidation_pipeline.store.jobs.llm_calls import SpendLedger
from consolidation_pipeline.store.ledger.ledger_writer import LEDGERED, Author, Change, insert_rows, update_rows
from consolidation_pipeline.store.memories.embeddings import save_embeddings
from consolidation_pipeline.store.memories.memories import append_memories
from consolidation_pipeline.store.projects import Project, create_project

MODEL = "local:test"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SPECIAL_TEXT = (
    "tab\t newline\n return\r backslash \\ \\N \\. quote ' \" comma , brace {} [] NULL "
    "é 漢字 🙂 \u2028 \x7f \x01 %s %(x)s :x"
)


def add_project(connection: Connection, slug: str = "garden") -> Project:
    """Create a project without memories."""
    return create_project(connection, slug)


def new_memory(key: str, **fields: Any) -> NewMemory:
    """Return a memory with the required fields only."""
    return NewMemory(
        **{"source": "test", "external_id": key, "memory_type": "learning", "execution_summary": key} | fields
    )


def add_memories(connection: Connection, project: Project, memories: Sequence[NewMemory]) -> list[UUID]:
    """Store memories; return their ids in the same order."""
    append_memories(connection, project.id, project.slug, enumerate(memories, 1))
    query = f"SELECT external_id, id FROM {SCHEMA}.task_memories WHERE project_id = :project"
    ids = dict(connection.execute(text(query), {"project": project.id}).tuples().all())
    return [ids[memory.external_id] for memory in memories]


def author(project: Project, job_id: UUID | None = None) -> Author:
    """Return the author of changes in the ledger."""
    return Author(project.id, job_id, "gardener")


def unit_vector(seed: int, dimension: int = 3) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return a float32 vector (dimension,) of length 1."""
    vector = np.random.default_rng(seed).standard_normal(dimension)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def encode_vector(vector: np.ndarray[Any, np.dtype[np.float32]] | str) -> str:
    """Return a vector (dimension,), or its text, as an image of the ledger holds it."""
    if isinstance(vector, str):
        vector = np.array(json.loads(vector), np.float32)
    return b64encode(len(vector).to_bytes(2, "big") + bytes(2) + vector.astype(">f4").tobytes()).decode()


def merged_values(content: str, sources: Sequence[UUID] = (), *, seed: int = 0, **fields: Any) -> dict[str, Any]:
    """Return all columns of a merged memory, with files and lineage."""
    vector = unit_vector(seed)
    lineage = [{"parent_id": str(s), "parent_kind": "raw", "similarity": 0.9, "job_id": None} for s in sources]
    return {
        "kind": "merged",
        "abstraction_level": 1,
        "content": content,
        "memory_type": "learning",
        "content_hash": content_hash(content),
        "normalized_hash": normalized_hash(content),
        "details": {},
        "tags": [],
        "source_memory_ids": list(sources),
        "source_count": len(sources),
        "embedding": format_vector(vector),
        "embedding_model": MODEL,
        "embedding_dim": len(vector),
        "retired_at": None,
        "scope_key": "",
        "files": [],
        "lineage": lineage,
    } | fields


def add_merged(
    connection: Connection, project: Project, content: str, sources: Sequence[UUID] = (), **fields: Any
) -> UUID:
    """Insert a merged memory whose sources stay active; return its id."""
    return insert_row(connection, project, consolidated_memories, **merged_values(content, sources, **fields)).entity_id


def insert_row(connection: Connection, project: Project, table: Table, **values: Any) -> Change:
    """Insert a row in a group of its own; return its change."""
    change = Change(uuid4(), uuid4(), values)
    insert_rows(connection, author(project), table, [change], operation="edit")
    return change


def update_row(
    connection: Connection, project: Project, table: Table, id_: UUID, version: int = 1, **values: Any
) -> Change:
    """Update a row in a group of its own; return its change."""
    change = Change(id_, uuid4(), values, version)
    update_rows(connection, author(project), table, [change], operation="edit")
    return change


def hide_sources(connection: Connection, project: Project, sources: Sequence[UUID], merged: UUID) -> None:
    """Mark unchanged raw memories as merged into ``merged``."""
    changes = [Change(id_, uuid4(), {"consolidated_into_id": merged}, 1) for id_ in sources]
    update_rows(connection, author(project), task_memories, changes, operation="merge")


def save_unit_vectors(
    connection: Connection, ids: Sequence[UUID], *, table: str = "task_memories", model: str = MODEL, seed: int = 0
) -> None:
    """Save the vector of seed ``seed`` as the first row's embedding, the next seed's as the second's, and so on."""
    save_embeddings(connection, table, to_ids(ids), np.stack([unit_vector(seed + n) for n in range(len(ids))]), model)


def contents(connection: Connection) -> dict[str, list[tuple[str | None, ...]]]:
    """Return the rows of every ledgered table, files and lineage, as text."""
    found = {}
    for name in [*LEDGERED, "memory_files", "memory_lineage"]:
        table = metadata.tables[f"{SCHEMA}.{name}"]
        columns = ", ".join(f"{column.name}::text" for column in table.c)
        keys = ", ".join(column.name for column in table.primary_key)
        rows = connection.execute(text(f"SELECT {columns} FROM {table} ORDER BY {keys}"))
        found[name] = [tuple(row) for row in rows]
    return found


def newest_change(connection: Connection) -> int:
    """Return ``seq`` of the newest change, or 0 without any."""
    query = f"SELECT coalesce(max(seq), 0) FROM {SCHEMA}.consolidation_changes"
    return int(connection.execute(text(query)).scalar_one())


def list_effective_changes(connection: Connection, seq: int) -> list[int]:
    """Return the changes after ``seq`` that are in force: neither undone changes nor their rollbacks."""
    query = f"SELECT seq, id, reverts_change_id FROM {SCHEMA}.consolidation_changes WHERE seq > :seq ORDER BY seq"
    rows = connection.execute(text(query), {"seq": seq}).all()
    undone_by = {row.reverts_change_id: row for row in rows}
    cancelled: set[UUID] = set()
    for row in rows:
        if row.id not in cancelled and row.id in undone_by:
            cancelled |= {row.id, undone_by[row.id].id}
    return [row.seq for row in rows if row.id not in cancelled]


def load_llm_calls(ledger: SpendLedger) -> list[Any]:
    """Return the calls of a spend ledger's project, oldest first."""
    with ledger.engine.connect() as connection:
        query = f"SELECT * FROM {SCHEMA}.llm_calls WHERE project_id = :project ORDER BY created_at, id"
        return list(connection.execute(text(query), {"project": ledger.project_id}))


@contextmanager
def record_statements(connection: Connection | Engine) -> Iterator[list[str]]:
    """Record the statements sent inside the block, without the data of COPY."""
    sent: list[str] = []

    def record(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        sent.append(statement)

    event.listen(connection.engine, "before_cursor_execute", record)
    yield sent
    event.remove(connection.engine, "before_cursor_execute", record)
