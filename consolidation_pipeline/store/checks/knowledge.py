"""Checks of what is derived or proposed: patterns, principles, playbook, summaries, profiles and suggestions."""

from __future__ import annotations

from consolidation_pipeline.core.knowledge.playbook import REQUIRED_EVIDENCE
from consolidation_pipeline.store.checks.check import Check, is_memory, select, select_changed
from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.database.writers import WRITER_KEY
from consolidation_pipeline.store.knowledge.summaries import COVERS

_FIND_FOREIGN_EVIDENCE = """
    SELECT c.id, e ->> 'unit'
    FROM consolidation.consolidated_memories c, jsonb_array_elements(c.details -> 'evidence') AS e
    WHERE c.project_id = :project AND c.kind IN ('pattern', 'principle') /* changed */ AND NOT EXISTS (
        SELECT 1 FROM consolidation.memory_lineage l
        WHERE l.child_id = c.id AND l.parent_id::text = e ->> 'unit')
"""

EVIDENCE_POINTS_TO_UNITS = Check(
    "evidence_points_to_units",
    select_changed(_FIND_FOREIGN_EVIDENCE, "c.id"),
    "Every quotation of a pattern or principle is from one of its sources.",
    by_ledger=True,
)

_FIND_DUPLICATE_PATTERNS = """
    SELECT c.kind, c.cluster_key, count(*) FROM consolidation.consolidated_memories c
    WHERE c.project_id = :project AND c.kind IN ('pattern', 'principle')
        AND c.retired_at IS NULL AND c.cluster_key IS NOT NULL
    GROUP BY 1, 2 HAVING count(*) > 1
"""

ONE_PATTERN_PER_GROUP = Check(
    "one_pattern_per_group",
    select(_FIND_DUPLICATE_PATTERNS),
    "No two active patterns, and no two active principles, belong to the same group.",
)

_FIND_UNSUPPORTED_ENTRIES = """
    SELECT id FROM consolidation.playbook_entries
    WHERE project_id = :project AND status = 'active'
        AND (SELECT count(DISTINCT e) FROM unnest(supporting_memory_ids) e) < :required
"""

EVERY_ENTRY_HAS_EVIDENCE = Check(
    "every_entry_has_evidence",
    select(_FIND_UNSUPPORTED_ENTRIES, required=REQUIRED_EVIDENCE),
    "Every active entry has at least three memories as evidence.",
)

_FIND_FOREIGN_SUPPORT = compose(
    """
    SELECT p.id, e.id FROM consolidation.playbook_entries p, unnest(p.supporting_memory_ids) AS e(id)
    WHERE p.project_id = :project /* changed */ AND NOT /* is_memory */
    """,
    is_memory=is_memory("e.id"),
)

EVIDENCE_IS_OF_THE_PROJECT = Check(
    "evidence_is_of_the_project",
    select_changed(_FIND_FOREIGN_SUPPORT, "p.id"),
    "The evidence of an entry is memories of its own project.",
    by_ledger=True,
)

# Priorities are those of ``core.knowledge.playbook``.
_FIND_LOW_PRIORITIES = compose(
    """
    SELECT e.id, e.priority FROM consolidation.playbook_entries e CROSS JOIN LATERAL (
        SELECT count(DISTINCT /* writer */) AS writers FROM consolidation.task_memories t
        WHERE t.id = ANY(e.supporting_memory_ids)) evidence
    WHERE e.project_id = :project AND e.priority < CASE
        WHEN confidence IS NULL THEN 50
        ELSE least(100, 50 + trunc(50 * confidence) + greatest(0, writers - :required)) END
    """,
    writer=WRITER_KEY,
)

PRIORITY_FOLLOWS_EVIDENCE = Check(
    "priority_follows_evidence",
    select(_FIND_LOW_PRIORITIES, required=REQUIRED_EVIDENCE),
    "No entry has a lower priority than its confidence and evidence give it.",
)

