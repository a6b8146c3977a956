"""Dagster runs: assets and checks of one project, their job row, sensors and schedules."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import dagster as dg
import pytest
from sqlalchemy import text

from consolidation_pipeline.definitions import build_definitions
from consolidation_pipeline.defs import asset_checks, run_requests, sensors
from consolidation_pipeline.defs.names import PREFIX, RESOURCE, asset_key, prefixed
from consolidation_pipeline.defs.partitions import PROJECTS
from consolidation_pipeline.defs.phase_asset import phase_asset
from consolidation_pipeline.defs.resources import JOB_TAG, ConsolidationResource
from consolidation_pipeline.defs.schedules import daily_decay, nightly_consolidation
from consolidation_pipeline.defs.sensors import (
    job_status_sensor,
    new_memories_sensor,
    projects_sensor,
    requested_jobs_sensor,
    task_memories_sensor,
    unsummarized_memories_sensor,
)
from consolidation_pipeline.embed.local import LOCAL_MODEL
from consolidation_pipeline.errors import NotFoundError, ProjectDisabledError, UsageError
from consolidation_pipeline.launch import RunOutcome, register_projects, run_project
from consolidation_pipeline.service.admin.projects import delete_project
from consolidation_pipeline.service.intake.importer import ensure_project
from consolidation_pipeline.service.jobs.job_requests import cancel_job, request_job
from consolidation_pipeline.service.jobs.retry_policy import list_failing_jobs
from consolidation_pipeline.service.runs.phases import JOB_PHASES, PHASES
from consolidation_pipeline.service.runs.project_run import PhaseResult, ProjectRun
from consolidation_pipeline.settings import PROJECT_ROOT
from consolidation_pipeline.store.admin.asset_rows import find_model_failure
from consolidation_pipeline.store.database.engine import Connection, Engine
from consolidation_pipeline.store.jobs.jobs import append_job, get_job, start_job
from consolidation_pipeline.store.projects import Project, configure_project, get_project, list_projects
from consolidation_pipeline_tests.conftest import make_memory_folder
from consolidation_pipeline_tests.defs.conftest import (
    Sample,
    load_definitions,
    materialize,
    schedule_context,
    sensor_context,
)


@pytest.fixture
def stored_instance() -> Iterator[dg.DagsterInstance]:
    """Dagster instance in files: schedules need one. It waits for the disk after each event, so not on a disk."""
    with dg.instance_for_test(temp_dir=str(make_memory_folder())) as instance:
        yield instance


def list_job_ids(requests: Iterable[dg.RunRequest]) -> set[str]:
    """Return the ids of the jobs in requested batches."""
    return {
        job
        for request in requests
        for job in request.run_config["ops"]["consolidation_run_pending_jobs"]["config"]["jobs"]
    }


def job_rows(engine: Engine) -> list[tuple[object, ...]]:
    columns = "status, trigger_type, phases_completed, dagster_run_id"
    query = f"SELECT {columns} FROM consolidation.consolidation_jobs ORDER BY created_at"
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text(query))]


def configure(engine: Engine, *, enabled: bool = True, **config: object) -> None:
    """Replace the configuration of the project ``alpha``."""
    with engine.begin() as connection:
        configure_project(connection, "alpha", config=config, consolidation_enabled=enabled)


def test_project_run_passes_all_checks(engine: Engine, sample: Sample, instance: dg.DagsterInstance) -> None:
    sample("alpha", 120)
    result = materialize(instance, "alpha")
    assert result.success
    evaluations = result.get_asset_check_evaluations()
    assert len(evaluations) >= 12
    assert all(evaluation.passed for evaluation in evaluations)
    assert job_rows(engine) == [("completed", "manual", list(PHASES), result.run_id)]


def test_nothing_is_done_again_without_a_change(engine: Engine, sample: Sample, instance: dg.DagsterInstance) -> None:
    def list_skipped(result: dg.ExecuteInProcessResult) -> list[str]:
        found = [event.materialization for event in result.get_asset_materialization_events()]
        return [one.asset_key.path[-1] for one in found if "skipped" in one.metadata]

    def read_metrics() -> dict[str, Any]:
        with engine.connect() as connection:
            query = "SELECT metrics FROM consolidation.consolidation_jobs ORDER BY created_at DESC LIMIT 1"
            return dict(connection.execute(text(query)).scalar_one())

    sample("alpha", 60)
    assert list_skipped(materialize(instance, "alpha")) == []
    state = read_metrics()["state"]
    with engine.connect() as connection:
        changes = connection.execute(text("SELECT count(*) FROM consolidation.consolidation_changes")).scalar_one()
    for _ in range(2):
        again = materialize(instance, "alpha")
        assert again.success
        assert sorted(list_skipped(again)) == sorted(PHASES)
        evaluations = again.get_asset_check_evaluations()
        assert all(evaluation.passed for evaluation in evaluations)
        assert {evaluation.blocking for evaluation in evaluations if "skipped" in evaluation.metadata} == {True}
        assert read_metrics()["state"] == state
        assert str(read_metrics()["clusters"]["skipped"]).startswith("nothing has changed since job ")
    with engine.connect() as connection:
        assert (
            changes == connection.execute(text("SELECT count(*) FROM consolidation.consolidation_changes")).scalar_one()
        )
    instance.delete_run(again.run_id)  # nothing tells any more that its checks passed
    again = materialize(instance, "alpha")
    assert sorted(list_skipped(again)) == sorted(PHASES)
    assert not any("skipped" in evaluation.metadata for evaluation in again.get_asset_check_evaluations())
    sample("alpha", 61)
    assert list_skipped(materialize(instance, "alpha")) == []
    assert read_metrics()["state"] != state


def reject_pair(engine: Engine) -> None:
    """Store the rejection of a suggestion to merge two memories."""
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO consolidation.consolidation_suggestions (project_id, group_id, status, suggested_content, "
                "original_memory_ids, original_versions, fingerprint) SELECT project_id, 'g', 'rejected', 'x', "
                "ARRAY[min(id::text)::uuid, max(id::text)::uuid], '{1,1}', 'f' "
                "FROM consolidation.task_memories GROUP BY project_id"
            )
        )


@pytest.mark.slow
def test_materializations_have_stable_metadata_names(
    engine: Engine, sample: Sample, instance: dg.DagsterInstance
) -> None:
    sample("alpha", 120)
    reject_pair(engine)
    result = materialize(instance, "alpha")
    metadata = {
        event.asset_key.path[-1]: event.materialization.metadata
        for event in result.get_asset_materialization_events()
        if event.asset_key is not None
    }
    names = {asset: set(values) for asset, values in metadata.items()}
    assert {"memories_in", "memories_embedded", "embeddings_reused", "embedding_model"} <= names["embedding_matrix"]
    assert {"calibration_version", "taken", "t_merge", "t_suggest", "t_pattern"} <= names["threshold_calibration"]
    measured = {"cosine_median", "cosine_nearest", "decided_wrong", "decided_wrong_low", "decided_wrong_high"}
    assert measured <= names["threshold_calibration"]
    assert "decided_found" not in names["threshold_calibration"]  # nothing was approved
    assert {"memories_in", "pairs_added", "t_merge", "t_suggest", "t_pattern"} <= names["similarity_graph"]
    assert {"merge_groups", "suggest_groups", "pattern_groups", "pairs_asked"} <= names["clusters"]
    assert {"merges_refused_by_recall", "recall_falls"} <= names["clusters"]
    assert {"memories_merged", "merged_created", "merged_extended"} <= names["merged_memories"]
    grouped = {"groups_in", "groups_covered", "groups_discarded", "groups_failed"}
    assert grouped | {"patterns_created", "patterns_updated", "patterns_needs_review", "map"} <= names["patterns"]
    assert grouped | {"principles_created", "principles_updated"} <= names["principles"]
    summarized = {"memories_in", "due", "summaries_created", "chunks", "chunks_failed", "waiting"}
    assert summarized | {"compression_ratio", "compression_target"} <= names["semantic_summaries"]
    assert {"summaries_in", "profiles_created", "profiles_updated"} <= names["procedural_profile"]
    proposed = {"groups_in", "suggestions_created", "suggestions_waiting", "groups_beyond_limit", "groups_skipped"}
    assert proposed <= names["consolidation_suggestions"]
    promoted = {"candidates_in", "entries_promoted", "entries_proposed", "entries_reinforced", "entries_waiting"}
    assert promoted <= names["playbook_entries"]
    assert {"memories_in", "relevance_median", "as_of"} <= names["decay_scores"]
    assert {"memories", "units", "reduction", "cost_usd", "llm/run_cost_usd", "report"} <= names["consolidation_report"]
    sizes = metadata["clusters"]["sizes"]
    assert isinstance(sizes, dg.TableMetadataValue)
    merged = [record.data for record in sizes.records if record.data["tier"] == "merge"]
    assert sum(row["groups"] for row in merged) == metadata["clusters"]["merge_groups"].value > 0
    assert sum(row["groups"] * row["members"] for row in merged) == metadata["clusters"]["merge_members"].value


def test_failing_phase_fails_job(engine: Engine, sample: Sample, instance: dg.DagsterInstance) -> None:
    sample("alpha", 30)
    configure(engine, embedding_model="no-such-provider/model")
    result = materialize(instance, "alpha")
    assert not result.success
    assert [row[:3] for row in job_rows(engine)] == [("failed", "manual", [])]


def test_reembed_replaces_vectors_without_merging(engine: Engine, sample: Sample, instance: dg.DagsterInstance) -> None:
    sample("alpha", 40)
    assert materialize(instance, "alpha", "reembed").success
    models = text("SELECT embedding_model, count(*) FROM consolidation.task_memories GROUP BY 1")
    with engine.begin() as connection:
        before = connection.execute(models).all()
        connection.execute(text("UPDATE consolidation.task_memories SET embedding_model = 'former/model'"))
    assert materialize(instance, "alpha", "reembed").success
    with engine.connect() as connection:
        assert connection.execute(models).all() == before == [(LOCAL_MODEL, 40)]
        assert connection.execute(text("SELECT count(*) FROM consolidation.memory_pairs")).scalar_one() > 0
        assert connection.execute(text("SELECT count(*) FROM consolidation.consolidated_memories")).scalar_one() == 0


@pytest.mark.parametrize(("asset", "status"), [("embedding_matrix", "cancelled"), ("decay_scores", "completed")])
def test_interrupted_run_is_cancelled_unless_done(
    engine: Engine,
    sample: Sample,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    asset: str,
    status: str,
) -> None:
    build_result = asset_checks._build_result

    def interrupt(key: dg.AssetKey, *outcome: Any) -> dg.AssetCheckResult:
        if key.path[-1] != asset:
            return build_result(key, *outcome)
        (run,) = instance.get_runs()
        instance.report_run_canceling(run)
        raise dg.DagsterExecutionInterruptedError

    monkeypatch.setattr(asset_checks, "_build_result", interrupt)
    sample("alpha", 5)
    assert not materialize(instance, "alpha", "decay" if asset == "decay_scores" else "consolidate").success
    assert [row[0] for row in job_rows(engine)] == [status]


def test_run_whose_interrupt_was_lost_ends_before_its_next_phase(
    engine: Engine, sample: Sample, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_result = asset_checks._build_result

    def cancel_without_interrupt(key: dg.AssetKey, *outcome: Any) -> dg.AssetCheckResult:
        (run,) = instance.get_runs()
        if run.status is dg.DagsterRunStatus.STARTED:
            instance.report_run_canceling(run)
        return build_result(key, *outcome)

    monkeypatch.setattr(asset_checks, "_build_result", cancel_without_interrupt)
    sample("alpha", 5)
    materialize(instance, "alpha")
    assert [row[0] for row in job_rows(engine)] == ["cancelled"]
    assert job_rows(engine)[0][2] == ["embedding_matrix"]
    (run,) = instance.get_runs()
    assert run.status is dg.DagsterRunStatus.CANCELED


def consolidate_job(prefix: list[str]) -> dg.JobDefinition:
    """Return the job with assets of a prefix, as a process that executes a run again finds it."""
    definitions = build_definitions(ConsolidationResource(asset_key_prefix=prefix))
    return definitions.resolve_job_def(prefixed("consolidate"))


def own_job() -> dg.JobDefinition:
    return consolidate_job([PREFIX])


def moved_job() -> dg.JobDefinition:
    return consolidate_job(["shop", "memory"])


@pytest.mark.parametrize("find_job", [own_job, moved_job])
def test_job_of_a_run_again_from_its_failure_completes(
    engine: Engine, sample: Sample, instance: dg.DagsterInstance, find_job: Callable[[], dg.JobDefinition]
) -> None:
    sample("alpha", 5)
    instance.add_dynamic_partitions(PROJECTS, ["alpha"])
    broken = "ALTER TABLE consolidation.relevance_scores"
    with engine.begin() as connection:
        connection.execute(text(f"{broken} ADD CONSTRAINT broken CHECK (relevance_score < 0) NOT VALID"))
    failed = find_job().execute_in_process(partition_key="alpha", instance=instance, raise_on_error=False)
    assert not failed.success
    with engine.begin() as connection:
        connection.execute(text(f"{broken} DROP CONSTRAINT broken"))
    again = dg.ReexecutionOptions.from_failure(failed.run_id, instance)
    tags, job = {"dagster/partition": "alpha"}, dg.reconstructable(find_job)
    with dg.execute_job(job, instance, tags=tags, reexecution_options=again) as result:
        assert result.success
    (_, (status, _, done, _)) = job_rows(engine)
    assert (status, done) == ("completed", ["decay_scores", "archived_memories", "consolidation_report"])
    with engine.connect() as connection:
        assert list_failing_jobs(connection) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "failed", "done"),
    [
        (
            "ALTER TABLE consolidation.memory_clusters ADD CHECK (tier = 'none')",
            "clusters",
            {"semantic_summaries", "procedural_profile"},
        ),
        (
            "ALTER TABLE consolidation.consolidated_memories ADD CHECK (kind <> 'summary')",
            "semantic_summaries",
            {"merged_memories", "patterns", "decay_scores", "consolidation_report"},
        ),
    ],
)
def test_merging_and_summarizing_are_independent(
    engine: Engine, sample: Sample, instance: dg.DagsterInstance, broken: str, failed: str, done: set[str]
) -> None:
    sample("alpha", 60)
    with engine.begin() as connection:
        connection.execute(text(broken))
    assert not materialize(instance, "alpha").success
    with engine.connect() as connection:
        row = connection.execute(text("SELECT * FROM consolidation.consolidation_jobs")).one()
    assert (row.status, row.phases_failed) == ("failed", [failed])
    assert done <= set(row.phases_completed)


def test_unsummarized_memories_request_one_job(engine: Engine, sample: Sample, instance: dg.DagsterInstance) -> None:
    sample("alpha", 60)
    context = sensor_context(engine, instance)
    tick = unsummarized_memories_sensor(context)
    assert isinstance(unsummarized_memories_sensor(context), dg.SkipReason)
    (job,) = list_job_ids(tick.run_requests)
    result = materialize(instance, "alpha", job="summarize", **{JOB_TAG: job})
    assert job_rows(engine) == [("completed", "threshold", list(JOB_PHASES["summarize"]), result.run_id)]
    assert isinstance(unsummarized_memories_sensor(context), dg.SkipReason)


def test_disabled_project_does_not_run(engine: Engine, sample: Sample, instance: dg.DagsterInstance) -> None:
    sample("alpha", 5)
    configure(engine, enabled=False)
    assert not materialize(instance, "alpha").success
    assert job_rows(engine) == []


def test_projects_sensor_adds_partitions(engine: Engine, sample: Sample, instance: dg.DagsterInstance) -> None:
    sample("alpha", 3)
    sample("beta", 3)
    context = sensor_context(engine, instance)
    tick = projects_sensor(context)
    assert isinstance(tick, dg.SensorResult)
    assert [list(r.partition_keys) for r in tick.dynamic_partitions_requests or ()] == [["alpha", "beta"]]
    assert tick.skip_reason == dg.SkipReason("partitions added: alpha, beta")
    instance.add_dynamic_partitions(PROJECTS, ["alpha", "beta"])
    assert isinstance(projects_sensor(context), dg.SkipReason)


def test_projects_sensor_lists_projects_once(
    engine: Engine, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure_project(engine, "alpha")
    listed: list[int] = []

    def count(connection: Connection) -> Sequence[Project]:
        listed.append(1)
        return list_projects(connection)

    for module in (sensors, run_requests):
        monkeypatch.setattr(module, "list_projects", count)
    assert isinstance(projects_sensor(sensor_context(engine, instance)), dg.SensorResult)
    assert listed == [1]


def test_projects_sensor_removes_partitions_of_deleted_projects(engine: Engine, instance: dg.DagsterInstance) -> None:
    for slug in ("alpha", "beta"):
        ensure_project(engine, slug)
    # One is of another code location with a database of its own.
    instance.add_dynamic_partitions(PROJECTS, ["alpha", "beta", "elsewhere"])
    instance.report_runless_asset_event(dg.AssetMaterialization("a", partition="beta"))
    context = sensor_context(engine, instance)
    assert isinstance(projects_sensor(context), dg.SkipReason)
    delete_project(engine, "beta", confirmed=True)
    later = sensor_context(engine, instance, cursor=context.cursor)
    tick = projects_sensor(later)
    assert isinstance(tick, dg.SensorResult)
    assert tick.skip_reason == dg.SkipReason("partitions removed: beta")
    [request] = tick.dynamic_partitions_requests or ()
    assert (list(request.partition_keys), isinstance(request, dg.DeleteDynamicPartitionsRequest)) == (["beta"], True)
    instance.delete_dynamic_partition(PROJECTS, "beta")
    assert isinstance(projects_sensor(sensor_context(engine, instance, cursor=later.cursor)), dg.SkipReason)
    [record] = instance.fetch_materializations(dg.AssetKey("a"), limit=9).records
    assert record.partition_key == "beta"


@pytest.mark.parametrize(("rows", "requested"), [(99, 0), (100, 1)])
def test_enough_new_memories_request_one_job(
    engine: Engine, sample: Sample, instance: dg.DagsterInstance, rows: int, requested: int
) -> None:
    sample("alpha", rows)
    context = sensor_context(engine, instance)
    ticks = [new_memories_sensor(context), new_memories_sensor(context)]
    jobs = list_job_ids(request for tick in ticks for request in getattr(tick, "run_requests", None) or ())
    assert len(jobs) == requested
    assert [row[:2] for row in job_rows(engine)] == [("pending", "threshold")] * requested


def test_run_executes_requested_job(engine: Engine, sample: Sample, instance: dg.DagsterInstance) -> None:
    sample("alpha", 100)
    tick = new_memories_sensor(sensor_context(engine, instance))
    (job,) = list_job_ids(tick.run_requests)
    result = materialize(instance, "alpha", **{JOB_TAG: job})
    assert job_rows(engine) == [("completed", "threshold", list(PHASES), result.run_id)]
    assert isinstance(new_memories_sensor(sensor_context(engine, instance)), dg.SkipReason)


def test_requested_job_launches_once_with_its_phases(
    engine: Engine, sample: Sample, instance: dg.DagsterInstance
) -> None:
    sample("alpha", 5)
    context = sensor_context(engine, instance)
    assert isinstance(requested_jobs_sensor(context), dg.SkipReason)
    requested = request_job(engine, "alpha", job="summarize", phases=["embedding_matrix"], triggered_by="ann")
    ticks = [requested_jobs_sensor(context) for _ in range(2)]
    (request,) = {request.run_key: request for tick in ticks for request in tick.run_requests}.values()
    assert (request.run_key, request.job_name, request.partition_key) == (
        str(requested.job_id),
        "consolidation_summarize",
        "alpha",
    )
    assert [list(r.partition_keys) for r in ticks[0].dynamic_partitions_requests or ()] == [["alpha"]]
    instance.add_dynamic_partitions(PROJECTS, ["alpha"])
    job = load_definitions().resolve_job_def("consolidation_summarize")
    result = job.execute_in_process(
        partition_key="alpha", instance=instance, tags=request.tags, asset_selection=list(request.asset_selection or ())
    )
    assert job_rows(engine) == [("completed", "manual", ["embedding_matrix"], result.run_id)]
    assert isinstance(requested_jobs_sensor(context), dg.SkipReason)


def test_launched_or_cancelled_job_is_not_relaunched(
    engine: Engine, sample: Sample, instance: dg.DagsterInstance
) -> None:
    sample("alpha", 5)
    context = sensor_context(engine, instance)
    requested = request_job(engine, "alpha", job="decay", triggered_by="ann")
    tags = {JOB_TAG: str(requested.job_id)}
    instance.add_dynamic_partitions(PROJECTS, ["alpha"])
    run = instance.create_run_for_job(load_definitions().resolve_job_def("consolidation_decay"), tags=tags)
    assert requested_jobs_sensor(context).run_requests  # created but not launched: the run key prevents a second launch
    instance.report_run_canceling(run)
    assert isinstance(requested_jobs_sensor(context), dg.SkipReason)
    instance.delete_run(run.run_id)
    assert requested_jobs_sensor(context).run_requests
    cancel_job(engine, requested.job_id, cancelled_by="bob")
    assert isinstance(requested_jobs_sensor(context), dg.SkipReason)
    assert not materialize(instance, "alpha", job="decay", **tags).success
    assert [row[0] for row in job_rows(engine)] == ["cancelled"]


@pytest.mark.slow
def test_nightly_schedule_takes_changed_projects(
    engine: Engine, sample: Sample, stored_instance: dg.DagsterInstance
) -> None:
    sample("alpha", 5)
    context = schedule_context(engine, stored_instance)
    assert "nothing new" in nightly_consolidation(context).skip_message  # it was imported after the scheduled time
    with engine.begin() as connection:
        connection.execute(text("UPDATE consolidation.task_memories SET created_at = created_at - interval '1 day'"))
    (job,) = list_job_ids(nightly_consolidation(context))
    assert stored_instance.get_dynamic_partitions(PROJECTS) == ["alpha"]
    materialize(stored_instance, "alpha", **{JOB_TAG: job})
    assert isinstance(nightly_consolidation(context), dg.SkipReason)


def test_daily_decay_scores_only(engine: Engine, sample: Sample, stored_instance: dg.DagsterInstance) -> None:
    sample("alpha", 5)
    (job,) = list_job_ids(daily_decay(schedule_context(engine, stored_instance)))
    result = materialize(stored_instance, "alpha", job="decay", **{JOB_TAG: job})
    assert job_rows(engine) == [("completed", "scheduled", ["decay_scores"], result.run_id)]


def test_lost_run_ends_its_job(engine: Engine, sample: Sample, instance: dg.DagsterInstance) -> None:
    sample("alpha", 5)
    with engine.begin() as connection:
        project = get_project(connection, "alpha")
        job = append_job(connection, project.id, trigger_type="scheduled", triggered_by="test", options={})
    configure(engine, enabled=False)
    run = materialize(instance, "alpha", **{JOB_TAG: str(job)})
    assert not run.success
    job_status_sensor(sensor_context(engine, instance))
    assert [row[0] for row in job_rows(engine)] == ["failed"]


def test_job_status_sensor_reconciles_runs_and_jobs(engine: Engine, instance: dg.DagsterInstance) -> None:
    status = dg.DagsterRunStatus
    runs: dict[str, dg.DagsterRun] = {}

    def launch(slug: str, how: dg.DagsterRunStatus) -> UUID:
        ensure_project(engine, slug)
        requested = request_job(engine, slug, job="decay", triggered_by="ann")
        tags = {JOB_TAG: str(requested.job_id)}
        runs[slug] = instance.create_run_for_job(
            load_definitions().resolve_job_def("consolidation_decay"), tags=tags, status=how
        )
        return requested.job_id

    ended = {"failed": status.FAILURE, "cancelled": status.CANCELED, "waits": status.STARTING, "killed": status.STARTED}
    jobs = {slug: launch(slug, how) for slug, how in ended.items()}
    jobs |= {slug: launch(slug, status.NOT_STARTED) for slug in ("void", "stopped", "deleted")}
    cancel_job(engine, jobs["void"], cancelled_by="bob")
    instance.report_run_canceled(runs["stopped"])
    instance.delete_run(runs["deleted"].run_id)
    with engine.begin() as connection:
        start_job(connection, jobs["killed"], run_id=runs["killed"].run_id, options={})
    context = sensor_context(engine, instance)
    message = job_status_sensor(context).skip_message
    assert f"runs marked as failed: {runs['killed'].run_id}" in message
    assert f"; runs cancelled with their jobs: {runs['void'].run_id}" in message
    with engine.connect() as connection:
        rows = {slug: get_job(connection, job).status for slug, job in jobs.items()}
    assert rows == {
        "failed": "failed",
        "cancelled": "cancelled",
        "waits": "pending",
        "void": "cancelled",
        "stopped": "cancelled",
        "deleted": "pending",
        "killed": "failed",
    }
    left = {slug: instance.get_run_by_id(runs[slug].run_id) for slug in ("waits", "void", "killed")}
    assert [run.status for run in left.values()] == [status.STARTING, status.CANCELED, status.FAILURE]
    assert [request.partition_key for request in requested_jobs_sensor(context).run_requests] == ["deleted"]
    assert job_status_sensor(context).skip_message == "all statuses are right"


def test_repeated_run_does_not_repeat_job(engine: Engine, sample: Sample, instance: dg.DagsterInstance) -> None:
    sample("alpha", 5)
    requested = request_job(engine, "alpha", job="decay", triggered_by="ann")
    tags = {JOB_TAG: str(requested.job_id)}
    assert materialize(instance, "alpha", job="decay", **tags).success
    repeated = materialize(instance, "alpha", job="decay", **tags)
    run = instance.get_run_by_id(repeated.run_id)
    assert run is not None
    assert run.status is dg.DagsterRunStatus.CANCELED  # not failed
    logs = [entry.message for entry in instance.all_logs(run.run_id)]
    assert f"another run took job {requested.job_id}, which is completed: nothing was run" in logs
    assert [row[0] for row in job_rows(engine)] == ["completed"]


@pytest.fixture
def dagster_home(empty_database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dagster home with a database of the test server as storage."""
    (tmp_path / "dagster.yaml").write_text((PROJECT_ROOT / "dagster.yaml").read_text())
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setenv("DAGSTER_POSTGRES_URL", empty_database_url)


