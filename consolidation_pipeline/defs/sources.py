"""Connected stores: assets `synced_memories` and `written_back`, the job that updates them, and its sensor.

One run updates all stores: most ticks find nothing new, and a run for each store would cost more than the work.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

import dagster as dg
from dagster._core.event_api import PartitionKeyFilter

from consolidation_pipeline.core.text.counted_nouns import counted
from consolidation_pipeline.defs.asset_checks import evaluate_check, project_checks
from consolidation_pipeline.defs.asset_metadata import describe_table
from consolidation_pipeline.defs.declared_sources import CONNECTED, source_key
from consolidation_pipeline.defs.names import RESOURCE, asset_key, prefixed
from consolidation_pipeline.defs.partitions import projects
from consolidation_pipeline.defs.resources import SENSOR_TAG, ConsolidationResource
from consolidation_pipeline.defs.run_requests import SENSOR_STATUS, described_sensor
from consolidation_pipeline.errors import ConsolidationError
from consolidation_pipeline.service.sources.connections import ensure_connected, list_connected
from consolidation_pipeline.service.sources.sync import SyncResult
from consolidation_pipeline.service.sources.update import SourceUpdate, find_wait, update_sources
from consolidation_pipeline.service.sources.write_back import WriteResult
from consolidation_pipeline.store.checks.check import Check
from consolidation_pipeline.store.checks.sources import EVERY_HIDDEN_ROW_WAS_WRITTEN, EVERY_ROW_HAS_A_MEMORY
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline.store.sources.source_writes import count_ended_writes
from consolidation_pipeline.store.sources.sources import Source, list_failing

synced_memories = dg.AssetSpec(
    asset_key("synced_memories"),
    description="Rows of connected stores as raw memories; one event for each sync that changed something.",
    partitions_def=projects,
    group_name=prefixed("memories"),
    owners=["team:memory"],
    kinds={"postgres"},
    metadata=describe_table("source_rows"),
)
written_back = dg.AssetSpec(
    asset_key("written_back"),
    description="Merged memories in the stores that their sources came from; one event for each write or undo.",
    deps=[asset_key("merged_memories"), synced_memories],
    partitions_def=projects,
    group_name=prefixed("knowledge"),
    owners=["team:memory"],
    kinds={"postgres"},
    metadata=describe_table("source_writes"),
)


_STORES_CHECK = Check(
    "every_store_is_synced", list_failing, "The last update of every connected store succeeded.", blocking=False
)
# Checks by the name of their asset. An update evaluates those of what it changed.
_CHECKS: Mapping[str, Sequence[Check]] = {
    "synced_memories": [
        EVERY_ROW_HAS_A_MEMORY,
        _STORES_CHECK,
    ],
    "written_back": [
        EVERY_HIDDEN_ROW_WAS_WRITTEN,
    ],
}
synced_memories_checks = project_checks(synced_memories, *_CHECKS["synced_memories"])
written_back_checks = project_checks(written_back, *_CHECKS["written_back"])


@dg.op(name=prefixed("update_connected_stores"))
def update(
    context: dg.OpExecutionContext, consolidation: ConsolidationResource
) -> Iterator[dg.AssetMaterialization | dg.AssetCheckEvaluation | dg.Output[None]]:
    """Sync connected stores, write merged memories into those of mode write, and check what that changed.

    A store that keeps failing is tried less often by the sensor, and at once by a person who starts the job. A declared
    one that cannot be connected fails the first run of the sensor that finds it so.
    """
    is_automatic = SENSOR_TAG in context.run.tags
    refused = list(_connect_declared(consolidation))
    turned = list(_evaluate_declared(context.instance, consolidation, refused))
    yield from turned
    unseen = list(_list_unseen(context.instance, consolidation))
    updated = update_sources(consolidation.engine, consolidation.selects, everything=not is_automatic)
    done = [*refused, *updated]
    changed: dict[tuple[str, str], None] = {}
    for one in [*unseen, *done]:
        context.log.info(_describe(one))
        for name, numbers in _list_changes(one):
            changed[name, one.project] = None
            metadata = {"source": one.name, **numbers}
            yield dg.AssetMaterialization(consolidation.asset_key(name), partition=one.project, metadata=metadata)
    changed |= dict.fromkeys(("synced_memories", slug) for slug in _list_turned(context.instance, consolidation))
    with consolidation.engine.connect() as connection:
        for name, slug in changed:
            project = get_project(connection, slug)
            for check in _CHECKS[name]:
                yield evaluate_check(connection, consolidation.asset_key(name), check, project)
    told = {each.asset_key for each in turned}
    unknown = [one for one in refused if not is_automatic or source_key(one.name) in told]
    failed = [f"{one.name}: {one.error}" for one in [*unknown, *updated] if one.error is not None]
    if failed:
        raise dg.Failure("; ".join(failed), metadata={"sources": len(done), "failed": len(failed)}, allow_retries=False)
    yield dg.Output(None, metadata={"sources": len(done)})


def _connect_declared(consolidation: ConsolidationResource) -> Iterator[SourceUpdate]:
    """Connect the stores that components declare. Yield those that cannot be connected, with the reason."""
    for declared in consolidation.stores:
        try:
            ensure_connected(consolidation.engine, **declared)
        except ConsolidationError as error:
            yield SourceUpdate(declared["name"], declared["project"], error=str(error))


def _evaluate_declared(
    instance: dg.DagsterInstance, consolidation: ConsolidationResource, refused: Sequence[SourceUpdate]
) -> Iterator[dg.AssetCheckEvaluation]:
    """Yield the check of each declared store whose result is another one than Dagster saw last."""
    obstacles = {one.name: one.error for one in refused}
    for declared in consolidation.stores:
        name, key = declared["name"], source_key(declared["name"])
        if _is_red(instance, dg.AssetCheckKey(key, CONNECTED)) != (name in obstacles):
            yield dg.AssetCheckEvaluation(
                asset_key=key,
                check_name=CONNECTED,
                passed=name not in obstacles,
                metadata={"first": dg.MetadataValue.json([obstacles[name]] if name in obstacles else [])},
            )


def _is_red(instance: dg.DagsterInstance, key: dg.AssetCheckKey, partition: str | None = None) -> bool:
    """Return True if the newest evaluation of a check that Dagster has failed."""
    storage = instance.event_log_storage
    found = storage.get_latest_asset_check_execution_by_key([key], PartitionKeyFilter(key=partition))
    return key in found and found[key].status.value == "FAILED"


def _list_unseen(instance: dg.DagsterInstance, consolidation: ConsolidationResource) -> Iterator[SourceUpdate]:
    """Yield the syncs and writes that changed something and that Dagster did not see, as those of a command."""
    for source in list_connected(consolidation.engine):
        if not consolidation.selects(source.project):
            continue
        synced, wrote = (
            _find_last_event(instance, consolidation.asset_key(name), source)
            for name in ("synced_memories", "written_back")
        )
        sync = write = None
        changed = source.last_sync.get("changed")
        if changed is not None and datetime.fromisoformat(changed["at"]).timestamp() > synced:
            sync = SyncResult(**{name: value for name, value in changed.items() if name != "at"})
        with consolidation.engine.connect() as connection:
            ended = count_ended_writes(connection, source.id, wrote)
        if ended.written or ended.restored:
            write = WriteResult(**ended._asdict())
        if sync or write:
            yield SourceUpdate(source.name, source.project, sync, write)


def _list_turned(instance: dg.DagsterInstance, consolidation: ConsolidationResource) -> Iterator[str]:
    """Yield the projects with a store that fails since Dagster saw it last, or does not fail any more."""
    key = dg.AssetCheckKey(consolidation.asset_key("synced_memories"), _STORES_CHECK.name)
    for slug in dict.fromkeys(one.project for one in list_connected(consolidation.engine)):
        if not consolidation.selects(slug):
            continue
        with consolidation.engine.connect() as connection:
            is_red = bool(list_failing(connection, get_project(connection, slug).id))
        if is_red != _is_red(instance, key, slug):
            yield slug


def _find_last_event(instance: dg.DagsterInstance, key: dg.AssetKey, source: Source) -> float:
    """Return when the newest event of an asset on a store was stored, in seconds of Unix time; 0 = never."""
    wanted = dg.AssetRecordsFilter(key, asset_partitions=[source.project])
    for record in instance.fetch_materializations(wanted, limit=100).records:
        event = record.asset_materialization
        if event is not None and event.metadata["source"].value == source.name:
            return record.timestamp
    return 0.0


def build_update_job(resource: ConsolidationResource) -> dg.JobDefinition:
    """Return the job with its resource bound, as the job that runs batches (``build_job_batch``)."""

    @dg.job(
        name=prefixed("update_sources"),
        resource_defs={RESOURCE: resource},
        executor_def=dg.in_process_executor,
        description="Sync all connected stores, and write merged memories into those of mode write.",
    )
    def update_job() -> None:
        update()

    return update_job


update_job = build_update_job(ConsolidationResource())


@described_sensor(
    "sources_sensor",
    job=update_job,
    minimum_interval_seconds=300,
    default_status=SENSOR_STATUS,
)
def sources_sensor(
    context: dg.SensorEvaluationContext, consolidation: ConsolidationResource
) -> dg.RunRequest | dg.SkipReason:
    """Update connected stores every five minutes, one run at a time; those that keep failing up to an hour later."""
    sources = [one for one in list_connected(consolidation.engine) if consolidation.selects(one.project)]
    connected = {one.name for one in sources}
    is_declared = any(declared["name"] not in connected for declared in consolidation.stores)
    if not (sources or is_declared):
        return dg.SkipReason("no store is connected")
    waits = {source.name: find_wait(source) for source in sources}
    if all(waits.values()) and not is_declared:
        return dg.SkipReason("; ".join(f"{name}: {wait.describe()}" for name, wait in waits.items() if wait))
    unfinished = dg.RunsFilter(
        job_name=update_job.name,
        statuses=[dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED],
    )
    if context.instance.get_runs(unfinished, limit=1):
        return dg.SkipReason("the last update is still running")
    return dg.RunRequest()


def _list_changes(one: SourceUpdate) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the names of the assets that changed, with the numbers of their events."""
    sync, write = one.sync, one.write
    if sync is not None and sync.is_change:
        yield "synced_memories", sync.count()
    if write is not None and (write.written or write.restored):
        yield "written_back", {**asdict(write), "refused": len(write.refused)}


def _describe(one: SourceUpdate) -> str:
    """Return what was done with one store, in words."""
    parts = [f"source {one.name} of {one.project}"]
    if one.sync is not None:
        sync = one.sync
        parts.append(f"{sync.added} added, {sync.revised} revised, {sync.gone} gone, {sync.refused} refused")
    if one.write is not None:
        parts.append(
            f"{counted(one.write.written, 'group')} written, {one.write.restored} undone, {one.write.waiting} wait, "
            f"{len(one.write.refused)} refused"
        )
    parts += [each for each in (one.error, one.waits) if each is not None]
    return "; ".join(parts)
