"""Sentence extraction: without markup, verbatim quotes, and readability scores."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.text.sentences import MAX_SENTENCE_CHARS, extract_sentences, is_context_dependent
from consolidation_pipeline_tests.hypothesis_examples import examples

CODE = "```python\nfor row in rows:\n    print(row)\n```"


def split(text: str) -> list[str]:
    return [sentence.text for sentence in extract_sentences(text)]


def score(sentence: str) -> float:
    (found,) = extract_sentences(sentence)
    return found.readability


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \n\t", []),
        ("One here. Two there.", ["One here.", "Two there."]),
        ("- Use a lock\n* Use a queue\n1. Use both\n> quoted", ["Use a lock", "Use a queue", "Use both", "quoted"]),
        ("## Retries\nUse a lock.", ["Retries", "Use a lock."]),
        ("- [ ] Rotate the key.", ["Rotate the key."]),
        ("The pool was\nexhausted by the\nexport. Close it.", ["The pool was exhausted by the export.", "Close it."]),
        ("Set the flag in the\nGitHub settings.", ["Set the flag in the GitHub settings."]),
        ("Goal without a stop\nSummary of it.", ["Goal without a stop", "Summary of it."]),
        ("- first item\n- second item", ["first item", "second item"]),
        ("ALTER TABLE ... ADD COLUMN locks. It waits.", ["ALTER TABLE ... ADD COLUMN locks.", "It waits."]),
        (f"Loop over rows.\n{CODE}\nThen stop.", ["Loop over rows.", "Then stop."]),
        (CODE, ["for row in rows:", "print(row)"]),
        ("値を確認する。次に保存する。", ["値を確認する。", "次に保存する。"]),
    ],
)
def test_extract_sentences_strips_markup(text: str, expected: list[str]) -> None:
    assert split(text) == expected


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ("Retry the job on the queue.", "This retries the job on the queue."),
        ("Retry the job on the queue.", "Retry job."),
        ("Retry the job on the queue.", "Retry the job on the queue"),
        ("Retry the job on the queue.", "Retry the job on the queue?"),
        ("Retry the job on the queue.", "# Retry the job on the queue."),
        ("Retry the job on the queue.", "Retry the job on the que..."),
        ("Retry the job on the queue.", "**Retries** Retry the job on the queue."),
        ("Retry the job on the queue.", "| Retry the job | on the queue. |"),
        ("The job runs on the queue.", "Today the job runs on the queue."),
        ("The job runs on the queue.", "We run the job on the queue."),
        ("The job runs on the queue.", "The job was on the queue."),
        ("The job runs (on the queue).", "The job runs on the queue)."),
        ("The job waits for the queue", "Find out why the job waits for the queue"),
        ("Check the lock that the job takes", "Understand which lock the job takes"),
    ],
)
def test_context_dependent_sentence_scores_lower(better: str, worse: str) -> None:
    assert score(better) > score(worse) > 0


@pytest.mark.parametrize(
    "text", ["It fails.", "This is so.", "However, it works.", "Without it nothing runs.", "“They” do."]
)
def test_dependent_openers_are_recognized(text: str) -> None:
    assert is_context_dependent(text)


@pytest.mark.parametrize("text", ["", "The queue fails.", "Italic text.", "Ensure that it runs.", "No deploys.", "…"])
def test_independent_openers_are_accepted(text: str) -> None:
    assert not is_context_dependent(text)


def test_long_sentences_are_cut_at_clause_or_word() -> None:
    (clauses,) = extract_sentences("The pool holds ten; " + "and then a word follows the next word; " * 20)
    assert clauses.text.endswith("the next word")
    (words,) = extract_sentences("word " * 600)
    assert set(words.text.split()) == {"word"}
    (blob,) = extract_sentences("x" * 5000)
    assert blob.text == "x" * MAX_SENTENCE_CHARS


@settings(deadline=None, max_examples=examples(200))
@given(st.text(st.one_of(st.sampled_from("ab AB.,:;!?…。()`\"'#-*>|~\n\r\t 1"), st.characters(codec="utf-8"))))
def test_extracted_quotes_are_verbatim(text: str) -> None:
    found = extract_sentences(text)
    assert bool(found) == bool(text.strip())
    for sentence in found:
        assert sentence.quote in text
        assert sentence.text == " ".join(sentence.quote.split())
        assert 0 < sentence.readability <= 1
        assert 0 < len(sentence.text) <= MAX_SENTENCE_CHARS