@pytest.mark.slow
@pytest.mark.usefixtures("dagster_home")
def test_run_without_daemon_is_recorded(engine: Engine, sample: Sample) -> None:
    sample("alpha", 60)
    first = run_project("alpha")
    assert (first.status, first.error) == ("completed", None)
    with dg.DagsterInstance.get() as instance:
        run = instance.get_run_by_id(first.run_id or "")
        assert run is not None
        assert run.status is dg.DagsterRunStatus.SUCCESS
        assert instance.get_dynamic_partitions(PROJECTS) == ["alpha"]
    second: RunOutcome = run_project("alpha")
    assert (second.status, second.job_id) == ("unchanged", first.job_id)
    assert len(job_rows(engine)) == 1


@pytest.mark.usefixtures("dagster_home")
def test_chosen_phases_run_in_order_whatever_is_between(engine: Engine, sample: Sample) -> None:
    sample("alpha", 20)
    chosen = [name for name in PHASES if name not in ("merged_memories", "supersessions", "semantic_summaries")]
    run_project("alpha", phases=chosen[::-1])
    [(_, _, completed, _)] = job_rows(engine)
    assert completed == chosen


@pytest.mark.slow
@pytest.mark.usefixtures("dagster_home")
def test_single_phases_run_and_end_killed_run(engine: Engine, sample: Sample) -> None:
    sample("alpha", 20)
    with dg.DagsterInstance.get() as instance, engine.begin() as connection:
        job, started = load_definitions().resolve_job_def("consolidation_decay"), dg.DagsterRunStatus.STARTED
        killed, alive = (instance.create_run_for_job(job, status=started).run_id for _ in range(2))
        project = get_project(connection, "alpha")
        orphan = append_job(connection, project.id, trigger_type="manual", triggered_by="test", options={})
        start_job(connection, orphan, run_id=killed, options={})
    outcome = run_project("alpha", phases=["similarity_graph", "embedding_matrix"])
    assert outcome.status == "completed", outcome.error
    assert [row[0] for row in job_rows(engine)] == ["failed", "completed"]
    assert job_rows(engine)[1][2] == ["embedding_matrix", "similarity_graph"]
    with dg.DagsterInstance.get() as instance:
        left = {run.run_id: run.status.value for run in instance.get_runs()}
    assert left == {killed: "FAILURE", alive: "STARTED", outcome.run_id: "SUCCESS"}


