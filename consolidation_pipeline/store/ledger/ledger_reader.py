"""Ledger reader: changes, groups and jobs, what was undone, and later changes that depend on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, text

from consolidation_pipeline.store.database.sql import compose, conditions
from consolidation_pipeline.store.ledger.row_references import ROW_REFERENCES
from consolidation_pipeline.store.projects import Project


@dataclass(frozen=True)
class RollbackTarget:
    """Changes of a group or job that a rollback would undo.

    ``kind``: group or job; a rollback has the kind of what it undid. ``operations``: operations of the changes.
    ``changes``: ``seq`` of each change in effect. ``undone_by``: groups of the rollbacks that undid the changes, if
    none is in effect any more, those of a whole job first and then by what they undid. ``age``: of the newest change.
    """

    kind: str
    project: Project
    operations: Sequence[str]
    changes: Sequence[int]
    undone_by: Sequence[UUID]
    age: timedelta


# Each change of the target with its newest undoing or redoing: after an even number of turns it is in effect.
_FIND_TARGET = """
    WITH RECURSIVE fate AS (
        SELECT c.seq AS origin, c.id, c.seq, c.group_id, c.reverts_scope AS scope, 0 AS turns
        FROM consolidation.consolidation_changes c WHERE /* condition */
        UNION ALL
        SELECT f.origin, r.id, r.seq, r.group_id, r.reverts_scope, f.turns + 1
        FROM fate f JOIN consolidation.consolidation_changes r ON r.reverts_change_id = f.id),
    newest AS (SELECT DISTINCT ON (origin) origin, seq, group_id, scope, turns FROM fate ORDER BY origin, turns DESC),
    undoing AS (
        SELECT group_id, bool_or(scope = 'job') AS of_job, count(*) AS n, max(seq) AS seq
        FROM newest WHERE turns % 2 = 1 GROUP BY group_id)
    SELECT p.id, p.slug, p.consolidation_enabled, p.config, now() - max(c.changed_at) AS age,
        min(c.reverts_scope) AS reverts_scope, array_agg(DISTINCT c.operation) AS operations,
        array_agg(n.seq ORDER BY n.seq) FILTER (WHERE n.turns % 2 = 0) AS in_effect,
        (SELECT array_agg(group_id ORDER BY of_job DESC, n DESC, seq DESC) FROM undoing) AS undone_by
    FROM newest n
        JOIN consolidation.consolidation_changes c ON c.seq = n.origin
        JOIN consolidation.projects p ON p.id = c.project_id
    GROUP BY p.id
"""
# The id of a change stands for its group: one change alone would leave half a merge behind.
_FIND_GROUP = compose(
    _FIND_TARGET,
    condition="""c.group_id IN (
            SELECT group_id FROM consolidation.consolidation_changes WHERE id = :target UNION ALL SELECT :target)""",
)
_FIND_JOB = compose(_FIND_TARGET, condition="c.job_id = :target")


def find_rollback_target(connection: Connection, target: UUID) -> RollbackTarget | None:
    """Return the changes under the id of a change, a group or a job; None if there are none.

    For a change that was rolled back and redone, the redoing change is returned: to undo that undoes it again.
    """
    for kind, statement in (("group", _FIND_GROUP), ("job", _FIND_JOB)):
        row = connection.execute(text(statement), {"target": target}).one_or_none()
        if row is not None:
            undone_by = [] if row.in_effect else row.undone_by
            kind = row.reverts_scope or kind
            return RollbackTarget(kind, Project(*row[:4]), row.operations, row.in_effect or [], undone_by, row.age)
    return None


_FIND_IDS = """
    SELECT id FROM (
        SELECT job_id AS id FROM consolidation.consolidation_changes WHERE job_id BETWEEN :first AND :last
        UNION SELECT group_id FROM consolidation.consolidation_changes WHERE group_id BETWEEN :first AND :last
        UNION SELECT id FROM consolidation.consolidation_changes WHERE id BETWEEN :first AND :last
    ) known ORDER BY id LIMIT :limit
