"""Asset `decay_scores`: current relevance of each memory."""

from datetime import timedelta
from itertools import pairwise
from typing import Any

import dagster as dg

from consolidation_pipeline.defs.asset_checks import project_checks
from consolidation_pipeline.defs.asset_metadata import build_table
from consolidation_pipeline.defs.phase_asset import phase_asset
from consolidation_pipeline.defs.principles import principles
from consolidation_pipeline.service.lifecycle.decay import HISTOGRAM_BINS, DecayResult, score_relevance
from consolidation_pipeline.service.runs.project_run import PhaseResult, ProjectRun
from consolidation_pipeline.store.checks.memories import RELEVANCE_IS_POSITIVE

_QUARTILES = ("relevance_min", "relevance_q1", "relevance_median", "relevance_q3", "relevance_max")


# `daily_decay`, an hour late, and two days late.
_FRESHNESS = dg.FreshnessPolicy.time_window(warn_window=timedelta(hours=25), fail_window=timedelta(hours=72))


@phase_asset("lifecycle", table="relevance_scores", deps=[principles], freshness=_FRESHNESS)
def decay_scores(run: ProjectRun, phase: PhaseResult) -> dict[str, Any]:
    """Score the relevance of every active memory from its age, access, importance and relations."""
    result = score_relevance(run)
    phase.metrics = {
        "memories_in": result.scored,
        "scores_written": result.written,
        **dict(zip(_QUARTILES, result.spread or (), strict=False)),
    }
    return {"as_of": result.as_of.isoformat(), "relevance_histogram": _histogram_table(result)}


def _histogram_table(result: DecayResult) -> dg.TableMetadataValue:
    ranges = [*(f"{low:g} to {high:g}" for low, high in pairwise(HISTOGRAM_BINS)), f"{HISTOGRAM_BINS[-1]:g} and more"]
    return build_table({"relevance": "string", "memories": "int"}, zip(ranges, result.histogram, strict=True))


decay_scores_checks = project_checks(
    decay_scores,
    RELEVANCE_IS_POSITIVE,
)
