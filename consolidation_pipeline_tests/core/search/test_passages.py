"""Passages: what a context tells together or not at all."""

from __future__ import annotations

import pytest

from consolidation_pipeline.core.search.passages import keep_passages, split_passages


@pytest.mark.parametrize(
    "text",
    [
        "To drain a node:\n- Cordon the node\n- Evict the pods\n- Reboot the machine",
        "Release steps\n1. Tag the commit\n\n2. Build the image\n\n3. Push the image",
        "| region | owner |\n|---|---|\n| north | Ana |\n| south | Ben |",
        "To count the open carts:\n```sql\nSELECT count(*)\nFROM carts\n```\nThen divide by two.",
        "Traceback (most recent call last):\n  File app.py, line 7\nKeyError: 'size'\nCause: the cart was empty.",
        "Order 8812: the parcel came back. Sent the refund.",
        "Close the year: export the journal. Lock the period. Send the report.",
        "The pump stops at 80 degrees. It starts again at 60 degrees.",
        "The term is 45 days. Send no reminder earlier.",
        "Der Import läuft nachts. Danach wird der Index gebaut.",
        "# Staging\nThe gateway listens on port 8443.",
    ],
)
def test_passage_is_whole(text: str) -> None:
    assert [passage.text for passage in split_passages(text)] == [text]


@pytest.mark.parametrize(
    ("text", "passages"),
    [
        (
            "The pump stops at 80 degrees. The fan starts at 60.",
            ["The pump stops at 80 degrees.", "The fan starts at 60."],
        ),
        (
            "Pay by card.\nSteps:\n1. Open the till\n2. Print the receipt\n\nThe shop closes at six.",
            ["Pay by card.", "Steps:\n1. Open the till\n2. Print the receipt", "The shop closes at six."],
        ),
        (
            "# Staging\nUse port 8443.\n## Cache\nThe cache has 2 GB.\n# Production\nUse port 443.",
            ["# Staging\nUse port 8443.", "# Staging\n## Cache\nThe cache has 2 GB.", "# Production\nUse port 443."],
        ),
        (
            "Till drawer\nCount it at noon.\nThe key is in the safe.",
            ["Till drawer\nCount it at noon.", "Till drawer\nThe key is in the safe."],
        ),
    ],
)
def test_text_has_passages(text: str, passages: list[str]) -> None:
    assert [passage.text for passage in split_passages(text)] == passages


def test_heading_stays_above_what_is_kept() -> None:
    text = "# Staging\nUse port 8443.\n\nThe cache has 2 GB.\n\n# Production\nUse port 443."
    first, second, last = split_passages(text)
    assert keep_passages(text, [second]) == "# Staging\n\nThe cache has 2 GB."
    assert keep_passages(text, [first, last]) == "# Staging\nUse port 8443.\n\n# Production\nUse port 443."
    assert keep_passages(text, []) == ""


def test_heading_belongs_to_what_is_said() -> None:
    (staging,), (production,) = (split_passages(f"# {name}\nUse port 443.") for name in ("Staging", "Production"))
    assert staging.key != production.key
    assert split_passages("# STAGING\n- use port 443.")[0].key == staging.key


def test_frame_of_derived_memory_is_no_statement() -> None:
    text = "Card readers\nRestart the reader.\nAvoid: Never pull the plug.\nSeen 3 times in 2 sessions, 5 May 2026."
    first, second = split_passages(text, is_derived=True)
    assert [one.text for one in (*first.sentences, *second.sentences)] == [
        "Restart the reader.",
        "Never pull the plug.",
    ]
    assert keep_passages(text, [second]) == text.replace("Restart the reader.\n", "")
    assert keep_passages(text, []) == ""
