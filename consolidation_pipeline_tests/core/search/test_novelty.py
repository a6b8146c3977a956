"""Novelty of sentences: said already, shorter, contradicted, or new."""

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
        (BACKUP, "The backup of the ledger is running on the replica."),
        ("The nightly backup of the ledger runs on the replica in Oslo.", BACKUP),
        ("请在部署之前运行数据库迁移。", "请在部署之前运行数据库迁移"),
    ],
)
def test_sentence_is_said(known: str, sentence: str) -> None:
    assert index_of(known).compare(Sentence(sentence)).is_said


@pytest.mark.parametrize(
    ("known", "sentence"),
    [
        (BACKUP, "The backup of the ledger runs on the primary."),
        (BACKUP, "The replica of the ledger runs on the backup."),
        (BACKUP, f"{BACKUP[:-1]} unless it lags."),
        (BACKUP, "The backup of the wiki runs on the replica."),
        (BACKUP, "The backup never runs on the replica of the ledger."),
        ("The payments worker is restarted by Ann.", "Ann is restarted by the payments worker."),
    ],
)
def test_sentence_that_differs_is_not_said(known: str, sentence: str) -> None:
    for one, other in ((known, sentence), (sentence, known)):
        comparison = index_of(one).compare(Sentence(other))
        assert not comparison.is_said
        assert comparison.shorter == ()


def test_longer_sentence_finds_shorter() -> None:
    known = Sentence(BACKUP)
    index = SentenceIndex()
    index.add(known)
    longer = Sentence("The nightly backup of the ledger runs on the replica in Oslo.")
    assert index.compare(longer).shorter == (known,)
    index.remove(known)
    assert index.compare(longer).shorter == ()
    assert known not in index


@pytest.mark.parametrize(
    ("known", "sentence"),
    [
        ("The payments worker has 5 replicas.", "The search worker has 3 replicas."),
        ("Ann approves invoices from 5,000 EUR.", "Bob approves invoices from 9,000 EUR."),
        ("The export ends with row 5.", "The export of the archive for the tax office of Rome ends with row 9."),
        ("The job writes a log.", "The job writes a log, which does not contain any names of the customers."),
    ],
)
def test_other_matter_is_no_contradiction(known: str, sentence: str) -> None:
    assert index_of(known).compare(Sentence(sentence)).contradicted is None


def test_most_similar_sentence_is_contradicted() -> None:
    index = index_of("The backup of the ledger runs on port 1 in Oslo.", "The backup of the ledger runs on port 2.")
    contradicted = index.compare(Sentence("The backup of the ledger runs on port 3.")).contradicted
    assert contradicted
    other, difference = contradicted
    assert (other.text, difference.a, difference.b) == ("The backup of the ledger runs on port 2.", "3", "2")


def test_index_finds_literal_in_other_spelling() -> None:
    index = index_of("See `src/ledger.py`, it takes 30 seconds.")
    found = {one.value: index.has_literal(one) for one in Sentence("ledger.py needs 30 s, not 40 s.").literals}
    assert (found["ledger.py"], found["30 s"], found["40 s"]) == (True, True, False)


def test_sentences_without_content_are_dropped() -> None:
    assert [sentence.text for sentence in parse_sentences("Anyway. Use port 80. Ok.")] == ["Use port 80.", "Ok."]
