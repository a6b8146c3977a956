"""Advice: which texts say what to do."""

from __future__ import annotations

import pytest

from consolidation_pipeline.core.knowledge.advice import advises


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("Freight quotes\nNever send a quote without its currency.\nSeen 4 times.", True),
        ("Freight quotes\nQuotes expire at midnight.\nDo: Renew quotes before midnight.\nSeen 4 times.", True),
        ("Freight quotes\nQuotes expire at midnight.\nSeen 4 times.", False),
        ("Renew quotes\nQuestions, for example: Why did my quote expire?\nSeen 4 times.", False),
        ("Freight quotes\nTried, failed: code that rounds each quote instead of the sum.\nSeen 4 times.", False),
        ("Freight quotes\nTo try: Round the sum of all quotes once.\nSeen 4 times.", False),
        ("Freight quotes\nDo: Properly handle all quotes.\nSeen 4 times.", False),
    ],
)
def test_text_advises_by_its_own_statements(content: str, expected: bool) -> None:
    assert advises(content) is expected


def test_headline_without_title_advises() -> None:
    rule = "Renew quotes before midnight."
    assert advises(f"{rule}\nBecause: they expire.\nSeen 4 times.", rule)
