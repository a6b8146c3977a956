"""Checks of relations between memories."""

from __future__ import annotations

from consolidation_pipeline.core.memories.relation_types import CANDIDATE_TYPES
from consolidation_pipeline.store.checks.check import Check, is_memory, select
from consolidation_pipeline.store.database.sql import compose

_FIND_DANGLING_RELATIONS = compose(
    """
    SELECT r.id, ends.id FROM consolidation.memory_relations r, LATERAL (VALUES (r.a_id), (r.b_id)) AS ends(id)
    WHERE r.project_id = :project AND (r.a_id = r.b_id OR NOT /* is_memory */)
    """,
    is_memory=is_memory("ends.id"),
)

RELATIONS_HAVE_TWO_ENDS = Check(
    "relations_have_two_ends",
    select(_FIND_DANGLING_RELATIONS),
    "Every relation links two different memories of its project.",
    blocking=False,
)

# Within the time that the ledger is kept.
_FIND_UNREVIEWED_RELATIONS = """
    SELECT id, relation_type FROM consolidation.memory_relations r
    WHERE project_id = :project AND status = 'confirmed' AND relation_type = ANY(:candidate_types)
        AND created_at > now() - interval '90 days' AND NOT EXISTS (
            SELECT 1 FROM consolidation.consolidation_changes c
            WHERE c.entity_id = r.id AND c.operation = 'review' AND c.new_state ->> 'status' = 'confirmed')
"""

CANDIDATES_DO_NOT_COUNT = Check(
    "candidates_do_not_count",
    select(_FIND_UNREVIEWED_RELATIONS, candidate_types=list(CANDIDATE_TYPES)),
    "No contradiction or parallel context counts before a person has confirmed it.",
)

_FIND_MISDIRECTED_SUPERSESSIONS = """
    SELECT r.id, a.learned_at FROM consolidation.memory_relations r
        JOIN consolidation.task_memories a ON a.id = r.a_id JOIN consolidation.task_memories b ON b.id = r.b_id
    WHERE r.project_id = :project AND r.relation_type = 'supersedes' AND r.status <> 'rejected'
        AND a.learned_at <= b.learned_at
"""

NEWER_SUPERSEDES_OLDER = Check(
    "newer_supersedes_older",
    select(_FIND_MISDIRECTED_SUPERSESSIONS),
    "A memory supersedes older memories only.",
)
