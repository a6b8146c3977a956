"""Asset `consolidation_report`: summary of a run and of the project."""

from typing import Any

import dagster as dg

from consolidation_pipeline.defs.archived_memories import archived_memories
from consolidation_pipeline.defs.asset_checks import project_checks
from consolidation_pipeline.defs.phase_asset import phase_asset
from consolidation_pipeline.service.jobs.run_report import write_report
from consolidation_pipeline.service.runs.project_run import PhaseResult, ProjectRun
from consolidation_pipeline.store.checks.merged_memories import SOURCES_ADD_UP


@phase_asset("lifecycle", table="consolidation_jobs", deps=[archived_memories], kinds=frozenset({"python", "markdown"}))
def consolidation_report(run: ProjectRun, phase: PhaseResult) -> dict[str, Any]:
    """Report counts, reduction, cost and open reviews, as Markdown here and as metrics of the job."""
    report = write_report(run)
    phase.metrics = report.metrics
    return {"report": dg.MetadataValue.md(report.markdown)}


consolidation_report_checks = project_checks(
    consolidation_report,
    SOURCES_ADD_UP,
)
