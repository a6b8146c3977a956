"""Pairs of sentences that were found unlike before: the next run need not read them again.

Nearly all comparisons of the sentences of a group find nothing. That is kept as a hash of both texts and of what was
asked. What is found is not kept, and asked for again.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import blake2b
from typing import TypeVar

T = TypeVar("T")


class UnlikePairs:
    """Pairs that were found unlike, as hashes of 64 bits.

    Args:
        packed: Those that are known, as ``pack`` returned them.
    """

    def __init__(self, packed: bytes = b"") -> None:
        self._known = frozenset(array("Q", packed))
        self._met: set[int] = set()

    def meet(self, key: int) -> bool:
        """Return True if a pair is known to be unlike; then ``pack`` returns it, too."""
        if key not in self._known:
            return False
        self._met.add(key)
        return True

    def add(self, key: int) -> None:
        """Add a pair that is unlike."""
        self._met.add(key)

    def pack(self) -> bytes:
        """Return the pairs that were asked about and are unlike."""
        return array("Q", sorted(self._met)).tobytes()


_pairs: ContextVar[UnlikePairs | None] = ContextVar("unlike_pairs", default=None)


@contextmanager
def knowing(packed: bytes) -> Iterator[UnlikePairs]:
    """Let ``find_unless_unlike`` in the block use these pairs, and yield those that it asked about."""
    pairs = UnlikePairs(packed)
    token = _pairs.set(pairs)
    try:
        yield pairs
    finally:
        _pairs.reset(token)


def find_unless_unlike(question: str, one: str, other: str, language: str | None, find: Callable[[], T]) -> T | None:
    """Return ``find()``, or None for texts for which it was falsy before.

    Args:
        question: Name of what is asked.
        one: A text.
        other: The text that it is compared with.
        language: In which both are read, if that makes a difference.
        find: Pure: its result follows from the other arguments.
    """
    pairs = _pairs.get()
    if pairs is None:
        return find()
    data = "\0".join((question, language or "", one, other)).encode(errors="surrogatepass")
    key = int.from_bytes(blake2b(data, digest_size=8).digest(), "little")
    if pairs.meet(key):
        return None
    found = find()
    if not found:
        pairs.add(key)
    return found
