"""Promotion of a shadow: what changed in the project since the snapshot, and the shadow's changes carried out in it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, text

from consolidation_pipeline.store.ledger.ledger_writer import Author
from consolidation_pipeline.store.ledger.revert import CHANGE_COLUMNS, STAGED, carry_out_changes
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline.store.shadow.snapshot import copy_query

_LIST_SEQS = "SELECT seq FROM consolidation.consolidation_changes WHERE project_id = :project AND seq <= :until"
_LIST_CHANGES = """
    SELECT DISTINCT ON (entity_id) entity_type, entity_id, operation, changed_by, changed_at
    FROM consolidation.consolidation_changes WHERE seq = ANY(:seqs) ORDER BY entity_id, seq DESC
"""
_LAST_SEQ = 2**63 - 1


def list_later_changes(
    connection: Connection, shadow: Connection, project_id: UUID, *, seq: int
) -> tuple[Sequence[Row[Any]], Sequence[Row[Any]]]:
    """Return the rows of the project that the ledger changed since the snapshot, each with its newest change.

    Then the rows whose changes the snapshot has and the ledger no longer: they were erased, or have expired.

    Args:
        seq: the last change of the snapshot. A transaction that was open then may have committed a lower one since.
    """
    live = set(connection.scalars(text(_LIST_SEQS), {"project": project_id, "until": _LAST_SEQ}))
    known = set(shadow.scalars(text(_LIST_SEQS), {"project": project_id, "until": seq}))
    added = connection.execute(text(_LIST_CHANGES), {"seqs": sorted(live - known)}).all()
    return added, shadow.execute(text(_LIST_CHANGES), {"seqs": sorted(known - live)}).all()


_COUNT_OPERATIONS = """
    SELECT operation, count(*) FROM consolidation.consolidation_changes WHERE seq > :seq GROUP BY 1 ORDER BY 1
"""
_LIST_GROUPS = "SELECT DISTINCT group_id FROM consolidation.consolidation_changes WHERE seq > :seq"
_LIST_JOBS = "SELECT DISTINCT job_id FROM consolidation.consolidation_changes WHERE seq > :seq AND job_id IS NOT NULL"


def count_operations(shadow: Connection, *, seq: int) -> dict[str, int]:
    """Return the number of the shadow's changes by operation."""
    return dict(shadow.execute(text(_COUNT_OPERATIONS), {"seq": seq}).tuples().all())


_COUNT_UNKNOWN = """
    SELECT count(*) FROM consolidation.task_memories WHERE project_id = :project AND NOT (id = ANY(:known))
"""
_LIST_RAW_IDS = "SELECT id FROM consolidation.task_memories WHERE project_id = :project"


def count_new_memories(connection: Connection, shadow: Connection, project_id: UUID) -> int:
    """Return the number of raw memories of the project that the snapshot does not have."""
    known = shadow.scalars(text(_LIST_RAW_IDS), {"project": project_id}).all()
    return int(connection.execute(text(_COUNT_UNKNOWN), {"project": project_id, "known": known}).scalar_one())


# The numbers of the run are those of the shadow's. Its fingerprint is not: caches are not promoted.
_APPEND_JOB = """
    INSERT INTO consolidation.consolidation_jobs
    SELECT j.* FROM jsonb_populate_record(NULL::consolidation.consolidation_jobs, CAST(:job AS jsonb)) j
"""
_READ_JOB = "SELECT to_jsonb(j) FROM consolidation.consolidation_jobs j WHERE id = :job"
_HAS_JOB = "SELECT EXISTS (SELECT FROM consolidation.consolidation_jobs WHERE id = :job)"


def is_promoted(connection: Connection, job_id: UUID) -> bool:
    """Return True if the project has the job of a shadow, so that the shadow was promoted before."""
    return bool(connection.execute(text(_HAS_JOB), {"job": job_id}).scalar())


