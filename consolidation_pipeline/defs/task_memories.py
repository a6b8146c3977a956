"""Asset `task_memories`: raw memories that agents wrote. Observed by a sensor and by runs, never produced here."""

from collections.abc import Sequence

import dagster as dg

from consolidation_pipeline.defs.asset_checks import project_checks
from consolidation_pipeline.defs.asset_metadata import describe_table
from consolidation_pipeline.defs.names import asset_key, prefixed
from consolidation_pipeline.defs.partitions import projects
from consolidation_pipeline.store.admin.project_counts import RawVersion
from consolidation_pipeline.store.checks.memories import NO_MEMORY_IS_FROM_THE_FUTURE

task_memories = dg.AssetSpec(
    asset_key("task_memories"),
    description="Raw memories that agents wrote, one partition per project. No run changes their content; edits are in "
    "the ledger.",
    partitions_def=projects,
    group_name=prefixed("memories"),
    owners=["team:memory"],
    kinds={"postgres"},
    metadata=describe_table("task_memories"),
)


def build_observations(key: dg.AssetKey, versions: Sequence[RawVersion]) -> list[dg.AssetObservation]:
    """Return an observation of the raw memories of each project. Their version changes with every change of theirs."""
    return [
        dg.AssetObservation(
            key,
            partition=found.slug,
            metadata={"dagster/partition_row_count": found.memories},
            tags={"dagster/data_version": found.version},
        )
        for found in versions
    ]


task_memories_checks = project_checks(
    task_memories,
    NO_MEMORY_IS_FROM_THE_FUTURE,
)
