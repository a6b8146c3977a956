"""Decorator of assets that carry out one phase of a project's run."""

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dagster as dg

from consolidation_pipeline.defs.asset_metadata import describe_code, describe_table
from consolidation_pipeline.defs.names import PREFIX, prefixed
from consolidation_pipeline.defs.partitions import projects
from consolidation_pipeline.defs.resources import ConsolidationResource
from consolidation_pipeline.service.runs.phases import ALL_PHASES
from consolidation_pipeline.service.runs.project_run import PhaseResult, ProjectRun
from consolidation_pipeline.store.admin.asset_rows import count_rows

# Names the phase of an asset, whatever its key is.
PHASE_TAG = "consolidation/phase"

# Metrics of a phase that left work to the next run: why it stopped early, and why a model gave no text.
_WARNINGS = ("stopped", "llm/error")

# Sets the metrics and counters of the phase. Returns metadata for the UI beside the metrics, or None.
PhaseFunction = Callable[[ProjectRun, PhaseResult], Mapping[str, Any] | None]


def phase_asset(
    group: str,
    *,
    table: str,
    deps: Sequence[dg.AssetsDefinition | dg.AssetSpec],
    code_version: str = "1",
    kinds: frozenset[str] = frozenset({"python", "postgres"}),
    freshness: dg.FreshnessPolicy | None = None,
) -> Callable[[PhaseFunction], dg.AssetsDefinition]:
    """Return a decorator that makes an asset of a function. The phase has the name of the function.

    Args:
        table: table that the asset writes, for the catalog.
        freshness: how often a schedule materializes it; None = only when something has changed.
    """

    def decorate(work: PhaseFunction) -> dg.AssetsDefinition:
        name = work.__name__

        def materialize(
            context: dg.AssetExecutionContext, consolidation: ConsolidationResource
        ) -> dg.MaterializeResult[None]:
            slug, began = context.partition_key, time.monotonic()
            run = consolidation.open_run(slug)
            with run.phase(name) as phase:
                if run.unchanged is None:
                    more = work(run, phase) or {}
                else:
                    more, phase.metrics = {}, {"skipped": f"nothing has changed since job {run.unchanged.id}"}
            with run.reading() as connection:
                rows = count_rows(connection, run.project.id, name)
            log = context.log.warning if any(phase.metrics.get(key) for key in _WARNINGS) else context.log.info
            log(_describe_phase(name, slug, phase.metrics, time.monotonic() - began))
            # Only now: the end of the phase has added its costs to the metrics.
            return dg.MaterializeResult(metadata={**phase.metrics, **more, "dagster/partition_row_count": rows})

        # No backfill policy: with one, runs of a backfill have a range of partitions in place of the tag that checks
        # and limits of concurrency go by. Without one, each project gets a usual run.
        return dg.asset(
            key_prefix=PREFIX,
            name=name,
            description=inspect.getdoc(work),
            partitions_def=projects,
            deps=deps,
            group_name=prefixed(group),
            kinds=set(kinds),
            owners=["team:memory"],
            code_version=code_version,
            metadata=describe_table(table) | describe_code(work),
            tags={PHASE_TAG: name},
            # Assets that do not depend on each other run in the order of the phases, whichever of them are chosen: the
            # highest priority first. A dependency would skip the later asset when the earlier one fails.
            op_tags={"dagster/priority": str(-ALL_PHASES.index(name))},
            freshness_policy=freshness,
        )(materialize)

    return decorate


def _describe_phase(name: str, slug: str, metrics: Mapping[str, Any], seconds: float) -> str:
    """Return the line of a phase in the log of its run: its numbers, and why it stopped early or was skipped."""
    told = (f"{key} {value:g}" for key, value in metrics.items() if isinstance(value, int | float))
    reasons = (f"{key}: {metrics[key]}" for key in ("reason", "skipped", *_WARNINGS) if metrics.get(key))
    return f"{name} of {slug}: {', '.join([*told, *reasons]) or 'nothing to do'}; {seconds:.1f} s"
