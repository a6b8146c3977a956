"""Triggers of jobs: thresholds, retries and cron times."""

from datetime import UTC, datetime, timedelta

import pytest

from consolidation_pipeline.core.jobs.triggers import (
    Due,
    JobState,
    is_due,
    is_nightly_due,
    may_request,
    next_attempt_at,
    next_cron_time,
    previous_cron_time,
)


@pytest.mark.parametrize(("new_count", "expected"), [(0, False), (99, False), (100, True), (5000, True)])
def test_sensor_fires_at_threshold(new_count, expected):
    assert bool(is_due(new_count)) is expected


def test_sensor_threshold_is_configurable():
    assert is_due(10, threshold=10)
    assert not is_due(9, threshold=10)


@pytest.mark.parametrize(
    ("active_count", "new_count", "expected"),
    [(0, 0, False), (1000, 0, False), (1001, 0, True), (0, 1, True), (1000, 1, True)],
)
def test_nightly_run_takes_large_or_changed_projects(active_count, new_count, expected):
    assert bool(is_nightly_due(active_count, new_count)) is expected


def test_nightly_threshold_is_configurable():
    assert is_nightly_due(501, 0, threshold=500)
    assert not is_nightly_due(500, 0, threshold=500)


def test_due_reason_names_deciding_counts():
    assert is_due(120).reason == "120 new memories since the last job reach new_threshold = 100"
    assert "99 new memories" in is_due(99).reason
    assert is_nightly_due(2000, 3).reason == "3 new memories since the last job"
    assert "2000 active memories exceed" in is_nightly_due(2000, 0).reason
    assert "nothing new" in is_nightly_due(7, 0).reason


def test_due_is_truthy_when_job_is_due():
    assert Due(True, "")
    assert not Due(False, "")


def test_negative_counts_are_rejected_by_name():
    with pytest.raises(ValueError, match="new_count is -1"):
        is_due(-1)
    for counts, message in (((-2, 0), "active_count is -2"), ((0, -3), "new_count is -3")):
        with pytest.raises(ValueError, match=message):
            is_nightly_due(*counts)


NOW = datetime(2026, 1, 8, 12, 0, tzinfo=UTC)


def ago(**span: float) -> datetime:
    return NOW - timedelta(**span)


@pytest.mark.parametrize(
    ("state", "by_threshold", "by_schedule"),
    [
        (JobState(), True, True),
        (JobState(live="job 7 is running"), "job 7 is running", "job 7 is running"),
        (JobState(failures=1, failed_at=ago(seconds=59)), "attempt 1 of 3 failed", "attempt 1 of 3 failed"),
        (JobState(failures=1, failed_at=ago(minutes=1)), True, True),
        (JobState(failures=2, failed_at=ago(minutes=4)), "the next one is at 2026-01-08 12:01:00", "12:01:00"),
        (JobState(failures=2, failed_at=ago(minutes=5)), True, True),
        (JobState(failures=3, failed_at=ago(minutes=59)), "dead after 3 failures", "dead after 3 failures"),
        (JobState(failures=3, failed_at=ago(hours=10)), "dead after 3 failures", True),
        (JobState(failures=9, failed_at=ago(days=9)), "dead after 9 failures", True),
        (JobState(failures=3, failed_at=ago(minutes=25), max_attempts=4), True, True),
        (JobState(cancelled_at=ago(minutes=59), requested_at=ago(hours=2)), "was cancelled: not requested until", True),
        (JobState(cancelled_at=ago(minutes=60), requested_at=ago(hours=2)), True, True),
        (JobState(scheduled_at=ago(hours=10), requested_at=ago(hours=11)), True, True),
        (JobState(scheduled_at=ago(hours=10), requested_at=ago(hours=10)), "requested since its schedule", "02:00 UTC"),
        (JobState(scheduled_at=ago(hours=10)), True, True),
    ],
)
def test_automation_requests_job_or_names_obstacle(state, by_threshold, by_schedule):
    for scheduled, expected in ((False, by_threshold), (True, by_schedule)):
        answer = may_request(state, NOW, scheduled=scheduled)
        assert bool(answer) is (expected is True)
        assert expected is True or expected in answer.reason


def test_job_retries_after_one_and_five_minutes():
    waits = [next_attempt_at(failures, NOW) for failures in (1, 2, 3)]
    assert waits == [NOW + timedelta(minutes=1), NOW + timedelta(minutes=5), None]
    with pytest.raises(ValueError, match="failures is 0"):
        next_attempt_at(0, NOW)


@pytest.mark.parametrize(
    ("cron", "last", "following"),
    [
        ("0 2 * * *", "2026-01-08T02:00", "2026-01-09T02:00"),
        ("0 12 * * *", "2026-01-07T12:00", "2026-01-09T12:00"),
        ("30 3 * * SUN", "2026-01-04T03:30", "2026-01-11T03:30"),
        ("0 0 29 2 *", "2024-02-29T00:00", "2028-02-29T00:00"),
    ],
)
def test_cron_times_before_and_after_now(cron, last, following):
    assert previous_cron_time(cron, NOW) == datetime.fromisoformat(last).replace(tzinfo=UTC)
    assert next_cron_time(cron, NOW) == datetime.fromisoformat(following).replace(tzinfo=UTC)


def test_invalid_cron_expression_is_rejected():
    with pytest.raises(ValueError, match=r"'61 \* \* \* \*' is not a cron expression of five fields"):
        next_cron_time("61 * * * *", NOW)
