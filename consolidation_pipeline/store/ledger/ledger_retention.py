"""Audit retention: removes old rows of the ledger, and records that in the ledger. Nothing else removes rows."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, text

from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.ledger.cannot_link import UNDONE_MERGES

# A unit is a job, or a group of manual changes; a rollback ties its unit to the unit that it undid. While one of the
# tied units is young, all stay. So do undone merges of a project that still exists: they keep memories apart. The
# digest is made of the digests of the rows, as the ledger's text may be larger than one value can be.
_REMOVE_CHANGES = compose(
    """
    WITH RECURSIVE project AS (SELECT CAST(:project AS uuid) AS id), /* undone_merges */,
    units AS MATERIALIZED (
        SELECT coalesce(job_id, group_id) AS unit, max(changed_at) AS newest FROM consolidation.consolidation_changes
        WHERE project_id = :project AND operation <> 'retention' GROUP BY 1),
    rollbacks AS MATERIALIZED (
        SELECT DISTINCT coalesce(r.job_id, r.group_id) AS a, coalesce(c.job_id, c.group_id) AS b
        FROM consolidation.consolidation_changes r
            JOIN consolidation.consolidation_changes c ON c.id = r.reverts_change_id
        WHERE r.project_id = :project),
    ties AS MATERIALIZED (SELECT a, b FROM rollbacks UNION SELECT b, a FROM rollbacks),
    young AS (
        SELECT unit FROM units WHERE newest >= least(:before, now() - interval '90 days')
        UNION SELECT ties.b FROM young JOIN ties ON ties.a = young.unit),
    kept AS MATERIALIZED (
        SELECT unnest(groups) AS group_id FROM undone_merges
        WHERE EXISTS (SELECT 1 FROM consolidation.projects WHERE id = :project)),
    removed AS (
        DELETE FROM consolidation.consolidation_changes c WHERE c.project_id = :project AND c.operation <> 'retention'
            AND coalesce(c.job_id, c.group_id) NOT IN (SELECT unit FROM young)
            AND c.group_id NOT IN (SELECT group_id FROM kept)
        RETURNING c.seq, c.changed_at, c.operation, sha256(convert_to(to_jsonb(c)::text, 'UTF8')) AS digest),
    summary AS (
        SELECT count(*) AS changes, min(seq) AS first_seq, max(seq) AS last_seq, min(changed_at) AS "from",
            max(changed_at) AS until, encode(sha256(string_agg(digest, '' ORDER BY seq)), 'hex') AS sha256,
            (SELECT jsonb_object_agg(operation, n) FROM (SELECT operation, count(*) AS n FROM removed GROUP BY 1) o)
                AS operations
        FROM removed)
    INSERT INTO consolidation.consolidation_changes (
        project_id, group_id, operation, entity_type, entity_id, previous_state, reason, changed_by)
    SELECT :project, gen_random_uuid(), 'retention', 'consolidation_changes', :project, to_jsonb(s),
        format('removed %s changes of %s to %s, older than %s days', changes, "from"::date, until::date,
            CAST(:days AS integer)), :changed_by
    FROM summary s WHERE changes > 0 RETURNING id, previous_state
    """,
    undone_merges=UNDONE_MERGES,
)


def remove_changes(
    connection: Connection, project_id: UUID, *, before: datetime, days: int, changed_by: str
) -> Row[Any] | None:
    """Remove the changes of a project from before an instant, and record that in the ledger.

    Whole jobs and groups are removed, if each change in them, and each that undid or redid one of them, is older.
    Records of earlier removals stay. So do merges that were undone as groups, which later runs need.

    Args:
        project_id: The project, which may be deleted.
        before: Remove changes that are older.
        days: Retention in days, for the record.
        changed_by: Author of the record.

    Returns:
        ``id`` and ``previous_state`` of the record; None if nothing was old enough. The state holds ``changes``,
        ``first_seq``, ``last_seq``, ``from``, ``until``, ``operations`` and ``sha256``: the SHA-256 over the SHA-256
        digests of the removed rows, as jsonb text, by seq.
    """
    connection.execute(text("SET LOCAL consolidation.retention = 'on'"))
    parameters = {"project": project_id, "before": before, "days": days, "changed_by": changed_by}
    removed = connection.execute(text(_REMOVE_CHANGES), parameters).one_or_none()
    connection.execute(text("SET LOCAL consolidation.retention = 'off'"))
    return removed


_LIST_DELETED_PROJECTS = """
    SELECT DISTINCT c.project_id FROM consolidation.consolidation_changes c
    WHERE NOT EXISTS (SELECT 1 FROM consolidation.projects p WHERE p.id = c.project_id) ORDER BY 1
"""


def list_deleted_projects(connection: Connection) -> list[UUID]:
    """Return the ids of deleted projects that still have changes in the ledger."""
    return list(connection.scalars(text(_LIST_DELETED_PROJECTS)))
