"""Changes among the memories of a context: newer ones that tell a change of what an older one speaks of.

They need not be versions of one sentence: "Ann answers line 4410", "Ann retired. Line 4410 is answered by Ben".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from consolidation_pipeline.core.differences.language import split_words
from consolidation_pipeline.core.differences.language_detection import detect_language
from consolidation_pipeline.core.knowledge.change_words import Change, find_changes, is_plan, opens_with_change
from consolidation_pipeline.core.knowledge.claim_slots import FAULTS
from consolidation_pipeline.core.search.novelty import Sentence, parse_sentences
from consolidation_pipeline.core.text.word_overlap import extract_content_words

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


@dataclass(frozen=True)
class _Change:
    """Sentence that tells a change. ``former``: of a contrast ("X instead of Y"), the words of what was before."""

    sentence: Sentence
    former: frozenset[str] = frozenset()


def link_changes(older: Iterable[DatedText], texts: Iterable[DatedText]) -> dict[UUID, tuple[UUID, ...]]:
    """Return for memories of ``older`` the newer ones among ``texts`` that tell a change of it, the newest first."""
    changes = [(one, change) for one in texts for change in _list_changes(one.text)]
    changes.sort(key=lambda pair: (pair[0].learned_at, pair[0].id), reverse=True)
    links: dict[UUID, tuple[UUID, ...]] = {}
    for one in older if changes else ():
        sentences = parse_sentences(one.text)
        found = dict.fromkeys(
            newer.id
            for newer, change in changes
            if newer.learned_at > one.learned_at and any(_is_about(change, other) for other in sentences)
        )
        if found:
            links[one.id] = tuple(found)[:_MOST]
    return links


def _list_changes(text: str) -> Iterator[_Change]:
    """Yield the sentences of a text that tell a change, and no plan, question or fault."""
    sentences = parse_sentences(text)
    for sentence in sentences if len(sentences) <= _MOST_SENTENCES else ():
        language = detect_language(sentence.text) or "en"
        if is_plan(sentence.text, language) or sentence.text.rstrip().endswith(("?", "？")):
            continue
        found = find_changes(sentence.text, language)
        if opens_with_change(sentence.text, language) or any(one.form != "contrast" for one in found):
            yield _Change(sentence)
        elif found and not FAULTS.intersection(split_words(sentence.text)):
            former = _list_former(sentence, found[0])
            if former:
                yield _Change(sentence, former)


def _list_former(sentence: Sentence, contrast: Change) -> frozenset[str]:
    """Return the words of what was before that the rest of a sentence lacks."""
    start, end = contrast.was or (0, 0)
    rest = f"{sentence.text[:start]} {sentence.text[end:]}"
    return extract_content_words(sentence.text[start:end]) - extract_content_words(rest)


def _is_about(change: _Change, other: Sentence) -> bool:
    """Return True if a change has enough words of a sentence, or is short and has one of its labels."""
    own, words = change.sentence.content_words, other.content_words
    shared = own & words
    is_alike = len(shared) >= _LEAST_WORDS and len(shared) >= _LEAST_SHARE * len(own)
    if change.former:
        return is_alike and change.former <= words and _is_replaced(other, len(shared))
    if is_alike:
        return True
    return len(own) <= _MOST_WORDS and not _list_labels(change.sentence.text).isdisjoint(_list_labels(other.text))


def _is_replaced(other: Sentence, shared: int) -> bool:
    """Return True if a contrast may replace a sentence: it has most words of it, and it contrasts nothing itself.

    Most contrasts compare: "It adds the even numbers instead of the odd ones".
    """
    if shared < _LEAST_SHARE * len(other.content_words):
        return False
    return not find_changes(other.text, detect_language(other.text) or "en")


def _list_labels(text: str) -> set[str]:
    return {label.lower() for label in _LABEL.findall(text)}
