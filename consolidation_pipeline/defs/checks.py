"""The checks' common form: one per project, adapted from a function that lists what is wrong."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import dagster as dg

from consolidation_pipeline.defs.partitions import projects
from consolidation_pipeline.store.engine import Connection, Engine
from consolidation_pipeline.store.projects import get_project

Finder = Callable[[Connection, Any], Sequence[str]]

_SHOWN = 10


def project_check(name: str, asset: Any, find: Finder, *, description: str, blocking: bool = True) -> Any:
    """An asset check that passes for a project when ``find(connection, project_id)`` lists nothing.

    Blocking unless a wrong value cannot be merged onward.
    """
    with warnings.catch_warnings():
        # Partitioned checks are a preview; an unpartitioned one would show only the last project that was checked.
        warnings.simplefilter("ignore", dg.PreviewWarning)

        @dg.asset_check(
            asset=asset,
            name=name,
            description=description,
            blocking=blocking,
            partitions_def=projects,
        )
        def check(context: dg.AssetCheckExecutionContext, store: dg.ResourceParam[Engine]) -> dg.AssetCheckResult:
            with store.connect() as connection:
                wrong = find(connection, get_project(connection, context.partition_key).id)
            return dg.AssetCheckResult(
                passed=not wrong,
                severity=dg.AssetCheckSeverity.ERROR if blocking else dg.AssetCheckSeverity.WARN,
                metadata={"found": len(wrong), "first": list(wrong[:_SHOWN])},
            )

    return check
