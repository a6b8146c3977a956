"""Prompt of the pair judge: what it shows, and which replies are refused or not believed."""

from __future__ import annotations

from typing import Any

import pytest

from consolidation_pipeline.llm.prompts.pair import PairReply, find_problems, pair_prompt, read_answers

PROMPT = pair_prompt([("The disk is full.", "No space is left."), ("Ask Mia.", "Ask Noah.")])


def reply(*changes: dict[str, Any]) -> PairReply:
    """Return a reply with an answer to each pair, and these changes to them."""
    answer = {"first_claim": "a", "second_claim": "b", "difference": "words", "kind": "wording", "answer": "same"}
    answers = [{**answer, "pair": number, **change} for number, change in enumerate(changes, 1)]
    return PairReply.model_validate({"answers": answers})


def test_pair_prompt_shows_pairs_in_order() -> None:
    assert PROMPT.sources == ("The disk is full.", "No space is left.", "Ask Mia.", "Ask Noah.")
    assert "There are 2 pairs." in PROMPT.task


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (({},), "pair 2 has 0 answers"),
        (({}, {}, {"pair": 2}), "pair 2 has 2 answers"),
        (({}, {}, {}), "there is no pair 3: the pairs are 1 to 2"),
        (({}, {"first_claim": " "}), "pair 2 lacks a claim or the difference"),
        (({"difference": ""}, {}), "pair 1 lacks a claim or the difference"),
    ],
)
def test_incomplete_pair_reply_is_refused(changes: tuple[dict[str, Any], ...], problem: str) -> None:
    [found] = find_problems(PROMPT, reply(*changes))
    assert problem in found


def test_answers_come_in_order_of_the_pairs() -> None:
    given = reply({"pair": 2, "answer": "different"}, {"pair": 1})
    assert find_problems(PROMPT, given) == []
    assert read_answers(given) == ["same", "different"]


@pytest.mark.parametrize(("kind", "answer"), [("wording", "same"), ("detail", "same"), ("time", "unsure")])
def test_same_is_believed_beside_harmless_difference(kind: str, answer: str) -> None:
    assert read_answers(reply({"kind": kind})) == [answer]
