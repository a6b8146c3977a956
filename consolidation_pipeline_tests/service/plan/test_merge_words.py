"""Details of merges in words."""

from __future__ import annotations

import pytest

from consolidation_pipeline.service.plan.merge_words import describe_additions


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["The fuse is in the cellar.", "The fuse is in the cellar."], None),
        (["The van belongs to Marie.", "The van belongs to Marie, and to Peter."], "one adds: Peter"),
        (["The shop accepts cards again.", "The shop accepts cards."], "one says more"),
    ],
)
def test_merge_tells_what_one_text_adds(texts: list[str], words: str | None) -> None:
    assert describe_additions(texts) == words