def append_promoted_job(
    connection: Connection, shadow: Connection, job_id: UUID, *, scope: Mapping[str, Any], promoted_by: str
) -> None:
    """Give the project the job of a shadow, with its id and numbers, as of now; ``as_of`` is when the shadow ran."""
    job: dict[str, Any] = shadow.execute(text(_READ_JOB), {"job": job_id}).scalar_one()
    now = connection.execute(text("SELECT to_jsonb(now())")).scalar_one()
    job["metrics"].pop("state", None)
    job["metrics"]["as_of"] = job["started_at"]
    job |= {"scope": dict(scope), "triggered_by": promoted_by, "trigger_type": "manual", "dagster_run_id": None}
    job |= {"created_at": now, "started_at": now, "completed_at": now}
    connection.execute(text(_APPEND_JOB), {"job": json.dumps(job)})


_CALL_COLUMNS = """
    id, project_id, job_id, purpose, model, prompt_hash, status, attempt, prompt_tokens, completion_tokens,
    reserved_usd, cost_usd, response, error_message, created_at, settled_at
"""


def carry_out_shadow(
    connection: Connection, shadow: Connection, author: Author, *, seq: int, snapshot_at: datetime
) -> int:
    """Carry out the changes of a shadow in its project, and take over its model calls; return the number of changes.

    Raises:
        ConflictError: A row is not as the shadow found it, or a row that it references is gone.
    """
    columns = ", ".join(CHANGE_COLUMNS)
    query = f"SELECT {columns} FROM consolidation.consolidation_changes WHERE seq > {int(seq)} ORDER BY seq"
    jobs = [str(job) for job in shadow.scalars(text(_LIST_JOBS), {"seq": seq}) if job != author.job_id]
    fill = partial(copy_query, shadow, query, connection, f"{STAGED} ({columns})")
    count = carry_out_changes(connection, author, fill, jobs=jobs)
    columns = _CALL_COLUMNS.replace("job_id", f"'{author.job_id}'::uuid AS job_id")
    query = f"SELECT {columns} FROM consolidation.llm_calls WHERE created_at > '{snapshot_at}'"
    copy_query(shadow, query, connection, f"consolidation.llm_calls ({_CALL_COLUMNS})")
    return count


def list_groups(shadow: Connection, *, seq: int) -> Sequence[UUID]:
    """Return the groups of the shadow's changes."""
    return shadow.scalars(text(_LIST_GROUPS), {"seq": seq}).all()


_FIND_PROMOTION = """
    WITH RECURSIVE chain AS (
        SELECT job_id, reverts_change_id, 0 AS turns FROM consolidation.consolidation_changes WHERE seq = :seq
        UNION ALL
        SELECT c.job_id, c.reverts_change_id, chain.turns + 1
        FROM consolidation.consolidation_changes c JOIN chain ON c.id = chain.reverts_change_id)
    SELECT j.scope -> 'shadow' AS promoted, mod(chain.turns, 2) = 1 AS is_redone
    FROM chain JOIN consolidation.consolidation_jobs j ON j.id = chain.job_id WHERE j.scope ? 'shadow'
    ORDER BY chain.turns DESC LIMIT 1
"""
_SET_OPTIONS = """
    UPDATE consolidation.projects SET config = CAST(:config AS jsonb), updated_at = now() WHERE id = :project
"""


def set_options(
    connection: Connection, project: Project, given: Mapping[str, Any], *, instead: Mapping[str, Any]
) -> None:
    """Set options of a project in place of those ``instead``. What was set to something else since stays."""
    kept = {name: value for name, value in project.config.items() if name not in instead or instead[name] != value}
    config = {**{name: value for name, value in given.items() if name not in kept}, **kept}
    connection.execute(text(_SET_OPTIONS), {"project": project.id, "config": json.dumps(config)})


def switch_options(connection: Connection, project: Project, *, seq: int) -> None:
    """Switch the options of a promotion back, or on again, with the undo of its job.

    Args:
        seq: a change that is undone; any other than one of a promotion, or its undo, has no effect.
    """
    row = connection.execute(text(_FIND_PROMOTION), {"seq": seq}).one_or_none()
    if row is not None:
        before, after = row.promoted["options_before"], row.promoted["options"]
        given, instead = (after, before) if row.is_redone else (before, after)
        set_options(connection, project, given, instead=instead)
