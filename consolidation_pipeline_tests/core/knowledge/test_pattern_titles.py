"""Titles of groups."""

from __future__ import annotations

import pytest

from consolidation_pipeline.core.knowledge.pattern_titles import MAX_TITLE_CHARS, strip_verb, write_title


def test_title_is_a_phrase_of_most_texts() -> None:
    texts = [
        "The retry limit of the payout queue is high.",
        "Raise the retry limit before a sale.",
        "A retry limit protects the payout service.",
    ]
    assert write_title(texts, ["retry", "limit", "payout", "queue"]) == "Retry limit"


@pytest.mark.parametrize("words", [("queue", "limit"), ("limit", "queue")])
def test_title_is_no_list_of_words(words: tuple[str, str]) -> None:
    texts = ["The queue has a limit.", "Raise the limit of a queue.", "No limit, no queue."]
    assert write_title(texts, words) in ("", "Limit of a queue")
    assert write_title(["The queue is long.", "A limit is set.", "Wait for the queue."], words) == ""


def test_title_keeps_names_as_written() -> None:
    texts = ["Deploy to Google Cloud.", "Google Cloud has a quota.", "The quota of Google Cloud is small."]
    assert write_title(texts, ["google", "Google", "cloud", "Cloud"]) == "Google Cloud"
    assert write_title(["Set lock_timeout.", "A lock_timeout helps."], ["lock_timeout"]) == "lock_timeout"
    assert write_title(["Call readAll.", "It is readAll."], ["readAll"]) == "readAll"


@pytest.mark.parametrize(("title", "left"), [("Add login page", "Login page"), ("Port 8080", "Port 8080")])
def test_verb_of_title_is_stripped_before_words(title: str, left: str) -> None:
    assert strip_verb(title) == left


def test_words_are_read_in_the_language_of_the_group() -> None:
    texts = ["The die cutter jams in the morning.", "Oil the die cutter.", "A die cutter stands beside the press."]
    assert write_title(texts, ["cutter", "die", "beside"]) == "Die cutter"


def test_title_prefers_nouns_to_verbs() -> None:
    texts = ["The invoice export starts slowly.", "When the invoice export starts, wait.", "The invoice export starts."]
    assert write_title(texts, ["export", "invoice", "starts"]) == "Invoice export"


def test_title_ends_with_its_noun() -> None:
    texts = [
        "Print the invoice when signatures present differ.",
        "With signatures present, print.",
        "Signatures present?",
    ]
    assert write_title(texts, ["signatures", "present"]) == ""
    texts = [f"Keep valid signatures ahead of {what}." for what in ("stamps", "seals", "dates")]
    assert write_title(texts, ["signatures", "valid", "ahead"]) == "Valid signatures"


def test_german_title_has_no_verb_behind_a_noun() -> None:
    texts = [f"Anträge über {euros} Euro brauchen den Stempel der Kasse." for euros in (500, 900, 3000)]
    assert write_title(texts, ["euro", "brauchen", "stempel", "kasse", "anträge"]) == "Stempel der Kasse"
    texts = [f"Offene Rechnungen {what}." for what in ("mahnen", "der Kasse melden", "bis Freitag zahlen")]
    assert write_title(texts, ["offene", "rechnungen"]) == "Offene Rechnungen"


def test_title_names_no_span_of_time() -> None:
    texts = [f"The parcel came a couple hours ago at gate {gate}." for gate in "ABC"]
    assert write_title(texts, ["couple", "hours", "ago", "parcel"]) == ""
    assert write_title(["Weeks and false for odd", "weeks and false for odd ones"], ["false", "weeks"]) == ""


def test_title_is_short_and_empty_without_terms() -> None:
    texts = [" ".join(f"verylongidentifier_{at}_{word}" for word in "abcdef") for at in range(3)] * 2
    assert len(write_title(texts, [f"verylongidentifier_{at}_a" for at in range(3)])) <= MAX_TITLE_CHARS
    assert write_title(["A text."], []) == ""


def test_title_share_is_of_texts() -> None:
    texts = ["Wire the invoice export.", "The invoice export was slow.", *["Check the tax."] * 3]
    assert write_title(texts, ["invoice", "export"]) == ""
    assert write_title(texts, ["invoice", "export"], share=0.4) == "Invoice export"


@pytest.mark.parametrize(
    "line",
    [
        "invoice export occurs",
        "invoice partner prefers",
        "invoice import accepts files",
        "invoice's",
        "invoice export and return",
        "invoice exports with odd",
        "I've invoice",
        "different invoices",
        "taken invoice",
        "invoice in/on desk",
    ],
)
def test_title_is_no_part_of_a_sentence(line: str) -> None:
    title = write_title([line] * 3, line.split())
    assert title.lower() != line.lower()
    assert not title.lower().endswith((" occurs", " return", " odd"))
