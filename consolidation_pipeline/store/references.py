"""What names a memory: the columns, of any table, by which one row stands on another."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import Connection

from consolidation_pipeline.store.ledger import refuse
from consolidation_pipeline.store.schema import SCHEMA

# (rows, id of the row that names, what it names). That a raw memory is in a merged memory is left out: it changes with
# that memory, in one group. Arrays are taken apart, so that one join answers for any number of rows.
_REFERENCES = (
    ("memory_lineage t", "t.child_id", "t.parent_id"),
    ("consolidated_memories t", "t.id", "t.superseded_by_id"),
    ("memory_relations t", "t.id", "t.a_id"),
    ("memory_relations t", "t.id", "t.b_id"),
    ("playbook_entries t", "t.id", "t.source_id"),
    ("playbook_entries t, unnest(t.supporting_memory_ids) AS e(id)", "t.id", "e.id"),
    ("consolidation_suggestions t", "t.id", "t.result_memory_id"),
    ("consolidation_suggestions t, unnest(t.original_memory_ids) AS e(id)", "t.id", "e.id"),
)
# SQL of every reference: the id of the row that names, and the id it names.
REFERENCES = " UNION ALL ".join(
    f"SELECT {owner} AS id, {named} AS named FROM {SCHEMA}.{rows}" for rows, owner, named in _REFERENCES
)


def refuse_dangling(connection: Connection, changed: str) -> None:
    """No row among the ``entity_id`` of the table ``changed`` may name a memory that was there once and is gone.

    Raises:
        ConflictError: one does; ``conflicts`` are those rows.
    """
    refuse(
        connection,
        f"SELECT DISTINCT r.id FROM ({REFERENCES}) r JOIN {changed} c ON c.entity_id = r.id "
        f"WHERE NOT EXISTS (SELECT 1 FROM {SCHEMA}.consolidated_memories m WHERE m.id = r.named) "
        f"AND NOT EXISTS (SELECT 1 FROM {SCHEMA}.task_memories m WHERE m.id = r.named) "
        f"AND EXISTS (SELECT 1 FROM {SCHEMA}.consolidation_changes l WHERE l.entity_id = r.named)",
        "names a memory that is gone: bring that back first",
    )


def refuse_twins(connection: Connection, group_id: UUID) -> None:
    """No merged memory that a group brought back, or its words, may be active beside another one that says the same.

    Raises:
        ConflictError: one would; ``conflicts`` are those that were there.
    """
    merged = f"{SCHEMA}.consolidated_memories"
    refuse(
        connection,
        f"SELECT DISTINCT twin.id FROM {SCHEMA}.consolidation_changes c JOIN {merged} m ON m.id = c.entity_id "
        f"JOIN {merged} twin ON twin.id <> m.id AND twin.project_id = m.project_id "
        "AND twin.memory_type = m.memory_type AND twin.normalized_hash = m.normalized_hash "
        "WHERE c.group_id = :group AND c.new_state ?| ARRAY['retired_at', 'normalized_hash'] "
        "AND m.kind = 'merged' AND m.retired_at IS NULL AND twin.kind = 'merged' AND twin.retired_at IS NULL",
        "says the same word for word as a merged memory that would come back: archive it, or roll its merge back first",
        group=group_id,
    )
