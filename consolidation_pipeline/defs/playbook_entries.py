"""What agents read before they start work."""

import dagster as dg

from consolidation_pipeline.defs.asset_checks import Check, project_checks
from consolidation_pipeline.defs.asset_metadata import describe_table
from consolidation_pipeline.defs.partitions import projects
from consolidation_pipeline.defs.principles import principles
from consolidation_pipeline.defs.resources import ProjectRuns
from consolidation_pipeline.service.playbook.entries import (
    describe_promotion,
    read_playbook,
    to_markdown,
    update_playbook,
)
from consolidation_pipeline.store.admin.invariants import (
    find_foreign_support,
    find_low_priorities,
    find_repeated_entries,
    find_unsupported_entries,
)

# Entries in the picture that the UI shows; the command line has all of them.
_SHOWN = 50


@dg.asset(
    partitions_def=projects,
    deps=[principles],
    group_name="knowledge",
    kinds={"python", "postgres"},
    owners=["team:memory"],
    code_version="1",
    metadata=describe_table("playbook_entries"),
)
def playbook_entries(
    context: dg.AssetExecutionContext, project_runs: dg.ResourceParam[ProjectRuns]
) -> dg.MaterializeResult[None]:
    """Instructions for agents, from the surest patterns and principles; the less sure ones wait for a person."""
    run = project_runs.open(context.partition_key)
    with run.phase("playbook_entries") as phase:
        done = update_playbook(run)
        phase.metrics = describe_promotion(done)
        phase.counters = {"memories_promoted": done.promoted}
    playbook = to_markdown(read_playbook(run.engine, run.project.slug, limit=_SHOWN))
    return dg.MaterializeResult(metadata={**phase.metrics, "playbook": dg.MetadataValue.md(playbook)})


playbook_entries_checks = project_checks(
    playbook_entries,
    Check(
        "every_entry_has_evidence",
        find_unsupported_entries,
        "At least three memories bear out every active entry.",
    ),
    Check(
        "evidence_is_of_the_project",
        find_foreign_support,
        "What bears out an entry are memories of its project.",
    ),
    Check(
        "priority_follows_evidence",
        find_low_priorities,
        "No entry is less urgent than its confidence and evidence make it.",
    ),
    Check(
        "one_entry_per_source",
        find_repeated_entries,
        "No two active entries stand for one pattern or principle.",
    ),
)
