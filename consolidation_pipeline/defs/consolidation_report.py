"""Asset `consolidation_report`: summary of a run and of the project."""

import dagster as dg

from consolidation_pipeline.defs.archived_memories import archived_memories
from consolidation_pipeline.defs.asset_checks import Check, project_checks
from consolidation_pipeline.defs.asset_metadata import describe_table
from consolidation_pipeline.defs.partitions import projects
from consolidation_pipeline.defs.resources import ProjectRuns
from consolidation_pipeline.service.jobs.run_report import write_report
from consolidation_pipeline.store.admin.invariants import find_wrong_source_counts


@dg.asset(
    partitions_def=projects,
    deps=[archived_memories],
    group_name="lifecycle",
    kinds={"python", "markdown"},
    owners=["team:memory"],
    code_version="1",
    metadata=describe_table("consolidation_jobs"),
)
def consolidation_report(
    context: dg.AssetExecutionContext, project_runs: dg.ResourceParam[ProjectRuns]
) -> dg.MaterializeResult[None]:
    """Report counts, reduction, cost and open reviews, as Markdown here and as metrics of the job."""
    run = project_runs.open(context.partition_key)
    with run.phase("consolidation_report") as phase:
        report = write_report(run)
        phase.metrics = report.metrics
    numbers = {name: value for name, value in report.metrics.items() if isinstance(value, int | float)}
    return dg.MaterializeResult(metadata={**numbers, "report": dg.MetadataValue.md(report.markdown)})


consolidation_report_checks = project_checks(
    consolidation_report,
    Check(
        "sources_add_up",
        find_wrong_source_counts,
        "The source count of every merged memory equals the number of memories merged into it.",
        blocking=False,
    ),
)
