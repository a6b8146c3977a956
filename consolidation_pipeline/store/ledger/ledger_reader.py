"""Reading the ledger: what belongs to a change, a group or a job, and what has happened since."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, text

from consolidation_pipeline.store.ledger.row_references import REFERENCES
from consolidation_pipeline.store.projects import Project


@dataclass(frozen=True)
class Scope:
    """What an id names: the ``changes`` under it that are in force, by seq, and the ``age`` of the newest.

    ``kind``: group or job; that of a rollback is the kind of what it undid. ``operations``: what was done. Where
    nothing is in force any more, ``undone_by`` are the rollbacks that undid it.
    """

    kind: str
    project: Project
    operations: Sequence[str]
    changes: Sequence[int]
    undone_by: Sequence[UUID]
    age: timedelta


# A change alone would leave half a merge behind, so it stands for its group.
_NAMED = {
    "group": "c.group_id IN (SELECT group_id FROM consolidation.consolidation_changes WHERE id = :target UNION ALL SELECT :target)",
    "job": "c.job_id = :target",
}


def find_scope(connection: Connection, target: UUID) -> Scope | None:
    """The changes that ``target`` names and that are in force: as a change's group, as a group, or as a job.

    For a change that was rolled back and redone, the redoing one is given: undoing that undoes it again.
    """
    for kind, named in _NAMED.items():
        query = f"""
            WITH RECURSIVE fate AS (
                SELECT c.seq AS origin, c.id, c.seq, c.group_id, 0 AS turns FROM consolidation.consolidation_changes c WHERE {named}
                UNION ALL
                SELECT f.origin, r.id, r.seq, r.group_id, f.turns + 1
                FROM fate f JOIN consolidation.consolidation_changes r ON r.reverts_change_id = f.id),
            newest AS (SELECT DISTINCT ON (origin) origin, seq, group_id, turns FROM fate ORDER BY origin, turns DESC)
            SELECT p.id, p.slug, p.consolidation_enabled, p.config, now() - max(c.changed_at) AS age,
                min(c.reverts_scope) AS reverts_scope, array_agg(DISTINCT c.operation) AS operations,
                array_agg(n.seq ORDER BY n.seq) FILTER (WHERE n.turns % 2 = 0) AS open,
                array_agg(DISTINCT n.group_id) FILTER (WHERE n.turns % 2 = 1) AS undone_by
            FROM newest n JOIN consolidation.consolidation_changes c ON c.seq = n.origin JOIN consolidation.projects p ON p.id = c.project_id
            GROUP BY p.id
        """
        row = connection.execute(text(query), {"target": target}).one_or_none()
        if row is not None:
            undone_by = [] if row.open else row.undone_by
            kind = row.reverts_scope or kind
            return Scope(kind, Project(*row[:4]), row.operations, row.open or [], undone_by, row.age)
    return None


def is_undoing(connection: Connection, seq: int) -> bool:
    """Whether a change is a rollback of what was in force, so that undoing it redoes something."""
    query = """
        WITH RECURSIVE undone AS (
            SELECT reverts_change_id AS id FROM consolidation.consolidation_changes WHERE seq = :seq
            UNION ALL
            SELECT c.reverts_change_id FROM consolidation.consolidation_changes c JOIN undone ON c.id = undone.id)
        SELECT count(id) % 2 = 1 FROM undone
    """
    return bool(connection.execute(text(query), {"seq": seq}).scalar_one())


# Undoing an undoing redoes: a change is undone when the chain of changes that undo it is of odd length.
UNDONE = """(
    WITH RECURSIVE fate AS (
        SELECT r.id FROM consolidation.consolidation_changes r WHERE r.reverts_change_id = c.id
        UNION ALL
        SELECT r.id FROM consolidation.consolidation_changes r JOIN fate f ON r.reverts_change_id = f.id)
    SELECT count(*) % 2 = 1 FROM fate)"""
# A change stands when nothing undid it and it does something, itself or as the redoing of another.
_STANDS = """
    NOT EXISTS (SELECT 1 FROM consolidation.consolidation_changes r WHERE r.reverts_change_id = c.id) AND (c.operation <> 'rollback' OR (
        WITH RECURSIVE undone AS (
            SELECT c.reverts_change_id AS id
            UNION ALL
            SELECT u.reverts_change_id FROM consolidation.consolidation_changes u JOIN undone ON u.id = undone.id)
        SELECT count(id) % 2 = 0 FROM undone))"""


# Rows whose later changes matter, each with the seq after which they do: rows that are, by their version, no longer in
# the state the changes left them in, and rows that name a memory which the changes made or reworded, unless they are in
# the state they were in when it was, at first or when that was redone: what was undone and redone since is no news.
_REACHED = f"""
    WITH RECURSIVE chosen AS (
        SELECT seq, entity_id, version_after, lead(seq) OVER w IS NULL AS is_last,
            lead(version_before) OVER w AS next_before,
            entity_type = 'consolidated_memories' AND new_state ? 'content' AS has_text
        FROM consolidation.consolidation_changes WHERE seq = ANY(:known) WINDOW w AS (PARTITION BY entity_id ORDER BY seq)),
    moved AS (
        SELECT c.entity_id, min(c.seq) FROM chosen c, LATERAL (SELECT version_after FROM consolidation.consolidation_changes
            WHERE entity_id = c.entity_id ORDER BY seq DESC LIMIT 1) n
        GROUP BY c.entity_id HAVING bool_or(
            c.version_after IS DISTINCT FROM CASE WHEN c.is_last THEN n.version_after ELSE c.next_before END)),
    told AS MATERIALIZED (SELECT entity_id AS id, min(seq) AS seq FROM chosen WHERE has_text GROUP BY 1),
    times AS (
        SELECT told.id, c.seq, c.reverts_change_id FROM told JOIN consolidation.consolidation_changes c ON c.seq = told.seq
        UNION ALL
        SELECT t.id, c.seq, c.reverts_change_id FROM times t JOIN consolidation.consolidation_changes undone ON undone.id = t.reverts_change_id
            JOIN consolidation.consolidation_changes c ON c.id = undone.reverts_change_id),
    naming AS MATERIALIZED (SELECT r.id, r.named, told.seq FROM ({REFERENCES}) r JOIN told ON told.id = r.named)
    SELECT * FROM moved UNION SELECT id, seq FROM naming n WHERE NOT EXISTS (
        SELECT 1 FROM times WHERE times.id = n.named AND
            (SELECT version_after FROM consolidation.consolidation_changes WHERE entity_id = n.id AND seq < times.seq ORDER BY seq DESC LIMIT 1)
            IS NOT DISTINCT FROM
            (SELECT version_after FROM consolidation.consolidation_changes WHERE entity_id = n.id ORDER BY seq DESC LIMIT 1))
