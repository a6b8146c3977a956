"""Checks of the similarity graph and of the groups that are formed on it."""

from __future__ import annotations

from consolidation_pipeline.store.checks.check import Check, select

# Vectors are stored as float32: a similarity is exact to about 1e-6.
_SIMILARITY_SLACK = 1e-4

_FIND_BAD_PAIRS = """
    SELECT n.a, n.b, n.similarity FROM consolidation.memory_pairs n
        LEFT JOIN consolidation.task_memories a ON a.id = n.a
        LEFT JOIN consolidation.task_memories b ON b.id = n.b
    WHERE n.project_id = :project AND (a.id IS NULL OR b.id IS NULL OR NOT n.similarity BETWEEN -1 AND 1)
"""

PAIRS_ARE_COSINES = Check(
    "pairs_are_cosines",
    select(_FIND_BAD_PAIRS),
    "Both memories of every pair exist, and their similarity is between -1 and 1.",
)

_FIND_WEAK_MERGE_GROUPS = """
    SELECT c.cluster_key, c.details ->> 'weakest_new_pair'
    FROM consolidation.memory_clusters c, LATERAL (
        SELECT (thresholds ->> 't_merge')::float8 AS t_merge FROM consolidation.similarity_calibrations k
        LEFT JOIN consolidation.consolidation_jobs run ON run.id = c.job_id
        WHERE k.project_id = c.project_id AND k.created_at <= coalesce(run.completed_at, 'infinity')
        ORDER BY k.created_at DESC LIMIT 1) k
    WHERE c.project_id = :project AND c.tier = 'merge' AND c.is_representative
        AND (c.details ->> 'weakest_new_pair')::float8 < k.t_merge - :slack
"""

MERGE_GROUPS_DO_NOT_CHAIN = Check(
    "merge_groups_do_not_chain",
    select(_FIND_WEAK_MERGE_GROUPS, slack=_SIMILARITY_SLACK),
    "Every memory that joined a merge group reaches the merge threshold with all its members.",
)

_FIND_SHARED_MEMBERS = """
    SELECT member_id, count(*) FROM consolidation.memory_clusters
    WHERE project_id = :project AND tier = 'merge' GROUP BY 1 HAVING count(*) > 1
"""

ONE_MERGE_GROUP_PER_MEMORY = Check(
    "one_merge_group_per_memory",
    select(_FIND_SHARED_MEMBERS),
    "No memory is in two merge groups.",
)
