"""Rules that decide when a project is due for a job and when a failed job is retried, with reasons in words."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from cronsim import CronSim, CronSimError

from consolidation_pipeline.core.checks import check_count

NEW_THRESHOLD = 100
ACTIVE_THRESHOLD = 1000

MAX_ATTEMPTS = 3
# The first wait is enough for a restarted server or a lost connection, the second for a failover of the database or a
# deployment. Longer failures wait for a person or for the schedule.
_FIRST_WAIT = timedelta(minutes=1)
_WAIT_FACTOR = 5
# A schedule that comes every few minutes must not retry a dead job each time.
_DEAD_REST = timedelta(hours=1)
# People cancel a job to look at the project first, so it must not start again a minute later.
_CANCEL_REST = timedelta(hours=1)


@dataclass(frozen=True)
class Due:
    """Decision with its reason. True in a boolean context if the project is due."""

    due: bool
    reason: str

    def __bool__(self) -> bool:
        return self.due


def is_due(new_count: int, *, threshold: int = NEW_THRESHOLD) -> Due:
    """Decide if the sensor requests a job: at least ``threshold`` memories were added since the last job."""
    check_count("new_count", new_count)
    if new_count >= threshold:
        return Due(True, f"{new_count} new memories since the last job reach new_threshold = {threshold}")
    return Due(False, f"{new_count} new memories since the last job, fewer than new_threshold = {threshold}")


def is_nightly_due(active_count: int, new_count: int, *, threshold: int = ACTIVE_THRESHOLD) -> Due:
    """Decide if the nightly schedule requests a job: a memory is new, or active memories exceed ``threshold``."""
    check_count("active_count", active_count)
    check_count("new_count", new_count)
    if new_count > 0:
        return Due(True, f"{new_count} new memories since the last job")
    if active_count > threshold:
        return Due(True, f"{active_count} active memories exceed active_threshold = {threshold}")
    return Due(False, f"nothing new, and {active_count} active memories do not exceed active_threshold = {threshold}")


def next_attempt_at(failures: int, failed_at: datetime, *, max_attempts: int = MAX_ATTEMPTS) -> datetime | None:
    """Return the time of the next attempt of a job, 1 or 5 minutes after the last failure; None if the job is dead.

    Args:
        failures: Failures in a row, at least 1.
        failed_at: Time of the last one, UTC.
        max_attempts: Attempts after which the job is dead.
    """
    if failures < 1:
        raise ValueError(f"failures is {failures}; it must be 1 or more")
    return None if failures >= max_attempts else failed_at + _FIRST_WAIT * _WAIT_FACTOR ** (failures - 1)


def may_retry(failures: int, failed_at: datetime, now: datetime, *, scheduled: bool = False, max_attempts: int) -> Due:
    """Decide if automation retries a failed job: after its wait or, if it is dead, when its schedule comes.

    So a project recovers after a long outage, and a broken project is tried once a night. ``scheduled``: a schedule
    asks, not a sensor.
    """
    at = next_attempt_at(failures, failed_at, max_attempts=max_attempts)
    if at is not None:
        if now >= at:
            return Due(True, f"attempt {failures + 1} of {max_attempts}")
        return Due(False, f"attempt {failures} of {max_attempts} failed, the next one is at {at:%Y-%m-%d %H:%M:%S} UTC")
    if scheduled and now >= failed_at + _DEAD_REST:
        return Due(True, f"dead after {failures} failures, tried again by its schedule")
    return Due(False, f"dead after {failures} failures in a row: its schedule tries it again, or a person runs it")


@dataclass(frozen=True)
class JobState:
    """State of a project's job. Times are UTC, or None.

    ``live``: description of its pending or running job. ``failures``: failures in a row, the newest at ``failed_at``;
    the job is dead after ``max_attempts``. ``requested_at``: last request; ``cancelled_at``: its cancellation.
    ``scheduled_at``: last time of the project's schedule; None if a sensor asks.
    """

    live: str | None = None
    failures: int = 0
    failed_at: datetime | None = None
    max_attempts: int = MAX_ATTEMPTS
    requested_at: datetime | None = None
    cancelled_at: datetime | None = None
    scheduled_at: datetime | None = None


def may_request(state: JobState, now: datetime, *, scheduled: bool) -> Due:
    """Decide if automation may request a job that is due. ``scheduled``: a schedule asks, not a sensor."""
    if state.live is not None:
        return Due(False, state.live)
    if state.scheduled_at is not None and state.requested_at is not None and state.requested_at >= state.scheduled_at:
        return Due(False, f"requested since its schedule came at {state.scheduled_at:%Y-%m-%d %H:%M} UTC")
    if state.failures and state.failed_at is not None:
        return may_retry(state.failures, state.failed_at, now, scheduled=scheduled, max_attempts=state.max_attempts)
    rested = None if state.cancelled_at is None else state.cancelled_at + _CANCEL_REST
    if rested is not None and now < rested and not scheduled:
        return Due(False, f"its last run was cancelled: not requested until {rested:%Y-%m-%d %H:%M:%S} UTC")
    return Due(True, "")


def previous_cron_time(cron: str, now: datetime) -> datetime | None:
    """Return the last time before ``now`` (UTC) that matches ``cron``, or None.

    Raises:
        ValueError: ``cron`` is not a cron expression of five fields.
    """
    return next(_instants(cron, now, reverse=True), None)


def next_cron_time(cron: str, now: datetime) -> datetime | None:
    """Return the first time after ``now`` (UTC) that matches ``cron``; None if there is none in fifty years.

    Raises:
        ValueError: ``cron`` is not a cron expression of five fields.
    """
    return next(_instants(cron, now, reverse=False), None)


def _instants(cron: str, now: datetime, *, reverse: bool) -> CronSim:
    try:
        return CronSim(cron, now, reverse=reverse)
    except CronSimError as error:
        raise ValueError(f"{cron!r} is not a cron expression of five fields: {error}") from None