"""
_LATER = f"""
    SELECT DISTINCT c.group_id FROM unnest(CAST(:ids AS uuid[]), CAST(:seqs AS bigint[])) AS reached(id, seq)
        JOIN consolidation.consolidation_changes c ON c.entity_id = reached.id AND c.seq > reached.seq
    WHERE c.seq <> ALL(CAST(:known AS bigint[])) AND {_STANDS}
"""
_STANDING = f"""
    SELECT c.id, c.seq, c.group_id, c.operation, c.changed_at FROM consolidation.consolidation_changes c
    WHERE c.group_id = ANY(CAST(:groups AS uuid[])) AND c.seq <> ALL(CAST(:known AS bigint[])) AND {_STANDS}
"""


def list_dependents(connection: Connection, changes: Sequence[int]) -> list[Row[Any]]:
    """Later changes that stand on what ``changes`` did, by seq: to the same rows, or to rows that name them.

    Rows name a merged memory, pattern or the like by lineage, as a relation, as the source or evidence of a playbook
    entry, as original or result of a suggestion, or as their successor. Whole groups, and what stands on those in turn,
    so that undoing all of it is consistent. Nothing stands on a row that is, by its version, in the state the changes
    left it in, and no row stands on them that is in the state they found it in, whatever was done and undone since.
    """
    known, found = list(changes), list[Row[Any]]()
    while True:
        reached = connection.execute(text(_REACHED), {"known": known}).tuples().all()
        ids, seqs = zip(*reached, strict=True) if reached else ((), ())
        parameters = {"ids": list(ids), "seqs": list(seqs), "known": known}
        groups = connection.scalars(text(_LATER), parameters).all()
        new = connection.execute(text(_STANDING), {"groups": groups, "known": known}).all()
        if not new:
            return sorted(found, key=lambda row: row.seq)
        found += new
        known += [row.seq for row in new]


@dataclass(frozen=True)
class Chosen:
    """What a reader narrows the ledger down to; None = everything. ``since`` is included, ``until`` is not.

    ``before``: changes older than the one with this seq. ``ids``: just these changes.
    """

    operation: str | None = None
    job_id: UUID | None = None
    since: datetime | None = None
    until: datetime | None = None
    before: int | None = None
    group_id: UUID | None = None
    ids: Sequence[UUID] | None = None


_EVERYTHING = Chosen()
_CHOSEN = (
    "c.project_id = :project AND (CAST(:operation AS text) IS NULL OR c.operation = :operation) "
    "AND (CAST(:job_id AS uuid) IS NULL OR c.job_id = :job_id) "
    "AND (CAST(:since AS timestamptz) IS NULL OR c.changed_at >= :since) "
    "AND (CAST(:until AS timestamptz) IS NULL OR c.changed_at < :until) "
    "AND (CAST(:before AS bigint) IS NULL OR c.seq < :before) "
    "AND (CAST(:group_id AS uuid) IS NULL OR c.group_id = :group_id) "
    "AND (CAST(:ids AS uuid[]) IS NULL OR c.id = ANY(CAST(:ids AS uuid[])))"
)


def list_changes(
    connection: Connection, project_id: UUID, *, limit: int, offset: int = 0, chosen: Chosen = _EVERYTHING
) -> Sequence[Row[Any]]:
    """The ledger of a project, newest first, images included."""
    return connection.execute(
        text(
            "SELECT c.seq, c.id, c.job_id, c.group_id, c.operation, c.entity_type, c.entity_id, c.previous_state, "
            "c.new_state, c.version_before, c.version_after, c.reason, c.confidence, c.changed_by, c.changed_at, "
            f"c.reverts_change_id, c.reverts_scope FROM consolidation.consolidation_changes c WHERE {_CHOSEN} "
            "ORDER BY seq DESC LIMIT :limit OFFSET :offset"
        ),
        {"project": project_id, "limit": limit, "offset": offset, **asdict(chosen)},
    ).all()


def count_changes(connection: Connection, project_id: UUID, *, chosen: Chosen = _EVERYTHING) -> tuple[int, int]:
    """How many rows ``list_changes`` and ``list_groups`` have without a limit."""
    query = f"SELECT count(*), count(DISTINCT group_id) FROM consolidation.consolidation_changes c WHERE {_CHOSEN}"
    changes, groups = connection.execute(text(query), {"project": project_id, **asdict(chosen)}).one()
    return int(changes), int(groups)


def count_entities(connection: Connection, group_id: UUID, entity_type: str) -> int:
    """How many rows of one table a group changed."""
    query = "SELECT count(DISTINCT entity_id) FROM consolidation.consolidation_changes WHERE group_id = :group AND entity_type = :type"
    return int(connection.execute(text(query), {"group": group_id, "type": entity_type}).scalar_one())


def list_job_changes(connection: Connection, job_id: UUID, *, limit: int) -> tuple[list[UUID], int]:
    """Ids of the oldest ``limit`` changes of a job, in order, and how many there are in all."""
    parameters = {"job": job_id, "limit": limit}
    total = connection.execute(
        text("SELECT count(*) FROM consolidation.consolidation_changes WHERE job_id = :job"), parameters
    ).scalar_one()
    query = "SELECT id FROM consolidation.consolidation_changes WHERE job_id = :job ORDER BY seq LIMIT :limit"
    return list(connection.execute(text(query), parameters).scalars()), int(total)


def list_groups(
    connection: Connection, project_id: UUID, *, limit: int, offset: int = 0, chosen: Chosen = _EVERYTHING
) -> Sequence[Row[Any]]:
    """Groups of changes, newest first: what was done, to how many rows, and whether it was undone since."""
    return connection.execute(
        text(
            "SELECT c.group_id, (array_agg(c.job_id))[1] AS job_id, min(c.operation) AS operation, "
            "count(*) AS changes, max(c.changed_at) AS changed_at, min(c.reason) AS reason, "
            f"max(c.confidence) AS confidence, min(c.changed_by) AS changed_by, bool_and({UNDONE}) AS rolled_back "
            f"FROM consolidation.consolidation_changes c WHERE {_CHOSEN} GROUP BY c.group_id ORDER BY max(c.seq) DESC "
            "LIMIT :limit OFFSET :offset"
        ),
        {"project": project_id, "limit": limit, "offset": offset, **asdict(chosen)},
    ).all()
