"""Asset `task_memories`: raw memories that agents wrote. Observed, never produced here."""

import dagster as dg

from consolidation_pipeline.defs.asset_checks import Check, project_checks
from consolidation_pipeline.defs.asset_metadata import describe_table
from consolidation_pipeline.defs.partitions import projects
from consolidation_pipeline.store.admin.invariants import find_future_memories
from consolidation_pipeline.store.admin.project_counts import load_raw_versions
from consolidation_pipeline.store.database.engine import Engine


@dg.observable_source_asset(
    partitions_def=projects,
    group_name="memories",
    description="Raw memories that agents wrote, one partition per project; their content is immutable.",
    tags={"dagster/kind/postgres": ""},
    metadata=describe_table("task_memories"),
)
def task_memories(store: dg.ResourceParam[Engine]) -> dg.DataVersionsByPartition:
    """Return a data version per project, which changes when a memory is added, archived or restored."""
    with store.connect() as connection:
        return dg.DataVersionsByPartition(load_raw_versions(connection))


task_memories_checks = project_checks(
    task_memories,
    Check(
        "no_memory_is_from_the_future",
        find_future_memories,
        "No memory has a date in the future: its age would count as zero and its relevance would not decay.",
        blocking=False,
    ),
)
