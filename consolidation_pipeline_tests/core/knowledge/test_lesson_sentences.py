"""Lesson sentences: roles, and intentions as instructions."""

from __future__ import annotations

import pytest

from consolidation_pipeline.core.knowledge.lesson_sentences import is_bug_report, is_undecided, read_lesson


@pytest.mark.parametrize(
    ("sentence", "role"),
    [
        ("Keep the batch below 100 jobs.", "rule"),
        ("When the queue is full, stop the import.", "rule"),
        ("The worker must hold the lock.", "rule"),
        ("The function should return a list.", "rule"),
        ("Never log the body of a webhook.", "warning"),
        ("When the index is rebuilt, do not write to it.", "warning"),
        ("If the index does not exist, create it first.", "rule"),
        ("The pool holds ten connections.", "fact"),
        ("The export is always slow on Mondays.", "fact"),
        ("A method for reading large files in parts.", "definition"),
        ("I forgot the lock of the table.", "report"),
        ("The current implementation is wrong because it skips zero.", "warning"),
        ("The deploy failed at noon.", "report"),
        ("Release 2.3 of the portal was withdrawn.", "report"),
        ("Not cutting it for now.", "fragment"),
        ("How do I rotate the key?", "question"),
        ("What is the limit of the export.", "question"),
        ("Which fees are there for parcels.", "question"),
        ("Could you please send it again, it is urgent.", "question"),
        ("How much of the discount have I used up", "question"),
        ("which delivery options do you offer abroad", "question"),
        ("does kyoto sell green tea", "question"),
        ("How much tea you sell does not matter.", "fact"),
        ("Does not start on old phones", "fact"),
        ("What the lock guards is the table.", "fact"),
        ("feat(api): add a limit", "subject"),
        ("Fix the queue worker", "subject"),
        ("Added a limit to the queue.", "subject"),
        ("This breaks the build.", "fragment"),
        ("See https://example.org/a for the reason.", "fragment"),
        ("Vermeide lange Transaktionen in Migrationen.", "warning"),
        ("Siempre ejecuta las pruebas antes de publicar.", "rule"),
        ("Il faut vérifier la signature du webhook.", "rule"),
    ],
)
def test_sentence_has_role(sentence: str, role: str) -> None:
    assert read_lesson(sentence).role == role


@pytest.mark.parametrize(
    ("sentence", "told"),
    [
        ("Next time I write an import, I will check the log first.", "Check the log first."),
        ("In the next run, I will check the log first.", "Check the log first."),
        ("If I am stuck again, I will also read my notes.", "If you are stuck again, read your notes."),
        ("Next time, I should not skip the tests.", "Do not skip the tests."),
        ("Key insight: keep the batch small.", "Keep the batch small."),
        ("However, always lock the table.", "Always lock the table."),
        ("To fix this issue, rename the function.", "Rename the function."),
        ("One possible approach is to read the rows by page.", "Read the rows by page."),
    ],
)
def test_intentions_and_labels_become_instructions(sentence: str, told: str) -> None:
    assert read_lesson(sentence).text == told


@pytest.mark.parametrize(
    ("verdict", "told"),
    [
        (
            "The implementation is incorrect because it rounds each row instead of the sum.",
            "Tried, failed: an implementation that rounds each row instead of the sum.",
        ),
        (
            "My solution failed because it only reads one page.",
            "Tried, failed: a solution that only reads one page.",
        ),
        (
            "The current code of `load_rows` was wrong because it reads the file twice.",
            "Tried, failed: code of `load_rows` that reads the file twice.",
        ),
    ],
)
def test_cause_of_a_failure_is_told_as_tried(verdict: str, told: str) -> None:
    lesson = read_lesson(verdict)
    assert (lesson.text, lesson.role, lesson.is_verdict) == (told, "warning", True)
    assert read_lesson(told) == lesson


@pytest.mark.parametrize(
    ("sentence", "told"),
    [
        ("The total should be positive, but it currently is negative.", "The total should be positive."),
        (
            "The code is wrong because it rounds each row, leading to incorrect totals in the report.",
            "Tried, failed: code that rounds each row.",
        ),
        ("The total should be positive, as indicated by the failed tests.", "The total should be positive."),
        ("Rows must be sorted, but ties may stay.", "Rows must be sorted, but ties may stay."),
        (
            "Always lock the table, which causes writers to wait.",
            "Always lock the table, which causes writers to wait.",
        ),
    ],
)
def test_lesson_leaves_out_what_came_of_an_attempt(sentence: str, told: str) -> None:
    assert read_lesson(sentence).text == told


def test_failure_without_a_cause_is_no_warning() -> None:
    for text in (
        "The code is wrong because it does not properly count.",
        "The code is wrong because rows are missing.",
    ):
        assert read_lesson(text).role != "warning"


def test_report_on_the_current_state_is_no_rule() -> None:
    report = "The current code simply adds the rows, which is wrong when the total should be rounded."
    assert read_lesson(report).role == "report"
    assert read_lesson("The current code should round the total.").role == "rule"


def test_opening_without_verb_is_a_title() -> None:
    title = "Retry and Backoff Pattern."
    assert read_lesson(title, is_opening=True).role == "subject"
    assert read_lesson(title).role != "subject"


def test_reasons_are_marked() -> None:
    assert read_lesson("Keep the batch small, because the lock blocks readers.").is_reason
    assert not read_lesson("Keep the batch small.").is_reason


def test_bug_report_tells_how_to_reproduce() -> None:
    assert is_bug_report("Menu stays open. Steps to reproduce: open the menu.")
    assert not is_bug_report("Keep the menu open until the page is loaded.")


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("(Bela's opinion, no decision.)", True),
        ("Switch to the new engine (a proposal).", True),
        ("Proposal: switch to the new engine.", True),
        ("Not decided yet.", True),
        ("Das ist nur ein Vorschlag.", True),
        ("Es una propuesta de Ana.", True),
        ("C'est une proposition.", True),
        ("Ask for a second opinion.", False),
        ("Write the idea down.", False),
    ],
)
def test_opinions_and_proposals_are_undecided(sentence: str, expected: bool) -> None:
    assert is_undecided(sentence) is expected
