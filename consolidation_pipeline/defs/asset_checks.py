"""Asset checks: built from functions that list violations, one step per asset and project."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from consolidation_pipeline.defs.partitions import projects
from consolidation_pipeline.store.database.engine import Connection, Engine
from consolidation_pipeline.store.projects import get_project

FindViolations = Callable[[Connection, Any], Sequence[str]]

_MAX_SHOWN = 10


@dataclass(frozen=True)
class Check:
    """Check that passes for a project if ``find(connection, project_id)`` returns no violations.

    ``blocking``: a failure stops the assets that depend on this one. Set to False if they cannot spread the error.
    """

    name: str
    find: FindViolations
    description: str
    blocking: bool = True


def project_checks(asset: dg.AssetsDefinition | dg.SourceAsset, *checks: Check) -> dg.AssetChecksDefinition:
    """Return the checks of an asset. They share one step, since Dagster's cost is per step; each has its own result."""
    key = asset.key

    @dg.multi_asset_check(
        name=f"{key.to_python_identifier()}_checks", specs=_build_specs(asset, checks), can_subset=True
    )
    def evaluate(
        context: dg.AssetCheckExecutionContext, store: dg.ResourceParam[Engine]
    ) -> Iterator[dg.AssetCheckResult]:
        with store.connect() as connection:
            project = get_project(connection, context.partition_key)
            selected = {check_key.name for check_key in context.selected_asset_check_keys}
            for check in checks:
                if check.name in selected:
                    yield _build_result(key, check, check.find(connection, project.id))

    return evaluate


def _build_specs(asset: dg.AssetsDefinition | dg.SourceAsset, checks: Sequence[Check]) -> list[dg.AssetCheckSpec]:
    with warnings.catch_warnings():
        # Partitioned checks are a preview feature. Unpartitioned ones would show only the project checked last.
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


def _build_result(key: dg.AssetKey, check: Check, violations: Sequence[str]) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=check.name,
        passed=not violations,
        severity=dg.AssetCheckSeverity.ERROR if check.blocking else dg.AssetCheckSeverity.WARN,
        metadata={"found": len(violations), "first": list(violations[:_MAX_SHOWN])},
    )
