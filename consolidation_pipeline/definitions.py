"""The code location: everything in ``defs``, run in one process per project."""

from pathlib import Path

import dagster as dg

from consolidation_pipeline.defs.resources import project_runs, store


@dg.definitions
def defs() -> dg.Definitions:
    """All stages, with what they need to run; can be merged with the definitions of another project."""
    loaded = dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
    # Not ``loaded`` itself: of two Definitions that both know their folder of components Dagster merges neither.
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