@pytest.mark.usefixtures("dagster_home")
def test_invalid_run_request_writes_nothing(engine: Engine, sample: Sample) -> None:
    sample("alpha", 3)
    with pytest.raises(UsageError, match=r"mergd.*its phases are embedding_matrix"):
        run_project("alpha", phases=["mergd"])
    with pytest.raises(NotFoundError, match="no project 'beta'; projects: alpha"):
        run_project("beta")
    configure(engine, enabled=False)
    with pytest.raises(ProjectDisabledError, match="disabled"):
        run_project("alpha")
    assert job_rows(engine) == []


@pytest.mark.usefixtures("dagster_home", "engine")
def test_register_projects_adds_partitions(sample: Sample) -> None:
    sample("alpha", 1)
    assert register_projects() == ["alpha"]
    with dg.DagsterInstance.get() as instance:
        assert instance.get_dynamic_partitions(PROJECTS) == ["alpha"]


@pytest.mark.slow
@pytest.mark.usefixtures("dagster_home", "engine")
def test_run_writes_nothing_to_working_directory(
    sample: Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    sample("alpha", 3)
    assert run_project("alpha").status == "completed"
    assert list(elsewhere.iterdir()) == []


def find_check_events(instance: dg.DagsterInstance, run_id: str, check: str) -> dict[str | None, bool]:
    """Return the results of a check in a run, by partition."""
    events = instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
    found = [event.dagster_event.asset_check_evaluation_data for event in events if event.dagster_event]
    return {one.partition: one.passed for one in found if one.check_name == check}


@pytest.mark.slow
@pytest.mark.breaks_rules
def test_checks_without_partition_cover_all_projects(
    engine: Engine, sample: Sample, stored_instance: dg.DagsterInstance
) -> None:
    for slug in ("alpha", "beta"):
        sample(slug, 5)
        assert materialize(stored_instance, slug, "decay").success
    with engine.begin() as connection:
        connection.execute(
            text(
                "DELETE FROM consolidation.relevance_scores WHERE project_id = "
                "(SELECT id FROM consolidation.projects WHERE slug = 'beta')"
            )
        )
    # As by "Execute all" in the UI: a part of the job of all assets, without a partition.
    job = load_definitions().resolve_implicit_global_asset_job_def()
    checks = {dg.AssetCheckKey(asset_key("decay_scores"), "relevance_is_positive")}
    part = job.get_subset(asset_selection=set(), asset_check_selection=checks)
    result = part.execute_in_process(instance=stored_instance, raise_on_error=False)
    found = find_check_events(stored_instance, result.run_id, "relevance_is_positive")
    assert found == {"alpha": True, "beta": False, None: False}
    assert not result.success  # it blocks
    harmless = {dg.AssetCheckKey(asset_key("embedding_matrix"), "one_embedding_model")}
    part = job.get_subset(asset_selection=set(), asset_check_selection=harmless)
    result = part.execute_in_process(instance=stored_instance)
    assert find_check_events(stored_instance, result.run_id, "one_embedding_model") == dict.fromkeys(
        ("alpha", "beta", None), True
    )


def test_checks_leave_out_what_waits_for_a_run(
    engine: Engine, sample: Sample, stored_instance: dg.DagsterInstance
) -> None:
    sample("alpha", 5)
    sample("beta", 5)
    assert materialize(stored_instance, "alpha").success
    sample("alpha", 8)
    keys = {
        name: dg.AssetCheckKey(asset_key(asset), name)
        for asset, name in (("embedding_matrix", "every_memory_is_embedded"), ("decay_scores", "relevance_is_positive"))
    }
    job = load_definitions().resolve_implicit_global_asset_job_def()
    part = job.get_subset(asset_selection=set(), asset_check_selection=set(keys.values()))
    with engine.connect() as connection:
        unembedded = "SELECT count(*) FROM consolidation.task_memories WHERE embedding IS NULL"
        assert connection.scalar(text(unembedded)) == 8
    result = part.execute_in_process(instance=stored_instance)
    for name in keys:
        found = find_check_events(stored_instance, result.run_id, name)
        assert found == dict.fromkeys(("alpha", "beta", None), True)


def test_import_is_observed_once(engine: Engine, sample: Sample, instance: dg.DagsterInstance) -> None:
    sample("alpha", 3)
    tick = task_memories_sensor(sensor_context(engine, instance))
    assert isinstance(tick, dg.SensorResult)
    assert tick.skip_reason == dg.SkipReason("raw memories observed: alpha")
    (event,) = tick.asset_events
    assert (event.asset_key, event.partition) == (asset_key("task_memories"), "alpha")
    assert event.metadata["dagster/partition_row_count"].value == 3
    assert isinstance(task_memories_sensor(sensor_context(engine, instance, cursor=tick.cursor)), dg.SkipReason)
    sample("alpha", 5)
    again = task_memories_sensor(sensor_context(engine, instance, cursor=tick.cursor))
    assert isinstance(again, dg.SensorResult)
    assert again.asset_events[0].tags != event.tags


def test_launchpad_overrides_resource(engine: Engine, sample: Sample, instance: dg.DagsterInstance) -> None:
    sample("alpha", 5)
    instance.add_dynamic_partitions(PROJECTS, ["alpha"])
    job = load_definitions().resolve_job_def("consolidation_decay")
    url = engine.url.render_as_string(hide_password=False)
    config = {"database_url": url, "options": {"decay_rate": 0.2}}
    run_config = {"resources": {"consolidation": {"config": config}}}
    assert job.execute_in_process(partition_key="alpha", instance=instance, run_config=run_config).success
    with engine.connect() as connection:
        query = "SELECT (options ->> 'decay_rate')::float8 FROM consolidation.consolidation_jobs"
        assert connection.execute(text(query)).scalar_one() == 0.2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"t_mege": 0.9}, "project alpha cannot be run: t_mege is not an option; the options are merge, "),
        ({"t_merge": 2}, "project alpha cannot be run: t_merge = 2 is not allowed: expected 'auto' or a number"),
    ],
)
def test_wrong_option_in_launchpad_is_a_sentence(
    sample: Sample, instance: dg.DagsterInstance, options: dict[str, Any], message: str
) -> None:
    sample("alpha", 3)
    instance.add_dynamic_partitions(PROJECTS, ["alpha"])
    job = load_definitions().resolve_job_def("consolidation_decay")
    run_config = {"resources": {"consolidation": {"config": {"options": options}}}}
    result = job.execute_in_process(
        partition_key="alpha", instance=instance, run_config=run_config, raise_on_error=False
    )
    (failed,) = [event for event in result.all_events if event.is_step_failure]
    assert failed.step_failure_data.user_failure_data.description.startswith(message)


