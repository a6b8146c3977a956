"""Promotion of a shadow: its changes and options become the project's, as one job that one rollback undoes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from consolidation_pipeline.core.memory_tests.memory_test import MemoryTest
from consolidation_pipeline.errors import ConflictError, UsageError
from consolidation_pipeline.service.admin.projects import merge_config
from consolidation_pipeline.service.memory_tests.evaluation import MemoryTestResult, create_query_embedder, evaluate
from consolidation_pipeline.service.runs.effective_options import effective_options
from consolidation_pipeline.service.runs.run_lifecycle import get_runnable_project, hold_project
from consolidation_pipeline.service.shadow.shadows import DEFAULT_NAME, open_complete
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Connection, Engine, Row
from consolidation_pipeline.store.jobs.event_outbox import append_event
from consolidation_pipeline.store.ledger.active_keys import lock_active_keys, reject_duplicates
from consolidation_pipeline.store.ledger.ledger_writer import Author
from consolidation_pipeline.store.projects import Project, configure_project, get_project
from consolidation_pipeline.store.review.memory_tests import load_memory_tests
from consolidation_pipeline.store.shadow import promotion as store

_SHOWN_CONFLICTS = 5


@dataclass(frozen=True)
class Promotion:
    """Result of a promotion.

    Attributes:
        promoted: False if it was only tried, and rolled back.
        job_id: Job of the changes; to roll it back undoes all of them and switches the options back.
        options: Options that the project has now.
        new_memories: Number of memories that came since the snapshot; the next run consolidates them.
    """

    project: str
    name: str
    promoted: bool
    job_id: UUID
    changes: int
    options: dict[str, Any]
    new_memories: int


def promote(
    engine: Engine,
    slug: str,
    name: str = DEFAULT_NAME,
    *,
    settings: Settings,
    promoted_by: str,
    confirmed: bool = True,
) -> Promotion:
    """Make the changes of a shadow in its project, exactly as its report shows, or none of them.

    Args:
        confirmed: False: do all of it, tell what was done, and roll it back.

    Raises:
        NotFoundError: There is no such project or shadow.
        UsageError: The shadow has another embedding model than the project or changes no row, or an option is not
            allowed any more.
        ConflictError: Rows of the project changed since the snapshot, its run is not complete, it was promoted before,
            or memory tests that pass now would fail. ``conflicts`` are the rows.
        ProjectBusyError: A run or a rollback holds the project.
    """
    project = get_runnable_project(engine, slug)
    shadow_engine, report, seq = open_complete(engine, slug, name)
    if "embedding_model" in report.options:
        raise UsageError(
            "a shadow with another embedding_model is not promoted, as its vectors are not copied: change it with "
            f"`{report.next_step[1]}`"
        )
    if not report.changes:
        raise UsageError(f"the shadow {name} of {slug} changes no row: set its options by `{report.next_step[1]}`")
    with (
        hold_project(engine, project),
        shadow_engine.connect() as shadow,
        engine.connect() as connection,
        connection.begin() as transaction,
    ):
        lock_active_keys(connection, [project.id])
        project = get_project(connection, slug)
        if store.is_promoted(connection, report.job_id):
            raise ConflictError(
                f"the shadow {name} of {slug} was promoted before, as job {report.job_id}", (str(report.job_id),)
            )
        _reject_later_changes(connection, shadow, project, name, seq)
        tests = [one.test for one in load_memory_tests(connection, project.id) if one.enabled]
        passing = [one.test for one in _evaluate(connection, project, tests, settings) if one.passed]
        config = merge_config(project, report.options, settings=settings)
        before = {key: project.config[key] for key in report.options if key in project.config}
        scope = {"job": "consolidate", "shadow": {"name": name, "options": report.options, "options_before": before}}
        store.append_promoted_job(connection, shadow, report.job_id, scope=scope, promoted_by=promoted_by)
        author = Author(project.id, report.job_id, promoted_by)
        changes = store.carry_out_shadow(connection, shadow, author, seq=seq, snapshot_at=report.snapshot_at)
        reject_duplicates(connection, project.id, store.list_groups(shadow, seq=seq))
        configure_project(connection, slug, config=config, consolidation_enabled=project.consolidation_enabled)
        _reject_broken_tests(_evaluate(connection, get_project(connection, slug), passing, settings), slug, name)
        append_event(connection, project.id, "consolidation.completed", {"job_id": str(report.job_id), "error": None})
        new = store.count_new_memories(connection, shadow, project.id)
        if not confirmed:
            transaction.rollback()
    return Promotion(slug, name, confirmed, report.job_id, changes, report.options, new)


def _evaluate(
    connection: Connection, project: Project, tests: Sequence[MemoryTest], settings: Settings
) -> list[MemoryTestResult]:
    """Return the results of memory tests on what ``connection`` sees."""
    options = effective_options(project, settings)
    embed = create_query_embedder(connection.engine, project, options)
    return evaluate(connection, project, tests, options=options, embed=embed)


def _reject_broken_tests(results: Sequence[MemoryTestResult], slug: str, name: str) -> None:
    """Raise ConflictError if a memory test fails."""
    broken = [f"{one.test.name}: {one.reason}" for one in results if not one.passed]
    if broken:
        raise ConflictError(f"memory tests of {slug} would fail with the shadow {name}: {'; '.join(broken)}")


def _reject_later_changes(connection: Connection, shadow: Connection, project: Project, name: str, seq: int) -> None:
    """Raise ConflictError if a row of the project changed since the snapshot."""
    changed, removed = store.list_later_changes(connection, shadow, project.id, seq=seq)
    rows = [*changed, *removed]
    if rows:
        raise ConflictError(
            f"{len(rows)} rows of {project.slug} changed since the snapshot of the shadow {name}: "
            f"{_list_rows(rows)}; --drop the shadow and run it again",
            tuple(str(row.entity_id) for row in rows),
        )


def _list_rows(rows: Sequence[Row[Any]]) -> str:
    shown = [
        f"{row.operation} of {row.entity_id} ({row.entity_type}) by {row.changed_by}" for row in rows[:_SHOWN_CONFLICTS]
    ]
    more = f"; and {len(rows) - _SHOWN_CONFLICTS} more" if len(rows) > _SHOWN_CONFLICTS else ""
    return "; ".join(shown) + more
