"""How relevant each memory still is."""

from itertools import pairwise

import dagster as dg

from consolidation_pipeline.defs.asset_checks import Check, project_checks
from consolidation_pipeline.defs.asset_metadata import AFTER_SUMMARIES, describe_table
from consolidation_pipeline.defs.associations import associations
from consolidation_pipeline.defs.partitions import projects
from consolidation_pipeline.defs.principles import principles
from consolidation_pipeline.defs.resources import ProjectRuns
from consolidation_pipeline.service.lifecycle.decay import BINS, Decay, score_relevance
from consolidation_pipeline.store.admin.invariants import find_unscored

_SPREAD = ("relevance_min", "relevance_q1", "relevance_median", "relevance_q3", "relevance_max")


@dg.asset(
    partitions_def=projects,
    deps=[principles, associations],
    group_name="lifecycle",
    kinds={"python", "postgres"},
    owners=["team:memory"],
    code_version="1",
    metadata=describe_table("task_memories"),
    op_tags=AFTER_SUMMARIES,
)
def decay_scores(
    context: dg.AssetExecutionContext, project_runs: dg.ResourceParam[ProjectRuns]
) -> dg.MaterializeResult[None]:
    """Relevance of every active memory as of the run: a pure function of age, access, importance and relations."""
    run = project_runs.open(context.partition_key)
    with run.phase("decay_scores") as phase:
        done = score_relevance(run)
        phase.metrics = {
            "memories_in": done.scored,
            "scores_written": done.written,
            **dict(zip(_SPREAD, done.spread or (), strict=False)),
        }
    histogram = dg.MetadataValue.md(_histogram(done))
    return dg.MaterializeResult(
        metadata={**phase.metrics, "as_of": done.as_of.isoformat(), "relevance_histogram": histogram}
    )


def _histogram(done: Decay) -> str:
    ranges = [*(f"{low:g} to {high:g}" for low, high in pairwise(BINS)), f"{BINS[-1]:g} and more"]
    lines = [f"| {name} | {count} |" for name, count in zip(ranges, done.histogram, strict=True)]
    return "\n".join(["| relevance | memories |", "|---|---|", *lines])


decay_scores_checks = project_checks(
    decay_scores,
    Check(
        "relevance_is_positive",
        find_unscored,
        "Every active memory has a positive, finite relevance.",
    ),
)
