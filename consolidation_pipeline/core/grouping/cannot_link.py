"""Cannot-link constraints: memories that must not be merged again, because a person undid their merge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from consolidation_pipeline.core.arrays import Arrays, list_ranges
from consolidation_pipeline.core.vectors import find_positions

Ids = npt.NDArray[Any]
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True)
class CannotLink(Arrays):
    """Raw memories of undone merges: two memories of one merge in different parts must not be merged.

    Arrays (n,): ``ids``, S16 or any other ids; ``merges`` int32, the undone merge, and ``parts`` int32, the part of
    that merge, both from 0. For an undone merge of 500 memories these are 500 rows; as pairs they would be 124,750.
    """

    ids: Ids
    merges: Ints
    parts: Ints

    def among(self, ids: Ids) -> CannotLink:
        """Return the constraints on the memories ``ids``, S16 (m,)."""
        return self.select(np.isin(self.ids, ids))

    def forbids(self, a: Ids, b: Ids) -> npt.NDArray[np.bool_]:
        """Return bool (m,): True for each pair of ids ``a``, ``b``, S16 (m,), that must not be merged in any order."""
        known, at = np.unique(self.ids, return_inverse=True)
        a_at, b_at = find_positions(known, a), find_positions(known, b)
        pairs = np.flatnonzero((a_at >= 0) & (b_at >= 0))
        forbidden = np.zeros(len(a), bool)
        # List the merges of each pair's first memory. Then check if the second memory was in the same merge.
        by_memory = np.argsort(at, kind="stable")
        sizes = np.bincount(at, minlength=len(known))
        of = np.repeat(np.arange(len(pairs)), sizes[a_at[pairs]])
        first = by_memory[list_ranges(sizes, a_at[pairs])]
        keys = self.merges.astype(np.int64) * len(known) + at
        by_key = np.argsort(keys)
        wanted = self.merges[first].astype(np.int64) * len(known) + b_at[pairs][of]
        found = find_positions(keys[by_key], wanted)
        second = by_key[found]
        differ = (found >= 0) & (self.parts[first] != self.parts[second])
        forbidden[pairs[of[differ]]] = True
        return forbidden
