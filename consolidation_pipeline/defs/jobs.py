"""Asset jobs: the assets that run together for a project."""

from functools import reduce
from operator import or_
from typing import Any

import dagster as dg

from consolidation_pipeline.defs.names import prefixed
from consolidation_pipeline.defs.phase_asset import PHASE_TAG
from consolidation_pipeline.service.runs.phases import JOB_PHASES


def _define_job(name: str, description: str) -> Any:
    # By tag and not by key: a component may give the assets another prefix.
    selection = reduce(or_, (dg.AssetSelection.tag(PHASE_TAG, phase) for phase in JOB_PHASES[name]))
    return dg.define_asset_job(prefixed(name), selection=selection, description=f"{description}. For one project.")


consolidate = _define_job(
    "consolidate", "Embed, compare, group, merge, derive, promote, summarize, score, archive and report"
)
decay = _define_job("decay", "Score the relevance of every active memory")
associate = _define_job("associate", "Find relations in a sample of memories")
forget = _define_job("forget", "Score relevance, then archive irrelevant memories that no rule protects")
summarize = _define_job("summarize", "Summarize memories without a summary, and update the profiles of working habits")
reembed = _define_job("reembed", "Embed memories without a vector of the current model, then compare and group again")

ASSET_JOBS = [consolidate, decay, associate, forget, summarize, reembed]
