"""Statements: a text says a claim only if it holds all of it."""

from __future__ import annotations

import pytest

from consolidation_pipeline.core.memory_tests.statements import says

LESS = [
    ("Hardly anybody uses the fax.", "Nobody uses the fax."),
    ("Nobody uses the fax.", "Hardly anybody uses the fax."),
    ("The server room should have two exits.", "The server room has two exits."),
    ("The server room has two exits.", "The server room should have two exits."),
    ("Old events are deleted by hand.", "Old events are deleted."),
    ("The shop accepts cards again.", "The shop accepts cards."),
    ("The alarm code is also with Peter.", "The alarm code is with Peter."),
    ("The choir rehearses above the crypt.", "The choir rehearses in the crypt."),
    ("The choir rehearses in the crypt.", "The choir rehearses above the crypt."),
    ("Die Chargen werden im Keller gelagert.", "Die Chargen werden gelagert."),
    ("Die Tür ist auch mit Karte zu öffnen.", "Die Tür ist mit Karte zu öffnen."),
    ("The tender was won by Kappa.", "The tender was won."),
    ("Rosa is at the hospital.", "Rosa is back from the hospital."),
]
ALL = [
    ("The van belongs to Marie.", "The van belongs to Marie, and to Peter."),
    ("The shop accepts cards.", "The shop accepts cards again."),
    ("Old events were deleted.", "Old events were deleted on Monday."),
    ("You must run migrations first.", "Always run migrations first."),
    ("Run migrations first.", "You should run migrations first."),
    ("Backups müssen geprüft werden.", "Bitte Backups prüfen."),
    ("Ejecuta las pruebas antes.", "Debes ejecutar las pruebas antes."),
    ("The van from Nordpharm comes at 6.", "Nordpharm's van comes at 6."),
    ("Never crush tablets.", "Tablets must never be crushed."),
    ("Also run the tests on Windows.", "Run the tests on Windows."),
    ("The retry limit of the refunds queue is 3.", "The refunds queue has a retry limit of 3."),
]


@pytest.mark.parametrize(("claim", "text"), LESS)
def test_text_that_says_less_does_not_say_it(claim: str, text: str) -> None:
    assert not says(text, claim)


@pytest.mark.parametrize(("claim", "text"), ALL)
def test_text_that_holds_all_says_it(claim: str, text: str) -> None:
    assert says(text, claim)


def test_what_may_not_be_said_is_found_loosely() -> None:
    assert says("The shop accepts cards.", "The shop accepts cards again.", in_full=False)
    assert not says("The shop accepts cash.", "The shop accepts cards again.", in_full=False)