"""


def find_rollback_ids(connection: Connection, first: UUID, last: UUID, *, limit: int) -> Sequence[UUID]:
    """Return the ids of jobs, groups and changes from ``first`` to ``last``, up to ``limit``."""
    return connection.scalars(text(_FIND_IDS), {"first": first, "last": last, "limit": limit}).all()


_FIND_ORIGIN = """
    WITH RECURSIVE undone AS (
        SELECT job_id, reverts_change_id AS id, 0 AS turns
        FROM consolidation.consolidation_changes WHERE seq = :seq
        UNION ALL
        SELECT c.job_id, c.reverts_change_id, u.turns + 1
        FROM consolidation.consolidation_changes c JOIN undone u ON c.id = u.id)
    SELECT turns % 2 = 1 AS is_undo, job_id FROM undone ORDER BY turns DESC LIMIT 1
"""


def find_origin(connection: Connection, seq: int) -> Row[Any]:
    """Return where a change comes from, if it undid or redid another one.

    ``is_undo``: True if it undid one that was in effect, so that to undo it redoes something. ``job_id``: the job that
    made the first change; None if it was made by hand.
    """
    return connection.execute(text(_FIND_ORIGIN), {"seq": seq}).one()


# SQL that is true if the change `c` was undone: the chain of changes that undo and redo it is of odd length.
IS_UNDONE = """(
    WITH RECURSIVE fate AS (
        SELECT r.id FROM consolidation.consolidation_changes r WHERE r.reverts_change_id = c.id
        UNION ALL
        SELECT r.id FROM consolidation.consolidation_changes r JOIN fate f ON r.reverts_change_id = f.id)
    SELECT mod(count(*), 2) = 1 FROM fate)"""
# The change `c` is a playbook entry that a run proposed or changed: an edit in the ledger, and none by a person.
IS_ENTRY_OF_RUN = "(c.operation = 'edit' AND c.entity_type = 'playbook_entries' AND c.job_id IS NOT NULL)"
# The change `c` is in effect if nothing undid it and it is not an undo itself; a redo is in effect.
_IN_EFFECT = conditions(
    "NOT EXISTS (SELECT 1 FROM consolidation.consolidation_changes r WHERE r.reverts_change_id = c.id)",
    """c.operation <> 'rollback' OR (
        WITH RECURSIVE undone AS (
            SELECT c.reverts_change_id AS id
            UNION ALL
            SELECT u.reverts_change_id FROM consolidation.consolidation_changes u JOIN undone ON u.id = undone.id)
        SELECT count(id) % 2 = 0 FROM undone)""",
)

# Rows whose later changes depend on the changes `:known`, each with the seq after which they do:
# - rows whose version is not the one that the known changes left;
# - rows that reference a memory whose text the known changes wrote. Left out are rows that have again the version
#   from before that text was written, or written again by a redo.
_LIST_AFFECTED = compose(
    """
    WITH RECURSIVE known AS (
        SELECT seq, entity_id, version_after, lead(seq) OVER w IS NULL AS is_last,
            lead(version_before) OVER w AS next_before,
            entity_type = 'consolidated_memories' AND new_state ? 'content' AS has_text
        FROM consolidation.consolidation_changes WHERE seq = ANY(:known)
        WINDOW w AS (PARTITION BY entity_id ORDER BY seq)),
    changed AS (
        SELECT k.entity_id, min(k.seq)
        FROM known k, LATERAL (
            SELECT version_after FROM consolidation.consolidation_changes
            WHERE entity_id = k.entity_id ORDER BY seq DESC LIMIT 1) n
        GROUP BY k.entity_id HAVING bool_or(
            k.version_after IS DISTINCT FROM CASE WHEN k.is_last THEN n.version_after ELSE k.next_before END)),
    written AS MATERIALIZED (SELECT entity_id AS id, min(seq) AS seq FROM known WHERE has_text GROUP BY 1),
    times AS (
        SELECT w.id, c.seq, c.reverts_change_id
        FROM written w JOIN consolidation.consolidation_changes c ON c.seq = w.seq
        UNION ALL
        SELECT t.id, c.seq, c.reverts_change_id
        FROM times t
            JOIN consolidation.consolidation_changes undone ON undone.id = t.reverts_change_id
            JOIN consolidation.consolidation_changes c ON c.id = undone.reverts_change_id),
    referencing AS MATERIALIZED (
        SELECT r.id, r.referenced, w.seq FROM (/* references */) r JOIN written w ON w.id = r.referenced)
    SELECT * FROM changed
    UNION
    SELECT id, seq FROM referencing r WHERE NOT EXISTS (
        SELECT 1 FROM times WHERE times.id = r.referenced AND (
            SELECT version_after FROM consolidation.consolidation_changes
            WHERE entity_id = r.id AND seq < times.seq ORDER BY seq DESC LIMIT 1
        ) IS NOT DISTINCT FROM (
            SELECT version_after FROM consolidation.consolidation_changes
            WHERE entity_id = r.id ORDER BY seq DESC LIMIT 1))
    """,
    references=ROW_REFERENCES,
)
_LIST_LATER_GROUPS = compose(
    """
    SELECT DISTINCT c.group_id
    FROM unnest(CAST(:ids AS uuid[]), CAST(:seqs AS bigint[])) AS affected(id, seq)
        JOIN consolidation.consolidation_changes c ON c.entity_id = affected.id AND c.seq > affected.seq
    WHERE c.seq <> ALL(CAST(:known AS bigint[])) /* in_effect */
    """,
    in_effect=_IN_EFFECT,
)
_LIST_CHANGES_OF_GROUPS = compose(
    """
    SELECT c.id, c.seq, c.group_id, c.operation, c.changed_at FROM consolidation.consolidation_changes c
    WHERE c.group_id = ANY(CAST(:groups AS uuid[])) AND c.seq <> ALL(CAST(:known AS bigint[])) /* in_effect */
    """,
    in_effect=_IN_EFFECT,
)


def list_dependents(connection: Connection, changes: Sequence[int]) -> list[Row[Any]]:
    """Return later changes that depend on ``changes``, by seq: of the same rows, or of rows that reference them.

    Rows reference a consolidated memory by lineage, as a relation, as source or evidence of a playbook entry, as
    original or result of a suggestion, or as their successor. Whole groups are returned, and the changes that depend on
    those in turn, so that all of them can be undone together. No change depends on a row that still has the version
    that ``changes`` left, and no row depends on them that has the version from before them again.

    ``changes`` are the ``seq`` of each change. Returns rows of ``id``, ``seq``, ``group_id``, ``operation``,
    ``changed_at``.
    """
    known, found = list(changes), list[Row[Any]]()
    while True:
        affected = connection.execute(text(_LIST_AFFECTED), {"known": known}).tuples().all()
        ids, seqs = zip(*affected, strict=True) if affected else ((), ())
        parameters = {"ids": list(ids), "seqs": list(seqs), "known": known}
        groups = connection.scalars(text(_LIST_LATER_GROUPS), parameters).all()
        new = connection.execute(text(_LIST_CHANGES_OF_GROUPS), {"groups": groups, "known": known}).all()
        if not new:
            return sorted(found, key=lambda row: row.seq)
        found += new
        known += [row.seq for row in new]


# An erasure leaves `erased` in the images of what it removed. Its own changes of what stayed are final too.
_LIST_ERASED = """
    SELECT c.seq FROM consolidation.consolidation_changes c
    WHERE c.seq = ANY(:changes) AND (c.operation = 'erase' OR EXISTS (
        SELECT 1 FROM consolidation.consolidation_changes e
        WHERE e.group_id = c.group_id AND (
            coalesce(e.previous_state ? 'erased', false) OR coalesce(e.new_state ? 'erased', false))))
