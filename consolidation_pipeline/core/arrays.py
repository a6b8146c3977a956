"""Arrays of one length whose rows belong together, and ranges of a flat array."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Arrays:
    """Base of dataclasses whose fields are arrays of one length."""

    def __len__(self) -> int:
        return len(self._list()[0])

    def select(self, rows: Any) -> Self:
        """Return the rows at ``rows``: a mask, positions or a slice."""
        return type(self)(*(array[rows] for array in self._list()))

    @classmethod
    def concatenate(cls, parts: Iterable[Self]) -> Self:
        """Return the rows of one or more parts, in their order."""
        return cls(*map(np.concatenate, zip(*(part._list() for part in parts), strict=True)))

    def _list(self) -> list[NDArray[Any]]:
        return [getattr(self, field.name) for field in fields(self)]


def list_ranges(counts: NDArray[np.integer], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the positions of the items of ``rows`` (m,), row by row. ``counts`` (n,): items of each of all rows."""
    ends = np.cumsum(counts, dtype=np.int64)
    wanted = counts[rows].astype(np.int64)
    starts = ends[rows] - wanted
    offsets = np.cumsum(wanted) - wanted
    return np.asarray(np.arange(wanted.sum()) + np.repeat(starts - offsets, wanted), np.int64)