_FIND_DUPLICATE_ENTRIES = """
    SELECT source_id, count(*) FROM consolidation.playbook_entries
    WHERE project_id = :project AND status = 'active' AND source_id IS NOT NULL
    GROUP BY 1 HAVING count(*) > 1
"""

ONE_ENTRY_PER_SOURCE = Check(
    "one_entry_per_source",
    select(_FIND_DUPLICATE_ENTRIES),
    "No two active entries come from the same pattern or principle.",
)

_FIND_INCONSISTENT_SUMMARIES = compose(
    """
    WITH edges AS MATERIALIZED (
        SELECT l.parent_id AS memory, s.id AS summary, /* covers */ AS covers
        FROM consolidation.consolidated_memories s JOIN consolidation.memory_lineage l ON l.child_id = s.id
        WHERE s.project_id = :project AND s.kind = 'summary')
    SELECT coalesce(e.memory, s.source) AS memory, coalesce(e.summary, s.id)::text AS found FROM (
        SELECT id, unnest(source_memory_ids) AS source FROM consolidation.consolidated_memories
        WHERE project_id = :project AND kind = 'summary') s
    FULL JOIN edges e ON e.memory = s.source AND e.summary = s.id
    WHERE e.memory IS NULL OR s.id IS NULL
    UNION ALL
    SELECT memory, min(summary::text) FROM edges WHERE covers GROUP BY memory HAVING count(*) > 1
    """,
    covers=COVERS,
)

EVERY_EPISODE_IS_IN_ITS_SUMMARY = Check(
    "every_episode_is_in_its_summary",
    select(_FIND_INCONSISTENT_SUMMARIES),
    "The memories that a summary lists are those of its lineage, and no memory is in two summaries.",
)

_FIND_INVALID_PROFILES = """
    WITH profiles AS (
        SELECT id, coalesce(user_id, '') AS owner, coalesce(scope_key, '') AS scope
        FROM consolidation.consolidated_memories
        WHERE project_id = :project AND kind = 'procedural' AND retired_at IS NULL),
    parents AS (
        SELECT p.id, s.kind = 'summary' AND coalesce(s.user_id, '') = p.owner AS is_own
        FROM profiles p LEFT JOIN consolidation.memory_lineage l ON l.child_id = p.id
            LEFT JOIN consolidation.consolidated_memories s ON s.id = l.parent_id)
    SELECT DISTINCT id FROM parents WHERE is_own IS NOT TRUE
    UNION
    SELECT min(id::text)::uuid FROM profiles GROUP BY owner, scope HAVING count(*) > 1
"""

PROFILES_REST_ON_SUMMARIES = Check(
    "profiles_rest_on_summaries",
    select(_FIND_INVALID_PROFILES),
    "Each user has at most one active profile, made from existing summaries of that user.",
)

_FIND_SHARED_ORIGINALS = """
    SELECT o.id, count(DISTINCT s.id)
    FROM consolidation.consolidation_suggestions s, unnest(s.original_memory_ids) AS o(id)
    WHERE s.project_id = :project AND s.status = 'pending' GROUP BY 1 HAVING count(DISTINCT s.id) > 1
"""

ONE_PENDING_SUGGESTION_PER_MEMORY = Check(
    "one_pending_suggestion_per_memory",
    select(_FIND_SHARED_ORIGINALS),
    "A memory is an original of at most one pending suggestion.",
)

_FIND_INVALID_APPROVALS = """
    SELECT s.id, s.result_memory_id FROM consolidation.consolidation_suggestions s
    WHERE s.project_id = :project AND (s.status = 'validated' OR s.result_memory_id IS NOT NULL) AND NOT EXISTS (
        SELECT 1 FROM consolidation.consolidated_memories c
        WHERE c.id = s.result_memory_id AND c.project_id = :project AND c.kind = 'merged' AND s.status = 'validated')
"""

EVERY_APPROVAL_MADE_A_MEMORY = Check(
    "every_approval_made_a_memory",
    select(_FIND_INVALID_APPROVALS),
    "Every approved suggestion refers to the merged memory that it created, and that memory exists.",
)
