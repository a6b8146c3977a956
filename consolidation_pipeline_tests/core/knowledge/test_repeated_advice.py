"""Repeated advice: phrases that several texts share, counted by text."""

from __future__ import annotations

from consolidation_pipeline.core.knowledge.repeated_advice import find_repeated_advice


def test_shared_instruction_is_told_in_its_longest_form() -> None:
    texts = [f"Check the return value before you {verb} it." for verb in ("use", "log", "store")]
    assert find_repeated_advice(texts) == [("check the return value", 3)]


def test_word_that_forbids_stays_in_phrase() -> None:
    texts = [f"Never commit the lock file of {name}." for name in ("shop", "till", "depot")]
    assert find_repeated_advice(texts) == [("never commit the lock file", 3)]


def test_instruction_after_modal_or_colon_counts() -> None:
    texts = [
        "The parser should handle empty lines.",
        "Rule: handle empty lines.",
        "To be safe, handle empty lines.",
        "Handle empty lines.",
    ]
    assert find_repeated_advice(texts) == [("handle empty lines", 4)]


def test_rare_phrases_and_statements_are_left_out() -> None:
    texts = ["Check the return value.", "The parser returns the sum.", "The parser returns the sum."]
    assert find_repeated_advice([*texts, texts[1]]) == []
    assert find_repeated_advice(["Check the return value."] * 2) == []
    assert find_repeated_advice(["Check the return value."] * 2, fewest=2) == [("check the return value", 2)]


def test_phrase_with_the_same_words_is_told_once() -> None:
    texts = ["Always check the return value of calls.", "Always check the return value of calls."] * 2
    texts += ["Check the return value twice.", "Check the return value now."]
    assert [phrase for phrase, _ in find_repeated_advice(texts)] == ["check the return value of calls"]


def test_largest_tasks_come_first_whatever_their_length() -> None:
    texts = (
        ["Improve the export"] * 9 + ["Fix export"] * 7 + ["Improve the tax export"] * 4 + ["Revise the logic."] * 20
    )
    told = [("improve the export", 9), ("fix export", 7), ("improve the tax export", 4)]
    assert find_repeated_advice(texts) == told


def test_count_before_number_is_one_task() -> None:
    texts = [f"Investigate drop of tests: {count} -> 0" for count in range(5)]
    assert find_repeated_advice(texts) == [("investigate drop of tests", 5)]


def test_phrase_does_not_end_inside_a_measure() -> None:
    texts = ["Keep oil above 4 °C.", "Keep oil above 4 degrees at night.", "Always keep oil above 4 °C and stir it."]
    assert find_repeated_advice(texts) == []
    assert find_repeated_advice([f"Set the dial to 4{end}" for end in (".", "!", ", then wait.")])
