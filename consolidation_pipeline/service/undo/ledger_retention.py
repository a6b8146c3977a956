"""Audit retention: how long the ledger of each project is kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from consolidation_pipeline.errors import ProjectBusyError
from consolidation_pipeline.options import ConsolidationOptions
from consolidation_pipeline.service.runs.effective_options import effective_options
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.jobs.project_lock import project_lock
from consolidation_pipeline.store.ledger.ledger_retention import list_deleted_projects, remove_changes
from consolidation_pipeline.store.projects import list_projects

# The ledger is never kept for less (data-model.md); the database refuses to remove younger changes too.
MIN_LEDGER_DAYS = 90


@dataclass(frozen=True)
class LedgerRemoval:
    """What went from the ledger of one project; ``record`` is the change that says so, ``summary`` what it says."""

    project: str
    record: UUID
    summary: Mapping[str, Any]


@dataclass(frozen=True)
class RetentionResult:
    """What was removed, and the projects that were skipped because a run or a rollback held them."""

    removals: Sequence[LedgerRemoval]
    busy: Sequence[str]

    @property
    def changes(self) -> int:
        """Changes removed in all."""
        return sum(removal.summary["changes"] for removal in self.removals)


def remove_expired_changes(
    engine: Engine, *, settings: Settings, now: datetime, changed_by: str = "system"
) -> RetentionResult:
    """Remove from each project's ledger what is older, as of ``now``, than its audit_days, rollback_days and 90 days.

    One transaction per project; its removal is recorded there as a change of operation retention, which stays. Deleted
    projects expire by the defaults. Nothing to remove: nothing is written.
    """
    removals, busy = list[LedgerRemoval](), list[str]()
    for name, project_id, days in list(_terms(engine, settings)):
        try:
            with project_lock(engine, project_id, name, wait_seconds=0), engine.begin() as connection:
                before = now - timedelta(days=days)
                record = remove_changes(connection, project_id, before=before, days=days, changed_by=changed_by)
        except ProjectBusyError:
            busy.append(name)
            continue
        if record is not None:
            removals.append(LedgerRemoval(name, record.id, record.previous_state))
    return RetentionResult(removals, busy)


def _terms(engine: Engine, settings: Settings) -> Iterator[tuple[str, UUID, int]]:
    """Name, id and days of every project that has a ledger; a deleted one is named by its id."""
    with engine.connect() as connection:
        projects, deleted = list_projects(connection), list_deleted_projects(connection)
    for project in projects:
        yield project.slug, project.id, _days(effective_options(project, settings))
    for project_id in deleted:
        yield f"deleted project {project_id}", project_id, _days(ConsolidationOptions())


def _days(options: ConsolidationOptions) -> int:
    return max(options.audit_days, options.rollback_days, MIN_LEDGER_DAYS)
