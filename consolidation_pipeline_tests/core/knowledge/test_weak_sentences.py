"""Sentences that tell too little alone."""

from __future__ import annotations

import pytest

from consolidation_pipeline.core.knowledge.weak_sentences import (
    contests,
    instructs_fault,
    is_vague,
    names_cause,
    names_goal_alone,
    names_remedy,
    names_symptom_alone,
    names_wish_alone,
    read_fault,
    refers_elsewhere,
    reverses,
    tells_status,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The issue lies in the code for sorting the invoices.", True),
        ("The invoice function is incorrect.", True),
        ("Revise the logic.", True),
        ("The formula used in the report is incorrect, leading to wrong results.", True),
        ("The issue might be related to the logic of the export.", True),
        ("Update the test cases.", True),
        ("The logic for totals needs to be corrected.", True),
        ("The total should be sum(rows) - 1 instead of sum(rows) - 1.", True),
        ("The issue lies in the calculation of the total needed to close an invoice.", True),
        ("The function failed 3 out of 5 test cases.", True),
        ("Further investigation is needed to find what locks the table.", True),
        ("Verify if the logic for discounts is correct, as it might add to the difference.", True),
        ("Verify that the discount is taken off once.", False),
        ("The issue lies in the loop where invoices are added up.", True),
        ("The function failed 3 of the test cases due to a missing import.", False),
        ("The issue lies in the loop, which stops before the last invoice.", False),
        ("Revise the loop to stop after the last invoice.", False),
        ("The function is incorrect because it rounds each invoice.", False),
        ("Round the total once.", False),
    ],
)
def test_claim_that_something_is_wrong_is_vague(text: str, expected: bool) -> None:
    assert is_vague(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("In such cases, sort the invoices by name.", True),
        ("The importer does not cover these formats.", True),
        ("This 3-stage job saves time.", True),
        ("The export does not use this formula.", True),
        ("Diese Regel gilt immer.", True),
        ("Esta regla vale siempre.", True),
        ("Cette règle vaut toujours.", True),
        ("Set to 5 in the settings of the importer.", True),
        ("Never: the importer holds the lock.", True),
        ("Restart all three after an upgrade.", True),
        ("Due to this, the importer stops.", True),
        ("Due to this quarter's rates, the importer stops.", True),
        ("Due to the new rates, the importer stops.", False),
        ("When two rows are equal, it skips the second one.", True),
        ("When the importer is idle, it closes the file.", False),
        ("When two rows are equal, it is enough to keep one.", False),
        ("Restart all three after an upgrade: scheduler, worker and gateway.", False),
        ("Fill all 10 % of the reserve first.", False),
        ("Never hold the lock of the importer.", False),
        ("Set the limit to 5 in the settings of the importer.", False),
        ("Use a parser such as the one of the importer.", False),
        ("The importer reads two formats, and these formats differ.", False),
        ("Das System startet neu.", False),
        ("Estimate the load first.", False),
        ("Sonst läuft die Pumpe trocken.", True),
        ("Si no, la bomba se queda seca.", True),
        ("しないとポンプが止まる。", True),
        ("忘れるとポンプが止まる。", True),
        ("否则水泵会停。", True),
        ("水を入れないとポンプが止まる。", False),
        ("Never open the gate sooner.", True),
        ("Öffne das Tor nicht früher.", True),
        ("Never open the gate sooner than the yard.", False),
        ("The ferry lands at noon; do not open the gate before that.", False),
    ],
)
def test_reference_without_its_noun_points_elsewhere(text: str, expected: bool) -> None:
    assert refers_elsewhere(text) is expected


def test_reason_names_more_than_the_fault() -> None:
    assert names_cause("A cache without a bound causes the host to run out of memory.")
    assert names_cause("It is wrong because each row is rounded before the sum.")
    assert not names_cause("It is wrong because it does not properly count the rows.")
    assert not names_cause("Some rows are missing, leading to an incorrect count.")


def test_advice_to_do_what_is_wrong_is_found() -> None:
    fault = read_fault("The filter is wrong because it keeps all rows below the limit instead of those above it.")
    assert " ".join(fault) == "it keeps all rows below the limit"
    assert instructs_fault("Change it to keep rows below the limit.", fault)
    assert not instructs_fault("Never keep rows below the limit.", fault)
    assert not instructs_fault("Keep the rows above the limit.", fault)
    assert read_fault("The filter is wrong because it never closes the file.") == ()


def test_goal_without_a_way_says_little() -> None:
    assert names_goal_alone("Re-evaluate the sums, ensuring that the rules are correctly followed.")
    assert names_goal_alone("Properly account for the waiting time.")
    assert not names_goal_alone("Round once to get the correct total, instead of per row.")
    assert not names_goal_alone("Sort the rows by name.")
    assert not names_goal_alone("Ensure that all brackets are properly closed.")


def test_symptom_is_no_cause() -> None:
    assert names_symptom_alone("The failed tests indicate that the total is wrong.")
    assert names_wish_alone("The export does not return the expected rows.")
    assert names_wish_alone("The job is not properly counting the rows.")
    assert not names_symptom_alone("The total is rounded twice.")


def test_fault_with_what_is_right_names_its_remedy() -> None:
    assert names_remedy("It rounds each row instead of the sum.")
    assert names_remedy("It rounds each row, but it should round the sum.")
    assert not names_remedy("It rounds each row, which makes totals differ by a cent.")


def test_status_is_told_from_advice() -> None:
    assert tells_status("All 12 freight tests pass.")
    assert not tells_status("Run the freight tests before a release.")


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("Start the pages at 4 instead of 3.", "The pages start at 3 instead of 4.", True),
        ("Keep the last invoice rather than the first one.", "Keep the first one instead of the last invoice.", True),
        ("Bill hours in euro and days in francs.", "Bill hours in francs and days in euro.", True),
        ("Bill hours in euro and days in francs.", "Bill hours in euro and weeks in francs.", False),
        ("Start the pages at 4 instead of 3.", "Start the pages at 4 rather than 3.", False),
        ("Start the pages at 4 instead of 3.", "Start the pages at 4.", False),
    ],
)
def test_reversed_alternatives_are_found(one: str, other: str, expected: bool) -> None:
    assert reverses(one, other) is expected


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (
            "The code is wrong because it only adds open rows of the bill, but it should add all rows.",
            "The code should only add open rows of the bill.",
            True,
        ),
        (
            "It fails because it bills hours up to the last day, instead of hours before the last day.",
            "It fails because it bills hours before the last day.",
            True,
        ),
        (
            "It fails because it sends a letter to old guests and a mail to new guests.",
            "It fails because it sends a mail to old guests and a letter to new guests.",
            True,
        ),
        (
            "The code is wrong because it adds open rows of the bill.",
            "The code should not add open rows of the bill.",
            False,
        ),
        (
            "The code is wrong because it adds all rows of the bill.",
            "The code should add open rows of the bill.",
            False,
        ),
        (
            "The code is wrong because it only adds open rows of the bill.",
            "The code needs to be modified to only count open rows of the bill and then sort them.",
            True,
        ),
        ("Add open rows of the bill.", "Add closed rows of the bill.", False),
    ],
)
def test_attempts_contest_what_each_other_wants(one: str, other: str, expected: bool) -> None:
    assert contests(one, other) is contests(other, one) is expected
