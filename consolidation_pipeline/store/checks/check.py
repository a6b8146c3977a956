"""Checks of the rows of a project, and what they look at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, text

from consolidation_pipeline.store.database.sql import compose, conditions

# Returns the rows of a project that break a rule, as text.
FindViolations = Callable[..., Sequence[str]]


@dataclass(frozen=True)
class Check:
    """Rule that holds for a project if ``find(connection, project_id)`` returns nothing.

    ``name`` and ``description``: in Dagster and in reports of runs. ``blocking``: a failure stops the assets that
    depend on the one that is checked. Set to False if they cannot spread the error. ``by_ledger``: ``find`` takes
    ``jobs`` too, and looks only at rows that may have changed.
    """

    name: str
    find: FindViolations
    description: str
    blocking: bool = True
    by_ledger: bool = False


def find_violations(
    check: Check, connection: Connection, project_id: UUID, jobs: Sequence[UUID] | None = None
) -> list[str]:
    """Return the rows that break a rule, as text; if the check can be limited, those that ``jobs`` may have changed."""
    limit = {"jobs": jobs} if check.by_ledger else {}
    return list(check.find(connection, project_id, **limit))


def select(statement: str, **bound: object) -> FindViolations:
    """Return a function that returns the rows of a statement."""

    def find(connection: Connection, project_id: UUID) -> list[str]:
        return list_rows(connection, project_id, statement, **bound)

    return find


def select_changed(statement: str, column: str) -> FindViolations:
    """Return a function that returns the rows of a statement, as ``list_changed_rows``."""

    def find(connection: Connection, project_id: UUID, jobs: Sequence[UUID] | None = None) -> list[str]:
        return list_changed_rows(connection, project_id, statement, column, jobs)

    return find


def list_rows(connection: Connection, project_id: UUID, statement: str, **bound: object) -> list[str]:
    """Return the rows of a statement as text."""
    rows = connection.execute(text(statement), {"project": project_id, **bound})
    return [" ".join(str(value) for value in row) for row in rows]


def is_memory(column: str) -> str:
    """Return the SQL condition that a column has the id of a memory of the project, raw or consolidated."""
    tables = ("task_memories", "consolidated_memories")
    own = (f"SELECT FROM consolidation.{table} WHERE id = {column} AND project_id = :project" for table in tables)
    return f"EXISTS ({' UNION ALL '.join(own)})"


# Most checks read small columns of all rows. Those that read texts, details or lineage may be limited to the rows that
# some ``jobs`` changed: all rows were checked before.
_CHANGED = "SELECT entity_id FROM consolidation.consolidation_changes WHERE job_id = ANY(:jobs)"


def list_changed_rows(
    connection: Connection, project_id: UUID, statement: str, column: str, jobs: Sequence[UUID] | None, **bound: object
) -> list[str]:
    """Return the rows of a statement as text; with ``jobs`` those whose ``column`` is the id of a row they changed."""
    statement, limit = limit_to_changes(statement, column, jobs)
    return list_rows(connection, project_id, statement, **bound, **limit)


def limit_to_changes(statement: str, column: str, jobs: Sequence[UUID] | None) -> tuple[str, dict[str, object]]:
    """Return ``statement`` for rows whose ``column`` is the id of a row that ``jobs`` changed, and its parameters."""
    if jobs is None:
        return compose(statement, changed=""), {}
    return compose(statement, changed=conditions(f"{column} IN ({_CHANGED})")), {"jobs": [*jobs]}


_LIST_JOBS_TO_CHECK = """
    SELECT array_agg(j.id)
    FROM consolidation.consolidation_jobs this JOIN consolidation.consolidation_jobs j USING (project_id)
    WHERE this.dagster_run_id = :run AND this.project_id = :project AND j.started_at <= this.started_at
        AND j.started_at > (
            SELECT max(started_at) FROM consolidation.consolidation_jobs
            WHERE project_id = :project AND status = 'completed' AND phases_completed @> :phases
                AND started_at >= date_trunc('week', this.started_at) AND started_at < this.started_at)
"""


def list_jobs_to_check(
    connection: Connection, project_id: UUID, run_id: str, phases: Sequence[str]
) -> list[UUID] | None:
    """Return the jobs whose changes the checks of a Dagster run look at; None if they look at all rows.

    They look at all rows in the first run of each week that completes all ``phases``, and outside of runs of a job.
    Else they look at what was changed since the last such run began, by this run and by those that failed.
    """
    bound = {"project": project_id, "run": run_id, "phases": list(phases)}
    jobs: list[UUID] | None = connection.execute(text(_LIST_JOBS_TO_CHECK), bound).scalar_one()
    return jobs
