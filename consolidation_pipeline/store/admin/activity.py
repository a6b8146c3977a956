"""Activity of a project: its runs, and what people and agents changed between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, text

from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.ledger.ledger_reader import IS_ENTRY_OF_RUN, IS_UNDONE

# The newest jobs and groups without a job; the changes of these only are read in full.
_LIST_ACTIVITY = compose(
    """
    WITH jobs AS (
        SELECT id, created_at, coalesce(scope ->> 'job', 'consolidate') AS kind, triggered_by AS changed_by,
            error_message, scope -> 'phases' AS phases,
            CASE WHEN status = 'failed' AND retry_count >= max_retries THEN 'dead' ELSE status END AS status
        FROM consolidation.consolidation_jobs WHERE project_id = :project ORDER BY created_at DESC LIMIT :limit),
    by_hand AS (
        SELECT c.group_id AS id, max(c.changed_at) AS created_at, min(c.operation) AS kind,
            min(c.changed_by) AS changed_by, min(c.reason) AS reason,
            min(c.new_state ->> 'pinned') FILTER (WHERE c.operation = 'edit') AS pinned
        FROM consolidation.consolidation_changes c
        WHERE c.project_id = :project
            AND NOT EXISTS (SELECT FROM consolidation.consolidation_jobs j WHERE j.id = c.job_id)
        GROUP BY 1 ORDER BY max(c.seq) DESC LIMIT :limit),
    lines AS (
        SELECT id, created_at, kind, changed_by, error_message AS reason, status, true AS is_run, phases,
            NULL AS pinned
        FROM jobs
        UNION ALL
        SELECT id, created_at, kind, changed_by, reason, 'completed', false, NULL, pinned FROM by_hand
        ORDER BY created_at DESC, id LIMIT :limit),
    changes AS (
        SELECT l.id, CASE WHEN /* is_entry */ THEN 'playbook' ELSE c.operation END AS operation, c.group_id,
            /* is_undone */ AS is_undone
        FROM lines l JOIN consolidation.consolidation_changes c ON l.is_run AND c.job_id = l.id
        UNION ALL
        SELECT l.id, c.operation, c.group_id, /* is_undone */
        FROM lines l JOIN consolidation.consolidation_changes c ON NOT l.is_run AND c.group_id = l.id),
    counts AS (
        SELECT id, operation, count(*) AS changes, count(DISTINCT group_id) AS groups,
            count(*) FILTER (WHERE is_undone) AS undone
        FROM changes GROUP BY 1, 2)
    SELECT l.*, coalesce(sum(n.changes), 0)::integer AS changes, coalesce(sum(n.undone), 0)::integer AS undone,
        coalesce(jsonb_object_agg(n.operation, n.groups) FILTER (WHERE n.operation IS NOT NULL), '{}') AS groups
    FROM lines l LEFT JOIN counts n ON n.id = l.id
    GROUP BY l.id, l.created_at, l.kind, l.changed_by, l.reason, l.status, l.is_run, l.phases, l.pinned
    ORDER BY l.created_at DESC, l.id
    """,
    is_undone=IS_UNDONE,
    is_entry=IS_ENTRY_OF_RUN,
)


def list_activity(connection: Connection, project_id: UUID, *, limit: int) -> Sequence[Row[Any]]:
    """Return the jobs of a project and the groups of changes that no job made, newest first.

    Returns rows of ``id`` (of the job or group, as a rollback takes it), ``created_at``, ``kind`` (of the job, or the
    operation), ``changed_by``, ``reason`` (of a job its error), ``status``, ``is_run``, ``phases`` (of a job that runs
    some only), ``pinned`` (of an edit that set it: true or false), ``changes``, ``undone`` (how many of them were
    rolled back) and ``groups`` (their number by operation; ``playbook``: entries that a
    run proposed or changed).
    """
    return connection.execute(text(_LIST_ACTIVITY), {"project": project_id, "limit": limit}).all()
