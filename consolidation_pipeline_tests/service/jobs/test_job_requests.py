"""Requested jobs: the queue of a project; cancellation of jobs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import pytest

from consolidation_pipeline.errors import (
    ConflictError,
    JobCancelledError,
    NotFoundError,
    ProjectDisabledError,
    UsageError,
)
from consolidation_pipeline.service.jobs import job_requests
from consolidation_pipeline.service.jobs.job_requests import (
    CancelledJob,
    RequestedJob,
    cancel_job,
    explain_taken,
    list_pending_jobs,
    list_unlaunched_jobs,
    request_job,
)
from consolidation_pipeline.service.jobs.triggers import is_due_tonight, request_jobs
from consolidation_pipeline.service.knowledge import merged_memories
from consolidation_pipeline.service.runs.phases import JOB_PHASES, PHASES
from consolidation_pipeline.store.knowledge.merged_memories import write_merged
from consolidation_pipeline_tests.service.corpus import LESSONS, note, unrelated_notes
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline, run_phases
from consolidation_pipeline_tests.service.runs.test_run_lifecycle import events, job
from consolidation_pipeline_tests.service.table_dumps import dump_knowledge

NEAR_DUPLICATES = [note("a", LESSONS[0]), note("b", f"Note to self: {LESSONS[0]}"), note("c", LESSONS[1])]


@pytest.fixture
def pipeline(pipeline: Pipeline) -> Pipeline:
    """Pipeline with a project of unrelated memories."""
    pipeline.add(unrelated_notes())
    return pipeline


def make_request(pipeline: Pipeline, slug: str = SLUG, **what: object) -> RequestedJob:
    return request_job(pipeline.engine, slug, triggered_by="ann", **what)  # type: ignore[arg-type]


def list_unlaunched(pipeline: Pipeline, *launched: UUID) -> list[UUID]:
    return [found.job_id for found in list_unlaunched_jobs(pipeline.engine, lambda _: launched)]


def test_requested_job_is_claimed_by_next_run(pipeline: Pipeline) -> None:
    pipeline.configure(timeout_seconds=120)
    requested = make_request(pipeline)
    assert (requested.status, requested.created, requested.project, requested.job, requested.phases) == (
        "pending",
        True,
        SLUG,
        "consolidate",
        PHASES,
    )
    assert (requested.trigger_type, requested.triggered_by, requested.timeout_seconds) == ("manual", "ann", 120)
    assert requested.estimated_seconds is None
    assert pipeline.run().job_id == requested.job_id
    again = make_request(pipeline, job="decay")
    assert again.created
    assert again.job_id != requested.job_id
    assert again.estimated_seconds == job(pipeline, requested.job_id).duration_seconds


def test_request_returns_same_live_job(pipeline: Pipeline) -> None:
    first = make_request(pipeline, job="decay")
    again = make_request(pipeline, job="decay", phases=["decay_scores"])
    assert (again.job_id, again.created, again.jobs_ahead) == (first.job_id, False, 0)
    with pipeline.open(planned=("decay_scores",)) as run:
        running = make_request(pipeline, job="decay")
        assert (running.job_id, running.status) == (first.job_id, "running")
        run_phases(run, ["decay_scores"])
    assert pipeline.value("SELECT count(*) FROM {s}.consolidation_jobs") == 1


def test_requests_of_other_kinds_run_in_order(pipeline: Pipeline) -> None:
    what: list[dict[str, Any]] = [
        {"job": "decay"},
        {"job": "summarize"},
        {"job": "decay", "options": {"decay_rate": 0.5}},
        {"job": "consolidate", "phases": ["embedding_matrix"]},
    ]
    asked = [make_request(pipeline, **one) for one in what]
    assert [one.created for one in asked] == [True] * 4
    assert [one.jobs_ahead for one in asked] == [0, 1, 2, 3]
    assert [one.job_id for one in list_pending_jobs(pipeline.engine)] == [one.job_id for one in asked]
    for one in asked:
        assert list_unlaunched(pipeline) == [one.job_id]
        with pipeline.open(job=one.job, planned=one.phases, requested=one.job_id) as run:
            assert list_unlaunched(pipeline) == []
            run_phases(run, one.phases)
        assert (run.job_id, job(pipeline, one.job_id).status) == (one.job_id, "completed")
    assert run.options.decay_rate != 0.5


def test_endless_requests_are_refused(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_requests, "MAX_PENDING", 2)
    first, second = (make_request(pipeline, job=name) for name in ("decay", "summarize"))
    assert not make_request(pipeline, job="summarize").created
    with pytest.raises(ConflictError, match="2 pending jobs, and no more are queued") as refused:
        make_request(pipeline)
    assert refused.value.conflicts == (str(first.job_id), str(second.job_id))


def test_concurrent_job_requests_create_one_job(pipeline: Pipeline) -> None:
    with ThreadPoolExecutor(8) as pool:
        requested = list(pool.map(lambda _: make_request(pipeline), range(16)))
    assert len({one.job_id for one in requested}) == 1
    assert [one.created for one in requested].count(True) == 1


def test_request_replaces_job_of_dead_process(pipeline: Pipeline) -> None:
    dead = make_request(pipeline)
    pipeline.write("UPDATE {s}.consolidation_jobs SET status = 'running', started_at = now()")
    assert make_request(pipeline).created
    assert job(pipeline, dead.job_id).status == "failed"


def test_invalid_request_creates_no_job(pipeline: Pipeline) -> None:
    with pytest.raises(UsageError, match=r"mergd.*its phases are embedding_matrix"):
        make_request(pipeline, phases=["clusters", "mergd"])
    with pytest.raises(UsageError, match="the jobs are consolidate"):
        make_request(pipeline, job="dream")
    with pytest.raises(UsageError, match="scheduled, manual, threshold"):
        make_request(pipeline, trigger_type="api")
    with pytest.raises(NotFoundError, match="nowhere"):
        make_request(pipeline, "nowhere")
    pipeline.configure(enabled=False)
    with pytest.raises(ProjectDisabledError, match=SLUG):
        make_request(pipeline)
    assert pipeline.value("SELECT count(*) FROM {s}.consolidation_jobs") == 0


def test_requested_phases_are_claimed_by_matching_run(pipeline: Pipeline) -> None:
    requested = make_request(pipeline, phases=["similarity_graph", "embedding_matrix"])
    assert requested.phases == ("embedding_matrix", "similarity_graph")
    with pipeline.open(planned=requested.phases, requested=requested.job_id) as run:
        run_phases(run, requested.phases)
    assert run.job_id == requested.job_id
    other = make_request(pipeline, phases=["clusters"])
    assert pipeline.run().job_id != other.job_id
    assert job(pipeline, other.job_id).status == "pending"


def test_pending_jobs_are_listed_oldest_first(pipeline: Pipeline) -> None:
    for slug in ("b", "a", "off"):
        pipeline.add(unrelated_notes(), slug=slug)
    requested = [make_request(pipeline, slug, job="decay") for slug in ("b", "a", "off")]
    pipeline.configure("off", enabled=False)
    assert [(one.project, one.job_id, one.job) for one in list_pending_jobs(pipeline.engine)] == [
        (one.project, one.job_id, "decay") for one in requested[:2]
    ]
    assert explain_taken(pipeline.engine, requested[2].job_id) is None
    assert explain_taken(pipeline.engine, unknown := uuid4()) == f"job {unknown} was deleted"


def test_request_is_unlaunched_until_run_or_lock(pipeline: Pipeline) -> None:
    with pipeline.open() as run:
        run_phases(run)
        pipeline.write("UPDATE {s}.consolidation_jobs SET status = 'completed'")
        requested = make_request(pipeline)
        assert list_unlaunched(pipeline) == []
    assert list_unlaunched(pipeline) == [requested.job_id]
    assert list_unlaunched(pipeline, requested.job_id) == []


def test_triggered_job_is_unlaunched_after_lost_launch(pipeline: Pipeline) -> None:
    (made,) = request_jobs(
        pipeline.engine, is_due_tonight, job="consolidate", trigger_type="scheduled", triggered_by="night"
    ).requests
    assert list_unlaunched(pipeline) == []
    pipeline.write("UPDATE {s}.consolidation_jobs SET created_at = now() - interval '11 minutes'")
    assert list_unlaunched(pipeline) == [made.job_id]
    assert list_unlaunched(pipeline, made.job_id) == []


def test_cancelled_pending_job_does_not_run(pipeline: Pipeline) -> None:
    requested = make_request(pipeline)
    cancelled = cancel_job(pipeline.engine, requested.job_id, cancelled_by="bob")
    assert (cancelled.project, cancelled.previous_status, cancelled.status) == (SLUG, "pending", "cancelled")
    row = job(pipeline, requested.job_id)
    assert (row.status, row.error_message, row.metrics["cancelled_by"]) == ("cancelled", "cancelled by bob", "bob")
    assert events(pipeline)[-1] == "consolidation.cancelled"
    with pytest.raises(JobCancelledError, match="cancelled by bob: nothing was run"), pipeline.open(requested=row.id):
        pytest.fail("it was opened")
    assert pipeline.value("SELECT count(*) FROM {s}.consolidation_jobs") == 1
    assert pipeline.run().job_id != requested.job_id


def test_cancelled_running_job_stops_writing(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.add([*NEAR_DUPLICATES, note("d", f"{LESSONS[1]}!")])
    before = dump_knowledge(pipeline)
    monkeypatch.setattr(merged_memories, "BATCH", 1)
    cancelled: list[CancelledJob] = []

    def write(*arguments: Any, **how: Any) -> None:
        if pipeline.value("SELECT count(*) FROM {s}.consolidated_memories"):
            cancelled.append(cancel_job(pipeline.engine, run.job_id, cancelled_by="bob"))
        write_merged(*arguments, **how)

    monkeypatch.setattr(merged_memories, "write_merged", write)
    with pipeline.open() as run:
        run_phases(run, PHASES[:4])
        with pytest.raises(JobCancelledError, match="cancelled by bob: nothing was written"):
            run_phases(run, ["merged_memories"])
        with pytest.raises(JobCancelledError, match="cancelled by bob: patterns was not begun"):
            run_phases(run, ["patterns"])
    [done] = cancelled
    assert (done.previous_status, done.phases_completed) == ("running", PHASES[:4])
    assert pipeline.value("SELECT count(*) FROM {s}.consolidated_memories") == 1
    row = job(pipeline, run.job_id)
    assert (row.status, row.phases_completed, row.phases_failed) == ("cancelled", list(PHASES[:4]), [])
    assert events(pipeline) == ["consolidation.started", "consolidation.cancelled"]
    assert dump_knowledge(pipeline) != before
    pipeline.roll_back(run.job_id)
    assert dump_knowledge(pipeline) == before


def test_cancelled_job_refuses_every_phase(pipeline: Pipeline) -> None:
    with pipeline.open() as run:
        cancel_job(pipeline.engine, run.job_id, cancelled_by="bob")
        for name in ("embedding_matrix", "decay_scores"):
            with pytest.raises(JobCancelledError), run.phase(name):
                pytest.fail(f"{name} began")
    row = job(pipeline, run.job_id)
    assert (row.status, row.phases_completed, row.phases_failed) == ("cancelled", [], [])
    assert job(pipeline, pipeline.run().job_id).status == "completed"


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_cancelling_ended_job_is_refused(pipeline: Pipeline, status: str) -> None:
    requested = make_request(pipeline, job="decay")
    pipeline.write("UPDATE {s}.consolidation_jobs SET status = :status", status=status)
    with pytest.raises(ConflictError, match=f"is {status}"):
        cancel_job(pipeline.engine, requested.job_id, cancelled_by="bob")
    assert job(pipeline, requested.job_id).status == status
    with pytest.raises(NotFoundError, match="no job"):
        cancel_job(pipeline.engine, uuid4(), cancelled_by="bob")


def test_cancelling_dead_job_marks_it_failed(pipeline: Pipeline) -> None:
    requested = make_request(pipeline)
    pipeline.write("UPDATE {s}.consolidation_jobs SET status = 'running', started_at = now()")
    with pytest.raises(ConflictError, match="is failed"):
        cancel_job(pipeline.engine, requested.job_id, cancelled_by="bob")


def test_every_job_can_be_requested_by_name(pipeline: Pipeline) -> None:
    for name, phases in JOB_PHASES.items():
        pipeline.configure_new(name)
        assert make_request(pipeline, name, job=name).phases == phases
