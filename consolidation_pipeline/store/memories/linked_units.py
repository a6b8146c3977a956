"""Which units relations link now: SQL that decay and associations share."""

from __future__ import annotations

# Rows ``t`` that stand for themselves.
ACTIVE = {
    "task_memories": "NOT t.is_archived AND NOT t.is_consolidated",
    "consolidated_memories": "t.retired_at IS NULL",
}


def carriers(condition: str) -> str:
    """SQL of two recursive CTEs. ``chosen``: the relations ``r`` that meet ``condition``. ``carriers``: (origin, id).

    For each end of those the unit that stands for it: a memory that was merged is stood for by its merged memory, a
    superseded one by its successor. An end whose unit is archived, retired or gone has no carrier.
    """
    active = " UNION ALL ".join(
        f"SELECT 1 FROM consolidation.{name} t WHERE t.id = s.id AND {ACTIVE[name]}" for name in ACTIVE
    )
    return f"""
        chosen AS MATERIALIZED (SELECT r.* FROM consolidation.memory_relations r WHERE {condition}),
        standing AS (
            SELECT e.id AS origin, coalesce(m.consolidated_into_id, e.id) AS id
            FROM (SELECT a_id AS id FROM chosen UNION SELECT b_id FROM chosen) e
                LEFT JOIN consolidation.task_memories m ON m.id = e.id
            UNION
            SELECT s.origin, c.superseded_by_id FROM standing s JOIN consolidation.consolidated_memories c ON c.id = s.id
            WHERE c.superseded_by_id IS NOT NULL),
        carriers AS MATERIALIZED (SELECT s.origin, s.id FROM standing s WHERE EXISTS ({active}))
    """


def links(condition: str) -> str:
    """SQL of the CTEs of ``carriers`` and ``links``: (id, relations, confidence) of each unit with relations.

    A link leads to another unit, and there is one per relation type and other unit, whatever the number of relations
    that make it; of these the highest confidence counts. ``confidence`` is the mean over the links, taken in one order,
    so that it is the same to the last bit every time.
    """
    return f"""{carriers(condition)},
        links AS (
            SELECT id, count(*) AS relations, avg(confidence ORDER BY confidence) AS confidence FROM (
                SELECT side.id, max(r.confidence) AS confidence
                FROM chosen r JOIN carriers a ON a.origin = r.a_id JOIN carriers b ON b.origin = r.b_id,
                    LATERAL (VALUES (a.id, b.id), (b.id, a.id)) AS side(id, other)
                WHERE a.id <> b.id GROUP BY side.id, side.other, r.relation_type) single
            GROUP BY id)
    """
