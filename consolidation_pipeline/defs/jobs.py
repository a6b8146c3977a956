"""The jobs: what runs together for a project."""

from typing import Any

import dagster as dg

from consolidation_pipeline.service.runs.phases import JOB_PHASES


def _job(name: str, description: str) -> Any:
    selection = dg.AssetSelection.assets(*JOB_PHASES[name])
    return dg.define_asset_job(name, selection=selection, description=f"{description}, for one project.")


consolidate = _job("consolidate", "Embed, compare, group, merge, learn, promote, summarize, score, archive and report")
decay = _job("decay", "Score how relevant every active memory still is")
associate = _job("associate", "Draw a sample of memories and note how they relate")
forget = _job("forget", "Score, then archive what no longer matters and nothing protects")
summarize = _job("summarize", "Summarize what no summary covers yet, and say how one works here")
reembed = _job("reembed", "Embed what has no vector of the model in force, compare and group anew")
