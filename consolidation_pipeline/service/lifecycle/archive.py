"""Archive phase of a run: archive unused memories by the policies, unless they are too many at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import numpy as np

from consolidation_pipeline.core.lifecycle.archive_policies import (
    FORGOTTEN,
    STALENESS,
    ArchivePlan,
    ArchivePolicies,
    explain_archives,
    plan_archives,
)
from consolidation_pipeline.service.memory_tests.gate import write_checked
from consolidation_pipeline.service.runs.archive_units import (
    are_too_many,
    get_policies,
    load_archive_units,
    load_candidates,
)
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.database.vector_copy import Ids, to_ids, to_uuids
from consolidation_pipeline.store.ledger.active_keys import lock_active_keys
from consolidation_pipeline.store.memories.archive import ArchiveCandidates, MemoryUpdate, archive_rows, find_archived
from consolidation_pipeline.store.memories.memories import lock_rows
from consolidation_pipeline.store.review.suggestions import supersede_stale

# Memories per transaction. A killed run has archived whole batches, and the next run archives the rest.
BATCH_ROWS = 5000


@dataclass(frozen=True)
class ArchiveResult:
    """Numbers of units, and of raw ``memories``.

    ``stale``, ``forgotten``: archived units, by reason. ``merged``: merged memories among them. ``memories``: the raw
    memories archived with them, each or behind a merged memory. ``held_back``: raw memories not archived, as the units
    are too many at once. ``changed``: units not archived, as they changed after the decision. ``superseded``: proposed
    merges that ended with their originals. ``active_after``: units still active.
    ``refused_by_tests``: units not archived, as that would break a memory test. ``archived_before``: units that
    the plan lists and that an earlier run has archived.
    """

    stale: int = 0
    forgotten: int = 0
    merged: int = 0
    memories: int = 0
    held_back: int = 0
    changed: int = 0
    superseded: int = 0
    active_after: int = 0
    refused_by_tests: int = 0
    archived_before: int = 0

    @property
    def counters(self) -> dict[str, int]:
        """Increments of the job's counter columns."""
        return {"memories_archived": self.memories}

    @property
    def units(self) -> int:
        """Number of archived raw and merged memories."""
        return self.stale + self.forgotten


def archive_memories(run: ProjectRun) -> ArchiveResult:
    """Archive the units that the policies select; in a run of a plan, only those that the plan lists.

    Without a plan, nothing is archived if it would be a larger share of the units than ``archive_max_share``. Each
    batch is checked again under lock: units that were used, pinned or changed meanwhile stay active.
    """
    policies = get_policies(run.options, run.job)
    with run.reading() as connection:
        ids, raw, units = load_archive_units(connection, run)
        planned = [UUID(id_) for id_ in run.plan.archives] if run.plan is not None else []
        before = len(find_archived(connection, planned)) if planned else 0
    rows = plan_archives(units, policies).rows
    if run.plan is not None:
        rows = rows[np.isin(ids[rows], to_ids(planned))]
    elif are_too_many(run, rows, units):
        return ArchiveResult(held_back=int(units.memories[rows].sum()), active_after=len(units))
    done, refused = Counter[str](), 0
    for table, table_rows in (("task_memories", rows[raw[rows]]), ("consolidated_memories", rows[~raw[rows]])):
        for start in range(0, len(table_rows), BATCH_ROWS):
            counts, left_out = _archive_batch(run, table, ids[table_rows[start : start + BATCH_ROWS]], policies)
            done.update(counts)
            refused += left_out
    archived = done[STALENESS] + done[FORGOTTEN]
    result = ArchiveResult(
        stale=done[STALENESS],
        forgotten=done[FORGOTTEN],
        merged=done["merged"],
        memories=done["memories"],
        changed=(len(rows) if run.plan is None else len(planned) - before) - archived - refused,
        superseded=done["superseded"],
        active_after=len(units) - archived,
        refused_by_tests=refused,
        archived_before=before,
    )
    run.archived += result.memories
    return result


def has_due_archives(connection: Connection, run: ProjectRun) -> bool:
    """Return True if the policies select any unit as of the run's time."""
    _, _, units = load_archive_units(connection, run)
    return bool(len(plan_archives(units, get_policies(run.options, run.job)).rows))


def build_archive_metrics(slug: str, done: ArchiveResult) -> dict[str, Any]:
    """Return the metrics of the phase and, if units were held back, how to archive them."""
    metrics: dict[str, Any] = {
        "memories_archived": done.memories,
        "units_archived": done.units,
        "archived_stale": done.stale,
        "archived_forgotten": done.forgotten,
        "merged_archived": done.merged,
        "changed_meanwhile": done.changed,
        "suggestions_superseded": done.superseded,
        "held_back": done.held_back,
        "active_after": done.active_after,
        **({"refused_by_tests": done.refused_by_tests} if done.refused_by_tests else {}),
        **({"archived_before": done.archived_before} if done.archived_before else {}),
    }
    return metrics | ({"to_archive_them": explain_how_to_archive(slug)} if done.held_back else {})


def explain_how_to_archive(slug: str) -> str:
    """Return the advice how to archive units that a run held back."""
    return f"`consolidation run {slug} --plan FILE` with a reviewed plan, or a higher archive_max_share"


def _archive_batch(run: ProjectRun, table: str, ids: Ids, policies: ArchivePolicies) -> tuple[Counter[str], int]:
    """Archive the units of ``ids`` that the policies still select, and whose archiving breaks no memory test.

    The policies are applied again under lock, as a use of a unit does not change its version.

    Returns:
        The numbers of ``ArchiveResult`` by name, and how many units memory tests refused.
    """

    def archive(connection: Connection, ids: Sequence[UUID]) -> dict[str, int]:
        return archive_units(connection, run, table, to_ids(ids), policies)

    written, refused = write_checked(run, "archived_memories", to_uuids(ids), archive, lambda id_: [id_])
    counts = Counter[str]()
    for numbers in written:
        counts.update(numbers)
    return counts, len(refused)


def archive_units(
    connection: Connection, run: ProjectRun, table: str, ids: Ids, policies: ArchivePolicies
) -> dict[str, int]:
    """Archive units under lock, in the transaction of ``connection``; return the numbers of ``ArchiveResult``."""
    lock_active_keys(connection, [run.project.id])
    lock_rows(connection, table, "id = ANY(:ids)", {"ids": to_uuids(ids)})
    candidates = load_candidates(connection, run, table, ids)
    plan = plan_archives(candidates.units, policies)
    archive_rows(connection, run.author, table, _build_updates(candidates, plan), at=run.now)
    superseded = supersede_stale(connection, run.author, scope=run.options.scope)
    merged = len(plan) if table == "consolidated_memories" else 0
    memories = int(candidates.units.memories[plan.rows].sum())
    return {**Counter(plan.reasons.tolist()), "merged": merged, "memories": memories, "superseded": superseded}


def _build_updates(candidates: ArchiveCandidates, plan: ArchivePlan) -> list[MemoryUpdate]:
    ids, versions = to_uuids(candidates.ids[plan.rows]), candidates.versions[plan.rows].tolist()
    rows = zip(ids, versions, explain_archives(candidates.units, plan), plan.reasons.tolist(), strict=True)
    return [MemoryUpdate(id_, version, uuid4(), reason, policy) for id_, version, reason, policy in rows]
