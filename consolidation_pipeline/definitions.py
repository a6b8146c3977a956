"""Dagster code location: everything in ``defs``, one process per run."""

from pathlib import Path

import dagster as dg

from consolidation_pipeline.defs.resources import project_runs, store


@dg.definitions
def defs() -> dg.Definitions:
    """Return all definitions with their resources. They can be merged with those of another project."""
    loaded = dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
    # Not ``loaded`` itself: Dagster cannot merge two Definitions that both know a components folder.
    return dg.Definitions(
        assets=loaded.assets,
        asset_checks=loaded.asset_checks,
        jobs=loaded.jobs,
        schedules=loaded.schedules,
        sensors=loaded.sensors,
        resources={"store": store, "project_runs": project_runs},
        # The phases of a project depend on each other: one process shares their imports, model and lock.
        executor=dg.in_process_executor,
    )
