"""Proposed merges: their identity, how much a decision is worth, and the sentences that the text leaves out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count
from math import log2
from uuid import UUID, uuid5

from consolidation_pipeline.core.literals.literals import literals
from consolidation_pipeline.core.memories.memories import ID_NAMESPACE, content_hash
from consolidation_pipeline.core.text.sentence_splitter import split_sentences
from consolidation_pipeline.core.text.text_merge import find_missing_literals


def fingerprint(originals: Iterable[tuple[UUID, str]]) -> str:
    """Return the identity of a proposal: the SHA-256 of id and content hash of its originals, in any order."""
    return content_hash("\n".join(sorted(f"{id_} {hash_}" for id_, hash_ in originals)))


def list_suggestion_ids(fingerprint: str) -> Iterator[UUID]:
    """Yield the ids of the first suggestion with a fingerprint, and of those that repeat it once it is superseded."""
    yield from (uuid5(ID_NAMESPACE, f"suggestion {fingerprint} {number}") for number in count())


# Closeness of the least similar group: a group that is only just asked about still ranks by its size and uses.
_LEAST_CLOSE = 0.01


def measure_closeness(lowest: float | None, floor: float) -> float:
    """Return how far the lowest similarity of a group is above ``floor``, from 0.01 to 1, which is equality.

    ``floor``: the similarity from which a person is asked. Without a similarity the group counts as least close.
    """
    if lowest is None or floor >= 1.0:
        return _LEAST_CLOSE
    return min(max((lowest - floor) / (1.0 - floor), _LEAST_CLOSE), 1.0)


def compute_worth(members: int, uses: int, closeness: float) -> float:
    """Return how much a person's decision on a group is worth; 1 for a pair of unused memories that are nearly equal.

    It is (members - 1) x log2(2 + uses) x closeness: an approval leaves that many memories fewer. The
    logarithm keeps one memory that is used all day from hiding all other groups.

    Args:
        uses: Sum of the uses of all members.
        closeness: By ``measure_closeness``.
    """
    return (members - 1) * log2(2 + uses) * closeness


def learn_from_decisions(kinds: Iterable[str], decided: Mapping[str, tuple[int, int]]) -> float:
    """Return the factor of the worth of a group with these kinds of differences: 1 without an earlier decision.

    It is twice the share of approvals, by the rule of succession, of the kind that was approved least: from 0 (people
    keep such memories apart) to 2.

    Args:
        kinds: Kinds of differences of the group.
        decided: Number of approvals and of all decisions by kind.
    """
    counts = (decided.get(kind, (0, 0)) for kind in kinds)
    return min((2 * (approved + 1) / (total + 2) for approved, total in counts), default=1.0)


def differs_only_in(kinds: Collection[str], wanted: str) -> bool:
    """Return True if all kinds of differences are ``wanted``: a kind, such as value, or one with its place.

    No differences match nothing.
    """
    return bool(kinds) and all(wanted in (kind, kind.partition(":")[0]) for kind in kinds)


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


def find_left_out(sources: Sequence[str], text: str) -> tuple[str, ...]:
    """Return the distinct sentences of the sources with a literal that ``text`` lacks, in order."""
    missing = find_missing_literals(sources, text)
    if not missing:
        return ()
    sentences = (sentence for source in sources for sentence in split_sentences(source))
    return tuple(dict.fromkeys(sentence for sentence in sentences if literals(sentence) & missing))
