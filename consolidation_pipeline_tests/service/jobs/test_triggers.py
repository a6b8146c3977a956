"""Triggers: conditions under which jobs are due, and one job per project at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from consolidation_pipeline.service.jobs.triggers import (
    IsDue,
    TriggerDecision,
    can_summarize,
    has_memories,
    is_due_tonight,
    is_threshold_due,
    request_jobs,
)
from consolidation_pipeline.service.runs.phases import JOB_PHASES, PHASES
from consolidation_pipeline_tests.service.corpus import note
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline, run_phases


def request_due(pipeline: Pipeline, due: IsDue = is_threshold_due, job: str = "consolidate") -> TriggerDecision:
    return request_jobs(pipeline.engine, due, job=job, trigger_type="threshold", triggered_by="sensor")


def job_ids(decision: TriggerDecision) -> dict[str, UUID]:
    return {request.slug: request.job_id for request in decision.requests}


def numbered_notes(count: int, prefix: str = "n") -> list[dict[str, object]]:
    return [dict(note(f"{prefix}{at}", f"Memory {prefix} number {at}.")) for at in range(count)]


@contextmanager
def running_job(pipeline: Pipeline, slug: str = SLUG) -> Iterator[UUID]:
    with pipeline.open(slug) as run:
        yield run.job_id
        run_phases(run)


def test_project_is_due_at_memory_threshold(pipeline: Pipeline) -> None:
    pipeline.configure_new(new_threshold=10, timeout_seconds=120)
    pipeline.add(numbered_notes(9))
    below = request_due(pipeline)
    assert below.requests == []
    assert "9 new memories" in below.skipped[SLUG]
    pipeline.add(numbered_notes(10))
    (request,) = request_due(pipeline).requests
    assert (request.slug, request.timeout_seconds) == (SLUG, 120)
    assert "10 new memories" in request.reason
    row = pipeline.rows("SELECT id, status, trigger_type, triggered_by, scope, options FROM {s}.consolidation_jobs")[0]
    assert (row.id, row.status, row.trigger_type, row.triggered_by) == (
        request.job_id,
        "pending",
        "threshold",
        "sensor",
    )
    assert (row.scope, row.options["new_threshold"]) == ({"job": "consolidate"}, 10)


def test_processed_memories_are_not_new(pipeline: Pipeline) -> None:
    pipeline.configure_new(new_threshold=10)
    pipeline.add(numbered_notes(12))
    pipeline.run()
    pipeline.add(numbered_notes(9, "more"))
    assert "9 new memories" in request_due(pipeline).skipped[SLUG]
    pipeline.add(numbered_notes(1, "last"))
    assert job_ids(request_due(pipeline)).keys() == {SLUG}


def test_scored_memories_remain_new(pipeline: Pipeline) -> None:
    pipeline.configure_new(new_threshold=10)
    pipeline.add(numbered_notes(10))
    pipeline.run_phases(["decay_scores"], planned=("decay_scores",))
    assert job_ids(request_due(pipeline)).keys() == {SLUG}


def test_memories_added_during_run_are_new(pipeline: Pipeline) -> None:
    pipeline.configure_new(new_threshold=10)
    pipeline.add(numbered_notes(12))
    with pipeline.open() as run:
        run_phases(run, PHASES[:3])
        pipeline.add(numbered_notes(10, "meanwhile"))
        run_phases(run, PHASES[3:])
    assert "10 new memories" in request_due(pipeline).requests[0].reason


def test_projects_are_due_independently(pipeline: Pipeline) -> None:
    for slug, threshold in (("due", 10), ("not-due", 50)):
        pipeline.configure_new(slug, new_threshold=threshold)
        pipeline.add(numbered_notes(20), slug=slug)
    pipeline.configure_new("empty")
    decision = request_due(pipeline)
    assert job_ids(decision).keys() == {"due"}
    assert decision.skipped.keys() == {"empty", "not-due"}


def test_nightly_job_is_due_by_new_or_active_memories(pipeline: Pipeline) -> None:
    pipeline.configure_new(active_threshold=500)
    assert request_due(pipeline, is_due_tonight).requests == []
    pipeline.add(numbered_notes(1))
    (request,) = request_due(pipeline, is_due_tonight).requests
    assert "1 new memories" in request.reason
    _settle(pipeline)
    pipeline.add(numbered_notes(500))
    _settle(pipeline)
    assert "500 active memories do not exceed" in request_due(pipeline, is_due_tonight).skipped[SLUG]
    pipeline.add(numbered_notes(1, "more"))
    _settle(pipeline)
    assert "501 active memories exceed" in request_due(pipeline, is_due_tonight).requests[0].reason


def _settle(pipeline: Pipeline) -> None:
    """Change the tables as if a run of the project had just completed."""
    pipeline.write("DELETE FROM {s}.consolidation_jobs")
    pipeline.write("UPDATE {s}.task_memories SET embedding = '[1]', embedding_model = 'test', embedding_dim = 1")
    pipeline.write(
        "INSERT INTO {s}.consolidation_jobs (project_id, status, trigger_type, started_at, phases_completed) "
        "SELECT id, 'completed', 'manual', clock_timestamp(), '{merged_memories}' FROM {s}.projects"
    )


def test_decay_is_due_wherever_memories_exist(pipeline: Pipeline) -> None:
    pipeline.configure_new("empty")
    pipeline.add(numbered_notes(1))
    decision = request_due(pipeline, has_memories, "decay")
    assert job_ids(decision).keys() == {SLUG}
    assert decision.skipped == {"empty": "0 active memories"}


def test_disabled_project_is_not_due(pipeline: Pipeline) -> None:
    pipeline.configure_new(new_threshold=10)
    pipeline.add(numbered_notes(20))
    pipeline.configure(enabled=False, new_threshold=10)
    decision = request_due(pipeline)
    assert (decision.requests, decision.skipped) == ([], {SLUG: "consolidation is disabled"})
    assert pipeline.value("SELECT count(*) FROM {s}.consolidation_jobs") == 0


def test_running_job_blocks_second_job(pipeline: Pipeline) -> None:
    pipeline.configure_new(new_threshold=10)
    pipeline.add(numbered_notes(20))
    with running_job(pipeline) as job_id:
        for due, job in ((is_threshold_due, "consolidate"), (has_memories, "decay")):
            decision = request_due(pipeline, due, job)
            assert (decision.requests, decision.skipped) == ([], {SLUG: f"job {job_id} is running"})
    assert pipeline.value("SELECT count(*) FROM {s}.consolidation_jobs") == 1


def test_pending_job_is_not_requested_again(pipeline: Pipeline) -> None:
    pipeline.configure_new(new_threshold=10)
    pipeline.add(numbered_notes(20))
    first, second = job_ids(request_due(pipeline)), request_due(pipeline)
    assert (second.requests, second.skipped) == ([], {SLUG: f"job {first[SLUG]} is pending"})
    assert pipeline.value("SELECT count(*) FROM {s}.consolidation_jobs") == 1
    assert pipeline.run().job_id == first[SLUG]


def test_pending_job_blocks_other_job_names(pipeline: Pipeline) -> None:
    pipeline.configure_new(new_threshold=10)
    pipeline.configure_new("other", new_threshold=10)
    pipeline.add(numbered_notes(20))
    pipeline.add(numbered_notes(20), slug="other")
    whole = job_ids(request_due(pipeline))
    refused = request_due(pipeline, has_memories, "decay")
    assert refused.requests == []
    assert refused.skipped == {slug: f"job {job_id} is pending" for slug, job_id in whole.items()}
    pipeline.write("DELETE FROM {s}.consolidation_jobs")
    scoring = job_ids(request_due(pipeline, has_memories, "decay"))
    refused = request_due(pipeline)
    assert refused.skipped == {slug: f"job {job_id} is pending" for slug, job_id in scoring.items()}


def ask_for_summary(pipeline: Pipeline) -> TriggerDecision:
    return request_due(pipeline, can_summarize, "summarize")


def summarize(pipeline: Pipeline) -> None:
    """Run the requested summarize job."""
    phases = JOB_PHASES["summarize"]
    pipeline.run_phases(phases, job="summarize", planned=phases, trigger_type="threshold")


def test_summary_is_due_at_fifty_memories(pipeline: Pipeline) -> None:
    pipeline.add(numbered_notes(49))
    assert "49 memories are not summarized" in ask_for_summary(pipeline).skipped[SLUG]
    pipeline.add(numbered_notes(1, "more"))
    (request,) = ask_for_summary(pipeline).requests
    assert pipeline.value("SELECT scope FROM {s}.consolidation_jobs") == {"job": "summarize"}
    assert ask_for_summary(pipeline).skipped == {SLUG: f"job {request.job_id} is pending"}
    summarize(pipeline)
    assert pipeline.rows("SELECT id, status, summaries_created FROM {s}.consolidation_jobs") == [
        (request.job_id, "completed", 1)
    ]
    assert "0 memories are not summarized" in ask_for_summary(pipeline).skipped[SLUG]


def test_ended_session_makes_summary_due(pipeline: Pipeline) -> None:
    pipeline.add([row | {"session_id": "one"} for row in numbered_notes(8)])
    assert ask_for_summary(pipeline).requests == []
    pipeline.write("UPDATE {s}.task_memories SET created_at = created_at - interval '31 minutes'")
    assert "a session ended" in ask_for_summary(pipeline).requests[0].reason
    pipeline.add([row | {"session_id": "one"} for row in numbered_notes(1, "still")])
    assert ask_for_summary(pipeline).requests == []


def test_failed_summary_is_due_again_with_new_memories(pipeline: Pipeline) -> None:
    """Fifty users have one memory each: a summary would be as long as its memories."""
    pipeline.add([row | {"user_id": f"user-{at}"} for at, row in enumerate(numbered_notes(50))])
    assert len(ask_for_summary(pipeline).requests) == 1
    summarize(pipeline)
    assert pipeline.value("SELECT count(*) FROM {s}.consolidated_memories") == 0
    assert "0 memories are not summarized" in ask_for_summary(pipeline).skipped[SLUG]
    pipeline.add([row | {"user_id": "one"} for row in numbered_notes(50, "more")])
    assert len(ask_for_summary(pipeline).requests) == 1


def test_disabled_summaries_are_never_due(pipeline: Pipeline) -> None:
    pipeline.configure_new(summarize=False)
    pipeline.add(numbered_notes(60))
    assert ask_for_summary(pipeline).skipped == {SLUG: "summarize is off"}
