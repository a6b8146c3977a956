"""Sentences of different months: which hold side by side, and which replace each other."""

from __future__ import annotations

from datetime import date

import pytest

from consolidation_pipeline.core.differences.reader import read
from consolidation_pipeline.core.knowledge.disputes import find_disputes, list_statements
from consolidation_pipeline.core.knowledge.past_months import are_of_months_in_turn
from consolidation_pipeline.core.knowledge.supersession import revise_sentence, tells_past_month


@pytest.mark.parametrize(
    ("was", "day", "now", "later", "expected"),
    [
        ("Ada is on call in April.", date(2026, 4, 1), "Ada is on call in October.", date(2026, 9, 24), True),
        ("Ada is on call in March.", date(2026, 11, 3), "Ada is on call in May.", date(2026, 11, 4), False),
        ("Ada was on call in October.", date(2026, 11, 3), "Ada was on call in May.", date(2026, 11, 4), True),
        ("Ada is on call in January.", date(2025, 12, 3), "Ada is on call in May.", date(2026, 2, 1), True),
        ("The fair is in June.", date(2026, 3, 1), "The fair is in May.", date(2026, 4, 1), False),
        ("The fair is in May.", date(2026, 3, 1), "The fair moved to June.", date(2026, 6, 1), False),
        ("Ada ist im April in der Mühle.", date(2026, 4, 1), "Ada ist im Juli in der Mühle.", date(2026, 5, 2), True),
        ("The mill opens in April.", date(2026, 4, 1), "The mill opens in April, too.", date(2026, 7, 1), False),
    ],
)
def test_months_that_are_over_are_not_replaced(was: str, day: date, now: str, later: date, expected: bool) -> None:
    assert are_of_months_in_turn(read(was), day, read(now), later) is expected
    assert are_of_months_in_turn(read(now), later, read(was), day) is expected


def test_revision_of_a_month_that_is_over_is_none() -> None:
    revision = revise_sentence("Ada is on call in April.", "Ada is on call in October.")
    assert revision is not None
    assert tells_past_month(revision, date(2026, 4, 1), date(2026, 9, 24))
    assert not tells_past_month(revision, date(2026, 4, 1), date(2026, 4, 3))


def test_dispute_tells_months_in_turn_beside_each_other() -> None:
    texts = ["Ada is on call in October.", "Ada is on call in April."]
    (turns,) = find_disputes(list_statements(texts, [date(2026, 9, 24), date(2026, 4, 1)]))
    assert turns.told == "Ada is on call in October (also April)."
    assert turns.overruled == ()
    (moved,) = find_disputes(list_statements(texts, [date(2026, 4, 3), date(2026, 4, 1)]))
    assert moved.told == "Ada is on call in October (noted 3 April 2026; was April)."
