"""Audit retention: remove old changes from the ledger of each project."""

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
from consolidation_pipeline.store.memories.votes import delete_expired_votes
from consolidation_pipeline.store.projects import list_projects

# Shortest retention. The database also refuses to remove younger changes.
MIN_LEDGER_DAYS = 90


@dataclass(frozen=True)
class LedgerRemoval:
    """Removal from the ledger of one project. ``record``: the change that records it, with ``summary``."""

    project: str
    record: UUID
    summary: Mapping[str, Any]


@dataclass(frozen=True)
class RetentionResult:
    """Result of audit retention. ``busy``: projects that were skipped, as a run or rollback held them."""

    removals: Sequence[LedgerRemoval]
    busy: Sequence[str]

    @property
    def changes(self) -> int:
        """Number of all removed changes."""
        return sum(removal.summary["changes"] for removal in self.removals)


def remove_expired_changes(
    engine: Engine, *, settings: Settings, now: datetime, changed_by: str = "system"
) -> RetentionResult:
    """Remove changes older than the longest of ``audit_days``, ``rollback_days`` and 90 days from each ledger.

    Votes that are too old to count go with them.
    There is one transaction per project. It records the removal as a change of operation ``retention``, which is never
    removed. The ledgers of deleted projects follow the default options. If there is nothing to remove, nothing is
    written.
    """
    removals, busy = list[LedgerRemoval](), list[str]()
    for name, project_id, days in list(_list_retention_days(engine, settings)):
        try:
            with project_lock(engine, project_id, name, wait_seconds=0), engine.begin() as connection:
                before = now - timedelta(days=days)
                record = remove_changes(connection, project_id, before=before, days=days, changed_by=changed_by)
                delete_expired_votes(connection, project_id)
        except ProjectBusyError:
            busy.append(name)
            continue
        if record is not None:
            removals.append(LedgerRemoval(name, record.id, record.previous_state))
    return RetentionResult(removals, busy)


def _list_retention_days(engine: Engine, settings: Settings) -> Iterator[tuple[str, UUID, int]]:
    """Yield name, id and days of retention of every project, also of deleted ones that left a ledger."""
    with engine.connect() as connection:
        projects, deleted = list_projects(connection), list_deleted_projects(connection)
    for project in projects:
        yield project.slug, project.id, _retention_days(effective_options(project, settings))
    for project_id in deleted:
        yield f"deleted project {project_id}", project_id, _retention_days(ConsolidationOptions())


def _retention_days(options: ConsolidationOptions) -> int:
    return max(options.audit_days, options.rollback_days, MIN_LEDGER_DAYS)
