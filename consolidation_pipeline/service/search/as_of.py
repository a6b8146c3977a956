"""The time of which a reader asks what was known then."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from consolidation_pipeline.errors import UsageError


def parse_as_of(given: str | None, *, now: datetime | None = None) -> datetime | None:
    """Return the time that a caller gave, UTC if without a zone; None if none was given.

    A day counts to its end, today until now. ``now``: the current time unless given.

    Raises:
        UsageError: It is neither a day nor an ISO 8601 time, or lies in the future.
    """
    if given is None or not given.strip():
        return None
    text, now = given.strip(), now or datetime.now(UTC)
    try:
        instant = _end_of_day(date.fromisoformat(text)) if _is_day(text) else datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise UsageError(f"as_of is {text!r}: give a day such as 2026-01-31, or an ISO 8601 time") from None
    instant = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    if _is_day(text) and instant.date() == now.astimezone(UTC).date():
        return now
    if instant > now:
        raise UsageError(f"as_of is {text!r}, in the future: give a day until {now:%Y-%m-%d}")
    return instant


def _is_day(text: str) -> bool:
    return len(text) <= len("2026-01-31") and "T" not in text


def _end_of_day(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1, microseconds=-1)
