"""Titles of groups."""

from __future__ import annotations

from consolidation_pipeline.core.knowledge.pattern_titles import MAX_TITLE_CHARS, fit_title, write_title


def test_title_prefers_phrases_of_key_terms() -> None:
    texts = [
        "The retry limit of the payout queue is high.",
        "Raise the retry limit before a sale.",
        "A retry limit protects the payout queue.",
    ]
    assert write_title(texts, ["retry", "limit", "payout", "queue"]) == "Retry limit, payout queue"


def test_title_keeps_names_as_written() -> None:
    texts = ["Deploy to Google Cloud.", "Google Cloud has a quota.", "The quota of Google Cloud is small."]
    assert write_title(texts, ["google", "Google", "cloud", "Cloud"]).startswith("Google Cloud")


def test_title_is_short_and_empty_without_terms() -> None:
    texts = [" ".join(f"verylongidentifier_{at}_{word}" for word in "abcdef") for at in range(3)] * 2
    assert len(write_title(texts, [f"verylongidentifier_{at}_a" for at in range(3)])) <= MAX_TITLE_CHARS
    assert write_title(["A text."], []) == ""


def test_title_fits_what_is_told() -> None:
    texts = ["Wire the invoice export to the queue.", "The invoice export was slow.", "Check the tax of an invoice."]
    told = ["Check the tax of an invoice."]
    assert fit_title("Invoice export, queue, tax", told, texts, ["invoice", "tax"]) == "Invoice export, tax"
    assert "tax" in fit_title("Queue", told, texts, ["invoice", "tax"]).lower()


def test_title_of_examples_names_most_texts() -> None:
    texts = ["How do I send an invoice?", "Who pays the invoice?", "Is the queue of invoices full?"]
    assert fit_title("Invoice, queue", [], texts, ["invoice", "queue"]) == ""
    texts[1] = "Is an invoice in the queue?"
    assert fit_title("Invoice, queue, pays", [], texts, ["invoice", "queue"]) == "Invoice, queue"
