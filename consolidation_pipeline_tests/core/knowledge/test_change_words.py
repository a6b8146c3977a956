"""Change words: one search at the edges of words passes over no sentence in which an expression matches."""

from __future__ import annotations

import re

import pytest

from consolidation_pipeline.core.differences.language import LANGUAGES
from consolidation_pipeline.core.knowledge.change_words import _load, find_changes
from consolidation_pipeline_tests.core.knowledge.sequences import load_sequences

# What may hold a sign that stands for itself: an escape, and a class of signs.
_LITERAL = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]")
_INNERMOST = re.compile(r"\([^()]*\)")


@pytest.mark.parametrize("language", LANGUAGES)
def test_expressions_at_edges_have_alternatives_in_brackets(language: str) -> None:
    for _, pattern, opens_word in _load(language).patterns:
        bare = _LITERAL.sub("", pattern.pattern)
        while (shorter := _INNERMOST.sub("", bare)) != bare:
            bare = shorter
        assert not opens_word or "|" not in bare, f"{pattern.pattern!r} has an alternative that opens no word"


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_expression_that_matches_counts(language: str) -> None:
    rows = [row for row in load_sequences() if row["language"] == language]
    texts = {row[side] for row in rows for side in ("older", "newer")}
    matched = {text: [form for form, pattern, _ in _load(language).patterns if pattern.search(text)] for text in texts}
    assert any(matched.values())
    for text, forms in matched.items():
        changes = find_changes(text, language)
        # A sentence that denies a change tells none.
        assert [change.form for change in changes] in (forms, [])
        assert changes or not forms or {"from", "contrast"} & {*forms}
