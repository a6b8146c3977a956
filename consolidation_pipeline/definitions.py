"""Dagster code location: everything in ``defs``, one process per run."""

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import dagster as dg

from consolidation_pipeline import defs as defs_package
from consolidation_pipeline.defs.job_batches import build_job_batch
from consolidation_pipeline.defs.jobs import ASSET_JOBS
from consolidation_pipeline.defs.maintenance import audit_retention, restore, rollback
from consolidation_pipeline.defs.names import RESOURCE
from consolidation_pipeline.defs.resources import ConsolidationResource
from consolidation_pipeline.defs.schedules import build_schedules
from consolidation_pipeline.defs.sensors import build_sensors
from consolidation_pipeline.defs.shadows import promote_shadow, shadow
from consolidation_pipeline.defs.sources import build_update_job, synced_memories


@dg.definitions
def defs() -> dg.Definitions:
    """Return all definitions with their resource. They can be merged with those of another project."""
    return build_definitions(ConsolidationResource())


def build_definitions(
    resource: ConsolidationResource,
    *,
    crons: Mapping[str, str] | None = None,
    group_name: str | None = None,
    stores: Sequence[dg.AssetKey] = (),
) -> dg.Definitions:
    """Return all definitions for a resource. The prefix of their asset keys is the resource's.

    Args:
        crons: Crons of schedules, see ``build_schedules``.
        group_name: Group of all assets; None = a group for each part of the pipeline.
        stores: Assets of connected stores, upstream of ``synced_memories``.
    """
    assets: Sequence[Any] = dg.load_assets_from_package_module(defs_package, include_specs=True)
    assets = [_add_upstream(asset, stores) if asset.key == synced_memories.key else asset for asset in assets]
    checks = dg.load_asset_checks_from_package_module(defs_package)
    keys = {asset.key: resource.asset_key(asset.key.path[-1]) for asset in assets}
    if all(old == new for old, new in keys.items()):
        keys = {}
    batch, update = build_job_batch(resource), build_update_job(resource)
    return dg.Definitions(
        assets=[_adapt(asset, keys, group_name) for asset in assets],
        asset_checks=[_adapt_checks(check, keys) for check in checks] if keys else checks,
        jobs=[*ASSET_JOBS, shadow, promote_shadow, batch, update, rollback, restore, audit_retention],
        schedules=build_schedules(crons or {}, batch),
        sensors=build_sensors([batch, update]),
        resources={RESOURCE: resource},
        # The phases of a project depend on each other: one process shares their imports, model and lock.
        executor=dg.in_process_executor,
    )


def _add_upstream(spec: dg.AssetSpec, keys: Sequence[dg.AssetKey]) -> dg.AssetSpec:
    return spec.replace_attributes(deps=[*spec.deps, *keys]) if keys else spec


def _adapt(asset: Any, keys: Mapping[dg.AssetKey, dg.AssetKey], group_name: str | None) -> Any:
    """Return an asset with another key and group. ``keys``: old key -> new key of all assets."""
    if isinstance(asset, dg.AssetSpec):
        deps = [
            dg.AssetDep(keys.get(dep.asset_key, dep.asset_key), partition_mapping=dep.partition_mapping)
            for dep in asset.deps
        ]
        return _set_group(asset.replace_attributes(key=keys.get(asset.key, asset.key), deps=deps), group_name)
    moved = asset.with_attributes(asset_key_replacements=keys) if keys else asset
    return moved if group_name is None else moved.map_asset_specs(partial(_set_group, group_name=group_name))


def _set_group(spec: dg.AssetSpec, group_name: str | None) -> dg.AssetSpec:
    return spec if group_name is None else spec.replace_attributes(group_name=group_name)


def _adapt_checks(checks: dg.AssetChecksDefinition, keys: Mapping[dg.AssetKey, dg.AssetKey]) -> Any:
    moved = checks.with_attributes(asset_key_replacements=keys)
    with warnings.catch_warnings():
        # Dagster would do the same, and pass a beta parameter to itself.
        warnings.simplefilter("ignore", dg.BetaWarning)
        return dg.AssetChecksDefinition(**moved.get_attributes_dict())
