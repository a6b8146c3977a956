"""Proposed merges: their identity, the length of their text, and the sentences that the text leaves out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from consolidation_pipeline.core.literals.literals import literals
from consolidation_pipeline.core.memories.memories import content_hash
from consolidation_pipeline.core.text.sentence_splitter import split_sentences
from consolidation_pipeline.core.text.text_merge import find_missing_literals


def fingerprint(originals: Iterable[tuple[UUID, str]]) -> str:
    """Return the identity of a proposal: the SHA-256 of id and content hash of its originals, in any order."""
    return content_hash("\n".join(sorted(f"{id_} {hash_}" for id_, hash_ in originals)))


def trim_words(text: str, max_chars: int) -> str:
    """Return ``text`` stripped and cut between two words to at most ``max_chars`` (>= 1) characters.

    If the first word alone is longer, it is cut. Blank text gives "".
    """
    stripped = text.strip()
    if len(stripped) <= max_chars:
        return stripped
    head = stripped[: max(max_chars, 1)]
    if stripped[len(head)].isspace() or head[-1].isspace():
        return head.rstrip()
    whole = head.rsplit(maxsplit=1)
    return whole[0].rstrip() if len(whole) > 1 else head.rstrip()


def longest_length(texts: Iterable[str | None]) -> int:
    """Return the characters of the longest text that is not None; 0 if there is none."""
    return max((len(text.strip()) for text in texts if text), default=0)


def find_left_out(sources: Sequence[str], text: str) -> tuple[str, ...]:
    """Return the distinct sentences of the sources with a literal that ``text`` lacks, in order."""
    missing = find_missing_literals(sources, text)
    if not missing:
        return ()
    sentences = (sentence for source in sources for sentence in split_sentences(source))
    return tuple(dict.fromkeys(sentence for sentence in sentences if literals(sentence) & missing))
