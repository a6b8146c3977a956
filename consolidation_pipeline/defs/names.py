"""Names of definitions: all begin with one prefix, so that none collides with a name of a project they are merged into.

The last part of an asset's key is the name of its phase. A Dagster job has the name of our job behind the prefix.
"""

import dagster as dg

PREFIX = "consolidation"
# Key of the resource, and so the name of the parameter of assets, checks, sensors and schedules that takes it.
RESOURCE = PREFIX


def prefixed(name: str) -> str:
    """Return the name in Dagster of a job, an op, a sensor, a schedule, a group, a pool or a partition set."""
    return f"{PREFIX}_{name}"


def asset_key(name: str) -> dg.AssetKey:
    """Return the key of the asset of a phase."""
    return dg.AssetKey([PREFIX, name])


def own_name(job_name: str) -> str:
    """Return our name of a Dagster job, a key of ``JOB_PHASES`` if it carries out phases."""
    return job_name.removeprefix(f"{PREFIX}_")
