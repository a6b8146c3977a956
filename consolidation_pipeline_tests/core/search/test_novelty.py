"""Novelty of sentences: said already, contradicted, or new."""

from __future__ import annotations

import pytest

from consolidation_pipeline.core.search.novelty import Sentence, SentenceIndex, parse_sentences

BACKUP = "The backup of the ledger runs on the replica."


def index_of(*texts: str) -> SentenceIndex:
    index = SentenceIndex()
    for text in texts:
        index.add(Sentence(text))
    return index


@pytest.mark.parametrize(
    ("known", "sentence"),
    [
        (BACKUP, BACKUP.upper()),
        (BACKUP, f"- {BACKUP}"),
        (BACKUP, f"  {BACKUP.replace(' ', '  ')}"),
    ],
)
def test_sentence_is_said(known: str, sentence: str) -> None:
    assert Sentence(sentence) in index_of(known)


@pytest.mark.parametrize(
    ("known", "sentence"),
    [
        (BACKUP, "The backup of the ledger runs on the primary."),
        (BACKUP, "The replica of the ledger runs on the backup."),
        (BACKUP, f"{BACKUP[:-1]} unless it lags."),
        (BACKUP, "The backup of the ledger is running on the replica."),
        (BACKUP, "The backup of the wiki runs on the replica."),
        (BACKUP, "The backup never runs on the replica of the ledger."),
        ("The payments worker is restarted by Ann.", "Ann is restarted by the payments worker."),
        (BACKUP, "The nightly backup of the ledger runs on the replica in Oslo."),
    ],
)
def test_sentence_that_differs_is_not_said(known: str, sentence: str) -> None:
    for one, other in ((known, sentence), (sentence, known)):
        assert Sentence(other) not in index_of(one)


@pytest.mark.parametrize(
    ("known", "sentence"),
    [
        ("The payments worker has 5 replicas.", "The search worker has 3 replicas."),
        ("Ann approves invoices from 5,000 EUR.", "Bob approves invoices from 9,000 EUR."),
        ("Memoizing RowView helps the list.", "Memoizing CellView does not help the list."),
        ("Remove version 3.1 from the download page", "Remove version 2.9 from the download page"),
        ("Client: update the parser to 5.1", "Client: update the parser to 5.2"),
        ("Minimal Memory Pattern.", "Minimal Memory Selection."),
        ("Order 8812 was sent to the old address.", "Order 9127 was sent to the old address."),
        ("Step 3 takes an hour on the replica.", "Step 5 takes an hour on the replica."),
        ("Nordwind Ltd has 40 licences of the editor.", "Nordwind Corp has 40 licences of the editor."),
        ("Count the till and open the shop only then.", "Don't open the shop before the till has been counted."),
        ("Requests to /orders are limited to 50 rows.", "Requests to /entries are limited to 200 rows."),
        ("The check fails when the body is sent again.", "The check fails when the body has been sent again."),
        ("The export ends with row 5.", "The export of the archive for the tax office of Rome ends with row 9."),
        ("The job writes a log.", "The job writes a log, which does not contain any names of the customers."),
        (
            "Incident 12 October: checkout was down for 14 minutes because the certificate of pay-02 expired.",
            "Incident 2 November: checkout was down for 8 minutes because the certificate of pay-03 expired.",
        ),
    ],
)
def test_other_matter_is_no_contradiction(known: str, sentence: str) -> None:
    assert index_of(known).find_contradicted(Sentence(sentence)) is None


@pytest.mark.parametrize(
    ("known", "sentence"),
    [
        ("The session expires after 5 min.", "The session expires after 5 h."),
        ("The export runs every Thursday.", "The export runs every Tuesday."),
        ("Freeze the ledger on Mondays.", "Freeze the ledger on Fridays."),
        ("Retries help on the list.", "Retries do not help on the list."),
        ("The clients are in services/orders/gen/.", "The clients are in services/payments/gen/."),
    ],
)
def test_other_claim_on_one_thing_is_a_contradiction(known: str, sentence: str) -> None:
    assert index_of(known).find_contradicted(Sentence(sentence)) is not None


def test_most_similar_sentence_is_contradicted() -> None:
    index = index_of("The backup of the ledger runs on port 1 in Oslo.", "The backup of the ledger runs on port 2.")
    contradicted = index.find_contradicted(Sentence("The backup of the ledger runs on port 3."))
    assert contradicted
    other, difference = contradicted
    assert (other.text, difference.a, difference.b) == ("The backup of the ledger runs on port 2.", "3", "2")


def test_sentences_without_content_are_dropped() -> None:
    assert [sentence.text for sentence in parse_sentences("Anyway. Use port 80. Ok.")] == ["Use port 80.", "Ok."]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Queue `mail` has size MEDIUM.", "Queue `fax` has size MEDIUM."),
        ("job_a must run before job_z.", "job_b must run before job_z."),
        ("Fix: change `models/a.sql`.", "Fix: change `models/b.sql`."),
        ("db.LockError: statement '01c9' has locked the table", "db.LockError: statement '01c2' has locked the table"),
        ("Milk 2 l bottles: 5 are left.", "Milk 1 l bottles: 5 are left."),
        ("Tests in hall 3 are held 30 minutes before lunch.", "Tests in hall 5 are held 60 minutes before lunch."),
        ("La tienda abre a las 9:00 los sábados.", "La tienda abre a las 11:00 los domingos."),
        ("Carl handed the drill to Dana.", "Dana handed the drill to Carl."),
        (
            "No boat rides in the spring frost (1 May to 3 June).",
            "Spring frost: no rides of the boat from 1 May to 3 June.",
        ),
        (
            "The pump showed old values since the oil test was not run after the change of the valve file.",
            "After changing a valve file run the oil test, or the pump shows the old values.",
        ),
    ],
)
def test_other_things_and_steps_are_no_dispute(one: str, other: str) -> None:
    assert index_of(one).find_contradicted(Sentence(other)) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Queue `mail` has size MEDIUM.", "Queue `mail` has size LARGE."),
        ("3 approvals are needed for a release.", "2 approvals are needed for a release."),
        ("Carl reports to Dana.", "Dana reports to Carl."),
    ],
)
def test_other_values_of_one_thing_are_a_dispute(one: str, other: str) -> None:
    assert index_of(one).find_contradicted(Sentence(other)) is not None
