"""The prompt for merged texts, and the check for lost and added facts."""

from __future__ import annotations

import pytest

from consolidation_pipeline.llm.prompts.merge import MergeReply, find_losses, merge_prompt

SOURCES = (
    "Retry after 30 s when the orders API answers 429, and never retry a payment.",
    "The orders API answers 429 under load: retry after 30 seconds, never retry a payment. See `api/retry.py`.",
)
MERGED = "When the orders API answers 429 under load, retry after 30 s (see `api/retry.py`), but never retry a payment."


def find_problems(text: str, sources: tuple[str, ...] = SOURCES, max_chars: int = 8000) -> list[str]:
    prompt = merge_prompt(sources, ["english"], max_chars=max_chars)
    return find_losses(prompt, MergeReply(content=text), max_chars=max_chars)


def test_complete_rewrite_is_accepted() -> None:
    assert find_problems(MERGED) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("  ", "it says nothing"),
        (MERGED.replace("30 s", "a while"), "the number '30 s"),
        (MERGED.replace("`api/retry.py`", "the code"), "is missing: keep it as it is written"),
        (MERGED.replace("never retry", "always retry"), "never retry a payment"),
        (MERGED.replace("but never retry a payment", "but not at night"), "keep it"),
        (MERGED.replace("under load", "under load of 500 requests"), "stands in none of the memories"),
        (MERGED.replace("retry.py", "backoff.py"), "stands in none of the memories"),
        (f"{MERGED} {MERGED} {MERGED}", "characters: at most"),
    ],
)
def test_rewrite_losses_and_additions_are_named(text: str, problem: str) -> None:
    assert any(problem in found for found in find_problems(text)), find_problems(text)


def test_rewrite_dropping_source_is_rejected() -> None:
    plain = ("Run the database migrations before deploying the web service.", "Migrations run before the deploy.")
    assert find_problems("Migrations run.", plain) == ["most of what memory 1 says is missing: keep all of it"]


def test_rewrite_respects_length_cap() -> None:
    assert find_problems(MERGED, max_chars=len(MERGED)) == []
    assert "characters: at most" in find_problems(MERGED, max_chars=len(MERGED) - 1)[0]


def test_merge_prompt_names_length_and_language() -> None:
    prompt = merge_prompt(SOURCES, ["german"], max_chars=60)
    assert "At most 60 characters" in prompt.task
    assert "Write in German" in prompt.task
    assert prompt.max_tokens == 330
