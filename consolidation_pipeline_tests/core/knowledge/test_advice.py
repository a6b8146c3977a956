"""Advice: which texts say what to do."""

from __future__ import annotations

import pytest

from consolidation_pipeline.core.knowledge.advice import advises


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("Freight quotes\nNever send a quote without its currency.", True),
        ("Freight quotes\nQuotes expire at midnight.\nDo: Renew quotes before midnight.", True),
        ("Freight quotes\nQuotes expire at midnight.", False),
        ("Renew quotes\nQuestions, for example: Why did my quote expire?", False),
        ("Freight quotes\nTried, failed: code that rounds each quote instead of the sum.", False),
        ("Freight quotes\nTo try: Round the sum of all quotes once.", False),
        ("Freight quotes\nDo: Properly handle all quotes.", False),
    ],
)
def test_text_advises_by_its_own_statements(content: str, expected: bool) -> None:
    assert advises(content, title=content.split("\n")[0]) is expected


def test_headline_without_title_advises() -> None:
    rule = "Renew quotes before midnight."
    assert advises(f"{rule}\nBecause: they expire.", rule)
