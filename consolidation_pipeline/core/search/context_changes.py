"""Changes among the memories of a context: newer ones that tell a change of what an older one speaks of.

They need not be versions of one sentence: "Ann answers line 4410", "Ann retired. Line 4410 is answered by Ben".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from consolidation_pipeline.core.differences.language_detection import detect_language
from consolidation_pipeline.core.knowledge.change_words import find_changes, is_plan, opens_with_change
from consolidation_pipeline.core.search.novelty import Sentence, parse_sentences

# A sentence that tells a change is about a sentence with so many words of it, and this share of its own.
_LEAST_WORDS, _LEAST_SHARE = 2, 0.6
# A longer text, or a longer sentence with a label, tells of more than a change.
_MOST_SENTENCES, _MOST_WORDS = 3, 6
# Words that name one thing of several: "cache-a", "pay-02", "srv9".
_LABEL = re.compile(r"\b[^\W\d_]\w*(?:-\w+)*(?:-[^\W\d_]|(?<=[^\W\d_])\d+|-\d+)\b")
# Memories that are placed above an older one for that, the newest ones.
_MOST = 2


@dataclass(frozen=True)
class DatedText:
    """The text of a memory, and when it was learned. ``scope``: memories of two scopes hold beside each other."""

    id: UUID
    text: str
    learned_at: datetime
    scope: str = ""


def link_changes(older: Iterable[DatedText], texts: Iterable[DatedText]) -> dict[UUID, tuple[UUID, ...]]:
    """Return for memories of ``older`` the newer ones among ``texts`` that tell a change of it, the newest first."""
    changes = [(one, sentence) for one in texts for sentence in _list_changes(one.text)]
    changes.sort(key=lambda pair: (pair[0].learned_at, pair[0].id), reverse=True)
    links: dict[UUID, tuple[UUID, ...]] = {}
    for one in older if changes else ():
        sentences = parse_sentences(one.text)
        found = dict.fromkeys(
            newer.id
            for newer, sentence in changes
            if newer.learned_at > one.learned_at and any(_is_about(sentence, other) for other in sentences)
        )
        if found:
            links[one.id] = tuple(found)[:_MOST]
    return links


def _list_changes(text: str) -> Iterator[Sentence]:
    """Yield the sentences of a text that tell a change, and no plan or question."""
    sentences = parse_sentences(text)
    for sentence in sentences if len(sentences) <= _MOST_SENTENCES else ():
        language = detect_language(sentence.text) or "en"
        if is_plan(sentence.text, language) or sentence.text.rstrip().endswith(("?", "？")):
            continue
        if find_changes(sentence.text, language) or opens_with_change(sentence.text, language):
            yield sentence


def _is_about(sentence: Sentence, other: Sentence) -> bool:
    """Return True if a sentence has enough words of another one, or is short and has one of its labels."""
    own = sentence.content_words
    shared = own & other.content_words
    if len(shared) >= _LEAST_WORDS and len(shared) >= _LEAST_SHARE * len(own):
        return True
    return len(own) <= _MOST_WORDS and not _list_labels(sentence.text).isdisjoint(_list_labels(other.text))


def _list_labels(text: str) -> set[str]:
    return {label.lower() for label in _LABEL.findall(text)}
