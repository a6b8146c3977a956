"""Whether a project is due for consolidation: pure answers from counts, with the reason in words."""

from dataclasses import dataclass
from datetime import datetime, timedelta

NEW_THRESHOLD = 100
ACTIVE_THRESHOLD = 1000
NIGHTLY_HOUR = 2  # UTC


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


def next_night(now: datetime) -> datetime:
    """When the nightly schedule comes next after ``now`` (UTC)."""
    tonight = now.replace(hour=NIGHTLY_HOUR, minute=0, second=0, microsecond=0)
    return tonight if tonight > now else tonight + timedelta(days=1)
