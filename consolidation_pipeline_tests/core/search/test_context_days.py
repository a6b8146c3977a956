"""Days in a context: facts, what is so at its time, and each of two values have one; other instructions have none."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from consolidation_pipeline.core.search.context_days import find_day

_AT = datetime(2026, 3, 1, tzinfo=UTC)
_RULE = "Never start a full rebuild of the index."


@pytest.mark.parametrize(
    "text",
    [
        "On duty this quarter: Olga (first), Paul (second).",
        "Bereitschaft dieses Quartal: Olga, Paul.",
        "Use queue b from now on.",
        "The van comes on Mondays from August on.",
    ],
)
def test_what_is_so_at_its_time_has_a_day(text: str) -> None:
    assert find_day("raw", text, _AT) == date(2026, 3, 1)


def test_instruction_has_a_day_beside_another_one() -> None:
    assert find_day("raw", _RULE, _AT) is None
    assert find_day("raw", _RULE, _AT, is_one_of_two=True) == date(2026, 3, 1)
    assert find_day("pattern", _RULE, _AT, is_one_of_two=True) is None
