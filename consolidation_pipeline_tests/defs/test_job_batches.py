"""Batches: jobs of several projects in one run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import dagster as dg
import pytest
from dagster._core.definitions.reconstruct import ReconstructableRepository

from consolidation_pipeline.defs import asset_checks
from consolidation_pipeline.defs.job_batches import build_batch_config, job_batch
from consolidation_pipeline.defs.job_runs import fail_orphaned_runs, find_runs_or_batches
from consolidation_pipeline.defs.maintenance import audit_retention
from consolidation_pipeline.defs.names import RESOURCE, asset_key
from consolidation_pipeline.defs.partitions import PROJECTS
from consolidation_pipeline.defs.resources import BATCH_TAG, JOB_TAG, SENSOR_TAG, ConsolidationResource
from consolidation_pipeline.defs.run_requests import MAX_SINGLE_RUNS, build_run_requests
from consolidation_pipeline.defs.schedules import daily_decay
from consolidation_pipeline.defs.sensors import job_status_sensor, requested_jobs_sensor
from consolidation_pipeline.service.jobs.job_requests import cancel_job, list_pending_jobs, request_job
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.jobs.project_lock import project_lock
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline_tests.conftest import make_memory_folder
from consolidation_pipeline_tests.defs.conftest import schedule_context, sensor_context
from consolidation_pipeline_tests.service.corpus import LESSONS, note
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline

SLUGS = ("alpha", "beta", "gamma", "delta")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test(temp_dir=str(make_memory_folder())) as instance:
        instance.add_dynamic_partitions(PROJECTS, list(SLUGS))
        yield instance


@pytest.fixture
def pipeline(engine: Engine, settings: Settings, tmp_path: Path) -> Pipeline:
    """Four projects with one memory each."""
    pipeline = Pipeline(engine, settings, tmp_path)
    for slug in SLUGS:
        pipeline.add([note(slug, LESSONS[0])], slug)
    return pipeline


def request_jobs(engine: Engine) -> dict[str, UUID]:
    return {slug: request_job(engine, slug, job="decay", triggered_by="ann").job_id for slug in SLUGS}


def run_batch(instance: dg.DagsterInstance, jobs: list[UUID], **tags: str) -> tuple[str, dict[str, Any]]:
    """Run a batch as a run worker does; return its run id and its output metadata."""
    job = ReconstructableRepository.for_module("consolidation_pipeline.definitions", "defs").get_reconstructable_job(
        job_batch.name
    )
    config = build_batch_config([str(job_id) for job_id in jobs])
    with dg.execute_job(job, instance=instance, run_config=config, tags=tags) as result:
        assert result.success
        (output,) = result.filter_events(lambda event: event.is_successful_output)
        return result.run_id, {name: value.value for name, value in output.step_output_data.metadata.items()}


def statuses(pipeline: Pipeline) -> dict[str, str]:
    query = "SELECT p.slug, j.status FROM {s}.consolidation_jobs j JOIN {s}.projects p ON p.id = j.project_id"
    rows = pipeline.rows(query)
    assert len(rows) == len(SLUGS)
    return {row.slug: row.status for row in rows}


@pytest.mark.parametrize(
    ("ids", "problem"), [(["1234"], "`jobs`: '1234' is not an id: give a full UUID of a pending job"), ([], "is empty")]
)
@pytest.mark.usefixtures("engine")
def test_batch_of_wrong_ids_fails_without_traceback(instance: dg.DagsterInstance, ids: list[str], problem: str) -> None:
    run_id, message = fail_batch(instance, ids)
    assert problem in message
    batch = instance.get_run_by_id(run_id)
    assert batch is not None
    instance.report_run_canceled(batch)
    assert find_runs_or_batches(instance, [uuid4()]) == {}


def fail_batch(instance: dg.DagsterInstance, ids: list[str]) -> tuple[str, str]:
    """Run a batch that fails; return its run id and the message."""
    resources = {RESOURCE: ConsolidationResource()}
    config = build_batch_config(ids)
    result = job_batch.execute_in_process(config, instance=instance, resources=resources, raise_on_error=False)
    (event,) = result.filter_events(lambda event: event.is_step_failure)
    failure = event.step_failure_data.user_failure_data
    assert failure is not None
    return result.run_id, str(failure.description)


def test_batch_with_unknown_id_runs_nothing(pipeline: Pipeline, instance: dg.DagsterInstance) -> None:
    jobs, unknown = request_jobs(pipeline.engine), uuid4()
    _, message = fail_batch(instance, [*map(str, jobs.values()), str(unknown)])
    assert message.startswith(f"`jobs`: there is no job {unknown}, and none was run")
    assert set(statuses(pipeline).values()) == {"pending"}


def test_batch_of_sensor_leaves_out_deleted_jobs(pipeline: Pipeline, instance: dg.DagsterInstance) -> None:
    del pipeline
    assert run_batch(instance, [uuid4()], **{SENSOR_TAG: "any"})[1] == {"jobs": 1, "deleted": 1}


@pytest.mark.slow
@pytest.mark.breaks_rules
def test_batch_isolates_its_jobs(pipeline: Pipeline, instance: dg.DagsterInstance) -> None:
    engine, jobs = pipeline.engine, request_jobs(pipeline.engine)
    with engine.connect() as connection:
        ids = {slug: get_project(connection, slug).id for slug in SLUGS}
    pipeline.write(f"ALTER TABLE {{s}}.relevance_scores ADD CHECK (project_id <> '{ids['alpha']}')")
    cancel_job(engine, jobs["beta"], cancelled_by="bob")
    with project_lock(engine, ids["gamma"], "gamma", wait_seconds=0):
        batch, metadata = run_batch(instance, list(jobs.values()))
    assert statuses(pipeline) == {"alpha": "failed", "beta": "cancelled", "gamma": "pending", "delta": "completed"}
    assert metadata == {"jobs": 4, "failed": 1, "skipped": 1, "busy": 1, "completed": 1}
    runs = {run.tags["dagster/partition"]: run for run in instance.get_runs(dg.RunsFilter(tags={BATCH_TAG: batch}))}
    assert {slug: run.status.value for slug, run in runs.items()} == {"alpha": "FAILURE", "delta": "SUCCESS"}
    assert {runs[slug].tags[JOB_TAG] for slug in runs} == {str(jobs["alpha"]), str(jobs["delta"])}
    records = instance.fetch_materializations(asset_key("decay_scores"), limit=9).records
    assert [record.partition_key for record in records] == ["delta"]
    assert run_batch(instance, list(jobs.values()))[1] == {"jobs": 4, "skipped": 3, "completed": 1}
    assert statuses(pipeline)["gamma"] == "completed"


@pytest.mark.slow
def test_run_of_a_batch_that_is_marked_cancelled_ends_alone(
    pipeline: Pipeline, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_result = asset_checks._build_result

    def cancel_first(*outcome: Any) -> dg.AssetCheckResult:
        # What "Force termination" in the UI does: no process is told.
        for run in instance.get_runs(dg.RunsFilter(tags={"dagster/partition": "alpha"})):
            instance.report_run_canceled(run)
        return build_result(*outcome)

    monkeypatch.setattr(asset_checks, "_build_result", cancel_first)
    jobs = [request_job(pipeline.engine, slug, job="forget", triggered_by="ann").job_id for slug in SLUGS]
    assert run_batch(instance, jobs)[1] == {"jobs": 4, "cancelled": 1, "completed": 3}
    assert statuses(pipeline)["alpha"] == "cancelled"


@pytest.mark.slow
def test_job_waiting_in_batch_is_not_relaunched(pipeline: Pipeline, instance: dg.DagsterInstance) -> None:
    context = schedule_context(pipeline.engine, instance)
    started = dg.DagsterRunStatus.STARTED
    (request,) = daily_decay(context)
    assert (request.job_name, request.partition_key, request.tags["dagster/max_runtime"]) == (
        "consolidation_job_batch",
        None,
        "2400",
    )
    jobs = [job.job_id for job in list_pending_jobs(pipeline.engine)]
    pipeline.write("UPDATE {s}.consolidation_jobs SET created_at = created_at - interval '1 hour'")
    config = dict(request.run_config)
    run = instance.create_run_for_job(job_batch, run_config=config, status=started)
    tick_context = sensor_context(pipeline.engine, instance)
    assert isinstance(daily_decay(context), dg.SkipReason)
    assert isinstance(requested_jobs_sensor(tick_context), dg.SkipReason)
    child = instance.create_run_for_job(audit_retention, tags={BATCH_TAG: run.run_id}, status=started)
    assert fail_orphaned_runs(instance) == []
    instance.report_run_failed(run)
    assert fail_orphaned_runs(instance) == [child.run_id]
    assert find_runs_or_batches(instance, jobs) == {}  # the process died: the next run takes them
    requests = requested_jobs_sensor(tick_context).run_requests
    assert {request.tags[JOB_TAG] for request in requests} == {str(job) for job in jobs}
    run = instance.create_run_for_job(job_batch, run_config=config)
    instance.report_run_canceled(run)
    job_status_sensor(tick_context)
    assert set(statuses(pipeline).values()) == {"cancelled"}


def test_manual_jobs_are_batched_when_many_wait(pipeline: Pipeline) -> None:
    request_jobs(pipeline.engine)
    waiting = list_pending_jobs(pipeline.engine)
    consolidation = ConsolidationResource()
    assert [request.job_name for request in build_run_requests(consolidation, waiting)] == ["consolidation_decay"] * 4
    assert {request.job_name for request in build_run_requests(consolidation, waiting * MAX_SINGLE_RUNS)} == {
        "consolidation_job_batch"
    }
