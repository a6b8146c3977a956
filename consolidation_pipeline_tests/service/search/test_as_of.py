"""The time of which a reader asks: days, times and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.service.search.as_of import parse_as_of

NOW = datetime(2026, 5, 6, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, None),
        (" ", None),
        ("2026-03-01", datetime(2026, 3, 1, 23, 59, 59, 999999, tzinfo=UTC)),
        ("2026-05-06", NOW),
        ("2026-03-01T10:00", datetime(2026, 3, 1, 10, tzinfo=UTC)),
        ("2026-03-01T10:00:00+02:00", datetime(2026, 3, 1, 8, tzinfo=UTC)),
    ],
)
def test_as_of_is_day_or_time(given: str | None, expected: datetime | None) -> None:
    assert parse_as_of(given, now=NOW) == expected


@pytest.mark.parametrize("given", ["yesterday", "2026-13-01", "2026-02-30", "9999-12-31T25:00", "March"])
def test_as_of_must_be_a_date(given: str) -> None:
    with pytest.raises(UsageError, match=f"as_of is '{given}': give a day such as 2026-01-31, or an ISO 8601 time"):
        parse_as_of(given, now=NOW)


@pytest.mark.parametrize("given", ["2026-05-07", "2026-05-06T12:00:01", "9999-12-31"])
def test_as_of_must_not_be_in_the_future(given: str) -> None:
    with pytest.raises(UsageError, match="in the future: give a day until 2026-05-06"):
        parse_as_of(given, now=NOW)
