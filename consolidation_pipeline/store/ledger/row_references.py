"""What names a memory: the columns, of any table, by which one row stands on another."""

from __future__ import annotations

from sqlalchemy import Connection

from consolidation_pipeline.store.ledger.ledger_writer import refuse

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
    f"SELECT {owner} AS id, {named} AS named FROM consolidation.{rows}" for rows, owner, named in _REFERENCES
)


def refuse_dangling(connection: Connection, changed: str) -> None:
    """No row among the ``entity_id`` of the table ``changed`` may name a memory that was there once and is gone.

    Raises:
        ConflictError: one does; ``conflicts`` are those rows.
    """
    refuse(
        connection,
        f"SELECT DISTINCT r.id FROM ({REFERENCES}) r JOIN {changed} c ON c.entity_id = r.id "
        "WHERE NOT EXISTS (SELECT 1 FROM consolidation.consolidated_memories m WHERE m.id = r.named) "
        "AND NOT EXISTS (SELECT 1 FROM consolidation.task_memories m WHERE m.id = r.named) "
        "AND EXISTS (SELECT 1 FROM consolidation.consolidation_changes l WHERE l.entity_id = r.named)",
        "names a memory that is gone: bring that back first",
    )