def test_model_failure_is_warning_check(engine: Engine, sample: Sample) -> None:
    sample("alpha", 3)
    failed = {"patterns": {"llm/failed": 2, "llm/error": "no key"}}
    with engine.begin() as connection:
        project = get_project(connection, "alpha")
        job = append_job(connection, project.id, trigger_type="manual", triggered_by="test", options={})
        connection.execute(
            text("UPDATE consolidation.consolidation_jobs SET metrics = CAST(:metrics AS jsonb) WHERE id = :job"),
            {"job": job, "metrics": json.dumps(failed)},
        )
        assert find_model_failure(connection, project.id, "patterns") == [
            "2 groups without a text of the model: no key"
        ]
        assert find_model_failure(connection, project.id, "principles") == []


def test_phase_that_stopped_early_is_logged_as_warning(sample: Sample, instance: dg.DagsterInstance) -> None:
    sample("alpha", 3)
    instance.add_dynamic_partitions(PROJECTS, ["alpha"])

    @phase_asset("lifecycle", table="task_memories", deps=[])
    def decay_scores(_: ProjectRun, phase: PhaseResult) -> None:
        phase.metrics = {"memories_in": 3, "stopped": "the budget is exhausted"}

    result = dg.materialize(
        [decay_scores], partition_key="alpha", instance=instance, resources={RESOURCE: ConsolidationResource()}
    )
    (line,) = [entry for entry in instance.all_logs(result.run_id) if not entry.is_dagster_event]
    assert line.level == logging.WARNING
    assert line.user_message.startswith("decay_scores of alpha: memories_in 3, stopped: the budget is exhausted; ")


@pytest.mark.slow
def test_run_log_and_merges_tell_what_was_done(engine: Engine, sample: Sample, instance: dg.DagsterInstance) -> None:
    sample("alpha", 120)
    result = materialize(instance, "alpha")
    lines = [entry.user_message for entry in instance.all_logs(result.run_id) if not entry.is_dagster_event]
    assert len([line for line in lines if line.startswith("merged_memories of alpha: memories_merged ")]) == 1
    (event,) = result.asset_materializations_for_node("consolidation__merged_memories")
    records = event.metadata["examples"].records  # type: ignore[union-attr]
    assert 1 <= len(records) <= 3
    assert records[0].data["texts"] == f"consolidation lineage {records[0].data['memory']}"
    with engine.connect() as connection:
        query = "SELECT count(*) FROM consolidation.consolidated_memories WHERE kind = 'merged' AND retired_at IS NULL"
        assert event.metadata["dagster/partition_row_count"].value == connection.execute(text(query)).scalar_one()
