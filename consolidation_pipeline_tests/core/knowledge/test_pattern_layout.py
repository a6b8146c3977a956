"""Layout of patterns: how often and when one was seen."""

from __future__ import annotations

from datetime import date

import pytest

from consolidation_pipeline.core.knowledge.pattern_layout import Sightings, tell_in_english, tell_sightings

DAYS = {"first": date(2026, 2, 3), "last": date(2026, 5, 4)}


@pytest.mark.parametrize("language", ["de", "es", "fr", "zh", "ja"])
@pytest.mark.parametrize(
    ("seen", "english"),
    [
        (Sightings(3, said=3, **DAYS), "Seen 3 times, 2026-02-03 – 2026-05-04."),
        (Sightings(3, sessions=2, said=3, **DAYS), "Seen 3 times in 2 sessions, 2026-02-03 – 2026-05-04."),
        (Sightings(4, sessions=1, said=2), "Said alike in 2 of 4 memories in one session."),
        (Sightings(12), "12 memories."),
        (Sightings(1), "Seen once."),
        (Sightings(6, patterns=2), "Seen in 2 patterns."),
    ],
)
def test_sightings_are_told_in_english(language: str, seen: Sightings, english: str) -> None:
    assert tell_in_english(tell_sightings(seen, "", language)) == english


def test_english_sightings_stay() -> None:
    for seen in (Sightings(3, said=3, **DAYS), Sightings(4, sessions=1, said=2)):
        told = tell_sightings(seen, "", "en")
        assert tell_in_english(told) == told
    assert tell_in_english("Something else.") == "Something else."
