"""Cannot-link constraints: memories that must not be merged again after a person undid their merge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from consolidation_pipeline.core.vectors import find_positions

Ids = npt.NDArray[Any]
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True)
class CannotLink:
    """Raw memories of undone merges: two memories of one merge that are in different parts must not be merged.

    Arrays of shape (n,): ``ids`` S16 (or anything else that names a memory); ``merges`` int32, the number of the undone
    merge; ``parts`` int32, the part of that merge. Both count from 0. An undone merge of 500 memories takes 500 rows
    this way; listed as pairs it would take 124,750.
    """

    ids: Ids
    merges: Ints
    parts: Ints

    def __len__(self) -> int:
        return len(self.ids)

    def among(self, ids: Ids) -> CannotLink:
        """Return the constraints on the memories ``ids``, S16 (m,)."""
        chosen = np.isin(self.ids, ids)
        return CannotLink(self.ids[chosen], self.merges[chosen], self.parts[chosen])

    def forbids(self, a: Ids, b: Ids) -> npt.NDArray[np.bool_]:
        """Return True, bool (m,), for each pair (a, b) that must not be merged; the order within a pair does not
        matter.

        Args:
            a: ids of the first memories, S16 (m,).
            b: ids of the second memories, S16 (m,).
        """
        known, at = np.unique(self.ids, return_inverse=True)
        a_at, b_at = find_positions(known, a), find_positions(known, b)
        pairs = np.flatnonzero((a_at >= 0) & (b_at >= 0))
        forbidden = np.zeros(len(a), bool)
        # For each pair, every merge that its first memory was in; then check if the second memory was in it too.
        by_memory = np.argsort(at, kind="stable")
        begin, end = np.searchsorted(at[by_memory], np.stack([a_at[pairs], a_at[pairs] + 1]))
        of = np.repeat(np.arange(len(pairs)), end - begin)
        first = by_memory[np.arange(len(of)) - np.repeat(np.cumsum(end - begin) - end, end - begin)]
        keys = self.merges.astype(np.int64) * len(known) + at
        by_key = np.argsort(keys)
        wanted = self.merges[first].astype(np.int64) * len(known) + b_at[pairs][of]
        found = find_positions(keys[by_key], wanted)
        second = by_key[found]
        differ = (found >= 0) & (self.parts[first] != self.parts[second])
        forbidden[pairs[of[differ]]] = True
        return forbidden
