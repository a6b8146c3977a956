"""The checks' common form: one step per asset and project, adapted from functions that list what is wrong."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from consolidation_pipeline.defs.partitions import projects
from consolidation_pipeline.store.database.engine import Connection, Engine
from consolidation_pipeline.store.projects import get_project

Finder = Callable[[Connection, Any], Sequence[str]]

_SHOWN = 10


@dataclass(frozen=True)
class Check:
    """A check that passes for a project when ``find(connection, project_id)`` lists nothing.

    Blocking unless a wrong value cannot be merged onward.
    """

    name: str
    find: Finder
    description: str
    blocking: bool = True


def project_checks(asset: dg.AssetsDefinition | dg.SourceAsset, *checks: Check) -> dg.AssetChecksDefinition:
    """The checks of an asset, each one's result its own. Dagster's cost is that of a step, so they share one."""
    key = asset.key
    by_name = {check.name: check for check in checks}

    @dg.multi_asset_check(name=f"{key.to_python_identifier()}_checks", specs=_specs(asset, checks), can_subset=True)
    def evaluate(
        context: dg.AssetCheckExecutionContext, store: dg.ResourceParam[Engine]
    ) -> Iterator[dg.AssetCheckResult]:
        with store.connect() as connection:
            project = get_project(connection, context.partition_key)
            for chosen in sorted(context.selected_asset_check_keys, key=lambda one: list(by_name).index(one.name)):
                check = by_name[chosen.name]
                yield _result(key, check, check.find(connection, project.id))

    return evaluate


def _specs(asset: dg.AssetsDefinition | dg.SourceAsset, checks: Sequence[Check]) -> list[dg.AssetCheckSpec]:
    with warnings.catch_warnings():
        # Partitioned checks are a preview; an unpartitioned one would show only the last project that was checked.
        warnings.simplefilter("ignore", dg.PreviewWarning)
        return [
            dg.AssetCheckSpec(
                check.name,
                asset=asset,
                description=check.description,
                blocking=check.blocking,
                partitions_def=projects,
            )
            for check in checks
        ]


def _result(key: dg.AssetKey, check: Check, wrong: Sequence[str]) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=check.name,
        passed=not wrong,
        severity=dg.AssetCheckSeverity.ERROR if check.blocking else dg.AssetCheckSeverity.WARN,
        metadata={"found": len(wrong), "first": list(wrong[:_SHOWN])},
    )
