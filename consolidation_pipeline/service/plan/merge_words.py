"""Details that some memories of a merge have alone, in words for people."""

from __future__ import annotations

from collections.abc import Sequence

from consolidation_pipeline.core.differences.explanation import explain
from consolidation_pipeline.core.knowledge.difference_words import shorten_words
from consolidation_pipeline.core.memory_tests.statements import says
from consolidation_pipeline.embed.local import word_similarity

_SHOWN = 3


def describe_additions(texts: Sequence[str]) -> str | None:
    """Return what some of the texts of a merge say that another one does not; None if all say the same."""
    found: dict[str, None] = {}
    for text in texts[1:]:
        for one in explain(texts[0], text, word_similarity).differences:
            found |= dict.fromkeys(side for side in (one.a, one.b) if one.kind == "addition" and side)
    if not found:
        # Words that keep no memories apart: "by hand", "again".
        says_more = any(says(texts[0], text) != says(text, texts[0]) for text in texts[1:])
        return "one says more" if says_more else None
    listed = [shorten_words(words) for words in found]
    more = ["…"] if len(listed) > _SHOWN else []
    return f"{'one adds' if len(listed) == 1 else 'some add'}: {'; '.join([*listed[:_SHOWN], *more])}"
