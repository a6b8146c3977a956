"""Interface of a system that is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from benchmarks.consolidation_bench.dataset import Dataset, Memory
from benchmarks.consolidation_bench.vectors import rank


class ActiveMemory(NamedTuple):
    """A text that agents of the user get to read. ``sources``: ids of the memories it stands for, as far as known."""

    user: str
    text: str
    sources: tuple[str, ...] = ()


@dataclass
class Usage:
    """Calls of a language model, and their tokens, four characters each."""

    calls: int = 0
    tokens: int = 0


class System:
    """A system under test. Subclass it and write ``load``, ``consolidate`` and ``active``.

    A system lives in a process of its own. ``model`` is told to readers of the table.

    Args:
        folder: Empty folder for its files, deleted afterwards.
        truth: Known facts. Only a stand-in for a perfect language model may look at them.
    """

    model = "none"

    def __init__(self, folder: Path, truth: Dataset) -> None:
        self.folder = folder
        self.truth = truth
        self.usage = Usage()

    def load(self, memories: Sequence[Memory]) -> None:
        """Store memories in this order, without consolidating them. Called once."""
        raise NotImplementedError

    def consolidate(self) -> None:
        """Consolidate all stored memories. The second call finds nothing new."""
        raise NotImplementedError

    def active(self) -> list[ActiveMemory]:
        """Return all memories that agents get to read."""
        raise NotImplementedError

    def superseded(self) -> dict[str, str]:
        """Return memories of which the system says that they hold no longer, with the memory that says so."""
        return {}

    def search(self, user: str, query: str, k: int) -> list[str]:
        """Return the ``k`` active texts of a user that fit the query best, best first."""
        return rank(query, [memory.text for memory in self.active() if memory.user == user], k)

    def undo(self) -> bool:
        """Undo all consolidation. Return False if the system has no undo."""
        return False
