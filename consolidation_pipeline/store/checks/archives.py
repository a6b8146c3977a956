"""Checks of archived and forgotten memories."""

from __future__ import annotations

from consolidation_pipeline.store.checks.check import Check, select
from consolidation_pipeline.store.database.sql import compose

# Raw and consolidated memories that are archived: `archived_at` is the time of archiving.
_ARCHIVED = """
    SELECT id, memory_type, importance, pinned, learned_at, archived_at, archive_reason
    FROM consolidation.task_memories WHERE project_id = :project AND archived_at IS NOT NULL
    UNION ALL
    SELECT id, memory_type, importance, pinned, learned_at, retired_at, archive_reason
    FROM consolidation.consolidated_memories WHERE project_id = :project AND archive_reason IS NOT NULL
"""

# The change that archived the memory `t`. The ledger keeps it for a limited time only.
_ARCHIVING = """
    SELECT a.seq, a.job_id FROM consolidation.consolidation_changes a
    WHERE a.entity_id = t.id AND a.operation = 'archive' AND a.new_state ->> 'archive_reason' = t.archive_reason
    ORDER BY a.seq DESC LIMIT 1
"""

# A person may edit an archived memory, which breaks no rule. So its value counts only if the ledger has the archiving
# and no later change of the value.
_UNCHANGED_SINCE = """
    NOT EXISTS (
        SELECT 1 FROM consolidation.consolidation_changes e
        WHERE e.entity_id = t.id AND e.seq > archiving.seq AND e.previous_state ? :value)
"""

_FIND_FORGOTTEN_TYPES = compose(
    """
    SELECT id, memory_type FROM (/* archived */) t
    WHERE archive_reason = 'forgotten' AND memory_type IN ('decision', 'discovery')
    """,
    archived=_ARCHIVED,
)

NO_DECISION_IS_FORGOTTEN = Check(
    "no_decision_is_forgotten",
    select(_FIND_FORGOTTEN_TYPES),
    "No decision or discovery was forgotten; they are exempt at any relevance and age.",
)

_FIND_FORGOTTEN_YOUNG = compose(
    """
    SELECT id, archived_at - learned_at FROM (/* archived */) t
    WHERE archive_reason = 'forgotten' AND archived_at - learned_at < interval '90 days'
    """,
    archived=_ARCHIVED,
)

NOTHING_YOUNG_IS_FORGOTTEN = Check(
    "nothing_young_is_forgotten",
    select(_FIND_FORGOTTEN_YOUNG),
    "No memory was forgotten before it was 90 days old.",
)

_FIND_FORGOTTEN_IMPORTANT = compose(
    """
    SELECT t.id, t.importance FROM (/* archived */) t, LATERAL (/* archiving */) archiving
    WHERE t.archive_reason = 'forgotten' AND t.importance >= 0.7 AND /* unchanged_since */
    """,
    archived=_ARCHIVED,
    archiving=_ARCHIVING,
    unchanged_since=_UNCHANGED_SINCE,
)

NOTHING_IMPORTANT_IS_FORGOTTEN = Check(
    "nothing_important_is_forgotten",
    select(_FIND_FORGOTTEN_IMPORTANT, value="importance"),
    "No memory with an importance of 0.7 or more was forgotten.",
)

# If the score was computed after the archiving, the memory was active again in between.
_FIND_FORGOTTEN_RELEVANT = compose(
    """
    SELECT t.id, s.relevance_score, j.options ->> 'forget_threshold'
    FROM (/* archived */) t JOIN consolidation.relevance_scores s ON s.project_id = :project AND s.memory_id = t.id,
        LATERAL (/* archiving */) archiving JOIN consolidation.consolidation_jobs j ON j.id = archiving.job_id
    WHERE t.archive_reason = 'forgotten' AND s.relevance_at <= t.archived_at
        AND s.relevance_score >= (j.options ->> 'forget_threshold')::float8
    """,
    archived=_ARCHIVED,
    archiving=_ARCHIVING,
)

NOTHING_RELEVANT_IS_FORGOTTEN = Check(
    "nothing_relevant_is_forgotten",
    select(_FIND_FORGOTTEN_RELEVANT),
    "Every forgotten memory had a relevance below the configured threshold.",
)

_FIND_ARCHIVED_PINNED = compose(
    """
    SELECT t.id, t.archive_reason FROM (/* archived */) t, LATERAL (/* archiving */) archiving
    WHERE t.archive_reason IN ('staleness', 'forgotten') AND t.pinned AND /* unchanged_since */
    """,
    archived=_ARCHIVED,
    archiving=_ARCHIVING,
    unchanged_since=_UNCHANGED_SINCE,
)

NOTHING_PINNED_IS_ARCHIVED = Check(
    "nothing_pinned_is_archived",
    select(_FIND_ARCHIVED_PINNED, value="pinned"),
    "No policy archived a pinned memory.",
)

_FIND_UNEXPLAINED_ARCHIVES = """
    SELECT id FROM consolidation.task_memories
    WHERE project_id = :project AND (archived_at IS NOT NULL OR archive_reason IS NOT NULL)
        AND is_archived = (archive_reason IS NULL)
    UNION ALL
    SELECT id FROM consolidation.consolidated_memories
    WHERE project_id = :project
        AND ((retired_at IS NOT NULL AND superseded_by_id IS NULL) OR archive_reason IS NOT NULL)
        AND (retired_at IS NOT NULL AND superseded_by_id IS NULL) = (archive_reason IS NULL)
"""

EVERY_ARCHIVE_HAS_A_REASON = Check(
    "every_archive_has_a_reason",
    select(_FIND_UNEXPLAINED_ARCHIVES),
    "Every archived memory has an archive reason, and no other memory has one.",
)