"""


def list_erased(connection: Connection, changes: Sequence[int]) -> set[int]:
    """Return those of the changes, by ``seq``, that an erasure made or whose group it emptied a part of.

    They cannot be undone, as what they would bring back is gone for good.
    """
    return set(connection.scalars(text(_LIST_ERASED), {"changes": list(changes)}))


@dataclass(frozen=True)
class LedgerFilter:
    """Filter of the ledger; None = no limit.

    ``since`` is included, ``until`` is not. ``before``: only changes older than the one with this seq. ``ids``: only
    these changes.
    """

    operation: str | None = None
    job_id: UUID | None = None
    since: datetime | None = None
    until: datetime | None = None
    before: int | None = None
    group_id: UUID | None = None
    ids: Sequence[UUID] | None = None


_NO_FILTER = LedgerFilter()
_FILTERS = {
    "operation": "c.operation = :operation",
    "job_id": "c.job_id = :job_id",
    "since": "c.changed_at >= :since",
    "until": "c.changed_at < :until",
    "before": "c.seq < :before",
    "group_id": "c.group_id = :group_id",
    "ids": "c.id = ANY(CAST(:ids AS uuid[]))",
}


def _filtered(statement: str, where: LedgerFilter) -> str:
    """Return ``statement`` with the conditions of the filter."""
    given = [condition for name, condition in _FILTERS.items() if getattr(where, name) is not None]
    return compose(statement, filters=conditions(*given))


_LIST_CHANGES = """
    SELECT c.seq, c.id, c.job_id, c.group_id, c.operation, c.entity_type, c.entity_id, c.previous_state, c.new_state,
        c.version_before, c.version_after, c.reason, c.confidence, c.changed_by, c.changed_at, c.reverts_change_id,
        c.reverts_scope
    FROM consolidation.consolidation_changes c WHERE c.project_id = :project /* filters */
    ORDER BY c.seq DESC LIMIT :limit OFFSET :offset
