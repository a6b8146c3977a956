"""Decorator of assets that carry out one phase of a project's run."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dagster as dg

from consolidation_pipeline.defs.asset_metadata import describe_table
from consolidation_pipeline.defs.partitions import projects
from consolidation_pipeline.defs.resources import ProjectRuns
from consolidation_pipeline.service.runs.project_run import PhaseResult, ProjectRun

# Sets the metrics and counters of the phase. Returns metadata for the UI beside the metrics, or None.
PhaseFunction = Callable[[ProjectRun, PhaseResult], Mapping[str, Any] | None]


def phase_asset(
    group: str,
    *,
    table: str,
    deps: Sequence[dg.AssetsDefinition | dg.SourceAsset],
    code_version: str = "1",
    op_tags: Mapping[str, str] | None = None,
) -> Callable[[PhaseFunction], dg.AssetsDefinition]:
    """Return a decorator that makes an asset of a function. The phase has the name of the function.

    Args:
        table: table that the asset writes, for the catalog.
    """

    def decorate(work: PhaseFunction) -> dg.AssetsDefinition:
        name = work.__name__

        @dg.asset(
            name=name,
            description=inspect.getdoc(work),
            partitions_def=projects,
            deps=deps,
            group_name=group,
            kinds={"python", "postgres"},
            owners=["team:memory"],
            code_version=code_version,
            metadata=describe_table(table),
            op_tags=op_tags,
        )
        def asset(
            context: dg.AssetExecutionContext, project_runs: dg.ResourceParam[ProjectRuns]
        ) -> dg.MaterializeResult[None]:
            run = project_runs.open(context.partition_key)
            with run.phase(name) as phase:
                more = work(run, phase) or {}
            # Only now: the end of the phase has added its costs to the metrics.
            return dg.MaterializeResult(metadata={**phase.metrics, **more})

        return asset

    return decorate
