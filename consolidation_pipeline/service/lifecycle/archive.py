"""Archive what nobody uses any more: the policies of a run, and the brake on them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import numpy.typing as npt

from consolidation_pipeline.core.lifecycle.archive_policies import (
    FORGOTTEN,
    STALENESS,
    ArchivePlan,
    Policies,
    Units,
    concatenate_units,
    exceeds_share,
    explain_archives,
    plan_archives,
)
from consolidation_pipeline.options import ConsolidationOptions
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.database.vector_copy import Ids, to_ids, to_uuids
from consolidation_pipeline.store.ledger.active_keys import lock_active_keys
from consolidation_pipeline.store.memories.archive import (
    ArchiveCandidates,
    MemoryUpdate,
    archive_rows,
    load_archive_candidates,
)
from consolidation_pipeline.store.memories.memories import lock_rows

# Memories per transaction: a run that is killed has archived whole batches, and the next one does the rest.
BATCH = 5000


@dataclass(frozen=True)
class Archived:
    """What a run archived: units by reason, the merged memories among them, and the raw memories behind those.

    ``held_back``: how many it left because they are too many to be archived unasked. ``changed``: how many it left
    because they changed after they had been judged. ``active_after``: units that are still active.
    """

    stale: int
    forgotten: int
    merged: int
    sources: int
    held_back: int
    changed: int
    active_after: int

    @property
    def units(self) -> int:
        """Raw and merged memories that were archived."""
        return self.stale + self.forgotten

    @property
    def raw_memories(self) -> int:
        """Raw memories that left the active and the consolidated ones, as ``count_raw`` counts them."""
        return self.units - self.merged + self.sources


def archive_memories(run: ProjectRun) -> Archived:
    """Archive what the policies in force take; of a run that carries out a plan, what stands in it and nothing else.

    All of it is left when it is more than a run may archive unasked. Each batch is judged again under lock: what was
    used, pinned or changed meanwhile stays as it is.
    """
    policies = policies_in_force(run.options, run.job)
    with run.engine.connect() as connection:
        ids, raw, units = load_units(connection, run)
    rows = plan_archives(units, policies).rows
    if run.plan is not None:
        rows = rows[np.isin(ids[rows], to_ids([UUID(id_) for id_ in run.plan.archives]))]
    elif exceeds_share(len(rows), len(units), max_share=run.options.archive_max_share):
        return Archived(0, 0, 0, 0, held_back=len(rows), changed=0, active_after=len(units))
    done = Counter[str]()
    for table, chosen in (("task_memories", rows[raw[rows]]), ("consolidated_memories", rows[~raw[rows]])):
        for start in range(0, len(chosen), BATCH):
            done.update(_archive_batch(run, table, ids[chosen[start : start + BATCH]], policies))
    stale, forgotten = done[STALENESS], done[FORGOTTEN]
    changed, left = len(rows) - stale - forgotten, len(units) - stale - forgotten
    archived = Archived(stale, forgotten, done["merged"], done["sources"], 0, changed, left)
    run.archived += archived.raw_memories
    return archived


def is_any_due(connection: Connection, run: ProjectRun) -> bool:
    """Whether the policies in force take any unit as of the run's instant."""
    _, _, units = load_units(connection, run)
    return bool(len(plan_archives(units, policies_in_force(run.options, run.job)).rows))


def describe_archived(slug: str, done: Archived) -> dict[str, Any]:
    """The numbers under their stable names and, where memories were held back, what to do about them."""
    metrics: dict[str, Any] = {
        "memories_archived": done.units,
        "archived_stale": done.stale,
        "archived_forgotten": done.forgotten,
        "merged_archived": done.merged,
        "sources_archived": done.sources,
        "changed_meanwhile": done.changed,
        "held_back": done.held_back,
        "active_after": done.active_after,
    }
    return metrics | ({"to_archive_them": how_to_archive(slug)} if done.held_back else {})


def how_to_archive(slug: str) -> str:
    """What archives memories that a run held back."""
    return f"`consolidation run {slug} --plan FILE` with a plan that was looked at, or a higher archive_max_share"


def policies_in_force(options: ConsolidationOptions, job: str) -> Policies:
    """The policies of a job by its name: staleness always, forgetting in the forget job alone, where switched on."""
    return Policies(
        staleness=options.archive,
        forgetting=options.forgetting and job == "forget",
        stale_days=options.archive_stale_days,
        min_reuse=options.archive_min_reuse,
        forget_threshold=options.forget_threshold,
    )


def load_units(connection: Connection, run: ProjectRun) -> tuple[Ids, npt.NDArray[np.bool_], Units]:
    """All units of the run's project as of its instant: ids ``S16`` (n,), which are raw memories (n,), what is judged.

    Raw memories come before merged ones, each by id.
    """
    raw, merged = (_load(connection, run, table) for table in ("task_memories", "consolidated_memories"))
    ids = np.concatenate([raw.ids, merged.ids])
    return ids, np.arange(len(ids)) < len(raw.ids), concatenate_units([raw.units, merged.units])


def _load(connection: Connection, run: ProjectRun, table: str, ids: Ids | None = None) -> ArchiveCandidates:
    restored_since = run.as_of - timedelta(days=run.options.archive_stale_days)
    return load_archive_candidates(
        connection, run.project.id, table, as_of=run.as_of, restored_since=restored_since, ids=ids
    )


def _archive_batch(run: ProjectRun, table: str, ids: Ids, policies: Policies) -> dict[str, int]:
    """Archive those of ``ids`` that the policies still take: uses are counted without a new version, so judge again.

    How many, by reason; how many merged memories, and sources of them.
    """
    with run.transaction() as connection:
        lock_active_keys(connection, [run.project.id])
        lock_rows(connection, table, "id = ANY(:ids)", {"ids": to_uuids(ids)})
        judged = _load(connection, run, table, ids)
        plan = plan_archives(judged.units, policies)
        archive_rows(connection, run.author, table, _marks(judged, plan), at=run.now)
    merged = len(plan) if table == "consolidated_memories" else 0
    sources = int(judged.sources[plan.rows].sum())
    return {**Counter(plan.reasons.tolist()), "merged": merged, "sources": sources}


def _marks(judged: ArchiveCandidates, plan: ArchivePlan) -> list[MemoryUpdate]:
    written = (
        to_uuids(judged.ids[plan.rows]),
        judged.versions[plan.rows].tolist(),
        explain_archives(judged.units, plan),
        plan.reasons.tolist(),
    )
    return [MemoryUpdate(id_, version, uuid4(), words, why) for id_, version, words, why in zip(*written, strict=True)]