"""


def list_changes(
    connection: Connection, project_id: UUID, *, limit: int, offset: int = 0, where: LedgerFilter = _NO_FILTER
) -> Sequence[Row[Any]]:
    """Return the changes of a project, newest first, images included."""
    parameters = {"project": project_id, "limit": limit, "offset": offset, **asdict(where)}
    return connection.execute(text(_filtered(_LIST_CHANGES, where)), parameters).all()


_COUNT_CHANGES = """
    SELECT count(*), count(DISTINCT c.group_id)
    FROM consolidation.consolidation_changes c WHERE c.project_id = :project /* filters */
"""


def count_changes(connection: Connection, project_id: UUID, *, where: LedgerFilter = _NO_FILTER) -> tuple[int, int]:
    """Count the rows of ``list_changes`` and of ``list_groups``."""
    parameters = {"project": project_id, **asdict(where)}
    changes, groups = connection.execute(text(_filtered(_COUNT_CHANGES, where)), parameters).one()
    return int(changes), int(groups)


_COUNT_ENTRIES = """
    SELECT count(DISTINCT entity_id) FROM consolidation.consolidation_changes
    WHERE group_id = :group AND entity_type = 'playbook_entries'
"""


def count_entries(connection: Connection, group_id: UUID) -> int:
    """Count the playbook entries that a group changed."""
    return int(connection.execute(text(_COUNT_ENTRIES), {"group": group_id}).scalar_one())


_COUNT_JOB_CHANGES = "SELECT count(*) FROM consolidation.consolidation_changes WHERE job_id = :job"
_LIST_JOB_CHANGES = """
    SELECT id FROM consolidation.consolidation_changes WHERE job_id = :job ORDER BY seq LIMIT :limit
"""


def list_job_changes(connection: Connection, job_id: UUID, *, limit: int) -> tuple[list[UUID], int]:
    """Return the ids of the oldest ``limit`` changes of a job, in order, and the number of all its changes."""
    total = connection.execute(text(_COUNT_JOB_CHANGES), {"job": job_id}).scalar_one()
    ids = connection.scalars(text(_LIST_JOB_CHANGES), {"job": job_id, "limit": limit})
    return list(ids), int(total)


_LIST_GROUPS = """
    SELECT c.group_id, (array_agg(c.job_id))[1] AS job_id, min(c.operation) AS operation, count(*) AS changes,
        max(c.changed_at) AS changed_at, min(c.reason) AS reason, max(c.confidence) AS confidence,
        min(c.changed_by) AS changed_by, bool_and(/* is_undone */) AS rolled_back
    FROM consolidation.consolidation_changes c WHERE c.project_id = :project /* filters */
    GROUP BY c.group_id ORDER BY max(c.seq) DESC LIMIT :limit OFFSET :offset
"""


def list_groups(
    connection: Connection, project_id: UUID, *, limit: int, offset: int = 0, where: LedgerFilter = _NO_FILTER
) -> Sequence[Row[Any]]:
    """Return the change groups of a project, newest first: operation, number of changes, and if it was undone."""
    statement = compose(_filtered(_LIST_GROUPS, where), is_undone=IS_UNDONE)
    parameters = {"project": project_id, "limit": limit, "offset": offset, **asdict(where)}
    return connection.execute(text(statement), parameters).all()
