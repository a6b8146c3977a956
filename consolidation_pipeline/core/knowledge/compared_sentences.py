"""Sentences that were read and compared before: the next text of their group need not read them again.

Nearly all comparisons of the sentences of a group find nothing, and most others only that both say the same. What was
found is kept as a hash of both texts and of what was asked. Anything else is not kept, and asked for again. Answers of
yes or no about one text are kept in the same way.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import blake2b
from typing import TypeVar

T = TypeVar("T")


class ComparedPairs:
    """Pairs that were compared, as numbers of 64 bits: 63 bits of a hash, and 1 if both say the same.

    A text alone counts as a pair, and 1 stands for yes.

    Args:
        packed: Those that are known, as ``pack`` returned them.
    """

    def __init__(self, packed: bytes = b"") -> None:
        self._known = frozenset(array("Q", packed))
        self._met: set[int] = set()

    def find(self, key: int) -> bool | None:
        """Return if the texts of a pair say the same; None if that is not known. ``key``: even."""
        for is_same in (False, True):
            if key + is_same in self._known:
                self._met.add(key + is_same)
                return is_same
        return None

    def add(self, key: int, *, is_same: bool) -> None:
        """Add a pair. ``key``: even."""
        self._met.add(key + is_same)

    def pack(self) -> bytes:
        """Return the pairs that were asked about."""
        return array("Q", sorted(self._met)).tobytes()


_pairs: ContextVar[ComparedPairs | None] = ContextVar("compared_pairs", default=None)


@contextmanager
def knowing(packed: bytes) -> Iterator[ComparedPairs]:
    """Let ``compare_once`` in the block use these pairs, and yield those that it asked about."""
    pairs = ComparedPairs(packed)
    token = _pairs.set(pairs)
    try:
        yield pairs
    finally:
        _pairs.reset(token)


def compare_once(
    question: str, one: str, other: str, language: str | None, find: Callable[[], T | None], same: T
) -> T | None:
    """Return ``find()``, without calling it for texts for which it was falsy or ``same`` before.

    Args:
        question: Name of what is asked.
        one: A text.
        other: The text that it is compared with.
        language: In which both are read, if that makes a difference.
        find: Pure: its result follows from the other arguments.
        same: Its result for texts that say the same.

    Returns:
        None for any falsy result.
    """
    pairs = _pairs.get()
    if pairs is None:
        return find()
    key = _hash(question, language or "", one, other)
    known = pairs.find(key)
    if known is not None:
        return same if known else None
    found = find()
    if not found or found == same:
        pairs.add(key, is_same=bool(found))
    return found


def ask_once(question: str, *texts: str, find: Callable[[], bool]) -> bool:
    """Return ``find()``, without calling it for texts for which it is known.

    Args:
        question: Name of what is asked.
        texts: A text; or two, behind the language in which they are read, "" if that makes no difference.
        find: Pure: its result follows from the other arguments.
    """
    pairs = _pairs.get()
    if pairs is None:
        return find()
    key = _hash(question, *texts)
    answer = pairs.find(key)
    if answer is None:
        answer = find()
        pairs.add(key, is_same=answer)
    return answer


def _hash(*parts: str) -> int:
    """Return 63 bits of a hash of the parts, as an even number."""
    data = "\0".join(parts).encode(errors="surrogatepass")
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little") & ~1
