"""Memories that a person wants apart: what may not be merged again after its merge was undone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from consolidation_pipeline.core.vectors import positions_of

Ids = npt.NDArray[Any]
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True)
class CannotLink:
    """Raw memories by undone merge: two of one merge that are of different parts must not be merged.

    Arrays of shape (n,): ``ids`` S16 (or whatever else names a memory), ``merges`` and ``parts`` int32, counted from 0.
    As parts, a merge of 500 memories
    is 500 rows; as pairs it would be 124,750.
    """

    ids: Ids
    merges: Ints
    parts: Ints

    def __len__(self) -> int:
        return len(self.ids)

    def among(self, ids: Ids) -> CannotLink:
        """What is kept apart of the memories ``ids``, S16 (m,)."""
        kept = np.isin(self.ids, ids)
        return CannotLink(self.ids[kept], self.merges[kept], self.parts[kept])

    def forbids(self, a: Ids, b: Ids) -> npt.NDArray[np.bool_]:
        """Which of the pairs (a, b), S16 of shape (m,), must not be merged; bool (m,). The order in a pair is free."""
        known, at = np.unique(self.ids, return_inverse=True)
        a_at, b_at = positions_of(known, a), positions_of(known, b)
        pairs = np.flatnonzero((a_at >= 0) & (b_at >= 0))
        forbidden = np.zeros(len(a), bool)
        # For each pair, every merge that its first memory was in; then whether the second one was in that too.
        by_memory = np.argsort(at, kind="stable")
        begin, end = np.searchsorted(at[by_memory], np.stack([a_at[pairs], a_at[pairs] + 1]))
        of = np.repeat(np.arange(len(pairs)), end - begin)
        first = by_memory[np.arange(len(of)) - np.repeat(np.cumsum(end - begin) - end, end - begin)]
        keys = self.merges.astype(np.int64) * len(known) + at
        by_key = np.argsort(keys)
        wanted = self.merges[first].astype(np.int64) * len(known) + b_at[pairs][of]
        found = positions_of(keys[by_key], wanted)
        second = by_key[found]
        apart = (found >= 0) & (self.parts[first] != self.parts[second])
        forbidden[pairs[of[apart]]] = True
        return forbidden
