"""Prompt of a supersession judge: its numbers and days, and what is refused in a reply."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from consolidation_pipeline.llm.prompts.supersession import (
    Case,
    SupersessionReply,
    find_problems,
    read_outdated,
    supersession_prompt,
)

PORT = Case(
    "Scrape target is host:9440. It needs TLS.",
    ("Lunch is at noon.", "The exporter is on port 9105. Ask Ann."),
    (date(2026, 3, 9), date(2026, 3, 1), date(2026, 3, 2)),
)
TEA = Case("Tea is in the kitchen.", ("Tea is on the second floor.",), (date(2026, 4, 2), date(2026, 4, 1)))
OUTDATED = {
    "memory": 3, "was": "The exporter is on port 9105.", "now": "Scrape target is host:9440.", "thing": "the port",
}  # fmt: skip


def reply(first: list[dict[str, Any]], second: list[dict[str, Any]] | None = None) -> SupersessionReply:
    """Return a reply with these outdated sentences of both cases."""
    outdated = {1: first, 2: second or []}
    answers = [{"case": case, "claims": "It is so.", "outdated": found} for case, found in outdated.items()]
    return SupersessionReply.model_validate({"answers": answers})


def test_prompt_numbers_memories_and_names_days() -> None:
    prompt = supersession_prompt([PORT, TEA])
    assert prompt.sources == (PORT.newer, *PORT.older, TEA.newer, *TEA.older)
    lines = [line for line in prompt.task.splitlines() if line.startswith("Case")]
    assert lines == [
        "Case 1: memory 1 of 2026-03-09 is the newer one; older are memory 2 of 2026-03-01, memory 3 of 2026-03-02.",
        "Case 2: memory 4 of 2026-04-02 is the newer one; older are memory 5 of 2026-04-01.",
    ]


def test_outdated_sentences_are_read_by_case_and_place() -> None:
    given = reply([OUTDATED], [{**OUTDATED, "memory": 5, "was": "tea is on the second floor", "now": TEA.newer}])
    assert find_problems([PORT, TEA], given) == []
    assert read_outdated([PORT, TEA], given) == [
        {1: ("The exporter is on port 9105.", "Scrape target is host:9440.")},
        {0: ("Tea is on the second floor.", "Tea is in the kitchen.")},
    ]


def test_first_outdated_sentence_of_a_memory_counts() -> None:
    given = reply([OUTDATED, {**OUTDATED, "was": "Ask Ann."}])
    assert read_outdated([PORT, TEA], given)[0] == {1: (OUTDATED["was"], OUTDATED["now"])}


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"memory": 1}, "memory 1 is no older one of case 1"),
        ({"memory": 5}, "memory 5 is no older one of case 1"),
        ({"was": "The exporter is on port 9106."}, "is not what memory '3' says"),
        ({"now": "Scrape target is elsewhere."}, "is not what memory '1' says"),
        ({"was": "The exporter is on port 9105. Ask Ann."}, "a quote of memory 3 in case 1 is no single sentence"),
        ({"was": "..."}, "has no words"),
    ],
)
def test_wrong_entries_are_problems(wrong: dict[str, Any], problem: str) -> None:
    found = find_problems([PORT, TEA], reply([{**OUTDATED, **wrong}]))
    assert len(found) == 1
    assert problem in found[0]


def test_each_case_needs_one_answer() -> None:
    given = reply([])
    given.answers[1].case = 3
    assert find_problems([PORT, TEA], given) == [
        "case 2 has 0 answers: give it one",
        "there is no case 3: they are 1 to 2",
    ]
