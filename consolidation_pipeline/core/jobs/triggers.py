"""Whether a project is due for consolidation: pure answers from counts and instants, with the reason in words."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from cronsim import CronSim, CronSimError

NEW_THRESHOLD = 100
ACTIVE_THRESHOLD = 1000

MAX_ATTEMPTS = 3
# A restarted server or a lost connection is back within the first minute, a failed-over database or a deployment within
# the second wait; what lasts longer needs a person, or the night.
_FIRST_WAIT = timedelta(minutes=1)
_WAIT_FACTOR = 5
# Schedules that come every few minutes must not try a dead job each time.
_DEAD_REST = timedelta(hours=1)
# Who cancels a job wants to look first: it must not be back a minute later.
_CANCEL_REST = timedelta(hours=1)


@dataclass(frozen=True)
class Due:
    """An answer that is truthy when the project is due; ``reason`` names the counts that decided."""

    due: bool
    reason: str

    def __bool__(self) -> bool:
        return self.due


def is_due(new_count: int, *, threshold: int = NEW_THRESHOLD) -> Due:
    """Whether the sensor asks for a job: at least ``threshold`` new memories.

    ``new_count``: unconsolidated memories that came since the project's last job. The default is that of the option
    ``new_threshold``. ValueError: ``new_count`` is negative.
    """
    _require_count("new_count", new_count)
    if new_count >= threshold:
        return Due(True, f"{new_count} new memories since the last job reach new_threshold = {threshold}")
    return Due(False, f"{new_count} new memories since the last job, fewer than new_threshold = {threshold}")


def is_nightly_due(active_count: int, new_count: int, *, threshold: int = ACTIVE_THRESHOLD) -> Due:
    """Whether the nightly schedule consolidates a project: anything new, or more than ``threshold`` active memories.

    ``active_count``: memories neither archived nor consolidated; ``new_count`` as in ``is_due``. The default is that
    of the option ``active_threshold``. ValueError: a count is negative.
    """
    _require_count("active_count", active_count)
    _require_count("new_count", new_count)
    if new_count > 0:
        return Due(True, f"{new_count} new memories since the last job")
    if active_count > threshold:
        return Due(True, f"{active_count} active memories exceed active_threshold = {threshold}")
    return Due(False, f"nothing new, and {active_count} active memories do not exceed active_threshold = {threshold}")


def _require_count(name: str, count: int) -> None:
    if count < 0:
        raise ValueError(f"{name} is {count}; it must be 0 or more")


def next_try(failures: int, failed_at: datetime, *, most: int = MAX_ATTEMPTS) -> datetime | None:
    """When a job that failed so many times in a row, at last at ``failed_at``, is tried again: after 1, then 5 minutes.

    None: not by itself, it is dead. ValueError: ``failures`` is less than 1.
    """
    if failures < 1:
        raise ValueError(f"failures is {failures}; it must be 1 or more")
    return None if failures >= most else failed_at + _FIRST_WAIT * _WAIT_FACTOR ** (failures - 1)


def may_retry(
    failures: int, failed_at: datetime, now: datetime, *, scheduled: bool = False, most: int = MAX_ATTEMPTS
) -> Due:
    """Whether automation tries a job again: after its wait, a dead one (``scheduled``) when its schedule comes.

    That way an outage of an hour does not leave a project dead for ever, and a broken project is tried once a night.
    """
    at = next_try(failures, failed_at, most=most)
    if at is not None:
        if now >= at:
            return Due(True, f"attempt {failures + 1} of {most}")
        return Due(False, f"attempt {failures} of {most} failed, the next one is at {at:%Y-%m-%d %H:%M:%S} UTC")
    if scheduled and now >= failed_at + _DEAD_REST:
        return Due(True, f"dead after {failures} failures, tried again by its schedule")
    return Due(False, f"dead after {failures} failures in a row: its schedule tries it again, or a person runs it")


@dataclass(frozen=True)
class Standing:
    """How a project and a job stand, besides counts. Instants are UTC; None where there is none.

    ``live``: what its pending or running job does, in words. ``failures`` in a row, the newest at ``failed_at``; dead
    from ``most`` on. ``asked_at``: when this job was last asked for; ``cancelled_at``: when that was cancelled.
    ``came_at``: when the project's schedule came last; None where it is not asked by that.
    """

    live: str | None = None
    failures: int = 0
    failed_at: datetime | None = None
    most: int = MAX_ATTEMPTS
    asked_at: datetime | None = None
    cancelled_at: datetime | None = None
    came_at: datetime | None = None


def may_ask(standing: Standing, now: datetime, *, scheduled: bool) -> Due:
    """Whether automation may ask for a job now that enough memories wait for it; ``scheduled``: by a schedule."""
    if standing.live is not None:
        return Due(False, standing.live)
    if standing.came_at is not None and standing.asked_at is not None and standing.asked_at >= standing.came_at:
        return Due(False, f"asked for since its schedule came at {standing.came_at:%Y-%m-%d %H:%M} UTC")
    if standing.failures and standing.failed_at is not None:
        return may_retry(standing.failures, standing.failed_at, now, scheduled=scheduled, most=standing.most)
    rested = None if standing.cancelled_at is None else standing.cancelled_at + _CANCEL_REST
    if rested is not None and now < rested and not scheduled:
        return Due(False, f"its last run was cancelled: left alone until {rested:%Y-%m-%d %H:%M:%S} UTC")
    return Due(True, "")


def last_instant(cron: str, now: datetime) -> datetime | None:
    """The newest instant before ``now`` (UTC) at which ``cron`` came, or None. Raises ValueError: no such cron."""
    return next(_instants(cron, now, reverse=True), None)


def next_instant(cron: str, now: datetime) -> datetime | None:
    """When ``cron`` comes next after ``now`` (UTC); None: not in the next fifty years. Raises ValueError."""
    return next(_instants(cron, now, reverse=False), None)


def _instants(cron: str, now: datetime, *, reverse: bool) -> CronSim:
    try:
        return CronSim(cron, now, reverse=reverse)
    except CronSimError as error:
        raise ValueError(f"{cron!r} is not a cron expression of five fields: {error}") from None
