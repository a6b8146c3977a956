"""One memory as it is read back: its columns, what stands in its place, and what was said of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, select, text

from consolidation_pipeline.store.database.schema import consolidated_memories, memory_files, task_memories
from consolidation_pipeline.store.ledger.ledger_reader import IS_UNDONE
from consolidation_pipeline.store.ledger.lineage import find_memories

# How the reason of a change begins that feedback made.
FEEDBACK = "feedback: "

_INTERNAL = {"embedding", "content_tsv", "content_hash", "normalized_hash", "graph_version", "abstraction_level"}
_SUCCESSOR = {"task_memories": "consolidated_into_id", "consolidated_memories": "superseded_by_id"}


def load_memory(connection: Connection, memory_id: UUID) -> dict[str, Any] | None:
    """A raw or consolidated memory by the names of its columns, vector left out; None = there is none.

    Beside them ``project``, ``kind``, ``level``, ``status``, ``content``, ``successor`` and ``files``.
    """
    found = next(iter(find_memories(connection, memory_id, memory_id, limit=1)), None)
    if found is None or found.kind == "playbook":
        return None
    table = task_memories if found.kind == "raw" else consolidated_memories
    shown = [column for column in table.c if column.name not in _INTERNAL]
    row = connection.execute(select(*shown).where(table.c.id == memory_id)).one()._mapping
    paths = select(memory_files.c.path).where(memory_files.c.owner_id == memory_id).order_by(memory_files.c.path)
    return {
        **vars(found),
        **row,
        "successor": row[_SUCCESSOR[table.name]],
        "files": list(connection.scalars(paths)),
    }


def list_feedback(connection: Connection, memory_id: UUID) -> Sequence[Row[Any]]:
    """What was said of a memory and was not undone, newest first: words, importance after it, by whom and when."""
    query = f"""
        SELECT substr(c.reason, {len(FEEDBACK) + 1}) AS words, (c.new_state ->> 'importance')::float8 AS importance,
            c.changed_by, c.changed_at, c.group_id
        FROM consolidation.consolidation_changes c
        WHERE c.entity_id = :id AND c.operation = 'edit' AND starts_with(c.reason, '{FEEDBACK}')
            AND NOT {IS_UNDONE}
        ORDER BY c.seq DESC
    """
    return connection.execute(text(query), {"id": memory_id}).all()
