"""Hits on one matter: of those that tell other values of it, the newest is read first."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from consolidation_pipeline.core.search.context_changes import DatedText
from consolidation_pipeline.core.search.same_matter import link_other_values

_DAY = datetime(2026, 3, 1, tzinfo=UTC)


def link(*texts: str, scopes: tuple[str, ...] = ("", "", "")) -> dict[int, list[int]]:
    dated = [DatedText(UUID(int=at), text, _DAY + timedelta(days=at), scopes[at]) for at, text in enumerate(texts)]
    return {older.int: [one.int for one in newer] for older, newer in link_other_values(dated).items()}


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (
            "Import with `run import`; send at most 40 files at a time.",
            "For imports at most 15 files at a time; 40 hung.",
        ),
        (
            "Ola reset the alarm on disk use; its limit is 70 percent.",
            "The limit of the alarm on disk use is 60 percent.",
        ),
        ("Ruby in the web image is 3.2; 3.3 breaks `nokogiri`.", "Ruby in the web image is 3.3, with `nokogiri` 1.16."),
        (
            "The maximum dose of ibuprofen on ward 2 is 5 g.",
            "The limit for ibuprofen on ward 2 was lowered: 4 g a day.",
        ),
        ("The retry limit of the mailer is 3.", "The retry limit of the mailer is 5."),
        ("On duty this month: Olga (first), Paul (second).", "On duty this month: Paul (first), Rosa (second)."),
    ],
)
def test_newer_value_is_linked(older: str, newer: str) -> None:
    assert link(older, newer) == {0: [1]}
    assert link(newer, older) == {0: [1]}
    assert not link(older, newer, scopes=("ann", "ben"))


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("Dried basil is stable for 24 months in the tin.", "Dried mint is stable for 12 months in the tin."),
        ("The kit on floor 7 holds two lamps.", "The kit in the hall holds three lamps."),
        ("Soap 5 l cans: 7 are left.", "Soap 2 l cans: 9 are left."),
        ("El aforo de la pista verde es de 90 personas.", "El aforo de la pista roja es de 60 personas."),
        ("Alarm `Lag` fires above 500 for 10 minutes.", "Alarm `Lag` resolves below 50 for 10 minutes."),
        ("The shop opens at 9:00 on Mondays.", "The shop opens at 11:00 on Sundays."),
        ("The retry limit of the mailer is 3.", "The retry limit of the mailer is 3."),
    ],
)
def test_other_things_are_not_linked(older: str, newer: str) -> None:
    assert not link(older, newer)


def test_each_value_of_a_series_is_linked_to_the_later_ones() -> None:
    texts = [f"Salt: {bags} bags are left after the count of {day} May." for day, bags in ((4, 31), (11, 28), (18, 44))]
    assert link(*texts) == {0: [1, 2], 1: [2]}
