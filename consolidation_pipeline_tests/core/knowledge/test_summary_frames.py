"""Frames of summaries: their language."""

from __future__ import annotations

from datetime import date

import pytest

from consolidation_pipeline.core.differences.language import LANGUAGES
from consolidation_pipeline.core.knowledge.summary_frames import FRAMES, choose_frames
from consolidation_pipeline.core.knowledge.topic_summaries import summarize_topics

GERMAN = "Die Schlüssel der Werkstatt hängen hinter der Tür."


def test_each_language_has_frames() -> None:
    assert {*FRAMES} == {*LANGUAGES}


@pytest.mark.parametrize(
    ("texts", "language"),
    [
        ([GERMAN, "Der Ofen ist am Montag kalt.", "Kiln 7"], "de"),
        ([GERMAN, "The keys of the workshop hang behind the door."], "en"),
        # Two languages, none of them English.
        ([GERMAN, GERMAN, "Las llaves del taller cuelgan detrás de la puerta."], "de"),
        (["Kiln 7"], "en"),
        ([], "en"),
    ],
)
def test_frames_are_in_the_language_of_all(texts: list[str], language: str) -> None:
    assert choose_frames(texts) is FRAMES[language]


def test_summary_of_german_notes_is_german() -> None:
    texts = [f"{GERMAN} Das gilt auch für Halle {hall} und den Hof." for hall in "ABCDEF"]
    texts += [f"Der Ofen in Raum {room} braucht eine neue Dichtung, sonst wird er nicht heiß." for room in "ABCDEF"]
    days = [date(2026, 3, 1 + at) for at in range(len(texts))]
    content = summarize_topics(texts, days).content
    assert content.startswith("12 Notizen, 2026-03-01 bis 2026-03-12, zu ")
    assert "memories" not in content
