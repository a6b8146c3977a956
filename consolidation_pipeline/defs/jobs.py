"""The jobs: what runs together for a project."""

import dagster as dg

from consolidation_pipeline.defs.decay_scores import decay_scores

consolidate = dg.define_asset_job(
    "consolidate",
    selection=dg.AssetSelection.all(),
    description="Embed, compare, group, merge, score and report, for one project.",
)

decay = dg.define_asset_job(
    "decay",
    selection=dg.AssetSelection.assets(decay_scores),
    description="Score how relevant every active memory still is, for one project.",
)
