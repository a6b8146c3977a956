"""SQL of the active units that relations link now, for decay and associations."""

from __future__ import annotations

from consolidation_pipeline.store.database.sql import compose

# Table -> SQL that is true if the row `t` is an active unit.
IS_ACTIVE = {
    "task_memories": "NOT t.is_archived AND NOT t.is_consolidated",
    "consolidated_memories": "t.retired_at IS NULL",
}

_ACTIVE_UNITS = """
    chosen AS MATERIALIZED (SELECT r.* FROM consolidation.memory_relations r WHERE /* condition */),
    successors AS (
        SELECT e.id AS origin, coalesce(m.consolidated_into_id, e.id) AS id
        FROM (SELECT a_id AS id FROM chosen UNION SELECT b_id FROM chosen) e
            LEFT JOIN consolidation.task_memories m ON m.id = e.id
        UNION
        SELECT s.origin, c.superseded_by_id
        FROM successors s JOIN consolidation.consolidated_memories c ON c.id = s.id
        WHERE c.superseded_by_id IS NOT NULL),
    active_units AS MATERIALIZED (
        SELECT s.origin, s.id FROM successors s
        WHERE EXISTS (
            SELECT 1 FROM consolidation.task_memories t
            WHERE t.id = s.id AND NOT t.is_archived AND NOT t.is_consolidated
            UNION ALL
            SELECT 1 FROM consolidation.consolidated_memories t WHERE t.id = s.id AND t.retired_at IS NULL))
"""


def active_units(condition: str) -> str:
    """Return SQL of the CTEs ``chosen`` and ``active_units``, to follow ``WITH RECURSIVE``.

    ``chosen``: the relations ``r`` that meet ``condition``. ``active_units``: (origin, id), for each end of a chosen
    relation the unit that represents it now. A memory that was merged is represented by its merged memory, a
    superseded one by its successor. An end whose unit is archived, retired or deleted has none.
    """
    return compose(_ACTIVE_UNITS, condition=condition)
