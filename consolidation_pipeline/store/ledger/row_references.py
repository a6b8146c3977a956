"""References between rows: the columns, of any table, by which a row references a memory."""

from __future__ import annotations

from sqlalchemy import Connection

from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.ledger.ledger_writer import reject_selected

# Every reference: id of the row, and id of the memory that it references. Arrays are unnested, so that one join answers
# for any number of rows. `consolidated_into_id` of raw memories is left out: it changes with its merged memory, in one
# group.
ROW_REFERENCES = """
    SELECT child_id AS id, parent_id AS referenced FROM consolidation.memory_lineage
    UNION ALL SELECT id, superseded_by_id FROM consolidation.consolidated_memories
    UNION ALL SELECT id, a_id FROM consolidation.memory_relations
    UNION ALL SELECT id, b_id FROM consolidation.memory_relations
    UNION ALL SELECT id, source_id FROM consolidation.playbook_entries
    UNION ALL SELECT t.id, e.id FROM consolidation.playbook_entries t, unnest(t.supporting_memory_ids) AS e(id)
    UNION ALL SELECT id, result_memory_id FROM consolidation.consolidation_suggestions
    UNION ALL SELECT t.id, e.id FROM consolidation.consolidation_suggestions t, unnest(t.original_memory_ids) AS e(id)
"""

_FIND_DANGLING = compose(
    """
    SELECT DISTINCT r.id FROM (/* references */) r JOIN /* changed */ c ON c.entity_id = r.id
    WHERE NOT EXISTS (SELECT 1 FROM consolidation.consolidated_memories m WHERE m.id = r.referenced)
        AND NOT EXISTS (SELECT 1 FROM consolidation.task_memories m WHERE m.id = r.referenced)
        AND EXISTS (SELECT 1 FROM consolidation.consolidation_changes l WHERE l.entity_id = r.referenced)
    """,
    references=ROW_REFERENCES,
)


def reject_dangling(connection: Connection, changed: str) -> None:
    """Raise ConflictError if a changed row references a memory that existed once and is gone.

    ``changed`` is a table with the ids of the changed rows as ``entity_id``; ``conflicts`` of the error are these rows.
    """
    what = "references a memory that is gone: bring that back first"
    reject_selected(connection, compose(_FIND_DANGLING, changed=changed), what)
