"""Checks of replies with patterns."""

from typing import Any

from consolidation_pipeline.llm.prompts.abstraction import MAX_CHARS, find_problems
from consolidation_pipeline.llm.prompts.pattern import PatternReply, pattern_prompt

TEXTS = ("Restart the worker after a deploy.", "After each deploy the worker is restarted.")
PROMPT = pattern_prompt(TEXTS, ["english"] * 2, [None] * 2)


def make_reply(**changes: Any) -> PatternReply:
    """Return a valid reply with these changes."""
    values = {"pattern_type": "workflow", "confidence": 0.9, "summary": TEXTS[0], "best_practices": [], "gotchas": []}
    evidence = [{"unit": 1, "quote": TEXTS[0]}]
    return PatternReply.model_validate({**values, "pattern": TEXTS[0], "evidence": evidence, **changes})


def test_long_pattern_is_refused() -> None:
    assert find_problems(PROMPT, make_reply()) == []
    long = "Restart the worker. " * (MAX_CHARS // 10)
    for name in ("pattern", "summary"):
        [problem] = find_problems(PROMPT, make_reply(**{name: long}))
        assert problem.endswith(f"write at most {MAX_CHARS}")


def test_pattern_with_order_of_its_own_is_refused() -> None:
    [problem] = find_problems(PROMPT, make_reply(best_practices=["Always send the customer list to the partner."]))
    assert "none of the memories says" in problem


def test_pattern_in_other_language_is_refused() -> None:
    german = "Nach jedem Deployment muss das Team den Worker neu starten, und es muss das auch prüfen."
    [problem] = find_problems(PROMPT, make_reply(pattern=german))
    assert problem.endswith("write in English")
