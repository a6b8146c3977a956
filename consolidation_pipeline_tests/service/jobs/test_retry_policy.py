"""Failed jobs: retried twice, then dead until their schedule or a manual run."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from consolidation_pipeline.core.jobs.triggers import Due
from consolidation_pipeline.service.admin.database_checks import _check_jobs
from consolidation_pipeline.service.admin.findings import Finding
from consolidation_pipeline.service.admin.health import WorkMonitor
from consolidation_pipeline.service.jobs.job_requests import RequestedJob, request_job
from consolidation_pipeline.service.jobs.job_status import describe_job, describe_project, list_jobs
from consolidation_pipeline.service.jobs.retry_policy import describe_failing_job, list_failing_jobs, request_retries
from consolidation_pipeline.service.jobs.triggers import (
    TriggerDecision,
    describe_skipped,
    is_due_tonight,
    is_threshold_due,
    request_jobs,
)
from consolidation_pipeline.service.runs.phases import PHASES
from consolidation_pipeline.store.jobs import jobs
from consolidation_pipeline_tests.service.jobs.test_triggers import numbered_notes
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline, run_phases
from consolidation_pipeline_tests.store.sample_rows import record_statements

MORNING = datetime(2026, 1, 8, 9, tzinfo=UTC)


@pytest.fixture
def project(pipeline: Pipeline) -> Pipeline:
    """Pipeline with a project that is due by its threshold and by its schedule."""
    pipeline.configure_new(new_threshold=10)
    pipeline.add(numbered_notes(12))
    return pipeline


def request_by_threshold(pipeline: Pipeline, now: datetime | None = None) -> TriggerDecision:
    return request_jobs(
        pipeline.engine, is_threshold_due, job="consolidate", trigger_type="threshold", triggered_by="sensor", now=now
    )


def request_by_schedule(pipeline: Pipeline, now: datetime | None = None) -> TriggerDecision:
    return request_jobs(
        pipeline.engine,
        is_due_tonight,
        job="consolidate",
        trigger_type="scheduled",
        triggered_by="night",
        by_cron=True,
        now=now,
    )


def end_job(pipeline: Pipeline, job_id: UUID, status: str = "failed") -> None:
    with pipeline.engine.begin() as connection:
        jobs.finish_job(connection, job_id, status, error="no database")


def request_due_retries(pipeline: Pipeline, after: timedelta) -> list[RequestedJob]:
    return request_retries(pipeline.engine, datetime.now(UTC) + after)


def newest_job(pipeline: Pipeline) -> Any:
    return list_jobs(pipeline.engine, SLUG, limit=1)[0]


def kill_three_times(pipeline: Pipeline) -> None:
    """Fail the job that a sensor requested and both of its retries."""
    end_job(pipeline, request_by_threshold(pipeline).requests[0].job_id)
    for minutes in (1, 5):
        (again,) = request_due_retries(pipeline, timedelta(minutes=minutes))
        end_job(pipeline, again.job_id)


def test_failed_job_is_dead_after_three_attempts(project: Pipeline) -> None:
    end_job(project, request_by_threshold(project).requests[0].job_id)
    assert request_due_retries(project, timedelta(seconds=30)) == []
    assert "attempt 1 of 3 failed" in request_by_threshold(project).skipped[SLUG]
    (second,) = request_due_retries(project, timedelta(minutes=1))
    assert (second.trigger_type, second.triggered_by, second.job) == ("threshold", "sensor", "consolidate")
    assert request_due_retries(project, timedelta(minutes=1)) == []
    end_job(project, second.job_id)
    assert request_due_retries(project, timedelta(minutes=4)) == []
    assert "attempt 2 of 3 failed" in request_by_threshold(project).skipped[SLUG]
    (third,) = request_due_retries(project, timedelta(minutes=5))
    end_job(project, third.job_id)
    assert request_due_retries(project, timedelta(days=9)) == []
    assert "dead after 3 failures in a row" in request_by_threshold(project).skipped[SLUG]
    assert [row["dead"] for row in list_jobs(project.engine, SLUG, limit=9)] == [True, False, False]
    assert [row["retry_count"] for row in list_jobs(project.engine, SLUG, limit=9)] == [3, 2, 1]


def test_dead_job_is_well_after_the_phases_it_left(project: Pipeline) -> None:
    for _ in range(3):
        with suppress(ZeroDivisionError), project.open() as run:
            run_phases(run, PHASES[:-2])
            raise ZeroDivisionError
    assert check_jobs(project)["dead jobs"].message.startswith("consolidate of notes")
    # As Dagster does that executes the run again from its failure.
    for planned, status in ((PHASES[-2:-1], "warning"), (PHASES[-2:], "ok")):
        with project.open(planned=planned) as run:
            run_phases(run, planned)
        assert check_jobs(project)["dead jobs"].status == status
    assert WorkMonitor(project.engine).read().jobs_dead == 0


def test_dead_job_is_reported_until_success(project: Pipeline) -> None:
    kill_three_times(project)
    assert WorkMonitor(project.engine).read().jobs_dead == 1
    failing = describe_project(project.engine, SLUG, settings=project.settings)["failing"]
    assert [(one["job"], one["failures"], one["dead"]) for one in failing] == [("consolidate", 3, True)]
    assert describe_job(project.engine, SLUG)["dead"]
    assert check_jobs(project)["dead jobs"].message.startswith("consolidate of notes (no database)")
    with project.open(planned=("decay_scores",)) as run:  # not the failed job
        run_phases(run, ["decay_scores"])
    with project.engine.connect() as connection:
        assert [describe_failing_job(one) for one in list_failing_jobs(connection)] == [
            "consolidate is dead after 3 failures in a row"
        ]
    by_hand = request_job(project.engine, SLUG, triggered_by="ann")
    assert project.run().job_id == by_hand.job_id
    assert newest_job(project)["retry_count"] == 3  # failures before this run
    assert WorkMonitor(project.engine).read().jobs_dead == 0
    assert check_jobs(project)["dead jobs"].status == "ok"
    project.add(numbered_notes(10, "more"))
    assert len(request_by_threshold(project).requests) == 1
    assert newest_job(project)["retry_count"] == 0


def test_dead_job_is_retried_once_by_schedule(project: Pipeline) -> None:
    kill_three_times(project)
    project.write("UPDATE {s}.task_memories SET created_at = created_at - interval '2 days'")
    project.write(
        "UPDATE {s}.consolidation_jobs SET created_at = created_at - interval '1 day', "
        "completed_at = completed_at - interval '1 day'"
    )
    (request,) = request_by_schedule(project).requests
    assert "dead after 3 failures, tried again by its schedule" in request.reason
    end_job(project, request.job_id)
    assert "requested since its schedule came" in request_by_schedule(project).skipped[SLUG]
    assert newest_job(project)["retry_count"] == 4
    assert request_due_retries(project, timedelta(days=2)) == []


def test_failed_manual_run_delays_automation(project: Pipeline) -> None:
    with pytest.raises(ValueError, match="broken"), project.open() as run, run.phase("embedding_matrix"):
        raise ValueError("broken")
    assert request_due_retries(project, timedelta(hours=1)) == []
    assert "attempt 1 of 3 failed" in request_by_threshold(project).skipped[SLUG]
    (request,) = request_by_threshold(project, datetime.now(UTC) + timedelta(minutes=1)).requests
    assert "attempt 2 of 3" in request.reason


def test_killed_run_counts_as_failure(project: Pipeline) -> None:
    requested = request_by_threshold(project).requests[0].job_id
    project.write("UPDATE {s}.consolidation_jobs SET status = 'running', started_at = now()")
    assert newest_job(project)["retry_count"] == 1  # reading the job marks it failed
    (again,) = request_due_retries(project, timedelta(minutes=1))
    end_job(project, again.job_id, "cancelled")
    assert request_due_retries(project, timedelta(hours=1)) == []
    partial = request_job(project.engine, SLUG, phases=["clusters"], triggered_by="ann")
    end_job(project, partial.job_id)
    assert newest_job(project)["retry_count"] == 0
    with project.engine.connect() as connection:
        assert [one.job_id for one in list_failing_jobs(connection)] == [requested]


def test_cancelled_job_is_not_requested_again_at_once(project: Pipeline) -> None:
    end_job(project, request_by_threshold(project).requests[0].job_id, "cancelled")
    assert "not requested until" in request_by_threshold(project).skipped[SLUG]
    assert len(request_by_threshold(project, datetime.now(UTC) + timedelta(hours=1)).requests) == 1


def test_failures_are_counted_per_job(project: Pipeline) -> None:
    requested = request_job(project.engine, SLUG, job="decay", triggered_by="ann")
    end_job(project, requested.job_id)
    assert len(request_by_threshold(project).requests) == 1
    with project.engine.connect() as connection:
        assert [one.job for one in list_failing_jobs(connection)] == ["decay"]
    project.run()
    with project.engine.connect() as connection:
        assert list_failing_jobs(connection) == []


def test_project_is_due_by_its_own_schedule(pipeline: Pipeline) -> None:
    for slug, cron in (("early", "0 3 * * *"), ("late", "0 22 * * *"), ("wrong", "0 2 * * *")):
        pipeline.configure_new(slug, schedule=cron)
        pipeline.add(numbered_notes(1), slug=slug)
    pipeline.configure("wrong", schedule="61 * * * *")
    came = "UPDATE {s}.task_memories SET created_at = :at"
    pipeline.write(came, at=MORNING - timedelta(hours=7))  # 02:00: after the schedule of late, before that of early
    decision = request_by_schedule(pipeline, MORNING)
    assert [request.slug for request in decision.requests] == ["early"]
    assert decision.requests[0].reason.endswith("as of its scheduled time 2026-01-08 03:00 UTC")
    assert decision.skipped["late"].startswith("nothing new")
    assert decision.skipped["late"].endswith("as of its scheduled time 2026-01-07 22:00 UTC")
    assert "schedule = '61 * * * *' is not allowed: expected a cron expression" in decision.skipped["wrong"]
    assert [line.split(":")[0] for line in describe_skipped(decision)] == ["wrong", "late"]
    pipeline.write("UPDATE {s}.consolidation_jobs SET status = 'cancelled', created_at = :at", at=MORNING)
    again = request_by_schedule(pipeline, MORNING + timedelta(hours=1))
    assert "requested since its schedule came at 2026-01-08 03:00 UTC" in again.skipped["early"]
    pipeline.write(came, at=MORNING - timedelta(days=3))  # a schedule missed for days is due at once
    assert [request.slug for request in request_by_schedule(pipeline, MORNING).requests] == ["late"]


def test_unchanged_large_project_is_not_due(pipeline: Pipeline) -> None:
    def is_due_at_night() -> str:
        decision = request_jobs(
            pipeline.engine,
            lambda *_: Due(True, "large"),
            job="decay",
            trigger_type="scheduled",
            triggered_by="night",
            settings=pipeline.settings,
            now=datetime.now(UTC) + timedelta(days=1),
        )
        pipeline.write("DELETE FROM {s}.consolidation_jobs WHERE status = 'pending'")
        return "".join(decision.skipped.values())

    pipeline.add(numbered_notes(3))
    pipeline.write("UPDATE {s}.task_memories SET learned_at = now(), last_accessed_at = NULL, reused_count = 0")
    assert is_due_at_night() == ""
    done = pipeline.run().job_id
    idle = f"nothing changed since job {done}, and nothing has become stale"
    assert is_due_at_night() == idle
    pipeline.run_phases(["decay_scores"], job="decay", planned=("decay_scores",))
    assert is_due_at_night() == idle
    pipeline.write(
        "UPDATE {s}.task_memories SET learned_at = learned_at - interval '91 days', "
        "created_at = created_at - interval '91 days' WHERE external_id = 'n1'"
    )
    assert is_due_at_night() == ""
    pipeline.run()
    assert is_due_at_night().startswith("nothing changed since job")
    pipeline.write("UPDATE {s}.task_memories SET reused_count = 1 WHERE external_id = 'n2'")
    assert is_due_at_night() == ""


def check_jobs(pipeline: Pipeline) -> dict[str, Finding]:
    return {finding.check: finding for finding in _check_jobs(pipeline.engine)}


def test_doctor_reports_unclaimed_requests(project: Pipeline) -> None:
    assert {finding.status for finding in check_jobs(project).values()} == {"ok"}
    project.write("UPDATE {s}.task_memories SET created_at = now() - interval '3 days'")
    assert "notes due for more than a day" in check_jobs(project)["schedule"].message
    requested = request_job(project.engine, SLUG, triggered_by="ann")
    assert check_jobs(project)["requests"].status == "ok"
    project.write("UPDATE {s}.consolidation_jobs SET created_at = now() - interval '31 minutes'")
    found = check_jobs(project)
    assert (found["requests"].status, found["schedule"].status) == ("warning", "ok")
    assert str(requested.job_id) in found["requests"].message


def test_tick_uses_constant_number_of_statements(pipeline: Pipeline) -> None:
    for slug in ("a", "b", "c"):
        pipeline.configure_new(slug, new_threshold=10)
        pipeline.add(numbered_notes(10), slug=slug)
    with record_statements(pipeline.engine) as statements:
        assert (len(request_by_threshold(pipeline).requests), len(statements)) == (3, 4)
        statements.clear()
        assert (len(request_by_schedule(pipeline).requests), len(statements)) == (0, 3)
