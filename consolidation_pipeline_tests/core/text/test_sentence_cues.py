"""Cues of advice, warnings, failures, preferences, choices and sequences in sentences."""

from __future__ import annotations

import pytest

from consolidation_pipeline.core.text.sentence_cues import is_advice, is_choice, is_failure, is_sequence, is_warning


@pytest.mark.parametrize(
    "sentence",
    [
        "Use UUIDv7 for ids.",
        "Always set a timeout.",
        "Cache hashed assets forever.",
        "Import the rates before noon.",
        "Merge the branch that is older.",
        "When the lock is lost, restart the worker.",
        "Fix: run `alembic merge heads` and commit it.",
        "Secrets must be rotated.",
        "The team prefers small changes.",
        "Preferably squash.",
        "It is recommended to squash.",
        "Jobs need an idempotency key.",
        "Make sure the queue is empty.",
        "Tests should run twice.",
    ],
)
def test_is_advice_accepts_advice(sentence: str) -> None:
    assert is_advice(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "Search index and two queues are left.",
        "Index scans were slow.",
        "Import code R20 means that the file is empty.",
        "Commit messages are in English.",
        "Moved the state into the store.",
        "The mustard is yellow.",
        "Used a lock.",
        "An old event arrived late and set an order back.",
        "",
    ],
)
def test_is_advice_rejects_statements(sentence: str) -> None:
    assert not is_advice(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "Never log secrets.",
        "Beware of replays.",
        "Do not retry.",
        "Don’t retry.",
        "Avoid offsets.",
        "A pitfall: time zones.",
        "The limit is cut silently.",
        "Charges must not be retried.",
    ],
)
def test_is_warning_accepts_warnings(sentence: str) -> None:
    assert is_warning(sentence)


@pytest.mark.parametrize(
    "sentence", ["The layer is never pushed.", "Use a lock to avoid races.", "Nevertheless good.", "Level is WARNING."]
)
def test_is_warning_rejects_statements(sentence: str) -> None:
    assert not is_warning(sentence)


def test_other_cues_recognize_their_sentences() -> None:
    assert is_failure("The job FAILED twice.")
    assert is_failure("It hung.")
    assert not is_failure("The breakfast is here.")
    assert is_choice("We chose Redis.")
    assert not is_choice("Redis is here.")
    assert is_sequence("First build, then push.")
    assert not is_sequence("First, first, first.")
