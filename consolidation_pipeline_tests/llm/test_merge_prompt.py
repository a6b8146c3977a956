"""The prompt for merged texts, and the check for lost and added facts."""

from __future__ import annotations

import pytest

from consolidation_pipeline.llm.prompts.merge import MergeReply, find_losses, merge_prompt

SOURCES = (
    "Retry after 30 s when the orders API answers 429, and never retry a payment.",
    "The orders API answers 429 under load: retry after 30 seconds, never retry a payment. See `api/retry.py`.",
)
GOOD = "When the orders API answers 429 under load, retry after 30 s (see `api/retry.py`), but never retry a payment."


def problems(text: str, sources: tuple[str, ...] = SOURCES, max_chars: int = 8000) -> list[str]:
    prompt = merge_prompt(sources, ["english"], max_chars=max_chars)
    return find_losses(prompt, MergeReply(content=text), max_chars=max_chars)


def test_complete_rewrite_is_accepted() -> None:
    assert problems(GOOD) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("  ", "it says nothing"),
        (GOOD.replace("30 s", "a while"), "the number '30 s"),
        (GOOD.replace("`api/retry.py`", "the code"), "is missing: keep it as it is written"),
        (GOOD.replace("never retry", "always retry"), "never retry a payment"),
        (GOOD.replace("but never retry a payment", "but not at night"), "keep it"),
        (GOOD.replace("under load", "under load of 500 requests"), "stands in none of the memories"),
        (GOOD.replace("retry.py", "backoff.py"), "stands in none of the memories"),
        (f"{GOOD} {GOOD} {GOOD}", "characters: at most"),
    ],
)
def test_rewrite_losses_and_additions_are_named(text: str, problem: str) -> None:
    assert any(problem in found for found in problems(text)), problems(text)


def test_rewrite_that_drops_a_source_is_rejected() -> None:
    plain = ("Run the database migrations before deploying the web service.", "Migrations run before the deploy.")
    assert problems("Migrations run.", plain) == ["most of what memory 1 says is missing: keep all of it"]


def test_rewrite_respects_length_cap() -> None:
    assert problems(GOOD, max_chars=len(GOOD)) == []
    assert "characters: at most" in problems(GOOD, max_chars=len(GOOD) - 1)[0]


def test_merge_prompt_names_length_and_language() -> None:
    prompt = merge_prompt(SOURCES, ["german"], max_chars=60)
    assert "At most 60 characters" in prompt.task
    assert "Write in German" in prompt.task
    assert prompt.max_tokens == 330
