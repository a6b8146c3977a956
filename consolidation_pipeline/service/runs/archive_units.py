"""Units that the archive policies judge, and what a run archives of them.

The archive phase decides by it, and what comes before in a run leaves alone what that phase will take.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

import numpy as np
import numpy.typing as npt

from consolidation_pipeline.core.lifecycle.archive_policies import (
    ArchivePolicies,
    ArchiveUnits,
    exceeds_share,
    plan_archives,
)
from consolidation_pipeline.options import ConsolidationOptions
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.database.schema import MEMORY_TABLES
from consolidation_pipeline.store.database.vector_copy import Ids, to_uuids
from consolidation_pipeline.store.memories.archive import ArchiveCandidates, load_archive_candidates


def get_policies(options: ConsolidationOptions, job: str) -> ArchivePolicies:
    """Return the policies of a job; forgetting only in the job ``forget``."""
    return ArchivePolicies(
        staleness=options.archive,
        forgetting=options.forgetting and job == "forget",
        stale_days=options.archive_stale_days,
        min_reuse=options.archive_min_reuse,
        forget_threshold=options.forget_threshold,
    )


def are_too_many(run: ProjectRun, rows: npt.NDArray[np.intp], units: ArchiveUnits) -> bool:
    """Return True if the units at ``rows`` are more than a run without a plan archives."""
    return exceeds_share(len(rows), len(units), max_share=run.options.archive_max_share)


def load_archive_units(
    connection: Connection, run: ProjectRun, *, dissolved: Sequence[UUID] = ()
) -> tuple[Ids, npt.NDArray[np.bool_], ArchiveUnits]:
    """Return the units of the run's project as of its time, raw memories before merged ones, each by id.

    Args:
        dissolved: Merged memories that the run dissolves first; the memories behind them are units.

    Returns:
        Ids ``S16`` (n,), bool (n,) that is True for raw memories, and the units (n).
    """
    raw, merged = (load_candidates(connection, run, table, dissolved=dissolved) for table in MEMORY_TABLES)
    ids = np.concatenate([raw.ids, merged.ids])
    return ids, np.arange(len(ids)) < len(raw.ids), ArchiveUnits.concatenate([raw.units, merged.units])


def load_candidates(
    connection: Connection, run: ProjectRun, table: str, ids: Ids | None = None, *, dissolved: Sequence[UUID] = ()
) -> ArchiveCandidates:
    """Return the raw or merged memories of the run's project that a policy may archive, as ``load_archive_units``.

    ``table``: of these. ``ids``: S16 of those to load; None = all.
    """
    restored_since = run.as_of - timedelta(days=run.options.archive_stale_days)
    return load_archive_candidates(
        connection,
        run.project.id,
        table,
        as_of=run.as_of,
        restored_since=restored_since,
        ids=ids,
        dissolved=dissolved,
    )


def archives_memories(run: ProjectRun) -> bool:
    """Return True if the run has the archive phase, and a policy is on."""
    policies = get_policies(run.options, run.job)
    return "archived_memories" in run.planned and (policies.staleness or policies.forgetting)


def list_upcoming_archives(connection: Connection, run: ProjectRun) -> set[UUID]:
    """Return the units that the archive phase of a run without a plan will archive, if it has that phase."""
    if not archives_memories(run):
        return set()
    ids, _, units = load_archive_units(connection, run)
    return set(to_uuids(ids[select_upcoming(run, units)]))


def select_upcoming(run: ProjectRun, units: ArchiveUnits) -> npt.NDArray[np.intp]:
    """Return the positions of the units that the archive phase of a run without a plan takes."""
    rows = plan_archives(units, get_policies(run.options, run.job)).rows
    return rows[:0] if are_too_many(run, rows, units) else rows
