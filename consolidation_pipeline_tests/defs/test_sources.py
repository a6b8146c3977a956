"""Connected stores in Dagster: the job that updates them, its events and checks, and its sensor."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest

from consolidation_pipeline.defs.names import RESOURCE, asset_key
from consolidation_pipeline.defs.resources import SENSOR_TAG, ConsolidationResource
from consolidation_pipeline.defs.sources import sources_sensor, update_job
from consolidation_pipeline.service.admin.database_checks import check_database
from consolidation_pipeline.service.sources.connections import connect_source, list_connected, restore_store, set_mode
from consolidation_pipeline.service.sources.sync import sync_source
from consolidation_pipeline.service.sources.update import find_failing, update_sources
from consolidation_pipeline.service.sources.write_back import undo_writes, write_source
from consolidation_pipeline_tests.defs.conftest import sensor_context
from consolidation_pipeline_tests.service.conftest import pipeline as pipeline
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline
from consolidation_pipeline_tests.service.sources.conftest import PROJECT, SOURCE, URL_ENV
from consolidation_pipeline_tests.service.sources.conftest import make_store as make_store
from consolidation_pipeline_tests.service.sources.conftest import mem0_store as mem0_store
from consolidation_pipeline_tests.service.sources.conftest import store_url as store_url
from consolidation_pipeline_tests.service.sources.stores import Store, all_wordings

# Results of the checks of `synced_memories` if all is well.
SYNCED_CHECKS = {(name, PROJECT, True) for name in ("every_row_has_a_memory", "every_store_is_synced")}


def connect_store(engine: Any, store: Store) -> None:
    config = {**store.kind.config, "url_env": URL_ENV}
    connect_source(engine, SOURCE, project=PROJECT, config=config, mode="write")


def update(instance: dg.DagsterInstance, *tags: str, **config: Any) -> dg.ExecuteInProcessResult:
    """Run the job, with tags as Dagster gives them to the runs of this sensor."""
    resources, given = {RESOURCE: ConsolidationResource(**config)}, dict.fromkeys(tags, sources_sensor.name)
    return update_job.execute_in_process(instance=instance, resources=resources, tags=given, raise_on_error=False)


def read_events(result: dg.ExecuteInProcessResult) -> dict[str, dict[str, Any]]:
    """Return the metadata of the materializations by the last part of their asset keys."""
    events = result.filter_events(lambda event: event.event_type_value == "ASSET_MATERIALIZATION")
    made = [event.step_materialization_data.materialization for event in events]
    assert all(one.partition == PROJECT for one in made)
    return {one.asset_key.path[-1]: {name: value.value for name, value in one.metadata.items()} for one in made}


def test_update_syncs_and_writes_back(mem0_store: Store, pipeline: Pipeline, instance: dg.DagsterInstance) -> None:
    connect_store(pipeline.engine, mem0_store)
    first = update(instance)
    assert first.success
    assert read_events(first)["synced_memories"]["added"] == len(all_wordings())
    pipeline.run(PROJECT)
    written = read_events(update(instance))
    assert list(written) == ["written_back"]
    assert written["written_back"]["source"] == SOURCE
    assert written["written_back"]["written"] == 2
    assert read_events(update(instance)) != {}


def test_update_tells_of_syncs_of_commands(mem0_store: Store, pipeline: Pipeline, instance: dg.DagsterInstance) -> None:
    connect_store(pipeline.engine, mem0_store)
    sync_source(pipeline.engine, SOURCE)
    told = update(instance)
    assert read_events(told)["synced_memories"]["read"] == len(all_wordings())
    assert read_checks(told) == SYNCED_CHECKS
    assert read_events(update(instance)) == {}
    mem0_store.add([("bob", "Lunch is at noon")])
    sync_source(pipeline.engine, SOURCE)
    assert read_events(update(instance))["synced_memories"]["added"] == 1


def test_update_tells_of_sync_before_one_without_changes(
    mem0_store: Store, pipeline: Pipeline, instance: dg.DagsterInstance
) -> None:
    connect_store(pipeline.engine, mem0_store)
    sync_source(pipeline.engine, SOURCE)
    sync_source(pipeline.engine, SOURCE)
    told = update(instance)
    assert read_events(told)["synced_memories"]["added"] == len(all_wordings())
    assert read_events(update(instance)) == {}


def test_update_tells_of_writes_of_commands(
    mem0_store: Store, pipeline: Pipeline, instance: dg.DagsterInstance
) -> None:
    connect_store(pipeline.engine, mem0_store)
    update(instance)
    pipeline.run(PROJECT)
    written = write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1).written
    assert written > 0
    told = update(instance)
    assert read_events(told)["written_back"].items() >= {"source": SOURCE, "written": written, "restored": 0}.items()
    assert read_checks(told) == {("every_hidden_row_was_written", PROJECT, True)}
    assert read_events(update(instance)) == {}
    undo_writes(pipeline.engine, SOURCE)
    set_mode(pipeline.engine, SOURCE, "mirror")  # Else the update writes them again.
    assert read_events(update(instance))["written_back"]["restored"] == written


def test_update_tells_of_writes_that_were_undone(
    mem0_store: Store, pipeline: Pipeline, instance: dg.DagsterInstance
) -> None:
    connect_store(pipeline.engine, mem0_store)
    update(instance)
    pipeline.run(PROJECT)
    done = write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1)
    undo_writes(pipeline.engine, SOURCE)
    set_mode(pipeline.engine, SOURCE, "mirror")
    numbers = {"written": done.written, "restored": done.written, "hidden": done.hidden, "inserted": done.inserted}
    assert read_events(update(instance))["written_back"].items() >= numbers.items()
    assert read_events(update(instance)) == {}


def read_checks(result: dg.ExecuteInProcessResult) -> set[tuple[str, str | None, bool]]:
    """Return name, partition and result of the evaluated checks."""
    events = result.filter_events(lambda event: event.event_type_value == "ASSET_CHECK_EVALUATION")
    found = [event.asset_check_evaluation_data for event in events]
    return {(one.check_name, one.partition, one.passed) for one in found}


def test_update_checks_what_it_changed(mem0_store: Store, pipeline: Pipeline, instance: dg.DagsterInstance) -> None:
    connect_store(pipeline.engine, mem0_store)
    first = update(instance)
    assert read_checks(first) == SYNCED_CHECKS
    key = dg.AssetCheckKey(asset_key("synced_memories"), "every_row_has_a_memory")
    (status,) = instance.event_log_storage.get_asset_check_execution_history(key, limit=2)
    assert status.partition == PROJECT
    pipeline.run(PROJECT)
    assert read_checks(update(instance)) == {("every_hidden_row_was_written", PROJECT, True)}


def test_unreachable_store_fails_by_name(
    mem0_store: Store, pipeline: Pipeline, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect_store(pipeline.engine, mem0_store)
    monkeypatch.setenv(URL_ENV, "postgresql://me:secret@127.0.0.1:1/x")
    result = update(instance)
    assert not result.success
    (event,) = result.filter_events(lambda event: event.is_step_failure)
    message = event.step_failure_data.user_failure_data.description
    assert message.startswith(f"{SOURCE}: the database of {URL_ENV} cannot be reached")
    assert "secret" not in message


def test_store_that_stays_away_is_tried_less_often(
    mem0_store: Store, pipeline: Pipeline, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect_store(pipeline.engine, mem0_store)
    url = os.environ[URL_ENV]
    monkeypatch.setenv(URL_ENV, "postgresql://me:secret@127.0.0.1:1/x")
    waits = []
    for _ in range(6):
        (failed,) = update_sources(pipeline.engine)
        failing = find_failing(list_connected(pipeline.engine)[0])
        assert failing is not None
        assert failed.error == failing.describe()
        waits.append(round((failing.next_try_at - datetime.now(UTC)) / timedelta(minutes=1)))
    assert waits == [5, 10, 20, 40, 60, 60]
    tick = sources_sensor(sensor_context(pipeline.engine, instance))
    assert isinstance(tick, dg.SkipReason)
    assert f"failed 6 times in a row, tried again at {failing.next_try_at:%Y-%m-%d %H:%M} UTC" in tick.skip_message
    monkeypatch.setenv(URL_ENV, url)
    assert read_events(update(instance, SENSOR_TAG)) == {}
    assert read_events(update(instance))["synced_memories"]["added"] == len(all_wordings())
    assert find_failing(list_connected(pipeline.engine)[0]) is None


def test_store_with_unrecorded_writes_is_left_alone(
    mem0_store: Store, pipeline: Pipeline, instance: dg.DagsterInstance
) -> None:
    """Its next updates would find the same until a person decides."""
    connect_store(pipeline.engine, mem0_store)
    update(instance)
    pipeline.run(PROJECT)
    assert write_source(pipeline.engine, SOURCE, quiet_seconds=0, max_share=1).written > 0
    # As after the restore of a backup from before the write.
    pipeline.write("DELETE FROM {s}.source_writes")
    pipeline.write("UPDATE {s}.source_rows SET state = 'mirrored'")
    failed = update(instance)
    assert not failed.success
    assert ("every_store_is_synced", PROJECT, False) in read_checks(failed)
    tick = sources_sensor(sensor_context(pipeline.engine, instance))
    assert isinstance(tick, dg.SkipReason)
    assert "`consolidation source restore" in str(tick.skip_message)
    assert str(tick.skip_message).endswith("failed once, left alone until a `source sync` succeeds")
    (finding,) = [each for each in check_database(pipeline.settings) if each.check == "connected stores"]
    assert finding.status == "warning"
    assert finding.message == tick.skip_message
    by_sensor = update(instance, SENSOR_TAG)
    assert by_sensor.success
    assert read_checks(by_sensor) == set()
    assert restore_store(URL_ENV) == {}
    sync_source(pipeline.engine, SOURCE)
    assert isinstance(sources_sensor(sensor_context(pipeline.engine, instance)), dg.RunRequest)
    turned = ("every_store_is_synced", PROJECT, True)
    assert turned in read_checks(update(instance, SENSOR_TAG))
    assert turned not in read_checks(update(instance, SENSOR_TAG))
    (finding,) = [each for each in check_database(pipeline.settings) if each.check == "connected stores"]
    assert finding.status == "ok"


def test_update_leaves_other_projects_alone(
    mem0_store: Store, pipeline: Pipeline, instance: dg.DagsterInstance
) -> None:
    connect_store(pipeline.engine, mem0_store)
    assert read_events(update(instance, projects=["other"])) == {}
    assert sync_source(pipeline.engine, SOURCE).added == len(all_wordings())


def test_sensor_starts_one_update_at_a_time(
    mem0_store: Store, pipeline: Pipeline, instance: dg.DagsterInstance
) -> None:
    context = sensor_context(pipeline.engine, instance)
    assert isinstance(sources_sensor(context), dg.SkipReason)
    connect_store(pipeline.engine, mem0_store)
    assert isinstance(sources_sensor(sensor_context(pipeline.engine, instance)), dg.RunRequest)
    instance.create_run_for_job(update_job, status=dg.DagsterRunStatus.STARTED)
    skipped = sources_sensor(sensor_context(pipeline.engine, instance))
    assert isinstance(skipped, dg.SkipReason)
    assert "still running" in (skipped.skip_message or "")
