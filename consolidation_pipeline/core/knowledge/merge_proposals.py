"""What a proposed merge is: when two proposals are the same, how long its text may be, and what that leaves out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from consolidation_pipeline.core.conflicts.literals import literals
from consolidation_pipeline.core.memories.memories import content_hash
from consolidation_pipeline.core.text.text_merge import missing_literals, split_sentences


def fingerprint(originals: Iterable[tuple[UUID, str]]) -> str:
    """One name for one question, whatever the order: SHA-256 over id and content hash of each original.

    What does not change the question, such as a pin or a use, does not change the name.
    """
    return content_hash("\n".join(sorted(f"{id_} {hash_}" for id_, hash_ in originals)))


def trim_words(text: str, most: int) -> str:
    """``text`` without surrounding white space in at most ``most`` (>= 1) characters, cut between two words.

    Never to nothing: where the first word alone is longer, that is cut. Blank text gives "".
    """
    stripped = text.strip()
    if len(stripped) <= most:
        return stripped
    head = stripped[: max(most, 1)]
    if stripped[len(head)].isspace() or head[-1].isspace():
        return head.rstrip()
    whole = head.rsplit(maxsplit=1)
    return whole[0].rstrip() if len(whole) > 1 else head.rstrip()


def longest_length(texts: Iterable[str | None]) -> int:
    """Characters of the longest text; 0 where there is none. None is no text."""
    return max((len(text.strip()) for text in texts if text), default=0)


def find_left_out(sources: Sequence[str], text: str) -> tuple[str, ...]:
    """The sentences of the sources that hold a literal which ``text`` lacks, each once, in order."""
    missing = missing_literals(sources, text)
    if not missing:
        return ()
    sentences = (sentence for source in sources for sentence in split_sentences(source))
    return tuple(dict.fromkeys(sentence for sentence in sentences if literals(sentence) & missing))
