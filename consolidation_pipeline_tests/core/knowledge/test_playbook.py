"""Playbook: priority and category of entries."""

from __future__ import annotations

import math

import pytest

from consolidation_pipeline.core.knowledge.disputes import contradicts_itself
from consolidation_pipeline.core.knowledge.playbook import (
    CATEGORY_WORDS,
    adjust_priority,
    compute_priority,
    find_category,
)


@pytest.mark.parametrize(
    ("confidence", "evidence", "expected"),
    [
        (None, 0, 50),
        (None, 50, 50),
        (0.0, 0, 50),
        (0.0, 3, 50),
        (0.0, 4, 51),
        (0.85, 3, 92),
        (0.86, 3, 93),
        (0.58, 3, 78),
        (0.9, 10, 100),
        (1.0, 3, 100),
        (1.0, 1000, 100),
        (1, 0, 100),
        (0.5, 28, 100),
        (0.5, 27, 99),
    ],
)
def test_priority_follows_confidence_and_evidence(confidence: float | None, evidence: int, expected: int) -> None:
    assert compute_priority(confidence, evidence) == expected


def test_priority_formula_holds_for_all_hundredths() -> None:
    for hundredths in range(101):
        confidence = hundredths / 100
        assert compute_priority(confidence, 3) == 50 + int(50 * confidence)


@pytest.mark.parametrize(
    ("confidence", "evidence", "message"),
    [
        (math.nan, 3, "confidence is nan"),
        (-0.01, 3, "confidence is -0.01"),
        (1.01, 3, "confidence is 1.01"),
        (math.inf, 3, "confidence is inf"),
        (0.9, -1, "writers is -1"),
        (None, -1, "writers is -1"),
    ],
)
def test_priority_refuses_values_out_of_range(confidence: float | None, evidence: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compute_priority(confidence, evidence)


# Words that match a category, and words that contain a matching word but do not match.
MATCHING_WORDS = {
    "gotchas": (
        "fix fixes fixed Fixing BUG bugs buggy error errors errored issue issues issued pitfalls warning warned"
    ),
    "architecture": "architecture architectures architectural design designed structure structured layer layered",
    "patterns": "pattern patterns recommend recommended recommendation best-practice",
    "security": "security secure secured securely",
    "testing": "test tests tested testing",
    "performance": "performance performant",
    "workflow": "workflow workflows",
}
OTHER_WORDS = (
    "prefix prefixes suffix fixture fixtures tissue terror debug infrastructure restructure player multilayer "
    "contest latest greatest attest testament performs insecurity reissue mirrors redesign bugfix hotfix"
)


@pytest.mark.parametrize(
    ("name", "word"), [(name, word) for name, words in MATCHING_WORDS.items() for word in words.split()]
)
def test_category_matches_inflected_words(name: str, word: str) -> None:
    assert find_category(f"Mind the {word}, here.") == name


@pytest.mark.parametrize("word", OTHER_WORDS.split())
def test_category_ignores_parts_of_words(word: str) -> None:
    assert find_category(f"Mind the {word} here") == "general"


def test_first_matching_category_wins() -> None:
    words = ["fix", "layer", "best  practices", "security", "tests", "performance", "workflow"]
    names = [*CATEGORY_WORDS, "general"]
    for at in range(len(words) + 1):
        assert find_category(" and ".join(reversed(words[at:]))) == names[at]


@pytest.mark.parametrize("text", ["", " \n", "12 %", "値", "snake_case_test_name", "Use UUIDv7."])
def test_category_defaults_to_general(text: str) -> None:
    assert find_category(text) == "general"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The retry limit of the payouts queue is 5.\nThe retry limit of the refunds queue is 3.", True),
        ("Always restart the worker after a deploy.\nNever restart the worker after a deploy.", True),
        ("Keep event ids for 30 days.\nAnswer a webhook within 10 seconds.", False),
        ("Verify the signature of a webhook.\nVerify the signed timestamp of a webhook too.", False),
        ("The retry limit of the payouts queue is 5.", False),
        ("", False),
    ],
)
def test_contradicting_lines_are_detected(text: str, expected: bool) -> None:
    assert contradicts_itself(text) is expected


@pytest.mark.parametrize(
    ("priority", "usefulness", "expected"),
    [(80, 0.0, 80), (80, 0.5, 90), (80, -1 / 3, 73), (95, 0.9, 100), (10, -0.9, 0)],
)
def test_usefulness_moves_priority_within_bounds(priority: int, usefulness: float, expected: int) -> None:
    assert adjust_priority(priority, usefulness) == expected
